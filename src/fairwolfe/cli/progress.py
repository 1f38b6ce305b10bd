"""How far long work is, with the time left: bars, or lines where none can be seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import click

from fairwolfe.cli.printing import console, progress_bar

__all__ = ["bars"]

_LINE = 60.0  # seconds between two lines where there is no terminal
_SOME = 0.005  # of the work, before the time left is worth a word


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
    """For a log: a line a minute."""

    def __init__(self, total: float) -> None:
        self.total, self.done = total, 0.0
        self.began = self.printed = time.monotonic()

    def __call__(self, name: str, done: float) -> None:
        self.done += done
        now = time.monotonic()
        share = self.done / self.total
        # At the very beginning kernels are compiled, which does not show the time that is left.
        if now - self.printed < _LINE or share < _SOME:
            return
        self.printed = now
        left = (now - self.began) * (1.0 - share) / share
        click.echo(f"{name}: {share:.0%} of all, about {left / 60:.0f} minutes left", err=True)
