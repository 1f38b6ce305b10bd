# cython: language_level=3, infer_types=True
# mypy: disable-error-code="assignment,attr-defined,name-defined,var-annotated"

"""Smoothed gradients of objectives as trees of C structs, which nest as objectives do.

A gradient is a struct: a function, its numbers, scratch, and its parts. A `Tree` owns one, with its
arrays and its parts. It has scratch, so it serves one thread at a time, and a part belongs to one
tree. Expressions are made of leaves (`leaf`, `python`, `outside`) by sums over some of the
coordinates (`combined`), linear maps (`mapped`) and blocks (`stacked`).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import cython
import numpy as np

from fairwolfe.errors import InvalidInput

_CFuncPtr: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # of every function of ctypes

__all__ = [
    "MANY_COORDINATES",
    "SIGNATURE",
    "PricedTree",
    "Tree",
    "combined",
    "is_outside",
    "leaf",
    "mapped",
    "outside",
    "python",
    "sampled_gradient",
    "stacked",
]

MANY_COORDINATES = 10_000
"""From so many on leaves treat equal coordinates together: MANY of gradients.pxd."""

SIGNATURE = "void (const double *z, Py_ssize_t n, double *out, void *user_data)"
"""Of a gradient from outside the package."""

# --- sorting that remembers, and isotonic regression on it ------------------------------------


def _insertion_sort(keys, order, n):
    """Sort keys, ascending, with their order; False where it was given up halfway.

    An insertion sort that has moved 8 elements per element is slower than a radix sort, whose
    256 buckets count as elements. keys, order (n,).
    """
    moves: int64_t = 0
    start: Size = 1
    size: Size
    j: Size
    k: Size
    key: Real
    item: int64_t
    while start < n:
        size = min(n - start, cython.cast(Size, BLOCK))
        if falls(keys + start - 1, size):
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
                if moves > 8 * (n + 256):
                    return False
        start += BLOCK
    return True


def _radix_sort(keys, order, other, spare, n, first):
    """Sort keys, ascending, with their order, by the bytes of their bits: O(n) for any order.

    Bytes below `first` (0 is the least) are not compared, so the result is exact for 0 only.
    keys, order, other, spare (n,).
    """
    counts = cython.declare(int64_t[2048])
    b: uint64_t
    k: int64_t
    total: int64_t
    here: int64_t
    place: cython.pointer[int64_t]
    swapped: cython.bint = False
    bits: cython.pointer[uint64_t] = keys
    moved: cython.pointer[uint64_t] = other
    sign: uint64_t = cython.cast(uint64_t, 1) << 63
    memset(counts, 0, 2048 * 8)
    for i in range(n):
        # Floats in ascending order have ascending bits once the sign bit of positive ones and
        # every bit of negative ones are flipped.
        b = bits[i]
        b ^= (cython.cast(uint64_t, 0) - (b >> 63)) | sign
        bits[i] = b
        for digit in range(first, 8):
            counts[digit * 256 + ((b >> (8 * digit)) & 255)] += 1
    for digit in range(first, 8):
        place = counts + digit * 256
        if place[(bits[0] >> (8 * digit)) & 255] == n:
            continue  # this byte is the same everywhere
        total = 0
        for value in range(256):
            here = place[value]
            place[value] = total
            total += here
        for i in range(n):
            b = bits[i]
            value = (b >> (8 * digit)) & 255
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
        bits[i] = b ^ (((b >> 63) - 1) | sign)


def _sort_kept(z, order, spare, keys, other, n):
    """Make `order` an ascending order of z, and `keys` the sorted z, starting from that order.

    O(n) while the order of z changes little between calls. `order` must be a permutation; `spare`
    and `other` are scratch. z, order, spare, keys, other (n,).
    """
    bits: cython.pointer[uint64_t] = cython.cast(cython.pointer[uint64_t], keys)
    moved: cython.pointer[uint64_t] = cython.cast(cython.pointer[uint64_t], other)
    for j in range(n):
        keys[j] = z[order[j]]
    if _insertion_sort(keys, order, n):
        return
    # Sign, exponent and 20 bits of the mantissa separate all but a few neighbours.
    _radix_sort(bits, order, moved, spare, n, 4)
    if not _insertion_sort(keys, order, n):
        _radix_sort(bits, order, moved, spare, n, 0)


def _spread(sorted_z, order, size, weight, mean, step, out):
    """The gradient on a pooled block, in two loops: the first divides many numbers at once.

    sorted_z, order (size,): of the block; sorted_z is overwritten.
    """
    smallest: Real = sorted_z[0]
    for j in range(size):
        sorted_z[j] = weight + (mean - (sorted_z[j] - smallest)) / step
    for j in range(size):
        out[order[j]] = sorted_z[j]


def _pooled_gradient(sorted_z, order, step, prefix, starts, excess, out, n):
    """Gradient of the Moreau envelope of sum_j w_j z_(j), w non-increasing with the given prefix
    sums (n + 1 of them); for step 0 the supergradient that is the same for equal coordinates.

    The proximal point is the non-decreasing regression of z_(j) + step w_j, found by pooling runs
    of equal z. On a pooled block B the gradient is mean_B(w) + (mean_B(z) - z)/step, where means
    of z are kept as the excess over the block's smallest value. A NaN or an infinity makes the
    gradient NaN. O(n).

    sorted_z, order, starts, excess, out (n,), prefix (n + 1,). sorted_z is overwritten.
    """
    blocks: Size = 0
    stop: Size = 0
    while stop < n:
        start = stop
        value = sorted_z[start]
        stop += 1
        while stop < n and sorted_z[stop] == value:
            stop += 1
        surplus = value - value  # sum over the block of z - (its smallest z): 0, if z is a number
        while blocks > 0 and step > 0.0:
            before = starts[blocks - 1]
            n_before = start - before
            n_here = stop - start
            rise = (sorted_z[start] - sorted_z[before]) * n_here + surplus
            target_before = excess[blocks - 1] + step * (prefix[start] - prefix[before])
            target_here = rise + step * (prefix[stop] - prefix[start])
            if target_before * n_here < target_here * n_before:
                break
            surplus = excess[blocks - 1] + rise
            start = before
            blocks -= 1
        if start == 0 and step > 0.0:
            # The first block takes in the numbers after it, while each is a separate run.
            smallest = sorted_z[0]
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
        starts[blocks] = start
        excess[blocks] = surplus
        blocks += 1
    for b in range(blocks):
        start = starts[b]
        stop = starts[b + 1] if b + 1 < blocks else n
        size = stop - start
        weight = (prefix[stop] - prefix[start]) / size
        if excess[b] == 0.0:  # one run
            for j in range(start, stop):
                out[order[j]] = weight
            continue
        mean = excess[b] / size
        if size >= 32:
            _spread(sorted_z + start, order + start, size, weight, mean, step, out)
            continue
        smallest = sorted_z[start]
        for j in range(start, stop):
            out[order[j]] = weight + (mean - (sorted_z[j] - smallest)) / step


# --- leaves -----------------------------------------------------------------------------------


def _unset(self, z, step, out):
    """Of a tree that no function of this module made."""
    fill(NAN, out, self.n)


def _linear(self, z, step, out):
    """The gradient w, whatever the smoothing. params: w (n,)."""
    memcpy(out, self.params, 8 * self.n)


def _generalized_gini(self, z, step, out):
    """params: prefix sums of the weights (n + 1,), or their law (LAW,), see `_mean_weight`; work:
    the kept order, scratch, and with a law the prefix sums (n + 1,).
    """
    n: Size = self.n
    stride: Size = padded(n)
    order: cython.pointer[int64_t] = cython.cast(cython.pointer[int64_t], self.work)
    spare: cython.pointer[int64_t] = order + stride
    keys: cython.p_double = self.work + 2 * stride
    other: cython.p_double = self.work + 3 * stride
    prefix: cython.p_double = self.work + 4 * stride
    if self.lawful and prefix[n] == prefix[0]:  # before the first call
        for j in range(n + 1):
            prefix[j] = j * _mean_weight(self, 0.0, j) if j > 0 else 0.0
    if order[0] == order[n - 1]:
        for i in range(n):
            order[i] = i
    _sort_kept(z, order, spare, keys, other, n)
    if self.lawful:
        _pooled_gradient(keys, order, step, prefix, spare, other, out, n)
    else:
        _pooled_gradient(keys, order, step, self.params, spare, other, out, n)


def _equal_exposure(self, z, step, out):
    """-min(1/n, |Cz|/step) Cz/|Cz| with Cz = z - mean(z), and 0 at equality. No params."""
    n: Size = self.n
    mean: Real = 0.0
    square: Real = 0.0
    scale: Real = 0.0
    equal: Size = 0
    for i in range(n):
        mean += z[i]
    mean /= n
    for i in range(n):
        out[i] = z[i] - mean
        square += out[i] * out[i]
    while equal < n and z[equal] == z[0]:
        equal += 1
    norm = sqrt(square)
    if norm > 0.0 and equal < n:  # the mean of equal numbers may be rounded
        scale = -1.0 / (n * norm)
        if step > 0.0:
            scale = -smaller(-scale, 1.0 / step)
    for i in range(n):
        out[i] *= scale


def _two_steps(z, step, offset, gain, power, scale, out, n):
    """The force at the root over step, for per_unit = 1 and power <= 1, where two steps are enough.

    A block of coordinates at a time, so that all but the powers are vector operations, and calls of
    pow follow each other, so that their latencies overlap. z, out (n,).
    """
    r = cython.declare(cython.double[32])
    x = cython.declare(cython.double[32])
    force = cython.declare(cython.double[32])
    size: Size
    start: Size = 0
    while start < n:
        size = min(n - start, cython.cast(Size, BLOCK))
        for i in range(size):
            r[i] = larger(z[start + i] + offset, 0.0)
            x[i] = guess(r[i], power, scale)
        for i in range(size):
            force[i] = gain * pow(x[i], -power)
        for i in range(size):
            x[i] += x[i] * halley(x[i], r[i], force[i], power)
        for i in range(size):
            force[i] = gain * pow(x[i], -power)
        for i in range(size):
            moved = halley(x[i], r[i], force[i], power)
            out[start + i] = force_after(force[i], moved, power) / step
        start += BLOCK


def _many_steps(r, gain, per_unit, power, scale):
    """The force at the root, for any power."""
    x: Real = guess(r, power, scale)
    least: Real = larger(r, scale)
    force: Real = 0.0
    moved: Real = 0.0
    for _ in range(100):
        force = gain * pow(per_unit * x, -power)
        moved = halley(x, r, force, power)
        if (1.0 + power) * fabs(moved) <= 2e-5:
            break
        x = larger(x + x * moved, least)
    return force_after(force, moved, power)


def _root_welfare(z, step, offset, out, n):
    """alpha = 1/2: 1/(2 x) with x = sqrt(prox), the root of x^3 - z x - step/2 = 0, for step > 0.

    With z in units of (step/2)^(2/3) the root is a function of z alone. The start is good to 0.4 %
    for z >= 0 and to 2.1 % for z < 0, by fitted coefficients, and each of Newton's four steps
    squares that. There is no branch, so several coordinates are worked on at once.

    z, out (n,).
    """
    unit: Real = pow(0.5 * step, 1.0 / 3.0)
    square: Real = unit * unit
    per_square: Real = 1.0 / (unit * unit)
    for i in range(n):
        y = z[i] + offset
        above = larger(y, 0.0) * per_square
        below = smaller(-smaller(y, 0.0) * per_square, 1e100)  # whose square is still a number
        bottom = fma(below, fma(0.6022, below, 0.7696), fma(0.3065, above, 1.0))
        start = fma(0.6022, below, 1.0) / bottom
        root = sqrt(fma(square, start, larger(y, 0.0)))
        x = root if y >= 0.0 else unit * start
        x = newton(x, y, step)
        x = newton(x, y, step)
        x = newton(x, y, step)
        x = newton(x, y, step)
        out[i] = 0.5 / x


def _welfare(self, z, step, out):
    """params: alpha, offset. Never as (prox - z)/step, which would lose half the digits.

    The prox is the y >= 0 with y - z = step alpha y^(alpha - 1), and the gradient g is
    alpha y^(alpha - 1). For z < 0 it is g - |z|/step = y/step with y = (alpha/g)^(1/(1 - alpha)),
    an equation of the same form, with another power.
    """
    alpha: Real = self.params[0]
    offset: Real = self.params[1]
    if alpha == 1.0:
        fill(1.0, out, self.n)
    elif step == 0.0:
        for i in range(self.n):
            y = z[i] + offset
            if y < 0.0:
                out[i] = INFINITY
            else:
                out[i] = 0.5 / sqrt(y) if alpha == 0.5 else alpha * pow(y, alpha - 1.0)
    elif alpha == 0.5:
        _root_welfare(z, step, offset, out, self.n)
    else:
        pull = step * alpha
        dual = 1.0 / (1.0 - alpha)
        scale = pow(pull, 1.0 / (2.0 - alpha))
        _two_steps(z, step, offset, pull, 1.0 - alpha, scale, out, self.n)
        for i in range(self.n):
            far = -(z[i] + offset) / step
            if far > 0.0:
                out[i] = far + _many_steps(far, 1.0 / step, 1.0 / alpha, dual, scale / step)


def _nash(self, z, step, out):
    """The gradient 1/prox of sum_i log(z_i + offset), each branch without cancellation.

    params: offset.
    """
    n: Size = self.n
    offset: Real = self.params[0]
    if step == 0.0:
        for i in range(n):
            x = z[i] + offset
            out[i] = 1.0 / x if x > 0.0 else INFINITY
        return
    for i in range(n):
        x = z[i] + offset
        root = sqrt(x * x + 4.0 * step)
        top = 2.0 if x >= 0.0 else root - x
        bottom = x + root if x >= 0.0 else 2.0 * step
        out[i] = top / bottom  # one division


# --- leaves of many coordinates, of which few are different -----------------------------------


def _find_levels(z, n, level, values, counts, keys, table):
    """The different numbers of z: values, how often each occurs, and the place of each z_i among
    them; how many they are, or -1 where they are more than MOST_LEVELS or n/8.

    level (n,), values, counts, keys (MOST_LEVELS,), table (TABLE,): scratch. O(n).
    """
    bits: cython.pointer[cython.const[uint64_t]]
    number = cython.declare(cython.double)
    most: Size = min(cython.cast(Size, MOST_LEVELS), n // 8)
    found: Size = 0
    key: int64_t
    place: uint64_t
    at: int32_t
    memset(table, 255, TABLE * 4)
    for i in range(n):
        number = z[i] + 0.0  # 0 and -0 are equal
        bits = cython.cast(cython.pointer[cython.const[uint64_t]], cython.address(number))
        key = cython.cast(int64_t, bits[0])
        place = (bits[0] * cython.cast(uint64_t, 0x9E3779B97F4A7C15)) >> 49
        at = table[place]
        while at >= 0 and keys[at] != key:
            place = (place + 1) & (TABLE - 1)
            at = table[place]
        if at < 0:
            if found == most:
                return -1
            at = cython.cast(int32_t, found)
            table[place] = at
            keys[at], values[at], counts[at] = key, number, 0.0
            found += 1
        counts[at] += 1.0
        level[i] = at
    return found


def _by_levels(self, z, step, out):
    """The gradient of a leaf that is the same for equal coordinates: at the different ones, then
    for each coordinate; `dense` where most are different.

    levels: values, counts, keys, gradients (MOST_LEVELS each), scratch of `leveled` (6 of these),
    a table (TABLE,) and the level of each coordinate (n,), of 4 bytes each.
    """
    values: cython.p_double = self.levels
    counts: cython.p_double = values + MOST_LEVELS
    keys: cython.pointer[int64_t] = cython.cast(cython.pointer[int64_t], counts + MOST_LEVELS)
    slopes: cython.p_double = counts + 2 * MOST_LEVELS
    room: cython.p_double = slopes + MOST_LEVELS
    table: cython.pointer[int32_t] = cython.cast(cython.pointer[int32_t], room + 6 * MOST_LEVELS)
    level: cython.pointer[int32_t] = table + TABLE
    found = _find_levels(z, self.n, level, values, counts, keys, table)
    if found < 0:
        self.dense(self, z, step, out)
        return
    self.leveled(self, values, counts, step, slopes, found, room)
    for i in range(self.n):
        out[i] = slopes[level[i]]


def _each_level(self, values, counts, step, out, levels, room):
    """Of a sum over coordinates: each number by itself."""
    part: Gradient = self[0]
    part.n = levels
    self.dense(cython.address(part), values, step, out)


def _mean_weight(self, begin, end):
    """The mean of the weights of places `begin` to below `end` of a generalised Gini function.

    params: prefix sums (n + 1,), or a law (a, b, c, first) of the weights: that of place j (from 0)
    is (a + b (2 j + 1))/c, and the first one has `first` besides.
    """
    size = end - begin
    law: In = self.params
    if not self.lawful:
        return (law[cython.cast(Size, end)] - law[cython.cast(Size, begin)]) / size
    mean = (law[0] + law[1] * (begin + end)) / law[2]
    return mean + law[3] / size if begin == 0.0 else mean


def _gini_levels(self, values, counts, step, out, levels, room):
    """`_pooled_gradient` where each of the runs of equal numbers is one number with its count.

    room: the order, spare, keys, other (levels,) each, cumulated counts (levels + 1,).
    """
    order: cython.pointer[int64_t] = cython.cast(cython.pointer[int64_t], room)
    firsts: cython.pointer[int64_t] = order + MOST_LEVELS
    keys: cython.p_double = room + 2 * MOST_LEVELS
    excess: cython.p_double = room + 3 * MOST_LEVELS
    ends: cython.p_double = room + 4 * MOST_LEVELS
    blocks: Size = 0
    for r in range(levels):
        order[r] = r
    _sort_kept(values, order, firsts, keys, excess, levels)
    ends[0] = 0.0
    for r in range(levels):
        ends[r + 1] = ends[r] + counts[order[r]]
    for r in range(levels):
        first = r
        surplus = keys[r] - keys[r]  # 0, if it is a number
        while blocks > 0 and step > 0.0:
            before = cython.cast(Size, firsts[blocks - 1])
            n_before = ends[first] - ends[before]
            n_here = ends[r + 1] - ends[first]
            rise = (keys[first] - keys[before]) * n_here + surplus
            pull_before = step * n_before * _mean_weight(self, ends[before], ends[first])
            pull_here = step * n_here * _mean_weight(self, ends[first], ends[r + 1])
            if (excess[blocks - 1] + pull_before) * n_here < (rise + pull_here) * n_before:
                break
            surplus = excess[blocks - 1] + rise
            first = before
            blocks -= 1
        firsts[blocks] = first
        excess[blocks] = surplus
        blocks += 1
    for b in range(blocks):
        first = cython.cast(Size, firsts[b])
        stop = cython.cast(Size, firsts[b + 1]) if b + 1 < blocks else levels
        size = ends[stop] - ends[first]
        weight = _mean_weight(self, ends[first], ends[stop])
        mean = excess[b] / size
        for r in range(first, stop):
            out[order[r]] = weight
            if excess[b] != 0.0:
                out[order[r]] = weight + (mean - (keys[r] - keys[first])) / step


def _exposure_levels(self, values, counts, step, out, levels, room):
    """`_equal_exposure` of numbers with counts."""
    mean: Real = 0.0
    square: Real = 0.0
    scale: Real = 0.0
    for i in range(levels):
        mean += counts[i] * values[i]
    mean /= self.n
    for i in range(levels):
        out[i] = values[i] - mean
        square += counts[i] * out[i] * out[i]
    norm = sqrt(square)
    if norm > 0.0 and levels > 1:
        scale = -1.0 / (self.n * norm)
        if step > 0.0:
            scale = -smaller(-scale, 1.0 / step)
    for i in range(levels):
        out[i] *= scale


def _penalised(self, z, step, out):
    """sign min(missing/step, penalty) with missing = sign (level - z) > 0, else 0.

    params: penalty, sign (+1 floor, -1 ceiling), levels (n,).
    """
    n: Size = self.n
    penalty: Real = self.params[0]
    sign: Real = self.params[1]
    levels: In = self.params + 2
    for i in range(n):
        missing = sign * (levels[i] - z[i])
        if missing <= 0.0:
            out[i] = 0.0
        elif step == 0.0:
            out[i] = sign * penalty
        else:
            out[i] = sign * smaller(missing / step, penalty)


def _bounded(self, z, step, out):
    """(projection - z)/(step width), row by row; without a step 0 inside and NaN outside.

    params (4 n,): low, high, widths, margins. A margin narrows its row by step times itself.
    """
    n: Size = self.n
    params: In = self.params
    for i in range(n):
        room = step * params[3 * n + i]
        low, high = params[i] + room, params[n + i] - room
        out[i] = pulled_inside(z[i], low, high, step, params[2 * n + i])


def _rates(self, z, step, out):
    """`_bounded` for rates per the last row: margins are times that row, which is free.

    data: what the widths are multiplied by, where prices run.
    """
    n: Size = self.n
    params: In = self.params
    factors: cython.p_double = cython.cast(cython.p_double, self.data)
    for i in range(n - 1):
        room = step * params[3 * n + i] * larger(z[n - 1], 0.0)
        low, high = params[i] + room, params[n + i] - room
        width = params[2 * n + i]
        if factors is not cython.NULL:
            width *= factors[i]
        out[i] = pulled_inside(z[i], low, high, step, width)
    out[n - 1] = 0.0


def _outside(self, z, step, out):
    """A C function from elsewhere; smooth as it is."""
    self.function(z, self.n, out, self.data)


def _python(self, z, step, out):
    """A Python function. An exception is kept for whoever called from Python, and NaN written;
    until it is raised, the function is not called again.
    """
    fill(NAN, out, self.n)
    if self.failed:
        return
    with cython.gil:
        _call(cython.cast(Tree, cython.cast(cython.pointer[PyObject], self.data)), z, step, out)


# --- combinations -----------------------------------------------------------------------------


def _combined(self, z, step, out):
    """Sum over parts of c grad f_(c step)(z[where]): the smoothing of c f is c f_(c step).

    work: the gradient of a part, its coordinates where they are listed.
    """
    g: cython.p_double = self.work
    x: cython.p_double
    part: Node
    listed: cython.pointer[cython.const[Size]]
    fill(0.0, out, self.n)
    for k in range(self.n_parts):
        part = self.parts[k]
        c = self.scales[k]
        listed = self.lists[k]
        if listed is cython.NULL:
            part.call(part, z + self.places[k], c * step, g)
            add_scaled(c, g, out + self.places[k], part.n)
            continue
        x = self.work + padded(part.n)
        for i in range(part.n):
            x[i] = z[listed[i]]
        part.call(part, x, c * step, g)
        for i in range(part.n):
            out[listed[i]] += c * g[i]


def _times(self, z, out):
    """out = M z of a map. z (n,), out: a number for each row."""
    for r in range(self.parts[0].n):
        total = 0.0
        for k in range(self.begins[r], self.begins[r + 1]):
            total += self.values[k] * z[self.columns[k]]
        out[r] = total


def _transposed_times(self, x, out):
    """out = M' x of a map. x: a number for each row, out (n,)."""
    fill(0.0, out, self.n)
    for r in range(self.parts[0].n):
        for k in range(self.begins[r], self.begins[r + 1]):
            out[self.columns[k]] += self.values[k] * x[r]


