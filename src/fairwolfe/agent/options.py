"""What people give to an agent besides contexts and rewards, in the form that kinds read."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sized
from typing import Any

import numpy as np

from fairwolfe.core.problem import is_list, whole_number
from fairwolfe.errors import InvalidInput
from fairwolfe.kinds.rewards import finite_number

__all__ = [
    "context_options",
    "feedback_options",
    "many",
    "node_number",
    "options_by_row",
    "stack_level",
]

_MOST_NODES = 2**32 - 1


def context_options(candidates: Any, blocked: Any, pinned: Any) -> dict[str, Any]:
    """What a context was given besides; empty where that is nothing."""
    options: dict[str, Any] = {}
    if candidates is not None:
        options["candidates"] = candidates
    if not (isinstance(blocked, tuple) and not blocked):
        options["blocked"] = blocked
    if pinned is not None and not _empty(pinned):
        options["pinned"] = pinned
    return options


def options_by_row(rows: int, **given: Any) -> list[dict[str, Any]]:
    """What each of the contexts was given besides; empty where none was given anything."""
    if all(values is None for values in given.values()):
        return []
    options: list[dict[str, Any]] = [{} for _ in range(rows)]
    for name, values in given.items():
        if values is None:
            continue
        for i, value in enumerate(_by_row(name, values, rows)):
            if value is not None and (name == "candidates" or not _empty(value)):
                options[i][name] = value
    return options if any(options) else []


def feedback_options(exposed: Any, clicked: Any, missing: Any) -> dict[str, Any]:
    """What feedback has in addition to the reward."""
    options: dict[str, Any] = {}
    if exposed is not None:
        options["exposed"] = exposed
    if clicked is not None:
        options["clicked"] = clicked
    if missing is not None:
        options["missing"] = finite_number("missing", missing)
    return options


def many(name: str, given: Any) -> Any:
    """An array as it is, and a list of anything else that can be one."""
    if not is_list(given):
        raise InvalidInput(f"the {name} are {given!r:.80}; give a list of {name}")
    return given if isinstance(given, np.ndarray) else list(given)


def node_number(given: Any) -> int:
    """The number of a process."""
    node = whole_number("node", given, 0)
    if node > _MOST_NODES:
        raise InvalidInput(
            f"node is {node}; give the number of the process, from 0 to {_MOST_NODES:,}"
        )
    return node


def stack_level() -> int:
    """How far up the stack of our caller this package is left, for warnings."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("fairwolfe."):
        level, frame = level + 1, frame.f_back
    return level


def _empty(given: Any) -> bool:
    """Whether it is a list or a mapping without anything in it."""
    return is_list(given) and isinstance(given, Sized) and len(given) == 0


def _by_row(name: str, values: Any, rows: int) -> list[Any]:
    """What each context is given: one mapping or list for all of them, or one for each."""
    if isinstance(values, Mapping):
        return [values] * rows
    if not is_list(values):
        raise InvalidInput(f"{name} is {values!r:.80}; give a list, or a list for each context")
    listed = list(values)
    if not any(one is None or is_list(one) for one in listed):
        return [listed] * rows
    if len(listed) != rows:
        raise InvalidInput(f"{name} has {len(listed)} lists for {rows} contexts; give one each")
    plain = (str, Mapping, np.ndarray)  # what is not a list is for the kind to judge
    return [list(one) if is_list(one) and not isinstance(one, plain) else one for one in listed]
