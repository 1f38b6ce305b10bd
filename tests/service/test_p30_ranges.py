"""P30: a reward outside its range never changes an average unless the configuration says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe.errors import InvalidInput
from fairwolfe.service.config import parse
from fairwolfe.service.wire import Refused
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import Server, config, wait_for

ROW = [0.1] * 5
USER = [0.1, 0.2, 0.0, 0.1]


def text(rule: str | None = None, window: str = "10 s") -> str:
    """Both models, with a rule for rewards outside their ranges where one is given."""
    line = "" if rule is None else f'out_of_range = "{rule}"\n'
    ranked = 'rewards = { clicks = [0, 3], minutes = [-3, 30] }, kind = "ranking"'
    plain = config(window).replace('kind = "ranking"', ranked)
    return plain.replace("window =", f"{line}window =")


def stocked(service: Inside) -> Inside:
    from fairwolfe.service.events import ItemsAdded

    rows = np.random.default_rng(0).uniform(-0.4, 0.4, (5, 4))
    event = ItemsAdded(service.model("front").number, tuple("abcde"), rows, "", "")
    service.together(service.core.change("front", lambda: event))
    return service


def id_of(service: Inside, model: str = "router") -> str:
    request: dict[str, Any] = {"arms": [ROW, ROW]} if model == "router" else {"user": USER}
    return service.model(model).id(service.decide(model, **request).number)


@pytest.mark.parametrize("value", [-0.001, 10.001, 9_999_999.0, -1e300, 1e300])
def test_an_arm_by_default(value: float) -> None:
    service = Inside(text())
    id = id_of(service)
    with pytest.raises(Refused) as caught:
        service.tell("router", {"id": id, "rewards": {"clicks": 1.0, "minutes": value}})
    refused = caught.value
    assert (refused.status, refused.error, refused.field) == (422, "out_of_range", "[0].rewards")
    assert f"the reward 'minutes' is {value:.15g}, outside its range of 0 to 10" in refused.message
    assert "clip" in refused.message
    # Nothing of the entry counts, and the right number may still come.
    assert service.tell("router", {"id": id, "rewards": {"minutes": 10.0}}) == ["joined"]
    service.advance(11.0)
    assert service.model("router").average() == {"clicks": 0.0, "minutes": 10.0}


@pytest.mark.parametrize("value", [-1.1, 10.1, 9_999_999.0])
def test_a_slot_of_a_ranking_by_default(value: float) -> None:
    """A slot has its share of the range of the list: a third of -3 to 30."""
    service = stocked(Inside(text()))
    id = id_of(service, "front")
    keys = service.model("front").keys_of(service.model("front").ring.action(0))
    entry = {"id": id, "exposed": keys, "rewards": {"minutes": {keys[0]: value, keys[1]: 0.0}}}
    with pytest.raises(Refused) as caught:
        service.tell("front", entry)
    assert (caught.value.status, caught.value.error) == (422, "out_of_range")
    words = f"of item {keys[0]!r} is {value:.15g}, outside its range of -1 to 10 for one of 3 slots"
    assert words in caught.value.message
    right = {"minutes": {keys[0]: 10.0, keys[1]: -1.0}}
    assert service.tell("front", {**entry, "rewards": right}) == ["joined"]
    service.advance(11.0)
    assert service.model("front").average()["minutes"] == 9.0


def test_clicks_are_rewards_of_one() -> None:
    """With a range of [0, 1] for a list of three slots a slot has a third of it."""
    one = text().replace("clicks = [0, 3]", "clicks = [0, 1]")
    for rule, average in ((None, 0.0), ("clip", 1 / 3), ("learn", 1.0)):
        service = stocked(
            Inside(
                one if rule is None else one.replace("window", f'out_of_range = "{rule}"\nwindow')
            )
        )
        id = id_of(service, "front")
        keys = service.model("front").keys_of(service.model("front").ring.action(0))
        entry = {"id": id, "exposed": keys, "clicked": keys[:1]}
        if rule is None:
            with pytest.raises(Refused, match="'clicks' is 1, outside"):
                service.tell("front", entry)
        else:
            assert service.tell("front", entry, entry) == ["joined", "known"]
        service.advance(11.0)
        assert service.model("front").average()["clicks"] == pytest.approx(average)


def test_a_share_of_a_range_is_rounded() -> None:
    """0.1 is a third of 0.3, whatever 0.3 / 3 is in floating point."""
    assert 0.3 / 3 < 0.1
    service = stocked(Inside(text().replace("minutes = [-3, 30]", "minutes = [0, 0.3]")))
    id = id_of(service, "front")
    key = service.model("front").keys_of(service.model("front").ring.action(0))[0]
    entry = {"id": id, "exposed": [key], "rewards": {"minutes": {key: 0.1}}}
    assert service.tell("front", entry) == ["joined"]


@pytest.mark.parametrize(
    ("rule", "value", "average"),
    [("clip", 9_999_999.0, 10.0), ("clip", -5.0, 0.0), ("learn", 12.0, 12.0)],
)
def test_another_rule(rule: str, value: float, average: float) -> None:
    store = MemoryStore()
    service = Inside(text(rule), store)
    entry = {"id": id_of(service), "rewards": {"minutes": value}}
    assert service.tell("router", entry) == ["joined"]
    assert service.tell("router", entry) == ["known"]  # the same again, also where it was clipped
    service.advance(11.0)
    assert service.model("router").average()["minutes"] == average
    # The log has what was learnt, so the rule may change at a restart and the fold does not.
    again = Inside(text("refuse"), store)
    one, other = (each.model("router").agent for each in (service, again))
    assert one is not None
    assert other is not None
    assert one.dump() == other.dump()
    with pytest.raises(Refused):
        again.tell("router", {"id": id_of(again), "rewards": {"minutes": value}})


def test_one_bad_entry_of_a_list_counts_for_none() -> None:
    service = Inside(text())
    first, second = id_of(service), id_of(service)
    with pytest.raises(Refused) as caught:
        service.tell(
            "router",
            {"id": first, "rewards": {"minutes": 1.0}},
            {"id": second, "rewards": {"minutes": 11.0}},
        )
    assert caught.value.field == "[1].rewards"
    assert service.tell("router", {"id": first, "rewards": {"minutes": 2.0}}) == ["joined"]


def test_an_unknown_rule_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"out_of_range.*'ignore'"):
        parse(text("ignore"))


def test_over_http_and_a_restart(tmp_path: Path) -> None:
    path = "/v1/models/router"
    with Server(tmp_path, text(window="0.3 s")) as server:
        made = server.post(f"{path}/decide", {"arms": [ROW, ROW]})["id"]
        bad = [{"id": made, "rewards": {"clicks": 900_000, "minutes": 9_999_999}}]
        reply = server.request("POST", f"{path}/feedback", bad)
        assert (reply.status, reply.body["error"]) == (422, "out_of_range")
        assert reply.body["field"] == "[0].rewards"
        wait_for(lambda: server.get(path)["open"] == 0)
        server.kill()
        server.start()
        assert server.get(path)["average"] == {"clicks": 0.0, "minutes": 0.0}
