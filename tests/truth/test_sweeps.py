"""The certified optimum of worlds with rankings, beside convex solvers and other methods."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arrays import Vector
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, FiniteRanking, dcg
from fairwolfe.environments.world import RankingArrays
from fairwolfe.errors import NumericalFailure
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    EqualExposure,
    GiniEquality,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    PerMerit,
    TwoSided,
    Welfare,
)
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.truth import optimum, solver, sweeps
from tests.truth.test_optimum import solver_s

MODULE = import_module("fairwolfe.truth.optimum")  # the package has the function's name here


def objectives(m: int) -> dict[str, Concave]:
    rng = stream(m, "objectives")
    labels = tuple(int(label) for label in np.arange(m) % 3)
    merit = tuple((0.5 + rng.random(m)).round(3).tolist())
    share = sum(dcg(min(m, 10))) / m
    return {
        "gini welfare": TwoSided(GiniWelfare(), 0.5),
        "gini equality": TwoSided(GiniEquality(), 0.4),
        "a little equality": TwoSided(GiniEquality(), 0.05),
        "equal exposure": TwoSided(EqualExposure(), float(m)),
        "welfare": TwoSided(Welfare(0.5), 0.3),
        "nash": TwoSided(Nash(), 0.1),
        "minimum": TwoSided(Minimum(), m / 3),
        "at least": TwoSided(AtLeast(0.5 * share, penalty=2.0)),
        "at most": TwoSided(AtMost(1.2 * share, penalty=1.0)),
        "by group": TwoSided(ByGroup(GiniWelfare(), labels)),
        "per merit": TwoSided(PerMerit(GiniEquality(), merit), 0.4),
        "sum": TwoSided(GiniEquality(), 0.2) + 0.1 * Nash(offset=0.1).on(*range(m + 1)),
        "clicks": Linear({"clicks": 1.0}),
    }


NAMES = tuple(objectives(5))
TWO = FactorModel(
    [[0.5, 0.2], [0.1, 0.9], [0.7, 0.1]],
    [[0.3, 0.2], [0.8, 0.1], [0.2, 0.9], [0.9, 0.9], [0.1, 0.1]],
    [[1.0, 0.4], [0.5, 0.5], [0.9, 0.2]],
    rewards={"clicks": (np.eye(2), (0, 1)), "cost": ([[1, 0], [-1, 1]], (-2, 3))},
)
WORLDS = {
    "four users": FactorModel(4, 5, dcg(3), n_factors=3),
    "all items shown": FactorModel(4, 6, dcg(6), n_factors=3),
    "one user": FactorModel(1, 12, dcg(2), n_factors=3),
    "one slot": FactorModel(25, 4, dcg(1), n_factors=3),
    "weights by user, two rewards": TWO,
}


def solver_two_sided(f: Concave, z: Any, m: int) -> Any:
    """f(z) for the solver, by definition."""
    if isinstance(f, TwoSided):
        users = f.users or Linear((1.0,) * f.n_users)
        return f.beta * solver_s(f.items, z[:m]) + solver_s(users, z[m:])
    return solver_s(f, z)


def polytope(world: RankingArrays) -> tuple[Any, list[Any]]:
    """Averages of all mixtures of rankings: doubly stochastic matrices, (items, slots) by user."""
    import cvxpy as cp

    m, k = len(world.items), world.weights.shape[1]
    constraints: list[Any] = []
    z: Any = 0.0
    for u, share in enumerate(world.shares):
        chances = cp.Variable((m, k), nonneg=True)
        constraints += [cp.sum(chances, axis=0) == 1.0, cp.sum(chances, axis=1) <= 1.0]
        exposure = chances @ world.weights[u if len(world.weights) > 1 else 0]
        means = [
            np.clip(world.items @ turned[u], low, high)
            for turned, (low, high) in zip(world.turned, world.ranges, strict=True)
        ]
        z = z + share * (np.vstack([np.eye(m), means]) @ exposure)
    return z, constraints


def solved(f: Concave, world: RankingArrays) -> float:
    """The best mixture of rankings."""
    import cvxpy as cp

    z, constraints = polytope(world)
    problem = cp.Problem(cp.Maximize(solver_two_sided(f, z, len(world.items))), constraints)
    with np.errstate(invalid="ignore"):  # it evaluates f at a point that may be outside by 1e-9
        problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return float(problem.solution.opt_val)


# --- beside convex solvers ---------------------------------------------------------------------


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("place", WORLDS)
@pytest.mark.parametrize("name", NAMES)
def test_the_optimum_is_that_of_doubly_stochastic_matrices(place: str, name: str) -> None:
    environment = WORLDS[place]
    m = environment.problem().n_items or 0
    f = objectives(m)[name]
    exact = solved(f.bind(environment.problem()), environment.init(stream(2, "world")))
    best = optimum(environment, f, seed=2)
    scale = max(1.0, abs(exact))
    # 1e-6: what the interior-point solver is good for.
    assert best.value <= exact + 1e-6 * scale
    assert best.upper_bound >= exact - 1e-6 * scale
    assert best.gap <= 3e-4 * scale  # at most 3e-5; 1e-8 nearly everywhere


def test_the_small_world_of_the_ranking_bound() -> None:
    best = optimum(FiniteRanking.b1(), TwoSided(GiniEquality(), beta=3.0))
    assert best.value == pytest.approx(0.79334, abs=5e-6)
    assert best.upper_bound == pytest.approx(0.79334, abs=5e-6)
    world = FiniteRanking.b1().init(stream(0, "world"))
    clicks = FiniteRanking.b1().support(world, np.array([0.0, 0.0, 0.0, 1.0]))[1]
    worse = best.value - TwoSided(GiniEquality(), beta=3.0).value(clicks)
    assert worse == pytest.approx(0.97, abs=0.005)


# --- known by theory ---------------------------------------------------------------------------

MUSIC = FactorModel(50, 50)


def test_clicks_alone_have_the_support_for_their_optimum() -> None:
    world = MUSIC.init(stream(1, "world"))
    value, point = MUSIC.support(world, np.eye(51)[50])
    best = optimum(MUSIC, Linear({"clicks": 1.0}), seed=1)
    assert best.value == pytest.approx(value, abs=1e-9)
    assert best.upper_bound == pytest.approx(value, abs=1e-9)
    np.testing.assert_allclose(best.average, point, atol=1e-9)


def test_the_two_gini_functions_rank_alike() -> None:
    """GiniEquality = 2 GiniWelfare - (m + 1)/m sum z, and all rankings have the same sum z."""
    welfare = optimum(MUSIC, TwoSided(GiniWelfare(), beta=0.8))
    equality = optimum(MUSIC, TwoSided(GiniEquality(), beta=0.4))
    shift = 0.4 * 51 / 50 * sum(dcg(10))
    assert equality.value <= welfare.upper_bound - shift
    assert welfare.value - shift <= equality.upper_bound
    assert equality.gap <= 1e-4  # 3e-6
    assert welfare.gap <= 1e-4


def test_equal_exposure_costs_what_the_mean_over_items_says() -> None:
    """With a large beta all items are shown alike, and each user still sees its own favourites."""
    best = optimum(MUSIC, TwoSided(EqualExposure(), beta=1e4), tolerance=0.01)
    np.testing.assert_allclose(best.average[:50], sum(dcg(10)) / 50, rtol=1e-3)
    world = MUSIC.init(stream(0, "world"))
    by_chance = (world.users @ world.items.T).mean() * sum(dcg(10))
    top = MUSIC.support(world, np.eye(51)[50])[0]
    assert 1.2 * by_chance <= best.average[50] <= 0.95 * top


@pytest.mark.parametrize("name", NAMES)
def test_a_world_of_fifty_users_and_items(name: str) -> None:
    f = objectives(50)[name].bind(MUSIC.problem())
    world = MUSIC.init(stream(0, "world"))
    best = optimum(MUSIC, f)
    scale = max(1.0, abs(best.value))
    assert best.gap <= 1e-4 * scale  # at most 4e-6
    assert f.value(best.average) == best.value
    support = partial(MUSIC.support, world)
    other = solver.solve(support, solver.Multipliers(support, f, 51), 1e-2, 1e-2, 2000)
    assert other.value <= best.upper_bound
    assert best.value <= other.upper_bound
    # What can be reached by best rankings, mixed with the optimum, is below the bound.
    for g in stream(0, "directions").standard_normal((20, 51)):
        for share in (0.001, 0.3, 1.0):
            mixed = (1.0 - share) * best.average + share * support(g)[1]
            assert f.value(mixed) <= best.upper_bound


# --- how it stops ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gini equality", "nash", "minimum", "at least"])
def test_bounds_are_valid_however_early_it_stops(name: str) -> None:
    f = objectives(50)[name].bind(MUSIC.problem())
    world = MUSIC.init(stream(0, "world"))
    exact = optimum(MUSIC, f)
    gaps = []
    for limit in (1, 2, 4, 8, 16, 32, 64):
        found = sweeps.maximise(world, f, 1e-12, 1e-12, limit, stream(0, "order"))
        assert found.passes == limit
        assert found.value <= exact.upper_bound
        assert found.upper_bound >= exact.value
        gaps.append(found.upper_bound - found.value)
    assert gaps[-1] < 1e-3 * max(1.0, abs(exact.value))
    assert gaps[-1] < 0.05 * gaps[0]


@pytest.mark.parametrize("name", [n for n in NAMES if n != "clicks"])
@pytest.mark.parametrize("width", [1e-9, 1e-3, 1e3, 1e9, 1e14])
def test_certificates_hold_at_any_width(name: str, width: float) -> None:
    """A proximal point is a sum that may cancel: the bound has room for what rounding does."""
    f = objectives(50)[name].bind(MUSIC.problem())
    leaves = Leaves(f, 51)
    rng = stream(0, "points", name)
    for _ in range(20):
        y = leaves.matrix @ rng.uniform(0.01, 0.2, 51)
        leaves.widen([1e-2] * len(leaves.leaves))
        settled = leaves.touch(y)[0]
        leaves.widen([width] * len(leaves.leaves))
        g, p = leaves.touch(y - leaves.reach * settled)
        intercept, slope = solver.majorant(leaves, g, p)
        for z in rng.uniform(0.01, 0.2, (20, 51)):
            assert f.value(z) <= intercept + slope @ z


def test_few_users_mix_many_rankings() -> None:
    """Equal exposure of 40 items by three users with two slots takes some 40 rankings."""
    environment = FactorModel(3, 40, dcg(2), n_factors=5)
    for f in (TwoSided(GiniEquality(), 1.0), TwoSided(Minimum(), 20.0)):
        assert optimum(environment, f, seed=1).gap <= 1e-6  # 4e-9, 6e-9


def test_the_memory_of_a_user_may_be_too_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more rankings are needed than are kept, the bounds stay bounds."""
    environment = WORLDS["one user"]
    f = TwoSided(GiniEquality(), 1.0).bind(environment.problem())
    best = optimum(environment, f)
    monkeypatch.setattr(sweeps, "_KEPT", 3 - 8 * 12)  # three rankings, to show twelve items alike
    world = environment.init(stream(0, "world"))
    short = sweeps.maximise(world, f, 1e-3, 1e-3, 50, stream(0, "order"))
    assert short.passes == 50
    assert short.value <= best.upper_bound
    assert short.upper_bound >= best.value


