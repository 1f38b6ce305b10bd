"""SIGHUP: keys and limits of the file as it is now, while requests are served."""

from __future__ import annotations

import http.client
import os
import signal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fairwolfe.service.config import Key
from fairwolfe.service.keys import KeyRing, new_key
from fairwolfe.service.wire import Refused
from tests.service.servers import Server, config, wait_for
from tests.service.test_page_sign_in import cookie, sign_in

OLD, NEW = new_key(), new_key()
ARMS = {"arms": [[0.1] * 5] * 2}
DECIDE = "/v1/models/router/decide"


def text(*keys: tuple[str, tuple[str, str], str], more: str = "") -> str:
    head = 'state = "state"\nlisten = "127.0.0.1:0"\n' + "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{digest}"\n'
        f'scopes = ["decide", "read", "feedback", "admin"]\n{rest}\n'
        for name, (_, digest), rest in keys
    )
    return config("20 s", head=head + more, both=False)


def bearer(key: tuple[str, str]) -> dict[str, Any]:
    return {"authorization": f"Bearer {key[0]}"}


def reload(server: Server, given: str) -> dict[str, Any]:
    """The line that it writes about a file."""
    before = len(server.said())
    server.path.write_text(given)
    os.kill(server.pid, signal.SIGHUP)
    wait_for(lambda: len(server.said()) > before)
    return server.said()[before]


def test_keys_come_and_go_while_it_serves(tmp_path: Path) -> None:
    with Server(tmp_path, text(("old", OLD, ""))) as server:
        parts = urlsplit(server.url)
        kept = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)

        def on_the_same_connection() -> int:
            kept.request("GET", "/v1/models", headers=bearer(OLD))
            reply = kept.getresponse()
            reply.read()
            return reply.status

        made = server.post(DECIDE, ARMS, **bearer(OLD))
        mine = cookie(sign_in(server, OLD[0]))
        stream = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=30)
        stream.request("GET", "/v1/models/router/stream", headers={"cookie": mine})
        frames = stream.getresponse()
        assert frames.readline().startswith(b"retry")
        assert on_the_same_connection() == 200
        assert server.request("POST", DECIDE, ARMS, **bearer(NEW)).status == 401

        line = reload(server, text(("old", OLD, ""), ("new", NEW, 'models = ["x"]')))
        assert (line["event"], line["added"], line["removed"]) == ("reloaded", ["new"], [])
        assert line["restart"] == []
        assert server.request("POST", DECIDE, ARMS, **bearer(NEW)).status == 403
        assert server.request("GET", "/v1/models", cookie=mine).status == 200

        line = reload(server, text(("new", NEW, "")))
        assert (line["added"], line["removed"]) == (["new"], ["new", "old"])
        assert on_the_same_connection() == 401
        assert server.request("GET", "/v1/models", cookie=mine).body["error"] == "signed_out"
        frames.read()  # it ends
        assert server.get(f"/v1/models/router/decisions/{made['id']}", **bearer(NEW))
        for connection in (kept, stream):
            connection.close()
        assert server.stop() == 0
        assert OLD[0] not in server.errors()


def test_limits_are_read_again_and_the_rest_is_reported(tmp_path: Path) -> None:
    one = ("old", OLD, "")
    with Server(tmp_path, text(one)) as server:
        server.post(DECIDE, ARMS, **bearer(OLD))
        other = text(one, more='[limits]\nbody = "40 B"\n').replace('"20 s"', '"30 s"')
        line = reload(server, other.replace('"127.0.0.1:0"', '"127.0.0.1:1"'))
        assert line["restart"] == ["listen", "models.router"]
        assert line["level"] == "warning"
        assert server.request("POST", DECIDE, ARMS, **bearer(OLD)).status == 413
        assert server.get("/v1/models/router", **bearer(OLD))["window"] == 20.0
        assert reload(server, text(one))["restart"] == []
        server.post(DECIDE, ARMS, **bearer(OLD))


def test_a_file_with_an_error_changes_nothing(tmp_path: Path) -> None:
    with Server(tmp_path, text(("old", OLD, ""))) as server:
        for broken, words in (
            ("state = ", "is not TOML"),
            (text(("old", OLD, ""), ("new", NEW, "raet = 3")), "did you mean 'rate'"),
            (text(("new", NEW, ""), more='[limits]\nbody = "x"\n'), "limits.body is 'x'"),
            (text(), "has no [[keys]]; end the service"),
        ):
            line = reload(server, broken)
            assert line["event"] == "reload_failed"
            assert words in line["reason"]
            server.post(DECIDE, ARMS, **bearer(OLD))
            assert server.request("POST", DECIDE, ARMS, **bearer(NEW)).status == 401
        server.path.unlink()
        os.kill(server.pid, signal.SIGHUP)
        wait_for(lambda: "cannot be read" in server.said()[-1].get("reason", ""))
        assert server.stop() == 0


def test_a_key_that_stays_has_spent_what_it_has_spent() -> None:
    now = [0.0]
    key, digest = new_key()
    ring = KeyRing([Key("web", digest, ("read",), rate=2.0)], lambda: now[0])

    def refused() -> bool:
        try:
            ring.check(f"Bearer {key}", "read")
        except Refused as error:
            return error.status == 429
        return False

    assert [refused(), refused(), refused()] == [False, False, True]
    ring.replace([Key("web", digest, ("read", "decide"), rate=2.0)])
    assert refused()
    now[0] = 0.5
    assert not refused()
    ring.replace([])
    ring.replace([Key("web", digest, ("read",), rate=2.0)])
    assert [refused(), refused(), refused()] == [False, False, True]
