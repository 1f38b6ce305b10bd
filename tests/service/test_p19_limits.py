"""P19: what one key may ask for is bounded: how often, how much at once, how many stay open."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe.errors import InvalidInput
from fairwolfe.service.config import Key, parse
from fairwolfe.service.core import Work
from fairwolfe.service.keys import new_key
from fairwolfe.service.wire import Refused
from tests.service.inside import Inside
from tests.service.servers import Server, config

DECIDE, MANY = "/v1/models/router/decide", "/v1/models/router/decide_many"
ROW = [0.1, 0.2, 0.3, 0.0, 0.1]
FREE, FREE_DIGEST = new_key()
SMALL, SMALL_DIGEST = new_key()
RARE, RARE_DIGEST = new_key()
HEAD = (
    'state = "state"\nlisten = "127.0.0.1:0"\n'
    f'[[keys]]\nname = "free"\nsha256 = "{FREE_DIGEST}"\nscopes = ["decide", "read", "admin"]\n'
    f'[[keys]]\nname = "small"\nsha256 = "{SMALL_DIGEST}"\nscopes = ["decide", "admin"]\n'
    'body = "2 KiB"\ncandidates = 3\ndimensions = 12\nopen = 4\n'
    f'[[keys]]\nname = "rare"\nsha256 = "{RARE_DIGEST}"\nscopes = ["decide"]\nrate = 2.0\n'
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("limits"), config("20 s", head=HEAD)) as one:
        features = np.random.default_rng(0).uniform(-0.4, 0.4, (6, 4)).tolist()
        items = [{"key": k, "features": f} for k, f in zip("abcdef", features, strict=True)]
        one.post("/v1/models/front/items", {"items": items}, authorization=f"Bearer {FREE}")
        yield one


def ask(server: Server, key: str, body: Any, path: str = DECIDE) -> Any:
    return server.request("POST", path, body, authorization=f"Bearer {key}")


def test_sizes_of_a_question(server: Server) -> None:
    for body, status, field in (
        ({"arms": [ROW] * 4}, 422, "arms"),
        ({"arms": [ROW] * 3}, 422, "arms"),  # 15 numbers
        ({"arms": [ROW], "blocked": [7] * 4}, 422, "blocked"),
        ({"arms": [ROW], "request_id": "x" * 2048}, 413, None),
    ):
        reply = ask(server, SMALL, body)
        assert (reply.status, reply.body["field"]) == (status, field), reply
        assert ask(server, FREE, body).body.get("error") != "too_many"
    assert ask(server, SMALL, {"arms": [ROW] * 2}).status == 200
    many = ask(server, SMALL, {"requests": [{"arms": [ROW]}, {"arms": [ROW] * 4}]}, MANY)
    assert (many.status, many.body["field"]) == (422, "requests[1].arms")
    # The bound on bytes holds for every route.
    large = {"items": [{"key": "x" * 3000, "features": [0.0] * 4}]}
    assert ask(server, SMALL, large, "/v1/models/front/items").status == 413


def test_how_often(server: Server) -> None:
    replies = [ask(server, RARE, {"arms": [ROW]}) for _ in range(6)]
    assert {reply.status for reply in replies} == {200, 429}
    refused = next(reply for reply in replies if reply.status == 429)
    assert refused.body["error"] == "too_fast"
    assert refused.headers["retry-after"] == "1"
    assert ask(server, FREE, {"arms": [ROW]}).status == 200
    metrics = server.get("/metrics").decode()
    assert 'fairwolfe_rejected_total{reason="too_fast"}' in metrics


def test_open_decisions_of_a_key_outlive_a_kill(tmp_path: Path) -> None:
    with Server(tmp_path, config("6 s", head=HEAD, both=False)) as server:
        for _ in range(2):
            assert ask(server, SMALL, {"arms": [ROW]}).status == 200
            assert ask(server, FREE, {"arms": [ROW]}).status == 200
        assert ask(server, SMALL, {"requests": [{"arms": [ROW]}] * 3}, MANY).status == 429
        assert ask(server, SMALL, {"requests": [{"arms": [ROW]}] * 2}, MANY).status == 200
        server.kill()
        server.start()
        reply = ask(server, SMALL, {"arms": [ROW]})
        assert (reply.status, reply.body["error"]) == (429, "too_many_open")
        assert "'small'" in reply.body["message"]
        assert reply.headers["retry-after"] == "1"
        assert ask(server, FREE, {"arms": [ROW]}).status == 200
        wait = server.get("/v1/models/router", authorization=f"Bearer {FREE}")
        assert wait["decisions"] == 7


def test_a_window_that_ends_makes_room() -> None:
    service = Inside(config("10 s", both=False))
    model = service.model("router")
    key = Key("small", "0" * 64, ("decide",), open=2)

    def decide() -> Any:
        ask = service.question("router", arms=[ROW])
        return service.together(service.core.wait(Work(model, requests=[ask], key=key)))[0]

    assert not isinstance(decide(), Exception)
    service.advance(5.0)
    assert not isinstance(decide(), Exception)
    assert isinstance(decide(), Refused)
    service.advance(5.0)  # the first has ended
    assert model.ring.owned["small"] == 1
    assert not isinstance(decide(), Exception)
    assert isinstance(decide(), Refused)


@pytest.mark.parametrize("bound", ["rate = 0", "open = -1", "candidates = 0", 'body = "much"'])
def test_bounds_that_are_none(bound: str) -> None:
    key = f'[[keys]]\nname = "a"\nsha256 = "{FREE_DIGEST}"\nscopes = ["read"]\n{bound}\n'
    with pytest.raises(InvalidInput, match=rf"keys\.0\.{bound.split(maxsplit=1)[0]}"):
        parse(config(both=False, head='state = "s"\n' + key))
