"""Requests and replies: their JSON or MessagePack form, what is accepted in them, and errors.

`decode` reads a body, `decision_request` and `feedback_cells` check it against its model, `encode`
writes a reply. `Refused` is every error that a client gets.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import chain
from typing import Annotated, Any, NamedTuple

import msgspec
import numpy as np

from fairwolfe.agent.names import ArmNames, named_values
from fairwolfe.core.candidates import sizes
from fairwolfe.core.contexts import Bilinear, PerArm
from fairwolfe.core.decision import Decision
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.kernels.json_rows import rows_of
from fairwolfe.objectives import Concave
from fairwolfe.service.join import Cells, Joined, Told
from fairwolfe.service.model import Model, read_objective
from fairwolfe.service.store import StoreFailed

JSON, MSGPACK = "application/json", "application/msgpack"
_LONGEST_ID = 64
_MOST_REQUESTS = 256
_MOST_ENTRIES = 1000
_SHORT = 1024  # bytes of a body
_LONGEST_OBJECTIVE, _MOST_PARTS = 4096, 64
_ITEM_CHARACTERS = 32  # more for each item, since labels and merits are listed by item
_ROUNDING = 1e-9  # of a range
_LONG_NAME = re.compile(r"'([^']{80})[^']+'")
_LONG_ECHO = re.compile(r"([`'])(.{80}).+\1", re.DOTALL)  # of the client's text in an error
_NO_REWARD = re.compile(r"Expected `float \| object \| null`, got `(\w+)`")
_NEEDED = "a reward is {}; give a number, such as 1, or leave the reward out"
_TYPES = {"str": "a text", "bool": "true or false", "array": "a list"}

Key = str
Row = list[float]
Value = Annotated[
    Any,
    msgspec.Meta(
        description="a number, a text, true or false, a list of texts, or null: not known",
        extra_json_schema={
            "type": ["number", "string", "boolean", "array", "null"],
            "items": {"type": "string"},
        },
    ),
]
Named = dict[str, Value]
"""Features by name, which the encoder of the model makes numbers of; it says what is wrong."""


class Decide(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """A context: the features of the user, of the arms, or both. Arms are a list, or a mapping from
    their names; features are numbers in a row or, where the model has an encoder, by name, and
    `context` is those that all arms or items share.
    """

    user: Row | None = None
    context: Named | None = None
    arms: list[Row | Named] | dict[str, Row | Named] | None = None
    candidates: list[Key | int] | None = None
    blocked: list[Key | int] | None = None
    pinned: dict[str, Key] | None = None
    explain: bool = False
    request_id: str | None = None


class PackedDecide(Decide):
    """In MessagePack features may be raw little-endian float32; `shape` is that of the arms."""

    user: Row | bytes | None = None  # type: ignore[assignment]
    arms: list[Row | Named] | dict[str, Row | Named | bytes] | bytes | None = None  # type: ignore[assignment]
    shape: tuple[int, int] | None = None


class RawDecide(Decide):
    """In JSON arms that are rows of plain numbers become an array at once."""

    arms: msgspec.Raw = msgspec.Raw()  # type: ignore[assignment]


class DecideMany(msgspec.Struct, forbid_unknown_fields=True):
    """Several contexts; each decision is open for the next."""

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
    """An item that can be shown; attributes: texts by name, by which an objective makes groups."""

    key: Key
    features: Row | Named
    attributes: dict[str, str] = {}


class AddItems(msgspec.Struct, forbid_unknown_fields=True):
    """New items, and another objective where the current one does not fit them."""

    items: list[Item]
    objective: str = ""


class ReplaceObjective(msgspec.Struct, forbid_unknown_fields=True):
    """Another objective, as its text."""

    objective: str


class DecideReply(msgspec.Struct, omit_defaults=True):
    """A decision: an arm and its name, if it has one, or the keys of items, best slot first.

    closes_in: of the last stage; stages: of each, where rewards arrive in several
    """

    id: str
    closes_in: float
    probability: float | None
    arm: int | None = None
    name: str | None = None
    items: list[Key] | None = None
    explanation: list[dict[str, Any]] | None = None
    stages: list[StageReply] | None = None


class StageReply(msgspec.Struct):
    """Rewards that arrive together, and the seconds in which they are still waited for."""

    rewards: tuple[str, ...]
    closes_in: float


class FeedbackReply(msgspec.Struct, omit_defaults=True):
    """What became of an entry of feedback; late, known, conflict: the rewards of which that is
    true, where the stages of an entry differ.
    """

    id: str
    outcome: str
    late: list[str] | None = None
    known: list[str] | None = None
    conflict: list[str] | None = None


class Error(msgspec.Struct):
    """Why a request was rejected; nothing was changed."""

    error: str
    message: str
    field: str | None = None


# --- bytes -------------------------------------------------------------------------------------


class _DecideDecoder:
    """A decoder of decide in JSON: for many arms lists of floats would take twice as long."""

    def __init__(self) -> None:
        self._raw = msgspec.json.Decoder(RawDecide)
        self._whole = msgspec.json.Decoder(Decide)

    def decode(self, body: bytes) -> Decide:
        """A request; where it is short, or a kernel cannot read its arms, as other requests."""
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
        return _DecideDecoder() if kind is Decide else msgspec.json.Decoder(kind)
    if form == MSGPACK:
        return msgspec.msgpack.Decoder(_PACKED.get(kind, kind))
    text = f"the content type is {form!r:.80}; send {JSON} or {MSGPACK}"
    raise Refused(415, "unsupported_type", text, "content-type")


def decode(body: bytes, content_type: str, kind: Any) -> Any:
    """A request; Refused where it is not one, with the field."""
    decoder = _decoder(content_type, kind)
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        what, _, where = str(error).partition(" - at `")
        what = _LONG_ECHO.sub(r"\1\2...\1", what)
        what = _NO_REWARD.sub(lambda found: _NEEDED.format(_TYPES.get(found[1], found[1])), what)
        field = where.rstrip("`").removeprefix("$").removeprefix(".").replace("[...]", "") or None
        unknown = re.search(r"unknown field `(.*)`", what, re.DOTALL)
        if unknown:
            field = ".".join(filter(None, (field, unknown[1])))
        raise invalid(f"{field or 'the body'}: {what}", field) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused(422, "malformed", f"the body cannot be read: {error}") from error
    except RecursionError as error:
        raise Refused(422, "malformed", "the body is nested too deeply") from error


def encode(value: Any, accept: str) -> tuple[bytes, str]:
    """An answer, and its content type: MessagePack where that alone is accepted."""
    if accept and accept.partition(";")[0].strip().lower() == MSGPACK:
        return msgspec.msgpack.encode(value), MSGPACK
    return msgspec.json.encode(value), JSON


# --- errors ------------------------------------------------------------------------------------


class Refused(Exception):
    """A request that is answered with an error; nothing was changed.

    retry_after: seconds after which it may be tried again, where that helps; headers: of the
    reply, besides those that follow from the status.
    """

    def __init__(
        self,
        status: int,
        error: str,
        message: str,
        field: str | None = None,
        retry_after: float | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.error, self.message = status, error, message
        self.field, self.retry_after, self.headers = field, retry_after, headers or {}

    def within(self, path: str) -> Refused:
        """The same error, of a field below a path."""
        field = path if not self.field else f"{path}.{self.field}"
        return Refused(self.status, self.error, self.message, field, self.retry_after)


def invalid(message: str, field: str | None = None) -> Refused:
    """Status 422: a value that cannot be accepted."""
    return Refused(422, "invalid", message, field)


def invalid_input(error: FairwolfeError, field: str | None = None) -> Refused:
    """Status 422 for an error of the library: names are cut at 80 characters."""
    return invalid(_LONG_NAME.sub(r"'\1...'", str(error)).removeprefix("context 0: "), field)


def too_large(most: int) -> Refused:
    """A body that is not read to its end."""
    return Refused(413, "too_large", f"the body is larger than {most:,} bytes; send less at once")


def model_stopped(model: Model) -> Refused:
    """The model decides and learns nothing more."""
    return Refused(503, "model_stopped", model.stopped, retry_after=60.0)


def not_leading(why: str) -> Refused:
    """Another process writes the log: ask that one."""
    return Refused(503, "not_leading", f"{why}; ask the other addresses", retry_after=1.0)


def as_refused(error: Exception) -> Refused:
    """What an error is for a client: itself, or one that should not have happened."""
    if isinstance(error, Refused):
        return error
    if isinstance(error, StoreFailed):
        return Refused(503, "log_unreadable", str(error), retry_after=1.0)
    return Refused(500, "internal", "this is a defect of the server; its log has the details")


def error_reply(refused: Refused, accept: str) -> tuple[bytes, str, int, dict[str, str]]:
    """Body, content type, status and headers of an error."""
    body, media = encode(Error(refused.error, refused.message, refused.field), accept)
    headers = dict(refused.headers)
    if refused.retry_after is not None:
        headers["retry-after"] = str(max(1, math.ceil(refused.retry_after)))
    if refused.status == 401:
        headers["www-authenticate"] = "Bearer"
    if refused.status == 408:  # what would come next is the rest of this request
        headers["connection"] = "close"
    return body, media, refused.status, headers


# --- decide ------------------------------------------------------------------------------------


class RequestLimits(NamedTuple):
    """How large a request may be: bytes, arms or candidates, numbers in the features, values of
    dictionaries with their products.
    """

    body: int = 1 << 20
    candidates: int = 10_000
    dimensions: int = 1_000_000
    values: int = 50_000


_USUAL = RequestLimits()


class DecisionRequest(NamedTuple):
    """A decision that is asked for, checked."""

    context: Any
    options: dict[str, Any]
    explain: bool
    request_id: str | None
    digest: bytes  # hash of all but the request_id
    field: str  # that holds the context


class IssuedDecision(NamedTuple):
    """A decision, as the core replies with it."""

    number: int
    action: Any  # an arm, or the numbers of items
    probability: float | None
    explanation: list[dict[str, Any]] | None = None
    age: float = 0.0  # seconds since it was made, where it is answered again
    name: str | None = None  # of the arm


class StoredDecision(NamedTuple):
    """A decision by its id: its state in each stage, and the feedback for it."""

    number: int
    decision: Decision
    states: list[str]
    joined: Joined
    name: str | None = None  # of the arm

    @property
    def state(self) -> str:
        """Of the whole decision: open while any stage is, joined where anything came."""
        return min(self.states, key=("open", "joined", "expired").index)


def decision_request(
    request: Decide, model: Model, limits: RequestLimits = _USUAL
) -> DecisionRequest:
    """A request, checked against its model."""
    id = request.request_id
    if id is not None and not 0 < len(id) <= _LONGEST_ID:
        text = f"request_id has {len(id)} characters; give 1 to {_LONGEST_ID}"
        raise invalid(text, "request_id")
    context, field, names = _context(request, model, limits)
    options: dict[str, Any] = {}
    for name in ("candidates", "blocked"):
        given = getattr(request, name)
        if given is not None:
            options[name] = _listed(name, given, model, limits, names)
    if request.pinned:
        options["pinned"] = {_slot(slot): key for slot, key in request.pinned.items()}
    digest = b"" if id is None else _digest(request, options, names)
    checked = DecisionRequest(context, options, request.explain, id, digest, field)
    if model.agent is not None and (options or not _fits(context, model)):
        check(model, checked)  # here, so that it cannot hold up those that are decided with it
    if names is not None and model.arm_names is None:
        options["names"] = names.all
    return checked


def _digest(request: Decide, options: dict[str, Any], names: ArmNames | None) -> bytes:
    """A hash of what is asked: the same for names in another order, where that changes nothing."""
    arms: Any = request.arms
    if isinstance(arms, np.ndarray):
        arms = arms.tolist()
    whole: tuple[Any, ...] = (request.user, arms, getattr(request, "shape", None), options)
    if type(arms) is dict and names is not None:
        whole = (request.user, [names.all, [arms[name] for name in names.all]], options)
    if type(arms) is dict or request.context is not None or (arms and type(arms[0]) is dict):
        text = msgspec.json.encode((request.context, whole), order="deterministic")
    else:
        text = msgspec.msgpack.encode(whole)
    return hashlib.blake2b(text, digest_size=16).digest()


def check(model: Model, request: DecisionRequest) -> None:
    """Refused, with the field, where the context or the options of a request are wrong."""
    try:
        model.check(request.context, request.options)
    except InvalidInput as error:
        raise invalid_input(error, _invalid_field(model, request)) from error


def _invalid_field(model: Model, request: DecisionRequest) -> str:
    """The field that is wrong: the option without which the rest is right, or the context."""
    for name in request.options:
        if name == "names":
            continue
        others = {key: value for key, value in request.options.items() if key != name}
        with suppress(InvalidInput):
            model.check(request.context, others)
            return name
    return request.field


def _fits(context: Any, model: Model) -> bool:
    """Whether the features are an array of the right width."""
    width = sizes(model.problem)[0] if model.ranks else model.problem.n_features
    return isinstance(context, np.ndarray) and context.shape[-1] == width


def _listed(
    name: str,
    given: list[Any],
    model: Model,
    limits: RequestLimits,
    names: ArmNames | None,
) -> list[Any]:
    """The numbers of the arms, or the keys of the items, that a request names."""
    if len(given) > limits.candidates:
        raise _too_many(name, len(given), limits.candidates)
    for one in given:
        if isinstance(one, str) != model.ranks and (model.ranks or names is None):
            what = "keys of items" if model.ranks else "numbers of arms"
            raise invalid(f"{name} holds {one!r:.80}; give {what}", name)
    if names is None or not any(isinstance(one, str) for one in given):
        return given
    numbers = {called: number for number, called in enumerate(names.all)}
    for one in given:
        if isinstance(one, str) and one not in numbers:
            text = f"which is not an arm; the arms are {names.words}"
            raise invalid(f"{name} holds {one!r:.80}, {text}", name)
    return [numbers[one] if isinstance(one, str) else one for one in given]


def decision_requests(
    request: DecideMany, model: Model, limits: RequestLimits = _USUAL
) -> list[DecisionRequest]:
    """The requests of a decide_many, each checked."""
    if not 0 < len(request.requests) <= _MOST_REQUESTS:
        text = f"there are {len(request.requests)} requests; give 1 to {_MOST_REQUESTS}"
        raise invalid(text, "requests")
    if model.encodes:
        sizes_by_name = [_size_by_name(one, model) for one in request.requests]
        numbers, values = (sum(column) for column in zip(*sizes_by_name, strict=True))
        _check_size("requests", (numbers, values), limits)
    checked = []
    for i, one in enumerate(request.requests):
        try:
            checked.append(decision_request(one, model, limits))
        except Refused as refused:
            raise refused.within(f"requests[{i}]") from refused
    return checked


def _slot(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 6):
        raise invalid(f"pinned has the slot {text!r:.80}; give 0, 1, ...", "pinned")
    return int(text)


def _too_many(name: str, count: int, most: int) -> Refused:
    text = f"{name} has {count:,} entries; at most {most:,} are accepted"
    return Refused(422, "too_many", text, name)


def _context(
    request: Decide, model: Model, limits: RequestLimits
) -> tuple[Any, str, ArmNames | None]:
    """The context, the field that holds it, and the names of its arms, if they have any."""
    wants_user, wants_arms = model.wants
    user: Any = request.user
    arms: Any = request.arms
    names = model.arm_names
    named = type(arms) is dict or (type(arms) is list and dict in set(map(type, arms)))
    if named or request.context is not None:
        user, arms, names = _by_name(request, model, limits)
    if (user is None) == wants_user or (arms is None) == wants_arms:
        for name, given, wanted in (("user", user, wants_user), ("arms", arms, wants_arms)):
            if wanted and given is None:
                also = name == "user" and model.encoders.context is not None
                more = ", or context with its features by name" if also else ""
                raise invalid(f"{name} is missing; give its features{more}", name)
            if not wanted and given is not None:
                raise invalid(f"{name} is not for this model; leave it out", name)
    if user is not None and type(user) is not np.ndarray:
        user = _numbers("user", user, limits)
    if not wants_arms:
        return (user if model.ranks else PerArm(user)), "user", names
    matrix = _matrix(arms, request, limits)
    if names is not None and len(matrix) != len(names.all):
        raise invalid(
            f"arms has {len(matrix)} rows, and the arms of model {model.name!r} are "
            f"{names.words}; give a row for each, in this order, or a mapping by name",
            "arms",
        )
    return (Bilinear(user, matrix) if wants_user else matrix), "arms", names


def _numbers(name: str, given: Any, limits: RequestLimits) -> Any:
    size = len(given) // 4 if isinstance(given, bytes) else len(given)
    if size > limits.dimensions:
        raise _too_many(name, size, limits.dimensions)
    if isinstance(given, bytes):
        if len(given) % 4:
            raise invalid(f"{name} has {len(given)} bytes; give float32", name)
        return np.frombuffer(given, dtype="<f4").astype(np.float64)
    return np.fromiter(given, np.float64, size)


def _matrix(given: Any, request: Decide, limits: RequestLimits) -> Any:
    if isinstance(given, np.ndarray):
        if given.size > limits.dimensions:
            raise _too_many("arms", given.size, limits.dimensions)
        matrix = given
    elif isinstance(given, bytes):
        shape = getattr(request, "shape", None)
        numbers = _numbers("arms", given, limits)
        if shape is None or min(shape) < 0 or math.prod(shape) != numbers.size:
            raise invalid(f"arms has {numbers.size} numbers and shape is {shape}", "shape")
        matrix = numbers.reshape(shape)
    else:
        widths = set(map(len, given))
        if len(widths) > 1:
            raise invalid("arms has rows of different lengths", "arms")
        size = sum(widths) * len(given)
        if size > limits.dimensions:
            raise _too_many("arms", size, limits.dimensions)
        flat = np.fromiter(chain.from_iterable(given), np.float64, size)
        matrix = flat.reshape(len(given), sum(widths))
    if len(matrix) > limits.candidates:
        raise _too_many("arms", len(matrix), limits.candidates)
    if not matrix.size:
        raise invalid("arms is empty; give a row of features for each arm", "arms")
    return matrix


# --- names -------------------------------------------------------------------------------------


def _by_name(
    request: Decide, model: Model, limits: RequestLimits
) -> tuple[Any, Any, ArmNames | None]:
    """The user and the arms of a request in which arms or features have names: numbers in the order
    of the model; and the names of the arms.
    """
    context, names = request.context, model.arm_names
    arms: Any = request.arms
    if isinstance(arms, dict):
        if not model.wants[1]:
            raise invalid("arms is not for this model; leave it out", "arms")
        if len(arms) > limits.candidates:
            raise _too_many("arms", len(arms), limits.candidates)
        try:
            names, arms = named_values(arms, model.arm_names)
        except InvalidInput as error:
            raise invalid_input(error, "arms") from error
    rows = None
    if isinstance(arms, list):
        kinds = set(map(type, arms))
        if len(kinds) > 1:
            raise invalid("arms has features in more than one form; give all in one", "arms")
        if dict in kinds:
            rows = arms
        elif bytes in kinds:
            arms = [_numbers("arms", row, limits) for row in arms]
    if context is None and rows is None:
        return request.user, arms, names
    if context is not None and request.user is not None:
        raise invalid("user and context are the same in two forms; give one of them", "context")
    fields = [f"arms[{i}]" for i in range(len(rows or ()))]
    if isinstance(request.arms, dict) and names is not None:
        fields = [f"arms.{name:.80}" for name in names.all]
    where = "context" if rows is None else "arms"
    user, made = encoded(model, limits, where, context, rows, fields)
    return (request.user if context is None else user), (arms if rows is None else made), names


def encoded(
    model: Model,
    limits: RequestLimits,
    where: str,
    context: dict[str, Any] | None,
    rows: list[dict[str, Any]] | None,
    fields: Sequence[str],
) -> tuple[Any, Any]:
    """Features by name as numbers: the vector of the context, and a row for each dictionary;
    Refused, with the field, where the encoder of the model cannot take them.

    where: the field of the request that holds them, for errors; fields: of each dictionary
    """
    encoders = model.encoders
    alone = context is not None and encoders.context is None  # no vector of its own
    if alone and model.wants[0]:
        where = "context"
    if not model.encodes or (alone and model.wants[0]) or (rows and encoders.rows is None):
        text = f"{where} has features by name, and model {model.name!r} has no encoder for them"
        text = f"{text}; give numbers, or add [models.{model.name}.features] to the configuration"
        raise invalid(text, where)
    if alone and rows is None:
        text = "context goes with arms whose features have names too; leave it out, or name these"
        raise invalid(text, "context")
    if rows is not None and len(rows) > limits.candidates:
        raise _too_many(where, len(rows), limits.candidates)
    crosses = encoders.rows is not None and encoders.rows.crosses
    if crosses and context is None and where == "arms" and encoders.context is None:
        text = f"context is missing; the features of model {model.name!r} have crosses with it"
        raise invalid(text, "context")
    _check_size(where, encoders.size(context, rows or ()), limits)
    try:
        return encoders.encode(context, rows)
    except InvalidInput as error:
        raise _wrong_feature(model, context, rows or [], fields, error) from error


def _wrong_feature(
    model: Model,
    context: dict[str, Any] | None,
    rows: list[dict[str, Any]],
    fields: Sequence[str],
    error: InvalidInput,
) -> Refused:
    """The error of an encoder, with the field that is wrong."""
    encoders = model.encoders
    shared = [] if context is None else [context]
    for encoder, given, names in (
        (encoders.context or encoders.rows, shared, ["context"]),
        (encoders.rows, rows, fields),
    ):
        wrong = None if encoder is None else encoder.wrong(given)
        if wrong is not None:
            i, name, why = wrong
            refused = invalid_input(why, f"{names[i]}.{name:.80}")
            refused.message = f"{names[i]}: {refused.message}"
            return refused
    return invalid_input(error, "arms")


def _check_size(field: str, size: tuple[int, int], limits: RequestLimits) -> None:
    """Refused where features by name would be too many numbers, or take too long to encode."""
    numbers, values = size
    if numbers > limits.dimensions:
        raise _too_many(field, numbers, limits.dimensions)
    if values > limits.values:
        text = f"{field} has {values:,} values with their products; at most {limits.values:,} are"
        raise Refused(422, "too_many", f"{text} accepted", field)


def _size_by_name(request: Decide, model: Model) -> tuple[int, int]:
    """How many numbers the features by name become, and how many values and products they have."""
    arms: Any = request.arms
    listed = arms.values() if isinstance(arms, dict) else arms if isinstance(arms, list) else ()
    rows = [row for row in listed if isinstance(row, dict)]
    return model.encoders.size(request.context, rows)


def item_rows(body: AddItems, model: Model, limits: RequestLimits) -> list[tuple[Key, Row]]:
    """Keys and features of items, where these have names as numbers."""
    named = {i: one.features for i, one in enumerate(body.items) if isinstance(one.features, dict)}
    rows: dict[int, Any] = {}
    if named:
        fields = [f"items[{i}].features" for i in named]
        _, made = encoded(model, limits, "items", None, list(named.values()), fields)
        rows = dict(zip(named, made.tolist(), strict=True))
    return [(one.key, rows.get(i, one.features)) for i, one in enumerate(body.items)]


# --- feedback ----------------------------------------------------------------------------------


def feedback_entries(given: Feedback | list[Feedback]) -> list[Feedback]:
    """One entry or several."""
    entries = given if isinstance(given, list) else [given]
    if not 0 < len(entries) <= _MOST_ENTRIES:
        raise invalid(f"there are {len(entries)} entries; give 1 to {_MOST_ENTRIES}")
    return entries


def feedback_cells(model: Model, number: int, entry: Feedback) -> list[Cells]:
    """What an entry says of each stage of an open decision that it names; Refused if its agent
    cannot learn from it.
    """
    if entry.exposed is None and entry.clicked is None and not entry.rewards:
        raise invalid("the entry is empty; give rewards, exposed or clicked")
    given = {n: earned for n, earned in (entry.rewards or {}).items() if earned is not None}
    if not model.ranks:
        return _arm_cells(model, number, entry, given)
    for name, earned in given.items():
        if not isinstance(earned, dict):
            text = f"the reward {name!r:.80} is {earned!r:.80}; a ranking needs item: number"
            raise invalid(text, "rewards")
    return _ranking_cells(model, number, entry, given)


def _by_stage(
    model: Model, entry: Feedback, exposed: list[int], cells: list[tuple[int, int, float]]
) -> list[Cells]:
    """What an entry says of each stage; exposures are of the first."""
    if len(model.stages) == 1:
        return [Cells(exposed, cells, entry.final)]
    named = {model.stage_of[name] for name in entry.rewards or () if name in model.stage_of}
    if entry.exposed is not None or entry.clicked is not None:
        named.add(0)
    if not named:
        raise invalid(f"the entry names none of the rewards {', '.join(model.rewards)}", "rewards")
    parts = []
    for stage in sorted(named):
        own = [cell for cell in cells if model.stage_of[model.rewards[cell[1]]] == stage]
        parts.append(Cells(() if stage else exposed, own, entry.final, stage))
    return parts


def _arm_cells(model: Model, number: int, entry: Feedback, given: dict[str, Any]) -> list[Cells]:
    names = model.places
    if entry.exposed is not None or entry.clicked is not None:
        field = "exposed" if entry.exposed is not None else "clicked"
        raise invalid(f"{field} is for rankings; give rewards", field)
    if not all(_in_range(model, name, x) for name, x in given.items()):
        given = {name: _within_range(model, name, x) for name, x in given.items()}
        _check_by_agent(model, number, entry, given)
    return _by_stage(model, entry, [], [(0, names[n], float(x)) for n, x in given.items()])


def _ranking_cells(
    model: Model, number: int, entry: Feedback, given: dict[str, Any]
) -> list[Cells]:
    names = model.places
    keys = model.keys_of(model.ring.action(number))
    slots = {key: slot for slot, key in enumerate(keys)}
    clicked = set(entry.clicked or ())
    earning = clicked.union(*({key for key, x in of.items() if x} for of in given.values()))
    exposed = entry.exposed
    if exposed is None:  # what earned something was exposed
        exposed = [key for key in keys if key in earning]
    clicks = "clicks" if "clicks" in names else next(iter(names))
    exposed_keys = set(exposed)
    right = len(exposed_keys) == len(exposed) and earning <= exposed_keys
    right = right and exposed_keys.union(*given.values()) <= slots.keys()
    if entry.clicked is not None:
        right = right and len(clicked) == len(entry.clicked) and clicks not in given
        right = right and ("clicks" in names or len(names) == 1)
    click = _within_range(model, clicks, 1.0) if entry.clicked else 1.0
    pairs = ((name, x) for name, of in given.items() for x in of.values())
    if not (right and all(_in_range(model, name, x) for name, x in pairs)):
        given = {
            name: {key: _within_range(model, name, x, key) for key, x in of.items()}
            for name, of in given.items()
        }
        _check_by_agent(model, number, entry, given, exposed=exposed, clicked=entry.clicked)
    cells = []
    for name, of in given.items():
        cells += [(slots[key], names[name], float(x)) for key, x in of.items() if x is not None]
    if entry.clicked:
        cells += [(slots[key], names[clicks], click) for key in entry.clicked]
    return _by_stage(model, entry, [slots[key] for key in exposed], cells)


def _in_range(model: Model, name: str, earned: Any) -> bool:
    """Whether a reward is known and within its range: then an agent accepts it."""
    low, high = model.ranges.get(name, (1.0, 0.0))
    return isinstance(earned, int | float) and low <= earned <= high


def _within_range(model: Model, name: str, earned: Any, item: str = "") -> Any:
    """A reward by the model's rule for what is outside its range; others as they are."""
    if name not in model.ranges or not isinstance(earned, int | float) or not math.isfinite(earned):
        return earned  # the agent names it
    low, high = model.ranges[name]
    error = _ROUNDING * (high - low)  # a share of a range is rounded
    if low - error <= earned <= high + error or (model.ranks and earned == 0.0):
        return earned
    if model.out_of_range != "refuse":
        return earned if model.out_of_range == "learn" else min(max(earned, low), high)
    whose = f" of item {item!r:.80}" if item else ""
    share = f" for one of {model.n_slots} slots" if model.ranks else ""
    raise Refused(
        422,
        "out_of_range",
        f"the reward {name!r:.80}{whose} is {earned:.15g}, outside its range of {low:.6g} to "
        f'{high:.6g}{share}; send a number within it, or set out_of_range = "clip" or '
        f'"learn" for model {model.name!r}',
        "rewards",
    )


