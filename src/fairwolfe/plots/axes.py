"""Axes for what is drawn again and again, and the lines on them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.plots.picture import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

__all__ = [
    "best_line",
    "lorenz_axes",
    "lorenz_line",
    "mean_line",
    "open_frame",
    "value_axes",
    "violation_line",
]


def open_frame(ax: Axes) -> None:
    """Without the lines at the top and to the right."""
    ax.spines[["top", "right"]].set_visible(False)


def best_line(ax: Axes, value: float, label: str | None = "best possible") -> None:
    """A line at the most that any policy can reach."""
    ax.axhline(value, color="0.35", linewidth=1.0, label=label)


def value_axes(ax: Axes | None, best: float | None = None) -> Axes:
    """Axes for f over time, with a line at the optimum if it is given."""
    if ax is None:
        ax = new_figure().add_subplot()
    ax.set_xscale("log")
    ax.set_xlabel("round")
    ax.set_ylabel("f of the average expected reward")
    open_frame(ax)
    if best is not None:
        best_line(ax, best, label=None)
        ax.annotate(
            "best possible",
            (1.0, best),
            xycoords=("axes fraction", "data"),
            ha="right",
            va="bottom",
            color="0.35",
        )
    return ax


def mean_line(
    ax: Axes, t: IntVector, bands: Matrix, style: dict[str, Any], alpha: float = 0.15
) -> Line2D:
    """A mean over time and its band (mean, low, high); alpha 0: without the band."""
    (line,) = ax.plot(t, bands[:, 0], **style)
    if alpha:
        ax.fill_between(t, bands[:, 1], bands[:, 2], color=style["color"], alpha=alpha, linewidth=0)
    return line


def violation_line(
    ax: Axes, beside: Axes | None, t: IntVector, violation: Vector, **style: Any
) -> Axes:
    """How far hard constraints are violated over time, dotted, on axes to the right of f.

    beside: those axes, where there are some already
    """
    if beside is None:
        beside = ax.twinx()
        beside.set_ylabel("violation of the hard constraints (dotted)")
        beside.spines[["top", "left"]].set_visible(False)
        beside.spines["right"].set_visible(True)
    beside.plot(t, violation, linestyle=":", **style)
    beside.set_ylim(bottom=0.0)
    return beside


def lorenz_axes(ax: Axes | None) -> Axes:
    """Axes for Lorenz curves in percent, with the diagonal of equality."""
    if ax is None:
        ax = new_figure(4.8, 4.2).add_subplot()
    ax.plot([0, 100], [0, 100], color="0.6", linewidth=1.0)
    ax.annotate("all equal", (62, 66), color="0.4", rotation=38, ha="center")
    ax.axvline(50, color="0.85", linewidth=1.0, zorder=0)
    ax.set_xlabel("items, least exposed first, in percent")
    ax.set_ylabel("their share of all exposure, in percent")
    open_frame(ax)
    return ax


def lorenz_line(ax: Axes, curves: list[tuple[Vector, Vector]], **style: Any) -> Line2D:
    """The mean of Lorenz curves, of one number of items."""
    items, below = np.mean(curves, axis=0)
    (line,) = ax.plot(100 * items, 100 * below, **style)
    return line
