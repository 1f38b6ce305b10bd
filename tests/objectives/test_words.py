"""Objectives in words: `describe`."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.core import registry
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
    PerMerit,
    TwoSided,
    Welfare,
    Within,
)

ARMS = Problem.arms(3, {"clicks": (0, 1), "minutes": (0, 10), "cost": (0, 0.05)})
RANKING = Problem.ranking(n_items=5, n_slots=2, n_features=2, rewards={"clicks": (0, 1)})
GROUPS = tuple("aabbc")


@dataclass(frozen=True)
class SoftMinimum(Minimum):
    """An author's objective, which says nothing of itself."""

    sharpness: float = 1.0

    def _words(self, names: Any) -> Any:
        return Concave._words(self, names)


@pytest.mark.parametrize(
    ("f", "unbound", "bound"),
    [
        (Linear({"clicks": 1.0}) + AtMost({"cost": 0.02}), None, "clicks; cost at most 0.02"),
        (Linear((1.0, 0.0, -2.0)), "reward 0 - 2 x reward 2", "clicks - 2 x cost"),
        (Linear((-1.0, 0.5, 0.0)), "-reward 0 + 0.5 x reward 1", "-clicks + 0.5 x minutes"),
        (0.0 * Minimum(), "0", "0"),
        (0.0 * AtMost(0.04), "0", "0"),
        (
            GiniWelfare(),
            "fairness of the rewards (Gini welfare)",
            "fairness of clicks, minutes and cost (Gini welfare)",
        ),
        (GiniEquality().on(0), "equality of reward 0 (Gini)", "equality of clicks (Gini)"),
        (
            GeneralizedGini((1.0, 0.5)).on("clicks", "cost"),
            None,
            "fairness of clicks and cost (generalised Gini, weights 1, 0.5 from the worst)",
        ),
        (
            2 * (Minimum() + Linear((1.0, 2.0, 3.0))),
            "2 x the smallest of the rewards + 2 x reward 0 + 4 x reward 1 + 6 x reward 2",
            "2 x the smallest of clicks, minutes and cost + 2 x clicks + 4 x minutes + 6 x cost",
        ),
        (
            Nash(offset=0.1),
            "proportional fairness of the rewards (Nash, offset 0.1)",
            "proportional fairness of clicks, minutes and cost (Nash, offset 0.1)",
        ),
        (Welfare(0.5).on(-1), "welfare of reward -1 (power 0.5)", "welfare of cost (power 0.5)"),
        (
            AtMost({"cost": 0.02, "minutes": 3}, penalty=5.0),
            None,
            "-5 x the excess of cost above 0.02 - 5 x the excess of minutes above 3",
        ),
        (
            AtLeast({"clicks": 0.92}, share=True).on("clicks", "minutes"),
            None,
            "clicks at least 92 % of clicks + minutes",
        ),
        (
            Within({"cost": 0.01, "clicks": 0.5}, {"cost": 0.02}),
            None,
            "cost between 0.01 and 0.02; clicks at least 0.5",
        ),
        (Within(0.5, 0.5).on(0), "reward 0 exactly 0.5", "clicks exactly 0.5"),
        (
            AtMost((1.0, 2.0, 0.02)).on("clicks", "minutes", "cost"),
            None,
            "clicks at most 1; minutes at most 2; cost at most 0.02",
        ),
        (
            Mapped(Minimum(), ((1.0, 1.0, 0.0), (0.0, 0.0, 2.0))),
            "the smallest of (reward 0 + reward 1) and 2 x reward 2",
            "the smallest of (clicks + minutes) and 2 x cost",
        ),
        (
            PerMerit(EqualExposure(), (1.0, 2.0, 3.0)),
            "equality of the rewards per merit (standard deviation)",
            "equality of clicks, minutes and cost per merit (standard deviation)",
        ),
        (
            SoftMinimum(2.0),
            "SoftMinimum of the rewards (sharpness=2.0)",
            "SoftMinimum of clicks, minutes and cost (sharpness=2.0)",
        ),
        (
            Custom(lambda z: -float(z @ z), lambda z: -2.0 * z),
            "your own function of the rewards",
            "your own function of clicks, minutes and cost",
        ),
    ],
    ids=str,
)
def test_with_arms(f: Concave, unbound: str | None, bound: str) -> None:
    assert f.describe() == (bound if unbound is None else unbound)
    assert f.describe(ARMS) == bound
    assert f.bind(ARMS).describe() == bound


@pytest.mark.parametrize(
    ("f", "bound"),
    [
        (
            TwoSided(GiniWelfare(), beta=0.5) + AtMost({"clicks": 0.02}),
            "clicks + 0.5 x fairness of exposure (Gini welfare); clicks at most 0.02",
        ),
        (TwoSided(Minimum(), 0.0), "clicks"),
        (
            TwoSided(ByGroup(GiniEquality(), GROUPS), users=Nash()),
            "proportional fairness of clicks (Nash) + equality of the exposure of 3 groups (Gini)",
        ),
        (
            ByGroup(AtLeast({"a": 0.05}, share=True), GROUPS),
            "the exposure of group a at least 5 % of the sum of the exposures of 3 groups",
        ),
        (
            ByGroup(Minimum(), GROUPS),
            "the smallest of the exposures of 3 groups",
        ),
        (
            TwoSided(AtLeast(0.1)),
            "clicks; the exposure of each item at least 0.1",
        ),
        (
            TwoSided(PerMerit(EqualExposure(), (1.0, 2.0, 3.0, 4.0, 5.0))),
            "clicks + equality of exposure per merit (standard deviation)",
        ),
        (
            Linear((0.0, 0.0, 1.0, 0.0, 0.0, 2.0)),
            "the exposure of item 2 + 2 x clicks",
        ),
    ],
    ids=str,
)
def test_with_rankings(f: Concave, bound: str) -> None:
    assert f.describe(RANKING) == bound
    assert f.bind(RANKING).describe() == bound


def test_an_unbound_ranking_speaks_of_its_users() -> None:
    f = TwoSided(GiniWelfare(), beta=0.5)
    assert f.describe() == "the reward of the users + 0.5 x fairness of exposure (Gini welfare)"


def test_binding_leaves_what_was_given_as_it_is() -> None:
    f = Minimum()
    bound = f.bind(ARMS)
    assert bound == f
    assert f.describe() == "the smallest of the rewards"
    two = Problem.arms(3, {"a": (0, 1), "b": (0, 1)})
    assert bound.bind(two).describe() == "the smallest of a and b"
    for again in (copy.deepcopy(bound), pickle.loads(pickle.dumps(bound))):
        assert again == bound
        assert again.describe() == "the smallest of clicks, minutes and cost"
    assert bound.value(np.array([3.0, 1.0, 2.0])) == 1.0


def test_long_ones_are_cut() -> None:
    f = Linear({f"reward {i}": 1.0 + i for i in range(100)}) + AtMost(tuple(range(1, 101)))
    assert len(f.describe()) < 500
    assert "88 more terms" in f.describe()
    assert "88 more limits" in f.describe()
    assert Linear((2.0,) * 100).describe() == "2 x the sum of the 100 rewards"


@pytest.mark.parametrize("name", registry.names("objectives"))
def test_every_registered_objective_has_words(name: str) -> None:
    kind: Any = registry.load("objectives", name)
    for f in kind.examples():
        for one in (f, f + Minimum(), 0.5 * f):
            text = one.describe()
            assert text
            assert "\n" not in text
            assert "=" not in text
