"""One run, from its settings to the bytes of its file: the same in a process and on Ray."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

from fairwolfe.lab import results
from fairwolfe.lab.build import build
from fairwolfe.lab.experiment import Run
from fairwolfe.simulation import simulate
from fairwolfe.simulation.trace import checkpoint_grid

__all__ = ["play"]


def play(run: Run, progress: Callable[[int], None] | None = None) -> bytes:
    """Play a run; its Parquet file, whose numbers depend on the settings and the seed alone.

    Warnings are kept in the file, because the output of a worker is not watched.
    """
    began = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        parts = build(run.settings, run.label)
        times = checkpoint_grid(run.settings.horizon, run.settings.checkpoints)
        clock = _Clock(progress, set(times.tolist()))
        trace = simulate(
            parts.policy,
            parts.environment,
            run.settings.horizon,
            run.seed,
            parts.objective,
            run.settings.checkpoints,
            progress=clock,
            **parts.options,
        )
    if not trace.complete:
        raise KeyboardInterrupt
    table = results.table(run, trace, parts.environment.problem(), clock.seconds)
    world = parts.environment
    facts: dict[str, Any] = {
        "wall_seconds": time.perf_counter() - began,
        "compiled": trace.compiled,
        "factors_hash": getattr(world, "factors_hash", None),
        "warnings": list(dict.fromkeys(str(one.message) for one in caught)),
    }
    return results.to_bytes(run, table, facts)


class _Clock:
    """Passes the progress on, and notes how long the rounds up to each checkpoint took."""

    def __init__(self, progress: Callable[[int], None] | None, times: set[int]) -> None:
        self._began = time.perf_counter()
        self._progress = progress
        self._times = times
        self._t = 0
        self.seconds: dict[int, float] = {}

    def __call__(self, n: int) -> None:
        self._t += n
        if self._t in self._times:
            self.seconds[self._t] = time.perf_counter() - self._began
        if self._progress is not None:
            self._progress(n)
