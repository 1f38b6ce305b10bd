"""The service clock: how long the service has been up, in all its lives.

Windows are measured by it. Wall clocks jump and machines sleep; time while the service was down
does not count, so that nothing closes before clients had a chance to report.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Clock"]


class Clock:
    """Seconds that never go back; they continue from the last row of the log.

    >>> ticks = iter([100.0, 101.5, 99.0, 103.0])
    >>> clock = Clock(lambda: next(ticks))
    >>> clock.start(7.0)
    >>> clock.now(), clock.now(), clock.now()
    (8.5, 8.5, 10.0)
    """

    def __init__(self, source: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._last = self._offset = 0.0

    def start(self, at: float) -> None:
        """Continue from here."""
        self._last, self._offset = at, at - self._source()

    def now(self) -> float:
        """The time since the first start."""
        self._last = max(self._last, self._source() + self._offset)
        return self._last
