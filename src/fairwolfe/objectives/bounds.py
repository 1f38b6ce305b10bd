"""`Bounds`: the leaf of every hard constraint, low_i <= x_i <= high_i."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.objectives.concave import Concave

__all__ = ["MARGINS", "WIDTHS", "Bounds"]

WIDTHS, MARGINS = 2, 3
"""Which of the quarters of the params are widths and margins, for the code that sets them."""

_ROUNDING, _TINY = 1e-9, 1e-12  # of a level, and of anything: what still counts as kept


@dataclass(frozen=True)
class Bounds(Concave):
    """0 where low <= x <= high in every coordinate, -inf elsewhere.

    The proximal map is the projection; there is no Lipschitz constant. `shares`: where the rows are
    x_i = z_i - share_i sum z and the last one is the sum. `names`: what the rows are of.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    margin: float = 0.0
    multiplier: float = 0.5
    shares: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    form = "bounded"
    hard = True

    @property
    def size(self) -> int | None:
        return len(self.low)

    @property
    def everywhere(self) -> bool:
        return False

    @property
    def limited(self) -> int:
        """How many rows have levels: all except the sum that shares are of."""
        return len(self.shares) or len(self.low)

    def distances(self, x: Vector) -> Vector:
        """How far every row is beyond its levels; for shares, as a share of the sum."""
        beyond: Vector = np.maximum(
            np.maximum(np.array(self.low) - x, x - np.array(self.high)), 0.0
        )
        if not self.shares:
            return beyond
        return beyond[:-1] / (x[-1] if x[-1] > 0.0 else np.inf)

    def _violation(self, z: Vector) -> float:
        return float(self.distances(z).max())

    def _value(self, z: Vector) -> float:
        low, high = np.array(self.low), np.array(self.high)
        levels = np.maximum(*(np.where(np.isfinite(x), np.abs(x), 0.0) for x in (low, high)))
        room = _ROUNDING * (levels + abs(z[-1]) if self.shares else levels) + _TINY
        return 0.0 if bool(((z >= low - room) & (z <= high + room)).all()) else -np.inf

    def lipschitz(self, n: int) -> float:
        return np.inf

    def _prox_point(self, z: Vector, step: float, g: Vector) -> Vector:
        return np.clip(z, self.low, self.high)  # without the rounding of z + step g

    def _params(self, n: int) -> Vector:
        """low, high, widths, margins, (4 n,)."""
        return np.concatenate([self.low, self.high, np.ones(n), np.zeros(n)])

    def relaxed(self) -> Concave:
        from fairwolfe.objectives.combine import Scaled

        return Scaled(0.0, self)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (cls((0.2, -np.inf), (0.5, 0.7)),)
