"""A second machine: it follows the log in PostgreSQL, and leads once nobody else does.

`Lease` is a row that says who should write, by the clock of PostgreSQL. It may be wrong without
harm, since the numbers of rows decide who can. `Standby` answers until this process leads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg
from msgspec.structs import replace

from fairwolfe.service import wire
from fairwolfe.service.config import Config, Limits, bytes_of, seconds
from fairwolfe.service.events import encode
from fairwolfe.service.http import OPEN, Request, Response
from fairwolfe.service.keys import KeyRing
from fairwolfe.service.model import Model
from fairwolfe.service.postgres_store import Connection, PostgresStore, RowsLost, connect
from fairwolfe.service.recovery import Recovered, begin, follow, recover
from fairwolfe.service.routes import ROUTES
from fairwolfe.service.store import Fenced, StoreFailed
from fairwolfe.service.telemetry import Metrics, log_event

_POLL = 0.05  # seconds between two looks at the log
_BEATS = 4  # in the time of a lease
_MISSED = 2  # beats without which a leader whose connection is gone has ended
_HEALTH = next(route for route in ROUTES if route.path == "/healthz")
_OPEN = {route.path for route in ROUTES if route.scope == OPEN}

_OWN = """
    until = now() + %s * interval '1 s', beaten = now(), pid = pg_backend_pid(),
    began = (SELECT backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid())
"""
_TAKE = f"""
UPDATE lease SET holder = %s, address = %s, {_OWN}
WHERE until < now() OR beaten < now() - %s * interval '1 s' AND NOT EXISTS
    (SELECT FROM pg_stat_activity a WHERE a.pid = lease.pid AND a.backend_start = lease.began)
