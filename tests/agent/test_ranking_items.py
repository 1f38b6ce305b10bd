"""Items that come and go while an agent runs: ids, clocks, late feedback, files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, Problem
from fairwolfe.core.arrays import Matrix
from fairwolfe.core.decision import Decision
from fairwolfe.core.streams import stream
from fairwolfe.objectives import GiniEquality, GiniWelfare, PerMerit, TwoSided
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.smoothing import Randomized
from tests.agent.ranking_agents import (
    FAIR,
    ITEMS,
    POLICY,
    K,
    M,
    Q,
    agent,
    answer,
    played,
    user,
    whole,
)

MORE: Matrix = stream(0, "more").uniform(0.1, 0.5, (4, Q))
ALL: Matrix = np.vstack([ITEMS, MORE])

POLICIES: dict[str, Any] = {
    "fw": POLICY,
    "linucb": LinUCBRank(randomize=0.2),
    "fairlearn": FairLearnRank(0.2, 0.0),
    "unbiased": UnbiasedLinUCBRank(exploration=0.2),
    "randomized": FWLinUCBRank(FAIR, smoothing=Randomized(n_samples=2)),
    "memory": FWLinUCBRank(FAIR, memory=30.0, exposure="shown"),
}


def rank(decision: Decision) -> list[int]:
    return [int(item) for item in np.asarray(decision.action)]


# --- ids and averages -------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "told"])
@pytest.mark.parametrize("name", POLICIES)
def test_ids_stay_and_averages_have_the_order_of_the_items(name: str, keep: bool) -> None:
    """Each average is the item's exposures over the decisions answered since it came."""
    one = agent(POLICIES[name], items=ITEMS if keep else None)
    memory = getattr(one.policy, "memory", None)
    rng = stream(0, "order")
    exposed, clocks = dict.fromkeys(range(12), 0.0), dict.fromkeys(range(12), 0)
    clicks = 0

    def rounds(n: int) -> None:
        nonlocal clicks
        for _ in range(n):
            who = user(rng)
            decision = one.act(who if keep else whole(one, ALL, who))
            ranking = rank(decision)
            assert set(ranking) <= set(one.items.tolist())
            seen = ranking if name == "memory" else ranking[: int(rng.integers(0, K + 1))]
            one.update(decision, exposed=seen, clicked=seen[:1])
            clicks += len(seen[:1])
            for item in seen:
                exposed[item] += 1.0
            for item in one.items.tolist():
                clocks[item] += 1
        if memory is None:
            wanted = [exposed[i] / max(clocks[i], 1) for i in one.items.tolist()]
            np.testing.assert_allclose(one.average[:-1], wanted, atol=1e-12)
            assert one.average[-1] == pytest.approx(clicks / one.t)
        assert one.average.shape == (one.items.size + 1,)

    rounds(20)
    assert one.add_items(MORE[:2]).tolist() == [8, 9]
    assert one.items.tolist() == list(range(10))
    assert one.average[8:10].tolist() == [0.0, 0.0]
    rounds(20)
    one.retire([0, 9, 4])
    assert one.items.tolist() == [1, 2, 3, 5, 6, 7, 8]
    rounds(20)
    assert one.add_items(MORE[2:].tolist()).tolist() == [10, 11]
    assert one.items.tolist() == [1, 2, 3, 5, 6, 7, 8, 10, 11]
    rounds(20)
    assert one.t == 80
    shown = {item for _ in range(30) for item in rank(one.act(whole(one, ALL, user(rng))))}
    assert not shown & {0, 4, 9}


def test_the_value_is_that_of_the_items_of_the_moment() -> None:
    one = agent(FWLinUCBRank(TwoSided(GiniWelfare(), beta=0.5)))
    played(one, stream(0, "value"), 30)
    one.retire([0, 1])
    z = one.average
    assert z.size == M - 2 + 1
    assert one.value == pytest.approx(z[-1] + 0.5 * GiniWelfare().value(z[:-1]))
    one.add_items(MORE)
    z = one.average
    assert one.value == pytest.approx(z[-1] + 0.5 * GiniWelfare().value(z[:-1]))


def test_a_retired_item_is_out_of_everything() -> None:
    one, twin = agent(), agent()
    rng = stream(0, "out")
    played(one, rng, 40)
    twin = agent()
    played(twin, stream(0, "out"), 40)
    one.retire([2])
    who = user(rng)
    shown = one.act(who)
    assert 2 not in rank(shown)
    one.expire(shown)
    # The directions of the others are those of f without the item.
    z = np.delete(twin.average, 2)
    bound = one._running.objective
    step = one._running.smoothing.step(bound, z.size, 40)
    np.testing.assert_allclose(
        one._running.direction(rng), bound.envelope_gradient(z, step), atol=1e-12
    )


@pytest.mark.parametrize("name", POLICIES)
def test_late_feedback_for_a_retired_item_is_accepted_and_harmless(name: str) -> None:
    """What the others earn of it is learnt; its own exposure is nobody's business any more."""
    one = agent(POLICIES[name])
    rng = stream(0, "late")
    played(one, rng, 20)
    late = one.act(user(rng))
    gone, stays = rank(late)[0], rank(late)[1]
    one.retire([gone])
    before, place = one.average, one.items.tolist().index(stays)
    stored = Decision.from_bytes(late.to_bytes())
    one.update(stored, exposed=[gone, stays], clicked=[gone])
    assert one.t == 21
    if one.policy != POLICIES["memory"]:
        assert one.average[place] == pytest.approx((before[place] * 20 + 1.0) / 21)
        assert one.average[-1] == pytest.approx((before[-1] * 20 + 1.0) / 21)
    assert np.isfinite(one.average).all()
    for _ in range(20):
        decision = one.act(user(rng))
        assert gone not in rank(decision)
        answer(one, decision, rng)


