"""The log on disk: rows in SQLite, numbered without holes, durable before `append` returns.

Beside the rows, SQLite holds what makes them easy to find (spans of decisions, outcomes) and what
can be made again from them (snapshots, history). The mark names the last acknowledged row.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias
from zlib import crc32

import apsw

from fairwolfe.core.files import sync_folder, whole_file
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput

# Exit codes: unlike after 2, a supervisor may start the service again.
DISK_FAILED = 74  # EX_IOERR
FENCED = 75  # EX_TEMPFAIL: another process leads


class StoreFailed(FairwolfeError):
    """Nothing was written: the disk is full, read-only or broken. It may work again later."""


class SyncFailed(StoreFailed):
    """A sync failed. Whether the row will be there after a crash is unknown, and the system may
    report the next sync as done although it was not: the process has to end.
    """


class Unconfirmed(StoreFailed):
    """Whether the row was written is unknown: its answer was lost, and nobody can be asked now."""


class Fenced(StoreFailed):
    """Another process leads by now, or the row that this one knows is gone. Nothing was written,
    and nothing ever will be: the process has to read the log again.
    """


class Row(NamedTuple):
    """A group of events."""

    seq: int
    clock: float
    payload: bytes


class Span(NamedTuple):
    """Decisions of a model that a row holds, from number `first` to below `stop`."""

    model: int
    first: int
    stop: int


class Outcomes(NamedTuple):
    """What had come for decisions when their windows ended, from `first` to below `stop`."""

    model: int
    first: int
    stop: int
    data: bytes


class Later(NamedTuple):
    """What changed since the last snapshot of a model for decisions that wait for a later stage,
    all of them from number `first` to below `stop`.
    """

    first: int
    stop: int
    data: bytes


class Snapshot(NamedTuple):
    """The state of a model after a row."""

    model: int
    seq: int
    data: bytes
    later: Later | None = None


class PruneBase(NamedTuple):
    """Where the log of a model begins since older rows were deleted: the row of its snapshot, and
    the number of the first decision that is still in the log.
    """

    seq: int
    first: int


class Store(Protocol):
    """What a service asks of its log. Numbers of rows have no holes; `append` is durable when it
    returns, or raises `StoreFailed` and has written nothing (`Unconfirmed`: may have).
    """

    token: str
    deleted: int
    folded: int
    bases: dict[int, PruneBase]

    def append(
        self,
        clock: float,
        payload: bytes,
        spans: Sequence[Span] = (),
        outcomes: Sequence[Outcomes] = (),
        starts: Sequence[int] = (),
    ) -> int:
        """Write a row, durably."""

    def last(self) -> tuple[int, float]:
        """The seq and the clock of the last row."""

    def rows(self, after: int) -> Iterator[Row]:
        """The rows with a seq above, checked one by one."""

    def starts(self) -> dict[int, Row]:
        """The rows that models begin with, by model."""

    def row(self, seq: int) -> tuple[float, bytes]:
        """The clock and the payload of a row."""

    def row_of(self, model: int, number: int) -> tuple[int, Row] | None:
        """The first number of the row that holds a decision, and the row."""

    def outcome_of(self, model: int, number: int) -> tuple[int, bytes] | None:
        """Of a decision whose window has ended."""

    def snapshot(self, kept: Sequence[Snapshot], folded: int) -> None:
        """Keep the states of models in one transaction."""

    def snapshots(self, model: int) -> list[tuple[int, bytes | None]]:
        """(seq, state) of a model, newest first; None for one that is damaged."""

    def later(self, model: int, seq: int) -> Iterator[bytes]:
        """What was kept with snapshots for decisions that wait for a later stage."""

    def note(self, model: int, clock: float, point: bytes) -> None:
        """Keep a point of the history of a model."""

    def history(self, model: int) -> list[tuple[float, bytes]]:
        """The points that are kept, in order."""

    @property
    def row_count(self) -> int:
        """How many rows there are."""

    def size(self) -> int:
        """Bytes on the disk."""

    def close(self) -> None:
        """Let go of everything."""


Doomed: TypeAlias = tuple[int, Sequence[tuple[int, int]]]
"""A row to delete: its seq, and (model, first) of its spans."""


MARK = "log.mark"
_MARK_MAGIC = b"fwmk"
_MARK_BODY, _MARK_CRC = struct.Struct("<4s16sqI"), struct.Struct("<I")
_APPLICATION = 0x66776C67  # "fwlg"
_FORMAT = 3
FILE, LOCK = "log.sqlite", "lock"
_NEW = "new.sqlite"  # a log that is being created
_RESTORED, _REPLACED = "restored-", "replaced-"  # see `finish_restore`
_CHECKPOINT = 250  # pages of the journal
_BUSY = 1000  # milliseconds: a reader that finds the index half-written has a lock for microseconds
_CHUNK = 1 << 20
KEPT_SNAPSHOTS = 2
MOST_POINTS = 4096  # of the history of a model
_HEAD, _KEY = struct.Struct("<qd"), struct.Struct("<qqq")

# What is set in SQLite, and read back: a setting that does not hold raises an error. Large pages
# halve the cost of a row of 14 kB, and frequent checkpoints are short.
_SETTINGS = {
    "locking_mode": "normal",  # commands read while the service runs
    "journal_mode": "wal",
    "synchronous": 2,  # FULL: every commit is synced before it returns
    "wal_autocheckpoint": 0,  # `_checkpoint` instead, since SQLite's own hides a failed sync
    "journal_size_limit": 64 << 20,
    "trusted_schema": 0,
    "cell_size_check": 1,
}

_CREATED = (
    "page_size = 16384",
    "auto_vacuum = incremental",  # space is given back in steps, see `shrink`
    "locking_mode = exclusive",
    "journal_mode = wal",
    "synchronous = 2",
)

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE log(seq INTEGER PRIMARY KEY, clock REAL NOT NULL, payload BLOB NOT NULL,
    crc INTEGER NOT NULL);
CREATE TABLE span(model INTEGER, first INTEGER, stop INTEGER NOT NULL, seq INTEGER NOT NULL,
    PRIMARY KEY(model, first)) WITHOUT ROWID;
CREATE TABLE outcome(model INTEGER, first INTEGER, stop INTEGER NOT NULL, data BLOB NOT NULL,
    crc INTEGER NOT NULL, PRIMARY KEY(model, first)) WITHOUT ROWID;
CREATE TABLE snapshot(model INTEGER, seq INTEGER, data BLOB NOT NULL, sha256 BLOB NOT NULL,
    PRIMARY KEY(model, seq));
CREATE TABLE history(model INTEGER, clock REAL, point BLOB NOT NULL,
    PRIMARY KEY(model, clock)) WITHOUT ROWID;
"""

