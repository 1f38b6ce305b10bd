"""`Transport`: calls over the connections of the standard library."""

from __future__ import annotations

import http.client
import os
import threading
import time
import weakref
from typing import Any, TypeVar

from fairwolfe.client.calls import Call
from fairwolfe.client.endpoint import Endpoint
from fairwolfe.client.retry import Attempts, Reply

__all__ = ["LOST", "Transport"]

T = TypeVar("T")

LOST = (OSError, http.client.HTTPException)
"""What `once` raises where there is no answer."""


class Transport:
    """Connections to one service, kept open; every call is safe to repeat, so it is repeated."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self.renew()
        _ALIVE.add(self)

    def renew(self) -> None:
        """Begin without connections: those of a parent process are not ours to use."""
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def call(self, call: Call[T]) -> T:
        """The answer to a call; an error of the library where there is none."""
        attempts = Attempts(call, self.endpoint)
        while True:
            try:
                reply = self.once(call, attempts.left)
            except LOST as error:
                pause = attempts.lost(error)
            else:
                if reply.fine:
                    return attempts.answer(call, reply)
                pause = attempts.refused(reply)
            time.sleep(pause)

    def once(self, call: Call[Any], left: float) -> Reply:
        """One attempt, with so many seconds left."""
        connection = self._connection()
        connection.timeout = min(self.endpoint.timeout, left)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        try:
            headers = {**self.endpoint.headers, **call.headers}
            path = self.endpoint.prefix + call.path
            connection.request(call.method, path, body=call.body, headers=headers)
            response = connection.getresponse()
            body = response.read()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)
        return Reply(response.status, response.getheader("retry-after"), body)

    def _connection(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        end = self.endpoint
        kind = http.client.HTTPSConnection if end.secure else http.client.HTTPConnection
        return kind(end.host, end.port, timeout=end.timeout)

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


_ALIVE: weakref.WeakSet[Transport] = weakref.WeakSet()


def _after_fork() -> None:
    for one in list(_ALIVE):
        one.renew()


if hasattr(os, "register_at_fork"):  # not on Windows, which does not fork
    os.register_at_fork(after_in_child=_after_fork)
