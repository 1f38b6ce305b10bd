"""`RankingKind`: items are shown in order; what was exposed, and what it earned, comes back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice, permutations
from typing import Any, ClassVar, Literal, NoReturn, Self, get_args

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector, for_kernels
from fairwolfe.core.candidates import (
    NONE,
    Candidates,
    Catalogue,
    fitting,
    id_list,
    read_candidates,
    sizes,
)
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.feedback import Shown, Staged, stage_answers, stages_in
from fairwolfe.core.groups import Groups
from fairwolfe.core.kinds import Answer, Answers, Kind, Rewards, Stack, finite_number, random_rows
from fairwolfe.core.problem import Problem, all_finite, is_list, real_array
from fairwolfe.core.tables import short
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.gates import any_outside, contradiction, largest_square_product
from fairwolfe.kernels.ranks import count_exposures

Exposure = Literal["observed", "shown", "until_last_click"]

EXPOSURES: tuple[Exposure, ...] = get_args(Exposure)
"""As the feedback says; every item shown; every item down to the last that earned something."""

_COIN, _FINITE, _EARNED, _TWICE = 1, 2, 3, 5  # what can be wrong with a slot: kernels/ranks.pxd
_LISTED = 1000  # rankings: all of up to six items, some of more
_ONE = np.ones(1)
_EXPOSED = 0.7  # of the slots, in random feedback


class RankingKind(Kind):
    """`n_slots` of the items are shown in order; the reward vector begins with their exposures.

    Parameters
    ----------
    problem: with all items that there ever were
    catalogue: which of them are left, and their features where these are kept; None: all are left
    exposure: which items count as exposed: "observed", as the feedback says; "shown", all of the
        ranking; "until_last_click", those down to the last that earned something

    >>> kind = RankingKind(Problem.ranking(n_items=4, n_slots=2, n_features=1))
    >>> kind.read_feedback(np.array([2, 0]), None, exposed=[2, 0], clicked=[0]).reward.tolist()
    [1.0, 0.0, 1.0, 0.0, 1.0]
    """

    name: ClassVar[str] = "ranking"
    checked: ClassVar[type | None] = Candidates
    first_leads: ClassVar[bool] = True

    def __init__(
        self,
        problem: Problem,
        catalogue: Catalogue | None = None,
        exposure: Exposure = "observed",
    ) -> None:
        super().__init__(problem)
        self.catalogue = Catalogue.of(problem) if catalogue is None else catalogue
        self.exposure = exposure
        self.n_slots, self.n_rewards = problem.n_slots or 0, len(problem.rewards)
        self._code = EXPOSURES.index(exposure)
        low, high = problem.slot_ranges  # a slot earns its share of the range of the sum
        self.rewards = Rewards(tuple(problem.rewards), low, high)
        self._user_shape = sizes(problem)[:1]
        self._kept = self.catalogue.left()
        if self._kept.shape[1] and self.catalogue.largest is None:
            largest = largest_square_product(_ONE, np.ascontiguousarray(self._kept))
            self.catalogue = self.catalogue._replace(largest=largest)
        self._seen = problem
        self.coordinates: IntVector | None = None
        left, ever = self.catalogue.ids, problem.n_items or 0
        if left.size < ever:
            self._seen = _shrunk(problem, left.size)
            users = np.arange(ever, problem.n_objectives)
            self.coordinates = np.concatenate([left, users])

    @classmethod
    def example(cls) -> Problem:
        ranges = {"clicks": (0.0, 3.0), "gain": (-1.5, 6.0)}
        return Problem.ranking(6, 3, (2, 3), ranges, parameter_norm=1.0)

    def _is(self, other: Any) -> bool:
        same = self.problem == other.problem and self.exposure == other.exposure
        mine, theirs = self.catalogue, other.catalogue
        same_items = np.array_equal(mine.ids, theirs.ids) and mine.total == theirs.total
        same_items = same_items and mine.attributes == theirs.attributes
        return same and same_items and np.array_equal(mine.features, theirs.features)

    def fitted(self, base: Any) -> Self:
        """With the base's rule of what counts as exposed."""
        exposure = getattr(base, "exposure", self.exposure)
        if exposure == self.exposure:
            return self
        return type(self)(self.problem, self.catalogue, exposure)

    def holding(self, catalogue: Catalogue) -> Self:
        """The same with other items: all that there ever were are in the catalogue."""
        return type(self)(_shrunk(self.problem, catalogue.total), catalogue, self.exposure)

    # --- the gates ----------------------------------------------------------------------------

    def read(self, context: Any, **options: Any) -> Candidates:
        """A Bilinear context, a row of features for each item, or the user where items are kept.

        options: `candidates` and `blocked`, ids; `pinned`, slot -> id; `names`, what items are
        called in errors, by id.
        """
        if type(context) is Candidates:
            if options:
                raise InvalidInput(
                    f"the context has been read, and {' and '.join(options)} cannot be added; give "
                    "them with the features themselves"
                )
            return fitting(context, self.problem)
        items = self._kept
        if type(context) is np.ndarray and not options and items.shape[1]:
            plain = context.dtype == np.float64 and context.flags.carray
            if plain and context.shape == self._user_shape:
                norm = math.sqrt(self._square_product(context))
                if norm < math.inf:  # and so the features are finite
                    return Candidates(context, items, self.catalogue.ids, NONE, NONE, True, norm)
        return read_candidates(context, self.problem, self.catalogue, **options)

    def _square_product(self, user: Vector) -> float:
        """max_i |user (x) item_i|^2 of the items that are kept."""
        return float(self.catalogue.largest * largest_square_product(user, _ONE[None]))  # type: ignore[operator]

    def _items(self, action: Any) -> IntVector:
        fits = type(action) is np.ndarray and action.dtype == np.int64
        if not fits or action.shape != (self.n_slots,):
            raise InvalidInput(
                f"the action is {short(action, 80)}, of another problem; rankings have "
                f"{self.n_slots} ids here, an int64 array"
            )
        return np.ascontiguousarray(action)

    def observe(self, action: Any, feedback: Any) -> Answer:
        """A Shown: by slot, what was exposed and what it earned."""
        if type(feedback) is Answer:
            if feedback.reward.size == self.problem.n_objectives:
                return feedback
            feedback = feedback.observation  # items have come since it was read
        return self._answer(action, arrays(feedback, self.n_slots, self.n_rewards), "")

    def _answer(self, action: Any, shown: Shown, outside: str) -> Answer:
        items = self._items(action)
        if self.problem.n_stages > 1:
            return self._answer_stages(items, shown, outside)
        total, exposed = np.zeros(self.problem.n_objectives), np.empty(self.n_slots)
        wrong = count_exposures(self._code, items, shown.exposed, shown.rewards, exposed, total)
        if wrong:
            raise feedback_error(wrong, items, shown)
        return Answer(Shown(exposed, shown.rewards), total, outside)

    def _answer_stages(self, items: IntVector, shown: Shown, outside: str) -> Answer:
        """An answer of some stages, NaN for the others; the first says what was exposed."""
        m, k, stop = self.problem.n_items or 0, self.n_slots, self.known_starts[1]
        table = self.table(shown)
        given = stages_in(self.known_starts, table)
        wanted = np.zeros(table.shape, bool)
        for stage in given:
            wanted[:, self.known_starts[stage] : self.known_starts[stage + 1]] = True
        odd = (np.isfinite(table) != wanted).any(axis=1)
        if odd.any() or not given:
            raise feedback_error(_FINITE * k + int(odd.argmax()), items, shown)
        total = np.append(np.full(m, np.nan), shown.rewards.sum(axis=0))
        exposed = np.full(k, np.nan)
        if 0 in given:
            first, counted = shown.rewards[:, : stop - 1].copy(), np.zeros(m + stop - 1)
            wrong = count_exposures(self._code, items, shown.exposed, first, exposed, counted)
            if wrong:
                raise feedback_error(wrong, items, shown)
            total[: counted.size] = counted
        return Answer(Shown(exposed, shown.rewards), total, outside)

    @property
    def known_shape(self) -> tuple[int, ...]:
        return self.n_slots, 1 + self.n_rewards

    @cached_property
    def known_starts(self) -> tuple[int, ...]:
        return (0, *(1 + i - (self.problem.n_items or 0) for i in self.problem.stage_starts[1:]))

    def table(self, observation: Any) -> Any:
        """By slot: the exposure, then the rewards; also of columns."""
        exposed, rewards = observation
        return np.concatenate([exposed[..., None], rewards], axis=-1)

    def settled(self, table: Any) -> Any:
        """With what counts as exposed; nothing else has earned anything."""
        table, seen = table.copy(), table[..., :1]
        if self.exposure == "until_last_click":
            earned = (table[..., 1 : self.known_starts[1]] != 0.0).any(axis=-1, keepdims=True)
            seen = np.logical_or.accumulate(earned[..., ::-1, :], axis=-2)[..., ::-1, :]
        table[..., :1] = 1.0 if self.exposure == "shown" else seen
        unseen = (table[..., :1] == 0.0) & np.isfinite(table)
        unseen[..., 0] = False
        table[unseen] = 0.0
        return table

    def stages(self, action: Any, table: Any, before: Any = None) -> Staged:
        """A later stage is learnt with the first or after it, since that has the exposures."""
        starts, learnt = self.known_starts, []
        given = stages_in(starts, table)
        again = [] if before is None else stages_in(starts, before)
        known = table if before is None else np.where(np.isnan(table), before, table)
        if 0 in given:  # with those that were kept for it
            learnt = stage_answers(starts, known)
        elif 0 in again:
            learnt = stage_answers(starts, table, before)
        unseen = (np.nan_to_num(known[:, 1:]) != 0.0).any(axis=1) & (known[:, 0] == 0.0)
        if learnt and unseen.any():
            wrong = _EARNED * self.n_slots + int(unseen.argmax())
            raise feedback_error(wrong, action, Shown(known[:, 0], known[:, 1:]))
        return Staged(given, [s for s in given if s in again], learnt, known)

    def read_feedback(self, action: Any, reward: Any, **options: Any) -> Answer:
        """A Shown; or ids in `exposed` and `clicked`, and other rewards by name and item.

        `exposed` must be given where it is observed, and every reward of the problem, by name or
        as `clicked`, unless nothing was exposed; within a reward, items that are not there earned
        0. `names`: the names of the shown items, by slot. `missing`: 0.0 for rewards that are None
        or missing; without it they raise an error.
        """
        names, missing = options.pop("names", None), options.pop("missing", None)
        if missing is not None and missing != 0.0:
            raise InvalidInput(
                f"missing is {missing!r:.80}; a missing reward of a ranking counts as 0, so give 0."
            )
        if type(reward) is Shown and not options:
            shown = Shown(
                real_array("exposed of Shown(exposed, rewards), by slot,", reward.exposed),
                real_array("rewards of Shown(exposed, rewards), by slot,", reward.rewards),
            )
            if self.problem.n_stages > 1 and not all_finite(np.append(*shown)):
                raise InvalidInput(
                    "a Shown answers all stages, and this one has numbers that are not finite; "
                    "give the rewards of one stage by name and item"
                )
        else:
            slots = _Slots(self._items(action), names)
            shown = self._shown(slots, reward, missing is not None, **options)
        given = arrays(shown, self.n_slots, self.n_rewards)
        far = any_outside(given.rewards, self.rewards.low, self.rewards.high)
        rewards = given.rewards
        if far and self.problem.n_stages > 1:  # 0 for the stages that it does not answer
            rewards = np.where(np.isnan(rewards), 0.0, rewards)
        known = far and all_finite(rewards)  # else the answer raises an error
        return self._answer(action, given, self.rewards.outside(rewards) if known else "")

    def _shown(
        self, slots: _Slots, reward: Any, fill: bool, exposed: Any = None, clicked: Any = None
    ) -> Shown:
        names, k, starts = self.rewards.names, self.n_slots, self.known_starts
        if isinstance(reward, Mapping) and exposed is None and clicked is None:
            reward = dict(reward)
            exposed, clicked = reward.pop("exposed", None), reward.pop("clicked", None)
        if isinstance(reward, Shown):
            raise InvalidInput("a Shown has every slot; leave out exposed and clicked")
        if not (reward is None or isinstance(reward, Mapping)):
            raise InvalidInput(
                f"the feedback of a ranking is {reward!r:.80}; give exposed=ids and clicked=ids, "
                'or rewards by name and item such as {"minutes": {12: 3.5}}'
            )
        stages = self._named_stages(reward or {}, exposed, clicked)
        if self.exposure == "observed" and exposed is None and 0 in stages:
            if not fill:
                raise InvalidInput(
                    "the exposed items are missing; give exposed=ids (none: []), or use "
                    "a policy with exposure='shown' or 'until_last_click'"
                )
            exposed = []
        given = {name: earned for name, earned in (reward or {}).items() if earned is not None}
        if clicked is not None:
            name = "clicks" if "clicks" in names else names[0]
            if name in given or ("clicks" not in names and len(names) > 1):
                raise InvalidInput(
                    f"clicked is given, and so are rewards by name; give clicks once, and name "
                    f"the others: {', '.join(names)}"
                )
            given[name] = clicked
            if not isinstance(clicked, Mapping):
                given[name] = slots.numbers("clicked", clicked)
        self.rewards.refuse_unknown(reward or ())
        coins, rewards = np.full(k, np.nan), np.full((k, len(names)), np.nan)
        for stage in stages:
            rewards[:, max(starts[stage] - 1, 0) : starts[stage + 1] - 1] = 0.0
        if 0 in stages:
            coins[:] = 0.0
        listed = [] if exposed is None else slots.numbers("exposed", exposed)
        open_slots = slots.places("exposed", listed)
        coins[open_slots] = 1.0
        for stage in stages:
            own = self.problem.stage_names[stage]
            lacking = [name for name in own if name not in given]
            # If exposures are observed and nothing was exposed, nothing can have been earned.
            empty = stage == 0 and self.exposure == "observed" and not open_slots
            if lacking and not fill and not empty:
                how = " by item (clicks as clicked=ids, none: [])"
                self.rewards._replace(names=own).refuse_missing(lacking, how)
        for name, earned in given.items():
            slots.fill(rewards[:, names.index(name)], name, earned, fill)
        unseen = np.nan_to_num(rewards).any(axis=1) & (coins == 0.0)
        if exposed is not None and unseen.any():
            raise InvalidInput(
                f"item {slots.called[int(unseen.argmax())]!r:.80} earned something but is not "
                "among the exposed; only what was exposed can be clicked, so add it to exposed"
            )
        return Shown(coins, rewards)

    def _named_stages(self, reward: Mapping[str, Any], exposed: Any, clicked: Any) -> list[int]:
        """The stages that feedback names: of each, one reward or the exposures."""
        each, names = self.problem.stage_names, self.rewards.names
        if len(each) == 1:
            return [0]
        named = set(reward)
        if exposed is not None:
            named.add(names[0])
        if clicked is not None:
            named.add("clicks" if "clicks" in names else names[0])
        stages = [stage for stage, own in enumerate(each) if named.intersection(own)]
        if not stages:
            self.rewards.refuse_unknown(reward)
            parts = " | ".join(", ".join(own) for own in each)
            raise InvalidInput(
                f"the feedback is {reward!r:.80}; give all rewards of at least one stage of "
                f"{parts}, with exposed=ids for the first"
            )
        return stages

    # --- the gates, for many at once ------------------------------------------------------------

    def read_many(self, contexts: Any, options: Sequence[Mapping[str, Any]] = ()) -> Stack:
        """An array (users, features) where items are kept, or a list of contexts."""
        items, p = self._kept, self._user_shape[0]
        plain = type(contexts) is np.ndarray and contexts.ndim == 2 and items.shape[1]
        if plain and contexts.shape[1] == p and len(contexts) and not options:
            users = for_kernels(contexts)
            squares = np.einsum("ij,ij->i", users, users)
            largest = squares.argmax()
            norm = math.sqrt(self._square_product(users[largest]))
            if norm < math.inf and squares[largest] < math.inf:  # and so all of them are finite
                ids = self.catalogue.ids
                given = Candidates(users, items, ids, NONE, NONE, True, norm)
                return Stack(len(users), given, norm)
        return super().read_many(contexts, options)

    def stacked(self, given: list[Any]) -> Stack:
        stack = super().stacked(given)
        if not given or not all(one.kept for one in given):
            return stack
        users = np.array([one.user for one in given])
        pinned = NONE
        if any(one.pinned.size for one in given):
            free = np.full(self.n_slots, -1, dtype=np.int64)
            pinned = np.array([one.pinned if one.pinned.size else free for one in given])
        ids, everything = self.catalogue.ids, np.arange(self.catalogue.ids.size)
        how: dict[str, Any] = {}
        picks = NONE
        if any(one.places.size for one in given):
            lists = [one.places if one.places.size else everything for one in given]
            sizes_ = np.array([0, *map(len, lists)])
            picks, how["starts"] = np.concatenate(lists), np.cumsum(sizes_)
        together = Candidates(users, self._kept, ids, picks, pinned, True, stack.norm)
        return stack._replace(given=together, how=how)

    def single(self, stack: Stack, i: int) -> Any:
        given = stack.given
        if isinstance(given, list):
            return given[i]
        items, ids, places = given.items, given.ids, NONE
        if "starts" in stack.how:
            starts = stack.how["starts"]
            places = given.places[starts[i] : starts[i + 1]]
            items, ids = np.ascontiguousarray(items[:, places]), ids[places]
        pinned = given.pinned[i] if given.pinned.size else NONE
        return Candidates(given.user[i], items, ids, places, pinned, True, stack.norm)

    def read_feedback_many(
        self, actions: Any, rewards: Any, options: Sequence[Mapping[str, Any]] = ()
    ) -> Answers | list[Answer]:
        """A Shown of arrays (decisions, slots) and (decisions, slots, rewards), or a list of what
        `read_feedback` takes.
        """
        if type(rewards) is Shown and self.problem.n_stages > 1:
            rewards = list(map(Shown, *rewards))
        if type(rewards) is not Shown or options:
            return super().read_feedback_many(actions, rewards, options)
        named = zip(("the exposures", "the rewards"), rewards, strict=True)
        exposed, earned = (real_array(name, part) for name, part in named)
        if not (exposed.flags.carray and earned.flags.carray):  # such as those that are read-only
            exposed, earned = exposed.copy(), earned.copy()
        shape = (len(actions), self.n_slots)
        if isinstance(actions, list):  # of a policy in Python
            alike = all(np.shape(action) == shape[1:] for action in actions)
            actions = np.array(actions if alike else [()] * len(actions), dtype=np.int64)
        if actions.shape != shape:
            raise InvalidInput(
                f"the rankings have the shape {actions.shape}; the problem has {self.n_slots} slots"
            )
        if exposed.shape != shape or earned.shape != (*shape, self.n_rewards):
            raise InvalidInput(
                f"the feedback has exposures of shape {exposed.shape} and rewards of shape "
                f"{earned.shape}; give {shape} and {(*shape, self.n_rewards)}"
            )
        low, high = self.rewards.low, self.rewards.high
        outside = 0, ""
        by_slot = earned.reshape(len(actions) * self.n_slots, self.n_rewards)
        if any_outside(by_slot, low, high):
            outside = self.rewards.outside_any(self.rewards.far(earned, True), earned)
        wrong = contradiction(self._code, actions, exposed, earned, self.problem.n_objectives)
        if wrong >= 0:
            try:
                self._answer(actions[wrong], Shown(exposed[wrong], earned[wrong]), "")
            except InvalidInput as error:
                raise InvalidInput(f"answer {wrong}: {error}") from error
        return Answers(Shown(exposed, earned), *outside)

    def columns(self, observations: list[Any]) -> Shown:
        exposed = np.array([one.exposed for one in observations]).reshape(-1, self.n_slots)
        earned = np.array([one.rewards for one in observations])
        return Shown(exposed, earned.reshape(-1, self.n_slots, self.n_rewards))

    # --- what f sees --------------------------------------------------------------------------

    def groups(self, by: Sequence[str]) -> Groups | None:
        return Groups.of(by, self.catalogue.attributes, self.catalogue.ids)

    @property
    def seen(self) -> Problem:
        """Without the retired items."""
        return self._seen

    def sees(self, vector: Vector) -> Vector:
        return vector if self.coordinates is None else vector[self.coordinates]

    def whole(self, vector: Vector) -> Vector:
        if self.coordinates is None:
            return vector
        out = np.zeros(self.problem.n_objectives)
        out[self.coordinates] = vector
        return out

    def aligned(self, vector: Vector, given: Candidates) -> Vector:
        """The numbers of the candidates, then those of the rewards."""
        if given.places.size == 0:
            return vector
        return np.concatenate([vector[given.places], vector[self.catalogue.ids.size :]])

    def joined(self, size: int | None) -> tuple[int, int]:
        """Items that were added after the decision: its feedback does not cover them."""
        stop = self.problem.n_items or 0
        return (stop if size is None else min(size - self.n_rewards, stop)), stop

    allowed: ClassVar[str] = (
        "return ids of different candidates as an int64 array, one for each slot, pinned items in "
        "theirs"
    )

    def allows(self, given: Candidates, action: Any) -> bool:
        if type(action) is not np.ndarray or action.dtype != np.int64:
            return False
        shown = action.tolist() if action.shape == (self.n_slots,) else []
        right = len(set(shown)) == self.n_slots and set(shown) <= set(given.ids.tolist())
        pins = given.pinned.tolist()
        return right and all(row < 0 or given.ids[row] == shown[j] for j, row in enumerate(pins))

    def reach(self, action: IntVector) -> int:
        return int(action.max()) + 1

    def caught_up(self, followed: Vector, running: Vector) -> Vector:
        old = followed.size - self.n_rewards
        if old >= (stop := self.problem.n_items or 0):
            return followed
        return np.concatenate([followed[:old], running[old:stop], followed[old:]])

    # --- reward vectors as a set ----------------------------------------------------------------

    def labels(self) -> tuple[str, ...]:
        return (*(f"item {i}" for i in self.catalogue.ids.tolist()), *self.problem.rewards)

    def extent(self, slope: Vector) -> tuple[float, float]:
        best, worst = self._by_item(slope)
        top = np.maximum(np.sort(best)[-self.n_slots :], 0.0).sum()
        # Every slot is filled, also where nothing good is left, and may or may not be exposed.
        least = np.minimum(np.sort(worst)[-self.n_slots :], 0.0).sum()
        return float(top), float(top - least)

    def _by_item(self, slope: Vector) -> tuple[Vector, Vector]:
        """The most and the least that an item can bring to <slope, z> if it is exposed."""
        m = self.seen.n_items or 0
        ranges = np.array(list(self.problem.rewards.values())) / self.n_slots
        ends = slope[m:, None] * ranges
        return slope[:m] + ends.max(axis=1).sum(), slope[:m] + ends.min(axis=1).sum()

    def corner(self, slope: Vector, z: Vector) -> Vector:
        point, m = super().corner(slope, z), self.seen.n_items or 0
        best = self._by_item(slope)[0]
        shown = np.argsort(best)[-self.n_slots :]
        shown = shown[best[shown] > 0.0]
        point[:m] = 0.0
        point[shown] = 1.0
        point[m:] *= shown.size / self.n_slots
        return point

    def middle(self) -> Vector:
        z, m = super().middle(), self.seen.n_items or 0
        z[:m] *= self.n_slots / m
        return z

    # --- for the conformance checks -------------------------------------------------------------

    def random_context(self, rng: np.random.Generator) -> Any:
        """Items of different norms, so that no two of them are equal before anything is known."""
        n, norm = self.problem.n_items or 0, self.problem.feature_norm
        pair = self.problem.n_features
        user = random_rows(rng, 1, pair[0], 1.0)[0] if isinstance(pair, tuple) else None
        q = pair[1] if isinstance(pair, tuple) else pair
        items = random_rows(rng, n, q, norm) * rng.uniform(0.5, 1.0, (n, 1))
        return items if user is None else Bilinear(user, items)

    def random_feedback(self, action: Any, rng: np.random.Generator) -> Shown:
        low, high = self.rewards.low, self.rewards.high
        exposed = (rng.random(self.n_slots) < _EXPOSED).astype(np.float64)
        earned = rng.uniform(low, high, (self.n_slots, low.size))
        return Shown(exposed, earned * exposed[:, None])

    def actions(self, context: Any, rng: np.random.Generator) -> list[Any]:
        order = rng.permutation(self.problem.n_items or 0)
        some = islice(permutations(order.tolist(), self.n_slots), _LISTED)
        return [np.array(ranking, dtype=np.int64) for ranking in some]


