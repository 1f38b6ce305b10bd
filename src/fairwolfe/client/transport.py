"""Requests that are sent until they are answered, or their time is up."""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections.abc import Mapping
from typing import Any, NoReturn
from urllib.parse import urlsplit

import msgspec

from fairwolfe.errors import (
    Conflict,
    Denied,
    FairwolfeError,
    InvalidInput,
    NotFound,
    Unavailable,
)

__all__ = ["Transport"]

_TYPE = "application/msgpack"
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds
_KINDS: dict[int, type[FairwolfeError]] = {
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    412: Conflict,
}


class Transport:
    """Connections to one service, kept open; every call is safe to repeat, so it is repeated."""

    def __init__(self, address: str, key: str | None, deadline: float, timeout: float) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise InvalidInput(
                f"the address is {address!r:.80}; give one such as http://127.0.0.1:8710"
            )
        if not (deadline > 0.0 and timeout > 0.0):
            raise InvalidInput(
                f"deadline is {deadline!r} and timeout {timeout!r}; give positive seconds"
            )
        self.address = address.rstrip("/")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._deadline, self._timeout = deadline, timeout
        self._headers = {"content-type": _TYPE, "accept": _TYPE}
        if key is not None:
            self._headers["authorization"] = f"Bearer {key}"
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def call(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        """The answer to a request; an error of the library where there is none."""
        data = None if body is None else msgspec.msgpack.encode(body)
        end = time.monotonic() + self._deadline
        pause, reason = _FIRST_PAUSE, "it did not answer"
        while (left := end - time.monotonic()) > 0.0:
            asked = 0.0
            try:
                status, after, answer = self._once(method, path, data, headers, left)
            except (OSError, http.client.HTTPException) as error:
                reason = f"{type(error).__name__}: {error}"
            else:
                if status < 300:
                    return msgspec.msgpack.decode(answer)
                if status not in _AGAIN:
                    _raise(status, answer)
                reason, asked = f"{status}: {_message(answer)}", after
            # Full jitter: those who were refused together do not come back together.
            wait = max(asked, random.uniform(0.0, pause))
            pause = min(2.0 * pause, _LONGEST_PAUSE)
            if time.monotonic() + wait >= end:
                break
            time.sleep(wait)
        raise Unavailable(
            f"{method} {self.address}{path} was not answered within {self._deadline:g} s (last: "
            f"{reason}); what was asked may or may not have happened, and may be asked again"
        )

    def _once(
        self, method: str, path: str, data: bytes | None, headers: Mapping[str, str], left: float
    ) -> tuple[int, float, bytes]:
        """Status, Retry-After and body of one attempt."""
        connection = self._connection()
        connection.timeout = min(self._timeout, left)
        if connection.sock is not None:
            connection.sock.settimeout(connection.timeout)
        try:
            sent = {**self._headers, **headers}
            connection.request(method, self._prefix + path, body=data, headers=sent)
            response = connection.getresponse()
            answer = response.read()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.append(connection)
        return response.status, _seconds(response.getheader("retry-after")), answer

    def _connection(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host or "", self._port, timeout=self._timeout)

    def close(self) -> None:
        """Close the connections that nobody uses now."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()


def _seconds(header: str | None) -> float:
    return float(header) if header is not None and header.isdecimal() else 0.0


def _message(answer: bytes) -> str:
    try:
        return str(msgspec.msgpack.decode(answer)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return repr(answer[:80])


def _raise(status: int, answer: bytes) -> NoReturn:
    kind = _KINDS.get(status, InvalidInput if 400 <= status < 500 else Unavailable)
    raise kind(_message(answer))
