# cython: language_level=3
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
from cython.cimports.cpython.pycapsule import (
    PyCapsule_GetContext,
    PyCapsule_GetName,
    PyCapsule_GetPointer,
)
from cython.cimports.cpython.ref import PyObject
from cython.cimports.fairwolfe.kernels.types import BLOCK, In, InInts, Ints, Out, Real, Size
from cython.cimports.libc.math import INFINITY, NAN, fabs, fma, pow, sqrt
from cython.cimports.libc.stdint import int64_t, uint64_t, uintptr_t
from cython.cimports.libc.string import memset

from fairwolfe.errors import InvalidInput

_CFuncPtr: Any = ctypes.CFUNCTYPE(None).__mro__[1]  # of every function of ctypes

__all__ = [
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

SIGNATURE = "void (const double *z, Py_ssize_t n, double *out, void *user_data)"
"""Of a gradient from outside the package."""

# --- sorting that remembers, and isotonic regression on it ------------------------------------


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _falls(keys: In, n: Size) -> cython.bint:
    """Whether one of keys[1:n + 1] is smaller than the one before it; all are compared."""
    i: Size
    falls: int64_t = 0
    for i in range(n):
        falls += 1 if keys[i] > keys[i + 1] else 0
    return falls > 0


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _insertion_sort(keys: Out, order: Ints, n: Size) -> cython.bint:
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
        if _falls(keys + start - 1, size):
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


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _radix_sort(
    keys: cython.pointer[uint64_t],
    order: cython.pointer[int64_t],
    other: cython.pointer[uint64_t],
    spare: cython.pointer[int64_t],
    n: Size,
    first: Size,
) -> cython.void:
    """Sort keys, ascending, with their order, by the bytes of their bits: O(n) for any order.

    Bytes below `first` (0 is the least) are not compared, so the result is exact for 0 only.
    keys, order, other, spare (n,).
    """
    counts = cython.declare(int64_t[2048])
    b: uint64_t
    i: Size
    digit: Size
    value: Size
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


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _sort_kept(z: In, order: Ints, spare: Ints, keys: Out, other: Out, n: Size) -> cython.void:
    """Make `order` an ascending order of z, and `keys` the sorted z, starting from that order.

    O(n) while the order of z changes little between calls. `order` must be a permutation; `spare`
    and `other` are scratch. z, order, spare, keys, other (n,).
    """
    j: Size
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


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _spread(
    sorted_z: Out, order: InInts, size: Size, weight: Real, mean: Real, step: Real, out: Out
) -> cython.void:
    """The gradient on a pooled block, in two loops: the first divides many numbers at once.

    sorted_z, order (size,): of the block; sorted_z is overwritten.
    """
    j: Size
    smallest: Real = sorted_z[0]
    for j in range(size):
        sorted_z[j] = weight + (mean - (sorted_z[j] - smallest)) / step
    for j in range(size):
        out[order[j]] = sorted_z[j]


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _pooled_gradient(
    sorted_z: Out,
    order: Ints,
    step: Real,
    prefix: In,
    starts: Ints,
    excess: Out,
    out: Out,
    n: Size,
) -> cython.void:
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
    start: Size
    before: Size
    n_before: Size
    n_here: Size
    size: Size
    j: Size
    b: Size
    value: Real
    surplus: Real
    rise: Real
    target_before: Real
    target_here: Real
    weight: Real
    mean: Real
    smallest: Real
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


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _larger(a: Real, b: Real) -> Real:
    """b if it is larger, else a: also where a is NaN."""
    return b if b > a else a


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _smaller(a: Real, b: Real) -> Real:
    """b if it is smaller, else a: also where a is NaN."""
    return b if b < a else a


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _copy(x: In, out: Out, n: Size) -> cython.void:
    i: Size
    for i in range(n):
        out[i] = x[i]


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _fill(value: Real, out: Out, n: Size) -> cython.void:
    i: Size
    for i in range(n):
        out[i] = value


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _add_scaled(scale: Real, x: In, out: Out, n: Size) -> cython.void:
    """out += scale x. x, out (n,)."""
    i: Size
    for i in range(n):
        out[i] = fma(scale, x[i], out[i])


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _aligned(n: Size) -> Size:
    """The next multiple of a cache line, in numbers."""
    return (n + 7) & ~cython.cast(Size, 7)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _unset(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """Of a tree that no function of this module made."""
    _fill(NAN, out, self.n)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _linear(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """The gradient w, whatever the smoothing. params: w (n,)."""
    _copy(self.params, out, self.n)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _generalized_gini(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """params: prefix sums of the weights (n + 1,); work: the kept order, scratch."""
    n: Size = self.n
    stride: Size = _aligned(n)
    order: cython.pointer[int64_t] = cython.cast(cython.pointer[int64_t], self.work)
    spare: cython.pointer[int64_t] = order + stride
    keys: cython.p_double = self.work + 2 * stride
    other: cython.p_double = self.work + 3 * stride
    _sort_kept(z, order, spare, keys, other, n)
    _pooled_gradient(keys, order, step, self.params, spare, other, out, n)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _away_from_mean(z: In, step: Real, out: Out, n: Size) -> cython.void:
    """-min(1/n, |Cz|/step) Cz/|Cz| with Cz = z - mean(z), and 0 at equality. z, out (n,)."""
    i: Size
    mean: Real = 0.0
    square: Real = 0.0
    norm: Real
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
            scale = -_smaller(-scale, 1.0 / step)
    for i in range(n):
        out[i] *= scale


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _equal_exposure(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """-min(1/n, |Cz|/step) Cz/|Cz|, and 0 at equality. No params."""
    _away_from_mean(z, step, out, self.n)


# The x with x - r = gain (per_unit x)^-power, for r >= 0: the difference of the two sides is
# increasing and concave in x. `scale` is the root for r = 0, and `force` the right-hand side.


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _guess(r: Real, power: Real, scale: Real) -> Real:
    """Right in value and slope at r = 0, and at infinity; for power <= 1 good to 4 %."""
    return r + scale * (scale / (scale + power / (1.0 + power) * r))


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _halley(x: Real, r: Real, force: Real, power: Real) -> Real:
    """Halley's step, relative to x: it cubes the error, 4 % to 7e-6 to 6e-17 for power <= 1."""
    per_x: Real = 1.0 / x
    miss: Real = (x - r - force) * per_x
    lean: Real = power * force * per_x
    slope: Real = 1.0 + lean
    return -miss * slope / (slope * slope + 0.5 * miss * lean * (1.0 + power))


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _force_after(force: Real, moved: Real, power: Real) -> Real:
    """The force after a last, small step: (1 + moved)^-power by its first terms."""
    rest: Real = 1.0 - 0.5 * (1.0 + power) * moved * (1.0 - (2.0 + power) / 3.0 * moved)
    return force * (1.0 - power * moved * rest)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _forces(x: In, gain: Real, power: Real, out: Out, size: Size) -> cython.void:
    """gain x^-power. One call after the other, so that their latencies overlap."""
    i: Size
    for i in range(size):
        out[i] = gain * pow(x[i], -power)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _guesses(z: In, offset: Real, power: Real, scale: Real, x: Out, size: Size) -> cython.void:
    i: Size
    for i in range(size):
        x[i] = _guess(_larger(z[i] + offset, 0.0), power, scale)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _first_steps(z: In, offset: Real, force: In, power: Real, x: Out, size: Size) -> cython.void:
    i: Size
    for i in range(size):
        x[i] += x[i] * _halley(x[i], _larger(z[i] + offset, 0.0), force[i], power)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _last_steps(
    z: In, offset: Real, force: In, power: Real, x: In, step: Real, out: Out, size: Size
) -> cython.void:
    i: Size
    moved: Real
    for i in range(size):
        moved = _halley(x[i], _larger(z[i] + offset, 0.0), force[i], power)
        out[i] = _force_after(force[i], moved, power) / step


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _two_steps(
    z: In, step: Real, offset: Real, gain: Real, power: Real, scale: Real, out: Out, n: Size
) -> cython.void:
    """The force at the root over step, for per_unit = 1 and power <= 1, where two steps are enough.

    A block of coordinates at a time, so that all but the powers are vector operations. z, out (n,).
    """
    x = cython.declare(cython.double[32])
    force = cython.declare(cython.double[32])
    size: Size
    start: Size = 0
    while start < n:
        size = min(n - start, cython.cast(Size, BLOCK))
        _guesses(z + start, offset, power, scale, x, size)
        _forces(x, gain, power, force, size)
        _first_steps(z + start, offset, force, power, x, size)
        _forces(x, gain, power, force, size)
        _last_steps(z + start, offset, force, power, x, step, out + start, size)
        start += BLOCK


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _many_steps(r: Real, gain: Real, per_unit: Real, power: Real, scale: Real) -> Real:
    """The force at the root, for any power."""
    _: Size
    x: Real = _guess(r, power, scale)
    least: Real = _larger(r, scale)
    force: Real = 0.0
    moved: Real = 0.0
    for _ in range(100):
        force = gain * pow(per_unit * x, -power)
        moved = _halley(x, r, force, power)
        if (1.0 + power) * fabs(moved) <= 2e-5:
            break
        x = _larger(x + x * moved, least)
    return _force_after(force, moved, power)


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _newton(x: Real, y: Real, step: Real) -> Real:
    """Newton's step towards the root of x^3 - y x - step/2."""
    over: Real = fma(x, x, -y)
    return x - fma(x, over, -0.5 * step) / fma(2.0 * x, x, over)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _root_welfare(z: In, step: Real, offset: Real, out: Out, n: Size) -> cython.void:
    """alpha = 1/2: 1/(2 x) with x = sqrt(prox), the root of x^3 - z x - step/2 = 0, for step > 0.

    With z in units of (step/2)^(2/3) the root is a function of z alone. The start is good to 0.4 %
    for z >= 0 and to 2.1 % for z < 0, by fitted coefficients, and each of Newton's four steps
    squares that. There is no branch, so several coordinates are worked on at once.

    z, out (n,).
    """
    i: Size
    y: Real
    above: Real
    below: Real
    bottom: Real
    start: Real
    root: Real
    x: Real
    unit: Real = pow(0.5 * step, 1.0 / 3.0)
    square: Real = unit * unit
    per_square: Real = 1.0 / (unit * unit)
    for i in range(n):
        y = z[i] + offset
        above = _larger(y, 0.0) * per_square
        below = _smaller(-_smaller(y, 0.0) * per_square, 1e100)  # whose square is still a number
        bottom = fma(below, fma(0.6022, below, 0.7696), fma(0.3065, above, 1.0))
        start = fma(0.6022, below, 1.0) / bottom
        root = sqrt(fma(square, start, _larger(y, 0.0)))
        x = root if y >= 0.0 else unit * start
        x = _newton(x, y, step)
        x = _newton(x, y, step)
        x = _newton(x, y, step)
        x = _newton(x, y, step)
        out[i] = 0.5 / x


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _welfare(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """params: alpha, offset. Never as (prox - z)/step, which would lose half the digits.

    The prox is the y >= 0 with y - z = step alpha y^(alpha - 1), and the gradient g is
    alpha y^(alpha - 1). For z < 0 it is g - |z|/step = y/step with y = (alpha/g)^(1/(1 - alpha)),
    an equation of the same form, with another power.
    """
    i: Size
    y: Real
    far: Real
    pull: Real
    dual: Real
    scale: Real
    alpha: Real = self.params[0]
    offset: Real = self.params[1]
    if alpha == 1.0:
        _fill(1.0, out, self.n)
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


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _inverse_prox(z: In, step: Real, offset: Real, out: Out, n: Size) -> cython.void:
    """1/prox of sum_i log(z_i + offset), each branch without cancellation. z, out (n,)."""
    i: Size
    x: Real
    root: Real
    top: Real
    bottom: Real
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


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _nash(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """params: offset. The gradient is 1/prox."""
    _inverse_prox(z, step, self.params[0], out, self.n)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _clipped(
    z: In, step: Real, penalty: Real, sign: Real, levels: In, out: Out, n: Size
) -> cython.void:
    """sign min(missing/step, penalty), missing = sign (level - z) > 0. z, levels, out (n,)."""
    i: Size
    missing: Real
    for i in range(n):
        missing = sign * (levels[i] - z[i])
        if missing <= 0.0:
            out[i] = 0.0
        elif step == 0.0:
            out[i] = sign * penalty
        else:
            out[i] = sign * _smaller(missing / step, penalty)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _penalised(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """params: penalty, sign (+1 floor, -1 ceiling), levels (n,). Slopes up to the penalty."""
    _clipped(z, step, self.params[0], self.params[1], self.params + 2, out, self.n)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _projected(z: In, step: Real, params: In, out: Out, n: Size) -> cython.void:
    """(projection - z)/(step width), row by row. z, out (n,), params (4 n,)."""
    i: Size
    low: Real
    high: Real
    room: Real
    away: Real
    for i in range(n):
        room = step * params[3 * n + i]
        low = params[i] + room
        high = params[n + i] - room
        if low > high:  # margins meet in the middle
            low = 0.5 * (low + high)
            high = low
        away = 0.0
        if z[i] < low:
            away = low - z[i]
        elif z[i] > high:
            away = high - z[i]
        if away == 0.0:
            out[i] = 0.0
        elif step == 0.0:
            out[i] = NAN
        else:
            out[i] = away / (step * params[2 * n + i])


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _bounded(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """(projection - z)/(step width), row by row; without a step 0 inside and NaN outside.

    params (4 n,): low, high, widths, margins. A margin narrows its row by step times itself.
    """
    _projected(z, step, self.params, out, self.n)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _outside(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """A C function from elsewhere; smooth as it is."""
    self.function(z, self.n, out, self.data)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _python(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """A Python function. An exception is kept for whoever called from Python, and NaN written;
    until it is raised, the function is not called again.
    """
    _fill(NAN, out, self.n)
    if self.failed:
        return
    with cython.gil:
        _call(cython.cast(Tree, cython.cast(cython.pointer[PyObject], self.data)), z, step, out)


# --- combinations -----------------------------------------------------------------------------


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _combined(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """Sum over parts of c grad f_(c step)(z[where]): the smoothing of c f is c f_(c step).

    work: the gradient of a part, its coordinates where they are listed.
    """
    k: Size
    i: Size
    c: Real
    g: cython.p_double = self.work
    x: cython.p_double
    part: Node
    listed: cython.pointer[cython.const[Size]]
    _fill(0.0, out, self.n)
    for k in range(self.n_parts):
        part = self.parts[k]
        c = self.scales[k]
        listed = self.lists[k]
        if listed is cython.NULL:
            part.call(part, z + self.places[k], c * step, g)
            _add_scaled(c, g, out + self.places[k], part.n)
            continue
        x = self.work + _aligned(part.n)
        for i in range(part.n):
            x[i] = z[listed[i]]
        part.call(part, x, c * step, g)
        for i in range(part.n):
            out[listed[i]] += c * g[i]


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _times(
    begins: cython.pointer[cython.const[Size]],
    columns: cython.pointer[cython.const[Size]],
    values: In,
    z: At,
    out: Out,
    rows: Size,
) -> cython.void:
    """out = M z. begins (rows + 1,), columns, values (entries,), out (rows,)."""
    r: Size
    k: Size
    total: Real
    for r in range(rows):
        total = 0.0
        for k in range(begins[r], begins[r + 1]):
            total += values[k] * z[columns[k]]
        out[r] = total


@cython.nogil
@cython.inline
@cython.cfunc
@cython.exceptval(check=False)
def _turned_times(
    begins: cython.pointer[cython.const[Size]],
    columns: cython.pointer[cython.const[Size]],
    values: In,
    x: In,
    out: Out,
    rows: Size,
    n: Size,
) -> cython.void:
    """out = M' x. begins (rows + 1,), columns, values (entries,), x (rows,), out (n,)."""
    r: Size
    k: Size
    _fill(0.0, out, n)
    for r in range(rows):
        for k in range(begins[r], begins[r + 1]):
            out[columns[k]] += values[k] * x[r]


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _mapped(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """M' grad f_step(M z). work: M z, the gradient of f."""
    part: Node = self.parts[0]
    g: cython.p_double = self.work + _aligned(part.n)
    _times(self.begins, self.columns, self.values, z, self.work, part.n)
    part.call(part, self.work, step, g)
    _turned_times(self.begins, self.columns, self.values, g, out, part.n, self.n)


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _stacked(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """c_i grad f_i block by block, each smoothed with step c_i times its own width (params)."""
    k: Size
    i: Size
    c: Real
    block: cython.p_double
    part: Node
    for k in range(self.n_parts):
        part = self.parts[k]
        c = self.scales[k]
        block = out + self.places[k]
        part.call(part, z + self.places[k], step * c * self.params[k], block)
        for i in range(part.n):
            block[i] *= c


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _by_leaf(
    self: Node,
    z: At,
    step: Real,
) -> cython.p_double:
    """The gradient g of every leaf at its shifted point A z - step widths y: in work, after it.

    params: widths; data: the prices y.
    """
    i: Size
    leaves: Node = self.parts[0]
    x: cython.p_double = self.work
    g: cython.p_double = self.work + _aligned(leaves.n)
    prices: cython.p_double = cython.cast(cython.p_double, self.data)
    _times(self.begins, self.columns, self.values, z, x, leaves.n)
    for i in range(self.n_prices):
        x[i] -= step * self.params[i] * prices[i]
    leaves.call(leaves, x, step, g)
    return g


@cython.nogil
@cython.cfunc
@cython.exceptval(check=False)
def _priced(self: Node, z: At, step: cython.double, out: cython.p_double) -> cython.void:
    """The direction A' g."""
    g: cython.p_double = _by_leaf(self, z, step)
    _turned_times(self.begins, self.columns, self.values, g, out, self.parts[0].n, self.n)


# --- randomised smoothing ---------------------------------------------------------------------


def in_ball(
    normals: In,
    z: At,
    radius: Real,
    out: Out,
    n: Size,
) -> cython.void:
    """A point of the ball around z from n + 2 normal draws.

    The first n coordinates of a uniform point of the sphere in R^(n + 2) are uniform in the ball.

    normals (n + 2,), z, out (n,).
    """
    i: Size
    scale: Real
    square: Real = 0.0
    for i in range(n + 2):
        square += normals[i] * normals[i]
    scale = radius / sqrt(square)
    for i in range(n):
        out[i] = z[i] + scale * normals[i]


def sampled(
    f: Node,
    z: In,
    radius: Real,
    normals: In,
    samples: Size,
    n: Size,
    point: Out,
    spare: Out,
    out: Out,
) -> cython.void:
    """Mean of the supergradients at points of the ball, one for each row of normals.

    z, point, spare, out (n,), normals (samples, n + 2).
    """
    s: Size
    _fill(0.0, out, n)
    for s in range(samples):
        in_ball(normals + s * (n + 2), z, radius, point, n)
        f.call(f, point, 0.0, spare)
        _add_scaled(1.0 / samples, spare, out, n)


def all_finite(g: In, n: Size) -> cython.bint:
    """Whether all of g (n,) are finite."""
    i: Size
    infinite: int64_t = 0
    for i in range(n):  # all are compared, many at once
        infinite += 0 if fabs(g[i]) < INFINITY else 1
    return infinite == 0


# --- trees ------------------------------------------------------------------------------------


@cython.cfunc
def _call(
    owner: Tree,
    z: At,
    step: cython.double,
    out: cython.p_double,
) -> cython.void:
    """Call the function of a Python leaf at a copy of z; out stays NaN where it raises."""
    if owner.inside:
        _keep(owner, InvalidInput("a gradient function was called again before it had returned"))
        return
    owner.inside = True
    owner.calls += 1
    try:
        function, point, result = owner.kept[0]
        _copy(z, owner.own.work, owner.n)
        given = point.copy()  # the function may keep or change it
        got = np.asarray(function(given, step) if owner.takes_step else function(given))
        if got.shape != result.shape:
            raise InvalidInput(
                f"a gradient function returned shape {got.shape} for a z of length {owner.n}; "
                "return one number for each coordinate"
            )
        result[:] = got
        _copy(owner.own.work + _aligned(owner.n), out, owner.n)
    except BaseException as error:
        _keep(owner, error)
    finally:
        owner.inside = False


@cython.cfunc
def _keep(owner: Tree, error: Any) -> cython.void:
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

    def gradient(self, z: cython.const[cython.double][::1], step: cython.double) -> Any:  # type: ignore[valid-type]
        """The smoothed gradient at z (n,); step 0: a supergradient. Raises what a leaf raised."""
        return self.repeat(z, step, 1)

    def repeat(
        self,
        z: cython.const[cython.double][::1],  # type: ignore[valid-type]
        step: cython.double,
        times: cython.Py_ssize_t,
    ) -> Any:
        """`gradient`, computed several times: for the measurement of its cost."""
        _: Size
        result = np.empty(self.n)
        out: cython.double[::1] = result
        _require(self, z.shape[0])
        self.busy = True
        try:
            with cython.nogil:
                for _ in range(times):
                    self.own.call(
                        cython.address(self.own),
                        cython.address(z[0]),
                        step,
                        cython.address(out[0]),
                    )
        finally:
            self.busy = False
        if self.calls_python:
            self.raise_failure()
        return result

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
        k: Size
        for k in range(self.n_calling):
            if self.calling[k].failed:
                return True
        return False


@cython.cfunc
@cython.exceptval(check=True)
def _require(tree: Tree, n: Size) -> cython.void:
    """That a tree can be called from Python, at a z of length n."""
    if n != tree.n:
        raise ValueError(f"z has {n} numbers, and the gradient takes {tree.n}")
    if tree.taken:
        raise InvalidInput("this gradient is a part of another one; call that one")
    if tree.busy:
        raise InvalidInput("this gradient is being computed; a tree serves one thread at a time")


@cython.cfunc
def _reals(tree: Tree, n: Size) -> cython.p_double:
    """Zeros that begin on a cache line, alive as long as the tree."""
    zeros = np.zeros(n + 8)
    view: cython.double[::1] = zeros
    at: uintptr_t = cython.cast(uintptr_t, cython.address(view[0]))
    tree.kept.append(zeros)
    return cython.cast(cython.p_double, (at + 63) & ~cython.cast(uintptr_t, 63))


@cython.cfunc
def _numbers(tree: Tree, values: Any) -> cython.p_double:
    """A copy of numbers, alive as long as the tree."""
    i: Size
    view: cython.const[cython.double][::1] = np.ascontiguousarray(values, dtype=np.float64)  # type: ignore[valid-type]
    out: cython.p_double = _reals(tree, view.shape[0])
    for i in range(view.shape[0]):
        out[i] = view[i]
    return out


@cython.cfunc
def _whole(tree: Tree, values: Any, most: Size) -> cython.pointer[Size]:
    """A copy of whole numbers from 0 to below `most`, alive as long as the tree."""
    i: Size
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


@cython.cfunc
@cython.exceptval(check=True)
def _join(tree: Tree, parts: Any) -> cython.void:
    """Take parts into a tree: they are its own from then on."""
    k: Size
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


@cython.cfunc
@cython.exceptval(check=True)
def _listen(tree: Tree, callers: list[Any]) -> cython.void:
    """Remember the Python leaves of a tree."""
    k: Size
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
    if n < 1:
        raise ValueError(f"a gradient has {n} coordinates; at least one is needed")
    tree.n = n
    tree.own.n = n
    return tree


def leaf(form: str, n: cython.Py_ssize_t, params: Any = ()) -> Tree:
    """A leaf that is compiled: its form, its coordinates, its numbers.

    forms and their params: linear (n,), generalized_gini (n + 1,), equal_exposure (0,),
    welfare (2,), nash (1,), penalised (2 + n,), bounded (4 n,).
    """
    i: Size
    order: cython.pointer[int64_t]
    tree: Tree = _new(n)
    own: Node = cython.address(tree.own)
    wanted: Size
    if form == "linear":
        own.call, wanted = _linear, n
    elif form == "generalized_gini":
        own.call, wanted = _generalized_gini, n + 1
        own.work = _reals(tree, 4 * _aligned(n))
        order = cython.cast(cython.pointer[int64_t], own.work)
        for i in range(n):
            order[i] = i
    elif form == "equal_exposure":
        own.call, wanted = _equal_exposure, 0
    elif form == "welfare":
        own.call, wanted = _welfare, 2
    elif form == "nash":
        own.call, wanted = _nash, 1
    elif form == "penalised":
        own.call, wanted = _penalised, 2 + n
    elif form == "bounded":
        own.call, wanted = _bounded, 4 * n
    else:
        raise ValueError(f"there is no compiled leaf {form!r}")
    if np.shape(params) != (wanted,):
        raise ValueError(f"{form} of {n} has params of shape ({wanted},), not {np.shape(params)}")
    own.params = _numbers(tree, params)
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
    both = np.zeros(2 * _aligned(n) + 8)
    view: cython.double[::1] = both
    at: uintptr_t = cython.cast(uintptr_t, cython.address(view[0]))
    first: Size = (64 - cython.cast(Size, at & 63)) // 8 % 8
    tree.own.work = cython.address(view[first])
    second: Size = first + _aligned(n)
    tree.kept.append((function, both[first : first + n], both[second : second + n]))
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
    k: Size
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
    own.work = _reals(tree, _aligned(widest) * (2 if listed else 1))
    return tree


@cython.cfunc
@cython.exceptval(check=True)
def _set_matrix(tree: Tree, own: Node, matrix: Any, rows: Size) -> cython.void:
    """Copy a matrix that is given by rows, with `rows` rows and n columns."""
    k: Size
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
    own.work = _reals(tree, 2 * _aligned(part.n))
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
    """

    def __init__(
        self,
        n: cython.Py_ssize_t,
        leaves: Tree,
        matrix: tuple[Any, Any, Any],
        moving: Tree,
        moving_matrix: tuple[Any, Any, Any],
        prices: cython.double[::1],
        widths: Any,
        rates: Any,
        caps: Any,
    ) -> None:
        size: Size = prices.shape[0]
        if self.own.n_parts:
            raise ValueError("a PricedTree is made once")
        if size < 1 or size != moving.n or size > leaves.n:
            raise ValueError(f"{size} prices, for {moving.n} of {leaves.n} rows of leaves")
        if not len(widths) == len(rates) == len(caps) == size:
            raise ValueError(f"each of the {size} prices has a width, a rate and a cap")
        base: Tree = _new(n)  # which checks n
        own: Node = cython.address(self.own)
        own.n = n
        _set_matrix(self, own, matrix, leaves.n)
        self.moving.n = n
        _set_matrix(self, cython.address(self.moving), moving_matrix, moving.n)
        _join(self, [leaves, moving])
        self.n = base.n
        own.params = _numbers(self, widths)
        own.work = _reals(self, 2 * _aligned(leaves.n))
        own.data = cython.cast(cython.p_void, cython.address(prices[0]))
        own.n_prices = size
        self.moving.parts = own.parts + 1
        self.moving.n_parts = 1
        self.moving.params = own.params
        self.moving.work = _reals(self, 2 * _aligned(moving.n))
        self.moving.data = own.data
        self.moving.n_prices = size
        self._moving_leaves = moving
        self.rates = _numbers(self, rates)
        self.caps = _numbers(self, caps)
        self.kept.append(prices.base)
        self.n_prices = size
        self.prices = cython.address(prices[0])
        own.call = _priced

    def look(self, z: At, t: cython.double) -> cython.bint:
        """Take the gradients g that `move` follows; False where a Python leaf failed."""
        _by_leaf(cython.address(self.moving), z, 1.0 / sqrt(t + 1.0))
        return not self._moving_leaves.has_failed()

    def move(self, t: cython.double) -> cython.void:
        """y <- y + rate/(t + 1) (g - y), within the caps, with g of the last `look`."""
        i: Size
        moved: Real
        cap: Real
        g: cython.p_double = self.moving.work + _aligned(self._moving_leaves.n)
        for i in range(self.n_prices):
            cap = self.caps[i]
            moved = self.prices[i] + self.rates[i] / (t + 1.0) * (g[i] - self.prices[i])
            self.prices[i] = _smaller(_larger(moved, -cap), cap)

    def reprice(self, z: cython.const[cython.double][::1], t: cython.double) -> None:  # type: ignore[valid-type]
        """Move the prices, from Python; raises what a leaf raised, and moves none then."""
        _require(self, z.shape[0])
        self.busy = True
        try:
            with cython.nogil:
                if self.look(cython.address(z[0]), t):
                    self.move(t)
        finally:
            self.busy = False
        if self.calls_python:
            self.raise_failure()


def sampled_gradient(
    tree: Tree,
    z: cython.const[cython.double][::1],  # type: ignore[valid-type]
    radius: cython.double,
    normals: cython.const[cython.double][:, ::1],  # type: ignore[valid-type]
) -> Any:
    """`sampled`: the mean of supergradients in the ball around z (n,). normals (samples, n + 2)."""
    n: Size = tree.n
    _require(tree, z.shape[0])
    if normals.shape[0] < 1 or normals.shape[1] != n + 2:
        raise ValueError(f"normals have shape ({normals.shape[0]}, {normals.shape[1]})")
    result = np.empty((3, n))
    out: cython.double[:, ::1] = result
    tree.busy = True
    try:
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
    finally:
        tree.busy = False
    if tree.calls_python:
        tree.raise_failure()
    return result[0]
