"""What comes in is checked once, at a gate: forged, of another problem, or too late."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import LinUCB, Uniform
from fairwolfe.core.kinds import kind_of
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniEquality, GiniWelfare, TwoSided
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank

ARMS = fw.Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
RANKING = fw.Problem.ranking(4, 2, (2, 3))
FAIR = TwoSided(GiniEquality(), beta=0.5)
ITEMS = np.full((4, 3), 0.3)
USER = np.full(2, 0.5)


def ranker(policy: Any = None) -> fw.Agent:
    return fw.Agent(policy or FWLinUCBRank(FAIR, exploration="theorem"), RANKING, items=ITEMS)


# --- decisions that anybody may have written ---------------------------------------------------


def test_bytes_that_somebody_changed_are_refused() -> None:
    agent = ranker(FairLearnRank(0.1, exploration="theorem"))
    agent.add_items(ITEMS[:1])
    decision = agent.act(USER, candidates=[3, 4])
    data = decision.to_bytes()
    before = [array.copy() for _, array in arrays_of(agent._running)]
    for place in range(len(data)):
        forged = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(InvalidInput):
            agent.update(fw.Decision.from_bytes(forged), exposed=[3], clicked=[])
    after = [array for _, array in arrays_of(agent._running)]
    assert all(map(np.array_equal, before, after))
    agent.update(fw.Decision.from_bytes(data), exposed=[3], clicked=[])
    assert agent.t == 1


# --- contexts that were read for others --------------------------------------------------------


def test_a_context_of_another_problem_is_refused() -> None:
    small = kind_of(fw.Problem.arms(1, {"a": (0, 1)})).read([[0.5]])
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")), ARMS)
    with pytest.raises(InvalidInput, match=r"read for another problem: it has 1 features"):
        agent.act(small)
    base, rng = LinUCB(exploration="theorem"), np.random.default_rng(0)
    with pytest.raises(InvalidInput, match=r"read for another problem: it has 1 features"):
        base.act(base.init(ARMS), small, np.ones(2), rng)
    others = kind_of(fw.Problem.ranking(9, 2, (2, 3))).read(fw.Bilinear(USER, np.ones((9, 3)) / 3))
    one = ranker()
    with pytest.raises(InvalidInput, match=r"read for another problem: .* of 9 items"):
        one.act(others)
    read = kind_of(RANKING).read(fw.Bilinear(USER, ITEMS))
    with pytest.raises(InvalidInput, match=r"has been read, and blocked cannot be added"):
        one.act(read, blocked=[1])
    assert agent.act(kind_of(ARMS).read(np.eye(2) / 2), blocked=[0]).action == 1
    some = kind_of(ARMS).read(np.eye(2) / 2, blocked=[0])
    with pytest.raises(InvalidInput, match=r"has been read, and candidates and blocked cannot be"):
        agent.act(some, blocked=[0])


@pytest.mark.parametrize("blocked", [np.array([1, 2]), np.array([1]), [1], (1,), {1}])
def test_blocked_items_in_any_container(blocked: Any) -> None:
    shown = np.asarray(ranker().act(USER, blocked=blocked).action).tolist()
    assert not set(shown) & {int(one) for one in blocked}


def test_an_empty_array_blocks_nothing() -> None:
    assert len(np.asarray(ranker().act(USER, blocked=np.array([], dtype=int)).action)) == 2


# --- between two locks -------------------------------------------------------------------------


def test_items_that_come_while_a_batch_waits() -> None:
    """The answers were read for fewer items than the state has when they are applied."""
    agent = ranker()
    decisions = [agent.act(USER) for _ in range(400)]
    stop = threading.Event()

    def grow() -> None:
        while not stop.is_set() and len(agent.items) < 60:
            agent.add_items(ITEMS[:1])

    thread = threading.Thread(target=grow)
    thread.start()
    for i in range(0, 400, 4):
        some = decisions[i : i + 4]
        shown = [np.asarray(one.action).tolist() for one in some]
        agent.update_many(some, [{"exposed": ids, "clicked": ids[:1]} for ids in shown])
    stop.set()
    thread.join(20)
    assert agent.t == 400
    assert agent.average[-1] == 1.0  # a click for each
    assert agent.average[:4].sum() == pytest.approx(2.0)
    assert not agent.average[4:-1].any()


def test_a_decision_inside_a_decision_has_an_id_of_its_own() -> None:
    inside: list[fw.Decision] = []

    @dataclass(frozen=True)
    class Curious(Uniform):
        def act(self, state: Any, context: Any, *given: Any, **options: Any) -> Any:
            if not inside:
                inside.append(None)  # type: ignore[arg-type]
                inside[0] = agent.act(np.eye(2) / 2)
            return super().act(state, context, *given, **options)

    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), Curious()), ARMS)
    outer = agent.act(np.eye(2) / 2)
    assert outer.id != inside[0].id
    assert agent.open == 2
    agent.update_many([outer, inside[0]], [[1, 0], [0, 1]])
    assert agent.average.tolist() == [0.5, 0.5]


# --- what a base or policy in Python returns ---------------------------------------------------


@dataclass(frozen=True)
class Plain:
    """Returns what it is told to."""

    action: Any = 0
    probability: Any = None
    whole: Any = None

    def init(self, problem: fw.Problem) -> None:
        return None

    def act(self, state: None, context: Any, direction: Any, rng: Any) -> Any:
        return self.whole or fw.Choice(self.action, self.probability, None)

    def update(self, state: None, choice: Any, direction: Any, observation: Any) -> None:
        return None


@pytest.mark.parametrize(
    ("base", "sentence"),
    [
        (Plain(99), r"chose 99, which may not be chosen here; return the number of an arm"),
        (Plain(-1), r"chose -1"),
        (Plain("a"), r"chose a"),
        (Plain(True), r"chose True"),
        (Plain(1.0), r"chose 1.0"),
        (Plain(0, 2.0), r"gave the probability 2.0; give a number above 0"),
        (Plain(0, float("nan")), r"gave the probability nan"),
        (Plain(whole=(0, 1.0)), r"returned .* from act; return fw.Choice"),
    ],
)
def test_what_a_base_may_not_return(base: Any, sentence: str) -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), base), ARMS)
    with pytest.raises(InvalidInput, match=sentence):
        agent.act(np.eye(2) / 2)
    assert agent.open == 0


def test_a_whole_probability_goes_through_bytes() -> None:
    agent = fw.Agent(fw.FrankWolfe(GiniWelfare(), Plain(1, 1)), ARMS)
    decision = agent.act(np.eye(2) / 2)
    agent.update(fw.Decision.from_bytes(decision.to_bytes()), [1.0, 1.0])
    assert agent.t == 1


def test_a_policy_is_not_a_base() -> None:
    with pytest.raises(InvalidInput, match=r"MOLinCB.* is a policy already; give a bandit"):
        fw.FrankWolfe(GiniWelfare(), fw.MOLinCB(GiniWelfare()))


@dataclass(frozen=True)
class Counting:
    """A policy whose state is a dict, which only a copy can take back."""

    def init(self, problem: fw.Problem) -> dict[str, int]:
        return {"n": 0}

    def act(self, state: dict[str, int], context: Any, rng: Any) -> fw.Decision:
        return fw.Decision("", state["n"], 0, None, None)

    def update(self, state: dict[str, int], decision: fw.Decision, feedback: Any) -> Any:
        if feedback[0] > 0.9:
            raise InvalidInput("too good")
        state["n"] += 1
        return state


def test_a_batch_is_taken_back_whatever_the_state_is_made_of() -> None:
    agent = fw.Agent(Counting(), ARMS)
    decisions = agent.act_many([np.eye(2) / 2] * 3)
    with pytest.raises(InvalidInput, match=r"too good"):
        agent.update_many(decisions, [[0.1, 0.1], [0.2, 0.2], [1.0, 0.0]])
    assert agent.t == 0
    assert agent._running.state.policy == {"n": 0}
    assert agent.average.tolist() == [0.0, 0.0]
    agent.update_many(decisions, [[0.1, 0.1]] * 3)
    assert agent._running.state.policy == {"n": 3}


def test_a_subclass_with_an_act_of_its_own_is_asked() -> None:
    @dataclass(frozen=True)
    class Stubborn(fw.FrankWolfe):
        def act(self, state: Any, context: Any, rng: np.random.Generator) -> fw.Decision:
            decision = super().act(state, context, rng)
            decision.batch.rows.head["arm"] = 1
            return decision

    agent = fw.Agent(Stubborn(GiniWelfare(), LinUCB(exploration="theorem")), ARMS)
    assert agent.act(np.eye(2) / 2).action == 1
    assert agent.act_many([np.eye(2) / 2])[0].action == 1


# --- problems ----------------------------------------------------------------------------------


def test_the_kind_of_a_problem_follows_its_items() -> None:
    assert replace(RANKING, n_items=None, n_slots=None, rewards={"a": (0, 1)}).kind == "arms"
    assert replace(ARMS, n_items=5, n_slots=2).kind == "ranking"
    assert replace(ARMS, kind="cascade").kind == "cascade"
    with pytest.raises(InvalidInput, match=r"kind is 3"):
        replace(ARMS, kind=3)  # type: ignore[arg-type]
