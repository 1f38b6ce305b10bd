"""FW-LinUCBRank against FairCo with four gains, for Equation (2) and for Welf, on Last.fm-50.

f of the expected averages at several times, the mean over seeds with its 95 % interval, and the
certified optimum. FairCo has one target, equal exposure, so its runs are measured by both f.

    FAIRWOLFE_DATA=... python benchmarks/bench_fairco.py [horizon] [seeds]
"""

from __future__ import annotations

import sys
import time
from functools import partial
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.core.tables import interval
from fairwolfe.objectives import GiniEquality, TwoSided, Welfare
from fairwolfe.ranking import FairCoRank, FWLinUCBRank, LinUCBRank
from fairwolfe.smoothing import Identity, Moreau

GAINS = (0.001, 0.01, 0.1, 1.0)
OBJECTIVES = {
    "Eq. (2), beta = 1": TwoSided(GiniEquality(), 1.0),
    "Welf, beta = 0.5": TwoSided(Welfare(0.5), 0.5),
}


def main(horizon: int = 200_000, seeds: int = 10) -> None:
    world = fw.environments.make("lastfm-50")
    equality = OBJECTIVES["Eq. (2), beta = 1"]
    settings: dict[str, Any] = {"exploration": 1.0}
    pursued = TwoSided(Welfare(0.5, offset=1e-6), 0.5)  # has a gradient before the first exposure
    rankers = {
        "FW, Eq. (2)": FWLinUCBRank(equality, smoothing=Moreau(1.0), **settings),
        "FW, Welf": FWLinUCBRank(pursued, smoothing=Identity(), **settings),
        **{f"FairCo, gain {gain:g}": FairCoRank(gain, **settings) for gain in GAINS},
        "LinUCBRank": LinUCBRank(**settings),
    }
    times = sorted({min(t, horizon) for t in (1_000, 10_000, horizon)})
    began, averages = time.process_time(), {}
    for name, policy in rankers.items():
        run = partial(fw.simulate, policy, world, horizon, objective=equality, checkpoints=times)
        played = [run(seed=seed) for seed in range(seeds)]
        averages[name] = np.array([one.average for one in played])  # (seeds, times, coordinates)
    spent = time.process_time() - began
    print(f"{horizon:,} rounds, {seeds} seeds, {spent:.0f} s of processor time\n")
    for title, f in OBJECTIVES.items():
        best = fw.optimum(world, f, tolerance=1e-4)
        print(f"{title}: the best possible is {best.value:.4f} to {best.upper_bound:.4f}\n")
        print("| policy |", " | ".join(f"f at {t:,}" for t in times), "|")
        print("|---|" + "---|" * len(times))
        for name, runs in averages.items():
            if name.startswith("FW") and name.removeprefix("FW, ") not in title:
                continue
            cells = []
            for k in range(len(times)):
                mean, low, high = interval(np.array([f.value(run[k]) for run in runs]))
                cells.append(f"{mean:.4f} ({low:.4f} to {high:.4f})")
            print(f"| {name} |", " | ".join(cells), "|")
        print()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
