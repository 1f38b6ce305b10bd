"""Work shared out: tasks for worker processes on this machine, or for a Ray cluster.

A task is a value that MessagePack holds, and what is done with it a function named by its import
path: `function(common, task, tick)`, where `common` are bytes that all tasks share and `tick` takes
rounds that are done. A worker process works on the tasks that it is sent, one after the other.
Frames of MessagePack go over its standard input and output. When the parent is gone, the input
ends, and so does the worker.
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
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from importlib import import_module
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any, BinaryIO, Literal, NamedTuple, Self

import msgspec

from fairwolfe import errors
from fairwolfe.core.threads import ONE_THREAD
from fairwolfe.errors import FairwolfeError, InvalidInput, did_you_mean

_EVERY = 0.25  # seconds between two messages of progress


class Why(NamedTuple):
    """Why a task failed: in a line, and all that is known."""

    reason: str
    details: str

    @classmethod
    def of(cls, error: BaseException) -> Why:
        """The type and the message of an error, and its traceback."""
        text = "".join(traceback.format_exception(error))
        return cls(" ".join(f"{type(error).__name__}: {error}".split()), text)

    def error(self) -> FairwolfeError:
        """The error, where it is one of ours; else one that says what it was."""
        name, _, message = self.reason.partition(": ")
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, FairwolfeError):
            return kind(message)
        return FairwolfeError(f"a worker failed: {self.reason}\n{self.details}".rstrip())


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


def imported(path: str) -> Any:
    """What `module:name` names.

    >>> imported("math:sqrt")(9.0)
    3.0
    """
    module, _, name = path.partition(":")
    found: Any = import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def main(function: str) -> None:
    """Work on tasks until the input ends. function: that of the first task, imported before this
    process is ready; what is wrong with it is found with the task.
    """
    # Where Ctrl-C reaches every process of a console: what is to be done is the parent's.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = Frames(os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # what a class of the user's prints must not mix with the frames
    orders: SimpleQueue[Any] = SimpleQueue()
    threading.Thread(target=_listen, args=(Frames(sys.stdin.buffer), orders), daemon=True).start()
    with suppress(Exception):
        imported(function)
    out.send(["ready", None])
    common = b""
    while True:
        path, new, task = orders.get()
        common = common if new is None else new
        try:
            tick = _throttled(lambda n: out.send(["rounds", n]))
            out.send(["done", imported(path)(common, task, tick)])
        except BrokenPipeError:
            os._exit(1)
        except BaseException as error:
            out.send(["failed", Why.of(error)])


def _listen(orders: Frames, queue: SimpleQueue[Any]) -> None:
    while True:
        try:
            queue.put(orders.receive())
        except (EOFError, OSError):
            # From a thread and at once: work of hours must not outlive its parent.
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
from fairwolfe.core.workers import main

main(sys.argv[2])
"""
_PATIENCE = 10.0  # seconds that a process is given to end
_STARTS = 3  # processes in a row that may fail to start


class Event(NamedTuple):
    """What happened to a task, the very object that was given: rounds were done, it is done (what
    the function returned), it failed (Why).
    """

    task: Any
    kind: Literal["rounds", "done", "failed"]
    content: Any


