"""Compiled rules and certificates against the same formulas in NumPy, for every loop length."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.kernels.ridge import Regression
from fairwolfe.kernels.rules import PythonRule, certificate_terms, choose, lesson
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.oracles.linear_regression import LOG_DET, UPDATES

RULES = (
    "linucb",
    "linucb_extended",
    "squarecb",
    "squarecb_theorem",
    "epsilon_greedy",
    "thompson",
    "uniform",
    "fixed",
)
ERRORS, TRIES = (
    2.0,
    100.0,
)  # of a certificate: standard errors of an arm that was tried less than this


class Case(NamedTuple):
    """A model that has learnt something, and a context."""

    state: Any
    model: Regression
    g: Any
    features: Any
    per_arm: bool
    extended: bool = False

    @property
    def n_arms(self) -> int:
        return len(self.state.theta) if self.per_arm else len(self.features)


def grown(
    rng: np.random.Generator, n: int, d: int, arms: int, per_arm: bool, extended: bool = False
) -> Case:
    """A model after some updates, of which few arms got many."""
    blocks = arms if per_arm else 1
    state = Ridge(0.2).allocate(blocks, 1 if extended else n, n * d if extended else d)
    model = Regression(*state)
    for _ in range(40 + 2 * blocks):
        x, reward = rng.standard_normal(d) / np.sqrt(d), rng.random(n)
        if extended:
            x, reward = lesson(rng.random(n), x, reward)
        model.learn(int(rng.integers(blocks) * rng.random()), x, reward)
    if rng.random() < 0.5:
        model.recompute()
    features = rng.standard_normal((1 if per_arm else arms, d)) / np.sqrt(d)
    if arms > 3 and not per_arm:
        features[arms // 2] = features[1]  # ties
    g = rng.standard_normal(n)
    g[rng.random(n) < 0.2] = 0.0
    return Case(state, model, g, features, per_arm, extended)


def shapes(rng: np.random.Generator) -> Iterator[tuple[int, int, int]]:
    """n, d, arms."""
    for arms in (1, 2, 3, 4, 5, 8, 13, 33, 50, 60):
        yield int(rng.integers(1, 6)), int(rng.integers(1, 13)), arms


def params_of(name: str, rng: np.random.Generator, n: int, d: int) -> list[Any]:
    """Some params of a rule."""
    ranges = [rng.random(n) - 1.0, rng.random(n) + 0.5]
    if name == "linucb":
        rest = [[3.0], rng.random(n), rng.random(n), *ranges]
        return [np.concatenate([[head], *rest]) for head in (0.0, 1.0, 0.1, -float(d), -60.0)]
    if name == "linucb_extended":
        return [np.concatenate([[head, 3.0, 0.7, 1.1], *ranges]) for head in (0.0, 1.0, -1.0)]
    if name == "squarecb":
        return [np.concatenate([[gamma], np.zeros(8), *ranges]) for gamma in (0.1, 30.0, 1e4)]
    if name == "squarecb_theorem":
        heads = ([0.0, 1.5, 2.0, 0.05, horizon, 1.0, 3.0, 0.4, 0.2] for horizon in (0.0, 1e3))
        return [np.concatenate([head, *ranges]) for head in heads]
    if name == "epsilon_greedy":
        return [np.concatenate([[epsilon], *ranges]) for epsilon in (0.0, 0.3, 1.0)]
    if name == "thompson":
        return [np.concatenate([scale * rng.random(n), *ranges]) for scale in (0.0, 1.0)]
    if name == "uniform":
        return [np.concatenate(ranges)]
    return [np.concatenate([[arm], *ranges]) for arm in (0.0, 3.0, 2.0**31 - 1.0)]


# --- the formulas in NumPy ------------------------------------------------------------------------


def rewards_of(case: Case) -> Matrix:
    """The estimates theta x_a, (arms, n)."""
    if case.per_arm:
        return np.asarray(case.state.theta @ case.features[0])
    return np.asarray(case.features @ case.state.theta.reshape(case.g.size, -1).T)


def widths_of(case: Case, g: Vector) -> Vector:
    """|x_a|, or |g (x) x_a| in an extended model, in the norm of V^-1."""
    inverse = case.state.inverse
    if case.per_arm:
        squares = np.einsum("i,aij,j->a", case.features[0], inverse, case.features[0])
    else:
        x = case.features
        if case.extended:
            x = np.array([np.kron(g, row) for row in x])
        squares = np.einsum("ai,ij,aj->a", x, inverse[0], x)
    return np.asarray(np.sqrt(np.maximum(squares, 0.0)))


def radius(noise: Any, prior: Any, level: float, case: Case) -> Any:
    return noise * math.sqrt(level + case.state.counters[LOG_DET]) + prior


def pointwise(value: Any, low: float, high: float, noise: float, width: Vector, wide: float) -> Any:
    """radius w sd + h (high - low), h = w^2/(1 + w^2)."""
    reach = width**2 / (1.0 + width**2)
    least = np.minimum(reach, 0.5)
    p = np.clip((value - low) / (high - low), least, 1.0 - least)
    sd = np.minimum((high - low) * np.sqrt(p * (1.0 - p)), noise)
    return wide * width * sd + reach * (high - low)


def pointwise_radius(parameters: float, case: Case) -> float:
    t = float(case.state.counters[UPDATES]) + 1.0
    return 0.5 * math.sqrt(2.0 * math.log(1.0 + parameters * math.sqrt(t)))


def ends(g: Vector, low: Vector, high: Vector) -> tuple[float, float]:
    """The least and the largest <g, r>."""
    both = np.stack([g * low, g * high])
    return float(both.min(axis=0).sum()), float(both.max(axis=0).sum())


def bonus(case: Case, g: Vector, params: Vector) -> Vector:
    """What LinUCB adds to the estimates."""
    n, width = g.size, widths_of(case, g)
    if params[0] >= 0.0:
        alphas = radius(params[2 : 2 + n], params[2 + n : 2 + 2 * n], params[1], case)
        return np.asarray(params[0] * (abs(g) @ alphas) * width)
    low, high = params[2 + 2 * n : 2 + 3 * n], params[2 + 3 * n :]
    estimates = np.clip(rewards_of(case), low, high)
    wide, total = pointwise_radius(-params[0], case), np.zeros(width.size)
    for i in range(n):
        parts = (estimates[:, i], low[i], high[i], params[2 + i], width, wide)
        total += abs(g[i]) * pointwise(*parts)
    return total


def extended_bonus(case: Case, g: Vector, params: Vector) -> Vector:
    width, n = widths_of(case, g), g.size
    if params[0] >= 0.0:
        return np.asarray(params[0] * radius(params[2], params[3], params[1], case) * width)
    bottom, top = ends(g, params[4 : 4 + n], params[4 + n :])
    if not top > bottom:
        return np.zeros(width.size)
    wide = pointwise_radius(case.state.theta.size, case)
    return np.asarray(pointwise(rewards_of(case) @ g, bottom, top, params[2], width, wide))


def gaps(values: Vector, gamma: float) -> Vector:
    p: Vector = 1.0 / (values.size + gamma * (values.max() - values))
    best = int(values.argmax())
    p[best] = 0.0
    p[best] = 1.0 - p.sum()
    return p


def theorem_rate(params: Vector, arms: int, t: float) -> float:
    numbers: list[float] = params[1:9].tolist()
    slope, diameter, delta, horizon, constant, factor, rate, root = numbers
    s = horizon if horizon > 0.0 else t
    regret = constant + factor * math.log1p(rate * s) + root * math.sqrt(s)
    if horizon > 0.0:
        noise = 16.0 * slope**2 * diameter**2 * math.log(2.0 / delta)
        return math.sqrt(8.0 * arms * s / (2.0 * slope**2 * regret + noise))
    noise = 8.0 * diameter**2 * math.log(4.0 * s * s / delta)
    return 2.0 / slope * math.sqrt(s * arms / (regret + noise))


def expected(name: str, case: Case, draws: Vector, params: Vector) -> tuple[Vector, Vector | None]:
    """The scores and the probabilities of all arms; None where the scores decide."""
    g, n, arms = case.g, case.g.size, case.n_arms
    estimates, t = rewards_of(case), case.state.counters[UPDATES] + 1.0
    scores = estimates @ g
    if name == "linucb":
        return scores + bonus(case, g, params), None
    if name == "linucb_extended":
        return scores + extended_bonus(case, g, params), None
    if name == "squarecb":
        return scores, gaps(scores, params[0] * math.sqrt(t))
    if name == "squarecb_theorem":
        scores = np.clip(estimates, params[9 : 9 + n], params[9 + n : 9 + 2 * n]) @ g
        return scores, gaps(scores, theorem_rate(params, arms, t))
    if name == "epsilon_greedy":
        p = np.full(arms, params[0] / arms)
        p[scores.argmax()] += 1.0 - params[0]
        return scores, p
    if name == "thompson":
        state, spread = case.state, float(np.linalg.norm(g * params[:n]))
        noise = np.linalg.cholesky(state.inverse) @ draws.reshape(len(state.theta), -1, 1)
        theta = np.einsum("i,bij->bj", g, state.theta) + spread * noise[:, :, 0]
        return (theta @ case.features[0] if case.per_arm else case.features @ theta[0]), None
    if name == "uniform":
        return np.zeros(arms), np.full(arms, 1.0 / arms)
    fixed = np.zeros(arms)
    fixed[min(int(params[0]), arms - 1)] = 1.0
    return np.zeros(arms), fixed


def expected_terms(name: str, case: Case, slope: Vector, arm: int, bounds: Vector) -> Vector:
    n, estimates = slope.size, rewards_of(case)
    values, greedy = estimates @ slope, int((estimates @ case.g).argmax())
    best = values.max()
    out = np.array([0.0, best - values[arm], best - max(values[arm], values[greedy]), 0.0])
    if name == "plain":
        return out
    low, high, params = bounds[:n], bounds[n : 2 * n], bounds[2 * n :]
    width = widths_of(case, slope)
    if name == "optimistic":
        most = np.zeros(case.n_arms)
        for i in range(n):
            own = np.clip(estimates[:, i], low[i], high[i])
            more = pointwise(own, low[i], high[i], high[i] - low[i], width, ERRORS)
            end = low[i] if slope[i] < 0.0 else high[i]
            most += slope[i] * own + np.minimum(abs(slope[i]) * more, slope[i] * (end - own))
        add = bonus
    else:
        bottom, top = ends(slope, low, high)
        more = pointwise(values, bottom, top, top - bottom, width, ERRORS)
        most = np.minimum(values + more, top)
        add = extended_bonus
    hardly = width**2 * TRIES > 1.0
    out[3] = max(0.0, (most - best)[hardly].max(initial=0.0))
    if params.size:
        out[0] = (values + add(case, slope, params)).max()
    return out


# --- rules and certificates------------------------------------------------------------------------


def check(name: str, case: Case, draws: Vector, params: Vector) -> int:
    """One choice, against the formulas; the arm."""
    arm, chance, scores = choose(
        name, case.model, case.g, case.features, case.per_arm, draws, params
    )
    wanted, probabilities = expected(name, case, draws, params)
    np.testing.assert_allclose(scores, wanted, rtol=1e-9, atol=1e-10)
    if probabilities is None:
        assert arm == int(scores.argmax())  # the first of equals
        assert chance == 1.0 or (name == "thompson" and math.isnan(chance))
        return arm
    assert chance == pytest.approx(probabilities[arm], rel=1e-8, abs=1e-10)
    if name not in ("fixed", "uniform"):
        ends = np.cumsum(probabilities)
        below = ends[arm - 1] if arm else 0.0
        assert below - 1e-8 <= draws[0] <= ends[arm] + 1e-8
    return arm


def test_argmax_of_ties_and_nan() -> None:
    """The first of equals; a NaN is the largest only in the first place."""
    cases: list[tuple[list[float], int]] = [
        ([1.0, 1.0], 0),
        ([0.0, -0.0, 0.0], 0),
        ([np.nan, 5.0], 0),
        ([1.0, np.nan, 2.0, 2.0], 2),
    ]
    for values, best in cases:
        state = Ridge().allocate(len(values), 1, 1)
        state.theta[:] = np.array(values)[:, None, None]
        params = np.concatenate([[0.0, 1.0], np.zeros(4)])
        args = np.ones(1), np.ones((1, 1)), True
        assert choose("linucb", Regression(*state), *args, params=params)[0] == best


def _cases(names: Any) -> list[tuple[str, bool]]:
    """Names with and without blocks; an extended model has one design for all arms."""
    return [(name, per) for name in names for per in (False, True) if not (per and "ext" in name)]


@pytest.mark.parametrize(("name", "per_arm"), _cases(RULES))
def test_rules_against_numpy(name: str, per_arm: bool) -> None:
    rng = np.random.default_rng([sum(map(ord, name)), per_arm])
    met = set()
    for n, d, arms in [*shapes(rng), *shapes(rng)]:
        case = grown(rng, n, d, arms, per_arm, name == "linucb_extended")
        for params in params_of(name, rng, n, d):
            many = case.state.theta.shape[0] * d
            draws = rng.standard_normal(many) if name == "thompson" else rng.random(1)
            met.add((arms, check(name, case, draws, params)))
    assert len(met) > 10


@pytest.mark.parametrize(("name", "per_arm"), _cases(["plain", "optimistic", "extended"]))
def test_certificates_against_numpy(name: str, per_arm: bool) -> None:
    extended = name == "extended"
    rng = np.random.default_rng([len(name), per_arm])
    seen = np.zeros(4)
    for n, d, arms in [*shapes(rng), *shapes(rng)]:
        case = grown(rng, n, d, arms, per_arm, extended)
        ranges = np.concatenate([rng.random(n) - 1.0, rng.random(n) + 0.5])
        wide = np.concatenate([[1.0, 3.0], rng.random(2 * n)])
        if extended:
            wide = np.array([1.0, 3.0, 0.7, 1.1])
        for bounds in (ranges, np.concatenate([ranges, wide])):
            slope, arm = rng.standard_normal(n), int(rng.integers(arms))
            got = certificate_terms(
                name, case.model, slope, case.g, case.features, per_arm, arm, bounds
            )
            wanted = expected_terms(name, case, slope, arm, bounds)
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10)
            seen += got != 0.0
    assert seen[1] > 5
    assert (name == "plain") == (seen[0] == 0.0)
    assert (name == "plain") == (seen[3] == 0.0)


@pytest.mark.parametrize("name", ["optimistic", "extended"])
def test_arms_that_were_tried_100_times_are_left_out(name: str) -> None:
    state = Ridge().allocate(1, 1, 1)
    state.theta[:] = 0.5
    one, bounds = np.ones(1), np.array([0.0, 1.0])
    for width, counts in ((0.2, True), (0.12, True), (0.102, True), (0.098, False), (0.09, False)):
        features = np.array([[width], [0.01]])
        got = certificate_terms(name, Regression(*state), one, one, features, False, 0, bounds)
        assert (got[3] > 0.0) == counts


def test_a_direction_of_zero_has_no_pointwise_bonus_in_an_extended_model() -> None:
    case = grown(np.random.default_rng(10), 2, 3, 6, False, True)
    params = np.array([-1.0, 3.0, 0.7, 1.1, 0.0, 0.0, 1.0, 1.0])
    got = choose("linucb_extended", case.model, np.zeros(2), case.features, params=params)
    assert got[0] == 0
    np.testing.assert_array_equal(got[2], np.zeros(6))


def test_a_pointwise_bonus_in_an_extended_certificate() -> None:
    rng = np.random.default_rng(8)
    case = grown(rng, 3, 4, 20, False, True)
    ranges = np.concatenate([rng.random(3) - 1.0, rng.random(3) + 0.5])
    bounds = np.concatenate([ranges, [-1.0, 3.0, 0.7, 1.1], ranges])
    slope = rng.standard_normal(3)
    got = certificate_terms("extended", case.model, slope, case.g, case.features, False, 5, bounds)
    np.testing.assert_allclose(got, expected_terms("extended", case, slope, 5, bounds), rtol=1e-9)


def test_rules_without_widths_take_online_gradients() -> None:
    rng = np.random.default_rng(5)
    problem = Problem.arms(6, {f"r{i}": (0, 1) for i in range(3)}, parameter_norm=1.0)
    state = OnlineGradient().init(problem)
    model = state.model()
    for _ in range(50):
        model.learn(0, rng.standard_normal(6), rng.random(3))
    case = Case(state, model, rng.random(3), rng.standard_normal((40, 6)), False)
    for name in ("squarecb", "squarecb_theorem", "epsilon_greedy", "uniform", "fixed"):
        for params in params_of(name, rng, 3, 6):
            check(name, case, rng.random(1), params)
    with pytest.raises(ValueError, match="no confidence widths"):
        choose("linucb", model, case.g, case.features, params=np.zeros(14))
    none = np.empty(0)
    got = certificate_terms("plain", model, -case.g, case.g, case.features, False, 3, none)
    np.testing.assert_allclose(got, expected_terms("plain", case, -case.g, 3, none), rtol=1e-9)


def test_a_useless_design_makes_thompson_return_minus_one() -> None:
    state = Ridge().allocate(1, 1, 2)
    state.inverse[0, 1, 1] = -1.0
    got = choose(
        "thompson", Regression(*state), np.ones(1), np.eye(2), False, np.ones(2), np.ones(3)
    )
    assert got[0] == -1


def test_what_an_extended_model_learns() -> None:
    rng = np.random.default_rng(6)
    for n, d in ((1, 1), (3, 7), (5, 12)):
        g, x, reward = rng.standard_normal(n), rng.standard_normal(d), rng.standard_normal(n)
        wide, scalar = lesson(g, x, reward)
        np.testing.assert_array_equal(wide, np.kron(g, x))
        assert scalar.tolist() == [pytest.approx(float(g @ reward), rel=1e-12)]


@pytest.mark.parametrize("per_arm", [False, True])
def test_a_rule_in_python(per_arm: bool) -> None:
    rng = np.random.default_rng(7)
    case = grown(rng, 2, 3, 5, per_arm)
    seen: list[Any] = []

    def function(values: Any, widths: Any, t: int, uniform: float) -> Any:
        seen.append((values, widths, t, uniform))
        return len(seen), (0.25, None, None)[len(seen) - 1]

    rule = PythonRule(function)
    args = case.model, case.g, case.features, per_arm, np.array([0.75]), rule.params
    arm, chance, scores = choose("python", *args)
    assert (arm, chance) == (1, 0.25)
    values, widths, t, uniform = seen[0]
    np.testing.assert_array_equal(values, scores)
    # LinUCB without a bonus has the same scores, and with one of radius 1 it adds the widths.
    params = np.zeros(2 + 4 * 2)
    plain = choose("linucb", case.model, case.g, case.features, per_arm, params=params)[2]
    np.testing.assert_array_equal(values, plain)
    params[[0, 4, 5]] = 1.0
    bonus = choose("linucb", case.model, case.g, case.features, per_arm, params=params)[2] - plain
    np.testing.assert_allclose(widths, bonus / np.abs(case.g).sum(), rtol=1e-9)
    assert (t, uniform) == (case.state.counters[0], 0.75)
    got = choose("python", *args)
    assert got[0] == 2
    assert np.isnan(got[1])
    assert rule.failure() is None
    assert rule.callbacks == 2


@pytest.mark.parametrize("answer", [5, -1, 1e30, "x", None])
def test_a_rule_in_python_that_fails_keeps_its_exception(answer: Any) -> None:
    case = grown(np.random.default_rng(7), 2, 3, 5, False)
    rule = PythonRule(lambda values, widths, t, uniform: (answer, None))
    args = case.model, case.g, case.features, False, np.zeros(1), rule.params
    assert choose("python", *args)[0] == -1
    assert isinstance(rule.failure(), (ValueError, TypeError, OverflowError))
    assert rule.failure() is None


def test_a_rule_in_python_that_calls_itself_is_refused() -> None:
    case = grown(np.random.default_rng(7), 2, 3, 5, False)
    rule = PythonRule(lambda *_: choose("python", *args)[:2])
    args: Any = case.model, case.g, case.features, False, np.zeros(1), rule.params
    assert choose("python", *args)[0] == -1
    assert "called again" in str(rule.failure())


def test_names_and_sizes_are_checked() -> None:
    case = grown(np.random.default_rng(9), 2, 3, 5, False)
    args = case.model, case.g, case.features
    with pytest.raises(ValueError, match="no rule 'best'"):
        choose("best", *args)
    with pytest.raises(ValueError, match="no certificate 'best'"):
        certificate_terms("best", case.model, case.g, case.g, case.features, False, 0, np.empty(0))
    for name, params, draws in (
        ("linucb", np.ones(5), np.empty(0)),
        ("linucb", -np.ones(9), np.empty(0)),
        ("squarecb", np.ones(13), np.empty(0)),
        ("thompson", np.ones(6), np.ones(2)),
        ("squarecb_theorem", np.ones(12), np.ones(1)),
    ):
        with pytest.raises(ValueError, match="params were given"):
            choose(name, *args, draws=draws, params=params)
    with pytest.raises(ValueError, match="do not fit"):
        choose("linucb", case.model, np.ones(3), case.features, params=np.ones(14))
    with pytest.raises(ValueError, match="do not fit"):
        choose("linucb_extended", *args, params=np.ones(8))
    with pytest.raises(ValueError, match="do not fit"):
        choose("linucb", case.model, case.g, case.features, True, params=np.ones(10))
    with pytest.raises(ValueError, match="the arm is 5"):
        certificate_terms("plain", case.model, case.g, case.g, case.features, False, 5, np.empty(0))
    with pytest.raises(ValueError, match="there are 3 bounds"):
        certificate_terms(
            "optimistic", case.model, case.g, case.g, case.features, False, 0, np.empty(3)
        )
    with pytest.raises(ValueError, match="the reward has 1"):
        lesson(np.ones(2), np.ones(3), np.ones(1))
