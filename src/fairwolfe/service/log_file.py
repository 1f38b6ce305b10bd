"""A log that is only read, while its service runs or not: `LogFile` reads it, `verify` examines it,
`remade` makes its decisions again, `copy`, `download` and `restore` are backups.
"""

from __future__ import annotations

import fcntl
import http.client
import json
import os
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias
from urllib.parse import urlsplit

import apsw
import msgspec
import numpy as np

from fairwolfe.agent.file import read_from
from fairwolfe.core.decision import Batch
from fairwolfe.core.files import whole_file
from fairwolfe.core.packing import unpack
from fairwolfe.errors import Denied, FairwolfeError, IncompatibleState, InvalidInput, Unavailable
from fairwolfe.service import store
from fairwolfe.service.config import Setup, read
from fairwolfe.service.events import (
    Closed,
    DecisionsMade,
    Event,
    ItemsAdded,
    ItemsRetired,
    ObjectiveReplaced,
    Started,
    decode,
    unpack_inputs,
)
from fairwolfe.service.model import Model, read_objective
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import Mark

if TYPE_CHECKING:
    from fairwolfe.service.postgres_store import PostgresLog

_NEAR = 1e-9  # probabilities, on another machine than the one that decided
_RELATIVE, _ABSOLUTE = 1e-6, 1e-9  # what rounding may come to in sums over a long log
_BACKUP = "put a backup in its place"
_FOUND = "decisions cannot be found by their ids, and what was learnt is right"
_PAGES = 1024  # of 16 kB, at once
_CHUNK = 1 << 20
_TIMEOUT = 60.0  # seconds without a byte
_BUSY = 10_000  # milliseconds, for a server that is just starting
_ATTEMPTS = 5
_WRITE = apsw.SQLITE_OPEN_READWRITE

# What a copy takes of each table: rows that it does not have yet, or (None) all of it again.
_FOLLOWED = {
    "log": "seq > (SELECT coalesce(max(seq), 0) FROM main.log)",
    **dict.fromkeys(
        ("span", "outcome"),
        "first > coalesce((SELECT max(first) FROM main.{} WHERE model = new.model), -1)",
    ),
    "history": None,
    "snapshot": None,
    "later": None,
    "meta": None,
}

Tick = Callable[[int], None]
ReadLog: TypeAlias = "LogFile | PostgresLog"


def open_log(given: Path) -> ReadLog:
    """The log of a configuration, of a state folder or in a file, to be read."""
    if given.suffix == ".toml" and (config := read(given)).shared:
        from fairwolfe.service.postgres_store import PostgresLog

        return PostgresLog(config.state, config.schema)
    return LogFile(place_of(given))


def place_of(given: Path) -> Path:
    """The log that a configuration names, that is in a state folder, or that is a file itself.

    >>> place_of(Path("nowhere"))
    Traceback (most recent call last):
    ...
    fairwolfe.errors.InvalidInput: nowhere is not there; give a configuration, a state folder or ...
    """
    path = given
    if given.suffix == ".toml":
        path = _state_of(given)
    if path.is_dir():
        path = path / store.FILE
    if not path.is_file():
        raise InvalidInput(
            f"{path} is not there; give a configuration, a state folder or a backup of a log"
        )
    return path


def folder_of(given: Path) -> Path:
    """The state folder that a configuration names, or that is given itself; it may not exist."""
    if given.suffix == ".toml":
        return _state_of(given)
    if given.exists() and not given.is_dir():
        raise InvalidInput(f"{given} is a file; give a configuration or a state folder")
    return given


def _state_of(given: Path) -> Path:
    config = read(given)
    if config.shared:
        raise InvalidInput(
            f"the log of {given} is in PostgreSQL, and this is for a log in a folder; to save it "
            "use pg_basebackup, or the backups of your provider"
        )
    return config.path(config.state)