"""
_BEAT = f"UPDATE lease SET {_OWN} WHERE holder = %s"
_RELEASE = "UPDATE lease SET holder = '', address = '', until = 'epoch' WHERE holder = %s"


class Lease:
    """Who should write a log. It is taken where it has ended, or where the connection of its holder
    is gone and two beats are missed: a short break of a connection moves nobody.

    Parameters
    ----------
    span: seconds for which it is held without a beat
    address: of the holder, for clients
    """

    def __init__(self, store: PostgresStore, span: float, address: str) -> None:
        self._where, self._holder = (store.url, store.schema), store.writer
        self._span, self._address = span, address
        self._base: Connection | None = None
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def _connected(self) -> Connection:
        if self._base is None or self._base.lost:
            self._base = connect(*self._where, commit="off")  # nothing rests on it
            self._base.limit = max(self._span, 1.0)
        return self._base

    def take(self) -> bool:
        """Try to take it."""
        missed = _MISSED * self._span / _BEATS
        values = (self._holder, self._address, self._span, missed)
        return self._connected().run(_TAKE, values).rowcount == 1

    def leader(self) -> str:
        """The address of who holds it, or an empty text."""
        row = self._connected().run("SELECT address FROM lease WHERE until > now()").fetchone()
        return str(row[0]) if row else ""

    def hold(self, lost: Callable[[str], object]) -> None:
        """Renew it from now on, in a thread; lost: called once another process has taken it."""
        self._thread = threading.Thread(target=self._beat, args=(lost,), daemon=True, name="lease")
        self._thread.start()

    def _beat(self, lost: Callable[[str], object]) -> None:
        while not self._released.wait(self._span / _BEATS):
            try:
                renewed = self._connected().run(_BEAT, (self._span, self._holder)).rowcount
            except psycopg.Error:  # the next beat tries again
                continue
            if not renewed:
                lost("another process has taken the lease")
                return

    def release(self) -> None:
        """Let another process take it at once."""
        self._released.set()
        if self._thread is not None:
            self._thread.join(2.0 * self._span)
        with suppress(psycopg.Error):
            self._connected().run(_RELEASE, (self._holder,))
        if self._base is not None:
            self._base.close()


class Standby:
    """What answers while another process leads; then it is replaced by a `Service`.

    It stands in for its own core: requests that come wait for nothing.

    Parameters
    ----------
    address: of this process, for clients
    """

    def __init__(self, config: Config, address: str) -> None:
        self.config, self.metrics = config, Metrics()
        self.core = self
        self.arriving = self.unread = 0
        self.store = PostgresStore(config.state, config.schema)
        self.lease = Lease(self.store, seconds("lease", config.lease), address)
        self.leader = ""  # its address, where somebody leads
        self.lost = ""  # why this process leads no more
        self.on_lost: Callable[[str], object] = lambda reason: None
        self._held = bytes_of("limits.held", config.limits.held)
        self._keys = KeyRing(config.keys)
        self._ending = threading.Event()

    # --- until then ---------------------------------------------------------------------------

    def open(self, request: Request, stated: int) -> None:
        """Only the health of the process is answered; others hear who leads, with a key."""
        path = request.target.partition(b"?")[0].decode("latin-1")
        shown = request.header(b"authorization") or None
        if path in _OPEN:
            self._keys.check(shown, "read" if self.config.public else None)
        elif self._keys:
            self._keys.find(shown)
        if path == _HEALTH.path and request.method in ("GET", "HEAD"):
            request.route = _HEALTH
            return
        where = f"the leader is {self.leader}" if self.leader else "nobody leads yet"
        raise wire.not_leading(f"this process follows the log, and {where}")

    async def answer(self, request: Request) -> Response:
        """That it is alive."""
        return Response(*wire.encode({"alive": True}, request.accept))

    @property
    def limits(self) -> Limits:
        """Of connections, while it follows."""
        return self.config.limits

    def reload(self, config: Config) -> None:
        """Take the keys and the limits of a configuration that was read again."""
        self.config = replace(self.config, keys=config.keys, limits=config.limits)
        self._keys.replace(config.keys)

    def room(self, more: int) -> bool:
        """Whether connections may hold so many more bytes."""
        return self.arriving + more <= self._held

    def end(self) -> None:
        """Follow no further."""
        self._ending.set()

    def close(self) -> None:
        """Let go of the lease and of the connections."""
        self.lease.release()
        self.store.close()

    # --- following ----------------------------------------------------------------------------

    def lead(self, on_follow: Callable[[], None]) -> tuple[Recovered, dict[str, Model]] | None:
        """Follow the log until this process leads: its models, and those that are served. None
        where it ends before that. on_follow: called where another process leads.
        """
        store, span = self.store, seconds("lease", self.config.lease)
        found: Recovered | None = None
        follows, patient = False, 0.0
        while not self._ending.is_set():
            try:
                found = found or recover(store)
                follow(store, found.models)
                if time.monotonic() >= patient and self.lease.take():
                    self.lease.hold(self._lose)
                    log_event("leads", "this process leads from now on", seq=store.last()[0])
                    return found, self._begin(found.models)
                self.leader = self.lease.leader()
            except RowsLost as error:
                words = "rows are lost: this process begins again with what is there"
                log_event("rows_lost", words, logging.CRITICAL, reason=str(error))
                found = None
                store.refresh()
            except (StoreFailed, psycopg.Error) as error:
                if time.monotonic() >= patient:
                    words, reason = "the log cannot be followed", " ".join(str(error).split())
                    log_event("log_unreachable", words, logging.WARNING, reason=reason)
                # The leader may have lost its connection too, and has the time of its lease.
                patient = time.monotonic() + span
            if not follows and self.leader:
                follows, seq = True, store.last()[0]
                log_event("follows", "another process leads", seq=seq, leader=self.leader)
                on_follow()
            self._ending.wait(_POLL)
        return None

    def _begin(self, models: dict[int, Model]) -> dict[str, Model]:
        """Write an empty row: whoever does not know it can write no other. Then begin."""
        store = self.store
        while True:
            try:
                clock = store.last()[1]
                store.append(clock, encode([], time.time()))
                return begin(store, self.config, models, clock)
            except Fenced:  # the former leader has written a row meanwhile
                follow(store, models)

    def _lose(self, reason: str) -> None:
        self.lost = reason
        self.on_lost(reason)
