"""Compiled choices among scores: the largest, the k largest, one at random, or a mixture."""

from __future__ import annotations

import numpy as np

from fairwolfe._compile import kernel
from fairwolfe.protocols import IntVector, Vector

__all__ = ["argmax", "draw", "project_on_simplex", "top_k"]


@kernel
def argmax(values: Vector) -> int:
    """The place of the largest value, the first of equals."""
    best = np.int64(0)
    for a in range(1, values.size):
        if values[a] > values[best]:
            best = np.int64(a)
    return int(best)


@kernel(signature="void(float64[::1], int64, int64[::1])")
def top_k(scores: Vector, k: int, out: IntVector) -> None:
    """The places of the k largest scores, largest first, equals in their order; k <= size.

    Bounded insertion: most scores fail the comparison with the k-th so far and cost nothing else.
    """
    bar = -np.inf
    filled = np.int64(0)
    for i in range(scores.size):
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
def draw(probabilities: Vector, uniform: float) -> int:
    """The place that a uniform number in [0, 1) falls on."""
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
    """The nearest point of {w >= 0, sum w = 1}, in place."""
    spare[:] = weights
    spare.sort()
    total, shift = 0.0, 0.0
    for k in range(1, spare.size + 1):
        total += spare[spare.size - k]
        candidate = (total - 1.0) / k
        if spare[spare.size - k] > candidate:
            shift = candidate
    for a in range(weights.size):
        weights[a] = max(weights[a] - shift, 0.0)
