"""The HTTP server keeps to HTTP: framing, order, keep-alive, limits, upgrades, hosts, its end."""

from __future__ import annotations

import gzip
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from fairwolfe.service.keys import new_key
from tests.service.raw import body_of, connect, exchange, read_answer, request, status_of
from tests.service.servers import Server, config, wait_for

DECIDE, FEEDBACK = "/v1/models/router/decide", "/v1/models/router/feedback"
MANY, FRONT = "/v1/models/router/decide_many", "/v1/models/front/decide"
ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.2, 0.1, 0.0, 0.3, 0.1]]
ITEMS = {"items": [{"key": k, "features": [0.1 * i, 0.2, 0.1, 0.0]} for i, k in enumerate("abcd")]}
KEY, DIGEST = new_key()
READER, READER_DIGEST = new_key()
SLOW, SLOW_DIGEST = new_key()
HEAD = (
    'state = "state"\nlisten = "127.0.0.1:0"\n[limits]\nbody = "32 KiB"\nseconds = 2.0\n'
    f'[[keys]]\nname = "web"\nsha256 = "{DIGEST}"\nscopes = ["decide", "feedback", "admin"]\n'
    f'[[keys]]\nname = "reader"\nsha256 = "{READER_DIGEST}"\nscopes = ["read"]\n'
    f'[[keys]]\nname = "slow"\nsha256 = "{SLOW_DIGEST}"\nscopes = ["decide"]\nrate = 0.01\n'
)
AUTH, READ = f"authorization: Bearer {KEY}", f"authorization: Bearer {READER}"
PACKED = "application/msgpack"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("http"), config("60 s", head=HEAD)) as one:
        one.post("/v1/models/front/items", ITEMS, authorization=f"Bearer {KEY}")
        yield one


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def chunked(*parts: bytes, end: bytes = b"0\r\n\r\n", coding: str = "chunked") -> bytes:
    head = f"POST {DECIDE} HTTP/1.1\r\nhost: localhost\r\n{AUTH}\r\ncontent-type: application/json"
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)
    return f"{head}\r\ntransfer-encoding: {coding}\r\n\r\n".encode() + body + end


ONE = request(DECIDE, {"arms": ARMS}, AUTH)
BODY = b'{"arms": [[0.1,0.1,0.1,0.1,0.1]]}'