def _mapped(self, z, step, out):
    """M' grad f_step(M z). work: M z, the gradient of f."""
    part: Node = self.parts[0]
    g: cython.p_double = self.work + padded(part.n)
    _times(self, z, self.work)
    part.call(part, self.work, step, g)
    _transposed_times(self, g, out)


def _stacked(self, z, step, out):
    """c_i grad f_i block by block, each smoothed with step c_i times its own width (params)."""
    block: cython.p_double
    part: Node
    for k in range(self.n_parts):
        part = self.parts[k]
        c = self.scales[k]
        block = out + self.places[k]
        part.call(part, z + self.places[k], step * c * self.params[k], block)
        for i in range(part.n):
            block[i] *= c


def _by_leaf(self, z, step):
    """The gradient g of every leaf at its shifted point A z - step widths y: in work, after it.

    params: widths, times `factors`; data: the prices y.
    """
    leaves: Node = self.parts[0]
    x: cython.p_double = self.work
    g: cython.p_double = self.work + padded(leaves.n)
    prices: cython.p_double = cython.cast(cython.p_double, self.data)
    _times(self, z, x)
    for i in range(self.n_prices):
        x[i] -= step * self.params[i] * self.factors[i] * prices[i]
    leaves.call(leaves, x, step, g)
    return g


