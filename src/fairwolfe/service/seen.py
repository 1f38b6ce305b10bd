"""The contexts that a model saw last, for questions of the kind: what if."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from fairwolfe.core.contexts import Bilinear, PerArm

__all__ = ["Seen"]

_MOST = 500
_SIZE = 16 << 20  # bytes


class Seen:
    """The last contexts, in memory: a bounded number, and of bounded size."""

    def __init__(self, most: int = _MOST, size: int = _SIZE) -> None:
        self._most, self._size = most, size
        self._held = 0
        self._contexts: deque[Any] = deque()

    def extend(self, contexts: Iterable[Any]) -> None:
        """Further ones; the oldest go."""
        kept = self._contexts
        for context in contexts:
            kept.append(context)
            self._held += _bytes(context)
            while len(kept) > self._most or self._held > self._size:
                self._held -= _bytes(kept.popleft())

    def contexts(self) -> list[Any]:
        """All that are kept, the newest last."""
        return list(self._contexts)


def _bytes(context: Any) -> int:
    if isinstance(context, PerArm):
        return int(context.features.nbytes)
    if isinstance(context, Bilinear):
        return int(context.user.nbytes + context.items.nbytes)
    return int(context.nbytes)
