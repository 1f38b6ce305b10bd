"""The compiled path of arms against the same policy in Python; z with open decisions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, Fixed, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    Custom,
    GeneralizedGini,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    Welfare,
    Within,
)
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.reduction.frank_wolfe import PlainRunning
from fairwolfe.reduction.running import ArmsRunning
from fairwolfe.smoothing import Augmented, Identity, Moreau, Randomized
from tests.kernels.games import Averages, Made, arms_problem, minus_z

STEPS = 300
REWARDS = {"a": (0.0, 1.0), "b": (0.0, 2.0)}


def log_value(z: Any) -> float:
    return float(np.log1p(z).sum())


def log_gradient(z: Any) -> Any:
    return 1.0 / (1.0 + z)


POLICIES = {
    "linucb": fw.FrankWolfe(Minimum(), LinUCB(exploration=0.3)),
    "extended": fw.FrankWolfe(GiniWelfare(), LinUCB(model="extended", exploration=0.1)),
    "pointwise": fw.FrankWolfe(Minimum(), LinUCB(exploration="pointwise")),
    "extended pointwise": fw.FrankWolfe(
        GiniWelfare(), LinUCB(model="extended", exploration="pointwise")
    ),
    "squarecb": fw.FrankWolfe(Minimum(), SquareCB(gamma0=10.0)),
    "squarecb, theorem": fw.FrankWolfe(Minimum(), SquareCB(gamma0="theorem")),
    "squarecb, gradient": fw.FrankWolfe(Minimum(), SquareCB(gamma0=10.0, oracle=OnlineGradient())),
    "epsilon": fw.FrankWolfe(Minimum(), EpsilonGreedy(0.2, oracle=Ridge(0.5))),
    "thompson": fw.FrankWolfe(Minimum(), Thompson()),
    "uniform": fw.FrankWolfe(Minimum(), Uniform()),
    "fixed": fw.FrankWolfe(Minimum(), Fixed(1)),
    "memory": fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.3), memory=40.0),
    "not anticipating": fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.3), anticipate=False),
    "constraint": fw.FrankWolfe(Linear({"a": 1.0}) + AtMost({"b": 0.5}), LinUCB(exploration=0.1)),
    "constraints with memory": fw.FrankWolfe(
        Minimum() + Within([0.1, 0.2], [0.6, 0.9], margin=0.01), SquareCB(gamma0=30.0), memory=60.0
    ),
    "augmented": fw.FrankWolfe(Minimum(), LinUCB(exploration=0.1), Augmented()),
    "randomised": fw.FrankWolfe(GiniWelfare(), EpsilonGreedy(0.1), Randomized(n_samples=3)),
    "moreau with a horizon": fw.FrankWolfe(
        Minimum(), LinUCB(exploration=0.1), Moreau(0.7, horizon=123)
    ),
    "nash": fw.FrankWolfe(Nash(0.1), LinUCB(exploration=0.1)),
    "welfare": fw.FrankWolfe(Welfare(0.5, 0.1) + 0.5 * Minimum(), LinUCB(exploration=0.1)),
    "gini of a map": fw.FrankWolfe(
        Mapped(GeneralizedGini((1.0, 0.5, 0.1)), [[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
        + AtLeast([0.2, 0.1], penalty=2.0),
        LinUCB(exploration=0.1),
    ),
    "custom": fw.FrankWolfe(Custom(log_value, log_gradient), LinUCB(exploration=0.1), Identity()),
}


def observed(reward: Any, estimate: Any, t: int) -> Any:
    """rho = r in Python, so that nothing of the policy is compiled into one call."""
    return reward


def both(policy: Any, problem: fw.Problem) -> tuple[fw.Agent, fw.Agent]:
    """The same policy, compiled and in Python."""
    agents = (
        fw.Agent(policy, problem, seed=2),
        fw.Agent(replace(policy, iterate=observed), problem, seed=2),
    )
    assert [type(agent._running) for agent in agents] == [ArmsRunning, PlainRunning]
    return agents


def assert_equal_decisions(one: Any, two: Any) -> None:
    assert one.action == two.action
    assert one.probability == two.probability
    assert one.explain() == two.explain()


def assert_equal_states(one: fw.Agent, two: fw.Agent) -> None:
    mine, other = one._running, two._running
    for name in ("totals", "earned", "clocks", "t", "running", "prices", "live"):
        found, expected = getattr(mine.state, name), getattr(other.state, name)
        assert found.tobytes() == expected.tobytes(), name
    learnt, expected = mine.base_state.oracle, other.base_state.oracle
    for name, found, array in zip(learnt._fields, learnt, expected, strict=True):
        assert found.tobytes() == array.tobytes(), name
    assert (one.t, one.open) == (two.t, two.open)


def earned(rng: np.random.Generator, x: Any) -> Any:
    return np.array([float(rng.random() < x[0]), 2.0 * rng.random() * x[1]])


@pytest.mark.parametrize("delay", [0, 7])
@pytest.mark.parametrize("name", POLICIES)
def test_the_compiled_path_decides_and_learns_as_the_plain_one(name: str, delay: int) -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
    rng, policy = np.random.default_rng(1), POLICIES[name]
    if delay:  # the plain path counts open decisions by what was estimated when they were made
        policy = replace(policy, anticipate=False)
    one, two = both(policy, problem)
    waiting: list[Any] = []
    for _ in range(STEPS):
        context = rng.random((int(rng.integers(3, 6)), 3)) / 2
        decisions = one.act(context), two.act(context)
        assert_equal_decisions(*decisions)
        waiting.append((decisions, earned(rng, 2.0 * context[decisions[0].action])))
        if len(waiting) > delay:
            (first, second), reward = waiting.pop(int(rng.integers(len(waiting))))
            one.update(first, reward)
            two.update(second, reward)
    for (first, second), _ in waiting:
        one.expire(first)
        two.expire(second)
    assert_equal_states(one, two)


@pytest.mark.parametrize("name", ["linucb", "squarecb", "constraint", "randomised", "memory"])
def test_batches_from_one_state_are_as_the_plain_path_makes_them(name: str) -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
    rng, policy = np.random.default_rng(1), replace(POLICIES[name], anticipate=False)
    one, two = both(policy, problem)
    for _ in range(30):
        contexts = rng.random((6, 4, 3)) / 2
        batches = one.act_many(contexts), two.act_many(contexts)
        for first, second in zip(*batches, strict=True):
            assert_equal_decisions(first, second)
        pairs = zip(contexts, batches[0], strict=True)
        rewards = np.array([earned(rng, 2.0 * x[made.action]) for x, made in pairs])
        order = rng.permutation(6)
        for agent, batch in zip((one, two), batches, strict=True):
            agent.update_many([batch[int(i)] for i in order], rewards[order])
    assert_equal_states(one, two)


@pytest.mark.parametrize("name", ["linucb", "squarecb", "constraint", "memory"])
def test_batches_are_the_decisions_of_single_calls(name: str) -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
    rng, policy = np.random.default_rng(1), POLICIES[name]
    one, two = (fw.Agent(policy, problem, seed=2, token="one") for _ in range(2))
    for _ in range(30):
        contexts = rng.random((6, 4, 3)) / 2
        batch, singles = one.act_many(contexts), [two.act(context) for context in contexts]
        assert [made.to_bytes() for made in batch] == [made.to_bytes() for made in singles]
        rewards = rng.random((6, 2))
        order = rng.permutation(6).tolist()
        one.update_many([batch[i] for i in order], rewards[order])
        for i in order:
            two.update(singles[i], rewards[i])
    assert one.dump() == two.dump()


@pytest.mark.parametrize("name", ["linucb", "pointwise", "squarecb", "epsilon", "thompson"])
def test_arms_with_blocks_of_their_own(name: str) -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0, n_arms=4)
    rng = np.random.default_rng(1)
    one, two = both(POLICIES[name], problem)
    for t in range(STEPS):
        context = fw.PerArm(rng.random(3) / 2)
        some = np.array([0, 2, 3]) if t % 3 == 0 else None
        decisions = one.act(context, candidates=some), two.act(context, candidates=some)
        assert_equal_decisions(*decisions)
        arm = decisions[0].action
        assert decisions[0].batch.rows.head["block"][0] == arm
        reward = earned(rng, np.roll(2.0 * context.features, arm))
        one.update(decisions[0], reward)
        two.update(decisions[1], reward)
    assert_equal_states(one, two)


# --- open decisions -------------------------------------------------------------------------------


@pytest.mark.parametrize("memory", [None, 20.0])
@pytest.mark.parametrize("n_arms", [None, 4])
def test_z_counts_open_decisions_by_the_current_model(
    n_arms: int | None, memory: float | None
) -> None:
    problem, rng = arms_problem(n_arms), np.random.default_rng(1)
    policy = fw.FrankWolfe(minus_z(), EpsilonGreedy(0.5), memory=memory)
    agent = fw.Agent(policy, problem, seed=2)
    model = Averages(problem.low, problem.high, memory)
    waiting: dict[int, Any] = {}
    most = 0.0
    for t in range(250):
        x = rng.random((1 if n_arms else 4, 3)) / 2
        decision = agent.act(fw.PerArm(x[0]) if n_arms else x)
        rows: Any = decision.batch.rows
        model.decided(Made(rows.head["block"].item(0), rows.x[0].copy(), np.empty(0)))
        waiting[decision.number] = decision
        while len(waiting) > 12 * (t % 60 > 20):  # now and then all are answered
            number = int(rng.choice(list(waiting)))
            reward = rng.random(3) * problem.high
            if t % 50 == 7:
                agent.expire(waiting.pop(number))
                model.open.remove(number)
                continue
            agent.update(waiting.pop(number), reward)
            model.answered(number, reward)
        with agent.held() as running:
            z = -running.direction()
            np.testing.assert_allclose(z, model.z(running.state.theta), rtol=1e-11, atol=1e-12)
            most = max(most, float(abs(z - running.iterate).max()))
    assert most > 0.02  # they do count


def test_proposals_leave_no_trace_until_they_are_opened() -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
    contexts = np.random.default_rng(1).random((5, 4, 3)) / 2
    one, other = (fw.Agent(POLICIES["linucb"], problem, seed=2, token="one") for _ in range(2))
    before = one.dump()
    proposed = one.propose(contexts)
    assert one.dump() == before
    made = other.act_many(contexts)
    one.issue(proposed)
    assert [one.to_bytes() for one in proposed] == [one.to_bytes() for one in made]
    assert one.dump() == other.dump()


def test_a_wrong_last_bit_is_noticed() -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
    one, two = both(POLICIES["linucb"], problem)
    assert_equal_states(one, two)
    one._running.state.theta[0, 0, 0] = 5e-324
    with pytest.raises(AssertionError, match="theta"):
        assert_equal_states(one, two)
