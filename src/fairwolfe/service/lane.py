"""`Lane`: decisions and feedback answered inside uvicorn's own protocol, without ASGI in between.

A request takes the lane if it is a POST to exactly one of the hot paths and its connection is free.
Everything else, also what is pipelined behind a request that is not answered yet, goes through
uvicorn and Starlette and is answered with the same bytes. To uvicorn a request in the lane looks
like one of its own that is under way, so its care for order, keep-alive and shutdown holds for it.

A client sends the same head every time, except for the size of the body. So the first head of a
path is remembered on its connection, and one that equals it is not parsed again.

What uvicorn leaves unbounded is bounded here, for both ways: the bytes of a head, the time in which
a request must arrive, and the number of connections.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from fairwolfe.service import wire
from fairwolfe.service.config import Key
from fairwolfe.service.core import Work
from fairwolfe.service.hot import Hot, too_large, too_slow
from fairwolfe.service.refusal import Refused
from fairwolfe.service.routes import Service

__all__ = ["Lane", "lane_of"]

logger = logging.getLogger("fairwolfe.service")

_LARGEST_HEAD = 16 * 1024  # bytes
_LAST_WORD = 1.0  # seconds for the answer of uvicorn's way to a request that is too slow
_MOST_HEADS = 8  # that a connection remembers
_LONGEST_SIZE = 9  # digits of a content-length that is not parsed again
_SIZE = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)[ \t]*(?=\r\n|$)", re.IGNORECASE)


@lru_cache(maxsize=4096)  # answers have few sizes
def _head_of(size: int, kind: str) -> bytes:
    """The head of an answer that is as it should be, on a connection that stays."""
    return STATUS_LINE[200] + f"content-length: {size}\r\ncontent-type: {kind}\r\n\r\n".encode()


class Head(NamedTuple):
    """The head of a request: its bytes before and after the size of the body, the route,
    the key that was shown, and the content types.
    """

    before: bytes
    after: bytes
    hot: Hot
    shown: bytes | None
    content_type: str
    accept: str


class Request:
    """The request of a connection that is in the lane; the core answers it.

    It has the attributes by which uvicorn knows a request that is under way.
    """

    disconnected = False

    def __init__(self, lane: Lane) -> None:
        self.lane = lane
        self.hot: Hot
        self.key: Key | None = None
        self.work: Work | None = None
        self.content_type = self.accept = ""
        self.parts: list[bytes] = []
        self.most = self.size = self.held = 0  # bytes that may come, have come, and are held
        self.keep_alive = self.response_complete = True
        self.began = 0.0

    def begin(self, hot: Hot, keep_alive: bool) -> None:
        """A head has come."""
        self.hot, self.keep_alive = hot, keep_alive
        self.response_complete = False
        self.size = 0
        self.began = time.perf_counter()
        hot.core.numbers.begin(hot.path)

    @property
    def message_event(self) -> Request:
        """For uvicorn, which sets it when the connection is lost."""
        return self

    def set(self) -> None:
        """The connection is lost: nobody waits any more."""
        if not self.response_complete:
            self._end(0)

    # --- for the core -------------------------------------------------------------------------

    def absent(self) -> bool:
        """Whether the connection is closed."""
        if not self.response_complete and self.lane.transport.is_closing():
            self._end(0)
        return self.response_complete

    def answer(self, result: Any) -> None:
        """Send what came of it."""
        if not self.absent():
            assert self.work is not None
            self._send(200, {}, *self.hot.encoded(self.work, result, self.accept))

    def refuse(self, error: Exception) -> None:
        """Send why not."""
        if not self.absent():
            refused = wire.refused(error)
            if refused is not error:
                logger.error("%s failed", self.hot.kind.name, exc_info=error)
            self.hot.core.numbers.refuse(refused)
            self._send(*wire.refusal(refused, self.accept))
            if self.keep_alive:
                self.lane.rest()

    def _send(self, status: int, headers: dict[str, str], body: bytes, kind: str) -> None:
        lane = self.lane
        if status == 200 and self.keep_alive:
            lane.transport.write(_head_of(len(body), kind) + body)
        else:
            self.keep_alive = self.keep_alive and "connection" not in headers
            lane.write(status, headers, body, kind, self.keep_alive)
        self._end(status)
        if not self.keep_alive:
            lane.transport.close()
        lane.on_response_complete()

    def _end(self, status: int) -> None:
        self.response_complete = True
        core = self.hot.core
        core.arriving -= self.held
        self.held = 0
        self.parts, self.work = [], None
        core.numbers.end(self.hot.path, status, time.perf_counter() - self.began)

    # --- its body -----------------------------------------------------------------------------

    def take(self, part: bytes) -> None:
        """A part of the body has come."""
        self.size += len(part)
        if self.size > self.most:
            self.refuse(too_large(self.most))
        else:
            self.parts.append(part)

    def hold(self) -> None:
        """More will come later: what is here counts as held till then."""
        core, more = self.hot.core, self.size - self.held
        if not self.response_complete:
            try:
                core.hold(more)
                self.held += more
            except Refused as refused:
                self.refuse(refused)

    def submit(self, body: bytes) -> None:
        """The body is whole."""
        try:
            self.work = self.hot.work(body, self.content_type, self.key, self)
            self.hot.core.submit(self.work)
        except Exception as error:
            self.refuse(error)


class Lane(HttpToolsProtocol):
    """A connection."""

    service: ClassVar[Service]
    hot: ClassVar[dict[bytes, Hot]]
    cycle: Any  # the newest request: uvicorn's own, or that in the lane

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._request = Request(self)
        self._in_head = self._in_message = False
        self._head = 0  # bytes
        self._refusal: Refused | None = None  # for what cannot be parsed
        self._timer: asyncio.TimerHandle | None = None
        self._active = 0.0  # when bytes came last
        self._shown: tuple[bytes | None, int] = (None, 0)  # the last key, and its place
        self._heads: dict[bytes, Head] = {}  # by the first line
        self._entered: Head | None = None  # what the head of a request in the lane said

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Somebody has connected."""
        super().connection_made(transport)
        most = self.service.config.limits.connections
        if len(self.connections) > most:
            self._refusal = Refused(
                503, "too_many_connections", f"there are {most:,} connections", retry_after=1.0
            )
            self.send_400_response("")
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._unwatch()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
        self._request.set()
        super().connection_lost(exc)

    # --- time and size ------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Bytes have come."""
        self._active = self.loop.time()
        between = not self._in_message
        line = data[: data.find(b"\r")] if between else b""
        head = self._heads.get(line)
        if head is not None and self._again(head, data):
            return
        self._head += len(data)
        self._entered = None
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            pass  # nothing else than HTTP is spoken here
        except httptools.HttpParserError:
            self.send_400_response("")
        if between and self._entered is not None and not self._in_message:
            self._remember(line, data, self._entered)
        if self._in_head and self._head > _LARGEST_HEAD and not self.transport.is_closing():
            self._refusal = _large_head()
            self.send_400_response("")
        elif self._in_message:
            self._watch()
            if self.cycle is self._request:
                self._request.hold()

    def _again(self, head: Head, data: bytes) -> bool:
        """Begin and submit a request whose head is known; False where it is not, or not whole."""
        before, after, hot, shown, content_type, accept = head
        start = len(before)
        stop = data.find(b"\r", start, start + _LONGEST_SIZE + 1)
        digits, body = data[start:stop], stop + len(after)
        if (
            stop < 0
            or not digits.isdigit()
            or not data.startswith(before)
            or not data.startswith(after, stop)
            or len(data) - body != int(digits)
            or not self._free()
        ):
            return False
        self._unwatch()
        request = self._request
        request.content_type, request.accept = content_type, accept
        self._enter(hot, True, shown, len(data) - body)
        if not request.response_complete:
            request.submit(data[body:])
        return True

    def _remember(self, line: bytes, data: bytes, head: Head) -> None:
        """The head of a request that came whole, and took the lane: the first of its path."""
        if line in self._heads or len(self._heads) == _MOST_HEADS:
            return
        raw, _, body = data.partition(b"\r\n\r\n")
        sizes = list(_SIZE.finditer(raw))
        if len(sizes) == 1 and int(sizes[0][1]) == len(body):
            start, stop = sizes[0].span(1)
            after = raw[stop:] + b"\r\n\r\n"
            self._heads[line] = head._replace(before=raw[:start], after=after)

    def _unset_keepalive_if_required(self) -> None:
        """Instead of a timer for every request, there is one that looks when it ends."""

    def timeout_keep_alive_handler(self) -> None:
        """Let a connection go that has been idle for long enough."""
        left = self._active + self.timeout_keep_alive - self.loop.time()
        if self.cycle is not None and not self.cycle.response_complete:
            left = self.timeout_keep_alive
        if left <= 0.0:
            super().timeout_keep_alive_handler()
        else:
            self.timeout_keep_alive_task = self.loop.call_later(
                left, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        """A request is answered."""
        if self.pipeline or self.flow.read_paused or self.timeout_keep_alive_task is None:
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1

    def _watch(self) -> None:
        if self._timer is None:
            wait = self.service.config.limits.seconds
            self._timer = self.loop.call_later(wait, self._too_slow)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        """A request has begun long ago, and has not come to its end."""
        self._timer = None
        if self.transport.is_closing():
            return
        refused = too_slow(self.service.config.limits.seconds)
        if self._in_head:
            self._refusal = refused
            self.send_400_response("")
        elif self.cycle is self._request and not self._request.response_complete:
            self._request.refuse(refused)
        elif self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:  # ASGI has its own limit, which ends about now
            self._timer = self.loop.call_later(_LAST_WORD, self.transport.close)

    def rest(self) -> None:
        """Read on in the next turn of the loop: who asks again at once, and is refused again, would
        otherwise keep the loop from everything else.
        """
        self.flow.pause_reading()
        self.loop.call_soon(self.flow.resume_reading)

    # --- from the parser ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte; what ASGI needs besides is made where it is needed."""
        self.url, self.headers = b"", []
        self._in_head = self._in_message = True
        self._unwatch()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A line of the head."""
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._in_head = False
        fields = dict(reversed(self.headers))  # the first of two counts, as for Starlette
        if self._head > _LARGEST_HEAD:  # with what came of the body
            sizes = (len(name) + len(value) for name, value in self.headers)
            if sum(sizes, len(self.url)) > _LARGEST_HEAD:
                self._refusal = _large_head()
                raise ValueError("the head is too large")
        self._head = 0
        hot = self.hot.get(self.url)
        if (
            hot is None
            or not self._free()
            or b"expect" in fields
            or b"upgrade" in fields
            or self.parser.get_method() != b"POST"
        ):
            self._by_asgi(fields.get(b"expect", b"").lower() == b"100-continue")
            return
        request = self._request
        keep_alive = self.parser.get_http_version() != "1.0" and self.parser.should_keep_alive()
        request.accept = fields.get(b"accept", b"").decode("latin-1")
        request.content_type = fields.get(b"content-type", b"").decode("latin-1")
        shown, stated = fields.get(b"authorization"), fields.get(b"content-length", b"")
        if keep_alive and b"transfer-encoding" not in fields:
            self._entered = Head(b"", b"", hot, shown, request.content_type, request.accept)
        self._enter(hot, keep_alive, shown, int(stated) if stated.isdigit() else 0)

    def _free(self) -> bool:
        """Whether a request may take the lane: the one before it is answered."""
        return (self.cycle is None or self.cycle.response_complete) and not self.flow.write_paused

    def _enter(self, hot: Hot, keep_alive: bool, shown: bytes | None, stated: int) -> None:
        """A request takes the lane, unless it is rejected at once."""
        request: Any = self._request
        self.cycle = request
        request.begin(hot, keep_alive)
        try:
            request.key = self._key(shown, hot)
            request.most = hot.admit(stated, request.key)
        except Refused as refused:
            request.refuse(refused)

    def _key(self, shown: bytes | None, hot: Hot) -> Key | None:
        """The key of a request; that of the last one on this connection is not hashed again."""
        keys = self.service.keys
        if not keys:
            return None
        known, place = self._shown
        if shown is None or shown != known:
            place = keys.find(None if shown is None else shown.decode("latin-1"))
            self._shown = (shown, place)
        return keys.allow(place, hot.kind.scope)

    def _by_asgi(self, expected: bool) -> None:
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expected
        self.headers += headers
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of a body."""
        if self.cycle is not self._request:
            super().on_body(body)
        elif not self._request.response_complete:
            self._request.take(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._in_message, self._head = False, 0
        self._unwatch()
        if self.cycle is not self._request:
            super().on_message_complete()
        elif not self._request.response_complete:
            self._request.submit(b"".join(self._request.parts))

    # --- answers ------------------------------------------------------------------------------

    def write(
        self, status: int, headers: dict[str, str], body: bytes, kind: str, keep_alive: bool
    ) -> None:
        """Write an answer as uvicorn writes one of Starlette."""
        extra = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        close = "" if keep_alive or "connection" in headers else "connection: close\r\n"
        head = f"{extra}content-length: {len(body)}\r\ncontent-type: {kind}\r\n{close}\r\n"
        self.transport.write(STATUS_LINE[status] + head.encode("latin-1") + body)

    def send_400_response(self, msg: str) -> None:
        """What cannot be parsed is rejected with the same body as everything else."""
        if self.transport.is_closing():
            return
        refused = self._refusal or Refused(400, "malformed", "the request is not HTTP/1.1")
        self.service.core.numbers.refuse(refused)
        status, headers, body, kind = wire.refusal(refused, wire.JSON)
        self.write(status, headers, body, kind, keep_alive=False)
        self.transport.close()


def _large_head() -> Refused:
    return Refused(
        431, "large_head", f"the head of the request is larger than {_LARGEST_HEAD:,} bytes"
    )


def lane_of(service: Service) -> type[Lane]:
    """The protocol of a service."""
    hot = service.hot if service.config.lane else {}
    paths = {f"/v1/models/{name}/{kind}".encode(): one for (kind, name), one in hot.items()}
    return type("Lane", (Lane,), {"service": service, "hot": paths})
