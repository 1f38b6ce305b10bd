"""What worlds with arms share: rewards as data for the compiled loop, and the plain methods.

A world answers arms by a kernel at an address, so that one compiled loop simulates them all, and
the plain methods of the environment call the same kernel: one formula, the same bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import Kernel, function_at, kernel
from fairwolfe.kernels.worlds import ArmWorld

__all__ = [
    "BEST",
    "REWARD",
    "ArmsWorld",
    "RewardProgram",
    "arm_world",
    "best_at",
    "call_best",
    "call_reward",
    "direction_of",
    "reward_at",
]

W = TypeVar("W")

REWARD = (
    "void(int64, int64, float64[:, ::1], float64[::1], float64[::1], float64[::1], float64[::1])"
)
"""(arm, tag, features (K, d), noise, params, mean out (D,), reward out (D,))."""

BEST = "int64(float64[::1], int64, float64[:, ::1], float64[::1], float64[::1])"
"""(direction (D,), tag, features (K, d), params, scores out (K,)): the arm of largest <g, mu>."""

call_reward = function_at(REWARD)
call_best = function_at(BEST)


@kernel(
    signature="void(int64, int64, int64, float64[:, ::1], float64[::1], float64[::1], "
    "float64[::1], float64[::1])"
)
def reward_at(
    address: int,
    arm: int,
    tag: int,
    features: Matrix,
    noise: Vector,
    params: Vector,
    mean: Vector,
    reward: Vector,
) -> None:
    """Call the rewards at an address from Python.

    features (arms, features), noise (draws,), mean, reward (rewards,). params: of the world.
    """
    call_reward(address, arm, tag, features, noise, params, mean, reward)


@kernel(signature="int64(int64, float64[::1], int64, float64[:, ::1], float64[::1], float64[::1])")
def best_at(
    address: int, direction: Vector, tag: int, features: Matrix, params: Vector, scores: Vector
) -> int:
    """Call the linear oracle at an address from Python.

    direction (rewards,), features (arms, features), scores (arms,). params: of the world.
    """
    return int(call_best(address, direction, tag, features, params, scores))


class RewardProgram(NamedTuple):
    """The rewards of one world, for this process only."""

    reward: int
    best: int
    params: Vector

    def answer(
        self, arm: int, tag: int, features: Matrix, noise: Vector, n_objectives: int
    ) -> tuple[Vector, Vector]:
        """The mean reward of a trusted arm, and the reward with this noise."""
        mean, reward = np.empty(n_objectives), np.empty(n_objectives)
        reward_at(self.reward, arm, tag, features, noise, self.params, mean, reward)
        return mean, reward

    def best_arm(self, direction: Vector, tag: int, features: Matrix) -> int:
        """The arm of largest <direction, mean reward>."""
        scores = np.empty(len(features))
        return best_at(self.best, direction, tag, features, self.params, scores)


def direction_of(problem: Problem, given: Any) -> Vector:
    """A checked direction: a finite weight for each coordinate of the reward vector."""
    g: Vector = np.array(given, dtype=np.float64)
    n = problem.n_objectives
    if g.shape != (n,) or not np.isfinite(g).all():
        raise InvalidInput(f"the direction is {given!r}; give {n} finite numbers")
    return g


def arm_world(environment: Any, world: Any, n_arms: int, n_features: int) -> ArmWorld:
    """The rewards of one world as compiled code calls them; kernels of somebody else's are called
    as Python calls them.
    """
    n = environment.problem().n_objectives
    # A class that states another `reward_program` has other rewards than the one it is made from.
    owner = next(cls for cls in type(environment).__mro__ if "reward_program" in vars(cls))
    form = vars(owner).get("form")
    if form is not None:
        return ArmWorld(form, environment.reward_params(world), n, n_features, n_arms)
    program: RewardProgram = environment.reward_program(world)

    def answer(arm: int, tag: int, features: Matrix, noise: Vector) -> tuple[Vector, Vector]:
        return program.answer(arm, tag, features, noise, n)

    n_noise = environment.draw_noise(np.random.default_rng(0), 1).shape[1]
    return ArmWorld.of_functions(answer, program.best_arm, n, n_features, n_arms, n_noise)


class ArmsWorld(ABC, Generic[W]):
    """An environment with arms that is given by its draws and its kernels.

    The plain methods of the contract are made from those: a subclass states `problem`, `init`,
    `draw_contexts`, `draw_noise` and `reward_program`, and how a context is recognised.
    """

    form: ClassVar[str | None] = None
    """The name of `reward_program` among the compiled ones (kernels/worlds.py), if it is one."""
    answers: ClassVar[tuple[Kernel[..., Any], ...]] = ()
    """The kernels of `reward_program`."""

    def kernels(self) -> tuple[Kernel[..., Any], ...]:
        """What the plain methods call."""
        return (*self.answers, reward_at, best_at)

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

    @abstractmethod
    def reward_program(self, world: W) -> RewardProgram:
        """The kernels and parameters of a world."""

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
        n = self.problem().n_objectives
        return self.reward_program(world).answer(arm, tag, features, noise, n)
