"""The smoothings against their definitions: schedules, constants, widths, samples."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fairwolfe import Problem
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
from fairwolfe.protocols import Vector
from fairwolfe.smoothing import Identity, Moreau, Randomized, default_smoothing
from fairwolfe.streams import stream

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


def test_widths_are_chosen_where_no_bound_holds() -> None:
    assert Moreau().bind(ARMS, Nash()).beta0 == pytest.approx(ARMS.diameter)
    linear = Moreau().bind(ARMS, Linear((1.0, 0.0, 0.0))).beta0
    assert linear is not None
    assert linear > 0.0


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
