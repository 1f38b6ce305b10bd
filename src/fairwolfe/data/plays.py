"""`Plays`: who used what how often, as a value; and its users and items with the most."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.errors import InvalidInput

__all__ = ["LARGEST", "Id", "Plays", "Selection", "wrong_count", "wrong_id"]

LARGEST = 2.0**53  # up to here whole numbers are exact
_SIDES = ("user", "item")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as a number is printed, and within 64 bits

Id = int | str


def wrong_count(count: object) -> str | None:
    """The end of a sentence about a count that cannot be one; None for a number from 0 on."""
    number = isinstance(count, (int, float, np.number)) and not isinstance(count, bool)
    if not number or not float(count) >= 0.0:  # type: ignore[arg-type]
        return f"the count is {count!r}; give a number >= 0"
    if float(count) > LARGEST:  # type: ignore[arg-type]
        return f"the count is {count!r}; give a number up to {LARGEST:.0f}"
    return None


def wrong_id(side: str, label: object) -> str | None:
    """The end of a sentence about an id that cannot be one; None for numbers and texts."""
    if label is None or label == "":
        return f"the {side} is empty; give an id in every row"
    if isinstance(label, bool) or not isinstance(label, (int, np.integer, str)):
        return f"the {side} is {label!r}; give a whole number or a text"
    return None


class Plays:
    """Counts of users and items, equal pairs summed: compared by content, printed as rows.

    Ids are sorted, as numbers if they are numbers. `notes` are sentences about how a table was
    read; they are not part of the value.

    >>> Plays.of([("bo", 7, 2), ("al", 7, 1), ("bo", 7, 3)])
    [('al', 7, 1.0), ('bo', 7, 5.0)]
    """

    __slots__ = ("counts", "item_ids", "items", "notes", "user_ids", "users")

    def __init__(
        self,
        user_ids: tuple[Id, ...],
        item_ids: tuple[Id, ...],
        users: IntVector,
        items: IntVector,
        counts: Vector,
        notes: tuple[str, ...] = (),
    ) -> None:
        self.user_ids, self.item_ids = user_ids, item_ids
        self.users, self.items, self.counts = users, items, counts  # pairs, as places among the ids
        self.notes = notes

    @classmethod
    def of(cls, rows: Iterable[Any], notes: tuple[str, ...] = ()) -> Plays:
        """From rows (user, item, count) or (user, item), which count 1."""
        totals: dict[tuple[Id, ...], float] = {}
        for number, row in enumerate(rows, start=1):
            if isinstance(row, (str, bytes)) or not isinstance(row, Sequence):
                raise InvalidInput(f"row {number} is {row!r}; give (user, item, count)")
            if len(row) not in (2, 3):
                raise InvalidInput(
                    f"row {number} has {len(row)} values; give (user, item, count), or "
                    "(user, item) to count 1"
                )
            for side, label in enumerate(row[:2]):
                if problem := wrong_id(_SIDES[side], label):
                    raise InvalidInput(f"row {number}: {problem}")
            count = row[2] if len(row) == 3 else 1.0
            if problem := wrong_count(count):
                raise InvalidInput(f"row {number}: {problem}")
            pair = tuple(label if isinstance(label, str) else int(label) for label in row[:2])
            totals[pair] = totals.get(pair, 0.0) + float(count)
        if not totals:
            raise InvalidInput("the table has no rows; give at least one (user, item, count)")
        sides = []
        for ids in zip(*totals, strict=True):
            known = {label: code for code, label in enumerate(dict.fromkeys(ids))}
            sides.append((list(known), np.array([known[label] for label in ids])))
        (user_ids, users), (item_ids, items) = sides
        return cls.of_pairs(user_ids, item_ids, users, items, np.array([*totals.values()]), notes)

    @classmethod
    def of_pairs(
        cls,
        user_ids: Sequence[Any],
        item_ids: Sequence[Any],
        users: IntVector,
        items: IntVector,
        counts: Vector,
        notes: tuple[str, ...] = (),
        *,
        text: bool = False,
    ) -> Plays:
        """From different pairs, as places among ids in any order.

        Ids that were read as text become numbers if all of their side are numbers.
        """
        ids, ranks = [], []
        for side, given, codes in (("user", user_ids, users), ("item", item_ids, items)):
            whole = text and all(map(_WHOLE.fullmatch, given))
            labels = list(map(int, given)) if whole else list(given)
            kinds = {type(label): label for label in labels}
            if len(kinds) > 1:
                one, other = kinds.values()
                raise InvalidInput(
                    f"some ids of a {side} are numbers and some are texts, such as {one!r} and "
                    f"{other!r}; give all of one kind"
                )
            order = sorted(range(len(labels)), key=labels.__getitem__)
            rank = np.empty(len(labels), np.int64)
            rank[order] = np.arange(len(labels))
            ids.append(tuple(labels[i] for i in order))
            ranks.append(rank[codes])
        users, items = ranks
        places = np.lexsort((items, users))
        counts = counts[places] + 0.0  # -0.0 equals 0.0, so it must have the same bytes
        return cls(ids[0], ids[1], users[places], items[places], counts, notes)

    def top(self, users: int | None, items: int | None, by: str) -> Selection:
        """The users and items with the most, of the whole table, the most first; ties by id.

        by "plays": the largest sums of counts. By "listeners": items with the most users, users
        with the most items, where the count is not 0.
        """
        weights = self.counts if by == "plays" else (self.counts > 0.0).astype(np.float64)
        notes = list(self.notes)
        chosen = []
        for side, n, ids, places in (
            ("users", users, self.user_ids, self.users),
            ("items", items, self.item_ids, self.items),
        ):
            totals = np.bincount(places, weights=weights, minlength=len(ids))
            chosen.append(np.argsort(-totals, kind="stable")[:n])
            if n is not None and n > len(ids):
                notes.append(
                    f"{n} {side} were requested, and the table has {len(ids)}: all are kept"
                )
        counts = self._counts_of(*chosen)
        kept = len(chosen[0]), len(chosen[1])
        for axis, (side, other) in enumerate((("users", "items"), ("items", "users"))):
            idle = int((counts.sum(axis=1 - axis) == 0.0).sum())
            if idle:
                notes.append(
                    f"{idle} of the {kept[axis]} {side} have no plays among the {kept[1 - axis]} "
                    f"{other} that are kept: their factors are 0"
                )
        return Selection(
            tuple(self.user_ids[i] for i in chosen[0].tolist()),
            tuple(self.item_ids[i] for i in chosen[1].tolist()),
            counts,
            tuple(notes),
        )

    def _counts_of(self, users: NDArray[np.intp], items: NDArray[np.intp]) -> Any:
        """The sparse matrix of counts of these users and items, in this order."""
        from scipy.sparse import csr_matrix

        row, column = np.full(len(self.user_ids), -1), np.full(len(self.item_ids), -1)
        row[users], column[items] = np.arange(len(users)), np.arange(len(items))
        rows, columns = row[self.users], column[self.items]
        kept = (rows >= 0) & (columns >= 0) & (self.counts > 0.0)
        pairs = (self.counts[kept], (rows[kept], columns[kept]))
        matrix = csr_matrix(pairs, shape=(len(users), len(items)))
        matrix.sort_indices()
        return matrix

    def _key(self) -> tuple[Any, ...]:
        arrays = (self.users, self.items, self.counts)
        return self.user_ids, self.item_ids, *(a.tobytes() for a in arrays)

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, Plays) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        rows = zip(self.users.tolist(), self.items.tolist(), self.counts.tolist(), strict=True)
        return repr([(self.user_ids[u], self.item_ids[i], count) for u, i, count in rows])


class Selection(NamedTuple):
    """The users and items of a world, with their counts."""

    user_ids: tuple[Id, ...]
    item_ids: tuple[Id, ...]
    counts: Any  # scipy.sparse.csr_matrix (users, items), without zeros
    notes: tuple[str, ...]
