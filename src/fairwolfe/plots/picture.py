"""Figures, and how they are saved: as PNG, as SVG, and inside a page."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairwolfe.errors import InvalidInput, require_extra

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "new_figure", "save"]


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
