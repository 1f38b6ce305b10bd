"""`State`: all that changes in a policy, as arrays; `Plan`: what the kernels are told once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.groups import NO_END
from fairwolfe.core.packing import require, require_counts
from fairwolfe.errors import IncompatibleState
from fairwolfe.oracles import LinearState
from fairwolfe.reduction.live import Windows


class State(NamedTuple):
    """n rewards, of which f sees s; blocks of d features; m items of q features, k slots.

    Copy, save, compare and roll back are loops over its fields. Arrays with a first axis of stages
    have one entry for each set of rewards that arrive together.
    """

    totals: Vector  # (n,) sums of what is averaged: z = totals/clocks
    earned: Vector  # (n,) sums of rewards
    clocks: Vector  # (n,) over how many
    t: Vector  # (stages,) answers averaged in
    running: Vector  # (n,) the direction, where samples of it are averaged
    open: Vector  # (3 stages,) open decisions: now, ever, and answered
    weights: Vector  # (n,) how many of them count
    sums: Matrix  # (2, n) of their recorded estimates
    answered: Vector  # (n,) rewards of the answered ones, or the mean error of estimates
    phi: Any  # (stages, 2, blocks, d + 1) features of the open ones
    psi: Cube  # (stages, blocks, d + 1) features of the answered ones
    live: Vector  # (39 + 5 s,) windows of live numbers: reduction/live.py
    prices: Vector  # of hard constraints
    factors: Vector  # of their widths: 1, and of rates that of smoothing/prices.py
    gram: Any  # (stages, blocks, D, D) V
    inverse: Any  # (stages, blocks, D, D) V^-1
    theta: Cube  # (blocks, rewards, D)
    moment: Cube  # (blocks, rewards, D)
    learnt: Matrix  # (stages, 5) counters of the regression
    exposed: Vector  # (m,) how often each item was exposed,
    shown: Vector  # (m,) and shown
    slots: Matrix  # (2, k) rankings, and those in which the slot was exposed
    features: Matrix  # (q, m), or (q, 0) where contexts bring them
    retired: Vector  # (m,) 1 for items that are not shown any more
    groups: Matrix  # (3, groups ever) answers and open decisions from gaps; their first item
    gaps: Matrix  # (3, gaps) the times in which a group had no item: core/groups.py
    base: Any = None  # of a base in Python

    @classmethod
    def fresh(
        cls,
        n: int,
        n_seen: int,
        blocks: int,
        d: int,
        prices: tuple[Vector, Vector],
        stages: int = 1,
    ) -> Self:
        """Before the first reward; without a regression, items, or a base.

        prices: and their factors.
        """
        totals, earned, clocks, running, weights, answered = np.zeros((6, n))
        phi, psi = np.zeros((stages, 2, blocks, d + 1)), np.zeros((stages, blocks, d + 1))
        cube, matrix, vector = np.empty((0, 0, 0)), np.empty((0, 0)), np.empty(0)
        averages = (totals, earned, clocks, np.zeros(stages), running)
        open_ = (np.zeros(3 * stages), weights, np.zeros((2, n)), answered, phi, psi)
        regression = (cube[None], cube[None], cube, cube, matrix)
        items = (vector, vector, matrix, matrix, vector, np.empty((3, 0)), np.empty((3, 0)))
        live = Windows.start(n_seen)
        arrays: Any = (*averages, *open_, live, *prices, *regression, *items)
        return cls(*arrays)

    def design(self, params: Vector, stage: int = 0) -> LinearState:
        """The regression of a stage, which shares the memory of the state."""
        arrays = (self.gram[stage], self.inverse[stage], self.theta, self.moment)
        return LinearState(*arrays, params, self.learnt[stage])

    def with_design(self, of: LinearState) -> Self:
        """The state with the arrays of a regression; each stage has a design of its own."""
        stages = self.t.size
        each = {"gram": of.gram, "inverse": of.inverse, "learnt": of.counters}
        arrays: Any = {name: array[None] for name, array in each.items()}
        if stages > 1:
            arrays = {name: np.repeat(array, stages, axis=0) for name, array in arrays.items()}
        return self._replace(theta=of.theta, moment=of.moment, **arrays)

    def copy(self, base: Any = None) -> Self:
        """The same numbers in other memory; base: a copy of that of a base in Python."""
        arrays: Any = [*(array.copy() for array in self[:-1]), base]
        return type(self)(*arrays)

    def restore(self, other: Self) -> None:
        """Take the numbers of another state of the same shape."""
        for own, value in zip(self[:-1], other[:-1], strict=True):
            own[...] = value

    def restored(self) -> None:
        """After arrays have been read from a file: raise for what no decisions can produce."""
        require_counts("open", self.open)
        require_counts("t", self.t)
        passed = (self.clocks >= 0.0) & (self.clocks <= self.t.max())
        require("clocks", self.clocks, passed, "clocks run from 0 to the number of rewards")
        require("factors", self.factors, self.factors >= 0.0, "widths have no sign")
        paused, gaps = self.groups[0], self.gaps[0]
        require("groups", paused, paused >= 0.0, "clocks do not run backwards")
        require("groups", self.groups[2], self.groups[2] < self.clocks.size, "it is an item")
        require("gaps", gaps, np.isin(gaps, np.arange(paused.size)), "a gap is of a group")
        ends = self.gaps[1:]
        require("gaps", ends, (ends >= 0.0) & (ends <= NO_END), "epochs are counted from 0 on")
        Windows(self.live).restored()
        for stage in range(self.t.size if self.theta.size else 0):
            self.design(np.empty(0), stage).restored()
        if self.slots.size:
            require_ranking_counts(self)


def require_ranking_counts(state: Any) -> None:
    """IncompatibleState for counts of items and slots that no rankings can produce."""
    exposed, shown, slots, retired = state.exposed, state.shown, state.slots, state.retired
    known = (retired == 0.0) | (retired == 1.0)
    require("retired", retired, known, "an item is retired (1) or not (0)")
    require("exposed", exposed, exposed >= 0.0, "it counts from 0 on")
    require("exposed", exposed, exposed <= shown, "items are not exposed more often than shown")
    require("slots", slots, slots >= 0.0, "they count from 0 on")
    require("slots", slots[1], slots[1] <= slots[0], "slots are exposed where they are shown")
    if state.features.shape[1] not in (0, retired.size):
        raise IncompatibleState(
            f"features has shape {state.features.shape}; there are {retired.size} items: it "
            "belongs to others"
        )


@dataclass(frozen=True, eq=False)
class Plan:
    """What never changes, for the kernels: numbers, arrays, names of rules, the gradient of f."""

    tree: Any  # kernels.gradients.Tree; None where no direction is followed
    coordinates: IntVector | None  # those that f sees; None: all
    low: Vector
    high: Vector
    forget: float  # of the averages, at each reward
    width: float  # of the smoothing, times sqrt(t + 1) unless it is fixed
    fixed: bool
    samples: int  # of randomised smoothing
    anticipate: bool  # whether open decisions count
    keeps_direction: bool  # whether rows hold directions
    starts: IntVector  # (stages + 1,) the first coordinate of each stage
    price_stages: IntVector | None  # the stages that each row with a price uses, as bits
    start: Vector | None = None  # z before the first answer
    groups: Any = None  # core.groups.Groups, where f is of groups of items that come and go
    rule: str = ""
    rule_params: Any = None
    uniforms: int = 0  # numbers that a decision draws
    bound_params: Any = None  # params of upper bounds, for live numbers
    certifies: bool = False
    measured: int = 1  # one in so many decisions is measured for live numbers
    learn_params: Any = None
    limit: float = 0.0  # of the squared norm of what is learnt from
    # Arms:
    certificate: str = ""
    learn: str = ""
    extended: bool = False  # whether <g, r> is regressed on g (x) x
    ascent: tuple[Any, int, float] = (None, 0, 0.0)  # gradient, steps and rate of MOLinCB
    own_rule: Any = None  # a rule from outside the package, to which its params point
    # Rankings:
    sizes: tuple[int, int] = (0, 0)  # (p, q)
    slot_ranges: Any = None  # (2, R)
    position_weights: Vector | None = None
    exposure: str = ""  # what counts as exposed
    left: Any = None  # (q, items not retired) features of these, where some are retired
    longest: float = -1.0  # the largest |item|^2 of those that are kept; < 0: not known
    by_chance: bool = False  # whether chances of exposure are averaged
    owed: float = 0.0  # the share of rankings that an item must be shown in
