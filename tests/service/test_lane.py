"""The lane answers as its ASGI twin does, byte for byte, and keeps to what HTTP says."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from socket import socketpair
from typing import Any

import msgspec
import pytest
import uvicorn
from uvicorn.protocols.http import httptools_impl
from uvicorn.server import ServerState

from fairwolfe.service.config import parse
from fairwolfe.service.keys import new_key
from fairwolfe.service.lane import lane_of
from fairwolfe.service.routes import Service, application
from fairwolfe.service.serve import open_service
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
    'state = "state"\nlisten = "127.0.0.1:0"\n[limits]\nbody = "32 KiB"\nseconds = 1.0\n'
    f'[[keys]]\nname = "web"\nsha256 = "{DIGEST}"\nscopes = ["decide", "feedback", "admin"]\n'
    f'[[keys]]\nname = "reader"\nsha256 = "{READER_DIGEST}"\nscopes = ["read"]\n'
    f'[[keys]]\nname = "slow"\nsha256 = "{SLOW_DIGEST}"\nscopes = ["decide"]\nrate = 0.1\n'
)
AUTH = f"authorization: Bearer {KEY}"
PACKED = "application/msgpack"


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Two servers over copies of one state: with the lane, and without."""
    first = tmp_path_factory.mktemp("lane")
    text = config("20 s", head=HEAD)
    with Server(first, text) as server:
        server.post("/v1/models/front/items", ITEMS, authorization=f"Bearer {KEY}")
        assert server.stop() == 0
    second = tmp_path_factory.mktemp("twin")
    shutil.copytree(first / "state", second / "state")
    with Server(first, text) as lane, Server(second, "lane = false\n" + text) as twin:
        yield lane, twin


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def chunked(path: str, *parts: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nhost: here\r\n{AUTH}\r\ncontent-type: application/json\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (*parts, b""))
    return (head + "transfer-encoding: chunked\r\n\r\n").encode() + body


# What is sent, and how many answers there are.
SENT: dict[str, tuple[bytes, int]] = {
    "decide": (request(DECIDE, {"arms": ARMS}, AUTH), 1),
    "rank": (request(FRONT, {"user": [0.1] * 4}, AUTH), 1),
    "explain": (request(FRONT, {"user": [0.1] * 4, "explain": True}, AUTH), 1),
    "with an id": (request(DECIDE, {"arms": ARMS, "request_id": "a"}, AUTH), 1),
    "the same again": (request(DECIDE, {"arms": ARMS, "request_id": "a"}, AUTH), 1),
    "another under that id": (request(DECIDE, {"arms": ARMS[:1], "request_id": "a"}, AUTH), 1),
    "packed": (
        request(DECIDE, packed({"arms": ARMS}), AUTH, f"accept: {PACKED}", form=PACKED),
        1,
    ),
    "packed, answered as JSON": (request(DECIDE, packed({"arms": ARMS}), AUTH, form=PACKED), 1),
    "many": (request(MANY, {"requests": [{"arms": ARMS}] * 3}, AUTH), 1),
    "no questions": (request(MANY, {"requests": []}, AUTH), 1),
    "feedback for nothing": (
        request(FEEDBACK, [{"id": "x", "rewards": {"clicks": 1}}], AUTH),
        1,
    ),
    "an entry alone": (request(FEEDBACK, {"id": "x", "rewards": {"clicks": 1}}, AUTH), 1),
    "feedback without numbers": (request(FEEDBACK, [{"id": "x"}], AUTH), 1),
    "not JSON": (request(DECIDE, b"{", AUTH), 1),
    "empty": (request(DECIDE, b"", AUTH), 1),
    "wrong d": (request(DECIDE, {"arms": [[0.1]]}, AUTH), 1),
    "another type": (request(DECIDE, b"arms", AUTH, form="text/plain"), 1),
    "no type": (request(DECIDE, {"arms": ARMS}, AUTH, form=""), 1),
    "a type with a charset": (
        request(DECIDE, {"arms": ARMS}, AUTH, form="Application/JSON; charset=utf-8"),
        1,
    ),
    "too large": (request(DECIDE, b" " * 40_000, AUTH), 1),
    "too large, in chunks": (chunked(DECIDE, *[b" " * 8_000] * 5), 1),
    "in chunks": (chunked(DECIDE, b'{"arms": [[0.1,0.1,', b"0.1,0.1,0.1]]}"), 1),
    "no key": (request(DECIDE, {"arms": ARMS}), 1),
    "an unknown key": (request(DECIDE, {"arms": ARMS}, "authorization: Bearer x"), 1),
    "a key for reading": (request(DECIDE, {"arms": ARMS}, f"authorization: Bearer {READER}"), 1),
    "two keys": (request(DECIDE, {"arms": ARMS}, AUTH, "authorization: Bearer x"), 1),
    "once": (request(DECIDE, {"arms": ARMS}, f"authorization: Bearer {SLOW}"), 1),
    "too fast": (request(DECIDE, {"arms": ARMS}, f"authorization: Bearer {SLOW}"), 1),
    "close": (request(DECIDE, {"arms": ARMS}, AUTH, "connection: close"), 1),
    "close what is refused": (request(DECIDE, b"{", AUTH, "Connection: Close"), 1),
    "HTTP/1.0": (request(DECIDE, {"arms": ARMS}, AUTH, version="1.0"), 1),
    "HTTP/1.0, kept alive": (
        request(DECIDE, {"arms": ARMS}, AUTH, "connection: keep-alive", version="1.0"),
        1,
    ),
    "another method": (request(DECIDE, b"", AUTH, method="PUT"), 1),
    "another model": (request("/v1/models/nobody/decide", {"arms": ARMS}, AUTH), 1),
    "an escaped path": (request("/v1/models/%72outer/decide", {"arms": ARMS}, AUTH), 1),
    "a query": (request(DECIDE + "?a=b", {"arms": ARMS}, AUTH), 1),
    "a slash": (request(DECIDE + "/", {"arms": ARMS}, AUTH), 1),
    "three in a row": (request(DECIDE, {"arms": ARMS}, AUTH) * 3, 3),
    "a pipeline of both ways": (
        request(DECIDE, {"arms": ARMS}, AUTH)
        + request("/healthz", b"", f"authorization: Bearer {READER}", method="GET")
        + request(DECIDE, b"{", AUTH)
        + request(FEEDBACK, [{"id": "x", "rewards": {"clicks": 1}}], AUTH)
        + request("/v1/models/nobody", b"", AUTH, method="GET"),
        5,
    ),
    "refused, then a question": (
        request(DECIDE, b" " * 40_000, AUTH) + request(DECIDE, {"arms": ARMS}, AUTH),
        2,
    ),
    "an upgrade": (
        request(DECIDE, {"arms": ARMS}, AUTH, "connection: upgrade", "upgrade: h2c"),
        1,
    ),
    "a large head": (request(DECIDE, {"arms": ARMS}, AUTH, "x-filler: " + "x" * 20_000), 1),
    "not HTTP": (b"decide!\r\n\r\n", 1),
}


