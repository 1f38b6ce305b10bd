"""Public conformance checks: whether a class keeps the contract that it claims to keep.

One list of checks per contract, run on every entry of the registry by the tests, on anything by
``check(...)`` and by ``fairwolfe check module:Class``. The oracle of each check is a theorem.
A class shows the checks instances of itself by ``examples()``.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.errors import ConformanceError, InvalidInput, NoProx
from fairwolfe.problem import Problem
from fairwolfe.protocols import Objective, Smoothing, Vector
from fairwolfe.registry import KINDS, import_class, load, names
from fairwolfe.streams import stream

__all__ = ["OBJECTIVE_CHECKS", "SMOOTHING_CHECKS", "Outcome", "check", "outcomes"]

Check = Callable[[Any, np.random.Generator], None]

_TRIES = 40
_ROUNDING = 1e-9


class Outcome(NamedTuple):
    """What one check said of one example."""

    check: str
    example: str
    error: Exception | None


def check(subject: Any) -> int:
    """Check an instance, a class (by its `examples()`) or ``"module:Class"``; how many checks ran.

    Raises ConformanceError at the first broken promise.

    >>> from fairwolfe.objectives import Minimum
    >>> check(Minimum) >= 10
    True
    """
    ran = 0
    for outcome in outcomes(subject):
        ran += 1
        if outcome.error is not None:
            raise ConformanceError(
                f"{outcome.example} fails {outcome.check}: {outcome.error}"
            ) from outcome.error
    return ran


def outcomes(subject: Any) -> Iterator[Outcome]:
    """Run every check of the subject's contract on every example, whatever fails."""
    if isinstance(subject, str):
        subject = import_class(subject)
    for example in _examples(subject):
        for one in _contract(example):
            try:
                one(example, stream(0, "checks", one.__name__))
            except Exception as error:
                yield Outcome(one.__name__, repr(example), error)
            else:
                yield Outcome(one.__name__, repr(example), None)


def _examples(subject: Any) -> tuple[Any, ...]:
    if not isinstance(subject, type):
        return (subject,)
    make = getattr(subject, "examples", None)
    if make is None:
        raise InvalidInput(
            f"{subject.__name__} has no examples(); give it a classmethod that returns a tuple of "
            "instances, or check an instance"
        )
    made = tuple(make())
    if not made:
        raise InvalidInput(f"{subject.__name__}.examples() is empty; return at least one instance")
    return made


def _contract(example: Any) -> list[Check]:
    if isinstance(example, Objective):
        return OBJECTIVE_CHECKS
    if isinstance(example, Smoothing):
        return SMOOTHING_CHECKS
    raise InvalidInput(
        f"{type(example).__name__} keeps none of the contracts Objective, Smoothing; see "
        "fairwolfe.protocols for the methods that they name"
    )


def _require(condition: bool, broken: str) -> None:
    if not condition:
        raise ConformanceError(broken)


# --- objectives ------------------------------------------------------------------------------


def _length(objective: Any) -> int:
    return getattr(objective, "size", None) or 5


def _points(objective: Any, rng: np.random.Generator) -> Iterator[tuple[Vector, Vector]]:
    """Pairs of points of the open unit box, where every objective is finite; some with ties."""
    n = _length(objective)
    for i in range(_TRIES):
        x, y = rng.uniform(0.05, 1.0, (2, n))
        if i % 4 == 0:
            x = np.round(x, 1) + 0.05
        if i % 8 == 0:
            y = np.full(n, y[0])
        yield x, y


def is_a_value(objective: Any, rng: np.random.Generator) -> None:
    """Frozen, hashable, equal to its copy, rebuilt from its repr."""
    copy = pickle.loads(pickle.dumps(objective))
    _require(copy == objective and hash(copy) == hash(objective), "a copy is not equal")
    try:
        objective.brand_new_attribute = 1
    except (FrozenInstanceError, AttributeError, TypeError):
        pass
    else:
        raise ConformanceError("attributes can be set; make it a frozen dataclass")
    text = repr(objective)
    if "Custom(" not in text:  # functions have no repr that rebuilds them
        known = {load(kind, name) for kind in KINDS for name in names(kind)} | {type(objective)}
        rebuilt = eval(text, {cls.__name__: cls for cls in known})
        _require(rebuilt == objective, f"eval(repr) gives {rebuilt!r}")


def has_values(objective: Any, rng: np.random.Generator) -> None:
    """A float everywhere, -inf outside the domain, never NaN or +inf; z is left alone."""
    for x, _ in _points(objective, rng):
        before = x.copy()
        value = objective.value(x)
        _require(isinstance(value, float) and math.isfinite(value), f"f({x}) = {value!r}")
        for far in (-x, 1e6 * x, 0.0 * x):
            value = objective.value(far)
            _require(not math.isnan(value) and value < np.inf, f"f({far}) = {value!r}")
        _require(np.array_equal(x, before), "value() changed z")


