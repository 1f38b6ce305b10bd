"""P3: a decision is told only after it is durable."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fairwolfe.service.store import SQLiteStore, StoreFailed
from fairwolfe.service.wire import Refused
from tests.service.checker import read_log
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import Server, config

ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]]


class Watched(MemoryStore):
    """Says when something is durable."""

    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []
        self.fails = False

    def append(self, *row: Any, **more: Any) -> int:
        if self.fails:
            raise StoreFailed("the log could not be written: the disk is full")
        self.order.append("durable")
        return super().append(*row, **more)


def test_a_killed_server_has_every_decision_that_it_told(tmp_path: Path) -> None:
    told: list[tuple[str, int]] = []
    with Server(tmp_path, config("60 s", both=False)) as server:
        for turn in range(2):
            for i in range(10):
                ask = {"arms": ARMS, "request_id": f"{turn}-{i}"}
                answer = server.post("/v1/models/router/decide", ask)
                told.append((answer["id"], answer["arm"]))
            server.kill()
            with closing(SQLiteStore(server.state)) as store:
                log = read_log(store)
            for id, arm in told:
                assert log.actions[int(id.rpartition("-")[2])] == arm
            server.start()


def test_applying_and_answering_come_after_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    from fairwolfe.service import core
    from fairwolfe.service.model import Model

    store = Watched()
    service = Inside(config(both=False), store)
    store.order.clear()

    def noting(word: str, function: Any) -> Any:
        def noted(*given: Any) -> Any:
            store.order.append(word)
            return function(*given)

        return noted

    monkeypatch.setattr(Model, "apply", noting("applied", Model.apply))
    monkeypatch.setattr(core, "_done", noting("told", core._done))
    service.decide("router", arms=ARMS)
    # The epoch and the decision are one row.
    assert store.order == ["durable", "applied", "applied", "told"]


def test_what_cannot_be_made_durable_has_not_happened() -> None:
    store = Watched()
    service = Inside(config(both=False), store)
    kept = service.decide("router", arms=ARMS, request_id="kept")
    before = service.model("router").digest()
    store.fails = True
    answers = service.together(
        service.ask("router", arms=ARMS),
        service.ask("router", arms=ARMS, request_id="new"),
        service.ask("router", arms=ARMS, request_id="kept"),
    )
    assert [a.status for a in answers] == [503, 503, 503]
    assert all(isinstance(a, Refused) and a.retry_after for a in answers)
    assert service.model("router").digest() == before
    store.fails = False
    answer = service.decide("router", arms=ARMS, request_id="new")
    assert answer.number == kept.number + 1  # the number was never seen by anybody
    assert service.decide("router", arms=ARMS, request_id="kept").number == kept.number
