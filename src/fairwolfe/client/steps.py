"""What both clients share, without input or output: replies, retries, and methods as steps.

A method of a client or of a buffer is written once, as a generator of steps. It yields `Send` (one
attempt of a request) and receives a `Reply`; and it yields `Wait` (until a condition holds, or
seconds have passed). `blocking` runs the steps with threads, `asynchronous` with asyncio.
"""

from __future__ import annotations

import functools
import inspect
import random
import re
import time
from collections.abc import Callable, Generator, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    TypeVar,
    overload,
)
from urllib.parse import urlsplit

import msgspec

from fairwolfe import errors
from fairwolfe.client import calls
from fairwolfe.client.calls import TYPE, Call

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from fairwolfe.client.asynchronous import Asynchronous
    from fairwolfe.client.blocking import Blocking

P = ParamSpec("P")
T = TypeVar("T")

_RETRIED = frozenset({0, 408, 429, 500, 502, 503, 504})
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds
_ERRORS: dict[int, type[errors.FairwolfeError]] = {
    401: errors.Denied,
    403: errors.Denied,
    404: errors.NotFound,
    409: errors.Conflict,
    412: errors.Conflict,
}


class Address(NamedTuple):
    """Where a process of the service is: the address as given, and its parts."""

    text: str
    secure: bool
    host: str
    port: int | None
    prefix: str


class Endpoint:
    """The addresses of a service, the headers of every request, and the time limits.

    One address is used until it does not answer, or says that another process leads; then the next.
    """

    def __init__(
        self, address: str | Sequence[str], key: str | None, deadline: float, timeout: float
    ) -> None:
        listed = [address] if isinstance(address, str) else list(address)
        self.addresses = tuple(_address(one) for one in listed)
        if not self.addresses:
            raise errors.InvalidInput("the addresses are an empty list; give one at least")
        if not (deadline > 0.0 and timeout > 0.0):
            raise errors.InvalidInput(
                f"deadline is {deadline!r} and timeout {timeout!r}; give positive seconds"
            )
        self.current = self.addresses[0]
        self.deadline, self.timeout = deadline, timeout
        self.headers = {"content-type": TYPE, "accept": TYPE}
        if key is not None:
            self.headers["authorization"] = f"Bearer {key}"

    @property
    def shown(self) -> str | list[str]:
        """The address, or all of them."""
        every = [one.text for one in self.addresses]
        return every[0] if len(every) == 1 else every

    def hear(self, tried: Address, reply: Reply) -> Reply:
        """Use the next address from now on, where this one is not that of the leader."""
        if reply.elsewhere and tried is self.current:
            place = self.addresses.index(tried) + 1
            self.current = self.addresses[place % len(self.addresses)]
        return reply


def _address(text: str) -> Address:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise errors.InvalidInput(
            f"the address is {text!r:.80}; give one such as http://127.0.0.1:8710"
        )
    secure, prefix = parts.scheme == "https", parts.path.rstrip("/")
    return Address(text.rstrip("/"), secure, parts.hostname, parts.port, prefix)


class Reply(NamedTuple):
    """The answer to one attempt: a status, the header Retry-After, and a body.

    An attempt without an answer has status 0, and its error as body.
    """

    status: int
    retry_after: str | None
    body: bytes

    @classmethod
    def lost(cls, error: BaseException) -> Reply:
        """There was no answer."""
        return cls(0, None, f"{type(error).__name__}: {error}".encode())

    @property
    def after(self) -> float:
        """Seconds that the service asks to wait."""
        text = self.retry_after or ""
        return float(text) if text.isdecimal() else 0.0

    @property
    def elsewhere(self) -> bool:
        """Whether another address of the service may answer."""
        if self.status == 503:
            return self.value("error") == "not_leading"
        return self.status == 0

    @property
    def fine(self) -> bool:
        return 200 <= self.status < 300

    @property
    def retried(self) -> bool:
        """Whether the same request may be answered later."""
        return self.status in _RETRIED

    @property
    def final(self) -> bool:
        """Whether the service itself rejects the content, and not the sender."""
        if self.status == 413:
            return True
        wrong = 400 <= self.status < 500 and not self.retried and self.status not in (401, 403)
        return wrong and self.value("error") not in ("", "not_found", "wrong_method")

    @property
    def message(self) -> str:
        return self.value("message") or repr(self.body[:80])

    @property
    def reason(self) -> str:
        """Why there is no answer that can be used, with the status."""
        return f"{self.status}: {self.message}" if self.status else self.body.decode()

    def value(self, name: str) -> str:
        """A field of an error of the service, or an empty text: error, message, field."""
        try:
            return str(msgspec.msgpack.decode(self.body)[name] or "")
        except (msgspec.DecodeError, KeyError, TypeError, IndexError):
            return ""

    def error(self) -> errors.FairwolfeError:
        """A rejection, as an error of the library."""
        kind = _ERRORS.get(
            self.status, errors.InvalidInput if 400 <= self.status < 500 else errors.Unavailable
        )
        return kind(self.message)


class Backoff:
    """Pauses between attempts: full jitter, up to a length that doubles.

    The jitter is added to Retry-After, so that clients that were rejected together do not come back
    together.
    """

    def __init__(self) -> None:
        self._longest = _FIRST_PAUSE

    def pause(self, reply: Reply) -> float:
        """Seconds to wait after a reply."""
        after = 0.0 if reply.elsewhere else reply.after
        pause = after + random.uniform(0.0, self._longest)
        self._longest = min(2.0 * self._longest, _LONGEST_PAUSE)
        return pause


