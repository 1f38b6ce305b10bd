"""`fairwolfe demo`."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import click

from fairwolfe.cli import printing
from fairwolfe.errors import require_extra

_MODULES = {"ranking": "fair_ranking", "music": "music"}


@click.command(epilog="Example: fairwolfe demo --out pictures")
@click.argument("subject", type=click.Choice(["ranking", "music", "objectives"]), default="ranking")
@printing.out_option
@printing.as_json
def demo(subject: str, out: Path, as_json: bool) -> None:
    """Show what this library does, in a table and a figure.

    ranking (the default): four ranking policies in the embedded world, against the best trade-off
    of clicks and fairness that any policy can reach there. music: five policies for arms in the
    paper's synthetic music world. objectives: what each objective prefers when two rewards can be
    traded against each other.
    """
    # Errors that would come at the end are raised before the work: no matplotlib, no such folder.
    require_extra("plot", "the demo", "matplotlib")
    printing.make_folder(out)
    if subject == "objectives":
        _show_objectives(out, as_json)
    else:
        _show_policies(import_module(f"fairwolfe.cli.demos.{_MODULES[subject]}"), out, as_json)


def _show_policies(subject: Any, out: Path, as_json: bool) -> None:
    """Play the policies of a module of `demos`, and show what it found."""
    with printing.progress_bar() as progress:
        task = progress.add_task("playing", total=subject.ROUNDS)
        shown = subject.run(progress=lambda n: progress.update(task, advance=n))
    files = shown.draw(out)
    if as_json:
        printing.print_json({"policies": shown.rows(), "figures": [str(file) for file in files]})
        return
    printing.print_rows(subject.COLUMNS, shown.rows())
    printing.print_files(files, shown.sentences())


def _show_objectives(out: Path, as_json: bool) -> None:
    from fairwolfe.cli.demos import preferences

    with printing.progress_bar() as progress:
        task = progress.add_task("asking each objective", total=len(preferences.panels()) + 1)
        walks = []
        for walk in preferences.walks():
            walks.append(walk)
            progress.update(task, advance=1, description=walk.panel.name)
        progress.update(task, description="drawing")
        files = preferences.draw(walks, out)
    if as_json:
        rows = [walk.row() for walk in walks]
        printing.print_json({"objectives": rows, "figures": [str(file) for file in files]})
        return
    first, second = preferences.REWARDS
    printing.print_rows(
        {
            "objective": "{objective}",
            f"preferred {first}": f"{{{first}:.3f}}",
            second: f"{{{second}:.3f}}",
            "value": "{value:.3f}",
        },
        [walk.row() for walk in walks],
    )
    printing.print_files(files)
