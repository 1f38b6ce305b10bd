"""`Lateness`: how late feedback comes, as an option of `simulate` and `compare`."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from fairwolfe.core.problem import whole_number
from fairwolfe.errors import InvalidInput
from fairwolfe.simulation.delays import Delay, as_delay

__all__ = ["RENAMED", "Lateness", "by_either_name"]

RENAMED = (
    "Service is called Lateness now; the next version does not know the old name: write "
    "simulate(lateness=Lateness(...)), and in a spec lateness = { ... }"
)


def by_either_name(lateness: Any, service: Any) -> Any:
    """The argument `lateness` of a public function, or `service`, its old name, with a warning."""
    if service is None:
        return lateness
    if lateness is not None:
        raise InvalidInput(
            f"lateness is {lateness!r} and service is {service!r}; service is the old name of "
            "lateness: give lateness alone"
        )
    warnings.warn(RENAMED, DeprecationWarning, stacklevel=3)
    return service


@dataclass(frozen=True)
class Lateness:
    """How late feedback comes, how old the state is that decides, and how many copies decide.

    Parameters
    ----------
    delay: rounds between a decision and its feedback: a whole number, or a law of
        `fairwolfe.simulation.delays`. With a delay of 10 the next 10 decisions are made without
        it. Answers may overtake each other, and are learnt in the order in which they come.
    refresh: decisions are made by a snapshot, renewed after that many decisions; feedback goes to
        the live state. 1: the live state decides.
    replicas, merge: that many copies decide in turn. Each learns at once from its own decisions
        alone; every `merge` decisions all start again from the shared state, which has learnt from
        all of them, in the order in which they came.

    What has not come at the horizon is never learnt from; the decisions count all the same, since
    they were made. The delays are drawn from a separate stream.

    >>> Lateness(delay=10)
    Lateness(delay=Constant(length=10), refresh=1, replicas=1, merge=1)
    """

    delay: Delay | int | None = None
    refresh: int = 1
    replicas: int = 1
    merge: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "delay", as_delay("delay", self.delay))
        for name in ("refresh", "replicas", "merge"):
            object.__setattr__(self, name, whole_number(name, getattr(self, name)))
        if self.merge > 1 and self.replicas == 1:
            raise InvalidInput(
                f"merge is {self.merge} and replicas is 1; one replica has nothing to merge with: "
                "give replicas=, or refresh= for a state that is renewed from time to time"
            )
