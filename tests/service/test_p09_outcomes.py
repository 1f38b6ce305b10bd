"""P9: every kind of feedback has its outcome and its counter; nothing is lost between them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.wire import Refused
from tests.service.crowd import Crowd
from tests.service.inside import Inside
from tests.service.servers import Server, config
from tests.service.test_p04_any_order import ranking

ARMS = [[0.1, 0.2, 0.3, 0.0, 0.1], [0.3, 0.1, 0.0, 0.2, 0.1]]
COUNTS = ("decisions", "joined", "expired", "open")


def conserved(model: Any) -> None:
    counts = model.counts
    assert model.decisions == counts["joined"] + counts["expired"] + model.ring.open


@pytest.mark.parametrize("missing", ["zero", "skip"])
def test_early_in_time_late_missing_and_unknown(missing: str) -> None:
    service = Inside(config("10 s", missing, both=False))
    model = service.model("router")
    numbers = [a.number for a in service.decide_many("router", [{"arms": ARMS}] * 4)]
    ids = [model.id(number) for number in numbers]

    def tell(id: str, **rewards: Any | None) -> str:
        outcome = service.tell("router", {"id": id, "rewards": rewards})[0]
        conserved(model)
        return outcome

    assert tell(ids[0], clicks=1.0) == "joined"
    assert tell(ids[0], clicks=1.0) == "known"
    assert tell(ids[0], clicks=0.0) == "conflict"
    assert tell(ids[0], clicks=0.0, minutes=3.0) == "conflict"  # and nothing of it counts
    assert tell(ids[0], minutes=2.0) == "joined"
    assert tell(ids[0], clicks=1.0, minutes=2.0) == "known"
    assert tell(ids[1], minutes=5.0, clicks=None) == "joined"
    assert tell(model.id(99), clicks=1.0) == "unknown"
    assert tell("elsewhere-0-0", clicks=1.0) == "unknown"
    assert tell(f"{model.token}-00", clicks=1.0) == "unknown"
    assert tell("", clicks=1.0) == "unknown"
    service.advance(9.9)
    assert tell(ids[2], clicks=0.0) == "joined"  # nothing was earned, and somebody said so
    service.advance(0.2)
    for id in ids:
        assert tell(id, clicks=1.0) == "late"
    counts = {"joined": 3, "expired": 1, "known": 2, "late": 4, "unknown": 4, "conflict": 2}
    assert model.counts == counts
    assert model.t == (4 if missing == "zero" else 3)
    clicks, minutes = model.average().values()
    assert (clicks, minutes) == pytest.approx((1.0 / model.t, 7.0 / model.t))
    assert service.core.find(model, ids[3]).state == "expired"
    assert service.core.find(model, ids[2]).state == "joined"


def test_feedback_of_one_group_knows_of_each_other() -> None:
    from fairwolfe.service.core import Work
    from fairwolfe.service.wire import Feedback

    service = Inside(config("10 s", both=False))
    service.decide("router", arms=ARMS)
    id = service.model("router").id(0)

    def entry(**rewards: Any) -> Any:
        entries = [Feedback(id, None, None, rewards, False)]
        return service.core.wait(Work(service.model("router"), entries=entries))

    told = service.together(
        entry(clicks=1.0), entry(clicks=1.0), entry(clicks=0.0), entry(minutes=2.0)
    )
    outcomes = [one.outcome for group in told for one in group]
    assert outcomes == ["joined", "known", "conflict", "joined"]
    assert len(service.store.log) == 3  # a start, a decision, one group


def test_feedback_with_nothing_new_costs_no_row() -> None:
    """It is counted, and the counts are in the log with the next row of feedback or snapshot."""
    service = Inside(config("10 s", both=False))
    model = service.model("router")
    service.decide("router", arms=ARMS)
    good = {"id": model.id(0), "rewards": {"clicks": 1.0}}
    service.tell("router", good)
    rows = len(service.store.log)
    for _ in range(50):
        service.tell("router", good, {"id": "elsewhere-0-0", "rewards": {"clicks": 1.0}})
        service.tell("router", {**good, "rewards": {"clicks": 0.0}})
    assert len(service.store.log) == rows
    counts = {"joined": 0, "expired": 0, "known": 50, "late": 0, "unknown": 50, "conflict": 50}
    assert model.counts == counts
    before = model.digest()
    assert replay(service.store).models[0].digest() == before  # no row, no state
    service.tell("router", {"id": model.id(0), "rewards": {"minutes": 1.0}})
    assert replay(service.store).models[0].counts == model.counts == counts
    service.tell("router", {"id": "elsewhere-0-0", "rewards": {"clicks": 1.0}})
    service.core.snapshot()
    assert recover(service.store).models[0].counts == counts | {"unknown": 51}
    assert replay(service.store).models[0].digest() == model.digest()


def test_a_refused_entry_takes_its_whole_request_with_it() -> None:
    service = Inside(config("10 s", both=False))
    service.decide("router", arms=ARMS)
    before = service.model("router").digest()
    good = {"id": service.model("router").id(0), "rewards": {"clicks": 1.0}}
    for bad, field in (
        ({"rewards": {"click": 1.0}}, "[1].rewards"),
        ({"rewards": {"clicks": 1e300}}, "[1].rewards"),
        ({"rewards": {"clicks": {"a": 1.0}}}, "[1].rewards"),
        ({"exposed": []}, "[1].exposed"),
        ({"rewards": {}}, "[1]"),
        ({}, "[1]"),
    ):
        with pytest.raises(Refused) as caught:
            service.tell("router", good, {"id": good["id"], **bad})
        assert (caught.value.status, caught.value.field) == (422, field)
    assert service.model("router").digest() == before
    assert len(service.store.log) == 2


def test_a_ranking_joins_bits_and_numbers() -> None:
    service = ranking("zero")
    model = service.model("front")
    answer = service.decide("front", user=[0.1, 0.2, 0.3, 0.4])
    id, keys = model.id(answer.number), model.keys_of(answer.action)
    other = next(key for key in "abcdef" if key not in keys)

    def tell(**entry: Any) -> str:
        return service.tell("front", {"id": id, **entry})[0]

    assert tell(exposed=[]) == "joined"  # somebody says that nothing was looked at
    assert tell(exposed=[]) == "known"
    assert tell(exposed=keys[:1]) == "joined"
    assert tell(clicked=keys[1:2]) == "joined"  # and so it was exposed
    assert tell(exposed=keys[:2], clicked=keys[1:2]) == "known"
    assert tell(rewards={"clicks": {keys[1]: 0.0}}) == "conflict"
    for wrong in (
        {"exposed": [other]},
        {"exposed": [keys[0], keys[0]]},
        {"exposed": keys[:1], "clicked": keys[1:2]},
        {"rewards": {"clicks": 1.0}},
        {"rewards": {"minutes": {keys[0]: 1.0}}},
    ):
        with pytest.raises(Refused):
            tell(**wrong)
    found = service.core.find(model, id)
    assert found.joined.exposed.tolist() == [True, True, False]
    service.advance(10.0)
    exposures = model.exposures()
    assert [exposures[key] for key in keys] == [1.0, 1.0, 0.0]
    assert model.average() == {"clicks": 1.0}


def test_nothing_is_lost_at_any_scrape_under_load(tmp_path: Path) -> None:
    with Server(tmp_path, config("0.5 s", both=False)) as server:
        crowd = Crowd(server, 3)
        crowd.start()
        scrapes = []
        stop = threading.Event()
        for _ in range(40):
            lines = server.get("/metrics").decode().splitlines()
            found = {}
            for line in lines:
                for name in COUNTS:
                    tail = "" if name == "open" else "_total"
                    if line.startswith(f'fairwolfe_{name}{tail}{{model="router"}}'):
                        found[name] = float(line.split()[1])
            scrapes.append(found)
            stop.wait(0.05)
        crowd.stop()
    assert scrapes[-1]["expired"] + scrapes[-1]["joined"] > 0
    for found in scrapes:
        assert found["decisions"] == found["joined"] + found["expired"] + found["open"]
