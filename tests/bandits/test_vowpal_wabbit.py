"""`VowpalWabbit`: the real package behind the contract of a policy for one reward."""

from __future__ import annotations

import sys
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, Problem
from fairwolfe.bandits import Extended, VowpalWabbit
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.streams import stream
from fairwolfe.errors import (
    FairwolfeError,
    IncompatibleState,
    InvalidInput,
    MissingExtra,
    NumericalFailure,
)
from fairwolfe.objectives import GiniWelfare, Minimum
from fairwolfe.reduction import FrankWolfe

PROBLEM = Problem.arms(3, {"clicks": (0.0, 1.0), "saves": (0.0, 1.0)}, feature_norm=3.0**0.5)
THETA = np.array([0.5, -1.0, 2.0])


def taught(policy: VowpalWabbit, rounds: int = 300, probability: float = 1.0) -> Any:
    """A state that has seen each parameter by itself, without noise."""
    state = policy.init(3)
    for t in range(rounds):
        state = policy.update(state, np.eye(3)[t % 3], 0, probability, float(THETA[t % 3]))
    return state


def contexts() -> Matrix:
    return stream(1, "vowpal wabbit").normal(size=(6, 3))


@pytest.mark.needs("vowpalwabbit")
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_squarecb_is_squarecb(scale: float) -> None:
    """P(a) = 1/(K + gamma gap), gamma = scale sqrt(300)."""
    state, x = taught(VowpalWabbit(gamma_scale=scale)), contexts()
    values: Vector = x @ THETA
    wanted = 1.0 / (len(x) + scale * 300.0**0.5 * (values.max() - values))
    best = values.argmax()
    wanted[best] += 1.0 - wanted.sum()
    np.testing.assert_allclose(state.probabilities(x), wanted, rtol=1e-5)


@pytest.mark.needs("vowpalwabbit")
def test_epsilon_is_epsilon_greedy() -> None:
    state, x = taught(VowpalWabbit(exploration="epsilon", epsilon=0.3)), contexts()
    wanted = np.full(6, 0.05)
    wanted[(x @ THETA).argmax()] += 0.7
    np.testing.assert_allclose(state.probabilities(x), wanted, rtol=1e-6)


@pytest.mark.needs("vowpalwabbit")
def test_the_arm_is_drawn_here_with_the_probability_that_is_stated() -> None:
    policy = VowpalWabbit(gamma_scale=1.0)
    state, x = taught(policy, 20), contexts()
    probabilities = state.probabilities(x)
    drawn = [policy.act(state, x, stream(seed, "draw")) for seed in range(50)]
    assert len({arm for arm, _ in drawn}) > 1
    for seed, (arm, probability) in enumerate(drawn):
        assert probability == probabilities[arm]
        assert arm == np.searchsorted(
            probabilities.cumsum(), stream(seed, "draw").random(), "right"
        )


@pytest.mark.needs("vowpalwabbit")
@pytest.mark.parametrize("exploration", ["squarecb", "epsilon"])
@pytest.mark.parametrize("more", ["", "--coin", "--quadratic ff", "--sgd --learning_rate 0.05"])
def test_predicting_teaches_nothing(exploration: Any, more: str) -> None:
    policy = VowpalWabbit(exploration=exploration, weighted=True, arguments=more)
    calm, asked = policy.init(3), policy.init(3)
    rng = stream(0, "calm")
    for _ in range(30):
        x, reward, probability = rng.normal(size=3), rng.random(), rng.uniform(0.1, 1.0)
        for _ in range(3):
            policy.act(asked, contexts(), rng)
        calm = policy.update(calm, x, 0, probability, reward)
        asked = policy.update(asked, x, 0, probability, reward)
    assert calm == asked
    assert (calm.probabilities(contexts()) == asked.probabilities(contexts())).all()
    before = deepcopy(calm)
    policy.update(calm, x, 0, 0.5, 2.0)
    assert calm != before


