"""``.. command-help:: module:group``: what ``--help`` says of every part of a click command."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import click
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WIDTH = 88


def parts(
    command: click.Command, name: str, parent: click.Context | None = None
) -> Iterator[tuple[str, str]]:
    """A command and its parts, each with its help.

    >>> list(parts(click.Command("go", help="Leave."), "go"))[0][0]
    'go'
    """
    sizes = {"terminal_width": WIDTH, "max_content_width": WIDTH}
    settings = sizes | command.context_settings
    context = click.Context(command, parent, info_name=name, **settings)
    yield context.command_path, command.get_help(context)
    if isinstance(command, click.Group):
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            if found is not None and not found.hidden:
                yield from parts(found, part, context)


class CommandHelp(SphinxDirective):
    """A section for each part of a command."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module, _, group = self.arguments[0].partition(":")
        command = getattr(import_module(module), group)
        made: list[nodes.Node] = []
        for name, text in parts(command, module.partition(".")[0]):
            section = nodes.section(ids=[nodes.make_id(name)], names=[name])
            section += nodes.title(name, "", nodes.literal(name, name))
            section += nodes.literal_block(text, text, language="text")
            made.append(section)
        return made


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_directive("command-help", CommandHelp)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
