"""`Plays`: who used what how often, as a value; and the factors of its users and items."""

from __future__ import annotations

import hashlib
import math
import re
import warnings
import zipfile
from array import array
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.files import cache_folder, whole_file
from fairwolfe.errors import InvalidInput, NumericalFailure, require_extra

_LARGEST = 2.0**53  # up to here whole numbers are exact
NOT_UTF8 = "the text is not UTF-8; save the file as UTF-8"
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")  # a byte that is not UTF-8, as `open` escapes it
_SIDES = ("user", "item")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")  # as a number is printed, and within 64 bits

Id = int | str


def is_utf8(*texts: str) -> bool:
    """Whether the bytes of texts of a file were UTF-8."""
    return not any(map(_SURROGATE.search, texts))


def _wrong_count(count: Any) -> str | None:
    """The end of a sentence about a count that cannot be one; None for a number from 0 on."""
    if type(count) in (int, float) and 0 <= count <= _LARGEST:
        return None
    if isinstance(count, bool) or not isinstance(count, (int, float, np.number)) or not count >= 0:
        return f"the count is {count!r}; give a number >= 0"
    return (
        f"the count is {count!r}; give a number up to {_LARGEST:.0f}" if count > _LARGEST else None
    )


def _wrong_id(side: str, label: object) -> str | None:
    """The end of a sentence about an id that cannot be one; None for numbers and texts."""
    if label is None or label == "":
        return f"the {side} is empty; give an id in every row"
    if isinstance(label, bool) or not isinstance(label, (int, np.integer, str)):
        return f"the {side} is {label!r}; give a whole number or a text"
    return NOT_UTF8 if isinstance(label, str) and not is_utf8(label) else None


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Plays:
    """Counts of users and items, equal pairs summed: compared by content, printed as rows.

    users, items, counts: the pairs, as places among the ids. Ids are sorted, as numbers if they are
    numbers. `notes` are sentences about how a table was read; they are not part of the value.

    >>> Plays.of(enumerate([("bo", 7, 2), ("al", 7, 1), ("bo", 7, 3)]))
    [('al', 7, 1.0), ('bo', 7, 5.0)]
    """

    user_ids: tuple[Id, ...]
    item_ids: tuple[Id, ...]
    users: IntVector
    items: IntVector
    counts: Vector
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        rows: Iterable[tuple[int, Any]],
        notes: tuple[str, ...] = (),
        where: str = "row",
        *,
        text: bool = False,
    ) -> Plays:
        """From numbered rows (user, item, count) or (user, item), which count 1.

        where: what errors say before the number. text: rows are of a text file; their ids become
        numbers if all of their side are numbers. Memory: 24 bytes a row.
        """
        known: tuple[dict[Id, int], dict[Id, int]] = ({}, {})
        codes, counts = (array("q"), array("q")), array("d")
        for number, row in rows:
            count = row[2] if len(row) == 3 else 1.0
            if text and type(count) is str and NUMBER.fullmatch(count.strip(" \t")):
                count = float(count)
            for side, ids, places, label in zip(_SIDES, known, codes, row, strict=False):
                place = ids.get(label) if type(label) in (int, str) else None
                if place is None:
                    if problem := _wrong_id(side, label):
                        raise InvalidInput(f"{where} {number}: {problem}")
                    place = ids.setdefault(label, len(ids))
                places.append(place)
            if problem := _wrong_count(count):
                raise InvalidInput(f"{where} {number}: {problem}")
            counts.append(count)
        if not counts:
            source = where.rpartition(", ")[0] or "the table"
            raise InvalidInput(f"{source} has no rows; give at least one (user, item, count)")
        (user_ids, users), (item_ids, items) = (
            _sorted(side, list(ids), np.array(places), text)
            for side, ids, places in zip(_SIDES, known, codes, strict=True)
        )
        m = len(item_ids)
        pairs, own = np.unique(users * m + items, return_inverse=True)
        # In the order of the rows.
        totals = np.asarray(np.bincount(own, counts), dtype=np.float64)
        # -0.0 equals 0.0, so it must have the same bytes.
        return cls(user_ids, item_ids, pairs // m, pairs % m, totals + 0.0, notes)

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


def _sorted(
    side: str, labels: list[Any], places: IntVector, text: bool
) -> tuple[tuple[Id, ...], IntVector]:
    """The ids in order, and the places of rows among them."""
    if not text:
        labels = [label if isinstance(label, str) else int(label) for label in labels]
    elif all(map(_WHOLE.fullmatch, labels)):
        labels = list(map(int, labels))
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
    return tuple(labels[i] for i in order), rank[places]


class Selection(NamedTuple):
    """The users and items of a world, with their counts."""

    user_ids: tuple[Id, ...]
    item_ids: tuple[Id, ...]
    counts: Any  # scipy.sparse.csr_matrix (users, items), without zeros
    notes: tuple[str, ...]


_BLOCK = 1 << 22  # means computed together

_DIGITS = 6  # of a hash: what one machine and another should agree on


class AlsSettings(NamedTuple):
    """Of the alternating least squares."""

    factors: int
    iterations: int
    regularization: float
    alpha: float
    random_state: int


WEIGHTS: dict[str, Callable[[Any], Any]] = {
    "log1p": lambda counts: counts.log1p(),
    "counts": lambda counts: counts,
    "ones": lambda counts: counts.sign(),
}
"""What the least squares trust a count with, of a sparse matrix."""


class Factors(NamedTuple):
    """Of users (n, p) and of items (m, p)."""

    users: Matrix
    items: Matrix

    @property
    def hash(self) -> str:
        """The sha256 of all factors, rounded to 6 digits after the point."""
        digest = hashlib.sha256()
        for part in self:
            digest.update(repr(part.shape).encode())
            digest.update(np.rint(part * 10.0**_DIGITS).astype("<i8").tobytes())
        return digest.hexdigest()


def factorise(counts: Any, settings: AlsSettings, weights: str = "log1p") -> Factors:
    """Factors of counts, a sparse matrix (users, items); from the cache if they are there.

    The loss is that of implicit feedback: sum_ui c_ui (p_ui - u.v)^2 with p = 1 where something was
    played and 0 elsewhere, c = alpha weight there and 1 elsewhere, and ridge terms; `weights` names
    one of `WEIGHTS` of the count.
    """
    file = cache_folder() / "factors" / f"{_key(counts, settings, weights)}.npz"
    kept = _read(file, (counts.shape[0], counts.shape[1]), settings.factors)
    if kept is not None:
        return kept
    factors = _als(WEIGHTS[weights](counts), settings)
    # A cache that cannot be written to costs time, nothing else.
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(file) as out:
            np.savez(out, users=factors.users, items=factors.items)
    return factors


def scaled(factors: Factors) -> Factors:
    """Both factors by the same number, so that the largest u.v is 1."""
    largest = extremes(factors.users, factors.items)[1]
    if not largest > 0.0:
        raise InvalidInput("nothing was played, so there is nothing to learn from; give plays")
    return Factors(factors.users / math.sqrt(largest), factors.items / math.sqrt(largest))


def _key(counts: Any, settings: AlsSettings, weights: str) -> str:
    made = (version("fairwolfe"), counts.shape, tuple(settings), weights)
    digest = hashlib.sha256(repr(made).encode())
    for part, kind in ((counts.indptr, "<i8"), (counts.indices, "<i8"), (counts.data, "<f8")):
        digest.update(part.astype(kind).tobytes())
    return digest.hexdigest()


def _read(file: Path, shape: tuple[int, int], n: int) -> Factors | None:
    """What the cache holds; None if it is not there or spoilt."""
    try:
        with open(file, "rb") as opened, np.load(opened, allow_pickle=False) as arrays:
            factors = Factors(arrays["users"], arrays["items"])
    except (OSError, EOFError, KeyError, ValueError, zipfile.BadZipFile):
        return None
    fits = all(
        part.dtype == np.float64 and part.shape == (size, n) and np.isfinite(part).all()
        for part, size in zip(factors, shape, strict=True)
    )
    return factors if fits else None


def _als(weights: Any, settings: AlsSettings) -> Factors:
    require_extra("lab", "a world from a table", "implicit")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its progress bar, when it is imported
        from implicit.cpu.als import AlternatingLeastSquares
        from implicit.recommender_base import ModelFitError
        from threadpoolctl import threadpool_limits
    # One thread: sums are then always added in the same order, and small ones faster.
    with threadpool_limits(1, "blas"):
        model = AlternatingLeastSquares(**settings._asdict(), num_threads=1)
        try:
            model.fit(weights, show_progress=False)
        except ModelFitError as error:
            raise NumericalFailure(
                f"the factors are not finite with {settings}; give a larger regularization"
            ) from error
    users, items = (np.array(a, np.float64) for a in (model.user_factors, model.item_factors))
    return Factors(users, items)


def extremes(turned: Matrix, items: Matrix) -> tuple[float, float]:
    """The smallest and the largest mean, a block of users at a time."""
    size = max(1, _BLOCK // len(items))
    least, most = math.inf, -math.inf
    for i in range(0, len(turned), size):
        means = turned[i : i + size] @ items.T
        least, most = min(least, float(means.min())), max(most, float(means.max()))
    return least, most
