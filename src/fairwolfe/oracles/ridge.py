"""`Ridge`: least squares with a penalty, D rewards on one design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fairwolfe.core.arrays import Vector, aligned
from fairwolfe.core.problem import Problem, positive
from fairwolfe.core.restoring import need
from fairwolfe.oracles.linear_state import LinearState, RegretBound, parameter_norms

__all__ = ["Ridge"]


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

    @staticmethod
    def learn(block: int, x: Vector, reward: Vector, *state: Any) -> None:
        """One observation, in place; where it is rejected, the status is 1 and nothing is learnt.

        x (d,), reward (D,); state: the fields of a `LinearState`.
        """
        LinearState(*state).model().learn(block, x, reward)

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
