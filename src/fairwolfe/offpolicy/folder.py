"""Logs in folders of Parquet files: chunks are read where they are worked on, in this process, in
others, or on Ray.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from fnmatch import fnmatch
from functools import cached_property, lru_cache, reduce
from hashlib import blake2b
from importlib.util import find_spec
from typing import Any, NamedTuple

import msgspec
import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.agent.log_format import Header, batches_of, header_of, is_decisions, read
from fairwolfe.bandits.base import LinearBandit
from fairwolfe.core.packing import pack, unpack
from fairwolfe.core.problem import Problem, real_number, whole_number
from fairwolfe.core.threads import ONE_THREAD
from fairwolfe.core.workers import RETRIES, imported, in_order, workers
from fairwolfe.errors import FairwolfeError, InvalidInput, MissingData, require_extra
from fairwolfe.offpolicy.decisions import joined
from fairwolfe.offpolicy.estimators import Side
from fairwolfe.offpolicy.learning import Mixture, RankingMixture
from fairwolfe.offpolicy.models import LinearModel
from fairwolfe.offpolicy.reading import Columns, assembled, read_table
from fairwolfe.offpolicy.sums import About, Data, FactSums, Source, Step, Tick, merged

MOST_IN_MEMORY = 2_000_000
"""Rows above which `learn`, `split` and their like ask for a sample."""

_ENDINGS = (".parquet", ".pq")
_WILD = "*?["
_HIDDEN = re.compile(r"/[._]")  # a file, or a folder on the way to it
_HASH = 2.0**64


class RowGroup(NamedTuple):
    """A piece of a file that is read at once: its place in the file, its first place in the log."""

    file: str
    number: int
    start: int
    rows: int


def is_folder(source: str | os.PathLike[str]) -> bool:
    """Whether a path names several files: a folder, a pattern or an address."""
    name = os.fspath(source)
    return "://" in name or any(sign in name for sign in _WILD) or os.path.isdir(name)


def _file_system(name: str) -> tuple[Any, str]:
    """Of Arrow, and the path in it."""
    require_extra("lab", "a folder of Parquet files")
    from pyarrow import ArrowInvalid, fs

    if "://" not in name:
        return fs.LocalFileSystem(), os.path.abspath(name)
    try:
        found: tuple[Any, str] = fs.FileSystem.from_uri(name)
    except (ArrowInvalid, OSError) as error:
        raise InvalidInput(f"{name} is no address that Arrow knows: {error}") from error
    return found


def _files(name: str) -> list[str]:
    """The Parquet files that a name means, by name; hidden ones do not count."""
    from pyarrow import fs

    first = min((name.find(sign) for sign in _WILD if sign in name), default=-1)
    scheme = name.partition("://")[0] + "://" if "://" in name else ""
    base = name if first < 0 else name[: name.rfind("/", 0, first) + 1] or "."
    system, path = _file_system(base)
    try:
        if system.get_file_info(path).type == fs.FileType.File:
            return [name]
        found = system.get_file_info(fs.FileSelector(path, recursive=True))
    except OSError as error:
        raise MissingData(f"{base} cannot be listed ({error}); give a folder of files") from error
    names = [one.path for one in found if one.type == fs.FileType.File]
    names = [one for one in names if not _HIDDEN.search(one[len(path.rstrip("/")) :])]
    if first >= 0:
        wanted = os.path.join(path, name[name.rfind("/", 0, first) + 1 :])
        names = [
            one for one in names if fnmatch(one, wanted) and one.count("/") == wanted.count("/")
        ]
    else:
        names = [one for one in names if one.endswith(_ENDINGS)]
    if not names:
        raise MissingData(f"{name} has no Parquet files; give a folder or a pattern that has some")
    return [f"{scheme}{one}" for one in sorted(names)]


@contextmanager
def _opened(name: str) -> Iterator[Any]:
    """A Parquet file."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    system, path = _file_system(name)
    try:
        # A file is read in pieces, so that a large row group is never whole in memory.
        with (
            system.open_input_file(path) as raw,
            ParquetFile(raw, pre_buffer=False, buffer_size=1 << 20) as file,
        ):
            yield file
    except (ArrowException, OSError) as error:
        raise InvalidInput(
            f"{name} cannot be read as Parquet ({error}): it is cut or damaged; restore it, or "
            "take it out of the folder"
        ) from error


