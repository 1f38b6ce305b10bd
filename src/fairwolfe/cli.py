"""The command `fairwolfe`.

Exit codes: 0 done, 1 something that was examined failed, 2 bad input (one sentence on stderr, no
traceback). Tables and JSON go to stdout, progress to stderr. Everything heavy is imported by the
command that needs it, so that ``fairwolfe --help`` answers at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fairwolfe.errors import FairwolfeError, InvalidInput, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from fairwolfe.checks import Outcome

__all__ = ["main"]


def main() -> None:
    """Run the command line and leave with its exit code."""
    commands(prog_name="fairwolfe")


class _Refused(click.ClickException):
    exit_code = 2


class _Commands(click.Group):
    """The one place where an error of the library becomes a sentence and exit code 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except FairwolfeError as error:
            raise _Refused(str(error)) from error

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            near = did_you_mean(name, self.list_commands(ctx))
            raise click.UsageError(f"there is no command {name!r}; {near}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: fairwolfe demo",
)
@click.version_option(package_name="fairwolfe")
def commands() -> None:
    """Contextual bandits with concave rewards, and fair ranking."""


_as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


# --- demo ------------------------------------------------------------------------------------


@commands.command(epilog="Example: fairwolfe demo --out pictures")
@click.argument("subject", type=click.Choice(["ranking", "music", "objectives"]), default="ranking")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out"),
    show_default=True,
    metavar="DIR",
    help="Where the figure is written.",
)
@_as_json
def demo(subject: str, out: Path, as_json: bool) -> None:
    """Show what this library does, in a table and a figure.

    ranking (the default): four ranking policies in the embedded world, against the best trade-off
    of clicks and fairness that any policy can reach there. music: five policies for arms in the
    paper's synthetic music world. objectives: what each objective prefers when two rewards can be
    traded against each other.
    """
    from fairwolfe.simulation.plots import require_matplotlib

    # What would spoil the end is better said before the work: no matplotlib, no such folder.
    require_matplotlib()
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidInput(f"{out} cannot be made a folder: {error.strerror}") from error
    shows = {"ranking": _demo_ranking, "music": _demo_music, "objectives": _demo_objectives}
    shows[subject](out, as_json)


def _demo_ranking(out: Path, as_json: bool) -> None:
    from fairwolfe.lab import fair_ranking

    with _progress() as progress:
        task = progress.add_task("ranking", total=fair_ranking.ROUNDS)
        shown = fair_ranking.run(progress=lambda n: progress.update(task, advance=n))
    files = shown.draw(out)
    rows = shown.rows()
    if as_json:
        _print_json({"policies": rows, "figures": [str(file) for file in files]})
        return
    _print_table(
        ("policy", "clicks", "Gini", "bottom half", "f", "below the best", "us/round"),
        (
            (
                row["policy"],
                f"{row['clicks']:.3f}",
                f"{row['gini']:.3f}",
                f"{100 * row['bottom_half']:.0f} %",
                f"{row['value']:.4f}",
                f"{row['below_best_percent']:.2f} %",
                f"{row['us_per_round']:.0f}",
            )
            for row in rows
        ),
        numbers=6,
    )
    click.echo()
    for sentence in shown.sentences():
        click.echo(sentence)
    for file in files:
        click.echo(file)


def _demo_music(out: Path, as_json: bool) -> None:
    from fairwolfe.lab import music

    with _progress() as progress:
        task = progress.add_task("playing", total=music.ROUNDS)
        shown = music.run(progress=lambda n: progress.update(task, advance=n))
    files = shown.draw(out)
    rows = shown.rows()
    if as_json:
        _print_json({"policies": rows, "figures": [str(file) for file in files]})
        return
    _print_table(
        (
            "policy",
            f"f after {music.HORIZON:,} rounds",
            "95 % interval",
            "below the best",
            "us/round",
        ),
        (
            (
                row["policy"],
                f"{row['value']:.4f}",
                f"{row['low']:.3f} - {row['high']:.3f}",
                f"{row['below_best_percent']:.2f} %",
                f"{row['us_per_round']:.0f}",
            )
            for row in rows
        ),
        numbers=4,
    )
    click.echo()
    for sentence in shown.sentences():
        click.echo(sentence)
    for file in files:
        click.echo(file)


def _demo_objectives(out: Path, as_json: bool) -> None:
    from fairwolfe.lab import preferences

    with _progress() as progress:
        task = progress.add_task("asking each objective", total=len(preferences.panels()) + 1)
        walks = []
        for walk in preferences.walks():
            walks.append(walk)
            progress.update(task, advance=1, description=walk.panel.name)
        progress.update(task, description="drawing")
        files = preferences.draw(walks, out)
    if as_json:
        rows = [walk.row() for walk in walks]
        _print_json({"objectives": rows, "figures": [str(file) for file in files]})
        return
    first, second = preferences.REWARDS
    _print_table(
        ("objective", f"preferred {first}", second, "value"),
        (
            (walk.panel.name, f"{walk.point[0]:.3f}", f"{walk.point[1]:.3f}", f"{walk.value:.3f}")
            for walk in walks
        ),
        numbers=3,
    )
    for file in files:
        click.echo(file)


