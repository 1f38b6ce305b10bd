"""Lemmas 22 to 24, the steps of Theorem 20, and the inequality behind Remark 5: each on its worst
case, and each shown to fail where its constant is smaller.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from fairwolfe.bandits import SquareCB
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite
from fairwolfe.objectives import Minimum
from fairwolfe.oracles import Ridge
from fairwolfe.truth import bounds

# --- Lemma 22 -----------------------------------------------------------------------------------


def probabilities(estimates: Vector, gamma: float) -> Vector:
    """Of the arms, as `SquareCB` states them when it draws: a number in [0, 1) for each draw."""
    problem, n = Problem.arms(1, {"r": (0, 1)}, feature_norm=1.0), estimates.size
    base = SquareCB(gamma0=gamma)
    state = base.init(problem)
    state.oracle.theta[:] = 1.0
    found = np.zeros(n)

    class Fixed(np.random.Generator):
        def random(self, *_: Any, **__: Any) -> Any:
            return np.array([[self.u]])

        u = 0.0

    rng = Fixed(np.random.PCG64(0))
    for u in np.linspace(0.0, 1.0, 4_000, endpoint=False):
        rng.u = float(u)
        choice = base.act(state, estimates[:, None], np.ones(1), rng)
        found[int(choice.action)] = choice.probability or 0.0
    return found


def worst_excess(p: Vector, estimates: Vector, gamma: float) -> float:
    """max over true means of sum_a p_a (mu_best - mu_a) - gamma/4 sum_a p_a (estimate_a - mu_a)^2,
    in closed form: for each best arm the maximum of a concave quadratic.
    """
    found = []
    for best in range(p.size):
        mu = estimates - 2.0 / gamma
        mu[best] = estimates[best] + 2.0 * (1.0 - p[best]) / (gamma * p[best])
        errors = gamma / 4.0 * (p @ (estimates - mu) ** 2)
        found.append(float(mu[best] - p @ mu - errors))
    return max(found)


@pytest.mark.parametrize("gamma", [1.0, 10.0, 60.0])
@pytest.mark.parametrize("n", [2, 5])
def test_lemma_22_a_round_costs_exploration_and_squared_error(n: int, gamma: float) -> None:
    rng = stream(0, "lemma 22", n)
    for _ in range(3):
        estimates = rng.random(n)
        p = probabilities(estimates, gamma)
        assert p.sum() == pytest.approx(1.0)
        assert worst_excess(p, estimates, gamma) <= 2.0 * n / gamma + 1e-12
    greedy = np.full(n, 1e-3 / n) + np.eye(n)[0] * (1.0 - 1e-3)
    assert worst_excess(greedy, estimates, gamma) > 2.0 * n / gamma


# --- Lemma 23, and Remark 5 ---------------------------------------------------------------------


def squared_errors(runs: int, rounds: int) -> tuple[Vector, Vector, Vector]:
    """Of predictions of a coin's mean by ridge, at a random one of two arms: what they are expected
    to be, and what they were, (runs, rounds); and the regret of the regression, (runs, rounds).
    """
    rng = stream(0, "lemma 23")
    means, share = np.array([0.7, 0.2]), 0.3
    expected, seen, regret = np.zeros((3, runs, rounds))
    for run in range(runs):
        count, total, loss, least = np.ones(2), np.zeros(2), 0.0, 0.0
        for t in range(rounds):
            predicted = total / count
            expected[run, t] = np.array([share, 1.0 - share]) @ (predicted - means) ** 2
            arm = int(rng.random() >= share)
            reward = float(rng.random() < means[arm])
            seen[run, t] = (predicted[arm] - means[arm]) ** 2
            loss += (predicted[arm] - reward) ** 2
            least += (means[arm] - reward) ** 2
            regret[run, t] = loss - least  # the infimum is no more than the loss of the truth
            count[arm] += 1.0
            total[arm] += reward
    return expected.cumsum(axis=1), seen.cumsum(axis=1), np.maximum.accumulate(regret, axis=1)


def test_lemma_23_expected_errors_are_below_the_regret_of_the_oracle() -> None:
    expected, _, regret = squared_errors(200, 300)
    t = np.arange(1, 301)

    def kept(errors: float, chance: float) -> float:
        most = errors * np.maximum(regret, 0.0) + chance * np.log(2.0 * t**2 / 0.05)
        return float((expected <= most).all(axis=1).mean())

    assert kept(2.0, 16.0) >= 0.95
    assert kept(2.0, 0.0) < 0.95  # the regret alone may be small by luck


def test_remark_5_expected_errors_are_below_those_that_were_made() -> None:
    expected, seen, _ = squared_errors(2_000, 100)
    factor, delta = math.e / (math.e - 1.0), 0.05
    end = expected[:, -1], seen[:, -1]
    assert (end[0] <= factor * (end[1] + math.log(1.0 / delta))).mean() >= 1.0 - delta
    assert (end[0] <= end[1]).mean() < 1.0 - delta
    # Rare errors of size 1: only chance makes them few, and without its term the bound fails.
    rng, rate = stream(0, "remark 5"), 0.02
    made = rng.binomial(100, rate, size=20_000)
    assert (100 * rate <= factor * (made + math.log(1.0 / delta))).mean() >= 1.0 - delta
    assert (100 * rate <= factor * made).mean() < 1.0 - delta


def test_the_bound_of_remark_5_by_hand() -> None:
    world = Finite.a2()
    given: dict[str, Any] = {"problem": world, "objective": Minimum(), "n_arms": 2}
    t, factor, diameter = 10_000, math.e / (math.e - 1.0), world.problem().diameter
    regret = Ridge().regret_bound(world.problem()).at(float(t))
    missing = factor * (regret + diameter**2 * math.log(4.0 * t**2 / 0.05))
    noise = float(
        bounds.azuma(**{k: given[k] for k in ("problem", "objective")}, horizon=t, delta=0.025)
    )
    found = bounds.squarecb_scalar(**given, horizon=t, means=True)
    assert found == pytest.approx(2.0 * math.sqrt(2.0 * 2 * t * missing) + noise)
    fixed = bounds.squarecb_scalar(**given, horizon=t, means=True, gamma="fixed")
    once = factor * (regret + diameter**2 * math.log(2.0 / 0.05))
    assert fixed == pytest.approx(math.sqrt(2.0 * 2 * t * once) + noise)
    for gamma in ("anytime", "fixed"):
        both = (
            bounds.squarecb(**given, horizon=t, gamma=gamma, means=means) for means in (True, False)
        )
        assert next(both) < next(both)


# --- Lemma 24 -----------------------------------------------------------------------------------


@pytest.mark.parametrize("slack", [0.0, 0.5])
def test_lemma_24_sums_over_roots_of_bounds(slack: float) -> None:
    rng = stream(0, "lemma 24")
    t = np.arange(1, 2_001)
    highest = 0.0
    for losses in (np.ones(t.size), rng.random(t.size) ** 8, 1.0 / t, t**2.0, rng.random(t.size)):
        most = losses.cumsum() * (1.0 + slack * rng.random(t.size)) + 1e-300
        ratio = (losses / np.sqrt(most)).cumsum() / np.sqrt(most)
        assert ratio.max() <= 2.0 + 1e-9
        highest = max(highest, float(ratio.max()))
    assert slack > 0.0 or highest > 1.95  # nothing smaller than 2 will do
