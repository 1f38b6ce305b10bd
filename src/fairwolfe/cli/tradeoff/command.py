"""`fairwolfe tradeoff`: its options, and what is done in which order."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairwolfe.cli.printing import (
    as_json,
    finite,
    make_folder,
    out_option,
    print_files,
    print_json,
    print_rows,
    progress_bar,
)
from fairwolfe.errors import FairwolfeError, InvalidInput, MissingExtra, require_extra

if TYPE_CHECKING:
    from fairwolfe.cli.tradeoff.page import Content

__all__ = ["tradeoff"]

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
@click.option("--objective", default="gini", show_default=True, help="Of the items' exposures.")
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
def tradeoff(
    world: str,
    slots: int | None,
    group_column: str | None,
    out: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Show what fairness costs in WORLD, and which trade-off is the best possible.

    WORLD is a table of your own (CSV, TSV, either of them gzipped, Parquet, xlsx) of users, items
    and counts, or the name of an environment with rankings. The certified optima of utility plus
    beta times the objective are computed, with as many betas as the curve needs; a learning policy
    is played for some of them, beside a baseline. A table, sentences, and the files tradeoff.html
    (a page with everything in it), tradeoff.png, tradeoff.svg and tradeoff.json come out; with
    --group-column also groups.csv.
    """
    from fairwolfe.cli.tradeoff.world import in_options

    try:
        _run(world, slots, group_column, out, as_json, options)
    except MissingExtra:  # of a part, which knows its own extra only
        require_extra("tradeoff", "fairwolfe tradeoff")
        raise
    except FairwolfeError as error:
        raise type(error)(in_options(str(error))) from error


