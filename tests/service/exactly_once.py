"""P1 played and checked: clients, troubles, and what must be true of what clients were told.

The checks use histories of clients, HTTP reads after the last restart, plain SQL on numbers of
rows and decisions, and the decisions of the log as tests/service/row_bytes.py reads them: nothing
of the library decodes them.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

from fairwolfe.service.core import LONGEST
from tests.service.crowd import RANKED, Crowd, Event
from tests.service.row_bytes import Logged, read_log
from tests.service.servers import ARMS, GROUPED, ROOT, STAGED, STAGED_RANKING, Server, wait_for
from tests.service.test_p06_full_disk import fill

WINDOW, LATER = 3.0, 6.0  # LATER: of the minutes of models with two stages
SLACK = 0.05  # seconds by which the clocks of clients and of the service may differ
NEAR = 1e-9
MODELS = {
    "router": ARMS,
    "front": GROUPED,
    "quick": ARMS.replace("models.router]", 'models.quick]\napply = "arrival"'),
    "staged": STAGED.replace("models.router]", "models.staged]"),
    "brisk": STAGED.replace("models.router]", 'models.brisk]\napply = "arrival"'),
    "aisle": STAGED_RANKING.replace("models.front]", "models.aisle]"),
}
NUMBERS = {name: number for number, name in enumerate(MODELS)}  # in the log
STAGES = {name: 2 if name in ("staged", "brisk", "aisle") else 1 for name in MODELS}
CONFIG = 'state = "state"\nlisten = "127.0.0.1:0"\n' + "".join(MODELS.values()).format(
    window=f"{WINDOW:g} s", later=f"{LATER:g} s", missing="zero"
)
ITEMS = [
    {
        "key": f"item {i}",
        "features": [0.1 * i, 0.2, -0.1 * i, 0.3],
        "attributes": {"maker": f"maker {i % 3}"},
    }
    for i in range(7)
]


class Play:
    """A service with six models, its clients, and the troubles that it goes through."""

    def __init__(self, folder: Path, *module: str, clients: int = 4, seed: int = 0) -> None:
        self.server = Server(folder, CONFIG, *module)
        self.rng = random.Random(seed)
        self.crowd = Crowd(self.server, clients, seed, tuple(NUMBERS))
        self.up: list[tuple[float, float]] = []  # when feedback could be received and stored
        self.since = 0.0
        self.lost: dict[str, float] = {}  # decisions that a restore has undone, and when
        self.forgotten: list[tuple[float, float]] = []  # when feedback came that it has undone
        self.kills = 0

    @property
    def outcomes(self) -> Counter[str]:
        """What clients were told of their entries."""
        told = (event.answer for event in self.crowd.history if event.kind == "feedback")
        return Counter(entry["outcome"] for answer in told for entry in answer or ())

    def run(self, troubles: list[str]) -> list[str]:
        """What is wrong after some troubles."""
        try:
            self._play(troubles)
            finals = {name: self.server.get(f"/v1/models/{name}") for name in NUMBERS}
            views = dict(self._views())
        finally:
            self.server.kill()
        counts, logs = counted(self.server.state)
        return [*self._answers(views), *self._logged(logs), *_totals(finals, views, counts)]

    def _play(self, troubles: list[str]) -> None:
        for _ in range(troubles.count("first")):  # before there is anything
            self._spawn()
            time.sleep(self.rng.uniform(0.2, 2.0))
            self._kill()
        self._start()
        for name in RANKED:
            self.server.post(f"/v1/models/{name}/items", {"items": ITEMS})
        self.crowd.start()
        for trouble in troubles:
            if trouble != "first":
                time.sleep(self.rng.uniform(0.1, 0.7))
                getattr(self, trouble)()
        time.sleep(0.5)
        self.crowd.stop(120.0)
        for name in NUMBERS:
            path = f"/v1/models/{name}"
            wait_for(lambda path=path: self.server.get(path)["open"] == 0, 120.0)
        self._interrupt()

    # --- troubles -----------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9, and a start."""
        self._kill()
        self._start()

    def startup(self) -> None:
        """kill -9, also soon after the start that follows."""
        self._kill()
        self._spawn()
        time.sleep(self.rng.uniform(0.1, 2.0))
        self._kill()
        self._start()

    def wait(self) -> None:
        """A window passes."""
        time.sleep(WINDOW)

    def stall(self) -> None:
        """The process stands still for longer than a window; the clock counts `LONGEST` of it."""
        self._interrupt(LONGEST)
        os.kill(self.server.pid, signal.SIGSTOP)
        time.sleep(WINDOW + 1.0)
        self.since = time.monotonic()
        os.kill(self.server.pid, signal.SIGCONT)

    def full(self) -> None:
        """The disk is full for longer than a window."""
        filler = self.server.folder / "filler"
        fill(filler)
        wait_for(lambda: self.server.request("GET", "/readyz").status == 503)
        self._interrupt()
        time.sleep(WINDOW + 1.0)
        self.since = time.monotonic()
        filler.unlink()
        wait_for(lambda: self.server.request("GET", "/readyz").status == 200)

    def restore(self) -> None:
        """A backup takes the place of the log; what came after it is lost, as announced."""
        copy = self.server.folder / "copy.sqlite"
        began = time.monotonic()
        copy.write_bytes(self.server.get("/v1/admin/backup"))
        time.sleep(1.0)
        self._kill()
        killed = time.monotonic()
        with closing(sqlite3.connect(f"file:{copy}?immutable=1", uri=True)) as base:
            kept = dict(base.execute("SELECT model, max(stop) FROM span GROUP BY model"))
        command = [sys.executable, "-m", "fairwolfe", "log", "restore", str(copy)]
        subprocess.run([*command, str(self.server.path)], check=True, cwd=ROOT, timeout=120)
        self.forgotten.append((began, time.monotonic()))
        for event in self.crowd.history:
            if event.kind == "decide" and event.answer is not None:
                number = int(event.answer["id"].rpartition("-")[2])
                if event.ended > began and number >= kept.get(NUMBERS[event.model], 0):
                    self.lost.setdefault(event.answer["id"], killed)
        copy.unlink()
        self._start()

    def _start(self) -> None:
        self.since = time.monotonic()  # its clock cannot have begun before
        self.server.start()

    def _spawn(self) -> None:
        self.since = time.monotonic()
        self.server.spawn()

    def _kill(self) -> None:
        self.server.kill()
        self._interrupt()
        self.kills += 1

    def _interrupt(self, counts: float = 0.0) -> None:
        """From now on nothing can be received or stored; counts: seconds that still count."""
        if self.since:
            self.up.append((self.since, time.monotonic() + counts))
        self.since = 0.0

    # --- checks -------------------------------------------------------------------------------

    def _views(self) -> Iterator[tuple[str, Any]]:
        """Every decision that a client knows, as the service has it now; None if unknown."""
        parts = urlsplit(self.server.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=30)
        for event in self.crowd.history:
            if event.kind == "decide" and event.answer is not None:
                id = event.answer["id"]
                connection.request("GET", f"/v1/models/{event.model}/decisions/{id}")
                response = connection.getresponse()
                body = json.loads(response.read())
                yield id, body if response.status == 200 else None
        connection.close()

    def _answers(self, views: dict[str, Any]) -> Iterator[str]:
        """Whether every answer was true, and deserved."""
        sent: dict[str, list[Any]] = defaultdict(list)
        decided: dict[str, Event] = {}
        for event in self.crowd.history:
            if event.kind == "decide" and event.answer is not None:
                id, view = event.answer["id"], views[event.answer["id"]]
                if id in decided:
                    yield f"decision {id} was given to two questions"
                decided[id] = event
                if id in self.lost:
                    if view is not None:
                        yield f"decision {id} was undone by a restore, and is known"
                elif view is None:
                    yield f"decision {id} was acknowledged and is lost"
                elif any(view.get(name) != event.answer.get(name) for name in ("arm", "items")):
                    yield f"decision {id} was {event.answer}, and is now {view}"
        for event in self.crowd.history:
            if event.kind == "feedback":
                for place, entry in enumerate(event.sent):
                    sent[entry["id"]] += cells_of(entry)
                    if event.answer is not None:
                        for outcome, part in parts_of(entry, event.answer[place]):
                            yield from self._outcome(event, part, outcome, decided, views)
        for id, view in views.items():
            strange = set(cells_of(view or {})) - set(sent[id])
            if strange:
                yield f"{strange} is counted for decision {id}, and nobody reported it"

    def _logged(self, logs: dict[int, Logged]) -> Iterator[str]:
        """Whether every decision that a client was given is in the log as it was given; and whether
        each stage of a decision is closed once, and each number for it written once.
        """
        for name, number in NUMBERS.items():
            log = logs[number]
            for stage in range(STAGES[name]):
                ends = [0, *(one[1] for one in log.closed if one[2] == stage)]
                starts = [*(one[0] for one in log.closed if one[2] == stage), len(log.decisions)]
                if starts != ends:
                    yield f"windows of stage {stage} of {name} begin at {starts} and end at {ends}"
            again = [cell for cell, count in log.cells.items() if count > 1]
            if again:
                yield f"(decision, slot, reward) {again} of {name} were written more than once"
        for event in self.crowd.history:
            if event.kind != "decide" or event.answer is None or event.answer["id"] in self.lost:
                continue
            answer, log = event.answer, logs[NUMBERS[event.model]]
            row = log.decisions.get(int(answer["id"].rpartition("-")[2]))
            if row is None:
                yield f"decision {answer['id']} was acknowledged and is not in the log"
                continue
            ranked = event.model in RANKED
            made = [log.items[item] for item in row.action] if ranked else row.action
            chance = row.head["probability"]
            told = (answer["items" if ranked else "arm"], answer.get("probability"))
            if told != (made, None if math.isnan(chance) else chance):
                yield f"decision {answer['id']} was {told}, and the log says {made} with {chance}"

    def _outcome(
        self,
        event: Event,
        entry: dict[str, Any],
        outcome: str,
        decided: dict[str, Event],
        views: dict[str, Any],
    ) -> Iterator[str]:
        id = entry["id"]
        undone = any(a <= event.ended <= b for a, b in self.forgotten)
        if outcome in ("joined", "known"):
            missing = set(cells_of(entry)) - set(cells_of(views[id] or {}))
            if missing and not undone:
                yield f"{missing} of decision {id} was acknowledged as {outcome} and is lost"
        elif outcome == "late":
            up = self._up(decided[id].began, event.ended)
            later = STAGES[event.model] > 1 and "minutes" in entry.get("rewards", ())
            if up < (LATER if later else WINDOW) - SLACK:
                yield f"{id} was late after {up:.2f} s in which it could have been reported"
        elif outcome == "unknown":
            if event.ended < self.lost.get(id, math.inf):
                yield f"{id} was unknown, and no restore had undone it"
        elif event.model == "aisle" and "rewards" in entry:  # the first stage ended without it
            if self._up(decided[id].began, event.ended) < WINDOW - SLACK:
                yield f"{id} was a {outcome}, and its first window had not ended"
        else:
            yield f"{id} was a {outcome}"

    def _up(self, start: float, stop: float) -> float:
        """For how long a process was there between two moments, in which its clock may have run."""
        return sum(max(min(stop, b) - max(start, a), 0.0) for a, b in self.up)


