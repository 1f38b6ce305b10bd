"""Products with a sparse matrix that is given by rows: where each begins, columns, values."""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.kernels.compile import kernel

__all__ = ["times", "turned_times"]


@kernel
def times(begins: Vector, columns: Vector, values: Vector, z: Vector, out: Vector) -> None:
    """out = M z. begins (rows + 1,), columns, values (entries,), z (n,), out (rows,)."""
    for r in range(out.size):
        total = 0.0
        for k in range(np.int64(begins[r]), np.int64(begins[r + 1])):
            total += values[k] * z[np.int64(columns[k])]
        out[r] = total


@kernel
def turned_times(begins: Vector, columns: Vector, values: Vector, x: Vector, out: Vector) -> None:
    """out = M' x. begins (rows + 1,), columns, values (entries,), x (rows,), out (n,)."""
    for i in range(out.size):
        out[i] = 0.0
    for r in range(x.size):
        for k in range(np.int64(begins[r]), np.int64(begins[r + 1])):
            out[np.int64(columns[k])] += values[k] * x[r]
