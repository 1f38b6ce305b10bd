"""The optimum with hard constraints: beside convex solvers, also where they cannot be kept."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import linprog

from fairwolfe.core.arrays import Cube, Vector
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Finite, Mehrotra, dcg
from fairwolfe.errors import NumericalFailure
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    TwoSided,
    Within,
)
from fairwolfe.objectives.combine import On, Sum
from fairwolfe.simulation import simulate
from fairwolfe.truth import Optimum, known, optimum
from fairwolfe.truth.constraints import ALLOWED, HardConstraints
from fairwolfe.truth.solver import first_vertices
from tests.truth.test_optimum import Unsupported, solver_s, table
from tests.truth.test_sweeps import polytope

MODULE = import_module("fairwolfe.truth.optimum")  # the package has the function's name here
N_WORLDS = 50
EVERY_DAY = 15  # of them; all of them are for the slow tests
MUSIC = Mehrotra(n_arms=50, n_objectives=5)


def beyond(f: Concave, z: Any) -> list[Any]:
    """By how much z is beyond each level of a constraint, from its definition."""
    import cvxpy as cp

    n = z.shape[0]
    match f:
        case AtLeast() | AtMost():
            sign = 1.0 if isinstance(f, AtLeast) else -1.0
            levels = np.broadcast_to(np.array(f.level), (n,))
            whole = cp.sum(z) if f.share else 1.0
            return [sign * (levels[i] * whole - z[i]) for i in range(n)]
        case Within():
            low, high = (np.broadcast_to(np.array(side), (n,)) for side in (f.low, f.high))
            return [low[i] - z[i] for i in range(n)] + [z[i] - high[i] for i in range(n)]
        case ByGroup():
            members = f.map.toarray()
            return beyond(f.objective, members @ z)
        case On():
            return beyond(f.objective, cp.hstack([z[i] for i in f.positions()]))
        case Sum():
            return [row for term in f.terms for row in beyond(term, z)]
    raise NotImplementedError(repr(f))


class Case(NamedTuple):
    """A world, f without constraints, and the constraints."""

    world: Finite
    means: Cube
    chances: Vector
    soft: Concave
    hard: Concave


def case(seed: int) -> Case:
    """A random world with one to three constraints of all kinds, many of which cannot be kept."""
    rng = stream(seed, "constrained")
    contexts, arms, n = (int(rng.integers(*ends)) for ends in ((2, 7), (3, 6), (2, 6)))
    means, chances = rng.random((contexts, arms, n)), rng.random(contexts) + 0.1
    chances /= chances.sum()
    world = Finite(rng.random((contexts, arms, 2)), chances, means=means)
    kinds: list[Concave] = [
        Linear(tuple(rng.uniform(-0.3, 1.0, n).tolist())),
        Minimum(),
        GeneralizedGini(tuple(np.sort(rng.random(n))[::-1].tolist())),
        Nash(offset=0.01),
        Linear(tuple(rng.random(n).tolist())) + Minimum(),
    ]
    terms = []
    for _ in range(int(rng.integers(1, 4))):
        i, level = int(rng.integers(n)), float(rng.uniform(0.3, 0.9))
        low, high = np.sort(rng.uniform(0.2, 0.8, 2)).tolist()
        share = float(rng.uniform(0.7, 0.95) / n)
        labels = ["ab"[j % 2] for j in range(n)]
        choices: list[Concave] = [
            AtLeast(level).on(i),
            AtMost(level).on(i),
            Within(low, high).on(i),
            AtLeast(share, share=True),
            ByGroup(AtLeast((1.1 * level, 0.8 * level)), labels),
        ]
        terms.append(choices[int(rng.integers(len(choices)))])
    return Case(world, means, chances, kinds[seed % len(kinds)], Sum(tuple(terms)))


def mixtures(one: Case) -> tuple[Any, list[Any]]:
    """The average reward vectors of all policies of a finite world, for the solver."""
    import cvxpy as cp

    chances = cp.Variable(one.means.shape[:2], nonneg=True)
    z = sum(one.means[c].T @ chances[c] for c in range(len(one.chances)))
    return z, [cp.sum(chances, axis=1) == one.chances]


def best_by_solver(soft: Concave, hard: Concave, z: Any, within: list[Any]) -> float | None:
    """The largest f under the constraints; None where they cannot be kept."""
    import cvxpy as cp

    kept = [row <= 0.0 for row in beyond(hard, z)]
    problem = cp.Problem(cp.Maximize(solver_s(soft, z)), within + kept)
    with np.errstate(invalid="ignore"):
        problem.solve(solver=cp.CLARABEL)
    assert problem.status in (cp.OPTIMAL, cp.INFEASIBLE)
    return None if problem.status == cp.INFEASIBLE else float(problem.value)


def least_beyond(hard: Concave, z: Any, within: list[Any], by: float) -> float:
    """How far every policy is beyond levels that are looser by so much; for shares, of the sum."""
    import cvxpy as cp

    def room(f: Concave, z: Any) -> list[Any]:
        if isinstance(f, Sum):
            return [one for term in f.terms for one in room(term, z)]
        inner = f
        while isinstance(inner, ByGroup | On):
            inner = inner.objective
        share = isinstance(inner, AtLeast | AtMost) and inner.share
        whole = cp.sum(cp.hstack([z[i] for i in f.positions()])) if isinstance(f, On) else cp.sum(z)
        return [by * (whole if share else 1.0) for _ in beyond(f, z)]

    least = cp.Variable()
    rows = zip(beyond(hard, z), room(hard, z), strict=True)
    loose = [row <= extra + least for row, extra in rows]
    problem = cp.Problem(cp.Minimize(least), within + loose)
    problem.solve(solver=cp.CLARABEL)
    return float(problem.value)


def check(best: Optimum, one: Any, z: Any, within: list[Any], gap: float = 2e-6) -> bool:
    """Compare an optimum with the solver's; whether the constraints can be kept."""
    exact = best_by_solver(one.soft, one.hard, z, within)
    f = one.soft + one.hard
    assert best.violation == f.violation(best.average)
    if exact is None:
        assert not best.feasible
        assert best.upper_bound == -np.inf
        assert np.isnan(best.gap)
        assert best.violation >= best.unavoidable > ALLOWED
        assert least_beyond(one.hard, z, within, by=best.unavoidable) >= -1e-7
        assert best.value == pytest.approx(one.soft.value(best.average), abs=1e-9)
        return False
    # 1e-6: what the interior-point solver is good for.
    assert best.feasible
    assert best.unavoidable == 0.0
    assert best.violation <= ALLOWED
    assert best.value <= exact + 1e-6
    assert best.upper_bound >= exact - 1e-6
    assert best.gap <= gap
    assert best.value == pytest.approx(one.soft.value(best.average), abs=1e-9)
    return True


