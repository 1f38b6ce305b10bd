"""Every class of the registry keeps its contract; and every check can fail."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules, walk_packages
from typing import Any

import pytest

import fairwolfe
from fairwolfe import checks
from fairwolfe.checks import check, checks_for, outcomes
from fairwolfe.checks.bandit import (
    BASE_CHECKS,
    POLICY_CHECKS,
    RANKING_BASE_CHECKS,
    RANKING_POLICY_CHECKS,
    SCALAR_CHECKS,
)
from fairwolfe.checks.common import examples_of, length, require
from fairwolfe.checks.environment import ENVIRONMENT_CHECKS, KIND_CHECKS
from fairwolfe.checks.objective import (
    OBJECTIVE_CHECKS,
    SMOOTHING_CHECKS,
    is_lipschitz,
    is_smooth_if_it_says_so,
    smoothable,
)
from fairwolfe.checks.oracle import ORACLE_CHECKS
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.core.registry import KINDS, import_class, load, names
from fairwolfe.core.streams import stream
from fairwolfe.errors import ConformanceError, InvalidInput
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    On,
    PerMerit,
    Scaled,
    Sum,
    TwoSided,
    Welfare,
    Within,
)
from fairwolfe.objectives.threshold import Bounds, Penalised, Rates
from fairwolfe.smoothing import Moreau
from tests.capabilities import marks_of
from tests.conformance.broken import (
    BASE_FAULTS,
    OBJECTIVE_FAULTS,
    ORACLE_FAULTS,
    POLICY_FAULTS,
    RANKER_FAULTS,
    RANKING_FAULTS,
    SMOOTHING_FAULTS,
    STATES,
    TooFlat,
    WrongProx,
)
from tests.conformance.subclasses import below


def checks_of(kind: str, name: str) -> list[Any]:
    """The checks of a class, found by the contract of its first example."""
    return checks_for(examples_of(load(kind, name))[0])


def entries() -> Iterator[Any]:
    for kind in KINDS:
        for name in names(kind):
            try:
                found = [one.__name__ for one in checks_of(kind, name)]
            except Exception:
                found = ["loads"]  # the test then raises the same again
            yield from (pytest.param(kind, name, one, marks=marks_of(name)) for one in found)


@pytest.fixture
def promises(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the checks require, as they do: a check that requires nothing has checked nothing."""
    made: list[str] = []

    def counting(condition: bool, broken: str) -> None:
        made.append(broken)
        require(condition, broken)

    for found in walk_packages(checks.__path__, "fairwolfe.checks."):
        module = import_module(found.name)
        if hasattr(module, "require"):
            monkeypatch.setattr(module, "require", counting)
    return made


# What a check does not ask of a class: its contract leaves it open, by the docstring of the check.
NOT_ASKED: dict[str, set[str]] = {
    "estimates_reward_vectors": {"extended"},
    "has_an_exact_support": {"gymnasium"},
    "has_prox_or_says_no": {"by-group", "custom", "mapped", "per-merit"},
    "is_lipschitz": {"within"},
    "is_smooth_if_it_says_so": {
        "at-least",
        "at-most",
        "by-group",
        "equal-exposure",
        "gini-equality",
        "gini-welfare",
        "mapped",
        "minimum",
        "on",
        "per-merit",
        "sum",
        "within",
    },
    "keeps_blocks_apart": {"sklearn"},
    "shows_slot_by_slot": {"finite", "gymnasium", "mehrotra", "nonlinear"},
    "tells_true_probabilities": {"thompson"},
    "treats_per_arm_contexts_as_their_flat_form": {"extended"},
}


@pytest.mark.parametrize(("kind", "name", "wanted"), list(entries()))
def test_every_class_of_the_registry_keeps_its_contract(
    kind: str, name: str, wanted: str, promises: list[str]
) -> None:
    one = next(c for c in checks_of(kind, name) if c.__name__ == wanted)
    for example in examples_of(load(kind, name)):
        one(example, stream(0, "checks", wanted))
    assert bool(promises) == (name not in NOT_ASKED.get(wanted, ()))


def test_what_is_not_asked_is_of_checks_and_names_that_exist() -> None:
    every = [check for lists in LISTS.values() for checks in lists for check in checks]
    assert set(NOT_ASKED) <= {one.__name__ for one in every}
    assert set().union(*NOT_ASKED.values()) <= {name for kind in KINDS.values() for name in kind}


# --- every class is in the registry ----------------------------------------------------------

