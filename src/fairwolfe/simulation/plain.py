"""The plain loop: any policy and environment that keep the contracts, round by round."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.decision import Choice
from fairwolfe.kernels.compile import Kernel, ready
from fairwolfe.simulation.streams import Streams

__all__ = ["PlainRun"]


class PlainRun:
    """The loop in Python, for any policy and environment that keep the contracts."""

    def __init__(
        self, policy: Any, environment: Any, world: Any, streams: Streams, truth: bool
    ) -> None:
        # A reference policy may know the world.
        self.policy = policy.meet(world) if hasattr(policy, "meet") else policy
        self.environment = environment
        self.world = world
        self.streams = streams
        problem = environment.problem()
        self.state = self.policy.init(problem)
        ready(self.kernels(self.policy, self.state, environment))
        self.mean_sum, self.reward_sum = np.zeros((2, problem.n_objectives))
        self.scalar = np.zeros(3)
        self.truth = truth
        self.t = 0

    @staticmethod
    def kernels(policy: Any, state: Any, environment: Any) -> list[Kernel[..., Any]]:
        """What the rounds call, as far as policy and environment tell."""
        own = policy.kernels(state) if hasattr(policy, "kernels") else ()
        return [*own, *getattr(environment, "kernels", tuple)()]

    def play(self, wanted: int) -> IntVector:
        """Play at most that many rounds; their actions."""
        n = min(wanted, 100)
        return np.array([self._round() for _ in range(n)], dtype=np.int64)

    def _round(self) -> Any:
        environment, world, streams = self.environment, self.world, self.streams
        self.t += 1
        context = environment.context(world, self.t, streams.contexts)
        state = self.deciding()
        decision = self.policy.act(state, context, streams.policy)
        feedback = environment.feedback(world, context, decision.action, streams.noise)
        reward = self._reward(state, decision, feedback)
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
        """What a decision came to, known when it was made; here it is learnt at once."""
        self.state = self.policy.update(self.state, decision, feedback)

    def _reward(self, state: Any, decision: Any, feedback: Any) -> Vector:
        """The reward vector; of a ranking, as the policy counts exposures."""
        plan = getattr(state, "plan", None)
        if plan is None or plan.catalogue is None:
            plain: Vector = feedback
            return plain
        choice = Choice(decision.action, decision.probability, decision.evidence[0])
        counted: Vector = plan.base.reward(state.base, choice, feedback)[1]
        return counted

    def _direction(self, state: Any, decision: Any) -> Vector | None:
        """The direction of a decision, where the policy follows one."""
        carried: Vector | None = getattr(decision.evidence, "direction", None)
        shell = getattr(self.policy, "shell", self.policy)
        if carried is None and hasattr(shell, "direction"):
            carried = shell.direction(state, None)
        return carried
