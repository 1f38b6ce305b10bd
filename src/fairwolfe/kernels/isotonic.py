"""Sorting that remembers, and isotonic regression on it: the engine of every Gini.

The proximal map of a generalised Gini function is an isotonic regression of the sorted vector.
Between two rounds of a bandit the order hardly changes, so it is kept: an insertion
sort then costs O(n), and only a vector in a quite different order pays for a radix sort.
"""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.kernels.compile import distinct, kernel, part

__all__ = ["pooled_gradient", "sort_kept"]

# An insertion sort that has moved this many elements per element is beaten by a radix sort, whose
# buckets count as elements: below 60 or so the insertion sort is never given up.
_MOVES = 8
_BUCKETS = 256  # a byte at a time: fewer, longer digits leave the first-level cache
_SIGN = np.uint64(1 << 63)
_LONG = 32  # a block for which a separate call is worthwhile
_BLOCK = 32  # numbers that are compared at once


@kernel
def sort_kept(z: Vector, order: IntVector, spare: IntVector, keys: Vector, other: Vector) -> None:
    """Make `order` an ascending order of z, and `keys` the sorted z, starting from that order.

    `order` must be a permutation; `spare` and `other` are scratch.

    z, order, spare, keys, other (n,).
    """
    for j in range(z.size):
        keys[j] = z[order[j]]
    if _insertion_sort(keys, order):
        return
    # Sign, exponent and 20 bits of the mantissa separate all but a few neighbours.
    _radix_sort(keys, order, other, spare, np.int64(4))
    if not _insertion_sort(keys, order):
        _radix_sort(keys, order, other, spare, np.int64(0))


@kernel
def _insertion_sort(keys: Vector, order: IntVector) -> bool:
    """Sort keys, ascending, with their order; False where it was given up halfway.

    keys, order (n,).
    """
    distinct()
    n = keys.size
    moves = np.int64(0)
    for start in range(1, n, _BLOCK):
        size = min(_BLOCK, n - start)
        if not _falls(part(keys, start - 1, size), part(keys, start, size)):
            continue
        for j in range(start, start + size):
            key = keys[j]
            if keys[j - 1] <= key:
                continue
            item = order[j]
            k = j
            while k > 0 and keys[k - 1] > key:
                keys[k] = keys[k - 1]
                order[k] = order[k - 1]
                k -= 1
            keys[k] = key
            order[k] = item
            moves += j - k
            if moves > _MOVES * (n + _BUCKETS):
                return False
    return True


@kernel
def _falls(before: Vector, keys: Vector) -> bool:
    """Whether a key (n,) is smaller than the one before it; all are checked, many at once."""
    falls = np.int64(0)
    for i in range(keys.size):
        falls += 1 if before[i] > keys[i] else 0
    return bool(falls > 0)


@kernel
def _radix_sort(
    keys: Vector, order: IntVector, other: Vector, spare: IntVector, first: np.int64
) -> None:
    """Sort keys, ascending, with their order, by the bytes of their bits, in O(n) for any order.

    Bytes below `first` (0 is the least) are not compared, so the result is exact for 0 only.

    keys, order, other, spare (n,).
    """
    distinct()
    n = keys.size
    bits, moved = keys.view(np.uint64), other.view(np.uint64)
    counts = np.zeros((8, _BUCKETS), np.int64)
    for i in range(n):
        # Floats in ascending order have ascending bits once the sign bit of positive ones and
        # every bit of negative ones are flipped.
        b = bits[i]
        b ^= (np.uint64(0) - (b >> np.uint64(63))) | _SIGN
        bits[i] = b
        for digit in range(first, 8):
            counts[digit, (b >> np.uint64(8 * digit)) & np.uint64(255)] += 1
    swapped = False
    for digit in range(first, 8):
        shift = np.uint64(8 * digit)
        place = counts[digit]
        if place[(bits[0] >> shift) & np.uint64(255)] == n:
            continue  # this byte is the same everywhere
        total = np.int64(0)
        for value in range(_BUCKETS):
            total, place[value] = total + place[value], total
        for i in range(n):
            b = bits[i]
            value = (b >> shift) & np.uint64(255)
            k = place[value]
            place[value] = k + 1
            moved[k] = b
            spare[k] = order[i]
        bits, moved = moved, bits
        order, spare = spare, order
        swapped = not swapped
    if swapped:
        for i in range(n):
            moved[i] = bits[i]
            spare[i] = order[i]
        bits = moved
    for i in range(n):
        b = bits[i]
        bits[i] = b ^ (((b >> np.uint64(63)) - np.uint64(1)) | _SIGN)


