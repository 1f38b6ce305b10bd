"""Ahead-of-time rewards of worlds with arms against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe.environments import Finite, Mehrotra, Nonlinear
from fairwolfe.kernels.worlds import CompiledArmWorld


def finite(noise: str | float, seed: int) -> Finite:
    """A world of a few contexts."""
    rng = np.random.default_rng(seed)
    contexts, means = rng.standard_normal((4, 6, 3)), rng.random((4, 6, 5))
    return Finite(contexts=contexts, probabilities=[0.25] * 4, means=means, noise=noise)


WORLDS: list[tuple[str, Any]] = [
    ("linear", Mehrotra(n_arms=50, n_objectives=5, n_features=10)),
    ("linear", Mehrotra(n_arms=7, n_objectives=1, n_features=1)),
    ("linear", Mehrotra(n_arms=1, n_objectives=6, n_features=3)),
    ("table", finite("bernoulli", 0)),
    ("table", finite("none", 1)),
    ("table", finite(0.3, 2)),
    ("nonlinear", Nonlinear(n_contexts=50)),
    ("nonlinear", Nonlinear(n_arms=9, n_objectives=5, n_features=2, n_contexts=20, width=1.0)),
]


def mean_of(kind: str, world: Any, environment: Any, tag: int, features: Any) -> Any:
    """The mean rewards of all arms (arms, n), by NumPy."""
    if kind == "linear":
        return features @ world.T
    if kind == "table":
        return world.means[tag]
    points = world.params[1:].reshape(environment.n_objectives, -1)
    away = features[:, None, 1:] - points
    return np.exp(-(away**2).sum(axis=2) / (2.0 * environment.width**2))


def reward_of(kind: str, environment: Any, mean: Any, noise: Any) -> Any:
    if kind == "linear":
        return mean + 0.1 * abs(mean) * noise
    if kind == "nonlinear" or environment.noise == "bernoulli":
        return (noise < mean).astype(float)
    return mean if environment.noise == "none" else mean + environment.noise * noise


@pytest.mark.parametrize(("kind", "environment"), WORLDS)
def test_rewards_and_best_arms(kind: str, environment: Any) -> None:
    rng = np.random.default_rng(0)
    drawn = environment.init(rng)
    world = environment.reward_program(drawn)
    contexts, tags = environment.draw_contexts(drawn, rng, 200)
    noises = environment.draw_noise(rng, 200)
    n, arms = environment.problem().n_objectives, contexts.shape[1]
    directions, which = rng.standard_normal((7, n)), rng.integers(7, size=200)
    best, tops = set(), []
    for features, tag, noise, j in zip(contexts, tags.tolist(), noises, which, strict=True):
        arm, g = int(rng.integers(arms)), directions[j]
        mean, reward = world.answer(arm, tag, features, noise)
        means = mean_of(kind, drawn, environment, tag, features)
        np.testing.assert_allclose(mean, means[arm], rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose(
            reward, reward_of(kind, environment, mean, noise), rtol=1e-12, atol=1e-15
        )
        top = world.best_arm(g, tag, features)
        assert means[top] @ g >= (means @ g).max() - 1e-12
        best.add(top)
        tops.append(world.answer(top, tag, features, noise)[0])
    assert len(best) > min(arms - 1, 3)
    found = world.best_means(contexts, tags, directions, which)
    np.testing.assert_array_equal(found, np.array(tops))


def test_a_world_in_python_is_called_and_its_exception_raised() -> None:
    features, noise, g = np.arange(6.0).reshape(3, 2), np.array([0.5]), np.array([1.0, -1.0])

    def reward(arm: int, tag: int, rows: Any, draws: Any) -> Any:
        np.testing.assert_array_equal(rows, features)
        assert draws.shape == noise.shape
        return [arm, tag], np.array([arm + draws[0], tag])

    def best(direction: Any, tag: int, rows: Any) -> int:
        np.testing.assert_array_equal(direction, g)
        return len(rows) - 1 + tag

    world = CompiledArmWorld.of_functions(reward, best, 2, 2, 3, 1)
    mean, got = world.answer(2, 7, features, noise)
    assert (mean.tolist(), got.tolist()) == ([2.0, 7.0], [2.5, 7.0])
    assert world.best_arm(g, 0, features) == 2
    assert world.callbacks == 3  # for the best arm, its mean too
    with pytest.raises(ValueError, match="the best arm is 3"):
        world.best_arm(g, 1, features)
    with pytest.raises(AssertionError):
        world.answer(0, 0, features + 1.0, noise)
    assert world.failure() is None
    short = CompiledArmWorld.of_functions(lambda *_: ([1.0], [1.0]), None, 2, 2, 3, 1)
    with pytest.raises(ValueError, match="mean reward has 1"):
        short.answer(0, 0, features, noise)
    with pytest.raises(ValueError, match="no function for the best arm"):
        short.best_arm(g, 0, features)


def test_sizes_are_checked() -> None:
    for kind, params in (("linear", 5), ("nonlinear", 4), ("table", 7), ("other", 6)):
        with pytest.raises(ValueError, match=r"params were given|the kind is"):
            CompiledArmWorld(kind, np.ones(params), 2, 3, 4)
    world = CompiledArmWorld("table", np.ones(2 + 3 * 2 * 4), 2, 3, 4)
    features, noise = np.ones((4, 3)), np.ones(2)
    world.answer(3, 2, features, noise)
    for arm, tag in ((4, 0), (-1, 0), (0, 3), (0, -1)):
        with pytest.raises(ValueError, match=r"the arm is|the tag is"):
            world.answer(arm, tag, features, noise)
    with pytest.raises(ValueError, match="the noise has 1"):
        world.answer(0, 0, features, noise[:1])
    with pytest.raises(ValueError, match="features have shape"):
        world.answer(0, 0, features[:3], noise)
    with pytest.raises(ValueError, match="the direction has 3"):
        world.best_arm(np.ones(3), 0, features)
