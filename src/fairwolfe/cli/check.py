"""`fairwolfe list`, `fairwolfe check` and `fairwolfe data`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fairwolfe.cli import printing
from fairwolfe.errors import FairwolfeError, InvalidInput, MissingData, did_you_mean

if TYPE_CHECKING:
    from fairwolfe.checks import Outcome


@click.command("list", epilog="Example: fairwolfe list objectives")
@click.argument("kind", required=False)
@printing.as_json
def list_command(kind: str | None, as_json: bool) -> None:
    """List what can be used by name.

    KIND is a plural such as objectives or smoothings; without it everything is listed.
    """
    from fairwolfe.core.registry import KINDS, names

    rows = [
        {"kind": group, "name": name, **_described(group, name)}
        for group in ([kind] if kind else KINDS)
        for name in names(group)
    ]
    if as_json:
        printing.print_json(rows)
        return
    columns = ("name", "class", "summary") if kind else ("kind", "name", "class", "summary")
    printing.print_table(columns, ([row[column] for column in columns] for row in rows))


def _described(kind: str, name: str) -> dict[str, str]:
    from inspect import getdoc

    from fairwolfe.core.registry import KINDS, load

    address = KINDS[kind].get(name, "")
    try:
        entry = load(kind, name)
    except FairwolfeError as error:
        # One plug-in that cannot be imported must not hide the others.
        return {"class": address, "summary": f"cannot be loaded: {error}"}
    summary = (getdoc(entry) or "").strip().partition("\n")[0]
    return {"class": address or f"{entry.__module__}:{entry.__qualname__}", "summary": summary}


@click.command(epilog="Example: fairwolfe check my_module:MyObjective")
@click.argument("subject", metavar="MODULE:CLASS")
@printing.as_json
@click.pass_context
def check(ctx: click.Context, subject: str, as_json: bool) -> None:
    """Check that a class keeps its contract.

    Every check of its kind runs on every instance that the class's examples() returns. Modules of
    the current directory can be named, and so can the names of `fairwolfe list`. Exit code 0: all
    pass, 1: some fail, 2: the class cannot be loaded.
    """
    from contextlib import redirect_stdout

    from rich.markup import escape

    from fairwolfe.kernels.loading import stale

    if sentence := stale():
        click.echo(sentence, err=True)
    # What the user's module prints must not mix with the table or the JSON.
    with (
        printing.console(stderr=True).status(f"checking {escape(subject)}"),
        redirect_stdout(sys.stderr),
    ):
        outcomes = _outcomes(subject)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if as_json:
        printing.print_json(
            {
                "subject": subject,
                "checks": len(outcomes),
                "failed": len(failed),
                "outcomes": [
                    {
                        "check": outcome.check,
                        "example": outcome.example,
                        "passed": outcome.error is None,
                        "message": _message(outcome),
                    }
                    for outcome in outcomes
                ],
            }
        )
    else:
        _print_outcomes(outcomes, failed)
    ctx.exit(1 if failed else 0)


def _outcomes(subject: str) -> list[Outcome]:
    from fairwolfe import checks

    printing.import_from_here()
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
    from fairwolfe.core.registry import KINDS, import_class, load, names

    if ":" in subject:
        return import_class(subject)
    known = {name: kind for kind in KINDS for name in names(kind)}
    if subject not in known:
        raise InvalidInput(
            f"there is no {subject!r}; give module:Class, or a name: {did_you_mean(subject, known)}"
        )
    return load(known[subject], subject)


def _print_outcomes(outcomes: list[Outcome], failed: list[Outcome]) -> None:
    examples = list(dict.fromkeys(outcome.example for outcome in outcomes))
    broken = {(outcome.check, outcome.example) for outcome in failed}
    numbers = [str(i) for i in range(1, len(examples) + 1)]
    printing.print_table(
        ("check", *numbers),
        (
            (_words(name), *("FAIL" if (name, e) in broken else "pass" for e in examples))
            for name in dict.fromkeys(outcome.check for outcome in outcomes)
        ),
    )
    for number, example in zip(numbers, examples, strict=True):
        click.echo(f"{number}: {example}")
    for outcome in failed:
        click.echo(f"\n{outcome.example} fails {_words(outcome.check)!r}:\n  {_message(outcome)}")
    click.echo(f"\n{len(outcomes)} checks, {len(failed)} failed")


def _words(name: str) -> str:
    return name.replace("_", " ")


def _message(outcome: Outcome) -> str | None:
    error = outcome.error
    if error is None:
        return None
    return str(error) if isinstance(error, FairwolfeError) else f"{type(error).__name__}: {error}"


@click.command(epilog="Example: fairwolfe data lastfm")
@click.argument("name", type=click.Choice(["lastfm"]))
@click.option("--from", "source", metavar="URL", help="Another address of the archive.")
@printing.path_option("--to", "root", help="Where its folder is made (default: the user's cache).")
@printing.as_json
def data(name: str, source: str | None, root: Path | None, as_json: bool) -> None:
    """Download a data set from its publisher.

    lastfm: who listened to which artist how often, for the worlds lastfm-50 and lastfm-2k. The
    checksum of the file is checked before it is written; if it exists, nothing is downloaded.
    """
    from fairwolfe.environments import listening as lastfm

    present = lastfm.present(root)
    target = present or lastfm.target(root)
    if not as_json:
        click.echo(lastfm.LICENCE)
    if present is None:
        _download(source or lastfm.URL, target)
    if as_json:
        row = {"name": name, "file": str(target), "downloaded": present is None}
        printing.print_json(row | {"sha256": lastfm.SHA256, "licence": lastfm.LICENCE})
        return
    click.echo(f"{target} {'is there now' if present is None else 'is there already'}")
    if target not in lastfm.places():
        click.echo(f"To have it found there: export FAIRWOLFE_DATA={root}")


def _download(source: str, target: Path) -> None:
    from fairwolfe.environments import listening as lastfm
    from fairwolfe.environments.downloads import download

    try:
        with printing.progress_bar() as progress:
            task = progress.add_task("downloading", total=None)
            download(
                source,
                lastfm.FILE,
                lastfm.SHA256,
                target,
                lambda done, of: progress.update(task, completed=done, total=of),
            )
    except KeyboardInterrupt as stopped:
        raise MissingData("the download was stopped; nothing was written") from stopped
