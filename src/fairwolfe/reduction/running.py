"""`Running`: a policy in a problem with its state, which decides, learns and withdraws rows.

One decision is rows of length one, and feedback at once is feedback without delay. `ArmsRunning`
and `RankingsRunning` are compiled, `PlainRunning` (reduction/frank_wolfe.py) is for bases in
Python, `PolicyRunning` for any object with the contract Policy.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from fairwolfe.bandits.base import BanditState
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Room, Vector
from fairwolfe.core.candidates import NONE, Candidates, Catalogue, find, item_features, sizes
from fairwolfe.core.contexts import Arms
from fairwolfe.core.decision import Batch, Decision, Learnt
from fairwolfe.core.feedback import StageAnswer, row_of
from fairwolfe.core.groups import Attributes, Groups, moved
from fairwolfe.core.interrupts import uninterrupted
from fairwolfe.core.kinds import Kind, Stack, kind_of, require_kind
from fairwolfe.core.packing import require, require_counts
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import newest
from fairwolfe.core.rankings import RankingKind
from fairwolfe.core.rows import ArmRows, RankingRows, merge
from fairwolfe.core.streams import Numbered
from fairwolfe.core.tables import short
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.kernels.arms import ArmsEngine
from fairwolfe.kernels.gates import largest_square_norm
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.rankings import RankingsEngine
from fairwolfe.objectives import Concave
from fairwolfe.objectives.two_sided import grouped_by, labelled, require_no_labels
from fairwolfe.oracles.linear_regression import DRIFT, STATUS, raise_useless
from fairwolfe.reduction.constraints import Constraint, constraints
from fairwolfe.reduction.live import SERIAL, Certificates, Live, Windows
from fairwolfe.reduction.logged import read_table
from fairwolfe.reduction.state import Plan, State
from fairwolfe.smoothing import Randomized, default_smoothing
from fairwolfe.smoothing.prices import Prices, typical_slope

_MANY, _MEASURED = 100_000, 16  # above so many items live numbers are of one decision in 16
_OPEN, _ISSUED = 0, 1  # places in State.open
_LANE = 1  # of draws by number for directions; the base has another
_OPEN_FIELDS = ("open", "weights", "sums", "phi", "groups")
_REWARD_FIELDS = ("totals", "earned", "clocks", "running", "weights", "sums", "answered")
_RANKING_FIELDS = ("exposed", "shown", "slots", "features", "retired")


class BoundPolicy(NamedTuple):
    """A policy bound to a kind of decision.

    `read` is f of the averages of items, rewards, and groups that follow items; `objective` is f of
    a reward vector, where a group has the sum of its items.
    """

    kind: Kind
    groups: Groups | None
    objective: Concave
    read: Concave
    smoothing: Any
    base: Any
    prices: Prices | None
    forget: float  # of the averages, at each reward


def bind(policy: Any, kind: Kind) -> BoundPolicy:
    """Everything bound to a kind of decision: its problem, and the items that it has left."""
    named = policy if policy.named_alone else policy.base
    require_kind(policy.decides, kind.problem, type(named).__name__)
    problem = kind.seen
    groups = kind.groups(grouped_by(policy.followed))
    f = policy.followed if groups is None else labelled(policy.followed, groups.labels)
    objective = read = f.bind(problem)
    if groups is not None:
        read = groups.read(objective, problem.n_objectives)
        if grouped_by(read):
            raise InvalidInput(
                f"{policy.followed!r:.200} has ByGroup(by=) inside of another map; use it in "
                "TwoSided, sums and multiples"
            )
    rest = objective.relaxed()  # constraints have their own widths
    smoothing = policy.smoothing or default_smoothing(rest, problem.n_objectives)
    smoothing = smoothing.bind(problem, rest)
    if groups is not None and isinstance(smoothing, Randomized):
        raise InvalidInput(
            f"{smoothing} moves the averages of items, and those of the groups by "
            f"{', '.join(map(repr, groups.labels))} are kept by themselves; use Moreau(), or "
            "Identity() for a function without a prox"
        )
    base = policy.base
    if hasattr(base, "tuned"):
        base = base.tuned(typical_slope(objective, kind))
    if policy.iterate == "expected" and not hasattr(base, "exposure"):
        raise InvalidInput(
            f"iterate='expected' is of exposures, and {base!r} has none; use 'observed'"
        )
    kind = kind.fitted(base)
    prices = Prices.of(objective, smoothing, kind, groups)
    if prices is not None and prices.mixes_stages and not policy.anticipate:
        raise InvalidInput(
            f"a row of {objective} that has a price uses rewards of several stages, and its "
            "average is of the same decisions only where open ones count: use anticipate=True"
        )
    forget = 0.0 if policy.memory is None else 1.0 - 0.5 ** (1.0 / policy.memory)
    return BoundPolicy(kind, groups, objective, read, smoothing, base, prices, forget)


def _fresh(prices: Prices | None) -> tuple[Vector, Vector]:
    """Prices and factors of their widths before the first reward."""
    return (np.empty(0), np.empty(0)) if prices is None else prices.fresh()


class Repairable(ABC):
    """The optional methods of an author's object, of a base or a policy, that keep a regression."""

    @property
    @abstractmethod
    def learner(self) -> tuple[Any, Any]:
        """The object and its state."""

    @property
    def can_repair(self) -> bool:
        """Whether the object keeps anything that can be recomputed."""
        return hasattr(self.learner[0], "repair")

    def repair(self) -> float:
        """Recompute what is kept of the regression, in place; how large its error was."""
        of, state = self.learner
        if not hasattr(of, "repair"):
            raise InvalidInput(f"{of!r} keeps nothing that could be recomputed")
        return float(of.repair(state))

    def drift(self) -> float:
        """The error of the kept inverse when it was last recomputed; 0 where none is kept."""
        of, state = self.learner
        return float(of.drift(state)) if hasattr(of, "drift") else 0.0

    def learnt(self) -> Learnt:
        """Estimates of each reward."""
        of, state = self.learner
        if not hasattr(of, "learnt"):
            raise InvalidInput(f"{of!r:.80} keeps no estimate of each reward")
        learnt: Learnt = of.learnt(state)
        return learnt


