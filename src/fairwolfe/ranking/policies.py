"""What ranking policies share: a ranker inside the reduction, with its own name."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fairwolfe.core.protocols import Base, Policy, ScalarPolicy, keeps
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave, EqualExposure, TwoSided
from fairwolfe.ranking.ranker import Ranker, Settings
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.smoothing import Identity

__all__ = ["Baseline", "alone", "as_policy"]

UTILITY = TwoSided(EqualExposure(), beta=0.0)
"""The sum of the user-side rewards: what is maximised where no objective of the items is given."""


def alone(ranker: Ranker) -> FrankWolfe:
    """A ranker as a policy: its direction is 1 for every user-side reward, 0 for the items."""
    return FrankWolfe(UTILITY, ranker, Identity())


def as_policy(given: Any) -> Any:
    """What is given as a policy (a ranker is one `alone`), or an error with what to give."""
    if isinstance(given, type):
        ranks = issubclass(given, (Ranker, FrankWolfe)) and given is not FrankWolfe
        wanted = f"an instance of it, {given.__name__}(...)" if ranks else _EXAMPLE
        raise InvalidInput(f"the policy is the class {given.__name__}; give {wanted}")
    if isinstance(given, Ranker):
        return alone(given)
    if isinstance(given, Concave):
        raise InvalidInput(f"{given!r} is an objective; give FrankWolfe({given!r}, LinUCB())")
    if keeps(given, Policy):
        return given
    for contract, base in ((Base, repr(given)), (ScalarPolicy, f"Extended({given!r})")):
        if keeps(given, contract):
            raise InvalidInput(
                f"{given!r} is a bandit for one reward; give FrankWolfe(objective, {base})"
            )
    raise InvalidInput(f"the policy is {given!r:.80}; give one such as {_EXAMPLE}")


_EXAMPLE = "FrankWolfe(objective, LinUCB())"


@dataclass(frozen=True)
class Baseline(Settings, FrankWolfe):
    """A ranker that follows no objective of yours: it is for the users, in its own way.

    The averages, items and files are those of the reduction.
    """

    objective: Any = field(default=None, init=False, repr=False, compare=False)
    base: Any = field(init=False, repr=False, compare=False)
    smoothing: Any = field(default=Identity(), init=False, repr=False, compare=False)
    memory: Any = field(default=None, init=False, repr=False, compare=False)
    iterate: Any = field(default="observed", init=False, repr=False, compare=False)
    start: Any = field(default=None, init=False, repr=False, compare=False)
    anticipate: Any = field(default=False, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        object.__setattr__(self, "base", self.ranker())

    @abstractmethod
    def ranker(self) -> Ranker:
        """What ranks."""

    @property
    def followed(self) -> Concave:
        """The sum of the user-side rewards."""
        return UTILITY

    def with_objective(self, objective: Concave) -> NoReturn:
        """Raise: it has none to replace."""
        raise InvalidInput(
            f"the objective of {self!r} cannot be replaced: it follows none; make another agent"
        )