def header_at(name: str) -> Header | None:
    """The header of a log, of a folder that of its last file; None where there is none."""
    if not is_folder(name):
        return read(name)[0] if is_decisions(name) else None
    last = _files(name)[-1]
    with _opened(last) as file:
        return header_of(file.schema_arrow.metadata or {}, last)


@dataclass(frozen=True, eq=False)
class Folder:
    """Decisions in Parquet files, in the order of the files' names.

    header: of tables that fairwolfe wrote, the last one, which knows most items; None for others
    """

    name: str
    about: About
    header: Header | None
    groups: tuple[RowGroup, ...]

    @classmethod
    def of(cls, name: str, problem: Problem | None) -> Folder:
        """From what the files say of themselves; no rows are read."""
        header: Header | None = None
        groups: list[RowGroup] = []
        start = 0
        for number, path in enumerate(_files(name)):
            with _opened(path) as file:
                own = header_of(file.schema_arrow.metadata or {}, path)
                sizes = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
            if number and (own is None) != (header is None):
                raise InvalidInput(f"{path} is of another kind than the files before it")
            if own is not None and header is not None and not own.continues(header):
                raise InvalidInput(
                    f"{path} is of another problem than the files before it; give each its folder"
                )
            header = own
            for i, rows in enumerate(sizes):
                groups.append(RowGroup(path, i, start, rows))
                start += rows
        if start == 0:
            raise InvalidInput(f"{name} has no decisions; give at least one")
        if problem is None:
            if header is None:
                raise InvalidInput(
                    f"the files of {name} do not say sizes and ranges; give problem=, such as "
                    'fw.Problem.arms(5, {"clicks": (0, 1)})'
                )
            problem = header.problem
        arms = None if header is None else header.arms
        full = tuple(group for group in groups if group.rows)
        return cls(name, About(problem, start, arms), header, full)

    @cached_property
    def known(self) -> dict[int, FactSums]:
        """The facts that were summed already."""
        return {}

    @cached_property
    def data(self) -> Data:
        """All decisions in memory, where they are not too many."""
        if self.about.n > MOST_IN_MEMORY:
            share = 0.5 * MOST_IN_MEMORY / self.about.n
            raise InvalidInput(
                f"{self.name} has {self.about.n:,} decisions, and this needs them in memory, which "
                f"holds {MOST_IN_MEMORY:,}; sample them: Log.of(folder, share={share:.2g})"
            )
        return self.sample(1.0)

    def last(self, n: int) -> Data:
        """The last n decisions, in memory."""
        chunks: list[Data] = []
        for group in reversed(self.groups):
            chunks[:0] = self._tables(group)
            if sum(chunk.n for chunk in chunks) >= n:
                break
        found: Data = joined(chunks)
        return found.subset(np.arange(max(found.n - n, 0), found.n))

    def items(self) -> Any:
        """The features of the items by key, from the header."""
        if self.header is None or self.header.features is None:
            return None
        keys = self.header.keys or range(len(self.header.features))
        return dict(zip(keys, self.header.features, strict=True))

    def sample(self, share: float) -> Data:
        """Decisions by a hash of their ids, in memory."""
        if not 0.0 < real_number("share", share) <= 1.0:
            raise InvalidInput(f"share is {share!r}; give a number above 0 and at most 1")
        chunks = [chunk for group in self.groups for chunk in self._tables(group, share)]
        if not chunks:
            raise InvalidInput(
                f"no decision of {self.name} is in a share of {share:g}; give a larger one"
            )
        data: Data = joined(chunks)
        return data

    def _tables(self, group: RowGroup, share: float = 1.0) -> Iterator[Data]:
        """The decisions of a row group."""
        source = f"{group.file}, row group {group.number}"
        with _opened(group.file) as file:
            keep = None if share == 1.0 else (lambda batch: _sampled(batch, share, source))
            for columns in batches_of(file, [group.number], keep):
                yield self._assembled(columns, source)

    def _assembled(self, columns: Columns, source: str) -> Data:
        if self.header is not None:
            return assembled(self.about.problem, [columns], self.header, source)
        data = read_table(columns, self.about.problem, source)
        if getattr(data, "arms", None):
            raise InvalidInput(
                f"{source} has actions as texts, which are numbered over a whole log; write them "
                "as numbers, or add a column names"
            )
        return data

    def read(self, group: RowGroup) -> Iterator[tuple[slice, Data]]:
        """The chunks of a row group, and where they are in the log."""
        start = group.start
        for data in self._tables(group):
            for span, chunk in data.pieces():
                yield slice(start + span.start, start + span.stop), chunk
            start += data.n

    def sums(self, step: Step, group: RowGroup) -> Any:
        """Those of a row group."""
        return reduce(merged, (step.sums(self.about, *one) for one in self.read(group)))

    @contextmanager
    def at_work(self, jobs: int, on: str | None, progress: Tick | None) -> Iterator[Source]:
        """Itself with processes, or Ray, that work on it."""
        jobs = whole_number("jobs", jobs, 1)
        most = None if on == "ray" and jobs == 1 else min(jobs, len(self.groups))
        with workers(most, on, retries=RETRIES) as crew:
            yield _AtWork(self, crew, jobs == 1 and on is None, progress)