class Running(Repairable):
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

    def __init__(
        self, policy: Any, bound: BoundPolicy, rule: Any, state: State | None = None
    ) -> None:
        self.policy, self.rule = policy, rule
        self.kind, self.groups, self.objective, self.read, self.smoothing = bound[:5]
        self.base, self.prices, self.forget = bound[5:]
        self.state = self._fresh() if state is None else state
        if state is None and isinstance(self.kind, RankingKind):
            clocks = self.kind.catalogue.attributes.clocks()
            self.state = self.state._replace(groups=clocks)
        self.windows = Windows(self.state.live, self._measured)
        self.certificates = Certificates(self)
        self._start()

    @abstractmethod
    def _fresh(self) -> State:
        """The state before the first reward."""

    @abstractmethod
    def _start(self) -> None:
        """Make the plan and the engine."""

    def fresh_prices(self) -> tuple[Vector, Vector]:
        """Prices of the hard constraints, and factors of their widths, before the first reward;
        empty where there are none.
        """
        return _fresh(self.prices)

    def _fresh_base(self) -> Any:
        """The state of the base before the first reward, with the items that the kind has."""
        items = self.kind.catalogue if isinstance(self.kind, RankingKind) else None
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
        """The number of answers averaged in: of the stage that has the fewest."""
        return int(self.state.t.min())

    @property
    def answered(self) -> tuple[int, ...]:
        """The number of answers averaged in, by stage."""
        return tuple(map(int, self.state.t.tolist()))

    @property
    def open(self) -> int:
        """The number of decisions that are counted as open: in the stage that has the most."""
        return max(self.open_stages)

    @property
    def open_stages(self) -> tuple[int, ...]:
        """The number of decisions that are counted as open, by stage."""
        return tuple(map(int, self.state.open[_OPEN::3].tolist()))

    @property
    def issued(self) -> int:
        """The number of decisions that were ever counted as open."""
        return int(self.state.open.item(_ISSUED))

    @property
    def iterate(self) -> Vector:
        """z, where f is read: the averages that f sees, and those of the groups of items."""
        return self._averages(self.state.totals, earned=False)

    @property
    def earned(self) -> Vector:
        """The same of the observed rewards."""
        return self._averages(self.state.earned, earned=True)

    @property
    def average(self) -> Vector:
        """The average observed reward, as f sees it. Where there are several stages, a reward is 0
        clipped to its range before the first answer of its stage.
        """
        return self.earned[: self.kind.seen.n_objectives]

    def _averages(self, sums: Vector, earned: bool) -> Vector:
        averages, problem = sums / np.maximum(self.state.clocks, 1.0), self.kind.problem
        if problem.n_stages > 1:
            unknown = np.repeat(self.state.t == 0.0, np.diff(problem.stage_starts))
            averages = np.where(unknown, np.clip(0.0, problem.low, problem.high), averages)
        seen = self.kind.sees(averages)
        return seen if self.groups is None else np.append(seen, self._of_groups(earned))

    def _of_groups(self, earned: bool) -> Vector:
        averages = np.empty(len(self.groups.names) if self.groups else 0)
        self.engine.group_averages(earned, averages)
        return averages

    @property
    def exposures(self) -> dict[str, dict[str, float]]:
        """The exposure of each group by each attribute that f groups items by."""
        found: dict[str, dict[str, float]] = {}
        if self.groups is not None:
            for (by, name), average in zip(self.groups.names, self._of_groups(True), strict=True):
                found.setdefault(by, {})[name] = float(average)
        return found

    @property
    def value(self) -> float:
        """f of the average observed reward, without its hard constraints."""
        return float(self.read.relaxed()._value(self.earned))

    def age(self, t: int) -> int:
        """t for the smoothing: with memory, the number of rewards that the average still holds."""
        return t if self.forget == 0.0 else min(t, int(1.0 / self.forget))

    @property
    def youngest(self) -> float:
        """The number of decisions, answered or open, behind the average that has the fewest."""
        past = (1.0 - self.forget) ** np.array(self.open_stages)
        past = np.repeat(past, np.diff(self.kind.problem.stage_starts))
        return float((past * self.state.clocks + self.state.weights).min())

    def direction(self, rng: Any = None) -> Vector:
        """g = grad f_t(z) for the next decision, as f sees it; rng: for randomised smoothing."""
        n, samples = self.kind.seen.n_objectives, self.plan.samples
        normals, g = np.empty((samples, n + 2)), np.empty(n)
        if samples:
            drawn = rng.generator(0, _LANE) if type(rng) is Numbered else rng
            normals[...] = drawn.standard_normal(normals.shape)
        if not self.engine.compute_direction(normals, g):
            self.raise_failure()
        return g

    def precompute(self) -> None:
        """Compute what the first `live` needs and no feedback changes."""
        self.certificates.precompute(self.windows)

    def live(self, delta: float = 0.05, trusted: bool = True) -> Live:
        """How far from the best reachable value; see `Live` and docs/live.md."""
        if self.policy.objective is None:
            raise InvalidInput(f"{self.policy!r} has no objective, so it keeps no live numbers")
        return self.certificates.report(self.windows, self.earned, self.t, delta, trusted)

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
    def learner(self) -> tuple[Any, Any]:
        return self.base, self.base_state

    def repair(self) -> float:
        if self.kind.problem.n_stages == 1:
            return super().repair()
        self.engine.recompute()
        if self.state.learnt[:, STATUS].any():
            self._raise_useless()
        return self.drift()

    def drift(self) -> float:
        if self.kind.problem.n_stages == 1:
            return super().drift()
        return float(self.state.learnt[:, DRIFT].max())

    def counts(self) -> dict[str, int]:
        """What the policy counts itself."""
        return {}

    # --- rows ---------------------------------------------------------------------------------

    def decide(
        self,
        given: Any,
        rng: Any,
        number: int = -1,
        n: int = 1,
        advance: bool | None = None,
        every: int = 1,
        explain: bool = True,
        starts: IntVector | None = None,
    ) -> Any:
        """Propose rows for contexts that were read, n of them; only reads the state.

        rng: a generator, or `Numbered` draws; number: of the first decision; advance: whether each
        counts as open for the next, None where open decisions count; every: how many decisions
        share a direction; starts: where the candidates of each ranking begin in `given.places`.
        """
        rows, features, more = self._inputs(given, n, explain, starts)
        drawn = self._no_draws if n == 1 else None
        draws, normals = self.draws(rng, n) if drawn is None else drawn
        ahead = self.plan.anticipate if advance is None else advance
        # True: propose; `open_rows` makes them decisions.
        done = self.engine.decide(rows, features, draws, normals, number, *more, ahead, True, every)
        if done < n:
            self.raise_failure(useless=done < 0)
        if isinstance(given, Arms) and given.places is not None:
            places = np.atleast_2d(given.places)
            rows.head["arm"] = places[np.arange(n), rows.head["arm"]]
        if self.plan.samples:  # given a random direction, the rule's is not that of the action
            rows.head["probability"] = np.nan
        return rows

    def _inputs(
        self, given: Any, n: int, explain: bool, starts: IntVector | None
    ) -> tuple[Any, Any, tuple[Any, ...]]:
        """Empty rows for n decisions, and the arrays that the engine reads of their contexts."""
        raise NotImplementedError

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
        if tolerance > 0.0 and stack.rows > 1 and not self.smoothing.averaged:
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

    def withdraw(self, rows: Any, stages: Sequence[int] | None = None) -> None:
        """Decisions that get no answer are not open any more; stages: those that get none, None for
        all.
        """
        if stages is None or self.kind.problem.n_stages == 1:
            self.engine.withdraw(rows)
        else:
            self.engine.withdraw(rows, sum(1 << stage for stage in stages))

    def learn(self, rows: Any, observation: Any) -> None:
        """Learn what rows earned, in their order; where one raises, those before it are learnt.

        observation: of a stage, or of all stages, one after the other.
        """
        stage = 0
        if self.kind.problem.n_stages > 1:
            if not isinstance(observation, StageAnswer):
                self._learn_stages(rows, observation)
                return
            stage, observation = observation.stage, observation.observation
        done, n = 0, len(rows.head)
        while done < n:
            code = self.engine.learn(rows, observation, done, stage)
            if code < 0:
                self._raise_rejected(-1 - code)
            done = code // 2
            if code % 2:  # due
                self.add_certificate()

    def _learn_stages(self, rows: Any, observation: Any) -> None:
        """Learn all stages of rows, one after the other."""
        for i, action in enumerate(rows.actions):
            table = self.kind.table(row_of(observation, i))
            for part in self.kind.stages(action, table).learnt:
                self.learn(rows.part(slice(i, i + 1)), part)

    def _raise_rejected(self, code: int) -> NoReturn:
        """Why the engine did not learn a row."""
        self._raise_useless()

    def _raise_useless(self) -> NoReturn:
        """Which regression rejected something, or cannot be used."""
        raise_useless(self.state.learnt[self.state.learnt[:, STATUS].argmax()])

    @abstractmethod
    def study(self, rows: Any, observation: Any) -> None:
        """The base alone learns from decisions that others made: nothing is averaged."""

    def add_certificate(self) -> None:
        """Add a certificate for the next window of live numbers."""
        state, age = self.state, self.age(self.t)
        self.certificates.add(self.windows, self.iterate, (state.prices, state.factors), age)

    # --- what compiled and plain plans share --------------------------------------------------

    @property
    def _measured(self) -> int:
        """One in so many decisions is measured for live numbers."""
        return 1

    @cached_property
    def directed(self) -> bool:
        """Whether the base uses the direction at all."""
        return bool(getattr(self.base, "needs_direction", True))

    def _plan(self, forecasts: bool, learns_direction: bool, **own: Any) -> Plan:
        kind, state, smoothing = self.kind, self.state, self.smoothing
        problem, n = kind.problem, kind.seen.n_objectives
        tree = None
        if self.directed:
            made = getattr(smoothing, "tree", None)  # of directions that are not those of envelopes
            tree = made(self.read, self._n_read) if made else self.read.tree(self._n_read)
            if self.prices:
                tree = self.prices.tree(state.prices, state.factors)
        sampled = isinstance(smoothing, Randomized)
        low, high = self._ranges()
        start = None if self.policy.start is None else np.array(self.policy.start)
        if start is not None and start.shape != (problem.n_objectives,):
            raise InvalidInput(
                f"start has the shape {start.shape}; the problem has {problem.n_objectives} "
                "coordinates of a reward: give a number for each"
            )
        return Plan(
            tree=tree,
            coordinates=kind.coordinates,
            low=low,
            high=high,
            forget=self.forget,
            width=1.0 if self.prices else smoothing.step(self.objective, n, 0),
            fixed=getattr(smoothing, "horizon", None) is not None and not self.prices,
            samples=smoothing.n_samples if sampled else 0,
            anticipate=self.policy.anticipate and self.directed and forecasts,
            keeps_direction=learns_direction or smoothing.averaged,
            measured=self._measured,
            start=start,
            starts=np.array(problem.stage_starts, np.int64),
            price_stages=self.prices.stages if self.prices else None,
            groups=self.groups,
            **own,
        )

    def _ranges(self) -> tuple[Vector, Vector]:
        """The least and the largest value of each coordinate of a reward."""
        return self.kind.problem.low, self.kind.problem.high

    @property
    def _n_read(self) -> int:
        """How many averages f is read at."""
        return self.kind.seen.n_objectives + (len(self.groups.names) if self.groups else 0)

    def _compiled_plan(self, learns_direction: bool, **own: Any) -> Plan:
        rule = self.rule
        shared = {"rule": rule.name, "rule_params": rule.params, "uniforms": rule.uniforms}
        return self._plan(True, learns_direction, certifies=True, limit=rule.limit, **shared, **own)

    @cached_property
    def _no_draws(self) -> tuple[Matrix, Cube] | None:
        """What a decision of a rule that draws nothing draws."""
        if self.plan.samples or self.plan.uniforms:
            return None
        return np.empty((1, 0)), np.empty((1, 0, self.kind.seen.n_objectives + 2))

    def draws(self, rng: Any, n: int) -> tuple[Matrix, Cube]:
        """What n decisions draw: for the rule, and for directions."""
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

    def raise_failure(self, useless: bool = False) -> NoReturn:
        """Why the state cannot decide; useless: its scores, not the direction, are the reason."""
        if useless:
            self._raise_useless()
        self.read.relaxed().gradient(self.iterate)  # raises where f has no gradient there
        raise NumericalFailure(f"the direction of {self.objective} is not a number")

    # --- items and objectives -----------------------------------------------------------------

    def with_objective(self, policy: Any) -> Self:
        """The same state for a policy with another f; what was certified of the old one, and the
        prices of its constraints, start again.
        """
        if self.kind.seen is not self.kind.problem or np.ptp(self.state.clocks):
            require_no_labels(policy.followed)
        bound = bind(policy, self.kind)
        prices, factors = _fresh(bound.prices)
        live = self.windows.restarted(self.kind.seen.n_objectives)
        state = self.state._replace(prices=prices, factors=factors, live=live)
        running: Self = policy.running(self.kind, state)
        return running

    def keep_items(self, features: Any) -> Self:
        """Keep the features of the items, so that contexts need not bring them."""
        kind = self._items()
        rows = item_features(features, kind.problem, kind.catalogue.total)
        return self._rebound(self.policy, self.base.with_features(self.base_state, rows))

    def add_items(
        self,
        policy: Any,
        features: Matrix,
        instead: IntVector = NONE,
        attributes: Sequence[Mapping[str, str]] = (),
    ) -> Self:
        """With more items, the last ids, `instead` of those that are retired with it; features
        (new, q); attributes: of each, by name.
        """
        catalogue = self._items().catalogue
        old, count = catalogue.total, len(features)
        require_no_labels(policy.followed)
        base = self.base.with_items(self.base_state, features)
        if instead.size:
            base = self.base.without_items(base, instead)

        def grown(array: Any) -> Any:
            return np.insert(array, [old] * count, 0.0, axis=-1)

        longer = {name: grown(getattr(self.state, name)) for name in _REWARD_FIELDS}
        known = catalogue.attributes.extended(old, attributes or [{}] * count)
        return self._rebound(policy, base, longer, renew=True, attributes=known)

    def retire_items(self, policy: Any, ids: IntVector) -> Self:
        """These items are not shown any more, nor seen by f."""
        self._require_left(policy, ids)
        return self._rebound(policy, self.base.without_items(self.base_state, ids), renew=True)

    def _require_left(self, policy: Any, ids: IntVector) -> None:
        """Raise where items cannot be retired."""
        kind = self._items()
        require_no_labels(policy.followed)
        find(kind.catalogue, ids, "item")
        left = kind.catalogue.ids.size - np.unique(ids).size
        if left < kind.n_slots:
            raise InvalidInput(
                f"{ids.size} items are to be retired and {left} would be left for {kind.n_slots} "
                "slots; add items first"
            )

    def settle(self) -> None:
        """After items have come or gone, and before anything else: nothing to do."""

    def _rebound(
        self,
        policy: Any,
        base: Any,
        arrays: dict[str, Any] | None = None,
        renew: bool = False,
        attributes: Attributes | None = None,
    ) -> Self:
        """The same policy with the items that a state of its base has."""
        old = self._items().catalogue
        held = self.base.catalogue(base)
        new = held._replace(attributes=old.attributes if attributes is None else attributes)
        kind = self._items().holding(new)
        changed = {**(arrays or {}), **self._carried(bind(policy, kind), new)}
        if renew:
            changed["live"] = self.windows.restarted(kind.seen.n_objectives)
        state = self._with_base(self.state._replace(**changed), base)
        running: Self = policy.running(kind, state)
        return running

    def _carried(self, bound: BoundPolicy, new: Catalogue) -> dict[str, Any]:
        """What a state with other items has of groups and of prices."""
        old = self._items().catalogue
        both = (old.attributes, old.ids), (new.attributes, new.ids)
        groups, gaps = moved(self.state.groups, self.state.gaps, *both)
        prices, factors = _fresh(None)
        if bound.prices is not None:
            prices, factors = bound.prices.carried(
                self.state.prices, self.state.factors, self.prices
            )
        return {"groups": groups, "gaps": gaps, "prices": prices, "factors": factors}

    @staticmethod
    def _with_base(state: State, base: Any) -> State:
        """A state with another state of the base."""
        return state._replace(base=base)

    def _items(self) -> RankingKind:
        if not isinstance(self.kind, RankingKind):
            raise InvalidInput("the problem has arms; items are for Problem.ranking(...)")
        if not hasattr(self.base, "with_items"):
            raise InvalidInput(
                f"{self.base!r} has a fixed set of items; use one such as LinUCBRank()"
            )
        return self.kind