def _check_by_agent(
    model: Model, number: int, entry: Feedback, given: dict[str, Any], **more: Any
) -> None:
    """Have the agent check what is not plainly right."""
    assert model.agent is not None
    try:
        model.agent.read_feedback(model.ring.decision(number), given, missing=0.0, **more)
    except InvalidInput as error:
        raise invalid(str(error), _feedback_field(str(error), entry)) from error


def _feedback_field(text: str, entry: Feedback) -> str:
    for name in ("clicked", "exposed"):
        if f"to be {name}" in text or text.startswith(name):
            return name
    return "rewards" if entry.rewards else "clicked" if entry.clicked else "exposed"


# --- objectives --------------------------------------------------------------------------------


def objective_of(text: str, model: Model, field: str = "objective", new_items: int = 0) -> Concave:
    """An objective that a client sends; Refused where it is too long to be built in a moment."""
    known = (model.agent and model.agent.names) or model.early
    most = _LONGEST_OBJECTIVE + _ITEM_CHARACTERS * (len(known) + new_items)
    if len(text) > most:
        raise invalid(f"{field} has {len(text):,} characters; give at most {most:,}", field)
    try:
        objective = read_objective(text, _MOST_PARTS)
    except InvalidInput as error:
        raise invalid_input(error, field) from error
    if objective is None:
        raise invalid(f"{field} is empty; give one such as Linear({{'clicks': 1.0}})", field)
    return objective


