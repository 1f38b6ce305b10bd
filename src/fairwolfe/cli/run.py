"""`fairwolfe run`."""

from __future__ import annotations

import re
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from fairwolfe.cli.engine import INTERRUPTED, engine_options
from fairwolfe.cli.printing import (
    as_json,
    import_from_here,
    print_json,
    print_table,
)
from fairwolfe.cli.progress import bars

if TYPE_CHECKING:
    from fairwolfe.lab import Sweep

__all__ = ["run"]


class _Seeds(click.ParamType[tuple[int, ...]]):
    name = "seeds"

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        """10 is 0 to 9; 3-5 is 3, 4, 5; 1,4,9 is just these, and so is 4,."""
        seeds: list[int] = []
        for part in str(value).rstrip(",").split(","):
            if not (ends := re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)):
                self.fail(f"{value!r} is not a number of seeds, a range (3-5) or a list (1,4,9)")
            first, last = int(ends[1]), int(ends[2] or ends[1])
            seeds += range(first, last + 1)
        if re.fullmatch(r"\s*\d+\s*", str(value)):
            seeds = list(range(int(value)))
        if not seeds or len(set(seeds)) < len(seeds):
            self.fail(f"{value!r} names no seed, or one twice")
        return tuple(seeds)


@click.command(epilog="Example: fairwolfe run examples/specs/music.toml --for 10m")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--seeds", type=_Seeds(), metavar="N|A-B|LIST", help="Instead of those of the file.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where the results are written.  [default: out/NAME]",
)
@engine_options
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
    the time is up; 1: some failed; 2: the file is wrong, or a policy fails in its first two
    rounds, and nothing was written; 130: Ctrl-C.
    """
    from fairwolfe import lab
    from fairwolfe.lab.results import require_arrow

    require_arrow(on)
    import_from_here()
    # What modules of the user's and Ray print must not mix with the table or the JSON.
    with redirect_stdout(sys.stderr):
        experiment = lab.load(file)
    folder = out or Path("out") / experiment.name
    wanted = lab.pending(experiment, folder, seeds)
    rounds: Counter[str] = Counter()
    for one in wanted:
        rounds[one.label] += one.settings.horizon
    with redirect_stdout(sys.stderr), bars(rounds) as tick:
        swept = lab.run(
            experiment,
            folder,
            jobs=jobs,
            on=on,
            address=address,
            seeds=seeds,
            resume=resume,
            seconds=seconds,
            progress=lambda run, n: tick(run.label, n),
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
        "reasons": {failed.run.id: failed.reason for failed in swept.failed},
        "warnings": swept.warnings(),
        "policies": swept.table(),
    }


def _print_sweep(swept: Sweep, resuming: str) -> None:
    rows = swept.table()
    chosen = list(dict.fromkeys(key for cell in swept.experiment.cells for key in cell.chosen))
    limited = any("violation" in row for row in rows)
    beyond = ("violation",) if limited else ()
    print_table(
        ("policy", *chosen, "seeds", "f", "95 % interval", "us/round", *beyond),
        (
            (
                row["label"],
                *(_cell(row.get(key)) for key in chosen),
                f"{row['seeds']}/{len(swept.seeds)}",
                *_numbers(row),
                *([f"{row['violation']:.2g}" if "violation" in row else ""] if limited else ()),
            )
            for row in rows
        ),
        numbers=4 + len(chosen) + limited,
    )
    for text, count in swept.warnings().items():
        click.echo(f"{count} run{'s' * (count > 1)} warned: {text}", err=True)
    for failed in swept.failed:
        what = f"{failed.run.label}, seed {failed.run.seed}: {failed.reason}"
        click.echo(f"failed: {what}, see {failed.file}", err=True)
    if swept.missing:
        why = {"interrupted": "interrupted", "time": "the time is up", None: "some runs failed"}
        click.echo(
            f"{why[swept.stopped]}: {len(swept.missing)} runs have no result yet; continue with\n"
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