class ArmsRunning(Running):
    """A policy for arms over a linear regression, compiled."""

    def _fresh(self) -> State:
        problem, of = self.kind.problem, self.rule.regression
        n, (blocks, d) = problem.n_objectives, (problem.n_arms or 1, problem.dimension)
        state = State.fresh(n, n, blocks, d, self.fresh_prices(), problem.n_stages)
        return state.with_design(of)

    def _start(self) -> None:
        problem, rule = self.kind.problem, self.rule
        self.plan = self._compiled_plan(
            rule.extended,
            bound_params=np.concatenate(
                [problem.low, problem.high, self.certificates.bound_params]
            ),
            learn_params=rule.regression.params,
            certificate=rule.certificate,
            learn=rule.learn,
            extended=rule.extended,
            ascent=rule.ascent,
            own_rule=rule.own,
        )
        self.engine = ArmsEngine(self.plan, self.state)
        self._shape = problem.dimension, problem.n_objectives if self.plan.keeps_direction else 0

    @property
    def base_state(self) -> BanditState:
        problem, oracle = self.kind.problem, self.state.design(self.rule.regression.params)
        return BanditState(problem, self.base.rule_params(problem), oracle)

    @property
    def callbacks(self) -> int:
        """How often Python functions of the user were called by compiled code."""
        callers = (self.plan.tree, self.plan.ascent[0], self.plan.own_rule)
        return sum(caller.callbacks for caller in callers if caller is not None)

    def raise_failure(self, useless: bool = False) -> NoReturn:
        raised = None if self.plan.own_rule is None else self.plan.own_rule.failure()
        if raised is not None:
            raise raised
        super().raise_failure(useless)

    def _inputs(
        self, given: Arms, n: int, explain: bool, starts: IntVector | None
    ) -> tuple[ArmRows, Any, tuple[Any, ...]]:
        features, places = given.features, given.places
        if features.ndim == 2:
            features = features[None]
            places = None if places is None else places[None]
        rows = ArmRows.empty(n, *self._shape)
        return rows, features, (given.n_arms, places) if given.per_arm else (0, None)

    def study(self, rows: ArmRows, observation: Any) -> None:
        rewards = read_table(rows, observation, self.kind, self.limit)
        if self.engine.study(rows, rewards) < len(rows.head):
            self._raise_useless()


