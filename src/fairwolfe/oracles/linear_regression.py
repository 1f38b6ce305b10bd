"""The linear oracles `Ridge` and `OnlineGradient`, their state as plain arrays, and the numbers of
confidence widths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn, Self

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector, aligned
from fairwolfe.core.contexts import Arms
from fairwolfe.core.packing import need, require, require_counts
from fairwolfe.core.problem import Problem, number_where, positive
from fairwolfe.core.protocols import Oracle
from fairwolfe.errors import NumericalFailure
from fairwolfe.kernels.ridge import Regression as Model

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
            raise_useless(self.counters)


def raise_useless(counters: Vector) -> NoReturn:
    """NumericalFailure for an observation or a choice that could not be computed; nothing has
    changed.
    """
    raise NumericalFailure(
        "the design matrix is no longer usable for this, or the numbers leave the range of floats "
        f"(its inverse was off by {counters[DRIFT]:.1e} at the last refresh); nothing was changed. "
        "Do features or rewards have very different scales? Scale features to norm 1, or "
        "raise the ridge"
    )


def repair(state: LinearState) -> float:
    """Recompute the inverse and the estimates from the design, in place; how large their error
    was.
    """
    if state.gram.shape[1] == 0:  # only the estimates are kept
        return 0.0
    state.model().recompute()
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


def learn(oracle: Oracle, state: Any, block: int, x: Vector, reward: Vector) -> None:
    """One observation, in place; NumericalFailure if the state has become useless."""
    oracle.learn(block, x, reward, *state)
    state.raise_failure()


def learn_linear(block: int, x: Vector, reward: Vector, *state: Any) -> None:
    """One observation, in place; where it is rejected, the status is 1 and nothing is learnt.

    x (d,), reward (D,); state: the fields of a `LinearState`.
    """
    LinearState(*state).model().learn(block, x, reward)


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


@dataclass(frozen=True)
class Ridge:
    """theta = argmin sum_s |theta x_s - r_s|^2 + ridge |theta|_F^2, for all D rewards at once.

    One design matrix V = ridge I + sum x x' serves every reward; its inverse is kept by rank-one
    updates, exactly symmetric, and refreshed from V every 10,000 observations, or when it has
    become much smaller; the drift is then measured and forgotten. An observation that would leave
    the range of floats raises an error. PerArm contexts keep one block per arm.
    Cost of an observation: d^2 + D d.

    Reference: the regression of Algorithms 3 and 5 of the paper; its experiments use ridge 0.1.

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> oracle = Ridge(1.0)
    >>> state = oracle.init(problem)
    >>> oracle.learn(0, np.array([1.0, 0.0]), np.array([1.0]), *state)
    >>> state.theta.round(12).tolist()
    [[[0.5, 0.0]]]
    """

    ridge: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "ridge", positive("ridge", self.ridge))

    def init(self, problem: Problem) -> LinearState:
        """V = ridge I, no observation yet."""
        return self.allocate(problem.n_arms or 1, problem.n_objectives, problem.dimension)

    def allocate(self, blocks: int, n: int, d: int) -> LinearState:
        """The state of a regression of n outputs on d features, in blocks that share nothing."""
        need(blocks, d, max(d, n))
        eye = np.broadcast_to(np.eye(d), (blocks, d, d))
        return LinearState(
            gram=aligned(self.ridge * eye),
            inverse=aligned(eye / self.ridge),
            theta=np.zeros((blocks, n, d)),
            moment=np.zeros((blocks, n, d)),
            params=np.array([self.ridge]),
            counters=np.zeros(5),
        )

    learn = staticmethod(learn_linear)

    def regret_bound(self, problem: Problem) -> RegretBound:
        """ridge D_theta^2 + D_K^2 d ln(1 + t D_X^2/(ridge d)), predictions projected on K."""
        d = problem.dimension * (problem.n_arms or 1)
        return RegretBound(
            constant=self.ridge * float((parameter_norms(problem) ** 2).sum()),
            factor=problem.diameter**2 * d,
            rate=problem.feature_norm**2 / (self.ridge * d),
            root=0.0,
        )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(0.1)


@dataclass(frozen=True)
class OnlineGradient:
    """theta_i <- projection of theta_i - rate D_i g / sqrt(sum |g|^2), g the gradient of the loss.

    A step size that adapts to the gradients met (AdaGrad in its scalar form), projected on the
    ball of radius D_theta of the reward. O(D d) per observation and no d x d matrix: for many
    features. It has no confidence widths, so LinUCB cannot use it.

    Regret bound for rate sqrt(2): 2 sqrt(2) D_theta sqrt(sum |g|^2) <= 4 sqrt(2) D_theta D_X
    (D_theta D_X + largest |reward|) sqrt(T), summed over the rewards.

    >>> problem = Problem.arms(1, {"clicks": (0, 1)}, parameter_norm=1.0)
    >>> oracle = OnlineGradient()
    >>> state = oracle.init(problem)
    >>> for _ in range(2000):
    ...     oracle.learn(0, np.array([1.0]), np.array([0.25]), *state)
    >>> round(float(state.theta[0, 0, 0]), 3)
    0.25
    """

    rate: float = 2.0**0.5
    blocks_are_flat: ClassVar[bool] = False
    """PerArm: every arm has its own step size and ball, unlike in the flat form."""

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "rate", number_where("rate", self.rate, lambda x: x > 0.0, "a positive number")
        )

    def init(self, problem: Problem) -> LinearState:
        """theta = 0; params are the rate and the radius of each reward's ball, and moment holds the
        sums of squared gradients.
        """
        blocks, d, n = problem.n_arms or 1, problem.dimension, problem.n_objectives
        need(blocks, n, d)
        return LinearState(
            gram=np.zeros((blocks, 0, 0)),
            inverse=np.zeros((blocks, 0, 0)),
            theta=np.zeros((blocks, n, d)),
            moment=np.zeros((blocks, n, 1)),
            params=np.concatenate([[self.rate], parameter_norms(problem)]),
            counters=np.zeros(5),
        )

    learn = staticmethod(learn_linear)

    def regret_bound(self, problem: Problem) -> RegretBound:
        """The bound above, for any rate: (2/rate + rate) replaces 2 sqrt(2)."""
        norms = parameter_norms(problem)
        reach = norms * problem.feature_norm + np.maximum(abs(problem.low), abs(problem.high))
        blocks = problem.n_arms or 1
        scale = (2.0 / self.rate + self.rate) * 2.0 * problem.feature_norm * np.sqrt(blocks)
        return RegretBound(0.0, 0.0, 0.0, float(scale * (norms * reach).sum()))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(0.5)
