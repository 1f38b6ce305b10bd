"""Decisions whose bytes were damaged, spliced, or written by somebody else; keys and files."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, Batch, Decision, FrankWolfe, Problem
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import GiniWelfare, Minimum
from tests.agent.test_file import rewritten

ROOT = Path(__file__).parents[2]
PROBLEM = Problem.arms(3, {"clicks": (0, 1), "minutes": (0, 10)})
POLICY = FrankWolfe(GiniWelfare(), SquareCB(gamma0=10.0))
X = np.eye(3) / 2


def came(seed: int, cases: int) -> dict[str, int]:
    command = [sys.executable, "-m", "tests.agent.damaged", str(seed), str(cases)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1200, cwd=ROOT, check=False
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    counts: dict[str, int] = json.loads(done.stdout)
    wrong = {outcome: n for outcome, n in counts.items() if "WRONG" in outcome}
    assert not wrong, (wrong, done.stderr[-3000:])
    assert counts["damaged: refused"] > cases // 2
    assert "damaged: taken" not in counts
    # Of those with the right checksum some changes do no harm, such as another probability.
    assert counts["signed: refused"] > counts["signed: taken"] > 0
    return counts


def test_damaged_decisions_are_refused() -> None:
    came(0, 1_400)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_many_damaged_decisions_are_refused() -> None:
    assert sum(came(1, 14_000).values()) > 12_000


# --- keys -------------------------------------------------------------------------------------


def contents(agent: Agent) -> Any:
    arrays = {name: array.tobytes() for name, array in arrays_of(agent._running)}
    return arrays, repr(agent._ledger.saved())


def refused(
    agent: Agent, decision: Decision, sentence: str = "the checksum does not match"
) -> None:
    """A decision under the token and number of one that waits."""
    before = contents(agent)
    for one in (decision, Decision.from_bytes(decision.to_bytes())):
        with pytest.raises(InvalidInput, match=sentence):
            agent.update(one, [0.5, 0.5])
        with pytest.raises(InvalidInput, match=sentence):
            agent.update_many([one], [[0.5, 0.5]])
        with pytest.raises(InvalidInput, match=sentence):
            agent.expire(one)
    assert contents(agent) == before


def test_a_decision_of_another_agent_under_the_same_token_and_number() -> None:
    one, other = Agent(POLICY, PROBLEM), Agent(POLICY, PROBLEM)
    mine, foreign = one.act(X), other.act(X)
    renamed = Batch(foreign.batch.rows, mine.token, other._key)
    assert renamed.id(0) == mine.id
    refused(one, renamed[0])
    refused(one, Batch(foreign.batch.rows, mine.token)[0])
    refused(one, Decision(mine.id, mine.t, mine.action, mine.probability, None))
    one.update(mine, [0.5, 0.5])


def test_a_number_is_part_of_the_checksum() -> None:
    """The row of one decision does not answer for another of the same agent."""
    agent = Agent(POLICY, PROBLEM)
    first, second = agent.act(X), agent.act(X)
    token, data = first.token, bytearray(second.to_bytes())
    rows = Decision.from_bytes(first.to_bytes()).batch.rows
    rows.head["number"] = second.number
    forged = Batch(rows, token, tags=Decision.from_bytes(first.to_bytes()).batch.tags)
    assert forged.id(0) == second.id
    refused(agent, forged[0])
    place = bytes(data).index(second.batch.rows.head.tobytes())
    data[place] ^= 0xFF  # the number: the first field
    with pytest.raises(InvalidInput, match=r"is unknown|given already|does not match"):
        agent.update(Decision.from_bytes(bytes(data)), [0.5, 0.5])
    agent.update_many([first, second], [[0.5, 0.5]] * 2)


def test_every_byte_of_a_batch_counts() -> None:
    agent = Agent(POLICY, PROBLEM)
    batch: Any = agent.act_many([X, X])
    data = batch.to_bytes()
    before = contents(agent)
    for place in range(len(data)):
        damaged = data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]
        with pytest.raises(InvalidInput):
            agent.update_many(Batch.from_bytes(damaged), [[0.5, 0.5]] * 2)
    assert contents(agent) == before
    agent.update_many(Batch.from_bytes(data), [[0.5, 0.5]] * 2)
    assert agent.t == 2


def test_one_forged_row_refuses_a_whole_batch() -> None:
    agent = Agent(POLICY, PROBLEM)
    batch: Any = agent.act_many([X] * 3)
    wrong: Any = Batch.from_bytes(batch.to_bytes())
    wrong.rows.x[1, 0] += 0.25
    before = contents(agent)
    with pytest.raises(InvalidInput, match="the checksum does not match"):
        agent.update_many(wrong, [[0.5, 0.5]] * 3)
    with pytest.raises(InvalidInput, match="the checksum does not match"):
        agent.update(wrong[1], [0.5, 0.5])
    assert contents(agent) == before
    agent.update(wrong[0], [0.5, 0.5])  # that row is as it was
    agent.update_many(batch[1:], [[0.5, 0.5]] * 2)


def test_bytes_are_answered_after_a_save(tmp_path: Path) -> None:
    agent = Agent(POLICY, PROBLEM)
    before = agent.act(X).to_bytes()
    agent.save(tmp_path / "agent.fw")
    after = agent.act(X).to_bytes()
    loaded = Agent.load(tmp_path / "agent.fw")
    for data in (before, after):
        loaded.update(Decision.from_bytes(data), [0.5, 0.5])
        with pytest.raises(InvalidInput, match="given already"):
            loaded.update(Decision.from_bytes(data), [0.5, 0.5])
    other = Agent.load(tmp_path / "agent.fw")
    with pytest.raises(InvalidInput, match="made by another agent"):
        other.update(loaded.act(X), [0.5, 0.5])  # another process that read the same file


def test_only_the_owner_can_read_the_key(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    path.touch(0o666)
    path.chmod(0o666)
    agent = Agent(POLICY, PROBLEM)
    agent.save(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert agent._key.hex().encode() in path.read_bytes()
    assert agent._key not in agent.act(X).to_bytes()


@pytest.mark.parametrize("key", ["", "00", "x" * 64, 5, None, ["00"] * 32, "00" * 33])
def test_a_key_that_is_none(key: Any, tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    Agent(POLICY, PROBLEM).save(path)
    rewritten(path, lambda text, members: text.update(key=key))
    with pytest.raises(IncompatibleState, match="key"):
        Agent.load(path)


def test_keys_are_random_or_of_the_token() -> None:
    one, other = Agent(POLICY, PROBLEM), Agent(POLICY, PROBLEM)
    assert one._key != other._key
    named, again = (Agent(POLICY, PROBLEM, token="shop") for _ in "ab")
    assert named._key == again._key != Agent(POLICY, PROBLEM, token="other")._key
    assert named.act(X).to_bytes() == again.act(X).to_bytes()
    assert named.dump() == again.dump()


def test_bytes_are_answered_in_a_fork() -> None:
    agent = Agent(FrankWolfe(Minimum(), LinUCB()), PROBLEM)
    data = agent.act(X).to_bytes()
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        agent.update(Decision.from_bytes(data), [0.5, 0.5])
        theirs.send((agent.t, agent.act(X).to_bytes()))

    process = context.Process(target=child)
    process.start()
    t, made = ours.recv()
    process.join()
    assert t == 1
    with pytest.raises(InvalidInput, match="made by another agent"):
        agent.update(Decision.from_bytes(made), [0.5, 0.5])
    agent.update(Decision.from_bytes(data), [0.5, 0.5])
    assert (agent.t, agent.open) == (1, 0)
