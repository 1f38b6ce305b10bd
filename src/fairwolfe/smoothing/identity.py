"""`Identity`: no smoothing, for objectives that are smooth already."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.objectives import Concave

__all__ = ["Identity"]


@dataclass(frozen=True)
class Identity:
    """f_t = f.

    The theorem for smooth f applies; on a function that is not smooth the directions are its
    supergradients and nothing is promised.

    >>> from fairwolfe.objectives import Linear
    >>> Identity().gradient(Linear([1.0, 2.0]), [0.3, 0.4], t=0).tolist()
    [1.0, 2.0]
    """

    averaged: ClassVar[bool] = False
    """Directions are exact: the newest one is followed."""

    def bind(self, problem: Problem, objective: Concave) -> Identity:
        """Nothing depends on the problem."""
        return self

    def value(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> float:
        """f(z)."""
        return objective.value(z)

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """A supergradient of f at z."""
        return objective.gradient(z)

    def step(self, objective: Concave, n: int, t: int) -> float:
        """The width of the kernels: 0 means the function itself."""
        return 0.0

    def widths(self, objective: Concave, n: int, times: IntVector) -> Vector:
        """The widths of the kernels at these times: 0 means the function itself."""
        return np.zeros(times.size)

    def direction(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None
    ) -> Vector:
        """`gradient` at a trusted z."""
        return objective.gradient(z)

    def mix(self, t: int) -> float:
        """The weight of the newest gradient in the direction: all of it."""
        return 1.0

    def beta_0(self, objective: Concave, n: int) -> float:
        """1/C, for a C-smooth f."""
        smoothness = objective.smoothness(n)
        return 1.0 / smoothness if smoothness > 0.0 else np.inf

    def m_1(self, objective: Concave, n: int) -> float:
        """M_1 = 0: the functions do not change."""
        return 0.0

    def m_2(self, objective: Concave, n: int) -> float:
        """M_2 = 0: there is no approximation."""
        return 0.0

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(),)