def cells_of(said: dict[str, Any]) -> list[Any]:
    """What an entry of feedback, or the view of a decision, says, one by one."""
    cells: list[Any] = [("exposed", key) for key in said.get("exposed") or ()]
    for key in said.get("clicked") or ():
        cells += [("exposed", key), ("clicks", key, 1.0)]
    for name, value in (said.get("rewards") or {}).items():
        if isinstance(value, dict):
            cells += [(name, key, float(number)) for key, number in value.items()]
            cells += [("exposed", key) for key, number in value.items() if number]
        else:
            cells.append((name, float(value)))
    return cells


def parts_of(entry: dict[str, Any], told: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """An entry by what became of its rewards, where that differs by stage."""
    lists: dict[str, set[str]] = {
        name: set(told[name]) for name in ("late", "known", "conflict") if name in told
    }
    if not lists:
        yield told["outcome"], entry
        return
    lists["joined"] = entry["rewards"].keys() - set().union(*lists.values())
    for outcome, names in lists.items():
        rewards = {name: value for name, value in entry["rewards"].items() if name in names}
        if rewards:
            yield outcome, {**entry, "rewards": rewards}


def counted(state: Path) -> tuple[dict[int, int], dict[int, Logged]]:
    """How many decisions of each model the log has, without holes, and the decisions: by SQL on a
    copy of it.
    """
    with TemporaryDirectory() as folder:
        copy = shutil.copytree(state, Path(folder) / "examined") / "log.sqlite"
        counts, logs = _counted(copy), read_log(copy)
    assert counts == {model: len(logs[model].decisions) for model in counts}
    return counts, logs


def _counted(log: Path) -> dict[int, int]:
    with closing(sqlite3.connect(log)) as base:
        rows = [seq for (seq,) in base.execute("SELECT seq FROM log ORDER BY seq")]
        assert rows == list(range(1, len(rows) + 1))
        clocks = [clock for (clock,) in base.execute("SELECT clock FROM log ORDER BY seq")]
        assert clocks == sorted(clocks)
        counts: dict[int, int] = {}
        for model in NUMBERS.values():
            query = "SELECT first, stop FROM span WHERE model = ? ORDER BY first"
            spans = base.execute(query, (model,)).fetchall()
            assert all(one[1] == other[0] for one, other in pairwise([(0, 0), *spans]))
            counts[model] = spans[-1][1] if spans else 0
    return counts


def _totals(finals: dict[str, Any], views: dict[str, Any], counts: dict[int, int]) -> Iterator[str]:
    """Whether what a model has learnt is the sum of what its decisions say."""
    for name, number in NUMBERS.items():
        final, own = finals[name], [v for id, v in views.items() if v and f"-{number}-" in id]
        states = Counter(view["state"] for view in own)
        total = counts[number]
        every = [(final, states)]
        if STAGES[name] > 1:
            pairs = enumerate(final["stages"])
            every = [(one, Counter(v["stages"][s]["state"] for v in own)) for s, one in pairs]
        for one, states in every:
            told = {"t": total, "open": 0}
            told |= {"joined": states["joined"], "expired": total - states["joined"]}
            for what, count in told.items():
                if one[what] != count:
                    yield f"{what} of {name} is {one[what]}, and clients and rows say {count}"
        if final["decisions"] != total:
            yield f"decisions of {name} are {final['decisions']}, and rows say {total}"
        sums: Counter[str] = Counter()
        for view in own:
            for cell in cells_of(view):
                if cell[0] != "exposed":
                    sums[cell[0]] += cell[-1]
        for reward, average in final["average"].items():
            if abs(average - sums[reward] / max(total, 1)) > NEAR:
                yield f"average {reward} of {name} is {average}, and not {sums[reward]} / {total}"
