"""The file of an agent: arrays and one JSON text in a zip archive, written whole or not at all.

Any of them can be read with ``np.load(path)``; nothing is ever pickled. A file may come from
anybody: nothing is compressed in it, so that its content is not larger than the file; every
size is compared before anything is allocated, and every number before it is used.
"""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core import expressions
from fairwolfe.core.catalogue import Catalogue
from fairwolfe.core.folders import file_path, whole_file
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem, all_finite
from fairwolfe.core.protocols import Policy
from fairwolfe.core.restoring import need, require, room
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput, MissingData
from fairwolfe.kinds import Ranking
from fairwolfe.reduction.policy import PolicyRunning, runs_itself
from fairwolfe.reduction.running import Running

__all__ = [
    "FORMAT",
    "VERSION",
    "array_of",
    "arrays_of",
    "filled",
    "key",
    "parts_of",
    "policy_of",
    "read",
    "read_from",
    "rebuilt",
    "refusals",
    "secret",
    "words",
    "write",
    "write_to",
]

FORMAT, VERSION = "fairwolfe agent", 6
_TEXT = "agent.json"
_REBUILT = frozenset({"plan", "problem", "params"})  # made by `init`; may hold addresses
_MAGIC = b"PK\x03\x04"
_MEMBER = re.compile(r"\w+(\.\w+)*\.npy")
_ENCRYPTED = 0x1
_NONE = np.empty(0)
_KINDS = "fiub"  # of the numbers that a state may hold
_LONGEST_TEXT = 4 << 20  # bytes; a policy with a number for each of 100,000 items takes a half

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
    for name, part in parts_of(state):
        yield name, array_of(part)


def array_of(part: Any) -> Array:
    """A part of a state as an array."""
    return part if isinstance(part, np.ndarray) else part.dump()


def parts_of(state: Any, name: str = "state") -> list[tuple[str, Any]]:
    """Every (name, part) of a state: see `arrays_of`. A running policy is its state."""
    if isinstance(state, Running | PolicyRunning):
        return parts_of(state.state, name)
    if isinstance(state, np.ndarray) and not state.dtype.hasobject:
        return [(name, state)]
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        parts: list[tuple[str, Any]] = []
        for field, part in zip(state._fields, state, strict=True):
            if field not in _REBUILT:
                parts += parts_of(part, f"{name}.{field}")
        return parts
    if state is None or (isinstance(state, tuple) and not state):
        return []
    if hasattr(state, "dump") and hasattr(state, "load"):
        return [(name, state)]
    raise IncompatibleState(
        f"{name} is a {type(state).__name__}, which cannot be saved; states are NamedTuples of "
        "arrays, or of objects with dump and load, with what init makes in fields called plan, "
        "problem or params"
    )


def rebuilt(policy: Any, problem: Problem, arrays: Mapping[str, Array]) -> Any:
    """The policy running in a problem, filled with these arrays and no larger than they are."""
    with room(sum(array.nbytes for array in arrays.values())):
        need(problem.n_objectives)  # policy or agent keep the average of each reward
        running = _fresh(policy, problem, arrays)
    filled(running, arrays)
    if isinstance(running, Running):  # an engine keeps features of items in its own order
        return policy.running(running.kind, running.state)
    return running


def _fresh(policy: Any, problem: Problem, arrays: Mapping[str, Array]) -> Any:
    """A running policy of the shape of the one that these arrays were saved from."""
    kind = kind_of(problem)
    names = ("state.", "state.base.")  # of a compiled ranker, and of one in Python
    prefix = next((one for one in names if arrays.get(f"{one}retired", _NONE).size), None)
    if not runs_itself(policy):
        return PolicyRunning(policy, kind)
    if prefix is not None and isinstance(kind, Ranking):
        retired, features = arrays[f"{prefix}retired"], arrays[f"{prefix}features"]
        catalogue = Catalogue(np.flatnonzero(retired == 0.0), features, retired.size)
        kind = kind.holding(catalogue)
    return policy.running(kind)


def filled(state: S, arrays: Mapping[str, Array]) -> S:
    """A fresh state with these arrays written into it, after all of them have been checked.

    A part of it that cannot continue from some arrays raises in a method `restored`, called then.
    """
    fresh = dict(parts_of(state))
    if fresh.keys() != arrays.keys():
        odd = ", ".join(sorted(fresh.keys() ^ arrays.keys()))
        raise IncompatibleState(f"the state does not fit the policy: {odd} in one of them only")
    for name, part in fresh.items():
        _compare(name, part, arrays[name])
    for name, part in fresh.items():
        if isinstance(part, np.ndarray):
            np.copyto(part, arrays[name])
        else:
            part.load(arrays[name])
    _tell_restored(state, "state")
    return state


