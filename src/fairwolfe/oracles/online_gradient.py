"""`OnlineGradient`: projected online gradient descent, O(d) per observation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.core.restoring import need
from fairwolfe.errors import InvalidInput
from fairwolfe.oracles.linear_state import LinearState, RegretBound, parameter_norms

__all__ = ["OnlineGradient"]


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
        rate = float(self.rate)
        if not (np.isfinite(rate) and rate > 0.0):
            raise InvalidInput(f"rate is {self.rate!r}; give a positive number")
        object.__setattr__(self, "rate", rate)

    def init(self, problem: Problem) -> LinearState:
        """theta = 0."""
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

    @staticmethod
    def learn(block: int, x: Vector, reward: Vector, *state: Any) -> None:
        """One observation, in place; where it is rejected, the status is 1 and nothing is learnt.

        x (d,), reward (D,); state: the fields of a `LinearState`, whose params are the rate and the
        radius of each reward's ball, and whose moment holds the sums of squared gradients.
        """
        LinearState(*state).model().learn(block, x, reward)

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
