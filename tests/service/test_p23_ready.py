"""P23: ready only after replay; nothing is compiled then, or ever."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.service.servers import Server, config

ITEMS = np.random.default_rng(0).uniform(-0.4, 0.4, (9, 4)).tolist()


def exercise(server: Server) -> None:
    """Everything that a client can ask for."""
    rng = np.random.default_rng(1)
    items = [{"key": f"i{n}", "features": row} for n, row in enumerate(ITEMS)]
    server.post("/v1/models/front/items", {"items": items[:7]})

    def arms(n: int) -> list[Any]:
        return rng.uniform(-0.4, 0.4, (n, 5)).tolist()  # type: ignore[no-any-return]

    def user() -> list[float]:
        return rng.uniform(-0.4, 0.4, 4).tolist()  # type: ignore[no-any-return]

    for model, ask in (("router", lambda: {"arms": arms(3)}), ("front", lambda: {"user": user()})):
        path = f"/v1/models/{model}"
        made = [server.post(f"{path}/decide", {**ask(), "explain": True}) for _ in range(3)]
        made += server.post(f"{path}/decide_many", {"requests": [ask() for _ in range(4)]})
        for one in made[:5]:
            entry: dict[str, Any] = {"id": one["id"], "rewards": {"clicks": 1, "minutes": 9}}
            if model == "front":
                entry = {"id": one["id"], "exposed": one["items"], "clicked": one["items"][:1]}
            assert server.post(f"{path}/feedback", entry)[0]["outcome"] == "joined"
    mixed = [{"arms": arms(2)}, {"arms": arms(4), "candidates": [0, 2]}]
    server.post("/v1/models/router/decide_many", {"requests": mixed})
    asked = {"user": user(), "blocked": ["i0"], "pinned": {"1": "i4"}}
    server.post("/v1/models/front/decide", asked)
    server.post("/v1/models/front/decide", {"user": user(), "candidates": ["i1", "i2", "i3"]})
    wait_closed(server)
    server.post("/v1/models/front/items", {"items": items[7:]})
    server.request("DELETE", "/v1/models/front/items/i2")
    objective = {"objective": "TwoSided(items=GiniWelfare(), beta=2.0)"}
    assert (
        server.request("PUT", "/v1/models/front/objective", objective, if_match="*").status == 200
    )
    for _ in range(3):
        server.post("/v1/models/front/decide", {"user": user()})
    wait_closed(server)
    for path in ("live", "exposure", "history", "constraints", "items", "objective"):
        server.get(f"/v1/models/front/{path}")
    server.get("/v1/models/router/live")
    server.get("/")
    server.post("/v1/admin/snapshot", {})


def wait_closed(server: Server) -> None:
    from tests.service.servers import wait_for

    def closed() -> bool:
        return all(model["open"] == 0 for model in server.get("/v1/models")["models"])

    wait_for(closed)


def test_everything_can_be_asked_after_ready_and_nothing_is_compiled(tmp_path: Path) -> None:
    with Server(tmp_path, config("0.3 s"), "tests.service.sealed") as server:
        exercise(server)
        assert server.complaints() == []


def test_ready_only_after_replay(tmp_path: Path) -> None:
    """What was learnt is there in the first answer of the next life, also without a snapshot."""
    with Server(tmp_path, config("0.3 s"), "tests.service.broken", "unsnapped") as server:
        exercise(server)
        before = server.get("/v1/models")["models"]
        server.kill()
        server.start()
        after = server.get("/v1/models")["models"]
        assert [one["decisions"] for one in after] == [one["decisions"] for one in before]
        assert [one["t"] for one in after] == [one["t"] for one in before]
        assert min(one["t"] for one in after) > 5
