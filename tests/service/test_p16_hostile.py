"""P16: whatever a client sends is 4xx with a sentence and the field; no state change, no row."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import msgspec
import numpy as np
import pytest

from tests.service.servers import Server, config

GOOD = [0.1, 0.2, 0.3, 0.0, 0.1]
DECIDE, FEEDBACK = "/v1/models/router/decide", "/v1/models/router/feedback"
FRONT, ITEMS = "/v1/models/front/decide", "/v1/models/front/items"
HEAD = '[limits]\nbody = "64 KiB"\ncandidates = 50\nseconds = 1.0\n'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("hostile")
    with Server(
        folder, config("0.3 s", head='state = "state"\nlisten = "127.0.0.1:0"\n' + HEAD)
    ) as s:
        features = np.random.default_rng(0).uniform(-0.4, 0.4, (6, 4)).tolist()
        items = [{"key": k, "features": f} for k, f in zip("abcdef", features, strict=True)]
        s.post(ITEMS, {"items": items})
        s.post(DECIDE, {"arms": [GOOD, GOOD]})
        time.sleep(0.6)  # it is closed: nothing is written by itself any more
        yield s


def nested(depth: int) -> bytes:
    return b'{"arms": ' + b"[" * depth + b"]" * depth + b"}"


def arms(*rows: Any) -> bytes:
    return json.dumps({"arms": list(rows)}).encode()


# path, body, status, field
BODIES: dict[str, tuple[str, bytes, int, str | None]] = {
    "empty": (DECIDE, b"", 422, None),
    "no json": (DECIDE, b"arms", 422, None),
    "cut": (DECIDE, b'{"arms": [[0.1', 422, None),
    "two values": (DECIDE, arms(GOOD) + b"1", 422, None),
    "not an object": (DECIDE, b"[]", 422, None),
    "null": (DECIDE, b"null", 422, None),
    "no field": (DECIDE, b"{}", 422, "arms"),
    "null field": (DECIDE, b'{"arms": null}', 422, "arms"),
    "unknown field": (DECIDE, b'{"arm": []}', 422, "arm"),
    "NaN": (DECIDE, b'{"arms": [[NaN, 0, 0, 0, 0]]}', 422, None),
    "Infinity": (DECIDE, b'{"arms": [[Infinity, 0, 0, 0, 0]]}', 422, None),
    "1e999": (DECIDE, b'{"arms": [[1e999, 0, 0, 0, 0]]}', 422, "arms[0][0]"),
    "a huge whole number": (
        DECIDE,
        b'{"arms": [[' + b"9" * 400 + b", 0, 0, 0, 0]]}",
        422,
        "arms[0][0]",
    ),
    "text for a number": (DECIDE, arms(["1.5", 0, 0, 0, 0]), 422, "arms[0][0]"),
    "true for a number": (DECIDE, arms([True, 0, 0, 0, 0]), 422, "arms[0][0]"),
    "null for a number": (DECIDE, arms([None, 0, 0, 0, 0]), 422, "arms[0][0]"),
    "a far number": (DECIDE, arms([1e300, 0, 0, 0, 0]), 422, "arms"),
    "too few features": (DECIDE, arms([0.1, 0.2]), 422, "arms"),
    "too many features": (DECIDE, arms([0.1] * 6), 422, "arms"),
    "ragged": (DECIDE, arms(GOOD, [0.1]), 422, "arms"),
    "no arms": (DECIDE, arms(), 422, "arms"),
    "arms without features": (DECIDE, arms([], []), 422, "arms"),
    "too many arms": (DECIDE, arms(*[GOOD] * 51), 422, "arms"),
    "a user for arms": (DECIDE, json.dumps({"user": GOOD}).encode(), 422, "user"),
    "both": (DECIDE, json.dumps({"user": GOOD, "arms": [GOOD]}).encode(), 422, "user"),
    "keys for arms": (DECIDE, b'{"arms": [[0,0,0,0,0]], "candidates": ["a"]}', 422, "candidates"),
    "no candidates": (DECIDE, b'{"arms": [[0,0,0,0,0]], "candidates": []}', 422, "candidates"),
    "a wrong candidate": (DECIDE, b'{"arms": [[0,0,0,0,0]], "candidates": [7]}', 422, "candidates"),
    "all blocked": (DECIDE, b'{"arms": [[0,0,0,0,0]], "blocked": [0]}', 422, "blocked"),
    "pinned arms": (DECIDE, b'{"arms": [[0,0,0,0,0]], "pinned": {"0": "a"}}', 422, "pinned"),
    "an empty id": (DECIDE, b'{"arms": [[0,0,0,0,0]], "request_id": ""}', 422, "request_id"),
    "a long id": (
        DECIDE,
        json.dumps({"arms": [GOOD], "request_id": "x" * 65}).encode(),
        422,
        "request_id",
    ),
    "a number as id": (DECIDE, b'{"arms": [[0,0,0,0,0]], "request_id": 7}', 422, "request_id"),
    "bytes as text": (DECIDE, b'{"arms": "AAAA"}', 422, "arms"),
    "bad utf-8": (DECIDE, b'{"arms": [[0,0,0,0,0]], "request_id": "\xff"}', 422, None),
    "deep": (DECIDE, nested(30_000), 422, "arms[0][0]"),
    "large": (DECIDE, b" " * 70_000, 413, None),
    "wrong d for a user": (FRONT, b'{"user": [0.1]}', 422, "user"),
    "no user": (FRONT, b'{"candidates": ["a"]}', 422, "user"),
    "too few candidates": (FRONT, b'{"user": [0,0,0,0], "candidates": ["a"]}', 422, "candidates"),
    "an item twice": (
        FRONT,
        b'{"user": [0,0,0,0], "candidates": ["a", "a", "b", "c"]}',
        422,
        "candidates",
    ),
    "an unknown item": (
        FRONT,
        b'{"user": [0,0,0,0], "candidates": ["a", "b", "c", "zz"]}',
        422,
        "candidates",
    ),
    "numbers for keys": (FRONT, b'{"user": [0,0,0,0], "blocked": [1]}', 422, "blocked"),
    "too much blocked": (
        FRONT,
        b'{"user": [0,0,0,0], "blocked": ["a","b","c","d"]}',
        422,
        "blocked",
    ),
    "an unknown slot": (FRONT, b'{"user": [0,0,0,0], "pinned": {"9": "a"}}', 422, "pinned"),
    "a slot in words": (FRONT, b'{"user": [0,0,0,0], "pinned": {"first": "a"}}', 422, "pinned"),
    "one item in two slots": (
        FRONT,
        b'{"user": [0,0,0,0], "pinned": {"0": "a", "1": "a"}}',
        422,
        "pinned",
    ),
    "no entries": (FEEDBACK, b"[]", 422, None),
    "too many entries": (
        FEEDBACK,
        json.dumps([{"id": "a-0-0", "rewards": {"clicks": 1}}] * 1001).encode(),
        422,
        None,
    ),
    "an entry without id": (FEEDBACK, b'[{"rewards": {"clicks": 1}}]', 422, "[0]"),
    "an entry of numbers": (FEEDBACK, b"[1]", 422, "[0]"),
    "text for a reward": (FEEDBACK, b'{"id": "OPEN", "rewards": {"clicks": "1"}}', 422, "rewards"),
    "true for a reward": (FEEDBACK, b'{"id": "OPEN", "rewards": {"clicks": true}}', 422, "rewards"),
    "1e999 for a reward": (
        FEEDBACK,
        b'{"id": "OPEN", "rewards": {"clicks": 1e999}}',
        422,
        "rewards",
    ),
    "no items": (ITEMS, b'{"items": []}', 422, "items"),
    "an item with other features": (
        ITEMS,
        b'{"items": [{"key": "a", "features": [0,0,0,0]}]}',
        409,
        "items",
    ),
    "an item of two kinds": (
        ITEMS,
        b'{"items": [{"key": "x", "features": [0,0,0,0]}, {"key": "x", "features": [1,0,0,0]}]}',
        422,
        "items",
    ),
    "an item with wrong features": (
        ITEMS,
        b'{"items": [{"key": "x", "features": [0]}]}',
        422,
        "items",
    ),
    "a long key": (
        ITEMS,
        json.dumps({"items": [{"key": "x" * 300, "features": [0] * 4}]}).encode(),
        422,
        "items",
    ),
    "a foreign objective": (
        "/v1/models/front/objective",
        b"{\"objective\": \"__import__('os').system('true')\"}",
        422,
        "objective",
    ),
    "no objective": ("/v1/models/front/objective", b'{"objective": ""}', 422, "objective"),
    "a policy for an objective": (
        "/v1/models/front/objective",
        b'{"objective": "LinUCB()"}',
        422,
        "objective",
    ),
    "many, one bad": (
        "/v1/models/router/decide_many",
        json.dumps({"requests": [{"arms": [GOOD]}, {"arms": [[1]]}]}).encode(),
        422,
        "requests[1].arms",
    ),
    "no requests": ("/v1/models/router/decide_many", b'{"requests": []}', 422, "requests"),
    "too many requests": (
        "/v1/models/router/decide_many",
        json.dumps({"requests": [{"arms": [GOOD]}] * 257}).encode(),
        422,
        "requests",
    ),
    "another model": ("/v1/models/nobody/decide", arms(GOOD), 404, "model"),
    "no items for arms": ("/v1/models/router/items", b'{"items": []}', 404, None),
    "another path": ("/v1/model/router/decide", arms(GOOD), 404, None),
}


def state(server: Server) -> Any:
    return server.get("/v1/models"), server.metric("log_rows")


@pytest.mark.parametrize("name", BODIES)
def test_a_hostile_body_is_refused_and_changes_nothing(server: Server, name: str) -> None:
    path, body, status, field = BODIES[name]
    before = state(server)
    method = "PUT" if path.endswith("/objective") else "POST"
    headers: dict[str, Any] = {"if_match": "*"} if method == "PUT" else {}
    reply = server.request(method, path, raw=body, **headers)
    assert reply.status == status, reply
    assert set(reply.body) == {"error", "message", "field"}
    assert reply.body["field"] == field, reply
    assert len(reply.body["message"]) > 10
    assert state(server) == before


@pytest.mark.parametrize("kind", ["text/plain", "", "application/x-pickle", "multipart/form-data"])
def test_another_content_type_is_refused(server: Server, kind: str) -> None:
    before = state(server)
    reply = server.request("POST", DECIDE, raw=arms(GOOD), content_type=kind)
    assert (reply.status, reply.body["field"]) == (415, "content-type")
    assert state(server) == before


@pytest.mark.parametrize(
    "body",
    [
        {"arms": [[float("nan"), 0, 0, 0, 0]]},
        {"arms": [[float("inf"), 0, 0, 0, 0]]},
        {"arms": np.full(5, np.nan, "<f4").tobytes(), "shape": [1, 5]},
        {"arms": np.zeros(5, "<f4").tobytes()},
        {"arms": np.zeros(5, "<f4").tobytes(), "shape": [5, -1]},
        {"arms": np.zeros(5, "<f4").tobytes(), "shape": [2**40, 2**40]},
        {"arms": b"abc", "shape": [1, 5]},
        {"arms": b"", "shape": [0, 5]},
        {"arms": [[True] * 5]},
    ],
)
def test_hostile_message_pack(server: Server, body: Any) -> None:
    before = state(server)
    data = msgspec.msgpack.encode(body)
    for sent in (data, data[:-1], data + b"\x01", b"\xc1" + data):
        reply = server.request("POST", DECIDE, raw=sent, content_type="application/msgpack")
        assert reply.status == 422, reply
    assert state(server) == before


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e300])
def test_rewards_that_are_no_numbers(server: Server, value: float) -> None:
    id = server.post(DECIDE, {"arms": [GOOD]})["id"]
    body = msgspec.msgpack.encode({"id": id, "rewards": {"clicks": value}})
    reply = server.request("POST", FEEDBACK, raw=body, content_type="application/msgpack")
    assert (reply.status, reply.body["field"]) == (422, "[0].rewards")
    assert server.get(f"/v1/models/router/decisions/{id}")["rewards"] == {}
    time.sleep(0.6)


def test_message_pack_and_json_decide_alike(server: Server) -> None:
    row = np.array(GOOD, "<f4")
    plain = {"arms": [row.tolist()], "request_id": "packed"}
    packed = {"arms": row.tobytes(), "shape": [1, 5]}
    kind: Any = {"content_type": "application/msgpack", "accept": "application/msgpack"}
    reply = server.request("POST", DECIDE, raw=msgspec.msgpack.encode(packed), **kind)
    assert reply.status == 200
    assert reply.headers["content-type"] == "application/msgpack"
    answer = msgspec.msgpack.decode(reply.body)
    assert set(answer) == set(server.post(DECIDE, plain))
    entry = [{"id": answer["id"], "rewards": {"clicks": 1}}]
    told = server.request("POST", FEEDBACK, raw=msgspec.msgpack.encode(entry), **kind)
    assert msgspec.msgpack.decode(told.body) == [{"id": answer["id"], "outcome": "joined"}]
    time.sleep(0.6)


def test_other_methods_are_refused(server: Server) -> None:
    for method, path in (("GET", DECIDE), ("DELETE", "/v1/models"), ("PATCH", ITEMS)):
        reply = server.request(method, path)
        assert (reply.status, reply.body["error"]) == (405, "wrong_method")


def test_a_body_that_never_ends_is_given_up(server: Server) -> None:
    before = state(server)
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        head = f"POST {DECIDE} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: 1000\r\n\r\n{{".encode())
        assert b" 408 " in connection.recv(4096)
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        with pytest.raises(OSError):  # noqa: PT011, PT012
            for _ in range(200):
                connection.sendall(b"400\r\n" + b" " * 1024 + b"\r\n")
                time.sleep(0.001)
            answer = connection.recv(4096)
            assert b" 413 " in answer
            raise OSError
    with socket.create_connection((parts.hostname, parts.port), timeout=20) as connection:
        connection.sendall(b"\x00\x01 no HTTP\r\n\r\n")
        assert b" 400 " in connection.recv(4096)
    assert state(server) == before


def test_ten_megabytes_are_refused_before_they_are_read(server: Server) -> None:
    before = state(server)
    reply = server.request(
        "POST", DECIDE, raw=None, content_length="10000000", content_type="application/json"
    )
    assert reply.status == 413
    assert state(server) == before


def test_a_bad_question_does_not_spoil_those_beside_it() -> None:
    from fairwolfe.service.core import Work
    from fairwolfe.service.wire import Refused
    from tests.service.inside import Inside

    service = Inside(config(both=False))
    for bad in ({"arms": [[0.1] * 6]}, {"arms": [GOOD], "candidates": [3]}):
        with pytest.raises(Refused) as caught:  # before it is in a group
            service.question("router", **bad)
        assert caught.value.status == 422
    # Items may be retired after a question was read, so what is in a group is checked again.
    ask, model = service.question("router", arms=[GOOD]), service.model("router")
    answers = service.together(
        service.ask("router", arms=[GOOD, GOOD]),
        service.core.wait(Work(model, [ask._replace(context=np.zeros((1, 6)))])),
        service.core.wait(
            Work(service.model("router"), [ask._replace(options={"candidates": [3]})])
        ),
        service.ask("router", arms=[GOOD], request_id="a"),
        service.ask("router", arms=[GOOD], request_id="a"),
        service.ask("router", arms=[GOOD, GOOD], request_id="a"),
    )
    kinds = [type(a) if isinstance(a, Exception) else [one.number for one in a] for a in answers]
    assert kinds == [[0], Refused, Refused, [1], [1], Refused]
    assert [a.status for a in answers if isinstance(a, Refused)] == [422, 422, 409]
    assert service.model("router").decisions == 2
