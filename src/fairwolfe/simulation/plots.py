"""Plots of runs: f over time, with the optimum and bands over seeds."""

from __future__ import annotations

from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.errors import require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "LINES",
    "best_value",
    "lorenz_axes",
    "new_figure",
    "save",
    "value_axes",
    "violation_axes",
]

# Okabe and Ito's colours, told apart by the colour-blind; the line styles tell them apart in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C5A2B")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))


def new_figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """A figure outside of pyplot, so that nothing depends on a screen."""
    require_extra("plot", "a figure", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """As PNG and as SVG."""
    files = [folder / f"{name}.{kind}" for kind in ("png", "svg")]
    for file in files:
        figure.savefig(file, dpi=160)
    return files


def best_value(best: Any) -> float:
    """f* as a number, from an Optimum or a number."""
    return float(best if isinstance(best, Real | np.ndarray) else best.value)


def value_axes(ax: Axes | None, best: Any = None) -> Axes:
    """Axes for f over time, with a line at the optimum if it is given."""
    if ax is None:
        ax = new_figure().add_subplot()
    ax.set_xscale("log")
    ax.set_xlabel("round")
    ax.set_ylabel("f of the average expected reward")
    ax.spines[["top", "right"]].set_visible(False)
    if best is not None:
        value = best_value(best)
        ax.axhline(value, color="0.35", linewidth=1.0)
        ax.annotate(
            "best possible",
            (1.0, value),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            color="0.35",
        )
    return ax


def lorenz_axes(ax: Axes | None) -> Axes:
    """Axes for Lorenz curves in percent, with the diagonal of equality."""
    if ax is None:
        ax = new_figure(4.8, 4.2).add_subplot()
    ax.plot([0, 100], [0, 100], color="0.6", linewidth=1.0)
    ax.annotate("all equal", (62, 66), color="0.4", rotation=38, ha="center")
    ax.axvline(50, color="0.85", linewidth=1.0, zorder=0)
    ax.set_xlabel("items, least exposed first, in percent")
    ax.set_ylabel("their share of all exposure, in percent")
    ax.spines[["top", "right"]].set_visible(False)
    return ax


def violation_axes(ax: Axes) -> Axes:
    """Axes to the right of f over time, for how far hard constraints are violated."""
    beside = ax.twinx()
    beside.set_ylabel("violation of the hard constraints (dotted)")
    beside.spines[["top", "left"]].set_visible(False)
    beside.spines["right"].set_visible(True)
    return beside
