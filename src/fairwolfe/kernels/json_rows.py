"""Rows of numbers from JSON text, straight into an array: no object is made for each number."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.kernels.compile import fma, kernel

__all__ = ["read_rows", "rows_of"]

_OPEN, _CLOSE, _COMMA, _MINUS, _PLUS, _POINT, _ZERO = map(ord, "[],-+.0")
_SPACES = tuple(map(ord, " \t\n\r"))
_E, _e = map(ord, "Ee")
_DIGITS = 19  # of a whole number that fits into 64 bits
_POWERS = 22  # 10^22 is the largest power of ten that a float is exactly
_EXACT = 2**53  # up to here whole numbers are floats
_MOST = 2**63 - 1024  # up to here their nearest floats are below 2^63
_FAR = 1000  # an exponent that is not read here
_UNSURE = 1e-9


def rows_of(text: bytes) -> Matrix | None:
    """The matrix that a JSON list of lists of numbers holds, exactly as Python reads it.

    None where it is anything else, or has a number that this cannot read for sure: more than 19
    digits, or a power of ten beyond 22. A general reader finds which.

    >>> rows_of(b"[[1, 2.5e-3], [-4, 0]]")
    array([[ 1.0e+00,  2.5e-03],
           [-4.0e+00,  0.0e+00]])
    >>> rows_of(b'[[1, "2"]]') is None
    True
    """
    out, shape = np.empty(len(text) // 2), np.empty(2, dtype=np.int64)
    if not read_rows.call(np.frombuffer(bytearray(text), np.uint8), _TENS, out, shape):
        return None
    rows, columns = shape.tolist()
    return out[: rows * columns].copy().reshape(rows, columns)


_TENS = np.array([10.0**power for power in range(_POWERS + 1)])


@kernel(signature="boolean(uint8[::1], float64[::1], float64[::1], int64[::1])")
def read_rows(text: NDArray[np.uint8], tens: Vector, out: Vector, shape: IntVector) -> bool:
    """Whether the text is rows of numbers, all of one length: these, and the shape.

    text (bytes,), tens (23,): the powers of ten; out: as many numbers as the text can hold, shape
    (2,).
    """
    size, at, count, rows, columns = text.size, 0, 0, 0, 0
    at = _skip(text, at)
    if at >= size or text[at] != _OPEN:
        return False
    while True:
        at = _skip(text, at + 1)
        if at >= size or text[at] != _OPEN:
            return False
        first = count
        while True:
            at = _skip(text, at + 1)
            at = _number(text, at, tens, out, count)
            if at < 0:
                return False
            count += 1
            at = _skip(text, at)
            if at >= size or text[at] != _COMMA:
                break
        if at >= size or text[at] != _CLOSE:
            return False
        if rows == 0:
            columns = count
        if count - first != columns:
            return False
        rows += 1
        at = _skip(text, at + 1)
        if at >= size or text[at] != _COMMA:
            break
    if at >= size or text[at] != _CLOSE or _skip(text, at + 1) != size:
        return False
    shape[0], shape[1] = rows, columns
    return True


@kernel
def _skip(text: NDArray[np.uint8], at: int) -> int:
    """The place of the next byte that is not a space."""
    while at < text.size and (text[at] in _SPACES):
        at += 1
    return at


@kernel
def _number(text: NDArray[np.uint8], at: int, tens: Vector, out: Vector, place: int) -> int:
    """Read a number into `out`: the place after it, -1 where it is not one that is read here.

    text (bytes,), tens (23,), out (n,).
    """
    size = text.size
    negative = at < size and text[at] == _MINUS
    at += negative
    whole, power, start = np.uint64(0), 0, at
    while at < size and 0 <= np.int64(text[at]) - _ZERO <= 9:
        whole = whole * np.uint64(10) + np.uint64(np.int64(text[at]) - _ZERO)
        at += 1
    if at == start or (at > start + 1 and text[start] == _ZERO):
        return -1
    if at < size and text[at] == _POINT:
        at += 1
        point = at
        while at < size and 0 <= np.int64(text[at]) - _ZERO <= 9:
            whole = whole * np.uint64(10) + np.uint64(np.int64(text[at]) - _ZERO)
            at += 1
        if at == point:
            return -1
        power = point - at
    if at - start > _DIGITS:  # with a point and zeros before the first digit that counts
        digits, zeros = at - start - (power < 0), 0
        while zeros < digits and (text[start] == _ZERO or text[start] == _POINT):
            zeros += text[start] == _ZERO
            start += 1
        if digits - zeros > _DIGITS:
            return -1
    if at < size and (text[at] == _e or text[at] == _E):
        at += 1
        below = at < size and text[at] == _MINUS
        at += at < size and (text[at] == _MINUS or text[at] == _PLUS)
        start, exponent = at, np.int64(0)
        while at < size and 0 <= np.int64(text[at]) - _ZERO <= 9:
            if exponent < _FAR:
                exponent = 10 * exponent + np.int64(text[at]) - _ZERO
            at += 1
        if at == start or exponent >= _FAR:
            return -1
        power += -int(exponent) if below else int(exponent)
    if (whole == 0 and negative) or whole > _MOST or abs(power) > _POWERS:
        return -1  # -0 is a float, and 0 a whole number
    # The nearest float to whole, and what is left of it: less than 2^11, so a float exactly.
    high, ten = np.float64(whole), tens[abs(power)]
    value = high * ten if power >= 0 else high / ten
    if whole > _EXACT:
        low = np.float64(np.int64(whole) - np.int64(high))
        if power >= 0:
            rest = fma(high, ten, -value) + low * ten
        else:
            rest = (fma(-value, ten, high) + low) / ten
        # value + rest is the number except a part in 10^30: rounded once, unless about halfway.
        if value + rest * (1.0 - _UNSURE) != value + rest * (1.0 + _UNSURE):
            return -1
        value += rest
    out[place] = -value if negative else value
    return at
