"""P29, counted: what a snapshot, a start and a change do for models that they do not concern."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest

from fairwolfe.agent import Agent
from fairwolfe.service import core
from fairwolfe.service.events import ItemsAdded
from fairwolfe.service.join import Ring
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import SQLiteStore
from fairwolfe.service.trial import try_objective
from fairwolfe.service.wire import Refused
from tests.service.inside import Inside
from tests.service.servers import ARMS, RANKING

MODELS = 8
ROW = [0.1] * 5


def many(count: int = MODELS) -> str:
    """A configuration of models that are alike."""
    one = ARMS.format(window="20 s", missing="zero")
    models = "".join(one.replace("models.router", f"models.m{i}") for i in range(count))
    return 'state = "state"\n' + models


@pytest.fixture
def commits() -> Iterator[list[int]]:
    """A list that grows with every transaction that is committed, and so synced."""
    counted: list[int] = []

    def note() -> bool:
        counted.append(1)
        return False

    def hook(connection: apsw.Connection) -> None:
        connection.set_commit_hook(note)

    apsw.connection_hooks.append(hook)
    yield counted
    apsw.connection_hooks.remove(hook)


def counting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """The objects on which a method was called."""
    calls: list[Any] = []
    inner = getattr(owner, name)

    def noted(self: Any, *given: Any, **named: Any) -> Any:
        calls.append(self)
        return inner(self, *given, **named)

    monkeypatch.setattr(owner, name, noted)
    return calls


def test_a_snapshot_writes_only_models_that_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Inside(many())
    service.core.snapshot()
    service.decide("m3", arms=[ROW, ROW])
    dumped = counting(monkeypatch, Model, "dump")
    service.core.snapshot()
    assert [model.name for model in dumped] == ["m3"]


def test_a_snapshot_is_one_transaction(tmp_path: Path, commits: list[int]) -> None:
    store = SQLiteStore(tmp_path / "state")
    service = Inside(many(), store)
    for name in service.core.models:
        service.decide(name, arms=[ROW, ROW])
    commits.clear()
    service.core.snapshot()
    store.close()
    assert len(commits) == 1


def test_a_tick_writes_a_few_models_those_with_the_most_records_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Inside(many())
    service.core.snapshot()
    for i in range(4):
        service.decide_many(f"m{i}", [{"arms": [ROW, ROW]}] * (1 + i))
    dumped = counting(monkeypatch, Model, "dump")
    service.advance(core._SNAPSHOT_SECONDS - 11.0)
    assert dumped == []
    monkeypatch.setattr(core, "_SNAPSHOT_BUDGET", 0.0)  # over at once: one is written all the same
    monkeypatch.setattr(core, "_SNAPSHOT_RECORDS", 4)
    written = []
    for _ in range(4):
        service.core.tick()
        written.append([model.name for model in dumped])
        dumped.clear()
    assert written == [["m3"], ["m2"], [], []]  # 3 records are left
    monkeypatch.setattr(core, "_SNAPSHOT_RECORDS", 1000)
    service.advance(11.0)
    assert [model.name for model in dumped] == ["m0", "m1"]  # each in a tick of its own


def test_a_restart_reads_the_rows_since_the_oldest_change(tmp_path: Path) -> None:
    """Whatever the age of the snapshots of models that rest."""
    store = SQLiteStore(tmp_path / "state")
    service = Inside(many(), store)
    service.core.snapshot()
    for i in range(300):
        service.decide("m3", arms=[ROW, ROW])
        if i % 100 == 0:
            service.core.snapshot()
    service.decide("m5", arms=[ROW, ROW])
    live = {model.number: model.digest() for model in service.core.models.values()}
    tail, read = recovered(store)
    assert (tail.records, read) == (100, 100)
    assert {number: model.digest() for number, model in tail.models.items()} == live
    assert {number: model.digest() for number, model in replay(store).models.items()} == live
    # Without the newest snapshot of a model that rests, what came after the one before it is read.
    service.core.snapshot()
    store._base.execute(
        "UPDATE snapshot SET data = zeroblob(9) WHERE model = 5 AND seq ="
        " (SELECT max(seq) FROM snapshot WHERE model = 5)"
    )
    assert recovered(store)[1] > 300
    assert {number: model.digest() for number, model in recovered(store)[0].models.items()} == live
    store.close()


def test_a_model_that_is_not_served_keeps_its_rows_until_it_has_a_snapshot(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "state")
    service = Inside(many(3), store)
    service.decide("m2", arms=[ROW, ROW])
    digest = service.model("m2").digest()
    service = Inside(many(2), store)
    service.decide("m0", arms=[ROW, ROW])
    (other,) = (model for model in service.core._changed if model.name == "m2")
    other.stopped = "for the test"
    service.core.snapshot()
    assert recovered(store)[0].models[2].digest() == digest
    other.stopped = ""
    service.core.snapshot()
    tail, read = recovered(store)
    assert (tail.models[2].digest(), read) == (digest, 0)
    store.close()


def recovered(store: SQLiteStore) -> tuple[Any, int]:
    """What a start makes of a log, and how many rows it reads."""
    read: list[int] = []

    class Counting(SQLiteStore):
        def __init__(self) -> None:
            vars(self).update(vars(store))

        def rows(self, after: int) -> Iterator[Any]:
            for row in super().rows(after):
                read.append(row.seq)
                yield row

    return recover(Counting()), len(read)


def test_the_first_start_of_many_models_is_one_transaction(
    tmp_path: Path, commits: list[int]
) -> None:
    one = SQLiteStore(tmp_path / "one")
    Inside(many(1), one)
    one.close()
    alone = len(commits)
    commits.clear()
    store = SQLiteStore(tmp_path / "many")
    Inside(many(), store)
    store.close()
    assert len(commits) == alone


def test_a_restart_writes_nothing_and_makes_each_agent_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "state")
    service = Inside(many(), store)
    ids = [service.model(name).id(service.decide(name, arms=[ROW, ROW]).number) for name in ("m1",)]
    service.core.snapshot()
    last = store.last()[0]
    made = [counting(monkeypatch, Agent, "__init__"), counting(monkeypatch, Model, "__init__")]
    for _ in range(2):
        again = Inside(many(), store)
        assert store.last()[0] == last
    assert [len(one) for one in made] == [0, 2 * MODELS]
    # An epoch is written with the first decision of a process for a model, and with no other.
    for _ in range(2):
        ids.append(again.model("m1").id(again.decide("m1", arms=[ROW, ROW]).number))
    assert [list(one.epochs) for one in again.core.models.values()].count([]) == MODELS - 1
    assert len(again.model("m1").epochs) == 2
    assert [again.model("m1").number_of(id) for id in ids] == [0, 1, 2]
    store.close()


def test_a_start_decides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from fairwolfe.service import serve
    from fairwolfe.service.config import parse

    proposals = counting(monkeypatch, Agent, "propose")
    serve.open_service(parse(many(3), str(tmp_path))).core.store.close()
    assert proposals == []


def test_the_document_of_the_routes_is_made_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes several milliseconds, and needs no key: a pipeline of it kept everybody waiting."""
    from fairwolfe.service import openapi, serve
    from fairwolfe.service.config import parse

    made: list[Any] = []
    inner = openapi.document

    def noted(*given: Any) -> dict[str, Any]:
        made.append(given)
        return inner(*given)

    monkeypatch.setattr(openapi, "document", noted)
    service = serve.open_service(parse(many(1), str(tmp_path)))
    (asked,) = (one for one in service.routes if one.route.path == "/openapi.json")
    handler: Any = asked.route.handler
    answers = [asyncio.run(handler(service, None)) for _ in range(3)]
    service.core.store.close()
    assert len(made) == 1
    assert answers[0]["paths"] == answers[2]["paths"]