@kernel
def _taken_in(
    sorted_z: Vector, step: float, prefix: Vector, stop: np.int64, surplus: float
) -> tuple[np.int64, float]:
    """Let the first block take in the numbers after it, as long as it is the only one and each of
    them is a separate run: where it ends then, and its surplus.

    This is what `pooled_gradient` does with such a number, without what is known of it. After a
    few rounds that is most of them.

    sorted_z (n,), prefix (n + 1,).
    """
    distinct()
    n, smallest = sorted_z.size, sorted_z[0]
    while stop < n - 1:
        value = sorted_z[stop]
        if sorted_z[stop + 1] == value:
            break
        rise = value - smallest
        target_before = surplus + step * (prefix[stop] - prefix[0])
        if target_before < (rise + step * (prefix[stop + 1] - prefix[stop])) * stop:
            break
        surplus += rise
        stop += 1
    return stop, surplus


@kernel
def _spread(
    sorted_z: Vector, order: IntVector, weight: float, mean: float, step: float, out: Vector
) -> None:
    """The gradient on a pooled block. sorted_z, order (size,): of the block; out (n,)."""
    distinct()
    smallest = sorted_z[0]
    for j in range(sorted_z.size):
        out[order[j]] = weight + (mean - (sorted_z[j] - smallest)) / step


@kernel
def pooled_gradient(
    sorted_z: Vector,
    order: IntVector,
    step: float,
    prefix: Vector,
    starts: IntVector,
    excess: Vector,
    out: Vector,
) -> None:
    """Gradient of the Moreau envelope of sum_j w_j z_(j), w non-increasing with the given prefix
    sums (n + 1 of them); for step 0 the supergradient that is the same for equal coordinates.

    The proximal point is the non-decreasing regression of z_(j) + step w_j. Inside a run of equal
    z that sequence falls, so a run is never split: only runs are pooled. On a pooled block B the
    gradient is mean_B(w) + (mean_B(z) - z)/step, where means of z are kept as the excess over the
    block's smallest value: no difference of large numbers, and the order of ties cannot matter.
    A NaN or an infinity makes the gradient NaN.

    sorted_z, order, starts, excess, out (n,), prefix (n + 1,).
    """
    distinct()
    n = sorted_z.size
    blocks = np.int64(0)
    stop = np.int64(0)
    while stop < n:
        start = stop
        value = sorted_z[start]
        stop += 1
        while stop < n and sorted_z[stop] == value:
            stop += 1
        surplus = value - value  # sum over the block of z - (its smallest z): 0, if z is a number
        while blocks > 0 and step > 0.0:
            before = starts[blocks - 1]
            n_before, n_here = start - before, stop - start
            rise = (sorted_z[start] - sorted_z[before]) * n_here + surplus
            target_before = excess[blocks - 1] + step * (prefix[start] - prefix[before])
            target_here = rise + step * (prefix[stop] - prefix[start])
            if target_before * n_here < target_here * n_before:
                break
            surplus = excess[blocks - 1] + rise
            start = before
            blocks -= 1
        if start == 0 and step > 0.0:
            stop, surplus = _taken_in(sorted_z, step, prefix, stop, surplus)
        starts[blocks] = start
        excess[blocks] = surplus
        blocks += 1
    for b in range(blocks):
        start = starts[b]
        stop = starts[b + 1] if b + 1 < blocks else np.int64(n)
        size = stop - start
        weight = (prefix[stop] - prefix[start]) / size
        if excess[b] == 0.0:  # one run
            for j in range(start, stop):
                out[order[j]] = weight
            continue
        mean, smallest = excess[b] / size, sorted_z[start]
        if size >= _LONG:
            _spread(sorted_z[start:stop], order[start:stop], weight, mean, step, out)
            continue
        for j in range(start, stop):
            out[order[j]] = weight + (mean - (sorted_z[j] - smallest)) / step
