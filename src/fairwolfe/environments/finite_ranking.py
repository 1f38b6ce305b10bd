"""`FiniteRanking`: rankings in a few contexts, small enough to know everything about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.problem import Problem
from fairwolfe.environments import position_weights as slots
from fairwolfe.environments.position_weights import dcg
from fairwolfe.environments.rankings import RankingArrays, RankingWorld
from fairwolfe.environments.tables import Table
from fairwolfe.errors import InvalidInput

__all__ = ["FiniteRanking"]

_ROUNDING = 1e-9


@dataclass(frozen=True)
class FiniteRanking(RankingWorld):
    """A context drawn from a short list, with its own features of the items; clicks theta.x_i.

    The item in slot j is exposed with probability b_j, and is then clicked with probability
    theta.x_i. The reward vector holds the exposure of every item, then the number of clicks.
    `support` is exact.

    Parameters
    ----------
    contexts: (contexts, items, d), all equally likely; theta.x_i in [0, 1]
    theta: (d,)
    position_weights: b_1 >= b_2 >= ... in [0, 1], one for each slot; or a row for each context

    `b1` is a world so small that the regret bound for rankings is useful there.

    >>> from fairwolfe.objectives import GiniEquality, TwoSided
    >>> from fairwolfe.truth import optimum
    >>> round(optimum(FiniteRanking.b1(), TwoSided(GiniEquality(), beta=3.0)).value, 5)
    0.79334
    """

    contexts: Sequence[Sequence[Sequence[float]]] | Cube | Table
    theta: Sequence[float] | Vector | Table
    position_weights: Sequence[float] | Sequence[Sequence[float]] | Matrix | Table

    def __post_init__(self) -> None:
        features = Table("contexts", self.contexts, ("contexts", "items", "features"))
        theta = Table("theta", self.theta, ("features",))
        n, m, d = features.shape
        if theta.shape != (d,):
            raise InvalidInput(
                f"theta has {theta.shape[0]} numbers and the items have {d} features; give as many"
            )
        weights = Table(
            "position_weights",
            slots.checked(self.position_weights, n, m),
            ("contexts", "slots"),
        )
        for name, value in (
            ("contexts", features),
            ("theta", theta),
            ("position_weights", weights),
        ):
            object.__setattr__(self, name, value)
        means = features.array @ theta.array
        if means.min() < -_ROUNDING or means.max() > 1.0 + _ROUNDING:
            raise InvalidInput(
                f"the click probabilities go from {means.min():.6g} to {means.max():.6g}; scale "
                "theta so that they lie in [0, 1]"
            )
        _ = self._world  # contexts that cannot be distinguished raise an error now

    @classmethod
    def b1(cls) -> Self:
        """World B1: one slot, three items; for Eq. (2) with beta = 3, f* = .79334."""
        angles = np.array([[0.05, 0.5, 1.1], [1.5, 1.0, 0.45]])
        features = np.stack([np.cos(angles), np.sin(angles)], axis=2)
        return cls(features, (0.85, 0.35), ((1.0,), (0.8,)))

    @cached_property
    def _world(self) -> RankingArrays:
        features, theta = np.array(self.contexts), np.array(self.theta)
        n, m, _ = features.shape
        # Every context has its own means, so that an item is known by its place alone.
        return RankingArrays.of(
            features,
            np.eye(m),
            np.ascontiguousarray(features @ theta)[None],
            np.array(self.position_weights),
            np.array([[0.0, 1.0]]),
            np.full(n, 1.0 / n),
        )

    @cached_property
    def _problem(self) -> Problem:
        features, theta = np.array(self.contexts), np.array(self.theta)
        return Problem.ranking(
            features.shape[1],
            np.shape(self.position_weights)[1],
            features.shape[2],
            feature_norm=max(float(np.linalg.norm(features, axis=2).max()), 1e-12),
            parameter_norm=max(float(np.linalg.norm(theta)), 1e-12),
        )

    def problem(self) -> Problem:
        """A ranking of the items; norms as they are in the tables."""
        return self._problem

    def init(self, rng: np.random.Generator) -> RankingArrays:
        """The tables; nothing is random."""
        return self._world

    def draw_users(self, rng: np.random.Generator, n: int) -> IntVector:
        """Which context it is, one integer a round."""
        return rng.integers(len(self._world.users), size=n)

    def show(self, world: RankingArrays, user: int) -> Matrix:
        """A copy of the features (items, d)."""
        features: Matrix = world.users[user].copy()
        return features

    def features(self, world: RankingArrays) -> tuple[Matrix, Cube]:
        """No features of users, and those of the items by context."""
        return np.ones((len(world.users), 1)), np.ascontiguousarray(np.swapaxes(world.users, 1, 2))

    def _user_of(self, world: RankingArrays, context: Any) -> Matrix:
        return arms(context, self._problem).features

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        features = [[[0.9, 0.1], [0.2, 0.3]], [[0.0, 0.4], [0.5, 0.5]], [[1.0, 0.0], [0.3, 0.6]]]
        return cls.b1(), cls(features, (0.6, 0.8), dcg(2))
