"""Candidates among arms: the same as a context of these arms alone, under their own numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniWelfare, Minimum
from fairwolfe.oracles import OnlineGradient
from fairwolfe.smoothing import Randomized

REWARDS = {"clicks": (0.0, 1.0), "minutes": (0.0, 1.0)}
D, K = 3, 5
SHARED = fw.Problem.arms(D, REWARDS, parameter_norm=1.0)
APART = fw.Problem.arms(D, REWARDS, parameter_norm=1.0, n_arms=K)
POLICIES: dict[str, Any] = {
    "LinUCB": fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")),
    "SquareCB": fw.FrankWolfe(Minimum(), SquareCB(gamma0=20.0)),
    "the theorem's gamma": fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0="theorem")),
    "Thompson": fw.FrankWolfe(GiniWelfare(), Thompson()),
    "EpsilonGreedy": fw.FrankWolfe(
        GiniWelfare(), EpsilonGreedy(0.3, oracle=OnlineGradient()), memory=30.0
    ),
    "Uniform": fw.FrankWolfe(GiniWelfare(), Uniform()),
    "a random direction": fw.FrankWolfe(
        Minimum(), LinUCB(exploration="theorem"), Randomized(n_samples=2)
    ),
    "a mixture": fw.MOLinCB(Minimum()),
}
ONE_DESIGN = {"extended": fw.FrankWolfe(Minimum(), LinUCB(model="extended", exploration="theorem"))}


def state(agent: fw.Agent) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in arrays_of(agent._running)}


def contents(agent: fw.Agent) -> dict[str, Any]:
    """Everything that may not change when something is refused."""
    return state(agent) | {"ledger": repr(agent._ledger.saved()), "warned": agent._warned.copy()}


def some(rng: np.random.Generator) -> list[int]:
    """Some of the arms, in any order."""
    return list(rng.permutation(K)[: int(rng.integers(1, K + 1))].tolist())


@pytest.mark.parametrize("name", [*POLICIES, *ONE_DESIGN])
def test_candidates_are_a_context_of_these_rows_alone(name: str) -> None:
    policy = {**POLICIES, **ONE_DESIGN}[name]
    among, alone = fw.Agent(policy, SHARED, seed=3), fw.Agent(policy, SHARED, seed=3)
    rng = stream(1, "rows")
    for t in range(80):
        context, few = rng.uniform(-0.5, 0.5, (K, D)), some(rng)
        chosen = sorted(few)
        if t % 2:
            one = among.act(context, candidates=few)
        else:
            one = among.act(context, blocked=[a for a in range(K) if a not in few])
        two = alone.act(context[chosen])
        assert one.action == chosen[two.action]
        assert one.probability == two.probability
        reward = rng.random(2)
        among.update(one, reward)
        alone.update(two, reward)
    assert state(among) == state(alone)


@pytest.mark.parametrize("name", POLICIES)
def test_all_arms_as_candidates_change_nothing_where_arms_have_parameters_of_their_own(
    name: str,
) -> None:
    agents = [fw.Agent(POLICIES[name], APART, seed=3) for _ in range(2)]
    rng = stream(2, "rows")
    for _ in range(60):
        context, reward = fw.PerArm(rng.uniform(-0.5, 0.5, D)), rng.random(2)
        one, two = agents[0].act(context), agents[1].act(context, candidates=range(K))
        assert (one.action, one.probability) == (two.action, two.probability)
        for agent, decision in zip(agents, (one, two), strict=True):
            agent.update(decision, reward)
    assert state(agents[0]) == state(agents[1])


@pytest.mark.parametrize("name", POLICIES)
def test_arms_with_parameters_of_their_own_learn_in_their_own_blocks(name: str) -> None:
    """An agent that chooses among some arms leaves the blocks of the others as they were, and
    learns in the block of the arm that it says.
    """
    agent = fw.Agent(POLICIES[name], APART, seed=5)
    rng = stream(3, "rows")
    for _ in range(60):
        few = some(rng)
        decision = agent.act(fw.PerArm(rng.uniform(-0.5, 0.5, D)), candidates=few)
        assert decision.action in few
        before = agent._running.base_state.oracle.theta.copy()
        agent.update(decision, rng.random(2))
        changed = np.flatnonzero(
            (agent._running.base_state.oracle.theta != before).any(axis=(1, 2))
        )
        assert changed.tolist() in ([decision.action], [])


def test_the_best_block_among_the_candidates_is_chosen() -> None:
    """Arm a earns a/K; without exploration the largest number among the candidates wins."""
    policy = fw.FrankWolfe(GiniWelfare(), LinUCB(exploration=0.0))
    agent = fw.Agent(policy, APART)
    x = fw.PerArm([0.5, 0.5, 0.5])
    for arm in [*range(K)] * 20:
        decision = agent.act(x, candidates=[arm])
        assert decision.action == arm
        agent.update(decision, [arm / K, arm / K])
    rng = stream(4, "rows")
    for _ in range(30):
        few = some(rng)
        decision = agent.act(x, candidates=few)
        assert decision.action == max(few)
        (why,) = decision.explain()
        assert why["arm"] == max(few)
        assert why["value"] + why["exploration"] == pytest.approx(why["value"])
        agent.expire(decision)


def test_a_probability_is_that_among_the_candidates() -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), Uniform()), SHARED)
    context = np.full((K, D), 0.3)
    assert agent.act(context).probability == pytest.approx(1 / K)
    assert agent.act(context, candidates=[4, 1]).probability == pytest.approx(1 / 2)
    assert agent.act(context, blocked=[0]).probability == pytest.approx(1 / (K - 1))
    assert agent.act(context, candidates=[2, 4], blocked=[2]).probability == 1.0


@pytest.mark.parametrize("problem", [SHARED, APART], ids=["shared", "apart"])
@pytest.mark.parametrize("name", ["LinUCB", "SquareCB", "Thompson"])
@pytest.mark.parametrize("alike", [True, False])
def test_many_are_as_one_by_one(name: str, problem: fw.Problem, alike: bool) -> None:
    agents = [fw.Agent(POLICIES[name], problem, seed=7) for _ in range(2)]
    rng = stream(5, "rows")
    for _ in range(6):
        n = 4
        contexts: list[Any] = [rng.uniform(-0.5, 0.5, (K, D)) for _ in range(n)]
        if problem is APART:
            contexts = [fw.PerArm(rows[0]) for rows in contexts]
        sizes = [2] * n if alike else [1, 3, 5, 2]
        few = [rng.permutation(K)[:size].tolist() for size in sizes]
        one = [agents[0].act(x, candidates=c) for x, c in zip(contexts, few, strict=True)]
        many = agents[1].act_many(contexts, candidates=few)
        assert [d.action for d in many] == [d.action for d in one]
        assert [d.probability for d in many] == [d.probability for d in one]
        assert [d.explain() for d in many] == [d.explain() for d in one]
        rewards = rng.random((n, 2))
        for decision, reward in zip(one, rewards, strict=True):
            agents[0].update(decision, reward)
        agents[1].update_many(many, rewards)
    assert state(agents[0]) == state(agents[1])


def test_an_array_of_contexts_with_one_list_for_all() -> None:
    agents = [fw.Agent(POLICIES["SquareCB"], SHARED, seed=7) for _ in range(2)]
    contexts = stream(6, "rows").uniform(-0.5, 0.5, (9, K, D))
    many = agents[0].act_many(contexts, candidates=[0, 2, 4], blocked=[2])
    one = [agents[1].act(context, candidates=[0, 4]) for context in contexts]
    assert [d.action for d in many] == [d.action for d in one]
    assert {d.action for d in many} <= {0, 4}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no arm": ({"candidates": []}, r"no arm is left: candidates is \[\] .*; leave at least one"),
    "all blocked": ({"blocked": range(K)}, r"no arm is left: candidates is None and blocked is"),
    "none left": ({"candidates": [1], "blocked": [1]}, r"no arm is left"),
    "too large": (
        {"candidates": [0, 5]},
        r"candidates holds 5; the arms of the context are 0",
    ),
    "negative": ({"blocked": [-1]}, r"blocked holds -1; the arms of the context are 0 to 4"),
    "twice": ({"candidates": [1, 1]}, r"candidates holds arm 1 twice; give every arm once"),
    "blocked twice": ({"blocked": [1, 1]}, r"blocked holds arm 1 twice"),
    "half": ({"candidates": [0.5]}, r"candidates holds 0\.5; the arms"),
    "true": ({"candidates": [True]}, r"candidates holds True; the arms"),
    "a number": ({"candidates": 3}, r"candidates is 3; give a list of arms, by number or name"),
    "a text": ({"candidates": "34"}, r"candidates is '34'; give a list of arms"),
    "a name": (
        {"candidates": ["x"]},
        r"candidates holds 'x', which is not an arm here; the arms",
    ),
    "nothing": ({"candidates": [None]}, r"candidates holds None; the arms"),
    "pins": ({"pinned": {0: 1}}, r"pinned is for rankings; leave it out"),
}


@pytest.mark.parametrize("problem", [SHARED, APART], ids=["shared", "apart"])
@pytest.mark.parametrize(("options", "sentence"), BAD.values(), ids=BAD)
def test_bad_candidates_change_nothing(
    options: dict[str, Any], sentence: str, problem: fw.Problem
) -> None:
    agent = fw.Agent(POLICIES["LinUCB"], problem)
    context: Any = np.eye(K)[:, :D] / 2 if problem is SHARED else fw.PerArm([0.5, 0.1, 0.1])
    agent.update(agent.act(context), [0.5, 0.5])
    before = contents(agent)
    with pytest.raises(InvalidInput, match=sentence):
        agent.act(context, **options)
    each: dict[str, Any] = {
        name: [None if name != "blocked" else [], value] for name, value in options.items()
    }
    with pytest.raises(InvalidInput, match=f"context 1: {sentence}"):
        agent.act_many([context, context], **each)
    assert contents(agent) == before


def test_names_are_accepted_and_unknown_ones_refused() -> None:
    agent = fw.Agent(POLICIES["Uniform"], APART, arms=["a", "b", "c", "d", "e"])
    x = fw.PerArm([0.5, 0.1, 0.1])
    for _ in range(10):
        decision = agent.act(x, candidates=["e", 1, "c"], blocked=["b"])
        assert decision.name in ("c", "e")
        assert decision.explain()[0]["arm"] == decision.action
        assert decision.explain()[0]["name"] == decision.name
    for bad, sentence in (
        ({"candidates": ["f"]}, r"candidates holds 'f', which is not an arm here; known are: a, b"),
        ({"candidates": ["b", 1]}, r"candidates holds arm 1 twice"),
        ({"blocked": "b"}, r"blocked is 'b'; give a list"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            agent.act(x, **bad)


class InTurn:
    """A policy that is given contexts as they are."""

    def init(self, problem: fw.Problem) -> Any:
        return ()

    def act(self, state: Any, context: Any, rng: Any) -> fw.Decision:
        return fw.Decision("", 0, len(context) - 1, 1.0, ())

    def update(self, state: Any, decision: fw.Decision, feedback: Any) -> Any:
        return state


def test_a_policy_that_takes_contexts_as_they_are_has_names_and_no_candidates() -> None:
    agent = fw.Agent(InTurn(), SHARED)
    rows = np.eye(D) / 2
    assert agent.act(dict(zip("abc", rows, strict=True))).name == "c"
    made = agent.act_many([dict(zip("xyz", rows, strict=True))] * 2)
    assert [one.name for one in made] == ["z", "z"]
    with pytest.raises(InvalidInput, match=r"takes contexts as they are, without candidates; use"):
        agent.act(rows, candidates=[0])
    with pytest.raises(InvalidInput, match=r"takes contexts as they are, without candidates; use"):
        agent.act_many([rows], candidates=[0])
