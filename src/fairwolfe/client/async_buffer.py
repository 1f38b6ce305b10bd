"""`AsyncBuffer`: feedback that is collected and sent in batches by a task, at least once."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from fairwolfe.client.async_transport import AsyncTransport
from fairwolfe.client.calls import Decided, entry
from fairwolfe.client.outbox import MOST, Collecting, Outbox, Unacknowledged, checked, report
from fairwolfe.client.retry import Reply

__all__ = ["AsyncBuffer"]


class AsyncBuffer(Collecting):
    """Collects feedback and sends it in the background, from `AsyncClient.buffer`.

    As `Buffer`, with a task of the running loop in place of a thread. If the loop ends first, what
    is not acknowledged is counted in a warning: leave its `async with` block before.
    """

    def __init__(self, transport: AsyncTransport, most: int, every: float, wait: float) -> None:
        self._transport = transport
        self._every, self._wait = checked(every, wait)
        self._closed = False
        self._outbox = Outbox(most)
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._hurried = 0

    def __repr__(self) -> str:
        return f"AsyncBuffer({self._transport.endpoint.address!r}, waiting={self.waiting})"

    async def feedback(
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
        await self.feedback_many(decision.model, [message])

    async def feedback_many(self, model: str, entries: Iterable[Mapping[str, Any]]) -> None:
        """Several entries, each {"id": ..., "rewards": ...} as on the wire: all or none."""
        listed = self._outbox.read(entries)
        async with self._changed:
            await self._hurry(lambda: self._room(listed), self._wait)
            self._take(model, listed)
            self._start()
            self._changed.notify_all()

    async def flush(self, timeout: float | None = None) -> list[Unacknowledged]:
        """Send now what was given until now; what is not acknowledged after timeout seconds.

        timeout: the deadline of the client where it is left out
        """
        seconds = self._transport.endpoint.deadline if timeout is None else timeout
        async with self._changed:
            mark = self._outbox.added
            if self._outbox.holds(mark):
                self._start()
                await self._hurry(lambda: not self._outbox.holds(mark), seconds)
            return self._outbox.before(mark)

    async def close(self, timeout: float | None = None) -> list[Unacknowledged]:
        """Flush, and take nothing more; what is not acknowledged after timeout seconds."""
        if self._closed:
            return self._outbox.before(self._outbox.added)
        self._closed = True
        try:
            return await self.flush(timeout)
        except BaseException as error:
            report(self._outbox.before(self._outbox.added), error)
            raise
        finally:
            if self._task is not None:
                self._task.cancel()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # A cancelled task does not wait.
        report(await self.close(None if isinstance(error, Exception | None) else 0.0), error)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())

    async def _hurry(self, ready: Callable[[], bool], seconds: float) -> None:
        """Wait until entries have left, and do not let them wait for others; the lock is held."""
        if ready():
            return
        self._hurried += 1
        self._changed.notify_all()
        try:
            await self._until(ready, seconds)
        finally:
            self._hurried -= 1

    async def _until(self, ready: Callable[[], Any], seconds: float) -> None:
        """Wait for a change that makes it ready, at most so long; the lock is held."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait_for(ready)
        except TimeoutError:
            pass

    async def _run(self) -> None:
        outbox, changed = self._outbox, self._changed
        try:
            while True:
                async with changed:
                    await changed.wait_for(lambda: len(outbox))
                    await self._until(  # what comes meanwhile goes with it
                        lambda: self._hurried or len(outbox) >= MOST, self._every
                    )
                    batch = outbox.batch()
                assert batch is not None  # only this task takes entries out
                came: Reply | BaseException
                try:
                    came = await self._transport.once(batch.call, self._transport.endpoint.timeout)
                except self._transport.lost as error:
                    came = error
                async with changed:
                    outbox.took(batch, came)
                    changed.notify_all()
                    await self._until(lambda: outbox.delay() <= 0.0, outbox.delay())
        finally:
            if outbox and not self._closed:
                warnings.warn(
                    f"the loop ended with {len(outbox):,} entries of feedback that are not "
                    "acknowledged; close the buffer, or use it in an `async with` block, to hear "
                    "of them",
                    RuntimeWarning,
                    stacklevel=2,
                )