# Only where rewards arrive in stages. With a snapshot come the pieces up to it; one is needed as
# long as a snapshot is kept in which a decision below its stop waits.
LATER = """
CREATE TABLE IF NOT EXISTS later(model INTEGER, seq INTEGER, first INTEGER NOT NULL,
    stop INTEGER NOT NULL, data BLOB NOT NULL, crc INTEGER NOT NULL,
    PRIMARY KEY(model, seq)) WITHOUT ROWID
"""
_DELETE_LATER = """
DELETE FROM later WHERE model = ? AND stop <= (SELECT min(first) FROM later WHERE model = ? AND seq
    IN (SELECT seq FROM snapshot WHERE model = ?)) AND seq NOT IN (SELECT seq FROM snapshot)
"""

_ROWS = "SELECT seq, clock, payload, crc FROM log"
_NEWEST = "ORDER BY first DESC LIMIT 1"
_DELETE_SNAPSHOTS = """
DELETE FROM snapshot WHERE model = ? AND seq NOT IN
    (SELECT seq FROM snapshot WHERE model = ? ORDER BY seq DESC LIMIT ?) AND seq IS NOT ?
"""
_DELETE_EVERY_OTHER_POINT = """
DELETE FROM history WHERE model = ? AND clock IN (SELECT clock FROM
    (SELECT clock, row_number() OVER (ORDER BY clock) AS place FROM history WHERE model = ?)
    WHERE place % 2 = 0)
"""

_UNSYNCED = (apsw.SQLITE_IOERR_FSYNC, apsw.SQLITE_IOERR_DIR_FSYNC)
_UNWRITTEN = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.BusyError,
    apsw.PermissionsError,
    apsw.NoMemError,
)


class Mark(NamedTuple):
    """The last acknowledged row, in a small file beside the log: token of the log, number and check
    sum of the row. A log that ends before its mark has lost acknowledged rows.

    The mark is written after each commit and synced only with snapshots, so it is never ahead of a
    log that is complete.
    """

    token: str
    seq: int = 0
    crc: int = 0

    def to_bytes(self) -> bytes:
        """A record of fixed size, with its own check sum."""
        body = _MARK_BODY.pack(_MARK_MAGIC, self.token.encode("ascii"), self.seq, self.crc)
        return body + _MARK_CRC.pack(crc32(body))


