"""Groups that follow items: totals and clocks against brute force, files, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fairwolfe as fw
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import (
    AtLeast,
    ByGroup,
    Concave,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    TwoSided,
)
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank
from fairwolfe.smoothing import Augmented, Moreau, Randomized

P, Q, K = 2, 2, 2
MAKERS = "abcd"
NUMBER: dict[str, Any] = {"maker": 3}
BY_MAKER = TwoSided(ByGroup(GiniEquality(), by="maker"), beta=0.7)
BOTH = TwoSided(
    ByGroup(GiniEquality(), by="maker") + 0.5 * ByGroup(GiniWelfare(), by="origin"), beta=0.7
)


class InPython(LinUCBRank):
    """The same ranker, on the plain path."""

    def scores(self, *args: Any) -> Any:
        return super().scores(*args)


def item(number: int, maker: str, **more: str) -> fw.Item:
    """An item with features of its own."""
    x = stream(number, "features").uniform(0.1, 0.6, Q)
    return fw.Item(x, maker=maker, origin="here" if number % 3 else "there", **more)


def agent(f: Concave, makers: str = "abca", *, plain: bool = False, **settings: Any) -> fw.Agent:
    """An agent whose items have these makers."""
    problem = fw.Problem.ranking(len(makers), K, (P, Q))
    policy = fw.FrankWolfe(
        f, InPython() if plain else LinUCBRank(exploration="theorem"), **settings
    )
    items = {f"i{i}": item(i, maker) for i, maker in enumerate(makers)}
    return fw.Agent(policy, problem, items=items)


class Oracle:
    """Totals and clocks of groups by brute force, from the list of all that happened."""

    def __init__(self, one: fw.Agent, memory: float | None = None) -> None:
        self.one, self.keep = one, 1.0 if memory is None else 0.5 ** (1.0 / memory)
        self.answers: list[tuple[dict[int, float], int, set[int]]] = []

    def answered(self, exposed: dict[int, float], known: int, left: set[int]) -> None:
        """known, left: how many items there had been when the decision was made, and which were
        left.
        """
        self.answers.append((exposed, known, left))

    def averages(self, by: str) -> dict[str, float]:
        """Of the groups that have an item."""
        labels = [own[by] for own in self.one.attributes]
        found = {}
        for label in {labels[i] for i in self.one.items.tolist()}:
            members = {i for i, own in enumerate(labels) if own == label}
            totals, clock = dict.fromkeys(members, 0.0), 0.0
            for exposed, known, left in self.answers:
                for i in members:
                    if i < known:  # an answer from before an item came does not fade its total
                        totals[i] = self.keep * totals[i] + exposed.get(i, 0.0)
                counts = min(members) < known and bool(members & left)
                clock = (self.keep * clock + counts) if min(members) < known else clock
            found[label] = sum(totals.values()) / max(clock, 1.0)
        return found


def step(one: fw.Agent, rng: np.random.Generator) -> tuple[fw.Decision, list[int]]:
    """A decision, and which of its items will be exposed."""
    decision = one.act(rng.uniform(0.1, 0.6, P))
    return decision, [i for i in decision.action.tolist() if rng.random() < 0.7]


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("play"), st.integers(1, 4)),
        st.tuples(st.just("answer"), st.integers(0, 30)),
        st.tuples(st.just("add"), st.sampled_from(MAKERS)),
        st.tuples(st.just("retire"), st.integers(0, 30)),
        st.tuples(st.just("replace"), st.integers(0, 30)),
        st.tuples(st.just("load"), st.just(0)),
    ),
    min_size=5,
    max_size=40,
)


def histories(
    one: fw.Agent, operations: list[tuple[str, Any]], memory: float | None = None
) -> tuple[fw.Agent, Oracle, list[list[int]]]:
    """Play a history; the agent, what it must know, and what it showed."""
    rng, oracle, shown = stream(0, "history"), Oracle(one, memory), []
    open_: list[tuple[fw.Decision, list[int], int, set[int]]] = []
    for number, (what, choice) in enumerate(operations):
        keys = list(one.keys)
        if what == "play":
            for _ in range(choice):
                open_.append((*step(one, rng), len(one.attributes), set(one.items.tolist())))
                shown.append(open_[-1][0].action.tolist())
        elif what == "answer" and open_:
            decision, exposed, known, left = open_.pop(choice % len(open_))
            one.update(decision, exposed=exposed, clicked=exposed[:1])
            oracle.answered(dict.fromkeys(exposed, 1.0), known, left)
        elif what == "add":
            one.add_items({f"n{number}": item(100 + number, choice)})
        elif what == "retire" and len(keys) > K:
            one.retire([keys[choice % len(keys)]])
        elif what == "replace":
            key = keys[choice % len(keys)]
            maker = one.attributes[one.keys[key]]["maker"]
            origin = one.attributes[one.keys[key]]["origin"]
            x = stream(number, "other").uniform(0.1, 0.6, Q)
            one.add_items({key: fw.Item(x, maker=maker, origin=origin)})
        elif what == "load":
            data = one.dump()
            one = oracle.one = fw.Agent.restore(data, one.policy, token=one._ledger.token)
            assert one.dump() == data
        for by, groups in one.exposures_by_group().items():
            assert groups == pytest.approx(oracle.averages(by), abs=1e-12)
    return one, oracle, shown


@pytest.mark.parametrize("plain", [False, True])
@settings(max_examples=20, deadline=None)
@given(OPERATIONS, st.sampled_from([None, 20.0]))
def test_totals_and_clocks_are_those_of_brute_force(
    plain: bool, operations: list[tuple[str, Any]], memory: float | None
) -> None:
    histories(agent(BOTH, plain=plain, memory=memory), operations, memory)


@settings(max_examples=12, deadline=None)
@given(OPERATIONS)
def test_the_plain_path_is_the_compiled_one(operations: list[tuple[str, Any]]) -> None:
    some, other = (agent(BOTH, plain=plain, anticipate=False) for plain in (False, True))
    (compiled, _, shown), (plain, _, same) = (
        histories(some, operations),
        histories(other, operations),
    )
    assert shown == same
    assert np.array_equal(compiled._running.iterate, plain._running.iterate)
    assert np.array_equal(compiled._running.direction(), plain._running.direction())


def test_brute_force_would_find_a_clock_that_runs_on(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[tuple[str, Any]] = [("play", 4), *[("answer", 0)] * 4]
    history = [*answers, ("retire", 1), *answers, ("add", "b")]
    histories(agent(BOTH), history)
    monkeypatch.setattr(
        "fairwolfe.reduction.running.moved", lambda groups, gaps, *_: (groups, gaps)
    )
    with pytest.raises(AssertionError, match="approx"):
        histories(agent(BOTH), [*history[:-1], ("add", "b")])


# --- on a fixed catalogue it is the sum, bit for bit -------------------------------------------

FORMS: dict[str, Callable[[Callable[[Concave], Concave]], Concave]] = {
    "two-sided": lambda group: TwoSided(group(GiniEquality()), beta=0.7),
    "with rewards": lambda group: Linear({"clicks": 1.0}) + group(GiniWelfare()),
    "constrained": lambda group: Linear({"clicks": 1.0}) + group(AtLeast(0.2, share=True)),
    "mixed": lambda group: TwoSided(GiniEquality() + group(Minimum())),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["prompt", "late", "memory", "augmented"])
def test_on_a_fixed_catalogue_labels_say_the_same(form: str, how: str) -> None:
    labels = list("abcabd")
    options: dict[str, Any] = {}
    if how == "memory":
        options["memory"] = 40.0
    if how == "augmented":
        options["smoothing"] = Augmented(beta0=0.5)
    by = agent(FORMS[form](lambda f: ByGroup(f, by="maker")), "abcabd", **options)
    fixed = agent(FORMS[form](lambda f: ByGroup(f, labels)), "abcabd", **options)
    for one in (by, fixed):
        rng, waiting = stream(0, form), []
        for _ in range(150):
            waiting.append(step(one, rng))
            if how != "late" or len(waiting) > 10:
                decision, exposed = waiting.pop(0)
                one.update(decision, exposed=exposed, clicked=exposed[:1])
    assert np.array_equal(by.average, fixed.average)
    z = by._running.iterate
    sums = [sum(z[i] for i in range(6) if labels[i] == name) for name in "abcd"]
    assert z[7:].tolist() == sums
    assert by._running.direction() == pytest.approx(fixed._running.direction(), abs=1e-13)
    if form != "constrained" and how != "augmented":  # there items are summed in another order
        assert np.array_equal(by._running.direction(), fixed._running.direction())
    assert by.value == pytest.approx(fixed.value, abs=1e-14)
    assert by.live().about == pytest.approx(fixed.live().about, abs=1e-12)
    assert len(by.constraints) == len(fixed.constraints)
    for ours, theirs in zip(by.constraints, fixed.constraints, strict=True):
        assert (ours.name, ours.level, ours.feasible) == (
            theirs.name,
            theirs.level,
            theirs.feasible,
        )
        for name in ("average", "slack", "shadow_price"):
            assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-12)


def test_the_direction_is_the_gradient_at_the_averages_of_the_groups() -> None:
    one = agent(BY_MAKER, smoothing=Moreau(0.3))
    rng = stream(0, "direction")
    for number in range(60):
        decision, exposed = step(one, rng)
        one.update(decision, exposed=exposed, clicked=[])
        if number == 20:
            one.add_items({"late": item(7, "b"), "new": item(8, "d")})
        if number == 40:
            one.retire(["i0", "i2"])  # c goes, a stays
    averages = one.exposures_by_group()["maker"]
    width = 0.7 * one._running.plan.width / np.sqrt(one.t + 1.0)
    prices = 0.7 * GiniEquality().envelope_gradient(np.array(list(averages.values())), width)
    price = dict(zip(averages, prices.tolist(), strict=True))
    wanted = [price[one.attributes[i]["maker"]] for i in one.items.tolist()]
    assert list(averages) == ["b", "a", "d"]
    assert one._running.direction() == pytest.approx([*wanted, 1.0], abs=1e-12)


# --- items come and go ------------------------------------------------------------------------


def shares(one: fw.Agent, order: list[int]) -> dict[str, float]:
    """Play with items that came in some order; the exposure of each maker."""
    rng = stream(0, "order")
    for _ in range(2000):
        decision, exposed = step(one, rng)
        one.update(decision, exposed=exposed, clicked=[])
    return one.exposures_by_group()["maker"]


def test_labels_follow_items_in_any_order() -> None:
    makers, problem = "aaab", fw.Problem.ranking(4, K, (P, Q))
    found = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        items = {f"i{i}": item(i, makers[i]) for i in order}
        one = fw.Agent(FWLinUCBRank(BY_MAKER), problem, items=items)
        found.append(shares(one, order))
    assert found[0] == pytest.approx(found[1], abs=0.02)
    assert found[0]["a"] == pytest.approx(found[0]["b"], abs=0.02)  # as makers, not as items


def test_a_retired_item_leaves_its_exposure_with_its_group() -> None:
    one = agent(BY_MAKER)
    rng = stream(0, "retire")
    for _ in range(300):
        decision, exposed = step(one, rng)
        one.update(decision, exposed=exposed, clicked=exposed[:1])
    before, value = one.exposures_by_group(), one.value
    one.retire(["i0"])  # of a, which has i3 left
    assert (one.exposures_by_group(), one.value) == (before, value)
    one.add_items({"new": item(9, "c")})  # its clock is 0, that of c is not
    assert (one.exposures_by_group(), one.value) == (before, value)


def test_a_group_goes_with_its_last_item_and_resumes() -> None:
    one = agent(BY_MAKER)
    rng = stream(0, "resume")

    def play(rounds: int) -> None:
        for _ in range(rounds):
            decision, exposed = step(one, rng)
            one.update(decision, exposed=exposed, clicked=[])

    play(200)
    before = one.exposures_by_group()["maker"]["b"]
    one.retire(["i1"])
    assert set(one.stats()["groups"]["maker"]) == {"a", "c"}
    play(500)
    one.add_items({"again": item(11, "b")})
    assert one.exposures_by_group()["maker"]["b"] == before
    one.add_items({"other": item(12, "d")})  # it was never there: 0
    assert one.exposures_by_group()["maker"]["d"] == 0.0
    play(600)
    groups = one.exposures_by_group()["maker"]
    assert max(groups.values()) - min(groups.values()) < 0.1


def test_prices_stay_with_their_groups() -> None:
    for f, smoothing in (
        (Linear({"clicks": 1.0}) + ByGroup(AtLeast(0.2, share=True), by="maker"), None),
        (BY_MAKER, Augmented(beta0=0.5)),
    ):
        one = agent(f, smoothing=smoothing)
        rng = stream(0, "prices")
        for _ in range(200):
            decision, exposed = step(one, rng)
            one.update(decision, exposed=exposed, clicked=exposed[:1])

        def prices(one: fw.Agent = one) -> dict[str, float]:
            running = one._running
            (names,) = running.prices.names
            return dict(zip(names, running.state.prices.tolist(), strict=False))

        before = prices()
        assert set(before) == {"a", "b", "c"}
        assert any(before.values())
        one.add_items({"new": item(9, "d"), "more": item(10, "a")})
        assert prices() == {**before, "d": 0.0}
        one.retire(["i1"])
        assert prices() == {"a": before["a"], "c": before["c"], "d": 0.0}
        assert one.live().decisions == 0  # windows start anew


def test_sizes_are_those_of_the_groups_there_are() -> None:
    one, other = agent(BY_MAKER, "abca"), agent(BY_MAKER, "abcad")
    before = one._running.smoothing
    one.add_items({"new": item(4, "d")})
    assert one._running.smoothing == other._running.smoothing != before
    assert one._running.plan.width == other._running.plan.width


# --- files --------------------------------------------------------------------------------------


def test_a_fork_and_a_file_continue_alike(tmp_path: Path) -> None:
    one = agent(BOTH)
    rng = stream(0, "file")
    for _ in range(50):
        decision, exposed = step(one, rng)
        one.update(decision, exposed=exposed, clicked=exposed[:1])
    one.retire(["i1"])
    one.add_items({"new": item(9, "d")})
    one.save(tmp_path / "agent.fw")
    loaded = fw.Agent.load(tmp_path / "agent.fw")
    assert loaded.attributes == one.attributes
    assert loaded.exposures_by_group() == one.exposures_by_group()
    for each in (one, loaded):
        rng = stream(1, "file")
        for _ in range(50):
            decision, exposed = step(each, rng)
            each.update(decision, exposed=exposed, clicked=exposed[:1])
        each.add_items({"again": item(12, "b")})
    assert loaded.exposures_by_group() == one.exposures_by_group()
    assert np.array_equal(loaded.average, one.average)


# --- what is refused ----------------------------------------------------------------------------


def test_items_without_the_attribute_are_refused() -> None:
    one = agent(BY_MAKER)
    data = one.dump()
    x = [0.1, 0.2]
    for bad, sentence in (
        (
            {"n": x},
            r"item 'n' has no attribute 'maker', and the objective has ByGroup\(by='maker'\)",
        ),
        ({"n": fw.Item(x, made="a")}, r"did you mean 'made'\?"),
        ({"n": fw.Item(x, **NUMBER)}, r"'maker' of item 'n' is 3; give a text, such as '3'"),
        ({"n": fw.Item(x, maker="")}, r"'maker' of item 'n' has 0 characters"),
        ({"i0": fw.Item(one.features[0], maker="b", origin="there")}, r"retire it first"),
        ({"i0": fw.Item(x, maker="b", origin="there")}, r"item 'i0' has the attributes \{'maker'"),
        ({"i0": one.features[0]}, r"item 'i0' has the attributes"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            one.add_items(bad)
    with pytest.raises(InvalidInput, match=r"has no attribute 'brand'"):
        one.replace_objective(TwoSided(ByGroup(GiniEquality(), by="brand")))
    assert one.dump() == data
    assert one.add_items({"i0": item(0, "a")}).tolist() == [0]  # known, and the same


def test_an_agent_without_attributes_is_refused() -> None:
    problem = fw.Problem.ranking(3, K, (P, Q))
    with pytest.raises(InvalidInput, match=r"item 0 has no attribute 'maker'"):
        fw.Agent(FWLinUCBRank(BY_MAKER), problem)
    items = {"a": item(0, "a"), "b": item(1, "b"), "c": [0.1, 0.2]}
    with pytest.raises(InvalidInput, match=r"item 'c' has no attribute 'maker'"):
        fw.Agent(FWLinUCBRank(BY_MAKER), problem, items=items)
    with pytest.raises(InvalidInput, match=r"there are no items with attributes here"):
        BY_MAKER.bind(problem)
    with pytest.raises(InvalidInput, match=r"neither labels nor by"):
        ByGroup(GiniEquality())


def test_what_cannot_follow_items_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"moves the averages of items"):
        agent(BY_MAKER, smoothing=Randomized())
    inside = TwoSided(Mapped(ByGroup(Minimum(), by="maker"), np.eye(4).tolist()))
    with pytest.raises(InvalidInput, match=r"inside of another map"):
        agent(inside)


def test_items_by_number_have_attributes_too() -> None:
    problem = fw.Problem.ranking(3, K, (P, Q))
    one = fw.Agent(FWLinUCBRank(BY_MAKER), problem, items=[item(i, "aab"[i]) for i in range(3)])
    assert one.add_items([item(3, "c")]).tolist() == [3]
    one.retire([0])
    assert [own["maker"] for own in one.attributes] == ["a", "a", "b", "c"]
    assert repr(fw.Item([0.1], maker="acme")) == "Item([0.1], maker='acme')"
