"""From the log to models: the newest good snapshot and what came after it."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fairwolfe.agent.names import keyed
from fairwolfe.core.catalogue import sizes
from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.feedback import Shown
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.service import logs
from fairwolfe.service.config import Config, Setup, setup
from fairwolfe.service.events import (
    Epoch,
    Event,
    ItemsAdded,
    Started,
    decode,
    encode,
    size,
)
from fairwolfe.service.model import Model
from fairwolfe.service.store import Store

__all__ = ["Recovered", "begin", "exercise", "recover", "replay"]


class Recovered(NamedTuple):
    """Models by number, and how many records were applied on top of their snapshots."""

    models: dict[int, Model]
    records: int


Before = Callable[[int, list[Event], dict[int, Model]], None]
"""Called before a row is applied: its seq, its events, and the models as they are by then."""


def recover(store: Store) -> Recovered:
    """The models of a log, each from its newest good snapshot on."""
    models, starts = _started(store)
    for number, fresh in list(models.items()):
        for seq, data in store.snapshots(number):
            if data is None:
                words = "its SHA-256 does not fit"
                logs.say("snapshot_unused", words, logging.WARNING, model=fresh.name, seq=seq)
                continue
            try:
                loaded = Model.load(number, store.token, data, store.row)
                models[number], starts[number] = loaded, seq
                break
            except IncompatibleState as error:
                words = f"it cannot be read ({type(error).__name__}); see fairwolfe log verify"
                logs.say("snapshot_unused", words, logging.WARNING, model=fresh.name, seq=seq)
        if number in store.bases and models[number] is fresh:
            raise IncompatibleState(
                f"no snapshot of model {fresh.name!r} can be read, and rows up to {store.deleted} "
                "were deleted after an export, so that the log alone does not say what it learnt; "
                "put a backup in its place"
            )
    return _folded(store, models, starts)


def replay(store: Store, until: int | None = None, before: Before | None = None) -> Recovered:
    """The models of a log from its first row on, up to a row: for audits.

    Where rows were deleted after an export, from the snapshots on which the log rests since.
    """
    models, starts = _started(store)
    for number, base in store.bases.items():
        name = models[number].name
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
        models[number] = Model.load(number, store.token, data, store.row)
        starts[number] = base.seq
    return _folded(store, models, starts, until, before)


def _started(store: Store) -> tuple[dict[int, Model], dict[int, int]]:
    """The models that the log names, as they began, and the rows that name them."""
    models: dict[int, Model] = {}
    starts: dict[int, int] = {}
    for number, (seq, _, payload) in store.starts().items():
        for event in decode(payload):
            if isinstance(event, Started) and event.model == number:
                settings = msgspec.json.decode(event.setup, type=Setup)
                models[number], starts[number] = Model(number, store.token, settings), seq - 1
        if number not in models:
            raise IncompatibleState(f"row {seq} of the log should begin model {number}")
    return models, starts


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
                raise IncompatibleState(f"row {seq} of the log is of a model that never began")
            if not isinstance(event, Started) and seq > starts[event.model]:
                events.append(event)
        if before is not None:
            before(seq, events, models)
        for event in events:
            model = models[event.model]
            if model.stopped:
                continue
            try:
                model.apply(event, seq, clock)
            except Exception as error:
                logs.stopped(model, error, seq)
                model.stopped = (
                    f"model {model.name!r} is stopped, since row {seq} of the log could not be "
                    f"applied ({type(error).__name__}: {error})"
                )
            records += size(event)
    return Recovered(models, records)


def begin(
    store: Store, config: Config, existing: dict[int, Model], clock: float
) -> dict[str, Model]:
    """The models of the configuration by name: new ones begin, changed ones raise an error.

    One row begins the new models and a new epoch of every model.
    """
    by_name = {model.name: model for model in existing.values()}
    models: dict[str, Model] = {}
    new: list[int] = []
    events: list[Event] = []
    for name in config.models:
        wanted = setup(config, name)
        model = by_name.get(name)
        if model is None:
            model = Model(max(existing, default=-1) + 1 + len(new), store.token, wanted)
            new.append(model.number)
            events.append(Started(model.number, msgspec.json.encode(wanted).decode()))
            first = _first_items(config, name, model)
            if first is not None:
                model.copy().apply(first, 0, clock)  # raises before it is written
                events.append(first)
        elif model.setup != wanted:
            raise IncompatibleState(_difference(name, model.setup, wanted))
        elif config.models[name].items is not None:
            _same_items(config, name, model)
        model.audit = config.models[name].audit
        model.tolerance = config.models[name].tolerance
        model.out_of_range = config.models[name].out_of_range
        models[name] = model
    epoch = secrets.token_hex(6)
    events += [Epoch(model.number, epoch) for model in models.values()]
    seq = store.append(clock, encode(events, time.time()), starts=new)
    numbered = {model.number: model for model in models.values()}
    for event in events:
        model = numbered[event.model]
        if not isinstance(event, Started) and not model.stopped:
            model.apply(event, seq, clock)
    return models


def _difference(name: str, old: Setup, new: Setup) -> str:
    changed = [
        f"{field} was {getattr(old, field)!r:.300} and is now {getattr(new, field)!r:.300}"
        for field in Setup.__struct_fields__
        if getattr(old, field) != getattr(new, field)
    ]
    return (
        f"models.{name} has a log under other settings: {'; '.join(changed)}. What was learnt "
        "rests on them: give the model another name, or the service another state folder"
    )


def _first_items(config: Config, name: str, model: Model) -> ItemsAdded | None:
    """The items of a file, for the first start."""
    file = config.models[name].items
    if file is None:
        return None
    keys, features = read_items(config, name, file, sizes(model.problem)[1])
    return ItemsAdded(model.number, keys, features, "")


def _same_items(config: Config, name: str, model: Model) -> None:
    """The log decides: a file of other items than it began with raises an error."""
    file = config.models[name].items
    assert file is not None
    keys, features = read_items(config, name, file, sizes(model.problem)[1])
    here = model.items()
    ever = set((model.agent and model.agent.names) or model.early)
    for key, row in zip(keys, features.tolist(), strict=True):
        if key not in ever or (key in here and here[key] != row):
            raise InvalidInput(
                f"models.{name}.items: item {key!r:.80} of {file} is not as the log has it. The "
                "file is for the first start only; add and retire items by POST and DELETE"
            )


def read_items(config: Config, name: str, file: str, width: int) -> tuple[tuple[str, ...], Any]:
    """Keys and features (items, width) of a Parquet file with columns key and features, or of a
    JSON file {key: features}.
    """
    path, where = config.path(file), f"models.{name}.items"
    try:
        if path.suffix == ".json":
            table = json.loads(path.read_text(encoding="utf-8"))
            pairs = list(table.items())
        else:
            from pyarrow import parquet

            rows = parquet.read_table(path, columns=["key", "features"]).to_pylist()
            pairs = [(str(row["key"]), row["features"]) for row in rows]
    except ImportError as error:
        raise InvalidInput(f"{where}: Parquet needs pyarrow; install it, or give JSON") from error
    except Exception as error:  # of whatever reads the file
        raise InvalidInput(
            f"{where}: {path} cannot be read ({error}); give Parquet with the columns key and "
            "features, or JSON {key: features}"
        ) from error
    try:
        return keyed(pairs, width)
    except InvalidInput as error:
        raise InvalidInput(f"{where}: {path}: {error}") from error


# --- before a change ----------------------------------------------------------------------------


def exercise(model: Model) -> None:
    """Decide, learn and report once: the agent is not the same afterwards."""
    agent = model.agent
    if agent is None:
        return
    decisions = agent.propose(_contexts(model, 2, np.random.default_rng(0)))
    agent.issue(decisions)
    n, rewards = len(decisions), len(model.rewards)
    if model.ranks:
        nothing = Shown(np.zeros((n, model.n_slots)), np.zeros((n, model.n_slots, rewards)))
        agent.update_many(decisions, nothing)
    else:
        agent.update_many(decisions, np.tile(model.problem.low, (n, 1)))
    with suppress(InvalidInput):  # of a policy that keeps no live numbers
        agent.live()


def _contexts(model: Model, rows: int, rng: np.random.Generator) -> Any:
    problem = model.problem
    size_, norm = problem.n_features, problem.feature_norm
    if model.ranks:
        p = sizes(problem)[0]
        return rng.normal(size=(rows, p)) * (0.5 / np.sqrt(p))
    if problem.n_arms is not None:
        scale = 0.5 * norm / np.sqrt(problem.dimension)
        return [PerArm(rng.normal(size=problem.dimension) * scale) for _ in range(rows)]
    if isinstance(size_, tuple):
        p, q = size_
        return [
            Bilinear(rng.normal(size=p) * 0.5 / np.sqrt(p), rng.normal(size=(2, q)) / np.sqrt(q))
            for _ in range(rows)
        ]
    return rng.normal(size=(rows, 2, size_)) * (0.5 * norm / np.sqrt(size_))