def is_concave(objective: Any, rng: np.random.Generator) -> None:
    """f((1 - s) x + s y) >= (1 - s) f(x) + s f(y)."""
    for x, y in _points(objective, rng):
        share = rng.uniform()
        chord = (1 - share) * objective.value(x) + share * objective.value(y)
        value = objective.value((1 - share) * x + share * y)
        _require(value >= chord - _ROUNDING * (1 + abs(chord)), f"not concave from {x} to {y}")


def has_supergradients(objective: Any, rng: np.random.Generator) -> None:
    """f(y) <= f(x) + <g(x), y - x>."""
    for x, y in _points(objective, rng):
        g = objective.gradient(x)
        _require(g.shape == x.shape, f"the gradient has shape {g.shape}")
        reach = objective.value(x) + g @ (y - x)
        _require(
            objective.value(y) <= reach + _ROUNDING * (1 + abs(reach)),
            f"no supergradient at {x}, seen from {y}",
        )


def is_lipschitz(objective: Any, rng: np.random.Generator) -> None:
    """|f(x) - f(y)| <= L |x - y|, and gradients no longer than L."""
    constant = objective.lipschitz(_length(objective))
    _require(constant >= 0.0, f"L = {constant}")
    for x, y in _points(objective, rng):
        rise = abs(objective.value(x) - objective.value(y))
        _require(
            rise <= constant * np.linalg.norm(x - y) * (1 + _ROUNDING) + _ROUNDING,
            f"L = {constant} is too small between {x} and {y}",
        )
        norm = np.linalg.norm(objective.gradient(x))
        _require(norm <= constant * (1 + _ROUNDING) + _ROUNDING, f"|gradient| = {norm} > L at {x}")


def has_prox_or_says_no(objective: Any, rng: np.random.Generator) -> None:
    """p = prox(z) is optimal: (p - z)/step is a supergradient at p. Otherwise NoProx."""
    for z, y in _points(objective, rng):
        step = float(10.0 ** rng.uniform(-3, 1))
        try:
            p = objective.prox(z, step)
        except NoProx:
            return
        g = (p - z) / step
        reach = objective.value(p) + g @ (y - p)
        _require(
            objective.value(y) <= reach + 1e-8 * (1 + abs(reach) + np.linalg.norm(g)),
            f"prox({z}, {step}) = {p} is not optimal, seen from {y}",
        )


def is_smooth_if_it_says_so(objective: Any, rng: np.random.Generator) -> None:
    """|g(x) - g(y)| <= C |x - y| where `smooth` is claimed and C is known."""
    _require(isinstance(objective.smooth, bool), "smooth is not a bool")
    constant = getattr(objective, "smoothness", lambda n: np.inf)(_length(objective))
    if not objective.smooth:
        return
    for x, y in _points(objective, rng):
        bend = np.linalg.norm(objective.gradient(x) - objective.gradient(y))
        _require(
            bend <= constant * np.linalg.norm(x - y) * (1 + _ROUNDING) + _ROUNDING,
            f"the gradient bends by {bend} between {x} and {y}",
        )


def refuses_bad_input(objective: Any, rng: np.random.Generator) -> None:
    """NaN, infinities and wrong shapes are refused by value and gradient."""
    n = _length(objective)
    bad = [np.full(n, np.nan), np.full(n, np.inf), np.ones((n, 2)), np.ones(0)]
    if getattr(objective, "size", None) is not None:
        bad.append(np.ones(n + 1))
    for z in bad:
        for method in (objective.value, objective.gradient):
            try:
                method(z)
            except InvalidInput:
                continue
            raise ConformanceError(f"{method.__name__}({z.tolist()}) is not refused")


def can_be_aimed(objective: Any, rng: np.random.Generator) -> None:
    """f.on(...) has the value and the gradient of f on those coordinates, and 0 elsewhere."""
    n = _length(objective)
    places = [*range(n, 1, -1), 0]
    aimed = objective.on(*places)
    for x, _ in _points(objective, rng):
        wide = rng.uniform(0.05, 1.0, n + 1)
        wide[places] = x
        expected = np.zeros(n + 1)
        expected[places] = objective.gradient(x)
        _require(math.isclose(aimed.value(wide), objective.value(x), rel_tol=1e-12), "value of on")
        _require(np.allclose(aimed.gradient(wide), expected, rtol=1e-12), "gradient of on")


