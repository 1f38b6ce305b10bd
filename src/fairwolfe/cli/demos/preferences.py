"""What each objective prefers: one set of reachable averages, many functions of them.

Two rewards, clicks and minutes, can be traded against each other. The set S of averages that can
be reached is known by its support function: the best vertex for a direction. One compiled loop,
`frank_wolfe`, takes any objective as data (the address of its gradient and an array of parameters)
and walks to the point of S that it prefers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput, require_extra
from fairwolfe.kernels.mixtures import frank_wolfe
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    Concave,
    Custom,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    PerMerit,
    Welfare,
)
from fairwolfe.plots import new_figure, save
from fairwolfe.smoothing import Moreau, Randomized, default_smoothing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


REWARDS = ("clicks", "minutes")
PROBLEM = Problem.arms(1, dict.fromkeys(REWARDS, (0.0, 1.0)))
START = (0.10, 0.08)
STEPS = 40_000


@cache
def reachable() -> Matrix:
    """The vertices of S, counter-clockwise.

    Clicks are easier to get than minutes; the frontier is curved first and flat at its end.
    """
    from scipy.spatial import ConvexHull

    angle = np.deg2rad(np.concatenate([np.arange(28.0, 82.0, 0.2), [5.0]]))
    frontier = np.stack([0.10 + 0.85 * np.cos(angle), 0.06 + 0.61 * np.sin(angle)], axis=1)
    points = np.concatenate([frontier, [START, (0.06, 0.50), (0.90, 0.06)]])
    return np.ascontiguousarray(points[ConvexHull(points).vertices])


class Panel(NamedTuple):
    """One objective: its name, what it says in plain words, and the function."""

    name: str
    words: str
    objective: Concave


@cache
def panels() -> tuple[Panel, ...]:
    """What the picture shows, from no fairness to the reader's own function."""
    total = Linear({"clicks": 1.0, "minutes": 1.0})
    given = (
        Panel("Linear", "only the total counts", total),
        Panel("GeneralizedGini", "the worse reward weighs 5 to 4", GeneralizedGini([1.0, 0.8])),
        Panel("GiniWelfare", "the worse reward weighs double", GiniWelfare()),
        Panel("Minimum", "only the worse reward counts", Minimum()),
        Panel(
            "EqualExposure + Linear",
            "total, minus a little for the gap",
            0.7 * EqualExposure() + total,
        ),
        Panel(
            "GiniEquality + Linear",
            "total, minus a lot for the gap",
            2.0 * GiniEquality() + total,
        ),
        Panel("Welfare(0.5)", "each further bit counts less", Welfare(0.5)),
        Panel("Nash", "percentages count, not units", Nash()),
        Panel(
            "AtLeast + Linear",
            "total, with at least 0.63 minutes",
            AtLeast({"minutes": 0.63}, penalty=5.0) + total,
        ),
        Panel(
            "AtMost + Linear",
            "total, with at most 0.5 clicks",
            AtMost({"clicks": 0.5}, penalty=5.0) + total,
        ),
        Panel("PerMerit(Minimum)", "three clicks for each minute", PerMerit(Minimum(), [3.0, 1.0])),
        Panel("Custom", "your own: close to a target (+)", Custom(_near, _nearer, smooth=True)),
    )
    return tuple(panel._replace(objective=panel.objective.bind(PROBLEM)) for panel in given)


TARGET = (0.25, 0.85)


def _near(z: Vector) -> float:
    return -float((z[0] - TARGET[0]) ** 2 + (z[1] - TARGET[1]) ** 2)


def _nearer(z: Vector) -> Vector:
    slope: Vector = -2.0 * (z - np.array(TARGET))
    return slope


