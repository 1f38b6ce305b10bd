"""`Linear`: a weighted sum of the rewards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.objectives.concave import Concave, Scope, by_name, unbound
from fairwolfe.objectives.words import Names, Words

_LISTED = 4  # terms of equal weight, in a description


@dataclass(frozen=True, repr=False)
class Linear(Concave):
    """f(z) = <w, z>.

    Weights may have any sign, and may be given by name: rewards that are not named weigh 0.
    Lipschitz constant |w|; smooth (its envelope only adds the constant step |w|^2 / 2).

    >>> Linear([1.0, -2.0]).value([3.0, 1.0])
    1.0
    """

    weights: Sequence[float] | Mapping[str, float]
    form = "linear"
    unit = "weights"

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", by_name("weights", self.weights))

    @property
    def size(self) -> int | None:
        return None if isinstance(self.weights, Mapping) else len(self.weights)

    def _vector(self) -> tuple[float, ...]:
        if isinstance(self.weights, Mapping):
            raise unbound(self, self.weights)
        return tuple(self.weights)

    def _bound(self, scope: Scope) -> Concave:
        if not isinstance(self.weights, Mapping):
            return self
        weights = np.zeros(scope.size)
        for name, weight in self.weights.items():
            weights[scope.index(name)] += weight
        return Linear(weights.tolist())

    def _value(self, z: Vector) -> float:
        return float(np.dot(self._vector(), z))

    def _words(self, names: Names) -> Words:
        weights = self.weights
        pairs = weights.items() if isinstance(weights, Mapping) else enumerate(weights)
        used = [(weight, key) for key, weight in pairs if weight]
        if len(used) > _LISTED and len({weight for weight, _ in used}) == 1:
            return Words(
                ((used[0][0], f"the sum of {names.part([key for _, key in used]).several}"),)
            )
        return Words(tuple((weight, names.name(key)) for weight, key in used))

    def lipschitz(self, n: int) -> float:
        return float(np.linalg.norm(self._vector()))

    def smoothness(self, n: int) -> float:
        return 0.0

    def scale(self, spans: Vector, usual: Vector) -> float:
        return float(np.abs(self._vector()) @ spans)

    def curvature(self, n: int) -> Vector:
        return np.broadcast_to(0.0, (n,))

    def _params(self, n: int) -> Vector:
        return np.array(self._vector())

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls((1.0, 0.5, -0.25)), cls((2.0,))
