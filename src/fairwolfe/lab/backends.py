"""Where runs are played: worker processes on this machine, or tasks of a Ray cluster.

A worker process plays the runs it is sent, one after the other. Frames of MessagePack go over its
standard input and output. When the parent is gone, the input ends, and so does the worker.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from typing import Any, BinaryIO, Literal, NamedTuple

import msgspec

from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.lab.spec import Run
from fairwolfe.lab.threads import ONE_THREAD

_EVERY = 0.25  # seconds between two messages of progress


class Why(NamedTuple):
    """Why a run failed: in a line, and all that is known."""

    reason: str
    details: str

    @classmethod
    def of(cls, error: BaseException) -> Why:
        """The type and the message of an error, and its traceback."""
        text = "".join(traceback.format_exception(error))
        return cls(" ".join(f"{type(error).__name__}: {error}".split()), text)


class Frames:
    """Values over a pipe, each behind its length."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream = stream

    def send(self, value: Any) -> None:
        """Write a value whole."""
        data = msgspec.msgpack.encode(value)
        self.stream.write(struct.pack("<Q", len(data)) + data)
        self.stream.flush()

    def receive(self) -> Any:
        """The next value; EOFError if there is none, or only a part of one."""
        (size,) = struct.unpack("<Q", self._exactly(8))
        return msgspec.msgpack.decode(self._exactly(size))

    def _exactly(self, size: int) -> bytes:
        data = self.stream.read(size)
        if len(data) < size:
            raise EOFError
        return data


def main() -> None:
    """Play runs until the input ends."""
    # Where Ctrl-C reaches every process of a console: what is to be done is the parent's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = Frames(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # what a class of the user's prints must not mix with the frames
    orders: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(Frames(sys.stdin.buffer), orders), daemon=True).start()

    from fairwolfe.lab.play import play

    out.send(["ready", None])
    while True:
        run = msgspec.convert(orders.get(), Run)
        try:
            out.send(["done", play(run, _throttled(lambda n: out.send(["rounds", n])))])
        except BrokenPipeError:
            os._exit(1)
        except BaseException as error:
            out.send(["failed", Why.of(error)])


def _listen(orders: Frames, queue: SimpleQueue[Any]) -> None:
    while True:
        try:
            queue.put(orders.receive())
        except (EOFError, OSError):
            # From a thread and at once: a run of hours must not outlive its parent.
            os._exit(0)


def _throttled(send: Callable[[int], None]) -> Callable[[int], None]:
    rounds, last = 0, time.monotonic()

    def tick(n: int) -> None:
        nonlocal rounds, last
        rounds += n
        now = time.monotonic()
        if now - last >= _EVERY:
            send(rounds)
            rounds, last = 0, now

    return tick


# It finds modules where this process does; the script of the user is not run again.
_CODE = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from fairwolfe.lab.backends import main

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

    def play(self, run: Run) -> None:
        """Send a run; where the process is dead, the end of its answers shows it."""
        self.run = run
        with suppress(OSError):
            self._orders.send(msgspec.to_builtins(run))

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
                worker.play(waiting.popleft())
            else:
                self.workers.remove(worker)
                worker.wait()
        starting = sum(worker.run is None for worker in self.workers)
        while len(self.workers) < self.size and starting < len(waiting):
            self.workers.append(_Worker(self.messages))
            starting += 1

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


_RETRIES = 3  # of a run whose node or process died; exceptions of the run itself are not retried
_KNOCK = 20.0  # seconds until an address is given up
_LOOK = 1.0  # seconds between two checks of the clock
_STORE = 100 * 2**20  # bytes for results on their way, of a cluster that is started here


def ray_engine(address: str | None) -> Engine:
    """What plays runs on the cluster of an address, or on one that is started for them here."""
    ray = _imported(address is None)
    if address is not None:
        _require_answer(address)

    def play_all(
        trials: tuple[Run, ...], runs: tuple[Run, ...], jobs: int | None, deadline: float | None
    ) -> Generator[Event, None, None]:
        with _cluster(ray, address, jobs):
            # The threads of a BLAS are counted when a process starts, so they are its environment.
            task = ray.remote(_played).options(
                num_cpus=1, max_retries=_RETRIES, runtime_env={"env_vars": ONE_THREAD}
            )
            yield from _events(ray, task, deque((*trials, *runs)), jobs, deadline)

    return play_all


def _require_answer(address: str) -> None:
    """Ray itself would knock for many minutes at a door that is not there."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdecimal():
        return  # "auto", which Ray finds or does not find at once
    try:
        socket.create_connection((host, int(port)), timeout=_KNOCK).close()
    except (OSError, OverflowError) as error:
        raise InvalidInput(
            f"address is {address!r}, where nothing answers ({error}); give HOST:PORT of a running "
            "Ray cluster, or leave it out to start one here"
        ) from error


def _events(
    ray: Any, task: Any, waiting: deque[Run], jobs: int | None, deadline: float | None
) -> Generator[Event, None, None]:
    flying: dict[Any, Run] = {}
    try:
        while waiting or flying:
            # Twice what fits, so that no core waits for the driver; nodes may come and go.
            room = jobs or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
            while waiting and len(flying) < room:
                run = waiting.popleft()
                flying[task.remote(msgspec.to_builtins(run))] = run
            left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
            if left <= 0.0:
                return
            ready, _ = ray.wait(list(flying), timeout=left)
            for reference in ready:
                run = flying.pop(reference)
                try:
                    kind, content = ray.get(reference)
                except ray.exceptions.RayError as error:
                    kind, content = "failed", Why.of(error)
                yield Event(run, kind, content)
    finally:
        for reference in flying:
            with suppress(Exception):  # the cluster may be gone, and the task with it
                ray.cancel(reference, force=True)


def _played(run: dict[str, Any]) -> tuple[str, Any]:
    """A task: the file of a run, or why it has none."""
    from fairwolfe.lab.play import play

    try:
        return "done", play(msgspec.convert(run, Run))
    except Exception as error:
        return "failed", Why.of(error)


def _imported(here: bool) -> Any:
    # Ray reads its environment when it is imported.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    if here:
        # A cluster on this machine listens on the loopback interface only, as it does on a Mac
        # without this setting; the name is Ray's.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        # Anyone who can reach a cluster can run code on it: only who has the token may. Imported
        # before, Ray (from 2.59 on) sees to that itself.
        if "ray" not in sys.modules:
            os.environ.setdefault("RAY_AUTH_MODE", "token")
        if not {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & set(os.environ):
            os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)
    import ray

    return ray


@contextmanager
def _cluster(ray: Any, address: str | None, jobs: int | None) -> Iterator[None]:
    """A connection; a cluster that was started for it ends with it."""
    if ray.is_initialized():  # the caller's, who ends it
        yield
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is not None:
        options["address"] = address
    else:
        options |= {
            "address": "local",
            "num_cpus": jobs or cores(),
            "include_dashboard": False,
            "object_store_memory": _STORE,
        }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)  # of files that Ray leaves open
            ray.init(**options)
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = (
            "a Ray cluster cannot be started here" if address is None else f"no Ray at {address}"
        )
        raise InvalidInput(f"{where}: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()
