"""`Buffer`: feedback that is collected and sent in batches by a thread, at least once."""

from __future__ import annotations

import atexit
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from fairwolfe.client.calls import Decided, entry
from fairwolfe.client.outbox import MOST, Collecting, Outbox, Unacknowledged, checked, report
from fairwolfe.client.retry import Reply
from fairwolfe.client.transport import LOST, Transport

__all__ = ["Buffer", "patience"]

_AT_EXIT = 5.0  # seconds


def patience(error: BaseException | None) -> float | None:
    """Seconds to flush for: Ctrl-C does not wait long for a service that is gone."""
    return None if isinstance(error, Exception | None) else _AT_EXIT


class Buffer(Collecting):
    """Collects feedback and sends it in the background, from `Client.buffer`.

    An entry is kept until the service has acknowledged it and is sent again after any failure, so
    it arrives at least once; the service joins it exactly once. An entry that the service rejects
    for good is removed and reported in `refused`. Safe to use from several threads. A forked
    child begins with an empty buffer, since its parent sends what was there. At the end of the
    interpreter up to five seconds are spent on what is left, with a warning for what stays.
    """

    def __init__(self, transport: Transport, most: int, every: float, wait: float) -> None:
        self._transport, self._most = transport, most
        self._every, self._wait = checked(every, wait)
        self._closed = self._stopped = False
        self.renew()
        _ALIVE.add(self)

    def renew(self) -> None:
        """Begin empty: what a parent process has collected, it sends."""
        self._outbox = Outbox(self._most)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._hurried = 0

    def __repr__(self) -> str:
        return f"Buffer({self._transport.endpoint.address!r}, waiting={self.waiting})"

    def feedback(
        self,
        decision: Decided,
        rewards: Mapping[str, Any] | None = None,
        *,
        exposed: Iterable[str] | None = None,
        clicked: Iterable[str] | None = None,
        final: bool = False,
    ) -> None:
        """The outcome of a decision, or a part of it; Unavailable if there is no room in time."""
        message = entry(decision, rewards, exposed=exposed, clicked=clicked, final=final)
        self.feedback_many(decision.model, [message])

    def feedback_many(self, model: str, entries: Iterable[Mapping[str, Any]]) -> None:
        """Several entries, each {"id": ..., "rewards": ...} as on the wire: all or none."""
        listed = self._outbox.read(entries)
        with self._changed:
            self._hurry(lambda: self._room(listed), self._wait)
            self._take(model, listed)
            self._start()
            self._changed.notify_all()

    def flush(self, timeout: float | None = None) -> list[Unacknowledged]:
        """Send now what was given until now; what is not acknowledged after timeout seconds.

        timeout: the deadline of the client where it is left out
        """
        seconds = self._transport.endpoint.deadline if timeout is None else timeout
        with self._changed:
            mark = self._outbox.added
            if self._outbox.holds(mark) and not self._stopped:
                self._start()
                self._hurry(lambda: not self._outbox.holds(mark), seconds)
            return self._outbox.before(mark)

    def close(self, timeout: float | None = None) -> list[Unacknowledged]:
        """Flush, and take nothing more; what is not acknowledged after timeout seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        left = self.flush(timeout)
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        return left

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        report(self.close(patience(error)), error)

    def _start(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            name = f"fairwolfe-buffer-{id(self):x}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()

    def _hurry(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until entries have left, and do not let them wait for others; the lock is held."""
        if ready():
            return
        self._hurried += 1
        self._changed.notify_all()
        try:
            self._changed.wait_for(ready, seconds)
        finally:
            self._hurried -= 1

    def _run(self) -> None:
        outbox, changed = self._outbox, self._changed
        while True:
            with changed:
                changed.wait_for(lambda: outbox or self._stopped or self._closed)
                changed.wait_for(  # what comes meanwhile goes with it
                    lambda: self._hurried or self._closed or len(outbox) >= MOST, self._every
                )
                batch = outbox.batch()
                if batch is None or self._stopped:
                    return
            came: Reply | BaseException
            try:
                came = self._transport.once(batch.call, self._transport.endpoint.timeout)
            except LOST as error:
                came = error
            with changed:
                outbox.took(batch, came)
                changed.notify_all()
                changed.wait_for(lambda: self._stopped or outbox.delay() <= 0.0, outbox.delay())


_ALIVE: weakref.WeakSet[Buffer] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_ALIVE):
        one.renew()


def _at_exit() -> None:
    open_ones = [buffer for buffer in list(_ALIVE) if not buffer._stopped]
    left = [one for buffer in open_ones for one in buffer.close(_AT_EXIT)]
    if left:
        warnings.warn(
            f"the program ended with {len(left):,} entries of feedback that are not acknowledged; "
            "close the buffer, or use it in a `with` block, to hear of them",
            RuntimeWarning,
            stacklevel=2,
        )


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_fork)
