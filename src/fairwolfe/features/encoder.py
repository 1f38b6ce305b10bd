"""`Encoder`: dictionaries of numbers, texts and lists as vectors of fixed length, by hashing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.frames import is_frame, rows_of
from fairwolfe.core.problem import Frozen, positive, real_number, whole_number
from fairwolfe.errors import InvalidInput
from fairwolfe.features.rows import within

__all__ = ["Encoder"]

Entry = tuple[str, float]  # what is hashed, and its value in [-1, 1]

_VALUE, _TIMES = "\0", "\1"  # between a name and its value, and between the parts of a product


@dataclass(frozen=True)
class Encoder:
    """Dictionaries {name: number, text, truth value, list of texts or None} as rows of features.

    Every name with its value has a place and a sign by a hash that is the same everywhere (signed
    hashing), so that new texts need no new features; two that share a place are added up. Place 0
    is the constant 1.

    - a number x counts 2 (x - low) / (high - low) - 1, cut to [-1, 1]; its range is in `ranges`
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

    def __post_init__(self) -> None:
        self._set("n_features", whole_number("n_features", self.n_features, least=2))
        self._set("n_names", whole_number("n_names", self.n_names))
        self._set("feature_norm", positive("feature_norm", self.feature_norm))
        if not isinstance(self.ranges, Mapping):
            raise InvalidInput(f"ranges is {self.ranges!r:.80}; give {{name: (low, high)}}")
        ranges = {name: _range(name, bounds) for name, bounds in self.ranges.items()}
        self._set("ranges", Frozen(ranges))

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @classmethod
    def of(cls, sample: Any, n_features: int = 64, feature_norm: float = 1.0) -> Encoder:
        """With the ranges and the number of names of a sample: dictionaries, or a table.

        >>> Encoder.of([{"price": 2, "city": "Rome"}, {"price": 9.5, "city": None}], 16)
        Encoder(n_features=16, ranges={'price': (2.0, 9.5)}, n_names=2, feature_norm=1.0)
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
        common = None if shared is None else self._entries(shared)
        if isinstance(given, Mapping):
            if given and all(isinstance(value, Mapping) for value in given.values()):
                return {name: self._vector(row, common) for name, row in given.items()}
            return self._vector(given, common)
        rows: Matrix = np.array([self._vector(row, common) for row in _rows(given)])
        return rows

    def _vector(self, row: Any, common: list[Entry] | None) -> Vector:
        entries, size = self._entries(row), math.sqrt(1.0 + self.n_names)
        if common is not None:
            pairs = [(a + _TIMES + b, x * y) for a, x in common for b, y in entries]
            entries, size = entries + common + pairs, 1.0 + self.n_names
        vector = np.zeros(self.n_features)
        vector[0] = 1.0
        for text, value in entries:
            place, sign = _place(text, self.n_features)
            vector[place] += sign * value
        row_within: Vector = within(vector[None] * (self.feature_norm / size), self.feature_norm)[0]
        return row_within

    def _entries(self, row: Any) -> list[Entry]:
        return [entry for name, value in _items(row) for entry in self._entry(name, value)]

    def _entry(self, name: str, value: Any) -> list[Entry]:
        if value is None:
            return []
        if isinstance(value, (bool, np.bool_)):
            return [(name, 1.0 if value else -1.0)]
        if _is_number(value):
            return [(name, self._scaled(name, _finite(name, value)))]
        texts = [value] if isinstance(value, str) else value
        if isinstance(texts, (list, tuple, set, frozenset)) and all(
            isinstance(text, str) for text in texts
        ):
            different = sorted(set(texts))
            weight = 1.0 / math.sqrt(max(len(different), 1))
            return [(name + _VALUE + text, weight) for text in different]
        raise InvalidInput(
            f"feature {name!r} is {value!r:.80}, a {type(value).__name__}; give a number, a text, "
            "True or False, a list of texts, or None where it is not known"
        )

    def _scaled(self, name: str, value: float) -> float:
        if name not in self.ranges:
            raise InvalidInput(
                f"feature {name!r} is {value:g}, a number without a range; give "
                f"ranges={{{name!r}: (low, high)}}, or make the encoder of a sample: "
                "Encoder.of(rows)"
            )
        low, high = self.ranges[name]
        return min(max(2.0 * (value - low) / (high - low) - 1.0, -1.0), 1.0)

    def collisions(self, sample: Any) -> tuple[tuple[str, ...], ...]:
        """Which features of a sample share a place, and so cannot be distinguished.

        >>> rows = [{"city": city} for city in ("Rome", "Oslo", "Lima")]
        >>> Encoder(n_features=1000).collisions(rows), len(Encoder(n_features=2).collisions(rows))
        ((), 1)
        """
        places: dict[int, dict[str, None]] = {}
        for row in _rows(sample):
            for text, _ in self._entries(row):
                there = places.setdefault(_place(text, self.n_features)[0], {})
                there[text.replace(_VALUE, "=")] = None
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


def _range(name: Any, bounds: Any) -> tuple[float, float]:
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not isinstance(name, str) or not (low < high and high - low < math.inf):
        raise InvalidInput(
            f"the range of feature {name!r} is {bounds!r:.80}; give (low, high), two finite "
            "numbers with low < high, by name"
        )
    return low, high


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
            raise InvalidInput(f"a feature is named {name!r:.80}; names are texts")
    return row.items()


def _is_number(value: Any) -> bool:
    number = isinstance(value, (int, float, np.integer, np.floating))
    return number and not isinstance(value, bool)


def _finite(name: str, value: Any) -> float:
    try:
        number = real_number(f"feature {name!r}", value)
    except OverflowError:  # of a whole number that no float can hold
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInput(
            f"feature {name!r} is {number}; give a finite number, or None where it is not known"
        )
    return number


@lru_cache(maxsize=1 << 16)
def _place(text: str, n_features: int) -> tuple[int, float]:
    """Where a text counts, from 1 on, and with which sign: the same on every machine."""
    number = int.from_bytes(
        blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest(), "little"
    )
    return 1 + (number >> 1) % (n_features - 1), 1.0 if number & 1 else -1.0
