"""How far long work is, with the time left: bars, or lines where none can be seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click

from fairwolfe.cli.printing import console, progress_bar

__all__ = ["bars"]

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
