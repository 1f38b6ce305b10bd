"""Means over seeds with their intervals."""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector

__all__ = ["bands", "interval"]


def interval(values: Vector) -> tuple[float, float, float]:
    """Mean and 95 % interval (Student's t) of a sample.

    >>> interval(np.array([1.0]))
    (1.0, 1.0, 1.0)
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, mean, mean
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def bands(values: Matrix) -> Matrix:
    """The mean over rows and its interval, three numbers for each column: (columns, 3)."""
    return np.array([interval(column) for column in values.T]).reshape(-1, 3)
