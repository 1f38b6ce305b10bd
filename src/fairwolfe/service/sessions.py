"""Sign-in of the page: a browser shows its key once, then a random cookie that may only read."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from fairwolfe.service.refusal import Refused

__all__ = ["SECONDS", "Sessions"]

SECONDS = 12 * 3600
_MOST = 1000


class Session(NamedTuple):
    """The name of the key that it was opened with, and when it ends."""

    who: str
    until: float


class Sessions:
    """Who has signed in; only hashes of the cookies are kept, in memory, and a bounded number of
    them: the oldest goes first.

    >>> sessions = Sessions()
    >>> sessions.who(sessions.open("owner"))
    'owner'
    """

    def __init__(self, most: int = _MOST, now: Callable[[], float] = time.monotonic) -> None:
        self._most, self._now = most, now
        self._open: OrderedDict[bytes, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, who: str) -> str:
        """A new cookie."""
        token = secrets.token_urlsafe(32)
        self._open[_digest(token)] = Session(who, self._now() + SECONDS)
        while len(self._open) > self._most:
            self._open.popitem(last=False)
        return token

    def who(self, token: str) -> str:
        """The name of the key that a cookie was opened with; Refused where it has ended."""
        session = self._open.get(_digest(token))
        if session is None or session.until <= self._now():
            self.close(token)
            raise Refused(401, "signed_out", "your sign-in has ended; sign in again")
        return session.who

    def close(self, token: str) -> None:
        """End one."""
        self._open.pop(_digest(token), None)


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
