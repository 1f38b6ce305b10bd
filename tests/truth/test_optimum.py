"""The certified optimum beside convex solvers, and the policy that knows the world."""

from __future__ import annotations

import re
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arrays import Vector
from fairwolfe.core.registry import load, names
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite, Mehrotra
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    PerMerit,
    TwoSided,
    Welfare,
)
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.objectives.threshold import Penalised
from fairwolfe.simulation import simulate
from fairwolfe.truth import known, optimum
from fairwolfe.truth.solver import CuttingPlanes, Multipliers, solve
from tests.objectives.test_prox import expression

MODULE = import_module("fairwolfe.truth.optimum")  # the package has the function's name here
MUSIC = Mehrotra(n_arms=50, n_objectives=5)
SMALL = Mehrotra(n_arms=5, n_objectives=4, n_features=3)

OBJECTIVES: dict[str, Concave] = {
    "gini": GeneralizedGini((1.0, 0.5, 0.25, 0.125, 0.0625)),
    "minimum": Minimum(),
    "nash": Nash(),
    "welfare": Welfare(0.5),
    "floor": Linear((1.0, 0.2, 0.0, 0.4, 0.1)) + AtLeast(0.9, penalty=3.0),
    "ceiling": Linear((1.0, 0.2, 0.3, 0.4, 0.1)) + AtMost((0.5, 2.0, 2.0, 0.6, 2.0), penalty=5.0),
    "equality": Linear((0.2, 0.0, 0.1, 0.0, 0.0)) + 5.0 * EqualExposure(),
    "two blocks": GiniEquality().on(0, 1, 2) + 0.5 * Nash(offset=0.1).on(3, 4),
    "overlap": GiniWelfare() + Minimum().on(1, 3) + 0.1 * Nash(),
    "groups": ByGroup(GiniWelfare(), ("a", "b", "a", "c", "b")),
    "mapped": Mapped(Minimum(), np.random.default_rng(5).standard_normal((7, 5)).tolist()),
    "per merit": PerMerit(Minimum(), (1.0, 2.0, 0.5, 1.0, 3.0)),
}


def solver_s(f: Concave, z: Any) -> Any:
    """f(z) for the solver, by definition."""
    match f:
        case ByGroup():
            return solver_s(f.objective, solver_map(totals(f.labels)) @ z)
        case Mapped():
            return solver_s(f.objective, np.array(f.matrix) @ z)
        case PerMerit():
            return solver_s(f.objective, solver_map(np.diag(1.0 / np.array(f.merit))) @ z)
        case Penalised():
            import cvxpy as cp

            return -f.penalty * cp.sum(cp.pos(f.sign * (np.array(f.levels) - z)))
    return expression(f, z)


def solver_map(matrix: Any) -> Any:
    return np.asarray(matrix, dtype=np.float64)


def kept(f: Concave, z: Vector, rng: np.random.Generator) -> Vector:
    """z, or another point that keeps the hard constraints of f."""
    while f.value(z) == -np.inf:
        z = f.prox(z, 1.0) if f.has_prox else rng.uniform(0.05, 1.0, z.size)
    return z


def totals(labels: Any) -> list[list[float]]:
    groups = list(dict.fromkeys(labels))
    return [[float(label == group) for label in labels] for group in groups]


def solved(f: Concave, z: Any, constraints: list[Any]) -> float:
    import cvxpy as cp

    problem = cp.Problem(cp.Maximize(solver_s(f, z)), constraints)
    with np.errstate(invalid="ignore"):  # it evaluates f at a point that may be outside by 1e-9
        problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return float(problem.solution.opt_val)


def table(seed: int, n_contexts: int = 6, n_arms: int = 5, n: int = 5) -> Finite:
    rng = stream(seed, "table")
    contexts = rng.random((n_contexts, n_arms, 2))
    means = rng.random((n_contexts, n_arms, n))
    return Finite(contexts, rng.random(n_contexts) + 0.1, means=means)