@pytest.mark.parametrize("name", SENT)
def test_the_lane_and_its_twin_answer_alike(twins: tuple[Server, Server], name: str) -> None:
    sent, answers = SENT[name]
    lane, twin = (exchange(server, sent, answers=answers) for server in twins)
    assert lane == twin
    assert all(lane[:-1])


def test_a_body_that_comes_in_parts(twins: tuple[Server, Server]) -> None:
    whole = request(DECIDE, {"arms": ARMS}, AUTH)
    for cut in (10, len(whole) - 30, len(whole) - 1):
        lane, twin = (exchange(s, whole[:cut], whole[cut:], pause=0.05) for s in twins)
        assert lane == twin
        assert status_of(lane[0]) == 200


# What comes on one connection after a first question; the lane knows the head of these by then.
AGAIN: dict[str, tuple[bytes, ...]] = {
    "another body": (request(DECIDE, {"arms": ARMS[::-1]}, AUTH),),
    "of another size": (request(DECIDE, {"arms": ARMS * 3}, AUTH),),
    "of a size with more digits": (request(DECIDE, {"arms": ARMS * 20}, AUTH),),
    "not JSON": (request(DECIDE, b"{", AUTH), request(DECIDE, {"arms": ARMS}, AUTH)),
    "empty": (request(DECIDE, b"", AUTH),),
    "too large": (request(DECIDE, b" " * 40_000, AUTH),),
    "another path": (request(FRONT, {"user": [0.1] * 4}, AUTH),) * 2,
    "a path that begins alike": (request(MANY, {"requests": [{"arms": ARMS}]}, AUTH),) * 2,
    "another key": (request(DECIDE, {"arms": ARMS}, f"authorization: Bearer {READER}"),) * 2,
    "no key": (request(DECIDE, {"arms": ARMS}),),
    "a header more": (request(DECIDE, {"arms": ARMS}, AUTH, "x-more: 1"),),
    "another type": (request(DECIDE, packed({"arms": ARMS}), AUTH, form=PACKED),) * 2,
    "no size": (request(DECIDE, b"", AUTH).replace(b"content-length", b"x-length"),),
    "a size that is none": (
        request(DECIDE, {"arms": ARMS}, AUTH).replace(b"-length: ", b"-length: -"),
    ),
    "a long size": (
        request(DECIDE, {"arms": ARMS}, AUTH).replace(b"-length: ", b"-length: 000000000"),
    ),
    "two in one piece": (request(DECIDE, {"arms": ARMS}, AUTH) * 2, b""),
    "in chunks": (chunked(DECIDE, b'{"arms": [[0.1,0.1,', b"0.1,0.1,0.1]]}"),) * 2,
    "close": (request(DECIDE, {"arms": ARMS}, AUTH, "connection: close"),),
    "by ASGI, then again": (
        request("/v1/models/nobody", b"", AUTH, method="GET"),
        request(DECIDE, {"arms": ARMS}, AUTH),
    ),
    "not HTTP": (b"decide!\r\n\r\n",),
}


