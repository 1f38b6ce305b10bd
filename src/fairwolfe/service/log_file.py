"""`LogFile`: the log of a service that does not run, to be read; nothing in its folder changes."""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import apsw

from fairwolfe.errors import InvalidInput
from fairwolfe.service.config import read
from fairwolfe.service.sqlite_store import FILE, LOCK, SQLiteStore

__all__ = ["LogFile", "Place", "folder_of", "place_of"]


class Place(NamedTuple):
    """Where a log is, and the address of its service where a configuration says it."""

    path: Path
    address: str


def place_of(given: Path) -> Place:
    """The log that a configuration names, that is in a state folder, or that is a file itself.

    >>> place_of(Path("nowhere"))
    Traceback (most recent call last):
    ...
    fairwolfe.errors.InvalidInput: nowhere is not there; give a configuration, a state folder or ...
    """
    address = "http://HOST:PORT"
    path = given
    if given.suffix == ".toml":
        config = read(given)
        path, address = config.path(config.state), f"http://{config.listen}"
    if path.is_dir():
        path = path / FILE
    if not path.is_file():
        raise InvalidInput(
            f"{path} is not there; give a configuration, a state folder or a backup of a log"
        )
    return Place(path, address)


def folder_of(given: Path) -> Path:
    """The state folder that a configuration names, or that is given itself; it may not exist."""
    if given.suffix == ".toml":
        config = read(given)
        return config.path(config.state)
    if given.exists() and not given.is_dir():
        raise InvalidInput(f"{given} is a file; give a configuration or a state folder")
    return given


class LogFile(SQLiteStore):
    """A log that is only read, also where it cannot be written or is damaged."""

    def __init__(self, place: Place) -> None:
        self._address = place.address
        self._index = place.path.with_name(f"{place.path.name}-shm")
        self._indexed = self._index.exists()
        self._begin(place.path)

    def _locked(self) -> int | None:
        """A lock that other readers share; None where no server runs."""
        if self.is_backup:
            return None
        try:
            handle = os.open(self.folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise InvalidInput(
                f"{self.folder} is in use by a server; take a copy with `fairwolfe log backup "
                f"--from {self._address} FILE` (GET /v1/admin/backup) and give that file, or end "
                "the server first"
            ) from error
        return handle

    def _open(self) -> None:
        # Where there is no journal, the file is all there is, and no lock or index is needed;
        # where there is one, SQLite makes an index of it, and leaves both files as they are.
        uri = self.path.absolute().as_uri()
        wal = self.path.with_name(f"{self.path.name}-wal")
        journal = wal.exists() and wal.stat().st_size > 0
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        self._base = apsw.Connection(uri if journal else f"{uri}?immutable=1", flags=flags)
        self._base.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        for name in ("trusted_schema = 0", "cell_size_check = 1"):
            self._base.execute(f"PRAGMA {name}")
        self._check_head()
        self._read_head()

    @property
    def is_backup(self) -> bool:
        """Whether it is a copy, which has no mark."""
        return self.path.name != FILE

    @property
    def count(self) -> int:
        """How many rows there are."""
        return int(self._one("SELECT count(*) FROM log"))

    def complaints(self) -> list[str]:
        """What SQLite itself finds wrong with the file."""
        return [
            line for (line,) in self._base.execute("PRAGMA integrity_check(20)") if line != "ok"
        ]

    def every_span(self, model: int) -> list[tuple[int, int, int]]:
        """(first, stop, seq) of the decisions of a model, in order."""
        query = "SELECT first, stop, seq FROM span WHERE model = ? ORDER BY first"
        return list(self._base.execute(query, (model,)))

    def every_outcome(self, model: int) -> list[tuple[int, int, bool]]:
        """(first, stop, whether it is whole) of what had come at the close, in order."""
        query = "SELECT first, stop FROM outcome WHERE model = ? ORDER BY first"
        spans = list(self._base.execute(query, (model,)))
        return [(first, stop, self.outcome_of(model, first) is not None) for first, stop in spans]

    def close(self) -> None:
        """Let go of the files, and of the index that was made for reading them."""
        super().close()
        if not self._indexed:
            with suppress(OSError):
                self._index.unlink(missing_ok=True)
