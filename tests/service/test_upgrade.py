"""A log that an earlier version wrote is read by today's: see tests/golden/service_log.py."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from fairwolfe.service.log_file import restore
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import Snapshot, SQLiteStore
from tests.golden.service_log import actions, said
from tests.service.inside import Inside

GOLDEN = sorted((Path(__file__).parents[1] / "golden").glob("service-log-*"))


def unpacked(golden: Path, folder: Path) -> SQLiteStore:
    copy = folder.with_suffix(".sqlite")
    copy.write_bytes(gzip.decompress((golden / "log.sqlite.gz").read_bytes()))
    restore(copy, folder, lambda _: None)
    return SQLiteStore(folder)


def same(said_now: dict[str, Any], expected: dict[str, Any]) -> None:
    """Numbers to 1e-9 (another processor rounds otherwise), everything else exactly; not the
    actions, which the models do not keep.
    """
    for name, one in expected.items():
        if name in ("value", "average", "exposures"):
            assert said_now[name] == pytest.approx(one, rel=1e-9, abs=1e-9), name
        elif name != "actions":
            assert said_now[name] == one, name


def test_there_is_a_log_of_every_format() -> None:
    assert [golden.name for golden in GOLDEN] == ["service-log-3"]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_a_reader_of_its_own_finds_the_decisions(golden: Path, tmp_path: Path) -> None:
    expected = json.loads((golden / "expected.json").read_text())["models"]
    store = unpacked(golden, tmp_path / "state")
    store.close()
    for number, name in enumerate(("router", "front", "quick")):
        found = actions(store.path, number)
        assert found == expected[name]["actions"]
        assert len(found.split()) == expected[name]["decisions"]


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
@pytest.mark.parametrize("how", [recover, replay])
def test_an_older_log_is_read(golden: Path, how: Any, tmp_path: Path) -> None:
    expected = json.loads((golden / "expected.json").read_text())
    store = unpacked(golden, tmp_path / "state")
    found = how(store)
    assert store.last()[0] == expected["rows"]
    models = {model.name: model for model in found.models.values()}
    assert sorted(models) == sorted(expected["models"])
    for name, one in expected["models"].items():
        assert not models[name].stopped
        same(said(models[name]), one)
    store.close()


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda path: path.name)
def test_it_goes_on_under_todays_code(golden: Path, tmp_path: Path) -> None:
    """Snapshots and rows of today on top of the old ones are one fold, bit for bit."""
    store = unpacked(golden, tmp_path / "state")
    for number, model in replay(store).models.items():  # in the bits of this machine
        store.snapshot([Snapshot(number, store.last()[0], model.dump())], store.folded)
    service = Inside((golden / "config.toml").read_text(), store)
    for step in range(6):
        service.decide("router", arms=[[0.1, 0.2, 0.0, 0.1, 0.0], [0.0] * 5], request_id=f"{step}")
        service.decide("front", user=[0.1, 0.2, 0.0, 0.1])
        answer = service.decide("quick", user=[0.1, 0.2])
        id = service.model("quick").id(answer.number)
        service.tell("quick", {"id": id, "rewards": {"sales": 0.5}})
        service.advance(4.0)
        if step == 3:
            service.core.snapshot()
    live = [model.digest() for model in service.core.models.values()]
    tail, whole = recover(store), replay(store)
    assert 0 < tail.records < whole.records
    assert [model.digest() for model in tail.models.values()] == live
    assert [model.digest() for model in whole.models.values()] == live
    store.close()


def test_another_sum_is_noticed(tmp_path: Path) -> None:
    expected = json.loads((GOLDEN[0] / "expected.json").read_text())
    store = unpacked(GOLDEN[0], tmp_path / "state")
    found = replay(store, expected["rows"] - 1)  # a row too few
    router = said(found.models[0])
    store.close()
    wrong = 0
    for number, name in enumerate(("router", "front", "quick")):
        try:
            same(said(found.models[number]), expected["models"][name])
        except AssertionError:
            wrong += 1
    assert wrong == 1
    router["value"] += 1e-6
    with pytest.raises(AssertionError):
        same(router, expected["models"]["router"])
