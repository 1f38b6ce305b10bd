"""P26: a window closes only by time in which the service could receive and store feedback."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from fairwolfe.service.core import LONGEST, Work
from tests.service.inside import Inside
from tests.service.servers import Server, config, wait_for
from tests.service.test_p06_full_disk import fill, small_disk

__all__ = ["small_disk"]

ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]]
ROUTER = "/v1/models/router"
WINDOW = 2.0


def decided(server: Server, count: int = 20) -> list[dict[str, Any]]:
    """Decisions, and a report for each."""
    asks = {"requests": [{"arms": ARMS}] * count}
    made = server.post(f"{ROUTER}/decide_many", asks)
    return [{"id": one["id"], "rewards": {"clicks": 1, "minutes": 5}} for one in made]


def outcomes(told: list[dict[str, Any]]) -> Counter[str]:
    return Counter(one["outcome"] for one in told)


def test_a_process_that_is_stopped_for_longer_than_a_window(tmp_path: Path) -> None:
    """What waits in its sockets when it continues is in time, on new and on open connections."""
    with Server(tmp_path, config(f"{WINDOW:g} s", both=False)) as server:
        entries = decided(server)
        told: list[Any] = []

        def report(some: list[dict[str, Any]]) -> None:
            told.extend(server.post(f"{ROUTER}/feedback", some))

        os.kill(server.pid, signal.SIGSTOP)
        threads = [threading.Thread(target=report, args=(entries[i::4],)) for i in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(WINDOW + 1.5)
        os.kill(server.pid, signal.SIGCONT)
        for thread in threads:
            thread.join(30)
        assert outcomes(told) == {"joined": 20}
        wait_for(lambda: server.get(ROUTER)["open"] == 0)
        known = server.get(ROUTER)
        assert (known["joined"], known["expired"], known["average"]["clicks"]) == (20, 0, 1.0)


@pytest.mark.needs("tmpfs")
def test_a_disk_that_is_full_for_longer_than_a_window(small_disk: Path) -> None:
    """A client that waits for Retry-After after each 503 is in time once there is room."""
    with Server(small_disk, config(f"{WINDOW:g} s", both=False)) as server:
        entries = decided(server)
        filler = small_disk / "filler"
        fill(filler)
        wait_for(lambda: server.request("GET", "/readyz").status == 503)
        end = time.monotonic() + WINDOW + 1.5
        while time.monotonic() < end:
            reply = server.request("POST", f"{ROUTER}/feedback", entries)
            assert reply.status == 503, reply
            time.sleep(float(reply.headers["retry-after"]))
        filler.unlink()
        wait_for(lambda: server.request("GET", "/readyz").status == 200)
        time.sleep(1.0)  # the client still waits
        assert outcomes(server.post(f"{ROUTER}/feedback", entries)) == {"joined": 20}


def test_ticks_that_come_late_count_little() -> None:
    service = Inside(config("10 s", both=False))
    for _ in range(20):
        service.decide("router", arms=ARMS)
        service.hands.time += 3600.0
        service.core.tick()
    assert service.core.clock.now() == pytest.approx(20 * LONGEST)
    assert service.model("router").ring.closed == 0


def test_what_has_arrived_comes_before_a_close() -> None:
    """Feedback that waits for its group is joined, however long the group has waited."""
    service = Inside(config("10 s", both=False))
    service.decide("router", arms=ARMS)
    model = service.model("router")
    service.advance(9.9)

    async def late_group() -> list[str]:
        import asyncio

        from fairwolfe.service.wire import Feedback

        entry = Feedback(model.id(0), None, None, {"clicks": 1.0}, False)
        told = asyncio.ensure_future(service.core.wait(Work(model, entries=[entry])))
        await asyncio.sleep(0)  # it is submitted, and its group is next
        service.advance(5.0)
        assert model.ring.closed == 1
        return [one.outcome for one in await told]

    (told,) = service.together(late_group())
    assert told == ["joined"]
    assert model.counts["joined"] == 1


def test_nothing_closes_soon_after_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairwolfe.service.store import StoreFailed

    service = Inside(config("10 s", both=False))
    model = service.model("router")
    service.decide("router", arms=ARMS)
    service.advance(9.5)

    def full(*_: Any, **__: Any) -> int:
        raise StoreFailed("the disk is full")

    with monkeypatch.context() as broken:
        broken.setattr(service.store, "append", full)
        service.advance(100.0)
    assert service.core.clock.now() < 11.0
    service.advance(4.0)
    assert not service.core.failing
    assert model.ring.closed == 0
    service.advance(2.0)
    assert model.ring.closed == 1
