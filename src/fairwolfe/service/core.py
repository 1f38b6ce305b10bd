"""`Core`: the one writer.

What has arrived is gathered into a group, decided in one kernel call for each model, and written as
one row; only when that is on the disk is it applied to the models and answered. A group that cannot
be written is answered as such and has changed nothing: its numbers were never seen by anybody. If a
sync fails, nobody can tell whether the row will be there after a crash: the process ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from math import isnan
from typing import Any, Protocol, TypeAlias

import numpy as np

from fairwolfe.core.decision import Batch, Decision
from fairwolfe.core.packing import pack
from fairwolfe.core.rows import PlainRows, dump
from fairwolfe.errors import FairwolfeError, InvalidInput, NumericalFailure
from fairwolfe.service import watch, wire
from fairwolfe.service.config import Key, Limits, bytes_of
from fairwolfe.service.events import (
    Applied,
    Change,
    Closed,
    DecisionsMade,
    Epoch,
    Event,
    decode,
    encode,
    pack_inputs,
)
from fairwolfe.service.join import (
    APPLIED,
    FINAL,
    Cells,
    Joined,
    Merge,
    Outcome,
    Told,
    plain_action,
    told,
)
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import apply_event, write_snapshots
from fairwolfe.service.store import (
    DISK_FAILED,
    Fenced,
    Outcomes,
    Row,
    Span,
    Store,
    StoreFailed,
    SyncFailed,
    Unconfirmed,
)
from fairwolfe.service.telemetry import Metrics, log_event, log_stopped
from fairwolfe.service.watch import Recent

logger = logging.getLogger("fairwolfe.service")

LONGEST = 0.25  # seconds of a tick that count
_GROUP = 2048  # records of a group
_CLOSES = 512  # of a model in a row
_CLOSING_ROWS = 8  # in a tick: requests come in between
# Records that no snapshot has. From the first number on, some models are written after each group;
# above the second as many as it takes: a group more at most, and a restart replays below 10,000.
_SNAPSHOT_RECORDS, _MOST_RECORDS = 6_500, 7_500
_SNAPSHOT_SECONDS = 30.0  # of the clock, in which a change comes into a snapshot
_SNAPSHOT_BUDGET = 0.005  # seconds for the snapshots of a group or a tick: one at least
_HISTORY_SECONDS = (2.0, 60.0)  # between two points: a part of its age, from 2 s to a minute
_HISTORY_PART = 0.02
_SILENCE = 10  # parts of a window: so often the clock is written where nothing else is
_RETRY = 1.0  # seconds
_POLLS = 4  # ticks between the end of a window and its close: sockets are read in between
_PATIENCE = 5.0  # seconds of service time after a failed write in which nothing closes

BUSY = (429, "busy", "too many requests wait already; try again later", None, _RETRY)
"""Why a request is not even read: the same words each time, so that they cost little."""


# --- the clock ---------------------------------------------------------------------------------


class Clock:
    """For how many seconds the service could receive and store feedback, in all its lives.

    Windows are measured by it. It continues from the last row of the log and never goes back. It
    advances with the ticks of the event loop, by at most `LONGEST` each, so time in which the
    process stood still hardly counts; it does not advance while the log cannot be written.

    source: a monotonic clock, in seconds

    >>> times = iter([100.0, 100.2, 130.0, 129.0, 130.1])
    >>> clock = Clock(lambda: next(times))
    >>> clock.start(7.0)
    >>> for _ in range(5):
    ...     clock.tick()
    ...     print(round(clock.now(), 2), end=" ")
    7.0 7.2 7.45 7.45 7.55
    """

    def __init__(self, source: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._now = 0.0
        self.read: float | None = None  # the latest reading of the source

    def start(self, at: float) -> None:
        """Continue from here, with the first tick."""
        self._now, self.read = at, None

    def tick(self, counts: bool = True) -> None:
        """Advance by the time since the last tick; counts: False if that time does not count."""
        reading = self._source()
        if self.read is None:
            self.read = reading
        elif reading > self.read:
            self._now += min(reading - self.read, LONGEST) if counts else 0.0
            self.read = reading

    def now(self) -> float:
        """Seconds since the first start, as of the last tick."""
        return self._now


# --- work --------------------------------------------------------------------------------------


class Waiter(Protocol):
    """Who waits for the result of some work."""

    def absent(self) -> bool:
        """Whether nobody waits any more: then the work is not begun."""

    def answer(self, result: Any) -> None:
        """It is done, and durable."""

    def refuse(self, error: Exception) -> None:
        """It was not done, and nothing has changed."""


@dataclass(slots=True, eq=False)
class Work:
    """A request that waits for its group: decisions, entries of feedback, or a change.

    key: that it was sent with; weight: the bytes of its body
    """

    model: Model
    requests: Sequence[wire.DecisionRequest] = ()
    entries: Sequence[wire.Feedback] = ()
    change: Callable[[], Change | None] | None = None
    waiter: Waiter | None = None
    key: Key | None = None
    weight: int = 0


class FutureWaiter:
    """A waiter whose result is awaited."""

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def absent(self) -> bool:
        """Whether it was cancelled."""
        return self.future.cancelled()

    def answer(self, result: Any) -> None:
        """The result."""
        if not self.future.done():
            self.future.set_result(result)

    def refuse(self, error: Exception) -> None:
        """An error instead."""
        if not self.future.done():
            self.future.set_exception(error)


@dataclass(slots=True, eq=False)
class Draft:
    """What one group is about to write, and what it will answer."""

    events: list[tuple[Model, Event]] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    answers: list[tuple[Work, Any]] = field(default_factory=list)
    made: list[tuple[Model, Batch]] = field(default_factory=list)

    def add(self, other: Draft) -> None:
        """What another model is about to write."""
        self.events += other.events
        self.spans += other.spans
        self.answers += other.answers
        self.made += other.made


RunAside: TypeAlias = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Does the first, which only reads, and gives its result to the second."""