# What is sent, the statuses of the answers, and whether the connection is closed after them.
SENT: dict[str, tuple[bytes, list[int], bool]] = {
    "decide": (ONE, [200], False),
    "rank": (request(FRONT, {"user": [0.1] * 4}, AUTH), [200], False),
    "packed": (
        request(DECIDE, packed({"arms": ARMS}), AUTH, f"accept: {PACKED}", form=PACKED),
        [200],
        False,
    ),
    "many": (request(MANY, {"requests": [{"arms": ARMS}] * 3}, AUTH), [200], False),
    "an entry alone": (
        request(FEEDBACK, {"id": "x", "rewards": {"clicks": 1}}, AUTH),
        [200],
        False,
    ),
    "not JSON": (request(DECIDE, b"{", AUTH), [422], False),
    "empty": (request(DECIDE, b"", AUTH), [422], False),
    "wrong d": (request(DECIDE, {"arms": [[0.1]]}, AUTH), [422], False),
    "another type": (request(DECIDE, b"arms", AUTH, form="text/plain"), [415], False),
    "no type": (request(DECIDE, {"arms": ARMS}, AUTH, form=""), [415], False),
    "a type with a charset": (
        request(DECIDE, {"arms": ARMS}, AUTH, form="Application/JSON; charset=utf-8"),
        [200],
        False,
    ),
    "gzip": (
        request(DECIDE, gzip.compress(BODY), AUTH, "content-encoding: gzip"),
        [415],
        False,
    ),
    "identity": (request(DECIDE, BODY, AUTH, "content-encoding: identity"), [200], False),
    "too large": (request(DECIDE, b" " * 200_000, AUTH), [413], True),
    "too large, then a question": (request(DECIDE, b" " * 200_000, AUTH) + ONE, [413], True),
    "too large, in chunks": (chunked(*[b" " * 8_000] * 30), [413], True),
    "in chunks": (chunked(BODY[:9], BODY[9:]), [200], False),
    "chunks with extensions and trailers": (
        chunked(end=b"%x;a=b\r\n%s\r\n0;c\r\nx-trailer: 1\r\n\r\n" % (len(BODY), BODY)),
        [200],
        False,
    ),
    "no key": (request(DECIDE, {"arms": ARMS}), [401], False),
    "an unknown key": (request(DECIDE, {"arms": ARMS}, "authorization: Bearer x"), [401], False),
    "a key for reading": (request(DECIDE, {"arms": ARMS}, READ), [403], False),
    "two keys": (request(DECIDE, {"arms": ARMS}, AUTH, READ), [400], True),
    "close": (request(DECIDE, {"arms": ARMS}, AUTH, "connection: close"), [200], True),
    "close, then more": (request(DECIDE, BODY, AUTH, "connection: close") + ONE, [200], True),
    "close what is refused": (request(DECIDE, b"{", AUTH, "Connection: Close"), [422], True),
    "HTTP/1.0": (request(DECIDE, {"arms": ARMS}, AUTH, version="1.0"), [200], True),
    "HTTP/2.0": (request(DECIDE, {"arms": ARMS}, AUTH, version="2.0"), [505], True),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", [400], True),
    "chunks in HTTP/1.0": (chunked(BODY).replace(b"HTTP/1.1", b"HTTP/1.0"), [501], True),
    "another coding": (chunked(BODY, coding="gzip, chunked"), [501], True),
    "another method": (request(DECIDE, b"", AUTH, method="PUT"), [405], False),
    "another model": (request("/v1/models/nobody/decide", {"arms": ARMS}, AUTH), [404], False),
    "another path": (request("/v1/nothing", {"arms": ARMS}, AUTH), [404], False),
    "an escaped path": (request("/v1/models/%72outer/decide", {"arms": ARMS}, AUTH), [200], False),
    "a query": (request(DECIDE + "?a=b", {"arms": ARMS}, AUTH), [200], False),
    "a slash": (request(DECIDE + "/", {"arms": ARMS}, AUTH), [404], False),
    "an absolute target": (request("http://x" + DECIDE, {"arms": ARMS}, AUTH), [200], False),
    "three in a row": (ONE * 3, [200] * 3, False),
    "forty in a row": (ONE * 40, [200] * 40, False),
    "a pipeline of all kinds": (
        ONE
        + request("/healthz", b"", READ, method="GET")
        + request(DECIDE, b"{", AUTH)
        + request(FEEDBACK, [{"id": "x", "rewards": {"clicks": 1}}], AUTH)
        + request("/v1/models/nobody", b"", READ, method="GET"),
        [200, 200, 422, 200, 404],
        False,
    ),
    "a question, then nonsense": (ONE + b"decide!\r\n\r\n", [200, 400], True),
    "an upgrade": (
        request(DECIDE, {"arms": ARMS}, AUTH, "connection: upgrade", "upgrade: h2c") + ONE,
        [200, 200],
        False,
    ),
    "an upgrade in chunks": (
        chunked(BODY).replace(
            b"\r\ntransfer", b"\r\nconnection: Upgrade\r\nupgrade: h2c\r\ntransfer"
        ),
        [200],
        False,
    ),
    "an upgrade without a body": (
        request("/healthz", b"", READ, "connection: upgrade", "upgrade: websocket", method="GET"),
        [200],
        False,
    ),
    "a tunnel": (b"CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\n\r\nabc", [400], True),
    "a large head": (request(DECIDE, {"arms": ARMS}, AUTH, "x: " + "x" * 20_000), [431], True),
    "a long target": (request("/" + "x" * 20_000, b"", AUTH), [431], True),
    "many fields": (request(DECIDE, BODY, AUTH, *["x-a: b"] * 3_000), [431], True),
    "two hosts": (request(DECIDE, BODY, AUTH, "host: localhost"), [400], True),
    "no host": (ONE.replace(b"host: localhost\r\n", b""), [400], True),
    "two sizes": (request(DECIDE, BODY, AUTH, "content-length: 3"), [400], True),
    "a size and chunks": (request(DECIDE, BODY, AUTH, "transfer-encoding: chunked"), [400], True),
    "an odd expectation": (request(DECIDE, BODY, AUTH, "expect: tea"), [417], False),
    "not HTTP": (b"decide!\r\n\r\n", [400], True),
}


