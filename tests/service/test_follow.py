"""A copy that follows: kill the service and the follower, lose the disk, restore; nothing up to the
last row of the copy is lost.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from fairwolfe.errors import IncompatibleState
from fairwolfe.service.events import DecisionsMade, decode
from fairwolfe.service.log_file import LogFile, follow
from fairwolfe.service.store import FILE, SQLiteStore
from tests.service.servers import ROOT, Server, config, wait_for
from tests.service.test_read_while_serving import crowd, log


def follower(server: Server, copy: Path) -> subprocess.Popen[bytes]:
    words = ("log", "backup", "--follow", str(server.path), str(copy))
    return subprocess.Popen(
        [sys.executable, "-m", "fairwolfe", *words], stdout=subprocess.DEVNULL, cwd=ROOT
    )


def decided(path: Path) -> int:
    """How many decisions of the first model are in the rows of a copy."""
    with closing(LogFile(path)) as held:
        rows = [row for _, row in held.every_row() if row is not None]
    events = [event for row in rows for event in decode(row.payload)]
    return sum(len(e.made.head) for e in events if isinstance(e, DecisionsMade) and e.model == 0)


def test_a_lost_disk_loses_only_what_was_not_copied(tmp_path: Path) -> None:
    draws, copy = random.Random(7), tmp_path / "copy.sqlite"
    text = config("2 s", both=False)
    with Server(tmp_path, text) as server:
        running = follower(server, copy)
        try:
            with crowd(server, 0.02) as known:
                wait_for(copy.exists)
                for _ in range(3):
                    time.sleep(1.0 + draws.random())
                    running.kill()
                    running.wait(30)
                    running = follower(server, copy)
                    time.sleep(draws.random())
                    server.kill()
                    server.start()
                before, marks = list(known), server.metric("log_rows")
                wait_for(lambda: decided(copy) >= len(before))
                assert marks > 0
            server.kill()
        finally:
            running.kill()
            running.wait(30)
        made = decided(copy)
        assert made >= len(before)
        shutil.rmtree(server.state)
        assert log("restore", copy, server.path)[0] == 0
        assert log("verify", server.path, "--fold")[1]["wrong"] == []
        server.start()
        shown = server.get("/v1/models/router")
        assert shown["decisions"] == made
        assert all(
            server.request("GET", f"/v1/models/router/decisions/{id}").status == 200
            for id in before[::10]
        )
        fresh = [
            server.post("/v1/models/router/decide", {"arms": [[0.1] * 5] * 2})["id"]
            for _ in range(20)
        ]
        assert not set(fresh) & set(known)  # nor with those that were lost


def test_a_copy_of_another_log_is_left_alone(tmp_path: Path) -> None:
    copy = tmp_path / "copy.sqlite"
    for name in ("one", "two"):
        store = SQLiteStore(tmp_path / name)
        for i in range(3):
            store.append(float(i), b"row")
        store.close()
    assert follow(tmp_path / "one" / FILE, copy) == 3
    assert follow(tmp_path / "one" / FILE, copy) == 3
    before = copy.read_bytes()
    with pytest.raises(IncompatibleState, match="is not a copy of this log"):
        follow(tmp_path / "two" / FILE, copy)
    assert copy.read_bytes() == before
    shutil.copytree(tmp_path / "one", tmp_path / "older")
    store = SQLiteStore(tmp_path / "one")
    store.append(3.0, b"more")
    store.close()
    assert follow(tmp_path / "one" / FILE, copy) == 4
    with pytest.raises(IncompatibleState, match="replaced by an older one"):
        follow(tmp_path / "older" / FILE, copy)
