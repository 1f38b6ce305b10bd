"""Whether what is given stays within what a problem declares: asked at every step, so compiled."""

from __future__ import annotations

import math

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.problem import Problem
from fairwolfe.kernels.compile import kernel

__all__ = ["largest_square_norm", "row_limit"]

_TIMES = 1000.0


def row_limit(problem: Problem, ridge: float) -> float:
    """The largest norm of a row of features that is accepted: 1,000 max(feature_norm, sqrt(ridge)).

    A row of norm r beside others of norm 1 gives the design a condition number of r^2/ridge, and
    costs twice as many digits as r has: what is this far beyond the problem is a mistake.
    """
    return _TIMES * max(problem.feature_norm, math.sqrt(ridge))


@kernel(signature="float64(float64[:, ::1])")
def largest_square_norm(rows: Matrix) -> float:
    """max_a |x_a|^2; it is not finite if one of the numbers is not."""
    largest = 0.0
    for a in range(rows.shape[0]):
        total = 0.0
        for j in range(rows.shape[1]):
            total += rows[a, j] * rows[a, j]
        if total > largest or np.isnan(total):  # no number is larger than a NaN
            largest = total
    return largest
