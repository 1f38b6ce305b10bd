"""P27: memory stays within 64 MB of its start under any framing, with and without a key."""

from __future__ import annotations

import random
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from fairwolfe.service.keys import new_key
from tests.service.raw import connect, exchange, request, status_of
from tests.service.servers import Server, config
from tests.service.test_http_fuzz import cut, grammar, mutated

MOST = 64.0  # MB
DECIDE, MODEL = "/v1/models/router/decide", "/v1/models/router"
ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.2, 0.1, 0.0, 0.3, 0.1]]
KEY, DIGEST = new_key()
HEAD = (
    'state = "state"\nlisten = "127.0.0.1:0"\n[limits]\nseconds = 3.0\n[[keys]]\nname = "web"\n'
    f'sha256 = "{DIGEST}"\nscopes = ["decide", "feedback", "read", "admin"]\n'
)
AUTH = f"authorization: Bearer {KEY}"
CHUNKED = f"POST {DECIDE} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"


class Watched:
    """A server, and how much its memory has grown at most."""

    def __init__(self, server: Server) -> None:
        self.server = server
        for _ in range(3):  # what is made once, is made before
            exchange(server, request(DECIDE, {"arms": ARMS}, AUTH))
            for path in ("/openapi.json", "/metrics", f"{MODEL}/live", "/", f"{MODEL}/history"):
                exchange(server, request(path, b"", AUTH, method="GET"))
        self.start = self._size("VmRSS")
        Path(f"/proc/{server.pid}/clear_refs").write_text("5")  # the peak begins anew

    def _size(self, name: str) -> float:
        status = Path(f"/proc/{self.server.pid}/status").read_text()
        found = re.search(rf"{name}:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) / 1000.0

    @property
    def growth(self) -> float:
        """In MB, at its peak."""
        return self._size("VmHWM") - self.start

    def serves(self) -> bool:
        (answer, _) = exchange(self.server, request(DECIDE, {"arms": ARMS}, AUTH))
        return status_of(answer) == 200


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    text = config("60 s", head=HEAD, both=False)
    with Server(tmp_path_factory.mktemp("memory"), text) as server:
        yield Watched(server)


def flood(server: Server, first: bytes, again: bytes, connections: int, seconds: float) -> int:
    """Send `first` and then `again` for ever on each of several connections, which never read, and
    are opened again where the server has closed them; how many bytes went out.
    """
    sent, end = 0, time.monotonic() + seconds
    with ExitStack() as stack:
        lines: list[socket.socket | None] = [None] * connections
        while time.monotonic() < end:
            for place, known in enumerate(lines):
                try:
                    line = known or stack.enter_context(connect(server, 5.0))
                    if known is None:
                        lines[place] = line
                        line.sendall(first)
                        line.setblocking(False)
                    sent += line.send(again)
                except BlockingIOError:
                    pass
                except OSError:
                    lines[place] = None
    return sent


def head(*lines: str, key: bool) -> bytes:
    shown = (AUTH,) if key else ()
    return CHUNKED.encode() + "".join(f"{line}\r\n" for line in (*shown, *lines)).encode()


ATTACKS: dict[str, Callable[[bool], tuple[bytes, bytes]]] = {
    "trailers": lambda key: (
        head("transfer-encoding: chunked", key=key) + b"\r\n0\r\n",
        b"x-filler: " + b"y" * 8000 + b"\r\n",
    ),
    "small trailers": lambda key: (
        head("transfer-encoding: chunked", key=key) + b"\r\n0\r\n",
        b"".join(b"a%d: b\r\n" % (i % 10) for i in range(9000)),
    ),
    "one endless trailer": lambda key: (
        head("transfer-encoding: chunked", key=key) + b"\r\n0\r\nx: ",
        b"y" * 65536,
    ),
    "an endless chunk extension": lambda key: (
        head("transfer-encoding: chunked", key=key) + b"\r\n1;x=",
        b"y" * 65536,
    ),
    "chunks of two bytes": lambda key: (
        head("transfer-encoding: chunked", key=key) + b"\r\n",
        b"2\r\n  \r\n" * 9000,
    ),
    "chunks of 4 kB": lambda key: (
        head("transfer-encoding: chunked", key=key) + b"\r\n",
        (b"1000\r\n" + b" " * 4096 + b"\r\n") * 16,
    ),
    "an upgrade with an endless body": lambda key: (
        head("connection: upgrade", "upgrade: h2c", "content-length: 1048576", key=key) + b"\r\n",
        b" " * 65536,
    ),
    "an upgrade with endless trailers": lambda key: (
        head("connection: upgrade", "upgrade: h2c", "transfer-encoding: chunked", key=key)
        + b"\r\n0\r\n",
        b"x-filler: y\r\n" * 5000,
    ),
    "an endless body": lambda key: (
        head("content-length: 9000000000000", key=key) + b"\r\n",
        b" " * 65536,
    ),
    "bodies just below the limit": lambda key: (
        head("content-length: 1048576", key=key) + b"\r\n",
        b" " * 65536,
    ),
    "an endless header": lambda key: (head(key=key) + b"x: ", b"y" * 65536),
    "endless headers": lambda key: (head(key=key), b"x-filler: y\r\n" * 5000),
    "an endless target": lambda key: (b"GET /", b"y" * 65536),
    "endless empty lines": lambda key: (b"\r\n", b"\r\n" * 30_000),
    "a pipeline that is not read": lambda key: (
        b"",
        request("/openapi.json", b"", *((AUTH,) if key else ()), method="GET") * 300,
    ),
    "a pipeline of questions that is not read": lambda key: (
        b"",
        request(DECIDE, {"arms": ARMS}, *((AUTH,) if key else ())) * 100,
    ),
    "nonsense": lambda key: (b"", bytes(range(256)) * 100),
}


@pytest.mark.parametrize("key", [False, True], ids=["no key", "a key"])
@pytest.mark.parametrize("name", ATTACKS)
def test_memory_is_bounded_under(watched: Watched, name: str, key: bool) -> None:
    first, again = ATTACKS[name](key)
    sent = flood(watched.server, first, again, connections=40, seconds=0.75)
    assert sent > 100_000
    assert watched.growth < MOST
    assert watched.serves()


def test_memory_is_bounded_with_parts_on_many_connections(watched: Watched) -> None:
    """Each is within its own bounds; together they would be 120 MB."""
    with ExitStack() as stack:
        lines = [stack.enter_context(connect(watched.server)) for _ in range(400)]
        for line in lines:
            with suppress(OSError):
                line.sendall(head("content-length: 1000000", key=True) + b"\r\n" + b" " * 300_000)
        assert watched.growth < MOST
        assert watched.serves()


def test_memory_is_bounded_with_bodies_of_small_chunks(tmp_path: Path) -> None:
    """20 bodies of 1 MB in chunks of two bytes cost 30 times what was counted of them."""
    body = b"2\r\n  \r\n" * (2**19 - 8)
    text = config("60 s", head=HEAD.replace("seconds = 3.0", "seconds = 10.0"), both=False)
    with Server(tmp_path, text) as server, ExitStack() as stack:
        watched = Watched(server)

        def send(line: socket.socket) -> None:
            with suppress(OSError):
                line.sendall(head("transfer-encoding: chunked", key=True) + b"\r\n" + body)

        lines = [stack.enter_context(connect(server)) for _ in range(20)]
        threads = [threading.Thread(target=send, args=(line,)) for line in lines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        time.sleep(1.0)
        assert watched.growth < MOST
        assert watched.serves()


def test_memory_is_bounded_with_refusals_of_long_names(watched: Watched) -> None:
    """Refusals that quoted 1 MB each were kept, 6 MB for each: 96 would be 0.5 GB."""
    for i in range(96):
        body = b'{"%06d%s": 1}' % (i, b"x" * 1_000_000)
        (answer, _) = exchange(watched.server, request(f"{MODEL}/feedback", body, AUTH))
        assert status_of(answer) == 422
        assert len(answer) < 1000
    assert watched.growth < MOST


def test_memory_is_bounded_with_answers_that_nobody_reads(watched: Watched) -> None:
    """Of 30 kB each, on 200 connections that ask for 40 of them: 240 MB."""
    asked = request("/openapi.json", b"", AUTH, method="GET") * 40
    with ExitStack() as stack:
        for _ in range(200):
            line = stack.enter_context(connect(watched.server))
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            with suppress(OSError):
                line.sendall(asked)
        time.sleep(1.0)
        assert watched.growth < MOST
        assert watched.serves()


def test_memory_is_bounded_with_idle_connections(watched: Watched) -> None:
    with ExitStack() as stack:
        for _ in range(900):
            stack.enter_context(connect(watched.server))
        assert watched.growth < MOST
        assert watched.serves()


def fuzz(server: Server, seconds: float, seed: int) -> int:
    """Random requests, malformed for the most part; how many."""
    rng, count = random.Random(seed), 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = b"".join(grammar(rng) for _ in range(rng.choice([1, 1, 5])))
        if rng.random() < 0.3:
            data = data.replace(b"Host:", f"{AUTH}\r\nHost:".encode())
        for _ in range(rng.choice([0, 1, 3])):
            data = mutated(rng, data)
        if rng.random() < 0.1:
            data *= rng.choice([10, 200])
        with suppress(OSError), connect(server, 5.0) as connection:
            for part in cut(rng, data):
                connection.sendall(part)
            if rng.random() < 0.5:
                connection.settimeout(0.05)
                connection.recv(65536)
        count += 1
    return count


@pytest.mark.parametrize(
    "seconds", [20.0, pytest.param(600.0, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_memory_is_bounded_under_random_requests(watched: Watched, seconds: float) -> None:
    count = fuzz(watched.server, seconds, seed=7)
    print(f"{count} requests in {seconds:g} s: memory grew by {watched.growth:.1f} MB at most")
    assert count > 100
    assert watched.growth < MOST
    assert watched.serves()
    assert not [one for one in watched.server.complaints() if one.get("event") != "refused"]
