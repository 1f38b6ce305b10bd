"""`Custom`: what is proved about a user's function, and what happens when it fails."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.core.arrays import Vector
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput, NotConcave
from fairwolfe.objectives import (
    AtMost,
    ByGroup,
    Custom,
    EqualExposure,
    GiniWelfare,
    Mapped,
    Minimum,
    TwoSided,
)
from fairwolfe.smoothing import Identity, Moreau, Randomized

Function = Callable[[Vector], float]
Slope = Callable[[Vector], Vector]


def square(z: Vector) -> float:
    return -float(z @ z)


def square_slope(z: Vector) -> Vector:
    return -2.0 * z


class Refused(Exception):
    """An error of the user's own."""


def touchy(z: Vector) -> float:
    if z.max() > 2.0:
        raise Refused("value", z.max())
    return square(z)


def touchy_slope(z: Vector) -> Vector:
    if z.max() > 2.0:
        raise Refused("gradient", z.max())
    return square_slope(z)


GOOD, BAD = np.array([0.5, 0.25, 0.125]), np.array([0.5, 3.0, 0.25])


def test_custom_is_the_function_it_was_given() -> None:
    f = Custom(square, square_slope, smooth=True, lipschitz=7.0)
    assert f.value(GOOD) == square(GOOD)
    assert f.gradient(GOOD).tolist() == square_slope(GOOD).tolist()
    assert (f.smooth, f.lipschitz(3)) == (True, 7.0)
    nested = 2.0 * f.on(2, 0) + Mapped(f, ((1.0, 1.0, 0.0),)) + Minimum()
    expected = [2.0 * -1.0 - 1.5, -1.5, 2.0 * -0.25 + 1.0]
    assert nested.gradient(GOOD) == pytest.approx(expected, rel=1e-14)


# --- not concave -----------------------------------------------------------------------------

LIST = r"\[[^\]]*\]"
PROOF = re.compile(rf"x = ({LIST}) .*y = ({LIST}) .* at (\S+) of the way")


NOT_CONCAVE: dict[str, tuple[Function, Slope]] = {
    "square": (lambda z: float(z @ z), lambda z: 2.0 * z),
    "sine": (lambda z: float(np.sin(7.0 * z).sum()), lambda z: 7.0 * np.cos(7.0 * z)),
    "cube": (lambda z: float(((z - 0.8) ** 3).sum()), lambda z: 3.0 * (z - 0.8) ** 2),
}


@pytest.mark.parametrize("name", NOT_CONCAVE)
@pytest.mark.parametrize("n", [1, 3])
def test_the_two_points_prove_that_a_function_is_not_concave(name: str, n: int) -> None:
    # The gradient is the right one: it is the function that is at fault.
    f = Custom(*NOT_CONCAVE[name])
    with pytest.raises(NotConcave) as caught:
        f.gradient(np.full(n, 0.5))
    found = PROOF.search(str(caught.value))
    assert found is not None
    x, y = (np.array([float(v) for v in text[1:-1].split(",")]) for text in found.groups()[:2])
    share = float(found[3])
    between = f.value((1.0 - share) * x + share * y)
    assert between < (1.0 - share) * f.value(x) + share * f.value(y)


def test_a_function_of_a_sum_is_checked_too() -> None:
    f = Minimum() + Custom(lambda z: float(z @ z), lambda z: 2.0 * z).on(0, 1)
    with pytest.raises(NotConcave, match="not concave"):
        f.gradient(GOOD)
    with pytest.raises(NotConcave, match="not concave"):
        TwoSided(ByGroup(f.terms[1], (0, 1, 2, 0))).bind(Problem.ranking(4, 2, 3))


CONCAVE: dict[str, tuple[Function, Slope]] = {
    "linear": (lambda z: float(z.sum()), lambda z: np.ones(z.size)),
    "constant": (lambda z: 3.0, lambda z: np.zeros(z.size)),
    "steep": (lambda z: float(np.sqrt(z).sum()), lambda z: 0.5 / np.sqrt(z)),
    "large": (lambda z: -1e8 * float(np.abs(z).sum()), lambda z: -1e8 * np.sign(z)),
    "partial": (
        lambda z: float(np.log(z - 0.1).sum()) if z.min() > 0.1 else -math.inf,
        lambda z: 1.0 / (z - 0.1),
    ),
}


@pytest.mark.parametrize("name", CONCAVE)
def test_the_concave_pass(name: str) -> None:
    value, slope = CONCAVE[name]
    assert Custom(value, slope).gradient(GOOD).tolist() == slope(GOOD).tolist()


# --- wrong answers ---------------------------------------------------------------------------


def test_a_wrong_gradient_is_shown_by_two_points() -> None:
    f = Custom(square, lambda z: 2.0 * z)
    with pytest.raises(InvalidInput, match="gradient function of Custom is wrong") as caught:
        f.gradient(GOOD)
    found = re.search(rf"x = ({LIST}) .*y = ({LIST})", str(caught.value))
    assert found is not None
    x, y = (np.array([float(v) for v in text[1:-1].split(",")]) for text in found.groups())
    assert square(y) > square(x) + 2.0 * x @ (y - x)


