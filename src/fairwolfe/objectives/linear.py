"""`Linear`: fixed weights, the trade-off every other library stops at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Frozen
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives.concave import Concave, Scope, numbers

__all__ = ["Linear"]


@dataclass(frozen=True)
class Linear(Concave):
    """f(z) = <w, z>.

    Weights may have any sign, and may be given by name: rewards that are not named weigh 0.
    Lipschitz constant |w|; smooth (its envelope only adds the constant step |w|^2 / 2).

    >>> Linear([1.0, -2.0]).value([3.0, 1.0])
    1.0
    """

    weights: Sequence[float] | Mapping[str, float]
    form = "linear"

    def __post_init__(self) -> None:
        if isinstance(self.weights, Mapping):
            values = numbers("weights", self.weights.values())
            named = Frozen(dict(zip(self.weights, values, strict=True)))
            object.__setattr__(self, "weights", named)
        else:
            object.__setattr__(self, "weights", numbers("weights", self.weights))

    @property
    def size(self) -> int | None:
        return None if isinstance(self.weights, Mapping) else len(self.weights)

    def _vector(self) -> tuple[float, ...]:
        if isinstance(self.weights, Mapping):
            raise InvalidInput(
                f"{self} names its rewards ({', '.join(self.weights)}), so it needs a problem to "
                "know their coordinates; call .bind(problem) first"
            )
        return tuple(self.weights)

    def _bound(self, scope: Scope) -> Concave:
        if not isinstance(self.weights, Mapping):
            return self
        weights = np.zeros(scope.size)
        for name, weight in self.weights.items():
            weights[scope.index(name)] += weight
        return Linear(weights.tolist())

    def _described(self) -> str:
        return f"Linear has {self.size} weights"

    def _value(self, z: Vector) -> float:
        return float(np.dot(self._vector(), z))

    def lipschitz(self, n: int) -> float:
        return float(np.linalg.norm(self._vector()))

    def smoothness(self, n: int) -> float:
        return 0.0

    def scale(self, spans: Vector, usual: Vector) -> float:
        return float(np.abs(self._vector()) @ spans)

    def curvature(self, n: int) -> Vector:
        return np.zeros(n)

    def _params(self, n: int) -> Vector:
        return np.array(self._vector())

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls((1.0, 0.5, -0.25)), cls((2.0,))
