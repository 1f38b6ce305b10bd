"""`Log`: logged decisions, and what other policies would have earned in their place."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import NormalDist
from typing import Any

import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.bandits.base import LinearBandit
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem, real_number, whole_number
from fairwolfe.core.rows import HEAD, ArmRows, RankingRows
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave, GiniEquality, Linear, TwoSided
from fairwolfe.offpolicy.checking import Check, check, probability_problems
from fairwolfe.offpolicy.decisions import LoggedArms, LoggedRankings
from fairwolfe.offpolicy.estimate import (
    Estimate,
    EstimatedDifference,
    EstimatedFrontier,
    Point,
    described,
    levels,
)
from fairwolfe.offpolicy.estimators import ESTIMATORS, Side, estimated
from fairwolfe.offpolicy.folder import Folder, is_folder
from fairwolfe.offpolicy.formats import read_file, read_obp
from fairwolfe.offpolicy.interval import Sampled, difference, interval
from fairwolfe.offpolicy.learning import (
    Crossed,
    Mixture,
    RankingMixture,
    learn_arms,
    learn_rankings,
)
from fairwolfe.offpolicy.models import cross_fitted
from fairwolfe.offpolicy.ranking_estimators import RANKING_ESTIMATORS
from fairwolfe.offpolicy.reading import read_rows, read_table
from fairwolfe.offpolicy.relearning import TAIL, relearnt
from fairwolfe.offpolicy.sums import Memory, Source, Tick, Weights, facts_of
from fairwolfe.oracles import Ridge
from fairwolfe.reduction.frank_wolfe import FrankWolfe


class Log:
    """Decisions that were made with known probabilities, with their contexts and rewards.

    Make it with `Log.of`. Then `check` reports whether the data can be used, `evaluate` what
    another policy would have earned, `compare` which of two is better, `learn` finds a policy for
    an f, and `tradeoff` one for each weight.

    >>> import fairwolfe as fw
    >>> rng = np.random.default_rng(0)
    >>> actions = rng.integers(0, 2, 4000)
    >>> clicks = rng.random(4000) < np.where(actions == 1, 0.6, 0.2)
    >>> log = Log.of({"action": actions, "probability": np.full(4000, 0.5),
    ...               "reward.clicks": clicks.astype(float)})
    >>> estimate = log.evaluate(1, fw.objectives.Linear({"clicks": 1.0}), "snips")
    >>> estimate.low < 0.6 < estimate.high
    True
    """

    def __init__(self, source: Memory | Folder) -> None:
        self._source = source

    @classmethod
    def of(
        cls,
        source: Any,
        problem: Problem | None = None,
        *,
        share: float | None = None,
        position: int | None = None,
        **more: Any,
    ) -> Log:
        """A log from whatever there is.

        - the path of a log: what `agent.log(path)` or `fairwolfe log export` wrote, a table as CSV
          or Parquet, or Vowpal Wabbit's dsjson (`reward=`: a function of a line that gives several
          rewards; else -cost is the reward)
        - a folder of Parquet files, a pattern such as "logs/*.parquet", or an address such as
          "s3://bucket/logs": rows stay in the files, in the order of their names, and every
          evaluation reads them again; see docs/large-logs.md
        - a table of pandas, polars or Arrow, or a mapping of columns: action, probability,
          reward.<name>, and context or feature.<name>; see docs/offpolicy.md
        - rows (decision, reward, context), or mappings with these columns
        - OBP's bandit_feedback; `position`: which one, where there are several

        `problem` states sizes and the ranges of the rewards; a table without it takes those of its
        numbers. `share` reads a sample of Parquet files into memory: rows are chosen by a hash of
        their id, so that every log has the same ones.
        """
        if problem is not None and not isinstance(problem, Problem):
            raise InvalidInput(f"problem is {problem!r:.80}; give fw.Problem.arms(...) or ranking")
        if isinstance(source, (str, os.PathLike)):
            if share is None and not is_folder(source):
                return cls(Memory(read_file(source, problem, **more)))
            if more:
                raise InvalidInput(f"{', '.join(more)}: only for a path of dsjson")
            folder = Folder.of(os.fspath(source), problem)
            return cls(folder if share is None else Memory(folder.sample(share)))
        if more or share is not None:
            raise InvalidInput(f"{', '.join(more) or 'share'}: only for a path")
        if isinstance(source, Mapping):
            if "n_actions" in source or "pscore" in source:
                return cls(Memory(read_obp(source, problem, position)))
            return cls(Memory(read_table(source, problem)))
        if isinstance(source, Sequence) and not isinstance(source, bytes):
            if not source:
                raise InvalidInput("there are no rows; give at least one decision")
            return cls(Memory(read_rows(source, problem)))
        return cls(Memory(read_table(source, problem)))

    # --- what it holds -------------------------------------------------------------------------

    @cached_property
    def _data(self) -> LoggedArms | LoggedRankings:
        """All decisions in memory."""
        return self._source.data

    def __len__(self) -> int:
        return self._source.about.n

    def __repr__(self) -> str:
        kind, names = self.problem.kind, ", ".join(self.problem.rewards)
        return f"<Log of {len(self):,} decisions ({kind}), rewards {names}>"

    @property
    def problem(self) -> Problem:
        """What was decided, and the rewards with their ranges."""
        return self._source.about.problem

    @property
    def arms(self) -> tuple[str, ...] | None:
        """The names of the arms by number, where actions were logged by name."""
        return self._source.about.arms

    @property
    def average(self) -> Any:
        """What was earned, on average, by whatever logged."""
        with self._source.at_work(1, None, None) as source:
            return self._origin(source)

    def split(self, share: float = 0.5, seed: int = 0) -> tuple[Log, Log]:
        """Two logs at random: what is learnt on one can be evaluated on the other."""
        if not 0.0 < real_number("share", share) < 1.0:
            raise InvalidInput(f"share is {share!r}; give a number between 0 and 1")
        return self._parts(self._half(share, seed))

    def _parts(self, first: Any) -> tuple[Log, Log]:
        one, two = (Log(Memory(self._data.subset(np.flatnonzero(own)))) for own in (first, ~first))
        return one, two

    def _half(self, share: float, seed: int) -> Any:
        """Which decisions are in the first part of a split, (n,)."""
        n = len(self)
        first, count = np.zeros(n, dtype=bool), round(share * n)
        if not 0 < count < n:
            raise InvalidInput(f"{n} decisions cannot be split; log more")
        first[np.random.default_rng(seed).permutation(n)[:count]] = True
        return first

    def check(self, *, jobs: int = 1, on: str | None = None, progress: Tick | None = None) -> Check:
        """Whether the data can be used, in sentences: print it."""
        with self._source.at_work(jobs, on, progress) as source:
            return check(source)

    # --- evaluating ----------------------------------------------------------------------------

    def evaluate(
        self,
        policy: Any,
        f: Concave,
        estimator: str = "dr",
        *,
        model: Any = None,
        folds: int = 2,
        level: float = 0.95,
        stabilised: bool = False,
        jobs: int = 1,
        on: str | None = None,
        progress: Tick | None = None,
    ) -> Estimate:
        """What f of the average reward would have been under another policy, with an interval.

        Parameters
        ----------
        policy: probabilities (decisions, arms); actions (decisions,), whole numbers or names; one
            arm, by number or name; a function of a context that returns probabilities or an arm; an
            Agent as it is now, over
            a bandit that knows its probabilities; `Uniform()` or `Fixed(arm)` of fw.bandits; what
            `learn` returned; "logged" is whatever logged, without weights. For rankings see
            `docs/offpolicy.md`
        estimator: "ips", "snips" or "dr"; for rankings "exposure" (also as "dr"), "position",
            "ips" or "snips"
        model: of the rewards, for dr: an oracle such as Ridge(), a regressor of scikit-learn, or
            predictions (decisions, arms, rewards); it is fitted on other decisions than those it
            predicts, in so many `folds`
        level: of the interval, which holds at kinks of f too
        stabilised: weigh decisions by what the log explored before them, for a policy that changed
            while it logged; rows must be in the order of time
        jobs, on: of a folder, how many processes work on it, or "ray"; the numbers are the same to
            the last bit
        progress: called with the number of rows read since the last call
        """
        bound, sure, estimator = self._bound(f), _level(level), self._named(estimator)
        if stabilised and self.problem.kind == "ranking":
            raise InvalidInput("stabilised is for arms; leave it out for rankings")
        with self._source.at_work(jobs, on, progress) as source:
            side = self._side(source, policy, estimator, model, folds)
            origin = self._origin(source)
            found = estimated(source, (side,), origin, stabilised)
        return self._estimate(bound, *found.parts[0], origin, estimator, sure)

    def compare(
        self,
        first: Any,
        second: Any,
        f: Concave,
        estimator: str = "dr",
        *,
        model: Any = None,
        folds: int = 2,
        level: float = 0.95,
        jobs: int = 1,
        on: str | None = None,
        progress: Tick | None = None,
    ) -> EstimatedDifference:
        """f of the first policy minus f of the second: on the same decisions, so that what they
        share cancels.
        """
        bound, sure, estimator = self._bound(f), _level(level), self._named(estimator)
        with self._source.at_work(jobs, on, progress) as source:
            sides = [self._side(source, one, estimator, model, folds) for one in (first, second)]
            origin = self._origin(source)
            found = estimated(source, (sides[0], sides[1]), origin)
        (one, _), (two, _) = found.parts
        ends = difference(bound.relaxed(), one, two, found.covariance, sure, self._ranges())
        each = [self._estimate(bound, *part, origin, estimator, sure) for part in found.parts]
        warnings = tuple(
            f"of the {name} policy: {text}"
            for name, estimate in zip(("first", "second"), each, strict=True)
            for text in estimate.warnings
        )
        return EstimatedDifference(*ends, each[0], each[1], sure, warnings)

    def _named(self, estimator: str) -> str:
        """Rankings have no "dr": the best estimator for them replaces it."""
        ranks = self.problem.kind == "ranking"
        known = RANKING_ESTIMATORS if ranks else ESTIMATORS
        named = "exposure" if ranks and estimator == "dr" else estimator
        if named not in known:
            which = "for rankings give" if ranks else "give"
            raise InvalidInput(f"the estimator is {estimator!r}; {which} one of {', '.join(known)}")
        return named

    def _bound(self, f: Any) -> Concave:
        if not isinstance(f, Concave):
            raise InvalidInput(f"f is {f!r:.80}; give one of fw.objectives")
        return f.bind(self.problem)

    def _ranges(self) -> tuple[Vector, Vector]:
        """The least and the largest value of each coordinate that f is of."""
        seen = kind_of(self.problem).seen
        return seen.low, seen.high

    def _origin(self, source: Source) -> Vector:
        """The average reward of the log itself."""
        return np.asarray(facts_of(source).totals / len(self))

    def _side(self, source: Source, policy: Any, estimator: str, model: Any, folds: int) -> Side:
        side, ranks = Side(policy, estimator), self.problem.kind == "ranking"
        if side.logged:
            return side
        if ranks and model is not None:
            raise InvalidInput("model is for arms; leave it out for rankings")
        fits = estimator == "dr" and (model is None or isinstance(model, Ridge))
        facts = facts_of(source, whole_number("folds", folds, 2) if fits else 0)
        if estimator not in ("exposure", "position"):
            for text in probability_problems(facts, len(self)):
                raise InvalidInput(text)
        if estimator != "dr":
            return side
        if not facts.has_contexts and not isinstance(model, np.ndarray):
            raise InvalidInput(
                "the log has no contexts, so that rewards cannot be predicted; use "
                "estimator='snips' or 'ips', or give predictions as model="
            )
        return Side(policy, estimator, cross_fitted(model, source, folds))

    def _estimate(
        self,
        bound: Concave,
        part: Sampled,
        weights: Weights,
        logged: Vector,
        estimator: str,
        level: float,
    ) -> Estimate:
        ends = interval(bound.relaxed(), part, level, self._ranges())
        labels = kind_of(self.problem).labels()
        quantile = NormalDist().inv_cdf(0.5 + 0.5 * level)
        return Estimate(
            ends.value,
            ends.low,
            ends.high,
            part.z,
            part.errors(),
            weights.ess,
            ends.bias,
            part.n,
            estimator,
            level,
            labels,
            levels(bound, part, quantile, logged),
            described(bound, ends, part, weights, labels),
        )

    # --- learning ------------------------------------------------------------------------------

    def learn(
        self, f: Concave, *, model: Any = None, seed: int = 0, level: float = 0.95
    ) -> Mixture | RankingMixture:
        """A policy for f, a mixture of a few, with what it would have earned on decisions that it
        has not learnt from: its `estimate`.

        One half of the log (at random) fits the rewards and finds a mixture, by Frank-Wolfe on the
        estimated rewards, hard constraints included; the other half evaluates it, and the halves
        change places. The policy is both mixtures in equal parts. For rankings one half learns and
        the other evaluates.
        """
        return self._learn(f, (), model, seed, level)[0]

    def learnt(self, f: Concave, *, model: Any = None) -> Mixture | RankingMixture:
        """`learn` from all decisions at once, without an estimate: to evaluate on another log."""
        learn: Any = learn_rankings if self.problem.kind == "ranking" else learn_arms
        policy: Mixture | RankingMixture = learn(self._data, self._bound(f), model)
        return policy

    def _learn(
        self, f: Concave, parts: Sequence[Concave], model: Any, seed: int, level: float
    ) -> tuple[Mixture | RankingMixture, list[Estimate]]:
        """`learn`, and estimates of other functions of what the policy would have earned."""
        half = self._half(0.5, seed)
        first, rest = self._parts(half)
        policy: Any = first.learnt(f, model=model)
        options: dict[str, Any] = {"level": level}
        log, judged = rest, policy
        if isinstance(policy, Mixture):
            other: Any = rest.learnt(f, model=model)
            log, judged = self, Crossed(~half, (policy, other))
            feasible = policy.feasible and other.feasible
            policy = Mixture(self.problem, policy.members + other.members, feasible)
            options["model"] = model
        value, *others = (log.evaluate(judged, one, **options) for one in (f, *parts))
        return policy.evaluated(value), others

    def agent(self, f: Concave, base: Any, seed: int = 0, **options: Any) -> Agent:
        """An agent whose regression has learnt the log, as `update_many` of the same decisions
        would have taught it, and whose averages start at zero: what was earned was not its own.

        base: a bandit over an oracle, such as SquareCB(gamma0=100.0); for rankings a policy such as
        FWLinUCBRank(f), whose items are those of the log
        """
        data = self._data
        if isinstance(data, LoggedRankings):
            return _ranking_agent(data, f, base, seed, options)
        if not isinstance(base, LinearBandit) or base.extended:
            raise InvalidInput(
                f"{base!r:.80} cannot learn from decisions that others made; give a bandit over an "
                "oracle, such as SquareCB(gamma0=100.0) or LinUCB()"
            )
        agent = Agent(FrankWolfe(f, base), data.problem, seed, **options)
        agent.study(_arm_rows(data), data.rewards)
        return agent

    def relearn(
        self,
        policy: Any,
        *,
        items: Any = None,
        jobs: int = 1,
        on: str | None = None,
        progress: Tick | None = None,
        **options: Any,
    ) -> Agent:
        """An agent with the state that it would have after all decisions of the log, up to
        rounding: regression, averages and clocks are sums over the log, and the last 10,000
        decisions are learnt one by one, which sets the prices of hard constraints.

        policy: such as FrankWolfe(f, SquareCB(gamma0=100.0)), over a ridge regression and without
            memory; items: of rankings, key -> features, those of the log unless given. Live numbers
            and what is known of open decisions start anew.
        """
        if self.problem.kind == "ranking" and items is None:
            items = self._source.items()
        agent = Agent(policy, self.problem, items=items, **options)
        with self._source.at_work(jobs, on, progress) as source:
            relearnt(agent, source, self._source.last(TAIL))
        return agent

    def tradeoff(
        self,
        betas: Sequence[float],
        fair: Concave | None = None,
        users: Concave | None = None,
        *,
        model: Any = None,
        seed: int = 0,
        level: float = 0.95,
    ) -> EstimatedFrontier:
        """The frontier from logs, before anything is deployed: for each beta a policy learnt for
        users + beta fair, and what it would have given on decisions that it has not seen.

        For rankings `fair` is of the items' exposures, GiniEquality() unless given, and `users` the
        sum of the rewards; for arms give both.
        """
        ranks = self.problem.kind == "ranking"
        if not ranks and (fair is None or users is None):
            raise InvalidInput(
                "what is fair among arms is not known; give both: "
                'tradeoff(betas, fair=Minimum(), users=Linear({"clicks": 1.0}))'
            )
        item_side: Any = GiniEquality() if fair is None else fair
        points = []
        for beta in betas:
            weight = real_number("beta", beta)
            whole: Any = None
            parts: tuple[Any, Any] = (users, item_side)
            if ranks:
                whole = TwoSided(item_side, weight, users)
                none = 0.0 * Linear((1.0,) * len(self.problem.rewards))
                parts = (TwoSided(item_side, 0.0, users), TwoSided(item_side, 1.0, none))
            elif users is not None:
                whole = users + weight * item_side
            policy, (one, two) = self._learn(whole, parts, model, seed, level)
            assert policy.estimate is not None
            points.append(Point(weight, policy, one, two, policy.estimate))
        if not points:
            raise InvalidInput("betas is empty; give the weights of fairness, such as [0, 0.1, 1]")
        return EstimatedFrontier(tuple(points))


def _ranking_agent(data: LoggedRankings, f: Concave, base: Any, seed: int, options: Any) -> Agent:
    if data.users is None or data.items is None:
        raise InvalidInput(
            "the log does not have the features of its users, or of its items once for all rows, "
            "so that an agent could learn from them"
        )
    policy = base.with_objective(f) if isinstance(base, FrankWolfe) else FrankWolfe(f, base)
    if policy.decides != "ranking":
        raise InvalidInput(f"{base!r:.80} chooses arms, and the log has rankings; give a ranker")
    agent = Agent(policy, data.problem, seed, data.items, **options)
    agent.study(_ranking_rows(data, data.users), Shown(data.exposed, data.rewards))
    return agent


def _arm_rows(data: LoggedArms) -> ArmRows:
    """The decisions of a log as columns."""
    x = np.empty((data.n, data.problem.dimension))
    rows = ArmRows(np.zeros(data.n, HEAD), x, np.empty((data.n, 0)))
    rows.head["number"] = rows.head["place"] = rows.head["window"] = -1
    rows.head["arm"], rows.head["probability"] = data.actions, data.probability
    rows.head["size"] = data.problem.n_objectives
    for span, part in data.spans():
        actions = data.actions[span]
        rows.x[span] = part.chosen(actions)
        rows.head["block"][span] = actions if part.per_arm else 0
    return rows


def _ranking_rows(data: LoggedRankings, users: Matrix) -> RankingRows:
    """The rankings of a log as columns; an agent keeps the features of their items."""
    rows = RankingRows.empty(data.n, data.problem.n_slots or 0, users.shape[1], 0, explained=False)
    rows.head["number"] = rows.head["place"] = rows.head["window"] = rows.head["arm"] = -1
    rows.head["probability"], rows.head["size"] = data.probability, data.problem.n_objectives
    rows.items[:], rows.user[:], rows.exposure[:] = data.rankings, users, 0.0
    return rows


def _level(given: Any) -> float:
    level = real_number("level", given)
    if not 0.5 <= level < 1.0:
        raise InvalidInput(f"level is {given!r}; give a confidence from 0.5 to below 1, as 0.95")
    return level
