"""Decisions that wait for their answer: what they are expected to earn counts until it comes.

z is the average over the answered rewards and over the estimates of the open decisions:

    z = (totals + sum of the open estimates)/(clocks + open)

An estimate is of the current model. Linear models keep Phi and Psi, the sums of the features of the
open and of the answered decisions, so that theta Phi is the sum of the open estimates, and the mean
of (reward - estimate) over the answered is known at any time:

    e = (sum of the answered rewards - theta Psi)/answered
    z = (totals + theta Phi + open e)/(clocks + open)

It does not depend on the order of the answers. A model that is off by a constant does no harm, and
one that knows nothing gives what the answered have earned. Models that are not linear keep the sum
of the estimates as they were made, and e is a running mean. Either is cut to the ranges.

All of it is one vector, so that it is one argument of a kernel:

    open, issued, heard | weights (n,) | sums (n,) twice | e or its rewards (n,)
    | Phi (blocks, d + 1) twice | Psi (blocks, d + 1)

Sums over open decisions are kept twice: rounded, and what rounding has left. Adding and taking away
a billion vectors so leaves an error below that of a single addition. The last columns of Phi and
Psi count decisions.
"""

from __future__ import annotations

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.kernels.compile import data_of, distinct, kernel, matrix_at
from fairwolfe.kernels.frames import FORGET, NUMBERS, TOTALS, WAITING, part, row, vector

__all__ = [
    "ISSUED",
    "OPEN",
    "age_weight",
    "close_one",
    "correct",
    "expect_rows",
    "features_in",
    "grown",
    "lean",
    "open_one",
    "size",
    "size_without_features",
    "sum_at",
    "sum_in",
    "withdraw",
    "youngest",
]

OPEN, ISSUED, HEARD = 0, 1, 2
_HEAD = 3
_NUMBER = 8  # bytes
_SLOWEST = 1.0 / 500.0  # a running mean forgets what is this many answers ago


@kernel
def size_without_features(n: int) -> int:
    """The length of the vector for n rewards, where estimates are kept as they were made."""
    return _HEAD + 4 * n


def size(n: int, blocks: int, d: int) -> int:
    """Its length for n rewards and blocks of d features; 0 blocks: without features."""
    return size_without_features.function(n) + 3 * blocks * (d + 1)


def youngest(clocks: Vector, waiting: Vector, keep: float) -> float:
    """The number of decisions, open ones among them, behind the average that has the fewest.

    clocks (n,): of the answered; keep: what is left of an older decision at the next.
    """
    if not waiting.size:
        return float(clocks.min())
    weights = waiting[_HEAD : _HEAD + clocks.size]
    past = 1.0 if keep == 1.0 else keep ** waiting[OPEN]
    return float((past * clocks + weights).min())


def grown(waiting: Vector, n: int, place: int, count: int) -> Vector:
    """The same with `count` more rewards from `place` on, of which it has nothing."""
    if not waiting.size:
        return waiting
    stop = _HEAD + 4 * n
    each = np.insert(waiting[_HEAD:stop].reshape(4, n), [place] * count, 0.0, axis=1)
    return np.concatenate([waiting[:_HEAD], each.ravel(), waiting[stop:]])


@kernel
def _add(high: Vector, low: Vector, place: int, value: float) -> None:
    """Add a number to a sum that is kept twice."""
    total = high[place] + value
    part = total - high[place]
    low[place] += (high[place] - (total - part)) + (value - part)
    high[place] = total


