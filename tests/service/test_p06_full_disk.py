"""P6: a full or read-only disk is 503 with Retry-After, and works again without a restart."""

from __future__ import annotations

import http.client
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from fairwolfe.service.store import SQLiteStore
from fairwolfe.service.wire import Refused
from tests.service.inside import Inside
from tests.service.servers import Server, config, wait_for

ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    subprocess.run(mount, check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def fill(path: Path) -> None:
    """Use up what is left."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


@pytest.mark.needs("tmpfs")
def test_a_disk_that_is_full_for_a_while(small_disk: Path) -> None:
    with Server(small_disk, config("60 s", both=False)) as server:
        kept = [
            server.post("/v1/models/router/decide", {"arms": ARMS, "request_id": str(i)})
            for i in range(5)
        ]
        filler = small_disk / "filler"
        fill(filler)
        refused = 0
        known = server.get("/v1/models/router")
        for i in range(200):
            ask = {"arms": ARMS, "request_id": f"full {i}"}
            reply = server.request("POST", "/v1/models/router/decide", ask)
            if reply.status == 200:  # there was room in a journal that is written again
                kept.append(reply.body)
                known = server.get("/v1/models/router")
                continue
            assert reply.status == 503
            assert int(reply.headers["retry-after"]) >= 1
            assert reply.body["error"] == "not_durable"
            refused += 1
            if refused == 5:
                break
        assert refused == 5
        assert server.get("/v1/models/router") == known
        assert server.request("GET", "/readyz").status == 503
        assert server.get("/healthz") == {"alive": True}
        filler.unlink()
        wait_for(lambda: server.request("GET", "/readyz").status == 200)
        kept.append(server.post("/v1/models/router/decide", {"arms": ARMS, "request_id": "new"}))
        again = server.post("/v1/models/router/decide", {"arms": ARMS, "request_id": "0"})
        assert (again["id"], again["arm"]) == (kept[0]["id"], kept[0]["arm"])
        server.kill()
        server.start()
        for one in kept:
            found = server.get(f"/v1/models/router/decisions/{one['id']}")
            assert found["arm"] == one["arm"]
        assert server.get("/v1/models/router")["decisions"] == len(kept)


@pytest.mark.parametrize("error", [apsw.FullError, apsw.ReadOnlyError, apsw.IOError])
def test_whatever_sqlite_raises_changes_nothing(
    tmp_path: Path, error: type[apsw.Error], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "state")
    service = Inside(config("60 s", both=False), store)
    service.decide("router", arms=ARMS)
    before = service.model("router").digest()
    base = store._base

    class Failing:
        """A connection whose commits fail."""

        def __getattr__(self, name: str) -> Any:
            return getattr(base, name)

        def execute(self, statement: str, *values: Any) -> Any:
            if statement == "COMMIT":
                raise error("as SQLite says it")
            return base.execute(statement, *values)

    with monkeypatch.context() as broken:
        broken.setattr(store, "_base", Failing())
        ask, tell = service.ask("router", arms=ARMS), {"id": service.model("router").id(0)}
        (answer,) = service.together(ask)
        assert isinstance(answer, Refused)
        assert (answer.status, answer.retry_after) == (503, 1.0)
        with pytest.raises(Refused, match="could not be written"):
            service.tell("router", {**tell, "rewards": {"clicks": 1.0}})
        service.advance(120.0)  # nothing closes, and the time does not count
        assert service.model("router").ring.closed == 0
        service.core.snapshot()
        assert service.core.failing
    assert service.model("router").digest() == before
    service.advance(1.0)
    assert not service.core.failing
    assert service.decide("router", arms=ARMS).number == 1
    service.advance(58.0)
    assert service.model("router").ring.closed == 0
    service.advance(2.0)
    assert service.model("router").ring.closed == 2
    store.close()


def test_a_failed_sync_ends_the_process(tmp_path: Path) -> None:
    """Whether the row will be there is unknown, so nobody is told that nothing changed."""
    text = config("60 s", both=False)
    with Server(tmp_path, text, "tests.service.broken", "unsynced") as server:
        ask = {"arms": ARMS, "request_id": "before"}
        kept = server.post("/v1/models/router/decide", ask)
        (tmp_path / "eio").touch()
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            server.request("POST", "/v1/models/router/decide", {"arms": ARMS})
        assert server.ended() == 74
        (failed,) = [line for line in server.said() if line["event"] == "sync_failed"]
        assert failed["level"] == "critical"
        assert "could not be synced" in failed["reason"]
        (tmp_path / "eio").unlink()
        server.start()
        assert server.post("/v1/models/router/decide", ask) == kept
        assert server.get("/v1/models/router")["decisions"] in (1, 2)
