"""Names for arms and keys for items: what numbers would do, and whose feedback is whose."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.file import read, write
from fairwolfe.agent.names import LONGEST
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.core.packing import pack
from fairwolfe.core.streams import stream
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import GeneralizedGini, GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from tests.agent.ranking_agents import ITEMS, POLICY, PROBLEM, K, M, P, Q, bits, user
from tests.core.test_arm_candidates import contents, state

ARMS = fw.Problem.arms(2, {"clicks": (0, 1), "minutes": (0, 10)})
APART = fw.Problem.arms(2, {"clicks": (0, 1), "minutes": (0, 10)}, n_arms=3)
BANDIT = fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=10.0))
KEYS = [f"song-{i}" for i in range(M)]
WHO = np.array([0.3, 0.4])


def keyed(**options: Any) -> fw.Agent:
    return fw.Agent(POLICY, PROBLEM, items=dict(zip(KEYS, ITEMS, strict=True)), **options)


def plain() -> fw.Agent:
    return fw.Agent(POLICY, PROBLEM, items=ITEMS)


def items(decision: fw.Decision) -> list[int]:
    return list(np.asarray(decision.action).tolist())


# --- arms ----------------------------------------------------------------------------------------


def test_a_mapping_names_its_arms() -> None:
    named, numbered = fw.Agent(BANDIT, ARMS, seed=2), fw.Agent(BANDIT, ARMS, seed=2)
    rng = stream(0, "arms")
    seen = set()
    for t in range(40):
        names = ["small", "large", "none", "all"][: 2 + t % 3]
        rows = rng.uniform(-0.5, 0.5, (len(names), 2))
        one = named.act(dict(zip(names, rows.tolist(), strict=True)))
        two = numbered.act(rows)
        assert one.action == two.action
        assert one.name == names[two.action]
        assert one.names is None
        assert two.name is None
        seen.add(one.name)
        reward = rng.random(2)
        named.update(one, reward)
        numbered.update(two, reward)
    assert len(seen) > 2
    assert state(named) == state(numbered)


def test_names_that_are_given_once() -> None:
    agent = fw.Agent(BANDIT, APART, arms=["small", "middle", "large"])
    decision = agent.act(fw.PerArm([0.5, 0.5]))
    assert agent.arms == ("small", "middle", "large")
    assert decision.name == agent.arms[int(np.asarray(decision.action))]
    assert repr(decision.name) in repr(decision)
    assert decision.explain()[0]["name"] == decision.name
    assert fw.Decision.from_bytes(decision.to_bytes()).name is None  # known where it was made
    agent.update(fw.Decision.from_bytes(decision.to_bytes()), [0.5, 1.0])
    rows = fw.Agent(BANDIT, ARMS, arms=["a", "b"])
    assert rows.act(np.eye(2)).name in ("a", "b")
    assert [one.name for one in rows.act_many(np.zeros((3, 2, 2)))] == [
        "ab"[one.action] for one in fw.Agent(BANDIT, ARMS).act_many(np.zeros((4, 2, 2)))[1:]
    ]
    for bad in (np.eye(2)[:1], np.zeros((3, 2))):
        with pytest.raises(InvalidInput, match=r"the context has . arms, .* given names for 2"):
            rows.act(bad)
        with pytest.raises(InvalidInput, match=r"context 0: the context has . arms"):
            rows.act_many(bad[None])


def test_a_mapping_has_the_names_that_were_given_once_in_any_order() -> None:
    agents = [fw.Agent(BANDIT, ARMS, seed=7, arms=["a", "b", "c"]) for _ in range(3)]
    rng = stream(6, "orders")
    for _ in range(20):
        rows = dict(zip("abc", rng.uniform(-0.5, 0.5, (3, 2)), strict=True))
        other = {name: rows[name] for name in "cab"}
        made = [
            agents[0].act(np.array(list(rows.values()))),
            agents[1].act(other),
            agents[2].act_many([other])[0],
        ]
        assert len({(one.action, one.name, one.probability) for one in made}) == 1
        reward = rng.random(2)
        for agent, one in zip(agents, made, strict=True):
            agent.update(one, reward)
    assert state(agents[0]) == state(agents[1]) == state(agents[2])
    for wrong, sentence in (
        ({"a": WHO, "b": WHO}, r"the arm 'c' is missing; the arms are 'a', 'b', 'c'"),
        ({"a": WHO, "b": WHO, "d": WHO}, r"there is no arm 'd'; the arms are 'a', 'b', 'c'"),
        ({}, r"the arm 'a' is missing"),
        ({1: WHO}, r"there is no arm 1"),
        ({"a": WHO, "b": [1.0], "c": WHO}, r"the features of arm 'b' have the shape \(1,\)"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            agents[0].act(wrong)
    apart = fw.Agent(BANDIT, APART, arms=["a", "b", "c"])
    with pytest.raises(InvalidInput, match=r"so all arms see the same features"):
        apart.act({"a": WHO, "b": WHO, "c": WHO})


def test_names_in_many_contexts() -> None:
    agents = [fw.Agent(BANDIT, ARMS, seed=4) for _ in range(2)]
    rng = stream(1, "arms")
    contexts = [
        dict(zip(names, rng.uniform(-0.5, 0.5, (len(names), 2)), strict=True))
        for names in ("ab", "xy", "pqr", "ba")
    ]
    for given in (contexts, contexts[:2]):  # of different sizes, and of one
        many = agents[0].act_many([*given, np.eye(2)])
        one = [agents[1].act(context) for context in [*given, np.eye(2)]]
        assert [d.name for d in many] == [d.name for d in one]
        assert [d.name for d in many[1:]] == [d.name for d in one[1:]]
        assert one[-1].name is None
        for agent, decisions in zip(agents, (many, one), strict=True):
            agent.update_many(decisions, [[0.5, 1.0]] * len(one))
    decision = agents[0].act_many(contexts[:1], candidates=["b"])[0]
    assert (decision.action, decision.name) == (1, "b")


def test_a_batch_from_bytes_has_no_names_and_is_learnt_from() -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB()), ARMS, arms=["a", "b"])
    batch = agent.act_many(np.zeros((3, 2, 2)))
    again = type(batch).from_bytes(batch.to_bytes())  # type: ignore[attr-defined]
    assert [one.name for one in again] == [None] * 3
    agent.update_many(again, [[0.5, 1.0]] * 3)
    assert agent.t == 3


BAD_NAMES: dict[str, tuple[Any, str]] = {
    "a number": ([1, "b"], r"the name of number 0 is 1; give a text"),
    "empty": (["a", ""], r"the name of number 1 has 0 characters"),
    "long": (["a", "x" * (LONGEST + 1)], rf"the name of number 1 has {LONGEST + 1} char"),
    "no text": (["a", "\ud800"], r"the name of number 1 is '\\ud800', which is not a text"),
    "None": ([None, "b"], r"the name of number 0 is None"),
    "bytes": ([b"a", "b"], r"the name of number 0 is b'a'"),
}


@pytest.mark.parametrize(("names", "sentence"), BAD_NAMES.values(), ids=BAD_NAMES)
def test_bad_names(names: Any, sentence: str) -> None:
    agent = fw.Agent(BANDIT, ARMS)
    before = contents(agent)
    with pytest.raises(InvalidInput, match=sentence):
        agent.act(dict(zip(names, np.eye(2), strict=True)))
    with pytest.raises(InvalidInput, match=f"context 1: {sentence}"):
        agent.act_many([np.eye(2), dict(zip(names, np.eye(2), strict=True))])
    assert contents(agent) == before
    with pytest.raises(InvalidInput, match=sentence):
        fw.Agent(BANDIT, ARMS, arms=names)
    item = sentence.replace("the name", "the key")
    with pytest.raises(InvalidInput, match=item):
        fw.Agent(POLICY, PROBLEM, items=dict(zip([*names, *KEYS[2:]], ITEMS, strict=True)))
    one = keyed()
    held = bits(one)
    with pytest.raises(InvalidInput, match=item):
        one.add_items(dict(zip(names, ITEMS, strict=False)))
    assert bits(one) == held


def test_names_that_do_not_fit() -> None:
    for arms, sentence in (
        (["a", "a"], r"the name 'a' is given twice; give every name once"),
        ("ab", r"arms is 'ab'; give a list with the name of every arm"),
        ([], r"arms is \[\]; give a list"),
        (7, r"arms is 7; give a list"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            fw.Agent(BANDIT, ARMS, arms=arms)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=r"arms has 2 names and the problem 3 arms; name each"):
        fw.Agent(BANDIT, APART, arms=["a", "b"])
    with pytest.raises(InvalidInput, match=r"arms are names for Problem\.arms"):
        fw.Agent(POLICY, PROBLEM, arms=["a", "b"])
    agent = fw.Agent(BANDIT, APART)
    with pytest.raises(InvalidInput, match=r"the problem has n_arms=3, .* Agent\(\.\.\., arms="):
        agent.act({"a": [0.0, 1.0]})
    rows = fw.Agent(BANDIT, ARMS)
    for context, sentence in (
        ({}, r"an empty mapping; give name -> features"),
        ({"a": [1.0, 0.0], "b": [1.0]}, r"the features of arm 'b' have the shape \(1,\); give 2"),
        ({"a": [1.0, 0.0], "b": [1.0, "x"]}, r"the features of arm 'b' is not an array of num"),
        ({"a": [1.0, 0.0], "b": [1.0, np.nan]}, r"number 1 of the features of arm 'b' is nan"),
        ({"a": None}, r"the features of arm 'a' is not an array of numbers"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            rows.act(context)
    with pytest.raises(InvalidInput, match=r"the contexts are {'a': .*; give a list of contexts"):
        rows.act_many({"a": [1.0, 0.0]})
    assert (rows.t, rows.open) == (0, 0)


# --- items ---------------------------------------------------------------------------------------


def test_keys_do_what_numbers_do() -> None:
    one, two = keyed(), plain()
    rng, again = stream(2, "users"), stream(2, "users")
    ways: list[dict[str, Any]] = [
        {},
        {"candidates": [7, 1, 2, 5]},
        {"blocked": [3]},
        {"pinned": {1: 4}},
    ]
    for t in range(30):
        options = ways[t % 4]
        called: dict[str, Any] = {
            name: {slot: KEYS[i] for slot, i in given.items()}
            if isinstance(given, dict)
            else [KEYS[i] for i in given]
            for name, given in options.items()
        }
        mine, theirs = one.act(user(rng), **called), two.act(user(again), **options)
        assert items(mine) == items(theirs)
        assert mine.names == tuple(KEYS[i] for i in items(theirs))
        assert mine.name is None
        assert theirs.names is None
        assert [row["name"] for row in mine.explain()] == list(mine.names)
        seen = items(theirs)[: t % 4]
        liked = seen[: t % 2]
        one.update(mine, exposed=[KEYS[i] for i in seen], clicked=[KEYS[i] for i in liked])
        two.update(theirs, exposed=seen, clicked=liked)
    assert state(one) == state(two)
    assert one.keys == dict(zip(KEYS, range(M), strict=True))
    assert two.keys == {}


@pytest.mark.parametrize("batch", [True, False])
def test_many_with_keys(batch: bool) -> None:
    problem = fw.Problem.ranking(M, K, (P, Q), {"clicks": (0, K), "minutes": (0, 30)})
    one = fw.Agent(POLICY, problem, items=dict(zip(KEYS, ITEMS, strict=True)))
    two = fw.Agent(POLICY, problem, items=ITEMS)
    rng = stream(3, "users")
    users = rng.uniform(0.1, 0.6, (4, P))
    few = [[0, 3, 5], [1, 2, 3, 4], [7, 6, 5], [0, 1, 2]]
    by_key = [[KEYS[i] for i in some] for some in few]
    for options, called in (
        ({}, {}),
        ({"candidates": few}, {"candidates": by_key}),
        ({"blocked": [1, 2]}, {"blocked": [KEYS[1], "song-2"]}),
    ):
        mine, theirs = one.act_many(users, **called), two.act_many(users, **options)
        assert [d.names for d in mine] == [tuple(KEYS[i] for i in items(d)) for d in theirs]
        first = [items(decision)[0] for decision in theirs]
        two.update_many(
            theirs,
            [{"exposed": [i], "clicked": [i], "minutes": {i: 3.5}} for i in first],
        )
        answers = [
            {"exposed": [KEYS[i]], "clicked": [KEYS[i]], "minutes": {KEYS[i]: 3.5}} for i in first
        ]
        decisions = mine if batch else list(mine)
        before = bits(one)
        wrong = [*answers[:2], {**answers[2], "clicked": ["nobody"]}, answers[3]]
        with pytest.raises(InvalidInput, match=r"answer 2: item 'nobody' is given as clicked"):
            one.update_many(decisions, wrong)
        assert bits(one) == before
        one.update_many(decisions, answers)
    assert state(one) == state(two)
    with pytest.raises(
        InvalidInput, match=r"context 1: candidates holds 'nobody', which is not a key"
    ):
        one.act_many(users[:2], candidates=[by_key[0], ["nobody", *by_key[0]]])


def test_items_come_go_and_come_again() -> None:
    one = keyed()
    rng = stream(4, "items")
    new, other = rng.uniform(0.1, 0.5, (2, Q))
    assert one.add_items({"song-99": new}).tolist() == [M]
    before = bits(one)
    assert one.add_items({"song-99": new, "song-0": ITEMS[0]}).tolist() == [M, 0]
    assert bits(one) == before  # they were there
    # Other features: another item, with a clock of its own; the old one is retired.
    for _ in range(5):
        decision = one.act(user(rng))
        one.update(decision, exposed=decision.names, clicked=[])
    assert one.add_items({"song-1": ITEMS[1], "song-0": other}).tolist() == [1, M + 1]
    assert one.keys["song-0"] == M + 1
    assert 0 not in one.items.tolist()
    assert M + 1 in one.items.tolist()
    assert one._running.state.clocks[M + 1] == 0.0
    one.retire(["song-0", 2])
    assert "song-0" not in one.keys
    assert "song-2" not in one.keys
    with pytest.raises(
        InvalidInput, match=r"ids holds 'song-0', an item that was retired; give keys"
    ):
        one.retire(["song-0"])
    with pytest.raises(InvalidInput, match=r"candidates holds 'song-2', an item that was retired"):
        one.act(WHO, candidates=["song-2", "song-1", "song-3", "song-4"])
    assert one.add_items({"song-0": other}).tolist() == [M + 2]  # again, as a new item
    assert one.keys["song-0"] == M + 2
    assert len(one.keys) == one.items.size == len(set(one.keys.values()))


def test_a_replacement_is_to_add_and_to_retire() -> None:
    one, two = keyed(), plain()
    rng = stream(5, "items")
    other = rng.uniform(0.1, 0.5, (1, Q))
    for agent in (one, two):
        again = stream(6, "users")
        for _ in range(10):
            decision = agent.act(user(again))
            agent.update(decision, exposed=items(decision)[:2], clicked=items(decision)[:1])
    one.add_items({"song-3": other[0]})
    two.add_items(other)
    two.retire([3])
    mine, theirs = state(one), state(two)
    assert {name for name in mine if mine[name] != theirs[name]} <= {
        name for name in mine if name.startswith("state.live")
    }
    assert items(one.act(WHO)) == items(two.act(WHO))


def test_a_replacement_keeps_the_length_that_an_objective_needs() -> None:
    fixed = TwoSided(GeneralizedGini(tuple(np.linspace(1.0, 0.3, M))), beta=0.5)
    one = fw.Agent(FWLinUCBRank(fixed), PROBLEM, items=dict(zip(KEYS, ITEMS, strict=True)))
    with pytest.raises(InvalidInput):
        one.add_items({"song-99": ITEMS[0]})  # f is of as many items as there were
    assert one.add_items({"song-3": ITEMS[0]}).tolist() == [M]
    assert one.items.size == M


def test_late_feedback_goes_to_the_item_that_was_shown() -> None:
    """The decision's own items decide what a key means."""
    one, two = keyed(), plain()
    made = one.act(WHO), two.act(WHO)
    a, b, c = items(made[0])
    other = ITEMS[a][::-1].copy()
    one.add_items({KEYS[a]: other})
    two.add_items(other[None])
    two.retire([a])
    now = one.act(WHO, pinned={0: KEYS[a]}), two.act(WHO, pinned={0: M})
    assert items(now[0])[0] == M
    assert made[0].names == (KEYS[a], KEYS[b], KEYS[c])
    logged = fw.Decision.from_bytes(made[0].to_bytes())
    one.update(logged, {"clicks": {KEYS[a]: 1.0}}, exposed=[KEYS[a], KEYS[b]])
    two.update(made[1], {"clicks": {a: 1.0}}, exposed=[a, b])
    assert one._running.state.totals.tolist() == two._running.state.totals.tolist()
    one.update(now[0], exposed=[KEYS[a]], clicked=[])
    two.update(now[1], exposed=[M], clicked=[])
    assert one._running.state.totals[[a, M]].tolist() == two._running.state.totals[[a, M]].tolist()
    one.retire([KEYS[a]])
    gone = fw.Decision.from_bytes(now[0].to_bytes())
    with pytest.raises(InvalidInput, match=r"was given already"):
        one.update(gone, exposed=[KEYS[a]], clicked=[])


