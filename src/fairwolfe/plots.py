"""What all figures share: styles of lines, axes, means with bands, files, and SVG for pages."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.errors import InvalidInput, require_extra

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


# Okabe and Ito's colours, distinct for the colour-blind; line styles distinguish them in grey.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C5A2B")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 1)), (0, (8, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
THEME = {
    "#595959": "currentColor",
    "#666666": "currentColor",
    "#999999": "currentColor",
    "#d1d1d1": "var(--line)",
    "#d9d9d9": "var(--line)",
    COLOURS[0].lower(): "var(--link)",
}
"""Greys and blue, and what they are on a page that may be dark."""
_PLAIN = 7  # as many lines are distinct by colour and dashes alone


def line_style(i: int, n: int = 1, marker: float | None = None) -> dict[str, Any]:
    """Colour and dashes of line i of n; a marker where there are more than 7, or of that size.

    >>> line_style(1)
    {'color': '#D55E00', 'linestyle': '--'}
    """
    style: dict[str, Any] = {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": LINES[i % len(LINES)],
    }
    if n > _PLAIN or marker is not None:
        style |= {"marker": MARKERS[i % len(MARKERS)], "markersize": marker or 4.5}
    return style


def new_figure(width: float = 7.0, height: float = 4.2, layout: Any = "constrained") -> Figure:
    """A figure outside of pyplot, so that nothing depends on a screen; sizes in inches."""
    require_extra("plot", "a figure", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def save(figure: Figure, folder: Path, name: str, dpi: int = 160) -> list[Path]:
    """As PNG and as SVG, whose letters are drawn."""
    return _write(figure, folder, name, dpi, lambda: _svg(figure, name))


def _write(
    figure: Figure, folder: Path, name: str, dpi: int, drawn: Callable[[], str]
) -> list[Path]:
    png, svg = (folder / f"{name}.{kind}" for kind in ("png", "svg"))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        figure.savefig(png, dpi=dpi)
        svg.write_text(drawn(), encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            f"{folder} cannot be written ({error.strerror}); choose another folder"
        ) from error
    return [png, svg]


def _svg(figure: Figure, name: str, fonts: str = "path", **options: Any) -> str:
    """Two runs give the same bytes."""
    import matplotlib as mpl

    text = io.StringIO()
    with mpl.rc_context({"svg.fonttype": fonts, "svg.hashsalt": name}):
        figure.savefig(text, format="svg", metadata={"Date": None}, **options)
    return text.getvalue()


@dataclass(frozen=True, eq=False)
class Picture:
    """A figure, a file name for it, and what it shows in words for those who cannot see it."""

    name: str
    caption: str
    alt: str
    figure: Figure
    theme: Mapping[str, str] = field(default_factory=dict)
    """Colours, and what they are inside a page."""

    def save(self, folder: Path) -> list[Path]:
        """As PNG and as SVG."""
        return _write(self.figure, folder, self.name, 160, lambda: self.svg)

    @cached_property
    def svg(self) -> str:
        """Text stays text."""
        return _svg(self.figure, self.name, "none", transparent=True)

    def inline(self) -> str:
        """The SVG element alone, for a page, with its words: its ids are its own, its black is the
        page's ink.
        """
        svg = re.sub(r"<metadata>.*?</metadata>", "", self.svg, flags=re.DOTALL)
        svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{self.name}-", svg)
        for colour, ink in {"#000000": "currentColor", **self.theme}.items():
            svg = svg.replace(colour, ink)
        attributes, _, content = svg.partition("<svg")[2].partition(">")
        words = f"{escape(self.name)}-alt"
        return (
            f'<svg role="img" aria-labelledby="{words}"{attributes}>'
            f'<title id="{words}">{escape(self.alt)}</title>{content}'
        )


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