@kernel
def _end(waiting: Vector, n: int) -> int:
    """Where what is kept of open decisions ends. waiting: see the module."""
    start = _HEAD + 4 * n
    return int(start + (waiting.size - start) // 3 * 2)


@kernel(constants=False)
def open_one(waiting: Vector, n: int, keep: float) -> None:
    """Count a decision among the open ones; with memory those before it fade, as rewards do.

    waiting: see the module. n: the number of rewards. keep: what is left of an older one.
    """
    if keep < 1.0:
        for i in range(_HEAD, _HEAD + 3 * n):
            waiting[i] *= keep
        for i in range(_HEAD + 4 * n, _end(waiting, n)):
            waiting[i] *= keep
    for i in range(n):
        waiting[_HEAD + i] += 1.0
    waiting[OPEN] += 1.0
    waiting[ISSUED] += 1.0


@kernel(constants=False)
def sum_in(waiting: Vector, n: int, row: int, values: Vector, sign: float, weight: float) -> None:
    """Add sign * weight * values to the estimates (row -1), or to a row of Phi, which also counts
    sign * weight decisions. waiting: see the module. values (n,) or (d,).
    """
    if row < 0:
        high, low = part(waiting, _HEAD + n, n), part(waiting, _HEAD + 2 * n, n)
        for i in range(values.size):
            _add(high, low, i, sign * weight * values[i])
    else:
        half, width = (waiting.size - _HEAD - 4 * n) // 3, values.size + 1
        start = _HEAD + 4 * n + row * width
        high, low = part(waiting, start, width), part(waiting, start + half, width)
        for j in range(values.size):
            _add(high, low, j, sign * weight * values[j])
        _add(high, low, values.size, sign * weight)


@kernel
def sum_at(waiting: Vector, n: int, place: int, value: float) -> None:
    """Add a number to one of the n sums of estimates. waiting: see the module."""
    _add(part(waiting, _HEAD + n, n), part(waiting, _HEAD + 2 * n, n), place, value)


@kernel
def age_weight(waiting: Vector, keep: float, place: float) -> float:
    """What the open decision that was the place-th to be made still weighs."""
    return float(keep ** (waiting[ISSUED] - 1.0 - place)) if keep < 1.0 else 1.0


@kernel(constants=False)
def close_one(waiting: Vector, n: int, first: int, stop: int, weight: float) -> None:
    """An open decision of this weight is no longer open; its estimate is not in the sums any more.
    Coordinates from `first` to below `stop` joined after it. waiting: see the module.
    """
    waiting[OPEN] -= 1.0
    if waiting[OPEN] <= 0.0:
        waiting[OPEN] = 0.0
        for i in range(_HEAD, _HEAD + 3 * n):
            waiting[i] = 0.0
        for i in range(_HEAD + 4 * n, _end(waiting, n)):
            waiting[i] = 0.0
        return
    for i in range(n):
        if i < first or i >= stop:
            waiting[_HEAD + i] = max(waiting[_HEAD + i] - weight, 0.0)


@kernel
def correct(waiting: Vector, n: int, reward: Vector, estimate: Vector) -> None:
    """Move the running mean towards reward - estimate. waiting: see the module. reward (n,),
    estimate (n or 0,): as it was made.
    """
    waiting[HEARD] += 1.0
    rate = max(1.0 / waiting[HEARD], _SLOWEST)
    for i in range(estimate.size):
        away = _HEAD + 3 * n + i
        waiting[away] += rate * (reward[i] - estimate[i] - waiting[away])


@kernel
def features_in(
    waiting: Vector, n: int, row: int, values: Vector, reward: Vector, keep: float
) -> None:
    """Add the features of an answered decision to a row of Psi, and its reward to what goes with
    them; with memory those before it fade, as rewards do.

    waiting: see the module. n: the number of rewards. values (d,), reward (n,).
    """
    start = _end(waiting, n)
    if keep < 1.0:
        for i in range(_HEAD + 3 * n, _HEAD + 4 * n):
            waiting[i] *= keep
        for i in range(start, waiting.size):
            waiting[i] *= keep
    for i in range(n):
        waiting[_HEAD + 3 * n + i] += reward[i]
    place = start + row * (values.size + 1)
    for j in range(values.size):
        waiting[place + j] += values[j]
    waiting[place + values.size] += 1.0


@kernel
def _lean_as_made(
    totals: Vector,
    clocks: Vector,
    each: Matrix,
    ranges: Matrix,
    past: float,
    corrected: float,
    at: Vector,
    over: Vector,
) -> None:
    """`lean`, of rewards whose estimates are kept as they were made: the first, as many as `at` has
    numbers. each (4, n): weights, sums twice, what they are corrected by; the sum over decisions is
    cut where their mean would be.
    """
    distinct()
    for i in range(at.size):
        weight = each[0, i]
        total = each[1, i] + each[2, i] + corrected * weight * each[3, i]
        total = max(total, weight * ranges[0, i])
        total = min(total, weight * ranges[1, i])
        at[i] = past * totals[i] + total
        over[i] = past * clocks[i] + weight


@kernel
def lean(
    totals: Vector,
    clocks: Vector,
    waiting: Vector,
    theta: Cube,
    ranges: Matrix,
    keep: float,
    at: Vector,
    over: Vector,
) -> None:
    """Sums and clocks with the open decisions in them. totals, clocks, at, over (n,), waiting: see
    the module; theta (blocks, rewards, d) of the last rewards, or (0, 0, 0); ranges (2, n).
    """
    distinct()
    n, blocks, n_linear, d = totals.size, theta.shape[0], theta.shape[1], theta.shape[2]
    past = keep ** waiting[OPEN] if keep < 1.0 else 1.0
    start = _HEAD + 4 * n
    half = (waiting.size - start) // 3
    phi, psi = part(waiting, start, 2 * half), part(waiting, start + 2 * half, half)
    unknown, answered = 0.0, 0.0  # decisions: open ones of blocks without an answer; answered ones
    for b in range(blocks):
        count = b * (d + 1) + d
        answered += psi[count]
        if psi[count] == 0.0:
            unknown += phi[count] + phi[half + count]
    each = matrix_at(data_of(waiting) + _NUMBER * _HEAD, 4, n)
    corrected = 0.0 if blocks > 0 else 1.0
    as_made = part(at, 0, n - n_linear)
    _lean_as_made(totals, clocks, each, ranges, past, corrected, as_made, over)
    for r in range(n_linear):
        i = n - n_linear + r
        weight, total, away = waiting[_HEAD + i] - unknown, 0.0, waiting[_HEAD + 3 * n + i]
        for b in range(blocks):
            if psi[b * (d + 1) + d] > 0.0:
                for j in range(d):
                    place = b * (d + 1) + j
                    total += theta[b, r, j] * (phi[place] + phi[half + place])
                    away -= theta[b, r, j] * psi[place]
        at[i], over[i] = past * totals[i], past * clocks[i]
        if weight > 0.0 and answered > 0.0:
            total += weight * away / answered
            at[i] += min(max(total, weight * ranges[0, i]), weight * ranges[1, i])
            over[i] += weight


@kernel(signature="void(int64[::1], float64[:, ::1], int64, int64, int64, int64)")
def expect_rows(
    words: IntVector, rows: Matrix, column: int, block: int, start: int, stop: int
) -> None:
    """Count decisions among the open ones, by what rows have from `start` to below `stop`: the
    features of what was chosen, or the estimates, where the block is -1. column: where rows have
    their blocks; -1: all are of this block. words: of the `Frame` of a state.
    """
    waiting, n = vector(words, WAITING), vector(words, TOTALS).size
    for s in range(rows.shape[0]):
        open_one(waiting, n, 1.0 - vector(words, NUMBERS)[FORGET])
        own = int(rows[s, column]) if column >= 0 else block
        sum_in(waiting, n, own, part(row(rows, s, stop), start, stop - start), 1.0, 1.0)


@kernel(signature="void(int64[::1], int64, float64[::1], float64, int64, int64)")
def withdraw(
    words: IntVector, block: int, values: Vector, place: float, first: int, stop: int
) -> None:
    """Take a decision that gets no answer out of the open ones. words: of the `Frame` of a state;
    block, values (d or n,): as in `expect_rows`; place: which of the open decisions it is; first,
    stop: coordinates that joined after it.
    """
    waiting, n = vector(words, WAITING), vector(words, TOTALS).size
    weight = age_weight(waiting, 1.0 - vector(words, NUMBERS)[FORGET], place)
    sum_in(waiting, n, block, values, -1.0, weight)
    close_one(waiting, n, first, stop, weight)