def _priced(self, z, step, out):
    """The direction A' g."""
    _transposed_times(self, _by_leaf(self, z, step), out)


# --- randomised smoothing ---------------------------------------------------------------------


def sampled(f, z, radius, normals, samples, n, point, spare, out):
    """Mean of the supergradients at points of the ball around z, one for each row of normals.

    The first n coordinates of a uniform point of the sphere in R^(n + 2) are uniform in the ball.

    z, point, spare, out (n,), normals (samples, n + 2).
    """
    fill(0.0, out, n)
    for s in range(samples):
        row: In = normals + s * (n + 2)
        square = 0.0
        for i in range(n + 2):
            square += row[i] * row[i]
        scale = radius / sqrt(square)
        for i in range(n):
            point[i] = z[i] + scale * row[i]
        f.call(f, point, 0.0, spare)
        add_scaled(1.0 / samples, spare, out, n)


def all_finite(g, n):
    """Whether all of g (n,) are finite."""
    infinite: int64_t = 0
    for i in range(n):  # all are compared, many at once
        infinite += 0 if fabs(g[i]) < INFINITY else 1
    return infinite == 0


# --- trees ------------------------------------------------------------------------------------


def _call(owner, z, step, out):
    """Call the function of a Python leaf at a copy of z; out stays NaN where it raises."""
    if owner.inside:
        _keep(owner, InvalidInput("a gradient function was called again before it had returned"))
        return
    owner.inside = True
    owner.calls += 1
    try:
        given = np.empty(owner.n)  # a copy, which the function may keep or change
        point: OutVector = given
        memcpy(cython.address(point[0]), z, 8 * owner.n)
        function = owner.kept[0]
        got = np.asarray(function(given, step) if owner.takes_step else function(given))
        if got.shape != given.shape:
            raise InvalidInput(
                f"a gradient function returned shape {got.shape} for a z of length {owner.n}; "
                "return one number for each coordinate"
            )
        result: Vector = np.ascontiguousarray(got, dtype=np.float64)
        memcpy(out, cython.address(result[0]), 8 * owner.n)
    except BaseException as error:
        _keep(owner, error)
    finally:
        owner.inside = False


