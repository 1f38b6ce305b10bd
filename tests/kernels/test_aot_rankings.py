"""The compiled engine for rankings against an `Agent` of the same policy, and its loop against
today's: equal rankings, explanations and states.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.core.feedback import Shown
from fairwolfe.core.streams import Numbered
from fairwolfe.kernels.philox import uniforms
from fairwolfe.objectives import (
    AtLeast,
    EqualExposure,
    GiniEquality,
    GiniWelfare,
    TwoSided,
    Welfare,
)
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction.ranked import CompiledRankings
from fairwolfe.smoothing import Moreau, Randomized

LANE = 1
GINI = TwoSided(GiniEquality(), beta=0.5)
POLICIES: dict[str, Any] = {
    "fw": FWLinUCBRank(GINI),
    "fw, moreau": FWLinUCBRank(
        TwoSided(GiniWelfare(), beta=0.5), smoothing=Moreau(1.0), exploration=0.1
    ),
    "fw, welfare": FWLinUCBRank(TwoSided(Welfare(0.5), beta=0.5), exploration=0.1),
    "fw, memory and swaps": FWLinUCBRank(
        TwoSided(EqualExposure()), memory=50.0, randomize=0.3, exploration=0.1
    ),
    "fw, expected": FWLinUCBRank(GINI, iterate="expected", exploration=0.1),
    "fw, expected, memory": FWLinUCBRank(GINI, iterate="expected", exploration=0.1, memory=30.0),
    "fw, weights": FWLinUCBRank(GINI, iterate="expected", position_weights=(0.9, 0.5, 0.2)),
    "fw, floors": FWLinUCBRank(TwoSided(AtLeast(0.2), beta=1.0), exploration=0.2),
    "fw, floors, memory": FWLinUCBRank(TwoSided(AtLeast(0.2), beta=1.0), memory=40.0),
    "fw, pointwise": FWLinUCBRank(GINI, exploration="pointwise"),
    "fw, shown": FWLinUCBRank(GINI, exposure="shown", exploration=0.1),
    "fw, clicks": FWLinUCBRank(GINI, exposure="until_last_click", exploration=0.1),
    "fw, not anticipating": FWLinUCBRank(GINI, anticipate=False, exploration=0.1),
    "fw, randomised": FWLinUCBRank(GINI, smoothing=Randomized(n_samples=2), exploration=0.1),
    "linucb": LinUCBRank(exploration=0.2),
    "unbiased": UnbiasedLinUCBRank(exploration=0.5),
    "unbiased, clipped": UnbiasedLinUCBRank(exploration=0.5, clip=True, exposure="shown"),
    "fairlearn": FairLearnRank(0.2, exploration=0.3),
    "fairlearn, pointwise": FairLearnRank(0.1, tolerance=0.0, exploration="pointwise"),
}


class Twin:
    """The engine, driven as an agent drives it."""

    def __init__(self, policy: Any, problem: fw.Problem, seed: int, features: Any = None) -> None:
        self.run = CompiledRankings(as_policy(policy), problem, features)
        self.draws, self.issued = Numbered.of(seed, "policy", 0), 0

    def _drawn(self, m: int) -> tuple[Any, Any]:
        plan, draws = self.run.plan, self.draws
        draws.number = self.issued
        n = self.run.kind.seen.n_objectives
        normals = np.empty((m, plan.samples, n + 2))
        for i in range(m if plan.samples else 0):
            normals[i] = draws.generator(i, LANE).standard_normal(normals.shape[1:])
        return uniforms(draws, m, plan.uniforms).copy(), normals

    def act(self, contexts: list[Any], each: list[Any] | None = None, **how: Any) -> Any:
        kind: Any = self.run.kind
        options = each or [{}] * len(contexts)
        given = [
            kind.read(context, **chosen) for context, chosen in zip(contexts, options, strict=True)
        ]
        if not given[0].kept:
            how["items"] = np.array([np.ascontiguousarray(c.items.T) for c in contexts])
        if any(one.places.size for one in given):
            every = np.arange(kind.catalogue.ids.size)
            lists = [one.places if one.places.size else every for one in given]
            how["picks"] = np.concatenate(lists)
            how["starts"] = np.cumsum([0, *map(len, lists)])
        if any(one.pinned.size for one in given):
            free = np.full(self.run.state.slots.shape[1], -1)
            how["pinned"] = np.array([one.pinned if one.pinned.size else free for one in given])
        draws, normals = self._drawn(len(given))
        users = np.array([one.user for one in given])
        rows = self.run.decide(users, draws, normals, self.issued, **how)
        self.issued += len(given)
        return rows


def state_of(agent: fw.Agent) -> dict[str, Any]:
    state: Any = agent._state
    base, n, waiting = state.base, state.totals.size, state.waiting
    arrays = {
        "totals": state.totals,
        "earned": state.earned,
        "clocks": state.clocks,
        "t": state.counters,
        "prices": state.prices,
        "window": state.live.now.numbers,
        "slope": state.live.now.slope,
        "rewards_seen": state.live.now.rewards,
        "gram": base.oracle.gram,
        "inverse": base.oracle.inverse,
        "theta": base.oracle.theta,
        "moment": base.oracle.moment,
        "learnt": base.oracle.counters,
        "exposed": base.exposed,
        "shown": base.shown,
        "slots": base.slots,
        "features": base.features,
        "open": waiting[:2],
        "weights": waiting[3 : 3 + n],
        "sums": waiting[3 + n : 3 + 3 * n],
        "answered": waiting[3 + 3 * n : 3 + 4 * n],
    }
    if state.plan.follows:
        arrays["running"] = state.direction
    half = (waiting.size - 3 - 4 * n) // 3
    arrays["phi"] = waiting[3 + 4 * n : 3 + 4 * n + 2 * half]
    arrays["psi"] = waiting[3 + 4 * n + 2 * half :]
    return arrays


def assert_equal_states(agent: fw.Agent, twin: Twin) -> None:
    for name, expected in state_of(agent).items():
        found = getattr(twin.run.state, name)
        found = found[:2] if name == "open" else found.reshape(expected.shape)
        assert np.array_equal(found, expected), name


def assert_equal_rankings(decision: Any, rows: Any, i: int = 0) -> None:
    assert rows.items[i].tolist() == decision.action.tolist()
    if decision.probability is not None:
        assert rows.head["probability"][i] == decision.probability
    for j, part in enumerate(decision.explain()):
        assert rows.parts[i, :, j].tolist() == [
            part[name] for name in ("value", "exploration", "fairness")
        ]
        assert rows.ranks[i, j] == part["rank_without_fairness"]


def feedback(rng: np.random.Generator, k: int, n_rewards: int = 1) -> Shown:
    seen: Any = (rng.random(k) < 0.8 / (1.0 + np.arange(k))) * 1.0
    return Shown(seen, (rng.random((k, n_rewards)) < 0.4) * seen[:, None])


def learn(twin: Twin, rows: Any, shown: Shown) -> None:
    twin.run.learn(rows, shown.exposed[None], shown.rewards[None])


def problem_of(m: int, k: int, p: int, q: int, n_rewards: int = 1) -> fw.Problem:
    rewards = {f"r{i}": (0.0, float(k)) for i in range(n_rewards)}
    return fw.Problem.ranking(m, k, (p, q), rewards=rewards, feature_norm=4.0)


def options_of(rng: np.random.Generator, items: Any, k: int) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if rng.random() < 0.3:
        options["candidates"] = rng.permutation(items)[: int(rng.integers(k + 2, items.size + 1))]
    elif rng.random() < 0.3:
        options["blocked"] = rng.permutation(items)[:2].tolist()
    left = options.get("candidates", np.setdiff1d(items, options.get("blocked", ())))
    if rng.random() < 0.3:
        slots = rng.permutation(k)[: int(rng.integers(1, k + 1))].tolist()
        shown = rng.permutation(left)[: len(slots)].tolist()
        options["pinned"] = dict(zip(slots, shown, strict=True))
    return options


@pytest.mark.parametrize("delay", [0, 5])
@pytest.mark.parametrize("name", POLICIES)
def test_the_engine_decides_and_learns_as_the_agent_does(name: str, delay: int) -> None:
    m, k, p, q = 9, 3, 4, 3
    problem, rng, policy = problem_of(m, k, p, q), np.random.default_rng(1), POLICIES[name]
    features = rng.normal(size=(m, q)) / 3
    agent = fw.Agent(policy, problem, seed=2, items=features)
    twin, waiting = Twin(policy, problem, 2, features), []
    for _ in range(200):
        user, options = rng.normal(size=p) / 3, options_of(rng, agent.items, k)
        decision, rows = agent.act(user, **options), twin.act([user], [options])
        assert_equal_rankings(decision, rows)
        waiting.append((decision, rows, feedback(rng, k)))
        if len(waiting) > delay:
            decision, rows, shown = waiting.pop(int(rng.integers(len(waiting))))
            agent.update(decision, shown)
            learn(twin, rows, shown)
    for decision, rows, _ in waiting:
        agent.expire(decision)
        twin.run.engine.withdraw(rows)
    assert_equal_states(agent, twin)


@pytest.mark.parametrize("name", ["fw", "fw, memory and swaps", "unbiased", "fw, expected"])
def test_contexts_that_bring_the_features_of_the_items(name: str) -> None:
    m, k, p, q = 7, 3, 2, 4
    problem, rng, policy = problem_of(m, k, p, q), np.random.default_rng(1), POLICIES[name]
    agent, twin, waiting = fw.Agent(policy, problem, seed=2), Twin(policy, problem, 2), []
    for _ in range(150):
        context = fw.Bilinear(rng.normal(size=p) / 3, rng.normal(size=(m, q)) / 3)
        options = options_of(rng, agent.items, k)
        decision, rows = agent.act(context, **options), twin.act([context], [options])
        assert_equal_rankings(decision, rows)
        waiting.append((decision, rows, feedback(rng, k)))
        if len(waiting) > 3:
            decision, rows, shown = waiting.pop(int(rng.integers(len(waiting))))
            agent.update(decision, shown)
            learn(twin, rows, shown)
    assert_equal_states(agent, twin)


@pytest.mark.parametrize(
    "name", ["fw", "fw, moreau", "fw, memory and swaps", "fw, randomised", "fw, floors"]
)
@pytest.mark.parametrize("n_rewards", [1, 2])
def test_batches_are_as_the_agent_makes_them(name: str, n_rewards: int) -> None:
    m, k, p, q = 12, 4, 5, 4
    problem, rng = problem_of(m, k, p, q, n_rewards), np.random.default_rng(1)
    policy, features = POLICIES[name], rng.normal(size=(m, q)) / 3
    agent = fw.Agent(policy, problem, seed=2, items=features)
    twin = Twin(policy, problem, 2, features)
    for turn in range(25):
        users = rng.normal(size=(6, p)) / 3
        batch, rows = agent.act_many(users), twin.act(list(users))
        for i, decision in enumerate(batch):
            assert_equal_rankings(decision, rows, i)
        answers = [feedback(rng, k, n_rewards) for _ in users]
        order = rng.permutation(6) if turn % 2 else np.arange(6)
        agent.update_many([batch[int(i)] for i in order], [answers[int(i)] for i in order])
        seen = np.array([answers[i].exposed for i in order])
        twin.run.learn(rows.part(order), seen, np.array([answers[i].rewards for i in order]))
    assert_equal_states(agent, twin)


@pytest.mark.parametrize(
    "name",
    ["fw", "fw, moreau", "fw, memory and swaps", "fairlearn", "fw, randomised", "fw, floors"],
)
def test_items_that_come_and_go(name: str) -> None:
    m, k, p, q = 8, 3, 3, 3
    problem, rng, policy = problem_of(m, k, p, q), np.random.default_rng(1), POLICIES[name]
    features = rng.normal(size=(m, q)) / 3
    agent = fw.Agent(policy, problem, seed=2, items=features)
    twin, waiting = Twin(policy, problem, 2, features), []
    for turn in range(180):
        if turn in (40, 120):
            new = rng.normal(size=(2, q)) / 3
            agent.add_items(new)
            twin.run.add_items(new)
        if turn in (70, 130):
            gone = rng.permutation(agent.items)[:2]
            agent.retire(gone)
            twin.run.retire_items(gone)
        user, options = rng.normal(size=p) / 3, options_of(rng, agent.items, k)
        decision, rows = agent.act(user, **options), twin.act([user], [options])
        assert_equal_rankings(decision, rows)
        waiting.append((decision, rows, feedback(rng, k)))
        if len(waiting) > 4:
            decision, rows, shown = waiting.pop(int(rng.integers(len(waiting))))
            agent.update(decision, shown)
            learn(twin, rows, shown)
    assert_equal_states(agent, twin)


def test_a_wrong_last_bit_is_noticed() -> None:
    problem = problem_of(5, 2, 2, 2)
    features = np.ones((5, 2))
    agent = fw.Agent(POLICIES["fw"], problem, items=features)
    twin = Twin(POLICIES["fw"], problem, 0, features)
    assert_equal_states(agent, twin)
    twin.run.state.theta[0, 0, 0] = 5e-324
    with pytest.raises(AssertionError, match="theta"):
        assert_equal_states(agent, twin)
