"""What the smoothings share: a width that shrinks like 1/sqrt(t + 1), or a fixed one."""

from __future__ import annotations

import math

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.problem import real_number
from fairwolfe.errors import InvalidInput

__all__ = ["checked_horizon", "checked_width", "shrink", "shrunk"]


def shrink(width: float, t: int, horizon: int | None) -> float:
    """width / sqrt(t + 1) after t rewards; with a horizon, its last value all along."""
    if (type(t) is not int and not isinstance(t, np.integer)) or t < 0:
        raise InvalidInput(f"t is {t!r}; give the number of rewards averaged so far, 0 or more")
    return width / math.sqrt((t if horizon is None else horizon) + 1.0)


def shrunk(width: float, times: IntVector, horizon: int | None) -> Vector:
    """`shrink` at many times at once (a square root is exact to the last bit in both)."""
    fixed = times if horizon is None else np.full(times.size, horizon)
    widths: Vector = width / np.sqrt(fixed + 1.0)
    return widths


def checked_width(name: str, width: float | None) -> float | None:
    """None, or a positive finite number."""
    if width is None:
        return None
    number = real_number(name, width)
    if not (math.isfinite(number) and number > 0.0):
        raise InvalidInput(f"{name} is {width!r}; give a positive number, or None for the default")
    return number


def checked_horizon(horizon: int | None) -> int | None:
    """None, or a whole number of at least 1."""
    whole = isinstance(horizon, (int, np.integer)) and not isinstance(horizon, bool)
    if horizon is None or (whole and horizon >= 1):
        return None if horizon is None else int(horizon)
    raise InvalidInput(f"horizon is {horizon!r}; give a whole number of at least 1, or None")
