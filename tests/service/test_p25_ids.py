"""P25: an id is issued once, for ever; a log that lost acknowledged rows is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairwolfe.errors import IncompatibleState
from fairwolfe.service.recovery import recover, replay
from fairwolfe.service.store import SQLiteStore
from tests.service.inside import Inside
from tests.service.servers import ROOT, Server, config
from tests.service.test_log_command import run, told
from tests.service.test_p02_fold_of_the_log import play

TEXT = config("60 s", both=False)
ROUTER = "/v1/models/router"


def arms(i: int) -> list[list[float]]:
    return [[0.1 * i, 0.2, 0.1, 0.0, 0.0], [0.3, 0.0, 0.1 * i, 0.0, 0.0], [0.0, 0.0, 0.2, 0.1, 0.1]]


def decided(service: Inside, count: int) -> list[str]:
    answers = [service.decide("router", arms=arms(i)) for i in range(count)]
    return [service.model("router").id(answer.number) for answer in answers]


def reported(service: Inside, ids: list[str]) -> list[str]:
    entries = [{"id": id, "rewards": {"clicks": 1.0}} for id in ids]
    return [service.tell("router", entry)[0] for entry in entries]


def stored(folder: Path, rounds: int = 40) -> list[str]:
    """A log that a crash has left, with all its rows in the journal; the ids that it issued."""
    store = SQLiteStore(folder / "running")
    ids = decided(Inside(TEXT, store), rounds)
    shutil.copytree(folder / "running", folder / "state")
    store.close()
    assert (folder / "state" / "log.sqlite-wal").stat().st_size > 50_000
    return ids


def test_a_restore_of_an_older_backup(tmp_path: Path) -> None:
    """The ids of lost decisions do not come again, and late reports for them are unknown."""
    with Server(tmp_path, TEXT) as server:

        def ask(count: int) -> list[str]:
            return [server.post(f"{ROUTER}/decide", {"arms": arms(i)})["id"] for i in range(count)]

        def report(ids: list[str]) -> set[str]:
            entries = [{"id": id, "rewards": {"clicks": 1}} for id in ids]
            return {one["outcome"] for one in server.post(f"{ROUTER}/feedback", entries)}

        kept = ask(5)
        copy = tmp_path / "copy.sqlite"
        copy.write_bytes(server.get("/v1/admin/backup"))
        lost = ask(5)
        refused = run("restore", copy, server.path)
        assert refused.exit_code == 2
        assert "in use by another server" in refused.output
        server.kill()
        assert told("restore", copy, server.path)["rows"] == 6
        (aside,) = server.state.glob("replaced-*")
        assert (aside / "log.sqlite").exists()
        server.start()
        assert report(lost) == {"unknown"}
        new = ask(5)
        assert not set(new) & {*kept, *lost}
        assert report(lost) == {"unknown"}
        assert all(server.request("GET", f"{ROUTER}/decisions/{id}").status == 404 for id in lost)
        assert report(new) == {"joined"}
        assert report(kept) == {"joined"}


def test_two_copies_of_a_folder_issue_different_ids(tmp_path: Path) -> None:
    old = stored(tmp_path)
    shutil.copytree(tmp_path / "state", tmp_path / "other")
    stores = [SQLiteStore(tmp_path / name) for name in ("state", "other")]
    services = [Inside(TEXT, store) for store in stores]
    ids = [decided(service, 3) for service in services]
    assert len({*old, *ids[0], *ids[1]}) == len(old) + 6
    for service, own, others in zip(services, ids, reversed(ids), strict=True):
        assert reported(service, others) == ["unknown"] * 3
        assert reported(service, own) == ["joined"] * 3
        assert reported(service, old[:2]) == ["joined"] * 2
    for store in stores:
        store.close()


def test_an_id_is_known_only_within_the_numbers_of_its_epoch(tmp_path: Path) -> None:
    """After any number of starts, with some that issued nothing: live, replayed, recovered."""
    ids: list[str] = []
    for life in range(5):
        store = SQLiteStore(tmp_path / "state")
        service = Inside(TEXT, store)
        ids += decided(service, life % 3)
        if life == 2:
            service.core.snapshot()
        models = (service.model("router"), recover(store).models[0], replay(store).models[0])
        for model in models:
            assert [model.number_of(id) for id in ids] == list(range(len(ids)))
            assert [model.id(number) for number in range(len(ids))] == ids
            for id in ids:
                head, _, number = id.rpartition("-")
                known = {n for n in range(10) if 0 <= model.number_of(f"{head}-{n}") < len(ids)}
                assert known == {n for n, one in enumerate(ids) if one.startswith(f"{head}-")}
                for wrong in (f"{head}-0{number}", f"{head}-+{number}", f"{head}0-{number}"):
                    assert model.number_of(wrong) == -1
        store.close()
    assert len(set(ids)) == len(ids) == 4


def test_a_digest_is_that_of_the_state_in_any_log(tmp_path: Path) -> None:
    digests = []
    for name in ("one", "other"):
        store = SQLiteStore(tmp_path / name)
        service = Inside(config("9 s"), store)
        play(service, 6)
        digests.append([model.digest() for model in service.core.models.values()])
        store.close()
    assert digests[0] == digests[1]


# --- the mark ----------------------------------------------------------------------------------


def refused(folder: Path) -> str:
    """Why a folder is refused; the log and its journal stay as they were."""
    paths = [folder / "log.sqlite", folder / "log.sqlite-wal"]
    before = [path.read_bytes() if path.exists() else b"" for path in paths]
    with pytest.raises(IncompatibleState) as caught:
        SQLiteStore(folder).close()
    assert [path.read_bytes() if path.exists() else b"" for path in paths] == before
    return str(caught.value)


@pytest.mark.parametrize("damage", ["header", "cut", "gone"])
def test_a_lost_tail_of_the_journal_is_refused(tmp_path: Path, damage: str) -> None:
    stored(tmp_path)
    state = tmp_path / "state"
    journal = state / "log.sqlite-wal"
    data = bytearray(journal.read_bytes())
    if damage == "header":
        data[9] ^= 255
        journal.write_bytes(data)
    elif damage == "cut":
        journal.write_bytes(data[: len(data) // 2])
    else:
        journal.unlink()
    found = told("verify", state, code=1)["wrong"]
    assert any("rows are lost" in sentence for sentence in found)
    assert "rows up to 41 were acknowledged: rows are lost" in refused(state)
    # What is left can still be saved, and restored by the one way there is.
    assert run("backup", state, tmp_path / "left.sqlite").exit_code == 0
    assert run("restore", tmp_path / "left.sqlite", state).exit_code == 0
    SQLiteStore(state).close()


def test_a_server_that_lost_rows_does_not_start(tmp_path: Path) -> None:
    stored(tmp_path)
    (tmp_path / "state" / "log.sqlite-wal").unlink()
    (tmp_path / "config.toml").write_text(TEXT)
    started = subprocess.run(
        [sys.executable, "-m", "fairwolfe", "serve", str(tmp_path / "config.toml")],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        check=False,
    )
    assert started.returncode == 2
    assert "rows are lost" in started.stderr
    assert "fairwolfe log restore" in started.stderr


def test_marks_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    stored(tmp_path)
    state, mark = tmp_path / "state", tmp_path / "state" / "log.mark"
    right = mark.read_bytes()
    SQLiteStore(tmp_path / "second").close()
    mark.unlink()
    assert "log.mark is missing" in refused(state)
    mark.write_bytes((tmp_path / "second" / "log.mark").read_bytes())
    assert "belongs to another log" in refused(state)
    for bad in (b"", right[:-1], right[:9] + bytes([right[9] ^ 1]) + right[10:]):
        mark.write_bytes(bad)
        assert "log.mark is damaged" in refused(state)
    mark.write_bytes(right)
    SQLiteStore(state).close()
    (state / "log.sqlite").unlink()
    assert "log.sqlite is missing" in refused(state)


def test_another_branch_of_the_same_log_is_refused(tmp_path: Path) -> None:
    """A copy that has run on its own has as many rows, and they are others."""
    stored(tmp_path)
    shutil.copytree(tmp_path / "state", tmp_path / "other")
    for name in ("state", "other"):
        store = SQLiteStore(tmp_path / name)
        decided(Inside(TEXT, store), 2)
        store.close()
    shutil.copy(tmp_path / "other" / "log.sqlite", tmp_path / "state" / "log.sqlite")
    assert "is not the one that was acknowledged" in refused(tmp_path / "state")


def test_a_crash_between_a_commit_and_its_mark_is_no_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "state")
    store.append(0.0, b"row")
    with monkeypatch.context() as crashed:
        crashed.setattr(store, "_move_mark", lambda *_: None)
        store.append(1.0, b"row")
    store.close()
    again = SQLiteStore(tmp_path / "state")
    assert again.last() == (2, 1.0)
    again.close()


# --- every step of a start and of a restore ----------------------------------------------------


def killed(way: str, folder: Path) -> list[Any]:
    """[step, whether it was killed there, acknowledged rows, rows found or a sentence]."""
    run = [sys.executable, "-m", "tests.service.faulty_disk", way, str(folder)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300, cwd=ROOT, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line[1] for line in lines] == [True] * (len(lines) - 1) + [False]
    assert len(lines) > 20
    return lines


def test_a_kill_at_any_step_of_the_very_first_start(tmp_path: Path) -> None:
    for step, _, acknowledged, rows in killed("first", tmp_path):
        assert rows in (acknowledged, acknowledged + 1), (step, rows)


def test_a_kill_at_any_step_of_a_restore(tmp_path: Path) -> None:
    """The old log, or the restored one; it is used without another word."""
    found = [rows for _, _, _, rows in killed("restore", tmp_path)]
    assert set(found) == {1, 3}
    assert found == sorted(found, reverse=True)  # once decided, for good


def test_an_empty_file_is_a_new_log(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    for content in (b"", None):
        path = tmp_path / "state" / "log.sqlite"
        if content is None:  # what an interrupted first start once left
            import sqlite3

            base = sqlite3.connect(path)
            base.execute("PRAGMA journal_mode = wal")
            base.close()
        else:
            path.write_bytes(content)
        SQLiteStore(tmp_path / "state").close()
        shutil.rmtree(tmp_path / "state")
        (tmp_path / "state").mkdir()
