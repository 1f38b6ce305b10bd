"""Compiled choices: the nearest point of the simplex by its conditions, the top by sorting."""

from __future__ import annotations

import numpy as np
import pytest

from fairwolfe.core.streams import stream
from fairwolfe.kernels.selection import project_on_simplex, top_k


@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, 65, 500])
@pytest.mark.parametrize("k", [1, 10, 32, 40])
def test_the_top_is_that_of_a_stable_sort(n: int, k: int) -> None:
    rng, out = stream(n, "top", k), np.empty(min(k, n), dtype=np.int64)
    for digits in (0, 1, 8):  # many ties, some, none
        scores = np.round(rng.normal(size=n), digits)
        for given in (scores, np.sort(scores), np.sort(scores)[::-1].copy(), np.full(n, -np.inf)):
            top_k(given, out.size, out)
            np.testing.assert_array_equal(out, np.argsort(-given, kind="stable")[: out.size])


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
