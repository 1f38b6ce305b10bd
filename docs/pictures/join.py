"""Draws join.svg for join.md: ``python docs/pictures/join.py``.

Four decisions, their windows as bars, and what comes for them. It has a background of its own, and
colours for both schemes of a browser.
"""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """A decision: when it was made, what comes and when (after that, as parts of the window), and
    what is learnt at the close.
    """

    made: float
    comes: tuple[tuple[float, str, str], ...]  # (when, kind, words)
    learnt: str


ROWS = (
    Row(
        0.0,
        ((0.2, "part", "exposed a, b"), (0.55, "part", "clicked a")),
        "exposed a, b; click on a",
    ),
    Row(
        0.12,
        ((0.3, "part", "clicks 1"), (0.66, "same", "clicks 1 again: known")),
        "clicks 1, the rest 0",
    ),
    Row(
        0.24, ((0.5, "part", "clicks 0"), (1.18, "late", "minutes 3: late")), "clicks 0, the rest 0"
    ),
    Row(0.36, (), "nothing came: zero or skip"),
)
WINDOW = 300.0  # pixels
WIDTH, LEFT, TOP, STEP = 720, 120, 46, 74

STYLE = """
svg { --ink: #1b1b1b; --soft: #4a4a4a; --paper: #ffffff; --line: #8a8a8a; --tint: #dcebf7;
  --mark: #00508a; --late: #a33a00; }
@media (prefers-color-scheme: dark) { svg { --ink: #ececec; --soft: #c4c4c4; --paper: #161616;
  --line: #7a7a7a; --tint: #16324a; --mark: #8cc8ff; --late: #ffb08a; } }
text { fill: var(--ink); font: 13px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.soft { fill: var(--soft); font-size: 12px; }
.paper { fill: var(--paper); }
.window { fill: var(--tint); stroke: var(--line); }
.part { fill: var(--mark); }
.same { fill: none; stroke: var(--mark); stroke-width: 2; }
.late { fill: var(--late); }
.close { stroke: var(--ink); stroke-width: 2.5; }
.axis { stroke: var(--line); }
"""


def drawn() -> str:
    """The picture."""
    height = TOP + STEP * len(ROWS) + 30
    shapes = [f'<rect width="{WIDTH}" height="{height}" class="paper"/>']
    shapes.append(_text(LEFT, 24, "time that the service is up, from left to right"))
    for number, row in enumerate(ROWS):
        y = TOP + STEP * number
        start = LEFT + WINDOW * row.made
        end = start + WINDOW
        shapes.append(_text(12, y + 19, f"decision {number}"))
        shapes.append(
            f'<rect x="{start:g}" y="{y}" width="{WINDOW:g}" height="28" class="window"/>'
        )
        shapes.append(_line(end, y - 6, end, y + 34, "close"))
        for when, kind, words in row.comes:
            x = start + WINDOW * when
            shapes.append(f'<circle cx="{x:g}" cy="{y + 14}" r="6" class="{kind}"/>')
            shapes.append(_text(x - 6, y + 44, words, "soft"))
        if row.comes and row.comes[-1][1] == "late":
            shapes.append(_text(end + 8, y - 2, row.learnt, "soft"))
        else:
            shapes.append(_text(end + 8, y + 19, row.learnt, "soft"))
    y = TOP + STEP * len(ROWS) + 4
    shapes.append(_line(LEFT, y, WIDTH - 12, y, "axis"))
    shapes.append(
        _text(
            LEFT, y + 18, "bar: window; upright line: the close, where all of it is learnt", "soft"
        )
    )
    body = "\n".join(shapes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">\n'
        f"<title>Decisions, their windows, and what is learnt at the close</title>\n"
        f"<style>{STYLE}</style>\n{body}\n</svg>\n"
    )


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:g}" y="{y:g}"{named}>{escape(words)}</text>'


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    return f'<line x1="{x:g}" y1="{y:g}" x2="{to_x:g}" y2="{to_y:g}" class="{kind}"/>'


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(drawn(), encoding="utf-8")
