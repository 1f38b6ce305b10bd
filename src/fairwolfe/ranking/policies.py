"""What ranking policies share: a ranker inside the reduction, under a name of its own."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from fairwolfe.core.decision import Decision
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Base, Policy, ScalarPolicy, keeps
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import Kernel
from fairwolfe.objectives import Concave, EqualExposure, TwoSided
from fairwolfe.ranking.ranker import Ranker, Settings
from fairwolfe.reduction.frank_wolfe import FrankWolfe, State
from fairwolfe.smoothing import Identity

__all__ = ["RankingPolicy", "alone", "as_policy"]

UTILITY = TwoSided(EqualExposure(), beta=0.0)
"""The sum of the user-side rewards: what is maximised where nothing is said of the items."""


def alone(ranker: Ranker) -> FrankWolfe:
    """A ranker as a policy: its direction is 1 for every user-side reward, 0 for the items."""
    return FrankWolfe(UTILITY, ranker, Identity())


def as_policy(given: Any) -> Any:
    """What is given as a policy (a ranker is one `alone`), or an error that says what to give."""
    if isinstance(given, type):
        ranks = issubclass(given, (Ranker, RankingPolicy))
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


class RankingPolicy(Settings):
    """A policy that is a ranker inside the reduction."""

    @cached_property
    @abstractmethod
    def shell(self) -> FrankWolfe:
        """The averages, updates and items are those of the reduction."""

    def init(self, problem: Problem) -> State:
        """Bind and allocate."""
        return self.shell.init(problem)

    def kernels(self, state: State) -> list[Kernel[..., Any]]:
        """What the other methods can call in a state."""
        return self.shell.kernels(state)

    def act(self, state: State, context: Any, rng: np.random.Generator) -> Decision:
        """Rank; only reads the state."""
        return self.shell.act(state, context, rng)

    def foresee(
        self, state: State, context: Any, rng: np.random.Generator
    ) -> tuple[Decision, State]:
        """Rank, and go on as if the estimated reward had come; nothing is learnt."""
        return self.shell.foresee(state, context, rng)

    def update(self, state: State, decision: Decision, feedback: Any) -> State:
        """Average the reward vector in and learn from the items that were looked at."""
        return self.shell.update(state, decision, feedback)

    def repair(self, state: State) -> float:
        """Compute what is kept of the regression afresh, in place; how far off it was."""
        return self.shell.repair(state)

    def drift(self, state: State) -> float:
        """How far the kept inverse was off when it was last computed afresh."""
        return self.shell.drift(state)
