"""`fairwolfe run`, `report`, `reproduce` and `bench`."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairwolfe.cli import printing
from fairwolfe.errors import require_extra

if TYPE_CHECKING:
    from fairwolfe.lab import Sweep
    from fairwolfe.lab.paper.reproduce import Reproduction


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
@printing.path_option("--out", help="Where the results are written.  [default: out/NAME]")
@printing.engine_options
@printing.as_json
@click.pass_context
def run(
    ctx: click.Context,
    /,
    file: Path,
    seeds: tuple[int, ...] | None,
    out: Path | None,
    as_json: bool,
    **engine: Any,
) -> None:
    """Play the experiment of a TOML file, one Parquet file a run.

    Ctrl-C and --for leave a folder that --resume completes. Exit code 0: all runs are done, or
    the time is up; 1: some failed; 2: the file is wrong, or a policy fails in its first two
    rounds, and nothing was written; 130: Ctrl-C.
    """
    from fairwolfe import lab
    from fairwolfe.lab.results import require_arrow

    require_arrow(engine["on"])
    printing.import_from_here()
    # What modules of the user's and Ray print must not mix with the table or the JSON.
    with redirect_stdout(sys.stderr):
        experiment = lab.load(file)
    folder = out or Path("out") / experiment.name
    wanted = lab.pending(experiment, folder, seeds)
    rounds: Counter[str] = Counter()
    for one in wanted:
        rounds[one.label] += one.settings.horizon
    with redirect_stdout(sys.stderr), printing.bars(rounds) as tick:
        swept = lab.run(
            experiment,
            folder,
            seeds=seeds,
            progress=lambda run, n: tick(run.label, n),
            **engine,
        )
    resuming = f"fairwolfe run {file} --out {folder} --resume"
    if as_json:
        printing.print_json(_document(swept))
    else:
        _print_sweep(swept, resuming)
    ctx.exit(_code(swept))


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
    printing.print_table(
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


@click.command(epilog="Example: fairwolfe report out/music")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@printing.path_option("--out", folder=False, help="The page.  [default: DIR/report.html]")
@printing.as_json
def report(folder: Path, out: Path | None, as_json: bool) -> None:
    """Show the results in a folder, in words, tables and figures.

    The page is one file without scripts, which needs nothing else. The figures as SVG and PNG and
    the curves as CSV are in DIR/report. The folder may be of a sweep that is not complete.
    """
    from fairwolfe.lab.report import report as write

    content, files = write(folder, out)
    if as_json:
        printing.print_json(content.document() | {"files": [str(file) for file in files]})
        return
    for sentence in content.summary():
        click.echo(sentence)
    for group in content.groups:
        if group.title:
            click.echo(f"\n{group.title}")
        for sentence in group.sentences():
            click.echo(f"- {sentence}")
    click.echo(f"\n{files[0]}")


@click.command(epilog="Example: fairwolfe reproduce lastfm-50 --quick")
@click.argument("figures", nargs=-1, metavar="[FIGURE]...")
@click.option("--quick", is_flag=True, help="Fewer seeds, shorter horizons: some minutes.")
@printing.path_option(
    "--out", help="Where results and report are written.  [default: out/reproduce, out/quick]"
)
@printing.engine_options
@printing.path_option(
    "--page",
    folder=False,
    help="Also write the report as Markdown, with its figures in a folder beside it.",
)
@printing.as_json
@click.pass_context
def reproduce(
    ctx: click.Context,
    /,
    figures: tuple[str, ...],
    quick: bool,
    out: Path | None,
    page: Path | None,
    as_json: bool,
    **engine: Any,
) -> None:
    """Play the paper's experiments and judge its claims.

    FIGURE is one of arms, lastfm-50, lastfm-50-tradeoff, lastfm-50-objectives,
    lastfm-2k-objectives, lastfm-2k-tradeoff, arms-appendix, regret, anytime, smoothing, beta0,
    exploration, delay, lastfm-50-factors, rivals, defaults-50, defaults-2k, defaults-arms,
    defaults-late, or one of another reading of the data, such as lastfm-50-second and
    redistribution-third; second and third are all figures of these readings. Without it all are
    played. Ctrl-C and --for leave a folder that --resume completes. Exit code 0 whatever holds; 1:
    some runs failed; 2: bad input; 130: Ctrl-C.
    """
    from fairwolfe.lab.paper import reproduce as of_paper
    from fairwolfe.lab.paper.reproduction_page import estimate, summary, write_page, write_report
    from fairwolfe.lab.sweep import pending

    require_extra("lab", "fairwolfe reproduce", "jinja2", "matplotlib", "pandas", "pyarrow")
    planned = of_paper.plan(figures, quick)
    folder = out or Path("out") / ("quick" if quick else "reproduce")
    printing.make_folder(folder)
    work = {
        name: study.seconds(sum(run.settings.horizon for run in pending(experiment, folder / name)))
        for name, (study, experiment, _) in planned.items()
    }
    with printing.bars(work) as tick:
        outcome = of_paper.reproduce(
            figures,
            folder,
            quick=quick,
            progress=lambda name, rounds: tick(name, planned[name][0].seconds(rounds)),
            **engine,
        )
    files = write_report(outcome)
    if page is not None:
        files += write_page(outcome, page)
    if as_json:
        printing.print_json({"claims": outcome.claims(), "report": str(files[0])})
    else:
        printing.print_table(
            ("claim", "where", "measured", "estimate", "95 % interval", "verdict"),
            (
                (
                    row["id"],
                    row["where"],
                    row["statistic"],
                    *estimate(row),
                    row["verdict"],
                )
                for row in outcome.claims()
            ),
        )
        printing.print_files(files[:2], summary(outcome))
    for failure in outcome.failed:
        click.echo(f"failed: {failure.reason}, see {failure.file}", err=True)
    ctx.exit(_code(outcome))


def _code(outcome: Sweep | Reproduction) -> int:
    if outcome.stopped == "interrupted":
        return printing.INTERRUPTED
    return 1 if outcome.failed else 0


@click.command(epilog="Example: fairwolfe bench --seconds 10")
@click.option("--seconds", type=float, default=20.0, show_default=True, help="How long, about.")
@printing.as_json
def bench(seconds: float, as_json: bool) -> None:
    """Time a round: compiled, with an Agent, in a NumPy loop.

    Arms and rankings in four sizes; a round is a decision and what is learnt from it. The sides
    play in turns on one thread, and the NumPy loop must first decide like the compiled run. Times
    are microseconds of processor time, medians over turns; the ratio, with its lowest and highest,
    is taken within a turn, because machines are noisy. The compiled run and the NumPy loop simulate
    a world and draw its contexts; the Agent is given them.
    """
    from fairwolfe.core.threads import ONE_THREAD

    if "numpy" not in sys.modules:  # which reads this when it is imported
        os.environ.update(ONE_THREAD)
    from fairwolfe.lab import bench as speed

    bar = printing.progress_bar()
    task = bar.add_task("preparing", total=seconds)

    def report(case: speed.Case, spent: float) -> None:
        doing = "timing" if spent > 0.0 else "preparing"
        bar.update(task, advance=spent, description=f"{doing} {case.name}, {case.size}")

    timings = speed.measure(speed.CASES, seconds, report)
    with bar:
        rows = [timing.row() for timing in timings]
    about = speed.about()
    if as_json:
        printing.print_json({"about": about, "rows": rows})
        return
    printing.print_rows(
        {
            "us a round": "{policy}, {size}",
            "compiled": "{compiled_us:,.1f}",
            "Agent": "{agent_us:,.0f}",
            "NumPy": "{numpy_us:,.0f}",
            "NumPy / compiled": "{numpy_over_compiled:.0f} ({lowest:.0f} - {highest:.0f})",
        },
        rows,
    )
    click.echo("\n" + ", ".join(f"{key} {value}" for key, value in about.items()))
