"""`AgentFile`: an agent as a file or bytes, and back."""

from __future__ import annotations

import io
import json
import math
import operator
import os
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import version
from typing import Annotated, Any, BinaryIO, Self, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairwolfe.agent.inputs import AgentInputs, one_of
from fairwolfe.agent.ledger import Count, Ledger, SavedLedger
from fairwolfe.agent.names import ItemKeys, arm_names
from fairwolfe.core.build import from_text
from fairwolfe.core.candidates import Catalogue
from fairwolfe.core.decision import Batch
from fairwolfe.core.files import file_path, whole_file
from fairwolfe.core.groups import Attributes
from fairwolfe.core.kinds import Kind, kind_of
from fairwolfe.core.packing import need, pack, require, room, unpack
from fairwolfe.core.problem import Problem, all_finite
from fairwolfe.core.protocols import Policy
from fairwolfe.core.rankings import RankingKind
from fairwolfe.core.streams import Numbered
from fairwolfe.errors import FairwolfeError, IncompatibleState, InvalidInput, MissingData
from fairwolfe.ranking.policies import as_policy
from fairwolfe.reduction.running import PolicyRunning, Running, runs_itself

KEY = 32  # bytes of the secret that signs decisions


class SavedAgent(msgspec.Struct):
    """The text of a file, besides its format and versions."""

    policy: str
    problem: dict[str, Any]
    ledger: SavedLedger
    key: Annotated[str, msgspec.Meta(pattern=f"^[0-9a-fA-F]{{{2 * KEY}}}$")]
    out_of_range: Count
    refused: Count
    over_norm: Count
    warned: set[str]
    draws: tuple[Annotated[int, msgspec.Meta(ge=0)], Annotated[int, msgspec.Meta(ge=0)]]
    expires: Annotated[int, msgspec.Meta(ge=1)] | None
    arms: list[str] | None


