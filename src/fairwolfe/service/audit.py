"""Decisions made again from what they were made from, and compared with what the log says.

A decision is a function of the state at its row, its context, what was asked besides (candidates,
blocked, pinned) and random draws that are counted, not stored. All of it is in the log where the
model keeps what it was asked (``audit = true``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.decision import Batch
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput
from fairwolfe.service.events import Decided
from fairwolfe.service.model import Model

__all__ = ["Asked", "Remade", "asked_as_bytes", "asked_from", "remade"]

_NEAR = 1e-9  # probabilities, on another machine than the one that decided


class Asked(NamedTuple):
    """What decisions were made from: contexts, what each was given besides, and the tolerance."""

    contexts: list[Any]
    options: list[dict[str, Any]]
    tolerance: float


def asked_as_bytes(
    contexts: Sequence[Any], options: Sequence[dict[str, Any]], tolerance: float
) -> bytes:
    """What decisions are made from."""
    return pack((tuple(map(_written, contexts)), tuple(map(_listed, options)), tolerance))


def asked_from(data: bytes) -> Asked:
    """What `asked_as_bytes` wrote.

    >>> asked_from(asked_as_bytes([np.ones((1, 2))], [{"blocked": ["a"]}], 0.001))
    Asked(contexts=[array([[1., 1.]])], options=[{'blocked': ['a']}], tolerance=0.001)
    """
    try:
        contexts, options, tolerance = unpack(data)
        read = [_READ[kind](*parts) for kind, *parts in contexts]
        return Asked(read, list(map(_given, options)), tolerance)
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        raise IncompatibleState(f"what was asked cannot be read: {error}") from error


def _written(context: Any) -> tuple[Any, ...]:
    match context:
        case PerArm(features=features):
            return ("per-arm", features)
        case Bilinear(user=user, items=items):
            return ("bilinear", user, items)
    return ("array", context)


_READ: dict[str, Any] = {"array": lambda array: array, "per-arm": PerArm, "bilinear": Bilinear}


def _listed(options: dict[str, Any]) -> tuple[Any, ...]:
    """Options in tuples, since slots are numbers and keys of what is packed are words."""
    return tuple(
        (name, tuple(value.items() if isinstance(value, dict) else value))
        for name, value in options.items()
    )


def _given(options: tuple[Any, ...]) -> dict[str, Any]:
    return {name: dict(value) if name == "pinned" else list(value) for name, value in options}


class Remade(NamedTuple):
    """Decisions of a row that were made again: how many, and what is wrong, in sentences."""

    decisions: int
    wrong: list[str]


def remade(model: Model, event: Decided, seq: int) -> Remade:
    """Make the decisions of a row again; model: in its state before the row."""
    if not event.asked or model.stopped:
        return Remade(0, [])
    try:
        again = model.propose(*asked_from(event.asked))
    except FairwolfeError as error:
        return Remade(0, [f"the decisions of row {seq} cannot be made again: {error}"])
    logged = Batch(event.made)
    if len(logged) != len(again):
        return Remade(0, [f"row {seq} holds {len(logged)} decisions for {len(again)} questions"])
    wrong = []
    for place, (one, other) in enumerate(zip(logged, again, strict=True)):
        id = model.id(model.decisions + place)
        if not np.array_equal(one.action, other.action):
            wrong.append(
                f"decision {id} in row {seq} is {_plain(one.action)} in the log, and is made again "
                f"as {_plain(other.action)}"
            )
        elif not _same(one.probability, other.probability):
            wrong.append(
                f"decision {id} in row {seq} has the probability {one.probability} in the log, and "
                f"{other.probability} when it is made again"
            )
    return Remade(len(logged), wrong)


def _plain(action: Any) -> Any:
    return np.asarray(action).tolist()


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _NEAR
