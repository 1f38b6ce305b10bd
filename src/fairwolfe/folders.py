"""Where the library keeps files that it can make again: compiled kernels, downloads, factors."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["cache_folder"]


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
