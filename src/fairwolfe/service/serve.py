"""From a configuration to a running server: lock, recover, bind, ready, and a clean end."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING

from fairwolfe import __version__
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.service.config import Config, windows_of
from fairwolfe.service.core import Clock, Core
from fairwolfe.service.http import BACKLOG, Server
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import Recovered, begin, recover
from fairwolfe.service.routes import Service
from fairwolfe.service.store import Fenced, SQLiteStore, Store
from fairwolfe.service.telemetry import Metrics, log_event, write_as_json

if TYPE_CHECKING:
    from fairwolfe.service.standby import Standby

_GRACE = 10  # seconds for requests under way, at the end
_IDLE = 30  # seconds without a request
_SPARE_FILES = 64  # besides the connections
_ANY_HOST = ("0.0.0.0", "::")


def open_service(config: Config, clock: Clock | None = None) -> Service:
    """A service with its log in a state folder, ready: the log is read."""
    store = SQLiteStore(config.path(config.state))
    try:
        found = recover(store)
        models = begin(store, config, found.models, store.last()[1])
        return _service(config, store, found, models, store.close, clock)
    except BaseException:
        store.close()
        raise


def _service(
    config: Config,
    store: Store,
    found: Recovered,
    models: dict[str, Model],
    close: Callable[[], None],
    clock: Clock | None = None,
    metrics: Metrics | None = None,
) -> Service:
    metrics = metrics or Metrics()
    metrics.replayed, others = found.records, found.others(models)
    core = Core(store, models, windows_of(config), config.limits, clock, metrics, others)

    def end() -> None:
        if not core.fenced:
            core.snapshot()
        close()

    return Service(core, config, end)


def run(
    config: Config,
    on_ready: Callable[[str, Service], None] | None = None,
    read_again: Callable[[], Config] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C; Fenced where another process leads by now.

    on_ready: called with the address once it answers
    read_again: reads the configuration at SIGHUP, for its keys and limits
    """
    import uvloop

    write_as_json()
    began = time.monotonic()
    names = list(config.models)
    words = f"fairwolfe {__version__} starts"
    log_event("start", words, version=__version__, pid=os.getpid(), models=names, state=config.log)
    tls = _certificate(config)
    _allow_files(config.limits.connections)
    opened = None if config.shared else open_service(config)
    try:
        listener = _bind(*config.address)
    except BaseException:
        if opened is not None:
            opened.core.store.close()
        raise
    host, port = listener.getsockname()[:2]
    scheme = "http" if tls is None else "https"
    address = f"{scheme}://{_shown(host)}:{port}"
    fenced, rows = "", 0

    def ready(service: Service) -> None:
        took = round(time.monotonic() - began, 3)
        replayed = service.core.metrics.replayed
        words = f"ready after {took:.1f} s, {replayed} records were replayed"
        log_event("ready", words, address=address, records=replayed, seconds=took)
        print(f"ready {address}", flush=True)
        if on_ready is not None:
            on_ready(address, service)

    async def serve() -> None:
        nonlocal fenced, rows
        hosts = None if config.keys else frozenset({*config.hosts, config.address[0]})
        loop = asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            first: Service | Standby
            if opened is not None:
                first = opened
            else:
                from fairwolfe.service.standby import Standby

                public = socket.gethostname() if host in _ANY_HOST else host
                first = Standby(config, f"{scheme}://{_shown(public)}:{port}")
                stack.callback(first.close)
            server = Server(first, hosts, tls, _IDLE, _GRACE)
            if threading.current_thread() is threading.main_thread():
                for one in (signal.SIGTERM, signal.SIGINT):
                    loop.add_signal_handler(one, server.stop)
                if read_again is not None:
                    again = partial(_reload, server, read_again, asyncio.Lock())
                    loop.add_signal_handler(signal.SIGHUP, lambda: server.spawn(again()))

            async def begin_service(service: Service) -> None:
                gc.collect()
                gc.freeze()  # what is there by now stays, and is not searched again
                server.service = service
                await stack.enter_async_context(service.running())

            async def take_over(standby: Standby) -> None:
                try:
                    led = await asyncio.to_thread(
                        standby.lead, lambda: print(f"follows {address}", flush=True)
                    )
                    if led is None or server.ending:
                        return
                    store, metrics = standby.store, standby.metrics
                    service = _service(standby.config, store, *led, standby.close, None, metrics)
                    core = service.core
                    core.arriving, core.unread = standby.arriving, standby.unread
                    core.on_fenced = server.stop
                    fence = core.fence
                    standby.on_lost = lambda why: loop.call_soon_threadsafe(fence, why)
                    await begin_service(service)
                    if standby.lost:
                        core.fence(standby.lost)
                    else:
                        ready(service)
                except BaseException:
                    server.stop()
                    raise

            if isinstance(first, Service):
                await begin_service(first)
                await server.serve(listener, partial(ready, first))
            else:
                tasks: list[asyncio.Task[None]] = []
                await server.serve(
                    listener, lambda: tasks.append(loop.create_task(take_over(first)))
                )
                await tasks[0]
            if isinstance(server.service, Service):
                fenced, rows = server.service.core.fenced, server.service.core.seq

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
    up = round(time.monotonic() - began, 3)
    log_event("end", f"the service ends after {up:.1f} s", rows=rows, seconds=up)
    if fenced:
        raise Fenced(fenced)


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else host


async def _reload(server: Server, read_again: Callable[[], Config], one: asyncio.Lock) -> None:
    """Take the keys and the limits of the configuration as it is now; none of it where it has an
    error.
    """
    async with one:
        try:
            read = await asyncio.to_thread(read_again)
            server.service.reload(read)
            _allow_files(server.service.config.limits.connections)
        except FairwolfeError as error:
            words = "the configuration was not read again, and all is as it was"
            log_event("reload_failed", words, logging.ERROR, reason=str(error))


def _certificate(config: Config) -> ssl.SSLContext | None:
    if config.tls is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate, key = config.path(config.tls.certificate), config.path(config.tls.key)
    try:
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            f"the certificate {certificate} with the key {key} cannot be used: "
            f"{error.strerror or error}; give PEM files that belong together in [tls]"
        ) from error
    return context


def _allow_files(connections: int) -> None:
    """Every connection is an open file: ask for as many as are allowed."""
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
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InvalidInput(
            f"listen is {host}:{port}, which cannot be bound: {error.strerror}; choose another "
            "port, or 0 for any"
        ) from error
    listener.setblocking(False)
    return listener
