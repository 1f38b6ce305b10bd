"""The cache folder, and atomic, durable writes of files."""

from __future__ import annotations

import os
import re
import secrets
import socket
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

_LEFTOVER = re.compile(r"(?:([0-9a-f]{8})-(\d{1,9})-)?[0-9a-f]{8}\.part")
_DAY = 86_400.0  # seconds after which no process can still be writing
_writing: set[str] = set()  # the temporary files of this process


def cache_folder() -> Path:
    """The user's cache folder of the library; it may not exist yet.

    ``$FAIRWOLFE_CACHE`` if set, else the platform's usual place.
    """
    chosen = os.environ.get("FAIRWOLFE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    from platformdirs import user_cache_path  # here: it takes 6 ms, and few need it

    return user_cache_path("fairwolfe", appauthor=False, opinion=False)


def file_path(given: Any) -> str:
    """The path of a file, or an error that shows it: `open` takes a number for an open file, and
    would close it.

    >>> file_path(Path("agent.fw"))
    'agent.fw'
    """
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    if not isinstance(path, str) or not path or "\0" in path:
        from fairwolfe.errors import InvalidInput

        raise InvalidInput(f"the path is {given!r:.80}; give a text or a pathlib.Path")
    return path


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A temporary file beside `path`; synced to the disk, then renamed to it.

    If anything fails, the old file stays, and no half-written one does. A process that is killed
    leaves its temporary file; the next that writes to the path deletes it.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    _sweep(folder, name)
    token = f"{_host()}-{os.getpid()}-{secrets.token_hex(4)}"
    spare = os.path.join(folder, f".{name}.{token}.part")
    _writing.add(spare)
    try:
        with open(spare, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(spare, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(spare)
        raise
    finally:
        _writing.discard(spare)
    sync_folder(folder)


def _sweep(folder: str, name: str) -> None:
    """Delete the temporary files of a path whose writers are dead."""
    prefix = f".{name}."
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(prefix):
                continue
            match = _LEFTOVER.fullmatch(entry.name, len(prefix))
            if match and _is_left_over(entry, *match.groups()):
                with suppress(OSError):
                    os.unlink(entry.path)


def _is_left_over(entry: os.DirEntry[str], host: str | None, pid: str | None) -> bool:
    """Whether a temporary file has no writer: its process is gone, or it is older than a day."""
    if not entry.is_file(follow_symlinks=False) or entry.path in _writing:
        return False
    if pid is not None and host == _host() and not _is_alive(int(pid)):
        return True
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > _DAY


def _is_alive(pid: int) -> bool:
    """Whether a process of this machine may be at work on a file that this one is not writing."""
    if pid == os.getpid():
        return False  # it had our number before us, as in a container that starts again
    if sys.platform == "win32":
        return True  # signal 0 would not be a question there
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # it is another user's
    return True


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make the move itself durable, where folders can be opened (not on Windows)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
