"""`Guarded`: a policy that is never below a share of what a baseline would have reached.

Each round, before anything is drawn: is f of the average, in the worst case and with the worst
reward in this round, still a share of f of the baseline's average on the same contexts? If so the
policy plays, else the baseline.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Cube, Vector
from fairwolfe.core.brief import short
from fairwolfe.core.contexts import Arms
from fairwolfe.core.decision import Decision, Info, Learnt
from fairwolfe.core.kinds import Kind, kind_of, require_kind
from fairwolfe.core.problem import Problem, all_finite, level, number_where
from fairwolfe.core.protocols import (
    Base,
    Compiled,
    Decides,
    Estimates,
    Expects,
    KeepsPrices,
    Mends,
    Policy,
    Pursues,
    Reads,
    Recounts,
    Recovers,
    Retargets,
    keeps,
)
from fairwolfe.core.restoring import need, require, require_counts
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.kernels.limits import row_limit
from fairwolfe.objectives import Concave, GiniWelfare, Minimum
from fairwolfe.oracles import LinearState
from fairwolfe.oracles.linear_state import learn, repair
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.reduction.margin import Known, Margin

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
        return self.policy.objective if isinstance(self.policy, Pursues) else None

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
        plan = Plan(kind_of(problem), margin, Player(self.policy), Player(self.baseline))
        need(plan.size)
        return State(
            plan,
            self.policy.init(problem),
            self.baseline.init(problem),
            margin.regression.init(problem),
            np.zeros(plan.size),
        )

    def act(self, state: State, context: Any, rng: np.random.Generator) -> Decision:
        """Ask the baseline, then the policy if that is safe; only reads the state."""
        plan = state.plan
        given: Arms = plan.kind.read(context)
        margin = state.margin()
        other = plan.baseline.act(plan.kind, state.baseline, given, rng)
        held = not margin >= 0.0
        shown = _only(given, other.action) if held else given
        own = plan.policy.act(plan.kind, state.policy, shown, rng)
        played = other if held else own
        arm, others = int(played.action), int(other.action)
        trail = Trail(
            held,
            own.evidence,
            own.probability,
            other.evidence if held else None,
            other.probability if held else None,
            _place(given, arm),
            given.row(arm).copy(),
            _place(given, others),
            given.row(others).copy(),
            int(state.books[_MADE]),
        )
        reasons = Reasons(played.info.reasons, arm, held, margin, self.share)
        info = Info(reasons)
        return Decision("", own.t, arm, played.probability, trail, info)

    def update(self, state: State, decision: Decision, feedback: Any) -> State:
        """Let the policy learn, and the baseline if it has played; and the guard."""
        plan = state.plan
        answer = plan.kind.observe(decision.action, feedback)
        trail = self._trail(state, decision)
        own, other = _parts(decision, trail)
        policy = plan.policy.update(state.policy, own, answer)
        # Whatever an interrupt leaves undone from here on, the decision counts as unanswered.
        learn(plan.margin.regression, state.regression, trail.block, trail.x, answer.reward)
        awaited = state.awaits(trail)
        entry = np.zeros(plan.size) if awaited else plan.entry(trail)
        entry[_OPEN] = -1.0 if awaited else 0.0
        entry[_ANSWERED] = 1.0
        plan.earned(entry)[:] = answer.reward
        plan.features(entry)[1, trail.block] -= trail.x
        state.write(entry)
        baseline = state.baseline
        if trail.held:
            baseline = plan.baseline.update(baseline, other, answer)
        if policy is state.policy and baseline is state.baseline:
            return state
        return state._replace(policy=policy, baseline=baseline)

    # --- open decisions: the features show what they will earn ---------------------------------

    def expect(self, state: State, decision: Decision) -> State:
        """Count a decision as made, and as open."""
        fresh = type(decision.evidence) is Trail  # just made, and not read from bytes
        trail = decision.evidence if fresh else self._trail(state, decision)
        own, other = _parts(decision, trail)
        policy = state.plan.policy.expect(state.policy, own)
        baseline = state.baseline
        if trail.held:
            baseline = state.plan.baseline.expect(baseline, other)
        state.write(state.plan.entry(trail))
        return state._replace(policy=policy, baseline=baseline)

    def withdraw(self, state: State, decision: Decision) -> State:
        """A decision gets no answer any more; it was made, and still counts."""
        trail = self._trail(state, decision)
        own, other = _parts(decision, trail)
        policy = state.plan.policy.withdraw(state.policy, own)
        baseline = state.baseline
        if trail.held:
            baseline = state.plan.baseline.withdraw(baseline, other)
        if state.awaits(trail):
            state.books[_OPEN] -= 1.0
        return state._replace(policy=policy, baseline=baseline)

    def unawaited(self, decision: Decision) -> Decision:
        """The same decision, as one that this state has never counted as open."""
        if not _is_trail(decision.evidence):
            return decision
        trail = Trail(*decision.evidence)
        own, other = _parts(decision, trail)
        if isinstance(self.policy, Recounts):
            own = self.policy.unawaited(own)
        if isinstance(self.baseline, Recounts):
            other = self.baseline.unawaited(other)
        trail = trail._replace(policy=own.evidence, baseline=other.evidence, place=None)
        return replace(decision, evidence=trail)

    def take_back(self, state: State, decision: Decision) -> None:
        """Forget a decision that may or may not have been counted, and that no caller received."""
        trail = self._trail(state, decision)
        own, other = _parts(decision, trail)
        if isinstance(self.policy, Recounts):
            self.policy.take_back(state.policy, own)
        if trail.held and isinstance(self.baseline, Recounts):
            self.baseline.take_back(state.baseline, other)
        if state.awaits(trail):
            state.write(-state.plan.entry(trail))

    # --- powers -------------------------------------------------------------------------------

    def kind(self, state: State) -> Kind:
        """Arms."""
        return state.plan.kind

    def commits(self, state: State) -> bool:
        """Whether the policy learns an answer completely or not at all, and `state.t` shows which;
        what the guard itself misses of it then counts as not answered.
        """
        return isinstance(self.policy, Recovers) and self.policy.commits(state.policy)

    def counts(self, state: State) -> dict[str, int]:
        """How many decisions the guard left to the baseline, of those that were made."""
        return {"baseline_played": int(state.books[_HELD])}

    @property
    def of_objective(self) -> tuple[str, ...]:
        """Arrays of a state that belong to one f: those of the policy."""
        names = self.policy.of_objective if isinstance(self.policy, KeepsPrices) else ()
        return tuple(f"state.policy{name.removeprefix('state')}" for name in names)

    def with_objective(self, objective: Concave) -> Self:
        """The same guard for another f; what it promises of it begins with the next decision."""
        if not isinstance(self.policy, Retargets):
            raise InvalidInput(f"the objective of {self.policy!r:.80} cannot be replaced")
        return replace(self, policy=self.policy.with_objective(objective))

    def renewed(self, state: State) -> State:
        """The state, without what was certified of an old f."""
        return state._replace(policy=self.policy.renewed(state.policy))

    def kernels(self, state: State) -> Iterable[Any]:
        """What the other methods can call."""
        plan = state.plan
        own = [*plan.kind.kernels(), plan.margin.regression.learn]
        leaves = plan.margin.objective.kernels(plan.kind.problem.n_objectives)
        players = ((plan.policy, state.policy), (plan.baseline, state.baseline))
        inner = [kernel for player, one in players for kernel in player.kernels(one)]
        return [*own, *leaves, *inner]

    def repair(self, state: State) -> float:
        """Recompute what is kept of all regressions, in place; how large the error was."""
        plan = state.plan
        players = ((plan.policy, state.policy), (plan.baseline, state.baseline))
        drifts = [player.repair(one) for player, one in players]
        learner, nothing = plan.margin.regression.learn, np.empty(0)
        own = repair(state.regression, lambda: learner(-1, nothing, nothing, *state.regression))
        return max(own, *drifts)

    def drift(self, state: State) -> float:
        """The error of the kept inverses when they were last recomputed."""
        plan = state.plan
        inner = plan.policy.drift(state.policy), plan.baseline.drift(state.baseline)
        return max(state.regression.drift, *inner)

    def row_limit(self, state: State) -> float:
        """The largest norm of a row of features that can be learnt from."""
        plan = state.plan
        inner = plan.policy.row_limit(state.policy), plan.baseline.row_limit(state.baseline)
        return min(plan.limit, *inner)

    def learnt(self, state: State) -> Learnt:
        """What the policy has learnt of the rewards."""
        if not isinstance(self.policy, Estimates):
            raise InvalidInput(f"{self.policy!r:.80} keeps no estimate of each reward")
        return self.policy.learnt(state.policy)

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
        if not _is_trail(decision.evidence):
            raise _foreign(decision)
        trail = Trail(*decision.evidence)
        plan = state.plan
        blocks, d = plan.shape
        for block, x in ((trail.block, trail.x), (trail.other_block, trail.other_x)):
            fits = type(block) is int and 0 <= block < blocks and isinstance(x, np.ndarray)
            fits = fits and x.dtype == _FLOAT and x.shape == (d,) and x.flags.carray
            if not (fits and all_finite(x) and math.sqrt(x @ x) <= plan.limit):
                raise _foreign(decision)
        counted = trail.place is None or (type(trail.place) is int and trail.place >= 0)
        if not (type(trail.held) is bool and counted):
            raise _foreign(decision)
        return trail


class Trail(NamedTuple):
    """What `update` needs of a decision: that of the policy, which may have been left one arm only,
    and of the baseline where it has played; the features that count.
    """

    held: bool  # whether the baseline has played
    policy: Any
    policy_probability: float | None
    baseline: Any
    baseline_probability: float | None
    block: int
    x: Any  # (d,): of the arm that was played
    other_block: int
    other_x: Any  # (d,): of the baseline's
    place: int | None  # how many decisions were made before; None: it is not counted as open


class Reasons(NamedTuple):
    """What made the choice, for `explain`."""

    inner: Any
    arm: int
    held: bool
    margin: float
    share: float

    def rows(self) -> list[dict[str, Any]]:
        """Those of the one that has played, with the words of the guard."""
        rows = [{"arm": self.arm}] if self.inner is None else self.inner.rows()
        return [row | {"played": self.who, "guard": self.why} for row in rows]

    @property
    def who(self) -> str:
        return "baseline" if self.held else "policy"

    @property
    def why(self) -> str:
        share = f"{100.0 * self.share:g} % of the baseline's"
        if not self.held:
            return f"policy played because f stays above {share} whatever this round earns"
        if not math.isfinite(self.margin):
            return f"baseline played because too little is known to keep f above {share}"
        return f"baseline played because f could come {-self.margin:.3g} below {share}"


class State(NamedTuple):
    """The states of policy, baseline and the guard's regression; and the books, one vector, so that
    an entry is made whole: see `Plan`.
    """

    plan: Plan
    policy: Any
    baseline: Any
    regression: LinearState
    books: Vector

    def margin(self) -> float:
        """See `Margin.at`."""
        plan, books = self.plan, self.books
        apart, unanswered = plan.features(books)
        counts = books.item(_MADE), books.item(_ANSWERED)
        known = Known(*counts, plan.earned(books), apart, unanswered, self.regression)
        return plan.margin.at(known)

    def awaits(self, trail: Trail) -> bool:
        """Whether a decision is counted as open."""
        decisions, open_ = self.books.item(_MADE), self.books.item(_OPEN)
        return trail.place is not None and trail.place < decisions and open_ > 0.0

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
class Player:
    """A policy, asked for its powers once."""

    policy: Any

    @cached_property
    def reads(self) -> bool:
        """Whether it takes checked contexts and answers."""
        return isinstance(self.policy, Reads)

    @cached_property
    def expects(self) -> bool:
        """Whether it counts open decisions."""
        return isinstance(self.policy, Expects)

    @cached_property
    def mends(self) -> bool:
        """Whether it keeps what can be recomputed."""
        return isinstance(self.policy, Mends)

    def act(self, kind: Kind, state: Any, given: Arms, rng: np.random.Generator) -> Decision:
        """Its decision for a checked context."""
        context: Any = given
        if not self.reads:
            if given.per_arm:
                raise InvalidInput(
                    f"{self.policy!r:.80} takes contexts as they are, and a guard gives it one arm "
                    "only from time to time, which PerArm contexts do not allow; use FrankWolfe"
                )
            context = given.features
        decision = self.policy.act(state, context, rng)
        if not isinstance(decision, Decision) or not kind.allows(given, decision.action):
            raise InvalidInput(
                f"{self.policy!r:.80} returned {short(decision, 80)} from act; return "
                f"fw.Decision('', t, action, probability, evidence): {kind.allowed}"
            )
        return decision

    def update(self, state: Any, decision: Decision, answer: Any) -> Any:
        return self.policy.update(state, decision, answer if self.reads else answer.observation)

    def expect(self, state: Any, decision: Decision) -> Any:
        return self.policy.expect(state, decision) if self.expects else state

    def withdraw(self, state: Any, decision: Decision) -> Any:
        return self.policy.withdraw(state, decision) if self.expects else state

    def kernels(self, state: Any) -> Iterable[Any]:
        return self.policy.kernels(state) if isinstance(self.policy, Compiled) else ()

    def repair(self, state: Any) -> float:
        return float(self.policy.repair(state)) if self.mends else 0.0

    def drift(self, state: Any) -> float:
        return float(self.policy.drift(state)) if self.mends else 0.0

    def row_limit(self, state: Any) -> float:
        return float(self.policy.row_limit(state)) if self.mends else math.inf


@dataclass(frozen=True, eq=False)
class Plan:
    """What `init` makes of a guard and a problem; it never changes and is not saved.

    The books hold, over the decisions made: how many were made, are open, were answered, were left
    to the baseline; the sum of the rewards; and two sums of features, of the arms played less those
    of the baseline, and of the arms played that have no answer.
    """

    kind: Kind
    margin: Margin
    policy: Player
    baseline: Player

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
    return policy.decides if isinstance(policy, Decides) else "arms"


def _only(given: Arms, arm: Any) -> Arms:
    """The context with one arm only."""
    place = np.array([_number(given, arm)])
    features = given.features if given.per_arm else given.features[arm : arm + 1]
    return Arms(features, 1, given.per_arm, given.norm, place)


def _number(given: Arms, arm: Any) -> int:
    """An arm in the whole context."""
    return int(arm) if given.places is None else int(given.places[arm])


def _place(given: Arms, arm: Any) -> int:
    """The block of an arm."""
    return _number(given, arm) if given.per_arm else 0


def _parts(decision: Decision, trail: Trail) -> tuple[Decision, Decision]:
    """The decisions of policy and baseline, for the arm that was played."""
    id, t, action = decision.id, decision.t, decision.action
    return (
        Decision(id, t, action, trail.policy_probability, trail.policy),
        Decision(id, t, action, trail.baseline_probability, trail.baseline),
    )


def _is_trail(evidence: Any) -> bool:
    return isinstance(evidence, tuple) and len(evidence) == len(Trail._fields)


def _foreign(decision: Decision) -> InvalidInput:
    return InvalidInput(
        f"the evidence of decision {decision.id!r} is of another policy or problem, or damaged: "
        f"{short(decision.evidence, 80)}"
    )
