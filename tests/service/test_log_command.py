"""`fairwolfe log`: what it finds, what it changes, and what a restored or pruned log comes to."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import pytest
from click.testing import CliRunner, Result

import fairwolfe as fw
from fairwolfe.agent import log_format
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import EpsilonGreedy
from fairwolfe.cli import commands
from fairwolfe.objectives import Minimum
from fairwolfe.service.keys import new_key
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import recover
from fairwolfe.service.store import SQLiteStore
from fairwolfe.service.wire import Refused
from tests.service.inside import Inside
from tests.service.logs import (
    AUDITED,
    ask,
    change,
    copied,
    forge,
    forge_snapshot,
    rewrite,
    written,
)
from tests.service.servers import Server, config, wait_for
from tests.service.test_p02_fold_of_the_log import ITEMS, play


def run(*words: object) -> Result:
    return CliRunner().invoke(commands, ["log", *map(str, words)])


def told(*words: object, code: int = 0) -> Any:
    shown = run(*words, "--json")
    assert shown.exit_code == code, shown.output
    return json.loads(shown.stdout)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    folder = tmp_path_factory.mktemp("log")
    return folder, written(folder)


Original = tuple[Path, dict[str, str]]


@pytest.mark.parametrize("word", ["verify", "replay", "backup", "export"])
def test_help_has_an_example(word: str) -> None:
    shown = run(word, "--help")
    assert shown.exit_code == 0
    assert "Example: fairwolfe log" in shown.output


# --- verify ------------------------------------------------------------------------------------


def test_a_whole_log_is_whole(original: Original) -> None:
    folder, _ = original
    for place in (folder / "config.toml", folder / "state", folder / "state" / "log.sqlite"):
        found = told("verify", place, "--fold")
        assert found["wrong"] == []
        assert found["folded"]
        assert found["rows"] > 60
        assert found["decisions"] > 40
        assert found["snapshots"] == 4
    assert "Nothing is wrong" in run("verify", folder / "state").output


def other_snapshot(folder: Path) -> None:
    """A snapshot that is sound, and of another row."""
    (seq, data), (older, _) = ask(
        folder, "SELECT seq, data FROM snapshot WHERE model = 0 ORDER BY seq DESC"
    )
    assert seq > older
    forge_snapshot(folder, 0, older, data)


def other_outcome(folder: Path) -> None:
    """What came of decisions, exchanged under a check sum that fits."""
    rows = ask(folder, "SELECT first, stop, data FROM outcome WHERE model = 0 ORDER BY first")
    (first, stop, _), other = next(
        (one, two)
        for one in rows
        for two in rows
        if one[1] - one[0] == two[1] - two[0] and one[2] != two[2]
    )
    crc = crc32(other[2], crc32(struct.pack("<qqq", 0, first, stop)))
    query = "UPDATE outcome SET data = ?, crc = ? WHERE model = 0 AND first = ?"
    change(folder, query, (other[2], crc, first))


DAMAGE: dict[str, tuple[Callable[[Path], None], str]] = {
    "a row is lost": (lambda f: change(f, "DELETE FROM log WHERE seq = 30"), "row 30 is missing"),
    "rows are lost": (
        lambda f: change(f, "DELETE FROM log WHERE seq BETWEEN 30 AND 33"),
        "rows 30 to 33 are missing",
    ),
    "the end is lost": (
        lambda f: change(f, "DELETE FROM log WHERE seq > (SELECT min(seq) FROM snapshot) - 1"),
        "is ahead of the log",
    ),
    "a clock": (
        lambda f: change(f, "UPDATE log SET clock = clock + 9 WHERE seq = 31"),
        "row 31 is",
    ),
    "no events": (lambda f: forge(f, 32, b"nothing"), "row 32 cannot be read"),
    "a span": (
        lambda f: change(f, "DELETE FROM span WHERE model = 1 AND first = 5"),
        "the span of row",
    ),
    "a span elsewhere": (
        lambda f: change(f, "UPDATE span SET seq = 1 WHERE model = 0 AND first = 0"),
        "the span of row 1 ",
    ),
    "a snapshot": (
        lambda f: change(f, "UPDATE snapshot SET data = substr(data, 2) WHERE model = 1"),
        "its SHA-256 does not fit",
    ),
    "an outcome": (
        lambda f: change(f, "UPDATE outcome SET crc = crc + 1 WHERE model = 1 AND first = 0"),
        "of model 1 is damaged",
    ),
    "an outcome is lost": (
        lambda f: change(f, "DELETE FROM outcome WHERE model = 1 AND first = 0"),
        "what had come does not agree",
    ),
    "the head": (lambda f: change(f, "UPDATE meta SET value = zeroblob(40)"), "the head of"),
    "a format": (lambda f: change(f, "PRAGMA user_version = 99"), "not a log that this version"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_a_sentence_and_exit_code_1(
    original: Original, tmp_path: Path, what: str
) -> None:
    folder = copied(original[0], tmp_path / "copy")
    damage, sentence = DAMAGE[what]
    damage(folder)
    found = told("verify", folder / "state", code=1)
    assert any(sentence in one for one in found["wrong"]), found["wrong"]
    shown = run("verify", folder / "state")
    assert shown.exit_code == 1
    assert sentence in shown.output


@pytest.mark.parametrize(
    ("forged", "sentence"),
    [(other_snapshot, "is not the fold"), (other_outcome, "is not what the rows say")],
)
def test_only_a_fold_finds_what_is_sound_and_wrong(
    original: Original, tmp_path: Path, forged: Callable[[Path], None], sentence: str
) -> None:
    folder = copied(original[0], tmp_path / "copy")
    forged(folder)
    assert told("verify", folder / "state")["wrong"] == []
    found = told("verify", folder / "state", "--fold", code=1)
    assert any(sentence in one for one in found["wrong"]), found["wrong"]


@pytest.mark.parametrize(("factor", "code"), [(1.0 + 1e-12, 0), (1.001, 1)])
def test_rounding_is_a_note_and_other_numbers_are_wrong(
    original: Original, tmp_path: Path, factor: float, code: int
) -> None:
    """As after an upgrade, or on another processor, where last bits differ."""
    folder = copied(original[0], tmp_path / "copy")
    store = SQLiteStore(folder / "state")
    seq, data = store.snapshots(0)[1]
    assert data is not None
    model = Model.load(0, store, seq, data)
    store.close()
    assert model.agent is not None
    parts = dict(arrays_of(model.agent._running))
    parts["state.totals"] *= factor
    forge_snapshot(folder, 0, seq, model.dump())
    found = told("verify", folder / "state", "--fold", code=code)
    assert bool(found["notes"]) == (code == 0)
    assert bool(found["wrong"]) == (code == 1)
    output = run("verify", folder / "state", "--fold").output
    assert ("except for rounding" in output) == (code == 0)


def test_a_torn_page_is_found(original: Original, tmp_path: Path) -> None:
    folder = copied(original[0], tmp_path / "copy")
    path = folder / "state" / "log.sqlite"
    data = bytearray(path.read_bytes())
    data[4 * 16384 : 4 * 16384 + 4096] = bytes(4096)
    path.write_bytes(data)
    found = told("verify", folder / "state", code=1)
    assert any("SQLite" in one for one in found["wrong"]), found["wrong"]


def test_reading_changes_nothing(tmp_path: Path) -> None:
    """Also where a killed server has left a journal, which SQLite would otherwise work in."""
    store = SQLiteStore(tmp_path / "running")
    play(Inside(AUDITED, store), 8)
    (tmp_path / "state").mkdir()
    for name in ("log.sqlite", "log.sqlite-wal", "log.mark", "lock"):
        data = (tmp_path / "running" / name).read_bytes()
        (tmp_path / "state" / name).write_bytes(data)
    last = store.last()[0]
    store.close()

    def files() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}

    before = files()
    assert len(before["log.sqlite-wal"]) > 10_000
    assert told("verify", tmp_path / "state", "--fold")["rows"] == last
    assert told("replay", tmp_path / "state")["rows"] == last
    assert told("backup", tmp_path / "state", tmp_path / "copy.sqlite")["rows"] == last
    assert files() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["verify", "nowhere"], "nowhere is not there"),
        (["replay", "STATE", "--until", "0"], "--until is 0; the log has the rows 1 to"),
        (["replay", "STATE", "--model", "rooter"], "did you mean 'router'"),
        (["backup", "STATE"], "give the configuration or the state folder and the file"),
        (["backup", "STATE", "STATE"], "is there already"),
        (["backup", "STATE", "no/folder/x.sqlite"], "cannot be written"),
        (["backup", "--from", "ftp://x", "copy.sqlite"], "give an address such as"),
        (["backup", "--from", "http://127.0.0.1:1", "copy.sqlite"], "nothing was written"),
        (["export", "STATE", "x.parquet"], "choose one with --model, or give a folder"),
        (["export", "STATE", "x.parquet", "--model", "front", "--prune"], "leave out --model"),
    ],
)
def test_bad_input_is_a_sentence_and_exit_code_2(
    original: Original, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Any, sentence: str
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(original[0] / "state") if word == "STATE" else word for word in words]
    shown = run(*given)
    assert shown.exit_code == 2
    assert sentence in shown.output
    assert not (tmp_path / "copy.sqlite").exists()


# --- replay ------------------------------------------------------------------------------------


def test_a_replay_prints_the_digests_of_the_live_models(original: Original) -> None:
    folder, digests = original
    shown = told("replay", folder / "config.toml", "--decisions")
    assert {row["model"]: row["digest"] for row in shown["models"]} == digests
    assert shown["wrong"] == []
    for row in shown["models"]:
        assert row["remade"] == row["decisions"] > 10
        assert row["decisions"] == row["joined"] + row["expired"] + row["open"]
    text = run("replay", folder / "state", "--model", "router", "--decisions").output
    assert digests["router"] in text
    assert digests["front"] not in text
    assert "decisions were made again" in text
    early = told("replay", folder / "state", "--until", 20)
    assert early["rows"] == 20
    assert {row["model"]: row["digest"] for row in early["models"]} != digests


# --- backup and restore ------------------------------------------------------------------------


def test_a_restored_backup_goes_on_as_it_was(original: Original, tmp_path: Path) -> None:
    folder, digests = original
    copy = tmp_path / "copy.sqlite"
    assert run("backup", folder / "config.toml", copy).exit_code == 0
    assert copy.stat().st_mode & 0o077 == 0
    assert told("verify", copy, "--fold")["wrong"] == []
    assert told("restore", copy, tmp_path / "state")["rows"] > 10
    store = SQLiteStore(tmp_path / "state")
    models = recover(store).models
    assert {model.name: model.digest() for model in models.values()} == digests
    play(Inside(AUDITED, store), 3, seed=7)
    store.close()
    assert told("verify", tmp_path / "state", "--fold")["wrong"] == []


def test_a_server_that_runs(tmp_path: Path) -> None:
    """It gives a backup of itself, and a restored one has the same digests."""
    key, digest = new_key()
    web, web_digest = new_key()
    head = f'[[keys]]\nname = "boss"\nsha256 = "{digest}"\nscopes = ["admin", "read"]\n'
    head += f'[[keys]]\nname = "web"\nsha256 = "{web_digest}"\nscopes = ["decide", "feedback"]\n'
    text = config("60 s", head=f'state = "state"\nlisten = "127.0.0.1:0"\n{head}', both=False)
    bearer = {"authorization": f"Bearer {web}"}
    with Server(tmp_path, text) as server:
        arms = [[0.1, 0.2, 0.0, 0.1, 0.0], [0.0] * 5]
        made = server.post("/v1/models/router/decide", {"arms": arms}, **bearer)
        entry = {"id": made["id"], "rewards": {"clicks": 1}}
        server.post("/v1/models/router/feedback", entry, **bearer)
        pruned = run("export", server.path, tmp_path / "out", "--prune")
        assert pruned.exit_code == 2
        assert "is in use by a server" in pruned.output
        assert told("verify", server.path, "--fold")["wrong"] == []
        copy = tmp_path / "copy.sqlite"
        refused = run("backup", "--from", server.url, copy)
        assert refused.exit_code == 2
        assert "no key is given" in refused.output
        wrong = run("backup", "--from", server.url, "--key", web, copy)
        assert wrong.exit_code == 2
        assert "this needs admin" in wrong.output
        assert not copy.exists()
        assert told("backup", "--from", server.url, "--key", key, copy)["rows"] == 3
        assert told("verify", copy, "--fold")["wrong"] == []
        seen = server.get("/v1/models", authorization=f"Bearer {key}")
        assert server.stop() == 0
        live = told("replay", server.path)["models"]
        assert told("replay", copy)["models"] == live
        assert run("restore", copy, server.path).exit_code == 0
        server.start()
        assert server.get("/v1/models", authorization=f"Bearer {key}") == seen
        assert server.post("/v1/models/router/feedback", entry, **bearer)[0]["outcome"] == "known"


# --- export ------------------------------------------------------------------------------------


def table(path: Path) -> tuple[log_format.Header, list[dict[str, Any]]]:
    header, parts = log_format.read(path)
    return header, [row for part in parts for row in log_format.rows_of(part)]


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_an_export_is_what_the_model_learnt_from(
    original: Original, tmp_path: Path, suffix: str
) -> None:
    """Its sums are those of the averages; its contexts give the actions again."""
    folder, _ = original
    models = {row["model"]: row for row in told("replay", folder / "state")["models"]}
    path = tmp_path / f"router.{suffix}"
    shown = told("export", folder / "state", path, "--model", "router")
    header, rows = table(path)
    known = models["router"]
    assert shown["files"][0]["decisions"] == len(rows) == known["t"]
    assert known["t"] == known["joined"] + known["expired"]
    assert header.problem.rewards == {"clicks": (0.0, 1.0), "minutes": (0.0, 10.0)}
    for name, average in known["average"].items():
        mean = float(np.mean([row[f"reward.{name}"] for row in rows]))
        assert mean == pytest.approx(average, abs=1e-12)
    assert [row["number"] for row in rows] == list(range(len(rows)))
    assert all(0.0 < row["probability"] <= 1.0 for row in rows)
    for row in rows:
        arms = np.array([list(one) for one in row["context"]])
        assert arms.shape[1] == 5
        assert 0 <= row["action"] < len(arms)
    chosen = [row for row in rows if row.get("candidates") is not None]
    assert {row["action"] for row in chosen} == {1}  # the only candidate that was given
    path = tmp_path / f"front.{suffix}"
    told("export", folder / "state", path, "--model", "front")
    header, rows = table(path)
    assert header.keys is not None
    assert header.keys[:9] == tuple(ITEMS)
    assert header.objective == "TwoSided(GiniWelfare(), beta=1.5)"
    known = models["front"]
    assert len(rows) == known["t"]
    clicks = float(np.mean([sum(row["reward.clicks"]) for row in rows]))
    assert clicks == pytest.approx(known["average"]["clicks"], abs=1e-12)
    retired, new = header.keys.index("i3"), header.keys.index("new 0")
    open_to = [row["candidates"] for row in rows]
    assert open_to[0] is not None
    assert retired in open_to[0]
    assert new not in open_to[0]  # it came later
    assert retired not in open_to[-1]
    assert new in open_to[-1]
    for row in rows:
        assert set(row["ranking"]) <= set(row["candidates"])
        assert len(row["user"]) == 4
        assert list(row["exposed"]) == [1.0, 1.0, 0.0]


@pytest.mark.needs("pyarrow")
def test_a_pruned_log_rests_on_its_snapshot(tmp_path: Path) -> None:
    digests = written(tmp_path, 40)
    rows_before = told("verify", tmp_path / "state")["rows"]
    done = told("export", tmp_path / "config.toml", tmp_path / "first", "--prune")
    assert done["rows_deleted"] > 100
    found = told("verify", tmp_path / "state", "--fold")
    assert found["wrong"] == []
    assert found["rows"] == rows_before - done["rows_deleted"]
    assert "were deleted after an export" in run("verify", tmp_path / "state").output
    shown = told("replay", tmp_path / "state", "--decisions")
    assert {row["model"]: row["digest"] for row in shown["models"]} == digests
    assert shown["wrong"] == []
    assert all(row["remade"] < row["decisions"] for row in shown["models"])
    early = run("replay", tmp_path / "state", "--until", 5)
    assert early.exit_code == 2
    assert "cannot be gone back to" in early.output

    store = SQLiteStore(tmp_path / "state")
    service = Inside(AUDITED, store)
    model = service.model("router")
    with pytest.raises(Refused, match="was exported and deleted"):
        service.core.find(model, model.id(0))
    kept = store.bases[0].first
    assert service.core.find(model, model.id(kept)).number == kept
    play(service, 30, seed=1)
    digests = {name: one.digest() for name, one in service.core.models.items()}
    assert [seq for seq, _ in store.snapshots(0)][-1] == store.bases[0].seq  # it is kept
    store.close()
    shown = told("replay", tmp_path / "state", "--decisions")
    assert {row["model"]: row["digest"] for row in shown["models"]} == digests
    assert shown["wrong"] == []
    assert all(20 < row["remade"] < row["decisions"] for row in shown["models"])
    again = told("export", tmp_path / "state", tmp_path / "second", "--prune")
    assert again["rows_deleted"] > 50
    assert told("verify", tmp_path / "state", "--fold")["wrong"] == []
    told("export", tmp_path / "state", tmp_path / "rest")
    for name, row in ((row["model"], row) for row in shown["models"]):
        numbers = [
            one["number"]
            for part in ("first", "second", "rest")
            for one in table(tmp_path / part / f"{name}.parquet")[1]
        ]
        assert numbers == list(range(row["joined"] + row["expired"]))  # each of them once


@pytest.mark.needs("pyarrow")
def test_what_a_pruned_log_cannot_do_without(tmp_path: Path) -> None:
    written(tmp_path, 25)
    assert told("export", tmp_path / "state", tmp_path / "out", "--prune")["rows_deleted"] > 50
    newest = copied(tmp_path, tmp_path.parent / f"{tmp_path.name}-newest")
    change(
        newest,
        "UPDATE snapshot SET data = zeroblob(9) WHERE seq = (SELECT max(seq) FROM snapshot)",
    )
    store = SQLiteStore(newest / "state")
    assert recover(store).models[0].decisions > 0  # from the one before
    store.close()
    assert "SHA-256" in told("verify", newest / "state", code=1)["wrong"][0]
    change(tmp_path, "UPDATE snapshot SET data = zeroblob(9)")
    found = told("verify", tmp_path / "state", code=1)["wrong"]
    assert any("older rows were deleted after an export" in one for one in found)
    shown = run("replay", tmp_path / "state")
    assert shown.exit_code == 2
    assert "older rows were deleted after an export" in shown.output
    store = SQLiteStore(tmp_path / "state")
    with pytest.raises(Exception, match="no snapshot of model 'router' can be read, and rows"):
        recover(store)
    store.close()


@pytest.mark.needs("pyarrow")
def test_nothing_is_deleted_from_a_log_that_is_damaged_or_young(tmp_path: Path) -> None:
    written(tmp_path, 3)  # before the first snapshot: it is made now, and is the only one
    shown = run("export", tmp_path / "state", tmp_path / "young", "--prune")
    assert shown.exit_code == 0
    assert "Nothing was deleted" in shown.output
    old = tmp_path / "old"
    old.mkdir()
    written(old, 20)
    other_snapshot(old)
    shown = run("export", old / "state", old / "out", "--prune")
    assert shown.exit_code == 2
    assert "nothing was exported or deleted" in shown.output
    assert not (old / "out").exists()
    (old / "out").mkdir()
    (old / "out" / "mine").touch()
    shown = run("export", old / "state", old / "out", "--prune")
    assert shown.exit_code == 2
    assert "is not empty" in shown.output
    assert told("verify", old / "state")["deleted"] == 0


@pytest.mark.needs("pyarrow")
def test_a_pruned_log_survives_a_kill(tmp_path: Path) -> None:
    with Server(tmp_path, config("1 s", both=False)) as server:
        arms = [[0.1, 0.2, 0.0, 0.1, 0.0], [0.0] * 5]

        ids = []

        def some(many: int) -> None:
            for _ in range(many):
                ids.append(server.post("/v1/models/router/decide", {"arms": arms})["id"])
                entry = {"id": ids[-1], "rewards": {"clicks": 1}}
                server.post("/v1/models/router/feedback", entry)

        for _ in range(2):
            some(8)
            wait_for(lambda: server.get("/v1/models/router")["open"] == 0)
            server.post("/v1/admin/snapshot", None)
        assert server.stop() == 0
        assert told("export", server.path, tmp_path / "out", "--prune")["rows_deleted"] > 10
        server.start()
        some(5)
        seen = server.get("/v1/models/router")
        server.kill()
        assert told("verify", server.path, "--fold")["wrong"] == []
        server.start()
        after = server.get("/v1/models/router")
        assert after["decisions"] == seen["decisions"] == 21
        lost = server.request("GET", f"/v1/models/router/decisions/{ids[0]}")
        assert (lost.status, lost.body["error"]) == (404, "exported")
        assert server.stop() == 0


def test_a_forged_row_is_written_as_the_tests_say(original: Original, tmp_path: Path) -> None:
    """What `rewrite` does leaves a log that is whole."""
    folder = copied(original[0], tmp_path / "copy")
    rewrite(folder, 30, lambda events: events)
    assert told("verify", folder / "state", "--fold")["wrong"] == []


@pytest.mark.needs("pyarrow")
def test_an_export_is_read_for_evaluation(original: Original, tmp_path: Path) -> None:
    """By `fw.offpolicy.Log`, with the same sums."""
    assert run("export", original[0] / "state", tmp_path / "out").exit_code == 0
    for name in ("router", "front"):
        _, rows = table(tmp_path / "out" / f"{name}.parquet")
        read = fw.offpolicy.Log.of(tmp_path / "out" / f"{name}.parquet")
        assert f"{len(rows)} decisions" in repr(read)
        assert "usable" in str(read.check()).splitlines()[0]


@pytest.mark.needs("pyarrow")
def test_an_agent_is_evaluated_on_an_export(tmp_path: Path) -> None:
    """Arrow's memory is read-only, which compiled code would not take."""
    store = SQLiteStore(tmp_path / "state")
    service, rng = Inside(AUDITED, store), np.random.default_rng(0)
    model = service.model("router")
    for _ in range(40):
        number = service.decide("router", arms=rng.uniform(-0.3, 0.3, (3, 5)).tolist()).number
        rewards = {"clicks": float(rng.integers(2)), "minutes": float(rng.integers(10))}
        service.tell("router", {"id": model.id(number), "rewards": rewards})
    service.advance(60.0)
    store.close()
    assert run("export", tmp_path / "state", tmp_path / "out").exit_code == 0
    log = fw.offpolicy.Log.of(tmp_path / "out" / "router.parquet")
    agent = fw.Agent(fw.FrankWolfe(Minimum(), EpsilonGreedy(0.3)), log.problem)
    for estimator in ("snips", "dr"):
        assert np.isfinite(log.evaluate(agent, Minimum(), estimator).value)