# --- beside convex solvers ---------------------------------------------------------------------


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_optimum_of_the_music_world_is_that_of_a_cone_programme(name: str) -> None:
    import cvxpy as cp

    from fairwolfe.environments.mehrotra import largest_of_normals

    f = OBJECTIVES[name]
    for seed in (0, 1):
        theta = MUSIC.init(stream(seed, "world"))
        u = cp.Variable(10)
        spread = largest_of_normals(50)
        z = theta @ (1.0 + spread * u) / 10.0
        exact = solved(f, z, [cp.norm(u) <= 1.0])
        best = optimum(MUSIC, f, seed)
        # 1e-6: what the interior-point solver is good for.
        assert best.value <= exact + 1e-6 * max(1.0, abs(exact))
        assert best.upper_bound >= exact - 1e-6 * max(1.0, abs(exact))
        assert best.gap <= 1e-7 * max(1.0, abs(exact))


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_optimum_of_a_finite_world_is_that_of_its_policies(name: str) -> None:
    import cvxpy as cp

    f = OBJECTIVES[name]
    environment = table(3)
    world = environment.init(stream(0, "world"))
    shares = np.array(environment.probabilities)
    chances = cp.Variable((6, 5), nonneg=True)
    z = sum(shares[c] * (chances[c] @ world.means[c]) for c in range(6))
    exact = solved(f, z, [cp.sum(chances, axis=1) == 1.0])
    best = optimum(environment, f)
    assert best.value <= exact + 1e-6 * max(1.0, abs(exact))
    assert best.upper_bound >= exact - 1e-6 * max(1.0, abs(exact))
    assert best.gap <= 1e-7 * max(1.0, abs(exact))


@pytest.mark.needs("cvxpy")
def test_the_optimum_with_twenty_rewards() -> None:
    import cvxpy as cp

    from fairwolfe.environments.mehrotra import largest_of_normals

    environment = Mehrotra(n_arms=50, n_objectives=20)
    theta = environment.init(stream(2, "world"))
    for f in (environment.objective(), Nash(), TwoSided(GiniWelfare(), 0.5)):
        u = cp.Variable(10)
        exact = solved(f, theta @ (1.0 + largest_of_normals(50) * u) / 10.0, [cp.norm(u) <= 1.0])
        if isinstance(f, TwoSided):  # its problem would be a ranking: straight to the method
            support = partial(environment.support, theta)
            found = solve(support, Multipliers(support, f, 20), 1e-7, 1e-7, 500)
            value, upper = found.value, found.upper_bound
        else:
            best = optimum(environment, f, seed=2)
            value, upper = best.value, best.upper_bound
        assert value - 1e-6 * abs(exact) <= exact <= upper + 1e-6 * abs(exact)
        assert upper - value <= 1e-6 * max(1.0, abs(exact))


# --- known by theory ---------------------------------------------------------------------------


def test_the_two_small_worlds() -> None:
    distance = AtLeast(0.5, penalty=1.0) + AtMost(0.5, penalty=1.0)  # -|z - .5|
    first = optimum(Finite.a1(), distance)
    assert first.value == pytest.approx(0.0, abs=1e-8)
    assert first.upper_bound == pytest.approx(0.0, abs=1e-8)
    second = optimum(Finite.a2(), Minimum())
    assert second.value == pytest.approx(0.5, abs=1e-8)
    assert second.upper_bound == pytest.approx(0.5, abs=1e-8)
    np.testing.assert_allclose(second.average, 0.5, atol=1e-7)


def test_linear_functions_have_the_support_for_their_optimum() -> None:
    weights = (0.3, -1.0, 2.0, 0.0, 0.5)
    theta = MUSIC.init(stream(4, "world"))
    value, point = MUSIC.support(theta, np.array(weights))
    best = optimum(MUSIC, Linear(weights), seed=4)
    assert best.value == pytest.approx(value, abs=1e-9)
    assert best.upper_bound == pytest.approx(value, abs=1e-9)
    np.testing.assert_allclose(best.average, point, atol=1e-9)


def test_multiples_and_names_and_nothing() -> None:
    f = Minimum()
    one, twice = optimum(SMALL, f), optimum(SMALL, 2.0 * f)
    assert twice.value == pytest.approx(2.0 * one.value, rel=1e-7)
    named = optimum(SMALL, Linear({"r2": 1.0}))
    assert named.value == pytest.approx(optimum(SMALL, Linear((0.0, 1.0, 0.0, 0.0))).value)
    zero = optimum(SMALL, 0.0 * Nash())
    assert zero.value == 0.0
    assert zero.upper_bound == pytest.approx(0.0, abs=1e-12)


