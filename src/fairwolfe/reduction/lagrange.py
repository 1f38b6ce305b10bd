"""`LagrangeCB`: the Lagrangian competitor for budgets, where f is linear."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from fairwolfe.bandits import SquareCB
from fairwolfe.bandits.base import BanditState
from fairwolfe.core.arrays import Vector
from fairwolfe.core.decision import Choice, Decision, Learnt
from fairwolfe.core.kinds import Kind, kind_of, require_kind
from fairwolfe.core.problem import Problem, number_where, whole_number
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import AtMost, Concave, Linear
from fairwolfe.objectives.concave import by_name


class LagrangeState(NamedTuple):
    """The bandit; (3, D) by reward: prices, levels and largest prices, of
    budgets (0 elsewhere); the weights; the sums of rewards and of answers, (D + 1,).
    """

    base: BanditState
    prices: Any
    weights: Vector
    sums: Vector

    @property
    def t(self) -> int:
        """The number of answers."""
        return int(self.sums[-1])

    @property
    def average(self) -> Vector:
        """The average observed reward."""
        mean: Vector = self.sums[:-1] / max(self.sums[-1], 1.0)
        return mean


@dataclass(frozen=True)
class LagrangeCB:
    """Maximise <weights, z> with z_i <= budgets_i, by prices that online gradient descent moves.

    A bandit by inverse gaps (`SquareCB`) chooses for the scalar reward <w, r> - sum_i lambda_i
    (c_i - b_i), c the rewards that have budgets. After the t-th answer

        lambda_i <- clip(lambda_i + cap_i/(R_i sqrt t) (c_i - b_i), 0, cap_i),

    with R_i the range of c_i. f is linear, and no average is followed.

    Parameters
    ----------
    weights: of the rewards, as those of `Linear`
    budgets: name or coordinate -> the most that its average may be; with `horizon` the most that
        its sum over that many decisions may be
    horizon: a number of decisions, which the budgets are for
    slack: how far below its budget some policy keeps every reward; the largest price is then
        Delta/slack, with Delta the range of <w, r>. None: Delta/b_i, which is Delta horizon/budget,
        for rewards of at least 0 that some arm does not spend
    gamma0: of `SquareCB`

    Reference: Slivkins, Sankararaman and Foster, JMLR 2024; docs/bandits.md.

    >>> problem = Problem.arms(2, {"clicks": (0, 1), "cost": (0, 1)})
    >>> policy = LagrangeCB({"clicks": 1.0}, {"cost": 0.3}, gamma0=100.0)
    >>> state = policy.init(problem)
    >>> decision = policy.act(state, np.eye(2), np.random.default_rng(0))
    >>> policy.update(state, decision, [1.0, 1.0]).prices[0].round(3).tolist()
    [0.0, 2.333]
    """

    weights: Sequence[float] | Mapping[str, float]
    budgets: Mapping[Any, float]
    horizon: int | None = field(default=None, kw_only=True)
    slack: float | None = field(default=None, kw_only=True)
    gamma0: float | Literal["scaled"] = field(default="scaled", kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", by_name("weights", self.weights))
        if not isinstance(self.budgets, Mapping) or not self.budgets:
            raise InvalidInput(f"budgets is {self.budgets!r:.80}; give a level for each name")
        object.__setattr__(self, "budgets", by_name("budgets", self.budgets))
        if self.horizon is not None:
            whole_number("horizon", self.horizon)
        if self.slack is not None:
            number_where("slack", self.slack, lambda x: 0.0 < x < np.inf, "a positive number")
        elif min(self.budgets.values()) <= 0.0:
            raise InvalidInput(
                f"a budget is {min(self.budgets.values()):g}, and without slack the largest price "
                "is in proportion to 1/budget; give slack, how far below its budget some policy is"
            )
        given: Any = self.gamma0
        if given == "theorem":
            raise InvalidInput("gamma0 is 'theorem', which is about a fixed f; give a number")
        SquareCB(gamma0=self.gamma0)

    @cached_property
    def base(self) -> SquareCB:
        """What chooses."""
        return SquareCB(gamma0=self.gamma0)

    @cached_property
    def objective(self) -> Concave:
        """The linear function with its limits."""
        scale = 1.0 if self.horizon is None else 1.0 / self.horizon
        levels = {name: scale * level for name, level in self.budgets.items()}
        weights: Any = self.weights
        by_place = {name: level for name, level in levels.items() if not isinstance(name, str)}
        f: Concave = Linear(weights)
        if len(by_place) < len(levels):
            f = f + AtMost({name: x for name, x in levels.items() if isinstance(name, str)})
        for place, level in by_place.items():
            f = f + AtMost(level).on(place)
        return f

    def init(self, problem: Problem) -> LagrangeState:
        """Bind the names to the problem and allocate."""
        require_kind("arms", problem, "LagrangeCB")
        n, names = problem.n_objectives, list(problem.rewards)
        weights: Any = self.weights
        w = Linear(weights).bind(problem).gradient(np.zeros(n))
        delta = float(np.abs(w) @ (problem.high - problem.low))
        prices = np.zeros((3, n))
        for name, budget in self.budgets.items():
            known = name in names if isinstance(name, str) else name in range(n)
            if not known:
                raise InvalidInput(f"there is no reward {name!r}; budgets are of {names}")
            i = names.index(name) if isinstance(name, str) else int(name)
            level = budget / (self.horizon or 1)
            prices[1:, i] = level, delta / (self.slack or level)
        return LagrangeState(self.base.init(problem), prices, w, np.zeros(n + 1))

    def act(self, state: LagrangeState, context: Any, rng: np.random.Generator) -> Decision:
        """Choose for the prices of now; only reads the state."""
        given = self.kind(state).read(context)
        choice = self.base.act(state.base, given, state.weights - state.prices[0], rng)
        arm = int(choice.action)
        decision = Decision("", state.t, arm, choice.probability, choice.evidence)
        rows: Any = decision.batch.rows
        rows.explained[0] = choice.explanation
        return decision

    def update(self, state: LagrangeState, decision: Decision, feedback: Any) -> LagrangeState:
        """Learn the rewards, and move the prices."""
        answer = self.kind(state).observe(decision.action, feedback)
        problem, reward = state.base.problem, answer.reward
        choice = Choice(decision.action, decision.probability, decision.evidence)
        base = self.base.update(state.base, choice, state.weights, answer.observation)
        state.sums[:] += np.append(reward, 1.0)
        price, level, cap = state.prices
        has = cap > 0.0
        over = (reward - level)[has] / (problem.high - problem.low)[has]
        price[has] = np.clip(price[has] + cap[has] / np.sqrt(state.t) * over, 0.0, cap[has])
        return state._replace(base=base)

    # --- what an agent asks besides ------------------------------------------------------------

    def kind(self, state: LagrangeState) -> Kind:
        """Arms: contexts and answers are checked before they come here."""
        return kind_of(state.base.problem)

    def learnt(self, state: LagrangeState) -> Learnt:
        """What was learnt of the rewards."""
        return self.base.learnt(state.base)

    def repair(self, state: LagrangeState) -> float:
        """Recompute what is kept of the regression, in place; how large its error was."""
        return self.base.repair(state.base)

    def drift(self, state: LagrangeState) -> float:
        """The error of the kept inverse when it was last recomputed."""
        return self.base.drift(state.base)

    def row_limit(self, state: LagrangeState) -> float:
        """The largest norm of a row of features that can be learnt from."""
        limit: float = self.base.limit(state.base.problem)
        return math.sqrt(limit)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (
            cls((1.0, 0.0, 0.0), {1: 0.3}),
            cls((1.0, 0.5, 0.0), {2: 200.0}, horizon=1_000, gamma0=100.0),
            cls((1.0, 0.0, 0.0), {1: 0.3, 2: 0.5}, slack=0.2),
        )
