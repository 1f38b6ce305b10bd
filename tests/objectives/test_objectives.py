"""The inequalities that make an objective what it says it is, and the identities between them."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwolfe.core.arrays import Vector
from fairwolfe.objectives import (
    ByGroup,
    Concave,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    PerMerit,
    Sum,
    TwoSided,
    Welfare,
)
from tests.objectives.points import CASES, LEAVES, Case, points_of, vectors

STEPS = st.floats(-3.0, 2.0).map(lambda power: 10.0**power)
few = settings(max_examples=25)  # for each of the two dozen objectives
every_objective = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
every_leaf = pytest.mark.parametrize("case", LEAVES.values(), ids=LEAVES.keys())
lipschitz_ones = pytest.mark.parametrize(
    "case",
    [c for c in CASES.values() if math.isfinite(c.objective.lipschitz(5))],
    ids=[name for name, c in CASES.items() if math.isfinite(c.objective.lipschitz(5))],
)


def rounding(*terms: float) -> float:
    """What rounding may add to a sum of such terms, themselves sums of 5 to 20 products."""
    return 1e-12 * (1e-3 + sum(map(abs, terms)))


@every_objective
@few
@given(data=st.data())
def test_is_concave(case: Case, data: st.DataObject) -> None:
    f = case.objective
    x, y = data.draw(points_of(case)), data.draw(points_of(case))
    share = data.draw(st.floats(0.0, 1.0))
    fx, fy, between = f.value(x), f.value(y), f.value((1.0 - share) * x + share * y)
    slope = np.abs(f.gradient(x)).max() * np.abs([x, y]).sum()
    assert between >= (1.0 - share) * fx + share * fy - rounding(fx, fy, slope)


@every_objective
@few
@given(data=st.data())
def test_gradients_are_supergradients(case: Case, data: st.DataObject) -> None:
    f = case.objective
    x, y = data.draw(points_of(case)), data.draw(points_of(case))
    g = f.gradient(x)
    reach = f.value(x) + g @ (y - x)
    assert f.value(y) <= reach + rounding(
        f.value(x), f.value(y), np.abs(g) @ (np.abs(x) + np.abs(y))
    )


@lipschitz_ones
@few
@given(data=st.data())
def test_lipschitz_constants_bound_slopes(case: Case, data: st.DataObject) -> None:
    f = case.objective
    x, y = data.draw(points_of(case)), data.draw(points_of(case))
    constant = f.lipschitz(x.size)
    rise = abs(f.value(x) - f.value(y))
    distance = float(np.linalg.norm(x - y))
    size = constant * float(np.linalg.norm([x, y]))
    assert rise <= constant * distance + rounding(f.value(x), f.value(y), size)
    assert np.linalg.norm(f.gradient(x)) <= constant * (1.0 + 1e-12)


@lipschitz_ones
@few
@given(data=st.data(), step=STEPS)
def test_smoothed_gradients_are_no_longer_than_the_lipschitz_constant(
    case: Case, data: st.DataObject, step: float
) -> None:
    f = case.objective
    g = f.envelope_gradient(data.draw(points_of(case)), step)
    assert np.linalg.norm(g) <= f.lipschitz(g.size) * (1.0 + 1e-9)


@every_leaf
@few
@given(data=st.data(), step=STEPS)
def test_the_prox_is_optimal(case: Case, data: st.DataObject, step: float) -> None:
    """p maximises f(y) - |y - z|^2/(2 step) iff (p - z)/step is a supergradient at p."""
    f = case.objective
    z = data.draw(vectors())  # anywhere, also outside the domain
    y = data.draw(points_of(case))
    p = f.prox(z, step)
    g = f.envelope_gradient(z, step)
    assert p == pytest.approx(z + step * g, rel=1e-12, abs=1e-14 * np.abs(z).max())
    assert math.isfinite(f.value(p))  # p lies in the domain, wherever z was
    reach = f.value(p) + g @ (y - p)
    size = np.abs(g) @ (np.abs(z) + np.abs(y) + np.abs(p))
    assert f.value(y) <= reach + rounding(f.value(p), f.value(y), size)


@every_leaf
@few
@given(data=st.data(), step=STEPS)
def test_the_prox_brings_no_two_points_apart(case: Case, data: st.DataObject, step: float) -> None:
    f = case.objective
    x, y = data.draw(vectors()), data.draw(vectors())
    distance = np.linalg.norm(f.prox(x, step) - f.prox(y, step))
    assert distance <= np.linalg.norm(x - y) + rounding(*x, *y, step)


@every_objective
@few
@given(data=st.data(), step=STEPS)
def test_the_envelope_lies_above_and_falls_with_the_step(
    case: Case, data: st.DataObject, step: float
) -> None:
    f = case.objective
    z = data.draw(points_of(case))
    narrow, wide, value = f.envelope(z, step / 3.0), f.envelope(z, step), f.value(z)
    slack = rounding(value, wide, float(np.abs(f.gradient(z)) @ np.abs(z)))
    assert value <= narrow + slack
    assert narrow <= wide + slack


# --- identities ------------------------------------------------------------------------------


def agree(f: Concave, g: Concave, z: Vector) -> None:
    """Equal values, supergradients and smoothings."""
    size = float(np.abs(z).max()) + 1e-3
    assert f.value(z) == pytest.approx(g.value(z), rel=1e-12, abs=1e-13 * size)
    assert f.gradient(z) == pytest.approx(g.gradient(z), rel=1e-12, abs=1e-13)
    for step in (0.01, 1.0, 100.0):
        assert f.envelope_gradient(z, step) == pytest.approx(
            g.envelope_gradient(z, step), rel=1e-9, abs=1e-9 * max(1.0, size * 1e-3 / step)
        )


def sum_of(n: int, weight: float) -> Linear:
    return Linear((weight,) * n)


@given(z=vectors(7))
def test_gini_equality_is_twice_the_welfare_less_a_sum(z: Vector) -> None:
    n = z.size
    left = GiniEquality()
    right = 2.0 * GiniWelfare() + sum_of(n, -(n + 1) / n)
    size = np.abs(z).sum() + 1e-6
    assert left.value(z) == pytest.approx(right.value(z), abs=1e-12 * size)
    assert left.gradient(z) == pytest.approx(right.gradient(z), abs=1e-12)
    # Both envelopes are of the same function: a sum moves the point along (1, ..., 1) only.
    for step in (0.01, 1.0, 10.0):
        smoothed = left.envelope_gradient(z, step)
        assert smoothed == pytest.approx(right.envelope_gradient(z, step), abs=1e-9)


@given(z=vectors(6))
def test_gini_equality_is_the_mean_difference(z: Vector) -> None:
    expected = -np.abs(z[:, None] - z[None, :]).sum() / (2 * z.size)
    assert GiniEquality().value(z) == pytest.approx(
        expected, rel=1e-12, abs=1e-12 * np.abs(z).max()
    )


@given(z=vectors(6))
def test_gini_welfare_is_the_mean_of_the_sums_of_the_worst_off(z: Vector) -> None:
    expected = np.cumsum(np.sort(z)).mean()
    assert GiniWelfare().value(z) == pytest.approx(expected, rel=1e-12, abs=1e-12 * np.abs(z).max())


@given(z=vectors(4), weight=st.floats(-3.0, 3.0))
def test_equal_gini_weights_are_linear(z: Vector, weight: float) -> None:
    gini = GeneralizedGini((weight,) * 4)
    agree(gini, sum_of(4, weight), z)
    assert gini.smooth


@given(z=vectors(4))
def test_the_minimum_is_a_gini(z: Vector) -> None:
    agree(Minimum(), GeneralizedGini((1.0, 0.0, 0.0, 0.0)), z)
    assert Minimum().value(z) == z.min()


@given(z=vectors(4))
def test_welfare_with_alpha_one_is_the_sum(z: Vector) -> None:
    agree(Welfare(1.0), sum_of(4, 1.0), z)


@given(z=vectors(6))
def test_equal_exposure_is_the_standard_deviation_over_a_root(z: Vector) -> None:
    expected = -np.std(z) / math.sqrt(z.size)
    assert EqualExposure().value(z) == pytest.approx(expected, rel=1e-12, abs=1e-14)


@pytest.mark.parametrize("level", [0.1, 0.3, 1.0 / 3.0, 0.7, 1e6 / 7.0])
@pytest.mark.parametrize("n", [1, 3, 6, 7, 49])
def test_equal_exposure_is_flat_at_equality(n: int, level: float) -> None:
    # Any other supergradient there would be one, but a multiple of (1, ..., 1) is none.
    assert EqualExposure().gradient(np.full(n, level)).tolist() == [0.0] * n


@given(z=vectors(5))
def test_groups_are_a_map(z: Vector) -> None:
    members = ((1.0, 0.0, 1.0, 0.0, 0.0), (0.0, 1.0, 0.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0, 0.0))
    agree(ByGroup(GiniWelfare(), "abacb"), Mapped(GiniWelfare(), members), z)


@given(z=vectors(3))
def test_merits_are_a_map(z: Vector) -> None:
    diagonal = ((2.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 0.25))
    agree(PerMerit(EqualExposure(), (0.5, 1.0, 4.0)), Mapped(EqualExposure(), diagonal), z)


@given(z=vectors(5))
def test_two_sided_is_a_sum_of_blocks(z: Vector) -> None:
    blocks = 0.5 * GiniEquality().on(0, 1, 2) + sum_of(2, 1.0).on(3, 4)
    agree(TwoSided(GiniEquality(), beta=0.5, n_users=2), blocks, z)


@given(z=vectors(4), beta=st.floats(0.0, 5.0), step=STEPS)
def test_both_ginis_rank_alike(z: Vector, beta: float, step: float) -> None:
    """TwoSided(GiniWelfare, beta) and TwoSided(GiniEquality, beta/2), smoothed with one step.

    The linear difference of the two is shifted through the envelope, and a Gini's smoothed gradient
    does not change along (1, ..., 1): the directions differ by beta (m + 1)/(2m) on every item and
    not at all on the users, so that every ranking by them is the same.
    """
    m = z.size - 1
    welfare = TwoSided(GiniWelfare(), beta)
    equality = TwoSided(GiniEquality(), beta / 2.0)
    gap = welfare.envelope_gradient(z, step) - equality.envelope_gradient(z, step)
    shift = beta * (m + 1) / (2.0 * m)
    assert gap == pytest.approx([shift] * m + [0.0], abs=1e-10 * (1.0 + beta))


def test_sums_are_flat_and_sum_works() -> None:
    f, g, h = Minimum(), GiniWelfare(), EqualExposure()
    assert (f + g) + h == f + (g + h) == sum([f, g, h]) == Sum((f, g, h))


@given(z=vectors(5))
def test_a_multiple_of_a_sum_is_the_sum_of_the_multiples(z: Vector) -> None:
    f, g = GiniWelfare(), EqualExposure()
    agree(3.0 * (f + 0.5 * g), 3.0 * f + 1.5 * g, z)


@pytest.mark.parametrize("n", [1, 2, 3, 10, 1000])
def test_lipschitz_constants_are_the_formulas_of_the_docstrings(n: int) -> None:
    welfare = math.sqrt((n + 1) * (2 * n + 1) / (6 * n))
    assert GiniWelfare().lipschitz(n) == pytest.approx(welfare, rel=1e-12)
    assert GiniEquality().lipschitz(n) == pytest.approx(math.sqrt((n * n - 1) / (3 * n)), rel=1e-12)
    assert Minimum().lipschitz(n) == 1.0
    assert EqualExposure().lipschitz(n) == 1.0 / n


def test_lipschitz_constants_of_expressions() -> None:
    f, g = GiniWelfare(), Nash(offset=0.5)
    a, b = f.lipschitz(3), g.lipschitz(3)
    assert (2.0 * f).lipschitz(3) == pytest.approx(2.0 * a)
    assert (f + g).lipschitz(3) == pytest.approx(a + b)
    apart = f.on(0, 1, 2) + 3.0 * g.on(3, 4, 5)
    assert apart.lipschitz(6) == pytest.approx(math.hypot(a, 3.0 * b))
    sides = TwoSided(f, beta=0.5, users=g, n_users=3)
    assert sides.lipschitz(6) == pytest.approx(math.hypot(0.5 * a, b))
    assert TwoSided(f, beta=0.5).lipschitz(4) == pytest.approx(math.hypot(0.5 * a, 1.0))
    matrix = np.array([[1.0, 2.0], [0.0, 1.0], [-1.0, 0.5]])
    norm = np.linalg.norm(matrix, 2)
    assert Mapped(f, matrix.tolist()).lipschitz(2) == pytest.approx(a * norm)
    assert ByGroup(f, "aabbbbc").lipschitz(7) == pytest.approx(2.0 * a)  # four in a group
    assert PerMerit(f, (0.25, 1.0, 2.0)).lipschitz(3) == pytest.approx(4.0 * a)
    assert Welfare(0.5).lipschitz(3) == Nash().lipschitz(3) == math.inf
    assert Welfare(0.5, offset=0.04).lipschitz(3) == pytest.approx(math.sqrt(3.0) * 2.5)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (Nash(offset=0.2), 25.0),
        (Welfare(0.5, offset=0.25), 2.0),
        (3.0 * Nash(offset=0.2), 75.0),
        (Nash(offset=0.2) + 3.0 * Nash(offset=0.5), 37.0),
        (Nash(offset=0.2).on(0) + 3.0 * Nash(offset=0.5).on(1), 25.0),
        (ByGroup(Nash(offset=0.2), "aa"), 50.0),
        (PerMerit(Nash(offset=0.2), (0.5, 1.0)), 100.0),
    ],
    ids=["nash", "welfare", "multiple", "sum", "blocks", "groups", "merits"],
)
def test_smoothness_is_the_largest_bend_reached_at_zero(f: Concave, expected: float) -> None:
    assert f.smooth
    assert f.smoothness(2) == pytest.approx(expected)
    h = 1e-6
    bends = [
        np.linalg.norm(f.gradient(h * d) - f.gradient(np.zeros(2))) / np.linalg.norm(h * d)
        for d in (np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([1.0, 1.0]))
    ]
    assert max(bends) == pytest.approx(expected, rel=1e-4)
