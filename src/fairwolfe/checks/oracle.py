"""Checks of regression oracles."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.playing import arrays, same
from fairwolfe.checks.promise import Check, is_a_value, require
from fairwolfe.checks.rounds import contexts, rewards
from fairwolfe.errors import OutsideAssumptions
from fairwolfe.problem import Problem
from fairwolfe.protocols import Matrix, Vector

__all__ = ["ORACLE_CHECKS"]

_PROBLEM = Problem.arms(3, {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0)}, parameter_norm=1.0)
_ROUNDS = 400
_ROUNDING = 1e-9


def _predicted(state: Any, block: int, x: Vector) -> Vector:
    """theta x, projected on the ranges of the rewards."""
    predicted: Vector = np.clip(state.theta[block] @ x, _PROBLEM.low, _PROBLEM.high)
    return predicted


def _features(rng: np.random.Generator, rounds: int) -> Iterator[Vector]:
    for context in contexts(_PROBLEM, rng, rounds, 1):
        yield context[0]


def starts_afresh(oracle: Any, rng: np.random.Generator) -> None:
    """`init` gives equal states that share nothing, with an estimate of 0."""
    first, second = oracle.init(_PROBLEM), oracle.init(_PROBLEM)
    require(same(first, second), "two calls of init differ")
    require(first.theta.shape == (1, 2, 3) and not first.theta.any(), "theta does not start at 0")
    before = deepcopy(first)
    for x in _features(rng, 5):
        oracle.learn(0, x, rewards(_PROBLEM, rng), *second)
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
        errors.append(float(((state.theta[0] @ x - theta @ x) ** 2).sum()))
        oracle.learn(0, x, theta @ x, *state)
        finite = all(np.isfinite(part).all() for part in arrays(state))
        require(finite, f"the state is not finite after {len(errors)} observations")
    early, late = np.mean(errors[:10]), np.mean(errors[-10:])
    require(bool(late <= 0.1 * early), f"the squared error went from {early:.2e} to {late:.2e}")


def keeps_blocks_apart(oracle: Any, rng: np.random.Generator) -> None:
    """The blocks of PerArm contexts are as many oracles, each with its own observations."""
    n_arms = 3
    whole = oracle.init(Problem.arms(3, _PROBLEM.rewards, parameter_norm=1.0, n_arms=n_arms))
    parts = [oracle.init(_PROBLEM) for _ in range(n_arms)]
    for x in _features(rng, 60):
        arm, reward = int(rng.integers(n_arms)), rewards(_PROBLEM, rng)
        oracle.learn(arm, x, reward, *whole)
        oracle.learn(0, x, reward, *parts[arm])
        for b, part in enumerate(parts):
            off = float(np.abs(whole.theta[b] - part.theta[0]).max())
            require(off <= 1e-10, f"block {b} is off by {off} from an oracle of its own")


def keeps_its_regret_bound(oracle: Any, rng: np.random.Generator) -> None:
    """sum |prediction - r|^2 <= sum |theta x - r|^2 + R(T) for the best theta, and every T.

    Predictions are projected on the ranges; theta is any with rows of norm at most D_theta. The
    sequences are random, linear with noise, and adversarial: each reward as far from the
    prediction as it can be, for features in fixed, repeated or random directions.
    """
    try:
        bound = oracle.regret_bound(_PROBLEM)
    except OutsideAssumptions:
        return
    for name in ("random", "linear", "adverse", "adverse and repeated", "adverse in turn"):
        features, seen, losses = _played(oracle, name, rng)
        for t in (1, 2, 5, 20, 100, _ROUNDS):
            least = _least_loss(features[:t], seen[:t])
            regret = float(losses[:t].sum()) - least
            require(
                regret <= bound.at(t) + _ROUNDING,
                f"{name}: the regret is {regret:.4g} after {t} rounds, the bound {bound.at(t):.4g}",
            )


def _played(oracle: Any, name: str, rng: np.random.Generator) -> tuple[Matrix, Matrix, Vector]:
    """Features, rewards and losses of a sequence."""
    state = oracle.init(_PROBLEM)
    theta = rng.normal(size=(2, 3))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    features, seen, losses = [], [], []
    middle = (_PROBLEM.low + _PROBLEM.high) / 2.0
    for t, drawn in enumerate(_features(rng, _ROUNDS)):
        x = drawn
        if name == "adverse and repeated":
            x = np.array([1.0, 0.0, 0.0])
        elif name == "adverse in turn":
            x = np.eye(3)[t % 3]
        predicted = _predicted(state, 0, x)
        if name == "random":
            reward = rewards(_PROBLEM, rng)
        elif name == "linear":
            reward = np.clip(theta @ x + rng.normal(size=2) / 4.0, _PROBLEM.low, _PROBLEM.high)
        else:
            reward = np.where(predicted > middle, _PROBLEM.low, _PROBLEM.high)
        features.append(x)
        seen.append(reward)
        losses.append(float(((predicted - reward) ** 2).sum()))
        oracle.learn(0, x, reward, *state)
    return np.array(features), np.array(seen), np.array(losses)


def _least_loss(features: Matrix, seen: Matrix) -> float:
    """min sum |theta x - r|^2 over rows of norm at most 1: the multiplier is found by halving."""
    values, vectors = np.linalg.eigh(features.T @ features)
    total = 0.0
    for reward in seen.T:
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
    keeps_its_regret_bound,
]
