"""`Outbox`: feedback that is not acknowledged yet, and what an answer means for it; and the methods
of both buffers, as steps.
"""

from __future__ import annotations

import logging
import re
import time
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from fairwolfe.client import calls
from fairwolfe.client.calls import Decided, encode
from fairwolfe.client.steps import Backoff, Connected, Method, Reply, Send, Steps, Wait
from fairwolfe.errors import InvalidInput, Unavailable

logger = logging.getLogger("fairwolfe.client")

MOST = 1000
"""Entries of one request; the service takes no more."""
_KEPT = 1000  # rejected entries


class Unacknowledged(NamedTuple):
    """An entry of feedback that may or may not have arrived; it may be sent again."""

    model: str
    entry: dict[str, Any]


class RefusedEntry(NamedTuple):
    """An entry of feedback that the service will never take, and its reason."""

    model: str
    entry: dict[str, Any]
    message: str


class FeedbackBatch(NamedTuple):
    """The oldest entries of a model, as they are sent."""

    model: str
    entries: tuple[bytes, ...]


class Outbox:
    """Entries in their order, by model. An entry leaves it acknowledged or rejected for good.

    It does not send, wait or lock: a buffer does. One batch is under way at a time, so that the
    entries of a decision arrive in their order.

    >>> outbox = Outbox(10)
    >>> outbox.add("router", outbox.read([{"id": "a-0-0", "rewards": {"clicks": 1}}]))
    >>> outbox.batch().model, len(outbox), outbox.before(1)[0].entry["id"]
    ('router', 1, 'a-0-0')
    """

    def __init__(self, most: int) -> None:
        if not (isinstance(most, int) and most > 0):
            raise InvalidInput(f"max is {most!r}; give a positive number of entries")
        self.most = most
        self.added = 0
        self.outcomes: Counter[str] = Counter()
        self.refused: tuple[RefusedEntry, ...] = ()
        self.trouble = ""
        self._queues: dict[str, deque[tuple[int, bytes]]] = {}
        self._size = 0
        self._at_once = MOST  # less where the service takes only smaller bodies
        self._narrowed = MOST  # less while a rejected entry is searched for
        self._backoff = Backoff()
        self._rest = 0.0  # until when nothing is sent, of the monotonic clock
        self._rests: dict[str, float] = {}  # the same, of a model that is stopped

    def __len__(self) -> int:
        return self._size

    def read(self, entries: Iterable[Mapping[str, Any]]) -> list[bytes]:
        """Entries as they are now, to be added."""
        encoded = [encode(dict(one)) for one in entries]
        if len(encoded) > self.most:
            raise InvalidInput(
                f"{len(encoded):,} entries do not fit into a buffer of {self.most:,}; give fewer"
            )
        return encoded

    def fits(self, entries: Sequence[bytes]) -> bool:
        """Whether there is room."""
        return self._size + len(entries) <= self.most

    def add(self, model: str, entries: Sequence[bytes]) -> None:
        """Take entries in."""
        if entries:
            queue = self._queues.setdefault(model, deque())
            queue.extend(enumerate(entries, self.added))
        self.added += len(entries)
        self._size += len(entries)

    def holds(self, mark: int) -> bool:
        """Whether one of the first `mark` entries that were ever added is still here."""
        return any(queue[0][0] < mark for queue in self._queues.values())

    def before(self, mark: int) -> list[Unacknowledged]:
        """Which of the first `mark` entries that were ever added are still here."""
        listed = sorted(
            (number, model, one)
            for model, queue in self._queues.items()
            for number, one in queue
            if number < mark
        )
        return [Unacknowledged(model, msgspec.msgpack.decode(one)) for _, model, one in listed]

    def delay(self) -> float:
        """Seconds until a batch may be sent."""
        first = min(map(self._resting, self._queues), default=0.0)
        return max(self._rest - time.monotonic(), first)

    def _resting(self, model: str) -> float:
        return max(self._rests.get(model, 0.0) - time.monotonic(), 0.0)

    def batch(self) -> FeedbackBatch | None:
        """What to send next: models take turns, except those that are stopped."""
        if not self._queues:
            return None
        model = min(self._queues, key=self._resting)
        count = min(self._at_once, self._narrowed, len(self._queues[model]))
        return FeedbackBatch(model, tuple(self._queues[model][i][1] for i in range(count)))

    def took(self, batch: FeedbackBatch, reply: Reply) -> None:
        """Take in the answer to a batch."""
        count = len(batch.entries)
        if reply.fine and len(outcomes := _outcomes(reply.body)) == count:
            self.outcomes = self.outcomes + Counter(outcomes)
            self._drop(batch.model, range(count))
        elif reply.final:
            self._refuse(batch, reply)
        else:
            self.trouble = reply.reason
            until = time.monotonic() + self._backoff.pause(reply)
            if reply.value("error") == "model_stopped":  # others are served
                self._rests[batch.model] = until
            else:
                self._rest = until
            self._turn(batch.model)

    def _refuse(self, batch: FeedbackBatch, reply: Reply) -> None:
        """One entry made the service reject the batch, and none of it has counted: remove it."""
        count = len(batch.entries)
        named = re.match(r"\[(\d+)\]", reply.value("field"))
        if named and int(named[1]) < count:
            guilty = range(int(named[1]), int(named[1]) + 1)
        elif count == 1 or reply.status == 404:
            guilty = range(count)
        elif reply.status == 413:
            self._at_once = count // 2
            return
        else:
            self._narrowed = count // 2
            return
        self._narrowed = MOST
        for i in guilty:
            entry = msgspec.msgpack.decode(batch.entries[i])
            refused = RefusedEntry(batch.model, entry, reply.message)
            self.refused = (*self.refused, refused)[-_KEPT:]
            logger.warning("feedback for %s was rejected: %s", entry.get("id"), reply.message)
        self.outcomes = self.outcomes + Counter(refused=len(guilty))
        self._drop(batch.model, guilty)

    def _drop(self, model: str, places: range) -> None:
        queue = self._queues[model]
        kept = [queue.popleft() for _ in range(places.stop)][: places.start]
        queue.extendleft(reversed(kept))
        self._size -= len(places)
        self._turn(model)
        self._rests.pop(model, None)
        self._backoff, self._rest, self.trouble = Backoff(), 0.0, ""

    def _turn(self, model: str) -> None:
        """The next batch is of another model, if there is one."""
        queue = self._queues.pop(model)
        if queue:
            self._queues[model] = queue

    def full(self, entries: Sequence[bytes]) -> Unavailable:
        """Why there is no room."""
        last = f" (last: {self.trouble})" if self.trouble else ""
        return Unavailable(
            f"{self._size:,} entries of feedback are not acknowledged yet{last}, so there is no "
            f"room for {len(entries):,} more in a buffer of {self.most:,}; nothing was taken"
        )


