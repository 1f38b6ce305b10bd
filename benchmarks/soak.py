"""Memory of an agent over many decisions: answered late, shuffled, some twice, some refused.

    python benchmarks/soak.py 10_000_000

Prints the resident memory (MB) as it goes and at the end how much it grew after the first tenth.
Arms and rankings take turns, and one live report, one save to bytes and one set of statistics is
taken in every hundredth of the way. 10^7 decisions take about ten minutes.
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniEquality, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank


def resident() -> float:
    """Megabytes now (Linux), else the largest so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 1e6
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main(wanted: int) -> float:
    """Play; the growth in MB from a tenth of the way to the end."""
    rng = np.random.default_rng(0)
    arms = fw.Agent(
        fw.FrankWolfe(Minimum(), LinUCB()), fw.Problem.arms(3, {"a": (0, 1), "b": (0, 1)})
    )
    lists = fw.Agent(
        FWLinUCBRank(TwoSided(GiniEquality())),
        fw.Problem.ranking(12, 3, (2, 3)),
        items=rng.random((12, 3)) / 2,
    )
    rows, users = rng.random((64, 5, 3)) / 2, rng.random((64, 2)) / 2
    waiting: list[tuple[fw.Agent, object, bool]] = []
    made, early, began = 0, 0.0, time.process_time()
    print(f"{'decisions':>12} {'MB':>8} {'us each':>8}")
    while made < wanted:
        for i in range(64):
            ranks = made % 5 == 0
            agent, context = (lists, users[i]) if ranks else (arms, rows[i])
            waiting.append((agent, agent.act(context), ranks))
            made += 1
        if len(waiting) > 512:
            for k in rng.permutation(256)[::-1].tolist():
                agent, decision, ranks = waiting[k]
                answer(agent, decision, ranks)
            agent, decision, ranks = waiting[0]
            try:
                answer(agent, decision, ranks)
                raise AssertionError("an answer was taken twice")
            except InvalidInput:
                pass
            del waiting[:256]
        if made % (wanted // 100) < 64:
            for agent in (arms, lists):
                agent.live(), agent.stats(), agent.dump()
        if made % (wanted // 10) < 64:
            now = resident()
            early = early or now
            print(f"{made:12,} {now:8.1f} {1e6 * (time.process_time() - began) / made:8.1f}")
    print(f"grown by {resident() - early:.1f} MB after the first tenth; open: "
          f"{arms.open + lists.open}, answered: {arms.t + lists.t}")  # fmt: skip
    return resident() - early


def answer(agent: fw.Agent, decision: object, ranks: bool) -> None:
    if ranks:
        shown = decision.action.tolist()  # type: ignore[attr-defined]
        agent.update(decision, exposed=shown, clicked=shown[:1])  # type: ignore[arg-type]
    else:
        agent.update(decision, [0.5, 0.25])  # type: ignore[arg-type]


if __name__ == "__main__":
    warnings.simplefilter("error")
    main(int(sys.argv[1].replace("_", "")) if len(sys.argv) > 1 else 1_000_000)