class _AtWork:
    """A folder with what works on it.

    Workers have one thread for linear algebra each, which rounds as one thread does. A single one
    is this process where that has one thread too, or where a policy cannot be sent to another.
    """

    def __init__(self, folder: Folder, crew: Any, single: bool, progress: Tick | None) -> None:
        self.about, self.known = folder.about, folder.known
        self._folder, self._crew, self._progress = folder, crew, progress
        self._single = single

    def total(self, step: Step) -> Any:
        """The sums of the row groups, merged in their order."""
        whole: Any = None
        for group, sums in zip(self._folder.groups, self._sums(step), strict=True):
            whole = sums if whole is None else merged(whole, sums)
            if self._progress is not None:
                self._progress(group.rows)
        return whole

    def _sums(self, step: Step) -> Iterator[Any]:
        folder = self._folder
        try:
            sent = None if self._single and _one_thread() else packable(step)
        except InvalidInput:
            if not self._single:
                raise
            sent = None
        if sent is None:
            yield from (folder.sums(step, group) for group in folder.groups)
            return
        header = None if folder.header is None else msgspec.json.encode(folder.header.to_dict())
        common = pack((folder.about.problem.to_json(), folder.about.n, header, sent))
        for data in in_order(self._crew, f"{__name__}:work", common, folder.groups):
            yield restored(unpack(data)[0])


def _one_thread() -> bool:
    return all(os.environ.get(name) == "1" for name in ONE_THREAD)


def work(common: bytes, task: Any, tick: Tick) -> bytes:
    """The sums of a row group, in a worker."""
    folder, step = _shared(common)
    return pack((packable(folder.sums(step, RowGroup(*task[1]))),))


@lru_cache(maxsize=1)
def _shared(common: bytes) -> tuple[Folder, Step]:
    problem, n, head, step = unpack(common)
    header = None if head is None else Header.from_dict(msgspec.json.decode(head), "the folder")
    about = About(Problem.from_json(problem), n, None if header is None else header.arms)
    return Folder("", about, header, ()), restored(step)


def _sampled(batch: Any, share: float, source: str) -> Any:
    """The rows of a batch that are in a share."""
    if "id" not in batch.schema.names:
        raise InvalidInput(f"{source} has no column id, by which rows are sampled; leave share out")
    kept = [
        int.from_bytes(blake2b(str(one).encode(), digest_size=8).digest(), "big") < share * _HASH
        for one in batch.column("id").to_pylist()
    ]
    from pyarrow import array

    return batch.filter(array(kept))


