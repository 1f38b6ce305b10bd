# cython: language_level=3, infer_types=True
"""Rows of numbers from JSON text, straight into an array: no object is made for each number."""

from __future__ import annotations

import cython
import numpy as np

from fairwolfe.core.arrays import Matrix

__all__ = ["rows_of"]


def rows_of(text: bytes | bytearray | memoryview) -> Matrix | None:
    """The matrix that a JSON list of lists of numbers holds, exactly as Python reads it.

    text: bytes, or any contiguous buffer of them, which is only read. None where it is anything
    else, or has a number that this cannot read for sure: more than 19 digits, or a power of ten
    beyond 22. A general reader finds which. One pass over the text.

    >>> rows_of(b"[[1, 2.5e-3], [-4, 0]]")
    array([[ 1.0e+00,  2.5e-03],
           [-4.0e+00,  0.0e+00]])
    >>> rows_of(b'[[1, "2"]]') is None
    True
    """
    given: cython.const[cython.uchar][::1] = text  # type: ignore[valid-type]
    size: Size = given.shape[0]
    if size < 5:  # [[0]]
        return None
    # Each number has at least one digit and one byte after it or before it.
    numbers = np.empty(size // 2)
    out: OutVector = numbers
    rows: Size = 0
    columns: Size = 0
    with cython.nogil:
        read = _read_rows(
            cython.address(given[0]),
            size,
            cython.address(out[0]),
            cython.address(rows),
            cython.address(columns),
        )
    if not read:
        return None
    matrix: Matrix = numbers[: rows * columns].copy().reshape(rows, columns)
    return matrix


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _read_rows(
    text: Text,
    size: Size,
    out: Out,
    rows: cython.pointer(Size),  # type: ignore[valid-type]
    columns: cython.pointer(Size),  # type: ignore[valid-type]
) -> cython.bint:
    """Whether the text is rows of numbers, all of one length: these, and the shape.

    text (size,), out (size // 2,): n numbers take at least 2 n bytes, whatever they are, since
    every number read moves on by a byte and so does what stands before the next one; and two
    brackets stand before the first. No byte at `size` or beyond is read.
    """
    count: Size = 0
    at: Size = _skip_spaces(text, size, 0)
    rows[0] = columns[0] = 0
    if at >= size or text[at] != b"[":
        return False
    while True:
        at = _skip_spaces(text, size, at + 1)
        if at >= size or text[at] != b"[":
            return False
        first = count
        while True:
            at = _skip_spaces(text, size, at + 1)
            at = _read_number(text, size, at, out + count)
            if at < 0:
                return False
            count += 1
            at = _skip_spaces(text, size, at)
            if at >= size or text[at] != b",":
                break
        if at >= size or text[at] != b"]":
            return False
        if rows[0] == 0:
            columns[0] = count
        if count - first != columns[0]:
            return False
        rows[0] += 1
        at = _skip_spaces(text, size, at + 1)
        if at >= size or text[at] != b",":
            break
    return at < size and text[at] == b"]" and _skip_spaces(text, size, at + 1) == size


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _skip_spaces(text: Text, size: Size, at: Size) -> Size:
    """The place of the next byte that is not a space, a tab or the end of a line; or `size`."""
    while at < size and (
        text[at] == b" " or text[at] == b"\t" or text[at] == b"\n" or text[at] == b"\r"
    ):
        at += 1
    return at


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _is_digit(text: Text, size: Size, at: Size) -> cython.bint:
    """Whether there is a digit at a place."""
    return at < size and text[at] >= b"0" and text[at] <= b"9"


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _read_number(text: Text, size: Size, at: Size, out: Out) -> Size:
    """Read a number into out[0]: the place after it, -1 where it is not one that is read here.

    The number is whole * 10^power. Where whole is at most 2^53 and |power| at most 22, both are
    doubles, and one product or quotient of them is rounded once, as `float` rounds. Where whole is
    larger, it is high + low, and the rest of the product or quotient is found with `fma`.
    """
    negative: cython.bint = at < size and text[at] == b"-"
    one: uint64_t = 1
    whole: uint64_t = 0
    power: Size = 0
    if negative:
        at += 1
    start = at
    while _is_digit(text, size, at):
        whole = whole * 10 + (text[at] - 48)  # beyond 19 digits it wraps, and is not used
        at += 1
    if at == start or (at > start + 1 and text[start] == b"0"):
        return -1
    if at < size and text[at] == b".":
        at += 1
        point = at
        while _is_digit(text, size, at):
            whole = whole * 10 + (text[at] - 48)
            at += 1
        if at == point:
            return -1
        power = point - at
    if at - start > MOST_DIGITS:  # with a point and zeros before the first digit that counts
        digits = at - start - (1 if power < 0 else 0)
        zeros = 0
        while start < at and (text[start] == b"0" or text[start] == b"."):
            if text[start] == b"0":
                zeros += 1
            start += 1
        if digits - zeros > MOST_DIGITS:
            return -1
    if at < size and (text[at] == b"e" or text[at] == b"E"):
        at += 1
        below: cython.bint = at < size and text[at] == b"-"
        if at < size and (text[at] == b"-" or text[at] == b"+"):
            at += 1
        start = at
        exponent = 0
        while _is_digit(text, size, at):
            if exponent < MOST_EXPONENT:
                exponent = 10 * exponent + (text[at] - 48)
            at += 1
        if at == start or exponent >= MOST_EXPONENT:
            return -1
        power += -exponent if below else exponent
    # -0 is a float, and 0 a whole number. Up to 2^63 - 1024 the nearest doubles are below 2^63.
    if (whole == 0 and negative) or whole > (one << 63) - 1024:
        return -1
    places: Size = power if power >= 0 else -power
    if places > MOST_POWER:
        return -1
    ten: Real = TENS[places]
    # The nearest double to whole, and what is left of it: less than 2^11, so a double exactly.
    high: Real = cython.cast(Real, whole)
    value: Real = high * ten if power >= 0 else high / ten
    if whole > (one << 53):  # up to here whole numbers are doubles
        low = cython.cast(Real, cython.cast(int64_t, whole) - cython.cast(int64_t, high))
        if power >= 0:
            rest = fma(high, ten, -value) + low * ten
        else:
            rest = (fma(-value, ten, high) + low) / ten
        # value + rest is the number except a part in 10^30: rounded once, unless about halfway.
        if value + rest * (1.0 - 1e-9) != value + rest * (1.0 + 1e-9):
            return -1
        value += rest
    out[0] = -value if negative else value
    return at
