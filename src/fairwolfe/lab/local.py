"""Runs on this machine, one process a core. A process that dies costs the run it was playing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, Literal, NamedTuple

import msgspec

from fairwolfe.errors import FairwolfeError
from fairwolfe.lab.experiment import Run
from fairwolfe.lab.worker import Frames, Why

__all__ = ["ONE_THREAD", "Engine", "Event", "cores", "play_all"]

# Processes fill the cores; threads of a BLAS in each would only fight for them.
_LIBRARIES = ("OMP_NUM", "OPENBLAS_NUM", "MKL_NUM", "VECLIB_MAXIMUM")
ONE_THREAD = {f"{library}_THREADS": "1" for library in _LIBRARIES}
# It finds modules where this process does; the script of the user is not run again.
_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from fairwolfe.lab.worker import main
main()
"""
_PATIENCE = 10.0  # seconds that a process is given to end
_STARTS = 3  # processes in a row that may fail to start


class Event(NamedTuple):
    """What happened to a run, the very object that was given: rounds were played, it is done (its
    file), it failed (Why).
    """

    run: Run
    kind: Literal["rounds", "done", "failed"]
    content: Any


Engine = Callable[
    [tuple[Run, ...], tuple[Run, ...], int | None, float | None], Generator[Event, None, None]
]
"""Plays trials and then runs, at most that many at once, until the clock (monotonic) has reached
the deadline.
"""


def cores() -> int:
    """How many processes this one may run at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def play_all(
    trials: tuple[Run, ...], runs: tuple[Run, ...], jobs: int | None, deadline: float | None
) -> Generator[Event, None, None]:
    """Play in that many processes, or in one for each core.

    However the iteration ends, every process is ended and waited for.
    """
    waiting = deque((*trials, *runs))
    crew = _Crew(min(jobs or cores(), len(runs)))
    try:
        while waiting or crew.busy:
            crew.fill(waiting)
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0.0:
                return
            with suppress(Empty):
                yield from crew.next_events(waiting, left)
    finally:
        crew.end()


class _Worker:
    """A process, the run it is playing, and the thread that reads its messages."""

    def __init__(self, messages: SimpleQueue[tuple[_Worker, Any]]) -> None:
        self.run: Run | None = None
        self.ready = False
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CODE, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ONE_THREAD,
            # Ctrl-C in a terminal is for the parent to answer. A group, not a session: Linux
            # shares a machine by sessions, and `nice` would have no effect.
            process_group=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._orders = Frames(self.process.stdin)  # type: ignore[arg-type]
        self._answers = Frames(self.process.stdout)  # type: ignore[arg-type]
        self._reader = threading.Thread(target=self._read, args=(messages,), daemon=True)
        self._reader.start()

    def send(self, value: Any) -> None:
        """An order; where the process is dead, the end of its answers shows it."""
        with suppress(OSError):
            self._orders.send(value)

    def _read(self, messages: SimpleQueue[tuple[_Worker, Any]]) -> None:
        with suppress(EOFError, OSError, ValueError):
            while True:
                messages.put((self, self._answers.receive()))
        messages.put((self, None))

    def hang_up(self) -> None:
        """Close its input, at which it ends."""
        with suppress(OSError):
            self._orders.stream.close()

    def wait(self) -> int:
        """Its exit code; it is killed where it does not end in time."""
        self.hang_up()
        try:
            code = self.process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            code = self.process.wait()
        self._reader.join()
        self._answers.stream.close()
        return code


class _Crew:
    """As many workers as are wanted, with a new one for every one that died."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.messages: SimpleQueue[tuple[_Worker, Any]] = SimpleQueue()
        self.workers: list[_Worker] = []
        self.failed_starts = 0

    @property
    def busy(self) -> bool:
        return any(worker.run is not None for worker in self.workers)

    def fill(self, waiting: deque[Run]) -> None:
        """Give every worker that is free a run, and start as many as are missing."""
        for worker in [w for w in self.workers if w.ready and w.run is None]:
            if waiting:
                self._give(worker, waiting.popleft())
            else:
                self.workers.remove(worker)
                worker.wait()
        starting = sum(worker.run is None for worker in self.workers)
        while len(self.workers) < self.size and starting < len(waiting):
            self.workers.append(_Worker(self.messages))
            starting += 1

    def _give(self, worker: _Worker, run: Run) -> None:
        worker.run = run
        worker.send(msgspec.to_builtins(run))

    def next_events(
        self, waiting: deque[Run], timeout: float | None
    ) -> Generator[Event, None, None]:
        """What the next message means; queue.Empty after the time."""
        worker, message = self.messages.get(timeout=timeout)
        if worker not in self.workers:
            return  # it was dismissed, and this is its end
        if message is None:
            self.workers.remove(worker)
            code = worker.wait()
            if worker.run is not None:
                yield Event(worker.run, "failed", Why(f"the process {_death(code)}", ""))
            else:
                self.failed_starts += 1
                if self.failed_starts >= _STARTS:
                    raise FairwolfeError(
                        f"{_STARTS} processes in a row could not start; the last {_death(code)}"
                    )
            return
        kind, content = message
        if kind == "ready":
            worker.ready = True
            self.failed_starts = 0
        elif worker.run is not None:
            run = worker.run
            if kind != "rounds":
                worker.run = None
                self.fill(waiting)  # before the file is written: the core need not wait for it
            yield Event(run, kind, Why(*content) if kind == "failed" else content)

    def end(self) -> None:
        """End all processes and wait for them."""
        for worker in self.workers:
            worker.hang_up()
        for worker in self.workers:
            worker.wait()
        self.workers.clear()


def _death(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    more = "; perhaps the machine ran out of memory" if name == "SIGKILL" else ""
    return f"was ended by {name}{more}"
