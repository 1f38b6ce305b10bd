"""Objectives and smoothings that each break one promise, and the checks that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput, NoProx
from fairwolfe.objectives import Concave, Linear, Minimum, Nash, On
from fairwolfe.smoothing import Identity, Moreau


class _Frozen:
    """What a frozen dataclass does not hand down to subclasses that are none."""

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)


class _Broken(_Frozen, Linear):
    """z_0 + 2 z_1 + 3 z_2, right in all that a subclass does not break."""

    def __init__(self) -> None:
        super().__init__((1.0, 2.0, 3.0))

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class Intact(_Broken):
    """Nothing is wrong."""


@dataclass(unsafe_hash=True)
class Mutable(Concave):
    """-sum z, with an attribute that can be set."""

    form = Linear.form
    slope: float = -1.0

    def _value(self, z: Vector) -> float:
        return self.slope * float(z.sum())

    def _params(self, n: int) -> Vector:
        return np.full(n, self.slope)

    def lipschitz(self, n: int) -> float:
        return abs(self.slope) * float(np.sqrt(n))

    def smoothness(self, n: int) -> float:
        return 0.0


class Unequal(_Broken):
    __hash__ = _Broken.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other


class Unprintable(_Broken):
    def __repr__(self) -> str:
        return "Linear((1.0, 2.0, 4.0))"


class NanOutside(_Broken):
    def _value(self, z: Vector) -> float:
        return super()._value(z) if z.min() >= 0.0 else np.nan


class Scribbling(_Broken):
    """Writes into z, where it may."""

    def value(self, z: Vector) -> float:
        total = super().value(z)
        z *= 1.0 + 1e-12
        return total


class NotAFloat(_Broken):
    def value(self, z: Vector) -> float:
        return np.longdouble(super().value(z))  # type: ignore[return-value]


class Convex(_Broken):
    """|z|^2: not concave, so that nothing can be a supergradient everywhere."""

    def _value(self, z: Vector) -> float:
        return float(z @ z)

    @property
    def has_prox(self) -> bool:
        return False

    def lipschitz(self, n: int) -> float:
        return 2.0 * float(np.sqrt(n)) + 4.0


class WrongSign(_Broken):
    @property
    def has_prox(self) -> bool:
        return False

    def _params(self, n: int) -> Vector:
        return -super()._params(n)


class TooFlat(_Broken):
    def lipschitz(self, n: int) -> float:
        return 0.9 * super().lipschitz(n)


class NegativeSlope(_Broken):
    def lipschitz(self, n: int) -> float:
        return -1.0


class WrongProx(_Broken):
    def prox(self, z: Vector, step: float) -> Vector:
        return 2.0 * super().prox(z, step) - self._checked(z)


class ProxOfAnother(_Broken):
    """The prox for half of the step: the argument of the theorem, at the wrong point."""

    def prox(self, z: Vector, step: float) -> Vector:
        return super().prox(z, 0.5 * step)


class NotSmooth(_Frozen, Minimum):
    """Claims a Lipschitz gradient that the minimum does not have."""

    def smoothness(self, n: int) -> float:
        return 1.0

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class _Curved(_Frozen, Nash):
    """sum ln(z + 0.1), right in all that a subclass does not break."""

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(0.1),)


class HalfAsCurved(_Curved):
    """Half of the constant that it needs, and it needs it at 0 only."""

    def smoothness(self, n: int) -> float:
        return 0.5 * super().smoothness(n)


class HalfAsCurvedWhenBound(_Curved):
    """The same, of what it says once it knows the ranges."""

    def bind(self, problem: Problem) -> Concave:
        return HalfAsCurved(self.offset)


class HalfAsSteep(_Curved):
    """Half of the slope that it has at 0."""

    def lipschitz(self, n: int) -> float:
        return 0.5 * super().lipschitz(n)


class Kinked(_Frozen, Minimum):
    """Promises to be smooth, and names no constant."""

    @property
    def smooth(self) -> bool:
        return True

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class SometimesProx(_Broken):
    """Has a proximal map where it pleases."""

    def prox(self, z: Vector, step: float) -> Vector:
        if z[0] > 0.8:
            raise NoProx("not here")
        return super().prox(z, step)


class SmoothAtLarge(_Broken):
    @property
    def smooth(self) -> bool:
        return 1  # type: ignore[return-value]


class Trusting(_Broken):
    """Lets NaN in."""

    def _checked(self, z: Vector) -> Vector:
        return np.asarray(z, dtype=np.float64)


class AimsSorted(_Broken):
    """Forgets the order of the coordinates."""

    def on(self, *coordinates: str | int) -> On:
        return super().on(*sorted(coordinates, key=str))


class BindsToAnother(_Broken):
    def bind(self, problem: Problem) -> Concave:
        return 2.0 * super().bind(problem)


class Remembering(_Broken):
    """The number of calls changes its results, by less than any inequality notices."""

    def _gradient(self, z: Vector, step: float) -> Vector:
        calls = self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        g: Vector = self._params(z.size) + 4e-16 * calls
        return g


class AddsAnother(_Broken):
    def __add__(self, other: object) -> Any:
        return super().__add__(other) + Minimum()


OBJECTIVE_FAULTS: dict[type, set[str]] = {
    Intact: set(),
    Mutable: {"is_a_value"},
    Unequal: {"is_a_value"},
    Unprintable: {"is_a_value"},
    NanOutside: {"has_values"},
    NotAFloat: {"has_values"},
    Scribbling: {"has_values", "can_be_bound"},
    Convex: {"is_concave", "has_supergradients"},
    WrongSign: {"has_supergradients"},
    TooFlat: {"is_lipschitz"},
    NegativeSlope: {"is_lipschitz"},
    WrongProx: {"has_prox_or_says_no"},
    ProxOfAnother: {"has_prox_or_says_no"},
    NotSmooth: {"is_smooth_if_it_says_so"},
    _Curved: set(),
    HalfAsCurved: {"is_smooth_if_it_says_so"},
    HalfAsCurvedWhenBound: {"is_smooth_if_it_says_so"},
    HalfAsSteep: {"is_lipschitz"},
    Kinked: {"is_smooth_if_it_says_so"},
    SometimesProx: {"has_prox_or_says_no"},
    SmoothAtLarge: {"is_smooth_if_it_says_so"},
    Trusting: {"refuses_bad_input"},
    AimsSorted: {"can_be_aimed"},
    BindsToAnother: {"can_be_bound"},
    Remembering: {"has_a_compiled_gradient"},
    AddsAnother: {"has_a_compiled_gradient"},
}


class Rough(_Frozen, Moreau):
    """A broken smoothing."""

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(beta0=1.0),)


class MutableSmoothing:
    """Moreau, but anybody can change it."""

    def __init__(self) -> None:
        self.inner = Moreau(1.0)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, MutableSmoothing)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "MutableSmoothing()"

    def __getattr__(self, name: str) -> Any:
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def value(self, objective: Any, z: Vector, t: int, rng: Any = None) -> float:
        return self.inner.value(objective, z, t, rng)

    def gradient(self, objective: Any, z: Vector, t: int, rng: Any = None) -> Vector:
        return self.inner.gradient(objective, z, t, rng)

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


class FarAway(Rough):
    """M_2 of a tenth."""

    def m_2(self, objective: Concave, n: int) -> float:
        return 0.1 * super().m_2(objective, n)

    def m_1(self, objective: Concave, n: int) -> float:
        return 5.0 * self.m_2(objective, n)


class Jumping(Rough):
    """M_1 of a tenth."""

    def m_1(self, objective: Concave, n: int) -> float:
        return 0.1 * super().m_1(objective, n)


class Bending(Rough):
    """beta_0 twice too large: it promises to bend less than it does."""

    def beta_0(self, objective: Concave, n: int) -> float:
        return 2.0 * super().beta_0(objective, n)


class BendingAsItIs(_Frozen, Identity):
    """The same, where f is left as it is."""

    def beta_0(self, objective: Concave, n: int) -> float:
        return 2.0 * super().beta_0(objective, n)


class Fastidious(Rough):
    """Will not have any objective but a linear one of three."""

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        if z.size != 3 or objective != Linear((1.0, -2.0, 0.5)):
            raise InvalidInput("another, please")
        return super().gradient(objective, z, t, rng)


class Steep(Rough):
    """Right for linear functions, too steep for the others."""

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        g = super().gradient(objective, z, t, rng)
        return g if isinstance(objective, Linear) else 1.5 * g

    def beta_0(self, objective: Concave, n: int) -> float:
        return 0.1 * super().beta_0(objective, n)


class Lucky(Rough):
    """Draws from a generator of its own."""

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        return super().gradient(objective, z, t, rng) * (1.0 - 1e-12 * NOISE.random())


NOISE = np.random.default_rng(0)


class Shrinking(Rough):
    """Loses a tenth of every gradient, also of a linear function's."""

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        return 0.9 * super().gradient(objective, z, t, rng)


SMOOTHING_FAULTS: dict[type, set[str]] = {
    Rough: set(),
    MutableSmoothing: {"is_a_value"},
    FarAway: {"approaches"},
    Jumping: {"approaches"},
    Bending: {"has_lipschitz_gradients"},
    BendingAsItIs: {"has_lipschitz_gradients"},
    Fastidious: {"approaches", "has_lipschitz_gradients"},
    Steep: {"has_lipschitz_gradients"},
    Lucky: {"needs_no_luck"},
    Shrinking: {"needs_no_luck"},
}
