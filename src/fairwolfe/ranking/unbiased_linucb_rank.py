"""`UnbiasedLinUCBRank`: a baseline that explores less what was exposed more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.ranking.policies import Baseline
from fairwolfe.ranking.ranker import Ranker

__all__ = ["UnbiasedLinUCBRank"]


@dataclass(frozen=True, kw_only=True)
class _Discounted(Ranker):
    clip: bool

    compiled = "discounted"

    def rule_params(self, problem: Problem) -> Vector:
        return np.array([float(self.clip)])


@dataclass(frozen=True)
class UnbiasedLinUCBRank(Baseline):
    """LinUCBRank with the width of item i multiplied by 1 - exposures_i/(mean of a slot).

    The factor is 1 before anything was exposed; that of a frequent item can be negative, as
    printed in the paper (`clip=True` stops at 0). The fairness fades with the widths: no guarantee.

    Reference: Mansoury et al. (2021), as adapted in the appendix of the paper.

    >>> problem = Problem.ranking(n_items=3, n_slots=2, n_features=1)
    >>> policy = UnbiasedLinUCBRank()
    >>> state = policy.init(problem)
    >>> policy.act(state, [[0.1], [0.3], [0.2]], np.random.default_rng(0)).action.tolist()
    [1, 2]
    """

    clip: bool = field(default=False, kw_only=True)

    def ranker(self) -> Ranker:
        return _Discounted(clip=self.clip, **self.settings())

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(clip=True, exploration=0.5), cls(exploration="pointwise")