Trial: TypeAlias = Callable[[Model, str], Awaitable[None]]
"""Raises Refused where an objective for a model, as text, takes too long."""


def _at_once(work: Callable[[], Any], done: Callable[[Any], None]) -> None:
    done(work())


async def _untried(model: Model, objective: str) -> None:
    """Alone in a process: the check before it is written is enough."""


class Core:
    """Models, a store, and what waits.

    Parameters
    ----------
    models: by name
    windows: of the models, in seconds, by name: of each stage
    others: the models of the log that are not served
    """

    def __init__(
        self,
        store: Store,
        models: dict[str, Model],
        windows: dict[str, tuple[float, ...]],
        limits: Limits | None = None,
        clock: Clock | None = None,
        metrics: Metrics | None = None,
        others: Iterable[Model] = (),
    ) -> None:
        self.store, self.models, self.windows = store, models, windows
        self.set_limits(limits or Limits())
        self.metrics = metrics or Metrics()
        self.clock = clock or Clock()
        self.seq, at = store.last()
        self.clock.start(at)
        self.epoch = secrets.token_hex(6)  # of the ids that this process issues
        self.failing = ""  # why the store cannot be written, while it cannot
        self._unconfirmed = False  # and whether the last row may be written all the same
        self.fenced = ""  # why this process leads no more: it acknowledges nothing from then on
        self.on_fenced: Callable[[], None] = lambda: None
        self.weight = 0  # bytes of the bodies that wait
        self.arriving = 0  # bytes that connections hold: parts of requests, answers not read
        self.unread = 0  # those of answers
        self.recent = {name: Recent() for name in models}
        self.tallies = {
            name: watch.Tally(store.history(model.number)) for name, model in models.items()
        }
        self.aside: RunAside = _at_once  # who does what may take a while
        self.trial: Trial = _untried  # who tries an objective of a client
        self._waiting: deque[Work] = deque()
        self._scheduled = False
        self._written = self._noted = at
        self._ticks = deque([at] * _POLLS, maxlen=_POLLS)  # the clock at the last ticks
        self._patient = at  # nothing closes before
        self._tried = 0.0  # when a row was last tried, by the source of the clock
        # Models with changes that no snapshot has, those with the oldest first, and their records.
        every = [model for model in (*models.values(), *others) if model.since]
        self._changed = dict.fromkeys(sorted(every, key=lambda model: model.since or (0, 0.0)))
        self._unsnapped = sum(model.unsnapped for model in every)
        self._open = dict.fromkeys(models.values())  # those whose decisions may wait
        for model in models.values():
            model.noted = _told(model)
        self._unnoted: deque[Model] = deque()  # whose history has a point due
        self._patient_snapshots = at  # none is written before, after one that failed

    def set_limits(self, limits: Limits) -> None:
        """Bounds from now on; what was accepted under others stays accepted."""
        self.limits, self._held = limits, bytes_of("limits.held", limits.held)

    # --- what is asked ------------------------------------------------------------------------

    def model(self, name: str) -> Model:
        """A model by its name."""
        if name not in self.models:
            raise wire.Refused(404, "unknown_model", f"there is no model {name!r:.80}", "model")
        return self.models[name]

    async def change(self, name: str, change: Callable[[], Change | None]) -> Change | None:
        """Write an event that is made and checked when its turn comes; the event, or None where
        there is nothing to change. A new objective is tried before, while others are served.
        """
        model = self.model(name)
        self._check_leading()
        _usable(model)
        event = change()
        if event is None:  # it is so already
            return None
        if event.objective:
            await self.trial(model, event.objective)
        return await self.wait(Work(model, change=change))  # type: ignore[no-any-return]

    async def wait(self, work: Work) -> Any:
        """Have some work done, and wait for its result."""
        work.waiter = waiter = FutureWaiter()
        self.submit(work)
        return await waiter.future

    def submit(self, work: Work) -> None:
        """Have some work done with the next group; Refused where it cannot be."""
        model = work.model
        if self.fenced or model.stopped:
            self._check_leading()
            _usable(model)
        if work.requests and model.agent is None:
            text = f"model {model.name!r} has {len(model.early)} items and shows {model.n_slots}"
            raise wire.Refused(409, "no_items", f"{text}; add items with POST items first")
        self.admit(work.weight)
        self.weight += work.weight
        self._waiting.append(work)
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    def admit(self, weight: int) -> None:
        """Refused where too much waits already for a request of so many bytes."""
        if len(self._waiting) >= self.limits.waiting or self.weight + weight > self._held:
            raise wire.Refused(*BUSY)

    def room(self, more: int) -> bool:
        """Whether connections may hold so many more bytes of what has come in part.

        Apart from what waits: who sends in parts cannot keep out who sends at once.
        """
        return self.arriving + more <= self._held

    def _next(self) -> None:
        self._scheduled = False
        self.turn()
        if self._waiting and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._next)

    @property
    def waiting(self) -> int:
        """How many requests wait for their group."""
        return len(self._waiting)

    # --- a group ------------------------------------------------------------------------------

    def turn(self) -> None:
        """Write, apply and answer what has arrived, as far as it fits into a group."""
        works: list[Work] = []
        changes: list[Work] = []
        records = 0
        while self._waiting and records < _GROUP:
            work = self._waiting.popleft()
            self.weight -= work.weight
            if work.waiter is not None and work.waiter.absent():
                continue  # the client has gone, and nothing was written
            (works if work.change is None else changes).append(work)
            records += len(work.requests) + len(work.entries) + 1
        if not works and not changes:
            return
        if self.fenced:
            return _fail_all(works + changes, self._failure())
        try:
            self._group(works)
            for work in changes:
                self._change(work)
        except Exception as error:  # nobody may be left waiting
            logger.exception("a group failed")
            _fail_all(works + changes, error)
        if self._unsnapped >= _SNAPSHOT_RECORDS:
            self._snapshot_some()
        return None

    def _group(self, works: list[Work]) -> None:
        draft = Draft()
        by_model: dict[Model, tuple[list[Work], list[Work]]] = {}
        for work in works:
            by_model.setdefault(work.model, ([], []))[0 if work.requests else 1].append(work)
        for model, (decides, feedback) in by_model.items():
            if model.stopped:  # since it was asked
                _fail_all(decides + feedback, wire.model_stopped(model))
                continue
            part = Draft()
            try:
                if decides:
                    self._decide(part, model, decides)
                if feedback:
                    self._feedback(part, model, feedback)
            except Exception as error:  # of a user's policy: others are still served
                logger.exception("a group of model %s failed", model.name)
                _fail_all(decides + feedback, error)
            else:
                draft.add(part)
        if draft.events and not self._commit(draft.events, draft.spans):
            return _fail_all([work for work, _ in draft.answers], self._failure())
        if draft.events:
            self.metrics.groups.note(len(draft.answers))
            for model, decisions in draft.made:
                self.tallies[model.name].add(model, decisions)
        for work, answer in draft.answers:
            if work.model.stopped:
                _fail(work, wire.model_stopped(work.model))
            else:
                _done(work, answer)
        return None

    def _failure(self) -> wire.Refused:
        if self.fenced:
            return wire.not_leading(self.fenced)
        what = "nothing changed"
        if self._unconfirmed:
            what = "it may or may not be stored: repeat it, with the same request_id"
        return wire.Refused(503, "not_durable", f"{self.failing}; {what}", None, _RETRY)

    def _check_leading(self) -> None:
        if self.fenced:
            raise wire.not_leading(self.fenced)

    def fence(self, reason: str) -> None:
        """Another process leads: acknowledge nothing from now on, and end."""
        if not self.fenced:
            self.fenced = reason
            words = "this process leads no more, so it ends"
            log_event("fenced", words, logging.CRITICAL, reason=reason, seq=self.seq)
            self.on_fenced()

    def _commit(
        self,
        events: list[tuple[Model, Event]],
        spans: Sequence[Span] = (),
        outcomes: Sequence[Outcomes] = (),
    ) -> bool:
        """Write a row, and apply it once it is durable; whether it is."""
        clock = self.clock.now()
        began = time.perf_counter()
        self._tried = self.clock.read or 0.0
        try:
            payload = encode([event for _, event in events], time.time())
            self.seq = self.store.append(clock, payload, spans, outcomes)
        except FairwolfeError as error:
            self._note_failure(error)
            if not self.failing and not self.fenced:
                words = "the log cannot be written"
                log_event("log_failing", words, logging.ERROR, reason=str(error))
            self.failing, self._patient = str(error), clock + _PATIENCE
            self._unconfirmed = isinstance(error, Unconfirmed)
            return False
        synced = time.perf_counter()
        self.metrics.commits.note(synced - began)
        if self.failing:
            log_event("log_written", "the log can be written again", seq=self.seq)
        self.failing, self._written = "", clock
        for model, event in events:
            advice = "; start the service again"
            self._unsnapped += apply_event(model, event, self.seq, clock, advice)
            self._changed[model] = self._open[model] = None
        self.metrics.folds.note(time.perf_counter() - synced)
        return True

    def _note_failure(self, error: FairwolfeError) -> None:
        """Count a failed write; after a failed sync the process ends, before anybody is answered.

        The row may be in the system's memory and not on the disk, and the next sync may report
        success all the same. A start reads the log again, and syncs what it finds.
        """
        self.metrics.unwritten += 1
        if isinstance(error, Fenced):
            self.fence(str(error))
        if isinstance(error, SyncFailed):
            words = "a sync failed, so the service ends; requests under way get no answer"
            log_event("sync_failed", words, logging.CRITICAL, reason=str(error))
            os._exit(DISK_FAILED)

    # --- decisions ----------------------------------------------------------------------------

    def _decide(self, draft: Draft, model: Model, works: list[Work]) -> None:
        """Stage the decisions of a model; reject only what cannot be decided."""
        ring = model.ring
        first, closed = ring.issued, ring.closed
        ids: dict[str, tuple[int, bytes]] = {}  # request_id -> number, digest
        fresh: list[wire.DecisionRequest] = []
        planned: list[tuple[Work, Sequence[int]]] = []
        staged: dict[str, int] = defaultdict(int)  # by key
        room = self.limits.open - (first - closed)
        room = room if closed - ring.first < self.limits.later else 0
        for work in works:
            asked, count = work.requests, len(fresh)
            if len(asked) == 1 and asked[0].request_id is None and not work.key and count < room:
                fresh.append(asked[0])
                planned.append((work, (first + count,)))
                continue
            try:
                numbers, new, own = self._numbered(model, asked, count, ids)
                if new:
                    self._check_open(model, work.key, count, staged, len(new))
            except wire.Refused as refused:
                _fail(work, refused)
                continue
            fresh += new
            ids |= own
            planned.append((work, numbers))
        decisions: Batch | None = None
        contexts = [ask.context for ask in fresh]
        if fresh:
            try:
                decisions = _propose(model, fresh, contexts)
            except InvalidInput as error:
                return self._decide(draft, model, _decidable(model, [w for w, _ in planned], error))
            except NumericalFailure as error:
                model.stopped = f"model {model.name!r} is stopped: {error}"
                log_stopped(model, error, self.seq)
                return _fail_all([work for work, _ in planned], wire.model_stopped(model))
            if isinstance(decisions.rows, PlainRows):
                dump(decisions.rows, "")  # raises where the policy's evidence cannot be written
            self.recent[model.name].extend(contexts)
            draft.made.append((model, decisions))
            known = (
                tuple((number - first, id, digest) for id, (number, digest) in ids.items())
                if ids
                else ()
            )
            inputs = b""
            if model.audit:
                inputs = pack_inputs(contexts, [ask.options for ask in fresh], model.tolerance)
            owners = _owners(planned, first) if planned[0][0].key else None
            names = () if decisions.names is None else _brought_names(model, decisions)
            if model.epoch != self.epoch:
                draft.events.append((model, Epoch(model.number, self.epoch)))
            event = DecisionsMade(model.number, decisions.rows, known, owners, inputs, names)
            draft.events.append((model, event))
            draft.spans.append(Span(model.number, first, first + len(decisions)))
        new_answers = [] if decisions is None else _answers(model, decisions, first)
        for work, issued in planned:
            answers = []
            for number in issued:
                if number >= first:
                    answers.append(new_answers[number - first])
                else:
                    answers.append(_answer_again(model, number, self.clock.now()))
            for place, ask in enumerate(work.requests):
                if ask.explain:
                    answers[place] = _explained(decisions, first, answers[place])
            draft.answers.append((work, answers))
        return None

    def _numbered(
        self,
        model: Model,
        requests: Sequence[wire.DecisionRequest],
        staged: int,
        others: dict[str, tuple[int, bytes]],
    ) -> tuple[list[int], list[wire.DecisionRequest], dict[str, tuple[int, bytes]]]:
        """The numbers that requests will have, those that are new, and the request ids of these;
        staged: how many are before them; others: request ids of the group so far.
        """
        numbers: list[int] = []
        new: list[wire.DecisionRequest] = []
        ids: dict[str, tuple[int, bytes]] = {}
        for ask in requests:
            id = ask.request_id
            known = None
            if id is not None:
                known = model.ring.requests.get(id) or others.get(id) or ids.get(id)
            if known is not None:
                if known[1] != ask.digest:
                    text = (
                        f"request_id {id!r:.80} was used for another question within the window; "
                        "give every question its own id"
                    )
                    raise wire.Refused(409, "request_id_reused", text, "request_id")
                numbers.append(known[0])
                self.metrics.repeated += 1
                continue
            number = model.decisions + staged + len(new)
            if id is not None:
                ids[id] = (number, ask.digest)
            numbers.append(number)
            new.append(ask)
        return numbers, new, ids

    def _check_open(
        self, model: Model, key: Key | None, staged: int, by_key: dict[str, int], new: int
    ) -> None:
        """Refused where too many decisions would be open; else they are staged for their key."""
        ring = model.ring
        within, later = ring.issued - ring.closed, ring.closed - ring.first
        text = ""
        if later >= self.limits.later:
            text = f"wait for later rewards, and limits.later is {self.limits.later}"
            text = f"{later} decisions of model {model.name!r} {text}"
        elif within + staged + new > self.limits.open:
            text = f"are within their window, and limits.open is {self.limits.open}"
            text = f"{within} decisions of model {model.name!r} {text}"
        elif key is not None:
            own = ring.owned[key.name]
            if key.open is not None and own + by_key[key.name] + new > key.open:
                text = f"are within their window, and it may have {key.open}"
                text = f"{own} decisions of model {model.name!r} for the key {key.name!r} {text}"
            else:
                by_key[key.name] += new
        if text:
            raise wire.Refused(429, "too_many_open", text, retry_after=_RETRY)

    # --- feedback -----------------------------------------------------------------------------

    def _feedback(self, draft: Draft, model: Model, works: list[Work]) -> None:
        """Stage the feedback of a model. If nothing of it is new, nothing has to be written."""
        merge = Merge(model.ring, model.observes, model.expires)
        applied: list[list[int]] = [[] for _ in model.stages]
        answers: list[tuple[Work, list[Told]]] = []
        for work in works:
            try:
                read = [self._read(model, merge, i, entry) for i, entry in enumerate(work.entries)]
            except wire.Refused as refused:
                _fail(work, refused)
                continue
            outcomes: list[Told] = []
            for number, early, parts in read:
                if early is not None:
                    merge.counts[early] += 1
                    outcomes.append(Told(early))
                    continue
                found = []
                for cells in parts:
                    outcome, stage = merge.add(number, cells), cells.stage
                    if outcome != "joined":
                        merge.counts[outcome] += 1
                    elif model.setup.apply == "arrival":
                        for whole in _complete(model, merge, number, stage):
                            merge.state(number).marks[whole] |= APPLIED
                            applied[whole].append(number)
                    found.append((outcome, cells))
                outcomes.append(told(found, model.rewards))
            answers.append((work, outcomes))
        if merge.empty:
            for name, count in merge.counts.items():
                model.unwritten[name] += count
            for work, outcomes in answers:
                _done(work, outcomes)
            return
        draft.answers += answers
        draft.events.append((model, merge.event(model.number, model.unwritten)))
        for number, own in enumerate(applied):
            if own:
                draft.events.append((model, Applied(model.number, np.array(own), number)))

    def _unwritten_counts(self) -> list[tuple[Model, Event]]:
        """Counts that no row has yet, as events."""
        return [
            (model, Merge(model.ring).event(model.number, model.unwritten))
            for model in self.models.values()
            if any(model.unwritten.values()) and not model.stopped
        ]

    def _read(
        self, model: Model, merge: Merge, i: int, entry: wire.Feedback
    ) -> tuple[int, Outcome | None, list[Cells]]:
        """An entry, checked: its decision, its outcome where that is known, and what it says of
        each stage.
        """
        number = model.number_of(entry.id)
        outcome = merge.outcome_of(number)
        if outcome is not None:
            return number, outcome, []
        try:
            return number, None, wire.feedback_cells(model, number, entry)
        except wire.Refused as refused:
            raise refused.within(f"[{i}]") from refused

    # --- changes ------------------------------------------------------------------------------

    def _change(self, work: Work) -> None:
        model = work.model
        try:
            assert work.change is not None
            event = work.change()
            if event is None:  # it is so by now
                return _done(work, None)
            model.check_change(event)
        except wire.Refused as refused:
            return _fail(work, refused)
        except FairwolfeError as error:
            return _fail(work, wire.invalid_input(error))
        if not self._commit([(model, event)]):
            return _fail(work, self._failure())
        return _done(work, event)

    # --- time ---------------------------------------------------------------------------------

    def tick(self) -> None:
        """Advance the clock, close what is due, write the clock where nothing else does, keep
        snapshots and history.
        """
        if self.fenced:
            return
        self.clock.tick(not self.failing)
        clock = self.clock.now()
        # What is due was due some ticks ago. The event loop has read its sockets several times
        # since then: whatever had arrived before the window ended is not late.
        due = self._ticks[0]
        self._ticks.append(clock)
        for _ in range(_CLOSING_ROWS if clock >= self._patient else 0):
            if not self._close(due):
                break
            if self._unsnapped >= _MOST_RECORDS:
                self._snapshot_some()
        self._open = {model: None for model in self._open if model.ring.first < model.ring.issued}
        silence = clock - self._written
        opened = [
            window
            for model in self._open
            for window, ended in zip(self.windows[model.name], model.ring.ended, strict=True)
            if ended < model.ring.issued
        ]
        if self.failing:
            if (self.clock.read or 0.0) - self._tried >= _RETRY:
                self._commit([])
        elif opened and silence > max(1.0, min(opened) / _SILENCE):
            self._commit(self._unwritten_counts())
        self._snapshot_some()
        often, seldom = _HISTORY_SECONDS
        if clock - self._noted >= min(max(often, _HISTORY_PART * clock), seldom):
            self._noted = clock
            self._unnoted.extend(one for one in self.models.values() if one.noted != _told(one))
        if self._unnoted:
            self._note_history(self._unnoted.popleft(), clock)

    def _close(self, clock: float) -> bool:
        """Close what is due, as far as it fits into a row; whether more may be due."""
        due = [
            (model, stage, upto)
            for model in self._open
            if not model.stopped
            for stage, window in enumerate(self.windows[model.name])
            if (upto := self._due(model, clock, window, stage)) > model.ring.ended[stage]
        ]
        while due and self._waiting:  # what was read before comes first
            self.turn()
        events: list[tuple[Model, Event]] = []
        outcomes = []
        for model, stage, upto in due:
            if model.stopped:
                continue
            ring, start = model.ring, model.ring.ended[stage]
            events.append((model, Closed(model.number, start, upto, stage)))
            if stage == len(model.stages) - 1:
                held = ring.joined(np.arange(start, upto))
                outcomes.append(Outcomes(model.number, start, upto, held.to_bytes()))
        return bool(events) and not self.failing and self._commit(events, (), outcomes)

    def _due(self, model: Model, clock: float, window: float, stage: int) -> int:
        """See `Ring.due`; a model whose log cannot be read back is stopped."""
        try:
            return model.ring.due(clock, window, _CLOSES, stage)
        except StoreFailed:  # it may be read again later
            return 0
        except FairwolfeError as error:
            model.stopped = f"model {model.name!r} is stopped: {error}; start the service again"
            log_stopped(model, error, self.seq)
            return 0

    def snapshot(self) -> None:
        """Keep the state of every model that has changed, so that a restart is short."""
        counted = self._unwritten_counts()
        if counted:
            self._commit(counted)
        self._keep([model for model in self._changed if not model.stopped])

    def _snapshot_some(self) -> None:
        """Snapshots that are due, as many as fit into a few milliseconds."""
        if self._changed and not self.failing and self.clock.now() >= self._patient_snapshots:
            self._keep(self._due_snapshots())

    def _due_snapshots(self) -> Iterator[Model]:
        """The models whose changes are old, then, if there are many records, those with the most;
        until the time is over.
        """
        stop = time.perf_counter() + _SNAPSHOT_BUDGET
        old = self.clock.now() - _SNAPSHOT_SECONDS
        waiting = [model for model in self._changed if not model.stopped]
        chosen = [model for model in waiting if model.since and model.since[1] <= old]
        if self._unsnapped >= _SNAPSHOT_RECORDS:
            rest = waiting[len(chosen) :]
            chosen += sorted(rest, key=lambda model: model.unsnapped, reverse=True)
        left = self._unsnapped
        for model in chosen:
            yield model
            left -= model.unsnapped
            if left < _MOST_RECORDS and time.perf_counter() >= stop:
                return

    def _keep(self, models: Iterable[Model]) -> None:
        began = time.perf_counter()
        try:
            kept = write_snapshots(self.store, self.seq, models, self._changed)
        except FairwolfeError as error:  # the log is the truth: no snapshot, no harm
            self._note_failure(error)
            log_event("snapshot_failed", "no snapshot", logging.ERROR, reason=str(error))
            self._patient_snapshots = self.clock.now() + _SNAPSHOT_SECONDS
            return
        for model in kept:
            del self._changed[model]
        self._unsnapped = sum(model.unsnapped for model in self._changed if not model.stopped)
        if kept:
            self.metrics.snapshots.note(time.perf_counter() - began)

    def prune(self, step: Callable[[], object]) -> bool:
        """Do a step of what deletes exported rows; whether it could be done."""
        try:
            step()
        except FairwolfeError as error:
            self._note_failure(error)
            log_event("prune_failed", "rows were not deleted", logging.ERROR, reason=str(error))
            return False
        return True

    def _note_history(self, model: Model, clock: float) -> None:
        """A point of the history of a model: of one in a tick, since each is a sync."""
        model.noted = _told(model)
        self.aside(partial(watch.live_of, model), partial(self._keep_point, model, clock))

    def _keep_point(self, model: Model, clock: float, live: dict[str, Any]) -> None:
        try:
            point = watch.point_of(model, live, self.tallies[model.name])
            self.store.note(model.number, clock, pack((point,)))
        except FairwolfeError as error:
            self._note_failure(error)

    @property
    def snapshot_age(self) -> float:
        """For how many seconds a change has been waiting for its snapshot."""
        since = [model.since for model in self._changed if model.since and not model.stopped]
        return self.clock.now() - since[0][1] if since else 0.0

    # --- what was decided ---------------------------------------------------------------------

    def find(self, model: Model, id: str) -> wire.StoredDecision:
        """A decision by its id, open or closed."""
        number, ring = model.number_of(id), model.ring
        if not 0 <= number < ring.issued:
            raise wire.Refused(404, "unknown_decision", f"there is no decision {id!r:.80}", "id")
        if number >= ring.first:
            joined = ring.joined([number]).take(0)
            group = ring.group(number)
            decision, brought = group.decisions[number - group.first], group.name(number)
            return _stored(model, number, decision, joined, brought)
        row = self.store.row_of(model.number, number)
        kept = self.store.outcome_of(model.number, number)
        base = self.store.bases.get(model.number)
        if base is not None and number < base.first:
            text = "look for it in the exported files"
            text = f"decision {id!r:.80} was exported and deleted from the log: {text}"
            raise wire.Refused(404, "exported", text, "id")
        if row is None or kept is None:
            raise wire.Refused(404, "unknown_decision", f"decision {id!r:.80} is not kept", "id")
        first, data = kept
        joined = Joined.from_bytes(data).take(number - first)
        decision, brought = _decision_in(row, model.number, number)
        return _stored(model, number, decision, joined, brought)


