"""Additive welfare: `Welfare` (powers) and `Nash` (logarithms)."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import number_where, real_number
from fairwolfe.errors import InvalidInput, NotConcave
from fairwolfe.objectives.concave import Concave, Scope, numbers
from fairwolfe.objectives.words import Names, Words, number


class _Additive(Concave):
    """sum_i phi(z_i + offset) for a phi that bends most, and may end, at 0."""

    offset: float
    low: float | tuple[float, ...]
    unit = "numbers in low"
    curved = True

    @property
    def size(self) -> int | None:
        return len(self.low) if isinstance(self.low, tuple) else None

    @abstractmethod
    def _slope_at(self, x: float, times: float = 1.0) -> float:
        """A multiple of phi'(x), x >= 0."""

    @abstractmethod
    def _bend_at(self, x: float) -> float:
        """-phi''(x), x >= 0."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        least = "a number of at least 0"
        offset = number_where(f"the offset of {name}", self.offset, lambda x: x >= 0.0, least)
        object.__setattr__(self, "offset", offset)
        several = isinstance(self.low, tuple | list)
        low = numbers("low", self.low if several else (self.low,))  # type: ignore[arg-type]
        if not self.everywhere and min(low) < -offset:
            raise InvalidInput(
                f"low is {min(low)}, but {name} is -inf below {0.0 - offset}; give at least that"
            )
        object.__setattr__(self, "low", low if several else low[0])

    def _bound(self, scope: Scope) -> Concave:
        if self.everywhere or scope.reach is None:
            return self
        low, rounding = scope.reach.low()
        room = self.offset + low
        worst = int((room + rounding).argmin())
        if room[worst] < -rounding[worst]:
            raise InvalidInput(
                f"{self} is -inf below {0.0 - self.offset:g}, and its input can be as low as "
                f"{low[worst]:g}: {scope.reach.blame(worst)}; give an offset of at least "
                f"{-low[worst]:g}, larger for a Lipschitz constant, or map the rewards to "
                "numbers >= 0"
            )
        low = np.where(room <= rounding, -self.offset, low) + 0.0
        lows = float(low[0]) if (low == low[0]).all() else tuple(low.tolist())
        return replace(self, low=lows)  # type: ignore[type-var]

    def _room(self) -> list[float]:
        """z_i + offset at its smallest: of each coordinate, or one number for all."""
        lows = self.low if isinstance(self.low, tuple) else (self.low,)
        return [self.offset + low for low in lows]

    def lipschitz(self, n: int) -> float:
        if isinstance(self.low, tuple):
            return float(np.linalg.norm([self._slope_at(x) for x in self._room()]))
        return self._slope_at(self.offset + self.low, float(np.sqrt(n)))

    def smoothness(self, n: int) -> float:
        return max(self._bend_at(x) for x in self._room())

    def scale(self, spans: Vector, usual: Vector) -> float:
        inside = np.maximum(usual + self.offset, 1e-300).tolist()
        return float(sum(self._slope_at(x) * x for x in inside))  # of Nash the number of its terms

    def bend(self, z: Vector) -> float:
        inside = {x for x in (z + self.offset).tolist() if x > 0.0}
        return max(map(self._bend_at, inside), default=np.inf)


@dataclass(frozen=True, repr=False)
class Welfare(_Additive):
    """f(z) = sum_i (z_i + offset)^alpha on z >= -offset, with 0 < alpha <= 1.

    The smaller alpha, the more goes to the worst-off; alpha = 1 is the plain sum. Where z_i can
    come to -offset the slope is infinite: Lipschitz constant inf, and Moreau smoothing makes it
    usable from the first round. Elsewhere it is smooth, and with x_i = low_i + offset the constant
    is alpha |(x_1^(alpha - 1), ..., x_n^(alpha - 1))|.

    `low` is the smallest value of z, one number for all coordinates or one for each: 0, until
    `bind` takes it from the ranges of the problem (never above 0, where averages begin). Ranges
    that reach below -offset raise an error there.

    Reference: appendix of the paper, "Objectives", welf (which prints alpha > 0).

    >>> Welfare(0.5).value([4.0, 9.0])
    5.0
    """

    alpha: float
    offset: float = 0.0
    low: float | tuple[float, ...] = 0.0
    form = "welfare"

    def __post_init__(self) -> None:
        alpha = real_number("alpha", self.alpha)
        if not (np.isfinite(alpha) and 0.0 < alpha <= 1.0):
            kind = NotConcave if alpha > 1.0 else InvalidInput
            raise kind(
                f"alpha is {self.alpha!r}; Welfare is concave and increasing for 0 < alpha <= 1 "
                "only (for a limit towards alpha = 0 use Nash)"
            )
        object.__setattr__(self, "alpha", alpha)
        super().__post_init__()

    @property
    def everywhere(self) -> bool:
        return self.alpha == 1.0

    def _value(self, z: Vector) -> float:
        x = z + self.offset
        if self.alpha == 1.0:
            return float(x.sum())
        return -np.inf if x.min() < 0.0 else float((x**self.alpha).sum())

    def _words(self, names: Names) -> Words:
        offset = f", offset {number(self.offset)}" if self.offset else ""
        kind = f"power {number(self.alpha)}{offset}"
        return Words(((1.0, f"welfare of {names.every} ({kind})"),))

    def _prox_point(self, z: Vector, step: float, g: Vector) -> Vector:
        point = z + step * g
        if self.alpha < 1.0:
            # Far outside the domain, z + step g would round to the wrong side of its edge: there
            # the point y comes from g = alpha y^(alpha - 1).
            far = z + self.offset <= 0.0
            root = (self.alpha / g[far]) ** (1.0 / (1.0 - self.alpha))
            point[far] = np.maximum(root - self.offset, -self.offset)
        return point

    def _slope_at(self, x: float, times: float = 1.0) -> float:
        if self.alpha == 1.0:
            return times
        return times * (self.alpha * x ** (self.alpha - 1.0)) if x else np.inf

    def _bend_at(self, x: float) -> float:
        if self.alpha == 1.0:
            return 0.0
        return self._slope_at(x) * (1.0 - self.alpha) / x if x else np.inf

    def _params(self, n: int) -> Vector:
        return np.array([self.alpha, self.offset])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(0.5), cls(0.9, offset=0.1), cls(1.0)


@dataclass(frozen=True, repr=False)
class Nash(_Additive):
    """f(z) = sum_i log(z_i + offset): proportional fairness.

    Where z_i can come to -offset the slope is infinite: Lipschitz constant inf. Elsewhere the
    function is smooth, with the constant |(1/x_1, ..., 1/x_n)| for x_i = low_i + offset; `low` is
    as in `Welfare`. Proximal map (z + sqrt(z^2 + 4 step))/2.

    >>> round(Nash().value([2.0, 4.0]), 6)
    2.079442
    """

    offset: float = 0.0
    low: float | tuple[float, ...] = 0.0
    form = "nash"
    everywhere = False

    def _value(self, z: Vector) -> float:
        x = z + self.offset
        return -np.inf if x.min() <= 0.0 else float(np.log(x).sum())

    def _words(self, names: Names) -> Words:
        offset = f", offset {number(self.offset)}" if self.offset else ""
        return Words(((1.0, f"proportional fairness of {names.every} (Nash{offset})"),))

    def _prox_point(self, z: Vector, step: float, g: Vector) -> Vector:
        # Outside the domain z + step g would round to the wrong side of its edge; g is 1/y.
        return np.where(z + self.offset > 0.0, z + step * g, 1.0 / g - self.offset)

    def _slope_at(self, x: float, times: float = 1.0) -> float:
        return times / x if x else np.inf

    def _bend_at(self, x: float) -> float:
        return (1.0 / x) * (1.0 / x) if x else np.inf

    def _params(self, n: int) -> Vector:
        return np.array([self.offset])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(), cls(offset=0.1)