def _keep(owner, error):
    if owner.error is None:
        owner.error = error
    owner.own.failed = True


@cython.cclass
class Tree:
    """The smoothed gradient of an expression of n coordinates, with its scratch.

    Made by the functions of this module, or by `Concave.tree`. It serves one thread at a time.
    """

    def __cinit__(self) -> None:
        memset(cython.address(self.own), 0, cython.sizeof(Gradient))
        self.own.call = _unset
        self.n = 0
        self.depth = 1
        self.calls_python = False
        self.callers = ()
        self.below = ()
        self.kept = []
        self.calling = cython.NULL
        self.n_calling = 0

    @property
    def callbacks(self) -> int:
        """How many times Python functions were called, over the whole tree."""
        total: cython.longlong = 0
        one: Tree
        for one in self.callers:
            total += one.calls
        return total

    def gradient(self, z: Vector, step: cython.double) -> Any:
        """The smoothed gradient at z (n,); step 0: a supergradient. Raises what a leaf raised."""
        return self.repeat(z, step, 1)

    def repeat(self, z: Vector, step: cython.double, times: cython.Py_ssize_t) -> Any:
        """`gradient`, computed several times: for the measurement of its cost."""
        result = np.empty(self.n)
        out: OutVector = result
        self.acquire(z.shape[0])
        with cython.nogil:
            for _ in range(times):
                self.own.call(
                    cython.address(self.own), cython.address(z[0]), step, cython.address(out[0])
                )
        self.release()
        return result

    def acquire(self, n: Size) -> cython.void:
        """Raise where the tree cannot be called from Python at n numbers; else it is busy now."""
        if n != self.n:
            raise ValueError(f"z has {n} numbers, and the gradient takes {self.n}")
        if self.taken:
            raise InvalidInput("this gradient is a part of another one; call that one")
        if self.busy:
            raise InvalidInput(
                "this gradient is being computed; a tree serves one thread at a time"
            )
        self.busy = True

    def release(self) -> cython.void:
        """End what `acquire` began; raise what a leaf raised."""
        self.busy = False
        if self.calls_python:
            self.raise_failure()

    def raise_failure(self) -> None:
        """Raise the first exception that a Python leaf kept, and forget all of them."""
        first: Any = None
        one: Tree
        for one in self.callers:
            if first is None:
                first = one.error
            one.error = None
            one.own.failed = False
        if first is not None:
            raise first

    def has_failed(self) -> cython.bint:
        """Whether a Python leaf keeps an exception; it needs no lock."""
        for k in range(self.n_calling):
            if self.calling[k].failed:
                return True
        return False


