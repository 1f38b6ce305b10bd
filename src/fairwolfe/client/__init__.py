"""The decision service from Python: `Client`, `AsyncClient` and their buffers. Needs no NumPy.

Both clients share all that does no input or output; they differ only in how they wait:

    calls          every request: what is sent, and how its answer is read
    core           replies, retries and the deadline, as steps
    outbox         feedback that is not acknowledged yet; the methods of buffers, as steps
    blocking       runs the steps with the standard library, and threads
    asynchronous   runs the steps with aiohttp, and asyncio

>>> client = Client("http://127.0.0.1:8710", key="fw_...")
>>> client
Client('http://127.0.0.1:8710')
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fairwolfe.client.blocking import Buffer, Client
from fairwolfe.client.calls import Decided
from fairwolfe.client.outbox import RefusedEntry, Unacknowledged

if TYPE_CHECKING:
    from fairwolfe.client.asynchronous import AsyncBuffer, AsyncClient

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
    if name in ("AsyncClient", "AsyncBuffer"):
        return getattr(import_module("fairwolfe.client.asynchronous"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
