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
from fairwolfe.service.sqlite_store import SQLiteStore
from tests.service.inside import Inside
from tests.service.servers import config
from tests.service.test_p02_fold_of_the_log import play

FILES = ("log.sqlite", "log.sqlite-wal")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, list[str]]]:
    """A log as a crash would leave it, part of it in the journal; the digests after every row."""
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
    play(service, 12)
    # Into the file itself, so that damage has both to meet.
    store._base.execute("PRAGMA wal_checkpoint(FULL)")
    play(service, 12, seed=1)
    copy = folder / "copy"
    copy.mkdir()
    for name in FILES:
        shutil.copy(folder / "state" / name, copy / name)
        assert (copy / name).stat().st_size > 10_000
    store.close()
    return copy, digests


def judged(folder: Path, digests: dict[int, list[str]]) -> str:
    """What comes of a folder: whole, prefix or refused; anything else is wrong."""
    try:
        store = SQLiteStore(folder)
        try:
            models = recover(store).models
            seq = store.last()[0]
        finally:
            store.close()
    except FairwolfeError as error:
        assert len(str(error)) > 20
        return "refused"
    if seq == 0:
        return "prefix"  # everything was in what was cut
    assert all(not model.stopped for model in models.values())
    assert [models[n].digest() for n in sorted(models)] == digests[seq][: len(models)]
    return "whole" if seq == max(digests) else "prefix"


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("damage", ["flipped", "cut", "zeroed"])
def test_a_damaged_file(
    original: tuple[Path, dict[int, list[str]]], tmp_path: Path, name: str, damage: str
) -> None:
    copy, digests = original
    rng = random.Random(f"{name} {damage}")
    outcomes: Counter[str] = Counter()
    for turn in range(40):
        folder = tmp_path / str(turn)
        shutil.copytree(copy, folder)
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
    assert sum(outcomes.values()) == 40
    if name == "log.sqlite-wal":
        assert outcomes["prefix"] > 0


def test_an_undamaged_copy_is_whole(
    original: tuple[Path, dict[int, list[str]]], tmp_path: Path
) -> None:
    copy, digests = original
    folder = tmp_path / "copy"
    shutil.copytree(copy, folder)
    assert judged(folder, digests) == "whole"


@pytest.mark.parametrize("which", ["newest", "both"])
def test_damaged_snapshots_cost_time_only(
    original: tuple[Path, dict[int, list[str]]], tmp_path: Path, which: str
) -> None:
    copy, digests = original
    folder = tmp_path / "copy"
    shutil.copytree(copy, folder)
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
        ("UPDATE log SET seq = seq + 1 WHERE seq = (SELECT max(seq) FROM log)", "is missing"),
        ("UPDATE meta SET value = zeroblob(40)", "the head of"),
        ("PRAGMA user_version = 99", "not a log that this version reads"),
    ],
)
def test_what_sqlite_cannot_see_is_refused(
    original: tuple[Path, dict[int, list[str]]], tmp_path: Path, statement: str, sentence: str
) -> None:
    copy, digests = original
    folder = tmp_path / "copy"
    shutil.copytree(copy, folder)
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
