# cython: language_level=3
"""Answers on their way to a simulated policy.

An answer lies in a slot. The slots whose answers arrive after the same round form a list, in the
order in which they were sent; the lists are in a ring by the round of their arrival.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np
from cython.cimports.fairwolfe.kernels.types import Size
from cython.cimports.libc.stdint import int64_t


@cython.cclass
class Mailbox:
    """Slots for answers. Subclasses hold what the slots contain, and make room for it in `grow`."""

    def __init__(self) -> None:
        self.capacity, self.length, self.n_free, self.done = 0, 0, 0, 0
        self.arrays = [
            np.full((2, 0), -1),
            np.full(0, -1),
            np.full(0, -1),
            np.empty((0, 2), np.int64),
        ]
        self._resize(1, 0)

    def grow(self, capacity: int) -> None:
        """Make room for the content of so many slots; that of the old ones stays."""

    def make_room(self, delays: Any, done: int) -> None:
        """Before rounds are played: their delays (rounds, 2), in rounds, without and with a click,
        -1 where the answer never comes; done: rounds played before.
        """
        if delays.dtype != np.int64 or delays.ndim != 2 or delays.shape[1] != 2:
            raise ValueError(f"delays of shape {delays.shape}, {delays.dtype}")
        self.done = done
        length: Size = max(self.length, int(delays.max(initial=0)) + 2)
        on_their_way: Size = self.capacity - self.n_free
        wanted: Size = min(on_their_way + len(delays), length) + 1
        self._resize(length, wanted)
        self.arrays[3] = np.ascontiguousarray(delays)
        laws: cython.const[int64_t][:, ::1] = self.arrays[3]  # type: ignore[valid-type]
        self.delays = cython.address(laws[0, 0])

    def _resize(self, length: Size, wanted: Size) -> None:
        if length > self.length:
            length = max(length, 2 * self.length)
            ring = np.full((2, length), -1)
            if self.length:
                arrivals = np.arange(self.done + 1, self.done + 1 + self.length)
                ring[:, arrivals % length] = self.arrays[0][:, arrivals % self.length]
            self.arrays[0], self.length = ring, length
        if wanted > self.capacity:
            capacity: Size = max(wanted, 2 * self.capacity)
            after, free = np.full(capacity, -1), np.full(capacity, -1)
            after[: self.capacity] = self.arrays[1]
            free[: self.n_free] = self.arrays[2][: self.n_free]
            more: Size = capacity - self.capacity
            free[self.n_free : self.n_free + more] = np.arange(capacity - 1, self.capacity - 1, -1)
            self.arrays[1], self.arrays[2] = after, free
            self.capacity, self.n_free = capacity, self.n_free + more
            self.grow(capacity)
        ring_: int64_t[:, ::1] = self.arrays[0]
        after_: int64_t[::1] = self.arrays[1]
        free_: int64_t[::1] = self.arrays[2]
        self.first, self.last = cython.address(ring_[0, 0]), cython.address(ring_[1, 0])
        self.after, self.free = cython.address(after_[0]), cython.address(free_[0])

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def take_slot(self) -> Size:
        """A slot for the answer of a decision that is made now."""
        self.n_free -= 1
        return self.free[self.n_free]

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def send(self, slot: Size, s: Size, clicked: Size) -> cython.void:
        """Send the answer of round s on its way; a slot whose answer never comes is free again."""
        late: int64_t = self.delays[2 * s + clicked]
        place: Size
        if late < 0:
            self.free[self.n_free] = slot
            self.n_free += 1
            return
        place = (self.done + s + 1 + late) % self.length
        self.after[slot] = -1
        if self.first[place] < 0:
            self.first[place] = slot
        else:
            self.after[self.last[place]] = slot
        self.last[place] = slot

    @cython.nogil
    @cython.cfunc
    @cython.exceptval(check=False)
    def arrived(self, s: Size) -> Size:
        """The slot of the next answer that is there after round s, or -1. Its content stays until
        the next `take_slot`.
        """
        place: Size = (self.done + s + 1) % self.length
        slot: Size = self.first[place]
        if slot >= 0:
            self.first[place] = self.after[slot]
            self.free[self.n_free] = slot
            self.n_free += 1
        return slot
