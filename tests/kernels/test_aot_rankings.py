"""The compiled engine for rankings against the same rankers in Python: equal rankings,
propensities, explanations, averages and states.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.core.feedback import Shown
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
from fairwolfe.smoothing import Moreau, Randomized
from tests.kernels.games import Averages, Made, minus_z

GINI = TwoSided(GiniEquality(), beta=0.5)
POLICIES: dict[str, Any] = {
    "fw": FWLinUCBRank(GINI, exploration="theorem"),
    "fw, moreau": FWLinUCBRank(
        TwoSided(GiniWelfare(), beta=0.5), smoothing=Moreau(1.0), exploration=0.1
    ),
    "fw, welfare": FWLinUCBRank(TwoSided(Welfare(0.5), beta=0.5), exploration=0.1),
    "fw, memory and swaps": FWLinUCBRank(
        TwoSided(EqualExposure()), memory=50.0, randomize=0.3, exploration=0.1
    ),
    "fw, expected": FWLinUCBRank(GINI, iterate="expected", exploration=0.1),
    "fw, expected, memory": FWLinUCBRank(GINI, iterate="expected", exploration=0.1, memory=30.0),
    "fw, weights": FWLinUCBRank(
        GINI, iterate="expected", position_weights=(0.9, 0.5, 0.2), exploration="theorem"
    ),
    "fw, floors": FWLinUCBRank(TwoSided(AtLeast(0.2), beta=1.0), exploration=0.2),
    "fw, floors, memory": FWLinUCBRank(
        TwoSided(AtLeast(0.2), beta=1.0), memory=40.0, exploration="theorem"
    ),
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


def in_python(policy: Any) -> Any:
    """The same policy with an `act` of its own, so that nothing of it is compiled into one call."""
    own = copy(as_policy(policy))
    kind = type(own.base)

    class Plain(kind):  # type: ignore[misc, valid-type]
        def act(self, *given: Any) -> Any:
            return super().act(*given)

    base = Plain(**vars(own.base))
    assert base.rule(problem_of(9, 3, 2, 2)) is None
    object.__setattr__(own, "base", base)
    return own


def both(policy: Any, problem: fw.Problem, **options: Any) -> tuple[fw.Agent, fw.Agent]:
    assert as_policy(policy).base.rule(problem) is not None
    return tuple(  # type: ignore[return-value]
        fw.Agent(one, problem, seed=2, **options) for one in (policy, in_python(policy))
    )


def assert_equal_rankings(one: Any, two: Any) -> None:
    assert one.action.tolist() == two.action.tolist()
    assert one.probability == two.probability
    assert one.explain() == two.explain()


def assert_equal_states(one: fw.Agent, two: fw.Agent) -> None:
    mine, other = one._running.base_state, two._running.base_state
    assert one.average.tolist() == two.average.tolist()
    assert (one.t, one.open) == (two.t, two.open)
    for name, first, second in zip(mine.oracle._fields, mine.oracle, other.oracle, strict=True):
        assert first.tobytes() == second.tobytes(), name
    for name in ("params", "exposed", "shown", "slots", "features", "retired"):
        assert getattr(mine, name).tobytes() == getattr(other, name).tobytes(), name


def feedback(rng: np.random.Generator, k: int, n_rewards: int = 1) -> Shown:
    seen: Any = (rng.random(k) < 0.8 / (1.0 + np.arange(k))) * 1.0
    return Shown(seen, (rng.random((k, n_rewards)) < 0.4) * seen[:, None])


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
def test_the_engine_decides_and_learns_as_the_ranker_does(name: str, delay: int) -> None:
    m, k, p, q = 9, 3, 4, 3
    problem, rng, policy = problem_of(m, k, p, q), np.random.default_rng(1), POLICIES[name]
    if delay and isinstance(policy, FWLinUCBRank):  # open decisions have the test of z below
        policy = replace(policy, anticipate=False)
    one, two = both(policy, problem, items=rng.normal(size=(m, q)) / 3)
    waiting = []
    for _ in range(200):
        user, options = rng.normal(size=p) / 3, options_of(rng, one.items, k)
        decisions = one.act(user, **options), two.act(user, **options)
        assert_equal_rankings(*decisions)
        waiting.append((decisions, feedback(rng, k)))
        if len(waiting) > delay:
            (first, second), shown = waiting.pop(int(rng.integers(len(waiting))))
            one.update(first, shown)
            two.update(second, shown)
    for (first, second), _ in waiting:
        one.expire(first)
        two.expire(second)
    assert_equal_states(one, two)


@pytest.mark.parametrize("name", ["fw", "fw, memory and swaps", "unbiased", "fw, expected"])
@pytest.mark.parametrize("n_rewards", [1, 2])
def test_contexts_that_bring_the_features_of_the_items(name: str, n_rewards: int) -> None:
    m, k, p, q = 7, 3, 2, 4
    problem, rng = problem_of(m, k, p, q, n_rewards), np.random.default_rng(1)
    one, two = both(POLICIES[name], problem)
    for _ in range(150):
        context = fw.Bilinear(rng.normal(size=p) / 3, rng.normal(size=(m, q)) / 3)
        options = options_of(rng, one.items, k)
        decisions = one.act(context, **options), two.act(context, **options)
        assert_equal_rankings(*decisions)
        shown = feedback(rng, k, n_rewards)
        one.update(decisions[0], shown)
        two.update(decisions[1], shown)
    assert_equal_states(one, two)


@pytest.mark.parametrize("name", ["fw, not anticipating", "linucb", "unbiased", "fairlearn"])
@pytest.mark.parametrize("n_rewards", [1, 2])
def test_batches_are_as_the_ranker_makes_them(name: str, n_rewards: int) -> None:
    """V takes in the rounds of a batch together: its sums have another order."""
    m, k, p, q = 12, 4, 5, 4
    problem, rng = problem_of(m, k, p, q, n_rewards), np.random.default_rng(1)
    one, two = both(POLICIES[name], problem, items=rng.normal(size=(m, q)) / 3)
    for turn in range(25):
        users = rng.normal(size=(6, p)) / 3
        batches = one.act_many(users), two.act_many(users)
        for first, second in zip(*batches, strict=True):
            assert_equal_rankings(first, second)
        answers = [feedback(rng, k, n_rewards) for _ in users]
        order = rng.permutation(6).tolist() if turn % 2 else list(range(6))
        for agent, batch in zip((one, two), batches, strict=True):
            agent.update_many([batch[i] for i in order], [answers[i] for i in order])
    gram = one._running.base_state.oracle.gram
    np.testing.assert_allclose(gram, two._running.base_state.oracle.gram, rtol=1e-12, atol=1e-13)
    gram[:] = two._running.base_state.oracle.gram
    assert_equal_states(one, two)


@pytest.mark.parametrize(
    "name",
    ["fw", "fw, moreau", "fw, memory and swaps", "fairlearn", "fw, randomised", "fw, floors"],
)
def test_items_that_come_and_go(name: str) -> None:
    m, k, p, q = 8, 3, 3, 3
    problem, rng = problem_of(m, k, p, q), np.random.default_rng(1)
    one, two = both(POLICIES[name], problem, items=rng.normal(size=(m, q)) / 3)
    for turn in range(180):
        if turn in (40, 120):
            new = rng.normal(size=(2, q)) / 3
            one.add_items(new)
            two.add_items(new)
        if turn in (70, 130):
            gone = rng.permutation(one.items)[:2]
            one.retire(gone)
            two.retire(gone)
        user, options = rng.normal(size=p) / 3, options_of(rng, one.items, k)
        decisions = one.act(user, **options), two.act(user, **options)
        assert_equal_rankings(*decisions)
        shown = feedback(rng, k)
        one.update(decisions[0], shown)
        two.update(decisions[1], shown)
    assert_equal_states(one, two)


@pytest.mark.parametrize("memory", [None, 20.0])
def test_z_counts_open_rankings(memory: float | None) -> None:
    """Exposures by the chances in the rows, rewards by the current model."""
    m, k, p, q = 6, 3, 2, 2
    problem, rng = problem_of(m, k, p, q, 2), np.random.default_rng(1)
    items = rng.random((m, q))
    objective = TwoSided(minus_z(), beta=1.0, users=minus_z(), n_users=2)
    policy = FWLinUCBRank(objective, memory=memory, randomize=0.5, exploration=0.1)
    agent = fw.Agent(policy, problem, seed=2, items=items)
    model = Averages(problem.low, problem.high, memory)
    waiting: dict[int, Any] = {}
    for t in range(200):
        decision = agent.act(rng.random(p))
        rows: Any = decision.batch.rows
        looks, ranked = rows.exposure[0].copy(), decision.action
        expected = np.zeros(m)
        expected[ranked] = looks
        x = np.kron(rows.user[0], looks @ items[ranked])
        model.decided(Made(0, x, expected))
        waiting[decision.number] = decision
        while len(waiting) > 8 * (t % 60 > 20):
            number = int(rng.choice(list(waiting)))
            answered, shown = waiting.pop(number), feedback(rng, k, 2)
            agent.update(answered, shown)
            exposures = np.zeros(m)
            exposures[answered.action] = shown.exposed
            model.answered(number, np.concatenate([exposures, shown.rewards.sum(axis=0)]))
        with agent.held() as running:
            wanted = model.z(running.state.theta)
            np.testing.assert_allclose(-running.direction(), wanted, rtol=1e-11, atol=1e-12)


def test_a_wrong_last_bit_is_noticed() -> None:
    problem = problem_of(9, 2, 2, 2)
    one, two = both(POLICIES["fw"], problem, items=np.ones((9, 2)))
    assert_equal_states(one, two)
    two._running.base_state.oracle.theta[0, 0, 0] = 5e-324
    with pytest.raises(AssertionError, match="theta"):
        assert_equal_states(one, two)
