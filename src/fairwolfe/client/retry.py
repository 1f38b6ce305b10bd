"""When a call is sent again, after which pause, and when it ends with an error."""

from __future__ import annotations

import random
import time
from typing import Any, NamedTuple, TypeVar

import msgspec

from fairwolfe.client.calls import Call
from fairwolfe.client.endpoint import Endpoint
from fairwolfe.errors import (
    Conflict,
    Denied,
    FairwolfeError,
    InvalidInput,
    NotFound,
    Unavailable,
)

__all__ = ["Attempts", "Pauses", "Reply"]

T = TypeVar("T")

_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds
_KINDS: dict[int, type[FairwolfeError]] = {
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    412: Conflict,
}


class Reply(NamedTuple):
    """What one attempt brought: a status, Retry-After as it was sent, and a body."""

    status: int
    retry_after: str | None
    body: bytes

    @property
    def after(self) -> float:
        """Seconds that the service asks to wait."""
        text = self.retry_after or ""
        return float(text) if text.isdecimal() else 0.0

    @property
    def fine(self) -> bool:
        return 200 <= self.status < 300

    @property
    def again(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status in _AGAIN

    @property
    def message(self) -> str:
        return str(self._value("message") or repr(self.body[:80]))

    @property
    def final(self) -> bool:
        """Whether the service itself rejects the content, and not the sender."""
        if self.status == 413:
            return True
        wrong = 400 <= self.status < 500 and not self.again and self.status not in (401, 403)
        return wrong and self.code not in ("", "not_found", "wrong_method")

    @property
    def code(self) -> str:
        """The reason in a word, where the service answered and not somebody before it."""
        return str(self._value("error") or "")

    @property
    def field(self) -> str:
        """The rejected field, such as [3].rewards."""
        return str(self._value("field") or "")

    def _value(self, name: str) -> Any:
        try:
            return msgspec.msgpack.decode(self.body)[name]
        except (msgspec.DecodeError, KeyError, TypeError, IndexError):
            return None

    def error(self) -> FairwolfeError:
        """A rejection, as an error of the library."""
        kind = _KINDS.get(self.status, InvalidInput if 400 <= self.status < 500 else Unavailable)
        return kind(self.message)


class Pauses:
    """Pauses between attempts: full jitter, up to a length that doubles.

    What the service asks for with Retry-After comes before it, so that clients that were rejected
    together do not come back together.
    """

    def __init__(self) -> None:
        self._longest = _FIRST_PAUSE

    def next(self, after: float = 0.0) -> float:
        """Seconds to wait now."""
        pause = after + random.uniform(0.0, self._longest)
        self._longest = min(2.0 * self._longest, _LONGEST_PAUSE)
        return pause


class Attempts:
    """The attempts of one call, which share a deadline. The sender asks what to do next.

    >>> from fairwolfe.client import calls
    >>> call = calls.model("router")
    >>> attempts = Attempts(call, Endpoint("http://127.0.0.1:8710", None, 30.0, 10.0))
    >>> 1.0 <= attempts.refused(Reply(429, "1", b"")) <= 1.05  # seconds until the next
    True
    >>> attempts.answer(call, Reply(200, None, bytes([0x81, 0xa1, 0x74, 0x05])))
    {'t': 5}
    """

    def __init__(self, call: Call[Any], endpoint: Endpoint) -> None:
        self._what = f"{call.method} {endpoint.address}{call.path}"
        self._deadline = endpoint.deadline
        self._end = time.monotonic() + endpoint.deadline
        self._pauses = Pauses()

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return max(self._end - time.monotonic(), 1e-3)  # 0 would mean no limit, or not to wait

    def answer(self, call: Call[T], reply: Reply) -> T:
        """The answer in a reply that is not an error."""
        try:
            return call.read(reply.body)
        except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
            raise Unavailable(
                f"{self._what} was answered with {reply.body[:80]!r}, which is not of this "
                "service; is the address right?"
            ) from error

    def refused(self, reply: Reply) -> float:
        """Seconds until the next attempt; an error where none would help, or is in time."""
        if not reply.again:
            raise reply.error()
        return self._pause(f"{reply.status}: {reply.message}", reply.after)

    def lost(self, error: BaseException) -> float:
        """The same, of a request without an answer."""
        return self._pause(f"{type(error).__name__}: {error}", 0.0)

    def _pause(self, reason: str, after: float) -> float:
        pause = self._pauses.next(after)
        if time.monotonic() + pause < self._end:
            return pause
        raise Unavailable(
            f"{self._what} was not answered within {self._deadline:g} s (last: {reason}); "
            "what was asked may or may not have happened, and may be asked again"
        )
