"""`FairCoRank`: a proportional controller of exposure, the source of Eq. (2) of the paper."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.candidates import Catalogue
from fairwolfe.core.decision import Choice
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.core.rankings import RankingKind
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.kernels import gradients
from fairwolfe.objectives import Concave
from fairwolfe.objectives.concave import numbers
from fairwolfe.oracles import LinearState
from fairwolfe.ranking.policies import Baseline
from fairwolfe.ranking.ranker import LinUCBRank, Ranker, RankState, appended
from fairwolfe.smoothing.smoothings import Exact, shrink

_LEAST = 1e-3  # of an estimated merit: rewards may be negative


@dataclass(frozen=True)
class _Control(Exact):
    """The direction of the controller: 1 for users, -gain t z_i/m_i for items; the step tells t."""

    gain: float
    merit: tuple[float, ...] | None

    def bind(self, problem: Problem, objective: Concave) -> Self:
        """See that there are as many merits as items."""
        if self.merit is not None and len(self.merit) != problem.n_items:
            raise InvalidInput(
                f"merit has {len(self.merit)} numbers, the problem {problem.n_items} items; give "
                "one for each"
            )
        return self

    def step(self, objective: Concave, n: int, t: int) -> float:
        """1/sqrt(t + 1)."""
        return shrink(1.0, t, None)

    def tree(self, objective: Concave, n: int) -> gradients.Tree:
        """The direction for n coordinates, as engines call it."""
        users = objective.gradient(np.zeros(n))
        merits = 1.0 if self.merit is None else np.array(self.merit)
        items = np.flatnonzero(users == 0.0)

        def direction(z: Vector, step: float) -> Vector:
            g = users.copy()
            g[items] = -self.gain * (round(step**-2.0) - 1) * z[items] / merits
            return g

        return gradients.python(n, direction, takes_step=True)


class MeritState(NamedTuple):
    """A `RankState`, and what each item has earned, by id."""

    problem: Problem
    params: Vector
    oracle: LinearState
    exposed: Vector
    shown: Vector
    slots: Matrix
    features: Matrix
    retired: Vector
    earned: Vector

    def restored(self) -> None:
        """After arrays have been read from a file: raise for what no rankings can produce."""
        RankState(*self[:-1]).restored()
        if self.earned.shape != self.exposed.shape:
            raise IncompatibleState(
                f"earned has the shape {self.earned.shape}; there are {self.exposed.size} items"
            )


@dataclass(frozen=True, kw_only=True)
class _PerMerit(Ranker):
    """LinUCBRank, with the direction of each item divided by what it earns where it is exposed."""

    compiled = "optimistic"

    def resume(self, problem: Problem, catalogue: Catalogue) -> Any:
        return MeritState(*super().resume(problem, catalogue), np.zeros(catalogue.total))

    def with_items(
        self, state: Any, features: Matrix, append: Callable[..., Any] = appended
    ) -> Any:
        longer: Any = super().with_items(state, features, append)
        return longer._replace(earned=append("earned", state.earned, np.zeros(len(features))))

    def act(self, state: Any, context: Any, direction: Vector, rng: np.random.Generator) -> Choice:
        given, g = self._read(state, context, direction)
        merits = (1.0 + state.earned[given.ids]) / (1.0 + state.exposed[given.ids])
        scaled = g.copy()
        scaled[: merits.size] /= np.maximum(merits, _LEAST)
        return super().act(state, given, scaled, rng)

    def update(self, state: Any, choice: Choice, direction: Vector, observation: Any) -> Any:
        kind = RankingKind(state.problem, self.catalogue(state), self.exposure)
        seen = kind.observe(choice.action, observation).observation
        learnt: Any = super().update(state, choice, direction, observation)
        learnt.earned[choice.action] += seen.exposed * seen.rewards.sum(axis=1)
        return learnt


@dataclass(frozen=True)
class FairCoRank(Baseline):
    """LinUCBRank with gain (t - 1) max_j (E_j/m_j - E_i/m_i) added to the score of item i.

    E_i is the average exposure of the item over the t - 1 decisions so far, answered or open. The
    lag grows with t until it is made up for: with known values, and targets that can be reached,
    differences of E/m fall like 1/t. A proportional controller follows one target, E proportional
    to m, and its gain is yours to choose; there is no f, and no guarantee for one.

    The maximum is the same for all items: the order is that of -gain (t - 1) E_i/m_i, the gradient
    of a penalty -(t/2) gain sum_i E_i^2/m_i that grows with t.

    Parameters
    ----------
    gain: at least 0; 0 is `LinUCBRank`. In units of the reward for one exposure too few
    merit: m, a positive number for each item; None is 1 for all. "values": the mean of
        what the item earned where it was exposed, with one more exposure that earned 1

    Reference: Morik et al. (2020), Controlling Fairness and Bias in Dynamic Learning-to-Rank.

    >>> problem = Problem.ranking(n_items=3, n_slots=1, n_features=1)
    >>> policy = FairCoRank(0.01)
    >>> state = policy.init(problem)
    >>> policy.act(state, [[0.1], [0.3], [0.2]], np.random.default_rng(0)).action.tolist()
    [1]
    """

    gain: float
    merit: Any = None
    anticipate: Any = field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        allowed = "a finite number of at least 0, what one exposure too few is worth"
        gain = number_where("gain", self.gain, lambda gain: 0.0 <= gain < np.inf, allowed)
        object.__setattr__(self, "gain", gain)
        if self.merit is not None and not self._estimated:
            allowed = "a positive number for each item, None or 'values'"
            if isinstance(self.merit, str):
                raise InvalidInput(f"merit is {self.merit!r}; give {allowed}")
            merit = numbers("merit", self.merit)
            if min(merit) <= 0.0:
                raise InvalidInput(f"merit has {min(merit):g}; give {allowed}")
            object.__setattr__(self, "merit", merit)
        control = _Control(gain, None if self._estimated else self.merit)
        object.__setattr__(self, "smoothing", control)
        super().__post_init__()

    @property
    def _estimated(self) -> bool:
        return isinstance(self.merit, str) and self.merit == "values"

    def ranker(self) -> Ranker:
        return (_PerMerit if self._estimated else LinUCBRank)(**self.settings())

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(0.01), cls(0.0), cls(0.1, merit="values"), cls(1.0, exploration=0.5)
