"""`Nonlinear`: rewards that fall with the distance to an ideal point, which no line can follow."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem, positive, whole_number
from fairwolfe.environments.world import ArmsWorld, check_fields, direction_of
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.worlds import CompiledArmWorld

_DRAWS = 100  # of ideal points, from which the most distant are taken


def _spread(rng: np.random.Generator, n: int, d: int) -> Matrix:
    """Of many draws of n points on the unit sphere, those whose nearest two are farthest apart."""
    drawn = rng.standard_normal((_DRAWS, n, d))
    drawn /= np.linalg.norm(drawn, axis=2, keepdims=True)
    cosines = drawn @ drawn.transpose(0, 2, 1) - 2.0 * np.eye(n)
    chosen: Matrix = drawn[cosines.max(axis=(1, 2)).argmin()]
    return chosen


class NonlinearWorld(NamedTuple):
    """What a seed draws: the contexts, their mean rewards, and the ideal points."""

    features: Cube  # (contexts, arms, d)
    means: Cube  # (contexts, arms, D)
    params: Vector


@dataclass(frozen=True)
class Nonlinear(ArmsWorld[NonlinearWorld]):
    """Reward i is 1 with probability exp(-|x - c_i|^2/(2 width^2)), else 0.

    Every reward has an ideal point c_i on the unit sphere; an arm pleases it the more the nearer it
    is. The points are random and far from each other, so the rewards compete for the arm. The
    features of an arm are 1, for the intercept of a linear model, and numbers that are uniform in
    [-1, 1]. In the default world the best linear predictions explain half of the variance of the
    means, but the arms that they praise most are those about which they are most wrong: linear
    policies are not better than random arms here.

    A world has a finite list of contexts, drawn once and then met at random, so that the set of
    expected rewards is S = mean_c conv{mu(c, a)} and `support` is exact. A list that is long
    beside the horizon cannot be learnt by heart.

    Parameters
    ----------
    n_arms: K >= 1
    n_objectives: D >= 1
    n_features: d >= 2, with the constant one
    n_contexts: the length of the list, >= 1
    width: of the bell around an ideal point, > 0

    >>> environment = Nonlinear()
    >>> world = environment.init(np.random.default_rng(0))
    >>> value, average = environment.support(world, np.array([1.0, 0.0, 0.0]))
    >>> round(value, 3), average.round(3).tolist()
    (0.672, [0.672, 0.002, 0.009])
    """

    n_arms: int = 10
    n_objectives: int = 3
    n_features: int = 3
    n_contexts: int = 1000
    width: float = 0.4

    def __post_init__(self) -> None:
        check_fields(self, whole_number, "n_arms", "n_objectives", "n_features", "n_contexts")
        if self.n_features < 2:
            raise InvalidInput(
                f"n_features is {self.n_features}; the first is constant, so give at least 2"
            )
        check_fields(self, positive, "width")

    @cached_property
    def _problem(self) -> Problem:
        names = (f"r{i}" for i in range(1, self.n_objectives + 1))
        return Problem.arms(
            self.n_features,
            dict.fromkeys(names, (0.0, 1.0)),
            feature_norm=math.sqrt(self.n_features),
        )

    def problem(self) -> Problem:
        """Arms with rewards r1, r2, ... of 0 or 1; no parameter norm, since nothing is linear."""
        return self._problem

    def init(self, rng: np.random.Generator) -> NonlinearWorld:
        """Ideal points, then the list of contexts."""
        points = _spread(rng, self.n_objectives, self.n_features - 1)
        features = rng.uniform(-1.0, 1.0, (self.n_contexts, self.n_arms, self.n_features))
        features[:, :, 0] = 1.0
        params = np.concatenate([[0.5 / self.width**2], points.ravel()])
        return NonlinearWorld(features, self._rewards(params).means(features), params)

    def draw_contexts(
        self, world: NonlinearWorld, rng: np.random.Generator, n: int
    ) -> tuple[Cube, IntVector]:
        """Copies of the features of contexts of the list, from one uniform draw a round; tags 0."""
        places = (rng.random(n) * self.n_contexts).astype(np.int64)
        return world.features[places], np.zeros(n, dtype=np.int64)

    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        """A uniform draw for each reward."""
        return rng.random((n, self.n_objectives))

    def reward_program(self, world: NonlinearWorld) -> CompiledArmWorld:
        """Rewards from the features; the list of contexts plays no part."""
        return self._rewards(world.params)

    def _rewards(self, params: Vector) -> CompiledArmWorld:
        return CompiledArmWorld(
            "nonlinear", params, self.n_objectives, self.n_features, self.n_arms
        )

    def support(self, world: NonlinearWorld, direction: Vector) -> tuple[float, Vector]:
        """h_S(g) = mean_c max_a <g, mu(c, a)>, and where it is attained, exactly."""
        g = direction_of(self.problem(), direction)
        best = (world.means @ g).argmax(axis=1)
        point: Vector = world.means[np.arange(len(best)), best].mean(axis=0)
        return float(g @ point), point

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(n_contexts=100), cls(n_arms=3, n_objectives=5, n_features=2, width=1.0)
