"""Checks of regression oracles: `ORACLE_CHECKS`."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np

from fairwolfe.checks.bandit import contexts
from fairwolfe.checks.common import Check, arrays, is_a_value, require, same
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import Arms
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput

PROBLEM = Problem.arms(3, {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0)}, parameter_norm=1.0)
_ROUNDS = 400


def estimated_rewards(state: Any, x: Vector, n_arms: int | None = None) -> Matrix:
    """The rewards that are estimated for the features x, a row for each block."""
    estimates = state.estimates(Arms(x[None], n_arms or 1, n_arms is not None))
    estimated: Matrix = estimates.theta @ estimates.features[0]
    return estimated


def observations(rng: np.random.Generator, n: int) -> list[tuple[Vector, Vector]]:
    """Features (d,) and rewards (D,) inside their ranges."""
    features = [context[0] for context in contexts(PROBLEM, rng, n, n_arms=1)]
    return [(x, rng.uniform(PROBLEM.low, PROBLEM.high)) for x in features]


def learns_from_its_arguments_alone(oracle: Any, rng: np.random.Generator) -> None:
    """`init` gives states that share nothing, with an estimate of 0; equal observations then give
    equal estimates, and to ask for them changes nothing.
    """
    fresh, state, twin = (oracle.init(PROBLEM) for _ in range(3))
    for i, (x, reward) in enumerate(observations(rng, 60)):
        first, before = estimated_rewards(fresh, x), deepcopy(state)
        require(first.shape == (1, 2), f"estimates have the shape {first.shape}")
        require(not first.any(), f"the estimate before any observation is {first}, not 0")
        estimated_rewards(state, x)
        require(same(state, before), "an estimate changed the state")
        for part in (state, twin):
            oracle.learn(0, x, reward, *part)
        require(not same(state, before), "learning changed nothing")
        equal = np.array_equal(estimated_rewards(state, x), estimated_rewards(twin, x))
        require(equal, f"after {i + 1} equal observations the estimates differ")


def predicts_better_and_better(oracle: Any, rng: np.random.Generator) -> None:
    """Where rewards are linear without noise, the error of predictions falls towards 0."""
    theta = rng.normal(size=(2, 3))
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    state = oracle.init(PROBLEM)
    errors = []
    for x, _ in observations(rng, _ROUNDS):
        errors.append(float(((estimated_rewards(state, x)[0] - theta @ x) ** 2).sum()))
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
        whole = oracle.init(Problem.arms(3, PROBLEM.rewards, parameter_norm=1.0, n_arms=n_arms))
    except InvalidInput:
        return
    parts = [oracle.init(PROBLEM) for _ in range(n_arms)]
    for x, reward in observations(rng, 60):
        arm = int(rng.integers(n_arms))
        oracle.learn(arm, x, reward, *whole)
        oracle.learn(0, x, reward, *parts[arm])
        apart = np.concatenate([estimated_rewards(part, x) for part in parts])
        off = np.abs(estimated_rewards(whole, x, n_arms) - apart).max(axis=1)
        for b in range(n_arms):
            require(off[b] <= 1e-10, f"block {b} is off by {off[b]} from its own oracle")


ORACLE_CHECKS: list[Check] = [
    is_a_value,
    learns_from_its_arguments_alone,
    predicts_better_and_better,
    keeps_blocks_apart,
]