class RankingsRunning(Running):
    """A policy for rankings over a ridge regression, compiled."""

    kind: RankingKind
    _grown: tuple[Any, ...] | None = None  # what `settle` has to write

    def __init__(
        self,
        policy: Any,
        bound: BoundPolicy,
        rule: Any,
        state: State | None = None,
        before: RankingsRunning | None = None,
        room: Room | None = None,
    ) -> None:
        """before: what this one replaces after items have come or gone; room: the memory of the
        arrays of both.
        """
        self._before, self._room = before, Room() if room is None else room
        super().__init__(policy, bound, rule, state)
        self._before = None

    def _fresh(self) -> State:
        kind, problem = self.kind, self.kind.problem
        n, n_seen, base = problem.n_objectives, kind.seen.n_objectives, self._fresh_base()
        state = State.fresh(n, n_seen, 1, problem.dimension, self.fresh_prices(), problem.n_stages)
        return self._with_base(state.with_design(base.oracle), base)

    @staticmethod
    def _with_base(state: State, base: Any) -> State:
        return state._replace(**{name: getattr(base, name) for name in _RANKING_FIELDS})

    def _start(self) -> None:
        problem, rule, state = self.kind.problem, self.rule, self.state
        catalogue = self.kind.catalogue
        self.plan = self._compiled_plan(
            False,
            bound_params=self.certificates.bound_params,
            learn_params=np.array([float(self.base.ridge)]),
            sizes=sizes(problem),
            slot_ranges=np.ascontiguousarray(problem.slot_ranges),
            position_weights=rule.position_weights,
            exposure=self.base.exposure,
            by_chance=self.policy.iterate == "expected",
            owed=rule.owed,
            longest=-1.0 if catalogue.largest is None else catalogue.largest,
            left=catalogue.left() if self.kind.coordinates is not None else None,
        )
        before = self._before
        self.engine = RankingsEngine(self.plan, state, None if before is None else before.engine)
        n = problem.n_objectives if self.plan.keeps_direction else 0
        self._shape = problem.n_slots or 0, self.plan.sizes[0], n

    @property
    def base_state(self) -> Any:
        state, oracle = self.state, self.state.design(self.plan.learn_params)
        counts = (getattr(state, name) for name in _RANKING_FIELDS)
        return self.rule.state(self.kind.problem, self.rule.params, oracle, *counts)

    @property
    def _measured(self) -> int:
        return _MEASURED if self.kind.seen.n_objectives > _MANY else 1

    def _ranges(self) -> tuple[Vector, Vector]:
        before, n = self._before, self.kind.problem.n_objectives
        if before is None:
            return super()._ranges()
        low, high = before.plan.low, before.plan.high
        return self._room.resized("low", low, n), self._room.resized("high", high, n)

    # --- items --------------------------------------------------------------------------------

    def add_items(
        self,
        policy: Any,
        features: Matrix,
        instead: IntVector = NONE,
        attributes: Sequence[Mapping[str, str]] = (),
    ) -> Self:
        require_no_labels(policy.followed)
        old, count, room = self._items().catalogue, len(features), self._room.copy()
        total = old.total + count
        base = self.base.with_items(self.base_state, features, room.appended)
        largest = None
        if old.largest is not None and not instead.size:
            largest = max(old.largest, largest_square_norm(features))
        columns = None
        if old.columns is not None:
            columns = room.appended("columns", old.columns, features.T)
        new = old._replace(
            ids=room.appended("ids", old.ids, np.arange(old.total, total)),
            features=base.features,
            total=total,
            attributes=old.attributes.extended(old.total, attributes or [{}] * count),
            columns=columns,
            largest=largest,
        )
        if instead.size:
            new = _without(new, instead)
        return self._moved(policy, base, new, room, instead)

    def retire_items(self, policy: Any, ids: IntVector) -> Self:
        self._require_left(policy, ids)
        catalogue = self.kind.catalogue
        return self._moved(
            policy, self.base_state, _without(catalogue, ids), self._room.copy(), ids
        )

    def _moved(
        self, policy: Any, base: Any, catalogue: Catalogue, room: Room, retired: IntVector
    ) -> Self:
        """The policy with other items. It shares memory with this one, which is useless after
        `settle` of the other; until then nothing of this one has changed.
        """
        old, kind = self.kind.catalogue, self.kind.holding(catalogue)
        bound = bind(policy, kind)
        n, n_seen = kind.problem.n_objectives, kind.seen.n_objectives
        changed = self._carried(bound, catalogue)
        for name in _REWARD_FIELDS:
            changed[name] = room.resized(name, getattr(self.state, name), n)
        changed["live"] = room.resized("live", self.state.live, Windows.size(n_seen))
        state = self._with_base(self.state._replace(**changed), base)
        rule = bound.base.rule(bound.kind.problem)
        running = type(self)(policy, bound, rule, state, self, room)
        arrays = [getattr(self.state, name) for name in _REWARD_FIELDS]
        arrays += [self.plan.low, self.plan.high]
        tails = [array[..., old.total :].copy() for array in arrays]
        running._grown = (old.total, tails, retired, self.windows.now.numbers[SERIAL] + 1.0)
        return running

    def settle(self) -> None:
        """Write what is new, after items have come or gone, into memory that the policy before
        used; nothing may interrupt it. The rewards of users follow those of the items.
        """
        if self._grown is None:
            return
        old, tails, retired, serial = self._grown
        total, state = self.kind.catalogue.total, self.state
        arrays = [getattr(state, name) for name in _REWARD_FIELDS]
        new = [0.0] * len(arrays) + [0.0, 1.0]
        arrays += [self.plan.low, self.plan.high]
        for array, value, tail in zip(arrays, new, tails, strict=True):
            array[..., old:total] = value
            array[..., total:] = tail
        state.retired[retired] = 1.0
        Windows.begin(state.live, serial)
        self._grown = None

    @property
    def limit(self) -> float:
        return math.sqrt(self.rule.limit)

    @property
    def callbacks(self) -> int:
        """How often Python functions of the user were called by compiled code."""
        calls: int = self.plan.tree.callbacks
        return calls

    def _inputs(
        self, given: Candidates, n: int, explain: bool, starts: IntVector | None
    ) -> tuple[RankingRows, Any, tuple[Any, ...]]:
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
        starts = starts if picks is not None else None
        return rows, users, (items, picks, starts, pinned if pinned.shape[1] else None)

    def raise_failure(self, useless: bool = False) -> NoReturn:
        finite = np.isfinite(self.state.theta).all() and np.isfinite(self.state.inverse).all()
        super().raise_failure(useless or not finite)

    def _decide_each(
        self, given: list[Any], rng: Any, number: int, advance: Any, explain: bool
    ) -> Any:
        if not all(one.kept for one in given):  # then all rows hold the features of their items
            given = [one._replace(kept=False) for one in given]
        return super()._decide_each(given, rng, number, advance, explain)

    def _raise_rejected(self, code: int) -> NoReturn:
        row, unsound = divmod(code, 2)
        if unsound:
            raise InvalidInput(
                f"the feedback to ranking {row} contradicts itself, or its features are too large "
                f"to learn from: at most a norm of {self.limit:g}"
            )
        super()._raise_rejected(code)

    def study(self, rows: RankingRows, observation: Any) -> None:
        shown = read_table(rows, observation, self.kind, self.limit, self.state.features)
        n, (k, p, n_directions) = len(rows.head), self._shape
        own = RankingRows.empty(n, k, p, n_directions, explained=False)
        own = own._replace(items=rows.items, user=rows.user, x=rows.x)
        own.head["size"] = self.state.totals.size
        own.exposure[:], own.g[:] = 0.0, 0.0  # no part of what is learnt
        if self.engine.study(own, shown.exposed, shown.rewards) < n:
            self._raise_useless()


