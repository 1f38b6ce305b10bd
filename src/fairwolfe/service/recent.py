"""The contexts that a model saw last, for questions of the kind: what if."""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from fairwolfe.core.contexts import Bilinear, PerArm

__all__ = ["Recent"]

_MOST = 500
_SIZE = 16 << 20  # bytes


class _Group(NamedTuple):
    contexts: list[Any]
    size: int  # bytes


class Recent:
    """The last contexts, in memory: a bounded number, and of bounded size."""

    def __init__(self, most: int = _MOST, size: int = _SIZE) -> None:
        self._most, self._size = most, size
        self._count = self._held = 0
        self._groups: deque[_Group] = deque()

    def extend(self, contexts: list[Any]) -> None:
        """Those of a group; the oldest groups go, as far as enough are left."""
        groups = self._groups
        groups.append(_Group(contexts, sum(map(_bytes, contexts))))
        self._count += len(contexts)
        self._held += groups[-1].size
        while groups and (
            self._count - len(groups[0].contexts) >= self._most or self._held > self._size
        ):
            oldest = groups.popleft()
            self._count -= len(oldest.contexts)
            self._held -= oldest.size

    def contexts(self) -> list[Any]:
        """The last of them, the newest last."""
        return [one for group in self._groups for one in group.contexts][-self._most :]


def _bytes(context: Any) -> int:
    if isinstance(context, PerArm):
        return int(context.features.nbytes)
    if isinstance(context, Bilinear):
        return int(context.user.nbytes + context.items.nbytes)
    return int(context.nbytes)
