"""docs/paper-to-code.md: every name on it is there, and no number of the paper is left out."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fairwolfe as fw
from fairwolfe.lab.paper.studies import figures

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "paper-to-code.md").read_text()
# What is corrected, chosen or added is told after the map.
MAP = PAGE.partition("## Where the printed text is corrected")[0]

# What the paper numbers, with its appendix; theorems, lemmas and the proposition share a count.
THEOREMS = {2, 3, 5, 11, 12, 19, 20}
NUMBERED = {
    "Algorithm": set(range(1, 6)),
    "Assumption": set(range(1, 8)),
    "Eq.": set(range(1, 122)),
    "Example": {1, 2},
    "Figure": set(range(1, 6)),
    "Lemma": set(range(1, 28)) - THEOREMS - {4},
    "Proposition": {4},
    "Remark": set(range(1, 6)),
    "Table": {1},
    "Theorem": THEOREMS,
}


def mentioned(kind: str) -> set[int]:
    """Numbers after a word: Eqs. (2), (4) to (6); Lemmas 6 and 7; Figure 1."""
    plural = "Eqs?." if kind == "Eq." else f"{kind}s?"
    number = r"\(?\d+\)?'?"
    found: set[int] = set()
    for several in re.findall(rf"{plural} ({number}(?:(?:, and|,| and| to) {number})*)", MAP):
        last = 0
        for to, digits in re.findall(r"( to )?\(?(\d+)", several):
            found |= set(range(last, int(digits) + 1)) if to else {int(digits)}
            last = int(digits)
    return found


@pytest.mark.parametrize("kind", NUMBERED)
def test_everything_numbered_is_mapped_or_said_to_be_out_of_scope(kind: str) -> None:
    assert mentioned(kind) == NUMBERED[kind]


def test_the_appendices_are_all_there() -> None:
    assert {*re.findall(r"Appendix ([A-J])\b", MAP)} | {
        letter
        for several in re.findall(r"Appendices ([A-J](?:(?:, and|,| and) [A-J])*)", MAP)
        for letter in re.findall(r"[A-J]", several)
    } == set("ABCDEFGHIJ")


# --- names -----------------------------------------------------------------------------------

# Where a name without a path is looked for; what is elsewhere is written with its module.
PLACES: tuple[ModuleType, ...] = (
    fw,
    fw.bandits,
    fw.environments,
    fw.objectives,
    fw.ranking,
    fw.smoothing,
    importlib.import_module("fairwolfe.core.protocols"),
    importlib.import_module("fairwolfe.objectives.concave"),
    importlib.import_module("fairwolfe.oracles"),
    importlib.import_module("fairwolfe.simulation"),
)


def spans() -> list[tuple[str, str]]:
    """Every piece of code of the page, with the line it stands in."""
    lines = PAGE.splitlines()
    return [(code, line) for line in lines for code in re.findall(r"`([^`]+)`", line)]


def member(owner: Any, name: str) -> Any:
    """An attribute, or what a field of a dataclass or a parameter is, which is no attribute."""
    if hasattr(owner, name):
        return getattr(owner, name)
    if isinstance(owner, type):
        if is_dataclass(owner) and name in {field.name for field in fields(owner)}:
            return name
        if name in getattr(owner, "__annotations__", {}):
            return name
    if isinstance(owner, ModuleType):
        with suppress(ModuleNotFoundError):
            return importlib.import_module(f"{owner.__name__}.{name}")
    raise LookupError(f"{owner!r} has no {name!r}")


def named(name: str) -> Any:
    if name in ("fw", "fairwolfe"):
        return fw
    for place in PLACES:
        if hasattr(place, name):
            return getattr(place, name)
    raise LookupError(f"{name!r} is in none of {[place.__name__ for place in PLACES]}")


def resolve(node: ast.expr) -> Any:
    """What an expression names; a call must have the keywords that it is given."""
    if isinstance(node, ast.Name):
        return named(node.id)
    if isinstance(node, ast.Attribute):
        return member(resolve(node.value), node.attr)
    if isinstance(node, ast.Call):
        called = resolve(node.func)
        taken = inspect.signature(called).parameters
        for keyword in node.keywords:
            assert keyword.arg in taken, f"{ast.unparse(node)}: no {keyword.arg!r}"
        for argument in node.args:
            if isinstance(argument, ast.Call | ast.Attribute):
                resolve(argument)
        return called
    raise LookupError(f"{ast.unparse(node)} names nothing")


def owners(line: str) -> list[Any]:
    """The classes and modules named in a line, whose members may stand beside them alone."""
    found = []
    for code in re.findall(r"`([\w.]+)", line):
        parts = code.split(".")
        for n in range(1, len(parts) + 1):
            try:
                owner = resolve(ast.parse(".".join(parts[:n]), mode="eval").body)
            except (LookupError, SyntaxError):
                break
            found.append(owner)
    return [one for one in found if isinstance(one, type | ModuleType) and one is not fw]


@pytest.mark.parametrize(("code", "line"), spans(), ids=[code for code, _ in spans()])
def test_every_name_is_there(code: str, line: str) -> None:
    if code.startswith("fairwolfe reproduce "):
        assert figures(tuple(code.split()[2:]))  # raises for an unknown name
        return
    if code.startswith(("src/", "tests/")):  # compiled functions that Python cannot see, and tests
        file, _, function = code.partition("::")
        tree = ast.walk(ast.parse((ROOT / file).read_text()))
        assert function in {node.name for node in tree if isinstance(node, ast.FunctionDef)}
        return
    node = ast.parse(code, mode="eval").body
    if isinstance(node, ast.Name):
        for owner in owners(line):
            try:
                member(owner, node.id)
            except LookupError:
                continue
            return
    resolve(node)
