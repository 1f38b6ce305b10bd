"""Assumption 7: every oracle of the registry keeps its regret bound on adversarial sequences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe.checks.common import examples_of, require
from fairwolfe.checks.oracle import PROBLEM, estimated_rewards, observations
from fairwolfe.core.arrays import Matrix
from fairwolfe.core.problem import Problem
from fairwolfe.core.registry import load, names
from fairwolfe.core.streams import stream
from fairwolfe.errors import ConformanceError, OutsideAssumptions
from fairwolfe.oracles import RegretBound, Ridge
from tests.capabilities import marks_of

ROUNDS = 400
SHIFTS = np.geomspace(1e-6, 1e6, 100)


def keeps_its_regret_bound(oracle: Any, rng: np.random.Generator) -> None:
    """sum |prediction - r|^2 <= sum |theta x - r|^2 + R(T) for every T and every theta with rows of
    norm at most D_theta.

    Predictions are projected on the ranges. The sequences are random, and adversarial: each reward
    as far from the prediction as it can be, for features in random directions, or in fixed ones
    that take turns.
    """
    try:
        bound = oracle.regret_bound(PROBLEM)
    except OutsideAssumptions:
        return
    low, high = PROBLEM.low, PROBLEM.high
    for name in ("random", "adverse", "adverse in turn"):
        state, features, targets, losses = oracle.init(PROBLEM), [], [], []
        for t, (drawn, random) in enumerate(observations(rng, ROUNDS)):
            x = np.eye(3)[t % 3] if name == "adverse in turn" else drawn
            predicted = np.clip(estimated_rewards(state, x)[0], low, high)
            adverse = np.where(predicted > (low + high) / 2.0, low, high)
            reward = random if name == "random" else adverse
            features.append(x)
            targets.append(reward)
            losses.append(float(((predicted - reward) ** 2).sum()))
            oracle.learn(0, x, reward, *state)
        for t in (1, 2, 5, 20, 100, ROUNDS):
            best = _small_loss(np.array(features[:t]), np.array(targets[:t]))
            regret, most = sum(losses[:t]) - best, bound.at(t)
            require(
                regret <= most + 1e-9,
                f"{name}: the regret is {regret:.4g} after {t} rounds, the bound {most:.4g}",
            )


def _small_loss(features: Matrix, targets: Matrix) -> float:
    """sum |theta x - r|^2 for a theta with rows of norm at most 1 that makes it nearly least: the
    best of many ridge regressions, cut to that norm.
    """
    gram, moments = features.T @ features, features.T @ targets
    losses = []
    for shift in SHIFTS:
        theta = np.linalg.solve(gram + shift * np.eye(len(gram)), moments)
        theta /= np.maximum(np.linalg.norm(theta, axis=0), 1.0)
        losses.append(((features @ theta - targets) ** 2).sum(axis=0))
    return float(np.min(losses, axis=0).sum())


@pytest.mark.parametrize("name", [pytest.param(n, marks=marks_of(n)) for n in names("oracles")])
def test_every_oracle_keeps_its_regret_bound(name: str) -> None:
    for example in examples_of(load("oracles", name)):
        keeps_its_regret_bound(example, stream(0, "checks", "keeps_its_regret_bound"))


class Overconfident(Ridge):
    """Promises a third of the regret bound."""

    def regret_bound(self, problem: Problem) -> RegretBound:
        constant, factor, rate, root = super().regret_bound(problem)
        return RegretBound(constant / 3.0, factor / 3.0, rate, root)


def test_a_bound_that_is_too_small_is_noticed() -> None:
    with pytest.raises(ConformanceError, match="the regret is"):
        keeps_its_regret_bound(Overconfident(), stream(0, "checks", "keeps_its_regret_bound"))
