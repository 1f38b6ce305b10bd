"""Checks of objectives and smoothings: `OBJECTIVE_CHECKS` and `SMOOTHING_CHECKS`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from fairwolfe.checks.common import (
    Check,
    examples_of,
    is_a_value,
    is_refused,
    length,
    require,
    steepest,
)
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.core.registry import KINDS, load
from fairwolfe.core.streams import stream
from fairwolfe.errors import ConformanceError, InvalidInput, NoProx

_TRIES = 40
_DRAWS = 1000  # for a point that keeps hard constraints
_ROUNDING = 1e-9
_JUMP = 1e-3  # of a gradient over a length of 1e-6


def _points(objective: Any, rng: np.random.Generator) -> Iterator[tuple[Vector, Vector]]:
    """Pairs of points of the open unit box, where every objective is finite; some with ties. Where
    there are hard constraints, points that keep them.
    """
    for x, y in _anywhere(objective, rng):
        yield _kept(objective, x, rng), _kept(objective, y, rng)


def _kept(objective: Any, z: Vector, rng: np.random.Generator) -> Vector:
    """A point near z, or another one, that keeps the hard constraints of an objective."""
    if not getattr(objective, "constrained", False):
        return z
    for _ in range(_DRAWS):
        if math.isfinite(objective.value(z)):
            return z
        with suppress(NoProx):
            return np.array(objective.prox(z, 1.0))  # the projection
        z = rng.uniform(0.05, 1.0, z.size)
    raise ConformanceError(f"no point of the unit box was found where {objective} is finite")


def _anywhere(objective: Any, rng: np.random.Generator) -> Iterator[tuple[Vector, Vector]]:
    n = length(objective)
    for i in range(_TRIES):
        x, y = rng.uniform(0.05, 1.0, (2, n))
        if i % 4 == 0:
            x = np.round(x, 1) + 0.05
        if i % 8 == 0:
            y = np.full(n, y[0])
        if i % 8 == 4:
            x = np.full(n, x[0])
        yield x, y


def _pairs_with_zero(objective: Any, rng: np.random.Generator) -> Iterator[tuple[Vector, Vector]]:
    """These pairs, and pairs with 0, where averages begin and many functions are steepest."""
    for x, y in _points(objective, rng):
        yield x, y
        yield 0.0 * x, y


def has_values(objective: Any, rng: np.random.Generator) -> None:
    """A float everywhere, -inf outside the domain, never NaN or +inf; z is left alone."""
    for x, _ in _points(objective, rng):
        before = x.copy()
        value = objective.value(x)
        require(isinstance(value, float) and math.isfinite(value), f"f({x}) = {value!r}")
        for far in (-x, 1e6 * x, 0.0 * x):
            value = objective.value(far)
            require(not math.isnan(value) and value < np.inf, f"f({far}) = {value!r}")
        require(np.array_equal(x, before), "value() changed z")


def is_concave(objective: Any, rng: np.random.Generator) -> None:
    """f((1 - s) x + s y) >= (1 - s) f(x) + s f(y)."""
    for x, y in _points(objective, rng):
        share = rng.uniform()
        chord = (1 - share) * objective.value(x) + share * objective.value(y)
        value = objective.value((1 - share) * x + share * y)
        require(value >= chord - _ROUNDING * (1 + abs(chord)), f"not concave from {x} to {y}")


def has_supergradients(objective: Any, rng: np.random.Generator) -> None:
    """f(y) <= f(x) + <g(x), y - x>."""
    for x, y in _points(objective, rng):
        g = objective.gradient(x)
        require(g.shape == x.shape, f"the gradient has shape {g.shape}")
        reach = objective.value(x) + g @ (y - x)
        require(
            objective.value(y) <= reach + _ROUNDING * (1 + abs(reach)),
            f"no supergradient at {x}, seen from {y}",
        )


def is_lipschitz(objective: Any, rng: np.random.Generator) -> None:
    """|f(x) - f(y)| <= L |x - y|, and gradients no longer than L, where L is finite."""
    constant = objective.lipschitz(length(objective))
    if constant == math.inf:
        return
    require(constant >= 0.0, f"L = {constant}")
    for x, y in _pairs_with_zero(objective, rng):
        rise = abs(objective.value(x) - objective.value(y))
        require(
            rise <= constant * np.linalg.norm(x - y) * (1 + _ROUNDING) + _ROUNDING,
            f"L = {constant} is too small between {x} and {y}",
        )
        norm = np.linalg.norm(objective.gradient(x))
        require(norm <= constant * (1 + _ROUNDING) + _ROUNDING, f"|gradient| = {norm} > L at {x}")


def has_prox_or_says_no(objective: Any, rng: np.random.Generator) -> None:
    """p = prox(z) is optimal: (p - z)/step is a supergradient at p. Otherwise NoProx."""
    for i, (z, far) in enumerate(_anywhere(objective, rng)):
        y = _kept(objective, far, rng)
        step = float(10.0 ** rng.uniform(-3, 1))
        try:
            p = objective.prox(z, step)
        except NoProx:
            if i == 0:
                return
            raise ConformanceError(f"there is a prox at other points, and none at {z}") from None
        g = (p - z) / step
        reach = objective.value(p) + g @ (y - p)
        require(
            objective.value(y) <= reach + 1e-8 * (1 + abs(reach) + np.linalg.norm(g)),
            f"prox({z}, {step}) = {p} is not optimal, seen from {y}",
        )


def is_smooth_if_it_says_so(objective: Any, rng: np.random.Generator) -> None:
    """|g(x) - g(y)| <= C |x - y| where `smooth` is claimed; without a finite C: no kink is met.

    Bound to a problem it may have another C: that of the ranges.
    """
    if objective.smooth is False:
        return
    require(objective.smooth is True, "smooth is not a bool")
    for f in (objective, objective.bind(_problem(objective))):
        constant = f.smoothness(length(f)) if hasattr(f, "smoothness") else np.inf
        for x, y in _pairs_with_zero(f, rng):
            bend, apart = steepest(f.gradient, x, y)
            if math.isinf(constant):
                still = bend <= _JUMP * (1.0 + float(np.linalg.norm(f.gradient(x))))
                require(still, f"the gradient jumps by {bend} between {x} and {y}: not smooth")
            else:
                require(
                    bend <= constant * apart * (1 + _ROUNDING) + _ROUNDING,
                    f"C = {constant} is too small between {x} and {y}: {bend / apart} is needed",
                )


def refuses_bad_input(objective: Any, rng: np.random.Generator) -> None:
    """value and gradient raise InvalidInput for NaN, infinities and wrong shapes."""
    n = length(objective)
    bad = [np.full(n, np.nan), np.full(n, np.inf), np.ones((n, 2)), np.ones(0)]
    if getattr(objective, "size", None) is not None:
        bad.append(np.ones(n + 1))
    for z in bad:
        for method in (objective.value, objective.gradient):
            refused = is_refused(lambda given=z, to=method: to(given))  # type: ignore[misc]
            require(refused, f"{method.__name__}({z.tolist()}) does not raise InvalidInput")


def composes(objective: Any, rng: np.random.Generator) -> None:
    """f + f, f/2, f.on(...) and f.bind(problem) have the values and gradients that they state."""
    n = length(objective)
    places = [*range(n, 1, -1), 0]
    aimed, bound = objective.on(*places), objective.bind(_problem(objective))
    double, half = objective + objective, 0.5 * objective
    for x, y in _points(objective, rng):
        value, g = objective.value(x), objective.gradient(x)
        wide, expected = rng.uniform(0.05, 1.0, n + 1), np.zeros(n + 1)
        wide[places], expected[places] = x, g
        require(bound.value(x) == value, "binding changed the value")
        require(math.isclose(aimed.value(wide), value, rel_tol=1e-12), "value of on")
        require(np.allclose(aimed.gradient(wide), expected, rtol=1e-12), "gradient of on")
        require(np.allclose(double.gradient(x), 2.0 * g, rtol=1e-12, atol=1e-14), "f + f")
        require(np.allclose(half.gradient(x), 0.5 * g, rtol=1e-12, atol=1e-14), "f / 2")
        objective.gradient(y)
        require(np.array_equal(objective.gradient(x), g), "a call in between changed the result")


def _problem(objective: Any) -> Problem:
    """One of its size, with rewards from 0 to 1."""
    n = length(objective)
    users = getattr(objective, "n_users", None)
    rewards = {f"r{i}": (0.0, 1.0) for i in range(n if users is None else users)}
    if users is None:
        return Problem.arms(3, rewards)
    return Problem.ranking(n - users, 1, 3, rewards)


OBJECTIVE_CHECKS: list[Check] = [
    is_a_value,
    has_values,
    is_concave,
    has_supergradients,
    is_lipschitz,
    has_prox_or_says_no,
    is_smooth_if_it_says_so,
    refuses_bad_input,
    composes,
]


def smoothable(smoothing: Any) -> list[Any]:
    """The registry's objectives that the smoothing accepts and that have a Lipschitz constant."""
    objectives = []
    for name in KINDS["objectives"]:  # what is built in: a plug-in must not spoil the check
        for objective in examples_of(load("objectives", name)):
            n = length(objective)
            if not np.isfinite(objective.lipschitz(n)):
                continue
            try:
                smoothing.gradient(objective, np.full(n, 0.5), 0, stream(0, "checks"))
            except (InvalidInput, NoProx):
                continue
            objectives.append(objective)
    require(bool(objectives), "no objective of the registry can be smoothed by it")
    return objectives


