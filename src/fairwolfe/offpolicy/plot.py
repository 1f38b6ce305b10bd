"""The picture of an evaluation: intervals of policies, one below the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from fairwolfe.offpolicy.estimate import Estimate
from fairwolfe.plots.picture import new_figure
from fairwolfe.plots.style import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["intervals"]


def intervals(estimates: Mapping[str, Estimate], title: str) -> Figure:
    """A line for each policy; one that reaches minus infinity has an arrow."""
    figure = new_figure(7.0, 1.4 + 0.42 * len(estimates))
    ax = figure.add_subplot()
    ends = [
        x for one in estimates.values() for x in (one.low, one.high, one.value) if np.isfinite(x)
    ]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    left = low - 0.08 * max(high - low, 1e-9)
    for row, (name, one) in enumerate(estimates.items()):
        colour = COLOURS[0] if name != "as logged" else COLOURS[6]
        start = one.low if np.isfinite(one.low) else left
        ax.plot([start, one.high], [row, row], color=colour, linewidth=2.0, solid_capstyle="butt")
        if not np.isfinite(one.low):
            ax.plot([left], [row], marker="<", color=colour)
        if np.isfinite(one.value):
            ax.plot([one.value], [row], marker="o", color=colour)
    ax.set_yticks(range(len(estimates)), list(estimates))
    ax.invert_yaxis()
    level = next(iter(estimates.values())).level
    ax.set_xlabel(f"f of the average rewards, {level:.0%} intervals")
    ax.set_title(title, fontsize=10)
    ax.grid(axis="x", alpha=0.3)
    return figure