# --- what travels ------------------------------------------------------------------------------

_CLASS = "class "


def packable(value: Any) -> Any:
    """Steps and sums as tuples of numbers, texts and arrays: an object is the path of its class and
    its fields.
    """
    kind = type(value)
    path = f"{_CLASS}{kind.__module__}:{kind.__qualname__}"
    if isinstance(value, Side):
        policy = _travelling(value.policy)
        return path, policy, value.estimator, value.predict, packable(value.ratio)
    if is_dataclass(value):
        return path, *(packable(getattr(value, one.name)) for one in fields(value))
    if isinstance(value, tuple):
        return (
            (path, *map(packable, value)) if hasattr(value, "_fields") else (*map(packable, value),)
        )
    return value


def restored(value: Any) -> Any:
    """What was made packable."""
    if not isinstance(value, tuple):
        return value
    if value and isinstance(value[0], str) and value[0].startswith(_CLASS):
        return imported(value[0].removeprefix(_CLASS))(*map(restored, value[1:]))
    return tuple(map(restored, value))


def _travelling(policy: Any) -> Any:
    """A policy as it is sent to a worker."""
    if isinstance(policy, (str, int, np.integer)) and not isinstance(policy, bool):
        return f"{_CLASS}{__name__}:arm_or_name", policy
    if isinstance(policy, Agent):
        return f"{_CLASS}{__name__}:agent_of", _readable(policy)
    if isinstance(policy, LinearBandit):
        return f"{_CLASS}fairwolfe.core.build:from_text", repr(policy)
    if isinstance(policy, (Mixture, RankingMixture)):
        return _mixture(policy)
    module = getattr(policy, "__module__", "")
    path = f"{module}:{getattr(policy, '__qualname__', '')}"
    try:  # of a module that another process finds too: no script, page or notebook
        found = imported(path) if module != "__main__" and find_spec(module) else None
    except (ImportError, AttributeError, ValueError):
        found = None
    if found is policy and callable(policy):
        return f"{_CLASS}fairwolfe.core.workers:imported", path
    raise InvalidInput(
        f"the policy is {policy!r:.80}, which cannot be sent to other processes; give an agent, an "
        "arm, what learn returned, or a function of a module that can be imported, or evaluate in "
        "one process (jobs=1)"
    )


def arm_or_name(given: Any) -> Any:
    """Itself."""
    return given


def agent_of(data: bytes) -> Agent:
    """The agent of a dump."""
    return Agent.restore(data)


def _readable(agent: Agent) -> bytes:
    data = agent.dump()
    try:
        Agent.restore(data)
    except FairwolfeError as error:
        raise InvalidInput(
            f"the agent cannot be sent to other processes ({error}); evaluate it in one (jobs=1)"
        ) from error
    return data


def _mixture(policy: Mixture | RankingMixture) -> Any:
    problem = f"{_CLASS}fairwolfe.core.problem:Problem.from_json", policy.problem.to_json()
    if isinstance(policy, RankingMixture):
        plain = replace(policy, estimate=None)
        own = [getattr(plain, one.name) for one in fields(plain)][1:]
        return f"{_CLASS}fairwolfe.offpolicy.learning:RankingMixture", problem, *own
    members = []
    for weights, directions, model in policy.members:
        if not isinstance(model, LinearModel):
            raise InvalidInput(
                "the mixture is over a model of scikit-learn, which cannot be sent to other "
                "processes; learn with model=fw.oracles.Ridge(), or evaluate in one (jobs=1)"
            )
        linear = f"{_CLASS}fairwolfe.offpolicy.models:LinearModel", model.theta
        members.append(
            (f"{_CLASS}fairwolfe.offpolicy.learning:Member", weights, directions, linear)
        )
    return f"{_CLASS}fairwolfe.offpolicy.learning:Mixture", problem, tuple(members), policy.feasible
