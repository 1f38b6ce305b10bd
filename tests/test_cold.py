"""A fresh process on a fresh machine: nothing is compiled, cached or imported that is not needed.

What hangs is ended by a time limit, which is a failure.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.bench_cold import CASES
from tests.lab.lab_specs import SMALL

ROOT = Path(__file__).parents[1]
LIMIT = 280.0  # seconds, below the limit of a test
HEAVY = ("llvmlite", "matplotlib", "numba", "pandas", "pyarrow", "setuptools")


def python(
    cache: Path, *arguments: str, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with an empty cache; it finds this checkout."""
    own = {
        "FAIRWOLFE_CACHE": str(cache),
        "FAIRWOLFE_QUIET": "0",
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYTHONFAULTHANDLER": "1",
    }
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=os.environ | own,
        cwd=cwd,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


REPORT = f"""
import json, sys, time
print(json.dumps([time.process_time(), sorted(set({HEAVY!r}) & set(sys.modules))]))
"""


@pytest.mark.parametrize("name", CASES)
def test_the_first_decision_comes_soon(name: str, tmp_path: Path) -> None:
    mark, code = CASES[name]
    seconds, loaded = json.loads(python(tmp_path, "-c", code + REPORT).stdout)
    assert seconds < 4.0 * mark  # benchmarks/bench_cold.py measures it; machines are noisy here
    assert loaded == []
    assert list(tmp_path.iterdir()) == []  # nothing is kept for the next process


TWO_AGENTS = """
import threading

import numpy as np

import fairwolfe as fw
from fairwolfe.objectives import AtMost, Linear, Minimum

ranges = {"clicks": (0, 1), "minutes": (0, 10), "cost": (0, 0.05)}
problem = fw.Problem.arms(n_features=12, rewards=ranges)
f = Linear({"clicks": 1.0, "minutes": 0.05}) + AtMost({"cost": 0.02})
agents = [
    fw.Agent(fw.FrankWolfe(f, fw.bandits.SquareCB(gamma0=100.0)), problem),
    fw.Agent(fw.FrankWolfe(Minimum(), fw.bandits.LinUCB()), problem),
]

def work(k):
    rng = np.random.default_rng(k)
    for _ in range(20):
        decision = agents[k % 2].act(rng.normal(size=(5, 12)) / 12)
        agents[k % 2].update(decision, [rng.random(), 1.0, 0.01])

threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(*(agent.t for agent in agents))
"""


def test_two_agents_in_four_threads(tmp_path: Path) -> None:
    done = python(tmp_path, "-W", "error", "-c", TWO_AGENTS)
    assert (done.stdout, done.stderr) == ("40 40\n", "")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    done = python(tmp_path / "cache", "-m", "fairwolfe", "demo", cwd=work)
    assert "FW-LinUCBRank" in done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.needs("pyarrow")
def test_a_sweep_in_two_processes(tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(SMALL)
    command = ("-m", "fairwolfe", "run", "small.toml", "--jobs", "2", "--json")
    done = python(tmp_path / "cache", *command, cwd=tmp_path)
    assert json.loads(done.stdout)["missing"] == 0
