"""An item that arrives after 100,000 rankings is treated as a day-one item was.

It is averaged over its own time, so it is shown at once, has its share after a few hundred
decisions, and then waits its turn like the others. Averaged over all time it would seem deprived
for thousands of decisions and would stand first in every list: that is tested too.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from fairwolfe.agent import Agent
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.simulation.run import RankingsRun, Streams
from fairwolfe.truth import optimum

N_ITEMS, SLOTS, NEW = 40, 5, 39
ARRIVAL, AFTER = 100_000, 5000
POLICY = FWLinUCBRank(TwoSided(GiniEquality(), beta=1.0), exploration=0.1)


def worlds() -> tuple[FactorModel, FactorModel]:
    """All items, and all but the last; that one is of middling popularity."""
    rng = np.random.default_rng(42)
    users, items = rng.gamma(0.5, size=(20, 4)), rng.gamma(0.5, size=(N_ITEMS, 4))
    users /= np.linalg.norm(users, axis=1, keepdims=True)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    items *= np.arange(1, N_ITEMS + 1)[:, None] ** -0.4
    order = [i for i in range(N_ITEMS) if i != N_ITEMS // 2] + [N_ITEMS // 2]
    items = items[order]
    return FactorModel(users, items, dcg(SLOTS)), FactorModel(users, items[:NEW], dcg(SLOTS))


ALL, BEFORE = worlds()


@cache
def fair_share() -> float:
    best = optimum(ALL, POLICY.objective)
    assert best.average[:-1].std() < 1e-3 * best.average[:-1].mean()  # all items get as much
    return float(best.average[NEW])


def compiled(world: FactorModel, seed: int, rounds: int) -> RankingsRun:
    tables = world.init(np.random.default_rng(0))
    run = RankingsRun(POLICY, world, tables, Streams.of(seed), truth=False)
    while rounds > 0:
        rounds -= len(run.play(rounds))
    return run


def agent_of(run: RankingsRun, world: FactorModel) -> Agent:
    """An agent that goes on where a compiled run stopped."""
    items = np.array(world.items)
    agent = Agent(POLICY, world.problem(), items=items)
    agent._take(run.running.keep_items(items))
    return agent


def play(agent: Agent, world: FactorModel, rounds: int, contexts: Any, noise: Any) -> Matrix:
    """Which items were exposed, a row for each round."""
    tables = world.init(np.random.default_rng(0))
    looked = np.zeros((rounds, len(tables.items)))
    for t in range(rounds):
        context = world.context(tables, t + 1, contexts)
        decision = agent.act(context.user)
        shown = world.feedback(tables, context, decision.action, noise)
        agent.update(decision, shown)
        looked[t, decision.action] = shown.exposed
    return looked


def rates(looked: Matrix) -> Matrix:
    """Exposure per decision since the first row."""
    running: Matrix = np.cumsum(looked, axis=0) / np.arange(1, len(looked) + 1)[:, None]
    return running


def settled(rate: Vector) -> int:
    """The time from which on the rate stays within 10 % of the fair share."""
    away = np.flatnonzero(abs(rate / fair_share() - 1.0) > 0.1)
    return int(away[-1]) + 2 if away.size else 1


@cache
def arrival(seed: int, after: int, own_clock: bool = True) -> tuple[Vector, Matrix]:
    """Exposures per decision of the others before, and of all items since the arrival."""
    run = compiled(BEFORE, seed, ARRIVAL)
    before = run.running.average[:-1].copy()
    agent = agent_of(run, BEFORE)
    (new,) = agent.add_items(np.array(ALL.items)[NEW:])
    assert new == NEW
    if not own_clock:
        agent._running.state.clocks[new] = float(ARRIVAL)
    contexts, noise = (np.random.default_rng((seed, i)) for i in range(2))
    return before, rates(play(agent, ALL, after, contexts, noise))


def test_a_compiled_run_goes_on_as_an_agent() -> None:
    # The short cut of these tests: an agent from the first round on decides alike.
    streams, rounds = Streams.of(5), 150
    agent = Agent(POLICY, BEFORE.problem(), items=np.array(BEFORE.items))
    play(agent, BEFORE, rounds, streams.contexts, streams.noise)
    other = agent_of(compiled(BEFORE, 5, rounds), BEFORE)
    one, two = (
        play(a, BEFORE, 50, *(np.random.default_rng(i) for i in range(2))) for a in (agent, other)
    )
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("seed", range(2))
def test_a_late_item_has_its_share_as_soon_as_a_day_one_item(seed: int) -> None:
    _, since = arrival(seed, AFTER)
    day_one = compiled(ALL, seed, 0)
    first = np.array([(day_one.play(1), day_one.running.average[NEW])[1] for _ in range(AFTER)])
    late, early = settled(since[:, NEW]), settled(first)
    print(f"\nfair share after {late} decisions, a day-one item after {early}")
    # 136 and 294; 136 and 318.
    assert late <= 2 * early
    assert late < 1000


@pytest.mark.parametrize("seed", range(2))
def test_a_late_item_takes_from_the_others_no_more_than_its_share(seed: int) -> None:
    before, since = arrival(seed, AFTER)
    change = since[-1, :NEW] / before - 1.0
    print(f"\nothers: {change.mean():.4f} on average, {change.min():.4f} at worst")
    # A fortieth is what a new item must take; -.059 and -.042 at worst, standard deviation .011.
    assert change.min() > -0.1
    assert change.mean() == pytest.approx(-1.0 / N_ITEMS, abs=0.01)
    # It does not flood the lists: after a hundred decisions never more than a quarter too much.
    assert since[100:, NEW].max() < 1.25 * fair_share()  # 1.13 times


def test_averaged_over_all_time_it_would_flood_the_lists() -> None:
    before, since = arrival(0, 1000, own_clock=False)
    assert since[-1, NEW] > 10.0 * fair_share()  # it is first in every list: 13.6 times its share
    assert (since[-1, :NEW] / before - 1.0).mean() < -0.25  # -.34
