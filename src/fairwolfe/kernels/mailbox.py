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
from cython.cimports.libc.string import memcpy


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
        on_their_way: Size = self.capacity - self.n_free
        if done < 0:
            raise ValueError(f"{done} rounds were played before")
        self.done = done
        length: Size = max(self.length, int(delays.max(initial=0)) + 2)
        wanted: Size = on_their_way + min(len(delays), length) + 1
        self._resize(length, wanted)
        self.arrays[3] = np.ascontiguousarray(delays)
        laws: cython.const[int64_t][:, ::1] = self.arrays[3]  # type: ignore[valid-type]
        self.delays = cython.address(laws[0, 0])

    def _resize(self, length: Size, wanted: Size) -> None:
        """All that an interrupt may stop comes first: sizes and pointers change together."""
        ring, after, free = self.arrays[0], self.arrays[1], self.arrays[2]
        capacity: Size = self.capacity
        more: Size = 0
        if length > self.length:
            length = max(length, 2 * self.length)
            ring = np.full((2, length), -1)
            if self.length:
                arrivals = np.arange(self.done + 1, self.done + 1 + self.length)
                ring[:, arrivals % length] = self.arrays[0][:, arrivals % self.length]
        if wanted > self.capacity:
            capacity = max(wanted, 2 * self.capacity)
            more = capacity - self.capacity
            after, free = np.full(capacity, -1), np.full(capacity, -1)
            after[: self.capacity] = self.arrays[1]
            free[: self.n_free] = self.arrays[2][: self.n_free]
            free[self.n_free : self.n_free + more] = np.arange(capacity - 1, self.capacity - 1, -1)
            self.grow(capacity)
        arrays = [ring, after, free, self.arrays[3]]
        ring_: int64_t[:, ::1] = ring
        after_: int64_t[::1] = after
        free_: int64_t[::1] = free
        self.arrays, self.length = arrays, ring_.shape[1]
        self.capacity, self.n_free = capacity, self.n_free + more
        self.first, self.last = cython.address(ring_[0, 0]), cython.address(ring_[1, 0])
        self.after, self.free = cython.address(after_[0]), cython.address(free_[0])

    def take_slot(self) -> Size:
        """A slot for the answer of a decision that is made now."""
        self.n_free -= 1
        return self.free[self.n_free]

    def give_back(self, slot: Size) -> cython.void:
        """The slot that was taken last is not needed."""
        self.free[self.n_free] = slot
        self.n_free += 1

    def send(self, slot: Size, s: Size, clicked: Size) -> cython.void:
        """Send the answer of round s on its way; a slot whose answer never comes is free again."""
        late: int64_t = self.delays[2 * s + clicked]
        place: Size
        if late < 0:
            self.give_back(slot)
            return
        place = (self.done + s + 1 + late) % self.length
        self.after[slot] = -1
        if self.first[place] < 0:
            self.first[place] = slot
        else:
            self.after[self.last[place]] = slot
        self.last[place] = slot

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

    def n_numbers(self) -> Size:
        """That `save` writes."""
        return 1 + 2 * (self.length + self.capacity)

    def save(self, to: cython.pointer[int64_t]) -> cython.void:
        """Which slots are on their way, and when they arrive; what they contain stays in place."""
        to[0] = self.n_free
        memcpy(to + 1, self.first, 8 * self.length)
        memcpy(to + 1 + self.length, self.last, 8 * self.length)
        to += 1 + 2 * self.length
        memcpy(to, self.after, 8 * self.capacity)
        memcpy(to + self.capacity, self.free, 8 * self.capacity)

    def restore(self, saved: cython.pointer[cython.const[int64_t]]) -> cython.void:
        """As it was at `save`; what the slots that were on their way contain must be the same."""
        self.n_free = saved[0]
        memcpy(self.first, saved + 1, 8 * self.length)
        memcpy(self.last, saved + 1 + self.length, 8 * self.length)
        saved += 1 + 2 * self.length
        memcpy(self.after, saved, 8 * self.capacity)
        memcpy(self.free, saved + self.capacity, 8 * self.capacity)
