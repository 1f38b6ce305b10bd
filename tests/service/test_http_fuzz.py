"""The HTTP server against h11: what one of them reads as a request, the other reads the same."""

from __future__ import annotations

import asyncio
import json
import random
import re
from types import SimpleNamespace
from typing import Any

import h11
import pytest

from fairwolfe.service.http import Connection, Request, Response, Server
from fairwolfe.service.telemetry import Metrics

Message = tuple[str, str, str]  # method, target, body
BODY_LIMIT = 4096
TARGETS = ["/", "/v1/models", "/a?b=c&d=%20", "/%41", "/a//b", "http://localhost:8710/x", "/~a;b"]


class Pipe(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = bytearray()
        self.closing = False

    def write(self, data: Any) -> None:
        self.sent += data

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    abort = close

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0


class Echo:
    """A service that answers with what it was asked."""

    def __init__(self, room: int) -> None:
        limits = SimpleNamespace(connections=10, seconds=10.0)
        self.config = SimpleNamespace(limits=limits)
        self.core = SimpleNamespace(metrics=Metrics(), limits=limits, arriving=0, unread=0)
        self.core.room = lambda more: self.core.arriving + more <= room

    def open(self, request: Request, stated: int) -> None:
        request.route = SimpleNamespace(refusal=None)  # type: ignore[assignment]
        request.most = BODY_LIMIT

    async def answer(self, request: Request) -> Response:
        seen = (request.method, request.target.decode(), bytes(request.body).hex())
        return Response(json.dumps(seen).encode(), "application/json")


async def ours(parts: list[bytes], room: int = 1 << 20) -> tuple[list[Message], int | None]:
    """The requests that the server answers, and the status with which it ends, if it does. room:
    bytes that connections may hold in parts.
    """
    server = Server(Echo(room), None)  # type: ignore[arg-type]
    connection, pipe = Connection(server), Pipe()
    connection.connection_made(pipe)
    for part in parts:
        for start in range(0, len(part), len(server.buffer)):
            piece = part[start : start + len(server.buffer)]
            if pipe.closing:
                break
            connection.get_buffer(-1)[: len(piece)] = piece
            connection.buffer_updated(len(piece))
        for _ in range(20):
            await asyncio.sleep(0)
    sent = bytes(pipe.sent)
    connection.connection_lost(None)
    assert server.service.core.arriving == 0
    return _answers(sent)


def _answers(sent: bytes) -> tuple[list[Message], int | None]:
    client = h11.Connection(h11.CLIENT)
    messages: list[Message] = []
    refused = None
    if not sent:
        return messages, refused
    client.receive_data(sent)
    body = b""
    status = 0
    while True:
        if client.our_state is h11.IDLE:
            client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
            client.send(h11.EndOfMessage())
        event = client.next_event()
        if isinstance(event, h11.Response):
            status, body = event.status_code, b""
        elif isinstance(event, h11.Data):
            body += bytes(event.data)
        elif isinstance(event, h11.EndOfMessage):
            if status == 200:
                messages.append(tuple(json.loads(body)))
            else:
                assert refused is None, "a second refusal on one connection"
                refused = status
            if client.our_state is not h11.DONE or client.their_state is not h11.DONE:
                return messages, refused
            client.start_next_cycle()
        elif event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
            return messages, refused


def theirs(parts: list[bytes]) -> tuple[list[Message], bool]:
    """The requests that h11 reads, and whether it then refuses."""
    server = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
    messages: list[Message] = []
    server.receive_data(b"".join(parts))
    method = target = ""
    body = b""
    try:
        while True:
            event = server.next_event()
            if isinstance(event, h11.Request):
                method, body = event.method.decode(), b""
                target = re.sub(r"^http://[^/?]*", "", event.target.decode())
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                messages.append((method, target, body.hex()))
                server.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                server.send(h11.EndOfMessage())
                if server.our_state is h11.MUST_CLOSE:
                    return messages, False
                server.start_next_cycle()
            else:
                return messages, False
    except h11.RemoteProtocolError:
        return messages, True


def grammar(rng: random.Random) -> bytes:
    """A request, mostly right."""
    pick = rng.choice
    body = bytes(rng.randrange(32, 127) for _ in range(pick([0, 1, 5, 40, 300])))
    method = pick(["GET", "POST", "PUT", "DELETE"] * 6 + ["get", "P OST", ""])
    target = pick(["/", "/v1/models", "/a?b=c", "/%41", "http://localhost/x"] * 6 + ["*", "/a b"])
    version = pick(["HTTP/1.1"] * 60 + ["HTTP/1.0", "HTTP/2.0", "HTTP/0.9", "HTP/1.1", ""])
    lines = [f"{method} {target} {version}"]
    lines += pick([["Host: localhost"]] * 60 + [[], ["Host: a", "Host: b"], ["Host : a"]])
    for _ in range(pick([0, 0, 1, 3])):
        names = ["x-a", "Accept", "x" * 300, "Cookie", "Upgrade"]
        name = pick(names * 12 + ["", "x a", "x\x00"])
        lines.append(f"{name}:{pick([' ', '', '  ', chr(9)])}{pick(['1', '', 'a b', 'h2c'])}")
    if rng.random() < 0.1:
        lines.append(f"Connection: {pick(['close', 'keep-alive', 'Upgrade', 'x'])}")
    framing = rng.random()
    if framing < 0.45:
        size = str(len(body))
        odd = [f"+{size}", f"{size}, {size}", f"0x{size}", f"-{size}", f"0{size}", "9" * 30, ""]
        lines.append(f"Content-Length: {pick([size] * 60 + odd)}")
        if rng.random() < 0.04:
            lines.append(f"Content-Length: {pick([size, '1'])}")
    elif framing < 0.85:
        odd = ["gzip", "chunked, identity", "gzip, chunked", "xchunked", "CHUNKED", "chunked "]
        lines.append(f"Transfer-Encoding: {pick(['chunked'] * 60 + odd)}")
        if rng.random() < 0.05:
            lines.append(f"Content-Length: {len(body)}")
        body = _chunked(rng, body)
    elif framing < 0.95:
        body = b""
    if rng.random() < 0.03:
        lines.append(" folded")
    end = pick(["\r\n"] * 60 + ["\n", "\r"])
    return (end.join(lines) + end + end).encode("latin-1") + body


def _chunked(rng: random.Random, body: bytes) -> bytes:
    out = b""
    while body:
        size = rng.choice([1, 2, 7, 100])
        part, body = body[:size], body[size:]
        style = rng.choice(["%x"] * 120 + ["%X", "00%x", "0x%x", "-%x", "%x ", "+%x", "%x;a=b"])
        out += (style % len(part)).encode() + b"\r\n" + part + b"\r\n"
    out += rng.choice([b"0"] * 60 + [b"00", b"0;x", b"", b"g"]) + b"\r\n"
    if rng.random() < 0.2:
        out += b"x-trailer: 1\r\n" * rng.choice([1, 3])
    return out + b"\r\n"


def right(rng: random.Random) -> bytes:
    """A request without anything that a server may refuse; some clients write the odder ones."""
    pick = rng.choice
    body = bytes(rng.randrange(256) for _ in range(pick([0, 1, 5, 40, 300, 4000])))
    lines = [
        f"{pick(['GET', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'PATCH'])} {pick(TARGETS)} HTTP/1.1"
    ]
    fields = [f"{pick(['Host', 'host', 'HOST'])}:{pick(['', ' ', '  '])}localhost:8710"]
    for _ in range(pick([0, 1, 3, 20])):
        name = pick(["x-a", "Accept", "Cookie", "X-Forwarded-For", "!#$%&'*+-.^_`|~0", "x" * 200])
        gap, value = pick(["", " ", chr(9)]), pick(["", "1", "a b", "a, b;q=0.5", "ü", "x" * 300])
        fields.append(f"{name}:{gap}{value}{pick(['', ' '])}")
    if rng.random() < 0.3:
        fields += [pick(["Connection: keep-alive", "Connection: Upgrade\r\nUpgrade: h2c"])]
    framing = rng.random()
    if framing < 0.4:
        fields.append(f"Content-Length: {len(body)}")
    elif framing < 0.8:
        fields.append(f"Transfer-Encoding: {pick(['chunked', 'Chunked'])}")
        parts, body = body, b""
        while parts:
            size = pick([1, 7, 100, 1000])
            style = pick(["%x", "%X", "0%x", "%x;a=b", '%x;a="b c"'])
            body += (style % len(parts[:size])).encode() + b"\r\n" + parts[:size] + b"\r\n"
            parts = parts[size:]
        body += b"0\r\n" + pick([b"", b"x-trailer: 1\r\n"]) + b"\r\n"
    else:
        body = b""
    rng.shuffle(fields)
    return ("\r\n".join(lines + fields) + "\r\n\r\n").encode("latin-1") + body


def mutated(rng: random.Random, data: bytes) -> bytes:
    """The same with a byte changed, added or left out."""
    at = rng.randrange(len(data))
    byte = bytes([rng.choice([0, 9, 10, 13, 32, 44, 48, 58, 59, 65, 127, 200, 255])])
    return rng.choice(
        [
            data[:at] + byte + data[at + 1 :],
            data[:at] + byte + data[at:],
            data[:at] + data[at + 1 :],
        ]
    )


def cut(rng: random.Random, data: bytes) -> list[bytes]:
    places = sorted(rng.randrange(len(data) + 1) for _ in range(rng.choice([0, 0, 1, 3])))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True) if a < b]


