"""`Ledger`: which decisions were made, and which have had their feedback or have expired; and what
a fork does to the agents of a process.
"""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, NoReturn, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.decision import Batch, Decision
from fairwolfe.errors import IncompatibleState, InvalidInput

_FULL, _FULL_BYTE = 0xFF, b"\xff"
_BLOCK = 4096  # bytes: to drop fewer of many would cost a copy of the others too often
_MOST_OPEN = 2**33  # decisions, which take a gigabyte of bits
_LONGEST = 64  # characters of a token

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # no agent makes more decisions
Token: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=_LONGEST)]


class IssuedRange(NamedTuple):
    """The numbers that were issued under an earlier token: from `first` to below `end`.

    `beyond`: whether later ones count too. They do after a load: the agent that saved the file
    continued with its token until it ended, and the loaded state has not seen its later decisions.
    """

    first: Count
    end: Count
    beyond: bool


Counts: TypeAlias = Count | tuple[Count, ...]
"""The number of each stage; itself where there is one."""


class SavedLedger(msgspec.Struct):
    """The numbers of a ledger in a file."""

    token: Token
    start: Count
    issued: Count
    answered: Counts
    expired: Counts
    stages: Annotated[int, msgspec.Meta(ge=1, le=64)]
    dropped: Count
    earlier: dict[Token, IssuedRange]
    beyond: dict[Token, Count]


Entry: TypeAlias = tuple[int, str | None]
"""A stage of a decision that waits for its feedback: number x stages + stage, and the token of the
decision where it is beyond.
"""


