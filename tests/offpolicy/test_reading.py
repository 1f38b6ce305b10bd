"""Logs from everywhere, what is wrong with them, and what `check` says of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.agent.log_format import Header, Writer
from fairwolfe.bandits import EpsilonGreedy
from fairwolfe.errors import InvalidInput, MissingData
from fairwolfe.objectives import Linear, Minimum
from fairwolfe.offpolicy import Log
from tests.offpolicy.logs import ARMS, NAMES, PROBLEM, best_by_first, columns

CLICKS = Linear({"clicks": 1.0})


def same(one: Log, other: Log) -> bool:
    first, second = (log.evaluate(best_by_first, Minimum(), "dr") for log in (one, other))
    return np.allclose(first.average, second.average, rtol=0, atol=1e-12)


def test_what_an_agent_logged_is_read(tmp_path: Path) -> None:
    agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.3)), PROBLEM)
    path = tmp_path / "log.jsonl"
    agent.log(path)
    contexts = columns(200)["context"]
    rewards = np.random.default_rng(0).integers(0, 2, (200, 3)).astype(float)
    agent.update_many(agent.act_many(contexts), rewards)
    log = Log.of(path)
    assert len(log) == 200
    assert np.allclose(log.average, agent.average)
    assert log.problem == PROBLEM
    assert log.check().usable
    assert log.evaluate(agent, Minimum()).n == 200


@pytest.mark.needs("pyarrow")
def test_files_and_tables_say_the_same(tmp_path: Path) -> None:
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    table = columns(120)
    want = Log.of(table, PROBLEM)
    for end in ("parquet", "jsonl"):
        with Writer(tmp_path / f"log.{end}", Header(PROBLEM)) as writer:
            writer.columns(table)
        assert same(Log.of(tmp_path / f"log.{end}"), want)
    plain = {name: np.asarray(column).tolist() for name, column in table.items()}
    names = list(plain)
    lines = [
        json.dumps(dict(zip(names, row, strict=True))) for row in zip(*plain.values(), strict=True)
    ]
    (tmp_path / "bare.jsonl").write_text("\n".join(lines) + "\n")
    assert same(Log.of(tmp_path / "bare.jsonl", PROBLEM), want)
    with pytest.raises(InvalidInput, match="reward: only for a path of dsjson"):
        Log.of(tmp_path / "bare.jsonl", PROBLEM, reward=dict)
    frame = pd.DataFrame({name: pd.Series(column) for name, column in plain.items()})
    assert same(Log.of(frame, PROBLEM), want)
    assert same(Log.of(pl.DataFrame(plain), PROBLEM), want)
    assert same(Log.of(pa.table(plain), PROBLEM), want)
    lists = frame.copy()
    for name in ("context", "probabilities"):
        lists[name] = [json.dumps(one) for one in plain[name]]
    lists.to_csv(tmp_path / "log.csv", index=False)
    assert same(Log.of(tmp_path / "log.csv", PROBLEM), want)
    pa.parquet.write_table(pa.table(plain), tmp_path / "bare.parquet")
    assert same(Log.of(tmp_path / "bare.parquet", PROBLEM), want)


def test_a_table_without_a_problem_takes_that_of_its_numbers(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text(
        "action,probability,reward.clicks,reward.eur,feature.age,feature.new\n"
        "0,0.5,1,2.5,0.3,1\n1,0.5,0,0,0.1,0\n2,0.25,1,7,0.2,1\n"
    )
    log = Log.of(path)
    assert (log.problem.n_arms, log.problem.n_features) == (3, 2)
    assert dict(log.problem.rewards) == {"clicks": (0.0, 1.0), "eur": (0.0, 7.0)}


def test_rows_of_decisions() -> None:
    agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.5)), PROBLEM)
    rows = []
    for context in columns(30)["context"]:
        decision = agent.act(context)
        rows.append((decision, dict.fromkeys(NAMES, 0.5), context))
    log = Log.of(rows, PROBLEM)
    assert np.allclose(log.average, 0.5)
    with pytest.raises(InvalidInput, match="give problem="):
        Log.of(rows)
    with pytest.raises(InvalidInput, match=r"row 1 is .*give \(decision, reward, context\)"):
        Log.of([rows[0], "no"], PROBLEM)


def dsjson(n: int, seed: int = 0) -> list[str]:
    rng = np.random.default_rng(seed)
    lines = []
    for _ in range(n):
        order = rng.permutation(3)
        p = np.array([0.8, 0.1, 0.1])
        index = int(order[rng.choice(3, p=p)])
        chance = float(p[np.flatnonzero(order == index)[0]])
        clicked = float(rng.random() < 0.3 + 0.2 * index)
        event = {
            "_label_cost": -clicked,
            "_label_probability": chance,
            "_label_Action": index + 1,
            "_labelIndex": index,
            "a": [int(order[0]) + 1, int(order[1]) + 1, int(order[2]) + 1],
            "p": p.tolist(),
            "c": {
                "User": {"age": 0.3, "country": "fr"},
                "_multi": [{"Item": {"topic": t, "new": i}} for i, t in enumerate("xyz")],
            },
        }
        lines.append(json.dumps(event))
    return lines


def test_dsjson_of_vowpal_wabbit(tmp_path: Path) -> None:
    path = tmp_path / "log.dsjson"
    lines = dsjson(2000)
    path.write_text("\n".join([*lines, '{"RewardValue": 1, "EventId": "x"}']) + "\n")
    log = Log.of(path)
    assert list(log.problem.rewards) == ["reward"]
    assert log.check().usable, log.check()
    found = log.evaluate(2, Linear({"reward": 1.0}), "snips")
    assert found.low < 0.7 < found.high
    two = Log.of(path, reward=lambda e: {"clicks": -e["_label_cost"], "cost": 0.5})
    assert list(two.problem.rewards) == ["clicks", "cost"]
    cut = [*lines[:40], lines[40][:60], *lines[41:]]
    path.write_text("\n".join(cut) + "\n")
    with pytest.raises(InvalidInput, match=r"line 41: the line is incomplete or not JSON"):
        Log.of(path)
    path.write_text("\n".join(lines[:40]) + "\n" + lines[40][:60])
    with pytest.warns(UserWarning, match="line 41: the last line is incomplete"):
        assert len(Log.of(path)) == 40
    path.write_text(lines[0].replace('"_multi"', '"multi"') + "\n")
    with pytest.raises(InvalidInput, match="line 1: KeyError"):
        Log.of(path)


def test_feedback_of_obp() -> None:
    rng = np.random.default_rng(0)
    feedback: dict[str, Any] = {
        "n_rounds": 60,
        "n_actions": 3,
        "context": rng.random((60, 2)),
        "action": rng.integers(0, 3, 60),
        "reward": rng.random(60),
        "pscore": np.full(60, 1 / 3),
        "position": np.repeat([0, 1], 30),
    }
    with pytest.raises(InvalidInput, match=r"positions \[0, 1\]"):
        Log.of(feedback)
    assert len(Log.of(feedback, position=1)) == 30
    assert len(Log.of({**feedback, "position": None})) == 60
    none = Log.of({**feedback, "position": None, "pscore": None})
    with pytest.raises(InvalidInput, match="60 of 60 decisions have no probability"):
        none.evaluate(0, Linear({"reward": 1.0}), "ips")


# --- what is wrong with a log ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"probability": None}, "have no probability"),
        ({"probability": 0.0}, "the probability in row 4 is 0"),
        ({"probability": 1.5}, "the probability in row 4 is 1.5"),
    ],
)
def test_nothing_is_estimated_from_bad_probabilities(change: dict[str, Any], words: str) -> None:
    table = columns(50)
    table["probability"] = table["probability"].tolist()
    table["probability"][3] = change["probability"]
    log = Log.of(table, PROBLEM)
    with pytest.raises(InvalidInput, match=words):
        log.evaluate(0, Minimum(), "ips")
    assert not log.check().usable


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("action", 7, "row 4: action is 7"),
        ("action", "x", "row 4: action is 'x'; give a number"),
        ("action", 0.5, "row 4: action is 0.5; give a whole number"),
        ("reward.clicks", None, "row 4: reward.clicks is nan"),
        ("reward.clicks", "a lot", "row 4: reward.clicks is 'a lot'"),
        ("context", [[1.0, 2.0]], r"row 4: the context has shape \(1, 2\)"),
        ("context", "x", "row 4: the context is not an array"),
        ("context", [[1.0, np.inf, 2.0]] * 4, "row 4: a feature is missing or not finite"),
        ("context", None, "row 4: there is no context"),
        ("number", -1, "row 4: number is -1"),
    ],
)
def test_bad_rows_are_named(name: str, value: Any, words: str) -> None:
    table = {key: list(column) for key, column in columns(20).items()}
    table[name][3] = value
    with pytest.raises(InvalidInput, match=words):
        Log.of(table, PROBLEM)


def test_bad_sources(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="there is no file"):
        Log.of(tmp_path / "no.parquet")
    empty = tmp_path / "empty.csv"
    empty.write_text("")
    with pytest.raises(InvalidInput, match="is empty"):
        Log.of(empty)
    empty.write_text("action,probability\n")
    with pytest.raises(InvalidInput, match="has no rows"):
        Log.of(empty)
    empty.write_text("action,probability\n1,0.5,3\n")
    with pytest.raises(InvalidInput, match="line 2: the number of columns is 3"):
        Log.of(empty)
    for source in ([], 3, object()):
        with pytest.raises(InvalidInput):
            Log.of(source)
    with pytest.raises(InvalidInput, match=r"no reward: name the columns reward\.<name>"):
        Log.of({"action": [1], "click": [1]})
    with pytest.raises(InvalidInput, match="lengths"):
        Log.of({"action": [1], "reward.a": [1, 2]})
    with pytest.raises(InvalidInput, match=r"no column reward\.saves"):
        Log.of({k: v for k, v in columns(5).items() if k != "reward.saves"}, PROBLEM)
    with pytest.raises(InvalidInput, match="problem is 'arms'"):
        Log.of(columns(5), "arms")  # type: ignore[arg-type]
    damaged = tmp_path / "log.parquet"
    damaged.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InvalidInput, match="cannot be read as Parquet"):
        Log.of(damaged)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (9, "the policy chooses 9, and the log has arms 0 to 3"),
        (np.full((20, ARMS), 0.3), "decision 0: the policy's probabilities"),
        (np.full((20, 2), 0.5), "a policy over the same actions"),
        (np.full((19, ARMS), 0.25), r"the policy has shape \(19, 4\)"),
        (np.full(20, 0.25), "give actions as whole numbers"),
        (np.full((20, ARMS), np.nan), "give numbers of at least 0"),
        (lambda x: 7, "decision 0: the policy chooses 7"),
        (lambda x: [0.5] * 9, "decision 0: the policy gives"),
        ("uniform", "the only text is 'logged'"),
        (None, "the policy is None"),
        (EpsilonGreedy(0.1), "has learnt nothing yet"),
    ],
    ids=lambda one: one if isinstance(one, str) else type(one).__name__,
)
def test_bad_policies(policy: Any, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        Log.of(columns(20), PROBLEM).evaluate(policy, Minimum(), "ips")


def test_bad_settings() -> None:
    log = Log.of(columns(20), PROBLEM)
    bare = Log.of({k: v for k, v in columns(20).items() if k != "context"}, PROBLEM)
    with pytest.raises(InvalidInput, match="one of ips, snips, dr"):
        log.evaluate(0, Minimum(), "dm")
    with pytest.raises(InvalidInput, match=r"give one of fw\.objectives"):
        log.evaluate(0, min)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="level is 95"):
        log.evaluate(0, Minimum(), level=95)
    with pytest.raises(InvalidInput, match="folds is 1"):
        log.evaluate(0, Minimum(), folds=1)
    with pytest.raises(InvalidInput, match="the log has no contexts"):
        bare.evaluate(np.full((20, ARMS), 0.25), Minimum(), "dr")
    with pytest.raises(InvalidInput, match="the log has no contexts"):
        bare.evaluate(best_by_first, Minimum(), "ips")
    assert bare.evaluate(np.full((20, ARMS), 0.25), Minimum(), "ips").n == 20
    with pytest.raises(InvalidInput, match="there is no reward 'click'"):
        log.evaluate(0, Linear({"click": 1.0}))
    with pytest.raises(InvalidInput, match="share is 0"):
        log.split(0)


def test_a_log_without_contexts_has_the_arms_that_were_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairwolfe.offpolicy.reading.CHUNK", 2)
    rows = {"action": [0, 0, 2, 1], "probability": [0.5] * 4}
    table = rows | {f"reward.{name}": [1.0, 0.0, 1.0, 0.0] for name in NAMES}
    log = Log.of(table, PROBLEM)
    assert log.evaluate(np.eye(3)[[0, 0, 2, 1]], Minimum(), "snips").value == pytest.approx(0.5)


def test_no_overlap_raises_and_little_warns() -> None:
    table = columns(400)
    never = (table["action"] + 1) % ARMS
    with pytest.raises(InvalidInput, match="there is no overlap"):
        Log.of(table, PROBLEM).evaluate(never, Minimum(), "ips")
    never[:3] = table["action"][:3]
    few = Log.of(table, PROBLEM).evaluate(never, Minimum(), "ips")
    assert any("is worth" in text for text in few.warnings)
    assert any("standard errors from 1" in text for text in few.warnings)
    table["probability"] = table["probability"].copy()
    table["probability"][0] = 1e-6
    huge = Log.of(table, PROBLEM).evaluate(table["probabilities"], Minimum(), "ips")
    assert any("of all weight" in text for text in huge.warnings)


def test_check_says_what_it_sees() -> None:
    good = Log.of(columns(3000), PROBLEM).check()
    assert good.usable
    assert good.problems == ()
    assert str(good).startswith("usable\n")
    table = columns(3000)
    wrong = table | {"probability": np.sqrt(table["probability"])}
    said = str(Log.of(wrong, PROBLEM).check())
    assert "the mean weight if arms had been chosen uniformly" in said
    assert "is not that of the logged distribution" in said
    halves = table | {"probabilities": 0.5 * table["probabilities"]}
    assert "do not sum to 1" in str(Log.of(halves, PROBLEM).check())
    swapped = table | {"probabilities": np.tile([0.7, 0.1, 0.1, 0.1], (3000, 1))}
    assert "the probabilities are not right" in str(Log.of(swapped, PROBLEM).check())
    scaled = table | {"reward.clicks": 3.0 * table["reward.clicks"]}
    assert "outside the range 0 to 1" in str(Log.of(scaled, PROBLEM).check())
    certain = table | {"probability": np.ones(3000)}
    del certain["probabilities"]
    check = Log.of(certain, PROBLEM).check()
    assert not check.usable
    assert "every decision was certain" in str(check)
    own = {"action": [0, 1] * 50, "probability": [0.5] * 100, "reward.a": [0.0, 1.0] * 50}
    problem = fw.Problem.arms(1, {"a": (0, 1)}, n_arms=4)
    assert "2 of 4 arms were never chosen (2, 3)" in str(Log.of(own, problem).check())


def test_gaps_that_depend_on_the_outcome_are_seen() -> None:
    """Clicks are answered at once; the others late, or never within the log."""
    rng, n = np.random.default_rng(0), 4000
    clicked = rng.random(n) < 0.4
    when = np.arange(n) + np.where(clicked, 1, 300)
    order = np.argsort(when, kind="stable")
    order = order[when[order] < n]
    table: dict[str, Any] = {
        "id": [f"t-{i}" for i in order],
        "number": order,
        "action": rng.integers(0, 2, order.size),
        "probability": np.full(order.size, 0.5),
        "reward.clicks": clicked[order].astype(float),
    }
    said = str(Log.of(table).check())
    assert "not missing at random" in said
    lost = rng.random(n) < 0.9
    table = {name: np.asarray(column) for name, column in table.items()}
    whole = np.arange(n)[lost]
    table = {
        "id": [f"t-{i}" for i in whole],
        "number": whole,
        "action": rng.integers(0, 2, whole.size),
        "probability": np.full(whole.size, 0.5),
        "reward.clicks": clicked[whole].astype(float),
    }
    said = str(Log.of(table).check())
    assert "have no feedback in the log: harmless only if" in said


def test_a_log_that_learnt_while_it_logged_is_recognised() -> None:
    n = 400
    p = np.linspace(0.5, 0.95, n)
    table = {"action": np.zeros(n, dtype=int), "probability": p, "reward.a": np.ones(n)}
    problem = fw.Problem.arms(1, {"a": (0, 1)}, n_arms=2)
    assert "stabilised=True" in str(Log.of(table, problem).check())


# --- memory that cannot be written, names, and columns that are misspelt --------------------


@pytest.mark.needs("pyarrow")
def test_an_agent_is_evaluated_on_parquet_as_on_lines(tmp_path: Path) -> None:
    """Arrow's memory is read-only."""
    agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.3)), PROBLEM)
    found = []
    for end in ("jsonl", "parquet"):
        with Writer(tmp_path / f"log.{end}", Header(PROBLEM)) as writer:
            writer.columns(columns(120))
        found.append(Log.of(tmp_path / f"log.{end}").evaluate(agent, Minimum()))
    assert np.array_equal(found[0].average, found[1].average)


