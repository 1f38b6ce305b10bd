"""Sign-in: a key once, then a cookie that may only read, ends, and is one of a bounded number."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from fairwolfe.service.config import SCOPES
from fairwolfe.service.http import ANYONE, OPEN, Route
from fairwolfe.service.keys import SECONDS, Sessions, new_key
from fairwolfe.service.page import POLICY
from fairwolfe.service.routes import ROUTES
from fairwolfe.service.wire import Refused
from tests.service.servers import Reply, Server, config

MADE = {scope: new_key() for scope in SCOPES}
FORM = "application/x-www-form-urlencoded"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    head = 'state = "state"\nlisten = "127.0.0.1:0"\n' + "".join(
        f'[[keys]]\nname = "{scope}"\nsha256 = "{digest}"\nscopes = ["{scope}"]\n'
        for scope, (_, digest) in MADE.items()
    )
    with Server(tmp_path_factory.mktemp("keys"), config(head=head)) as one:
        yield one


def sign_in(server: Server, key: str, **headers: Any) -> Reply:
    body = urlencode({"key": key}).encode()
    return server.request("POST", "/sign-in", raw=body, content_type=FORM, **headers)


def cookie(reply: Reply) -> str:
    return reply.headers["set-cookie"].partition(";")[0]


def test_a_key_that_may_read_opens_the_page(server: Server) -> None:
    reply = sign_in(server, MADE["read"][0])
    assert (reply.status, reply.headers["location"]) == (303, ".")
    words = [word.strip().lower() for word in reply.headers["set-cookie"].split(";")]
    assert {"httponly", "samesite=strict", "path=/", f"max-age={SECONDS}"} <= set(words)
    assert "secure" not in words  # it came by http
    page = server.request("GET", "/", cookie=cookie(reply))
    assert page.status == 200
    assert "Sign out" in page.body.decode()
    assert MADE["read"][0] not in page.body.decode() + str(reply.headers)


def test_behind_https_the_cookie_is_secure(server: Server) -> None:
    reply = sign_in(server, MADE["read"][0], x_forwarded_proto="https")
    assert "; secure" in reply.headers["set-cookie"].lower()


@pytest.mark.parametrize(
    ("key", "status", "words"),
    [
        ("", 422, "No key is given"),
        ("fw_wrong", 401, "The key is unknown"),
        (MADE["admin"][0], 403, "has the scopes admin, and this needs read"),
        ("ä\x00<script>", 401, "The key is unknown"),
    ],
    ids=["none", "unknown", "of another scope", "strange"],
)
def test_any_other_key_gets_a_sentence(server: Server, key: str, status: int, words: str) -> None:
    reply = sign_in(server, key)
    text = reply.body.decode()
    assert (reply.status, "set-cookie" in reply.headers) == (status, False)
    assert words in text
    assert "<script>" not in text
    assert '<form method="post" action="sign-in"' in text
    assert reply.headers["content-security-policy"] == POLICY


def test_who_is_not_signed_in_sees_the_sign_in(server: Server) -> None:
    reply = server.request("GET", "/")
    assert reply.status == 200  # on a loopback address; 401 on any other
    assert reply.headers["content-type"].startswith("text/html")
    assert "After" not in reply.body.decode()
    assert 'action="sign-in"' in reply.body.decode()


@pytest.mark.parametrize("spec", ROUTES, ids=lambda spec: f"{spec.method} {spec.path}")
def test_a_cookie_may_only_read(server: Server, spec: Route) -> None:
    mine = cookie(sign_in(server, MADE["read"][0]))
    target = spec.path.replace("{model}", "front").replace("{id}", "x").replace("{key:path}", "x")
    target += "?frames=1" if spec.path.endswith("/stream") else ""
    reply = server.request(spec.method, target, cookie=mine)
    assert (reply.status == 401) == (spec.scope not in ("read", OPEN, ANYONE)), reply
    header = f"Bearer {MADE['decide'][0]}"  # what is shown counts, and not what was shown once
    reply = server.request(spec.method, target, cookie=mine, authorization=header)
    if spec.scope in ("read", "admin"):
        assert reply.status == 403


def test_a_cookie_ends_with_the_sign_out(server: Server) -> None:
    mine = cookie(sign_in(server, MADE["read"][0]))
    assert server.request("GET", "/v1/models", cookie=mine).status == 200
    reply = server.request("POST", "/sign-out", cookie=mine)
    assert reply.status == 200
    assert "You have signed out" in reply.body.decode()
    again = server.request("GET", "/v1/models", cookie=mine)
    assert (again.status, again.body["error"]) == (401, "signed_out")
    page = server.request("GET", "/", cookie=mine)
    assert "Your sign-in has ended; sign in again" in page.body.decode()
    assert "max-age=0" in page.headers["set-cookie"].lower()


@pytest.mark.parametrize("value", ["", "x", "é", "0" * 4000, "a=b; c"])
def test_a_cookie_of_somebodys_own_is_refused(server: Server, value: str) -> None:
    name = cookie(sign_in(server, MADE["read"][0])).partition("=")[0]
    reply = server.request("GET", "/v1/models", cookie=f"{name}={value}".encode())
    assert reply.status == 401


def test_files_need_no_key_and_hold_no_number(server: Server) -> None:
    for name in ("app.js", "charts.js", "style.css"):
        reply = server.request("GET", f"/page/{name}")
        assert reply.status == 200
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["content-security-policy"] == POLICY
    for name in ("index.html", "sign_in.html", "..%2fpage.py", "x"):
        assert server.request("GET", f"/page/{name}").status == 404


def test_without_keys_there_is_no_sign_in(tmp_path: Path) -> None:
    with Server(tmp_path, config(both=False)) as server:
        page = server.request("GET", "/").body.decode()
        assert "Sign out" not in page
        reply = sign_in(server, "anything")
        assert reply.status == 404
        assert "no keys" in reply.body.decode()
        unknown = server.request("GET", "/?model=<script>")
        assert unknown.status == 404
        assert "there is no model" in unknown.body.decode().lower()
        assert "<script>" not in unknown.body.decode().replace("<script type", "")


def test_sessions_expire() -> None:
    now = [0.0]
    sessions = Sessions(now=lambda: now[0])
    token = sessions.open("owner")
    now[0] = SECONDS - 1.0
    assert sessions.who(token) == "owner"
    now[0] = float(SECONDS)
    with pytest.raises(Refused, match="sign-in has ended"):
        sessions.who(token)
    assert len(sessions) == 0


def test_sessions_are_bounded_and_hold_no_token() -> None:
    sessions = Sessions(most=3)
    tokens = [sessions.open(str(i)) for i in range(5)]
    assert len(sessions) == 3
    assert len(set(tokens)) == 5
    for token in tokens[:2]:
        with pytest.raises(Refused):
            sessions.who(token)
    assert [sessions.who(token) for token in tokens[2:]] == ["2", "3", "4"]
    assert not any(token in repr(vars(sessions)) for token in tokens)
