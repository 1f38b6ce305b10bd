"""Rewards by name and range: what is missing, unknown, not a number, or far out of range."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import is_list, is_real
from fairwolfe.errors import InvalidInput, did_you_mean

__all__ = ["Rewards", "finite_number", "random_rows"]

_WILD = 1e6  # times its range: a reward that raises an error


class Rewards(NamedTuple):
    """Names (n,) and ranges low (n,), high (n,) of rewards, and the sentences about them."""

    names: tuple[str, ...]
    low: Vector
    high: Vector

    def by_name(self, given: Mapping[str, Any], missing: float | None = None) -> list[Any]:
        """The values of a mapping by name, in order, as `in_order` takes them."""
        values = [given.get(name) for name in self.names]
        if len(given) == len(values) and not any(value is None for value in values):
            return values
        self.refuse_unknown(given)
        filled: list[Any] = self.in_order(values, missing)
        return filled

    def in_order(self, given: Any, missing: float | None = None) -> Any:
        """Values in order, of which none is None: `missing` instead, if that is a number. None
        itself is only for missing values.
        """
        if given is None:
            given = [None] * len(self.names)
        plain = isinstance(given, (list, tuple)) or (
            isinstance(given, np.ndarray) and given.dtype == object and given.ndim == 1
        )
        if not plain or not any(value is None for value in given):
            return given
        if missing is not None:
            return [missing if value is None else value for value in given]
        if len(given) == len(self.names):
            self.refuse_missing(
                name for name, value in zip(self.names, given, strict=True) if value is None
            )
        return given

    def refuse_missing(self, lacking: Iterable[str], how: str = "") -> NoReturn:
        """Raise InvalidInput for missing rewards."""
        raise InvalidInput(
            f"the reward lacks {', '.join(lacking)}; give all of {', '.join(self.names)}{how}, or "
            "missing=0. to count 0 where none was given"
        )

    def refuse_unknown(self, given: Iterable[str]) -> None:
        """Raise InvalidInput for the first name that is not a reward's."""
        for name in given:
            if name not in self.names:
                raise InvalidInput(
                    f"there is no reward {name!r:.80}; {did_you_mean(name, self.names)}"
                )

    def refuse_bad(self, given: Any) -> None:
        """Raise InvalidInput for the first reward that is not a finite number."""
        values = list(given) if is_list(given) else []
        if len(values) == len(self.names):
            for name, value in zip(self.names, values, strict=True):
                finite_number(f"the reward {name!r}", value)

    def outside(self, rows: Matrix) -> str:
        """The first reward that is out of range, in words; rows (k, n).

        One so far out of range that it would drown all others is a mistake: InvalidInput.
        """
        most = _WILD * np.maximum(np.maximum(abs(self.low), abs(self.high)), self.high - self.low)
        for row in rows:
            for place, (name, value) in enumerate(zip(self.names, row, strict=True)):
                if abs(value) > most[place]:
                    raise InvalidInput(
                        f"the reward {name!r} is {value:g}; the problem states {self.low[place]:g} "
                        f"to {self.high[place]:g}, and beyond {most[place]:g} nothing can be "
                        "learnt: give the right number, or the problem another range"
                    )
        far = ((rows < self.low) | (rows > self.high)) & (rows != 0.0)
        if not far.any():  # 0 of what was not exposed is in no range
            far = (rows < self.low) | (rows > self.high)
        row, place = np.argwhere(far)[0].tolist()
        return (
            f"the reward {self.names[place]!r} is {rows[row, place]:g}; the problem states "
            f"{self.low[place]:g} to {self.high[place]:g}"
        )


def finite_number(what: str, value: Any) -> float:
    """A finite number, or an error that shows what is given."""
    try:
        number = float(value) if is_real(value) else math.nan
    except OverflowError:  # a whole number of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        shown = value.item() if isinstance(value, np.generic) else value
        raise InvalidInput(f"{what} is {shown!r:.80}; give a finite number")
    return number


def random_rows(rng: np.random.Generator, rows: int, d: int, norm: float) -> Matrix:
    """Features (rows, d), each row of this norm."""
    x = rng.normal(size=(rows, d))
    scaled: Matrix = x * (norm / np.linalg.norm(x, axis=1, keepdims=True))
    return scaled
