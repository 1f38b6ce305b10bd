"""An item that comes late is treated as a day-one item was, and does not flood the rankings.

Each item is averaged over its own time. With 12 items and then one more, k slots of total weight
B, and equality of the averages as the aim, T rounds before and T after the arrival: the new item's
rate r' and the others' rate r solve (B/12 + r)/2 = r' and 12 r + r' = B. So r is 92 % of B/12, and
r' is 96 % of it; were the averages kept over all time, r' would have to be B/6.5, twice as much.
"""

from __future__ import annotations

from dataclasses import replace
from math import floor
from typing import Any

import numpy as np

from fairwolfe import Agent
from fairwolfe.core.arrays import Matrix
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank

M, K = 12, 4
WORLD = FactorModel(10, M + 1, dcg(K), n_factors=3)


def run(policy: Any, before: int, after: int, seed: int) -> tuple[Matrix, Matrix]:
    """Exposures and appearances, (rounds, items); the last item comes after `before` rounds."""
    arrays = WORLD.init(stream(seed, "world"))
    agent = Agent(policy, replace(WORLD.problem(), n_items=M), seed, items=arrays.items[:M])
    contexts, noise = stream(seed, "contexts"), stream(seed, "noise")
    exposed, shown = np.zeros((2, before + after, M + 1))
    for t in range(before + after):
        if t == before:
            assert agent.add_items(arrays.items[M:]).tolist() == [M]
        context = WORLD.context(arrays, t + 1, contexts)
        decision = agent.act(context.user)
        feedback = WORLD.feedback(arrays, context, decision.action, noise)
        agent.update(decision, feedback)
        exposed[t, decision.action] = feedback.exposed
        shown[t, decision.action] = 1.0
    return exposed, shown


def settled(exposed: Matrix, share: float) -> int:
    """Rounds until the average since arrival has reached 90 % of the share for good."""
    average = np.cumsum(exposed) / np.arange(1, len(exposed) + 1)
    below = np.flatnonzero(average < 0.9 * share)
    return int(below[-1]) + 1 if below.size else 0


def test_an_item_that_comes_late_gets_its_share_and_no_more() -> None:
    t = 3000
    policy = FWLinUCBRank(TwoSided(GiniEquality(), beta=20.0), exploration=0.3)
    exposed, _ = run(policy, t, t, seed=0)
    earlier, later = exposed[:t, :M], exposed[t:]
    needed = [settled(earlier[:, i], earlier.sum() / t / M) for i in range(M)]  # 0 to 42
    fair = later.sum() / t / (M + 1)
    assert settled(later[:, M], fair) <= 2 * max(needed)  # seen: 0
    assert settled(later[:, M], fair) <= 2 * np.median(needed)
    # No flood: at most 11 exposures in 50 rounds were seen, the share is 9.8.
    floods = [later[i : i + 50, M].sum() for i in range(0, 500, 10)]
    assert max(floods) <= 2.0 * 50 * fair
    falls = later[:, :M].mean(axis=0) / earlier.mean(axis=0)  # seen: .909 to .919
    assert falls.min() >= 0.9
    np.testing.assert_allclose(falls, 0.919, atol=0.015)
    np.testing.assert_allclose(later[:, M].mean(), 0.96 * earlier.sum() / t / M, rtol=0.03)


def test_fairlearn_owes_a_late_item_nothing_of_the_past() -> None:
    """Its floor counts from the arrival: floor(c (t - arrival)) - N_i <= tolerance."""
    before, after, share = 200, 400, 0.25
    _, shown = run(FairLearnRank(share, exploration=0.1), before, after, seed=0)
    counts = np.cumsum(shown[before:, M])
    floors = np.array([floor(share * (t + 1)) for t in range(after)])
    assert (floors - counts).max() <= 1.0
    assert counts[40] <= 2.0 * share * 40  # nor does it catch up on 200 rounds
    others = np.cumsum(shown[:, :M], axis=0)
    floors = np.array([floor(share * (t + 1)) for t in range(before + after)])
    assert (floors[:, None] - others).max() <= 1.0
