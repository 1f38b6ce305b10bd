"""The plain path of `FrankWolfe` against the compiled one, and what only it can do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, Fixed, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import (
    AtMost,
    EqualExposure,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    TwoSided,
    Welfare,
)
from fairwolfe.oracles import OnlineGradient
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank
from fairwolfe.reduction.frank_wolfe import PlainRunning
from fairwolfe.reduction.running import ArmsRunning, RankingsRunning
from fairwolfe.smoothing import Identity, Moreau, Randomized

ARMS = fw.Problem.arms(3, {"a": (0, 1), "b": (-1, 2)}, parameter_norm=1.0)
OWN = fw.Problem.arms(3, {"a": (0, 1), "b": (-1, 2)}, parameter_norm=1.0, n_arms=4)
LISTS = fw.Problem.ranking(7, 3, (2, 3), parameter_norm=1.0)


def observed(reward: Any, estimate: Any, t: int) -> Any:
    """rho = r, which is the default: given as a function, the base runs in Python."""
    return reward


OF_ARMS: dict[str, Any] = {
    "linucb": (Minimum(), LinUCB(exploration=0.3), {}),
    "linucb, pointwise": (GiniWelfare(), LinUCB(exploration="pointwise"), {}),
    "linucb, extended": (GiniWelfare(), LinUCB(model="extended", exploration=0.2), {}),
    "squarecb": (GiniWelfare(), SquareCB(gamma0=5.0), {"memory": 30.0}),
    "squarecb, theorem": (Nash(offset=1.5), SquareCB(gamma0="theorem"), {}),
    "squarecb, gradient": (Minimum(), SquareCB(gamma0=5.0, oracle=OnlineGradient()), {}),
    "epsilon-greedy": (Linear({"a": 1.0}) + AtMost({"b": 0.4}), EpsilonGreedy(0.2), {}),
    "thompson": (Welfare(0.5, offset=1.5), Thompson(), {"start": (0.5, 0.5)}),
    "uniform": (Minimum(), Uniform(), {}),
    "fixed": (Minimum(), Fixed(1), {}),
    "samples": (Minimum(), EpsilonGreedy(0.2), {"smoothing": Randomized(n_samples=2)}),
}


def run(policy: Any, problem: Any, steps: int = 250) -> tuple[Any, list[Any], Any]:
    """The running policy after some answers, its decisions, and an agent's live numbers."""
    agent, rng = fw.Agent(policy, problem, seed=2), np.random.default_rng(3)
    made = []
    for t in range(steps):
        x = rng.uniform(-0.5, 0.5, (4, 3))
        context = fw.PerArm(x[0]) if problem.n_arms else x
        candidates = [0, 2, 3] if t % 5 == 4 else None
        decision = agent.act(context, candidates=candidates)
        made.append((decision.action, decision.probability, decision.explain()))
        agent.update(decision, rng.uniform(problem.low, problem.high))
    return agent._running, made, agent.live()


@pytest.mark.parametrize("problem", [ARMS, OWN], ids=["features", "PerArm"])
@pytest.mark.parametrize("name", OF_ARMS)
def test_both_paths_make_the_same_decisions(name: str, problem: Any) -> None:
    objective, base, options = OF_ARMS[name]
    if "extended" in name and problem is OWN:
        pytest.skip("the extended model has one design for all arms")
    (one, made, live), (other, again, seen) = (
        run(fw.FrankWolfe(objective, base, iterate=iterate, **options), problem)
        for iterate in ("observed", observed)
    )
    assert (type(one), type(other)) == (ArmsRunning, PlainRunning)
    assert made == again
    assert len({action for action, _, _ in made}) > (0 if name == "fixed" else 1)
    for field in ("totals", "earned", "clocks", "t", "running", "prices"):
        mine, theirs = getattr(one.state, field), getattr(other.state, field)
        assert mine.tolist() == theirs.tolist(), field
    assert one.base_state.oracle.theta.tolist() == other.base_state.oracle.theta.tolist()
    np.testing.assert_allclose(one.state.live, other.state.live, rtol=1e-9, atol=1e-12)
    assert live.about == pytest.approx(seen.about)


