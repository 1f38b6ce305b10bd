"""The second reading of the paper's data: those with the most listeners, and fewer factors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from fairwolfe.environments.lastfm import LastFM50
from fairwolfe.environments.listening import Listening

__all__ = ["LastFM50ByListeners"]


@dataclass(frozen=True)
class LastFM50ByListeners(LastFM50):
    """Last.fm-50 by the number of listeners of an artist, and of artists of a user.

    The body of the paper keeps those "with the most listening counts", which is `LastFM50`; its
    appendix those "having the most interactions", which is this. The number of factors is not
    given.

    >>> LastFM50ByListeners().factors
    5
    """

    factors: int = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        Listening("", factors=self.factors)  # raises for a bad number of factors; reads nothing

    @cached_property
    def listening(self) -> Listening:
        """The world as one of a table."""
        return replace(super().listening, by="listeners", factors=self.factors)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(factors=3)
