"""The demonstration: four ranking policies in the embedded world, against its certified optimum."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.environments import FactorModel
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.protocols import Vector
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.simulation import Comparison, compare
from fairwolfe.simulation.metrics import bottom_share, gini_index, lorenz
from fairwolfe.simulation.optimum import Optimum, optimum
from fairwolfe.simulation.plots import COLOURS, LINES, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["HORIZON", "ROUNDS", "SEEDS", "Demonstration", "run"]

WORLD = FactorModel()
BETA = 0.1
EXPLORATION = 0.1
HORIZON = 100_000
SEEDS = 3
BETAS = (0.0, 0.03, 0.06, 0.1, 0.2, 0.5)
SHARES = (0.0, 0.05, 0.1, 0.15, 0.19)
ROUNDS = HORIZON * (SEEDS * 4 + len(BETAS) + len(SHARES))  # of everything that is played
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
    """The runs, the certified optima of their worlds, and points of the trade-off in the first."""

    comparison: Comparison
    best: tuple[Optimum, ...]
    frontier: tuple[Optimum, ...]
    fair: dict[float, Vector]  # beta -> average reward vector
    floors: dict[float, Vector]  # minimum of FairLearn -> average reward vector

    def rows(self) -> list[dict[str, Any]]:
        """A row for each policy, nearest to the optimum first."""
        rows = []
        for row in self.comparison.table(self.best):
            last = [trace.average[-1] for trace in self.comparison.traces[row["policy"]]]
            rows.append(
                row
                | {
                    "clicks": float(np.mean([z[-1] for z in last])),
                    "gini": float(np.mean([gini_index(z[:-1]) for z in last])),
                    "bottom_half": float(np.mean([bottom_share(z[:-1]) for z in last])),
                }
            )
        return sorted(rows, key=lambda row: row["below_best_percent"])

    def sentences(self) -> list[str]:
        """What the table says, in plain words."""
        rows = {row["policy"]: row for row in self.rows()}
        fair, plain = rows[_FAIR], rows[_PLAIN]
        given_up = 100.0 * (1.0 - fair["clicks"] / plain["clicks"])
        return [
            f"Giving up {given_up:.1f} % of clicks lifts the bottom half of items from "
            f"{100 * plain['bottom_half']:.0f} % to {100 * fair['bottom_half']:.0f} % of exposure.",
            f"{_FAIR} comes within {fair['below_best_percent']:.1f} % of the best trade-off that "
            f"any policy can reach; {_PLAIN}, which looks at clicks alone, stays "
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
        self._draw_lorenz(curves)
        self._draw_trade_off(trade)
        figure.suptitle(
            f"f = clicks + {BETA:g} x equality of exposure, {WORLD.problem().n_items} items in "
            f"{WORLD.problem().n_slots} slots ({len(self.comparison.seeds)} worlds)",
            x=0.01,
            ha="left",
        )
        files = [folder / f"fair-ranking.{kind}" for kind in ("png", "svg")]
        for file in files:
            figure.savefig(file, dpi=160)
        return files

    def _draw_lorenz(self, ax: Axes) -> None:
        for i, (name, traces) in enumerate(self.comparison.traces.items()):
            items, below = lorenz(traces[0].average[-1][:-1])
            ax.plot(100 * items, 100 * below, color=COLOURS[i], linestyle=LINES[i], label=name)
        ax.plot([0, 100], [0, 100], color="0.6", linewidth=1.0)
        ax.annotate("all equal", (62, 66), color="0.4", rotation=38, ha="center")
        ax.axvline(50, color="0.85", linewidth=1.0, zorder=0)
        ax.set_xlabel("items, least exposed first, in percent")
        ax.set_ylabel("their share of all exposure, in percent")
        ax.set_title("Who is seen", loc="left")
        ax.spines[["top", "right"]].set_visible(False)

    def _draw_trade_off(self, ax: Axes) -> None:
        edge = np.array([[gini_index(b.average[:-1]), b.average[-1]] for b in self.frontier])
        edge = edge[np.argsort(edge[:, 0])]
        ax.plot(*edge.T, color="0.35", linewidth=1.0, zorder=0)
        middle = edge[len(edge) // 2]
        ax.annotate(
            "best possible", middle, xytext=(6, 6), textcoords="offset points", color="0.35"
        )
        for name, points, i in ((_FAIR, self.fair, 0), ("FairLearn", self.floors, 3)):
            reached = np.array([[gini_index(z[:-1]), z[-1]] for z in points.values()])
            ax.plot(*reached.T, "o", color=COLOURS[i], linestyle=LINES[i], label=name, markersize=5)
        ax.invert_xaxis()
        ax.set_xlabel("inequality of exposure (Gini index), fairer to the right")
        ax.set_ylabel("clicks a ranking")
        ax.set_title("What fairness costs", loc="left")
        ax.spines[["top", "right"]].set_visible(False)
        ax.legend(frameon=False, loc="lower left")


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
    swept: dict[str, Any] = {}
    for beta in BETAS:
        swept[f"beta {beta}"] = FWLinUCBRank(objective(beta), exploration=EXPLORATION)
    for share in SHARES:
        swept[f"share {share}"] = FairLearnRank(share, exploration=EXPLORATION)
    points = compare(
        swept, WORLD, horizon, 1, objective=f, jobs=jobs, checkpoints=[horizon], progress=progress
    )
    reached = {name: traces[0].average[-1] for name, traces in points.traces.items()}
    return Demonstration(
        comparison,
        tuple(optimum(WORLD, f, seed) for seed in comparison.seeds),
        tuple(optimum(WORLD, objective(beta), 0) for beta in BETAS),
        {beta: reached[f"beta {beta}"] for beta in BETAS},
        {share: reached[f"share {share}"] for share in SHARES},
    )
