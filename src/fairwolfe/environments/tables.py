"""Arrays as values: what the fields of an environment hold when a user gives numbers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fairwolfe.errors import InvalidInput

__all__ = ["Table"]

Array = np.ndarray[Any, np.dtype[np.float64]]


class Table:
    """An array that never changes: compared by its numbers, hashed, printed as nested lists.

    >>> Table("theta", [[1, 0], [0, 1]], ("rewards", "features"))
    [[1.0, 0.0], [0.0, 1.0]]
    """

    __slots__ = ("_array",)

    def __init__(self, name: str, values: Any, axes: tuple[str, ...]) -> None:
        wanted = f"({', '.join(axes)})"
        try:
            array = np.array(values, dtype=np.float64, order="C")
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"{name} is not an array of shape {wanted}: {error}; give rows of equal length"
            ) from error
        if array.ndim != len(axes) or array.size == 0:
            raise InvalidInput(
                f"{name} has shape {array.shape}; give {wanted}, at least one of each"
            )
        if not np.isfinite(array).all():
            raise InvalidInput(f"{name} has a number that is not finite; give finite numbers only")
        array += 0.0  # -0.0 equals 0.0, so it must have the same hash
        array.flags.writeable = False
        self._array = array

    @property
    def array(self) -> Array:
        """A copy that may be written to."""
        return self._array.copy()

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return self._array.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._array)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Table):
            return bool(np.array_equal(self._array, other._array))
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.shape, self._array.tobytes()))

    def __repr__(self) -> str:
        return repr(self._array.tolist())

    def __reduce__(self) -> Any:
        return Table, ("table", self._array, ("",) * self._array.ndim)
