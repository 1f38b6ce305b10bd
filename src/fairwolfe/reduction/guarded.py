"""`Guarded`: a policy that is never below a share of what a baseline would have reached.

Each round, before anything is drawn: is f of the average, in the worst case and with the worst
reward in this round, still a share of f of the baseline's average on the same contexts? If so the
policy plays, else the baseline.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Cube, Vector
from fairwolfe.core.brief import short
from fairwolfe.core.contexts import Arms
from fairwolfe.core.decision import Batch, Decision, Learnt
from fairwolfe.core.kinds import Kind, kind_of, require_kind
from fairwolfe.core.problem import Problem, all_finite, level, number_where
from fairwolfe.core.protocols import Base, Policy, keeps
from fairwolfe.core.restoring import need, require, require_counts
from fairwolfe.core.rows import HEAD, ArmRows, PlainRows
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.kernels.limits import row_limit
from fairwolfe.objectives import Concave, GiniWelfare, Minimum
from fairwolfe.oracles import LinearState
from fairwolfe.oracles.linear_state import learn, repair
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.margin import Known, Margin
from fairwolfe.reduction.policy import PolicyRunning

__all__ = ["Guarded"]

_MADE, _OPEN, _ANSWERED, _HELD = range(4)  # of the books: decisions, the last the baseline's
_COUNTS = 4
_FLOAT = np.dtype(np.float64)


@dataclass(frozen=True)
class Guarded:
    """Play a policy where that is safe, else a baseline: f(z_t) >= share f(y_t) at all times t.

    z_t is the average of the mean rewards of all decisions made so far, y_t what it would have been
    had the baseline decided for the same contexts. It holds with probability 1 - delta, at all t at
    once, where the mean rewards are linear in the features, with `parameter_norm` as the problem
    states it and noise in the ranges, absence and delay of feedback do not depend on its content,
    contexts are drawn independently, and the baseline does not learn. Without the last two it holds
    at all t at which the policy has just played. Proposition and proof: docs/guard.md.

    Whether the policy may play depends on the past alone, not on the context or the draws, so that
    `probability` is that of the one that plays. The policy learns from every answer; the baseline
    from those to its own choices. Rankings are not guarded: what would have been exposed in a list
    that was not shown is unknown.

    Parameters
    ----------
    policy: a policy for arms with an objective f, such as ``FrankWolfe(f, LinUCB())``
    baseline: another, such as ``FrankWolfe(f, Fixed(0))``; what it pursues does not matter
    share: of the baseline's f, in (0, 1)
    delta: the chance that the guarantee fails, in (0, 1)
    floor: the value from which shares count: f - floor is at least a share of the baseline's
        f - floor. f must be at least `floor` and finite in the ranges of the rewards

    Cost of a round, besides that of both: d^2 + 2^D values of f for D <= 4 rewards, else 2 D.

    Reference: conservative linear bandits (Kazerouni et al. 2017), for a concave f.

    >>> from fairwolfe.bandits import Fixed, LinUCB
    >>> f = Minimum()
    >>> policy = Guarded(FrankWolfe(f, LinUCB()), FrankWolfe(f, Fixed(1)), share=0.9)
    >>> problem = Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)}, parameter_norm=1.0)
    >>> decision = policy.act(policy.init(problem), np.eye(2), np.random.default_rng(0))
    >>> decision.action, decision.explain()[0]["played"]
    (1, 'baseline')
    """

    policy: Any
    baseline: Any
    share: float = 0.95
    delta: float = 0.05
    floor: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        for name in ("policy", "baseline"):
            _require_policy(name, getattr(self, name))
        for name in ("share", "delta"):
            level(name, getattr(self, name))
        number_where("floor", self.floor, math.isfinite, "a finite number")
        if not isinstance(self.objective, Concave):
            raise InvalidInput(
                f"{self.policy!r:.80} has no objective, and a share is of one; guard a policy with "
                "one, such as FrankWolfe(objective, LinUCB())"
            )
        for name in ("policy", "baseline"):
            kind = _kind_name(getattr(self, name))
            if kind != "arms":
                raise InvalidInput(
                    f"the {name} decides {kind!r}, and only arms are guarded: what a list would "
                    "have earned that was not shown depends on exposures that were not observed; "
                    "give policies for arms"
                )

    @property
    def objective(self) -> Any:
        """f, that of the policy."""
        return getattr(self.policy, "objective", None)

    # --- the contract -------------------------------------------------------------------------

    def init(self, problem: Problem) -> State:
        """Validate and allocate."""
        require_kind("arms", problem, "Guarded")
        if problem.parameter_norm is None:
            raise OutsideAssumptions(
                "the problem states no parameter_norm, on which confidence widths and so the "
                "guarantee rest; give Problem.arms(..., parameter_norm=), a bound on the norm of "
                "the parameters of a reward"
            )
        f = self.objective.bind(problem)
        margin = Margin(f, problem, float(self.share), float(self.delta), float(self.floor))
        plan = Plan(kind_of(problem), margin)
        need(plan.size)
        return State(
            plan,
            PolicyRunning.of(self.policy, problem),
            PolicyRunning.of(self.baseline, problem),
            margin.regression.init(problem),
            np.zeros(plan.size),
        )

    def act(self, state: State, context: Any, rng: np.random.Generator) -> Decision:
        """Ask the baseline, then the policy if that is safe; only reads the state."""
        plan = state.plan
        given: Arms = plan.kind.read(context)
        margin = state.margin()
        other = _decided(state.baseline, given, rng)
        held = not margin >= 0.0
        own = _decided(state.policy, _only(given, other.action) if held else given, rng)
        played = other if held else own
        arm = _row(given, played.action)
        trail = Trail(
            held,
            _stored(own),
            _stored(other) if held else None,
            played.action if given.per_arm else 0,
            given.row(arm).copy(),
            other.action if given.per_arm else 0,
            given.row(_row(given, other.action)).copy(),
        )
        decision = Decision("", own.t, arm, played.probability, trail)
        rows: Any = decision.batch.rows
        rows.head["place"] = int(state.books[_MADE])
        rows.explained[0] = _explained(played, arm, held, margin, self.share)
        return decision

    def update(self, state: State, decision: Decision, feedback: Any) -> State:
        """Let the policy learn, and the baseline if it has played; and the guard."""
        plan, counted = state.plan, _counted(decision)
        answer = plan.kind.observe(decision.action, feedback)
        trail = self._trail(state, decision)
        _learn(state.policy, trail.policy, answer, counted)
        # Whatever an interrupt leaves undone from here on, the decision counts as unanswered.
        learn(plan.margin.regression, state.regression, trail.block, trail.x, answer.reward)
        awaited = state.awaits(decision)
        entry = np.zeros(plan.size) if awaited else plan.entry(trail)
        entry[_OPEN] = -1.0 if awaited else 0.0
        entry[_ANSWERED] = 1.0
        plan.earned(entry)[:] = answer.reward
        plan.features(entry)[1, trail.block] -= trail.x
        state.write(entry)
        if trail.held:
            _learn(state.baseline, trail.baseline, answer, counted)
        return state

    # --- open decisions: the features show what they will earn ---------------------------------

    def expect(self, state: State, decision: Decision) -> State:
        """Count a decision as made, and as open."""
        trail = self._trail(state, decision)
        for running, rows in _inner(state, trail):
            rows.head["place"] = running.issued
            running.open_rows(rows)
        decision.batch.rows.head["place"] = int(state.books[_MADE])
        state.write(state.plan.entry(trail))
        return state

    def withdraw(self, state: State, decision: Decision) -> State:
        """A decision gets no answer any more; it was made, and still counts."""
        trail = self._trail(state, decision)
        for running, rows in _inner(state, trail):
            running.withdraw(rows)
        if state.awaits(decision):
            state.books[_OPEN] -= 1.0
        return state

    # --- what an agent asks besides ------------------------------------------------------------

    def kind(self, state: State) -> Kind:
        """Arms: contexts and answers are checked before they come here."""
        return state.plan.kind

    def counts(self, state: State) -> dict[str, int]:
        """How many decisions the guard left to the baseline, of those that were made."""
        return {"baseline_played": int(state.books[_HELD])}

    def with_objective(self, objective: Concave) -> Self:
        """The same guard for another f; what it promises of it begins with the next decision."""
        if not hasattr(self.policy, "with_objective"):
            raise InvalidInput(f"the objective of {self.policy!r:.80} cannot be replaced")
        return replace(self, policy=self.policy.with_objective(objective))

    def retargeted(self, state: State, problem: Problem) -> State:
        """A state of the guard before its objective was replaced, for this one."""
        fresh = self.init(problem)
        return state._replace(plan=fresh.plan, policy=state.policy.with_objective(self.policy))

    def repair(self, state: State) -> float:
        """Recompute what is kept of all regressions, in place; how large the error was."""
        drifts = [one.repair() for one in state.players if one.can_repair]
        return float(max(repair(state.regression), *drifts))

    def drift(self, state: State) -> float:
        """The error of the kept inverses when they were last recomputed."""
        return float(max(state.regression.drift, *(one.drift() for one in state.players)))

    def row_limit(self, state: State) -> float:
        """The largest norm of a row of features that can be learnt from."""
        return float(min(state.plan.limit, *(one.limit for one in state.players)))

    def learnt(self, state: State) -> Learnt:
        """What the policy has learnt of the rewards."""
        learnt: Learnt = state.policy.learnt()
        return learnt

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        from fairwolfe.bandits import Fixed, LinUCB, SquareCB, Uniform

        f, g = GiniWelfare(), Minimum()
        return (
            cls(FrankWolfe(f, LinUCB()), FrankWolfe(f, Fixed(1))),
            cls(FrankWolfe(g, SquareCB(gamma0=100.0)), FrankWolfe(g, Uniform()), 0.1, 0.9),
        )

    @staticmethod
    def _trail(state: State, decision: Decision) -> Trail:
        """What a decision remembers, checked, since it may come from bytes of any origin."""
        if not isinstance(decision.evidence, tuple) or len(decision.evidence) != len(Trail._fields):
            raise _foreign(decision)
        trail = Trail(*decision.evidence)
        plan = state.plan
        blocks, d = plan.shape
        for block, x in ((trail.block, trail.x), (trail.other_block, trail.other_x)):
            fits = type(block) is int and 0 <= block < blocks and isinstance(x, np.ndarray)
            fits = fits and x.dtype == _FLOAT and x.shape == (d,) and x.flags.carray
            if not (fits and all_finite(x) and math.sqrt(x @ x) <= plan.limit):
                raise _foreign(decision)
        stored = (trail.policy, trail.baseline) if trail.held is True else (trail.policy,)
        if type(trail.held) is not bool or not all(map(_is_stored, stored)):
            raise _foreign(decision)
        return trail


class Trail(NamedTuple):
    """What `update` needs of a decision: that of the policy, which may have been left one arm only,
    and of the baseline where it has played; the features that count.
    """

    held: bool  # whether the baseline has played
    policy: Any  # columns of its rows
    baseline: Any
    block: int
    x: Any  # (d,): of the arm that was played
    other_block: int
    other_x: Any  # (d,): of the baseline's


def _explained(
    played: Decision, arm: int, held: bool, margin: float, share: float
) -> list[dict[str, Any]]:
    """What made the choice of the one that has played, and of the guard."""
    kept = f"{100.0 * share:g} % of the baseline's"
    if not held:
        why = f"policy played because f stays above {kept} whatever this round earns"
    elif not math.isfinite(margin):
        why = f"baseline played because too little is known to keep f above {kept}"
    else:
        why = f"baseline played because f could come {-margin:.3g} below {kept}"
    try:
        rows = played.explain()
    except InvalidInput:
        rows = [{"arm": arm}]
    who = "baseline" if held else "policy"
    return [row | {"arm": arm, "played": who, "guard": why} for row in rows]


class State(NamedTuple):
    """The states of policy, baseline and the guard's regression; and the books, one vector, so that
    an entry is made whole: see `Plan`.
    """

    plan: Plan
    policy: Any  # Running
    baseline: Any  # Running
    regression: LinearState
    books: Vector

    @property
    def players(self) -> tuple[Any, Any]:
        """Policy and baseline."""
        return self.policy, self.baseline

    def margin(self) -> float:
        """See `Margin.at`."""
        plan, books = self.plan, self.books
        apart, unanswered = plan.features(books)
        counts = books.item(_MADE), books.item(_ANSWERED)
        known = Known(*counts, plan.earned(books), apart, unanswered, self.regression)
        return plan.margin.at(known)

    def awaits(self, decision: Decision) -> bool:
        """Whether a decision is counted as open."""
        decisions, open_ = self.books.item(_MADE), self.books.item(_OPEN)
        place = decision.batch.rows.head["place"].item(0)
        return 0 <= place < decisions and open_ > 0.0

    def write(self, entry: Vector) -> None:
        """Add an entry to the books, in one call."""
        np.add(self.books, entry, out=self.books)

    @property
    def average(self) -> Vector:
        """The average observed reward: that of the policy, which learns from every answer."""
        average: Vector = self.policy.average
        return average

    @property
    def t(self) -> int:
        """The number of rewards averaged in."""
        t: int = self.policy.t
        return t

    @property
    def open(self) -> int:
        """The number of decisions that are counted as open."""
        return int(self.books[_OPEN])

    def restored(self) -> None:
        """After arrays have been read from a file: raise for counts that are impossible."""
        counts = self.books[:_COUNTS]
        require_counts("books", counts)
        require("books", counts, counts <= counts[_MADE], "no more decisions count than were made")


@dataclass(frozen=True, eq=False)
class Plan:
    """What `init` makes of a guard and a problem; it never changes and is not saved.

    The books hold, over the decisions made: how many were made, are open, were answered, were left
    to the baseline; the sum of the rewards; and two sums of features, of the arms played less those
    of the baseline, and of the arms played that have no answer.
    """

    kind: Kind
    margin: Margin

    @cached_property
    def size(self) -> int:
        """Of the books."""
        blocks, d = self.shape
        return _COUNTS + self.kind.problem.n_objectives + 2 * blocks * d

    @cached_property
    def shape(self) -> tuple[int, int]:
        """Blocks and features."""
        return self.kind.problem.n_arms or 1, self.kind.problem.dimension

    def earned(self, books: Vector) -> Vector:
        """The sum of the rewards in the books, (rewards,)."""
        return books[_COUNTS : _COUNTS + self.kind.problem.n_objectives]

    def features(self, books: Vector) -> Cube:
        """The sums of features in the books, (2, blocks, features)."""
        return books[_COUNTS + self.kind.problem.n_objectives :].reshape(2, *self.shape)

    def entry(self, trail: Trail) -> Vector:
        """What a decision that is made, and open, adds to the books."""
        entry = np.zeros(self.size)
        entry[_MADE] = entry[_OPEN] = 1.0
        entry[_HELD] = trail.held
        apart, unanswered = self.features(entry)
        if not trail.held:
            apart[trail.block] += trail.x
            apart[trail.other_block] -= trail.other_x
        unanswered[trail.block] += trail.x
        return entry

    @cached_property
    def limit(self) -> float:
        """The largest norm of a row of features."""
        return row_limit(self.kind.problem, self.margin.regression.ridge)


def _require_policy(name: str, given: Any) -> None:
    if isinstance(given, type) or not keeps(given, Policy):
        what = f"the class {given.__name__}" if isinstance(given, type) else f"{given!r:.80}"
        if not isinstance(given, type) and keeps(given, Base):
            raise InvalidInput(
                f"the {name} is {what}, a bandit for one reward; give FrankWolfe(objective, {what})"
            )
        raise InvalidInput(
            f"the {name} is {what}; give one such as FrankWolfe(objective, LinUCB())"
        )


def _kind_name(policy: Any) -> str:
    return getattr(policy, "decides", "arms")


def _row(given: Arms, arm: int) -> int:
    """An arm of the whole context among those that may be chosen."""
    return arm if given.places is None else int(np.flatnonzero(given.places == arm)[0])


def _only(given: Arms, arm: int) -> Arms:
    """The context with one arm only."""
    row = _row(given, arm)
    features = given.features if given.per_arm else given.features[row : row + 1]
    return Arms(features, 1, given.per_arm, given.norm, np.array([arm]))


def _decided(running: Any, given: Arms, rng: np.random.Generator) -> Decision:
    """The decision of policy or baseline, numbered in the whole context."""
    return Decision.of(Batch(running.decide(given, rng)), 0)


def _stored(decision: Decision) -> tuple[Any, ...]:
    """A decision for an arm inside of another: its columns, which share its memory."""
    rows = decision.batch.rows
    if isinstance(rows, PlainRows):
        return rows.head.view(np.uint8), rows.estimate, rows.g, rows.live, rows.stored[0]
    return rows.head.view(np.uint8), *rows[1:]


def _is_stored(stored: Any) -> bool:
    """Whether it can be read; what the numbers are is for the policy to judge."""
    head = stored[0] if isinstance(stored, tuple) and len(stored) in (3, 5) else None
    return isinstance(head, np.ndarray) and head.dtype == np.uint8 and head.nbytes == HEAD.itemsize


def _read(stored: tuple[Any, ...]) -> Any:
    """The rows that `_stored` took apart."""
    head, *rest = stored
    head = head.view(HEAD)
    if len(rest) < len(PlainRows._fields) - 2:
        return ArmRows(head, *rest)
    rows = PlainRows.empty(1, 0, 0, 0)._replace(
        head=head, estimate=rest[0], g=rest[1], live=rest[2]
    )
    rows.stored[0] = rest[3]
    return rows


def _inner(state: State, trail: Trail) -> list[tuple[Any, Any]]:
    """The players of a decision, with the rows of what each decided."""
    players = [(state.policy, _read(trail.policy))]
    return [*players, (state.baseline, _read(trail.baseline))] if trail.held else players


def _counted(decision: Decision) -> bool:
    """Whether a decision was counted as open by the state that learns from it."""
    return bool(decision.batch.rows.head["place"].item(0) >= 0)


def _learn(running: Any, stored: Any, answer: Any, counted: bool) -> None:
    rows = _read(stored)
    if not counted:
        rows = rows._replace(head=rows.head.copy())
        rows.head["place"] = -1
    running.learn(rows, answer.observation[None])


def _foreign(decision: Decision) -> InvalidInput:
    return InvalidInput(
        f"the evidence of decision {decision.id!r} is of another policy or problem, or damaged: "
        f"{short(decision.evidence, 80)}"
    )
