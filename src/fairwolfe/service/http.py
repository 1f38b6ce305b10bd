"""The HTTP/1.1 server: `asyncio` protocols, the parser of httptools, and bounds on everything.

A connection reads requests whole and answers them in order. Every part of a request is bounded in
bytes (head, chunk framing, trailers, body) and in time; so are answers that the client does not
read. What connections hold in parts is counted against `limits.held`, so memory stays bounded
however a client cuts its requests. `Upgrade` is ignored, as RFC 9110 allows. After a refusal of a
request that has not arrived whole, nothing more is read as HTTP on that connection.

Decide and feedback (`HotEndpoint`) are submitted to the core directly, and the core answers the
`Request`. Every other route is a coroutine that returns a `Response`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from functools import lru_cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

import httptools

from fairwolfe.service import wire
from fairwolfe.service.config import Key, is_loopback
from fairwolfe.service.core import BUSY, Work
from fairwolfe.service.wire import Refused, too_large

if TYPE_CHECKING:
    from fairwolfe.service.routes import HotEndpoint, Service
    from fairwolfe.service.standby import Standby


logger = logging.getLogger("fairwolfe.service")

BACKLOG = 4096  # connections that wait to be accepted; the system may allow fewer
_BUFFER = 32 * 1024  # bytes read at once, into one buffer that all connections share
_HEAD = 16 * 1024  # bytes of a request line and its header fields
_FRAMING = 16 * 1024  # bytes of chunk sizes, chunk extensions and trailers
_FRAMING_PART = 16  # and as much again as one part in 16 of the body
_PIPELINE = 16  # requests read ahead of their answers
_REQUEST_COST = 1024  # bytes that a request waiting in a pipeline costs besides its body
_UNREAD = 4 * 1024  # bytes of answers buffered before the connection waits for its client
_LINGER = 1.0  # seconds in which the rest of a refused request is read and dropped
_ENDING = 0.1  # seconds in which a request that is on its way at the end is still accepted

_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}
_ONCE = frozenset(
    b"authorization content-encoding content-length content-type expect host "
    b"transfer-encoding".split()
)

_MALFORMED = Refused(400, "malformed", "the request is not valid HTTP/1.1")
_LARGE_FRAMING = Refused(
    413,
    "large_framing",
    f"the chunk sizes, chunk extensions and trailers are larger than {_FRAMING:,} bytes and a "
    f"{_FRAMING_PART}th of the body; send larger chunks",
)
_BUSY = Refused(*BUSY)


def _large_head() -> Refused:
    text = f"the head of the request is larger than {_HEAD:,} bytes; send less"
    return Refused(431, "large_head", text)


def _too_slow(seconds: float) -> Refused:
    text = f"the request did not arrive within {seconds:g} s; send it again"
    return Refused(408, "too_slow", text)


@lru_cache(maxsize=4096)  # answers have few sizes
def _plain_head(size: int, media: str) -> bytes:
    """The head of a 200 on a connection that stays open."""
    return _LINES[200] + f"content-length: {size}\r\ncontent-type: {media}\r\n\r\n".encode()


class Response(NamedTuple):
    """An answer. A body that is an iterator is sent in parts; on_end is then called at its end."""

    body: bytes | AsyncIterator[bytes]
    media: str
    status: int = 200
    headers: Mapping[str, str] = {}
    on_end: Callable[[], None] | None = None


Handler = Callable[[Any, Any], Awaitable[Any]]
"""Replies to a request: of the `Service` and the `Request`."""

OPEN = "open"
"""The scope of what needs no key on a loopback address, and `read` on any other."""

ANYONE = "anyone"
"""The scope of what never needs a key: the sign-in, and files without a number of anybody's."""


class Route(NamedTuple):
    """A route: its method, its path, the scope that it needs, and who replies.

    handler: None for a hot route; status: of its replies; media: their type, where it is not JSON;
    refusal: makes the reply to a Refused, where it is not JSON.
    """

    method: str
    path: str
    scope: str
    handler: Handler | None
    status: tuple[int, ...] = (200,)
    media: str | None = None
    refusal: Callable[[Any, Any, Refused], Response] | None = None


