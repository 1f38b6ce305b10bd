"""What the reduction keeps: a plan that never changes, and a state that does."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.kinds import Kind
from fairwolfe.core.protocols import (
    ActsInRows,
    Awaits,
    Certifies,
    Commits,
    FoldsRows,
    Forecasts,
    LearnsDirection,
    OpensColumns,
    Repairs,
    Undirected,
    newest,
)
from fairwolfe.core.restoring import require, require_counts
from fairwolfe.kernels.frames import Frame
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.settling import averages
from fairwolfe.kernels.waiting import ISSUED, OPEN, size, youngest
from fairwolfe.objectives import Concave
from fairwolfe.reduction.direction import Compass, Course
from fairwolfe.reduction.live import Watch
from fairwolfe.reduction.windows import Windows
from fairwolfe.smoothing import Augmented, Identity, Moreau, Randomized
from fairwolfe.smoothing.following import aim, sample
from fairwolfe.smoothing.prices import Prices, reprice

__all__ = ["Plan", "State", "Trail", "carried_prices", "first_prices", "nothing_open"]

_NO_PARAMETERS = np.empty((0, 0, 0))


@dataclass(frozen=True, eq=False)
class Plan:
    """What a policy and a kind of decision make together; it never changes and is not saved.

    Its powers are asked once, here: a base that has none of them keeps the contract Base alone.
    """

    kind: Kind
    objective: Concave  # bound
    smoothing: Identity | Moreau | Augmented | Randomized  # bound
    base: Any  # tuned
    forget: float  # of the averages, at each reward
    iterate: str  # what is averaged
    anticipate: bool  # whether open decisions count

    def __getstate__(self) -> dict[str, Any]:
        # What was made on the way holds addresses and scratch, which belong to this process.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def age(self, t: int) -> int:
        """t for the smoothing: with memory, the number of rewards that the average still holds."""
        return t if self.forget == 0.0 else min(t, int(1.0 / self.forget))

    @cached_property
    def compass(self) -> Compass | None:
        """What gives the direction; None for a base that does not use it."""
        base = self.base
        return None if isinstance(base, Undirected) and not base.needs_direction else Compass(self)

    @cached_property
    def prices(self) -> Prices | None:
        """What gives the direction where leaves of f have prices; None where none has."""
        return Prices.of(self.objective, self.smoothing, self.kind)

    @cached_property
    def relaxed(self) -> Concave:
        """f without its hard constraints: what is reported as its value."""
        return self.objective.relaxed()

    def step(self, t: int) -> float:
        """The width of the smoothing after t rewards."""
        age, n = self.age(t), self.kind.seen.n_objectives
        return self.prices.step(age) if self.prices else self.smoothing.step(self.objective, n, age)

    def steps(self, times: IntVector) -> Vector:
        """`step` at many times at once."""
        if self.forget > 0.0:
            times = np.minimum(times, self.age(1 << 62))
        n = self.kind.seen.n_objectives
        return (
            self.prices.steps(times)
            if self.prices
            else self.smoothing.widths(self.objective, n, times)
        )

    def params(self, state: State) -> Vector:
        """Of the gradient of f, in a state."""
        if self.compass is None:
            return np.empty(0)
        return self.prices.params(state.prices) if self.prices else self.compass.program.params

    @cached_property
    def keep(self) -> float:
        """What is left of an older reward at the next."""
        return 1.0 - self.forget

    def undirected(self, rows: int) -> Course:
        """A course without a direction."""
        return np.empty(0), np.ones((rows, 3)), np.empty((rows, 0, 0)), False

    def frame(self, state: State) -> Frame:
        """The arrays of a state, for kernels; made once for a state, whose arrays never change
        their places.
        """
        known, frame = self._framed[0]
        if known is state:
            return frame
        frame = Frame([*self._arrays(state), *self._base_arrays(state)])
        self._framed[0] = (state, frame)
        return frame

    @cached_property
    def _framed(self) -> list[tuple[Any, Frame]]:
        return [(None, Frame([]))]

    def _arrays(self, state: State) -> list[Any]:
        compass = self.compass
        address = 0 if compass is None else compass.program.address
        averages = (state.totals, state.earned, state.clocks, state.direction, state.counters)
        corrects = self.blocks == (0, 0)
        aiming = 0 if compass is None else aim.address
        sampling = sample.address if compass is not None and compass.sampled else 0
        repricing, moving, spare = 0, np.empty(0), np.empty(0)
        if self.prices is not None:
            repricing, moving = reprice.address, self.prices.moving_params(state.prices)
            spare = np.zeros(self.prices.work_size)
        numbers = np.array(
            [address, self.forget, corrects, aiming, sampling, repricing], dtype=np.float64
        )
        live = state.live.now
        waiting = (state.waiting, self.ranges, self.coordinates)
        prices = (state.prices, moving, spare)
        return [self.params(state), *averages, *waiting, *live, numbers, *prices]

    def _base_arrays(self, state: State) -> list[Any]:
        if not self.commits:
            return []
        doubt = self.watch.doubt if self.certifies else np.empty(0)
        by_chance = self.iterate == "expected"
        arrays: list[Any] = self.base.arrays(state.base, doubt, self.follows, by_chance)
        return arrays

    @cached_property
    def in_rows(self) -> bool:
        """Whether the base decides in one kernel, with the direction in it."""
        return (
            isinstance(self.base, ActsInRows)
            and self.commits
            and newest(self.base, "act_rows", "act")
        )

    @cached_property
    def folds(self) -> bool:
        """Whether the base learns from many answers in one kernel."""
        base = self.base
        return isinstance(base, FoldsRows) and base.folds and newest(base, "fold_rows", "update")

    @cached_property
    def blocks(self) -> tuple[int, int]:
        """Blocks of features that are summed over open decisions; (0, 0) where estimates are."""
        if not isinstance(self.base, Awaits):
            return 0, 0
        return self.base.blocks(self.kind.problem)

    @cached_property
    def opens(self) -> bool:
        """Whether the base counts decisions as open in one kernel, by what their bytes hold."""
        base = self.base
        own = isinstance(base, OpensColumns) and newest(base, "expect_columns", "expect")
        return own and self.blocks != (0, 0)

    @cached_property
    def recalls(self) -> bool:
        """Whether `update` needs what was expected of a decision: features say it of an arm."""
        return self.blocks == (0, 0) or self.kind.problem.n_slots is not None

    @cached_property
    def waits(self) -> bool:
        """Whether open decisions can count: their rewards can be estimated, and matter."""
        return self.forecasts and self.compass is not None

    @cached_property
    def anticipates(self) -> bool:
        """Whether open decisions count."""
        return self.anticipate and self.waits

    @cached_property
    def foretells(self) -> bool:
        """Whether decisions carry an estimate of their reward vector."""
        return self.waits and self.blocks == (0, 0)

    @cached_property
    def ranges(self) -> Matrix:
        """Of the rewards, (2, n)."""
        return np.array([self.kind.problem.low, self.kind.problem.high])

    @cached_property
    def coordinates(self) -> IntVector:
        """Those of the reward vector that f sees; none where it sees all."""
        n = self.kind.problem.n_objectives
        coordinates = self.kind.sees(np.arange(float(n))).astype(np.int64)
        return coordinates if coordinates.size < n else coordinates[:0]

    def parameters(self, state: State) -> Cube:
        """Of the model that open decisions are estimated with; (0, 0, 0) where it is not linear."""
        if self.blocks == (0, 0) or not state.waiting.size:
            return _NO_PARAMETERS
        theta: Cube = state.base.oracle.theta
        if theta.shape[1] == 1 and self.extended:
            theta = theta.reshape(1, -1, self.blocks[1])
        return theta

    @cached_property
    def watch(self) -> Watch:
        """What keeps the live numbers."""
        return Watch(self)

    @cached_property
    def certifies(self) -> bool:
        """Whether the base takes part in live numbers."""
        return isinstance(self.base, Certifies)

    @cached_property
    def forecasts(self) -> bool:
        """Whether the base can estimate a reward vector."""
        return isinstance(self.base, Forecasts) and self.base.forecasts()

    @cached_property
    def extended(self) -> bool:
        """Whether the base learns from the direction."""
        return isinstance(self.base, LearnsDirection) and self.base.extended

    @cached_property
    def kept(self) -> int:
        """How many numbers of directions decisions keep."""
        return self.kind.seen.n_objectives if self.follows else 0

    @cached_property
    def follows(self) -> bool:
        """Whether the direction travels in the decision."""
        return self.extended or self.smoothing.averaged

    @cached_property
    def commits(self) -> bool:
        """Whether an answer is one kernel, which no interrupt can tear."""
        own = isinstance(self.base, Commits) and newest(self.base, "commit", "update")
        return own and self.base.commits

    @cached_property
    def none_joined(self) -> tuple[int, int]:
        """(first, stop) of an empty range of coordinates that joined after a decision."""
        return self.kind.joined(None)

    @cached_property
    def row_limit(self) -> float:
        """The largest norm of a row of features that can be learnt from."""
        ridge = self.base.ridge_used if isinstance(self.base, Repairs) else 0.0
        return row_limit(self.kind.problem, ridge)


def first_prices(plan: Plan) -> Vector:
    """The prices of a plan before the first reward; none where no leaf of f has one."""
    return plan.prices.fresh() if plan.prices else np.empty(0)


def carried_prices(state: State, plan: Plan) -> Vector:
    """The prices of a state in another plan."""
    if plan.prices is None:
        return np.empty(0)
    return plan.prices.carried(state.prices, state.plan.prices)


def nothing_open(plan: Plan) -> Vector:
    """The open decisions of a plan: none."""
    if not plan.waits:
        return np.empty(0)
    return np.zeros(size(plan.kind.problem.n_objectives, *plan.blocks))


class State(NamedTuple):
    """Sums of the iterate and of the rewards, over how many rounds; the base's; live numbers; what
    the open decisions are expected to earn (kernels/waiting.py).
    """

    plan: Plan
    totals: Vector
    earned: Vector
    clocks: Vector
    direction: Vector  # the running one
    counters: Vector
    base: Any
    live: Windows
    waiting: Vector
    prices: Vector  # of leaves of f: smoothing/prices.py

    def restored(self) -> None:
        """After arrays have been read from a file: raise for times that are impossible."""
        require_counts("waiting", self.waiting[: ISSUED + 1])
        require_counts("counters", self.counters)
        passed = (self.clocks >= 0.0) & (self.clocks <= self.counters[0])
        require("clocks", self.clocks, passed, "clocks run from 0 to the number of rewards")

    @property
    def t(self) -> int:
        """The number of rewards averaged in."""
        return int(self.counters.item(0))

    @property
    def open(self) -> int:
        """The number of decisions that are counted as open."""
        return int(self.waiting.item(OPEN)) if self.waiting.size else 0

    @property
    def issued(self) -> int:
        """The number of decisions that were ever counted as open."""
        return int(self.waiting.item(ISSUED)) if self.waiting.size else 0

    @property
    def ahead(self) -> int:
        """The number of rewards averaged in or to come: t of the smoothing's width."""
        waiting = self.waiting
        return int(self.counters.item(0) + (waiting.item(OPEN) if waiting.size else 0.0))

    @property
    def youngest(self) -> float:
        """The number of decisions, answered or open, behind the average that has the fewest."""
        return youngest(self.clocks, self.waiting, self.plan.keep)

    @property
    def iterate(self) -> Vector:
        """z, as f sees it."""
        return self._over(self.totals)

    @property
    def average(self) -> Vector:
        """The average observed reward, as f sees it."""
        return self._over(self.earned)

    def _over(self, sums: Vector) -> Vector:
        out = np.empty(sums.size)
        averages(sums, self.clocks, out)
        return self.plan.kind.sees(out)


class Trail(NamedTuple):
    """What `update` needs of a decision, besides what the base needs; in a batch, by column."""

    base: Any
    reserved: None = None  # its place in the bytes of decisions
    direction: Any = None  # where it is followed or learnt from
    live: tuple[int, Any] | None = None  # the window of live numbers, and the outlook
    size: int | None = None  # how many coordinates the reward had
    place: Any = None  # an int: which of the open decisions it is, where these count
    expected: Any = None  # what it is to earn: the reward vector, or exposures by slot
