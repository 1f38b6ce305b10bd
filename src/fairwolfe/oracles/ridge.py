"""`Ridge`: least squares with a penalty, D rewards on one design."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector, aligned
from fairwolfe.core.problem import Problem, positive
from fairwolfe.core.restoring import need
from fairwolfe.kernels.compile import kernel, layer
from fairwolfe.kernels.linalg import REFRESH_EVERY, SINCE_REFRESH, STATUS, absorb, refresh
from fairwolfe.oracles.linear_state import LEARN, LinearState, RegretBound, parameter_norms

__all__ = ["Ridge"]


@kernel(signature=LEARN)
def ridge_learn(
    block: int,
    x: Vector,
    reward: Vector,
    gram: Cube,
    inverse: Cube,
    theta: Cube,
    moment: Cube,
    params: Vector,
    counters: Vector,
) -> None:
    """One observation; params: the penalty. The inverse is recomputed exactly from time to time,
    when it has become much smaller (`_shrunk`), and where it cannot take the observation; if that
    fails too, a failure is reported and nothing has changed. Where the block is -1 it is recomputed
    only.

    x (features,), reward (rewards,), gram, inverse (blocks, features, features), theta,
    moment (blocks, rewards, features), params (1,), counters (5,).
    """
    counters[STATUS] = 0.0
    if block < 0:
        refresh(gram, inverse, theta, moment, params[0], counters)
        return
    steps = _shrunk(layer(inverse, block), params[0])
    for attempt in range(2):
        if absorb(
            x,
            reward,
            layer(gram, block),
            layer(inverse, block),
            layer(theta, block),
            layer(moment, block),
            counters,
        ):
            due = counters[SINCE_REFRESH] >= REFRESH_EVERY
            if due or _shrunk(layer(inverse, block), params[0]) > steps:
                refresh(gram, inverse, theta, moment, params[0], counters)
            return
        if attempt == 0:
            refresh(gram, inverse, theta, moment, params[0], counters)
    counters[STATUS] = 1.0


@kernel
def _shrunk(inverse: Matrix, ridge: float) -> int:
    """How often the diagonal of the inverse, 1/ridge at first, has become 2^20 times smaller.

    Rank-one updates leave an error of 2^-52 of what the inverse was when it was last recomputed.
    Recomputed at every step of 2^20, it keeps 32 bits of what it is now. Features of norm 1 need
    2^20 ridge observations for a step; the long directions of an extended model need a few.

    inverse (features, features).
    """
    steps = 0
    for i in range(inverse.shape[0]):
        part = ridge * inverse[i, i]
        steps += (part < 2.0**-20) + (part < 2.0**-40) + (part < 2.0**-60)
    return steps


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
    learn = ridge_learn

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
