"""`Lateness`: how late feedback comes, as an option of `simulate` and `compare`."""

from __future__ import annotations

from dataclasses import dataclass

from fairwolfe.core.problem import whole_number
from fairwolfe.simulation.delays import Delay, as_delay

__all__ = ["Lateness"]


@dataclass(frozen=True)
class Lateness:
    """How late feedback comes, and how old the state is that decides.

    Parameters
    ----------
    delay: rounds between a decision and its feedback: a whole number, or a law of
        `fairwolfe.simulation.delays`. With a delay of 10 the next 10 decisions are made without
        it. Answers may overtake each other, and are learnt in the order in which they come.
    refresh: decisions are made by a snapshot, renewed after that many decisions; feedback goes to
        the live state. 1: the live state decides.

    What has not come at the horizon is never learnt from; the decisions count all the same, since
    they were made. The delays are drawn from a separate stream.

    >>> Lateness(delay=10)
    Lateness(delay=Constant(length=10), refresh=1)
    """

    delay: Delay | int | None = None
    refresh: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", as_delay("delay", self.delay))
        object.__setattr__(self, "refresh", whole_number("refresh", self.refresh))
