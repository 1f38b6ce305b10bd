"""The events of the log: everything that changes a model, by column, as bytes and back.

A row of the log is a group of events. Numbers of decisions count from 0 in each model. Where a
model keeps them (``audit = true``), `DecisionInputs` are what its decisions were made from.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.groups import Item
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.rows import Rows, dump, load
from fairwolfe.errors import IncompatibleState, InvalidInput

Request: TypeAlias = tuple[int, str, bytes]
"""Of a decision with a request_id: its place in the group, the id, and a hash of what was asked."""


class Started(NamedTuple):
    """A model begins; setup: JSON of `config.Setup`."""

    model: int
    setup: str


class StartedFrom(NamedTuple):
    """A model that begins knows what an agent has learnt; agent: what `Agent.dump` wrote."""

    model: int
    agent: bytes


class Epoch(NamedTuple):
    """A process begins to decide for a model: the ids of its decisions contain this epoch.

    It is random. Numbers come again after a restore of an older log; a random epoch does not.
    """

    model: int
    epoch: str


class DecisionsMade(NamedTuple):
    """Decisions were made, as rows (docs/rows.md), which a row of the log holds without checksums:
    it has its own.

    owners: names of keys, and for each decision the place of the one that asked for it, as a byte;
    None where there are no keys. inputs: what they were made from (`pack_inputs`); empty unless
    the model keeps that. names: what the chosen arms are called, None where a request has no names;
    empty where none of them has.
    """

    model: int
    made: Rows
    requests: tuple[Request, ...]
    owners: tuple[tuple[str, ...], bytes] | None = None
    inputs: bytes = b""
    names: tuple[str | None, ...] = ()


class FeedbackReceived(NamedTuple):
    """Feedback came that was new, and how much came that was not.

    numbers, final (n,): the decisions, and whether nothing more will come for them; exposed (m, 2):
    entry and slot; cells (c, 3): entry, slot and reward, with values (c,). An arm is in slot 0.
    counts: entries that were known, late, unknown, in conflict; an entry counts in each stage of
    which it says something. stages: of each entry, as a byte; empty where there is one stage. What
    a request says of several stages at once is an entry here for each.
    """

    model: int
    numbers: NDArray[np.int64]
    final: NDArray[np.bool_]
    exposed: NDArray[np.int32]
    cells: NDArray[np.int32]
    values: NDArray[np.float64]
    counts: tuple[int, int, int, int]
    stages: bytes = b""


class Applied(NamedTuple):
    """A stage of these decisions is learnt before its window ends (``apply = "arrival"``)."""

    model: int
    numbers: NDArray[np.int64]
    stage: int = 0


class Closed(NamedTuple):
    """The windows of a stage of the decisions from `first` to below `upto` have ended."""

    model: int
    first: int
    upto: int
    stage: int = 0


class ItemsAdded(NamedTuple):
    """New items, features (items, q); objective: another one from now on, as text, or empty; who:
    the name of the key that asked for it; attributes: pairs (name, value) of each, () where no item
    has any.
    """

    model: int
    keys: tuple[str, ...]
    features: NDArray[np.float64]
    objective: str
    who: str = ""
    attributes: tuple[tuple[tuple[str, str], ...], ...] = ()

    def items(self) -> dict[str, Item]:
        """Key -> item."""
        each = self.attributes or ((),) * len(self.keys)
        rows = zip(self.keys, self.features, each, strict=True)
        return {key: Item(row, **dict(own)) for key, row, own in rows}


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


Change: TypeAlias = ItemsAdded | ItemsRetired | ObjectiveReplaced
Event: TypeAlias = (
    Started | StartedFrom | Epoch | DecisionsMade | FeedbackReceived | Applied | Closed | Change
)

_KINDS: dict[str, Any] = {
    "started": Started,
    "start": StartedFrom,
    "epoch": Epoch,
    "decided": DecisionsMade,
    "told": FeedbackReceived,
    "applied": Applied,
    "closed": Closed,
    "items": ItemsAdded,
    "retired": ItemsRetired,
    "objective": ObjectiveReplaced,
}
_TAGS = {kind: tag for tag, kind in _KINDS.items()}


def encode(events: list[Event], wall: float) -> bytes:
    """A group of events as the payload of a row; wall: the time of day, for people only."""
    rows: list[Any] = [wall]
    for event in events:
        rows.append((_TAGS[type(event)], *_written(event)))
    return pack(tuple(rows))


def _written(event: Event) -> tuple[Any, ...]:
    """The fields of an event; without the last where a model has no names, or one stage."""
    fields: tuple[Any, ...] = event
    if isinstance(event, DecisionsMade):
        fields = (event.model, dump(event.made, ""), *event[2:])
    short = isinstance(event, DecisionsMade | FeedbackReceived | Applied | Closed) and not event[-1]
    return fields[:-1] if short else fields


def _read(tag: str, *fields: Any) -> Event:
    if tag != "decided":
        event: Event = _KINDS[tag](*fields)
        return event
    model, made, *rest = fields
    return DecisionsMade(model, load(made)[0], *rest)


def decode(payload: bytes) -> list[Event]:
    """The events of a row.

    >>> decode(encode([Closed(0, 3, 7)], 0.0))
    [Closed(model=0, first=3, upto=7, stage=0)]
    """
    return decode_at(payload)[1]


def decode_at(payload: bytes) -> tuple[float, list[Event]]:
    """The time of day and the events of a row."""
    try:
        wall, *rows = unpack(payload)
        return float(wall), [_read(*row) for row in rows]
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        raise IncompatibleState(f"a row of the log cannot be read: {error}") from error


def size(event: Event) -> int:
    """How many records an event is: one for each decision, entry of feedback, or change."""
    match event:
        case DecisionsMade(made=made):
            return len(made.head)
        case FeedbackReceived(numbers=numbers) | Applied(numbers=numbers):
            return len(numbers)
        case Epoch():
            return 0
    return 1


# --- what decisions were made from ---------------------------------------------------------------


class DecisionInputs(NamedTuple):
    """What decisions were made from: contexts, what each was given besides, and the tolerance."""

    contexts: list[Any]
    options: list[dict[str, Any]]
    tolerance: float


def pack_inputs(
    contexts: Sequence[Any], options: Sequence[dict[str, Any]], tolerance: float
) -> bytes:
    """What decisions are made from."""
    return pack((tuple(map(pack_context, contexts)), tuple(map(_listed, options)), tolerance))


def unpack_inputs(data: bytes) -> DecisionInputs:
    """What `pack_inputs` wrote.

    >>> unpack_inputs(pack_inputs([np.ones((1, 2))], [{"blocked": ["a"]}], 0.001))
    DecisionInputs(contexts=[array([[1., 1.]])], options=[{'blocked': ['a']}], tolerance=0.001)
    """
    try:
        contexts, options, tolerance = unpack(data)
        read = [CONTEXTS[kind](*parts) for kind, *parts in contexts]
        return DecisionInputs(read, list(map(_given, options)), tolerance)
    except (InvalidInput, KeyError, TypeError, ValueError) as error:
        raise IncompatibleState(f"what was asked cannot be read: {error}") from error


def pack_context(context: Any) -> tuple[Any, ...]:
    """A context as its kind (a name of `CONTEXTS`) and its arrays."""
    match context:
        case PerArm(features=features):
            return ("per-arm", features)
        case Bilinear(user=user, items=items):
            return ("bilinear", user, items)
    return ("array", context)


CONTEXTS: dict[str, Any] = {"array": lambda array: array, "per-arm": PerArm, "bilinear": Bilinear}


def _listed(options: dict[str, Any]) -> tuple[Any, ...]:
    """Options in tuples, since slots are numbers and keys of what is packed are words."""
    return tuple(
        (name, tuple(value.items() if isinstance(value, dict) else value))
        for name, value in options.items()
    )


def _given(options: tuple[Any, ...]) -> dict[str, Any]:
    return {name: dict(value) if name == "pinned" else list(value) for name, value in options}
