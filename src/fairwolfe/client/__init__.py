"""`Client`: the decision service from Python. Needs no NumPy.

>>> client = Client("http://127.0.0.1:8710", key="fw_...")
>>> client
Client('http://127.0.0.1:8710')
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from fairwolfe.client.transport import Transport
from fairwolfe.errors import InvalidInput

__all__ = ["Client", "Decided"]


class Decided(NamedTuple):
    """A decision of the service: an arm, or the keys of items, best slot first.

    closes_in: seconds from the decision on in which feedback counts
    """

    model: str
    id: str
    arm: int | None
    items: list[str] | None
    probability: float | None
    closes_in: float
    explanation: list[dict[str, Any]] | None


class Client:
    """Asks for decisions and reports what came of them.

    Every question carries a request_id, so that it can be sent again without being decided twice;
    feedback may be sent again in any case. What the service refuses for load or cannot make durable
    is tried again, with pauses that grow, differ at random and follow its Retry-After, until the
    deadline. Safe to use from several threads.

    Parameters
    ----------
    address: such as "http://127.0.0.1:8710"
    key: that `fairwolfe keys new` printed, where the service has keys
    deadline: seconds for one call, with all that is tried again
    timeout: seconds for one attempt
    """

    def __init__(
        self,
        address: str,
        key: str | None = None,
        *,
        deadline: float = 30.0,
        timeout: float = 10.0,
    ) -> None:
        self._transport = Transport(address, key, deadline, timeout)

    def __repr__(self) -> str:
        return f"Client({self._transport.address!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    # --- decisions ----------------------------------------------------------------------------

    def decide(
        self,
        model: str,
        *,
        user: Any = None,
        arms: Any = None,
        candidates: Iterable[str | int] | None = None,
        blocked: Iterable[str | int] | None = None,
        pinned: Mapping[int, str] | None = None,
        explain: bool = False,
        request_id: str | None = None,
    ) -> Decided:
        """A decision: user and arms are features, as lists or arrays."""
        body = _question(user, arms, candidates, blocked, pinned, explain, request_id)
        return _decided(model, self._call("POST", model, "decide", body))

    def decide_many(self, model: str, requests: Iterable[Mapping[str, Any]]) -> list[Decided]:
        """Decisions for several questions, with the keywords of `decide`: all or none."""
        bodies = [_question(**{**_NONE, **request}) for request in requests]
        answers = self._call("POST", model, "decide_many", {"requests": bodies})
        return [_decided(model, answer) for answer in answers]

    def feedback(
        self,
        decision: Decided,
        rewards: Mapping[str, Any] | None = None,
        *,
        exposed: Iterable[str] | None = None,
        clicked: Iterable[str] | None = None,
        final: bool = False,
    ) -> str:
        """What came of a decision, or a part of it: joined, known, late, unknown or conflict."""
        entry = _entry(decision.id, rewards, exposed, clicked, final)
        model = decision.model
        return str(self._call("POST", model, "feedback", [entry])[0]["outcome"])

    def feedback_many(self, model: str, entries: Iterable[Mapping[str, Any]]) -> list[str]:
        """Several entries at once, each {"id": ..., "rewards": ...} as on the wire."""
        told = self._call("POST", model, "feedback", [dict(entry) for entry in entries])
        return [one["outcome"] for one in told]

    def decision(self, model: str, id: str) -> dict[str, Any]:
        """What was decided, and what has come for it."""
        found: dict[str, Any] = self._call("GET", model, f"decisions/{quote(id, safe='')}")
        return found

    # --- models -------------------------------------------------------------------------------

    def model(self, model: str) -> dict[str, Any]:
        """Counts, averages and the value of a model."""
        known: dict[str, Any] = self._call("GET", model, "")
        return known

    def live(self, model: str) -> dict[str, Any]:
        """How far a model is from the best that can be reached, with a sentence."""
        known: dict[str, Any] = self._call("GET", model, "live")
        return known

    def add_items(self, model: str, items: Mapping[str, Any], objective: str | None = None) -> int:
        """New items of a ranking, key -> features; how many there are now."""
        listed = [{"key": key, "features": _plain(row)} for key, row in items.items()]
        body = {"items": listed} if objective is None else {"items": listed, "objective": objective}
        return int(self._call("POST", model, "items", body)["items"])

    def retire(self, model: str, key: str) -> int:
        """An item is not shown any more; how many are left."""
        return int(self._call("DELETE", model, f"items/{quote(key, safe='')}")["items"])

    def objective(self, model: str) -> dict[str, Any]:
        """What is maximised, as text, and its version."""
        known: dict[str, Any] = self._call("GET", model, "objective")
        return known

    def replace_objective(self, model: str, objective: str, version: int | None = None) -> int:
        """Maximise another f; version: that it replaces, Conflict where it is another by now."""
        headers = {} if version is None else {"If-Match": f'"{version}"'}
        answer = self._call("PUT", model, "objective", {"objective": objective}, headers)
        return int(answer["version"])

    def _call(
        self,
        method: str,
        model: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        target = f"/v1/models/{quote(model, safe='')}" + (f"/{path}" if path else "")
        return self._transport.call(method, target, body, headers or {})


_NONE = dict.fromkeys(("user", "arms", "candidates", "blocked", "pinned", "request_id")) | {
    "explain": False
}


def _question(
    user: Any,
    arms: Any,
    candidates: Iterable[str | int] | None,
    blocked: Iterable[str | int] | None,
    pinned: Mapping[int, str] | None,
    explain: bool,
    request_id: str | None,
) -> dict[str, Any]:
    body: dict[str, Any] = {"request_id": request_id or uuid.uuid4().hex}
    if user is not None:
        body["user"] = _plain(user)
    if arms is not None:
        body["arms"] = [_plain(row) for row in arms]
    if candidates is not None:
        body["candidates"] = list(candidates)
    if blocked is not None:
        body["blocked"] = list(blocked)
    if pinned:
        body["pinned"] = {str(slot): key for slot, key in pinned.items()}
    if explain:
        body["explain"] = True
    return body


def _plain(row: Any) -> Sequence[Any]:
    """Numbers as a list, also of an array."""
    listed = row.tolist() if hasattr(row, "tolist") else list(row)
    if not isinstance(listed, list):
        raise InvalidInput(f"features are {row!r:.80}; give a list of numbers")
    return listed


def _entry(
    id: str,
    rewards: Mapping[str, Any] | None,
    exposed: Iterable[str] | None,
    clicked: Iterable[str] | None,
    final: bool,
) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": id}
    if rewards is not None:
        entry["rewards"] = dict(rewards)
    if exposed is not None:
        entry["exposed"] = list(exposed)
    if clicked is not None:
        entry["clicked"] = list(clicked)
    if final:
        entry["final"] = True
    return entry


def _decided(model: str, answer: Mapping[str, Any]) -> Decided:
    return Decided(
        model,
        answer["id"],
        answer.get("arm"),
        answer.get("items"),
        answer["probability"],
        answer["closes_in"],
        answer.get("explanation"),
    )
