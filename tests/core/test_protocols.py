"""The contracts: few, with their optional methods documented as they are called."""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import getdoc, signature
from pathlib import Path
from typing import Any

import pytest

import fairwolfe
from fairwolfe.checks.common import examples_of
from fairwolfe.core import protocols
from fairwolfe.core.protocols import Base, Environment, Objective, Oracle, Policy, Smoothing, keeps
from fairwolfe.core.registry import KINDS, load
from tests.capabilities import marks_of

PACKAGE = Path(fairwolfe.__file__).parent
CONTRACTS: dict[str, Any] = {
    "bandits": Base,
    "environments": Environment,
    "objectives": Objective,
    "oracles": Oracle,
    "policies": Policy,
    "smoothings": Smoothing,
}
OPTIONAL = re.compile(r"``(\w+)\(([\w, ]*)\)``")


def entries() -> Iterator[Any]:
    for kind in CONTRACTS:
        yield from (pytest.param(kind, name, marks=marks_of(name)) for name in KINDS[kind])


def optional(contract: Any) -> dict[str, list[str]]:
    """Optional methods and their arguments, by the docstring of a contract."""
    found = OPTIONAL.findall(getdoc(contract) or "")
    return {name: [one for one in given.split(", ") if one] for name, given in found}


def test_there_are_at_most_twelve_protocols() -> None:
    declared = re.compile(r"^class (\w+)\([^)]*\bProtocol\b.*\):$", re.MULTILINE)
    found = {name for path in PACKAGE.rglob("*.py") for name in declared.findall(path.read_text())}
    assert set(protocols.__all__) - {"LinearRule", "RankingRule", "keeps", "newest"} <= found
    assert len(found) <= 12, sorted(found)


@pytest.mark.parametrize(("kind", "name"), list(entries()))
def test_what_is_registered_takes_the_arguments_that_its_contract_states(
    kind: str, name: str
) -> None:
    contract = CONTRACTS[kind]
    for example in examples_of(load(kind, name)):
        assert keeps(example, contract)
        for method, arguments in optional(contract).items():
            if hasattr(example, method):
                signature(getattr(example, method)).bind(*arguments)


@pytest.mark.parametrize("contract", [Base, Environment, Objective, Policy])
def test_every_optional_method_is_one_that_some_class_has(contract: Any) -> None:
    kinds = [kind for kind, of in CONTRACTS.items() if of is contract]
    known = {method for kind in kinds for name in KINDS[kind] for method in dir(load(kind, name))}
    of_others = {"dump", "load", "restored", "in_world", "at_rank", "distribution"}
    assert set(optional(contract)) - known - of_others == set()
    assert len(optional(contract)) > 0


class Narrow:
    """It has all methods of `Base`, and they take other arguments."""

    def init(self, problem: Any) -> Any:
        return None

    def act(self, state: Any) -> Any:
        return None

    def update(self, state: Any) -> Any:
        return None


def test_other_arguments_are_noticed() -> None:
    assert isinstance(Narrow(), Base)
    assert not keeps(Narrow(), Base)
