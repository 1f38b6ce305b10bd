"""LagrangeCB: against the linear programme, its rule by hand, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import fairwolfe as fw
from fairwolfe import LagrangeCB, Problem
from fairwolfe.core.arrays import Matrix
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import AtMost, Concave, Linear

pytestmark = pytest.mark.filterwarnings("ignore:the plain loop")
TWO = np.array([[0.9, 0.3], [0.8, 0.1]])  # (rewards, arms): docs/constraints.md


def best(means: Matrix, budgets: dict[int, float]) -> float:
    """The largest mean of the first reward over mixtures of the arms, by a linear programme."""
    rows, levels = means[list(budgets)], list(budgets.values())
    found = linprog(-means[0], rows, levels, np.ones((1, means.shape[1])), [1.0])
    return -float(found.fun or 0.0)


def world_of(means: Matrix) -> Finite:
    return Finite([np.eye(means.shape[1]).tolist()], (1.0,), theta=means.tolist())


@pytest.mark.parametrize(
    ("means", "budgets", "options"),
    [
        (TWO, {1: 0.45}, {}),
        (TWO, {1: 0.45}, {"slack": 0.35}),
        (TWO, {1: 0.45 * 8_000}, {"horizon": 8_000}),
        (np.array([[0.9, 0.5, 0.1], [0.9, 0.2, 0.0], [0.1, 0.8, 0.1]]), {1: 0.4, 2: 0.3}, {}),
    ],
)
def test_it_comes_near_the_linear_programme(means: Any, budgets: Any, options: Any) -> None:
    """Within 0.02 in value and 0.01 in cost: about five standard errors of a mean of 4 x 8,000."""
    world, horizon = world_of(means), 8_000
    scale = horizon if "horizon" in options else 1
    levels = {i: b / scale for i, b in budgets.items()}
    w = np.eye(1, len(means))[0]
    policy = LagrangeCB(tuple(w), budgets, **options)
    f: Concave = Linear(tuple(w))
    for i, level in levels.items():
        f = f + AtMost(level).on(i)
    runs = [fw.simulate(policy, world, horizon, seed, f) for seed in range(4)]
    z = np.mean([run.average[-1] for run in runs], axis=0)
    top = best(means, levels)
    assert z[0] == pytest.approx(top, abs=0.02)
    assert all(z[i] <= level + 0.01 for i, level in levels.items())
    assert top < means[0].max() - 0.1  # the budget binds
    assert fw.optimum(world, f).value == pytest.approx(top, abs=2e-3)


def test_without_prices_the_budget_is_exceeded() -> None:
    world = world_of(TWO)
    run = fw.simulate(fw.FrankWolfe(Linear((1.0, 0.0)), fw.bandits.SquareCB()), world, 8_000)
    assert run.average[-1][1] > 0.7


def test_prices_move_as_the_rule_says() -> None:
    problem = Problem.arms(2, {"clicks": (0, 2), "cost": (0, 4), "saves": (0, 1)})
    policy = LagrangeCB({"clicks": 1.0, "saves": 0.5}, {"cost": 1.0}, slack=0.5, gamma0=10.0)
    state, rng = policy.init(problem), stream(0, "lagrange")
    price, cap = 0.0, (2.0 + 0.5) / 0.5
    for t in range(1, 200):
        decision = policy.act(state, rng.random((3, 2)) / 2.0, rng)
        reward = rng.random(3) * (2, 4 * (t % 3 == 0), 1)
        state = policy.update(state, decision, reward)
        price = min(max(price + cap / np.sqrt(t) * (reward[1] - 1.0) / 4.0, 0.0), cap)
        assert state.prices[0].tolist() == pytest.approx([0.0, price, 0.0], abs=1e-12)
    assert price > 0.0


def test_units_do_not_matter() -> None:
    """A run in cents decides as one in euros."""
    actions = []
    for unit in (1.0, 100.0):
        problem = Problem.arms(2, {"clicks": (0, 1), "cost": (0, unit)})
        policy = LagrangeCB({"clicks": 1.0}, {"cost": 0.3 * unit})
        state, rng = policy.init(problem), stream(0, "units")
        made = []
        for _ in range(300):
            decision = policy.act(state, np.eye(2), rng)
            made.append(decision.action)
            cost = unit * (0.9 if decision.action == 0 else 0.1)
            state = policy.update(state, decision, [0.5 + 0.4 * (decision.action == 0), cost])
        actions.append(made)
    assert actions[0] == actions[1]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"budgets": {}}, "budgets is {}; give a level for each name"),
        ({"budgets": {1: 0.0}}, "a budget is 0, and without slack"),
        ({"budgets": {1: 0.1}, "slack": -1.0}, "slack is -1.0; give a positive number"),
        ({"budgets": {1: 0.1}, "gamma0": "theorem"}, "gamma0 is 'theorem'"),
        ({"budgets": {1: 0.1}, "horizon": 0}, "horizon is 0"),
    ],
)
def test_what_cannot_be_is_refused(arguments: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        LagrangeCB((1.0, 0.0), **arguments)


def test_an_unknown_reward_is_refused() -> None:
    with pytest.raises(InvalidInput, match="there is no reward 'price'; budgets are of"):
        LagrangeCB((1.0, 0.0), {"price": 0.1}).init(Problem.arms(2, {"a": (0, 1), "b": (0, 1)}))