def _stored(
    model: Model, number: int, decision: Decision, joined: Joined, brought: str | None
) -> wire.StoredDecision:
    """A decision as it is told of. brought: what its request called its arm."""
    ended = zip(model.ring.ended, model.answered(joined), joined.applied, strict=True)
    states = [
        "open" if not over and number >= end else "joined" if answered else "expired"
        for end, answered, over in ended
    ]
    name = model.name_of(decision.action, brought)
    return wire.StoredDecision(number, decision, states, joined, name)


def _decision_in(row: tuple[int, Row], model: int, number: int) -> tuple[Decision, str | None]:
    """A decision in a row of the log, and the name of its arm, if its request named it."""
    first, (_, _, payload) = row
    for event in decode(payload):
        if isinstance(event, DecisionsMade) and event.model == model:
            place = number - first
            return Batch(event.made)[place], event.names[place] if event.names else None
    raise wire.Refused(404, "unknown_decision", f"decision {number} is not kept", "id")


def _propose(model: Model, requests: Sequence[wire.DecisionRequest], contexts: list[Any]) -> Batch:
    """Decide for all of them in one call."""
    options, explain = [], False
    for ask in requests:
        options.append(ask.options)
        explain = explain or ask.explain
    return model.propose(contexts, options, model.tolerance, explain)


