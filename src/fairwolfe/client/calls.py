"""Every request that a client can make: what is sent, and how its answer is read."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from fairwolfe.errors import InvalidInput

TYPE = "application/msgpack"

T = TypeVar("T")


class Decided(NamedTuple):
    """A decision of the service: an arm, or the keys of items, best slot first.

    closes_in: seconds from the decision on in which feedback counts; name: of the arm, if any;
    stages: rewards and closes_in of each stage, where rewards arrive in several
    """

    model: str
    id: str
    arm: int | None
    items: list[str] | None
    probability: float | None
    closes_in: float
    explanation: list[dict[str, Any]] | None
    name: str | None = None
    stages: list[dict[str, Any]] | None = None


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


def _whole(answer: Any) -> Any:
    return answer


def _call(
    method: str,
    path: str,
    read: Callable[[Any], T] = _whole,
    body: Any = None,
    headers: Mapping[str, str] = {},
) -> Call[T]:
    """A call with a body of MessagePack; read: the answer, from the decoded response."""
    sent = None if body is None else encode(body)
    return Call(method, path, lambda data: read(msgspec.msgpack.decode(data)), sent, headers)


def _given(**fields: Any) -> dict[str, Any]:
    """A body without the fields that are None."""
    return {name: value for name, value in fields.items() if value is not None}


def _listed(values: Iterable[Any] | None) -> list[Any] | None:
    return None if values is None else list(values)


def _path(model: str, *parts: str) -> str:
    return "/".join(("/v1/models", *(quote(part, safe="") for part in (model, *parts))))


# --- decisions ----------------------------------------------------------------------------------


def decide(
    model: str,
    *,
    user: Any = None,
    arms: Any = None,
    context: Mapping[str, Any] | None = None,
    candidates: Iterable[str | int] | None = None,
    blocked: Iterable[str | int] | None = None,
    pinned: Mapping[int, str] | None = None,
    explain: bool = False,
    request_id: str | None = None,
    packed: bool = False,
) -> Call[Decided]:
    """A decision: user and arms are features, as lists or arrays. Arms may be a mapping from their
    names; their features, and those of the context, dictionaries that the service encodes.

    packed: send numbers as raw float32, which is shorter, and rounds them to 7 digits
    """
    shape = None
    if isinstance(arms, Mapping):
        one = _packed_row if packed else _features
        arms = {name: one(row) for name, row in arms.items()}
    elif arms is not None:
        whole = hasattr(arms, "astype")
        rows = [] if whole and packed else [_features(row) for row in arms]
        if packed and not any(isinstance(row, dict) for row in rows):
            shape = arms.shape if whole else (len(rows), len(rows[0]) if rows else 0)
            arms = _floats(arms) if whole else b"".join(map(_floats, rows))
        else:
            arms = rows
    body = _given(
        request_id=request_id or uuid.uuid4().hex,
        user=user if user is None else _floats(user) if packed else _row(user),
        context=context if context is None else _named(context),
        arms=arms,
        shape=shape,
        candidates=_listed(candidates),
        blocked=_listed(blocked),
        pinned={str(slot): key for slot, key in pinned.items()} if pinned else None,
        explain=explain or None,
    )
    return _call("POST", _path(model, "decide"), lambda answer: _decided(model, answer), body)


def decide_many(model: str, requests: Iterable[Mapping[str, Any]]) -> Call[list[Decided]]:
    """Decisions for several questions, with the keywords of `decide`: all or none."""
    body = {"requests": [msgspec.Raw(decide(model, **one).body or b"") for one in requests]}
    path = _path(model, "decide_many")
    return _call("POST", path, lambda answers: [_decided(model, one) for one in answers], body)


def feedback(
    decision: Decided,
    rewards: Mapping[str, Any] | None = None,
    *,
    exposed: Iterable[str] | None = None,
    clicked: Iterable[str] | None = None,
    final: bool = False,
) -> Call[str]:
    """The outcome of a decision, or a part of it: joined, known, late, unknown or conflict."""
    body = [entry(decision, rewards, exposed, clicked, final)]
    return _call(
        "POST", _path(decision.model, "feedback"), lambda answer: outcomes(answer)[0], body
    )


def feedback_many(model: str, entries: Iterable[Mapping[str, Any]]) -> Call[list[str]]:
    """Several entries at once, each {"id": ..., "rewards": ...} as on the wire."""
    return _call("POST", _path(model, "feedback"), outcomes, [dict(one) for one in entries])


def feedback_raw(model: str, entries: Iterable[bytes]) -> Call[list[str]]:
    """Several entries that are MessagePack already."""
    return _call("POST", _path(model, "feedback"), outcomes, [msgspec.Raw(one) for one in entries])


def decision(model: str, id: str) -> Call[dict[str, Any]]:
    """What was decided, and what has come for it."""
    return _call("GET", _path(model, "decisions", id))


def entry(
    decision: Decided,
    rewards: Mapping[str, Any] | None,
    exposed: Iterable[str] | None,
    clicked: Iterable[str] | None,
    final: bool,
) -> dict[str, Any]:
    """An entry of feedback as on the wire."""
    return _given(
        id=decision.id,
        rewards=None if rewards is None else dict(rewards),
        exposed=_listed(exposed),
        clicked=_listed(clicked),
        final=final or None,
    )


def outcomes(answer: Any) -> list[str]:
    """The outcomes of entries, from the decoded answer to feedback."""
    return [str(one["outcome"]) for one in answer]


# --- models -------------------------------------------------------------------------------------


def models() -> Call[list[dict[str, Any]]]:
    """Every model, as `model` has it."""
    return _call("GET", "/v1/models", lambda answer: list(answer["models"]))


def model(model: str) -> Call[dict[str, Any]]:
    """Counts, averages and the value of a model."""
    return _call("GET", _path(model))


def live(model: str) -> Call[dict[str, Any]]:
    """How far a model is from the best that can be reached, with a sentence."""
    return _call("GET", _path(model, "live"))


def history(model: str) -> Call[list[dict[str, Any]]]:
    """The same over time, oldest first."""
    return _call("GET", _path(model, "history"), lambda answer: list(answer["points"]))


def exposure(model: str) -> Call[dict[str, Any]]:
    """Who is shown how much in a ranking: Lorenz curve, Gini index, the items at either end."""
    return _call("GET", _path(model, "exposure"))


def constraints(model: str) -> Call[list[dict[str, Any]]]:
    """Hard constraints, each with its slack, its shadow price and a sentence."""
    path = _path(model, "constraints")
    return _call("GET", path, lambda answer: list(answer["constraints"]))


def changes(model: str) -> Call[list[dict[str, Any]]]:
    """Every change of f, newest first: who, when, from and to what."""
    return _call("GET", _path(model, "changes"), lambda answer: list(answer["changes"]))


def items(model: str) -> Call[dict[str, list[float]]]:
    """The items that can be shown, key -> features."""

    def read(answer: Any) -> dict[str, list[float]]:
        return {item["key"]: item["features"] for item in answer["items"]}

    return _call("GET", _path(model, "items"), read)


def attributes(model: str) -> Call[dict[str, dict[str, str]]]:
    """The attributes of the items that can be shown, key -> text by name."""

    def read(answer: Any) -> dict[str, dict[str, str]]:
        return {item["key"]: item["attributes"] for item in answer["items"]}

    return _call("GET", _path(model, "items"), read)


def add_items(model: str, items: Mapping[str, Any], objective: str | None = None) -> Call[int]:
    """New items of a ranking, key -> features, numbers or a dictionary; how many there are now.

    An item with attributes is an `fw.Item`, or a mapping with the names features and attributes.
    """
    listed = [{"key": key, **_item(given)} for key, given in items.items()]
    body = _given(items=listed, objective=objective)
    return _call("POST", _path(model, "items"), _count, body)


def retire(model: str, key: str) -> Call[int]:
    """An item is not shown any more; how many are left."""
    return _call("DELETE", _path(model, "items", key), _count)


def objective(model: str) -> Call[dict[str, Any]]:
    """What is maximised, as text, and its version."""
    return _call("GET", _path(model, "objective"))


def replace_objective(model: str, objective: str, version: int | None = None) -> Call[int]:
    """Maximise another f; version: the one that it replaces, Conflict if it has changed; None
    replaces any version.
    """
    headers = {"If-Match": "*" if version is None else f'"{version}"'}
    body = {"objective": objective}
    path = _path(model, "objective")
    return _call("PUT", path, lambda answer: int(answer["version"]), body, headers)


def _count(answer: Any) -> int:
    return int(answer["items"])


# --- the service --------------------------------------------------------------------------------


def snapshot() -> Call[int]:
    """Write a snapshot now; the number of the last row of the log that is in it."""
    return _call("POST", "/v1/admin/snapshot", lambda answer: int(answer["seq"]))


def healthz() -> Call[dict[str, Any]]:
    """Whether the process answers."""
    return _call("GET", "/healthz")


def readyz() -> Call[dict[str, Any]]:
    """Waits until the service can decide and write, at most until the deadline."""
    return _call("GET", "/readyz")


def metrics() -> Call[str]:
    """The metrics, as Prometheus reads them."""
    return Call("GET", "/metrics", lambda body: body.decode())


# --- features -----------------------------------------------------------------------------------


_ITEM = {"features", "attributes"}


def _item(given: Any) -> dict[str, Any]:
    """Features alone, or with attributes."""
    if isinstance(given, Mapping) and "features" in given and given.keys() <= _ITEM:
        return {**given, "features": _features(given["features"])}
    features, attributes = getattr(given, "features", given), getattr(given, "attributes", None)
    return _given(features=_features(features), attributes=attributes)


def _row(row: Any) -> list[Any]:
    """Numbers as a list, also of an array."""
    listed = row.tolist() if hasattr(row, "tolist") else list(row)
    if not isinstance(listed, list):
        raise InvalidInput(f"features are {row!r:.80}; give a list of numbers")
    return listed


def _named(context: Any) -> dict[str, Any]:
    """A dictionary of features by name."""
    if not isinstance(context, Mapping):
        raise InvalidInput(f"the context is {context!r:.80}; give a dictionary, names to values")
    return dict(context)


def _features(row: Any) -> Any:
    """A dictionary as it is, numbers as a list."""
    return dict(row) if isinstance(row, Mapping) else _row(row)


def _packed_row(row: Any) -> Any:
    """A dictionary as it is, numbers as raw float32."""
    return dict(row) if isinstance(row, Mapping) else _floats(row)


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
        answer.get("name"),
        answer.get("stages"),
    )
