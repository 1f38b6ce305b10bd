"""`fairwolfe warm`."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from time import perf_counter
from typing import Any

import click

from fairwolfe.cli.printing import as_json, import_from_here, print_json
from fairwolfe.errors import InvalidInput

__all__ = ["warm"]


@click.command(epilog="Example: fairwolfe warm agent.fw")
@click.argument("file", metavar="[AGENT.fw|SPEC.toml]", required=False, type=Path)
@as_json
def warm(file: Path | None, as_json: bool) -> None:
    """Compile now what would be compiled at the first use, once on a machine.

    Without a file: everything. With a saved agent, or the TOML file of an experiment: what it
    needs. What is compiled is kept in the user's cache, or in $FAIRWOLFE_CACHE.
    """
    from fairwolfe.kernels.compile import at_hand, kept_in, warm_all

    began = perf_counter()
    with redirect_stdout(sys.stderr):  # what modules of the user's print
        if file is None:
            warm_all()
        else:
            _warm_for(file)
    count, seconds, folder = at_hand(), perf_counter() - began, kept_in()
    if as_json:
        where = None if folder is None else str(folder)
        print_json({"kernels": count, "seconds": seconds, "folder": where})
        return
    kept = "not kept" if folder is None else f"kept in {folder}"
    click.echo(f"{count} kernels ready in {seconds:.1f} s, {kept}")


def _warm_for(file: Path) -> None:
    if not file.is_file():
        raise InvalidInput(
            f"there is no file {file}; give a saved agent or the TOML file of an experiment, or "
            "leave it out to compile everything"
        )
    import_from_here()
    if file.suffix != ".toml":
        from fairwolfe.agent import Agent

        agent: Any = Agent.load(file)
        agent.warm()
        return
    from fairwolfe import lab
    from fairwolfe.kernels.compile import ready
    from fairwolfe.lab.build import build
    from fairwolfe.simulation.rollout import needed

    parts = [build(cell.settings, cell.label) for cell in lab.load(file).cells]
    ready(kernel for one in parts for kernel in needed(one.policy, one.environment))
