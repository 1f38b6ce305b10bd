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

from fairwolfe.core.arrays import IntVector
from fairwolfe.kernels.compile import (
    WORDS,
    address,
    cube,
    integers,
    layer,
    matrix,
    part,
    row,
    vector,
)

__all__ = [
    "Frame",
    "address",
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

GRADIENT, FORGET, CORRECTS, AIMING, SAMPLING, REPRICING = range(6)
"""Places in NUMBERS: the address of the gradient of f; what averages forget; whether estimates are
corrected as they were made; addresses: of `aim`, 0 where the direction is given, as RUNNING; of
`sample`, 0 where smoothing does not draw; of what moves prices, 0 without any."""


class Frame:
    """Addresses and shapes of arrays, by their place."""

    __slots__ = ("arrays", "words")

    def __init__(self, arrays: Sequence[Any]) -> None:
        self.arrays = tuple(arrays)  # kept alive
        self.words: IntVector = np.zeros(WORDS * len(arrays), dtype=np.int64)
        for place, array in enumerate(self.arrays):
            if not array.flags.carray or array.dtype not in (np.float64, np.int64):
                raise TypeError(f"array {place} of a frame is {array.dtype}, {array.flags}")
            row = self.words[WORDS * place : WORDS * (place + 1)]
            row[0] = array.ctypes.data
            row[1 : 1 + array.ndim] = array.shape
