"""`fairwolfe serve` and `fairwolfe keys`: help, bad input, the demo, a clean end."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairwolfe.cli import commands
from fairwolfe.service.config import parse
from fairwolfe.service.keys import digest_of
from tests.service.servers import ROOT, Server, config, wait_for


@pytest.mark.parametrize("words", [["serve"], ["keys"], ["keys", "new"]])
def test_help_has_an_example(words: list[str]) -> None:
    shown = CliRunner().invoke(commands, [*words, "--help"])
    assert shown.exit_code == 0
    assert "Example: fairwolfe" in shown.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["serve"], "give the TOML file of a configuration, or --demo"),
        (["serve", "x.toml", "--demo"], "and not both"),
        (["serve", "nothing.toml"], "nothing.toml cannot be read"),
        (["serve", "--demo", "--listen", "0.0.0.0:0"], "there are no [[keys]]"),
        (["serve", "--demo", "--listen", "x"], "give HOST:PORT"),
        (["keys", "new", "a", "--scope", "all"], "'all' is not one of"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(words: list[str], sentence: str) -> None:
    shown = CliRunner().invoke(commands, words)
    assert shown.exit_code == 2
    assert sentence in shown.output
    assert "Traceback" not in shown.output


@pytest.mark.parametrize("module", ["apsw", "prometheus_client", "httptools", "uvloop"])
def test_without_the_extra_a_sentence_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    shown = CliRunner().invoke(commands, ["serve", "--demo"])
    assert shown.exit_code == 2
    package = module.replace("_", "-")
    assert (
        f"needs {package}, which is not installed: pip install 'fairwolfe[serve]'" in shown.output
    )


def test_a_new_key_fits_the_configuration() -> None:
    shown = CliRunner().invoke(commands, ["keys", "new", "web", "--scope", "read"])
    assert shown.exit_code == 0
    key = re.search(r"fw_[\w-]{40,}", shown.output)
    assert key is not None
    table = shown.output[shown.output.index("[[keys]]") :]
    parsed = parse(config(head=f'state = "s"\nlisten = "127.0.0.1:0"\n{table}'))
    assert parsed.keys[0].sha256 == digest_of(key[0])
    assert parsed.keys[0].scopes == ("read",)
    again = CliRunner().invoke(commands, ["keys", "new", "--json"])
    assert key[0] not in again.output
    made = json.loads(again.output)
    assert made["sha256"] == digest_of(made["key"])


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_with_exit_code_0(tmp_path: Path, end: signal.Signals) -> None:
    with Server(tmp_path, config(both=False)) as server:
        server.post("/v1/models/router/decide", {"arms": [[0.1] * 5]})
        os.kill(server.pid, end)
        assert server.ended() == 0
        assert server.complaints() == []
        server.start()
        assert server.get("/readyz")["replayed"] == 0


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with Server(tmp_path / "a", config(both=False)) as server:
        taken = server.url.removeprefix("http://")
        path = tmp_path / "b" / "config.toml"
        path.write_text(config(both=False))
        done = subprocess.run(
            [sys.executable, "-m", "fairwolfe", "serve", str(path), "--listen", taken],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=ROOT,
            check=False,
        )
    assert done.returncode == 2
    assert "cannot be bound" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_demo_is_alive(tmp_path: Path) -> None:
    server = Server(tmp_path, "", "fairwolfe", "serve", "--demo")
    server.path = Path("--listen=127.0.0.1:0")  # in the place of the file
    with server:
        assert "look at http://127.0.0.1:" in server.line()

        def learning() -> bool:
            return bool(server.get("/v1/models/music")["t"] > 20)

        wait_for(learning, 60.0)
        assert "What is it doing?" in server.get("/").decode()
        said = ""
        for _ in range(20):
            said = server.line()
            if said.startswith("After"):
                break
        assert said.startswith("After")
        assert server.stop() == 0
