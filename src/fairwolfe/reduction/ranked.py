"""`RankingState` and `RankingPlan` of the compiled engine for rankings; see reduction/engine.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.catalogue import NONE, sizes
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.rows import RankingRows
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.rankings import Rankings
from fairwolfe.oracles.linear_state import refuse
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.state import Plan, State, nothing_open
from fairwolfe.reduction.windows import Windows
from fairwolfe.smoothing import Randomized

__all__ = ["CompiledRankings", "RankingPlan", "RankingState", "ranks_compiled"]


_RULES = ("optimistic", "discounted", "deprived_first")


def ranks_compiled(ranker: Any) -> bool:
    """Whether the engine has the rule of a ranker."""
    return type(ranker).rule.function.__name__ in _RULES


class RankingState(NamedTuple):
    """All that changes, as plain arrays: m items, n = m + R coordinates, d = p q features.

    Copy, save, compare and roll back are loops over its fields.
    """

    totals: Vector  # (n,) sums of what is averaged: z = totals/clocks
    earned: Vector  # (n,) sums of rewards
    clocks: Vector  # (n,) over how many
    t: Vector  # (1,) rewards averaged in
    running: Vector  # (n,) the direction, where samples of it are averaged
    open: Vector  # (3,) open decisions: now, ever, and answered
    weights: Vector  # (n,) how many of them count
    sums: Matrix  # (2, n) of their expected exposures
    answered: Vector  # (n,) rewards of the answered ones
    phi: Cube  # (2, 1, d + 1) features of the open ones
    psi: Matrix  # (1, d + 1) features of the answered ones
    window: Vector  # (18,) live numbers
    slope: Vector  # (coordinates that f sees,) their certificate
    rewards_seen: Vector  # the same
    prices: Vector  # of hard constraints
    gram: Cube  # (1, d, d) V
    inverse: Cube  # (1, d, d) V^-1
    theta: Cube  # (1, R, d)
    moment: Cube  # (1, R, d)
    learnt: Vector  # (5,) counters of the regression
    exposed: Vector  # (m,) how often
    shown: Vector  # (m,)
    slots: Matrix  # (2, k) rankings, and those in which the slot was exposed
    features: Matrix  # (q, m), or (q, 0) where contexts bring them

    def copy(self) -> Self:
        """The same numbers in other memory."""
        arrays: Any = (array.copy() for array in self)
        return type(self)(*arrays)

    def restore(self, other: Self) -> None:
        """Take the numbers of another state of the same shape."""
        for own, value in zip(self, other, strict=True):
            own[...] = value


@dataclass(frozen=True, eq=False)
class RankingPlan:
    """What never changes: numbers, arrays, names of compiled rules, and the gradient of f."""

    tree: Any  # kernels.gradients.Tree
    coordinates: IntVector | None  # those that f sees; None: all
    low: Vector
    high: Vector
    forget: float  # of the averages, at each reward
    width: float  # of the smoothing, times sqrt(t + 1) unless it is fixed
    fixed: bool
    samples: int  # of randomised smoothing
    anticipate: bool  # whether open decisions count
    sizes: tuple[int, int]  # (p, q)
    rule: str
    rule_params: Vector
    uniforms: int  # numbers that a ranking draws
    doubt: Vector  # params of upper bounds, for live numbers; none: no bounds
    certifies: bool
    learn_params: Vector
    slot_ranges: Matrix  # (2, R)
    position_weights: Vector | None
    exposure: str  # what counts as exposed
    by_chance: bool  # whether chances of exposure are averaged
    owed: float  # the share of rankings that an item must be shown in
    keeps_direction: bool  # whether rows hold directions
    limit: float  # of |user (x) item|^2


class CompiledRankings:
    """A ranking policy in a problem: it decides rows and learns rows. One is rows of length one."""

    def __init__(
        self, policy: FrankWolfe, problem: Problem, features: Matrix | None = None
    ) -> None:
        plan = policy.plan(kind_of(problem))
        base = plan.base.init(problem)
        if features is not None:
            base = plan.base.with_features(base, features)
            plan = policy.plan(plan.kind.holding(plan.base.catalogue(base)))  # type: ignore[attr-defined]
        n, d = problem.n_objectives, problem.dimension
        arrays = (*np.zeros((3, n)), np.zeros(1), np.zeros(n), np.zeros(3), np.zeros(n))
        sums = (np.zeros((2, n)), np.zeros(n), np.zeros((2, 1, d + 1)), np.zeros((1, d + 1)))
        prices = plan.prices.fresh() if plan.prices else np.empty(0)
        live = Windows.start(plan.kind.seen.n_objectives)
        self._start(policy, plan, base, (*arrays, *sums), live, prices)

    def _start(
        self, policy: FrankWolfe, plan: Plan, base: Any, sums: Any, live: Windows, prices: Vector
    ) -> None:
        self.policy, self.base, self.base_state = policy, plan.base, base
        self.kind, self.watch, self.windows = plan.kind, plan.watch, live
        self.old_plan = plan
        oracle, problem, ranker = base.oracle, plan.kind.problem, plan.base
        n, smoothing = plan.kind.seen.n_objectives, plan.smoothing
        design = (oracle.gram, oracle.inverse, oracle.theta, oracle.moment, oracle.counters)
        counts: Any = (base.exposed, base.shown, base.slots, base.features)
        arrays: Any = (*sums, *live.now, prices, *design, *counts)
        self.state = state = RankingState(*arrays)
        self.objective = plan.objective
        # The state of the policy, of which the engine shares the memory.
        averages = (state.totals, state.earned, state.clocks, state.running, state.t)
        self.policy_state = State(plan, *averages, base, live, nothing_open(plan), prices)
        limit = row_limit(problem, ranker.ridge)
        weights = ranker.position_weights
        self.plan = RankingPlan(
            tree=plan.prices.tree(prices) if plan.prices else plan.objective.tree(n),
            coordinates=plan.coordinates if plan.coordinates.size else None,
            low=problem.low,
            high=problem.high,
            forget=plan.forget,
            width=1.0 if plan.prices else smoothing.step(plan.objective, n, 0),
            fixed=getattr(smoothing, "horizon", None) is not None and not plan.prices,
            samples=smoothing.n_samples if isinstance(smoothing, Randomized) else 0,
            anticipate=plan.anticipates,
            sizes=sizes(problem),
            rule=type(ranker).rule.function.__name__,
            rule_params=base.params,
            uniforms=1 + (problem.n_slots or 0) // 2 if ranker.randomize > 0.0 else 0,
            doubt=plan.watch.doubt if plan.certifies else np.empty(0),
            certifies=plan.certifies,
            learn_params=oracle.params,
            slot_ranges=np.ascontiguousarray(problem.slot_ranges),
            position_weights=None if weights is None else np.array(weights),
            exposure=ranker.exposure,
            by_chance=plan.iterate == "expected",
            owed=ranker.owed,
            keeps_direction=plan.follows,
            limit=limit * limit,
        )
        self.engine = Rankings(self.plan, self.state)

    def rows(self, m: int, brought: bool = False) -> RankingRows:
        """Room for m rankings; brought: contexts bring the features of the items."""
        (p, q), k = self.plan.sizes, self.state.slots.shape[1]
        n = self.state.totals.size if self.plan.keeps_direction else 0
        return RankingRows.empty(m, k, p, n, (k, q) if brought else (0, 0))

    def decide(
        self, users: Matrix, draws: Matrix, normals: Cube, number: int, **how: Any
    ) -> RankingRows:
        """Rank for users (rows, p); see `Rankings.decide`."""
        rows = self.rows(len(users), how.get("items") is not None)
        done = self.engine.decide(rows, users, draws, normals, number, **how)
        if done < len(users):
            self.raise_failure(useless=done < 0)
        return rows

    def learn(self, rows: RankingRows, seen: Matrix, rewards: Cube) -> None:
        """Learn the feedback to rankings in their order: seen (rows, k), rewards (rows, k, R)."""
        done = 0
        while done < len(seen):
            code = self.engine.learn(rows, seen, rewards, done)
            if code < 0:
                row, unsound = divmod(-1 - code, 2)
                if unsound:
                    raise InvalidInput(f"the feedback to ranking {row} contradicts itself")
                refuse(self.state.learnt)
            done, due = divmod(code, 2)
            if due:
                self._gather()

    @property
    def callbacks(self) -> int:
        """How often Python functions of the user were called by compiled code."""
        calls: int = self.plan.tree.callbacks
        return calls

    def raise_failure(self, useless: bool) -> NoReturn:
        """Why the state cannot decide; useless: its scores, not the direction, are the reason."""
        if useless:
            refuse(self.state.learnt)
        z = self.kind.sees(self.state.totals / np.maximum(self.state.clocks, 1.0))
        self.objective.relaxed().gradient(z)  # raises where f has no gradient there
        raise NumericalFailure(f"the direction of {self.objective} is not a number")

    def _gather(self) -> None:
        """Take a certificate for the next window of live numbers."""
        state, plan = self.state, self.plan
        t = state.t.item(0)
        age = int(t if plan.forget == 0.0 else min(t, int(1.0 / plan.forget)))
        z = self.kind.sees(state.totals / np.maximum(state.clocks, 1.0))
        self.watch.gather(self.windows, z, state.prices, age)

    def add_items(self, features: Matrix, instead: IntVector = NONE) -> None:
        """More items, the last ids, `instead` of those that are retired with it; features
        (new, q). The arrays and the engine are made anew.
        """
        old, count = self.state.exposed.size, len(features)
        base = self.base.with_items(self.base_state, features)
        if instead.size:
            base = self.base.without_items(base, instead)
        state = self.state
        grown = [
            np.insert(vector, [old] * count, 0.0, axis=-1)
            for vector in (state.totals, state.earned, state.clocks, state.running)
        ]
        weights, sums, answered = (
            np.insert(array, [old] * count, 0.0, axis=-1)
            for array in (state.weights, state.sums, state.answered)
        )
        totals, earned, clocks, running = grown
        averages = (totals, earned, clocks, state.t, running, state.open)
        self._rebind(base, (*averages, weights, sums, answered, state.phi, state.psi))

    def retire_items(self, ids: IntVector) -> None:
        """These items are not shown any more, nor seen by f; the engine is made anew."""
        base = self.base.without_items(self.base_state, ids)
        self._rebind(base, self.state[: RankingState._fields.index("window")])

    def _rebind(self, base: Any, sums: Any) -> None:
        kind: Any = self.kind
        plan = self.policy.plan(kind.holding(self.base.catalogue(base)))
        prices = np.empty(0)
        if plan.prices is not None:
            prices = plan.prices.carried(self.state.prices, self.old_plan.prices)
        live = self.windows.anew(plan.kind.seen.n_objectives)
        self._start(self.policy, plan, base, sums, live, prices)
