"""Logs in folders: the numbers of the same decisions in memory, whoever works on them."""

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
from click.testing import CliRunner

import fairwolfe as fw
from fairwolfe.agent.log_format import Header, Writer
from fairwolfe.bandits import SquareCB, Uniform
from fairwolfe.cli import commands
from fairwolfe.core.threads import ONE_THREAD
from fairwolfe.core.workers import in_order, workers
from fairwolfe.errors import FairwolfeError, InvalidInput, MissingData
from fairwolfe.objectives import GeneralizedGini, Minimum, Nash
from fairwolfe.offpolicy import Log
from fairwolfe.offpolicy.sums import Memory
from tests.offpolicy.logs import PROBLEM, best_by_first, columns
from tests.offpolicy.test_rankings import drawn

pytestmark = pytest.mark.needs("pyarrow")

SIZES = (17_000, 700, 16_384)  # chunks have 16,384 rows: whole ones, a part, and one alone


def write(folder: Path, sizes: tuple[int, ...] = SIZES, problem: Any = PROBLEM) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    first = 0
    for i, size in enumerate(sizes):
        table = columns(size, seed=i)
        table |= {"id": [f"t-{first + j}" for j in range(size)], "number": first + np.arange(size)}
        first += size
        with Writer(folder / f"part-{i}.parquet", Header(problem, "Minimum()")) as file:
            file.columns(table)
    return folder


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a single worker is this process, which is faster; another test has one of its own."""
    for name in ONE_THREAD:
        monkeypatch.setenv(name, "1")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("folder") / "logs")


@pytest.fixture(scope="module")
def agent(folder: Path) -> Any:
    return Log.of(folder / "part-1.parquet").agent(Minimum(), SquareCB(gamma0=30.0))


def in_memory(log: Log) -> Log:
    return Log(Memory(log._data))


def bits(found: Any) -> Any:
    """All numbers of an estimate."""
    numbers = (found.value, found.low, found.high, found.ess, found.bias)
    return numbers, found.average.tobytes(), found.errors.tobytes(), found.warnings


@pytest.mark.parametrize("estimator", ["ips", "snips", "dr"])
@pytest.mark.parametrize("f", [Minimum(), Nash(), GeneralizedGini([3.0, 2.0, 1.0])], ids=repr)
def test_a_folder_is_the_same_decisions_in_memory(
    folder: Path, agent: Any, estimator: str, f: Any
) -> None:
    log = Log.of(folder)
    assert len(log) == sum(SIZES)
    whole = in_memory(log)
    for policy in (agent, 1, Uniform(), "logged"):
        assert bits(log.evaluate(policy, f, estimator)) == bits(
            whole.evaluate(policy, f, estimator)
        )
    one, other = (each.compare(agent, "logged", f, estimator) for each in (log, whole))
    assert (one.value, one.low, one.high) == (other.value, other.low, other.high)


def test_check_average_and_stabilising_are_the_same_too(folder: Path, agent: Any) -> None:
    log = Log.of(folder)
    whole = in_memory(log)
    assert log.check().sentences == whole.check().sentences
    assert np.array_equal(log.average, whole.average)
    for estimator in ("ips", "snips", "dr"):
        one, other = (
            each.evaluate(agent, Minimum(), estimator, stabilised=True) for each in (log, whole)
        )
        assert bits(one) == bits(other)


def test_the_plain_formulas_agree(folder: Path, agent: Any) -> None:
    """IPS and SNIPS in three lines of NumPy over all rows."""
    tables = [columns(size, seed=i) for i, size in enumerate(SIZES)]
    x, a, p = (
        np.concatenate([t[name] for t in tables]) for name in ("context", "action", "probability")
    )
    r = np.concatenate(
        [np.column_stack([t[f"reward.{n}"] for n in PROBLEM.rewards]) for t in tables]
    )
    w = (x[:, :, 0].argmax(axis=1) == a) / p
    log = Log.of(folder)
    for estimator, total in (("ips", len(w)), ("snips", w.sum())):
        found = log.evaluate(best_by_first, Minimum(), estimator)
        assert np.allclose(found.average, (w @ r) / total, rtol=1e-12, atol=0)
    influence = (w[:, None] * (r - found.average)) / w.mean()
    plain = np.sqrt((influence**2).mean(axis=0) / len(w))
    assert np.allclose(found.errors, plain, rtol=5e-3)  # which allows for what was not seen
    assert found.ess == pytest.approx(w.sum() ** 2 / (w @ w), rel=1e-12)


@pytest.mark.parametrize("estimator", ["snips", "dr"])
def test_bits_do_not_depend_on_the_number_of_processes(
    folder: Path, agent: Any, estimator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ONE_THREAD:
        monkeypatch.delenv(name)
    want = bits(Log.of(folder).evaluate(agent, Minimum(), estimator))
    for jobs in (2, 4):
        assert bits(Log.of(folder).evaluate(agent, Minimum(), estimator, jobs=jobs)) == want


def test_every_policy_that_can_travel_does(folder: Path, agent: Any) -> None:
    log = Log.of(folder)
    learnt = log.learn(Minimum())
    for policy in (best_by_first, learnt, 2, Uniform(), "logged", agent):
        one, two = (log.evaluate(policy, Minimum(), "ips", jobs=jobs) for jobs in (1, 2))
        assert np.allclose(one.average, two.average, rtol=1e-12, atol=0)

    def local(context: Any) -> int:
        return best_by_first(context)  # type: ignore[no-any-return]

    one, two = (log.evaluate(policy, Minimum(), "ips") for policy in (local, best_by_first))
    assert bits(one) == bits(two)
    with pytest.raises(InvalidInput, match=r"cannot be sent to other processes.*jobs=1"):
        log.evaluate(local, Minimum(), jobs=2)


def children() -> list[int]:
    """Processes of this one, by /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.mark.parametrize("after", [1, 4])
