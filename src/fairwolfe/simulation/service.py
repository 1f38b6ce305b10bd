"""`Service`: how a policy is served, as an option of `simulate` and `compare`."""

from __future__ import annotations

from dataclasses import dataclass

from fairwolfe.errors import InvalidInput
from fairwolfe.problem import whole_number
from fairwolfe.simulation.delays import Delay, as_delay

__all__ = ["Service"]


@dataclass(frozen=True)
class Service:
    """How late feedback comes, how old the state is that decides, and how many there are.

    Parameters
    ----------
    delay: rounds between a decision and its feedback: a whole number, or a law of
        `fairwolfe.simulation.delays`. With a delay of 10 the next 10 decisions are made without
        it. Answers may overtake each other, and are learnt in the order in which they come.
    refresh: decisions are made by a snapshot, renewed every so many decisions; feedback goes to
        the live state. 1: the live state decides.
    replicas, merge: so many copies decide in turn. Each learns at once from its own decisions
        alone; every `merge` decisions all start again from the shared state, which has learnt from
        all of them, in the order in which they came.

    What has not come at the horizon is never learnt from; the decisions count all the same, since
    they were taken. The delays are drawn from a stream of their own.

    >>> Service(delay=10)
    Service(delay=Constant(length=10), refresh=1, replicas=1, merge=1)
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
                "give replicas=, or refresh= for a state that is renewed now and then"
            )
