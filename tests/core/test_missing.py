"""Rewards that nobody gave: refused by name, or counted as `missing` says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.bandits import SquareCB
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniWelfare
from fairwolfe.ranking import FWLinUCBRank
from tests.agent.ranking_agents import FAIR, ITEMS, PROBLEM, K, M, P, Q, agent, bits
from tests.core.test_arm_candidates import contents, state

ARMS = fw.Problem.arms(2, {"clicks": (0, 1), "minutes": (0, 10)})
SEVERAL = fw.Problem.ranking(M, K, (P, Q), {"clicks": (0, K), "minutes": (0, 30)})
WHO = np.array([0.3, 0.4])


def arms() -> fw.Agent:
    return fw.Agent(fw.FrankWolfe(GiniWelfare(), SquareCB(gamma0=10.0)), ARMS, seed=1)


def items(decision: fw.Decision) -> list[int]:
    return list(np.asarray(decision.action).tolist())


# --- arms ----------------------------------------------------------------------------------------

LACKS: dict[str, tuple[Any, str, list[float]]] = {
    "one": ({"clicks": 1}, "minutes", [1.0, 0.0]),
    "None by name": ({"clicks": 1, "minutes": None}, "minutes", [1.0, 0.0]),
    "None in order": ([None, 2.0], "clicks", [0.0, 2.0]),
    "None in an array": (np.array([1.0, None]), "minutes", [1.0, 0.0]),
    "None in a tuple": ((None, None), "clicks, minutes", [0.0, 0.0]),
    "nothing": (None, "clicks, minutes", [0.0, 0.0]),
    "nothing by name": ({}, "clicks, minutes", [0.0, 0.0]),
}


@pytest.mark.parametrize(("reward", "lacks", "filled"), LACKS.values(), ids=LACKS)
def test_a_reward_that_is_missing(reward: Any, lacks: str, filled: list[float]) -> None:
    one, two = arms(), arms()
    made = one.act(np.eye(2)), two.act(np.eye(2))
    before = contents(one)
    sentence = (
        f"the reward lacks {lacks}; give all of clicks, minutes, or missing=0. to count 0 where "
        "none was given"
    )
    with pytest.raises(InvalidInput) as caught:
        one.update(made[0], reward)
    assert str(caught.value) == sentence
    with pytest.raises(InvalidInput) as caught:
        one.update_many([made[0]], [reward])
    assert str(caught.value) == f"answer 0: {sentence}"
    assert contents(one) == before
    one.update(made[0], reward, missing=0.0)
    two.update(made[1], filled)
    assert state(one) == state(two)


def test_another_number_for_what_is_missing() -> None:
    one = arms()
    one.update(one.act(np.eye(2)), {"clicks": 1}, missing=2)
    assert one.average.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("bad", ["0", float("nan"), float("inf"), [0.0], 10**400])
def test_missing_is_a_finite_number(bad: Any) -> None:
    one, rank = arms(), agent()
    for each, decision in ((one, one.act(np.eye(2))), (rank, rank.act(WHO))):
        with pytest.raises(InvalidInput, match=r"missing is .*; give a finite number"):
            each.update(decision, missing=bad)
        with pytest.raises(InvalidInput, match=r"missing is .*; give a finite number"):
            each.update_many([decision], [None], missing=bad)
        assert (each.t, each.open) == (0, 1)


def test_missing_fills_nothing_that_is_wrong() -> None:
    one = arms()
    decision = one.act(np.eye(2))
    for reward, sentence in (
        ({"clicks": 1, "minute": 2}, r"no reward 'minute'; did you mean 'minutes'"),
        ([1.0, float("nan")], r"the reward 'minutes' is nan; give a finite number"),
        ([1.0], r"the reward has shape \(1,\)"),
        ([None, None, 1.0], r"the reward has shape \(3,\)"),
    ):
        with pytest.raises(InvalidInput, match=sentence):
            one.update(decision, reward, missing=0.0)
    assert one.t == 0


@pytest.mark.parametrize("batch", [True, False])
def test_many_with_missing_rewards(batch: bool) -> None:
    one, two = arms(), arms()
    contexts = stream(0, "rows").uniform(-0.5, 0.5, (4, 3, 2))
    made = one.act_many(contexts), two.act_many(contexts)
    given = [{"clicks": 1}, [None, 2.0], None, {"minutes": 1.0, "clicks": 1.0}]
    decisions = made[0] if batch else list(made[0])
    before = contents(one)
    with pytest.raises(InvalidInput, match=r"^answer 0: the reward lacks minutes; give all of"):
        one.update_many(decisions, given)
    with pytest.raises(InvalidInput, match=r"^answer 2: the reward 'minutes' is nan"):
        one.update_many(decisions, [*given[:2], [0.0, np.nan], given[3]], missing=0.0)
    assert contents(one) == before
    one.update_many(decisions, given, missing=0.0)
    two.update_many(made[1], np.array([[1, 0], [0, 2], [0, 0], [1, 1]], dtype=np.float64))
    assert state(one) == state(two)


@pytest.mark.parametrize("batch", [True, False])
def test_an_answer_that_was_given_already_is_named_by_its_number(batch: bool) -> None:
    one = arms()
    made = one.act_many(np.zeros((3, 2, 2)))
    one.update(made[1], [0.0, 0.0])
    before = contents(one)
    with pytest.raises(InvalidInput, match=r"^answer 1: the feedback for decision .* was given al"):
        one.update_many(made if batch else list(made), [[0.5, 0.5]] * 3)
    twice = [made[0], made[2], made[0]]
    with pytest.raises(InvalidInput, match=r"^answer 2: decision .* is given twice; its feedback"):
        one.update_many(twice, [[0.5, 0.5]] * 3)
    assert contents(one) == before


# --- rankings ------------------------------------------------------------------------------------


def several() -> fw.Agent:
    return agent(problem=SEVERAL)


def test_a_reward_of_a_ranking_that_nobody_gave_is_refused() -> None:
    """Until now it was 0 without a word."""
    one, two = several(), several()
    made = one.act(WHO), two.act(WHO)
    a, b, _ = items(made[0])
    before = bits(one)
    lacks = r"the reward lacks {}; give all of clicks, minutes by item .*, or missing=0\. to count"
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (None, {"exposed": [a, b], "clicked": [a]}, "minutes"),
        ({"minutes": None}, {"exposed": [a, b], "clicked": [a]}, "minutes"),
        ({"minutes": {a: 3.0}}, {"exposed": [a, b]}, "clicks"),
        ({"minutes": {a: 3.0}, "exposed": [a]}, {}, "clicks"),
        (None, {"exposed": [a, b]}, "clicks, minutes"),
    ]
    for reward, options, name in cases:
        with pytest.raises(InvalidInput, match=lacks.format(name)):
            one.update(made[0], reward, **options)
    with pytest.raises(InvalidInput, match=r"'minutes' of item . is None; .* or missing=0\."):
        one.update(made[0], {"minutes": {a: None}}, exposed=[a], clicked=[])
    assert bits(one) == before
    one.update(made[0], {"minutes": {a: None}}, exposed=[a, b], clicked=[a], missing=0.0)
    two.update(made[1], {"minutes": {}}, exposed=[a, b], clicked=[a])
    assert state(one) == state(two)


def test_exposure_without_clicks_needs_a_word() -> None:
    """Somebody who reports exposures and forgets clicks would teach that nobody clicks."""
    ways: list[dict[str, Any]] = [{"clicked": []}, {"missing": 0.0}, {"reward": {"clicks": []}}]
    states = []
    for way in ways:
        one = agent()
        decision = one.act(WHO)
        first = items(decision)[:2]
        with pytest.raises(InvalidInput, match=r"the reward lacks clicks; .*clicked=ids, none: \["):
            one.update(decision, exposed=first)
        with pytest.raises(InvalidInput, match=r"answer 0: the reward lacks clicks"):
            one.update_many([decision], [{"exposed": first}])
        assert one.t == 0
        one.update(decision, exposed=first, **way)
        states.append(state(one))
    assert states[0] == states[1] == states[2]


def test_where_nothing_was_exposed_nothing_was_earned() -> None:
    one, two = several(), several()
    made = one.act(WHO), two.act(WHO)
    one.update(made[0], exposed=[])
    two.update(made[1], {"minutes": {}}, exposed=[], clicked=[])
    assert state(one) == state(two)


def test_exposure_that_is_assumed_does_not_say_that_nothing_was_earned() -> None:
    one = fw.Agent(
        FWLinUCBRank(FAIR, exposure="shown", exploration="theorem"), PROBLEM, items=ITEMS
    )
    decision = one.act(WHO)
    several_ways: list[dict[str, Any]] = [{}, {"exposed": []}]
    for options in several_ways:
        with pytest.raises(InvalidInput, match=r"the reward lacks clicks"):
            one.update(decision, **options)
    one.update(decision, missing=0.0)
    assert one.average.sum() == K


def test_nothing_at_all_counts_as_nothing_exposed_if_that_is_said() -> None:
    one, two = several(), several()
    made = one.act(WHO), two.act(WHO)
    with pytest.raises(InvalidInput, match=r"the exposed items are missing; give exposed=ids"):
        one.update(made[0])
    one.update(made[0], missing=0.0)
    two.update(made[1], exposed=[])
    assert state(one) == state(two)


def test_what_is_missing_in_a_ranking_is_nothing_but_0() -> None:
    one = several()
    decision = one.act(WHO)
    with pytest.raises(InvalidInput, match=r"missing is 1\.0; a missing reward .*, so give 0\."):
        one.update(decision, exposed=items(decision), missing=1)
    with pytest.raises(InvalidInput, match=r"earned something but is not among the exposed"):
        one.update(decision, clicked=items(decision)[:1], missing=0.0)
    assert one.t == 0


@pytest.mark.parametrize("batch", [True, False])
def test_many_rankings_with_missing_rewards(batch: bool) -> None:
    one, two = several(), several()
    users = stream(1, "users").uniform(0.1, 0.6, (3, P))
    made = one.act_many(users), two.act_many(users)
    first = [items(decision)[0] for decision in made[0]]
    given: list[Any] = [
        {"exposed": [first[0]], "clicked": [first[0]]},
        {"minutes": {first[1]: 2.0}, "exposed": first[1:2]},
        None,
    ]
    whole = [
        {"exposed": [first[0]], "clicked": [first[0]], "minutes": {}},
        {"minutes": {first[1]: 2.0}, "exposed": first[1:2], "clicked": []},
        {"exposed": []},
    ]
    decisions = made[0] if batch else list(made[0])
    before = bits(one)
    with pytest.raises(InvalidInput, match=r"^answer 1: the reward lacks clicks; give all of"):
        one.update_many(decisions, [whole[0], *given[1:]])
    assert bits(one) == before
    one.update_many(decisions, given, missing=0.0)
    two.update_many(made[1], whole)
    assert state(one) == state(two)


def test_a_shown_has_nothing_missing() -> None:
    one, two = several(), several()
    shown = fw.Shown(np.ones(K), np.zeros((K, 2)))
    one.update(one.act(WHO), shown)
    two.update(two.act(WHO), shown, missing=0.0)
    assert state(one) == state(two)