# --- replies -----------------------------------------------------------------------------------


def decide_reply(model: Model, answer: IssuedDecision, windows: Sequence[float]) -> DecideReply:
    """A decision, as it is answered; `closes_in` is what is left of its windows."""
    number, action, probability, explanation, age, _ = answer
    left = [max(window - age, 0.0) for window in windows]
    reply = DecideReply(model.id(number), left[-1], probability, explanation=explanation)
    if model.ranks:
        reply.items = model.keys_of(action)
    else:
        reply.arm, reply.name = action, answer.name
    if len(left) > 1:
        reply.stages = list(map(StageReply, model.stages, left))
    return reply


def feedback_reply(entry: Feedback, told: Told) -> FeedbackReply:
    """What became of an entry."""
    return FeedbackReply(entry.id, told.outcome, **told.rewards)


def decision_view(model: Model, one: StoredDecision) -> dict[str, Any]:
    """A decision by its id, with what has come for it."""
    joined, names = one.joined, model.rewards
    earned: list[dict[int, float]] = [{} for _ in names]
    for slot, r in np.argwhere(joined.given).tolist():
        earned[r][slot] = joined.values.item(slot, r)
    states = one.states
    view: dict[str, Any] = {"id": model.id(one.number), "state": one.state}
    if model.ranks:
        keys = model.keys_of(one.decision.action)
        view["items"] = keys
        view["exposed"] = [key for key, yes in zip(keys, joined.exposed, strict=True) if yes]
        by_key = [{keys[slot]: x for slot, x in cells.items()} for cells in earned]
        view["rewards"] = dict(zip(names, by_key, strict=True))
    else:
        view["arm"] = one.decision.action
        if one.name is not None:
            view["name"] = one.name
        view["rewards"] = {n: x[0] for n, x in zip(names, earned, strict=True) if x}
    if len(states) > 1:
        pairs = zip(model.stages, states, strict=True)
        view["stages"] = [{"rewards": names, "state": state} for names, state in pairs]
    return view | {"probability": one.decision.probability}
