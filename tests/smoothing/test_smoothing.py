"""The smoothings against their definitions: schedules, constants, widths, samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fairwolfe import Agent, FrankWolfe, Problem
from fairwolfe.bandits import EpsilonGreedy
from fairwolfe.core.arrays import Vector
from fairwolfe.core.streams import stream
from fairwolfe.errors import NoProx
from fairwolfe.objectives import (
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
from fairwolfe.smoothing import Identity, Moreau, Randomized, default_smoothing

TIMES = (0, 1, 2, 9, 1000, 10**6)
ARMS = Problem.arms(3, {"clicks": (0, 1), "minutes": (0, 60), "cost": (0, 0.05)})
RANKING = Problem.ranking(n_items=6, n_slots=2, n_features=3)


def custom(smooth: bool = False) -> Custom:
    return Custom(lambda z: -float(z @ z), lambda z: -2.0 * z, smooth=smooth)


# --- schedules -------------------------------------------------------------------------------


def test_widths_shrink_with_the_root_of_the_number_of_rewards() -> None:
    f = Minimum()
    for t in TIMES:
        assert Moreau(0.3).step(f, 2, t) == pytest.approx(0.3 / math.sqrt(t + 1.0), rel=1e-15)
        assert Randomized(0.3).width(2, t) == pytest.approx(0.3 / math.sqrt(t + 1.0), rel=1e-15)


def test_a_horizon_fixes_the_last_width() -> None:
    f, z = GiniWelfare(), np.array([0.3, 0.31, 0.5])
    moreau, randomized = Moreau(0.3, horizon=99), Randomized(0.3, horizon=99)
    for t in TIMES:
        assert moreau.step(f, 3, t) == Moreau(0.3).step(f, 3, 99) == pytest.approx(0.03)
        assert randomized.width(3, t) == Randomized(0.3).width(3, 99) == pytest.approx(0.03)
        last = Moreau(0.3).gradient(f, z, 99)
        assert np.array_equal(moreau.gradient(f, z, t), last)


def test_the_smoothing_is_the_envelope_of_that_width() -> None:
    f, z = TwoSided(GiniWelfare(), 0.5), np.array([0.3, 0.31, 0.5, 1.0])
    for t in TIMES:
        width = 2.0 / math.sqrt(t + 1.0)
        assert Moreau(2.0).value(f, z, t) == f.envelope(z, width)
        assert np.array_equal(Moreau(2.0).gradient(f, z, t), f.envelope_gradient(z, width))


def test_the_weight_of_the_newest_direction() -> None:
    assert [Identity().mix(t) for t in TIMES] == [1.0] * len(TIMES)
    assert [Moreau().mix(t) for t in TIMES] == [1.0] * len(TIMES)
    weights = [Randomized().mix(t) for t in TIMES]
    assert weights == pytest.approx([4.0 / (t + 8.0) ** (2.0 / 3.0) for t in TIMES])
    assert weights[0] == pytest.approx(1.0)


# --- the constants of Moreau -----------------------------------------------------------------

M = ((1.0, 0.5, 0.0, 0.0), (0.0, -1.0, 2.0, 0.0), (0.3, 0.3, 0.3, 1.0))
EXPRESSIONS: dict[str, Concave] = {
    "minimum": Minimum(),
    "gini": GeneralizedGini((3.0, 1.0, 0.5, -1.0)),
    "linear": Linear((1.0, 2.0, 0.0, -1.0)),
    "at most": AtMost(0.5, penalty=2.0),
    "equal exposure": EqualExposure(),
    "multiple": 3.0 * GiniWelfare(),
    "sum": Minimum() + 2.0 * Minimum(),
    "blocks": GiniWelfare().on(0, 1) + AtMost(0.5, 2.0).on(2, 3),
    "sum and linear": GiniEquality() + Linear((1.0, 0.0, 0.0, 1.0)),
    "two-sided": TwoSided(GiniEquality(), beta=0.5),
    "map": Mapped(GiniWelfare(), M),
    "multiple of a map": 2.0 * Mapped(AtMost(0.5, 1.0), M),
    "map of a sum": Mapped(Minimum() + GiniEquality(), M),
    "groups": ByGroup(Minimum(), "abab"),
    "merits": PerMerit(GiniWelfare(), (0.5, 1.0, 2.0, 4.0)) + Minimum().on(1, 2),
}
N = 4


def spread(f: Concave) -> list[Vector]:
    """Points far apart, near each other and in between: where an envelope is steep or bends."""
    rng = stream(0, "spread")
    scattered = [rng.normal(0.5, size, N) for size in (10.0, 1.0, 0.1, 0.01) for _ in range(40)]
    return [*scattered, np.full(N, 0.5), np.zeros(N)]


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_m_2_bounds_the_distance_and_is_nearly_reached(name: str) -> None:
    f, smoothing = EXPRESSIONS[name], Moreau(beta0=0.7)
    m_2 = smoothing.m_2(f, N)
    worst = 0.0
    for t in (1, 10, 1000):
        for z in spread(f):
            gap = smoothing.value(f, z, t) - f.value(z)
            assert -1e-12 * (1.0 + abs(f.value(z))) <= gap <= m_2 / math.sqrt(t) + 1e-12
            worst = max(worst, gap * math.sqrt(t + 1.0))
    assert worst >= 0.99 * m_2  # reached where every leaf is as steep as it can be


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_m_1_bounds_the_change_from_round_to_round(name: str) -> None:
    f, smoothing = EXPRESSIONS[name], Moreau(beta0=0.7)
    m_1 = smoothing.m_1(f, N)
    worst = 0.0
    for t in (1, 2, 10, 1000):
        for z in spread(f):
            change = smoothing.value(f, z, t - 1) - smoothing.value(f, z, t)
            assert -1e-12 * (1.0 + abs(f.value(z))) <= change <= m_1 / (t * math.sqrt(t)) + 1e-12
            worst = max(worst, change * t * math.sqrt(t))
    assert worst >= 0.99 * m_1


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_beta_0_bounds_the_bending_and_is_nearly_reached(name: str) -> None:
    f, smoothing = EXPRESSIONS[name], Moreau(beta0=0.7)
    beta_0 = smoothing.beta_0(f, N)
    rng = stream(1, "bend", name)
    worst = 0.0
    for t in (0, 3, 100):
        for x in spread(f):
            directions = rng.normal(0.0, 1.0, (4, N))
            for d in [*directions, *np.eye(N)]:
                y = x + 1e-4 * d / np.linalg.norm(d)
                bend = smoothing.gradient(f, x, t) - smoothing.gradient(f, y, t)
                ratio = float(np.linalg.norm(bend) / np.linalg.norm(x - y)) / math.sqrt(t + 1.0)
                assert ratio <= 1.0 / beta_0 + 1e-6
                worst = max(worst, ratio)
    if name == "linear":
        assert beta_0 == math.inf
    else:
        # Exact for leaves, multiples and sums; where norms of maps are added, within a factor.
        loose = {"map": 0.6, "map of a sum": 0.6, "merits": 0.5}
        assert worst >= loose.get(name, 0.95) / beta_0


def test_the_constants_of_single_functions_are_the_papers() -> None:
    f, smoothing = GiniWelfare(), Moreau(beta0=0.2)
    square = f.lipschitz(6) ** 2
    assert smoothing.beta_0(f, 6) == 0.2
    assert smoothing.m_2(f, 6) == pytest.approx(square * 0.2 / 2.0)
    assert smoothing.m_1(f, 6) == pytest.approx(square * 0.2 / 4.0)
    assert (Minimum() + Minimum()).curvature(3).tolist() == [2.0] * 3
    assert smoothing.beta_0(f + f, 6) == 0.1  # beta_0 over the number of terms
    assert smoothing.beta_0(ByGroup(f, "aabbbb"), 6) == pytest.approx(0.2 / 4.0)  # |M|^2 = 4


def test_beta_0_promises_nothing_about_a_function_that_is_left_as_it_is() -> None:
    # Moreau does not touch a smooth Custom, which may bend more than any width would let it.
    steep = Custom(lambda z: -50.0 * float(z @ z), lambda z: -100.0 * z, smooth=True)
    f, smoothing = Minimum() + steep, Moreau(beta0=1.0)
    x, y = np.array([0.2, 0.8]), np.array([0.3, 0.8])
    bend = float(np.linalg.norm(smoothing.gradient(f, x, 0) - smoothing.gradient(f, y, 0)))
    assert bend * smoothing.beta_0(f, 2) <= float(np.linalg.norm(x - y)) * (1.0 + 1e-9)


def test_identity_keeps_the_function() -> None:
    f, z = Welfare(0.5, offset=0.25), np.array([0.1, 0.4])
    assert Identity().value(f, z, 5) == f.value(z)
    assert np.array_equal(Identity().gradient(f, z, 5), f.gradient(z))
    assert (Identity().m_1(f, 2), Identity().m_2(f, 2)) == (0.0, 0.0)
    assert Identity().beta_0(f, 2) == pytest.approx(1.0 / (0.25 * 0.25**-1.5))
    assert Identity().beta_0(Linear((1.0, 2.0)), 2) == math.inf


# --- the best width --------------------------------------------------------------------------


@pytest.mark.parametrize("f", [GiniWelfare(), Minimum(), 5.0 * GiniEquality(), EqualExposure()])
def test_the_best_width_for_arms_is_the_diameter_over_the_slope(f: Concave) -> None:
    chosen = Moreau().bind(ARMS, f.bind(ARMS))
    assert chosen.beta0 == pytest.approx(ARMS.diameter / f.lipschitz(3))


@pytest.mark.parametrize("beta", [0.01, 0.5, 3.0])
@pytest.mark.parametrize("items", [GiniWelfare(), GiniEquality(), EqualExposure()])
def test_the_best_width_for_rankings_counts_the_items_only(items: Concave, beta: float) -> None:
    f = TwoSided(items, beta).bind(RANKING)
    chosen = Moreau().bind(RANKING, f)
    assert chosen.beta0 == pytest.approx(RANKING.item_diameter / (beta * items.lipschitz(6)))


@pytest.mark.parametrize("name", [n for n in EXPRESSIONS if n != "linear"])
def test_the_best_width_minimises_the_error_that_it_causes(name: str) -> None:
    """D^2/beta_0 + 2 M_2, as in the theorem: the sum of the curvature's part and the gap's."""
    f, diameter = EXPRESSIONS[name], 1.7

    def error(width: float) -> float:
        smoothing = Moreau(width)
        straight = sum(
            0.5 * width * (c * leaf.lipschitz(n)) ** 2
            for c, leaf, n in f.leaves(N)
            if isinstance(leaf, Linear)
        )
        return diameter**2 / smoothing.beta_0(f, N) + 2.0 * (smoothing.m_2(f, N) - straight)

    best = Moreau.best(f, N, diameter)
    assert all(error(best) <= error(best * factor) for factor in (0.5, 0.9, 1.1, 2.0))
    assert error(best * 1.01) - error(best) <= 1e-3 * error(best)


def test_a_width_that_was_given_is_kept() -> None:
    assert Moreau(0.01).bind(ARMS, Minimum()) == Moreau(0.01)
    assert Randomized(0.5).bind(ARMS, Minimum()) == Randomized(0.5)
    assert Identity().bind(ARMS, Linear((1.0, 1.0, 1.0))) == Identity()


def width(problem: Problem, f: Concave) -> float:
    chosen = Moreau().bind(problem, f.bind(problem)).beta0
    assert chosen is not None
    return chosen


def test_widths_are_chosen_where_no_bound_holds() -> None:
    assert width(ARMS, Linear((1.0, 0.0, 0.0))) > 0.0
    # One over the largest second derivative at the middle of the ranges, that of the cost.
    assert width(ARMS, Nash()) == pytest.approx(0.025**2)
    assert width(ARMS, Nash().on("minutes")) == pytest.approx(30.0**2)
    assert width(ARMS, Welfare(0.5).on("clicks")) == pytest.approx(4.0 * 0.5**1.5)
    # A multiple c is smoothed with the width c b: c f bends as much as its envelope.
    assert width(ARMS, 3.0 * Nash()) == pytest.approx(0.025**2 / 3.0)


@pytest.mark.parametrize(("n_items", "n_slots"), [(6, 2), (1000, 10), (40, 40)])
def test_widths_for_exposures_are_on_the_scale_of_their_mean(n_items: int, n_slots: int) -> None:
    problem, mean = Problem.ranking(n_items, n_slots, 3), n_slots / n_items
    for beta in (0.01, 0.5):
        nash, welfare = (width(problem, TwoSided(f, beta)) for f in (Nash(), Welfare(0.3)))
        assert nash == pytest.approx(mean**2 / beta)
        assert welfare == pytest.approx(mean**1.7 / (0.3 * 0.7 * beta))
    pairs = [i // 2 for i in range(n_items)]
    assert width(problem, TwoSided(ByGroup(Nash(), pairs))) == pytest.approx((2.0 * mean) ** 2)
    merits = [0.5] * n_items
    assert width(problem, TwoSided(PerMerit(Nash(), merits))) == pytest.approx((mean / 0.5) ** 2)


def test_a_tiny_offset_hardly_changes_the_width() -> None:
    # Its Lipschitz constant is huge, and holds only where no average stays.
    leaves: tuple[tuple[Concave, Concave], ...] = (
        (Welfare(0.5), Welfare(0.5, 1e-9)),
        (Nash(), Nash(1e-9)),
    )
    for plain, tiny in leaves:
        expressions = [
            (TwoSided(f, 0.5), TwoSided(f + Minimum(), 0.1), TwoSided(Minimum(), 1.0, f))
            for f in (plain, tiny)
        ]
        for f, g in zip(*expressions, strict=True):
            assert width(RANKING, g) == pytest.approx(width(RANKING, f), rel=1e-5)


@pytest.mark.parametrize("unit", [2.0**-10, 4.0, 2.0**20])
@pytest.mark.parametrize(
    ("f", "power"), [(Nash(), 0.0), (Welfare(0.5), 0.5), (Welfare(0.25), 0.25)]
)
def test_the_unit_of_the_rewards_does_not_matter(f: Concave, power: float, unit: float) -> None:
    """f(c z) is c^power f(z), or f(z) plus a number: the directions must be alike at every t."""
    scaled = Problem.arms(3, {name: (unit * a, unit * b) for name, (a, b) in ARMS.rewards.items()})
    here, there = (Moreau().bind(problem, f.bind(problem)) for problem in (ARMS, scaled))
    z = np.array([0.3, 7.0, 0.0])
    for t in (0, 10, 1000):
        expected = unit ** (power - 1.0) * here.gradient(f, z, t)
        assert there.gradient(f, unit * z, t) == pytest.approx(expected, rel=1e-12)


def test_a_run_does_not_depend_on_the_unit_of_the_rewards() -> None:
    actions = []
    for unit in (1.0, 2.0**-14, 2.0**14):
        problem = Problem.arms(3, {"a": (0.0, unit), "b": (0.0, 0.5 * unit)})
        agent = Agent(FrankWolfe(Nash(), EpsilonGreedy(0.2)), problem, seed=0)
        rng, chosen = stream(0, "unit"), []
        for _ in range(300):
            arms = rng.uniform(0.0, 0.5, (4, 3))
            decision = agent.act(arms)
            agent.update(decision, unit * arms[decision.action, :2] ** 2)
            chosen.append(decision.action)
        actions.append(chosen)
    assert actions[0] == actions[1] == actions[2]


def test_the_radius_of_a_problem() -> None:
    chosen = Randomized().bind(ARMS, Minimum())
    assert chosen.radius == pytest.approx(3**0.25 * ARMS.diameter)
    assert Randomized().width(16, 0) == pytest.approx(16**0.25 * 16**0.5)  # of the unit box


# --- the default -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (Linear((1.0, 2.0)), Identity()),
        (Welfare(0.5, offset=0.1), Identity()),
        (custom(smooth=True), Identity()),
        (2.0 * Nash(offset=1.0) + Linear((1.0, 2.0)), Identity()),
        (0.0 * Minimum(), Identity()),
        (TwoSided(Minimum(), beta=0.0), Identity()),
        (GiniWelfare(), Moreau()),
        (Nash(), Moreau()),
        (EqualExposure(), Moreau()),
        (Linear((1.0, 2.0)) + AtMost(0.5, 1.0), Moreau()),
        (PerMerit(Minimum() + Nash(), (1.0, 2.0)), Moreau()),
        (Minimum() + custom(smooth=True), Moreau()),
        (custom(), Randomized()),
        (Minimum() + custom().on(0), Randomized()),
        (TwoSided(custom(), 0.5), Randomized()),
    ],
    ids=repr,
)
def test_the_default_smoothing(f: Concave, expected: object) -> None:
    smoothing = default_smoothing(f, 2)
    assert smoothing == expected
    # And it works.
    g = smoothing.gradient(f, np.array([0.5, 0.25]), 3, stream(0, "default"))
    assert np.isfinite(g).all()


def test_moreau_refuses_what_has_no_prox_and_is_not_smooth() -> None:
    z = np.array([0.5, 0.5])
    for f in (custom(), Minimum() + custom(), TwoSided(Minimum(), 1.0, custom())):
        with pytest.raises(NoProx, match=r"Custom\(.*Randomized\(\)"):
            Moreau(1.0).gradient(f, z, 0)
        with pytest.raises(NoProx, match=r"Custom\(.*Randomized\(\)"):
            Moreau(1.0).value(f, z, 0)
    smooth = Minimum() + custom(smooth=True)
    expected = Minimum().envelope_gradient(z, 1.0) - 2.0 * z
    assert Moreau(1.0).gradient(smooth, z, 0) == pytest.approx(expected)
