"""Names: what arms and items are called by those who use an agent; inside they are numbers.

The names of arms come with a context or once with the agent. The keys of items are kept by number,
those of retired items too: a decision has the items it showed, whatever their keys mean now.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix
from fairwolfe.core.catalogue import Catalogue
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem, is_list, real_array
from fairwolfe.errors import IncompatibleState, InvalidInput

__all__ = ["LONGEST", "ArmNames", "Keys", "arm_names", "changes", "has_keys", "keyed", "named_rows"]

_INT = np.dtype(np.int64)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

LONGEST = 256
"""Characters of a name."""


def _name(what: str, given: Any) -> str:
    """A name, or an error that shows what is given."""
    if not isinstance(given, str):
        raise InvalidInput(f"{what} is {given!r:.80}; give a text, since numbers are its own ids")
    if not 0 < len(given) <= LONGEST:
        raise InvalidInput(
            f"{what} has {len(given)} characters ({given!r:.40}); give 1 to {LONGEST}"
        )
    if _CONTROL.search(given):
        raise InvalidInput(
            f"{what} is {given!r:.80}, which has a control character such as a newline; leave "
            "control characters out"
        )
    try:
        given.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"{what} is {given!r:.80}, which is not a text: {error}") from error
    return str(given)


def _different(what: str, given: Iterable[Any]) -> tuple[str, ...]:
    """Names, each once."""
    names = tuple(_name(f"the {what} of number {i}", one) for i, one in enumerate(given))
    if len(set(names)) < len(names):
        again = next(name for i, name in enumerate(names) if name in names[:i])
        raise InvalidInput(f"the {what} {again!r:.80} is given twice; give every {what} once")
    return names


class ArmNames:
    """The names of the arms of a context, by number."""

    __slots__ = ("all",)

    def __init__(self, names: tuple[str, ...]) -> None:
        self.all = names

    def options(self, options: dict[str, Any], catalogue: Any) -> dict[str, Any]:
        """What `Kind.read` gets besides the context."""
        return {**options, "names": self.all}

    def feedback_options(self, action: Any) -> dict[str, Any]:
        """What `Kind.hear` gets besides the feedback."""
        return {}


class Keys:
    """The keys of all items that there ever were, by number.

    >>> keys = Keys(("a", "b", "a"))
    >>> keys.numbers(Catalogue(np.array([1, 2]), np.empty((1, 3)), 3))
    {'b': 1, 'a': 2}
    >>> keys.shown(np.array([1, 0]))
    ('b', 'a')
    """

    __slots__ = ("_numbers", "_of", "all")

    def __init__(self, keys: tuple[str, ...]) -> None:
        self.all = keys
        self._of: Catalogue | None = None
        self._numbers: dict[str, int] = {}

    def numbers(self, catalogue: Catalogue) -> dict[str, int]:
        """Key -> number of the items that can be shown."""
        if self._of is not catalogue:
            self._numbers = {self.all[number]: number for number in catalogue.ids.tolist()}
            self._of = catalogue
        return self._numbers

    def extended(self, total: int, keys: Iterable[str]) -> Keys:
        """With those of new items, which follow the first `total`."""
        return Keys((*self.all[:total], *keys))

    def options(self, options: dict[str, Any], catalogue: Any) -> dict[str, Any]:
        """What `Kind.read` gets besides the context, with numbers for keys."""
        if not options:
            return options
        converted = dict(options)
        for name in ("candidates", "blocked"):
            if name in converted:
                converted[name] = self.ids(name, converted[name], catalogue)
        pinned = converted.get("pinned")
        if isinstance(pinned, Mapping):
            ids = self.ids("pinned", pinned.values(), catalogue)
            converted["pinned"] = dict(zip(pinned, ids, strict=True))
        return {**converted, "names": self.all}

    def ids(self, what: str, given: Any, catalogue: Catalogue) -> list[Any]:
        """Numbers for keys; what is not a text stays as it is, for others to judge."""
        if not is_list(given):
            raise InvalidInput(f"{what} is {given!r:.80}; give a list of keys or ids of items")
        numbers = self.numbers(catalogue)
        listed = given.tolist() if isinstance(given, np.ndarray) else list(given)
        for one in listed:
            if isinstance(one, str) and one not in numbers:
                retired = one in self.all
                reason = "an item that was retired" if retired else "which is not a key of an item"
                raise InvalidInput(
                    f"{what} holds {one!r:.80}, {reason}; give keys of items that can be shown"
                )
        return [numbers[one] if isinstance(one, str) else one for one in listed]

    def shown(self, action: Any) -> tuple[str, ...] | None:
        """The keys of a ranking, by slot; None for an action that is not a ranking."""
        if not isinstance(action, np.ndarray) or action.dtype != _INT or action.ndim != 1:
            return None
        numbers, keys = action.tolist(), self.all
        if min(numbers, default=0) < 0 or max(numbers, default=0) >= len(keys):
            return None
        return tuple([keys[number] for number in numbers])

    def feedback_options(self, action: Any) -> dict[str, Any]:
        """What `Kind.hear` gets besides the feedback: the names of the shown items."""
        names = self.shown(action)
        return {} if names is None else {"names": names}

    def saved(self) -> Any:
        """For a file."""
        return np.frombuffer(pack(self.all), dtype=np.uint8)

    @classmethod
    def loaded(cls, array: Any, catalogue: Catalogue) -> Keys:
        """Those that `saved` wrote, for these items; they may be of any origin."""
        keys = tuple(_name(f"key {i}", one) for i, one in enumerate(unpack(array.tobytes())))
        loaded = cls(keys)
        fits = len(keys) == catalogue.total == catalogue.features.shape[1]
        if not fits or len(loaded.numbers(catalogue)) < catalogue.ids.size:
            raise IncompatibleState(
                f"the file has {len(keys)} keys for {catalogue.total} items, or one key for two of "
                "them: it is damaged or forged"
            )
        return loaded


def arm_names(given: Any, problem: Problem) -> ArmNames:
    """Names that are given once, for all contexts."""
    if problem.kind != "arms":
        raise InvalidInput(
            "arms are names for Problem.arms(...); give the items of a ranking keys by "
            "items={key: features}"
        )
    if isinstance(given, str) or not isinstance(given, Sequence) or not given:
        raise InvalidInput(f"arms is {given!r:.80}; give a list with the name of every arm")
    names = _different("name", given)
    if problem.n_arms is not None and problem.n_arms != len(names):
        raise InvalidInput(
            f"arms has {len(names)} names and the problem {problem.n_arms} arms; name each of them"
        )
    return ArmNames(names)


def named_rows(context: Mapping[Any, Any], problem: Problem) -> tuple[Matrix, ArmNames]:
    """A context that is a mapping from the names of its arms to their features."""
    if problem.kind != "arms":
        raise InvalidInput(
            "the context is a mapping, which names arms, and the problem has items; give the user, "
            "and the items once: Agent(..., items={key: features})"
        )
    if problem.n_arms is not None:
        raise InvalidInput(
            f"the context is a mapping, and the problem has n_arms={problem.n_arms}, so all arms "
            "see the same features; give fw.PerArm(features), and the names once: Agent(..., "
            "arms=[...])"
        )
    if not context:
        raise InvalidInput("the context is an empty mapping; give name -> features of every arm")
    names = _different("name", context)
    return _matrix("arm", names, list(context.values()), problem.dimension), ArmNames(names)


def has_keys(given: Any) -> bool:
    """Whether items are given by key: as a mapping, or as pairs of a key and features."""
    if isinstance(given, Mapping):
        return True
    first = given[0] if isinstance(given, (list, tuple)) and given else None
    return isinstance(first, (list, tuple)) and len(first) == 2 and isinstance(first[0], str)


def keyed(given: Any, width: int) -> tuple[tuple[str, ...], Matrix]:
    """Keys and features (items, width) of items that are given by key."""
    pairs = list(given.items() if isinstance(given, Mapping) else given)
    if not pairs:
        raise InvalidInput("no items are given; give key -> features of at least one")
    for one in pairs:
        if not isinstance(one, (list, tuple)) or len(one) != 2:
            raise InvalidInput(f"an item is {one!r:.80}; give pairs of a key and its features")
    keys = _different("key", (key for key, _ in pairs))
    return keys, _matrix("item", keys, [row for _, row in pairs], width)


def _matrix(what: str, names: Sequence[str], rows: list[Any], width: int) -> Matrix:
    """Features (names, width), or an error that names the wrong ones."""
    try:
        features = real_array(f"the features of the {what}s", rows)
    except InvalidInput:
        features = np.empty(0)
    if features.shape == (len(names), width) and np.isfinite(features).all():
        return features
    for name, row in zip(names, rows, strict=True):
        own = f"the features of {what} {name!r:.80}"
        one = real_array(own, row)
        if one.shape != (width,):
            raise InvalidInput(f"{own} have the shape {one.shape}; give {width} numbers")
        if not np.isfinite(one).all():
            _refuse(own, one)
    return features


def _refuse(own: str, row: Any) -> NoReturn:
    place = int(np.flatnonzero(~np.isfinite(row))[0])
    raise InvalidInput(f"number {place} of {own} is {row[place]}; give finite numbers only")


def changes(
    keys: tuple[str, ...], rows: Matrix, old: Keys, catalogue: Catalogue
) -> tuple[IntVector, list[int], list[int]]:
    """What items given by key come to: their numbers, which rows are new, and which old items give
    way to one of the same key with other features.
    """
    numbers = old.numbers(catalogue)
    ids = np.empty(len(keys), dtype=np.int64)
    new: list[int] = []
    old_ids: list[int] = []
    for row, key in enumerate(keys):
        number = numbers.get(key)
        if number is not None and np.array_equal(catalogue.features[:, number], rows[row]):
            ids[row] = number
            continue
        ids[row] = catalogue.total + len(new)
        new.append(row)
        if number is not None:
            old_ids.append(number)
    return ids, new, old_ids