def read_mark(folder: Path) -> Mark | None:
    """The mark of a state folder; None if there is none."""
    path = folder / MARK
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise IncompatibleState(f"{path} cannot be read: {error.strerror}") from error
    body = data[: _MARK_BODY.size]
    if data[_MARK_BODY.size :] != _MARK_CRC.pack(crc32(body)) or body[:4] != _MARK_MAGIC:
        raise IncompatibleState(
            f"{path} is damaged, so nothing tells whether the log is complete; examine the log "
            "with `fairwolfe log verify`, copy it with `fairwolfe log backup`, and put that copy "
            "or an older backup in place with `fairwolfe log restore`"
        )
    _, token, seq, crc = _MARK_BODY.unpack(body)
    return Mark(token.rstrip(b"\0").decode("ascii", "replace"), seq, crc)


def write_mark(folder: Path, mark: Mark) -> None:
    """Put a mark in place, durably."""
    with whole_file(folder / MARK) as file:
        os.chmod(file.name, 0o600)
        file.write(mark.to_bytes())


class SQLiteStore:
    """A log in its own folder, for one process at a time; token: of a new log, else random."""

    def __init__(self, folder: Path, token: str = "") -> None:
        make_folder(folder)
        self._new_token = token or secrets.token_hex(8)
        self._begin(folder / FILE)

    def _begin(self, path: Path) -> None:
        """Lock and open a file."""
        self.path, self.folder = path, path.parent
        self.token = ""
        self.deleted = 0
        self._left = 0  # rows up to that one that are there all the same
        self.bases: dict[int, PruneBase] = {}
        self.folded = 0  # every change up to this row is in the newest snapshot of its model
        self._base: Any = None
        self._last: tuple[int, float] = (0, 0.0)
        self._starts: dict[int, int] = {}  # model -> the row that it begins with
        self._mark: int | None = None  # the open file of the mark
        self._journal = 0  # its pages
        self._index = path.with_name(f"{path.name}-shm")
        self._indexed = self._index.exists()  # after a crash, or because a command reads
        self._lock = self._locked()
        try:
            self._open()
        except (apsw.FullError, OSError) as error:
            self._leave()
            raise StoreFailed(f"{self.folder} cannot be written: {error}") from error
        except apsw.Error as error:
            self._leave()
            if _is_sync(error):
                raise _failed(error) from error
            self._refuse(error)
        except BaseException:
            self._leave()
            raise

    def _leave(self) -> None:
        """Close, and leave no index that was made only to read the journal."""
        if self._base is not None:
            with suppress(apsw.Error):
                self._base.close()
        if not self._indexed:
            with suppress(OSError):
                self._index.unlink(missing_ok=True)
        SQLiteStore.close(self)

    def _locked(self) -> int | None:
        return lock_folder(self.folder)

    def _open(self) -> None:
        finish_restore(self.folder)
        for left in self.folder.glob("backup-*.sqlite*"):  # by a server that was killed
            left.unlink(missing_ok=True)
        if self._is_new():
            self._create()
        self._base = self._connected()
        self._check_head()
        for name, value in _SETTINGS.items():
            self._base.execute(f"PRAGMA {name} = {value}")
        self._assert_settings()
        self._read_head()
        lost = self.lost()
        if lost:
            raise IncompatibleState(lost)
        self._base.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
        self._sync_again()
        self._base.set_wal_hook(self._note_journal)
        self._mark = os.open(self.folder / MARK, os.O_WRONLY | os.O_CLOEXEC)
        self._move_mark(self._last[0], self._crc_of(self._last[0]) or 0)

    def _is_new(self) -> bool:
        """Whether there is no log yet: no file, or one that is empty, and no acknowledged row."""
        mark = read_mark(self.folder)
        if mark is not None and mark.seq > 0:
            if self.path.exists():
                return False
            raise IncompatibleState(
                f"{self.path} is missing, and {MARK} says that it had {mark.seq} rows; put a "
                "backup in its place with `fairwolfe log restore`"
            )
        if not self.path.exists() or self.path.stat().st_size == 0:
            return True
        queries = ("SELECT count(*) FROM sqlite_schema", "PRAGMA application_id")
        with suppress(apsw.Error), closing(self._connected()) as base:
            return not any(base.execute(query).get for query in (*queries, "PRAGMA user_version"))
        return False

    def _connected(self) -> apsw.Connection:
        """The file, which closing leaves as it is."""
        base = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        base.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        base.set_busy_timeout(_BUSY)
        return base

    def _sync_again(self) -> None:
        """Sync the rows that a crash left in the journal: the last sync may have failed."""
        try:
            self._base.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        except apsw.BusyError:
            # A command reads an older state, so not all of it can go into the file. After a sync
            # that failed only what is written again is sure to be synced: the same bytes.
            with open(f"{self.path}-wal", "r+b", buffering=0) as journal:
                place = 0
                while part := os.pread(journal.fileno(), _CHUNK, place):
                    place += os.pwrite(journal.fileno(), part, place)
                os.fsync(journal.fileno())

    def _create(self) -> None:
        """A log without rows under another name, then its mark, then its own name: whenever this
        is interrupted, the next start begins again.
        """
        spare = self.folder / _NEW
        for name in (_NEW, FILE):
            for tail in ("", "-wal", "-shm", "-journal"):
                (self.folder / f"{name}{tail}").unlink(missing_ok=True)
        token = self._new_token
        with closing(apsw.Connection(str(spare))) as base:  # which moves everything into the file
            spare.chmod(0o600)
            for setting in _CREATED:
                base.execute(f"PRAGMA {setting}")
            base.execute("BEGIN IMMEDIATE")
            base.execute(_SCHEMA)
            base.execute("INSERT INTO meta VALUES ('head', ?)", (_head(token, {}),))
            base.execute(f"PRAGMA application_id = {_APPLICATION}")
            base.execute(f"PRAGMA user_version = {_FORMAT}")
            base.execute("COMMIT")
        write_mark(self.folder, Mark(token))
        os.replace(spare, self.path)
        sync_folder(self.folder)

    def _check_head(self) -> None:
        application, form = self._one("PRAGMA application_id"), self._one("PRAGMA user_version")
        if application != _APPLICATION or form != _FORMAT:
            raise IncompatibleState(
                f"{self.path} is not a log that this version reads (application "
                f"{application}, format {form}); give another state folder"
            )

    def _assert_settings(self) -> None:
        """Durability rests on these, so what SQLite made of them is read back."""
        for name, value in _SETTINGS.items():
            actual = self._one(f"PRAGMA {name}")
            if actual != value:
                raise IncompatibleState(
                    f"SQLite says {name} = {actual!r} where {value!r} was set, so an acknowledged "
                    "answer could be lost; use a local file system"
                )

    def _one(self, query: str, values: tuple[Any, ...] = ()) -> Any:
        for row in self._base.execute(query, values):
            return row[0]
        return None

    def _refuse(self, error: apsw.Error) -> NoReturn:
        raise IncompatibleState(
            f"{self.path} cannot be read: {error}; it is damaged, or in use by somebody else. "
            "Nothing was changed: put a backup in its place with `fairwolfe log restore`, or give "
            "another state folder"
        ) from error

    # --- the log ------------------------------------------------------------------------------

    def append(
        self,
        clock: float,
        payload: bytes,
        spans: Sequence[Span] = (),
        outcomes: Sequence[Outcomes] = (),
        starts: Sequence[int] = (),
    ) -> int:
        """Write a row, durably."""
        seq = self._last[0] + 1
        execute = self._base.execute
        try:
            execute("BEGIN IMMEDIATE")
            crc = row_crc(seq, clock, payload)
            execute("INSERT INTO log VALUES (?, ?, ?, ?)", (seq, clock, payload, crc))
            for model, first, stop in spans:
                execute("INSERT INTO span VALUES (?, ?, ?, ?)", (model, first, stop, seq))
            for model, first, stop, data in outcomes:
                row = (model, first, stop, data, outcome_crc(model, first, stop, data))
                execute("INSERT INTO outcome VALUES (?, ?, ?, ?, ?)", row)
            known = self._starts
            if starts:
                known = {**known, **dict.fromkeys(starts, seq)}
                execute("UPDATE meta SET value = ? WHERE key = 'head'", (_head(self.token, known),))
            execute("COMMIT")
        except BaseException as error:
            self._roll_back()
            if not isinstance(error, apsw.Error):
                raise
            if _is_sync(error) or not self._holds(seq):
                raise _failed(error) from error
        self._last, self._starts = (seq, clock), known
        self._move_mark(seq, crc)
        if self._journal >= _CHECKPOINT:
            self._checkpoint()
        return seq

    def _note_journal(self, base: Any, name: str, pages: int) -> int:
        self._journal = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Move the journal into the file once it is long; without room for that, or while a command
        reads an older state, it grows, and the next row tries again.
        """
        try:
            self._base.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error as error:
            if _is_sync(error):
                raise _failed(error) from error

    # --- the mark -----------------------------------------------------------------------------

    def _move_mark(self, seq: int, crc: int) -> None:
        """Without a sync. The row is durable, so a mark that cannot be written is no error: an
        older one only finds less.
        """
        assert self._mark is not None
        try:
            os.pwrite(self._mark, Mark(self.token, seq, crc).to_bytes(), 0)
        except OSError:
            return

    def _crc_of(self, seq: int) -> int | None:
        """The check sum of a row; 0 for row 0, before the first, and None for one that is gone."""
        crc = self._one("SELECT crc FROM log WHERE seq = ?", (seq,)) if seq else 0
        return None if crc is None else int(crc)

    def lost(self) -> str:
        """A sentence if acknowledged rows are missing, or nothing tells; empty if not."""
        mark, last = self._acknowledged(), self._last[0]
        advice = "put a backup in its place with `fairwolfe log restore`"
        if mark is None:
            what = f"{MARK} is missing beside {self.path}, so nothing tells whether the log is"
            return f"{what} complete; {advice}, or a copy of this log"
        if mark.token != self.token:
            return f"{MARK} belongs to another log than {self.path}; {advice}"
        if mark.seq > last:
            what = f"{self.path} ends at row {last}, and rows up to {mark.seq} were acknowledged"
            return f"{what}: rows are lost; {advice}"
        if self._crc_of(mark.seq) != mark.crc:
            what = f"row {mark.seq} of {self.path} is not the one that was acknowledged"
            return f"{what}: the file was replaced or changed; {advice}"
        return ""

    def _acknowledged(self) -> Mark | None:
        return read_mark(self.folder)

    def _read_head(self) -> None:
        try:
            token, starts = unpack(self._one("SELECT value FROM meta WHERE key = 'head'"))
            base = self._one("SELECT value FROM meta WHERE key = 'base'")
            self.deleted, bases = (0, ()) if base is None else unpack(base)
            self.bases = {model: PruneBase(*where) for model, *where in bases}
            self.folded = int(self._one("SELECT value FROM meta WHERE key = 'folded'") or 0)
        except (InvalidInput, TypeError, ValueError) as error:
            raise IncompatibleState(
                f"the head of {self.path} is damaged ({error}); put a backup in its place"
            ) from error
        self.token, self._starts = str(token), dict(starts)
        newest = self._base.execute("SELECT seq, clock FROM log ORDER BY seq DESC limit 1")
        self._last = next(iter(newest), (0, 0.0))
        if self.deleted:
            self._left = self._one("SELECT count(*) FROM log WHERE seq <= ?", (self.deleted,))

    def _holds(self, seq: int) -> bool:
        """Whether a row was still written, after an error that came later."""
        with suppress(apsw.Error):
            return bool(self._one("SELECT seq FROM log WHERE seq = ?", (seq,)))
        return False

    def _roll_back(self) -> None:
        with suppress(apsw.Error):
            if self._base.in_transaction:
                self._base.execute("ROLLBACK")

    def last(self) -> tuple[int, float]:
        """The seq and the clock of the last row."""
        return self._last

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return self._last[0] - self.deleted + self._left

    def size(self) -> int:
        """Bytes of the file and its journal."""
        files = (self.path, self.path.with_name(f"{self.path.name}-wal"))
        return sum(file.stat().st_size for file in files if file.exists())

    def rows(self, after: int) -> Iterator[Row]:
        """The rows with a seq above, checked one by one."""
        expected = after + 1
        try:
            for row in self._base.execute(f"{_ROWS} WHERE seq > ? ORDER BY seq", (after,)):
                if row[0] != expected:
                    raise IncompatibleState(
                        f"row {expected} of the log is missing, and row {row[0]} is there; put a "
                        "backup in its place"
                    )
                expected += 1
                yield sound_row(row)
        except apsw.Error as error:
            self._refuse(error)

    def every_row(self) -> Iterator[tuple[int, Row | None]]:
        """(seq, row), in order, without regard to holes; None for one that is damaged."""
        for row in self._base.execute(f"{_ROWS} ORDER BY seq"):
            try:
                yield row[0], sound_row(row)
            except IncompatibleState:
                yield row[0], None

    def starts(self) -> dict[int, Row]:
        """The rows that models begin with, by model."""
        rows = {seq: Row(seq, *self.row(seq)) for seq in set(self._starts.values())}
        return {model: rows[seq] for model, seq in self._starts.items()}

    def row(self, seq: int) -> tuple[float, bytes]:
        """The clock and the payload of a row."""
        try:
            for row in self._base.execute(f"{_ROWS} WHERE seq = ?", (seq,)):
                return sound_row(row)[1:]
        except apsw.Error as error:
            self._refuse(error)
        raise IncompatibleState(f"row {seq} of the log is missing; put a backup in its place")

    def row_of(self, model: int, number: int) -> tuple[int, Row] | None:
        """The first number of the row that holds a decision, and the row."""
        query = "SELECT first, stop, seq FROM span WHERE model = ? AND first <= ? "
        for first, stop, seq in self._base.execute(f"{query}{_NEWEST}", (model, number)):
            if number < stop:
                with suppress(IncompatibleState):
                    return first, Row(seq, *self.row(seq))
        return None

    def row_before(self, clock: float, most: int) -> int:
        """The last row up to a time of the clock, of so many after those that are deleted."""
        low, high = self.deleted, min(self.deleted + most, self.last()[0] - 1)
        while low < high:
            middle = (low + high + 1) // 2
            if self._one("SELECT clock FROM log WHERE seq = ?", (middle,)) <= clock:
                low = middle
            else:
                high = middle - 1
        return low

    def every_span(self, model: int) -> Iterator[tuple[int, int, int]]:
        """(first, stop, seq) of the decisions of a model, in order."""
        query = "SELECT first, stop, seq FROM span WHERE model = ? ORDER BY first"
        return iter(self._base.execute(query, (model,)))

    def outcome_of(self, model: int, number: int) -> tuple[int, bytes] | None:
        """Of a decision whose window has ended."""
        query = "SELECT first, stop, data, crc FROM outcome WHERE model = ? AND first <= ? "
        for first, stop, data, crc in self._base.execute(f"{query}{_NEWEST}", (model, number)):
            if number < stop and outcome_crc(model, first, stop, data) == crc:
                return first, data
        return None

    # --- what can be made again ---------------------------------------------------------------

    def snapshot(self, kept: Sequence[Snapshot], folded: int) -> None:
        """Keep the states of models in one transaction; folded: a row up to which every change is
        in the newest snapshot of its model from then on, so that a start reads the rows after it.
        """
        try:
            execute = self._base.execute
            execute("BEGIN IMMEDIATE")
            for one in kept:
                self._keep(*one)
            execute("INSERT OR REPLACE INTO meta VALUES ('folded', ?)", (folded,))
            execute("COMMIT")
            if self._mark is not None:
                os.fsync(self._mark)
        except apsw.Error as error:
            self._roll_back()
            raise _failed(error) from error
        except OSError as error:
            raise SyncFailed(f"{MARK} could not be synced: {error}") from error
        self.folded = folded
        if self._journal >= _CHECKPOINT:
            self._checkpoint()

    def _keep(self, model: int, seq: int, data: bytes, later: Later | None) -> None:
        execute, base = self._base.execute, self.bases.get(model)
        row = (model, seq, data, hashlib.sha256(data).digest())
        execute("INSERT OR REPLACE INTO snapshot VALUES (?, ?, ?, ?)", row)
        kept = (model, model, KEPT_SNAPSHOTS, None if base is None else base.seq)
        execute(_DELETE_SNAPSHOTS, kept)
        if later is not None:
            execute(LATER)
            crc = later_crc(model, seq, later)
            piece = (model, seq, *later, crc)
            execute("INSERT OR REPLACE INTO later VALUES (?, ?, ?, ?, ?, ?)", piece)
            execute(_DELETE_LATER, (model, model, model))

    def snapshot_rows(self, model: int) -> list[int]:
        """The rows of the snapshots of a model, newest first."""
        query = "SELECT seq FROM snapshot WHERE model = ? ORDER BY seq DESC"
        return [seq for (seq,) in self._base.execute(query, (model,))]

    def snapshots(self, model: int) -> list[tuple[int, bytes | None]]:
        """(seq, state) of a model, newest first; None for one that is damaged."""
        query = "SELECT seq, data, sha256 FROM snapshot WHERE model = ? ORDER BY seq DESC"
        try:
            return [
                (seq, data if hashlib.sha256(data).digest() == digest else None)
                for seq, data, digest in self._base.execute(query, (model,))
            ]
        except (apsw.Error, TypeError):
            return []  # the log is the truth; a snapshot only saves time

    def later(self, model: int, seq: int) -> Iterator[bytes]:
        """What was kept with the snapshots of a model up to one, in order, for decisions that wait
        for a later stage.
        """
        if not self._one("SELECT name FROM sqlite_schema WHERE name = 'later'"):
            return
        query = "SELECT * FROM later WHERE model = ? AND seq <= ? ORDER BY seq"
        for _, at, first, stop, data, crc in self._base.execute(query, (model, seq)):
            if later_crc(model, at, Later(first, stop, data)) != crc:
                raise IncompatibleState(f"what was kept for later stages at row {at} is damaged")
            yield data

    def note(self, model: int, clock: float, point: bytes) -> None:
        """Keep a point of the history of a model."""
        try:
            row = (model, clock, point)
            self._base.execute("INSERT OR REPLACE INTO history VALUES (?, ?, ?)", row)
            if self._one("SELECT count(*) FROM history WHERE model = ?", (model,)) > MOST_POINTS:
                self._base.execute(_DELETE_EVERY_OTHER_POINT, (model, model))
        except apsw.Error as error:
            raise _failed(error) from error

    def history(self, model: int) -> list[tuple[float, bytes]]:
        """The points that are kept, in order."""
        query = "SELECT clock, point FROM history WHERE model = ? ORDER BY clock"
        return list(self._base.execute(query, (model,)))

    def backup(self, path: Path, pages: int) -> Iterator[None]:
        """Copy the whole store to a file, so many pages at a time, while it is in use."""
        with (
            closing(apsw.Connection(str(path))) as copy,
            copy.backup("main", self._base, "main") as work,
        ):
            while not work.done:
                work.step(pages)
                yield

    # --- deleting what was exported -----------------------------------------------------------

    def rest(self, upto: int, bases: dict[int, PruneBase], rows: Sequence[Doomed] = ()) -> None:
        """Let the log rest on these snapshots; rows up to `upto` may be gone from now on, and those
        that are given go.
        """
        rests = pack((upto, tuple((model, *base) for model, base in bases.items())))
        older = [(model, base.seq) for model, base in bases.items()]
        self._write(
            {
                "INSERT OR REPLACE INTO meta VALUES ('base', ?)": [(rests,)],
                "DELETE FROM snapshot WHERE model = ? AND seq < ?": older,
                **_deletions(rows),
            }
        )
        self._left += upto - self.deleted - len(rows)
        self.deleted, self.bases = upto, dict(bases)

    def drop(self, rows: Sequence[Doomed]) -> None:
        """Delete rows that may be gone."""
        self._write(_deletions(rows))
        self._left -= len(rows)

    def drop_outcomes(self, model: int, most: int) -> int:
        """Delete what had come for at most so many groups of deleted decisions; how many."""
        query = "SELECT first FROM outcome WHERE model = ? AND stop <= ? ORDER BY first LIMIT ?"
        values = (model, self.bases[model].first, most)
        firsts = [(model, first) for (first,) in self._base.execute(query, values)]
        if firsts:
            self._write({"DELETE FROM outcome WHERE model = ? AND first = ?": firsts})
        return len(firsts)

    def shrink(self, pages: int) -> int:
        """Give some free pages back to the file system; how many are left."""
        free = int(self._one("PRAGMA freelist_count"))
        if free:
            self._write({f"PRAGMA incremental_vacuum({pages})": [()]})
        return max(free - pages, 0)

    def _write(self, statements: dict[str, list[tuple[Any, ...]]]) -> None:
        """Run statements, each for several values, in one transaction."""
        try:
            self._base.execute("BEGIN IMMEDIATE")
            for statement, values in statements.items():
                for each in values:
                    self._base.execute(statement, each)
            self._base.execute("COMMIT")
        except apsw.Error as error:
            self._roll_back()
            raise _failed(error) from error
        if self._journal >= _CHECKPOINT:
            self._checkpoint()

    def vacuum(self) -> None:
        """Give all free pages back, where there is room for a copy of the rest."""
        with suppress(apsw.Error):  # else new rows use the space
            self._base.execute("VACUUM")

    def close(self) -> None:
        """Let go of the files."""
        if self._base is not None:
            with suppress(apsw.Error):
                self._base.close()
        for handle in (self._mark, self._lock):
            if handle is not None:
                os.close(handle)
        self._mark = self._lock = None


def make_folder(folder: Path) -> None:
    """A state folder, for its owner only."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise InvalidInput(f"the state folder {folder} cannot be made: {error.strerror}") from error


