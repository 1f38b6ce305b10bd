"""The log in PostgreSQL: one process leads and writes it, others follow. The number of a row is the
fence.

One statement appends a row, and only behind the last row that its writer knows, by number, check
sum and writer. A process that has missed a row of another one, or whose last row is gone, appends
nothing: it is `Fenced`. A row whose answer was lost is sent again, the same bytes under the same
number: it is found, or written then.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import errors, sql
from psycopg.pq import TransactionStatus
from psycopg.types.numeric import Int8

from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.service.config import place_of
from fairwolfe.service.store import (
    KEPT_SNAPSHOTS,
    MOST_POINTS,
    Fenced,
    Later,
    Outcomes,
    PruneBase,
    Row,
    Snapshot,
    Span,
    StoreFailed,
    Unconfirmed,
    later_crc,
    outcome_crc,
    row_crc,
    sound_row,
)

_PATIENCE = 3.0  # seconds in which a lost connection is made again before a write fails
_PAUSE = 0.05  # seconds between two attempts
_WRITE = 3.0  # seconds for the statement that appends a row
_LONGEST = 30.0  # seconds for any other statement
_CONNECT = 2  # seconds for a connection; libpq counts in whole ones
_ROWS = 128  # read at once
_FORMAT = 1

# Without these an acknowledged row could be lost; read back on each connection.
_DURABLE = {
    "fsync": ("on",),
    "full_page_writes": ("on",),
    "synchronous_commit": ("on", "remote_apply"),
}
# A leader that is stopped in the middle of something must not hold up the next one for long.
_SETTINGS = {
    "client_min_messages": "warning",  # a cancelled wait for a replica is only a warning
    "default_transaction_isolation": "read committed",
    "lock_timeout": "3s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "2s",
}

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta(key text PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE IF NOT EXISTS log(seq bigint PRIMARY KEY, clock float8 NOT NULL,
    payload bytea NOT NULL, crc bigint NOT NULL, writer text NOT NULL);
ALTER TABLE log ALTER payload SET STORAGE EXTERNAL;
CREATE TABLE IF NOT EXISTS start(model bigint PRIMARY KEY, seq bigint NOT NULL);
CREATE TABLE IF NOT EXISTS span(model bigint, first bigint, stop bigint NOT NULL,
    seq bigint NOT NULL, PRIMARY KEY(model, first));
CREATE TABLE IF NOT EXISTS outcome(model bigint, first bigint, stop bigint NOT NULL,
    data bytea NOT NULL, crc bigint NOT NULL, PRIMARY KEY(model, first));
CREATE TABLE IF NOT EXISTS snapshot(model bigint, seq bigint, data bytea NOT NULL,
    sha256 bytea NOT NULL, PRIMARY KEY(model, seq));
CREATE TABLE IF NOT EXISTS later(model bigint, seq bigint, first bigint NOT NULL,
    stop bigint NOT NULL, data bytea NOT NULL, crc bigint NOT NULL, PRIMARY KEY(model, seq));
CREATE TABLE IF NOT EXISTS history(model bigint, clock float8, point bytea NOT NULL,
    PRIMARY KEY(model, clock));
CREATE TABLE IF NOT EXISTS lease(one boolean PRIMARY KEY, holder text NOT NULL,
    address text NOT NULL, until timestamptz NOT NULL, beaten timestamptz NOT NULL,
    pid int NOT NULL, began timestamptz NOT NULL);
INSERT INTO lease VALUES (true, '', '', 'epoch', 'epoch', 0, 'epoch') ON CONFLICT DO NOTHING;
"""

