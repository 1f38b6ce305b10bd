"""`Notice`: progress of steps that may take a while, for somebody at a terminal."""

from __future__ import annotations

import os
import sys
import time

__all__ = ["Notice"]

_SILENT = 2.0  # seconds before anything is shown
_WIDTH = 70


class Notice:
    """A line on the terminal with the time left, once the work takes more than two seconds.

    Nothing is shown where stderr is not a terminal, or with FAIRWOLFE_QUIET=1.

    Parameters
    ----------
    what: is done
    steps: at most
    """

    def __init__(self, what: str, steps: int) -> None:
        self._what, self._steps, self._done = what, steps, 0
        self._began = time.monotonic()
        loud = os.environ.get("FAIRWOLFE_QUIET", "") in ("", "0")
        self._visible = loud and sys.stderr is not None and sys.stderr.isatty()

    def step(self) -> None:
        """Count a step that was done."""
        self._done = min(self._done + 1, self._steps)
        spent = time.monotonic() - self._began
        if self._visible and spent >= _SILENT:
            left = spent * (self._steps / self._done - 1.0)
            line = f"{self._what}: {self._done} of {self._steps} steps, at most {left:.0f} s left"
            print(f"\r{line:<{_WIDTH}}", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Clear the line."""
        if self._visible and time.monotonic() - self._began >= _SILENT:
            print(f"\r{'':<{_WIDTH}}\r", end="", file=sys.stderr, flush=True)