@pytest.mark.parametrize(
    "options",
    [{}, {"randomize": 0.3}, {"exploration": "pointwise"}, {"exposure": "shown"}],
    ids=str,
)
def test_both_paths_make_the_same_rankings(options: Any) -> None:
    f = TwoSided(EqualExposure(), beta=0.5) + AtMost({"clicks": 2.0}, penalty=1.0)
    kept = []
    for iterate in ("observed", observed):
        policy = fw.FrankWolfe(f, LinUCBRank(**options), Moreau(0.5), iterate=iterate)
        rng = np.random.default_rng(4)
        items = rng.random((7, 3)) / 2
        agent = fw.Agent(policy, LISTS, items=items)
        made = []
        for t in range(150):
            if t == 60:
                agent.add_items(items[:2] + 0.1)
            if t == 90:
                agent.retire([1])
            decision = agent.act(rng.random(2) / 2, pinned={1: 4} if t % 4 == 3 else {})
            seen = (rng.random(3) < [0.9, 0.6, 0.3]).astype(float)
            made.append((decision.action.tolist(), decision.probability, decision.explain()))
            agent.update(decision, fw.Shown(seen, seen[:, None] * (rng.random((3, 1)) < 0.5)))
        kept.append((made, agent.average.tolist(), agent._running))
    (made, average, one), (again, other_average, other) = kept
    assert (type(one), type(other)) == (RankingsRunning, PlainRunning)
    assert made == again
    assert average == other_average
    assert one.state.theta.tolist() == other.state.base.oracle.theta.tolist()


# --- any rule for rho -------------------------------------------------------------------------


def test_a_function_decides_what_is_averaged() -> None:
    """rho = (r + estimate)/2: z is its mean, and what was earned stays what it was."""
    seen: list[Any] = []

    def halfway(reward: Any, estimate: Any, t: int) -> Any:
        seen.append((reward.copy(), estimate.copy(), t))
        return 0.5 * (reward + estimate)

    policy = fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem"), Identity(), iterate=halfway)
    state, rng = policy.init(ARMS), np.random.default_rng(0)
    thetas = []
    for _ in range(40):
        thetas.append(state.base_state.oracle.theta[0].copy())
        x = rng.uniform(-0.5, 0.5, (4, 3))
        decision = policy.act(state, x, rng)
        state = policy.update(state, decision, rng.uniform(ARMS.low, ARMS.high))
        estimate = np.clip(thetas[-1] @ x[decision.action], ARMS.low, ARMS.high)
        np.testing.assert_allclose(seen[-1][1], estimate, rtol=1e-12)
    rewards, estimates, times = zip(*seen, strict=True)
    assert times == tuple(range(40))
    np.testing.assert_allclose(state.iterate, np.mean(np.add(rewards, estimates) / 2.0, axis=0))
    np.testing.assert_allclose(state.average, np.mean(rewards, axis=0))


@pytest.mark.parametrize("wrong", [None, [1.0], [np.nan, 1.0], "rho"], ids=str)
def test_what_is_not_a_reward_vector_is_refused(wrong: Any) -> None:
    agent = fw.Agent(
        fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem"), iterate=lambda *_: wrong), ARMS
    )
    decision = agent.act(np.eye(3) / 2)
    with pytest.raises(InvalidInput, match="iterate returned"):
        agent.update(decision, [0.5, 0.5])
    assert agent.t == 0


# --- a starting point -------------------------------------------------------------------------


@pytest.mark.parametrize("iterate", ["observed", observed], ids=["compiled", "plain"])
def test_start_sets_the_direction_until_the_first_answer(iterate: Any) -> None:
    f, z = Welfare(0.5, offset=1.5), np.array([0.8, -0.5])
    policy = fw.FrankWolfe(f, LinUCB(exploration="theorem"), Identity(), start=z, iterate=iterate)
    agent = fw.Agent(policy, ARMS)
    running = agent._running
    bound = f.bind(ARMS)
    decisions = [agent.act(np.eye(3) / 2) for _ in range(3)]
    np.testing.assert_allclose(running.direction(), bound.gradient(z), rtol=1e-12)
    for decision in decisions:
        agent.update(decision, [0.25, 1.0])
    np.testing.assert_allclose(
        running.direction(), bound.gradient(np.array([0.25, 1.0])), rtol=1e-12
    )
    assert agent.average.tolist() == [0.25, 1.0]
    again = fw.Agent.restore(agent.dump(), policy=policy)
    assert again.policy == policy


def test_a_start_of_another_length_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"start has the shape \(3,\)"):
        fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem"), start=[0.0, 0.0, 0.0]).init(ARMS)
    for wrong in ([[1.0]], [np.nan, 0.0]):
        with pytest.raises(InvalidInput, match="start is"):
            fw.FrankWolfe(Minimum(), LinUCB(exploration="theorem"), start=wrong)


def test_rankings_start_too() -> None:
    start = np.linspace(0.0, 1.0, LISTS.n_objectives)
    policy = FWLinUCBRank(
        TwoSided(GiniWelfare(), beta=0.5), smoothing=Moreau(0.1), start=start, exploration="theorem"
    )
    plain = FWLinUCBRank(
        TwoSided(GiniWelfare(), beta=0.5), smoothing=Moreau(0.1), exploration="theorem"
    )
    assert policy.init(LISTS).direction().tolist() != plain.init(LISTS).direction().tolist()
