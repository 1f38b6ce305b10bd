"""Simulated rounds for tests of the engine, and z by its definition."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import fairwolfe as fw
from fairwolfe.core.rows import ArmRows, RankingRows
from fairwolfe.kernels.arms import ArmMailbox
from fairwolfe.kernels.rankings import RankingMailbox
from fairwolfe.kernels.ranks import CompiledRankingWorld
from fairwolfe.kernels.worlds import CompiledArmWorld
from fairwolfe.objectives import Custom
from fairwolfe.ranking.policies import as_policy

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


def arms_draws(run: Any, rng: np.random.Generator, m: int) -> tuple[Any, Any]:
    """What the rule and the smoothing draw."""
    problem = run.kind.problem
    size = (m, run.plan.samples, problem.n_objectives + 2)
    return np.ascontiguousarray(run.base.draws(rng, problem, m)), rng.normal(size=size)


def arm_rows(run: Any, m: int) -> ArmRows:
    """Room for m decisions."""
    n = run.state.totals.size if run.plan.keeps_direction else 0
    return ArmRows.empty(m, run.kind.problem.dimension, n)


def decide_arms(
    run: Any, contexts: Any, draws: Any, normals: Any, number: int, **how: Any
) -> ArmRows:
    """Decide for contexts (rows, arms, d) with these draws; see `ArmsEngine.decide`."""
    rows = arm_rows(run, len(contexts))
    done = run.engine.decide(rows, contexts, draws, normals, number, **how)
    if done < len(contexts):
        run.raise_failure(useless=done < 0)
    return rows


def decide_rankings(
    run: Any,
    users: Any,
    draws: Any,
    normals: Any,
    number: int,
    explain: bool = True,
    items: Any = None,
    **how: Any,
) -> RankingRows:
    """Rank for users (rows, p) with these draws; see `Rankings.decide`."""
    k, n = run.kind.n_slots, run.state.totals.size if run.plan.keeps_direction else 0
    features = (0, 0) if items is None else (k, items.shape[1])
    rows = RankingRows.empty(len(users), k, users.shape[1], n, features, explain)
    done = run.engine.decide(rows, users, draws, normals, number, items, **how)
    if done < len(users):
        run.raise_failure(useless=False)
    return rows


class Game:
    """A policy that plays. refresh > 1: another engine decides, renewed every so many rounds."""

    slots: tuple[int, ...] = ()

    def __init__(self, run: Any, decider: Any, mailbox: Any, world: Any, refresh: int) -> None:
        self.run, self.decider, self.mailbox, self.world = run, decider, mailbox, world
        self.refresh = refresh
        n = run.state.totals.size
        self.sums = (np.zeros(n), np.zeros(n), np.zeros(3))

    def play(self, drawn: Drawn, start: int, stop: int, done: int | None = None) -> Any:
        """Rounds start to below stop of those that were drawn; their actions."""
        part = drawn.part(start, stop)
        out = Out(np.empty((stop - start, *self.slots), np.int64), *self.sums)
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
        run = policy.init(problem)
        decider = policy.init(problem) if refresh > 1 else None
        mailbox = ArmMailbox(D, n, n if run.plan.keeps_direction else 0) if late else None
        if world is None:
            world = CompiledArmWorld("linear", rng.random(n * D), n, D, n_arms)
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
        self.slots = (k,)
        run = as_policy(policy).init(problem)
        decider = as_policy(policy).init(problem) if refresh > 1 else None
        mailbox = None
        if late:
            mailbox = RankingMailbox(k, n_rewards, n if run.plan.keeps_direction else 0)
        items = rng.normal(size=(m, factors)) / 2
        world = CompiledRankingWorld(
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


# --- z with open decisions, by its definition -----------------------------------------------------


def minus_z() -> Custom:
    """f(z) = -|z|^2/2, whose gradient is -z: a direction then shows z."""
    return Custom(lambda z: -0.5 * float(z @ z), lambda z: -z, smooth=True)


class Made(NamedTuple):
    """A decision for `Averages`: its expected features (d,) in a block, and the estimates of other
    rewards that were recorded with it.
    """

    block: int
    x: Any
    recorded: Any


class Averages:
    """z from lists of decisions and answers: see the docstring of kernels/engine.py.

    The last coordinates are linear in the features; those before them count by what was recorded.
    """

    def __init__(self, low: Any, high: Any, memory: float | None = None) -> None:
        self.low, self.high = low, high
        self.keep = 1.0 if memory is None else 0.5 ** (1.0 / memory)
        self.issued: list[Made] = []
        self.open: set[int] = set()
        self.answers: list[tuple[Made, Any]] = []

    def decided(self, made: Made) -> None:
        """One more is open."""
        self.open.add(len(self.issued))
        self.issued.append(made)

    def answered(self, place: int, reward: Any) -> None:
        """One is answered."""
        self.open.remove(place)
        self.answers.append((self.issued[place], reward))

    def z(self, theta: Any) -> Any:
        """theta (blocks, linear rewards, d)."""
        n, linear = self.low.size, theta.shape[1]
        ages = self.keep ** np.arange(len(self.answers))[::-1]
        past = self.keep ** len(self.open)
        at = past * sum((w * r for w, (_, r) in zip(ages, self.answers, strict=True)), np.zeros(n))
        over = np.full(n, past * ages.sum())
        known = {made.block for made, _ in self.answers}
        error = np.zeros(linear)
        for w, (made, reward) in zip(ages, self.answers, strict=True):
            error += w * (reward[n - linear :] - theta[made.block] @ made.x)
        total, weight = np.zeros(n), np.zeros(n)
        for place in self.open:
            made, w = self.issued[place], self.keep ** (len(self.issued) - 1 - place)
            total[: n - linear] += w * made.recorded
            weight[: n - linear] += w
            if made.block in known:
                total[n - linear :] += w * (theta[made.block] @ made.x)
                weight[n - linear :] += w
        if self.answers:
            total[n - linear :] += weight[n - linear :] * error / ages.sum()
        total = np.clip(total, weight * self.low, weight * self.high)
        return (at + total) / np.maximum(over + weight, 1.0)
