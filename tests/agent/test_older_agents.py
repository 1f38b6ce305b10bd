"""Agents that an older fairwolfe saved load, and decide as it would have with the same draws.

`tests/golden/agents-1` holds files of format version 1 with decisions that were open, and what
followed in the process that wrote them.
"""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent
from fairwolfe.core.arrays import Matrix
from fairwolfe.core.decision import Decision

FOLDER = Path(__file__).parents[1] / "golden" / "agents-1"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text())


def contexts(seed: int, n: int) -> Any:
    return np.random.default_rng(seed).random((n, 4, 3)) / 2


def rewards(seed: int, n: int) -> Matrix:
    return np.random.default_rng(seed).random((n, 2))


USERS = np.random.default_rng(7).random((400, 2)) / 2


def opened(name: str) -> list[Decision]:
    lines = (FOLDER / f"{name}.decisions").read_text().split()
    return [Decision.from_bytes(bytes.fromhex(line)) for line in lines]


def averages(agent: Agent) -> list[str]:
    return [float(value).hex() for value in agent.average]


def test_arms() -> None:
    # It draws: the numbers that the older version would have drawn are in its file.
    agent, expected = Agent.load(FOLDER / "arms.fw"), EXPECTED["arms"]
    with zipfile.ZipFile(FOLDER / "arms.fw") as archive:
        drawn = json.loads(archive.read("agent.json"))["generator"]
    drawn["state"]["state"] = np.array(drawn["state"]["state"], dtype=np.uint64)
    draws = np.random.Generator(np.random.SFC64())
    draws.bit_generator.state = drawn
    policy, state = agent.policy, agent._state
    made = []
    for context, reward in zip(contexts(2, 100), rewards(3, 100), strict=True):
        decision = policy.act(state, context, draws)
        made.append([decision.action, float(decision.probability or 0.0).hex()])
        state = policy.update(state, decision, reward)
    assert made == expected["decisions"]
    assert [float(value).hex() for value in state.average] == expected["average"]
    assert str(policy.live(state)) == expected["live"]
    assert agent.act(contexts(2, 1)[0]).probability is not None


def test_open_decisions() -> None:
    agent, expected = Agent.load(FOLDER / "open.fw"), EXPECTED["open"]
    assert agent.open == 20
    for decision in opened("open"):
        agent.update(decision, [0.5, 2.0])
    made = []
    for context, reward in zip(contexts(12, 100), rewards(13, 100), strict=True):
        decision = agent.act(context)
        made.append(decision.action)
        agent.update(decision, reward)
    assert made == expected["decisions"]
    assert averages(agent) == expected["average"]


def answer(agent: Agent, decision: Decision, rng: np.random.Generator) -> None:
    shown = np.asarray(decision.action).tolist()[:2]
    agent.update(decision, exposed=shown, clicked=[i for i in shown if rng.random() < 0.4])


@pytest.mark.parametrize(
    ("name", "seed", "users"),
    [("ranking", 8, slice(250, 350)), ("open-ranking", 15, slice(120, 220))],
)
def test_rankings(name: str, seed: int, users: slice) -> None:
    agent, expected = Agent.load(FOLDER / f"{name}.fw"), EXPECTED[name]
    if name == "open-ranking":
        for decision in opened(name):
            shown = np.asarray(decision.action).tolist()
            agent.update(decision, exposed=shown, clicked=[])
    rng, made = np.random.default_rng(seed), []
    for user in USERS[users]:
        decision = agent.act(user)
        made.append(np.asarray(decision.action).tolist())
        answer(agent, decision, rng)
    assert made == expected["decisions"]
    assert averages(agent) == expected["average"]
