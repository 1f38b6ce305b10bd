"""`Client` and `Buffer`: the steps of `core` and `outbox`, run by
the standard library and threads.
"""

from __future__ import annotations

import atexit
import http.client
import os
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, Self, TypeVar, cast

from fairwolfe.client import steps
from fairwolfe.client.calls import Call
from fairwolfe.client.outbox import BufferMethods, report

T = TypeVar("T")


class Transport:
    """Connections to one service by http.client, kept open."""

    def __init__(self, endpoint: steps.Endpoint) -> None:
        self.endpoint = endpoint
        self.renew()
        _ALIVE.add(self)

    def renew(self) -> None:
        """Begin without connections: those of a parent process are not ours to use."""
        self._idle: dict[steps.Address, list[http.client.HTTPConnection]] = {}
        self._lock = threading.Lock()

    def attempt(self, call: Call[Any], seconds: float) -> steps.Reply:
        """One attempt."""
        address = self.endpoint.current
        return self.endpoint.hear(address, self._attempt(address, call, seconds))

    def _attempt(self, address: steps.Address, call: Call[Any], seconds: float) -> steps.Reply:
        connection = self._connection(address)
        connection.timeout = min(self.endpoint.timeout, seconds)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        try:
            headers = {**self.endpoint.headers, **call.headers}
            path = address.prefix + call.path
            connection.request(call.method, path, body=call.body, headers=headers)
            response = connection.getresponse()
            body = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            return steps.Reply.lost(error)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.setdefault(address, []).append(connection)
        return steps.Reply(response.status, response.getheader("retry-after"), body)

    def _connection(self, address: steps.Address) -> http.client.HTTPConnection:
        with self._lock:
            if idle := self._idle.get(address):
                return idle.pop()
        kind = http.client.HTTPSConnection if address.secure else http.client.HTTPConnection
        return kind(address.host, address.port, timeout=self.endpoint.timeout)

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for connections in idle.values():
            for connection in connections:
                connection.close()


def _running(steps: Callable[..., steps.Steps[T]]) -> Callable[..., T]:
    def run(self: Blocking, /, *args: Any, **named: Any) -> T:
        return self._run(steps(self, *args, **named))

    return run


class Blocking(steps.Connected):
    """Runs steps in the thread that calls. They hold a lock, except while they wait or send."""

    _transport: Transport
    _condition = threading.Condition
    _grace = 5.0  # Ctrl-C does not wait long for a service that is gone

    def __init_subclass__(cls) -> None:
        steps.run_methods(cls, _running)

    def _run(self, method: steps.Steps[T]) -> T:
        changed = self._changed or self._condition()
        value: Any = None
        with changed:
            try:
                while True:
                    step = method.send(value)
                    if isinstance(step, steps.Send):
                        changed.release()
                        try:
                            value = self._transport.attempt(*step)
                        finally:
                            changed.acquire()
                    else:
                        changed.wait_for(*step)
            except StopIteration as stop:
                return cast(T, stop.value)
            finally:
                method.close()

    def __enter__(self) -> Self:
        return self


class Buffer(Blocking, BufferMethods):
    """Collects feedback and sends it in the background, from `Client.buffer`.

    An entry is kept until the service has acknowledged it and is sent again after any failure, so
    it arrives at least once; the service joins it exactly once. An entry that the service rejects
    for good is removed and reported in `refused`. Safe to use from several threads. A forked
    child begins with an empty buffer, since its parent sends what was there. At the end of the
    interpreter up to five seconds are spent on what is left, with a warning for what stays.
    """

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        report(self.close(self._patience(error)), error)

    def _start(self) -> None:
        if self._worker is None or not self._worker.is_alive():
            name = f"fairwolfe-buffer-{id(self):x}"
            steps = self._batches()
            self._worker = threading.Thread(target=self._run, args=[steps], name=name, daemon=True)
            self._worker.start()


class Client(Blocking, steps.ClientMethods):
    """Asks for decisions and reports their outcomes.

    Every question carries a request_id, so that it can be sent again without being decided twice;
    feedback may be sent again in any case. What the service rejects for load or cannot make durable
    is tried again, with pauses that grow, differ at random and follow its Retry-After, until the
    deadline. Safe to use from several threads, and in a forked child.

    Parameters
    ----------
    address: such as "http://127.0.0.1:8710", or several where a standby may take over
    key: that `fairwolfe keys new` printed, where the service has keys
    deadline: seconds for one call, with all that is tried again
    timeout: seconds for one attempt in which nothing arrives
    """

    _transport_type = Transport

    def close(self) -> None:
        """Close the buffers, which flushes them, and the connections."""
        self.__exit__(None, None, None)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        open_buffers = [buffer for buffer in self._buffers if not buffer.closed]
        left = [one for buffer in open_buffers for one in buffer.close(self._patience(error))]
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
        _ALIVE.add(buffer)
        return buffer


_ALIVE: weakref.WeakSet[Transport | Buffer] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_ALIVE):
        one.renew()


def _at_exit() -> None:
    buffers = [one for one in list(_ALIVE) if isinstance(one, Buffer) and not one._stopped]
    left = [one for buffer in buffers for one in buffer.close(Buffer._grace)]
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
