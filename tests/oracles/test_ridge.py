"""Ridge regression with D outputs, kept by updates, against NumPy; loud failure; a long run."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import PerArm, arms
from fairwolfe.core.protocols import Oracle
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.oracles import LinearState, OnlineGradient, Ridge
from fairwolfe.oracles.linear_regression import (
    DRIFT,
    LOG_DET,
    REFRESH_EVERY,
    SINCE_REFRESH,
    STATUS,
    UPDATES,
    learn,
    repair,
)

nan, inf = float("nan"), float("inf")


def problem_of(d: int, n: int, **options: Any) -> Problem:
    return Problem.arms(d, {f"r{i}": (-1.0, 1.0) for i in range(n)}, **options)


def take(state: LinearState, features: Matrix, rewards: Matrix) -> None:
    """An update for each row."""
    model = state.model()
    for x, reward in zip(features, rewards, strict=True):
        assert model.learn(0, x, reward)


def solved(ridge: float, features: Matrix, rewards: Matrix) -> tuple[Matrix, Matrix, Matrix, float]:
    """V, V^-1, theta and ln det V/det V_0 from all observations at once."""
    d = features.shape[1]
    gram = ridge * np.eye(d) + features.T @ features
    log_det = float(np.linalg.slogdet(gram)[1]) - d * np.log(ridge)
    inverse: Matrix = np.linalg.inv(gram).astype(np.float64)
    theta: Matrix = np.linalg.solve(gram, features.T @ rewards).T.astype(np.float64)
    return gram, inverse, theta, log_det


@pytest.mark.parametrize("d", range(1, 13))
@pytest.mark.parametrize("r", range(1, 7))
def test_updates_against_numpy(r: int, d: int) -> None:
    rng = stream(0, "rank", r, d)
    ridge, n, rounds = 0.3, 3, 5
    features, rewards = rng.normal(size=(rounds, r, d)), rng.normal(size=(rounds, r, n))
    state = Ridge(ridge).init(problem_of(d, n))
    for s in range(rounds):
        take(state, features[s], rewards[s])
        seen = (s + 1) * r
        gram, inverse, theta, log_det = solved(
            ridge, features[: s + 1].reshape(seen, d), rewards[: s + 1].reshape(seen, n)
        )
        np.testing.assert_allclose(state.gram[0], gram, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(state.inverse[0], inverse, rtol=0.0, atol=1e-10)
        np.testing.assert_allclose(state.theta[0], theta, rtol=0.0, atol=1e-10)
        assert state.counters[LOG_DET] == pytest.approx(log_det, rel=1e-12, abs=1e-12)
        assert state.counters[UPDATES] == state.counters[SINCE_REFRESH] == seen
        assert np.array_equal(state.inverse[0], state.inverse[0].T)
        assert np.array_equal(state.gram[0], state.gram[0].T)


@pytest.mark.parametrize(("ridge", "d", "n"), [(1.0, 3, 2), (0.1, 10, 5), (0.01, 1, 1)])
def test_the_ridge_identity(ridge: float, d: int, n: int) -> None:
    """sum |yhat - r|^2/(1 + w^2) = min_Theta [sum |Theta x - r|^2 + ridge |Theta|^2].

    Predictions and widths are those before the update. Rewards are no function of the features:
    the identity holds for every sequence.
    """
    rng = stream(0, "identity", d)
    features, rewards = rng.normal(size=(200, d)), rng.uniform(-3.0, 3.0, (200, n))
    problem = problem_of(d, n)
    oracle = Ridge(ridge)
    state = oracle.init(problem)
    total, free, model = 0.0, np.full(n, inf), state.model()
    for x, reward in zip(features, rewards, strict=True):
        width, predicted = model.widths(x[None]), model.predictions(x[None], -free, free)
        total += float(((predicted[0] - reward) ** 2).sum() / (1.0 + width[0] ** 2))
        learn(oracle, state, 0, x, reward)
    theta = solved(ridge, features, rewards)[2]
    least = float(((features @ theta.T - rewards) ** 2).sum() + ridge * (theta**2).sum())
    assert total == pytest.approx(least, rel=1e-11)


@pytest.mark.parametrize("d", [1, 7, 40])
@pytest.mark.parametrize("k", [1, 5, 33])
def test_scores_widths_and_predictions_against_numpy(d: int, k: int) -> None:
    rng = stream(0, "readings", d, k)
    n = 3
    state = Ridge(0.5).init(problem_of(d, n))
    take(state, rng.normal(size=(2 * d, d)), rng.normal(size=(2 * d, n)))
    theta, inverse = state.theta[0], np.linalg.inv(state.gram[0])
    x, g = rng.normal(size=(k, d)), rng.normal(size=n)
    low, high = np.array([-0.2, -inf, -0.5]), np.array([0.2, inf, 0.1])
    model = state.model()
    score, width, predicted = model.scores(g, x), model.widths(x), model.predictions(x, low, high)
    np.testing.assert_allclose(score, x @ theta.T @ g, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(width, np.sqrt(np.einsum("ai,ij,aj->a", x, inverse, x)), atol=1e-11)
    np.testing.assert_allclose(predicted, np.clip(x @ theta.T, low, high), rtol=0.0, atol=1e-11)


def flattened(x: Vector, arm: int, n_arms: int) -> Vector:
    """e_arm (x) x."""
    out = np.zeros((n_arms, x.size))
    out[arm] = x
    return out.ravel()


def test_blocks_of_arms_are_one_flattened_design() -> None:
    rng = stream(0, "blocks")
    n_arms, d, n, ridge = 4, 3, 2, 0.2
    oracle = Ridge(ridge)
    split = problem_of(d, n, n_arms=n_arms)
    blocks, flat = oracle.init(split), oracle.init(problem_of(n_arms * d, n))
    for _ in range(60):
        x, reward, arm = rng.normal(size=d), rng.normal(size=n), int(rng.integers(n_arms))
        context, g = arms(PerArm(x), split), rng.normal(size=n)
        rows = np.array([flattened(x, a, n_arms) for a in range(n_arms)])
        one, other, free = blocks.model(), flat.model(), np.full(n, inf)
        given = context.features
        for own, wanted in (
            (one.widths(given, True), other.widths(rows)),
            (one.scores(g, given, True), other.scores(g, rows)),
            (one.predictions(given, -free, free, True), other.predictions(rows, -free, free)),
        ):
            np.testing.assert_allclose(own, wanted, atol=1e-12)
        learn(oracle, blocks, arm, x, reward)
        learn(oracle, flat, 0, flattened(x, arm, n_arms), reward)
    assert blocks.counters[LOG_DET] == pytest.approx(flat.counters[LOG_DET], rel=1e-12)
    for b in range(n_arms):
        part = slice(b * d, (b + 1) * d)
        np.testing.assert_allclose(blocks.gram[b], flat.gram[0, part, part], atol=1e-12)
        np.testing.assert_allclose(blocks.inverse[b], flat.inverse[0, part, part], atol=1e-12)
    for state in (blocks, flat):
        repair(state)
    assert blocks.counters[LOG_DET] == pytest.approx(flat.counters[LOG_DET], rel=1e-12)
    np.testing.assert_allclose(blocks.theta.swapaxes(0, 1).reshape(n, -1), flat.theta[0])


def learned(d: int = 4, n: int = 2, rounds: int = 50, ridge: float = 0.5) -> LinearState:
    rng = stream(0, "learned", d)
    state = Ridge(ridge).init(problem_of(d, n))
    take(state, rng.normal(size=(rounds, d)), rng.normal(size=(rounds, n)))
    return state


def test_a_refresh_restores_and_measures_the_drift() -> None:
    state = learned()
    clean = [array.copy() for array in state]
    diagonal = np.sqrt(np.diag(state.inverse[0]))
    spoilt = 1e-7 * diagonal[1] * diagonal[2]
    state.inverse[0, 1, 2] += spoilt
    state.theta[0] += 1.0
    state.counters[LOG_DET] += 1.0
    repair(state)
    for one, other in zip(state[:4], clean[:4], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-12)
    assert state.counters[LOG_DET] == pytest.approx(clean[5][LOG_DET], rel=1e-12)
    assert state.counters[DRIFT] == pytest.approx(1e-7, rel=1e-6)
    assert state.counters[SINCE_REFRESH] == 0.0
    assert state.counters[UPDATES] == clean[5][UPDATES]
    assert np.array_equal(state.inverse[0], state.inverse[0].T)
    state.raise_failure()


def test_the_drift_is_that_of_the_last_refresh() -> None:
    """The inverse is exact after it: what was before is forgotten."""
    state = learned()
    for spoilt in (1e-9, 1e-3, 1e-8):
        state.inverse[0, 0, 0] *= 1.0 + spoilt
        assert repair(state) == state.drift == pytest.approx(spoilt, rel=1e-3)


def test_observations_are_refreshed_on_schedule() -> None:
    rng = stream(0, "schedule")
    problem, oracle = problem_of(2, 1), Ridge(0.3)
    state = oracle.init(problem)
    features, rewards = rng.normal(size=(REFRESH_EVERY, 2)), rng.normal(size=(REFRESH_EVERY, 1))
    take(state, features[:-1], rewards[:-1])
    assert state.counters[SINCE_REFRESH] == REFRESH_EVERY - 1
    assert state.counters[DRIFT] == 0.0
    learn(oracle, state, 0, features[-1], rewards[-1])
    assert state.counters[SINCE_REFRESH] == 0.0
    assert state.counters[UPDATES] == REFRESH_EVERY
    assert 0.0 < state.counters[DRIFT] < 1e-10
    _, inverse, theta, log_det = solved(0.3, features, rewards)
    np.testing.assert_allclose(state.inverse[0], inverse, rtol=1e-10)
    np.testing.assert_allclose(state.theta[0], theta, rtol=1e-9)
    assert state.counters[LOG_DET] == pytest.approx(log_det, rel=1e-12)


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda s: s.inverse.__setitem__((0, 1, 1), nan), id="nan in the inverse"),
        pytest.param(lambda s: s.inverse.__setitem__((0, 1, 1), 2.0), id="a useless inverse"),
        pytest.param(lambda s: s.theta.__setitem__((0, 1, 1), nan), id="nan in the estimates"),
    ],
)
def test_what_follows_from_the_design_is_computed_afresh(spoil: Any) -> None:
    state, right = learned(), learned()
    for one in (right, state):
        repair(one)
    spoil(state)
    repair(state)
    assert all(np.array_equal(a, b) for a, b in zip(state[:4], right[:4], strict=True))


def test_a_design_that_rounding_left_indefinite_is_lifted() -> None:
    state = learned()
    state.gram[0] -= np.linalg.eigvalsh(state.gram[0]).min() * np.eye(4) * (1.0 + 1e-14)
    assert not np.linalg.eigvalsh(state.gram[0]).min() > 0.0
    before = state.gram.copy()
    repair(state)
    assert np.abs(state.gram - before).max() < 1e-10 * before.max()
    assert all(np.isfinite(array).all() for array in state)


def test_a_failed_refresh_leaves_the_arrays() -> None:
    state = learned()
    state.gram[0, 3, 3] = nan
    state.raise_failure()
    before = [array.copy() for array in state]
    with pytest.raises(NumericalFailure, match="no longer usable"):
        repair(state)
    assert state.counters[STATUS] == 1.0
    for one, other in zip(state[:4], before[:4], strict=True):
        assert np.array_equal(one, other, equal_nan=True)


@pytest.mark.parametrize("oracle", [Ridge(0.1), OnlineGradient()], ids=repr)
@pytest.mark.parametrize(
    ("x", "reward"),
    [
        pytest.param([nan, 0.0], [0.5, 0.5], id="nan feature"),
        pytest.param([inf, 0.0], [0.5, 0.5], id="infinite feature"),
        pytest.param([1.0, 0.0], [0.5, nan], id="nan reward"),
        pytest.param([1.0, 0.0], [inf, 0.5], id="infinite reward"),
        pytest.param([1e200, 1e200], [0.5, 0.5], id="overflow"),
    ],
)
def test_what_is_no_number_fails_loudly_in_the_same_step(
    oracle: Oracle, x: list[float], reward: list[float]
) -> None:
    state = oracle.init(problem_of(2, 2))
    learn(oracle, state, 0, np.array([0.6, 0.8]), np.array([1.0, -1.0]))
    with pytest.raises(NumericalFailure):
        learn(oracle, state, 0, np.array(x), np.array(reward))


@pytest.mark.parametrize("bad", [0.0, -1.0, nan, inf])
def test_parameters_of_the_oracles_are_checked(bad: float) -> None:
    with pytest.raises(InvalidInput, match=r"ridge is .*; give a positive finite number"):
        Ridge(bad)
    with pytest.raises(InvalidInput, match=r"rate is .*; give a positive number"):
        OnlineGradient(bad)


def test_online_gradient_against_numpy() -> None:
    rng = stream(0, "gradient")
    d, n, rate, radius = 3, 2, 0.7, 0.9
    oracle = OnlineGradient(rate)
    state = oracle.init(problem_of(d, n, parameter_norm=radius))
    theta, squares = np.zeros((n, d)), np.zeros(n)
    bounced = 0
    for _ in range(300):
        x, reward = rng.normal(size=d), rng.uniform(-4.0, 4.0, n)
        g = 2.0 * np.outer(theta @ x - reward, x)
        squares += (g**2).sum(axis=1)
        theta -= rate * radius * g / np.sqrt(squares)[:, None]
        norms = np.linalg.norm(theta, axis=1)
        bounced += int((norms > radius).sum())
        theta *= np.minimum(1.0, radius / norms)[:, None]
        learn(oracle, state, 0, x, reward)
        np.testing.assert_allclose(state.theta[0], theta, rtol=0.0, atol=1e-12)
    assert bounced > 0
    assert state.counters[UPDATES] == 300


def test_an_oracle_without_a_design_needs_no_repair() -> None:
    oracle = OnlineGradient()
    state = oracle.init(problem_of(2, 1))
    learn(oracle, state, 0, np.ones(2), np.ones(1))
    before = [array.copy() for array in state]
    assert repair(state) == 0.0
    assert all(np.array_equal(a, b) for a, b in zip(state, before, strict=True))


@pytest.mark.slow
def test_ten_million_updates() -> None:
    """d = 50: the kept inverse stays within 1e-8 of a fresh one, and memory is flat."""
    import resource  # not on Windows

    rng = stream(0, "ten million")
    d, chunk, chunks = 50, 50_000, 200
    # Directions of very different strength, so that V is ill conditioned (about 10^4).
    strength = np.geomspace(1.0, 0.01, d) / np.sqrt(d)
    truth = rng.normal(size=(2, d))
    state = Ridge(0.1).init(problem_of(d, 2))
    gram, moment = 0.1 * np.eye(d), np.zeros((2, d))

    def play(rounds: int) -> None:
        features = rng.standard_normal((rounds, d)) * strength
        rewards = features @ truth.T + 0.1 * rng.standard_normal((rounds, 2))
        take(state, features, rewards)
        gram[:] += features.T @ features
        moment[:] += rewards.T @ features

    for _ in range(2):
        play(chunk)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(chunks - 2):
        play(chunk)
    left = REFRESH_EVERY - 1 - int(state.counters[SINCE_REFRESH])
    play(left)  # as far from a refresh as it gets
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert state.counters[UPDATES] == 10_000_000 + left
    assert state.counters[SINCE_REFRESH] == REFRESH_EVERY - 1
    fresh = np.linalg.inv(gram)
    scale = np.sqrt(np.outer(np.diag(fresh), np.diag(fresh)))
    drift = float(np.abs((state.inverse[0] - fresh) / scale).max())
    residual = float(np.abs(state.inverse[0] @ gram - np.eye(d)).max())
    print(
        f"\ndrift {drift:.1e}, worst at a refresh {state.counters[DRIFT]:.1e}, residual "
        f"{residual:.1e}, peak memory {before} then {after}"
    )
    assert drift <= 1e-8
    assert state.counters[DRIFT] <= 1e-8
    assert residual <= 1e-8
    np.testing.assert_allclose(state.theta[0], moment @ fresh, rtol=0.0, atol=1e-8)
    assert np.array_equal(state.inverse[0], state.inverse[0].T)
    assert after <= 1.02 * before
