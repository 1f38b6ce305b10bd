"""What rankers share: their settings, their state, and the contract Base for rankings.

A ranker estimates what each item would earn if it were looked at, by ridge regression on the items
that were, and shows the items of largest score. Its rule is a kernel that makes scores of the
estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.brief import short
from fairwolfe.core.catalogue import Candidates, Catalogue, candidates, sizes
from fairwolfe.core.decision import Choice
from fairwolfe.core.feedback import Shown
from fairwolfe.core.problem import Problem
from fairwolfe.core.restoring import require
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.kernels.bilinear import absorb_items, estimates_of
from fairwolfe.kernels.compile import Kernel
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.linalg import refresh
from fairwolfe.kernels.settling import REFUSED, Settling
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.oracles.linear_state import refuse, repair
from fairwolfe.ranking import observation
from fairwolfe.ranking.kernels import look_along, rank_once, take_in, take_in_and_settle
from fairwolfe.ranking.observation import EXPOSURES, Exposure

__all__ = ["RankEvidence", "RankState", "Ranker", "Reasons", "Settings"]


_NO_LOOK = (np.empty(0), np.empty(0))
_WITHOUT_KNOWN, _ALL = 3, 2**62  # decisions of agents of file version 1 do not say it


def _is_plain(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether kernels can take an array that anybody may have made."""
    if type(array) is not np.ndarray or array.shape != shape:
        return False
    return bool(array.dtype == np.float64 and array.flags.carray)


class RankEvidence(NamedTuple):
    """What learning from a ranking needs: the user, and the features of the items by slot."""

    user: Vector
    rows: Matrix  # (k, q); (0, q) where the state keeps the features
    estimate: Vector  # of the reward vector; empty if nobody asked
    known: int  # how many items had come by then: later ones are no matter of this ranking


