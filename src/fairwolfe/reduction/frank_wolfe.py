"""`FrankWolfe`: any bandit for one reward becomes one for a concave function of several.

The generic algorithm of the paper. After t rewards, with z their average:

    g = grad f_t(z)                       the direction, at the time of the decision
    a = base's choice for <g, r>          a bandit with one scalar reward
    z = z + (rho - z)/(t + 1)             when the reward arrives; rho = r by default

Built-in bases run compiled (reduction/running.py); `PlainRunning` below is the same for any base in
Python.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.decision import Batch, Choice, Decision
from fairwolfe.core.feedback import as_column, row_of
from fairwolfe.core.kinds import Stack, kind_of
from fairwolfe.core.problem import Problem, number_where, one_of
from fairwolfe.core.protocols import Base, LinearRule, Policy, RankingRule, ScalarPolicy, keeps
from fairwolfe.core.rows import PlainRows
from fairwolfe.core.streams import Numbered
from fairwolfe.core.tables import short
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.plain import Plain
from fairwolfe.objectives import Concave, GiniWelfare, Linear
from fairwolfe.reduction.logged import choices_of, read_table
from fairwolfe.reduction.running import (
    ArmsRunning,
    RankingsRunning,
    Running,
    bind,
    require_one_stage,
)
from fairwolfe.reduction.state import State
from fairwolfe.smoothing import Augmented, DualDescent, Identity, Moreau, Randomized

_NOTHING = np.empty(0)


@dataclass(frozen=True)
class FrankWolfe:
    """Maximise f of the average reward vector with a bandit for one reward.

    Parameters
    ----------
    objective: f, concave; fixed weights are ``FrankWolfe(Linear(w), base)``
    base: a bandit for the scalar reward <g, r>, such as LinUCB(); it must tolerate directions
        chosen adaptively
    smoothing: None is Identity for a smooth f, Moreau where every leaf has a proximal map, else
        Randomized (whose directions are averaged over time)
    memory: None is the paper (all-time averages; the theorems apply). A half-life in decisions
        makes z an exponential average, so that a running product can react.
    iterate: rho = the "observed" reward; for rankings also "expected": exposures by their chance,
        whether or not they happened; or a function (reward, estimate, t) -> rho of vectors, which
        runs in Python. estimate: what the base estimated when it decided, None if it does not
    start: z before the first answer, a number for each coordinate; the first reward replaces it
    anticipate: whether decisions that wait for their feedback count in z by their estimates, where
        the base can make any

    Feedback may come late and in any order: t counts the rewards averaged in.

    Reference: Algorithm 2 and Theorems 2, 3, 11 and 12 of the paper; see docs/bandits.md.

    >>> from fairwolfe.bandits import LinUCB
    >>> problem = Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)})
    >>> policy = FrankWolfe(GiniWelfare(), LinUCB())
    >>> state = policy.init(problem)
    >>> decision = policy.act(state, np.eye(2), np.random.default_rng(0))
    >>> policy.update(state, decision, [1.0, 0.0]).average.tolist()
    [1.0, 0.0]
    """

    objective: Concave
    base: Any
    smoothing: Identity | Moreau | Augmented | Randomized | DualDescent | None = None
    memory: float | None = field(default=None, kw_only=True)
    iterate: Literal["observed", "expected"] | Callable[..., Any] = field(
        default="observed", kw_only=True
    )
    start: Any = field(default=None, kw_only=True)
    anticipate: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.objective, Concave):
            raise InvalidInput(f"the objective is {self.objective!r}; give one of fw.objectives")
        if not isinstance(self.base, Base) or isinstance(self.base, type):
            raise InvalidInput(f"the base is {self.base!r}; give a bandit, such as LinUCB()")
        if keeps(self.base, ScalarPolicy) and not keeps(self.base, Base):
            raise InvalidInput(
                f"{self.base!r} takes no direction: it is a policy for one reward; give "
                f"FrankWolfe(objective, Extended({self.base!r}))"
            )
        if keeps(self.base, Policy) and not keeps(self.base, Base):
            raise InvalidInput(
                f"{self.base!r} is a policy already; give a bandit for one reward, such as LinUCB()"
            )
        if self.memory is not None:
            allowed = "a half-life in decisions, or None"
            number_where("memory", self.memory, lambda half_life: half_life > 0.0, allowed)
        if not callable(self.iterate):
            one_of("iterate", self.iterate, ("observed", "expected"))
        if not isinstance(self.anticipate, bool):
            raise InvalidInput(f"anticipate is {self.anticipate!r}; give True or False")
        if self.start is not None:
            point = np.asarray(self.start, dtype=np.float64)
            if point.ndim != 1 or not np.isfinite(point).all():
                raise InvalidInput(f"start is {self.start!r:.80}; give a list of finite numbers")
            object.__setattr__(self, "start", tuple(point.tolist()))

    @property
    def decides(self) -> str:
        """The kind of decision: that of the base."""
        return getattr(self.base, "decides", "arms")

    @property
    def followed(self) -> Concave:
        """The function whose gradient is followed."""
        return self.objective

    @property
    def named_alone(self) -> bool:
        """Whether errors name the policy, not its base."""
        return type(self) is not FrankWolfe

    # --- the contract -------------------------------------------------------------------------

    def init(self, problem: Problem) -> Running:
        """Bind everything to the problem and allocate."""
        return self.running(kind_of(problem))

    def running(self, kind: Any, state: State | None = None) -> Running:
        """The policy for a kind of decision: compiled where its base has a rule."""
        bound, rule = bind(self, kind), None
        if hasattr(bound.base, "rule") and not callable(self.iterate):
            rule = bound.base.rule(bound.kind.problem)
        whole = rule is None
        if isinstance(rule, LinearRule):
            whole = bool(rule.extended or rule.own or rule.ascent[0])
        if whole:
            require_one_stage(self if callable(self.iterate) else bound.base, bound.kind.problem)
        forms: dict[Any, type[Running]] = {LinearRule: ArmsRunning, RankingRule: RankingsRunning}
        return forms.get(type(rule), PlainRunning)(self, bound, rule, state)

    def act(self, state: Running, context: Any, rng: np.random.Generator) -> Decision:
        """Choose for the current direction; only reads the state."""
        given = context if type(context) is state.kind.checked else state.kind.read(context)
        return Decision.of(Batch(state.decide(given, rng)), 0)

    def update(self, state: Running, decision: Decision, feedback: Any) -> Running:
        """Average the reward vector in and let the base learn from it: both or neither."""
        batch = decision.batch
        batch.verify(b"")
        answer = state.kind.observe(decision.action, feedback)
        state.learn(batch.rows, as_column(answer.observation))
        return state

    def expect(self, state: Running, decision: Decision) -> Running:
        """Count a decision as open: in z by what it is estimated to earn, until `update` or
        `withdraw`. Nothing happens where open decisions do not count.
        """
        rows = decision.batch.rows
        rows.head["place"] = state.issued if state.plan.anticipate else -1
        state.open_rows(rows)
        return state

    def withdraw(self, state: Running, decision: Decision) -> Running:
        """Take a decision that gets no answer out of the open ones."""
        state.withdraw(decision.batch.rows)
        return state

    def with_objective(self, objective: Concave) -> Self:
        """The same policy for another f; a state carries over, since f is not part of it."""
        return replace(self, objective=objective)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB

        return (
            cls(GiniWelfare(), LinUCB()),
            cls(Linear((1.0, 0.5, 0.2)), SquareCB(gamma0=100.0)),
            cls(GiniWelfare(), EpsilonGreedy(0.1), Randomized(n_samples=2), memory=50.0),
        )


class PlainRunning(Running):
    """A policy whose base decides and learns in Python.

    State, direction, averages, prices and open decisions are those of the compiled path; only
    `base.act` and `base.update` are Python. Open decisions count by the estimates in their rows.
    """

    atomic = False

    def _fresh(self) -> State:
        n, n_seen = self.kind.problem.n_objectives, self.kind.seen.n_objectives
        return State.fresh(n, n_seen, 0, 0, self.fresh_prices())._replace(base=self._fresh_base())

    def _start(self) -> None:
        self.forecasts = hasattr(self.base, "estimate")
        extended = bool(getattr(self.base, "extended", False))
        self.plan = self._plan(self.forecasts, extended)
        self.engine = Plain(self.plan, self.state)

    def decide(self, given: Any, rng: Any, number: int = -1, *_: Any, **how: Any) -> PlainRows:
        g = self.direction(rng) if self.directed else self.state.running
        drawn = rng.generator() if type(rng) is Numbered else rng
        aligned = self.kind.aligned(g, given)
        choice = self.base.act(self.state.base, given, aligned, drawn)
        self._check(given, choice)
        return self._row(given, choice, g, aligned, number)

    def decide_stack(self, stack: Stack, *args: Any, **how: Any) -> Any:
        each = [self.kind.single(stack, i) for i in range(stack.rows)]
        return super().decide_stack(stack._replace(given=each), *args, **how)

    def _row(
        self, given: Any, choice: Choice, g: Vector, aligned: Vector, number: int
    ) -> PlainRows:
        """The row of a choice."""
        kind, plan, base, state = self.kind, self.plan, self.base, self.state.base
        n, slope = kind.problem.n_objectives, self.windows.slope
        looks = slope is not None and hasattr(base, "certify")
        slots = (kind.problem.n_slots or 0) if looks else 0
        width = n if self.forecasts else 0
        rows = PlainRows.empty(1, width, n if plan.keeps_direction else 0, slots)
        head, action = rows.head, kind.numbered(given, choice.action)
        if isinstance(action, (int, np.integer)):
            head["arm"] = action = int(action)
        # Given a random direction, the base's probability is not that of the action.
        unknown = choice.probability is None or plan.samples > 0
        head["number"], head["t"], head["size"] = number, self.t, n
        if self.engine.epoch:
            head["block"] = self.engine.epoch
        head["probability"] = np.nan if unknown else choice.probability
        head["place"] = self.issued if plan.anticipate else -1
        if self.forecasts:
            rows.estimate[0] = self._vector("estimate", base.estimate(state, given, choice))
        if plan.keeps_direction:
            rows.g[0] = kind.whole(g)
        if looks and slope is not None:
            seen = kind.aligned(slope, given)
            found = base.certify(
                state, given, aligned, choice, seen, self.certificates.bound_params
            )
            if np.isfinite(found).all():
                head["window"] = self.windows.serial
                if slots:
                    rows.live[0] = found
                else:
                    head["best"], head["missed"], head["spare"], head["untried"] = found
        rows.stored[0], rows.explained[0] = (action, choice.evidence), choice.explanation
        return rows

    def _check(self, given: Any, choice: Any) -> None:
        """What a base in Python returned."""
        if not isinstance(choice, Choice):
            raise InvalidInput(
                f"{self.base!r} returned {short(choice, 80)} from act; return fw.Choice(action, "
                "probability, evidence)"
            )
        if not self.kind.allows(given, choice.action):
            raise InvalidInput(
                f"{self.base!r} chose {short(choice.action, 80)}, which may not be chosen here; "
                f"{self.kind.allowed}"
            )
        p = choice.probability
        if not (p is None or (isinstance(p, (int, float)) and 0.0 < p <= 1.0)):
            raise InvalidInput(
                f"{self.base!r} gave the probability {p!r:.80}; give a number above 0 and at most "
                "1, or None where it is unknown"
            )

    def withdraw(self, rows: PlainRows, stages: Any = None) -> None:
        for i in range(len(rows.head)):
            one = rows.part(slice(i, i + 1))
            self.engine.withdraw(one, *self.kind.joined(one.head["size"].item(0)))

    def learn(self, rows: PlainRows, observation: Any) -> None:
        for i in range(len(rows.head)):
            self._learn(rows.part(slice(i, i + 1)), row_of(observation, i))

    def _learn(self, row: PlainRows, observation: Any) -> None:
        kind, state, head = self.kind, self.state, row.head
        self.engine.look_ahead(row, kind.problem.n_slots or 0)
        action, evidence = row.stored[0]
        observed, reward, _ = kind.observe(action, observation)
        p, joined = head["probability"].item(0), kind.joined(head["size"].item(0))
        followed = kind.caught_up(row.g[0], state.running) if row.g.shape[1] else _NOTHING
        choice = Choice(action, None if np.isnan(p) else p, evidence)
        rho = self._rho(reward, row.estimate[0] if row.estimate.shape[1] else None, action)
        live = _live_terms(row, observed)
        g = followed if followed.size else state.running
        base = self.base.update(state.base, choice, g, observed)  # the last that may raise
        due = self.engine.settle(row, reward, rho, followed, live, joined)
        if base is not state.base:
            self.state = state._replace(base=base)
        if due:
            self.add_certificate()

    def _rho(self, reward: Vector, estimate: Vector | None, action: Any) -> Vector:
        """What is averaged."""
        iterate = self.policy.iterate
        if iterate == "observed":
            return reward
        rho = reward.copy()
        if iterate == "expected":
            rho[action] = estimate[action] if estimate is not None else rho[action]
            return rho
        given = iterate(rho, None if estimate is None else estimate.copy(), self.t)
        return self._vector("iterate", given)

    def _vector(self, name: str, given: Any) -> Vector:
        """What a function of an author returned, as a reward vector."""
        n = self.kind.problem.n_objectives
        try:
            vector: Vector = np.ascontiguousarray(given, dtype=np.float64)
        except (TypeError, ValueError):
            vector = _NOTHING
        if vector.shape != (n,) or not np.isfinite(vector).all():
            raise InvalidInput(
                f"{name} returned {short(given, 80)}; return {n} finite numbers, a reward vector"
            )
        return vector

    def study(self, rows: Any, observation: Any) -> None:
        kept = getattr(self.state.base, "features", None)  # of a ranker
        observed = read_table(rows, observation, self.kind, self.limit, kept, plain=True)
        nothing = np.zeros(self.kind.problem.n_objectives)
        for i, choice in enumerate(choices_of(rows)):
            base = self.base.update(self.state.base, choice, nothing, row_of(observed, i))
            if base is not self.state.base:
                self.state = self.state._replace(base=base)


def _live_terms(row: PlainRows, observed: Any) -> Vector:
    """best, missed, spare and untried of a decision, for live numbers, (4,)."""
    if row.live.shape[2]:  # by slot: of those that were exposed
        best, missed = row.live[0] @ observed.exposed
        return np.array([best, missed, missed, 0.0])
    names = ("best", "missed", "spare", "untried")
    return np.array([row.head[name].item(0) for name in names])
