"""A service inside the test: its clock is set by hand, its store is in memory or as it is given."""

from __future__ import annotations

import asyncio
import atexit
import math
from collections.abc import Iterator, Sequence
from typing import Any

from fairwolfe.service import wire
from fairwolfe.service.config import Limits, parse, windows_of
from fairwolfe.service.core import _POLLS, LONGEST, Clock, Core, Work
from fairwolfe.service.join import Told
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import begin, recover
from fairwolfe.service.store import Outcomes, PruneBase, Row, Snapshot, Span, SQLiteStore
from fairwolfe.service.telemetry import Metrics
from fairwolfe.service.wire import DecisionRequest, IssuedDecision

_LOOP = asyncio.new_event_loop()
atexit.register(_LOOP.close)


class Hands:
    """What a clock reads: set by hand."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


class MemoryStore(SQLiteStore):
    """Rows in a list, under a token that is always the same."""

    def __init__(self) -> None:
        self.token = "memory"
        self.deleted = self.folded = 0
        self.bases: dict[int, PruneBase] = {}
        self.log: list[Row] = []
        self.kept_spans: list[tuple[Span, int]] = []
        self.outcomes: list[Outcomes] = []
        self.kept: dict[int, list[tuple[int, bytes]]] = {}
        self.waiting: dict[int, list[tuple[int, bytes]]] = {}
        self.points: dict[int, list[tuple[float, bytes]]] = {}
        self.begun: dict[int, int] = {}

    def append(
        self,
        clock: float,
        payload: bytes,
        spans: Sequence[Span] = (),
        outcomes: Sequence[Outcomes] = (),
        starts: Sequence[int] = (),
    ) -> int:
        seq = len(self.log) + 1
        self.log.append(Row(seq, clock, payload))
        self.kept_spans += [(span, seq) for span in spans]
        self.outcomes += outcomes
        self.begun |= dict.fromkeys(starts, seq)
        return seq

    def starts(self) -> dict[int, Row]:
        return {model: self.log[seq - 1] for model, seq in self.begun.items()}

    def row(self, seq: int) -> tuple[float, bytes]:
        return self.log[seq - 1][1:]

    def rows(self, after: int) -> Iterator[Row]:
        return iter(self.log[after:])

    def last(self) -> tuple[int, float]:
        return (self.log[-1].seq, self.log[-1].clock) if self.log else (0, 0.0)

    @property
    def row_count(self) -> int:
        return len(self.log)

    def size(self) -> int:
        return sum(len(row.payload) for row in self.log)

    def snapshot(self, kept: Sequence[Snapshot], folded: int) -> None:
        for model, seq, data, later in kept:
            self.kept.setdefault(model, []).insert(0, (seq, data))
            if later is not None:
                self.waiting.setdefault(model, []).append((seq, later.data))
        self.folded = folded

    def later(self, model: int, seq: int) -> Iterator[bytes]:
        return (data for at, data in self.waiting.get(model, []) if at <= seq)

    def snapshots(self, model: int) -> list[tuple[int, bytes | None]]:
        return list(self.kept.get(model, []))

    def row_of(self, model: int, number: int) -> tuple[int, Row] | None:
        for span, seq in self.kept_spans:
            if span.model == model and span.first <= number < span.stop:
                return span.first, self.log[seq - 1]
        return None

    def outcome_of(self, model: int, number: int) -> tuple[int, bytes] | None:
        for kept in self.outcomes:
            if kept.model == model and kept.first <= number < kept.stop:
                return kept.first, kept.data
        return None

    def note(self, model: int, clock: float, point: bytes) -> None:
        self.points.setdefault(model, []).append((clock, point))

    def history(self, model: int) -> list[tuple[float, bytes]]:
        return self.points.get(model, [])

    def close(self) -> None:
        pass


class Inside:
    """A service without HTTP."""

    def __init__(self, text: str, store: Any = None, limits: Limits | None = None) -> None:
        self.hands = Hands()
        self.store: Any = store or MemoryStore()
        found = recover(self.store)
        self.replayed = found.records
        parsed = parse(text)
        models = begin(self.store, parsed, found.models, self.store.last()[1])
        metrics = Metrics(replayed=found.records)
        windows, clock = windows_of(parsed), Clock(self.hands)
        others = found.others(models)
        self.core = Core(self.store, models, windows, limits, clock, metrics, others)
        self.core.tick()

    def model(self, name: str) -> Model:
        return self.core.models[name]

    def decide(self, name: str, **request: Any) -> IssuedDecision:
        return self.decide_many(name, [request])[0]

    def decide_many(self, name: str, requests: list[dict[str, Any]]) -> list[IssuedDecision]:
        model = self.model(name)
        asks = [wire.decision_request(wire.Decide(**one), model) for one in requests]
        return _LOOP.run_until_complete(self.core.wait(Work(model, requests=asks)))

    def tell(self, name: str, *entries: dict[str, Any]) -> list[str]:
        return [one.outcome for one in self.told(name, *entries)]

    def told(self, name: str, *entries: dict[str, Any]) -> list[Told]:
        """What became of entries, with what differs by stage."""
        given = [wire.Feedback(**entry) for entry in entries]
        return list(_LOOP.run_until_complete(self.core.wait(Work(self.model(name), entries=given))))

    def together(self, *coroutines: Any) -> list[Any]:
        """Requests that arrive at once."""

        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*coroutines, return_exceptions=True)

        return _LOOP.run_until_complete(all_of_them())

    def question(self, name: str, **request: Any) -> DecisionRequest:
        """What a request asks."""
        return wire.decision_request(wire.Decide(**request), self.model(name))

    def ask(self, name: str, **request: Any) -> Any:
        """A request for `together`."""
        asked = [self.question(name, **request)]
        return self.core.wait(Work(self.model(name), requests=asked))

    def advance(self, seconds_: float) -> None:
        """Time passes with its ticks, then as many that what is due closes."""
        steps = max(1, math.ceil(seconds_ / LONGEST))
        for _ in range(steps):
            self.hands.time += seconds_ / steps
            self.core.tick()
        for _ in range(_POLLS):
            self.core.tick()

    def stall(self, seconds_: float) -> None:
        """Time passes in which nothing runs; then the next ticks come."""
        self.hands.time += seconds_
        for _ in range(_POLLS + 1):
            self.core.tick()
