"""The regret bounds: their numbers in worlds where they say something, and their limits."""

from __future__ import annotations

import math
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.core import registry
from fairwolfe.core.arrays import Vector
from fairwolfe.core.decision import Choice
from fairwolfe.core.problem import Problem
from fairwolfe.environments import Finite, Mehrotra
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.objectives import (
    Custom,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    TwoSided,
    Welfare,
)
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.reduction import FrankWolfe, MOLinCB
from fairwolfe.simulation import simulate
from fairwolfe.smoothing import Identity, Moreau, Randomized
from fairwolfe.truth import bounds, optimum
from fairwolfe.truth.bounds import setting
from tests.theory.worlds import A1, A2, AS_A_SUM, DISTANCE, MINIMUM

LONG = 100_000
WORLDS = {"A1": (A1, DISTANCE), "A2": (A2, MINIMUM)}
ONE = Problem.arms(1, {"clicks": (0, 1)}, parameter_norm=1.0)
TWO = Problem.arms(3, {"clicks": (0, 1), "saves": (0, 2)}, parameter_norm=1.0, n_arms=4)
RANKING = Problem.ranking(3, 1, 2, parameter_norm=math.hypot(0.85, 0.35))
B1 = TwoSided(GiniEquality(), beta=3.0)

# Every theorem as a function of the horizon alone.
THEOREMS: dict[str, Any] = {
    "smooth": lambda T, **o: bounds.smooth(problem=TWO, objective=Nash(0.5), horizon=T, **o),
    "moreau": lambda T, **o: bounds.moreau(problem=TWO, objective=MINIMUM, horizon=T, **o),
    "randomized": lambda T, **o: bounds.randomized(problem=TWO, objective=MINIMUM, horizon=T, **o),
    "nonsmooth": lambda T, **o: bounds.nonsmooth(
        problem=TWO, objective=MINIMUM, horizon=T, beta_0=0.5, m_1=1.0, m_2=2.0, **o
    ),
    "shared": lambda T, **o: bounds.linucb(problem=A2, objective=MINIMUM, horizon=T, **o),
    "extended": lambda T, **o: bounds.linucb(
        problem=A2, objective=MINIMUM, horizon=T, model="extended", **o
    ),
    "anytime": lambda T, **o: bounds.squarecb(
        problem=A2, objective=MINIMUM, horizon=T, n_arms=2, **o
    ),
    "fixed": lambda T, **o: bounds.squarecb(
        problem=A2, objective=MINIMUM, horizon=T, n_arms=2, gamma="fixed", **o
    ),
    "ranking": lambda T, **o: bounds.linucb_rank(problem=RANKING, objective=B1, horizon=T, **o),
}


# --- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("world", "base", "tight", "expected"),
    [
        ("A1", LinUCB(exploration="theorem"), False, 0.164),
        ("A1", LinUCB(exploration="theorem"), True, 0.110),
        ("A1", SquareCB(gamma0="theorem", horizon=LONG), True, 0.072),
        ("A2", LinUCB(model="extended", exploration="theorem"), True, 0.380),
        ("A2", LinUCB(exploration="theorem"), True, 0.242),
        ("A2", SquareCB(gamma0="theorem", horizon=LONG), True, 0.112),
    ],
)
def test_the_numbers_of_the_small_worlds(
    world: str, base: Any, tight: bool, expected: float
) -> None:
    environment, f = WORLDS[world]
    bound = bounds.of(FrankWolfe(f, base), environment, LONG, tight=tight)
    assert bound == pytest.approx(expected, abs=5e-4)


def test_the_number_of_the_ranking() -> None:
    given: dict[str, Any] = {"problem": RANKING, "objective": B1, "horizon": LONG}
    bound = bounds.linucb_rank(**given, smoothing=Moreau(0.5), tight=True)
    assert bound == pytest.approx(0.231, abs=5e-4)
    # Moreau() finds this width.
    assert bounds.linucb_rank(**given, tight=True) == pytest.approx(bound, rel=1e-12)


def test_a_number_by_hand() -> None:
    # A1 with T = 10^5 and D_X = .95, term by term.
    log_det = math.log(1.0 + 0.9025 * LONG)
    alpha = 0.5 * math.sqrt(2.0 * math.log(40.0) + log_det) + 1.0
    noise = math.sqrt(math.log(40.0) / 2.0)
    scalar = math.sqrt(LONG) * (math.sqrt(8.0 * log_det) * alpha + noise)
    given: dict[str, Any] = {"problem": A1, "objective": DISTANCE, "horizon": LONG, "tight": True}
    assert bounds.linucb_scalar(**given) == pytest.approx(scalar)
    whole = scalar / LONG + (2.0 + math.sqrt(math.log(20.0) / 2.0)) / math.sqrt(LONG)
    assert bounds.linucb(**given) == pytest.approx(whole)


# --- shape ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", THEOREMS)
def test_bounds_fall_with_the_horizon_towards_0(name: str) -> None:
    theorem = THEOREMS[name]
    values = theorem(np.geomspace(100, 1e18, 60))
    assert (np.diff(values) < 0.0).all()
    assert values[-1] < 1e-5


