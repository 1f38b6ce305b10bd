"""What is asked of a state that comes from a file: its size before it is allocated, its numbers
after it has been read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairwolfe.errors import IncompatibleState

__all__ = ["need", "require", "require_counts", "room"]

_ITEM = 8  # bytes of a float64
_MOST = 2.0**53  # above it, whole numbers are no longer counted by adding 1

_room: ContextVar[float] = ContextVar("room", default=math.inf)


@contextmanager
def room(n_bytes: int) -> Iterator[None]:
    """Within, `need` raises for arrays of more bytes: the file that is read cannot hold them."""
    before = _room.set(n_bytes)
    try:
        yield
    finally:
        _room.reset(before)


def need(*shape: int) -> None:
    """Asked before float64s of a shape that a problem or a setting decides are allocated.

    >>> need(10**6, 10**6)
    >>> with room(100):
    ...     need(3, 4)
    >>> with room(100):
    ...     need(3, 5)
    Traceback (most recent call last):
    ...
    fairwolfe.errors.IncompatibleState: the policy and problem make an array of shape (3, 5), \
and the state that was saved has 100 bytes in all: it belongs to others
    """
    if _ITEM * math.prod(shape) > _room.get():
        shown = f"shape {shape}" if max(shape) < _MOST else "an impossible shape"
        raise IncompatibleState(
            f"the policy and problem make an array of {shown}, and the state that was saved has "
            f"{_room.get()} bytes in all: it belongs to others"
        )


def require(name: str, array: NDArray[Any], right: Any, meaning: str) -> None:
    """Raise for an array of which some numbers are not right, and name the first of them.

    >>> require("clocks", np.array([1.0, -2.0]), np.array([True, False]), "clocks start at 0")
    Traceback (most recent call last):
    ...
    fairwolfe.errors.IncompatibleState: clocks holds -2.0 at [1]; clocks start at 0, so the state \
is damaged or forged
    """
    wrong = np.argwhere(~np.broadcast_to(right, array.shape))
    if len(wrong):
        place = wrong[0].tolist()
        raise IncompatibleState(
            f"{name} holds {array[tuple(place)]} at {place}; {meaning}, so the state is damaged or "
            "forged"
        )


def require_counts(name: str, array: NDArray[Any]) -> None:
    """Raise for numbers that are not counts."""
    whole = (array >= 0.0) & (array <= _MOST) & (array == np.floor(array))
    require(name, array, whole, "it counts, in whole numbers from 0 on")