def test_the_order_of_users_hardly_matters() -> None:
    f = objectives(50)["gini welfare"].bind(MUSIC.problem())
    world = MUSIC.init(stream(0, "world"))
    one, other = (sweeps.maximise(world, f, 1e-5, 1e-5, 500, stream(i, "order")) for i in (0, 1))
    assert one.value != other.value
    assert one.value == pytest.approx(other.value, rel=2e-5)
    again = sweeps.maximise(world, f, 1e-5, 1e-5, 500, stream(0, "order"))
    assert (again.value, again.upper_bound) == (one.value, one.upper_bound)


def test_a_tolerance_that_cannot_be_met_fails_with_the_bounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MODULE, "_PASSES", 8)
    with pytest.raises(NumericalFailure, match=r"lies between \d.* and \d.*, a gap of"):
        optimum(MUSIC, TwoSided(GiniEquality()), tolerance=1e-9)


def squares(z: Vector) -> float:
    return float(z[-1] - 5.0 * ((z[:-1] - z[:-1].mean()) ** 2).sum())


def slope(z: Vector) -> Vector:
    return np.append(-10.0 * (z[:-1] - z[:-1].mean()), 1.0)


def test_a_function_of_the_user_s_goes_by_vertices() -> None:
    environment = FactorModel(4, 6, dcg(2), n_factors=3)
    best = optimum(environment, Custom(squares, slope, smooth=True))
    rng = stream(0, "directions")
    world = environment.init(stream(0, "world"))
    assert best.gap <= 1e-3
    for g in rng.standard_normal((50, 7)):
        assert squares(environment.support(world, g)[1]) <= best.upper_bound


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_world_of_the_size_of_last_fm(name: str) -> None:
    environment = FactorModel(1892, 2500, n_factors=10)
    f = objectives(2500)[name]
    best = optimum(environment, f)
    assert best.gap <= 1e-3 * max(1.0, abs(best.value))