def _propose_alone(model: Model, ask: wire.DecisionRequest) -> None:
    try:
        _propose(model, [ask], [ask.context])
    except InvalidInput as error:
        raise wire.invalid_input(error, ask.field) from error


def _decidable(model: Model, works: list[Work], error: InvalidInput) -> list[Work]:
    """Those that can be decided; the others get the reason. Each ask is only read, and proposed
    alone only where nothing is wrong with any of them: then the policy itself rejects one.
    """
    for test in (wire.check, _propose_alone):
        sound = [work for work in works if _passes(model, work, test)]
        if len(sound) < len(works):
            return sound
    # Each by itself, but not together.
    _fail_all(works, wire.Refused(503, "not_decided", str(error), retry_after=_RETRY))
    return []


def _passes(model: Model, work: Work, test: Callable[[Model, wire.DecisionRequest], None]) -> bool:
    for i, ask in enumerate(work.requests):
        try:
            test(model, ask)
        except wire.Refused as refused:
            _fail(work, refused if len(work.requests) == 1 else refused.within(f"requests[{i}]"))
            return False
    return True


def _complete(model: Model, merge: Merge, number: int, stage: int) -> list[int]:
    """The stages of a decision that can be learnt, since nothing more will come for them, after
    something came for one: in rankings later ones wait for the first.
    """
    row, names = merge.state(number), model.stages[stage]
    if not model.ranks:
        whole = all((0, model.places[name]) in row.numbers for name in names)
        return [stage] if whole or row.marks[stage] & FINAL else []
    if not (row.marks[0] & (FINAL | APPLIED) or number < model.ring.closed):
        return []
    later = range(len(row.marks)) if stage == 0 else [stage]
    return [s for s in later if row.marks[s] & FINAL and not row.marks[s] & APPLIED]


