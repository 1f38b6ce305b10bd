"""Ridge regression on user (x) item against NumPy: every size, every rank, exact symmetry."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.streams import stream
from fairwolfe.kernels.products import ProductRidge
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.oracles.linear_regression import (
    DRIFT,
    LOG_DET,
    REFRESH_EVERY,
    SINCE_REFRESH,
    STATUS,
    UPDATES,
)
from fairwolfe.ranking import LinUCBRank

nan, inf = float("nan"), float("inf")
RIDGE = 0.3

SIZES = [(1, q) for q in (1, 2, 5, 12, 13, 20)] + [(3, q) for q in range(1, 15)]
SIZES += [(7, 2), (11, 11)]


def product(user: Vector, items: Matrix) -> Matrix:
    """x_i = user (x) item_i, the features that the kernels never form."""
    flat: Matrix = np.array([np.kron(user, item) for item in items])
    return flat.reshape(len(items), user.size * items.shape[1])


def rounds(
    rng: np.random.Generator, p: int, q: int, n_rewards: int, ranks: range
) -> Iterator[tuple[Vector, Matrix, Matrix]]:
    for r in ranks:
        yield rng.normal(size=p), rng.normal(size=(r, q)), rng.normal(size=(r, n_rewards))


def learn(user: Vector, rows: Matrix, rewards: Matrix, state: LinearState) -> None:
    """One round."""
    sizes = user.size, rows.shape[1]
    ProductRidge(*state, *sizes, max(len(rows), 1)).absorb(user, rows, rewards)


# --- learning ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "q"), SIZES)
@pytest.mark.parametrize("n_rewards", [1, 2, 3])
def test_updates_of_every_rank_against_numpy(p: int, q: int, n_rewards: int) -> None:
    rng = stream(0, "bilinear", p, q, n_rewards)
    d = p * q
    state = Ridge(RIDGE).allocate(1, n_rewards, d)
    gram, right = RIDGE * np.eye(d), np.zeros((d, n_rewards))
    for user, rows, rewards in rounds(rng, p, q, n_rewards, range(11)):
        learn(user, rows, rewards, state)
        x = product(user, rows)
        gram += x.T @ x
        right += x.T @ rewards
        inverse = state.inverse[0]
        np.testing.assert_allclose(inverse, np.linalg.inv(gram), rtol=1e-8, atol=1e-11)
        np.testing.assert_array_equal(inverse, inverse.T)
        theta = np.linalg.solve(gram, right).T
        np.testing.assert_allclose(state.theta[0], theta, rtol=1e-8, atol=1e-10)
        log_det = np.linalg.slogdet(gram)[1] - d * np.log(RIDGE)
        assert state.counters[LOG_DET] == pytest.approx(log_det, rel=1e-11, abs=1e-11)
    np.testing.assert_allclose(state.gram[0], gram, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(state.moment[0], right.T, rtol=1e-12, atol=1e-12)
    assert state.counters[UPDATES] == sum(range(11))
    assert state.counters[SINCE_REFRESH] == 11.0
    assert state.counters[STATUS] == 0.0
    state.raise_failure()


def test_a_round_in_which_nothing_was_looked_at_teaches_nothing() -> None:
    state = Ridge(RIDGE).allocate(1, 2, 6)
    before = [part.copy() for part in state]
    learn(np.ones(2), np.empty((0, 3)), np.empty((0, 2)), state)
    for one, other in zip(state[:5], before[:5], strict=True):
        np.testing.assert_array_equal(one, other)
    assert state.counters[[UPDATES, LOG_DET]].tolist() == [0.0, 0.0]


def test_one_update_of_rank_r_is_r_updates_of_rank_one() -> None:
    rng = stream(0, "bilinear", "ranks")
    whole, single = Ridge(RIDGE).allocate(1, 2, 8), Ridge(RIDGE).allocate(1, 2, 8)
    for user, rows, rewards in rounds(rng, 2, 4, 2, range(1, 10)):
        learn(user, rows, rewards, whole)
        for k in rng.permutation(len(rows)).tolist():
            learn(user, rows[k : k + 1], rewards[k : k + 1], single)
    np.testing.assert_allclose(whole.inverse, single.inverse, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(whole.theta, single.theta, rtol=1e-10, atol=1e-13)
    assert whole.counters[LOG_DET] == pytest.approx(single.counters[LOG_DET], rel=1e-12)


# --- the refresh, and loud failure ------------------------------------------------------------


def learnt(p: int = 2, q: int = 3, n_rewards: int = 2) -> LinearState:
    state = Ridge(RIDGE).allocate(1, n_rewards, p * q)
    for user, rows, rewards in rounds(stream(0, "learnt"), p, q, n_rewards, range(6)):
        learn(user, rows, rewards, state)
    return state


def test_the_refresh_is_exact_and_notes_the_drift() -> None:
    state = learnt()
    off = 1e-9 * np.sqrt(state.inverse[0, 0, 0] * state.inverse[0, 1, 1])
    state.inverse[0, 0, 1] += off
    state.counters[SINCE_REFRESH] = REFRESH_EVERY - 1
    user, rows, rewards = next(rounds(stream(1, "refresh"), 2, 3, 2, range(3, 4)))
    learn(user, rows, rewards, state)
    gram = state.gram[0]
    np.testing.assert_allclose(state.inverse[0], np.linalg.inv(gram), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(state.inverse[0], state.inverse[0].T)
    theta = np.linalg.solve(gram, state.moment[0].T).T
    np.testing.assert_allclose(state.theta[0], theta, rtol=1e-12, atol=1e-14)
    log_det = np.linalg.slogdet(gram)[1] - 6 * np.log(RIDGE)
    assert state.counters[LOG_DET] == pytest.approx(log_det, rel=1e-13)
    assert state.counters[SINCE_REFRESH] == 0.0
    assert 1e-11 < state.counters[DRIFT] < 1e-8
    state.raise_failure()


def test_rounds_without_exposure_are_counted_for_the_refresh_too() -> None:
    state = learnt()
    state.counters[SINCE_REFRESH] = REFRESH_EVERY - 1
    learn(np.ones(2), np.empty((0, 3)), np.empty((0, 2)), state)
    assert state.counters[SINCE_REFRESH] == 0.0


@pytest.mark.parametrize("spoil", ["inverse", "gram", "far"])
def test_a_state_that_was_spoilt_is_computed_afresh(spoil: str) -> None:
    state = learnt()
    if spoil == "inverse":
        state.inverse[:] *= -1e3  # then I + X V^-1 X' is not positive definite
    elif spoil == "gram":
        state.gram[0, 0, 0] = -1.0
        state.counters[SINCE_REFRESH] = REFRESH_EVERY - 1
    else:
        state.inverse[:] *= 1.001
        state.counters[SINCE_REFRESH] = REFRESH_EVERY - 1
    user, rows, rewards = next(rounds(stream(2, "spoilt"), 2, 3, 2, range(3, 4)))
    before = state.counters[UPDATES]
    learn(user, rows, rewards, state)
    state.raise_failure()
    assert state.counters[UPDATES] == before + 3  # it was learnt
    assert state.counters[DRIFT] > 1e-4
    assert np.array_equal(state.inverse[0], state.inverse[0].T)
    if spoil == "gram":
        assert np.linalg.eigvalsh(state.gram[0]).min() > 0.0  # lifted
    np.testing.assert_allclose(state.inverse[0] @ state.gram[0], np.eye(6), atol=1e-3)


@pytest.mark.parametrize("value", [nan, inf, -inf])
def test_a_reward_that_is_no_number_is_noticed(value: float) -> None:
    state = learnt()
    learn(np.ones(2), np.ones((2, 3)), np.array([[0.0, 1.0], [value, 0.0]]), state)
    assert state.counters[STATUS] == 1.0


# --- estimates and widths ---------------------------------------------------------------------


@pytest.mark.parametrize(("p", "q"), SIZES)
@pytest.mark.parametrize("n_rewards", [1, 3])
def test_estimates_and_widths_against_numpy(p: int, q: int, n_rewards: int) -> None:
    """Every item is shown, so that the reasons of the ranking tell all estimates and widths."""
    rng = stream(0, "estimates", p, q, n_rewards)
    n, d = 23, p * q
    ranges = {f"r{i}": (-float(i), 10.0 + i) for i in range(n_rewards)}
    size: int | tuple[int, int] = (p, q) if p > 1 else q
    problem = Problem.ranking(n, n, size, ranges, parameter_norm=2.0)
    base = LinUCBRank(exploration=0.7, ridge=0.5, delta=0.1)
    state = base.init(problem)
    root = rng.normal(size=(d, d))
    state.oracle.inverse[0] = root @ root.T / d + 0.1 * np.eye(d)
    state.oracle.theta[:] = rng.normal(size=(1, n_rewards, d))
    state.oracle.counters[LOG_DET] = 3.0
    user, items = rng.normal(size=p), rng.normal(size=(n, q))
    context = Bilinear(user, items) if p > 1 else items
    x = product(user, items) if p > 1 else items
    g = rng.normal(size=n + n_rewards)
    choice = base.act(state, context, g, rng)
    order, why = np.asarray(choice.action), choice.explanation
    assert why is not None
    parts = {name: np.array([row[name] for row in why]) for name in why[0]}

    value = x @ (g[n:] @ state.oracle.theta[0])
    widths = np.sqrt(np.einsum("ij,jk,ik->i", x, state.oracle.inverse[0], x))
    half_ranges = np.array([high - low for low, high in ranges.values()]) / n / 2.0
    radius = half_ranges * np.sqrt(2.0 * np.log(3.0 * n_rewards / 0.1) + 3.0) + np.sqrt(0.5) * 2.0
    bonus = 0.7 * (abs(g[n:]) @ radius) * widths
    np.testing.assert_allclose(parts["value"], value[order], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(parts["exploration"], bonus[order], rtol=1e-10, atol=1e-11)
    np.testing.assert_allclose(parts["fairness"], g[order], rtol=1e-9, atol=1e-10)
    assert order.tolist() == np.argsort(-(value + bonus + g[:n]), kind="stable").tolist()


def test_a_width_that_rounding_makes_negative_is_zero() -> None:
    """Far along a direction that is known exactly, nothing is left to explore."""
    problem = Problem.ranking(3, 2, (2, 2))
    base = LinUCBRank(exploration="theorem")
    state = base.init(problem)
    state.oracle.inverse[0] = 1e-30 * -np.eye(4)
    choice = base.act(state, Bilinear([1.0, 0.0], np.ones((3, 2))), np.ones(4), stream(0, "w"))
    assert [row["exploration"] for row in choice.explanation or ()] == [0.0, 0.0]
