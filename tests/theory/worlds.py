"""The worlds in which regret bounds say something, with their objectives.

A1: one reward, arms {.05, .95} / {.1, .9}, f = -|z - .5|, f* = 0, the worst policy has .425.
A2: two rewards that compete, f = min, f* = .5, the worst policy has .45.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.environments import Finite
from fairwolfe.objectives import AtLeast, AtMost, Concave, Minimum

__all__ = ["A1", "A2", "AS_A_SUM", "DISTANCE", "MINIMUM", "Distance"]


@dataclass(frozen=True)
class Distance(Concave):
    """f(z) = -sum_i |z_i - target|: Lipschitz constant sqrt(n), as a leaf of its own."""

    target: float = 0.5

    def _value(self, z: Vector) -> float:
        return 0.0 - float(abs(z - self.target).sum())

    def lipschitz(self, n: int) -> float:
        return float(np.sqrt(n))

    def _gradient(self, z: Vector, step: float) -> Vector:
        away = self.target - z
        return np.sign(away) if step == 0.0 else np.clip(away / step, -1.0, 1.0)


A1, A2 = Finite.a1(), Finite.a2()
DISTANCE, MINIMUM = Distance(), Minimum()

AS_A_SUM = AtLeast(0.5, penalty=1.0) + AtMost(0.5, penalty=1.0)
"""The same function as DISTANCE, for which the library knows L = 2 only."""
