"""P18: loopback by default, no public address without a key, and every route with every scope."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairwolfe.errors import InvalidInput
from fairwolfe.service import keys as keys_module
from fairwolfe.service.config import SCOPES, Key, parse
from fairwolfe.service.http import ANYONE, OPEN, Route
from fairwolfe.service.keys import KeyRing, new_key
from fairwolfe.service.routes import ROUTES
from fairwolfe.service.wire import Refused
from tests.service.servers import Server, config

MADE = {scope: new_key() for scope in SCOPES}


def tables() -> str:
    return "".join(
        f'[[keys]]\nname = "{scope}"\nsha256 = "{digest}"\nscopes = ["{scope}"]\n'
        for scope, (_, digest) in MADE.items()
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("keys")
    head = 'state = "state"\nlisten = "127.0.0.1:0"\n'
    with Server(folder, config(head=head + tables())) as one:
        yield one


@pytest.mark.parametrize("spec", ROUTES, ids=lambda spec: f"{spec.method} {spec.path}")
def test_every_route_with_every_scope(server: Server, spec: Route) -> None:
    method, path, wanted = spec.method, spec.path, spec.scope
    target = path.replace("{model}", "front").replace("{id}", "x").replace("{key:path}", "x")
    target += "?frames=1" if path.endswith("/stream") else ""
    for scope, (key, _) in MADE.items():
        reply = server.request(method, target, authorization=f"Bearer {key}")
        allowed = wanted in (scope, OPEN, ANYONE)
        assert (reply.status == 403) == (not allowed), (scope, reply)
        assert reply.status != 401
    headers: list[Any] = [{}, {"authorization": "Bearer fw_no"}, {"authorization": "Basic eDp5"}]
    for header in headers:
        reply = server.request(method, target, **header)
        assert (reply.status == 401) == (wanted not in (OPEN, ANYONE)), (header, reply)


def test_what_is_refused_is_a_sentence_without_the_key(server: Server) -> None:
    key, _ = MADE["read"]
    reply = server.request("POST", "/v1/admin/snapshot", authorization=f"Bearer {key}")
    assert reply.body["error"] == "not_allowed"
    assert "needs admin" in reply.body["message"]
    assert key not in server.errors() + str(reply)
    assert server.request("GET", "/v1/models").headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:8710", "192.168.1.2:80", "shop.example:80"])
def test_no_public_address_without_a_key(listen: str) -> None:
    text = config().replace("127.0.0.1:0", listen)
    with pytest.raises(InvalidInput, match="there are no \\[\\[keys\\]\\]"):
        parse(text)
    with_keys = parse(config(head=f'state = "s"\nlisten = "{listen}"\n{tables()}'))
    assert with_keys.public


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "localhost:80", "[::1]:80", "127.9.9.9:1"])
def test_a_loopback_address_needs_none(listen: str) -> None:
    assert not parse(config().replace("127.0.0.1:0", listen)).public


def test_on_a_public_address_everything_needs_a_key(tmp_path: Path) -> None:
    head = 'state = "state"\nlisten = "0.0.0.0:0"\n'
    with Server(tmp_path, config(head=head + tables(), both=False)) as server:
        for spec in ROUTES:
            if spec.scope == OPEN:
                assert server.request(spec.method, spec.path).status == 401
                for scope, (key, _) in MADE.items():
                    reply = server.request("GET", spec.path, authorization=f"Bearer {key}")
                    assert reply.status == (200 if scope == "read" else 403)


def test_two_keys_of_one_name_are_both_good() -> None:
    (old, old_hash), (new, new_hash) = new_key(), new_key()
    keys = KeyRing([Key("web", old_hash, ("read",)), Key("web", new_hash, ("read",))])
    for shown in (f"Bearer {old}", f"bearer {new}"):
        assert keys.check(shown, "read").name == "web"  # type: ignore[union-attr]
    with pytest.raises(Refused, match="unknown"):
        keys.check(f"Bearer {old}x", "read")


def test_every_key_is_compared_whichever_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    made = [new_key() for _ in range(4)]
    keys = KeyRing([Key(str(i), digest, ("read",)) for i, (_, digest) in enumerate(made)])
    compared: list[int] = []

    def counted(one: str, other: str) -> bool:
        compared.append(1)
        return hmac.compare_digest(one, other)

    class Module:
        compare_digest = staticmethod(counted)

    monkeypatch.setattr(keys_module, "hmac", Module)
    for shown, _ in made:
        keys.check(f"Bearer {shown}", "read")
    assert len(compared) == 16


def test_a_key_is_never_kept(server: Server) -> None:
    for key, digest in MADE.values():
        text = server.path.read_text()
        assert digest in text
        assert key not in text
        for path in server.state.iterdir():
            assert key.encode() not in path.read_bytes()


def test_a_rate_is_kept_and_says_when_to_come_again() -> None:
    now = [0.0]
    key, digest = new_key()
    keys = KeyRing([Key("web", digest, ("read",), rate=2.0)], lambda: now[0])
    for _ in range(2):
        keys.check(f"Bearer {key}", "read")
    with pytest.raises(Refused) as caught:
        keys.check(f"Bearer {key}", "read")
    assert (caught.value.status, caught.value.retry_after) == (429, 0.5)
    now[0] = 0.5
    assert keys.check(f"Bearer {key}", "read").name == "web"  # type: ignore[union-attr]
