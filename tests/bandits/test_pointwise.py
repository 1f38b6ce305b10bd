"""`exploration="pointwise"`: its formula by hand, both loops, refusals, files, the certificate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.cli import commands
from fairwolfe.core.arrays import Vector
from fairwolfe.core.build import from_text
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import kind_of
from fairwolfe.environments import FactorModel, Mehrotra, dcg
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.objectives import GiniEquality, Minimum, TwoSided
from fairwolfe.oracles.linear_regression import UPDATES
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank

POINTWISE: Any = {"exploration": "pointwise"}
RANGES = {"clicks": (0.0, 1.0), "minutes": (-1.0, 3.0)}
ARMS = fw.Problem.arms(4, RANGES, parameter_norm=2.0)
LISTS = FactorModel(7, 9, dcg(3), n_factors=3)
FAIR = TwoSided(GiniEquality(), beta=0.5)
POLICIES = {
    "fair": FWLinUCBRank(FAIR, **POINTWISE),
    "plain": LinUCBRank(**POINTWISE),
    "unbiased": UnbiasedLinUCBRank(**POINTWISE),
    "floor": FairLearnRank(0.1, **POINTWISE),
}


def bonus_of(value: float, ends: tuple[float, float], noise: float, width: float, t: Any) -> float:
    """By the root of (high - v)(v - low), the bound of Bhatia and Davis, v kept off the ends.

    t: parameters and observations.
    """
    low, high = ends
    reach = (high - low) / (1.0 + width**-2)
    away = min(reach, (high - low) / 2.0)
    inside = float(np.clip(value, low + away, high - away))
    deviation = min(math.sqrt((high - inside) * (inside - low)), noise)
    radius = 0.5 * math.sqrt(math.log((1.0 + t[0] * math.sqrt(t[1] + 1)) ** 2))
    return radius * width * deviation + reach


# --- the formula ----------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", [None, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_the_bonus_of_arms_by_hand(seed: int, noise: float | None) -> None:
    rng = np.random.default_rng(seed)
    problem = fw.Problem.arms(4, RANGES, noise=noise)
    base = LinUCB(ridge=0.5, **POINTWISE)
    state, design, moment = base.init(problem), 0.5 * np.eye(4), np.zeros((2, 4))
    scales = [0.5, 2.0] if noise is None else [noise, noise]
    for t in range(30):
        context, g = rng.normal(size=(6, 4)) * 0.7, rng.normal(size=2)
        choice = base.act(state, context, g, rng)
        inverse, theta = np.linalg.inv(design), moment @ np.linalg.inv(design)
        scores = np.empty(6)
        for a, x in enumerate(context):
            width, means = math.sqrt(x @ inverse @ x), theta @ x
            parts = zip(means, RANGES.values(), scales, strict=True)
            bonus = np.array([bonus_of(*part, width, (4, t)) for part in parts])
            scores[a] = g @ means + abs(g) @ bonus
        assert choice.action == scores.argmax()
        assert choice.explanation is not None
        (reasons,) = choice.explanation
        assert reasons["exploration"] == pytest.approx(
            scores.max() - g @ theta @ context[choice.action], rel=1e-9
        )
        reward = rng.uniform(problem.low - 0.5, problem.high + 0.5)
        x = context[choice.action]
        design, moment = design + np.outer(x, x), moment + np.outer(reward, x)
        state = base.update(state, choice, g, reward)


@pytest.mark.parametrize("seed", range(3))
def test_the_bonus_counts_the_parameters_of_all_arms_whatever_the_candidates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = fw.Problem.arms(4, RANGES, n_arms=5)
    base = LinUCB(ridge=0.5, **POINTWISE)
    kind, state = kind_of(problem), base.init(problem)
    designs, moments = [0.5 * np.eye(4) for _ in range(5)], [np.zeros((2, 4)) for _ in range(5)]
    for t in range(40):
        x, g = rng.normal(size=4) * 0.7, rng.normal(size=2)
        few = sorted(rng.permutation(5)[: 1 + t % 4].tolist())
        given = kind.read(fw.PerArm(x), candidates=few)
        choice = base.act(state, given, g, rng)
        scores, values = {}, {}
        for a in few:
            inverse = np.linalg.inv(designs[a])
            width, means = math.sqrt(x @ inverse @ x), moments[a] @ inverse @ x
            parts = zip(means, RANGES.values(), (0.5, 2.0), strict=True)
            bonus = np.array([bonus_of(*part, width, (20, t)) for part in parts])
            values[a], scores[a] = g @ means, g @ means + abs(g) @ bonus
        arm = max(few, key=scores.__getitem__)
        assert few[int(choice.action)] == arm
        assert choice.explanation is not None
        (reasons,) = choice.explanation
        assert reasons["exploration"] == pytest.approx(scores[arm] - values[arm], rel=1e-9)
        reward = rng.uniform(problem.low, problem.high)
        designs[arm] += np.outer(x, x)
        moments[arm] += np.outer(reward, x)
        state = base.update(state, choice, g, reward)


def test_the_bonus_of_an_extended_model_by_hand() -> None:
    rng = np.random.default_rng(0)
    base = LinUCB(model="extended", lipschitz=2.0, ridge=0.5, **POINTWISE)
    state, design, moment = base.init(ARMS), 0.5 * np.eye(8), np.zeros(8)
    noise = 2.0 * ARMS.diameter / 2.0
    for t in range(30):
        context, g = rng.normal(size=(5, 4)), rng.normal(size=2)
        choice = base.act(state, context, g, rng)
        ends = np.stack([g * ARMS.low, g * ARMS.high])
        bottom, top = ends.min(axis=0).sum(), ends.max(axis=0).sum()
        scores = np.empty(5)
        for a, x in enumerate(np.einsum("i,aj->aij", g, context).reshape(5, 8)):
            width, mean = (
                math.sqrt(x @ np.linalg.solve(design, x)),
                x @ np.linalg.solve(design, moment),
            )
            scores[a] = mean + bonus_of(mean, (bottom, top), noise, width, (8, t))
        assert choice.action == scores.argmax()
        reward = rng.uniform(ARMS.low, ARMS.high)
        x = np.outer(g, context[choice.action]).ravel()
        design, moment = design + np.outer(x, x), moment + (g @ reward) * x
        state = base.update(state, choice, g, reward)


def test_an_extended_model_without_a_direction_adds_nothing() -> None:
    base, rng = LinUCB(model="extended", lipschitz=2.0, **POINTWISE), np.random.default_rng(0)
    choice = base.act(base.init(ARMS), np.eye(4), np.zeros(2), rng)
    assert choice.explanation is not None
    assert choice.explanation[0]["exploration"] == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_the_bonus_of_items_by_hand(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rewards = {"clicks": (0.0, 2.0), "minutes": (-2.0, 6.0)}  # of two slots
    problem = fw.Problem.ranking(5, 2, (2, 3), rewards=rewards)
    base = LinUCBRank(**POINTWISE)
    state, design, moment = base.init(problem), 0.1 * np.eye(6), np.zeros((2, 6))
    learnt = 0
    for _ in range(20):
        user, items, g = rng.random(2), rng.normal(size=(5, 3)), rng.normal(size=7)
        choice = base.act(state, fw.Bilinear(user, items), g, rng)
        bonus, value = np.empty(5), np.empty(5)
        for i, item in enumerate(items):
            x = np.kron(user, item)
            width = math.sqrt(x @ np.linalg.solve(design, x))
            clicks, minutes = moment @ np.linalg.solve(design, x)
            value[i] = g[5] * clicks + g[6] * minutes
            t = (6, learnt)
            bonus[i] = abs(g[5]) * bonus_of(clicks, (0.0, 1.0), 0.5, width, t)
            bonus[i] += abs(g[6]) * bonus_of(minutes, (-1.0, 3.0), 2.0, width, t)
        order = np.argsort(-(value + bonus + g[:5]))[:2]
        np.testing.assert_array_equal(choice.action, order)
        slots = choice.explanation or ()
        explored, fair = ([slot[name] for slot in slots] for name in ("exploration", "fairness"))
        np.testing.assert_allclose(explored, bonus[order], rtol=1e-9)
        np.testing.assert_allclose(fair, g[order], rtol=1e-6, atol=1e-9)
        seen = rng.random(2) < 0.8
        earned = rng.uniform([0.0, -1.0], [1.0, 3.0], size=(2, 2)) * seen[:, None]
        for j in np.flatnonzero(seen):
            x = np.kron(user, items[order[j]])
            design, moment = design + np.outer(x, x), moment + np.outer(earned[j], x)
            learnt += 1
        shown = Shown(seen.astype(float), earned)
        state = base.update(state, choice, g, shown)


ONE = fw.Problem.arms(1, {"clicks": (0.0, 1.0)})


def bonus_at(value: float, width: float, learnt: int = 0) -> float:
    """What is added to an estimate, whose width is that of a feature of 1."""
    base = LinUCB(**POINTWISE)
    state = base.init(ONE)
    state.oracle.inverse[:], state.oracle.theta[:] = width**2, value
    state.oracle.counters[UPDATES] = learnt
    choice = base.act(state, np.ones((1, 1)), np.ones(1), np.random.default_rng(0))
    assert choice.explanation is not None
    return float(choice.explanation[0]["exploration"])


def test_it_grows_with_the_width_and_never_ends() -> None:
    """At both ends, beyond them and between, for widths from 1e-6 to 1e6."""
    widths = np.logspace(-6, 6, 200)
    for value in (0.0, 1e-12, 0.3, 0.5, 1.0):
        bonus = np.array([bonus_at(value, width) for width in widths])
        assert np.isfinite(bonus).all()
        assert (bonus > 0.0).all()
        assert (np.diff(bonus) > 0.0).all()
    for value in (-1e300, -5.0, 7.0, 1e300):  # where a sum of both has fewer digits of the bonus
        bonus = np.array([bonus_at(value, width) for width in widths])
        assert np.isfinite(bonus).all()
        assert (np.diff(bonus) >= 0.0).all()


def test_the_cut_is_where_one_more_observation_would_bring_the_estimate() -> None:
    """Ten observations of 0 in one direction, then one of 1: by hand and by the regression."""
    design, moment = 1.0 + 10.0, 0.0
    width, p = math.sqrt(1.0 / design), (moment + 1.0) / (design + 1.0)
    radius = 0.5 * math.sqrt(2.0 * math.log(1.0 + math.sqrt(11.0)))
    expected = radius * width * math.sqrt(p * (1.0 - p)) + p
    assert bonus_at(0.0, width, 10) == pytest.approx(expected)


# --- both loops, and every policy -----------------------------------------------------------------


def actions(policy: Any, world: Any, compiled: bool, f: Any = None) -> Vector:
    options: dict[str, Any] = {"compiled": compiled, "record_actions": True}
    run = fw.simulate(policy, world, 200, 1, f, **options)
    assert run.compiled == compiled
    return np.asarray(run.actions)


@pytest.mark.parametrize("name", POLICIES)
def test_rankings_of_both_loops_are_equal(name: str) -> None:
    compiled, plain = (actions(POLICIES[name], LISTS, way, FAIR) for way in (True, False))
    np.testing.assert_array_equal(compiled, plain)


@pytest.mark.parametrize("model", ["shared", "extended"])
def test_arms_of_both_loops_are_equal_and_differ_from_the_theory(model: Any) -> None:
    world = Mehrotra(6, 3, 4)
    base = LinUCB(model=model, **POINTWISE)
    policy = fw.FrankWolfe(Minimum(), base)
    compiled, plain = (actions(policy, world, way) for way in (True, False))
    np.testing.assert_array_equal(compiled, plain)
    whole = actions(
        fw.FrankWolfe(Minimum(), LinUCB(model=model, exploration="theorem")), world, True
    )
    assert (whole != plain).any()


def test_arms_with_parameters_of_their_own() -> None:
    """`PerArm` contexts are short for their flat form."""
    rng = np.random.default_rng(0)
    split = fw.Problem.arms(2, RANGES, n_arms=3)
    flat = fw.Problem.arms(6, RANGES)
    base, g = LinUCB(**POINTWISE), np.array([1.0, -0.5])
    states = [base.init(split), base.init(flat)]
    for _ in range(30):
        x, reward = rng.normal(size=2), rng.random(2)
        contexts = [fw.PerArm(x), np.kron(np.eye(3), x)]
        choices = [
            base.act(state, given, g, rng) for state, given in zip(states, contexts, strict=True)
        ]
        assert choices[0].action == choices[1].action
        states = [
            base.update(state, choice, g, reward)
            for state, choice in zip(states, choices, strict=True)
        ]


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["point", "", "nan", "1", -0.1, math.nan, math.inf, None, [1.0]])
def test_other_values_are_refused_with_both_forms(value: Any) -> None:
    makers: tuple[Any, ...] = (LinUCB, LinUCBRank, UnbiasedLinUCBRank)
    for maker in makers:
        with pytest.raises(InvalidInput, match=r"exploration is .*at least 0, 'pointwise' or"):
            maker(exploration=value)


def test_expressions_and_specs(tmp_path: Path) -> None:
    for made in (LinUCB(**POINTWISE), *POLICIES.values()):
        assert from_text(repr(made)) == made
    text = """
