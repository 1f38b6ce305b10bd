"""`fairwolfe data lastfm` against a server on this machine that misbehaves in every way."""

from __future__ import annotations

import hashlib
import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from fairwolfe.cli import commands
from fairwolfe.environments import downloads
from fairwolfe.environments import listening as lastfm
from fairwolfe.errors import InvalidInput, MissingData

CONTENT = b"userID\tartistID\tweight\r\n" + b"2\t51\t13883\r\n" * 20_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


def zipped(name: str = "user_artists.dat", content: bytes = CONTENT) -> bytes:
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as files:
        files.writestr("readme.txt", "hello")
        files.writestr(name, content)
    return archive.getvalue()


class Server(ThreadingHTTPServer):
    """Serves what a path asks for, and counts the questions."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.half_sent = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        what = self.path.strip("/")
        self.server.asked.append(what)
        body = {
            "good": zipped(),
            "folder": zipped("hetrec/user_artists.dat"),
            "wrong": zipped(content=CONTENT[1:]),
            "without": zipped("artists.dat"),
            "page": b"<html>please log in</html>",
            "broken": zipped()[:-2000],
            "truncated": zipped(),
            "cut": zipped(),
            "slow": zipped(),
            "unknown": zipped(),
        }.get(what)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        if what != "unknown":
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if what in ("truncated", "cut", "slow"):
            self.wfile.write(body[: len(body) // 2])
            self.wfile.flush()
            self.server.half_sent.set()
            if what == "cut":
                # A reset, not an end: unread input and no lingering.
                linger = (1).to_bytes(4, sys.byteorder) + (0).to_bytes(4, sys.byteorder)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.connection.close()
            elif what == "slow":
                self.connection.settimeout(60)
                self.connection.recv(1)  # until the client has gone
            return
        self.wfile.write(body)

    def finish(self) -> None:
        try:
            super().finish()
        except OSError:
            return  # its connection was cut on purpose

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to download to, on a machine without the data, with a checksum of ours."""
    monkeypatch.setenv("FAIRWOLFE_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(lastfm, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(lastfm, "SHA256", SHA256)
    made = tmp_path / "to"
    made.mkdir()
    return made


def fetch(*arguments: str) -> Result:
    return CliRunner().invoke(commands, ["data", "lastfm", *arguments], prog_name="fairwolfe")


def found(folder: Path) -> list[str]:
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())


@pytest.mark.parametrize("path", ["good", "folder", "unknown"])
def test_the_file_is_there_and_is_not_downloaded_twice(
    server: Server, folder: Path, path: str
) -> None:
    first = fetch("--from", server.url(path), "--to", str(folder))
    assert (first.exit_code, first.stderr.strip()) == (0, "")
    assert found(folder) == ["lastfm/user_artists.dat"]
    assert (folder / "lastfm" / "user_artists.dat").read_bytes() == CONTENT
    assert "not commercial" in first.stdout
    assert "cites I. Cantador" in first.stdout
    assert "user_artists.dat is there now" in first.stdout
    assert f"export FAIRWOLFE_DATA={folder}" in first.stdout
    again = fetch("--from", server.url(path), "--to", str(folder))
    assert again.exit_code == 0
    assert "user_artists.dat is there already" in again.stdout
    assert server.asked == [path]


def test_without_a_folder_it_goes_to_the_cache(server: Server, folder: Path) -> None:
    said = fetch("--from", server.url("good"), "--json")
    cached = lastfm.target(None)
    row = {"name": "lastfm", "file": str(cached), "downloaded": True, "sha256": SHA256}
    assert json.loads(said.stdout) == row | {"licence": lastfm.LICENCE}
    assert cached.read_bytes() == CONTENT
    assert lastfm.find() == cached
    again = json.loads(fetch("--from", server.url("good"), "--json").stdout)
    assert again == row | {"downloaded": False, "licence": lastfm.LICENCE}
    assert server.asked == ["good"]


def test_a_spoilt_file_is_replaced(server: Server, folder: Path) -> None:
    file = folder / "lastfm" / "user_artists.dat"
    file.parent.mkdir()
    file.write_bytes(CONTENT[:-1])
    assert fetch("--from", server.url("wrong"), "--to", str(folder)).exit_code == 2
    assert file.read_bytes() == CONTENT[:-1]
    assert fetch("--from", server.url("good"), "--to", str(folder)).exit_code == 0
    assert file.read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("wrong", f"not {SHA256[:12]}..., so it is not the published file; nothing was written"),
        ("missing", "answers 404 Not Found; nothing was written, try another address with --from"),
        ("without", "has no file user_artists.dat; nothing was written"),
        ("page", "is not a zip archive (File is not a zip file); nothing was written"),
        ("broken", "is not a zip archive"),
        ("truncated", "bytes; nothing was written, try again"),
        ("cut", "cannot be downloaded ("),
    ],
)
def test_what_goes_wrong_is_one_sentence_and_leaves_nothing(
    server: Server, folder: Path, path: str, sentence: str
) -> None:
    said = fetch("--from", server.url(path), "--to", str(folder))
    assert said.exit_code == 2
    assert said.stderr.strip().startswith("Error: ")
    assert said.stderr.strip().count("\n") == 0
    assert sentence in said.stderr
    assert list(folder.iterdir()) == []


def test_nobody_listens(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "*")
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}/"
        said = fetch("--from", address, "--to", str(folder))
    assert said.exit_code == 2
    assert "cannot be downloaded (" in said.stderr
    assert "Connection refused" in said.stderr
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://host/a.zip", "lastfm.zip"])
def test_only_the_web_is_asked(folder: Path, address: str) -> None:
    said = fetch("--from", address, "--to", str(folder))
    assert said.exit_code == 2
    assert f"the address is {address!r}; give one that starts with https://" in said.stderr


def test_a_strange_address_or_an_endless_answer(
    server: Server, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingData, match="cannot be downloaded"):
        downloads.download("http://[::1", "a", "0", folder / "a")
    monkeypatch.setattr(downloads, "_LARGEST", 1000)
    with pytest.raises(MissingData, match="is larger than 1,000 bytes"):
        downloads.download(server.url("good"), "a", "0", folder / "a")
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_written_to(server: Server, folder: Path) -> None:
    (folder / "lastfm").write_text("a file where the folder should be")
    said = fetch("--from", server.url("good"), "--to", str(folder))
    assert said.exit_code == 2
    assert "cannot be written: " in said.stderr
    assert "choose another folder with --to" in said.stderr
    with pytest.raises(InvalidInput):
        downloads.download(server.url("good"), lastfm.FILE, SHA256, folder / "lastfm" / "x")


def test_progress_is_told(server: Server, folder: Path) -> None:
    told: list[tuple[int, int | None]] = []
    downloads.download(
        server.url("good"), lastfm.FILE, SHA256, folder / "x", lambda *step: told.append(step)
    )
    total = len(zipped())
    assert told[0] == (0, total)
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


# A shell may start its children with the signal ignored, and an interpreter keeps it so.
INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from fairwolfe.cli import main
main()
"""


def test_control_c_leaves_nothing(server: Server, folder: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTIBLE, "data", "lastfm"]
    command += ["--from", server.url("slow"), "--to", str(folder)]
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ
    )
    assert server.half_sent.wait(60)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 2
    assert said.strip() == "Error: the download was stopped; nothing was written"
    assert list(folder.iterdir()) == []
