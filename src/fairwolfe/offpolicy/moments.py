"""Means and covariances of rows that come in chunks, and of what is made of their means."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector

__all__ = ["Moments", "moments"]


@dataclass(frozen=True)
class Moments:
    """Of n rows, weighted: the mean (q,), the means of both halves (2, q), and the covariance
    (q, q) for which that of the mean is covariance/n.

    Rows of even and of odd place are the halves.
    """

    n: int
    mean: Vector
    halves: Matrix
    covariance: Matrix

    def block(self, own: slice) -> Moments:
        """Those of some columns."""
        return Moments(self.n, self.mean[own], self.halves[:, own], self.covariance[own, own])


def moments(chunks: Iterable[tuple[Matrix, Vector | None]]) -> Moments:
    """Of chunks of rows (rows, q) with weights (rows,); None: all 1."""
    first = True
    for rows, weights in chunks:
        if first:
            q = rows.shape[1]
            origin = rows.mean(axis=0)  # numbers are summed relative to it, to keep their digits
            n, total = 0, np.zeros(2)
            sums, squares = np.zeros((2, q)), np.zeros((q, q))
            lines, square_total = np.zeros(q), 0.0
            first = False
        h = np.ones(len(rows)) if weights is None else weights
        centred = rows - origin
        for half in range(2):
            own = slice((half + n) % 2, None, 2)
            sums[half] += h[own] @ centred[own]
            total[half] += h[own].sum()
        scaled = centred * h[:, None]
        squares += scaled.T @ scaled
        lines += h @ scaled
        square_total += float(h @ h)
        n += len(rows)
    whole = total.sum()
    mean = sums.sum(axis=0) / whole
    # Sum of h^2 (u - mean)(u - mean)', times n over the square of the sum of h.
    crossed = np.outer(lines, mean)
    spread = squares - crossed - crossed.T + square_total * np.outer(mean, mean)
    halves = sums / np.maximum(total, 1e-300)[:, None]
    if n < 2:
        halves = np.broadcast_to(mean, halves.shape)
    return Moments(n, origin + mean, origin + halves, spread * (n / whole**2))
