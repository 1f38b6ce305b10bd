"""`Frame`: the arrays of a state as one argument of a kernel.

An array that Python passes to a kernel costs a tenth of a microsecond, and code that has to be
fetched again at every call. What a kernel decides and learns with are thirty arrays that stay where
they are as long as a state lives: a frame holds their addresses and shapes, and keeps them alive.

Places of the arrays that the reduction has in a frame; those of the base follow from BASE on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.kernels.compile import cube_at, data_of, integers_at, kernel, matrix_at, vector_at

__all__ = [
    "Frame",
    "address",
    "copied",
    "cube",
    "integers",
    "layer",
    "matrix",
    "part",
    "row",
    "vector",
]

F_PARAMS, TOTALS, EARNED, CLOCKS, RUNNING, COUNTERS = 0, 1, 2, 3, 4, 5
WAITING, RANGES, SEEN, NOW, SLOPE, SUMS, NUMBERS = 6, 7, 8, 9, 10, 11, 12
PRICES, MOVING, SPARE = 13, 14, 15
BASE = 16
"""F_PARAMS: of the gradient of f. TOTALS, EARNED, CLOCKS, RUNNING (n,), COUNTERS, WAITING: of the
state. RANGES (2, n): of the rewards. SEEN: the coordinates that f sees, none where it sees all.
NOW, SLOPE, SUMS: the window of live numbers. NUMBERS: see below. PRICES: of leaves of f; MOVING,
SPARE: params and scratch of what moves them."""

OWN = frozenset({F_PARAMS, MOVING, SPARE})
"""Arrays that belong to one state and are not to be copied to another: they hold addresses."""

GRADIENT, FORGET, CORRECTS, AIMING, SAMPLING, SETTLING, REPRICING = range(7)
"""Places in NUMBERS: the address of the gradient of f; what averages forget; whether estimates are
corrected as they were made; addresses: of `aim`, 0 where the direction is given, as RUNNING; of
`sample`, 0 where smoothing does not draw; of `settle`; of what moves prices, 0 without any."""

_NUMBER = 8  # bytes
_WORDS = 4  # of an array: its address and up to three sizes


class Frame:
    """Addresses and shapes of arrays, by their place."""

    __slots__ = ("arrays", "words")

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = tuple(arrays)  # kept alive
        self.words: IntVector = np.zeros(_WORDS * len(arrays), dtype=np.int64)
        for place, array in enumerate(self.arrays):
            if not array.flags.carray or array.dtype not in (np.float64, np.int64):
                raise TypeError(f"array {place} of a frame is {array.dtype}, {array.flags}")
            row = self.words[_WORDS * place : _WORDS * (place + 1)]
            row[0] = array.ctypes.data
            row[1 : 1 + array.ndim] = array.shape


@kernel(constants=False)
def vector(words: IntVector, place: int) -> Vector:
    """A vector of a frame."""
    out: Vector = vector_at(words[_WORDS * place], words[_WORDS * place + 1])
    return out


@kernel(constants=False)
def integers(words: IntVector, place: int) -> IntVector:
    """A vector of whole numbers of a frame."""
    out: IntVector = integers_at(words[_WORDS * place], words[_WORDS * place + 1])
    return out


@kernel(constants=False)
def address(numbers: Vector, place: int) -> int:
    """An address that is kept among numbers."""
    return int(numbers[place])


@kernel(constants=False)
def matrix(words: IntVector, place: int) -> Matrix:
    """A matrix of a frame."""
    start = _WORDS * place
    out: Matrix = matrix_at(words[start], words[start + 1], words[start + 2])
    return out


@kernel(constants=False)
def row(room: Matrix, i: int, n: int) -> Vector:
    """The first n numbers of a row: an index or a slice takes the compiler ten times as long."""
    out: Vector = vector_at(data_of(room) + _NUMBER * i * room.shape[1], n)
    return out


@kernel(constants=False)
def layer(cube: Cube, i: int) -> Matrix:
    """One of the matrices of a cube."""
    rows, columns = cube.shape[1], cube.shape[2]
    out: Matrix = matrix_at(data_of(cube) + _NUMBER * i * rows * columns, rows, columns)
    return out


@kernel(constants=False)
def part(values: Vector, start: int, n: int) -> Vector:
    """n numbers of a vector, from `start` on. values (start + n or more,)."""
    out: Vector = vector_at(data_of(values) + _NUMBER * start, n)
    return out


@kernel
def copied(values: Vector) -> Vector:
    """A vector with the same numbers."""
    out = np.empty(values.size)
    for i in range(values.size):
        out[i] = values[i]
    return out


@kernel(constants=False)
def cube(words: IntVector, place: int) -> Cube:
    """An array of a frame that has three axes."""
    start = _WORDS * place
    out: Cube = cube_at(words[start], words[start + 1], words[start + 2], words[start + 3])
    return out
