"""What is known of players: every ranker of the package is checked, alone and as a policy."""

from __future__ import annotations

from typing import Any

import pytest

from fairwolfe.checks import (
    POLICY_CHECKS,
    RANKING_BASE_CHECKS,
    RANKING_POLICY_CHECKS,
    check,
    checks_for,
)
from fairwolfe.checks.promise import examples_of
from fairwolfe.core.registry import KINDS, import_class
from fairwolfe.errors import ConformanceError
from fairwolfe.objectives import EqualExposure, TwoSided
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank, Ranker
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction import FrankWolfe
from tests.conformance.broken import Boasting, FirstTwice, Repeating
from tests.conformance.subclasses import below


def test_what_ranks_is_checked_as_such() -> None:
    assert checks_for(LinUCBRank()) is RANKING_BASE_CHECKS
    assert checks_for(FWLinUCBRank(TwoSided(EqualExposure()))) is RANKING_POLICY_CHECKS
    inside = FrankWolfe(TwoSided(EqualExposure()), LinUCBRank(exposure="shown"))
    assert checks_for(inside) is RANKING_POLICY_CHECKS
    assert check(inside) == len(RANKING_POLICY_CHECKS)
    assert checks_for(FrankWolfe.examples()[0]) is POLICY_CHECKS


def rankers() -> dict[Any, type]:
    """Those of the registry's bandits and inside its policies, with their classes."""
    found: dict[Any, type] = {}
    for kind in ("bandits", "policies"):
        for address in KINDS[kind].values():
            cls = import_class(address)
            for example in examples_of(cls):
                ranker = example.base if isinstance(example, FrankWolfe) else example
                if isinstance(ranker, Ranker):
                    found[ranker] = type(ranker)
    return found


def test_every_ranker_is_reached() -> None:
    ours = {cls for cls in below(Ranker) if cls.__module__.startswith("fairwolfe.")}
    assert set(rankers().values()) == ours
    assert len(ours) >= 3


@pytest.mark.parametrize("ranker", rankers(), ids=repr)
def test_every_ranker_keeps_its_contract(ranker: Any) -> None:
    assert checks_for(ranker) is RANKING_BASE_CHECKS
    assert check(ranker) == len(RANKING_BASE_CHECKS)


@pytest.mark.parametrize("ranker", rankers(), ids=repr)
def test_every_ranker_alone_keeps_the_contract_of_policies(ranker: Any) -> None:
    policy = as_policy(ranker)
    assert checks_for(policy) is RANKING_POLICY_CHECKS
    assert check(policy) == len(RANKING_POLICY_CHECKS)


def test_a_broken_promise_is_told_in_a_sentence() -> None:
    with pytest.raises(ConformanceError, match=r"Boasting\(.* fails tells_true.*: action \d was"):
        check(Boasting)
    with pytest.raises(ConformanceError, match=r"FirstTwice\(.* after 1 rewards the average is of"):
        check(FirstTwice)
    with pytest.raises(ConformanceError, match=r"Repeating\(.*_afresh: .*shows an item once"):
        check(Repeating)
