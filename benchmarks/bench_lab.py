"""What a run costs in a sweep beyond its simulation: 200 short runs, two processes.

The same runs are played bare, by `simulate` in this process, and by `fw.lab.run`: processes to
start, messages, Parquet files that are flushed to the disk. The start of the processes, which is
paid once, is told apart by a sweep of as many runs as there are processes. On a busy machine only
the processor time means something.

    python benchmarks/bench_lab.py
    python benchmarks/bench_lab.py --json
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import platform
import tempfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import perf_counter

import fairwolfe as fw
from fairwolfe.lab.play import build

RUNS, JOBS = 200, 2
SPEC = """
name = "short"
horizon = 2_000

[environment]
name = "mehrotra"

[objective]
name = "gini-welfare"

[policies.FW-LinUCB]
name = "frank-wolfe"
base = { name = "linucb", exploration = 0.1, ridge = 0.1 }
"""


def processor() -> float:
    """Seconds of processor time of this process and of those that it has waited for."""
    return sum(os.times()[:4])


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of the processor."""
    began, used = perf_counter(), processor()
    work()
    return perf_counter() - began, processor() - used


def bare(experiment: fw.lab.Experiment) -> None:
    """The simulations alone, one after the other."""
    parts = build(experiment.cells[0].settings)
    for seed in range(RUNS):
        fw.simulate(parts.policy, parts.environment, experiment.spec.horizon, seed)


def sweep(experiment: fw.lab.Experiment, runs: int) -> None:
    """So many seeds in the lab."""
    with tempfile.TemporaryDirectory() as folder:
        fw.lab.run(experiment, Path(folder) / "out", jobs=JOBS, seeds=runs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    experiment = fw.lab.Experiment.of(SPEC).check()
    parts = build(experiment.cells[0].settings)
    fw.simulate(parts.policy, parts.environment, 100)  # loads the kernels
    alone = measured(lambda: bare(experiment))
    start = measured(lambda: sweep(experiment, JOBS))
    whole = measured(lambda: sweep(experiment, RUNS))
    found = {
        "machine": platform.platform(),
        "date": datetime.now().isoformat(timespec="minutes"),
        "runs": RUNS,
        "processes": JOBS,
        "bare, ms a run": 1e3 * alone[0] / RUNS,
        "bare, processor ms a run": 1e3 * alone[1] / RUNS,
        "start, seconds": start[0],
        "sweep, seconds": whole[0],
        "overhead, ms a run": 1e3 * (JOBS * (whole[0] - start[0]) - alone[0]) / RUNS,
        "overhead, processor ms a run": 1e3 * (whole[1] - start[1] - alone[1]) / RUNS,
    }
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        print(f"{name:30} {value:.2f}" if isinstance(value, float) else f"{name:30} {value}")


if __name__ == "__main__":
    main()