def lock_folder(folder: Path) -> int:
    """The lock of a state folder, held until it is closed or the process ends, however it ends."""
    path = folder / LOCK
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.read(handle, 20).decode("ascii", "replace").strip() or "unknown"
        os.close(handle)
        raise InvalidInput(
            f"the state folder {folder} is in use by another server (process {holder}); "
            "end that one, or give this one another folder"
        ) from error
    os.ftruncate(handle, 0)
    os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    return handle


def restored_file(folder: Path, stamp: str) -> Path:
    """Where a restored log waits until it takes its place; stamp: names the replaced one."""
    return folder / f"{_RESTORED}{stamp}.sqlite"


def finish_restore(folder: Path) -> None:
    """Put a restored log in place of the one that is there, which is kept in a folder of its own.

    A restore is decided once a complete file restored-STAMP.sqlite is there. The steps from then on
    can be repeated, so whoever locks the folder next completes one that was interrupted.
    """
    for restored in folder.glob(f"{_RESTORED}*.sqlite"):
        stamp = restored.stem.removeprefix(_RESTORED)
        aside = folder / f"{_REPLACED}{stamp}"
        aside.mkdir(mode=0o700, exist_ok=True)
        for name in (f"{FILE}-wal", f"{FILE}-shm", FILE, MARK):
            if (folder / name).exists() and not (aside / name).exists():
                os.rename(folder / name, aside / name)
        sync_folder(aside)
        sync_folder(folder)
        write_mark(folder, _mark_of(restored))
        os.replace(restored, folder / FILE)
        sync_folder(folder)


