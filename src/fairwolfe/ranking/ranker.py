"""What rankers share: their settings, their state, and the contract Base for rankings.

A ranker estimates what each item would earn if it were exposed, by ridge regression on the items
that were, and shows the items of largest score.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from fairwolfe.bandits.base import Exploration, exploration_number
from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.candidates import Candidates, Catalogue, fitting, sizes
from fairwolfe.core.decision import Choice, Learnt
from fairwolfe.core.kinds import require_kind
from fairwolfe.core.problem import Problem, level, number_where, one_of, real_array
from fairwolfe.core.protocols import RankingRule
from fairwolfe.core.rankings import EXPOSURES, Exposure, RankingKind
from fairwolfe.core.tables import short
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.kernels.gates import largest_square_norm
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.products import ProductRidge
from fairwolfe.kernels.ranks import Ranking as OneRanking
from fairwolfe.kernels.ranks import scores_of
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.oracles.linear_regression import noise_scales, parameter_norms, raise_useless, repair
from fairwolfe.reduction.state import require_ranking_counts

_HEAD = 3  # params before those of the rewards: exploration, 2 ln(1/delta_1), chance of a swap
_NONE = np.empty(0)
_PARTS = ("value", "exploration", "fairness")


def appended(name: str, array: Any, new: Any) -> Any:
    """An array with new columns."""
    return np.concatenate([array, new], axis=-1)


class RankEvidence(NamedTuple):
    """What learning from a ranking needs: the user, and the features of the items by slot."""

    user: Vector  # (p,)
    rows: Matrix  # (k, q); (0, q) where the state keeps the features


class RankState(NamedTuple):
    """A problem with the rule's parameters for it, the regression, and how often items were shown.

    `slots` counts by slot the rankings, and those in which it was exposed.
    """

    problem: Problem
    params: Vector
    oracle: LinearState
    exposed: Vector  # by id
    shown: Vector
    slots: Matrix  # (2, k)
    features: Matrix  # (q, all items ever), or (q, 0)
    retired: Vector  # 1 for ids that are no longer shown

    def restored(self) -> None:
        """After arrays have been read from a file: raise for what no rankings can produce."""
        n_items, q = self.retired.size, sizes(self.problem)[1]
        features = self.features
        if features.dtype != np.float64 or features.shape not in ((q, 0), (q, n_items)):
            raise IncompatibleState(
                f"features is {features.dtype} of shape {features.shape}; the problem has {q} "
                f"features of {n_items} items: it belongs to others"
            )
        require_ranking_counts(self)


@dataclass(frozen=True, kw_only=True)
class RankerSettings:
    """What every ranker and every ranking policy can be given.

    Parameters
    ----------
    exploration: multiplies the confidence widths, 1 or "theorem" is the theory's; or "pointwise", a
        bonus by what a reward can vary at its estimate, as in `LinUCB`, without a guarantee
    ridge: penalty of the regression, > 0 (the theorem asks for feature_norm^2 n_slots)
    delta: the confidence level delta' of the theorem
    exposure: which items count as exposed: "observed", as in the feedback; "shown", all of the
        ranking; "until_last_click", those down to the last that earned something
    randomize: the chance of swapping two neighbouring slots, logged exactly in `probability`
    position_weights: how likely each slot is exposed, best first, for what is expected of open
        decisions and for iterate="expected"; None: as often as it was
    """

    exploration: Exploration = "pointwise"
    ridge: float = 0.1
    delta: float = 0.05
    exposure: Exposure = "observed"
    randomize: float = 0.0
    position_weights: Any = None

    decides: ClassVar[str] = "ranking"

    def __post_init__(self) -> None:
        exploration_number(self.exploration)
        level("delta", self.delta)
        one_of("exposure", self.exposure, EXPOSURES)
        allowed = "the chance of swapping two neighbouring slots, at least 0 and below 1"
        number_where("randomize", self.randomize, lambda chance: 0.0 <= chance < 1.0, allowed)
        Ridge(self.ridge)
        if self.position_weights is not None:
            weights = real_array("position_weights", self.position_weights)
            object.__setattr__(self, "position_weights", tuple(weights.ravel().tolist()))
            inside = weights.ndim == 1 and ((weights >= 0.0) & (weights <= 1.0)).all()
            if not inside or (np.diff(weights) > 0.0).any():
                raise InvalidInput(
                    f"position_weights is {short(self.position_weights, 80)}; give the chance of "
                    "being exposed for each slot, best first: from 0 to 1, none larger than the "
                    "one before"
                )

    def settings(self) -> dict[str, Any]:
        """These, to pass on."""
        return {f.name: getattr(self, f.name) for f in fields(RankerSettings)}


class Ranker(RankerSettings):
    """Scores over one ridge regression: the contract Base, for rankings.

    A subclass names compiled scores, or has its own in `scores`.

    >>> class Greedy(Ranker):
    ...     def scores(self, value, width, bonus, direction, *counts):
    ...         return value + direction
    >>> base = Greedy()
    >>> state = base.init(Problem.ranking(n_items=3, n_slots=2, n_features=1))
    >>> g, rng = np.array([0.0, 0.1, 0.2, 1.0]), np.random.default_rng(0)
    >>> base.act(state, [[0.1], [0.3], [0.2]], g, rng).action.tolist()
    [2, 1]
    """

    compiled: ClassVar[str]
    """The name of compiled scores: kernels/ranks.py."""

    owed: ClassVar[float] = 0.0
    """The share of the rankings that an item must be shown in. One that arrives late is assumed to
    have been, in those before it came, so that it owes and is owed nothing."""

    def scores(
        self,
        value: Vector,
        width: Vector,
        bonus: float,
        direction: Vector,
        exposed: Vector,
        shown: Vector,
        t: float,
        slots: int,
        params: Vector,
    ) -> Vector:
        """The scores (n,) of n candidates, of which the largest are shown.

        Parameters
        ----------
        value: (n,), estimates of sum_r g_r theta_r.x_i
        width: (n,), confidence widths |x_i|_{V^-1}; bonuses with exploration="pointwise"
        bonus: what to multiply them by; 1 with exploration="pointwise"
        direction: (n,), g_i, what the exposure of each candidate is worth
        exposed, shown: (n,), how often each was exposed and shown in the t rankings so far
        slots: how many candidates are shown
        params: `rule_params`
        """
        out = np.empty(value.size)
        counts = (exposed, shown, t, slots)
        scores_of(self.compiled, value, width, bonus, direction, *counts, params, out)
        return out

    def rule_params(self, problem: Problem) -> Vector:
        """The parameters of the scores."""
        return np.empty(0)

    def rule(self, problem: Problem) -> RankingRule | None:
        """What the compiled engine needs; None where a subclass has replaced a part of it."""
        own = ("act", "update", "draws", "scores", "estimate", "certify")
        if any(getattr(type(self), name) is not getattr(Ranker, name) for name in own):
            return None
        weights = self.position_weights
        return RankingRule(
            name=self.compiled,
            params=self._params(problem),
            limit=self.limit(problem),
            state=RankState,
            uniforms=self._uniforms(problem),
            owed=self.owed,
            position_weights=None if weights is None else np.array(weights),
        )

    def limit(self, problem: Problem) -> float:
        """The largest |user (x) item|^2 that can be learnt from."""
        limit = row_limit(problem, self.ridge)
        return limit * limit

    # --- the contract -------------------------------------------------------------------------

    def init(self, problem: Problem) -> RankState:
        """Validate and allocate."""
        require_kind(self.decides, problem, type(self).__name__)
        weights = self.position_weights
        if weights is not None and len(weights) != problem.n_slots:
            raise InvalidInput(
                f"there are {len(weights)} position_weights and {problem.n_slots} slots; give one "
                "for each slot"
            )
        return self.resume(problem, Catalogue.of(problem))

    def resume(self, problem: Problem, catalogue: Catalogue) -> RankState:
        """A fresh state of the shape of one with these items."""
        n_items = catalogue.total
        retired = np.ones(n_items)
        retired[catalogue.ids] = 0.0
        return RankState(
            problem,
            self._params(problem),
            Ridge(self.ridge).allocate(1, len(problem.rewards), problem.dimension),
            np.zeros(n_items),
            np.zeros(n_items),
            np.zeros((2, problem.n_slots or 0)),
            np.zeros_like(catalogue.features),
            retired,
        )

    def _params(self, problem: Problem) -> Vector:
        """Radii of the estimates: rewards of one item have 1/slots of the range of their sum."""
        level = 2.0 * math.log(3.0 * len(problem.rewards) / self.delta)
        noise = noise_scales(problem, problem.slot_ranges)
        prior = math.sqrt(self.ridge) * parameter_norms(problem, problem.slot_ranges)
        exploration = exploration_number(self.exploration)
        head = [exploration, level, self.randomize]
        ranges = problem.slot_ranges.ravel() if exploration < 0.0 else ()
        return np.concatenate([head, noise, prior, self.rule_params(problem), ranges])

    def _own_params(self, state: RankState) -> Vector:
        """`rule_params` as they are in `_params`."""
        n_rewards = len(state.problem.rewards)
        stop = state.params.size - (2 * n_rewards if state.params[0] < 0.0 else 0)
        return state.params[_HEAD + 2 * n_rewards : stop]

    def _uniforms(self, problem: Problem) -> int:
        return 1 + (problem.n_slots or 0) // 2 if self.randomize > 0.0 else 0

    def draws(self, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
        """What a ranking draws, a row for each of n rounds."""
        uniforms = self._uniforms(problem)
        return rng.random((n, uniforms)) if uniforms else np.empty((n, 0))

    def act(
        self, state: RankState, context: Any, direction: Vector, rng: np.random.Generator
    ) -> Choice:
        """Rank the candidates; `direction` has a number for each of them, then for each reward."""
        given, g = self._read(state, context, direction)
        n, slots = given.ids.size, state.slots.shape[1]
        one, value, width, bonus = self._estimated(state, given, g)
        exposed, shown = state.exposed, state.shown
        if n < exposed.size:
            exposed, shown = exposed[given.ids], shown[given.ids]
        counts = (exposed, shown, float(state.slots[0, 0]), slots)
        made = self.scores(value, width, bonus, g[:n], *counts, self._own_params(state))
        scores = self._checked_scores(made, n)
        ranking = np.empty(slots, dtype=np.int64)
        drawn = np.ascontiguousarray(self.draws(rng, state.problem, 1)[0])
        probability = one.arrange(scores, given.pinned, drawn, ranking)
        if not np.isfinite(scores[ranking[-1]]):
            raise_useless(state.oracle.counters)
        items, rows = given.ids[ranking], np.empty((0, len(given.items)))
        if not given.kept:
            rows = np.ascontiguousarray(given.items.T[ranking])
        evidence = RankEvidence(given.user.copy(), rows)
        return Choice(items, probability, evidence, _explanation(one, items, n, ranking))

    def _checked_scores(self, scores: Any, n: int) -> Vector:
        made = real_array(f"what {type(self).__name__}.scores returns", scores)
        if made.shape != (n,):
            raise InvalidInput(
                f"{type(self).__name__}.scores returns shape {made.shape}; return a score for each "
                f"of {n} candidates"
            )
        return np.ascontiguousarray(made)

    def _read(self, state: RankState, context: Any, direction: Vector) -> tuple[Candidates, Vector]:
        """The candidates, and a direction (or slope) with a number for each, then the rewards."""
        given, n_rewards = self._candidates(state, context), len(state.problem.rewards)
        g: Vector = np.ascontiguousarray(direction, dtype=np.float64)
        if g.shape != (given.ids.size + n_rewards,):
            raise InvalidInput(
                f"the direction has shape {g.shape}; give {given.ids.size} numbers for the "
                f"candidates and {n_rewards} for the rewards"
            )
        return given, g

    def _candidates(self, state: RankState, context: Any) -> Candidates:
        if type(context) is Candidates:
            return fitting(context, state.problem)
        return RankingKind(state.problem, self.catalogue(state)).read(context)

    def _estimated(
        self, state: RankState, given: Candidates, direction: Vector, bound_params: Vector = _NONE
    ) -> tuple[OneRanking, Vector, Vector, float]:
        """A ranking after `estimate`; values (n,), widths (n,), and what these are worth."""
        problem, oracle, n = state.problem, state.oracle, given.ids.size
        ranges = np.ascontiguousarray(problem.slot_ranges)
        arrays = (oracle.theta, oracle.inverse, oracle.counters, state.params, bound_params, ranges)
        one = OneRanking(*arrays, *sizes(problem), state.slots.shape[1], n)
        value, width = np.empty(n), np.empty(n)
        return one, value, width, one.estimate(given.user, given.items, direction, value, width)

    def update(
        self, state: RankState, choice: Choice, direction: Vector, observation: Any
    ) -> RankState:
        """Learn from the items that were exposed, in place."""
        kind = RankingKind(state.problem, self.catalogue(state), self.exposure)
        shown = kind.observe(choice.action, observation).observation
        user, rows = self._checked_features(state, choice)
        items: Any = choice.action
        square = largest_square_norm(user[None])
        if not largest_square_norm(rows) * square <= self.limit(state.problem):
            raise self._evidence_error(state, choice)
        seen = shown.exposed > 0.0
        design = ProductRidge(*state.oracle, *sizes(state.problem), items.size)
        if not design.absorb(user, rows[seen], shown.rewards[seen]):
            raise_useless(state.oracle.counters)
        state.exposed[items] += shown.exposed
        state.shown[items] += 1.0
        state.slots[0] += 1.0
        state.slots[1] += shown.exposed
        return state

    def _checked_features(self, state: RankState, choice: Choice) -> tuple[Vector, Matrix]:
        """Of the user (p,), and of the items of the ranking (k, q); evidence may come from bytes of
        any source.
        """
        evidence, (p, q) = choice.evidence, sizes(state.problem)
        if not isinstance(evidence, tuple) or len(evidence) != 2:
            raise self._evidence_error(state, choice)
        user, rows = evidence
        if type(rows) is np.ndarray and rows.shape[:1] == (0,) and state.features.shape[1] > 0:
            rows = np.ascontiguousarray(state.features[:, choice.action].T)
        if not (_is_plain(user, (p,)) and _is_plain(rows, (state.slots.shape[1], q))):
            raise self._evidence_error(state, choice)
        return user, rows

    def _evidence_error(self, state: RankState, choice: Choice) -> InvalidInput:
        p, q = sizes(state.problem)
        return InvalidInput(
            f"the evidence of the ranking is {short(choice.evidence, 120)}; the problem has {p} "
            f"user and {q} item features, whose products have norm at most "
            f"{math.sqrt(self.limit(state.problem)):g}"
        )

    # --- what else the reduction asks for -------------------------------------------------------

    def chances(self, state: RankState) -> Vector:
        """How likely each slot is exposed, (k,): as stated, or as often as it was, 1 before it was
        shown.
        """
        if self.position_weights is not None:
            return np.array(self.position_weights)
        shown, exposed = state.slots
        chances: Vector = np.divide(exposed, shown, out=np.ones(shown.size), where=shown > 0.0)
        return chances

    def estimate(self, state: RankState, context: Any, choice: Choice) -> Vector:
        """The reward vector to expect of a ranking, (n_objectives,), each slot exposed by chance;
        rewards are cut to their ranges.
        """
        problem, given = state.problem, self._candidates(state, context)
        rows = given.items[:, np.searchsorted(given.ids, choice.action)]
        theta = state.oracle.theta[0].reshape(len(problem.rewards), given.user.size, -1)
        each = np.einsum("a,rae,ek->kr", given.user, theta, rows)
        low, high = problem.slot_ranges
        chance = self.chances(state)
        total = np.zeros(state.exposed.size + len(problem.rewards))
        total[choice.action] = chance
        total[state.exposed.size :] = chance @ np.clip(each, low, high)
        return total

    def certify(
        self,
        state: RankState,
        context: Any,
        direction: Vector,
        choice: Choice,
        slope: Vector,
        bound_params: Vector,
    ) -> Matrix:
        """By slot, of <slope, r> where it is exposed: the largest optimistic scores (0 without
        bound_params), and by how much the ranking is below the largest estimates, (2, k).

        slope: as the direction, a number for each candidate, then for each reward.
        """
        given, g = self._read(state, context, direction)
        numbers = np.empty((2, state.slots.shape[1]))
        ranking = np.searchsorted(given.ids, choice.action)
        one, *_ = self._estimated(state, given, g, bound_params)
        one.certify(given.user, given.items, self._read(state, given, slope)[1], ranking, numbers)
        return numbers

    def bound_params(self, problem: Problem) -> Vector:
        """What turns estimates into upper bounds; empty where exposure is guessed from clicks."""
        if self.exposure == "until_last_click":
            return np.empty(0)
        whole = self._params(problem)[: _HEAD + 2 * len(problem.rewards)]
        whole[0] = 1.0  # whatever the exploration
        return whole

    def repair(self, state: RankState) -> float:
        """Recompute the inverse and the estimates from the design; how large their error was."""
        return repair(state.oracle)

    def drift(self, state: RankState) -> float:
        """The error of the inverse when it was last recomputed."""
        return state.oracle.drift

    def learnt(self, state: RankState) -> Learnt:
        """What was learnt of the rewards, and how likely each slot is exposed: as stated, or as
        counted, where no slot is exposed more often than the one before.
        """
        from scipy.optimize import isotonic_regression

        if self.position_weights is not None:
            return Learnt(state.oracle, self.position_weights)
        shown, exposed = state.slots
        if not shown.min() > 0.0:
            raise InvalidInput("nothing has been shown yet")
        fitted = isotonic_regression(exposed / shown, weights=shown, increasing=False).x
        return Learnt(state.oracle, tuple(np.clip(fitted, 0.0, 1.0).tolist()))

    # --- items --------------------------------------------------------------------------------

    def with_items(
        self, state: RankState, features: Matrix, append: Callable[..., Any] = appended
    ) -> RankState:
        """The state with new items; their features (new, q) are kept if those of the others are.
        append(name, array, new): the array with new columns.
        """
        new = np.zeros(len(features))
        problem = replace(state.problem, n_items=state.exposed.size + new.size)
        kept = state.features
        if kept.shape[1]:
            kept = append("features", kept, features.T)
        return state._replace(
            problem=problem,
            params=self._params(problem),
            exposed=append("exposed", state.exposed, new),
            shown=append("shown", state.shown, new + self.owed * state.slots[0, 0]),
            features=kept,
            retired=append("retired", state.retired, new),
        )

    def catalogue(self, state: RankState) -> Catalogue:
        """The current items."""
        return Catalogue(np.flatnonzero(state.retired == 0.0), state.features, state.retired.size)

    def without_items(self, state: RankState, ids: IntVector) -> RankState:
        """The state in which these items are not shown any more."""
        retired = state.retired.copy()
        retired[ids] = 1.0
        return state._replace(retired=retired)

    def with_features(self, state: RankState, features: Matrix) -> RankState:
        """The state that keeps the features (n_items, q) of its items."""
        return state._replace(features=np.ascontiguousarray(features.T))


def _is_plain(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether kernels can take an array from any source."""
    if type(array) is not np.ndarray or array.shape != shape:
        return False
    return bool(array.dtype == np.float64 and array.flags.carray)


