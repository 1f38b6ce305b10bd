"""What can be watched, without a browser: who gets the exposure, how it moved, who changed f."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe.core.packing import pack
from fairwolfe.errors import IncompatibleState
from fairwolfe.service import watch
from fairwolfe.service.events import ItemsAdded, ItemsRetired, ObjectiveReplaced
from fairwolfe.service.keys import new_key
from fairwolfe.service.model import Model
from fairwolfe.service.panels import number
from tests.service import shop
from tests.service.inside import _LOOP, Inside
from tests.service.servers import Server, config

RANKING = config("5 s")
ROWS = np.random.default_rng(0).uniform(-0.4, 0.4, (6, 4))
MINIMUM = "TwoSided(Minimum(), beta=2.0)"


def stocked(store: Any = None) -> Inside:
    service = Inside(RANKING, store)
    model = service.model("front")
    if model.agent is None:
        event = ItemsAdded(model.number, tuple("abcdef"), ROWS, "", "stock")
        _LOOP.run_until_complete(service.core.change("front", lambda: event))
    return service


def play(service: Inside, n: int) -> None:
    for _ in range(n):
        made = service.decide("front", user=[0.3, 0.1, -0.2, 0.1])
        model = service.model("front")
        keys = model.keys_of(made.action)
        told = {"id": model.id(made.number), "exposed": keys[:2], "clicked": keys[:1]}
        service.tell("front", told)
    service.advance(5.0)


def replace(service: Inside, text: str, who: str = "") -> None:
    number = service.model("front").number
    event = ObjectiveReplaced(number, text, who)
    _LOOP.run_until_complete(service.core.change("front", lambda: event))


@pytest.mark.parametrize("n", [1, 2, 5, 40])
def test_shares_are_those_of_sums_by_hand(n: int) -> None:
    exposures = np.random.default_rng(n).gamma(0.7, size=n)
    told = watch.shares_of(exposures, parts=n)
    ordered = sorted(exposures.tolist())
    by_hand = [sum(ordered[:k]) / sum(ordered) for k in range(n + 1)]
    assert told["lorenz"] == pytest.approx(by_hand)
    differences = sum(abs(a - b) for a in ordered for b in ordered)
    assert told["gini"] == pytest.approx(differences / (2 * n * sum(ordered)))
    assert f"{100 * told['least_half']:.0f} % of the exposure" in told["words"]
    if n % 2 == 0:
        assert told["least_half"] == pytest.approx(by_hand[n // 2])


def test_nothing_was_exposed_yet() -> None:
    told = watch.shares_of(np.zeros(4))
    assert (told["gini"], told["lorenz"]) == (None, [])
    assert "Nothing was exposed" in told["words"]
    assert watch.shares_of(np.empty(0))["gini"] is None


def test_the_ends_and_the_groups() -> None:
    service = stocked()
    play(service, 10)
    model = service.model("front")
    shown = watch.exposure_of(model)
    values = [one["exposure"] for one in shown["least"]]
    assert values == sorted(model.exposures().values())
    assert [one["key"] for one in shown["most"]] == [one["key"] for one in shown["least"]][::-1]
    assert "groups" not in shown
    labels = ("x", "y", "x", "y", "z", "z")
    replace(service, f"TwoSided(items=ByGroup(objective=Minimum(), labels={labels!r}), beta=1.0)")
    groups = {one["name"]: one for one in watch.exposure_of(model)["groups"]}
    total = sum(model.exposures().values())
    for name in "xyz":
        keys = [key for key, label in zip("abcdef", labels, strict=True) if label == name]
        share = sum(model.exposures()[key] for key in keys) / total
        assert groups[name]["share"] == pytest.approx(share)
        assert groups[name]["per_item"] == pytest.approx(share / (2 / 6))


def test_an_earlier_curve_is_kept_and_points_of_before_still_read() -> None:
    service = stocked()
    model = service.model("front")
    old = {"t": 0, "value": None, "average": {"clicks": 0.0}}  # as it was written before
    service.store.note(model.number, 0.0, pack((old,)))
    assert watch.earlier_of(service.core, model) is None
    play(service, 10)
    first = watch.shares_of(np.array(list(model.exposures().values())), 20)
    now = service.core.clock.now()
    for _ in range(3):
        play(service, 10)
    earlier = watch.earlier_of(service.core, model)
    assert earlier is not None
    assert earlier["lorenz"] == pytest.approx(first["lorenz"], abs=1e-6)
    age = service.core.clock.now() - now
    assert age - 2.0 <= earlier["seconds_ago"] <= age  # at first there is a point every 2 s
    service.advance(90_000.0)  # more than a day: the last curve before that
    play(service, 10)
    assert watch.earlier_of(service.core, model)["seconds_ago"] >= 86_400  # type: ignore[index]
    service.advance(61.0)
    points = watch.history_of(service.core, model)
    assert points[0] == {"clock": 0.0, **old}
    assert all("lorenz" not in point for point in points)
    assert points[-1]["gini"] == watch.exposure_of(model)["gini"]
    assert points[-1]["value"] == model.value
    few = watch.history_of(service.core, model, 3)
    assert [few[0], few[-1]] == [points[0], points[-1]]
    assert len(few) == 3


def test_points_hold_the_live_numbers() -> None:
    service = stocked()
    for _ in range(5):
        play(service, 200)
    service.advance(61.0)  # the next point
    model = service.model("front")
    live, point = watch.live_of(model), watch.history_of(service.core, model)[-1]
    for name in ("at_most", "about", "low", "high", "value", "t"):
        assert point[name] == live[name]
    assert point["about"] is not None


# --- what is shown -----------------------------------------------------------------------------


def asked(service: Inside, n: int) -> Counter[str]:
    """Decide so often; how often each item was in a ranking."""
    model, found = service.model("front"), Counter[str]()
    for _ in range(n):
        found.update(model.keys_of(service.decide("front", user=[0.3, 0.1, -0.2, 0.1]).action))
    return found


def shares(doing: dict[str, Any], side: int) -> dict[str, float]:
    return {row[0]: row[side] for row in (*doing["most"], *doing["least"])}


def test_what_is_shown_today_and_yesterday(monkeypatch: pytest.MonkeyPatch) -> None:
    """A day ends in a point of the history; counts of the test itself are the oracle."""
    monkeypatch.setattr(watch, "_DAY", 600.0)
    service = stocked()
    model = service.model("front")
    assert watch.doing_of(service.core, model)["most"][0][1] is None  # no visits yet
    days: list[Counter[str]] = []
    for n in (30, 20, 50):
        days.append(asked(service, n))
        service.advance(600.0)
    doing = watch.doing_of(service.core, model)
    assert doing["visits"] == 100
    assert 600.0 <= doing["seconds"] <= 660.0
    assert shares(doing, 1) == pytest.approx({key: days[2][key] / 50 for key in "abcdef"})
    assert shares(doing, 2) == pytest.approx({key: days[1][key] / 20 for key in "abcdef"})
    assert doing["rate"] == pytest.approx(50 / doing["seconds"])
    assert [row[1] for row in doing["most"]] == sorted(shares(doing, 1).values())[:2:-1]
    # What was counted survives a restart, and what is retired is not listed any more.
    again = Inside(RANKING, service.store)
    assert again.core.tallies["front"].kept() == {"visits": 100, "shown": sum(days, Counter())}
    event = ItemsRetired(model.number, ("a",), "")
    _LOOP.run_until_complete(service.core.change("front", lambda: event))
    assert "a" not in shares(watch.doing_of(service.core, model), 1)


def test_groups_are_sums_of_their_items() -> None:
    service = stocked()
    labels = ("x", "y", "x", "y", "z", "z")
    replace(service, f"TwoSided(items=ByGroup(objective=Minimum(), labels={labels!r}), beta=1.0)")
    found = asked(service, 40)
    doing = watch.doing_of(service.core, service.model("front"))
    told = {name: now for name, now, _ in doing["groups"]}
    by_hand = Counter[str]()
    for key, label in zip("abcdef", labels, strict=True):
        by_hand[label] += found[key]
    assert told == pytest.approx({label: by_hand[label] / 120 for label in "xyz"})
    assert sum(told.values()) == pytest.approx(1.0)


def test_arms_are_counted_by_their_names() -> None:
    service = Inside(config("5 s"))
    arms = [[0.1] * 5, [0.9] * 5]
    for _ in range(8):
        service.decide("router", arms=dict(zip(("left", "right"), arms, strict=True)))
    service.decide("router", arms=arms)
    doing = watch.doing_of(service.core, service.model("router"))
    assert sum(now for _, now, _ in doing["most"]) == pytest.approx(1.0)
    assert {name for name, *_ in doing["most"]} <= {"left", "right", "arm 0", "arm 1"}
    assert any(name.startswith("arm") for name, *_ in doing["most"])


def test_names_without_end_are_bounded() -> None:
    tally = watch.Tally()
    tally.shown = Counter({f"name {i}": i for i in range(10_000)})
    service = Inside(config("5 s"))
    service.core.tallies["router"] = tally
    service.decide("router", arms={"one more": [0.1] * 5})
    assert len(tally.shown) == 5_000
    assert tally.shown["name 9999"] == 9_999
    assert tally.kept() == {}  # a point of the history stays small


def test_every_change_of_f_has_a_line() -> None:
    service = stocked()
    model = service.model("front")
    first = model.objective
    replace(service, "TwoSided( items=Minimum(),beta=2.0)", "owner")
    event = ItemsAdded(model.number, ("g",), ROWS[:1], first, "shop")
    _LOOP.run_until_complete(service.core.change("front", lambda: event))
    lines = watch.changes_of(service.core, model)
    told = [(line["version"], line["who"], line["from"], line["to"]) for line in lines]
    assert told == [(2, "shop", MINIMUM, first), (1, "owner", first, MINIMUM)]
    assert all(line["when"] > 1.7e9 for line in lines)
    play(service, 5)
    service.core.snapshot()
    for again in (Inside(RANKING, service.store), _replayed(service)):
        assert watch.changes_of(again.core, again.model("front")) == lines
        assert again.model("front").version == 2
        assert again.model("front").digest() == model.digest()


def test_lines_of_rows_that_are_gone_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    service = stocked()
    for text in (MINIMUM, shop.FAIR, MINIMUM):
        replace(service, text, "owner")
    gone = service.model("front").changes[1]
    row = service.store.row

    def kept(seq: int) -> Any:
        if seq == gone:
            raise IncompatibleState("row is missing")
        return row(seq)

    monkeypatch.setattr(service.store, "row", kept)
    lines = watch.changes_of(service.core, service.model("front"))
    assert [(line["version"], line["from"] is None) for line in lines] == [(3, True), (1, False)]


def _replayed(service: Inside) -> Inside:
    service.store.kept = {}
    return Inside(RANKING, service.store)


def test_what_is_refused_is_no_change(tmp_path: Path) -> None:
    owner, read = new_key(), new_key()
    head = "".join(
        f'[[keys]]\nname = "{name}"\nsha256 = "{digest}"\nscopes = {scopes}\n'
        for name, digest, scopes in (
            ("owner", owner[1], '["admin", "read"]'),
            ("reader", read[1], '["read"]'),
        )
    )
    admin, reader = f"Bearer {owner[0]}", f"Bearer {read[0]}"
    with Server(tmp_path, shop.config(head=head)) as server:
        shop.World().stock(server, authorization=admin)
        path = f"{shop.SHOP}/objective"
        for text, key, tag, status in (
            (shop.FAIR, reader, "*", 403),
            (shop.FAIR, "Bearer fw_wrong", "*", 401),
            ("TwoSided(items=GiniWelfare(), beta=-1.0)", admin, "*", 422),
            ("Minimum(", admin, "*", 422),
            ("Linear(weights=(1.0, 2.0))", admin, "*", 422),
            (shop.FAIR, admin, '"7"', 412),
        ):
            reply = server.request(
                "PUT", path, {"objective": text}, authorization=key, if_match=tag
            )
            assert reply.status == status, reply
            assert reply.body["message"]
        changes = f"{shop.SHOP}/changes"
        assert server.get(changes, authorization=reader) == {"changes": []}
        other = {"objective": shop.CONSTRAINED}
        assert server.request("PUT", path, other, authorization=admin, if_match='"0"').status == 200
        server.kill()
        server.start()
        (line,) = server.get(changes, authorization=reader)["changes"]
        assert (line["who"], line["version"], line["from"]) == ("owner", 1, shop.FAIR)
        assert line["to"] == shop.CONSTRAINED


def test_numbers_have_three_digits() -> None:
    given = (0.000123456, 1234567.4, -0.5, 12.0, float("inf"), 0.00001234, 1e-12, 99.96)
    shown = [number(x) for x in given]
    assert shown == ["0.000123", "1,234,567", "-0.5", "12", "–", "0.0000123", "1e-12", "100"]


def test_a_model_without_items_can_be_watched() -> None:
    service = Inside(RANKING)
    model: Model = service.model("front")
    frame = watch.frame_of(service.core, model, watch.live_of(model))
    assert frame["exposure"]["items"] == 0
    assert frame["live"]["sentence"] == "Nothing has been learnt yet."
    assert watch.point_of(model, frame["live"], watch.Tally())["gini"] is None
