"""`Ledger`: which decisions were made, and which have had their feedback; each at most once."""

from __future__ import annotations

import secrets
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fairwolfe.errors import InvalidInput
from fairwolfe.problem import whole_number
from fairwolfe.protocols import Decision

__all__ = ["Ledger"]

_FULL = 0xFF
_MOST_OPEN = 2**33  # decisions, which take a gigabyte of bits


class Ledger:
    """Numbers the decisions of one agent and remembers which were answered.

    An answer costs one bit, and none below the watermark: leading bytes whose eight decisions are
    all answered are dropped, so that memory does not grow while feedback comes.

    The token in an id tells agents apart. A loaded ledger goes on under a token of its own:
    decisions that were made after the file was saved are then strangers, not namesakes of the
    ones that it makes next.

    >>> ledger = Ledger()
    >>> decision = Decision(ledger.issue(), 0, 2, None, ())
    >>> ledger.mark(ledger.number(decision))
    >>> ledger.issued, ledger.open
    (1, 0)
    """

    __slots__ = ("answered", "bits", "dropped", "earlier", "issued", "start", "token")

    def __init__(self) -> None:
        self.token = secrets.token_hex(8)
        self.start = 0  # the first number under this token
        self.earlier: dict[
            str, tuple[int, int]
        ] = {}  # token -> its first number, one past the last
        self.issued = 0
        self.answered = 0
        self.bits = bytearray()  # bit n % 8 of byte n // 8 - dropped: decision n was answered
        self.dropped = 0

    @property
    def open(self) -> int:
        """How many decisions wait for their feedback."""
        return self.issued - self.answered

    def issue(self) -> str:
        """The id of the next decision."""
        number = self.issued
        self.issued = number + 1
        return f"{self.token}-{number}"

    def number(self, decision: Decision) -> int:
        """The number of a decision of this agent that waits for its feedback; else an error."""
        if not isinstance(decision, Decision):
            raise InvalidInput(
                f"the decision is {decision!r:.80}; give the Decision that act returned (or "
                "Decision.from_bytes of its bytes)"
            )
        token, _, digits = decision.id.rpartition("-")
        if token == self.token:
            first, end = self.start, self.issued
        elif token in self.earlier:
            first, end = self.earlier[token]
        else:
            raise InvalidInput(
                f"decision {decision.id!r} was made by another agent, or by a policy itself; give "
                "its feedback to the agent that made it"
            )
        try:
            number = int(digits)
        except ValueError:
            number = -1
        if not first <= number < end:
            raise InvalidInput(
                f"decision {decision.id!r} is unknown: it was made after the file was saved from "
                "which this agent was loaded, or never"
            )
        place = (number >> 3) - self.dropped
        if place < 0 or (place < len(self.bits) and self.bits[place] >> (number & 7) & 1):
            raise InvalidInput(
                f"the feedback for decision {decision.id!r} was given already; it counts once"
            )
        return number

    def mark(self, number: int) -> None:
        """The decision of this number, which `number` has looked at, is answered."""
        bits = self.bits
        place = (number >> 3) - self.dropped
        if place >= len(bits):
            bits.extend(bytes(place + 1 - len(bits)))
        bits[place] |= 1 << (number & 7)
        self.answered += 1
        if place == 0 and bits[0] == _FULL:
            full = 1
            while full < len(bits) and bits[full] == _FULL:
                full += 1
            del bits[:full]
            self.dropped += full

    def saved(self) -> tuple[dict[str, Any], NDArray[np.uint8]]:
        """What a file keeps: numbers for JSON, and the bits."""
        numbers = {name: getattr(self, name) for name in self.__slots__ if name != "bits"}
        return numbers, np.frombuffer(bytes(self.bits), dtype=np.uint8)

    @classmethod
    def loaded(cls, numbers: dict[str, Any], bits: NDArray[np.uint8]) -> Ledger:
        """The ledger that `saved` wrote, which goes on under a token of its own."""
        ledger = cls()
        issued, answered, dropped, start = (
            whole_number(f"ledger.{name}", numbers[name], 0)
            for name in ("issued", "answered", "dropped", "start")
        )
        earlier, token = numbers["earlier"], numbers["token"]
        ranges = {
            one: tuple(whole_number(f"ledger.earlier[{one!r}]", number, 0) for number in pair)
            for one, pair in earlier.items()
        }
        if not isinstance(token, str) or start > issued:
            raise InvalidInput(f"ledger.token is {token!r:.80} and ledger.start is {start}")
        for one, (first, end) in ranges.items():
            if not first <= end <= issued:
                raise InvalidInput(f"ledger.earlier[{one!r:.80}] is {first, end}, of {issued}")
        if bits.dtype != np.uint8 or bits.ndim != 1:
            raise InvalidInput(f"answered is {bits.dtype} of shape {bits.shape}, not bytes")
        marks = np.unpackbits(bits, bitorder="little")
        if marks[max(issued - 8 * dropped, 0) :].any() or answered != 8 * dropped + marks.sum():
            raise InvalidInput(
                f"ledger.answered is {answered} of {issued} decisions, and the bits of the file "
                f"mark {8 * dropped + int(marks.sum())}"
            )
        if issued - answered > _MOST_OPEN:
            raise InvalidInput(f"ledger.issued is {issued}, of which {answered} were answered")
        ledger.issued = ledger.start = issued
        ledger.answered, ledger.dropped = answered, dropped
        ledger.bits = bytearray(bits.tobytes())
        ledger.earlier = {one: (first, end) for one, (first, end) in ranges.items()}
        if start < issued:
            ledger.earlier[token] = (start, issued)
        return ledger
