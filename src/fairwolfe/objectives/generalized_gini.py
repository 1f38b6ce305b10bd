"""Generalised Gini functions: the worst-off count most."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.errors import NotConcave
from fairwolfe.objectives.concave import Concave, numbers

__all__ = ["GeneralizedGini", "GiniEquality", "GiniWelfare", "Minimum"]


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

    def _params(self, n: int) -> Vector:
        """Prefix sums of the weights, (n + 1,)."""
        return np.concatenate([[0.0], np.cumsum(self.weights_for(n))])


@dataclass(frozen=True)
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

    def __post_init__(self) -> None:
        weights = numbers("weights", self.weights)
        for j in range(1, len(weights)):
            if weights[j] > weights[j - 1]:
                raise NotConcave(
                    f"GeneralizedGini weights increase at position {j}: {weights[j - 1]} is "
                    f"followed by {weights[j]}; they must never increase (the worst-off count "
                    "most), or the function is not concave"
                )
        object.__setattr__(self, "weights", weights)

    @property
    def size(self) -> int | None:
        return len(self.weights)

    @property
    def smooth(self) -> bool:
        return self.weights[0] == self.weights[-1]

    def _described(self) -> str:
        return f"GeneralizedGini has {self.size} weights"

    def weights_for(self, n: int) -> Vector:
        return np.array(self.weights)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls((1.0, 0.5, 0.25, 0.125)), cls((2.0, 0.0, -1.0)), cls((0.5, 0.5))


@dataclass(frozen=True)
class GiniWelfare(_Gini):
    """f(z) = sum_j (n - j + 1)/n z_(j): the welfare form of the Gini index.

    Lipschitz constant sqrt((n + 1)(2n + 1)/(6n)). Reference: appendix of the paper, "Objectives".

    >>> GiniWelfare().value([3.0, 1.0])
    2.5
    """

    def weights_for(self, n: int) -> Vector:
        return np.arange(n, 0, -1) / n


@dataclass(frozen=True)
class GiniEquality(_Gini):
    """f(z) = -1/(2n) sum_i sum_j |z_i - z_j|: 0 at equality, negative elsewhere.

    As a generalised Gini, w_j = (n + 1 - 2j)/n; equal to 2 GiniWelfare - (n + 1)/n sum z. Lipschitz
    constant sqrt((n^2 - 1)/(3n)). Reference: Eq. (2) of the paper.

    >>> GiniEquality().value([3.0, 1.0])
    -1.0
    """

    def weights_for(self, n: int) -> Vector:
        return (n + 1 - 2.0 * np.arange(1, n + 1)) / n


@dataclass(frozen=True)
class Minimum(_Gini):
    """f(z) = min_i z_i: only the worst-off counts. Lipschitz constant 1.

    >>> Minimum().value([3.0, 1.0])
    1.0
    """

    def weights_for(self, n: int) -> Vector:
        first: Vector = np.eye(1, n)[0]
        return first
