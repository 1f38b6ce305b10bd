"""A kind of decision that is neither an arm nor a ranking: a budget is split into portions.

The context is one vector, the action an array of shares that sum to 1, and the feedback a mapping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np

import fairwolfe as fw
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.kinds import Answer, Kind, kind_of
from fairwolfe.core.problem import Problem, all_finite, real_array
from fairwolfe.errors import InvalidInput

__all__ = ["Even", "Kitchen", "Portions"]

_ROUNDING = 1e-9


class Day(NamedTuple):
    """A context that has been checked."""

    weather: Vector
    norm: float

    def largest(self) -> str:
        return f"the weather goes up to {np.abs(self.weather).max():.4g}"


class Portions(Kind):
    """`n_arms` shares of a whole."""

    name = "portions"

    @classmethod
    def example(cls) -> Problem:
        taste = {"taste": (0.0, 1.0), "cost": (-1.0, 0.0)}
        return Problem(2, taste, n_arms=3, kind="portions")

    def read(self, context: Any, **options: Any) -> Day:
        if isinstance(context, Day):
            return context
        if options:
            raise InvalidInput(f"there is no {' and '.join(options)} of portions")
        weather = real_array("the weather", context)
        if weather.shape != (self.problem.n_features,) or not all_finite(weather):
            raise InvalidInput(f"the weather is {context!r:.80}; give finite numbers")
        return Day(weather.copy(), float(np.linalg.norm(weather)))

    def observe(self, action: Any, feedback: Any) -> Answer:
        if isinstance(feedback, Answer):
            return feedback
        if not isinstance(feedback, Mapping) or feedback.keys() != self.problem.rewards.keys():
            raise InvalidInput(f"the feedback is {feedback!r:.80}; give taste and cost by name")
        reward = real_array("the reward", [feedback[name] for name in self.problem.rewards])
        if not all_finite(reward):
            raise InvalidInput(f"the feedback is {feedback!r:.80}; give finite numbers")
        return Answer(dict(feedback), reward)

    def random_context(self, rng: np.random.Generator) -> Vector:
        x = rng.standard_normal(self.problem.dimension)
        weather: Vector = x / max(1.0, float(np.linalg.norm(x)))
        return weather

    def random_feedback(self, action: Any, rng: np.random.Generator) -> dict[str, float]:
        drawn = rng.uniform(self.problem.low, self.problem.high)
        return dict(zip(self.problem.rewards, drawn.tolist(), strict=True))

    def is_action(self, context: Any, action: Any) -> bool:
        fits = isinstance(action, np.ndarray) and action.shape == (self.problem.n_arms,)
        return bool(fits and (action >= 0.0).all() and abs(action.sum() - 1.0) < _ROUNDING)

    def actions(self, context: Any, rng: np.random.Generator) -> list[Any]:
        return [*np.eye(self.problem.n_arms or 0), *rng.dirichlet(np.ones(3), 4)]


class Plates(NamedTuple):
    """The sums of shares (n,) and of what they earned (n, rewards)."""

    shares: Vector
    earned: Matrix


@dataclass(frozen=True)
class Even:
    """Most of the budget for what seems best, the rest for all alike."""

    most: float = 0.9
    decides = "portions"

    def init(self, problem: Problem) -> Plates:
        n = problem.n_arms or 0
        return Plates(np.ones(n), np.zeros((n, problem.n_objectives)))

    def act(
        self, state: Plates, context: Day, direction: Vector, rng: np.random.Generator
    ) -> fw.Choice:
        n = state.shares.size
        shares = np.full(n, (1.0 - self.most) / n)
        shares[(state.earned @ direction / state.shares).argmax()] += self.most
        return fw.Choice(shares, 1.0, None)

    def update(
        self, state: Plates, choice: fw.Choice, direction: Vector, observation: dict[str, float]
    ) -> Plates:
        shares = np.asarray(choice.action)
        earned = np.outer(shares, list(observation.values()))
        return Plates(state.shares + shares, state.earned + earned)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(0.5)


@dataclass(frozen=True)
class Kitchen:
    """Three dishes; their tastes and costs add up by shares."""

    tastes: tuple[float, ...] = (0.9, 0.5, 0.1)

    def problem(self) -> Problem:
        return Portions.example()

    def init(self, rng: np.random.Generator) -> Matrix:
        return np.array([self.tastes, [-taste for taste in self.tastes]])

    def context(self, world: Matrix, t: int, rng: np.random.Generator) -> Vector:
        return kind_of(self.problem()).random_context(rng)  # type: ignore[no-any-return]

    def feedback(
        self, world: Matrix, context: Any, action: Any, rng: np.random.Generator
    ) -> dict[str, float]:
        taste, cost = self.mean_reward(world, context, action)
        coins = rng.random(2)
        return {"taste": float(coins[0] < taste), "cost": -float(coins[1] < -cost)}

    def mean_reward(self, world: Matrix, context: Any, action: Any) -> Vector:
        kind = kind_of(self.problem())
        kind.read(context)
        if not kind.is_action(context, action):
            raise InvalidInput(f"the action is {action!r}; give shares that sum to 1")
        mean: Vector = world @ action
        return mean

    def best_action(self, world: Matrix, context: Any, direction: Vector) -> Vector:
        shares: Vector = np.eye(3)[(direction @ world).argmax()]
        return shares

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls((0.2, 0.3, 0.8))
