"""Arrays by the number of their axes, so that one cannot be passed for another."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

_FLOAT = np.dtype(np.float64)
_LINE = 64  # bytes that a processor moves at once

Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Matrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Cube: TypeAlias = np.ndarray[tuple[int, int, int], np.dtype[np.float64]]
IntVector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
IntMatrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.int64]]
IntCube: TypeAlias = np.ndarray[tuple[int, int, int], np.dtype[np.int64]]
Action: TypeAlias = int | IntVector


def for_kernels(values: Any) -> Any:
    """An array as kernels take it: of floats, in one piece, and its own; itself where it is that.

    >>> for_kernels(np.arange(6).reshape(2, 3).T)[0]
    array([0., 3.])
    """
    if values.dtype == _FLOAT and values.flags.carray:
        return values
    return np.require(values, np.float64, ["C", "W"])


def aligned(values: Any) -> Any:
    """A copy, of floats, that begins where a cache line does: loads from it never touch two lines
    where one would do.

    >>> copy = aligned(np.eye(3))
    >>> copy.ctypes.data % 64, copy.tolist() == np.eye(3).tolist()
    (0, True)
    """
    values = np.asarray(values, dtype=np.float64)
    room = np.empty(values.size + _LINE // 8)
    start = -room.ctypes.data % _LINE // 8
    copy = room[start : start + values.size].reshape(values.shape)
    copy[...] = values
    return copy
