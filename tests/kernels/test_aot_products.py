"""Regression on user (x) item: estimates, contractions, rounds that V takes in later."""

from __future__ import annotations

import numpy as np
import pytest

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.kernels.products import ProductRidge, estimate
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.oracles.linear_regression import REFRESH_EVERY, SINCE_REFRESH, STATUS

nan, inf = float("nan"), float("inf")
RIDGE = 0.3
SIZES = [(1, 1), (1, 5), (2, 3), (3, 4), (4, 2), (5, 6), (3, 7), (6, 8), (2, 10), (7, 11), (1, 13)]


class Both:
    """The same regression twice: V takes in every round at once, and several at a time."""

    def __init__(self, p: int, q: int, n_rewards: int, most: int = 12) -> None:
        self.prompt: LinearState = Ridge(RIDGE).allocate(1, n_rewards, p * q)
        self.late: LinearState = Ridge(RIDGE).allocate(1, n_rewards, p * q)
        self.design = ProductRidge(*self.prompt, p, q, most)
        self.deferring = ProductRidge(*self.late, p, q, most)
        self.deferring.defer()

    def absorb(self, user: Vector, rows: Matrix, rewards: Matrix) -> bool:
        taken = self.design.absorb(user, rows, rewards)
        assert taken == self.deferring.absorb(user, rows, rewards)
        assert taken == (self.prompt.counters[STATUS] == 0.0)
        return taken

    def check(self) -> None:
        """Only V sums in another order, and by it what a refresh recomputes."""
        self.deferring.finish()
        for name, one, other in zip(LinearState._fields, self.prompt, self.late, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-11, err_msg=name)


def drawn(
    rng: np.random.Generator, p: int, q: int, n_rewards: int, r: int
) -> tuple[Vector, Matrix, Matrix]:
    user, rows = rng.normal(size=p), rng.normal(size=(r, q))
    if r > 1 and rng.random() < 0.3:
        rows[1] = rows[0]
    return user, rows, rng.integers(0, 2, (r, n_rewards)).astype(float)


@pytest.mark.parametrize("q", [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 17])
@pytest.mark.parametrize("n", [1, 3, 8, 50, 129])
def test_estimates(q: int, n: int) -> None:
    rng = np.random.default_rng(q)
    turned, half = rng.normal(size=q), rng.normal(size=(q, q))
    metric, items = half @ half.T, rng.normal(size=(q, n))
    items[:, 0] = 0.0
    metric[0, 0] -= 1.0  # some squares are negative
    new = np.empty((2, n))
    for array in (turned, metric, items):
        array.flags.writeable = False
    estimate(turned, metric, items, np.empty(n), *new)
    if q > 1:
        np.testing.assert_allclose(new[0], turned @ items, rtol=1e-12, atol=1e-12)
        square = np.einsum("bi,be,ei->i", items, (metric + metric.T) / 2.0, items)
        np.testing.assert_allclose(new[1], np.sqrt(np.maximum(square, 0.0)), atol=1e-7)


@pytest.mark.parametrize(("p", "q"), SIZES)
def test_contraction(p: int, q: int) -> None:
    """B = (user (x) I)' V^-1 and C = B (user (x) I)."""
    rng, state = np.random.default_rng(p * q), Ridge(RIDGE).allocate(1, 1, p * q)
    half = rng.normal(size=(p * q, p * q))
    state.inverse[0] = half @ half.T
    user, contracted, metric = rng.normal(size=p), np.empty((q, p * q)), np.empty((q, q))
    ProductRidge(*state, p, q, 1).matrices(user, contracted, metric)
    turn = np.kron(user[:, None], np.eye(q))
    np.testing.assert_allclose(contracted, turn.T @ state.inverse[0], rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(metric, contracted @ turn, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("p", "q"), SIZES)
@pytest.mark.parametrize("n_rewards", [1, 3])
def test_every_size_and_number_of_items(p: int, q: int, n_rewards: int) -> None:
    rng, both = np.random.default_rng(p + q), Both(p, q, n_rewards)
    for r in [*range(13), 0, 0, 7, *rng.integers(0, 13, 17).tolist()]:
        assert both.absorb(*drawn(rng, p, q, n_rewards, r))
    both.check()
    for name in ("inverse", "theta", "moment", "counters"):  # V alone is late
        assert np.array_equal(getattr(both.prompt, name), getattr(both.late, name)), name


def test_refresh_when_it_is_due() -> None:
    rng, both = np.random.default_rng(1), Both(4, 3, 2)
    for state in (both.prompt, both.late):
        state.counters[SINCE_REFRESH] = REFRESH_EVERY - 6
    for stage in range(3):
        both.deferring.defer()
        for _ in range(3 + stage):
            assert both.absorb(*drawn(rng, 4, 3, 2, 3))
        both.check()
    assert both.late.counters[SINCE_REFRESH] < 10.0


def test_an_inverse_that_cannot_take_a_round_is_refreshed() -> None:
    rng, both = np.random.default_rng(2), Both(5, 2, 2)
    for _ in range(6):
        assert both.absorb(*drawn(rng, 5, 2, 2, 2))
    for state in (both.prompt, both.late):
        state.inverse[:] *= -50.0
    assert both.absorb(*drawn(rng, 5, 2, 2, 3))
    both.check()


@pytest.mark.parametrize("wild", [nan, inf, 1e200])
def test_what_is_not_finite_is_rejected(wild: float) -> None:
    rng, both = np.random.default_rng(3), Both(4, 3, 1)
    for _ in range(5):
        assert both.absorb(*drawn(rng, 4, 3, 1, 2))
    user, rows, rewards = drawn(rng, 4, 3, 1, 3)
    rows[1, 1] = wild
    assert not both.absorb(user, rows, rewards)
    if not np.isfinite(wild):
        user, rows, rewards = drawn(rng, 4, 3, 1, 3)
        rewards[2, 0] = wild
        assert not both.absorb(user, rows, rewards)
    assert both.absorb(*drawn(rng, 4, 3, 1, 2))
    both.check()


def test_a_design_that_is_not_finite() -> None:
    both = Both(4, 2, 1)
    for state in (both.prompt, both.late):
        state.gram[0, 1, 1], state.inverse[0, 0, 0] = nan, -1e9
    assert not both.absorb(np.ones(4), np.ones((2, 2)), np.ones((2, 1)))
    both.check()


def test_many_rounds_of_a_hundred_features() -> None:
    rng, both = np.random.default_rng(4), Both(10, 10, 1)
    for _ in range(400):
        assert both.absorb(*drawn(rng, 10, 10, 1, int(rng.integers(0, 11))))
    both.check()
    for state in (both.prompt, both.late):
        assert np.array_equal(state.inverse[0], state.inverse[0].T)
        np.testing.assert_allclose(state.gram[0] @ state.inverse[0], np.eye(100), atol=1e-8)


def test_shapes_are_checked() -> None:
    both = Both(2, 3, 1, most=4)
    with pytest.raises(ValueError, match="one block"):
        ProductRidge(*both.prompt, 3, 3, 4)
    for rows, n_rewards in (((5, 3), 1), ((2, 2), 1), ((2, 3), 2)):
        with pytest.raises(ValueError, match="shapes"):
            both.design.absorb(np.ones(2), np.ones(rows), np.ones((rows[0], n_rewards)))
    with pytest.raises(ValueError, match="shapes"):
        both.design.absorb(np.ones(3), np.ones((1, 3)), np.ones((1, 1)))
    with pytest.raises(ValueError, match="shapes"):
        estimate(np.ones(2), np.ones((3, 3)), np.ones((3, 4)), *np.empty((3, 4)))
