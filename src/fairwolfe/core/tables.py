"""Results as tables: printed, in notebooks, and as frames of pandas, polars or Arrow."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from html import escape
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.errors import InvalidInput, did_you_mean, require_extra

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


_MAKERS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}


def frame_of(columns: Mapping[str, Any], backend: str = "pandas") -> Any:
    """Columns of equal length as a DataFrame of pandas or polars, or a Table of pyarrow.

    >>> frame_of({"t": [1, 2]}, "pyarrow").column_names
    ['t']
    """
    if backend not in _MAKERS:
        raise InvalidInput(f"backend is {backend!r}; {did_you_mean(backend, _MAKERS)}")
    extra = "plot" if backend == "pandas" else "integrations"
    require_extra(extra, f"a table of {backend}", backend)
    return getattr(import_module(backend), _MAKERS[backend])(dict(columns))


def table_of(rows: Iterable[Mapping[str, Any]], backend: str = "pandas") -> Any:
    """Rows by name as such a table; what a row lacks is None."""
    listed = list(rows)
    titles = dict.fromkeys(title for row in listed for title in row)
    return frame_of({title: [row.get(title) for row in listed] for title in titles}, backend)


def is_frame(given: Any) -> bool:
    """Whether it is a table with columns, of whatever library: all of them hand over Arrow."""
    return hasattr(given, "__arrow_c_stream__") and hasattr(given, "columns")


def opened(table: Any) -> Any:
    """A table of pandas, polars or Arrow as narwhals has it."""
    require_extra("integrations", "a table in memory", "narwhals")
    import narwhals

    try:
        return narwhals.from_native(table, eager_only=True)
    except TypeError as error:
        raise InvalidInput(
            f"a {type(table).__name__} is not a table that can be read; give a DataFrame of "
            "pandas or polars, or a pyarrow Table"
        ) from error
    except narwhals.exceptions.DuplicateError as error:
        raise InvalidInput(
            f"the table has two columns of one name: {error}; give each its own"
        ) from error


def numbers_of(what: str, frame: Any) -> NDArray[np.float64]:
    """The numbers of a table, a row for each of its rows; missing ones are NaN."""
    table = opened(frame)
    import narwhals

    for name, kind in table.schema.items():
        if not (kind.is_numeric() or kind == narwhals.Boolean):
            raise InvalidInput(
                f"{what} is a table whose column {name!r} has the type {kind}; rows are arms and "
                "columns are numbers, so turn texts and dates into numbers, with fw.features"
            )
    numbers = table.select(narwhals.all().cast(narwhals.Float64)).to_numpy()
    return np.ascontiguousarray(numbers, dtype=np.float64)


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """The rows of a table, by column; what is missing is None."""
    rows = opened(frame).iter_rows(named=True)
    return [
        {name: None if _is_nan(value) else value for name, value in row.items()} for row in rows
    ]


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def interval(values: Vector) -> tuple[float, float, float]:
    """Mean and 95 % interval (Student's t) of a sample.

    >>> interval(np.array([1.0]))
    (1.0, 1.0, 1.0)
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, mean, mean
    from scipy.special import stdtrit

    half = float(stdtrit(len(values) - 1, 0.975) * np.std(values, ddof=1) / np.sqrt(len(values)))
    return mean, mean - half, mean + half


def bands(values: Matrix) -> Matrix:
    """The mean over rows and its interval, three numbers for each column: (columns, 3)."""
    return np.array([interval(column) for column in values.T]).reshape(-1, 3)
