"""`Rows`: decisions as columns, the only form that they have inside the library.

One decision is rows of length one. The memory is the format: bytes are a copy of it (`dump`), and
reading them is a view (`load`). The layout is documented in docs/rows.md.
"""

from __future__ import annotations

import math
import struct
from itertools import groupby
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Cube, IntMatrix, Matrix
from fairwolfe.core.packing import pack, read_prefix, unpack
from fairwolfe.errors import InvalidInput

HEAD = np.dtype(
    [
        ("number", "<i8"),  # of the decision in its agent; -1 where no agent made it
        ("t", "<i8"),  # rewards averaged in when it was made
        ("arm", "<i8"),  # chosen among those of the context; -1 of a ranking
        (
            "block",
            "<i8",
        ),  # of the design that learns; of rankings: the epoch, core/groups.py
        ("place", "<i8"),  # among the decisions ever counted as open; -1: it was not
        ("window", "<i8"),  # of live numbers that it counts for; -1: none
        ("size", "<i8"),  # coordinates of the reward vector when it was made
        ("probability", "<f8"),  # NaN where it is unknown
        ("value", "<f8"),  # the estimate of <g, r>
        ("score", "<f8"),  # the same with what exploration adds
        ("best", "<f8"),  # for live numbers: the largest optimistic <slope, r> in the context,
        ("missed", "<f8"),  # what the choice was below the largest estimate,
        ("spare", "<f8"),  # what the better of it and the greedy choice was,
        ("untried", "<f8"),  # and what an arm that was hardly tried may be above it
    ]
)
"""What all kinds of decision have in common, 112 bytes each."""

_BYTES = HEAD.itemsize

Heads = np.ndarray[tuple[int], np.dtype[np.void]]
Objects = NDArray[np.object_]


def _heads(n: int) -> Heads:
    """Zeros, in a third of the time that `np.zeros` takes for a record."""
    return np.ndarray((n,), HEAD, bytearray(_BYTES * n))


class ArmRows(NamedTuple):
    """Decisions for an arm each.

    head (n,) of HEAD; x (n, d): features of the arms; g (n, rewards or 0): directions, where
    learning needs them.
    """

    head: Heads
    x: Matrix
    g: Matrix

    @classmethod
    def empty(cls, n: int, d: int, n_directions: int) -> Self:
        """Room for n decisions."""
        return cls(_heads(n), np.empty((n, d)), np.empty((n, n_directions)))

    @property
    def actions(self) -> Any:
        """The arms, (n,)."""
        return self.head["arm"]

    def part(self, which: Any) -> Self:
        """Some of them."""
        columns: Any = (column[which] for column in self)
        return type(self)(*columns)


class RankingRows(NamedTuple):
    """Rankings of k items each.

    head (n,) of HEAD; items (n, k): ids, best slot first; user (n, p); exposure (n, k): how likely
    each slot is seen; parts (n, 3, k or 0): value, exploration and fairness of each item's score,
    where rankings can be explained; ranks (n, k or 0): of the items without fairness; live
    (n, 2, k): optimistic scores and what was missed, by slot; g (n, coordinates or 0): directions,
    where learning needs them; x (n, k or 0, q): features of the items, where contexts bring them.
    """

    head: Heads
    items: IntMatrix
    user: Matrix
    exposure: Matrix
    parts: Cube
    ranks: IntMatrix
    live: Cube
    g: Matrix
    x: Cube

    @classmethod
    def empty(
        cls,
        n: int,
        k: int,
        p: int,
        n_directions: int,
        features: tuple[int, int] = (0, 0),
        explained: bool = True,
    ) -> Self:
        """Room for n rankings. features: (k, q) where contexts bring them."""
        why = k if explained else 0
        return cls(
            _heads(n),
            np.empty((n, k), np.int64),
            np.empty((n, p)),
            np.empty((n, k)),
            np.empty((n, 3, why)),
            np.empty((n, why), np.int64),
            np.zeros((n, 2, k)),
            np.empty((n, n_directions)),
            np.empty((n, *features)),
        )

    @property
    def actions(self) -> Any:
        """The rankings, (n, k)."""
        return self.items

    def part(self, which: Any) -> Self:
        """Some of them."""
        columns: Any = (column[which] for column in self)
        return type(self)(*columns)


