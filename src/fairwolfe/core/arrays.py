"""Arrays by the number of their axes, so that one cannot be passed for another."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

__all__ = ["Action", "Cube", "IntCube", "IntMatrix", "IntVector", "Matrix", "Vector"]

Vector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.float64]]
Matrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.float64]]
Cube: TypeAlias = np.ndarray[tuple[int, int, int], np.dtype[np.float64]]
IntVector: TypeAlias = np.ndarray[tuple[int], np.dtype[np.int64]]
IntMatrix: TypeAlias = np.ndarray[tuple[int, int], np.dtype[np.int64]]
IntCube: TypeAlias = np.ndarray[tuple[int, int, int], np.dtype[np.int64]]
Action: TypeAlias = int | IntVector
