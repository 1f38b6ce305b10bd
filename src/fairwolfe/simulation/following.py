"""`Following`: the direction of a round, which the compiled loops for arms and rankings share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.errors import NumericalFailure
from fairwolfe.kernels.compile import Kernel
from fairwolfe.objectives.concave import Program
from fairwolfe.reduction.state import State
from fairwolfe.smoothing import Randomized
from fairwolfe.smoothing.prices import Prices, reprice

__all__ = ["FOLLOWING", "Following", "Rounds"]

_V = "float64[::1]"
FOLLOWING = (
    *("int64", _V, _V, _V, _V, "float64[:, :, ::1]", _V, _V, _V, _V, _V, "float64"),
    *("int64", "int64[::1]"),
)
"""The types of `Rounds`, with which the arguments of both loops begin."""


class Rounds(NamedTuple):
    """The direction of the next rounds: the gradient, what it needs in each, and the averages."""

    gradient: int  # an address, or 0 where no direction is followed
    params: Vector
    work: Vector
    steps: Vector
    mixes: Vector  # the weights of samples in the running direction
    normals: Cube
    totals: Vector
    earned: Vector
    clocks: Vector
    running: Vector
    counters: Vector
    forget: float
    repricing: int  # the address of what moves prices, or 0
    words: IntVector  # of the frame of the state


class Following:
    """The compiled gradient of a run with its scratch, and what is drawn for it."""

    def __init__(self, state: State) -> None:
        plan = state.plan
        self.base: Any = plan.base
        self.problem = plan.kind.problem
        self.size = self.problem.n_objectives
        self.gradient: Program | None = None
        self.work = np.empty(0)
        self.samples = 0
        if plan.compass is not None:
            self.gradient = plan.compass.program
            self.work = self.gradient.work()
            if isinstance(plan.smoothing, Randomized):
                self.samples = plan.smoothing.n_samples

    @staticmethod
    def kernels(state: State) -> Iterator[Kernel[..., None]]:
        """What gives the direction."""
        if state.plan.compass is not None:
            n = state.plan.kind.problem.n_objectives
            objective = state.plan.objective
            yield from Prices.kernels(objective, n) if state.plan.prices else objective.kernels(n)

    def draws(self, rng: np.random.Generator, n: int) -> tuple[Cube, Matrix]:
        """What the policy draws in n rounds: for the direction first, then for the action."""
        normals = np.empty((n, self.samples, self.size + 2))
        if self.samples == 0:
            return normals, self.base.draws(rng, self.problem, n)
        rows = []
        for s in range(n):
            normals[s] = rng.standard_normal((self.samples, self.size + 2))
            rows.append(self.base.draws(rng, self.problem, 1)[0])
        return normals, np.array(rows)

    def schedule(self, state: State, times: IntVector) -> Matrix:
        """The width of the smoothing and the weight of its samples at some times, (times, 2)."""
        plan = state.plan
        ages = np.minimum(times, plan.age(1 << 62))
        steps = np.ones((len(times), 2))
        steps[:, 0] = plan.steps(times)
        if self.samples:
            steps[:, 1] = [plan.smoothing.mix(t) for t in ages.tolist()]
        return steps

    def rounds(self, state: State, normals: Cube) -> Rounds:
        """The next rounds, as many as there are normals."""
        gradient = self.gradient
        steps = self.schedule(state, np.arange(state.t, state.t + len(normals)))
        return Rounds(
            gradient=gradient.address if gradient else 0,
            params=state.plan.params(state),
            work=self.work,
            steps=np.ascontiguousarray(steps[:, 0]),
            mixes=np.ascontiguousarray(steps[:, 1]),
            normals=normals,
            totals=state.totals,
            earned=state.earned,
            clocks=state.clocks,
            running=state.direction,
            counters=state.counters,
            forget=state.plan.forget,
            repricing=reprice.address if gradient and state.plan.prices else 0,
            words=state.plan.frame(state).words,
        )

    def raise_failures(self, state: State, whole: bool) -> None:
        """What went wrong in the rounds just played; `whole`: all of them were."""
        if self.gradient is not None:
            self.gradient.raise_failures()
        state.base.oracle.raise_failure()
        if not whole:
            objective = state.plan.objective
            state.plan.relaxed.gradient(state.iterate)  # raises where, as in the plain loop
            raise NumericalFailure(f"the direction of {objective} is not a number")
