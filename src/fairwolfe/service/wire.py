"""Requests and answers as JSON or MessagePack, and one body for every error."""

from __future__ import annotations

import hashlib
import math
import re
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeVar

import msgspec
import numpy as np

from fairwolfe.core.catalogue import sizes
from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.json_rows import rows_of
from fairwolfe.objectives import Concave
from fairwolfe.service.core import Answer, Ask, Found, check
from fairwolfe.service.entries import Entry
from fairwolfe.service.model import Model, read_objective
from fairwolfe.service.refusal import Refused, invalid

__all__ = [
    "JSON",
    "MSGPACK",
    "Bounds",
    "Change",
    "Decide",
    "DecideMany",
    "Decided",
    "Error",
    "Feedback",
    "Items",
    "ask_of",
    "decided",
    "decode",
    "encode",
    "entry_of",
    "found",
    "objective_of",
]

JSON, MSGPACK = "application/json", "application/msgpack"
_LONGEST_ID = 64
_MOST_REQUESTS = 256
_MOST_ENTRIES = 1000
_SHORT = 1024  # bytes of a body
_LONGEST_OBJECTIVE, _MOST_PARTS = 4096, 64
_ITEM_CHARACTERS = 32  # more for each item, since labels and merits are listed by item
_LONG_ECHO = re.compile(r"([`'])(.{80}).+\1", re.DOTALL)  # of the client's text in an error

T = TypeVar("T")
Key = str
Row = list[float]


