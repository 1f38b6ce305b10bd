"""`Augmented` smoothing beside `Moreau`, both with their defaults: how much regret is left.

    python benchmarks/bench_augmented.py
    python benchmarks/bench_augmented.py --seeds 3 --horizon 10000 --only "two arms" mehrotra

Six worlds, learnt with exploration 0.1 and with known probabilities. Regret is f* - f, f of the
average of expected rewards, f* the certified optimum. What is printed is the mean regret with
`Moreau`, and the mean regret with `Augmented` divided by it (below 1: Augmented is better), with a
95 % interval: 2,000 bootstrap samples of the seeds, in pairs. Last.fm is skipped where its file is
missing: set FAIRWOLFE_DATA.
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Finite, Mehrotra, dcg
from fairwolfe.errors import FairwolfeError
from fairwolfe.objectives import Concave, GiniEquality, GiniWelfare, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.smoothing import Augmented, Moreau

MEANS = [
    [[0.21, 0.84], [0.91, 0.51], [0.32, 0.54], [0.50, 0.34]],
    [[0.91, 0.90], [0.30, 0.90], [0.60, 0.16], [0.65, 0.23]],
    [[0.14, 0.06], [0.83, 0.47], [0.95, 0.67], [0.51, 0.88]],
]
SMOOTHINGS = {"moreau": Moreau, "augmented": Augmented}


class Study(NamedTuple):
    """The world of a seed, f, and how many seeds are played, learnt and known (the plain loop)."""

    world: Callable[[int], Any]
    objective: Concave
    seeds: tuple[int, int]


def power_law(seed: int) -> FactorModel:
    """900 users and 1,700 items, the r-th most popular of norm r^-1/2."""
    rng = stream(seed, "power law")
    users, items = (rng.gamma(2.0, size=(n, 8)) for n in (900, 1700))
    users /= np.linalg.norm(users, axis=1)[:, None]
    items *= np.arange(1.0, 1701.0)[:, None] ** -0.5 / np.linalg.norm(items, axis=1)[:, None]
    return FactorModel(users, items, dcg(10))


STUDIES = {
    "two arms": Study(lambda _: Finite.a2(), Minimum(), (10, 3)),
    "three contexts": Study(
        lambda _: Finite(np.eye(12).reshape(3, 4, 12), (0.5, 0.3, 0.2), means=MEANS),
        Minimum(),
        (10, 3),
    ),
    "mehrotra": Study(lambda _: Mehrotra(), Mehrotra().objective(), (10, 3)),
    "50 x 50": Study(lambda _: FactorModel(50, 50), TwoSided(GiniWelfare(), beta=1.0), (5, 2)),
    "lastfm-50": Study(
        lambda _: fw.environments.make("lastfm-50"), TwoSided(GiniWelfare(), beta=0.5), (5, 2)
    ),
    "900 x 1,700": Study(power_law, TwoSided(GiniEquality(), beta=0.5), (2, 1)),
}


def policy(study: Study, world: Any, learnt: bool, smoothing: Any) -> Any:
    """Frank-Wolfe with the smoothing."""
    f = study.objective
    if not learnt:
        return fw.known(world, f, smoothing)
    if isinstance(f, TwoSided):
        return FWLinUCBRank(f, smoothing=smoothing, exploration=0.1)
    return fw.FrankWolfe(f, LinUCB(exploration=0.1, ridge=0.1), smoothing)


def regrets(study: Study, learnt: bool, seeds: int, times: list[int]) -> dict[str, Matrix]:
    """f* - f by smoothing, (seeds, times)."""
    rows: dict[str, list[Vector]] = {name: [] for name in SMOOTHINGS}
    for seed in range(seeds):
        world = study.world(seed)
        best = fw.optimum(world, study.objective, seed, tolerance=1e-4).value
        for name, smoothing in SMOOTHINGS.items():
            player = policy(study, world, learnt, smoothing())
            options: dict[str, Any] = {"checkpoints": times, "scalar_regret": False}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # known probabilities have the plain loop
                run = fw.simulate(player, world, times[-1], seed, **options)
            rows[name].append(best - run.value)
    return {name: np.array(found) for name, found in rows.items()}


def ratio(found: dict[str, Matrix]) -> tuple[Vector, Matrix]:
    """Of the means, at every time, and its interval (2, times)."""
    old, new = found["moreau"], found["augmented"]
    drawn = np.random.default_rng(0).integers(len(old), size=(2_000, len(old)))
    each = new[drawn].mean(axis=1) / old[drawn].mean(axis=1)
    return new.mean(axis=0) / old.mean(axis=0), np.quantile(each, (0.025, 0.975), axis=0)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, help="at most; left out, as many as are needed")
    parser.add_argument("--horizon", type=int, default=100_000)
    parser.add_argument("--only", nargs="+", choices=STUDIES, default=list(STUDIES))
    given = parser.parse_args()
    times = [10**k for k in range(3, 9) if 10**k <= given.horizon]
    if not times:
        parser.error(f"the horizon is {given.horizon}; give at least 1000")
    print("| world | | seeds | " + " | ".join(f"{t:,}" for t in times) + " |")
    print("|---|---|---|" + "---|" * len(times))
    for learnt in (True, False):
        for name in given.only:
            study = STUDIES[name]
            try:
                study.world(0)
            except FairwolfeError as error:
                print(f"{name} is left out: {error}")
                continue
            seeds = study.seeds[0 if learnt else 1]
            seeds = min(seeds, given.seeds or seeds)
            found = regrets(study, learnt, seeds, times)
            centre, (low, high) = ratio(found)
            cells = [
                f"{m:.2g}: {c:.2f}" + (f" ({a:.2f} to {b:.2f})" if seeds > 1 else "")
                for m, c, a, b in zip(found["moreau"].mean(axis=0), centre, low, high, strict=True)
            ]
            kind = "learnt" if learnt else "known"
            print(f"| {name} | {kind} | {seeds} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