@cython.cclass
class Zeros:
    """Memory that is 0, and that no page of the machine holds before it is used."""

    def __init__(self, n: cython.Py_ssize_t) -> None:
        free(self.at)
        self.at = cython.cast(cython.p_double, calloc(n, 8))
        if self.at == cython.NULL:
            raise MemoryError

    def __dealloc__(self) -> None:
        free(self.at)


def _reals(tree, n):
    """Zeros that begin on a cache line, alive as long as the tree."""
    zeros: Zeros = Zeros(n + 8)
    at: uintptr_t = cython.cast(uintptr_t, zeros.at)
    tree.kept.append(zeros)
    return cython.cast(cython.p_double, (at + 63) & ~cython.cast(uintptr_t, 63))


def _numbers(tree, values):
    """A copy of numbers, alive as long as the tree."""
    view: Vector = np.ascontiguousarray(values, dtype=np.float64)
    out: cython.p_double = _reals(tree, view.shape[0])
    for i in range(view.shape[0]):
        out[i] = view[i]
    return out


def _whole(tree, values, most):
    """A copy of whole numbers from 0 to below `most`, alive as long as the tree."""
    copied = np.array(values, dtype=np.intp, ndmin=1)
    view: cython.Py_ssize_t[::1] = np.append(copied, 0)  # so that there is a first one
    for i in range(view.shape[0] - 1):
        if not 0 <= view[i] < most:
            raise ValueError(f"{view[i]} is not from 0 to {most - 1}")
    tree.kept.append(view.base)
    return cython.cast(cython.pointer[Size], cython.address(view[0]))


