"""P2: the state is the fold of the log, bit for bit; a snapshot and the tail are a full replay."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from fairwolfe.bandits.base import LinearBandit
from fairwolfe.core.rows import PlainRows
from fairwolfe.ranking.ranker import Ranker
from fairwolfe.service.join import DecisionGroup
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import SQLiteStore
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import Server, config

ITEMS = {f"i{n}": row for n, row in enumerate(np.random.default_rng(0).uniform(-0.4, 0.4, (9, 4)))}


def play(service: Inside, rounds: int, seed: int = 0) -> None:
    """Decisions of both models with all kinds of feedback, items that come and go, another f."""
    from fairwolfe.service.events import ItemsAdded, ItemsRetired, ObjectiveReplaced

    rng = np.random.default_rng(seed)
    core = service.core

    def change(event: object) -> None:
        service.together(core.change("front", lambda: event))  # type: ignore[arg-type,return-value]

    if service.model("front").agent is None:
        change(ItemsAdded(1, tuple(ITEMS), np.array(list(ITEMS.values())), ""))
    for step in range(rounds):
        n = int(rng.integers(1, 4))
        asks = [{"arms": rng.uniform(-0.4, 0.4, (3, 5)).tolist()} for _ in range(n)]
        if step % 5 == 4:  # not alike, so that they are no batch
            asks.append({"arms": rng.uniform(-0.4, 0.4, (2, 5)).tolist(), "candidates": [1]})
        for answer in service.decide_many("router", asks):
            id = service.model("router").id(answer.number)
            if rng.random() < 0.7:
                service.tell("router", {"id": id, "rewards": {"clicks": float(rng.integers(2))}})
            if rng.random() < 0.5:
                service.tell(
                    "router", {"id": id, "rewards": {"minutes": float(rng.uniform(0.0, 10.0))}}
                )
        user = rng.uniform(-0.5, 0.5, 4).tolist()
        answer = service.decide("front", user=user, request_id=f"{seed}-{step}")
        front = service.model("front")
        keys = front.keys_of(answer.action)
        service.tell("front", {"id": front.id(answer.number), "exposed": keys[:2]})
        service.tell("front", {"id": front.id(answer.number), "clicked": keys[:1]})
        if step == rounds // 3:
            change(ItemsRetired(1, ("i3",), ""))
        if step == rounds // 2:
            change(ItemsAdded(1, (f"new {seed}",), np.full((1, 4), 0.1), ""))
            change(ObjectiveReplaced(1, "TwoSided(items=GiniWelfare(), beta=1.5)"))
        if step % 4 == 3:
            core.snapshot()
        service.advance(float(rng.uniform(0.0, 4.0)))


@pytest.mark.parametrize("missing", ["zero", "skip"])
def test_live_replayed_and_recovered_are_the_same_bits(missing: str) -> None:
    service = Inside(config("9 s", missing))
    play(service, 40)
    live = {m.number: m.digest() for m in service.core.models.values()}
    assert service.core.models["router"].counts["joined"] > 20
    assert service.core.models["router"].counts["expired"] > 0
    fold, tail = replay(service.store), recover(service.store)
    assert {n: m.digest() for n, m in fold.models.items()} == live
    assert {n: m.digest() for n, m in tail.models.items()} == live
    assert tail.records < fold.records


LINUCB = '{ name = "frank-wolfe", objective = { name = "minimum" }, base = { name = "linucb" } }'
GUARDED = f'policy = {{ name = "guarded", share = 0.9, policy = {LINUCB}, baseline = {LINUCB} }}'


@pytest.mark.parametrize("which", ["base", "policy"])
@pytest.mark.parametrize("missing", ["zero", "skip"])
def test_what_decides_in_python_is_the_same_fold(
    which: str, missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = config("9 s", missing)
    if which == "base":
        for owner in (LinearBandit, Ranker):
            monkeypatch.setattr(owner, "rule", lambda self, problem: None)
    else:
        text = re.sub(r"objective = .*\npolicy = .*", GUARDED, text, count=1)
        text = text.replace('"arms",', '"arms", parameter_norm = 1.0,')
    service = Inside(text)
    play(service, 16)
    assert all(isinstance(group.decisions.rows, PlainRows) for group in _groups(service, which))
    live = {m.number: m.digest() for m in service.core.models.values()}
    fold, tail = replay(service.store), recover(service.store)
    assert {n: m.digest() for n, m in fold.models.items()} == live
    assert {n: m.digest() for n, m in tail.models.items()} == live
    assert fold.models[0].counts["joined"] > 5
    assert fold.models[0].counts["expired"] > 0


def _groups(service: Inside, which: str) -> list[DecisionGroup]:
    service.decide("router", arms=[[0.1] * 5])
    service.decide("front", user=[0.1] * 4)
    names = ("router", "front") if which == "base" else ("router",)
    return [group for name in names for group in service.model(name).ring.groups]


def test_every_prefix_of_the_log_is_the_state_of_its_time() -> None:
    store = MemoryStore()
    service = Inside(config("5 s"), store)
    known = {}
    for seed in range(6):
        play(service, 4, seed)
        known[service.core.seq] = service.model("router").digest()
    for seq, digest in known.items():
        assert replay(store, seq).models[0].digest() == digest


def test_another_fold_is_noticed() -> None:
    """The digest is no constant: one entry more is another state."""
    service = Inside(config("9 s"))
    play(service, 3)
    answer = service.decide("router", arms=[[0.1] * 5, [0.2] * 5])
    before = service.model("router").digest()
    id = service.model("router").id(answer.number)
    assert service.tell("router", {"id": id, "rewards": {"clicks": 1.0}}) == ["joined"]
    assert service.model("router").digest() != before


def test_a_killed_server_continues_where_it_was(tmp_path: Path) -> None:
    with Server(tmp_path, config("60 s")) as server:
        items = [{"key": key, "features": row.tolist()} for key, row in ITEMS.items()]
        server.post("/v1/models/front/items", {"items": items})
        arms = [[0.1 * i, 0.2, -0.1, 0.3, 0.0] for i in range(3)]
        ask = {"arms": arms, "request_id": "once"}
        first = server.post("/v1/models/router/decide", ask)
        ranked = server.post("/v1/models/front/decide", {"user": [0.1, 0.2, 0.3, 0.4]})
        told = [{"id": first["id"], "rewards": {"clicks": 1}}]
        server.post("/v1/models/router/feedback", told)
        seen = server.get("/v1/models")
        server.kill()
        store = SQLiteStore(server.state)
        digests = {n: m.digest() for n, m in recover(store).models.items()}
        assert {n: m.digest() for n, m in replay(store).models.items()} == digests
        store.close()
        server.start()
        assert server.get("/v1/models") == seen
        again = server.post("/v1/models/router/decide", ask)
        assert again == first | {"closes_in": again["closes_in"]}
        assert 0.0 < again["closes_in"] <= first["closes_in"]
        assert server.post("/v1/models/router/feedback", told)[0]["outcome"] == "known"
        again = server.get(f"/v1/models/front/decisions/{ranked['id']}")
        assert again["items"] == ranked["items"]
        assert server.stop() == 0
        store = SQLiteStore(server.state)
        fold, tail = replay(store), recover(store)
        for number, model in fold.models.items():
            assert model.digest() == tail.models[number].digest()
        assert tail.records == 0  # a clean end keeps a snapshot
        store.close()
