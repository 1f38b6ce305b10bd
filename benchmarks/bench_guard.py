"""What a guard costs: runs that are ever below a share of the baseline, regret, and time a round.

Two rewards, f = the least, two contexts, five arms: a steady one for (.5, .5), which is the
baseline, one for each reward whose mixture reaches (.7, .7), two bad ones. What is printed: in how
many runs f of the mean rewards is, after any round, below the share of what the baseline has on the
same contexts; the worst share of all runs; f* - f, means over seeds; processor time of one act and
update of an agent, the least of five.

    python benchmarks/bench_guard.py
    python benchmarks/bench_guard.py --json
    python benchmarks/bench_guard.py --figure guard.png
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import Fixed, LinUCB
from fairwolfe.environments import Finite
from fairwolfe.objectives import Minimum
from fairwolfe.simulation import simulate

F = Minimum()
POLICY = fw.FrankWolfe(F, LinUCB(exploration=0.6))
BASELINE = fw.FrankWolfe(F, Fixed(0))
SHARES = (0.8, 0.9, 0.95, 0.98)
EVERY = 2_000  # rounds that are all looked at; later ones on a grid
TIMED = 400


def world() -> Finite:
    """See above; the contexts move the arms a little."""
    arms = [
        [
            [1.0 - a, a, 0.0, 0.0],
            [0.0, 1.0 - b, b, 0.0],
            [0.0, b, 1.0 - b, 0.0],
            [a, 0.0, b, 0.9],
            [0.0, a, 0.0, 1.0 - a],
        ]
        for a, b in ((0.1, 0.0), (0.0, 0.1))
    ]
    return Finite(arms, (0.5, 0.5), theta=[[0.5, 1.0, 0.4, 0.1], [0.5, 0.4, 1.0, 0.1]])


def run(job: tuple[Any, int, int]) -> tuple[list[int], list[float]]:
    """Times and f of a policy on a seed."""
    policy, horizon, seed = job
    grid = np.geomspace(1, horizon, 300).astype(int)
    times = np.unique(np.concatenate([np.arange(1, min(horizon, EVERY) + 1), grid]))
    plain = isinstance(policy, fw.Guarded)
    trace = simulate(
        policy, world(), horizon, seed, checkpoints=times, compiled=False if plain else None
    )
    return trace.t.tolist(), trace.value.tolist()


def microseconds(policy: Any) -> float:
    """Of the processor, for one act and update of an agent."""
    environment = world()
    rng = np.random.default_rng(0)
    agent, known = fw.Agent(policy, environment.problem()), environment.init(rng)
    contexts = [environment.context(known, t, rng) for t in range(TIMED)]
    least = np.inf
    for _ in range(6):
        began = time.process_time()
        for context in contexts:
            agent.update(agent.act(context), np.array([0.5, 0.5]))
        least = min(least, time.process_time() - began)
    return 1e6 * least / TIMED


def measure(horizon: int, seeds: int, jobs: int) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """A row for each policy, and their curves: times, f over f of the baseline, and f* - f."""
    policies: dict[str, Any] = {"baseline": BASELINE, "unguarded": POLICY}
    policies |= {f"share {share:g}": fw.Guarded(POLICY, BASELINE, share) for share in SHARES}
    best = fw.optimum(world(), F).value
    work = [(policy, horizon, seed) for policy in policies.values() for seed in range(seeds)]
    with ProcessPoolExecutor(jobs) as pool:
        runs = list(pool.map(run, work))
    times = np.array(runs[0][0])
    values = np.array([value for _, value in runs]).reshape(len(policies), seeds, -1)
    ratios = values / values[0]
    rows, curves = [], {}
    for i, name in enumerate(policies):
        row: dict[str, Any] = {"policy": name, "worst_share": float(ratios[i].min())}
        for share in SHARES:
            row[f"below_{share:g}"] = int((ratios[i] < share - 1e-12).any(axis=1).sum())
        for t in (10**3, 10**4, 10**5):
            if t <= horizon:
                place = int(np.searchsorted(times, t))
                row[f"regret_{t}"] = float(best - values[i, :, place].mean())
        row["us"] = microseconds(policies[name])
        rows.append(row)
        curves[name] = (times, ratios[i], best - values[i].mean(axis=0))
    return rows, curves


def draw(curves: dict[str, Any], path: str) -> None:
    """The share of the baseline, mean and worst run; and what is missing to the best."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.4), constrained_layout=True)
    colours = {"unguarded": "tab:red", "share 0.8": "tab:orange", "share 0.95": "tab:blue"}
    for name, colour in colours.items():
        times, ratios, missing = curves[name]
        left.plot(times, ratios.mean(axis=0), color=colour, label=name)
        left.plot(times, ratios.min(axis=0), color=colour, linestyle=":")
        right.plot(times, missing, color=colour, label=name)
    left.axhline(0.95, color="0.6", linewidth=0.8)
    left.set(xscale="log", xlabel="rounds", ylabel="f in shares of the baseline's", ylim=(0.0, 1.5))
    times, _, missing = curves["baseline"]
    right.plot(times, missing, color="0.4", linestyle="--", label="baseline")
    right.set(xscale="log", yscale="log", xlabel="rounds", ylabel="f* - f", xlim=(100, None))
    left.legend(frameon=False, loc="lower right")
    right.legend(frameon=False, loc="lower left")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--figure", help="a picture to write")
    parser.add_argument("--horizon", type=int, default=10_000)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    rows, curves = measure(given.horizon, given.seeds, given.jobs)
    if given.figure:
        draw(curves, given.figure)
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    names = list(rows[0])
    print("  ".join(f"{name:>12}" for name in names))
    for row in rows:
        cells = [row[name] for name in names]
        print("  ".join(f"{c:>12.4g}" if isinstance(c, float) else f"{c!s:>12}" for c in cells))


if __name__ == "__main__":
    main()
