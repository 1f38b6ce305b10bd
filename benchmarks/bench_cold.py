"""Processor seconds of a fresh process until it has decided and learnt once, imports included.

`import fairwolfe` alone, the README's ten lines, and an agent that ranks 10 of 50 items: each in a
process of its own. With `--serve` also the resident memory of `fairwolfe serve --demo` after some
seconds. With `--against` the same of another source tree, in turns in one run, because machines
are shared and noisy; caches are empty in both.

    python benchmarks/bench_cold.py
    python benchmarks/bench_cold.py --against ../older/src --turns 5 --serve 20
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HERE = Path(__file__).parents[1] / "src"

CASES = {
    "import fairwolfe": (0.3, "import fairwolfe"),
    "the ten lines of the README": (
        0.6,
        """
import numpy as np
import fairwolfe as fw
from fairwolfe.objectives import AtMost, Linear

problem = fw.Problem.arms(
    n_features=12, rewards={"clicks": (0, 1), "minutes": (0, 10), "cost": (0, 0.05)}
)
f = Linear({"clicks": 1.0, "minutes": 0.05}) + AtMost({"cost": 0.02})
agent = fw.Agent(f, problem, seed=0)
decision = agent.act(np.random.default_rng(0).normal(size=(5, 12)) / 12)
agent.update(decision, {"clicks": 1, "minutes": 3.5, "cost": 0.004})
""",
    ),
    "10 of 50 items, (5, 5) features": (
        0.8,
        """
import numpy as np
import fairwolfe as fw
from fairwolfe.objectives import GiniWelfare, TwoSided

rng = np.random.default_rng(0)
items = rng.uniform(0.1, 0.4, (50, 5))
policy = fw.ranking.FWLinUCBRank(TwoSided(GiniWelfare()))
agent = fw.Agent(policy, fw.Problem.ranking(50, 10, (5, 5)), seed=0, items=items)
decision = agent.act(rng.uniform(0.1, 0.4, 5))
shown = np.asarray(decision.action).tolist()
agent.update(decision, exposed=shown[:6], clicked=shown[:1])
""",
    ),
}
"""Name -> the most that it should take, and the code."""


def environment(source: Path, folder: str) -> dict[str, str]:
    """Of a process that finds a source tree, and an empty cache."""
    return os.environ | {"FAIRWOLFE_CACHE": folder, "PYTHONPATH": str(source)}


def seconds(code: str, source: Path) -> float:
    """Of the processor, in a fresh process."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", code + "\nimport time\nprint(time.process_time())"],
            env=environment(source, folder),
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    return float(done.stdout.splitlines()[-1])


def resident(source: Path, wait: float) -> float:
    """Megabytes of `fairwolfe serve --demo` after some seconds; its crowd is another process."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "fairwolfe", "serve", "--demo"],
            env=environment(source, folder),
            cwd=folder,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            time.sleep(wait)
            status = Path(f"/proc/{process.pid}/status").read_text()
        finally:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(30)
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="the src folder of another source tree")
    parser.add_argument("--turns", type=int, default=5, help="times that everything is measured")
    parser.add_argument("--serve", type=float, default=0.0, help="seconds to serve; 0: not at all")
    given = parser.parse_args()
    sources = {"here": HERE} | ({"there": given.against.resolve()} if given.against else {})
    for title, (mark, code) in CASES.items():
        turns = [{n: seconds(code, s) for n, s in sources.items()} for _ in range(given.turns)]
        found = ", ".join(f"{name} {median(turn[name] for turn in turns):.2f}" for name in sources)
        print(f"{title}: {found} processor seconds (at most {mark})")
    if given.serve:
        sizes = {name: resident(source, given.serve) for name, source in sources.items()}
        found = ", ".join(f"{name} {size:.0f}" for name, size in sizes.items())
        print(f"fairwolfe serve --demo after {given.serve:g} s: {found} MB resident")


if __name__ == "__main__":
    main()
