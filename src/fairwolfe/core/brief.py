"""`Brief`: how results print, a few lines of text, and a small table in a notebook."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from html import escape
from typing import NamedTuple

__all__ = ["Brief", "Summary", "count", "few", "short"]

_LINES = 6  # rows of a printed table
_ROWS = 20  # rows of one in a notebook
_CELL = 60  # characters of a cell
_STYLE = "text-align: left; padding: 0.15em 1em 0.15em 0; font-variant-numeric: tabular-nums"
_CAPTION = "caption-side: top; text-align: left; color: inherit; white-space: nowrap"


class Summary(NamedTuple):
    """A short summary: a title and a table, whose first column names what is beside it."""

    title: str
    rows: Iterable[tuple[str, ...]]
    header: tuple[str, ...] = ()


class Brief:
    """A result that prints its summary; no colours, so that it fits light and dark pages."""

    __slots__ = ()

    @abstractmethod
    def summary(self, most: int) -> Summary:
        """With at most `most` rows of what there may be many of."""

    def __repr__(self) -> str:
        title, rows, header = self.summary(_LINES)
        cells = [[short(cell) for cell in row] for row in (header, *rows) if row]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in cells
        ]
        return "\n  ".join([f"{type(self).__name__}: {title}", *lines])

    def _repr_html_(self) -> str:
        title, rows, header = self.summary(_ROWS)
        head = "".join(f'<th scope="col" style="{_STYLE}">{escape(c)}</th>' for c in header)
        body = (
            f'<tr><th scope="row" style="{_STYLE}">{escape(short(first))}</th>'
            + "".join(f'<td style="{_STYLE}">{escape(short(cell))}</td>' for cell in rest)
            + "</tr>"
            for first, *rest in rows
        )
        return (
            '<table style="border-collapse: collapse">'
            f'<caption style="{_CAPTION}">'
            f"<strong>{type(self).__name__}</strong>: {escape(title)}</caption>"
            + (f"<thead><tr>{head}</tr></thead>" if header else "")
            + f"<tbody>{''.join(body)}</tbody></table>"
        )


def short(text: object, most: int = _CELL) -> str:
    """Text in one line, cut where it is long.

    >>> short("one  or" + chr(10) + "two words", 12)
    'one or tw...'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= most else f"{line[: most - 3]}..."


def count(n: int, one: str, several: str = "") -> str:
    """How many there are.

    >>> count(1, "seed"), count(2000, "seed"), count(0, "policy", "policies")
    ('1 seed', '2,000 seeds', '0 policies')
    """
    return f"{n:,} {one if n == 1 else several or one + 's'}"


def few(values: Iterable[object], most: int = 6) -> str:
    """The first of several, and how many there are.

    >>> few(range(100), 3)
    '0, 1, 2, ... (100)'
    """
    listed = list(values)
    first = ", ".join(map(str, listed[:most]))
    return first if len(listed) <= most else f"{first}, ... ({len(listed):,})"
