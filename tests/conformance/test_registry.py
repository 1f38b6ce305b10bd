"""Every class of the registry keeps its contract; and every check can fail."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import fairwolfe.objectives
import fairwolfe.smoothing
from fairwolfe._compile import kernel
from fairwolfe.checks import (
    CONTRACTS,
    OBJECTIVE_CHECKS,
    SMOOTHING_CHECKS,
    _contract,
    check,
    outcomes,
)
from fairwolfe.checks.promise import examples_of
from fairwolfe.errors import ConformanceError, InvalidInput
from fairwolfe.objectives import Concave, Linear, Minimum, On
from fairwolfe.objectives.concave import GRADIENT
from fairwolfe.problem import Problem
from fairwolfe.protocols import Vector
from fairwolfe.registry import KINDS, load, names
from fairwolfe.smoothing import Moreau
from fairwolfe.streams import stream


def checks_of(kind: str, name: str) -> list[Any]:
    """The checks of a class, found by the contract of its first example."""
    return CONTRACTS[_contract(examples_of(load(kind, name))[0])]


def entries() -> Iterator[tuple[str, str, str]]:
    for kind in KINDS:
        for name in names(kind):
            try:
                found = [one.__name__ for one in checks_of(kind, name)]
            except Exception:
                found = ["loads"]  # the test then raises the same again
            yield from ((kind, name, one) for one in found)


@pytest.mark.parametrize(("kind", "name", "wanted"), list(entries()))
def test_every_class_of_the_registry_keeps_its_contract(kind: str, name: str, wanted: str) -> None:
    one = next(c for c in checks_of(kind, name) if c.__name__ == wanted)
    for example in examples_of(load(kind, name)):
        one(example, stream(0, "checks", wanted))


@pytest.mark.parametrize(
    ("module", "kind"),
    [(fairwolfe.objectives, "objectives"), (fairwolfe.smoothing, "smoothings")],
    ids=["objectives", "smoothings"],
)
def test_every_public_class_is_in_the_registry(module: Any, kind: str) -> None:
    public = {getattr(module, name) for name in module.__all__}
    concrete = {c for c in public if inspect.isclass(c) and not inspect.isabstract(c)}
    assert concrete == {load(kind, name) for name in KINDS[kind]}


def test_every_leaf_of_the_package_is_reached_by_the_checks() -> None:
    """No concrete subclass of Concave of the package hides from the registry."""

    def below(cls: type) -> Iterator[type]:
        for sub in cls.__subclasses__():
            yield sub
            yield from below(sub)

    concrete = {
        sub
        for sub in below(Concave)
        if sub.__module__.startswith("fairwolfe.")
        and not inspect.isabstract(sub)
        and not sub.__name__.startswith("_")
    }
    assert concrete == {load("objectives", name) for name in KINDS["objectives"]}


# --- every check can fail --------------------------------------------------------------------


class _Broken(Linear):
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

    kernel = Linear.kernel
    slope: float = -1.0

    def _value(self, z: Vector) -> float:
        return self.slope * float(z.sum())

    def _params(self, n: int) -> Vector:
        return np.full(n, self.slope)

    def lipschitz(self, n: int) -> float:
        return abs(self.slope) * n**0.5

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
    def value(self, z: Vector) -> float:
        total = super().value(z)
        z[0] = 0.0
        return total


class NotAFloat(_Broken):
    def value(self, z: Vector) -> float:
        return np.array([super().value(z)])  # type: ignore[return-value]


class Convex(_Broken):
    """|z|^2 with the gradient 2z: not concave, so no gradient is a supergradient."""

    kernel = Linear.kernel

    def _value(self, z: Vector) -> float:
        return float(z @ z)

    @property
    def has_prox(self) -> bool:
        return False

    def lipschitz(self, n: int) -> float:
        return 2.0 * n**0.5 + 4.0


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


class NotSmooth(Minimum):
    """Claims a Lipschitz gradient that the minimum does not have."""

    def smoothness(self, n: int) -> float:
        return 1.0

    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return (cls(),)


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


@kernel(signature=GRADIENT)
def counting(z: Vector, step: float, params: Vector, work: Vector, out: Vector) -> None:
    """The weights, moved by the number of calls that the scratch has seen."""
    work[0] += 1.0
    for i in range(z.size):
        out[i] = params[i] + 4e-16 * work[0]


class Remembering(_Broken):
    """Its scratch changes its results, by less than any inequality notices."""

    kernel = counting

    def _work_size(self, n: int) -> int:
        return 1


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
    Convex: {"is_concave", "has_supergradients"},
    WrongSign: {"has_supergradients"},
    TooFlat: {"is_lipschitz"},
    NegativeSlope: {"is_lipschitz"},
    WrongProx: {"has_prox_or_says_no"},
    ProxOfAnother: {"has_prox_or_says_no"},
    NotSmooth: {"is_smooth_if_it_says_so"},
    SmoothAtLarge: {"is_smooth_if_it_says_so"},
    Trusting: {"refuses_bad_input"},
    AimsSorted: {"can_be_aimed"},
    BindsToAnother: {"can_be_bound"},
    Remembering: {"has_a_compiled_gradient"},
    AddsAnother: {"has_a_compiled_gradient"},
}


class Rough(Moreau):
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
    """beta_0 ten times too large: it promises to bend less than it does."""

    def beta_0(self, objective: Concave, n: int) -> float:
        return 10.0 * super().beta_0(objective, n)


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
        return super().gradient(objective, z, t, rng) * (1.0 - 1e-9 * NOISE.random())


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
    Steep: {"has_lipschitz_gradients"},
    Lucky: {"needs_no_luck"},
    Shrinking: {"needs_no_luck"},
}

FAULTS = OBJECTIVE_FAULTS | SMOOTHING_FAULTS


@pytest.mark.parametrize("broken", FAULTS, ids=lambda cls: cls.__name__)
def test_what_is_broken_fails_the_checks_that_it_should(broken: type) -> None:
    failed = {outcome.check for outcome in outcomes(broken) if outcome.error is not None}
    assert failed == FAULTS[broken]


@pytest.mark.parametrize(
    ("faults", "contract"),
    [(OBJECTIVE_FAULTS, OBJECTIVE_CHECKS), (SMOOTHING_FAULTS, SMOOTHING_CHECKS)],
    ids=["objectives", "smoothings"],
)
def test_every_check_is_shown_to_fail(faults: dict[type, set[str]], contract: list[Any]) -> None:
    assert {one.__name__ for one in contract} == set().union(*faults.values())


def test_the_first_broken_promise_is_named() -> None:
    with pytest.raises(ConformanceError, match=r"TooFlat\(\) fails is_lipschitz: L = 3\.\d+ is too"):
        check(TooFlat)
    with pytest.raises(ConformanceError, match=r"WrongProx\(\) fails has_prox_or_says_no: prox"):
        check(WrongProx())


# --- what can be checked ---------------------------------------------------------------------


def test_an_instance_a_class_or_an_address_can_be_checked() -> None:
    each = len(OBJECTIVE_CHECKS)
    assert check(Minimum()) == each
    assert check(Minimum) == each * len(Minimum.examples())
    assert check("fairwolfe.objectives:Linear") == each * len(Linear.examples())
    assert check("fairwolfe.smoothing:Moreau") == len(SMOOTHING_CHECKS) * len(Moreau.examples())


def test_outcomes_go_on_after_a_failure() -> None:
    found = list(outcomes(TooFlat))
    assert [o.check for o in found] == [one.__name__ for one in OBJECTIVE_CHECKS]
    assert sum(o.error is not None for o in found) == 1


class WithoutExamples:
    def value(self, z: Vector) -> float:
        return 0.0


class EmptyExamples(Minimum):
    @classmethod
    def examples(cls) -> tuple[Any, ...]:
        return ()


def test_a_class_without_examples_cannot_be_checked() -> None:
    with pytest.raises(InvalidInput, match=r"WithoutExamples has no examples\(\); give it"):
        check(WithoutExamples)
    with pytest.raises(InvalidInput, match=r"EmptyExamples\.examples\(\) is empty; return at least"):
        check(EmptyExamples)


def test_an_object_of_no_contract_cannot_be_checked() -> None:
    for nothing in (WithoutExamples(), 3, Problem.arms(2, {"a": (0, 1)})):
        with pytest.raises(InvalidInput, match=f"{type(nothing).__name__} keeps none of the contr"):
            check(nothing)
