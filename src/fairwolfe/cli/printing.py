"""What commands share: options, tables, JSON, and progress as bars, or as lines of a log."""

from __future__ import annotations

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fairwolfe.errors import InvalidInput

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


Command = TypeVar("Command", bound=Callable[..., Any])

_LINE = 60.0  # seconds between two lines where there is no terminal


@contextmanager
def bars(work: Mapping[str, float]) -> Iterator[Callable[[str, float], None]]:
    """A bar for each part of the work and one for all; call what it gives with what was done."""
    if not console(stderr=True).is_terminal:
        yield _Lines(sum(work.values()))
        return
    with progress_bar() as shown:
        tasks = {name: shown.add_task(name, total=total) for name, total in work.items()}
        overall = shown.add_task("all", total=sum(work.values()))

        def tick(name: str, done: float) -> None:
            shown.update(tasks[name], advance=done)
            shown.update(overall, advance=done)

        yield tick


class _Lines:
    """For a log: a line a minute, with the time left at the rate since the line before.

    The first line has no time: kernels are compiled in the first minutes, so the rate since the
    start is far too low.
    """

    def __init__(self, total: float) -> None:
        self.total, self.done = total, 0.0
        self.printed, self.done_then = time.monotonic(), -1.0

    def __call__(self, name: str, done: float) -> None:
        self.done += done
        now = time.monotonic()
        seconds = now - self.printed
        if seconds < _LINE:
            return
        line = f"{name}: {self.done / self.total:.0%} of all"
        if 0.0 <= self.done_then < self.done:
            left = (self.total - self.done) * seconds / (self.done - self.done_then)
            line += f", about {left / 60:.0f} minutes left"
        self.printed, self.done_then = now, self.done
        click.echo(line, err=True)


as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def path_option(*names: str, folder: bool = True, **options: Any) -> Callable[[Command], Command]:
    """An option that is a folder (DIR), or a file (FILE)."""
    kind = click.Path(file_okay=not folder, dir_okay=folder, path_type=Path)
    return click.option(*names, type=kind, metavar="DIR" if folder else "FILE", **options)


out_option = path_option(
    "--out", default=Path("out"), show_default=True, help="Where the figures are written."
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


INTERRUPTED = 130  # what a shell reports of a command that Ctrl-C ended
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


class _Time(click.ParamType[float]):
    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """90s, 10m, 2h, 1h30m, 1d, in seconds."""
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", str(value))
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if "".join(number + unit for number, unit in parts) != value or seconds <= 0.0:
            self.fail(f"{value!r} is not a time such as 90s, 10m, 2h or 1h30m")
        return seconds


_OPTIONS = (
    click.option("--jobs", type=click.IntRange(min=1), help="Runs at once.  [default: the cores]"),
    click.option("--on", type=click.Choice(["local", "ray"]), default="local", show_default=True),
    click.option("--address", help="Of a running Ray cluster; without it one is started here."),
    click.option("--resume", is_flag=True, help="Play what is missing in DIR, and what failed."),
    click.option("--for", "seconds", type=_Time(), metavar="TIME", help="Stop after 90s, 10m, 2h."),
)


def engine_options(command: Command) -> Command:
    """--jobs, --on, --address, --resume and --for."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command
