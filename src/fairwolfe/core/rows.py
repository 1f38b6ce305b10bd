"""`Rows`: decisions as columns, the only form that they have inside the library.

One decision is rows of length one. The memory is the format: bytes are a copy of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix

__all__ = ["HEAD", "ArmRows", "RankingRows", "Rows"]

HEAD = np.dtype(
    [
        ("number", "<i8"),  # of the decision in its agent; -1 where no agent made it
        ("t", "<i8"),  # rewards averaged in when it was made
        ("arm", "<i8"),  # chosen among those of the context; -1 of a ranking
        ("block", "<i8"),  # of the design that learns from it
        ("place", "<i8"),  # among the decisions ever counted as open; -1: it was not
        ("window", "<i8"),  # of live numbers that it counts for; -1: none
        ("size", "<i8"),  # coordinates of the reward vector when it was made
        ("probability", "<f8"),  # NaN where it is unknown
        ("value", "<f8"),  # the estimate of <g, r>
        ("score", "<f8"),  # the same with what exploration adds
        ("best", "<f8"),  # for live numbers: the largest optimistic <slope, r> in the context,
        ("missed", "<f8"),  # what the choice was below the largest estimate,
        ("spare", "<f8"),  # what the better of it and the greedy choice was,
        ("untried", "<f8"),  # and what an arm that was hardly tried may be above it
    ]
)
"""What arms and rankings have in common, 112 bytes a decision."""


class ArmRows(NamedTuple):
    """Decisions for an arm each.

    head (n,) of HEAD; x (n, d): features of the arms; g (n, rewards or 0): directions, where
    learning needs them.
    """

    head: np.ndarray[tuple[int], np.dtype[np.void]]
    x: Matrix
    g: Matrix

    @classmethod
    def empty(cls, n: int, d: int, n_directions: int) -> Self:
        """Room for n decisions."""
        return cls(np.empty(n, HEAD), np.empty((n, d)), np.empty((n, n_directions)))

    def part(self, which: slice | IntVector) -> Self:
        """Some of them."""
        columns: Any = (column[which] for column in self)
        return type(self)(*columns)


class RankingRows(NamedTuple):
    """Rankings of k items each.

    head (n,) of HEAD; items (n, k): ids, best slot first; user (n, p); exposure (n, k): how likely
    each slot is seen; parts (n, 3, k): value, exploration and fairness of each item's score; ranks
    (n, k): of the items without fairness; live (n, 2, k): optimistic scores and what was missed,
    by slot; g (n, coordinates or 0): directions, where learning needs them; x (n, k or 0, q):
    features of the items, where contexts bring them.
    """

    head: np.ndarray[tuple[int], np.dtype[np.void]]
    items: IntMatrix
    user: Matrix
    exposure: Matrix
    parts: Cube
    ranks: IntMatrix
    live: Cube
    g: Matrix
    x: Cube

    @classmethod
    def empty(
        cls, n: int, k: int, p: int, n_directions: int, features: tuple[int, int] = (0, 0)
    ) -> Self:
        """Room for n rankings. features: (k, q) where contexts bring them."""
        return cls(
            np.zeros(n, HEAD),
            np.empty((n, k), np.int64),
            np.empty((n, p)),
            np.empty((n, k)),
            np.empty((n, 3, k)),
            np.empty((n, k), np.int64),
            np.zeros((n, 2, k)),
            np.empty((n, n_directions)),
            np.empty((n, *features)),
        )

    def part(self, which: slice | IntVector) -> Self:
        """Some of them."""
        columns: Any = (column[which] for column in self)
        return type(self)(*columns)


Rows = ArmRows | RankingRows
