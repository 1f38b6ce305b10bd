"""Open decisions, and what has come back for them.

Feedback comes in parts, in any order, and more than once. What is joined are bits (exposed), which
add up, and numbers, of which the first counts; so the order does not matter, and an entry that came
before says nothing new.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import IncompatibleState
from fairwolfe.service.events import FeedbackReceived, Request

Outcome: TypeAlias = Literal["joined", "known", "late", "unknown", "conflict"]

_FIRST = 1024  # rows of a new ring


class Cells(NamedTuple):
    """What an entry of feedback says: slots that were exposed, and (slot, reward, number)."""

    exposed: Sequence[int]
    numbers: Sequence[tuple[int, int, float]]
    final: bool


class DecisionGroup(NamedTuple):
    """Decisions that were made together: the first number, the row that holds them, and when.

    names: what the chosen arms are called, where requests named them
    """

    first: int
    seq: int
    clock: float
    decisions: Batch
    requests: tuple[Request, ...]
    owners: tuple[tuple[str, ...], bytes] | None = None
    names: tuple[str | None, ...] = ()

    def owned(self, start: int, stop: int) -> Counter[str]:
        """How many of the decisions from a number to below another each key asked for."""
        assert self.owners is not None
        names, places = self.owners
        own = Counter(places[max(start - self.first, 0) : max(stop - self.first, 0)])
        return Counter({names[place]: count for place, count in own.items()})

    def name(self, number: int) -> str | None:
        """What the arm of a decision is called, where its request named the arms."""
        return self.names[number - self.first] if self.names else None

    @property
    def stop(self) -> int:
        """The number after the last."""
        return self.first + len(self.decisions)


class Joined(NamedTuple):
    """What has come for decisions in a row, by column: exposed (n, slots), values and given (n,
    slots, rewards), answered (n,): whether anything came, final, applied (n,).
    """

    exposed: Any
    values: Any
    given: Any
    answered: Any
    final: Any
    applied: Any

    def take(self, rows: Any) -> Joined:
        """Copies of some rows."""
        return Joined(*(column[rows] for column in self))

    def to_bytes(self) -> bytes:
        """Bits as bits, and the numbers that are there."""
        bits = (np.packbits(column) for column in (self.exposed, self.given, *self[3:]))
        return pack((self.values.shape, *bits, self.values[self.given]))

    @classmethod
    def from_bytes(cls, data: bytes) -> Joined:
        """What `to_bytes` wrote."""
        shape, *bits, numbers = unpack(data)
        joined = cls.nothing(*shape)
        columns = (joined.exposed, joined.given, *joined[3:])
        for column, packed in zip(columns, bits, strict=True):
            column[...] = np.unpackbits(packed, count=column.size).reshape(column.shape)
        joined.values[joined.given] = numbers
        return joined

    @classmethod
    def nothing(cls, rows: int, slots: int, rewards: int) -> Joined:
        """Of decisions for which nothing has come."""
        cells = (rows, slots, rewards)
        flags = [np.zeros(rows, np.bool_) for _ in range(3)]
        exposed, given = np.zeros((rows, slots), np.bool_), np.zeros(cells, np.bool_)
        return cls(exposed, np.zeros(cells), given, *flags)


class Ring:
    """Open decisions by number, from `closed` to below `issued`; memory is what is open."""

    def __init__(self, slots: int, rewards: int) -> None:
        self.slots, self.rewards = slots, rewards
        self.closed = self.issued = self.applied = 0
        self.groups: list[DecisionGroup] = []
        self.requests: dict[str, tuple[int, bytes]] = {}  # id -> number, hash of what was asked
        self.owned: Counter[str] = Counter()  # open decisions by the key that asked for them
        self._columns = Joined.nothing(_FIRST, slots, rewards)

    @property
    def open(self) -> int:
        """How many decisions wait: those that were learnt from on arrival do not."""
        return self.issued - self.closed - self.applied

    def add(self, group: DecisionGroup) -> None:
        """Decisions were made."""
        self.groups.append(group)
        self.issued = group.stop
        if group.owners is not None:
            self.owned.update(group.owned(self.closed, group.stop))
        for place, id, digest in group.requests:
            self.requests[id] = (group.first + place, digest)
        while self.issued - self.closed > len(self._columns.answered):
            self._grow()

    def _grow(self) -> None:
        size = len(self._columns.answered)
        held = np.arange(self.closed, min(self.closed + size, self.issued))
        larger = Joined.nothing(2 * size, self.slots, self.rewards)
        for old, new in zip(self._columns, larger, strict=True):
            new[held % (2 * size)] = old[held % size]
        self._columns = larger

    def rows(self, numbers: Any) -> Any:
        """Where decisions are in the columns."""
        return np.asarray(numbers) % len(self._columns.answered)

    def joined(self, numbers: Any) -> Joined:
        """What has come for decisions."""
        return self._columns.take(self.rows(numbers))

    def held(self, first: int, stop: int) -> Joined:
        """What has come for decisions in a row."""
        pieces = [self._columns.take(rows) for rows in self._spans(first, stop)]
        if len(pieces) == 1:
            return Joined(*(column.copy() for column in pieces[0]))
        return Joined(*map(np.concatenate, zip(*pieces, strict=True)))

    def _spans(self, first: int, stop: int) -> Iterator[slice]:
        """Where decisions in a row are in the columns: one piece, or two where these end."""
        size = len(self._columns.answered)
        while first < stop:
            start = first % size
            count = min(stop - first, size - start)
            yield slice(start, start + count)
            first += count

    def group(self, number: int) -> DecisionGroup:
        """The decisions that one was made with."""
        return self.groups[self._place(number)]

    def _place(self, number: int) -> int:
        return bisect_right(self.groups, number, key=lambda group: group.first) - 1

    def decisions(self, first: int, stop: int) -> Iterator[Batch]:
        """Decisions in a row, those that were made together at once."""
        for group in islice(self.groups, self._place(first), None):
            if group.first >= stop:
                return
            yield group.decisions[max(first - group.first, 0) : stop - group.first]

    def decision(self, number: int) -> Decision:
        """An open decision."""
        group = self.group(number)
        return group.decisions[number - group.first]

    def action(self, number: int) -> Any:
        """What an open decision chose: an arm, or the numbers of items."""
        return plain_action(self.decision(number).action)

    def state(self, number: int) -> FeedbackState:
        """What has come for an open decision."""
        row, columns, state = number % len(self._columns.answered), self._columns, FeedbackState()
        if columns.answered[row]:
            state.answered = True
            state.final, state.applied = bool(columns.final[row]), bool(columns.applied[row])
            state.exposed = set(np.flatnonzero(columns.exposed[row]).tolist())
            for slot, reward in np.argwhere(columns.given[row]).tolist():
                state.numbers[slot, reward] = columns.values[row].item(slot, reward)
        return state

    def write_feedback(self, event: FeedbackReceived) -> None:
        """Feedback that is new: bits add up, numbers are written."""
        columns, rows = self._columns, self.rows(event.numbers)
        columns.answered[rows] = True
        columns.final[rows[event.final]] = True
        columns.exposed[rows[event.exposed[:, 0]], event.exposed[:, 1]] = True
        entry, slot, reward = event.cells.T
        columns.values[rows[entry], slot, reward] = event.values
        columns.given[rows[entry], slot, reward] = True

    def apply(self, numbers: Any) -> None:
        """These decisions were learnt from before their window ended."""
        self._columns.applied[self.rows(numbers)] = True
        self.applied += len(numbers)

    def close(self, upto: int) -> None:
        """The windows of all decisions below `upto` have ended: they are forgotten here."""
        for rows in self._spans(self.closed, upto):
            self.applied -= int(np.count_nonzero(self._columns.applied[rows]))
            for column in self._columns:
                column[rows] = 0
        count = 0
        for group in self.groups:
            if group.first >= upto:
                break
            if group.owners is not None:
                self.owned.subtract(group.owned(self.closed, upto))
            for place, id, _ in group.requests:
                number = group.first + place
                if self.closed <= number < upto and self.requests.get(id, (-1,))[0] == number:
                    del self.requests[id]
            count += group.stop <= upto
        del self.groups[:count]
        self.closed = upto

    def due(self, clock: float, window: float, most: int) -> int:
        """The number up to which windows have ended, at most so many further ones."""
        upto = self.closed
        for group in self.groups:
            if group.clock + window > clock or upto - self.closed >= most:
                break
            upto = min(group.stop, self.closed + most)
        return upto

    def dump(self) -> tuple[Any, ...]:
        """For a snapshot: decisions are in the log, and only their rows are named."""
        groups = tuple((g.first, g.seq) for g in self.groups)
        spans = list(self._spans(self.closed, self.issued))
        held = Joined.nothing(0, self.slots, self.rewards)
        if len(spans) == 1:  # as it is: there may be hundreds of thousands
            held = self._columns.take(spans[0])
        elif spans:
            held = self.held(self.closed, self.issued)
        return self.closed, self.issued, groups, held.to_bytes()

    def load(self, dumped: tuple[Any, ...], group_in: Callable[[int, int], DecisionGroup]) -> None:
        """What `dump` wrote; group_in: the decisions from a number on that a row holds."""
        closed, issued, groups, data = dumped
        held = Joined.from_bytes(data)
        self.closed = self.issued = closed
        for first, seq in groups:
            self.add(group_in(first, seq))
        if self.issued != issued or len(held.answered) != issued - closed:
            raise IncompatibleState(
                f"a snapshot holds decisions {closed} to {issued}, and the log up to {self.issued}"
            )
        self.requests = {id: kept for id, kept in self.requests.items() if kept[0] >= closed}
        rows = self.rows(np.arange(closed, issued))
        for column, values in zip(self._columns, held, strict=True):
            column[rows] = values
        self.applied = int(self._columns.applied.sum())


def plain_action(action: Any) -> Any:
    """An arm as it is, or the numbers of items as a list."""
    return action.tolist() if isinstance(action, np.ndarray) else action


class FeedbackState:
    """What has come for one decision: slots that were exposed, (slot, reward) -> number."""

    __slots__ = ("answered", "applied", "exposed", "final", "numbers")

    def __init__(self) -> None:
        self.exposed: set[int] = set()
        self.numbers: dict[tuple[int, int], float] = {}
        self.answered = self.final = self.applied = False


class Merge:
    """Feedback of one group, merged beside the ring: nothing is written until it is durable."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self.counts = {"known": 0, "late": 0, "unknown": 0, "conflict": 0}
        self._states: dict[int, FeedbackState] = {}
        self._entries: list[tuple[int, bool]] = []  # number, final
        self._exposed: list[tuple[int, int]] = []  # entry, slot
        self._cells: list[tuple[int, int, int, float]] = []  # entry, slot, reward, value

    def outcome_of(self, number: int) -> Outcome | None:
        """What an entry for a decision comes to, whatever it says; None where that matters."""
        if not 0 <= number < self.ring.issued:
            return "unknown"
        return "late" if number < self.ring.closed else None

    def add(self, number: int, cells: Cells) -> Outcome:
        """An entry for an open decision."""
        row = self.state(number)
        known = row.numbers
        for slot, reward, value in cells.numbers:
            if known.get((slot, reward), value) != value:
                return "conflict"
        new_slots = [slot for slot in cells.exposed if slot not in row.exposed]
        new_cells = [cell for cell in cells.numbers if (cell[0], cell[1]) not in known]
        if row.answered and not new_slots and not new_cells and not (cells.final and not row.final):
            return "known"
        if row.applied:  # it was learnt from on arrival, and this comes after it
            return "late"
        entry = len(self._entries)
        self._entries.append((number, cells.final))
        self._exposed += [(entry, slot) for slot in new_slots]
        for slot, reward, value in new_cells:
            self._cells.append((entry, slot, reward, value))
            known[slot, reward] = value
        row.exposed.update(new_slots)
        row.answered, row.final = True, row.final or cells.final
        return "joined"

    def state(self, number: int) -> FeedbackState:
        """What has come for a decision, with this group."""
        row = self._states.get(number)
        if row is None:
            row = self._states[number] = self.ring.state(number)
        return row

    @property
    def empty(self) -> bool:
        """Whether nothing new came."""
        return not self._entries

    def event(self, model: int, unwritten: Mapping[str, int]) -> FeedbackReceived:
        """What came; unwritten: entries counted before, which no row has yet."""
        counts = tuple(count + unwritten[name] for name, count in self.counts.items())
        return FeedbackReceived(
            model,
            np.array([number for number, _ in self._entries], dtype=np.int64),
            np.array([final for _, final in self._entries], dtype=np.bool_),
            np.array(self._exposed, dtype=np.int32).reshape(-1, 2),
            np.array([cell[:3] for cell in self._cells], dtype=np.int32).reshape(-1, 3),
            np.array([cell[3] for cell in self._cells], dtype=np.float64),
            counts,  # type: ignore[arg-type]
        )
