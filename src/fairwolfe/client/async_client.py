"""`AsyncClient`: `Client` for asyncio, on aiohttp."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from fairwolfe.client import calls
from fairwolfe.client.async_buffer import AsyncBuffer
from fairwolfe.client.async_transport import AsyncTransport
from fairwolfe.client.calls import Call
from fairwolfe.client.endpoint import Endpoint
from fairwolfe.client.methods import presented
from fairwolfe.client.outbox import report

__all__ = ["AsyncClient"]

P = ParamSpec("P")
T = TypeVar("T")


def _method(
    make: Callable[P, Call[T]],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """A method that makes a call and sends it."""

    async def send(self: AsyncClient, /, *args: P.args, **named: P.kwargs) -> T:
        return await self._transport.call(make(*args, **named))

    return presented(send, make)


class AsyncClient:
    """`Client` with the same names, to be awaited: `await client.decide(...)`.

    Needs aiohttp, which the extra `client` installs. What is cancelled ends at once, and its
    connection is closed; whether the service had heard it is then unknown, and it may be asked
    again with the same request_id. It belongs to one loop, and to the process that made it.

    Parameters
    ----------
    address, key, deadline, timeout: as of `Client`
    """

    def __init__(
        self,
        address: str,
        key: str | None = None,
        *,
        deadline: float = 30.0,
        timeout: float = 10.0,
    ) -> None:
        self._transport = AsyncTransport(Endpoint(address, key, deadline, timeout))
        self._buffers: list[AsyncBuffer] = []

    def __repr__(self) -> str:
        return f"AsyncClient({self._transport.endpoint.address!r})"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._close(error)

    async def close(self) -> None:
        """Close the buffers, which flushes them, and the connections."""
        await self._close(None)

    async def _close(self, error: BaseException | None) -> None:
        # A cancelled task does not wait.
        seconds = None if isinstance(error, Exception | None) else 0.0
        left = []
        try:
            for buffer in self._buffers:
                if not buffer.closed:
                    left += await buffer.close(seconds)
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

    decide = _method(calls.decide)
    decide_many = _method(calls.decide_many)
    feedback = _method(calls.feedback)
    feedback_many = _method(calls.feedback_many)
    decision = _method(calls.decision)

    models = _method(calls.models)
    model = _method(calls.model)
    live = _method(calls.live)
    history = _method(calls.history)
    exposure = _method(calls.exposure)
    constraints = _method(calls.constraints)
    changes = _method(calls.changes)
    items = _method(calls.items)
    add_items = _method(calls.add_items)
    retire = _method(calls.retire)
    objective = _method(calls.objective)
    replace_objective = _method(calls.replace_objective)

    snapshot = _method(calls.snapshot)
    healthz = _method(calls.healthz)
    readyz = _method(calls.readyz)
    metrics = _method(calls.metrics)
