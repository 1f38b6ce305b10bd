"""What people watch of a model: live numbers, constraints, exposure, history, changes, and the
stream of all of it; and the contexts that it saw last, for what-if.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeAlias

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

_LORENZ, _KEPT = 100, 20  # parts of a curve, sent and kept in the history
_LISTED = 20  # items at either end
_EARLIER = 86400.0  # seconds that the earlier curve is old, where there is one
_LISTED_CHANGES = 100
_PACE = 1.0  # seconds between two frames


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


# --- how it moved ------------------------------------------------------------------------------


def point_of(model: Model, live: dict[str, Any]) -> dict[str, Any]:
    """A point of the history."""
    known = {name: live.get(name) for name in ("at_most", "about", "low", "high")}
    point: dict[str, Any] = {"wall": time.time(), "t": model.t, "version": model.version}
    point |= {"value": model.value, "average": model.average()}
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
    return [{name: point[name] for name in point if name != "lorenz"} for point in kept]


def earlier_of(core: Core, model: Model) -> dict[str, Any] | None:
    """The Lorenz curve of a day ago, or the oldest that is kept; None where there is none."""
    points = core.store.history(model.number)
    now = core.clock.now()
    place = bisect_right([clock for clock, _ in points], now - _EARLIER) - 1
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
    return {**frame, "exposure": exposure_of(model)} if model.ranks else frame


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
