"""Ranking policies, each a ranker inside the reduction: `FWLinUCBRank`, and the baselines
`UnbiasedLinUCBRank` and `FairLearnRank`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, Self

import numpy as np

from fairwolfe.bandits import LinUCB
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.candidates import Catalogue
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.core.protocols import Base, Policy, ScalarPolicy, keeps
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave, EqualExposure, GiniEquality, TwoSided, Welfare
from fairwolfe.ranking.ranker import LinUCBRank, Ranker, RankerSettings, RankState, appended
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.smoothing import Identity, Moreau

UTILITY = TwoSided(EqualExposure(), beta=0.0)
"""The sum of the user-side rewards: what is maximised where no objective of the items is given."""

_EXAMPLE = "FrankWolfe(objective, LinUCB())"
_MOST_TOLERANCE = 2**53  # rankings, more than can be counted


def alone(ranker: Ranker) -> FrankWolfe:
    """A ranker as a policy: its direction is 1 for every user-side reward, 0 for the items."""
    return FrankWolfe(UTILITY, ranker, Identity())


def recommended(objective: Concave, problem: Problem) -> FrankWolfe:
    """The policy for an objective of somebody who has no other in mind: docs/which-bandit.md."""
    made = _RECOMMENDED.get(problem.kind)
    if made is None:
        raise InvalidInput(
            f"no policy is recommended for decisions of the kind {problem.kind!r}; give a policy "
            f"in place of the objective {objective!r:.80}"
        )
    return made(objective)


def as_policy(given: Any, problem: Problem | None = None) -> Any:
    """What is given as a policy (a ranker is one `alone`, an objective the one `recommended` for
    a problem), or an error with what to give.
    """
    if isinstance(given, type):
        known = (Ranker, FrankWolfe, *(() if problem is None else (Concave,)))
        whole = issubclass(given, known) and given not in (FrankWolfe, Concave)
        wanted = f"an instance of it, {given.__name__}(...)" if whole else _EXAMPLE
        raise InvalidInput(f"the policy is the class {given.__name__}; give {wanted}")
    if isinstance(given, Ranker):
        return alone(given)
    if isinstance(given, Concave):
        if problem is not None:
            return recommended(given, problem)
        raise InvalidInput(f"{given!r} is an objective; give FrankWolfe({given!r}, LinUCB())")
    if keeps(given, Policy):
        return given
    for contract, base in ((Base, repr(given)), (ScalarPolicy, f"Extended({given!r})")):
        if keeps(given, contract):
            raise InvalidInput(
                f"{given!r} is a bandit for one reward; give FrankWolfe(objective, {base})"
            )
    also = "" if problem is None else "an objective, or "
    raise InvalidInput(f"the policy is {given!r:.80}; give {also}one such as {_EXAMPLE}")


@dataclass(frozen=True)
class Baseline(RankerSettings, FrankWolfe):
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
        RankerSettings.__post_init__(self)
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


@dataclass(frozen=True)
class FWLinUCBRank(RankerSettings, FrankWolfe):
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
        RankerSettings.__post_init__(self)
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


_RECOMMENDED: dict[str, Callable[[Concave], FrankWolfe]] = {
    "arms": lambda objective: FrankWolfe(objective, LinUCB()),
    "ranking": FWLinUCBRank,
}
"""By the kind of decision; chosen by benchmarks/bench_defaults.py."""


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


@dataclass(frozen=True, kw_only=True)
class _DeprivedFirst(Ranker):
    minimum: float
    tolerance: float

    compiled = "deprived_first"

    def resume(self, problem: Problem, catalogue: Catalogue) -> RankState:
        self._require_room(catalogue.ids.size, problem.n_slots or 0)
        return super().resume(problem, catalogue)

    def with_items(
        self, state: RankState, features: Matrix, append: Callable[..., Any] = appended
    ) -> RankState:
        self._require_room(self.catalogue(state).ids.size + len(features), state.slots.shape[1])
        return super().with_items(state, features, append)

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
