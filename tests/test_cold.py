"""A fresh machine: empty caches, threads, processes, forks and Ctrl-C. Processes are real ones.

What hangs is ended by a time limit, which is a failure.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from tests.lab.lab_specs import SMALL

ROOT = Path(__file__).parents[1]
LIMIT = 280.0  # seconds, below the limit of a test


def environment(cache: Path, quiet: str = "1") -> dict[str, str]:
    """Of a process with an empty cache, which finds this checkout."""
    return os.environ | {
        "FAIRWOLFE_CACHE": str(cache),
        "FAIRWOLFE_QUIET": quiet,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYTHONFAULTHANDLER": "1",
    }


def python(
    cache: Path, *arguments: str, limit: float = LIMIT, quiet: str = "1", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with an empty cache; a time limit says where it stood."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(cache, quiet),
        cwd=cwd,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)  # it prints its stacks
        process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # its children, which hold the pipes
        pytest.fail(f"it hangs:\n{process.communicate()[1]}")
    assert process.returncode == 0, err
    return subprocess.CompletedProcess(arguments, process.returncode, out, err)


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
    done = python(tmp_path, "-W", "error", "-c", TWO_AGENTS, quiet="0")
    assert done.stdout == "40 40\n"
    # It takes more than a second on any machine, and says so where stderr is a file.
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("compiling kernels, once on this machine: ")
    assert last.startswith("kernels ready: ")


GRADIENT = """
from fairwolfe.kernels import compile as compiling
from fairwolfe.objectives import GiniWelfare, Linear

f = GiniWelfare() + Linear((1.0, 2.0))
print(f.gradient([0.2, 0.1]).tolist(), compiling.compilations() == 0)
"""


def test_two_processes_on_one_empty_cache(tmp_path: Path) -> None:
    command = [sys.executable, "-c", GRADIENT]
    pair = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(tmp_path))
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=LIMIT)[0] for process in pair]
    assert answers == ["[1.5, 3.0] False\n"] * 2
    assert python(tmp_path, "-c", GRADIENT).stdout == "[1.5, 3.0] True\n"


FORKED = """
import os, signal, threading, time, warnings

from fairwolfe.kernels import compile as compiling
from fairwolfe.objectives import GiniWelfare, Linear, Minimum, Nash

warnings.simplefilter("ignore", DeprecationWarning)  # of a fork where there are threads
done = threading.Event()

def compile_all():
    for f in (GiniWelfare() + Linear((1.0, 2.0)), Nash(0.1), Minimum()):
        f.gradient([0.2, 0.1])
    done.set()

threading.Thread(target=compile_all).start()
codes = []
while len(codes) < 3 and not done.is_set():
    before = compiling.compilations()
    while compiling.compilations() == before and not done.is_set():
        time.sleep(0.01)
    child = os.fork()
    if child == 0:
        value = (Linear((1.0, 2.0)) + Nash(0.1)).gradient([0.4, 0.1])
        os._exit(0 if value.round(6).tolist() == [3.0, 7.0] else 1)
    codes.append(child)
codes = [os.waitpid(child, 0)[1] for child in codes]
done.wait()
print(len(codes) > 0, set(codes))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork on this platform")
def test_a_fork_while_another_thread_compiles(tmp_path: Path) -> None:
    assert python(tmp_path, "-c", FORKED, limit=150.0).stdout == "True {0}\n"


TEN_LINES = """
import sys

import numpy as np

import fairwolfe as fw

problem = fw.Problem.arms(n_features=12, rewards={"clicks": (0, 1), "minutes": (0, 10)})
agent = fw.Agent(fw.FrankWolfe(fw.objectives.Minimum(), fw.bandits.LinUCB()), problem)
print("begun", flush=True)
decision = agent.act(np.ones((5, 12)) / 12)
agent.update(decision, [1.0, 1.0])
print("done")
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGINT for a process there")
def test_an_interrupt_comes_after_the_compiler(tmp_path: Path) -> None:
    delays = np.random.default_rng(0).uniform(0.2, 3.0, 2)
    interrupted = 0
    for delay in delays.tolist():  # each goes on where the last was stopped
        process = subprocess.Popen(
            [sys.executable, "-c", TEN_LINES],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(tmp_path),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT)
        if process.returncode != 0:
            assert process.returncode == -signal.SIGINT, err
            assert err.rstrip().endswith("KeyboardInterrupt"), err
            interrupted += 1
    assert interrupted > 0
    assert python(tmp_path, "-c", TEN_LINES).stdout == "begun\ndone\n"


INTERRUPTED = """
import signal

