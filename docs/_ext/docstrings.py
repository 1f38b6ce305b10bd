"""Docstrings are plain text for whoever reads the code; this makes reStructuredText of them.

Parameters stand as ``name: what it is``, with further lines indented. Stars, bars and underscores
mean themselves. Further indented lines are a drawing or code, kept as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from sphinx.application import Sphinx

# Code between back quotes, and a word or two between stars.
MARKED = re.compile(r"(``.+?``|`[^`]+`|(?<![\w*])[*]\w[\w -]*[*](?![\w*]))")
SPECIAL = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")
UNDERLINE = re.compile(r"-{3,}$")
ENTRY = re.compile(r"([*]{0,2}[a-z_]\w*(?:, [*]{0,2}[a-z_]\w*)*) ?: (.*)")
BULLET = re.compile(r"\s*(-|\d[.]) ")


def escaped(text: str) -> str:
    """A line in which only code and words between stars are marked up."""
    parts = MARKED.split(text)
    parts[::2] = [SPECIAL.sub(r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def paragraphs(lines: list[str]) -> Iterator[list[str]]:
    """The lines between empty lines."""
    found: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            found.append(line)
        elif found:
            yield found
            found = []


def fields(lines: list[str]) -> list[str]:
    """Lines ``name: what it is`` as a list."""
    made = [""]
    for line in lines:
        entry = ENTRY.match(line)
        if entry:
            names = ", ".join(f"``{name}``" for name in entry[1].split(", "))
            made.append(f"- {names}: {escaped(entry[2])}")
        else:
            made.append(f"  {escaped(line.strip())}")
    return made


def is_fields(lines: list[str]) -> bool:
    """Whether every line that is not indented begins with a name, and there are several."""
    heads = [line for line in lines if not line.startswith(" ")]
    return len(heads) > 1 and all(ENTRY.match(line) for line in heads)


def rest(lines: list[str]) -> list[str]:
    """The reStructuredText of a docstring.

    >>> rest(["A norm |x|.", "", "Parameters", "----------", "x: a vector", "    of numbers"])
    ['A norm \\\\|x\\\\|.', '', '', '- ``x``: a vector', '  of numbers', '']
    """
    made: list[str] = []
    listed = False
    for paragraph in paragraphs(lines):
        if len(paragraph) > 1 and UNDERLINE.match(paragraph[1]):
            made += fields(paragraph[2:])
        elif is_fields(paragraph):
            made += fields(paragraph)
        elif paragraph[0].startswith(">>>"):
            made += paragraph
        elif all(line.startswith("  ") for line in paragraph) and not listed:
            announced = len(made) > 1 and made[-2].endswith("::")
            made += paragraph if announced else [".. code-block:: text", "", *paragraph]
        else:
            made += [escaped(line) for line in paragraph]
        listed = any(BULLET.match(line) for line in paragraph)
        made.append("")
    return made


def process(app: Any, what: str, name: str, subject: Any, options: Any, lines: list[str]) -> None:
    lines[:] = rest(lines)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", process)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