@pytest.mark.parametrize("name", THEOREMS)
def test_arrays_of_horizons_give_what_single_ones_give(name: str) -> None:
    horizons = [1, 10, 12_345]
    values = THEOREMS[name](np.array(horizons))
    single = [THEOREMS[name](T) for T in horizons]
    assert all(type(value) is float for value in single)
    np.testing.assert_allclose(values, single, rtol=1e-14)


@pytest.mark.parametrize("name", THEOREMS)
def test_tight_is_tighter(name: str) -> None:
    for horizon in (1, 100, LONG):
        assert THEOREMS[name](horizon, tight=True) < THEOREMS[name](horizon)


@pytest.mark.parametrize("name", THEOREMS)
def test_more_certainty_costs_more(name: str) -> None:
    values = [THEOREMS[name](1000, delta=delta) for delta in (1.0, 0.5, 0.05, 1e-6)]
    assert values == sorted(values)
    if name in ("shared", "extended", "anytime", "fixed", "ranking"):
        values = [THEOREMS[name](1000, base_delta=delta) for delta in (0.5, 0.05, 1e-6)]
        assert values == sorted(values)


@pytest.mark.parametrize("horizon", [0, -1, math.nan, math.inf, [10, 0], []])
def test_horizons_are_checked(horizon: Any) -> None:
    with pytest.raises(InvalidInput, match="horizon"):
        THEOREMS["moreau"](horizon)


