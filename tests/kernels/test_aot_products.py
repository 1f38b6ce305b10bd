"""Regression on user (x) item, compiled ahead of time: the bits of today's kernels."""

from __future__ import annotations

import numpy as np
import pytest

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.kernels import bilinear
from fairwolfe.kernels.linalg import REFRESH_EVERY, SINCE_REFRESH, STATUS
from fairwolfe.kernels.products import ProductRidge, estimate
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.ranking.kernels import absorb_exposed, catch_up, later_of

nan, inf = float("nan"), float("inf")
RIDGE = 0.3
SIZES = [(1, 1), (1, 5), (2, 3), (3, 4), (4, 2), (5, 6), (3, 7), (6, 8), (2, 10), (7, 11), (1, 13)]


def learn(user: Vector, rows: Matrix, rewards: Matrix, state: LinearState, later: Vector) -> None:
    """A round as `take_in` learns it."""
    q = rows.shape[1]
    contracted, metric = np.empty((q, state.inverse.shape[1])), np.empty((q, q))
    bilinear.contract_user(user, state.inverse[0], contracted)
    bilinear.contract_twice(user, contracted, metric)
    address = bilinear.absorb_items.address
    absorb_exposed(address, user, rows, rewards, contracted, metric, *state, later)


class Both:
    """The same regression in both forms."""

    def __init__(self, p: int, q: int, n_rewards: int, most: int = 12) -> None:
        self.p, self.later = p, later_of(p, q)
        self.old: LinearState = Ridge(RIDGE).allocate(1, n_rewards, p * q)
        self.new: LinearState = Ridge(RIDGE).allocate(1, n_rewards, p * q)
        self.aot = ProductRidge(*self.new, p, q, most)

    def absorb(self, user: Vector, rows: Matrix, rewards: Matrix) -> bool:
        learn(user, rows, rewards, self.old, self.later)
        taken = self.aot.absorb(user, rows, rewards)
        assert taken == (self.old.counters[STATUS] == 0.0)
        return taken

    def defer(self) -> None:
        if self.later.size > 1:
            self.later[0] = 0.0
        self.aot.defer()

    def finish(self) -> None:
        catch_up(self.later, self.p, self.old.gram)
        self.later[0] = -1.0
        self.aot.finish()

    def check(self) -> None:
        for name, one, other in zip(LinearState._fields, self.old, self.new, strict=True):
            assert one.tobytes() == other.tobytes(), name


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
    old, new = np.empty((2, n)), np.empty((2, n))
    bilinear.estimates_of(q)(turned, metric, items, *old)
    for array in (turned, metric, items):
        array.flags.writeable = False
    estimate(turned, metric, items, np.empty(n), *new)
    assert old.tobytes() == new.tobytes()
    if q > 1:
        np.testing.assert_allclose(new[0], turned @ items, rtol=1e-12, atol=1e-12)
        square = np.einsum("bi,be,ei->i", items, (metric + metric.T) / 2.0, items)
        np.testing.assert_allclose(new[1], np.sqrt(np.maximum(square, 0.0)), atol=1e-7)


@pytest.mark.parametrize(("p", "q"), SIZES)
def test_contraction(p: int, q: int) -> None:
    rng = np.random.default_rng(p * q)
    both = Both(p, q, 1)
    both.new.inverse[:] = rng.normal(size=both.new.inverse.shape)
    user = rng.normal(size=p)
    old, new = (np.empty((q, p * q)), np.empty((q, q))), (np.empty((q, p * q)), np.empty((q, q)))
    bilinear.contract_user(user, both.new.inverse[0], old[0])
    bilinear.contract_twice(user, old[0], old[1])
    both.aot.matrices(user, *new)
    assert [a.tobytes() for a in old] == [a.tobytes() for a in new]


@pytest.mark.parametrize(("p", "q"), SIZES)
@pytest.mark.parametrize("n_rewards", [1, 3])
@pytest.mark.parametrize("deferred", [False, True])
def test_every_size_and_number_of_items(p: int, q: int, n_rewards: int, deferred: bool) -> None:
    rng, both = np.random.default_rng(p + q), Both(p, q, n_rewards)
    if deferred:
        both.defer()
    for r in [*range(13), 0, 0, 7, *rng.integers(0, 13, 17).tolist()]:
        assert both.absorb(*drawn(rng, p, q, n_rewards, r))
    both.finish()
    both.check()


@pytest.mark.parametrize("deferred", [False, True])
def test_refresh_when_it_is_due(deferred: bool) -> None:
    rng, both = np.random.default_rng(1), Both(4, 3, 2)
    for state in (both.old, both.new):
        state.counters[SINCE_REFRESH] = REFRESH_EVERY - 6
    for stage in range(3):
        if deferred:
            both.defer()
        for _ in range(3 + stage):
            assert both.absorb(*drawn(rng, 4, 3, 2, 3))
        both.finish()
        both.check()
    assert both.new.counters[SINCE_REFRESH] < 10.0


@pytest.mark.parametrize("deferred", [False, True])
def test_an_inverse_that_cannot_take_a_round_is_refreshed(deferred: bool) -> None:
    rng, both = np.random.default_rng(2), Both(5, 2, 2)
    if deferred:
        both.defer()
    for _ in range(6):
        assert both.absorb(*drawn(rng, 5, 2, 2, 2))
    for state in (both.old, both.new):
        state.inverse[:] *= -50.0
    assert both.absorb(*drawn(rng, 5, 2, 2, 3))
    both.finish()
    both.check()


@pytest.mark.parametrize("wild", [nan, inf, 1e200])
@pytest.mark.parametrize("deferred", [False, True])
def test_what_is_not_finite_is_rejected(wild: float, deferred: bool) -> None:
    rng, both = np.random.default_rng(3), Both(4, 3, 1)
    if deferred:
        both.defer()
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
    both.finish()
    both.check()


def test_a_design_that_is_not_finite() -> None:
    both = Both(4, 2, 1)
    for state in (both.old, both.new):
        state.gram[0, 1, 1], state.inverse[0, 0, 0] = nan, -1e9
    assert not both.absorb(np.ones(4), np.ones((2, 2)), np.ones((2, 1)))
    both.check()


def test_many_rounds_of_a_hundred_features() -> None:
    rng, both = np.random.default_rng(4), Both(10, 10, 1)
    both.defer()
    for _ in range(400):
        assert both.absorb(*drawn(rng, 10, 10, 1, int(rng.integers(0, 11))))
    both.finish()
    both.check()
    assert np.array_equal(both.new.inverse[0], both.new.inverse[0].T)
    np.testing.assert_allclose(both.new.gram[0] @ both.new.inverse[0], np.eye(100), atol=1e-8)


def test_shapes_are_checked() -> None:
    both = Both(2, 3, 1, most=4)
    with pytest.raises(ValueError, match="one block"):
        ProductRidge(*both.new, 3, 3, 4)
    for rows, n_rewards in (((5, 3), 1), ((2, 2), 1), ((2, 3), 2)):
        with pytest.raises(ValueError, match="shapes"):
            both.aot.absorb(np.ones(2), np.ones(rows), np.ones((rows[0], n_rewards)))
    with pytest.raises(ValueError, match="shapes"):
        both.aot.absorb(np.ones(3), np.ones((1, 3)), np.ones((1, 1)))
    with pytest.raises(ValueError, match="shapes"):
        estimate(np.ones(2), np.ones((3, 3)), np.ones((3, 4)), *np.empty((3, 4)))
