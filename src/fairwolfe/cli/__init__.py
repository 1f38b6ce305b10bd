"""The command `fairwolfe`, one file for each of its commands.

Exit codes: 0 done, 1 something that was examined failed, 2 bad input (one sentence on stderr, no
traceback). Tables and JSON go to stdout, progress to stderr. Everything heavy is imported by the
command that needs it, so that ``fairwolfe --help`` answers at once.
"""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

from fairwolfe.cli.check import check, data, list_command
from fairwolfe.cli.demo import demo
from fairwolfe.cli.evaluate import evaluate
from fairwolfe.cli.init import init
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


_START = """\
Contextual bandits for several rewards at once, with limits and fairness.

  fairwolfe demo            see what it does, in a table and a figure
  fairwolfe serve --demo    a decision service with visitors, and a page to look at
  fairwolfe init shop       write a configuration and a client of your own
  fairwolfe --help          every command"""


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    invoke_without_command=True,
    epilog="Example: fairwolfe demo",
)
@click.version_option(package_name="fairwolfe")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Contextual bandits with concave rewards, and fair ranking."""
    if ctx.invoked_subcommand is None:
        click.echo(_START)


@click.command(epilog="Example: fairwolfe completion bash >> ~/.bashrc")
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
def completion(shell: str) -> None:
    """Print what completes commands and options in a shell."""
    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(commands, {}, "fairwolfe", "_FAIRWOLFE_COMPLETE").source())


for _command in (
    bench,
    check,
    completion,
    data,
    demo,
    evaluate,
    init,
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
