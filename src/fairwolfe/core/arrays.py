"""Arrays by the number of their axes, so that one cannot be passed for another."""

from __future__ import annotations

from collections.abc import Mapping
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


class Room:
    """The memory of arrays that grow: each array is the beginning of its memory, along the last
    axis, which is doubled when it is full. So n arrays that are longer by one cost O(1) on average.

    >>> room, short = Room(), np.array([1.0, 2.0])
    >>> longer = room.appended("name", short, np.array([3.0]))
    >>> longer.tolist(), room.appended("name", longer, np.array([4.0])).base is longer.base
    ([1.0, 2.0, 3.0], True)
    """

    def __init__(self, memory: Mapping[str, Any] | None = None) -> None:
        self._memory: dict[str, Any] = dict(memory or {})

    def copy(self) -> Room:
        """The same memory, to which another may be added."""
        return Room(self._memory)

    def resized(self, name: str, array: Any, size: int) -> Any:
        """The array with `size` columns, of which the new ones hold anything; it shares memory with
        the array where there is room.
        """
        memory: Any = self._memory.get(name)
        own = memory is not None and memory.ctypes.data == array.ctypes.data
        if not own or memory.shape[-1] < size:
            memory = np.empty((*array.shape[:-1], 2 * size), array.dtype)
            kept = min(array.shape[-1], size)
            memory[..., :kept] = array[..., :kept]
            self._memory[name] = memory
        return memory[..., :size]

    def appended(self, name: str, array: Any, new: Any) -> Any:
        """The array with new columns after its own."""
        size = array.shape[-1]
        longer = self.resized(name, array, size + new.shape[-1])
        longer[..., size:] = new
        return longer


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