@pytest.mark.parametrize(
    ("slope", "message"),
    [
        (lambda z: np.full(z.size, np.nan), r"\[0\] is nan"),
        (lambda z: np.ones(z.size + 1), r"returned 4 numbers for a z of length 3"),
        (lambda z: 1.0, r"shape \(\)"),
        (lambda z: None, r"gradient that Custom's function returned"),
    ],
    ids=["nan", "long", "number", "none"],
)
def test_a_gradient_that_is_none(slope: object, message: str) -> None:
    f = Custom(square, slope)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match=message):
        f.gradient(GOOD)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_value_that_is_none(value: float) -> None:
    f = Custom(lambda z: value, square_slope)
    with pytest.raises(InvalidInput, match=rf"returned {value} at z = \[0\.5, 0\.25, 0\.125\]"):
        f.value(GOOD)
    with pytest.raises(InvalidInput, match=f"returned {value} at z"):
        (Minimum() + f).value(GOOD)


def test_a_gradient_that_is_nan_far_away_only() -> None:
    def slope(z: Vector) -> Vector:
        return square_slope(z) if z.max() <= 2.0 else np.full(z.size, np.nan)

    f = Minimum() + Custom(square, slope)
    with pytest.raises(InvalidInput, match=r"\[0\] is nan"):
        f.gradient(BAD)
    assert f.gradient(GOOD).tolist() == [-1.0, -0.5, 0.75]


# --- the user's exceptions -------------------------------------------------------------------

TOUCHY = Custom(touchy, touchy_slope, smooth=True, lipschitz=10.0)


@pytest.mark.parametrize(
    "f",
    [
        TOUCHY,
        3.0 * TOUCHY,
        TOUCHY.on(0, 1) + Minimum(),
        Minimum() + (AtMost(0.1, 1.0) + 2.0 * TOUCHY),
        Mapped(TOUCHY + EqualExposure(), np.eye(3).tolist()),
        TwoSided(GiniWelfare(), 0.5, TOUCHY, n_users=2),
        TOUCHY + Custom(touchy, touchy_slope, smooth=True, lipschitz=10.0),
    ],
    ids=["alone", "multiple", "aimed in a sum", "nested sum", "map", "users", "twice"],
)
def test_the_users_own_exception_comes_out_and_the_object_stays_usable(f: Custom) -> None:
    before = f.gradient(GOOD)
    attempts: list[Callable[[], object]] = [
        lambda: f.gradient(BAD),
        lambda: f.envelope_gradient(BAD, 0.5),
        lambda: Randomized(radius=0.01).gradient(f, BAD, 0, stream(0, "x")),
        lambda: Moreau(1.0).gradient(f, BAD, 3),
        lambda: Identity().gradient(f, BAD, 3),
    ]
    for attempt in attempts:
        with pytest.raises(Refused, match="gradient") as caught:
            attempt()
        assert caught.value.args[1] == pytest.approx(3.0, abs=0.011)
        assert np.array_equal(f.gradient(GOOD), before)
    with pytest.raises(Refused, match="value"):
        f.value(BAD)
    assert np.array_equal(f.gradient(GOOD), before)


def test_an_exception_during_the_first_look_comes_out_too() -> None:
    def value(z: Vector) -> float:
        raise Refused("always")

    with pytest.raises(Refused, match="always"):
        Custom(value, square_slope).gradient(GOOD)


# --- numerical gradients ---------------------------------------------------------------------


def test_without_a_gradient_it_warns_and_takes_differences() -> None:
    def value(z: Vector) -> float:
        return float(-np.log(np.exp(-3.0 * z).sum()) - 0.5 * z @ z)

    def slope(z: Vector) -> Vector:
        shares: Vector = np.exp(-3.0 * z)
        g: Vector = 3.0 * shares / shares.sum() - z
        return g

    with pytest.warns(UserWarning, match="no gradient.*central differences"):
        f = Custom(value, smooth=True)
    rng = stream(0, "differences")
    for _ in range(20):
        z = rng.uniform(-2.0, 2.0, 4)
        assert f.gradient(z) == pytest.approx(slope(z), rel=1e-6, abs=1e-6)
        double = 2.0 * f + Minimum()
        assert double.gradient(z) == pytest.approx(
            2.0 * slope(z) + Minimum().gradient(z), rel=1e-6, abs=1e-6
        )


def test_differences_at_the_edge_of_the_domain_look_inwards() -> None:
    def value(z: Vector) -> float:
        return float(np.sqrt(z + 1.0).sum()) if z.min() >= 0.0 else -math.inf

    with pytest.warns(UserWarning, match="central differences"):
        f = Custom(value)
    assert f.gradient(np.array([0.0, 1.0])) == pytest.approx([0.5, 0.5 / math.sqrt(2.0)], abs=1e-4)


def test_a_function_cannot_write_into_the_callers_vector() -> None:
    def centred(z: Vector) -> float:
        z -= z.mean()
        return -float(z @ z)

    z = GOOD.copy()
    f = Custom(centred, lambda z: -2.0 * (z - z.mean()))
    with contextlib.suppress(ValueError):  # refused, or done on a copy
        f.value(z)
    with contextlib.suppress(ValueError):
        (Minimum() + f).value(z)
    assert z.tolist() == GOOD.tolist()
