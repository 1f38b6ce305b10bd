"""How exposure is shared among items."""

from __future__ import annotations

import numpy as np

from fairwolfe.objectives.concave import finite_vector
from fairwolfe.protocols import Vector

__all__ = ["bottom_share", "gini_index", "lorenz"]


def gini_index(exposure: Vector) -> float:
    """sum |e_i - e_j|/(2 n sum e): 0 where all have the same, (n - 1)/n where one has all.

    >>> gini_index([1.0, 1.0]), gini_index([1.0, 0.0])
    (0.0, 0.5)
    """
    shares = np.sort(finite_vector("exposure", exposure))
    n, total = shares.size, float(shares.sum())
    if total <= 0.0:
        return 0.0
    ranks = 2.0 * np.arange(1, n + 1) - n - 1.0
    return max(float(ranks @ shares) / (n * total), 0.0)


def lorenz(exposure: Vector) -> tuple[Vector, Vector]:
    """The share of all exposure (second) that the least exposed share of items (first) has.

    >>> lorenz([3.0, 1.0])[1].tolist()
    [0.0, 0.25, 1.0]
    """
    shares = np.sort(finite_vector("exposure", exposure))
    total = max(float(shares.sum()), 1e-300)
    below = np.concatenate([[0.0], np.cumsum(shares) / total])
    return np.linspace(0.0, 1.0, below.size), below


def bottom_share(exposure: Vector, part: float = 0.5) -> float:
    """The share of all exposure that the least exposed `part` of the items has.

    >>> bottom_share([4.0, 3.0, 2.0, 1.0])
    0.3
    """
    return float(np.interp(part, *lorenz(exposure)))