def test_contexts_in_memory_that_cannot_be_written() -> None:
    table = columns(60)
    agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.3)), PROBLEM)
    want = Log.of(table, PROBLEM).evaluate(agent, Minimum())
    table["context"].flags.writeable = False
    assert Log.of(table, PROBLEM).evaluate(agent, Minimum()).value == want.value


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("empty", [None, float("nan")])
def test_a_column_of_probabilities_may_be_empty(empty: Any, tmp_path: Path) -> None:
    import pandas as pd

    rows: dict[str, Any] = {
        "action": [0, 1, 1, 0],
        "probability": [0.5] * 4,
        "probabilities": [empty] * 4,
        "reward.clicks": [0.0, 1.0, 1.0, 0.0],
    }
    assert len(Log.of(rows)) == 4
    frame = pd.DataFrame(rows)
    frame.to_parquet(tmp_path / "log.parquet")
    for source in (frame, tmp_path / "log.parquet"):
        assert Log.of(source).evaluate(1, CLICKS, "snips").value == 1.0


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("probabilty", "probability"),
        ("Probabilities", "probabilities"),
        ("candidate", "candidates"),
        ("reward_minutes", "reward.<name>"),
        ("feature_age", "feature.<name>"),
        ("contexts", "context"),
    ],
)
def test_a_misspelt_column_is_refused(wrong: str, right: str) -> None:
    table: dict[str, Any] = {
        "action": [0, 1],
        "reward.clicks": [0.0, 1.0],
        wrong: [0.5, 0.5],
        "shop": ["a", "b"],
    }
    with pytest.raises(InvalidInput, match=rf"column '{wrong}'.* did you mean '{right}'\?"):
        Log.of(table)
    del table[wrong]
    assert len(Log.of(table)) == 2  # other columns are not read


