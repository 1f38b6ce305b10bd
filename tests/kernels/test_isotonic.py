"""The Ginis beside SciPy's isotonic regression, and the order that they keep between calls."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import isotonic_regression

from fairwolfe.core.arrays import Vector
from fairwolfe.core.streams import stream
from fairwolfe.objectives import (
    ByGroup,
    Concave,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Minimum,
    TwoSided,
)
from tests.objectives.points import vectors

STEPS = (1e-8, 1e-6, 1e-3, 0.1, 1.0, 30.0, 1e3)


def weights_of(f: Concave, n: int) -> Vector:
    """The weights of the definition, worst-off first."""
    j = np.arange(1.0, n + 1.0)
    w: Vector
    match f:
        case GiniWelfare():
            w = (n - j + 1.0) / n
        case GiniEquality():
            w = (n + 1.0 - 2.0 * j) / n
        case Minimum():
            w = (j == 1.0).astype(np.float64)
        case GeneralizedGini():
            w = np.array(f.weights)
        case _:
            raise NotImplementedError(repr(f))
    return w


def regression(z: Vector, w: Vector, step: float) -> Vector:
    """The prox: sort, regress z_(j) + step w_j on a non-decreasing sequence, put back."""
    order = np.argsort(z, kind="stable")
    p = np.empty(z.size)
    p[order] = isotonic_regression(z[order] + step * w, increasing=True).x
    return p


def ginis(n: int) -> list[Concave]:
    drawn = np.sort(stream(n, "weights").normal(0.0, 1.0, n))[::-1]
    return [GiniWelfare(), GiniEquality(), Minimum(), GeneralizedGini(drawn.tolist())]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("n", [1, 2, 7, 100, 2500])
def test_the_prox_is_the_isotonic_regression(n: int, step: float) -> None:
    rng = stream(n, "isotonic")
    counts = rng.poisson(3.0, n) / 10.0
    points = [rng.random(n), counts, np.zeros(n), 0.5 + step * rng.random(n), 1e4 * rng.random(n)]
    for f in ginis(n):
        w = weights_of(f, n)
        for z in points:
            scale = np.abs(z).max() + step * np.abs(w).max()
            away = np.abs(f.prox(z, step) - regression(z, w, step)).max()
            assert away <= 1e-13 * scale


@given(z=vectors(6), w=vectors(6), power=st.floats(-8.0, 3.0))
def test_the_prox_is_the_isotonic_regression_anywhere(z: Vector, w: Vector, power: float) -> None:
    w, step = np.sort(w)[::-1], 10.0**power
    scale = np.abs(z).max() + step * np.abs(w).max() + 1e-300
    p = GeneralizedGini(w.tolist()).prox(z, step)
    assert p == pytest.approx(regression(z, w, step), rel=0.0, abs=1e-13 * scale)


@pytest.mark.parametrize("n", [1, 5, 300])
def test_the_smoothed_gradient_scales(n: int) -> None:
    """f is positively homogeneous, so that grad f_b(b u) = grad f_1(u): no digit lost for small b.

    With b a power of two every operation scales exactly.
    """
    for f in ginis(n):
        for u in (stream(n, "u").normal(0.0, 1.0, n), stream(n, "u").poisson(2.0, n) / 8.0):
            expected = f.envelope_gradient(u, 1.0)
            for power in (-40, -27, -3, 10):
                b = 2.0**power
                assert np.array_equal(f.envelope_gradient(b * u, b), expected)


@pytest.mark.parametrize("n", [2, 5, 300])
def test_gradients_are_those_of_the_regression(n: int) -> None:
    for f in ginis(n):
        w = weights_of(f, n)
        for u in (stream(n, "v").normal(0.0, 1.0, n), stream(n, "v").poisson(2.0, n) / 8.0):
            expected = regression(u, w, 1.0) - u
            assert f.envelope_gradient(1e-9 * u, 1e-9) == pytest.approx(expected, abs=1e-11)
            # The supergradient is the limit for small steps: equal coordinates, equal slopes.
            g = f.gradient(u)
            assert g == pytest.approx(f.envelope_gradient(u, 1e-12), abs=1e-9)
            for value in np.unique(u):
                assert np.ptp(g[u == value]) == 0.0


# --- the kept order --------------------------------------------------------------------------


def walk(n: int, rounds: int, seed: int) -> list[Vector]:
    """Average exposures as a ranker makes them: each round raises ten and scales all."""
    rng = stream(seed, "walk")
    total = np.zeros(n)
    path = []
    for t in range(1, rounds + 1):
        total[rng.choice(n, min(10, n), replace=False, shuffle=False)] += 1.0
        path.append(total / t)
    return path


def kept_equals_fresh(f: Concave, path: list[Vector], step: float) -> None:
    n = path[0].size
    kept = f.tree(n)
    for t, z in enumerate(path):
        width = 0.0 if t % 5 == 4 else step / np.sqrt(t + 1.0)
        assert np.array_equal(kept.gradient(z, width), f.tree(n).gradient(z, width)), t


@pytest.mark.parametrize(
    "f",
    [GiniWelfare(), GiniEquality(), Minimum(), TwoSided(GiniWelfare(), beta=0.5)],
    ids=["gini welfare", "gini equality", "minimum", "two-sided"],
)
@pytest.mark.parametrize(("n", "rounds"), [(2, 200), (12, 1000), (50, 1000), (2500, 300)])
def test_the_kept_order_never_changes_a_result(f: Concave, n: int, rounds: int) -> None:
    kept_equals_fresh(f, walk(n, rounds, seed=n), step=1.0)


def test_the_kept_order_inside_an_expression_never_changes_a_result() -> None:
    labels = [i % 7 for i in range(40)]
    f = GiniWelfare() + 2.0 * ByGroup(GiniEquality() + Minimum(), labels)
    kept_equals_fresh(f, walk(40, 500, seed=1), step=1.0)


def test_the_kept_order_survives_a_shock() -> None:
    # Reversed, shuffled, tied: the insertion sort gives up, and a radix sort follows.
    n = 2500
    rng = stream(0, "shock")
    calm = walk(n, 30, seed=3)
    z = rng.random(n)
    shocks = [z, -z, np.sort(z), -np.sort(z), np.round(z, 1), np.ones(n), z, rng.permutation(z)]
    path = [z for pair in zip(calm, shocks * 4, strict=False) for z in pair]
    kept_equals_fresh(GiniWelfare(), path, step=0.1)


def hard_to_sort(n: int) -> dict[str, Vector]:
    """Vectors far from the order that is kept, of the kinds that a sort by bits could get wrong."""
    rng = stream(n, "hard to sort")
    wide = rng.choice([-1.0, 1.0], n) * 10.0 ** rng.uniform(-300.0, 300.0, n)
    return {
        "uniform": rng.random(n),
        "both signs": rng.normal(0.0, 1.0, n),
        "negative": -rng.random(n) - 1e-3,
        "wide": wide,
        "subnormal": rng.integers(-50, 50, n) * 5e-324,
        "zeros of both signs": rng.choice([-1.0, -0.0, 0.0, 1.0], n),
        "all but equal": 1.0 + rng.permutation(n) * 2.0**-50,
        "few values": rng.integers(0, 4, n) / 3.0,
        "falling": np.arange(n, 0.0, -1.0),
        "rising": np.arange(0.0, n),
        "one outlier": np.r_[rng.random(n - 1), -1e300],
    }


@pytest.mark.parametrize("n", [1, 2, 59, 300, 5000])
def test_any_order_is_sorted(n: int) -> None:
    """The supergradient gives the j-th smallest its weight, the same mean to equal ones.

    With whole weights every sum is exact, so that the comparison is too.
    """
    f = GeneralizedGini(np.arange(n, 0.0, -1.0).tolist())
    kept = f.tree(n)
    for name, z in hard_to_sort(n).items():
        _, group = np.unique(z, return_inverse=True)
        weights = np.empty(n)
        weights[np.argsort(z, kind="stable")] = f.weights
        means = np.bincount(group, weights) / np.bincount(group)
        for tree in (kept, f.tree(n)):
            assert np.array_equal(tree.gradient(z, 0.0), means[group]), name


def test_the_kept_order_of_a_million_items() -> None:
    n = 1_000_000
    rng = stream(0, "million")
    total = rng.poisson(2.0, n).astype(np.float64)
    path = []
    for t in range(1, 5):
        total[rng.integers(0, n, 1000)] += 1.0
        path.append(total / (100.0 + t))
    kept_equals_fresh(GiniWelfare(), path, step=1.0)
    w, z = weights_of(GiniWelfare(), n), path[-1]
    away = np.abs(GiniWelfare().prox(z, 0.5) - regression(z, w, 0.5)).max()
    assert away <= 1e-10
