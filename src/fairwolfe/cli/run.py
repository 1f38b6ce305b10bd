"""`fairwolfe run`."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fairwolfe.cli.printing import (
    as_json,
    console,
    import_from_here,
    print_json,
    print_table,
    progress_bar,
)

if TYPE_CHECKING:
    from fairwolfe.lab import Run, Sweep

__all__ = ["run"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LINE = 60.0  # seconds between two lines of progress where there is no terminal
INTERRUPTED = 130  # what a shell reports of a command that Ctrl-C ended


class _Seeds(click.ParamType[tuple[int, ...]]):
    name = "seeds"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """10 is 0 to 9; 3-5 is 3, 4, 5; 1,4,9 is just these, and so is 4,."""
        found: list[int] = []
        for part in str(value).rstrip(",").split(","):
            if not (ends := re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)):
                self.fail(f"{value!r} is no number of seeds, range (3-5) or list (1,4,9)")
            first, last = int(ends[1]), int(ends[2] or ends[1])
            found += range(first, last + 1)
        if re.fullmatch(r"\s*\d+\s*", str(value)):
            found = list(range(int(value)))
        if not found or len(set(found)) < len(found):
            self.fail(f"{value!r} names no seed, or one twice")
        return tuple(found)


class _Time(click.ParamType[float]):
    name = "time"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        """90s, 10m, 2h, 1h30m, 1d, in seconds."""
        parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", str(value))
        seconds = sum(float(number) * _UNITS[unit] for number, unit in parts)
        if "".join(number + unit for number, unit in parts) != value or seconds <= 0.0:
            self.fail(f"{value!r} is no time such as 90s, 10m, 2h or 1h30m")
        return seconds


@click.command(epilog="Example: fairwolfe run examples/specs/music.toml --for 10m")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seeds", type=_Seeds(), metavar="N|A-B|LIST", help="Instead of those of the file.")
@click.option("--jobs", type=click.IntRange(min=1), help="Runs at once.  [default: the cores]")
@click.option("--on", type=click.Choice(["local", "ray"]), default="local", show_default=True)
@click.option("--address", help="Of a running Ray cluster; without it one is started here.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the results are written.  [default: out/NAME]",
)
@click.option("--resume", is_flag=True, help="Play what is missing in DIR, and what failed.")
@click.option("--for", "seconds", type=_Time(), metavar="TIME", help="Stop after 90s, 10m, 2h.")
@as_json
@click.pass_context
def run(
    ctx: click.Context,
    file: Path,
    seeds: tuple[int, ...] | None,
    jobs: int | None,
    on: Literal["local", "ray"],
    address: str | None,
    out: Path | None,
    resume: bool,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Play the experiment of a TOML file, one Parquet file a run.

    Ctrl-C and --for leave a folder that --resume completes. Exit code 0: all runs are done, or
    the time is up; 1: some failed; 2: the file is wrong, and nothing was written; 130: Ctrl-C.
    """
    from fairwolfe import lab

    import_from_here()
    # What modules of the user's and Ray print must not mix with the table or the JSON.
    with redirect_stdout(sys.stderr):
        experiment = lab.load(file)
    folder = out or Path("out") / experiment.name
    wanted = lab.pending(experiment, folder, seeds)
    with redirect_stdout(sys.stderr), _progress(wanted) as progress:
        swept = lab.run(
            experiment,
            folder,
            jobs=jobs,
            on=on,
            address=address,
            seeds=seeds,
            resume=resume,
            seconds=seconds,
            progress=progress,
        )
    resuming = f"fairwolfe run {file} --out {folder} --resume"
    if as_json:
        print_json(_document(swept))
    else:
        _print_sweep(swept, resuming)
    if swept.stopped == "interrupted":
        ctx.exit(INTERRUPTED)
    ctx.exit(1 if swept.failed else 0)


def _document(swept: Sweep) -> dict[str, Any]:
    return {
        "experiment": swept.experiment.name,
        "id": swept.experiment.id,
        "folder": str(swept.out),
        "stopped": swept.stopped,
        "missing": len(swept.missing),
        "failed": {failed.run.id: str(failed.file) for failed in swept.failed},
        "warnings": swept.warnings(),
        "policies": swept.table(),
    }


def _print_sweep(swept: Sweep, resuming: str) -> None:
    rows = swept.table()
    chosen = list(dict.fromkeys(key for cell in swept.experiment.cells for key in cell.chosen))
    print_table(
        ("policy", *chosen, "seeds", "f", "95 % interval", "us/round"),
        (
            (
                row["label"],
                *(_cell(row.get(key)) for key in chosen),
                f"{row['seeds']}/{len(swept.seeds)}",
                *_numbers(row),
            )
            for row in rows
        ),
        numbers=4 + len(chosen),
    )
    for text, count in swept.warnings().items():
        click.echo(f"{count} run{'s' * (count > 1)} warned: {text}", err=True)
    for failed in swept.failed:
        click.echo(f"failed: {failed.run.label}, seed {failed.run.seed}: {failed.file}", err=True)
    if swept.missing:
        why = {"interrupted": "interrupted", "time": "the time is up", None: "some runs failed"}
        click.echo(
            f"{why[swept.stopped]}: {len(swept.missing)} runs have no result yet; go on with\n"
            f"  {resuming}",
            err=True,
        )
    click.echo(str(swept.out))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return str(value.get("name", value)) if isinstance(value, dict) else str(value)


def _numbers(row: dict[str, Any]) -> tuple[str, str, str]:
    if row["value"] is None:
        return "", "", ""
    bounds = f"{row['low']:.4f} - {row['high']:.4f}"
    return f"{row['value']:.4f}", bounds, f"{row['us_per_round']:.1f}"


@contextmanager
def _progress(wanted: tuple[Run, ...]) -> Iterator[Any]:
    """Bars with the time left, one for each label and one for all; lines where none can be seen."""
    rounds: Counter[str] = Counter()
    for one in wanted:
        rounds[one.label] += one.settings.horizon
    if not console(stderr=True).is_terminal:
        yield _Lines(sum(rounds.values()))
        return
    with progress_bar() as bars:
        tasks = {label: bars.add_task(label, total=total) for label, total in rounds.items()}
        overall = bars.add_task("all runs", total=sum(rounds.values()))

        def tick(run: Run, n: int) -> None:
            bars.update(tasks[run.label], advance=n)
            bars.update(overall, advance=n)

        yield tick


class _Lines:
    """Progress for a log: a line a minute."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.began = self.told = time.monotonic()

    def __call__(self, run: Run, n: int) -> None:
        self.done += n
        now = time.monotonic()
        if now - self.told < _LINE or not self.done:
            return
        self.told = now
        left = (now - self.began) * (self.total - self.done) / self.done
        share = self.done / self.total
        click.echo(f"{share:.0%} played, about {left / 60:.0f} minutes left", err=True)
