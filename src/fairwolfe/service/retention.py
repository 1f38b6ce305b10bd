"""Retention while serving: closed decisions that are older than `retain` go to Parquet files, and
their rows out of the log.

A turn takes the oldest rows, at most `_SLICE` of them:

1. The log is made to rest on snapshots at or after these rows, so that they stay.
2. A process of low priority reads the log beside the service and writes the files, hidden.
3. One transaction says that these rows may be gone, and which decisions the log has left.
4. The files get their names, STATE/export/MODEL/FIRST-STOP.parquet.
5. Rows and outcomes are deleted, and space given back, a little at a time.

Killed before 3, a turn begins again, without its hidden files. After it, the next turn gives the
files their names, and finds what is left to delete.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from functools import partial
from pathlib import Path

import msgspec

from fairwolfe.core.files import sync_folder
from fairwolfe.errors import FairwolfeError
from fairwolfe.service.core import Core
from fairwolfe.service.export import export, load_snapshot, names_of, plan
from fairwolfe.service.log_file import LogFile
from fairwolfe.service.store import FILE, Doomed, PruneBase, SQLiteStore
from fairwolfe.service.telemetry import log_event

logger = logging.getLogger("fairwolfe.service")

FOLDER = "export"
_LOCK = ".lock"  # of the process that exports: one whose service was killed may still be at work
_NAME = re.compile(r"\.?(\d{12})-(\d{12})\.parquet")
_SLICE = 2000  # rows of a turn
_ROWS, _OUTCOMES, _PAGES = 16, 32, 16  # in a step
_PAUSE = 0.01  # seconds between two steps
_PART = 20  # parts of `retain` between two turns
_OFTEN, _SELDOM = 1.0, 3600.0  # seconds
_NICE = 10


class Exported(msgspec.Struct):
    """What the process has written, and what may be deleted then."""

    upto: int
    bases: dict[int, tuple[int, int]]
    doomed: list[Doomed]
    files: int
    decisions: int


class Retention:
    """Exports and deletes the decisions of a service that are older than `retain` seconds."""

    def __init__(self, core: Core, retain: float) -> None:
        self.core, self.retain = core, retain
        assert isinstance(core.store, SQLiteStore)  # the configuration has no `retain` else
        self.store = core.store
        self._checked = False  # whether anything was left over by an earlier process

    async def run(self) -> None:
        """Turn by turn, until it is cancelled."""
        pause = min(max(self.retain / _PART, _OFTEN), _SELDOM)
        while True:
            await asyncio.sleep(pause)
            try:
                while not self.core.failing and await self._turn():
                    pass
            except FairwolfeError as error:
                words = "closed decisions were not exported, and nothing was deleted"
                log_event("retention_failed", words, logging.ERROR, reason=str(error))
            except Exception:  # the next turn may do better
                logger.exception("retention failed")

    async def _turn(self) -> bool:
        """Export and delete a slice; whether there may be more."""
        store = self.store
        upto = store.row_before(self.core.clock.now() - self.retain, _SLICE)
        if upto <= store.deleted and self._checked:
            return False
        bases = resting_on(store, upto)
        if bases is None or not self._may(partial(store.rest, store.deleted, bases)):
            return False
        done = await self._export(upto)
        self._checked = True
        after = {model: PruneBase(*base) for model, base in done.bases.items()}
        if not self._may(partial(store.rest, done.upto, after)):
            return False
        await asyncio.to_thread(settle, store.folder, names_of(store), after)
        for place in range(0, len(done.doomed), _ROWS):
            if not await self._step(partial(store.drop, done.doomed[place : place + _ROWS])):
                return False
        for model in after:
            if not await self._repeat(partial(store.drop_outcomes, model, _OUTCOMES)):
                return False
        if not await self._repeat(partial(store.shrink, _PAGES)):
            return False
        if done.doomed:
            words = f"{len(done.doomed)} rows were deleted, {done.decisions} decisions exported"
            facts = {"rows": len(done.doomed), "decisions": done.decisions, "files": done.files}
            log_event("retained", words, upto=done.upto, **facts)
        return bool(done.doomed)

    def _may(self, step: Callable[[], object]) -> bool:
        return self.core.prune(step)

    async def _step(self, step: Callable[[], object]) -> bool:
        await asyncio.sleep(_PAUSE)
        return not self.core.failing and self._may(step)

    async def _repeat(self, step: Callable[[], int]) -> bool:
        """A step until it finds nothing more to do; whether it came to that."""
        left = [1]
        while left[-1]:
            if not await self._step(lambda: left.append(step())):
                return False
        return True

    async def _export(self, upto: int) -> Exported:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "fairwolfe.service.retention"),
            *(str(self.store.folder), str(upto)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            out, err = await process.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.kill()
            raise
        if process.returncode:
            said = err.decode("utf-8", "replace").strip().rpartition("\n")[2]
            raise FairwolfeError(f"the export ended with code {process.returncode}: {said}")
        return msgspec.json.decode(out, type=Exported)


def resting_on(store: SQLiteStore, upto: int) -> dict[int, PruneBase] | None:
    """Of each model the oldest snapshot that is not before a row, or its newest; None where one has
    none.
    """
    bases = {}
    for number in store.starts():
        seqs = store.snapshot_rows(number)
        if not seqs:
            return None
        now = store.bases.get(number)
        seq = min((seq for seq in seqs if seq >= upto), default=seqs[0])
        bases[number] = PruneBase(seq, 0 if now is None else now.first)
    return bases


def settle(folder: Path, names: dict[int, str], bases: dict[int, PruneBase]) -> None:
    """Give the files of finished turns their names, and remove those of others.

    Files of decisions that the log still has, since an older backup was restored, get another name.
    """
    for number, base in bases.items():
        own = folder / FOLDER / names[number]
        for path in sorted(own.glob("*.parquet")):
            match = _NAME.fullmatch(path.name)
            if match is None:
                continue
            stop, final = int(match[2]), path.with_name(path.name.lstrip("."))
            if path.name.startswith("."):
                if stop == base.first and not final.exists():
                    os.replace(path, final)
                else:
                    path.unlink()
            elif stop > base.first:
                os.replace(path, path.with_suffix(f".replaced-{time.time_ns()}"))
        if own.exists():
            sync_folder(own)


def main(folder: Path, upto: int) -> Exported:
    """Write the files of a turn."""
    (folder / FOLDER).mkdir(mode=0o700, exist_ok=True)
    with (folder / FOLDER / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with closing(LogFile(folder / FILE, beside=True)) as log:
            names = names_of(log)
            settle(folder, names, log.bases)
            planned = plan(log, log.bases, upto)
            files = decisions = 0
            for number, base in planned.bases.items():
                first, own = log.bases[number].first, folder / FOLDER / names[number]
                model = load_snapshot(log, number, base.seq)
                if base.first > first and model.agent is not None:
                    own.mkdir(mode=0o700, exist_ok=True)
                    path = own / f".{first:012d}-{base.first:012d}.parquet"
                    decisions += export(log, model, path, base.first, lambda _: None)
                    path.chmod(0o600)
                    files += 1
        bases = {number: (base.seq, base.first) for number, base in planned.bases.items()}
        return Exported(planned.upto, bases, planned.doomed, files, decisions)


if __name__ == "__main__":
    with suppress(OSError):
        os.nice(_NICE)
    sys.stdout.buffer.write(msgspec.json.encode(main(Path(sys.argv[1]), int(sys.argv[2]))))
