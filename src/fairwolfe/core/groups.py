"""`Item`: features with attributes, such as a maker; `Attributes` of all items, and the `Groups`
that they make.

A group is all items, retired ones too, that have one value of an attribute. Its average is the sum
of their totals over the group's own clock: the answered decisions that were made since its first
item came, while it had one that could be shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import IncompatibleState, InvalidInput, did_you_mean

NO_END = 2.0**52  # of a gap that has not ended; kernels/engine.pxd has the same
_NO_ITEMS = np.empty(0, np.int64)


class Item:
    """An item of a ranking: its features, and attributes, texts by which `ByGroup` makes groups.

    >>> Item([0.2, 0.8], maker="acme")
    Item([0.2, 0.8], maker='acme')
    """

    __slots__ = ("attributes", "features")

    def __init__(self, features: Any, /, **attributes: str) -> None:
        self.features, self.attributes = features, attributes

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.attributes.items())
        return f"Item({self.features!r}{given})"


class Labels(NamedTuple):
    """What items have of one attribute."""

    values: tuple[str, ...]  # in the order of the first item of each
    codes: IntVector  # (items ever,) the place of each item's value, -1: it has none

    def first(self) -> IntVector:
        """The first item of each value."""
        codes, places = np.unique(self.codes, return_index=True)
        return places[codes >= 0]

    def living(self, ids: IntVector) -> IntVector:
        """The values of items, without -1 and ascending."""
        codes = np.unique(self.codes[ids])
        return codes[codes >= 0]


class Attributes:
    """The attributes of all items that there ever were, by name.

    >>> attributes = Attributes().extended(0, [{"maker": "acme"}, {"maker": "bolt"}])
    >>> attributes = attributes.extended(2, [{"maker": "acme", "origin": "here"}])
    >>> attributes.pairs
    (('maker', 'acme'), ('maker', 'bolt'), ('origin', 'here'))
    >>> attributes.of(2), attributes.labels["origin"].codes.tolist()
    ({'maker': 'acme', 'origin': 'here'}, [-1, -1, 0])
    """

    __slots__ = ("labels", "pairs")

    def __init__(self, labels: Mapping[str, Labels] | None = None) -> None:
        self.labels = dict(sorted((labels or {}).items()))
        self.pairs = tuple(
            (name, value) for name, one in self.labels.items() for value in one.values
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attributes) and self.saved() == other.saved()

    def __hash__(self) -> int:
        return hash(self.pairs)

    def of(self, item: int) -> dict[str, str]:
        """The attributes of an item."""
        codes = {name: one.codes.item(item) for name, one in self.labels.items()}
        return {name: self.labels[name].values[at] for name, at in codes.items() if at >= 0}

    def extended(self, total: int, rows: Sequence[Mapping[str, str]]) -> Attributes:
        """With those of new items, after `total` others."""
        names = {name: None for row in rows for name in row}
        labels: dict[str, Labels] = {}
        for name in {**self.labels, **names}:
            values, codes = self.labels.get(name, Labels((), np.full(total, -1)))
            known = dict(zip(values, range(len(values)), strict=True))
            new = [known.setdefault(row[name], len(known)) if name in row else -1 for row in rows]
            labels[name] = Labels(tuple(known), np.append(codes, np.array(new, np.int64)))
        return Attributes(labels)

    def columns(self, name: str) -> IntVector:
        """The columns of `State.groups` that the values of an attribute have."""
        start = 0
        for own, one in self.labels.items():
            if own == name:
                break
            start += len(one.values)
        return start + np.arange(len(self.labels[name].values))

    def first(self) -> IntVector:
        """The first item of each of `pairs`."""
        return np.concatenate([_NO_ITEMS, *(one.first() for one in self.labels.values())])

    def clocks(self) -> Matrix:
        """`State.groups` before the first decision."""
        clocks = np.zeros((3, len(self.pairs)))
        clocks[2] = self.first()
        return clocks

    def living(self, ids: IntVector) -> Any:
        """Which of `pairs` have an item among these."""
        alive = np.zeros(len(self.pairs), bool)
        for name, one in self.labels.items():
            alive[self.columns(name)[one.living(ids)]] = True
        return alive

    def saved(self) -> Any:
        """For a file."""
        rows = tuple((name, one.values, one.codes) for name, one in self.labels.items())
        return np.frombuffer(pack(rows), dtype=np.uint8).copy() if rows else np.empty(0, np.uint8)

    @classmethod
    def loaded(cls, array: Any, total: int) -> Self:
        """Those that `saved` wrote, of so many items; they may be of any origin."""
        labels = {}
        for name, values, codes in unpack(array.tobytes()):
            fits = (
                isinstance(name, str)
                and all(isinstance(value, str) for value in values)
                and isinstance(codes, np.ndarray)
                and codes.dtype == np.int64
                and codes.shape == (total,)
                and np.array_equal(np.unique(codes[codes >= 0]), np.arange(len(values)))
                and codes.min(initial=0) >= -1
                and (np.diff(Labels(tuple(values), codes).first()) > 0).all()
                and len(set(values)) == len(values)
            )
            if not fits or name in labels:
                raise IncompatibleState(
                    f"the file has attributes {name!r:.80} that do not belong to {total} items: it "
                    "is damaged or forged"
                )
            labels[name] = Labels(tuple(values), codes.copy())
        return cls(labels)


class Groups(NamedTuple):
    """The groups by one or several attributes that have an item, for kernels/engine.py.

    They are in the order of the attributes, and then of the first item of each that can be shown.
    """

    labels: dict[str, tuple[str, ...]]  # attribute -> the group of each item that can be shown
    names: tuple[tuple[str, str], ...]  # (attribute, value) of each group
    slots: Matrix  # (attributes, items ever) the group of each item, -1: it has no item left
    first: IntVector  # (groups,) the first item of each
    clock: IntVector  # (groups,) its column of `State.groups`

    @classmethod
    def of(cls, by: Sequence[str], attributes: Attributes, ids: IntVector) -> Groups | None:
        """The groups by these attributes of the items that can be shown; None where `by` is empty.
        An item without one of them is refused.
        """
        if not by:
            return None
        labels: dict[str, tuple[str, ...]] = {}
        names: list[tuple[str, str]] = []
        rows, first, clock = [], [], []
        for name in by:
            one = attributes.labels.get(name)
            lacking = ids if one is None else ids[one.codes[ids] < 0]
            if one is None or lacking.size:
                raise lacks(f"item {lacking[0]}", name, attributes.labels)
            shown = one.codes[ids]
            codes, places = np.unique(shown, return_index=True)
            codes = codes[np.argsort(places)]
            slot = np.full(len(one.values) + 1, -1)
            slot[codes] = len(names) + np.arange(codes.size)
            rows.append(slot[one.codes])
            first.append(one.first()[codes])
            clock.append(attributes.columns(name)[codes])
            names += [(name, one.values[code]) for code in codes.tolist()]
            labels[name] = tuple([one.values[code] for code in shown.tolist()])
        numbers = (np.array(rows), np.concatenate(first), np.concatenate(clock))
        return cls(labels, tuple(names), *numbers)

    def read(self, objective: Any, n: int) -> Any:
        """A bound f of n averages, as one of these and of the averages of the groups after them."""
        by = np.array([name for name, _ in self.names])
        places = {name: n + np.flatnonzero(by == name) for name in self.labels}
        return objective._lifted(np.arange(n), places)


def lacks(item: str, by: str, known: Mapping[str, Any]) -> InvalidInput:
    """The error of an item without the attribute that f groups by."""
    near = f" ({did_you_mean(by, known)})" if known else ""
    return InvalidInput(
        f"{item} has no attribute {by!r}, and the objective has ByGroup(by={by!r}){near}; give "
        f'every item one, such as {by}="acme"'
    )


def moved(
    groups: Matrix,
    gaps: Matrix,
    old: tuple[Attributes, IntVector],
    new: tuple[Attributes, IntVector],
) -> tuple[Matrix, Matrix]:
    """`State.groups` and `State.gaps` after items have come and gone.

    A gap is a time in which a group has no item: (column of the group, first epoch, first epoch
    after it). An epoch begins when a group goes or comes back; rows of decisions have theirs. The
    clock of a group is that of its first item without the answers from its gaps.

    old, new: attributes, and the items that can be shown, before and after
    """
    (before, were), (after, are) = old, new
    column = dict(zip(after.pairs, range(len(after.pairs)), strict=True))
    kept = np.array([column[pair] for pair in before.pairs], np.int64)
    out = after.clocks()
    out[:2, kept] = groups[:2]
    lived, lives = before.living(were), after.living(are)[kept]
    gone, back = kept[lived & ~lives], kept[~lived & lives]
    gaps = gaps.copy()
    gaps[0] = kept[gaps[0].astype(np.int64)]
    known = gaps[1:][gaps[1:] < NO_END]
    epoch = known.max(initial=0.0) + 1.0
    gaps[2, np.isin(gaps[0], back) & (gaps[2] == NO_END)] = epoch
    opened = np.vstack([gone, np.full(gone.size, epoch), np.full(gone.size, NO_END)])
    return out, np.hstack([gaps, opened])