def _shrunk(problem: Problem, n_items: int) -> Problem:
    return problem if n_items == problem.n_items else replace(problem, n_items=n_items)


class _Slots:
    """The items of a ranking: in which slots they are, and what they are called there.

    `items` are ids, `called` the keys by slot, or the ids where there are none.
    """

    def __init__(self, items: IntVector, names: tuple[str, ...] | None) -> None:
        self.items: list[int] = items.tolist()
        self.called: Sequence[int | str] = self.items if names is None else names
        self._slots = dict(zip(self.items, range(len(self.items)), strict=True))
        self._keys = {} if names is None else dict(zip(names, self.items, strict=True))

    def numbers(self, what: str, given: Any) -> list[int]:
        """Ids of items that are given by id or key: keys are those of the shown items."""
        if not self._keys or not is_list(given):
            return id_list(what, given)
        listed = given.tolist() if isinstance(given, np.ndarray) else list(given)
        for one in listed:
            if isinstance(one, str) and one not in self._keys:
                self._refuse(what, one)
        return id_list(what, [self._keys[one] if isinstance(one, str) else one for one in listed])

    def places(self, what: str, listed: list[int]) -> list[int]:
        """The slots of items."""
        for item in listed:
            if item not in self._slots:
                self._refuse(what, item)
        places = [self._slots[item] for item in listed]
        if len(set(places)) < len(places):
            again = next(place for place in places if places.count(place) > 1)
            raise InvalidInput(
                f"item {self.called[again]!r:.80} is given twice in {what}; give it once"
            )
        return places

    def fill(self, column: Vector, name: str, earned: Any, zero: bool) -> None:
        """Write rewards of one name, item -> number or the items that earned 1, into a column by
        slot. zero: whether None is 0.
        """
        if not isinstance(earned, Mapping):
            try:
                ids = self.numbers(name, earned)
            except InvalidInput as error:
                if isinstance(earned, Iterable) and self._keys:
                    raise
                raise InvalidInput(
                    f"the reward {name!r} is {earned!r:.80}; a ranking needs {{item: number}}, "
                    f'such as {{"{name}": {{{self.called[0]!r}: 3.0}}}}, or the ids of the items '
                    "that earned 1"
                ) from error
            column[self.places(name, ids)] = 1.0
            return
        places = self.places(name, self.numbers(name, earned))
        for slot, value in zip(places, earned.values(), strict=True):
            if value is None and zero:
                continue
            number = f"the reward {name!r} of item {self.called[slot]!r:.80}"
            if value is None:
                raise InvalidInput(
                    f"{number} is None; give a number, or missing=0. to count 0 where none was "
                    "given"
                )
            column[slot] = finite_number(number, value)

    def _refuse(self, what: str, item: int | str) -> NoReturn:
        raise InvalidInput(
            f"item {item!r:.80} is given as {what}, but was not shown; the ranking was "
            f"{list(self.called)}"
        )


