"""How many rounds an answer takes, as a function of one random number in [0, 1) a round.

One number, whatever the law: runs of one seed with two laws meet the same random draws, so that a
longer law is longer in every round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from fairwolfe.core.problem import real_number, whole_number
from fairwolfe.errors import InvalidInput

__all__ = [
    "ByOutcome",
    "Constant",
    "Delay",
    "Geometric",
    "Lateness",
    "Uniform",
    "as_delay",
    "rounds_of",
    "stage_laws",
]


@runtime_checkable
class Delay(Protocol):
    """The contract: your own law needs this method only."""

    def rounds(self, u: float, clicked: bool) -> int:
        """How many more decisions are made before the answer comes; 0: none."""


def _rounds(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidInput(f"{name} is {value!r}; give a whole number of rounds, at least 0")
    return value


@dataclass(frozen=True)
class Constant:
    """Every answer takes the same number of rounds.

    >>> Constant(10).rounds(0.5, clicked=True)
    10
    """

    length: int

    def __post_init__(self) -> None:
        _rounds("the delay", self.length)

    def rounds(self, u: float, clicked: bool) -> int:
        """The length."""
        return self.length


@dataclass(frozen=True)
class Geometric:
    """P(delay = k) = (1 - q) q^k with q = mean/(1 + mean): the exponential law, in whole rounds.

    >>> Geometric(100.0).rounds(0.5, clicked=True), Geometric(100.0).rounds(0.99, clicked=True)
    (69, 462)
    """

    mean: float

    def __post_init__(self) -> None:
        mean = real_number("mean", self.mean)
        if not (math.isfinite(mean) and mean >= 0.0):
            raise InvalidInput(f"mean is {self.mean!r}; give a number of rounds of at least 0")

    def rounds(self, u: float, clicked: bool) -> int:
        """The quantile of u."""
        if self.mean == 0.0:
            return 0
        return int(math.log1p(-u) / -math.log1p(1.0 / self.mean))


@dataclass(frozen=True)
class Uniform:
    """Every whole number of rounds from low to high, equally likely.

    >>> [Uniform(5, 9).rounds(u, clicked=True) for u in (0.0, 0.5, 0.99)]
    [5, 7, 9]
    """

    low: int
    high: int

    def __post_init__(self) -> None:
        if _rounds("low", self.low) > _rounds("high", self.high):
            raise InvalidInput(f"low is {self.low} and high is {self.high}; give low <= high")

    def rounds(self, u: float, clicked: bool) -> int:
        """The quantile of u."""
        return self.low + int(u * (self.high - self.low + 1))


@dataclass(frozen=True)
class ByOutcome:
    """One law where the user did something, another where not: a click is known at once, that it is
    missing only when the time for it is over.

    A round has a click if one of its user-side rewards is not 0. The answer to a decision is
    whole: its exposures come together with its clicks.

    >>> window = ByOutcome(click=Geometric(20.0), no_click=200)
    >>> window.rounds(0.5, clicked=True), window.rounds(0.5, clicked=False)
    (14, 200)
    """

    click: Delay | int
    no_click: Delay | int

    def __post_init__(self) -> None:
        for name in ("click", "no_click"):
            object.__setattr__(self, name, as_delay(name, getattr(self, name)))

    def rounds(self, u: float, clicked: bool) -> int:
        """By the law of the outcome."""
        law: Any = self.click if clicked else self.no_click
        return rounds_of(law, u, clicked)


def as_delay(name: str, given: object) -> Delay:
    """A law; of a number, the constant one."""
    if isinstance(given, Delay):
        return given
    if given is None:
        return Constant(0)
    if isinstance(given, int) and not isinstance(given, bool) and given >= 0:
        return Constant(given)
    raise InvalidInput(
        f"{name} is {given!r}; give a whole number of rounds of at least 0, or a law of "
        "fairwolfe.simulation.delays, such as Geometric(100)"
    )


def stage_laws(delay: Any, stages: int) -> tuple[Delay, ...]:
    """The law of each stage of rewards: one for all of them, or one for each."""
    if not isinstance(delay, tuple):
        return (as_delay("delay", delay),) * stages
    if len(delay) != stages:
        raise InvalidInput(
            f"delay has {len(delay)} laws, and the rewards arrive in {stages} stage"
            f"{'s' * (stages > 1)}; give one law, or one for each stage"
        )
    return tuple(as_delay("delay", law) for law in delay)


def rounds_of(law: Delay, u: float, clicked: bool) -> int:
    """The delay of a law, which may be the user's own."""
    rounds = law.rounds(u, clicked)
    if type(rounds) is int and rounds >= 0:
        return rounds
    if isinstance(rounds, np.integer) and rounds >= 0:
        return int(rounds)
    raise InvalidInput(
        f"{law!r:.80} gave {rounds!r:.80} rounds; a delay is a whole number of at least 0"
    )


@dataclass(frozen=True)
class Lateness:
    """How late feedback comes, and how old the state is that decides.

    Parameters
    ----------
    delay: rounds between a decision and its feedback: a whole number, or a law of
        `fairwolfe.simulation.delays`. With a delay of 10 the next 10 decisions are made without
        it. Answers may overtake each other, and are learnt in the order in which they come. Where
        rewards arrive in stages, one for all stages, or a tuple with one for each; a stage has a
        click if one of its rewards is not 0.
    refresh: decisions are made by a snapshot, renewed after that many decisions; feedback goes to
        the live state. 1: the live state decides.

    What has not come at the horizon is never learnt from; the decisions count all the same, since
    they were made. The delays are drawn from a separate stream.

    >>> Lateness(delay=10)
    Lateness(delay=Constant(length=10), refresh=1)
    """

    delay: Delay | int | tuple[Delay | int, ...] | None = None
    refresh: int = 1

    def __post_init__(self) -> None:
        laws = stage_laws(self.delay, len(self.delay) if isinstance(self.delay, tuple) else 1)
        object.__setattr__(self, "delay", laws if isinstance(self.delay, tuple) else laws[0])
        object.__setattr__(self, "refresh", whole_number("refresh", self.refresh))