def test_one_arm_leaves_no_choice() -> None:
    alone = Mehrotra(n_arms=1, n_objectives=3, n_features=4)
    theta = alone.init(stream(0, "world"))
    best = optimum(alone, GiniWelfare())
    np.testing.assert_allclose(best.average, theta.sum(axis=1) / 4, rtol=1e-9)
    assert best.gap <= 1e-9


def test_rewards_of_very_different_sizes() -> None:
    rng = stream(0, "sizes")
    means = rng.random((5, 6, 3)) * [1.0, 120.0, 0.05]
    environment = Finite(rng.random((5, 6, 2)), np.ones(5), means=means, noise="none")
    f = Linear({"r1": 1.0, "r2": 0.5}) + AtMost({"r3": 0.015}, penalty=2e4)
    best = optimum(environment, f)
    assert best.gap <= 1e-6
    assert best.average[2] <= 0.015 + 1e-9
    scaled = Finite(environment.contexts, np.ones(5), means=means * 1e3, noise="none")
    larger = Linear({"r1": 1.0, "r2": 0.5}) + AtMost({"r3": 15.0}, penalty=2e4)
    assert optimum(scaled, larger).value == pytest.approx(1e3 * best.value, rel=1e-6)


# --- certificates ------------------------------------------------------------------------------


def sized(name: str) -> list[Concave]:
    return [f for f in load("objectives", name).examples() if "Custom" not in repr(f)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [n for n in names("objectives") if n != "custom"])
def test_every_objective_is_the_sum_of_its_leaves(name: str) -> None:
    rng = stream(0, "leaves", name)
    for f in sized(name):
        n = f.size or 5
        leaves = Leaves(f, n)
        assert leaves.smoothable
        for _ in range(20):
            z = kept(f, rng.uniform(0.05, 1.0, n), rng)
            y = leaves.matrix @ z
            assert leaves.value(y) == pytest.approx(f.value(z), rel=1e-12, abs=1e-12)
            np.testing.assert_allclose(
                leaves.matrix.T @ leaves.touch(y, 0.0)[0],
                f.gradient(z),
                rtol=1e-10,
                atol=1e-12,
            )


@pytest.mark.parametrize("name", [n for n in names("objectives") if n != "custom"])
def test_every_certificate_lies_above_the_function(name: str) -> None:
    rng = stream(0, "majorants", name)
    for f in sized(name):
        n = f.size or 5
        leaves = Leaves(f, n)
        certified = 0
        for _ in range(20):
            leaves.widen((10.0 ** rng.uniform(-6.0, 1.0, len(leaves.leaves))).tolist())
            shifted = leaves.matrix @ rng.uniform(-1.0, 1.0, n) + rng.normal(size=len(leaves.reach))
            g, p = leaves.touch(shifted)
            if not np.isfinite(leaves.value(p)):
                continue  # a proximal point at the edge of the domain, outside by rounding
            certified += 1
            intercept, slope = leaves.value(p) - g @ p, leaves.matrix.T @ g
            for z in rng.uniform(0.0, 2.0, (20, n)):
                reach = float(intercept + slope @ z)
                assert f.value(z) <= reach + 1e-9 * (1.0 + abs(reach) + np.abs(g).max())
        assert certified >= 10, f


@pytest.mark.parametrize("name", OBJECTIVES)
def test_no_reachable_point_is_above_the_bound(name: str) -> None:
    f = OBJECTIVES[name]
    theta = MUSIC.init(stream(6, "world"))
    best = optimum(MUSIC, f, seed=6)
    assert f.value(best.average) == best.value
    assert best.value <= best.upper_bound
    rng = stream(6, "points")
    points = np.array([MUSIC.support(theta, g)[1] for g in rng.standard_normal((50, 5))])
    near = [MUSIC.support(theta, f.envelope_gradient(best.average, b))[1] for b in (1e-3, 0.1)]
    for point in (*points, *near):
        for share in (0.0, 0.01, 0.5, 1.0):
            mixed = (1.0 - share) * best.average + share * point
            assert f.value(mixed) <= best.upper_bound


