"""A file is written whole or not at all, and nothing of a killed writer stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from fairwolfe.core.files import cache_folder, whole_file

KILLED = """
import os, sys, time
from fairwolfe.core.files import whole_file

def slow(handle):
    print("writing", flush=True)
    time.sleep(600)

os.fsync = slow
with whole_file(sys.argv[1]) as file:
    file.write(b"new")
"""


def written(path: Path, content: bytes) -> None:
    with whole_file(path) as file:
        file.write(content)


def spares(folder: Path) -> list[str]:
    return [name for name in os.listdir(folder) if name.endswith(".part")]


def test_a_killed_writer_is_swept_and_a_living_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    written(path, b"old")
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        written(path, b"between")
        assert len(spares(tmp_path)) == 1  # it is still at work
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert len(spares(tmp_path)) == 1
        assert path.read_bytes() == b"between"
        written(path, b"after")
    assert os.listdir(tmp_path) == ["agent.fw"]
    assert path.read_bytes() == b"after"


def test_writers_in_other_threads_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "agent.fw"
    inside, go_on = threading.Event(), threading.Event()

    def slowly() -> None:
        with whole_file(path) as file:
            file.write(b"slow")
            inside.set()
            go_on.wait(60)

    writer = threading.Thread(target=slowly)
    writer.start()
    assert inside.wait(60)
    written(path, b"quick")
    go_on.set()
    writer.join(60)
    assert path.read_bytes() == b"slow"
    assert os.listdir(tmp_path) == ["agent.fw"]


def test_only_spare_files_of_the_place_are_swept(tmp_path: Path) -> None:
    from fairwolfe.core.files import _host

    gone = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    mine, old = os.getpid(), time.time() - 2 * 86_400
    swept = [
        f".agent.fw.{_host()}-{gone}-0123abcd.part",
        f".agent.fw.{_host()}-{mine}-0123abcd.part",  # of one who had our number before us
    ]
    swept_for_age = [
        ".agent.fw.00000000-1-0123abcd.part",  # of another machine
        f".agent.fw.{_host()}-{os.getppid()}-0123abcd.part",  # a number that lives again
        ".agent.fw.0123abcd.part",  # as older releases called them
    ]
    kept = [
        ".agent.fw.part",
        f".agent.fw.{_host()}-{gone}-0123abcd.part.more",
        f".other.fw.{_host()}-{gone}-0123abcd.part",
        f"agent.fw.{_host()}-{gone}-0123abcd.part",
        ".agent.fw.notahexnumber.part",
    ]
    for name in (*swept, *swept_for_age, *kept):
        (tmp_path / name).touch()
    for name in kept:
        os.utime(tmp_path / name, (old, old))
    (tmp_path / f".agent.fw.{_host()}-{gone}-00000000.part").mkdir()
    folder = [f".agent.fw.{_host()}-{gone}-00000000.part"]
    written(tmp_path / "agent.fw", b"new")
    assert sorted(os.listdir(tmp_path)) == sorted(["agent.fw", *swept_for_age, *kept, *folder])
    for name in swept_for_age:
        os.utime(tmp_path / name, (old, old))
    written(tmp_path / "agent.fw", b"newer")
    assert sorted(os.listdir(tmp_path)) == sorted(["agent.fw", *kept, *folder])


@pytest.mark.parametrize("name", ["agent.fw", "a[1]*.fw", "a.b.c", " "])
def test_names_are_taken_as_they_are(name: str, tmp_path: Path) -> None:
    written(tmp_path / name, b"1")
    written(tmp_path / name, b"2")
    assert os.listdir(tmp_path) == [name]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="folders of Linux")
@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "home/.cache/fairwolfe"),
        ({"XDG_CACHE_HOME": "xdg"}, "xdg/fairwolfe"),
        ({"XDG_CACHE_HOME": "xdg", "FAIRWOLFE_CACHE": "own"}, "own"),
        ({"FAIRWOLFE_CACHE": ""}, "home/.cache/fairwolfe"),
    ],
)
def test_the_cache_is_where_it_always_was(
    variables: dict[str, str], expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "FAIRWOLFE_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, str(tmp_path / value) if value else "")
    assert cache_folder() == tmp_path / expected
    assert not list(tmp_path.iterdir())  # asking makes nothing
    monkeypatch.setenv("FAIRWOLFE_CACHE", "~/mine")
    assert cache_folder() == tmp_path / "home" / "mine"