def arrays(feedback: Any, n_slots: int, n_rewards: int) -> Shown:
    """Feedback as arrays of the right sizes; `count_exposures` checks what they hold."""
    try:
        given, earned = feedback
        exposed: Vector = np.ascontiguousarray(given, dtype=np.float64)
        rewards: Matrix = np.ascontiguousarray(earned, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"the feedback of a ranking is {feedback!r:.80}; give Shown(exposed, rewards), by slot"
        ) from error
    if exposed.shape != (n_slots,) or rewards.shape != (n_slots, n_rewards):
        raise InvalidInput(
            f"the feedback has exposures of shape {exposed.shape} and rewards of shape "
            f"{rewards.shape}; give ({n_slots},) and ({n_slots}, {n_rewards}): one row for each "
            "slot"
        )
    return Shown(exposed, rewards)


def feedback_error(code: int, items: IntVector, shown: Shown) -> InvalidInput:
    """What `count_exposures` found wrong, in words."""
    what, slot = divmod(code, len(items))
    earned = shown.rewards[slot].tolist()
    words = {
        _COIN: f"the exposure of slot {slot} is {shown.exposed[slot]:g}; give 1 where the item was "
        "exposed, else 0",
        _FINITE: f"the rewards of slot {slot} are {earned}; give finite numbers",
        _EARNED: f"slot {slot} earned {earned} but was not exposed; only what was exposed can earn "
        "anything (where exposure is not observed, use exposure='shown' or 'until_last_click')",
        _TWICE: f"the action is {short(items, 80)}; a ranking shows an item once",
    }
    unknown = f"the ranking shows item {items[slot]}, which is not one of this problem"
    return InvalidInput(words.get(what, unknown))