def test_what_a_key_means_does_not_depend_on_the_order_of_what_came() -> None:
    """Any order of adding, retiring and answering: a decision's keys are those it was made with."""
    for order in itertools.permutations(range(3)):
        one = keyed()
        decision = one.act(WHO)
        assert decision.names is not None
        first = decision.names[0]
        steps = (
            lambda one=one, first=first: one.add_items({first: ITEMS[0][::-1]}),
            lambda one=one: one.add_items({"late": ITEMS[1][::-1]}),
            lambda one=one, d=decision: one.update(d, exposed=[d.names[0]], clicked=[]),
        )
        for step in order:
            steps[step]()
        assert one._running.state.totals[items(decision)[0]] == 1.0
        assert one._running.state.totals[M:-1].sum() == 0.0


BAD_ITEMS: dict[str, tuple[Any, str]] = {
    "two of one key": (
        [("x", ITEMS[0]), ("x", ITEMS[1])],
        r"the key 'x' is given twice; give ever",
    ),
    "no keys": (ITEMS[:1], r"the items of this agent have keys; give \{key: features\}"),
    "none": ({}, r"no items are given; give key -> features"),
    "a number for a key": ({3: ITEMS[0]}, r"the key of number 0 is 3; give a text"),
    "too few features": ({"x": [0.5]}, r"the features of item 'x' have the shape \(1,\); give 3"),
    "not a number": ({"x": [0.5, np.nan, 0.1]}, r"number 1 of the features of item 'x' is nan"),
    "words": ({"x": ["a", "b", "c"]}, r"the features of item 'x' is not an array of numbers"),
    "a pair too long": ([("x", ITEMS[0]), ("y", 1, 2)], r"an item is \('y', 1, 2\); give pairs"),
}


