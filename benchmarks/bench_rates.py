"""A limit on a rate, "at most 8 % of the orders come back": the rate and f, by the way to say it.

A shop with four products. A visit is one decision: a click, an order if there was a click, a return
if there was an order, with the chances below; the margin is earned where nothing comes back. f is
clicks + 0.05 margin. Without the limit 30 % of the orders would come back. `fw.optimum` knows the
best f of the policies that keep it.

The ways: `per="ordered"`; with a margin in units of the rate; with a fixed penalty; and a reward of
one's own, returned - 0.08 ordered, at most 0, whose width is that of its range alone. Numbers are
of what was earned, means over seeds, and the worst rate of a seed.

    python benchmarks/bench_rates.py
    python benchmarks/bench_rates.py --seeds 2 --horizon 20000
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.environments import Finite
from fairwolfe.objectives import AtMost, Concave, Linear

# By product: the chances of a click, of an order after a click, of a return after an order; margin.
PRODUCTS = {
    "shoes": (0.35, 0.5, 0.30, 30.0),
    "books": (0.25, 0.4, 0.02, 8.0),
    "toys": (0.30, 0.3, 0.06, 15.0),
    "lamps": (0.30, 0.4, 0.12, 20.0),
}
FEATURES = dict(zip(PRODUCTS, np.eye(4).tolist(), strict=True))
LEVEL, MOST = 0.08, 40.0  # of the rate; the largest margin
WANTED = Linear({"clicks": 1.0, "margin": 0.05})
RANGES = {"clicks": (0, 1), "margin": (0, MOST), "returned": (0, 1), "ordered": (0, 1)}
OWN = {"clicks": (0, 1), "margin": (0, MOST), "excess": (-LEVEL, 1.0 - LEVEL)}
RATE = {"returned": LEVEL}
WAYS: dict[str, Concave] = {
    'per="ordered"': WANTED + AtMost(RATE, per="ordered"),
    'per="ordered", margin=0.2': WANTED + AtMost(RATE, per="ordered", margin=0.2),
    'per="ordered", penalty=20': WANTED + AtMost(RATE, penalty=20.0, per="ordered"),
    "a reward of one's own": WANTED + AtMost({"excess": 0.0}),
}
VISITS = (2_000, 20_000, 60_000)


def optimum() -> fw.Optimum:
    """The best f with the limit, by the means: margins in parts of the largest."""
    rows = [(c, m / MOST * c * o * (1.0 - r), c * o * r, c * o) for c, o, r, m in PRODUCTS.values()]
    world = Finite([np.eye(4).tolist()], (1.0,), means=[rows])
    f = Linear((1.0, 0.05 * MOST, 0.0, 0.0)) + AtMost({"r3": LEVEL}, per="r4")
    return fw.optimum(world, f, tolerance=1e-6)


def play(job: tuple[str, int, int]) -> list[tuple[float, float]]:
    """The rate and f so far, at the visits of the table."""
    way, seed, horizon = job
    ranges = OWN if way == "a reward of one's own" else RANGES
    policy = fw.FrankWolfe(WAYS[way], LinUCB(exploration="pointwise"))
    agent = fw.Agent(policy, fw.Problem.arms(4, ranges), seed=seed)
    rng, came_back, orders, found = np.random.default_rng(seed), 0, 0, []
    for visit in range(1, horizon + 1):
        decision = agent.act(FEATURES)
        click, order, back, margin = PRODUCTS[str(decision.name)]
        clicked = rng.random() < click
        ordered = clicked and rng.random() < order
        returned = ordered and rng.random() < back
        kept = margin if ordered and not returned else 0.0
        came_back, orders = came_back + returned, orders + ordered
        reward = {"clicks": float(clicked), "margin": kept, "returned": float(returned)}
        reward |= {"ordered": float(ordered), "excess": returned - LEVEL * ordered}
        agent.update(decision, {name: reward[name] for name in ranges})
        if visit in VISITS:
            found.append((came_back / max(orders, 1), agent.value))
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--horizon", type=int, default=VISITS[-1])
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    if given.horizon < VISITS[0]:
        parser.error(f"the horizon is {given.horizon}; give at least {VISITS[0]}")
    shown = [visit for visit in VISITS if visit <= given.horizon]
    best = optimum()
    print(f"{best.value:.6f} <= f* <= {best.upper_bound:.6f}; visits: {shown}\n")
    jobs = [(way, seed, given.horizon) for way in WAYS for seed in range(given.seeds)]
    runs: dict[str, list[list[tuple[float, float]]]] = {}
    began = time.monotonic()
    with ProcessPoolExecutor(given.jobs) as pool:
        for done, (job, found) in enumerate(zip(jobs, pool.map(play, jobs), strict=True), 1):
            runs.setdefault(job[0], []).append(found)
            left = (time.monotonic() - began) * (len(jobs) / done - 1.0)
            print(f"\r{done} of {len(jobs)} runs, {left:.0f} s left   ", end="", file=sys.stderr)
    print(file=sys.stderr)
    print("| way | rate, mean | worst seed | f/f* |")
    print("|---|---|---|---|")
    for way, numbers in runs.items():
        rates, values = np.moveaxis(np.array(numbers), 2, 0)
        columns = (rates.mean(axis=0), rates.max(axis=0), values.mean(axis=0) / best.value)
        cells = (" ".join(f"{x:.3f}" for x in column) for column in columns)
        print(f"| {way} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