@pytest.mark.needs("pyarrow")
def test_a_model_that_is_served_no_more_does_not_hold_the_log(tmp_path: Path) -> None:
    written(tmp_path, 12)
    alone = AUDITED[: AUDITED.index("[models.front]")]
    deleted = []
    for turn in range(3):
        store = SQLiteStore(tmp_path / "state")
        service = Inside(alone, store)
        if turn == 0:
            last = service.core.seq
        for step in range(40):
            service.decide("router", arms=[[0.1] * 5, [0.0] * 5])
            service.advance(1.0)
            if step % 15 == 0:
                service.core.snapshot()
        digest = service.model("router").digest()
        store.close()
        told("export", tmp_path / "state", tmp_path / f"out {turn}", "--prune")
        found = told("verify", tmp_path / "state", "--fold")
        assert found["wrong"] == []
        deleted.append(found["deleted"])
    assert last < deleted[0] < deleted[1] < deleted[2]
    models = {row["model"]: row for row in told("replay", tmp_path / "state")["models"]}
    assert models["router"]["digest"] == digest
    assert models["front"]["decisions"] == 12


def test_an_export_says_what_could_be_shown(tmp_path: Path) -> None:
    """Pinned, blocked and candidate items, by number."""
    store = SQLiteStore(tmp_path / "state")
    service = Inside(AUDITED, store)
    play(service, 1)
    user = [0.1, 0.2, 0.0, 0.1]
    options: list[dict[str, Any]] = [
        {"pinned": {"1": "i5"}},
        {"blocked": ["i0", "i1"]},
        {"candidates": ["i2", "i4", "i6"]},
    ]
    first = service.model("front").decisions
    for one in options:
        service.decide("front", user=user, **one)
    service.advance(60.0)
    store.close()
    told("export", tmp_path / "state", tmp_path / "f.jsonl", "--model", "front")
    _, rows = table(tmp_path / "f.jsonl")
    pinned, blocked, chosen = (row for row in rows if row["number"] >= first)
    assert pinned["pinned"] == [-1, 5, -1]
    assert pinned["ranking"][1] == 5
    assert not {0, 1} & {*blocked["candidates"], *blocked["ranking"]}
    assert chosen["candidates"] == [2, 4, 6]
    assert set(chosen["ranking"]) == {2, 4, 6}
    assert told("replay", tmp_path / "state", "--decisions")["wrong"] == []