def test_bounds_are_valid_however_early_it_stops() -> None:
    f = OBJECTIVES["overlap"]
    theta = MUSIC.init(stream(0, "world"))
    exact = optimum(MUSIC, f)
    gaps = []
    for calls in range(3, 12):
        support = partial(MUSIC.support, theta)
        found = solve(support, Multipliers(support, f, 5), 1e-12, 1e-12, calls)
        assert found.calls == calls
        assert found.value <= exact.upper_bound
        assert found.upper_bound >= exact.value
        gaps.append(found.upper_bound - found.value)
        # What it says of the point and of the certificate can be checked from outside.
        points = np.array([MUSIC.support(theta, g)[1] for g in found.directions])
        np.testing.assert_allclose(found.weights @ points, found.average, atol=1e-12)
        height = MUSIC.support(theta, found.slope)[0]
        assert found.intercept + height == pytest.approx(found.upper_bound, abs=1e-10)
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 0.01 * gaps[0]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_cutting_planes_agree(name: str) -> None:
    f = OBJECTIVES[name]
    theta = MUSIC.init(stream(0, "world"))
    best = optimum(MUSIC, f)
    found = solve(partial(MUSIC.support, theta), CuttingPlanes(f, 5), 1e-5, 1e-5, 200)
    scale = max(1.0, abs(best.value))
    assert found.upper_bound - found.value <= 1e-5 * scale
    assert found.value <= best.upper_bound
    assert best.value <= found.upper_bound


# --- functions of the user's -------------------------------------------------------------------


def logarithms(z: Vector) -> float:
    return float(np.log(z).sum()) if z.min() > 0.0 else -np.inf


def least(z: Vector) -> float:
    return float(z.min())


def least_slope(z: Vector) -> Vector:
    unit: Vector = np.eye(z.size)[int(z.argmin())]
    return unit


def inverse(z: Vector) -> Vector:
    return 1.0 / np.maximum(z, 1e-9)


@pytest.mark.parametrize(
    ("custom", "same"),
    [
        (Custom(logarithms, inverse, smooth=True), Nash()),
        (Custom(least, least_slope), Minimum()),
        (Custom(least, least_slope) + Nash(), Minimum() + Nash()),
        (
            GiniWelfare() + 2.0 * Custom(logarithms, inverse, smooth=True),
            GiniWelfare() + 2.0 * Nash(),
        ),
    ],
    ids=["smooth", "kinks", "kinks and logarithms", "in a sum"],
)
def test_functions_without_a_proximal_map(custom: Concave, same: Concave) -> None:
    mine, ours = optimum(MUSIC, custom), optimum(MUSIC, same)
    assert mine.gap <= 1e-3 * max(1.0, abs(mine.value))
    assert mine.value <= ours.upper_bound
    assert ours.value <= mine.upper_bound


def test_what_a_function_raises_comes_out() -> None:
    def slope(z: Vector) -> Vector:
        raise RuntimeError("no slope today")

    with pytest.raises(RuntimeError, match="no slope today"):
        optimum(MUSIC, Custom(logarithms, slope, smooth=True))


# --- worlds without a support function ---------------------------------------------------------


class Unsupported(Mehrotra):
    """The music world without its formula."""

    support = None  # type: ignore[assignment]


class Plain:
    """The contract and nothing else: neither the formula nor kernels."""

    def __init__(self, inner: Mehrotra) -> None:
        for method in ("problem", "init", "context", "feedback", "mean_reward", "best_action"):
            setattr(self, method, getattr(inner, method))


@pytest.mark.parametrize("name", ["gini", "nash", "equality", "overlap"])
def test_samples_enclose_the_optimum(name: str) -> None:
    hidden = Unsupported(n_arms=50, n_objectives=5)
    assert hidden.support is None
    f = OBJECTIVES[name]
    for seed in range(3):
        best, exact = optimum(hidden, f, seed, tolerance=0.03), optimum(MUSIC, f, seed)
        assert best.value <= exact.value
        assert exact.upper_bound <= best.upper_bound
        assert best.gap <= 0.03 * max(1.0, abs(best.value))
        # The average is measured on 25,000 contexts or more.
        np.testing.assert_allclose(f.value(best.average), exact.value, atol=0.02)


def test_samples_of_a_world_without_kernels() -> None:
    plain, exact = Plain(SMALL), optimum(SMALL, Minimum())
    best = optimum(plain, Minimum(), tolerance=0.2)
    assert best.value <= exact.value <= exact.upper_bound <= best.upper_bound
    quick = optimum(Unsupported(5, 4, 3), Minimum(), tolerance=0.2)
    # The same streams, the same kernels: the loop in Python is the other one.
    assert quick.value == pytest.approx(best.value, rel=1e-12)
    assert quick.upper_bound == pytest.approx(best.upper_bound, rel=1e-12)