class Decide(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A question: the features of the user, of the arms, or both."""

    user: Row | None = None
    arms: list[Row] | None = None
    candidates: list[Key | int] | None = None
    blocked: list[Key | int] | None = None
    pinned: dict[str, Key] | None = None
    explain: bool = False
    request_id: str | None = None


class PackedDecide(Decide):
    """In MessagePack features may be raw little-endian float32; `shape` is that of the arms."""

    user: Row | bytes | None = None  # type: ignore[assignment]
    arms: list[Row] | bytes | None = None  # type: ignore[assignment]
    shape: tuple[int, int] | None = None


class RawDecide(Decide):
    """In JSON arms that are rows of plain numbers become an array at once."""

    arms: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


class DecideMany(msgspec.Struct, forbid_unknown_fields=True):
    """Several questions; each decision is open for the next."""

    requests: list[Decide]


class PackedDecideMany(DecideMany):
    """The same in MessagePack."""

    requests: list[PackedDecide]  # type: ignore[assignment]


class Feedback(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """What came of a decision, or a part of it."""

    id: str
    exposed: list[Key] | None = None
    clicked: list[Key] | None = None
    rewards: dict[str, float | dict[Key, float | None] | None] | None = None
    final: bool = False


class Item(msgspec.Struct, forbid_unknown_fields=True):
    """An item that can be shown."""

    key: Key
    features: Row


class Items(msgspec.Struct, forbid_unknown_fields=True):
    """New items, and another objective where the current one does not fit them."""

    items: list[Item]
    objective: str = ""


class Change(msgspec.Struct, forbid_unknown_fields=True):
    """Another objective, as its text."""

    objective: str


class Decided(msgspec.Struct, omit_defaults=True):
    """A decision: an arm, or the keys of items, best slot first."""

    id: str
    closes_in: float
    probability: float | None
    arm: int | None = None
    items: list[Key] | None = None
    explanation: list[dict[str, Any]] | None = None


class Told(msgspec.Struct):
    """What became of an entry of feedback."""

    id: str
    outcome: str


class Error(msgspec.Struct):
    """Why a request was rejected; nothing was changed."""

    error: str
    message: str
    field: str | None = None


# --- bytes -------------------------------------------------------------------------------------


class _Questions:
    """A decoder of questions in JSON: for many arms lists of floats would take twice as long."""

    def __init__(self) -> None:
        self._raw = msgspec.json.Decoder(RawDecide)
        self._whole = msgspec.json.Decoder(Decide)

    def decode(self, body: bytes) -> Decide:
        """A question; where it is short, or a kernel cannot read its arms, as other requests."""
        if len(body) < _SHORT:
            return self._whole.decode(body)
        try:
            question: Any = self._raw.decode(body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return self._whole.decode(body)  # says what is wrong
        text = bytes(question.arms)
        question.arms = rows_of(text) if text else None
        if text and question.arms is None:
            return self._whole.decode(body)
        return question  # type: ignore[no-any-return]


_PACKED: dict[Any, Any] = {Decide: PackedDecide, DecideMany: PackedDecideMany}


@lru_cache(maxsize=64)
def _decoder(content_type: str, kind: Any) -> Any:
    form = content_type.partition(";")[0].strip().lower()
    if form == JSON:
        return _Questions() if kind is Decide else msgspec.json.Decoder(kind)
    if form == MSGPACK:
        return msgspec.msgpack.Decoder(_PACKED.get(kind, kind))
    raise Refused(
        415,
        "unsupported_type",
        f"the content type is {form!r:.80}; send {JSON} or {MSGPACK}",
        "content-type",
    )


def decode(body: bytes, content_type: str, kind: Any) -> Any:
    """A request; Refused where it is not one, with the field."""
    decoder = _decoder(content_type, kind)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        what = _LONG_ECHO.sub(r"\1\2...\1", what)
        field = where.rstrip("`").removeprefix("$").removeprefix(".").replace("[...]", "") or None
        unknown = re.search(r"unknown field `(.*)`", what, re.DOTALL)
        if unknown:
            field = ".".join(filter(None, (field, unknown[1])))
        raise Refused(422, "invalid", f"{field or 'the body'}: {what}", field) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(422, "malformed", f"the body cannot be read: {error}") from error
    except RecursionError as error:
        raise Refused(422, "malformed", "the body is nested too deeply") from error


def encode(value: Any, accept: str) -> tuple[bytes, str]:
    """An answer, and its content type: MessagePack where that alone is accepted."""
    if accept and accept.partition(";")[0].strip().lower() == MSGPACK:
        return msgspec.msgpack.encode(value), MSGPACK
    return msgspec.json.encode(value), JSON


def refused(error: Exception) -> Refused:
    """What an error is for a client: itself, or one that should not have happened."""
    if isinstance(error, Refused):
        return error
    return Refused(500, "internal", "this is a defect of the server; its log has the details")


def refusal(refused: Refused, accept: str) -> tuple[int, dict[str, str], bytes, str]:
    """Status, headers, body and content type of a rejection."""
    status, error, message, field, retry_after = refused.parts
    body, kind = encode(Error(error, message, field), accept)
    headers = {}
    if retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(retry_after)))
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status == 408:  # what would come next is the rest of this request
        headers["connection"] = "close"
    return status, headers, body, kind


# --- questions ---------------------------------------------------------------------------------


class Bounds(NamedTuple):
    """How large a request may be: bytes, arms or candidates, numbers in the features."""

    body: int = 1 << 20
    candidates: int = 10_000
    dimensions: int = 1_000_000


_USUAL = Bounds()


def ask_of(request: Decide, model: Model, bounds: Bounds = _USUAL) -> Ask:
    """A question, as the core takes it; what its features mean the agent will say."""
    id = request.request_id
    if id is not None and not 0 < len(id) <= _LONGEST_ID:
        raise Refused(
            422,
            "invalid",
            f"request_id has {len(id)} characters; give 1 to {_LONGEST_ID}",
            "request_id",
        )
    context, field = _context(request, model, bounds)
    options: dict[str, Any] = {}
    if request.candidates is not None:
        options["candidates"] = _listed("candidates", request.candidates, model, bounds)
    if request.blocked is not None:
        options["blocked"] = _listed("blocked", request.blocked, model, bounds)
    if request.pinned:
        options["pinned"] = {_slot(slot): key for slot, key in request.pinned.items()}
    digest = b""
    if id is not None:
        arms = request.arms.tolist() if isinstance(request.arms, np.ndarray) else request.arms
        whole = (request.user, arms, getattr(request, "shape", None), options)
        packed = msgspec.msgpack.encode(whole)
        digest = hashlib.blake2b(packed, digest_size=16).digest()
    ask = Ask(context, options, request.explain, id, digest, field)
    if model.agent is not None and (options or not _fits(context, model)):
        check(model, ask)  # here, so that it cannot hold up those that are decided with it
    return ask


def _fits(context: Any, model: Model) -> bool:
    """Whether the features are an array of the right width."""
    width = sizes(model.problem)[0] if model.ranks else model.problem.n_features
    return isinstance(context, np.ndarray) and context.shape[-1] == width


def _listed(name: str, given: list[Any], model: Model, bounds: Bounds) -> list[Any]:
    """Arms or items that a question names."""
    if len(given) > bounds.candidates:
        raise _too_many(name, len(given), bounds.candidates)
    for one in given:
        if isinstance(one, str) != model.ranks:
            what = "keys of items" if model.ranks else "numbers of arms"
            raise Refused(422, "invalid", f"{name} holds {one!r:.80}; give {what}", name)
    return given


def asks_of(request: DecideMany, model: Model, bounds: Bounds = _USUAL) -> list[Ask]:
    """Several questions."""
    if not 0 < len(request.requests) <= _MOST_REQUESTS:
        raise Refused(
            422,
            "invalid",
            f"there are {len(request.requests)} requests; give 1 to {_MOST_REQUESTS}",
            "requests",
        )
    asks = []
    for i, one in enumerate(request.requests):
        try:
            asks.append(ask_of(one, model, bounds))
        except Refused as refused:
            raise refused.within(f"requests[{i}]") from refused
    return asks


def _slot(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise Refused(422, "invalid", f"pinned has the slot {text!r:.80}; give 0, 1, ...", "pinned")
    return int(text)


def _too_many(name: str, count: int, most: int) -> Refused:
    return Refused(
        422, "too_many", f"{name} has {count:,} entries; at most {most:,} are accepted", name
    )


def _context(request: Decide, model: Model, bounds: Bounds) -> tuple[Any, str]:
    """The context, and the field that holds it."""
    wants_user, wants_arms = model.wants
    if (request.user is None) == wants_user or (request.arms is None) == wants_arms:
        for name, wanted in (("user", wants_user), ("arms", wants_arms)):
            given = getattr(request, name)
            if wanted and given is None:
                raise Refused(422, "invalid", f"{name} is missing; give its features", name)
            if not wanted and given is not None:
                raise Refused(422, "invalid", f"{name} is not for this model; leave it out", name)
    user = None if request.user is None else _numbers("user", request.user, bounds)
    if not wants_arms:
        return (user if model.ranks else PerArm(user)), "user"
    arms = _matrix(request, bounds)
    return (Bilinear(user, arms) if wants_user else arms), "arms"


def _numbers(name: str, given: Any, bounds: Bounds) -> Any:
    size = len(given) // 4 if isinstance(given, bytes) else len(given)
    if size > bounds.dimensions:
        raise _too_many(name, size, bounds.dimensions)
    if isinstance(given, bytes):
        if len(given) % 4:
            raise Refused(422, "invalid", f"{name} has {len(given)} bytes; give float32", name)
        return np.frombuffer(given, dtype="<f4").astype(np.float64)
    return np.fromiter(given, np.float64, size)


def _matrix(request: Decide, bounds: Bounds) -> Any:
    given: Any = request.arms
    if isinstance(given, np.ndarray):
        if given.size > bounds.dimensions:
            raise _too_many("arms", given.size, bounds.dimensions)
        matrix = given
    elif isinstance(given, bytes):
        shape = getattr(request, "shape", None)
        numbers = _numbers("arms", given, bounds)
        if shape is None or min(shape) < 0 or math.prod(shape) != numbers.size:
            raise Refused(
                422, "invalid", f"arms has {numbers.size} numbers and shape is {shape}", "shape"
            )
        matrix = numbers.reshape(shape)
    else:
        widths = set(map(len, given))
        if len(widths) > 1:
            raise Refused(422, "invalid", "arms has rows of different lengths", "arms")
        size = sum(widths) * len(given)
        if size > bounds.dimensions:
            raise _too_many("arms", size, bounds.dimensions)
        flat = np.fromiter(chain.from_iterable(given), np.float64, size)
        matrix = flat.reshape(len(given), sum(widths))
    if len(matrix) > bounds.candidates:
        raise _too_many("arms", len(matrix), bounds.candidates)
    if not matrix.size:
        raise Refused(422, "invalid", "arms is empty; give a row of features for each arm", "arms")
    return matrix


def entry_of(one: Feedback) -> Entry:
    """An entry, as the core takes it."""
    return Entry(one.id, one.exposed, one.clicked, one.rewards, one.final)


def entries_of(given: Feedback | list[Feedback]) -> list[Entry]:
    """One entry or several."""
    entries = given if isinstance(given, list) else [given]
    if not 0 < len(entries) <= _MOST_ENTRIES:
        raise Refused(
            422, "invalid", f"there are {len(entries)} entries; give 1 to {_MOST_ENTRIES}"
        )
    return [entry_of(one) for one in entries]


def objective_of(text: str, model: Model, field: str = "objective", new_items: int = 0) -> Concave:
    """An objective that a client sends; Refused where it is too long to be built in a moment."""
    known = (model.agent and model.agent.names) or model.early
    most = _LONGEST_OBJECTIVE + _ITEM_CHARACTERS * (len(known) + new_items)
    if len(text) > most:
        raise Refused(
            422, "invalid", f"{field} has {len(text):,} characters; give at most {most:,}", field
        )
    try:
        objective = read_objective(text, _MOST_PARTS)
    except InvalidInput as error:
        raise invalid(error, field) from error
    if objective is None:
        raise Refused(422, "invalid", f"{field} is empty; give one such as Minimum()", field)
    return objective


# --- answers -----------------------------------------------------------------------------------


def decided(model: Model, answer: Answer, window: float) -> Decided:
    """A decision, as it is answered; `closes_in` is what is left of its window."""
    number, action, probability, explanation, age = answer
    id, left = model.id(number), max(window - age, 0.0)
    if model.ranks:
        return Decided(id, left, probability, None, model.keys_of(action), explanation)
    return Decided(id, left, probability, action, None, explanation)


def found(model: Model, one: Found) -> dict[str, Any]:
    """A decision by its id, with what has come for it."""
    view: dict[str, Any] = {"id": model.id(one.number), "state": one.state}
    joined = one.joined
    if not model.ranks:
        view["arm"] = one.decision.action
        view["rewards"] = {
            name: float(joined.values[0, r])
            for r, name in enumerate(model.rewards)
            if joined.given[0, r]
        }
    else:
        keys = model.keys_of(one.decision.action)
        view["items"] = keys
        view["exposed"] = [key for key, yes in zip(keys, joined.exposed, strict=True) if yes]
        view["rewards"] = {
            name: {
                key: float(joined.values[slot, r])
                for slot, key in enumerate(keys)
                if joined.given[slot, r]
            }
            for r, name in enumerate(model.rewards)
        }
    return view | {"probability": one.decision.probability}
