"""The plain loop: any policy and environment that keep the contracts, round by round."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.kinds import Kind, kind_of
from fairwolfe.reduction.running import Running
from fairwolfe.simulation.delays import as_delay, rounds_of
from fairwolfe.simulation.lateness import Lateness
from fairwolfe.simulation.streams import Streams

__all__ = ["Answer", "PlainRun", "Post"]


@dataclass
class Post:
    """Answers on their way, the next to come first; those of one round in the order of decisions.

    It holds at most the longest delay.
    """

    waiting: list[tuple[int, int, Any]] = field(default_factory=list)

    def send(self, arrival: int, t: int, answer: Any) -> None:
        """An answer to decision t, which is there after round `arrival`."""
        heappush(self.waiting, (arrival, t, answer))

    def come(self, now: int) -> Iterator[Any]:
        """All that is there after round `now`."""
        while self.waiting and self.waiting[0][0] <= now:
            yield heappop(self.waiting)[2]


class Answer(NamedTuple):
    """What comes late: feedback, and its decision."""

    decision: Any
    feedback: Any


class PlainRun:
    """One run in the world of a seed, in Python.

    truth: whether the best action for each direction is asked for. Without a lateness answers are
    learnt at once; with one, `rng` draws the delays.
    """

    def __init__(
        self,
        policy: Any,
        environment: Any,
        world: Any,
        streams: Streams,
        truth: bool = True,
        lateness: Lateness | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.policy = policy.meet(world) if hasattr(policy, "meet") else policy
        self.environment = environment
        self.world = world
        self.streams = streams
        problem = environment.problem()
        self.state = self.policy.init(problem)
        self.kind = self._kind()
        self.mean_sum, self.reward_sum = np.zeros((2, problem.n_objectives))
        self.scalar = np.zeros(3)
        self.first_reward = problem.n_items or 0
        self.opaque = getattr(environment, "opaque", False)
        self.truth = truth
        self.lateness, self.rng = lateness, rng
        self.refresh = 1 if lateness is None else lateness.refresh
        self.post = Post()
        self.snapshot = self.state  # what decides, where it is not the live state
        self.t = 0

    def _kind(self) -> Kind:
        if isinstance(self.state, Running):
            return self.state.kind
        if hasattr(self.policy, "kind"):
            kind: Kind = self.policy.kind(self.state)
            return kind
        return kind_of(self.environment.problem())

    def play(self, wanted: int) -> list[Any]:
        """Play at most that many rounds; their actions."""
        return [self._round() for _ in range(min(wanted, 100))]

    def _round(self) -> Any:
        environment, world, streams = self.environment, self.world, self.streams
        self.t += 1
        context = environment.context(world, self.t, streams.contexts)
        state = self.deciding()
        decision = self.policy.act(state, context, streams.policy)
        feedback = environment.feedback(world, context, decision.action, streams.noise)
        reward = self.kind.observe(decision.action, feedback).reward
        mean = reward
        if not self.opaque:
            mean = environment.mean_reward(world, context, decision.action)
        g = self._direction(state, decision) if self.truth else None
        if g is not None:
            best = environment.best_action(world, context, g)
            top = environment.mean_reward(world, context, best)
            # Not a product by BLAS, whose last bit depends on the processor.
            self.scalar += (g * np.array([top, mean, reward])).sum(axis=1)
        self.answer(decision, feedback, reward)
        self.mean_sum += mean
        self.reward_sum += reward
        return decision.action

    def deciding(self) -> Any:
        """The live state, or the snapshot taken at the last refresh."""
        if self.refresh == 1:
            return self.state
        if (self.t - 1) % self.refresh == 0:
            self.snapshot = deepcopy(self.state)
        return self.snapshot

    def answer(self, decision: Any, feedback: Any, reward: Vector) -> None:
        """Send it on its way, and learn from what has come by now."""
        answer = Answer(decision, feedback)
        if self.lateness is None or self.rng is None:
            self.learn(answer)
            return
        clicked = bool(reward[self.first_reward :].any())
        law = as_delay("delay", self.lateness.delay)
        late = rounds_of(law, float(self.rng.random()), clicked)
        self._expect(decision)
        self.post.send(self.t + late, self.t, answer)
        for arrived in self.post.come(self.t):
            self.learn(arrived)

    def _expect(self, decision: Any) -> None:
        """The snapshot that decided counts the decision as open, and so does the live state, whose
        count the decision keeps.
        """
        expect = getattr(self.policy, "expect", None)
        if expect is None:
            return
        if self.refresh > 1:
            self.snapshot = expect(self.snapshot, decision)
        self.state = expect(self.state, decision)

    def learn(self, answer: Answer) -> None:
        """The live state learns it."""
        self.state = self.policy.update(self.state, answer.decision, answer.feedback)

    def _direction(self, state: Any, decision: Any) -> Vector | None:
        """The direction of a decision, where the policy follows one."""
        if decision.direction is not None:
            followed: Vector = decision.direction
            return followed
        return state.direction() if isinstance(state, Running) else None