def _outcomes(body: bytes) -> list[str]:
    try:
        return calls.outcomes(msgspec.msgpack.decode(body))
    except (msgspec.DecodeError, LookupError, TypeError):
        return []


def report(left: Sequence[Unacknowledged], error: BaseException | None) -> None:
    """Say that a buffer has ended with entries: by an error, or a warning where one is raised."""
    if left:
        text = (
            f"a buffer was closed with {len(left):,} entries of feedback that are not "
            "acknowledged; they may or may not have arrived. flush() returns them, and they may be "
            "sent again"
        )
        if error is None:
            raise Unavailable(text)
        warnings.warn(text, RuntimeWarning, stacklevel=3)


class BufferMethods(Connected):
    """What a buffer does and reports; a subclass runs the steps, and `_batches` in the background.

    The steps of one buffer never run at the same time, except while they wait or send.

    _start: run `_batches` in the background, unless it runs
    """

    _start: Callable[[], None]

    def __init__(self, transport: Any, most: int, every: float, wait: float) -> None:
        if not (every >= 0.0 and wait >= 0.0):
            raise InvalidInput(f"every is {every!r} and wait {wait!r}; give seconds, 0 or more")
        self._transport, self._most, self._every, self._wait = transport, most, every, wait
        self._closed = self._stopped = False
        self.renew()

    def renew(self) -> None:
        """Begin empty: what a parent process has collected, it sends."""
        self._outbox = Outbox(self._most)
        self._changed = self._condition()
        self._worker: Any = None  # a thread or a task
        self._urgent = 0  # how many wait for entries to leave

    def __repr__(self) -> str:
        address = self._transport.endpoint.shown
        return f"{type(self).__name__}({address!r}, waiting={self.waiting})"

    @property
    def waiting(self) -> int:
        """How many entries are not acknowledged yet."""
        return len(self._outbox)

    @property
    def closed(self) -> bool:
        """Whether it takes nothing more."""
        return self._closed

    @property
    def outcomes(self) -> dict[str, int]:
        """How many entries were joined, known, late, unknown, conflict or refused."""
        return dict(self._outbox.outcomes)

    @property
    def refused(self) -> tuple[RefusedEntry, ...]:
        """Entries that the service rejected for good, the newest 1,000."""
        return self._outbox.refused

    @property
    def trouble(self) -> str:
        """Why the last batch was not acknowledged, or an empty text."""
        return self._outbox.trouble

    def _feedback(
        self,
        decision: Decided,
        rewards: Mapping[str, Any] | None = None,
        *,
        exposed: Iterable[str] | None = None,
        clicked: Iterable[str] | None = None,
        final: bool = False,
    ) -> Steps[None]:
        """The outcome of a decision, or a part of it; Unavailable if there is no room in time."""
        entry = calls.entry(decision, rewards, exposed, clicked, final)
        return self._feedback_many(decision.model, [entry])

    def _feedback_many(self, model: str, entries: Iterable[Mapping[str, Any]]) -> Steps[None]:
        """Several entries, each {"id": ..., "rewards": ...} as on the wire: all or none."""
        outbox = self._outbox
        listed = outbox.read(entries)
        yield from self._hurry(lambda: self._closed or outbox.fits(listed), self._wait)
        if self._closed:
            raise InvalidInput("the buffer is closed; make another with client.buffer()")
        if not outbox.fits(listed):
            raise outbox.full(listed)
        outbox.add(model, listed)
        self._start()
        self._changed.notify_all()

    def _flush(self, timeout: float | None = None) -> Steps[list[Unacknowledged]]:
        """Send now what was given until now; what is not acknowledged after timeout seconds.

        timeout: the deadline of the client where it is left out
        """
        outbox, mark = self._outbox, self._outbox.added
        if outbox.holds(mark) and not self._stopped:
            self._start()
            seconds = self._transport.endpoint.deadline if timeout is None else timeout
            yield from self._hurry(lambda: not outbox.holds(mark), seconds)
        return outbox.before(mark)

    def _close(self, timeout: float | None = None) -> Steps[list[Unacknowledged]]:
        """Flush, and take nothing more; what is not acknowledged after timeout seconds."""
        self._closed = True
        self._changed.notify_all()
        left = yield from self._flush(timeout)
        self._stopped = True
        self._changed.notify_all()
        return left

    def _hurry(self, ready: Callable[[], bool], seconds: float) -> Steps[None]:
        """Wait until entries have left, which are then sent without waiting for others."""
        if ready():
            return
        self._urgent += 1
        self._changed.notify_all()
        try:
            yield Wait(ready, seconds)
        finally:
            self._urgent -= 1

    def _batches(self) -> Steps[None]:
        """Send batches until the buffer is stopped, or closed and empty."""
        outbox = self._outbox
        while True:
            yield Wait(lambda: outbox or self._stopped or self._closed)
            yield Wait(  # what comes meanwhile goes with it
                lambda: self._urgent or self._closed or len(outbox) >= MOST, self._every
            )
            batch = outbox.batch()
            if batch is None or self._stopped:
                return
            call = calls.feedback_raw(*batch)
            outbox.took(batch, (yield Send(call, self._transport.endpoint.timeout)))
            self._changed.notify_all()
            yield Wait(lambda: self._stopped or outbox.delay() <= 0.0, outbox.delay())

    feedback = Method(_feedback)
    feedback_many = Method(_feedback_many)
    flush = Method(_flush)
    close = Method(_close)
