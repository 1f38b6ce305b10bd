"""P7: what durability rests on is read back from SQLite at the start, and asserted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw
import pytest

from fairwolfe.errors import IncompatibleState
from fairwolfe.service.store import SQLiteStore

OTHER = {"synchronous": 1, "journal_mode": "delete", "locking_mode": "exclusive"}
TRUTH = {"synchronous": 2, "journal_mode": "wal", "locking_mode": "normal"}


def test_every_commit_is_synced(tmp_path: Path) -> None:
    for _ in range(2):  # a new log, and one that is there
        store = SQLiteStore(tmp_path / "state")
        for name, value in TRUTH.items():
            assert store._one(f"PRAGMA {name}") == value
        assert store._one("PRAGMA page_size") == 16384
        store.append(0.0, b"row")
        store.close()


@pytest.mark.parametrize("name", TRUTH)
def test_a_setting_that_does_not_hold_is_refused(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Deaf(apsw.Connection):
        """A connection that does not do as it is told."""

        def execute(self, statement: Any, *values: Any) -> Any:  # type: ignore[override]
            if statement.startswith(f"PRAGMA {name} ="):
                statement = f"PRAGMA {name} = {OTHER[name]}"
            return super().execute(statement, *values)

    monkeypatch.setattr(apsw, "Connection", Deaf)
    with pytest.raises(IncompatibleState, match=f"SQLite says {name} = "):
        SQLiteStore(tmp_path / "state")
