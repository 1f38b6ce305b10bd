"""`AsyncClient` and `AsyncBuffer`: the steps of `core` and `outbox`, run by
asyncio and aiohttp.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from fairwolfe.client import steps
from fairwolfe.client.calls import Call
from fairwolfe.client.outbox import BufferMethods, Unacknowledged, report
from fairwolfe.errors import require_extra

if TYPE_CHECKING:
    import aiohttp

T = TypeVar("T")


class AsyncTransport:
    """Connections to one service by aiohttp, kept open."""

    def __init__(self, endpoint: steps.Endpoint) -> None:
        require_extra("integrations", "AsyncClient", "aiohttp", instead="Client does without")
        self.endpoint = endpoint
        self._session: aiohttp.ClientSession | None = None

    async def attempt(self, call: Call[Any], seconds: float) -> steps.Reply:
        """One attempt."""
        address = self.endpoint.current
        return self.endpoint.hear(address, await self._attempt(address, call, seconds))

    async def _attempt(
        self, address: steps.Address, call: Call[Any], seconds: float
    ) -> steps.Reply:
        import aiohttp
        from yarl import URL

        if self._session is None:  # made here, since it belongs to the running loop
            self._session = aiohttp.ClientSession(
                headers=self.endpoint.headers, cookie_jar=aiohttp.DummyCookieJar()
            )
        silence = min(self.endpoint.timeout, seconds)
        limits = aiohttp.ClientTimeout(total=seconds, sock_connect=silence, sock_read=silence)
        try:
            async with self._session.request(
                call.method,
                URL(address.text + call.path, encoded=True),
                data=call.body,
                headers=call.headers,
                timeout=limits,
                allow_redirects=False,
            ) as response:
                body = await response.read()
        except (OSError, aiohttp.ClientError) as error:
            return steps.Reply.lost(error)
        return steps.Reply(response.status, response.headers.get("retry-after"), body)

    async def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class Signal:
    """Wakes every task that waits for a condition, to check it again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify_all(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait_for(self, ready: Callable[[], Any], seconds: float | None) -> None:
        """Wait until it is ready, at most so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not ready():
                    await self._event.wait()


def _running(steps: Callable[..., steps.Steps[T]]) -> Callable[..., Coroutine[Any, Any, T]]:
    async def run(self: Asynchronous, /, *args: Any, **named: Any) -> T:
        return await self._run(steps(self, *args, **named))

    return run


class Asynchronous(steps.Connected):
    """Runs steps in the task that awaits them."""

    _transport: AsyncTransport
    _condition = Signal
    _grace = 0.0  # a cancelled task does not wait

    def __init_subclass__(cls) -> None:
        steps.run_methods(cls, _running)

    async def _run(self, method: steps.Steps[T]) -> T:
        changed = self._changed or self._condition()
        value: Any = None
        try:
            while True:
                step = method.send(value)
                if isinstance(step, steps.Send):
                    value = await self._transport.attempt(*step)
                else:
                    await changed.wait_for(*step)
        except StopIteration as stop:
            return cast(T, stop.value)
        finally:
            method.close()

    async def __aenter__(self) -> Self:
        return self


class AsyncBuffer(Asynchronous, BufferMethods):
    """Collects feedback and sends it in the background, from `AsyncClient.buffer`.

    As `Buffer`, with a task of the running loop in place of a thread. If the loop ends first, what
    is not acknowledged is counted in a warning: leave its `async with` block before.
    """

    async def close(self, timeout: float | None = None) -> list[Unacknowledged]:
        """Flush, and take nothing more; what is not acknowledged after timeout seconds."""
        try:
            return await self._run(self._close(timeout))
        except BaseException as error:
            report(self._outbox.before(self._outbox.added), error)
            raise
        finally:
            self._stopped = True
            if self._worker is not None:
                self._worker.cancel()

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        report(await self.close(self._patience(error)), error)

    def _start(self) -> None:
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._background())

    async def _background(self) -> None:
        try:
            await self._run(self._batches())
        finally:
            if self._outbox and not self._closed:
                warnings.warn(
                    f"the loop ended with {self.waiting:,} entries of feedback that are not "
                    "acknowledged; close the buffer, or use it in an `async with` block, to hear "
                    "of them",
                    RuntimeWarning,
                    stacklevel=2,
                )


class AsyncClient(Asynchronous, steps.ClientMethods):
    """`Client` with the same names, to be awaited: `await client.decide(...)`.

    Needs aiohttp, which the extra `integrations` installs. What is cancelled ends at once, and its
    connection is closed; whether the service had heard it is then unknown, and it may be asked
    again with the same request_id. It belongs to one loop, and to the process that made it.

    Parameters
    ----------
    address, key, deadline, timeout: as of `Client`
    """

    _transport_type = AsyncTransport

    async def close(self) -> None:
        """Close the buffers, which flushes them, and the connections."""
        await self.__aexit__(None, None, None)

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        left = []
        try:
            for buffer in self._buffers:
                if not buffer.closed:
                    left += await buffer.close(self._patience(error))
        finally:
            await self._transport.close()
        report(left, error)

    def buffer(self, max: int = 10_000, every: float = 0.2, wait: float = 1.0) -> AsyncBuffer:
        """An `AsyncBuffer`: collects feedback and sends it in the background, at least once.

        max: entries that are kept until they are acknowledged
        every: seconds in which entries are collected for a batch
        wait: seconds that `feedback` waits for room before it raises Unavailable
        """
        buffer = AsyncBuffer(self._transport, max, every, wait)
        self._buffers.append(buffer)
        return buffer
