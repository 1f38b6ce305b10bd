"""Logs of a service inside the test, and what is done to them."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

from fairwolfe.service.events import Event, decode_at, encode
from fairwolfe.service.store import SQLiteStore
from tests.service.inside import Inside
from tests.service.servers import config
from tests.service.test_p02_fold_of_the_log import play

AUDITED = config("6 s").replace("missing = ", "audit = true\nmissing = ")


def written(folder: Path, rounds: int = 14, text: str = AUDITED, seed: int = 0) -> dict[str, str]:
    """A state folder that a service has left, with its configuration; the digests of its models."""
    (folder / "config.toml").write_text(text)
    store = SQLiteStore(folder / "state")
    service = Inside(text, store)
    play(service, rounds, seed)
    digests = {name: model.digest() for name, model in service.core.models.items()}
    store.close()
    return digests


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def change(folder: Path, statement: str, values: tuple[Any, ...] = ()) -> None:
    """What somebody does to the file behind the back of the service."""
    base = sqlite3.connect(folder / "state" / "log.sqlite")
    base.execute(statement, values)
    base.commit()
    base.close()


def ask(folder: Path, query: str) -> Any:
    base = sqlite3.connect(folder / "state" / "log.sqlite")
    rows = base.execute(query).fetchall()
    base.close()
    return rows


def rewrite(folder: Path, seq: int, edit: Callable[[list[Event]], list[Event]]) -> None:
    """Other events in a row, under a check sum that fits: only a replay can notice."""
    ((payload,),) = ask(folder, f"SELECT payload FROM log WHERE seq = {seq}")
    wall, events = decode_at(payload)
    forge(folder, seq, encode(edit(events), wall))


def forge(folder: Path, seq: int, payload: bytes) -> None:
    ((clock,),) = ask(folder, f"SELECT clock FROM log WHERE seq = {seq}")
    crc = crc32(payload, crc32(struct.pack("<qd", seq, clock)))
    change(folder, "UPDATE log SET payload = ?, crc = ? WHERE seq = ?", (payload, crc, seq))


def forge_snapshot(folder: Path, model: int, seq: int, data: bytes) -> None:
    values = (data, hashlib.sha256(data).digest(), model, seq)
    change(folder, "UPDATE snapshot SET data = ?, sha256 = ? WHERE model = ? AND seq = ?", values)
