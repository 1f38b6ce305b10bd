"""`Client`: the decision service from Python, with nothing to install."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar

from fairwolfe.client import calls
from fairwolfe.client.buffer import Buffer, patience
from fairwolfe.client.calls import Call
from fairwolfe.client.endpoint import Endpoint
from fairwolfe.client.methods import presented
from fairwolfe.client.outbox import report
from fairwolfe.client.transport import Transport

__all__ = ["Client"]

P = ParamSpec("P")
T = TypeVar("T")


def _method(make: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """A method that makes a call and sends it."""

    def send(self: Client, /, *args: P.args, **named: P.kwargs) -> T:
        return self._transport.call(make(*args, **named))

    return presented(send, make)


class Client:
    """Asks for decisions and reports their outcomes.

    Every question carries a request_id, so that it can be sent again without being decided twice;
    feedback may be sent again in any case. What the service rejects for load or cannot make durable
    is tried again, with pauses that grow, differ at random and follow its Retry-After, until the
    deadline. Safe to use from several threads, and in a forked child.

    Parameters
    ----------
    address: such as "http://127.0.0.1:8710"
    key: that `fairwolfe keys new` printed, where the service has keys
    deadline: seconds for one call, with all that is tried again
    timeout: seconds for one attempt in which nothing arrives
    """

    def __init__(
        self,
        address: str,
        key: str | None = None,
        *,
        deadline: float = 30.0,
        timeout: float = 10.0,
    ) -> None:
        self._transport = Transport(Endpoint(address, key, deadline, timeout))
        self._buffers: list[Buffer] = []

    def __repr__(self) -> str:
        return f"Client({self._transport.endpoint.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close(error)

    def close(self) -> None:
        """Close the buffers, which flushes them, and the connections."""
        self._close(None)

    def _close(self, error: BaseException | None) -> None:
        seconds = patience(error)
        open_ones = [buffer for buffer in self._buffers if not buffer.closed]
        left = [one for buffer in open_ones for one in buffer.close(seconds)]
        self._transport.close()
        report(left, error)

    def buffer(self, max: int = 10_000, every: float = 0.2, wait: float = 1.0) -> Buffer:
        """A `Buffer`: collects feedback and sends it in the background, at least once.

        max: entries that are kept until they are acknowledged
        every: seconds in which entries are collected for a batch
        wait: seconds that `feedback` waits for room before it raises Unavailable
        """
        buffer = Buffer(self._transport, max, every, wait)
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
