"""Features: rows of numbers from dictionaries, data frames and transformers of scikit-learn."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import repeat
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.problem import (
    Frozen,
    number_range,
    positive,
    real_array,
    real_number,
    whole_number,
)
from fairwolfe.core.tables import is_frame, rows_of
from fairwolfe.errors import InvalidInput, did_you_mean

__all__ = ["Encoder", "Transformed"]


def within(rows: Matrix, feature_norm: float) -> Matrix:
    """The rows; those that are longer than the norm, shortened to it.

    >>> within(np.array([[0.0, 4.0], [0.6, 0.0]]), 1.0).tolist()
    [[0.0, 1.0], [0.6, 0.0]]
    """
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    shortened: Matrix = rows * (feature_norm / np.maximum(norms, feature_norm))
    return shortened


class Entries(NamedTuple):
    """What a dictionary holds: texts that are hashed, their values in [-1, 1], and by name which of
    them are its own.
    """

    texts: list[str]
    values: list[float]
    spans: dict[str, slice]


_VALUE, _TIMES = "\0", "\1"  # between a name and its value, and between the parts of a product
_KEPT, _LONGEST_KEPT = 1 << 15, 128  # hashes that are remembered, and characters of their texts


@dataclass(frozen=True)
class Encoder:
    """Dictionaries {name: number, text, truth value, list of texts or None} as rows of features.

    Every name with its value has a place and a sign by a hash that is the same everywhere (signed
    hashing), so that new texts need no new features; two that share a place are added up. Place 0
    is the constant 1.

    - a number x counts 2 (x - low) / (high - low) - 1, cut to [-1, 1]; its range is in `ranges`,
      and a name that is there takes numbers only
    - a text, or each of a list of n texts, counts 1, or 1 / sqrt(n), at its own place
    - True counts 1, False -1; None, and a name that is not there, count nothing

    The sum is divided by sqrt(1 + n_names), so that rows have norm `feature_norm` at most; one that
    is longer after all (more names, or collisions) is shortened. All of this is fixed from the
    start: a scaling that went on learning would change what a feature means under a regression
    that has learnt from it.

    Parameters
    ----------
    n_features: length of a row, at least 2
    ranges: name -> (low, high) of every number
    n_names: how many names a dictionary has, at most
    feature_norm: that of the problem
    texts: the names of everything that has no range, so that other names raise; None: any name
    crosses: the products with what is shared (see `__call__`) that are features, each a pair of the
        shared name and the name in the dictionary; None: all of them

    Called with a dictionary it gives a vector, with a list of them or a table of pandas, polars or
    Arrow a row for each, with {arm: dictionary} a mapping of vectors: an agent's named arms.

    Reference: Weinberger et al., "Feature Hashing for Large Scale Multitask Learning", ICML 2009.

    >>> encoder = Encoder(n_features=7, ranges={"price": (0, 10)}, n_names=3)
    >>> encoder([{"price": 7.5, "city": "Oslo"}, {"price": 2.5, "new": True}]).tolist()
    [[0.5, 0.0, 0.0, 0.0, -0.25, 0.5, 0.0], [0.5, 0.0, 0.5, 0.0, 0.25, 0.0, 0.0]]
    >>> Encoder.from_json(encoder.to_json()) == encoder
    True
    """

    n_features: int = 64
    ranges: Mapping[str, tuple[float, float]] = Frozen()
    n_names: int = 8
    feature_norm: float = 1.0
    texts: Sequence[str] | None = None
    crosses: Sequence[tuple[str, str]] | None = None

    def __post_init__(self) -> None:
        self._set("n_features", whole_number("n_features", self.n_features, least=2))
        self._set("n_names", whole_number("n_names", self.n_names))
        self._set("feature_norm", positive("feature_norm", self.feature_norm))
        if not isinstance(self.ranges, Mapping) or not all(isinstance(n, str) for n in self.ranges):
            raise InvalidInput(f"ranges is {self.ranges!r:.80}; give {{name: (low, high)}}")
        ranges = {name: number_range(f"feature {name!r}", at) for name, at in self.ranges.items()}
        self._set("ranges", Frozen(ranges))
        self._set("texts", _texts("texts", self.texts))
        self._set("crosses", self._checked_crosses())

    def _checked_crosses(self) -> tuple[tuple[str, ...], ...] | None:
        if self.crosses is None:
            return None
        if isinstance(self.crosses, str) or not isinstance(self.crosses, Iterable):
            raise InvalidInput(f"crosses is {short(self.crosses)}; give pairs of names in a list")
        pairs = tuple(_texts("crosses", pair) or () for pair in self.crosses)
        for pair in pairs:
            if len(pair) != 2 or pairs.count(pair) > 1:
                raise InvalidInput(
                    f"crosses holds {short(pair)}; give pairs (a shared name, a name in the "
                    "dictionary), each once"
                )
            for name in pair:
                self._known(name)
        return pairs

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def of(cls, sample: Any, n_features: int = 64, feature_norm: float = 1.0) -> Encoder:
        """With the ranges and the number of names of a sample: dictionaries, or a table.

        >>> encoder = Encoder.of([{"price": 2, "city": "Rome"}, {"price": 9.5, "city": None}], 16)
        >>> encoder.ranges, encoder.n_names
        ({'price': (2.0, 9.5)}, 2)
        """
        rows = _rows(sample)
        columns: dict[str, list[float]] = {}
        for row in rows:
            for name, value in _items(row):
                if _is_number(value):
                    columns.setdefault(name, []).append(_finite(name, value))
        ranges = {}
        for name, values in columns.items():
            low, high = min(values), max(values)
            # Of a number that never changed, 1 to both sides.
            ranges[name] = (low, high) if low < high else (low - 1.0, high + 1.0)
        return cls(n_features, ranges, max((len(row) for row in rows), default=1), feature_norm)

    def __call__(self, given: Any, shared: Mapping[str, Any] | None = None) -> Any:
        """The features of a dictionary, of several, or of the rows of a table.

        shared: what all of them have in common, such as the user. In a linear model it cannot tell
        arms apart by itself, so its products with what is in each dictionary are features too; the
        sum is then divided by 1 + n_names.
        """
        if not isinstance(given, Mapping):
            return self._matrix(_rows(given), shared)
        if given and all(isinstance(value, Mapping) for value in given.values()):
            return dict(zip(given, self._matrix(list(given.values()), shared), strict=True))
        return self._matrix([given], shared)[0]

    def _matrix(self, rows: Sequence[Any], shared: Mapping[str, Any] | None) -> Matrix:
        """The features of dictionaries (rows, n_features)."""
        n, counts = self.n_features, []
        texts: list[str] = []
        values: list[float] = []
        common = None if shared is None else self._read(shared)
        for row in rows:
            own, before = self._read(row), len(texts)
            texts += own.texts
            values += own.values
            if common is not None:
                texts += common.texts
                values += common.values
                for here, there in self._pairs(common, own):
                    heads = [one + _TIMES for one in common.texts[here]]
                    texts += [one + other for one in heads for other in own.texts[there]]
                    values += [x * y for x in common.values[here] for y in own.values[there]]
            counts.append(len(texts) - before)
        hashes = _hashes(texts)
        starts = np.repeat(np.arange(0, n * len(rows), n), counts)
        signed = np.where(hashes & np.uint64(1), values, np.negative(values))
        # In the order of the entries: where several share a place, their sum is that of each row.
        sums: Any = np.bincount(starts + _places(hashes, n), signed, n * len(rows))
        matrix: Matrix = sums.reshape(len(rows), n)
        matrix[:, 0] = 1.0
        scale = self.feature_norm / self._size(common is not None)
        return within(matrix * scale, self.feature_norm)

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        return dict(self.ranges)

    def _size(self, with_shared: bool) -> float:
        """The norm that a row has before it is divided by it, at most."""
        if not with_shared:
            return math.sqrt(1.0 + self.n_names)
        if self.crosses is None:  # the product of two such rows
            return 1.0 + self.n_names
        return math.sqrt(1.0 + 2.0 * self.n_names + len(self.crosses))

    def _pairs(self, common: Entries, own: Entries) -> list[tuple[slice, slice]]:
        """Which entries of what is shared are multiplied with which of a dictionary."""
        if self.crosses is None:
            return [(slice(None), slice(None))]
        return [
            (common.spans[one], own.spans[other])
            for one, other in self.crosses
            if one in common.spans and other in own.spans
        ]

    def _read(self, row: Any) -> Entries:
        """What a dictionary holds."""
        texts: list[str] = []
        values: list[float] = []
        spans = {}
        any_name, ranges = self.texts is None, self._ranges
        for name, value in _items(row):
            first = len(texts)
            if any_name and type(value) is str and name not in ranges:  # as usual
                texts.append(name + _VALUE + value)
                values.append(1.0)
            else:
                for text, number in self._entry(name, value):
                    texts.append(text)
                    values.append(number)
            spans[name] = slice(first, len(texts))
        return Entries(texts, values, spans)

    def _entry(self, name: str, value: Any) -> list[tuple[str, float]]:
        if self.texts is not None:
            self._known(name)
        if value is None:
            return []
        if name in self._ranges:
            return [(name, self._scaled(name, value))]
        if isinstance(value, str):
            return [(name + _VALUE + value, 1.0)]
        if isinstance(value, (bool, np.bool_)):
            return [(name, 1.0 if value else -1.0)]
        if isinstance(value, (list, tuple, set, frozenset)) and all(
            map(isinstance, value, repeat(str))
        ):
            different = sorted(set(value))
            weight = 1.0 / math.sqrt(max(len(different), 1))
            return [(name + _VALUE + text, weight) for text in different]
        if _is_number(value):
            raise InvalidInput(
                f"feature {name!r:.80} is {_finite(name, value):g}, a number without a range; add "
                "the name to the encoder's ranges with the lowest and the highest value, as "
                "Encoder.of(rows) does by a sample"
            )
        raise InvalidInput(
            f"feature {name!r:.80} is {short(value)}, {_kind(value)}; give a number, a text, "
            "True or False, a list of texts, or leave it out where it is not known"
        )

    def _known(self, name: str) -> None:
        """Raise for a name that is not stated, where names are."""
        if self.texts is not None and name not in self.texts and name not in self.ranges:
            known = did_you_mean(name, [*self.ranges, *self.texts])
            raise InvalidInput(f"there is no feature {name!r:.80}; {known}")

    def _scaled(self, name: str, value: Any) -> float:
        low, high = self._ranges[name]
        if type(value) is float and low <= value <= high:  # as usual
            return 2.0 * (value - low) / (high - low) - 1.0
        if not _is_number(value):
            raise InvalidInput(
                f"feature {name!r:.80} is {short(value)}, {_kind(value)}, and has the range "
                f"{low:g} to {high:g}; give a number, or leave it out where it is not known"
            )
        return min(max(2.0 * (_finite(name, value) - low) / (high - low) - 1.0, -1.0), 1.0)

    def wrong(self, rows: Iterable[Mapping[str, Any]]) -> tuple[int, str, InvalidInput] | None:
        """The first value that is refused: the number of its dictionary, its name, and why.

        >>> Encoder(8, {"price": (0, 9)}).wrong([{"price": 3}, {"city": "Rome", "price": "3"}])[:2]
        (1, 'price')
        """
        for i, row in enumerate(rows):
            for name, value in _items(row):
                try:
                    self._entry(name, value)
                except InvalidInput as error:
                    return i, name, error
        return None

    def collisions(self, sample: Any) -> tuple[tuple[str, ...], ...]:
        """Which features of a sample share a place, and so cannot be distinguished.

        >>> rows = [{"city": city} for city in ("Rome", "Oslo", "Lima")]
        >>> Encoder(n_features=1000).collisions(rows), len(Encoder(n_features=2).collisions(rows))
        ((), 1)
        """
        places: dict[int, dict[str, None]] = {}
        for row in _rows(sample):
            texts = self._read(row).texts
            for text, place in zip(texts, _places(_hashes(texts), self.n_features), strict=True):
                places.setdefault(int(place), {})[text.replace(_VALUE, "=")] = None
        return tuple(tuple(sorted(there)) for there in places.values() if len(there) > 1)

    def to_json(self) -> str:
        """The settings as one line of JSON, to be stored with the agent's file."""
        return json.dumps(asdict(self) | {"ranges": {k: list(v) for k, v in self.ranges.items()}})

    @classmethod
    def from_json(cls, text: str) -> Encoder:
        """Rebuild an encoder that `to_json` wrote."""
        try:
            values = json.loads(text)
            return cls(**values)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"an encoder cannot be read from {text[:40]!r}: {error}") from error


