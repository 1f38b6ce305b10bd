"""The table of logged decisions, one row for each decision with its whole feedback; and
`DecisionLog`, the file to which an agent appends every decision that was answered.

`agent.log(path)` and `fairwolfe log export` write it and `fw.offpolicy.Log.of` reads it, as Parquet
(with pyarrow) or as JSON Lines (with nothing). The columns are the same in both:

| column | of | what |
|---|---|---|
| `id` | all | the id of the decision, a text |
| `number` | all | its place among its agent's decisions, from 0; those without feedback are gaps |
| `time` | all, optional | when it was made, seconds since 1970 in UTC |
| `probability` | all | of the action or the whole ranking, given the context; null: unknown |
| `context` | arms | features (arms, d) |
| `user`, `arms` | arms, Bilinear | features (p,) and (arms, q), instead of `context` |
| `features` | arms, PerArm | features (d,), instead of `context` |
| `candidates` | arms, optional | numbers of the arms that could be chosen; null: all |
| `names` | arms, optional | what the arms of this context are called |
| `name` | arms, optional | what the chosen arm is called, also where `names` was not kept |
| `action` | arms | the number of the arm in the whole context |
| `probabilities` | arms, optional | of all arms of the context (arms,) |
| `reward.<name>` | arms | a number |
| `user` | rankings | features (p,); null where the problem does not separate users and items |
| `candidates` | rankings, optional | the items that could be shown, by number or key; null: all |
| `items` | rankings | features (candidates, q), where the header does not have them |
| `pinned` | rankings, optional | by slot: the item that it had to show; -1: none |
| `ranking` | rankings | the items shown, by number or key, best slot first |
| `exposed` | rankings | by slot: 1 where the item was exposed, else 0 |
| `reward.<name>` | rankings | numbers by slot |
| `probabilities` | rankings, optional | item at rank: P(item i in slot k), (items, slots) |

The header has the rest: the problem, f and the policy as text, keys and features of the items by
number, the names of the arms, and the versions. In JSON Lines it is the first line, and comes again
where it changes, as when items are added; the last one holds. A process that is killed may leave
the last line cut: a reader drops it with a warning. A cut line elsewhere is damage, and raises.
"""

from __future__ import annotations

import logging
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib.metadata import version as installed
from mmap import ACCESS_READ, mmap
from typing import Any, BinaryIO, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairwolfe.agent.ledger import Ledger
from fairwolfe.core.arrays import Matrix
from fairwolfe.core.candidates import Candidates
from fairwolfe.core.contexts import Arms, Bilinear
from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.feedback import Shown, row_of
from fairwolfe.core.files import file_path, whole_file
from fairwolfe.core.interrupts import uninterrupted
from fairwolfe.core.kinds import Kind, Stack
from fairwolfe.core.problem import Problem
from fairwolfe.errors import (
    FairwolfeError,
    InvalidInput,
    MissingData,
    did_you_mean,
    require_extra,
)

__all__ = ["FORMAT", "VERSION", "Header", "Writer", "is_decisions", "line_of", "read", "rows_of"]

FORMAT, VERSION = "fairwolfe decisions", 1

_METADATA = b"fairwolfe decisions"  # the key of the header in Parquet
_REWARD = "reward."
_ROWS = 1 << 14  # of a part of the table that is read or written at once
_COMMON = ("id", "number", "time", "probability", "probabilities", "candidates")
_ARMS = (*_COMMON, "context", "user", "arms", "features", "names", "name", "action")
_RANKING = (*_COMMON, "user", "items", "pinned", "ranking", "exposed")

Columns = dict[str, Any]

logger = logging.getLogger("fairwolfe")


