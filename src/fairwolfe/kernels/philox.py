"""Uniform numbers by the number of a decision: Philox 4x64, as NumPy's, for many decisions at once.

A counter-based generator is a function of (key, counter): decision n draws the same numbers
whatever was drawn before, in whatever process. `core.streams.Numbered` draws the same through
NumPy, for rules that need other laws than the uniform one.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.streams import Numbered
from fairwolfe.kernels.compile import kernel

__all__ = ["uniforms", "uniforms_by_number"]

_ROUNDS = 10
_BLOCK = 4  # numbers of one counter
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_MULTIPLIERS = (np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157))
_WEYL = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B))
_AHEAD = 64  # decisions that are drawn for at once, since a call costs as much as these
_SHIFT, _UNIT = np.uint64(11), 2.0**-53


@kernel
def _high_product(a: Any, b: Any) -> Any:
    """The upper 64 bits of a b."""
    a_low, a_high, b_low, b_high = a & _LOW, a >> _HALF, b & _LOW, b >> _HALF
    first = a_low * b_low
    middle = a_high * b_low + (first >> _HALF)
    other = a_low * b_high + (middle & _LOW)
    return a_high * b_high + (middle >> _HALF) + (other >> _HALF)


@kernel(signature="void(int64, int64, int64, float64[:, ::1])")
def uniforms_by_number(key: int, other_key: int, first: int, out: Matrix) -> None:
    """Row i: numbers in [0, 1) of decision first + i. out (decisions, numbers of each).

    The keys are signed, since that is what an integer of Python is to numba.
    """
    for i in range(out.shape[0]):
        for start in range(0, out.shape[1], _BLOCK):
            a, b = np.uint64(start // _BLOCK + 1), np.uint64(first) + np.uint64(i)
            c, d = np.uint64(0), np.uint64(0)
            k, o = np.uint64(key), np.uint64(other_key)
            for _ in range(_ROUNDS):
                p, q = _high_product(_MULTIPLIERS[0], a), _high_product(_MULTIPLIERS[1], c)
                low_p, low_q = _MULTIPLIERS[0] * a, _MULTIPLIERS[1] * c
                a, b, c, d = q ^ b ^ k, low_q, p ^ d ^ o, low_p
                k, o = k + _WEYL[0], o + _WEYL[1]
            block = (a, b, c, d)
            for j in range(min(_BLOCK, out.shape[1] - start)):
                out[i, start + j] = np.float64(block[j] >> _SHIFT) * _UNIT


def uniforms(draws: Numbered, rows: int, width: int) -> Matrix:
    """What the next `rows` decisions draw, `width` numbers each."""
    first, known = draws.ahead
    start = draws.number - first
    if not (known.shape[1] == width and 0 <= start <= len(known) - rows):
        first, start, known = draws.number, 0, np.empty((max(rows, _AHEAD), width))
        if width:
            uniforms_by_number.call(*draws.signed, first, known)
        draws.ahead = first, known
    return known[start : start + rows]
