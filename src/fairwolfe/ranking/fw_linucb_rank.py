"""`FWLinUCBRank`: fair rankings, learnt from what users look at and like."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.objectives import Concave, EqualExposure, GiniEquality, TwoSided, Welfare
from fairwolfe.ranking.linucb_rank import LinUCBRank
from fairwolfe.ranking.policies import RankingPolicy
from fairwolfe.reduction.frank_wolfe import FrankWolfe, State
from fairwolfe.reduction.live import Live
from fairwolfe.smoothing import Moreau

__all__ = ["FWLinUCBRank"]


@dataclass(frozen=True)
class FWLinUCBRank(RankingPolicy):
    """``FrankWolfe(objective, LinUCBRank(...))``: each ranking maximises an optimistic estimate of
    <g, reward>, g the gradient of f at the averages so far.

    An item that got little exposure has a larger g_i, which is added to its score: fairness is an
    adaptive bonus. Position weights are not needed.

    Parameters
    ----------
    objective: f of the exposures of the items and of the user-side rewards, such as
        ``TwoSided(GiniEquality(), beta=0.5)``
    smoothing, memory: as in FrankWolfe

    The others are those of `LinUCBRank`.

    Reference: Algorithm 1 of the paper; docs/ranking.md.

    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.ranking(n_items=3, n_slots=1, n_features=1)
    >>> policy = FWLinUCBRank(TwoSided(GiniEquality(), beta=0.5))
    >>> state = policy.init(problem)
    >>> policy.act(state, [[0.1], [0.3], [0.2]], np.random.default_rng(0)).action.tolist()
    [1]
    """

    objective: Concave
    smoothing: Any = field(default=None, kw_only=True)
    memory: float | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.shell  # noqa: B018  bad settings are refused here

    @cached_property
    def shell(self) -> FrankWolfe:
        """The reduction over LinUCBRank."""
        return FrankWolfe(
            self.objective, LinUCBRank(**self.settings()), self.smoothing, self.memory
        )

    def direction(self, state: State, rng: np.random.Generator) -> Vector:
        """grad f_t at the averages so far."""
        return self.shell.direction(state, rng)

    def live(self, state: State, delta: float = 0.05, trusted: bool = True) -> Live:
        """How far from the best reachable value; see docs/live.md."""
        return self.shell.live(state, delta, trusted)

    def with_objective(self, objective: Concave) -> FWLinUCBRank:
        """The same policy for another f."""
        return replace(self, objective=objective)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (
            cls(TwoSided(GiniEquality(), beta=0.5)),
            cls(TwoSided(Welfare(0.5), beta=0.5), smoothing=Moreau(1.0), exploration=0.1),
            cls(TwoSided(EqualExposure()), memory=50.0, randomize=0.1),
        )
