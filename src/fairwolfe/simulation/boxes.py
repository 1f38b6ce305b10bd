"""`Boxes`: answers on their way, as arrays that kernels fill and empty.

An answer lies in a slot. The slots of those that come after one round are a list, in the order in
which they were sent; the lists are in a ring by the round of their arrival.
"""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import IntMatrix, IntVector, Matrix
from fairwolfe.kernels.compile import kernel

__all__ = ["BOXES", "Boxes", "send", "take"]

BOXES = ("int64[:, ::1]", "int64[:, ::1]", "int64[::1]", "float64[:, ::1]", "int64[:, ::1]")
"""The types of ring, links, free, numbers and marks."""

_HEAD, _TAIL = 0, 1  # rows of the ring
_NEXT, _FREE = 0, 1  # rows of the links
_NONE = -1


@kernel
def send(ring: IntMatrix, links: IntMatrix, free: IntVector, arrival: int) -> int:
    """The slot of one more answer, which is there after round `arrival`.

    ring (2, rounds), links (2, slots), free (1,): see `Boxes`.
    """
    free[0] -= 1
    slot, place = links[_FREE, free[0]], arrival % ring.shape[1]
    links[_NEXT, slot] = _NONE
    if ring[_HEAD, place] == _NONE:
        ring[_HEAD, place] = slot
    else:
        links[_NEXT, ring[_TAIL, place]] = slot
    ring[_TAIL, place] = slot
    return int(slot)


@kernel
def take(ring: IntMatrix, links: IntMatrix, free: IntVector, now: int) -> int:
    """The slot of the next answer that is there after round `now`, or -1. Its content stays until
    the next `send`. ring (2, rounds), links (2, slots), free (1,): see `Boxes`.
    """
    place = now % ring.shape[1]
    slot = ring[_HEAD, place]
    if slot != _NONE:
        ring[_HEAD, place] = links[_NEXT, slot]
        links[_FREE, free[0]] = slot
        free[0] += 1
    return int(slot)


class Boxes:
    """Slots for answers: `numbers` of floats and `marks` of whole numbers in each.

    `ring` (2, rounds): the first and the last slot of the lists, by the round of arrival; `links`
    (2, slots): the next slot of a list, and a stack of those that are free; `free` (1,): how many
    these are.
    """

    def __init__(self, numbers: int, marks: int) -> None:
        self.ring: IntMatrix = np.full((2, 1), _NONE)
        self.links: IntMatrix = np.full((2, 0), _NONE)
        self.free: IntVector = np.zeros(1, dtype=np.int64)
        self.numbers: Matrix = np.empty((0, numbers))
        self.marks: IntMatrix = np.empty((0, marks), dtype=np.int64)

    def make_room(self, now: int, rounds: int, longest: int) -> None:
        """After round `now`: for that many rounds more, no answer taking more than `longest`."""
        length = self.ring.shape[1]
        if longest >= length:
            ring: IntMatrix = np.full((2, max(longest + 1, 2 * length)), _NONE)
            arrivals = np.arange(now + 1, now + 1 + length)
            ring[:, arrivals % ring.shape[1]] = self.ring[:, arrivals % length]
            self.ring = ring
        size = len(self.numbers)
        on_their_way = size - int(self.free[0])
        # In any round, all that are on their way were sent in the last `rounds of the ring`.
        wanted = min(on_their_way + rounds, self.ring.shape[1])
        if wanted > size:
            self._grow(max(wanted, 2 * size))

    def _grow(self, size: int) -> None:
        before = len(self.numbers)
        more = size - before
        free = int(self.free[0])
        links: IntMatrix = np.full((2, size), _NONE)
        links[:, :before] = self.links
        links[_FREE, free : free + more] = np.arange(size - 1, before - 1, -1)
        self.links, self.free[0] = links, free + more
        self.numbers = np.concatenate([self.numbers, np.empty((more, self.numbers.shape[1]))])
        self.marks = np.concatenate(
            [self.marks, np.empty((more, self.marks.shape[1]), dtype=np.int64)]
        )
