"""Keys that are for some models only: every route, every list, the page and its sessions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from fairwolfe.errors import InvalidInput
from fairwolfe.service.config import SCOPES, Key, parse
from fairwolfe.service.http import Route
from fairwolfe.service.keys import new_key
from fairwolfe.service.routes import ROUTES
from tests.service.servers import Server, config
from tests.service.test_page_sign_in import cookie, sign_in

EVERY = ", ".join(f'"{scope}"' for scope in SCOPES)
KEYS = {"whole": new_key(), "arms": new_key(), "none": new_key()}
MODELS = {"whole": "", "arms": 'models = ["rout*", "front-2"]\n', "none": 'models = ["x"]\n'}


def bearer(name: str) -> dict[str, Any]:
    return {"authorization": f"Bearer {KEYS[name][0]}"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    head = 'state = "state"\nlisten = "0.0.0.0:0"\n' + "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{digest}"\nscopes = [{EVERY}]\n{MODELS[name]}'
        for name, (_, digest) in KEYS.items()
    )
    with Server(tmp_path_factory.mktemp("bound"), config(head=head)) as one:
        yield one


def named(text: str) -> bool:
    """Whether a page names the other model."""
    return re.search(r"\bfront\b(?!-2)", text) is not None


@pytest.mark.parametrize("spec", ROUTES, ids=lambda spec: f"{spec.method} {spec.path}")
def test_every_route_with_a_key_of_other_models(server: Server, spec: Route) -> None:
    def asked(model: str, name: str) -> Any:
        path = spec.path.replace("{model}", model).replace("{id}", "x").replace("{key:path}", "x")
        path += "?frames=1" if path.endswith("/stream") else ""
        return server.request(spec.method, path, **bearer(name))

    assert asked("front", "whole").status not in (401, 403)
    if "{model}" not in spec.path:
        refused = spec.scope == "admin"  # it is for all models
        assert (asked("", "arms").status == 403) == refused
        return
    assert asked("router", "arms").status not in (401, 403)
    reply = asked("front", "arms")
    assert (reply.status, reply.body["error"]) == (403, "other_model")
    assert "'arms' is for the models rout*, front-2, and not for 'front'" in reply.body["message"]
    assert asked("no-such-model", "arms").status in (403, 404)
    encoded = server.request("POST", "/v1/models/%66ront/decide", {}, **bearer("arms"))
    assert encoded.status == 403


def test_lists_show_the_models_of_the_key(server: Server) -> None:
    def names(name: str) -> list[str]:
        return [one["name"] for one in server.get("/v1/models", **bearer(name))["models"]]

    assert names("whole") == ["router", "front"]
    assert names("arms") == ["router"]
    assert names("none") == []
    for path in ("/metrics", "/", "/docs", "/openapi.json"):
        assert not named(str(server.get(path, **bearer("arms")))), path
    assert 'model="front"' in server.get("/metrics", **bearer("whole")).decode()
    assert server.get("/readyz", **bearer("none"))["ready"]


def test_the_page_and_its_sessions_obey(server: Server) -> None:
    mine = cookie(sign_in(server, KEYS["arms"][0]))
    page = server.get("/", cookie=mine).decode()
    assert "router" in page
    assert not named(page)
    for path in ("/?model=front", "/v1/models/front", "/v1/models/front/stream?frames=1"):
        assert server.request("GET", path, cookie=mine).status == 403, path
    assert server.request("GET", "/v1/models/router/stream?frames=1", cookie=mine).status == 200
    nothing = server.request("GET", "/", cookie=cookie(sign_in(server, KEYS["none"][0])))
    assert nothing.status == 403
    assert "is for the models x" in nothing.body.decode()


def test_patterns_are_of_whole_names() -> None:
    key = Key("web", "0" * 64, ("read",), ("shop-*", "front"))
    assert [key.sees(name) for name in ("shop-1", "front", "shop", "Front", "front-2")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    head = f'state = "s"\n[[keys]]\nname = "a"\nsha256 = "{"0" * 64}"\nscopes = ["read"]\n'
    with pytest.raises(InvalidInput, match=r"keys\.0\.models is empty"):
        parse(config(head=f"{head}models = []\n"))
