"""Decisions that are proposed, kept safe, and issued: by the agent itself, or again from bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, Batch, FrankWolfe, Problem
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank

ARMS = Problem.arms(4, {"clicks": (0, 1), "minutes": (0, 10)}, parameter_norm=1.0)
RANKING = Problem.ranking(8, 3, (4, 4), parameter_norm=1.0)
ITEMS = {f"i{n}": row for n, row in enumerate(np.random.default_rng(1).normal(size=(8, 4)) / 3)}


def arms(policy: Any = None) -> Agent:
    return Agent(policy or FrankWolfe(Minimum(), SquareCB(gamma0=50.0)), ARMS, seed=3, token="a")


def ranking() -> Agent:
    return Agent(FWLinUCBRank(TwoSided(GiniWelfare())), RANKING, 3, ITEMS, token="a")


AGENTS = {
    "arms": arms,
    "linucb": lambda: arms(FrankWolfe(Minimum(), LinUCB())),
    "greedy": lambda: arms(FrankWolfe(Minimum(), EpsilonGreedy(0.2))),
    "without anticipation": lambda: arms(FrankWolfe(Minimum(), LinUCB(), anticipate=False)),
    "extended": lambda: arms(FrankWolfe(Minimum(), LinUCB(model="extended"))),
    "memory": lambda: arms(FrankWolfe(Minimum(), LinUCB(), memory=20.0)),
    "ranking": ranking,
}


def contexts(agent: Agent, n: int, rng: np.random.Generator) -> Any:
    shape = (n, 4) if agent.problem.n_items else (n, 5, 4)
    return np.clip(rng.normal(size=shape) / 5.0, -0.5, 0.5)


def play(agent: Agent, rounds: int, how: str) -> list[bytes]:
    """Rounds of three decisions each, of which two are answered a round later."""
    rng = np.random.default_rng(0)
    log: list[bytes] = []
    waiting: list[Any] = []
    for _ in range(rounds):
        given = contexts(agent, 3, rng)
        if how == "at once":
            made: Any = agent.act_many(given)
        else:
            made = agent.propose(given)
            agent.propose(given[::-1])  # leaves no trace
            assert isinstance(made, Batch)
            log.append(made.to_bytes())
            if how == "from bytes":
                made = Batch.from_bytes(log[-1])
            agent.issue(made)
        for batch in waiting:
            agent.update_many(batch[:2], _answers(agent, batch[:2]))
        waiting = [made]
    return log


def _answers(agent: Agent, batch: Any) -> Any:
    if agent.problem.n_items is None:
        return np.array([[d.number % 2, d.number % 7] for d in batch], dtype=np.float64)
    return [{"exposed": [d.action[0]], "clicked": [d.action[0]][: d.number % 2]} for d in batch]


@pytest.mark.parametrize("name", AGENTS)
def test_proposed_and_issued_is_decided_at_once_bit_for_bit(name: str) -> None:
    agents = {how: AGENTS[name]() for how in ("at once", "proposed", "from bytes")}
    for how, agent in agents.items():
        play(agent, 20, how)
    dumps = {how: agent.dump() for how, agent in agents.items()}
    assert dumps["proposed"] == dumps["at once"]
    assert dumps["from bytes"] == dumps["at once"]


@pytest.mark.parametrize("name", AGENTS)
def test_what_was_done_since_a_dump_is_done_again(name: str) -> None:
    agent = AGENTS[name]()
    play(agent, 5, "proposed")
    kept = agent.dump()
    rng = np.random.default_rng(9)
    given = contexts(agent, 4, rng)
    made = agent.propose(given)
    agent.issue(made)
    again = Agent.restore(kept, token="a")
    assert isinstance(made, Batch)
    again.issue(Batch.from_bytes(made.to_bytes()))
    assert again.dump() == agent.dump()
    assert [d.id for d in again.propose(given)] == [d.id for d in agent.propose(given)]
    names = again.propose(given)[0].names
    assert names == agent.propose(given)[0].names


def test_only_the_next_decisions_can_be_issued() -> None:
    agent = arms()
    rng = np.random.default_rng(0)
    first = agent.propose(contexts(agent, 2, rng))
    agent.issue(first)
    before = agent.dump()
    with pytest.raises(InvalidInput, match="the next is 'a-2'"):
        agent.issue(first)
    with pytest.raises(InvalidInput, match="the next is 'a-2'"):
        agent.issue([Agent(agent.policy, ARMS).propose(contexts(agent, 1, rng))[0]])
    agent.issue([])
    assert agent.dump() == before
    assert agent.open == 2


def test_features_beyond_the_norm_are_not_counted_before_they_are_decided() -> None:
    agent = arms()
    before = agent.dump()
    agent.propose(np.full((1, 2, 4), 3.0))
    assert agent.dump() == before
    with pytest.raises(InvalidInput, match="nothing can be learnt"):
        agent.propose(np.full((1, 2, 4), 1e200))


def test_what_would_be_learnt_is_told_and_changes_nothing() -> None:
    agent = ranking()
    decision = agent.propose(np.ones((1, 4)) / 4)[0]
    names = decision.names
    assert names is not None
    before = agent.dump()
    answer = agent.read_feedback(decision, exposed=names[:2], clicked=names[1:2])
    assert answer.observation.exposed.tolist() == [1.0, 1.0, 0.0]
    assert agent.read_feedback(decision, missing=0.0).reward.sum() == 0.0
    with pytest.raises(InvalidInput, match="not among the exposed"):
        agent.read_feedback(decision, exposed=names[:1], clicked=names[1:2])
    assert agent.dump() == before


def test_a_token_must_be_that_of_the_saved_agent() -> None:
    kept = arms().dump()
    with pytest.raises(IncompatibleState, match="the agent that was saved had 'a'"):
        Agent.restore(kept, token="b")
    with pytest.raises(InvalidInput, match="at most 64 characters"):
        Agent(FrankWolfe(Minimum(), LinUCB()), ARMS, token="")
    assert Agent.restore(kept).act(np.eye(4)).id != "a-0"


@pytest.mark.parametrize("name", AGENTS)
def test_a_direction_serves_as_many_decisions_as_the_tolerance_allows(name: str) -> None:
    """Groups of one direction are what would be decided without counting what they open."""
    agent = AGENTS[name]()
    play(agent, 10, "at once")
    rng = np.random.default_rng(4)
    given = contexts(agent, 12, rng)
    own = agent.propose(given)
    assert _actions(agent.propose(given, tolerance=1e-3)) == _actions(own)
    youngest = agent._running.youngest
    served = int(0.2 * youngest)
    assert 1 < served < 12
    shared = agent.propose(given, tolerance=0.2)
    again = Agent.restore(agent.dump(), token="a")
    for start in range(0, 12, served):
        some = slice(start, start + served)
        drawn = Numbered(again._draws.key, again._ledger.issued)
        stack = again._running.kind.read_many(given[some], [])
        alike = again._running.decide_stack(stack, drawn, advance=False)
        assert _actions(shared[some]) == np.asarray(alike.actions).tolist()
        again.issue(shared[some])
    agent.issue(shared)
    assert agent.dump() == again.dump()


def _actions(decisions: Any) -> list[Any]:
    return [np.asarray(decision.action).tolist() for decision in decisions]


@pytest.mark.parametrize("tolerance", [-0.1, 1.5, float("nan"), "much", None])
def test_a_tolerance_out_of_range(tolerance: Any) -> None:
    with pytest.raises(InvalidInput, match=r"give a number from 0 to 1"):
        arms().propose(np.ones((1, 2, 4)) / 4, tolerance=tolerance)
