"""Contexts of rankings, checked: columns, ids, places, pins, features that are kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.core.candidates import (
    Catalogue,
    find,
    item_features,
    read_candidates,
    sizes,
    whole_ids,
)
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.rankings import RankingKind
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.gates import largest_square_product

PROBLEM = Problem.ranking(6, 2, (2, 3))
FLAT = Problem.ranking(6, 2, 3)
USER, ITEMS = np.array([0.5, -1.0]), stream(0, "items").normal(size=(6, 3))
ALL = Catalogue.of(PROBLEM)
SOME = Catalogue(np.array([0, 2, 5, 6]), np.empty((3, 0)), 8)  # 1, 3, 4 and 7 are retired
KEPT = Catalogue(SOME.ids, np.arange(24.0).reshape(3, 8), 8)


def test_items_become_columns() -> None:
    given = read_candidates(Bilinear(USER, ITEMS), PROBLEM, ALL)
    np.testing.assert_array_equal(given.user, USER)
    np.testing.assert_array_equal(given.items, ITEMS.T)
    assert given.items.flags.c_contiguous
    assert given.ids.tolist() == [0, 1, 2, 3, 4, 5]
    assert (given.places.size, given.pinned.size, given.kept) == (0, 0, False)
    assert RankingKind(PROBLEM, ALL).read(given) is given
    flat = read_candidates(ITEMS.tolist(), FLAT, ALL)
    np.testing.assert_array_equal(flat.items, ITEMS.T)
    assert flat.user.tolist() == [1.0]
    assert (sizes(PROBLEM), sizes(FLAT)) == ((2, 3), (1, 3))


def test_the_largest_norm_is_that_of_the_product() -> None:
    flat = Bilinear(USER, ITEMS).flat()
    given = read_candidates(Bilinear(USER, ITEMS), PROBLEM, ALL)
    square = largest_square_product(given.user, given.items)
    assert square**0.5 == pytest.approx(np.linalg.norm(flat, axis=1).max())


@pytest.mark.parametrize(
    ("only", "blocked", "ids"),
    [
        (None, (), [0, 2, 5, 6]),
        ([6, 0, 2], (), [0, 2, 6]),
        (None, [2], [0, 5, 6]),
        ([6, 5, 2], (2,), [5, 6]),
        (iter([0, 6]), iter([]), [0, 6]),
        (np.array([5, 2]), np.array([], dtype=np.int64), [2, 5]),
        ({0, 5}, {2, 6}, [0, 5]),
    ],
)
def test_the_items_that_may_be_shown(only: Any, blocked: Any, ids: list[int]) -> None:
    """A context has a row for each item not retired; ids stay those of the whole catalogue."""
    rows = ITEMS[:4]
    context = Bilinear(USER, rows)
    given = read_candidates(context, PROBLEM, SOME, candidates=only, blocked=blocked)
    assert given.ids.tolist() == ids
    places = [SOME.ids.tolist().index(i) for i in ids]
    np.testing.assert_array_equal(given.items, rows[places].T)
    assert given.items.flags.c_contiguous
    if given.places.size:
        assert given.places.tolist() == places
        assert SOME.ids[given.places].tolist() == ids
    else:
        assert ids == SOME.ids.tolist()


def test_features_that_are_kept() -> None:
    given = read_candidates([0.1, 0.2], PROBLEM, KEPT, blocked=[2])
    assert given.kept
    np.testing.assert_array_equal(given.items, KEPT.features[:, [0, 5, 6]])
    told = read_candidates(Bilinear(USER, ITEMS[:4]), PROBLEM, KEPT)
    assert not told.kept
    np.testing.assert_array_equal(told.items, ITEMS[:4].T)
    everything = Catalogue(np.arange(8), KEPT.features, 8)
    np.testing.assert_array_equal(read_candidates(USER, PROBLEM, everything).items, KEPT.features)


def test_pins_are_rows_of_the_candidates() -> None:
    context = Bilinear(USER, ITEMS[:4])
    given = read_candidates(context, PROBLEM, SOME, pinned={1: 5})
    assert given.pinned.tolist() == [-1, 2]
    given = read_candidates(context, PROBLEM, SOME, candidates=[5, 6, 0], pinned={0: 6, 1: 0})
    assert given.ids[given.pinned].tolist() == [6, 0]
    assert read_candidates(context, PROBLEM, SOME, pinned={}).pinned.size == 0


def test_arrays_of_the_caller_are_safe_to_read() -> None:
    """Read-only and Fortran-ordered arrays are copied into the form that kernels want."""
    frozen = np.asfortranarray(ITEMS)
    frozen.flags.writeable = False
    user = USER.copy()
    user.flags.writeable = False
    given = read_candidates(Bilinear(user, frozen), PROBLEM, ALL)
    for array in (given.user, given.items):
        assert array.flags.c_contiguous
        assert array.flags.writeable
    whole = read_candidates(Bilinear([1, 0], np.ones((6, 3), dtype=np.int32)), PROBLEM, ALL)
    assert whole.items.dtype == np.float64


def test_ids_are_whole_numbers() -> None:
    assert whole_ids("ids", np.array([3, 1], dtype=np.int32)).dtype == np.int64
    assert whole_ids("ids", ()).size == 0
    assert whole_ids("ids", (i for i in (2, 1))).tolist() == [2, 1]
    bad: Any
    for bad in ([1.0], ["1"], [True], [None], [2**63], [np.nan], [[1]]):
        with pytest.raises(InvalidInput, match=r"ids holds .*; give ids of items, whole numbers"):
            whole_ids("ids", bad)
    for bad in (None, 7, 1.5, "12"):
        with pytest.raises(InvalidInput, match=rf"ids is {bad!r}; give a list of ids"):
            whole_ids("ids", bad)


def test_where_ids_stand() -> None:
    assert find(SOME, np.array([6, 0]), "item").tolist() == [3, 0]
    for missing in (-1, 1, 7, 100):
        with pytest.raises(InvalidInput, match=rf"item {missing} is not in the catalogue, or was"):
            find(SOME, np.array([0, missing]), "item")


def test_features_of_items() -> None:
    np.testing.assert_array_equal(item_features(ITEMS.tolist(), PROBLEM), ITEMS)
    with pytest.raises(InvalidInput, match=r"shape \(6, 3\); the problem asks for shape \(5, 3\)"):
        item_features(ITEMS, PROBLEM, 5)
    with pytest.raises(InvalidInput, match=r"are 7; give at least one row"):
        item_features(7, PROBLEM)
