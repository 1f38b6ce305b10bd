"""Names: what arms and items are called by those who use an agent; inside they are numbers.

The names of arms come with a context or once with the agent. The keys of items are kept by number,
those of retired items too: a decision has the items it showed, whatever their keys mean now.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix
from fairwolfe.core.candidates import Catalogue
from fairwolfe.core.groups import Item, lacks
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem, is_list, real_array
from fairwolfe.core.tables import few
from fairwolfe.errors import IncompatibleState, InvalidInput

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")

LONGEST = 256
"""Characters of a name."""

_LISTED = 20  # names in an error


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

    __slots__ = ("_known", "all")

    def __init__(self, names: tuple[str, ...]) -> None:
        self.all = names
        self._known = frozenset(names)

    @property
    def words(self) -> str:
        """The first of them, for a sentence."""
        return few((f"{name!r:.80}" for name in self.all), _LISTED)

    def in_order(self, given: Mapping[Any, Any]) -> list[Any]:
        """The values of a mapping that has exactly these names, in any order, by number.

        >>> ArmNames(("a", "b")).in_order({"b": 2, "a": 1})
        [1, 2]
        """
        for name in given:
            if name not in self._known:
                raise InvalidInput(f"there is no arm {name!r:.80}; the arms are {self.words}")
        for name in self.all:
            if name not in given:
                raise InvalidInput(f"the arm {name!r:.80} is missing; the arms are {self.words}")
        return [given[name] for name in self.all]

    def options(self, options: dict[str, Any], catalogue: Any) -> dict[str, Any]:
        """What `Kind.read` gets besides the context."""
        return {**options, "names": self.all}

    def feedback_options(self, action: Any) -> dict[str, Any]:
        """What `Kind.read_feedback` gets besides the feedback."""
        return {}


class ItemKeys:
    """The keys of all items that there ever were, by number.

    >>> keys = ItemKeys(("a", "b", "a"))
    >>> keys.numbers(Catalogue(np.array([1, 2]), np.empty((1, 3)), 3))
    {'b': 1, 'a': 2}
    >>> keys.feedback_options(np.array([1, 0]))
    {'names': ('b', 'a')}
    """

    __slots__ = ("_numbers", "_of", "all")

    def __init__(self, keys: Iterable[str]) -> None:
        self.all = list(keys)  # longer by each item that comes: decisions share it
        self._of: Catalogue | None = None
        self._numbers: dict[str, int] = {}

    def numbers(self, catalogue: Catalogue) -> dict[str, int]:
        """Key -> number of the items that can be shown."""
        if self._of is not catalogue:
            self._numbers = {self.all[number]: number for number in catalogue.ids.tolist()}
            self._of = catalogue
        return self._numbers

    def change(
        self, old: Catalogue, new: Catalogue, fresh: Iterable[str], retired: Iterable[int]
    ) -> None:
        """After items have come, of these keys, and gone; under the lock, and whole."""
        numbers, keys = self.numbers(old), self.all
        for number in retired:
            if numbers.get(keys[number]) == number:
                del numbers[keys[number]]
        for key in fresh:
            numbers[key] = len(keys)
            keys.append(key)
        self._of = new

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

    def feedback_options(self, action: Any) -> dict[str, Any]:
        """What `Kind.read_feedback` gets besides: the keys of the shown items, by slot."""
        if not isinstance(action, np.ndarray) or action.dtype != np.int64 or action.ndim != 1:
            return {}
        numbers = action.tolist()
        if not all(0 <= number < len(self.all) for number in numbers):
            return {}
        return {"names": tuple([self.all[number] for number in numbers])}

    def saved(self) -> Any:
        """For a file."""
        return np.frombuffer(pack(tuple(self.all)), dtype=np.uint8)

    @classmethod
    def loaded(cls, array: Any, catalogue: Catalogue) -> ItemKeys:
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


def named_values(
    given: Mapping[Any, Any], known: ArmNames | None = None
) -> tuple[ArmNames, list[Any]]:
    """The names of a mapping, and its values by number.

    known: the names that were given once, and so the order; None: those of the mapping, in its own
    """
    if known is not None:
        return known, known.in_order(given)
    if not given:
        raise InvalidInput("the context is an empty mapping; give name -> features of every arm")
    return ArmNames(_different("name", given)), list(given.values())


def named_rows(
    context: Mapping[Any, Any], problem: Problem, known: ArmNames | None = None
) -> tuple[Matrix, ArmNames]:
    """A context that is a mapping from the names of its arms to their features; known: as in
    `named_values`.
    """
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
    called, rows = named_values(context, known)
    return _matrix("arm", called.all, rows, problem.dimension), called


def without_attributes(given: Any) -> tuple[Any, list[dict[str, str]]]:
    """Items with their features alone, and the attributes of each, checked; [] where none has any.

    >>> without_attributes({"a": Item([0.1], maker="acme"), "b": [0.2]})
    ({'a': [0.1], 'b': [0.2]}, [{'maker': 'acme'}, {}])
    """
    if isinstance(given, np.ndarray) or not is_list(given):
        return given, []
    pairs = has_keys(given)
    listed = list(given.items() if isinstance(given, Mapping) else given)
    items = [one[1] if pairs and len(one) == 2 else one for one in listed]
    if not any(isinstance(item, Item) for item in items):
        return given, []
    plain = [item.features if isinstance(item, Item) else item for item in items]
    names = [one[0] if pairs else i for i, one in enumerate(listed)]
    attributes = [
        attributes_of(name, item.attributes) if isinstance(item, Item) else {}
        for name, item in zip(names, items, strict=True)
    ]
    return (dict(zip(names, plain, strict=True)) if pairs else plain), attributes


def attributes_of(item: Any, given: Any) -> dict[str, str]:
    """The attributes of an item, texts by name, or an error that names the wrong one."""
    if not isinstance(given, Mapping):
        raise InvalidInput(
            f"the attributes of item {item!r:.80} are {given!r:.80}; give texts by name"
        )
    checked = {}
    for name, value in given.items():
        _name(f"the name of an attribute of item {item!r:.80}", name)
        if not isinstance(value, str):
            raise InvalidInput(
                f"the attribute {name!r:.80} of item {item!r:.80} is {value!r:.80}; give a text, "
                f"such as {str(value)!r:.80}"
            )
        checked[str(name)] = _name(f"the attribute {name!r:.80} of item {item!r:.80}", value)
    return checked


def require_attributes(by: Iterable[str], names: Iterable[Any], given: Sequence[Any]) -> None:
    """Raise for an item without an attribute that f groups by; names: of the items."""
    for name, own in zip(names, given, strict=True):
        for one in by:
            if one not in own:
                raise lacks(f"item {name!r:.80}", one, own)


def has_keys(given: Any) -> bool:
    """Whether items are given by key: as a mapping, or as pairs of a key and features."""
    if isinstance(given, Mapping):
        return True
    first = given[0] if isinstance(given, (list, tuple)) and given else None
    return isinstance(first, (list, tuple)) and len(first) == 2 and isinstance(first[0], str)


def keyed(given: Any, width: int) -> tuple[tuple[str, ...], Matrix]:
    """ItemKeys and features (items, width) of items that are given by key."""
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
        for place in np.flatnonzero(~np.isfinite(one)).tolist():
            raise InvalidInput(f"number {place} of {own} is {one[place]}; give finite numbers only")
    return features


def key_changes(
    keys: tuple[str, ...],
    rows: Matrix,
    attributes: Sequence[Mapping[str, str]],
    old: ItemKeys,
    catalogue: Catalogue,
) -> tuple[IntVector, list[int], list[int]]:
    """What items given by key come to: their numbers, which rows are new, and which old items give
    way to one of the same key with other features. Other attributes under a known key are refused.
    """
    numbers = old.numbers(catalogue)
    ids = np.empty(len(keys), dtype=np.int64)
    new: list[int] = []
    old_ids: list[int] = []
    for row, key in enumerate(keys):
        number = numbers.get(key)
        if number is not None and catalogue.attributes.of(number) != attributes[row]:
            raise InvalidInput(
                f"item {key!r:.80} has the attributes {catalogue.attributes.of(number)}, and is "
                f"given {dict(attributes[row])}; retire it first, and add it anew: it then has a "
                "time of its own"
            )
        if number is not None and np.array_equal(catalogue.features[:, number], rows[row]):
            ids[row] = number
            continue
        ids[row] = catalogue.total + len(new)
        new.append(row)
        if number is not None:
            old_ids.append(number)
    return ids, new, old_ids
