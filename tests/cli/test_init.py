"""`fairwolfe init`: what it writes runs as it is, from the configuration to the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_cli import fairwolfe
from tests.service.servers import Server

DECISIONS = {"shop": "offers", "router": "router", "ranking": "front"}


@pytest.mark.parametrize(("kind", "model"), DECISIONS.items())
def test_the_client_plays_against_the_service(kind: str, model: str, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    written = fairwolfe("init", kind, str(folder))
    assert written.exit_code == 0, written.output
    assert f"fairwolfe serve {folder / 'config.toml'}" in written.output
    text = (folder / "config.toml").read_text().replace("127.0.0.1:8710", "127.0.0.1:0")
    with Server(folder, text) as server:
        client = (folder / "client.py").read_text().replace("http://127.0.0.1:8710", server.url)
        done = subprocess.run(
            [sys.executable, "-c", client],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env=os.environ,
        )
        known = server.get(f"/v1/models/{model}")
    assert re.match(r"300 decisions, \d+ of them wait", done.stdout)
    assert (known["decisions"], known["unknown"], known["late"]) == (300, 0, 0)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "client.py").write_text("mine")
    result = fairwolfe("init", "shop", str(tmp_path))
    assert result.exit_code == 2
    assert "client.py exists already; name another folder" in result.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["client.py"]


def test_a_kind_that_does_not_exist() -> None:
    result = fairwolfe("init", "blog")
    assert result.exit_code == 2
    assert "'blog' is not one of 'shop', 'ranking', 'router'" in result.stderr
