"""`fairwolfe log` beside a service that runs: nothing stops, nothing is lost, and each command sees
the log as it was when it began.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from fairwolfe.service.log_file import LogFile, place_of, verify
from fairwolfe.service.recovery import replay
from fairwolfe.service.store import FILE, SQLiteStore
from tests.service.servers import ROOT, Server, config, wait_for

ARMS = [[0.1, 0.2, 0.0, 0.1, 0.0], [0.0, 0.3, 0.0, 0.0, 0.1]]


def log(*words: Any) -> tuple[int, Any]:
    """The exit code of a command in a process of its own, and what it says."""
    command = [sys.executable, "-m", "fairwolfe", "log", *map(str, words), "--json"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout)


@contextmanager
def crowd(server: Server, pause: float = 0.0) -> Iterator[dict[str, list[float]]]:
    """Clients that ask and report until the end; id -> what was reported, once acknowledged."""
    known: dict[str, list[float]] = {}
    stop = threading.Event()
    path = "/v1/models/router"

    def client(number: int) -> None:
        count = 0
        while not stop.is_set():
            try:
                reply = server.request("POST", f"{path}/decide", {"arms": ARMS})
                if reply.status != 200:
                    continue
                id, clicks = reply.body["id"], float(count % 2)
                known[id] = []
                told = {"id": id, "rewards": {"clicks": clicks}}
                if server.request("POST", f"{path}/feedback", told).status == 200:
                    known[id] = [clicks]
            except (OSError, ValueError, AssertionError):  # it was killed
                time.sleep(0.05)
            count += 1
            time.sleep(pause)

    clients = [threading.Thread(target=client, args=(i,)) for i in range(4)]
    for one in clients:
        one.start()
    try:
        yield known
    finally:
        stop.set()
        for one in clients:
            one.join(60)


@pytest.mark.needs("pyarrow")
def test_every_command_while_it_serves(tmp_path: Path) -> None:
    with Server(tmp_path, config("1 s", both=False)) as server:
        with crowd(server) as known:
            wait_for(lambda: len(known) > 300)
            for turn in range(2):
                before = len(known)
                code, found = log("verify", server.path, "--fold")
                assert (code, found["wrong"]) == (0, [])
                assert found["decisions"] >= before - 4
                code, found = log("replay", server.state)
                assert (code, found["wrong"]) == (0, [])
                assert log("export", server.path, tmp_path / f"out{turn}")[0] == 0
                assert log("backup", server.path, tmp_path / f"copy{turn}.sqlite")[0] == 0
                assert log("verify", tmp_path / f"copy{turn}.sqlite", "--fold")[0] == 0
        made = server.get("/v1/models/router")["decisions"]
        assert made == len(known)  # every one that was acknowledged, and no other
        wait_for(lambda: server.get("/v1/models/router")["open"] == 0)
        live = log("replay", server.path)[1]["models"]
        assert live[0]["decisions"] == made
        assert server.complaints() == []
        server.kill()
        store = SQLiteStore(server.state)
        folded = replay(store).models[0]
        store.close()
        assert folded.digest() == live[0]["digest"]
        server.start()
        for id, clicks in list(known.items())[::50]:
            shown = server.get(f"/v1/models/router/decisions/{id}")
            assert shown["id"] == id
            assert clicks == [] or shown["rewards"]["clicks"] == clicks[0]


def test_a_reader_sees_one_moment_and_holds_up_nobody(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state")
    for i in range(50):
        store.append(float(i), bytes(20_000))
    path = place_of(tmp_path / "state")
    reader = LogFile(path)
    assert reader.served
    for i in range(50, 400):
        store.append(float(i), bytes(20_000))
    grown = store.size()
    assert (reader.last()[0], reader.row_count) == (50, 50)
    assert len(list(reader.rows(0))) == 50
    assert reader.lost() == ""
    assert store.last()[0] == 400
    reader.close()
    for i in range(400, 450):  # the journal begins anew
        store.append(float(i), bytes(20_000))
    with closing(LogFile(path)) as again:
        assert again.last()[0] == 450
    journal = tmp_path / "state" / f"{FILE}-wal"
    held = journal.stat().st_size
    assert 350 * 20_000 < held < grown
    for i in range(450, 900):
        store.append(float(i), bytes(20_000))
    assert journal.stat().st_size == held  # its place is used again
    store.close()
    assert not (tmp_path / "state" / f"{FILE}-shm").exists()


def test_a_start_beside_a_reader_of_an_older_state(tmp_path: Path) -> None:
    """What a crash left in the journal is written and synced again, though it cannot go into the
    file.
    """
    folder = tmp_path / "state"
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from fairwolfe.service.store import SQLiteStore\n"
        "store = SQLiteStore(Path(sys.argv[1]))\n"
        "for i in range(5): store.append(float(i), b'row')\n"
        "print('half', flush=True)\nsys.stdin.readline()\n"
        "for i in range(5): store.append(float(i), b'row')\n"
        "print('whole', flush=True)\nsys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", script, str(folder)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        assert writer.stdout.readline() == "half\n"
        reader = LogFile(folder / FILE)
        writer.stdin.write("go\n")
        assert writer.stdout.readline() == "whole\n"
        writer.kill()
    before = (folder / f"{FILE}-wal").read_bytes()
    assert len(before) > 0
    store = SQLiteStore(folder)
    assert store.last()[0] == 10
    assert (folder / f"{FILE}-wal").read_bytes() == before
    assert store.append(9.0, b"more") == 11
    assert reader.last()[0] == 5
    assert len(list(reader.rows(0))) == 5
    reader.close()
    store.close()
    with closing(LogFile(folder / FILE)) as log:
        assert not log.served
        assert verify(log, False, lambda _: None).rows == 11


def test_a_start_writes_the_journal_again_where_the_file_cannot_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []

    class Busy(apsw.Connection):
        def wal_checkpoint(self, *_: Any, **__: Any) -> Any:
            raise apsw.BusyError("a reader")

    real = os.fsync
    monkeypatch.setattr(apsw, "Connection", Busy)
    monkeypatch.setattr(os, "fsync", lambda handle: synced.append(handle) or real(handle))  # type: ignore[func-returns-value]
    store = SQLiteStore(tmp_path / "state")
    store.append(0.0, b"row")
    journal, made = tmp_path / "state" / f"{FILE}-wal", len(synced)
    before = journal.read_bytes()
    store._sync_again()
    assert len(synced) == made + 1
    assert journal.read_bytes() == before != b""
    store.close()