@pytest.mark.parametrize(("given", "sentence"), BAD_ITEMS.values(), ids=BAD_ITEMS)
def test_bad_items_change_nothing(given: Any, sentence: str) -> None:
    one = keyed()
    before = bits(one)
    with pytest.raises(InvalidInput, match=sentence):
        one.add_items(given)
    assert bits(one) == before
    assert list(one.keys) == KEYS


BAD_OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "unknown": ({"candidates": ["x", *KEYS[:3]]}, r"candidates holds 'x', which is not a key of"),
    "blocked": (
        {"blocked": ["x"]},
        r"blocked holds 'x', which is not a key .*; give keys",
    ),
    "twice": ({"candidates": ["song-1", 1, 2, 3]}, r"candidate 'song-1' is given 2 times"),
    "text": ({"candidates": "song-1"}, r"candidates is 'song-1'; give a list of keys or ids"),
    "number": ({"blocked": 7}, r"blocked is 7; give a list of keys or ids"),
    "pinned": ({"pinned": {0: "x"}}, r"pinned holds 'x', which is not a key"),
    "pinned twice": ({"pinned": {0: "song-1", 1: 1}}, r"item 'song-1' is pinned to two slots"),
    "pinned and blocked": (
        {"pinned": {0: "song-1"}, "blocked": ["song-1"]},
        r"item 'song-1' is pinned to slot 0, but is not among the candidates",
    ),
    "too few": ({"candidates": ["song-1"]}, r"there are 1 candidates for 3 slots"),
    "a number that is none": ({"blocked": [99]}, r"blocked item 99 is not in the catalogue"),
}


