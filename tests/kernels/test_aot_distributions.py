"""The probabilities of all arms of a rule against what the rule says of each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.core.streams import stream
from fairwolfe.kernels.ridge import Regression
from fairwolfe.kernels.rules import choose, distributions
from fairwolfe.oracles import OnlineGradient

REWARDS = {"clicks": (0, 1), "saves": (0, 2)}
BASES: dict[str, Any] = {
    "squarecb": SquareCB(gamma0=20.0),
    "epsilon_greedy": EpsilonGreedy(0.2),
    "linucb": LinUCB(exploration="theorem"),
    "uniform": Uniform(),
}


def learnt(base: Any, problem: Problem, rng: np.random.Generator) -> tuple[Any, Regression]:
    """A state after some updates."""
    state = base.init(problem)
    model: Regression = state.oracle.model()
    for _ in range(30):
        model.learn(int(rng.integers(problem.n_arms or 1)), 0.5 * rng.normal(size=3), rng.random(2))
    return state, model


def one_by_one(
    name: str, model: Regression, g: Any, features: Any, per_arm: bool, uniforms: int, params: Any
) -> Any:
    """Row by row, what the rule says of each arm that numbers on a fine grid fall on."""
    rows = []
    for x in features:
        row: dict[int, float] = {}
        for uniform in np.linspace(0.0, 1.0, 2000, endpoint=False) if uniforms else [0.0]:
            arm, chance, _ = choose(name, model, g, x, per_arm, np.array([uniform]), params)
            assert row.setdefault(arm, chance) == chance
        rows.append(row)
    return rows


def check(base: Any, problem: Problem, arms: int, rng: np.random.Generator, name: str) -> None:
    state, model = learnt(base, problem, rng)
    per_arm = problem.n_arms is not None
    features = rng.normal(size=(8, 1 if per_arm else arms, 3)) / 2.0
    features[0] = 0.0  # all alike
    given = (rng.normal(size=2), features, per_arm, base.uniforms, state.params)
    out = np.empty((8, arms))
    assert distributions(name, model, *given, out) == 0
    np.testing.assert_allclose(out.sum(axis=1), 1.0, rtol=1e-9)
    for found, said in zip(out, one_by_one(name, model, *given), strict=True):
        for arm, chance in said.items():
            assert found[arm] == chance
        assert sum(found[arm] for arm in range(arms) if arm not in said) < 0.01


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("n_arms", [None, 1, 5])
def test_probabilities_are_those_of_the_rule(name: str, n_arms: int | None) -> None:
    rng = stream(n_arms or 0, "rules", name)
    problem = Problem.arms(3, REWARDS, n_arms=n_arms, parameter_norm=1.0)
    for arms in (1, 2, 7) if n_arms is None else (n_arms,):
        check(BASES[name], problem, arms, rng, name)


def test_online_gradients_have_probabilities() -> None:
    base = SquareCB(gamma0=20.0, oracle=OnlineGradient())
    problem = Problem.arms(3, REWARDS, parameter_norm=1.0)
    check(base, problem, 4, stream(0, "online"), "squarecb")


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