@pytest.mark.parametrize("name", AGAIN)
def test_a_head_that_is_known_is_answered_alike(twins: tuple[Server, Server], name: str) -> None:
    lane, twin = (_in_turn(server, *AGAIN[name]) for server in twins)
    assert lane == twin
    assert all(lane)


def test_a_known_head_that_comes_in_parts(twins: tuple[Server, Server]) -> None:
    whole = request(DECIDE, {"arms": ARMS}, AUTH)
    for cut in (1, 8, len(whole) - 90, whole.index(b"\r\n\r\n") + 4, len(whole) - 1):
        lane, twin = (_in_turn(server, whole[:cut], whole[cut:], pause=0.05) for server in twins)
        assert lane == twin
        assert [status_of(answer) for answer in lane] == [200, 200]


def test_a_rate_counts_what_has_a_known_head(twins: tuple[Server, Server]) -> None:
    slow = request(DECIDE, {"arms": ARMS}, f"authorization: Bearer {SLOW}")
    for server in twins:  # the key may ask once in ten seconds
        answers = _in_turn(server, slow, slow, slow)
        assert 429 in [status_of(answer) for answer in answers[1:3]]
        assert [status_of(answer) for answer in (answers[0], answers[3])] == [200, 429]


def _in_turn(server: Server, *sent: bytes, pause: float = 0.0) -> list[bytes]:
    """The answers to a question and to what comes after it, one by one or, with a pause, in parts;
    empty parts are answers to what was sent before.
    """
    with connect(server) as connection:
        kept, answers = bytearray(), []
        for part in (request(DECIDE, {"arms": ARMS}, AUTH), *sent):
            connection.sendall(part)
            if pause and part is sent[0]:
                time.sleep(pause)
                continue
            answers.append(read_answer(connection, kept))
        return answers


def test_a_known_head_is_not_parsed_again(tmp_path: Path) -> None:
    """And one that differs is."""
    service = open_service(parse(config(both=False), str(tmp_path)))
    try:
        settings = uvicorn.Config(application(service), log_config=None, ws="none")
        settings.load()
        known, other = request(DECIDE, {"arms": ARMS}), request(DECIDE, {"arms": ARMS}, "x-a: b")
        fed = asyncio.run(_fed(service, settings, [known, known, other, known]))
    finally:
        service.core.store.close()
    assert fed == [known, other]


async def _fed(service: Service, settings: uvicorn.Config, sent: list[bytes]) -> list[bytes]:
    """What the parser of a connection is given of what comes on it."""
    lane = lane_of(service)(config=settings, server_state=ServerState(), app_state={})
    ours, theirs = socketpair()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: lane, ours)
    parser, fed = lane.parser, []

    class Listening:
        def feed_data(self, data: bytes) -> None:
            fed.append(data)
            parser.feed_data(data)

        def __getattr__(self, name: str) -> Any:
            return getattr(parser, name)

    lane.parser = Listening()  # type: ignore[assignment]
    theirs.setblocking(False)
    for data in sent:
        await loop.sock_sendall(theirs, data)
        answer = await asyncio.wait_for(loop.sock_recv(theirs, 65536), 20)
        assert status_of(answer) == 200
    theirs.close()
    lane.transport.close()
    await asyncio.sleep(0)
    return fed


def test_what_was_told_is_joined_alike(twins: tuple[Server, Server]) -> None:
    told = []
    for server in twins:
        (answer, _) = exchange(server, request(DECIDE, {"arms": ARMS}, AUTH))
        entry = {"id": body_of(answer)["id"], "rewards": {"clicks": 1, "minutes": 3.5}}
        sent = request(FEEDBACK, [entry, entry, {**entry, "rewards": {"clicks": 0}}], AUTH)
        told.append(exchange(server, sent))
    assert told[0] == told[1]
    outcomes = [one["outcome"] for one in body_of(told[0][0])]
    assert outcomes == ["joined", "known", "conflict"]


