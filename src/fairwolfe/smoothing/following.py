"""The direction of a round: grad f_t at the averages, compiled.

A kernel that decides many rounds calls `aim`, which counts the open decisions too;
`aim_once` is the same for one decision.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.kernels.compile import function_at, kernel
from fairwolfe.kernels.frames import (
    CLOCKS,
    F_PARAMS,
    FORGET,
    GRADIENT,
    NUMBERS,
    RANGES,
    REPRICING,
    RUNNING,
    SAMPLING,
    SEEN,
    TOTALS,
    WAITING,
    Frame,
    address,
    integers,
    layer,
    matrix,
    row,
    vector,
)
from fairwolfe.kernels.settling import averages
from fairwolfe.kernels.waiting import OPEN, lean
from fairwolfe.objectives.concave import call_gradient
from fairwolfe.smoothing.randomized import sampled

__all__ = [
    "ALONE",
    "COURSE",
    "N_ROOM",
    "aim",
    "aim_once",
    "alone",
    "call_aim",
    "sample",
]

_V = "float64[::1]"


SAMPLE = (
    f"boolean(int64, {_V}, {_V}, float64, float64, float64[:, ::1], " + ", ".join([_V] * 8) + ")"
)
call_sample = function_at(SAMPLE)


@kernel(signature=SAMPLE)
def sample(
    gradient: int,
    params: Vector,
    work: Vector,
    step: float,
    mix: float,
    normals: Matrix,
    totals: Vector,
    clocks: Vector,
    running: Vector,
    z: Vector,
    fresh: Vector,
    point: Vector,
    spare: Vector,
    g: Vector,
) -> bool:
    """The direction with draws. totals, clocks, running, z, fresh, point, spare, g (n,)."""
    averages(totals, clocks, z)
    sampled(gradient, z, step, normals, params, work, point, spare, fresh)
    for i in range(g.size):
        g[i] = (1.0 - mix) * running[i] + mix * fresh[i]
    return _finite(g)


@kernel
def _exact(
    gradient: int,
    params: Vector,
    work: Vector,
    step: float,
    totals: Vector,
    clocks: Vector,
    z: Vector,
    g: Vector,
) -> bool:
    """The direction without draws. totals, clocks, z, g (n,)."""
    averages(totals, clocks, z)
    call_gradient(gradient, z, step, params, work, g)
    return _finite(g)


@kernel
def _finite(g: Vector) -> bool:
    """Whether all numbers of g (n,) are finite."""
    bad = np.int64(0)
    for i in range(g.size):
        bad += 0 if np.isfinite(g[i]) else 1
    return bool(bad == 0)


COURSE = "int64[::1], float64[::1], float64[:, ::1], float64[:, :, ::1], boolean"
"""The types of what gives the directions of decisions in a row, in the order

words, work, steps, normals, advance

words: of the `Frame` of a state; work: scratch of the gradient; steps (rows, 3): the width of the
smoothing, the weight of its samples, and whether the direction is found anew (the first always is),
decision by decision; normals (rows, samples, n + 2); advance: whether each decision counts as open
for the next.
"""


AIM = (
    f"boolean(int64, int64[::1], {_V}, float64[:, ::1], float64[:, :, ::1], {_V}, "
    f"float64[:, :, ::1], float64[:, ::1], {_V})"
)
call_aim = function_at(AIM)
N_ROOM = 9
"""Rows of the scratch of `aim`."""


@kernel(signature=AIM)
def aim(
    s: int,
    words: IntVector,
    work: Vector,
    steps: Matrix,
    normals: Cube,
    waiting: Vector,
    theta: Cube,
    room: Matrix,
    g: Vector,
) -> bool:
    """The direction g of decision s; whether it is made of finite numbers.

    g has as many numbers as f sees. waiting: the open decisions; theta: the parameters of the last
    rewards, for `lean`. room (N_ROOM, n): scratch. The others: see `COURSE`.
    """
    totals, clocks, now = vector(words, TOTALS), vector(words, CLOCKS), vector(words, RUNNING)
    numbers, coordinates = vector(words, NUMBERS), integers(words, SEEN)
    gradient, params = address(numbers, GRADIENT), vector(words, F_PARAMS)
    n, whole = g.size, totals.size
    at, over = totals, clocks
    if waiting.size > 0 and waiting[OPEN] > 0.0:
        at, over = row(room, 0, whole), row(room, 1, whole)
        keep = 1.0 - numbers[FORGET]
        lean(totals, clocks, waiting, theta, matrix(words, RANGES), keep, at, over)
    if coordinates.size > 0:
        for i in range(n):
            j = coordinates[i]
            room[2, i], room[3, i], room[4, i] = at[j], over[j], now[j]
        at, over, now = row(room, 2, n), row(room, 3, n), row(room, 4, n)
    z = row(room, 5, n)
    if normals.shape[1] == 0:
        return _exact(gradient, params, work, steps[s, 0], at, over, z, g)
    finite: bool = call_sample(
        address(numbers, SAMPLING),
        gradient,
        params,
        work,
        steps[s, 0],
        steps[s, 1],
        layer(normals, s),
        at,
        over,
        now,
        z,
        row(room, 6, n),
        row(room, 7, n),
        row(room, 8, n),
        g,
    )
    return finite


@kernel(signature=f"boolean({COURSE}, float64[:, :, ::1], {_V})")
def aim_once(
    words: IntVector,
    work: Vector,
    steps: Matrix,
    normals: Cube,
    advance: bool,
    theta: Cube,
    g: Vector,
) -> bool:
    """`aim`, called from Python for one decision. theta (blocks, rewards, features), g (n,)."""
    room = np.empty((N_ROOM, vector(words, TOTALS).size))
    return aim(0, words, work, steps, normals, vector(words, WAITING), theta, room, g)


ALONE = (np.empty(0), np.ones((1, 3)), np.empty((1, 0, 0)), False)
"""A course for one decision whose direction is given."""


def alone(direction: Vector, slope: Vector, base: list[Any]) -> Frame:
    """The frame of one decision whose direction is given: with the arrays of a base, without a
    state of the reduction.
    """
    nothing, none, numbers = np.empty(0), np.empty(0, dtype=np.int64), np.zeros(REPRICING + 1)
    averages = (nothing, direction, direction, direction, direction, nothing)
    rest = (nothing, np.empty((2, 0)), none, nothing, slope, nothing, numbers)
    return Frame([*averages, *rest, nothing, nothing, nothing, *base])
