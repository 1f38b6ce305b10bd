# cython: language_level=3, infer_types=True
"""Answers on their way to a simulated policy.

An answer lies in a slot. The slots whose answers arrive after the same round form a list, in the
order in which they were sent; the lists are in a ring by the round of their arrival.
"""

from __future__ import annotations

from typing import Any

import cython
import numpy as np


@cython.cclass
class Mailbox:
    """Slots for answers. Subclasses hold what the slots contain, and make room for it in `grow`."""

    def __init__(self, stages: int = 1) -> None:
        self.capacity, self.length, self.n_free, self.done = 0, 0, 0, 0
        self.laws = 2 * stages
        self.arrays = [
            np.full((2, 0), -1),
            np.full(0, -1),
            np.full(0, -1),
            np.empty((0, self.laws), np.int64),
        ]
        self._resize(1, 0)

    def grow(self, capacity: int) -> None:
        """Make room for the content of so many slots; that of the old ones stays."""

    def make_room(self, delays: Any, done: int) -> None:
        """Before rounds are played: their delays (rounds, laws), in rounds, without and with a
        click for each stage, -1 where the answer never comes; done: rounds played before.
        """
        if delays.dtype != np.int64 or delays.ndim != 2 or delays.shape[1] != self.laws:
            raise ValueError(f"delays of shape {delays.shape}, {delays.dtype}")
        on_their_way: Size = self.capacity - self.n_free
        if done < 0:
            raise ValueError(f"{done} rounds were played before")
        self.done = done
        length: Size = max(self.length, int(delays.max(initial=0)) + 2)
        wanted: Size = on_their_way + self.laws // 2 * (min(len(delays), length) + 1)
        self._resize(length, wanted)
        self.arrays[3] = np.ascontiguousarray(delays)
        laws: IntMatrix = self.arrays[3]
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
        ring_: OutIntMatrix = ring
        after_: OutIntVector = after
        free_: OutIntVector = free
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

    def send(self, slot: Size, s: Size, late: int64_t) -> cython.void:
        """Send an answer of round s on its way, which comes so many rounds late; a slot whose
        answer never comes (-1) is free again.
        """
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
        """That `copy_slots` copies."""
        return 1 + 2 * (self.length + self.capacity)

    def copy_slots(self, buffer: cython.pointer[int64_t], back: cython.bint) -> cython.void:
        """Copy which slots are on their way, and when they arrive, to a buffer of `n_numbers`, or
        back; what the slots contain stays in place and must be the same.
        """
        if back:
            self.n_free = buffer[0]
        buffer[0] = self.n_free
        buffer += 1
        copy_words(self.first, buffer, 2 * self.length, back)  # `last` follows `first`
        buffer += 2 * self.length
        copy_words(self.after, buffer, self.capacity, back)
        copy_words(self.free, buffer + self.capacity, self.capacity, back)