OTHER_PACKAGES = {
    *("agent", "checks", "cli", "client", "core", "fairness", "kernels", "lab", "offpolicy"),
    *("service", "simulation", "truth"),
}
"""Those that hold no class of a kind."""

NO_KIND = {
    "ArmsWorld",
    "Concave",
    "Constraint",
    "LinearState",
    "Live",
    "Ranker",
    "RegretBound",
    "Rule",
}
"""Public classes to derive from, or that are handed out: of no kind themselves."""

LISTS: dict[str, tuple[list[Any], ...]] = {
    "bandits": (BASE_CHECKS, RANKING_BASE_CHECKS),
    "environments": (ENVIRONMENT_CHECKS,),
    "kinds": (KIND_CHECKS,),
    "objectives": (OBJECTIVE_CHECKS,),
    "oracles": (ORACLE_CHECKS,),
    "policies": (POLICY_CHECKS, RANKING_POLICY_CHECKS),
    "scalar_policies": (SCALAR_CHECKS,),
    "smoothings": (SMOOTHING_CHECKS,),
}


def public_classes() -> set[type]:
    """Of every package, also of those that are still to come."""
    found = set()
    for package in iter_modules(fairwolfe.__path__, "fairwolfe."):
        if package.ispkg and package.name.removeprefix("fairwolfe.") not in OTHER_PACKAGES:
            module = import_module(package.name)
            found |= {getattr(module, name) for name in module.__all__}
    return {one for one in found if inspect.isclass(one)}


def off_the_registry() -> set[str]:
    """Names of classes that are public or registered, and not both."""
    listed = [
        import_class(address)
        for kind in KINDS.keys() - {"kinds"}  # in core/, which has no list of public names
        for address in KINDS[kind].values()
    ]
    assert len(set(listed)) == len(listed), "two names for one class"
    return {one.__name__ for one in public_classes() ^ set(listed)}


