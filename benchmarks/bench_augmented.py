"""`Augmented` smoothing beside `Moreau`, both with their defaults: how much regret is left.

    python benchmarks/bench_augmented.py
    python benchmarks/bench_augmented.py --seeds 3 --horizon 10000 --only "two arms" mehrotra

Six worlds: learnt with exploration 0.1, rankings also with iterate="expected", and with known
probabilities. Regret is f* - f, f of the average of expected rewards, and of those that were
earned; f* is the certified optimum. What is printed is the mean regret with `Moreau`, and the mean
regret with `Augmented` divided by it (below 1: Augmented is better), with a 95 % interval: 2,000
bootstrap samples of the seeds, in pairs. Where the regret with `Moreau` is less than two standard
errors above 0 there is no ratio. Last.fm is skipped where its file is missing: set FAIRWOLFE_DATA.
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
from numpy.typing import NDArray

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.core.arrays import Vector
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
SMOOTHINGS = (Moreau, Augmented)
KINDS = ("learnt", "learnt, expected", "known")


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


def policy(study: Study, world: Any, kind: str, smoothing: Any) -> Any:
    """Frank-Wolfe with the smoothing; None where there is no such kind."""
    f = study.objective
    if kind == "known":
        return fw.known(world, f, smoothing)
    if isinstance(f, TwoSided):
        iterate: Any = "observed" if kind == "learnt" else "expected"
        return FWLinUCBRank(f, smoothing=smoothing, exploration=0.1, iterate=iterate)
    if kind == "learnt":
        return fw.FrankWolfe(f, LinUCB(exploration=0.1, ridge=0.1), smoothing)
    return None


def regrets(study: Study, kind: str, seeds: int, times: list[int]) -> NDArray[np.float64]:
    """f* - f of expected and of earned rewards, by smoothing: (2, smoothings, seeds, times)."""
    found = np.empty((2, len(SMOOTHINGS), seeds, len(times)))
    for seed in range(seeds):
        world = study.world(seed)
        best = fw.optimum(world, study.objective, seed, tolerance=1e-4).value
        for i, smoothing in enumerate(SMOOTHINGS):
            player = policy(study, world, kind, smoothing())
            options: dict[str, Any] = {"checkpoints": times, "scalar_regret": False}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # known probabilities have the plain loop
                run = fw.simulate(player, world, times[-1], seed, **options)
            found[:, i, seed] = best - run.value, best - run.observed
    return found


def cell(old: Vector, new: Vector) -> str:
    """The mean regret, and the ratio with its interval. old, new (seeds,)."""
    mean, n = old.mean(), old.size
    if (n > 1 and mean < 2.0 * old.std(ddof=1) / np.sqrt(n)) or mean <= 0.0:
        return f"{mean:.2g}: -"
    text = f"{mean:.2g}: {new.mean() / mean:.2f}"
    if n == 1:
        return text
    drawn = np.random.default_rng(0).integers(n, size=(2_000, n))
    low, high = np.quantile(new[drawn].mean(axis=1) / old[drawn].mean(axis=1), (0.025, 0.975))
    return f"{text} ({low:.2f} to {high:.2f})"


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
    print("| world | | f of rewards | seeds | " + " | ".join(f"{t:,}" for t in times) + " |")
    print("|---|---|---|---|" + "---|" * len(times))
    for kind in KINDS:
        for name in given.only:
            study = STUDIES[name]
            try:
                if policy(study, study.world(0), kind, Moreau()) is None:
                    continue
            except FairwolfeError as error:
                print(f"{name} is left out: {error}")
                continue
            most = study.seeds[kind == "known"]
            seeds = min(most, given.seeds or most)
            both = regrets(study, kind, seeds, times)
            for measure, (old, new) in zip(("expected", "earned"), both, strict=True):
                cells = [cell(*pair) for pair in zip(old.T, new.T, strict=True)]
                line = f"| {name} | {kind} | {measure} | {seeds} | " + " | ".join(cells) + " |"
                print(line, flush=True)


if __name__ == "__main__":
    main()
