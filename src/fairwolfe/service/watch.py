"""What can be watched of a model: how far it is from the best, who gets the exposure, how both
moved, and a stream of it for those who listen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import asdict, fields, is_dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np

from fairwolfe.core.packing import unpack
from fairwolfe.errors import IncompatibleState, InvalidInput
from fairwolfe.objectives import ByGroup, Concave
from fairwolfe.service.events import ItemsAdded, ItemsRetired, ObjectiveReplaced, decode, wall_of
from fairwolfe.service.model import Model, constraints_of, read_objective
from fairwolfe.service.refusal import Refused
from fairwolfe.simulation.exposure import by_group, gini_index, lorenz

if TYPE_CHECKING:
    from fairwolfe.service.core import Core

__all__ = [
    "Audience",
    "changes_of",
    "earlier_of",
    "exposure_of",
    "frame_of",
    "history_of",
    "live_of",
    "parts_of",
    "point_of",
    "shares_of",
    "told_constraints",
]

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
    if agent is None or model.t == 0:
        return {"t": 0, "sentence": "Nothing has been learnt yet."}
    try:
        live = agent.live()
    except InvalidInput as error:
        return {"t": model.t, "value": model.value, "sentence": str(error)}
    return {**asdict(live), "sentence": str(live)}


def told_constraints(model: Model) -> list[dict[str, Any]]:
    """The hard constraints: how they are kept, and what they cost; average and slack are None
    while nothing has been learnt.
    """
    names = ("name", "level", "average", "slack", "shadow_price", "feasible", "side")
    told = []
    for one in constraints_of(model.agent):
        known = {name: getattr(one, name, None) for name in names}
        nothing = dict.fromkeys(("average", "slack")) if model.t == 0 else {}
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
    labels = _labels(model) if keys else None
    if labels is not None and len(labels) == len(keys):
        summary["groups"] = [
            {"name": str(name), "share": one.share, "per_item": one.per_item}
            for name, one in by_group(np.maximum(values, 0.0), labels).items()
        ]
    return summary


def parts_of(objective: Concave) -> Iterator[Concave]:
    """An objective and all that it is made of."""
    yield objective
    if is_dataclass(objective):
        for field in fields(objective):
            value = getattr(objective, field.name)
            for part in value if isinstance(value, tuple) else (value,):
                if isinstance(part, Concave):
                    yield from parts_of(part)


def _labels(model: Model) -> tuple[Any, ...] | None:
    """The groups of the items, where the objective has any."""
    assert model.agent is not None
    for part in parts_of(model.agent.policy.objective):
        if isinstance(part, ByGroup):
            return tuple(part.labels)
    return None


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
    return [{"clock": clock, **_without_curve(unpack(point)[0])} for clock, point in points]


def _without_curve(point: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in point.items() if name != "lorenz"}


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
    before = None if first else repr(model.setup.make_policy().objective)
    lines = []
    for version, seq in enumerate(model.changes[first:], first + 1):
        try:
            _, payload = core.store.row(seq)
        except IncompatibleState:
            before = None
            continue
        for event in decode(payload):
            if event.model == model.number and _changes(event):
                after = repr(read_objective(event.objective))  # type: ignore[union-attr]
                line = {"version": version, "who": getattr(event, "who", ""), "from": before}
                lines.append({**line, "when": wall_of(payload), "to": after})
                before = after
    return lines[::-1][:_LISTED_CHANGES]


def _changes(event: Any) -> bool:
    return isinstance(event, ItemsAdded | ItemsRetired | ObjectiveReplaced) and bool(
        event.objective
    )


# --- all of it, once a second ------------------------------------------------------------------


def frame_of(core: Core, model: Model, live: dict[str, Any]) -> dict[str, Any]:
    """What the page shows of a model, as it is now."""
    frame = {
        "model": model.name,
        "clock": core.clock.now(),
        "wall": time.time(),
        "t": model.t,
        "live": live,
        "value": model.value,
        "average": model.average(),
        "decisions": model.decisions,
        "open": model.ring.open,
        **model.counts,
        "constraints": told_constraints(model),
        "objective": model.objective,
        "version": model.version,
        "stopped": model.stopped or None,
    }
    return {**frame, "exposure": exposure_of(model)} if model.ranks else frame


class Room:
    """The newest frame of a model, and who waits for the next."""

    def __init__(self) -> None:
        self.listeners = 0
        self.speaking = False
        self.number, self.frame = 0, b""
        self._news = asyncio.Event()

    def tell(self, frame: bytes) -> None:
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


class Audience:
    """Those who listen to the streams: a frame a second for each model that has listeners, made
    once for all of them. Nothing is queued for anybody.
    """

    def __init__(self, core: Core, most: int, make: Make) -> None:
        self.core, self.most, self._make = core, most, make
        self.listeners = 0
        self.ended = False
        self._rooms = {name: Room() for name in core.models}
        self._speakers: set[asyncio.Task[None]] = set()

    def enter(self) -> None:
        """Take a place, to be given back by `leave`; Refused where none is free."""
        if self.ended:
            raise Refused(503, "ending", "the service is ending", retry_after=1.0)
        if self.listeners >= self.most:
            self.core.numbers.rejected["listeners"] += 1
            raise Refused(
                503,
                "too_many_listeners",
                f"{self.listeners} listen already, and limits.listeners is {self.most}",
                retry_after=10.0,
            )
        self.listeners += 1

    def leave(self) -> None:
        """Give a place back."""
        self.listeners -= 1

    async def listen(self, model: Model, most: int) -> AsyncIterator[bytes]:
        """The frames of a model as server-sent events, at most so many."""
        room = self._rooms[model.name]
        room.listeners += 1
        count, number = 0, room.number
        try:
            yield b"retry: 1000\n\n"  # milliseconds until it is tried again where it breaks off
            if not room.speaking:
                room.speaking = True
                speaker = asyncio.create_task(self._speak(model, room))
                self._speakers.add(speaker)
                speaker.add_done_callback(self._speakers.discard)
            while count < most and not self.ended and await room.after(number):
                number, count = room.number, count + 1
                yield b"data: " + room.frame + b"\n\n"
        finally:
            room.listeners -= 1

    async def _speak(self, model: Model, room: Room) -> None:
        """A frame a second, as long as somebody listens."""
        while room.listeners and not self.ended:
            try:
                live = await asyncio.to_thread(live_of, model)
                room.tell(msgspec.json.encode(self._make(self.core, model, live)))
            except Exception:  # the next one may do better
                logger.exception("a frame of model %s failed", model.name)
            await asyncio.sleep(_PACE)
        room.speaking = False

    def end(self) -> None:
        """Let all of them go, so that the server can end."""
        self.ended = True
        for room in self._rooms.values():
            room.wake()
