"""Decisions that wait, and what has come back for them.

Feedback comes in parts, in any order, and more than once. What is joined are bits (exposed), which
add up, and numbers, of which the first counts; so the order does not matter, and an entry that came
before says nothing new.

Rewards may arrive in stages, each with its own window. Within the first a decision is held whole;
after it only what has come, and its features are read back from the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.packing import pack, unpack
from fairwolfe.errors import IncompatibleState
from fairwolfe.service.events import FeedbackReceived, Request

Outcome: TypeAlias = Literal["joined", "known", "late", "unknown", "conflict"]

_FIRST = 1024  # rows of a new ring
_DOUBLED = 1 << 20  # rows of a ring that grows to twice as many; a larger one to a quarter more
ANSWERED, FINAL, APPLIED = 1, 2, 4  # marks of a stage


class Cells(NamedTuple):
    """What an entry of feedback says of a stage: slots that were exposed (of the first), and (slot,
    reward, number).
    """

    exposed: Sequence[int]
    numbers: Sequence[tuple[int, int, float]]
    final: bool
    stage: int = 0


class Told(NamedTuple):
    """What became of an entry of feedback; rewards: by outcome the names of those that were not
    joined, where its stages differ.
    """

    outcome: Outcome
    rewards: Mapping[str, list[str]] = {}


_RANKED: tuple[Outcome, ...] = ("joined", "conflict", "late", "known")


def told(parts: Sequence[tuple[Outcome, Cells]], names: Sequence[str]) -> Told:
    """An entry by the outcome of each of its stages: it is joined where any of them is. names: of
    the rewards.

    >>> clicks, returned = Cells((), [(0, 0, 1.0)], False), Cells((), [(0, 1, 1.0)], False, 1)
    >>> told([("late", clicks), ("joined", returned)], ("clicks", "returned"))
    Told(outcome='joined', rewards={'late': ['clicks']})
    """
    if len(parts) == 1:
        return Told(parts[0][0])
    found: dict[str, list[str]] = {}
    for outcome, cells in parts:
        said = [names[reward] for reward in sorted({reward for _, reward, _ in cells.numbers})]
        found.setdefault(outcome, []).extend(said or ["exposed"])
    first = next(outcome for outcome in _RANKED if outcome in found)
    named = {one: said for one, said in found.items() if one != "joined"}
    return Told(first, named if len(found) > 1 else {})


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
    slots, rewards), and marks (n, stages): whether anything came, nothing more will, and it was
    learnt before the window ended.
    """

    exposed: Any
    values: Any
    given: Any
    marks: Any

    @property
    def answered(self) -> Any:
        """Whether anything came, (n, stages)."""
        return self.marks & ANSWERED != 0

    @property
    def applied(self) -> Any:
        """Whether it was learnt on arrival, (n, stages)."""
        return self.marks & APPLIED != 0

    def take(self, rows: Any) -> Joined:
        """Copies of some rows."""
        return Joined(*(column[rows] for column in self))

    def to_bytes(self) -> bytes:
        """Bits as bits, and the numbers that are there."""
        marks = (self.marks & mark != 0 for mark in (ANSWERED, FINAL, APPLIED))
        bits = (np.packbits(column) for column in (self.exposed, self.given, *marks))
        stages = self.marks.shape[1]
        shape = (*self.values.shape, *((stages,) if stages > 1 else ()))
        return pack((shape, *bits, self.values[self.given]))

    @classmethod
    def from_bytes(cls, data: bytes) -> Joined:
        """What `to_bytes` wrote."""
        shape, *packed, numbers = unpack(data)
        joined = cls.nothing(*shape)
        flags = [np.zeros(joined.marks.shape, np.bool_) for _ in range(3)]
        columns = (joined.exposed, joined.given, *flags)
        for column, bits in zip(columns, packed, strict=True):
            column[...] = np.unpackbits(bits, count=column.size).reshape(column.shape)
        for mark, flag in zip((ANSWERED, FINAL, APPLIED), flags, strict=True):
            joined.marks[flag] |= mark
        joined.values[joined.given] = numbers
        return joined

    @classmethod
    def nothing(cls, rows: int, slots: int, rewards: int, stages: int = 1) -> Joined:
        """Of decisions for which nothing has come."""
        cells, marks = (rows, slots, rewards), np.zeros((rows, stages), np.uint8)
        exposed, given = np.zeros((rows, slots), np.bool_), np.zeros(cells, np.bool_)
        return cls(exposed, np.zeros(cells), given, marks)


Read = Callable[[int], DecisionGroup]
"""Reads the decisions that one was made with back from the log."""


