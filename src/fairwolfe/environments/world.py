"""What worlds with arms share: compiled rewards for the simulation, and the plain methods.

The plain methods of an environment call the same compiled rewards: one formula, the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.worlds import ArmWorld

__all__ = ["ArmsWorld", "direction_of"]

W = TypeVar("W")


def direction_of(problem: Problem, given: Any) -> Vector:
    """A checked direction: a finite weight for each coordinate of the reward vector."""
    g: Vector = np.array(given, dtype=np.float64)
    n = problem.n_objectives
    if g.shape != (n,) or not np.isfinite(g).all():
        raise InvalidInput(f"the direction is {given!r}; give {n} finite numbers")
    return g


class ArmsWorld(ABC, Generic[W]):
    """An environment with arms that is given by its draws and its rewards.

    The plain methods of the contract are made from those: a subclass states `problem`, `init`,
    `draw_contexts`, `draw_noise` and either `rewards`, in Python, with the number of its arms,
    `n_arms`, or `reward_program`, compiled, and how a context is recognised. Both loops of
    `simulate` play it; the compiled one calls `rewards`.
    """

    n_arms: int

    @abstractmethod
    def problem(self) -> Problem:
        """What is decided here."""

    @abstractmethod
    def init(self, rng: np.random.Generator) -> W:
        """Draw a world."""

    @abstractmethod
    def draw_contexts(self, world: W, rng: np.random.Generator, n: int) -> tuple[Cube, IntVector]:
        """Features (n, K, d) and tags (n,) of n rounds."""

    @abstractmethod
    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        """What `feedback` draws in n rounds, whatever the actions: (n, numbers a round)."""

    def rewards(self, world: W, features: Matrix, arm: int, noise: Vector) -> tuple[Vector, Vector]:
        """The mean reward vector of an arm, and its reward with this noise, a row of `draw_noise`.

        features (n_arms, d). The mean must not depend on the noise.
        """
        raise NotImplementedError(f"{type(self).__name__} has no rewards; write that method")

    def reward_program(self, world: W) -> ArmWorld:
        """The rewards of a world, compiled; or `rewards`, to be called from compiled code."""

        def reward(arm: int, tag: int, features: Matrix, noise: Vector) -> tuple[Vector, Vector]:
            return self.rewards(world, features, arm, noise)

        def best(direction: Vector, tag: int, features: Matrix) -> int:
            nothing = np.zeros(self.n_draws)
            means = [self.rewards(world, features, a, nothing)[0] for a in range(len(features))]
            return int(np.argmax(np.asarray(means) @ direction))

        problem = self.problem()
        sizes = (problem.n_objectives, problem.dimension, self.n_arms, self.n_draws)
        return ArmWorld.of_functions(reward, best, *sizes)

    @property
    def bounded(self) -> bool:
        """Whether rewards stay in the ranges of the problem, as every regret bound asks."""
        return True

    @property
    def n_draws(self) -> int:
        """How many numbers one `feedback` draws: one for each reward, if not stated otherwise."""
        return self.problem().n_objectives

    def tag(self, world: W, features: Matrix) -> int:
        """By which number the kernels know a context; 0 where its features say everything."""
        return 0

    def context(self, world: W, t: int, rng: np.random.Generator) -> Matrix:
        """The features (K, d) of the arms of round t; rounds are independent."""
        features: Matrix = self.draw_contexts(world, rng, 1)[0][0]
        return features

    def feedback(self, world: W, context: Any, action: Any, rng: np.random.Generator) -> Vector:
        """The reward vector of the arm; draws the same numbers whatever the arm."""
        arm, tag, features = self._met(world, context, action)
        noise: Vector = self.draw_noise(rng, 1)[0]
        return self._answer(world, arm, tag, features, noise)[1]

    def mean_reward(self, world: W, context: Any, action: Any) -> Vector:
        """The expected reward vector of the arm."""
        arm, tag, features = self._met(world, context, action)
        return self._answer(world, arm, tag, features, np.zeros(self.n_draws))[0]

    def best_action(self, world: W, context: Any, direction: Vector) -> int:
        """The arm of largest <direction, mean reward>; ties to the lowest index."""
        _, tag, features = self._met(world, context, 0)
        return self.reward_program(world).best_arm(
            direction_of(self.problem(), direction), tag, features
        )

    def _met(self, world: W, context: Any, action: Any) -> tuple[int, int, Matrix]:
        """A checked arm, with the tag and the features of its context."""
        features = arms(context, self.problem()).features
        whole = isinstance(action, (int, np.integer)) and not isinstance(action, bool)
        if not whole or not 0 <= action < len(features):
            raise InvalidInput(
                f"the action is {action!r}; give the number of an arm, 0 to {len(features) - 1}"
            )
        return int(action), self.tag(world, features), features

    def _answer(
        self, world: W, arm: int, tag: int, features: Matrix, noise: Vector
    ) -> tuple[Vector, Vector]:
        answer: tuple[Vector, Vector] = self.reward_program(world).answer(arm, tag, features, noise)
        return answer
