"""Where the library keeps files that it can make again, and how a file is written whole."""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

__all__ = ["cache_folder", "whole_file"]


def cache_folder() -> Path:
    """The user's cache folder of the library; it may not exist yet.

    ``$FAIRWOLFE_CACHE`` if set, else the platform's usual place.
    """
    chosen = os.environ.get("FAIRWOLFE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif sys.platform == "darwin":
        root = "~/Library/Caches"
    else:
        root = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return Path(root).expanduser() / "fairwolfe"


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file to write to, beside its place; flushed to the disk, then put there in one move.

    Whatever fails, what stood there before stays, and nothing half-written does.
    """
    target = os.path.realpath(path)
    folder, name = os.path.split(target)
    spare = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.part")
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
    _sync_folder(folder)


def _sync_folder(folder: str) -> None:
    """Make the move itself durable, where folders can be opened (not on Windows)."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