def test_a_tolerance_that_samples_cannot_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_SAMPLES", (250,))
    with pytest.raises(NumericalFailure, match=r"lies between 1\.\d+ and 1\.\d+, a gap of"):
        optimum(Unsupported(50, 5), MUSIC.objective(), tolerance=1e-5)


# --- refusals ----------------------------------------------------------------------------------


def test_a_tolerance_below_rounding_fails_with_the_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_CALLS", 60)
    with pytest.raises(NumericalFailure, match=r"a gap of \d.*larger tolerance than 1e-17"):
        optimum(MUSIC, Minimum(), tolerance=1e-17)


def test_an_optimum_of_minus_infinity_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "_CALLS", 60)
    nothing = Finite([[[1.0], [2.0]]], [1.0], means=[[[0.5, 0.0], [0.6, 0.0]]], noise="none")
    with pytest.raises(NumericalFailure, match=r"between -inf and .*give the objective an offset"):
        optimum(nothing, Nash())
    best = optimum(nothing, Nash(offset=0.1))
    assert best.value == pytest.approx(np.log(0.7) + np.log(0.1), abs=1e-7)
    with pytest.raises(NumericalFailure, match="give it an offset"):
        optimum(nothing, Custom(logarithms, inverse))


@pytest.mark.parametrize(
    ("environment", "objective", "options", "message"),
    [
        ("mehrotra", Minimum(), {}, "the environment is 'mehrotra'"),
        (MUSIC, "minimum", {}, "the objective is 'minimum'"),
        (MUSIC, Minimum(), {"tolerance": 0.0}, "tolerance is 0.0"),
        (MUSIC, Minimum(), {"tolerance": np.nan}, "tolerance is nan"),
        (MUSIC, Minimum(), {"tolerance": "small"}, "tolerance is 'small'"),
        (MUSIC, Minimum(), {"seed": -1}, "seed is -1"),
        (MUSIC, GeneralizedGini((1.0, 0.5)), {}, "GeneralizedGini has 2 weights"),
        (MUSIC, Linear({"r6": 1.0}), {}, "there is no reward 'r6'"),
    ],
)
def test_bad_input_is_refused(
    environment: Any, objective: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        optimum(environment, objective, **options)


# --- the policy that knows the world -----------------------------------------------------------


def test_the_known_world_is_played_to_its_optimum() -> None:
    f = MUSIC.objective()
    for seed in range(2):
        trace = simulate(known(MUSIC, f), MUSIC, 1000, seed=seed)
        best = optimum(MUSIC, f, seed)
        # 1,000 contexts and rewards: an average is off by some 0.01 in each of its coordinates.
        assert trace.value[-1] > best.value - 0.03
        assert trace.value[-1] < best.upper_bound + 0.03
        assert not trace.compiled


def test_the_known_world_by_hand() -> None:
    environment = Finite.a2()
    world = environment.init(stream(0, "world"))
    policy = known(environment, Minimum()).in_world(world)
    state = policy.init(environment.problem())
    rng, noise = stream(0, "contexts"), stream(0, "noise")
    for t in range(300):
        context = environment.context(world, t + 1, rng)
        g = state.direction()
        decision = policy.act(state, context, rng)
        assert decision.action == environment.best_action(world, context, g)
        assert decision.probability == 1.0
        reward = environment.feedback(world, context, decision.action, noise)
        state = policy.update(state, decision, reward)
    assert state.t == 300
    assert min(state.average) > 0.4


def test_a_known_policy_must_meet_a_world() -> None:
    policy = known(MUSIC, Minimum())
    assert policy == known(Mehrotra(), Minimum())
    for call in (
        lambda: policy.init(MUSIC.problem()),
        lambda: policy.act(None, np.ones((2, 10)), stream(0, "policy")),
        lambda: policy.update(None, None, np.ones(5)),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidInput, match="must meet a world"):
            call()
    with pytest.raises(InvalidInput, match="the environment is 3"):
        known(3, Minimum())
    with pytest.raises(InvalidInput, match="the objective is 'min'"):
        known(MUSIC, "min")  # type: ignore[arg-type]
