"""Every proximal map beside a convex solver, and at high precision where cancellation lurks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arrays import Vector
from fairwolfe.core.streams import stream
from fairwolfe.errors import NoProx
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    Concave,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    On,
    Scaled,
    Sum,
    TwoSided,
    Welfare,
)

SIZES = (2, 3, 4, 5, 6)
STEPS = (0.01, 0.1, 1.0, 10.0)


def expression(f: Concave, y: Any) -> Any:
    """f(y) for the solver, from its definition and not from our formulas."""
    import cvxpy as cp

    n = y.shape[0]
    match f:
        case Linear():
            return np.array(f.weights) @ y
        case Minimum():
            return cp.min(y)
        case GiniWelfare():
            return sum(cp.sum_smallest(y, j) for j in range(1, n + 1)) / n
        case GiniEquality():
            return -sum(cp.abs(y[i] - y[j]) for i in range(n) for j in range(i)) / n
        case GeneralizedGini():
            w = [*f.weights, 0.0]
            falls = [w[j] - w[j + 1] for j in range(n - 1)]
            worst = sum(a * cp.sum_smallest(y, j) for j, a in enumerate(falls, 1))
            return worst + w[n - 1] * cp.sum(y)
        case EqualExposure():
            return -cp.norm(y - cp.sum(y) / n) / n
        case Welfare():
            return cp.sum(cp.power(y + f.offset, f.alpha))
        case Nash():
            return cp.sum(cp.log(y + f.offset))
        case AtLeast(penalty=float()):
            return -(f.penalty or 0.0) * cp.sum(cp.pos(np.array(f.level) - y))
        case AtMost(penalty=float()):
            return -(f.penalty or 0.0) * cp.sum(cp.pos(y - np.array(f.level)))
        case Scaled():
            return f.multiple * expression(f.objective, y)
        case Sum():
            return sum(expression(term, y) for term in f.terms)
        case On():
            places = [p % n for p in f.positions()]
            return expression(f.objective, cp.hstack([y[p] for p in places]))
        case TwoSided():
            users = f.users or Linear((1.0,) * f.n_users)
            split = n - f.n_users
            return f.beta * expression(f.items, y[:split]) + expression(users, y[split:])
    raise NotImplementedError(repr(f))


def solved(f: Concave, z: Vector, step: float) -> tuple[Vector, float]:
    """argmax and max of f(y) - |y - z|^2/(2 step) by an interior-point method."""
    import cvxpy as cp

    y = cp.Variable(z.size)
    gain = expression(f, y) - cp.sum_squares(y - z) / (2.0 * step)
    problem = cp.Problem(cp.Maximize(gain))
    with np.errstate(invalid="ignore"):  # it evaluates f at a point that may be outside by 1e-9
        problem.solve(solver=cp.CLARABEL)
    assert problem.status == cp.OPTIMAL
    return np.asarray(y.value), float(problem.solution.opt_val)


def decreasing(n: int) -> tuple[float, ...]:
    weights = stream(n, "gini weights").uniform(-1.0, 2.0, n)
    return tuple(np.sort(np.round(weights, 1))[::-1].tolist())


FAMILIES: dict[str, Callable[[int], Concave]] = {
    "linear": lambda n: Linear(np.linspace(-1.0, 2.0, n).tolist()),
    "generalized gini": lambda n: GeneralizedGini(decreasing(n)),
    "gini welfare": lambda n: GiniWelfare(),
    "gini equality": lambda n: GiniEquality(),
    "minimum": lambda n: Minimum(),
    "equal exposure": lambda n: EqualExposure(),
    "welfare .5": lambda n: Welfare(0.5),
    "welfare .25": lambda n: Welfare(0.25),
    "welfare .8, offset": lambda n: Welfare(0.8, offset=0.2),
    "welfare 1": lambda n: Welfare(1.0),
    "nash": lambda n: Nash(),
    "nash, offset": lambda n: Nash(offset=0.3),
    "at least": lambda n: AtLeast(0.5, penalty=2.0),
    "at most": lambda n: AtMost(np.linspace(-1.0, 1.0, n).tolist(), penalty=0.5),
    "3 gini equality": lambda n: 3.0 * GiniEquality(),
    ".2 (2 welfare)": lambda n: 0.2 * (2.0 * Welfare(0.5)),
    ".3 nash": lambda n: 0.3 * Nash(),
    "4 equal exposure": lambda n: 4.0 * EqualExposure(),
    "one block": lambda n: 2.0 * GiniWelfare().on(-1, 0),
    "blocks": lambda n: Minimum().on(*range(1, n)) + 0.5 * AtMost(0.1, 2.0).on(0),
    "two-sided": lambda n: TwoSided(GiniEquality(), beta=1.5),
    "two-sided, welfare and nash": lambda n: TwoSided(Welfare(0.5), 0.5, 2.0 * Nash()),
}


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_prox_is_the_solvers(family: str) -> None:
    for n in SIZES:
        f = FAMILIES[family](n)
        rng = stream(n, "prox", family)
        for i, step in enumerate(STEPS):
            z = rng.normal(0.3, 1.0, n)  # a third of the coordinates is negative
            if (n + i) % 2:
                z = np.round(2.0 * z) / 2.0  # ties, zeros, points on the levels
            p = f.prox(z, step)
            expected, best = solved(f, z, step)
            reached = f.value(p) - (p - z) @ (p - z) / (2.0 * step)
            # Ours may be the better one, but never worse than the solver's tolerance of 1e-8.
            assert -1e-7 <= (reached - best) / (1.0 + abs(best)) <= 1e-5, (n, step, z)
            assert f.envelope(z, step) == pytest.approx(reached, rel=1e-9, abs=1e-9)
            # Strongly concave: a gap of 1e-7 is a distance of at most sqrt(2 step 1e-7).
            assert p == pytest.approx(expected, abs=2e-3 * math.sqrt(step)), (n, step, z)


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize(
    ("f", "meet", "beyond"),
    [
        pytest.param(AtMost(0.1, 1.0).on(2) + AtMost(0.4, 1.0).on(-2), {4}, set(), id="2 and -2"),
        pytest.param(
            GiniWelfare().on(0, 1) + Minimum().on(-1, -2), {3}, set(), id="0, 1 and -1, -2"
        ),
        pytest.param(GiniWelfare().on(1, 2) + Minimum().on(-4, -1), {5}, {3}, id="1, 2 and -4, -1"),
        pytest.param(
            AtMost(0.1, 1.0).on(0) + AtLeast(0.9, 2.0).on(-1), set(), set(), id="0 and -1"
        ),
    ],
)
@pytest.mark.parametrize("n", [3, 4, 5])
def test_blocks_counted_from_the_end_may_meet(
    f: Sum, meet: set[int], beyond: set[int], n: int
) -> None:
    """Which coordinates are meant, and so whether there is a prox, depends on the length of z."""
    z = np.linspace(0.9, 0.2, n)
    if n in meet or n in beyond:
        with pytest.raises(NoProx if n in meet else ValueError):
            f.prox(z, 1.0)
        return
    p = f.prox(z, 1.0)
    assert p == pytest.approx(solved(f, z, 1.0)[0], abs=1e-3)


def test_a_block_sum_has_a_prox_and_a_sum_on_the_same_coordinates_none() -> None:
    assert (Minimum().on(0, 1) + Minimum().on(2, 3)).prox(np.zeros(4), 1.0).tolist() == [0.5] * 4
    with pytest.raises(NoProx):
        (Minimum().on(0, 1) + Minimum().on(1, 2)).prox(np.zeros(3), 1.0)


# --- accuracy --------------------------------------------------------------------------------


def root(rises: Callable[[np.longdouble], bool], low: np.longdouble) -> np.longdouble:
    """The y > low where `rises` turns false: by halving from above, then by bisection."""
    two = np.longdouble(2)
    high = two * max(low, np.longdouble(1))
    while rises(high):
        high *= two
    while high > two * low and not rises(high / two):
        high /= two
        if high < 1e-300:
            return np.longdouble(0)
    low = max(low, high / two)
    for _ in range(80):
        middle = low + (high - low) / two
        low, high = (middle, high) if rises(middle) else (low, middle)
    return low + (high - low) / two


def power_root(z: float, step: float, alpha: float) -> np.longdouble:
    """y with y - z = step alpha y^(alpha - 1)."""
    x, b, a = np.longdouble(z), np.longdouble(step), np.longdouble(alpha)
    return root(lambda y: bool(y - x < b * a * y ** (a - 1)), max(x, np.longdouble(0)))


def log_root(z: float, step: float) -> np.longdouble:
    """y with y - z = step/y."""
    x, b = np.longdouble(z), np.longdouble(step)
    return root(lambda y: bool(y - x < b / y), max(x, np.longdouble(0)))


POINTS = (3.0, 0.5, 0.01, 1e-6, 0.0, -1e-6, -0.01, -0.3, -2.0, -50.0)


SMALL_AND_LARGE = (1e-120, 1e-14, 1e-10, 1e-6, 1e-3, 0.1, 10.0, 1e7)
ALPHAS = (0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@pytest.mark.parametrize("step", SMALL_AND_LARGE)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_smoothed_welfare_keeps_its_digits(alpha: float, step: float) -> None:
    g = Welfare(alpha).envelope_gradient(np.array(POINTS), step)
    for found, z in zip(g, POINTS, strict=True):
        y = power_root(z, step, alpha)
        expected = alpha * y ** np.longdouble(alpha - 1) if z > 0 else (y - z) / step
        assert float(abs(found / expected - 1)) <= 1e-12, z


@pytest.mark.parametrize("f", [Welfare(0.5), Welfare(0.7, offset=0.1), Nash()], ids=repr)
def test_a_coordinate_is_smoothed_alike_wherever_it_stands(f: Concave) -> None:
    """Eight numbers at a time or the last one by itself: the same bits."""
    z = stream(0, "places").normal(0.3, 1.0, 40)
    for step in (0.0, *SMALL_AND_LARGE):
        alone = [f._smoothed(z[i : i + 1].copy(), step)[0] for i in range(z.size)]
        for n in (2, 3, 7, 16, 33, 40):
            assert f._smoothed(z[:n].copy(), step).tolist() == alone[:n]


@pytest.mark.parametrize("step", SMALL_AND_LARGE)
def test_smoothed_nash_keeps_its_digits(step: float) -> None:
    g = Nash().envelope_gradient(np.array(POINTS), step)
    for found, z in zip(g, POINTS, strict=True):
        assert float(abs(found * log_root(z, step) - 1)) <= 1e-12, z


@pytest.mark.parametrize("step", SMALL_AND_LARGE)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_the_prox_of_welfare_keeps_its_digits(alpha: float, step: float) -> None:
    """z + step g would lose them where z < 0, and with them the domain."""
    p = Welfare(alpha).prox(np.array(POINTS), step)
    for found, z in zip(p, POINTS, strict=True):
        y = power_root(z, step, alpha)
        if y > 1e-280:
            assert float(abs(found / y - 1)) <= 1e-12, z
        else:
            assert 0.0 <= found <= 1e-280, z


@pytest.mark.parametrize("step", SMALL_AND_LARGE)
def test_the_prox_of_nash_keeps_its_digits(step: float) -> None:
    p = Nash().prox(np.array(POINTS), step)
    for found, z in zip(p, POINTS, strict=True):
        assert float(abs(found / log_root(z, step) - 1)) <= 1e-12, z


@pytest.mark.parametrize(
    "f",
    [Welfare(0.5), Welfare(0.9), Welfare(0.99), Nash(), TwoSided(0.5 * Welfare(0.9))],
    ids=["welfare .5", "welfare .9", "welfare .99", "nash", "two-sided"],
)
def test_the_envelope_is_finite_outside_the_domain(f: Concave) -> None:
    rng = stream(0, "outside")
    for _ in range(500):
        z = -(10.0 ** rng.uniform(-3.0, 1.0, 3))
        step = float(10.0 ** rng.uniform(-3.0, 1.0))
        assert math.isfinite(f.envelope(z, step)), (z, step)
