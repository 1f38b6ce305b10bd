"""KeyRing: who may do what. Only hashes are kept, and they are compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Sequence

from fairwolfe.service.config import Key
from fairwolfe.service.wire import Refused

_PREFIX = "fw_"


def new_key() -> tuple[str, str]:
    """A key of 256 random bits, and the hash that the configuration keeps."""
    key = _PREFIX + secrets.token_urlsafe(32)
    return key, digest_of(key)


def digest_of(key: str) -> str:
    """The hash of a key or a cookie: SHA-256 is enough for random bits."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class KeyRing:
    """The keys of a service; without any, everything is allowed (it is reached locally only).

    >>> key, digest = new_key()
    >>> keys = KeyRing([Key("web", digest, ("decide",))])
    >>> keys.check(f"Bearer {key}", "decide").name
    'web'
    """

    def __init__(self, keys: Sequence[Key], now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens left, and when
        self.replace(keys)

    def replace(self, keys: Sequence[Key]) -> None:
        """Other keys from now on; those that stay have spent what they have spent."""
        self._keys = {key.sha256: key for key in keys}
        full = {digest: (max(key.rate or 0.0, 1.0), self._now()) for digest, key in self}
        self._buckets = {digest: self._buckets.get(digest, full[digest]) for digest in full}

    def check(self, header: str | None, scope: str | None) -> Key | None:
        """The key that a request shows; Refused where it may not do this, or not so often."""
        if not self._keys or scope is None:
            return None
        return self.allow(self.find(header), scope)

    def find(self, header: str | None) -> str:
        """The hash of the key that a header shows."""
        kind, _, shown = (header or "").partition(" ")
        if kind.lower() != "bearer" or not shown:
            text = "no key is given; send the header Authorization: Bearer KEY"
            raise Refused(401, "no_key", text)
        digest = digest_of(shown.strip())
        if sum(hmac.compare_digest(digest, known) for known in self._keys) == 0:  # all of them
            raise _unknown()
        return digest

    def allow(self, digest: str, scope: str, model: str | None = None) -> Key:
        """The key of a hash, once more; Refused where it may not do this, or not so often."""
        key = self.permitted(digest, scope, model)
        if key.rate is not None:
            self._spend(digest, key.rate)
        return key

    def permitted(self, digest: str, scope: str, model: str | None) -> Key:
        """The key of a hash; Refused where it may not do this, however seldom.

        model: that it is for; None where it is for none, or for all
        """
        key = self._keys.get(digest)
        if key is None:
            raise _unknown()
        if scope not in key.scopes:
            has = f"the key {key.name!r} has the scopes {', '.join(key.scopes)}"
            raise Refused(403, "not_allowed", f"{has}, and this needs {scope}")
        everything = model is None and scope == "admin"  # such as a backup
        if (everything and key.models) or (model is not None and not key.sees(model)):
            raise other_model(key, model)
        return key

    def __bool__(self) -> bool:
        return bool(self._keys)

    def __iter__(self) -> Iterator[tuple[str, Key]]:
        return iter(self._keys.items())

    def _spend(self, digest: str, rate: float) -> None:
        """A token of the bucket of a key: `rate` a second, and at most a second's worth at once."""
        left, at = self._buckets[digest]
        now = self._now()
        left = min(max(rate, 1.0), left + (now - at) * rate)
        if left < 1.0:
            self._buckets[digest] = (left, now)
            text = f"this key may ask {rate:g} times a second"
            raise Refused(429, "too_fast", text, retry_after=(1.0 - left) / rate)
        self._buckets[digest] = (left - 1.0, now)


def other_model(key: Key, model: str | None) -> Refused:
    """Why a key may not use a model; None: all of them."""
    which = "this is for all models" if model is None else f"not for {model!r:.80}"
    only = f"the key {key.name!r} is for the models {', '.join(key.models or ())}"
    return Refused(403, "other_model", f"{only}, and {which}", "model")


def _unknown() -> Refused:
    return Refused(401, "unknown_key", "the key is unknown; ask for one of this service")


SECONDS = 12 * 3600
_MOST = 1000


class Sessions:
    """Who has signed in; only hashes of the cookies are kept, in memory, and a bounded number of
    them: the oldest goes first.

    >>> sessions = Sessions()
    >>> sessions.who(sessions.open("owner"))
    'owner'
    """

    def __init__(self, most: int = _MOST, now: Callable[[], float] = time.monotonic) -> None:
        self._most, self._now = most, now
        self._open: OrderedDict[str, tuple[str, float]] = OrderedDict()  # who, end

    def __len__(self) -> int:
        return len(self._open)

    def open(self, who: str) -> str:
        """A new cookie."""
        token = secrets.token_urlsafe(32)
        self._open[digest_of(token)] = (who, self._now() + SECONDS)
        while len(self._open) > self._most:
            self._open.popitem(last=False)
        return token

    def who(self, token: str) -> str:
        """Whom a cookie was opened for: the hash of a key; Refused where it has ended."""
        session = self._open.get(digest_of(token))
        if session is None or session[1] <= self._now():
            self.close(token)
            raise Refused(401, "signed_out", "your sign-in has ended; sign in again")
        return session[0]

    def keep(self, whom: Container[str]) -> None:
        """End those of everybody else."""
        self._open = OrderedDict((t, one) for t, one in self._open.items() if one[0] in whom)

    def close(self, token: str) -> None:
        """End one."""
        self._open.pop(digest_of(token), None)
