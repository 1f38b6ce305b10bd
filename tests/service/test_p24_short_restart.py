"""P24: a restart replays at most 10,000 records, however long the log is; they are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fairwolfe.service import core, wire
from fairwolfe.service.core import Work
from fairwolfe.service.recovery import recover
from fairwolfe.service.store import SQLiteStore
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import Server, config

MOST = 10_000
MANY = 6_000  # decisions, each with one entry of feedback: more records than may be replayed
PATH = "/v1/models/router"


def load(server: Server, decisions: int) -> None:
    """Decisions with feedback, by the hundred."""
    rng = np.random.default_rng(0)
    for _ in range(decisions // 200):
        asks = [{"arms": rng.uniform(-0.4, 0.4, (2, 5)).tolist()} for _ in range(200)]
        made = server.post(f"{PATH}/decide_many", {"requests": asks})
        entries = [{"id": one["id"], "rewards": {"clicks": 1}} for one in made]
        server.post(f"{PATH}/feedback", entries)


def test_a_killed_server_replays_little(tmp_path: Path) -> None:
    with Server(tmp_path, config("90 s", both=False)) as server:
        load(server, MANY)
        server.kill()
        server.start()
        replayed = server.get("/readyz")["replayed"]
        assert 0 < replayed <= MOST
        assert server.metric("replayed_records") == replayed
        assert server.get(PATH)["decisions"] == MANY


def test_without_snapshots_the_count_says_so(tmp_path: Path) -> None:
    text = config("90 s", both=False)
    with Server(tmp_path, text, "tests.service.broken", "unsnapped") as server:
        load(server, MANY)
        server.kill()
        server.start()
        assert server.get("/readyz")["replayed"] == 2 * MANY > MOST


def test_every_moment_is_a_short_restart(tmp_path: Path) -> None:
    """Whenever it dies: the records since the last snapshot never exceed the bound."""
    store = SQLiteStore(tmp_path / "state")
    service = Inside(config("3 s", both=False), store)
    rng = np.random.default_rng(0)
    most = 0
    for _ in range(60):
        asks = [{"arms": rng.uniform(-0.4, 0.4, (2, 5)).tolist()} for _ in range(250)]
        made = service.decide_many("router", asks)
        ids = [service.model("router").id(one.number) for one in made]
        service.tell("router", *({"id": id, "rewards": {"clicks": 1.0}} for id in ids))
        service.advance(1.0)
        most = max(most, service.core._unsnapped)
    assert 2_000 < most <= MOST
    store.close()


def test_many_models_are_one_short_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where all are as busy, and the time for snapshots is over at once."""
    monkeypatch.setattr(core, "_SNAPSHOT_BUDGET", 0.0)
    store, most = MemoryStore(), 0
    one = config("900 s", both=False)
    models = [f"m{i}" for i in range(30)]
    head, _, table = one.partition("[models.router]")
    text = head + "".join(f"[models.{name}]{table}" for name in models)
    service = Inside(text, store)
    ask = wire.Decide(arms=[[0.1, 0.2, 0.0, 0.1, 0.0], [0.0] * 5])
    for _ in range(8):
        works = []
        for name in models:
            model = service.model(name)
            requests = [wire.decision_request(ask, model)] * 66
            works.append(service.core.wait(Work(model, requests=requests)))
        service.together(*works)
        most = max(most, service.core._unsnapped)
        assert recover(store).records == service.core._unsnapped
    assert sum(model.decisions for model in service.core.models.values()) == 8 * 30 * 66
    assert 5_000 < most <= MOST


def test_many_short_lives_are_no_long_replay() -> None:
    """One that is killed before its first snapshot is due leaves its records to the next."""
    store = MemoryStore()
    asks = [{"arms": [[0.1, 0.2, 0.0, 0.1, 0.0], [0.0] * 5]}] * 250
    most = 0
    for _ in range(15):
        service = Inside(config("900 s", both=False), store)
        most = max(most, service.replayed)
        for _ in range(4):
            service.decide_many("router", asks)
    assert service.model("router").decisions == 15_000 > MOST
    assert 5_000 < most <= MOST
