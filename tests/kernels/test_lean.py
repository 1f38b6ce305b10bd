"""Kernels mean what they say: the short code is that of Python, and other things work as well."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.kernels.compile import (
    address,
    cube_at,
    data_of,
    integers_at,
    kernel,
    matrix_at,
    vector_at,
)
from fairwolfe.kernels.frames import Frame, cube, integers, layer, matrix, part, row, vector

ENDS = [(0, 4), (2, 4), (-3, 2), (4, 4), (5, 1), (-1, -4)]


@kernel
def passed(start: int, stop: int, step: int, out: Vector) -> int:
    """What three kinds of range give; how many numbers."""
    count = np.int64(0)
    for i in range(stop):
        out[count] = i
        count += 1
    for i in range(start, stop):
        out[count] = i
        count += 1
    for i in range(start, stop, step):
        out[count] = i
        count += 1
    return int(count)


@pytest.mark.parametrize("step", [1, 3, -1, -2])
@pytest.mark.parametrize(("start", "stop"), ENDS)
def test_ranges(start: int, stop: int, step: int) -> None:
    out = np.full(60, np.nan)
    n = passed(start, stop, step, out)
    expected = [*range(stop), *range(start, stop), *range(start, stop, step)]
    assert out[:n].tolist() == expected


@kernel
def moved(x: Vector, y: Matrix, z: Cube, w: IntVector, i: int, j: int, k: int) -> None:
    """Numbers of arrays, from one to the other."""
    x[i] = y[i, j] + z[i, j, k] + w[k]
    y[j, i] += x[-1]
    z[k, -1, j] = w[0]
    w[k] = 7
    w[1] += np.int64(x[i] > 0.0)


@pytest.mark.parametrize("indices", [(0, 1, 2), (-1, -2, -3), (1, -1, 0)])
def test_indices_from_both_ends(indices: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(0)
    shapes = (3,), (3, 3), (3, 3, 3)
    given: list[Any] = [rng.normal(size=shape) for shape in shapes] + [np.arange(3)]
    expected: list[Any] = [array.copy() for array in given]
    moved.function(*(*expected, *indices))
    moved(*(*given, *indices))
    for one, other in zip(given, expected, strict=True):
        np.testing.assert_array_equal(one, other)


@kernel
def extremes(a: float, b: float, i: int, out: Vector) -> None:
    """max, min and int, of floats, whole numbers, constants and both."""
    out[0], out[1] = max(a, b), min(a, b)
    out[2], out[3] = max(i, 2), min(a, i)
    out[4], out[5] = int(a), int(i)
    out[6] = max(a, b, 1.0)


@pytest.mark.parametrize(("a", "b"), [(1.5, -2.5), (-1.7, 3.0), (0.0, -0.0), (2.0, np.nan)])
def test_extremes(a: float, b: float) -> None:
    mine, expected = np.zeros(7), np.zeros(7)
    extremes(a, b, 1, mine)
    extremes.function(a, b, 1, expected)
    if not np.isnan(b):
        np.testing.assert_array_equal(mine, expected)
    assert mine[4] == int(a)


@kernel
def sections(words: IntVector, out: Vector) -> None:
    """One number by each of the operations that make views."""
    whole = cube(words, 3)
    out[0] = vector(words, 0)[1]
    out[1] = matrix(words, 1)[1, 2]
    out[2] = integers(words, 2)[1]
    out[3] = layer(whole, 1)[0, 1]
    out[4] = row(matrix(words, 1), 1, 2)[1]
    out[5] = part(vector(words, 0), 2, 1)[0]
    out[6] = address(vector(words, 0), 2)
    out[7] = matrix_at(data_of(whole), 4, 3)[3, 2]
    out[8] = cube_at(data_of(whole), 1, 4, 3)[0, 3, 0]
    out[9] = vector_at(data_of(whole) + 8, 2)[1]
    out[10] = integers_at(data_of(integers(words, 2)), 2)[0]
    out[11] = part(vector(words, 0), 2, 1).size + layer(whole, 0).shape[1]


def test_views_of_a_frame() -> None:
    a, b, c = np.arange(3.0), 10.0 + np.arange(6.0).reshape(2, 3), np.array([21, 22])
    d = 30.0 + np.arange(12.0).reshape(2, 2, 3)
    out = np.zeros(12)
    sections(Frame([a, b, c, d]).words, out)
    assert out.tolist() == [1, 15, 22, 37, 14, 2, 2, 41, 39, 32, 21, 4]


@kernel
def doubled(x: Vector) -> Vector:
    """A new array, made by an expression of a whole array."""
    return 2.0 * x


@kernel
def itself(x: Vector) -> Vector:
    """What it was given."""
    return x


@kernel
def slices(x: Vector) -> float:
    """Views, copies and new arrays of other kernels, many times."""
    total = 0.0
    for _ in range(1000):
        y = itself(doubled(x)[1:])
        chosen = y[y > 2.0]
        total += y[0] + chosen[0] + x[1:][0]
    return total


def test_arrays_that_are_made_are_given_back() -> None:
    x = np.array([1.0, 2.0, 3.0])
    before = sys.getrefcount(x)
    assert slices(x) == 1000.0 * (4.0 + 4.0 + 2.0)
    assert doubled(x).tolist() == [2.0, 4.0, 6.0]
    assert itself(x) is not None
    assert sys.getrefcount(x) == before


@kernel
def by_closure(x: Vector) -> float:
    """What only numba's own passes can compile."""

    def square(value: float) -> float:
        return value * value

    return square(x[0]) + square(x[1])


def test_what_the_short_way_cannot_do() -> None:
    assert by_closure(np.array([1.0, 2.0])) == 5.0


@kernel
def refused(x: Vector) -> float:
    """Not compiled by any way."""
    return x.no_such_thing  # type: ignore[attr-defined, no-any-return]


def test_what_no_way_can_do_is_an_error_of_numba() -> None:
    from numba.core.errors import TypingError

    with pytest.raises(TypingError, match="no_such_thing"):
        refused(np.ones(2))
