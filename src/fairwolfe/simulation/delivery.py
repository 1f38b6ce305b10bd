"""The plain loop of a policy whose feedback comes late: see `Lateness`."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.simulation.delays import as_delay, rounds_of
from fairwolfe.simulation.lateness import Lateness
from fairwolfe.simulation.plain import PlainRun
from fairwolfe.simulation.streams import Streams

__all__ = ["Answer", "LateRun", "Post"]


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


class LateRun(PlainRun):
    """One run in the world of a seed, with the delays and snapshots of a `Lateness`."""

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
        self.snapshot = self.state  # what decides, where it is not the live state

    def deciding(self) -> Any:
        """The live state, or the snapshot taken at the last refresh."""
        refresh = self.lateness.refresh
        if refresh == 1:
            return self.state
        if (self.t - 1) % refresh == 0:
            self.snapshot = deepcopy(self.state)
        return self.snapshot

    def answer(self, decision: Any, feedback: Any, reward: Vector) -> None:
        """Send it on its way, and learn from what has come by now."""
        clicked = bool(reward[self.first_reward :].any())
        late = rounds_of(self.delay, float(self.rng.random()), clicked)
        self._expect(decision)
        self.post.send(self.t + late, self.t, Answer(decision, feedback))
        for arrived in self.post.come(self.t):
            self.learn(arrived)

    def _expect(self, decision: Any) -> None:
        """The snapshot that decided counts the decision as open, and so does the live state, whose
        count the decision keeps.
        """
        expect = getattr(self.policy, "expect", None)
        if expect is None:
            return
        if self.lateness.refresh > 1:
            self.snapshot = expect(self.snapshot, decision)
        self.state = expect(self.state, decision)

    def learn(self, answer: Answer) -> None:
        """The live state learns it."""
        self.state = self.policy.update(self.state, answer.decision, answer.feedback)