class Walk(NamedTuple):
    """The averages that the iteration went through on its way to the preferred one."""

    panel: Panel
    path: Matrix

    @property
    def point(self) -> Vector:
        last: Vector = self.path[-1]
        return last

    @property
    def value(self) -> float:
        return self.panel.objective.value(self.point)

    def row(self) -> dict[str, str | float]:
        """One line of a table."""
        name, words, _ = self.panel
        return {
            "objective": name,
            "words": words,
            **dict(zip(REWARDS, self.point.tolist(), strict=True)),
            "value": self.value,
        }


def walk(panel: Panel, steps: int = STEPS) -> Walk:
    """Walk to the point of S that an objective prefers, smoothed as by default."""
    objective = panel.objective
    if objective.constrained:
        raise InvalidInput(
            f"{objective} has hard constraints, and the picture follows gradients without prices; "
            "give them a penalty"
        )
    n = PROBLEM.n_objectives
    smoothing = default_smoothing(objective, n).bind(PROBLEM, objective)
    if isinstance(smoothing, Randomized):
        raise InvalidInput(
            f"{objective} is neither smooth nor has it a proximal map; the picture draws no samples"
        )
    width = smoothing.step(objective, n, 0) if isinstance(smoothing, Moreau) else 0.0
    path = np.empty((steps + 1, n))
    path[0] = START
    frank_wolfe(objective.tree(n), width, reachable(), path)
    return Walk(panel, path)


def walks() -> Iterator[Walk]:
    """The walks of all panels, one at a time."""
    return map(walk, panels())


# --- the picture -----------------------------------------------------------------------------


# Blue for what is wanted, grey for what is possible, orange for what is chosen: these differ in
# lightness too, so that the picture survives a grey printer and every kind of colour vision.
_WANTED = "#0b5c94"
_POSSIBLE = "#e9e7e2"
_EDGE = "#4a4a4a"
_CHOSEN = "#e0620d"
_EQUAL = "#8a8a8a"
_DOTTED = (0, (1, 2.5))
_COLUMNS = 4
_GRID = 101
_LINES = 9


def draw(routes: Sequence[Walk], folder: Path) -> list[Path]:
    """Write objectives.png and objectives.svg into a folder."""
    require_extra("plot", "a figure", "matplotlib")
    from matplotlib import rc_context

    with rc_context({"font.family": "sans-serif", "font.size": 9.5, "axes.linewidth": 0.0}):
        return save(picture(routes), folder, "objectives", dpi=180)


def picture(routes: Sequence[Walk]) -> Figure:
    """Small multiples: what can be reached, what is wanted, what is chosen."""
    rows = -(-len(routes) // _COLUMNS)
    figure = new_figure(2.9 * _COLUMNS, 3.2 * rows + 1.4, layout=None)
    axes = figure.subplots(rows, _COLUMNS, squeeze=False, sharex=True, sharey=True)
    figure.subplots_adjust(0.06, 0.06, 0.985, 0.845, wspace=0.12, hspace=0.36)
    for place, one in zip(axes.flat, routes, strict=False):
        _panel(place, one, routes[0].point)
    for place in axes.flat[len(routes) :]:
        place.set_visible(False)
    for place in axes[-1]:
        place.set_xlabel(REWARDS[0])
    for place in axes[:, 0]:
        place.set_ylabel(REWARDS[1])
    figure.text(0.06, 0.975, "What each objective prefers", size=19, weight="bold", va="top")
    _legend(figure)
    return figure


def _panel(place: Axes, one: Walk, plain: Vector) -> None:
    from matplotlib.patches import Polygon

    name, words, objective = one.panel
    corners = reachable()
    x, values = _surface(objective)
    levels, colours = _levels(one)
    possible = place.add_patch(Polygon(corners, fc=_POSSIBLE, ec="none", zorder=0))
    place.plot([0, 1], [0, 1], color=_EQUAL, lw=1.0, ls=_DOTTED, zorder=1)
    for clip, alpha in ((None, 0.3), (possible, 1.0)):
        lines = place.contour(
            x, x, values, levels, colors=colours, linewidths=0.8, linestyles="solid", alpha=alpha
        )
        lines.set_clip_path(clip)
    place.contour(x, x, values, [one.value], colors=[_WANTED], linewidths=2.2, linestyles="solid")
    place.add_patch(Polygon(corners, fc="none", ec=_EDGE, lw=1.0, zorder=3))
    # Steps shrink like 1/t: later ones are thinned out, as they could not be distinguished.
    shown = np.unique(np.geomspace(1, len(one.path), 600).astype(int)) - 1
    for colour, width in (("white", 3.0), (_CHOSEN, 1.5)):
        place.plot(*one.path[shown].T, color=colour, lw=width, zorder=4, solid_joinstyle="round")
    place.plot(*one.path[0], "o", ms=5, mfc="white", mec=_CHOSEN, mew=1.4, zorder=5)
    place.plot(*plain, "D", ms=5, mfc="white", mec=_EDGE, mew=1.0, zorder=5)
    place.plot(*one.point, "o", ms=10, mfc=_CHOSEN, mec="white", mew=1.6, zorder=6)
    if isinstance(objective, Custom):
        place.plot(*TARGET, "+", ms=9, mec=_WANTED, mew=2.0, zorder=5)
    place.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xticks=[0, 0.5, 1], yticks=[0, 0.5, 1])
    place.tick_params(length=0, labelcolor="#555555")
    place.set_title(name, loc="left", size=11.5, weight="bold", pad=18)
    place.text(0, 1.035, words, transform=place.transAxes, color="#444444")