def _answers(model: Model, decisions: Batch, first: int) -> list[wire.IssuedDecision]:
    """Decisions that were just made, as they are answered."""
    actions, chances = decisions.actions, decisions.probabilities.tolist()
    listed = map(plain_action, actions) if isinstance(actions, list) else actions.tolist()
    answers = []
    for number, (action, chance) in enumerate(zip(listed, chances, strict=True), first):
        answers.append(wire.IssuedDecision(number, action, None if isnan(chance) else chance))
    if decisions.names is None or model.n_slots:
        return answers
    return [one._replace(name=made.name) for one, made in zip(answers, decisions, strict=True)]


def _brought_names(model: Model, decisions: Batch) -> tuple[str | None, ...]:
    """What the chosen arms are called, where requests named them."""
    if model.n_slots or model.arm_names is not None:
        return ()
    return tuple(made.name for made in decisions)


def _answer_again(model: Model, number: int, now: float) -> wire.IssuedDecision:
    ring = model.ring
    group, action = ring.group(number), ring.action(number)
    probability, age = ring.decision(number).probability, now - group.clock
    name = model.name_of(action, group.name(number))
    return wire.IssuedDecision(number, action, probability, age=age, name=name)


def _explained(
    decisions: Batch | None, first: int, answer: wire.IssuedDecision
) -> wire.IssuedDecision:
    """With the reasons of a decision, where known: one that is answered again is not explained."""
    if decisions is None or answer.number < first:
        return answer
    with suppress(InvalidInput):  # the policy cannot say
        return answer._replace(explanation=decisions[answer.number - first].explain())
    return answer


def _owners(planned: list[tuple[Work, Sequence[int]]], first: int) -> tuple[tuple[str, ...], bytes]:
    """Which keys asked for the decisions from `first` on."""
    names: dict[str, int] = {}
    places: dict[int, int] = {}
    for work, numbers in planned:
        place = names.setdefault("" if work.key is None else work.key.name, len(names))
        for number in numbers:
            if number >= first:
                places.setdefault(number, place)
    return tuple(names), bytes(places.values())


def _told(model: Model) -> tuple[int, ...]:
    """What changes where the history of a model has something new."""
    return model.decisions, model.t, model.version


def _usable(model: Model) -> None:
    if model.stopped:
        raise wire.model_stopped(model)


def _done(work: Work, answer: Any) -> None:
    if work.waiter is not None:
        work.waiter.answer(answer)


def _fail(work: Work, error: Exception) -> None:
    if work.waiter is not None:
        work.waiter.refuse(error)


def _fail_all(works: Sequence[Work], error: Exception) -> None:
    for work in works:
        _fail(work, error)
