"""The command `fairwolfe`, one file for each of its commands.

Exit codes: 0 done, 1 something that was examined failed, 2 bad input (one sentence on stderr, no
traceback). Tables and JSON go to stdout, progress to stderr. Everything heavy is imported by the
command that needs it, so that ``fairwolfe --help`` answers at once.
"""

from __future__ import annotations

from typing import Any

import click

from fairwolfe.cli.check import check, data, list_command
from fairwolfe.cli.demo import demo
from fairwolfe.cli.evaluate import evaluate
from fairwolfe.cli.lab import bench, report, reproduce, run
from fairwolfe.cli.log import log
from fairwolfe.cli.serve import keys, serve
from fairwolfe.cli.tradeoff import tradeoff
from fairwolfe.errors import FairwolfeError, did_you_mean

__all__ = ["commands", "main"]


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


for _command in (
    bench,
    check,
    data,
    demo,
    evaluate,
    keys,
    list_command,
    log,
    report,
    reproduce,
    run,
    serve,
    tradeoff,
):
    commands.add_command(_command)
