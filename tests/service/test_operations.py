"""What those who run a service see: its lines, its metrics page, its dashboard and its unit."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest

from fairwolfe.service.keys import new_key
from fairwolfe.service.logs import Lines
from fairwolfe.service.sqlite_store import SQLiteStore
from tests.service.inside import Inside
from tests.service.logs import AUDITED
from tests.service.servers import Server, config
from tests.service.test_p02_fold_of_the_log import ITEMS, play

MARKER = 0.77712345
SIGN = "77712345"  # of the marker, wherever it is written


# --- lines -------------------------------------------------------------------------------------


def hostile(server: Server, bearer: dict[str, Any]) -> None:
    """Everything that may make a service say something, with the marker in it."""
    many = [[MARKER, 0.2, 0.0, 0.1, 0.0], [0.0, 0.0, MARKER, 0.0, 0.0]]
    made = server.post("/v1/models/router/decide", {"arms": many}, **bearer)
    large = [[1.0 + MARKER] * 5] * 2  # over the norm that the problem states
    server.request("POST", "/v1/models/router/decide", {"arms": large}, **bearer)
    server.request("POST", "/v1/models/router/decide", {"arms": [[MARKER]]}, **bearer)
    server.request("POST", "/v1/models/router/decide", {"arms": [["0.77712345"] * 5]}, **bearer)
    server.request("POST", "/v1/models/router/decide", {SIGN: MARKER}, **bearer)
    server.request("POST", "/v1/models/router/decide", raw=b'{"arms": [[0.77712345', **bearer)
    out = {"id": made["id"], "rewards": {"clicks": MARKER, "minutes": 1000.0 + MARKER}}
    server.request("POST", "/v1/models/router/feedback", out, **bearer)
    server.request("POST", "/v1/models/front/decide", {"user": [MARKER] * 4}, **bearer)
    server.request("POST", "/v1/models/front/decide", {"user": [1e6 + MARKER] * 4}, **bearer)
    server.request("GET", f"/v1/models/{SIGN}", **bearer)
    server.request("PUT", "/v1/models/router/objective", {"objective": f"Linear({SIGN})"}, **bearer)


def test_lines_say_what_happened_and_who_did_it_and_nothing_else(tmp_path: Path) -> None:
    key, digest = new_key()
    head = (
        f'state = "state"\nlisten = "127.0.0.1:0"\n[[keys]]\nname = "boss"\nsha256 = "{digest}"\n'
    )
    head += 'scopes = ["decide", "feedback", "read", "admin"]\n'
    bearer: dict[str, Any] = {"authorization": f"Bearer {key}"}
    with Server(tmp_path, config("1 s", head=head)) as server:
        server.request("GET", "/v1/models", authorization=f"Bearer fw_marker_{SIGN}")
        items = [{"key": name, "features": [*row[:3], MARKER]} for name, row in ITEMS.items()]
        server.post("/v1/models/front/items", {"items": items}, **bearer)
        server.post("/v1/models/front/items", {"items": items}, **bearer)  # as it is: no line
        hostile(server, bearer)
        body = {"objective": "GeneralizedGini(weights=(1.0, 0.77712345))"}
        reply = server.request("PUT", "/v1/models/router/objective", body, **bearer)
        assert reply.status == 200
        assert server.request("DELETE", "/v1/models/front/items/i3", **bearer).status == 200
        server.kill()
        server.start()
        assert server.stop() == 0
        said = server.said()
        text = server.errors()
    assert SIGN not in text
    assert key not in text
    events = [line["event"] for line in said if line["event"] != "said"]  # by other modules
    assert len(events) < len(said)  # of large features and rewards out of their range
    assert events[:2] == ["start", "ready"]
    assert events[-3:] == ["start", "ready", "end"]
    assert all({"time", "level", "message"} <= set(line) for line in said)
    ready = [line for line in said if line["event"] == "ready"]
    assert ready[0]["records"] == 0
    assert ready[1]["records"] > 0
    assert all(line["seconds"] > 0 for line in ready)
    audit = [line for line in said if "who" in line]
    assert [line["event"] for line in audit] == [
        "items_added",
        "objective_replaced",
        "items_retired",
    ]
    assert all(line["who"] == "boss" for line in audit)
    assert [line["version"] for line in audit] == [0, 1, 0]
    assert [line.get("items") for line in audit] == [9, None, 1]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", line["time"]) for line in said)


def record(name: str, text: str, error: BaseException | None = None) -> dict[str, Any]:
    info = None if error is None else (type(error), error, error.__traceback__)
    made = logging.LogRecord(name, logging.ERROR, __file__, 7, text, (), info, "f")
    return dict(json.loads(Lines().format(made)))


def test_an_exception_is_its_type_and_its_place() -> None:
    def deep() -> None:
        raise ValueError(f"features {MARKER}")

    caught: BaseException | None = None
    try:
        deep()
    except ValueError as error:
        caught = error
    line = record("fairwolfe.service", "a group failed", caught)
    assert line["reason"] == "ValueError"
    assert line["at"][-1].startswith("test_operations.py:")
    assert line["at"][-1].endswith(" deep")
    assert SIGN not in json.dumps(line)
    other = record("fairwolfe", f"features of norm {MARKER} were given", caught)
    assert SIGN not in json.dumps(other)
    assert SIGN in json.dumps(record("fairwolfe.service", f"{MARKER}"))  # the search can find it


def test_a_stopped_model_and_a_lost_snapshot_are_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "state")
    service = Inside(AUDITED, store)
    play(service, 5)
    caplog.set_level(logging.INFO, "fairwolfe.service")

    def fail(*_: Any) -> None:
        raise ArithmeticError(f"{MARKER}")

    monkeypatch.setattr(store, "_base", _Full(store._base))
    service.core.snapshot()
    service.core.tick()
    monkeypatch.undo()
    monkeypatch.setattr(service.model("router"), "_close", fail)
    service.advance(60.0)
    store.close()
    said = {line.facts["event"]: line.facts for line in caplog.records}  # type: ignore[attr-defined]
    assert said["snapshot_failed"]["reason"]
    assert said["model_stopped"]["model"] == "router"
    assert said["model_stopped"]["reason"] == "ArithmeticError"
    assert SIGN not in caplog.text


class _Full:
    """A connection to a full disk."""

    def __init__(self, base: Any) -> None:
        self.base = base

    def execute(self, *words: Any) -> Any:
        import apsw

        if str(words[0]).startswith("INSERT"):
            raise apsw.FullError("database or disk is full")
        return self.base.execute(*words)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.base, name)