def _explanation(
    one: OneRanking, items: IntVector, n: int, ranking: IntVector
) -> list[dict[str, Any]]:
    """Why the items of a ranking of n candidates are where they are, for `Decision.explain`."""
    parts, ranks = np.empty((len(_PARTS), items.size)), np.empty(items.size, dtype=np.int64)
    one.reasons(n, ranking, parts, ranks)
    columns = zip(items.tolist(), parts.T.tolist(), ranks.tolist(), strict=True)
    return [
        {"item": item, **dict(zip(_PARTS, row, strict=True)), "rank_without_fairness": rank}
        for item, row, rank in columns
    ]


@dataclass(frozen=True, kw_only=True)
class LinUCBRank(Ranker):
    """Show the items of largest sum_r g_r theta_r.x_i + (sum_r |g_r| alpha_r) |x_i|_{V^-1} + g_i.

    g is the direction: a number for each item (what its exposure is worth) and one for each
    user-side reward. theta_r is a ridge regression on the items that were exposed, all rewards on
    one design V; alpha_r = R_r sqrt(2 ln(1/delta_1) + ln(det V/det V_0)) + sqrt(ridge) D_theta,
    delta_1 = delta/(3 R) for R rewards, R_r half of the range of one item's reward.

    Sorting by these scores maximises the optimistic reward <g, .> whatever the position weights
    are, as long as they do not increase: they are neither known nor estimated.

    A bandit for one direction; `FWLinUCBRank` follows that of f. Where a policy is expected it
    plays alone: for the sum of the user-side rewards, without fairness.

    Reference: Sec. 4 and Algorithm 1 of the paper; docs/ranking.md.

    >>> problem = Problem.ranking(n_items=3, n_slots=2, n_features=1)
    >>> base = LinUCBRank()
    >>> state = base.init(problem)
    >>> rng = np.random.default_rng(0)
    >>> base.act(state, [[0.1], [0.3], [0.2]], np.array([0.0, 0.0, 0.0, 1.0]), rng).action.tolist()
    [1, 2]
    """

    compiled = "optimistic"

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        swapped = cls(exploration=0.1, ridge=1.0, randomize=0.2)
        return cls(), swapped, cls(exposure="shown"), cls(exploration="pointwise")
