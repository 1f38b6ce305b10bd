"""The client: retries, deadlines, typed errors, and what importing it loads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import msgspec
import numpy as np
import pytest

from fairwolfe.client import Client, Decided
from fairwolfe.errors import Conflict, Denied, InvalidInput, NotFound, Unavailable
from tests.service.servers import ROOT, Server, config

ARMS = np.array([[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]])


def test_importing_it_loads_neither_numpy_nor_numba() -> None:
    code = (
        "import sys, fairwolfe.client; from fairwolfe.client import Client;"
        "print(*sorted({'numpy', 'numba', 'scipy', 'starlette', 'apsw'} & set(sys.modules)))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("client"), config("60 s")) as one:
        yield one


def test_the_whole_of_it(server: Server) -> None:
    with Client(server.url) as client:
        assert repr(client) == f"Client({server.url!r})"
        decided = client.decide("router", arms=ARMS)
        assert isinstance(decided, Decided)
        assert decided.arm in (0, 1)
        assert client.feedback(decided, {"clicks": 1}) == "joined"
        assert client.feedback(decided, {"clicks": 1}) == "known"
        found = client.decision("router", decided.id)
        assert (found["state"], found["rewards"]) == ("open", {"clicks": 1.0})
        entries = [{"id": decided.id, "rewards": {"minutes": 2}}, {"id": "x", "rewards": {}}]
        assert client.feedback_many("router", entries) == ["joined", "unknown"]
        made = client.decide_many("router", [{"arms": ARMS}, {"arms": ARMS, "candidates": [1]}])
        assert made[1].arm == 1
        items = {f"/i{n}": row for n, row in enumerate(np.eye(4) / 2)}
        assert client.add_items("front", items) == 4
        ranked = client.decide("front", user=[0.1] * 4, pinned={0: "/i2"}, explain=True)
        assert ranked.items is not None
        assert ranked.items[0] == "/i2"
        assert ranked.explanation is not None
        assert client.feedback(ranked, exposed=ranked.items, clicked=[], final=True) == "joined"
        assert client.retire("front", "/i3") == 3
        version = client.objective("front")["version"]
        text = "TwoSided(items=GiniWelfare(), beta=1.0)"
        assert client.replace_objective("front", text, version) == version + 1
        with pytest.raises(Conflict, match="read it again"):
            client.replace_objective("front", text, version)
        assert client.model("router")["decisions"] == 3
        assert "sentence" in client.live("front")


def test_errors_are_those_of_the_library(server: Server) -> None:
    with Client(server.url) as client:
        with pytest.raises(InvalidInput, match="the problem has 5 features"):
            client.decide("router", arms=[[1.0]])
        with pytest.raises(NotFound, match="there is no model 'nobody'"):
            client.model("nobody")
        client.decide("router", arms=ARMS, request_id="same")
        with pytest.raises(Conflict, match="another question"):
            client.decide("router", arms=ARMS[:1], request_id="same")
        with pytest.raises(InvalidInput, match="give a list of numbers"):
            client.decide("router", arms=[np.float64(1.0)])
    for wrong in ("127.0.0.1:80", "ftp://x", "http://"):
        with pytest.raises(InvalidInput, match="the address is"):
            Client(wrong)
    with pytest.raises(InvalidInput, match="positive seconds"):
        Client("http://127.0.0.1:1", deadline=0.0)


def test_a_service_that_does_not_answer_is_given_up_in_time(server: Server) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with (
            Client(server.url, deadline=1.0, timeout=0.3) as client,
            pytest.raises(Unavailable, match="not answered within 1 s"),
        ):
            client.model("router")
        assert time.monotonic() - began < 30.0  # it does not hang
    finally:
        os.kill(server.pid, signal.SIGCONT)
    with Client("http://127.0.0.1:9", deadline=0.3) as client, pytest.raises(Unavailable):
        client.model("router")


class Moody(BaseHTTPRequestHandler):
    """Answers as it is told, one status after the other, and remembers what was asked."""

    moods: list[tuple[int, dict[str, str]]]
    heard: list[tuple[float, Any, Any]]
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        body = msgspec.msgpack.decode(self.rfile.read(length))
        self.heard.append((time.monotonic(), body, self.headers.get("authorization")))
        status, headers = self.moods.pop(0)
        if status == 0:  # the answer is lost
            self.close_connection = True
            return
        answer: Any = {"message": "not now", "error": "busy"}
        if status == 200:
            answer = {"id": "a-0-0", "arm": 1, "probability": 0.5, "closes_in": 1.0}
        data = msgspec.msgpack.encode(answer)
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def moody() -> Iterator[tuple[str, type[Moody]]]:
    handler = type("Handler", (Moody,), {"moods": [], "heard": []})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler
        server.shutdown()
        thread.join(10)


def test_it_tries_again_with_the_same_request_id(moody: tuple[str, type[Moody]]) -> None:
    address, handler = moody
    handler.moods[:] = [(503, {}), (0, {}), (429, {"retry-after": "1"}), (200, {})]
    with Client(address, key="fw_x") as client:
        assert client.decide("router", arms=ARMS).arm == 1
    times, bodies, keys = zip(*handler.heard, strict=True)
    assert len(bodies) == 4
    assert len({body["request_id"] for body in bodies}) == 1
    assert times[3] - times[2] >= 1.0  # Retry-After
    assert set(keys) == {"Bearer fw_x"}


def test_it_does_not_try_again_what_is_refused(moody: tuple[str, type[Moody]]) -> None:
    address, handler = moody
    for status, kind in ((422, InvalidInput), (401, Denied), (403, Denied), (409, Conflict)):
        handler.moods[:] = [(status, {})]
        with Client(address) as client, pytest.raises(kind, match="not now"):
            client.decide("router", arms=ARMS)
    assert len(handler.heard) == 4


def test_a_retry_after_beyond_the_deadline_is_not_waited_for(
    moody: tuple[str, type[Moody]],
) -> None:
    address, handler = moody
    handler.moods[:] = [(503, {"retry-after": "3600"})]
    with Client(address, deadline=5.0) as client, pytest.raises(Unavailable, match="503: not now"):
        client.decide("router", arms=ARMS)
    assert len(handler.heard) == 1
