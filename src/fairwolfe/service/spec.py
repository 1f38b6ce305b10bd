"""`Spec`: a route, with what a key must be allowed to do there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

__all__ = ["ANYONE", "OPEN", "Handler", "Spec"]

Handler = Callable[[Any, Any], Awaitable[Any]]
"""Of the service and a request."""

OPEN = "open"
"""The scope of what needs no key on a loopback address, and `read` on any other."""

ANYONE = "anyone"
"""The scope of what never needs a key: the sign-in, and files without a number of anybody's."""


class Spec(NamedTuple):
    """A route: its method, its path, the scope that it needs, and who answers.

    handler: None for a hot route; status: of its answers; media: their type, where it is not JSON;
    refusal: makes the answer to a Refused, where it is not JSON.
    """

    method: str
    path: str
    scope: str
    handler: Handler | None
    status: tuple[int, ...] = (200,)
    media: str | None = None
    refusal: Callable[[Any, Any, Any], Any] | None = None
