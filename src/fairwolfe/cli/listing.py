"""`fairwolfe list`."""

from __future__ import annotations

import click

from fairwolfe.cli.printing import as_json, print_json, print_table
from fairwolfe.errors import FairwolfeError

__all__ = ["list_command"]


@click.command("list", epilog="Example: fairwolfe list objectives")
@click.argument("kind", required=False)
@as_json
def list_command(kind: str | None, as_json: bool) -> None:
    """List what can be used by name.

    KIND is a plural such as objectives or smoothings; without it everything is listed.
    """
    from fairwolfe.core.registry import KINDS, names

    rows = [
        {"kind": group, "name": name, **_described(group, name)}
        for group in ([kind] if kind else KINDS)
        for name in names(group)
    ]
    if as_json:
        print_json(rows)
        return
    columns = ("name", "class", "summary") if kind else ("kind", "name", "class", "summary")
    print_table(columns, ([row[column] for column in columns] for row in rows))


def _described(kind: str, name: str) -> dict[str, str]:
    from inspect import getdoc

    from fairwolfe.core.registry import KINDS, load

    address = KINDS[kind].get(name, "")
    try:
        entry = load(kind, name)
    except FairwolfeError as error:
        # One plug-in that cannot be imported must not hide the others.
        return {"class": address, "summary": f"cannot be loaded: {error}"}
    summary = (getdoc(entry) or "").strip().partition("\n")[0]
    return {"class": address or f"{entry.__module__}:{entry.__qualname__}", "summary": summary}
