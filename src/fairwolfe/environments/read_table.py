"""Tables of users, items and counts: text (CSV, TSV, gzip), Parquet, Excel, frames, and rows.

`read_file` and `read_memory` make `Plays` of them; `choose` finds the columns, as named or guessed
from the header. Files are read in batches. `text_header`, `text_rows` and `parquet_file` also read
the tables of logged decisions (`fairwolfe.offpolicy`).
"""

from __future__ import annotations

import csv
import gzip
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TextIO

from fairwolfe.environments.plays import NOT_UTF8, NUMBER, Plays, is_utf8
from fairwolfe.errors import InvalidInput, MissingData, did_you_mean, require_extra

# What a column may be called, the likeliest first; case, blanks, - and _ do not matter.
_CALLED = {
    "user": "user userid username listener listenerid customer customerid visitor visitorid member "
    "memberid account accountid reader readerid viewer viewerid person personid session sessionid "
    "uid",
    "item": "item itemid artist artistid artistname song songid songname track trackid trackname "
    "album albumid movie movieid film filmid product productid book bookid isbn video videoid "
    "article articleid title name asin sku iid",
    "count": "count counts plays playcount nplays weight listens listencount listeningcount rating "
    "ratings clicks click views viewcount purchases quantity times frequency score value n",
}
_BATCH = 1 << 17  # rows of a Parquet file
_LONGEST = 1 << 20  # characters of a header
_SEPARATORS = ("\t", ",", ";", "|")

Names = tuple[str | None, str | None, str | None]  # of the columns user, item, count


class Columns(NamedTuple):
    """Places of the columns, and sentences about what was guessed."""

    users: int
    items: int
    counts: int | None  # None: every row counts 1
    notes: tuple[str, ...]

    @property
    def used(self) -> list[int]:
        """The places of users, items and, where there are any, counts."""
        return [at for at in self[:3] if at is not None]


def choose(
    source: str, header: Sequence[str], user: str | None, item: str | None, count: str | None
) -> Columns:
    """The columns by name; those without a name by their title, else by their order.

    >>> choose("plays.csv", ["when", "userID", "song"], None, None, None)[:3]
    (1, 2, None)
    """
    given = zip(_CALLED, (user, item, count), strict=True)
    places = {role: _named(source, header, role, name) for role, name in given if name is not None}
    twice = [role for role, at in places.items() if list(places.values()).count(at) > 1]
    if twice:
        roles = " and ".join(twice)
        raise InvalidInput(f"{header[places[twice[0]]]!r} is named as {roles}; give each its own")
    named = len(places)
    titles = [re.sub(r"[\s_-]", "", title).lower() for title in header]
    for role, called in _CALLED.items():
        known = (titles.index(c) for c in called.split() if c in titles)
        place = next((at for at in known if at not in places.values()), None)
        if role not in places and place is not None:
            places[role] = place
    if not {"user", "item"} <= places.keys():
        _by_order(source, header, places)
    notes = () if named == 3 else (_note(source, header, places, named),)
    return Columns(places["user"], places["item"], places.get("count"), notes)


def _named(source: str, header: Sequence[str], role: str, name: str) -> int:
    at = [i for i, title in enumerate(header) if title.strip() == name.strip()]
    if not at:
        raise InvalidInput(f"{source} has no column {name!r}; {did_you_mean(name, header)}")
    if len(at) > 1:
        raise InvalidInput(
            f"{source} has {len(at)} columns {name!r}, so it is not clear which holds the {role}; "
            "give each its own name"
        )
    return at[0]


def _by_order(source: str, header: Sequence[str], places: dict[str, int]) -> None:
    """Columns without a known title are user, item, count in that order, if unambiguous."""
    if any(NUMBER.fullmatch(title.strip()) for title in header):
        raise InvalidInput(
            f"{source} has no header: its first line is {', '.join(header)!r}; put the names of "
            "the columns there, such as user,item,count"
        )
    if len(header) < 2:
        raise InvalidInput(
            f"{source} has one column, {header[0]!r}; give a user, an item and a count, separated "
            "by commas, tabs, semicolons or bars"
        )
    missing = [role for role in _CALLED if role not in places]
    rest = [at for at in range(len(header)) if at not in places.values()]
    if "count" in missing and len(rest) == len(missing) - 1:
        missing.remove("count")
    if len(rest) != len(missing):
        wanted = [role for role in missing if role != "count"]
        raise InvalidInput(
            f"{source}: no column is known to hold the {' or the '.join(wanted)}; the columns "
            f"are {', '.join(header)}, so name them with "
            f"{' and '.join(f'{role}=' for role in wanted)}"
        )
    places.update(zip(missing, rest, strict=True))


