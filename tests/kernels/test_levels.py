"""Gradients of many coordinates, of which few are different: they equal those of an independent
solver, and coordinate by coordinate those of few coordinates.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy.optimize import isotonic_regression

from fairwolfe.core.streams import stream
from fairwolfe.kernels.gradients import MANY_COORDINATES
from fairwolfe.objectives import (
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Minimum,
    Nash,
    Welfare,
)

N = MANY_COORDINATES
GINIS: list[Any] = [
    GiniWelfare(),
    GiniEquality(),
    Minimum(),
    GeneralizedGini(tuple(np.linspace(2.0, -1.0, N).tolist())),
]


STATES = ("empty", "early", "late", "joined", "negative", "different")


def states(n: int) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    """Exposures over t: early, late by a Zipf law, and with items that came late."""
    rng = stream(0, "levels")
    early = np.zeros(n)
    early[rng.choice(n, 60, replace=False)] = rng.integers(1, 4, 60) / 30.0
    late = np.floor(np.minimum(rng.zipf(1.5, n), 900.0)) / 2000.0
    clocks = np.where(np.arange(n) < n - 500, 2000.0, rng.integers(1, 40, n))
    return {
        "empty": np.zeros(n),
        "early": early,
        "late": late,
        "joined": np.floor(late * clocks) / clocks,
        "negative": np.where(rng.random(n) < 0.3, -0.0, rng.integers(-3, 3, n) / 8.0),
        "different": rng.random(n),
    }


@pytest.mark.parametrize("step", [1e-3, 0.3, 40.0])
@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("f", GINIS, ids=lambda f: type(f).__name__)
def test_gini_gradients_are_those_of_isotonic_regression(f: Any, state: str, step: float) -> None:
    z = states(N)[state]
    order = np.argsort(z, kind="stable")
    w = f.weights_for(N).astype(np.longdouble)
    target = z[order].astype(np.longdouble) + np.longdouble(step) * w
    # Its means are of float64: the differences below are made of long doubles.
    blocks = isotonic_regression(target.astype(np.float64)).blocks
    wanted = np.empty(N)
    for a, b in pairwise(blocks):
        here = target[a:b].mean()
        wanted[order[a:b]] = ((here - z[order[a:b]]) / step).astype(np.float64)
    g = f.envelope_gradient(z, step)
    rounding = 1e-14 + 4e-16 * np.abs(z).max() / step
    least = 1e-11 if state == "different" else 1e-12  # prefix sums of up to N/2, one by one
    np.testing.assert_allclose(g, wanted, rtol=0.0, atol=max(least, 50.0 * rounding))
    for level in np.unique(z)[:50]:
        assert np.ptp(g[z == level]) == 0.0


@pytest.mark.parametrize("f", [Welfare(0.5), Welfare(0.3), Nash(offset=0.1)], ids=repr)
@pytest.mark.parametrize("state", STATES)
def test_sums_over_coordinates_are_those_of_each_alone(f: Any, state: str) -> None:
    z, few = states(N)[state], N // 2
    for step in (1e-3, 0.5):
        parts = [f.envelope_gradient(part, step) for part in (z[:few], z[few:])]
        np.testing.assert_array_equal(f.envelope_gradient(z, step), np.concatenate(parts))


@pytest.mark.parametrize("state", STATES)
def test_equal_exposure_is_the_formula(state: str) -> None:
    z = states(N)[state]
    away = (z.astype(np.longdouble) - z.astype(np.longdouble).mean()).astype(np.float64)
    norm = float(np.linalg.norm(away))
    for step in (1e-6, 0.5):
        scale = min(1.0 / N, norm / step) / norm if norm > 0.0 else 0.0
        g = EqualExposure().envelope_gradient(z, step)
        np.testing.assert_allclose(g, -scale * away, rtol=1e-12, atol=1e-12 / N)


def test_the_gradient_does_not_depend_on_earlier_calls() -> None:
    z = states(N)
    out: dict[str, Any] = {}
    f = GiniWelfare()
    for name in [*z, *reversed(z)]:
        g = f.envelope_gradient(z[name], 0.1)
        np.testing.assert_array_equal(g, out.setdefault(name, g))
