"""From a configuration to a running server: lock, recover, warm, bind, ready, and a clean end."""

from __future__ import annotations

import gc
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fairwolfe import __version__
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import compilations, preparations
from fairwolfe.kernels.json_rows import rows_of
from fairwolfe.service import logs
from fairwolfe.service.clock import Clock
from fairwolfe.service.config import Config, read, seconds
from fairwolfe.service.core import Core
from fairwolfe.service.lane import lane_of
from fairwolfe.service.metrics import Numbers
from fairwolfe.service.recovery import begin, recover, warm
from fairwolfe.service.routes import Service, application
from fairwolfe.service.sqlite_store import SQLiteStore

__all__ = ["application_of", "open_service", "run"]

_GRACE = 10  # seconds for requests under way, at the end
_IDLE = 30  # seconds without a request
_BACKLOG = 4096  # who connects at once; the system may allow fewer
_SPARE_FILES = 64  # besides the connections


def open_service(config: Config, clock: Clock | None = None) -> Service:
    """A service that is ready: its log is read, its models are warm."""
    store = SQLiteStore(config.path(config.state))
    try:
        recovery = recover(store)
        models = begin(store, config, recovery.models, store.last()[1])
        for model in models.values():
            if not model.stopped:
                warm(model)
        rows_of(b"[[0]]")  # of questions with many arms
        numbers = Numbers()
        numbers.replayed = recovery.records
        windows = {name: seconds("window", one.window) for name, one in config.models.items()}
        core = Core(store, models, windows, config.limits, clock, numbers)
        numbers.ready_compilations = compilations()
        numbers.ready_preparations = preparations()
    except BaseException:
        store.close()
        raise

    def end() -> None:
        core.snapshot()
        store.close()

    return Service(core, config, end)


def application_of(path: str | os.PathLike[str]) -> Any:
    """The ASGI application of a configuration file, for another server than `fairwolfe serve`."""
    return application(open_service(read(Path(path))))


def run(config: Config, on_ready: Callable[[str, Service], None] | None = None) -> None:
    """Serve until SIGTERM or Ctrl-C; on_ready: called with the address once it answers."""
    import uvicorn

    logs.write_as_json()
    began = time.monotonic()
    names, state = list(config.models), str(config.path(config.state))
    words = f"fairwolfe {__version__} starts"
    logs.say("start", words, version=__version__, pid=os.getpid(), models=names, state=state)
    _allow_files(config.limits.connections)
    service = open_service(config)
    gc.collect()
    gc.freeze()  # what is there by now stays: it is not searched again while requests are served
    try:
        listener = _bind(*config.address)
    except BaseException:
        service.core.store.close()
        raise
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    address = f"http://{shown}:{port}"
    settings = uvicorn.Config(
        application(service),
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=_IDLE,
        backlog=_BACKLOG,
        http=lane_of(service),
        loop=_loop(),
        ws="none",
    )

    class Server(uvicorn.Server):
        """Ends with exit code 0 at SIGTERM, and says when it is ready."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                took = round(time.monotonic() - began, 3)
                replayed = service.core.numbers.replayed
                words = f"ready after {took:.1f} s, {replayed} records were replayed"
                logs.say("ready", words, address=address, records=replayed, seconds=took)
                print(f"ready {address}", flush=True)
                if on_ready is not None:
                    on_ready(address, service)

        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            service.end()  # streams would hold it up
            await super().shutdown(sockets)

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            """Unlike uvicorn's own, without raising the signal again at the end."""
            if threading.current_thread() is not threading.main_thread():
                yield
                return
            before = {one: signal.signal(one, self.handle_exit) for one in _ENDS}
            try:
                yield
            finally:
                for one, handler in before.items():
                    signal.signal(one, handler)

    Server(settings).run(sockets=[listener])
    up = round(time.monotonic() - began, 3)
    logs.say("end", f"the service ends after {up:.1f} s", rows=service.core.seq, seconds=up)


_ENDS = (signal.SIGTERM, signal.SIGINT)


def _loop() -> Any:
    return "uvloop" if sys.platform != "win32" else "asyncio"


def _allow_files(connections: int) -> None:
    """Every connection is an open file: ask for as many as are allowed."""
    if sys.platform == "win32":
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidInput(
            f"listen is {host}:{port}, which cannot be bound: {error.strerror}; choose another "
            "port, or 0 for any"
        ) from error
    listener.setblocking(False)
    return listener