@pytest.mark.parametrize("name", POLICIES)
def test_late_feedback_from_before_an_arrival_is_accepted(name: str) -> None:
    one = agent(POLICIES[name])
    rng = stream(0, "arrival")
    played(one, rng, 20)
    late = [one.act(user(rng)) for _ in range(3)]
    one.add_items(MORE[:1])
    for decision in late:
        one.update(Decision.from_bytes(decision.to_bytes()), exposed=rank(decision), clicked=[])
    assert one.t == 23
    played(one, rng, 20)
    assert one.act_many([user(rng)] * 3, advance=True)


def test_an_objective_of_another_length_can_come_with_the_items() -> None:
    one = agent(FWLinUCBRank(TwoSided(PerMerit(GiniEquality(), [1.0] * 8))))
    played(one, stream(0, "merits"), 10)
    longer = TwoSided(PerMerit(GiniEquality(), [1.0] * 8 + [2.0]))
    one.add_items(MORE[:1], objective=longer)
    played(one, stream(1, "merits"), 10)
    shorter = TwoSided(PerMerit(GiniEquality(), [1.0] * 7 + [2.0]))
    one.retire([0], objective=shorter)
    played(one, stream(2, "merits"), 10)
    assert (one.objective, one.t) == (shorter, 30)
    merits = PerMerit(GiniEquality(), [1.0] * 7 + [2.0])
    assert one.value == pytest.approx(one.average[-1] + merits.value(one.average[:-1]))


def test_a_batch_spreads_over_items_that_came_late() -> None:
    one = agent(FWLinUCBRank(TwoSided(GiniEquality(), beta=20.0)))
    rng = stream(0, "batch")
    played(one, rng, 60)
    one.retire([1])
    new = set(one.add_items(MORE).tolist())
    decisions = one.act_many([user(rng) for _ in range(30)], advance=True)
    counts = np.bincount(np.ravel([d.action for d in decisions]), minlength=12)
    assert counts[1] == 0
    assert all(counts[item] >= 3 for item in new)
    for decision in decisions:
        answer(one, decision, rng)


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("keep", [True, False], ids=["kept", "told"])
@pytest.mark.parametrize("name", POLICIES)
def test_after_loading_the_same_rankings_follow(name: str, keep: bool, tmp_path: Path) -> None:
    one = agent(POLICIES[name], items=ITEMS if keep else None, seed=4)
    rng = stream(0, "file")

    def rounds(each: Agent, source: np.random.Generator, n: int) -> list[list[int]]:
        shown = []
        for _ in range(n):
            who = user(source)
            decision = each.act(who if keep else whole(each, ALL, who))
            answer(each, decision, source, ALL)
            shown.append(rank(decision))
        return shown

    rounds(one, rng, 15)
    one.add_items(MORE[:3])
    rounds(one, rng, 15)
    one.retire([0, 8])
    rounds(one, rng, 15)
    who = user(rng)
    late = one.act(who if keep else whole(one, ALL, who))
    one.save(tmp_path / "agent.fw")
    loaded = Agent.load(tmp_path / "agent.fw")
    assert loaded.items.tolist() == one.items.tolist()
    np.testing.assert_array_equal(loaded.average, one.average)
    answer(loaded, Decision.from_bytes(late.to_bytes()), stream(1, "late"), ALL)
    answer(one, late, stream(1, "late"), ALL)
    assert rounds(one, stream(2, "next"), 150) == rounds(loaded, stream(2, "next"), 150)
    for each in (one, loaded):
        assert each.add_items(MORE[3:]).tolist() == [11]
        each.retire([5])
    assert rounds(one, stream(3, "next"), 150) == rounds(loaded, stream(3, "next"), 150)
    np.testing.assert_array_equal(loaded.average, one.average)


def test_another_objective_keeps_the_items(tmp_path: Path) -> None:
    one = agent()
    played(one, stream(0, "replace"), 20)
    one.retire([3])
    one.add_items(MORE[:1])
    before = one.average
    one.replace_objective(TwoSided(GiniWelfare(), beta=2.0))
    np.testing.assert_array_equal(one.average, before)
    assert one.items.tolist() == [0, 1, 2, 4, 5, 6, 7, 8]
    played(one, stream(1, "replace"), 10)
    one.save(tmp_path / "agent.fw")
    assert Agent.load(tmp_path / "agent.fw").value == one.value


@pytest.mark.slow
def test_adding_an_item_does_not_copy_all_items() -> None:
    """Peak memory of 64 additions, each of one item, to 2,000 and to 20,000 items."""

    def allocated(n: int) -> int:
        rng = np.random.default_rng(0)
        policy = FWLinUCBRank(TwoSided(GiniWelfare()))
        agent = Agent(policy, Problem.ranking(n, 2, (2, 2)), items=rng.random((n, 2)) / 2)
        total = 0
        tracemalloc.start()
        try:
            for _ in range(64):
                tracemalloc.reset_peak()
                before = tracemalloc.get_traced_memory()[0]
                agent.add_items(rng.random((1, 2)) / 2)
                total += tracemalloc.get_traced_memory()[1] - before
        finally:
            tracemalloc.stop()
        return total

    few, many = allocated(2_000), allocated(20_000)
    # One doubling is allowed: it is a copy of all items, amortised over 64 additions.
    assert many < 3 * few + 20_000 * 1_000