def _compare(name: str, part: Any, given: Array) -> None:
    """Raise for an array that cannot replace a part."""
    if isinstance(part, np.ndarray):
        fits = given.shape == part.shape and given.dtype == part.dtype
        wanted = f"{part.dtype} of shape {part.shape}"
    else:
        fits = given.ndim == 1 and given.dtype == np.uint8
        wanted = "bytes"
    if not fits:
        raise IncompatibleState(
            f"{name} is {given.dtype} of shape {given.shape}; the policy and problem make it "
            f"{wanted}: it belongs to others"
        )
    # A state may begin with an infinity, such as the best of nothing yet.
    if isinstance(part, np.ndarray) and all_finite(part):
        require(name, given, np.isfinite(given), "a state holds finite numbers")


def _tell_restored(state: Any, name: str) -> None:
    if isinstance(state, Running):
        _tell_restored(state.base_state, name)  # of a compiled policy: its design
    if isinstance(state, Running | PolicyRunning):
        state = state.state
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        if hasattr(state, "restored"):
            try:
                state.restored()
            except IncompatibleState as error:
                raise IncompatibleState(f"{name}: {error}") from error
        for field, part in zip(state._fields, state, strict=True):
            if field not in _REBUILT:
                _tell_restored(part, f"{name}.{field}")


def write(
    path: str | os.PathLike[str], text: Mapping[str, Any], arrays: Mapping[str, Array]
) -> None:
    """Write the file whole, or not at all."""
    path = file_path(path)
    try:
        with whole_file(path) as file:
            os.chmod(file.name, 0o600)  # whoever reads the file can sign decisions
            write_to(file, text, arrays)
    except OSError as error:
        raise OSError(
            error.errno,
            f"the agent was not saved: {path} cannot be written ({error.strerror or error}); what "
            "stood there before is as it was. Make room or choose another folder, and save again",
        ) from error


def write_to(file: BinaryIO, text: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    """Write the content of a file."""
    content = json.dumps(text, indent=1, default=np.ndarray.tolist).encode()
    if len(content) > _LONGEST_TEXT:
        raise InvalidInput(
            f"the policy, problem and history of the agent take {len(content):,} bytes of text, "
            f"and a file holds at most {_LONGEST_TEXT:,}: is a setting a very long list?"
        )
    # Members carry no time: equal agents are equal bytes.
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(_TEXT), content)
        for key, array in arrays.items():
            with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Array]]:
    """The text and the arrays of a file that `write` wrote, every check sum verified."""
    path = file_path(path)
    try:
        with open(path, "rb") as file:
            return read_from(file, path)
    except OSError as error:
        wrong = MissingData if isinstance(error, FileNotFoundError) else InvalidInput
        raise wrong(
            f"the agent {os.fspath(path)!r} cannot be read ({error.strerror}); name a file that "
            "Agent.save wrote"
        ) from error


def read_from(file: BinaryIO, path: object) -> tuple[dict[str, Any], dict[str, Array]]:
    """`read`, of a file that is open; `path` is what messages call it."""
    if file.read(len(_MAGIC)) != _MAGIC:
        raise InvalidInput(f"{path} is not the file of an agent; give one that Agent.save wrote")
    try:
        with zipfile.ZipFile(file) as archive:
            text = _text(archive, path)
            _refuse_sizes(archive, file.seek(0, os.SEEK_END))
            members = [one for one in archive.infolist() if one.filename != _TEXT]
            return text, {one.filename[: -len(".npy")]: _array(archive, one) for one in members}
    except FairwolfeError:
        raise
    except Exception as error:  # a flipped bit can make the reader fail in any way
        raise IncompatibleState(
            f"{path} is damaged or cut short: {str(error) or type(error).__name__:.200}"
        ) from error