@pytest.mark.parametrize(("options", "sentence"), BAD_OPTIONS.values(), ids=BAD_OPTIONS)
def test_bad_keys_in_act(options: dict[str, Any], sentence: str) -> None:
    one = keyed()
    before = bits(one)
    with pytest.raises(InvalidInput, match=sentence):
        one.act(WHO, **options)
    assert bits(one) == before


def test_bad_keys_in_feedback() -> None:
    one = keyed()
    decision = one.act(WHO)
    assert decision.names is not None
    a, b, c = decision.names
    away = next(key for key in KEYS if key not in decision.names)
    before = bits(one)
    for reward, options, sentence in (
        (
            None,
            {"exposed": [away], "clicked": []},
            rf"item '{away}' is given as exposed, but was",
        ),
        (None, {"exposed": [a], "clicked": ["x"]}, r"item 'x' is given as clicked, but was not"),
        ({"clicks": {"x": 1.0}}, {"exposed": [a]}, r"item 'x' is given as clicks, but was not"),
        (None, {"exposed": [a], "clicked": [b]}, rf"item '{b}' earned something but is not among"),
        (None, {"exposed": [a, a], "clicked": []}, rf"item '{a}' is given twice in exposed"),
        (None, {"exposed": [a, items(decision)[0]], "clicked": []}, rf"item '{a}' is given twice"),
        (None, {"exposed": a, "clicked": []}, rf"exposed is '{a}'; give a list"),
        (
            {"clicks": {c: None}},
            {"exposed": [c]},
            rf"'clicks' of item '{c}' is None; give a number",
        ),
        ({"clicks": {c: "x"}}, {"exposed": [c]}, rf"'clicks' of item '{c}' is 'x'; give a finite"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            one.update(decision, reward, **options)
    assert bits(one) == before
    keyless = plain()
    with pytest.raises(InvalidInput, match=r"exposed holds 'song-1'; give ids of items"):
        keyless.update(keyless.act(WHO), exposed=["song-1"], clicked=[])
    with pytest.raises(InvalidInput, match=r"the items of this agent have no keys"):
        keyless.add_items({"song-1": ITEMS[0]})


def test_keys_that_look_like_numbers_are_texts() -> None:
    one = fw.Agent(POLICY, PROBLEM, items={str(M - 1 - i): row for i, row in enumerate(ITEMS)})
    assert one.keys["0"] == M - 1
    assert items(one.act(WHO, pinned={0: "0"}))[0] == M - 1
    assert items(one.act(WHO, pinned={0: 0}))[0] == 0


# --- files ---------------------------------------------------------------------------------------


def test_names_are_saved_and_loaded(tmp_path: Path) -> None:
    one = keyed()
    open_ = one.act(WHO)
    one.add_items({KEYS[items(open_)[0]]: ITEMS[0][::-1], "ü 漢": ITEMS[1][::-1]})
    one.retire(["song-7"] if 7 not in items(open_) else [KEYS[items(open_)[1]]])
    one.save(tmp_path / "agent.fw")
    dumped, follows = one.dump(), one.act(WHO).names
    for again in (fw.Agent.load(tmp_path / "agent.fw"), fw.Agent.restore(dumped)):
        assert again.keys == one.keys
        assert again.act(WHO).names == follows
        first = KEYS[items(open_)[0]]
        again.update(open_, exposed=[first], clicked=[first])
        assert again.average[-1] == 1.0
        assert again._running.state.totals[items(open_)[0]] == 1.0
    named = fw.Agent(BANDIT, APART, arms=["a", "b", "c"])
    again = fw.Agent.restore(named.dump())
    assert again.arms == ("a", "b", "c")
    assert again.act(fw.PerArm([0.5, 0.5])).name == named.act(fw.PerArm([0.5, 0.5])).name
    assert fw.Agent.restore(fw.Agent(BANDIT, ARMS).dump()).arms is None


def packed(*keys: Any) -> Any:
    return np.frombuffer(pack(keys), dtype=np.uint8)


FORGED: dict[str, Any] = {
    "no bytes": np.zeros(0, dtype=np.uint8),
    "other bytes": np.zeros(50, dtype=np.uint8),
    "numbers": np.zeros(50),
    "too few": packed(*KEYS[:-1]),
    "too many": packed(*KEYS, "x"),
    "one twice": packed(*KEYS[:-1], KEYS[0]),
    "a number": packed(*KEYS[:-1], 3),
    "None": packed(*KEYS[:-1], None),
    "nested": packed(*KEYS[:-1], ("a", "b")),
    "an array": packed(*KEYS[:-1], np.zeros(3)),
    "empty": packed(*KEYS[:-1], ""),
    "long": packed(*KEYS[:-1], "x" * (LONGEST + 1)),
}


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_forged_keys_are_refused(forged: Any, tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    keyed().save(path)
    text, arrays = read(path)
    write(path, text, arrays | {"keys": forged})
    with pytest.raises(IncompatibleState):
        fw.Agent.load(path)
    fw.Agent(BANDIT, ARMS).save(path)
    text, arrays = read(path)
    write(path, text, arrays | {"keys": forged})
    with pytest.raises(IncompatibleState):
        fw.Agent.load(path)


@pytest.mark.parametrize("forged", ["ab", 3, [], ["a", "a", "b"], ["a"], ["a", "b", 3], {"a": 1}])
def test_forged_names_are_refused(forged: Any, tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    for agent in (fw.Agent(BANDIT, APART, arms=["a", "b", "c"]), keyed()):
        agent.save(path)
        text, arrays = read(path)
        write(path, text | {"arms": forged}, arrays)
        with pytest.raises(IncompatibleState):
            fw.Agent.load(path)
        del text["arms"]
        write(path, text, arrays)
        with pytest.raises(IncompatibleState):
            fw.Agent.load(path)


def test_keys_need_features_that_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    fw.Agent(POLICY, PROBLEM).save(path)
    text, arrays = read(path)
    write(path, text, arrays | {"keys": packed(*KEYS)})
    with pytest.raises(IncompatibleState, match=r"8 keys for 8 items"):
        fw.Agent.load(path)


# --- interrupts ----------------------------------------------------------------------------------


def test_an_interrupt_leaves_the_keys_of_the_items_that_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = keyed()

    def stop(*given: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(fw.Agent, "_take", stop)
        with pytest.raises(KeyboardInterrupt):
            one.add_items({"x": ITEMS[0], "song-0": ITEMS[1]})
    assert one.keys == dict(zip(KEYS, range(M), strict=True))
    assert one.add_items({"y": ITEMS[2]}).tolist() == [M]
    assert one.keys == dict(zip([*KEYS, "y"], range(M + 1), strict=True))
    assert fw.Agent.restore(one.dump()).keys == one.keys


def test_averages_by_name() -> None:
    problem = fw.Problem.arms(2, {"clicks": (0, 1), "minutes": (0, 9)})
    agent = fw.Agent(fw.FrankWolfe(Minimum(), LinUCB()), problem)
    assert agent.averages == {"clicks": 0.0, "minutes": 0.0}
    for reward in ([1.0, 3.0], [0.0, 6.0]):
        agent.update(agent.act([[0.5, 0.5]]), reward)
    assert agent.averages == {"clicks": 0.5, "minutes": 4.5}
    ranked = fw.Agent(FWLinUCBRank(TwoSided(GiniWelfare())), fw.Problem.ranking(4, 2, 1))
    ranked.update(ranked.act(np.full((4, 1), 0.5)), exposed=[0, 1], clicked=[0])
    assert ranked.averages == {"clicks": 1.0}
