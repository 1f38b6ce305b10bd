"""What ranking policies share: a ranker inside the reduction, under a name of its own."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any

import numpy as np

from fairwolfe._compile import Kernel
from fairwolfe.objectives import EqualExposure, TwoSided
from fairwolfe.problem import Problem
from fairwolfe.protocols import Decision
from fairwolfe.ranking.ranker import Ranker, Settings
from fairwolfe.reduction.frank_wolfe import FrankWolfe, State
from fairwolfe.smoothing import Identity

__all__ = ["RankingPolicy", "alone"]

UTILITY = TwoSided(EqualExposure(), beta=0.0)
"""The sum of the user-side rewards: what is maximised where nothing is said of the items."""


def alone(ranker: Ranker) -> FrankWolfe:
    """A ranker as a policy: its direction is 1 for every user-side reward, 0 for the items."""
    return FrankWolfe(UTILITY, ranker, Identity())


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