def test_a_worker_that_is_killed_changes_nothing(folder: Path, agent: Any, after: int) -> None:
    """In the first pass over the four row groups, and in the second."""
    want = bits(Log.of(folder).evaluate(agent, Minimum(), jobs=2))
    before, groups, killed = set(children()), 0, []

    def progress(rows: int) -> None:
        nonlocal groups
        groups += 1
        if groups == after:
            victim = min(set(children()) - before)
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    found = Log.of(folder).evaluate(agent, Minimum(), jobs=2, progress=progress)
    assert killed
    assert bits(found) == want


def stubborn(common: bytes, task: Any, tick: Any) -> Any:
    """A task that its process does not survive."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_task_that_kills_every_worker_is_given_up() -> None:
    with (
        workers(1, retries=2) as crew,
        pytest.raises(FairwolfeError, match="ended by SIGKILL"),
    ):
        list(in_order(crew, f"{__name__}:stubborn", b"", [1]))


RAY = """
import json, os, signal, sys, threading, time
from pathlib import Path
from fairwolfe.agent import Agent
from fairwolfe.objectives import Minimum
from fairwolfe.offpolicy import Log

agent, killed = Agent.load(sys.argv[2]), []


def kill():
    while not killed:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if path.read_bytes().startswith(b"ray::_worked"):
                    status = (path.parent / "environ").read_bytes()
                    if sys.argv[3].encode() in status:
                        killed.append(int(path.parent.name))
                        os.kill(killed[0], signal.SIGKILL)
                        return
            except OSError:
                pass
        time.sleep(0.01)