def test_actions_by_name() -> None:
    names = ["red", "blue", "green", "blue"] * 50
    table: dict[str, Any] = {
        "action": names,
        "probability": [1 / 3] * 200,
        "reward.clicks": [float(name == "blue") for name in names],
    }
    log = Log.of(table)
    assert log.arms == ("blue", "green", "red")
    assert "arms: 0 blue, 1 green, 2 red" in str(log.check())
    assert log.problem.n_arms == 3
    assert log.evaluate("blue", CLICKS, "snips").value == 1.0
    assert log.evaluate("red", CLICKS, "snips").value == 0.0
    assert log.evaluate(["blue"] * 200, CLICKS, "snips").value == 1.0
    one, two = log.split()
    assert one.arms == two.arms == log.arms
    with pytest.raises(InvalidInput, match="no arm 'bleu'; did you mean 'blue'"):
        log.evaluate("bleu", CLICKS, "snips")
    with pytest.raises(InvalidInput, match="row 3: action is 4; give a text"):
        Log.of(table | {"action": ["red", "blue", 4, "blue"] * 50})
    with pytest.raises(InvalidInput, match=r"3 different actions .* n_arms=3"):
        Log.of(table, fw.Problem.arms(1, {"clicks": (0, 1)}, n_arms=2))
    with pytest.raises(InvalidInput, match="probabilities by the number of the arm; add a column"):
        Log.of(table | {"probabilities": [[1 / 3] * 3] * 200})


def test_actions_by_the_names_of_each_context() -> None:
    table = columns(40)
    names = [[f"{(i + a) % ARMS}" for a in range(ARMS)] for i in range(40)]
    chosen = [names[i][a] for i, a in enumerate(table["action"])]
    named = Log.of(table | {"names": names, "action": chosen}, PROBLEM)
    assert same(named, Log.of(table, PROBLEM))
    with pytest.raises(InvalidInput, match="row 1: action is 'x'"):
        Log.of(table | {"names": names, "action": ["x"] * 40}, PROBLEM)
