"""Ahead-of-time ridge regression and online gradients against today's numba kernels, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe.core.problem import Problem
from fairwolfe.kernels import limits, linalg
from fairwolfe.kernels.ridge import Regression, largest_square
from fairwolfe.oracles import OnlineGradient, Ridge

WILD = (np.nan, np.inf, -np.inf, 1e200, 1e308)


def same(a: Any, b: Any) -> None:
    """Equal numbers with equal signs of zero, and NaN where the other is."""
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)
        np.testing.assert_array_equal(np.signbit(x) & (x == 0.0), np.signbit(y) & (y == 0.0))


def pair(state: Any, learn: str = "ridge") -> tuple[Any, Regression]:
    """A copy of a state, and a regression over the copy."""
    copy = type(state)(*(array.copy() for array in state))
    gram, inverse, theta, moment, params, counters = copy
    return copy, Regression(gram, inverse, theta, moment, params, counters, learn)


@pytest.mark.parametrize("d", range(1, 13))
@pytest.mark.parametrize(("blocks", "n"), [(1, 1), (1, 5), (4, 2)])
def test_learning_is_bit_equal(d: int, blocks: int, n: int) -> None:
    rng = np.random.default_rng([d, blocks, n])
    oracle = Ridge(0.1)
    state = oracle.allocate(blocks, n, d)
    copy, regression = pair(state)
    for t in range(120):
        block, x = int(rng.integers(blocks)), rng.standard_normal(d)
        x[rng.random(d) < 0.2] = 0.0
        reward = rng.standard_normal(n)
        if t % 17 == 3:
            x *= 1e3
        if t % 11 == 5:
            (x if t % 2 else reward)[0] = WILD[t % len(WILD)]
        oracle.learn(block, x, reward, *state)
        assert regression.learn(block, x, reward) == (state.counters[linalg.STATUS] == 0.0)
        if t % 40 == 39:
            oracle.learn(-1, np.empty(0), np.empty(0), *state)
            assert regression.recompute()
        if t % 10 == 0:
            same(state, copy)
    same(state, copy)
    assert state.counters[linalg.UPDATES] > 80


def test_a_rejected_observation_changes_nothing_but_the_refresh() -> None:
    _, regression = pair(Ridge().allocate(1, 2, 3))
    assert regression.learn(0, np.ones(3), np.ones(2))
    assert regression.recompute()
    fields = (np.asarray(a).copy() for a in Ridge().allocate(1, 2, 3))
    before = type(Ridge().allocate(1, 2, 3))(*fields)
    after = Regression(*before)
    kept = [a.copy() for a in before]
    assert not after.learn(0, np.array([np.nan, 0.0, 0.0]), np.ones(2))
    same(kept[:5], before[:5])
    assert before.counters[linalg.STATUS] == 1.0


def test_refreshes_come_where_the_inverse_shrinks_and_after_many_updates() -> None:
    rng = np.random.default_rng(0)
    oracle = Ridge(1.0)
    state = oracle.allocate(1, 1, 2)
    copy, regression = pair(state)
    for size in (1.0, 2e3, 1.0, 2e6, 1e9):
        x = size * rng.standard_normal(2)
        oracle.learn(0, x, np.ones(1), *state)
        regression.learn(0, x, np.ones(1))
        same(state, copy)
    assert state.counters[linalg.DRIFT] > 0.0
    state.counters[linalg.SINCE_REFRESH] = copy.counters[linalg.SINCE_REFRESH] = 9_999.0
    oracle.learn(0, x, np.ones(1), *state)
    regression.learn(0, x, np.ones(1))
    same(state, copy)
    assert copy.counters[linalg.SINCE_REFRESH] == 0.0


@pytest.mark.parametrize("d", [1, 3])
def test_every_step_of_a_shrinking_inverse_is_met(d: int) -> None:
    oracle = Ridge(1.0)
    state = oracle.allocate(1, 1, d)
    copy, regression = pair(state)
    x = np.zeros(d)
    for size, refreshed in ((1.0, False), (2e3, True), (1.0, False), (2e6, True), (2e9, True)):
        x[-1] = size
        oracle.learn(0, x, np.ones(1), *state)
        regression.learn(0, x, np.ones(1))
        same(state, copy)
        assert (copy.counters[linalg.SINCE_REFRESH] == 0.0) == refreshed


def test_an_inverse_of_nan_is_repaired_and_its_drift_infinite() -> None:
    state = Ridge(2.0).allocate(1, 1, 3)
    state.inverse[0, 1, 2] = np.nan
    copy, regression = pair(state)
    Ridge(2.0).learn(-1, np.empty(0), np.empty(0), *state)
    assert regression.recompute()
    same(state, copy)
    assert copy.counters[linalg.DRIFT] == np.inf


@pytest.mark.parametrize("gap", [0.0, 1e-17, 1e-14, 1e-12])
def test_a_design_that_is_hardly_positive_definite_is_lifted_alike(gap: float) -> None:
    rng = np.random.default_rng(1)
    state = Ridge(1.0).allocate(2, 3, 5)
    factor = rng.standard_normal((5, 2))
    state.gram[1] = factor @ factor.T
    state.gram[1] = 0.5 * (state.gram[1] + state.gram[1].T) - gap * np.eye(5)
    state.moment[:] = rng.standard_normal(state.moment.shape)
    copy, regression = pair(state)
    Ridge(1.0).learn(-1, np.empty(0), np.empty(0), *state)
    assert regression.recompute() == (state.counters[linalg.STATUS] == 0.0)
    same(state, copy)


def test_a_design_of_nan_is_reported_alike() -> None:
    state = Ridge(1.0).allocate(2, 1, 3)
    state.gram[1, 2, 2] = np.nan
    copy, regression = pair(state)
    Ridge(1.0).learn(-1, np.empty(0), np.empty(0), *state)
    assert not regression.recompute()
    same(state, copy)


def test_a_large_design_is_bit_equal() -> None:
    rng = np.random.default_rng(2)
    oracle = Ridge(0.5)
    state = oracle.allocate(1, 1, 101)
    copy, regression = pair(state)
    for _ in range(60):
        x, reward = rng.standard_normal(101) / 10.0, rng.standard_normal(1)
        oracle.learn(0, x, reward, *state)
        regression.learn(0, x, reward)
    same(state, copy)
    oracle.learn(-1, np.empty(0), np.empty(0), *state)
    regression.recompute()
    same(state, copy)
    np.testing.assert_allclose(copy.inverse[0] @ copy.gram[0], np.eye(101), atol=1e-10)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8, 11, 12])
@pytest.mark.parametrize("per_arm", [False, True])
def test_scores_and_widths_are_bit_equal(d: int, per_arm: bool) -> None:
    rng = np.random.default_rng(d)
    for arms in (1, 2, 3, 4, 7, 8, 9, 31, 50, 60):
        state = Ridge(0.3).allocate(arms if per_arm else 1, 3, d)
        copy, regression = pair(state)
        for _ in range(3 * arms if per_arm else 30):
            block = int(rng.integers(arms)) if per_arm else 0
            regression.learn(block, rng.standard_normal(d), rng.standard_normal(3))
        if arms == 9:
            copy.inverse[0, 0, 0] = -5.0  # what rounding might leave: a width of 0
        features = rng.standard_normal((1 if per_arm else arms, d))
        g = rng.standard_normal(3)
        out = np.empty(arms)
        linalg.scores(g, copy.theta, features, per_arm, out)
        same([out], [regression.scores(g, features, per_arm)])
        linalg.widths(copy.inverse, features, per_arm, out)
        features.flags.writeable = False
        same([out], [regression.widths(features, per_arm)])
        low, high = np.array([-np.inf, -0.1, 0.2]), np.array([np.inf, 0.0, 0.3])
        rewards = np.empty((arms, 3))
        linalg.predictions(copy.theta, features.copy(), per_arm, low, high, rewards)
        same([rewards], [regression.predictions(features, low, high, per_arm)])


@pytest.mark.parametrize("rate", [2.0**0.5, 20.0])
@pytest.mark.parametrize("arms", [None, 3])
def test_online_gradients_are_bit_equal(rate: float, arms: int | None) -> None:
    rng = np.random.default_rng(3)
    oracle = OnlineGradient(rate)
    rewards = {"a": (0, 1), "b": (-2, 1)}
    problem = Problem.arms(7, rewards, parameter_norm=0.7, n_arms=arms)
    state = oracle.init(problem)
    copy, regression = pair(state, "online_gradient")
    for t in range(300):
        block, x = int(rng.integers(arms or 1)), rng.standard_normal(7)
        reward = rng.standard_normal(2)
        if t < 5:
            x[:] = 0.0
        if t % 11 == 5:
            (x if t % 2 else reward)[0] = WILD[t % len(WILD)]
        oracle.learn(block, x, reward, *state)
        assert regression.learn(block, x, reward) == (state.counters[linalg.STATUS] == 0.0)
        same(state, copy)
    with pytest.raises(ValueError, match="no confidence widths"):
        regression.widths(np.ones((2, 7)))


def test_largest_square_norm_is_bit_equal() -> None:
    rng = np.random.default_rng(4)
    for n, d in ((1, 1), (5, 3), (60, 12)):
        rows = rng.standard_normal((n, d))
        for wild in (None, np.nan, np.inf, 1e300):
            if wild is not None:
                rows[n // 2, d // 2] = wild
            same([np.array(limits.largest_square_norm(rows))], [np.array(largest_square(rows))])
    assert largest_square(np.empty((0, 3))) == 0.0


def test_shapes_are_checked() -> None:
    state = Ridge().allocate(2, 3, 4)
    regression = Regression(*state)
    x, reward = np.ones(4), np.ones(3)
    for block in (-1, 2):
        with pytest.raises(ValueError, match="the block is"):
            regression.learn(block, x, reward)
    with pytest.raises(ValueError, match="5 numbers"):
        regression.learn(0, np.ones(5), reward)
    with pytest.raises(ValueError, match="the reward 2"):
        regression.learn(0, x, np.ones(2))
    with pytest.raises(ValueError, match="the direction has 2"):
        regression.scores(np.ones(2), np.ones((1, 4)), True)
    with pytest.raises(ValueError, match="features have shape"):
        regression.widths(np.ones((2, 4)), True)
    with pytest.raises(ValueError, match="features have shape"):
        regression.predictions(np.ones((1, 5)), reward, reward, True)
    with pytest.raises(ValueError, match="ends, not 3"):
        regression.predictions(np.ones((1, 4)), reward, x, True)
    for field in ("gram", "inverse", "moment", "counters", "params"):
        wrong = state._replace(**{field: getattr(state, field)[..., :-1].copy()})
        with pytest.raises(ValueError, match=field):
            Regression(*wrong)
    with pytest.raises(ValueError, match="learn is"):
        Regression(*state, learn="nothing")
