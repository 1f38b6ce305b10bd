"""What commands share: tables, JSON, the progress bar, the folder of a result."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairwolfe.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

__all__ = [
    "as_json",
    "console",
    "finite",
    "import_from_here",
    "make_folder",
    "out_option",
    "print_files",
    "print_json",
    "print_rows",
    "print_table",
    "progress_bar",
]

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
out_option = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out"),
    show_default=True,
    metavar="DIR",
    help="Where the figures are written.",
)


def import_from_here() -> None:
    """As with `python -m`: modules in the current directory can be imported."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)


def make_folder(out: Path) -> None:
    """The folder of a result, made before the work: a typing error is not found at its end."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{out} cannot be made a folder: {error.strerror}") from error


def progress_bar() -> Progress:
    """A bar with the time left, on stderr, gone when done."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeLeft())
    return Progress(*columns, console=console(stderr=True), transient=True)


def console(stderr: bool = False) -> Console:
    """Where text goes."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 140  # a file or a pipe has no width; 80 would cut the rows
    return console


def print_table(columns: tuple[str, ...], rows: Iterable[Iterable[str]], numbers: int = 0) -> None:
    """A table whose last `numbers` columns are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i >= len(columns) - numbers else "left")
    styles = {"pass": "green", "FAIL": "bold red"}
    for row in rows:
        # Text, not markup: a docstring or a repr may hold square brackets.
        table.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    console().print(table)


def print_rows(
    columns: Mapping[str, str], rows: Iterable[Mapping[str, Any]], less: Iterable[str] = ()
) -> None:
    """A table of dictionaries: title -> how a cell is written, such as "{value:.4f}".

    The first column is a name, the others are numbers. less: titles to leave out, in this order,
    where the terminal is too narrow for all of them.
    """
    written = list(rows)
    cells = {title: [form.format(**row) for row in written] for title, form in columns.items()}
    gone = []
    for title in less:
        wide = sum(max(map(len, (name, *column))) + 3 for name, column in cells.items())
        if wide <= console().width:
            break
        if cells.pop(title, None) is not None:
            gone.append(title)
    print_table(tuple(cells), zip(*cells.values(), strict=True), numbers=len(cells) - 1)
    if gone:
        click.echo(f"Left out at this width: {', '.join(gone)}; --json has all.")


def print_files(files: Iterable[Path], sentences: Iterable[str] = ()) -> None:
    """What was found, in words, and where the pictures are."""
    words = tuple(sentences)
    for line in (*(("", *words) if words else ()), *map(str, files)):
        click.echo(line)


def print_json(value: object) -> None:
    """Exactly one JSON value on stdout."""
    import json

    click.echo(json.dumps(value, indent=2))


def finite(value: Any) -> Any:
    """A value for JSON, which has no infinities: they are None, at any depth.

    >>> finite({"low": float("-inf"), "ends": (0.5, 1)})
    {'low': None, 'ends': [0.5, 1]}
    """
    if isinstance(value, Mapping):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
