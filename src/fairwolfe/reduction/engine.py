"""`State` and `Plan` of the compiled engine: what changes, and what does not.

The engine (kernels/arms.py, kernels/rankings.py) decides and learns rows with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from fairwolfe.bandits import EpsilonGreedy, Fixed, LinUCB, Rule, SquareCB, Thompson, Uniform
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.rows import ArmRows
from fairwolfe.errors import NumericalFailure
from fairwolfe.kernels.arms import Arms
from fairwolfe.kernels.rules import own_rule
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.oracles.linear_state import refuse
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.molincb import MixtureAscent
from fairwolfe.smoothing import Randomized

__all__ = ["ArmPlan", "ArmState", "CompiledArms", "compiles"]


_LOOKS = {"outlook": "plain", "optimistic_outlook": "optimistic", "extended_outlook": "extended"}
_REGRESSIONS = {Ridge: "ridge", OnlineGradient: "online_gradient"}


_RULES = (LinUCB, SquareCB, EpsilonGreedy, Thompson, Uniform, Fixed, MixtureAscent)


def compiles(part: Any) -> bool:
    """Whether the engine has a base, or a regression."""
    if isinstance(part, Rule):
        return part.compiles
    return type(part) in _RULES or type(part) in _REGRESSIONS


class ArmState(NamedTuple):
    """All that changes, as plain arrays: n rewards, blocks of d features, one stage of rewards.

    Copy, save, compare and roll back are loops over its fields.
    """

    totals: Vector  # (n,) sums of what is averaged: z = totals/clocks
    earned: Vector  # (n,) sums of rewards
    clocks: Vector  # (n,) over how many
    t: Vector  # (stages,) rewards averaged in
    running: Vector  # (n,) the direction, where samples of it are averaged
    open: Vector  # (3,) open decisions: now, ever, and answered
    weights: Vector  # (n,) how many of them count
    sums: Matrix  # (2, n) of their recorded estimates
    answered: Vector  # (n,) rewards of the answered ones
    phi: Cube  # (2, blocks, d + 1) features of the open ones
    psi: Matrix  # (blocks, d + 1) features of the answered ones
    window: Vector  # (18,) live numbers
    slope: Vector  # (n,) their certificate
    rewards_seen: Vector  # (n,)
    prices: Vector  # of hard constraints
    gram: Any  # (stages, blocks, D, D) V
    inverse: Any  # (stages, blocks, D, D) V^-1
    theta: Cube  # (blocks, rewards, D)
    moment: Cube  # (blocks, rewards, D)
    learnt: Matrix  # (stages, 5) counters of the regression

    def copy(self) -> Self:
        """The same numbers in other memory."""
        arrays: Any = (array.copy() for array in self)
        return type(self)(*arrays)

    def restore(self, other: Self) -> None:
        """Take the numbers of another state of the same shape."""
        for own, value in zip(self, other, strict=True):
            own[...] = value


@dataclass(frozen=True, eq=False)
class ArmPlan:
    """What never changes: numbers, arrays, names of compiled rules, and the gradient of f."""

    tree: Any  # kernels.gradients.Tree, None where no direction is followed
    coordinates: IntVector | None
    low: Vector
    high: Vector
    forget: float  # of the averages, at each reward
    width: float  # of the smoothing, times sqrt(t + 1) unless it is fixed
    fixed: bool
    samples: int  # of randomised smoothing
    anticipate: bool  # whether open decisions count
    rule: str
    rule_params: Vector
    uniforms: int  # numbers that the rule draws
    look: str
    doubt: Vector
    certifies: bool
    learn: str
    learn_params: Vector
    extended: bool  # whether it regresses <g, r> on g (x) x
    keeps_direction: bool  # whether rows hold directions
    limit: float  # of |g (x) x|^2
    ascent: tuple[Any, int, float] = (None, 0, 0.0)  # gradient, steps and rate of MOLinCB
    own_rule: Any = None  # a rule from outside the package, to which its params point


class CompiledArms:
    """A policy for arms in a problem: it decides rows and learns rows; one decision is one row."""

    def __init__(self, policy: FrankWolfe, problem: Problem) -> None:
        plan = policy.plan(kind_of(problem))
        base, smoothing, n = plan.base, plan.smoothing, problem.n_objectives
        first = base.init(problem)
        oracle, (blocks, d) = first.oracle, base.blocks(problem)
        # The state of the policy and that of the engine share their memory.
        self.policy_state = policy.fresh(plan, first)
        shared, self.windows, self.watch = self.policy_state, self.policy_state.live, plan.watch
        self.kind, self.base, self.objective = plan.kind, base, plan.objective
        prices = shared.prices
        self.state = ArmState(
            shared.totals,
            shared.earned,
            shared.clocks,
            shared.counters,
            shared.direction,
            np.zeros(3),
            np.zeros(n),
            np.zeros((2, n)),
            np.zeros(n),
            np.zeros((2, blocks, d + 1)),
            np.zeros((blocks, d + 1)),
            *self.windows.now,
            prices,
            oracle.gram[None],
            oracle.inverse[None],
            oracle.theta,
            oracle.moment,
            oracle.counters[None],
        )
        self.own_rule = own_rule(base.choose_arm) if isinstance(base, Rule) else None
        rule, params = self._rule(first.params)
        directed = plan.compass is not None
        tree = None
        if directed:
            tree = plan.prices.tree(prices) if plan.prices else plan.objective.tree(n)
        samples = smoothing.n_samples if isinstance(smoothing, Randomized) else 0
        fixed = getattr(smoothing, "horizon", None) is not None
        doubt = np.concatenate([problem.low, problem.high, self.watch.doubt])
        self.plan = ArmPlan(
            tree=tree,
            coordinates=None,
            low=problem.low,
            high=problem.high,
            forget=plan.forget,
            width=1.0 if plan.prices else smoothing.step(plan.objective, n, 0),
            fixed=fixed and not plan.prices,
            samples=samples,
            anticipate=plan.anticipates,
            rule=rule,
            rule_params=params,
            uniforms=self._uniforms(problem),
            look=_LOOKS[base.look_rule.function.__name__],
            doubt=doubt,
            certifies=plan.certifies,
            learn=_REGRESSIONS[type(base.regression)],
            learn_params=oracle.params,
            extended=base.extended,
            keeps_direction=plan.follows,
            limit=base._limit(problem),
            ascent=base.ascent(problem) if isinstance(base, MixtureAscent) else (None, 0, 0.0),
            own_rule=self.own_rule,
        )
        self.engine = Arms(self.plan, self.state)
        self._row_shape = d, n if self.plan.keeps_direction else 0

    def _rule(self, params: Vector) -> tuple[str, Vector]:
        """The name of the rule, and its params."""
        if self.own_rule is not None:
            return self.own_rule.name, self.own_rule.params
        return self.base.choose.function.__name__.removesuffix("_choice"), params

    def _uniforms(self, problem: Problem) -> int:
        drawn: Matrix = self.base.draws(np.random.default_rng(0), problem, 1)
        return drawn.shape[1]

    def rows(self, m: int) -> ArmRows:
        """Room for m decisions."""
        return ArmRows.empty(m, *self._row_shape)

    def decide(
        self, contexts: Cube, draws: Matrix, normals: Cube, number: int, **how: Any
    ) -> ArmRows:
        """Decide for contexts (rows, arms, d); see `Arms.decide`."""
        rows = self.rows(len(contexts))
        done = self.engine.decide(rows, contexts, draws, normals, number, **how)
        if done < len(contexts):
            self.raise_failure(useless=done < 0)
        return rows

    def learn(self, rows: ArmRows, rewards: Matrix) -> None:
        """Learn what rows earned, (rows, n), in their order."""
        done = 0
        while done < len(rewards):
            code = self.engine.learn(rows, rewards, done)
            if code < 0:
                refuse(self.state.learnt[0])
            done, due = divmod(code, 2)
            if due:
                self._gather()

    @property
    def callbacks(self) -> int:
        """How often Python functions of the user were called by compiled code."""
        callers = (self.plan.tree, self.plan.ascent[0], self.own_rule)
        return sum(caller.callbacks for caller in callers if caller is not None)

    def raise_failure(self, useless: bool) -> NoReturn:
        """Why the state cannot decide; useless: its scores, not the direction, are the reason."""
        raised = None if self.own_rule is None else self.own_rule.failure()
        if raised is not None:
            raise raised
        if useless:
            refuse(self.state.learnt[0])
        z = self.state.totals / np.maximum(self.state.clocks, 1.0)
        self.objective.relaxed().gradient(z)  # raises where f has no gradient there
        raise NumericalFailure(f"the direction of {self.objective} is not a number")

    def _gather(self) -> None:
        """Take a certificate for the next window of live numbers."""
        state, plan = self.state, self.plan
        t = state.t.item(0)
        age = int(t if plan.forget == 0.0 else min(t, int(1.0 / plan.forget)))
        z = state.totals / np.maximum(state.clocks, 1.0)
        self.watch.gather(self.windows, z, state.prices, age)
