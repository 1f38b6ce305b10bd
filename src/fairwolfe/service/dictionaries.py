"""Dictionaries of requests as features: the encoders that `[models.NAME.features]` describes.

The table has the keywords of `fairwolfe.core.features.Encoder`, and the same object encodes: what a
request says in dictionaries is what Python makes of them with that encoder, bit for bit.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, NamedTuple

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.build import at
from fairwolfe.core.features import Encoder
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput, did_you_mean

_SETTINGS = tuple(field.name for field in fields(Encoder))
_ROUNDING = 1.0 + 1e-9


class Encoders(NamedTuple):
    """The encoders of a model: of what all arms or items share, and of each arm or item.

    Arms with features of their own have only `rows`, and products with what is shared.
    """

    context: Encoder | None = None
    rows: Encoder | None = None

    def encode(
        self, context: Mapping[str, Any] | None, rows: Sequence[Mapping[str, Any]] | None
    ) -> tuple[Any, Matrix | None]:
        """The vector of the context and a row for each dictionary; None for what is not there."""
        shared, user = None, None
        if self.context is None:
            shared = context
        elif context is not None:
            user = self.context([context])[0]
        if rows is None or self.rows is None:
            return user, None
        return user, self.rows(rows, shared)

    def size(
        self, context: Mapping[str, Any] | None, rows: Sequence[Mapping[str, Any]]
    ) -> tuple[int, int]:
        """How many numbers dictionaries become, and how many values and products they have."""
        own = sum(map(_values, rows))
        shared = 0 if context is None else _values(context)
        numbers = len(rows) * (0 if self.rows is None else self.rows.n_features)
        if self.context is not None:
            return numbers + self.context.n_features, own + shared
        return numbers, own + shared * (len(rows) + own)

    def to_json(self, problem: Problem) -> str:
        """As the log keeps them: what each field of a request is encoded with."""
        tables = {"context": self.context, _rows_field(problem): self.rows}
        texts = {name: one.to_json() for name, one in tables.items() if one is not None}
        return json.dumps({name: json.loads(text) for name, text in texts.items()})

    @classmethod
    def from_json(cls, text: str) -> Encoders:
        """What `to_json` wrote; none of an empty text."""
        tables: dict[str, Any] = json.loads(text) if text else {}
        made = {name: Encoder(**table) for name, table in tables.items()}
        return cls(made.get("context"), made.get("arms") or made.get("items"))


def read_encoders(table: dict[str, Any] | None, problem: Problem, path: str) -> Encoders:
    """The encoders of a table of the configuration, which fit the problem.

    path: of the table, for errors
    """
    if table is None:
        return Encoders()
    norm = problem.feature_norm
    if problem.kind == "arms" and not isinstance(problem.n_features, tuple):
        own = problem.n_arms is None
        encoder = _encoder(table, path, problem.n_features, norm, crosses=own)
        if encoder.feature_norm > norm * _ROUNDING:
            raise InvalidInput(
                f"{path}.feature_norm is {encoder.feature_norm:g}, and that of the problem "
                f"{norm:g}; give at most that, or leave it out"
            )
        return Encoders(None, encoder) if own else Encoders(encoder, None)
    rows = _rows_field(problem)
    pair = problem.n_features if isinstance(problem.n_features, tuple) else (1, problem.n_features)
    for key in table:
        if key not in ("context", rows):
            raise InvalidInput(
                f"{path}.{key} is unknown; the problem has features of two kinds, so give the "
                f"tables {path}.context and {path}.{rows}"
            )
    made: list[Encoder | None] = []
    for name, size, longest in (("context", pair[0], 1.0), (rows, pair[1], norm)):
        own_path, given = f"{path}.{name}", table.get(name)
        made.append(None if given is None else _encoder(given, own_path, size, longest))
    lengths = [1.0 if one is None else one.feature_norm for one in made]
    if lengths[0] * lengths[1] > norm * _ROUNDING:
        raise InvalidInput(
            f"{path}: products have a norm of up to {lengths[0] * lengths[1]:g}, and feature_norm "
            f"of the problem is {norm:g}; give the encoders a smaller feature_norm"
        )
    return Encoders(*made)


def _rows_field(problem: Problem) -> str:
    return "items" if problem.kind == "ranking" else "arms"


def _encoder(given: Any, path: str, n_features: int, norm: float, crosses: bool = False) -> Encoder:
    """An encoder of a table: of the problem's size and norm, where it does not give its own."""
    if not isinstance(given, dict):
        raise InvalidInput(f"{path} is {given!r:.80}; give a table")
    for key in given:
        if key not in _SETTINGS:
            raise InvalidInput(f"{path}.{key} is unknown; {did_you_mean(key, _SETTINGS)}")
    if "crosses" in given and not crosses:
        raise InvalidInput(
            f"{path}.crosses is for arms with one number as n_features; this problem "
            "has the products already, or no features of arms"
        )
    with at(path):
        encoder = Encoder(**{"n_features": n_features, "feature_norm": norm, **given})
    if encoder.n_features != n_features:
        raise InvalidInput(
            f"{path}.n_features is {encoder.n_features}, and the problem has {n_features} of "
            "these features; give the same number, or leave it out"
        )
    return encoder


def _values(row: Mapping[str, Any]) -> int:
    """How many values a dictionary has, each of a list counted."""
    return sum(len(one) if isinstance(one, list) else 1 for one in row.values())
