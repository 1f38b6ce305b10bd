"""`State`: all that changes in a policy, as arrays; `Plan`: what the kernels are told once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.restoring import require, require_counts
from fairwolfe.errors import IncompatibleState
from fairwolfe.oracles import LinearState
from fairwolfe.reduction.windows import Windows

__all__ = ["Plan", "State"]


class State(NamedTuple):
    """n rewards, of which f sees s; blocks of d features; m items of q features, k slots.

    Copy, save, compare and roll back are loops over its fields. Arrays with a first axis of stages
    have one entry for each set of rewards that arrive together.
    """

    totals: Vector  # (n,) sums of what is averaged: z = totals/clocks
    earned: Vector  # (n,) sums of rewards
    clocks: Vector  # (n,) over how many
    t: Vector  # (stages,) rewards averaged in
    running: Vector  # (n,) the direction, where samples of it are averaged
    open: Vector  # (3,) open decisions: now, ever, and answered
    weights: Vector  # (n,) how many of them count
    sums: Matrix  # (2, n) of their recorded estimates
    answered: Vector  # (n,) rewards of the answered ones, or the mean error of estimates
    phi: Any  # (stages, 2, blocks, d + 1) features of the open ones
    psi: Cube  # (stages, blocks, d + 1) features of the answered ones
    live: Vector  # (39 + 5 s,) windows of live numbers: reduction/windows.py
    prices: Vector  # of hard constraints
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
    base: Any = None  # of a base in Python

    @classmethod
    def fresh(
        cls, n: int, n_seen: int, blocks: int, d: int, prices: Vector, serial: float = 0.0
    ) -> Self:
        """Before the first reward; without a regression, items, or a base."""
        totals, earned, clocks, running, weights, answered = np.zeros((6, n))
        cube, matrix, vector = np.empty((0, 0, 0)), np.empty((0, 0)), np.empty(0)
        arrays: Any = (
            totals,
            earned,
            clocks,
            np.zeros(1),
            running,
            np.zeros(3),
            weights,
            np.zeros((2, n)),
            answered,
            np.zeros((1, 2, blocks, d + 1)),
            np.zeros((1, blocks, d + 1)),
            Windows.start(n_seen, serial),
            prices,
            *(cube[None], cube[None], cube, cube, matrix),
            *(vector, vector, matrix, matrix, vector),
        )
        return cls(*arrays)

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
        passed = (self.clocks >= 0.0) & (self.clocks <= self.t[0])
        require("clocks", self.clocks, passed, "clocks run from 0 to the number of rewards")
        Windows(self.live).restored()
        if self.theta.size:
            design = (self.gram[0], self.inverse[0], self.theta, self.moment)
            LinearState(*design, np.empty(0), self.learnt[0]).restored()
        retired = (self.retired == 0.0) | (self.retired == 1.0)
        require("retired", self.retired, retired, "an item is retired (1) or not (0)")
        require("exposed", self.exposed, self.exposed >= 0.0, "it counts from 0 on")
        right = self.exposed <= self.shown
        require("exposed", self.exposed, right, "items are not exposed more often than shown")
        require("slots", self.slots, self.slots >= 0.0, "they count from 0 on")
        if self.slots.size:
            fits = self.slots[1] <= self.slots[0]
            require("slots", self.slots[1], fits, "slots are exposed where they are shown")
        if self.features.shape[1] not in (0, self.retired.size):
            raise IncompatibleState(
                f"features has shape {self.features.shape}; there are {self.retired.size} items"
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
    start: Vector | None = None  # z before the first answer
    rule: str = ""
    rule_params: Any = None
    uniforms: int = 0  # numbers that a decision draws
    doubt: Any = None  # params of upper bounds, for live numbers
    certifies: bool = False
    learn_params: Any = None
    limit: float = 0.0  # of the squared norm of what is learnt from
    # Arms:
    look: str = ""
    learn: str = ""
    extended: bool = False  # whether <g, r> is regressed on g (x) x
    ascent: tuple[Any, int, float] = (None, 0, 0.0)  # gradient, steps and rate of MOLinCB
    own_rule: Any = None  # a rule from outside the package, to which its params point
    # Rankings:
    sizes: tuple[int, int] = (0, 0)  # (p, q)
    slot_ranges: Any = None  # (2, R)
    position_weights: Vector | None = None
    exposure: str = ""  # what counts as exposed
    by_chance: bool = False  # whether chances of exposure are averaged
    owed: float = 0.0  # the share of rankings that an item must be shown in
