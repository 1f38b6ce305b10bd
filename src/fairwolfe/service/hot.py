"""Decide, decide_many and feedback: from a body to work for the core, and from its result to
bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from fairwolfe.service import wire
from fairwolfe.service.config import Config, Key, Scope, bytes_of
from fairwolfe.service.core import Ask, Core, Waiter, Work
from fairwolfe.service.entries import Entry
from fairwolfe.service.model import Model
from fairwolfe.service.refusal import Refused

__all__ = ["KINDS", "Hot", "Kind", "Sizes", "too_large", "too_slow"]


class Kind(NamedTuple):
    """A hot route: the scope that it needs, what a body is, what it asks for, its answer."""

    name: str
    scope: Scope
    body: Any
    parse: Callable[[Any, Model, wire.Bounds], tuple[Sequence[Ask], Sequence[Entry]]]
    answer: Callable[[Work, Any, float], Any]

    @property
    def path(self) -> str:
        """Of the route, for any model."""
        return f"/v1/models/{{model}}/{self.name}"


def _decided(work: Work, answers: Any, window: float) -> Any:
    return wire.decided(work.model, answers[0], window)


def _all_decided(work: Work, answers: Any, window: float) -> Any:
    return [wire.decided(work.model, answer, window) for answer in answers]


def _outcomes(work: Work, outcomes: Any, window: float) -> Any:
    pairs = zip(work.entries, outcomes, strict=True)
    return [wire.Told(entry.id, outcome) for entry, outcome in pairs]


KINDS = (
    Kind(
        "decide",
        "decide",
        wire.Decide,
        lambda body, model, bounds: ([wire.ask_of(body, model, bounds)], ()),
        _decided,
    ),
    Kind(
        "decide_many",
        "decide",
        wire.DecideMany,
        lambda body, model, bounds: (wire.asks_of(body, model, bounds), ()),
        _all_decided,
    ),
    Kind(
        "feedback",
        "feedback",
        wire.Feedback | list[wire.Feedback],
        lambda body, model, bounds: ((), wire.entries_of(body)),
        _outcomes,
    ),
)


class Sizes:
    """How large a request may be, by the key that it shows."""

    def __init__(self, config: Config) -> None:
        limits = config.limits
        self._all = wire.Bounds(config.largest_body, limits.candidates, limits.dimensions)
        self._by_key: dict[Key, wire.Bounds] = {}

    def of(self, key: Key | None) -> wire.Bounds:
        """The smaller of what everybody and what the key may send."""
        if key is None:
            return self._all
        bounds = self._by_key.get(key)
        if bounds is None:
            body = None if key.body is None else bytes_of("body", key.body)
            own = (body, key.candidates, key.dimensions)
            pairs = zip(self._all, own, strict=True)
            bounds = wire.Bounds(*(size if o is None else min(size, o) for size, o in pairs))
            self._by_key[key] = bounds
        return bounds


class Hot:
    """A hot route of a model."""

    def __init__(self, kind: Kind, core: Core, model: Model, sizes: Sizes) -> None:
        self.kind, self.core, self.model, self.sizes = kind, core, model, sizes
        self.window, self.path = core.windows[model.name], kind.path

    def admit(self, stated: int, key: Key | None) -> int:
        """How many bytes a body may have; Refused where it has more, or too much waits already."""
        most = self.sizes.of(key).body
        if stated > most:
            raise too_large(most)
        self.core.admit(stated)
        return most

    def work(
        self, body: bytes, content_type: str, key: Key | None, waiter: Waiter | None = None
    ) -> Work:
        """What a body asks for."""
        read = wire.decode(body, content_type, self.kind.body)
        asks, entries = self.kind.parse(read, self.model, self.sizes.of(key))
        return Work(self.model, asks, entries, None, waiter, key, len(body))

    def encoded(self, work: Work, result: Any, accept: str) -> tuple[bytes, str]:
        """The answer, and its content type."""
        return wire.encode(self.kind.answer(work, result, self.window), accept)


def too_large(most: int) -> Refused:
    """A body that is not read to its end."""
    return Refused(413, "too_large", f"the body is larger than {most:,} bytes; send less at once")


def too_slow(seconds: float) -> Refused:
    """A request that did not come to its end in time."""
    return Refused(
        408, "too_slow", f"the request did not arrive within {seconds:g} s; send it again"
    )
