"""Additive welfare: `Welfare` (powers) and `Nash` (logarithms)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from fairwolfe._compile import kernel
from fairwolfe.errors import InvalidInput, NotConcave
from fairwolfe.objectives.concave import GRADIENT, Concave
from fairwolfe.problem import real_number
from fairwolfe.protocols import Vector

__all__ = ["Nash", "Welfare"]


@kernel
def power_prox(z: float, step: float, alpha: float) -> float:
    """The root y >= 0 of y - z = step alpha y^(alpha - 1), for 0 < alpha < 1.

    The difference of both sides is increasing and concave in y, so Newton's method from any point
    left of the root rises to it. Left of it are z and s = (step alpha)^(1/(2 - alpha)) for z >= 0,
    and (step alpha/(s - z))^(1/(1 - alpha)) < s for z < 0.
    """
    pull = step * alpha
    y = pull ** (1.0 / (2.0 - alpha))
    if z >= 0.0:
        y = max(y, z)
    else:
        y = (pull / (y - z)) ** (1.0 / (1.0 - alpha))
    if y < 1e-290:
        return 0.0  # the root is below what a float can hold with its power
    for _ in range(100):
        force = pull * y ** (alpha - 1.0)
        better = y - (y - z - force) / (1.0 + (1.0 - alpha) * force / y)
        if better <= y * (1.0 + 4e-16):
            return float(max(better, y))
        y = better
    return float(y)


@kernel(signature=GRADIENT)
def welfare(z: Vector, step: float, params: Vector, work: Vector, out: Vector) -> None:
    """params: alpha, offset. As alpha y^(alpha - 1): (prox - z)/step would lose half the digits."""
    alpha, offset = params[0], params[1]
    for i in range(z.size):
        x = z[i] + offset
        if alpha == 1.0:
            out[i] = 1.0
        elif step == 0.0:
            out[i] = alpha * x ** (alpha - 1.0) if x >= 0.0 else np.inf
        else:
            y = power_prox(x, step, alpha)
            out[i] = alpha * y ** (alpha - 1.0) if x > 0.0 else (y - x) / step


@kernel(signature=GRADIENT)
def nash(z: Vector, step: float, params: Vector, work: Vector, out: Vector) -> None:
    """params: offset. The gradient is 1/prox, each branch without cancellation."""
    for i in range(z.size):
        x = z[i] + params[0]
        if step == 0.0:
            out[i] = 1.0 / x if x > 0.0 else np.inf
        else:
            root = np.sqrt(x * x + 4.0 * step)
            out[i] = 2.0 / (x + root) if x >= 0.0 else (root - x) / (2.0 * step)


def _checked_offset(name: str, offset: float) -> float:
    number = real_number(f"the offset of {name}", offset)
    if not (np.isfinite(number) and number >= 0.0):
        raise InvalidInput(f"the offset of {name} is {offset!r}; give a number of at least 0")
    return number


@dataclass(frozen=True)
class Welfare(Concave):
    """f(z) = sum_i (z_i + offset)^alpha on z >= -offset, with 0 < alpha <= 1.

    The smaller alpha, the more goes to the worst-off; alpha = 1 is the plain sum. Without an offset
    the slope at 0 is infinite: Lipschitz constant inf, and Moreau smoothing makes it usable from
    the first round. With an offset, sqrt(n) alpha offset^(alpha - 1), and the function is smooth.

    Reference: appendix of the paper, "Objectives", welf (which prints alpha > 0).

    >>> Welfare(0.5).value([4.0, 9.0])
    5.0
    """

    alpha: float
    offset: float = 0.0
    kernel = welfare

    def __post_init__(self) -> None:
        alpha = real_number("alpha", self.alpha)
        if not (np.isfinite(alpha) and 0.0 < alpha <= 1.0):
            kind = NotConcave if alpha > 1.0 else InvalidInput
            raise kind(
                f"alpha is {self.alpha!r}; Welfare is concave and increasing for 0 < alpha <= 1 "
                "only (for a limit towards alpha = 0 use Nash)"
            )
        object.__setattr__(self, "alpha", alpha)
        object.__setattr__(self, "offset", _checked_offset("Welfare", self.offset))

    @property
    def everywhere(self) -> bool:
        return self.alpha == 1.0

    def _value(self, z: Vector) -> float:
        x = z + self.offset
        if self.alpha == 1.0:
            return float(x.sum())
        return -np.inf if x.min() < 0.0 else float((x**self.alpha).sum())

    def _prox_point(self, z: Vector, step: float, g: Vector) -> Vector:
        point = z + step * g
        if self.alpha < 1.0:
            # Far outside the domain, z + step g would round to the wrong side of its edge: there
            # the point y comes from g = alpha y^(alpha - 1).
            far = z + self.offset <= 0.0
            root = (self.alpha / g[far]) ** (1.0 / (1.0 - self.alpha))
            point[far] = np.maximum(root - self.offset, -self.offset)
        return point

    def lipschitz(self, n: int) -> float:
        return float(np.sqrt(n)) * self._slope()

    def _slope(self) -> float:
        if self.alpha == 1.0:
            return 1.0
        return self.alpha * self.offset ** (self.alpha - 1.0) if self.offset else np.inf

    def smoothness(self, n: int) -> float:
        if self.alpha == 1.0:
            return 0.0
        return self._slope() * (1.0 - self.alpha) / self.offset if self.offset else np.inf

    def _params(self, n: int) -> Vector:
        return np.array([self.alpha, self.offset])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(0.5), cls(0.9, offset=0.1), cls(1.0)


@dataclass(frozen=True)
class Nash(Concave):
    """f(z) = sum_i log(z_i + offset): proportional fairness.

    Without an offset the slope at 0 is infinite: Lipschitz constant inf. With one, sqrt(n)/offset
    on z >= 0, and the function is smooth there. Proximal map (z + sqrt(z^2 + 4 step))/2.

    >>> round(Nash().value([2.0, 4.0]), 6)
    2.079442
    """

    offset: float = 0.0
    kernel = nash

    def __post_init__(self) -> None:
        object.__setattr__(self, "offset", _checked_offset("Nash", self.offset))

    @property
    def everywhere(self) -> bool:
        return False

    def _value(self, z: Vector) -> float:
        x = z + self.offset
        return -np.inf if x.min() <= 0.0 else float(np.log(x).sum())

    def _prox_point(self, z: Vector, step: float, g: Vector) -> Vector:
        # Outside the domain z + step g would round to the wrong side of its edge; g is 1/y.
        return np.where(z + self.offset > 0.0, z + step * g, 1.0 / g - self.offset)

    def lipschitz(self, n: int) -> float:
        return float(np.sqrt(n)) / self.offset if self.offset else np.inf

    def smoothness(self, n: int) -> float:
        return self.offset**-2.0 if self.offset else np.inf

    def _params(self, n: int) -> Vector:
        return np.array([self.offset])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(offset=0.1)
