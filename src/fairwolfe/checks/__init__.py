"""Public conformance checks: whether a class keeps the contract that it claims to keep.

One list of checks per contract, run on every entry of the registry by the tests, on anything by
``check(...)`` and by ``fairwolfe check module:Class``. The oracle of each check is a theorem.
A class shows the checks instances of itself by ``examples()``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from fairwolfe.checks.bandit import (
    ANY_BASE_CHECKS,
    ANY_POLICY_CHECKS,
    BASE_CHECKS,
    POLICY_CHECKS,
    RANKING_BASE_CHECKS,
    RANKING_POLICY_CHECKS,
    SCALAR_CHECKS,
)
from fairwolfe.checks.common import CONTRACTS, Check, contract_of, examples_of
from fairwolfe.checks.environment import ENVIRONMENT_CHECKS, KIND_CHECKS
from fairwolfe.checks.objective import OBJECTIVE_CHECKS, SMOOTHING_CHECKS
from fairwolfe.checks.oracle import ORACLE_CHECKS
from fairwolfe.core.kinds import Kind
from fairwolfe.core.protocols import Base, Policy
from fairwolfe.core.registry import import_class
from fairwolfe.core.streams import stream
from fairwolfe.errors import ConformanceError

__all__ = [
    "BASE_CHECKS",
    "ENVIRONMENT_CHECKS",
    "KIND_CHECKS",
    "OBJECTIVE_CHECKS",
    "ORACLE_CHECKS",
    "POLICY_CHECKS",
    "RANKING_BASE_CHECKS",
    "RANKING_POLICY_CHECKS",
    "SCALAR_CHECKS",
    "SMOOTHING_CHECKS",
    "Outcome",
    "check",
    "checks_for",
    "outcomes",
]

_ARMS = (
    *(OBJECTIVE_CHECKS, SMOOTHING_CHECKS, ORACLE_CHECKS),
    *(BASE_CHECKS, SCALAR_CHECKS, POLICY_CHECKS, ENVIRONMENT_CHECKS),
)
_RANKING = {Base: RANKING_BASE_CHECKS, Policy: RANKING_POLICY_CHECKS}
_OTHER = {Base: ANY_BASE_CHECKS, Policy: ANY_POLICY_CHECKS}


class Outcome(NamedTuple):
    """The result of one check on one example."""

    check: str
    example: str
    error: Exception | None


def check(subject: Any) -> int:
    """Check an instance, a class (by its `examples()`) or ``"module:Class"``; how many checks ran.

    Raises ConformanceError at the first broken promise.

    >>> from fairwolfe.objectives import Minimum
    >>> check(Minimum)
    9
    """
    ran = 0
    for outcome in outcomes(subject):
        ran += 1
        if outcome.error is not None:
            raise ConformanceError(
                f"{outcome.example} fails {outcome.check}: {outcome.error}"
            ) from outcome.error
    return ran


def outcomes(subject: Any) -> Iterator[Outcome]:
    """Run every check of the subject's contract on every example, whatever fails."""
    if isinstance(subject, str):
        subject = import_class(subject)
    for example in examples_of(subject):
        for one in checks_for(example):
            error = None
            try:
                one(example, stream(0, "checks", one.__name__))
            except Exception as raised:
                error = raised
            yield Outcome(one.__name__, repr(example), error)


def checks_for(example: Any) -> list[Check]:
    """The checks of an instance: those of its contract, of bandits and policies for its kind of
    decision.
    """
    if isinstance(example, Kind):
        return KIND_CHECKS
    contract, decides = contract_of(example), getattr(example, "decides", "arms")
    by_contract = dict(zip(CONTRACTS, _ARMS, strict=True))
    if decides != "arms":
        by_contract |= _RANKING if decides == "ranking" else _OTHER
    found: list[Check] = by_contract[contract]
    return found
