"""`Randomized`: where it samples, what it estimates, its constants, what it refuses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import (
    AtMost,
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
from fairwolfe.smoothing import Randomized

N = 4
M = ((1.0, 0.5, 0.0, 0.0), (0.0, -1.0, 2.0, 0.0), (0.3, 0.3, 0.3, 1.0))


def custom() -> Custom:
    return Custom(lambda z: -float(z @ z), lambda z: -2.0 * z)


def ball(n: int, samples: int) -> Matrix:
    """The points that Randomized looks at around 0, seen by a function that writes them down."""
    seen: list[Vector] = []

    def slope(z: Vector) -> Vector:
        seen.append(z)
        return np.zeros(z.size)

    f = Custom(lambda z: 0.0, slope)
    f.gradient(np.zeros(n))
    seen.clear()
    Randomized(radius=1.0, n_samples=samples).gradient(f, np.zeros(n), 0, stream(n, "ball"))
    return np.array(seen)


@pytest.mark.parametrize("n", [1, 2, 5, 30])
def test_samples_are_uniform_in_the_ball(n: int) -> None:
    samples = 20_000
    points = ball(n, samples)
    assert points.shape == (samples, n)
    norms = np.linalg.norm(points, axis=1)
    assert norms.max() <= 1.0
    # |xi|^n is uniform on [0, 1]: all its moments, within five standard errors (at most 0.3).
    for k in (1, 2, 3):
        assert (norms ** (n * k)).mean() == pytest.approx(1.0 / (k + 1), abs=5 * 0.3 / samples**0.5)
    # No direction is preferred: mean 0 and covariance I/(n + 2).
    assert np.abs(points.mean(axis=0)).max() <= 5.0 / math.sqrt(samples * (n + 2))
    covariance = points.T @ points / samples
    assert np.abs(covariance - np.eye(n) / (n + 2)).max() <= 5.0 * 2.0 / (n + 2) / samples**0.5
    below = (points < 0.0).mean(axis=0)
    assert np.abs(below - 0.5).max() <= 5.0 * 0.5 / samples**0.5


RANDOMISED: dict[str, Concave] = {
    "minimum": Minimum(),
    "gini": GiniWelfare(),
    "two-sided": TwoSided(GiniEquality(), 2.0),
    "map": Mapped(AtMost(0.5, 2.0), M),
    "custom": custom(),
}


@pytest.mark.parametrize("name", RANDOMISED)
def test_the_mean_gradient_is_the_slope_of_the_mean_value(name: str) -> None:
    """With common draws: both are means over the same 2,000 points."""
    f, smoothing = RANDOMISED[name], Randomized(radius=0.8, n_samples=2000)
    z = np.array([0.2, 0.4, 0.6, 0.5])
    g = smoothing.gradient(f, z, 3, stream(0, name))
    for i in range(N):
        up, down = z + 1e-6 * np.eye(N)[i], z - 1e-6 * np.eye(N)[i]
        values = [smoothing.value(f, y, 3, stream(0, name)) for y in (up, down)]
        assert g[i] == pytest.approx((values[0] - values[1]) / 2e-6, abs=2e-3)


@pytest.mark.parametrize("name", RANDOMISED)
def test_randomised_values_lie_below(name: str) -> None:
    """f_t <= f for concave f, within five standard errors of 40 x 250 samples; and f_t < f."""
    f, smoothing = RANDOMISED[name], Randomized(radius=0.8, n_samples=250)
    for z in (np.full(N, 0.5), np.array([0.2, 0.4, 0.6, 0.5])):
        values = [smoothing.value(f, z, 3, stream(i, name)) for i in range(40)]
        margin = 5.0 * float(np.std(values)) / math.sqrt(len(values))
        assert np.mean(values) <= f.value(z) + margin
        if z[0] == 0.5:  # a kink, or a curved place: strictly below
            assert np.mean(values) < f.value(z) - margin


def test_the_constants_of_randomised_smoothing() -> None:
    f = GiniWelfare()
    smoothing = Randomized(radius=0.6)
    slope = f.lipschitz(9)
    assert smoothing.m_2(f, 9) == pytest.approx(slope * 0.6)
    assert smoothing.m_1(f, 9) == pytest.approx(slope * 0.3)
    assert smoothing.beta_0(f, 9) == pytest.approx(0.6 / (slope * 3.0))


def test_m_2_of_randomised_smoothing_is_nearly_reached() -> None:
    # At equality f falls at its full rate almost everywhere: E |C xi| -> 1 as n grows.
    n = 60
    f, z = EqualExposure(), np.full(n, 0.5)
    smoothing = Randomized(radius=0.6, n_samples=500)
    for t in (1, 10, 1000):
        gap = f.value(z) - smoothing.value(f, z, t, stream(t, "m_2"))
        assert gap <= smoothing.m_2(f, n) / math.sqrt(t)
        assert gap * math.sqrt(t + 1.0) >= 0.95 * smoothing.m_2(f, n)


def test_m_1_of_randomised_smoothing_bounds_the_change() -> None:
    n = 60
    f, z = EqualExposure(), np.full(n, 0.5)
    smoothing = Randomized(radius=0.6, n_samples=500)
    for t in (1, 10, 1000):
        values = [smoothing.value(f, z, s, stream(t, "m_1")) for s in (t - 1, t)]
        change = values[1] - values[0]
        assert 0.0 < change <= smoothing.m_1(f, n) / (t * math.sqrt(t))
    assert change * t * math.sqrt(t) >= 0.95 * smoothing.m_1(f, n)


def test_beta_0_of_randomised_smoothing_bounds_the_bending() -> None:
    """In one dimension the slope of -max(0, z) at z is -(1 + z/r)/2 inside the ball."""
    f, smoothing = AtMost(0.0, penalty=1.0), Randomized(radius=0.5, n_samples=100_000)
    error = 5.0 * 0.5 / math.sqrt(smoothing.n_samples)
    slopes = []
    for z in (-0.6, -0.25, 0.0, 0.25, 0.6):
        g = smoothing.gradient(f, np.array([z]), 0, stream(0, "bend"))
        assert g[0] == pytest.approx(-np.clip((1.0 + z / 0.5) / 2.0, 0.0, 1.0), abs=error)
        slopes.append(g[0])
    bend = abs(slopes[3] - slopes[1]) / 0.5
    assert bend <= 1.0 / smoothing.beta_0(f, 1)


def test_equal_generators_draw_equal_gradients() -> None:
    f, z = GiniWelfare(), np.array([0.5, 0.5, 0.5])
    g, h, other = (Randomized().gradient(f, z, 0, stream(s, "draw")) for s in (0, 0, 1))
    assert np.array_equal(g, h)
    assert not np.array_equal(g, other)


@pytest.mark.parametrize(
    "f",
    [
        Nash(),
        Welfare(0.5),
        Nash(offset=0.5),
        Minimum() + 0.1 * Nash().on(0),
        TwoSided(Welfare(0.5), 0.5),
        PerMerit(Nash(), (1.0, 2.0)),
    ],
    ids=["nash", "welfare", "offset", "sum", "two-sided", "map"],
)
def test_randomised_smoothing_refuses_functions_with_an_edge(f: Concave) -> None:
    for use in (Randomized().gradient, Randomized().value):
        with pytest.raises(InvalidInput, match=r"outside its domain; use Moreau\(\)"):
            use(f, np.array([0.5, 0.5]), 0, stream(0, "x"))


def test_what_randomised_smoothing_accepts() -> None:
    z = np.array([-0.5, 0.5])
    for f in (Welfare(1.0), 0.0 * Nash(), custom(), Linear((1.0, 2.0))):
        assert np.isfinite(Randomized().gradient(f, z, 0, stream(0, "x"))).all()