@cython.cfunc
def _trees(parts: Any) -> tuple[Any, ...]:
    """Parts, of which none is None or something else: nobody looks again."""
    for one in parts:
        if not isinstance(one, Tree):
            raise TypeError(f"a part is {one!r:.80}; give a Tree")
    return tuple(parts)


def _join(tree, parts):
    """Take parts into a tree: they are its own from then on."""
    one: Tree
    tree.below = _trees(parts)
    found: list[Any] = []
    for one in tree.below:
        if one.taken:
            raise ValueError("a gradient was given as a part twice; make one for each")
        if one.depth >= MOST_NESTED:
            raise InvalidInput(
                f"the objective is nested more than {MOST_NESTED} deep; write sums as Sum(terms)"
            )
        one.taken = True
        tree.depth = max(tree.depth, 1 + one.depth)
        found.extend(one.callers)
    tree.own.n_parts = len(tree.below)
    tree.own.parts = cython.cast(cython.pointer[Node], _reals(tree, tree.own.n_parts))
    for k in range(tree.own.n_parts):
        one = tree.below[k]
        tree.own.parts[k] = cython.address(one.own)
    _listen(tree, found)


def _listen(tree, callers):
    """Remember the Python leaves of a tree."""
    one: Tree
    tree.callers = tuple(callers)
    tree.calls_python = len(callers) > 0
    tree.n_calling = len(callers)
    tree.calling = cython.cast(cython.pointer[Node], _reals(tree, len(callers)))
    for k in range(tree.n_calling):
        one = callers[k]
        tree.calling[k] = cython.address(one.own)


@cython.cfunc
def _new(n: Size) -> Tree:
    tree: Tree = Tree.__new__(Tree)
    _set_size(tree, n)
    return tree


def _set_size(tree, n):
    if n < 1:
        raise ValueError(f"a gradient has {n} coordinates; at least one is needed")
    tree.n = n
    tree.own.n = n


