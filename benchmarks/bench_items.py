"""Large catalogues: a decision, an answer, one more item, bytes and memory, by the number of items.

    python benchmarks/bench_items.py [--other SRC] [--turns 2] [--sizes 10000x10] [--exploration 1]

SRC: the `src` of another checkout with its kernels built; the two are measured in turns, each in a
process of its own. Processor milliseconds of the thread, medians; 10 slots, Gini welfare of the
items, items and users in 200 topics.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

SIZES = "10000x10,10000x32,100000x10,100000x32,1000000x10"
COLUMNS = ("act", "early", "update", "add", "next", "dump", "MB", "memory")


def resident() -> float:
    """Megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def measured(m: int, d: int, exploration: float) -> dict[str, float]:
    """One row of the table."""
    import numpy as np

    import fairwolfe as fw
    from fairwolfe.objectives import GiniWelfare, TwoSided
    from fairwolfe.ranking import FWLinUCBRank

    base, cpu, rng = resident(), time.thread_time, np.random.default_rng(0)
    topics = rng.normal(size=(200, d))

    def of_topics(n: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
        rows = topics[rng.integers(200, size=n)] + 0.5 * rng.normal(size=(n, d))
        rows /= np.linalg.norm(rows, axis=1)[:, None]
        return rows

    items = of_topics(m) * (0.3 + 0.7 * rng.random((m, 1)))
    policy = FWLinUCBRank(TwoSided(GiniWelfare(), beta=0.5), exploration=exploration)
    agent = fw.Agent(policy, fw.Problem.ranking(m, 10, (d, d)), items=items)

    def play(n: int) -> tuple[float, float]:
        acts, updates = [], []
        for user in of_topics(n):
            before = cpu()
            decision = agent.act(user)
            between = cpu()
            seen = decision.action[:5].tolist()
            clicked = [i for i in seen if rng.random() < 0.2]
            middle = cpu()
            agent.update(decision, exposed=seen, clicked=clicked)
            acts.append(between - before)
            updates.append(cpu() - middle)
        return 1e3 * float(np.median(acts)), 1e3 * float(np.median(updates))

    play(4)
    early, _ = play(12)
    with agent.held() as running:  # as after 2,000,000 decisions and 200,000 observations
        shown = rng.zipf(1.3, m).clip(0, 5000).astype(float)
        running.state.totals[:m] = np.floor(shown * 1e7 / shown.sum())
        running.state.clocks[:] = running.state.t[:] = 2e6
        rows = np.einsum("na,ne->nae", of_topics(8_000), items[rng.integers(m, size=8_000)])
        rows = rows.reshape(8_000, -1)
        running.state.gram[0, 0] += 25.0 * rows.T @ rows
        running.state.moment[0, 0] += 25.0 * (0.3 * rows @ rng.normal(size=d * d) / d) @ rows
        running.repair()
    act, update = play(24)
    agent.add_items(items[:1])
    added = []
    for i in range(5):
        before = cpu()
        agent.add_items(items[i : i + 1])
        added.append(cpu() - before)
    after, _ = play(1)
    memory = resident() - base
    before = cpu()
    data = agent.dump()
    dump = cpu() - before
    values = (act, early, update, 1e3 * float(np.median(added)), after, 1e3 * dump)
    return dict(zip(COLUMNS, (*values, len(data) / 1e6, memory), strict=True))


def child(source: str, size: str, exploration: float) -> dict[str, float]:
    """The row, by another process that imports fairwolfe from `source`."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    run = subprocess.run(
        [sys.executable, __file__, "--child", size, "--exploration", str(exploration)],
        env=os.environ | threads | {"PYTHONPATH": source},
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    row: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--other", help="the src of another checkout")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--exploration", type=float, default=0.1)
    parser.add_argument("--child")
    given = parser.parse_args()
    if given.child:
        m, d = map(int, given.child.split("x"))
        print(json.dumps(measured(m, d, given.exploration)))
        return
    own = str(Path(__file__).resolve().parents[1] / "src")
    sources = {"here": own} | ({"other": given.other} if given.other else {})
    print(f"{'items x features':>17} {'':>6}" + "".join(f"{name:>9}" for name in COLUMNS))
    for size in given.sizes.split(","):
        rows: dict[str, list[dict[str, float]]] = {name: [] for name in sources}
        for _ in range(given.turns):
            for name, source in sources.items():
                rows[name].append(child(source, size, given.exploration))
        for name, each in rows.items():
            best = [sorted(row[column] for row in each)[len(each) // 2] for column in COLUMNS]
            print(f"{size:>17} {name:>6}" + "".join(f"{x:9.2f}" for x in best), flush=True)


if __name__ == "__main__":
    main()