_KNOWN = "SELECT FROM log WHERE seq = %b AND crc = %b AND writer = %b"
_LOG = f"""
INSERT INTO log SELECT %b, %b, %b, %b, %b
WHERE EXISTS ({_KNOWN}) OR (%b = 0 AND NOT EXISTS (SELECT FROM log))
ON CONFLICT DO NOTHING RETURNING seq
"""
_SPANS = """
INSERT INTO span SELECT u.model, u.first, u.stop, l.seq
FROM l, unnest(%b::bigint[], %b::bigint[], %b::bigint[]) AS u(model, first, stop)
"""
_OUTCOMES = """
INSERT INTO outcome SELECT u.* FROM l,
unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bytea[], %b::bigint[]) AS u
"""
_STARTS = "INSERT INTO start SELECT u.model, l.seq FROM l, unnest(%b::bigint[]) AS u(model)"
_CONFIRM = "UPDATE log SET writer = writer WHERE seq = %b AND crc = %b AND writer = %b"
_SELECT = "SELECT seq, clock, payload, crc, writer FROM log"
_DELETE_SNAPSHOTS = """
DELETE FROM snapshot WHERE model = %b AND seq NOT IN
    (SELECT seq FROM snapshot WHERE model = %b ORDER BY seq DESC LIMIT %b)
"""
_DELETE_LATER = """
DELETE FROM later WHERE model = %b AND seq NOT IN (SELECT seq FROM snapshot WHERE model = %b)
    AND stop <= (SELECT min(first) FROM later WHERE model = %b AND seq IN
        (SELECT seq FROM snapshot WHERE model = %b))
"""
_DELETE_EVERY_OTHER_POINT = """
DELETE FROM history WHERE model = %b AND clock IN (SELECT clock FROM
    (SELECT clock, row_number() OVER (ORDER BY clock) AS place FROM history WHERE model = %b) AS p
    WHERE place %% 2 = 0)
"""


class Last(NamedTuple):
    """The last row that a process knows."""

    seq: int = 0
    clock: float = 0.0
    crc: int = 0
    writer: str = ""


class RowsLost(IncompatibleState):
    """A row that this process has read or written is in the database no more."""


