"""`Compass`: what gives the directions of a plan, in any of its states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Cube, Vector
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput
from fairwolfe.smoothing import Randomized
from fairwolfe.smoothing.following import Course, aim_once

__all__ = ["Compass"]

_ONE = np.ones(1)
_LANE = 1  # of draws by number; the base has another


class Compass:
    """The direction of a plan, in any of its states."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.kind = plan.kind
        self.n = plan.kind.seen.n_objectives
        self.program = plan.objective.program(self.n)
        self.sampled = isinstance(plan.smoothing, Randomized)
        self.idle: list[Vector] = []  # scratch is lent, so that two threads never share one
        self._no_normals = np.empty((1, 0, self.n + 2))
        self._head = (self.program.address, self.program.params)
        self._tail = (plan.ranges, 1.0 - plan.forget)

    def course(
        self, state: Any, rng: Any, rows: int = 1, advance: bool = False
    ) -> tuple[Course, Vector]:
        """What gives the directions of the next decisions, and the scratch that it has lent.

        rng: a generator, or `Numbered` draws.
        """
        plan = self.plan
        smoothing, objective, mixes = plan.smoothing, plan.objective, _ONE
        t = state.ahead
        if rows == 1:
            steps, normals = np.empty(1), self._no_normals
            age = plan.age(t)
            steps[0] = smoothing.step(objective, self.n, age)
            ages = (age,)
        else:
            times = np.arange(t, t + rows) if advance else np.full(rows, t)
            if plan.forget > 0.0:
                times = np.minimum(times, plan.age(1 << 62))
            steps, normals = smoothing.widths(objective, self.n, times), np.empty((rows, 0, 0))
            ages, mixes = times, np.ones(rows)
        if self.sampled:
            normals = self._normals(rng, rows)
            mixes = np.array([smoothing.mix(int(age)) for age in ages])
        try:
            work = self.idle.pop()
        except IndexError:
            work = self.program.work()
        course = (
            *self._head,
            work,
            steps,
            mixes,
            normals,
            state.totals,
            state.clocks,
            state.direction,
            state.waiting,
            *self._tail,
            advance,
        )
        return course, work

    def _normals(self, rng: Any, rows: int) -> Cube:
        smoothing, objective = self.plan.smoothing, self.plan.objective
        return np.array(
            [
                smoothing.normals(
                    objective, self.n, rng.generator(i, _LANE) if type(rng) is Numbered else rng
                )
                for i in range(rows)
            ]
        )

    def give_back(self, work: Vector) -> None:
        """Take scratch back, and raise what a function of the user has raised meanwhile."""
        self.idle.append(work)
        if self.program.failures:
            self.program.raise_failures()

    def at(self, state: Any, rng: Any) -> Vector:
        """grad f_t(z); for randomised smoothing, its running average."""
        course, work = self.course(state, rng)
        g = np.empty(self.n)
        finite = aim_once.call(*course, self.plan.parameters(state), self.plan.coordinates, g)
        self.give_back(work)
        return g if finite else self._inside(state, g, rng)

    def _inside(self, state: Any, g: Vector, rng: Any) -> Vector:
        """Where g is not finite: rewards beyond their ranges may have taken z out of the domain of
        f, and `bind` has seen to it that the ranges are inside.
        """
        plan, seen = self.plan, self.kind.seen
        if plan.smoothing.averaged:
            return g
        z, age = state.iterate, plan.age(state.ahead)
        drawn = rng.generator(0, _LANE) if type(rng) is Numbered else rng
        follow_at: Callable[..., Vector] = plan.smoothing.direction
        try:
            return follow_at(plan.objective, z, age, drawn)
        except InvalidInput:
            inside = np.clip(z, seen.low, seen.high)
            if np.array_equal(inside, z):
                raise
            return follow_at(plan.objective, inside, age, drawn)
