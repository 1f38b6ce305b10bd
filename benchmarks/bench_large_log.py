"""A log in a folder: processor time a row with one and two processes, beside the same decisions in
memory, and the peak memory of each.

    python -m benchmarks.bench_large_log --rows 1000000

Every measurement is a process of its own, and they alternate. Processor time is that of the process
and its workers, with their imports; memory that of the largest of them.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import fairwolfe as fw
from fairwolfe.agent.log_format import Header, Writer
from fairwolfe.core.threads import ONE_THREAD
from fairwolfe.objectives import GeneralizedGini
from fairwolfe.offpolicy import Log
from fairwolfe.offpolicy.sums import Memory

ARMS, D, FILE = 5, 10, 100_000
PROBLEM = fw.Problem.arms(D, {"clicks": (0, 1), "minutes": (0, 1)})
F = GeneralizedGini([1.0, 0.5])
MODES = ("memory", "1", "2")


def write(folder: Path, rows: int) -> None:
    """Files of 100,000 decisions of a policy that explores."""
    folder.mkdir(parents=True, exist_ok=True)
    theta = np.random.default_rng(7).normal(size=(2, D)) / 3
    for first in range(0, rows, FILE):
        rng, n = np.random.default_rng([first, 1]), min(FILE, rows - first)
        x = rng.normal(size=(n, ARMS, D)) / 10
        weight = np.exp(3 * x[:, :, 0])
        p = 0.1 / ARMS + 0.9 * weight / weight.sum(axis=1, keepdims=True)
        a = (p.cumsum(axis=1) > rng.random(n)[:, None]).argmax(axis=1)
        chance = np.clip(0.5 + x[np.arange(n), a] @ theta.T, 0, 1)
        rewards = (rng.random((n, 2)) < chance).astype(float)
        numbers = first + np.arange(n)
        table = {
            "id": [f"a-{number}" for number in numbers],
            "number": numbers,
            "context": x,
            "action": a,
            "probability": p[np.arange(n), a],
            "reward.clicks": rewards[:, 0],
            "reward.minutes": rewards[:, 1],
        }
        with Writer(folder / f"part-{first // FILE:06d}.parquet", Header(PROBLEM)) as file:
            file.columns(table)


def measure(folder: str, mode: str) -> None:
    """Evaluate an agent, doubly robust, and print the numbers."""
    first = sorted(Path(folder).glob("*.parquet"))[0]
    agent = Log.of(first).agent(F, fw.bandits.SquareCB(gamma0=100.0))
    before, began = _processor(), time.perf_counter()
    log = Log.of(folder)
    if mode == "memory":
        log = Log(Memory(log._source.sample(1.0)))  # type: ignore[union-attr]
    found = log.evaluate(agent, F, jobs=1 if mode == "memory" else int(mode))
    wall = time.perf_counter() - began
    own, workers = (
        resource.getrusage(one).ru_maxrss
        for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    row = {
        "mode": mode,
        "rows": len(log),
        "us_a_row": 1e6 * (_processor() - before) / len(log),
        "wall": wall,
        "megabytes": max(own, workers) // 1024,
        "value": found.value,
        "low": found.low,
        "high": found.high,
    }
    print(json.dumps(row))


def _processor() -> float:
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--folder", type=Path, help="keep the files here")
    parser.add_argument("--modes", nargs="+", default=list(MODES), choices=MODES)
    parser.add_argument("--measure", nargs=2, metavar=("FOLDER", "MODE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        measure(*given.measure)
        return
    with tempfile.TemporaryDirectory() as spare:
        folder = given.folder or Path(spare) / "log"
        if not folder.is_dir():
            write(folder, given.rows)
        command = [sys.executable, "-m", "benchmarks.bench_large_log", "--measure", str(folder)]
        for _ in range(given.turns):
            for mode in given.modes:
                done = subprocess.run(
                    [*command, mode],
                    env=os.environ | ONE_THREAD,
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                )
                print(done.stdout.strip(), flush=True)


if __name__ == "__main__":
    main()
