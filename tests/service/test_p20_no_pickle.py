"""P20: nothing is ever unpickled, and what the service keeps is its user's alone."""

from __future__ import annotations

import io
import os
import pickle
import re
import stat
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from fairwolfe.errors import FairwolfeError
from fairwolfe.service import events
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import recover
from fairwolfe.service.store import SQLiteStore
from tests.service.inside import Inside, MemoryStore
from tests.service.servers import ROOT, Server, config
from tests.service.test_p02_fold_of_the_log import play

SOURCES = [
    path
    for part in ("service", "client", "agent", "core")
    for path in (ROOT / "src" / "fairwolfe" / part).rglob("*.py")
]


class Bomb:
    """What does harm if it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def test_no_module_of_the_service_imports_pickle() -> None:
    statement = re.compile(r"^\s*(import|from)\s+(pickle|marshal|shelve|dill|joblib)\b", re.M)
    assert len(SOURCES) > 30
    assert [p.name for p in SOURCES if statement.search(p.read_text())] == []
    assert "allow_pickle=True" not in "".join(p.read_text() for p in SOURCES)


def test_pickled_bytes_are_refused_wherever_bytes_come_in(tmp_path: Path) -> None:
    target = tmp_path / "harm"
    data = pickle.dumps(Bomb(str(target)))
    array = io.BytesIO()
    np.save(array, np.array([Bomb(str(target))], dtype=object), allow_pickle=True)
    for bad in (data, array.getvalue()):
        for read in (events.decode, lambda b: Model.load(0, MemoryStore(), 0, b)):
            with pytest.raises(FairwolfeError):
                read(bad)
    assert not target.exists()
    pickle.loads(data)
    assert target.exists()  # it would have done harm


def test_recovery_unpickles_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SQLiteStore(tmp_path / "state")
    service = Inside(config("5 s"), store)
    play(service, 6)
    service.core.snapshot()
    store.close()

    def never(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("something was unpickled")

    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, never)
    store = SQLiteStore(tmp_path / "state")
    assert recover(store).models[0].decisions > 0
    store.close()


def test_a_server_takes_no_pickle_and_keeps_its_folders_private(tmp_path: Path) -> None:
    target = tmp_path / "harm"
    with Server(tmp_path, config(both=False)) as server:
        for kind in ("application/json", "application/msgpack", "application/python-pickle"):
            body = pickle.dumps(Bomb(str(target)))
            reply = server.request("POST", "/v1/models/router/decide", raw=body, content_type=kind)
            assert reply.status in (415, 422)
        assert not target.exists()
        assert stat.S_IMODE(server.state.stat().st_mode) == 0o700
        for path in server.state.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
