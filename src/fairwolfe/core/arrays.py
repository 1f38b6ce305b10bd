"""Arrays by the number of their axes, so that one cannot be passed for another."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Action", "Cube", "IntMatrix", "IntVector", "Matrix", "Vector"]

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]
Cube: TypeAlias = NDArray[np.float64]
IntVector: TypeAlias = NDArray[np.int64]
IntMatrix: TypeAlias = NDArray[np.int64]
Action: TypeAlias = int | IntVector
