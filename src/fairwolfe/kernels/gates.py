# cython: language_level=3, infer_types=True
"""Whether what is given stays within what a problem declares: asked at every step."""

from __future__ import annotations

import cython
from cython.cimports.fairwolfe.kernels.ranks import UNTIL_LAST_CLICK, count_exposed, largest_column
from cython.cimports.fairwolfe.kernels.ridge import largest_square_norm as _largest_square_norm
from cython.cimports.fairwolfe.kernels.types import (
    IntMatrix,
    Matrix,
    Real,
    Rows,
    Size,
    Tensor,
    Vector,
)
from cython.cimports.libc.math import isfinite
from cython.cimports.libc.stdint import int64_t
from cython.cimports.libc.stdlib import free, malloc

__all__ = [
    "INSIDE",
    "NOT_FINITE",
    "OUTSIDE",
    "any_outside",
    "contradiction",
    "largest_square_norm",
    "largest_square_product",
    "place_in_box",
]

INSIDE, OUTSIDE, NOT_FINITE = 0, 1, 2


def largest_square_norm(rows: Matrix) -> float:
    """max_a |x_a|^2 of rows x_a (n, d); it is not finite if one of the numbers is not. O(n d)."""
    largest: Real = 0.0
    if rows.shape[0] and rows.shape[1]:
        with cython.nogil:
            largest = _largest_square_norm(cython.address(rows[0, 0]), rows.shape[0], rows.shape[1])
    return largest


def largest_square_product(user: Vector, items: Rows) -> float:
    """max_i |user (x) item_i|^2 = |user|^2 max_i |item_i|^2. user (p,), items (q, n) as columns.

    O(p + q n).
    """
    largest: Real = 0.0
    square: Real = 0.0
    stride: Size = items.strides[0] // 8
    if items.shape[0] and items.shape[1]:
        if items.shape[1] > 1 and items.strides[1] != 8:
            raise ValueError("items (q, n) are not in one piece")
        with cython.nogil:
            largest = largest_column(
                cython.address(items[0, 0]), stride, items.shape[0], items.shape[1]
            )
    for a in range(user.shape[0]):
        square += user[a] * user[a]
    return largest * square


def place_in_box(point: Vector, low: Vector, high: Vector) -> int:
    """Whether low <= point <= high: INSIDE, OUTSIDE, or NOT_FINITE. point, low, high (n,)."""
    n: Size = point.shape[0]
    outside: cython.bint = False
    if low.shape[0] != n or high.shape[0] != n:
        raise ValueError(f"{n} numbers, and bounds of {low.shape[0]} and {high.shape[0]}")
    for i in range(n):
        if not isfinite(point[i]):
            return 2
        if point[i] < low[i] or point[i] > high[i]:
            outside = True
    return 1 if outside else 0


def any_outside(rows: Matrix, low: Vector, high: Vector) -> bool:
    """Whether a number of a row is outside [low, high]; 0, of what was not exposed, never is.

    rows (n, R), low, high (R,).
    """
    if low.shape[0] != rows.shape[1] or high.shape[0] != rows.shape[1]:
        raise ValueError(
            f"rows of {rows.shape[1]} numbers, and bounds of {low.shape[0]} and {high.shape[0]}"
        )
    for j in range(rows.shape[0]):
        for i in range(rows.shape[1]):
            value = rows[j, i]
            if value != 0.0 and (value < low[i] or value > high[i]):
                return True
    return False


def contradiction(
    exposure: int64_t, items: IntMatrix, exposed: Matrix, rewards: Tensor, n: Size
) -> int:
    """The first ranking whose feedback contradicts itself (see `ranks.count_exposures`), else -1.

    items, exposed (rankings, k), rewards (rankings, k, R); n = m + R.
    """
    rankings: Size = items.shape[0]
    k: Size = items.shape[1]
    n_rewards: Size = rewards.shape[2]
    found: Size = -1
    if not (
        exposed.shape[0] == rankings == rewards.shape[0]
        and exposed.shape[1] == k == rewards.shape[1]
        and k > 0
        and 0 < n_rewards <= n
        and 0 <= exposure <= UNTIL_LAST_CLICK
    ):
        raise ValueError("the arrays of the feedback have other shapes")
    if rankings == 0:
        return -1
    scratch = cython.cast(cython.p_double, malloc((k + n) * cython.sizeof(cython.double)))
    if scratch == cython.NULL:
        raise MemoryError
    with cython.nogil:
        for s in range(n):
            scratch[k + s] = 0.0
        for s in range(rankings):
            if count_exposed(
                exposure,
                cython.address(items[s, 0]),
                cython.address(exposed[s, 0]),
                cython.address(rewards[s, 0, 0]),
                k,
                n_rewards,
                0,
                n_rewards,
                n,
                scratch,
                scratch + k,
            ):
                found = s
                break
    free(scratch)
    return found