def cores() -> int:
    """How many processes this one may run at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@contextmanager
def workers(
    jobs: int | None, on: str | None = None, address: str | None = None, retries: int = 0
) -> Iterator[_Crew | _Ray]:
    """That many processes, or one for each core; or a Ray cluster, that of an address or one that
    is started here. However the block ends, what was started is ended and waited for.

    retries: how often a task is given to another process where one died; on Ray always 3
    """
    if on not in (None, "local", "ray"):
        raise InvalidInput(f"on is {on!r}; {did_you_mean(str(on), ('local', 'ray'))}")
    if on == "ray":
        ray = _imported(address is None)
        if address is not None:
            _require_answer(address)
        with _cluster(ray, address, jobs):
            yield _Ray(ray, jobs)
        return
    with _Crew(jobs or cores(), retries) as crew:
        yield crew


def in_order(
    crew: _Crew | _Ray, function: str, common: bytes, tasks: Sequence[Any]
) -> Generator[Any, None, None]:
    """What a function returns for each task, in the order of the tasks; the first that fails
    raises.
    """
    numbered = list(enumerate(tasks))
    early: dict[int, Any] = {}
    wanted = 0
    with closing(crew.events(function, common, numbered)) as events:
        for event in events:
            if event.kind == "failed":
                raise event.content.error()
            if event.kind == "done":
                early[event.task[0]] = event.content
            while wanted in early:
                yield early.pop(wanted)
                wanted += 1


class _Worker:
    """A process, the task it works on, and the thread that reads its messages."""

    def __init__(self, messages: SimpleQueue[tuple[_Worker, Any]], function: str) -> None:
        self.task: Any = None
        self.ready = False
        self._common = b""
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CODE, json.dumps(sys.path), function],
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

    def give(self, function: str, common: bytes, task: Any) -> None:
        """Send a task; where the process is dead, the end of its answers shows it."""
        self.task = task
        new, self._common = None if common is self._common else common, common
        with suppress(OSError):
            self._orders.send([function, new, task])

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

    def __init__(self, size: int, retries: int) -> None:
        self.size, self.retries = size, retries
        self.messages: SimpleQueue[tuple[_Worker, Any]] = SimpleQueue()
        self.workers: list[_Worker] = []
        self.failed_starts = 0
        self.function, self.common = "", b""
        self.waiting: deque[Any] = deque()
        self.deaths: Counter[int] = Counter()  # by the id of the task

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for worker in self.workers:
            worker.hang_up()
        for worker in self.workers:
            worker.wait()
        self.workers.clear()

    def events(
        self, function: str, common: bytes, tasks: Sequence[Any], deadline: float | None = None
    ) -> Generator[Event, None, None]:
        """Give the tasks to the workers, in their order."""
        self.function, self.common = function, common
        self.waiting.extend(tasks)
        while self.waiting or self.busy:
            self.fill()
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0.0:
                return
            with suppress(Empty):
                yield from self.next_events(left)

    @property
    def busy(self) -> bool:
        return any(worker.task is not None for worker in self.workers)

    def fill(self) -> None:
        """Give every worker that is free a task, and start as many as are missing."""
        for worker in [w for w in self.workers if w.ready and w.task is None]:
            if self.waiting:
                worker.give(self.function, self.common, self.waiting.popleft())
        starting = sum(worker.task is None for worker in self.workers)
        while len(self.workers) < self.size and starting < len(self.waiting):
            self.workers.append(_Worker(self.messages, self.function))
            starting += 1

    def next_events(self, timeout: float | None) -> Generator[Event, None, None]:
        """What the next message means; queue.Empty after the time."""
        worker, message = self.messages.get(timeout=timeout)
        task = worker.task
        if message is None:
            self.workers.remove(worker)
            code = worker.wait()
            if task is None:
                self.failed_starts += 1
                if self.failed_starts >= _STARTS:
                    raise FairwolfeError(
                        f"{_STARTS} processes in a row could not start; the last {_death(code)}"
                    )
                return
            self.deaths[id(task)] += 1
            if self.deaths[id(task)] <= self.retries:
                self.waiting.appendleft(task)
            else:
                yield Event(task, "failed", Why(f"the process {_death(code)}", ""))
            return
        kind, content = message
        if kind == "ready":
            worker.ready = True
            self.failed_starts = 0
        elif task is not None:
            if kind != "rounds":
                worker.task = None
                self.fill()  # before the caller works on it: the core need not wait for that
            yield Event(task, kind, Why(*content) if kind == "failed" else content)


def _death(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    more = "; perhaps the machine ran out of memory" if name == "SIGKILL" else ""
    return f"was ended by {name}{more}"


RETRIES = 3
"""Of a task whose node or process died; exceptions of the task itself are not retried."""

_KNOCK = 20.0  # seconds until an address is given up
_LOOK = 1.0  # seconds between two checks of the clock
_STORE = 100 * 2**20  # bytes for results on their way, of a cluster that is started here


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


class _Ray:
    """A Ray cluster."""

    def __init__(self, ray: Any, jobs: int | None) -> None:
        self.ray, self.jobs = ray, jobs

    def events(
        self, function: str, common: bytes, tasks: Sequence[Any], deadline: float | None = None
    ) -> Generator[Event, None, None]:
        """Give the tasks to the cluster, in their order."""
        ray, waiting = self.ray, deque(tasks)
        # The threads of a BLAS are counted when a process starts, so they are its environment.
        work = ray.remote(_worked).options(
            num_cpus=1, max_retries=RETRIES, runtime_env={"env_vars": ONE_THREAD}
        )
        shared = ray.put(common)
        flying: dict[Any, Any] = {}
        try:
            while waiting or flying:
                # Twice what fits, so that no core waits for the driver; nodes may come and go.
                room = self.jobs or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
                while waiting and len(flying) < room:
                    task = waiting.popleft()
                    flying[work.remote(function, shared, msgspec.to_builtins(task))] = task
                left = _LOOK if deadline is None else min(_LOOK, deadline - time.monotonic())
                if left <= 0.0:
                    return
                ready, _ = ray.wait(list(flying), timeout=left)
                for reference in ready:
                    task = flying.pop(reference)
                    try:
                        kind, content = ray.get(reference)
                    except ray.exceptions.RayError as error:
                        kind, content = "failed", Why.of(error)
                    yield Event(task, kind, content)
        finally:
            for reference in flying:
                with suppress(Exception):  # the cluster may be gone, and the task with it
                    ray.cancel(reference, force=True)


def _worked(function: str, common: bytes, task: Any) -> tuple[str, Any]:
    """A task of Ray: what the function returns, or why it failed."""
    try:
        return "done", imported(function)(common, task, lambda n: None)
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
