"""Whether a log is whole: what is wrong with it, in sentences, and what to do."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from io import BytesIO
from itertools import pairwise
from typing import NamedTuple

import apsw
import msgspec
import numpy as np

from fairwolfe.agent.file import read_from
from fairwolfe.errors import FairwolfeError, IncompatibleState
from fairwolfe.service.config import Setup
from fairwolfe.service.events import (
    Closed,
    Decided,
    Event,
    ItemsAdded,
    ItemsRetired,
    ObjectiveReplaced,
    Started,
    decode,
)
from fairwolfe.service.log_file import LogFile
from fairwolfe.service.model import Model, read_objective
from fairwolfe.service.recovery import recover, replay

__all__ = ["Verified", "verify"]

_RELATIVE, _ABSOLUTE = 1e-6, 1e-9  # what rounding may come to in sums over a long log
_BACKUP = "put a backup in its place"
_FOUND = "decisions cannot be found by their ids, and what was learnt is right"

Tick = Callable[[int], None]


class Verified(NamedTuple):
    """What was examined, what is wrong, and what is worth knowing."""

    rows: int
    events: int
    decisions: int
    snapshots: int
    deleted: int
    folded: bool
    wrong: list[str]
    notes: list[str]


def verify(log: LogFile, fold: bool, tick: Tick) -> Verified:
    """Examine a log; fold: also that snapshots are the fold of the rows; tick: rows examined."""
    examined = _Examined(log)
    try:
        examined.wrong += [
            f"SQLite finds the file damaged: {one}; {_BACKUP}" for one in log.complaints()
        ]
        examined.mark()
        examined.rows_of_the_log(tick)
        examined.snapshots()
        examined.places()
        sound = not examined.wrong
        if fold and sound:
            examined.fold(tick)
    except apsw.Error as error:
        examined.wrong.append(f"SQLite cannot read the file further: {error}; {_BACKUP}")
        sound = False
    return Verified(
        examined.rows,
        examined.events,
        examined.decisions,
        examined.kept,
        log.deleted,
        fold and sound,
        examined.wrong,
        examined.notes,
    )


class _Examined:
    def __init__(self, log: LogFile) -> None:
        self.log = log
        self.wrong: list[str] = []
        self.notes: list[str] = []
        self.rows = self.events = self.decisions = self.kept = 0
        self.last = 0
        self.groups: dict[int, list[tuple[int, int]]] = defaultdict(list)  # (row, how many)
        self.closed: dict[int, list[tuple[int, int]]] = defaultdict(list)  # (first, stop)
        self.models: set[int] = set()

    def mark(self) -> None:
        """Whether every acknowledged row is there."""
        try:
            lost = "" if self.log.is_backup else self.log.lost()
        except IncompatibleState as error:  # the mark itself is damaged
            lost = str(error)
        self.wrong += [lost] if lost else []

    # --- rows ---------------------------------------------------------------------------------

    def rows_of_the_log(self, tick: Tick) -> None:
        """Check sums, numbers without holes, a clock that does not go back, events."""
        log, clock = self.log, 0.0
        self.last = log.deleted  # holes up to there are meant
        for seq, row in log.every_row():
            tick(1)
            self.rows += 1
            if seq > self.last + 1:
                missing = (
                    f"row {seq - 1} is"
                    if seq == self.last + 2
                    else (f"rows {self.last + 1} to {seq - 1} are")
                )
                self.wrong.append(f"{missing} missing; {_BACKUP}")
            self.last = max(seq, self.last)
            if row is None:
                self.wrong.append(f"row {seq} is damaged: its check sum does not fit; {_BACKUP}")
                continue
            if row.clock < clock:
                self.wrong.append(f"the clock of row {seq} goes back; {_BACKUP}")
            clock = row.clock
            try:
                for event in decode(row.payload):
                    self.event(seq, event)
            except (FairwolfeError, msgspec.MsgspecError) as error:
                self.wrong.append(f"row {seq} cannot be read: {error}; {_BACKUP}")
        for model, row in log.starts().items():
            if model not in self.models:
                self.wrong.append(f"row {row.seq} should begin model {model}; {_BACKUP}")

    def event(self, seq: int, event: Event) -> None:
        """Whether all of an event can be read."""
        self.events += 1
        if isinstance(event, Started):
            msgspec.json.decode(event.setup, type=Setup)
            self.models.add(event.model)
        elif event.model not in self.models:
            raise IncompatibleState(f"it is of model {event.model}, which never began")
        match event:
            case Decided(model=model, made=made):
                self.decisions += len(made.head)
                self.groups[model].append((seq, len(made.head)))
            case Closed(model=model, first=first, upto=upto):
                self.closed[model].append((first, upto))
            case ItemsAdded(objective=text) | ItemsRetired(objective=text):
                read_objective(text)
            case ObjectiveReplaced(objective=text):
                read_objective(text)

    # --- what helps to find decisions ---------------------------------------------------------

    def places(self) -> None:
        """Whether spans and outcomes agree with the rows."""
        for model in sorted(self.models):
            spans = self.log.every_span(model)
            held = [(seq, stop - first) for first, stop, seq in spans]
            for seq, count in sorted(set(held) ^ set(self.groups[model])):
                words = f"the span of row {seq} and its {count} decisions do not agree"
                self.wrong.append(f"{words}: {_FOUND}; {_BACKUP}")
            base = self.log.bases.get(model)
            after = [span for span in spans if span[2] > self.log.deleted]
            for (_, stop, seq), (first, _, _) in pairwise(after):
                if first != stop:
                    self.wrong.append(
                        f"the spans of model {model} have a hole after row {seq}, from decision "
                        f"{stop} to {first}: {_FOUND}; {_BACKUP}"
                    )
            if spans and base is None and spans[0][0] != 0:
                self.wrong.append(
                    f"the first span of model {model} begins with decision {spans[0][0]}: "
                    f"{_FOUND}; {_BACKUP}"
                )
            first_kept = 0 if base is None else base.first
            kept = self.log.every_outcome(model)
            self.wrong += [
                f"what had come for decisions {first} to {stop - 1} of model {model} is damaged: "
                f"{_FOUND}; {_BACKUP}"
                for first, stop, whole in kept
                if not whole
            ]
            wanted = {pair for pair in self.closed[model] if pair[1] > first_kept}
            for first, stop in sorted(wanted ^ {(first, stop) for first, stop, _ in kept}):
                if base is None or first >= first_kept:
                    self.wrong.append(
                        f"the windows of decisions {first} to {stop - 1} of model {model} ended, "
                        f"and what had come does not agree: {_FOUND}; {_BACKUP}"
                    )

    # --- snapshots ----------------------------------------------------------------------------

    def snapshots(self) -> None:
        """Whether they are whole, can be read, and are not ahead of the log."""
        for model in sorted(self.models):
            for seq, data in self.log.snapshots(model):
                self.kept += 1
                where = f"the snapshot of model {model} at row {seq}"
                base = self.log.bases.get(model)
                advice = "a start takes longer without it"
                if base is not None and base.seq == seq:
                    advice = f"older rows were deleted after an export, so {_BACKUP}"
                if data is None:
                    self.wrong.append(f"{where} is damaged: its SHA-256 does not fit; {advice}")
                elif seq > self.last:
                    self.wrong.append(
                        f"{where} is ahead of the log, which ends at row {self.last}: rows are "
                        f"missing; {_BACKUP}"
                    )
                else:
                    self._load(model, where, data)

    def _load(self, model: int, where: str, data: bytes) -> None:
        try:
            Model.load(model, self.log.token, data, self.log.row)
        except FairwolfeError as error:
            self.wrong.append(f"{where} cannot be read: {error}; {_BACKUP}")

    # --- the fold -----------------------------------------------------------------------------

    def fold(self, tick: Tick) -> None:
        """Whether snapshots, and what is kept of closed decisions, are the fold of the rows."""
        log = self.log
        waiting = {
            (seq, model): data
            for model in self.models
            for seq, data in log.snapshots(model)
            if data is not None
        }

        def compare(seq: int, models: dict[int, Model]) -> None:
            for key in [key for key in waiting if key[0] < seq]:
                model, data = models[key[1]], waiting.pop(key)
                base = log.bases.get(key[1])
                if model.dump() != data and (base is None or key[0] >= base.seq):
                    kept = Model.load(model.number, log.token, data, log.row)
                    where = f"the snapshot of model {model.name!r} at row {key[0]}"
                    self._differs(where, kept, model)

        def before(seq: int, events: list[Event], models: dict[int, Model]) -> None:
            tick(1)
            compare(seq, models)
            for event in events:
                if isinstance(event, Closed):
                    self._closes(seq, event, models[event.model])

        whole = replay(log, before=before)
        compare(log.last()[0] + 1, whole.models)
        self.wrong += [model.stopped for model in whole.models.values() if model.stopped]
        for number, model in recover(log).models.items():
            if model.digest() != whole.models[number].digest():
                where = f"model {model.name!r} from its newest snapshot"
                self._differs(where, model, whole.models[number])

    def _differs(self, what: str, kept: Model, fold: Model) -> None:
        if _near(kept, fold):
            self.notes.append(
                f"{what} is the fold of the rows except for rounding: another version or another "
                "kind of processor wrote it"
            )
            return
        self.wrong.append(
            f"{what} is not the fold of the rows up to it: t {kept.t}, f {kept.value} and digest "
            f"{kept.digest()[:12]} beside t {fold.t}, f {fold.value} and {fold.digest()[:12]}; "
            f"{_BACKUP}"
        )

    def _closes(self, seq: int, event: Closed, model: Model) -> None:
        if event.first != model.ring.closed:
            self.wrong.append(
                f"row {seq} closes decisions from {event.first} on, and {model.ring.closed} is "
                f"next; {_BACKUP}"
            )
        kept = self.log.outcome_of(event.model, event.first)
        joined = model.ring.joined(np.arange(event.first, event.upto))
        if kept is not None and kept[1] != joined.to_bytes():
            self.wrong.append(
                f"what is kept of decisions {event.first} to {event.upto - 1} of model "
                f"{model.name!r} is not what the rows say: {_FOUND}; {_BACKUP}"
            )


def _near(one: Model, other: Model) -> bool:
    """Whether two states differ in rounding only."""
    plain = [(m.counts, m.version, m.early, m.ring.dump()) for m in (one, other)]
    if plain[0] != plain[1] or one.agent is None or other.agent is None:
        return False
    contents = [read_from(BytesIO(m.agent.dump()), m.name) for m in (one, other) if m.agent]
    (text, arrays), (other_text, others) = contents
    return (
        text == other_text
        and arrays.keys() == others.keys()
        and all(
            np.allclose(arrays[name], others[name], _RELATIVE, _ABSOLUTE, equal_nan=True)
            for name in arrays
        )
    )