@pytest.mark.parametrize("delta", [0.0, 1.5, -0.1])
def test_probabilities_are_checked(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta"):
        THEOREMS["moreau"](10, delta=delta)


# --- the reduction --------------------------------------------------------------------------------


def test_a_linear_objective_costs_only_the_contexts() -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": Linear((1.0, 2.0)), "horizon": 500}
    reach = math.sqrt(5.0) * math.sqrt(5.0)
    assert bounds.azuma(**given) == pytest.approx(reach * math.sqrt(1000 * math.log(20.0)))
    assert bounds.smooth(**given) == pytest.approx(bounds.azuma(**given) / 500)
    assert bounds.smooth(**given, scalar_regret=50.0) == pytest.approx(bounds.smooth(**given) + 0.1)
    assert bounds.azuma(**given, tight=True) == pytest.approx(bounds.azuma(**given) / 2.0)


def test_a_smooth_objective_pays_for_its_curvature() -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": Nash(0.5), "horizon": 500, "delta": 1.0}
    assert bounds.smooth(**given) == pytest.approx(0.5 * 4.0 * 5.0 * math.log(math.e * 500) / 500)
    half = bounds.smooth(**given, smoothness=2.0)
    assert half == pytest.approx(bounds.smooth(**given) / 2.0)


def test_exact_approximations_leave_the_width_and_the_contexts() -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": MINIMUM, "horizon": 400}
    bound = bounds.nonsmooth(**given, beta_0=0.5, m_1=0.0, m_2=0.0)
    assert bound == pytest.approx(5.0 / 0.5 / 20.0 + bounds.azuma(**given) / 400)


@pytest.mark.parametrize(("tight", "constant"), [(False, 4.0), (True, 2.0)])
def test_moreau_at_its_best_width(tight: bool, constant: float) -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": GiniWelfare(), "horizon": 100}
    slope = GiniWelfare().lipschitz(2)
    bound = bounds.moreau(**given, delta=1.0, tight=tight)
    assert bound == pytest.approx(constant * slope * TWO.diameter / 10.0)
    if tight:  # no other width is better
        for factor in (0.5, 0.9, 1.1, 2.0):
            other = bounds.moreau(
                **given, beta0=factor * TWO.diameter / slope, delta=1.0, tight=tight
            )
            assert other > bound


def test_moreau_is_the_template_with_its_constants() -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": MINIMUM, "horizon": 100}
    paper = bounds.nonsmooth(**given, beta_0=0.3, m_1=0.15, m_2=0.15)
    assert bounds.moreau(**given, beta0=0.3) == pytest.approx(paper)
    tight = bounds.nonsmooth(**given, beta_0=0.3, m_1=0.075, m_2=0.15, tight=True)
    assert bounds.moreau(**given, beta0=0.3, tight=True) == pytest.approx(tight)
    smoothing = Moreau(0.3)
    constants: dict[str, Any] = {
        "beta_0": smoothing.beta_0(MINIMUM, 2),
        "m_1": smoothing.m_1(MINIMUM, 2),
        "m_2": smoothing.m_2(MINIMUM, 2),
    }
    assert bounds.nonsmooth(**given, **constants, tight=True) == pytest.approx(tight)


@pytest.mark.parametrize(("tight", "constant"), [(False, 5.0), (True, 3.0)])
def test_randomized_at_its_best_radius(tight: bool, constant: float) -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": MINIMUM, "horizon": 100, "tight": tight}
    bound = bounds.randomized(**given, delta=1.0)
    assert bound == pytest.approx(constant * 2.0**0.25 * TWO.diameter / 10.0)
    smoothing = Randomized().bind(TWO, MINIMUM)
    constants: dict[str, Any] = {
        "beta_0": smoothing.beta_0(MINIMUM, 2),
        "m_1": smoothing.m_1(MINIMUM, 2),
        "m_2": smoothing.m_2(MINIMUM, 2),
    }
    assert bounds.nonsmooth(**given, **constants, delta=1.0) == pytest.approx(bound)


def test_linear_parts_cost_no_smoothing_when_tight() -> None:
    both = Minimum().on(0) + Linear((0.0, 3.0))
    given: dict[str, Any] = {"problem": TWO, "horizon": 100, "delta": 1.0, "beta0": 1.0}
    tight = bounds.moreau(**given, objective=both, tight=True)
    assert tight == pytest.approx((1.0 + 1.0) / 10.0)  # range 1 of "clicks", slope 1
    assert bounds.moreau(**given, objective=both) == pytest.approx((5.0 + 3.0 * 10.0) / 10.0)


def test_a_sum_pays_for_each_of_its_terms() -> None:
    given: dict[str, Any] = {"problem": A1, "horizon": 100, "delta": 1.0}
    # k = 2 curvatures and S = 2 squared slopes: beta0 = 1 is best, 2 + 2 * 3.
    assert bounds.moreau(**given, objective=AS_A_SUM) == pytest.approx(0.8)
    assert bounds.moreau(**given, objective=DISTANCE) == pytest.approx(0.4)


def test_a_known_lipschitz_constant_replaces_the_objective_s() -> None:
    given: dict[str, Any] = {"problem": A1, "objective": AS_A_SUM, "horizon": LONG}
    assert bounds.azuma(**given) == pytest.approx(2.0 * bounds.azuma(**given, lipschitz=1.0))
    policy = FrankWolfe(AS_A_SUM, LinUCB(exploration="theorem"))
    known = bounds.of(policy, A1, LONG, lipschitz=1.0, tight=True)
    leaf = bounds.of(FrankWolfe(DISTANCE, LinUCB(exploration="theorem")), A1, LONG, tight=True)
    # Only the smoothing, leaf by leaf, still costs twice: 4 instead of 2.
    assert known == pytest.approx(leaf + 2.0 / math.sqrt(LONG))
    assert known < bounds.of(policy, A1, LONG, tight=True)


def test_a_start_outside_the_rewards_costs_its_first_step() -> None:
    near = Problem.arms(1, {"stars": (0, 4)})
    far = Problem.arms(1, {"stars": (1, 5)})
    given: dict[str, Any] = {"objective": MINIMUM, "horizon": 100, "beta0": 2.0}
    extra = bounds.moreau(problem=far, **given) - bounds.moreau(problem=near, **given)
    assert extra == pytest.approx((25.0 - 16.0) / (2.0 * 2.0 * 100))
    given = {"objective": Nash(0.5), "horizon": 100}
    extra = bounds.smooth(problem=far, **given) - bounds.smooth(problem=near, **given)
    assert extra == pytest.approx(4.0 * (25.0 - 16.0) / (2.0 * 100))


@pytest.mark.parametrize("smoothing", [Moreau(0.3), Randomized(0.7)])
@pytest.mark.parametrize("tight", [False, True])
def test_a_fixed_width_loses_a_logarithm(smoothing: Any, tight: bool) -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": MINIMUM, "tight": tight, "delta": 1.0}
    ratios = []
    for horizon in (10**3, 10**6, 10**9):
        shrinking = bounds.reduction(**given, horizon=horizon, smoothing=smoothing)
        fixed = bounds.reduction(
            **given, horizon=horizon, smoothing=replace(smoothing, horizon=horizon)
        )
        ratios.append(fixed / shrinking)
    steps = np.diff(ratios)
    assert steps[0] > 0.3
    assert steps[1] == pytest.approx(steps[0], rel=0.05)  # ln T


def test_a_fixed_width_by_hand() -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": MINIMUM, "horizon": 50, "delta": 1.0}
    curve, error = 10.0 / 0.3, 0.15 / 10.0  # width .3/sqrt(99 + 1)
    by_hand = curve / 2.0 * 5.0 * math.log(math.e * 50) / 50
    smoothing = Moreau(0.3, horizon=99)
    assert bounds.fixed_smoothing(**given, smoothing=smoothing) == pytest.approx(
        by_hand + 2.0 * error
    )
    assert bounds.fixed_smoothing(**given, smoothing=smoothing, tight=True) == pytest.approx(
        by_hand + error
    )


def test_the_reduction_knows_its_theorems() -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": MINIMUM, "horizon": 100}
    assert bounds.reduction(**given) == bounds.moreau(**given)
    assert bounds.reduction(**given, smoothing=Moreau(0.3)) == bounds.moreau(**given, beta0=0.3)
    drawn = bounds.reduction(**given, smoothing=Randomized(0.3))
    assert drawn == bounds.randomized(**given, radius=0.3)
    given["objective"] = Nash(0.5)
    assert bounds.reduction(**given) == bounds.smooth(**given)
    assert bounds.reduction(**given, smoothing=Identity()) == bounds.smooth(**given)


# --- the bases ------------------------------------------------------------------------------------


@pytest.mark.parametrize("tight", [False, True])
def test_with_one_reward_shared_and_extended_coincide(tight: bool) -> None:
    problem = replace(ONE, n_features=3, feature_norm=2.0)
    given: dict[str, Any] = {"problem": problem, "objective": MINIMUM, "tight": tight}
    for horizon in (1, 100, LONG):
        shared = bounds.linucb(**given, horizon=horizon)
        extended = bounds.linucb(**given, horizon=horizon, model="extended")
        assert extended == pytest.approx(shared, rel=1e-12)


def test_the_shared_form_gains_about_a_factor_d() -> None:
    names = {f"r{i}": (0.0, 1.0) for i in range(20)}
    problem = Problem.arms(10, names, parameter_norm=1.0)
    given: dict[str, Any] = {"problem": problem, "objective": MINIMUM, "horizon": 10**9}
    gain = bounds.linucb_scalar(**given, model="extended") / bounds.linucb_scalar(**given)
    assert 10.0 < gain < 30.0


def test_exploration_beyond_theory_costs_its_share() -> None:
    given: dict[str, Any] = {"problem": A2, "objective": MINIMUM, "horizon": LONG}
    noise = bounds.azuma(**given, delta=0.025)
    once = bounds.linucb_scalar(**given) - noise
    thrice = bounds.linucb_scalar(**given, exploration=3.0) - noise
    assert thrice == pytest.approx(2.0 * once)


def test_a_stated_noise_replaces_half_the_range() -> None:
    for model in ("shared", "extended"):
        given: dict[str, Any] = {"objective": MINIMUM, "horizon": LONG, "model": model}
        loud = bounds.linucb_scalar(problem=TWO, **given)
        quiet = bounds.linucb_scalar(problem=replace(TWO, noise=0.1), **given)
        assert quiet < 0.5 * loud
        # However quiet: a step may cost as much as the rewards differ.
        silent = bounds.linucb_scalar(
            problem=replace(TWO, noise=1e-9, parameter_norm=1e-9), **given
        )
        assert silent > bounds.azuma(problem=TWO, objective=MINIMUM, horizon=LONG, delta=0.025)


def test_blocks_of_their_own_count_as_features() -> None:
    flat = replace(TWO, n_features=12, n_arms=None)
    given: dict[str, Any] = {"objective": MINIMUM, "horizon": LONG}
    assert bounds.linucb(problem=TWO, **given) == bounds.linucb(problem=flat, **given)


def test_squarecb_by_hand() -> None:
    given: dict[str, Any] = {"problem": A2, "objective": MINIMUM, "horizon": LONG, "n_arms": 2}
    regret = 2.0 + 4.0 * math.log(1.0 + LONG / 2.0)
    anytime = 4.0 * math.sqrt(2 * LONG * (regret + 16.0 * math.log(4.0 * LONG**2 / 0.05)))
    noise = math.sqrt(2.0) * math.sqrt(2.0 * LONG * math.log(40.0))
    assert bounds.squarecb_scalar(**given) == pytest.approx(anytime + noise)
    fixed = math.sqrt(2.0 * 2 * LONG * (2.0 * regret + 32.0 * math.log(40.0)))
    assert bounds.squarecb_scalar(**given, gamma="fixed") == pytest.approx(fixed + noise)


def test_a_gamma_for_another_horizon_is_worse() -> None:
    given: dict[str, Any] = {"problem": A2, "objective": MINIMUM, "horizon": 10_000, "n_arms": 2}
    best = bounds.squarecb(**given, gamma="fixed")
    assert bounds.squarecb(**given, gamma="fixed", planned=10_000) == pytest.approx(best)
    for planned in (100, 5_000, 20_000, 10**7):
        assert bounds.squarecb(**given, gamma="fixed", planned=planned) > best


def test_the_lipschitz_constant_scales_squarecb() -> None:
    given: dict[str, Any] = {"problem": A2, "horizon": 10_000, "n_arms": 2}
    for gamma in ("anytime", "fixed"):
        one = bounds.squarecb_scalar(**given, objective=MINIMUM, gamma=gamma)
        three = bounds.squarecb_scalar(**given, objective=3.0 * Minimum(), gamma=gamma)
        assert three == pytest.approx(3.0 * one)
        none = bounds.squarecb_scalar(**given, objective=Linear((0.0, 0.0)), gamma=gamma)
        assert none == 0.0


def test_an_oracle_brings_its_own_bound() -> None:
    given: dict[str, Any] = {"problem": A2, "objective": MINIMUM, "horizon": 10**8, "n_arms": 2}
    ridge = bounds.squarecb(**given, oracle=Ridge())
    assert bounds.squarecb(**given) == ridge
    # sqrt(T) of regression regret: T^(-1/4) in the end.
    assert bounds.squarecb(**given, oracle=OnlineGradient()) > ridge


def test_the_full_form_of_the_second_row_of_the_table() -> None:
    f, delta = Nash(0.5), 0.06
    given: dict[str, Any] = {"problem": TWO, "objective": f, "horizon": LONG, "n_arms": 4}
    slope, diameter = f.lipschitz(2), TWO.diameter
    regret = Ridge().regret_bound(TWO).at(LONG)
    root = math.sqrt(4 * LONG * (regret + 8.0 * diameter**2 * math.log(6.0 * LONG**2 / delta)))
    # Eq. (84), with 6 where it prints 12: 4/(2/3), of the 2 delta/3 in the first logarithm.
    noise = slope * diameter * 2.0 * math.sqrt(2.0 * LONG * math.log(3.0 / delta))
    curve = 2.0 * diameter**2 * math.log(math.e * LONG)
    bound = bounds.squarecb(**given, delta=delta / 3.0, base_delta=2.0 * delta / 3.0)
    assert bound == pytest.approx((4.0 * slope * root + noise + curve) / LONG)


def test_the_table_has_the_right_order() -> None:
    horizons = np.geomspace(1e4, 1e12, 9)
    given: dict[str, Any] = {"problem": A2, "objective": Linear((0.6, 0.8)), "horizon": horizons}
    rows = (
        bounds.linucb(**given, model="extended") / bounds.table_linucb(**given),
        bounds.squarecb(**given, n_arms=2) / bounds.table_squarecb(**given, n_arms=2),
    )
    for ratios in rows:
        assert (ratios > 0.5).all()
        assert (ratios < 30.0).all()
        assert ratios.max() / ratios.min() < 2.0


def test_a_small_ridge_widens_the_ranking_s_bound() -> None:
    given: dict[str, Any] = {"problem": RANKING, "objective": B1, "horizon": LONG}
    # k D_X^2 = 1. Beyond it the printed formula holds; below it sqrt(u) and u/ln(1 + u) take over.
    at = bounds.linucb_rank_scalar(**given, ridge=1.0)
    below = bounds.linucb_rank_scalar(**given, ridge=0.999)
    assert below < at  # 2 is more than 1/ln 2
    assert bounds.linucb_rank_scalar(**given, ridge=1e-4) > 10.0 * at
    tight = [bounds.linucb_rank_scalar(**given, ridge=r, tight=True) for r in (1.0, 0.999)]
    assert tight[1] == pytest.approx(tight[0], rel=1e-3)


# --- the policies ---------------------------------------------------------------------------------


def test_of_finds_the_theorem() -> None:
    given: dict[str, Any] = {"problem": A2, "objective": MINIMUM, "horizon": LONG}
    policy = FrankWolfe(MINIMUM, LinUCB(ridge=0.5, delta=0.01, exploration="theorem"), Moreau(0.3))
    expected = bounds.linucb(**given, ridge=0.5, base_delta=0.01, smoothing=Moreau(0.3), delta=0.1)
    assert bounds.of(policy, A2, LONG, delta=0.1) == expected
    policy = FrankWolfe(MINIMUM, SquareCB(gamma0="theorem", oracle=Ridge(0.5), delta=0.01))
    expected = bounds.squarecb(**given, n_arms=2, oracle=Ridge(0.5), base_delta=0.01)
    assert bounds.of(policy, A2, LONG) == expected
    assert bounds.of(policy, A2.problem(), LONG, n_arms=2) == expected
    planned = FrankWolfe(MINIMUM, SquareCB(gamma0="theorem", horizon=1000))
    expected = bounds.squarecb(**given, n_arms=2, gamma="fixed", planned=1000)
    assert bounds.of(planned, A2, LONG) == expected
    horizons = np.array([10.0, 100.0])
    np.testing.assert_array_equal(
        bounds.of(planned, A2, horizons), [bounds.of(planned, A2, T) for T in (10, 100)]
    )


def test_of_needs_the_number_of_arms_for_squarecb() -> None:
    policy = FrankWolfe(MINIMUM, SquareCB(gamma0="theorem"))
    with pytest.raises(InvalidInput, match="number of arms"):
        bounds.of(policy, A2.problem(), LONG)
    assert bounds.of(policy, replace(A2.problem(), n_arms=2), LONG) > 0.0


@pytest.mark.parametrize(
    "base", [SquareCB(gamma0="theorem"), LinUCB(model="extended", exploration="theorem")]
)
def test_a_base_for_a_larger_slope_is_covered(base: SquareCB | LinUCB) -> None:
    plain, same, steep = (
        bounds.of(FrankWolfe(MINIMUM, replace(base, lipschitz=slope)), A2, LONG)
        for slope in (None, 1.0, 2.0)
    )
    assert plain == same < steep


def test_the_extended_form_of_a_policy() -> None:
    problem = replace(A2.problem(), noise=0.3)
    policy = FrankWolfe(MINIMUM, LinUCB(model="extended", ridge=0.5, exploration="theorem"))
    expected = bounds.linucb(
        problem=problem, objective=MINIMUM, horizon=LONG, model="extended", ridge=0.5
    )
    assert bounds.of(policy, problem, LONG) == expected


def outside() -> dict[str, tuple[Any, Any, dict[str, Any], str]]:
    linucb, gaussian = LinUCB(exploration="theorem"), Mehrotra(5, 2, 3)
    free = Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
    below = Problem.arms(2, {"a": (-1, 1), "b": (0, 1)}, parameter_norm=1.0)
    table = Finite([[[1.0], [2.0]]], (1.0,), means=[[[0.1, 0.2], [0.3, 0.1]]])
    fw_min = FrankWolfe(MINIMUM, linucb)
    squarecb = FrankWolfe(MINIMUM, SquareCB(gamma0="theorem"))
    difference = Mapped(Nash(1.0), ((1.0, -1.0), (0.0, 1.0)))
    soft = Custom.examples()[0]
    unknown = replace_lipschitz(soft)
    return {
        "not Lipschitz": (FrankWolfe(Nash(), linucb), A2, {}, "Assumption 1.*Nash"),
        "Welfare": (FrankWolfe(Welfare(0.5), linucb), A2, {}, "Assumption 1.*Welfare"),
        "on its edge": (FrankWolfe(Nash(1.0), linucb), below, {}, "Assumption 1.*Nash"),
        "mapped to its edge": (FrankWolfe(difference, linucb), A2, {}, "Assumption 1.*Nash"),
        "unknown slope": (FrankWolfe(unknown, linucb), A2, {}, "Assumption 1"),
        "unknown curvature": (FrankWolfe(soft, linucb), A2, {}, "Assumption 2"),
        "kinks without smoothing": (
            FrankWolfe(MINIMUM, linucb, Identity()),
            A2,
            {},
            "Assumption 2.*Lipschitz gradient",
        ),
        "a part that is not smoothed": (
            FrankWolfe(MINIMUM + soft, linucb, Moreau()),
            A2,
            {},
            "Assumption 5.*proximal",
        ),
        "an envelope that is far": (
            FrankWolfe(Nash(), linucb),
            A2,
            {"lipschitz": 1.0},
            "Assumption 5.*M_2",
        ),
        "Gaussian rewards": (FrankWolfe(MINIMUM, linucb), gaussian, {}, "compact.*Mehrotra"),
        "normal noise": (fw_min, replace(A2, noise=0.1), {}, "compact.*Finite"),
        "no norm": (fw_min, free, {}, "Assumption 6.*parameter_norm"),
        "no norm for the oracle": (squarecb, free, {"n_arms": 2}, "Assumption 7.*parameter_norm"),
        "not linear": (fw_min, table, {}, "Assumption 6.*linear"),
        "little exploration": (
            FrankWolfe(MINIMUM, LinUCB(exploration=0.1)),
            A2,
            {},
            "exploration is 0.1",
        ),
        "gamma0": (FrankWolfe(MINIMUM, SquareCB(gamma0=100.0)), A2, {}, "gamma0 is 100"),
        "gamma for another f": (
            FrankWolfe(3.0 * Minimum(), SquareCB(gamma0="theorem", lipschitz=1.0)),
            A2,
            {},
            "lipschitz=1",
        ),
        "radius for another f": (
            FrankWolfe(
                3.0 * Minimum(), LinUCB(model="extended", lipschitz=1.0, exploration="theorem")
            ),
            A2,
            {},
            "LinUCB was given lipschitz=1",
        ),
        "epsilon": (FrankWolfe(MINIMUM, EpsilonGreedy(0.1)), A2, {}, "EpsilonGreedy.*grows like T"),
        "uniform": (FrankWolfe(MINIMUM, Uniform()), A2, {}, "Uniform.*grows like T"),
        "another base": (FrankWolfe(MINIMUM, Stubborn()), A2, {}, "Stubborn.*no bound"),
        "Thompson": (FrankWolfe(MINIMUM, Thompson()), A2, {}, "Thompson.*no bound"),
        "MOLinCB": (MOLinCB(MINIMUM), A2, {}, "MOLinCB"),
        "known": (fw.known(A2, MINIMUM), A2, {}, "ReferencePolicy"),
        "memory": (FrankWolfe(MINIMUM, linucb, memory=50.0), A2, {}, "memory is 50"),
        "sampled gradients": (FrankWolfe(MINIMUM, linucb, Randomized()), A2, {}, "Theorem 12"),
        "a ranking": (FrankWolfe(B1, linucb), RANKING, {}, "ranking"),
    }


def replace_lipschitz(objective: Custom) -> Custom:
    return Custom(objective.function, objective.slope, smooth=True)


@dataclass(frozen=True)
class Stubborn:
    """A base that always takes the first arm."""

    def init(self, problem: Problem) -> None:
        return None

    def act(self, state: None, context: Any, direction: Vector, rng: Any) -> Choice:
        return Choice(0, 1.0, None)

    def update(self, state: None, choice: Choice, direction: Vector, feedback: Any) -> None:
        return None


@pytest.mark.parametrize("case", outside())
def test_where_no_theorem_applies(case: str) -> None:
    policy, problem, options, message = outside()[case]
    with pytest.raises(OutsideAssumptions, match=f"(?s){message}"):
        bounds.of(policy, problem, 1000, **options)


def test_formulas_refuse_what_they_are_not_about() -> None:
    given: dict[str, Any] = {"objective": MINIMUM, "horizon": 10}
    with pytest.raises(OutsideAssumptions, match="rankings with one user-side reward"):
        bounds.linucb_rank(problem=TWO, **given)
    with pytest.raises(OutsideAssumptions, match="no horizon"):
        bounds.fixed_smoothing(problem=TWO, **given, smoothing=Moreau())
    with pytest.raises(OutsideAssumptions, match="R\\^D"):
        bounds.randomized(problem=TWO, objective=Nash(0.5), horizon=10)
    with pytest.raises(OutsideAssumptions, match="regret bound"):
        bounds.squarecb(problem=TWO, **given, n_arms=2, oracle=Uniform())
    with pytest.raises(OutsideAssumptions, match="compact"):
        bounds.stationary(problem=Mehrotra(5, 2, 3), **given)
    for wrong in ({"model": "both"}, {"ridge": 0.0}):
        with pytest.raises(InvalidInput):
            bounds.linucb(problem=TWO, **given, **wrong)
    with pytest.raises(InvalidInput, match="gamma"):
        bounds.squarecb(problem=TWO, **given, n_arms=2, gamma="best")
    with pytest.raises(InvalidInput, match="objective"):
        bounds.smooth(problem=TWO, objective="min", horizon=10)
    with pytest.raises(InvalidInput, match="problem"):
        bounds.smooth(problem="arms", objective=MINIMUM, horizon=10)


@pytest.mark.parametrize(
    ("bound", "strange"),
    [
        (bounds.smooth, {"base_delta": 0.05}),
        (bounds.delay_cost, {"delay": 1.0, "delta": 0.05}),
        (bounds.stationary, {"tight": True}),
        (bounds.deviation, {"tight": True}),
        (bounds.table_linucb, {"tight": True}),
    ],
)
def test_no_bound_takes_a_keyword_that_it_does_not_use(bound: Any, strange: dict[str, Any]) -> None:
    given: dict[str, Any] = {"problem": TWO, "objective": Nash(0.5), "horizon": 10}
    with pytest.raises(TypeError, match=list(strange)[-1]):
        bound(**given, **strange)


def test_a_setting_is_what_all_bounds_share() -> None:
    here = setting(A2, MINIMUM, LONG, tight=True)
    with pytest.raises(FrozenInstanceError):
        here.tight = False  # type: ignore[misc]
    given: dict[str, Any] = {"problem": A2, "objective": MINIMUM, "horizon": LONG}
    scalar = bounds.linucb_scalar.inside(here)
    assert here.answer(scalar) == bounds.linucb_scalar(**given, tight=True)
    whole = bounds.reduction.inside(here, None, scalar)
    assert here.answer(whole) == bounds.linucb(**given, tight=True)
    # An L of one's own is that of the base as well.
    steep = replace(here, lipschitz=3.0)
    regret = steep.answer(bounds.linucb_scalar.inside(steep))
    assert regret == bounds.linucb_scalar(**given, tight=True, lipschitz=3.0)


@pytest.mark.parametrize("name", registry.names("bandits"))
def test_every_base_has_a_bound_or_a_reason(name: str) -> None:
    family: Any = registry.load("bandits", name)
    bounded = 0
    for base in family.examples():
        policy = FrankWolfe(MINIMUM, base)
        try:
            bound = bounds.of(policy, A2, LONG)
        except OutsideAssumptions:
            continue
        assert 0.0 < bound < 100.0
        bounded += 1
    assert bounded == {"linucb": 2, "squarecb": 2}.get(name, 0)


# --- what beats what ------------------------------------------------------------------------------


def test_the_first_useful_horizon_is_the_first() -> None:
    def bound(horizon: int) -> float:
        return 3.0 / math.sqrt(horizon)

    for regret in (2.0, 0.25, 0.01):
        first = bounds.first_useful(bound, regret)
        assert first is not None
        assert bound(first) < regret
        assert first == 1 or bound(first - 1) >= regret
    assert bounds.first_useful(bound, 4.0) == 1
    assert bounds.first_useful(bound, 0.0) is None
    assert bounds.first_useful(bound, 0.01, limit=1000) is None
    assert bounds.first_useful(bound, 0.01, limit=90_001) == 90_001
    assert bounds.first_useful(bound, 0.4, limit=50) is None


def test_when_the_bounds_beat_a_uniform_policy() -> None:
    assert bounds.uniform_regret(A2, MINIMUM) == pytest.approx(0.05, abs=1e-6)
    policy = FrankWolfe(MINIMUM, LinUCB(exploration="theorem"))
    tight = bounds.first_useful(lambda T: bounds.of(policy, A2, T, tight=True), A2, MINIMUM)
    plain = bounds.first_useful(lambda T: bounds.of(policy, A2, T), A2, MINIMUM)
    assert tight is not None
    assert plain is not None
    assert 10**6 < tight < plain < 10**7
    # In A1 a uniform policy is perfect, and nothing beats it.
    assert bounds.uniform_regret(A1, DISTANCE) == pytest.approx(0.0, abs=1e-9)
    assert bounds.first_useful(lambda T: 1.0 / T, 0.0) is None
    with pytest.raises(InvalidInput, match="objective"):
        bounds.first_useful(lambda T: 1.0 / T, A2)


def test_the_uniform_policy_in_a_world_that_is_not_finite() -> None:
    world = Mehrotra(5, 2, 3)
    regret = bounds.uniform_regret(world, world.objective())
    theta = world.init(fw_stream("world"))
    average = theta @ np.ones(3) / 3.0  # of an arm drawn without looking
    expected = optimum(world, world.objective()).value - world.objective().value(average)
    assert regret == pytest.approx(expected, abs=0.02)


def fw_stream(name: str) -> np.random.Generator:
    from fairwolfe.core.streams import stream

    return stream(0, name)


# --- in hindsight ---------------------------------------------------------------------------------


def test_the_best_sequence_is_on_the_contexts_of_the_run() -> None:
    # The reward is the number of the context, whatever is done.
    told = Finite([[[1.0], [2.0]], [[3.0], [4.0]]], (0.3, 0.7), means=[[[0.0]] * 2, [[1.0]] * 2])
    for seed in (0, 1):
        trace = simulate(FrankWolfe(Linear((1.0,)), Uniform()), told, 501, seed=seed)
        best = bounds.best_sequence(told, Linear((1.0,)), 501, seed)
        assert best.value == pytest.approx(trace.average[-1, 0], abs=1e-9)
        assert best.value != pytest.approx(0.7, abs=1e-6)


def test_the_best_sequence_of_one_round() -> None:
    # One context is met, and a mixture of its arms equalises the rewards: .5, or .62/1.4.
    values = {round(bounds.best_sequence(A2, MINIMUM, 1, seed).value, 3) for seed in range(8)}
    assert values == {0.5, 0.443}


@pytest.mark.parametrize("seed", range(3))
def test_the_best_sequence_is_the_linear_programme_s(seed: int) -> None:
    best = bounds.best_sequence(A2, MINIMUM, 50, seed)
    tags = A2.draw_contexts(A2.init(fw_stream("world")), seeded(seed), 50)[1]
    shares = np.bincount(tags, minlength=2) / 50
    means = A2.init(fw_stream("world")).means  # (contexts, arms, D)
    weighted = (shares[:, None, None] * means).reshape(4, 2)
    # max v with v <= sum of weights times means, a distribution over the arms of each context
    program = linprog(
        [0.0] * 4 + [-1.0],
        A_ub=np.hstack([-weighted.T, np.ones((2, 1))]),
        b_ub=np.zeros(2),
        A_eq=[[1, 1, 0, 0, 0], [0, 0, 1, 1, 0]],
        b_eq=[1, 1],
        bounds=[(0, None)] * 4 + [(None, None)],
    )
    value = -float(program.fun or 0.0)
    assert best.value - 1e-9 <= value <= best.upper_bound + 1e-9
    assert best.gap <= 1e-6


def seeded(seed: int) -> np.random.Generator:
    from fairwolfe.simulation.run import Streams

    return Streams.of(seed).contexts


@pytest.mark.parametrize("seed", range(5))
def test_the_lemmas_on_other_measures_hold(seed: int) -> None:
    policy, horizon = FrankWolfe(MINIMUM, LinUCB(exploration="theorem")), 2000
    trace = simulate(policy, A2, horizon, seed=seed)
    given: dict[str, Any] = {"problem": A2, "objective": MINIMUM}
    best = bounds.best_sequence(A2, MINIMUM, horizon, seed)
    assert trace.value[-1] <= best.upper_bound
    assert abs(best.value - 0.5) <= bounds.stationary(**given, horizon=horizon)
    apart = abs(trace.value - trace.observed)
    limits = bounds.deviation(**given, horizon=trace.t.astype(np.float64), delta=0.01)
    assert (apart <= limits).all()
    assert bounds.stationary(**given, horizon=horizon, delta=0.1) == pytest.approx(
        bounds.deviation(**given, horizon=horizon, delta=0.05)
    )


def test_the_best_sequence_asks_for_a_finite_world() -> None:
    with pytest.raises(InvalidInput, match="Finite"):
        bounds.best_sequence(Mehrotra(5, 2, 3), MINIMUM, 10)  # type: ignore[arg-type]


# --- measured -------------------------------------------------------------------------------------


class WrongSign(LinUCB):
    """LinUCB that walks away from the objective."""

    def act(self, state: Any, context: Any, direction: Vector, rng: Any, **options: Any) -> Choice:
        return super().act(state, context, -direction, rng, **options)


def measured(policy: FrankWolfe, world: str, horizon: int, seed: int) -> tuple[Vector, Vector]:
    """R_t and its tight bound at the checkpoints."""
    environment, f = WORLDS[world]
    trace = simulate(policy, environment, horizon, seed=seed)
    best = optimum(environment, f).upper_bound
    return trace.regret(best), bounds.of(
        policy, environment, trace.t.astype(np.float64), tight=True
    )


BASES = {
    "LinUCB": LinUCB(exploration="theorem"),
    "LinUCB extended": LinUCB(model="extended", exploration="theorem"),
    "SquareCB": SquareCB(gamma0="theorem"),
    "SquareCB with a horizon": SquareCB(gamma0="theorem", horizon=10_000),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("seed", range(3))
def test_the_measured_regret_is_below_the_bound(world: str, base: str, seed: int) -> None:
    policy = FrankWolfe(WORLDS[world][1], BASES[base])
    regret, bound = measured(policy, world, 10_000, seed)
    assert (regret <= bound).all()
    assert regret[-1] < 0.5 * bound[-1]


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("seed", range(10))
def test_the_measured_regret_stays_below_the_bound(world: str, base: str, seed: int) -> None:
    used = SquareCB(gamma0="theorem", horizon=LONG) if "horizon" in base else BASES[base]
    regret, bound = measured(FrankWolfe(WORLDS[world][1], used), world, LONG, seed)
    assert (regret <= bound).all()
    assert regret[-1] < 0.05


def test_the_wrong_sign_violates_the_bound() -> None:
    # In A1 it ends at .425, the worst there is; the tight bound of LinUCB is .315 by then.
    policy = FrankWolfe(DISTANCE, WrongSign(exploration="theorem"))
    trace = simulate(policy, A1, 10_000, compiled=False)
    assert trace.regret(0.0)[-1] > bounds.of(policy, A1, 10_000, tight=True)
