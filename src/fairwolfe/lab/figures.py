"""Figures of results in the style of the paper: means over seeds with 95 % bands, log time.

Lines differ in colour (of Okabe and Ito), in dashes and, where there are many, in markers, so that
they can be distinguished in grey and without colour vision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.intervals import bands, interval
from fairwolfe.fairness.metrics import lorenz
from fairwolfe.lab.groups import Group
from fairwolfe.plots.axes import lorenz_line, mean_line, open_frame, value_axes
from fairwolfe.plots.picture import Picture, new_figure
from fairwolfe.plots.style import look
from fairwolfe.simulation.line import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Drawn", "pictures"]

_FEW = 3  # lines whose bands can be distinguished
_WIDTH, _HEIGHT = 4.3, 3.2  # inches: text stays readable on a telephone
_CHARACTERS = 44  # of a name in a legend, in one line


class Drawn(NamedTuple):
    """All pictures of an experiment."""

    groups: list[list[Picture]]  # in the order of the groups
    trade_offs: list[Picture]  # of all groups of a world

    def all(self) -> list[Picture]:
        """One after the other."""
        return [*(picture for each in self.groups for picture in each), *self.trade_offs]


def pictures(groups: Sequence[Group]) -> Drawn:
    """Draw everything that there is to see."""
    drawn = []
    for i, group in enumerate(groups, 1):
        mine = [_values(group, f"values-{i}")]
        if len(group.lines) > 1 and len(group.best.seeds) > 1:
            mine.append(_behind(group, f"behind-{i}"))
        if group.n_items is not None:
            mine.append(_lorenz(group, f"lorenz-{i}"))
        drawn.append(mine)
    ranked = [group for group in groups if group.n_items is not None]
    by_world = {
        world: [group for group in ranked if group.world == world]
        for world in dict.fromkeys(group.world for group in ranked)
    }
    trades = [_trade_off(mine, f"trade-off-{i}") for i, mine in enumerate(by_world.values(), 1)]
    return Drawn(drawn, trades)


def _values(group: Group, name: str) -> Picture:
    figure = new_figure(_WIDTH, _height(line.name for line in group.lines))
    ax = value_axes(figure.add_subplot())
    _curves(ax, group, [(line, line.bands()) for line in group.lines])
    final = ", ".join(f"{line.name} {line.final.mean():.4g}" for line in group.lines)
    ax.set_ylabel("f")
    return Picture(
        name,
        "f of the average expected reward over time; mean over seeds with 95 % bands, wide where "
        "worlds differ.",
        f"Curves of f over {group.horizon:,} rounds. At the end: {final}.",
        figure,
    )


def _behind(group: Group, name: str) -> Picture:
    figure = new_figure(_WIDTH, _height(line.name for line in group.lines))
    ax = value_axes(figure.add_subplot())
    gaps = [(line, group.behind(line)) for line in group.lines]
    _curves(ax, group, [(line, bands(rows)) for line, rows in gaps if len(rows)])
    ax.set_ylabel("f of the best, less f")
    return Picture(
        name,
        f"How far behind {group.best.name}, seed by seed: differences are paired, so that worlds "
        "that are rich for all cancel out.",
        f"Curves of the difference of f to {group.best.name}.",
        figure,
    )


def _curves(ax: Axes, group: Group, drawn: Sequence[tuple[Line, Matrix]]) -> None:
    """Means and bands. The first rounds are noise: they are left out or do not set the scale."""
    n, shown = len(group.lines), []
    start = 10.0 ** max(0, round(np.log10(group.horizon / 1000.0)))
    alpha = 0.15 if n <= _FEW else 0.08  # many bands hide the lines
    handles = []
    for line, band in drawn:
        style = look(group.lines.index(line), n) | {"markevery": max(1, len(line.t) // 8)}
        handles.append((mean_line(ax, line.t, band, style, alpha), line.name))
        shown += [band[line.t >= min(10.0 * start, line.t[-1]), 0], band[-1]]
    whole = np.concatenate(shown)
    low, high = float(np.nanmin(whole)), float(np.nanmax(whole))
    room = 0.08 * (high - low) or 0.05 * abs(high) or 0.05
    ax.set_ylim(low - room, high + room)
    if group.horizon > start:
        ax.set_xlim(start, group.horizon)
    ax.xaxis.set_major_formatter(lambda t, _: f"{t:,.0f}")  # powers in small print are hard to read
    ax.xaxis.set_minor_formatter("")
    _legend(ax, handles)


def _lorenz(group: Group, name: str) -> Picture:
    figure = new_figure(_WIDTH, _height(line.name for line in group.lines))
    ax = figure.add_subplot()
    handles = []
    for i, line in enumerate(group.lines):
        if line.exposures is None:
            continue
        style = look(i, len(group.lines)) | {"markevery": max(1, (group.n_items or 0) // 8)}
        handle = lorenz_line(ax, [lorenz(row) for row in line.exposures], **style)
        handles.append((handle, line.name))
    ax.plot([0, 100], [0, 100], color="0.5", linewidth=0.8)
    ax.set_xlabel("items, least exposed first, in percent")
    ax.set_ylabel("share of exposure, in percent")
    open_frame(ax)
    _legend(ax, handles)
    halves = ", ".join(
        f"{line.name} {100 * line.fairness['bottom_half'].mean():.0f} %" for line in group.lines
    )
    return Picture(
        name,
        "Who is exposed: the share of all exposure that the least exposed items have together. The "
        "straight line is equality.",
        f"Lorenz curves of exposure. The less exposed half of the items has: {halves}.",
        figure,
    )


def _trade_off(groups: Sequence[Group], name: str) -> Picture:
    """A point for each line of each group; those of one name are joined."""
    names = list(dict.fromkeys(line.name for group in groups for line in group.lines))
    figure = new_figure(_WIDTH, _height(names))
    ax = figure.add_subplot()
    handles, texts = [], []
    for i, one in enumerate(names):
        points = [line.fairness for group in groups for line in group.lines if line.name == one]
        points.sort(key=lambda point: float(point["gini"].mean()))
        style = look(i, marker=5.0)
        x, y = (np.array([interval(point[key]) for point in points]) for key in ("gini", "utility"))
        handles.append((ax.plot(x[:, 0], y[:, 0], **style)[0], one))
        spread = {"color": style["color"], "linewidth": 0.8, "alpha": 0.7}
        ax.hlines(y[:, 0], x[:, 1], x[:, 2], **spread)
        ax.vlines(x[:, 0], y[:, 1], y[:, 2], **spread)
        ends = ", ".join(f"({g:.2f}, {u:.3g})" for g, u in zip(x[:, 0], y[:, 0], strict=True))
        texts.append(f"{one} {ends}")
    ax.invert_xaxis()
    ax.set_xlabel("inequality (Gini index), fairer to the right")
    ax.set_ylabel("user-side reward")
    open_frame(ax)
    _legend(ax, handles)
    return Picture(
        name,
        "What fairness costs: the rewards of users against the inequality of exposure at the "
        "horizon, with 95 % intervals. Up and to the right is better for both.",
        "Points (Gini index, user-side reward): " + "; ".join(texts) + ".",
        figure,
    )


def _height(names: Iterable[str]) -> float:
    """Room for a legend below the axes."""
    return _HEIGHT + 0.19 * sum(_wrapped(name).count("\n") + 1 for name in names)


def _legend(ax: Axes, handles: Sequence[tuple[Any, str]]) -> None:
    """Below the axes, where long names have room."""
    figure: Any = ax.figure
    legend = figure.legend(
        [handle for handle, _ in handles],
        # A name that begins with _ is left out by matplotlib.
        ["\N{ZERO WIDTH SPACE}" + _wrapped(name) for _, name in handles],
        loc="outside lower left",
        frameon=False,
        fontsize=9,
        handlelength=3.2,
        labelspacing=0.25,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a label may hold a $


def _wrapped(name: str) -> str:
    return fill(name, _CHARACTERS)
