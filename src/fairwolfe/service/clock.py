"""The service clock: for how long the service could receive and store feedback, in all its lives.

Windows are measured by it. It advances with the ticks of the event loop, by at most `LONGEST` each:
time in which the process stood still, or the machine slept, hardly counts. It does not advance
while the log cannot be written, nor while the service is down.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["LONGEST", "Clock"]

LONGEST = 0.25  # seconds of a tick that count


class Clock:
    """Seconds that never go back; they continue from the last row of the log.

    source: a monotonic clock, in seconds

    >>> times = iter([100.0, 100.2, 130.0, 129.0, 130.1])
    >>> clock = Clock(lambda: next(times))
    >>> clock.start(7.0)
    >>> for _ in range(5):
    ...     clock.tick()
    ...     print(round(clock.now(), 2), end=" ")
    7.0 7.2 7.45 7.45 7.55
    """

    def __init__(self, source: Callable[[], float] = time.monotonic) -> None:
        self._source = source
        self._now = 0.0
        self.read: float | None = None  # the latest reading of the source

    def start(self, at: float) -> None:
        """Continue from here, with the first tick."""
        self._now, self.read = at, None

    def tick(self, counts: bool = True) -> None:
        """Advance by the time since the last tick; counts: False if that time does not count."""
        reading = self._source()
        if self.read is None:
            self.read = reading
        elif reading > self.read:
            self._now += min(reading - self.read, LONGEST) if counts else 0.0
            self.read = reading

    def now(self) -> float:
        """Seconds since the first start, as of the last tick."""
        return self._now
