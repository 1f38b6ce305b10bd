"""Runs on a real Ray, on the loopback interface: in processes of their own, because Ray reads its
environment once and leaves files open, which warnings as errors would not forgive."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fairwolfe import lab
from tests.lab.lab_specs import MINE, command, fragile, tiring
from tests.lab.test_sweep import LIMIT, assert_same, eventually

pytestmark = pytest.mark.needs("pyarrow", "ray")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    return tmp_path


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def on_ray(*arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        command("spec.toml", "--on", "ray", "--out", "out", "--json", *arguments),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def begun() -> list[str]:
    return [line.split()[1] for line in Path("begun").read_text().splitlines()]


def test_ray_gives_the_numbers_of_local_processes(here: Path) -> None:
    Path("spec.toml").write_text(fragile("well", "fails"))
    told = on_ray("--jobs", "1")  # trials begin before the runs of their kind
    # The classes of the user's were found, and what failed is told with its traceback.
    assert [row["seeds"] for row in told["policies"]] == [2, 0]
    for file in told["failed"].values():
        assert "RuntimeError: not cured yet" in Path(file).read_text()
    assert set(told["reasons"].values()) == {"RuntimeError: not cured yet"}
    # Two runs each, and a trial before them.
    assert sorted(begun()) == ["fails"] * 3 + ["well"] * 3
    Path("begun").unlink()
    lab.run(lab.load("spec.toml"), "local", jobs=1)
    assert_same("out", "local")


def test_an_address_where_nothing_answers_is_refused_before_anything_is_written(here: Path) -> None:
    Path("spec.toml").write_text(fragile("well"))
    # Port 1 of this machine: nothing listens there, so it is refused at once.
    arguments = ("spec.toml", "--on", "ray", "--address", "127.0.0.1:1", "--out", "out")
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "address is '127.0.0.1:1', where nothing answers" in done.stderr
    assert not Path("out").exists()


def test_a_policy_that_cannot_play_is_refused_before_anything_is_written(here: Path) -> None:
    Path("spec.toml").write_text(tiring(2))
    arguments = ("spec.toml", "--on", "ray", "--jobs", "1", "--out", "out")
    done = subprocess.run(command(*arguments), capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "policies.tiring fails in its first 2 rounds" in done.stderr
    assert "ArithmeticError: tired after 2 rounds; nothing was written" in done.stderr
    assert "Traceback" not in done.stderr
    assert not Path("out").exists()


@pytest.mark.slow
def test_a_run_that_kills_its_process_is_given_up_after_some_tries(here: Path) -> None:
    Path("spec.toml").write_text(fragile("kills", "well"))
    told = on_ray("--jobs", "1", "--seeds", "1")
    assert [row["seeds"] for row in told["policies"]] == [0, 1]
    (reason,) = told["failed"].values()
    assert "WorkerCrashedError" in Path(reason).read_text()
    assert (begun().count("kills"), begun().count("well")) == (1 + 4, 1 + 1)


CLUSTER = """
import json, os, sys, threading, time
from pathlib import Path

# Before Ray is imported: no reports, the loopback interface only, and a token.
os.environ |= {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_AUTH_MODE": "token",
    "RAY_AUTH_TOKEN": os.urandom(32).hex(),
}
from ray.cluster_utils import Cluster

from fairwolfe import lab

sys.path.insert(0, os.getcwd())
node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
cluster = Cluster(initialize_head=True, head_node_args=node)
second = cluster.add_node(**node)
pids = [
    info.process.pid
    for one in (cluster.head_node, second)
    for group in one.all_processes.values()
    for info in group
]


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def lose_a_node():
    # Every run after the trial waits until it is cured: at this moment there is one on each node.
    while not Path("begun").exists() or len(Path("begun").read_text().splitlines()) < 3:
        time.sleep(0.05)
    cluster.remove_node(second, allow_graceful=False)
    workers = {line.split()[0] for line in Path("begun").read_text().splitlines()}
    while all(map(running, workers)):  # one outlives its node for a moment, and could still finish
        time.sleep(0.05)
    Path("cured").touch()


threading.Thread(target=lose_a_node, daemon=True).start()
try:
    swept = lab.run(lab.load("spec.toml"), "out", on="ray", address=cluster.address)
    print(json.dumps({"missing": len(swept.missing), "failed": len(swept.failed), "pids": pids}))
finally:
    cluster.shutdown()
"""


@pytest.mark.slow
def test_a_node_that_dies_costs_no_run(here: Path) -> None:
    Path("spec.toml").write_text(fragile("waits").replace("seeds = 2", "seeds = 6"))
    done = subprocess.run(
        [sys.executable, "-c", CLUSTER],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    assert (told["missing"], told["failed"]) == (0, 0)
    assert len(begun()) == 1 + 7  # a trial; the run that was lost was played again, and no other
    eventually(lambda: not any(map(alive, told["pids"])))
    lab.run(lab.load("spec.toml"), "local", jobs=1)
    assert_same("out", "local")


@pytest.mark.slow
def test_ctrl_c_ends_the_cluster_and_leaves_a_folder_that_can_be_completed(here: Path) -> None:
    Path("spec.toml").write_text(fragile("well", "waits"))
    runner = subprocess.Popen(
        command("spec.toml", "--on", "ray", "--jobs", "2", "--out", "out"),
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        eventually(lambda: list(Path("out/runs").glob("*.parquet")))
        os.killpg(runner.pid, signal.SIGINT)
        _, said = runner.communicate(timeout=LIMIT)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(runner.pid, signal.SIGKILL)  # the cluster too, where it did not end
    assert runner.returncode == 130, said
    assert "--out out --resume" in said
    waiting = [int(line.split()[0]) for line in Path("begun").read_text().splitlines()]
    eventually(lambda: not any(map(alive, waiting)))
    Path("cured").touch()
    assert lab.run(lab.load("spec.toml"), "out", jobs=1, resume=True).missing == ()
