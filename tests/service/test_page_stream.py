"""The stream: a frame a second, bounded listeners, nothing queued for who is slow, and an end."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from fairwolfe.service import watch
from fairwolfe.service.config import Limits
from fairwolfe.service.watch import Broadcast
from fairwolfe.service.wire import Refused
from tests.service import shop
from tests.service.inside import Inside
from tests.service.servers import Server, config, wait_for

LISTENERS = 3
STREAM = f"{shop.SHOP}/stream"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    head = f"[limits]\nlisteners = {LISTENERS}\n"
    with Server(tmp_path_factory.mktemp("stream"), shop.config(head=head)) as one:
        shop.filled(one, rounds=2)
        yield one


def listen(server: Server) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    parts = urlsplit(server.url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=20.0)
    connection.request("GET", STREAM)
    return connection, connection.getresponse()


def frame(response: http.client.HTTPResponse) -> dict[str, Any]:
    while not (line := response.readline()).startswith(b"data: "):
        assert line, "the stream has ended"
    found: dict[str, Any] = json.loads(line[6:])
    return found


def test_frames_say_what_the_routes_say(server: Server) -> None:
    reply = server.request("GET", f"{STREAM}?frames=1")
    assert reply.headers["content-type"].startswith("text/event-stream")
    head, data = reply.body.decode().split("\n\n")[:2]
    assert head == "retry: 1000"
    told = json.loads(data.removeprefix("data: "))
    known = server.get(shop.SHOP)
    for name in ("t", "value", "average", "decisions", "open", "joined", "expired", "late"):
        assert told[name] == known[name], name
    assert told["live"] == server.get(f"{shop.SHOP}/live")
    exposure = server.get(f"{shop.SHOP}/exposure")
    exposure.pop("earlier")
    assert told["exposure"] == exposure
    assert told["version"] == 0


def test_a_frame_a_second(server: Server) -> None:
    connection, response = listen(server)
    clocks = [frame(response)["clock"] for _ in range(3)]
    connection.close()
    assert all(b - a > 0.9 for a, b in pairwise(clocks))


def test_listeners_are_bounded_and_places_come_back(server: Server) -> None:
    open_ones: list[tuple[http.client.HTTPConnection, http.client.HTTPResponse]] = []
    while len(open_ones) < LISTENERS:  # the place of a client that left is free at the next frame
        connection, response = listen(server)
        if response.status == 200:
            open_ones.append((connection, response))
            frame(response)
        else:
            connection.close()
            time.sleep(0.2)
    reply = server.request("GET", STREAM)
    assert (reply.status, reply.body["error"]) == (503, "too_many_listeners")
    assert "retry-after" in reply.headers
    assert server.get(shop.SHOP)["t"]  # others are served
    for connection, _ in open_ones:
        connection.close()
    wait_for(lambda: server.request("GET", f"{STREAM}?frames=1").status == 200)


@pytest.mark.parametrize("query", ["frames=0", "frames=x", "frames=-1", "frame=1", "frames=1e3"])
def test_a_wrong_number_of_frames_is_refused(server: Server, query: str) -> None:
    reply = server.request("GET", f"{STREAM}?{query}")
    assert reply.status == 422
    assert reply.body["message"]


def test_streams_do_not_hold_up_the_end(tmp_path: Path) -> None:
    with Server(tmp_path, config("5 s", both=False)) as server:
        parts = urlsplit(server.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=20.0)
        connection.request("GET", "/v1/models/router/stream")
        response = connection.getresponse()
        frame(response)
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 8.0  # it would wait 10 s for a request under way
        assert response.read() is not None
        connection.close()
        assert server.complaints() == []


# --- inside: who is slow misses frames, and nothing grows --------------------------------------


def audience(most: int = 2) -> tuple[Broadcast, Any]:
    service = Inside(config("5 s", both=False))
    counted = iter(range(1_000_000))
    service.core.set_limits(Limits(listeners=most))
    one = Broadcast(service.core, lambda core, model, live: {"number": next(counted)})
    return one, service.model("router")


def test_a_slow_reader_misses_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PACE", 0.01)

    async def run() -> tuple[list[int], int]:
        told, model = audience()
        stream = told.listen(model, 100, lambda: True)
        assert (await anext(stream)).startswith(b"retry")
        numbers = []
        for _ in range(3):
            data = await anext(stream)
            numbers.append(json.loads(data.removeprefix(b"data: "))["number"])
            await asyncio.sleep(0.3)
        held = sys_size(told)
        await stream.aclose()  # type: ignore[attr-defined]
        return numbers, held

    numbers, held = asyncio.run(run())
    assert all(b - a > 5 for a, b in pairwise(numbers))
    assert held == 1


def sys_size(told: Broadcast) -> int:
    """How many frames are held for a model."""
    (room,) = told._channels.values()
    return sum(isinstance(value, bytes) for value in vars(room).values())


def test_nobody_speaks_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "_PACE", 0.01)

    async def run() -> tuple[int, int]:
        told, model = audience()
        for _ in range(3):  # come and go, faster than frames do
            stream = told.listen(model, 1, lambda: True)
            assert len([data async for data in stream]) == 2
            assert len(told._tasks) == 1
        await asyncio.sleep(0.1)
        (room,) = told._channels.values()
        before = room.number
        await asyncio.sleep(0.1)
        return room.number - before, len(told._tasks)

    assert asyncio.run(run()) == (0, 0)


def test_after_the_end_nobody_enters() -> None:
    async def run() -> None:
        told, model = audience()
        stream = told.listen(model, 100, lambda: True)
        await anext(stream)
        await anext(stream)
        told.end()
        assert [data async for data in stream] == []
        with pytest.raises(Refused, match="ending"):
            told.enter()

    asyncio.run(run())


def test_a_client_that_never_reads_costs_no_place_for_ever(server: Server) -> None:
    parts = urlsplit(server.url)
    ones = []
    for _ in range(LISTENERS):
        one = socket.create_connection((parts.hostname, parts.port))
        one.sendall(f"GET {STREAM} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())
        ones.append(one)
    wait_for(lambda: server.request("GET", f"{STREAM}?frames=1").status == 503)
    for one in ones:
        one.close()
    wait_for(lambda: server.request("GET", f"{STREAM}?frames=1").status == 200)
