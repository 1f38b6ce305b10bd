"""What rankers share: their settings, their state, and the contract Base for rankings.

A ranker estimates what each item would earn if it were exposed, by ridge regression on the items
that were, and shows the items of largest score. Its rule is a kernel that makes scores of the
estimates.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np

from fairwolfe.bandits.optimism import Exploration, exploration_number
from fairwolfe.core.arrays import Cube, IntCube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.batch import Column
from fairwolfe.core.brief import short
from fairwolfe.core.catalogue import Candidates, Catalogue, fitting, sizes
from fairwolfe.core.decision import Choice, Info, Learnt
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import require_kind
from fairwolfe.core.problem import Problem, level, number_where, one_of, real_array
from fairwolfe.core.restoring import require
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.kernels.bilinear import absorb_items, estimates_of
from fairwolfe.kernels.compile import Kernel
from fairwolfe.kernels.limits import row_limit
from fairwolfe.kernels.philox import uniforms, uniforms_by_number
from fairwolfe.kernels.settling import REFUSED, TALLY
from fairwolfe.kinds import Ranking
from fairwolfe.kinds.exposures import EXPOSURES, Exposure
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.oracles.linear_state import noise_scales, parameter_norms, refuse, repair
from fairwolfe.ranking.kernels import (
    expect_rankings,
    later_of,
    look_along,
    rank_rows,
    take_in,
    take_in_and_settle,
    take_in_rows,
    tally_slots,
    withdraw_ranking,
)
from fairwolfe.smoothing.following import ALONE, alone

__all__ = ["RankEvidence", "RankRows", "RankState", "Ranker", "Reasons", "Settings"]


_NO_WEIGHTS = np.empty(0)
_NO_STARTS = np.empty(0, dtype=np.int64)
_PARTS = 3  # of a score


def _is_plain(array: Any, shape: tuple[int, ...]) -> bool:
    """Whether kernels can take an array from any source."""
    if type(array) is not np.ndarray or array.shape != shape:
        return False
    return bool(array.dtype == np.float64 and array.flags.carray)


class RankEvidence(NamedTuple):
    """What learning from a ranking needs: the user, and the features of the items by slot.

    In a batch, by column.
    """

    user: Any  # (p,)
    rows: Any  # (k, q); (0, q) where the state keeps the features


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
        retired = (self.retired == 0.0) | (self.retired == 1.0)
        require("retired", self.retired, retired, "an item is retired (1) or not (0)")
        require("exposed", self.exposed, self.exposed >= 0.0, "it counts from 0 on")
        right = self.exposed <= self.shown
        require("exposed", self.exposed, right, "items are not exposed more often than shown")
        require("slots", self.slots, self.slots >= 0.0, "they count from 0 on")
        require(
            "slots",
            self.slots[1],
            self.slots[1] <= self.slots[0],
            "slots are exposed where they are shown",
        )


class Reasons(NamedTuple):
    """Why the items of a ranking are where they are, by slot."""

    record: Vector  # the probability, then the parts of the scores
    shown: IntMatrix  # (3, k): the items, rows of the candidates, and ranks without fairness

    def _part(self, place: int) -> Vector:
        k = self.shown.shape[1]
        part: Vector = self.record[1 + place * k : 1 + (place + 1) * k]
        return part

    @property
    def items(self) -> IntVector:
        """The ranking."""
        items: IntVector = self.shown[0]
        return items

    @property
    def value(self) -> Vector:
        """What the item is estimated to earn."""
        return self._part(0)

    @property
    def exploration(self) -> Vector:
        """The bonus for what is not known yet."""
        return self._part(1)

    @property
    def fairness(self) -> Vector:
        """The bonus for its exposure."""
        return self._part(2)

    @property
    def rank_without_fairness(self) -> IntVector:
        """Its rank by the first two alone."""
        ranks: IntVector = self.shown[2]
        return ranks

    def rows(self) -> list[dict[str, Any]]:
        """All of them by name, slot by slot, for `Decision.explain`."""
        names = ("value", "exploration", "fairness", "rank_without_fairness")
        columns = [getattr(self, name).tolist() for name in names]
        items = self.items.tolist()
        return [
            {"item": item, **dict(zip(names, row, strict=True))}
            for item, row in zip(items, zip(*columns, strict=True), strict=True)
        ]


class RankRows(NamedTuple):
    """Rankings in a row, by column: see `rank_rows`."""

    done: int  # how many of them there are
    records: Matrix
    shown: IntCube
    looks: Vector
    users: Matrix
    rows: Cube  # (rows, k, q), or (1, 0, q) where the state keeps the features
    looked: bool

    def choice(self, i: int) -> Choice:
        """One of them."""
        return Choice(
            self.shown[i, 0],
            self.records.item(i, 0),
            RankEvidence(self.users[i], self.rows[i if len(self.rows) > 1 else 0]),
            Info(self._reasons(i), None, self._outlook(i) if self.looked else None),
        )

    def info(self, i: int) -> Info:
        """What is reported of one of them."""
        return Info(self._reasons(i))

    def _reasons(self, i: int) -> Reasons | None:
        return Reasons(self.records[i], self.shown[i]) if self.shown.shape[1] > 2 else None

    def _outlook(self, i: int) -> Matrix:
        k = self.looks.size
        return self.records[i, 1 + _PARTS * k : 1 + (_PARTS + 2) * k].reshape(2, k)

    def direction(self, i: int) -> Vector:
        """That of one of them, where directions are kept."""
        k = self.looks.size
        kept: Vector = self.records[i, 1 + (_PARTS + 2 if self.looked else _PARTS) * k :]
        return kept

    @property
    def actions(self) -> IntMatrix:
        """The rankings."""
        return np.ascontiguousarray(self.shown[:, 0])

    @property
    def probabilities(self) -> Vector:
        """Of the rankings."""
        return np.ascontiguousarray(self.records[:, 0])

    def evidence(self) -> RankEvidence:
        """By column."""
        rows = self.rows[0] if self.rows.shape[1] == 0 else Column(self.rows)
        return RankEvidence(Column(self.users), rows)

    def outlooks(self) -> Column | None:
        """By column, where there are any."""
        if not self.looked:
            return None
        k = self.looks.size
        outlooks = self.records[:, 1 + _PARTS * k : 1 + (_PARTS + 2) * k]
        return Column(np.ascontiguousarray(outlooks).reshape(-1, 2, k))

    def expectations(self) -> Vector:
        """How likely each slot is exposed, the same for all."""
        return self.looks

    def expected(self, i: int) -> Vector:
        """How likely each slot is exposed."""
        return self.looks


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every ranker and every ranking policy can be given.

    Parameters
    ----------
    exploration: multiplies the confidence widths, 1 = theory; or "pointwise", a bonus by what a
        reward can vary at its estimate, as in `LinUCB`, without a guarantee
    ridge: penalty of the regression, > 0 (the theorem asks for feature_norm^2 n_slots)
    delta: the confidence level delta' of the theorem
    exposure: which items count as exposed: "observed", as in the feedback; "shown", all of the
        ranking; "until_last_click", those down to the last that earned something
    randomize: the chance of swapping two neighbouring slots, logged exactly in `probability`
    position_weights: how likely each slot is exposed, best first, for what is expected of open
        decisions and for iterate="expected"; None: as often as it was
    """

    exploration: Exploration = 1.0
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
        return {f.name: getattr(self, f.name) for f in fields(Settings)}


