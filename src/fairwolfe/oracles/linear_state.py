"""What oracles share; and of the linear ones, their state as plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.contexts import Arms
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Oracle
from fairwolfe.core.restoring import require, require_counts
from fairwolfe.errors import NumericalFailure
from fairwolfe.kernels.ridge import Regression as Model

__all__ = [
    "DRIFT",
    "LOG_DET",
    "REFRESH_EVERY",
    "SINCE_REFRESH",
    "STATUS",
    "UPDATES",
    "Estimates",
    "LinearState",
    "RegressionState",
    "RegretBound",
    "learn",
    "noise_scales",
    "parameter_norms",
    "radius",
    "refuse",
    "repair",
]

UPDATES, LOG_DET, SINCE_REFRESH, DRIFT, STATUS = range(5)
"""Places in the `counters` of a linear state, as in kernels/ridge.pxd: observations; ln det V/det
V_0; observations since the inverse was recomputed; how far it was off then; 1 where the last
observation was rejected. They are in an array that compiled code writes, so that an interrupt
between two lines of Python can never separate a state from its counters."""

REFRESH_EVERY = 10_000
"""Observations after which the inverse is recomputed, as in kernels/types.pxd."""

_ROUNDING = 1e-6  # that long sums may leave, relative to what they are of


class Estimates(NamedTuple):
    """What rules read of an oracle in a round: the rewards of arm a are theta x_a.

    `features` holds the x_a; they are those of the context where the oracle is linear.
    """

    theta: Cube  # (blocks, rewards, features)
    inverse: Cube  # (blocks, features, features)
    counters: Vector  # (5,)
    features: Matrix  # (arms, features), one row if per_arm
    per_arm: bool


class LinearState(NamedTuple):
    """Estimates theta (blocks, D, d), and what the oracle keeps to improve them."""

    gram: Cube  # (blocks, features, features)
    inverse: Cube  # the same
    theta: Cube  # (blocks, rewards, features)
    moment: Cube  # the same
    params: Vector
    counters: Vector  # (5,)

    def model(self) -> Model:
        """The same arrays, as compiled code reads and writes them."""
        return Model(*self, learn="ridge" if self.gram.shape[1] else "online_gradient")

    def estimates(self, given: Arms) -> Estimates:
        """The parameters as they are, for the features as they are."""
        return Estimates(self.theta, self.inverse, self.counters, given.features, given.per_arm)

    @property
    def drift(self) -> float:
        """How far the kept inverse was off at the last refresh."""
        return float(self.counters[DRIFT])

    def restored(self) -> None:
        """After arrays have been read from a file: raise if no observations can have made them."""
        for name, matrix in (("gram", self.gram), ("inverse", self.inverse)):
            diagonal = np.diagonal(matrix, axis1=1, axis2=2)
            require(f"the diagonal of {name}", diagonal, diagonal > 0.0, "it is positive")
            turned = matrix.transpose(0, 2, 1)
            with np.errstate(all="ignore"):
                scale = np.sqrt(diagonal)
                near = _ROUNDING * scale[:, :, None] * scale[:, None, :]
                symmetric = (matrix == turned) | (abs(matrix - turned) <= near)
            require(name, matrix, symmetric, "it is symmetric")
        counters = self.counters
        require_counts("counters", counters[[UPDATES, SINCE_REFRESH, STATUS]])
        require("the drift", counters[DRIFT : DRIFT + 1], counters[DRIFT] >= 0.0, "it has no sign")
        least = counters[LOG_DET] >= -_ROUNDING
        require("the log-determinant", counters[LOG_DET : LOG_DET + 1], least, "it only grows")

    def raise_failure(self) -> None:
        """NumericalFailure where the last observation could not be applied."""
        if self.counters[STATUS] != 0.0:
            refuse(self.counters)


def refuse(counters: Vector) -> NoReturn:
    """Raise for an observation or a choice that could not be computed; nothing has changed."""
    raise NumericalFailure(
        "the design matrix is no longer usable for this, or the numbers leave the range of floats "
        f"(its inverse was off by {counters[DRIFT]:.1e} at the last refresh); nothing was changed. "
        "Do features or rewards have very different scales? Scale features to norm 1, or "
        "raise the ridge"
    )


def repair(state: LinearState, recompute: Callable[[], Any] | None = None) -> float:
    """Recompute the inverse and the estimates from the design, in place; how large their error was.
    recompute: what does it for a state with another layout of its design.
    """
    if state.gram.shape[1] == 0:  # only the estimates are kept
        return 0.0
    (recompute or state.model().recompute)()
    state.raise_failure()
    return state.drift


class RegretBound(NamedTuple):
    """R(t) = constant + factor ln(1 + rate t) + root sqrt(t), a bound on the regression regret."""

    constant: float
    factor: float
    rate: float
    root: float

    def at(self, t: Any) -> Any:
        """R(t), for a number of observations or an array of them."""
        return self.constant + self.factor * np.log1p(self.rate * t) + self.root * np.sqrt(t)


class RegressionState(Protocol):
    """What an oracle has learnt: arrays, of which the first counter is the observations."""

    def estimates(self, given: Arms) -> Estimates:
        """What is estimated of the arms of a context."""

    def raise_failure(self) -> None:
        """NumericalFailure where the state has become useless."""


def learn(oracle: Oracle, state: Any, block: int, x: Vector, reward: Vector) -> None:
    """One observation, in place; raises if the state has become useless."""
    oracle.learn(block, x, reward, *state)
    state.raise_failure()


def radius(noise: Any, prior: Any, level: Any, log_det: Any) -> Any:
    """The confidence radius alpha = R sqrt(2 ln(1/delta_1) + ln(det V/det V_0)) + sqrt(ridge) D.

    noise is R, prior is sqrt(ridge) D_theta, level is 2 ln(1/delta_1): numbers, or arrays.
    """
    return noise * np.sqrt(level + log_det) + prior


def noise_scales(problem: Problem, ranges: Matrix | None = None) -> Vector:
    """R of rewards with these ranges (2, n), or the problem's: half of the range, or its noise."""
    low, high = (problem.low, problem.high) if ranges is None else ranges
    return (high - low) / 2.0 if problem.noise is None else np.full(low.size, problem.noise)


def parameter_norms(problem: Problem, ranges: Matrix | None = None) -> Vector:
    """D_theta of such rewards: the problem's, or what the ranges and the features' norm suggest."""
    low, high = (problem.low, problem.high) if ranges is None else ranges
    if problem.parameter_norm is not None:
        return np.full(low.size, problem.parameter_norm)
    return np.maximum(abs(low), abs(high)) / problem.feature_norm
