"""`fairwolfe report`."""

from __future__ import annotations

from pathlib import Path

import click

from fairwolfe.cli.printing import as_json, print_json

__all__ = ["report"]


@click.command(epilog="Example: fairwolfe report out/music")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The page.  [default: DIR/report.html]",
)
@as_json
def report(folder: Path, out: Path | None, as_json: bool) -> None:
    """Show the results in a folder, in words, tables and figures.

    The page is one file without scripts, which needs nothing else. The figures as SVG and PNG and
    the curves as CSV are in DIR/report. The folder may be of a sweep that is not complete.
    """
    from fairwolfe.lab.report import report as write

    content, files = write(folder, out)
    if as_json:
        print_json(content.document() | {"files": [str(file) for file in files]})
        return
    for sentence in content.summary():
        click.echo(sentence)
    for group in content.groups:
        if group.title:
            click.echo(f"\n{group.title}")
        for sentence in group.sentences():
            click.echo(f"- {sentence}")
    click.echo(f"\n{files[0]}")
