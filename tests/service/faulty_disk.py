"""A disk that fails on purpose: every write, sync, move and deletion of this process is a step.

python -m tests.service.faulty_disk first|restore FOLDER: what is left by a process that is killed
before its n-th step, for every n; a line of JSON for each.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import apsw

from fairwolfe.errors import FairwolfeError
from fairwolfe.service.events import encode
from fairwolfe.service.store import SQLiteStore

ROWS = 3
ROW = encode([], 0.0)
Step = Callable[[str], None]


def install(step: Step) -> None:
    """Call `step` with a word before everything that SQLite or Python does to the disk."""
    system = apsw.vfs_names()[0]

    class File(apsw.VFSFile):
        def __init__(self, name: Any, flags: list[int]) -> None:
            super().__init__(system, name, flags)

        def xWrite(self, data: Any, offset: int) -> None:
            step("write")
            super().xWrite(data, offset)

        def xSync(self, flags: int) -> None:
            step("sync")
            super().xSync(flags)

        def xTruncate(self, size: int) -> None:
            step("truncate")
            super().xTruncate(size)

    class Disk(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("faulty", system, makedefault=True)

        def xOpen(self, name: Any, flags: list[int]) -> Any:
            return File(name, flags)

        def xDelete(self, name: str, sync: bool) -> None:
            step("delete")
            super().xDelete(name, sync)

    vars(sys.modules[__name__])["_disk"] = Disk()  # SQLite keeps no reference to it
    for name in ("replace", "rename", "fsync", "pwrite", "unlink", "mkdir"):
        setattr(os, name, _stepping(name, getattr(os, name), step))


def _stepping(name: str, function: Any, step: Step) -> Any:
    def stepped(*given: Any, **named: Any) -> Any:
        step(name)
        return function(*given, **named)

    return stepped


def kill_before(n: int) -> None:
    """kill -9 before the n-th step from here."""
    done = count(1)

    def step(word: str) -> None:
        if next(done) == n:
            os.kill(os.getpid(), signal.SIGKILL)

    install(step)


def begin(folder: Path) -> None:
    """The first start of a log, and its first rows; the number of acknowledged ones is kept."""
    store = SQLiteStore(folder / "state")
    for i in range(ROWS):
        seq = store.append(float(i), ROW)
        descriptor = os.open(folder / "acknowledged", os.O_WRONLY | os.O_CREAT)
        os.write(descriptor, str(seq).encode())
        os.close(descriptor)
    store.close()


def rows_of(folder: Path) -> int | str:
    """How many rows the next start finds, or why it refuses the folder."""
    try:
        store = SQLiteStore(folder / "state")
    except FairwolfeError as error:
        return str(error)
    rows = len(list(store.rows(0)))
    store.append(99.0, ROW)  # it can be used
    store.close()
    return rows


def prepare_restore(folder: Path) -> None:
    """A backup of one row, beside a log of several that a crash has left."""
    store = SQLiteStore(folder / "state")
    store.append(0.0, ROW)
    for _ in store.backup(folder / "copy.sqlite", 100):
        pass
    for i in range(1, ROWS):
        store.append(float(i), ROW)
    os.fsync(store._mark or -1)
    shutil.copytree(folder / "state", folder / "crashed")
    store.close()
    shutil.rmtree(folder / "state")
    (folder / "crashed").rename(folder / "state")


def restore(folder: Path) -> None:
    from fairwolfe.service.log_file import restore

    restore(folder / "copy.sqlite", folder / "state", lambda _: None)


def main(way: str, top: Path) -> None:
    if way == "restore":
        import fairwolfe.service.log_file  # noqa: F401  (once, and not in every child)
    for n in count(1):
        folder = top / str(n)
        folder.mkdir(parents=True)
        if way == "restore":
            prepare_restore(folder)
        child = os.fork()
        if not child:
            kill_before(n)
            begin(folder) if way == "first" else restore(folder)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        killed = os.WIFSIGNALED(status)
        acknowledged = folder / "acknowledged"
        known = int(acknowledged.read_text()) if acknowledged.exists() else 0
        print(json.dumps([n, killed, known, rows_of(folder)]), flush=True)
        shutil.rmtree(folder)
        if not killed:
            assert os.waitstatus_to_exitcode(status) == 0
            return


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