@pytest.mark.parametrize("seed", range(4))
def test_what_it_accepts_h11_reads_the_same(seed: int) -> None:
    """Where both go on, they see the same requests: same boundaries, same bodies. The server may
    refuse more than h11 does (it is stricter about line ends, folded lines and repeated fields),
    never less: a request that only one of two servers sees is how requests are smuggled.
    """

    async def run() -> tuple[int, int]:
        rng = random.Random(seed)
        accepted = refusals = 0
        for _ in range(300):
            data = b"".join(grammar(rng) for _ in range(rng.choice([1, 1, 2, 3])))
            if rng.random() < 0.4:
                data = mutated(rng, data)
            seen, refused = await ours(cut(rng, data), rng.choice([1 << 20, 1 << 20, 1000]))
            expected, _ = theirs([data])
            assert seen == expected[: len(seen)], (data, expected)
            if refused is None and len(seen) < len(expected):
                pytest.fail(f"h11 reads {len(expected)} requests, and {len(seen)} were: {data!r}")
            accepted += len(seen)
            refusals += refused is not None
        return accepted, refusals

    accepted, refusals = asyncio.run(run())
    assert accepted > 100
    assert refusals > 100


def test_what_is_right_is_accepted() -> None:
    """Every request of a pipeline, as h11 reads it; however its bytes arrive."""

    async def run() -> int:
        rng, count = random.Random(5), 0
        for _ in range(300):
            data = b"".join(right(rng) for _ in range(rng.choice([1, 1, 2, 5])))
            expected, wrong = theirs([data])
            seen, refused = await ours(cut(rng, data))
            assert not wrong, data
            assert (refused, seen) == (None, expected), data
            count += len(seen)
        return count

    assert asyncio.run(run()) > 500


def test_cuts_change_nothing() -> None:
    """However the bytes arrive, the requests are the same."""

    async def run() -> None:
        rng = random.Random(99)
        for _ in range(60):
            data = b"".join(grammar(rng) for _ in range(2))
            if rng.random() < 0.3:
                data = mutated(rng, data)
            whole = await ours([data])
            assert await ours(cut(rng, data)) == whole, data
            assert await ours([data[i : i + 1] for i in range(len(data))]) == whole, data

    asyncio.run(run())
