"""The picture of a trade-off."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.intervals import bands
from fairwolfe.fairness.tradeoff import result, words
from fairwolfe.plots.axes import lorenz_axes, lorenz_line, open_frame
from fairwolfe.plots.picture import new_figure, save
from fairwolfe.plots.style import COLOURS, LINES, look
from fairwolfe.simulation.exposure import lorenz

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from fairwolfe.fairness.tradeoff.result import TradeOff

__all__ = ["draw", "label_points", "plot", "plot_lorenz"]

_NEAR = (0.11, 0.06)  # points closer than these parts of the axes share a label
_CURVES = (0, 2, 4, 6)  # colours of a few Lorenz curves: not that of FairLearnRank


def plot(tradeoff: TradeOff, ax: Axes | None = None) -> Axes:
    """Utility against the Gini index: policies, the best possible, and what is not certified."""
    if ax is None:
        ax = new_figure(6.4, 4.6).add_subplot()
    _draw_frontier(tradeoff, ax)
    for policy, i, marker, place in (
        (result.FAIR, 0, "o", (5, 5)),
        (result.FLOOR, 3, "s", (-6, -6)),
    ):
        settings = tradeoff.settings(policy)
        if not settings:
            continue
        curve = tradeoff.curve(policy)
        (gini, *gini_ends), (utility, *utility_ends) = (bands(curve[..., i]).T for i in (0, 1))
        symbol = "floor" if policy == result.FLOOR else "beta"
        ax.errorbar(
            gini,
            utility,
            xerr=np.abs(np.array(gini_ends) - gini),
            yerr=np.abs(np.array(utility_ends) - utility),
            elinewidth=0.8,
            label=f"{policy}, by {symbol}",
            **look(i) | {"marker": marker, "markersize": 5},
        )
        label_points(ax, np.column_stack([gini, utility]), settings, COLOURS[i], place)
    ax.invert_xaxis()
    ax.margins(0.09)
    rewards = list(tradeoff.problem.rewards)
    ax.set_xlabel("inequality of exposure (Gini index), fairer to the right")
    ax.set_ylabel(f"{rewards[0] if len(rewards) == 1 else 'utility'} a ranking")
    open_frame(ax)
    ax.legend(frameon=False, loc="lower left")
    return ax


def _draw_frontier(tradeoff: TradeOff, ax: Axes) -> None:
    curve = np.array([(row["gini"], row["utility"]) for row in tradeoff.rows()])
    ordered = curve[np.argsort(curve[:, 0])]
    gini = np.linspace(ordered[0, 0], ordered[-1, 0], 400)
    values = tradeoff.item_objective_at(gini)
    if values is None:
        ax.plot(*ordered.T, color="0.35", linewidth=1.2, zorder=1, label="best for this objective")
        return
    lower, upper = tradeoff.frontier.lower(values), tradeoff.frontier.upper(values)
    band = "the best possible is in here"
    ax.fill_between(gini, lower, upper, color="0.82", linewidth=0, zorder=0, label=band)
    ax.plot(gini, lower, color="0.35", linewidth=1.2, zorder=1, label="can be reached")


def label_points(
    ax: Axes, points: Matrix, settings: tuple[float, ...], colour: str, place: tuple[int, int]
) -> None:
    """Write the settings beside their points; neighbours share a label."""
    scale = np.array([np.diff(ax.get_xlim())[0], np.diff(ax.get_ylim())[0]])
    groups: list[list[int]] = []
    for i in range(len(points)):
        near = groups and np.hypot(*((points[i] - points[groups[-1][0]]) / scale / _NEAR)) < 1.0
        if near:
            groups[-1].append(i)
        else:
            groups.append([i])
    right, above = place[0] > 0, place[1] > 0
    for group in groups:
        ax.annotate(
            ", ".join(f"{settings[i]:.2g}" for i in group),
            points[group[0]],
            xytext=place,
            textcoords="offset points",
            color=colour,
            fontsize=8,
            ha="left" if right else "right",
            va="bottom" if above else "top",
        )


def plot_lorenz(tradeoff: TradeOff, ax: Axes | None = None, beta: float | None = None) -> Axes:
    """Lorenz curves of FWLinUCBRank for the ends, a beta or the knee, and what lies between."""
    ax = lorenz_axes(ax)
    betas = tradeoff.betas
    rows = [row for row in tradeoff.table() if row["policy"] == result.FAIR]
    wanted = {0, words.knee(rows) if beta is None else betas.index(beta), len(betas) - 1}
    spread = np.linspace(0, len(betas) - 1, len(_CURVES)).round().astype(int).tolist()
    for i in spread:
        if len(wanted) < len(_CURVES):
            wanted.add(i)
    m = tradeoff.problem.n_items
    for i, (place, colour) in enumerate(zip(sorted(wanted), _CURVES, strict=False)):
        curves = [lorenz(z[:m]) for z in tradeoff.averages(result.FAIR, betas[place])]
        label = f"beta = {betas[place]:.3g}"
        lorenz_line(ax, curves, color=COLOURS[colour], linestyle=LINES[i], label=label)
    ax.legend(frameon=False, loc="upper left")
    return ax


def draw(tradeoff: TradeOff, folder: Path) -> list[Path]:
    """Both plots in one figure, as PNG and SVG."""
    figure = new_figure(11.5, 4.8)
    trade, curves = figure.subplots(1, 2, width_ratios=(1.25, 1))
    plot(tradeoff, trade).set_title("What fairness costs", loc="left")
    plot_lorenz(tradeoff, curves).set_title(f"Who is exposed by {result.FAIR}", loc="left")
    n = len(tradeoff.seeds)
    kept = "" if tradeoff.constraints is None else ", hard constraints kept by the best possible"
    figure.suptitle(
        f"{tradeoff.problem.n_items} items in {tradeoff.problem.n_slots} slots, item objective "
        f"{type(tradeoff.items).__name__}, {tradeoff.horizon:,} rounds, "
        f"{n} seed{'s' * (n > 1)}{kept}",
        x=0.01,
        ha="left",
    )
    return save(figure, folder, "tradeoff")
