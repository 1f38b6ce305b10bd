"""The other routes: what is known of a model, its items and objective, backups and limits."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fairwolfe.core.packing import unpack
from fairwolfe.service import page, watch
from fairwolfe.service.config import Limits
from fairwolfe.service.core import LONGEST
from fairwolfe.service.log_file import restore
from fairwolfe.service.model import constraints_of
from fairwolfe.service.recovery import recover
from fairwolfe.service.store import SQLiteStore
from fairwolfe.service.wire import Refused
from tests.service.inside import Inside
from tests.service.servers import Server, config, wait_for

ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]]
ROUTER, FRONT = "/v1/models/router", "/v1/models/front"
ROWS = np.random.default_rng(0).uniform(-0.4, 0.4, (5, 4)).tolist()


def test_items_objective_exposure_and_backup(tmp_path: Path) -> None:
    with Server(tmp_path, config("0.3 s")) as server:
        items = [
            {"key": key, "features": row, "attributes": {}}
            for key, row in zip("abcde", ROWS, strict=True)
        ]
        assert server.get(f"{FRONT}/items") == {"items": []}
        assert server.post(f"{FRONT}/items", {"items": items[:2]}) == {"items": 2}
        reply = server.request("POST", f"{FRONT}/decide", {"user": [0.1] * 4})
        assert (reply.status, reply.body["error"]) == (409, "no_items")
        assert server.request("DELETE", f"{FRONT}/items/b").body == {"items": 1}
        assert server.post(f"{FRONT}/items", {"items": items}) == {"items": 5}
        rows = server.metric("log_rows")
        assert server.post(f"{FRONT}/items", {"items": items}) == {"items": 5}
        assert server.metric("log_rows") == rows  # it was so already
        assert server.get(f"{FRONT}/items") == {"items": [items[0], items[1], *items[2:]]}
        assert server.get(f"{FRONT}/exposure")["gini"] is None
        for _ in range(8):
            made = server.post(f"{FRONT}/decide", {"user": [0.3, 0.1, -0.2, 0.1]})
            entry = {"id": made["id"], "exposed": made["items"], "clicked": made["items"][:1]}
            server.post(f"{FRONT}/feedback", entry)
        from tests.service.servers import wait_for

        wait_for(lambda: server.get(FRONT)["open"] == 0)
        shown = server.get(f"{FRONT}/exposure")
        assert len(shown["lorenz"]) == 101
        assert (shown["lorenz"][0], shown["lorenz"][-1]) == (0.0, pytest.approx(1.0))
        assert 0.0 <= shown["gini"] < 1.0
        assert shown["most"][0]["exposure"] >= shown["least"][0]["exposure"]
        live = server.get(f"{FRONT}/live")
        assert live["sentence"].startswith("After 8 decisions f is")
        assert server.get(f"{FRONT}/constraints") == {"constraints": []}
        before = server.request("GET", f"{FRONT}/objective")
        assert before.headers["etag"] == '"0"'
        text = {"objective": "TwoSided(items=GiniWelfare(), beta=3.0)"}
        assert server.request("PUT", f"{FRONT}/objective", text, if_match='"0"').status == 200
        assert server.request("PUT", f"{FRONT}/objective", text, if_match='"0"').status == 412
        assert server.request("DELETE", f"{FRONT}/items/zz").status == 404
        assert server.request("DELETE", f"{FRONT}/items/a").body == {"items": 4}
        assert server.request("DELETE", f"{FRONT}/items/b").body == {"items": 3}
        assert server.request("DELETE", f"{FRONT}/items/c").status == 422  # too few would be left
        copy = tmp_path / "copy"
        (tmp_path / "copy.sqlite").write_bytes(server.get("/v1/admin/backup"))
        restore(tmp_path / "copy.sqlite", copy, lambda _: None)
        assert list(server.state.glob("backup-*")) == []
        document = server.get("/openapi.json")
        assert document["paths"]["/v1/models/{model}/decide"]["post"]["x-scope"] == "decide"
        assert json.dumps(document).count("$ref") > 5
        page = server.request("GET", "/?model=front")
        assert "8 visits" in page.body.decode()
        assert "default-src 'none'" in page.headers["content-security-policy"]
        server.kill()
        digests = []
        for folder in (copy, server.state):
            store = SQLiteStore(folder)
            digests.append([m.digest() for m in recover(store).models.values()])
            store.close()
        assert digests[0] == digests[1]


def test_history_is_dense_at_first_and_then_a_point_a_minute() -> None:
    service = Inside(config("5 s", both=False))
    for _ in range(5):
        service.decide("router", arms=ARMS)
        service.advance(1.0)
    assert [clock for clock, _ in service.store.history(0)] == [2.0, 4.0]
    service.advance(3200.0)  # from then on a point a minute, where there is something new
    idle = len(service.store.history(0))
    assert idle <= 5
    for _ in range(62):
        service.decide("router", arms=ARMS)
        service.advance(10.0)
    clocks = [clock for clock, _ in service.store.history(0) if clock > 3205.0]
    assert len(clocks) == 10
    assert all(60.0 <= b - a <= 60.0 + LONGEST for a, b in pairwise(clocks))
    points = [unpack(point)[0] for _, point in service.store.history(0)]
    known = {"wall", "t", "version", "value", "average", "at_most", "about", "low", "high", "gini"}
    assert set(points[0]) == known | {"visits", "shown"}
    assert [point["t"] for point in points[:2]] == [0, 0]
    assert points[idle - 1]["t"] == 5
    assert points[-1]["t"] > 60


def test_history_is_thinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairwolfe.service.store.MOST_POINTS", 10)
    store = SQLiteStore(tmp_path / "state")
    for i in range(100):
        store.note(0, float(i), b"point")
        store.note(1, float(i), b"other")
    kept = [clock for clock, _ in store.history(0)]
    assert 5 <= len(kept) <= 10
    assert (kept[0], kept[-1]) == (0.0, 99.0)
    store.close()


def test_open_decisions_are_bounded() -> None:
    service = Inside(config("10 s", both=False), limits=Limits(open=3))
    service.decide_many("router", [{"arms": ARMS}] * 2)
    answers = service.together(*(service.ask("router", arms=ARMS) for _ in range(3)))
    refused = [a for a in answers if isinstance(a, Refused)]
    assert [(a.status, a.error) for a in refused] == [(429, "too_many_open")] * 2
    assert service.model("router").decisions == 3
    service.advance(10.0)
    assert service.decide("router", arms=ARMS).number == 3


def test_what_waits_is_bounded() -> None:
    service = Inside(config("10 s", both=False), limits=Limits(waiting=5))
    answers = service.together(*(service.ask("router", arms=ARMS) for _ in range(9)))
    refused = [a for a in answers if isinstance(a, Refused)]
    assert [(a.status, a.error) for a in refused] == [(429, "busy")] * 4
    assert all(a.retry_after for a in refused)
    assert service.model("router").decisions == 5
    assert service.core.waiting == 0


def test_a_model_that_fails_is_stopped_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairwolfe.service.model import Model

    service = Inside(config("10 s"))
    service.decide("router", arms=ARMS)

    def broken(self: Model, numbers: Any) -> None:
        raise RuntimeError("as if the numbers were wrong")

    with monkeypatch.context() as patched:
        patched.setattr(Model, "_learn", broken)
        service.advance(10.0)
    with pytest.raises(Refused, match="is stopped, since row") as caught:
        service.decide("router", arms=ARMS)
    assert caught.value.status == 503
    assert Inside(config("10 s"), service.store).model("router").t == 1  # the log is right


def test_a_policy_that_fails_does_not_spoil_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairwolfe.service import core

    service = Inside(config("10 s").replace("[models.front]", ARMS_AGAIN + "[models.front]"))
    propose = core._propose

    def broken(model: Any, asks: Any, contexts: Any) -> Any:
        if model.name == "again":
            raise ZeroDivisionError
        return propose(model, asks, contexts)

    monkeypatch.setattr(core, "_propose", broken)
    good, bad = service.together(service.ask("router", arms=ARMS), service.ask("again", arms=ARMS))
    assert good[0].number == 0
    assert isinstance(bad, ZeroDivisionError)
    assert service.model("again").decisions == 0


ARMS_AGAIN = """
[models.again]
missing = "zero"
problem = { kind = "arms", n_features = 5, rewards = { clicks = [0, 1] } }
policy = { name = "frank-wolfe", objective = { name = "minimum" }, base = { name = "linucb" } }
"""


def test_constraints_are_those_of_the_agent() -> None:
    assert constraints_of(None) == ()
    one = SimpleNamespace(name="cost")
    agent: Any = SimpleNamespace(constraints=(one,))
    assert constraints_of(agent) == (one,)


def test_a_constraint_without_decisions_is_not_kept() -> None:
    text = config(both=False).replace(
        '{ name = "generalized-gini", weights = [1.0, 0.5] }',
        '{ name = "sum", terms = [{ name = "linear", weights = { clicks = 1.0 } }, '
        '{ name = "at-most", level = { minutes = 2.0 } }] }',
    )
    service = Inside(text)
    model = service.model("router")
    (one,) = watch.constraints_view(model)
    assert (one["average"], one["slack"], one["feasible"]) == (None, None, None)
    assert one["sentence"] == "minutes is to be at most 2: no answers yet."
    (limit,) = page.frame_of(service.core, model, watch.live_of(model))["limits"]
    assert limit["state"] == "unknown"
    number = service.decide("router", arms=[[0.1] * 5]).number
    service.tell("router", {"id": model.id(number), "rewards": {"minutes": 1.0}})
    service.advance(21.0)
    (one,) = watch.constraints_view(model)
    assert (one["average"], one["slack"]) == (1.0, 1.0)
    (limit,) = page.frame_of(service.core, model, watch.live_of(model))["limits"]
    assert limit["state"] == "kept"


GUARDED = """
state = "state"
listen = "127.0.0.1:0"
[models.router]
window = "0.2 s"
missing = "zero"
problem = { kind = "arms", n_features = 5, rewards = { clicks = [0, 1] }, parameter_norm = 1.0 }
[models.router.policy]
name = "guarded"
share = 0.9
policy = { name = "frank-wolfe", objective = { name = "minimum" }, base = { name = "linucb" } }
baseline = { name = "frank-wolfe", objective = { name = "minimum" }, base = { name = "uniform" } }
"""


def test_a_policy_without_live_numbers_is_served(tmp_path: Path) -> None:
    with Server(tmp_path, GUARDED) as server:
        made = server.post("/v1/models/router/decide", {"arms": ARMS})
        entry = {"id": made["id"], "rewards": {"clicks": 1}}
        assert server.post("/v1/models/router/feedback", [entry])[0]["outcome"] == "joined"
        wait_for(lambda: server.get("/v1/models/router")["t"] == 1)
        assert "live numbers" in server.get("/v1/models/router/live")["sentence"]
        assert server.stop() == 0
        server.start()
        assert server.get("/v1/models/router")["average"] == {"clicks": 1.0}
