"""`fairwolfe demo`."""

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
from fairwolfe.errors import require_extra

__all__ = ["demo"]


@click.command(epilog="Example: fairwolfe demo --out pictures")
@click.argument("subject", type=click.Choice(["ranking", "music", "objectives"]), default="ranking")
@out_option
@as_json
def demo(subject: str, out: Path, as_json: bool) -> None:
    """Show what this library does, in a table and a figure.

    ranking (the default): four ranking policies in the embedded world, against the best trade-off
    of clicks and fairness that any policy can reach there. music: five policies for arms in the
    paper's synthetic music world. objectives: what each objective prefers when two rewards can be
    traded against each other.
    """
    # Errors that would come at the end are raised before the work: no matplotlib, no such folder.
    require_extra("plot", "the demo", "matplotlib")
    make_folder(out)
    shows = {"ranking": _demo_ranking, "music": _demo_music, "objectives": _demo_objectives}
    shows[subject](out, as_json)


def _demo_ranking(out: Path, as_json: bool) -> None:
    from fairwolfe.cli.demos import fair_ranking

    columns = {
        "policy": "{policy}",
        "clicks": "{utility:.3f}",
        "Gini": "{gini:.3f}",
        "bottom half": "{bottom_half:.0%}",
        "f": "{value:.4f}",
        "below the best": "{below_best_percent:.2f} %",
        "us/round": "{us_per_round:.0f}",
    }
    _compared(fair_ranking, columns, out, as_json)


def _demo_music(out: Path, as_json: bool) -> None:
    from fairwolfe.cli.demos import music

    columns = {
        "policy": "{policy}",
        f"f after {music.HORIZON:,} rounds": "{value:.4f}",
        "95 % interval": "{low:.3f} - {high:.3f}",
        "below the best": "{below_best_percent:.2f} %",
        "us/round": "{us_per_round:.0f}",
    }
    _compared(music, columns, out, as_json)


def _compared(subject: Any, columns: dict[str, str], out: Path, as_json: bool) -> None:
    """Play the policies of a module of `demos`, and show what it found."""
    with progress_bar() as progress:
        task = progress.add_task("playing", total=subject.ROUNDS)
        shown = subject.run(progress=lambda n: progress.update(task, advance=n))
    files = shown.draw(out)
    if as_json:
        print_json({"policies": shown.rows(), "figures": [str(file) for file in files]})
        return
    print_rows(columns, shown.rows())
    print_files(files, shown.sentences())


def _demo_objectives(out: Path, as_json: bool) -> None:
    from fairwolfe.cli.demos import preferences

    with progress_bar() as progress:
        task = progress.add_task("asking each objective", total=len(preferences.panels()) + 1)
        walks = []
        for walk in preferences.walks():
            walks.append(walk)
            progress.update(task, advance=1, description=walk.panel.name)
        progress.update(task, description="drawing")
        files = preferences.draw(walks, out)
    if as_json:
        rows = [walk.row() for walk in walks]
        print_json({"objectives": rows, "figures": [str(file) for file in files]})
        return
    first, second = preferences.REWARDS
    print_rows(
        {
            "objective": "{objective}",
            f"preferred {first}": f"{{{first}:.3f}}",
            second: f"{{{second}:.3f}}",
            "value": "{value:.3f}",
        },
        [walk.row() for walk in walks],
    )
    print_files(files)
