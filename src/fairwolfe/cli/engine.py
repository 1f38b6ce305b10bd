"""Options of the commands that play many runs: how many at once, where, and for how long."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import click

__all__ = ["INTERRUPTED", "engine_options"]

INTERRUPTED = 130  # what a shell reports of a command that Ctrl-C ended
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Command = TypeVar("Command", bound=Callable[..., Any])


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
