"""`Problem`: sizes, the diameter of K, JSON."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import pickle
from decimal import Decimal
from fractions import Fraction
from math import inf, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairwolfe import Problem
from fairwolfe.core.problem import real_array, real_number
from fairwolfe.errors import InvalidInput

# --- the set of possible rewards -------------------------------------------------------------


def corners(m: int, k: int) -> list[tuple[int, ...]]:
    """Every exposure of at most k of m items, with every number of clicks on the exposed ones."""
    return [
        (*exposed, clicks)
        for exposed in itertools.product((0, 1), repeat=m)
        if sum(exposed) <= k
        for clicks in range(sum(exposed) + 1)
    ]


@pytest.mark.parametrize(("m", "k"), [(m, k) for m in range(1, 6) for k in range(1, m + 1)])
def test_the_diameter_of_rankings_is_that_of_all_corners(m: int, k: int) -> None:
    problem = Problem.ranking(n_items=m, n_slots=k, n_features=2)
    points = np.array(corners(m, k), dtype=np.float64)
    apart = np.linalg.norm(points[:, None] - points[None], axis=2).max()
    assert problem.diameter == pytest.approx(apart)
    items = np.linalg.norm(points[:, None, :m] - points[None, :, :m], axis=2).max()
    assert problem.item_diameter == pytest.approx(items)
    assert problem.low.tolist() == points.min(axis=0).tolist()
    assert problem.high.tolist() == points.max(axis=0).tolist()


def test_the_diameter_of_arms_is_that_of_the_box() -> None:
    problem = Problem.arms(2, {"a": (-1, 1), "b": (0, 3), "c": (2, 8)})
    box = np.array(list(itertools.product((-1, 1), (0, 3), (2, 8))), dtype=np.float64)
    apart = np.linalg.norm(box[:, None] - box[None], axis=2).max()
    assert problem.diameter == pytest.approx(apart) == pytest.approx(7.0)
    assert problem.item_diameter == 0.0
    assert (problem.low.tolist(), problem.high.tolist()) == ([-1, 0, 2], [1, 3, 8])


def test_the_diameter_of_some_coordinates() -> None:
    problem = Problem.ranking(5, 2, 3, {"clicks": (0, 2), "minutes": (0, 60)})

    def of(*places: int) -> float:
        used = np.zeros(7, dtype=np.bool_)
        used[list(places)] = True
        return problem.diameter_of(used)

    assert of(0, 1, 2, 3, 4, 5, 6) == problem.diameter
    assert of(0, 1, 2, 3, 4) == problem.item_diameter == 2.0
    assert (of(5), of(6)) == (2.0, 60.0)
    assert of(5, 6) == pytest.approx(math.hypot(2.0, 60.0))
    assert of() == 0.0


def test_the_order_of_the_reward_vector() -> None:
    problem = Problem.ranking(4, 2, 3, {"minutes": (0, 60), "clicks": (0, 2)})
    assert problem.n_objectives == 6
    assert [problem.coordinate(name) for name in ("minutes", "clicks")] == [4, 5]
    assert Problem.ranking(4, 2, 3).rewards == {"clicks": (0.0, 2.0)}
    assert Problem.arms(3, {"b": (0, 1), "a": (0, 1)}).coordinate("a") == 1


# --- a value ---------------------------------------------------------------------------------

NUMBERS = st.floats(1e-3, 1e3)
RANGES = st.tuples(st.floats(-1e3, 0.0), NUMBERS)
NAMES = st.text("ab é\"'\\\n", min_size=1, max_size=6)  # quotes and line ends must survive too
REWARDS = st.dictionaries(NAMES, RANGES, min_size=1, max_size=4)
FEATURES = st.integers(1, 50) | st.tuples(st.integers(1, 50), st.integers(1, 50))
OPTIONS = st.fixed_dictionaries(
    {}, optional={"feature_norm": NUMBERS, "parameter_norm": NUMBERS, "noise": NUMBERS}
)


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    options = draw(OPTIONS)
    if draw(st.booleans()):
        return Problem.arms(draw(FEATURES), draw(REWARDS), **options)
    m = draw(st.integers(1, 9))
    k = draw(st.integers(1, m))
    return Problem.ranking(m, k, draw(FEATURES), draw(st.none() | REWARDS), **options)


@given(problem=problems())
def test_problems_survive_json_pickle_and_repr(problem: Problem) -> None:
    text = problem.to_json()
    json.loads(text)
    assert "\n" not in text
    for other in (
        Problem.from_json(text),
        pickle.loads(pickle.dumps(problem)),
        eval(repr(problem), {"Problem": Problem}),
        dataclasses.replace(problem),
    ):
        assert other == problem
        assert hash(other) == hash(problem)
        assert list(other.rewards) == list(problem.rewards)  # the order is the coordinates'
        assert repr(other) == repr(problem)


def test_the_order_of_the_rewards_is_part_of_the_problem() -> None:
    one = Problem.arms(2, {"a": (0, 1), "b": (0, 2)})
    other = Problem.arms(2, {"b": (0, 2), "a": (0, 1)})
    assert one != other
    assert Problem.from_json(one.to_json()) != other


def test_problems_do_not_change() -> None:
    rewards = {"a": (0.0, 1.0)}
    problem = Problem.arms(2, rewards)
    rewards["b"] = (0.0, 2.0)
    assert list(problem.rewards) == ["a"]
    with pytest.raises(dataclasses.FrozenInstanceError):
        problem.n_features = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        problem.rewards["a"] = (0.0, 2.0)  # type: ignore[index]


def test_numbers_become_plain_numbers() -> None:
    problem = Problem.arms(np.int64(3), {"a": (np.float32(0), np.int64(1))}, feature_norm=2)  # type: ignore[arg-type,dict-item]
    assert problem == Problem.arms(3, {"a": (0.0, 1.0)}, feature_norm=2.0)
    assert problem.to_json() == Problem.arms(3, {"a": (0.0, 1.0)}, feature_norm=2.0).to_json()


# --- arrays of real numbers ------------------------------------------------------------------

MASKED = np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, False], [False, True]])

UNREAL: dict[str, tuple[object, str]] = {
    "a masked entry": (MASKED, "the context has masked entries; fill them"),
    "a masked row of a list": ([MASKED[0], MASKED[1]], "the context has masked entries"),
    "the masked constant": ([1.0, np.ma.masked], "the context has masked entries"),
    "complex": ([1.0, 2.0 + 1j], r"number \[1\] is \(2\+1j\); give real numbers"),
    "complex in name only": (np.array([[1.0 + 0j]]), r"number \[0, 0\] is \(1\+0j\); give real"),
    "text": ([[1.0, "2.0"]], r"number \[0, 1\] is '2\.0'; give real numbers"),
    "bytes": (np.array([b"1"]), r"number \[0\] is b'1'"),
    "None": ([1.0, None], r"number \[1\] is None"),
    "None alone": (None, r"not an array of numbers: it is None; give real"),
    "a mapping": ({"a": 1.0}, r"it is \{'a': 1\.0\}"),
    "dates": (np.array(["2020-01-01"], dtype="M8[D]"), r"number \[0\] is datetime\.date"),
    "ragged": ([[1.0], [1.0, 2.0]], r"the context is not an array of numbers: .*inhomogeneous"),
    "too large": ([10**400], "the context is not an array of numbers: .*too large"),
}


@pytest.mark.parametrize(("given", "sentence"), UNREAL.values(), ids=UNREAL)
def test_what_is_no_array_of_real_numbers(given: object, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        real_array("the context", given)


@pytest.mark.parametrize(
    "given",
    [
        [[1, 2], [3, 4]],
        ((1.0, True), (np.float32(0.5), np.int8(3))),
        np.ma.array([1.0, 2.0], mask=[False, False]),
        np.array([Fraction(1, 2), Decimal("0.25"), 2**70], dtype=object),
        np.arange(6, dtype=np.float64).reshape(2, 3).T,
        np.array([True, False]),
        [nan, inf],
        3.5,
        [],
        [[]],
    ],
    ids=repr,
)
def test_an_array_of_real_numbers(given: Any) -> None:
    array = real_array("the context", given)
    np.testing.assert_array_equal(array, np.asarray(given, dtype=np.float64))
    assert type(array) is np.ndarray
    assert array.dtype == np.float64
    assert array.flags.c_contiguous
    assert array.shape == np.shape(given)


def test_an_array_that_fits_is_not_copied() -> None:
    given = np.eye(3)
    assert real_array("the context", given) is given


def test_a_complex_number_is_no_number() -> None:
    with pytest.raises(InvalidInput, match=r"noise is np\.complex128\(1\+0j\); give a number"):
        real_number("noise", np.complex128(1.0))
