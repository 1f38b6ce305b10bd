"""`Candidates`: the items that a ranking may show, checked and in the form that rankers read.

Items have permanent numbers, their ids: 0, 1, ... in the order of arrival. A context describes all
items that are not retired, in the order of their ids.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Sized
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.groups import Attributes
from fairwolfe.core.problem import Problem, all_finite, is_list, is_whole, real_array
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.gates import largest_square_product

Array = NDArray[np.float64]
Ids = NDArray[np.int64]

NONE: Ids = np.empty(0, dtype=np.int64)
_MOST = 2**62  # no catalogue is longer


class Catalogue(NamedTuple):
    """The current items: ids of those not retired, and their features if they are kept."""

    ids: Ids
    features: Array  # (q, all items ever); empty (q, 0) where every context brings them

    total: int  # items ever: the next id
    attributes: Attributes = Attributes()
    columns: Array | None = None  # `left`, where it is known and is not `features`
    largest: float | None = None  # the largest |item|^2 of these, where it is known

    def left(self) -> Array:
        """The features of the items that are left, (q, items); (q, 0) where none are kept. Rows may
        be the beginnings of longer ones.
        """
        if self.columns is not None:
            return self.columns
        if self.ids.size == self.total or self.features.shape[1] == 0:
            return self.features
        return np.ascontiguousarray(self.features[:, self.ids])

    @classmethod
    def of(cls, problem: Problem) -> Catalogue:
        """All items of a problem, whose features come with the contexts."""
        m = problem.n_items or 0
        return cls(np.arange(m), np.empty((sizes(problem)[1], 0)), m)


class Candidates(NamedTuple):
    """x_i = user (x) items_i for every item that may be shown."""

    user: Array  # (p,)
    items: Array  # (q, n): one column for each item
    ids: Ids  # (n,), ascending
    places: Ids  # where these are among the items not retired; empty: they are all of them
    pinned: Ids  # (slots,): the row of the item that a slot must show, or -1; empty: none
    kept: bool  # whether the features are those of the catalogue
    norm: float = math.nan  # the largest |user (x) item|

    def largest(self) -> str:
        """Which features are the largest, in words."""
        each, user = np.abs(self.items).max(axis=0), np.abs(self.user).max()
        row = int(each.argmax())
        if user > each[row]:
            return f"the features of the user go up to {user:.4g}"
        return f"the features of item {self.ids[row]} go up to {each[row]:.4g}"


def sizes(problem: Problem) -> tuple[int, int]:
    """(p, q): the features of the user and of an item; p is 1 where they are not apart."""
    pair = problem.n_features
    return pair if isinstance(pair, tuple) else (1, pair)


def fitting(given: Candidates, problem: Problem) -> Candidates:
    """Checked candidates as they are, or an error where they were checked for another problem."""
    p, q = sizes(problem)
    inside = given.ids.size and given.ids[0] >= 0 and given.ids[-1] < (problem.n_items or 0)
    if given.user.shape == (p,) and given.items.shape == (q, given.ids.size) and inside:
        return given
    raise InvalidInput(
        f"the context was read for another problem: it has {given.user.size} user and "
        f"{len(given.items)} item features of {given.ids.size} items, and this problem {p} and {q} "
        f"of {problem.n_items}; give the features themselves"
    )


def read_candidates(
    context: Any,
    problem: Problem,
    catalogue: Catalogue,
    candidates: Iterable[int] | None = None,
    blocked: Iterable[int] = (),
    pinned: Mapping[int, int] | None = None,
    names: Sequence[str] | None = None,
) -> Candidates:
    """Check a context against the problem.

    candidates, blocked, pinned: as in `Agent.act`; names: what items are called in errors, by id;
    they have their ids otherwise.
    """
    user, items = _features(context, problem, catalogue)
    ids, places = catalogue.ids, NONE
    if candidates is not None or _any(blocked):
        places = _chosen(catalogue, candidates, blocked, names)
        ids = catalogue.ids[places]
        items = np.ascontiguousarray(items[:, places])
    slots = problem.n_slots or 0
    if ids.size < slots:
        raise InvalidInput(
            f"there are {ids.size} candidates for {slots} slots; a ranking shows an item at most "
            f"once, so leave at least {slots} items"
        )
    rows = _pins(pinned, ids, slots, names) if pinned else NONE
    norm = math.sqrt(largest_square_product(user, items))
    return Candidates(user, items, ids, places, rows, _is_user(context), norm)


def _features(context: Any, problem: Problem, catalogue: Catalogue) -> tuple[Array, Array]:
    """The user (p,) and one column of features (q, n) for each item not retired."""
    p, q = sizes(problem)
    n = catalogue.ids.size
    if isinstance(context, Bilinear):
        if not isinstance(problem.n_features, tuple):
            raise InvalidInput(
                f"the context is Bilinear and the problem has {problem.n_features} features of an "
                "item; make it with n_features=(user, item)"
            )
        return _array("user", context.user, (p,)), _columns(context.items, n, q)
    if isinstance(problem.n_features, tuple) or (catalogue.features.shape[1] and _is_user(context)):
        if catalogue.features.shape[1] == 0:
            raise InvalidInput(
                f"the context is a {type(context).__name__} and the problem has {p} user and {q} "
                "item features; give Bilinear(user, items), or the user alone to an agent that "
                "was given items="
            )
        return _array("user", context, (p,)), catalogue.left()
    return np.ones(1), _columns(context, n, q)


def _is_user(context: Any) -> bool:
    """Whether the context is the user alone."""
    try:
        return not isinstance(context, Bilinear) and np.ndim(context) == 1
    except ValueError:  # rows of different lengths
        return False


def _array(name: str, given: Any, shape: tuple[int, ...]) -> Array:
    array = real_array(f"the {name} of the context", given)
    if array.shape != shape:
        wanted = f"{shape[0]} numbers" if len(shape) == 1 else f"shape {shape} (items, features)"
        raise InvalidInput(
            f"the {name} of the context has shape {array.shape}; the problem asks for {wanted}"
        )
    if not all_finite(array):
        worst = np.argwhere(~np.isfinite(array))[0].tolist()
        raise InvalidInput(
            f"number {worst} of the {name} of the context is {array[tuple(worst)]}; give finite "
            "numbers only"
        )
    return array if array.flags.writeable else array.copy()


def item_features(given: Any, problem: Problem, count: int | None = None) -> Array:
    """Features of items, (items, q), checked."""
    n = len(given) if count is None and isinstance(given, Sized) else count
    if not n:
        raise InvalidInput(f"the features of the items are {given!r:.80}; give at least one row")
    return _array("items", given, (n, sizes(problem)[1]))


def _columns(given: Any, n: int, q: int) -> Array:
    return np.ascontiguousarray(_array("items", given, (n, q)).T)


def _any(values: Any) -> bool:
    return not (isinstance(values, Sized) and is_list(values)) or len(values) > 0


def whole_ids(what: str, given: Iterable[int]) -> Ids:
    """Item ids as an array; an error names what is not one."""
    return np.array(id_list(what, given), dtype=np.int64)


def id_list(what: str, given: Iterable[int]) -> list[int]:
    """Item ids as a list; an error names what is not one."""
    if not is_list(given):
        raise InvalidInput(f"{what} is {given!r:.80}; give a list of ids of items, whole numbers")
    listed = list(given)
    if isinstance(given, np.ndarray) and given.ndim == 1:
        listed = given.tolist()
    for one in listed:
        if not is_whole(one) or not -_MOST <= one <= _MOST:
            raise InvalidInput(f"{what} holds {one!r}; give ids of items, whole numbers")
    return listed


def _called(item: int, names: Sequence[str] | None) -> str:
    """What an item is called in a sentence."""
    return f"{names[item]!r:.80}" if names is not None and 0 <= item < len(names) else str(item)


def _chosen(
    catalogue: Catalogue,
    only: Iterable[int] | None,
    blocked: Iterable[int],
    names: Sequence[str] | None,
) -> Ids:
    """Where the items that may be shown are among those not retired."""
    allowed = np.ones(catalogue.ids.size, dtype=bool)
    if only is not None:
        wanted = whole_ids("candidates", only)
        unique, counts = np.unique(wanted, return_counts=True)
        if unique.size < wanted.size:
            raise InvalidInput(
                f"candidate {_called(unique[counts > 1][0], names)} is given {counts.max()} times; "
                "give every candidate once"
            )
        allowed[:] = False
        allowed[find(catalogue, wanted, "candidate", names)] = True
    allowed[find(catalogue, whole_ids("blocked", blocked), "blocked item", names)] = False
    return np.flatnonzero(allowed)


def find(catalogue: Catalogue, wanted: Ids, what: str, names: Sequence[str] | None = None) -> Ids:
    """Where ids are among the items not retired; an error names one that is not there."""
    places = np.searchsorted(catalogue.ids, wanted)
    there = places < catalogue.ids.size
    there[there] = catalogue.ids[places[there]] == wanted[there]
    if not there.all():
        raise InvalidInput(
            f"{what} {_called(wanted[~there][0], names)} is not in the catalogue, or was retired; "
            "give items that can be shown"
        )
    return places


def _pins(pinned: Mapping[int, int], ids: Ids, slots: int, names: Sequence[str] | None) -> Ids:
    if not isinstance(pinned, Mapping):
        raise InvalidInput(f"pinned is {pinned!r}; give a mapping from slots to ids of items")
    rows = np.full(slots, -1, dtype=np.int64)
    for slot, item in zip(pinned, whole_ids("pinned", pinned.values()).tolist(), strict=True):
        if not is_whole(slot) or not 0 <= slot < slots:
            raise InvalidInput(
                f"an item is pinned to slot {slot!r}; slots are 0 to {slots - 1}, best first"
            )
        row = int(np.searchsorted(ids, item))
        if row >= ids.size or ids[row] != item:
            raise InvalidInput(
                f"item {_called(item, names)} is pinned to slot {slot}, but is not among the "
                "candidates; pin one that may be shown"
            )
        if row in rows:
            raise InvalidInput(
                f"item {_called(item, names)} is pinned to two slots; an item is shown at most once"
            )
        rows[slot] = row
    return rows
