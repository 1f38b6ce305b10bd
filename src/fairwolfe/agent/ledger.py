"""`Ledger`: which decisions were made, and which have had their feedback or have expired."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.decision import Batch, Decision
from fairwolfe.errors import IncompatibleState, InvalidInput

__all__ = ["Ledger", "require_decision"]

_FULL = 0xFF
_MOST = 2**53  # no agent makes more decisions
_MOST_OPEN = 2**33  # decisions, which take a gigabyte of bits
_LONGEST = 64  # characters of a token
_MOST_STAGES = 64


class Numbers(NamedTuple):
    """The numbers that were issued under an earlier token: from `first` to below `end`.

    `beyond`: whether later ones count too. They do after a load: the agent that saved the file
    continued with its token until it ended, and the loaded state has not seen its later decisions.
    """

    first: int
    end: int
    beyond: bool


Entry: TypeAlias = tuple[int, str | None]
"""A decision that waits for its feedback: its number, and its token where it is beyond."""


class Ledger:
    """Numbers the decisions of one agent and remembers which were answered.

    An answer costs one bit for each stage of rewards (those that arrive together), and none below
    the watermark: leading bytes that are full are dropped, so that memory does not grow while
    feedback comes.

    The token in an id identifies the agent. A loaded ledger continues with its own token, so
    that its decisions are not mistaken for those of another process that read the same file; under
    the same token only where it is asked for.

    >>> ledger = Ledger()
    >>> decision = Decision(ledger.issue(), 0, 2, None, ())
    >>> ledger.mark([ledger.entry(decision)], ledger.answered + 1)
    >>> ledger.issued, ledger.open
    (1, 0)
    """

    __slots__ = (
        *("answered", "beyond", "earlier", "expired", "issued", "kept", "stages", "start"),
        "token",
    )

    def __init__(self, token: str | None = None, stages: int = 1) -> None:
        self.stages = stages
        self.token = secrets.token_hex(8) if token is None else _text("token", token)
        self.start = 0  # the first number under this token
        self.earlier: dict[str, Numbers] = {}  # by token
        self.issued = 0
        self.answered = 0
        self.expired = 0  # that get no feedback any more
        # How many bytes were dropped, and the others: bit n % 8 of byte n // 8, where stage s of
        # decision m has n = m stages + s. One attribute: no interrupt comes between the two.
        self.kept = (0, bytearray())
        self.beyond: dict[str, set[int]] = {}  # token -> answered numbers from its end on

    @property
    def recovered(self) -> int:
        """How many of the answered decisions are from beyond the file that was loaded."""
        return sum(map(len, self.beyond.values()))

    @property
    def open(self) -> int:
        """How many decisions wait for their feedback."""
        return self.issued - self.answered - self.expired + self.recovered

    @property
    def oldest_open(self) -> int | None:
        """How many decisions ago the oldest one that waits was made."""
        dropped, bits = self.kept
        for place, byte in enumerate(bits):
            if byte != _FULL:
                number = 8 * (dropped + place) + next(n for n in range(8) if not byte >> n & 1)
                break
        else:
            number = 8 * (dropped + len(bits))
        number //= self.stages
        return self.issued - number if number < self.issued else None

    def next_id(self) -> str:
        """The id that the next decision will have."""
        return f"{self.token}-{self.issued}"

    def issue(self) -> str:
        """The id of the next decision, which is made now."""
        id = self.next_id()
        self.issued += 1
        return id

    def entry(self, decision: Decision) -> Entry:
        """The entry of a decision of this agent that waits for its feedback; else an error."""
        require_decision(decision)
        return self._entry(decision.token, decision.number, decision)

    def _entry(self, token: str, number: int, decision: Any) -> Entry:
        if token == self.token:
            if self.start <= number < self.issued and not self._bits(number, number + 1):
                return number, None
            numbers = Numbers(self.start, self.issued, False)
        elif token in self.earlier:
            numbers = self.earlier[token]
        else:
            raise InvalidInput(
                f"decision {decision.id!r} was made by another agent, or by a policy itself; give "
                "its feedback to the agent that made it"
            )
        if number < numbers.first or (number >= numbers.end and not numbers.beyond):
            raise InvalidInput(f"decision {decision.id!r} is unknown: this agent never made it")
        if number >= numbers.end:
            answered = number in self.beyond.get(token, ())
            entry: Entry = (number, token)
        else:
            answered = self._bits(number, number + 1) != 0
            entry = (number, None)
        if answered:
            raise InvalidInput(
                f"the feedback for decision {decision.id!r} was given already; it counts once"
                if not self.expired
                else f"the feedback for decision {decision.id!r} was given already, or the "
                "decision has expired; it counts once, and in time"
            )
        return entry

    def entries(self, batch: Batch, start: int = 0) -> list[Entry]:
        """`entry` of each of a batch; the first that is wrong raises, under its number from `start`
        on.
        """
        numbers: list[int] = batch.numbers.tolist()
        first, stop = numbers[0], numbers[0] + len(numbers)
        own = batch.token == self.token and self.start <= first and stop <= self.issued
        in_a_row = own and numbers == list(range(first, stop))
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
        """The marks of these decisions, as the bits of a number."""
        dropped, bits = self.kept
        first, stop = first * self.stages, stop * self.stages
        start = (first >> 3) - dropped
        if start < 0:
            return 1  # what was dropped is marked
        if start >= len(bits):
            return 0
        end = ((stop + 7) >> 3) - dropped
        whole = bits[start] if end == start + 1 else int.from_bytes(bits[start:end], "little")
        return whole >> (first & 7) & ((1 << (stop - first)) - 1)

    def mark(self, entries: list[Entry], answered: int) -> None:
        """Decisions are answered, the last the `answered`-th. Twice does no harm."""
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
        """Mark decisions in a row."""
        dropped, bits = self.kept
        first, stop = max(first * self.stages, 8 * dropped), stop * self.stages
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
        if start == 0:
            self._drop()

    def waits(self, number: int) -> bool:
        """Whether the decision of this number waits for its feedback."""
        return number < self.issued and not self._bits(number, number + 1)

    def expire(self, entry: Entry, expired: int) -> None:
        """The decision of this entry gets no feedback any more, the `expired`-th of these. Twice
        does no harm.
        """
        self._set(entry[0], entry[0] + 1)
        self.expired = expired

    def _drop(self) -> None:
        """Drop the leading bytes that are full."""
        dropped, bits = self.kept
        full = 0
        while full < len(bits) and bits[full] == _FULL:
            full += 1
        if full:
            self.kept = (dropped + full, bits[full:])

    def copy(self) -> Ledger:
        """A copy with the same token."""
        ledger = Ledger()
        for name in self.__slots__:
            setattr(ledger, name, getattr(self, name))
        ledger.kept = (self.kept[0], self.kept[1].copy())
        ledger.earlier = dict(self.earlier)
        ledger.beyond = {token: set(numbers) for token, numbers in self.beyond.items()}
        return ledger

    def fork(self) -> None:
        """Continue with its own token: the parent process keeps the old one."""
        self._renew(beyond=False)

    def _renew(self, beyond: bool) -> None:
        self.earlier[self.token] = Numbers(self.start, self.issued, beyond)
        self.token, self.start = secrets.token_hex(8), self.issued

    # --- in a file ----------------------------------------------------------------------------

    def saved(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What a file keeps: numbers for JSON, and arrays."""
        numbers = {
            "token": self.token,
            "start": self.start,
            "issued": self.issued,
            "answered": self.answered,
            "expired": self.expired,
            "stages": self.stages,
            "dropped": self.kept[0],
            "earlier": self.earlier,
            "beyond": {token: len(numbers) for token, numbers in self.beyond.items()},
        }
        beyond = [number for numbers in self.beyond.values() for number in sorted(numbers)]
        bits = np.frombuffer(bytes(self.kept[1]), dtype=np.uint8)
        return numbers, {"answered": bits, "recovered": np.array(beyond, dtype=np.int64)}

    @classmethod
    def loaded(
        cls, numbers: Any, arrays: Mapping[str, NDArray[Any]], token: str | None = None
    ) -> Ledger:
        """The ledger that `saved` wrote, which continues with its own token, or with that
        which it had.
        """
        if not isinstance(numbers, dict):
            raise IncompatibleState(f"the ledger is {numbers!r:.60}; it must be a table")
        ledger = cls(stages=max(_whole("stages", numbers["stages"], _MOST_STAGES), 1))
        ledger.issued = _whole("issued", numbers["issued"])
        ledger.answered = _whole("answered", numbers["answered"])
        ledger.expired = _whole("expired", numbers["expired"], ledger.issued)
        ledger.start = _whole("start", numbers["start"], ledger.issued)
        ledger.token = _token("token", numbers["token"])
        for old, given in _table("earlier", numbers["earlier"]):
            if not isinstance(given, list) or len(given) != 3 or not isinstance(given[2], bool):
                raise IncompatibleState(f"ledger.earlier of {old!r} is {given!r:.60}")
            end = _whole(f"earlier of {old!r}", given[1], ledger.issued)
            first = _whole(f"earlier of {old!r}", given[0], end)
            ledger.earlier[old] = Numbers(first, end, given[2])
        if token is None:
            ledger._renew(beyond=True)
        elif token != ledger.token:
            raise IncompatibleState(
                f"the token is {token!r:.80}, and the agent that was saved had {ledger.token!r}; "
                "give that, or none"
            )
        ledger._take_beyond(_table("beyond", numbers["beyond"]), arrays["recovered"])
        dropped = _whole("dropped", numbers["dropped"], ledger.stages * ledger.issued // 8)
        ledger._take_bits(dropped, arrays["answered"])
        return ledger

    def _take_beyond(self, counts: list[tuple[str, Any]], numbers: NDArray[Any]) -> None:
        if numbers.ndim != 1 or numbers.dtype != np.int64:
            raise IncompatibleState(f"recovered is {numbers.dtype} of shape {numbers.shape}")
        left = numbers.tolist()
        for token, given in counts:
            count = _whole(f"beyond of {token!r}", given, len(left))
            known = self.earlier.get(token, Numbers(0, 0, False))
            own, left = set(left[:count]), left[count:]
            fits = known.beyond and len(own) == count and all(n >= known.end for n in own)
            if count and not fits:
                raise IncompatibleState(
                    f"ledger.beyond has {count} answers of {token!r}, and the numbers "
                    "do not fit: the file is damaged or forged"
                )
            self.beyond[token] = own
        if left:
            raise IncompatibleState(f"recovered holds {len(left)} numbers of unknown agents")

    def _take_bits(self, dropped: int, bits: NDArray[Any]) -> None:
        if bits.ndim != 1 or bits.dtype != np.uint8:
            raise IncompatibleState(f"answered is {bits.dtype} of shape {bits.shape}, not bytes")
        marked = np.flatnonzero(np.unpackbits(bits, bitorder="little"))
        counted = (8 * dropped + marked.size) / self.stages + self.recovered
        last = (8 * dropped + int(marked[-1])) // self.stages if marked.size else -1
        if counted != self.answered + self.expired or last >= self.issued or self.open > _MOST_OPEN:
            raise IncompatibleState(
                f"in the ledger {self.answered} of {self.issued} decisions were answered "
                f"and {self.expired} have expired, and marks {counted:g}, the last of them number "
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


def _whole(name: str, value: Any, most: int = _MOST) -> int:
    if type(value) is not int or not 0 <= value <= most:
        raise IncompatibleState(
            f"ledger.{name} is {value!r:.60}; it must be a whole number from 0 to {most}"
        )
    return value


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        raise InvalidInput(f"{name} is {value!r:.80}; give a text of at most {_LONGEST} characters")
    return value


def _token(name: str, value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST:
        raise IncompatibleState(f"ledger.{name} is {value!r:.60}; it must be a short text")
    return value


def _table(name: str, value: Any) -> list[tuple[str, Any]]:
    if not isinstance(value, dict):
        raise IncompatibleState(f"ledger.{name} is {value!r:.60}; it must be a table")
    return [(_token(name, token), given) for token, given in value.items()]
