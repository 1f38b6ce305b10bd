"""P10: clocks that jump by a day lose nothing and double nothing."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from fairwolfe.service.recovery import recover
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import Server, config, wait_for

ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]]
DAY = 86_400.0


def told(service: Inside, number: int) -> str:
    id = service.model("router").id(number)
    return service.tell("router", {"id": id, "rewards": {"clicks": 1.0}})[0]


def test_the_time_of_day_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Inside(config("10 s", both=False))
    for jump in (DAY, -DAY, 10 * DAY):
        monkeypatch.setattr(time, "time", lambda jump=jump: 1e9 + jump)
        service.decide("router", arms=ARMS)
        service.advance(1.0)
    model = service.model("router")
    assert (model.decisions, model.ring.open) == (3, 3)
    assert [told(service, n) for n in range(3)] == ["joined"] * 3
    service.advance(10.0)
    assert (model.counts["joined"], model.counts["expired"], model.t) == (3, 0, 3)


@pytest.mark.parametrize("jump", [DAY, 400 * DAY])
def test_a_machine_that_slept_closes_everything_once(jump: float) -> None:
    service = Inside(config("10 s", both=False))
    model = service.model("router")
    for i in range(30):
        service.decide_many("router", [{"arms": ARMS}] * 50)
        if i < 10:
            told(service, 50 * i)
    service.stall(jump)  # nobody could report meanwhile, so it does not count
    assert model.ring.open == 1500
    assert told(service, 1499) == "joined"
    service.advance(10.0)
    assert (model.decisions, model.ring.open, model.t) == (1500, 0, 1500)
    assert (model.counts["joined"], model.counts["expired"]) == (11, 1489)
    assert told(service, 0) == "late"
    service.decide("router", arms=ARMS)
    service.advance(5.0)
    assert model.ring.open == 1
    service.advance(5.0)
    assert model.t == 1501


def test_a_clock_that_goes_back_stands_still() -> None:
    service = Inside(config("10 s", both=False))
    model = service.model("router")
    service.decide("router", arms=ARMS)
    service.advance(8.0)
    service.stall(-DAY)
    service.decide("router", arms=ARMS)
    assert model.ring.open == 2
    service.stall(DAY - 1.0)  # a second before it was, and still
    assert model.ring.open == 2
    service.advance(3.5)
    assert (model.t, model.ring.open) == (1, 1)
    clocks = [row.clock for row in service.store.log]
    assert clocks == sorted(clocks)


def test_time_while_it_was_down_does_not_count() -> None:
    store = MemoryStore()
    service = Inside(config("10 s", both=False), store)
    service.decide("router", arms=ARMS)
    service.advance(6.0)
    again = Inside(config("10 s", both=False), store)
    again.hands.time += 5 * DAY  # before it starts
    again = Inside(config("10 s", both=False), store)
    assert again.model("router").ring.open == 1
    assert told(again, 0) == "joined"
    again.advance(3.0)
    assert again.model("router").ring.open == 1
    again.advance(2.0)
    assert again.model("router").t == 1


def test_a_service_that_dies_often_closes_in_the_end() -> None:
    """Where nothing else is written the clock is, so that windows end also across restarts."""
    store = MemoryStore()
    Inside(config("10 s", both=False), store).decide("router", arms=ARMS)
    lives = 0
    while not recover(store).models[0].t:
        service = Inside(config("10 s", both=False), store)
        for _ in range(3):
            service.advance(1.0)
        lives += 1
        assert lives < 12


def test_a_stopped_process_loses_nothing(tmp_path: Path) -> None:
    with Server(tmp_path, config("2 s", both=False)) as server:
        one = server.post("/v1/models/router/decide", {"arms": ARMS})
        entry = {"id": one["id"], "rewards": {"clicks": 1}}
        assert server.post("/v1/models/router/feedback", entry)[0]["outcome"] == "joined"
        os.kill(server.pid, signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            server.request("GET", "/healthz", timeout=0.5)
        time.sleep(2.0)
        os.kill(server.pid, signal.SIGCONT)
        assert server.post("/v1/models/router/feedback", entry)[0]["outcome"] == "known"
        wait_for(lambda: server.get("/v1/models/router")["open"] == 0)
        known = server.get("/v1/models/router")
        assert (known["t"], known["joined"], known["average"]["clicks"]) == (1, 1, 1.0)