name = "both"
horizon = 20
seeds = 1
environment = { name = "mehrotra", n_arms = 3, n_objectives = 2, n_features = 2 }
objective = { name = "minimum" }

[policies.ucb]
name = "frank-wolfe"
base = { name = "linucb", exploration = "pointwise" }

[grid]
"policies.ucb.base.exploration" = [0.1, "pointwise"]
"""
    path = tmp_path / "both.toml"
    path.write_text(text)
    folder = str(tmp_path / "out")
    for command in (["run", str(path), "--out", folder], ["report", folder]):
        out = CliRunner().invoke(commands, command)
        assert out.exit_code == 0, out.output


def test_the_tradeoff_command_takes_both_forms(tmp_path: Path) -> None:
    fast = ["--betas", "1", "--floors", "", "--horizon", "20", "--seeds", "1"]
    given = ["tradeoff", "factor_model", *fast, "--out", str(tmp_path), "--exploration"]
    for value in ("pointwise", "0.3"):
        out = CliRunner().invoke(commands, [*given, value])
        assert out.exit_code == 0, out.output
    out = CliRunner().invoke(commands, [*given, "point"])
    assert out.exit_code != 0
    assert "'pointwise' or 'theorem'" in out.output + str(out.exception)


def test_a_saved_agent_decides_alike(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    agent = fw.Agent(fw.FrankWolfe(Minimum(), LinUCB(**POINTWISE)), ARMS, seed=0)
    for _ in range(20):
        agent.update(agent.act(rng.random((5, 4)) / 2.0), rng.random(2))
    agent.save(tmp_path / "agent.fw")
    again = fw.Agent.load(tmp_path / "agent.fw")
    for _ in range(20):
        context, reward = rng.random((5, 4)) / 2.0, rng.random(2)
        one, other = agent.act(context), again.act(context)
        assert one.action == other.action
        assert one.explain() == other.explain()
        agent.update(one, reward)
        again.update(other, reward)


# --- what is certified ----------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [{}, {"model": "extended", "lipschitz": 1.0}])
def test_the_certificate_keeps_the_whole_radius(settings: Any) -> None:
    whole, pointwise = LinUCB(**settings), LinUCB(**settings, **POINTWISE)
    np.testing.assert_array_equal(whole.bound_params(ARMS), pointwise.bound_params(ARMS))
    problem = LISTS.problem()
    np.testing.assert_array_equal(
        LinUCBRank(exploration="theorem").bound_params(problem),
        LinUCBRank(**POINTWISE).bound_params(problem),
    )


def test_what_is_seen_of_rankings_does_not_depend_on_the_exploration() -> None:
    """From one state, so that the largest optimistic scores are comparable."""
    rng, world = np.random.default_rng(0), LISTS.init(np.random.default_rng(0))
    problem = LISTS.problem()
    n = (problem.n_items or 0) + 1
    slope, g = rng.random(n), rng.random(n)
    context = LISTS.context(world, 1, rng)
    tops = []
    for base in (LinUCBRank(exploration="theorem"), LinUCBRank(**POINTWISE)):
        state = base.init(problem)
        choice = base.act(state, context, g, rng)
        tops.append(base.certify(state, context, g, choice, slope, base.bound_params(problem))[0])
    np.testing.assert_array_equal(tops[0], tops[1])


def test_what_is_seen_of_arms_does_not_depend_on_the_exploration() -> None:
    rng, whole = np.random.default_rng(0), LinUCB(exploration="theorem")
    state = whole.init(ARMS)
    for _ in range(10):
        choice = whole.act(state, rng.random((3, 4)), rng.random(2), rng)
        state = whole.update(state, choice, np.ones(2), rng.random(2))
    slope, context = rng.random(2), rng.random((6, 4))
    tops = []
    for base in (whole, LinUCB(**POINTWISE)):
        own, g = state._replace(params=base.rule_params(ARMS)), np.ones(2)
        choice = base.act(own, context, g, rng)
        tops.append(base.certify(own, context, g, choice, slope, base.bound_params(ARMS))[0])
    assert tops[0] == tops[1]


def test_theorems_are_not_claimed() -> None:
    given: Any = {"horizon": 100}
    with pytest.raises(OutsideAssumptions, match="exploration is 'pointwise'"):
        fw.bounds.of(fw.FrankWolfe(Minimum(), LinUCB(**POINTWISE)), ARMS, **given)
    with pytest.raises(OutsideAssumptions, match="exploration is 'pointwise'"):
        fw.bounds.of(POLICIES["fair"], LISTS, **given)
