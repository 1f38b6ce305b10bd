"""Retention while serving: each decision is in one exported file or in the log, whenever the
service is killed; the log stays whole and bounded.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from fairwolfe.agent import log_format
from fairwolfe.errors import InvalidInput
from fairwolfe.service.config import parse
from fairwolfe.service.recovery import recover
from fairwolfe.service.retention import FOLDER, settle
from fairwolfe.service.store import FILE, PruneBase, SQLiteStore
from tests.service.servers import Server, config, wait_for
from tests.service.test_read_while_serving import crowd, log

pytestmark = pytest.mark.needs("pyarrow")


def rows(path: Path) -> list[dict[str, Any]]:
    _, parts = log_format.read(path)
    return [row for part in parts for row in log_format.rows_of(part)]


def files(server: Server) -> list[Path]:
    return sorted((server.state / FOLDER / "router").glob("[0-9]*.parquet"))


def text(retain: str, window: str = "1 s") -> str:
    head = f'state = "state"\nlisten = "127.0.0.1:0"\nretain = "{retain}"\n'
    return config(window, head=head)  # and a ranking model that is never asked


def test_every_decision_is_in_one_place_whenever_it_is_killed(tmp_path: Path) -> None:
    draws = random.Random(5)
    with Server(tmp_path, text("3 s")) as server:
        with crowd(server, 0.01) as known:
            for _ in range(4):
                begun = len(files(server))
                until = time.monotonic() + 60.0
                while len(files(server)) < begun + 1 and time.monotonic() < until:
                    server.request("POST", "/v1/admin/snapshot")
                    time.sleep(0.4)
                assert len(files(server)) > begun
                time.sleep(draws.random())  # in the middle of the next turn, or between two
                server.kill()
                server.start()
        wait_for(lambda: shorter(server, 0.5), 60.0)
        wait_for(lambda: server.get("/v1/models/router")["open"] == 0)
        code, found = log("verify", server.path, "--fold")
        assert (code, found["wrong"]) == (0, [])
        assert found["deleted"] > 0
        gone = next(iter(known))
        lost = server.request("GET", f"/v1/models/router/decisions/{gone}")
        assert (lost.status, lost.body["error"]) == (404, "exported")
        assert server.stop() == 0
        assert [line for line in server.complaints() if line["event"] != "retention_failed"] == []
        digest = log("replay", server.path)[1]["models"][0]["digest"]
        store = SQLiteStore(server.state)
        assert recover(store).models[0].digest() == digest
        store.close()
        assert log("export", server.path, tmp_path / "rest")[0] == 0
    exported = files(server)
    bounds = [tuple(map(int, path.stem.split("-"))) for path in exported]
    assert bounds[0][0] == 0
    assert all(one[1] == other[0] for one, other in pairwise(bounds))
    everything = [row for path in exported for row in rows(path)]
    everything += rows(tmp_path / "rest" / "router.parquet")
    counts = Counter(row["id"] for row in everything)
    assert max(counts.values()) == 1
    assert set(known) <= counts.keys()
    assert [row["number"] for row in everything] == list(range(len(everything)))
    by_id = {row["id"]: row for row in everything}
    assert all(by_id[id]["reward.clicks"] == told[0] for id, told in known.items() if told)


@pytest.mark.slow
def test_the_file_stays_as_large_as_what_it_keeps(tmp_path: Path) -> None:
    with Server(tmp_path, text("2 s")) as server, crowd(server, 0.005):
        wait_for(lambda: server.metric("log_rows") > 300)
        server.request("POST", "/v1/admin/snapshot")
        each = (server.state / FILE).stat().st_size / server.metric("log_rows")
        wait_for(lambda: server.metric("log_rows") > 1500 and shorter(server, 0.4), 120.0)
        whole = each * server.metric("log_rows")
        wait_for(lambda: (server.state / FILE).stat().st_size < 0.7 * whole, 60.0)


def shorter(server: Server, part: float) -> bool:
    """Whether the log has only so large a part of its rows."""
    server.request("POST", "/v1/admin/snapshot")
    time.sleep(0.3)
    return server.metric("log_rows_kept") < part * server.metric("log_rows")


def test_hidden_files_get_their_names_only_where_the_log_says_so(tmp_path: Path) -> None:
    own = tmp_path / FOLDER / "router"
    own.mkdir(parents=True)
    for name in (".000000000000-000000000050", ".000000000000-000000000040"):
        (own / f"{name}.parquet").write_text(name)
    settle(tmp_path, {0: "router"}, {0: PruneBase(9, 50)})
    assert [path.name for path in own.iterdir()] == ["000000000000-000000000050.parquet"]
    (own / ".000000000000-000000000050.parquet").write_text("again")
    settle(tmp_path, {0: "router"}, {0: PruneBase(9, 50)})
    assert [path.read_text() for path in own.iterdir()] == [".000000000000-000000000050"]
    settle(tmp_path, {0: "router"}, {0: PruneBase(4, 20)})  # an older backup was restored
    assert [path.name[:33] for path in own.iterdir()] == ["000000000000-000000000050.replace"]


@pytest.mark.slow
def test_decisions_that_wait_for_a_later_stage_keep_their_rows(tmp_path: Path) -> None:
    staged = text("2 s").replace(
        "minutes = [0, 10]", 'minutes = { range = [0, 10], window = "1 h" }'
    )
    with Server(tmp_path, staged) as server:
        with crowd(server, 0.02) as known:
            until = time.monotonic() + 12.0
            while time.monotonic() < until:
                server.request("POST", "/v1/admin/snapshot")
                time.sleep(0.4)
        assert files(server) == []
        server.kill()
        server.start()
        for id in list(known)[:20]:
            told = {"id": id, "rewards": {"minutes": 3}}
            assert server.post("/v1/models/router/feedback", told)[0]["outcome"] == "joined"
        assert log("verify", server.path, "--fold")[1]["wrong"] == []


def test_retain_is_a_span_of_time() -> None:
    assert parse(text("90 d")).retain == "90 d"
    with pytest.raises(InvalidInput, match="retain is 'soon'"):
        parse(text("soon"))
