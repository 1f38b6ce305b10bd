"""What another package could bring: the recipes of docs/recipes.md, without a change in fairwolfe.

A bandit, a ranker, a policy and a world in plain Python, and a third kind of decision.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

import fairwolfe as fw
from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.candidates import Candidates
from fairwolfe.core.contexts import Arms
from fairwolfe.core.kinds import Answer, Kind, kind_of, require_kind
from fairwolfe.core.problem import Problem, whole_number
from fairwolfe.core.rankings import RankingKind
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave, GiniWelfare, Linear
from fairwolfe.ranking import LinUCBRank

__all__ = [
    "Cascade",
    "CascadeLinUCB",
    "CascadeRanker",
    "Feed",
    "Greedy",
    "GreedyRanker",
    "Myopic",
    "Shelf",
]


class Sums(NamedTuple):
    """A ridge regression: design (d, d), targets (d, rewards)."""

    design: Matrix
    targets: Matrix

    @classmethod
    def zero(cls, d: int, n: int) -> Self:
        return cls(np.eye(d), np.zeros((d, n)))

    def theta(self) -> NDArray[Any]:
        return np.linalg.solve(self.design, self.targets)

    def plus(self, x: Matrix, rewards: Matrix) -> Self:
        return type(self)(self.design + x.T @ x, self.targets + x.T @ rewards)


@dataclass(frozen=True)
class Greedy:
    """The arm of largest estimated <direction, reward>; any arm with probability epsilon."""

    epsilon: float = 0.1

    def init(self, problem: Problem) -> Sums:
        if problem.n_arms is not None:
            raise InvalidInput(f"n_arms is {problem.n_arms}; Greedy takes rows of features only")
        return Sums.zero(problem.dimension, problem.n_objectives)

    def act(
        self, state: Sums, context: Arms, direction: Vector, rng: np.random.Generator
    ) -> fw.Choice:
        best = int((context.features @ state.theta() @ direction).argmax())
        arm = int(rng.integers(context.n_arms)) if rng.random() < self.epsilon else best
        probability = self.epsilon / context.n_arms + (1.0 - self.epsilon) * (arm == best)
        return fw.Choice(arm, probability, context.row(arm).copy())

    def update(
        self, state: Sums, choice: fw.Choice, direction: Vector, observation: Vector
    ) -> Sums:
        return state.plus(choice.evidence[None], observation[None])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(0.5)


class Shelves(NamedTuple):
    """What a ranker keeps; a field called problem is not saved but made by init."""

    problem: Problem
    sums: Sums


@dataclass(frozen=True)
class GreedyRanker:
    """Items by direction_i + <direction, estimated rewards> + exploration * width."""

    exploration: float = 0.5
    decides = "ranking"

    def init(self, problem: Problem) -> Shelves:
        return Shelves(problem, Sums.zero(problem.dimension, len(problem.rewards)))

    def act(
        self, state: Shelves, context: Candidates, direction: Vector, rng: np.random.Generator
    ) -> fw.Choice:
        n, sums = context.ids.size, state.sums
        x = np.kron(context.user[:, None], context.items)  # (d, n): a column for each candidate
        scores = direction[:n] + direction[n:] @ sums.theta().T @ x
        scores += self.exploration * np.sqrt((x * np.linalg.solve(sums.design, x)).sum(axis=0))
        rows = np.argsort(-scores, kind="stable")
        slots = np.full(state.problem.n_slots or 0, -1)
        if context.pinned.size:  # the row that a slot must show, or -1
            slots, rows = context.pinned.copy(), rows[~np.isin(rows, context.pinned)]
        slots[slots < 0] = rows[: (slots < 0).sum()]
        return fw.Choice(context.ids[slots], None, x[:, slots].T.copy())

    def update(
        self, state: Shelves, choice: fw.Choice, direction: Vector, observation: fw.Shown
    ) -> Shelves:
        seen = observation.exposed == 1.0
        sums = state.sums.plus(choice.evidence[seen], observation.rewards[seen])
        return state._replace(sums=sums)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(0.0)


class Plan(NamedTuple):
    """What `init` makes of a policy and a problem; a field called plan is not saved."""

    kind: Kind
    objective: Concave


class Record(NamedTuple):
    """What a policy keeps: the sums of its regression and of the rewards, and how many came."""

    plan: Plan
    sums: Sums
    total: Vector
    rounds: Vector


@dataclass(frozen=True)
class Myopic:
    """The arm after whose estimated reward f of the average is largest; any with probability
    epsilon. Without a guarantee.
    """

    objective: Concave
    epsilon: float = 0.1

    def init(self, problem: Problem) -> Record:
        require_kind("arms", problem, "Myopic")
        plan = Plan(kind_of(problem), self.objective.bind(problem))
        return Record(plan, Greedy().init(problem), np.zeros(problem.n_objectives), np.zeros(1))

    def kind(self, state: Record) -> Kind:
        return state.plan.kind

    def act(self, state: Record, context: Any, rng: np.random.Generator) -> fw.Decision:
        arms: Arms = state.plan.kind.read(context)
        t = int(state.rounds[0])
        averages = (state.total + arms.features @ state.sums.theta()) / (t + 1)
        best = int(np.argmax([state.plan.objective.value(z) for z in averages]))
        arm = int(rng.integers(arms.n_arms)) if rng.random() < self.epsilon else best
        probability = self.epsilon / arms.n_arms + (1.0 - self.epsilon) * (arm == best)
        return fw.Decision("", t, arm, probability, arms.row(arm).copy())

    def update(self, state: Record, decision: fw.Decision, feedback: Any) -> Record:
        reward = state.plan.kind.observe(decision.action, feedback).reward
        sums = state.sums.plus(decision.evidence[None], reward[None])
        return Record(state.plan, sums, state.total + reward, state.rounds + 1.0)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(GiniWelfare()), cls(Linear((1.0, 0.5, 0.2)), 0.5)


def circle(turns: Vector) -> Matrix:
    """(n, 3): unit vectors with products (1 + cos)/2 of the angle between them."""
    angle = 2.0 * np.pi * turns
    rows: Matrix = np.stack([np.ones_like(angle), np.cos(angle), np.sin(angle)], axis=1) / 2.0**0.5
    return rows


@dataclass(frozen=True)
class Shelf:
    """Slot j is exposed with probability 1/j; an exposed item is clicked with user.item."""

    n_items: int = 4
    n_slots: int = 2

    def problem(self) -> Problem:
        return Problem.ranking(self.n_items, self.n_slots, (3, 3), parameter_norm=3.0**0.5)

    def init(self, rng: np.random.Generator) -> Matrix:
        return circle(rng.random(self.n_items))

    def context(self, world: Matrix, t: int, rng: np.random.Generator) -> fw.Bilinear:
        return fw.Bilinear(circle(rng.random(1))[0], world.copy())

    def feedback(
        self, world: Matrix, context: Any, action: Any, rng: np.random.Generator
    ) -> fw.Shown:
        coins = rng.random((2, self.n_slots))  # as many numbers a round, whatever the action
        exposed = coins[0] < self._weights()
        clicked = exposed & (coins[1] < self._clicks(context, action))
        return fw.Shown(exposed.astype(np.float64), clicked.astype(np.float64)[:, None])

    def mean_reward(self, world: Matrix, context: Any, action: Any) -> Vector:
        reward = np.zeros(self.n_items + 1)
        reward[-1] = self._weights() @ self._clicks(context, action)
        reward[action] = self._weights()
        return reward

    def best_action(self, world: Matrix, context: Any, direction: Vector) -> IntVector:
        worth = direction[:-1] + direction[-1] * (world @ context.user)
        return np.argsort(-worth, kind="stable")[: self.n_slots]

    def _weights(self) -> Vector:
        return 1.0 / np.arange(1.0, self.n_slots + 1.0)

    def _clicks(self, context: Any, action: Any) -> Vector:
        kind = kind_of(self.problem())
        given = kind.read(context)
        if not kind.is_action(context, action):
            raise InvalidInput(f"the action is {action!r}; give {self.n_slots} different items")
        clicks: Vector = (given.user @ given.items)[action]
        return clicks

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(3, 3)


class Cascade(RankingKind):
    """The user goes down the list until the first click: feedback is its slot, or None."""

    name = "cascade"
    extent, corner = Kind.extent, Kind.corner  # a click is not shared among the slots

    @classmethod
    def example(cls) -> Problem:
        clicks = {"clicks": (0.0, 1.0)}
        return Problem.ranking(5, 3, (2, 3), clicks, parameter_norm=1.0, kind="cascade")

    def observe(self, action: Any, feedback: Any) -> Answer:
        if isinstance(feedback, (Answer, fw.Shown)):
            return super().observe(action, feedback)
        clicked = np.zeros(self.n_slots)
        if feedback is not None:
            slot = whole_number("the slot of the click", feedback, 0)
            if slot >= self.n_slots:
                raise InvalidInput(f"the click is in slot {slot}; give 0 to {self.n_slots - 1}")
            clicked[slot] = 1.0
        exposed = 1.0 - clicked.cumsum() + clicked
        return super().observe(action, fw.Shown(exposed, clicked[:, None]))

    read_feedback = Kind.read_feedback

    def random_feedback(self, action: Any, rng: np.random.Generator) -> Any:
        slot = int(rng.integers(self.n_slots + 1))
        return slot if slot < self.n_slots else None


@dataclass(frozen=True)
class CascadeRanker(GreedyRanker):
    """`GreedyRanker` for a list that the user leaves at the first click."""

    decides = "cascade"


@dataclass(frozen=True)
class CascadeLinUCB(LinUCBRank):
    """`LinUCBRank` for a list that the user leaves at the first click."""

    decides = "cascade"


@dataclass(frozen=True)
class Feed(Shelf):
    """Items are read one after the other; one that is read is clicked with user.item."""

    def problem(self) -> Problem:
        return replace(super().problem(), rewards={"clicks": (0.0, 1.0)}, kind="cascade")

    def feedback(self, world: Matrix, context: Any, action: Any, rng: np.random.Generator) -> Any:
        clicked = rng.random(self.n_slots) < self._clicks(context, action)
        return int(clicked.argmax()) if clicked.any() else None

    def mean_reward(self, world: Matrix, context: Any, action: Any) -> Vector:
        left = np.cumprod([1.0, *(1.0 - self._clicks(context, action))])
        reward = np.zeros(self.n_items + 1)
        reward[action], reward[-1] = left[:-1], 1.0 - left[-1]
        return reward

    def best_action(self, world: Matrix, context: Any, direction: Vector) -> IntVector:
        lists = [np.array(one) for one in permutations(range(self.n_items), self.n_slots)]
        return max(lists, key=lambda one: direction @ self.mean_reward(world, context, one))
