"""Compiled choices: the projection on the simplex by its optimality conditions."""

from __future__ import annotations

import numpy as np
import pytest

from fairwolfe.core.streams import stream
from fairwolfe.kernels.selection import project_on_simplex


@pytest.mark.parametrize("n", [1, 2, 3, 10, 50, 200])
@pytest.mark.parametrize("spread", [1e-8, 0.01, 0.3, 10.0, 1e6])
def test_the_projection_is_the_nearest_point(n: int, spread: float) -> None:
    """p is nearest to v if and only if <v - p, e_i - p> <= 0 for every corner e_i."""
    rng = stream(n, "simplex", str(spread))
    for center in (0.0, 1.0 / n, -3.0, 1e6):
        for _ in range(20):
            v = center + spread * np.round(rng.normal(size=n), 2)  # with ties
            p, spare = v.copy(), rng.normal(size=n)
            project_on_simplex(p, spare)
            rounding = 1e-13 * (1.0 + np.abs(v).max())
            assert p.min() >= 0.0
            assert abs(p.sum() - 1.0) <= rounding
            away = v - v.max() - p
            assert (away - away @ p).max() <= rounding
            again = v.copy()
            project_on_simplex(again, np.empty(n))
            assert np.array_equal(p, again)  # whatever the scratch held


def test_huge_numbers_are_projected_on_the_largest() -> None:
    weights = np.array([1e300, -1e300, 9e299, 3.0])
    project_on_simplex(weights, np.empty(4))
    assert weights.tolist() == [1.0, 0.0, 0.0, 0.0]
