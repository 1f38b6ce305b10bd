"""The compiled loop: chunks of rounds without Python, by the engine that agents decide with.

Feedback at once is feedback with a delay of 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.environments.rankings import RankingWorld
from fairwolfe.kernels.arms import ArmMailbox
from fairwolfe.kernels.rankings import RankingMailbox
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation.delays import as_delay, rounds_of
from fairwolfe.simulation.lateness import Lateness
from fairwolfe.simulation.streams import Streams

__all__ = ["ArmsRun", "CompiledRun", "RankingsRun"]

_CHUNK_BYTES = 4_000_000  # of contexts drawn at once: a few milliseconds of work
_CHUNK_MULTIPLIES = 200_000_000  # the same, of rankings: about a tenth of a second
_CHUNK = 4096  # rankings drawn at once, at most


class ArmsDrawn(NamedTuple):
    """What is drawn for the next rounds, whatever is decided in them."""

    contexts: Cube  # (rounds, arms, d)
    tags: IntVector  # (rounds,)
    noise: Matrix
    draws: Matrix  # of the rule
    normals: Cube  # of randomised smoothing
    delays: IntMatrix  # (rounds, 2): without and with a click; -1: the answer never comes


class RankingsDrawn(NamedTuple):
    """The same for rankings."""

    users: Matrix  # (users, p)
    tables: Cube  # (1 or users, q, items)
    tags: IntVector  # (rounds,): the user of each round
    noise: Matrix
    draws: Matrix
    normals: Cube
    delays: IntMatrix


class Played(NamedTuple):
    """What comes out of rounds: actions, and sums over all rounds of a run."""

    actions: Any  # (rounds,) or (rounds, slots)
    mean_sum: Vector
    reward_sum: Vector
    scalar: Vector  # (3,): max_a <g, mu_a>, <g, mu>, <g, r>


class CompiledRun(ABC):
    """One run of a policy in the world of a seed, played chunk by chunk.

    truth: whether the best action for each direction is asked for. With a lateness, `rng` draws
    the delays, and what arrives after the horizon is never learnt.
    """

    def __init__(
        self,
        policy: FrankWolfe,
        environment: Any,
        world: Any,
        streams: Streams,
        truth: bool = True,
        lateness: Lateness | None = None,
        rng: np.random.Generator | None = None,
        horizon: int = 0,
    ) -> None:
        self.environment, self.world, self.streams = environment, world, streams
        self.problem: Problem = environment.problem()
        self.running: Any = policy.init(self.problem)
        self.decider: Any = None
        self.mailbox: Any = None
        self.lateness, self.rng, self.horizon, self.done = lateness, rng, horizon, 0
        if lateness is not None:
            self.mailbox = self._mailbox()
            if lateness.refresh > 1:
                self.decider = policy.init(self.problem)
        self.mean_sum, self.reward_sum = np.zeros((2, self.problem.n_objectives))
        self.scalar = np.zeros(3)
        self.truth = truth
        self.most = 16  # rounds in a chunk

    @property
    def callbacks(self) -> int:
        """How often Python functions of the user were called in the rounds so far."""
        return sum(one.callbacks for one in (self.running, self.decider) if one is not None)

    @abstractmethod
    def _mailbox(self) -> Any:
        """Room for answers on their way."""

    @abstractmethod
    def drawn(self, wanted: int) -> Any:
        """What is drawn for the next rounds, at most those wanted."""

    @abstractmethod
    def _play(self, drawn: Any, out: Played, decider: Any, refresh: int) -> int:
        """Play the rounds that were drawn."""

    def play(self, wanted: int) -> Any:
        """Play at most that many rounds; their actions."""
        drawn = self.drawn(wanted)
        n, slots = len(drawn.tags), self.problem.n_slots
        actions = np.empty(n if slots is None else (n, slots), dtype=np.int64)
        out = Played(actions, self.mean_sum, self.reward_sum, self.scalar)
        refresh = 1 if self.lateness is None else min(self.lateness.refresh, self.horizon + 1)
        decider = None if self.decider is None else self.decider.engine
        played = self._play(drawn, out, decider, refresh)
        if played < n:
            (self.decider or self.running).raise_failure(useless=played < 0)
        self.done += n
        return actions

    def delays(self, n: int) -> IntMatrix:
        """Those of the next n rounds, (n, 2); -1 where the answer comes after the horizon."""
        if self.lateness is None or self.rng is None:
            return np.zeros((n, 2), dtype=np.int64)
        law = as_delay("delay", self.lateness.delay)
        each = [
            [rounds_of(law, u, False), rounds_of(law, u, True)] for u in self.rng.random(n).tolist()
        ]
        longest = float(self.horizon)  # as floats, since a law may give any whole number
        delays: IntMatrix = np.minimum(np.array(each, dtype=np.float64), longest).astype(np.int64)
        never = np.arange(self.done + 1, self.done + 1 + n)[:, None] + delays > self.horizon
        delays[never] = -1
        return delays


class ArmsRun(CompiledRun):
    """One run of a policy for arms."""

    def __init__(
        self, policy: FrankWolfe, environment: Any, world: Any, *rest: Any, **options: Any
    ) -> None:
        super().__init__(policy, environment, world, *rest, **options)
        self.rewards = environment.reward_program(world)

    @property
    def callbacks(self) -> int:
        return super().callbacks + int(self.rewards.callbacks)

    @staticmethod
    def plays(environment: Any) -> bool:
        """Whether the loop can play in an environment."""
        return hasattr(environment, "reward_program")

    def _mailbox(self) -> ArmMailbox:
        n = self.problem.n_objectives
        return ArmMailbox(self.problem.dimension, n, n if self.running.plan.keeps_direction else 0)

    def drawn(self, wanted: int) -> ArmsDrawn:
        n = min(wanted, self.most)
        contexts, tags = self.environment.draw_contexts(self.world, self.streams.contexts, n)
        self.most = max(16, _CHUNK_BYTES * n // contexts.nbytes)
        noise = self.environment.draw_noise(self.streams.noise, n)
        draws, normals = self.running.draws(self.streams.policy, n)
        return ArmsDrawn(contexts, tags, noise, draws, normals, self.delays(n))

    def _play(self, drawn: ArmsDrawn, out: Played, decider: Any, refresh: int) -> int:
        played: int = self.running.engine.play(
            decider, self.rewards, drawn, self.mailbox, out, self.done, refresh
        )
        return played


class RankingsRun(CompiledRun):
    """One run of a ranking policy."""

    def __init__(
        self, policy: FrankWolfe, environment: Any, world: Any, *rest: Any, **options: Any
    ) -> None:
        super().__init__(policy, environment, world, *rest, **options)
        self.users, self.tables = environment.features(world)
        self.rewards = world.rewards
        problem = self.problem
        work = problem.dimension**2 + (problem.n_items or 0) * self.tables.shape[1] ** 2
        self.most = max(16, min(_CHUNK, _CHUNK_MULTIPLIES // work))

    @staticmethod
    def plays(environment: Any) -> bool:
        """Whether the loop can play in an environment."""
        return isinstance(environment, RankingWorld)

    def _mailbox(self) -> RankingMailbox:
        plan, n = self.running.plan, self.problem.n_objectives
        kept = n if plan.keeps_direction else 0
        return RankingMailbox(self.problem.n_slots or 0, len(self.problem.rewards), kept)

    def drawn(self, wanted: int) -> RankingsDrawn:
        n = min(wanted, self.most)
        tags = self.environment.draw_users(self.streams.contexts, n)
        noise = self.environment.draw_noise(self.streams.noise, n)
        draws, normals = self.running.draws(self.streams.policy, n)
        rest = (noise, draws, normals, self.delays(n))
        return RankingsDrawn(self.users, self.tables, tags, *rest)

    def _play(self, drawn: RankingsDrawn, out: Played, decider: Any, refresh: int) -> int:
        played: int = self.running.engine.play(
            decider, self.rewards, drawn, self.mailbox, out, self.done, refresh, self.truth
        )
        return played