def compared(seed: int) -> bool:
    one = case(seed)
    best = optimum(one.world, one.soft + one.hard, tolerance=1e-6)
    return check(best, one, *mixtures(one))


# --- beside convex solvers ---------------------------------------------------------------------


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("seed", range(EVERY_DAY))
def test_the_optimum_is_that_of_a_convex_solver(seed: int) -> None:
    compared(seed)


@pytest.mark.slow
@pytest.mark.needs("cvxpy")
def test_fifty_worlds_some_of_which_are_not_feasible() -> None:
    feasible = [compared(seed) for seed in range(N_WORLDS)]
    assert 10 <= sum(feasible) <= N_WORLDS - 10


@pytest.mark.needs("cvxpy")
def test_the_least_violation_is_that_of_a_linear_programme() -> None:
    import cvxpy as cp

    one = case(0)._replace(soft=Minimum(), hard=AtLeast(0.7) + AtMost(0.6).on(0))
    z, within = mixtures(one)
    least = cp.Variable()
    rows = [row <= least for row in beyond(one.hard, z)]
    problem = cp.Problem(cp.Minimize(least), within + rows)
    problem.solve(solver=cp.CLARABEL)
    assert problem.value > 0.01
    best = optimum(one.world, one.soft + one.hard)
    assert best.violation == pytest.approx(problem.value, abs=1e-7)
    assert best.unavoidable == pytest.approx(problem.value, abs=1e-7)
    assert "no policy keeps the constraints" in str(best)


