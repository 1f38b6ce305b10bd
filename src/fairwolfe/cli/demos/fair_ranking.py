"""The demonstration: four ranking policies in the embedded world, against its certified optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fairwolfe.environments import FactorModel
from fairwolfe.fairness import TradeOff, tradeoff
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.plots import new_figure, save
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.simulation import Comparison, compare
from fairwolfe.truth import Optimum, optimum

WORLD = FactorModel()
BETA = 0.1
EXPLORATION = 0.1
HORIZON = 100_000
SEEDS = 3
BETAS = (0.0, 0.03, 0.06, 0.1, 0.2, 0.5)
SHARES = (0.0, 0.05, 0.1, 0.15, 0.19)
ROUNDS = HORIZON * (SEEDS * 4 + len(BETAS) + len(SHARES))  # of everything that is played
COLUMNS = {
    "policy": "{policy}",
    "clicks": "{utility:.3f}",
    "Gini": "{gini:.3f}",
    "bottom half": "{bottom_half:.0%}",
    "f": "{value:.4f}",
    "below the best": "{below_best_percent:.2f} %",
    "us/round": "{us_per_round:.0f}",
}
_FAIR, _PLAIN = "FW-LinUCBRank", "LinUCBRank"


def objective(beta: float = BETA) -> TwoSided:
    """Clicks, and equality of exposure."""
    return TwoSided(GiniEquality(), beta=beta)


def policies() -> dict[str, Any]:
    """The paper's policy and its three baselines, all with a tenth of the theory's exploration."""
    return {
        _FAIR: FWLinUCBRank(objective(), exploration=EXPLORATION),
        _PLAIN: LinUCBRank(exploration=EXPLORATION),
        "Unbiased-LinUCBRank": UnbiasedLinUCBRank(exploration=EXPLORATION),
        "FairLearn(0.1)": FairLearnRank(0.1, exploration=EXPLORATION),
    }


@dataclass(frozen=True, eq=False)
class Demonstration:
    """The runs, the certified optima of their worlds, and the trade-off in the first."""

    comparison: Comparison
    best: tuple[Optimum, ...]
    trade: TradeOff

    def rows(self) -> list[dict[str, Any]]:
        """A row for each policy, nearest to the optimum first."""
        return sorted(self.comparison.table(self.best), key=lambda row: row["below_best_percent"])

    def sentences(self) -> list[str]:
        """What the table says, in plain words."""
        rows = {row["policy"]: row for row in self.rows()}
        fair, plain = rows[_FAIR], rows[_PLAIN]
        given_up = 100.0 * (1.0 - fair["utility"] / plain["utility"])
        return [
            f"Giving up {given_up:.1f} % of clicks lifts the bottom half of items from "
            f"{100 * plain['bottom_half']:.0f} % to {100 * fair['bottom_half']:.0f} % of exposure.",
            f"{_FAIR} comes within {fair['below_best_percent']:.1f} % of the best trade-off that "
            f"any policy can reach; {_PLAIN}, which uses clicks alone, stays "
            f"{plain['below_best_percent']:.0f} % below it.",
        ]

    def draw(self, folder: Path) -> list[Path]:
        """Write the figure as PNG and SVG."""
        figure = new_figure(13.5, 4.6)
        values, curves, trade = figure.subplots(1, 3)
        self.comparison.plot(values, self.best, "percent")
        values.set_title("How much of the best possible f is reached", loc="left")
        values.set_xlim(100, HORIZON)
        values.set_ylim(60.0, 104.0)
        self.comparison.plot_lorenz(curves).set_title("Who is seen", loc="left")
        self.trade.plot(trade).set_title("What fairness costs", loc="left")
        figure.suptitle(
            f"f = clicks + {BETA:g} x equality of exposure, {WORLD.problem().n_items} items in "
            f"{WORLD.problem().n_slots} slots ({len(self.comparison.seeds)} worlds)",
            x=0.01,
            ha="left",
        )
        return save(figure, folder, "fair-ranking")


def run(
    horizon: int = HORIZON,
    seeds: int = SEEDS,
    jobs: int = 2,
    progress: Callable[[int], None] | None = None,
) -> Demonstration:
    """Play the four policies in the worlds of the seeds, and the trade-off in the first."""
    f = objective()
    comparison = compare(
        policies(), WORLD, horizon, seeds, objective=f, jobs=jobs, progress=progress
    )
    trade = tradeoff(
        WORLD,
        f.items,
        BETAS,
        floors=SHARES,
        horizon=horizon,
        seeds=1,
        exploration=EXPLORATION,
        jobs=jobs,
        progress=progress,
    )
    best = tuple(optimum(WORLD, f, seed) for seed in comparison.seeds)
    return Demonstration(comparison, best, trade)
