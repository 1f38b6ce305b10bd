"""`LinUCBRank`: the items of largest optimistic value for a direction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from fairwolfe.ranking.ranker import Ranker

__all__ = ["LinUCBRank"]


@dataclass(frozen=True, kw_only=True)
class LinUCBRank(Ranker):
    """Show the items of largest sum_r g_r theta_r.x_i + (sum_r |g_r| alpha_r) |x_i|_{V^-1} + g_i.

    g is the direction: a number for each item (what its exposure is worth) and one for each
    user-side reward. theta_r is a ridge regression on the items that were exposed, all rewards on
    one design V; alpha_r = R_r sqrt(2 ln(1/delta_1) + ln(det V/det V_0)) + sqrt(ridge) D_theta,
    delta_1 = delta/(3 R) for R rewards, R_r half of the range of one item's reward.

    Sorting by these scores maximises the optimistic reward <g, .> whatever the position weights
    are, as long as they do not increase: they are neither known nor estimated.

    A bandit for one direction; `FWLinUCBRank` follows that of f. Where a policy is expected it
    plays alone: for the sum of the user-side rewards, without fairness.

    Reference: Sec. 4 and Algorithm 1 of the paper; docs/ranking.md.

    >>> import numpy as np
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.ranking(n_items=3, n_slots=2, n_features=1)
    >>> base = LinUCBRank()
    >>> state = base.init(problem)
    >>> rng = np.random.default_rng(0)
    >>> base.act(state, [[0.1], [0.3], [0.2]], np.array([0.0, 0.0, 0.0, 1.0]), rng).action.tolist()
    [1, 2]
    """

    compiled = "optimistic"

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        swapped = cls(exploration=0.1, ridge=1.0, randomize=0.2)
        return cls(), swapped, cls(exposure="shown"), cls(exploration="pointwise")
