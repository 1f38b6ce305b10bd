"""Simulated rounds for tests of the engine: what is drawn, what comes out, and who plays."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import fairwolfe as fw
from fairwolfe.kernels.arms import ArmMailbox
from fairwolfe.kernels.rankings import RankingMailbox
from fairwolfe.kernels.ranks import RankingWorld
from fairwolfe.kernels.worlds import ArmWorld
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction.engine import CompiledArms
from fairwolfe.reduction.ranked import CompiledRankings

D = 3


class Drawn(NamedTuple):
    """What a loop is given."""

    tags: Any
    noise: Any
    draws: Any
    normals: Any
    delays: Any
    contexts: Any = None
    users: Any = None
    tables: Any = None

    def part(self, start: int, stop: int) -> Drawn:
        """Some of the rounds; users and tables are those of the world."""
        fixed = ("users", "tables")
        return self._replace(
            **{
                name: column[start:stop]
                for name, column in self._asdict().items()
                if column is not None and name not in fixed
            }
        )


class Out(NamedTuple):
    """What it gives."""

    actions: Any
    mean_sum: Any
    reward_sum: Any
    scalar: Any


def delays_of(rng: np.random.Generator, m: int, longest: int, never: float = 0.05) -> Any:
    delays = rng.integers(0, longest + 1, size=(m, 2))
    delays[rng.random(m) < never] = -1
    return delays


def arms_problem(n_arms: int | None = None) -> fw.Problem:
    rewards = {"a": (0.0, 1.0), "b": (0.0, 2.0), "c": (0.0, 1.0)}
    return fw.Problem.arms(D, rewards, parameter_norm=1.0, n_arms=n_arms)


def ranking_problem(m: int, k: int, p: int, q: int, n_rewards: int = 1) -> fw.Problem:
    rewards = {f"r{i}": (0.0, float(k)) for i in range(n_rewards)}
    return fw.Problem.ranking(m, k, (p, q), rewards=rewards, feature_norm=20.0)


def arms_draws(run: CompiledArms, rng: np.random.Generator, m: int) -> tuple[Any, Any]:
    """What the rule and the smoothing draw."""
    problem = run.kind.problem
    size = (m, run.plan.samples, problem.n_objectives + 2)
    return np.ascontiguousarray(run.base.draws(rng, problem, m)), rng.normal(size=size)


class Game:
    """A policy that plays. refresh > 1: another engine decides, renewed every so many rounds."""

    def __init__(self, run: Any, decider: Any, mailbox: Any, world: Any, refresh: int) -> None:
        self.run, self.decider, self.mailbox, self.world = run, decider, mailbox, world
        self.refresh = refresh
        n = run.state.totals.size
        self.sums = (np.zeros(n), np.zeros(n), np.zeros(3))

    def play(self, drawn: Drawn, start: int, stop: int, done: int | None = None) -> Any:
        """Rounds start to below stop of those that were drawn; their actions."""
        part = drawn.part(start, stop)
        slots = self.run.state.slots.shape[1:] if hasattr(self.run.state, "slots") else ()
        out = Out(np.empty((stop - start, *slots), np.int64), *self.sums)
        played = self.run.engine.play(
            None if self.decider is None else self.decider.engine,
            self.world,
            part,
            self.mailbox,
            out,
            start if done is None else done,
            self.refresh,
        )
        assert played == stop - start, (played, start, stop)
        return out.actions


class ArmsGame(Game):
    """Arms in a linear world, or another one."""

    def __init__(
        self,
        policy: Any,
        seed: int = 0,
        late: bool = False,
        refresh: int = 1,
        n_arms: int = 5,
        world: Any = None,
    ) -> None:
        problem, rng = arms_problem(), np.random.default_rng(seed)
        n, self.n_arms = problem.n_objectives, n_arms
        run = CompiledArms(policy, problem)
        decider = CompiledArms(policy, problem) if refresh > 1 else None
        mailbox = ArmMailbox(D, n, n if run.plan.keeps_direction else 0) if late else None
        if world is None:
            world = ArmWorld("linear", rng.random(n * D), n, D, n_arms)
        super().__init__(run, decider, mailbox, world, refresh)

    def draw(self, rng: np.random.Generator, m: int, longest: int = 20, **how: Any) -> Drawn:
        n = self.run.state.totals.size
        return Drawn(
            rng.integers(0, 4, size=m),
            rng.random((m, n)),
            *arms_draws(self.run, rng, m),
            delays_of(rng, m, longest, **how),
            contexts=rng.random((m, self.n_arms, D)) / 2,
        )


class RankingsGame(Game):
    """Rankings in a world of factors; features of users (6, p) and items (1 or 6, q, m)."""

    def __init__(
        self,
        policy: Any,
        seed: int = 0,
        late: bool = False,
        refresh: int = 1,
        shape: tuple[int, int, int, int, int] = (9, 3, 3, 3, 1),
        own_tables: bool = False,
    ) -> None:
        m, k, p, q, n_rewards = shape
        rng, n, factors, self.users = np.random.default_rng(seed), m + n_rewards, 4, 6
        problem = ranking_problem(*shape)
        run = CompiledRankings(as_policy(policy), problem)
        decider = CompiledRankings(as_policy(policy), problem) if refresh > 1 else None
        mailbox = None
        if late:
            mailbox = RankingMailbox(k, n_rewards, n if run.plan.keeps_direction else 0)
        items = rng.normal(size=(m, factors)) / 2
        world = RankingWorld(
            rng.normal(size=(n_rewards, self.users, factors)) / 2,
            items,
            np.ascontiguousarray(items.T),
            rng.random((self.users if own_tables else 1, k)),
            np.tile([0.0, 1.0], (n_rewards, 1)),
        )
        self.features = rng.normal(size=(self.users, p)) / 3
        self.tables = rng.normal(size=(self.users if own_tables else 1, q, m)) / 3
        self.n_noise = k * (1 + n_rewards)
        super().__init__(run, decider, mailbox, world, refresh)

    def draw(self, rng: np.random.Generator, m: int, longest: int = 20, **how: Any) -> Drawn:
        n, plan = self.run.state.totals.size, self.run.plan
        return Drawn(
            rng.integers(0, self.users, size=m),
            rng.random((m, self.n_noise)),
            rng.random((m, plan.uniforms)),
            rng.normal(size=(m, plan.samples, n + 2)),
            delays_of(rng, m, longest, **how),
            users=self.features,
            tables=self.tables,
        )