import numpy as np

import fairwolfe as fw

armed, interrupts = [False], 0

def interrupt(*_):
    if armed[0]:
        armed[0] = False
        raise KeyboardInterrupt

signal.signal(signal.SIGINT, interrupt)
print("begun", flush=True)
while True:
    try:
        armed[0] = True
        f = fw.objectives.GiniWelfare() + fw.objectives.Nash(0.1)
        gradient = f.gradient([0.9, 0.4])
        armed[0] = False
        break
    except KeyboardInterrupt:
        interrupts += 1
signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interpreter that ends has no handlers
print(interrupts > 0, gradient.round(6).tolist())
"""


@pytest.mark.skipif(os.name == "nt", reason="there is no SIGINT for a process there")
def test_interrupts_all_the_time_do_not_stop_the_compiler(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(tmp_path),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    ends = time.monotonic() + 0.5 * LIMIT
    while process.poll() is None and time.monotonic() < ends:
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
    if process.poll() is None:
        process.kill()
    assert process.communicate()[0] == "True [1.5, 3.0]\n"
    assert process.returncode == 0


COMPARED = """
import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB

world = fw.environments.Mehrotra(10, 3, 4)
f = world.objective()
both = {"ucb": fw.FrankWolfe(f, LinUCB()), "cb": fw.FrankWolfe(f, SquareCB(gamma0=100.0))}
found = fw.compare(both, world, 20_000, seeds=2, jobs=2)
print([row["us_per_round"] for row in found.table()])
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compare_with_two_jobs_counts_no_compilation(tmp_path: Path) -> None:
    cold, warm = (json.loads(python(tmp_path, "-c", COMPARED).stdout) for _ in range(2))
    # Compiling takes seconds, which are a hundred microseconds of each of these rounds.
    assert max(cold) < 5.0 * max(warm) + 20.0


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


# --- what is needed is known before it is called ---------------------------------------------

PLAYED = """
import json, warnings

import numpy as np

from fairwolfe.kernels import compile as compiling
from fairwolfe.bandits import LinUCB
from fairwolfe.checks.rounds import contexts, rewards
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniWelfare
from fairwolfe.core.problem import Problem
from fairwolfe.ranking import LinUCBRank
from fairwolfe.reduction import FrankWolfe
from fairwolfe.core.registry import load, names

warnings.simplefilter("ignore")

def policies():
    for name in names("policies"):
        for policy in load("policies", name).examples():
            yield policy, 3
    for name in names("bandits"):
        for base in load("bandits", name).examples():
            yield FrankWolfe(GiniWelfare(), base), 3
    for name in names("objectives"):
        for f in load("objectives", name).examples():
            for base in (LinUCB(), LinUCBRank()):  # TwoSided has no use for arms
                yield FrankWolfe(f, base), f.size or 6

def problems(n):
    yield Problem.arms(3, {f"r{i}": (0.0, 1.0) for i in range(n)}, parameter_norm=1.0)
    for users in (1, 2):
        named = {f"r{i}": (0.0, 1.0) for i in range(users)}
        yield Problem.ranking(max(n - users, 2), 2, 3, rewards=named, parameter_norm=1.0)

kept, late, played = [], {}, 0
for policy, n in policies():
    for problem in problems(n):
        try:
            state = policy.init(problem)
        except InvalidInput:
            continue
        for k in compiling._KERNELS:  # forget what was prepared for the others
            kept.append(k._dispatcher)
            k._dispatcher, k._called, k._address, k.call = None, None, 0, k._first
        compiling.ready(policy.kernels(state))
        before = compiling.preparations()
        rng = np.random.default_rng(0)
        try:
            for context in contexts(problem, rng, 300):
                decision = policy.act(state, context, rng)
                state = policy.update(state, decision, rewards(problem, decision.action, rng))
            if isinstance(policy, FrankWolfe):
                state.plan.watch.report(state.live, state.average, state.t, 0.05, True)
        except InvalidInput as error:  # such as Welfare where the average is outside its domain
            assert "domain" in str(error), error
        played += 1
        if compiling.preparations() > before:
            late[repr(policy)] = compiling.preparations() - before
        break
print(json.dumps({"late": late, "played": played}))
"""


def test_every_policy_knows_its_kernels(tmp_path: Path) -> None:
    # With the cache of everybody: what is loaded late would be compiled late.
    done = subprocess.run(
        [sys.executable, "-c", PLAYED],
        capture_output=True,
        text=True,
        check=False,
        timeout=LIMIT,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["late"] == {}
    assert found["played"] > 80
