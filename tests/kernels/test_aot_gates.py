"""The gates: what is within the declared ranges, against NumPy, for numbers of any size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fairwolfe.core.streams import stream
from fairwolfe.kernels.gates import (
    INSIDE,
    NOT_FINITE,
    OUTSIDE,
    any_outside,
    contradiction,
    largest_square_norm,
    largest_square_product,
    place_in_box,
)
from fairwolfe.kernels.ranks import count_exposures

WILD = [math.nan, math.inf, -math.inf]


def squares(rows: np.ndarray) -> np.ndarray:
    """|x|^2 of each row, summed in order."""
    total = np.zeros(len(rows))
    for column in rows.T:
        total = total + column * column
    return total


@pytest.mark.parametrize("n", [1, 2, 63, 64, 65, 128, 200])
@pytest.mark.parametrize("d", [1, 3, 8, 17])
def test_the_largest_square_norms_are_those_of_numpy_bit_for_bit(n: int, d: int) -> None:
    rng = stream(0, "gates")
    for scale in (1.0, 1e-160, 1e150):
        rows, user = scale * rng.normal(size=(n, d)), rng.normal(size=5)
        wanted = squares(rows).max()
        assert largest_square_norm(rows) == wanted
        square = squares(user[None])[0]
        assert largest_square_product(user, np.ascontiguousarray(rows.T)) == wanted * square


@pytest.mark.parametrize("wild", WILD)
def test_a_number_that_is_not_finite_makes_the_norm_so(wild: float) -> None:
    rows = np.ones((5, 3))
    for place in range(15):
        given = rows.copy()
        given.flat[place] = wild
        assert not math.isfinite(largest_square_norm(given))
    assert not math.isfinite(largest_square_product(np.array([1.0, wild]), rows))


def test_no_rows_have_no_norm() -> None:
    assert largest_square_norm(np.empty((0, 3))) == 0.0
    assert largest_square_norm(np.empty((3, 0))) == 0.0
    assert largest_square_product(np.ones(2), np.empty((3, 0))) == 0.0


def test_a_point_is_placed_in_its_box() -> None:
    low, high = np.array([0.0, -1.0, 2.0]), np.array([1.0, 1.0, 2.0])
    assert place_in_box(np.array([0.0, 1.0, 2.0]), low, high) == INSIDE
    for i in range(3):
        for away, place in (
            (-1e-9, OUTSIDE),
            (2.0 + 1e-9, OUTSIDE),
            *((w, NOT_FINITE) for w in WILD),
        ):
            point = np.array([0.0, -1.0, 2.0])
            point[i] += away
            assert place_in_box(point, low, high) == place
    assert place_in_box(np.array([9.0, 9.0, math.nan]), low, high) == NOT_FINITE


def test_zero_is_never_outside() -> None:
    low, high = np.array([0.5, 1.0]), np.array([1.0, 2.0])
    rows = np.array([[0.0, 0.0], [0.5, 2.0], [-0.0, 1.0]])
    assert not any_outside(rows, low, high)
    for place, value in ((0, 0.49), (1, 2.01), (2, 1.01), (5, -1.0)):
        far = rows.copy()
        far.flat[place] = value
        assert any_outside(far, low, high)


def test_the_first_ranking_that_contradicts_itself_is_found() -> None:
    rng = stream(1, "gates")
    found = 0
    for _ in range(300):
        items = np.array([rng.permutation(7)[:3] for _ in range(4)])  # 6 is no item
        exposed = rng.integers(0, 2, size=(4, 3)).astype(np.float64)
        rewards = (rng.random((4, 3, 2)) < 0.05) * rng.normal(size=(4, 3, 2))
        items[0], exposed[0] = [0, 1, 2], 1.0
        for exposure in range(3):
            one, total = np.empty(3), np.zeros(8)
            codes = [
                count_exposures(exposure, items[s], exposed[s], rewards[s], one, total)
                for s in range(4)
            ]
            first = next((s for s in range(4) if codes[s]), -1)
            assert contradiction(exposure, items, exposed, rewards, 8) == first
            found += first >= 0
    assert 100 < found < 900
    assert (
        contradiction(0, np.empty((0, 3), np.int64), np.empty((0, 3)), np.empty((0, 3, 2)), 8) == -1
    )


def test_arrays_that_cannot_be_written_are_read_and_those_of_other_shapes_are_not() -> None:
    rows, ends = np.ones((4, 3)), np.ones(3)
    items = np.tile(np.arange(3), (4, 1))
    for array in (rows, ends, items):
        array.flags.writeable = False
    assert largest_square_norm(rows) == 3.0
    assert largest_square_product(ends, rows) == 12.0
    assert place_in_box(ends, ends, ends) == INSIDE
    assert not any_outside(rows, ends, ends)
    assert contradiction(0, items, rows, np.ones((4, 3, 1)), 9) == -1
    for bad in (ends[:2], np.ones(4)):
        with pytest.raises(ValueError, match="bounds"):
            place_in_box(ends, bad, ends)
        with pytest.raises(ValueError, match="bounds"):
            place_in_box(ends, ends, bad)
        with pytest.raises(ValueError, match="bounds"):
            any_outside(rows, bad, ends)
        with pytest.raises(ValueError, match="bounds"):
            any_outside(rows, ends, bad)
    for wrong in (
        (3, items, rows, np.ones((4, 3, 1)), 9),
        (0, items[:3], rows, np.ones((4, 3, 1)), 9),
        (0, items, rows, np.ones((3, 3, 1)), 9),
        (0, items, rows, np.ones((4, 2, 1)), 9),
        (0, items, rows, np.ones((4, 3, 2)), 1),
    ):
        with pytest.raises(ValueError, match="other shapes"):
            contradiction(*wrong)
    with pytest.raises(ValueError, match="ndarray is not C-contiguous"):
        largest_square_norm(np.ones((6, 3))[::2])
