"""How long `fairwolfe tradeoff` takes on a table of 2,000 users and 500 items, and what it shows.

The table is drawn from a power law, with 40 producers. Printed: wall and processor time of the
command, the largest step of the Gini index between two neighbours of its curve, and how many betas
that took. With --before, a checkout of another commit is timed first, in the same run.

    python benchmarks/bench_tradeoff.py
    python benchmarks/bench_tradeoff.py --before ../other-checkout --keep pictures
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

HERE = Path(__file__).resolve().parents[1]
USERS, ITEMS, PRODUCERS, PLAYS = 2_000, 500, 40, 12


def write(path: Path) -> None:
    """Plays of a low-rank world: few items and few users have most of them."""
    rng = np.random.default_rng(7)
    users, items = rng.gamma(0.5, size=(USERS, 6)), rng.gamma(0.5, size=(ITEMS, 6))
    popular = rng.permutation(np.arange(1, ITEMS + 1) ** -0.8)
    active = np.minimum(rng.pareto(1.5, size=USERS) + 0.3, 30.0)
    rate = (users @ items.T) * popular * active[:, None]
    counts = rng.poisson(rate * PLAYS * USERS / rate.sum())
    sizes = np.arange(1, PRODUCERS + 1) ** -1.0
    producer = rng.choice(PRODUCERS, size=ITEMS, p=sizes / sizes.sum())
    with path.open("w", encoding="utf-8") as file:
        file.write("user,item,plays,producer\n")
        for u, i in np.argwhere(counts).tolist():
            file.write(f"u{u},i{i},{counts[u, i]},label {producer[i] + 1}\n")


def timed(tree: Path, table: Path, out: Path, *more: str) -> dict[str, float]:
    """The command of a tree, twice: the second time with everything compiled and factorised."""
    command = [sys.executable, "-m", "fairwolfe", "tradeoff", str(table), "--out", str(out), *more]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    for _ in range(2):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(command, check=True, env=environment, capture_output=True)
        wall = time.perf_counter() - began
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = json.loads((out / "tradeoff.json").read_text())
    best = [row["gini"] for row in said["table"] if row["policy"] == "best possible"]
    curve = [row["gini"] for row in said.get("frontier", [])] or best
    runs = len(said["seeds"]) * sum(row["policy"] != "best possible" for row in said["table"])
    return {
        "wall_s": wall,
        "processor_s": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "runs": runs,
        "betas": len(curve),
        "largest_step_of_gini": float(np.abs(np.diff(sorted(curve))).max()),
    }


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", type=Path, metavar="TREE")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="Where the page stays.")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "plays.csv"
        write(table)
        found = {}
        if asked.before is not None:
            found["before"] = timed(asked.before.resolve(), table, Path(folder) / "before")
        out = asked.keep or Path(folder) / "after"
        found["after"] = timed(HERE, table, out, "--group-column", "producer", "--give-up", "3%")
        for name, row in found.items():
            print(name, {key: round(value, 3) for key, value in row.items()}, flush=True)


if __name__ == "__main__":
    main()
