"""Rounds of the engine for tests/build/asan_rounds.py: every kind of policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, Fixed, LinUCB, Rule, SquareCB, Thompson, Uniform
from fairwolfe.core.feedback import Shown
from fairwolfe.kernels.worlds import CompiledArmWorld
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Custom,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    PerMerit,
    TwoSided,
    Welfare,
    Within,
)
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction.running import PolicyRunning
from fairwolfe.smoothing import Augmented, Identity, Moreau, Randomized
from tests.kernels.games import (
    ArmsGame,
    D,
    RankingsGame,
    arms_draws,
    arms_problem,
    decide_arms,
    decide_rankings,
    ranking_problem,
)

GINI = TwoSided(GiniEquality(), beta=0.5)


def log_value(z: Any) -> float:
    return float(np.log1p(np.abs(z)).sum())


def log_gradient(z: Any) -> Any:
    return np.sign(z) / (1.0 + np.abs(z))


@dataclass(frozen=True)
class Optimist(Rule):
    """A rule in Python."""

    def choose_arm(self, values: Any, widths: Any, t: int, uniform: float) -> Any:
        return int((values + uniform * widths).argmax()), None


# --- arms ---------------------------------------------------------------------------------------

BASES: list[Any] = [
    LinUCB(exploration=0.3),
    LinUCB(model="extended", exploration=0.1),
    LinUCB(exploration="pointwise"),
    LinUCB(model="extended", exploration="pointwise"),
    SquareCB(gamma0=10.0),
    SquareCB(gamma0="theorem"),
    SquareCB(gamma0=10.0, oracle=OnlineGradient()),
    EpsilonGreedy(0.2, oracle=Ridge(0.5)),
    EpsilonGreedy(0.2, oracle=OnlineGradient()),
    Thompson(),
    Uniform(),
    Fixed(1),
    Optimist(),
]
CUSTOM = Custom(log_value, log_gradient, smooth=True)
TARGETS: list[tuple[Any, Any]] = [
    (Linear({"a": 1.0, "b": 0.5}), None),
    (GiniWelfare(), None),
    (Nash(0.1), None),
    (Welfare(0.5, 0.1), None),
    (Welfare(0.25, 0.1) + 0.5 * Minimum(), None),
    (Minimum(), Moreau(0.7, horizon=123)),
    (Minimum(), Augmented()),
    (GiniWelfare(), Randomized(n_samples=3)),
    (Linear({"a": 1.0}) + AtMost({"b": 0.5}), None),
    (Linear({"c": 1.0}) + AtMost({"a": 0.4, "c": 0.6}, per="b", margin=0.1), None),
    (Minimum() + Within([0.1, 0.2, 0.0], [0.6, 0.9, 1.0], margin=0.01), None),
    (
        Mapped(GeneralizedGini((1.0, 0.5, 0.1)), [[1.0, 0.0, 0.5], [0.5, 0.5, 0], [0, 1.0, 1.0]])
        + AtLeast([0.2, 0.1, 0.1], penalty=2.0),
        None,
    ),
    (ByGroup(Minimum(), ["x", "y", "x"]) + PerMerit(Nash(0.1), [1.0, 2.0, 3.0]), None),
    (Minimum().on("a", "b") + AtLeast({"c": 0.2}), None),
    (CUSTOM, Identity()),
    (CUSTOM + Linear({"a": 0.1}) + AtMost({"b": 0.5}), Identity()),
    (Custom(log_value, log_gradient), Randomized(n_samples=2)),
]


def arm_policies() -> Iterator[Any]:
    """Every rule and regression, every family of objectives, memory, and open decisions or not."""
    yield from (fw.FrankWolfe(Minimum(), base) for base in BASES)
    for objective, smoothing in TARGETS:
        yield fw.FrankWolfe(objective, LinUCB(exploration=0.1), smoothing)
    for objective in (GiniWelfare(), Minimum() + AtMost({"b": 0.5})):
        for base in (SquareCB(gamma0=30.0), LinUCB(model="extended", exploration=0.1)):
            yield fw.FrankWolfe(objective, base, memory=40.0)
            yield fw.FrankWolfe(objective, base, anticipate=False)
    yield fw.MOLinCB(GiniWelfare())
    yield fw.MOLinCB(CUSTOM, steps=2)


def calls_python(run: Any) -> bool:
    """Whether its gradients are Python functions, which a sanitizer makes slow."""
    trees = (run.plan.tree, getattr(run.plan, "ascent", (None,))[0])
    if getattr(run.plan, "own_rule", None) is not None:
        return True
    return any(tree is not None and tree.calls_python for tree in trees)


def decide_and_learn(
    running: Any, rng: np.random.Generator, rounds: int, make: Any, learn: Any
) -> int:
    """Decide batches, propose, open, answer them late and out of order, withdraw; how many were
    answered. running: says what is played, since items come and go.
    """
    waiting: list[Any] = []
    number = answered = 0
    while number < rounds:
        m = int(rng.integers(1, 5))
        how = {"advance": bool(rng.random() < 0.8), "every": int(rng.integers(1, 4))}
        propose = bool(rng.random() < 0.2)
        rows = make(m, number, propose=propose, **how)
        number += m
        opened = not propose or rng.random() < 0.5
        if propose and opened:
            running().engine.open_rows(rows)
        if opened:
            waiting.append(rows)
        while len(waiting) > 5 or (number >= rounds and waiting):
            rows = waiting.pop(int(rng.integers(len(waiting))))
            rows = rows.part(rng.permutation(len(rows.head)))
            if rng.random() < 0.1:
                running().engine.withdraw(rows)
            else:
                learn(rows)
                answered += len(rows.head)
    run = running()
    assert run.state.t[0] == answered
    assert not run.plan.anticipate or run.state.open[0] == 0.0
    for name, array in zip(run.state._fields[:-1], run.state[:-1], strict=True):
        assert np.isfinite(array).all(), name
    return answered


def one_arms_policy(policy: Any, rng: np.random.Generator, rounds: int, n_arms: int | None) -> None:
    problem = arms_problem(n_arms)
    run = policy.init(problem)
    n = problem.n_objectives
    most = 4

    def make(m: int, number: int, **how: Any) -> Any:
        nonlocal most
        if rng.random() < 0.02:
            most = min(most + 3, 40)  # contexts with more arms than ever before
        draws, normals = arms_draws(run, rng, m)
        if n_arms is None:
            contexts = rng.random((m, int(rng.integers(2, most + 1)), D)) / 2
            return decide_arms(run, contexts, draws, normals, number, **how)
        contexts = rng.random((m, 1, D)) / 2
        how["n_arms"] = n_arms
        if rng.random() < 0.5:
            how["n_arms"] = some = int(rng.integers(2, n_arms + 1))
            how["places"] = np.array([np.sort(rng.permutation(n_arms)[:some]) for _ in range(m)])
        return decide_arms(run, contexts, draws, normals, number, **how)

    def learn(rows: Any) -> None:
        run.learn(rows, rng.random((len(rows.head), n)))
        if rng.random() < 0.05:
            run.engine.study(rows, rng.random((len(rows.head), n)))

    decide_and_learn(lambda: run, rng, rounds, make, learn)


def arms(rounds: int) -> None:
    """Every policy, decided and answered by rows."""
    policies, rng = list(arm_policies()), np.random.default_rng(0)
    for policy in policies:
        one_arms_policy(policy, rng, 8 + rounds // len(policies), None)


def arms_of_their_own(rounds: int) -> None:
    """Arms with a block each, and candidates among them."""
    rng = np.random.default_rng(1)
    bases = [base for base in BASES if getattr(base, "model", "shared") != "extended"]
    for base in bases:
        policy = fw.FrankWolfe(Minimum(), base, memory=30.0 if rng.random() < 0.3 else None)
        one_arms_policy(policy, rng, 8 + rounds // len(bases), 6)
    one_arms_policy(fw.MOLinCB(GiniWelfare()), rng, 8 + rounds // len(bases), 6)


def arm_worlds(rng: np.random.Generator, n: int, n_arms: int) -> list[CompiledArmWorld]:
    means = rng.random(4 * n_arms * n)

    def reward(arm: int, tag: int, features: Any, noise: Any) -> tuple[Any, Any]:
        return features[arm][:n], features[arm][:n] + 0.1 * noise

    def best(g: Any, tag: int, features: Any) -> int:
        return int(np.argmax(features[:, :n] @ g))

    return [
        CompiledArmWorld("linear", rng.random(n * D), n, D, n_arms),
        CompiledArmWorld("nonlinear", rng.random(1 + n * (D - 1)), n, D, n_arms),
        CompiledArmWorld("table", np.concatenate([[1.0, 0.0], means]), n, D, n_arms),
        CompiledArmWorld("table", np.concatenate([[2.0, 0.1], means]), n, D, n_arms),
        CompiledArmWorld("table", np.concatenate([[0.0, 0.0], means]), n, D, n_arms),
        CompiledArmWorld.of_functions(reward, best, n, D, n_arms, n),
        CompiledArmWorld.of_functions(reward, None, n, D, n_arms, n),
    ]


def play(game: Any, rng: np.random.Generator, wanted: int) -> None:
    """Chunk by chunk, with delays that become longer."""
    done, longest = 0, int(rng.integers(0, 30))
    while done < wanted:
        m = min(int(rng.integers(1, 3000)), wanted - done)
        game.play(game.draw(rng, m, longest), 0, m, done)
        done, longest = done + m, longest + int(rng.integers(0, 5))
    assert game.run.state.t[0] <= done


def arms_played(rounds: int) -> None:
    """Every policy in the loop, for all rounds, prompt and late, with and without a decider."""
    rng = np.random.default_rng(2)
    for place, policy in enumerate(arm_policies()):
        n_arms = int(rng.integers(2, 12))
        worlds = arm_worlds(rng, 3, n_arms)
        late = place % 3 > 0
        refresh = 1 + place % 5 if late else 1
        game = ArmsGame(policy, place, late, refresh, n_arms, worlds[place % len(worlds)])
        slow = calls_python(game.run) or place % len(worlds) >= 5
        play(game, rng, 8 + (rounds // 10 if slow else rounds))


# --- rankings -----------------------------------------------------------------------------------


BY_MAKER = FWLinUCBRank(
    TwoSided(ByGroup(Minimum() + AtLeast(0.05, share=True), by="maker")), memory=60.0
)


def ranking_policies() -> Iterator[Any]:
    """The four rankers and what they can be told. k = 3."""
    yield FWLinUCBRank(GINI, exploration="theorem")
    yield FWLinUCBRank(
        TwoSided(GiniWelfare(), beta=0.5), smoothing=Moreau(1.0, horizon=99), exploration=0.1
    )
    yield FWLinUCBRank(TwoSided(Welfare(0.5), beta=0.5), exploration=0.1)
    yield FWLinUCBRank(TwoSided(EqualExposure()), memory=50.0, randomize=0.3, exploration=0.1)
    yield FWLinUCBRank(GINI, iterate="expected", exploration=0.1, memory=30.0)
    yield FWLinUCBRank(
        GINI, iterate="expected", position_weights=(0.9, 0.5, 0.2), exploration="theorem"
    )
    yield FWLinUCBRank(GINI, exploration="pointwise", randomize=0.5)
    yield FWLinUCBRank(GINI, exposure="shown", exploration=0.1)
    yield FWLinUCBRank(GINI, exposure="until_last_click", exploration=0.1)
    yield FWLinUCBRank(GINI, anticipate=False, exploration=0.1)
    yield FWLinUCBRank(GINI, smoothing=Randomized(n_samples=2), exploration=0.1)
    yield FWLinUCBRank(GINI, smoothing=Augmented(), exploration=0.1)
    yield FWLinUCBRank(TwoSided(AtLeast(0.1), beta=0.5), exploration=0.1)
    yield FWLinUCBRank(TwoSided(CUSTOM, beta=0.5), smoothing=Identity(), exploration=0.1)
    yield LinUCBRank(exploration=0.2)
    yield UnbiasedLinUCBRank(exploration=0.5)
    yield UnbiasedLinUCBRank(exploration=0.5, clip=True, exposure="shown", randomize=0.2)
    yield FairLearnRank(0.2, exploration=0.3)
    yield FairLearnRank(0.1, tolerance=0.0, exploration="pointwise")


SHAPES = (
    *((9, 3, 2, q, 1 + q % 2) for q in range(1, 12)),
    (12, 5, 1, 13, 1),
    (4, 4, 4, 2, 3),
    (1, 1, 1, 1, 1),
    (16, 12, 3, 5, 1),
    (600, 7, 2, 3, 1),
)
"""(items, slots, features of users, of items, rewards)."""


def one_ranking_policy(
    policy: Any,
    shape: tuple[int, int, int, int, int],
    rng: np.random.Generator,
    rounds: int,
    brought: bool = False,
    moving: bool = False,
) -> None:
    """brought: contexts bring features of the items; moving: items come and go."""
    m, k, p, q, n_rewards = shape
    problem = ranking_problem(*shape)
    policy = as_policy(policy)
    makers = [{"maker": "abcd"[i % 4]} for i in range(m)] if policy is BY_MAKER else []
    run: Any = PolicyRunning.of(policy, problem, makers)
    if not brought:
        run = run.keep_items(rng.normal(size=(m, q)) / 3)

    def change() -> None:
        nonlocal run
        left: Any = run.kind.catalogue.ids
        if rng.random() < 0.5 and left.size <= m + 3:
            gone = rng.permutation(left)[: 1 if rng.random() < 0.3 else 0]
            own = [{"maker": "abcdef"[rng.integers(6)]} for _ in makers[:2]]
            run = run.add_items(policy, rng.normal(size=(2, q)) / 3, gone, own)
        elif left.size > k + 3:
            run = run.retire_items(policy, rng.permutation(left)[:2])

    def make(count: int, number: int, **how: Any) -> Any:
        if moving and rng.random() < 0.05:
            change()
        left = run.engine.n_seen - n_rewards
        users = rng.normal(size=(count, p)) / 3
        normals = rng.normal(size=(count, run.plan.samples, run.engine.n_seen + 2))
        draws = rng.random((count, run.plan.uniforms))
        if brought:
            how["items"] = rng.normal(size=(count if rng.random() < 0.5 else 1, q, left)) / 3
        lists = [np.arange(left) for _ in range(count)]
        if rng.random() < 0.4:
            lists = [
                np.sort(rng.permutation(left)[: int(rng.integers(k, left + 1))])
                for _ in range(count)
            ]
            how["picks"], how["starts"] = np.concatenate(lists), np.cumsum([0, *map(len, lists)])
        if rng.random() < 0.4:
            pinned = np.full((count, k), -1)
            for s, own in enumerate(lists):
                slots = rng.permutation(k)[: int(rng.integers(0, k + 1))]
                pinned[s, slots] = rng.permutation(len(own))[: slots.size]
            how["pinned"] = pinned
        how["explain"] = bool(rng.random() < 0.8)
        return decide_rankings(run, users, draws, normals, number, **how)

    def learn(rows: Any) -> None:
        count = len(rows.head)
        seen: Any = (rng.random((count, k)) < 0.6) * 1.0
        rewards = (rng.random((count, k, n_rewards)) < 0.4) * seen[:, :, None]
        run.learn(rows, Shown(seen, rewards))
        if rng.random() < 0.05:
            run.engine.study(rows, seen, rewards)

    decide_and_learn(lambda: run, rng, rounds, make, learn)


def rankings(rounds: int) -> None:
    """Every policy, decided and answered by rows, in three forms."""
    policies, rng = list(ranking_policies()), np.random.default_rng(3)
    for place, policy in enumerate(policies):
        shape = (9, 3, 4, 3, 1 + place % 2)
        wanted = 8 + rounds // (3 * len(policies))
        one_ranking_policy(policy, shape, rng, wanted)
        one_ranking_policy(policy, shape, rng, wanted, brought=True)
        one_ranking_policy(policy, shape, rng, wanted, moving=True)


def groups_of_items(rounds: int) -> None:
    """Groups that come, go and return with their items."""
    for seed in range(3):
        rng, wanted = np.random.default_rng(seed), 60 + rounds // 10
        one_ranking_policy(BY_MAKER, (9, 3, 4, 3, 1), rng, wanted, moving=True)


def rankings_of_many_sizes(rounds: int) -> None:
    """The unrolled sizes, and any."""
    rng = np.random.default_rng(4)
    for shape in SHAPES:
        for policy in (
            FWLinUCBRank(GINI, exploration=0.1),
            LinUCBRank(exploration="pointwise", randomize=0.3),
        ):
            one_ranking_policy(policy, shape, rng, 8 + rounds // (8 * len(SHAPES)))


def rankings_played(rounds: int) -> None:
    """Every policy in the loop, for all rounds, prompt and late, with and without a decider."""
    rng = np.random.default_rng(5)
    for place, policy in enumerate(ranking_policies()):
        shape = (9, 3, 3, 1 + place % 12, 1 + place % 2)
        late = place % 3 > 0
        refresh = 1 + place % 5 if late else 1
        game = RankingsGame(policy, place, late, refresh, shape, own_tables=place % 2 > 0)
        play(game, rng, 8 + (rounds // 10 if calls_python(game.run) else rounds))


ROUNDS: list[Callable[[int], None]] = [
    arms,
    arms_of_their_own,
    arms_played,
    rankings,
    groups_of_items,
    rankings_of_many_sizes,
    rankings_played,
]