class Ranker(Settings):
    """A rule over one ridge regression: the contract Base, for rankings."""

    rule: ClassVar[Kernel[..., None]]
    counts: ClassVar[bool] = False
    """Whether the rule uses how often items were exposed and shown."""

    def rule_params(self, problem: Problem) -> Vector:
        """What the rule's kernel takes as params."""
        return np.empty(0)

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

    def forecasts(self) -> bool:
        """It can estimate a reward vector."""
        return True

    def _params(self, problem: Problem) -> Vector:
        """Radii of the estimates: rewards of one item have 1/slots of the range of their sum."""
        level = 2.0 * math.log(3.0 * len(problem.rewards) / self.delta)
        noise = noise_scales(problem, problem.slot_ranges)
        prior = math.sqrt(self.ridge) * parameter_norms(problem, problem.slot_ranges)
        exploration = exploration_number(self.exploration)
        head = [exploration, level, self.randomize]
        ranges = problem.slot_ranges.ravel() if exploration < 0.0 else ()
        return np.concatenate([head, noise, prior, self.rule_params(problem), ranges])

    def draws(self, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
        """What a ranking draws, a row for each of n rounds."""
        slots = problem.n_slots or 0
        return rng.random((n, 1 + slots // 2)) if self.randomize > 0.0 else np.empty((n, 0))

    def kernels(self, problem: Problem) -> tuple[Kernel[..., Any], ...]:
        """What `act` and `update` call."""
        ranking = (rank_rows, type(self).rule, estimates_of(sizes(problem)[1]), look_along)
        opening = (uniforms_by_number, expect_rankings, withdraw_ranking)
        learning = (tally_slots, take_in_and_settle, take_in_rows, absorb_items)
        return *ranking, *opening, *learning

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

        With `look`, a slope like the direction and the doubt, the choice has what `tally` needs.
        """
        problem = state.problem
        if type(context) is Candidates:
            given = fitting(context, problem)
        else:
            given = Ranking(problem, self.catalogue(state)).read(context)
        n = given.ids.size
        g = np.ascontiguousarray(direction, dtype=np.float64)
        if g.shape != (n + len(problem.rewards),):
            raise InvalidInput(
                f"the direction has shape {g.shape}; give {n} numbers for the candidates and "
                f"{len(problem.rewards)} for the rewards"
            )
        nothing = np.empty(0)
        slope, doubt = (nothing, nothing) if look is None else look
        frame = alone(g, slope, self.arrays(state, doubt, False))
        lined_up = given._replace(places=_NO_STARTS)
        ranking = self.act_rows(state, lined_up, frame.words, ALONE, rng, look is not None)
        choice = ranking.choice(0)
        if not estimate:
            return choice
        expected = self._estimate(state, given, choice, ranking.looks)
        return choice._replace(info=choice.info._replace(estimate=expected))

    def arrays(
        self, state: RankState, doubt: Vector, keep: bool, by_chance: bool = False
    ) -> list[Any]:
        """Those of a frame, from BASE on. keep: whether directions are kept; by_chance: whether
        chances of exposure are averaged.
        """
        problem = state.problem
        limit, code = row_limit(problem, self.ridge), EXPOSURES.index(self.exposure)
        kernels = (type(self).rule, estimates_of(sizes(problem)[1]), look_along, absorb_items)
        addresses = [one.address for one in kernels]
        settings = [limit * limit, self.owed, code, by_chance, keep, take_in_and_settle.address]
        rule = np.array([*addresses, *settings], dtype=np.float64)
        gram, inverse, theta, moment, params, counters = state.oracle
        design = (theta, inverse, gram, moment, params, counters, state.params, doubt)
        counts = (state.exposed, state.shown, state.slots, self._weights, state.features)
        return [rule, *design, *counts, problem.slot_ranges, later_of(*sizes(problem))]

    def act_rows(
        self,
        state: RankState,
        given: Candidates,
        words: IntVector,
        course: Any,
        rng: Any,
        look: bool,
        keep: int = 0,
        starts: IntVector = _NO_STARTS,
        reasons: bool = True,
    ) -> RankRows:
        """Rank for one user, or for some in a row, (rows, p); only reads the state.

        words: of a frame with `arrays`; course: what gives directions, see `COURSE`; rng: a
        generator, or `Numbered` draws; keep: how many numbers of directions are kept; starts: where
        the candidates of each row begin in `given.places`, which are then columns of its items;
        reasons: whether rankings can be explained. Fewer rows than there are users come back where
        the direction of the next is not finite.
        """
        problem = state.problem
        users = given.user if given.user.ndim == 2 else given.user[None]
        n_rows, slots, q = len(users), problem.n_slots or 0, len(given.items)
        pinned = given.pinned if given.pinned.ndim == 2 else given.pinned[None]
        if len(pinned) < n_rows:
            pinned = np.empty((n_rows, 0), dtype=np.int64)
        shown = np.empty((n_rows, 3 if reasons else 2, slots), dtype=np.int64)
        parts = 1 + (_PARTS + 2 if look else _PARTS) * slots
        records, looks = np.empty((n_rows, parts + keep)), np.empty(slots)
        rank: Any = rank_rows.call
        done: int = rank(
            words,
            *course,
            look,
            users,
            given.items,
            given.ids,
            given.places,
            starts,
            pinned,
            self._drawn(rng, problem, n_rows),
            records,
            shown,
            looks,
        )
        if done < 0:
            refuse(state.oracle.counters)
        rows = np.empty((1, 0, q))
        if not given.kept:
            rows = np.ascontiguousarray(given.items.T[shown[0, 1]])[None]
        return RankRows(done, records, shown, looks, users.copy(), rows, look)

    @cached_property
    def _weights(self) -> Vector:
        return _NO_WEIGHTS if self.position_weights is None else np.array(self.position_weights)

    def _drawn(self, rng: Any, problem: Problem, n: int) -> Matrix:
        """`draws`, of a generator or by the numbers of the decisions."""
        if type(rng) is not Numbered:
            return self.draws(rng, problem, n)
        slots = problem.n_slots or 0
        return uniforms(rng, n, 1 + slots // 2 if self.randomize > 0.0 else 0)

    # --- open decisions -----------------------------------------------------------------------

    def blocks(self, problem: Problem) -> tuple[int, int]:
        """How many blocks of how many features the sums of open decisions have."""
        return 1, problem.dimension

    def expect_rows(self, state: RankState, choices: RankRows, words: IntVector) -> None:
        """Count rankings among the open decisions."""
        columns = (choices.shown, choices.looks, choices.users, choices.rows)
        if expect_rankings.call(words, *columns) < 0:
            raise self._wild(state, Choice(0, None, choices.evidence()))

    def expect_columns(
        self, state: RankState, actions: IntMatrix, evidence: Any, looks: Any, words: IntVector
    ) -> None:
        """Count rankings among the open decisions, by columns that may come from bytes."""
        user, rows = self._columns(state, actions, evidence, looks)
        if expect_rankings.call(words, actions[:, None], looks, user, rows) < 0:
            raise self._wild(state, Choice(0, None, evidence))

    def expect(self, state: RankState, choice: Choice, looks: Any, words: IntVector) -> None:
        """Count a ranking among the open decisions."""
        items, user, rows = self._opened(state, choice, looks)
        if expect_rankings.call(words, items[None, None], looks, user[None], rows[None]) < 0:
            raise self._wild(state, choice)

    def withdraw(
        self,
        state: RankState,
        choice: Choice,
        looks: Any,
        words: IntVector,
        place: int,
        joined: tuple[int, int],
    ) -> None:
        """Take a ranking that gets no answer out of the open decisions."""
        items, user, rows = self._opened(state, choice, looks)
        if withdraw_ranking.call(words, items, looks, user, rows, place, *joined) < 0:
            raise self._wild(state, choice)

    def _opened(
        self, state: RankState, choice: Choice, looks: Any
    ) -> tuple[IntVector, Vector, Matrix]:
        user, rows = self._features(state, choice)
        items, slots = np.ascontiguousarray(choice.action), state.slots.shape[1]
        fits = items.dtype == np.int64 and items.shape == (slots,)
        if not (fits and _is_plain(looks, (slots,)) and np.isfinite(looks).all()):
            raise self._wild(state, choice)
        return items, user, rows

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
        if outlook.shape != (2, observation.exposed.size) or not outlook.flags.carray:
            return np.empty(0)
        tallied = np.empty(TALLY)
        tally_slots.call(outlook, observation.exposed, tallied)
        return tallied

    def _estimate(
        self, state: RankState, given: Candidates, choice: Choice, chance: Vector
    ) -> Vector:
        """The reward vector to expect, each slot exposed with its chance."""
        problem, ranking = state.problem, choice.info.reasons.shown[1]
        rows = given.items[:, ranking]
        theta = state.oracle.theta[0].reshape(len(problem.rewards), given.user.size, -1)
        each = np.einsum("a,rae,ek->kr", given.user, theta, rows)
        low, high = problem.slot_ranges
        total = np.zeros(state.exposed.size + len(problem.rewards))
        total[choice.action] = chance
        total[state.exposed.size :] = chance @ np.clip(each, low, high)
        return total

    def update(
        self, state: RankState, choice: Choice, direction: Vector, observation: Any
    ) -> RankState:
        """Learn from the items that were exposed, in place."""
        kind = Ranking(state.problem, self.catalogue(state), self.exposure)
        shown = kind.observe(choice.action, observation).observation
        user, rows = self._features(state, choice)
        nothing = np.empty(0)
        frame = alone(nothing, nothing, self.arrays(state, nothing, False))
        lesson = (np.ascontiguousarray(choice.action), user, rows, shown.exposed, shown.rewards)
        self._judge(state, choice, take_in(frame.words, *lesson, state.exposed.size))
        return state

    commits: ClassVar[bool] = True

    def commit(
        self,
        state: RankState,
        choice: Choice,
        observation: Shown,
        words: IntVector,
        settling: tuple[Any, ...],
        view: Vector,
    ) -> int:
        """`update` with a checked observation, and `settle`, in one call."""
        at_once: Any = take_in_and_settle.call
        user, rows = self._features(state, choice)
        items = np.ascontiguousarray(choice.action)
        reward, rho, followed, tallied, *rest = settling
        due: int = at_once(
            words,
            items,
            user,
            rows,
            observation.exposed,
            observation.rewards,
            reward,
            rho,
            followed,
            tallied,
            view,
            *rest,
        )
        self._judge(state, choice, due)
        return due

    folds: ClassVar[bool] = True

    def fold_rows(
        self,
        state: RankState,
        actions: IntMatrix,
        evidence: Any,
        shown: Shown,
        words: IntVector,
        live: tuple[Matrix, Cube | None],
        looks: Any,
    ) -> Callable[..., int]:
        """What learns from the feedback to rankings in a row: a function of where it starts,
        followed, number and places, see `take_in_rows`. Evidence, live (a tally and outlooks) and
        looks are by column and may come from bytes.
        """
        n, slots, n_items = len(actions), state.slots.shape[1], state.exposed.size
        tallied, outlooks = live
        if outlooks is None:
            outlooks = np.empty((0, 2, slots))
        user, rows = self._columns(state, actions, evidence, looks)
        if outlooks.shape[1:] != (2, slots) or len(outlooks) not in (0, n):
            raise self._wild(state, Choice(0, None, evidence))
        columns = (actions, user, rows, shown.exposed, shown.rewards)
        promises = np.ascontiguousarray(outlooks)

        def fold(start: int, followed: Matrix, number: float, places: IntVector, *_: Any) -> int:
            joined = (n_items, n_items)
            done: int = take_in_rows(
                words, start, *columns, promises, looks, followed, tallied, number, places, *joined
            )
            self._judge(state, Choice(0, None, evidence), done)
            return done

        return fold

    def _columns(
        self, state: RankState, actions: IntMatrix, evidence: Any, looks: Any
    ) -> tuple[Matrix, Cube]:
        """The users (n, p) and rows (n, slots, q) of rankings, by column; they may come from bytes.
        rows is (1, 0, q) where the state keeps the features. Which items they show is for the
        kernels to judge.
        """
        p, q = sizes(state.problem)
        n, slots = len(actions), state.slots.shape[1]
        try:
            user, rows = evidence[0].values, evidence[1]
            rows = rows.values if type(rows) is Column else rows[None]
            fits = _is_plain(user, (n, p))
            if rows.shape == (1, 0, q):
                fits = fits and state.features.shape[1] > 0
            else:
                fits = fits and _is_plain(rows, (n, slots, q))
            fits = fits and _is_plain(looks, (slots,)) and np.isfinite(looks).all()
            fits = bool(fits and actions.shape == (n, slots) and actions.flags.carray)
        except (TypeError, ValueError, AttributeError, IndexError):
            fits = False
        if not fits:
            raise self._wild(state, Choice(0, None, evidence))
        return user, rows

    def _judge(self, state: RankState, choice: Choice, code: int) -> None:
        """Raise for what a kernel rejected."""
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

    def _features(self, state: RankState, choice: Choice) -> tuple[Vector, Matrix]:
        """Of the user, and of the items of the ranking, unless the state keeps those of all.
        Evidence may come from bytes of any source.
        """
        evidence, problem = choice.evidence, state.problem
        if not isinstance(evidence, tuple) or len(evidence) != 2:
            raise self._wild(state, choice)
        user, rows = evidence
        p, q = sizes(problem)
        kept = state.features.shape[1] > 0
        if type(rows) is np.ndarray and rows.shape != (0, q):
            kept = False  # the context brought them
        few = 0 if kept else state.slots.shape[1]
        if not (_is_plain(user, (p,)) and _is_plain(rows, (few, q))):
            raise self._wild(state, choice)
        return user, rows

    @property
    def ridge_used(self) -> float:
        """The penalty of the regression."""
        return self.ridge

    def repair(self, state: RankState) -> float:
        """Recompute the inverse and the estimates from the design; how large their error was."""
        nothing, none = np.empty(0), np.empty((0, 0))
        of = state.oracle
        return repair(of, lambda: absorb_items(nothing, none, none, none, none, *of))

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

    owed: ClassVar[float] = 0.0
    """The share of the rankings that an item must be shown in. One that arrives late is assumed to
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
