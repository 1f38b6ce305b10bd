"""After a crash, a fork, a second worker: what was decided is answered once, by its owner."""

from __future__ import annotations

import copy
import json
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe import Agent, Problem
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.core.decision import Decision
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import GiniEquality, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank

PROBLEM = Problem.arms(3, {"a": (0, 1), "b": (0, 1)}, parameter_norm=1.0)
POLICY = fw.FrankWolfe(Minimum(), SquareCB(gamma0=3.0))
ROWS = np.random.default_rng(0).random((5, 3)) / 2


def play(agent: Agent, n: int) -> list[int]:
    made = []
    for _ in range(n):
        decision = agent.act(ROWS)
        agent.update(decision, [0.5, 0.25])
        made.append(int(decision.action))
    return made


# --- a crash -------------------------------------------------------------------------------------


def test_decisions_between_the_save_and_the_crash_are_accepted_once(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    agent = Agent(POLICY, PROBLEM)
    play(agent, 20)
    before = agent.act(ROWS)  # open when it is saved
    agent.save(path)
    after = [Decision.from_bytes(agent.act(ROWS).to_bytes()) for _ in range(3)]
    answered = after.pop()
    agent.update(answered, [0.5, 0.5])  # learnt, and lost in the crash: it may be given again
    del agent

    loaded = Agent.load(path)
    own = loaded.act(ROWS)  # a namesake by number of one of those
    for decision in (*after, own, before, answered):
        loaded.update(decision, [0.5, 0.5])
        with pytest.raises(InvalidInput, match="was given already"):
            loaded.update(decision, [0.5, 0.5])
    assert (loaded.t, loaded.open, loaded._running.t) == (25, 0, 25)

    loaded.save(path)
    again = Agent.load(path)
    assert (again.t, again.open) == (25, 0)
    for decision in (*after, own, before, answered):
        with pytest.raises(InvalidInput, match="was given already"):
            again.update(decision, [0.5, 0.5])


def test_a_recovered_decision_teaches_what_it_would_have_taught(tmp_path: Path) -> None:
    """The oracle: the agent that never stopped."""
    path = tmp_path / "agent.fw"
    agent = Agent(fw.FrankWolfe(Minimum(), LinUCB()), PROBLEM)
    play(agent, 20)
    agent.save(path)
    made = [agent.act(ROWS) for _ in range(4)]
    loaded = Agent.load(path)
    for decision in made:
        agent.update(decision, [0.75, 0.25])
        loaded.update(Decision.from_bytes(decision.to_bytes()), [0.75, 0.25])
    assert np.array_equal(loaded.average, agent.average)
    oracles = [one._running.base_state.oracle for one in (agent, loaded)]
    assert all(np.array_equal(a, b) for a, b in zip(*oracles, strict=True))


def test_two_crashes_in_a_row(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    first = Agent(POLICY, PROBLEM)
    first.save(path)  # before its first decision
    lost = first.act(ROWS)
    second = Agent.load(path)
    play(second, 3)
    second.save(path)
    later = second.act(ROWS)
    third = Agent.load(path)
    third.update(lost, [0.5, 0.5])
    third.update(later, [0.5, 0.5])
    assert (third.t, third.open) == (5, 0)


def test_another_worker_of_the_same_file_stays_a_stranger(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    agent = Agent(POLICY, PROBLEM)
    play(agent, 5)
    agent.save(path)
    one, other = Agent.load(path), Agent.load(path)
    decision = one.act(ROWS)
    with pytest.raises(InvalidInput, match="another agent"):
        other.update(decision, [0.5, 0.5])
    with pytest.raises(InvalidInput, match="another agent"):
        agent.update(decision, [0.5, 0.5])
    one.update(decision, [0.5, 0.5])


def test_a_number_that_was_never_issued_is_unknown() -> None:
    agent = Agent(POLICY, PROBLEM)
    decision = agent.act(ROWS)
    for number in ("1", "-1", "1_0", "x", str(10**30), ""):
        name = f"{agent._ledger.token}-{number}"
        made_up = Decision(name, 0, 0, 1.0, decision.evidence)
        with pytest.raises(InvalidInput, match=r"never made it|another agent"):
            agent.update(made_up, [0.5, 0.5])
    assert agent.t == 0


def test_kill_9_in_the_middle_of_its_work(tmp_path: Path) -> None:
    """A real process dies; its decisions come back from its log, each counts once."""
    script = """
import os, sys
import numpy as np, fairwolfe as fw
from fairwolfe.bandits import SquareCB
from fairwolfe.objectives import Minimum
folder, rows = sys.argv[1], np.random.default_rng(0).random((5, 3)) / 2
agent = fw.Agent(fw.FrankWolfe(Minimum(), SquareCB(gamma0=3.0)),
                 fw.Problem.arms(3, {"a": (0, 1), "b": (0, 1)}, parameter_norm=1.0))
with open(folder + "/log", "w", buffering=1) as log:
    for n in range(1000):
        log.write(agent.act(rows).to_bytes().hex() + "\\n")
        if n == 30:
            agent.save(folder + "/agent.fw")
        if n == 45:
            os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], timeout=120, check=False)
    assert done.returncode == -9
    agent = Agent.load(tmp_path / "agent.fw")
    lines = (tmp_path / "log").read_text().split()
    decisions = [Decision.from_bytes(bytes.fromhex(line)) for line in lines]
    assert len(decisions) == 46
    for decision in decisions:
        agent.update(decision, [0.5, 0.5])
    for decision in decisions:
        with pytest.raises(InvalidInput, match="was given already"):
            agent.update(decision, [0.5, 0.5])
    assert (agent.t, agent.open) == (46, 0)


# --- seeds, copies -------------------------------------------------------------------------------


def test_a_seed_at_loading_gives_draws_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    agent = Agent(POLICY, PROBLEM)
    play(agent, 50)
    agent.save(path)
    exact = [play(Agent.load(path), 60) for _ in range(2)]
    seeded = {seed: play(Agent.load(path, seed=seed), 60) for seed in (1, 2)}
    assert exact[0] == exact[1] == play(agent, 60)
    assert seeded[1] != seeded[2] != exact[0] != seeded[1]
    assert seeded[1] == play(Agent.load(path, seed=1), 60)
    with pytest.raises(InvalidInput, match="seed is -1"):
        Agent.load(path, seed=-1)


def test_bytes_are_the_file_without_a_file() -> None:
    agent = Agent(POLICY, PROBLEM)
    play(agent, 20)
    waiting = agent.act(ROWS)
    data = agent.dump()
    twin = Agent.restore(data)
    twin.update(waiting, [0.5, 0.5])
    agent.update(waiting, [0.5, 0.5])
    assert play(twin, 50) == play(agent, 50)
    for wrong in (b"", data[:-7], data[:200] + b"x" + data[201:], b"PK\x03\x04" + bytes(50)):
        with pytest.raises((IncompatibleState, InvalidInput)):
            Agent.restore(wrong)


def test_pickle_and_copy_say_what_to_use_instead() -> None:
    agent = Agent(POLICY, PROBLEM)
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(InvalidInput, match=r"agent.save\(path\)"):
            attempt(agent)


def test_warnings_are_logged_too(caplog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other packages that set logging up in this process may have switched it off.
    monkeypatch.setattr(logging.getLogger("fairwolfe"), "disabled", False)
    agent = Agent(POLICY, PROBLEM)
    with caplog.at_level(logging.WARNING, "fairwolfe"), pytest.warns(UserWarning, match="is 3"):
        agent.update(agent.act(ROWS), [0.5, 3.0])
    assert "the reward 'b' is 3" in caplog.text


def test_stats() -> None:
    agent = Agent(POLICY, PROBLEM)
    assert agent.stats()["oldest_open"] is None
    waiting = [agent.act(ROWS) for _ in range(3)]
    agent.update(waiting[0], [0.5, 0.5])
    with pytest.raises(InvalidInput):
        agent.update(waiting[0], [0.5, 0.5])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        agent.update(waiting[2], [0.5, 2.0])
        agent.act(3.0 * ROWS)
    assert json.loads(json.dumps(agent.stats())) == {
        "t": 2,
        "open": 2,
        "expired": 0,
        "oldest_open": 3,
        "refused": 1,
        "out_of_range": 1,
        "features_over_norm": 1,
        "value": 0.5,
        "drift": 0.0,
    }


# --- fork ----------------------------------------------------------------------------------------

FORK = """
import json, os, sys, threading
import numpy as np, fairwolfe as fw
from fairwolfe.bandits import SquareCB
from fairwolfe.objectives import Minimum
from fairwolfe.core.decision import Decision
rows = np.random.default_rng(0).random((5, 3)) / 2
agent = fw.Agent(fw.FrankWolfe(Minimum(), SquareCB(gamma0=3.0)),
                 fw.Problem.arms(3, {"a": (0, 1), "b": (0, 1)}))
for _ in range(20):
    agent.update(agent.act(rows), [0.5, 0.25])
waiting = agent.act(rows)
busy, over = sys.argv[1] == "busy", threading.Event()
def work():  # holds the agent's lock nearly all the time
    while not over.is_set():
        agent.update(agent.act(rows), [0.5, 0.25])
threads = [threading.Thread(target=work, daemon=True) for _ in range(2 * busy)]
[thread.start() for thread in threads]

def child():
    made = [agent.act(rows) for _ in range(40)]
    agent.update(waiting, [0.5, 0.5])  # of before the fork: its copy takes it
    for decision in made:
        agent.update(decision, [0.5, 0.25])
    whole = agent.t == agent._running.t == int(agent._running.base_state.oracle.counters[0])
    return {"ids": [d.id for d in made], "actions": [d.action for d in made],
            "whole": whole, "first": made[0].to_bytes().hex()}

results = []
for _ in range(2):
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps(child()).encode())
        os._exit(0)
    os.close(write)
    text = b""
    while part := os.read(read, 65536):
        text += part
    results.append(json.loads(text))
    assert os.waitpid(pid, 0)[1] == 0
over.set()
[thread.join() for thread in threads]
refused = 0
for result in results:
    try:
        agent.update(Decision.from_bytes(bytes.fromhex(result["first"])), [0.5, 0.5])
    except fw.errors.InvalidInput:
        refused += 1
agent.update(waiting, [0.5, 0.5])
own = [agent.act(rows).id for _ in range(3)]
print(json.dumps({"results": results, "refused": refused, "own": own}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("busy", ["quiet", "busy"])
def test_children_have_ids_and_draws_of_their_own(busy: str) -> None:
    command = [sys.executable, "-c", FORK, busy]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    told = json.loads(done.stdout)
    one, other = told["results"]
    assert one["whole"]
    assert other["whole"]
    assert not set(one["ids"]) & set(other["ids"])
    assert not (set(one["ids"]) | set(other["ids"])) & set(told["own"])
    if busy == "quiet":
        assert one["actions"] != other["actions"]
    assert told["refused"] == 2  # a parent does not answer for its children


# --- two threads and a reader --------------------------------------------------------------------


def test_what_is_read_while_others_write_is_consistent() -> None:
    agent = Agent(POLICY, PROBLEM)
    over, wrong = threading.Event(), []

    def write() -> None:
        while not over.is_set():
            agent.update(agent.act(ROWS), [0.5, 0.25])

    def read() -> None:
        while not over.is_set():
            stats = agent.stats()
            if not (0 <= stats["open"] <= 2 and stats["refused"] == 0):
                wrong.append(stats)

    threads = [threading.Thread(target=work) for work in (write, write, read)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    over.set()
    for thread in threads:
        thread.join(20.0)
    assert wrong == []
    assert agent.open == 0


# --- items that come late ------------------------------------------------------------------------


@pytest.mark.parametrize("waiting", [0, 1000])
def test_a_new_item_does_not_flood_the_lists_when_feedback_is_late(waiting: int) -> None:
    n_items, n_slots = 20, 2
    policy = FWLinUCBRank(TwoSided(GiniEquality(), beta=2.0), exploration=0.1)
    agent = Agent(policy, Problem.ranking(n_items, n_slots, 2))
    rng = np.random.default_rng(0)
    rows = rng.random((n_items, 2)) / 2

    def answer(decision: Decision) -> None:
        shown = np.asarray(decision.action).tolist()
        agent.update(decision, exposed=shown, clicked=[i for i in shown if rng.random() < 0.3])

    for _ in range(2000):
        answer(agent.act(rows))
    late = agent.act_many([rows] * waiting, advance=True)
    new = int(agent.add_items(np.array([[0.25, 0.25]]))[0])
    rows = np.vstack([rows, [[0.25, 0.25]]])
    for decision in late:
        answer(decision)
    assert agent._running.state.clocks[new] == 0.0
    shown = 0
    for _ in range(200):
        decision = agent.act(rows)
        shown += new in np.asarray(decision.action).tolist()
        answer(decision)
    assert 10 <= shown <= 40  # a fair share is 19; at 392a321 it was 118 with 1,000 waiting


def test_fairlearn_owes_nothing_for_rankings_of_before_an_arrival() -> None:
    agent = Agent(fw.ranking.FairLearnRank(0.05), Problem.ranking(10, 2, 2))
    rows = np.random.default_rng(0).random((10, 2)) / 2
    late = [agent.act(rows) for _ in range(500)]
    new = int(agent.add_items(np.array([[0.0, 0.0]]))[0])
    for decision in late:
        agent.update(decision, exposed=np.asarray(decision.action).tolist(), clicked=[])
    state = agent._running.state
    assert state.shown[new] == pytest.approx(0.05 * state.slots[0, 0])