def test_expect_is_answered_first(twins: tuple[Server, Server]) -> None:
    whole = request(DECIDE, {"arms": ARMS}, AUTH, "expect: 100-continue")
    cut = whole.index(b"\r\n\r\n") + 4
    answers = []
    for server in twins:
        with connect(server) as connection:
            connection.sendall(whole[:cut])
            kept = bytearray()
            assert read_answer(connection, kept).startswith(b"HTTP/1.1 100 ")
            connection.sendall(whole[cut:])
            answers.append(read_answer(connection, kept))
    assert answers[0] == answers[1]
    assert status_of(answers[0]) == 200


def test_who_is_too_slow_is_let_go(twins: tuple[Server, Server]) -> None:
    whole = request(DECIDE, {"arms": ARMS}, AUTH)
    for cut in (20, len(whole) - 5):  # in the head, in the body
        lane, twin = (exchange(server, whole[:cut]) for server in twins)
        assert status_of(lane[0]) == 408
        assert lane == twin
        assert b"\r\nconnection: close\r\n" in lane[0]
        assert lane[1] == b""
    with connect(twins[0]) as silent:
        assert silent.recv(1) == b""  # nothing was ever sent


def test_a_connection_serves_both_ways_in_turn(twins: tuple[Server, Server]) -> None:
    """After an answer of ASGI the lane is taken again, and the other way round."""
    before = _answered(twins[0])
    with connect(twins[0]) as connection:
        kept = bytearray()
        for _ in range(3):
            connection.sendall(request(DECIDE, {"arms": ARMS}, AUTH))
            assert status_of(read_answer(connection, kept)) == 200
            connection.sendall(request("/v1/models/nobody", b"", AUTH, method="GET"))
            assert status_of(read_answer(connection, kept)) == 403
    assert _answered(twins[0]) == before + 3


def _answered(server: Server) -> int:
    text = server.get("/metrics", authorization=f"Bearer {READER}").decode()
    (line,) = [x for x in text.splitlines() if 'decide",status="200"' in x and "_total" in x]
    return int(float(line.split()[-1]))


def test_keep_alive_ends(tmp_path: Path) -> None:
    impatient = Server(tmp_path, config(both=False), "tests.service.impatient")
    with impatient as server, connect(server) as connection:
        connection.sendall(request(DECIDE, {"arms": ARMS}))
        assert status_of(read_answer(connection, bytearray())) == 200
        assert connection.recv(1) == b""  # after a second without a request


def test_an_end_in_mid_request_is_answered_first(tmp_path: Path) -> None:
    whole = request(DECIDE, {"arms": ARMS})
    with Server(tmp_path, config(both=False)) as server:
        idle, half, whole_one = (connect(server) for _ in range(3))
        half.sendall(whole[:-5])
        wait_for(lambda: server.metric("arriving_bytes") > 0.0)
        pid = server.pid
        os.kill(pid, signal.SIGSTOP)
        whole_one.sendall(whole)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)
        assert idle.recv(1) == b""
        half.sendall(whole[-5:])
        answers = [read_answer(one, bytearray()) for one in (half, whole_one)]
        assert [status_of(answer) for answer in answers] == [200, 200]
        assert b"\r\nconnection: close\r\n" in answers[0]
        assert half.recv(1) == b""
        for one in (idle, half, whole_one):
            one.close()
        assert server.ended() == 0
        server.start()
        for answer in answers:  # what was acknowledged is there
            server.get(f"/v1/models/router/decisions/{body_of(answer)['id']}")


def test_who_hangs_up_leaves_nothing_behind(tmp_path: Path) -> None:
    whole = request(DECIDE, {"arms": ARMS})
    with Server(tmp_path, config(both=False)) as server:
        for cut in (5, len(whole) - 5):
            with connect(server) as connection:
                connection.sendall(whole[:cut])
                time.sleep(0.05)
        wait_for(lambda: server.metric("under_way") == 1.0)  # the scrape itself
        assert server.metric("arriving_bytes") == server.metric("waiting_bytes") == 0.0
        assert server.get("/v1/models/router")["decisions"] == 0


def test_the_protocol_that_the_lane_extends_has_not_changed() -> None:
    source = inspect.getsource(httptools_impl).encode()
    assert hashlib.sha256(source).hexdigest() == _KNOWN[uvicorn.__version__.rsplit(".", 1)[0]], (
        f"uvicorn {uvicorn.__version__} has another httptools_impl.py: read it beside "
        "service/lane.py, run these tests, and put its hash here; until then `lane = false` serves"
    )


_KNOWN = {"0.54": "1d4e1c579df4168433a61a01f10c628b31c1790e72dd9769d2b8633b22214033"}
"""SHA-256 of uvicorn/protocols/http/httptools_impl.py, by minor version."""
