"""Processor seconds before the first answer on a machine that has compiled nothing yet.

The README's ten lines, and a small agent that ranks: each in a process of its own, with an empty
cache. Times are of the processor and of the whole process, imports included; then by kernel,
largest first, without and with what it calls. With `--against` the same of another source tree,
in turns in one run, because machines are shared and noisy.

    python benchmarks/bench_cold.py
    python benchmarks/bench_cold.py --against ../older/src --turns 3
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).parents[1] / "src"

LISTEN = """
import json, time
from numba.core import event

open_, kernels = [], {}

class Listener(event.Listener):
    def on_start(self, event):
        open_.append([time.process_time(), 0.0])

    def on_end(self, event):
        start, inside = open_.pop()
        spent = time.process_time() - start
        if open_:
            open_[-1][1] += spent
        function = event.data["dispatcher"].py_func
        name = f"{function.__module__}.{function.__name__}"
        own, whole, times = kernels.get(name, (0.0, 0.0, 0))
        kernels[name] = own + spent - inside, whole + spent, times + 1

event.register("numba:compile", Listener())
"""

REPORT = """
print(json.dumps({"total": time.process_time(), "kernels": kernels}))
"""

CASES = {
    "ten lines of the README": """
import numpy as np
import fairwolfe as fw
from fairwolfe.objectives import AtMost, Linear

problem = fw.Problem.arms(
    n_features=12, rewards={"clicks": (0, 1), "minutes": (0, 10), "cost": (0, 0.05)}
)
f = Linear({"clicks": 1.0, "minutes": 0.05}) + AtMost({"cost": 0.02}, penalty=100.0)
agent = fw.Agent(fw.FrankWolfe(f, fw.bandits.SquareCB(gamma0=100.0)), problem, seed=0)
decision = agent.act(np.random.default_rng(0).normal(size=(5, 12)) / 12)
agent.update(decision, {"clicks": 1, "minutes": 3.5, "cost": 0.004})
""",
    "10 of 50 items, (5, 5) features": """
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
}


def measured(code: str, source: Path) -> dict[str, Any]:
    """A process with an empty cache: its processor seconds, and those of each compilation."""
    with tempfile.TemporaryDirectory() as folder:
        settings = {"FAIRWOLFE_CACHE": folder, "PYTHONPATH": str(source)}
        done = subprocess.run(
            [sys.executable, "-c", LISTEN + code + REPORT],
            env=os.environ | settings,
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="the src folder of another source tree")
    parser.add_argument("--turns", type=int, default=1, help="times that everything is measured")
    parser.add_argument("--kernels", type=int, default=15, help="kernels to print")
    given = parser.parse_args()
    sources = {"here": HERE} | ({"there": given.against.resolve()} if given.against else {})
    for title, code in CASES.items():
        turns = [{n: measured(code, s) for n, s in sources.items()} for _ in range(given.turns)]
        print(f"\n{title}: processor seconds with an empty cache")
        for name in sources:
            totals = [turn[name]["total"] for turn in turns]
            compiled = sum(times for _, _, times in turns[-1][name]["kernels"].values())
            print(f"  {name:6} {median(totals):6.2f}   {compiled} compilations")
        if given.against:
            ratio = median(t["here"]["total"] / t["there"]["total"] for t in turns)
            print(f"  here/there {ratio:.3f}")
        for name in sources:
            print(f"  {name}: alone, with callees, times compiled")
            kernels = turns[-1][name]["kernels"].items()
            for kernel, (own, whole, times) in sorted(kernels, key=lambda k: -k[1][0])[
                : given.kernels
            ]:
                print(f"  {own:6.2f} {whole:6.2f} {times:3d}  {kernel.removeprefix('fairwolfe.')}")


if __name__ == "__main__":
    main()