# --- rankings ----------------------------------------------------------------------------------

FOUR = FactorModel(4, 6, dcg(3), n_factors=3)
PAIRS = ("a", "b", "c", "a", "b", "c")
SHARE = sum(dcg(3)) / 6.0
RANKED: dict[str, tuple[Concave, Concave]] = {
    "shares of producers": (
        Linear((0.0,) * 6 + (1.0,)),
        ByGroup(AtLeast(0.3, share=True), PAIRS).on(*range(6)),
    ),
    "all of the whole": (
        Linear((0.0,) * 6 + (1.0,)),
        ByGroup(AtLeast(1.0 / 3.0, share=True), PAIRS).on(*range(6)),
    ),
    "floors of items": (TwoSided(GiniWelfare(), 0.2), AtLeast(0.6 * SHARE).on(*range(6))),
    "ranges of items": (
        TwoSided(Nash(offset=0.1), 0.1),
        Within(0.8 * SHARE, 1.3 * SHARE).on(*range(6)),
    ),
    "clicks at least": (GiniEquality().on(*range(6)), AtLeast(0.9).on(6)),
    "too many clicks": (GiniEquality().on(*range(6)), AtLeast(1.4).on(6)),
    "clicks and shares": (
        Linear((0.0,) * 6 + (1.0,)),
        AtLeast(1.05).on(6) + ByGroup(AtLeast(0.33, share=True), PAIRS).on(*range(6)),
    ),
}


class Ranked(NamedTuple):
    """f without constraints, and the constraints."""

    soft: Concave
    hard: Concave


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("name", RANKED)
def test_rankings_are_as_good_as_doubly_stochastic_matrices(name: str) -> None:
    one = Ranked(*RANKED[name])
    z, within = polytope(FOUR.init(stream(1, "world")))
    bound = one._replace(soft=one.soft.bind(FOUR.problem()))
    best = optimum(FOUR, one.soft + one.hard, seed=1)
    check(best, bound, z, within, gap=3e-4)


def test_some_rankings_can_be_kept_and_some_cannot() -> None:
    found = {name: optimum(FOUR, f + g, seed=1).feasible for name, (f, g) in RANKED.items()}
    assert found["shares of producers"]
    assert found["all of the whole"]
    assert not found["too many clicks"]


def test_floors_of_producers_in_a_world_of_fifty_items() -> None:
    world = FactorModel()
    producers = tuple(f"producer {i % 10}" for i in range(50))
    clicks = Linear({"clicks": 1.0})
    free = optimum(world, clicks)
    floors = ByGroup(AtLeast(0.09, share=True), producers).on(*range(50))
    best = optimum(world, clicks + floors)
    assert best.violation <= ALLOWED
    assert best.gap <= 1e-4
    assert floors.violation(free.average) > 0.01  # it costs something
    assert best.upper_bound < free.value - 0.01
    # Policies that know the world come close, and none comes above with the floors kept.
    trace = simulate(known(world, clicks + floors), world, 5_000)
    assert abs(best.value - trace.value[-1]) <= 0.002 * best.value
    assert trace.violation[-1] <= 0.003


# --- every way to find it -----------------------------------------------------------------------


def log_of(offset: float) -> Custom:
    """Nash, without a proximal map."""
    return Custom(
        lambda z: float(np.log(z + offset).sum()), gradient=lambda z: np.asarray(1.0 / (z + offset))
    )


