"""The compiled engine for arms against an `Agent` of the same policy: equal bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, Fixed, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.streams import Numbered
from fairwolfe.kernels.philox import uniforms
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
from fairwolfe.reduction.engine import CompiledArms
from fairwolfe.smoothing import Augmented, Identity, Moreau, Randomized

STEPS = 300
REWARDS = {"a": (0.0, 1.0), "b": (0.0, 2.0)}
LANE = 1


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
    "squarecb, theorem": fw.FrankWolfe(Minimum(), SquareCB()),
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


class Twin:
    """The engine, driven as an agent drives it."""

    def __init__(self, policy: Any, problem: fw.Problem, seed: int) -> None:
        self.run = CompiledArms(policy, problem)
        self.kind, self.draws = kind_of(problem), Numbered.of(seed, "policy", 0)
        self.issued = 0

    def _drawn(self, m: int) -> tuple[Any, Any]:
        run, base, draws = self.run, self.run.base, self.draws
        problem, n = self.kind.problem, self.kind.problem.n_objectives
        draws.number = self.issued
        normals = np.empty((m, run.plan.samples, n + 2))
        for i in range(m if run.plan.samples else 0):
            normals[i] = draws.generator(i, LANE).standard_normal(normals.shape[1:])
        if base._draws_uniforms:
            return uniforms(draws, m, base.uniforms).copy(), normals
        rows = [base.draws(draws.generator(i), problem, 1) for i in range(m)]
        return np.concatenate(rows), normals

    def act(self, contexts: list[Any], **how: Any) -> Any:
        given = [self.kind.read(context) for context in contexts]
        features = np.array([one.features for one in given])
        if given[0].per_arm:
            how["n_arms"] = given[0].n_arms
        draws, normals = self._drawn(len(given))
        rows = self.run.decide(features, draws, normals, self.issued, **how)
        self.issued += len(given)
        return rows


def state_of(agent: fw.Agent) -> dict[str, Any]:
    state: Any = agent._state
    n, waiting, oracle = state.totals.size, state.waiting, state.base.oracle
    arrays = {
        "totals": state.totals,
        "earned": state.earned,
        "clocks": state.clocks,
        "t": state.counters,
        "prices": state.prices,
        "window": state.live.now.numbers,
        "slope": state.live.now.slope,
        "rewards_seen": state.live.now.rewards,
        "gram": oracle.gram[None],
        "inverse": oracle.inverse[None],
        "theta": oracle.theta,
        "moment": oracle.moment,
        "learnt": oracle.counters[None],
    }
    if state.plan.follows:
        arrays["running"] = state.direction
    if waiting.size:
        half = (waiting.size - 3 - 4 * n) // 3
        arrays["open"] = waiting[:2]
        arrays["weights"], arrays["answered"] = waiting[3 : 3 + n], waiting[3 + 3 * n : 3 + 4 * n]
        arrays["phi"] = waiting[3 + 4 * n : 3 + 4 * n + 2 * half]
        arrays["psi"] = waiting[3 + 4 * n + 2 * half :]
    return arrays


def assert_equal_states(agent: fw.Agent, twin: Twin) -> None:
    for name, expected in state_of(agent).items():
        found = getattr(twin.run.state, name)
        found = found[:2] if name == "open" else found.reshape(expected.shape)
        assert np.array_equal(found, expected), name


def earned(rng: np.random.Generator, x: Any) -> Any:
    return np.array([float(rng.random() < x[0]), 2.0 * rng.random() * x[1]])


@pytest.mark.parametrize("delay", [0, 7])
@pytest.mark.parametrize("name", POLICIES)
def test_the_engine_decides_and_learns_as_the_agent_does(name: str, delay: int) -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
    rng, policy = np.random.default_rng(1), POLICIES[name]
    agent, twin = fw.Agent(policy, problem, seed=2), Twin(policy, problem, 2)
    waiting: list[Any] = []
    for _ in range(STEPS):
        context = rng.random((int(rng.integers(3, 6)), 3)) / 2
        decision, rows = agent.act(context), twin.act([context])
        assert rows.head["arm"][0] == decision.action
        probability = rows.head["probability"][0]
        if decision.probability is not None:
            assert probability == decision.probability
        waiting.append((decision, rows, earned(rng, 2.0 * context[decision.action])))
        if len(waiting) > delay:
            decision, rows, reward = waiting.pop(int(rng.integers(len(waiting))))
            agent.update(decision, reward)
            twin.run.learn(rows, reward[None])
    for decision, rows, _ in waiting:
        agent.expire(decision)
        twin.run.engine.withdraw(rows)
    assert_equal_states(agent, twin)


@pytest.mark.parametrize("name", ["linucb", "squarecb", "constraint", "randomised", "memory"])
@pytest.mark.parametrize("advance", [True, False])
def test_batches_are_as_the_agent_makes_them(name: str, advance: bool) -> None:
    if name == "memory" and not advance:
        pytest.skip("the places of decisions made together differ from those of an agent")
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
    rng, policy = np.random.default_rng(1), POLICIES[name]
    agent, twin = fw.Agent(policy, problem, seed=2), Twin(policy, problem, 2)
    for _ in range(30):
        contexts = rng.random((6, 4, 3)) / 2
        batch = agent.act_many(contexts, advance=advance)
        rows = twin.act(list(contexts), advance=advance)
        assert rows.head["arm"].tolist() == [d.action for d in batch]
        rewards = np.array(
            [earned(rng, 2.0 * x[d.action]) for x, d in zip(contexts, batch, strict=True)]
        )
        order = rng.permutation(6)
        agent.update_many([batch[int(i)] for i in order], rewards[order])
        twin.run.learn(rows.part(order), rewards[order])
    assert_equal_states(agent, twin)


@pytest.mark.parametrize("name", ["linucb", "pointwise", "squarecb", "epsilon", "thompson"])
def test_arms_with_blocks_of_their_own(name: str) -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0, n_arms=4)
    rng, policy = np.random.default_rng(1), POLICIES[name]
    agent, twin = fw.Agent(policy, problem, seed=2), Twin(policy, problem, 2)
    for t in range(STEPS):
        context = fw.PerArm(rng.random(3) / 2)
        some = np.array([0, 2, 3]) if t % 3 == 0 else None
        if some is None:
            decision, rows = agent.act(context), twin.act([context])
        else:
            decision = agent.act(context, candidates=some)
            given = twin.kind.read(context)
            draws, normals = twin._drawn(1)
            rows = twin.run.decide(
                given.features[None], draws, normals, twin.issued, n_arms=3, places=some[None]
            )
            twin.issued += 1
        assert rows.head["block"][0] == decision.action
        reward = earned(rng, np.roll(2.0 * context.features, decision.action))
        agent.update(decision, reward)
        twin.run.learn(rows, reward[None])
    assert_equal_states(agent, twin)


def test_proposals_leave_no_trace_until_they_are_opened() -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
    contexts = np.random.default_rng(1).random((5, 4, 3)) / 2
    one, other = (Twin(POLICIES["linucb"], problem, 2) for _ in range(2))
    before = one.run.state.copy()
    proposed = one.act(list(contexts), propose=True)
    assert all(np.array_equal(a, b) for a, b in zip(before, one.run.state, strict=True))
    made = other.act(list(contexts))
    one.run.engine.open_rows(proposed)
    assert all(np.array_equal(a, b) for a, b in zip(proposed, made, strict=True))
    assert all(np.array_equal(a, b) for a, b in zip(one.run.state, other.run.state, strict=True))


def test_a_wrong_last_bit_is_noticed() -> None:
    problem = fw.Problem.arms(3, REWARDS, parameter_norm=1.0)
    agent, twin = fw.Agent(POLICIES["linucb"], problem), Twin(POLICIES["linucb"], problem, 0)
    assert_equal_states(agent, twin)
    twin.run.state.theta[0, 0, 0] = 5e-324
    with pytest.raises(AssertionError, match="theta"):
        assert_equal_states(agent, twin)
