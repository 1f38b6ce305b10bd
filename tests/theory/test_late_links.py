"""The first link of the regret proof where answers are late and estimates are in z.

The direction of a decision is a gradient at z, the average over the answered rewards and the
estimates of the open decisions, and not at s, the average over all rewards. A gradient of a
1/b-smooth function, so that each round adds at most D_K/b times |z - s| to the link; and z and s
differ by the open decisions only, T |z - s| <= open D_K, since estimates are cut to the ranges.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.oracles import SklearnRegressor
from fairwolfe.reduction import FrankWolfe
from tests.theory.test_links import WORLDS, best, smoothing_terms


class Hoarding(FrankWolfe):
    """Broken: the estimate of a decision stays in z beside its reward."""

    def update(self, state: Any, decision: Any, feedback: Any) -> Any:
        decision.batch.rows.head["place"] = -1
        return super().update(state, decision, feedback)


@dataclass(frozen=True)
class LateRun:
    directions: Matrix
    rewards: Matrix
    supports: Vector
    away: Vector  # |z - s| before each decision
    open: Vector  # how many were open then
    widths: Vector  # of the smoothing then


@cache
def played(world: str, base: str, delay: int, kind: type = FrankWolfe, n: int = 1500) -> LateRun:
    environment, f = WORLDS[world]
    bandit: Any = LinUCB(exploration="theorem") if base == "LinUCB" else SquareCB(gamma0=30.0)
    policy = kind(f, bandit)
    problem = environment.problem()
    state = policy.init(problem)
    tables = environment.init(np.random.default_rng(0))
    contexts, noise, rng = (np.random.default_rng((1, i)) for i in range(3))
    total = np.zeros(problem.n_objectives)
    waiting: list[Any] = []
    rows: list[Any] = []
    for t in range(1, n + 1):
        context = environment.context(tables, t, contexts)
        g = state.direction(rng)
        z = anticipated(state)
        away = 0.0 if t == 1 else float(np.linalg.norm(z - total / (t - 1)))
        width = state.smoothing.step(state.objective, g.size, state.t + state.open)
        support = environment.support(tables, g)[0]
        decision = policy.act(state, context, rng)
        state = policy.expect(state, decision)
        reward = environment.feedback(tables, context, decision.action, noise)
        rows.append((g, reward, support, away, float(len(waiting)), width))
        total += reward
        waiting.append((decision, reward))
        if len(waiting) > delay:
            state = policy.update(state, *waiting.pop(0))
    return LateRun(*(np.array(column) for column in zip(*rows, strict=True)))


def anticipated(state: Any) -> Vector:
    """z, by the formula of docs/delay.md, from the state's own sums."""
    sums, answered, m = state.state, state.t, state.open
    theta, phi, psi = sums.theta[0], sums.phi[0, :, 0, :-1].sum(axis=0), sums.psi[0, 0, :-1]
    z: Vector = sums.totals / max(answered, 1)
    if m and answered:
        mean = theta @ phi / m + z - theta @ psi / answered
        low, high = state.kind.problem.low, state.kind.problem.high
        z = (sums.totals + m * np.clip(mean, low, high)) / (answered + m)
    return z


CASES = [("A1", 30), ("A2", 30), ("A2", 200), ("A2, quadratic", 30), ("A2, Nash", 100)]


@pytest.mark.parametrize("base", ["LinUCB", "SquareCB"])
@pytest.mark.parametrize(("world", "delay"), CASES)
def test_the_iterate_is_off_by_the_open_decisions_only(world: str, delay: int, base: str) -> None:
    run = played(world, base, delay)
    t, diameter = np.arange(len(run.away)), WORLDS[world][0].problem().diameter
    # While nothing is answered z is 0, which is in the set of reward vectors here.
    assert (t * run.away <= np.maximum(run.open, (run.open == t) * t) * diameter + 1e-9).all()
    assert run.open.max() == delay


@pytest.mark.parametrize("base", ["LinUCB", "SquareCB"])
@pytest.mark.parametrize(("world", "delay"), CASES)
def test_late_regret_is_scalar_regret_smoothing_and_what_z_is_off(
    world: str, delay: int, base: str
) -> None:
    run = played(world, base, delay)
    environment, f = WORLDS[world]
    t = np.arange(1.0, len(run.rewards) + 1.0)
    averages = np.cumsum(run.rewards, axis=0) / t[:, None]
    short = t * (best(world) - np.array([f.value(s) for s in averages]))
    scalar = np.cumsum(run.supports - (run.directions * run.rewards).sum(axis=1))
    n, diameter = environment.problem().n_objectives, environment.problem().diameter
    curve = 2.0 if "quadratic" in world else f.smoothness(n)
    bend = np.where(run.widths > 0.0, 1.0 / np.maximum(run.widths, 1e-12), curve)
    extra = np.cumsum(diameter * bend * run.away)
    assert (short <= scalar + smoothing_terms(world, t) + extra).all()
    lipschitz = f.lipschitz(n)
    print(f"{world}, delay {delay}, {base}: L |z - s| is {lipschitz * run.away[-1]:.4f} in the end")


def misled(kind: type) -> tuple[Vector, Vector]:
    """T |z - s| and how many decisions are open, round by round, where the first 300 estimates are
    the largest rewards there are. The model is not linear, so that estimates are kept as made.
    """
    environment, f = WORLDS["A2"]
    model = SklearnRegressor("sklearn.linear_model:Ridge", growth=2.0)
    policy, problem = kind(f, EpsilonGreedy(0.1, oracle=model)), environment.problem()
    state = policy.init(problem)
    tables = environment.init(np.random.default_rng(0))
    contexts, noise, rng = (np.random.default_rng((1, i)) for i in range(3))
    total = np.zeros(problem.n_objectives)
    waiting: list[Any] = []
    rows: list[Any] = []
    for t in range(1, 1001):
        context = environment.context(tables, t, contexts)
        decision = policy.act(state, context, rng)
        if t <= 300:
            decision.batch.rows.estimate[0] = problem.high
        state = policy.expect(state, decision)
        reward = environment.feedback(tables, context, decision.action, noise)
        total += reward
        waiting.append((decision, reward))
        if len(waiting) > 30:
            state = policy.update(state, *waiting.pop(0))
        rows.append((np.linalg.norm(t * as_made(state) - total), len(waiting)))
    away, opened = np.array(rows).T
    return away, opened


def as_made(state: Any) -> Vector:
    """z, where estimates are kept as they were made."""
    sums, problem = state.state, state.kind.problem
    weights, away = sums.weights, sums.answered
    guess = sums.sums.sum(axis=0) + weights * away
    guess = np.clip(guess, weights * problem.low, weights * problem.high)
    z: Vector = (sums.totals + guess) / (sums.clocks + weights)
    return z


@pytest.mark.needs("scikit-learn")
def test_estimates_that_are_never_withdrawn_break_it() -> None:
    diameter = WORLDS["A2"][0].problem().diameter
    away, opened = misled(FrankWolfe)
    assert (away <= opened * diameter + 1e-9).all()
    away, opened = misled(Hoarding)
    assert (away > opened * diameter)[300:].mean() > 0.5
