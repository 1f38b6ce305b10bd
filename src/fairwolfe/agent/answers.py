"""What an agent is told of a decision, in the forms that people have it, checked.

For arms: a vector, or a mapping by name. For rankings: which of the shown items were looked at and
what they earned, by the ids of the items.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.catalogue import id_list
from fairwolfe.core.feedback import Shown
from fairwolfe.core.problem import Problem, is_real, real_array
from fairwolfe.errors import InvalidInput, did_you_mean
from fairwolfe.kernels.limits import INSIDE, NOT_FINITE, any_outside, place_in_box

__all__ = ["Answers"]

_WILD = 1e6  # times its range: a reward that is refused


class Answers:
    """Reads answers for one problem."""

    __slots__ = ("high", "low", "names", "problem")

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.low, self.high = problem.low, problem.high
        self.names = tuple(problem.rewards)
        if problem.n_slots:  # a slot earns its share of the range of the sum
            self.low, self.high = problem.slot_ranges

    # --- arms ---------------------------------------------------------------------------------

    def vector(self, reward: Any) -> tuple[Vector, bool]:
        """A reward as a vector that fits the problem, and whether it is out of range."""
        n = self.low.size
        given = self._by_name(reward) if isinstance(reward, Mapping) else reward
        try:
            vector = real_array("the reward", given)
        except InvalidInput:
            self._refuse_by_name(given)
            raise
        if vector.shape != (n,):
            raise InvalidInput(
                f"the reward has shape {vector.shape}; give {n} numbers, in the order "
                f"{', '.join(self.names)}, or a mapping by name"
            )
        if not vector.flags.carray:
            vector = vector.copy()
        place = place_in_box(vector, self.low, self.high)
        if place == NOT_FINITE:
            self._refuse_by_name(vector)
        if place != INSIDE:
            self._refuse_wild(vector[None])
        return vector, place != INSIDE

    def _refuse_wild(self, rewards: Matrix) -> None:
        """A number so far out of range that it would drown all others is a mistake."""
        most = _WILD * np.maximum(np.maximum(abs(self.low), abs(self.high)), self.high - self.low)
        for row in rewards:
            for name, value, limit in zip(self.names, row, most, strict=True):
                if abs(value) > limit:
                    place = self.names.index(name)
                    raise InvalidInput(
                        f"the reward {name!r} is {value:g}; the problem says {self.low[place]:g} "
                        f"to {self.high[place]:g}, and beyond {limit:g} nothing can be learnt: "
                        "give the right number, or the problem another range"
                    )

    def _refuse_by_name(self, given: Any) -> None:
        """Name the first reward that is no finite number."""
        values = list(given) if isinstance(given, Iterable) and not isinstance(given, str) else []
        if len(values) == len(self.names):
            for name, value in zip(self.names, values, strict=True):
                _finite(f"the reward {name!r}", value)

    def _by_name(self, reward: Mapping[str, Any]) -> list[Any]:
        names = self.names
        if len(reward) != len(names) or any(name not in reward for name in names):
            self._refuse_strangers(reward)
            missing = ", ".join(name for name in names if name not in reward)
            raise InvalidInput(
                f"the reward lacks {missing}; give all of {', '.join(names)}, 0 where there was "
                "none"
            )
        return [reward[name] for name in names]

    def _refuse_strangers(self, reward: Mapping[str, Any]) -> None:
        for name in reward:
            if name not in self.names:
                raise InvalidInput(f"there is no reward {name!r}; {did_you_mean(name, self.names)}")

    def stranger(self, answer: Any) -> str:
        """What is out of range."""
        rewards = np.atleast_2d(answer.rewards if isinstance(answer, Shown) else answer)
        outside = ((rewards < self.low) | (rewards > self.high)) & (rewards != 0.0)
        row, place = np.argwhere(outside)[0].tolist()
        return (
            f"the reward {self.names[place]!r} is {rewards[row, place]:g}; the problem says "
            f"{self.low[place]:g} to {self.high[place]:g}"
        )

    # --- rankings -----------------------------------------------------------------------------

    def shown(
        self, items: Any, reward: Any, exposed: Any, clicked: Any, needed: bool
    ) -> tuple[Shown, bool]:
        """What came of a ranking, by slot, and whether a reward is out of range.

        `needed`: whether it must be said which items were looked at.
        """
        if isinstance(reward, Shown) and exposed is None and clicked is None:
            real_array("exposed of Shown(exposed, rewards), by slot,", reward.exposed)
            real_array("rewards of Shown(exposed, rewards), by slot,", reward.rewards)
            return reward, self._out_of_range(reward.rewards)
        if isinstance(reward, Mapping) and exposed is None and clicked is None:
            reward = dict(reward)
            exposed, clicked = reward.pop("exposed", None), reward.pop("clicked", None)
        if isinstance(reward, Shown):
            raise InvalidInput("a Shown tells of every slot; leave out exposed and clicked")
        if not (reward is None or isinstance(reward, Mapping)):
            raise InvalidInput(
                f"the feedback of a ranking is {reward!r:.80}; give exposed=ids and clicked=ids, "
                'or rewards by name and item such as {"minutes": {12: 3.5}}'
            )
        if needed and exposed is None:
            raise InvalidInput(
                "it is not said which items were looked at; give exposed=ids (none: []), or use a "
                "policy with exposure='shown' or 'until_last_click'"
            )
        given = dict(reward or {})
        if clicked is not None:
            name = "clicks" if "clicks" in self.names else self.names[0]
            if name in given or ("clicks" not in self.names and len(self.names) > 1):
                raise InvalidInput(
                    f"clicked is given, and so are rewards by name; give clicks once, and name "
                    f"the others: {', '.join(self.names)}"
                )
            given[name] = clicked if isinstance(clicked, Mapping) else id_list("clicked", clicked)
        self._refuse_strangers(given)
        listed = np.asarray(items).tolist()
        slots = dict(zip(listed, range(len(listed)), strict=True))
        looked, rewards = np.zeros(len(listed)), np.zeros((len(listed), len(self.names)))
        seen, earning = [], []
        if exposed is not None:
            seen = self._slots(slots, id_list("exposed", exposed), "exposed")
            looked[seen] = 1.0
        for name, earned in given.items():
            earning += self._fill(rewards[:, self.names.index(name)], slots, name, earned)
        if exposed is not None:
            self._refuse_unseen(listed, set(earning).difference(seen), rewards)
        return Shown(looked, rewards), self._out_of_range(rewards)

    def _out_of_range(self, rewards: Any) -> bool:
        """Whether a slot earned something that it cannot; a wrong shape is for others to refuse."""
        try:
            given = np.asarray(rewards, dtype=np.float64)
        except (TypeError, ValueError):
            return False
        if given.ndim != 2 or given.shape[1] != self.low.size:
            return False
        outside = any_outside(np.ascontiguousarray(given), self.low, self.high)
        if outside:
            self._refuse_wild(given)
        return outside

    def _fill(self, column: Vector, slots: dict[int, int], name: str, earned: Any) -> list[int]:
        """Rewards of one name: item -> number, or the items that earned 1; the slots of these."""
        if not isinstance(earned, Mapping):
            try:
                ids = id_list(name, earned)
            except InvalidInput as error:
                item = next(iter(slots))
                raise InvalidInput(
                    f"the reward {name!r} is {earned!r:.80}; a ranking needs {{item: number}}, "
                    f'such as {{"{name}": {{{item}: 3.0}}}}, or the ids of the items that earned 1'
                ) from error
            places = self._slots(slots, ids, name)
            column[places] = 1.0
            return places
        items = id_list(name, earned.keys())
        places = self._slots(slots, items, name)
        for item, slot in zip(items, places, strict=True):
            column[slot] = _finite(f"the reward {name!r} of item {item}", earned[item])
        return places

    @staticmethod
    def _slots(slots: dict[int, int], listed: list[int], what: str) -> list[int]:
        for item in listed:
            if item not in slots:
                raise InvalidInput(
                    f"item {item} is said to be {what}, but was not shown; the ranking was "
                    f"{list(slots)}"
                )
        if len(set(listed)) < len(listed):
            again = next(item for item in listed if listed.count(item) > 1)
            raise InvalidInput(f"item {again} is given twice in {what}; give it once")
        return [slots[item] for item in listed]

    @staticmethod
    def _refuse_unseen(items: list[int], unseen: set[int], rewards: Matrix) -> None:
        for slot in sorted(unseen):
            if rewards[slot].any():
                raise InvalidInput(
                    f"item {items[slot]} earned something but is not among the exposed; only what "
                    "was looked at can be clicked, so add it to exposed"
                )


def _finite(what: str, value: Any) -> float:
    try:
        number = float(value) if is_real(value) else math.nan
    except OverflowError:  # a whole number of hundreds of digits
        number = math.inf
    if not math.isfinite(number):
        shown = value.item() if isinstance(value, np.generic) else value
        raise InvalidInput(f"{what} is {shown!r:.80}; give a finite number")
    return number