def front() -> Inside:
    service = Inside('state = "state"\n' + RANKING.format(window="20 s", missing="zero"))
    rows = np.random.default_rng(0).uniform(-0.4, 0.4, (6, 4))
    event = ItemsAdded(0, tuple("abcdef"), rows, "", "")
    service.together(service.core.change("front", lambda: event))
    for _ in range(20):
        service.decide("front", user=[0.1] * 4)
    return service


def one_more(service: Inside) -> None:
    event = ItemsAdded(0, ("new",), np.full((1, 4), 0.1), "", "")
    service.together(service.core.change("front", lambda: event))
    assert len(service.model("front").items()) == 7


def test_a_change_copies_no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    service = front()
    made = [counting(monkeypatch, *one) for one in ((Model, "__init__"), (Model, "dump"))]
    made += [counting(monkeypatch, *one) for one in ((Agent, "__init__"), (Agent, "dump"))]
    one_more(service)
    assert made == [[], [], [], []]


def test_a_change_closes_no_open_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    service = front()
    closed = counting(monkeypatch, Model, "_close")
    one_more(service)
    assert service.model("front").ring.open == 20
    assert closed == []


def test_an_objective_that_takes_too_long_is_refused_by_another_process() -> None:
    model = front().model("front")
    for text in ("TwoSided(items=GiniWelfare(), beta=2.0)", "GeneralizedGini(weights=(1.0, 0.2))"):
        asyncio.run(try_objective(model, text))  # the second fits nothing: that is found later
    with pytest.raises(Refused, match=r"one gradient of objective takes more than 1e-06 s") as one:
        asyncio.run(try_objective(model, "TwoSided(items=GiniWelfare(), beta=2.0)", seconds=1e-6))
    assert (one.value.status, one.value.field) == (422, "objective")


def test_only_a_few_objectives_are_tried_at_once() -> None:
    model = front().model("front")

    async def tried(count: int) -> list[Any]:
        texts = [f"TwoSided(items=GiniWelfare(), beta={k}.0)" for k in range(count)]
        each = [try_objective(model, text) for text in texts]
        return await asyncio.gather(*each, return_exceptions=True)

    outcomes = asyncio.run(tried(6))
    refused = [one for one in outcomes if one is not None]
    assert [(one.status, one.error) for one in refused] == [(429, "busy")] * 2
    assert asyncio.run(tried(4)) == [None] * 4


def test_a_tick_looks_at_models_with_open_decisions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Inside(many())
    service.advance(1.0)
    service.decide("m2", arms=[ROW, ROW])
    asked = counting(monkeypatch, Ring, "due")
    service.core.tick()
    assert asked == [service.model("m2").ring]
    service.advance(25.0)
    assert service.model("m2").ring.open == 0
    asked.clear()
    service.core.tick()
    assert asked == []


def test_a_tick_notes_one_model_and_only_those_with_something_new() -> None:
    service = Inside(many())
    service.advance(5.0)
    assert service.store.points == {}
    for name in ("m2", "m5"):
        service.decide(name, arms=[ROW, ROW])
    noted = []
    for _ in range(240):
        service.hands.time += 0.25
        service.core.tick()
        noted.append(sum(map(len, service.store.points.values())))
    assert max(b - a for a, b in pairwise(noted)) == 1
    points = {number: len(kept) for number, kept in service.store.points.items()}
    assert points == {2: 2, 5: 2}  # after the decision, and after its window
