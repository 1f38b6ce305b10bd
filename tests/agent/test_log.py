"""`agent.log`: every answered decision once, with its context, whatever happens on the way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.log_format import Header, Writer, is_decisions, read, rows_of
from fairwolfe.bandits import EpsilonGreedy, SquareCB
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniEquality, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank

PROBLEM = fw.Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)})


def arms_agent(**options: Any) -> fw.Agent:
    return fw.Agent(fw.FrankWolfe(Minimum(), SquareCB(gamma0=10.0)), PROBLEM, **options)


def ranking_agent(**options: Any) -> fw.Agent:
    problem = fw.Problem.ranking(4, 2, (2, 2))
    policy = FWLinUCBRank(TwoSided(GiniEquality()), randomize=0.2)
    return fw.Agent(policy, problem, items={k: [i / 8, 0.5] for i, k in enumerate("abcd")})


def rows(path: Path) -> list[dict[str, Any]]:
    _, parts = read(path)
    return [row for part in parts for row in rows_of(part)]


def test_rows_hold_what_was_met_chosen_and_earned(tmp_path: Path) -> None:
    path, agent = tmp_path / "log.jsonl", arms_agent()
    before = agent.act(np.eye(2))
    agent.log(path)
    context = np.array([[0.5, 0.0], [0.0, 0.5], [0.3, 0.3]])
    first, second = agent.act(context), agent.act({"x": [0.1, 0.2], "y": [0.2, 0.1]})
    context[:] = 9.0  # the caller uses its array again
    third = agent.act(np.eye(3)[:, :2] / 2, blocked=[1])
    agent.update(second, {"clicks": 1, "saves": 0})
    agent.update(before, [0.0, 0.0])
    agent.update_many([third, first], [[0.0, 1.0], [1.0, 1.0]])
    table = rows(path)
    assert [row["id"] for row in table] == [second.id, third.id, first.id]
    assert table[0]["names"] == ["x", "y"]
    assert table[0]["context"] == [[0.1, 0.2], [0.2, 0.1]]
    assert table[1]["candidates"] == [0, 2]
    assert len(table[1]["context"]) == 3
    assert table[2]["context"] == [[0.5, 0.0], [0.0, 0.5], [0.3, 0.3]]
    assert (table[2]["action"], table[2]["probability"]) == (first.action, first.probability)
    assert (table[2]["reward.clicks"], table[2]["reward.saves"]) == (1.0, 1.0)
    stats = agent.stats()
    assert (stats["logged"], stats["unlogged"]) == (3, 1)
    header, _ = read(path)
    assert header.problem == PROBLEM
    assert header.objective == repr(Minimum())


@pytest.mark.parametrize("batches", [True, False])
def test_batches_are_logged_as_one_by_one(tmp_path: Path, batches: bool) -> None:
    rng = np.random.default_rng(1)
    contexts, rewards = rng.random((9, 3, 2)) / 2, rng.integers(0, 2, (9, 2)).astype(float)
    agent = arms_agent(token="t")
    path = tmp_path / "log.jsonl"
    agent.log(path)
    if batches:
        made = agent.act_many(contexts)
        agent.update_many(made, rewards)
    else:
        for decision, reward in zip(agent.act_many(list(contexts)), rewards, strict=True):
            agent.update(decision, reward)
    table = rows(path)
    assert [row["number"] for row in table] == list(range(9))
    assert np.array_equal([row["context"] for row in table], contexts)
    found = [[row["reward.clicks"], row["reward.saves"]] for row in table]
    assert np.array_equal(found, rewards)


def test_batches_of_which_some_arms_are_blocked(tmp_path: Path) -> None:
    contexts = np.random.default_rng(1).random((5, 3, 2)) / 2
    agent, path = arms_agent(), tmp_path / "log.jsonl"
    agent.log(path)
    agent.update_many(agent.act_many(contexts, blocked=[0]), np.zeros((5, 2)))
    table = rows(path)
    assert np.array_equal([row["context"] for row in table], contexts)
    assert all(row["candidates"] == [1, 2] and row["action"] > 0 for row in table)


def test_another_file_goes_on_with_what_is_open(tmp_path: Path) -> None:
    agent = arms_agent()
    agent.log(tmp_path / "monday.jsonl")
    first, second = agent.act(np.eye(2)), agent.act(np.eye(2))
    agent.update(first, [1.0, 0.0])
    agent.log(tmp_path / "tuesday.jsonl")
    agent.update(second, [0.0, 1.0])
    assert [row["id"] for row in rows(tmp_path / "tuesday.jsonl")] == [second.id]
    assert [row["id"] for row in rows(tmp_path / "monday.jsonl")] == [first.id]


def test_rankings_with_items_that_come(tmp_path: Path) -> None:
    path, agent = tmp_path / "log.jsonl", ranking_agent()
    agent.log(path)
    first: Any = agent.act([0.5, 0.5])
    second: Any = agent.act([0.1, 0.5], candidates=["a", "b", "d"], pinned={0: "d"})
    agent.update(first, exposed=first.names, clicked=first.names[:1])
    agent.add_items({"e": [0.2, 0.2]})
    agent.update(second, exposed=second.names[:1], clicked=[])
    table, (header, _) = rows(path), read(path)
    assert header.keys == ("a", "b", "c", "d", "e")
    assert header.problem.n_items == 5
    assert header.features is not None
    assert header.features.shape == (5, 2)
    assert table[0]["ranking"] == first.action.tolist()
    assert table[0]["reward.clicks"] == [1.0, 0.0]
    assert table[1]["candidates"] == [0, 1, 3]
    assert table[1]["pinned"] == [3, -1]
    assert table[1]["exposed"] == [1.0, 0.0]
    assert table[0]["probability"] == first.probability


def test_forms_of_context(tmp_path: Path) -> None:
    pair = fw.Problem.arms((2, 3), {"clicks": (0, 1)})
    agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.5)), pair)
    agent.log(tmp_path / "pair.jsonl")
    agent.update(agent.act(fw.Bilinear([0.1, 0.2], np.eye(3))), [1.0])
    row = rows(tmp_path / "pair.jsonl")[0]
    assert (row["user"], row["arms"]) == ([0.1, 0.2], np.eye(3).tolist())
    own = fw.Problem.arms(2, {"clicks": (0, 1)}, n_arms=4)
    agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.5)), own)
    agent.log(tmp_path / "own.jsonl")
    agent.update(agent.act(fw.PerArm([0.1, 0.2])), [1.0])
    assert rows(tmp_path / "own.jsonl")[0]["features"] == [0.1, 0.2]


def test_what_expires_or_is_refused_leaves_no_row(tmp_path: Path) -> None:
    path, agent = tmp_path / "log.jsonl", arms_agent(expires=2)
    agent.log(path)
    decisions = [agent.act(np.eye(2)) for _ in range(4)]
    with pytest.raises(InvalidInput):
        agent.update(decisions[0], [1.0, 1.0])
    with pytest.raises(InvalidInput):
        agent.update(decisions[3], [np.nan, 1.0])
    with pytest.raises(InvalidInput):
        agent.update_many(decisions[2:], [[1.0, 0.0], [1.0, np.inf]])
    agent.update(decisions[3], [1.0, 1.0])
    assert [row["number"] for row in rows(path)] == [3]
    agent.log(None)
    agent.update(decisions[2], [1.0, 1.0])
    assert len(rows(path)) == 1
    assert "logged" not in agent.stats()


def test_a_log_is_continued_and_a_cut_line_recognised(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for _ in range(2):
        agent = arms_agent()
        agent.log(path)
        agent.update_many(agent.act_many(np.zeros((3, 2, 2))), np.zeros((3, 2)))
    whole = path.read_bytes()
    assert len(rows(path)) == 6
    path.write_bytes(whole[:-9])
    with pytest.warns(UserWarning, match="line 7: the last line was cut"):
        assert len(rows(path)) == 5
    agent = arms_agent()
    agent.log(path)
    agent.update(agent.act(np.zeros((2, 2))), [0.0, 0.0])
    assert len(rows(path)) == 6
    lines = whole.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], lines[3][:20] + b"\n", *lines[4:]]))
    with pytest.raises(InvalidInput, match="line 4: the line is cut or damaged"):
        rows(path)


def test_files_that_are_not_its_own_are_refused(tmp_path: Path) -> None:
    agent, path = arms_agent(), tmp_path / "log.jsonl"
    path.write_text("user,item\n1,2\n")
    with pytest.raises(InvalidInput, match="is not a log of decisions"):
        agent.log(path)
    assert path.read_text() == "user,item\n1,2\n"
    other = tmp_path / "other.jsonl"
    ranking_agent().log(other)
    with pytest.raises(InvalidInput, match="another problem"):
        agent.log(other)
    with pytest.raises(OSError, match="cannot be opened"):
        agent.log(tmp_path / "no" / "log.jsonl")
    agent.update(agent.act(np.eye(2)), [0.0, 0.0])  # it still works, without a log


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_writes_nothing_to_the_log_of_its_parent(tmp_path: Path) -> None:
    code = f"""
