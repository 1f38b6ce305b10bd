"""The decision service from Python: `Client`, `AsyncClient` and their buffers. Needs no NumPy.

What can be asked is written once (`calls`), and so is when it is asked again (`retry`) and what
waits in a buffer (`outbox`); the two clients differ only in how they wait:

    calls        every request: what is sent, and how its answer is read
    endpoint     where the service is, and how long to wait for it
    retry        pauses, the deadline, and which errors are final
    outbox       feedback that is not acknowledged yet
    client, transport, buffer                      with the standard library, and threads
    async_client, async_transport, async_buffer    with aiohttp, and asyncio

>>> client = Client("http://127.0.0.1:8710", key="fw_...")
>>> client
Client('http://127.0.0.1:8710')
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fairwolfe.client.buffer import Buffer
from fairwolfe.client.calls import Decided
from fairwolfe.client.client import Client
from fairwolfe.client.outbox import RefusedEntry, Unacknowledged

if TYPE_CHECKING:
    from fairwolfe.client.async_buffer import AsyncBuffer
    from fairwolfe.client.async_client import AsyncClient

__all__ = [
    "AsyncBuffer",
    "AsyncClient",
    "Buffer",
    "Client",
    "Decided",
    "RefusedEntry",
    "Unacknowledged",
]


def __getattr__(name: str) -> Any:
    """What needs asyncio is imported when it is first used: it takes as long as all the rest."""
    if name == "AsyncClient":
        from fairwolfe.client.async_client import AsyncClient

        return AsyncClient
    if name == "AsyncBuffer":
        from fairwolfe.client.async_buffer import AsyncBuffer

        return AsyncBuffer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
