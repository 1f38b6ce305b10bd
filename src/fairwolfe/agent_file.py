"""The file of an agent: arrays and one JSON text in a zip archive, written whole or not at all.

Any of them can be looked at with ``np.load(path)``; nothing is ever pickled.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairwolfe import expressions
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput
from fairwolfe.folders import whole_file
from fairwolfe.protocols import Stored

__all__ = ["FORMAT", "VERSION", "arrays_of", "filled", "policy_of", "read", "write"]

FORMAT, VERSION = "fairwolfe agent", 1
_TEXT = "agent.json"
_REBUILT = frozenset({"plan", "problem", "params"})  # made by `init`; may hold addresses
_MAGIC = b"PK\x03\x04"

Array = NDArray[Any]
S = TypeVar("S")


def arrays_of(state: Any) -> Iterator[tuple[str, Array]]:
    """Every (name, array) of a state of nested NamedTuples, but what `init` rebuilds.

    >>> from typing import NamedTuple
    >>> Inner = NamedTuple("Inner", [("theta", Array), ("params", Array)])
    >>> Outer = NamedTuple("Outer", [("t", Array), ("base", Inner)])
    >>> [name for name, _ in arrays_of(Outer(np.zeros(1), Inner(np.zeros(2), np.zeros(3))))]
    ['state.t', 'state.base.theta']
    """
    for name, part in _parts(state, "state"):
        yield name, part if isinstance(part, np.ndarray) else part.dump()


def _parts(state: Any, name: str) -> Iterator[tuple[str, Array | Stored]]:
    if isinstance(state, np.ndarray) and not state.dtype.hasobject:
        yield name, state
    elif isinstance(state, tuple) and hasattr(state, "_fields"):
        for field, part in zip(state._fields, state, strict=True):
            if field not in _REBUILT:
                yield from _parts(part, f"{name}.{field}")
    elif isinstance(state, Stored):
        yield name, state
    elif not (state is None or (isinstance(state, tuple) and not state)):
        raise IncompatibleState(
            f"{name} is a {type(state).__name__}, which cannot be saved; states are NamedTuples of "
            "arrays, or of objects with dump and load, with what init makes in fields called plan, "
            "problem or params"
        )


def filled(state: S, arrays: Mapping[str, Array]) -> S:
    """A fresh state with these arrays written into it, after all of them have been checked.

    A part of it that cannot go on from any arrays says so in a method `restored`, called then.
    """
    fresh = dict(_parts(state, "state"))
    if fresh.keys() != arrays.keys():
        odd = ", ".join(sorted(fresh.keys() ^ arrays.keys()))
        raise IncompatibleState(f"the state does not fit the policy: {odd} in one of them only")
    for name, part in fresh.items():
        given = arrays[name]
        if isinstance(part, np.ndarray) and (
            given.shape != part.shape or given.dtype != part.dtype
        ):
            raise IncompatibleState(
                f"{name} is {given.dtype} of shape {given.shape}; the policy and problem make it "
                f"{part.dtype} of shape {part.shape}: it belongs to others"
            )
    for name, part in fresh.items():
        if isinstance(part, np.ndarray):
            np.copyto(part, arrays[name])
        else:
            part.load(arrays[name])
    _tell_restored(state)
    return state


def _tell_restored(state: Any) -> None:
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        if hasattr(state, "restored"):
            state.restored()
        for field, part in zip(state._fields, state, strict=True):
            if field not in _REBUILT:
                _tell_restored(part)


def write(
    path: str | os.PathLike[str], text: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write the file whole, or not at all."""
    with whole_file(path) as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(_TEXT, json.dumps(text, indent=1, default=np.ndarray.tolist))
        for key, array in arrays.items():
            with archive.open(f"{key}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """The text and the arrays of a file that `write` wrote, every check sum verified."""
    with open(path, "rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise InvalidInput(f"{path} is no file of an agent; give one that Agent.save wrote")
        try:
            with zipfile.ZipFile(file) as archive:
                damaged = archive.testzip()
                names = archive.namelist()
                text = json.loads(archive.read(_TEXT)) if _TEXT in names else {}
        except Exception as error:  # a flipped bit can make the reader fail in any way
            raise IncompatibleState(f"{path} is damaged or cut short: {error}") from error
        if damaged is not None:
            raise IncompatibleState(f"{path} is damaged: {damaged} has another check sum")
        if not isinstance(text, dict) or text.get("format") != FORMAT:
            raise InvalidInput(f"{path} is no file of an agent; give one that Agent.save wrote")
        if text.get("version") != VERSION:
            raise IncompatibleState(
                f"{path} has format version {text.get('version')} (written by fairwolfe "
                f"{text.get('library')}); this fairwolfe reads version {VERSION}"
            )
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {key: archive[key] for key in archive.files if key != _TEXT}
        except Exception as error:
            raise IncompatibleState(f"{path} is damaged: {error}") from error
    return text, arrays


def policy_of(text: str, given: Any, path: object) -> Any:
    """The policy of a file: rebuilt, or the given one if it is the same."""
    try:
        rebuilt = expressions.read(text)
    except FairwolfeError as error:
        if given is None:
            raise IncompatibleState(
                f"the policy of {path} cannot be rebuilt from its text ({error}); pass it: "
                "Agent.load(path, policy=...)"
            ) from error
        rebuilt = None
    if given is None or given == rebuilt or _plain(repr(given)) == _plain(text):
        return rebuilt if given is None else given
    raise IncompatibleState(
        f"{path} holds {text}, not {given!r}; load it with the policy that it was saved with (a "
        "new objective can be given afterwards, by replace_objective)"
    )


def _plain(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)  # where a function stands in one process
