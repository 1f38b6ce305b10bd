"""Ahead-of-time rules and looks against today's numba kernels, bit by bit."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from fairwolfe.bandits import choosing, epsilon_greedy, fixed, linucb, optimism, squarecb
from fairwolfe.bandits import thompson as thompson_module
from fairwolfe.bandits import uniform as uniform_module
from fairwolfe.kernels.ridge import Regression
from fairwolfe.kernels.rules import PythonRule, choose, lesson, look
from fairwolfe.oracles import OnlineGradient, Ridge

RULES: dict[str, Any] = {
    "linucb": linucb.linucb,
    "linucb_extended": linucb.linucb_extended,
    "squarecb": squarecb.squarecb,
    "squarecb_theorem": squarecb.squarecb_theorem,
    "epsilon_greedy": epsilon_greedy.epsilon_greedy,
    "thompson": thompson_module.thompson,
    "uniform": uniform_module.uniform_choice,
    "fixed": fixed.fixed_choice,
}


class Case(NamedTuple):
    """A model that has learnt something, and a context."""

    state: Any
    model: Regression
    g: Any
    features: Any
    per_arm: bool


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
    return Case(state, model, g, features, per_arm)


def shapes(rng: np.random.Generator) -> Any:
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


def test_argmax_of_ties_and_nan() -> None:
    """The first of equals; a NaN is the largest only in the first place."""
    for values in ([1.0, 1.0], [0.0, -0.0, 0.0], [np.nan, 5.0], [1.0, np.nan, 2.0, 2.0]):
        theta = np.array(values)[:, None, None]
        arms = len(values)
        state = Ridge().allocate(arms, 1, 1)
        state.theta[:] = theta
        args = np.ones(1), np.ones((1, 1)), True
        params = np.concatenate([[0.0, 1.0], np.zeros(4)])
        out, report = np.empty(arms), np.empty(1)
        expected = linucb.linucb(
            args[0], state.theta, state.inverse, state.counters, *args[1:], np.empty(0), params,
            out, report,
        )  # fmt: skip
        assert choose("linucb", Regression(*state), *args, params=params)[0] == expected


def _cases(names: Any) -> list[tuple[str, bool]]:
    """Names with and without blocks; an extended model has one design for all arms."""
    return [(name, per) for name in names for per in (False, True) if not (per and "ext" in name)]


@pytest.mark.parametrize(("name", "per_arm"), _cases(RULES))
def test_rules_are_bit_equal(name: str, per_arm: bool) -> None:
    extended = name == "linucb_extended"
    rng = np.random.default_rng([sum(map(ord, name)), per_arm])
    met = set()
    for n, d, arms in [*shapes(rng), *shapes(rng)]:
        case = grown(rng, n, d, arms, per_arm, extended)
        for params in params_of(name, rng, n, d):
            many = case.state.theta.shape[0] * d
            draws = rng.standard_normal(many) if name == "thompson" else rng.random(1)
            scores, report = np.empty(arms), np.empty(1)
            state = case.state
            arm = RULES[name](
                case.g,
                state.theta,
                state.inverse,
                state.counters,
                case.features,
                per_arm,
                draws,
                params,
                scores,
                report,
            )
            got = choose(name, case.model, case.g, case.features, per_arm, draws, params)
            assert got[0] == arm
            np.testing.assert_array_equal(got[1], report[0])
            np.testing.assert_array_equal(got[2], scores)
            met.add((arms, arm))
    assert len(met) > 10


@pytest.mark.parametrize(("name", "per_arm"), _cases(["plain", "optimistic", "extended"]))
def test_looks_are_bit_equal(name: str, per_arm: bool) -> None:
    extended = name == "extended"
    rng = np.random.default_rng([len(name), per_arm])
    numba: Any = {
        "plain": optimism.outlook,
        "optimistic": optimism.optimistic_outlook,
        "extended": optimism.extended_outlook,
    }[name]
    seen = np.zeros(4)
    for n, d, arms in [*shapes(rng), *shapes(rng)]:
        case = grown(rng, n, d, arms, per_arm, extended)
        ranges = np.concatenate([rng.random(n) - 1.0, rng.random(n) + 0.5])
        wide = np.concatenate([[1.0, 3.0], rng.random(2 * n)])
        if extended:
            wide = np.array([1.0, 3.0, 0.7, 1.1])
        for doubt in (ranges, np.concatenate([ranges, wide])):
            slope, arm, out = rng.standard_normal(n), int(rng.integers(arms)), np.empty(4)
            state = case.state
            numba(
                slope,
                case.g,
                state.theta,
                state.inverse,
                state.counters,
                case.features,
                per_arm,
                arm,
                doubt,
                out,
            )
            got = look(name, case.model, slope, case.g, case.features, per_arm, arm, doubt)
            np.testing.assert_array_equal(got, out)
            seen += out != 0.0
    assert seen[1] > 5
    assert (name == "plain") == (seen[0] == 0.0)
    assert (name == "plain") == (seen[3] == 0.0)


@pytest.mark.parametrize("name", ["optimistic", "extended"])
def test_arms_that_were_tried_100_times_are_left_out(name: str) -> None:
    state = Ridge().allocate(1, 1, 1)
    state.theta[:] = 0.5
    one, doubt = np.ones(1), np.array([0.0, 1.0])
    numba: Any = optimism.extended_outlook if name == "extended" else optimism.optimistic_outlook
    for width, counts in ((0.2, True), (0.12, True), (0.102, True), (0.098, False), (0.09, False)):
        features, out = np.array([[width], [0.01]]), np.empty(4)
        numba(one, one, state.theta, state.inverse, state.counters, features, False, 0, doubt, out)
        got = look(name, Regression(*state), one, one, features, False, 0, doubt)
        np.testing.assert_array_equal(got, out)
        assert (got[3] > 0.0) == counts


def test_a_direction_of_zero_has_no_pointwise_bonus_in_an_extended_model() -> None:
    case = grown(np.random.default_rng(10), 2, 3, 6, False, True)
    params = np.array([-1.0, 3.0, 0.7, 1.1, 0.0, 0.0, 1.0, 1.0])
    g, scores, report, state = np.zeros(2), np.empty(6), np.empty(1), case.state
    arm = linucb.linucb_extended(
        g,
        state.theta,
        state.inverse,
        state.counters,
        case.features,
        False,
        np.empty(0),
        params,
        scores,
        report,
    )
    got = choose("linucb_extended", case.model, g, case.features, params=params)
    assert got[0] == arm
    np.testing.assert_array_equal(got[2], scores)
    assert np.isfinite(got[2]).all()


def test_a_pointwise_bonus_in_an_extended_look_is_bit_equal() -> None:
    rng = np.random.default_rng(8)
    case = grown(rng, 3, 4, 20, False, True)
    ranges = np.concatenate([rng.random(3) - 1.0, rng.random(3) + 0.5])
    doubt = np.concatenate([ranges, [-1.0, 3.0, 0.7, 1.1], ranges])
    slope, out, state = rng.standard_normal(3), np.empty(4), case.state
    optimism.extended_outlook(
        slope,
        case.g,
        state.theta,
        state.inverse,
        state.counters,
        case.features,
        False,
        5,
        doubt,
        out,
    )
    got = look("extended", case.model, slope, case.g, case.features, False, 5, doubt)
    np.testing.assert_array_equal(got, out)


def test_rules_without_widths_take_online_gradients() -> None:
    rng = np.random.default_rng(5)
    state = OnlineGradient().init(_problem(6, 3))
    model = Regression(*state, learn="online_gradient")
    for _ in range(50):
        model.learn(0, rng.standard_normal(6), rng.random(3))
    g, features = rng.random(3), rng.standard_normal((40, 6))
    for name in ("squarecb", "squarecb_theorem", "epsilon_greedy", "uniform", "fixed"):
        for params in params_of(name, rng, 3, 6):
            draws, scores, report = rng.random(1), np.empty(40), np.empty(1)
            arm = RULES[name](
                g,
                state.theta,
                state.inverse,
                state.counters,
                features,
                False,
                draws,
                params,
                scores,
                report,
            )
            got = choose(name, model, g, features, False, draws, params)
            assert got[:2] == (arm, report[0])
            np.testing.assert_array_equal(got[2], scores)
    with pytest.raises(ValueError, match="no confidence widths"):
        choose("linucb", model, g, features, params=np.zeros(14))
    out = np.empty(4)
    optimism.outlook(
        g, -g, state.theta, state.inverse, state.counters, features, False, 3, np.empty(0), out
    )
    np.testing.assert_array_equal(look("plain", model, g, -g, features, False, 3, np.empty(0)), out)


def _problem(d: int, n: int) -> Any:
    from fairwolfe.core.problem import Problem

    return Problem.arms(d, {f"r{i}": (0, 1) for i in range(n)}, parameter_norm=1.0)


def test_a_useless_design_makes_thompson_return_minus_one() -> None:
    state = Ridge().allocate(1, 1, 2)
    state.inverse[0, 1, 1] = -1.0
    got = choose(
        "thompson", Regression(*state), np.ones(1), np.eye(2), False, np.ones(2), np.ones(3)
    )
    assert got[0] == -1


def test_what_an_extended_model_learns_is_bit_equal() -> None:
    rng = np.random.default_rng(6)
    for n, d in ((1, 1), (3, 7), (5, 12)):
        g, x, reward = rng.standard_normal(n), rng.standard_normal(d), rng.standard_normal(n)
        wide, scalar = np.empty(n * d), np.empty(1)
        choosing.extended_lesson(g, x, reward, wide, scalar)
        got = lesson(g, x, reward)
        np.testing.assert_array_equal(got[0], wide)
        np.testing.assert_array_equal(got[1], scalar)


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
    plain = choose("linucb", case.model, case.g, case.features, per_arm, None, params)[2]
    np.testing.assert_array_equal(values, plain)
    params[[0, 4, 5]] = 1.0
    bonus = choose("linucb", case.model, case.g, case.features, per_arm, None, params)[2] - plain
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
    with pytest.raises(ValueError, match="no look 'best'"):
        look("best", case.model, case.g, case.g, case.features, False, 0, np.empty(0))
    for name, params, draws in (
        ("linucb", np.ones(5), None),
        ("linucb", -np.ones(9), None),
        ("squarecb", np.ones(13), None),
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
        look("plain", case.model, case.g, case.g, case.features, False, 5, np.empty(0))
    with pytest.raises(ValueError, match="the doubt 3"):
        look("optimistic", case.model, case.g, case.g, case.features, False, 0, np.empty(3))
    with pytest.raises(ValueError, match="the reward has 1"):
        lesson(np.ones(2), np.ones(3), np.ones(1))