def _surface(objective: Concave) -> tuple[Vector, Matrix]:
    x = np.linspace(0.0, 1.0, _GRID)
    values = np.array([[objective._value(np.array([a, b])) for a in x] for b in x])
    values[~np.isfinite(values)] = values[np.isfinite(values)].min()  # the edge of a domain
    return x, values


def _levels(one: Walk) -> tuple[Vector, list[str]]:
    """The values met at equal steps from start to choice, and as many above; darker is better."""
    from matplotlib.colors import LinearSegmentedColormap, to_hex

    start = one.path[0]
    shares = np.arange(_LINES) / _LINES
    steps = [one.panel.objective.value(start + s * (one.point - start)) for s in shares]
    missing = np.unique(one.value - np.array(steps))  # ascending, all > 0
    missing = missing[missing > 0.0]
    levels = np.concatenate([one.value - missing[::-1], one.value + missing])
    shades = LinearSegmentedColormap.from_list("wanted", ["#c3dcec", _WANTED])
    return levels, [to_hex(shades(s)) for s in np.linspace(0.0, 1.0, levels.size)]


def _legend(figure: Figure) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    dot: dict[str, Any] = {"marker": "o", "ls": "none", "mec": _CHOSEN}
    diamond: dict[str, Any] = {"marker": "D", "ls": "none", "mec": _EDGE, "mfc": "white"}
    figure.legend(
        handles=[
            Patch(fc=_POSSIBLE, ec=_EDGE, label="within reach"),
            Line2D([], [], color=_WANTED, lw=0.8, label="equally good"),
            Line2D([], [], color=_WANTED, lw=2.2, label="best level within reach"),
            Line2D([], [], **dot, ms=5, mfc="white", mew=1.4, label="start"),
            Line2D([], [], color=_CHOSEN, lw=1.5, label="Frank-Wolfe's way"),
            Line2D([], [], **dot, ms=9, mfc=_CHOSEN, label="choice"),
            Line2D([], [], **diamond, ms=5, label="choice of Linear"),
            Line2D([], [], color=_EQUAL, lw=1.0, ls=_DOTTED, label="both equal"),
        ],
        loc="upper left",
        bbox_to_anchor=(0.052, 0.945),
        ncols=8,
        frameon=False,
        handlelength=1.5,
        columnspacing=1.5,
        handletextpad=0.5,
    )
