"""A copy of a log in its own file, complete or not at all, and checked before it is there; and the
way back, from a copy to the log of a service.
"""

from __future__ import annotations

import http.client
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

from fairwolfe.core.folders import whole_file
from fairwolfe.errors import Denied, IncompatibleState, InvalidInput, Unavailable
from fairwolfe.service.log_file import LogFile, Place
from fairwolfe.service.sqlite_store import finish_restore, lock_folder, make_folder, restored_file
from fairwolfe.service.verify import verify

__all__ = ["Copied", "copy", "download", "restore"]

_PAGES = 1024  # of 16 kB, at once
_CHUNK = 1 << 20
_TIMEOUT = 60.0  # seconds without a byte

Tick = Callable[[int], None]


class Copied(NamedTuple):
    """What was written."""

    path: Path
    rows: int
    bytes: int


def copy(place: Place, target: Path, tick: Tick) -> Copied:
    """Copy the log of a service that does not run; tick: bytes that were copied."""
    log = LogFile(place)
    try:
        return _copied(log, target, tick)
    finally:
        log.close()


def restore(backup: Path, folder: Path, tick: Tick) -> Copied:
    """Make a backup the log of a state folder; the log that was there is kept beside it.

    Interrupted before the copy is complete, nothing has changed; afterwards the next start, or the
    next restore, completes it.
    """
    log = LogFile(Place(backup, ""))
    try:
        wrong = verify(log, False, lambda _: None).wrong
        if wrong:
            raise IncompatibleState(f"{backup} was not restored: {wrong[0]}")
        make_folder(folder)
        handle = lock_folder(folder)
        try:
            finish_restore(folder)
            stamp = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
            copied = _copied(log, restored_file(folder, stamp), tick)
            finish_restore(folder)
        finally:
            os.close(handle)
    finally:
        log.close()
    return copied


def _copied(log: LogFile, target: Path, tick: Tick) -> Copied:
    with _private(target) as file:
        spare = Path(file.name)
        done = 0
        for _ in log.backup(spare, _PAGES):
            size = spare.stat().st_size
            tick(size - done)
            done = size
        return _examined(spare, target)


def download(address: str, key: str | None, target: Path) -> Copied:
    """Copy the log of a service that runs: what GET /v1/admin/backup streams."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidInput(
            f"--from is {address!r:.80}; give an address such as http://127.0.0.1:8710"
        )
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=_TIMEOUT)
    headers = {"accept": "application/vnd.sqlite3"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}/v1/admin/backup", headers=headers)
        response = connection.getresponse()
        if response.status != 200:
            _refused(address, response.status, response.read(10_000))
        with _private(target) as file:
            while chunk := response.read(_CHUNK):
                file.write(chunk)
            file.flush()
            return _examined(Path(file.name), target)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable(
            f"{address} did not send a whole backup ({type(error).__name__}: {error}); nothing was "
            "written"
        ) from error
    finally:
        connection.close()


def _refused(address: str, status: int, body: bytes) -> NoReturn:
    try:
        message = str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"status {status}"
    kind = Denied if status in (401, 403) else Unavailable
    raise kind(f"{address} gave no backup: {message}")


@contextmanager
def _private(target: Path) -> Iterator[Any]:
    """A file to write to, for its owner only: a log holds features."""
    try:
        with whole_file(target) as file:
            os.chmod(file.name, 0o600)
            yield file
    except FileNotFoundError as error:
        raise InvalidInput(f"{target} cannot be written: {error.strerror}") from error


def _examined(spare: Path, target: Path) -> Copied:
    """A copy that can be opened; verify says more."""
    log = LogFile(Place(spare, ""))
    try:
        return Copied(target, log.count, spare.stat().st_size)
    finally:
        log.close()
