"""`fairwolfe init`."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import click

from fairwolfe.cli.printing import make_folder
from fairwolfe.errors import InvalidInput

_KINDS = ("shop", "ranking", "router")


@click.command(epilog="Example: fairwolfe init shop my-shop")
@click.argument("kind", metavar="|".join(_KINDS), type=click.Choice(_KINDS))
@click.argument("folder", required=False, type=click.Path(file_okay=False, path_type=Path))
def init(kind: str, folder: Path | None) -> None:
    """Write a configuration that works, and a client to try it.

    shop: one offer a page, a limit on the rate of returns, products as dictionaries. ranking: a
    front page, fair to the makers of the items. router: which language model answers a request,
    within a budget. FOLDER is the name of the kind where it is not given.
    """
    folder = Path(kind) if folder is None else folder
    source = files("fairwolfe.cli") / "templates" / kind
    templates = sorted((one for one in source.iterdir() if one.is_file()), key=lambda one: one.name)
    for one in templates:
        if (folder / one.name).exists():
            raise InvalidInput(f"{folder / one.name} exists already; name another folder")
    make_folder(folder)
    for one in templates:
        (folder / one.name).write_bytes(one.read_bytes())
        click.echo(folder / one.name)
    click.echo(
        f"\nStart the service and, in another terminal, the client:\n\n"
        f"  fairwolfe serve {folder / 'config.toml'}\n  python {folder / 'client.py'}"
    )
