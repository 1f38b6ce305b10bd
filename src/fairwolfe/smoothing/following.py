"""The direction of a round: grad f_t at the averages, compiled.

Whoever decides many rounds in one kernel calls `follow` in it, or `aim`, which counts the open
decisions too; `aim_once` is the same for one decision.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.kernels.compile import kernel
from fairwolfe.kernels.settling import averages
from fairwolfe.kernels.waiting import OPEN, lean
from fairwolfe.objectives.concave import call_gradient
from fairwolfe.smoothing.randomized import sampled

__all__ = ["COURSE", "Course", "aim", "aim_once", "follow"]

_V = "float64[::1]"


@kernel
def follow(
    gradient: int,
    params: Vector,
    work: Vector,
    step: float,
    mix: float,
    normals: Matrix,
    totals: Vector,
    clocks: Vector,
    running: Vector,
    scratch: tuple[Vector, Vector, Vector, Vector],
    g: Vector,
) -> bool:
    """The direction g (n,), and whether it is made of finite numbers.

    gradient: the address of f's, with its params and work; step: the width of the smoothing.
    normals (samples, n + 2): draws of randomised smoothing, whose estimate is mixed into the
    running direction (n,) with weight `mix`; (0, n + 2) for exact gradients. totals, clocks (n,).
    """
    z, fresh, point, spare = scratch
    if normals.shape[0] == 0:
        return _exact(gradient, params, work, step, totals, clocks, z, g)
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
    """`follow` without draws. totals, clocks, z, g (n,)."""
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


Course: TypeAlias = tuple[Any, ...]
"""What gives the directions of some decisions in a row, in the order of `COURSE`; a plain tuple,
since one is made at every decision:

gradient, params, work: of f; gradient 0 where the direction is given, as `running`
steps, mixes (rows,), normals (rows, samples, n + 2): of the smoothing, decision by decision
totals, clocks, running (n,): of the state
waiting, ranges, keep: the open decisions, the ranges (2, n) of the rewards, 1 - what is forgotten
advance: whether each decision counts as open for the next
"""

COURSE = ", ".join(
    (
        *("int64", _V, _V, _V, _V, "float64[:, :, ::1]", _V, _V, _V),
        *(_V, "float64[:, ::1]", "float64", "boolean"),
    )
)
"""The types of a `Course`."""


@kernel
def aim(
    s: int,
    gradient: int,
    params: Vector,
    work: Vector,
    steps: Vector,
    mixes: Vector,
    normals: Cube,
    totals: Vector,
    clocks: Vector,
    running: Vector,
    waiting: Vector,
    ranges: Matrix,
    keep: float,
    theta: Cube,
    seen: IntVector,
    room: Matrix,
    g: Vector,
) -> bool:
    """The direction g of decision s; whether it is made of finite numbers.

    seen: the coordinates that f sees, without any where it sees all; g has as many numbers. theta:
    the parameters of the last rewards, for `lean`. room (9, n): scratch. The others: see `Course`.
    """
    if gradient == 0:
        for i in range(g.size):
            g[i] = running[i]
        return True
    at, over, now = totals, clocks, running
    if waiting.size > 0 and waiting[OPEN] > 0.0:
        at, over = room[0], room[1]
        lean(totals, clocks, waiting, theta, ranges, keep, at, over)
    if seen.size > 0:
        for i in range(seen.size):
            room[2, i], room[3, i], room[4, i] = at[seen[i]], over[seen[i]], now[seen[i]]
        at, over, now = room[2, : seen.size], room[3, : seen.size], room[4, : seen.size]
    n = g.size
    scratch = (room[5, :n], room[6, :n], room[7, :n], room[8, :n])
    return follow(gradient, params, work, steps[s], mixes[s], normals[s], at, over, now, scratch, g)


@kernel(signature=f"boolean({COURSE}, float64[:, :, ::1], int64[::1], {_V})")
def aim_once(
    gradient: int,
    params: Vector,
    work: Vector,
    steps: Vector,
    mixes: Vector,
    normals: Cube,
    totals: Vector,
    clocks: Vector,
    running: Vector,
    waiting: Vector,
    ranges: Matrix,
    keep: float,
    advance: bool,
    theta: Cube,
    seen: IntVector,
    g: Vector,
) -> bool:
    """`aim`, called from Python for one decision."""
    return aim(
        0,
        gradient,
        params,
        work,
        steps,
        mixes,
        normals,
        totals,
        clocks,
        running,
        waiting,
        ranges,
        keep,
        theta,
        seen,
        np.empty((9, totals.size)),
        g,
    )
