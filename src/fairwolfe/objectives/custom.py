"""`Custom`: a concave function given by Python or C functions."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import real_number
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput, NotConcave
from fairwolfe.kernels import gradients
from fairwolfe.objectives.concave import Concave, Scope, finite_vector
from fairwolfe.objectives.words import Names, Words

_PAIRS = 200
_CUBE_ROOT = float(np.finfo(np.float64).eps ** (1.0 / 3.0))  # best step of a central difference


@dataclass(frozen=True, init=False, repr=False)
class Custom(Concave):
    """f given by Python functions: ``value(z) -> float`` and ``gradient(z) -> vector``.

    The gradient may be a C function too, a `scipy.LowLevelCallable` or a function of ctypes:
    ``void (const double *z, Py_ssize_t n, double *out, void *user_data)``.

    Without a gradient, central differences are used, with a warning: 2 n values a call,
    about 10 digits where f is smooth, the mean of the one-sided slopes at a kink (which need not
    be a supergradient there). Concavity is spot-checked where the problem's rewards can lie (the
    unit box if no problem is known); a violation is shown with the two points that prove it.

    There is no proximal map, so the default smoothing is Randomized unless ``smooth=True``
    promises a Lipschitz gradient (it is then left as it is). It can be used in every compiled
    loop, which then calls Python once a step.

    >>> f = Custom(lambda z: -float(z @ z), lambda z: -2.0 * z, smooth=True)
    >>> f.value([3.0, 4.0]), f.gradient([3.0, 4.0]).tolist()
    (-25.0, [-6.0, -8.0])
    """

    function: Callable[[Vector], float]
    slope: Callable[[Vector], Vector] | tuple[Any, ...] | None = None
    smooth: bool = False
    lipschitz_constant: float = np.inf

    def __init__(
        self,
        value: Callable[[Vector], float],
        gradient: Callable[[Vector], Vector] | tuple[Any, ...] | None = None,
        *,
        smooth: bool = False,
        lipschitz: float = np.inf,
    ) -> None:
        for name, given in (("value", value), ("gradient", gradient)):
            if name == "gradient" and gradients.is_outside(given):
                gradients.outside(1, given)  # which checks its signature
            elif given is not None and not callable(given):
                raise InvalidInput(f"the {name} of Custom is {given!r}; give a function of z")
        if gradient is None:
            warnings.warn(
                "Custom has no gradient, so it is taken by central differences: 2 n values a call "
                "and no guarantee at kinks; pass gradient= for speed and exactness",
                stacklevel=2,
            )
        constant = real_number("the Lipschitz constant of Custom", lipschitz)
        if not constant >= 0.0:
            raise InvalidInput(
                f"the Lipschitz constant of Custom is {lipschitz!r}; give a number of at least 0, "
                "or leave it out if there is none"
            )
        self.__dict__.update(function=value, slope=gradient, smooth=bool(smooth))
        self.__dict__["lipschitz_constant"] = constant

    def __repr__(self) -> str:
        slope = f", {_name(self.slope)}" if self.slope else ""
        return f"Custom({_name(self.function)}{slope}, smooth={self.smooth})"

    def _words(self, names: Names) -> Words:
        name = _name(self.function).rpartition(".")[2]
        own = f"your function {name}" if name.isidentifier() else "your own function"
        return Words(((1.0, f"{own} of {names.every}"),))

    has_prox = False
    instead = "smooth it with Randomized(), or promise smooth=True if its gradient is Lipschitz"

    @property
    def has_gradient(self) -> bool:
        """Whether `gradient` is a supergradient also at a kink, where differences need not be."""
        return self.slope is not None

    def lipschitz(self, n: int) -> float:
        return self.lipschitz_constant

    def _value(self, z: Vector) -> float:
        value = float(self.function(z.copy()))  # it may write into what it is given
        if np.isnan(value) or value == np.inf:
            raise InvalidInput(
                f"the value function of Custom returned {value} at z = {z.tolist()}; a concave "
                "function is a number, or -inf outside its domain"
            )
        return value

    def _slope(self, z: Vector) -> Vector:
        slope: Any = self.slope
        if slope is None:
            return self._differences(z)
        compiled = gradients.is_outside(slope)
        given = gradients.outside(z.size, slope).gradient(z, 0.0) if compiled else slope(z)
        g = finite_vector("the gradient that Custom's function returned", given)
        if g.size != z.size:
            raise InvalidInput(
                f"the gradient function of Custom returned {g.size} numbers for a z of length "
                f"{z.size}; return one for each coordinate"
            )
        return g

    def _differences(self, z: Vector) -> Vector:
        g = np.empty(z.size)
        point = z.copy()
        for i in range(z.size):
            h = _CUBE_ROOT * max(1.0, abs(z[i]))
            point[i] = z[i] - h
            below = self._value(point)
            point[i] = z[i] + h
            above = self._value(point)
            point[i] = z[i]
            if np.isfinite(below) and np.isfinite(above):
                g[i] = (above - below) / (2.0 * h)
            else:
                # One side is outside the domain: the slope towards the other one.
                here = self._value(z)
                g[i] = (above - here) / h if np.isfinite(above) else (here - below) / h
        return finite_vector("the gradient of Custom by differences", g)

    def _tree(self, n: int, parts: list[gradients.Tree]) -> gradients.Tree:
        if n not in self.__dict__.setdefault("_checked_sizes", set()):
            self.check(np.zeros(n), np.ones(n))
        if gradients.is_outside(self.slope):
            return gradients.outside(n, self.slope)
        return gradients.python(n, self._slope)

    def curvature(self, n: int) -> Vector:
        return np.zeros(n) if self.smooth else np.ones(n)  # smooth: no smoothing touches it

    def _check_smoothable(self) -> None:
        if not self.smooth:
            super()._check_smoothable()

    def _envelope(self, z: Vector, step: float) -> float:
        self._check_smoothable()
        return self._value(z)  # smooth as it is

    def _bound(self, scope: Scope) -> Concave:
        low, high = scope.box() if scope.box else (np.zeros(scope.size), np.ones(scope.size))
        self.check(low, high)
        return self

    def check(self, low: Vector, high: Vector) -> None:
        """Look for two points of the box that prove f not concave, or its gradient wrong."""
        rng = stream(0, "custom", "check")
        n = low.size
        pairs = low + (high - low) * rng.random((_PAIRS, 2, n))
        for (x, y), share in zip(pairs, rng.uniform(0.05, 0.95, _PAIRS), strict=True):
            self._require_concave(x, y, share)
        for x, y in pairs if self.slope is not None else ():
            fx, fy = self._value(x), self._value(y)
            if fx == -np.inf:
                continue
            reach = fx + float(self._slope(x) @ (y - x))
            if fy > reach + 1e-7 * (1.0 + abs(fx) + abs(fy)):
                for share in (0.01, 0.1, 0.5):  # a right gradient of a function that is not concave
                    self._require_concave(x, y, share)
                raise InvalidInput(
                    f"the gradient function of Custom is wrong: from x = {x.tolist()} it "
                    f"promises f <= {reach:.6g} at y = {y.tolist()}, where f is {fy:.6g}; a "
                    "supergradient must satisfy f(y) <= f(x) + <g(x), y - x>"
                )
        self.__dict__.setdefault("_checked_sizes", set()).add(n)

    def _require_concave(self, x: Vector, y: Vector, share: float) -> None:
        fx, fy, fm = self._value(x), self._value(y), self._value((1 - share) * x + share * y)
        chord = (1 - share) * fx + share * fy
        if chord > -np.inf and chord > fm + 1e-9 * (1.0 + abs(fx) + abs(fy)):
            raise NotConcave(
                f"the function of Custom is not concave: between x = {x.tolist()} "
                f"(f = {fx:.6g}) and y = {y.tolist()} (f = {fy:.6g}), at {share:.3g} of the "
                f"way, it is {fm:.6g}, below the chord's {chord:.6g}; give a concave function"
            )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (
            cls(_soft_minimum, _soft_minimum_gradient, smooth=True, lipschitz=1.0),
            cls(_least, _least_gradient, lipschitz=1.0),
        )


def _name(function: Any) -> str:
    return getattr(function, "__qualname__", repr(function))


def _soft_minimum(z: Vector) -> float:
    low = z.min()
    return float(low - np.log(np.exp(low - z).mean()))


def _soft_minimum_gradient(z: Vector) -> Vector:
    shares: Vector = np.exp(z.min() - z)
    normal: Vector = shares / shares.sum()
    return normal


def _least(z: Vector) -> float:
    return float(z.min())


def _least_gradient(z: Vector) -> Vector:
    unit: Vector = np.eye(z.size)[int(z.argmin())]
    return unit