class Request:
    """A request from its first byte to its answer; for the core it is a `Waiter`."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.began = time.monotonic()
        self.method, self.target, self.version = "", b"", ""
        self.path = ""  # of the route, for the metrics
        self.headers: dict[bytes, bytes] = {}
        self.params: dict[str, str] = {}
        self.model: Any = None  # that the path names, once the request is whole
        self.body: bytes | bytearray = b""
        self.size = self.most = 0  # bytes of the body that have come, and that may come
        self.headed = self.whole = self.started = self.done = self.keep_alive = False
        self.refused: Refused | None = None
        self.hot: HotEndpoint | None = None
        self.route: Route | None = None
        self.key: Key | None = None
        self.accept = ""
        self.work: Work | None = None
        self.streaming: asyncio.Task[None] | None = None

    # --- for handlers -------------------------------------------------------------------------

    def header(self, name: bytes, default: str = "") -> str:
        """The value of a header field; its name is in lower case."""
        value = self.headers.get(name)
        return default if value is None else value.decode("latin-1")

    def read(self, kind: Any) -> Any:
        """The body, decoded."""
        return wire.decode(bytes(self.body), self.header(b"content-type"), kind)

    @property
    def who(self) -> str:
        """The name of the key that it was sent with."""
        return "" if self.key is None else self.key.name

    def sees(self, model: str) -> bool:
        """Whether its key is for a model."""
        return self.key is None or self.key.sees(model)

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the target."""
        text = self.target.partition(b"?")[2].decode("ascii", "replace")
        return dict(parse_qsl(text, keep_blank_values=True))

    def cookie(self, name: str) -> str | None:
        """The value of a cookie."""
        for pair in self.header(b"cookie").split(";"):
            key, _, value = pair.strip().partition("=")
            if key == name:
                return value
        return None

    @property
    def secure(self) -> bool:
        """Whether the browser speaks TLS, here or to a proxy."""
        return self.connection.server.tls or self.header(b"x-forwarded-proto") == "https"

    # --- for the core -------------------------------------------------------------------------

    def absent(self) -> bool:
        """Whether nobody waits for the answer any more."""
        if not self.done and self.connection.transport.is_closing():
            self.connection.end(self, 0)
        return self.done

    def answer(self, result: Any) -> None:
        """Send the result of the work."""
        if not self.absent():
            assert self.hot is not None
            assert self.work is not None
            self.connection.send(self, Response(*self.hot.encoded(self.work, result, self.accept)))

    def refuse(self, error: Exception) -> None:
        """Send an error instead."""
        if self.absent():
            return
        connection = self.connection
        refused = wire.as_refused(error)
        if refused is not error:
            logger.error("%s %s failed", self.method, self.path, exc_info=error)
        service = connection.server.service
        service.core.metrics.refuse(refused.status, refused.error)
        if self.route is not None and self.route.refusal is not None:
            response = self.route.refusal(service, self, refused)
        else:
            response = Response(*wire.error_reply(refused, self.accept))
        connection.send(self, response)


