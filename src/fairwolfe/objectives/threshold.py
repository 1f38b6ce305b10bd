"""Floors and ceilings: `AtLeast` and `AtMost`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Frozen, real_number
from fairwolfe.errors import InvalidInput, NotConcave
from fairwolfe.kernels.compile import kernel
from fairwolfe.objectives.concave import GRADIENT, Concave, Scope, numbers

__all__ = ["AtLeast", "AtMost"]


@kernel(signature=GRADIENT)
def threshold(z: Vector, step: float, params: Vector, work: Vector, out: Vector) -> None:
    """params: penalty, sign (+1 floor, -1 ceiling), levels. The slope is clipped to the penalty.

    z, out (n,), params (2 + n,). work: not used.
    """
    penalty, sign = params[0], params[1]
    for i in range(z.size):
        missing = sign * (params[2 + i] - z[i])
        if missing <= 0.0:
            out[i] = 0.0
        elif step == 0.0:
            out[i] = sign * penalty
        else:
            out[i] = sign * min(missing / step, penalty)


@dataclass(frozen=True)
class _Threshold(Concave):
    """-penalty sum_i max(0, sign (level_i - z_i))."""

    level: float | Sequence[float] | Mapping[str, float]
    penalty: float

    kernel = threshold
    _sign: ClassVar[float]

    def __post_init__(self) -> None:
        level: object = self.level
        if isinstance(level, Mapping):
            values = numbers("level", level.values())
            level = Frozen(dict(zip(level, values, strict=True)))
        elif np.ndim(level) == 0:  # type: ignore[arg-type]
            level = numbers("level", [level])[0]  # type: ignore[list-item]
        else:
            level = numbers("level", level)  # type: ignore[arg-type]
        object.__setattr__(self, "level", level)
        penalty = real_number(f"the penalty of {type(self).__name__}", self.penalty)
        if not (np.isfinite(penalty) and penalty >= 0.0):
            kind = NotConcave if penalty < 0.0 else InvalidInput
            raise kind(
                f"the penalty of {type(self).__name__} is {self.penalty!r}; give a finite number "
                "of at least 0 (it is paid for each unit beyond the level)"
            )
        object.__setattr__(self, "penalty", penalty)

    @property
    def size(self) -> int | None:
        return len(self.level) if isinstance(self.level, tuple) else None

    def _described(self) -> str:
        return f"{type(self).__name__} has {self.size} levels"

    def _bound(self, scope: Scope) -> Concave:
        if not isinstance(self.level, Mapping):
            return self
        places = [scope.index(name) for name in self.level]
        return type(self)(tuple(self.level.values()), self.penalty).on(*places)._bound(scope)

    def _levels(self, n: int) -> Vector:
        if isinstance(self.level, Mapping):
            raise InvalidInput(
                f"{self} names its rewards ({', '.join(self.level)}), so it needs a problem to "
                "know where they stand; call .bind(problem) first"
            )
        return np.broadcast_to(np.asarray(self.level, dtype=np.float64), (n,))

    def _value(self, z: Vector) -> float:
        missing = self._sign * (self._levels(z.size) - z)
        return 0.0 - self.penalty * float(np.maximum(missing, 0.0).sum())

    def lipschitz(self, n: int) -> float:
        return self.penalty * float(np.sqrt(n))

    def _params(self, n: int) -> Vector:
        return np.concatenate([[self.penalty, self._sign], self._levels(n)])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(0.5, penalty=2.0), cls((0.2, 0.6, 0.4), penalty=0.5)


@dataclass(frozen=True)
class AtLeast(_Threshold):
    """f(z) = -penalty sum_i max(0, level_i - z_i): a floor under the rewards.

    One level for all coordinates, one for each, or some by name. A penalty larger than any gain
    that missing the floor could bring makes it a constraint. Lipschitz constant penalty sqrt(n).

    >>> AtLeast(0.5, penalty=10.0).value([0.25, 0.8])
    -2.5
    """

    _sign = 1.0


@dataclass(frozen=True)
class AtMost(_Threshold):
    """f(z) = -penalty sum_i max(0, z_i - level_i): a ceiling over the rewards, such as a budget.

    >>> AtMost(0.5, penalty=10.0).value([0.75, 0.1])
    -2.5
    """

    _sign = -1.0
