"""The plain loop of a policy whose feedback comes late: see `Lateness`."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.reduction.state import State
from fairwolfe.simulation.delays import as_delay
from fairwolfe.simulation.lateness import Lateness
from fairwolfe.simulation.plain import PlainRun
from fairwolfe.simulation.streams import Streams

__all__ = ["LateRun", "Post", "copied"]


def copied(state: Any) -> Any:
    """A state that shares no array with the first.

    The plan of the reduction never changes and is shared. What lies deeper is copied whatever it
    is: a regressor keeps its fitted model where other oracles keep nothing that changes.
    """
    memo: dict[int, Any] = {}
    if isinstance(state, State):
        plan, problem = state.plan, state.plan.kind.problem
        memo = {id(plan): plan, id(problem): problem}
    return deepcopy(state, memo)


@dataclass
class Post:
    """Answers on their way, the next to come first; those of one round in the order of decisions.

    It holds no more than the longest delay.
    """

    waiting: list[tuple[int, int, Any]] = field(default_factory=list)

    def send(self, arrival: int, t: int, answer: Any) -> None:
        """An answer to decision t, which is there after round `arrival`."""
        heappush(self.waiting, (arrival, t, answer))

    def come(self, now: int) -> Iterator[Any]:
        """All that is there after round `now`."""
        while self.waiting and self.waiting[0][0] <= now:
            yield heappop(self.waiting)[2]


class LateRun(PlainRun):
    """One run in the world of a seed, with the delays, snapshots and replicas of a `Lateness`."""

    def __init__(
        self,
        policy: Any,
        environment: Any,
        world: Any,
        streams: Streams,
        truth: bool,
        lateness: Lateness,
        rng: np.random.Generator,
    ) -> None:
        super().__init__(policy, environment, world, streams, truth)
        self.lateness = lateness
        self.delay = as_delay("delay", lateness.delay)
        self.rng = rng
        self.first_reward = environment.problem().n_items or 0
        self.post = Post()
        # `state` is the shared one. A single replica is that state itself, not a copy.
        self.replicas = [self.state]
        self.snapshots = list(self.replicas)

    def deciding(self) -> Any:
        """The replica whose turn it is, as it was at the last refresh."""
        done, lateness = self.t - 1, self.lateness
        if lateness.replicas > 1 and done % lateness.merge == 0:
            self.replicas = [copied(self.state) for _ in range(lateness.replicas)]
        if lateness.refresh == 1:
            self.snapshots = self.replicas
        elif done % lateness.refresh == 0:
            self.snapshots = [copied(replica) for replica in self.replicas]
        return self.snapshots[done % lateness.replicas]

    def answer(self, decision: Any, feedback: Any, reward: Vector) -> None:
        """Send it on its way, and learn from what has come by now."""
        clicked = bool(reward[self.first_reward :].any())
        late = self.delay.rounds(float(self.rng.random()), clicked)
        replica = (self.t - 1) % self.lateness.replicas
        self.post.send(self.t + late, self.t, (replica, decision, feedback))
        for arrived in self.post.come(self.t):
            self._learn(*arrived)

    def _learn(self, replica: int, decision: Any, feedback: Any) -> None:
        """The shared state learns it, and the replica that decided."""
        self.state = self.policy.update(self.state, decision, feedback)
        if self.lateness.replicas == 1:
            self.replicas[0] = self.state
        else:
            own = self.replicas[replica]
            self.replicas[replica] = self.policy.update(own, decision, feedback)