def leaf(form: str, n: cython.Py_ssize_t, params: Any = ()) -> Tree:
    """A leaf that is compiled: its form, its coordinates, its numbers.

    forms and their params: linear (n,), generalized_gini (n + 1,), or a law of its weights from
    MANY on, equal_exposure (0,), welfare (2,), nash (1,), penalised (2 + n,), bounded and rates
    (4 n,). From MANY coordinates on equal ones are treated together, where that is possible.
    """
    tree: Tree = _new(n)
    own: Node = cython.address(tree.own)
    if form == "linear":
        own.call, wanted = _linear, n
    elif form == "generalized_gini":
        own.call, own.leveled, wanted = _generalized_gini, _gini_levels, n + 1
        own.lawful = np.shape(params) == (LAW,) and n >= MANY
        wanted = LAW if own.lawful else n + 1
        own.work = _reals(tree, 5 * padded(n) + 8)
    elif form == "equal_exposure":
        own.call, own.leveled, wanted = _equal_exposure, _exposure_levels, 0
    elif form == "welfare":
        own.call, own.leveled, wanted = _welfare, _each_level, 2
    elif form == "nash":
        own.call, own.leveled, wanted = _nash, _each_level, 1
    elif form == "penalised":
        own.call, wanted = _penalised, 2 + n
    elif form == "bounded":
        own.call, wanted = _bounded, 4 * n
    elif form == "rates":
        own.call, wanted = _rates, 4 * n
    else:
        raise ValueError(f"there is no compiled leaf {form!r}")
    if np.shape(params) != (wanted,):
        raise ValueError(f"{form} of {n} has params of shape ({wanted},), not {np.shape(params)}")
    own.params = _numbers(tree, params)
    if n >= MANY and own.leveled != cython.NULL:
        own.dense, own.call = own.call, _by_levels
        own.levels = _reals(tree, 10 * MOST_LEVELS + (TABLE + n + 1) // 2)
    return tree


def python(n: cython.Py_ssize_t, function: Callable[..., Any], takes_step: bool = False) -> Tree:
    """A leaf that is a Python function: of z, or with `takes_step` of z and step.

    It is given a copy of z, and returns n numbers. What it raises is raised by whoever calls the
    tree from Python. About a microsecond a call, besides the function itself.
    """
    tree: Tree = _new(n)
    tree.own.call = _python
    tree.own.data = cython.cast(cython.p_void, tree)  # borrowed: an object does not own itself
    tree.takes_step = takes_step
    tree.kept.append(function)
    _listen(tree, [tree])
    return tree


def outside(n: cython.Py_ssize_t, function: Any) -> Tree:
    """A leaf that is a C function: ``void (const double *z, Py_ssize_t n, double *out, void *)``.

    function: a `scipy.LowLevelCallable`, a function of ctypes, or an address, which is taken at
    its word. It must be free of side effects on z, and need no lock.
    """
    tree: Tree = _new(n)
    name: cython.pointer[cython.const[cython.char]]
    address: uintptr_t
    if isinstance(function, tuple) and is_outside(function):
        capsule = tuple.__getitem__(function, 0)
        name = PyCapsule_GetName(capsule)
        if name is cython.NULL:
            raise InvalidInput(f"{function!r} has no signature; give it {SIGNATURE!r}")
        _require_signature(cython.cast(bytes, name).decode())
        tree.own.function = cython.cast(Outside, PyCapsule_GetPointer(capsule, name))
        tree.own.data = PyCapsule_GetContext(capsule)
    else:
        if is_outside(function):
            _require_signature(_ctypes_signature(function))
            given = ctypes.cast(function, ctypes.c_void_p).value
        elif isinstance(function, int) and not isinstance(function, bool):
            given = function
        else:
            raise InvalidInput(
                f"{function!r:.80} is not a C function; give a scipy.LowLevelCallable or a "
                f"function of ctypes with the signature {SIGNATURE!r}"
            )
        if not given or given < 0:
            raise InvalidInput(f"{function!r:.80} is not the address of a function")
        address = given
        tree.own.function = cython.cast(Outside, cython.cast(cython.p_void, address))
    tree.own.call = _outside
    tree.kept.append(function)
    return tree


def is_outside(function: Any) -> bool:
    """Whether it is a `scipy.LowLevelCallable` or a function of ctypes."""
    if isinstance(function, tuple):
        from scipy import LowLevelCallable

        return isinstance(function, LowLevelCallable)
    return isinstance(function, _CFuncPtr)


_SIZES = {"Py_ssize_t", "ssize_t", "intptr_t", "ptrdiff_t"}
_SIZES |= {
    name
    for name, kind in (
        ("int", ctypes.c_int),
        ("long", ctypes.c_long),
        ("longlong", ctypes.c_longlong),
        ("long long", ctypes.c_longlong),
        ("int64_t", ctypes.c_int64),
        ("int64", ctypes.c_int64),
    )
    if ctypes.sizeof(kind) == ctypes.sizeof(ctypes.c_ssize_t)
}


def _require_signature(given: str) -> None:
    """Refuse another signature: spaces, const and names of arguments do not matter."""
    if c_types(given) != ["void", "double *", "Py_ssize_t", "double *", "void *"]:
        raise InvalidInput(
            f"the C function has the signature {given!r}; a gradient needs {SIGNATURE!r}, where "
            "out has n numbers"
        )


def c_types(signature: str) -> list[str]:
    """The types of a signature in one spelling, first what is returned; none where it is not one.

    >>> c_types("void (const double *z, long n)")
    ['void', 'double *', 'Py_ssize_t']
    """
    match = re.fullmatch(r"\s*([\w ]+?)\s*\((.*)\)\s*(noexcept)?\s*(nogil)?\s*", signature)
    return [_plain(one) for one in (match[1], *match[2].split(","))] if match else []


def _plain(argument: str) -> str:
    """The type of an argument in one spelling."""
    text = re.sub(r"\b(const|restrict|__restrict|__restrict__)\b", " ", argument)
    pointer = re.fullmatch(r"\s*(double|void)\s*\*\s*(\w+)?\s*", text)
    if pointer:
        return f"{pointer[1]} *"
    words = text.split()
    for spelled in (" ".join(words), " ".join(words[: len(words) - 1])):  # with and without a name
        if spelled in _SIZES:
            return "Py_ssize_t"
        if spelled == "double":
            return "double"
    return " ".join(words)


def _ctypes_signature(function: Any) -> str:
    """The signature of a function of ctypes."""
    takes = function.argtypes
    if takes is None:
        raise InvalidInput(
            f"{function!r:.80} says nothing of its arguments; set its argtypes and restype, for "
            f"the signature {SIGNATURE!r}"
        )
    names = [_ctypes_name(one) for one in (function.restype, *takes)]
    return f"{names[0]} ({', '.join(names[1:])})"


def _ctypes_name(kind: Any) -> str:
    if kind is None:
        return "void"
    if kind is ctypes.c_void_p:
        return "void *"
    if kind is ctypes.POINTER(ctypes.c_double):
        return "double *"
    return str(kind.__name__).removeprefix("c_")


def combined(n: cython.Py_ssize_t, parts: Sequence[tuple[float, Tree, Any]]) -> Tree:
    """sum_k c_k grad f_k(z[where_k]), each smoothed with c_k step.

    parts: (c, tree, where); where is the first of consecutive coordinates, or a list of all.
    """
    widest: Size = 0
    one: Tree
    listed: cython.bint = False
    tree: Tree = _new(n)
    own: Node = cython.address(tree.own)
    _join(tree, [part for _, part, _ in parts])
    own.call = _combined
    own.scales = _numbers(tree, [scale for scale, _, _ in parts])
    places: list[Any] = [where if isinstance(where, int) else 0 for _, _, where in parts]
    own.places = _whole(tree, places, n)
    own.lists = cython.cast(
        cython.pointer[cython.pointer[cython.const[Size]]], _reals(tree, own.n_parts)
    )
    for k in range(own.n_parts):
        _, one, where = parts[k]
        widest = max(widest, one.n)
        if isinstance(where, int):
            if where + one.n > n:
                raise ValueError(f"a part has coordinates {where} to {where + one.n - 1} of {n}")
        else:
            if len(where) != one.n:
                raise ValueError(f"a part of {one.n} coordinates has {len(where)} places")
            own.lists[k] = _whole(tree, where, n)
            listed = True
    own.work = _reals(tree, padded(widest) * (2 if listed else 1))
    return tree


def _set_matrix(tree, own, matrix, rows):
    """Copy a matrix that is given by rows, with `rows` rows and n columns."""
    begins, columns, values = matrix
    if len(begins) != rows + 1 or len(columns) != len(values) or begins[0] != 0:
        raise ValueError(f"the matrix does not have {rows} rows")
    if begins[rows] != len(values):
        raise ValueError(f"the matrix has {len(values)} entries, not {begins[rows]}")
    own.begins = _whole(tree, begins, len(values) + 1)
    for k in range(rows):
        if own.begins[k] > own.begins[k + 1]:
            raise ValueError("the rows of the matrix are not in order")
    own.columns = _whole(tree, columns, own.n)
    own.values = _numbers(tree, values)


def mapped(n: cython.Py_ssize_t, matrix: tuple[Any, Any, Any], part: Tree) -> Tree:
    """M' grad f(M z). matrix: M by rows: where each begins (rows + 1,), columns, values."""
    tree: Tree = _new(n)
    own: Node = cython.address(tree.own)
    _set_matrix(tree, own, matrix, part.n)
    _join(tree, [part])
    own.call = _mapped
    own.work = _reals(tree, 2 * padded(part.n))
    return tree


def stacked(parts: Sequence[tuple[float, float, Tree]]) -> Tree:
    """c_i grad f_i, block by block, each smoothed with step c_i width_i.

    parts: (c, width, tree).
    """
    one: Tree
    n: Size = 0
    starts: list[Any] = []
    for one in _trees([part for _, _, part in parts]):
        starts.append(n)
        n += one.n
    tree: Tree = _new(n)
    own: Node = cython.address(tree.own)
    _join(tree, [part for _, _, part in parts])
    own.call = _stacked
    own.scales = _numbers(tree, [scale for scale, _, _ in parts])
    own.params = _numbers(tree, [width for _, width, _ in parts])
    own.places = _whole(tree, starts, n)
    return tree


@cython.cclass
class PricedTree(Tree):
    """The direction of leaves with running prices y: A' g with g = grad F_b(A z - b y).

    F is the sum of the leaves, block by block; those that have prices come first. `moving` are
    these alone. prices (n_prices,) is the caller's array, which `move` changes. matrix,
    moving_matrix: A and its first rows, by rows (see `mapped`). widths, rates, caps (n_prices,).

    factors (n_prices,) is the caller's too: what widths are multiplied by. denominators (any, 3),
    for each leaf of rates: its first row, the row of its denominator, and the largest value of
    that. The factor of a rate is the average of its denominator, in parts of the largest value,
    as `renew` found it; that of the denominator is what the largest of these hardly is below.
    """

    def __init__(
        self,
        n: cython.Py_ssize_t,
        leaves: Tree,
        matrix: tuple[Any, Any, Any],
        moving: Tree,
        moving_matrix: tuple[Any, Any, Any],
        prices: OutVector,
        factors: OutVector,
        widths: Any,
        rates: Any,
        caps: Any,
        denominators: Any = (),
    ) -> None:
        size: Size = prices.shape[0]
        if self.own.n_parts:
            raise ValueError("a PricedTree is made once")
        if size < 1 or size != moving.n or size > leaves.n:
            raise ValueError(f"{size} prices, for {moving.n} of {leaves.n} rows of leaves")
        if not len(widths) == len(rates) == len(caps) == factors.shape[0] == size:
            raise ValueError(f"each of the {size} prices has a width, a rate and a cap")
        _set_size(self, n)
        own: Node = cython.address(self.own)
        _set_matrix(self, own, matrix, leaves.n)
        _join(self, [leaves, moving])
        own.params = _numbers(self, widths)
        own.work = _reals(self, 2 * padded(leaves.n))
        own.data = cython.cast(cython.p_void, cython.address(prices[0]))
        own.factors = cython.address(factors[0])
        own.n_prices = size
        own.call = _priced
        self.moving = self.own
        _set_matrix(self, cython.address(self.moving), moving_matrix, moving.n)
        self.moving.parts, self.moving.n_parts = own.parts + 1, 1
        self.moving.work = _reals(self, 2 * padded(moving.n))
        self._moving_leaves = moving
        self.rates = _numbers(self, rates)
        self.caps = _numbers(self, caps)
        self.kept.append((prices.base, factors.base))
        self.n_prices = size
        self.prices, self.factors = cython.address(prices[0]), cython.address(factors[0])
        self.n_denominators = len(denominators)
        rows = [row for first, last, _ in denominators for row in (first, last)]
        self.places = _whole(self, rows, size)
        self.tops = _numbers(self, [top for _, _, top in denominators])
        for k in range(self.n_denominators):
            self._share_factors(leaves, self.places[2 * k])
            self._share_factors(moving, self.places[2 * k])

    def _share_factors(self, leaves: Tree, first: Size) -> cython.void:
        """Let the leaf of rates that begins at a row read its factors."""
        own: Node = cython.address(leaves.own)
        for k in range(own.n_parts):
            if own.places[k] == first:
                own.parts[k].data = cython.cast(cython.p_void, self.factors + first)

    def read_gradients(self, z: At, t: cython.double) -> cython.bint:
        """Take the gradients g that `move` follows; False where a Python leaf failed."""
        _by_leaf(cython.address(self.moving), z, 1.0 / sqrt(t + 1.0))
        return not self._moving_leaves.has_failed()

    def moved(self, i: Size, t: cython.double) -> cython.double:
        """y + rate/(t + 1) (g - y) of price i, within its cap, g of the last `read_gradients`."""
        g: cython.p_double = self.moving.work + padded(self._moving_leaves.n)
        cap = self.caps[i]
        moved = self.prices[i] + self.rates[i] / (t + 1.0) * (g[i] - self.prices[i])
        return smaller(larger(moved, -cap), cap)

    def move(self, t: cython.double) -> cython.void:
        """Every price is `moved`."""
        for i in range(self.n_prices):
            self.prices[i] = self.moved(i, t)

    def is_due(self, t: cython.double) -> cython.bint:
        """Whether factors are taken anew after t answers: there are rates, t is a power of two."""
        whole: int64_t = cython.cast(int64_t, t)
        return self.n_denominators > 0 and whole & (whole - 1) == 0

    def renew(self, z: At, t: cython.double) -> cython.void:
        """Take the factors of rates from the average z of t answers."""
        map: Node = cython.address(self.moving)
        for k in range(self.n_denominators):
            last = self.places[2 * k + 1]
            total = 0.0
            for j in range(map.begins[last], map.begins[last + 1]):
                total += map.values[j] * z[map.columns[j]]
            part = total / self.tops[k]
            for i in range(self.places[2 * k], last):
                self.factors[i] = larger(part, 1.0 / RAREST)
            # Of a count of n = part t the mean is hardly below n - 1.5 sqrt(n).
            least = part - 1.5 * sqrt(larger(part, 0.0) / t)
            self.factors[last] = larger(least, self.factors[last])

    def reprice(self, z: Vector, t: cython.double) -> None:
        """Move the prices, from Python; raises what a leaf raised, and moves none then."""
        self.acquire(z.shape[0])
        with cython.nogil:
            if self.read_gradients(cython.address(z[0]), t):
                self.move(t)
        self.release()


def sampled_gradient(tree: Tree, z: Vector, radius: cython.double, normals: Matrix) -> Any:
    """`sampled`: the mean of supergradients in the ball around z (n,). normals (samples, n + 2)."""
    n: Size = tree.n
    if normals.shape[0] < 1 or normals.shape[1] != n + 2:
        raise ValueError(f"normals have shape ({normals.shape[0]}, {normals.shape[1]})")
    result = np.empty((3, n))
    out: OutMatrix = result
    tree.acquire(z.shape[0])
    with cython.nogil:
        sampled(
            cython.address(tree.own),
            cython.address(z[0]),
            radius,
            cython.address(normals[0, 0]),
            normals.shape[0],
            n,
            cython.address(out[1, 0]),
            cython.address(out[2, 0]),
            cython.address(out[0, 0]),
        )
    tree.release()
    return result[0]
