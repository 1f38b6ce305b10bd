"""What late feedback costs with and without `anticipate`, and what a late round costs in time.

Three worlds. Rankings: 50 items, 50 users, f = clicks + Gini welfare of exposures. Tables: 4 arms
in each of 4 contexts, which come again and again, 4 rewards whose means the seed draws, f = the
least. Arms: 50 arms whose features are new in every round, 5 rewards, f = Gini. What is printed is
f* - f, f of the averages of mean rewards, after the last round; means over seeds. Times are of the
processor, the least of three runs.

    python benchmarks/bench_late.py
    python benchmarks/bench_late.py --json
    python benchmarks/bench_late.py --figure late.png
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import time
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.environments import FactorModel, Finite, Mehrotra
from fairwolfe.objectives import GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.simulation import Lateness, simulate
from fairwolfe.simulation.delays import ByOutcome, Geometric

LATE: dict[str, Lateness] = {
    "at once": Lateness(),
    "100 rounds": Lateness(delay=100),
    "1,000 rounds": Lateness(delay=1_000),
    "10,000 rounds": Lateness(delay=10_000),
    "1,000 on average": Lateness(delay=Geometric(1_000)),
    "100 if clicked, else 1,000": Lateness(delay=ByOutcome(click=100, no_click=1_000)),
    "snapshot every 1,000": Lateness(refresh=1_000),
}
DRAWN = ("at once", "100 rounds", "1,000 rounds", "10,000 rounds")
TIMED = ("at once", "1,000 rounds", "1,000 on average", "snapshot every 1,000")


def rankings(anticipate: bool, seed: int) -> tuple[Any, Any, Any]:
    """A policy, its world, and f."""
    f = TwoSided(GiniWelfare(), beta=1.0)
    return FWLinUCBRank(f, exploration=0.1, anticipate=anticipate), FactorModel(50, 50), f


def tables(anticipate: bool, seed: int) -> tuple[Any, Any, Any]:
    """A policy, its world, and f."""
    contexts = np.eye(16).reshape(4, 4, 16).tolist()
    means = np.random.default_rng(seed).random((4, 16)).tolist()
    world, f = Finite(contexts, (0.25,) * 4, theta=means), Minimum()
    return fw.FrankWolfe(f, BASE, anticipate=anticipate), world, f


def arms(anticipate: bool, seed: int) -> tuple[Any, Any, Any]:
    """A policy, its world, and f."""
    world = Mehrotra()
    return fw.FrankWolfe(world.objective(), BASE, anticipate=anticipate), world, world.objective()


BASE = LinUCB(exploration=0.1, ridge=0.1)
WORLDS = {"rankings": rankings, "tables": tables, "arms": arms}


def missing(horizon: int, seeds: int) -> dict[str, dict[str, Any]]:
    """By world and case, f* - f over time: with the open decisions and without."""
    found: dict[str, dict[str, Any]] = {}
    for name, make in WORLDS.items():
        given = [make(True, seed)[1:] for seed in range(seeds)]
        best = [fw.optimum(*one, seed).value for seed, one in enumerate(given)]
        found[name] = {}
        for case, lateness in LATE.items():
            curves = []
            for anticipate in (True, False):
                runs = [
                    simulate(
                        *make(anticipate, seed)[:2],
                        horizon,
                        seed,
                        lateness=lateness,
                        scalar_regret=False,
                    )
                    for seed in range(seeds)
                ]
                below = [top - run.value for top, run in zip(best, runs, strict=True)]
                curves.append(np.mean(below, axis=0))
            found[name][case] = (runs[0].t, *curves)
    return found


def timed(horizon: int) -> dict[str, dict[str, float]]:
    """Microseconds a round, by world and case; the first is without lateness."""
    times: dict[str, dict[str, float]] = {}
    for name, make in WORLDS.items():
        policy, world, _ = make(True, 0)
        cases: dict[str, Lateness | None] = {"prompt": None} | {one: LATE[one] for one in TIMED}
        times[name] = {}
        for case, lateness in cases.items():
            each = []
            for _ in range(3):
                began = time.process_time()
                simulate(policy, world, horizon, checkpoints=[horizon], lateness=lateness)
                each.append(time.process_time() - began)
            times[name][case] = 1e6 * min(each) / horizon
    return times


def draw(found: dict[str, dict[str, Any]], path: str) -> None:
    """f* - f over time for the delays, solid with the open decisions, dotted without."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        len(found), 1, figsize=(6.0, 3.3 * len(found)), layout="constrained"
    )
    colours = ("#000000", "#009E73", "#0072B2", "#D55E00")
    for ax, (name, cases) in zip(axes, found.items(), strict=True):
        for case, colour in zip(DRAWN, colours, strict=True):
            t, counted, ignored = cases[case]
            ax.plot(t, counted, color=colour, label=case)
            if case != DRAWN[0]:
                ax.plot(t, ignored, color=colour, linestyle=":")
        ax.plot([], [], color="0.4", linestyle=":", label="anticipate=False")
        ax.set_xscale("log")
        ax.set_yscale("log")
        ax.set_xlim(100, t[-1])
        ax.set_xlabel("round")
        ax.set_ylabel("f* - f")
        ax.set_title(f"{name.capitalize()}: feedback that comes ...", loc="left")
        ax.legend(frameon=False, fontsize=8, loc="lower left")
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=80)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print numbers for programs")
    parser.add_argument("--figure", help="draw f* - f over time into this file")
    parser.add_argument("--horizon", type=int, default=100_000)
    parser.add_argument("--seeds", type=int, default=3)
    given = parser.parse_args()
    found, times = missing(given.horizon, given.seeds), timed(20_000)
    if given.figure:
        draw(found, given.figure)
    ends = {
        world: {case: (float(a[-1]), float(b[-1])) for case, (_, a, b) in cases.items()}
        for world, cases in found.items()
    }
    if given.json:
        print(json.dumps({"missing": ends, "microseconds": times}))
        return
    for world, cases in ends.items():
        prompt = cases["at once"][0]
        print(f"\n{world}: f* - f after {given.horizon:,} rounds, {given.seeds} seeds")
        print(f"{'':28}{'anticipate':>18}{'without':>18}")
        for case, (a, b) in cases.items():
            left, right = f"{a:.4f} ({a / prompt:.1f}x)", f"{b:.4f} ({b / prompt:.1f}x)"
            print(f"{case:28}{left:>18}{right:>18}")
        print(f"\n{world}: microseconds a round")
        for case, each in times[world].items():
            print(f"{case:28}{each:8.1f} ({each / times[world]['prompt']:.2f}x)")


if __name__ == "__main__":
    main()
