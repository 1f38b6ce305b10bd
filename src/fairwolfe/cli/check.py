"""`fairwolfe check`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from fairwolfe.cli.printing import as_json, console, import_from_here, print_json, print_table
from fairwolfe.errors import FairwolfeError, InvalidInput, did_you_mean

if TYPE_CHECKING:
    from fairwolfe.checks import Outcome

__all__ = ["check"]


@click.command(epilog="Example: fairwolfe check my_module:MyObjective")
@click.argument("subject", metavar="MODULE:CLASS")
@as_json
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
    with console(stderr=True).status(f"checking {escape(subject)}"), redirect_stdout(sys.stderr):
        outcomes = _outcomes(subject)
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if as_json:
        print_json(
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

    import_from_here()
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
    print_table(
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
