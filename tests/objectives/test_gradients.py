"""Gradients of expressions: finite differences of their values, and calls from two threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from fairwolfe.core.arrays import Vector
from fairwolfe.core.streams import stream
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
    Mapped,
    Minimum,
    Nash,
    PerMerit,
    TwoSided,
    Welfare,
)
from tests.objectives.points import CASES, SIZE

POSITIVE = np.round(stream(0, "matrix").uniform(0.0, 1.0, (4, SIZE)), 2).tolist()
SIGNED = np.round(stream(1, "matrix").normal(0.0, 1.0, (3, SIZE)), 2).tolist()

NESTED: dict[str, Concave] = {
    "sum of a map of a sum of multiples": Mapped(2.0 * GiniWelfare() + AtLeast(0.5, 3.0), SIGNED)
    + EqualExposure()
    + Nash().on(1, 4),
    "map of a map": Mapped(PerMerit(Minimum() + Welfare(0.5), (0.5, 1.0, 2.0, 3.0)), POSITIVE),
    "multiple of a multiple of an aimed sum": 2.0 * (0.5 * (GiniEquality() + Nash()).on(4, 0, 2)),
    "aimed inside aimed": (GiniWelfare().on(2, 0) + Linear((1.0, 2.0, 3.0))).on(4, 1, 3),
    "groups inside two-sided": TwoSided(
        ByGroup(GiniWelfare() + 2.0 * Welfare(0.5), ("a", "b", "a")), 0.7, Nash(), n_users=2
    ),
    "two-sided per merit": TwoSided(PerMerit(GiniEquality(), (0.3, 1.0, 2.0, 0.7)), beta=3.0),
    "two-sided inside a sum": TwoSided(GiniEquality(), 0.5) + 0.1 * TwoSided(Minimum(), 2.0),
    "two-sided inside a map": Mapped(TwoSided(GiniWelfare(), 0.5), POSITIVE),
    "groups of groups": ByGroup(ByGroup(GiniWelfare(), (0, 1, 0)) + Nash(), (2, 1, 0, 2, 1)),
    "smooth custom": GiniWelfare()
    + 3.0 * Custom(lambda z: -float(z @ z), lambda z: -2.0 * z, smooth=True).on(0, 3),
}

EVERY = {name: case.objective for name, case in CASES.items()} | NESTED


def differences(value: Callable[[Vector], float], z: Vector, h: float) -> Vector:
    g = np.empty(z.size)
    for i in range(z.size):
        up, down = z.copy(), z.copy()
        up[i] += h
        down[i] -= h
        g[i] = (value(up) - value(down)) / (up[i] - down[i])
    return g


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("step", [0.01, 0.3, 3.0])
def test_smoothed_gradients_are_the_slopes_of_the_envelope(name: str, step: float) -> None:
    f = EVERY[name]
    rng = stream(0, "slopes", name)
    for _ in range(5):
        z = rng.uniform(0.1, 1.0, SIZE)
        g = f.envelope_gradient(z, step)
        slopes = differences(lambda y: f.envelope(y, step), z, h=1e-6)
        assert g == pytest.approx(slopes, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", EVERY)
def test_gradients_are_the_slopes_of_the_value(name: str) -> None:
    f = EVERY[name]
    rng = stream(1, "slopes", name)
    for _ in range(5):
        z = rng.uniform(0.1, 1.0, SIZE)  # almost surely no kink within 1e-6
        assert f.gradient(z) == pytest.approx(differences(f.value, z, h=1e-6), rel=1e-6, abs=1e-7)


@pytest.mark.parametrize("name", EVERY)
def test_an_expression_is_smoothed_leaf_by_leaf(name: str) -> None:
    """f <= f_step, and the gap is at most step/2 times the squared slopes of the leaves."""
    f = EVERY[name]
    rng = stream(2, "slopes", name)
    for step in (1e-6, 1e-3, 1.0):
        z = rng.uniform(0.1, 1.0, SIZE)
        gap = f.envelope(z, step) - f.value(z)
        squares = [(scale * leaf.lipschitz(n)) ** 2 for scale, leaf, n in f.leaves(SIZE)]
        assert -1e-12 <= gap <= 0.5 * step * sum(squares) + 1e-12


def test_a_multiple_is_smoothed_as_one_function() -> None:
    # (c f)_b = c f_(c b): not c f_b, and not f_b at another point.
    z = np.array([0.2, 0.25, 0.7])
    f = GiniWelfare()
    expected = 3.0 * f.envelope_gradient(z, 0.3)
    assert (3.0 * f).envelope_gradient(z, 0.1) == pytest.approx(expected, rel=1e-14)


def test_z_is_never_changed_and_results_are_new_arrays() -> None:
    z = np.array([0.3, 0.1, 0.2, 0.2, 0.5])
    for f in EVERY.values():
        first, before = f.gradient(z), z.copy()
        kept = first.copy()
        second = f.gradient(z[::-1])
        assert np.array_equal(z, before)
        assert np.array_equal(first, kept)
        assert first is not second


@pytest.mark.parametrize(
    "f",
    [
        GiniWelfare(),
        TwoSided(ByGroup(GiniEquality(), [i % 30 for i in range(999)]), beta=2.0),
        GiniWelfare() + AtMost(0.5, 1.0).on(*range(0, 1000, 2)),
        Custom(lambda z: -float(z @ z), lambda z: -2.0 * z, smooth=True),
    ],
    ids=["gini", "two-sided", "sum", "custom"],
)
def test_two_threads_agree_with_one(f: Concave) -> None:
    points = np.round(stream(0, "threads").random((60, 1000)), 2)
    steps = [10.0 ** -(i % 4) for i in range(len(points))]
    alone = [f.envelope_gradient(z, b) for z, b in zip(points, steps, strict=True)]
    for _ in range(3):
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(f.envelope_gradient, points, steps))
        assert all(map(np.array_equal, alone, together))


def test_one_object_serves_several_lengths() -> None:
    f = GiniWelfare()
    for n in (3, 5, 3, 1, 5):
        z = stream(n, "lengths").random(n)
        assert np.array_equal(f.gradient(z), GiniWelfare().gradient(z))