def _progress() -> Progress:
    """A bar with the time left, on stderr, gone when done."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeLeft())
    return Progress(*columns, console=_console(stderr=True), transient=True)


# --- list ------------------------------------------------------------------------------------


@commands.command("list", epilog="Example: fairwolfe list objectives")
@click.argument("kind", required=False)
@_as_json
def list_command(kind: str | None, as_json: bool) -> None:
    """List what can be used by name.

    KIND is a plural such as objectives or smoothings; without it everything is listed.
    """
    from fairwolfe.registry import KINDS, names

    rows = [
        {"kind": group, "name": name, **_described(group, name)}
        for group in ([kind] if kind else KINDS)
        for name in names(group)
    ]
    if as_json:
        _print_json(rows)
        return
    columns = ("name", "class", "summary") if kind else ("kind", "name", "class", "summary")
    _print_table(columns, ([row[column] for column in columns] for row in rows))


def _described(kind: str, name: str) -> dict[str, str]:
    from inspect import getdoc

    from fairwolfe.registry import KINDS, load

    address = KINDS[kind].get(name, "")
    try:
        found = load(kind, name)
    except FairwolfeError as error:
        # One plug-in that cannot be imported must not hide the others.
        return {"class": address, "summary": f"cannot be loaded: {error}"}
    summary = (getdoc(found) or "").strip().partition("\n")[0]
    return {"class": address or f"{found.__module__}:{found.__qualname__}", "summary": summary}


# --- check -----------------------------------------------------------------------------------


@commands.command(epilog="Example: fairwolfe check my_module:MyObjective")
@click.argument("subject", metavar="MODULE:CLASS")
@_as_json
@click.pass_context
def check(ctx: click.Context, subject: str, as_json: bool) -> None:
    """Check that a class keeps its contract.

    Every check of its kind runs on every instance that the class's examples() returns. Modules of
    the current directory can be named, and so can the names of `fairwolfe list`. Exit code 0: all
    pass, 1: some fail, 2: the class cannot be loaded.
    """
    from contextlib import redirect_stdout

    from rich.markup import escape

    # What the user's module prints must not mix with the table or the JSON.
    with _console(stderr=True).status(f"checking {escape(subject)}"), redirect_stdout(sys.stderr):
        found = _outcomes(subject)
    failed = [outcome for outcome in found if outcome.error is not None]
    if as_json:
        _print_json(
            {
                "subject": subject,
                "checks": len(found),
                "failed": len(failed),
                "outcomes": [
                    {
                        "check": outcome.check,
                        "example": outcome.example,
                        "passed": outcome.error is None,
                        "message": _message(outcome),
                    }
                    for outcome in found
                ],
            }
        )
    else:
        _print_outcomes(found, failed)
    ctx.exit(1 if failed else 0)


def _outcomes(subject: str) -> list[Outcome]:
    from fairwolfe import checks

    # As with `python -m`: what stands in the current directory can be imported.
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        return list(checks.outcomes(_class_of(subject)))
    except FairwolfeError:
        raise
    except Exception as error:
        # Raised by the user's module or by its examples(): the checks keep what they catch.
        raise InvalidInput(
            f"{subject} cannot be checked: {type(error).__name__}: {error}; it must be importable "
            "and its examples() must return instances"
        ) from error


def _class_of(subject: str) -> type:
    from fairwolfe.registry import KINDS, import_class, load, names

    if ":" in subject:
        return import_class(subject)
    known = {name: kind for kind in KINDS for name in names(kind)}
    if subject not in known:
        raise InvalidInput(
            f"there is no {subject!r}; give module:Class, or a name: {did_you_mean(subject, known)}"
        )
    return load(known[subject], subject)


def _print_outcomes(found: list[Outcome], failed: list[Outcome]) -> None:
    examples = list(dict.fromkeys(outcome.example for outcome in found))
    broken = {(outcome.check, outcome.example) for outcome in failed}
    numbers = [str(i) for i in range(1, len(examples) + 1)]
    _print_table(
        ("check", *numbers),
        (
            (_words(name), *("FAIL" if (name, e) in broken else "pass" for e in examples))
            for name in dict.fromkeys(outcome.check for outcome in found)
        ),
    )
    for number, example in zip(numbers, examples, strict=True):
        click.echo(f"{number}: {example}")
    for outcome in failed:
        click.echo(f"\n{outcome.example} fails {_words(outcome.check)!r}:\n  {_message(outcome)}")
    click.echo(f"\n{len(found)} checks, {len(failed)} failed")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _message(outcome: Outcome) -> str | None:
    error = outcome.error
    if error is None:
        return None
    return str(error) if isinstance(error, FairwolfeError) else f"{type(error).__name__}: {error}"


# --- printing --------------------------------------------------------------------------------


def _console(stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = 140  # a file or a pipe has no width of its own; 80 would cut the rows
    return console


def _print_table(columns: tuple[str, ...], rows: Iterable[Iterable[str]], numbers: int = 0) -> None:
    """A table whose last `numbers` columns are aligned to the right."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i >= len(columns) - numbers else "left")
    styles = {"pass": "green", "FAIL": "bold red"}
    for row in rows:
        # Text, not markup: a docstring or a repr may hold square brackets.
        table.add_row(*(Text(cell, style=styles.get(cell, "")) for cell in row))
    _console().print(table)


def _print_json(value: object) -> None:
    import json

    click.echo(json.dumps(value, indent=2))
