"""What people watch of a model: live numbers, constraints, what is shown, exposure, history,
changes, and the stream of all of it; and the contexts that it saw last, for what-if.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec
import numpy as np

from fairwolfe.core.packing import unpack
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import ByGroup
from fairwolfe.objectives.exposure import by_group, gini_index, lorenz
from fairwolfe.objectives.two_sided import parts_of
from fairwolfe.service.events import decode_at, pack_context
from fairwolfe.service.model import Model, constraints_of, read_objective
from fairwolfe.service.telemetry import largest_groups
from fairwolfe.service.wire import Refused

if TYPE_CHECKING:
    from fairwolfe.core.decision import Batch
    from fairwolfe.service.core import Core


_MOST = 500
_SIZE = 16 << 20  # bytes


class Recent:
    """The last contexts, in memory: a bounded number, and of bounded size."""

    def __init__(self, most: int = _MOST, size: int = _SIZE) -> None:
        self._most, self._size = most, size
        self._count = self._held = 0
        self._groups: deque[tuple[list[Any], int]] = deque()  # with their bytes

    def extend(self, contexts: list[Any]) -> None:
        """Those of a group; the oldest groups go, as far as enough are left."""
        groups, size = self._groups, sum(map(size_of, contexts))
        groups.append((contexts, size))
        self._count += len(contexts)
        self._held += size
        while groups and (self._count - len(groups[0][0]) >= self._most or self._held > self._size):
            oldest, size = groups.popleft()
            self._count -= len(oldest)
            self._held -= size

    def contexts(self) -> list[Any]:
        """The last of them, the newest last."""
        return [one for group, _ in self._groups for one in group][-self._most :]


def size_of(context: Any) -> int:
    """How many bytes a context has."""
    if isinstance(context, np.ndarray):
        return context.nbytes
    return sum(array.nbytes for array in pack_context(context)[1:])


logger = logging.getLogger("fairwolfe.service")

_NOT_SENT = frozenset({"lorenz", "visits", "shown"})  # of a point of the history
_LORENZ, _KEPT = 100, 20  # parts of a curve, sent and kept in the history
_LISTED = 20  # items at either end
_DAY = 86400.0  # seconds: how old the earlier curve is, and how long the last visits are
_MOST_NAMES = 10_000  # that are counted
_NAMES_KEPT = 200  # in a point of the history; of more there is no yesterday
_MARKS_KEPT = 10.0  # seconds for which the marks of a tally are not read again
_PACE_KEPT = 60.0  # seconds between two points of a history in which something changes
_ENDS = 4  # items at either end of what is shown
_ARMS, _GROUPS_SHOWN = 10, 8
_LISTED_CHANGES = 100
_PACE = 1.0  # seconds between two frames


# --- what is shown -----------------------------------------------------------------------------


class Mark(NamedTuple):
    """Counts at a moment."""

    clock: float
    visits: int
    shown: dict[str, int]


class Tally:
    """How often each arm or item was shown, by name. It is kept with the points of the history:
    what was shown between the last point and a crash is not counted.
    """

    def __init__(self, points: Sequence[tuple[float, bytes]] = ()) -> None:
        known = _mark(points, len(points) - 1)
        self.visits, self.shown = known.visits, Counter(known.shown)
        self._marks, self._read = (known, known), -math.inf
        self.earlier: dict[str, Any] | None = None  # of what is exposed: as old as the marks

    def add(self, model: Model, decisions: Batch) -> None:
        """Count decisions that were just made."""
        self.visits += len(decisions)
        self.shown.update(_names_in(model, decisions))
        if len(self.shown) > _MOST_NAMES:
            self.shown = Counter(dict(self.shown.most_common(_MOST_NAMES // 2)))

    def kept(self) -> dict[str, Any]:
        """What a point of the history has of it."""
        few = len(self.shown) <= _NAMES_KEPT
        return {"visits": self.visits, "shown": dict(self.shown)} if few else {}

    def marks(self, core: Core, model: Model) -> tuple[Mark, Mark]:
        """Counts a day ago and two days ago; of a younger log at half of its age and at its start,
        so that there are visits after either where there were any.
        """
        now = core.clock.now()
        if now - self._read > _MARKS_KEPT or self._marks[0].visits == self.visits:
            points = core.store.history(model.number)
            first = points[0][0] if points else now
            span = min(_DAY, 0.5 * (now - first))
            last = _mark_before(points, now - span, self.visits)
            before = _mark_before(points, last.clock - span, last.visits)
            self._marks, self._read = (last, before), now
            self.earlier = _earlier_in(points, now)
        return self._marks


def _mark(points: Sequence[tuple[float, bytes]], place: int) -> Mark:
    """The counts of a point; 0 before all points, and where a point has none."""
    if place >= 0:
        clock, data = points[place]
        point = unpack(data)[0]
        if "shown" in point:
            return Mark(clock, point["visits"], point["shown"])
    return Mark(points[0][0] if points else 0.0, 0, {})


def _mark_before(points: Sequence[tuple[float, bytes]], clock: float, visits: int) -> Mark:
    """The counts at a moment, or before it, so that there were visits since then."""
    fewer = bisect_left(points, visits, key=lambda point: _mark([point], 0).visits) - 1
    place = bisect_right(points, clock, key=itemgetter(0)) - 1
    mark = _mark(points, min(place, fewer))
    # Nothing has changed between points that are further apart than the history's pace.
    return mark if place > fewer else mark._replace(clock=max(mark.clock, clock - _PACE_KEPT))


def _names_in(model: Model, decisions: Batch) -> Iterable[str]:
    """What decisions show, by name."""
    if model.ranks:
        assert model.agent is not None
        names = model.agent.names or ()
        return [names[item] for ranking in decisions.actions for item in ranking]
    if model.arm_names is None and decisions.names is not None:
        made = zip(decisions, decisions.actions, strict=True)
        return [one.name or f"arm {arm}" for one, arm in made]
    arms = model.setup.arms
    return [arms[arm] if arms else f"arm {arm}" for arm in decisions.actions]


def doing_of(core: Core, model: Model) -> dict[str, Any]:
    """What is shown, as shares of the visits: of the last day and of the day before it, as far as
    they are known; arms, or items at either end and groups of items.
    """
    tally = core.tallies[model.name]
    last, before = tally.marks(core, model)
    visits = (tally.visits - last.visits, last.visits - before.visits)
    n_arms = model.problem.n_arms or 0
    arms = model.setup.arms or [f"arm {arm}" for arm in range(n_arms)] or tally.shown
    keys = [*(model.items() if model.ranks else arms)]

    def share(name: str) -> list[float | None]:
        counts = [one.get(name, 0) for one in (tally.shown, last.shown, before.shown)]
        return [
            None if not n else (a - b) / n
            for n, (a, b) in zip(visits, pairwise(counts), strict=True)
        ]

    shares = {key: share(key) for key in keys}
    ordered = sorted(keys, key=lambda key: -(shares[key][0] or 0.0))
    least = ordered[::-1][: min(_ENDS, len(keys) // 2)] if model.ranks else []
    most = ordered[: min(_ENDS, len(keys) - len(least)) if model.ranks else _ARMS]
    groups: dict[str, list[list[float | None]]] = {}
    for by, names in _group_names(model).items():
        for name, key in zip(names, keys, strict=True):
            groups.setdefault(f"{by}{name}", []).append(shares[key])
    whole = float(model.n_slots or 1)
    totals = {
        name: [None if None in side else sum(side) / whole for side in zip(*rows, strict=True)]
        for name, rows in groups.items()
    }
    largest = sorted(totals, key=lambda name: -(totals[name][0] or 0.0))[:_GROUPS_SHOWN]
    now = core.clock.now()
    return {
        "visits": model.decisions,
        "seconds": now - last.clock,
        "before": last.clock - before.clock if visits[1] else None,
        "rate": visits[0] / (now - last.clock) if now > last.clock else None,
        "kinds": len(keys),
        "most": [[key, *shares[key]] for key in most],
        "least": [[key, *shares[key]] for key in least],
        "groups": [[name, *totals[name]] for name in largest],
    }


# --- how far from the best ---------------------------------------------------------------------


def live_of(model: Model) -> dict[str, Any]:
    """How far from the best: numbers and a sentence. The first takes a while, and after a change of
    f or of items another one: not on the thread that serves.
    """
    agent = model.agent
    if agent is None or not model.begun:
        return {"t": 0, "sentence": "Nothing has been learnt yet."}
    try:
        live = agent.live()
    except InvalidInput as error:
        return {"t": model.t, "value": model.value, "sentence": str(error)}
    return {**asdict(live), "sentence": str(live)}


def constraints_view(model: Model) -> list[dict[str, Any]]:
    """The hard constraints: how they are kept, and what they cost; average and slack are None
    while nothing is known of them. A rate has two keys more: `per`, the reward that it is per, and
    `kept_by_vanishing`, whether it is kept only because that has all but gone.
    """
    names = ("name", "level", "average", "slack", "shadow_price", "feasible", "side")
    told = []
    for one in constraints_of(model.agent):
        known = {name: getattr(one, name, None) for name in names}
        unknown = not model.begun or (known["average"] is not None and math.isnan(known["average"]))
        nothing = dict.fromkeys(("average", "slack")) if unknown else {}
        if getattr(one, "per", ""):
            known |= {"per": one.per, "kept_by_vanishing": one.kept_by_vanishing}
        told.append({**known, **nothing, "sentence": str(one)})
    return told


def worth_of(model: Model) -> dict[str, float]:
    """What one more of each reward would add to f, without its hard constraints, at the averages
    so far: to say a price in rewards. Empty where f has no gradient there.
    """
    agent = model.agent
    if agent is None or not model.begun:
        return {}
    with agent.held() as running, suppress(InvalidInput, AttributeError):
        slope = running.read.relaxed().gradient(running.earned)
        n = running.kind.seen.n_objectives
        own = slope[n - len(model.rewards) : n].tolist()
        return dict(zip(model.rewards, own, strict=True))
    return {}


# --- who gets the exposure ---------------------------------------------------------------------


def shares_of(exposures: Any, parts: int = _LORENZ) -> dict[str, Any]:
    """The Lorenz curve of exposures in equal parts, the Gini index, and both in words; without
    numbers while nothing was exposed.
    """
    exposures = np.maximum(exposures, 0.0)
    if not exposures.sum() > 0.0:
        return {"lorenz": [], "gini": None, "least_half": None, "words": "Nothing was exposed yet."}
    curve = np.interp(np.linspace(0.0, 1.0, parts + 1), *lorenz(exposures))
    gini, half = gini_index(exposures), float(np.interp(0.5, *lorenz(exposures)))
    words = (
        f"The least shown half of the items gets {100.0 * half:.0f} % of the exposure; the Gini "
        f"index is {gini:.2f}, where 0 is equal and 1 is one item that gets all."
    )
    return {"lorenz": curve.tolist(), "gini": gini, "least_half": half, "words": words}


def exposure_of(model: Model) -> dict[str, Any]:
    """How the exposure is shared: the curve, the items at either end, and the groups of items
    where the objective has any.
    """
    exposures = model.exposures()
    keys, values = list(exposures), np.array(list(exposures.values()), dtype=np.float64)
    order = np.argsort(values, kind="stable")
    ends = {
        name: [{"key": keys[i], "exposure": float(values[i])} for i in places[:_LISTED]]
        for name, places in (("least", order), ("most", order[::-1]))
    }
    summary = {"items": len(keys), **shares_of(values), **ends}
    groups = _groups(model, np.maximum(values, 0.0)) if keys else []
    return summary | ({"groups": groups} if groups else {})


def _groups(model: Model, exposures: Any) -> list[dict[str, Any]]:
    """The groups of the items, where the objective has any; exposures: of the items."""
    assert model.agent is not None
    found: list[dict[str, Any]] = []
    labels, by_attribute = model.agent.labels(), model.groups()
    for by, groups in by_attribute.items():
        total = sum(groups.values())
        shown = largest_groups(groups)
        counts = Counter(name if name in shown else "" for name in labels[by])
        for name, exposure in shown.items():
            due = counts[name] / len(labels[by])
            share = exposure / total if total > 0.0 else due
            called = name or "all others"
            called = f"{by}: {called}" if len(by_attribute) > 1 else called
            one = {"name": called, "exposure": exposure, "share": share, "per_item": share / due}
            found.append(one)
    for part in parts_of(model.agent.policy.objective):
        fixed = part.labels if isinstance(part, ByGroup) and part.by is None else None
        if fixed is not None and len(fixed) == len(exposures):
            return [
                {"name": str(name), "share": one.share, "per_item": one.per_item}
                for name, one in by_group(exposures, fixed).items()
            ]
    return found


def _group_names(model: Model) -> dict[str, list[str]]:
    """The group of each item, where the objective has groups: by attribute, which is "" where
    there is one way to group them.
    """
    if model.agent is None or not model.ranks:
        return {}
    labels = model.agent.labels()
    by = list(model.groups())
    if by:
        return {f"{one}: " if len(by) > 1 else "": [str(x) for x in labels[one]] for one in by}
    for part in parts_of(model.agent.policy.objective):
        if isinstance(part, ByGroup) and part.by is None and part.labels is not None:
            return {"": [str(name) for name in part.labels]}
    return {}


# --- how it moved ------------------------------------------------------------------------------


def point_of(model: Model, live: dict[str, Any], tally: Tally) -> dict[str, Any]:
    """A point of the history."""
    known = {name: live.get(name) for name in ("at_most", "about", "low", "high")}
    point: dict[str, Any] = {"wall": time.time(), "t": model.t, "version": model.version}
    point |= {"value": model.value, "average": model.average(), **tally.kept()}
    if model.ranks:
        shares = shares_of(np.array(list(model.exposures().values())), _KEPT)
        kept = np.array(shares["lorenz"], dtype=np.float32)
        return {**point, **known, "gini": shares["gini"], "lorenz": kept}
    return {**point, **known, "gini": None}


def history_of(core: Core, model: Model, most: int | None = None) -> list[dict[str, Any]]:
    """The points that are kept, in order, without their curves; at most so many, evenly."""
    points = core.store.history(model.number)
    if most is not None and len(points) > most:
        places = np.linspace(0, len(points) - 1, most).round().astype(int)
        points = [points[place] for place in places.tolist()]
    kept = [{"clock": clock, **unpack(point)[0]} for clock, point in points]
    return [{name: point[name] for name in point if name not in _NOT_SENT} for point in kept]


def earlier_of(core: Core, model: Model) -> dict[str, Any] | None:
    """The Lorenz curve of a day ago, or the oldest that is kept; None where there is none."""
    return _earlier_in(core.store.history(model.number), core.clock.now())


def _earlier_in(points: Sequence[tuple[float, bytes]], now: float) -> dict[str, Any] | None:
    place = bisect_right([clock for clock, _ in points], now - _DAY) - 1
    for clock, data in points[max(place, 0) :]:
        point = unpack(data)[0]
        curve = point.get("lorenz")
        if curve is not None and len(curve):
            numbers = curve.astype(float).round(6).tolist()
            return {"seconds_ago": now - clock, "gini": point["gini"], "lorenz": numbers}
    return None


def changes_of(core: Core, model: Model) -> list[dict[str, Any]]:
    """Who changed f, when, from what and to what: the newest first, from the log, as far back as
    its rows are kept.
    """
    first = max(model.version - _LISTED_CHANGES - 1, 0)
    before = None if first else model.setup.make_policy().objective
    lines = []
    for version, seq in enumerate(model.changes[first:], first + 1):
        try:
            _, payload = core.store.row(seq)
        except IncompatibleState:
            before = None
            continue
        wall, events = decode_at(payload)
        for event in events:
            text = getattr(event, "objective", "")
            if event.model == model.number and text:
                after = read_objective(text)
                line = {"version": version, "who": getattr(event, "who", ""), "when": wall}
                sides = {"from": before, "to": after}
                texts = {side: one and repr(one) for side, one in sides.items()}
                words = {
                    f"{side}_words": one and model.describe(one) for side, one in sides.items()
                }
                lines.append({**line, **texts, **words})
                before = after
    return lines[::-1][:_LISTED_CHANGES]


# --- all of it, once a second ------------------------------------------------------------------


def frame_of(core: Core, model: Model, live: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of a model, as it is now."""
    frame = {"model": model.name, "clock": core.clock.now(), "wall": time.time(), "live": live}
    frame |= {**model.summary(), "constraints": constraints_view(model)}
    frame |= {"doing": doing_of(core, model), "worth": worth_of(model), "begun": model.begun}
    frame["needs"] = 0 if model.agent is not None else model.n_slots - len(model.early)
    if not model.ranks:
        return frame
    return {**frame, "exposure": exposure_of(model), "earlier": core.tallies[model.name].earlier}


