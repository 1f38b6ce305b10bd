"""P8: a second server on the same state folder does not start."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fairwolfe.errors import InvalidInput
from fairwolfe.service.store import SQLiteStore
from tests.service.servers import ROOT, Server, config


def test_a_second_server_is_refused(tmp_path: Path) -> None:
    with Server(tmp_path, config(both=False)) as server:
        second = subprocess.run(
            [sys.executable, "-m", "fairwolfe", "serve", str(server.path)],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
            env=server.env,
            check=False,
        )
        assert second.returncode == 2
        assert second.stdout == ""
        assert f"in use by another server (process {server.pid})" in second.stderr
        assert "Traceback" not in second.stderr
        assert server.get("/readyz")["ready"] is True
        server.kill()
        server.start()  # the lock of a killed server is gone with it


def test_a_second_store_is_refused(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state")
    with pytest.raises(InvalidInput, match="in use by another server"):
        SQLiteStore(tmp_path / "state")
    store.close()
    SQLiteStore(tmp_path / "state").close()
