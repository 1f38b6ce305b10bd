"""What any policy can reach when utility is traded against an objective of the items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.objectives import Concave
from fairwolfe.truth.optimum import Optimum

__all__ = ["Frontier"]


@dataclass(frozen=True, eq=False)
class Frontier:
    """Bounds of phi(x), the most utility of any policy whose item objective is at least x.

    The optimum of utility + beta items gives two of them. Its upper bound U_beta holds for
    everything that can be reached, so utility <= U_beta - beta x: `upper` is the smallest of these
    lines. Its average is reached, and so is every mixture; utility is linear and the item objective
    concave, so a mixture is not worse than the chord: `lower` is the concave hull of the points.
    """

    betas: Vector
    bounds: Vector
    """U_beta, for each beta."""
    points: Matrix
    """(item objective, utility) of the average of each optimum, (betas, 2)."""

    @classmethod
    def of(
        cls, betas: Sequence[float], best: Sequence[Optimum], items: Concave, n_items: int
    ) -> Frontier:
        """From the optima of the betas; utility is the sum of all but the first `n_items`."""
        m = n_items
        points = [(items.value(b.average[:m]), b.average[m:].sum()) for b in best]
        return cls(
            np.array(betas, dtype=np.float64),
            np.array([b.upper_bound for b in best]),
            np.array(points, dtype=np.float64),
        )

    @classmethod
    def mean(cls, several: Sequence[Frontier]) -> Frontier:
        """Of the means over worlds: inequalities of every world hold for their means too."""
        return cls(
            several[0].betas,
            np.mean([one.bounds for one in several], axis=0),
            np.mean([one.points for one in several], axis=0),
        )

    def upper(self, x: Vector | float) -> Vector:
        """No policy with an item objective of x or more has more utility."""
        value = np.atleast_1d(np.asarray(x, dtype=np.float64))[:, None]
        # An objective of -inf has no effect: 0 times it counts as 0.
        with np.errstate(invalid="ignore"):
            spent = np.where(self.betas > 0.0, self.betas * value, 0.0)
        values: Vector = (self.bounds - spent).min(axis=1)
        return values

    def lower(self, x: Vector | float) -> Vector:
        """Some policy has this utility with an item objective of x or more; NaN where unknown."""
        hull = self.hull
        value = np.atleast_1d(np.asarray(x, dtype=np.float64))
        values: Vector = np.interp(value, hull[:, 0], hull[:, 1], right=np.nan)
        return values

    @property
    def hull(self) -> Matrix:
        """The corners of `lower`, from the largest utility to the largest item objective."""
        points = self.points[np.isfinite(self.points).all(axis=1)]
        kept: list[Vector] = []
        for point in points[np.lexsort((points[:, 0], -points[:, 1]))]:
            if kept and point[0] <= kept[-1][0]:
                continue  # no better in either way
            while len(kept) > 1 and _above(kept[-2], kept[-1], point):
                kept.pop()
            kept.append(point)
        return np.array(kept).reshape(-1, 2)


def _above(first: Vector, middle: Vector, last: Vector) -> bool:
    """Whether the chord from the first to the last passes over the middle point."""
    (a, b), (c, d) = middle - first, last - first
    return bool(a * d >= b * c)