class Connection(asyncio.BufferedProtocol):
    """A connection: bytes in, answers out, in the order of the requests."""

    transport: asyncio.Transport

    def __init__(self, server: Server) -> None:
        self.server = server
        self.loop = asyncio.get_running_loop()
        self.parser: Any = httptools.HttpRequestParser(self)
        self.queue: deque[Request] = deque()  # in order; the last may still arrive
        self.reading: Request | None = None
        self.framing = 0  # bytes of the request that arrives, without those of its body
        self.head = 0  # bytes of its head
        self.held = 0  # bytes counted in `core.arriving`
        self.unread = 0  # and in `core.unread`
        self.discarding = False  # what comes is dropped
        self.used = False  # a request was answered
        self.since = self.loop.time()
        self.shown: tuple[bytes | None, str] = (None, "")  # the last key, and its hash
        self.host: bytes | None = None  # the last Host that was accepted
        self._restart: Request | None = None  # an upgrade that is ignored: its request
        self._full = False  # reading is paused, because the pipeline is full
        self._unread: asyncio.Future[None] | None = None  # while the client does not read
        self._timer: asyncio.TimerHandle | None = None

    # --- the transport ------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        """A client has connected."""
        self.transport = transport
        transport.set_write_buffer_limits(_UNREAD)
        server = self.server
        server.connections.add(self)
        if len(server.connections) > server.most:
            text = f"there are {server.most:,} connections; try again later"
            self._stop(Refused(503, "too_many_connections", text, retry_after=1.0))
        else:
            self._arm(self.since + server.seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is closed; the parser and the requests refer to it, and go."""
        self.discarding, self.parser, self.reading = True, None, None
        self.server.connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        while self.queue:
            request = self.queue[0]
            if request.streaming is not None:
                request.streaming.cancel()
            self.end(request, 0)
        self._count(0, 0)
        if self._unread is not None and not self._unread.done():
            self._unread.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to: what is there is parsed before anything else is read."""
        return self.server.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        if self.discarding:
            return
        self.framing += nbytes
        data = self.server.buffer[:nbytes]
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            self._unparsable(error)
        else:
            self._after_read()

    def eof_received(self) -> bool:
        """The client sends nothing more; it may still read."""
        self.discarding = True
        if self.reading is not None:
            self.reading = None
            self.end(self.queue[-1], 0)
        if self.queue:
            self.queue[-1].keep_alive = False
        return bool(self.queue) and not self.server.tls

    def pause_writing(self) -> None:
        """The client does not read its answers."""
        self._unread = self.loop.create_future()
        self.since = self.loop.time()
        self._hold()
        self._arm(self.since + self.server.seconds)

    def resume_writing(self) -> None:
        """It reads again."""
        if self._unread is not None and not self._unread.done():
            self._unread.set_result(None)
        self._unread = None
        self.since = self.loop.time()
        self._hold()
        self._next()

    # --- reading ------------------------------------------------------------------------------

    def _feed(self, data: memoryview) -> None:
        while True:
            try:
                return self.parser.feed_data(data)  # type: ignore[no-any-return]
            except httptools.HttpParserUpgrade as upgrade:
                data = data[upgrade.args[0] :]
                self._ignore_upgrade()

    def _ignore_upgrade(self) -> None:
        """Parse on as HTTP/1.1. The parser has left out the body of a request that wants to
        upgrade: a new one reads it, after a head that says no more than where the body ends.
        """
        request = self.reading
        assert request is not None
        self._restart, self.reading = request, Request(self)
        self.parser = httptools.HttpRequestParser(self)
        lines = [
            b"%s: %s\r\n" % (name, request.headers[name])
            for name in (b"content-length", b"transfer-encoding")
            if name in request.headers
        ]
        self.parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(lines) + b"\r\n")

    def _unparsable(self, error: Exception) -> None:
        cause = error.__context__
        if self.queue and self.queue[-1].whole and not self.queue[-1].keep_alive:
            self.discarding = True  # what comes after `Connection: close` is not a request
        elif isinstance(cause, Exception):  # of a callback
            if not isinstance(cause, Refused):
                logger.error("a connection failed", exc_info=cause)
            self._stop(wire.as_refused(cause))
        else:
            self._stop(_MALFORMED)

    def _after_read(self) -> None:
        request = self.reading
        if request is None:
            if len(self.queue) > 1:
                self._hold()
        elif request.refused is not None:
            self._stop(request.refused)
        elif not request.headed:
            if self.framing > _HEAD:
                self._stop(_large_head())
        elif self.framing > _HEAD + _FRAMING + request.size // _FRAMING_PART:
            self._stop(_LARGE_FRAMING)
        if self.reading is not None:
            self._arm(self.reading.began + self.server.seconds)
            self._hold()
        if len(self.queue) > _PIPELINE and not self.discarding:
            self._full = True
            self.transport.pause_reading()

    def _hold(self) -> None:
        """Count what has come and waits, and what the client has not read; refuse what is too
        much.
        """
        held = 0 if self.reading is None else max(self.framing, 0) + self.reading.size
        for request in self.queue:
            if request.whole and not request.started:
                held += request.size + _REQUEST_COST
        unread = 0 if self._unread is None else self.transport.get_write_buffer_size()
        if not self._count(held + unread, unread):
            if self._unread is not None:
                self.transport.abort()
            else:
                self._stop(_BUSY)

    def _count(self, held: int, unread: int) -> bool:
        """Hold so many bytes, some of them of answers; whether there is room for them."""
        core, more = self.server.service.core, held - self.held
        if more > 0 and not core.room(more):
            return False
        core.arriving += more
        core.unread += unread - self.unread
        self.held, self.unread = held, unread
        return True

    def _stop(self, refused: Refused) -> None:
        """Read nothing more as HTTP; refuse the last request once those before it are answered."""
        if self.reading is None:
            self.reading = Request(self)
            self.queue.append(self.reading)
        request, self.reading = self.reading, None
        request.refused = refused.with_traceback(None)  # which would refer to the request
        request.keep_alive, request.body = False, b""
        self.discarding = True
        self._next()

    # --- from the parser ----------------------------------------------------------------------

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        if self._restart is None:
            self.reading = Request(self)
            self.queue.append(self.reading)
            self.head = 0

    def on_url(self, url: bytes) -> None:
        """A part of the target."""
        request = self.reading
        assert request is not None
        request.target += url
        self._grow(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header field; those after the body, the trailers, are dropped."""
        request = self.reading
        assert request is not None
        if request.headed:
            return
        self._grow(len(name) + len(value) + 4)
        name, headers = name.lower(), request.headers
        if name not in headers:
            headers[name] = value.strip(b" \t")
        elif name in _ONCE:
            text = f"the header {name.decode()} comes twice; send it once"
            raise Refused(400, "malformed", text, name.decode())

    def _grow(self, size: int) -> None:
        self.head += size
        if self.head > _HEAD:
            raise _large_head()

    def on_headers_complete(self) -> None:
        """The head is whole: find the route, check the key and the stated size."""
        if self._restart is not None:
            self.reading, self._restart = self._restart, None
            return
        request, parser = self.reading, self.parser
        assert request is not None
        request.headed = True
        version = request.version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            text = f"this is HTTP/{version}; speak HTTP/1.1"
            raise Refused(505, "unsupported_version", text)
        headers = request.headers
        request.method = parser.get_method().decode("ascii")
        request.accept = headers.get(b"accept", b"").decode("latin-1")
        request.keep_alive = version == "1.1" and parser.should_keep_alive()
        self._check_framing(headers, version)
        if b"host" not in headers and version == "1.1":
            raise Refused(400, "malformed", "the header Host is missing; send it", "host")
        if not request.target.startswith(b"/"):
            _absolute(request)
        host = headers.get(b"host")
        try:
            if host is not None and host != self.host:
                self.server.check_host(host)
                self.host = host
            self.server.service.open(request, int(headers.get(b"content-length", b"0")))
        except Refused as refused:
            request.refused = refused.with_traceback(None)
            return
        expected = headers.get(b"expect")
        if expected is None:
            return
        if expected.lower() != b"100-continue":
            text = f"Expect is {expected.decode('latin-1')!r:.80}; only 100-continue is known"
            request.refused = Refused(417, "unknown_expectation", text, "expect")
        elif self.queue[0] is request and version == "1.1":
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _check_framing(self, headers: dict[bytes, bytes], version: str) -> None:
        coding = headers.get(b"transfer-encoding")
        if coding is not None and (coding.lower() != b"chunked" or version == "1.0"):
            text = (
                f"Transfer-Encoding is {coding.decode('latin-1')!r:.80} in HTTP/{version}; "
                "only chunked is known, and only in HTTP/1.1"
            )
            raise Refused(501, "unknown_coding", text, "transfer-encoding")

    def on_body(self, part: bytes) -> None:
        """A part of the body."""
        request = self.reading
        assert request is not None
        size = len(part)
        self.framing -= size
        request.size += size
        if request.refused is not None:
            return
        if request.size > request.most:
            request.refused, request.body = too_large(request.most), b""
        elif request.size == size:
            request.body = part
        else:
            if isinstance(request.body, bytes):
                request.body = bytearray(request.body)
            request.body += part

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self.parser.should_upgrade():
            return  # its body comes: see _ignore_upgrade
        request, self.reading, self.framing = self.reading, None, 0
        assert request is not None
        request.whole = True
        if self.queue[0] is request and self._unread is None:
            self._start(request)

    # --- answers ------------------------------------------------------------------------------

    def _next(self) -> None:
        """Go on with the first request, where it can be answered."""
        if self.queue and self._unread is None and not self.transport.is_closing():
            request = self.queue[0]
            if not request.started and (request.whole or request.refused is not None):
                self._start(request)
        if self._full and len(self.queue) <= _PIPELINE and not self.transport.is_closing():
            self._full = False
            if self.reading is not None:
                self.reading.began = time.monotonic()
            self.transport.resume_reading()

    def _start(self, request: Request) -> None:
        request.started = True
        if request.refused is not None:
            request.refuse(request.refused)
        elif request.hot is not None:
            try:
                content_type = request.headers.get(b"content-type", b"").decode("latin-1")
                body, request.body = bytes(request.body), b""
                request.work = request.hot.work(body, content_type, request.key, request)
                request.hot.core.submit(request.work)
            except Exception as error:
                request.refuse(error)
        else:
            self.server.spawn(self._handle(request))

    async def _handle(self, request: Request) -> None:
        try:
            response = await self.server.service.answer(request)
        except Exception as error:
            return request.refuse(error)
        if isinstance(response.body, bytes):
            if not request.absent():
                self.send(request, response)
        else:
            await self._stream(request, response, response.body)
        return None

    def send(self, request: Request, response: Response) -> None:
        """Send an answer whole."""
        body, media, status, headers, on_end = response
        assert isinstance(body, bytes)
        self._close_if_last(request)
        if status == 200 and not headers and request.keep_alive:
            head = _plain_head(len(body), media)
        else:
            request.keep_alive = request.keep_alive and "connection" not in headers
            head = self._head(request, response, f"content-length: {len(body)}\r\n")
        self.transport.write(head if request.method == "HEAD" else head + body)
        if on_end is not None:
            on_end()
        self.end(request, status)

    def _close_if_last(self, request: Request) -> None:
        """When the server ends, the last answer of a connection says so."""
        if self.server.ending and len(self.queue) == 1:
            request.keep_alive = False

    def _head(self, request: Request, response: Response, length: str) -> bytes:
        extra = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
        close = "connection: close\r\n"
        if request.keep_alive or "connection" in response.headers:
            close = ""
        lines = f"{extra}{length}content-type: {response.media}\r\n{close}\r\n"
        return _LINES[response.status] + lines.encode("latin-1")

    async def _stream(
        self, request: Request, response: Response, parts: AsyncIterator[bytes]
    ) -> None:
        """Send an answer in parts, each when the one before it has been read."""
        request.streaming = asyncio.current_task()
        chunked = request.version == "1.1"
        try:
            if request.absent():
                return
            self._close_if_last(request)
            length = "transfer-encoding: chunked\r\n" if chunked else ""
            self.transport.write(self._head(request, response, length))
            if request.method != "HEAD":
                async for part in parts:
                    if request.absent():
                        return
                    framed = b"%x\r\n%s\r\n" % (len(part), part) if chunked else part
                    self.transport.write(framed)
                    if self._unread is not None:
                        await self._unread
                if request.absent():
                    return
                self.transport.write(b"0\r\n\r\n" if chunked else b"")
            request.keep_alive = request.keep_alive and chunked
            request.streaming = None
            self.end(request, response.status)
        except Exception:
            logger.exception("%s %s broke off", request.method, request.path)
            self.transport.abort()
        finally:
            close = getattr(parts, "aclose", None)
            if close is not None:
                await close()
            if response.on_end is not None:
                response.on_end()

    def end(self, request: Request, status: int) -> None:
        """A request is answered; status 0: nobody waits for its answer."""
        request.done, request.body, request.work = True, b"", None
        self.queue.remove(request)
        now = self.since = self.loop.time()
        self.used = True
        if request.path:
            numbers = self.server.service.core.metrics
            numbers.end(request.path, status, time.monotonic() - request.began)
        if not status:
            return
        if self.held or self._unread is not None:
            self._hold()
        if not request.keep_alive or (self.server.ending and not self.queue):
            self._finish(now)
        elif self.queue:
            self.loop.call_soon(self._next)

    def _finish(self, now: float) -> None:
        """Close; where the client still sends, once it has had time to read the answer."""
        if self.discarding and self.transport.can_write_eof():
            self.transport.write_eof()
            self._full = False
            self.transport.resume_reading()
            self._arm(now + _LINGER)
        else:
            self.discarding = True
            self.transport.close()
            self._arm(now + self.server.seconds)

    def end_idle(self) -> None:
        """Close, unless a request is under way."""
        if not self.queue and not self.transport.is_closing():
            self._finish(self.loop.time())

    # --- time ---------------------------------------------------------------------------------

    def _arm(self, when: float) -> None:
        """Look again at this time, at the latest."""
        if self._timer is None or self._timer.when() > when:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(when, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now, deadline = self.loop.time(), self._deadline()
        if now + 1e-3 < deadline:
            self._arm(deadline)
        elif self._unread is not None or self.transport.is_closing():
            self.transport.abort()  # the answers are not read
        elif self.reading is not None:
            self._stop(_too_slow(self.server.seconds))
            self._arm(now + _LINGER)
        elif self.queue:
            self._arm(now + self.server.seconds)  # an answer is on its way
        else:
            self.transport.abort() if self.discarding else self.transport.close()

    def _deadline(self) -> float:
        server = self.server
        if self._unread is not None or self.transport.is_closing():
            return self.since + server.seconds
        if self.reading is not None and not self._full:
            return self.reading.began + server.seconds
        if self.queue:
            return self.loop.time()
        if self.discarding:
            return self.since + _LINGER
        return self.since + (server.idle if self.used else server.seconds)


def _absolute(request: Request) -> None:
    """Take the path and the host from a target such as http://host/path."""
    try:
        url = httptools.parse_url(request.target)
    except httptools.HttpParserInvalidURLError:
        url = None
    if url is None or url.schema not in (b"http", b"https") or url.host is None:
        text = f"the target is {request.target.decode('latin-1')!r:.80}; send a path"
        raise Refused(400, "malformed", text)
    request.target = (url.path or b"/") + (b"?" + url.query if url.query else b"")
    request.headers[b"host"] = url.host


class Server:
    """The connections of a service, from its first to its last.

    Parameters
    ----------
    hosts: names that Host may give, besides addresses of this machine; None: any
    tls: the certificate of https
    idle: seconds after which a connection without a request is closed
    grace: seconds in which requests that are under way at the end are answered
    """

    def __init__(
        self,
        service: Service | Standby,
        hosts: frozenset[str] | None,
        tls: ssl.SSLContext | None = None,
        idle: float = 30.0,
        grace: float = 10.0,
    ) -> None:
        self.service, self.hosts, self.idle, self.grace = service, hosts, idle, grace
        self.tls, self._context = tls is not None, tls
        self.buffer = memoryview(bytearray(_BUFFER))
        self.connections: set[Connection] = set()
        self.ending = False
        self._stop = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def most(self) -> int:
        """How many connections there may be."""
        return self.service.core.limits.connections

    @property
    def seconds(self) -> float:
        """For a request to arrive, and for an answer to be read."""
        return self.service.core.limits.seconds

    def check_host(self, host: bytes) -> None:
        """Refuse a name that is not known: a page of another site may have sent it here."""
        name = host.decode("latin-1").lower().rpartition(":")
        bare = (name[0] if name[2].isdecimal() and name[0] else "".join(name)).strip("[]")
        if self.hosts is None or bare in self.hosts or is_loopback(bare):
            return
        text = (
            f"Host is {bare!r:.80}, and this service has no keys: it answers to localhost only; "
            "add the name to `hosts` in the configuration"
        )
        raise Refused(421, "unknown_host", text, "host")

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine beside the others."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        """End gracefully; when called again, at once."""
        if self._stop.is_set():
            self.grace = 0.0
        self._stop.set()

    async def serve(self, listener: socket.socket, on_ready: Callable[[], None]) -> None:
        """Serve until `stop`, then answer everything that was accepted."""
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: Connection(self),
            sock=listener,
            backlog=BACKLOG,
            ssl=self._context,
            ssl_handshake_timeout=self.seconds if self.tls else None,
        )
        on_ready()
        await self._stop.wait()
        self.ending = True
        self.service.end()
        await asyncio.sleep(_ENDING)  # who has connected by now is accepted
        server.close()
        began = loop.time()
        while self.connections and loop.time() - began < self.grace:
            for connection in list(self.connections):
                connection.end_idle()
            await asyncio.sleep(0.01)
        for connection in list(self.connections):
            connection.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
