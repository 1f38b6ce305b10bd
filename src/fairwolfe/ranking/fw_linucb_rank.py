"""`FWLinUCBRank`: fair rankings, learnt from what users see and like."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, Self

from fairwolfe.objectives import EqualExposure, GiniEquality, TwoSided, Welfare
from fairwolfe.ranking.linucb_rank import LinUCBRank
from fairwolfe.ranking.ranker import Settings
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.smoothing import Moreau

__all__ = ["FWLinUCBRank"]


@dataclass(frozen=True)
class FWLinUCBRank(Settings, FrankWolfe):
    """`FrankWolfe` over ``LinUCBRank(...)``: each ranking maximises an optimistic estimate of
    <g, reward>, g the gradient of f at the averages so far.

    An item that got little exposure has a larger g_i, which is added to its score: fairness is an
    adaptive bonus. Position weights are not needed.

    Parameters
    ----------
    objective: f of the exposures of the items and of the user-side rewards, such as
        ``TwoSided(GiniEquality(), beta=0.5)``
    smoothing, memory, anticipate: as in FrankWolfe
    iterate: "observed" averages the exposures that happened, "expected" their chances: fair views,
        or fair chances of a view. Chances are `position_weights`, or learnt slot by slot.

    The others are those of `LinUCBRank`.

    Reference: Algorithm 1 of the paper; docs/ranking.md.

    >>> import numpy as np
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.ranking(n_items=3, n_slots=1, n_features=1)
    >>> policy = FWLinUCBRank(TwoSided(GiniEquality(), beta=0.5))
    >>> state = policy.init(problem)
    >>> policy.act(state, [[0.1], [0.3], [0.2]], np.random.default_rng(0)).action.tolist()
    [1]
    """

    base: Any = field(init=False, repr=False, compare=False)
    smoothing: Any = field(default=None, kw_only=True)
    iterate: Literal["observed", "expected"] = field(default="observed", kw_only=True)

    def __post_init__(self) -> None:
        Settings.__post_init__(self)
        object.__setattr__(self, "base", LinUCBRank(**self.settings()))
        FrankWolfe.__post_init__(self)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (
            cls(TwoSided(GiniEquality(), beta=0.5)),
            cls(TwoSided(Welfare(0.5), beta=0.5), smoothing=Moreau(1.0), exploration=0.1),
            cls(TwoSided(EqualExposure()), memory=50.0, randomize=0.1),
            cls(TwoSided(GiniEquality(), beta=0.5), iterate="expected", exploration=0.1),
            cls(TwoSided(GiniEquality(), beta=0.5), exploration="pointwise"),
        )
