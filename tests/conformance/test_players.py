"""What is known of players: every ranker of the package is checked, alone and as a policy."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fairwolfe.checks import check, checks_for
from fairwolfe.checks.bandit import (
    POLICY_CHECKS,
    RANKING_BASE_CHECKS,
    RANKING_POLICY_CHECKS,
    contexts,
    direction_of,
    player_of,
)
from fairwolfe.checks.common import examples_of, require, same
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.registry import KINDS, import_class
from fairwolfe.core.streams import stream
from fairwolfe.errors import ConformanceError
from fairwolfe.objectives import EqualExposure, TwoSided
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank, Ranker
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction import FrankWolfe
from tests.conformance.broken import Amnesiac, Boasting, Closed, FirstTwice, Repeating
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


def takes_new_items(base: Any, rng: np.random.Generator) -> None:
    """`with_items`: the old items are ranked as before, new ones can be shown and learnt
    from, and choices made before they came can be answered after it.
    """
    player = player_of(base)
    state, kind, old = player.learned(rng), player.kind, player.problem
    n, q = old.n_items or 0, old.n_features[1]  # type: ignore[index]
    new = replace(old, n_items=n + 2)
    earlier, before = player.act(state, next(contexts(old, rng, 1)), rng), deepcopy(state)
    longer, wide = base.with_items(state, rng.normal(size=(2, q)) / 3.0), kind_of(new).fitted(base)
    require(same(state, before), "with_items changed the state that it was given")
    for t, context in enumerate(contexts(old, rng, 60)):
        whole = replace(context, items=np.vstack([context.items, context.items[:2]]))
        given, g = wide.read(whole, candidates=range(n)), direction_of(old, t)
        plain = base.act(state, kind.read(context), g, stream(t, "checks"))
        choice = base.act(longer, given, g, stream(t, "checks"))
        unmoved = same(plain.action, choice.action)
        require(unmoved, f"new items turned the ranking {plain.action} into {choice.action}")
    g = direction_of(new)
    feedback = wide.observe(earlier.action, wide.random_feedback(earlier.action, rng)).observation
    longer = base.update(longer, earlier, g, feedback)
    shown: set[int] = set()
    for t, context in enumerate(contexts(new, rng, 60)):
        g = direction_of(new, t)
        g[n : n + 2] = 1e3  # exposing a new one is very good
        choice = base.act(longer, wide.read(context), g, rng)
        fits = wide.is_action(context, choice.action)
        require(fits, f"the ranking of old and new items is {choice.action!r}")
        shown |= set(choice.action.tolist())
        feedback = wide.observe(choice.action, wide.random_feedback(choice.action, rng)).observation
        longer = base.update(longer, choice, g, feedback)
    require({n, n + 1} <= shown, f"new items are wanted, and {sorted(shown)} are shown")


@pytest.mark.parametrize("ranker", [r for r in rankers() if hasattr(r, "with_items")], ids=repr)
def test_rankers_take_new_items(ranker: Any) -> None:
    takes_new_items(ranker, stream(0, "checks"))


@pytest.mark.parametrize("broken", [Amnesiac, Closed])
def test_broken_rankers_do_not(broken: Any) -> None:
    with pytest.raises(ConformanceError):
        takes_new_items(broken(), stream(0, "checks"))


def test_a_broken_promise_is_told_in_a_sentence() -> None:
    with pytest.raises(ConformanceError, match=r"Boasting\(.* fails tells_true.*: action \d was"):
        check(Boasting)
    with pytest.raises(ConformanceError, match=r"FirstTwice\(.* after 1 rewards the average is of"):
        check(FirstTwice)
    with pytest.raises(ConformanceError, match=r"Repeating\(.*_afresh: .*shows an item once"):
        check(Repeating)
