"""`Thompson`: the best arm of parameters drawn from what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from fairwolfe.bandits.choosing import CHOOSE, LinearBandit
from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.kernels.compile import fma, kernel
from fairwolfe.kernels.linalg import cholesky, combine_rows, row_products
from fairwolfe.kernels.selection import argmax
from fairwolfe.oracles import LinearOracle, Ridge
from fairwolfe.oracles.linear_state import noise_scales

__all__ = ["Thompson"]


@kernel(signature=CHOOSE)
def thompson(
    direction: Vector,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    per_arm: bool,
    draws: Vector,
    params: Vector,
    out: Vector,
    report: Vector,
) -> int:
    """params: R_i times the scale. draws: d normals for each block.

    <g, theta> has mean sum_i g_i theta_i and covariance (sum_i g_i^2 R_i^2) V^-1, the rewards
    being independent: one draw of d numbers is enough for all D rewards.

    direction (rewards,), theta (blocks, rewards, features), inverse (blocks, features, features),
    counters (5,), features (arms or 1, features), draws (blocks features,), out (arms,),
    report (1,).
    """
    n, d = direction.size, theta.shape[2]
    spread = 0.0
    for i in range(n):
        spread += (direction[i] * params[i]) ** 2
    spread = np.sqrt(spread)
    drawn, lower = np.empty(d), np.empty((d, d))
    for block in range(theta.shape[0]):
        combine_rows(direction, theta[block], drawn)
        if not cholesky(inverse[block], lower):
            return -1
        for j in range(d):
            noise = 0.0
            for k in range(j + 1):
                noise = fma(lower[j, k], draws[block * d + k], noise)
            drawn[j] = fma(spread, noise, drawn[j])
        row_products(features, drawn, out[block : block + 1] if per_arm else out)
    arm = argmax(out)
    report[0] = np.nan  # it has no closed form
    return arm


@dataclass(frozen=True, kw_only=True)
class Thompson(LinearBandit):
    """The arm of largest <g, theta~ x>, theta~ drawn from N(theta, scale^2 R_i^2 V^-1) by reward.

    R_i is half the range of reward i, or the problem's `noise`. Randomised without a probability
    in closed form: that of a decision is None, so its log cannot be evaluated off-policy.

    Parameters
    ----------
    scale: multiplies the standard deviation, 1 = Gaussian noise of that size
    ridge: penalty of the regression, > 0

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = Thompson()
    >>> choice = base.act(base.init(problem), np.eye(2), np.ones(1), np.random.default_rng(0))
    >>> choice.action, choice.probability
    (0, None)
    """

    scale: float = 1.0
    ridge: float = 1.0

    choose = thompson

    def __post_init__(self) -> None:
        number_where("scale", self.scale, lambda scale: scale >= 0.0, "a number of at least 0")
        Ridge(self.ridge)

    @cached_property
    def regression(self) -> LinearOracle:
        """Ridge: its design gives the uncertainty of the parameters."""
        return Ridge(self.ridge)

    def draws(self, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
        """d normals a block and round."""
        return rng.standard_normal((n, (problem.n_arms or 1) * problem.dimension))

    def rule_params(self, problem: Problem) -> Vector:
        return self.scale * noise_scales(problem)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(scale=0.1, ridge=0.1)