def _rows(given: Any) -> list[Any]:
    """Dictionaries in a row."""
    if is_frame(given):
        return rows_of(given)
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise InvalidInput(
            f"the features are {given!r:.80}; give a dictionary for each arm in a list, or a table"
        )
    rows = list(given)
    if not rows:
        raise InvalidInput("there are no rows; give a dictionary for each arm, at least one")
    return rows


def _items(row: Any) -> Iterable[tuple[str, Any]]:
    if not isinstance(row, Mapping):
        raise InvalidInput(f"a row is {row!r:.80}; give a dictionary {{name: value}}")
    for name in row:
        if not isinstance(name, str):
            raise InvalidInput(f"a feature is named {short(name)}; names are texts")
    return row.items()


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float, np.integer, np.floating))
    return number and not isinstance(value, bool)


def _kind(value: Any) -> str:
    words = {str: "a text", bool: "true or false"}
    return words.get(type(value), f"a {type(value).__name__}")


def _finite(name: str, value: Any) -> float:
    number = real_number(f"feature {name!r:.80}", value)
    if not math.isfinite(number):
        raise InvalidInput(
            f"feature {name!r:.80} is {number}; give a finite number, or leave it out where it is "
            "not known"
        )
    return number


def _texts(what: str, given: Any) -> tuple[str, ...] | None:
    """Names, or an error that shows them."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise InvalidInput(f"{what} is {short(given)}; give names in a list")
    names = tuple(given)
    for name in names:
        if not isinstance(name, str):
            raise InvalidInput(f"{what} holds {short(name)}; names are texts")
    return names


_KNOWN: dict[str, int] = {}
"""The hashes of texts that were seen lately."""


def _hashes(texts: list[str]) -> NDArray[np.uint64]:
    """A number for each text, the same on every machine: its sign and its place follow."""
    found: list[Any] = list(map(_KNOWN.get, texts))
    if None in found:
        if len(_KNOWN) >= _KEPT:
            _KNOWN.clear()
        for i, (text, number) in enumerate(zip(texts, found, strict=True)):
            if number is None:
                digest = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
                found[i] = int.from_bytes(digest, "little")
                if len(text) <= _LONGEST_KEPT and len(_KNOWN) < _KEPT:
                    _KNOWN[text] = found[i]
    return np.array(found, dtype=np.uint64)


def _places(hashes: NDArray[np.uint64], n_features: int) -> NDArray[np.int64]:
    """Where texts count, from 1 on."""
    places: NDArray[np.int64] = (hashes >> np.uint64(1)).astype(np.int64) % (n_features - 1) + 1
    return places


@dataclass(frozen=True, eq=False)
class Transformed:
    """Rows as a fitted transformer has them, divided by a fixed number to keep their norm.

    Anything with `transform`: a Pipeline, a ColumnTransformer over data frames, a DictVectorizer or
    FeatureHasher over dictionaries. It must not learn any more: a scaling that went on learning
    would change what a feature means under a regression that has learnt from it. Rows longer than
    any of the sample are shortened to `feature_norm`.

    Keep the transformer itself as scikit-learn advises; nothing is pickled here.

    Parameters
    ----------
    transformer: fitted
    n_features: columns that it makes
    divisor: of its rows, > 0
    feature_norm: that of the problem

    `of` finds both numbers from a sample.

    >>> from sklearn.feature_extraction import DictVectorizer
    >>> rows = [{"price": 3.0, "city": "Rome"}, {"price": 0.0, "city": "Oslo"}]
    >>> features = Transformed.of(DictVectorizer().fit(rows), rows)
    >>> features.n_features, features(rows).round(3).tolist()
    (3, [[0.0, 0.316, 0.949], [0.316, 0.0, 0.0]])
    """

    transformer: Any
    n_features: int
    divisor: float = 1.0
    feature_norm: float = 1.0

    def __post_init__(self) -> None:
        whole_number("n_features", self.n_features)
        for name in ("divisor", "feature_norm"):
            positive(name, getattr(self, name))

    @classmethod
    def of(cls, transformer: Any, sample: Any, feature_norm: float = 1.0) -> Transformed:
        """With the number of columns and the largest norm of a sample."""
        rows = _transformed(transformer, sample)
        largest = float(np.linalg.norm(rows, axis=1).max(initial=0.0))
        return cls(transformer, rows.shape[1], largest or 1.0, feature_norm)

    def __call__(self, given: Any) -> Any:
        """A row for each of several rows, in whatever form the transformer takes them; a vector
        for a single dictionary.
        """
        if isinstance(given, Mapping):
            return self([given])[0]
        rows = _transformed(self.transformer, given)
        if rows.shape[1] != self.n_features:
            raise InvalidInput(
                f"the transformer makes {rows.shape[1]} columns, and n_features is "
                f"{self.n_features}; give the transformer that the sample was for"
            )
        return within(rows * (self.feature_norm / self.divisor), self.feature_norm)


def _transformed(transformer: Any, given: Any) -> Matrix:
    transform = getattr(transformer, "transform", None)
    if not callable(transform) or isinstance(transformer, type):
        raise InvalidInput(
            f"the transformer is {transformer!r:.80}; give an object with transform(rows), fitted"
        )
    try:
        output: Any = transform(given)
    except (TypeError, ValueError, AttributeError) as error:
        unfitted = type(error).__name__ == "NotFittedError"
        why = "is not fitted; call its fit(sample) first, once"
        what = why if unfitted else f"cannot use these rows: {error}"
        raise InvalidInput(f"{type(transformer).__name__} {what}") from error
    dense = output.toarray() if hasattr(output, "toarray") else output
    rows = real_array(f"what {type(transformer).__name__} makes", dense)
    if rows.ndim != 2 or not np.isfinite(rows).all():
        raise InvalidInput(
            f"{type(transformer).__name__} makes an array of shape {rows.shape} "
            f"{'' if rows.ndim != 2 else 'with numbers that are not finite'}; it must be finite "
            "rows (n, features): impute what is missing, one row for each arm"
        )
    return rows
