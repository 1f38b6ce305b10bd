"""`fairwolfe tradeoff`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fairwolfe.cli.printing import (
    as_json,
    make_folder,
    out_option,
    print_files,
    print_json,
    print_rows,
    progress_bar,
)
from fairwolfe.errors import InvalidInput, MissingData

__all__ = ["tradeoff"]

_TABLES = (".csv", ".tsv", ".txt", ".dat", ".parquet")


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


@click.command(epilog="Example: fairwolfe tradeoff plays.csv --betas 0,0.1,0.3,1 --out pictures")
@click.argument("world")
@click.option("--objective", default="gini", show_default=True, help="Of the items' exposures.")
@click.option("--betas", callback=_numbers, metavar="B,B,...", help="Weights of the objective.")
@click.option(
    "--floors",
    callback=_numbers,
    metavar="C,C,...",
    help='Minimum shares of FairLearnRank; "" leaves it out.',
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
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Threads.")
@click.option("--tolerance", type=float, default=1e-3, show_default=True, help="Of the optima.")
@click.option("--users", type=click.IntRange(1), help="Of a table or a drawn world: how many.")
@click.option("--items", type=click.IntRange(1), help="Of a table or a drawn world: how many.")
@click.option("--user-column", help="Of a table: who.")
@click.option("--item-column", help="Of a table: what.")
@click.option("--count-column", help="Of a table: how often.")
@out_option
@as_json
def tradeoff(
    world: str,
    objective: str,
    betas: list[float] | None,
    floors: list[float] | None,
    horizon: int,
    seeds: int,
    exploration: Any,
    jobs: int,
    tolerance: float,
    out: Path,
    as_json: bool,
    **table: Any,
) -> None:
    """Show what fairness costs in WORLD, and which trade-off is the best possible.

    WORLD is the name of an environment with rankings, or a file of your own: a table (CSV, TSV,
    Parquet) of users, items and counts. For every beta the certified optimum of utility plus beta
    times the objective is found, and a policy that learns is played beside a baseline. A table,
    sentences, and the files tradeoff.png, tradeoff.svg and tradeoff.json come out.
    """
    import json

    from fairwolfe.core.protocols import Annotated
    from fairwolfe.fairness.tradeoff import plan
    from fairwolfe.simulation.plots import require_matplotlib

    require_matplotlib()
    given = {} if betas is None else {"betas": betas}
    chosen = _world(world, {name: value for name, value in table.items() if value is not None})
    for note in chosen.notes if isinstance(chosen, Annotated) else ():
        click.echo(note, err=True)
    made = plan(
        chosen,
        objective,
        **given,
        floors=floors,
        horizon=horizon,
        seeds=seeds,
        exploration=exploration,
        jobs=jobs,
        tolerance=tolerance,
    )
    make_folder(out)
    with progress_bar() as progress:
        task = progress.add_task("the best possible", total=None)  # how long is not known
        found = made.run(
            lambda n: progress.update(task, advance=n, total=made.rounds, description="playing")
        )
    rows = [_finite(row) for row in found.table()]
    said = {"table": rows, "sentences": found.sentences(), "seeds": list(found.seeds)}
    data = out / "tradeoff.json"
    files = [*found.draw(out), data]
    data.write_text(json.dumps(said, indent=2) + "\n", encoding="utf-8")
    if as_json:
        print_json(said | {"files": [str(file) for file in files]})
        return
    several = {"95 % interval": "{utility_low} - {utility_high}"} if len(found.seeds) > 1 else {}
    print_rows(
        {
            "policy": "{policy}",
            "beta": "{beta}",
            "floor": "{floor}",
            "utility": "{utility}",
            **several,
            "Gini": "{gini}",
            "bottom half": "{bottom_half}",
            "top decile": "{top_decile}",
            "f": "{value}",
            "below the best": "{below_best_percent}",
            **({"violation": "{violation}"} if found.constraints is not None else {}),
        },
        [_written(row) for row in rows],
    )
    print_files(files, found.sentences())


def _world(name: str, table: dict[str, Any]) -> Any:
    from fairwolfe import environments
    from fairwolfe.core.registry import names

    if name in names("environments"):
        unused = [option for option in table if option.endswith("_column")]
        if unused:
            option = "--" + unused[0].replace("_", "-")
            raise InvalidInput(f"{option} is for tables, and {name!r} is an environment by name")
        return environments.make(name, **table)
    path = Path(name)
    if path.is_file():
        renamed = {option.removesuffix("_column"): value for option, value in table.items()}
        return environments.Listening(path, **renamed)
    if path.suffix.lower() in _TABLES or len(path.parts) > 1:
        raise MissingData(f"there is no file {name}; give a table of users, items and counts")
    known = ", ".join(names("environments"))
    raise InvalidInput(f"there is no world {name!r}; give a file, or one of: {known}")


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinities: logarithms of nothing are null there."""
    from math import isfinite

    return {k: None if isinstance(v, float) and not isfinite(v) else v for k, v in row.items()}


def _written(row: dict[str, Any]) -> dict[str, str]:
    forms = {"bottom_half": "{:.0%}", "top_decile": "{:.0%}", "below_best_percent": "{:.2f} %"}
    forms |= {"policy": "{}", "beta": "{:g}", "floor": "{:g}"}
    return {k: "" if v is None else forms.get(k, "{:.3f}").format(v) for k, v in row.items()}
