"""Agents that rank: every bad input is told in one sentence, and changes nothing at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, Problem
from fairwolfe.bandits import LinUCB
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.decision import Decision
from fairwolfe.core.feedback import Shown
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import ByGroup, GiniEquality, Minimum, PerMerit, TwoSided
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank
from fairwolfe.reduction import FrankWolfe, MOLinCB
from tests.agent.ranking_agents import FAIR, ITEMS, POLICY, PROBLEM, K, M, P, Q, agent, bits, played

nan, inf = float("nan"), float("inf")
WHO = np.array([0.3, 0.4])
SPOILT = ITEMS.copy()
SPOILT[2, 1] = nan


def refused(one: Agent, attempt: Callable[[], object], sentence: str) -> None:
    before = bits(one)
    with pytest.raises(InvalidInput, match=sentence) as caught:
        attempt()
    assert bits(one) == before
    assert "\n" not in str(caught.value)


# --- act --------------------------------------------------------------------------------------


CONTEXTS: dict[str, tuple[Any, str]] = {
    "a user too long": (np.ones(P + 1), r"user of the context has shape \(3,\); .* 2 numbers"),
    "a user too short": ([0.1], r"user of the context has shape \(1,\); .* 2 numbers"),
    "a user with two axes": (WHO[None], r"user of the context has shape \(1, 2\);"),
    "a user that is NaN": ([0.1, nan], r"number \[1\] of the user of the context is nan; .*finite"),
    "an infinite user": ([-inf, 0.1], r"number \[0\] of the user of the context is -inf;"),
    "words": (["a", "b"], r"user of the context is not an array of numbers"),
    "nothing": (None, r"user of the context is not an array of numbers: it is None"),
    "a dict": (
        {"user": 1},
        r"the context is a mapping, which names arms, and the problem",
    ),
    "an item too few": (
        Bilinear(WHO, ITEMS[1:]),
        r"shape \(7, 3\); .*\(8, 3\) \(items, features\)",
    ),
    "an item too many": (Bilinear(WHO, ITEMS[[0, *range(M)]]), r"shape \(9, 3\); .*\(8, 3\)"),
    "fewer items than slots": (Bilinear(WHO, ITEMS[: K - 1]), r"shape \(2, 3\); .*\(8, 3\)"),
    "items too wide": (Bilinear(WHO, np.ones((M, Q + 1))), r"shape \(8, 4\); .*\(8, 3\)"),
    "items that are NaN": (Bilinear(WHO, SPOILT), r"number \[2, 1\] of the items .* is nan;"),
    "ragged items": (Bilinear(WHO, [[1.0, 2.0], [1.0]]), r"items .*not an array of numbers"),
    "no items": (
        Bilinear(WHO, None),
        r"items of the context is not an array of .*None",
    ),
    "a wrong user beside items": (Bilinear(np.ones(3), ITEMS), r"user .*shape \(3,\);"),
}

OPTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "too few candidates": ({"candidates": [1, 2]}, r"2 candidates for 3 slots; .*at least 3 items"),
    "no candidates": ({"candidates": []}, r"there are 0 candidates for 3 slots;"),
    "all blocked": ({"blocked": range(M)}, r"there are 0 candidates for 3 slots;"),
    "too many blocked": ({"blocked": range(6)}, r"there are 2 candidates for 3 slots;"),
    "a candidate twice": ({"candidates": [1, 2, 2, 3]}, r"candidate 2 is given 2 times; .*once"),
    "an unknown candidate": ({"candidates": [1, 2, 8]}, r"candidate 8 is not in the catalogue"),
    "a negative candidate": ({"candidates": [1, 2, -1]}, r"candidate -1 is not in the catalogue"),
    "a retired candidate": ({"candidates": [1, 2, 7]}, r"candidate 7 is not .*, or was retired;"),
    "a fraction": ({"candidates": [1, 2, 3.0]}, r"candidates holds 3\.0; .*whole numbers"),
    "a truth": ({"candidates": [True, 2, 3]}, r"candidates holds True; .*whole numbers"),
    "a word": ({"candidates": "123"}, r"candidates is '123'; give a list of ids"),
    "a number": ({"candidates": 3}, r"candidates is 3; give a list of ids"),
    "an enormous number": ({"candidates": [1, 2, 2**70]}, r"candidates holds 11805"),
    "an unknown block": ({"blocked": [9]}, r"blocked item 9 is not in the catalogue"),
    "a block that is a number": ({"blocked": 3}, r"blocked is 3; give a list of ids"),
    "a pin beyond the slots": ({"pinned": {3: 1}}, r"pinned to slot 3; slots are 0 to 2"),
    "a pin at no slot": ({"pinned": {"top": 1}}, r"pinned to slot 'top'; slots are 0 to 2"),
    "a pin at a truth": ({"pinned": {True: 1}}, r"pinned to slot True; slots are 0 to 2"),
    "a pin of nothing": ({"pinned": {0: None}}, r"pinned holds None; .*whole numbers"),
    "a pin of a fraction": ({"pinned": {0: 1.5}}, r"pinned holds 1\.5; .*whole numbers"),
    "a pin of a stranger": ({"pinned": {0: 11}}, r"item 11 is pinned to slot 0, but is not among"),
    "a pin of a retired item": ({"pinned": {0: 7}}, r"item 7 is pinned to slot 0, but is not amo"),
    "a pin of a blocked item": ({"pinned": {1: 2}, "blocked": [2]}, r"item 2 is pinned to slot 1,"),
    "a pin twice": ({"pinned": {0: 2, 1: 2}}, r"item 2 is pinned to two slots;"),
    "pins in a list": ({"pinned": [2]}, r"pinned is \[2\]; give a mapping from slots"),
}


@pytest.mark.parametrize("what", CONTEXTS)
def test_bad_contexts(what: str) -> None:
    one = agent()
    played(one, stream(0, "bad"), 5)
    context, sentence = CONTEXTS[what]
    refused(one, lambda: one.act(context), sentence)
    refused(one, lambda: one.act_many([WHO, context]), sentence)
    refused(one, lambda: one.act_many([WHO, context], advance=True), sentence)


@pytest.mark.parametrize("what", OPTIONS)
def test_bad_candidates_blocks_and_pins(what: str) -> None:
    one = agent()
    played(one, stream(0, "bad"), 5)
    if "retired" in what:
        one.retire([7])
    options, sentence = OPTIONS[what]
    refused(one, lambda: one.act(WHO, **options), sentence)


def test_contexts_of_another_form() -> None:
    told = agent(items=None)
    refused(told, lambda: told.act(WHO), r"a ndarray and the problem has 2 user and 3 item feat")
    refused(told, lambda: told.act(np.ones((M, P * Q))), r"give Bilinear\(user, items\), or the us")
    flat = agent(POLICY, Problem.ranking(M, K, Q))
    refused(flat, lambda: flat.act(Bilinear(WHO, ITEMS)), r"is Bilinear and the problem has 3 feat")
    refused(flat, lambda: flat.act([[0.1, 0.2, 0.3], [0.1]]), r"items .* not an array of numbers")
    refused(flat, lambda: flat.act([0.1, 0.2]), r"user of the context has shape \(2,\); .* 1 num")


# --- update -----------------------------------------------------------------------------------


def feedback(shown: list[int], absent: int) -> dict[str, tuple[Any, dict[str, Any], str]]:
    """What is wrong: (reward, exposed and clicked, sentence)."""
    a, b, _ = shown
    ones, nothing = np.ones(K), np.zeros((K, 1))
    lists = {"exposed": shown}
    return {
        "no exposures": (None, {"clicked": [a]}, r"the exposed items are missing;"),
        "nothing at all": (None, {}, r"the exposed items are missing; give exposed=ids"),
        "exposure of what was not shown": (
            None,
            {"exposed": [absent]},
            r"given as exposed, but was n",
        ),
        "a click on what was not shown": (
            None,
            lists | {"clicked": [absent]},
            r"was not shown; the",
        ),
        "a click without exposure": (
            None,
            {"exposed": [a], "clicked": [b]},
            rf"item {b} earned something but is not among the exposed;",
        ),
        "exposed twice": (None, {"exposed": [a, a]}, rf"item {a} is given twice in exposed;"),
        "clicked twice": (None, lists | {"clicked": [a, a]}, rf"item {a} is given twice in clicks"),
        "a number": (None, {"exposed": a}, rf"exposed is {a}; give a list of ids"),
        "a number of clicks": (
            {"clicks": 2},
            lists,
            rf"the reward 'clicks' is 2; a ranking needs {{item: number}}, .*{{{a}: 3\.0}}}}",
        ),
        "clicked is a number": (None, lists | {"clicked": 2}, r"clicked is 2; give a list of ids"),
        "rewards in a list": (
            {"clicks": [3.0, 1.0]},
            lists,
            r"is \[3\.0, 1\.0\]; .*{item: number}",
        ),
        "a reward of None": (
            {"clicks": None},
            lists,
            r"the reward lacks clicks; .* missing=0\.",
        ),
        "a reward of words": ({"clicks": "two"}, lists, r"'clicks' is 'two'; .*{item: number}"),
        "an enormous id": (None, {"exposed": [2**70]}, r"exposed holds 118059"),
        "words": (None, {"exposed": ["a"]}, r"exposed holds 'a'; .*whole numbers"),
        "a vector": (np.zeros(M + 1), {}, r"the feedback of a ranking is .*; give exposed=ids and"),
        "a reward of no name": ({"saves": {a: 1}}, lists, r"there is no reward 'saves';"),
        "clicks twice over": ({"clicks": {a: 1}}, lists | {"clicked": [a]}, r"give clicks once"),
        "clicks that are NaN": ({"clicks": {a: nan}}, lists, rf"of item {a} is nan; give a finite"),
        "clicks that are endless": ({"clicks": {a: -inf}}, lists, r"'clicks' of item . is -inf;"),
        "clicks that are words": ({"clicks": {a: "one"}}, lists, r"'clicks' of item . is 'one';"),
        "clicks that are digits": ({"clicks": {a: "1"}}, lists, r"'clicks' of item . is '1';"),
        "clicks that are lists": ({"clicks": {a: [1, 2]}}, lists, r"of item . is \[1, 2\];"),
        "clicks that are None": ({"clicks": {a: None}}, lists, r"of item . is None; give a number"),
        "complex clicks": ({"clicks": {a: 1j}}, lists, r"'clicks' of item . is 1j; give a finite"),
        "enormous clicks": ({"clicks": {a: 10**400}}, lists, r"'clicks' of item . is 1000"),
        "masked clicks": ({"clicks": {a: np.ma.masked}}, lists, r"'clicks' of item . is masked;"),
        "masked rewards": (
            Shown(ones, np.ma.array(nothing, mask=True)),
            {},
            r"rewards of Shown\(exposed, rewards\), by slot, has masked entries",
        ),
        "complex exposures": (
            Shown(ones + 0j, nothing),  # type: ignore[arg-type]
            {},
            r"exposed of Shown\(.*number \[0\] is \(1\+0j\)",
        ),
        "a reward of a stranger": ({"clicks": {absent: 1}}, lists, r"was not shown; the ranking"),
        "a slot too few": (Shown(ones[1:], nothing[1:]), {}, r"exposures of shape \(2,\) and rew"),
        "rewards too many": (Shown(ones, np.zeros((K, 2))), {}, r"rewards of shape \(3, 2\);"),
        "half an exposure": (Shown(ones / 2, nothing), {}, r"exposure.* 0\.5"),
        "exposure that is NaN": (Shown(ones * nan, nothing), {}, r"exposure.* nan"),
        "rewards that are NaN": (Shown(ones, nothing * nan), {}, r"slot 0 .*nan.*finite"),
        "words in slots": (
            Shown(["a"] * K, [[0.0]] * K),  # type: ignore[arg-type]
            {},
            r"exposed of Shown\(exposed, rewards\), by slot, is not an array .*'a'",
        ),
        "earning unseen": (Shown(0 * ones, nothing + 1), {}, r"slot 0 earned \[1\.0\] but was not"),
        "slots and ids": (
            Shown(ones, nothing),
            lists,
            r"a Shown has every slot; leave out exposed",
        ),
    }


@pytest.mark.parametrize("what", feedback([0, 1, 2], 3))
def test_bad_feedback(what: str) -> None:
    one = agent()
    played(one, stream(0, "bad"), 5)
    decision, other = one.act(WHO), one.act(WHO)
    ranking = np.asarray(decision.action).tolist()
    absent = next(i for i in range(M) if i not in ranking)
    reward, options, sentence = feedback(ranking, absent)[what]
    refused(one, lambda: one.update(decision, reward, **options), sentence)
    if not options or not (reward is None or isinstance(reward, (dict, Shown))):
        good = Shown(np.ones(K), np.zeros((K, 1)))
        many = {} if reward is None else reward
        refused(one, lambda: one.update_many([other, decision], [good, many]), sentence)
    one.update(decision, exposed=ranking, clicked=[])
    assert one.t == 6


def test_feedback_twice_or_for_others() -> None:
    one, other = agent(), agent()
    decision, foreign = one.act(WHO), other.act(WHO)
    ids = np.asarray(decision.action)
    one.update(decision, exposed=ids, clicked=[])
    refused(one, lambda: one.update(decision, exposed=ids), r"was given already; it counts once")
    refused(one, lambda: one.update(foreign, exposed=ids), r"was made by another agent")
    own = POLICY.act(POLICY.init(PROBLEM), Bilinear(WHO, ITEMS), stream(0, "own"))
    refused(one, lambda: one.update(own, exposed=ids), r"was made by another agent, or by a policy")
    refused(one, lambda: one.update(ids, exposed=ids), r"give the Decision that act returned")  # type: ignore[arg-type]
    made = [one.act(WHO) for _ in range(2)]
    good = {"exposed": ids[:0]}
    refused(one, lambda: one.update_many([made[0]] * 2, [good] * 2), r"is given twice; its feedb")
    refused(one, lambda: one.update_many(made, [good]), r"2 decisions have 1 rewards; give one")
    refused(one, lambda: one.update_many([made[0], foreign], [good] * 2), r"by another agent")
    one.update_many(made, [good] * 2)
    assert one.t == 3


@pytest.mark.parametrize(
    "other",
    [
        Problem.ranking(M, K - 1, (P, Q)),
        Problem.ranking(M + 90, K, (P, Q)),
        Problem.ranking(M, K, (P + 1, Q)),
        Problem.ranking(M, K, (P, Q + 2)),
        Problem.ranking(M, K, (P, Q), {"clicks": (0.0, K), "minutes": (0.0, 9.0)}),
    ],
    ids=["slots", "items", "user features", "item features", "rewards"],
)
def test_a_decision_of_another_problem_under_the_same_name(other: Problem) -> None:
    """A given token is that of the owner of both, who has the key of both."""
    m, (p, q) = other.n_items or 0, other.n_features  # type: ignore[misc]
    one = agent(token="same")
    decision = one.act(WHO)
    foreign = Agent(POLICY, other, token="same").act(Bilinear(np.ones(p) / 9, np.ones((m, q)) / 9))
    assert foreign.id == decision.id
    k = np.size(foreign.action)
    good = Shown(np.ones(k), np.zeros((k, 1)))
    refused(one, lambda: one.update(foreign, good), r".")
    refused(one, lambda: one.update(Decision.from_bytes(foreign.to_bytes()), good), r".")
    refused(one, lambda: one.update_many([foreign], [good]), r".")
    refused(one, lambda: one.expire(foreign), r".")
    one.update(decision, Shown(np.ones(K), np.zeros((K, 1))))


# --- items and set-up -------------------------------------------------------------------------


def test_bad_items() -> None:
    one = agent()
    played(one, stream(0, "bad"), 5)
    refused(one, lambda: one.add_items(np.ones((2, Q + 1))), r"shape \(2, 4\); .*\(2, 3\)")
    refused(one, lambda: one.add_items(np.ones(Q)), r"shape \(3,\); .*\(3, 3\) \(items, features\)")
    refused(one, lambda: one.add_items(np.empty((0, Q))), r"give at least one row")
    refused(one, lambda: one.add_items(None), r"features of the items are None;")
    refused(one, lambda: one.add_items([[nan, 0.0, 0.0]]), r"number \[0, 0\] of the items .* nan;")
    refused(one, lambda: one.add_items([["a", "b", "c"]]), r"items .* is not an array of numbers")
    refused(one, lambda: one.retire([8]), r"item 8 is not in the catalogue, or was retired;")
    refused(one, lambda: one.retire([1.0]), r"ids holds 1\.0; give ids")  # type: ignore[list-item]
    refused(one, lambda: one.retire(3), r"ids is 3; give a list of ids")  # type: ignore[arg-type]
    refused(one, lambda: one.retire(range(6)), r"6 items are to be retired and 2 would be left for")
    one.retire([3])
    refused(one, lambda: one.retire([3]), r"item 3 is not in the catalogue, or was retired;")


def test_objectives_of_a_fixed_length_need_another() -> None:
    merits = [1.0] * 8
    one = agent(FWLinUCBRank(TwoSided(PerMerit(GiniEquality(), merits))))
    played(one, stream(0, "bad"), 5)
    refused(
        one, lambda: one.add_items(ITEMS[:1]), r"PerMerit has 8 merits, the problem has 9 items;"
    )
    refused(one, lambda: one.retire([0]), r"PerMerit has 8 merits, the problem has 7 items;")
    short = TwoSided(PerMerit(GiniEquality(), merits[1:]))
    refused(one, lambda: one.add_items(ITEMS[:1], objective=short), r"7 merits, the problem has 9")
    refused(one, lambda: one.replace_objective(short), r"7 merits, the problem has 8 items")
    one.retire([0], objective=short)
    assert one.objective == short
    assert one.add_items(ITEMS[:1], TwoSided(PerMerit(GiniEquality(), merits))).tolist() == [8]


def test_labels_are_for_a_catalogue_that_does_not_change() -> None:
    labels = list("aabbccdd")
    one = agent(FWLinUCBRank(TwoSided(ByGroup(GiniEquality(), labels))))
    sentence = r"has the labels of a fixed catalogue, and items have come or gone: .* by=.maker"
    refused(one, lambda: one.add_items(ITEMS[:1]), sentence)
    refused(one, lambda: one.retire([0]), sentence)
    short = TwoSided(ByGroup(GiniEquality(), labels[1:]))
    refused(one, lambda: one.retire([0], objective=short), sentence)
    refused(one, lambda: one.retire([0], objective=2.0 * short.items), sentence)
    one.replace_objective(TwoSided(ByGroup(GiniEquality(), labels[::-1])))
    one.replace_objective(FAIR)
    one.retire([0])
    refused(one, lambda: one.replace_objective(short), sentence)


def test_fairlearn_must_have_room_for_new_items() -> None:
    one = agent(FairLearnRank(0.35))
    sentence = r"minimum is 0\.35; 3 slots cannot show each of 9 items in more than .* 0\.333333"
    refused(one, lambda: one.add_items(ITEMS[:1]), sentence)
    refused(one, lambda: one.add_items(ITEMS[:1], FAIR), r"it follows none; make another agent")
    refused(one, lambda: one.retire([0], FAIR), r"it follows none; make another agent")
    refused(one, lambda: one.replace_objective(FAIR), r"it follows none; make another agent")
    refused(one, lambda: one.value, r"FairLearnRank\(.*has no objective, so there is no value")
    refused(one, lambda: one.objective, r"FairLearnRank\(.*has no objective")
    one.retire([0])
    assert one.add_items(ITEMS[:1]).tolist() == [8]


SETUPS: dict[str, tuple[Callable[[], object], str]] = {
    "items too few": (lambda: agent(items=ITEMS[1:]), r"shape \(7, 3\); .*\(8, 3\)"),
    "items of words": (lambda: agent(items="abc"), r"items .*not an array of numbers"),
    "items for arms": (
        lambda: agent(FrankWolfe(Minimum(), LinUCB()), Problem.arms(2, {"c": (0, 1), "d": (0, 1)})),
        r"the problem has arms; items are for Problem\.ranking",
    ),
    "arms for a ranking": (
        lambda: Agent(FrankWolfe(Minimum(), LinUCB()), PROBLEM),
        r"items to rank, and \w+ chooses an arm; use LinUCBRank",
    ),
    "MOLinCB for a ranking": (
        lambda: Agent(MOLinCB(Minimum()), PROBLEM),
        r"items to rank, and \w+ chooses an arm;",
    ),
    "a ranking for arms": (
        lambda: Agent(FairLearnRank(0.1), Problem.arms(2, {"c": (0, 1)})),
        r"FairLearnRank ranks items, and the problem has arms; make it with Problem\.ranking",
    ),
    "a floor without room": (
        lambda: agent(FairLearnRank(0.5)),
        r"minimum is 0\.5; 3 slots cannot show each of 8 items",
    ),
}


@pytest.mark.parametrize("what", SETUPS)
def test_bad_set_ups(what: str) -> None:
    attempt, sentence = SETUPS[what]
    with pytest.raises(InvalidInput, match=sentence):
        attempt()


def test_arms_have_no_items() -> None:
    problem = Problem.arms(2, {"c": (0, 1), "d": (0, 1)})
    one = Agent(FrankWolfe(Minimum(), LinUCB()), problem)
    for attempt in (
        lambda: one.items,
        lambda: one.add_items(ITEMS),
        lambda: one.retire([0]),
    ):
        with pytest.raises(
            InvalidInput, match=r"the problem has arms; items are for Problem\.rank"
        ):
            attempt()
    with pytest.raises(InvalidInput, match=r"pinned is for rankings; leave it out"):
        one.act(np.eye(2), pinned={0: 1})
    with pytest.raises(InvalidInput, match=r"exposed and clicked are for rankings;"):
        one.update(one.act(np.eye(2)), exposed=[0])


def test_a_check_refuses_what_the_change_refuses_and_changes_nothing() -> None:
    one = agent()
    played(one, stream(0, "bad"), 5)
    before = bits(one)
    short = TwoSided(PerMerit(GiniEquality(), [1.0] * 7))
    longer = TwoSided(PerMerit(GiniEquality(), [1.0] * 9))
    wrong: list[tuple[dict[str, Any], Callable[[], object]]] = [
        ({"items": np.ones((2, Q + 1))}, lambda: one.add_items(np.ones((2, Q + 1)))),
        ({"items": {"a": ITEMS[0]}}, lambda: one.add_items({"a": ITEMS[0]})),
        ({"items": ITEMS[:1], "objective": short}, lambda: one.add_items(ITEMS[:1], short)),
        ({"retired": [8]}, lambda: one.retire([8])),
        ({"retired": range(6)}, lambda: one.retire(range(6))),
        ({"retired": [0], "objective": longer}, lambda: one.retire([0], longer)),
        ({"objective": short}, lambda: one.replace_objective(short)),
        ({"objective": 2.0}, lambda: one.replace_objective(2.0)),  # type: ignore[arg-type]
    ]
    for given, change in wrong:
        with pytest.raises(InvalidInput) as caught:
            change()
        with pytest.raises(InvalidInput) as checked:
            one.check_change(**given)
        assert str(checked.value) == str(caught.value)
    one.check_change(ITEMS[:1], objective=longer)
    one.check_change(retired=[0], objective=short)
    one.check_change(objective=TwoSided(PerMerit(GiniEquality(), [1.0] * 8)))
    assert bits(one) == before
