"""Anything that can happen to an agent, in any order, against a model of a few lists."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from fairwolfe import Agent, FrankWolfe, Problem
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.core.decision import Decision
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniWelfare, Linear, Minimum
from fairwolfe.smoothing import Randomized

PROBLEM = Problem.arms(2, {"clicks": (-1, 1), "minutes": (-1, 1)})
OPENED = ("state.open", "state.weights", "state.sums", "state.phi")
POLICIES = [
    FrankWolfe(GiniWelfare(), LinUCB()),
    FrankWolfe(Minimum(), SquareCB(gamma0=5.0)),
    FrankWolfe(Minimum(), SquareCB(gamma0=5.0), Randomized(n_samples=2)),
    FrankWolfe(GiniWelfare(), LinUCB(), anticipate=False),
]
unit = st.floats(-1.0, 1.0)
rewards = st.tuples(unit, unit)
bad_rewards = st.sampled_from(
    [(0.5,), (0.5, float("nan")), (float("inf"), 0.0), {"clicks": 1.0}, {"click": 1, "minutes": 1}]
)
contexts = st.lists(st.tuples(unit, unit), min_size=1, max_size=4).map(
    lambda rows: np.array(rows) / np.sqrt(2.0)
)


class AgentMachine(RuleBasedStateMachine):
    """The model: how many decisions were made, the (features, reward) of each answered one, the
    features of those that wait, and how many have expired.
    """

    waiting = Bundle("waiting")
    answered = Bundle("answered")
    expired = Bundle("expired")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "agent.fw"
        self.made = 0
        self.seen: list[tuple[Any, tuple[float, float]]] = []
        self.open: dict[int, Any] = {}
        self.gone = 0

    def teardown(self) -> None:
        self.folder.cleanup()

    @initialize(policy=st.sampled_from(POLICIES), seed=st.integers(0, 3))
    def start(self, policy: Any, seed: int) -> None:
        self.agent = Agent(policy, PROBLEM, seed)
        self.stranger = Agent(policy, PROBLEM, seed)

    def refused(self, sentence: str, decision: Decision, reward: Any) -> None:
        before = self.everything()
        with pytest.raises(InvalidInput, match=sentence):
            self.agent.update(decision, reward)
        with pytest.raises(InvalidInput, match=sentence):
            self.agent.update_many([decision], [reward])
        assert self.everything() == before

    def everything(self) -> Any:
        arrays = [(name, array.tobytes()) for name, array in arrays_of(self.agent._running)]
        numbers, bits = self.agent._ledger.saved()
        return arrays, str(numbers), str(bits), str(self.agent._draws.key)

    def opened(self, *decisions: Decision) -> None:
        self.made += len(decisions)
        self.open.update({decision.number: decision.batch.rows.x[0] for decision in decisions})

    @rule(target=waiting, context=contexts)
    def act(self, context: Any) -> Decision:
        decision = self.agent.act(context)
        self.opened(decision)
        return decision

    @rule(
        target=waiting,
        batch=st.lists(contexts, max_size=3),
        advance=st.sampled_from([None, True, False]),
    )
    def act_many(self, batch: list[Any], advance: bool | None) -> Any:
        before = {name: array.copy() for name, array in arrays_of(self.agent._running)}
        decisions = self.agent.act_many(batch, advance)
        for name, array in arrays_of(self.agent._running):
            assert name in OPENED or np.array_equal(array, before[name])
        self.opened(*decisions)
        return multiple(*decisions)

    @rule(target=expired, decision=consumes(waiting))
    def expire(self, decision: Decision) -> Decision:
        self.agent.expire(decision)
        del self.open[decision.number]
        self.gone += 1
        return decision

    @rule(decision=expired, reward=rewards)
    def give_too_late(self, decision: Decision, reward: Any) -> None:
        self.refused("expired", decision, reward)

    @rule(target=answered, decision=consumes(waiting), reward=rewards, named=st.booleans())
    def update(self, decision: Decision, reward: tuple[float, float], named: bool) -> Decision:
        self.agent.update(
            decision, {"minutes": reward[1], "clicks": reward[0]} if named else reward
        )
        self.heard(decision, reward)
        return decision

    def heard(self, decision: Decision, reward: tuple[float, float]) -> None:
        del self.open[decision.number]
        self.seen.append((decision.batch.rows.x[0], reward))

    @rule(
        target=answered,
        one=consumes(waiting),
        other=consumes(waiting),
        answers=st.tuples(rewards, rewards),
    )
    def update_many(self, one: Decision, other: Decision, answers: Any) -> Any:
        self.agent.update_many([one, other], answers)
        for decision, reward in zip((one, other), answers, strict=True):
            self.heard(decision, reward)
        return multiple(one, other)

    @rule(target=answered, context=contexts, answers=st.lists(rewards, min_size=9, max_size=17))
    def go_on_for_a_while(self, context: Any, answers: list[Any]) -> Any:
        return multiple(*(self.update(self.act(context), reward, False) for reward in answers))

    @rule(decision=answered, reward=rewards)
    def give_twice(self, decision: Decision, reward: Any) -> None:
        self.refused("given already", decision, reward)

    @rule(context=contexts, reward=rewards)
    def give_to_a_stranger(self, context: Any, reward: Any) -> None:
        self.refused("another agent", self.stranger.act(context), reward)

    @rule(decision=waiting, reward=bad_rewards)
    def give_nonsense(self, decision: Decision, reward: Any) -> None:
        self.refused("reward", decision, reward)

    @rule(good=waiting, reward=rewards, context=contexts)
    def give_a_batch_with_one_bad(self, good: Decision, reward: Any, context: Any) -> None:
        before = self.everything()
        for bad in (good, self.stranger.act(context)):
            with pytest.raises(InvalidInput):
                self.agent.update_many([good, bad], [reward, reward])
        assert self.everything() == before

    @rule(objective=st.sampled_from([Minimum(), GiniWelfare(), Linear({"clicks": 1.0})]))
    def replace_objective(self, objective: Any) -> None:
        self.agent.replace_objective(objective)

    @rule()
    def save_and_load(self) -> None:
        before = self.agent
        before.save(self.path)
        self.agent = Agent.load(self.path)
        for (name, old), (_, new) in zip(
            arrays_of(before._running), arrays_of(self.agent._running), strict=True
        ):
            assert np.array_equal(old, new), name
        assert before.act(np.eye(2)).action == Agent.load(self.path).act(np.eye(2)).action

    @rule(target=waiting, decision=consumes(waiting))
    def travel_as_bytes(self, decision: Decision) -> Decision:
        return Decision.from_bytes(decision.to_bytes())

    @invariant()
    def sums_and_counts_are_those_of_the_model(self) -> None:
        agent, n = self.agent, len(self.seen)
        stats = agent.stats()
        counts = (stats["t"], stats["open"], stats["expired"], stats["out_of_range"])
        assert counts == (n, self.made - n - self.gone, self.gone, 0)
        counted = agent.policy.anticipate
        assert agent._running.open == (len(self.open) if counted else 0)
        x = np.array([x for x, _ in self.seen]).reshape(n, 2)
        r = np.array([r for _, r in self.seen]).reshape(n, 2)
        oracle = agent._running.base_state.oracle
        assert agent.average * n == pytest.approx(r.sum(axis=0), abs=1e-9)
        assert oracle.gram[0] == pytest.approx(np.eye(2) + x.T @ x, abs=1e-9)
        assert oracle.moment[0] == pytest.approx(r.T @ x, abs=1e-9)
        assert np.isfinite(agent.value)
        if counted and agent.policy.iterate == "observed":
            self.open_sums_are_those_of_the_model()

    def open_sums_are_those_of_the_model(self) -> None:
        state = self.agent._running.state
        for rows, kept in (
            (list(self.open.values()), state.phi[0].sum(axis=0)[0]),
            ([x for x, _ in self.seen], state.psi[0, 0]),
        ):
            sums = np.append(np.array(rows).reshape(-1, 2).sum(axis=0), len(rows))
            assert kept == pytest.approx(sums, abs=1e-9)


TestAgentMachine = AgentMachine.TestCase
TestAgentMachine.settings = settings(max_examples=40, stateful_step_count=40)
