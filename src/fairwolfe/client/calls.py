"""Every request that a client can make: what is sent, and how its answer is read."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from fairwolfe.errors import InvalidInput

__all__ = ["TYPE", "Call", "Decided", "encode", "feedback_raw"]

TYPE = "application/msgpack"

T = TypeVar("T")


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


class Call(NamedTuple, Generic[T]):
    """A request that is safe to send again.

    read: the answer, from the body of a response that is not an error
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    body: bytes | None = None
    headers: Mapping[str, str] = {}


def encode(value: Any) -> bytes:
    """MessagePack; arrays and numbers of NumPy are lists and numbers."""
    return msgspec.msgpack.encode(value, enc_hook=_plain_object)


def _plain_object(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return value.tolist()
    raise InvalidInput(f"{value!r:.80} is {type(value).__name__}; give numbers, text and lists")


def _decode(body: bytes) -> Any:
    return msgspec.msgpack.decode(body)


def _path(model: str, *parts: str) -> str:
    return "/".join(("/v1/models", *(quote(part, safe="") for part in (model, *parts))))


# --- decisions ----------------------------------------------------------------------------------


def decide(
    model: str,
    *,
    user: Any = None,
    arms: Any = None,
    candidates: Iterable[str | int] | None = None,
    blocked: Iterable[str | int] | None = None,
    pinned: Mapping[int, str] | None = None,
    explain: bool = False,
    request_id: str | None = None,
    packed: bool = False,
) -> Call[Decided]:
    """A decision: user and arms are features, as lists or arrays.

    packed: send them as raw float32, which is shorter, and rounds them to 7 digits
    """
    question = _question(
        user=user,
        arms=arms,
        candidates=candidates,
        blocked=blocked,
        pinned=pinned,
        explain=explain,
        request_id=request_id,
        packed=packed,
    )
    path = _path(model, "decide")
    return Call("POST", path, lambda body: _decided(model, _decode(body)), encode(question))


def decide_many(model: str, requests: Iterable[Mapping[str, Any]]) -> Call[list[Decided]]:
    """Decisions for several questions, with the keywords of `decide`: all or none."""
    questions = {"requests": [_question(**request) for request in requests]}

    def read(body: bytes) -> list[Decided]:
        return [_decided(model, answer) for answer in _decode(body)]

    return Call("POST", _path(model, "decide_many"), read, encode(questions))


def feedback(
    decision: Decided,
    rewards: Mapping[str, Any] | None = None,
    *,
    exposed: Iterable[str] | None = None,
    clicked: Iterable[str] | None = None,
    final: bool = False,
) -> Call[str]:
    """The outcome of a decision, or a part of it: joined, known, late, unknown or conflict."""
    one = entry(decision, rewards, exposed=exposed, clicked=clicked, final=final)
    return feedback_raw(decision.model, [encode(one)], lambda body: str(_outcomes(body)[0]))


def feedback_many(model: str, entries: Iterable[Mapping[str, Any]]) -> Call[list[str]]:
    """Several entries at once, each {"id": ..., "rewards": ...} as on the wire."""
    return feedback_raw(model, [encode(dict(one)) for one in entries], _outcomes)


def feedback_raw(
    model: str, entries: Iterable[bytes], read: Callable[[bytes], T] = _decode
) -> Call[T]:
    """Entries that are MessagePack already."""
    body = encode([msgspec.Raw(one) for one in entries])
    return Call("POST", _path(model, "feedback"), read, body)


def decision(model: str, id: str) -> Call[dict[str, Any]]:
    """What was decided, and what has come for it."""
    return Call("GET", _path(model, "decisions", id), _decode)


def entry(
    decision: Decided,
    rewards: Mapping[str, Any] | None = None,
    *,
    exposed: Iterable[str] | None = None,
    clicked: Iterable[str] | None = None,
    final: bool = False,
) -> dict[str, Any]:
    """An entry of feedback as on the wire."""
    message: dict[str, Any] = {"id": decision.id}
    if rewards is not None:
        message["rewards"] = dict(rewards)
    if exposed is not None:
        message["exposed"] = list(exposed)
    if clicked is not None:
        message["clicked"] = list(clicked)
    if final:
        message["final"] = True
    return message


def _outcomes(body: bytes) -> list[str]:
    return [one["outcome"] for one in _decode(body)]


# --- models -------------------------------------------------------------------------------------


def models() -> Call[list[dict[str, Any]]]:
    """Every model, as `model` has it."""
    return Call("GET", "/v1/models", lambda body: list(_decode(body)["models"]))


def model(model: str) -> Call[dict[str, Any]]:
    """Counts, averages and the value of a model."""
    return Call("GET", _path(model), _decode)


def live(model: str) -> Call[dict[str, Any]]:
    """How far a model is from the best that can be reached, with a sentence."""
    return Call("GET", _path(model, "live"), _decode)


def history(model: str) -> Call[list[dict[str, Any]]]:
    """The same over time, oldest first."""
    return Call("GET", _path(model, "history"), lambda body: list(_decode(body)["points"]))


def exposure(model: str) -> Call[dict[str, Any]]:
    """Who is shown how much in a ranking: Lorenz curve, Gini index, the items at either end."""
    return Call("GET", _path(model, "exposure"), _decode)


def constraints(model: str) -> Call[list[dict[str, Any]]]:
    """Hard constraints, each with its slack, its shadow price and a sentence."""
    path = _path(model, "constraints")
    return Call("GET", path, lambda body: list(_decode(body)["constraints"]))


def changes(model: str) -> Call[list[dict[str, Any]]]:
    """Every change of f, newest first: who, when, from and to what."""
    return Call("GET", _path(model, "changes"), lambda body: list(_decode(body)["changes"]))


def items(model: str) -> Call[dict[str, list[float]]]:
    """The items that can be shown, key -> features."""

    def read(body: bytes) -> dict[str, list[float]]:
        return {item["key"]: item["features"] for item in _decode(body)["items"]}

    return Call("GET", _path(model, "items"), read)


def add_items(model: str, items: Mapping[str, Any], objective: str | None = None) -> Call[int]:
    """New items of a ranking, key -> features; how many there are now."""
    body: dict[str, Any] = {
        "items": [{"key": key, "features": _row(row)} for key, row in items.items()]
    }
    if objective is not None:
        body["objective"] = objective
    return Call("POST", _path(model, "items"), _count, encode(body))


def retire(model: str, key: str) -> Call[int]:
    """An item is not shown any more; how many are left."""
    return Call("DELETE", _path(model, "items", key), _count)


def objective(model: str) -> Call[dict[str, Any]]:
    """What is maximised, as text, and its version."""
    return Call("GET", _path(model, "objective"), _decode)


def replace_objective(model: str, objective: str, version: int | None = None) -> Call[int]:
    """Maximise another f; version: the one that it replaces, Conflict if it has changed; None
    replaces any version.
    """
    headers = {"If-Match": "*" if version is None else f'"{version}"'}
    body = encode({"objective": objective})
    path = _path(model, "objective")
    return Call("PUT", path, lambda body: int(_decode(body)["version"]), body, headers)


def _count(body: bytes) -> int:
    return int(_decode(body)["items"])


# --- the service --------------------------------------------------------------------------------


def snapshot() -> Call[int]:
    """Write a snapshot now; the number of the last row of the log that is in it."""
    return Call("POST", "/v1/admin/snapshot", lambda body: int(_decode(body)["seq"]))


def healthz() -> Call[dict[str, Any]]:
    """Whether the process answers."""
    return Call("GET", "/healthz", _decode)


def readyz() -> Call[dict[str, Any]]:
    """Waits until the service can decide and write, at most until the deadline."""
    return Call("GET", "/readyz", _decode)


def metrics() -> Call[str]:
    """The metrics, as Prometheus reads them."""
    return Call("GET", "/metrics", lambda body: body.decode())


# --- features -----------------------------------------------------------------------------------


def _question(
    *,
    user: Any = None,
    arms: Any = None,
    candidates: Iterable[str | int] | None = None,
    blocked: Iterable[str | int] | None = None,
    pinned: Mapping[int, str] | None = None,
    explain: bool = False,
    request_id: str | None = None,
    packed: bool = False,
) -> dict[str, Any]:
    body: dict[str, Any] = {"request_id": request_id or uuid.uuid4().hex}
    if user is not None:
        body["user"] = _floats(user) if packed else _row(user)
    if arms is not None and packed:
        whole = hasattr(arms, "astype")
        rows = [] if whole else [_row(row) for row in arms]
        body["arms"] = _floats(arms) if whole else b"".join(map(_floats, rows))
        body["shape"] = arms.shape if whole else (len(rows), len(rows[0]) if rows else 0)
    elif arms is not None:
        body["arms"] = [_row(row) for row in arms]
    if candidates is not None:
        body["candidates"] = list(candidates)
    if blocked is not None:
        body["blocked"] = list(blocked)
    if pinned:
        body["pinned"] = {str(slot): key for slot, key in pinned.items()}
    if explain:
        body["explain"] = True
    return body


def _row(row: Any) -> list[Any]:
    """Numbers as a list, also of an array."""
    listed = row.tolist() if hasattr(row, "tolist") else list(row)
    if not isinstance(listed, list):
        raise InvalidInput(f"features are {row!r:.80}; give a list of numbers")
    return listed


def _floats(row: Any) -> bytes:
    """Raw little-endian float32, of numbers in a list or an array."""
    try:
        if hasattr(row, "astype"):
            return bytes(row.astype("<f4").tobytes())
        return struct.pack(f"<{len(row)}f", *row)
    except (struct.error, OverflowError, TypeError, ValueError) as error:
        raise InvalidInput(
            f"features are {row!r:.80}; packed, they have to be numbers of at most 3.4e38"
        ) from error


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