class Ring:
    """Decisions that wait, by number; memory is what waits.

    Stage s is waited for from the number `ended[s]` to below `issued`; windows get longer from
    stage to stage, so `ended` falls. What has come is kept for all of them, and those of the first
    window are held whole.
    """

    def __init__(self, slots: int, rewards: int, stages: int, read: Read) -> None:
        self._shape, self._read = (slots, rewards, stages), read
        self.issued = 0
        self.ended, self.applied = [0] * stages, [0] * stages
        # By stage, without holes: all of the first; of others those that were read ahead.
        self._groups: list[list[DecisionGroup]] = [[] for _ in range(stages)]
        self.requests: dict[str, tuple[int, bytes]] = {}  # id -> number, hash of what was asked
        self.owned: Counter[str] = Counter()  # open decisions by the key that asked for them
        self._columns = Joined.nothing(_FIRST, *self._shape)
        self._changed: list[Any] = []  # numbers below `closed`, since `kept`

    @property
    def groups(self) -> list[DecisionGroup]:
        """The decisions that are held whole."""
        return self._groups[0]

    @property
    def closed(self) -> int:
        """The number below which the first window of all has ended."""
        return self.ended[0]

    @property
    def first(self) -> int:
        """The number below which nothing is waited for."""
        return self.ended[-1]

    def open_in(self, stage: int) -> int:
        """How many wait for a stage: those that were learnt from on arrival do not."""
        return self.issued - self.ended[stage] - self.applied[stage]

    @property
    def open(self) -> int:
        """How many wait for the last stage."""
        return self.open_in(-1)

    def add(self, group: DecisionGroup) -> None:
        """Decisions were made."""
        self._groups[0].append(group)
        self.issued = group.stop
        if group.owners is not None:
            self.owned.update(group.owned(self.closed, self.issued))
        for place, id, digest in group.requests:
            self.requests[id] = (group.first + place, digest)
        size = len(self._columns.marks)
        if self.issued - self.ended[-1] > size:
            self._grow(size)

    def _grow(self, size: int) -> None:
        """Larger columns; so many numbers from `first` on are in them so far."""
        held = np.arange(self.first, min(self.first + size, self.issued))
        more = old = len(self._columns.marks)
        while self.issued - self.first > more:
            more = 2 * more if more < _DOUBLED else more + more // 4
        larger = Joined.nothing(more, *self._shape)
        for column, new in zip(self._columns, larger, strict=True):
            new[held % more] = column[held % old]
        self._columns = larger

    def rows(self, numbers: Any) -> Any:
        """Where decisions are in the columns."""
        return np.asarray(numbers) % len(self._columns.marks)

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
        size = len(self._columns.marks)
        while first < stop:
            start = first % size
            count = min(stop - first, size - start)
            yield slice(start, start + count)
            first += count

    def group(self, number: int, stage: int = 0) -> DecisionGroup:
        """The decisions that one was made with; stage: of which it is the next, where its first
        window has ended: then they are kept until the window of this stage has.
        """
        groups = self._groups[0 if number >= self.closed else stage]
        place = bisect_right(groups, number, key=lambda group: group.first) - 1
        if place >= 0 and number < groups[place].stop:
            return groups[place]
        group = self._read(int(number))  # SQLite takes an integer of NumPy for bytes
        if stage > 0 and group.first <= (groups[-1].stop if groups else self.ended[stage]):
            groups.append(group)
        return group

    def decisions(self, first: int, stop: int, stage: int = 0) -> Iterator[Batch]:
        """Decisions in a row, those that were made together at once; stage: see `group`."""
        while first < stop:
            group = self.group(first, stage)
            yield group.decisions[first - group.first : stop - group.first]
            first = group.stop

    def decision(self, number: int) -> Decision:
        """A decision that waits."""
        group = self.group(number)
        return group.decisions[number - group.first]

    def action(self, number: int) -> Any:
        """What a decision that waits chose: an arm, or the numbers of items."""
        return plain_action(self.decision(number).action)

    def state(self, number: int) -> FeedbackState:
        """What has come for a decision that waits."""
        row, columns = number % len(self._columns.marks), self._columns
        state = FeedbackState(columns.marks[row].tolist())
        if any(state.marks):
            state.exposed = set(np.flatnonzero(columns.exposed[row]).tolist())
            for slot, reward in np.argwhere(columns.given[row]).tolist():
                state.numbers[slot, reward] = columns.values[row].item(slot, reward)
        return state

    def write_feedback(self, event: FeedbackReceived) -> None:
        """Feedback that is new: bits add up, numbers are written."""
        columns, rows = self._columns, self.rows(event.numbers)
        stages = np.frombuffer(event.stages, np.uint8) if event.stages else np.zeros_like(rows)
        columns.marks[rows, stages] |= ANSWERED
        columns.marks[rows[event.final], stages[event.final]] |= FINAL
        columns.exposed[rows[event.exposed[:, 0]], event.exposed[:, 1]] = True
        entry, slot, reward = event.cells.T
        columns.values[rows[entry], slot, reward] = event.values
        columns.given[rows[entry], slot, reward] = True
        self._note(event.numbers)

    def apply(self, numbers: Any, stage: int) -> None:
        """A stage of these decisions was learnt with the feedback of the same row."""
        self._columns.marks[self.rows(numbers), stage] |= APPLIED
        self.applied[stage] += len(numbers)

    def close(self, upto: int, stage: int) -> None:
        """The windows of a stage of all decisions below `upto` have ended; after the first they are
        not held whole, and after the last they are forgotten here.
        """
        start = self.ended[stage]
        for rows in self._spans(start, upto):
            self.applied[stage] -= int(np.count_nonzero(self._columns.marks[rows, stage] & APPLIED))
            if stage == len(self.ended) - 1:
                for column in self._columns:
                    column[rows] = 0
        groups, count = self._groups[stage], 0
        for group in groups:
            if group.first >= upto:
                break
            if stage == 0:
                self._let_go(group, upto)
            count += group.stop <= upto
        del groups[:count]
        self.ended[stage] = upto
        if stage == 0:
            self._note(np.arange(start, upto))

    def _let_go(self, group: DecisionGroup, upto: int) -> None:
        """The first windows of decisions below `upto` have ended: nobody asks for them again."""
        if group.owners is not None:
            self.owned.subtract(group.owned(self.closed, upto))
        for place, id, _ in group.requests:
            number = group.first + place
            if self.closed <= number < upto and self.requests.get(id, (-1,))[0] == number:
                del self.requests[id]

    def due(self, clock: float, window: float, most: int, stage: int = 0) -> int:
        """The number up to which windows of a stage have ended, at most so many further ones."""
        upto, start = self.ended[stage], self.ended[stage]
        stop = self.ended[stage - 1] if stage else self.issued
        while upto < min(stop, start + most):
            group = self.group(upto, stage)
            if group.clock + window > clock:
                break
            upto = min(group.stop, stop, start + most)
        return upto

    # --- in a snapshot ------------------------------------------------------------------------

    def dump(self) -> tuple[Any, ...]:
        """For a snapshot: decisions are in the log, and only their rows are named. What has come
        for those whose first window has ended is kept apart, by `later`.
        """
        groups = tuple((g.first, g.seq) for g in self.groups)
        spans = list(self._spans(self.closed, self.issued))
        held = Joined.nothing(0, *self._shape)
        if len(spans) == 1:  # as it is: there may be hundreds of thousands
            held = self._columns.take(spans[0])
        elif spans:
            held = self.held(self.closed, self.issued)
        return one_or_all(self.ended), self.issued, groups, held.to_bytes()

    def later(self, everything: bool = False) -> bytes:
        """What has come for decisions that wait for a later stage: for those of which it changed
        since the last call of `kept`, or for all of them.
        """
        numbers = np.arange(self.first, self.closed)
        if not everything:
            numbers = np.unique(np.concatenate([np.arange(0), *self._changed]))
            numbers = numbers[numbers >= self.first]
        return pack((numbers, self.joined(numbers).to_bytes()))

    def kept(self) -> None:
        """What `later` said is on the disk."""
        self._changed = []

    def _note(self, numbers: Any) -> None:
        if len(self.ended) > 1:
            self._changed.append(numbers[numbers < self.closed])

    def load(
        self,
        dumped: tuple[Any, ...],
        group_in: Callable[[int, int], DecisionGroup],
        later: Iterable[bytes],
    ) -> None:
        """What `dump` wrote, and what `later` did up to then; group_in: the decisions from a number
        on that a row holds.
        """
        ended, issued, groups, data = dumped
        held = Joined.from_bytes(data)
        self.ended = [ended] if isinstance(ended, int) else list(ended)
        self.issued = issued
        if issued - self.first > len(self._columns.marks):
            self._grow(0)
        self.issued = self.closed
        for first, seq in groups:
            self.add(group_in(first, seq))
        if self.issued != issued or len(held.marks) != issued - self.closed:
            raise IncompatibleState(
                f"a snapshot holds decisions {self.closed} to {issued}, and the log up to "
                f"{self.issued}"
            )
        self.requests = {id: kept for id, kept in self.requests.items() if kept[0] >= self.closed}
        for piece in later:
            numbers, what = unpack(piece)
            there = (numbers >= self.first) & (numbers < self.closed)
            self._put(numbers[there], Joined.from_bytes(what).take(there))
        self._put(np.arange(self.closed, issued), held)
        for stage, start in enumerate(self.ended):
            marked = (self._columns.marks[rows, stage] for rows in self._spans(start, issued))
            self.applied[stage] = sum(int(np.count_nonzero(one & APPLIED)) for one in marked)

    def _put(self, numbers: Any, joined: Joined) -> None:
        rows = self.rows(numbers)
        for column, values in zip(self._columns, joined, strict=True):
            column[rows] = values


