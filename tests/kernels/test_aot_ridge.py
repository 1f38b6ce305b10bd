"""Compiled ridge regression and online gradients against NumPy; refreshes, repairs, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe.core.problem import Problem
from fairwolfe.kernels.ridge import Regression, largest_square
from fairwolfe.oracles import LinearState, OnlineGradient, Ridge
from fairwolfe.oracles.linear_regression import DRIFT, LOG_DET, SINCE_REFRESH, STATUS, UPDATES

WILD = (np.nan, np.inf, -np.inf, 1e200, 1e308)


def copied(state: LinearState) -> list[Any]:
    return [array.copy() for array in state]


def same(a: Any, b: Any) -> None:
    """Equal bits, but for NaN."""
    for x, y in zip(a, b, strict=True):
        np.testing.assert_array_equal(x, y)


def close_to_design(state: LinearState, ridge: float, tolerance: float = 1e-8) -> None:
    """V^-1, theta and ln det V/det V_0 are those of V and of the moments."""
    log_det = 0.0
    for gram, inverse, theta, moment in zip(*state[:4], strict=True):
        exact = np.linalg.inv(gram)
        scale = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
        assert np.abs((inverse - exact) / scale).max() < tolerance
        np.testing.assert_allclose(theta, moment @ exact, rtol=0.0, atol=tolerance)
        log_det += float(np.linalg.slogdet(gram)[1]) - len(gram) * np.log(ridge)
    assert state.counters[LOG_DET] == pytest.approx(log_det, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("d", range(1, 13))
@pytest.mark.parametrize(("blocks", "n"), [(1, 1), (1, 5), (4, 2)])
def test_learning_against_numpy(d: int, blocks: int, n: int) -> None:
    rng = np.random.default_rng([d, blocks, n])
    state = Ridge(0.1).allocate(blocks, n, d)
    regression = state.model()
    gram, moment = state.gram.copy(), state.moment.copy()
    learnt = 0
    for t in range(120):
        block, x = int(rng.integers(blocks)), rng.standard_normal(d)
        x[rng.random(d) < 0.2] = 0.0
        reward = rng.standard_normal(n)
        if t % 17 == 3:
            x *= 1e3
        if t % 11 == 5:
            (x if t % 2 else reward)[0] = (np.nan, np.inf, -np.inf)[t % 3]
        taken = regression.learn(block, x, reward)
        assert taken == (state.counters[STATUS] == 0.0)
        assert taken == bool(np.isfinite(x).all() and np.isfinite(reward).all())
        if taken:
            gram[block] += np.outer(x, x)
            moment[block] += np.outer(reward, x)
            learnt += 1
        if t % 40 == 39:
            assert regression.recompute()
    assert state.counters[UPDATES] == learnt
    np.testing.assert_allclose(state.gram, gram, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state.moment, moment, rtol=1e-12, atol=1e-12)
    assert np.array_equal(state.inverse, state.inverse.transpose(0, 2, 1))
    close_to_design(state, 0.1)


@pytest.mark.parametrize("wild", WILD)
def test_a_rejected_observation_changes_nothing_but_the_refresh(wild: float) -> None:
    state = Ridge().allocate(1, 2, 3)
    regression = Regression(*state)
    assert regression.learn(0, np.ones(3), np.ones(2))
    assert regression.recompute()
    kept = copied(state)
    assert not regression.learn(0, np.array([wild, 0.0, 0.0]), np.ones(2))
    same(kept[:5], state[:5])
    assert state.counters[STATUS] == 1.0
    assert state.counters[UPDATES] == 1.0


def test_a_refresh_comes_after_many_updates() -> None:
    rng = np.random.default_rng(0)
    state = Ridge(1.0).allocate(1, 1, 2)
    regression = state.model()
    for size in (1.0, 2e3, 1.0, 2e6, 1e9):
        regression.learn(0, size * rng.standard_normal(2), np.ones(1))
    assert state.counters[DRIFT] > 0.0
    state.counters[SINCE_REFRESH] = 9_998.0
    for since in (9_999.0, 0.0):
        regression.learn(0, rng.standard_normal(2), np.ones(1))
        assert state.counters[SINCE_REFRESH] == since


@pytest.mark.parametrize("d", [1, 3])
def test_every_step_of_a_shrinking_inverse_is_met(d: int) -> None:
    state = Ridge(1.0).allocate(1, 1, d)
    regression, x = state.model(), np.zeros(d)
    for size, refreshed in ((1.0, False), (2e3, True), (1.0, False), (2e6, True), (2e9, True)):
        x[-1] = size
        regression.learn(0, x, np.ones(1))
        assert (state.counters[SINCE_REFRESH] == 0.0) == refreshed


def test_an_inverse_of_nan_is_repaired_and_its_drift_infinite() -> None:
    state = Ridge(2.0).allocate(1, 1, 3)
    state.inverse[0, 1, 2] = np.nan
    assert state.model().recompute()
    np.testing.assert_allclose(state.inverse[0], np.eye(3) / 2.0, rtol=1e-15)
    assert state.counters[DRIFT] == np.inf


@pytest.mark.parametrize("gap", [0.0, 1e-17, 1e-14, 1e-12])
def test_a_design_that_is_hardly_positive_definite_is_lifted(gap: float) -> None:
    rng = np.random.default_rng(1)
    state = Ridge(1.0).allocate(2, 3, 5)
    factor = rng.standard_normal((5, 2))
    state.gram[1] = factor @ factor.T
    state.gram[1] = 0.5 * (state.gram[1] + state.gram[1].T) - gap * np.eye(5)
    state.moment[:] = rng.standard_normal(state.moment.shape)
    before = state.gram.copy()
    assert state.model().recompute()
    lift = state.gram[1] - before[1]
    assert 0.0 < lift.diagonal().max() < 1e-9 * before[1].max()
    np.testing.assert_array_equal(lift, np.diag(lift.diagonal()))
    np.testing.assert_array_equal(state.gram[0], before[0])
    assert all(np.isfinite(array).all() for array in state)


def test_a_design_of_nan_is_reported_and_its_block_left() -> None:
    state = Ridge(1.0).allocate(2, 1, 3)
    state.gram[1, 2, 2] = np.nan
    kept = copied(state)
    assert not state.model().recompute()
    assert state.counters[STATUS] == 1.0
    same([array[1] for array in kept[:4]], [array[1] for array in state[:4]])


def test_a_large_design() -> None:
    rng = np.random.default_rng(2)
    state = Ridge(0.5).allocate(1, 1, 101)
    regression = state.model()
    for _ in range(60):
        regression.learn(0, rng.standard_normal(101) / 10.0, rng.standard_normal(1))
    close_to_design(state, 0.5, 1e-10)
    regression.recompute()
    close_to_design(state, 0.5, 1e-10)


@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 8, 11, 12])
@pytest.mark.parametrize("per_arm", [False, True])
def test_scores_and_widths_against_numpy(d: int, per_arm: bool) -> None:
    rng = np.random.default_rng(d)
    for arms in (1, 2, 3, 4, 7, 8, 9, 31, 50, 60):
        state = Ridge(0.3).allocate(arms if per_arm else 1, 3, d)
        regression = state.model()
        for _ in range(3 * arms if per_arm else 30):
            block = int(rng.integers(arms)) if per_arm else 0
            regression.learn(block, rng.standard_normal(d), rng.standard_normal(3))
        if arms == 9:
            state.inverse[0] = -5.0 * np.eye(d)  # what rounding might leave: a width of 0
        features = rng.standard_normal((1 if per_arm else arms, d))
        features.flags.writeable = False
        g, rows = rng.standard_normal(3), np.broadcast_to(features, (arms, d))
        blocks = np.arange(arms) if per_arm else np.zeros(arms, dtype=int)
        rewards = np.einsum("aij,aj->ai", state.theta[blocks], rows)
        squares = np.einsum("ai,aij,aj->a", rows, state.inverse[blocks], rows)
        near: Any = {"rtol": 1e-10, "atol": 1e-11}
        np.testing.assert_allclose(regression.scores(g, features, per_arm), rewards @ g, **near)
        wanted = np.sqrt(np.maximum(squares, 0.0))
        np.testing.assert_allclose(regression.widths(features, per_arm), wanted, **near)
        low, high = np.array([-np.inf, -0.1, 0.2]), np.array([np.inf, 0.0, 0.3])
        got = regression.predictions(features, low, high, per_arm)
        np.testing.assert_allclose(got, np.clip(rewards, low, high), **near)


@pytest.mark.parametrize("rate", [2.0**0.5, 20.0])
@pytest.mark.parametrize("arms", [None, 3])
def test_online_gradients_against_numpy(rate: float, arms: int | None) -> None:
    """Sums of squared gradients, a step and a projection for each reward of the block alone."""
    rng, norm = np.random.default_rng(3), 0.7
    rewards = {"a": (0, 1), "b": (-2, 1)}
    problem = Problem.arms(7, rewards, parameter_norm=norm, n_arms=arms)
    state = OnlineGradient(rate).init(problem)
    regression = state.model()
    theta, squares = np.zeros((arms or 1, 2, 7)), np.zeros((arms or 1, 2))
    for t in range(300):
        block, x = int(rng.integers(arms or 1)), rng.standard_normal(7)
        reward = rng.standard_normal(2)
        if t < 5:
            x[:] = 0.0
        if t % 11 == 5:
            (x if t % 2 else reward)[0] = WILD[t % len(WILD)]
        with np.errstate(all="ignore"):
            steps = 2.0 * np.outer(theta[block] @ x - reward, x)
            more = (steps**2).sum(axis=1)
        taken = regression.learn(block, x, reward)
        assert taken == (state.counters[STATUS] == 0.0) == bool(np.isfinite(more).all())
        if taken:
            squares[block] += more
            moved = squares[block] > 0.0
            size = np.sqrt(np.where(moved, squares[block], 1.0))
            theta[block] -= rate * norm * steps / size[:, None]
            length = np.linalg.norm(theta[block], axis=1)
            theta[block] *= np.minimum(1.0, norm / np.maximum(length, norm))[:, None]
        np.testing.assert_allclose(state.theta, theta, rtol=0.0, atol=1e-11)
    with pytest.raises(ValueError, match="no confidence widths"):
        regression.widths(np.ones((2, 7)))


def test_the_largest_square_norm() -> None:
    rng = np.random.default_rng(4)
    for n, d in ((1, 1), (5, 3), (60, 12)):
        rows = rng.standard_normal((n, d))
        assert largest_square(rows) == pytest.approx((rows**2).sum(axis=1).max(), rel=1e-14)
        for wild in (np.nan, np.inf, 1e300):
            rows[n // 2, d // 2] = wild
            assert not np.isfinite(largest_square(rows))
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