def approaches(smoothing: Any, rng: np.random.Generator) -> None:
    """|f_t - f| <= M_2/sqrt t and |f_t - f_(t-1)| <= M_1/(t sqrt t)."""
    fixed = getattr(smoothing, "horizon", None) is not None
    for objective in smoothable(smoothing):
        n = length(objective)
        m_1, m_2 = smoothing.m_1(objective, n), smoothing.m_2(objective, n)
        for t in (1, 2, 10, 1000):
            z = rng.uniform(0.0, 1.0, n)
            now, before = (smoothing.value(objective, z, s, stream(t, "draws")) for s in (t, t - 1))
            gap, move = abs(now - objective.value(z)), abs(now - before)
            scale = 1e-9 * (1 + abs(now))
            require(gap <= m_2 / (1.0 if fixed else math.sqrt(t)) + scale, f"M_2 of {objective}")
            require(move <= m_1 / (t * math.sqrt(t)) + scale, f"M_1 of {objective} at t = {t}")


def has_lipschitz_gradients(smoothing: Any, rng: np.random.Generator) -> None:
    """f_t is sqrt(t + 1)/beta_0-smooth (where directions are exact), its slope at most L."""
    times = 0, 3, 100
    exact = all(smoothing.mix(t) == 1.0 for t in times)  # a mean of a few draws has kinks
    for objective in smoothable(smoothing):
        n = length(objective)
        slope = objective.lipschitz(n)
        for t in times:

            def gradient(z: Vector, f: Any = objective, t: int = t) -> Vector:
                g: Vector = smoothing.gradient(f, z, t, stream(t, "draws"))
                return g

            x, y = rng.uniform(0.0, 1.0, (2, n))
            require(np.linalg.norm(gradient(x)) <= slope * (1 + 1e-9), f"slope of {objective}")
            beta_0 = smoothing.beta_0(objective, n)
            for start in (x, 0.0 * x) if exact and beta_0 > 0.0 else ():
                bend, apart = steepest(gradient, start, y)
                most = _rate(smoothing, t) / beta_0 * apart
                require(bend <= most * (1 + 1e-6) + 1e-9, f"beta_0 of {objective} at t = {t}")


def _rate(smoothing: Any, t: int) -> float:
    """How much sharper f_t is than f_0."""
    horizon = getattr(smoothing, "horizon", None)
    return math.sqrt((t if horizon is None else horizon) + 1.0)


def needs_no_luck(smoothing: Any, rng: np.random.Generator) -> None:
    """The same draws give the same gradient; its mean is the gradient of f_t for a linear f."""
    objective = load("objectives", "linear")((1.0, -2.0, 0.5))
    z = rng.uniform(0.0, 1.0, 3)
    g, h = (smoothing.gradient(objective, z, 5, stream(5, "draws")) for _ in range(2))
    require(np.array_equal(g, h), "equal draws, other gradients")
    require(np.allclose(g, objective.gradient(z)), "a linear function keeps its gradient")


SMOOTHING_CHECKS: list[Check] = [is_a_value, approaches, has_lipschitz_gradients, needs_no_luck]
