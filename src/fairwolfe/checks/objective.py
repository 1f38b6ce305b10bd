"""Checks of objectives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from fairwolfe.checks.promise import Check, is_a_value, is_refused, length, require, steepest
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import ConformanceError, NoProx

__all__ = ["OBJECTIVE_CHECKS"]

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


def can_be_aimed(objective: Any, rng: np.random.Generator) -> None:
    """f.on(...) has the value and the gradient of f on those coordinates, and 0 elsewhere."""
    n = length(objective)
    places = [*range(n, 1, -1), 0]
    aimed = objective.on(*places)
    for x, _ in _points(objective, rng):
        wide = rng.uniform(0.05, 1.0, n + 1)
        wide[places] = x
        expected = np.zeros(n + 1)
        expected[places] = objective.gradient(x)
        require(math.isclose(aimed.value(wide), objective.value(x), rel_tol=1e-12), "value of on")
        require(np.allclose(aimed.gradient(wide), expected, rtol=1e-12), "gradient of on")


def can_be_bound(objective: Any, rng: np.random.Generator) -> None:
    """Bound to a problem of its size it is the same function."""
    bound = objective.bind(_problem(objective))
    for x, _ in _points(objective, rng):
        require(bound.value(x) == objective.value(x), "binding changed the value")


def _problem(objective: Any) -> Problem:
    """One of its size, with rewards from 0 to 1."""
    n = length(objective)
    users = getattr(objective, "n_users", None)
    rewards = {f"r{i}": (0.0, 1.0) for i in range(n if users is None else users)}
    if users is None:
        return Problem.arms(3, rewards)
    return Problem.ranking(n - users, 1, 3, rewards)


def has_a_compiled_gradient(objective: Any, rng: np.random.Generator) -> None:
    """Part of the trees of sums and multiples, with scratch that never changes a result."""
    double = objective + objective
    half = 0.5 * objective
    for x, y in _points(objective, rng):
        g = objective.gradient(x)
        require(np.allclose(double.gradient(x), 2.0 * g, rtol=1e-12, atol=1e-14), "f + f")
        require(np.allclose(half.gradient(x), 0.5 * g, rtol=1e-12, atol=1e-14), "f / 2")
        objective.gradient(y)
        require(np.array_equal(objective.gradient(x), g), "a call in between changed the result")
        fresh = objective.tree(x.size)
        require(np.array_equal(fresh.gradient(x, 0.0), g), "scratch matters")


OBJECTIVE_CHECKS: list[Check] = [
    is_a_value,
    has_values,
    is_concave,
    has_supergradients,
    is_lipschitz,
    has_prox_or_says_no,
    is_smooth_if_it_says_so,
    refuses_bad_input,
    can_be_aimed,
    can_be_bound,
    has_a_compiled_gradient,
]
