"""Keys: who may do what. Only hashes are kept, and they are compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence

from fairwolfe.service.config import Key
from fairwolfe.service.refusal import Refused

__all__ = ["Keys", "new_key"]

_PREFIX = "fw_"


def new_key() -> tuple[str, str]:
    """A key of 256 random bits, and the hash that the configuration keeps."""
    key = _PREFIX + secrets.token_urlsafe(32)
    return key, digest_of(key)


def digest_of(key: str) -> str:
    """The hash of a key: SHA-256 is enough for random bits."""
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class Keys:
    """The keys of a service; without any, everything is allowed (it is reached locally only).

    >>> key, digest = new_key()
    >>> keys = Keys([Key("web", digest, ("decide",))])
    >>> keys.check(f"Bearer {key}", "decide").name
    'web'
    """

    def __init__(self, keys: Sequence[Key], now: Callable[[], float] = time.monotonic) -> None:
        self._keys = tuple(keys)
        self._now = now
        self._buckets = {i: (max(key.rate or 0.0, 1.0), now()) for i, key in enumerate(keys)}

    def check(self, header: str | None, scope: str | None) -> Key | None:
        """The key that a request shows; Refused where it may not do this, or not so often."""
        if not self._keys or scope is None:
            return None
        return self.allow(self.find(header), scope)

    def find(self, header: str | None) -> int:
        """The place of the key that a header shows."""
        kind, _, shown = (header or "").partition(" ")
        if kind.lower() != "bearer" or not shown:
            raise Refused(
                401, "no_key", "no key is given; send the header Authorization: Bearer KEY"
            )
        digest = digest_of(shown.strip())
        place = None
        for i, key in enumerate(self._keys):  # all of them, whichever fits
            if hmac.compare_digest(digest, key.sha256):
                place = i
        if place is None:
            raise Refused(401, "unknown_key", "the key is unknown; ask for one of this service")
        return place

    def allow(self, place: int, scope: str) -> Key:
        """The key at a place, once more; Refused where it may not do this, or not so often."""
        key = self._keys[place]
        if scope not in key.scopes:
            raise Refused(
                403,
                "not_allowed",
                f"the key {key.name!r} has the scopes {', '.join(key.scopes)}, and this needs "
                f"{scope}",
            )
        if key.rate is not None:
            self._spend(place, key.rate)
        return key

    def __bool__(self) -> bool:
        return bool(self._keys)

    def _spend(self, place: int, rate: float) -> None:
        """A token of the bucket of a key: `rate` a second, and at most a second's worth at once."""
        left, at = self._buckets[place]
        now = self._now()
        left = min(max(rate, 1.0), left + (now - at) * rate)
        if left < 1.0:
            self._buckets[place] = (left, now)
            raise Refused(
                429,
                "too_fast",
                f"this key may ask {rate:g} times a second",
                retry_after=(1.0 - left) / rate,
            )
        self._buckets[place] = (left - 1.0, now)
