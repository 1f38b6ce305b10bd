"""`Running`: a policy in a problem, which decides rows, learns rows and withdraws rows.

One decision is rows of length one, and feedback at once is feedback without delay. `Arms` and
`Rankings` are compiled; `reduction/frank_wolfe.py` has the path for bases in Python.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from fairwolfe.bandits.choosing import BanditState
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.catalogue import NONE, Candidates, find, item_features, sizes
from fairwolfe.core.contexts import Arms as ArmsContext
from fairwolfe.core.decision import Learnt
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import Kind, Stack, require_kind
from fairwolfe.core.rows import ArmRows, RankingRows, merge
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.kernels.arms import Arms as ArmsEngine
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.rankings import Rankings as RankingsEngine
from fairwolfe.kinds import Ranking
from fairwolfe.objectives import Concave
from fairwolfe.oracles import LinearState
from fairwolfe.oracles.linear_state import refuse
from fairwolfe.reduction.constraints import Constraint, constraints
from fairwolfe.reduction.live import Certificates, Live
from fairwolfe.reduction.state import Plan, State
from fairwolfe.reduction.tables import read_table
from fairwolfe.reduction.windows import SERIAL, Windows
from fairwolfe.smoothing import Randomized, default_smoothing
from fairwolfe.smoothing.prices import Prices, typical_slope

__all__ = ["ArmsRunning", "Bound", "RankingsRunning", "Running", "bind"]

_OPEN, _ISSUED = 0, 1  # places in State.open
_LANE = 1  # of draws by number for directions; the base has another
_OPEN_FIELDS = ("open", "weights", "sums", "phi")


class Bound(NamedTuple):
    """A policy bound to a kind of decision."""

    kind: Kind
    objective: Concave
    smoothing: Any
    base: Any
    prices: Prices | None
    forget: float  # of the averages, at each reward


def bind(policy: Any, kind: Kind) -> Bound:
    """Everything bound to a kind of decision: its problem, and the items that it has left."""
    named = policy if policy.named_alone else policy.base
    require_kind(policy.decides, kind.problem, type(named).__name__)
    problem = kind.seen
    objective = policy.followed.bind(problem)
    rest = objective.relaxed()  # constraints have their own widths
    smoothing = policy.smoothing or default_smoothing(rest, problem.n_objectives)
    smoothing = smoothing.bind(problem, rest)
    base = policy.base
    if hasattr(base, "tuned"):
        base = base.tuned(typical_slope(objective, kind))
    if policy.iterate == "expected" and not hasattr(base, "exposure"):
        raise InvalidInput(
            f"iterate='expected' is of exposures, and {base!r} has none; use 'observed'"
        )
    kind = kind.fitted(base)
    prices = Prices.of(objective, smoothing, kind)
    forget = 0.0 if policy.memory is None else 1.0 - 0.5 ** (1.0 / policy.memory)
    return Bound(kind, objective, smoothing, base, prices, forget)


class Running(ABC):
    """A policy in a problem, with its state.

    `decide` proposes and only reads the state; `open_rows`, `learn` and `withdraw` change it,
    each row completely or not at all.
    """

    engine: Any
    plan: Plan
    reads = True
    """Whether it takes checked contexts and answers."""
    atomic = True
    """Whether an answer is learnt by one call, which no interrupt can tear."""
    forecasts = True
    """Whether the base can estimate a reward vector."""

    def __init__(self, policy: Any, bound: Bound, rule: Any, state: State | None = None) -> None:
        self.policy, self.rule = policy, rule
        self.kind, self.objective, self.smoothing, self.base, self.prices, self.forget = bound
        self.state = self._fresh() if state is None else state
        self.windows = Windows(self.state.live)
        self.certificates = Certificates(self)
        self._start()

    @abstractmethod
    def _fresh(self) -> State:
        """The state before the first reward."""

    @abstractmethod
    def _start(self) -> None:
        """Make the plan and the engine."""

    def _fresh_base(self) -> Any:
        """The state of the base before the first reward, with the items that the kind has."""
        items = self.kind.catalogue if isinstance(self.kind, Ranking) else None
        if items is not None and (items.features.shape[1] or items.ids.size < items.total):
            return self.base.resume(self.kind.problem, items)
        return self.base.init(self.kind.problem)

    def __reduce__(self) -> Any:
        return self.policy.running, (self.kind, self.state)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        running: Self = self.policy.running(self.kind, self.copied())
        return running

    def copied(self) -> State:
        """The state in other memory."""
        return self.state.copy(deepcopy(self.state.base))

    def restore(self, state: State) -> None:
        """Take the numbers of a copy of the state."""
        self.state.restore(state)
        if state.base is not None:
            self.state = self.state._replace(base=state.base)

    def opening(self, work: Callable[..., None], *given: Any) -> None:
        """Do work that opens or withdraws decisions, whole or not at all: it is one call here."""
        work(*given)

    # --- what is known ------------------------------------------------------------------------

    @property
    def t(self) -> int:
        """The number of rewards averaged in."""
        return int(self.state.t.item(0))

    @property
    def open(self) -> int:
        """The number of decisions that are counted as open."""
        return int(self.state.open.item(_OPEN))

    @property
    def issued(self) -> int:
        """The number of decisions that were ever counted as open."""
        return int(self.state.open.item(_ISSUED))

    @property
    def iterate(self) -> Vector:
        """z, as f sees it."""
        return self.kind.sees(self.state.totals / np.maximum(self.state.clocks, 1.0))

    @property
    def average(self) -> Vector:
        """The average observed reward, as f sees it."""
        return self.kind.sees(self.state.earned / np.maximum(self.state.clocks, 1.0))

    def age(self, t: int) -> int:
        """t for the smoothing: with memory, the number of rewards that the average still holds."""
        return t if self.forget == 0.0 else min(t, int(1.0 / self.forget))

    @property
    def youngest(self) -> float:
        """The number of decisions, answered or open, behind the average that has the fewest."""
        past = (1.0 - self.forget) ** self.open
        return float((past * self.state.clocks + self.state.weights).min())

    def direction(self, rng: Any = None) -> Vector:
        """g = grad f_t(z) for the next decision, as f sees it; rng: for randomised smoothing."""
        n, samples = self.kind.seen.n_objectives, self.plan.samples
        normals, g = np.empty((samples, n + 2)), np.empty(n)
        if samples:
            drawn = rng.generator(0, _LANE) if type(rng) is Numbered else rng
            normals[...] = drawn.standard_normal(normals.shape)
        if not self.engine.aim(normals, g):
            self.raise_failure(useless=False)
        return g

    def survey(self) -> None:
        """Find out what the first `live` needs and no feedback changes."""
        self.certificates.survey(self.windows)

    def live(self, delta: float = 0.05, trusted: bool = True) -> Live:
        """How far from the best reachable value; see `Live` and docs/live.md."""
        if self.policy.objective is None:
            raise InvalidInput(f"{self.policy!r} has no objective, so it keeps no live numbers")
        return self.certificates.report(self.windows, self.average, self.t, delta, trusted)

    def constraints(self, delta: float = 0.05, trusted: bool = True) -> tuple[Constraint, ...]:
        """The hard constraints of f, one for each level; see `Constraint`."""
        return constraints(self, delta, trusted)

    @property
    def limit(self) -> float:
        """The largest norm of a row of features that can be learnt from."""
        ridge = getattr(getattr(self.base, "regression", None), "ridge", 0.0)
        return row_limit(self.kind.problem, ridge)

    @property
    def base_state(self) -> Any:
        """The state of the base, as the contract Base has it; it shares the memory of the state."""
        return self.state.base

    @property
    def can_repair(self) -> bool:
        """Whether the base keeps anything that can be recomputed."""
        return hasattr(self.base, "repair")

    def repair(self) -> float:
        """Recompute what is kept of the regression, in place; how large its error was."""
        if not self.can_repair:
            raise InvalidInput(f"{self.base!r} keeps nothing that could be recomputed")
        return float(self.base.repair(self.base_state))

    def drift(self) -> float:
        """The error of the kept inverse when it was last recomputed; 0 where none is kept."""
        return float(self.base.drift(self.base_state)) if hasattr(self.base, "drift") else 0.0

    def learnt(self) -> Learnt:
        """What the base has learnt of the rewards."""
        if not hasattr(self.base, "learnt"):
            raise InvalidInput(f"{self.base!r:.80} keeps no estimate of each reward")
        learnt: Learnt = self.base.learnt(self.base_state)
        return learnt

    def counts(self) -> dict[str, int]:
        """What the policy counts itself."""
        return {}

    # --- rows ---------------------------------------------------------------------------------

    @abstractmethod
    def decide(
        self,
        given: Any,
        rng: Any,
        number: int = -1,
        n: int = 1,
        advance: bool | None = None,
        every: int = 1,
        explain: bool = True,
        **how: Any,
    ) -> Any:
        """Propose rows for contexts that were read, n of them; only reads the state.

        rng: a generator, or `Numbered` draws; number: of the first decision; advance: whether each
        counts as open for the next, None where open decisions count; every: how many decisions
        share a direction.
        """

    def decide_stack(
        self,
        stack: Stack,
        rng: Any,
        number: int = -1,
        advance: bool | None = None,
        tolerance: float = 0.0,
        explain: bool = True,
    ) -> Any:
        """Rows for contexts that were read together; tolerance: one direction may serve so many
        decisions, relative to the number of decisions behind the youngest average.
        """
        if advance and not self.forecasts:
            raise InvalidInput(
                f"{self.base!r} cannot estimate a reward vector; use act_many without advance"
            )
        every = 1
        if tolerance > 0.0 and not self.smoothing.averaged:
            every = max(1, int(tolerance * self.youngest))
        if not isinstance(stack.given, list):
            how: dict[str, Any] = {"every": every, "explain": explain, **stack.how}
            return self.decide(stack.given, rng, number, stack.rows, advance, **how)
        return self._decide_each(stack.given, rng, number, advance, explain)

    def _decide_each(
        self, given: list[Any], rng: Any, number: int, advance: Any, explain: bool
    ) -> Any:
        """Contexts of different shapes, one after the other."""
        ahead = self.plan.anticipate if advance is None else advance
        before = [getattr(self.state, name).copy() for name in _OPEN_FIELDS]
        rows = []
        try:
            for i, one in enumerate(given):
                drawn = Numbered(rng.key, rng.number + i) if type(rng) is Numbered else rng
                at = number + i if number >= 0 else number
                rows.append(self.decide(one, drawn, at, 1, False, explain=explain))
                if ahead:
                    self.engine.open_rows(rows[-1], True)
        finally:
            for name, kept in zip(_OPEN_FIELDS, before, strict=True):
                getattr(self.state, name)[...] = kept
        (whole,) = merge(rows)
        return whole

    def open_rows(self, rows: Any) -> None:
        """Count proposed decisions as open, in their order."""
        self.engine.open_rows(rows)

    def withdraw(self, rows: Any) -> None:
        """Decisions that get no answer are not open any more."""
        self.engine.withdraw(rows)

    @abstractmethod
    def learn(self, rows: Any, observation: Any) -> None:
        """Learn what rows earned, in their order; where one raises, those before it are learnt."""

    @abstractmethod
    def study(self, rows: Any, observation: Any) -> None:
        """The base alone learns from decisions that others made: nothing is averaged."""

    def gather(self) -> None:
        """Take a certificate for the next window of live numbers."""
        state, age = self.state, self.age(self.t)
        self.certificates.gather(self.windows, self.iterate, state.prices, age)

    # --- what compiled and plain plans share --------------------------------------------------

    @cached_property
    def directed(self) -> bool:
        """Whether the base uses the direction at all."""
        return bool(getattr(self.base, "needs_direction", True))

    def _plan(self, forecasts: bool, learns_direction: bool, **own: Any) -> Plan:
        kind, state, smoothing = self.kind, self.state, self.smoothing
        problem, n = kind.problem, kind.seen.n_objectives
        coordinates = kind.sees(np.arange(float(problem.n_objectives))).astype(np.int64)
        tree = None
        if self.directed:
            tree = self.prices.tree(state.prices) if self.prices else self.objective.tree(n)
        sampled = isinstance(smoothing, Randomized)
        start = self.policy.start
        return Plan(
            tree=tree,
            coordinates=coordinates if coordinates.size < problem.n_objectives else None,
            low=problem.low,
            high=problem.high,
            forget=self.forget,
            width=1.0 if self.prices else smoothing.step(self.objective, n, 0),
            fixed=getattr(smoothing, "horizon", None) is not None and not self.prices,
            samples=smoothing.n_samples if sampled else 0,
            anticipate=self.policy.anticipate and self.directed and forecasts,
            keeps_direction=learns_direction or smoothing.averaged,
            start=None if start is None else start_point(start, problem.n_objectives),
            **own,
        )

    @cached_property
    def _no_draws(self) -> tuple[Matrix, Cube] | None:
        """What a decision of a rule that draws nothing draws."""
        if self.plan.samples or self.plan.uniforms:
            return None
        return np.empty((1, 0)), np.empty((1, 0, self.kind.seen.n_objectives + 2))

    def draws(self, rng: Any, n: int) -> tuple[Matrix, Cube]:
        """What n decisions draw: for the rule, and for directions."""
        if n == 1 and self._no_draws is not None:
            return self._no_draws
        problem, base = self.kind.problem, self.base
        normals = np.empty((n, self.plan.samples, self.kind.seen.n_objectives + 2))
        if type(rng) is Numbered:
            for i in range(n if self.plan.samples else 0):
                normals[i] = rng.generator(i, _LANE).standard_normal(normals.shape[1:])
            if getattr(self.rule, "uniform", True):
                return rng.uniforms(n, self.plan.uniforms), normals
            drawn = [base.draws(rng.generator(i), problem, 1) for i in range(n)]
            return np.concatenate(drawn), normals
        if not self.plan.samples:
            return np.ascontiguousarray(base.draws(rng, problem, n)), normals
        rows = []
        for i in range(n):
            normals[i] = rng.standard_normal(normals.shape[1:])
            rows.append(base.draws(rng, problem, 1)[0])
        return np.array(rows), normals

    def raise_failure(self, useless: bool) -> NoReturn:
        """Why the state cannot decide; useless: its scores, not the direction, are the reason."""
        if useless:
            refuse(self.state.learnt[0])
        self.objective.relaxed().gradient(self.iterate)  # raises where f has no gradient there
        raise NumericalFailure(f"the direction of {self.objective} is not a number")

    # --- items and objectives -----------------------------------------------------------------

    def with_objective(self, policy: Any) -> Self:
        """The same state for a policy with another f; what was certified of the old one, and the
        prices of its constraints, start again.
        """
        bound = bind(policy, self.kind)
        prices = bound.prices.fresh() if bound.prices else np.empty(0)
        serial = self.windows.now.numbers[SERIAL] + 1.0
        live = Windows.start(self.kind.seen.n_objectives, serial)
        running: Self = policy.running(self.kind, self.state._replace(prices=prices, live=live))
        return running

    def keep_items(self, features: Any) -> Self:
        """Keep the features of the items, so that contexts need not bring them."""
        kind = self._items()
        rows = item_features(features, kind.problem, kind.catalogue.total)
        return self._rebound(self.policy, self.base.with_features(self.base_state, rows))

    def add_items(self, policy: Any, features: Matrix, instead: IntVector = NONE) -> Self:
        """With more items, the last ids, `instead` of those that are retired with it; features
        (new, q).
        """
        old, count = self._items().catalogue.total, len(features)
        base = self.base.with_items(self.base_state, features)
        if instead.size:
            base = self.base.without_items(base, instead)

        def grown(array: Any) -> Any:
            return np.insert(array, [old] * count, 0.0, axis=-1)

        names = ("totals", "earned", "clocks", "running", "weights", "sums", "answered")
        longer = {name: grown(getattr(self.state, name)) for name in names}
        return self._rebound(policy, base, longer, renew=True)

    def retire_items(self, policy: Any, ids: IntVector) -> Self:
        """These items are not shown any more, nor seen by f."""
        kind = self._items()
        find(kind.catalogue, ids, "item")
        left = kind.catalogue.ids.size - np.unique(ids).size
        if left < kind.n_slots:
            raise InvalidInput(
                f"{ids.size} items are to be retired and {left} would be left for {kind.n_slots} "
                "slots; add items first"
            )
        return self._rebound(policy, self.base.without_items(self.base_state, ids), renew=True)

    def _rebound(
        self, policy: Any, base: Any, arrays: dict[str, Any] | None = None, renew: bool = False
    ) -> Self:
        """The same policy with the items that a state of its base has."""
        kind = self._items().holding(self.base.catalogue(base))
        bound = bind(policy, kind)
        changed: dict[str, Any] = dict(arrays or {})
        changed["prices"] = np.empty(0)
        if bound.prices is not None:
            changed["prices"] = bound.prices.carried(self.state.prices, self.prices)
        if renew:
            serial = self.windows.now.numbers[SERIAL] + 1.0
            changed["live"] = Windows.start(kind.seen.n_objectives, serial)
        state = self._with_base(self.state._replace(**changed), base)
        running: Self = policy.running(kind, state)
        return running

    @staticmethod
    def _with_base(state: State, base: Any) -> State:
        """A state with another state of the base."""
        return state._replace(base=base)

    def _items(self) -> Ranking:
        if not isinstance(self.kind, Ranking):
            raise InvalidInput("the problem has arms; items are for Problem.ranking(...)")
        if not hasattr(self.base, "with_items"):
            raise InvalidInput(
                f"{self.base!r} has a fixed set of items; use one such as LinUCBRank()"
            )
        return self.kind


def start_point(start: Any, n: int) -> Vector:
    """z before the first answer, (n,)."""
    point: Vector = np.ascontiguousarray(start, dtype=np.float64)
    if point.shape != (n,):
        raise InvalidInput(
            f"start has the shape {point.shape}; the problem has {n} coordinates of a reward: give "
            "a number for each"
        )
    return point


class ArmsRunning(Running):
    """A policy for arms over a linear regression, compiled."""

    def _fresh(self) -> State:
        problem, of = self.kind.problem, self.rule.regression
        n, (blocks, d) = problem.n_objectives, (problem.n_arms or 1, problem.dimension)
        prices = self.prices.fresh() if self.prices else np.empty(0)
        return State.fresh(n, n, blocks, d, prices)._replace(
            gram=of.gram[None],
            inverse=of.inverse[None],
            theta=of.theta,
            moment=of.moment,
            learnt=of.counters[None],
        )

    def _start(self) -> None:
        problem, rule = self.kind.problem, self.rule
        self.plan = self._plan(
            True,
            rule.extended,
            rule=rule.name,
            rule_params=rule.params,
            uniforms=rule.uniforms,
            doubt=np.concatenate([problem.low, problem.high, self.certificates.doubt]),
            certifies=True,
            learn_params=rule.regression.params,
            limit=rule.limit,
            look=rule.look,
            learn=rule.learn,
            extended=rule.extended,
            ascent=rule.ascent,
            own_rule=rule.own,
        )
        self.engine = ArmsEngine(self.plan, self.state)
        self._shape = problem.dimension, problem.n_objectives if self.plan.keeps_direction else 0

    @property
    def base_state(self) -> BanditState:
        state, problem = self.state, self.kind.problem
        design = (state.gram[0], state.inverse[0], state.theta, state.moment)
        oracle = LinearState(*design, self.rule.regression.params, state.learnt[0])
        return BanditState(problem, self.base.rule_params(problem), oracle)

    @property
    def callbacks(self) -> int:
        """How often Python functions of the user were called by compiled code."""
        callers = (self.plan.tree, self.plan.ascent[0], self.plan.own_rule)
        return sum(caller.callbacks for caller in callers if caller is not None)

    def raise_failure(self, useless: bool) -> NoReturn:
        raised = None if self.plan.own_rule is None else self.plan.own_rule.failure()
        if raised is not None:
            raise raised
        super().raise_failure(useless)

    def decide(
        self,
        given: ArmsContext,
        rng: Any,
        number: int = -1,
        n: int = 1,
        advance: bool | None = None,
        every: int = 1,
        explain: bool = True,
        **how: Any,
    ) -> ArmRows:
        features, per_arm, places = given.features, given.per_arm, given.places
        if features.ndim == 2:
            features = features[None]
            places = None if places is None else places[None]
        rows = ArmRows.empty(n, *self._shape)
        draws, normals = self.draws(rng, n)
        done = self.engine.decide(
            rows,
            features,
            draws,
            normals,
            number,
            given.n_arms if per_arm else 0,
            places if per_arm else None,
            self.plan.anticipate if advance is None else advance,
            True,  # propose: `open_rows` makes them decisions
            every,
        )
        if done < n:
            self.raise_failure(done < 0)
        if places is not None:
            rows.head["arm"] = places[np.arange(n), rows.head["arm"]]
        if self.plan.samples:  # given a random direction, the rule's is not that of the action
            rows.head["probability"] = np.nan
        return rows

    def learn(self, rows: ArmRows, observation: Matrix) -> None:
        done = 0
        while done < len(observation):
            code = self.engine.learn(rows, observation, done)
            if code < 0:
                refuse(self.state.learnt[0])
            done, due = divmod(code, 2)
            if due:
                self.gather()

    def study(self, rows: ArmRows, observation: Any) -> None:
        rewards = read_table(rows, observation, self.kind, self.limit)
        if self.engine.study(rows, rewards) < len(rows.head):
            refuse(self.state.learnt[0])


class RankingsRunning(Running):
    """A policy for rankings over a ridge regression, compiled."""

    kind: Ranking

    def _fresh(self) -> State:
        kind, problem = self.kind, self.kind.problem
        base = self._fresh_base()
        prices = self.prices.fresh() if self.prices else np.empty(0)
        n, n_seen = problem.n_objectives, kind.seen.n_objectives
        return self._with_base(State.fresh(n, n_seen, 1, problem.dimension, prices), base)

    @staticmethod
    def _with_base(state: State, base: Any) -> State:
        of = base.oracle
        return state._replace(
            gram=of.gram[None],
            inverse=of.inverse[None],
            theta=of.theta,
            moment=of.moment,
            learnt=of.counters[None],
            exposed=base.exposed,
            shown=base.shown,
            slots=base.slots,
            features=base.features,
            retired=base.retired,
        )

    def _start(self) -> None:
        problem, rule, state = self.kind.problem, self.rule, self.state
        self.plan = self._plan(
            True,
            False,
            rule=rule.name,
            rule_params=rule.params,
            uniforms=rule.uniforms,
            doubt=self.certificates.doubt,
            certifies=True,
            learn_params=np.array([float(self.base.ridge)]),
            limit=rule.limit,
            sizes=sizes(problem),
            slot_ranges=np.ascontiguousarray(problem.slot_ranges),
            position_weights=rule.position_weights,
            exposure=self.base.exposure,
            by_chance=self.policy.iterate == "expected",
            owed=rule.owed,
        )
        self.engine = RankingsEngine(self.plan, state)
        n = problem.n_objectives if self.plan.keeps_direction else 0
        self._shape = problem.n_slots or 0, self.plan.sizes[0], n

    @property
    def base_state(self) -> Any:
        state, problem = self.state, self.kind.problem
        design = (state.gram[0], state.inverse[0], state.theta, state.moment)
        oracle = LinearState(*design, self.plan.learn_params, state.learnt[0])
        counts = (state.exposed, state.shown, state.slots, state.features, state.retired)
        return self.rule.state(problem, self.rule.params, oracle, *counts)

    @property
    def limit(self) -> float:
        return math.sqrt(self.rule.limit)

    @property
    def callbacks(self) -> int:
        """How often Python functions of the user were called by compiled code."""
        calls: int = self.plan.tree.callbacks
        return calls

    def decide(
        self,
        given: Candidates,
        rng: Any,
        number: int = -1,
        n: int = 1,
        advance: bool | None = None,
        every: int = 1,
        explain: bool = True,
        starts: IntVector | None = None,
        **how: Any,
    ) -> RankingRows:
        """starts: where the candidates of each row begin in `given.places`."""
        k, p, n_directions = self._shape
        users = given.user if given.user.ndim == 2 else given.user[None]
        picks, items = None, None
        if given.places.size:
            picks = given.places
            starts = np.array([0, picks.size]) if starts is None else starts
        if not given.kept:
            items = given.items
            if picks is not None:  # a column for each item that is left
                items = np.zeros((len(items), self.kind.catalogue.ids.size))
                items[:, picks] = given.items
            items = items[None]
        pinned = given.pinned if given.pinned.ndim == 2 else given.pinned[None]
        features = (0, 0) if items is None else (k, items.shape[1])
        rows = RankingRows.empty(n, k, p, n_directions, features, explain)
        draws, normals = self.draws(rng, n)
        done = self.engine.decide(
            rows,
            users,
            draws,
            normals,
            number,
            items,
            picks,
            starts if picks is not None else None,
            pinned if pinned.shape[1] else None,
            self.plan.anticipate if advance is None else advance,
            True,  # propose: `open_rows` makes them decisions
            every,
        )
        if done < n:
            finite = np.isfinite(self.state.theta).all() and np.isfinite(self.state.inverse).all()
            self.raise_failure(useless=not finite)
        if self.plan.samples:
            rows.head["probability"] = np.nan
        return rows

    def _decide_each(
        self, given: list[Any], rng: Any, number: int, advance: Any, explain: bool
    ) -> Any:
        if not all(one.kept for one in given):  # then all rows hold the features of their items
            given = [one._replace(kept=False) for one in given]
        return super()._decide_each(given, rng, number, advance, explain)

    def learn(self, rows: RankingRows, observation: Shown) -> None:
        done = 0
        while done < len(rows.head):
            code = self.engine.learn(rows, observation.exposed, observation.rewards, done)
            if code < 0:
                self._reject(-1 - code)
            done, due = divmod(code, 2)
            if due:
                self.gather()

    def _reject(self, code: int) -> NoReturn:
        row, unsound = divmod(code, 2)
        if unsound:
            raise InvalidInput(
                f"the feedback to ranking {row} contradicts itself, or its features are too large "
                f"to learn from: at most a norm of {self.limit:g}"
            )
        refuse(self.state.learnt[0])

    def study(self, rows: RankingRows, observation: Any) -> None:
        shown = read_table(rows, observation, self.kind, self.limit, self.state.features)
        n, (k, p, n_directions) = len(rows.head), self._shape
        own = RankingRows.empty(n, k, p, n_directions, explained=False)
        own = own._replace(items=rows.items, user=rows.user, x=rows.x)
        own.head["size"] = self.state.totals.size
        own.exposure[:], own.g[:] = 0.0, 0.0  # no part of what is learnt
        if self.engine.study(own, shown.exposed, shown.rewards) < n:
            refuse(self.state.learnt[0])