class AgentFile(AgentInputs):
    """Everything that an agent keeps, written whole or not at all, and continued from."""

    __slots__ = ()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write everything to a file, whole or not at all; `Agent.load` continues from there.

        The file holds the secret that signs decisions: only its owner can read it.
        """
        write(path, *self._content())

    def dump(self) -> bytes:
        """What `save` writes, as bytes for `Agent.restore`."""
        file = io.BytesIO()
        write_to(file, *self._content())
        return file.getvalue()

    def _content(self) -> tuple[dict[str, Any], dict[str, Any]]:
        with self.held() as running:
            ledger, kept = self._ledger.saved()
            arrays = {name: array.copy() for name, array in arrays_of(running)}
            text = {
                "format": FORMAT,
                "version": VERSION,
                "library": version("fairwolfe"),
                "policy": repr(self.policy),
                "problem": json.loads(self._kind.problem.to_json()),
                "ledger": ledger,
                "key": self._key.hex(),
                "out_of_range": self._out_of_range,
                "refused": self._refused,
                "over_norm": self._over_norm,
                "warned": sorted(self._warned),
                "draws": list(self._draws.key),
                "expires": self._expires,
                "arms": self.arms,
            }
            if isinstance(self._kind, RankingKind) and self._kind.catalogue.attributes.pairs:
                kept["attributes"] = self._kind.catalogue.attributes.saved()
            if isinstance(self._called, ItemKeys):
                kept["keys"] = self._called.saved()
            if self._known:
                kept["waiting"] = np.array(sorted(self._known), np.int64)
                known = np.array([self._known[number] for number in sorted(self._known)])
                # A file holds finite numbers: 0 for what is not known.
                kept["known"] = np.stack([np.nan_to_num(known), ~np.isnan(known)])
            if self._young:
                waiting = filter(self._ledger.waits, self._young)
                young = [one_of(self._young[number], number) for number in waiting]
                data = tuple(np.frombuffer(one.to_bytes(), np.uint8) for one in Batch.merged(young))
                kept["young"] = np.frombuffer(pack(data), dtype=np.uint8)
        return text, arrays | kept

    @classmethod
    def load(
        cls, path: str | os.PathLike[str], policy: Any = None, seed: int | None = None
    ) -> Self:
        """The agent that `save` wrote: the same decisions follow as without the pause.

        The policy is rebuilt from its text. One that holds functions, as Custom does, cannot be:
        pass the same one, or the same objective if that was given. Decisions made before the save
        can be answered (`Decision.from_bytes` brings them over), and so can those that the saved
        agent made after it, until it ended: each once. Those of other agents cannot, nor those of
        another process that loaded the file.

        With a `seed` the random draws that follow are its own: two processes that load one file
        with different seeds do not explore in the same way.
        """
        return cls._of(path, read(path), policy, seed)

    @classmethod
    def restore(
        cls,
        data: bytes,
        policy: Any = None,
        seed: int | None = None,
        *,
        token: str | None = None,
    ) -> Self:
        """The agent that `dump` wrote; as `load`.

        With the `token` that it had its ids continue too, as if there had been no pause: what it
        did since the dump has to be done again (`issue`, `update_many`), and nobody else may
        continue from the same bytes.
        """
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidInput(f"the data is {data!r:.80}; give the bytes that Agent.dump returned")
        content = read_from(io.BytesIO(data), "the data")
        return cls._of("the data", content, policy, seed, token)

    @classmethod
    def _of(
        cls,
        path: object,
        content: tuple[dict[str, Any], dict[str, Any]],
        policy: Any,
        seed: int | None,
        token: str | None = None,
    ) -> Self:
        text, arrays = content
        if seed is not None:
            Numbered.of(seed)  # a bad one raises as such, not as a fault of the file
        with refusals(path):
            saved = msgspec.convert(text, SavedAgent)
            problem = Problem.from_json(json.dumps(saved.problem))
        given = None if policy is None else as_policy(policy, problem)
        with refusals(path):
            wanted = policy_of(saved.policy, given, path)
            kept = {name: arrays.pop(name) for name in ("answered", "recovered")}
            young, keys = arrays.pop("young", None), arrays.pop("keys", None)
            waiting = arrays.pop("waiting", None), arrays.pop("known", None)
            attributes = arrays.pop("attributes", None)
            running = rebuilt(wanted, problem, arrays, attributes)
            agent = cls.__new__(cls)
            ledger = Ledger.loaded(saved.ledger, kept, token)
            agent._start(running, ledger, bytes.fromhex(saved.key))
            # More than its own: it has learnt a log again (offpolicy/relearning.py).
            if any(map(operator.lt, running.answered, ledger.answered)):
                raise IncompatibleState(
                    f"{path} holds a state of {running.t} answers and a ledger of {ledger.t}"
                )
            agent._out_of_range, agent._refused = saved.out_of_range, saved.refused
            agent._over_norm, agent._warned = saved.over_norm, saved.warned
            if max(saved.draws) >= 2**64:
                raise InvalidInput(f"draws is {saved.draws}; it is two whole numbers below 2**64")
            agent._draws = Numbered(saved.draws)
            if seed is not None:
                agent._draws = agent._draws.apart(seed, "load")
            agent._expires = saved.expires
            if saved.arms is not None:
                agent._called = arm_names(saved.arms, problem)
            if keys is not None:
                agent._called = ItemKeys.loaded(keys, agent._catalogue())
            agent._known = _known_of(*waiting, ledger, agent._kind)
            for data in () if young is None else unpack(young.tobytes()):
                batch = Batch.from_bytes(data.tobytes())
                agent._verify(batch)
                for decision in batch:
                    ledger.waiting_entry(decision)
                agent._young.update(dict.fromkeys(batch.numbers.tolist(), batch))
            agent._young = dict(sorted(agent._young.items()))
        return agent


def _known_of(
    numbers: Any, known: Any, ledger: Ledger, kind: Kind
) -> dict[int, NDArray[np.float64]]:
    """The rewards of decisions that wait for other stages, by number."""
    if numbers is None and known is None:
        return {}
    shape = (2, len(numbers) if numbers is not None else -1, *kind.known_shape)
    if known is None or known.shape != shape or known.dtype != np.float64:
        raise IncompatibleState(f"known does not fit the decisions that wait: {shape}")
    require("known", known, np.isfinite(known), "rewards are finite numbers")
    rewards = np.where(known[1] > 0.0, known[0], np.nan)
    listed = numbers.tolist()
    if numbers.dtype != np.int64 or not all(map(ledger.waits, listed)) or min(listed) < 0:
        raise IncompatibleState("waiting holds decisions that wait for no stage")
    return dict(zip(listed, rewards, strict=True))


FORMAT, VERSION = "fairwolfe agent", 7
_TEXT = "agent.json"
_REBUILT = frozenset({"plan", "problem", "params"})  # made by `init`; may hold addresses
_IF_ANY = frozenset({"groups", "gaps"})  # of items with attributes
_MAGIC = b"PK\x03\x04"
_NONE = np.empty(0)
_KINDS = "fiub"  # of the numbers that a state may hold
_NPY = b"\x93NUMPY\x01\x00"  # an array of NumPy in its format 1.0, which is what `dump` writes
_SHORT = 4096  # characters of a policy that is kept for the next file
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
        yield name, part if isinstance(part, np.ndarray) else part.dump()


def parts_of(state: Any, name: str = "state") -> list[tuple[str, Any]]:
    """Every (name, part) of a state: see `arrays_of`. A running policy is its state."""
    if isinstance(state, Running | PolicyRunning):
        return parts_of(state.state, name)
    if isinstance(state, np.ndarray) and not state.dtype.hasobject:
        return [(name, state)]
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        parts: list[tuple[str, Any]] = []
        for field, part in zip(state._fields, state, strict=True):
            empty = field in _IF_ANY and part.size == 0
            if field not in _REBUILT and not empty:
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


def rebuilt(
    policy: Any,
    problem: Problem,
    arrays: Mapping[str, Array],
    attributes: Array | None = None,
) -> Any:
    """The policy running in a problem, filled with these arrays and no larger than they are.
    attributes: `Attributes.saved` of the items.
    """
    with room(sum(array.nbytes for array in arrays.values())):
        need(problem.n_objectives)  # policy or agent keep the average of each reward
        running = _fresh(policy, problem, arrays, attributes)
    filled(running, arrays)
    if isinstance(running, Running):  # an engine keeps features of items in its own order
        return policy.running(running.kind, running.state)
    return running


def _fresh(
    policy: Any, problem: Problem, arrays: Mapping[str, Array], attributes: Array | None
) -> Any:
    """A running policy of the shape of the one that these arrays were saved from."""
    kind = kind_of(problem)
    names = ("state.", "state.base.")  # of a compiled ranker, and of one in Python
    prefix = next((one for one in names if arrays.get(f"{one}retired", _NONE).size), None)
    if not runs_itself(policy):
        return PolicyRunning(policy, kind)
    if prefix is not None and isinstance(kind, RankingKind):
        retired, features = arrays[f"{prefix}retired"], arrays[f"{prefix}features"]
        known = Attributes()
        if attributes is not None:
            known = Attributes.loaded(attributes, retired.size)
        catalogue = Catalogue(np.flatnonzero(retired == 0.0), features, retired.size, known)
        kind = kind.holding(catalogue)
    running = policy.running(kind)
    gaps = arrays.get("state.gaps", _NONE)
    if gaps.ndim == 2 and gaps.shape[0] == len(running.state.gaps):
        running.state = running.state._replace(gaps=np.zeros(gaps.shape))
    return running


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
            members = [one for one in archive.infolist() if one.filename != _TEXT]
            # They are stored as they are, and no more than their size is read of them.
            total, size = sum(one.file_size for one in members), file.seek(0, os.SEEK_END)
            if total > size:
                raise ValueError(f"its members have {total:,} bytes, and the file {size:,}")
            arrays = {one.filename.removesuffix(".npy"): _array(archive, one) for one in members}
            if len(arrays) < len(members):
                raise ValueError("it has two arrays of one name")
            return text, arrays
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


def _array(archive: zipfile.ZipFile, one: zipfile.ZipInfo) -> Array:
    """The array of a member, whose check sum is verified first."""
    content = archive.read(one)
    start = 10 + int.from_bytes(content[8:10], "little")  # magic, version, length of the header
    if content[:8] != _NPY:
        raise ValueError(f"{one.filename} is not an array of NumPy, in its format 1.0")
    shape, by_column, dtype = _npy_header(content[8:start])
    size = dtype.itemsize * math.prod(shape)
    if dtype.kind not in _KINDS or len(content) != start + size:
        raise ValueError(f"{one.filename} holds {dtype} of shape {shape}, and more")
    flat: Array = np.frombuffer(content, dtype, offset=start).copy()
    return flat.reshape(shape, order="F" if by_column else "C")


@lru_cache(maxsize=1024)  # agents that are alike have the same few
def _npy_header(text: bytes) -> tuple[tuple[int, ...], bool, Any]:
    """Shape, whether it is stored by column, and type."""
    return np.lib.format.read_array_header_1_0(io.BytesIO(text))


_short_policy = lru_cache(maxsize=256)(from_text)  # agents that are alike have the same few


def _policy_from(text: str) -> Any:
    return _short_policy(text) if len(text) <= _SHORT else from_text(text)


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


def policy_of(text: str, given: Any, path: object) -> Any:
    """The policy of a file: rebuilt, or the given one if it is the same."""
    try:
        rebuilt = _policy_from(text)
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
