"""How lines are distinguished, with and without colours, and what follows a dark page."""

from __future__ import annotations

from typing import Any

__all__ = ["COLOURS", "LINES", "MARKERS", "THEME", "look"]

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


def look(i: int, n: int = 1, marker: float | None = None) -> dict[str, Any]:
    """Colour and dashes of line i of n; a marker where there are more than 7, or of that size.

    >>> look(1)
    {'color': '#D55E00', 'linestyle': '--'}
    """
    style: dict[str, Any] = {
        "color": COLOURS[i % len(COLOURS)],
        "linestyle": LINES[i % len(LINES)],
    }
    if n > _PLAIN or marker is not None:
        style |= {"marker": MARKERS[i % len(MARKERS)], "markersize": marker or 4.5}
    return style
