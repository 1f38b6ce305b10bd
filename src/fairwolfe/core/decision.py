"""`Decision` and `Batch`: views of rows; `Choice`: the result of a base in Python; `Learnt`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from hmac import compare_digest
from itertools import groupby
from typing import Any, NamedTuple, overload

import numpy as np

from fairwolfe.core.arrays import Action, Vector
from fairwolfe.core.packing import pack
from fairwolfe.core.rows import (
    ArmRows,
    PlainRows,
    RankingRows,
    Rows,
    check,
    dump,
    load,
    merge,
    numeric,
)
from fairwolfe.core.tables import Brief, Summary, few, short
from fairwolfe.errors import InvalidInput

_DIGITS = 15  # of the number of a decision: no agent makes more, and a float holds them all
_ITEMS = 12  # of a ranking that are printed
_TAG = 16  # bytes of the keyed checksum of a decision


class Choice(NamedTuple):
    """What a base in Python chose, with what probability (None: unknown), and what its update
    needs; explanation: rows of numbers by name, for `Decision.explain`, or None.
    """

    action: Action
    probability: float | None
    evidence: Any
    explanation: list[dict[str, Any]] | None = None


class Learnt(NamedTuple):
    """What a base has learnt of the rewards."""

    oracle: Any
    """The state of its regression, with `estimates(arms)`."""
    looks: tuple[float, ...] = ()
    """How likely each slot is exposed; empty for arms."""


class Decision(Brief):
    """What a policy decided: enough to learn from the feedback whenever it comes.

    `evidence` is what a policy in Python gives itself to learn from: nested tuples of arrays,
    numbers, strings and None. Read back from bytes they are plain tuples.

    >>> Decision.from_bytes(Decision("a-0", 0, 3, 0.5, (np.ones(2), None)).to_bytes())
    Decision(id='a-0', t=0, action=3, probability=0.5)
    """

    __slots__ = ("_batch", "_row")

    def __init__(
        self, id: str, t: int, action: Action, probability: float | None, evidence: Any
    ) -> None:
        rows = PlainRows.empty(1, 0, 0, 0)
        token, rows.head["number"] = _place(str(id))
        rows.head["t"] = t
        rows.head["arm"] = action if isinstance(action, (int, np.integer)) else -1
        rows.head["probability"] = math.nan if probability is None else probability
        rows.stored[0] = (action, evidence)
        self._batch, self._row = Batch(rows, token), 0

    @classmethod
    def of(cls, batch: Batch, row: int) -> Decision:
        """One of a batch."""
        decision = cls.__new__(cls)
        decision._batch, decision._row = batch, row
        return decision

    @property
    def batch(self) -> Batch:
        """The decision as a batch of length one."""
        whole = self._batch
        return whole if len(whole.rows.head) == 1 else whole[self._row : self._row + 1]

    @property
    def id(self) -> str:
        """The token of the agent that made it, and its number there; else what it was given."""
        return self._batch.id(self._row)

    @property
    def token(self) -> str:
        """Of the agent that made it."""
        return self._batch.token

    @property
    def number(self) -> int:
        """Its place among the decisions of the agent that made it; -1 where none did."""
        return int(self._batch.rows.head["number"].item(self._row))

    @property
    def t(self) -> int:
        """How many rewards were averaged in when it was made."""
        return int(self._batch.rows.head["t"].item(self._row))

    @property
    def action(self) -> Any:
        """The arm, or the ids of the items, best slot first."""
        rows = self._batch.rows
        if isinstance(rows, ArmRows):
            return rows.head["arm"].item(self._row)
        return rows.items[self._row] if isinstance(rows, RankingRows) else rows.stored[self._row][0]

    @property
    def probability(self) -> float | None:
        """The propensity of the action; None where it is unknown."""
        known: float = self._batch.rows.head["probability"].item(self._row)
        return None if math.isnan(known) else known

    @property
    def evidence(self) -> Any:
        """What a policy in Python learns from; None for compiled policies."""
        rows = self._batch.rows
        return rows.stored[self._row][1] if isinstance(rows, PlainRows) else None

    @property
    def direction(self) -> Vector | None:
        """g, where the decision keeps it."""
        g = self._batch.rows.g
        return g[self._row] if g.shape[1] else None

    @property
    def name(self) -> str | None:
        """What the arm is called; None for a ranking, without names, and read back from bytes."""
        names, action = self._batch.names_of(self._row), self.action
        return None if names is None or isinstance(action, np.ndarray) else names[action]

    @property
    def names(self) -> tuple[str, ...] | None:
        """The keys of the items of a ranking, best slot first; None where `name` would be."""
        names, action = self._batch.names_of(self._row), self.action
        if names is None or not isinstance(action, np.ndarray):
            return None
        return tuple(names[item] for item in action.tolist())

    def explain(self) -> list[dict[str, Any]]:
        """What made the score of what was chosen: of a ranking, slot by slot; of an arm, its own.

        `value` is what it is estimated to earn along the direction, `exploration` the bonus for
        what is not known yet; for items `fairness` is the bonus for exposure, and the sum of the
        three is the score; their rank without fairness is given too. `name` is there if there
        are names.
        """
        rows, i = self._batch.rows, self._row
        if isinstance(rows, ArmRows):
            value, score = rows.head["value"].item(i), rows.head["score"].item(i)
            why: Any = [{"arm": self.action, "value": value, "exploration": score - value}]
        elif isinstance(rows, RankingRows):
            why = _explained(rows, i) if rows.parts.shape[2] else None
        else:
            why = rows.explained[i]
            if why is not None and isinstance(self.action, int):  # numbered in the whole context
                why = [row | {"arm": self.action} if "arm" in row else row for row in why]
        if why is None:
            raise InvalidInput(
                f"there is nothing to explain of decision {self.id!r}: the policy gives no "
                "reasons, or the decision was made in another process"
            )
        names = self.names if self.name is None else (self.name,)
        if names is None or len(names) != len(why):
            return list(why)
        return [{"name": name, **row} for name, row in zip(names, why, strict=True)]

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value}" for name, value in self._facts().items())
        return f"Decision(id={short(repr(self.id))}, {shown})"

    def summary(self, most: int) -> Summary:
        """What it is, in a few rows."""
        return Summary(short(self.id), self._facts().items())

    def _facts(self) -> dict[str, str]:
        action = np.asarray(self.action)
        listed = f"[{few(action.tolist(), _ITEMS)}]" if action.ndim else str(self.action)
        called = {} if self.name is None else {"name": short(repr(self.name))}
        return {
            "t": str(self.t),
            "action": listed,
            **called,
            "probability": short(self.probability),
        }

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decision) and self.to_bytes() == other.to_bytes()

    def __hash__(self) -> int:
        return hash(self.id)

    def to_bytes(self) -> bytes:
        """The row, for a log or another process, with a keyed checksum; never pickle."""
        return self.batch.to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> Decision:
        """Rebuild a decision that `to_bytes` wrote; InvalidInput for other bytes. The checksum is
        verified by `update`, which knows the key.
        """
        batch = Batch.from_bytes(data)
        if len(batch) != 1:
            raise InvalidInput(
                f"the bytes hold {len(batch)} decisions; read them with Batch.from_bytes"
            )
        return cls.of(batch, 0)


class Batch(Sequence[Decision]):
    """Decisions as rows; reading one makes a `Decision`, and a slice is a batch again.

    Parameters
    ----------
    rows: the decisions
    token: of the agent that made them; empty where a policy did
    key: the secret of that agent, which makes and verifies the checksums of bytes
    tags: the checksums of decisions that were read from bytes, until they are verified
    names: for each decision what arms or items are called, by number; not part of the bytes
    """

    __slots__ = ("key", "names", "rows", "tags", "token")

    def __init__(
        self,
        rows: Rows,
        token: str = "",
        key: bytes = b"",
        tags: bytes | None = None,
        names: Sequence[Any] | None = None,
    ) -> None:
        self.rows: Any = rows  # of any kind
        self.token, self.key, self.tags, self.names = token, key, tags, names

    def __len__(self) -> int:
        return len(self.rows.head)

    @overload
    def __getitem__(self, place: int) -> Decision: ...
    @overload
    def __getitem__(self, place: slice) -> Batch: ...
    def __getitem__(self, place: int | slice) -> Decision | Batch:
        n = len(self.rows.head)
        if isinstance(place, slice):
            start, stop, step = place.indices(n)
            if step != 1:
                raise InvalidInput(
                    f"a slice of a batch has the step {step}; take decisions in a row"
                )
            return self._part(start, max(start, stop))
        i = place + n if place < 0 else place
        if not 0 <= i < n:
            raise IndexError(f"decision {place} of {n}")
        return Decision.of(self, i)

    def __iter__(self) -> Iterator[Decision]:
        return (Decision.of(self, i) for i in range(len(self)))

    def _part(self, start: int, stop: int) -> Batch:
        if stop - start == len(self):
            return self
        tags = None if self.tags is None else self.tags[_TAG * start : _TAG * stop]
        names = None if self.names is None else self.names[start:stop]
        return Batch(self.rows.part(slice(start, stop)), self.token, self.key, tags, names)

    @staticmethod
    def merged(batches: Sequence[Batch]) -> list[Batch]:
        """The same decisions in fewer batches: verified neighbours of one agent become one where
        their columns have the same shapes.
        """
        merged: list[Batch] = []
        for (token, key, tags), same in groupby(batches, lambda b: (b.token, b.key, b.tags)):
            run = list(same)
            if tags is not None or len(run) == 1:
                merged += run
                continue
            named = all(batch.names is not None for batch in run)
            names = [name for batch in run for name in batch.names or ()] if named else None
            start = 0
            for rows in merge([batch.rows for batch in run]):
                stop = start + len(rows.head)
                merged.append(Batch(rows, token, key, None, names and names[start:stop]))
                start = stop
        return merged

    @property
    def actions(self) -> Any:
        """The arms (n,), or the rankings (n, k); of a policy in Python a list."""
        return self.rows.actions

    @property
    def numbers(self) -> Any:
        """Of the decisions in their agent, (n,)."""
        return self.rows.head["number"]

    @property
    def probabilities(self) -> Vector:
        """The propensities, (n,); NaN where they are unknown."""
        propensities: Vector = self.rows.head["probability"]
        return propensities

    def id(self, row: int) -> str:
        """The id of one of them."""
        number = self.rows.head["number"].item(row)
        return f"{self.token}-{number}" if number >= 0 else self.token

    def names_of(self, row: int) -> Any:
        """What arms or items are called in one of them; None without names."""
        return None if self.names is None else self.names[row]

    def __repr__(self) -> str:
        ids = f"{self.id(0)} to {self.numbers[-1]}" if len(self) else "none"
        return f"<Batch of {len(self)} decisions, {ids}>"

    # --- bytes --------------------------------------------------------------------------------

    def to_bytes(self) -> bytes:
        """The rows with a keyed checksum for each; never pickle."""
        tags = self.tags if self.tags is not None else self._tags(self.key)
        return dump(self.rows, self.token, tags)

    @classmethod
    def from_bytes(cls, data: bytes) -> Batch:
        """Rebuild a batch that `to_bytes` wrote; InvalidInput for any other bytes. The checksums
        are verified by `update`, which knows the key.
        """
        rows, token, tags = load(data)
        return cls(rows, token, tags=tags)

    def verify(self, key: bytes, limit: float = math.inf) -> None:
        """Raise InvalidInput unless the agent with this key has made the decisions.

        limit: the largest norm of features in decisions that were read from bytes.
        """
        if self.tags is None:
            if self.key is key or self.key == key:
                return
        elif compare_digest(self.tags, self._tags(key)):
            check(self.rows, limit)  # whoever has the file of an agent has its key
            self.tags, self.key = None, key
            return
        raise InvalidInput(
            f"decision {self.id(0) if len(self) else ''!r} was not made by this agent, or its "
            "bytes are damaged: the checksum does not match"
        )

    def _tags(self, key: bytes) -> bytes:
        """One keyed checksum for each decision, over the token, the shapes and its row."""
        rows = self.rows
        columns = numeric(rows)
        shapes = [column.shape[1:] for column in columns]
        start = f"{self.token}\0{type(rows).__name__}{shapes}".encode()
        first = blake2b(start, digest_size=_TAG, key=key)
        tags = []
        for i in range(len(self)):
            one = first.copy()
            for column in columns:
                one.update(column[i].tobytes())
            if isinstance(rows, PlainRows):
                one.update(pack((rows.stored[i],)))
            tags.append(one.digest())
        return b"".join(tags)


def _explained(rows: RankingRows, i: int) -> list[dict[str, Any]]:
    names = ("item", "value", "exploration", "fairness", "rank_without_fairness")
    columns = (rows.items[i].tolist(), *rows.parts[i].tolist(), rows.ranks[i].tolist())
    return [dict(zip(names, one, strict=True)) for one in zip(*columns, strict=True)]


def _place(id: str) -> tuple[str, int]:
    """The token and the number of an id; all of it and -1 where it has no number."""
    token, _, digits = id.rpartition("-")
    number = int(digits) if digits.isdecimal() and len(digits) <= _DIGITS else -1
    return (token, number) if token and str(number) == digits else (id, -1)