def _without(catalogue: Catalogue, ids: IntVector) -> Catalogue:
    """A catalogue in which items are not shown any more."""
    gone = find(catalogue, np.unique(ids), "item")
    columns = None
    if catalogue.features.shape[1]:
        columns = np.ascontiguousarray(np.delete(catalogue.left(), gone, axis=1))
    left = np.delete(catalogue.ids, gone)
    return catalogue._replace(ids=left, columns=columns, largest=None)


def require_one_stage(learner: Any, problem: Problem) -> None:
    """InvalidInput where rewards arrive in stages, and the learner takes whole answers."""
    if problem.n_stages > 1:
        parts = " | ".join(", ".join(names) for names in problem.stage_names)
        others = "FrankWolfe with LinUCB(), SquareCB(), EpsilonGreedy(), Thompson() or Uniform()"
        if problem.kind == "ranking":
            others = "FWLinUCBRank(objective)"
        raise InvalidInput(
            f"the rewards arrive in {problem.n_stages} stages ({parts}), and {learner!r:.80} "
            f"learns whole answers; leave out stages=, or use {others}"
        )


def runs_itself(policy: Any) -> bool:
    """Whether `policy.running(kind, state)` does what its `act` and `update` do: not where a
    subclass has overridden one of these.
    """
    return newest(policy, "running", "act") and newest(policy, "running", "update")