class PlainRows(NamedTuple):
    """Decisions of a policy or a base in Python.

    head (n,) of HEAD; estimate (n, coordinates or 0): of the reward vectors, as they were when the
    decisions were made; g (n, coordinates or 0): directions; live (n, 2, k or 0): of rankings, as
    in `RankingRows`; stored (n,): pairs of an action and its evidence; explained (n,): rows for
    `Decision.explain`, or None, which are not part of the bytes.
    """

    head: Heads
    estimate: Matrix
    g: Matrix
    live: Cube
    stored: Objects
    explained: Objects

    @classmethod
    def empty(cls, n: int, n_estimates: int, n_directions: int, k: int) -> Self:
        """Room for n decisions."""
        head = _heads(n)
        head["arm"] = head["block"] = head["place"] = head["window"] = -1
        return cls(
            head,
            np.empty((n, n_estimates)),
            np.empty((n, n_directions)),
            np.zeros((n, 2, k)),
            np.empty(n, object),
            np.empty(n, object),
        )

    @property
    def actions(self) -> Any:
        """What was decided, a list."""
        return [action for action, _ in self.stored]

    def part(self, which: Any) -> Self:
        """Some of them."""
        columns: Any = (column[which] for column in self)
        return type(self)(*columns)


Rows = ArmRows | RankingRows | PlainRows

_F, _I = np.dtype("<f8"), np.dtype("<i8")
_FINITE = ("value", "score", "best", "missed", "spare", "untried")
_KINDS: tuple[Any, ...] = (ArmRows, RankingRows, PlainRows)
_VERSION = 2
_PREFIX = struct.Struct("<4sHH")  # magic, version, bytes of the header that follows
_MAGIC = b"fwr\n"
_TAG = 16  # bytes of a tag
_WORD = 8  # columns start at multiples of this many bytes


def check(rows: Rows, limit: float = math.inf) -> None:
    """Raise InvalidInput for numbers that no decision holds, in rows of unknown origin.

    All are finite (a probability may be NaN), and features have at most the norm `limit`. Shapes
    and indices are checked by the kernels.
    """
    for name in _FINITE:
        if not np.isfinite(rows.head[name]).all():
            raise InvalidInput(f"the {name} of a decision is not a finite number")
    p = rows.head["probability"]
    if not (np.isnan(p) | ((p > 0.0) & (p <= 1.0))).all():
        raise InvalidInput("the probability of a decision is not above 0 and at most 1")
    for name, column in zip(rows._fields, rows, strict=True):
        if column.dtype == _F and not np.isfinite(column).all():
            raise InvalidInput(f"{name} of a decision holds numbers that are not finite")
    if isinstance(rows, PlainRows):
        return
    with np.errstate(over="ignore"):  # an infinity is too large too
        norm = np.linalg.norm(rows.x, axis=-1)
        if isinstance(rows, RankingRows):
            norm = norm * np.linalg.norm(rows.user, axis=-1)[:, None]
    if not (norm <= limit).all():
        raise InvalidInput(
            f"the features of a decision have norm {norm.max():g}; at most {limit:g} can be learnt "
            "from"
        )


def merge(several: list[Any]) -> list[Any]:
    """The same rows in fewer pieces: neighbours whose columns have the same shapes become one."""
    merged = []
    for _, alike in groupby(several, lambda rows: (type(rows), [c.shape[1:] for c in rows])):
        first, *others = alike
        columns = zip(first, *others, strict=True)
        merged.append(type(first)(*map(np.concatenate, columns)) if others else first)
    return merged


# --- bytes ----------------------------------------------------------------------------------------


class _Header(NamedTuple):
    kind: int  # place in _KINDS
    token: str
    n: int
    tagged: bool
    shapes: list[list[int]]  # of each numeric column, without its first axis
    extra: int  # bytes after the columns: what PlainRows stores


_HEADERS = msgspec.msgpack.Decoder(_Header)