class Channel:
    """The newest frame of a model, and who waits for the next."""

    def __init__(self) -> None:
        self.listeners = 0
        self.publishing = False
        self.number, self.frame = 0, b""
        self._news = asyncio.Event()

    def publish(self, frame: bytes) -> None:
        """A new frame; a reader that was too slow never sees the one before."""
        self.number, self.frame = self.number + 1, frame
        self.wake()

    def wake(self) -> None:
        """End the waiting for a frame."""
        self._news.set()
        self._news = asyncio.Event()

    async def after(self, number: int) -> bool:
        """Wait for a frame after one; whether there is one."""
        if self.number == number:
            await self._news.wait()
        return self.number > number


Make: TypeAlias = Callable[["Core", Model, dict[str, Any]], dict[str, Any]]
"""A frame, of the live numbers of a model."""


class Broadcast:
    """Those who listen to the streams: a frame a second for each model that has listeners, made
    once for all of them. Nothing is queued for anybody.
    """

    def __init__(self, core: Core, make: Make) -> None:
        self.core, self._make = core, make
        self.listeners = 0
        self.ended = False
        self._channels = {name: Channel() for name in core.models}
        self._tasks: set[asyncio.Task[None]] = set()

    def enter(self) -> None:
        """Take a place, to be given back by `leave`; Refused where none is free."""
        if self.ended:
            raise Refused(503, "ending", "the service is ending", retry_after=1.0)
        most = self.core.limits.listeners
        if self.listeners >= most:
            self.core.metrics.rejected["listeners"] += 1
            text = f"{self.listeners} listen already, and limits.listeners is {most}"
            raise Refused(503, "too_many_listeners", text, retry_after=10.0)
        self.listeners += 1

    def leave(self) -> None:
        """Give a place back."""
        self.listeners -= 1

    async def listen(
        self, model: Model, most: int, allowed: Callable[[], bool]
    ) -> AsyncIterator[bytes]:
        """The frames of a model as server-sent events, at most so many, while it is allowed."""
        channel = self._channels[model.name]
        channel.listeners += 1
        count, number = 0, channel.number
        try:
            yield b"retry: 1000\n\n"  # milliseconds until it is tried again where it breaks off
            if not channel.publishing:
                channel.publishing = True
                task = asyncio.create_task(self._publish(model, channel))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            while count < most and not self.ended and await channel.after(number):
                if not allowed():
                    break
                number, count = channel.number, count + 1
                yield b"data: " + channel.frame + b"\n\n"
        finally:
            channel.listeners -= 1

    async def _publish(self, model: Model, channel: Channel) -> None:
        """A frame a second, as long as somebody listens."""
        while channel.listeners and not self.ended:
            try:
                live = await asyncio.to_thread(live_of, model)
                channel.publish(msgspec.json.encode(self._make(self.core, model, live)))
            except Exception:  # the next one may do better
                logger.exception("a frame of model %s failed", model.name)
            await asyncio.sleep(_PACE)
        channel.publishing = False

    def end(self) -> None:
        """Let all of them go, so that the server can end."""
        self.ended = True
        for channel in self._channels.values():
            channel.wake()