def _note(source: str, header: Sequence[str], places: dict[str, int], named: int) -> str:
    parts = [
        f"{role}s are in column {header[places[role]]!r}" for role in _CALLED if role in places
    ]
    if "count" not in places:
        rest = [title for at, title in enumerate(header) if at not in places.values()]
        unused = f", and none of the others ({', '.join(rest)}) is used" if rest else ""
        parts.append(f"every row counts 1{unused}")
    guess = "" if named == len(places) else " (guessed)"
    return f"{source}: {'; '.join(parts)}{guess}; name others with user=, item=, count="


# --- files -------------------------------------------------------------------------------------


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
        if not _is_workbook(path):
            raise InvalidInput(f"{path} is compressed; unpack it, and give the table itself")
        return "sheet"
    return "text"


def _is_workbook(path: str) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return False


# --- tables ------------------------------------------------------------------------------------

Rows = Iterable[tuple[int, Sequence[Any]]]  # with their numbers


class Source(NamedTuple):
    """A table whose columns are chosen by their places."""

    name: str
    header: list[str]
    rows: Callable[[Sequence[int]], Rows]
    unit: str = "row"  # what errors count
    text: bool = False

    def plays(self, names: Names) -> Plays:
        """The plays in the columns of these names."""
        columns = choose(self.name, self.header, *names)
        rows = self.rows(columns.used)
        return Plays.of(rows, columns.notes, f"{self.name}, {self.unit}", text=self.text)


def _opened(path: str) -> Source:
    """The table of a CSV, TSV, Parquet or Excel file; text may be packed with gzip."""
    return {"parquet": _parquet, "sheet": _sheet, "text": _text}[kind_of(path)](path)


def read_file(path: str, names: Names) -> Plays:
    """The plays of a file, in columns of these names."""
    return _opened(path).plays(names)


def header_of(path: str) -> list[str]:
    """The titles of the columns of a file."""
    return _opened(path).header


def read_pairs(path: str, one: str, other: str) -> set[tuple[str, ...]]:
    """The different pairs of values of two columns of a file, as texts."""
    source = _opened(path)
    rows = source.rows([source.header.index(title) for title in (one, other)])
    return {tuple("" if cell is None else str(cell) for cell in row) for _, row in rows}


def read_memory(table: Any, names: Names) -> Plays:
    """The plays of rows (user, item, count), a mapping of columns, a DataFrame, a pyarrow Table."""
    if hasattr(table, "__arrow_c_stream__"):
        return _frame(table).plays(names)
    if isinstance(table, Mapping):
        return _mapping(table).plays(names)
    if isinstance(table, bytes) or not isinstance(table, Sequence):
        raise InvalidInput(
            f"table is a {type(table).__name__}; give a path, rows (user, item, count), a mapping "
            "of columns, a DataFrame or a pyarrow Table"
        )
    if any(name is not None for name in names):
        raise InvalidInput("rows have no column names; leave out user=, item= and count=")
    for number, row in enumerate(table, 1):
        if isinstance(row, (str, bytes)) or not isinstance(row, Sequence):
            raise InvalidInput(f"row {number} is {row!r}; give (user, item, count)")
        if len(row) not in (2, 3):
            raise InvalidInput(
                f"row {number} has {len(row)} values; give (user, item, count), or (user, item) to "
                "count 1"
            )
    return Plays.of(enumerate(table, 1))


def _mapping(table: Mapping[str, Any]) -> Source:
    if len(table) < 2:
        raise InvalidInput(f"the table has {len(table)} columns; give users, items and counts")

    def rows(used: Sequence[int]) -> Rows:
        values = list(table.values())
        columns = [list(values[at]) for at in used]
        lengths = list(map(len, columns))
        if min(lengths) < max(lengths):
            raise InvalidInput(f"the columns have {lengths} values; give as many in each")
        return enumerate(zip(*columns, strict=True), 1)

    return Source("the table", list(map(str, table)), rows)


# --- text --------------------------------------------------------------------------------------