@pytest.mark.parametrize("seed", range(4))
def test_cutting_planes_find_the_same_optimum(seed: int) -> None:
    world = table(seed, n=3)
    free = optimum(world, Nash(offset=0.1)).average
    hard = AtMost(float(0.9 * free[0])).on(0) + AtLeast(0.3, share=True)
    known_f, written_f = Nash(offset=0.1) + hard, log_of(0.1) + hard
    exact, best = optimum(world, known_f), optimum(world, written_f, tolerance=1e-4)
    assert best.violation <= ALLOWED
    assert best.gap <= 2e-4
    assert best.value <= exact.upper_bound + 1e-6
    assert best.upper_bound >= exact.value - 1e-6
    nothing = optimum(world, log_of(0.1) + AtMost(0.1).on(0) + AtLeast(0.9).on(1))
    assert not nothing.feasible


def test_samples_enclose_the_optimum_under_constraints() -> None:
    hidden, f = Unsupported(n_arms=50, n_objectives=5), Linear((1.0, 0.2, 0.0, 0.0, 0.0))
    top = optimum(MUSIC, f).average[0]
    ceiling = f + AtMost(float(0.97 * top)).on(0)
    exact, best = optimum(MUSIC, ceiling), optimum(hidden, ceiling, tolerance=1e-2)
    assert best.value <= exact.upper_bound
    assert exact.value <= best.upper_bound
    assert best.violation == 0.0
    assert best.gap <= 1e-2 * 1.2
    fair = optimum(MUSIC, Minimum()).value
    refuted = optimum(hidden, f + AtLeast(float(1.1 * fair)), tolerance=1e-2)
    certain = optimum(MUSIC, f + AtLeast(float(1.1 * fair)))
    assert not refuted.feasible
    assert not certain.feasible
    assert 0.0 < refuted.unavoidable <= certain.violation
    assert certain.violation == pytest.approx(0.1 * fair, abs=1e-6)


@pytest.mark.parametrize("more", [-1e-7, 0.0, 5e-7, 5e-6])
def test_levels_that_the_set_only_touches(more: float) -> None:
    fair = optimum(MUSIC, Minimum(), tolerance=1e-9).value
    best = optimum(MUSIC, Linear((1.0, 0.2, 0.0, 0.0, 0.0)) + AtLeast(float(fair + more)))
    if more > ALLOWED:
        assert not best.feasible
        assert best.unavoidable == pytest.approx(more, rel=1e-3)
        assert best.violation == pytest.approx(more, rel=1e-3)
    else:
        assert best.feasible
        assert best.violation <= ALLOWED


@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_units_of_a_reward_do_not_matter(unit: float) -> None:
    world = table(3, n=3)
    cost = Mapped(AtMost(0.4 * unit), [[unit, 0.0, 0.0]])
    best = optimum(world, Linear((1.0, 1.0, 0.2)) + cost)
    plain = optimum(world, Linear((1.0, 1.0, 0.2)) + AtMost(0.4).on(0))
    assert best.value == pytest.approx(plain.value, abs=2e-6)
    assert best.average[0] <= 0.4 + 1e-6
    assert plain.value < optimum(world, Linear((1.0, 1.0, 0.2))).value - 0.01


def test_a_constraint_that_costs_nothing_changes_nothing() -> None:
    world = table(1)
    free = optimum(world, GiniWelfare())
    kept = optimum(world, GiniWelfare() + AtLeast(float(0.9 * free.average.min())))
    assert kept.value == pytest.approx(free.value, abs=1e-7)
    alone = optimum(world, AtLeast(float(0.9 * free.average.min())))
    assert alone.value == 0.0
    assert alone.upper_bound == pytest.approx(0.0, abs=1e-7)
    assert alone.violation <= ALLOWED


