"""The plain loop: any policy and environment that keep the contracts, round by round."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.protocols import Compiled, Directs, Meets, Opaque, Prepares, Reads
from fairwolfe.kernels.compile import Kernel, ready
from fairwolfe.reduction.state import Trail
from fairwolfe.simulation.streams import Streams

__all__ = ["PlainRun"]


class PlainRun:
    """The loop in Python, for any policy and environment that keep the contracts."""

    def __init__(
        self, policy: Any, environment: Any, world: Any, streams: Streams, truth: bool
    ) -> None:
        self.policy = policy.meet(world) if isinstance(policy, Meets) else policy
        self.environment = environment
        self.world = world
        self.streams = streams
        problem = environment.problem()
        self.state = self.policy.init(problem)
        reads = isinstance(self.policy, Reads)
        self.kind = self.policy.kind(self.state) if reads else kind_of(problem)
        self.directs = isinstance(self.policy, Directs)
        ready(self.kernels(self.policy, self.state, environment))
        self.mean_sum, self.reward_sum = np.zeros((2, problem.n_objectives))
        self.scalar = np.zeros(3)
        self.opaque = isinstance(environment, Opaque) and environment.opaque
        self.truth = truth
        self.t = 0

    @staticmethod
    def kernels(policy: Any, state: Any, environment: Any) -> list[Kernel[..., Any]]:
        """What the rounds call, as far as policy and environment name it."""
        own = policy.kernels(state) if isinstance(policy, Compiled) else ()
        worlds = environment.kernels() if isinstance(environment, Prepares) else ()
        return [*own, *worlds]

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
            self.scalar += [g @ top, g @ mean, g @ reward]
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
        if isinstance(decision.evidence, Trail) and decision.evidence.direction is not None:
            followed: Vector = decision.evidence.direction
            return followed
        return self.policy.direction(state, None) if self.directs else None
