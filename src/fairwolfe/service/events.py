"""The words of the log: everything that changes a model, by column, as bytes and back.

A row of the log is a group of events. Numbers of decisions count from 0 in each model.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.rows import Rows, dump, load
from fairwolfe.errors import IncompatibleState, InvalidInput

__all__ = [
    "Applied",
    "Closed",
    "Decided",
    "Epoch",
    "Event",
    "ItemsAdded",
    "ItemsRetired",
    "ObjectiveReplaced",
    "Request",
    "Started",
    "Told",
    "decode",
    "decode_at",
    "encode",
    "size",
    "wall_of",
]

Request: TypeAlias = tuple[int, str, bytes]
"""Of a decision with a request_id: its place in the group, the id, and a hash of what was asked."""


class Started(NamedTuple):
    """A model begins; setup: JSON of `config.Setup`."""

    model: int
    setup: str


class Epoch(NamedTuple):
    """A process begins to decide for a model: the ids of its decisions contain this epoch.

    It is random. Numbers come again after a restore of an older log; a random epoch does not.
    """

    model: int
    epoch: str


class Decided(NamedTuple):
    """Decisions were made, as rows (docs/rows.md), which a row of the log holds without checksums:
    it has its own.

    owners: names of keys, and for each decision the place of the one that asked for it, as a byte;
    None where there are no keys. asked: what they were made from, as `audit.asked_as_bytes` writes
    it; empty unless the model keeps that.
    """

    model: int
    made: Rows
    requests: tuple[Request, ...]
    owners: tuple[tuple[str, ...], bytes] | None = None
    asked: bytes = b""


class Told(NamedTuple):
    """Feedback came that was new, and how much came that was not.

    numbers, final (n,): the decisions, and whether nothing more will come for them; exposed (m, 2):
    entry and slot; cells (c, 3): entry, slot and reward, with values (c,). An arm is in slot 0.
    counts: entries that were known, late, unknown, in conflict.
    """

    model: int
    numbers: NDArray[np.int64]
    final: NDArray[np.bool_]
    exposed: NDArray[np.int32]
    cells: NDArray[np.int32]
    values: NDArray[np.float64]
    counts: tuple[int, int, int, int]


class Applied(NamedTuple):
    """These decisions are learnt from before their window ends (``apply = "arrival"``)."""

    model: int
    numbers: NDArray[np.int64]


class Closed(NamedTuple):
    """The windows of the decisions from `first` to below `upto` have ended."""

    model: int
    first: int
    upto: int


class ItemsAdded(NamedTuple):
    """New items, features (items, q); objective: another one from now on, as text, or empty; who:
    the name of the key that asked for it.
    """

    model: int
    keys: tuple[str, ...]
    features: NDArray[np.float64]
    objective: str
    who: str = ""


class ItemsRetired(NamedTuple):
    """Items that are not shown any more."""

    model: int
    keys: tuple[str, ...]
    objective: str


class ObjectiveReplaced(NamedTuple):
    """Another f from now on; who: the name of the key that asked for it."""

    model: int
    objective: str
    who: str = ""


Event: TypeAlias = (
    Started
    | Epoch
    | Decided
    | Told
    | Applied
    | Closed
    | ItemsAdded
    | ItemsRetired
    | ObjectiveReplaced
)

_KINDS: dict[str, Any] = {
    "started": Started,
    "epoch": Epoch,
    "decided": Decided,
    "told": Told,
    "applied": Applied,
    "closed": Closed,
    "items": ItemsAdded,
    "retired": ItemsRetired,
    "objective": ObjectiveReplaced,
}
_TAGS = {kind: tag for tag, kind in _KINDS.items()}


def encode(events: list[Event], wall: float) -> bytes:
    """A group of events as the payload of a row; wall: the time of day, for people only."""
    return pack((wall, *[(_TAGS[type(event)], *_written(event)) for event in events]))


def _written(event: Event) -> tuple[Any, ...]:
    if not isinstance(event, Decided):
        return event
    model, made, *rest = event
    return (model, dump(made, ""), *rest)


def _read(tag: str, *fields: Any) -> Event:
    if tag != "decided":
        event: Event = _KINDS[tag](*fields)
        return event
    model, made, *rest = fields
    return Decided(model, load(made)[0], *rest)


def decode(payload: bytes) -> list[Event]:
    """The events of a row.

    >>> decode(encode([Closed(0, 3, 7)], 0.0))
    [Closed(model=0, first=3, upto=7)]
    """
    return decode_at(payload)[1]


def decode_at(payload: bytes) -> tuple[float, list[Event]]:
    """The time of day and the events of a row."""
    try:
        wall, *rows = unpack(payload)
        return float(wall), [_read(*row) for row in rows]
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        raise IncompatibleState(f"a row of the log cannot be read: {error}") from error


def wall_of(payload: bytes) -> float:
    """The time of day when a row was written, by the clock of the machine."""
    return float(unpack(payload)[0])


def size(event: Event) -> int:
    """How many records an event is: one for each decision, entry of feedback, or change."""
    match event:
        case Decided(made=made):
            return len(made.head)
        case Told(numbers=numbers) | Applied(numbers=numbers):
            return len(numbers)
        case Epoch():
            return 0
    return 1