def test_without_constraints_nothing_is_violated() -> None:
    best = optimum(table(1), Minimum())
    assert best.violation == 0.0
    assert best.unavoidable == 0.0
    assert best.feasible
    assert "violation" not in str(best)


def test_neither_is_certain_after_too_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    world = table(2)
    fair = optimum(world, Minimum()).value
    monkeypatch.setattr(MODULE, "_CALLS", 0)
    with pytest.raises(NumericalFailure, match="not certain"):
        optimum(world, Linear((1.0, 0.0, 0.0, 0.0, 0.0)) + AtLeast(float(0.99 * fair)))


# --- certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_direction_of_the_rows_bounds_every_violation(seed: int) -> None:
    """Any direction does, good or bad, but not with less than the support function."""
    world, rng = table(seed), stream(seed, "directions")
    arrays = world.init(stream(0, "world"))

    def support(g: Vector) -> tuple[float, Vector]:
        return world.support(arrays, g)

    f = (AtLeast(0.8).on(1, 2, 3, 4) + AtMost(0.3).on(0)).bind(world.problem())
    rows = HardConstraints(f, world.problem(), support)
    points = np.array([support(g)[1] for g in rng.standard_normal((200, 5))])
    mixed = rng.dirichlet(np.ones(200), 500) @ points
    least = min(f.violation(z) for z in mixed)
    bounds = []
    for _ in range(200):
        g = rng.standard_normal(len(rows))
        g = np.where(np.isfinite(np.where(g > 0.0, rows.low, rows.high)), g, 0.0)
        bounds.append(rows.unavoidable(g, support)[0])
    sought = rows.seek(support, *first_vertices(support, 5), 200)
    assert max(bounds) <= least
    assert max(bounds) <= sought.unavoidable + 1e-9 <= least + 1e-9

    def too_low(g: Vector) -> tuple[float, Vector]:
        return float((mixed[:50] @ g).max()), mixed[0]  # not all that can be reached

    assert rows.unavoidable(sought.proof, too_low)[0] > sought.unavoidable + 1e-3


# --- degenerate linear programmes ---------------------------------------------------------------


def test_a_tiny_linear_programme_is_solved_to_the_tolerance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An equation and a linear f: multipliers alone need 543 calls for a gap of 1e-6."""
    monkeypatch.setattr(MODULE, "_CALLS", 300)
    rng = np.random.default_rng(0)
    contexts, n_arms, n = (int(rng.integers(low, high)) for low, high in ((1, 5), (2, 6), (2, 5)))
    means, p = rng.random((contexts, n_arms, n)), rng.dirichlet(np.ones(contexts))
    slope = rng.normal(size=n)
    world = Finite(rng.random((contexts, n_arms, 2)), tuple(p), means=means)
    mixed = np.einsum("c,ca,can->n", p, rng.dirichlet(np.ones(n_arms), size=contexts), means)
    i = int(rng.integers(n))
    f = Linear(tuple(slope)) + Within(float(mixed[i]), float(mixed[i])).on(i)
    best = optimum(world, f, tolerance=1e-8)
    exact = linprog(
        -np.einsum("c,can,n->ca", p, means, slope).ravel(),
        A_eq=np.vstack(
            [np.kron(np.eye(contexts), np.ones(n_arms)), (p[:, None] * means[:, :, i]).ravel()]
        ),
        b_eq=np.append(np.ones(contexts), mixed[i]),
    )
    assert exact.fun is not None
    assert best.gap <= 1e-8
    assert best.value - 1e-6 <= -exact.fun <= best.upper_bound + 1e-9


def test_a_floor_below_the_range_changes_nothing() -> None:
    free, floored = (
        optimum(Finite.a2(), f, tolerance=1e-6)
        for f in (Linear((1.0, 0.0)), Linear((1.0, 0.0)) + AtLeast(-0.5).on(1))
    )
    assert floored.value == pytest.approx(free.value, abs=1e-6)
    assert floored.violation == 0.0
