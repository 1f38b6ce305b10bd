"""Generalised Gini functions, of sorted rewards with non-increasing weights; `EqualExposure`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.errors import NotConcave
from fairwolfe.kernels.gradients import MANY_COORDINATES
from fairwolfe.objectives.concave import Concave, numbers
from fairwolfe.objectives.words import Names, Words, number

_LISTED = 8  # weights, in a description


class _Gini(Concave):
    """sum_j w_j z_(j) with z ascending and w non-increasing."""

    form = "generalized_gini"

    @abstractmethod
    def weights_for(self, n: int) -> Vector:
        """w for n coordinates."""

    def _value(self, z: Vector) -> float:
        return float(np.sort(z) @ self.weights_for(z.size))

    def lipschitz(self, n: int) -> float:
        return float(np.linalg.norm(self.weights_for(n)))

    def smoothness(self, n: int) -> float:
        # Equal weights make the order irrelevant: the function is linear.
        weights = self.weights_for(n)
        return 0.0 if weights[0] == weights[-1] else np.inf

    def scale(self, spans: Vector, usual: Vector) -> float:
        return float(np.abs(self.weights_for(spans.size)).sum() * spans.max())

    def _law(self, n: int) -> tuple[float, float, float, float] | None:
        """(a, b, c, first) with w_j = (a + b (2 j - 1))/c, and `first` more for j = 1."""
        return None

    def _params(self, n: int) -> Vector:
        """Prefix sums of the weights, (n + 1,); of many weights their law, if they have one."""
        law = self._law(n) if n >= MANY_COORDINATES else None
        if law is not None:
            return np.array(law)
        return np.concatenate([[0.0], np.cumsum(self.weights_for(n))])


@dataclass(frozen=True, repr=False)
class GeneralizedGini(_Gini):
    """f(z) = sum_j w_j z_(j), where z_(1) <= z_(2) <= ... and the weights never increase.

    Weights of any sign; equal weights make it linear, (1, 0, ..., 0) the minimum. Lipschitz
    constant |w|. Proximal map: the non-decreasing isotonic regression of z_(j) + step w_j, in
    O(n log n), or O(n) while the order of z changes little between calls.

    Reference: Example 1 and appendix "Multi-armed CBCR" of the paper.

    >>> GeneralizedGini([1.0, 0.5]).value([3.0, 1.0])
    2.5
    """

    weights: Sequence[float]
    unit = "weights"

    def __post_init__(self) -> None:
        weights = numbers("weights", self.weights)
        for j, (before, weight) in enumerate(pairwise(weights), start=1):
            if weight > before:
                raise NotConcave(
                    f"GeneralizedGini weights increase at position {j}: {before} is followed by "
                    f"{weight}; they must never increase (the worst-off count most), or the "
                    "function is not concave"
                )
        object.__setattr__(self, "weights", weights)

    @property
    def size(self) -> int | None:
        return len(self.weights)

    @property
    def smooth(self) -> bool:
        return self.weights[0] == self.weights[-1]

    def weights_for(self, n: int) -> Vector:
        return np.array(self.weights)

    def _words(self, names: Names) -> Words:
        weights = ", ".join(map(number, self.weights[:_LISTED]))
        more = ", ..." if len(self.weights) > _LISTED else ""
        kind = f"generalised Gini, weights {weights}{more} from the worst"
        return Words(((1.0, f"fairness of {names.every} ({kind})"),))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls((1.0, 0.5, 0.25, 0.125)), cls((2.0, 0.0, -1.0)), cls((0.5, 0.5))


@dataclass(frozen=True, repr=False)
class GiniWelfare(_Gini):
    """f(z) = sum_j (n - j + 1)/n z_(j): the welfare form of the Gini index.

    Lipschitz constant sqrt((n + 1)(2n + 1)/(6n)). Reference: appendix of the paper, "Objectives".

    >>> GiniWelfare().value([3.0, 1.0])
    2.5
    """

    def weights_for(self, n: int) -> Vector:
        weights = np.arange(n, 0.0, -1.0)
        weights /= n
        return weights

    def _law(self, n: int) -> tuple[float, float, float, float]:
        return 2.0 * n + 1.0, -1.0, 2.0 * n, 0.0

    def _words(self, names: Names) -> Words:
        return Words(((1.0, f"fairness of {names.every} (Gini welfare)"),))


@dataclass(frozen=True, repr=False)
class GiniEquality(_Gini):
    """f(z) = -1/(2n) sum_i sum_j |z_i - z_j|: 0 at equality, negative elsewhere.

    As a generalised Gini, w_j = (n + 1 - 2j)/n; equal to 2 GiniWelfare - (n + 1)/n sum z. Lipschitz
    constant sqrt((n^2 - 1)/(3n)). Reference: Eq. (2) of the paper.

    >>> GiniEquality().value([3.0, 1.0])
    -1.0
    """

    def weights_for(self, n: int) -> Vector:
        return (n + 1 - 2.0 * np.arange(1, n + 1)) / n

    def _law(self, n: int) -> tuple[float, float, float, float]:
        return float(n), -1.0, float(n), 0.0

    def _words(self, names: Names) -> Words:
        return Words(((1.0, f"equality of {names.every} (Gini)"),))


@dataclass(frozen=True, repr=False)
class Minimum(_Gini):
    """f(z) = min_i z_i: only the worst-off counts. Lipschitz constant 1.

    >>> Minimum().value([3.0, 1.0])
    1.0
    """

    def weights_for(self, n: int) -> Vector:
        first: Vector = np.eye(1, n)[0]
        return first

    def _law(self, n: int) -> tuple[float, float, float, float]:
        return 0.0, 0.0, 1.0, 1.0

    def _words(self, names: Names) -> Words:
        return Words(((1.0, f"the smallest of {names.several}"),))


@dataclass(frozen=True, repr=False)
class EqualExposure(Concave):
    """f(z) = -(1/n) |Cz|, with Cz = z - mean(z): the standard deviation over sqrt(n), negated.

    Lipschitz constant 1/n. Not differentiable exactly at its optimum, so it is smoothed. (The
    paper calls it "the standard deviation"; its formula has 1/n outside the root.)

    Reference: appendix of the paper, "Objectives", eq. expo.

    >>> EqualExposure().value([3.0, 1.0, 1.0, 3.0])
    -0.5
    """

    form = "equal_exposure"

    def _value(self, z: Vector) -> float:
        return -float(np.linalg.norm(z - z.mean())) / z.size

    def _words(self, names: Names) -> Words:
        return Words(((1.0, f"equality of {names.every} (standard deviation)"),))

    def lipschitz(self, n: int) -> float:
        return 1.0 / n
