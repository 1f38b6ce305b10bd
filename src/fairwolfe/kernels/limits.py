"""Whether what is given stays within what a problem declares: asked at every step, so compiled."""

from __future__ import annotations

import math

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.kernels.compile import kernel

__all__ = [
    "INSIDE",
    "NOT_FINITE",
    "OUTSIDE",
    "any_outside",
    "largest_square_norm",
    "largest_square_product",
    "place_in_box",
    "row_limit",
]

INSIDE, OUTSIDE, NOT_FINITE = 0, 1, 2

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


@kernel(signature="float64(float64[::1], float64[:, ::1])")
def largest_square_product(user: Vector, items: Matrix) -> float:
    """max_i |user (x) item_i|^2, items as columns."""
    squares = np.empty(items.shape[1])
    for i in range(squares.size):
        squares[i] = 0.0
    for j in range(items.shape[0]):
        for i in range(squares.size):
            squares[i] += items[j, i] * items[j, i]
    largest, square = 0.0, 0.0
    for i in range(squares.size):
        largest = max(largest, squares[i])
    for a in range(user.size):
        square += user[a] * user[a]
    return largest * square


@kernel(signature="int64(float64[::1], float64[::1], float64[::1])")
def place_in_box(point: Vector, low: Vector, high: Vector) -> int:
    """Whether low <= point <= high: INSIDE, OUTSIDE, or NOT_FINITE. point, low, high (n,)."""
    place = np.int64(INSIDE)
    for i in range(point.size):
        if not np.isfinite(point[i]):
            return NOT_FINITE
        if point[i] < low[i] or point[i] > high[i]:
            place = np.int64(OUTSIDE)
    return int(place)


@kernel(signature="boolean(float64[:, ::1], float64[::1], float64[::1])")
def any_outside(rows: Matrix, low: Vector, high: Vector) -> bool:
    """Whether a number of a row is outside [low, high]; 0, of what was not exposed, never is."""
    for j in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            value = rows[j, i]
            if value != 0.0 and (value < low[i] or value > high[i]):
                return True
    return False