class Connection(psycopg.Connection[Any]):
    """A connection whose statements end in time, or it is closed; it counts warnings."""

    limit = _LONGEST  # seconds
    warned = ""  # the last warning of the statement that runs

    def wait(self, gen: Any, interval: float = 0.1, timeout: float | None = None) -> Any:
        """Until a statement is answered."""
        try:
            return super().wait(gen, interval, timeout or self.limit)
        except psycopg.OperationalError:
            if self.pgconn.transaction_status == TransactionStatus.ACTIVE:
                self.pgconn.finish()
            raise

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Statements have so many seconds."""
        self.limit = seconds
        try:
            yield
        finally:
            self.limit = _LONGEST

    def run(self, query: str, values: Sequence[Any] = ()) -> psycopg.Cursor[Any]:
        """A statement with its values, in binary."""
        return self.execute(query, values, binary=True)

    @property
    def lost(self) -> bool:
        """Whether it can be used no more."""
        return self.closed or self.broken


def connect(url: str, schema: str, commit: str = "on") -> Connection:
    """A connection that can write, with every time limit, in the schema of a log; commit: what
    `synchronous_commit` is set to, where the server does not wait for more.
    """
    base: Connection = Connection.connect(
        url,
        autocommit=True,
        prepare_threshold=0,
        connect_timeout=_CONNECT,
        keepalives_idle=5,
        keepalives_interval=1,
        keepalives_count=3,
        tcp_user_timeout=5000,
        target_session_attrs="read-write",
        application_name="fairwolfe",
    )
    try:
        settings = {**_SETTINGS, "search_path": sql.Identifier(schema).as_string()}
        row = base.run("SHOW synchronous_commit").fetchone()
        if commit != "on" or (row and row[0] not in _DURABLE["synchronous_commit"]):
            settings["synchronous_commit"] = commit
        calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
        pairs = [text for pair in settings.items() for text in pair]
        base.run(f"SELECT {calls}", pairs)
    except BaseException:
        base.close()
        raise
    base.add_notice_handler(lambda notice: _note_warning(base, notice))
    return base


def _note_warning(base: Connection, notice: Any) -> None:
    if notice.severity_nonlocalized == "WARNING":
        base.warned = notice.message_primary or "a warning"


class PostgresStore:
    """A log in a schema of its own.

    Parameters
    ----------
    url: of the database, without a password
    schema: of this log
    token: of a new log, else random; None: there has to be one
    """

    bases: dict[int, PruneBase]

    def __init__(self, url: str, schema: str, token: str | None = "") -> None:
        self.url, self.schema = url, schema
        self.name = f"{place_of(url)} (schema {schema})"
        self.writer = secrets.token_hex(8)
        self.token = ""
        self.deleted, self.folded = 0, 0
        self.bases = {}
        self.resent = 0  # rows whose first answer was lost, and which were there
        self._last = Last()
        self._size = 0  # as it was read last
        self._failing = False  # whether the last row could not be written
        self._base: Connection | None = None
        try:
            self._create(token)
            self.refresh()
        except BaseException:
            self.disconnect()
            raise

    # --- the connection -----------------------------------------------------------------------

    def _connected(self) -> Connection:
        """The connection, made again where it was lost."""
        base = self._base
        if base is not None and not base.lost:
            return base
        self.disconnect()
        try:
            base = connect(self.url, self.schema)
        except psycopg.Error as error:
            raise StoreFailed(f"{self.name} cannot be reached: {_words(error)}") from error
        try:
            self._assert_settings(base)
        except BaseException:
            base.close()
            raise
        self._base = base
        return base

    def _assert_settings(self, base: Connection) -> None:
        """Durability rests on these."""
        for name, right in _DURABLE.items():
            with _failing_as(self.name):
                (actual,) = base.run(f"SHOW {name}").fetchone() or ("",)
            if actual not in right:
                raise IncompatibleState(
                    f"PostgreSQL says {name} = {actual} where {' or '.join(right)} is needed, so "
                    "an acknowledged answer could be lost; change its configuration"
                )

    def disconnect(self) -> None:
        """Let go of the connection; the next call makes another one."""
        if self._base is not None:
            with suppress(psycopg.Error):
                self._base.close()
        self._base = None

    def _create(self, token: str | None) -> None:
        """The schema and its tables, where they are missing."""
        base = self._connected()
        with _failing_as(self.name), base.transaction():
            base.run("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"fairwolfe {self.schema}",))
            if base.run("SELECT to_regclass('meta')").fetchone() == (None,):
                if token is None:
                    raise InvalidInput(f"there is no log in {self.name}")
                name = sql.Identifier(self.schema)
                if base.run("SELECT to_regnamespace(%s)", (name.as_string(),)).fetchone() == (
                    None,
                ):
                    base.execute(sql.SQL("CREATE SCHEMA {}").format(name))
                base.execute(_SCHEMA, prepare=False)
                head = pack((_FORMAT, token or secrets.token_hex(8)))
                base.run("INSERT INTO meta VALUES ('head', %b)", (head,))

    def refresh(self) -> None:
        """Read whose log it is and where its snapshots end; know no row yet."""
        values = dict(self._read("SELECT key, value FROM meta"))
        try:
            form, token = unpack(values["head"])
            (self.folded,) = unpack(values["folded"]) if "folded" in values else (0,)
        except (InvalidInput, KeyError, TypeError, ValueError) as error:
            raise IncompatibleState(f"the head of {self.name} is damaged ({error})") from error
        if form != _FORMAT:
            raise IncompatibleState(
                f"{self.name} has format {form}, which this version does not read; give another "
                "schema"
            )
        self.token = str(token)
        self._last = Last()

    def _read(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        """The answer to a question, with patience."""
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                base = self._connected()
                return base.run(query, values).fetchall()
            except (StoreFailed, psycopg.OperationalError, psycopg.InterfaceError) as error:
                if time.monotonic() > end:
                    raise StoreFailed(f"{self.name} does not answer: {_words(error)}") from error
            except psycopg.Error as error:
                raise IncompatibleState(f"{self.name} cannot be read: {_words(error)}") from error
            time.sleep(_PAUSE)

    # --- the log ------------------------------------------------------------------------------

    def append(
        self,
        clock: float,
        payload: bytes,
        spans: Sequence[Span] = (),
        outcomes: Sequence[Outcomes] = (),
        starts: Sequence[int] = (),
    ) -> int:
        """Write a row, durably, or find that it is written."""
        last = self._last
        seq = last.seq + 1
        crc = row_crc(seq, clock, payload)
        mine = (Int8(seq), Int8(crc), self.writer)
        known = (Int8(last.seq), Int8(last.crc), last.writer)
        parts = [f"WITH l AS ({_LOG})"]
        values = [mine[0], clock, payload, *mine[1:], *known, known[0]]
        if spans:
            parts.append(f"s AS ({_SPANS})")
            values += _columns(spans)
        if outcomes:
            parts.append(f"o AS ({_OUTCOMES})")
            values += _columns(outcomes)
            values.append([Int8(outcome_crc(*one)) for one in outcomes])
        if starts:
            parts.append(f"b AS ({_STARTS})")
            values.append([Int8(model) for model in starts])
        self._write(f"{', '.join(parts)} SELECT seq FROM l", values, mine)
        self._last = Last(seq, clock, crc, self.writer)
        return seq

    def _write(self, query: str, values: Sequence[Any], mine: tuple[Int8, Int8, str]) -> None:
        """Send a row until it is acknowledged; mine: by which it is found."""
        end = time.monotonic() + (0.0 if self._failing else _PATIENCE)
        sent = False  # whether an earlier attempt may have been written
        while True:
            reached = False
            try:
                base = self._connected()
                base.warned, reached = "", True
                with base.within(_WRITE):
                    written = base.run(query, values).fetchone()
                    if written is None and not base.warned:
                        # Found, and written again, so that this commit waits for the replicas.
                        found = base.run(_CONFIRM, mine).rowcount
                        if not found:
                            raise Fenced(self._why_fenced(mine[0]))
                        self.resent += not base.warned
                if not base.warned:
                    self._failing = False
                    return
                sent, why = True, base.warned  # written here, and perhaps on no replica
            except (StoreFailed, psycopg.OperationalError, psycopg.InterfaceError) as error:
                if isinstance(error, Fenced):
                    raise
                why = _words(error)
                sent = sent or (reached and base.lost)
                if reached and not base.lost and not isinstance(error, errors.QueryCanceled):
                    end = 0.0  # the server says that it cannot: its disk is full
            except errors.ReadOnlySqlTransaction as error:  # it is the replica by now
                why = _words(error)
                self.disconnect()
            except psycopg.Error as error:
                raise IncompatibleState(f"{self.name} cannot be written: {error}") from error
            if time.monotonic() > end:
                self._failing = True
                text = f"{self.name} could not be written: {why}"
                raise Unconfirmed(text) if sent else StoreFailed(text)
            time.sleep(_PAUSE)

    def _why_fenced(self, seq: int) -> str:
        """What is in the place of a row that could not be appended."""
        there = self._read("SELECT writer FROM log WHERE seq = %s", (seq,))
        if not there:
            return (
                f"row {self._last.seq}, the last one that this process knows, is in {self.name} no "
                "more: rows are lost, as where a replica was promoted without them"
            )
        if there[0][0] == self.writer:
            return f"row {seq} was written although its answer was lost; it has to be read"
        return f"row {seq} was written by another process, which leads by now"

    def last(self) -> tuple[int, float]:
        """The seq and the clock of the last row that was read or written."""
        return self._last[:2]

    def rows(self, after: int) -> Iterator[Row]:
        """The rows with a seq above, checked one by one; each is known once it is given. RowsLost
        where the last known row is gone.
        """
        place = after
        while True:
            some = self._read(f"{_SELECT} WHERE seq >= %s ORDER BY seq LIMIT {_ROWS}", (place,))
            if place and (not some or some[0][0] != place or not self._agrees(some[0])):
                raise RowsLost(
                    f"row {place} is in {self.name} no more, or it is another one: rows that were "
                    "read are lost, as where a replica was promoted without them"
                )
            for row in some:
                if row[0] > place + 1:
                    what = f"row {place + 1} of the log is missing, and row {row[0]} is there"
                    raise IncompatibleState(f"{what}; put a backup in its place")
                good = sound_row(row[:4])
                if row[0] >= self._last.seq:
                    self._last = Last(row[0], row[1], *row[3:])
                if row[0] > place:
                    place = row[0]
                    yield good
            if len(some) < _ROWS:
                return

    def _agrees(self, row: Sequence[Any]) -> bool:
        """Whether a row is the last known one, if it has its number."""
        last = self._last
        return row[0] != last.seq or (row[3], row[4]) == (last.crc, last.writer)

    def every_row(self) -> Iterator[tuple[int, Row | None]]:
        """(seq, row), in order, without regard to holes; None for one that is damaged."""
        after = 0
        while some := self._read(f"{_SELECT} WHERE seq > %s ORDER BY seq LIMIT {_ROWS}", (after,)):
            for row in some:
                try:
                    yield row[0], sound_row(row[:4])
                except IncompatibleState:
                    yield row[0], None
            after = some[-1][0]

    def starts(self) -> dict[int, Row]:
        """The rows that models begin with, by model."""
        found = self._read("SELECT model, seq FROM start ORDER BY model")
        return {model: Row(seq, *self.row(seq)) for model, seq in found}

    def row(self, seq: int) -> tuple[float, bytes]:
        """The clock and the payload of a row."""
        for row in self._read(f"{_SELECT} WHERE seq = %s", (seq,)):
            return sound_row(row[:4])[1:]
        raise IncompatibleState(f"row {seq} of the log is missing; put a backup in its place")

    def row_of(self, model: int, number: int) -> tuple[int, Row] | None:
        """The first number of the row that holds a decision, and the row."""
        query = """
            SELECT s.first, s.stop, l.seq, l.clock, l.payload, l.crc
            FROM span s JOIN log l ON l.seq = s.seq
            WHERE s.model = %s AND s.first <= %s ORDER BY s.first DESC LIMIT 1
        """
        for first, stop, *row in self._read(query, (model, number)):
            if number < stop:
                with suppress(IncompatibleState):
                    return first, sound_row(row)
        return None

    def outcome_of(self, model: int, number: int) -> tuple[int, bytes] | None:
        """Of a decision whose window has ended."""
        query = """
            SELECT first, stop, data, crc FROM outcome
            WHERE model = %s AND first <= %s ORDER BY first DESC LIMIT 1
        """
        for first, stop, data, crc in self._read(query, (model, number)):
            if number < stop and outcome_crc(model, first, stop, data) == crc:
                return first, data
        return None

    # --- what can be made again ---------------------------------------------------------------

    def snapshot(self, kept: Sequence[Snapshot], folded: int) -> None:
        """Keep the states of models in one transaction, where the last known row is in the log;
        folded: a row up to which every change is in the newest snapshot of its model.
        """
        last = self._last
        known = (Int8(last.seq), Int8(last.crc), last.writer)
        with _failing_as(self.name):
            base = self._connected()
            with base.transaction():
                if last.seq and base.run(_KNOWN, known).fetchone() is None:
                    raise Fenced(self._why_fenced(Int8(last.seq + 1)))
                for one in kept:
                    _keep(base, *one)
                rests = "INSERT INTO meta VALUES ('folded', %b) ON CONFLICT (key) DO UPDATE SET "
                base.run(f"{rests} value = excluded.value", (pack((folded,)),))
        self.folded = folded

    def snapshots(self, model: int) -> list[tuple[int, bytes | None]]:
        """(seq, state) of a model, newest first; None for one that is damaged."""
        query = "SELECT seq, data, sha256 FROM snapshot WHERE model = %s ORDER BY seq DESC"
        return [
            (seq, data if hashlib.sha256(data).digest() == digest else None)
            for seq, data, digest in self._read(query, (model,))
        ]

    def later(self, model: int, seq: int) -> Iterator[bytes]:
        """What was kept with the snapshots of a model up to one, in order, for decisions that wait
        for a later stage.
        """
        query = "SELECT seq, first, stop, data, crc FROM later WHERE model = %s AND seq <= %s"
        for at, first, stop, data, crc in self._read(f"{query} ORDER BY seq", (model, seq)):
            if later_crc(model, at, Later(first, stop, data)) != crc:
                raise IncompatibleState(f"what was kept for later stages at row {at} is damaged")
            yield data

    def note(self, model: int, clock: float, point: bytes) -> None:
        """Keep a point of the history of a model."""
        number = Int8(model)
        with _failing_as(self.name):
            base = self._connected()
            query = "INSERT INTO history VALUES (%b, %b, %b) ON CONFLICT DO NOTHING"
            base.run(query, (number, clock, point))
            count = base.run("SELECT count(*) FROM history WHERE model = %b", (number,))
            if (count.fetchone() or (0,))[0] > MOST_POINTS:
                base.run(_DELETE_EVERY_OTHER_POINT, (number, number))

    def history(self, model: int) -> list[tuple[float, bytes]]:
        """The points that are kept, in order."""
        query = "SELECT clock, point FROM history WHERE model = %s ORDER BY clock"
        return [(clock, point) for clock, point in self._read(query, (model,))]

    @property
    def row_count(self) -> int:
        """How many rows there are."""
        return self._last.seq - self.deleted

    def size(self) -> int:
        """Bytes of the tables with their indices; as before, while PostgreSQL does not answer."""
        if not self._failing:
            query = "SELECT sum(pg_total_relation_size(format('%%I.%%I', schemaname, tablename)))"
            with suppress(StoreFailed):
                query += " FROM pg_tables WHERE schemaname = %s"
                self._size = int(self._read(query, (self.schema,))[0][0] or 0)
        return self._size

    def close(self) -> None:
        """Let go of the connection."""
        self.disconnect()


class PostgresLog(PostgresStore):
    """A log that is only read, as it was when this was opened, also while a service writes it."""

    def __init__(self, url: str, schema: str) -> None:
        super().__init__(url, schema, None)
        self.path = self.name  # for people
        base = self._connected()
        base.run("SET idle_in_transaction_session_timeout = 0")
        base.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        self.refresh()
        for row in self._read(f"{_SELECT} ORDER BY seq DESC LIMIT 1"):
            self._last = Last(row[0], row[1], *row[3:])

    def _connected(self) -> Connection:
        if self.token and (self._base is None or self._base.lost):
            raise IncompatibleState(f"the connection to {self.name} was lost; try again")
        return super()._connected()

    def complaints(self) -> list[str]:
        """What PostgreSQL itself finds wrong: it says so when it is read."""
        return []

    def every_span(self, model: int) -> list[tuple[int, int, int]]:
        """(first, stop, seq) of the decisions of a model, in order."""
        query = "SELECT first, stop, seq FROM span WHERE model = %s ORDER BY first"
        return self._read(query, (model,))

    def every_outcome(self, model: int) -> list[tuple[int, int, bool]]:
        """(first, stop, whether it is whole) of what had come at the close, in order."""
        query = "SELECT first, stop FROM outcome WHERE model = %s ORDER BY first"
        spans = self._read(query, (model,))
        return [(first, stop, self.outcome_of(model, first) is not None) for first, stop in spans]


def _keep(base: Connection, model: int, seq: int, data: bytes, later: Later | None) -> None:
    """A snapshot in place of the oldest one of its model."""
    number, at = Int8(model), Int8(seq)
    base.run(
        "INSERT INTO snapshot VALUES (%b, %b, %b, %b) ON CONFLICT (model, seq) DO UPDATE SET "
        "data = excluded.data, sha256 = excluded.sha256",
        (number, at, data, hashlib.sha256(data).digest()),
    )
    base.run(_DELETE_SNAPSHOTS, (number, number, Int8(KEPT_SNAPSHOTS)))
    if later is not None:
        base.run(
            "INSERT INTO later VALUES (%b, %b, %b, %b, %b, %b) ON CONFLICT (model, seq) DO UPDATE "
            "SET first = excluded.first, stop = excluded.stop, data = excluded.data, "
            "crc = excluded.crc",
            (
                number,
                at,
                Int8(later.first),
                Int8(later.stop),
                later.data,
                Int8(later_crc(model, seq, later)),
            ),
        )
        base.run(_DELETE_LATER, (number,) * 4)


def _columns(rows: Sequence[Any]) -> list[list[Any]]:
    """The fields of named tuples, one by one, with 8 bytes for a number."""
    return [
        [Int8(value) if isinstance(value, int) else value for value in column]
        for column in zip(*rows, strict=True)
    ]


@contextmanager
def _failing_as(name: str) -> Iterator[None]:
    """Errors of a write that changes no row of the log."""
    try:
        yield
    except psycopg.Error as error:
        raise StoreFailed(f"{name} could not be written: {_words(error)}") from error


def _words(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
