"""`Compass`: what gives the directions of a plan, in any of its states."""

from __future__ import annotations

from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives.concave import Program
from fairwolfe.smoothing import Randomized
from fairwolfe.smoothing.following import aim_once

__all__ = ["Compass", "Course"]

_LANE = 1  # of draws by number; the base has another


Course: TypeAlias = tuple[Vector, Matrix, Cube, bool]
"""What gives the directions of decisions in a row: see `smoothing.following.COURSE`."""


class Compass:
    """The direction of a plan, in any of its states."""

    def __init__(self, plan: Any) -> None:
        self.plan = plan
        self.kind = plan.kind
        self.n = plan.kind.seen.n_objectives
        self.sampled = isinstance(plan.smoothing, Randomized)
        # Scratch, and the numbers of a single step, are lent: two threads never share any.
        self.idle: list[tuple[Vector, Matrix]] = []
        self._no_normals = np.empty((1, 0, self.n + 2))

    @cached_property
    def program(self) -> Program:
        """The gradient as a numba kernel."""
        prices, objective = self.plan.prices, self.plan.objective
        program: Program = prices.program if prices else objective.program(self.n)
        return program

    def course(
        self, state: Any, rng: Any, rows: int = 1, advance: bool = False, tolerance: float = 0.0
    ) -> Course:
        """What gives the directions of the next decisions; its scratch is to be given back.

        rng: a generator, or `Numbered` draws; tolerance: see `FrankWolfe.act_batch`.
        """
        plan = self.plan
        smoothing, t = plan.smoothing, state.ahead
        try:
            work, steps = self.idle.pop()
        except IndexError:
            work, steps = self.program.work(), np.empty((1, 3))
        if rows == 1:
            steps[0, 0] = plan.step(t)
            ages, normals = [plan.age(t)], self._no_normals
        else:
            steps = np.zeros((rows, 3))
            times = np.arange(t, t + rows) if advance else np.full(rows, t)
            steps[:, 0] = plan.steps(times)
            ages, normals = [plan.age(one) for one in times.tolist()], np.empty((rows, 0, 0))
            if advance or self.sampled:
                shared = tolerance > 0.0 and not self.sampled
                served = max(1, int(tolerance * state.youngest)) if shared else 1
                steps[::served, 2] = 1.0
        if self.sampled:
            normals = self._normals(rng, rows)
            steps[:, 1] = [smoothing.mix(age) for age in ages]
        return work, steps, normals, advance

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

    def give_back(self, course: Course) -> None:
        """Take scratch back, and raise what a function of the user has raised meanwhile."""
        work, steps, _, _ = course
        self.idle.append((work, steps[:1]))
        if self.program.failures:
            self.program.raise_failures()

    def at(self, state: Any, rng: Any) -> Vector:
        """grad f_t(z); for randomised smoothing, its running average."""
        course, g = self.course(state, rng), np.empty(self.n)
        finite = aim_once.call(
            self.plan.frame(state).words, *course, self.plan.parameters(state), g
        )
        self.give_back(course)
        return g if finite else self._inside(state, g, rng)

    def _inside(self, state: Any, g: Vector, rng: Any) -> Vector:
        """Where g is not finite: rewards beyond their ranges may have taken z out of the domain of
        f, and `bind` has seen to it that the ranges are inside.
        """
        plan, problem = self.plan, self.kind.seen
        if plan.smoothing.averaged:
            return g
        z, age = state.iterate, plan.age(state.ahead)
        drawn = rng.generator(0, _LANE) if type(rng) is Numbered else rng

        def follow_at(point: Vector) -> Vector:
            if plan.prices is not None:
                direction: Vector = plan.prices.direction(point, state.prices, age)
            else:
                direction = plan.smoothing.direction(plan.objective, point, age, drawn)
            return direction

        try:
            return follow_at(z)
        except InvalidInput:
            inside = np.clip(z, problem.low, problem.high)
            if np.array_equal(inside, z):
                raise
            return follow_at(inside)