# --- steps --------------------------------------------------------------------------------------


class Send(NamedTuple):
    """One attempt of a request, with so many seconds left; its value is a `Reply`."""

    call: Call[Any]
    seconds: float


class Wait(NamedTuple):
    """Wait until `ready` is true, at most so many seconds (None: without a limit)."""

    ready: Callable[[], Any]
    seconds: float | None = None


Steps = Generator[Send | Wait, Any, T]


def attempts(call: Call[T], endpoint: Endpoint) -> Steps[T]:
    """Send a call until it is answered, with one deadline; its answer, or an error of the library.

    >>> steps = attempts(calls.model("m"), Endpoint("http://127.0.0.1:8710", None, 30.0, 10.0))
    >>> next(steps).call.path
    '/v1/models/m'
    >>> 1.0 <= steps.send(Reply(429, "1", b"")).seconds <= 1.05
    True
    """
    what = f"{call.method} {endpoint.current.text}{call.path}"
    end = time.monotonic() + endpoint.deadline
    backoff = Backoff()
    while True:
        # A timeout of 0 would mean no limit, or not to wait.
        reply: Reply = yield Send(call, max(end - time.monotonic(), 1e-3))
        if reply.fine:
            try:
                return call.read(reply.body)
            except (msgspec.DecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
                raise errors.Unavailable(
                    f"{what} was answered with {reply.body[:80]!r}, which is not of this service; "
                    "is the address right?"
                ) from error
        if not reply.retried:
            raise reply.error()
        pause = backoff.pause(reply)
        if time.monotonic() + pause >= end:
            raise errors.Unavailable(
                f"{what} was not answered within {endpoint.deadline:g} s (last: {reply.reason}); "
                "what was asked may or may not have happened, and may be asked again"
            )
        yield Wait(lambda: False, pause)


class Method(Generic[P, T]):
    """A method that is written as steps; `run_methods` replaces it by one that runs them."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.steps = steps

    if TYPE_CHECKING:

        @overload
        def __get__(self, runner: Blocking, kind: Any = ...) -> Callable[P, T]: ...
        @overload
        def __get__(
            self, runner: Asynchronous, kind: Any = ...
        ) -> Callable[P, Coroutine[Any, Any, T]]: ...
        def __get__(self, runner: Any, kind: Any = None) -> Any: ...


def request(make: Callable[P, Call[T]]) -> Method[P, T]:
    """The method of a client that makes a call and sends it."""

    @functools.wraps(make)
    def steps(self: ClientMethods, /, *args: P.args, **named: P.kwargs) -> Steps[T]:
        return attempts(make(*args, **named), self._transport.endpoint)

    return Method(steps)


def run_methods(kind: type, running: Callable[..., Any]) -> None:
    """Replace every `Method` of a class by running(steps), with the name, docstring and signature
    of its steps.
    """
    self = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    for name, method in [pair for base in kind.__mro__ for pair in vars(base).items()]:
        if isinstance(method, Method) and getattr(kind, name) is method:
            stated = inspect.signature(method.steps)
            parameters = [one for one in stated.parameters.values() if one.name != "self"]
            answer = re.sub(r"^(?:Call|Steps)\[(.*)\]$", r"\1", stated.return_annotation)
            public = running(method.steps)
            public.__name__ = public.__qualname__ = name
            public.__doc__ = method.steps.__doc__
            public.__signature__ = inspect.Signature([self, *parameters], return_annotation=answer)
            setattr(kind, name, public)


class Connected:
    """A client or a buffer: the transport to its service, and how long its end may take."""

    _transport: Any
    _condition: type[Any]
    _changed: Any = None  # a condition that is shared by all steps
    _grace: float  # seconds to flush for where the program or the task is being ended

    def _patience(self, error: BaseException | None) -> float | None:
        """Seconds to flush for; None is the deadline."""
        return None if isinstance(error, Exception | None) else self._grace


class ClientMethods(Connected):
    """Every request of a client; a subclass runs them."""

    _transport_type: type[Any]

    def __init__(
        self,
        address: str | Sequence[str],
        key: str | None = None,
        *,
        deadline: float = 30.0,
        timeout: float = 10.0,
    ) -> None:
        self._transport = self._transport_type(Endpoint(address, key, deadline, timeout))
        self._buffers: list[Any] = []

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._transport.endpoint.shown!r})"

    decide = request(calls.decide)
    decide_many = request(calls.decide_many)
    feedback = request(calls.feedback)
    feedback_many = request(calls.feedback_many)
    decision = request(calls.decision)

    models = request(calls.models)
    model = request(calls.model)
    live = request(calls.live)
    history = request(calls.history)
    exposure = request(calls.exposure)
    constraints = request(calls.constraints)
    changes = request(calls.changes)
    items = request(calls.items)
    attributes = request(calls.attributes)
    add_items = request(calls.add_items)
    retire = request(calls.retire)
    objective = request(calls.objective)
    replace_objective = request(calls.replace_objective)

    snapshot = request(calls.snapshot)
    healthz = request(calls.healthz)
    readyz = request(calls.readyz)
    metrics = request(calls.metrics)