class PolicyState(NamedTuple):
    """The state of the policy, and what the agent counts itself."""

    policy: Any
    earned: Vector  # (n,) sums of rewards
    counts: Vector  # (3,) rewards, open decisions, decisions ever open

    def restored(self) -> None:
        """After arrays have been read from a file: raise for impossible counts."""
        require_counts("counts", self.counts)
        right = self.counts[1] <= self.counts[2]
        require("counts", self.counts[1:2], right, "no more decisions are open than were made")


class PolicyRunning(Repairable):
    """Any object with the contract Policy, with the methods of `Running`."""

    atomic = False

    def __init__(self, policy: Any, kind: Kind, state: PolicyState | None = None) -> None:
        self.policy = policy
        problem = kind.problem
        require_one_stage(policy, problem)
        if state is None:
            earned, counts = np.zeros(problem.n_objectives), np.zeros(3)
            state = PolicyState(policy.init(problem), earned, counts)
        self.state = state
        self.reads = hasattr(policy, "kind")
        self.kind: Kind = policy.kind(state.policy) if self.reads else kind

    @staticmethod
    def of(policy: Any, problem: Problem, attributes: Sequence[Mapping[str, str]] = ()) -> Any:
        """The policy in a problem: it runs itself, or in a `PolicyRunning`. attributes: of each
        item, where f is of groups of these.
        """
        kind = kind_of(problem)
        if not runs_itself(policy):
            return PolicyRunning(policy, kind)
        if isinstance(kind, RankingKind) and len(attributes) == problem.n_items:
            known = Attributes().extended(0, attributes)
            kind = kind.holding(kind.catalogue._replace(attributes=known))
            return policy.running(kind)
        return policy.init(problem)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(self.policy, self.kind, self.copied())

    def copied(self) -> PolicyState:
        """The state in other memory."""
        policy, earned, counts = self.state
        return PolicyState(deepcopy(policy), earned.copy(), counts.copy())

    def restore(self, state: PolicyState) -> None:
        """Become a copy of the state."""
        self.state = state

    def opening(self, work: Callable[..., None], *given: Any) -> None:
        """Do work that opens or withdraws decisions, whole or not at all."""
        uninterrupted(lambda: work(*given))

    def precompute(self) -> None:
        """Nothing is needed: there are no live numbers."""

    @property
    def t(self) -> int:
        """The number of rewards learnt from."""
        return int(self.state.counts.item(0))

    @property
    def answered(self) -> tuple[int, ...]:
        """The same, by stage: there is one."""
        return (self.t,)

    @property
    def open(self) -> int:
        """The number of decisions that are counted as open."""
        return int(self.state.counts.item(1))

    @property
    def open_stages(self) -> tuple[int, ...]:
        """The same, by stage: there is one."""
        return (self.open,)

    @property
    def issued(self) -> int:
        """The number of decisions that were ever counted as open."""
        return int(self.state.counts.item(2))

    @property
    def average(self) -> Vector:
        """The average observed reward."""
        return self.kind.sees(self.state.earned / max(self.t, 1))

    @property
    def limit(self) -> float:
        """The largest norm of a row of features that can be learnt from."""
        if hasattr(self.policy, "row_limit"):
            return float(self.policy.row_limit(self.state.policy))
        return row_limit(self.kind.problem, 0.0)

    @property
    def learner(self) -> tuple[Any, Any]:
        return self.policy, self.state.policy

    def counts(self) -> dict[str, int]:
        """What the policy counts itself."""
        counts = getattr(self.policy, "counts", None)
        return {} if counts is None else dict(counts(self.state.policy))

    def live(self, delta: float = 0.05, trusted: bool = True) -> Any:
        """Raise: only `FrankWolfe` has live numbers."""
        raise InvalidInput(f"{self.policy!r} keeps no live numbers; FrankWolfe does")

    def constraints(self, delta: float = 0.05, trusted: bool = True) -> tuple[Any, ...]:
        """None."""
        return ()

    # --- rows ---------------------------------------------------------------------------------

    def decide(self, given: Any, rng: Any, number: int = -1, **how: Any) -> Any:
        """The row of a decision; see `Running.decide`."""
        drawn = rng.generator() if type(rng) is Numbered else rng
        decision = self.policy.act(self.state.policy, given, drawn)
        if not isinstance(decision, Decision):
            raise InvalidInput(
                f"{self.policy!r} returned {decision!r:.80} from act; return fw.Decision('', t, "
                "action, probability, evidence)"
            )
        if self.reads and not self.kind.allows(given, decision.action):
            raise InvalidInput(
                f"{self.policy!r:.80} returned {short(decision, 80)} from act; return "
                f"fw.Decision('', t, action, probability, evidence): {self.kind.allowed}"
            )
        rows: Any = decision.batch.rows
        head = rows.head
        head["number"], head["t"] = number, self.t
        if self.reads and hasattr(rows, "stored"):
            action, evidence = rows.stored[0]
            whole = self.kind.numbered(given, action)
            rows.stored[0] = whole, evidence
            head["arm"] = whole if isinstance(whole, int) else head["arm"]
        return rows

    def decide_stack(self, stack: Stack, rng: Any, number: int = -1, **how: Any) -> Any:
        """Decisions for contexts that were read together, all from the current state."""
        rows = []
        for i in range(stack.rows):
            drawn = Numbered(rng.key, rng.number + i) if type(rng) is Numbered else rng
            given = self.kind.single(stack, i) if self.reads else stack.given[i]
            at = number + i if number >= 0 else number
            rows.append(self.decide(given, drawn, at))
        whole = merge(rows)
        if len(whole) > 1:
            raise InvalidInput(
                f"{self.policy!r:.80} returned decisions of different forms; ask it for one "
                "context at a time"
            )
        return whole[0]

    def open_rows(self, rows: Any) -> None:
        """Count decisions as open, in their order."""
        self._call("expect", rows)
        self.state.counts[1:] += len(rows.head)

    def withdraw(self, rows: Any, stages: Any = None) -> None:
        """Decisions that get no answer are not open any more."""
        self._call("withdraw", rows)
        self._closed(len(rows.head))

    def _call(self, method: str, rows: Any) -> None:
        """Call an optional method of the policy for each decision."""
        if hasattr(self.policy, method):
            for i in range(len(rows.head)):
                change = getattr(self.policy, method)
                inner = change(self.state.policy, self._decision(rows, i))
                self.state = self.state._replace(policy=inner)

    def _closed(self, n: int) -> None:
        self.state.counts[1] = max(self.state.counts[1] - n, 0.0)

    def learn(self, rows: Any, observation: Any) -> None:
        """Learn what rows earned, in their order."""
        for i in range(len(rows.head)):
            decision = self._decision(rows, i)
            answer = self.kind.observe(decision.action, row_of(observation, i))
            given = answer if self.reads else answer.observation
            inner = self.policy.update(self.state.policy, decision, given)
            self.state = self.state._replace(policy=inner)
            np.add(self.state.earned, answer.reward, out=self.state.earned)
            self.state.counts[0] += 1.0
            self._closed(1)

    def study(self, rows: Any, observation: Any) -> None:
        """Raise: the policy learns from its own decisions."""
        raise InvalidInput(f"{self.policy!r:.80} cannot learn from decisions of others")

    def _decision(self, rows: Any, i: int) -> Decision:
        return Decision.of(Batch(rows.part(slice(i, i + 1))), 0)

    # --- changes ------------------------------------------------------------------------------

    def with_objective(self, policy: Any) -> Self:
        """The same state for a policy with another f."""
        inner = self.state.policy
        if hasattr(policy, "retargeted"):
            inner = policy.retargeted(inner, self.kind.problem)
        return type(self)(policy, self.kind, self.state._replace(policy=inner))

    def keep_items(self, *given: Any) -> NoReturn:
        """Raise: the policy has no items."""
        raise InvalidInput(
            f"{self.policy!r} has no items; use a policy such as FWLinUCBRank(objective)"
        )

    add_items = retire_items = keep_items
