"""`fairwolfe tradeoff`: its options; `tradeoff_run` does the work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairwolfe.cli.printing import as_json, out_option
from fairwolfe.errors import FairwolfeError, InvalidInput

_EXAMPLES = """\b
Example: fairwolfe tradeoff plays.csv --out pictures
         fairwolfe tradeoff plays.csv.gz --slots 5 --group-column producer
         fairwolfe tradeoff plays.xlsx --give-up 3% --save agent.fw
         fairwolfe tradeoff plays.csv --ask
         fairwolfe tradeoff plays.csv --implied utility=1.45,gini=0.35
"""


def _numbers(ctx: click.Context, option: click.Parameter, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",") if part.strip()]
    except ValueError as error:
        raise InvalidInput(
            f"{option.opts[0]} is {text!r}; give numbers with commas between them, such as 0,0.1,1"
        ) from error


def _exploration(ctx: click.Context, option: click.Parameter, text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text  # a name, which the policies judge


def _share(ctx: click.Context, option: click.Parameter, text: str | None) -> float | None:
    if text is None:
        return None
    number, percent = text.strip().removesuffix("%"), text.strip().endswith("%")
    try:
        share = float(number) / (100.0 if percent else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 < share < 1.0:
        raise InvalidInput(
            f"{option.opts[0]} is {text!r}; give the part of utility that may be given up, such as "
            "3% or 0.03"
        )
    return share


def _status_quo(
    ctx: click.Context, option: click.Parameter, text: str | None
) -> dict[str, float] | None:
    if text is None:
        return None
    form = "utility=1.45,item_objective=1.16 or utility=1.45,gini=0.35"
    pairs = [part.partition("=") for part in text.split(",")]
    numbers: dict[str, float] = {}
    for name, _, number in pairs:
        try:
            numbers[name.strip()] = float(number)
        except ValueError as error:
            raise InvalidInput(f"{option.opts[0]} is {text!r}; give {form}") from error
    known = numbers.keys() in ({"utility", "item_objective"}, {"utility", "gini"})
    if not known or not 0.0 <= numbers.get("gini", 0.0) <= 1.0:
        raise InvalidInput(f"{option.opts[0]} is {text!r}; give {form}")
    return numbers


@click.command(epilog=_EXAMPLES)
@click.argument("world")
@click.option(
    "--objective",
    default="gini",
    show_default=True,
    metavar="NAME|TEXT",
    help='Of the items\' exposures: a name, or text such as "Welfare(0.5)".',
)
@click.option(
    "--betas",
    callback=_numbers,
    metavar="B,B,...",
    help="Weights of the objective.  [default: where the curve needs them]",
)
@click.option(
    "--floors",
    callback=_numbers,
    metavar="C,C,...",
    help='Minimum shares of FairLearnRank; "" leaves it out.',
)
@click.option("--slots", type=click.IntRange(1), help="Items that a ranking shows.  [default: 10]")
@click.option(
    "--give-up",
    callback=_share,
    metavar="3%",
    help="Find the largest beta that costs at most this much of utility.",
)
@click.option("--ask", is_flag=True, help="Find the beta that you want by eight questions.")
@click.option(
    "--implied",
    callback=_status_quo,
    metavar="utility=U,gini=G",
    help="Report which beta makes today's numbers the best; or utility=U,item_objective=X.",
)
@click.option(
    "--save",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write an agent with the chosen beta, for the engineer.",
)
@click.option("--horizon", type=click.IntRange(1), default=100_000, show_default=True)
@click.option("--seeds", type=click.IntRange(1), default=3, show_default=True)
@click.option(
    "--exploration",
    callback=_exploration,
    metavar="NUMBER|pointwise",
    default="0.1",
    show_default=True,
    help="In units of the theory's, or without a setting.",
)
@click.option("--jobs", type=click.IntRange(1), help="Threads.  [default: one for each core]")
@click.option(
    "--tolerance",
    type=click.FloatRange(0.0, min_open=True),
    default=1e-3,
    show_default=True,
    help="Of the optima.",
)
@click.option("--users", type=click.IntRange(1), help="Of a table or a drawn world: how many.")
@click.option("--items", type=click.IntRange(1), help="Of a table or a drawn world: how many.")
@click.option("--user-column", help="Of a table: who.")
@click.option("--item-column", help="Of a table: what.")
@click.option("--count-column", help="Of a table: how often.")
@click.option("--group-column", help="Of a table: whose an item is; shows who gains and who loses.")
@out_option
@as_json
def tradeoff(world: str, out: Path, as_json: bool, **options: Any) -> None:
    """Show what fairness costs, and the best trade-offs.

    WORLD is a table of your own (CSV, TSV, either of them gzipped, Parquet, xlsx) of users, items
    and counts, or the name of an environment with rankings. The certified optima of utility plus
    beta times the objective are computed, with as many betas as the curve needs; a learning policy
    is played for some of them, beside a baseline. A table, sentences, and the files tradeoff.html
    (a page with everything in it), tradeoff.png, tradeoff.svg and tradeoff.json come out; with
    --group-column also groups.csv.
    """
    from fairwolfe.cli.tradeoff_run import run
    from fairwolfe.cli.tradeoff_world import in_options

    try:
        run(world, out, as_json, options)
    except FairwolfeError as error:
        raise type(error)(in_options(str(error))) from error