def test_every_public_class_is_in_the_registry_and_what_is_there_is_public() -> None:
    assert off_the_registry() == NO_KIND


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"kinds"}))
def test_whatever_is_left_out_of_the_registry_is_missed(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(KINDS[kind]):
        left_out = load(kind, name)
        with monkeypatch.context() as patched:
            patched.delitem(KINDS[kind], name)
            assert off_the_registry() == NO_KIND | {left_out.__name__}


def test_what_is_registered_and_not_public_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    private = "fairwolfe.ranking.policies:_DeprivedFirst"
    monkeypatch.setitem(KINDS["bandits"], "deprived-first", private)
    assert off_the_registry() == NO_KIND | {"_DeprivedFirst"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [pytest.param(k, n, marks=marks_of(n)) for k in KINDS for n in names(k)],
)
def test_every_class_is_of_the_kind_that_it_is_registered_as(kind: str, name: str) -> None:
    assert set(LISTS) == set(KINDS)
    for example in examples_of(load(kind, name)):
        assert checks_for(example) in LISTS[kind]


def test_every_leaf_of_the_package_is_reached_by_the_checks() -> None:
    """No concrete subclass of Concave of the package hides from the registry."""

    def hidden(cls: type) -> bool:
        ours = cls.__module__.startswith("fairwolfe.")
        shared = cls.__name__.startswith("_") and any(below(cls))
        return inspect.isabstract(cls) or shared or not ours

    concrete = {cls for cls in below(Concave) if not hidden(cls)}
    listed = [load("objectives", name) for name in KINDS["objectives"]]
    examples = [example for cls in listed for example in examples_of(cls)]
    examples.append(AtMost({"a": 0.1}, per="b").bind(Problem.arms(1, {"a": (0, 1), "b": (0, 1)})))
    inside = {type(leaf) for f in examples for _, leaf, _ in f.leaves(length(f))}
    assert concrete == {*listed, *inside}
    assert inside - set(listed) == {
        Bounds,
        Penalised,
        Rates,
    }  # what AtLeast, AtMost and Within are made of


# --- constants are checked where they matter ---------------------------------------------------

NASH = Nash(0.1)
CURVED = [
    NASH,
    Welfare(0.9, 0.1),
    3.0 * NASH,
    NASH.on(2, 0),
    NASH + Welfare(0.5, 0.2),
    NASH.on(0, 1) + 3.0 * NASH.on(2),
    Mapped(NASH, ((1.0, 0.5, 0.0), (0.0, 0.2, 2.0))),
    ByGroup(NASH, "aab"),
    PerMerit(NASH, (0.5, 1.0, 2.0)),
    TwoSided(NASH, beta=2.0),
    TwoSided(GiniEquality(), beta=0.0, users=NASH, n_users=2),
]
FLAT = {GeneralizedGini, Linear}  # smooth with C = 0, or not smooth
KINKED = {AtLeast, AtMost, EqualExposure, GiniEquality, GiniWelfare, Minimum}  # never smooth
HARD = {Within}  # without any constant
UNKNOWN = {Custom}  # whoever promises that it is smooth names no constant


def test_every_class_that_bends_is_among_the_curved() -> None:
    listed = {load("objectives", name) for name in KINDS["objectives"]}
    assert {type(f) for f in CURVED} == listed - FLAT - KINKED - UNKNOWN - HARD
    for kind in listed:
        constants = {f.smoothness(length(f)) for f in examples_of(kind) if f.smooth}
        assert (math.inf in constants) == (kind in UNKNOWN)
        if kind in FLAT | KINKED | HARD:
            assert constants == ({0.0} if kind in FLAT else set())
        finite = any(math.isfinite(f.lipschitz(length(f))) for f in examples_of(kind))
        assert finite == (kind not in HARD)


@pytest.mark.parametrize("constant", ["smoothness", "lipschitz"])
@pytest.mark.parametrize("f", CURVED, ids=repr)
def test_half_of_a_constant_is_too_small(
    f: Concave, constant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = getattr(f, constant)(length(f))
    assert 0.0 < known < math.inf
    one = {"smoothness": is_smooth_if_it_says_so, "lipschitz": is_lipschitz}[constant]
    one(f, stream(0, "checks", one.__name__))
    monkeypatch.setattr(type(f), constant, lambda self, n: 0.5 * known)
    with pytest.raises(ConformanceError, match=r"is too small|> L"):
        one(f, stream(0, "checks", one.__name__))


@pytest.mark.parametrize("name", KINDS["smoothings"])
def test_smoothings_are_checked_with_what_they_accept(name: str) -> None:
    refused = {Within} if name != "randomized" else {Nash, Within}  # points outside the domain
    for smoothing in examples_of(load("smoothings", name)):
        accepted = {type(f) for f in smoothable(smoothing)}
        if getattr(smoothing, "mirror", "") == "entropy":
            plain = (
                GeneralizedGini,
                GiniWelfare,
                Linear,
                Mapped,
                Minimum,
            )  # and what is made of them
            assert accepted == {*plain, On, Scaled, Sum, TwoSided}
            continue
        assert accepted == {load("objectives", one) for one in KINDS["objectives"]} - refused


# --- every check can fail --------------------------------------------------------------------


FAULTS = OBJECTIVE_FAULTS | SMOOTHING_FAULTS | ORACLE_FAULTS
FAULTS |= BASE_FAULTS | POLICY_FAULTS | RANKER_FAULTS | RANKING_FAULTS


@pytest.mark.parametrize("broken", FAULTS, ids=lambda cls: cls.__name__)
def test_what_is_broken_fails_the_checks_that_it_should(broken: type) -> None:
    STATES.clear()
    failed = {outcome.check for outcome in outcomes(broken) if outcome.error is not None}
    assert failed == FAULTS[broken]


@pytest.mark.parametrize(
    ("faults", "contract"),
    [
        (OBJECTIVE_FAULTS, OBJECTIVE_CHECKS),
        (SMOOTHING_FAULTS, SMOOTHING_CHECKS),
        (ORACLE_FAULTS, ORACLE_CHECKS),
        (BASE_FAULTS, BASE_CHECKS),
        (RANKER_FAULTS, RANKING_BASE_CHECKS),
    ],
    ids=["objectives", "smoothings", "oracles", "bandits", "rankers"],
)
def test_every_check_is_shown_to_fail(faults: dict[type, set[str]], contract: list[Any]) -> None:
    assert {one.__name__ for one in contract} == set().union(*faults.values())


@pytest.mark.parametrize(
    ("faults", "contract", "shared"),
    [
        (POLICY_FAULTS, POLICY_CHECKS, BASE_CHECKS),
        (RANKING_FAULTS, RANKING_POLICY_CHECKS, RANKING_BASE_CHECKS),
    ],
    ids=["arms", "rankings"],
)
def test_every_check_that_only_policies_have_is_shown_to_fail(
    faults: dict[type, set[str]], contract: list[Any], shared: list[Any]
) -> None:
    """The others are the same functions, which bandits are shown to fail."""
    own = {one.__name__ for one in contract if one not in shared}
    assert own <= set().union(*faults.values()) <= {one.__name__ for one in contract}


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
