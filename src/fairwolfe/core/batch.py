"""`Batch`: decisions made together, kept by column; a sequence that makes a Decision when read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.decision import NOTHING, Decision, decided, small
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import InvalidInput

__all__ = ["Batch", "Column"]

_COLUMN = "each"  # the only key of a column in the bytes
_FIELDS = 7
_FLOAT = np.dtype(np.float64)
_WHOLE = frozenset({np.dtype(np.int64), np.dtype(np.int32)})


class Column(NamedTuple):
    """What differs from decision to decision: an array with a row, or a number, for each."""

    values: NDArray[Any]


class Batch(Sequence[Decision]):
    """Decisions made together; reading one makes a `Decision`.

    `evidence` is nested as that of a decision, with a `Column` where decisions differ. A slice is a
    batch again. `made` are the rows of the base, `made.info(i)` what is reported of the i-th;
    they are known where the decisions were made, and are not part of the bytes, nor are `names`,
    which has for each decision what arms or items are called, by number.

    >>> batch = Batch("a", 5, 0, np.array([2, 0]), None, (Column(np.eye(2)), None))
    >>> len(batch), batch[1]
    (2, Decision(id='a-6', t=0, action=0, probability=None, evidence=<1 array, 2 numbers>))
    >>> Batch.from_bytes(batch.to_bytes())[1:]
    <Batch of 1 decisions, a-6 to 6>
    """

    __slots__ = ("actions", "evidence", "first", "made", "names", "probabilities", "t", "token")

    def __init__(
        self,
        token: str,
        first: int,
        t: int,
        actions: NDArray[Any],
        probabilities: NDArray[np.float64] | None,
        evidence: Any,
        made: Any = None,
    ) -> None:
        self.token, self.first, self.t = token, first, t
        self.actions = actions
        self.probabilities = probabilities
        self.evidence = evidence
        self.made = made
        self.names: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.actions)

    @overload
    def __getitem__(self, place: int) -> Decision: ...
    @overload
    def __getitem__(self, place: slice) -> Batch: ...
    def __getitem__(self, place: int | slice) -> Decision | Batch:
        if isinstance(place, slice):
            return self._part(place)
        n = len(self.actions)
        i = place + n if place < 0 else place
        if not 0 <= i < n:
            raise IndexError(f"decision {place} of {n}")
        probability = None if self.probabilities is None else self.probabilities.item(i)
        info = NOTHING if self.made is None else self.made.info(i)
        if self.names is not None:
            info = info._replace(names=self.names[i])
        return decided(
            f"{self.token}-{self.first + i}" if self.token else "",
            self.t,
            self.actions.item(i) if self.actions.ndim == 1 else self.actions[i],
            None if probability is None or math.isnan(probability) else probability,
            _row(self.evidence, i),
            info,
        )

    def __iter__(self) -> Iterator[Decision]:
        return (self[i] for i in range(len(self)))

    def _part(self, place: slice) -> Batch:
        start, stop, step = place.indices(len(self))
        if step != 1:
            raise InvalidInput(f"a slice of a batch has the step {step}; take decisions in a row")
        if stop - start == len(self):
            return self
        part = Batch(
            self.token,
            self.first + start,
            self.t,
            self.actions[place],
            None if self.probabilities is None else self.probabilities[place],
            _sliced(self.evidence, slice(start, stop)),
        )
        part.names = None if self.names is None else self.names[place]
        return part

    @classmethod
    def joined(cls, batches: Sequence[Batch]) -> list[Batch]:
        """The same decisions in fewer batches: neighbours are one where they were made in a row, in
        one state, and differ in columns only.

        >>> one, two, late = (Batch("a", n, t, np.array([n]), None, (Column(np.ones((1, 2))), 7))
        ...                   for n, t in ((0, 0), (1, 0), (2, 5)))
        >>> Batch.joined([one, two, late])
        [<Batch of 2 decisions, a-0 to 1>, <Batch of 1 decisions, a-2 to 2>]
        """
        rows: list[list[Batch]] = []
        for batch in batches:
            last = rows[-1][-1] if rows else None
            if last is not None and last._continues_in(batch):
                rows[-1].append(batch)
            else:
                rows.append([batch])
        return [one[0] if len(one) == 1 else cls._together(one) for one in rows]

    def _continues_in(self, other: Batch) -> bool:
        next_ = (self.token, self.first + len(self), self.t)
        same = next_ == (other.token, other.first, other.t)
        same = same and self.actions.shape[1:] == other.actions.shape[1:]
        same = same and (self.probabilities is None) == (other.probabilities is None)
        return same and _same_but_columns(self.evidence, other.evidence)

    @classmethod
    def _together(cls, batches: list[Batch]) -> Batch:
        head = batches[0]
        known = [batch.probabilities for batch in batches if batch.probabilities is not None]
        together = cls(
            head.token,
            head.first,
            head.t,
            np.concatenate([batch.actions for batch in batches]),
            np.concatenate(known) if known else None,
            _concatenated([batch.evidence for batch in batches]),
        )
        if all(batch.names is not None for batch in batches):
            together.names = [name for batch in batches for name in batch.names or ()]
        return together

    def issued(self, token: str, first: int, t: int) -> Batch:
        """The same as an agent hands them out, with its own ids."""
        columns = (self.actions, self.probabilities, self.evidence, self.made)
        return Batch(token, first, t, *columns)

    def __repr__(self) -> str:
        ids = f"{self.token}-{self.first} to {self.first + len(self) - 1}" if len(self) else "none"
        return f"<Batch of {len(self)} decisions, {ids}>"

    def to_bytes(self) -> bytes:
        """The columns, as `Decision.to_bytes` writes a decision; never pickle."""
        head = (self.token, self.first, self.t)
        columns = (small(self.actions), self.probabilities, _written(self.evidence))
        return pack((*head, *columns, "batch"))

    @classmethod
    def from_bytes(cls, data: bytes) -> Batch:
        """Rebuild a batch that `to_bytes` wrote; InvalidInput for any other bytes."""
        values = unpack(data)
        if len(values) != _FIELDS or values[-1] != "batch":
            raise InvalidInput(f"the bytes hold {values[:3]!r:.80}, which is not a batch")
        token, first, t, actions, probabilities, evidence, _ = values
        head = isinstance(token, str) and type(first) is int and type(t) is int and first >= 0
        whole = isinstance(actions, np.ndarray) and actions.dtype in _WHOLE
        whole = whole and actions.ndim in (1, 2)
        if not (head and whole and isinstance(evidence, tuple)):
            raise InvalidInput(
                f"the bytes hold {values[:4]!r:.80}; a batch begins with other values"
            )
        n = len(actions)
        if not (probabilities is None or _is_column(probabilities, n, 1)):
            raise InvalidInput(f"the bytes hold the probabilities {probabilities!r:.80}")
        return cls(token, first, t, actions.astype(np.int64), probabilities, _read(evidence, n))


def _is_column(values: Any, n: int, axes: int | None = None) -> bool:
    right = isinstance(values, np.ndarray) and values.ndim > 0 and len(values) == n
    return right and (axes is None or (values.ndim == axes and values.dtype == _FLOAT))


def _row(node: tuple[Any, ...], i: int) -> Any:
    """Nested tuples as they are in one decision."""
    parts = []
    for part in node:
        if type(part) is Column:
            values = part[0]
            parts.append(values[i] if values.ndim > 1 else values.item(i))
        else:
            parts.append(_row(part, i) if isinstance(part, tuple) else part)
    return tuple.__new__(type(node), parts)  # of whatever kind it is


def _sliced(node: Any, place: slice) -> Any:
    if type(node) is Column:
        return Column(node.values[place])
    if isinstance(node, tuple):
        parts = [_sliced(part, place) for part in node]
        return type(node)(*parts) if type(node) is not tuple else tuple(parts)
    return node


def _same_but_columns(one: Any, other: Any) -> bool:
    """Whether evidence differs in columns only."""
    if one is other:
        return True
    if type(one) is Column or type(other) is Column:
        both = type(one) is type(other)
        return both and one.values.shape[1:] == other.values.shape[1:]
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same_but_columns, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        same = type(one) is type(other) and one.shape == other.shape and one.dtype == other.dtype
        return same and one.tobytes() == other.tobytes()
    return type(one) is type(other) and bool(one == other)


def _concatenated(nodes: list[Any]) -> Any:
    head = nodes[0]
    if type(head) is Column:
        return Column(np.concatenate([node.values for node in nodes]))
    if isinstance(head, tuple):
        return tuple.__new__(type(head), map(_concatenated, map(list, zip(*nodes, strict=True))))
    return head


def _written(node: Any) -> Any:
    if type(node) is Column:
        return {_COLUMN: node.values}
    return tuple(_written(part) for part in node) if isinstance(node, tuple) else node


def _read(node: Any, n: int) -> Any:
    if isinstance(node, dict):
        values: Any = node.get(_COLUMN)
        if len(node) != 1 or not _is_column(values, n):
            raise InvalidInput(f"the bytes hold a column {node!r:.80} for {n} decisions")
        return Column(values)
    return tuple(_read(part, n) for part in node) if isinstance(node, tuple) else node
