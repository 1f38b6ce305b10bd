"""Classes found by what they derive from: a list could be forgotten."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["below"]


def below(cls: type) -> Iterator[type]:
    """All subclasses that have been imported, and theirs."""
    subclasses: list[type] = type.__subclasses__(cls)
    for sub in subclasses:
        yield sub
        yield from below(sub)
