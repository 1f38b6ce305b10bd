"""The figures of the paper, drawn from our runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe import plots
from fairwolfe.core.arrays import Matrix
from fairwolfe.core.tables import bands, count, interval
from fairwolfe.fairness.tradeoff import label_points
from fairwolfe.lab.paper.claims import ByFactors, by_factors, paper_curve
from fairwolfe.lab.paper.curves import Curves
from fairwolfe.lab.paper.judges import (
    FAIR,
    FLOOR,
    LINUCB,
    LINUCB_MORE,
    MOLINCB,
    PLAIN,
    SQUARE,
    SQUARE_MORE,
    UNBIASED,
    points,
)
from fairwolfe.lab.paper.studies import STUDIES, Figure
from fairwolfe.lab.spec import Experiment

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


_BANDS = 4  # more of them hide the lines
_GAP = 0.12  # of the axis: over a longer stretch without points no line is drawn
_STYLES = {
    **{name: i for i, name in enumerate((FAIR, PLAIN, UNBIASED, FLOOR))},
    **{name: i for i, name in enumerate((SQUARE, SQUARE_MORE, LINUCB, LINUCB_MORE, MOLINCB))},
    "FW-LinUCB": 2,
    "FW-SquareCB": 0,
}
"""The colour, dashes and marker of each policy, the same in all figures; others come after."""
_EXPLAINED = (
    "Bands and bars are 95 % intervals of the mean over seeds; on a logarithmic axis a band that "
    "reaches the lower edge includes 0."
)
_SETTLED = 100  # from this round on distances are more than noise
_ADDED = tuple(colour for colour in plots.COLOURS if colour != "#000000")

Best = Mapping[str, Any]
"""Study -> what any policy can reach there: f, or f by seed, or points (Gini index, utility)."""


def draw(figure: Figure, results: Mapping[str, Curves], best: Best) -> plots.Picture:
    """One picture: a panel for each study, or a row of three."""
    present = [name for name in figure.studies if name in results]
    if figure.kind == "objectives":
        picture = plots.new_figure(14.5, 3.1 * len(present))
        grid = picture.subplots(len(present), 4, squeeze=False, sharex=True)
        for row, name in zip(grid, present, strict=True):
            _objectives(row, name, results[name], best.get(name))
        for ax in grid[-1]:
            ax.set_xlabel("round")
    elif figure.kind == "factors":
        picture = plots.new_figure(11.5, 3.8)
        _factors(picture, by_factors(results))
    else:
        across = min(len(present), 3) if len(present) != 4 else 2
        down = -(-len(present) // across)
        one_scale = figure.kind == "distance"  # how far off is to be compared between panels too
        least, high = (8.4, 3.5) if one_scale else (5.2, 3.1)  # inches; its legends are long
        picture = plots.new_figure(max(least, 4.4 * across), 0.7 + high * down)
        panel = _PANELS[figure.kind]
        axes = picture.subplots(down, across, squeeze=False, sharey=one_scale).ravel()
        for ax, name in zip(axes, present, strict=True):
            panel(ax, results[name], best.get(name), figure.labels)
            ax.set_title(STUDIES[name].title, loc="left", fontsize=10)
            plots.open_frame(ax)
            if one_scale:
                ax.label_outer()
    _legend(picture)
    shown = "; ".join(STUDIES[name].title for name in present)
    caption = f"{figure.caption} {_played(present, results)} {_EXPLAINED}"
    return plots.Picture(figure.name, caption, f"Panels: {shown}. {caption}", picture)


def _played(names: list[str], results: Mapping[str, Curves]) -> str:
    """How many seeds and rounds, once where panels have the same."""
    sizes = {
        name: f"{count(results[name].n_seeds, 'seed')}, T = {results[name].t[-1]:,}"
        for name in names
    }
    if len(set(sizes.values())) == 1:
        return f"{next(iter(sizes.values()))}."
    each = (f"{STUDIES[name].title}: {size}" for name, size in sizes.items())
    return f"{'; '.join(each)}."


def _place(label: str, labels: Any) -> int:
    """Of a policy among the styles: its own in all figures, else the next that is free."""
    if label in _STYLES:
        return _STYLES[label]
    free = [i for i in range(2 * len(plots.COLOURS)) if i not in {_STYLES.get(x) for x in labels}]
    others = [x for x in labels if x not in _STYLES]
    return free[others.index(label)]


def _factors(picture: Canvas, rows: list[ByFactors]) -> None:
    """A panel for each claim and what was measured of it, over the number of factors."""
    panels: dict[tuple[str, str], list[ByFactors]] = {}
    for row in rows:
        panels.setdefault((row.id, row.finding.statistic), []).append(row)
    axes = picture.subplots(1, len(panels), squeeze=False)[0]
    for ax, ((id, statistic), mine) in zip(axes, panels.items(), strict=True):
        for i, verdict in enumerate(("holds", "undecided", "does not hold")):
            shown = [row for row in mine if row.finding.verdict == verdict]
            found = [(one.estimate, one.low, one.high) for one in (row.finding for row in shown)]
            face = (plots.COLOURS[i], "0.75", "white")[i]  # filled, grey, empty: not by hue alone
            style: dict[str, Any] = {"linestyle": "", "markerfacecolor": face, "markersize": 8.0}
            _intervals(ax, [row.factors for row in shown], found, i, label=verdict, **style)
        if statistic.startswith("time"):
            ax.set_yscale("log")
        ax.set_title(f"{id}: {statistic}", loc="left", fontsize=9)
        ax.set_xlabel("factors")
        plots.open_frame(ax)


def _intervals(ax: Axes, x: Any, found: Any, i: int, **style: Any) -> None:
    """Estimates with their intervals, (n, 3), over x."""
    ends = np.reshape(found, (-1, 3))
    spread = np.abs(ends[:, 1:].T - ends[:, 0])
    look: dict[str, Any] = {
        "color": plots.COLOURS[i],
        "marker": plots.MARKERS[i],
        "capsize": 3,
    } | style
    ax.errorbar(x, ends[:, 0], yerr=spread, **look)


def _legend(picture: Canvas) -> None:
    """One legend under all panels: they share their lines."""
    lines: dict[str, Any] = {}
    for ax in picture.axes:
        handles, labels = ax.get_legend_handles_labels()
        lines |= dict(zip(labels, handles, strict=True))
    wide = max(2.2, 0.5 + 0.075 * max(map(len, lines), default=0))  # inches of the longest
    picture.legend(
        list(lines.values()),
        list(lines),
        loc="outside lower center",
        ncols=max(1, min(len(lines), int(picture.get_figwidth() / wide))),
        frameon=False,
    )


def _line(
    ax: Axes, t: Any, values: Matrix, i: int, label: str, band: bool = True, **style: Any
) -> None:
    every = {"label": label, "markevery": (2 * i, max(len(t) // 6, 1))}
    drawn = plots.line_style(i, marker=4) | every | style
    plots.mean_line(ax, t, bands(values), drawn, alpha=0.15 if band else 0.0)


def _dynamics(ax: Axes, curves: Curves, best: Any, labels: tuple[str, ...] | None) -> None:
    drawn = labels or tuple(curves.runs)
    for label in drawn:
        i = _place(label, curves.runs)
        _line(ax, curves.t, curves.over_time(label), i, label, band=len(drawn) <= _BANDS)
    if best is not None:
        plots.best_line(ax, best)
    _time(ax, curves)
    ax.set_xlabel("round")
    ax.set_ylabel("f of the average expected reward")


def _time(ax: Axes, curves: Curves) -> None:
    """A logarithmic axis; the first rounds, which are noise, do not set the scale of the rest."""
    first = 10.0 if curves.t[-1] > 1e3 else 1.0
    ax.set_xscale("log")
    ax.set_xlim(first, curves.t[-1])
    lines = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    curved = [line for line in lines if len(line) == len(curves.t)]  # not the best possible
    shown = np.array(curved)[:, curves.t >= 3.0 * first]
    low, high = float(np.quantile(shown, 0.005)), float(shown.max())
    ax.set_ylim(low - 0.05 * (high - low), high + 0.08 * (high - low))


def _objectives(row: Any, name: str, curves: Curves, best: Any) -> None:
    measured: Any = Experiment.of(STUDIES[name].text).spec.objective
    beta = float(measured["beta"])
    quantities: dict[str, Callable[[str], Matrix]] = {
        "user objective": lambda label: curves.over_time(label, "utility"),
        "item objective": lambda label: (
            (curves.over_time(label) - curves.over_time(label, "utility")) / beta
        ),
        f"f = user + {beta:g} item": curves.over_time,
    }
    for ax, (quantity, of) in zip(row[:3], quantities.items(), strict=True):
        for label in curves.runs:
            _line(ax, curves.t, of(label), _place(label, curves.runs), label)
        _time(ax, curves)
        ax.set_title(quantity, loc="left", fontsize=10)
        plots.open_frame(ax)
    row[0].set_ylabel(STUDIES[name].title, fontsize=10)  # the row shares it
    if best is not None:
        plots.best_line(row[2], float(np.mean(best)))
        _gap(row[3], curves, best, None)
        row[3].set_title("f of the best possible - f", loc="left", fontsize=10)
        row[3].set_ylabel("")
        row[3].set_xlabel("")
        plots.open_frame(row[3])


def _trade_off(ax: Axes, curves: Curves, best: Any, labels: Any) -> None:
    drawn = []
    for policy, place in ((FAIR, (5, 5)), (FLOOR, (6, -6))):
        i = _STYLES[policy]
        settings, gini, utility = points(curves, policy)
        means = np.stack([gini.mean(axis=0), utility.mean(axis=0)], axis=1)
        across, up = (np.array([interval(x) for x in each.T]) for each in (gini, utility))
        style = plots.line_style(i, marker=6) | {"linestyle": "", "label": policy, "capsize": 2}
        xerr, yerr = np.abs(across[:, 1:].T - across[:, 0]), up[:, 2] - up[:, 0]
        xerr[0] = np.minimum(xerr[0], means[:, 0])  # no Gini index is below 0
        ax.errorbar(means[:, 0], means[:, 1], xerr=xerr, yerr=yerr, **style)
        drawn.append((means, tuple(settings), plots.COLOURS[i], place))
    if best is not None:
        ax.plot(*np.asarray(best).T, color="0.35", linewidth=1.0, label="best possible")
    ax.margins(0.08)
    wide = float(np.diff(ax.get_xlim())[0])
    for means, chosen, colour, place in drawn:  # when the axes have their final size
        for a, b in pairwise(means.tolist()):
            if abs(b[0] - a[0]) <= _GAP * wide:  # nothing is known between points far apart
                ax.plot([a[0], b[0]], [a[1], b[1]], color=colour, linewidth=0.8)
        label_points(ax, means, chosen, colour, place)
    ax.set_xlabel("inequality of exposure (Gini index)")
    ax.set_ylabel("user utility (clicks a ranking)")


def _redistribution(ax: Axes, curves: Curves, best: Any, labels: Any) -> None:
    """Utility and Gini index by the one parameter of the grid."""
    settings = {float(label.partition("=")[2]): label for label in curves.runs}
    order = sorted(settings)
    name = next(iter(curves.runs)).rpartition(" ")[2].partition("=")[0]
    beside = ax.twinx()
    for axes, quantity, i in ((ax, "utility", 0), (beside, "gini", 1)):
        found = [interval(curves.at(settings[x], quantity=quantity)) for x in order]
        _intervals(axes, order, found, i, label=_QUANTITY[quantity], linestyle=plots.LINES[i])
        axes.set_ylabel(_QUANTITY[quantity])
    ax.set_xlabel(name)
    if name == "beta":
        ax.set_xscale("log")


_QUANTITY = {
    "utility": "user utility (clicks a ranking)",
    "gini": "inequality of exposure (Gini index)",
}


def _regret(ax: Axes, curves: Curves, best: Any, labels: Any) -> None:
    """R_T = f* - f(observed averages), with the rate of the theory and the bounds."""
    late = curves.t >= 100
    t, tops, bounds = curves.t[late], np.reshape(best["tops"], (-1, 1)), best["bounds"]
    observed = curves.observed()
    first = 0.0
    for label in curves.runs:
        gaps, i = tops - observed.over_time(label)[:, late], _place(label, curves.runs)
        # The interval of a mean near 0 has no lower end on a logarithmic axis.
        _line(ax, t, np.maximum(gaps.mean(axis=0)[None], 1e-6), i, f"R_T of {label}", band=False)
        first = max(first, float(gaps[:, 0].mean()))
        if label in bounds:
            style = plots.line_style(i) | {"linestyle": ":", "linewidth": 1.0}
            ax.plot(t, bounds[label](t), label=f"bound of {label}, 95 % sure", **style)
    rate = np.log(t) / np.sqrt(t)
    ax.plot(t, first * rate / rate[0], color="0.35", linewidth=1.0, label="ln(t)/sqrt(t)")
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(bottom=1e-5)
    ax.set_xlabel("round")
    ax.set_ylabel("regret R_T")


def _gap(ax: Axes, curves: Curves, best: Any, labels: tuple[str, ...] | None) -> None:
    """f* - f, where curves of f lie upon each other."""
    drawn = labels or tuple(curves.runs)
    late = curves.t >= min(10.0, curves.t[-1] / 10.0)
    for label in drawn:
        gaps = np.reshape(best, (-1, 1)) - curves.over_time(label)[:, late]
        i = _place(label, curves.runs)
        band = len(drawn) <= _BANDS
        _line(ax, curves.t[late], np.maximum(gaps, 1e-6), i, label, band=band)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("round")
    ax.set_ylabel("f of the best possible - f")


def _distance(ax: Axes, curves: Curves, best: Any, labels: Any) -> None:
    """How far below the best possible; the paper's own curves are black."""
    late = curves.t >= _SETTLED
    t, added = curves.t[late], 0
    for i, label in enumerate(curves.runs):
        style: dict[str, Any] = {"color": "black", "linestyle": "-", "linewidth": 2.0}
        if paper_curve(label) != label:
            style = {"color": _ADDED[added], "linestyle": plots.LINES[1 + added]}
            added += 1
        gaps = np.asarray(best)[:, None] - curves.over_time(label)[:, late]
        _line(ax, t, gaps, i, label, band=len(curves.runs) <= _BANDS, **style)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel("round")
    ax.set_ylabel("f of the best possible - f")


def _sweep(ax: Axes, curves: Curves, best: Any, labels: Any) -> None:
    """f at the horizon by the one parameter of the grid."""
    settings = {float(label.partition("=")[2]): label for label in curves.runs}
    order = sorted(settings)
    name = next(iter(curves.runs)).rpartition(" ")[2].partition("=")[0]
    _intervals(ax, order, [interval(curves.at(settings[x])) for x in order], 0, label=FAIR)
    ax.set_xscale("symlog" if order[0] == 0.0 else "log")
    ax.set_xlabel(name)
    ax.set_ylabel("f at the horizon")
    if best is not None:
        plots.best_line(ax, best)


_PANELS = {
    "dynamics": _dynamics,
    "trade-off": _trade_off,
    "regret": _regret,
    "gap": _gap,
    "redistribution": _redistribution,
    "sweep": _sweep,
    "distance": _distance,
}
