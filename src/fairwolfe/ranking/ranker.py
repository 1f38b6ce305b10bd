"""What rankers share: their settings, their state, and the contract Base for rankings.

A ranker estimates what each item would earn if it were exposed, by ridge regression on the items
that were, and shows the items of largest score. Its rule is a kernel that makes scores of the
estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fairwolfe.core.arrays import IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.brief import short
from fairwolfe.core.catalogue import Candidates, Catalogue, fitting, sizes
from fairwolfe.core.decision import Choice, Info
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import require_kind
from fairwolfe.core.problem import Problem
from fairwolfe.core.restoring import require
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.kernels.bilinear import absorb_items, estimates_of
from fairwolfe.kernels.compile import Kernel
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.linalg import refresh
from fairwolfe.kernels.settling import REFUSED, Settling
from fairwolfe.kinds import Ranking
from fairwolfe.kinds.exposures import EXPOSURES, Exposure
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.oracles.linear_state import noise_scales, parameter_norms, refuse, repair
from fairwolfe.ranking.kernels import look_along, rank_once, take_in, take_in_and_settle

__all__ = ["RankEvidence", "RankState", "Ranker", "Reasons", "Settings"]


_NO_LOOK = (np.empty(0), np.empty(0))
_TALLY = np.array([0, 1, 1])
_NONE_KEPT = np.empty((0, 0))
_OLDEST = 4  # fields of evidence that older versions have written; the first two are as here


def _is_plain(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether kernels can take an array that anybody may have made."""
    if type(array) is not np.ndarray or array.shape != shape:
        return False
    return bool(array.dtype == np.float64 and array.flags.carray)


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
        """After arrays have been read from a file: refuse what no rankings can have made."""
        n_items, q = self.retired.size, sizes(self.problem)[1]
        features = self.features
        if features.dtype != np.float64 or features.shape not in ((q, 0), (q, n_items)):
            raise IncompatibleState(
                f"features is {features.dtype} of shape {features.shape}; the problem has {q} "
                f"features of {n_items} items: it belongs to others"
            )
        retired = (self.retired == 0.0) | (self.retired == 1.0)
        require("retired", self.retired, retired, "an item is retired (1) or not (0)")
        require("exposed", self.exposed, self.exposed >= 0.0, "it counts from 0 on")
        seen = self.exposed <= self.shown
        require("exposed", self.exposed, seen, "items are exposed no oftener than shown")
        require("slots", self.slots, self.slots >= 0.0, "they count from 0 on")
        require(
            "slots",
            self.slots[1],
            self.slots[1] <= self.slots[0],
            "slots are exposed where they are shown",
        )


