"""Tables of plays: CSV, TSV and Parquet files in batches, sheets, and tables in memory."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TextIO

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.data.columns import Columns, choose
from fairwolfe.data.plays import LARGEST, Plays, wrong_count, wrong_id
from fairwolfe.data.sheet import Sheet, is_sheet
from fairwolfe.errors import InvalidInput, MissingData, require_extra

__all__ = ["Names", "header_of", "kind_of", "read_file", "read_memory", "read_pairs"]

_BLOCK = 1 << 22  # bytes of a text file that are parsed together
_BATCH = 1 << 17  # rows of a Parquet file
_PENDING = 1 << 20  # rows that wait for equal pairs to be summed: 24 MB
_COLUMNS = ["user", "item", "count"]
_LONGEST = 1 << 20  # characters of a header
_SEPARATORS = ("\t", ",", ";", "|")
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_SURROGATE = re.compile("[\ud800-\udfff]")  # a byte that is not UTF-8, as `open` escapes it

Names = tuple[str | None, str | None, str | None]  # of the columns user, item, count


class _Bad(Exception):
    """A batch has a row that cannot be used: how many rows came before the batch, and the batch."""


def kind_of(path: str) -> str:
    """What a file is by its first bytes: "text" (also packed with gzip), "parquet" or "sheet"."""
    try:
        with open(path, "rb") as file:
            start = file.read(4)
    except FileNotFoundError as error:
        raise MissingData(f"there is no file {path}; give the path of a table") from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error
    if not start:
        raise InvalidInput(f"{path} is empty; give a header and at least one row")
    if start == b"PAR1":
        return "parquet"
    if start == b"PK\x03\x04":
        if not is_sheet(path):
            raise InvalidInput(f"{path} is compressed; unpack it, and give the table itself")
        return "sheet"
    return "text"


def read_file(path: str, names: Names) -> Plays:
    """The plays of a CSV, TSV, Parquet or Excel file, with columns of these names.

    Text may be packed with gzip.
    """
    return {"parquet": _parquet, "sheet": _sheet, "text": _text}[kind_of(path)](path, names)


def header_of(path: str) -> list[str]:
    """The titles of the columns of a file."""
    kind = kind_of(path)
    if kind == "sheet":
        return Sheet(path).header
    if kind == "text":
        return _titles(path)[1]
    arrow = _arrow()
    from pyarrow import parquet

    try:
        titles: list[str] = parquet.read_schema(path).names
    except (arrow.ArrowException, OSError) as error:
        raise _not_parquet(path, error) from error
    return titles


def read_pairs(path: str, one: str, other: str) -> set[tuple[str, str]]:
    """The different pairs of values of two columns of a file, as texts."""
    kind = kind_of(path)
    if kind == "sheet":
        return set(Sheet(path).pairs(one, other))
    arrow = _arrow()
    from pyarrow import parquet

    if kind == "text":
        separator, header = _titles(path)
        at = [header.index(title) for title in (one, other)]
        whole = _reader(path, separator, len(header), dict.fromkeys(at, arrow.string())).read_all()
    else:
        whole = parquet.read_table(path, columns=[one, other])
        whole = arrow.table([column.cast(arrow.string()) for column in whole.columns], ["0", "1"])
    pairs = whole.group_by(whole.column_names).aggregate([])
    values = ([value or "" for value in column.to_pylist()] for column in pairs.columns)
    return set(zip(*values, strict=True))


def read_memory(table: Any, names: Names) -> Plays:
    """The plays of rows (user, item, count), a mapping of columns, a DataFrame, a pyarrow Table."""
    if hasattr(table, "__arrow_c_stream__"):
        return _frame(table, names)
    if isinstance(table, Mapping):
        return _mapping(table, names)
    if isinstance(table, bytes) or not isinstance(table, Sequence):
        raise InvalidInput(
            f"table is a {type(table).__name__}; give a path, rows (user, item, count), a mapping "
            "of columns, a DataFrame or a pyarrow Table"
        )
    if any(name is not None for name in names):
        raise InvalidInput("rows have no column names; leave out user=, item= and count=")
    return Plays.of(table)


def _mapping(table: Mapping[str, Any], names: Names) -> Plays:
    titles = list(map(str, table))
    if len(titles) < 2:
        raise InvalidInput(f"the table has {len(titles)} columns; give users, items and counts")
    columns = choose("the table", titles, *names)
    values = list(table.values())
    used = [list(values[at]) for at in columns[:3] if at is not None]
    lengths = list(map(len, used))
    if min(lengths) < max(lengths):
        raise InvalidInput(f"the columns have {lengths} values; give as many in each")
    return Plays.of(zip(*used, strict=True), columns.notes)


def _arrow() -> Any:
    require_extra("data", "a world from a table", "pyarrow")
    import pyarrow

    return pyarrow


# --- text --------------------------------------------------------------------------------------


class _Layout(NamedTuple):
    """How a text file, which may be packed, is to be parsed."""

    path: str
    separator: str
    width: int
    columns: Columns


def _text(path: str, names: Names) -> Plays:
    separator, header = _titles(path)
    layout = _Layout(path, separator, len(header), choose(path, header, *names))
    arrow = _arrow()
    try:
        return _parsed(layout)
    except (_Bad, arrow.ArrowException, OSError) as error:
        # The fast parser knows that something is wrong, the plain one knows where.
        _raise_where(layout, str(error))


def _packed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _open(path: str, newline: str | None = None) -> TextIO:
    opened: Any = gzip.open if _packed(path) else open
    file: TextIO = opened(
        path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline=newline
    )
    return file


def _titles(path: str) -> tuple[str, list[str]]:
    """The separator of a text file, and the titles of its columns."""
    # Universal newlines, as pyarrow has them.
    try:
        with _open(path) as file:
            line = file.readline(_LONGEST)
    except (OSError, EOFError, zlib.error) as error:
        raise _spoilt(path, error) from error
    if line.startswith("PAR1"):
        raise InvalidInput(f"{path} is compressed Parquet; unpack it, and give the table itself")
    if _SURROGATE.search(line):
        raise InvalidInput(f"{path}, line 1: the text is not UTF-8; save the file as UTF-8")
    if not line.strip():
        raise InvalidInput(
            f"{path}, line 1: the line is empty; put the names of the columns there, such as "
            "user,item,count"
        )
    split = {s: next(csv.reader([line], delimiter=s)) for s in _SEPARATORS}
    separator = max(split, key=lambda s: len(split[s]))
    header = [title.strip() for title in split[separator]]
    if any("\n" in title for title in split[separator]):
        raise InvalidInput(f"{path}, line 1: a quote is opened and not closed")
    return separator, header


def _spoilt(path: str, error: Exception) -> InvalidInput:
    return InvalidInput(f"{path} cannot be unpacked: {error}; the file is damaged or incomplete")


def _reader(path: str, separator: str, width: int, kinds: Mapping[int, Any]) -> Any:
    """The columns at some places of a text file, in batches; their names are their places."""
    import pyarrow as arrow
    from pyarrow import csv as fast

    return fast.open_csv(
        arrow.input_stream(path, compression="gzip" if _packed(path) else None),
        fast.ReadOptions(
            use_threads=False,
            block_size=_BLOCK,
            column_names=list(map(str, range(width))),
            skip_rows=1,
        ),
        fast.ParseOptions(delimiter=separator, newlines_in_values=True),
        fast.ConvertOptions(
            include_columns=list(map(str, kinds)),
            column_types={str(place): kind for place, kind in kinds.items()},
            null_values=[],
            strings_can_be_null=False,
        ),
    )


def _parsed(layout: _Layout) -> Plays:
    import pyarrow as arrow

    columns = layout.columns
    kinds = {columns.users: arrow.string(), columns.items: arrow.string()}
    if columns.counts is not None:
        kinds[columns.counts] = arrow.float64()
    reader = _reader(layout.path, layout.separator, layout.width, kinds)
    return _summed(reader, columns.notes, text=True)


def _summed(batches: Iterable[Any], notes: tuple[str, ...], *, text: bool = False) -> Plays:
    """The plays of batches of users, items and, where there are any, counts; equal pairs summed.

    Memory: 24 bytes for each different pair, a few times over; no Python object for a row.
    """
    import pyarrow as arrow

    known: tuple[dict[Any, int], dict[Any, int]] = ({}, {})
    parts, waiting, before = [], 0, 0
    for batch in batches:
        try:
            codes = [_codes(*side) for side in zip(known, batch.columns, strict=False)]
            parts.append(arrow.table([*codes, _counts(batch)], _COLUMNS))
        except _Bad as bad:
            raise _Bad(before, batch) from bad
        before, waiting = before + len(batch), waiting + len(batch)
        # As many as are summed already: so that n rows cost O(n log n), however many there are.
        if waiting > max(_PENDING, len(parts[0])):
            parts, waiting = [_grouped(parts)], 0
    if not before:
        raise _Bad(0, None)
    users, items, counts = (column.to_numpy() for column in _grouped(parts).columns)
    ids, others = map(list, known)
    return Plays.of_pairs(ids, others, users, items, counts, notes, text=text)


def _grouped(parts: list[Any]) -> Any:
    import pyarrow as arrow

    # One thread: sums are then always added in the order of the rows.
    groups = arrow.concat_tables(parts).group_by(_COLUMNS[:2], use_threads=False)
    return groups.aggregate([("count", "sum")]).rename_columns(_COLUMNS)


def _codes(known: dict[Any, int], column: Any) -> IntVector:
    """The numbers of a batch of ids; Python sees its different values only."""
    coded = column if hasattr(column, "dictionary") else column.dictionary_encode()
    labels = coded.dictionary.to_pylist()
    if coded.null_count or None in labels or "" in labels:
        raise _Bad
    numbers = np.array([known.setdefault(label, len(known)) for label in labels], np.int64)
    places: IntVector = numbers[coded.indices.to_numpy()]
    return places


def _counts(batch: Any) -> Vector:
    if batch.num_columns < 3:
        return np.ones(len(batch))
    column = batch.column(2)
    if column.null_count:
        raise _Bad
    counts: Vector = column.to_numpy().astype(np.float64)
    if not ((counts >= 0.0) & (counts <= LARGEST)).all():  # NaN fails too
        raise _Bad
    return counts


def _raise_where(layout: _Layout, reason: str) -> NoReturn:
    """Raise with the first line that cannot be used."""
    path, columns = layout.path, layout.columns
    line, rows = 1, 0
    with _open(path, newline="") as file:
        reader = csv.reader(file, delimiter=layout.separator)
        try:
            for row in reader:
                if rows and row and (problem := _wrong_row(row, layout.width, columns)):
                    raise InvalidInput(f"{path}, line {line}: {problem}")
                rows += bool(row)
                line = reader.line_num + 1
        except csv.Error as error:
            raise InvalidInput(
                f"{path}, line {line}: the line cannot be split into columns ({error}); search for "
                "a quote that is opened and not closed"
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise _spoilt(path, error) from error
    if rows <= 1:
        raise InvalidInput(f"{path} has a header and no rows; give at least one")
    raise InvalidInput(f"{path} cannot be read: {reason}")


def _wrong_row(row: list[str], width: int, columns: Columns) -> str | None:
    if len(row) != width:
        return (
            f"the number of columns is {len(row)}, and that of the header {width}; give one value "
            "for each column"
        )
    used = [row[columns.users], row[columns.items]]
    count = "1" if columns.counts is None else row[columns.counts]
    if any(_SURROGATE.search(value) for value in (*used, count)):
        return "the text is not UTF-8; save the file as UTF-8"
    for side, value in zip(("user", "item"), used, strict=True):
        if problem := wrong_id(side, value):
            return problem
    number = count.strip(" \t")
    if not _NUMBER.fullmatch(number):
        return wrong_count(count)
    return f"{problem}" if (problem := wrong_count(float(number))) else None


# --- tables with types -------------------------------------------------------------------------


def _sheet(path: str, names: Names) -> Plays:
    sheet = Sheet(path)
    columns = choose(path, sheet.header, *names)
    return Plays.of(sheet.rows(columns), columns.notes)


def _parquet(path: str, names: Names) -> Plays:
    arrow = _arrow()
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            return _typed(
                path,
                file.schema_arrow,
                names,
                lambda titles: file.iter_batches(_BATCH, None, titles),
            )
    except (arrow.ArrowException, OSError) as error:
        raise _not_parquet(path, error) from error


def _not_parquet(path: str, error: Exception) -> InvalidInput:
    return InvalidInput(f"{path} cannot be read as Parquet: {error}")


def _frame(frame: Any, names: Names) -> Plays:
    arrow = _arrow()
    try:
        table = arrow.table(frame)
    except arrow.ArrowException as error:
        raise InvalidInput(f"the table cannot be read: {error}") from error
    # pandas hands its index over as one more column.
    titles = table.schema.names
    table = table.select([i for i, t in enumerate(titles) if not t.startswith("__index_level_")])
    return _typed(
        "the table", table.schema, names, lambda titles: table.select(titles).to_batches(_BATCH)
    )


def _typed(
    source: str, schema: Any, names: Names, batches: Callable[[list[str]], Iterable[Any]]
) -> Plays:
    columns = choose(source, schema.names, *names)
    titles = [schema.names[at] for at in columns[:3] if at is not None]
    _check_types(source, schema, titles)
    try:
        return _summed(batches(titles), columns.notes)
    except _Bad as bad:
        _raise_which(source, *bad.args)


def _check_types(source: str, schema: Any, titles: list[str]) -> None:
    from pyarrow import types

    for role, title in zip(("user", "item", "count"), titles, strict=False):
        if schema.names.count(title) > 1:
            raise InvalidInput(f"{source} has several columns {title!r}; give each its own name")
        kind = schema.field(title).type
        if role == "count":
            fits, wanted = types.is_integer(kind) or types.is_floating(kind), "numbers"
        else:
            plain = kind.value_type if types.is_dictionary(kind) else kind
            # Views are what polars hands over.
            texts = (types.is_string, types.is_large_string, types.is_string_view)
            text = any(of_kind(plain) for of_kind in texts)
            fits, wanted = text or types.is_integer(plain), "whole numbers or texts"
        if not fits:
            raise InvalidInput(
                f"{source}: the {role}s in column {title!r} are of type {kind}; give {wanted}"
            )


def _raise_which(source: str, before: int, batch: Any) -> NoReturn:
    """Raise with the first row of a batch that cannot be used."""
    if batch is None:
        raise InvalidInput(f"{source} has no rows; give at least one")
    columns = [column.to_pylist() for column in batch.columns]
    for number, row in enumerate(zip(*columns, strict=True), before + 1):
        problems = [wrong_id("user", row[0]), wrong_id("item", row[1])]
        problems += [wrong_count(count) for count in row[2:]]
        for problem in filter(None, problems):
            raise InvalidInput(f"{source}, row {number}: {problem}")
    raise AssertionError("a batch was rejected that has no bad row")