threading.Thread(target=kill, daemon=True).start()
found = Log.of(sys.argv[1]).evaluate(agent, Minimum(), on="ray", jobs=2)
numbers = [float(x).hex() for x in (found.value, found.low, found.high, *found.errors)]
print(json.dumps({"bits": numbers, "killed": len(killed)}))
"""


@pytest.mark.slow
@pytest.mark.needs("ray")
def test_ray_gives_the_same_bits_with_one_worker_killed(
    folder: Path, agent: Any, tmp_path: Path
) -> None:
    agent.save(tmp_path / "agent.fw")
    mine = f"FOLDER_TEST={tmp_path}"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-c", RAY, str(folder), str(tmp_path / "agent.fw"), mine],
        env=environment | {"FOLDER_TEST": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    want = Log.of(folder).evaluate(agent, Minimum(), jobs=2)
    numbers = (want.value, want.low, want.high, *want.errors)
    assert told == {"bits": [float(x).hex() for x in numbers], "killed": 1}


# --- rankings ------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["exposure", "position", "ips", "snips"])
def test_rankings_in_a_folder(tmp_path: Path, estimator: str) -> None:
    logs, policies = [], []
    for i in range(2):
        log, (ranks, chances), _ = drawn(400, np.random.default_rng(i))
        data: Any = log._data
        logs.append(log)
        policies.append(chances if estimator in ("ips", "snips") else ranks)
        with Writer(tmp_path / f"{i}.parquet", Header(log.problem)) as file:
            file.columns(
                {
                    "user": data.users,
                    "ranking": data.rankings,
                    "exposed": data.exposed,
                    "reward.clicks": data.rewards[:, :, 0],
                    "probability": data.probability,
                    "probabilities": data.at_rank,
                }
            )
    log, policy = Log.of(tmp_path), np.concatenate(policies)
    whole = in_memory(log)
    one, other = (each.evaluate(policy, CLICKS, estimator) for each in (log, whole))
    assert np.allclose(one.average, other.average, rtol=1e-12, atol=0)
    assert (one.low, one.high) == pytest.approx((other.low, other.high), rel=1e-9)
    assert log.check().sentences == whole.check().sentences
    two = log.evaluate("logged", CLICKS, estimator, jobs=2)
    assert np.allclose(two.average, log.average, rtol=1e-12, atol=0)


CLICKS = fw.objectives.Linear({"clicks": 1.0})

# --- what is read --------------------------------------------------------------------------------


def test_a_pattern_an_address_and_a_folder_are_the_same_log(folder: Path) -> None:
    (folder / ".hidden.parquet").write_bytes(b"not read")
    want = Log.of(folder).average
    for source in (
        f"{folder}/*.parquet",
        f"{folder}/part-?.parquet",
        folder.as_uri(),
        f"{folder}/",
    ):
        assert np.array_equal(Log.of(source).average, want)
    assert len(Log.of(f"{folder}/part-[01].parquet")) == SIZES[0] + SIZES[1]
    (folder / ".hidden.parquet").unlink()


def test_a_share_has_the_same_decisions_everywhere(folder: Path) -> None:
    share = Log.of(folder, share=0.2)
    n = sum(SIZES)
    assert abs(len(share) - 0.2 * n) < 5 * np.sqrt(0.16 * n)
    chosen = [
        set(Log.of(source, share=0.2)._data.numbers.tolist())
        for source in (folder, folder / "part-0.parquet", folder / "part-2.parquet")
    ]
    first = {number for number in chosen[0] if number < SIZES[0]}
    last = {number for number in chosen[0] if number >= SIZES[0] + SIZES[1]}
    assert (first, last) == (chosen[1], chosen[2])
    assert chosen[0] < set(Log.of(folder, share=0.5)._data.numbers.tolist())
    assert share.learn(Minimum()).estimate is not None


def test_a_folder_of_tables_of_others_needs_a_problem(tmp_path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    table = columns(3000)
    plain = {
        "action": table["action"],
        "probability": table["probability"],
        "context": table["context"].tolist(),
        **{name: table[name] for name in table if name.startswith("reward.")},
    }
    parquet.write_table(pa.table(plain), tmp_path / "a.parquet", row_group_size=1000)
    with pytest.raises(InvalidInput, match="give problem="):
        Log.of(tmp_path)
    log = Log.of(tmp_path, PROBLEM)
    want = Log.of(table, PROBLEM).evaluate(best_by_first, Minimum())
    found = log.evaluate(best_by_first, Minimum(), jobs=2)
    assert np.allclose(found.average, want.average, rtol=1e-12, atol=0)
    with pytest.raises(InvalidInput, match="no column id"):
        Log.of(tmp_path, PROBLEM, share=0.5)


def test_what_is_wrong_with_a_folder_is_refused_with_its_name(tmp_path: Path) -> None:
    write(tmp_path / "good", (500, 500))
    cut = tmp_path / "good" / "part-1.parquet"
    whole = cut.read_bytes()
    cut.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(InvalidInput, match=r"part-1\.parquet cannot be read as Parquet"):
        Log.of(tmp_path / "good")
    damaged = bytearray(whole)
    damaged[100:4000] = bytes(3900)  # the footer is whole
    cut.write_bytes(damaged)
    for jobs in (1, 2):
        with pytest.raises(InvalidInput, match=r"part-1\.parquet"):
            Log.of(tmp_path / "good").evaluate(1, Minimum(), "ips", jobs=jobs)
    write(tmp_path / "mixed", (100,))
    other = fw.Problem.arms(3, {"clicks": (0, 1)}, feature_norm=2.0)
    with Writer(tmp_path / "mixed" / "z.parquet", Header(other)) as file:
        file.columns({"action": np.zeros(3, dtype=int), "probability": np.ones(3),
                      "context": np.ones((3, 2, 3)), "reward.clicks": np.ones(3)})  # fmt: skip
    with pytest.raises(InvalidInput, match=r"z\.parquet is of another problem"):
        Log.of(tmp_path / "mixed")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingData, match="no Parquet files"):
        Log.of(tmp_path / "empty")


def test_the_same_file_twice_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, (500,))
    (tmp_path / "copy.parquet").write_bytes((tmp_path / "part-0.parquet").read_bytes())
    assert any("more than once" in text for text in Log.of(tmp_path).check().problems)


def test_too_many_decisions_for_memory_are_refused_before_they_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairwolfe.offpolicy.folder.MOST_IN_MEMORY", 10_000)
    log = Log.of(folder)
    for work in (
        lambda: log.learn(Minimum()),
        log.split,
        lambda: log.agent(Minimum(), SquareCB(gamma0=1.0)),
        lambda: log.tradeoff([1.0], Minimum(), CLICKS),
    ):
        with pytest.raises(InvalidInput, match=r"34,084 decisions.*share=0\.15"):
            work()
    with pytest.raises(InvalidInput, match="needs all decisions in memory"):
        log.evaluate(1, Minimum(), model=fw.oracles.OnlineGradient())


def test_processes_are_for_folders(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="the log is in memory"):
        Log.of(folder / "part-1.parquet").evaluate(1, Minimum(), jobs=2)
    with pytest.raises(InvalidInput, match="on is 'spark'"):
        Log.of(folder).evaluate(1, Minimum(), on="spark")


PEAK = """
import resource, sys
from fairwolfe.bandits import Uniform
from fairwolfe.objectives import Minimum
from fairwolfe.offpolicy import Log

