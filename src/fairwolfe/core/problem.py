"""`Problem`: what is decided and which rewards come back, validated here and nowhere else."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from decimal import Decimal
from functools import cached_property
from numbers import Real
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.tables import is_frame, numbers_of
from fairwolfe.errors import InvalidInput, did_you_mean

V = TypeVar("V")

_OWN = ("", "arms", "ranking")  # kinds that a problem has by default: its items decide which
_LARGEST = 2**63 - 1  # of whole numbers, as kernels and files hold them
_FEW = 16  # numbers that Python has checked before NumPy has begun


class Frozen(Mapping[str, V], Generic[V]):
    """A mapping that never changes: it can be hashed, and prints as the dict it was made from."""

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, V] | None = None) -> None:
        self._items = dict(items or {})

    def __getitem__(self, key: str) -> V:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(tuple(self._items.items()))

    def __eq__(self, other: object) -> bool:
        # The order of rewards is the order of coordinates, so it is part of the value.
        if isinstance(other, Mapping):
            return list(self._items.items()) == list(other.items())
        return NotImplemented

    def __repr__(self) -> str:
        return repr(self._items)


@dataclass(frozen=True)
class Problem:
    """What is decided and which rewards come back.

    The reward vector holds the exposure of each item first (rankings only), then the user-side
    `rewards` in their order. K, the set of possible reward vectors, has `diameter` D_K.

    Parameters
    ----------
    n_features: features of an arm or item, or (user, item) numbers of factors for Bilinear contexts
    rewards: name -> (low, high); a ranking without it counts ``{"clicks": (0, n_slots)}``
    n_items, n_slots: for rankings, 1 <= n_slots <= n_items
    feature_norm: D_X, bound on the 2-norm of the features of one arm or item
    parameter_norm: D_theta, bound on the 2-norm of the true parameters
    noise: overrides the theorem's sub-Gaussian constant
    n_arms: for `PerArm` contexts, where each arm has its own parameters: how many there are
    kind: of decision, a name in the registry; left empty it is "ranking" where there are items,
        else "arms"
    stages: names of the rewards that arrive together, stage by stage and in the order of `rewards`,
        such as ``(("clicks", "margin"), ("returned",))``; None: all arrive together. The exposures
        of a ranking belong to the first stage

    >>> problem = Problem.arms(12, {"clicks": (0, 1), "minutes": (0, 120), "cost": (0, 0.05)})
    >>> problem.n_objectives, round(problem.diameter, 3)
    (3, 120.004)
    >>> Problem.from_json(problem.to_json()) == problem
    True
    >>> round(Problem.ranking(n_items=50, n_slots=10, n_features=100).diameter, 3)
    10.954
    """

    n_features: int | tuple[int, int]
    rewards: Mapping[str, tuple[float, float]] = Frozen()
    n_items: int | None = None
    n_slots: int | None = None
    feature_norm: float = 1.0
    parameter_norm: float | None = None
    noise: float | None = None
    n_arms: int | None = None
    kind: str = ""
    stages: tuple[tuple[str, ...], ...] | None = None

    def __post_init__(self) -> None:
        pair = isinstance(self.n_features, (tuple, list))
        sizes = tuple(self.n_features) if pair else (self.n_features,)  # type: ignore[arg-type]
        if len(sizes) not in (1, 2):
            raise InvalidInput(
                f"n_features is {self.n_features!r}; give one number, or a pair (user, item)"
            )
        whole = tuple(whole_number("n_features", size) for size in sizes)
        self._set("n_features", whole if pair else whole[0])
        if (self.n_items is None) != (self.n_slots is None):
            raise InvalidInput(
                f"n_items is {self.n_items} and n_slots is {self.n_slots}; a ranking needs both, "
                "a problem with arms neither"
            )
        if self.n_items is not None:
            self._set("n_items", whole_number("n_items", self.n_items))
            self._set("n_slots", whole_number("n_slots", self.n_slots))
            if self.n_slots > self.n_items:  # type: ignore[operator]
                raise InvalidInput(
                    f"n_slots is {self.n_slots} but there are only {self.n_items} items; a ranking "
                    "shows an item at most once, so n_slots can be at most n_items"
                )
        if not isinstance(self.kind, str):
            raise InvalidInput(
                f"kind is {self.kind!r}; leave it out for arms and rankings, or give the name of "
                "another kind of decision"
            )
        if self.kind in _OWN:
            self._set("kind", "arms" if self.n_items is None else "ranking")
        if self.n_arms is not None:
            self._set("n_arms", whole_number("n_arms", self.n_arms))
        self._set("rewards", self._checked_rewards())
        self._set("stages", self._checked_stages())
        self._set("feature_norm", positive("feature_norm", self.feature_norm))
        for name in ("parameter_norm", "noise"):
            if getattr(self, name) is not None:
                self._set(name, positive(name, getattr(self, name)))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def _checked_rewards(self) -> Frozen[tuple[float, float]]:
        rewards = self.rewards
        if not isinstance(rewards, Mapping):
            raise InvalidInput(
                f"rewards is {rewards!r}; give a mapping from names to (low, high), for example "
                '{"clicks": (0, 1)}'
            )
        if not rewards:
            if self.n_slots is None:
                raise InvalidInput(
                    'rewards is empty; name at least one, such as {"clicks": (0, 1)}'
                )
            rewards = {"clicks": (0.0, float(self.n_slots))}
        checked: dict[str, tuple[float, float]] = {}
        for name, bounds in rewards.items():
            if not isinstance(name, str) or not name:
                raise InvalidInput(f"a reward is named {name!r}; names are non-empty strings")
            checked[name] = number_range(f"reward {name!r}", bounds)
        return Frozen(checked)

    def _checked_stages(self) -> tuple[tuple[str, ...], ...] | None:
        given, names = self.stages, tuple(self.rewards)
        if given is None:
            return None
        example = "such as (('clicks', 'margin'), ('returned',))"
        if not is_list(given) or not all(is_list(stage) for stage in given):
            raise InvalidInput(f"stages is {given!r:.80}; give the names of each stage, {example}")
        stages = tuple(tuple(stage) for stage in given)
        named = tuple(name for stage in stages for name in stage)
        for name in named:
            if name not in names:
                raise InvalidInput(
                    f"stages name the reward {name!r:.80}; {did_you_mean(str(name), names)}"
                )
        if named != names or not all(stages):
            raise InvalidInput(
                f"stages is {stages!r:.200}, and the rewards are {', '.join(names)}; give every "
                "reward once, none of the stages empty, in the order of the rewards (put the "
                "rewards of a stage side by side)"
            )
        return stages if len(stages) > 1 else None

    @classmethod
    def arms(
        cls,
        n_features: int | tuple[int, int],
        rewards: Mapping[str, tuple[float, float]],
        **options: Any,
    ) -> Problem:
        """One arm is chosen among those of the context; their number may change."""
        return cls(n_features, rewards, **options)

    @classmethod
    def ranking(
        cls,
        n_items: int,
        n_slots: int,
        n_features: int | tuple[int, int],
        rewards: Mapping[str, tuple[float, float]] | None = None,
        **options: Any,
    ) -> Problem:
        """`n_slots` of the `n_items` are shown in order."""
        return cls(n_features, rewards or Frozen(), n_items, n_slots, **options)

    @cached_property
    def n_objectives(self) -> int:
        """D: exposures of the items, then the user-side rewards."""
        return (self.n_items or 0) + len(self.rewards)

    @cached_property
    def dimension(self) -> int:
        """d: the length of one row of features, a pair multiplied out."""
        return math.prod(np.atleast_1d(self.n_features).tolist())

    @cached_property
    def n_stages(self) -> int:
        """How many parts the answer to a decision has."""
        return len(self.stages or ((),))

    @cached_property
    def stage_names(self) -> tuple[tuple[str, ...], ...]:
        """The rewards of each stage."""
        return self.stages or (tuple(self.rewards),)

    @cached_property
    def stage_starts(self) -> tuple[int, ...]:
        """Stage s has the coordinates from the s-th of these to below the next, (n_stages + 1,)."""
        sizes = [len(names) for names in self.stage_names]
        sizes[0] += self.n_items or 0
        return tuple(sum(sizes[:s]) for s in range(len(sizes) + 1))

    @property
    def item_diameter(self) -> float:
        """Diameter of the exposures: min(2 k, m) items differ at most between two rankings."""
        if self.n_items is None or self.n_slots is None:
            return 0.0
        return math.sqrt(min(2 * self.n_slots, self.n_items))

    @property
    def diameter(self) -> float:
        """D_K, the diameter of the set of possible reward vectors."""
        return math.hypot(self.item_diameter, *(high - low for low, high in self.rewards.values()))

    def diameter_of(self, used: np.ndarray[Any, np.dtype[np.bool_]]) -> float:
        """Diameter of the coordinates that `used` marks."""
        items = self.n_items or 0
        ranges = np.array([high - low for low, high in self.rewards.values()])
        return math.hypot(self.item_diameter * bool(used[:items].any()), *ranges[used[items:]])

    @property
    def low(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The smallest value of each coordinate of the reward vector."""
        return np.append(np.zeros(self.n_items or 0), [low for low, _ in self.rewards.values()])

    @property
    def high(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """The largest value of each coordinate of the reward vector."""
        return np.append(np.ones(self.n_items or 0), [high for _, high in self.rewards.values()])

    @cached_property
    def slot_ranges(self) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        """Of a ranking: the least and the most that each reward of one slot can be, (2, R)."""
        ranges = np.array(list(self.rewards.values()), dtype=np.float64)
        return np.ascontiguousarray(ranges.T / (self.n_slots or 1))

    def coordinate(self, reward: str) -> int:
        """The place of a user-side reward in the reward vector."""
        if reward not in self.rewards:
            raise InvalidInput(
                f"there is no reward {reward!r:.80}; {did_you_mean(reward, self.rewards)}"
            )
        return (self.n_items or 0) + list(self.rewards).index(reward)

    def to_json(self) -> str:
        """The problem as one line of JSON; `from_json` rebuilds it."""
        values = asdict(self) | {"rewards": {k: list(v) for k, v in self.rewards.items()}}
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Problem:
        """Rebuild a problem that `to_json` wrote."""
        try:
            values = json.loads(text)
            if not isinstance(values, dict):
                raise ValueError("it is not a JSON object")
            known = [f.name for f in fields(cls)]
            for key in values:
                if key not in known:
                    raise ValueError(f"it has no field {key!r}; {did_you_mean(key, known)}")
            if "n_features" not in values:
                raise ValueError("it has no n_features")
        except (ValueError, RecursionError) as error:
            raise InvalidInput(f"a problem cannot be read from {text[:40]!r}: {error}") from error
        return cls(**values)


def all_finite(array: np.ndarray[Any, np.dtype[np.float64]]) -> bool:
    """Whether an array holds finite numbers only."""
    if array.size <= _FEW:
        return all(map(math.isfinite, array.ravel().tolist()))
    # Counting is faster than `all`, whatever the size.
    return bool(np.count_nonzero(np.isfinite(array)) == array.size)


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least 1 (or another) that 64 bits hold, or an error that shows it."""
    if not is_whole(value) or value < least:
        raise InvalidInput(f"{name} is {value!r:.80}; give a whole number of at least {least}")
    if value > _LARGEST:
        raise InvalidInput(f"{name} is {value!s:.80}; give a whole number below 2**63")
    return int(value)


def real_number(name: str, value: Any) -> float:
    """A number (NaN and infinities are for the caller to judge), or an error that shows it."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidInput(f"{name} is {value!r:.80}; give a number")
    try:
        return float(value)
    except OverflowError as error:
        raise InvalidInput(
            f"{name} is {value!s:.40}...; give a number that a float can hold"
        ) from error


def number_where(name: str, value: Any, fits: Callable[[float], bool], allowed: str) -> float:
    """A finite number that fits, or an error that shows it with what is allowed.

    >>> number_where("delta", 0.05, lambda x: 0.0 < x < 1.0, "a number between 0 and 1")
    0.05
    """
    try:
        number = real_number(name, value)
    except InvalidInput:
        number = math.nan
    if not (math.isfinite(number) and fits(number)):
        raise InvalidInput(f"{name} is {value!r:.80}; give {allowed}")
    return number


def positive(name: str, value: object) -> float:
    """A positive finite number, or an error that shows it."""
    return number_where(name, value, lambda x: x > 0.0, "a positive finite number")


def number_range(what: str, bounds: Any) -> tuple[float, float]:
    """(low, high), two finite numbers with low < high, or an error that shows them."""
    try:
        low, high = (real_number(what, bound) for bound in bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (low < high and high - low < math.inf):
        raise InvalidInput(
            f"the range of {what} is {bounds!r:.80}; give (low, high), two finite numbers with "
            "low < high"
        )
    return low, high


def level(name: str, value: Any) -> float:
    """A number between 0 and 1, or an error that shows it."""
    return number_where(name, value, lambda x: 0.0 < x < 1.0, "a number between 0 and 1")


def one_of(name: str, value: Any, allowed: Iterable[str]) -> None:
    """Raise for a value that is not one of some texts."""
    *most, last = (repr(text) for text in allowed)
    if not isinstance(value, str) or repr(value) not in (*most, last):
        raise InvalidInput(f"{name} is {value!r:.80}; give {', '.join(most)} or {last}")


def is_real(value: object) -> bool:
    """Whether a value is one real number: True and False are, complex numbers and text are not."""
    return isinstance(value, (Real, Decimal, np.bool_))


def is_whole(value: object) -> bool:
    """Whether a value is a whole number: True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def is_list(given: Any) -> bool:
    """Whether it can be read as a list: neither a text nor an array without an axis."""
    flat = isinstance(given, str) or (isinstance(given, np.ndarray) and given.ndim == 0)
    return isinstance(given, Iterable) and not flat


def real_array(what: str, given: Any) -> NDArray[np.float64]:
    """Real numbers as a C-ordered float64 array of the same shape, or an error that shows the bad.

    It raises for masked entries, complex numbers, text, other objects, and rows of different
    lengths, which NumPy would turn into numbers or drop without a warning. A table of pandas,
    polars or Arrow has a row for each of its rows; columns that are not numbers raise. NaN and
    infinities are for the caller to judge. An array that fits is returned as it is.

    >>> real_array("the context", [[1, True], [0.5, 2]]).tolist()
    [[1.0, 1.0], [0.5, 2.0]]
    """
    if type(given) is np.ndarray and given.dtype == np.float64:
        return given if given.flags.c_contiguous else given.copy()
    if is_frame(given):
        return numbers_of(what, given)
    if _has_masked(given):
        raise InvalidInput(f"{what} has masked entries; fill them, or leave the rows out")
    try:
        array = np.asarray(given)
        if array.dtype.kind not in "fiub":
            array = np.asarray(given, dtype=object)
            for place, value in np.ndenumerate(array):
                if not is_real(value):
                    where = f"number {list(place)}" if place else "it"
                    raise TypeError(f"{where} is {value!r:.80}")
        return np.asarray(array, dtype=np.float64, order="C")
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{what} is not an array of numbers: {error}; give real numbers"
        ) from error


def _has_masked(given: Any) -> bool:
    """Whether an entry is masked, also in the rows of a list, where NumPy would drop the mask."""
    if isinstance(given, np.ma.MaskedArray):
        return bool(np.ma.is_masked(given))
    nested = (one for one in given if isinstance(one, _NESTED)) if type(given) in _LISTS else ()
    return any(map(_has_masked, nested))


_LISTS = (list, tuple)
_NESTED = (*_LISTS, np.ma.MaskedArray)
