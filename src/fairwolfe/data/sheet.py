"""Excel files (xlsx): the first sheet, its first row the titles of the columns."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

from fairwolfe.data.columns import Columns
from fairwolfe.data.plays import Id, wrong_count, wrong_id
from fairwolfe.errors import InvalidInput, require_extra

__all__ = ["Sheet", "is_sheet"]


def is_sheet(path: str) -> bool:
    """Whether a zip file holds a workbook."""
    try:
        with zipfile.ZipFile(path) as archive:
            return "xl/workbook.xml" in archive.namelist()
    except (zipfile.BadZipFile, OSError):
        return False


class Sheet:
    """The first sheet of a workbook."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _cells(self) -> list[tuple[Any, ...]]:
        require_extra("data", "an Excel file", "openpyxl")
        from openpyxl import load_workbook  # type: ignore[import-untyped]
        from openpyxl.utils.exceptions import (  # type: ignore[import-untyped]
            InvalidFileException,
        )

        try:
            book = load_workbook(self.path, read_only=True, data_only=True)
            try:
                cells = list(book.worksheets[0].iter_rows(values_only=True))
            finally:
                book.close()
        except (InvalidFileException, zipfile.BadZipFile, KeyError, ValueError, OSError) as error:
            raise InvalidInput(f"{self.path} cannot be read as an Excel file: {error}") from error
        while cells and all(cell is None for cell in cells[-1]):
            cells.pop()
        if len(cells) < 2:
            raise InvalidInput(f"{self.path} has no rows; give a header and at least one row")
        return cells

    @cached_property
    def header(self) -> list[str]:
        """The titles of the columns."""
        return ["" if title is None else str(title).strip() for title in self._cells[0]]

    def rows(self, columns: Columns) -> Iterator[Sequence[Any]]:
        """(user, item, count), or (user, item) where there are no counts."""
        for number, cells in enumerate(self._cells[1:], start=2):
            ids = [_whole(cells[at]) for at in (columns.users, columns.items)]
            counts = [] if columns.counts is None else [cells[columns.counts]]
            problems = [wrong_id(*pair) for pair in zip(("user", "item"), ids, strict=True)]
            problems += map(wrong_count, counts)
            for problem in filter(None, problems):
                raise InvalidInput(f"{self.path}, row {number}: {problem}")
            yield (*ids, *counts)

    def pairs(self, one: str, other: str) -> Iterator[tuple[str, str]]:
        """The values of two columns, as texts."""
        first, second = self.header.index(one), self.header.index(other)
        for cells in self._cells[1:]:
            yield _text(cells[first]), _text(cells[second])


def _text(value: Any) -> str:
    return "" if value is None else str(_whole(value))


def _whole(value: Any) -> Id | Any:
    """Excel has no whole numbers: 7.0 is the id 7."""
    return int(value) if isinstance(value, float) and value.is_integer() else value
