"""`fairwolfe data`."""

from __future__ import annotations

from pathlib import Path

import click

from fairwolfe.cli.printing import as_json, print_json, progress_bar
from fairwolfe.errors import MissingData

__all__ = ["data"]


@click.command(epilog="Example: fairwolfe data lastfm")
@click.argument("name", type=click.Choice(["lastfm"]))
@click.option("--from", "source", metavar="URL", help="Another address of the archive.")
@click.option(
    "--to",
    "root",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Where its folder is made (default: the user's cache).",
)
@as_json
def data(name: str, source: str | None, root: Path | None, as_json: bool) -> None:
    """Download a data set from its publisher.

    lastfm: who listened to which artist how often, for the worlds lastfm-50 and lastfm-2k. The
    checksum of the file is checked before it is written; if it exists, nothing is downloaded.
    """
    from fairwolfe.environments import lastfm

    present = lastfm.present(root)
    target = present or lastfm.target(root)
    if not as_json:
        click.echo(lastfm.LICENCE)
    if present is None:
        _download(source or lastfm.URL, target)
    if as_json:
        row = {"name": name, "file": str(target), "downloaded": present is None}
        print_json(row | {"sha256": lastfm.SHA256, "licence": lastfm.LICENCE})
        return
    click.echo(f"{target} {'is there now' if present is None else 'is there already'}")
    if target not in lastfm.places():
        click.echo(f"To have it found there: export FAIRWOLFE_DATA={root}")


def _download(source: str, target: Path) -> None:
    from fairwolfe.data.downloads import download
    from fairwolfe.environments import lastfm

    try:
        with progress_bar() as progress:
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
