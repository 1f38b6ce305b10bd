"""Compiled choices among scores: the largest, the k largest, one at random, or a mixture."""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.kernels.compile import kernel, part

__all__ = ["argmax", "draw", "project_on_simplex", "top_k"]

_BLOCK = 32  # scores that are compared at once


@kernel
def argmax(values: Vector) -> int:
    """The place of the largest value, the first of equals. values (n,)."""
    best = np.int64(0)
    for a in range(1, values.size):
        if values[a] > values[best]:
            best = np.int64(a)
    return int(best)


@kernel(signature="void(float64[::1], int64, int64[::1])")
def top_k(scores: Vector, k: int, out: IntVector) -> None:
    """The places of the k largest scores, largest first, equals in their order; k <= size.

    Bounded insertion: most scores fail the comparison with the k-th so far, block by block, and
    cost nothing else.

    scores (n,), out (k,).
    """
    bar = -np.inf
    filled, n = np.int64(0), scores.size
    for start in range(0, n, _BLOCK):
        size = min(_BLOCK, n - start)
        if filled == k and not _any_above(bar, part(scores, start, size)):
            continue
        for i in range(start, start + size):
            score = scores[i]
            if filled == k and not score > bar:
                continue
            place = filled
            if filled == k:
                place -= 1
            else:
                filled += 1
            while place > 0 and score > scores[out[place - 1]]:
                out[place] = out[place - 1]
                place -= 1
            out[place] = i
            if filled == k:
                bar = scores[out[k - 1]]


@kernel
def _any_above(bar: float, scores: Vector) -> bool:
    """Whether a score (n,) is larger than the bar; all are checked, many at once."""
    above = np.int64(0)
    for i in range(scores.size):
        above += 1 if scores[i] > bar else 0
    return bool(above > 0)


@kernel(signature="int64(float64[::1], float64)")
def draw(probabilities: Vector, uniform: float) -> int:
    """The place that a uniform number in [0, 1) falls on. probabilities (n,)."""
    total = 0.0
    last = np.int64(0)
    for a in range(probabilities.size):
        if probabilities[a] > 0.0:
            last = np.int64(a)
            total += probabilities[a]
            if uniform < total:
                return a
    return int(last)  # the probabilities sum to a little less than 1


@kernel(signature="void(float64[::1], float64[::1])")
def project_on_simplex(weights: Vector, spare: Vector) -> None:
    """The nearest point of {w >= 0, sum w = 1}, in place.

    It is max(w - shift, 0). The shift that makes any part of the numbers sum to 1 is never too
    large: so one pass gathers a first shift, and those after it drop what the shift makes negative
    and find the next one from the rest, until nothing is dropped. Numbers are relative to
    the largest, which always stays, so the sums do not cancel.

    weights, spare (n,).
    """
    best = argmax(weights)
    top = weights[best]
    count, shift = 1.0, -1.0
    for a in range(weights.size):
        here = weights[a] - top
        spare[a] = here
        if here > shift and a != best:
            count += 1.0
            shift += (here - shift) / count
    left = np.int64(weights.size)
    while True:
        total, kept = 0.0, np.int64(0)
        for a in range(left):
            here = spare[a]
            if here > shift:
                spare[kept] = here
                kept += 1
                total += here
        better = (total - 1.0) / kept
        if better <= shift:
            break
        left, shift = kept, better
    for a in range(weights.size):
        weights[a] = max(weights[a] - top - shift, 0.0)
