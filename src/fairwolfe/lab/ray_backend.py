"""Runs as tasks of a Ray cluster. A node that dies costs the runs it was playing, not their time.

The driver writes the files, from what the tasks return: no shared disk is needed. The numbers are
those of local processes, bit for bit, on machines of one kind.
"""

from __future__ import annotations

import os
import secrets
import socket
import sys
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from fairwolfe.errors import InvalidInput
from fairwolfe.lab.experiment import Run
from fairwolfe.lab.local import ONE_THREAD, Engine, Event, cores
from fairwolfe.lab.worker import Why

__all__ = ["engine"]

_RETRIES = 3  # of a run whose node or process died; exceptions of the run itself are not retried
_KNOCK = 20.0  # seconds until an address is given up
_LOOK = 1.0  # seconds between two checks of the clock
_STORE = 100 * 2**20  # bytes for results on their way, of a cluster that is started here


def engine(address: str | None) -> Engine:
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
    from fairwolfe.lab.runs import play

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
