"""The regret f* - f of bandits and explorations, after 10^3, 10^4 and 10^5 rounds in six worlds.

    python benchmarks/bench_exploration.py [--seeds N] [--horizon T] [--picture FILE] [--json FILE]

All policies meet the same worlds, contexts and noise; f is of the expected average rewards, and f*
the certified optimum of the world. Prints a table for each world, mean and standard error over
seeds, and draws the curves. A few minutes.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson
from fairwolfe.core.arrays import Matrix
from fairwolfe.environments import FactorModel, Finite, Mehrotra
from fairwolfe.objectives import Concave, GiniEquality, Minimum, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation import simulate
from fairwolfe.truth.optimum import optimum

EXPLORATIONS: tuple[Any, ...] = (1.0, 0.3, 0.1, 0.03, "pointwise")
_TOLERANCE = 1e-4  # of f*, below the regrets that are told apart
_DECADE = 4  # checkpoints


class World(NamedTuple):
    """The environment of a seed, what is maximised in it, and who plays, by name."""

    title: str
    environment: Callable[[int], Any]
    objective: Concave
    policies: Mapping[str, Any]


def _bandits(f: Concave) -> dict[str, Any]:
    bases: dict[str, Any] = {f"LinUCB {one}": LinUCB(exploration=one) for one in EXPLORATIONS}
    bases["SquareCB theorem"] = SquareCB(gamma0="theorem")
    for gamma0 in (10.0, 100.0, 1e3, 1e4):
        bases[f"SquareCB {gamma0:g}"] = SquareCB(gamma0=gamma0)
    for epsilon in (0.1, 0.01):
        bases[f"EpsilonGreedy {epsilon}"] = EpsilonGreedy(epsilon)
    for scale in (1.0, 0.1):
        bases[f"Thompson {scale}"] = Thompson(scale=scale)
    return {name: FrankWolfe(f, base) for name, base in bases.items()}


def _ten_arms(low: float, high: float) -> Callable[[int], Finite]:
    """One context, ten arms with parameters of their own, two rewards with means in between."""

    def world(seed: int) -> Finite:
        means = np.random.default_rng(seed).uniform(low, high, size=(2, 10))
        return Finite([np.eye(10).tolist()], (1.0,), theta=means.tolist())

    return world


def worlds() -> tuple[World, ...]:
    """Music, lists, the smallest world, and three in which arms share nothing."""
    music, fair, least = Mehrotra(50, 5, 10), TwoSided(GiniEquality(), beta=1.0), Minimum()
    ranks = {f"FWLinUCBRank {one}": FWLinUCBRank(fair, exploration=one) for one in EXPLORATIONS}
    rare, sure, any_ = _ten_arms(0.0, 0.1), _ten_arms(0.9, 1.0), _ten_arms(0.0, 1.0)
    tune, lists, two = music.objective(), FactorModel(50, 50), Finite.a2()
    return (
        World("Music: 50 arms, 5 rewards", lambda _: music, tune, _bandits(tune)),
        World("Lists: 10 of 50 items, 50 users", lambda _: lists, fair, ranks),
        World("Two arms, two rewards", lambda _: two, least, _bandits(least)),
        World("Ten arms, means in 0 to 0.1", rare, least, _bandits(least)),
        World("Ten arms, means in 0.9 to 1", sure, least, _bandits(least)),
        World("Ten arms, means in 0 to 1", any_, least, _bandits(least)),
    )


def times(horizon: int) -> list[int]:
    """Checkpoints: a few in each decade, from 100 on."""
    n = round(_DECADE * np.log10(horizon / 100)) + 1
    grid = np.geomspace(100, horizon, n).round().astype(int)
    return sorted({*grid.tolist(), *(10**k for k in range(3, 9) if 10**k <= horizon)})


def regrets(world: World, policy: Any, best: list[float], horizon: int) -> Matrix:
    """f* - f, (seeds, checkpoints)."""
    options: dict[str, Any] = {"checkpoints": times(horizon), "scalar_regret": False}
    rows = [
        best[seed]
        - simulate(policy, world.environment(seed), horizon, seed, world.objective, **options).value
        for seed in range(len(best))
    ]
    return np.array(rows)


def measured(world: World, seeds: int, horizon: int) -> dict[str, Matrix]:
    """By policy."""
    best = [
        optimum(world.environment(seed), world.objective, seed, _TOLERANCE).value
        for seed in range(seeds)
    ]
    return {name: regrets(world, one, best, horizon) for name, one in world.policies.items()}


def printed(world: World, found: Mapping[str, Matrix], horizon: int) -> None:
    """A Markdown table: mean regret and standard error at powers of ten."""
    grid = times(horizon)
    shown = [t for t in grid if t >= 1000 and str(t).strip("0") == "1"]
    print(f"\n## {world.title}\n")
    print("| policy | " + " | ".join(f"{t:,}" for t in shown) + " |")
    print("|---|" + "---|" * len(shown))
    for name, rows in found.items():
        cells = []
        for t in shown:
            column = rows[:, grid.index(t)]
            error = column.std(ddof=1) / np.sqrt(len(column)) if len(column) > 1 else np.nan
            cells.append(f"{column.mean():.2g} ({error:.1g})")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


_CURVES = {  # name ends in -> label, colour, dashes
    "1.0": ("1 (theory)", "#7f7f7f", "-"),
    "0.1": ("0.1", "#0072b2", "-"),
    "0.03": ("0.03", "#56b4e9", "--"),
    "pointwise": ("pointwise", "#d55e00", "-"),
}


def drawn(found: Mapping[str, Mapping[str, Matrix]], horizon: int, path: Path) -> None:
    """Four panels: of the other two worlds one has a single curve, one is between these."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    grid = times(horizon)
    panels = [title for title in found if "Two arms" not in title and "to 0.1" not in title]
    figure, axes = plt.subplots(2, 2, figsize=(5.8, 6.2), facecolor="white")
    for axis, title in zip(axes.flat, panels, strict=True):
        rows = found[title]
        for end, (label, colour, dashes) in _CURVES.items():
            name = next(n for n in rows if "LinUCB" in n and n.endswith(f" {end}"))
            mean = rows[name].mean(axis=0)
            axis.loglog(grid, mean, color=colour, linestyle=dashes, label=label, linewidth=2.2)
        axis.set_title(title, fontsize=10.5)
        axis.grid(alpha=0.3, which="major")
        axis.tick_params(labelsize=10)
        axis.set_xlabel("rounds", fontsize=11)
    for axis in axes[:, 0]:
        axis.set_ylabel("regret f* - f", fontsize=11)
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="lower center", ncols=4, fontsize=11, frameon=False, columnspacing=1.2
    )
    figure.tight_layout(rect=(0.0, 0.05, 1.0, 1.0))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110, facecolor="white")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--horizon", type=int, default=100_000)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path, help="all curves, (seeds, checkpoints)")
    asked = parser.parse_args()
    found: dict[str, dict[str, Matrix]] = {}
    for world in worlds():
        found[world.title] = measured(world, asked.seeds, asked.horizon)
        printed(world, found[world.title], asked.horizon)
    if asked.json is not None:
        plain: Callable[[Any], Any] = np.ndarray.tolist
        asked.json.write_text(
            json.dumps({"t": times(asked.horizon), "regret": found}, default=plain)
        )
    if asked.picture is not None:
        drawn(found, asked.horizon, asked.picture)


if __name__ == "__main__":
    main()
