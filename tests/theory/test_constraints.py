"""Hard constraints: the inequality behind them on every prefix of many runs, and what it promises.

With b_i the width of row i and B_i its range, d_i how far it is beyond its level, and R the scalar
regret, after T rewards and for every way to choose

    T (f* - f(z)) + (T - 1/2) sqrt(T + 1) sum_i d_i^2/(2 b_i)
        <= R + sqrt(T) (sum_i B_i^2/b_i + D^2/b_f + L^2 b_f/2) + L^2 b_f/(4 sqrt(T + 1)),

the last terms for an f that is smoothed with width b_f. With a multiplier the same argument has the
drops of the shifted envelope in place of the closed form. A price with the wrong sign breaks both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.decision import Choice
from fairwolfe.core.problem import Problem
from fairwolfe.environments import Finite
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    Concave,
    GeneralizedGini,
    Linear,
    Mapped,
    Minimum,
    Nash,
    Within,
)
from fairwolfe.objectives.threshold import Bounds
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation import simulate
from fairwolfe.smoothing import Augmented, Moreau
from fairwolfe.truth import known, optimum

N_WORLDS, HORIZON = 60, 300
PREFIXES = np.unique(np.geomspace(1, HORIZON, 14).astype(int))
SOFT: dict[str, Concave] = {
    "linear": Linear((1.0, 0.4, -0.2)),
    "minimum": Minimum().on(0, 1),
    "gini": GeneralizedGini((1.0, 0.5, 0.25)),
    "zero": 0.0 * Minimum(),
}


class World(NamedTuple):
    """Means (contexts, arms, rewards), what is wanted of them, and the best that can be had."""

    means: Cube
    soft: Concave
    rows: Matrix  # of the constraints
    low: Vector
    high: Vector
    best: float
    multiplier: float

    @property
    def objective(self) -> Concave:
        low, high = (side.tolist() for side in (self.low, self.high))
        parts = []
        for row, least, most in zip(self.rows.tolist(), low, high, strict=True):
            if math.isinf(least):
                leaf: Concave = AtMost((most,), multiplier=self.multiplier)
            elif math.isinf(most):
                leaf = AtLeast((least,), multiplier=self.multiplier)
            else:
                leaf = Within((least,), (most,), multiplier=self.multiplier)
            parts.append(Mapped(leaf, [row]))
        total = self.soft
        for part in parts:
            total = total + part
        return total


@cache
def world(seed: int, multiplier: float) -> World:
    """Levels that a policy keeps, but not by much; f* by an independent solver."""
    import cvxpy as cp

    rng = np.random.default_rng(seed)
    means = rng.uniform(0.0, 1.0, (3, 4, 3))
    name = list(SOFT)[seed % len(SOFT)]
    kept = np.einsum("ca,cad->d", rng.dirichlet(np.ones(4), 3), means) / 3.0
    n_rows = 1 + seed % 3
    rows = rng.choice([-1.0, 0.0, 1.0], (n_rows, 3)) + np.eye(3)[rng.integers(3, size=n_rows)] * 0.5
    levels, side = rows @ kept, rng.integers(3, size=n_rows)
    low = np.where(side != 0, levels - 0.01, -np.inf)
    high = np.where(side != 1, levels + 0.01, np.inf)
    weights = cp.Variable((3, 4), nonneg=True)
    z = sum(weights[c] @ means[c] for c in range(3)) / 3.0
    keeps = [cp.sum(weights, axis=1) == 1.0]
    keeps += [rows[i] @ z >= low[i] for i in range(n_rows) if math.isfinite(low[i])]
    keeps += [rows[i] @ z <= high[i] for i in range(n_rows) if math.isfinite(high[i])]
    f: Any = {
        "linear": lambda: np.array([1.0, 0.4, -0.2]) @ z,
        "minimum": lambda: cp.minimum(z[0], z[1]),
        "gini": lambda: 0.25 * cp.sum(z) + 0.25 * cp.sum_smallest(z, 2) + 0.5 * cp.min(z),
        "zero": lambda: 0.0 * z[0],
    }[name]()
    problem = cp.Problem(cp.Maximize(f), keeps)
    problem.solve()
    assert problem.status == "optimal"
    return World(means, SOFT[name], rows, low, high, float(problem.value), multiplier)


@dataclass
class Erratic:
    """A base that knows the means, follows its direction mostly, and may be told another one."""

    means: Cube
    instead: list[Vector] = field(default_factory=list)

    def init(self, problem: Problem) -> None:
        return None

    def act(self, state: None, context: Any, direction: Vector, rng: np.random.Generator) -> Choice:
        g = self.instead.pop() if self.instead else direction
        here = self.means[int(np.flatnonzero(context.features.any(axis=0))[0]) // 4]
        arm = int(rng.integers(4)) if rng.random() < 0.2 else int((here @ g).argmax())
        return Choice(arm, None, None)

    def update(self, state: None, choice: Choice, direction: Vector, observation: Any) -> None:
        return None


class Run(NamedTuple):
    """Prefix by prefix: f at the average, distances of the rows, the scalar regret so far, and the
    sum of what the proof allows for: smoothness and drops, less what constraints give back.
    """

    values: Vector
    distances: Matrix
    regrets: Vector
    envelopes: Vector
    allowed: Vector
    widths: Vector
    spreads: Vector
    beta0: float


def played(one: World, seed: int, mirrored: bool = False) -> Run:
    """A run as one would write it, with the numbers of the proof."""
    environment = Finite(np.eye(12).reshape(3, 4, 12), (1 / 3,) * 3, means=one.means)
    base = Erratic(one.means)
    policy = FrankWolfe(one.objective, base)
    state = policy.init(environment.problem())
    prices, soft, smoothing = state.prices, state.objective.relaxed(), state.smoothing
    assert prices is not None
    beta0 = float(smoothing.beta0 or 0.0) if isinstance(smoothing, Moreau) else 0.0
    leaves = [leaf for leaf in prices.moving.leaves if isinstance(leaf, Bounds)]
    low, high = (
        np.concatenate([getattr(leaf, side) for leaf in leaves]) for side in ("low", "high")
    )

    def envelope(z: Vector, y: Vector, t: int) -> tuple[float, float]:
        """F_t(z), and the sum of q^2/(2 b) over the rows."""
        step = 1.0 / math.sqrt(t + 1.0)
        b = prices.widths * step
        x = one.rows @ z
        q = x - np.clip(x - b * y, low, high)
        smoothed = soft.envelope(z, beta0 * step) if beta0 else soft.value(z)
        gain = float((q**2 / (2.0 * b)).sum())
        return smoothed + float(y @ q) - gain, gain

    tables = environment.init(np.random.default_rng(0))
    contexts, noise, rng = (np.random.default_rng((seed, i)) for i in range(3))
    z, regret, allowed = np.zeros(3), 0.0, 0.0
    found = []
    for t in range(HORIZON):
        context = environment.context(tables, t + 1, contexts)
        g = state.direction(rng)
        if mirrored:
            g = 2.0 * smoothing.gradient(soft, z, t, None) - g
            base.instead.append(g)
        y = state.state.prices.copy()
        before = envelope(z, y, t)
        decision = policy.act(state, context, rng)
        reward = environment.feedback(tables, context, decision.action, noise)
        state = policy.update(state, decision, reward)
        regret += environment.support(tables, g)[0] - float(g @ reward)
        moved = reward - z
        bends = ((one.rows @ moved) ** 2 / prices.widths).sum()
        if beta0:
            bends += float(moved @ moved) / beta0
        z = z + moved / (t + 1.0)
        after = envelope(z, y, t)[0] - envelope(z, state.state.prices, t + 1)[0]
        allowed += math.sqrt(t + 1.0) * bends / (2.0 * (t + 1.0)) + (t + 1.0) * after - before[1]
        x = one.rows @ z
        beyond = np.maximum(np.maximum(low - x, x - high), 0.0)
        row = (soft.value(z), beyond, regret, envelope(z, state.state.prices, t + 1)[0], allowed)
        found.append(row)
    np.testing.assert_allclose(state.iterate, z, atol=1e-12)
    values, distances, regrets, envelopes, allowances = (
        np.array(column)[PREFIXES - 1] for column in zip(*found, strict=True)
    )
    numbers = (values, distances, regrets, envelopes, allowances)
    return Run(*numbers, prices.widths, prices.spreads, beta0)


def pathwise(one: World, run: Run) -> Vector:
    """The right side of the pathwise inequality less its left side, at every prefix."""
    room: Vector = run.regrets + run.allowed - PREFIXES * (one.best - run.envelopes)
    return room


def closed(one: World, run: Run) -> Vector:
    """The same for the closed form, without a multiplier."""
    t = PREFIXES.astype(float)
    excess = (run.distances**2 / (2.0 * run.widths)).sum(axis=1)
    left = t * (one.best - run.values) + (t - 0.5) * np.sqrt(t + 1.0) * excess
    terms, last = float((run.spreads**2 / run.widths).sum()), np.zeros(t.size)
    if run.beta0:
        slope = one.soft.lipschitz(3)
        terms += 3.0 / run.beta0 + slope**2 * run.beta0 / 2.0
        last = slope**2 * run.beta0 / (4.0 * np.sqrt(t + 1.0))
    room: Vector = run.regrets + np.sqrt(t) * terms + last - left
    return room


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("multiplier", [0.0, 0.25, 0.5])
def test_the_inequality_holds_on_every_prefix(multiplier: float) -> None:
    for seed in range(N_WORLDS if multiplier == 0.0 else N_WORLDS // 3):
        one = world(seed, multiplier)
        run = played(one, seed)
        assert (pathwise(one, run) >= -1e-9 * PREFIXES).all(), seed
        if multiplier == 0.0:
            assert (closed(one, run) >= 0.0).all(), seed


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("multiplier", [0.0, 0.25])
def test_a_price_of_the_wrong_sign_breaks_it(multiplier: float) -> None:
    broken = 0
    for seed in range(20):
        one = world(seed, multiplier)
        room = pathwise(one, played(one, seed, mirrored=True))
        broken += int((room < -1e-9 * PREFIXES).sum())
    print(f"\n{broken} of {20 * PREFIXES.size} prefixes")
    assert broken > 20 * PREFIXES.size // 10


# --- what follows: three contexts, four arms, and a budget ----------------------------------------

MEANS = np.array(
    [
        [[0.9, 0.1, 0.6], [0.2, 0.8, 0.5], [0.4, 0.3, 0.1], [0.1, 0.4, 0.05]],
        [[0.3, 0.9, 0.7], [0.8, 0.2, 0.6], [0.3, 0.3, 0.15], [0.2, 0.1, 0.1]],
        [[0.6, 0.5, 0.8], [0.5, 0.6, 0.4], [0.2, 0.4, 0.2], [0.4, 0.1, 0.05]],
    ]
)
BUDGET = 0.35
WANTED: dict[str, Concave] = {
    "minimum": Minimum().on(0, 1),
    "linear": Linear((1.0, 0.5, 0.0)),
    "nash": Nash().on(0, 1),
}


THREE = Finite(np.eye(12).reshape(3, 4, 12), (1 / 3,) * 3, means=MEANS)


@dataclass(frozen=True)
class InUnits:
    """The same world, with its last reward counted in another unit."""

    unit: float

    @property
    def units(self) -> Vector:
        return np.array([1.0, 1.0, self.unit])

    def problem(self) -> Problem:
        ranges = dict(zip("rsc", ((0.0, unit) for unit in self.units), strict=True))
        return Problem.arms(12, ranges)

    def init(self, rng: np.random.Generator) -> Any:
        return THREE.init(rng)

    def context(self, world: Any, t: int, rng: np.random.Generator) -> Any:
        return THREE.context(world, t, rng)

    def feedback(self, world: Any, context: Any, action: Any, rng: np.random.Generator) -> Vector:
        reward: Vector = self.units * THREE.feedback(world, context, action, rng)
        return reward

    def mean_reward(self, world: Any, context: Any, action: Any) -> Vector:
        mean: Vector = self.units * THREE.mean_reward(world, context, action)
        return mean

    def best_action(self, world: Any, context: Any, direction: Vector) -> Any:
        return THREE.best_action(world, context, self.units * direction)


@cache
def truth(name: str) -> tuple[float, float]:
    """f* and the shadow price of the budget."""
    import cvxpy as cp

    weights = cp.Variable((3, 4), nonneg=True)
    z = sum(weights[c] @ MEANS[c] for c in range(3)) / 3.0
    f: Any = {
        "minimum": lambda: cp.minimum(z[0], z[1]),
        "linear": lambda: z[0] + 0.5 * z[1],
        "nash": lambda: cp.log(z[0]) + cp.log(z[1]),
    }[name]()
    budget = z[2] <= BUDGET
    problem = cp.Problem(cp.Maximize(f), [cp.sum(weights, axis=1) == 1.0, budget])
    problem.solve()
    return float(problem.value), float(budget.dual_value)


def missed(name: str, multiplier: float, horizon: int, seeds: int) -> tuple[Vector, Vector]:
    """Mean regret and violation of what was earned, at every power of ten from 10^3 on."""
    times = [10**k for k in range(3, round(math.log10(horizon)) + 1)]
    regrets, violations = [], []
    for seed in range(seeds):
        f = WANTED[name] + AtMost(BUDGET, multiplier=multiplier).on(2)
        policy = FrankWolfe(f, LinUCB(exploration=0.3))
        trace = simulate(policy, THREE, horizon, seed, checkpoints=times, scalar_regret=False)
        regrets.append(truth(name)[0] - trace.objective_value)
        violations.append(trace.violation)
    return np.mean(regrets, axis=0), np.mean(violations, axis=0)


def slope(numbers: Vector) -> float:
    """Per decade, of the logarithm."""
    return float(np.polyfit(np.arange(numbers.size), np.log10(numbers), 1)[0])


@pytest.mark.needs("cvxpy")
@pytest.mark.slow
@pytest.mark.parametrize("name", WANTED)
def test_regret_and_violation_fall_like_one_over_the_root_of_t(name: str) -> None:
    price = truth(name)[1]
    regret, violation = missed(name, 0.0, 1_000_000, 4)
    both = np.maximum(regret, 0.0) + price * violation
    print(f"\n{name}, price {price:.3g}: regret {regret.round(5)}, violation {violation.round(6)}")
    assert slope(violation) <= -0.45
    assert slope(both) <= -0.45
    learnt, kept = missed(name, 0.5, 1_000_000, 4)
    print(f"with a multiplier: regret {learnt.round(5)}, violation {kept.round(6)}")
    assert kept[1] <= 1e-3
    assert (kept[2:] <= 3e-4).all()
    assert (np.maximum(learnt, 0.0) <= 3.0 * both).all()


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("name", WANTED)
def test_a_multiplier_keeps_the_budget_much_better(name: str) -> None:
    plain, kept = (missed(name, multiplier, 100_000, 2)[1] for multiplier in (0.0, 0.5))
    assert (kept[1:] <= plain[1:] / 5.0).all()
    assert kept[-1] <= 3e-4


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("name", WANTED)
def test_the_price_is_found(name: str) -> None:
    from fairwolfe.simulation.run import ArmsRun, Streams

    policy = FrankWolfe(WANTED[name] + AtMost(BUDGET).on(2), LinUCB(exploration=0.3))
    run = ArmsRun(policy, THREE, THREE.init(np.random.default_rng(0)), Streams.of(1))
    done = 0
    while done < 100_000:
        done += len(run.play(100_000 - done))
    (budget,) = run.running.constraints()
    assert budget.shadow_price == pytest.approx(truth(name)[1], rel=0.15)
    assert budget.name == "r3"
    assert budget.feasible is True


@pytest.mark.parametrize("name", WANTED)
@pytest.mark.parametrize(
    "base", [EpsilonGreedy(0.1), LinUCB(exploration=0.3), SquareCB(gamma0=100.0), None], ids=repr
)
def test_units_do_not_matter(name: str, base: Any) -> None:
    actions = []
    for unit in (1.0, 0.01, 10.0):
        environment = InUnits(unit)
        f = WANTED[name] + AtMost(BUDGET * unit).on(2)
        policy = known(environment, f) if base is None else FrankWolfe(f, base)
        trace = simulate(policy, environment, 2000, 3, compiled=False, record_actions=True)
        actions.append(trace.actions)
    for other in actions[1:]:
        np.testing.assert_array_equal(actions[0], other)


def test_a_margin_keeps_the_budget_from_early_on() -> None:
    f = WANTED["linear"] + AtMost(BUDGET, margin=0.5).on(2)
    trace = simulate(FrankWolfe(f, SquareCB(gamma0=100.0)), THREE, 20_000, 1)
    assert trace.violation[trace.t >= 1000].max() == 0.0


# --- the same argument for Augmented smoothing ----------------------------------------------------


def augmented(seed: int, weight: float, mirrored: bool) -> Vector:
    """The right side of the pathwise inequality less its left side, at every prefix of a run with
    directions g = grad f_t(z), f_t(z) = f(p) + <y, z - p> - |z - p|^2/(2 b): a reward costs at most
    |r - z|^2/(2 b (t + 1)), and <g, s - z> >= f(s) - f_t(z) + b |g - y|^2/2.
    """
    rng = np.random.default_rng(seed)
    means = rng.uniform(0.0, 1.0, (3, 4, 3))
    f = (Minimum(), GeneralizedGini((1.0, 0.5, 0.25)))[seed % 2]
    environment = Finite(np.eye(12).reshape(3, 4, 12), (1 / 3,) * 3, means=means)
    best = optimum(environment, f, tolerance=1e-7).upper_bound
    base = Erratic(means)
    policy = FrankWolfe(f, base, Augmented(weight=weight))
    state = policy.init(environment.problem())
    beta0 = float(state.smoothing.beta0)

    def smoothed(z: Vector, y: Vector, t: int) -> tuple[float, Vector]:
        b = beta0 / math.sqrt(t + 1.0)
        p = f.prox(z - b * y, b)
        value = f.value(p) + float(y @ (z - p)) - float((z - p) @ (z - p)) / (2.0 * b)
        return value, (p - z) / b + y

    tables = environment.init(np.random.default_rng(0))
    contexts, noise, draws = (np.random.default_rng((seed, i)) for i in range(3))
    z, right, room = np.zeros(3), 0.0, []
    for t in range(HORIZON):
        context = environment.context(tables, t + 1, contexts)
        y, b = state.state.prices.copy(), beta0 / math.sqrt(t + 1.0)
        g = state.direction(draws)
        np.testing.assert_allclose(g, smoothed(z, y, t)[1], atol=1e-9)
        if mirrored:
            g = 2.0 * y - g
            base.instead.append(g)
        decision = policy.act(state, context, draws)
        reward = environment.feedback(tables, context, decision.action, noise)
        state = policy.update(state, decision, reward)
        right += environment.support(tables, g)[0] - float(g @ reward)
        right -= b * float((g - y) @ (g - y)) / 2.0
        right += float((reward - z) @ (reward - z)) / (2.0 * b * (t + 1.0))
        z = z + (reward - z) / (t + 1.0)
        right += (t + 1.0) * (smoothed(z, y, t)[0] - smoothed(z, state.state.prices, t + 1)[0])
        room.append(right - (t + 1.0) * (best - smoothed(z, state.state.prices, t + 1)[0]))
    rooms: Vector = np.array(room)[PREFIXES - 1]
    return rooms


@pytest.mark.parametrize("weight", [0.0, 0.25, 1.0])
def test_the_link_of_augmented_smoothing_holds_on_every_prefix(weight: float) -> None:
    for seed in range(12):
        assert (augmented(seed, weight, mirrored=False) >= -1e-6 * PREFIXES).all(), seed


def test_a_mirrored_direction_breaks_it() -> None:
    broken = sum(int((augmented(seed, 1.0, True) < -1e-6 * PREFIXES).sum()) for seed in range(12))
    print(f"\n{broken} of {12 * PREFIXES.size} prefixes")
    assert broken > 12 * PREFIXES.size // 10