@dataclass(frozen=True)
class Header:
    """What is true of all rows.

    problem: with the ranges of the rewards
    objective, policy: as text, the repr of what decided; None where unknown
    keys, features: of the items by number, those of retired items too, features (items, q); None
        if there are none
    arms: names of the arms, where they are the same in every context
    """

    problem: Problem
    objective: str | None = None
    policy: str | None = None
    keys: tuple[str, ...] | None = None
    features: Matrix | None = None
    arms: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "library": installed("fairwolfe"),
            "problem": msgspec.json.decode(self.problem.to_json()),
            "objective": self.objective,
            "policy": self.policy,
            "keys": None if self.keys is None else list(self.keys),
            "features": None if self.features is None else np.asarray(self.features).tolist(),
            "arms": None if self.arms is None else list(self.arms),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], source: object) -> Header:
        """What `to_dict` made; InvalidInput for anything else."""
        if given.get("format") != FORMAT:
            raise InvalidInput(f"{source} is not a table of logged decisions: it has no header")
        if given.get("version") != VERSION:
            raise InvalidInput(
                f"{source} has format version {given.get('version')!r:.40} (written by fairwolfe "
                f"{given.get('library')!s:.40}); this fairwolfe reads version {VERSION}"
            )
        try:
            features = given.get("features")
            return cls(
                Problem.from_json(msgspec.json.encode(given["problem"]).decode()),
                _text(given.get("objective")),
                _text(given.get("policy")),
                _texts(given.get("keys")),
                None if features is None else np.array(features, dtype=np.float64),
                _texts(given.get("arms")),
            )
        except (FairwolfeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInput(f"the header of {source} cannot be read: {error}") from error

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Header) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        return hash((self.problem, self.objective, self.keys))

    def column_names(self) -> tuple[str, ...]:
        """The columns that a row may have."""
        own = _ARMS if self.problem.kind == "arms" else _RANKING
        return (*own, *(f"{_REWARD}{name}" for name in self.problem.rewards))

    def continues(self, older: Header) -> bool:
        """Whether rows under this header may follow those under an older one: only items were
        added, if anything changed.
        """
        mine, theirs = self.problem, older.problem
        if mine.kind != theirs.kind:
            return False
        if mine.n_items is not None:
            if (theirs.n_items or 0) > mine.n_items:
                return False
            theirs = replace(theirs, n_items=mine.n_items)
        known = len(older.keys or ())
        return mine == theirs and (self.keys or ())[:known] == (older.keys or ())


def _text(given: Any) -> str | None:
    if not (given is None or isinstance(given, str)):
        raise TypeError(f"{given!r:.40} is not a text")
    return given


def _texts(given: Any) -> tuple[str, ...] | None:
    return None if given is None else tuple(str(_text(one)) for one in given)