@pytest.mark.needs("vowpalwabbit")
def test_probabilities_count_only_if_they_should() -> None:
    plain, weighted = VowpalWabbit(), VowpalWabbit(weighted=True)
    assert taught(plain, 5, 1.0) == taught(plain, 5, 0.1)
    assert taught(weighted, 5, 1.0) != taught(weighted, 5, 0.1)


def played(agent: Agent, rounds: int, seed: int) -> list[tuple[int, float | None]]:
    rng, done = stream(seed, "agent"), []
    for _ in range(rounds):
        context = rng.random((4, 3))
        decision = agent.act(context)
        agent.update(decision, (rng.random(2) < context[decision.action, :2]).astype(float))
        done.append((int(decision.action), decision.probability))
    return done


@pytest.mark.needs("vowpalwabbit")
@pytest.mark.parametrize(
    "base",
    [
        Extended(VowpalWabbit(gamma_scale=10.0)),
        Extended(VowpalWabbit(exploration="epsilon", arguments="--coin")),
        Extended(VowpalWabbit(gamma_scale=10.0, arguments="--quadratic ff"), features="pair"),
    ],
    ids=["squarecb", "epsilon", "pair"],
)
def test_an_agent_goes_on_from_its_file(base: Extended, tmp_path: Path) -> None:
    agent = Agent(FrankWolfe(Minimum(), base), PROBLEM, seed=1)
    played(agent, 60, 0)
    agent.save(tmp_path / "agent.fw")
    again = Agent.load(tmp_path / "agent.fw")
    assert again.policy == agent.policy
    assert played(again, 100, 1) == played(agent, 100, 1)
    agent.replace_objective(GiniWelfare())
    again.replace_objective(GiniWelfare())
    assert played(again, 20, 2) == played(agent, 20, 2)


@pytest.mark.needs("vowpalwabbit")
def test_a_model_that_is_none_is_refused() -> None:
    state = taught(VowpalWabbit())
    kept = deepcopy(state)
    with pytest.raises(IncompatibleState, match="cannot read the saved model: "):
        state.load(state.dump()[:50])
    assert state == kept


@pytest.mark.needs("vowpalwabbit")
def test_bad_values_are_refused_before_anything_changes() -> None:
    policy = VowpalWabbit(arguments="--sgd --learning_rate 1e30")
    with pytest.raises(InvalidInput, match=r"Vowpal Wabbit rejects .*--nonsense"):
        VowpalWabbit(arguments="--nonsense").init(3)
    with pytest.raises(InvalidInput, match="n_features is 0"):
        policy.init(0)
    state = policy.init(3)
    kept = deepcopy(state)
    for probability in (None, 0.0, 1.5, float("nan")):
        with pytest.raises(InvalidInput, match="the probability of the arm is"):
            policy.update(state, np.ones(3), 0, probability, 1.0)
    for x, reward in ((np.full(3, 1e39), 1.0), (np.ones(3), 1e39), (np.ones(3), float("nan"))):
        with pytest.raises(InvalidInput, match="scale the features and rewards"):
            policy.update(state, x, 0, 1.0, reward)
    with pytest.raises(InvalidInput, match=r"a feature or reward of size 1e\+39"):
        policy.act(state, np.full((2, 3), 1e39), stream(0, "bad"))
    assert state == kept
    for _ in range(5):
        policy.update(state, np.array([1e9, 1.0, 1.0]), 0, 1.0, 1e9)
    with pytest.raises(NumericalFailure, match="its weights have become"):
        policy.act(state, contexts(), stream(0, "bad"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"exploration": "bag"}, "exploration is 'bag'; give 'squarecb' or 'epsilon'"),
        ({"gamma_scale": 0.0}, r"gamma_scale is 0\.0; give a positive number"),
        ({"epsilon": 1.5}, r"epsilon is 1\.5; give a number from 0 to 1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        VowpalWabbit(**settings)


def test_without_the_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vowpalwabbit", None)
    policy = FrankWolfe(GiniWelfare(), Extended(VowpalWabbit()))
    with pytest.raises(MissingExtra, match=r"pip install 'fairwolfe\[integrations\]'") as caught:
        policy.init(PROBLEM)
    assert isinstance(caught.value, FairwolfeError)
