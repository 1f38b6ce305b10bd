"""`fairwolfe reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from fairwolfe.cli.engine import INTERRUPTED, engine_options
from fairwolfe.cli.printing import as_json, make_folder, print_files, print_json, print_table
from fairwolfe.cli.progress import bars
from fairwolfe.errors import require_extra

if TYPE_CHECKING:
    from fairwolfe.paper.reproduce import Reproduction

__all__ = ["reproduce"]


@click.command(epilog="Example: fairwolfe reproduce lastfm-50 --quick")
@click.argument("figures", nargs=-1, metavar="[FIGURE]...")
@click.option("--quick", is_flag=True, help="Fewer seeds, shorter horizons: some minutes.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where results and report are written.  [default: out/reproduce, out/quick]",
)
@engine_options
@click.option(
    "--page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write the report as Markdown, with its figures in a folder beside it.",
)
@as_json
@click.pass_context
def reproduce(
    ctx: click.Context,
    figures: tuple[str, ...],
    quick: bool,
    out: Path | None,
    resume: bool,
    seconds: float | None,
    jobs: int | None,
    on: Literal["local", "ray"],
    address: str | None,
    page: Path | None,
    as_json: bool,
) -> None:
    """Play the paper's experiments, and judge for every claim whether it holds.

    FIGURE is one of arms, lastfm-50, lastfm-50-tradeoff, lastfm-50-objectives,
    lastfm-2k-objectives, lastfm-2k-tradeoff, arms-appendix, regret, anytime, smoothing, beta0,
    exploration, delay, lastfm-50-factors, lastfm-50-second, lastfm-50-tradeoff-second,
    lastfm-50-objectives-second, defaults-50, defaults-2k, defaults-arms, defaults-late; without it
    all are played. Ctrl-C and --for leave a folder that --resume completes. Exit code 0 whatever
    holds; 1: some runs failed; 2: bad input; 130: Ctrl-C.
    """
    from fairwolfe.lab.sweep import pending
    from fairwolfe.paper import reproduce as of_paper
    from fairwolfe.paper.page import number, summary, write_page, write_report

    require_extra("lab", "fairwolfe reproduce", "jinja2", "matplotlib", "pandas", "pyarrow")
    planned = of_paper.plan(figures, quick)
    folder = out or Path("out") / ("quick" if quick else "reproduce")
    make_folder(folder)
    work = {
        name: study.seconds(sum(run.settings.horizon for run in pending(experiment, folder / name)))
        for name, (study, experiment, _) in planned.items()
    }
    with bars(work) as tick:
        outcome = of_paper.reproduce(
            figures,
            folder,
            quick=quick,
            resume=resume,
            seconds=seconds,
            jobs=jobs,
            on=on,
            address=address,
            progress=lambda name, rounds: tick(name, planned[name][0].seconds(rounds)),
        )
    files = write_report(outcome)
    if page is not None:
        files += write_page(outcome, page)
    if as_json:
        print_json({"claims": outcome.claims(), "report": str(files[0])})
    else:
        print_table(
            ("claim", "where", "measured", "estimate", "95 % interval", "verdict"),
            (
                (
                    row["id"],
                    row["where"],
                    row["statistic"],
                    number(row["estimate"]),
                    f"{number(row['low'])} to {number(row['high'])}",
                    row["verdict"],
                )
                for row in outcome.claims()
            ),
        )
        print_files(files[:2], summary(outcome))
    for failure in outcome.failed:
        click.echo(f"failed: {failure.reason}, see {failure.file}", err=True)
    ctx.exit(_code(outcome))


def _code(outcome: Reproduction) -> int:
    if outcome.stopped == "interrupted":
        return INTERRUPTED
    return 1 if outcome.failed else 0