class Writer:
    """Writes a table, whole or not at all, in the form that its name asks for: .parquet or .jsonl.

    `columns` takes arrays or lists by column, `rows` mappings one by one; a column that a decision
    does not have is left out or None.

    >>> import tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "log.jsonl")
    >>> header = Header(Problem.arms(1, {"clicks": (0, 1)}))
    >>> with Writer(path, header) as table:
    ...     table.columns({"id": ["a-0", "a-1"], "number": [0, 1], "context": np.ones((2, 3, 1)),
    ...                    "action": [0, 2], "probability": [0.5, 0.25], "reward.clicks": [1, 0]})
    ...     table.row({"id": "a-3", "number": 3, "context": [[1.0]], "action": 0,
    ...                "probability": 1.0, "reward.clicks": 0.0})
    >>> header, parts = read(path)
    >>> [row["id"] for part in parts for row in rows_of(part)]
    ['a-0', 'a-1', 'a-3']
    """

    def __init__(self, path: str | os.PathLike[str], header: Header) -> None:
        name = os.fspath(path)
        self._parquet = name.endswith((".parquet", ".pq"))
        if not self._parquet and not name.endswith((".jsonl", ".ndjson")):
            raise InvalidInput(f"{name} has no known ending; name it .parquet or .jsonl")
        self._path, self._header = path, header
        self._known = frozenset(header.column_names())
        self._open = ExitStack()
        self._waiting: list[Mapping[str, Any]] = []
        self._file: BinaryIO
        self._arrow: Any = None

    def __enter__(self) -> Self:
        if self._parquet:
            _pyarrow()
        self._file = self._open.enter_context(whole_file(self._path))
        if self._parquet:
            from pyarrow import parquet

            self._arrow = parquet.ParquetWriter(self._file, schema_of(self._header))
        else:
            self._file.write(line_of(self._header.to_dict()))
        return self

    def __exit__(self, *raised: Any) -> None:
        try:
            if raised[0] is None:
                self._flush()
        except BaseException as error:
            self._close(type(error), error, error.__traceback__)
            raise
        self._close(*raised)

    def _close(self, *raised: Any) -> None:
        if self._arrow is not None:
            self._arrow.close()  # into the spare file, which goes where something was raised
        self._open.__exit__(*raised)

    def row(self, row: Mapping[str, Any]) -> None:
        """Add one row."""
        self._check(row)
        self._waiting.append(row)
        if len(self._waiting) >= _ROWS:
            self._flush()

    def rows(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        for row in rows:
            self.row(row)

    def columns(self, columns: Mapping[str, Any]) -> None:
        """Add rows by column."""
        self._check(columns)
        self._flush()
        lengths = {name: len(column) for name, column in columns.items() if column is not None}
        if len(set(lengths.values())) > 1:
            raise InvalidInput(f"the columns have the lengths {lengths}; give one value for a row")
        for first in range(0, max(lengths.values(), default=0), _ROWS):
            part = {name: columns[name][first : first + _ROWS] for name in lengths}
            if self._parquet:
                self._arrow.write_table(_arrow_table(part, self._header))
            else:
                self._file.writelines(map(line_of, rows_of(part)))

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        if self._parquet:
            self._arrow.write_table(_arrow_table(_by_column(waiting), self._header))
        else:
            self._file.writelines(map(line_of, waiting))

    def _check(self, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._known:
                raise InvalidInput(
                    f"a table of {self._header.problem.kind} has no column {name!r}; "
                    f"{did_you_mean(name, self._known)}"
                )


def line_of(row: Mapping[str, Any]) -> bytes:
    """A row or a header as a line of JSON; columns that are None are left out of rows."""
    kept = {name: _plain(value) for name, value in row.items() if value is not None}
    return msgspec.json.encode(kept) + b"\n"


def _plain(value: Any) -> Any:
    """What JSON holds: NumPy's arrays and numbers as Python's."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    nested = isinstance(value, (list, tuple)) and value
    if nested and isinstance(value[0], (np.ndarray, np.generic)):
        return [_plain(one) for one in value]
    return value


def rows_of(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a part of a table."""
    names = list(columns)
    for values in zip(*columns.values(), strict=True):
        yield dict(zip(names, values, strict=True))


# --- reading -----------------------------------------------------------------------------------


def is_decisions(path: str | os.PathLike[str]) -> bool:
    """Whether a file is a table of logged decisions, by its beginning."""
    with _opened(path) as file:
        start = file.read(4)
        if start == b"PAR1":
            return _METADATA in _parquet_metadata(path)
        file.seek(0)
        first = file.readline(1 << 24)
    try:
        head = msgspec.json.decode(first)
    except msgspec.DecodeError:
        return False
    return isinstance(head, dict) and head.get("format") == FORMAT


def read(path: str | os.PathLike[str]) -> tuple[Header, Iterator[Columns]]:
    """The header of a table, and its rows in parts by column: lists, or arrays of NumPy where all
    rows of a part have the same shape.
    """
    with _opened(path) as file:
        parquet = file.read(4) == b"PAR1"
    if parquet:
        return _read_parquet(path)
    headers = deque(_headers(path), maxlen=1)  # the last one holds
    if not headers:
        raise InvalidInput(f"{path} is not a table of logged decisions: it has no header")
    return headers[0], _read_lines(path)


def _opened(path: str | os.PathLike[str]) -> BinaryIO:
    try:
        return open(path, "rb")
    except FileNotFoundError as error:
        raise MissingData(f"there is no file {path}; give the path of a log") from error
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read: {error.strerror}") from error


def _headers(path: str | os.PathLike[str]) -> Iterator[Header]:
    """The headers of a file of lines; rows are skipped unread."""
    before: Header | None = None
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if number > 1 and not line.startswith(b'{"format":'):
                continue
            head = _decoded(path, number, line)
            header = Header.from_dict(head, f"{path}, line {number},")
            if before is not None and not header.continues(before):
                raise InvalidInput(
                    f"{path}, line {number}: the header is of another problem than the one before; "
                    "write the log of each agent to its own file"
                )
            before = header
            yield header


def _read_lines(path: str | os.PathLike[str]) -> Iterator[Columns]:
    rows: list[dict[str, Any]] = []
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if line.startswith(b'{"format":') or not line.strip():
                continue
            try:
                rows.append(_decoded(path, number, line))
            except InvalidInput:
                if line.endswith(b"\n"):
                    raise
                warnings.warn(
                    f"{path}, line {number}: the last line was cut when it was written, and is "
                    "left out",
                    stacklevel=2,
                )
            if len(rows) == _ROWS:
                yield _by_column(rows)
                rows = []
    if rows:
        yield _by_column(rows)


def _decoded(path: object, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise InvalidInput(
            f"{path}, line {number}: the line is cut or damaged ({error}); take it out, or restore "
            "the file"
        ) from error
    if not isinstance(row, dict):
        raise InvalidInput(f"{path}, line {number}: {line[:40]!r} is not a row of a table")
    return row


def _by_column(rows: Sequence[Mapping[str, Any]]) -> Columns:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


# --- Parquet -----------------------------------------------------------------------------------


def _pyarrow() -> Any:
    instead = "or use JSON Lines (.jsonl), which needs nothing"
    require_extra("lab", "Parquet", "pyarrow", instead=instead)
    import pyarrow

    return pyarrow


def schema_of(header: Header) -> Any:
    """The types of the columns, with the header among the metadata."""
    arrow = _pyarrow()
    number, vector = arrow.float64(), arrow.list_(arrow.float64())
    matrix, text = arrow.list_(vector), arrow.string()
    ranks = header.problem.kind != "arms"
    # Items are named by number in every file, whatever a row has: keys become numbers.
    whole, wholes = arrow.int64(), arrow.list_(arrow.int64())
    kinds = {
        "id": text,
        "name": text,
        "names": arrow.list_(text),
        "probabilities": matrix if ranks else vector,
    }
    for names, kind in (
        (("number", "action"), whole),
        (("time", "probability"), number),
        (("candidates", "pinned", "ranking"), wholes),
        (("user", "features", "exposed"), vector),
        (("context", "arms", "items"), matrix),
    ):
        kinds |= dict.fromkeys(names, kind)
    fields = [
        (name, kinds.get(name, vector if ranks else number)) for name in header.column_names()
    ]
    return arrow.schema(fields, metadata={_METADATA: msgspec.json.encode(header.to_dict())})


def _arrow_table(columns: Mapping[str, Any], header: Header) -> Any:
    arrow = _pyarrow()
    schema = schema_of(header)
    count = len(next(iter(columns.values())))
    arrays = []
    for field in schema:
        column = columns.get(field.name)
        try:
            arrays.append(_arrow_column(arrow, field.type, column, count, header.keys))
        except (arrow.ArrowException, TypeError, ValueError) as error:
            raise InvalidInput(
                f"the column {field.name!r} cannot be written as {field.type}: {error}"
            ) from error
    return arrow.Table.from_arrays(arrays, schema=schema)


def _arrow_column(
    arrow: Any, kind: Any, column: Any, count: int, keys: tuple[str, ...] | None
) -> Any:
    if column is None:
        return arrow.nulls(count, kind)
    if isinstance(column, np.ndarray) and column.dtype.kind in "fiub":
        return _nested(arrow, kind, column)
    listed = [_plain(one) for one in column]
    if kind == arrow.list_(arrow.int64()) and keys is not None:
        numbers = {key: i for i, key in enumerate(keys)}
        listed = [one and [numbers.get(item, item) for item in one] for one in listed]
    return arrow.array(listed, kind)


def _nested(arrow: Any, kind: Any, column: NDArray[Any]) -> Any:
    """An array (rows, ...) as lists of lists, without a Python object for each number."""
    inner, depth = kind, 1
    while arrow.types.is_list(inner):
        inner, depth = inner.value_type, depth + 1
    if column.ndim != depth:
        raise ValueError(f"it is an array with {column.ndim} axes, and {depth} are needed")
    values = arrow.array(np.ascontiguousarray(column).reshape(-1), inner)
    for axis in range(column.ndim - 1, 0, -1):
        size, lists = column.shape[axis], int(np.prod(column.shape[:axis]))
        offsets = np.arange(0, (lists + 1) * size, max(size, 1), dtype=np.int32)[: lists + 1]
        values = arrow.ListArray.from_arrays(arrow.array(offsets), values)
    return values


def _parquet_metadata(path: str | os.PathLike[str]) -> Mapping[bytes, bytes]:
    arrow = _pyarrow()
    from pyarrow import parquet

    try:
        return parquet.read_schema(path).metadata or {}
    except (arrow.ArrowException, OSError) as error:
        raise InvalidInput(f"{path} cannot be read as Parquet: {error}") from error


def _read_parquet(path: str | os.PathLike[str]) -> tuple[Header, Iterator[Columns]]:
    header = header_of(_parquet_metadata(path), path)
    if header is None:
        raise InvalidInput(f"{path} is not a table of logged decisions: it has no header")
    return header, _parquet_parts(path)


def header_of(metadata: Mapping[bytes, bytes], path: object) -> Header | None:
    """The header in the metadata of a Parquet file; None for a table of others."""
    if _METADATA not in metadata:
        return None
    return Header.from_dict(msgspec.json.decode(metadata[_METADATA]), path)


def _parquet_parts(path: str | os.PathLike[str]) -> Iterator[Columns]:
    from pyarrow import parquet

    with parquet.ParquetFile(path) as file:
        yield from batches_of(file)


def batches_of(
    file: Any, groups: list[int] | None = None, keep: Callable[[Any], Any] | None = None
) -> Iterator[Columns]:
    """The rows of a Parquet file, or of some of its row groups, in parts by column; keep: a batch
    with fewer rows.
    """
    for batch in file.iter_batches(_ROWS, row_groups=groups):
        kept = batch if keep is None else keep(batch)
        if kept.num_rows:
            columns = zip(kept.schema.names, kept.columns, strict=True)
            yield {
                name: dense(column) for name, column in columns if column.null_count < len(column)
            }


def dense(column: Any) -> Any:
    """A column of Arrow as an array of NumPy where all its rows have one shape, else as a list."""
    arrow = _pyarrow()
    if column.null_count:
        return column.to_pylist()
    shape, inner = [len(column)], column
    while arrow.types.is_list(inner.type) or arrow.types.is_large_list(inner.type):
        lengths = np.unique(np.diff(inner.offsets.to_numpy()))
        if lengths.size != 1:
            return column.to_pylist()
        shape.append(int(lengths[0]))
        inner = inner.flatten()
        if inner.null_count:
            return column.to_pylist()
    if arrow.types.is_floating(inner.type) or arrow.types.is_integer(inner.type):
        return inner.to_numpy(zero_copy_only=False).reshape(shape)
    return column.to_pylist()


# --- the log of an agent -----------------------------------------------------------------------


class Kept(NamedTuple):
    """The context of a decision, or one of those that were read together."""

    given: Any  # a checked context, or a Stack
    row: int | None  # of a Stack
    time: float
    columns: dict[str, Any]  # of the row, in addition to the context


class DecisionLog:
    """Contexts of open decisions, and the file of JSON Lines for those that were answered.

    Lines are handed to the operating system as each `update` or `update_many` ends, so that a
    process that is killed loses no answered decision but the one it was writing, the line of which
    may be cut.

    A row is staged before its answer is applied, and written once the ledger has it: whatever
    comes between, each answered decision is written once.
    """

    def __init__(
        self, path: str | os.PathLike[str], kind: Kind, mark: tuple[Any, ...], header: Header
    ) -> None:
        self._file = -1
        if kind.name not in ("arms", "ranking"):
            raise InvalidInput(
                f"decisions of kind {kind.name!r} have no table; log is for arms and rankings"
            )
        path = file_path(path)
        self.path, self.mark, self.header = path, mark, header
        self.logged = 0
        self.unlogged = 0  # answered, but made before the log began, or elsewhere
        self._contexts: dict[int, Kept] = {}
        self._staged: dict[int, dict[str, Any]] = {}
        _prepare(path, header)
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        except OSError as error:
            wrong = MissingData if isinstance(error, FileNotFoundError) else InvalidInput
            raise wrong(
                f"the log {os.fspath(path)!r} cannot be opened ({error.strerror}); name a file in "
                "a folder that exists and can be written"
            ) from error
        if os.fstat(self._file).st_size == 0:
            self._write(line_of(header.to_dict()))

    def take_over(self, older: DecisionLog) -> None:
        """What is open in an older log is open in this one."""
        self._contexts = older._contexts

    def counts(self) -> dict[str, int]:
        """For `Agent.stats`."""
        return {"logged": self.logged, "unlogged": self.unlogged}

    def close(self) -> None:
        """Append nothing more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    __del__ = close

    # --- decisions -----------------------------------------------------------------------------

    def remember_context(
        self, number: int, kind: Kind, context: Any, given: Any, names: Any
    ) -> None:
        """A decision is made in a context, which was read as `given`; names: of its arms, where
        they came with it. What is kept are copies: the caller may use its arrays again.
        """
        columns: dict[str, Any] = {} if names is None else {"names": list(names)}
        kept = given
        if isinstance(given, Arms):
            whole = given if given.places is None else kind.read(context)
            kept = whole._replace(features=whole.features.copy(), places=given.places)
            if isinstance(context, Bilinear):
                columns |= {"user": np.array(context.user), "arms": np.array(context.items)}
                kept = kept._replace(features=whole.features[:0])
        elif isinstance(given, Candidates):
            items = given.items if given.kept else given.items.copy()
            kept = given._replace(user=given.user.copy(), items=items)
        self._contexts[number] = Kept(kept, None, time.time(), columns)

    def remember_contexts(self, first: int, kind: Kind, stack: Stack) -> None:
        """Decisions are made in contexts that were read from one array, from number `first` on."""
        given, now = stack.given, time.time()
        if isinstance(given, Arms):
            stack = stack._replace(given=given._replace(features=given.features.copy()))
        else:
            stack = stack._replace(given=given._replace(user=given.user.copy()))
        for i in range(stack.rows):
            self._contexts[first + i] = Kept((kind, stack), i, now, {})

    def forget(self, number: int) -> None:
        """A decision gets no feedback any more, or not all of it: it has no row."""
        self._contexts.pop(number, None)

    # --- answers -------------------------------------------------------------------------------

    def stage(self, token: str, batch: Batch, observation: Any) -> None:
        """Answers are about to be applied; token: that of the agent's own decisions."""
        for i, decision in enumerate(batch):
            self._stage(token, decision, row_of(observation, i))

    def _stage(self, token: str, decision: Decision, observation: Any) -> None:
        rewards = observation.rewards if isinstance(observation, Shown) else observation
        if isinstance(rewards, np.ndarray) and np.isnan(rewards).any():
            return  # a row has the answers of all stages
        number = decision.number
        kept = self._contexts.get(number) if decision.token == token else None
        if kept is None:
            self.unlogged += 1
            return
        self._staged[number] = {
            "id": decision.id,
            "number": number,
            "time": kept.time,
            "probability": decision.probability,
            **_context_columns(kept),
            **_answer_columns(self.header, decision.action, observation),
        }

    def settle(self, ledger: Ledger, mark: tuple[Any, ...], header: Callable[[], Header]) -> None:
        """Write the staged rows whose answers were applied; drop the others. A new header goes
        before them where the objects of the mark are others than before.
        """
        if self._staged:
            uninterrupted(lambda: self._settle(ledger, mark, header))

    def _settle(self, ledger: Ledger, mark: tuple[Any, ...], header: Callable[[], Header]) -> None:
        staged, self._staged = self._staged, {}
        rows = {number: row for number, row in staged.items() if not ledger.waits(number)}
        if not rows:
            return
        if self._file < 0:
            self.unlogged += len(rows)
            return
        lines = [line_of(row) for row in rows.values()]
        if any(new is not old for new, old in zip(mark, self.mark, strict=True)):
            self.mark, self.header = mark, header()
            lines.insert(0, line_of(self.header.to_dict()))
        for number in rows:
            self._contexts.pop(number, None)
        try:
            self._write(b"".join(lines))
            self.logged += len(rows)
        except OSError as error:  # the answers count; only their rows are lost
            self.unlogged += len(rows)
            text = (
                f"{self.path} cannot be written ({error.strerror or error}), so decisions are not "
                "logged any more; make room and call agent.log(path) again"
            )
            self.close()
            logger.warning(text)
            warnings.warn(text, stacklevel=4)

    def _write(self, data: bytes) -> None:
        """One call of the system where it can be, so that lines of two agents do not mix."""
        while data:
            data = data[os.write(self._file, data) :]


def _context_columns(kept: Kept) -> dict[str, Any]:
    given = kept.given
    if kept.row is not None:
        kind, stack = kept.given
        given = kind.single(stack, kept.row)
    columns = dict(kept.columns)
    if isinstance(given, Arms):
        if "arms" not in columns:
            if given.per_arm:
                columns["features"] = given.features[0]
            else:
                columns["context"] = given.features
        if given.places is not None:
            columns["candidates"] = given.places
        return columns
    columns["user"] = given.user
    if not given.kept:
        columns["items"] = given.items.T
    if given.places.size or not given.kept:
        columns["candidates"] = given.ids
    if given.pinned.size:
        columns["pinned"] = np.where(given.pinned < 0, -1, given.ids[given.pinned])
    return columns


def _answer_columns(header: Header, action: Any, observation: Any) -> dict[str, Any]:
    names = header.problem.rewards
    if isinstance(observation, Shown):
        slots = {f"reward.{name}": observation.rewards[:, r] for r, name in enumerate(names)}
        return {"ranking": action, "exposed": observation.exposed, **slots}
    rewards = {f"reward.{name}": observation[r] for r, name in enumerate(names)}
    return {"action": action, **rewards}


def _prepare(path: str, header: Header) -> None:
    """A file that exists must continue with this header; a last line that was cut is taken off."""
    if not os.path.exists(path) or os.path.getsize(path) == 0:
        return
    if not is_decisions(path):
        raise InvalidInput(
            f"{path} exists and is not a log of decisions; name a new file, or a log to continue"
        )
    older, _ = read(path)
    if not header.continues(older):
        raise InvalidInput(
            f"{path} is the log of another problem; name a new file, or a log of this problem"
        )
    with open(path, "rb+") as file:
        with mmap(file.fileno(), 0, access=ACCESS_READ) as view:
            end, size = view.rfind(b"\n") + 1, len(view)
        if end < size:
            logger.warning("the last line of %s is incomplete; it is removed", path)
            file.truncate(end)