@pytest.mark.parametrize("name", SENT)
def test_each_request_has_one_answer(server: Server, name: str) -> None:
    sent, statuses, closed = SENT[name]
    answers = exchange(server, sent, answers=len(statuses))
    assert [status_of(answer) for answer in answers[:-1]] == statuses
    assert answers[-1] == (b"" if closed else b"open")
    for answer in answers[:-1]:
        if status_of(answer) >= 400:
            assert set(body_of(answer)) == {"error", "message", "field"}
    assert (b"\r\nconnection: close\r\n" in answers[-2]) == closed


@pytest.mark.parametrize("name", ["decide", "in chunks", "an upgrade in chunks"])
def test_a_request_in_two_parts(server: Server, name: str) -> None:
    whole = SENT[name][0]
    for at in (1, 20, whole.index(b"\r\n\r\n") + 4, len(whole) - 1):
        answers = exchange(server, whole[:at], whole[at:], pause=0.03)
        assert status_of(answers[0]) == 200
        assert answers[1] == b"open"


def test_the_body_of_an_upgrade_is_not_the_next_request(server: Server) -> None:
    """A body in a second segment was parsed as a request of its own."""
    inner = request("/v1/admin/snapshot", b"", AUTH)
    head = request(DECIDE, inner, "connection: upgrade", "upgrade: h2c")  # without a key
    at = head.index(b"\r\n\r\n") + 4
    answers = exchange(server, head[:at], head[at:], pause=0.05)
    assert [status_of(answer) for answer in answers[:-1]] == [401]


def test_the_body_of_an_upgrade_does_not_swallow_the_next_request(server: Server) -> None:
    """It was parsed as a request that took the Authorization of the one behind it."""
    inner = b"GET /v1/models HTTP/1.1\r\nhost: localhost\r\nx: "
    whole = request(DECIDE, inner, AUTH, "connection: upgrade", "upgrade: h2c")
    at = whole.index(b"\r\n\r\n") + 4
    answers = exchange(server, whole[:at], whole[at:], ONE, pause=0.1, answers=2)
    assert [status_of(answer) for answer in answers[:-1]] == [422, 200]
    assert "id" in body_of(answers[1])


def test_head_is_get_without_a_body(server: Server) -> None:
    for path in ("/healthz", "/v1/models", "/v1/models/nobody"):
        head = read_head(server, request(path, b"", READ, method="HEAD"))
        got = exchange(server, request(path, b"", READ, method="GET"))[0]
        assert head == got.partition(b"\r\n\r\n")[0]


def test_a_head_takes_no_place_in_the_stream(server: Server) -> None:
    """There are 50 places."""
    for _ in range(60):
        head = read_head(server, request("/v1/models/router/stream", b"", READ, method="HEAD"))
        assert status_of(head) == 200
        assert b"text/event-stream" in head
    with connect(server) as connection:
        connection.sendall(request("/v1/models/router/stream", b"", READ, method="GET"))
        assert connection.recv(12) == b"HTTP/1.1 200"


def read_head(server: Server, sent: bytes) -> bytes:
    """An answer without a body: what comes before the connection is closed by the client."""
    with connect(server) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        got = b""
        while part := connection.recv(65536):
            got += part
    head, _, body = got.partition(b"\r\n\r\n")
    assert body == b""
    return head.replace(b"\r\nconnection: close", b"")


