"""Data frames in and out: pandas, polars and Arrow.

What comes in is read through narwhals, which knows all three. What goes out is a table of columns,
which each of them takes as it is.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairwolfe.errors import InvalidInput, did_you_mean, require_extra

__all__ = ["frame_of", "is_frame", "numbers_of", "opened", "rows_of", "table_of"]

_MAKERS = {"pandas": "DataFrame", "polars": "DataFrame", "pyarrow": "table"}


def frame_of(columns: Mapping[str, Any], backend: str = "pandas") -> Any:
    """Columns of equal length as a DataFrame of pandas or polars, or a Table of pyarrow.

    >>> frame_of({"t": [1, 2]}, "pyarrow").column_names
    ['t']
    """
    if backend not in _MAKERS:
        raise InvalidInput(f"backend is {backend!r}; {did_you_mean(backend, _MAKERS)}")
    extra = "plot" if backend == "pandas" else "frames"
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
    require_extra("frames", "a table in memory", "narwhals")
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
