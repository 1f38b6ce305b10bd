"""The probabilities of all arms: compiled rules against rules that Python calls, bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.core.streams import stream
from fairwolfe.kernels.distributions import distributions
from fairwolfe.kernels.ridge import Regression
from fairwolfe.offpolicy.targets import _by_rule
from fairwolfe.oracles import OnlineGradient, Ridge

REWARDS = {"clicks": (0, 1), "saves": (0, 2)}
BASES: dict[str, Any] = {
    "squarecb": SquareCB(gamma0=20.0),
    "epsilon_greedy": EpsilonGreedy(0.2),
    "linucb": LinUCB(),
    "uniform": Uniform(),
}


def learnt(base: Any, problem: Problem, rng: np.random.Generator) -> tuple[Any, Regression]:
    """A state of the oracle after some updates."""
    state = base.init(problem)
    learn = "ridge" if isinstance(base.regression, Ridge) else "online_gradient"
    make: Any = Regression
    model: Regression = make(*state.oracle, learn)
    for _ in range(30):
        model.learn(int(rng.integers(problem.n_arms or 1)), 0.5 * rng.normal(size=3), rng.random(2))
    return state, model


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("n_arms", [None, 1, 5])
def test_probabilities_are_bit_equal(name: str, n_arms: int | None) -> None:
    base, rng = BASES[name], stream(n_arms or 0, "rules", name)
    problem = Problem.arms(3, REWARDS, n_arms=n_arms, parameter_norm=1.0)
    state, model = learnt(base, problem, rng)
    for arms in (1, 2, 7) if n_arms is None else (n_arms,):
        features = rng.normal(size=(40, arms if n_arms is None else 1, 3)) / 2.0
        features[0] = 0.0  # all alike
        direction = rng.normal(size=2)
        given = (direction, features, n_arms is not None, base.uniforms, state.params)
        out, wanted = np.empty((2, 40, arms))
        assert distributions(name, model, *given, out) == 0
        assert _by_rule(base, state.oracle, *given, wanted) == 0
        assert out.tobytes() == wanted.tobytes()
        np.testing.assert_allclose(out.sum(axis=1), 1.0, rtol=1e-9)


def test_online_gradients_have_probabilities() -> None:
    base, rng = SquareCB(gamma0=20.0, oracle=OnlineGradient()), stream(0, "online")
    state, model = learnt(base, Problem.arms(3, REWARDS, parameter_norm=1.0), rng)
    features, direction = rng.normal(size=(20, 4, 3)), np.ones(2)
    out, wanted = np.empty((2, 20, 4))
    given = (direction, features, False, base.uniforms, state.params)
    assert distributions("squarecb", model, *given, out) == 0
    assert _by_rule(base, state.oracle, *given, wanted) == 0
    assert out.tobytes() == wanted.tobytes()


def test_what_says_no_probabilities_is_named_and_other_shapes_are_refused() -> None:
    problem = Problem.arms(3, REWARDS, parameter_norm=1.0)
    state, model = learnt(Thompson(), problem, stream(0, "thompson"))
    features, none = np.ones((4, 2, 3)), np.empty(0)
    out = np.empty((4, 2))
    assert distributions("thompson", model, np.ones(2), features, False, 3, state.params, out) == -1
    assert distributions("uniform", model, np.ones(2), features[:0], False, 1, none, out[:0]) == 0
    for wrong in (
        (np.ones(2), features[:3], False, 1, none, out),
        (np.ones(2), features, False, 1, none, np.empty((4, 3))),
        (np.ones(3), features, False, 1, none, out),
        (np.ones(2), np.ones((4, 2, 2)), False, 1, none, out),
        (np.ones(2), features, True, 1, none, out),
    ):
        with pytest.raises(ValueError, match=r"features|rewards"):
            distributions("uniform", model, *wrong)
    with pytest.raises(ValueError, match="params"):
        distributions("squarecb", model, np.ones(2), features, False, 1, none, out)
