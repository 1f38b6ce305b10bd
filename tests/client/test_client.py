"""Both clients: retries, deadlines, typed errors, and what importing them loads."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from inspect import Signature, signature
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe.client import AsyncClient, Client, Decided, calls
from fairwolfe.errors import Conflict, Denied, InvalidInput, NotFound, Unavailable
from fairwolfe.service import wire
from fairwolfe.service.routes import ROUTES
from tests.service.clients import KINDS, Moody, connected, moody_server
from tests.service.servers import ROOT, Server, config

ARMS = np.array([[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]])


HEAVY = {"numpy", "scipy", "httptools", "apsw", "aiohttp", "yarl"}


def test_importing_it_loads_neither_numpy_nor_aiohttp() -> None:
    code = (
        "import sys; from fairwolfe.client import Client;"
        "Client('http://127.0.0.1:1').buffer();"
        f"print(*sorted({HEAVY | {'asyncio'}!r} & set(sys.modules)));"
        "from fairwolfe.client import AsyncClient;"
        f"print(*sorted({HEAVY!r} & set(sys.modules)))"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("client"), config("60 s")) as one:
        yield one


@pytest.mark.parametrize("kind", KINDS)
def test_the_whole_of_it(kind: str, tmp_path: Path) -> None:
    with Server(tmp_path, config("60 s")) as server, connected(kind, server.url) as client:
        assert repr(client) == f"{kind}({server.url!r})"
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
        assert client.replace_objective("front", text) == version + 2  # whatever the version
        assert client.model("router")["decisions"] == 3
        assert "sentence" in client.live("front")
        assert [one["name"] for one in client.models()] == ["router", "front"]
        assert sorted(client.items("front")) == ["/i0", "/i1", "/i2"]
        assert client.exposure("front")["items"] == 3
        assert client.constraints("router") == []
        assert isinstance(client.history("router"), list)
        assert client.healthz() == {"alive": True}
        assert client.readyz()["ready"] is True
        assert 'fairwolfe_decisions_total{model="router"} 3.0' in client.metrics()
        assert client.snapshot() > 0


def test_a_method_returns_the_body_or_the_part_of_it_that_the_page_names(server: Server) -> None:
    page = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
    for name, part in (
        ("models", "models"),
        ("history", "points"),
        ("constraints", "constraints"),
        ("changes", "changes"),
        ("model", None),
        ("live", None),
        ("objective", None),
        ("exposure", None),
    ):
        path = "/v1/models/front" + ("" if name == "model" else f"/{name}")
        body = server.get("/v1/models" if name == "models" else path)
        with connected("Client", server.url) as client:
            answer = client.models() if name == "models" else getattr(client, name)("front")
        assert f"`{name}`" in page
        assert part is None or f'{{"{part}": [...]}}' in page
        expected = body if part is None else body[part]
        assert json.loads(json.dumps(answer)) == expected or name in ("live", "exposure")
        assert type(answer) is type(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_errors_are_those_of_the_library(kind: str, server: Server) -> None:
    with connected(kind, server.url) as client:
        with pytest.raises(InvalidInput, match="the problem has 5 features"):
            client.decide("router", arms=[[1.0]])
        with pytest.raises(NotFound, match="there is no model 'nobody'"):
            client.model("nobody")
        client.decide("router", arms=ARMS, request_id=kind)
        with pytest.raises(Conflict, match="another question"):
            client.decide("router", arms=ARMS[:1], request_id=kind)
        with pytest.raises(InvalidInput, match="give a list of numbers"):
            client.decide("router", arms=[np.float64(1.0)])
        with pytest.raises(InvalidInput, match="the context is 'DE'; give a dictionary"):
            client.decide("router", arms=ARMS, context="DE")
        for wrong, told in (("1", "a text"), (True, "true or false")):
            with pytest.raises(InvalidInput, match=f"a reward is {told}; give a number"):
                client.feedback(Decided("router", "x", 0, None, 1.0, 1.0, None), {"clicks": wrong})
        with pytest.raises(InvalidInput, match="is object; give numbers"):
            client.feedback(Decided("router", "x", 0, None, 1.0, 1.0, None), {"clicks": object()})


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_where_a_service_is_and_how_long_it_is_waited_for_are_checked(kind: Any) -> None:
    for wrong in ("127.0.0.1:80", "ftp://x", "http://"):
        with pytest.raises(InvalidInput, match="the address is"):
            kind(wrong)
    with pytest.raises(InvalidInput, match="positive seconds"):
        kind("http://127.0.0.1:1", deadline=0.0)


def public(kind: type) -> dict[str, Signature]:
    methods = {name: getattr(kind, name) for name in vars(kind) if not name.startswith("_")}
    return {name: signature(one) for name, one in methods.items()}


def test_both_clients_have_the_same_methods() -> None:
    one, other = public(Client), public(AsyncClient)
    assert one.pop("buffer").parameters == other.pop("buffer").parameters
    assert one == other
    assert one["decide"].return_annotation == "Decided"


# For people, for tools, and too large for one answer.
WITHOUT_A_METHOD = {
    "/",
    "/docs",
    "/openapi.json",
    "/page/{name}",
    "/v1/admin/backup",
    "/v1/models/{model}/stream",
    "/v1/models/{model}/what-if/{id}",
}


def test_every_route_that_reads_has_a_method_of_its_name() -> None:
    routes = [one for one in ROUTES if one.method == "GET" and one.path not in WITHOUT_A_METHOD]
    names = [one.handler.__name__.removeprefix("_") for one in routes if one.handler is not None]
    assert len(names) >= 12
    assert set(names) <= set(public(Client))


def test_numbers_of_numpy_are_numbers(server: Server) -> None:
    with Client(server.url) as client:
        made = client.decide("router", arms=ARMS.astype(np.float32), candidates=np.arange(2))
        assert (
            client.feedback(made, {"clicks": np.float64(1.0), "minutes": np.int64(2)}) == "joined"
        )
        assert client.decision("router", made.id)["rewards"] == {"clicks": 1.0, "minutes": 2.0}


def test_packed_features_are_the_same_but_for_rounding(server: Server) -> None:
    with Client(server.url) as client:
        for arms in (ARMS, ARMS.tolist()):
            call = calls.decide("router", arms=arms, user=ARMS[0], packed=True, request_id="p")
            asked = wire.decode(call.body or b"", wire.MSGPACK, wire.Decide)
            found = np.frombuffer(asked.arms, "<f4").reshape(asked.shape)
            np.testing.assert_array_equal(found, ARMS.astype("<f4"))
            np.testing.assert_array_equal(np.frombuffer(asked.user, "<f4"), ARMS[0].astype("<f4"))
        one = client.decide("router", arms=ARMS, packed=True, request_id="packed")
        again = client.decide("router", arms=ARMS, packed=True, request_id="packed")
        assert (again.id, again.arm) == (one.id, one.arm)
        made = client.decide_many("router", [{"arms": ARMS, "packed": True, "candidates": [1]}])
        assert made[0].arm == 1
        with pytest.raises(InvalidInput, match=r"at most 3.4e38"):
            client.decide("router", arms=[[1e300] * 5], packed=True)
        with pytest.raises(InvalidInput, match="shape"):
            client.decide("router", arms=ARMS[0], packed=True)
        with pytest.raises(InvalidInput, match="arms has 9 numbers and shape is"):
            client.decide("router", arms=[[0.1] * 5, [0.1] * 4], packed=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_service_that_does_not_answer_is_given_up_in_time(kind: str, server: Server) -> None:
    os.kill(server.pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with (
            connected(kind, server.url, deadline=1.0, timeout=0.3) as client,
            pytest.raises(Unavailable, match="not answered within 1 s"),
        ):
            client.model("router")
        assert time.monotonic() - began < 30.0  # it does not hang
    finally:
        os.kill(server.pid, signal.SIGCONT)
    with connected(kind, "http://127.0.0.1:9", deadline=0.3) as client, pytest.raises(Unavailable):
        client.model("router")


@pytest.fixture
def moody() -> Iterator[tuple[str, type[Moody]]]:
    with moody_server() as one:
        yield one


@pytest.mark.parametrize("kind", KINDS)
def test_it_tries_again_with_the_same_request_id(kind: str, moody: tuple[str, type[Moody]]) -> None:
    address, handler = moody
    handler.moods[:] = [(503, {}), (0, {}), (429, {"retry-after": "1"}), (200, {}), (200, {})]
    with connected(kind, address, key="fw_x") as client:
        assert client.decide("router", arms=ARMS).arm == 1
        client.decide("router", arms=ARMS)
    times, bodies, keys = zip(*handler.heard, strict=True)
    ids = [body["request_id"] for body in bodies]
    assert len(ids) == 5
    assert len(set(ids[:4])) == 1
    assert ids[4] != ids[0]  # another question
    assert times[3] - times[2] >= 1.0  # Retry-After
    assert set(keys) == {"Bearer fw_x"}


@pytest.mark.parametrize("kind", KINDS)
def test_it_does_not_try_again_what_is_refused(kind: str, moody: tuple[str, type[Moody]]) -> None:
    address, handler = moody
    for status, error in ((422, InvalidInput), (401, Denied), (403, Denied), (409, Conflict)):
        handler.moods[:] = [(status, {})]
        with connected(kind, address) as client, pytest.raises(error, match="not now"):
            client.decide("router", arms=ARMS)
    assert len(handler.heard) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_retry_after_beyond_the_deadline_is_not_waited_for(
    kind: str, moody: tuple[str, type[Moody]]
) -> None:
    address, handler = moody
    handler.moods[:] = [(503, {"retry-after": "3600"})]
    with (
        connected(kind, address, deadline=5.0) as client,
        pytest.raises(Unavailable, match="503: not now"),
    ):
        client.decide("router", arms=ARMS)
    assert len(handler.heard) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_is_not_of_the_service_is_named(
    kind: str, moody: tuple[str, type[Moody]]
) -> None:
    address, handler = moody
    handler.moods[:] = [(200, {})]
    with connected(kind, address) as client, pytest.raises(Unavailable, match="is the address"):
        client.add_items("front", {"a": [0.1]})


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_address_is_asked_where_one_does_not_answer(kind: str, tmp_path: Path) -> None:
    with (
        Server(tmp_path, config("60 s")) as server,
        connected(kind, ["http://127.0.0.1:9/", server.url]) as client,
    ):
        assert repr(client) == f"{kind}({['http://127.0.0.1:9', server.url]!r})"
        decided = client.decide("router", arms=ARMS)
        assert client.feedback(decided, {"clicks": 1}) == "joined"
        assert client._transport.endpoint.current.text == server.url  # and stays the one
        with client.buffer() as buffer:
            buffer.feedback(decided, {"minutes": 2})
        assert client.decision("router", decided.id)["rewards"] == {"clicks": 1.0, "minutes": 2.0}


@pytest.mark.parametrize("addresses", [[], ["http://127.0.0.1:8710", "127.0.0.1:8711"]])
def test_every_address_is_checked(addresses: list[str]) -> None:
    with pytest.raises(InvalidInput, match="address"):
        Client(addresses)
