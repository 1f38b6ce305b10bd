"""The gradient of the smoothed Gini beside SciPy's isotonic regression plus NumPy's sort.

Two cases: the order is kept from call to call, as in a bandit that raises ten items each step, and
every vector is a fresh random one. Both sides see the same vectors in turn, in one process with
one thread; times are medians over rounds, ratios are taken within a round.

    python benchmarks/bench_gini.py
    python benchmarks/bench_gini.py --json
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.lab.bench import about, smoothed_gini
from fairwolfe.objectives import GiniWelfare
from fairwolfe.smoothing import Moreau

ROUNDS = 9
CALLS = {50: 400, 2_500: 60, 1_000_000: 3}  # gradients per round
RAISED = 10
AGE = 1_000  # steps that the bandit has behind it


def in_a_bandit(n: int, rng: np.random.Generator) -> Iterator[Vector]:
    """Exposures per step: counts over time, ten of them one higher each step."""
    counts = rng.poisson(40.0, n).astype(np.float64)
    t = AGE
    while True:
        counts[rng.choice(n, RAISED, replace=False)] += 1.0
        t += 1
        yield counts / t


def at_random(n: int, rng: np.random.Generator) -> Iterator[Vector]:
    while True:
        yield rng.random(n)


CASES: dict[str, Callable[[int, np.random.Generator], Iterator[Vector]]] = {
    "order kept": in_a_bandit,
    "fresh random": at_random,
}


def compared(case: str, n: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    objective = GiniWelfare()
    step = Moreau.best(objective, n, np.sqrt(2.0 * RAISED)) / np.sqrt(AGE)
    weights = objective.weights_for(n)
    tree = objective.tree(n)
    vectors = CASES[case](n, rng)
    for z in islice(vectors, 3):
        ours, theirs = tree.gradient(z, step), smoothed_gini(z, step, weights)
        # Theirs subtracts nearly equal numbers and divides by the step.
        np.testing.assert_allclose(ours, theirs, atol=1e-13 / step, rtol=0.0)
    rounds = []
    for _ in range(ROUNDS):
        here, there, sorting = 0.0, 0.0, 0.0
        for z in islice(vectors, CALLS[n]):
            start = perf_counter()
            tree.gradient(z, step)
            middle = perf_counter()
            smoothed_gini(z, step, weights)
            end = perf_counter()
            np.argsort(z)
            here, there = here + middle - start, there + end - middle
            sorting += perf_counter() - end
        rounds.append((here / CALLS[n], there / CALLS[n], sorting / CALLS[n], there / here))
    here, there, sorting, ratio = np.median(rounds, axis=0).tolist()
    return {
        "case": case,
        "n": n,
        "fairwolfe_us": 1e6 * here,
        "scipy_us": 1e6 * there,
        "of which argsort_us": 1e6 * sorting,
        "scipy / fairwolfe": ratio,
        "from": min(r[3] for r in rounds),
        "to": max(r[3] for r in rounds),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    where = about()
    rows = [compared(case, n) for case in CASES for n in CALLS]
    if as_json:
        print(json.dumps({"setting": where, "rows": rows}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    print(f"medians of {ROUNDS} rounds, one thread; ratio: SciPy's time over ours (lowest-highest)")
    print(f"\n{'':14}{'n':>10}{'fairwolfe':>14}{'SciPy + sort':>14}{'sort alone':>14}  ratio")
    for row in rows:
        times = (row[key] for key in ("fairwolfe_us", "scipy_us", "of which argsort_us"))
        cells = "".join(f"{time:11,.1f} us" for time in times)
        spread = f"{row['scipy / fairwolfe']:.1f} ({row['from']:.1f}-{row['to']:.1f})"
        print(f"{row['case']:14}{row['n']:10,}{cells}  {spread}")


if __name__ == "__main__":
    main()
