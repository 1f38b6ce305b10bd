"""FW-LinUCBRank beside an independent implementation, in a world of 20 users and 30 items."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fairwolfe.environments import FactorModel, dcg
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank
from fairwolfe.simulation import simulate
from fairwolfe.simulation.run import Streams
from fairwolfe.smoothing import Moreau
from fairwolfe.truth import optimum
from tests.theory.straightforward_ranking import (
    Straightforward,
    pooled,
    two_sided_gini,
    two_sided_gini_direction,
)

BETA, BETA_0, RIDGE, SLOTS = 1.0, 1.0, 0.1, 5
F = TwoSided(GiniEquality(), beta=BETA)
SEEDS, HORIZON = 6, 5000


def factors() -> tuple[np.ndarray, np.ndarray]:
    """Users of norm 1; items of norm r^-.4, so that a few are popular with everybody."""
    rng = np.random.default_rng(42)
    users, items = rng.gamma(0.5, size=(20, 4)), rng.gamma(0.5, size=(30, 4))
    users /= np.linalg.norm(users, axis=1, keepdims=True)
    items /= np.linalg.norm(items, axis=1, keepdims=True)
    return users, items * rng.permutation(np.arange(1, 31) ** -0.4)[:, None]


USERS, ITEMS = factors()
WORLD = FactorModel(USERS, ITEMS, dcg(SLOTS))


def ours(exploration: float) -> FWLinUCBRank:
    return FWLinUCBRank(F, smoothing=Moreau(BETA_0), exploration=exploration, ridge=RIDGE)


def theirs(exploration: float) -> Straightforward:
    # Clicks have the parameters vec(I), whose norm is 2 for four factors.
    weights = np.array(dcg(SLOTS))
    return Straightforward(USERS, ITEMS, weights, BETA, BETA_0, RIDGE, exploration, 2.0)


@cache
def values() -> tuple[np.ndarray, np.ndarray]:
    """f of the mean rewards: the library's, and the other's on users and noise of its own."""
    mine = [float(simulate(ours(0.1), WORLD, HORIZON, seed).value[-1]) for seed in range(SEEDS)]
    other = [theirs(0.1).run(HORIZON, np.random.default_rng((7, i))) for i in range(SEEDS)]
    return np.array(mine), np.array(other)


def test_the_values_agree_within_two_percent() -> None:
    mine, other = values()
    error = float(np.sqrt(mine.var(ddof=1) + other.var(ddof=1)) / np.sqrt(SEEDS))
    print(f"\nthe library {mine.mean():.4f}, straightforward {other.mean():.4f}, s.e. {error:.4f}")
    # .9820 and .9857, with a standard error of .0026 of the difference.
    assert abs(mine.mean() - other.mean()) <= 0.02 * other.mean()
    assert 5.0 * error <= 0.02 * other.mean()


def test_two_percent_say_something() -> None:
    # A ranker without fairness has f = -.69, the best that is possible is 1.054.
    plain = simulate(LinUCBRank(exploration=0.1, ridge=RIDGE), WORLD, HORIZON, objective=F)
    best = optimum(WORLD, F)
    mine, _ = values()
    assert plain.value[-1] < 0.0
    assert 0.9 * best.value < mine.mean() < best.upper_bound


@pytest.mark.parametrize("exploration", [0.1, 1.0])
def test_the_same_users_and_noise_give_the_same_rankings(exploration: float) -> None:
    # In every one of 5,000 rounds; 1,000 are asked for.
    rounds, streams = 1000, Streams.of(3)
    users = WORLD.draw_users(streams.contexts, rounds)
    noise = WORLD.draw_noise(streams.noise, rounds)
    rankings, means = theirs(exploration).play(users, noise)
    trace = simulate(ours(exploration), WORLD, rounds, seed=3, record_actions=True)
    assert trace.actions is not None
    np.testing.assert_array_equal(trace.actions, rankings)
    np.testing.assert_allclose(trace.average[-1], means[-1] / rounds, rtol=0, atol=1e-12)
    assert trace.value[-1] == pytest.approx(two_sided_gini(means[-1] / rounds, BETA), abs=1e-12)


def test_the_other_implementation_is_right_by_itself() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        values = rng.normal(size=8).round(1)  # ties too
        fit = pooled(values)
        # Isotonic regression: non-decreasing, and no non-decreasing sequence fits better.
        assert (np.diff(fit) >= 0.0).all()
        others = np.sort(rng.normal(size=(200, 8)), axis=1)
        assert ((others - fit) @ (values - fit) <= 1e-12).all()
        # The gradient of an envelope is a supergradient of f at the proximal point z + width g.
        z, width = rng.random(6), 0.3
        g = two_sided_gini_direction(z, BETA, width)
        at = z + width * g
        for y in rng.normal(size=(50, 6)):
            assert two_sided_gini(y, BETA) <= two_sided_gini(at, BETA) + g @ (y - at) + 1e-12