def _packed(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _open(path: str, newline: str | None = None) -> TextIO:
    opened: Any = gzip.open if _packed(path) else open
    file: TextIO = opened(
        path, "rt", encoding="utf-8-sig", errors="surrogateescape", newline=newline
    )
    return file


def text_header(path: str) -> tuple[str, list[str]]:
    """The separator of a text file, and the titles of its columns."""
    # Universal newlines, as pyarrow has them.
    try:
        with _open(path) as file:
            line = file.readline(_LONGEST)
    except (OSError, EOFError, zlib.error) as error:
        raise _damaged(path, error) from error
    if line.startswith("PAR1"):
        raise InvalidInput(f"{path} is compressed Parquet; unpack it, and give the table itself")
    if not is_utf8(line):
        raise InvalidInput(f"{path}, line 1: {NOT_UTF8}")
    if not line.strip():
        raise InvalidInput(f"{path}, line 1: the line is empty; put the names of the columns there")
    split = {s: next(csv.reader([line], delimiter=s)) for s in _SEPARATORS}
    separator = max(split, key=lambda s: len(split[s]))
    if any("\n" in title for title in split[separator]):
        raise InvalidInput(f"{path}, line 1: a quote is opened and not closed")
    return separator, [title.strip() for title in split[separator]]


def text_rows(path: str, separator: str, width: int) -> Iterator[tuple[int, list[str]]]:
    """The rows after the header, which has `width` columns, with the number of their first line."""
    line, header = 1, True
    with _open(path, newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        try:
            for row in reader:
                if row and not header:
                    if len(row) != width:
                        raise InvalidInput(
                            f"{path}, line {line}: the number of columns is {len(row)}, and that "
                            f"of the header {width}; give one value for each column"
                        )
                    yield line, row
                header, line = header and not row, reader.line_num + 1
        except csv.Error as error:
            raise InvalidInput(
                f"{path}, line {line}: the line cannot be split into columns ({error}); search for "
                "a quote that is opened and not closed"
            ) from error
        except (OSError, EOFError, zlib.error) as error:
            raise _damaged(path, error) from error


def _damaged(path: str, error: Exception) -> InvalidInput:
    return InvalidInput(f"{path} cannot be unpacked: {error}; the file is damaged or incomplete")


def _text(path: str) -> Source:
    separator, header = text_header(path)

    def rows(used: Sequence[int]) -> Rows:
        for line, row in text_rows(path, separator, len(header)):
            yield line, [row[at] for at in used]

    return Source(path, header, rows, "line", text=True)


# --- tables with types -------------------------------------------------------------------------


def _cells(path: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """The titles and the rows of the first sheet of a workbook."""
    require_extra("lab", "an Excel file", "openpyxl")
    from openpyxl import load_workbook  # type: ignore[import-untyped]
    from openpyxl.utils.exceptions import InvalidFileException  # type: ignore[import-untyped]

    try:
        book = load_workbook(path, read_only=True, data_only=True)
        try:
            cells = list(book.worksheets[0].iter_rows(values_only=True))
        finally:
            book.close()
    except (InvalidFileException, zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as an Excel file: {error}") from error
    while cells and all(cell is None for cell in cells[-1]):
        cells.pop()
    if len(cells) < 2:
        raise InvalidInput(f"{path} has no rows; give a header and at least one row")
    return ["" if title is None else str(title).strip() for title in cells[0]], cells[1:]


def _sheet(path: str) -> Source:
    header, cells = _cells(path)

    def rows(used: Sequence[int]) -> Rows:
        return ((i, [_whole(row[at]) for at in used]) for i, row in enumerate(cells, 2))

    return Source(path, header, rows)


def _whole(value: Any) -> Any:
    """Excel has no whole numbers: 7.0 is the id 7."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


@contextmanager
def parquet_file(path: str) -> Iterator[Any]:
    """An open Parquet file; whatever fails is the file's fault."""
    arrow = _arrow()
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as Parquet: {error}") from error


def _parquet(path: str) -> Source:
    with parquet_file(path) as file:
        header = file.schema_arrow.names

    def batches(titles: list[str]) -> Iterator[Any]:
        with parquet_file(path) as file:
            yield from file.iter_batches(_BATCH, None, titles)

    return _typed(path, header, batches)


def _frame(frame: Any) -> Source:
    arrow = _arrow()
    try:
        table = arrow.table(frame)
    except arrow.ArrowException as error:
        raise InvalidInput(f"the table cannot be read: {error}") from error
    # pandas hands its index over as one more column.
    titles = [title for title in table.schema.names if not title.startswith("__index_level_")]
    return _typed("the table", titles, lambda titles: table.select(titles).to_batches(_BATCH))


def _typed(source: str, header: list[str], batches: Callable[[list[str]], Iterable[Any]]) -> Source:
    def rows(used: Sequence[int]) -> Rows:
        titles, before = [header[at] for at in used], 1
        for title in titles:
            if header.count(title) > 1:
                raise InvalidInput(
                    f"{source} has several columns {title!r}; give each its own name"
                )
        for batch in batches(titles):
            columns = [batch.column(title).to_pylist() for title in titles]
            yield from enumerate(zip(*columns, strict=True), before)
            before += len(batch)

    return Source(source, header, rows)


def _arrow() -> Any:
    require_extra("lab", "a world from a table", "pyarrow")
    import pyarrow

    return pyarrow