def _run(
    name: str,
    slots: int | None,
    group_column: str | None,
    out: Path,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    from fairwolfe.cli.tradeoff import handing
    from fairwolfe.cli.tradeoff.page import Content
    from fairwolfe.cli.tradeoff.world import in_options, world_of
    from fairwolfe.fairness.tradeoff import groups, plan, words
    from fairwolfe.fairness.tradeoff.result import FAIR
    from fairwolfe.lab.local import cores
    from fairwolfe.objectives import GiniEquality, GiniWelfare

    require_extra("tradeoff", "fairwolfe tradeoff", "jinja2", "matplotlib")
    if options["ask"] and options["give_up"] is not None:
        raise InvalidInput("--ask and --give-up both choose a beta; give one of them")
    save = None if options["save"] is None else handing.place(options["save"])
    sizes = ("users", "items", "user_column", "item_column", "count_column")
    given = {size: options[size] for size in sizes if options[size] is not None}
    world = world_of(name, slots, group_column, given)
    setup = plan(
        world.environment,
        options["objective"],
        options["betas"],
        floors=options["floors"],
        horizon=options["horizon"],
        seeds=options["seeds"],
        exploration=options["exploration"],
        jobs=options["jobs"] or cores(),
        tolerance=options["tolerance"],
    )
    today = options["implied"] or {}
    if "gini" in today and not isinstance(setup.items, GiniEquality | GiniWelfare):
        raise InvalidInput(
            f"--implied has gini, and --objective {options['objective']} is not a function of the "
            "Gini index; give item_objective, as in tradeoff.json"
        )
    make_folder(out)
    for note in (*world.notes, world.clicks):
        click.echo(in_options(note), err=True)
    with progress_bar() as progress:
        progress.add_task("the best possible", total=None)  # how long is not known
        reached = setup.reach()
    if save is not None:  # an error is raised before the work
        handing.agent_of(world, reached, 0.0, setup.exploration)
    chosen, why, sentences, choice = _choose(reached, options)
    setup = setup.aimed(reached, *([] if chosen is None else [chosen]))
    with progress_bar() as progress:
        task = progress.add_task("playing", total=setup.rounds)
        outcome = setup.run(lambda n: progress.update(task, advance=n), reached)
    if chosen is None:
        learnt = [row for row in outcome.table() if row["policy"] == FAIR]
        chosen, why = learnt[words.knee(learnt)]["beta"], "where the curve turns"
    who: tuple[dict[str, Any], ...] = ()
    if world.groups is not None:
        who = tuple(outcome.by_group(world.groups, sorted({0.0, *outcome.betas})))
        sentences.append(groups.sentence(list(who), chosen))
    files = outcome.draw(out)
    if save is not None:
        agent = handing.agent_of(world, outcome, chosen, setup.exploration)
        files = [*handing.hand_over(save, agent, world, outcome.seeds[0]), *files]
        sentences.append(
            f"{save.name} holds an agent with beta = {chosen:.3g} ({why}), which has learnt "
            f'nothing yet: agent = fw.Agent.load("{save.name}"), then agent.act(user) with the '
            f"factors of a user, as in {files[1].name}."
        )
    content = Content(
        world=world,
        name=Path(name).name,
        command=shlex.join(["fairwolfe", *sys.argv[1:]]),
        outcome=outcome,
        chosen=chosen,
        why=why,
        status_quo=(today["gini"], today["utility"]) if "gini" in today else None,
        sentences=(*sentences, *outcome.sentences()),
        groups=who,
    )
    document = _document(content) | choice
    files += _written_files(out, content, document)
    if as_json:
        print_json(document | {"files": [str(file) for file in files]})
        return
    _print_table(outcome, document["table"])
    print_files(files, content.sentences)


def _document(content: Content) -> dict[str, Any]:
    """All numbers and sentences, for JSON."""
    outcome = content.outcome
    return {
        "table": [finite(row) for row in outcome.table()],
        "sentences": list(content.sentences),
        "seeds": list(outcome.seeds),
        "frontier": [finite(row) for row in outcome.rows()],
        "beta": content.chosen,
        "why": content.why,
        "clicks": content.world.clicks,
    }


def _choose(
    reached: Any, options: dict[str, Any]
) -> tuple[float | None, str, list[str], dict[str, Any]]:
    """The requested beta, where it comes from, sentences about it, and the same as JSON."""
    from fairwolfe.cli.tradeoff.asking import ask
    from fairwolfe.fairness import elicit

    chosen, why, sentences = None, "", []
    choice: dict[str, Any] = {}
    if options["implied"] is not None:
        implied = reached.implied(options["implied"])
        sentences.append(implied.sentence)
        better = implied.dominated_by
        choice["implied"] = {
            "beta": finite(implied.beta),
            "regret": finite(implied.regret),
            "nearest": implied.nearest,
            "attainable": implied.attainable,
            "dominated_by": None if better is None else better._asdict(),
        }
    if options["give_up"] is not None:
        given_up = reached.give_up(options["give_up"])
        chosen, why = given_up.beta, f"for at most {100 * options['give_up']:g} %"
        sentences.append(given_up.sentence)
        choice["give_up"] = finite(given_up._asdict())
    if options["ask"]:
        questions = elicit(reached)
        ask(questions)
        sentences += questions.sentences()
        if questions.answers:
            chosen, why = questions.beta, "by your answers"
            choice["ask"] = {
                "answers": list(questions.answers),
                "beta": questions.beta,
                "interval": list(questions.interval(0.9)),
                "noise": questions.noise,
                "contradictions": questions.contradictions,
            }
    return chosen, why, sentences, choice


def _written_files(out: Path, content: Content, document: dict[str, Any]) -> list[Path]:
    """The page, the numbers, and who gains."""
    import csv
    import json

    from fairwolfe.cli.tradeoff.page import html

    page, data = out / "tradeoff.html", out / "tradeoff.json"
    page.write_text(html(content), encoding="utf-8")
    data.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    files = [page, data]
    if content.groups:
        files.append(out / "groups.csv")
        with open(files[-1], "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, [*content.groups[0], "plays_share"], lineterminator="\n")
            writer.writeheader()
            for row in content.groups:
                writer.writerow(row | {"plays_share": content.world.plays[row["group"]]})
    return files


def _print_table(outcome: Any, rows: list[dict[str, Any]]) -> None:
    several = {"95 % interval": "{utility_low} - {utility_high}"} if len(outcome.seeds) > 1 else {}
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
            **({"violation": "{violation}"} if outcome.constraints is not None else {}),
        },
        [_written(row) for row in rows],
        less=("top decile", "f", "95 % interval", "floor", "violation", "below the best"),
    )


def _written(row: dict[str, Any]) -> dict[str, str]:
    forms = {"bottom_half": "{:.0%}", "top_decile": "{:.0%}", "below_best_percent": "{:.2f} %"}
    forms |= {"policy": "{}", "beta": "{:.3g}", "floor": "{:.3g}"}
    return {k: "" if v is None else forms.get(k, "{:.3f}").format(v) for k, v in row.items()}
