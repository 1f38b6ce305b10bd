"""Every class of the registry keeps its contract; and every check can fail."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest

import fairwolfe.objectives
import fairwolfe.smoothing
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
from fairwolfe.objectives import Concave, Linear, Minimum
from fairwolfe.problem import Problem
from fairwolfe.protocols import Vector
from fairwolfe.registry import KINDS, load, names
from fairwolfe.smoothing import Moreau
from fairwolfe.streams import stream
from tests.conformance.broken import OBJECTIVE_FAULTS, SMOOTHING_FAULTS, TooFlat, WrongProx


def checks_of(kind: str, name: str) -> list[Any]:
    """The checks of a class, found by the contract of its first example."""
    return CONTRACTS[_contract(examples_of(load(kind, name))[0])]


NEEDED = {"sklearn": "scikit-learn"}  # what a class of the registry needs of the machine


def entries() -> Iterator[Any]:
    for kind in KINDS:
        for name in names(kind):
            try:
                found = [one.__name__ for one in checks_of(kind, name)]
            except Exception:
                found = ["loads"]  # the test then raises the same again
            marks = pytest.mark.needs(NEEDED[name]) if name in NEEDED else ()
            yield from (pytest.param(kind, name, one, marks=marks) for one in found)


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
        subclasses: list[type] = type.__subclasses__(cls)
        for sub in subclasses:
            yield sub
            yield from below(sub)

    def hidden(cls: type) -> bool:
        ours = cls.__module__.startswith("fairwolfe.")
        return inspect.isabstract(cls) or cls.__name__.startswith("_") or not ours

    concrete = {cls for cls in below(Concave) if not hidden(cls)}
    assert concrete == {load("objectives", name) for name in KINDS["objectives"]}


# --- every check can fail --------------------------------------------------------------------


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
    with pytest.raises(
        ConformanceError, match=r"TooFlat\(\) fails is_lipschitz: L = 3\.\d+ is too"
    ):
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
    with pytest.raises(
        InvalidInput, match=r"EmptyExamples\.examples\(\) is empty; return at least"
    ):
        check(EmptyExamples)


def test_an_object_of_no_contract_cannot_be_checked() -> None:
    for nothing in (WithoutExamples(), 3, Problem.arms(2, {"a": (0, 1)})):
        with pytest.raises(InvalidInput, match=f"{type(nothing).__name__} keeps none of the contr"):
            check(nothing)
