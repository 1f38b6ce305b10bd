"""P5: damaged files are a consistent prefix or a clear refusal, never silently wrong."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from fairwolfe.errors import FairwolfeError
from fairwolfe.service.recovery import recover
from fairwolfe.service.store import SQLiteStore
from tests.service.inside import Inside
from tests.service.servers import config
from tests.service.test_p02_fold_of_the_log import play

FILES = ("log.sqlite", "log.sqlite-wal")
MARK = "log.mark"
TURNS = 25


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, list[str]]]:
    """Two copies of a log, `crashed` with a part in the journal, and `closed` all in one file; and
    the digests after every row.
    """
    folder = tmp_path_factory.mktemp("log")
    store = SQLiteStore(folder / "state")
    service = Inside(config("6 s"), store)
    digests: dict[int, list[str]] = {}
    commit = service.core._commit

    def noted(*row: object) -> bool:
        done = commit(*row)  # type: ignore[arg-type]
        digests[service.core.seq] = [m.digest() for m in service.core.models.values()]
        return done

    service.core._commit = noted  # type: ignore[method-assign,assignment]
    play(service, 9)
    store._base.execute("PRAGMA wal_checkpoint(FULL)")
    play(service, 6, seed=1)
    (folder / "crashed").mkdir()
    for name in (*FILES, MARK):
        shutil.copy(folder / "state" / name, folder / "crashed" / name)
        assert (folder / "crashed" / name).stat().st_size > (10_000 if name in FILES else 0)
    store.close()
    (folder / "closed").mkdir()
    for name in (FILES[0], MARK):
        shutil.copy(folder / "state" / name, folder / "closed" / name)
    return folder, digests


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: data for path in folder.glob("log.*") if (data := path.read_bytes())}


def judged(folder: Path, digests: dict[int, list[str]]) -> str:
    """What comes of a folder: whole or refused; a shorter log would have lost acknowledged rows."""
    before = contents(folder)
    try:
        store = SQLiteStore(folder)
    except FairwolfeError:
        assert contents(folder) == before  # who examines it finds it as it was
        return "refused"
    try:
        models = recover(store).models
        seq = store.last()[0]
    except FairwolfeError:
        return "refused"
    finally:
        store.close()
    assert seq == max(digests)
    assert all(not model.stopped for model in models.values())
    assert [models[n].digest() for n in sorted(models)] == digests[seq][: len(models)]
    return "whole"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flipped", "cut", "zeroed"])
def test_a_damaged_file(
    original: tuple[Path, dict[int, list[str]]], tmp_path: Path, name: str, damage: str
) -> None:
    folders, digests = original
    rng = random.Random(f"{name} {damage}")
    outcomes: Counter[str] = Counter()
    for turn in range(TURNS):
        folder = tmp_path / str(turn)
        shutil.copytree(folders / ("closed" if name == FILES[0] else "crashed"), folder)
        path = folder / name
        data = bytearray(path.read_bytes())
        place = rng.randrange(len(data))
        if damage == "flipped":
            data[place] ^= 1 << rng.randrange(8)
        elif damage == "cut":
            del data[place:]
        else:
            data[place : place + 512] = bytes(len(data[place : place + 512]))
        path.write_bytes(data)
        outcomes[judged(folder, digests)] += 1
        shutil.rmtree(folder)
    print(name, damage, dict(outcomes))
    assert sum(outcomes.values()) == TURNS
    if name == FILES[1]:
        assert outcomes["refused"] > 0


def test_a_flipped_bit_in_a_row_that_is_read_is_refused(
    original: tuple[Path, dict[int, list[str]]], tmp_path: Path
) -> None:
    folders, digests = original
    whole = (folders / "closed" / FILES[0]).read_bytes()
    base = sqlite3.connect(folders / "closed" / FILES[0])
    snapped = base.execute("SELECT max(seq) FROM snapshot").fetchone()[0]
    tail = base.execute("SELECT seq, payload FROM log WHERE seq > ?", (snapped,)).fetchall()
    base.close()
    rng = random.Random(0)
    judgements: Counter[str] = Counter()
    for seq, payload in tail:
        place = whole.find(payload)
        if place < 0:  # it goes over a page
            continue
        data = bytearray(whole)
        data[place + rng.randrange(len(payload))] ^= 1 << rng.randrange(8)
        folder = tmp_path / str(seq)
        folder.mkdir()
        (folder / FILES[0]).write_bytes(data)
        shutil.copy(folders / "closed" / MARK, folder)
        judgements[judged(folder, digests)] += 1
    assert judgements["refused"] == judgements.total() > 3


def test_an_undamaged_copy_is_whole(
    original: tuple[Path, dict[int, list[str]]], tmp_path: Path
) -> None:
    folders, digests = original
    for name in ("closed", "crashed"):
        shutil.copytree(folders / name, tmp_path / name)
        assert judged(tmp_path / name, digests) == "whole"


@pytest.mark.parametrize("which", ["newest", "both"])
def test_damaged_snapshots_cost_time_only(
    original: tuple[Path, dict[int, list[str]]], tmp_path: Path, which: str
) -> None:
    folders, digests = original
    folder = tmp_path / "copy"
    shutil.copytree(folders / "closed", folder)
    base = sqlite3.connect(folder / "log.sqlite")
    kept = base.execute("SELECT model, seq, data FROM snapshot ORDER BY seq DESC").fetchall()
    assert len(kept) == 4
    newest = max(seq for _, seq, _ in kept)
    for model, seq, data in kept:
        if which == "both" or seq == newest:
            wrong = data[:200] + bytes([data[200] ^ 1]) + data[201:]
            query = "UPDATE snapshot SET data = ? WHERE model = ? AND seq = ?"
            base.execute(query, (wrong, model, seq))
    base.commit()
    base.close()
    assert judged(folder, digests) == "whole"


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("DELETE FROM log WHERE seq = (SELECT max(seq) - 3 FROM log)", "is missing"),
        ("UPDATE log SET clock = clock + 1 WHERE seq = (SELECT max(seq) FROM log)", "check sum"),
        ("UPDATE log SET seq = seq + 1 WHERE seq = (SELECT max(seq) FROM log)", "acknowledged"),
        ("UPDATE meta SET value = zeroblob(40)", "the head of"),
        ("PRAGMA user_version = 99", "not a log that this version reads"),
    ],
)
def test_what_sqlite_cannot_see_is_refused(
    original: tuple[Path, dict[int, list[str]]], tmp_path: Path, statement: str, sentence: str
) -> None:
    folders, digests = original
    folder = tmp_path / "copy"
    shutil.copytree(folders / "closed", folder)
    base = sqlite3.connect(folder / "log.sqlite")
    base.execute(statement)
    base.commit()
    base.close()
    assert judged(folder, digests) == "refused"
    with pytest.raises(FairwolfeError, match=sentence):  # noqa: PT012
        store = SQLiteStore(folder)
        try:
            recover(store)
        finally:
            store.close()
