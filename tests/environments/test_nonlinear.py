"""The nonlinear world: its truth by other means, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from fairwolfe import FrankWolfe, optimum, simulate
from fairwolfe.bandits import LinUCB
from fairwolfe.core.streams import stream
from fairwolfe.environments import Nonlinear, make
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.objectives import Minimum
from fairwolfe.truth import bounds

SMALL = Nonlinear(n_arms=4, n_objectives=3, n_features=4, n_contexts=30)


def test_rewards_fall_with_the_distance_to_an_ideal_point() -> None:
    world = SMALL.init(stream(0, "world"))
    points = world.params[1:].reshape(3, 3)
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1.0, rtol=1e-12)
    assert (points @ points.T - 2.0 * np.eye(3)).max() < 0.0  # all angles are obtuse
    for context, means in zip(world.features, world.means, strict=True):
        away = np.linalg.norm(context[:, None, 1:] - points[None], axis=2)
        np.testing.assert_allclose(means, np.exp(-3.125 * away**2), rtol=1e-12)  # width 0.4
        for arm in range(4):
            assert np.array_equal(SMALL.mean_reward(world, context, arm), means[arm])
    ideal = np.concatenate([[1.0], points[1]])
    mean = SMALL.mean_reward(world, np.array([ideal]), 0)
    assert mean[1] == 1.0
    assert mean[[0, 2]].max() < 1.0


def test_features_are_constant_then_uniform() -> None:
    features = Nonlinear(n_contexts=4000).init(stream(0, "world")).features
    assert (features[:, :, 0] == 1.0).all()
    rest = features[:, :, 1:]
    assert -1.0 <= rest.min() < -0.99 < 0.99 < rest.max() <= 1.0
    # 80,000 draws: a mean of 0 is off by 1/sqrt(3 n), a mean square of 1/3 by sqrt(4/45/n).
    assert abs(rest.mean()) < 6.0 / np.sqrt(3.0 * rest.size)
    assert abs((rest**2).mean() - 1.0 / 3.0) < 6.0 * np.sqrt(4.0 / 45.0 / rest.size)
    assert np.linalg.norm(features, axis=2).max() <= Nonlinear().problem().feature_norm


def test_contexts_are_met_equally_often() -> None:
    world, n = SMALL.init(stream(0, "world")), 30_000
    met, tags = SMALL.draw_contexts(world, stream(0, "contexts"), n)
    assert not tags.any()
    counts = np.array([(met == known).all(axis=(1, 2)).sum() for known in world.features])
    assert counts.sum() == n
    assert abs(counts - n / 30).max() < 6.0 * np.sqrt(n / 30)


@pytest.mark.parametrize("seed", range(3))
def test_the_optimum_is_that_of_a_linear_programme(seed: int) -> None:
    """max m with m <= the mean over contexts of sum_a p(a | c) mu_i(c, a), for every i."""
    means = SMALL.init(stream(seed, "world")).means
    contexts, arms, n = means.shape
    cost = np.zeros(contexts * arms + 1)
    cost[-1] = -1.0
    rewards = np.hstack([-means.reshape(-1, n).T / contexts, np.ones((n, 1))])
    whole = np.hstack([np.kron(np.eye(contexts), np.ones(arms)), np.zeros((contexts, 1))])
    solved = linprog(cost, rewards, np.zeros(n), whole, np.ones(contexts), bounds=(0.0, 1.0))
    best = optimum(SMALL, Minimum(), seed=seed)
    assert solved.fun is not None
    assert best.value - 1e-7 <= -solved.fun <= best.upper_bound + 1e-7
    assert best.gap <= 1e-6


@pytest.mark.parametrize("seed", range(5))
def test_no_line_fits(seed: int) -> None:
    """The best linear predictions leave about half of the variance of the means."""
    world = Nonlinear().init(stream(seed, "world"))
    features, means = world.features.reshape(-1, 3), world.means.reshape(-1, 3)
    fitted = features @ np.linalg.lstsq(features, means, rcond=None)[0]
    left = ((means - fitted) ** 2).mean(axis=0) / means.var(axis=0)
    assert left.min() > 0.35  # 0.42 to 0.55


def test_built_in_policies_are_compiled() -> None:
    policy = FrankWolfe(Minimum(), LinUCB(exploration="theorem"))
    fast = simulate(policy, SMALL, 200, seed=1, record_actions=True)
    plain = simulate(policy, SMALL, 200, seed=1, record_actions=True, compiled=False)
    assert fast.compiled
    assert fast.actions is not None
    assert plain.actions is not None
    assert np.array_equal(fast.actions, plain.actions)


def test_theorems_about_linear_rewards_are_refused() -> None:
    with pytest.raises(OutsideAssumptions, match="parameter_norm"):
        bounds.of(FrankWolfe(Minimum(), LinUCB(exploration="theorem")), SMALL, 1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_arms": 0}, r"n_arms is 0; give a whole number of at least 1"),
        ({"n_features": 1}, r"n_features is 1; the first is constant, so give at least 2"),
        ({"n_contexts": 2.5}, r"n_contexts is 2\.5;"),
        ({"width": 0.0}, r"width is 0\.0; give a positive finite number"),
        ({"width": float("nan")}, r"width is nan;"),
        ({"width": "wide"}, r"width is 'wide'; give a positive"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make("nonlinear", **options)
