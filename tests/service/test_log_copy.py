"""`fairwolfe log copy`: from a folder to PostgreSQL and back, the same rows and the same bits."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from fairwolfe.service.postgres_store import PostgresLog, PostgresStore
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import SQLiteStore, Store
from tests.service.inside import Inside
from tests.service.postgres import Postgres
from tests.service.servers import STAGED, config
from tests.service.test_log_command import run, told
from tests.service.test_p02_fold_of_the_log import play

pytestmark = pytest.mark.needs("postgresql")

STAGES = STAGED.replace("models.router]", "models.staged]")
MODELS = config("9 s") + STAGES.format(window="2 s", later="9 s", missing="zero")


def content(store: Store) -> list[object]:
    found: list[object] = [store.token, *store.rows(0), *sorted(store.starts())]
    for model in store.starts():
        found += [store.outcome_of(model, number) for number in range(40)]
        found += [store.row_of(model, number) for number in range(40)]
        found += store.history(model)
    return found


def test_there_and_back(database: Postgres, tmp_path: Path) -> None:
    paths = []
    for name, head in (
        ("a", 'state = "first"\n'),
        ("b", f'state = "{database.url}"\nschema = "copied"\n'),
        ("c", 'state = "second"\n'),
    ):
        paths.append(tmp_path / f"{name}.toml")
        paths[-1].write_text(head + MODELS.removeprefix('state = "state"\n'))
    first, middle, last = paths
    with closing(SQLiteStore(tmp_path / "first")) as store:
        service = Inside(MODELS, store)
        play(service, 8)
        for _ in range(4):
            number = service.decide("staged", arms=[[0.1] * 5, [0.2] * 5]).number
            id = service.model("staged").id(number)
            service.tell("staged", {"id": id, "rewards": {"clicks": 1.0}})
            service.advance(4.0)
        store.note(0, 1.0, b"point")
        wanted, digests = content(store), [m.digest() for m in recover(store).models.values()]
    rows = told("copy", first, middle)["rows"]
    assert told("copy", middle, last) == {"state": str(tmp_path / "second"), "rows": rows}
    opened: list[Store] = [
        PostgresStore(database.url, "copied"),
        PostgresLog(database.url, "copied"),
        SQLiteStore(tmp_path / "second"),
    ]
    for one in opened:
        with closing(one):
            assert content(one) == wanted
            found = recover(one)
            assert [model.digest() for model in found.models.values()] == digests
            assert found.records == 0  # snapshots are made anew
            assert [model.digest() for model in replay(one).models.values()] == digests
    for source, target in ((first, middle), (middle, first), (first, last)):
        refused = run("copy", source, target)
        assert refused.exit_code == 2
        assert "there is a log already in" in refused.output
    with closing(SQLiteStore(tmp_path / "first")) as store:
        assert content(store) == wanted


def test_a_log_that_is_not_there(database: Postgres, tmp_path: Path) -> None:
    source, target = tmp_path / "a.toml", tmp_path / "b.toml"
    source.write_text(config(head=f'state = "{database.url}"\nschema = "nowhere"\n'))
    target.write_text(config(head='state = "state"\n'))
    refused = run("copy", source, target)
    assert refused.exit_code == 2
    assert "there is no log in" in refused.output
    assert not (tmp_path / "state").exists()
    assert database.ask("SELECT to_regnamespace('nowhere')::text") == [(None,)]


def test_a_log_in_postgresql_is_examined_while_it_is_written(
    database: Postgres, tmp_path: Path
) -> None:
    path = tmp_path / "config.toml"
    path.write_text(config("9 s", head=f'state = "{database.url}"\nschema = "examined"\n'))
    with closing(PostgresStore(database.url, "examined")) as store:
        service = Inside(config("9 s"), store)
        play(service, 8)
        found = told("verify", path, "--fold")
        assert (found["wrong"], found["folded"]) == ([], True)
        assert found["rows"] == store.last()[0]
        digests = {model.name: model.digest() for model in service.core.models.values()}
        replayed = told("replay", path)
        assert {row["model"]: row["digest"] for row in replayed["models"]} == digests
        exported = told("export", path, tmp_path / "out")
        assert [row["decisions"] > 0 for row in exported["files"]] == [True, True]
        play(service, 2, seed=1)  # nothing that was read is locked
    commands = [["backup", path, tmp_path / "x"], ["restore", path, path]]
    for command in (*commands, ["export", path, tmp_path / "y", "--prune"]):
        refused = run(*command)
        assert refused.exit_code == 2
        assert "is in PostgreSQL" in refused.output
    database.ask("UPDATE examined.log SET payload = set_byte(payload, 3, 255) WHERE seq = 2")
    found = told("verify", path, code=1)
    assert any("row 2 is damaged" in sentence for sentence in found["wrong"])
