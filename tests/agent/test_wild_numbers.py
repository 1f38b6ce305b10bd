"""One wild number does not stop an agent: it is refused where it enters, or survived."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson
from fairwolfe.core.decision import Decision
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.objectives import Custom, GiniWelfare, Linear, Minimum, Nash, TwoSided, Welfare
from fairwolfe.oracles import OnlineGradient
from fairwolfe.ranking import FWLinUCBRank

PROBLEM = fw.Problem.arms(3, {"a": (0, 1), "b": (0, 1)}, parameter_norm=1.0)
BASES = {
    "shared": LinUCB(),
    "extended": LinUCB(model="extended"),
    "squarecb": SquareCB(gamma0=10.0),
    "gradient": SquareCB(gamma0=10.0, oracle=OnlineGradient()),
    "epsilon": EpsilonGreedy(0.1),
    "thompson": Thompson(),
}


def arrays(agent: fw.Agent) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays_of(agent._running)}


def play(agent: fw.Agent, n: int, seed: int = 0) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(n):
        agent.update(agent.act(rng.random((4, 3)) / 2), rng.random(2))


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
@pytest.mark.parametrize("scale", [1e4, 1e6, 1e200, 1.7e308])
def test_a_wild_row_is_refused_with_its_value_and_the_limit(base: Any, scale: float) -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), base), PROBLEM)
    play(agent, 5)
    before, rows = arrays(agent), np.full((4, 3), 0.1)
    rows[2, 1] = scale
    with pytest.raises(InvalidInput, match=r"arm 2 go up to .* at most 1, and from more than 1000"):
        agent.act(rows)
    assert arrays(agent) == before
    assert agent.open == 0
    play(agent, 200)


@pytest.mark.parametrize("base", BASES.values(), ids=BASES.keys())
def test_rows_up_to_a_hundred_norms_are_learnt_with_one_warning(base: Any) -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), base), PROBLEM)
    row = np.full((1, 3), 100.0 / np.sqrt(3.0))
    with pytest.warns(UserWarning, match="features of norm 100"):
        agent.update(agent.act(row), [0.5, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.update(agent.act(row), [0.5, 0.5])
        play(agent, 500)
    assert agent.stats()["features_over_norm"] == 2
    assert agent.t == 502


def test_one_row_of_a_hundred_norms_does_not_stop_the_agent_at_a_refresh() -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB()), PROBLEM)
    with pytest.warns(UserWarning, match="features of norm"):
        agent.update(agent.act(np.full((1, 3), 500.0)), [0.5, 0.5])
    play(agent, 10_200)
    assert agent.t == 10_201
    drift = agent.stats()["drift"]
    assert 0.0 < drift < 1e-6


@pytest.mark.parametrize("ridge", [1e-5, 1e-7, 1e-12])
def test_dependent_features_do_not_stop_an_agent(ridge: float) -> None:
    problem = fw.Problem.arms(4, {"a": (0, 1)})
    agent = fw.Agent(fw.FrankWolfe(Linear([1.0]), LinUCB(ridge=ridge)), problem)
    rng = np.random.default_rng(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the drift, for the smaller ones
        for _ in range(10_100):
            half = rng.random((3, 2))
            agent.update(agent.act(np.concatenate([half, half], axis=1) / 2.9), [rng.random()])
    oracle = agent._running.base_state.oracle
    assert agent.t == 10_100 == oracle.counters[0]
    assert all(np.isfinite(array).all() for _, array in arrays_of(agent._running))
    # The regression itself: two columns of half the parameter each, to the size of the noise.
    assert np.abs(oracle.theta @ np.array([0.1, 0.0, 0.1, 0.0])).max() < 1.0


def test_a_wild_item_is_refused_and_rankings_go_on() -> None:
    problem = fw.Problem.ranking(4, 2, 2)
    agent = fw.Agent(FWLinUCBRank(TwoSided(GiniWelfare(), beta=0.5)), problem)
    rows = np.random.default_rng(0).random((4, 2)) / 2
    wild = rows.copy()
    wild[1] = 1e180
    before = arrays(agent)
    with pytest.raises(InvalidInput, match="item 1 go up to 1e\\+180"):
        agent.act(wild)
    assert arrays(agent) == before
    for _ in range(50):
        decision = agent.act(rows)
        agent.update(decision, exposed=np.asarray(decision.action).tolist(), clicked=[])
    assert agent.t == 50


def forged(agent: fw.Agent, decision: Decision, x: Any) -> Decision:
    """What somebody with the key of the agent could write."""
    rows: Any = decision.batch.rows
    batch = fw.Batch(rows._replace(x=x[None]), decision.token, agent._key)
    return Decision.from_bytes(batch.to_bytes())


def test_a_wild_row_in_a_forged_decision_is_refused() -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB()), PROBLEM)
    decision = agent.act(np.eye(3) / 2)
    before = arrays(agent)
    for x in (np.full(3, 1e200), np.full(3, np.nan), np.full(3, 1e4), np.full(3, -np.inf)):
        with pytest.raises(InvalidInput, match=r"at most 1000 can be learnt|not finite"):
            agent.update(forged(agent, decision, x), [0.5, 0.5])
    assert arrays(agent) == before
    agent.update(decision, [0.5, 0.5])
    assert agent.stats()["refused"] == 4


def test_a_state_that_lost_its_inverse_is_rebuilt() -> None:
    """As after a bug or a flipped bit: V and the moments are the truth, the rest follows."""
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB()), PROBLEM)
    play(agent, 100)
    oracle = agent._running.base_state.oracle
    right = oracle.inverse.copy(), oracle.theta.copy()
    oracle.inverse[:] *= -1.0  # x' A x < -1: no observation can be taken in
    oracle.inverse[:] *= 1e6
    agent.update(agent.act(np.full((1, 3), 0.5)), [0.5, 0.5])
    play(agent, 10, seed=1)
    assert np.isfinite(oracle.inverse).all()
    other = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB()), PROBLEM)
    play(other, 100)
    other._running.base_state.oracle.inverse[:] = 7.0
    assert other.repair() > 1.0
    assert np.allclose(other._running.base_state.oracle.inverse, right[0], rtol=1e-12)
    assert np.allclose(other._running.base_state.oracle.theta, right[1], rtol=1e-10)
    assert other.repair() == 0.0


def test_a_choice_that_cannot_be_made_rebuilds_the_state() -> None:
    agent = fw.Agent(fw.FrankWolfe(Minimum(), Thompson()), PROBLEM)
    play(agent, 50)
    agent._running.base_state.oracle.inverse[:] *= -1.0  # no Gaussian has this covariance
    with pytest.warns(UserWarning, match="recomputed"):
        play(agent, 10, seed=1)
    assert agent.t == 60


def test_masked_and_complex_contexts_are_refused() -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB()), PROBLEM)
    rows = np.full((2, 3), 0.1)
    masked = np.ma.array(rows, mask=np.eye(2, 3, dtype=bool))
    for given, what in ((masked, "masked"), (rows + 0j, "complex|0j"), (rows.astype(str), "'0.1'")):
        with pytest.raises(InvalidInput, match=what):
            agent.act(given)
    agent.act(np.ma.array(rows, mask=False))
    ranking = fw.Agent(FWLinUCBRank(TwoSided(GiniWelfare())), fw.Problem.ranking(2, 1, (3, 3)))
    for pair in (fw.Bilinear(masked[0], rows), fw.Bilinear(rows[0], masked)):
        with pytest.raises(InvalidInput, match="masked"):
            ranking.act(pair)
    with pytest.raises(InvalidInput, match="0j"):
        ranking.act(fw.Bilinear(rows[0], rows + 0j))


def test_wild_rewards_are_refused_by_name() -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB()), PROBLEM)
    decision = agent.act(np.eye(3) / 2)
    before = arrays(agent)
    with pytest.raises(InvalidInput, match=r"'b' is 1e\+200.*0 to 1"):
        agent.update(decision, {"a": 0.5, "b": 1e200})
    with pytest.raises(InvalidInput, match=r"'a' is -3e\+09"):
        agent.update(decision, [-3e9, 0.5])
    assert arrays(agent) == before
    with pytest.warns(UserWarning, match="the reward 'b' is 1000"):
        agent.update(decision, [0.5, 1000.0])
    assert agent.t == agent.out_of_range == 1


@pytest.mark.parametrize("f", [Nash(offset=1.0), Welfare(0.5, offset=1.0)])
def test_a_reward_beyond_its_range_does_not_leave_the_agent_without_a_direction(f: Any) -> None:
    agent = fw.Agent(fw.FrankWolfe(f, LinUCB()), PROBLEM)
    with pytest.warns(UserWarning, match="the reward 'a' is -5"):
        agent.update(agent.act(np.eye(3) / 2), [-5.0, 0.5])
    assert agent.value == -np.inf
    play(agent, 20)
    assert np.isfinite(agent.value)


def test_a_check_of_an_objective_takes_a_gradient_at_the_average() -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB()), PROBLEM)
    play(agent, 5)
    before, average = arrays(agent), agent.average.copy()

    def slope(z: Any) -> Any:
        return np.full(2, np.nan if np.allclose(z, average) else 1.0)

    steep = Custom(lambda z: float(z.sum()), slope, smooth=True)
    with pytest.raises(FairwolfeError) as caught:
        agent.check_change(objective=steep)
    assert arrays(agent) == before
    agent.replace_objective(steep)
    with pytest.raises(type(caught.value), match=re.escape(str(caught.value))):
        agent.act(np.full((4, 3), 0.1))
