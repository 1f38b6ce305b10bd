"""`FrankWolfe`: any bandit for one reward becomes one for a concave function of several.

The generic algorithm of the paper. After t rewards, with z their average:

    g = grad f_t(z)                       the direction, at the time of the decision
    a = base's choice for <g, r>          a bandit with one scalar reward
    z = z + (rho - z)/(t + 1)             when the reward arrives; rho = r by default
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.batch import Batch
from fairwolfe.core.brief import short
from fairwolfe.core.catalogue import NONE
from fairwolfe.core.decision import Choice, Decision, Learnt, decided
from fairwolfe.core.kinds import Kind, Stack, kind_of, require_kind
from fairwolfe.core.problem import Problem, all_finite, number_where, one_of
from fairwolfe.core.protocols import (
    Base,
    Compiled,
    CountsExposure,
    Decides,
    Estimates,
    Policy,
    Repairs,
    ScalarPolicy,
    Tuned,
    keeps,
)
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import Kernel
from fairwolfe.kernels.settling import averages, settle
from fairwolfe.kernels.waiting import ISSUED, OPEN, expect_rows, withdraw
from fairwolfe.objectives import Concave, GiniWelfare, Linear
from fairwolfe.reduction import batches, items
from fairwolfe.reduction.constraints import Constraint, constraints
from fairwolfe.reduction.direction import Course
from fairwolfe.reduction.live import Live
from fairwolfe.reduction.state import Plan, State, Trail, first_prices, nothing_open
from fairwolfe.reduction.windows import Windows, turn_over
from fairwolfe.smoothing import Augmented, Identity, Moreau, Randomized, default_smoothing
from fairwolfe.smoothing.following import aim, aim_once, sample
from fairwolfe.smoothing.prices import Prices, typical_slope

__all__ = ["FrankWolfe"]

_NOTHING = np.empty(0)
_FIELDS = len(Trail._fields)
_PLACE, _EXPECTED = Trail._fields.index("place"), Trail._fields.index("expected")


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
        whether or not they happened
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
    smoothing: Identity | Moreau | Augmented | Randomized | None = None
    memory: float | None = field(default=None, kw_only=True)
    iterate: Literal["observed", "expected"] = field(default="observed", kw_only=True)
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
        one_of("iterate", self.iterate, ("observed", "expected"))
        if not isinstance(self.anticipate, bool):
            raise InvalidInput(f"anticipate is {self.anticipate!r}; give True or False")

    @property
    def decides(self) -> str:
        """The kind of decision: that of the base."""
        return self.base.decides if isinstance(self.base, Decides) else "arms"

    @property
    def followed(self) -> Concave:
        """The function whose gradient is followed."""
        return self.objective

    # --- the contract -------------------------------------------------------------------------

    def init(self, problem: Problem) -> State:
        """Bind everything to the problem and allocate."""
        plan = self.plan(kind_of(problem))
        return self.fresh(plan, plan.base.init(problem))

    def plan(self, kind: Kind) -> Plan:
        """Everything bound to a kind of decision: its problem, and the items that it has left."""
        named = self.base if type(self) is FrankWolfe else self
        require_kind(self.decides, kind.problem, type(named).__name__)
        problem = kind.seen
        objective = self.followed.bind(problem)
        rest = objective.relaxed()  # constraints have their own widths
        smoothing = self.smoothing or default_smoothing(rest, problem.n_objectives)
        base = self.base
        if isinstance(base, Tuned):
            base = base.tuned(typical_slope(objective, kind))
        plan = Plan(
            kind.fitted(base),
            objective,
            smoothing.bind(problem, rest),
            base,
            0.0 if self.memory is None else 1.0 - 0.5 ** (1.0 / self.memory),
            self.iterate,
            self.anticipate,
        )
        if self.iterate == "expected" and not isinstance(base, CountsExposure):
            raise InvalidInput(
                f"iterate='expected' is of exposures, and {base!r} has none; use 'observed'"
            )
        return plan

    @staticmethod
    def fresh(plan: Plan, base: Any) -> State:
        """The state of a plan before the first reward, around a base's."""
        totals, earned, clocks, direction = np.zeros((4, plan.kind.problem.n_objectives))
        live = Windows.start(plan.kind.seen.n_objectives)
        open_ = nothing_open(plan)
        averages = (totals, earned, clocks, direction, np.zeros(1))
        return State(plan, *averages, base, live, open_, first_prices(plan))

    def direction(self, state: State, rng: np.random.Generator) -> Vector:
        """grad f_t(z); for Randomized smoothing, its running average."""
        compass = state.plan.compass
        return state.direction if compass is None else compass.at(state, rng)

    def act(self, state: State, context: Any, rng: np.random.Generator) -> Decision:
        """Choose for the current direction; only reads the state."""
        return self.decide(state, context, rng, "")[0]

    def decide(self, state: State, context: Any, rng: Any, id: str) -> tuple[Decision, Any]:
        """`act` under an id, and the choices of the base, for `expect_made`; None
        where the base decides in Python. rng: a generator, or `Numbered` draws.
        """
        plan = state.plan
        kind = plan.kind
        given = context if type(context) is kind.checked else kind.read(context)
        choices = self._rows(state, given, rng) if plan.in_rows else None
        if choices is not None and choices.done:
            g = choices.direction(0) if plan.follows else None
            expected = choices.expected(0) if plan.waits and plan.recalls else None
            return self._decision(state, choices.choice(0), g, expected, id), choices
        choice, g = self._chosen(state, given, rng)
        return self._decision(state, choice, g, choice.info.estimate, id), None

    def _rows(
        self,
        state: State,
        given: Any,
        rng: Any,
        rows: int = 1,
        advance: bool = False,
        tolerance: float = 0.0,
        **how: Any,
    ) -> Any:
        """Choices in a row by one kernel, as many as it has made."""
        plan, compass = state.plan, state.plan.compass
        course: Course
        if compass is None:
            course = plan.undirected(rows)
        else:
            course = compass.course(state, rng, rows, advance, tolerance)
        choices = plan.base.act_rows(
            state.base,
            given,
            plan.frame(state).words,
            course,
            rng,
            plan.certifies and state.live.slope is not None,
            plan.kept,
            **how,
        )
        if compass is not None:
            compass.give_back(course)
        return choices

    def _chosen(self, state: State, given: Any, rng: Any) -> tuple[Choice, Vector]:
        """The choice of a base in Python, and the direction that it was made for."""
        plan, live = state.plan, state.live
        kind, compass = plan.kind, plan.compass
        g = state.direction if compass is None else compass.at(state, rng)
        options: dict[str, Any] = {"estimate": True} if plan.foretells else {}
        slope = live.slope if plan.certifies else None
        if slope is not None:
            options["look"] = kind.aligned(slope, given), plan.watch.doubt
        drawn = rng.generator() if type(rng) is Numbered else rng
        choice = plan.base.act(state.base, given, kind.aligned(g, given), drawn, **options)
        if not plan.commits:
            self._check_choice(plan, given, choice)
        return choice, g

    @staticmethod
    def _decision(
        state: State, choice: Choice, g: Vector | None, expected: Any, id: str, ahead: int = 0
    ) -> Decision:
        """A choice with what `update` will need of it. ahead: how many are opened before it."""
        plan = state.plan
        action, probability, evidence, info = choice
        trail = tuple.__new__(  # a NamedTuple of this many fields takes three times as long
            Trail,
            (
                evidence,
                None,
                plan.kind.whole(g) if plan.follows and g is not None else None,
                None if info.outlook is None else (state.live.serial, info.outlook),
                state.totals.size,
                int(state.waiting.item(ISSUED)) + ahead if plan.anticipates else None,
                expected,
            ),
        )
        # Given a random direction, the base's probability is not that of the action.
        stated = None if plan.smoothing.averaged else probability
        return decided(id, int(state.counters.item(0)), action, stated, trail, info)

    # --- open decisions -----------------------------------------------------------------------

    def expect(self, state: State, decision: Decision) -> State:
        """Count a decision as open: in z by what it is estimated to earn, until `update` or
        `withdraw`. Nothing happens where open decisions do not count.
        """
        plan = state.plan
        if plan.anticipates:
            self._open(state, decision, state.issued)
        return state

    def expect_made(self, state: State, decision: Decision, choices: Any) -> None:
        """`expect`, of a decision just made."""
        plan = state.plan
        if not plan.anticipates:
            return
        if choices is None:
            self._open(state, decision, state.issued)
        else:
            plan.base.expect_rows(state.base, choices, plan.frame(state).words)

    def withdraw(self, state: State, decision: Decision) -> State:
        """Take a decision that gets no answer out of the open ones."""
        plan = state.plan
        if not plan.anticipates or state.open == 0:
            return state
        place = self._place(state, decision)
        if place is None:
            return state
        trail = decision.evidence
        try:
            *_, first, stop = self._recalled(state, decision, state.totals)
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise _foreign(decision) from error
        joined, words = (first, stop), plan.frame(state).words
        if plan.blocks == (0, 0):
            values = _expectation(decision)
            if not _fits(values, state.totals.shape):
                raise _foreign(decision)
            withdraw.call(words, -1, values, place, *joined)
        else:
            choice = Choice(decision.action, decision.probability, trail[0])
            plan.base.withdraw(state.base, choice, trail[_EXPECTED], words, place, joined)
        return state

    def take_back(self, state: State, decision: Decision) -> None:
        """`withdraw`, of a decision that may or may not have been expected, and was never given to
        anybody.
        """
        place = decision.evidence.place
        if place is not None and place < state.issued:
            self.withdraw(state, decision)

    @staticmethod
    def unawaited(decision: Decision) -> Decision:
        """The same decision, as one that is not counted as open."""
        trail = decision.evidence
        if not isinstance(trail, tuple) or len(trail) != _FIELDS:
            return decision
        return replace(decision, evidence=Trail(*trail)._replace(place=None))

    def _open(self, state: State, decision: Decision, issued: int) -> None:
        if self._place(state, decision, issued + 1) is None:
            raise _foreign(decision)
        self.count_open(state, decision)

    @staticmethod
    def count_open(state: State, decision: Decision) -> None:
        """`expect`, whether or not open decisions count."""
        plan, trail = state.plan, decision.evidence
        words = plan.frame(state).words
        if plan.blocks == (0, 0):
            values = _expectation(decision)
            if not _fits(values, state.totals.shape):
                raise _foreign(decision)
            expect_rows.call(words, values[None], -1, -1, 0, values.size)
        else:
            choice = Choice(decision.action, decision.probability, trail[0])
            plan.base.expect(state.base, choice, trail[_EXPECTED], words)

    @staticmethod
    def _place(state: State, decision: Decision, issued: int | None = None) -> int | None:
        """Which of the open decisions it is; None for one that is not counted as open."""
        trail = decision.evidence
        if not isinstance(trail, tuple) or len(trail) != _FIELDS:
            raise _foreign(decision)
        return _numbered(decision, state.issued if issued is None else issued)

    @staticmethod
    def _check_choice(plan: Plan, given: Any, choice: Any) -> None:
        """What a base in Python returned."""
        if not isinstance(choice, Choice):
            raise InvalidInput(
                f"{plan.base!r} returned {short(choice, 80)} from act; return fw.Choice(action, "
                "probability, evidence)"
            )
        if not plan.kind.allows(given, choice.action):
            raise InvalidInput(
                f"{plan.base!r} chose {short(choice.action, 80)}, which may not be chosen here; "
                f"{plan.kind.allowed}"
            )
        p = choice.probability
        if not (p is None or (isinstance(p, (int, float)) and 0.0 < p <= 1.0)):
            raise InvalidInput(
                f"{plan.base!r} gave the probability {p!r:.80}; give a number above 0 and at most "
                "1, or None where it is unknown"
            )

    def update(self, state: State, decision: Decision, feedback: Any) -> State:
        """Average the reward vector in and let the base learn from it: both or neither."""
        plan, kind = state.plan, state.plan.kind
        observation, reward, _ = kind.observe(decision.action, feedback)
        evidence, followed, outlook, first, stop = self._recalled(state, decision, reward)
        place, expected = self._awaited(state, decision) if plan.waits else (-1.0, _NOTHING)
        by_chance = plan.iterate == "expected"
        rho = self._by_chance(state, decision, reward) if by_chance else _NOTHING
        choice = Choice(decision.action, decision.probability, evidence)
        tallied = plan.watch.tally(state.live, outlook, observation, decision.id)
        words = plan.frame(state).words
        number = -1.0 if tallied is None else float(decision.number)
        settling = (
            rho,
            _NOTHING if followed is None else followed,
            _NOTHING if tallied is None else tallied,
        )
        base = state.base
        if plan.commits:
            rest = (first, stop, number, place, expected)
            due = plan.base.commit(
                base, choice, observation, words, (reward, *settling, *rest), kind.sees(reward)
            )
        else:
            if tallied is not None and not all_finite(tallied):
                raise _foreign(decision)
            g = state.direction if followed is None else followed
            base = plan.base.update(base, choice, g, observation)
            due = settle.call(
                words,
                reward,
                rho if rho.size else reward,
                settling[1],
                settling[2],
                kind.sees(reward),
                first,
                stop,
                number,
                place,
                expected,
            )
        if due:
            plan.watch.gather(state.live, state.iterate, state.prices, plan.age(state.t))
        return state if base is state.base else state._replace(base=base)

    @staticmethod
    def _by_chance(state: State, decision: Decision, reward: Vector) -> Vector:
        """The reward vector of a ranking with the chances of exposure instead of the exposures."""
        looks = _expectation(decision)
        if not _fits(looks, (state.plan.kind.problem.n_slots,)):
            raise _foreign(decision)
        rho = reward.copy()
        rho[decision.action] = looks
        return rho

    def _awaited(self, state: State, decision: Decision) -> tuple[float, Vector]:
        """Which of the open decisions it is, negative where it is not among them; and what was
        expected of it, as far as `update` needs that: the reward vector, or exposures by slot.
        """
        plan = state.plan
        waiting = state.waiting
        place = None
        if plan.anticipates and waiting.item(OPEN) > 0.0:
            place = _numbered(decision, waiting.item(ISSUED))
        if not plan.recalls:
            return (-1.0 if place is None else float(place)), _NOTHING
        slots = plan.kind.problem.n_slots
        values = _expectation(decision)
        if plan.blocks == (0, 0):
            needed, shape = place is not None, state.totals.shape
        else:
            needed, shape = values is not None and slots is not None, (slots or 0,)
        if not needed:
            values = _NOTHING
        elif not _fits(values, shape):
            raise _foreign(decision)
        return (-1.0 if place is None else float(place)), values

    @staticmethod
    def _recalled(
        state: State, decision: Decision, reward: Vector
    ) -> tuple[Any, Vector | None, Any, int, int]:
        """What a decision remembers, checked, since it may come from bytes that anybody wrote: the
        evidence of the base, the direction, the outlook, and which coordinates joined later.
        """
        plan, trail = state.plan, decision.evidence
        if not isinstance(trail, tuple) or len(trail) != _FIELDS:
            raise _foreign(decision)
        evidence, reserved, followed, outlook, size, *_ = trail
        n = reward.size
        if not (type(size) is int and 0 < size <= n):
            raise _foreign(decision)
        first, stop = plan.none_joined
        if size != n:
            first, stop = plan.kind.joined(size)
            if first < plan.kind.reach(decision.action):  # it shows what joined later
                raise _foreign(decision)
        if reserved is not None or (followed is None and plan.extended):
            raise _foreign(decision)
        if isinstance(followed, np.ndarray) and followed.ndim == 1 and followed.size < n:
            followed = plan.kind.caught_up(followed, state.direction)
        if not (followed is None or _fits(followed, reward.shape)):
            raise _foreign(decision)
        return evidence, followed, outlook, first, stop

    # --- many at once -------------------------------------------------------------------------

    def act_batch(
        self,
        state: State,
        contexts: Any,
        draws: Any,
        advance: bool | None = None,
        tolerance: float = 0.0,
    ) -> Batch | list[Decision]:
        """`act` for contexts in a row, in one kernel call; only reads the state.

        draws: a generator, or `Numbered` draws. advance: whether each decision counts as open for
        the next; None where open decisions count. A list comes back where there is no kernel.
        tolerance: one direction may serve so many decisions in a row, relative to the number of
        decisions behind the youngest average; 0: each has its own, as with `act`.
        """
        plan = state.plan
        if advance and not plan.forecasts:
            raise InvalidInput(
                f"{plan.base!r} cannot estimate a reward vector; use act_many without advance"
            )
        stack = contexts if type(contexts) is Stack else plan.kind.read_many(contexts)
        ahead = plan.anticipates if advance is None else advance and plan.waits
        return batches.act_batch(self, state, stack, draws, ahead, tolerance)

    def expect_batch(self, state: State, batch: Batch | list[Decision]) -> State:
        """`expect` for each of them."""
        return batches.expect_batch(self, state, batch)

    def fold(self, state: State, batch: Batch | list[Decision], answers: Any) -> State:
        """`update` with each answer in turn, in one kernel call. Where one raises, those before
        it have been learnt from.
        """
        return batches.fold(self, state, batch, answers)

    # --- powers -------------------------------------------------------------------------------

    def kind(self, state: State) -> Kind:
        """The kind of decision, with the current items."""
        return state.plan.kind

    def commits(self, state: State) -> bool:
        """Whether an update is all or nothing, also where an interrupt comes."""
        return state.plan.commits

    def kernels(self, state: State) -> list[Kernel[..., Any]]:
        """What the other methods can call in a state, so that they are ready before the first."""
        plan = state.plan
        n = plan.kind.seen.n_objectives
        own: list[Kernel[..., Any]] = [averages, turn_over]
        if not plan.commits:
            own.append(settle)
        if plan.compass is not None:
            own.append(aim)
            if plan.compass.sampled:
                own.append(sample)
        if not plan.in_rows:
            own.extend((aim_once, expect_rows, withdraw))
        own.extend(plan.kind.kernels())
        if isinstance(plan.base, Compiled):
            own.extend(plan.base.kernels(plan.kind.problem))
        if plan.prices is not None:
            return [*Prices.kernels(plan.objective, n), *own]
        return [*plan.objective.kernels(n), *own]

    def repair(self, state: State) -> float:
        """Recompute what is kept of the regression, in place; how large its error was."""
        if not isinstance(state.plan.base, Repairs):
            raise InvalidInput(f"{state.plan.base!r} keeps nothing that could be recomputed")
        return float(state.plan.base.repair(state.base))

    def drift(self, state: State) -> float:
        """The error of the kept inverse when it was last recomputed; 0 where none is kept."""
        base = state.plan.base
        return base.drift(state.base) if isinstance(base, Repairs) else 0.0

    def row_limit(self, state: State) -> float:
        """The largest norm of a row of features that can be learnt from."""
        return state.plan.row_limit

    def learnt(self, state: State) -> Learnt:
        """What the base has learnt of the rewards."""
        if not isinstance(state.plan.base, Estimates):
            raise InvalidInput(f"{state.plan.base!r:.80} keeps no estimate of each reward")
        return state.plan.base.learnt(state.base)

    def study(self, state: State, choice: Choice, observation: Any) -> State:
        """The state whose base has learnt a decision that others made; the average stays."""
        nothing = np.zeros(state.plan.kind.problem.n_objectives)
        base = state.plan.base.update(state.base, choice, nothing, observation)
        return state if base is state.base else state._replace(base=base)

    def survey(self, state: State) -> None:
        """What the first `live` would take its time for: the extremes of f over the ranges."""
        state.plan.watch.survey(state.live)

    def live(self, state: State, delta: float = 0.05, trusted: bool = True) -> Live:
        """How far from the best reachable value; see `Live` and docs/live.md."""
        return state.plan.watch.report(state.live, state.average, state.t, delta, trusted)

    def constraints(
        self, state: State, delta: float = 0.05, trusted: bool = True
    ) -> tuple[Constraint, ...]:
        """The hard constraints of f, one for each level; see `Constraint`."""
        return constraints(state, delta, trusted)

    of_objective: ClassVar[tuple[str, ...]] = ("state.prices",)
    """Arrays of a state that belong to one f."""

    def with_objective(self, objective: Concave) -> Self:
        """The same policy for another f; a state carries over, since f is not part of it."""
        return replace(self, objective=objective)

    def renewed(self, state: State) -> State:
        """The state, without what was certified of an old f."""
        state.live.restart()
        return state

    def keep_items(self, state: State, features: Any) -> State:
        """The state that keeps the features of its items, so that contexts need not bring them."""
        return items.keep_items(self, state, features)

    def add_items(self, state: State, features: Matrix, instead: IntVector = NONE) -> State:
        """The state with more items, the last ids, `instead` of those that are retired with it;
        features (new, q).
        """
        return items.add_items(self, state, features, instead)

    def retire_items(self, state: State, ids: IntVector) -> State:
        """The state in which these items are not shown any more, nor seen by f."""
        return items.retire_items(self, state, ids)

    def resume(self, problem: Problem, arrays: Mapping[str, Any]) -> State:
        """A fresh state of the shape of the one that these arrays were saved from."""
        return items.resume(self, problem, arrays)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB

        return (
            cls(GiniWelfare(), LinUCB()),
            cls(Linear((1.0, 0.5, 0.2)), SquareCB(gamma0=100.0)),
            cls(GiniWelfare(), EpsilonGreedy(0.1), Randomized(n_samples=2), memory=50.0),
        )


def _numbered(decision: Decision, issued: float) -> int | None:
    """Which of `issued` decisions that were ever open it is; None for one that never was."""
    place = decision.evidence[_PLACE]
    if place is None:
        return None
    if not (type(place) is int and 0 <= place < issued):
        raise _foreign(decision)
    return place


def _expectation(decision: Decision) -> Any:
    """What was expected of a decision, unchecked; None where it does not say."""
    return decision.evidence[_EXPECTED]


def _fits(vector: Any, shape: tuple[int | None, ...]) -> bool:
    """Whether a vector from evidence, which may be forged, can be given to a kernel."""
    return (
        isinstance(vector, np.ndarray)
        and vector.dtype == np.float64
        and vector.shape == shape
        and vector.flags.carray
        and all_finite(vector)
    )


def _foreign(decision: Decision) -> InvalidInput:
    return InvalidInput(
        f"the evidence of decision {decision.id!r} is of another policy or problem, or damaged: "
        f"{short(decision.evidence, 80)}"
    )
