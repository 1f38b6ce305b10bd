"""The compiled loop: chunks of rounds without Python, by the engine that agents decide with.

Feedback at once is feedback with a delay of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.bandits.choosing import LinearBandit
from fairwolfe.core.arrays import Cube, IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.protocols import CompiledWorld
from fairwolfe.kernels.arms import ArmMailbox
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.engine import CompiledArms, compiles
from fairwolfe.reduction.state import State
from fairwolfe.simulation.delays import as_delay, rounds_of
from fairwolfe.simulation.lateness import Lateness
from fairwolfe.simulation.streams import Streams

__all__ = ["ArmsRun", "Drawn", "Played", "drawn_delays", "policy_draws"]

_CHUNK_BYTES = 4_000_000  # of contexts drawn at once: a few milliseconds of work


class Drawn(NamedTuple):
    """What is drawn for the next rounds, whatever is decided in them."""

    contexts: Cube  # (rounds, arms, d)
    tags: IntVector  # (rounds,)
    noise: Matrix
    draws: Matrix  # of the rule
    normals: Cube  # of randomised smoothing
    delays: IntMatrix  # (rounds, 2): without and with a click; -1: the answer never comes


class Played(NamedTuple):
    """What comes out of rounds: actions, and sums over all rounds of a run."""

    actions: Any  # (rounds,) or (rounds, slots)
    mean_sum: Vector
    reward_sum: Vector
    scalar: Vector  # (3,): max_a <g, mu_a>, <g, mu>, <g, r>


class ArmsRun:
    """One run of a policy for arms in the world of a seed, played chunk by chunk."""

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
        problem = environment.problem()
        n = problem.n_objectives
        self.run = CompiledArms(policy, problem)
        self.rewards = environment.reward_program(world)
        self.mean_sum, self.reward_sum = np.zeros((2, n))
        self.scalar = np.zeros(3)
        self.most = 16  # rounds in a chunk, until the size of a context is known
        self.done, self.horizon = 0, horizon
        self.lateness, self.rng = lateness, rng
        self.decider: CompiledArms | None = None
        self.mailbox = None
        if lateness is not None:
            kept = n if self.run.plan.keeps_direction else 0
            self.mailbox = ArmMailbox(problem.dimension, n, kept)
            if lateness.refresh > 1:
                self.decider = CompiledArms(policy, problem)

    @staticmethod
    def why_not(policy: FrankWolfe, environment: Any) -> str | None:
        """The part that keeps a run out of this loop, or None."""
        if policy.iterate != "observed":
            return f"iterate={policy.iterate!r}"
        if not isinstance(policy.base, LinearBandit):
            return f"the base {type(policy.base).__name__}"
        if not compiles(policy.base):
            return f"the base {policy.base!r:.80}"
        if not isinstance(environment, CompiledWorld):
            return f"the environment {type(environment).__name__}"
        return None

    @property
    def state(self) -> State:
        """Of the policy."""
        return self.run.policy_state

    @property
    def base(self) -> Any:
        """Of the policy, with its settings for this problem."""
        return self.run.base

    @property
    def callbacks(self) -> int:
        """How often Python functions of the user were called in the rounds so far."""
        return self.run.callbacks + (self.decider.callbacks if self.decider else 0)

    def _drawn(self, wanted: int) -> Drawn:
        """What is drawn for the next rounds, at most those wanted."""
        n = min(wanted, self.most)
        contexts, tags = self.environment.draw_contexts(self.world, self.streams.contexts, n)
        self.most = max(16, _CHUNK_BYTES * n // contexts.nbytes)
        noise = self.environment.draw_noise(self.streams.noise, n)
        draws, normals = policy_draws(self.run, self.environment.problem(), self.streams.policy, n)
        delays = np.zeros((n, 2), dtype=np.int64)
        if self.lateness is not None and self.rng is not None:
            delays = drawn_delays(self.lateness, self.rng, n, self.done, self.horizon)
        return Drawn(contexts, tags, noise, draws, normals, delays)

    def play(self, wanted: int) -> IntVector:
        """Play at most that many rounds; their actions."""
        drawn = self._drawn(wanted)
        actions = np.empty(len(drawn.tags), dtype=np.int64)
        out = Played(actions, self.mean_sum, self.reward_sum, self.scalar)
        refresh = 1 if self.lateness is None else min(self.lateness.refresh, self.horizon + 1)
        played = self.run.engine.play(
            self.decider.engine if self.decider else None,
            self.rewards,
            drawn,
            self.mailbox,
            out,
            self.done,
            refresh,
        )
        if played < len(actions):
            (self.decider or self.run).raise_failure(useless=played < 0)
        self.done += len(actions)
        return actions


def policy_draws(run: Any, problem: Any, rng: np.random.Generator, n: int) -> tuple[Matrix, Cube]:
    """What a policy draws in n rounds: for the direction first, then for the action."""
    samples = run.plan.samples
    normals = np.empty((n, samples, problem.n_objectives + 2))
    draw: Callable[..., Matrix] = run.base.draws
    if samples == 0:
        return np.ascontiguousarray(draw(rng, problem, n)), normals
    rows = []
    for s in range(n):
        normals[s] = rng.standard_normal(normals.shape[1:])
        rows.append(draw(rng, problem, 1)[0])
    return np.array(rows), normals


def drawn_delays(
    lateness: Lateness, rng: np.random.Generator, n: int, done: int, horizon: int
) -> IntMatrix:
    """The delays of the next n rounds, (n, 2); -1 where the answer comes after the horizon."""
    law = as_delay("delay", lateness.delay)
    each = [[rounds_of(law, u, False), rounds_of(law, u, True)] for u in rng.random(n).tolist()]
    longest = float(horizon)  # as floats, since a law may give any whole number
    delays: IntMatrix = np.minimum(np.array(each, dtype=np.float64), longest).astype(np.int64)
    never = np.arange(done + 1, done + 1 + n)[:, None] + delays > horizon
    delays[never] = -1
    return delays
