"""From the log to models: the newest good snapshot and what came after it."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from fairwolfe.agent.names import attributes_of, keyed
from fairwolfe.core.candidates import sizes
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput
from fairwolfe.service.config import Config, ModelConfig, Setup, setup
from fairwolfe.service.events import (
    Event,
    ItemsAdded,
    Started,
    StartedFrom,
    decode,
    encode,
    size,
)
from fairwolfe.service.model import Model
from fairwolfe.service.store import Later, Snapshot, Store
from fairwolfe.service.telemetry import log_event, log_stopped


class Recovered(NamedTuple):
    """Models by number, and how many records were applied on top of their snapshots."""

    models: dict[int, Model]
    records: int

    def others(self, served: dict[str, Model]) -> list[Model]:
        """The models that are not served."""
        return [model for model in self.models.values() if served.get(model.name) is not model]


Before = Callable[[int, list[Event], dict[int, Model]], None]
"""Called before a row is applied: its seq, its events, and the models as they are by then."""


def recover(store: Store) -> Recovered:
    """The models of a log, each from its newest good snapshot on."""
    models: dict[int, Model] = {}
    starts: dict[int, int] = {}
    for number, begun in _begun(store).items():
        models[number], starts[number] = _newest(store, number, begun)
    return _folded(store, models, starts)


def _newest(store: Store, number: int, begun: _Begun) -> tuple[Model, int]:
    """A model by its newest good snapshot, or as it began, and the row after which it goes on."""
    for place, (seq, data) in enumerate(store.snapshots(number)):
        why = "its SHA-256 does not fit"
        try:
            if data is not None:
                model = Model.load(number, store, seq, data)
                return model, seq if place else max(seq, store.folded)
        except IncompatibleState as error:
            why = f"it cannot be read ({type(error).__name__}); see fairwolfe log verify"
        log_event("snapshot_unused", why, logging.WARNING, model=begun.setup.name, seq=seq)
    if number in store.bases:
        raise IncompatibleState(
            f"no snapshot of model {begun.setup.name!r} can be read, and rows up to "
            f"{store.deleted} were deleted after an export, so that the log alone does not say "
            "what it learnt; put a backup in its place"
        )
    return begun.model(store, number), begun.seq - 1


def replay(store: Store, until: int | None = None, before: Before | None = None) -> Recovered:
    """The models of a log from its first row on, up to a row: for audits.

    Where rows were deleted after an export, from the snapshots on which the log rests since.
    """
    begun = _begun(store)
    models: dict[int, Model] = {}
    starts: dict[int, int] = {}
    for number, start in begun.items():
        base = store.bases.get(number)
        if base is None:
            models[number], starts[number] = start.model(store, number), start.seq - 1
            continue
        name = start.setup.name
        if until is not None and until < base.seq:
            raise InvalidInput(
                f"the log of model {name!r} begins after row {base.seq}, since older ones were "
                f"deleted after an export; row {until} cannot be gone back to"
            )
        data = dict(store.snapshots(number)).get(base.seq)
        if data is None:
            raise IncompatibleState(
                f"the snapshot of model {name!r} at row {base.seq} is damaged, and older rows were "
                "deleted after an export; put a backup in its place"
            )
        models[number] = Model.load(number, store, base.seq, data)
        starts[number] = base.seq
    return _folded(store, models, starts, until, before)


class _Begun(NamedTuple):
    """How a model began, and where: the row with its clock."""

    setup: Setup
    seq: int
    clock: float

    @classmethod
    def of(cls, event: Started, seq: int, clock: float) -> _Begun:
        """What the row says."""
        return cls(msgspec.json.decode(event.setup, type=Setup), seq, clock)

    def model(self, store: Store, number: int) -> Model:
        """The model before anything came."""
        model = Model(number, store.token, self.setup, store)
        model.since = (self.seq, self.clock)
        return model


def _begun(store: Store) -> dict[int, _Begun]:
    """How the models that the log names began."""
    begun: dict[int, _Begun] = {}
    starts = store.starts()
    rows = {row.seq: row for row in starts.values()}
    for seq, clock, payload in rows.values():
        for event in decode(payload):
            if isinstance(event, Started):
                begun[event.model] = _Begun.of(event, seq, clock)
    for number, row in starts.items():
        if number not in begun:
            raise IncompatibleState(f"row {row.seq} of the log should begin model {number}")
    return {number: begun[number] for number in starts}


def follow(store: Store, models: dict[int, Model]) -> int:
    """Apply the rows that another process has written since; how many records."""
    return _folded(store, models, dict.fromkeys(models, store.last()[0])).records


def _folded(
    store: Store,
    models: dict[int, Model],
    starts: dict[int, int],
    until: int | None = None,
    before: Before | None = None,
) -> Recovered:
    records = 0
    first = max(min(starts.values(), default=store.last()[0]), store.deleted)
    for seq, clock, payload in store.rows(first):
        if until is not None and seq > until:
            break
        events: list[Event] = []
        for event in decode(payload):
            if event.model not in models:
                if not isinstance(event, Started):
                    raise IncompatibleState(f"row {seq} of the log is of a model that never began")
                start = _Begun.of(event, seq, clock)  # written while this log was read
                models[event.model] = start.model(store, event.model)
                starts[event.model] = seq - 1
            elif not isinstance(event, Started) and seq > starts[event.model]:
                events.append(event)
        if before is not None:
            before(seq, events, models)
        for event in events:
            records += apply_event(models[event.model], event, seq, clock)
    return Recovered(models, records)


def write_snapshots(
    store: Store, seq: int, models: Iterable[Model], changed: Iterable[Model]
) -> list[Model]:
    """Keep the states of models after a row, in one transaction; these models. changed: all models
    of the log that have changed since their snapshots.
    """
    kept = {model: _snapshot(model, seq) for model in models}
    first = min((m.since[0] for m in changed if m.since and m not in kept), default=seq + 1)
    if kept:
        store.snapshot(list(kept.values()), first - 1)
    for model in kept:
        model.ring.kept()
        model.since, model.unsnapped = None, 0
    return list(kept)


def _snapshot(model: Model, seq: int) -> Snapshot:
    ring = model.ring
    later = Later(ring.first, ring.closed, ring.later()) if len(model.stages) > 1 else None
    return Snapshot(model.number, seq, model.dump(), later)


def apply_event(model: Model, event: Event, seq: int, clock: float, advice: str = "") -> int:
    """Apply an event of a row that is durable; how many records it is. A model that cannot do so is
    stopped: the log is right, this state of it is not, and nothing more is built on it.
    """
    if model.since is None:
        model.since = (seq, clock)
    if model.stopped:
        return 0
    records = size(event)
    model.unsnapped += records
    try:
        model.apply(event, seq, clock)
    except Exception as error:
        log_stopped(model, error, seq)
        model.stopped = (
            f"model {model.name!r} is stopped, since row {seq} of the log could not be applied "
            f"({type(error).__name__}: {error}){advice}"
        )
    return records


def begin(
    store: Store, config: Config, existing: dict[int, Model], clock: float
) -> dict[str, Model]:
    """The models of the configuration by name: new ones begin, changed ones raise an error.

    One row begins the new models.
    """
    first = max(existing, default=-1) + 1
    by_name = {model.name: model for model in existing.values()}
    models: dict[str, Model] = {}
    new: list[int] = []
    events: list[Event] = []
    for name, given in config.models.items():
        wanted = setup(config, name)
        model = by_name.get(name)
        if model is None:
            number = first + len(new)
            model = Model(number, store.token, wanted, store)
            new.append(model.number)
            events.append(Started(model.number, msgspec.json.encode(wanted).decode()))
            if given.start is not None:
                events.append(_start_of(config, name, model, given))
            elif given.items is not None:
                keys, rows, own = read_items(config, name, given.items, sizes(model.problem)[1])
                added = ItemsAdded(model.number, keys, rows, "", "", own)
                model.check_change(added)  # raises before it is written
                events.append(added)
        elif not model.setup.agrees(wanted):
            raise IncompatibleState(_difference(name, model.setup, wanted))
        elif given.items is not None and given.start is None:
            _check_items(config, name, model, given.items)
        model.audit, model.tolerance = given.audit, given.tolerance
        model.out_of_range = given.out_of_range
        models[name] = model
    if not events:
        return models
    seq = store.append(clock, encode(events, time.time()), starts=new)
    numbered = {model.number: model for model in models.values()}
    for event in events:
        model = numbered[event.model]
        if isinstance(event, Started):
            model.since = (seq, clock)
        else:
            apply_event(model, event, seq, clock)
    return models


def _start_of(config: Config, name: str, model: Model, given: ModelConfig) -> StartedFrom:
    """What a new model begins with, tried before it is written; it brings its items."""
    path = config.path(given.start or "")
    try:
        if given.items is not None:
            raise InvalidInput("the file has the items too; leave out items")
        event = StartedFrom(model.number, path.read_bytes())
        Model(model.number, "", model.setup).apply(event, 0, 0.0)
    except (OSError, FairwolfeError) as error:
        raise InvalidInput(f"models.{name}.start: {path}: {error}") from error
    return event


def _difference(name: str, old: Setup, new: Setup) -> str:
    changed = [
        f"{field} was {getattr(old, field)!r:.300} and is now {getattr(new, field)!r:.300}"
        for field in Setup.__struct_fields__
        if getattr(old, field) != getattr(new, field)
    ]
    return (
        f"models.{name} has a log under other settings: {'; '.join(changed)}. What was learnt "
        "rests on them: give the model another name, or see `fairwolfe log relearn CONFIG`, which "
        "makes its state again from the log under other settings"
    )


def _check_items(config: Config, name: str, model: Model, file: str) -> None:
    """The log decides: a file of other items than it began with raises an error."""
    keys, features, attributes = read_items(config, name, file, sizes(model.problem)[1])
    here, known = model.items(), model.attributes()
    ever = set((model.agent and model.agent.names) or model.early)
    each = attributes or ((),) * len(keys)
    for key, row, own in zip(keys, features.tolist(), each, strict=True):
        other = key in here and (here[key] != row or known[key] != dict(own))
        if key not in ever or other:
            raise InvalidInput(
                f"models.{name}.items: item {key!r:.80} of {file} is not as the log has it. The "
                "file is for the first start only; add and retire items by POST and DELETE"
            )


def with_attributes(row: Any) -> bool:
    """Whether an item of a file is features and attributes, not features alone."""
    return isinstance(row, dict) and "features" in row and row.keys() <= {"features", "attributes"}


def read_items(config: Config, name: str, file: str, width: int) -> tuple[Any, Any, Any]:
    """Keys, features (items, width), and the attributes of each as `ItemsAdded` has them; of a
    Parquet file with columns key, features and maybe attributes, or of a JSON file {key: features},
    {key: {"features": ..., "attributes": {...}}}. Features by name are encoded.
    """
    path, where = config.path(file), f"models.{name}.items"
    try:
        if path.suffix == ".json":
            table = json.loads(path.read_text(encoding="utf-8"))
            given = list(table.items())
        else:
            from pyarrow import parquet

            columns = parquet.read_schema(path).names
            wanted = ["key", "features", *({"attributes"} & set(columns))]
            rows = parquet.read_table(path, columns=wanted).to_pylist()
            given = [(str(row.pop("key")), row) for row in rows]
        whole = [(key, row if with_attributes(row) else {"features": row}) for key, row in given]
        pairs = [(key, row["features"]) for key, row in whole]
        # A struct has every name for every item, and None where an item has none; a map has pairs.
        owns = [dict(row.get("attributes") or {}) for _, row in whole]
        owns = [{n: text for n, text in own.items() if text is not None} for own in owns]
    except ImportError as error:
        raise InvalidInput(f"{where}: Parquet needs pyarrow; install it, or give JSON") from error
    except Exception as error:  # of whatever reads the file
        raise InvalidInput(
            f"{where}: {path} cannot be read ({error}); give Parquet with the columns key and "
            "features, or JSON {key: features}"
        ) from error
    try:
        encoder = setup(config, name).make_encoders().rows
        if encoder is not None:
            pairs = [
                (key, encoder([row])[0] if isinstance(row, dict) else row) for key, row in pairs
            ]
        keys, features = keyed(pairs, width)
        checked = [attributes_of(key, own) for key, own in zip(keys, owns, strict=True)]
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {path}: {error}") from error
    attributes = tuple(tuple(own.items()) for own in checked) if any(checked) else ()
    return keys, features, attributes
