"""`fairwolfe serve` and `fairwolfe keys`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from fairwolfe.cli.printing import as_json, print_json
from fairwolfe.errors import InvalidInput, require_extra


@click.command(
    epilog="Example: fairwolfe serve --demo, or fairwolfe serve config.toml --listen 127.0.0.1:0"
)
@click.argument("file", metavar="[CONFIG.toml]", required=False, type=Path)
@click.option("--listen", metavar="HOST:PORT", help="Instead of that of the file; port 0: any.")
@click.option("--demo", is_flag=True, help="An embedded world and a simulated crowd; no file.")
def serve(file: Path | None, listen: str | None, demo: bool) -> None:
    """Serve decisions by HTTP.

    Every acknowledged answer is durable and counts once. The first line on stdout is `ready
    http://HOST:PORT`; where another process leads, `follows http://HOST:PORT` comes before it. Ends
    with exit code 0 at SIGTERM, 2 if it cannot start, 74 if the disk or the database fails, and 75
    if another process leads by now. SIGHUP: keys and limits of the file are read again.
    """
    if demo == (file is not None):
        raise InvalidInput("give the TOML file of a configuration, or --demo, and not both")
    require_extra("serve", "the service")
    if demo:
        from fairwolfe.service.demo import run_demo

        run_demo(listen or "127.0.0.1:0")
        return
    from fairwolfe.service.config import read
    from fairwolfe.service.serve import run
    from fairwolfe.service.store import DISK_FAILED, FENCED, Fenced, StoreFailed

    assert file is not None
    try:
        run(read(file, listen), read_again=partial(read, file, listen))
    except StoreFailed as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(FENCED if isinstance(error, Fenced) else DISK_FAILED) from error


@click.group(epilog="Example: fairwolfe keys new web --scope decide --scope feedback")
def keys() -> None:
    """Keys of the service."""


@keys.command(epilog="Example: fairwolfe keys new web --scope decide --scope feedback")
@click.argument("name", default="client")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice(["decide", "feedback", "read", "admin"]),
    default=("decide", "feedback"),
    show_default=True,
    help="What it may do; may be given several times.",
)
@as_json
def new(name: str, scopes: tuple[str, ...], as_json: bool) -> None:
    """Make a key, and its hash for the configuration."""
    from fairwolfe.service.keys import new_key

    key, digest = new_key()
    if as_json:
        print_json({"key": key, "name": name, "sha256": digest, "scopes": scopes})
        return
    listed = ", ".join(f'"{scope}"' for scope in dict.fromkeys(scopes))
    click.echo(f"key, for the client, shown this once:\n\n  {key}\n\nfor the configuration:\n")
    click.echo(f'[[keys]]\nname = "{name}"\nsha256 = "{digest}"\nscopes = [{listed}]')
