"""`Agent(objective, problem)`: the recommended policy for the kind of decision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe import Agent, FrankWolfe, Problem
from fairwolfe.bandits import LinUCB
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import Concave, Custom, GiniEquality, Linear, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank

ARMS = Problem.arms(3, {"clicks": (0, 1), "minutes": (0, 10)})
LISTS = Problem.ranking(5, 2, 3)
FAIR = TwoSided(GiniEquality(), beta=0.5)


def played(agent: Agent, n: int, seed: int = 1) -> list[Any]:
    """The actions of n decisions, with noise that depends on the seed alone."""
    rng, actions = np.random.default_rng(seed), []
    for _ in range(n):
        if agent.problem.kind == "arms":
            decision = agent.act(rng.uniform(-0.5, 0.5, (4, 3)))
            agent.update(decision, rng.random(2))
        else:
            decision = agent.act(rng.uniform(0.0, 0.5, (5, 3)))
            shown = np.asarray(decision.action)[: 1 + int(rng.integers(2))]
            agent.update(decision, exposed=shown, clicked=shown[: int(rng.integers(2))])
        actions.append(np.asarray(decision.action).tolist())
    return actions


@pytest.mark.parametrize(
    ("objective", "problem", "policy"),
    [
        (Minimum(), ARMS, FrankWolfe(Minimum(), LinUCB())),
        (FAIR, LISTS, FWLinUCBRank(FAIR)),
        (FAIR, Problem.ranking(5, 2, (2, 3)), FWLinUCBRank(FAIR)),
    ],
)
def test_an_objective_stands_for_a_policy(objective: Any, problem: Problem, policy: Any) -> None:
    assert Agent(objective, problem).policy == policy


@pytest.mark.parametrize(("objective", "problem"), [(Minimum(), ARMS), (FAIR, LISTS)])
def test_it_is_saved_and_loaded_as_the_policy(
    objective: Any, problem: Problem, tmp_path: Path
) -> None:
    agent = Agent(objective, problem, seed=3)
    other = Agent(agent.policy, problem, seed=3)
    assert played(agent, 40) == played(other, 40)
    agent.save(tmp_path / "agent.fw")
    again = [
        Agent.load(tmp_path / "agent.fw"),
        Agent.load(tmp_path / "agent.fw", objective),
        Agent.load(tmp_path / "agent.fw", agent.policy),
        Agent.restore(agent.dump(), objective),
    ]
    expected = played(agent, 40, seed=2)
    for one in again:
        assert one.policy == agent.policy
        assert played(one, 40, seed=2) == expected


def test_another_objective_does_not_load_a_file() -> None:
    data = Agent(Minimum(), ARMS).dump()
    with pytest.raises(IncompatibleState, match="load it with the policy that it was saved with"):
        Agent.restore(data, Linear({"clicks": 1.0}))


def test_an_objective_with_a_function_is_loaded_with_it() -> None:
    f = Custom(lambda z: -float(z @ z), lambda z: -2.0 * z, smooth=True)
    data = Agent(f, ARMS).dump()
    with pytest.raises(IncompatibleState, match="pass it"):
        Agent.restore(data)
    assert Agent.restore(data, f).policy == FrankWolfe(f, LinUCB())


@pytest.mark.parametrize(
    ("given", "problem", "message"),
    [
        (Minimum, ARMS, r"the class Minimum; give an instance of it, Minimum\(...\)"),
        (Concave, ARMS, "the class Concave; give FrankWolfe"),
        (ARMS, Minimum(), r"the problem is Minimum\(\); make it with Problem.arms"),
        ("Minimum()", ARMS, "the policy is 'Minimum.*give an objective, or one such as FrankWolfe"),
        (None, ARMS, "the policy is None; give an objective, or one such as FrankWolfe"),
        (FAIR, ARMS, "TwoSided weighs items against users.*no items"),
        (Linear({"click": 1.0}), ARMS, "no reward 'click'; did you mean 'clicks'"),
        (Minimum(), Problem.arms(3, {"a": (0, 1)}, kind="shelf"), "kind"),
    ],
)
def test_what_is_not_an_objective_for_the_problem(given: Any, problem: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Agent(given, problem)


def test_only_an_agent_knows_the_problem() -> None:
    with pytest.raises(InvalidInput, match=r"is an objective; give FrankWolfe\(Minimum\(\)"):
        fw.simulate(Minimum(), fw.environments.Finite.a2(), 10)
