"""Checks of regression oracles."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.promise import Check, arrays, is_a_value, require, same
from fairwolfe.checks.rounds import contexts, rewards
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import Arms
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput, OutsideAssumptions

__all__ = ["ORACLE_CHECKS"]

_PROBLEM = Problem.arms(3, {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0)}, parameter_norm=1.0)
_ROUNDS = 400
_ROUNDING = 1e-9


def _estimated(state: Any, x: Vector, n_arms: int | None = None) -> Matrix:
    """The rewards that are estimated for the features x, a row for each block."""
    estimates = state.estimates(Arms(x[None], n_arms or 1, n_arms is not None))
    estimated: Matrix = estimates.theta @ estimates.features[0]
    return estimated


def _features(rng: np.random.Generator, rounds: int) -> Iterator[Vector]:
    for context in contexts(_PROBLEM, rng, rounds, n_arms=1):
        yield context[0]


def starts_afresh(oracle: Any, rng: np.random.Generator) -> None:
    """`init` gives equal states that share nothing, with an estimate of 0."""
    first, second = oracle.init(_PROBLEM), oracle.init(_PROBLEM)
    require(same(first, second), "two calls of init differ")
    for x in _features(rng, 5):
        estimated = _estimated(first, x)
        require(estimated.shape == (1, 2), f"estimates have the shape {estimated.shape}")
        require(not estimated.any(), f"the first estimate is {estimated}, not 0")
    before = deepcopy(first)
    for x in _features(rng, 5):
        oracle.learn(0, x, rewards(_PROBLEM, 0, rng), *second)
    require(same(first, before), "learning changed a state that init had given before")
    require(same(oracle.init(_PROBLEM), before), "learning changed what init gives")
    require(not same(second, before), "learning changed nothing")


def predicts_better_and_better(oracle: Any, rng: np.random.Generator) -> None:
    """Where rewards are linear without noise, the error of predictions falls towards 0."""
    theta = rng.normal(size=(2, 3))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    state = oracle.init(_PROBLEM)
    errors = []
    for x in _features(rng, _ROUNDS):
        errors.append(float(((_estimated(state, x)[0] - theta @ x) ** 2).sum()))
        oracle.learn(0, x, theta @ x, *state)
        finite = all(np.isfinite(part).all() for part in arrays(state) if part.dtype.kind == "f")
        require(finite, f"the state is not finite after {len(errors)} observations")
    early, late = np.mean(errors[:10]), np.mean(errors[-10:])
    require(bool(late <= 0.1 * early), f"the squared error went from {early:.2e} to {late:.2e}")


def keeps_blocks_apart(oracle: Any, rng: np.random.Generator) -> None:
    """The blocks of PerArm contexts are as many oracles, each with its own observations.

    An oracle may raise InvalidInput for such problems.
    """
    n_arms = 3
    try:
        whole = oracle.init(Problem.arms(3, _PROBLEM.rewards, parameter_norm=1.0, n_arms=n_arms))
    except InvalidInput:
        return
    parts = [oracle.init(_PROBLEM) for _ in range(n_arms)]
    for x in _features(rng, 60):
        arm, reward = int(rng.integers(n_arms)), rewards(_PROBLEM, 0, rng)
        oracle.learn(arm, x, reward, *whole)
        oracle.learn(0, x, reward, *parts[arm])
        apart = np.concatenate([_estimated(part, x) for part in parts])
        off = np.abs(_estimated(whole, x, n_arms) - apart).max(axis=1)
        for b in range(n_arms):
            require(off[b] <= 1e-10, f"block {b} is off by {off[b]} from its own oracle")


def estimates_from_its_state_alone(oracle: Any, rng: np.random.Generator) -> None:
    """Equal observations give equal estimates, and to ask for them changes nothing."""
    busy, silent = oracle.init(_PROBLEM), oracle.init(_PROBLEM)
    for i, x in enumerate(_features(rng, 60)):
        reward = rewards(_PROBLEM, 0, rng)
        before = deepcopy(busy)
        _estimated(busy, x)
        require(same(busy, before), "an estimate changed the state")
        for state in (busy, silent):
            oracle.learn(0, x, reward, *state)
        if i % 10 == 9:
            for state in (deepcopy(busy), deepcopy(silent)):
                require(
                    np.array_equal(_estimated(state, x), _estimated(busy, x)),
                    f"after {i + 1} equal observations the estimates differ",
                )


def keeps_its_regret_bound(oracle: Any, rng: np.random.Generator) -> None:
    """sum |prediction - r|^2 <= sum |theta x - r|^2 + R(T) for the best theta, and every T.

    Predictions are projected on the ranges; theta is any with rows of norm at most D_theta. The
    sequences are random, and adversarial: each reward as far from the prediction as it can be, for
    features in random directions, or in fixed ones that take turns.
    """
    try:
        bound = oracle.regret_bound(_PROBLEM)
    except OutsideAssumptions:
        return
    for name in ("random", "adverse", "adverse in turn"):
        features, targets, losses = _played(oracle, name, rng)
        for t in (1, 2, 5, 20, 100, _ROUNDS):
            regret = float(losses[:t].sum()) - _least_loss(features[:t], targets[:t])
            require(
                regret <= bound.at(t) + _ROUNDING,
                f"{name}: the regret is {regret:.4g} after {t} rounds, the bound {bound.at(t):.4g}",
            )


def _played(oracle: Any, name: str, rng: np.random.Generator) -> tuple[Matrix, Matrix, Vector]:
    """Features, rewards and losses of a sequence."""
    state, low, high = oracle.init(_PROBLEM), _PROBLEM.low, _PROBLEM.high
    features, targets, losses = [], [], []
    for t, drawn in enumerate(_features(rng, _ROUNDS)):
        x = np.eye(3)[t % 3] if name == "adverse in turn" else drawn
        predicted = np.clip(_estimated(state, x)[0], low, high)
        reward = np.where(predicted > (low + high) / 2.0, low, high)
        if name == "random":
            reward = rewards(_PROBLEM, 0, rng)
        features.append(x)
        targets.append(reward)
        losses.append(float(((predicted - reward) ** 2).sum()))
        oracle.learn(0, x, reward, *state)
    return np.array(features), np.array(targets), np.array(losses)


def _least_loss(features: Matrix, targets: Matrix) -> float:
    """min sum |theta x - r|^2 over rows of norm at most 1: the multiplier is found by halving."""
    values, vectors = np.linalg.eigh(features.T @ features)
    total = 0.0
    for reward in targets.T:
        moment = vectors.T @ (features.T @ reward)
        low, high = 1e-12, 1e6
        for _ in range(60):
            shift = np.sqrt(low * high)
            longer = np.linalg.norm(moment / (np.maximum(values, 0.0) + shift)) > 1.0
            low, high = (shift, high) if longer else (low, shift)
        theta = vectors @ (moment / (np.maximum(values, 0.0) + high))
        total += float(((features @ theta - reward) ** 2).sum())
    return total


ORACLE_CHECKS: list[Check] = [
    is_a_value,
    starts_afresh,
    predicts_better_and_better,
    keeps_blocks_apart,
    estimates_from_its_state_alone,
    keeps_its_regret_bound,
]