class Ledger:
    """Numbers the decisions of one agent and remembers which were answered.

    An answer costs one bit, and none below the watermark: leading bytes that are full are dropped,
    some at a time, so that memory does not grow while feedback comes. Where answers come in stages,
    each has a bit.

    The token in an id identifies the agent. A loaded ledger continues with its own token, so
    that its decisions are not mistaken for those of another process that read the same file; under
    the same token only where it is asked for.

    >>> ledger = Ledger()
    >>> decision = Decision(ledger.issue(), 0, 2, None, ())
    >>> ledger.mark([ledger.entry(decision)], (1,))
    >>> ledger.issued, ledger.open
    (1, 0)
    """

    __slots__ = (
        *("answered", "beyond", "earlier", "expired", "issued", "kept", "stages", "start", "token"),
    )

    def __init__(self, token: str | None = None, stages: int = 1) -> None:
        if token is not None and (not isinstance(token, str) or not 0 < len(token) <= _LONGEST):
            raise InvalidInput(
                f"token is {token!r:.80}; give a text of at most {_LONGEST} characters"
            )
        self.token = secrets.token_hex(8) if token is None else token
        self.start = 0  # the first number under this token
        self.earlier: dict[str, IssuedRange] = {}  # by token
        self.issued = 0
        self.stages = stages
        # By stage: how many were answered, and how many get no feedback any more.
        self.answered = self.expired = (0,) * stages
        # How many bytes were dropped, and the others: stage s of decision n is place n stages + s,
        # and place p has bit p % 8 of byte p // 8. One attribute: no interrupt comes between.
        self.kept = (0, bytearray())
        self.beyond: dict[str, set[int]] = {}  # token -> answered numbers from its end on

    @property
    def recovered(self) -> int:
        """How many of the answers are to decisions from beyond the file that was loaded."""
        return sum(map(len, self.beyond.values()))

    @property
    def t(self) -> int:
        """How many decisions were answered, of the stage that has the fewest answers."""
        return min(self.answered)

    @property
    def open_stages(self) -> tuple[int, ...]:
        """How many decisions wait for each stage."""
        open_ = [
            self.issued - answered - expired
            for answered, expired in zip(self.answered, self.expired, strict=True)
        ]
        for places in self.beyond.values():
            for place in places:
                open_[place % self.stages] += 1
        return tuple(open_)

    @property
    def open(self) -> int:
        """How many decisions wait for feedback, whole or in part."""
        if self.stages == 1:
            return self.open_stages[0]
        dropped, bits = self.kept
        first = 8 * dropped // self.stages  # no decision before it waits
        marks = np.zeros((self.issued - first) * self.stages, bool)
        known = np.unpackbits(np.frombuffer(bytes(bits), np.uint8), bitorder="little")
        skip = 8 * dropped - first * self.stages
        marks[:skip] = True
        marks[skip : skip + known.size] = known[: marks.size - skip]
        done = marks[:: self.stages]
        for stage in range(1, self.stages):
            done = done & marks[stage :: self.stages]
        return done.size - int(np.count_nonzero(done))

    @property
    def oldest_open(self) -> int | None:
        """How many decisions ago the oldest one that waits was made."""
        dropped, bits = self.kept
        at = next((i for i, byte in enumerate(bits) if byte != _FULL), len(bits))
        byte = bits[at] if at < len(bits) else 0
        place = 8 * (dropped + at) + next(n for n in range(8) if not byte >> n & 1)
        number = place // self.stages
        return self.issued - number if number < self.issued else None

    def next_id(self) -> str:
        """The id that the next decision will have."""
        return f"{self.token}-{self.issued}"

    def issue(self) -> str:
        """The id of the next decision, which is made now."""
        id = self.next_id()
        self.issued += 1
        return id

    def waiting_entry(self, decision: Decision) -> Entry:
        """`entry` of the first stage that the decision waits for."""
        require_decision(decision)
        waiting = self.waiting(decision.number)
        if not self.issued_here(decision):
            first, told = decision.number * self.stages, self.beyond.get(decision.token, ())
            waiting = [stage for stage in range(self.stages) if first + stage not in told]
        return self.entry(decision, waiting[0] if waiting else 0)

    def entry(self, decision: Decision, stage: int = 0) -> Entry:
        """The entry of a decision of this agent that waits for this feedback; else an error."""
        require_decision(decision)
        token, number = decision.token, decision.number
        place = number * self.stages + stage
        if token == self.token:
            if self.start <= number < self.issued and not self._bits(place, place + 1):
                return place, None
            numbers = IssuedRange(self.start, self.issued, False)
        elif token in self.earlier:
            numbers = self.earlier[token]
        else:
            raise InvalidInput(
                f"decision {decision.id!r} was made by another agent, or by a policy itself; give "
                "its feedback to the agent that made it"
            )
        if number < numbers.first or (number >= numbers.end and not numbers.beyond):
            raise InvalidInput(f"decision {decision.id!r} is unknown: this agent never made it")
        beyond = number >= numbers.end
        answered = place in self.beyond.get(token, ()) if beyond else self._bits(place, place + 1)
        if answered:
            self.refuse_again(decision, stage)
        return place, token if beyond else None

    def refuse_again(self, decision: Decision, stage: int) -> NoReturn:
        """Raise InvalidInput for feedback that was given."""
        late, in_time = (", or the decision has expired", ", and in time")
        expired = any(self.expired)
        part = f" (stage {stage})" if self.waiting(decision.number) else ""
        raise InvalidInput(
            f"the feedback for decision {decision.id!r}{part} was given already"
            f"{late if expired else ''}; it counts once{in_time if expired else ''}"
        )

    def issued_here(self, decision: Decision) -> bool:
        """Whether a decision of this agent is not from beyond the file that was loaded."""
        known = self.earlier.get(decision.token)
        return known is None or decision.number < known.end

    def entries(self, batch: Batch, start: int = 0) -> list[Entry]:
        """`entry` of each of a batch; the first that is wrong raises, under its number from `start`
        on.
        """
        numbers: list[int] = batch.numbers.tolist()
        first, stop = numbers[0], numbers[0] + len(numbers)
        own = batch.token == self.token and self.start <= first and stop <= self.issued
        in_a_row = self.stages == 1 and own and numbers == list(range(first, stop))
        if in_a_row and not self._bits(first, stop):
            return [(number, None) for number in numbers]
        entries = []
        for i, decision in enumerate(batch):
            try:
                entries.append(self.entry(decision))
            except InvalidInput as error:
                raise InvalidInput(f"answer {start + i}: {error}") from error
        return entries

    def _bits(self, first: int, stop: int) -> int:
        """The marks of these places, as the bits of a number."""
        dropped, bits = self.kept
        start = (first >> 3) - dropped
        if start < 0:  # what was dropped is marked
            kept = min(max(8 * dropped, first), stop)
            rest = self._bits(kept, stop) if kept < stop else 0
            return (1 << (kept - first)) - 1 | rest << (kept - first)
        if start >= len(bits):
            return 0
        end = ((stop + 7) >> 3) - dropped
        whole = bits[start] if end == start + 1 else int.from_bytes(bits[start:end], "little")
        return whole >> (first & 7) & ((1 << (stop - first)) - 1)

    def more(self, counts: tuple[int, ...], entries: list[Entry]) -> tuple[int, ...]:
        """`answered` or `expired` with these entries."""
        if self.stages == 1:
            return (counts[0] + len(entries),)
        added = list(counts)
        for place, _ in entries:
            added[place % self.stages] += 1
        return tuple(added)

    def mark(self, entries: list[Entry], answered: tuple[int, ...]) -> None:
        """These are answered; twice does no harm, with what `answered` is afterwards."""
        first, last = entries[0][0], entries[-1][0]
        if first < last and entries == [(number, None) for number in range(first, last + 1)]:
            self._set(first, last + 1)
        else:
            for number, token in entries:
                if token is not None:
                    self.beyond.setdefault(token, set()).add(number)
                else:
                    self._set(number, number + 1)
        self.answered = answered

    def _set(self, first: int, stop: int) -> None:
        """Mark places in a row."""
        dropped, bits = self.kept
        first = max(first, 8 * dropped)
        start, end = (first >> 3) - dropped, ((stop + 7) >> 3) - dropped
        if first >= stop:
            return
        if len(bits) < end:
            bits.extend(bytes(end - len(bits)))
        marks = ((1 << (stop - first)) - 1) << (first & 7)
        if end == start + 1:
            bits[start] |= marks
        else:
            whole = int.from_bytes(bits[start:end], "little") | marks
            bits[start:end] = whole.to_bytes(end - start, "little")
        if start // _BLOCK != end // _BLOCK or (start == 0 and len(bits) < _BLOCK):
            self._drop()

    def waiting(self, number: int) -> list[int]:
        """The stages that the decision of this number waits for."""
        first, stages = number * self.stages, range(self.stages)
        marks = self._bits(first, first + self.stages)
        return [s for s in stages if not marks >> s & 1] if number < self.issued else []

    def waits(self, number: int) -> bool:
        """Whether the decision of this number waits for feedback."""
        return bool(self.waiting(number))

    def expire(self, entries: list[Entry], expired: tuple[int, ...]) -> None:
        """These get no feedback any more; twice does no harm, with what `expired` is afterwards."""
        for place, _ in entries:
            self._set(place, place + 1)
        self.expired = expired

    def _drop(self) -> None:
        """Drop the leading bytes that are full."""
        dropped, bits = self.kept
        left = bits.lstrip(_FULL_BYTE)
        if len(left) < len(bits):
            self.kept = (dropped + len(bits) - len(left), left)

    def copy(self) -> Ledger:
        """A copy with the same token."""
        ledger = Ledger()
        for name in self.__slots__:
            setattr(ledger, name, getattr(self, name))
        ledger.kept = (self.kept[0], self.kept[1].copy())
        ledger.earlier = dict(self.earlier)
        ledger.beyond = {token: set(numbers) for token, numbers in self.beyond.items()}
        return ledger

    def renew(self, beyond: bool) -> None:
        """Continue with a new token. beyond: whether numbers under the old one that are not issued
        here may be answered: after a load, not after a fork, whose parent has them.
        """
        self.earlier[self.token] = IssuedRange(self.start, self.issued, beyond)
        self.token, self.start = secrets.token_hex(8), self.issued

    # --- in a file ----------------------------------------------------------------------------

    def saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps: numbers for JSON, and arrays."""
        names = ("token", "start", "issued")
        counts: dict[str, Any] = {"answered": self.answered, "expired": self.expired}
        if self.stages == 1:
            counts = {name: count[0] for name, count in counts.items()}
        self._drop()  # equal ledgers are equal bytes
        numbers = (
            {name: getattr(self, name) for name in names}
            | counts
            | {
                "stages": self.stages,
                "dropped": self.kept[0],
                "earlier": self.earlier,
                "beyond": {token: len(numbers) for token, numbers in self.beyond.items()},
            }
        )
        beyond = [number for numbers in self.beyond.values() for number in sorted(numbers)]
        bits = np.frombuffer(bytes(self.kept[1]), dtype=np.uint8)
        return numbers, {"answered": bits, "recovered": np.array(beyond, dtype=np.int64)}

    @classmethod
    def loaded(
        cls, saved: SavedLedger, arrays: Mapping[str, NDArray[Any]], token: str | None = None
    ) -> Ledger:
        """The ledger that `saved` wrote, which continues with its own token, or with that
        which it had.
        """
        ledger = cls(saved.token, saved.stages)
        ledger.start, ledger.issued = saved.start, saved.issued
        each = [
            count if isinstance(count, tuple) else (count,)
            for count in (saved.answered, saved.expired)
        ]
        if any(len(count) != saved.stages for count in each):
            raise IncompatibleState(
                f"ledger.answered and ledger.expired are {each}; there are {saved.stages} stages"
            )
        ledger.answered, ledger.expired = each
        ledger.earlier = saved.earlier
        ranges = [IssuedRange(saved.start, saved.issued, False), *saved.earlier.values()]
        if any(not one.first <= one.end <= saved.issued for one in ranges):
            raise IncompatibleState(
                f"ledger.start or ledger.earlier do not fit {saved.issued} decisions: {ranges}"
            )
        if token is None:
            ledger.renew(beyond=True)
        elif token != ledger.token:
            raise IncompatibleState(
                f"the token is {token!r:.80}, and the agent that was saved had {ledger.token!r}; "
                "give that, or none"
            )
        recovered, bits = arrays["recovered"], arrays["answered"]
        fits = recovered.dtype == np.int64 and bits.dtype == np.uint8
        if not fits or recovered.ndim != 1 or bits.ndim != 1:
            raise IncompatibleState(
                f"recovered is {recovered.dtype} of shape {recovered.shape}, and answered "
                f"{bits.dtype} of shape {bits.shape}; they are int64 and uint8 vectors"
            )
        ledger._take_beyond(saved.beyond, recovered.tolist())
        ledger._take_bits(saved.dropped, bits)
        return ledger

    def _take_beyond(self, counts: dict[str, int], left: list[int]) -> None:
        """Take the answered numbers beyond the file: the first `counts` of each token."""
        for token, count in counts.items():
            known = self.earlier.get(token, IssuedRange(0, 0, False))
            own, left = set(left[:count]), left[count:]
            least = known.end * self.stages
            fits = known.beyond and len(own) == count and all(place >= least for place in own)
            if count and not fits:
                raise IncompatibleState(
                    f"ledger.beyond has {count} answers of {token!r}, and the numbers "
                    "do not fit: the file is damaged or forged"
                )
            self.beyond[token] = own
        if left:
            raise IncompatibleState(f"recovered holds {len(left)} numbers of unknown agents")

    def _take_bits(self, dropped: int, bits: NDArray[Any]) -> None:
        marked = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        counted = 8 * dropped + marked.size + self.recovered
        last = 8 * dropped + int(marked[-1]) if marked.size else 8 * dropped - 1
        done, places = sum(self.answered) + sum(self.expired), self.issued * self.stages
        if counted != done or last >= places or max(self.open_stages) > _MOST_OPEN:
            raise IncompatibleState(
                f"in the ledger {self.answered} of {self.issued} decisions were answered "
                f"and {self.expired} have expired, and marks {counted}, the last of them number "
                f"{last}: the file is damaged or forged"
            )
        self.kept = (dropped, bytearray(bits.tobytes()))


def require_decision(given: Any) -> None:
    """Raise InvalidInput for anything but a decision."""
    if not isinstance(given, Decision):
        raise InvalidInput(
            f"the decision is {given!r:.80}; give the Decision that act returned (or "
            "Decision.from_bytes of its bytes)"
        )


_SECONDS = 10.0  # how long a fork waits for an agent that another thread is using

_AGENTS: weakref.WeakSet[Any] = weakref.WeakSet()
_REGISTER = [threading.Lock()]  # of the set itself; a child has its own
_FORKING = threading.local()  # agents whose locks this thread holds while it forks


def register(agent: Any) -> None:
    """From now on a fork waits for this agent."""
    with _REGISTER[0]:
        _AGENTS.add(agent)


def _before() -> None:
    """No agent is left half-way through something that another thread does."""
    with _REGISTER[0]:
        agents = sorted(_AGENTS, key=id)
    _FORKING.held = []
    for agent in agents:
        if agent._lock.acquire(timeout=_SECONDS):
            agent._forks += 1
            _FORKING.held.append(agent)


def _after_in_parent() -> None:
    for agent in _FORKING.held:
        agent._lock.release()
    _FORKING.held = []


def _after_in_child() -> None:
    _REGISTER[0] = threading.Lock()
    _FORKING.held = []
    for agent in _AGENTS:
        agent._lock = threading.RLock()
        agent._log = None
        agent._recover()
        agent._ledger.renew(beyond=False)
        agent._draws = agent._draws.apart(agent._forks, "fork")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