log = Log.of(sys.argv[1])
log.evaluate(Uniform(), Minimum())
print(len(log), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_log(tmp_path: Path) -> None:
    """Ten times as many decisions; in memory they would take 300 MB more."""
    peaks = []
    for name, files in (("small", 1), ("large", 10)):
        write(tmp_path / name, (100_000,) * files)
        done = subprocess.run(
            [sys.executable, "-c", PEAK, str(tmp_path / name)],
            capture_output=True,
            text=True,
            check=True,
        )
        rows, megabytes = map(int, done.stdout.split())
        assert rows == 100_000 * files
        peaks.append(megabytes)
    assert max(peaks) <= 500
    assert peaks[1] <= 1.15 * peaks[0]


def test_the_command_reads_folders(folder: Path, tmp_path: Path) -> None:
    spec = tmp_path / "policies.toml"
    spec.write_text('[policies.any]\nname = "uniform"\n[policies.one]\narm = 1\n')
    told = []
    for jobs in ("1", "2"):
        arguments = ["evaluate", str(folder), "--policy", str(spec), "--jobs", jobs]
        done = CliRunner().invoke(commands, [*arguments, "--out", str(tmp_path), "--json"])
        assert done.exit_code == 0, done.output
        told.append(json.loads(done.stdout))
    assert [row["value"] for row in told[0]["policies"]] == pytest.approx(
        [row["value"] for row in told[1]["policies"]], rel=1e-12
    )
    assert told[0]["decisions"] == sum(SIZES)
    want = Log.of(folder).evaluate(Uniform(), Minimum()).value
    assert told[0]["policies"][1]["value"] == pytest.approx(want, rel=1e-12)
    done = CliRunner().invoke(
        commands, ["evaluate", str(folder), "--jobs", "2", "--out", str(tmp_path)]
    )
    assert done.exit_code == 2  # what learns needs the decisions in memory
    arguments = ["evaluate", str(folder), "--share", "0.1", "--out", str(tmp_path), "--json"]
    done = CliRunner().invoke(commands, arguments)
    assert done.exit_code == 0, done.output
    assert 0.03 < json.loads(done.stdout)["decisions"] / sum(SIZES) < 0.07