class RankState(NamedTuple):
    """A problem with the rule's parameters for it, the regression, and how often items were shown.

    `slots` counts by slot the rankings, and those in which it was looked at.
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
        require("exposed", self.exposed, seen, "items are looked at no oftener than shown")
        require("slots", self.slots, self.slots >= 0.0, "they count from 0 on")
        require(
            "slots",
            self.slots[1],
            self.slots[1] <= self.slots[0],
            "slots are looked at where they are shown",
        )

    @property
    def catalogue(self) -> Catalogue:
        """The items of the moment."""
        return Catalogue(np.flatnonzero(self.retired == 0.0), self.features, self.retired.size)


class Reasons(NamedTuple):
    """Why the items of a ranking stand where they do, by slot."""

    value: Vector
    exploration: Vector
    fairness: Vector
    rank_without_fairness: IntVector


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every ranker and every ranking policy can be told.

    Parameters
    ----------
    exploration: multiplies the confidence widths, 1 = theory
    ridge: penalty of the regression, > 0 (the theorem asks for feature_norm^2 n_slots)
    delta: the confidence level delta' of the theorem
    exposure: which items count as looked at: "observed", as the feedback says; "shown", all of the
        ranking; "until_last_click", those down to the last that earned something
    randomize: the chance of swapping two neighbouring slots, logged exactly in `probability`
    """

    exploration: float = 1.0
    ridge: float = 0.1
    delta: float = 0.05
    exposure: Exposure = "observed"
    randomize: float = 0.0

    ranks: ClassVar[bool] = True
    """It ranks items; other bandits and policies choose an arm."""

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

    @cached_property
    def exposure_code(self) -> int:
        """The place of `exposure` among EXPOSURES, for kernels."""
        return EXPOSURES.index(self.exposure)

    def rule_params(self, problem: Problem) -> Vector:
        """What the rule's kernel takes as params."""
        return np.empty(0)

    def init(self, problem: Problem, catalogue: Catalogue | None = None) -> RankState:
        """Validate and allocate; `catalogue` says which items are left, if some are retired."""
        if problem.n_items is None or problem.n_slots is None:
            raise InvalidInput(
                f"{type(self).__name__} ranks items, and the problem has arms; make it with "
                "Problem.ranking(...)"
            )
        n_rewards, (_, q) = len(problem.rewards), sizes(problem)
        return RankState(
            problem,
            self._params(problem),
            Ridge(self.ridge).allocate(1, n_rewards, problem.dimension),
            np.zeros(problem.n_items),
            np.zeros(problem.n_items),
            np.zeros((2, problem.n_slots)),
            np.empty((q, 0)),
            np.zeros(problem.n_items),
        )

    def _params(self, problem: Problem) -> Vector:
        """Radii of the estimates: rewards of one item have 1/slots of the range of their sum."""
        n = len(problem.rewards)
        low, high = problem.slot_ranges
        noise = np.full(n, problem.noise) if problem.noise is not None else (high - low) / 2.0
        norms = np.maximum(abs(low), abs(high)) / problem.feature_norm
        if problem.parameter_norm is not None:
            norms = np.full(n, problem.parameter_norm)
        head = [self.exploration, 2.0 * math.log(3.0 * n / self.delta), self.randomize]
        own = self.rule_params(problem)
        return np.concatenate([head, noise, math.sqrt(self.ridge) * norms, own])

    def draws(self, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
        """What a ranking draws, a row for each of n rounds."""
        slots = problem.n_slots or 0
        return rng.random((n, 1 + slots // 2)) if self.randomize > 0.0 else np.empty((n, 0))

    def kernels(self, problem: Problem) -> tuple[Kernel[..., Any], ...]:
        """What `act` and `update` call."""
        ranking = (rank_once, type(self).rule, estimates_of(sizes(problem)[1]), look_along)
        learning = (observation.settle, take_in_and_settle, absorb_items, refresh)
        return *ranking, *learning

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
        given = context
        if not isinstance(context, Candidates):
            given = candidates(context, problem, state.catalogue)
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
        told = np.empty((3 if look is None else 5, slots))
        probability = rank_once(
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
            told,
        )
        if math.isnan(probability):
            refuse(oracle.counters)
        ranking, plain = places
        rows = np.empty((0, len(given.items)))
        if not given.kept:
            rows = np.ascontiguousarray(given.items.T[ranking])
        guess = self._estimate(state, given, ranking) if estimate else np.empty(0)
        evidence = RankEvidence(given.user.copy(), rows, guess, state.exposed.size)
        reasons = Reasons(told[0], told[1], told[2], plain)
        seen = None if look is None else told[3:]
        return Choice(given.ids[ranking], probability, evidence, reasons, seen)

    def doubt(self, problem: Problem) -> Vector:
        """What turns estimates into upper bounds; empty where exposure is guessed from clicks."""
        if self.exposure == "until_last_click":
            return np.empty(0)
        whole = self._params(problem)[: 3 + 2 * len(problem.rewards)]
        whole[0] = 1.0  # whatever the exploration
        return whole

    def tally(self, seen: Matrix, feedback: Shown) -> Vector:
        """Of <slope, r>: the largest optimistic value, and what the ranking missed by the
        estimates, of the slots that were looked at.

        Unlike arms, what exploring missed is part of the gap to f*: exposures are shared, and what
        a greedy ranking gains along a slope f does not gain.
        """
        if seen.shape != (2, feedback.exposed.size):
            return np.empty(0)
        top, gap = seen @ feedback.exposed
        return np.array([top, gap, gap])

    def _estimate(self, state: RankState, given: Candidates, ranking: IntVector) -> Vector:
        """The reward vector to expect, each slot looked at as often as it has been so far."""
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

    def check_action(self, state: RankState, action: Any) -> IntVector:
        """The ids of a ranking; it may come from bytes that anybody wrote."""
        items = self._items(state, action)
        if len(set(items.tolist())) < items.size:
            raise InvalidInput(f"the action is {short(action, 80)}; a ranking shows an item once")
        return items

    @staticmethod
    def _items(state: RankState, action: Any) -> IntVector:
        slots = state.slots.shape[1]
        fits = isinstance(action, np.ndarray) and action.dtype == np.int64
        if not fits or action.shape != (slots,):
            raise InvalidInput(
                f"the action is {short(action, 80)}, of another problem; rankings have {slots} ids "
                "here"
            )
        return np.ascontiguousarray(action)

    def reward(self, state: RankState, choice: Choice, feedback: Any) -> tuple[Shown, Vector]:
        """What counts as exposed of the feedback, and the reward vector, by id."""
        slots, n_rewards = state.slots.shape[1], len(state.problem.rewards)
        given = observation.arrays(feedback, slots, n_rewards)
        items = self._items(state, choice.action)
        total, seen = np.zeros(state.exposed.size + n_rewards), np.empty(slots)
        wrong = observation.settle(
            self.exposure_code, items, given.exposed, given.rewards, seen, total
        )
        if wrong:
            observation.refuse(wrong, items, given)
        return Shown(seen, given.rewards), total

    def known(self, choice: Choice) -> int:
        """How many items had come when the ranking was made."""
        evidence = choice.evidence
        if isinstance(evidence, tuple) and len(evidence) == _WITHOUT_KNOWN:
            evidence = (*evidence, _ALL)
        fits = isinstance(evidence, tuple) and len(evidence) == len(RankEvidence._fields)
        if not fits or type(evidence[3]) is not int or evidence[3] < 0:
            raise InvalidInput(
                f"the evidence of the ranking is of another policy: {short(evidence, 80)}"
            )
        return evidence[3]

    def update(
        self, state: RankState, choice: Choice, direction: Vector, feedback: Any
    ) -> RankState:
        """Learn from the items that were looked at, in place."""
        shown = self.reward(state, choice, feedback)[0]
        lesson = self._lesson(state, choice, shown, self.known(choice))
        self._judge(state, choice, take_in(*lesson))
        return state

    commits: ClassVar[bool] = True

    def commit(
        self,
        state: RankState,
        choice: Choice,
        direction: Vector,
        feedback: Shown,
        settling: Settling,
    ) -> int:
        """`update` with what `reward` made of the feedback, and `settle`, in one call."""
        at_once: Any = take_in_and_settle
        known = settling[3]  # as `settle` has it
        due: int = at_once(*self._lesson(state, choice, feedback, known), *settling)
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
        user, rows = choice.evidence[:2]
        problem = state.problem
        p, q = sizes(problem)
        items = self._items(state, choice.action)
        if type(rows) is np.ndarray and len(rows) == 0 and state.features.shape[1]:
            rows = np.ascontiguousarray(state.features.T[items])
        if not (_is_plain(user, (p,)) and _is_plain(rows, (items.size, q))):
            raise self._wild(state, choice)
        limit = row_limit(problem, self.ridge)
        counts = (state.exposed, state.shown, state.slots)
        learnt = (shown.exposed, shown.rewards)
        made = (items, user, rows, *learnt, known, self.owed)
        return absorb_items.address, limit * limit, *made, *counts, *state.oracle

    @property
    def ridge_used(self) -> float:
        """The penalty of the regression."""
        return self.ridge

    def repair(self, state: RankState) -> float:
        """Compute the inverse and the estimates from the design afresh; how far off they were."""
        return repair(state.oracle, self.ridge)

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