def _mark_of(path: Path) -> Mark:
    """The mark of a complete log without a journal."""
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    uri = f"{path.absolute().as_uri()}?immutable=1"
    with closing(apsw.Connection(uri, flags=flags)) as base:
        token, _ = unpack(base.execute("SELECT value FROM meta WHERE key = 'head'").get)
        newest = base.execute("SELECT seq, crc FROM log ORDER BY seq DESC limit 1").get
        return Mark(str(token), *(newest or (0, 0)))


def _head(token: str, starts: dict[int, int]) -> bytes:
    """Whose log it is, and where its models begin, with a check sum."""
    return pack((token, tuple(starts.items())))


def row_crc(seq: int, clock: float, payload: bytes) -> int:
    return crc32(payload, crc32(_HEAD.pack(seq, clock)))


def outcome_crc(model: int, first: int, stop: int, data: bytes) -> int:
    return crc32(data, crc32(_KEY.pack(model, first, stop)))


def later_crc(model: int, seq: int, later: Later) -> int:
    first, stop, data = later
    return crc32(data, crc32(_KEY.pack(model, first, stop), seq))


def _deletions(rows: Sequence[Doomed]) -> dict[str, list[tuple[Any, ...]]]:
    """What deletes rows and their spans."""
    keys = [key for _, spans in rows for key in spans]
    return {
        "DELETE FROM log WHERE seq = ?": [(seq,) for seq, _ in rows],
        "DELETE FROM span WHERE model = ? AND first = ?": keys,
    }


def sound_row(row: tuple[Any, ...]) -> Row:
    seq, clock, payload, crc = row
    plain = isinstance(payload, bytes) and isinstance(clock, float)
    if not plain or row_crc(seq, clock, payload) != crc:
        raise IncompatibleState(
            f"row {seq} of the log is damaged: its check sum does not fit; see `fairwolfe log "
            "verify`, and put a backup in its place"
        )
    return Row(seq, clock, payload)


def _failed(error: apsw.Error) -> Exception:
    """What a failed write comes to: a failed sync, one that may work again later, or damage."""
    if _is_sync(error):
        return SyncFailed(f"the log could not be synced: {error}")
    if isinstance(error, _UNWRITTEN):
        return StoreFailed(f"the log could not be written: {error}")
    return IncompatibleState(f"the log cannot be written: {error}")


def _is_sync(error: apsw.Error) -> bool:
    return getattr(error, "extendedresult", 0) in _UNSYNCED
