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
from functools import partial

from fairwolfe import __version__
from fairwolfe.errors import FairwolfeError, InvalidInput
from fairwolfe.service.config import Config, windows_of
from fairwolfe.service.core import Clock, Core
from fairwolfe.service.http import BACKLOG, Server
from fairwolfe.service.recovery import begin, recover
from fairwolfe.service.routes import Service
from fairwolfe.service.store import SQLiteStore
from fairwolfe.service.telemetry import Metrics, log_event, write_as_json

_GRACE = 10  # seconds for requests under way, at the end
_IDLE = 30  # seconds without a request
_SPARE_FILES = 64  # besides the connections


def open_service(config: Config, clock: Clock | None = None) -> Service:
    """A service that is ready: its log is read."""
    store = SQLiteStore(config.path(config.state))
    try:
        recovery = recover(store)
        models = begin(store, config, recovery.models, store.last()[1])
        metrics = Metrics(replayed=recovery.records)
        others = recovery.others(models)
        core = Core(store, models, windows_of(config), config.limits, clock, metrics, others)
    except BaseException:
        store.close()
        raise

    def end() -> None:
        core.snapshot()
        store.close()

    return Service(core, config, end)


def run(
    config: Config,
    on_ready: Callable[[str, Service], None] | None = None,
    read_again: Callable[[], Config] | None = None,
) -> None:
    """Serve until SIGTERM or Ctrl-C.

    on_ready: called with the address once it answers
    read_again: reads the configuration at SIGHUP, for its keys and limits
    """
    import uvloop

    write_as_json()
    began = time.monotonic()
    names, state = list(config.models), str(config.path(config.state))
    words = f"fairwolfe {__version__} starts"
    log_event("start", words, version=__version__, pid=os.getpid(), models=names, state=state)
    tls = _certificate(config)
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
    address = f"{'http' if tls is None else 'https'}://{shown}:{port}"

    def ready() -> None:
        took = round(time.monotonic() - began, 3)
        replayed = service.core.metrics.replayed
        words = f"ready after {took:.1f} s, {replayed} records were replayed"
        log_event("ready", words, address=address, records=replayed, seconds=took)
        print(f"ready {address}", flush=True)
        if on_ready is not None:
            on_ready(address, service)

    async def serve() -> None:
        hosts = None if config.keys else frozenset({*config.hosts, config.address[0]})
        server = Server(service, hosts, tls, _IDLE, _GRACE)
        loop = asyncio.get_running_loop()
        if threading.current_thread() is threading.main_thread():
            for one in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(one, server.stop)
            if read_again is not None:
                again = partial(_reload, service, read_again, asyncio.Lock())
                loop.add_signal_handler(signal.SIGHUP, lambda: server.spawn(again()))
        async with service.running():
            await server.serve(listener, ready)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
    up = round(time.monotonic() - began, 3)
    log_event("end", f"the service ends after {up:.1f} s", rows=service.core.seq, seconds=up)


async def _reload(service: Service, read_again: Callable[[], Config], one: asyncio.Lock) -> None:
    """Take the keys and the limits of the configuration as it is now; none of it where it has an
    error.
    """
    async with one:
        try:
            service.reload(await asyncio.to_thread(read_again))
            _allow_files(service.config.limits.connections)
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