class LogFile(store.SQLiteStore):
    """A log that is only read, also where it cannot be written or is damaged.

    served: whether a server runs. Then everything is read as it was when this was opened, in one
    transaction, and the server's journal grows until it is closed.

    beside: this process belongs to the server, so that it takes no lock, even if the server ends
    """

    def __init__(self, path: Path, beside: bool = False) -> None:
        self.served = beside
        self._begin(path)

    def _locked(self) -> int | None:
        """A lock that other readers share, and that keeps servers out; None where one runs."""
        if self.is_backup:
            return None
        self._indexed = self._indexed or self.served
        if self.served:
            return None
        try:
            handle = os.open(self.folder / store.LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            self.served = self._indexed = True  # it is the server's
            return None
        return handle

    def _open(self) -> None:
        # Without a server and a journal, the file is all there is, and no lock or index is needed;
        # with a journal, SQLite makes an index of it, and leaves both files as they are.
        self._mark_seen = None if self.is_backup else self._mark_now()  # before any later row
        uri = self.path.absolute().as_uri()
        wal = self.path.with_name(f"{self.path.name}-wal")
        journal = wal.exists() and wal.stat().st_size > 0
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        alone = not journal and not self.served
        self._base = apsw.Connection(f"{uri}?immutable=1" if alone else uri, flags=flags)
        self._base.set_busy_timeout(_BUSY)
        self._base.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        for name in ("trusted_schema = 0", "cell_size_check = 1"):
            self._base.execute(f"PRAGMA {name}")
        self._base.execute("BEGIN")  # what the first query finds stays until the end
        self._check_head()
        self._read_head()

    def _mark_now(self) -> Mark | IncompatibleState | None:
        """The mark, or what is wrong with it; a server may be writing it."""
        for attempt in range(_ATTEMPTS):
            try:
                return store.read_mark(self.folder)
            except IncompatibleState as error:
                if not self.served or attempt == _ATTEMPTS - 1:
                    return error
        return None

    def _acknowledged(self) -> Mark | None:
        if isinstance(self._mark_seen, IncompatibleState):
            raise self._mark_seen
        return self._mark_seen

    @property
    def is_backup(self) -> bool:
        """Whether it is a copy, which has no mark."""
        return self.path.name != store.FILE

    def complaints(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        return [
            line for (line,) in self._base.execute("PRAGMA integrity_check(20)") if line != "ok"
        ]

    def every_outcome(self, model: int) -> list[tuple[int, int, bool]]:
        """(first, stop, whether it is whole) of what had come at the close, in order."""
        query = "SELECT first, stop FROM outcome WHERE model = ? ORDER BY first"
        spans = list(self._base.execute(query, (model,)))
        return [(first, stop, self.outcome_of(model, first) is not None) for first, stop in spans]

    def close(self) -> None:
        """Let go of the files, and of the index that was made for reading them."""
        self._leave()


# --- decisions made again ----------------------------------------------------------------------


class Remade(NamedTuple):
    """Decisions of a row that were made again: how many, and what is wrong, in sentences."""

    decisions: int
    wrong: list[str]


def remade(model: Model, event: DecisionsMade, seq: int) -> Remade:
    """Make the decisions of a row again; model: in its state before the row."""
    if not event.inputs or model.stopped:
        return Remade(0, [])
    try:
        again = model.propose(*unpack_inputs(event.inputs))
    except FairwolfeError as error:
        return Remade(0, [f"the decisions of row {seq} cannot be made again: {error}"])
    logged = Batch(event.made)
    if len(logged) != len(again):
        return Remade(0, [f"row {seq} holds {len(logged)} decisions for {len(again)} questions"])
    wrong = []
    for place, (one, other) in enumerate(zip(logged, again, strict=True)):
        where = f"decision {model.decisions + place} of model {model.name!r} in row {seq}"
        if not np.array_equal(one.action, other.action):
            was, now = np.asarray(one.action).tolist(), np.asarray(other.action).tolist()
            wrong.append(f"{where} is {was} in the log, and is made again as {now}")
        elif not _same(one.probability, other.probability):
            was, now = one.probability, other.probability
            wrong.append(
                f"{where} has the probability {was} in the log, and {now} when it is made again"
            )
    return Remade(len(logged), wrong)


def _same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return abs(one - other) <= _NEAR


# --- verify ------------------------------------------------------------------------------------


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


def verify(log: ReadLog, fold: bool, tick: Tick) -> Verified:
    """Examine a log; fold: also that snapshots are the fold of the rows; tick: rows examined."""
    examined = _Examination(log)
    sound = False
    try:
        for found in log.complaints():
            examined.damaged(f"SQLite finds the file damaged: {found}")
        examined.mark()
        examined.rows_of_the_log(tick)
        examined.snapshots()
        examined.places()
        sound = not examined.wrong
        if fold and sound:
            examined.fold(tick)
    except apsw.Error as error:
        examined.damaged(f"SQLite cannot read the file further: {error}")
        sound = False
    counts = (examined.rows, examined.events, examined.decisions, examined.kept, log.deleted)
    return Verified(*counts, fold and sound, examined.wrong, examined.notes)


class _Examination:
    def __init__(self, log: ReadLog) -> None:
        self.log = log
        self.wrong: list[str] = []
        self.notes: list[str] = []
        self.rows = self.events = self.decisions = self.kept = 0
        self.last = 0
        self.groups: dict[int, list[tuple[int, int]]] = defaultdict(list)  # (row, how many)
        self.closed: dict[int, list[tuple[int, int]]] = defaultdict(list)  # (first, stop)
        self.stages: dict[int, int] = {}  # of each model, how many

    def damaged(self, what: str, advice: str = _BACKUP) -> None:
        """Something is wrong, and what to do about it."""
        self.wrong.append(f"{what}; {advice}")

    def mark(self) -> None:
        """Whether every acknowledged row is there."""
        try:
            lost = ""
            if isinstance(self.log, LogFile) and not self.log.is_backup:
                lost = self.log.lost()
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
            if seq == self.last + 2:
                self.damaged(f"row {seq - 1} is missing")
            elif seq > self.last + 1:
                self.damaged(f"rows {self.last + 1} to {seq - 1} are missing")
            self.last = max(seq, self.last)
            if row is None:
                self.damaged(f"row {seq} is damaged: its check sum does not fit")
                continue
            if row.clock < clock:
                self.damaged(f"the clock of row {seq} goes back")
            clock = row.clock
            try:
                for event in decode(row.payload):
                    self.event(seq, event)
            except (FairwolfeError, msgspec.MsgspecError) as error:
                self.damaged(f"row {seq} cannot be read: {error}")
        for model, row in log.starts().items():
            if model not in self.stages:
                self.damaged(f"row {row.seq} should begin model {model}")

    def event(self, seq: int, event: Event) -> None:
        """Whether all of an event can be read."""
        self.events += 1
        if isinstance(event, Started):
            settings = msgspec.json.decode(event.setup, type=Setup)
            self.stages[event.model] = settings.make_problem(settings.n_slots).n_stages
        elif event.model not in self.stages:
            raise IncompatibleState(f"it is of model {event.model}, which never began")
        match event:
            case DecisionsMade(model=model, made=made):
                self.decisions += len(made.head)
                self.groups[model].append((seq, len(made.head)))
            case Closed(model=model, first=first, upto=upto, stage=stage):
                if stage == self.stages[model] - 1:
                    self.closed[model].append((first, upto))
            case ItemsAdded() | ItemsRetired() | ObjectiveReplaced():
                read_objective(event.objective)

    # --- what helps to find decisions ---------------------------------------------------------

    def places(self) -> None:
        """Whether spans and outcomes agree with the rows."""
        for model in sorted(self.stages):
            spans = list(self.log.every_span(model))
            held = {(seq, stop - first) for first, stop, seq in spans}
            for seq, count in sorted(held ^ set(self.groups[model])):
                self.unfindable(f"the span of row {seq} and its {count} decisions do not agree")
            base = self.log.bases.get(model)
            after = [span for span in spans if span[2] > self.log.deleted]
            for (_, stop, seq), (first, _, _) in pairwise(after):
                if first != stop:
                    hole = f"have a hole after row {seq}, from decision {stop} to {first}"
                    self.unfindable(f"the spans of model {model} {hole}")
            if spans and base is None and spans[0][0] != 0:
                first = spans[0][0]
                self.unfindable(f"the first span of model {model} begins with decision {first}")
            first_kept = 0 if base is None else base.first
            kept = self.log.every_outcome(model)
            for first, stop, whole in kept:
                if not whole:
                    which = f"decisions {first} to {stop - 1} of model {model}"
                    self.unfindable(f"what had come for {which} is damaged")
            wanted = {pair for pair in self.closed[model] if pair[1] > first_kept}
            for first, stop in sorted(wanted ^ {(first, stop) for first, stop, _ in kept}):
                if first >= first_kept:
                    which = f"decisions {first} to {stop - 1} of model {model}"
                    what = "ended, and what had come does not agree"
                    self.unfindable(f"the windows of {which} {what}")

    def unfindable(self, what: str) -> None:
        """Rows are right, and what finds decisions in them is not."""
        self.damaged(f"{what}: {_FOUND}")

    # --- snapshots ----------------------------------------------------------------------------

    def snapshots(self) -> None:
        """Whether they are whole, can be read, and are not ahead of the log."""
        for model in sorted(self.stages):
            base = self.log.bases.get(model)
            for seq, data in self.log.snapshots(model):
                self.kept += 1
                where = f"the snapshot of model {model} at row {seq}"
                if data is None:
                    advice = "a start takes longer without it"
                    if base is not None and base.seq == seq:
                        advice = f"older rows were deleted after an export, so {_BACKUP}"
                    self.damaged(f"{where} is damaged: its SHA-256 does not fit", advice)
                elif seq > self.last:
                    ends = f"which ends at row {self.last}: rows are missing"
                    self.damaged(f"{where} is ahead of the log, {ends}")
                else:
                    try:
                        Model.load(model, self.log, seq, data)
                    except FairwolfeError as error:
                        self.damaged(f"{where} cannot be read: {error}")

    # --- the fold -----------------------------------------------------------------------------

    def fold(self, tick: Tick) -> None:
        """Whether snapshots, and what is kept of closed decisions, are the fold of the rows."""
        log = self.log
        waiting = {
            (seq, model): data
            for model in self.stages
            for seq, data in log.snapshots(model)
            if data is not None and (model not in log.bases or seq >= log.bases[model].seq)
        }

        def compare(upto: int, models: dict[int, Model]) -> None:
            for seq, number in [key for key in waiting if key[0] < upto]:
                model, data = models[number], waiting.pop((seq, number))
                if model.dump() != data:
                    kept = Model.load(number, log, seq, data)
                    self._differs(f"the snapshot of model {model.name!r} at row {seq}", kept, model)

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
        self.damaged(
            f"{what} is not the fold of the rows up to it: t {kept.t}, f {kept.value} and digest "
            f"{kept.digest()[:12]} beside t {fold.t}, f {fold.value} and {fold.digest()[:12]}"
        )

    def _closes(self, seq: int, event: Closed, model: Model) -> None:
        first, closed = event.first, model.ring.ended[event.stage]
        if first != closed:
            self.damaged(f"row {seq} closes decisions from {first} on, and {closed} is next")
        if event.stage < len(model.stages) - 1:
            return
        kept = self.log.outcome_of(event.model, first)
        joined = model.ring.joined(np.arange(first, event.upto))
        if kept is not None and kept[1] != joined.to_bytes():
            which = f"decisions {first} to {event.upto - 1} of model {model.name!r}"
            self.unfindable(f"what is kept of {which} is not what the rows say")


def _near(one: Model, other: Model) -> bool:
    """Whether two states differ in rounding only."""
    plain = [
        (m.counts, m.joined, m.expired, m.version, m.early, m.ring.dump()) for m in (one, other)
    ]
    if plain[0] != plain[1] or one.agent is None or other.agent is None:
        return False
    text, arrays = read_from(BytesIO(one.agent.dump()), one.name)
    other_text, others = read_from(BytesIO(other.agent.dump()), other.name)
    return (text, arrays.keys()) == (other_text, others.keys()) and all(
        np.allclose(array, others[name], _RELATIVE, _ABSOLUTE, equal_nan=True)
        for name, array in arrays.items()
    )


# --- backups -----------------------------------------------------------------------------------


class Copied(NamedTuple):
    """What was written."""

    path: Path
    rows: int
    bytes: int


def copy(place: Path, target: Path, tick: Tick) -> Copied:
    """Copy a log; tick: bytes that were copied."""
    with closing(LogFile(place)) as log:
        return _copied(log, target, tick)


def restore(backup: Path, folder: Path, tick: Tick) -> Copied:
    """Make a backup the log of a state folder; the log that was there is kept beside it.

    Interrupted before the copy is complete, nothing has changed; afterwards the next start, or the
    next restore, completes it.
    """
    with closing(LogFile(backup)) as log:
        wrong = verify(log, False, lambda _: None).wrong
        if wrong:
            raise IncompatibleState(f"{backup} was not restored: {wrong[0]}")
        store.make_folder(folder)
        handle = store.lock_folder(folder)
        try:
            store.finish_restore(folder)
            stamp = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
            copied = _copied(log, store.restored_file(folder, stamp), tick)
            store.finish_restore(folder)
        finally:
            os.close(handle)
    return copied


def _copied(log: LogFile, target: Path, tick: Tick) -> Copied:
    with _private(target) as file:
        spare = Path(file.name)
        done = 0
        for _ in log.backup(spare, _PAGES):
            size = spare.stat().st_size
            tick(size - done)
            done = size
        return _examined(spare, target)


def follow(place: Path, target: Path) -> int:
    """Bring a copy of a log up to its last row, in one transaction, while the service runs or not;
    the number of that row. A copy that is not there yet is made first.
    """
    if not target.exists():
        copy(place, target, lambda _: None)
    try:
        return _followed(place, target)
    except (apsw.FullError, apsw.IOError, apsw.BusyError, apsw.CantOpenError) as error:
        raise Unavailable(f"{target} could not be brought up to date: {error}") from error


def _followed(place: Path, target: Path) -> int:
    with closing(apsw.Connection(str(target), flags=_WRITE | apsw.SQLITE_OPEN_URI)) as base:
        base.set_busy_timeout(_BUSY)
        base.execute("PRAGMA synchronous = 2")
        base.execute("ATTACH ? AS live", (f"{place.absolute().as_uri()}?mode=ro",))
        base.execute("BEGIN")
        _check_copy(base, target)
        for table, newer in _FOLLOWED.items():
            if not base.execute(f"SELECT name FROM live.sqlite_schema WHERE name = '{table}'").get:
                continue
            if table == "later":
                base.execute(store.LATER)
            if newer is None:  # small, and rows of it change
                base.execute(f"DELETE FROM main.{table}")
            where = "" if newer is None else f"WHERE {newer.format(table)}"
            base.execute(f"INSERT INTO main.{table} SELECT * FROM live.{table} AS new {where}")
        base.execute("COMMIT")
        base.wal_checkpoint("main", mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        return int(base.execute("SELECT max(seq) FROM main.log").get or 0)


def _check_copy(base: apsw.Connection, target: Path) -> None:
    """Whether the last row of a copy is one of the log that it follows."""
    last = base.execute("SELECT seq, crc FROM main.log ORDER BY seq DESC limit 1").get
    tokens = [
        unpack(base.execute(f"SELECT value FROM {where}.meta WHERE key = 'head'").get)[0]
        for where in ("main", "live")
    ]
    same = (
        last is None or base.execute("SELECT seq FROM live.log WHERE seq = ? AND crc = ?", last).get
    )
    rests = base.execute("SELECT value FROM live.meta WHERE key = 'base'").get
    gone = last is not None and rests is not None and last[0] <= unpack(rests)[0]
    if tokens[0] != tokens[1] or not (same or gone):
        raise IncompatibleState(
            f"{target} is not a copy of this log, or the log was replaced by an older one; give "
            "another file"
        )


def download(address: str, key: str | None, target: Path) -> Copied:
    """Copy the log of a service that runs: what GET /v1/admin/backup streams."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            f"--from is {address!r:.80}; give an address such as http://127.0.0.1:8710"
        )
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT)
    headers = {"accept": "application/vnd.sqlite3"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/v1/admin/backup", headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            _refused(address, response.status, response.read(10_000))
        with _private(target) as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
            file.flush()
            return _examined(Path(file.name), target)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"{address} did not send a whole backup ({type(error).__name__}: {error}); nothing was "
            "written"
        ) from error
    finally:
        connection.close()


def _refused(address: str, status: int, body: bytes) -> NoReturn:
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"status {status}"
    kind = Denied if status in (401, 403) else Unavailable
    raise kind(f"{address} gave no backup: {message}")


@contextmanager
def _private(target: Path) -> Iterator[Any]:
    """A file to write to, for its owner only: a log holds features."""
    try:
        with whole_file(target) as file:
            os.chmod(file.name, 0o600)
            yield file
    except FileNotFoundError as error:
        raise InvalidInput(f"{target} cannot be written: {error.strerror}") from error


def _examined(spare: Path, target: Path) -> Copied:
    """A copy that can be opened; verify says more."""
    with closing(LogFile(spare)) as log:
        return Copied(target, log.row_count, spare.stat().st_size)