def dump(rows: Rows, token: str, tags: bytes = b"") -> bytes:
    """Rows as bytes: a header, 16 bytes for each tag if there are any, and the columns."""
    extra = pack(tuple(rows.stored)) if isinstance(rows, PlainRows) else b""
    shapes: list[list[int]] = []
    columns: list[bytes] = []
    for column in rows:
        if column.dtype != object:
            shapes.append(list(column.shape[1:]))
            columns.append(column.tobytes())
    kind, n = _KINDS.index(type(rows)), len(rows.head)
    header = msgspec.msgpack.encode(_Header(kind, token, n, bool(tags), shapes, len(extra)))
    prefix = _PREFIX.pack(_MAGIC, _VERSION, len(header))
    padding = bytes(-(len(prefix) + len(header)) % _WORD)
    return b"".join((prefix, header, padding, tags, *columns, extra))


def load(data: Any) -> tuple[Rows, str, bytes]:
    """Rows that `dump` wrote, their token and their tags; InvalidInput for any other bytes.

    Sizes are checked here; what the numbers are is for the tags, or for the kernels, to judge.
    """
    view, length = read_prefix(data, _PREFIX, _MAGIC, _VERSION)
    try:
        header = _HEADERS.decode(view[_PREFIX.size : _PREFIX.size + length])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidInput(f"the bytes are not those of a decision: {error}") from error
    if not 0 <= header.kind < len(_KINDS):
        raise InvalidInput(f"the bytes hold decisions of the unknown kind {header.kind}")
    kind = _KINDS[header.kind]
    start = _PREFIX.size + length
    padding = bytes(view[start : start + -start % _WORD])
    start += len(padding)
    n, tagged = header.n, _TAG * header.n if header.tagged else 0
    axes = [count for _, count in _COLUMNS[kind]]
    if [len(shape) for shape in header.shapes] != axes:
        raise InvalidInput(
            f"the bytes hold columns of shapes {header.shapes!r:.80}; {kind.__name__} have "
            f"{len(axes)} with {axes} axes besides the first"
        )
    pairs = [(dtype, own) for (dtype, _), own in zip(_COLUMNS[kind], header.shapes, strict=True)]
    sizes = [n * dtype.itemsize * math.prod(shape) for dtype, shape in pairs]
    whole = start + tagged + sum(sizes) + header.extra
    least = min(n, header.extra, *(min(shape, default=0) for shape in header.shapes))
    unread = kind is not PlainRows and header.extra > 0
    if least < 0 or whole != len(view) or any(padding) or unread:
        raise InvalidInput(
            f"the bytes of the decision are damaged or cut short: {len(view)} instead of {whole}"
        )
    tags = bytes(view[start : start + tagged])
    start += tagged
    memory = np.frombuffer(view[start : start + sum(sizes)], np.uint8).copy()
    columns, at = [], 0
    for (dtype, shape), size in zip(pairs, sizes, strict=True):
        try:
            columns.append(memory[at : at + size].view(dtype).reshape(n, *shape))
        except (ValueError, OverflowError) as error:  # of columns without numbers
            raise InvalidInput(f"the bytes hold a column of shape {shape!r:.80}") from error
        at += size
    if kind is PlainRows:
        columns += _objects(bytes(view[start + at :]), n)
    return kind(*columns), header.token, tags


def _objects(data: bytes, n: int) -> list[Objects]:
    stored, explained = np.empty(n, object), np.empty(n, object)
    kept = unpack(data)
    pairs = len(kept) == n and all(isinstance(one, tuple) and len(one) == 2 for one in kept)
    if not pairs:
        raise InvalidInput(f"the bytes hold {len(kept)} actions with evidence for {n} decisions")
    for i, one in enumerate(kept):
        stored[i] = one
    return [stored, explained]


def numeric(rows: Any) -> list[Any]:
    """The columns of numbers."""
    return [column for column in rows if column.dtype != object]


_COLUMNS: dict[Any, tuple[tuple[Any, int], ...]] = {  # of numbers: dtype, axes after the first
    ArmRows: ((HEAD, 0), (_F, 1), (_F, 1)),
    RankingRows: (
        *((HEAD, 0), (_I, 1), (_F, 1), (_F, 1), (_F, 2)),
        *((_I, 1), (_F, 2), (_F, 1), (_F, 2)),
    ),
    PlainRows: ((HEAD, 0), (_F, 1), (_F, 1), (_F, 2)),
}