def _text(archive: zipfile.ZipFile, path: object) -> dict[str, Any]:
    text: Any = {}
    if _TEXT in archive.namelist():
        size = archive.getinfo(_TEXT).file_size
        if size > _LONGEST_TEXT:
            raise ValueError(f"{_TEXT} has {size:,} bytes, and at most {_LONGEST_TEXT:,}")
        with archive.open(_TEXT) as member:
            text = json.loads(member.read(_LONGEST_TEXT))
    if not isinstance(text, dict) or text.get("format") != FORMAT:
        raise InvalidInput(f"{path} is not the file of an agent; give one that Agent.save wrote")
    if text.get("version") != VERSION:
        raise IncompatibleState(
            f"{path} has format version {text.get('version')!r:.80} (written by fairwolfe "
            f"{text.get('library')!s:.80}); this fairwolfe reads version {VERSION}"
        )
    return text


def _refuse_sizes(archive: zipfile.ZipFile, size: int) -> None:
    """Members are stored as they are, so that together they are smaller than the file."""
    names = set()
    for one in archive.infolist():
        if one.filename in names or not (one.filename == _TEXT or _MEMBER.fullmatch(one.filename)):
            raise ValueError(f"{one.filename!r:.80} is not the name of one of its arrays")
        if one.compress_type != zipfile.ZIP_STORED or one.flag_bits & _ENCRYPTED:
            raise ValueError(f"{one.filename} is compressed or encrypted, which save never does")
        if one.compress_size != one.file_size:
            raise ValueError(f"{one.filename} has two sizes")
        names.add(one.filename)
    total = sum(one.file_size for one in archive.infolist())
    if total > size:
        raise ValueError(f"its members have {total:,} bytes, and the file {size:,}")


def _array(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> Array:
    """A member, whose header is compared with its size before it is believed."""
    with archive.open(one) as member:
        if np.lib.format.read_magic(member) != (1, 0):
            raise ValueError(f"{one.filename} is of another version of NumPy's format")
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(member)
        if dtype.kind not in _KINDS:
            raise ValueError(f"{one.filename} holds {dtype}, which is not a number; nothing is run")
        if fortran:
            raise ValueError(f"{one.filename} is in the order of Fortran, which save never writes")
        size, left = math.prod(shape) * dtype.itemsize, one.file_size - member.tell()
        if size != left or any(n < 0 for n in shape):
            raise ValueError(f"{one.filename} is of shape {shape} and has {left} bytes")
        return np.frombuffer(member.read(), dtype).reshape(shape).copy()


@contextmanager
def refusals(path: object) -> Iterator[None]:
    """Within, what a file holds is put together; whatever fails is the fault of the file."""
    try:
        yield
    except InvalidInput as error:
        raise _unfit(path, str(error)) from error
    except (FairwolfeError, OSError):
        raise
    except Exception as error:
        raise _unfit(path, f"{type(error).__name__} {error}") from error


def _unfit(path: object, why: str) -> IncompatibleState:
    return IncompatibleState(f"{path} does not hold what an agent needs: {why:.400}")


def words(name: str, given: Any) -> set[str]:
    """A list of strings, as a set."""
    if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
        raise InvalidInput(f"{name} is {given!r:.80}; it is a list of words")
    return set(given)


def secret(given: Any, size: int) -> bytes:
    """The key that signs decisions, from its hexadecimal text."""
    try:
        found = bytes.fromhex(given)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"key is {given!r:.8}...; it is {size} bytes in hexadecimal") from error
    if len(found) != size:
        raise InvalidInput(f"key has {len(found)} bytes; it has {size}")
    return found


def key(name: str, given: Any) -> tuple[int, int]:
    """The two whole numbers of 64 bits that make draws by number."""
    pair: Any = given if isinstance(given, list) and len(given) == 2 else [None]
    if all(type(one) is int and 0 <= one < 2**64 for one in pair):
        return pair[0], pair[1]
    raise InvalidInput(f"{name} is {given!r:.200}; it is two whole numbers below 2**64")


def policy_of(text: str, given: Any, path: object) -> Any:
    """The policy of a file: rebuilt, or the given one if it is the same."""
    if not isinstance(text, str):
        raise IncompatibleState(f"policy is {text!r:.80} in {path}; it is the text of a policy")
    try:
        rebuilt = expressions.read(text)
        if not isinstance(rebuilt, Policy):
            raise InvalidInput(f"{text!r:.80} is not a policy")
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
        f"{path} holds {text:.2000}, not {given!r}; load it with the policy that it was saved with "
        "(a new objective can be given afterwards, by replace_objective)"
    )


def _plain(text: str) -> str:
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)  # the address of a function in one process
