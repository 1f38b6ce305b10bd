"""The direction of a round: grad f_t at the averages, compiled, for one round or for many.

One kernel gives it; the object API calls it for a round, the compiled loops call it in theirs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import kernel
from fairwolfe.kernels.settling import averages
from fairwolfe.objectives.concave import call_gradient
from fairwolfe.smoothing import Randomized
from fairwolfe.smoothing.randomized import sampled

__all__ = ["Compass", "follow", "follow_draws", "follow_once"]

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


@kernel(signature=f"boolean(int64, {_V}, {_V}, float64, {_V}, {_V}, {_V})")
def follow_once(
    gradient: int,
    params: Vector,
    work: Vector,
    step: float,
    totals: Vector,
    clocks: Vector,
    g: Vector,
) -> bool:
    """`follow` without draws, called from Python. totals, clocks, g (n,)."""
    return _exact(gradient, params, work, step, totals, clocks, np.empty(g.size), g)


@kernel(
    signature=f"boolean(int64, {_V}, {_V}, float64, float64, float64[:, ::1], {_V}, {_V}, {_V}, "
    f"{_V})"
)
def follow_draws(
    gradient: int,
    params: Vector,
    work: Vector,
    step: float,
    mix: float,
    normals: Matrix,
    totals: Vector,
    clocks: Vector,
    running: Vector,
    g: Vector,
) -> bool:
    """`follow` with draws, called from Python; a kernel of its own, since it takes a while to
    compile. totals, clocks, running, g (n,), normals (samples, n + 2).
    """
    n = g.size
    scratch = (np.empty(n), np.empty(n), np.empty(n), np.empty(n))
    return follow(gradient, params, work, step, mix, normals, totals, clocks, running, scratch, g)


class Compass:
    """The direction of a plan, in any of its states."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.kind = plan.kind
        self.n = plan.kind.seen.n_objectives
        self.program = plan.objective.program(self.n)
        self.sampled = isinstance(plan.smoothing, Randomized)
        self.idle: list[Vector] = []  # scratch is lent, so that two threads never share one

    def at(self, state: Any, t: int, rng: np.random.Generator) -> Vector:
        """grad f_t(z), after t rewards; for randomised smoothing, its running average."""
        plan, program, sees = self.plan, self.program, self.kind.sees
        smoothing, objective, age = plan.smoothing, plan.objective, plan.age(t)
        step = smoothing.step(objective, self.n, age)
        totals, clocks, g = sees(state.totals), sees(state.clocks), np.empty(self.n)
        address, params, _, _ = program
        try:
            work = self.idle.pop()
        except IndexError:
            work = program.work()
        if self.sampled:
            normals = smoothing.normals(objective, self.n, rng)
            mix, running = smoothing.mix(age), sees(state.direction)
            finite = follow_draws.call(
                address, params, work, step, mix, normals, totals, clocks, running, g
            )
        else:
            finite = follow_once.call(address, params, work, step, totals, clocks, g)
        self.idle.append(work)
        if program.failures:
            program.raise_failures()
        return g if finite else self._inside(state.iterate, g, age, rng)

    def _inside(self, z: Vector, g: Vector, age: int, rng: np.random.Generator) -> Vector:
        """Where g is not finite: rewards beyond their ranges may have taken z out of the domain of
        f, and `bind` has seen to it that the ranges are inside.
        """
        plan, seen = self.plan, self.kind.seen
        if plan.smoothing.averaged:
            return g
        follow_at: Callable[..., Vector] = plan.smoothing.direction
        try:
            return follow_at(plan.objective, z, age, rng)
        except InvalidInput:
            inside = np.clip(z, seen.low, seen.high)
            if np.array_equal(inside, z):
                raise
            return follow_at(plan.objective, inside, age, rng)
