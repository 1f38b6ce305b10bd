"""Services that are broken on purpose: what a check finds in them it can find.

python -m tests.service.broken WAY CONFIG.toml, with a way of `WAYS`
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import apsw

from fairwolfe.service import core, join, model, serve, store
from fairwolfe.service.config import read
from tests.service import faulty_disk


def early() -> None:
    """Acknowledges before the commit: rows are kept back and written by the dozen."""
    kept: list[Any] = []
    write = store.SQLiteStore.append

    def append(self: Any, *row: Any, **more: Any) -> int:
        kept.append((row, more))
        if len(kept) >= 12 or more:
            for given, others in kept:
                write(self, *given, **others)
            kept.clear()
        return self.last()[0] + len(kept)  # type: ignore[no-any-return]

    store.SQLiteStore.append = append  # type: ignore[method-assign]


def twice_in_memory() -> None:
    """Applies twice, and writes once: the log is right, and the state is not its fold."""
    honest = join.Merge.add

    def tell(self: Any, number: int, cells: Any) -> str:
        outcome = honest(self, number, cells)
        if outcome == "known":
            row = self.ring.rows(number)
            for slot, reward, value in cells.numbers:
                self.ring._columns.values[row, slot, reward] += value
        return outcome

    join.Merge.add = tell  # type: ignore[method-assign,assignment]


def stopping() -> None:
    """A model `stopped` fails when a window of it ends."""
    honest = model.Model._close

    def close(self: Any, *given: Any) -> None:
        if self.name == "stopped":
            raise ArithmeticError("it is broken on purpose")
        honest(self, *given)

    model.Model._close = close  # type: ignore[method-assign,assignment]


def unsnapped() -> None:
    """Never keeps a snapshot."""
    core.Core._keep = lambda self, models: None  # type: ignore[method-assign]


def unsynced() -> None:
    """Every sync of SQLite fails while a file `eio` is beside the configuration."""
    trigger = Path(sys.argv[2]).parent / "eio"

    def step(word: str) -> None:
        if word == "sync" and trigger.exists():
            error = apsw.IOError("disk I/O error")
            vars(error)["extendedresult"] = apsw.SQLITE_IOERR_FSYNC
            raise error

    faulty_disk.install(step)


def hasty() -> None:
    """Closes windows long before they end."""
    honest = join.Ring.due

    def due(self: Any, clock: float, window: float, most: int, stage: int = 0) -> int:
        return honest(self, clock + window - 0.05, window, most, stage)

    join.Ring.due = due  # type: ignore[method-assign]


def leaky() -> None:
    """Forgets what came early for a later stage when the first window ends."""
    honest = join.Ring.close

    def close(self: Any, upto: int, stage: int) -> None:
        start = self.ended[stage]
        honest(self, upto, stage)
        if stage < len(self.ended) - 1:
            for rows in self._spans(start, upto):
                self._columns.values[rows], self._columns.given[rows] = 0.0, False

    join.Ring.close = close  # type: ignore[method-assign]


WAYS = {
    "leaky": leaky,
    "stopping": stopping,
    "hasty": hasty,
    "unsynced": unsynced,
    "early": early,
    "twice-in-memory": twice_in_memory,
    "unsnapped": unsnapped,
}

if __name__ == "__main__":
    WAYS[sys.argv[1]]()
    serve.run(read(Path(sys.argv[2])))
