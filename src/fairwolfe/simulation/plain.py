"""The plain loop: any policy and environment that keep the contracts, round by round."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.kinds import Kind, kind_of
from fairwolfe.reduction.running import Running
from fairwolfe.simulation.streams import Streams

__all__ = ["PlainRun"]


class PlainRun:
    """The loop in Python, for any policy and environment that keep the contracts."""

    def __init__(
        self, policy: Any, environment: Any, world: Any, streams: Streams, truth: bool
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
        self.opaque = getattr(environment, "opaque", False)
        self.truth = truth
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
        """The state that decides this round."""
        return self.state

    def answer(self, decision: Any, feedback: Any, reward: Vector) -> None:
        """The result of a decision, known when it was made; here it is learnt at once."""
        self.state = self.policy.update(self.state, decision, feedback)

    def _direction(self, state: Any, decision: Any) -> Vector | None:
        """The direction of a decision, where the policy follows one."""
        if decision.direction is not None:
            followed: Vector = decision.direction
            return followed
        return state.direction() if isinstance(state, Running) else None
