"""`Thompson`: the best arm of parameters drawn from what is known of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from fairwolfe.bandits.choosing import LinearBandit
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.core.protocols import Oracle
from fairwolfe.oracles import Ridge
from fairwolfe.oracles.linear_state import noise_scales

__all__ = ["Thompson"]


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

    rule_name = "thompson"

    def __post_init__(self) -> None:
        number_where("scale", self.scale, lambda scale: scale >= 0.0, "a number of at least 0")
        Ridge(self.ridge)

    @cached_property
    def regression(self) -> Oracle:
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