def can_be_bound(objective: Any, rng: np.random.Generator) -> None:
    """Bound to a problem of its size it is the same function."""
    n = _length(objective)
    users = getattr(objective, "n_users", None)
    if users is None:
        problem = Problem.arms(3, {f"r{i}": (0.0, 1.0) for i in range(n)})
    else:
        rewards = {f"r{i}": (0.0, 1.0) for i in range(users)}
        problem = Problem.ranking(n - users, 1, 3, rewards)
    bound = objective.bind(problem)
    for x, _ in _points(objective, rng):
        _require(bound.value(x) == objective.value(x), "binding changed the value")


def has_a_compiled_gradient(objective: Any, rng: np.random.Generator) -> None:
    """Reached by address inside sums and multiples, with scratch that never changes a result."""
    double = objective + objective
    half = 0.5 * objective
    for x, y in _points(objective, rng):
        g = objective.gradient(x)
        _require(np.allclose(double.gradient(x), 2.0 * g, rtol=1e-12, atol=1e-14), "f + f")
        _require(np.allclose(half.gradient(x), 0.5 * g, rtol=1e-12, atol=1e-14), "f / 2")
        objective.gradient(y)
        _require(np.array_equal(objective.gradient(x), g), "a call in between changed the result")
        fresh = objective.program(x.size)
        _require(np.array_equal(fresh.gradient(x, 0.0, fresh.work()), g), "scratch matters")


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


# --- smoothings ------------------------------------------------------------------------------


def _smoothable(smoothing: Any) -> Iterator[Any]:
    """The registry's objectives that the smoothing accepts and that have a Lipschitz constant."""
    for name in names("objectives"):
        for objective in _examples(load("objectives", name)):
            n = _length(objective)
            if not np.isfinite(objective.lipschitz(n)):
                continue
            try:
                smoothing.gradient(objective, np.full(n, 0.5), 0, stream(0, "checks"))
            except (InvalidInput, NoProx):
                continue
            yield objective


def approaches(smoothing: Any, rng: np.random.Generator) -> None:
    """|f_t - f| <= M_2/sqrt t and |f_t - f_(t-1)| <= M_1/(t sqrt t)."""
    fixed = getattr(smoothing, "horizon", None) is not None
    for objective in _smoothable(smoothing):
        n = _length(objective)
        m_1, m_2 = smoothing.m_1(objective, n), smoothing.m_2(objective, n)
        for t in (1, 2, 10, 1000):
            z = rng.uniform(0.0, 1.0, n)
            now, before = (smoothing.value(objective, z, s, stream(t, "draws")) for s in (t, t - 1))
            gap, move = abs(now - objective.value(z)), abs(now - before)
            scale = 1e-9 * (1 + abs(now))
            _require(gap <= m_2 / (1.0 if fixed else math.sqrt(t)) + scale, f"M_2 of {objective}")
            _require(move <= m_1 / (t * math.sqrt(t)) + scale, f"M_1 of {objective} at t = {t}")


def has_lipschitz_gradients(smoothing: Any, rng: np.random.Generator) -> None:
    """f_t is sqrt(t + 1)/beta_0-smooth (where directions are exact), its slope at most L."""
    for objective in _smoothable(smoothing):
        n = _length(objective)
        slope = objective.lipschitz(n)
        for t in (0, 3, 100):
            x, y = rng.uniform(0.0, 1.0, (2, n))
            y = x + (y - x) * 10.0 ** rng.uniform(-3, 0)
            g, h = (smoothing.gradient(objective, z, t, stream(t, "draws")) for z in (x, y))
            _require(np.linalg.norm(g) <= slope * (1 + 1e-9), f"slope of {objective}")
            exact = smoothing.mix(t) == 1.0 and smoothing.beta_0(objective, n) > 0.0
            if exact:
                bend = _rate(smoothing, t) / smoothing.beta_0(objective, n)
                _require(
                    np.linalg.norm(g - h) <= bend * np.linalg.norm(x - y) * (1 + 1e-6) + 1e-9,
                    f"beta_0 of {objective} at t = {t}",
                )


def _rate(smoothing: Any, t: int) -> float:
    """How much sharper f_t is than f_0."""
    horizon = getattr(smoothing, "horizon", None)
    return math.sqrt((t if horizon is None else horizon) + 1.0)


def needs_no_luck(smoothing: Any, rng: np.random.Generator) -> None:
    """The same draws give the same gradient; its mean is the gradient of f_t for a linear f."""
    objective = load("objectives", "linear")((1.0, -2.0, 0.5))
    z = rng.uniform(0.0, 1.0, 3)
    g, h = (smoothing.gradient(objective, z, 5, stream(5, "draws")) for _ in range(2))
    _require(np.array_equal(g, h), "equal draws, other gradients")
    _require(np.allclose(g, objective.gradient(z)), "a linear function keeps its gradient")


SMOOTHING_CHECKS: list[Check] = [is_a_value, approaches, has_lipschitz_gradients, needs_no_luck]
