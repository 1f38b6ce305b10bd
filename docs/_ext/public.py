"""``{public} fairwolfe.objectives``: every name of a module's ``__all__``, with its docstring.

A table of all names with their first sentences comes first, then each name by autodoc. Names that
`fairwolfe` itself has too are told there, and modules on pages of their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

from docstrings import escaped
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

TOP = "fairwolfe"
# Modules whose classes have optional methods that only the library itself calls, and these: they
# are told in the docstrings of the contracts.
DERIVED = ("bandits", "oracles", "ranking", "reduction")
OPTIONAL = {
    *("catalogue", "choose", "decides", "doubt", "drift", "draws", "estimate", "learnt", "look"),
    *("look_name", "needs_direction", "repair", "resume", "rule", "rule_name", "running", "tuned"),
    *("with_features", "with_items", "without_items"),
}


def sentence(subject: Any) -> str:
    """The first sentence of a docstring.

    >>> sentence(sentence)
    'The first sentence of a docstring.'
    """
    text = " ".join((inspect.getdoc(subject) or "").split("\n\n")[0].split())
    head, stop, _ = text.partition(". ")
    return escaped(head + stop.strip())


def target(module: str, name: str) -> str:
    """Where a name is told."""
    subject = getattr(import_module(module), name)
    if isinstance(subject, ModuleType):
        return subject.__name__
    top = import_module(TOP)
    known = name in top.__all__ and getattr(top, name) is subject
    return f"{TOP if known else module}.{name}"


def left_out(module: str, subject: type) -> list[str]:
    """Members of a class that nobody calls by hand."""
    optional = OPTIONAL if module.removeprefix(f"{TOP}.") in DERIVED else set()
    return sorted({"examples", "rule_params", "uniforms"} | optional)


def home(subject: type) -> str:
    """The folder that a class is in."""
    return ".".join(subject.__module__.split(".")[:2])


def inherits(module: str, subject: type) -> bool:
    """Whether a class has bases that a reader can look up."""
    known = import_module(module).__all__
    return any(issubclass(b, Exception) or b.__name__ in known for b in subject.__bases__)


def entry(module: str, name: str) -> Iterator[str]:
    """The directives that document a name."""
    subject = getattr(import_module(module), name)
    address, told = f"{module}.{name}", target(module, name)
    if address == told and inspect.isclass(subject):
        yield from (f".. autoclass:: {address}", "   :members:")
        yield f"   :exclude-members: {', '.join(left_out(home(subject), subject))}"
        if inherits(module, subject):
            yield "   :show-inheritance:"
    elif address == told and callable(subject):
        yield f".. autofunction:: {address}"
    elif address != told:
        kind = "class" if inspect.isclass(subject) else "data"
        yield from (f".. py:{kind}:: {name}", f"   :module: {module}", "")
        yield f"   The same as :py:obj:`{told}`."
    elif not isinstance(subject, ModuleType):
        yield from (f".. py:data:: {name}", f"   :module: {module}", "")
        yield from (f"   {line}" for line in contents(subject))
    yield ""


def contents(value: Any) -> Iterator[str]:
    """What a constant holds: the checks of a list, the keys of a dict, or its own text."""
    if isinstance(value, dict):
        yield ", ".join(f"``{key}``" for key in value)
    elif isinstance(value, list):
        yield from (f"- ``{one.__name__}``: {sentence(one)}" for one in value)
    else:
        yield f"``{value!r}``"


def brief(subject: Any) -> str:
    """A name in a line: the first sentence, or of a constant how much it holds."""
    if callable(subject) or isinstance(subject, ModuleType):
        return sentence(subject)
    return f"{len(subject)} checks." if isinstance(subject, list) else "".join(contents(subject))


class Public(SphinxDirective):
    """Every public name of a module."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = self.arguments[0]
        found = import_module(module)
        lines = [f".. automodule:: {module}", "   :no-members:", ""]
        lines += [".. list-table::", "   :class: names", "   :widths: auto", ""]
        for name in found.__all__:
            lines += [f"   * - :py:obj:`{name} <{target(module, name)}>`"]
            lines += [f"     - {brief(getattr(found, name))}"]
        lines += ["", *(line for name in found.__all__ for line in entry(module, name))]
        return self.parse_text_to_nodes("\n".join(lines))


def shorten(app: Sphinx, tree: nodes.document) -> None:
    """Only names of modules stand in the contents of a page, not the members of classes."""
    for told in tree.findall(addnodes.desc):
        if told.get("objtype") in ("attribute", "method", "property"):
            told["no-contents-entry"] = True


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-read", shorten, priority=100)
    app.add_directive("public", Public)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
