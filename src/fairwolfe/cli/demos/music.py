"""The demonstration: five policies in the paper's music world, against its exact optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.environments import Mehrotra
from fairwolfe.objectives import Linear
from fairwolfe.oracles import Ridge
from fairwolfe.plots import new_figure, save
from fairwolfe.reduction import FrankWolfe, MOLinCB
from fairwolfe.simulation import Comparison, compare
from fairwolfe.smoothing import Moreau
from fairwolfe.truth.optimum import Optimum, optimum

WORLD = Mehrotra(n_arms=50, n_objectives=5, n_features=10)
HORIZON = 10_000
SEEDS = 10
ROUNDS = HORIZON * SEEDS * 5  # of all policies together
COLUMNS = {
    "policy": "{policy}",
    f"f after {HORIZON:,} rounds": "{value:.4f}",
    "95 % interval": "{low:.3f} - {high:.3f}",
    "below the best": "{below_best_percent:.2f} %",
    "us/round": "{us_per_round:.0f}",
}


def policies() -> dict[str, Any]:
    """Three bandits made concave, the baseline of the paper, and one with fixed weights."""
    f = WORLD.objective()
    smoothing = Moreau(beta0=0.01)  # the paper's, as is the ridge
    weights = Linear(tuple(1.0 / WORLD.n_objectives for _ in range(WORLD.n_objectives)))
    return {
        "FW-SquareCB": FrankWolfe(f, SquareCB(gamma0=1e4, oracle=Ridge(0.1)), smoothing),
        "FW-LinUCB": FrankWolfe(f, LinUCB(exploration=0.1, ridge=0.1), smoothing),
        "FW-epsilon-greedy": FrankWolfe(f, EpsilonGreedy(0.01, oracle=Ridge(0.1)), smoothing),
        "MOLinCB": MOLinCB(f, ridge=0.1),
        "LinUCB, fixed weights": FrankWolfe(weights, LinUCB(exploration=0.1, ridge=0.1)),
    }


@dataclass(frozen=True, eq=False)
class Demonstration:
    """The runs, and the exact optimum of the world of each seed."""

    comparison: Comparison
    best: tuple[Optimum, ...]

    def rows(self) -> list[dict[str, Any]]:
        """A row for each policy, nearest to the optimum first."""
        return sorted(self.comparison.table(self.best), key=lambda row: row["below_best_percent"])

    def sentences(self) -> list[str]:
        """What the table says, in plain words."""
        rows = self.rows()
        first = rows[0]
        fixed = next(row for row in rows if "fixed" in row["policy"])
        return [
            f"{first['policy']} comes within {first['below_best_percent']:.2f} % of the best "
            f"trade-off that any policy can reach in these worlds.",
            f"The same bandit with fixed weights stays {fixed['below_best_percent']:.1f} % below "
            "it: no single number, however well maximised, replaces the trade-off itself.",
        ]

    def draw(self, folder: Path) -> list[Path]:
        """Write the figure as PNG and SVG."""
        figure = new_figure(11.0, 4.6)
        left, right = figure.subplots(1, 2)
        self.comparison.plot(left, self.best, "percent")
        self.comparison.plot(right, self.best, "below")
        right.legend_ = None  # the one on the left serves both
        left.set_title("How much of the best possible f is reached", loc="left")
        right.set_title("What is still missing", loc="left")
        for ax in (left, right):
            ax.set_xlim(10, self.comparison.traces["MOLinCB"][0].t[-1])
        left.set_ylim(86.0, 101.0)
        right.set_ylim(0.03, 20.0)
        figure.suptitle(
            "Five rewards, 50 arms, and f counts a reward the more the worse it is "
            f"({len(self.comparison.seeds)} worlds, 95 % bands)",
            x=0.01,
            ha="left",
        )
        return save(figure, folder, "music")


def run(
    horizon: int = HORIZON,
    seeds: int = SEEDS,
    jobs: int = 2,
    progress: Callable[[int], None] | None = None,
) -> Demonstration:
    """Play all policies in the worlds of the seeds; fixed weights are measured by f too."""
    f = WORLD.objective()
    comparison = compare(
        policies(), WORLD, horizon, seeds, objective=f, jobs=jobs, progress=progress
    )
    best = tuple(optimum(WORLD, f, seed) for seed in comparison.seeds)
    return Demonstration(comparison, best)