def test_who_closes_half_of_a_connection_is_answered(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(ONE * 2)
        connection.shutdown(socket.SHUT_WR)
        kept = bytearray()
        assert [status_of(read_answer(connection, kept)) for _ in range(2)] == [200, 200]
        assert connection.recv(1) == b""


def test_expect_is_answered_first(server: Server) -> None:
    whole = request(DECIDE, {"arms": ARMS}, AUTH, "expect: 100-continue")
    at = whole.index(b"\r\n\r\n") + 4
    with connect(server) as connection:
        connection.sendall(whole[:at])
        kept = bytearray()
        assert read_answer(connection, kept).startswith(b"HTTP/1.1 100 ")
        connection.sendall(whole[at:])
        assert status_of(read_answer(connection, kept)) == 200
    large = request(DECIDE, b" " * 100_000, AUTH, "expect: 100-continue")
    at = large.index(b"\r\n\r\n") + 4
    answers = exchange(server, large[:at])  # refused before its body is sent
    assert [status_of(answers[0]), answers[1]] == [413, b""]


def test_a_rate_counts_every_request_of_a_connection(server: Server) -> None:
    once = request(DECIDE, {"arms": ARMS}, f"authorization: Bearer {SLOW}")
    answers = exchange(server, once * 3, answers=3)
    assert [status_of(answer) for answer in answers[:3]] == [200, 429, 429]


def test_who_is_too_slow_is_let_go(server: Server) -> None:
    for at in (20, len(ONE) - 5):  # in the head, in the body
        answers = exchange(server, ONE[:at])
        assert status_of(answers[0]) == 408
        assert b"\r\nconnection: close\r\n" in answers[0]
        assert answers[1] == b""
    with connect(server) as silent:
        assert silent.recv(1) == b""  # nothing was ever sent
    with connect(server, timeout=30.0) as dripping:  # a part now and then does not help
        kept = bytearray()
        dripping.settimeout(0.2)
        for place in range(60):
            try:
                dripping.sendall(ONE[place : place + 1])
                kept += dripping.recv(65536)
                break
            except TimeoutError:
                continue
        assert status_of(bytes(kept)) == 408


def test_answers_that_nobody_reads_are_let_go(server: Server) -> None:
    """They are held for as long as a request may take to arrive, and no longer."""
    with connect(server) as greedy:
        greedy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        greedy.settimeout(1.0)
        with suppress(TimeoutError, ConnectionError):  # about 30 MB of answers
            greedy.sendall(request("/openapi.json", b"", READ, method="GET") * 400)
        wait_for(lambda: metric(server, "arriving_bytes") > 0.0)
        wait_for(lambda: metric(server, "arriving_bytes") == 0.0)
        greedy.settimeout(20.0)
        with pytest.raises(ConnectionError):
            deque(iter(partial(greedy.recv, 65536), b""), maxlen=0)


def metric(server: Server, name: str) -> float:
    text = server.get("/metrics", authorization=f"Bearer {READER}").decode()
    (line,) = [one for one in text.splitlines() if one.startswith(f"fairwolfe_{name} ")]
    return float(line.split()[1])


def test_who_hangs_up_leaves_nothing_behind(server: Server) -> None:
    for at in (5, len(ONE) - 5):
        with connect(server) as connection:
            connection.sendall(ONE[:at])
            time.sleep(0.05)
    wait_for(lambda: metric(server, "under_way") == 1.0)  # the scrape itself
    assert metric(server, "arriving_bytes") == metric(server, "waiting_bytes") == 0.0


def test_keep_alive_ends(tmp_path: Path) -> None:
    impatient = Server(tmp_path, config(both=False), "tests.service.impatient")
    with impatient as server, connect(server) as connection:
        connection.sendall(request(DECIDE, {"arms": ARMS}))
        assert status_of(read_answer(connection, bytearray())) == 200
        assert connection.recv(1) == b""  # after a second without a request


def test_an_end_answers_everything_that_was_accepted(tmp_path: Path) -> None:
    whole = request(DECIDE, {"arms": ARMS})
    with Server(tmp_path, config(both=False)) as server:
        idle, half, waiting = (connect(server) for _ in range(3))
        half.sendall(whole[:-5])
        wait_for(lambda: server.metric("arriving_bytes") > 0.0)
        pid = server.pid
        os.kill(pid, signal.SIGSTOP)
        waiting.sendall(whole * 3)  # a pipeline
        unaccepted = connect(server)  # by the system only
        unaccepted.sendall(whole)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
        half.sendall(whole[-5:])
        kept = bytearray()
        answers = [read_answer(one, bytearray()) for one in (half, unaccepted)]
        answers += [read_answer(waiting, kept) for _ in range(3)]
        assert [status_of(answer) for answer in answers] == [200] * 5
        for one in (idle, half, waiting, unaccepted):
            assert one.recv(1) == b""
            one.close()
        assert server.ended() == 0
        server.start()
        for answer in answers:  # what was acknowledged is there
            server.get(f"/v1/models/router/decisions/{body_of(answer)['id']}")


def test_an_end_under_load_resets_nobody(tmp_path: Path) -> None:
    """Clients that ask again and again on a connection are answered, until an answer says that it
    is the last.
    """
    whole = request(DECIDE, {"arms": ARMS})
    seen: list[str] = []

    def ask(connection: socket.socket) -> None:
        kept, answer = bytearray(), b""
        try:
            while b"\r\nconnection: close\r\n" not in answer:
                connection.sendall(whole)
                answer = read_answer(connection, kept)
                seen.append(str(status_of(answer)) if answer else "no answer")
        except (OSError, IndexError) as error:
            seen.append(type(error).__name__)
        connection.close()

    with Server(tmp_path, config(both=False)) as server:
        for _ in range(3):
            threads = [threading.Thread(target=ask, args=(connect(server),)) for _ in range(8)]
            for thread in threads:
                thread.start()
            time.sleep(0.7)
            assert server.stop() == 0
            for thread in threads:
                thread.join(30)
            server.start()
        assert set(seen) == {"200"}
        assert server.get("/v1/models/router")["decisions"] == len(seen)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example"])
def test_a_page_of_another_site_cannot_reach_a_service_without_keys(
    tmp_path: Path, host: str
) -> None:
    """DNS rebinding: a browser sends the name that its page came from."""
    with Server(tmp_path, 'hosts = ["shop.test"]\n' + config(both=False)) as server:
        asked = request(DECIDE, {"arms": ARMS}).replace(
            b"host: localhost", f"host: {host}".encode()
        )
        answer, end = exchange(server, asked)
        assert status_of(answer) == 421
        assert body_of(answer)["field"] == "host"
        assert host.partition(":")[0] in body_of(answer)["message"]
        assert end == b"open"
        change = {"objective": "Minimum()"}
        for method, path, body, *more in (
            ("GET", "/", b""),
            ("GET", "/v1/models", b""),
            ("GET", "/v1/admin/backup", b""),
            ("POST", "/v1/admin/snapshot", b""),
            ("PUT", "/v1/models/router/objective", change, "if-match: *"),
        ):
            asked = request(path, body, *more, method=method)
            asked = asked.replace(b"host: localhost", f"host: {host}".encode())
            assert status_of(exchange(server, asked)[0]) == 421, path
        known = server.get("/v1/models/router")
        assert (known["decisions"], known["version"]) == (0, 0)
        port = urlsplit(server.url).port
        for good in (f"127.0.0.1:{port}", "LOCALHOST", "[::1]:80", "shop.test", "127.0.0.9"):
            named = f"host: {good}".encode()
            asked = request(DECIDE, {"arms": ARMS}).replace(b"host: localhost", named)
            assert status_of(exchange(server, asked)[0]) == 200
        absolute = request("http://evil.example" + DECIDE, {"arms": ARMS})
        assert status_of(exchange(server, absolute)[0]) == 421


def test_https(tmp_path: Path) -> None:
    files = [tmp_path / "cert.pem", tmp_path / "key.pem"]
    made = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        *("-out", str(files[0]), "-keyout", str(files[1])),
    ]
    subprocess.run(made, check=True, capture_output=True)
    text = config(both=False) + '[tls]\ncertificate = "cert.pem"\nkey = "key.pem"\n'
    server = Server(tmp_path, text)
    with server:
        assert server.url.startswith("https://")
        parts = urlsplit(server.url)
        context = ssl.create_default_context(cafile=str(files[0]))
        for _ in range(2):
            plain = socket.create_connection((parts.hostname or "", parts.port or 0), timeout=20)
            with context.wrap_socket(plain, server_hostname="localhost") as connection:
                kept = bytearray()
                for _ in range(3):
                    connection.sendall(request(DECIDE, {"arms": ARMS}))
                    assert status_of(read_answer(connection, kept)) == 200
        assert server.stop() == 0


def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    (tmp_path / "cert.pem").write_text("no")
    text = config(both=False) + '[tls]\ncertificate = "cert.pem"\nkey = "key.pem"\n'
    (tmp_path / "config.toml").write_text(text)
    command = [sys.executable, "-m", "fairwolfe", "serve", str(tmp_path / "config.toml")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 2
    assert "cert.pem" in ran.stderr
    assert "PEM files that belong together" in ran.stderr.replace("\n", " ")
