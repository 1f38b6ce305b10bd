"""`Uniform`: any arm, whatever is known; the yardstick every bandit must beat."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from fairwolfe.bandits.choosing import LinearBandit
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Oracle
from fairwolfe.oracles import Ridge

__all__ = ["Uniform"]


@dataclass(frozen=True)
class Uniform(LinearBandit):
    """P(a) = 1/K. It still learns, so that its data can be used.

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = Uniform()
    >>> base.act(base.init(problem), np.eye(2), np.ones(1), np.random.default_rng(0)).probability
    0.5
    """

    rule_name = "uniform"
    uniforms = 1

    @cached_property
    def regression(self) -> Oracle:
        """Ridge with penalty 1."""
        return Ridge()

    def rule_params(self, problem: Problem) -> Vector:
        return np.empty(0)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(),)
