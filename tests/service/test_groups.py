"""Groups of items in a service: attributes over HTTP, replay, metrics, the page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.client import Client
from fairwolfe.service import watch
from fairwolfe.service.events import ItemsAdded, ItemsRetired, ObjectiveReplaced
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.whatif import evaluate
from tests.service.inside import Inside
from tests.service.servers import ARMS, GROUPED, Server
from tests.service.test_wire import PYTHON

FOUR = [*zip("abcd", "xyxz", strict=True)]  # keys and their makers
HEAD = 'state = "state"\nlisten = "127.0.0.1:0"\n'
CONFIG = HEAD + (ARMS + GROUPED).format(window="9 s", missing="zero")
FRONT = "/v1/models/front"
BY_ORIGIN = (
    "TwoSided(items=Sum(terms=(ByGroup(objective=GiniWelfare(), by='maker'), "
    "ByGroup(objective=AtLeast(level=0.2, share=True), by='origin'))), beta=0.5)"
)


def added(keys: str, makers: str, seed: int = 0) -> ItemsAdded:
    rows = np.random.default_rng(seed).uniform(-0.4, 0.4, (len(keys), 4))
    attributes = tuple(
        (("maker", maker), ("origin", "here" if i % 2 else "there"))
        for i, maker in enumerate(makers)
    )
    return ItemsAdded(1, tuple(keys), rows, "", "", attributes)


def play(service: Inside, rounds: int, seed: int = 0, changed: bool = True) -> None:
    """Rankings with feedback, while makers come, go and return, and f changes."""
    rng, core = np.random.default_rng(seed), service.core

    def change(event: Any) -> None:
        service.together(core.change("front", lambda: event))

    front = service.model("front")
    if front.agent is None:
        change(added("ab", "xy"))
        change(added("cdefg", "xzyzx", 1))
    for step in range(rounds):
        for _ in range(3):
            made = service.decide("front", user=rng.uniform(-0.5, 0.5, 4).tolist())
            keys = front.keys_of(made.action)
            if rng.random() < 0.8:
                told = {"id": front.id(made.number), "exposed": keys[:2], "clicked": keys[:1]}
                service.tell("front", told)
        if step % 10 == 2:
            for key in front.items():
                if front.attributes()[key]["maker"] == "z":
                    change(ItemsRetired(1, (key,), ""))
        if step % 10 == 5:
            change(
                added(f"{seed}{step}"[:1] + "!", "yy", step) if step % 20 == 5 else added("?", "w")
            )
        if step % 10 == 7:
            change(added("n", "z", step))
        if step == rounds // 2 and changed:
            change(ObjectiveReplaced(1, BY_ORIGIN))
        if step % 4 == 3:
            core.snapshot()
        service.advance(float(rng.uniform(0.0, 4.0)))


def test_live_replayed_and_recovered_are_the_same_bits() -> None:
    service = Inside(CONFIG)
    play(service, 40)
    model = service.model("front")
    assert set(model.groups()) == {"maker", "origin"}
    assert not model.stopped
    live = {one.number: one.digest() for one in service.core.models.values()}
    fold, tail = replay(service.store), recover(service.store)
    assert {n: one.digest() for n, one in fold.models.items()} == live
    assert {n: one.digest() for n, one in tail.models.items()} == live
    assert tail.records < fold.records
    assert fold.models[1].groups() == model.groups()


def test_before_there_are_enough_items_they_have_their_attributes() -> None:
    service = Inside(CONFIG)
    service.together(service.core.change("front", lambda: added("ab", "xy")))
    model = service.model("front")
    copy = Model.load(1, service.store, service.core.seq, model.dump())
    assert (
        copy.attributes()
        == model.attributes()
        == {
            "a": {"maker": "x", "origin": "there"},
            "b": {"maker": "y", "origin": "here"},
        }
    )
    assert copy.items() == model.items()


def test_the_page_has_the_groups_with_what_was_retired() -> None:
    service = Inside(CONFIG)
    play(service, 9, changed=False)  # the items of z were retired, and one has come again
    model = service.model("front")
    shown = watch.exposure_of(model)["groups"]
    groups = model.groups()["maker"]
    assert {one["name"]: one["exposure"] for one in shown} == groups
    assert max(groups.values()) < 1.5  # what came after z had gone counts for its clock too
    assert sum(one["share"] for one in shown) == pytest.approx(1.0)
    items = model.attributes()
    for one in shown:
        due = np.mean([own["maker"] == one["name"] for own in items.values()])
        assert one["per_item"] == pytest.approx(one["share"] / due)
    frame = watch.frame_of(service.core, model, watch.live_of(model))
    assert {name for name, *_ in frame["doing"]["groups"]} == set(groups) & {
        own["maker"] for own in items.values()
    }


# --- over HTTP ----------------------------------------------------------------------------------


def item(key: str, maker: str | None = None, x: float = 0.1) -> dict[str, Any]:
    own = {} if maker is None else {"attributes": {"maker": maker}}
    return {"key": key, "features": [x, 0.2, 0.1, 0.0], **own}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("groups"), CONFIG) as one:
        given = [item(key, maker, 0.1 * i) for i, (key, maker) in enumerate(FOUR)]
        one.post(f"{FRONT}/items", {"items": given})
        yield one


def test_items_have_attributes(server: Server) -> None:
    found = server.get(f"{FRONT}/items")["items"]
    assert {one["key"]: one["attributes"]["maker"] for one in found} == dict(FOUR)


@pytest.mark.parametrize(
    ("given", "status", "error", "words"),
    [
        (item("a", "y", 0.0), 409, "other_attributes", "has other attributes; retire it"),
        (item("a", None, 0.0), 422, "invalid", "item 'a' has no attribute 'maker'"),
        (item("a", "x", 0.3), 409, "other_features", "has other features; retire it"),
        (item("n"), 422, "invalid", "item 'n' has no attribute 'maker'"),
        (item("n", ""), 422, "invalid", "has 0 characters"),
        (item("n", "x\n"), 422, "invalid", "control character"),
        ({**item("n"), "attributes": {"maker": 3}}, 422, "invalid", "attributes"),
        ({**item("n"), "attributes": ["x"]}, 422, "invalid", "attributes"),
    ],
)
def test_what_does_not_fit_is_refused(
    server: Server, given: Any, status: int, error: str, words: str
) -> None:
    before = server.get(f"{FRONT}/items")
    reply = server.request("POST", f"{FRONT}/items", {"items": [given]})
    assert (reply.status, reply.body["error"]) == (status, error), reply.body
    assert words in reply.body["message"]
    assert not PYTHON.search(reply.body["message"])
    assert server.get(f"{FRONT}/items") == before


def test_labels_are_refused_once_an_item_has_gone(server: Server) -> None:
    server.post(f"{FRONT}/items", {"items": [item("e", "w", 0.5)]})
    assert server.request("DELETE", f"{FRONT}/items/e").status == 200
    labels = "TwoSided(items=ByGroup(objective=GiniWelfare(), labels=('x', 'y', 'x', 'z')))"
    reply = server.request("PUT", f"{FRONT}/objective", {"objective": labels}, if_match="*")
    assert reply.status == 422
    assert "labels do not follow items" in reply.body["message"]
    assert not PYTHON.search(reply.body["message"])
    for model in ("router", "front"):
        url, text = f"/v1/models/{model}/objective", "ByGroup(objective=Minimum(), by='brand')"
        reply = server.request("PUT", url, {"objective": text}, if_match="*")
        assert reply.status == 422
        assert not PYTHON.search(reply.body["message"]), reply.body["message"]


def test_the_client_adds_and_retires_items_with_attributes(server: Server) -> None:
    with Client(server.url) as client:
        given = {"features": [0.3, 0.1, 0.0, 0.2], "attributes": {"maker": "v"}}
        assert client.add_items("front", {"p": given}) == 5
        assert client.add_items("front", {"q": fw.Item([0.1, 0.1, 0.0, 0.2], maker="v")}) == 6
        assert client.attributes("front")["q"] == {"maker": "v"}
        assert client.retire("front", "p") == 5
        assert client.retire("front", "q") == 4


def test_metrics_have_the_groups(server: Server) -> None:
    lines = server.request("GET", "/metrics").body
    text = lines if isinstance(lines, str) else lines.decode()
    for maker in "xyz":
        assert f'fairwolfe_group_exposure{{by="maker",group="{maker}",model="front"}}' in text


@pytest.mark.parametrize(
    "suffix", ["json", pytest.param("parquet", marks=pytest.mark.needs("pyarrow"))]
)
def test_items_of_a_file_have_attributes(tmp_path: Path, suffix: str) -> None:
    rows = [item(key, maker, 0.1 * i) for i, (key, maker) in enumerate(FOUR)]
    rows[1]["attributes"]["origin"] = "here"
    path = tmp_path / f"items.{suffix}"
    if suffix == "json":
        table = {row["key"]: {k: row[k] for k in ("features", "attributes")} for row in rows}
        path.write_text(json.dumps(table))
    else:
        import pyarrow as pa
        from pyarrow import parquet

        parquet.write_table(pa.Table.from_pylist(rows), path)
    text = CONFIG.replace("[models.front]", f'[models.front]\nitems = "{path}"')
    model = Inside(text).model("front")
    assert model.attributes()["b"] == {"maker": "y", "origin": "here"}
    assert model.attributes()["c"] == {"maker": "x"}
    assert set(model.groups()["maker"]) == {"x", "y", "z"}


def test_what_another_f_would_give_is_of_the_groups_of_today() -> None:
    service = Inside(CONFIG)
    play(service, 9, changed=False)
    agent = service.model("front").agent
    assert agent is not None
    rng = np.random.default_rng(0)
    users = [rng.uniform(-0.5, 0.5, 4) for _ in range(5)]
    text = "TwoSided(items=ByGroup(objective=GiniWelfare(), {}), beta=0.5, users=None, n_users=1)"
    texts = [text.format("by='maker'"), text.format(f"labels={agent.labels()['maker']!r}")]
    ours, theirs = (next(iter(evaluate(agent, users, [one]))) for one in texts)
    assert ours["message"] is None
    assert ours["value"] == pytest.approx(theirs["value"], abs=1e-6)