def one_or_all(of_stages: Sequence[int]) -> Any:
    """The number of each stage; itself where there is one."""
    return of_stages[0] if len(of_stages) == 1 else tuple(of_stages)


def plain_action(action: Any) -> Any:
    """An arm as it is, or the numbers of items as a list."""
    return action.tolist() if isinstance(action, np.ndarray) else action


class FeedbackState:
    """What has come for one decision: slots that were exposed, (slot, reward) -> number, and the
    marks of each stage.
    """

    __slots__ = ("exposed", "marks", "numbers")

    def __init__(self, marks: list[int]) -> None:
        self.exposed: set[int] = set()
        self.numbers: dict[tuple[int, int], float] = {}
        self.marks = marks


class Merge:
    """Feedback of one group, merged beside the ring: nothing is written until it is durable.

    observed: whether feedback says what was exposed. Then what earns something in a later stage was
    exposed; if the first stage was learnt without it, that is a conflict. expires: whether later
    stages expire with the first: then what comes for them is late.
    """

    def __init__(self, ring: Ring, observed: bool = False, expires: bool = False) -> None:
        self.ring, self.observed, self.expires = ring, observed, expires
        self.counts = {"known": 0, "late": 0, "unknown": 0, "conflict": 0}
        self._states: dict[int, FeedbackState] = {}
        self._entries: list[tuple[int, bool, int]] = []  # number, final, stage
        self._exposed: list[tuple[int, int]] = []  # entry, slot
        self._cells: list[tuple[int, int, int, float]] = []  # entry, slot, reward, value

    def outcome_of(self, number: int) -> Outcome | None:
        """What an entry for a decision comes to, whatever it says; None where that matters."""
        if not 0 <= number < self.ring.issued:
            return "unknown"
        return "late" if number < self.ring.first else None

    def add(self, number: int, cells: Cells) -> Outcome:
        """What an entry says of a stage of a decision that waits."""
        row, stage = self.state(number), cells.stage
        if number < self.ring.ended[stage]:
            return "late"
        known, marks = row.numbers, row.marks[stage]
        for slot, reward, value in cells.numbers:
            if known.get((slot, reward), value) != value:
                return "conflict"
        new_slots = [slot for slot in cells.exposed if slot not in row.exposed]
        new_cells = [cell for cell in cells.numbers if (cell[0], cell[1]) not in known]
        more = new_slots or new_cells or (cells.final and not marks & FINAL)
        if marks & ANSWERED and not more:
            return "known"
        if marks & APPLIED:  # it was learnt from on arrival, and this comes after it
            return "late"
        if stage > 0 and self.expires and number < self.ring.closed and not row.marks[0]:
            return "late"
        if stage > 0 and self.observed:
            earned = {slot for slot, _, value in cells.numbers if value and slot not in row.exposed}
            if earned and (number < self.ring.closed or row.marks[0] & APPLIED):
                return "conflict"
            if earned:
                self.add(number, Cells(sorted(earned), (), False))
        entry = len(self._entries)
        self._entries.append((number, cells.final, stage))
        self._exposed += [(entry, slot) for slot in new_slots]
        for slot, reward, value in new_cells:
            self._cells.append((entry, slot, reward, value))
            known[slot, reward] = value
        row.exposed.update(new_slots)
        row.marks[stage] |= ANSWERED | (FINAL if cells.final else 0)
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
        stages = bytes(entry[2] for entry in self._entries) if len(self.ring.ended) > 1 else b""
        return FeedbackReceived(
            model,
            np.array([entry[0] for entry in self._entries], dtype=np.int64),
            np.array([entry[1] for entry in self._entries], dtype=np.bool_),
            np.array(self._exposed, dtype=np.int32).reshape(-1, 2),
            np.array([cell[:3] for cell in self._cells], dtype=np.int32).reshape(-1, 3),
            np.array([cell[3] for cell in self._cells], dtype=np.float64),
            counts,  # type: ignore[arg-type]
            stages,
        )