import os, sys, numpy as np, fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy
from fairwolfe.objectives import Minimum
agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.5)), fw.Problem.arms(2, {{"a": (0, 1)}}))
agent.log({str(tmp_path / "log.jsonl")!r})
decision = agent.act(np.eye(2))
if os.fork() == 0:
    agent.update(agent.act(np.eye(2)), [1.0])
    os._exit(0)
assert os.wait()[1] == 0
agent.update(decision, [1.0])
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)
    assert len(rows(tmp_path / "log.jsonl")) == 1


KILLED = """
import sys, numpy as np, fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy
from fairwolfe.objectives import Minimum
problem = fw.Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.5)), problem)
agent.log(sys.argv[1])
context = np.random.default_rng(0).random((5, 2)) / 2
while True:
    agent.update(agent.act(context), [1.0, 0.0])
    print(agent.t, flush=True)
"""


def test_a_killed_process_loses_at_most_what_it_was_writing(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    last = [int(process.stdout.readline()) for _ in range(200)][-1]
    process.send_signal(signal.SIGKILL)
    last = max([last, *(int(line) for line in process.stdout if line.endswith("\n"))])
    process.wait(timeout=60)
    process.stdout.close()
    assert last <= len(rows(path)) <= last + 1


INTERRUPTED = """
import json, os, signal, sys, threading, time
import numpy as np, fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy
from fairwolfe.objectives import Minimum
problem = fw.Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.5)), problem)
agent.log(sys.argv[1])
context, armed, over = np.random.default_rng(0).random((5, 2)) / 2, False, False
agent.update(agent.act(context), [1.0, 0.0])
def handler(*_):
    if armed:
        raise KeyboardInterrupt
def killer():
    draws = np.random.default_rng(1)
    while not over:
        time.sleep(draws.random() * 0.002)
        os.kill(os.getpid(), signal.SIGINT)
signal.signal(signal.SIGINT, handler)
threading.Thread(target=killer, daemon=True).start()
hits = 0
while hits < 300:
    try:
        armed = True
        agent.update(agent.act(context), [1.0, 0.0])
        armed = False
    except KeyboardInterrupt:
        armed = False
        hits += 1
over = True
print(json.dumps({"t": agent.t, **agent.stats()}))
"""


def test_ctrl_c_neither_doubles_nor_loses_a_row(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    command = [sys.executable, "-c", INTERRUPTED, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    stats, table = json.loads(done.stdout), rows(path)
    assert len(table) == stats["t"] == len({row["id"] for row in table})


# --- the table itself -----------------------------------------------------------------------------


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("end", ["parquet", "jsonl"])
def test_columns_and_rows_come_back(tmp_path: Path, end: str) -> None:
    rng, path = np.random.default_rng(0), tmp_path / f"log.{end}"
    header = Header(PROBLEM, "Minimum()", arms=("x", "y", "z"))
    contexts = rng.random((40_000, 3, 2))
    columns: dict[str, Any] = {
        "id": [f"t-{i}" for i in range(40_000)],
        "number": np.arange(40_000),
        "context": contexts,
        "action": rng.integers(0, 3, 40_000),
        "probability": rng.random(40_000),
        "probabilities": rng.random((40_000, 3)),
        "reward.clicks": rng.random(40_000),
        "reward.saves": rng.random(40_000),
    }
    with Writer(path, header) as table:
        table.columns(columns)
        table.row({"id": "t-x", "number": 50_000, "context": [[0.1, 0.2]], "action": 0})
    assert is_decisions(path)
    again, parts = read(path)
    assert again == header
    found = [row for part in parts for row in rows_of(part)]
    assert len(found) == 40_001
    for name, column in columns.items():
        assert np.array_equal([row[name] for row in found[:-1]], column), name
    assert np.array_equal(found[-1]["context"], [[0.1, 0.2]])
    assert found[-1].get("probability") is None


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("end", ["parquet", "jsonl"])
def test_a_table_that_fails_leaves_what_stood_there(tmp_path: Path, end: str) -> None:
    path = tmp_path / f"log.{end}"
    path.write_text("before")
    with (
        pytest.raises(InvalidInput, match="no column 'clicks'"),
        Writer(path, Header(PROBLEM)) as t,
    ):
        t.columns({"clicks": [1.0]})
    with pytest.raises(InvalidInput, match="lengths"), Writer(path, Header(PROBLEM)) as t:
        t.columns({"id": ["a"], "action": [1, 2]})
    assert path.read_text() == "before"
    with pytest.raises(InvalidInput, match=r"\.parquet or \.jsonl"):
        Writer(tmp_path / "log.txt", Header(PROBLEM))


@pytest.mark.parametrize(
    ("path", "words"),
    [("", "is ''; give a"), ("no/folder/log.jsonl", "cannot be opened"), (3, "is 3; give a")],
)
def test_a_path_that_cannot_be_a_log(
    path: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = arms_agent()
    agent.log("log.jsonl")
    with pytest.raises(fw.FairwolfeError, match=words):
        agent.log(path)
    agent.update(agent.act(np.eye(2)), [1.0, 0.0])  # the log that it had goes on
    agent.log(None)
    assert len(rows(tmp_path / "log.jsonl")) == 1
