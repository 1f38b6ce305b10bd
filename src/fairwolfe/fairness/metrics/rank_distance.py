"""How far two rankings are apart."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import IntMatrix, IntVector, Vector
from fairwolfe.core.problem import real_number
from fairwolfe.errors import InvalidInput

__all__ = ["kendall_distance"]

_BLOCK = 1 << 23  # comparisons of items done together


def kendall_distance(one: Any, other: Any, penalty: float = 0.0) -> Any:
    """Kendall's distance K^(p) between top-k lists, in units of that between lists without a
    common item: 0 where they are equal, 1 where they share nothing.

    Pairs of items of either list are counted that the lists order differently, where an item in a
    list is ahead of all that are not; a pair that one list does not order, because both items
    are in the other list only, counts `penalty`. Lists that share items are closer than 1, so two
    orders of the same k items are at most (k - 1)/(2k) apart.

    Parameters
    ----------
    one, other: items, best first, (k,); or many rankings, (n, k): then n distances come back
    penalty: p, from 0 (optimistic) to 1/2 (neutral)

    Reference: Fagin, Kumar and Sivakumar (2003), "Comparing top k lists", Section 3.1.

    >>> kendall_distance([3, 1, 2], [3, 2, 1]), kendall_distance([0, 1], [2, 3], penalty=0.5)
    (0.1111111111111111, 1.0)
    """
    p = real_number("penalty", penalty)
    if not 0.0 <= p <= 0.5:
        raise InvalidInput(f"penalty is {penalty!r}; give a number from 0 to 1/2")
    first, second = _rankings("one", one), _rankings("other", other)
    if first.ndim != second.ndim or first.shape[:-1] != second.shape[:-1]:
        raise InvalidInput(
            f"the rankings have shapes {first.shape} and {second.shape}; give two lists, or as "
            "many in both"
        )
    if first.ndim == 1:
        return float(_distances(first[None], second[None], p)[0])
    size = max(1, _BLOCK // (first.shape[1] + second.shape[1]) ** 2)
    starts = range(0, len(first), size)
    parts = [_distances(first[s : s + size], second[s : s + size], p) for s in starts]
    return np.concatenate(parts)


def _distances(one: IntMatrix, other: IntMatrix, p: float) -> Vector:
    """Distances row by row; what is in one list only has the same place after all of the other."""
    k, m = one.shape[1], other.shape[1]
    same = one[:, :, None] == other[:, None, :]
    placed = np.where(same.any(axis=2), same.argmax(axis=2), m)
    placed_back = np.where(same.any(axis=1), same.argmax(axis=1), k)
    count = _inversions(placed).astype(np.float64)
    # Pairs of common items were counted above: only those with one of them remain.
    common = np.where(placed_back < k, 0, 1)
    count += _inversions(common)
    only, only_back = (placed == m).sum(axis=1), (placed_back == k).sum(axis=1)
    count += only * only_back
    count += p * 0.5 * (only * (only - 1) + only_back * (only_back - 1))
    distance: Vector = count / (k * m + p * 0.5 * (k * (k - 1) + m * (m - 1)))
    return distance


def _inversions(places: IntMatrix) -> IntVector:
    later = np.triu(np.ones((places.shape[1],) * 2, dtype=bool), 1)
    inversions: IntVector = ((places[:, :, None] > places[:, None, :]) & later).sum(axis=(1, 2))
    return inversions


def _rankings(name: str, values: Any) -> NDArray[np.int64]:
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name} is not a ranking: {error}") from error
    if given.dtype.kind not in "iu" or given.ndim not in (1, 2) or given.size == 0:
        raise InvalidInput(
            f"{name} is {values!r:.80}; give whole numbers, the items best first, (k,) or (n, k)"
        )
    ordered = np.sort(given, axis=-1)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        raise InvalidInput(f"{name} shows an item twice; a ranking holds different items")
    return given.astype(np.int64)
