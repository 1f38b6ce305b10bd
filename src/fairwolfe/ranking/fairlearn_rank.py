"""`FairLearnRank`: a baseline with a floor on how often every item is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.catalogue import Catalogue
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.errors import InvalidInput
from fairwolfe.ranking.policies import Baseline
from fairwolfe.ranking.ranker import Ranker, RankState

__all__ = ["FairLearnRank"]

_MOST_TOLERANCE = 2**53  # rankings, more than can be counted


@dataclass(frozen=True, kw_only=True)
class _DeprivedFirst(Ranker):
    minimum: float
    tolerance: float

    compiled = "deprived_first"

    def resume(self, problem: Problem, catalogue: Catalogue) -> RankState:
        self._require_room(catalogue.ids.size, problem.n_slots or 0)
        return super().resume(problem, catalogue)

    def with_items(self, state: RankState, features: Matrix) -> RankState:
        self._require_room(self.catalogue(state).ids.size + len(features), state.slots.shape[1])
        return super().with_items(state, features)

    def _require_room(self, n_items: int, n_slots: int) -> None:
        # Divided, as callers who give n_slots/n_items do: a product may be rounded otherwise.
        if n_items and self.minimum > n_slots / n_items:
            raise InvalidInput(
                f"minimum is {self.minimum:g}; {n_slots} slots cannot show each of {n_items} items "
                f"in more than a share of {n_slots / n_items:.6g} of the rankings: give at most "
                "that, or have fewer items"
            )

    @property
    def owed(self) -> float:  # type: ignore[override]
        return self.minimum

    def rule_params(self, problem: Problem) -> Vector:
        # Whole rankings are counted: half a ranking of tolerance would come too late for all.
        return np.array([self.minimum, np.floor(self.tolerance)])


@dataclass(frozen=True)
class FairLearnRank(Baseline):
    """LinUCBRank under the constraint that every item is shown in a share `minimum` of rankings.

    Slot by slot: an item that lags behind by more than `tolerance` rankings is shown, the one that
    lags most first; the other slots go to the largest optimistic values. After every round t,
    floor(minimum t) - (rankings that showed the item) <= tolerance.

    Parameters
    ----------
    minimum: c, from 0 to n_slots/n_items; more cannot be kept and raises
    tolerance: alpha, at least 0

    Reference: Patil et al. (2020), as adapted in the appendix of the paper.

    >>> problem = Problem.ranking(n_items=3, n_slots=1, n_features=1)
    >>> policy = FairLearnRank(0.2)
    >>> state = policy.init(problem)
    >>> policy.act(state, [[0.1], [0.3], [0.2]], np.random.default_rng(0)).action.tolist()
    [1]
    """

    minimum: float
    tolerance: float = 1.0

    def __post_init__(self) -> None:
        allowed = "the share of rankings that must show each item, from 0 to n_slots/n_items"
        number_where("minimum", self.minimum, lambda share: 0.0 <= share <= 1.0, allowed)
        allowed = "a number of at least 0, in rankings"
        number_where("tolerance", self.tolerance, lambda x: 0.0 <= x <= _MOST_TOLERANCE, allowed)
        super().__post_init__()

    def ranker(self) -> Ranker:
        return _DeprivedFirst(minimum=self.minimum, tolerance=self.tolerance, **self.settings())

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        pointwise = cls(0.1, exploration="pointwise")
        return cls(0.1), cls(0.0), cls(0.3, tolerance=0.0), pointwise
