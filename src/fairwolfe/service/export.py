"""Closed decisions with what came of them, as the table that `fairwolfe.agent.log_format` defines;
and deleting what was exported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.agent.log_format import Header, Writer
from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.rows import ArmRows, RankingRows
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.service.events import (
    Change,
    DecisionsMade,
    ItemsAdded,
    ItemsRetired,
    Started,
    decode,
    decode_at,
    unpack_inputs,
)
from fairwolfe.service.join import Joined
from fairwolfe.service.log_file import ReadLog
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import recover, write_snapshots
from fairwolfe.service.store import Doomed, PruneBase, Row, SQLiteStore, Store

Tick = Callable[[int], None]
_STEP = 256  # outcomes deleted in a transaction, while no service runs


class Pending(NamedTuple):
    """A decision that waits for its close: when it was made, what was asked (None and nothing where
    that is not kept), and which items could be shown, key -> number.
    """

    wall: float
    decision: Decision
    context: Any
    options: dict[str, Any]
    items: dict[str, int]
    name: str | None  # of the arm, where the request named it


def export(log: ReadLog, model: Model, path: Path, upto: int | None, tick: Tick) -> int:
    """Write the closed decisions of a model, in their order, to a file; how many there were.

    upto: only those below this number. Left out is what the model did not learn from: decisions
    without any feedback, or without any of a stage, where `missing` is "skip". model: in the state
    at the end of the log.
    """
    if model.agent is None:
        raise InvalidInput(f"model {model.name!r} has no items yet, and nothing to export")
    agent = model.agent
    items = (agent.names, agent.features) if model.ranks else (None, None)
    count = 0
    settings = (model.objective, model.setup.policy, *items, agent.arms)
    with Writer(path, Header(agent.problem, *settings)) as table:
        for row in closed_rows(log, model, upto, tick):
            table.row(row)
            count += 1
    return count


def closed_rows(
    log: ReadLog, model: Model, upto: int | None, tick: Tick, chosen: bool = False
) -> Iterator[dict[str, Any]]:
    """The rows of closed decisions; chosen: with the features of the chosen arm alone, which every
    log has, as arm 0 of one.
    """
    base = log.bases.get(model.number)
    lowest = 0 if base is None else base.first
    highest = model.ring.first if upto is None else min(upto, model.ring.first)
    items = _Items(model.n_slots)
    first, joined = 0, None
    for seq, row in log.every_row():
        tick(1)
        if row is None:
            raise IncompatibleState(f"row {seq} of the log is damaged; see fairwolfe log verify")
        wall, events = decode_at(row.payload)
        for event in events:
            if event.model != model.number:
                continue
            if isinstance(event, ItemsAdded | ItemsRetired):
                items.change(event)
            elif isinstance(event, DecisionsMade):
                for pending in _pending(wall, event, items.shown, chosen):
                    number = pending.decision.number
                    if number >= highest:
                        return
                    if number < lowest:
                        continue
                    if joined is None or number - first >= len(joined.marks):
                        first, joined = _outcome(log, model, number)
                    came = joined.take(number - first)
                    if model.answered(came).all() or model.setup.missing == "zero":
                        yield _row(model, number, pending, came)


def _outcome(log: ReadLog, model: Model, number: int) -> tuple[int, Joined]:
    """What had come for the decisions that closed with one."""
    kept = log.outcome_of(model.number, number)
    if kept is None:
        what = f"what had come for decision {number} of model {model.name!r}"
        raise IncompatibleState(f"{what} is not in the log; see fairwolfe log verify")
    return kept[0], Joined.from_bytes(kept[1])


def _pending(
    wall: float, event: DecisionsMade, items: dict[str, int], chosen: bool
) -> Iterator[Pending]:
    decisions = Batch(event.made)
    contexts: list[Any] = [None] * len(decisions)
    options: list[dict[str, Any]] = [{}] * len(decisions)
    if chosen and isinstance(event.made, ArmRows):
        contexts = list(event.made.x[:, None])
    elif event.inputs:
        contexts, options, _ = unpack_inputs(event.inputs)
    names = event.names or [None] * len(decisions)
    for decision, context, given, name in zip(decisions, contexts, options, names, strict=True):
        yield Pending(wall, decision, context, given, items, name)


def _row(model: Model, number: int, pending: Pending, came: Joined) -> dict[str, Any]:
    decision = pending.decision
    row = {"id": model.id(number), "number": number, "time": pending.wall}
    row["probability"] = decision.probability
    if model.ranks:
        row |= {"ranking": decision.action, "exposed": came.exposed.astype(np.float64)}
        row |= _items(model, pending)
    else:
        row |= {"action": decision.action} | _arms(model, pending)
    earned = came.values if model.ranks else came.values[0]
    return row | {f"reward.{name}": earned[..., r] for r, name in enumerate(model.rewards)}


def _arms(model: Model, pending: Pending) -> dict[str, Any]:
    """The context of a decision among arms, where it was kept."""
    columns: dict[str, Any]
    match pending.context:
        case None:
            return {"name": pending.name}
        case PerArm(features=features):
            columns, arms = {"features": features}, model.problem.n_arms or 0
        case Bilinear(user=user, items=items):
            columns, arms = {"user": user, "arms": items}, len(items)
        case context:
            columns, arms = {"context": context}, len(context)
    if pending.options.keys() & {"candidates", "blocked"}:
        columns["candidates"] = _left(pending.options, range(arms))
    return columns | {"name": pending.name, "names": pending.options.get("names")}


def _items(model: Model, pending: Pending) -> dict[str, Any]:
    """The user of a ranking, which is always kept since it is learnt from, and what could be shown
    where that is not all of the header.
    """
    user = pending.context
    if user is None:
        rows, decision = pending.decision.batch.rows, pending.decision
        user = rows.user[0] if isinstance(rows, RankingRows) else decision.evidence[0]
    columns: dict[str, Any] = {"user": user}
    total = len((model.agent and model.agent.names) or ())
    if pending.options or len(pending.items) < total:
        left = _left(pending.options, pending.items)
        columns["candidates"] = [pending.items[key] for key in left]
    if "pinned" in pending.options:
        pinned = {slot: pending.items[key] for slot, key in pending.options["pinned"].items()}
        columns["pinned"] = [pinned.get(slot, -1) for slot in range(model.n_slots)]
    return columns


def _left(options: dict[str, Any], everything: Any) -> list[Any]:
    """What could be chosen."""
    blocked = set(options.get("blocked", ()))
    return [one for one in options.get("candidates", everything) if one not in blocked]


class _Items:
    """The items that can be shown, key -> number, as the rows say; `shown` is never changed but
    replaced, so that decisions can keep it.
    """

    def __init__(self, n_slots: int) -> None:
        self.shown: dict[str, int] = {}
        self._slots, self._next = n_slots, 0

    def change(self, event: ItemsAdded | ItemsRetired) -> None:
        """Items come or go."""
        if isinstance(event, ItemsRetired):
            self.shown = {key: n for key, n in self.shown.items() if key not in event.keys}
        else:
            self.shown = self.shown | {key: self._next + i for i, key in enumerate(event.keys)}
        if self._next < self._slots:  # items are numbered when there are enough to begin
            self.shown = {key: number for number, key in enumerate(self.shown)}
            self._next = len(self.shown)
        elif isinstance(event, ItemsAdded):
            self._next += len(event.keys)


# --- and delete --------------------------------------------------------------------------------


class PrunePlan(NamedTuple):
    """What may be deleted: rows up to one, except those that are needed, where each model then
    rests on a snapshot. doomed: the rows that go.
    """

    upto: int
    bases: dict[int, PruneBase]
    doomed: list[Doomed]
    holding: str  # the model because of which it is not more


def plan(
    store: SQLiteStore, bases: dict[int, PruneBase] | None = None, upto: int | None = None
) -> PrunePlan:
    """What may be deleted once it is exported: rows that no snapshot of `bases` is behind, up to
    one. A model without a base keeps its rows.

    bases: the older of the two newest snapshots of each model, where they are not given.

    Needed are rows that hold decisions that wait, and those that changed items or the objective.
    """
    rests = older_snapshots(store) if bases is None else bases
    names = names_of(store)
    limits: dict[int, int] = {}  # by model: the last row that it can do without
    most = store.last()[0] if upto is None else upto
    for number, start in store.starts().items():
        limits[number] = most if number in rests else min(most, start.seq - 1)
    changed: set[int] = {store.last()[0], *(start.seq for start in store.starts().values())}
    present: list[int] = []
    for seq, row in store.every_row():
        if seq > most:
            break
        present.append(seq)
        for event in [] if row is None else decode(row.payload):
            if event.model in rests and seq > rests[event.model].seq:
                limits[event.model] = min(limits[event.model], seq - 1)
            if isinstance(event, Change):
                changed.add(seq)
    holding = min(limits, key=lambda number: limits[number], default=0)
    last = max(limits.get(holding, 0), store.deleted)
    spans: dict[int, list[tuple[int, int]]] = {seq: [] for seq in present if seq <= last}
    after: dict[int, PruneBase] = {}
    for number, base in rests.items():
        first = load_snapshot(store, number, base.seq).ring.first
        own = []
        for one in store.every_span(number):
            if one[2] > last:
                first = min(first, one[0])
                break
            own.append(one)
        after[number] = PruneBase(base.seq, first)
        for start_number, stop, seq in own:
            spans.setdefault(seq, []).append((number, start_number))
            if stop > first:
                changed.add(seq)
    doomed: list[Doomed] = [(seq, keys) for seq, keys in spans.items() if seq not in changed]
    return PrunePlan(last, after, doomed, names.get(holding, ""))


def older_snapshots(store: SQLiteStore) -> dict[int, PruneBase]:
    """Of each model the older of its two newest snapshots, or the one that it rests on already."""
    found = {number: store.snapshot_rows(number) for number in store.starts()}
    older = {number: PruneBase(seqs[1], 0) for number, seqs in found.items() if len(seqs) > 1}
    return {**store.bases, **older}


def load_snapshot(store: SQLiteStore, model: int, seq: int) -> Model:
    """A model as its snapshot has it."""
    data = dict(store.snapshots(model)).get(seq)
    if data is None:
        where = f"the snapshot of model {model} at row {seq}"
        raise IncompatibleState(f"{where} is damaged; see fairwolfe log verify")
    return Model.load(model, store, seq, data)


def names_of(store: SQLiteStore) -> dict[int, str]:
    """The names of the models of a log."""
    return {number: _name_in(row, number) for number, row in store.starts().items()}


def _name_in(row: Row, number: int) -> str:
    begun = [event for event in decode(row.payload) if isinstance(event, Started)]
    return next(str(json.loads(e.setup)["name"]) for e in begun if e.model == number)


def keep_snapshots(store: Store) -> None:
    """A snapshot of every model at the end of the log, of those too that are served no more and
    would hold on to their rows for ever.
    """
    last, models = store.last()[0], recover(store).models.values()
    newest = {model: max(dict(store.snapshots(model.number)), default=0) for model in models}
    due = [model for model in models if not model.stopped and newest[model] < last]
    write_snapshots(store, last, due, models)


def prune(store: SQLiteStore, planned: PrunePlan) -> int:
    """Delete what was exported; how many rows."""
    if plan(store) != planned:
        raise InvalidInput(
            f"{store.path} has changed since the export began, so nothing was deleted; export again"
        )
    store.rest(planned.upto, planned.bases, planned.doomed)
    for model in planned.bases:
        while store.drop_outcomes(model, _STEP):
            pass
    store.vacuum()
    return len(planned.doomed)