class Reasons(NamedTuple):
    """Why the items of a ranking are where they are, by slot."""

    parts: Matrix  # (3 or more, k): of the scores
    places: IntMatrix  # (2, k): rows of the candidates, and ranks without fairness

    @property
    def value(self) -> Vector:
        """What the item is estimated to earn."""
        value: Vector = self.parts[0]
        return value

    @property
    def exploration(self) -> Vector:
        """The bonus for what is not known yet."""
        bonus: Vector = self.parts[1]
        return bonus

    @property
    def fairness(self) -> Vector:
        """The bonus for its exposure."""
        bonus: Vector = self.parts[2]
        return bonus

    @property
    def rank_without_fairness(self) -> IntVector:
        """Its rank by the first two alone."""
        ranks: IntVector = self.places[1]
        return ranks

    def columns(self) -> dict[str, Any]:
        """All of them by name, for `Decision.explain`."""
        names = ("value", "exploration", "fairness", "rank_without_fairness")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every ranker and every ranking policy can be given.

    Parameters
    ----------
    exploration: multiplies the confidence widths, 1 = theory
    ridge: penalty of the regression, > 0 (the theorem asks for feature_norm^2 n_slots)
    delta: the confidence level delta' of the theorem
    exposure: which items count as exposed: "observed", as the feedback says; "shown", all of the
        ranking; "until_last_click", those down to the last that earned something
    randomize: the chance of swapping two neighbouring slots, logged exactly in `probability`
    """

    exploration: float = 1.0
    ridge: float = 0.1
    delta: float = 0.05
    exposure: Exposure = "observed"
    randomize: float = 0.0

    decides: ClassVar[str] = "ranking"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.exploration) and self.exploration >= 0.0):
            raise InvalidInput(f"exploration is {self.exploration!r}; give a number of at least 0")
        if not 0.0 < self.delta < 1.0:
            raise InvalidInput(f"delta is {self.delta!r}; give a number between 0 and 1")
        if self.exposure not in EXPOSURES:
            raise InvalidInput(f"exposure is {self.exposure!r}; give one of {EXPOSURES}")
        if not 0.0 <= self.randomize < 1.0:
            raise InvalidInput(
                f"randomize is {self.randomize!r}; give the chance of swapping two neighbouring "
                "slots, at least 0 and below 1"
            )
        Ridge(self.ridge)

    def settings(self) -> dict[str, Any]:
        """These, to pass on."""
        return {f.name: getattr(self, f.name) for f in fields(Settings)}


class Ranker(Settings):
    """A rule over one ridge regression: the contract Base, for rankings."""

    rule: ClassVar[Kernel[..., None]]
    counts: ClassVar[bool] = False
    """Whether the rule looks at how often items were exposed and shown."""

    def rule_params(self, problem: Problem) -> Vector:
        """What the rule's kernel takes as params."""
        return np.empty(0)

    def init(self, problem: Problem) -> RankState:
        """Validate and allocate."""
        require_kind(self.decides, problem, type(self).__name__)
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

    def forecasts(self) -> bool:
        """It can estimate a reward vector."""
        return True

    def _params(self, problem: Problem) -> Vector:
        """Radii of the estimates: rewards of one item have 1/slots of the range of their sum."""
        level = 2.0 * math.log(3.0 * len(problem.rewards) / self.delta)
        noise = noise_scales(problem, problem.slot_ranges)
        prior = math.sqrt(self.ridge) * parameter_norms(problem, problem.slot_ranges)
        head = [self.exploration, level, self.randomize]
        return np.concatenate([head, noise, prior, self.rule_params(problem)])

    def draws(self, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
        """What a ranking draws, a row for each of n rounds."""
        slots = problem.n_slots or 0
        return rng.random((n, 1 + slots // 2)) if self.randomize > 0.0 else np.empty((n, 0))

    def kernels(self, problem: Problem) -> tuple[Kernel[..., Any], ...]:
        """What `act` and `update` call."""
        ranking = (rank_once, type(self).rule, estimates_of(sizes(problem)[1]), look_along)
        return *ranking, take_in_and_settle, absorb_items, refresh

    def act(
        self,
        state: RankState,
        context: Any,
        direction: Vector,
        rng: np.random.Generator,
        *,
        estimate: bool = False,
        look: tuple[Vector, Vector] | None = None,
    ) -> Choice:
        """Rank the candidates; `direction` has a number for each of them, then for each reward.

        With `look`, a slope like the direction and the doubt, the choice says what `tally` needs.
        """
        problem = state.problem
        if type(context) is Candidates:
            given = fitting(context, problem)
        else:
            given = Ranking(problem, self.catalogue(state)).read(context)
        n, slots = given.ids.size, problem.n_slots or 0
        g = np.ascontiguousarray(direction, dtype=np.float64)
        if g.shape != (n + len(problem.rewards),):
            raise InvalidInput(
                f"the direction has shape {g.shape}; give {n} numbers for the candidates and "
                f"{len(problem.rewards)} for the rewards"
            )
        exposed, shown = state.exposed, state.shown
        if self.counts and n < exposed.size:
            exposed, shown = exposed[given.ids], shown[given.ids]
        oracle = state.oracle
        places = np.empty((2, slots), dtype=np.int64)
        parts = np.empty((3 if look is None else 5, slots))
        probability = rank_once.call(
            given.user,
            given.items,
            oracle.theta,
            oracle.inverse,
            oracle.counters,
            g,
            exposed,
            shown,
            state.slots[0, 0],
            type(self).rule.address,
            estimates_of(len(given.items)).address,
            0 if look is None else look_along.address,
            state.params,
            given.pinned,
            self.draws(rng, problem, 1)[0],
            *(_NO_LOOK if look is None else look),
            problem.slot_ranges,
            places,
            parts,
        )
        if math.isnan(probability):
            refuse(oracle.counters)
        ranking = places[0]
        rows = np.empty((0, len(given.items)))
        if not given.kept:
            rows = np.ascontiguousarray(given.items.T[ranking])
        return Choice(
            given.ids[ranking],
            probability,
            RankEvidence(given.user.copy(), rows),
            Info(
                Reasons(parts, places),
                self._estimate(state, given, ranking) if estimate else None,
                None if look is None else parts[3:],
            ),
        )

    def doubt(self, problem: Problem) -> Vector:
        """What turns estimates into upper bounds; empty where exposure is guessed from clicks."""
        if self.exposure == "until_last_click":
            return np.empty(0)
        whole = self._params(problem)[: 3 + 2 * len(problem.rewards)]
        whole[0] = 1.0  # whatever the exploration
        return whole

    def tally(self, outlook: Matrix, observation: Shown) -> Vector:
        """Of <slope, r>: the largest optimistic value, and what the ranking missed by the
        estimates, of the slots that were exposed.

        Unlike arms, what exploring missed is part of the gap to f*: exposures are shared, and what
        a greedy ranking gains along a slope f does not gain.
        """
        if outlook.shape != (2, observation.exposed.size):
            return np.empty(0)
        tallied: Vector = outlook.dot(observation.exposed)[_TALLY]
        return tallied

    def _estimate(self, state: RankState, given: Candidates, ranking: IntVector) -> Vector:
        """The reward vector to expect, each slot exposed as often as it has been so far."""
        problem = state.problem
        times, seen = state.slots
        chance = np.where(times > 0.0, seen / np.maximum(times, 1.0), 1.0)
        rows = given.items[:, ranking]
        theta = state.oracle.theta[0].reshape(len(problem.rewards), given.user.size, -1)
        each = np.einsum("a,rae,ek->kr", given.user, theta, rows)
        low, high = problem.slot_ranges
        total = np.zeros(state.exposed.size + len(problem.rewards))
        total[given.ids[ranking]] = chance
        total[state.exposed.size :] = chance @ np.clip(each, low, high)
        return total

    def update(
        self, state: RankState, choice: Choice, direction: Vector, observation: Any
    ) -> RankState:
        """Learn from the items that were exposed, in place."""
        kind = Ranking(state.problem, self.catalogue(state), self.exposure)
        shown = kind.observe(choice.action, observation).observation
        lesson = self._lesson(state, choice, shown, state.exposed.size)
        self._judge(state, choice, take_in(*lesson))
        return state

    commits: ClassVar[bool] = True

    def commit(
        self,
        state: RankState,
        choice: Choice,
        direction: Vector,
        observation: Shown,
        settling: Settling,
    ) -> int:
        """`update` with a checked observation, and `settle`, in one call."""
        at_once: Any = take_in_and_settle.call
        known = settling[3]  # items from there on came after the ranking
        due: int = at_once(*self._lesson(state, choice, observation, known), *settling)
        self._judge(state, choice, due)
        return due

    def _judge(self, state: RankState, choice: Choice, code: int) -> None:
        """Raise what a kernel refused."""
        if code == REFUSED:
            refuse(state.oracle.counters)
        if code < 0:
            raise self._wild(state, choice)

    def _wild(self, state: RankState, choice: Choice) -> InvalidInput:
        p, q = sizes(state.problem)
        limit = row_limit(state.problem, self.ridge_used)
        return InvalidInput(
            f"the evidence of the ranking is {short(choice.evidence, 120)}; the problem has {p} "
            f"user and {q} item features, whose products have norm at most {limit:g}"
        )

    def _lesson(
        self, state: RankState, choice: Choice, shown: Shown, known: int
    ) -> tuple[Any, ...]:
        """What `take_in` takes. Evidence may come from bytes that anybody wrote."""
        evidence, problem = choice.evidence, state.problem
        items = np.ascontiguousarray(choice.action)
        if not isinstance(evidence, tuple) or not 2 <= len(evidence) <= _OLDEST:
            raise self._wild(state, choice)
        user, rows = evidence[:2]
        p, q = sizes(problem)
        kept = state.features
        if type(rows) is np.ndarray and rows.shape != (0, q):
            kept = _NONE_KEPT  # the context brought them
        few = 0 if kept.shape[1] else state.slots.shape[1]
        if not (_is_plain(user, (p,)) and _is_plain(rows, (few, q))):
            raise self._wild(state, choice)
        limit = row_limit(problem, self.ridge)
        counts = (state.exposed, state.shown, state.slots)
        learnt = (shown.exposed, shown.rewards)
        made = (items, user, kept, rows, *learnt, known, self.owed)
        return absorb_items.address, limit * limit, *made, *counts, *state.oracle

    @property
    def ridge_used(self) -> float:
        """The penalty of the regression."""
        return self.ridge

    def repair(self, state: RankState) -> float:
        """Compute the inverse and the estimates from the design afresh; how far off they were."""
        return repair(state.oracle, self.ridge)

    def drift(self, state: RankState) -> float:
        """How far off the inverse was when it was last computed afresh."""
        return state.oracle.drift

    owed: ClassVar[float] = 0.0
    """The share of the rankings that an item must be shown in. One that arrives late is taken to
    have been, in those before it came, so that it owes and is owed nothing."""

    def with_items(self, state: RankState, features: Matrix) -> RankState:
        """The state with new items; their features (new, q) are kept if those of the others are."""
        new = np.zeros(len(features))
        problem = replace(state.problem, n_items=state.exposed.size + new.size)
        kept = state.features
        if kept.shape[1]:
            kept = np.ascontiguousarray(np.concatenate([kept, features.T], axis=1))
        return state._replace(
            problem=problem,
            params=self._params(problem),
            exposed=np.concatenate([state.exposed, new]),
            shown=np.concatenate([state.shown, new + self.owed * state.slots[0, 0]]),
            features=kept,
            retired=np.concatenate([state.retired, new]),
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
