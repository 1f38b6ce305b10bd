"""What a model of the service costs: bytes of log, memory, microseconds of a decision.

    python benchmarks/bench_sizing.py [--groups N]

Each case is a model with a store on the disk, without HTTP. Decisions are asked for in groups of 32
and answered whole, and their windows end. Times are of the processor; of a decision that of all the
core does (check, decide, encode, write, apply), lowest third of the groups; of a replay that of the
whole log, by decision with its feedback and its close. Bytes of the log are those of the tables of
rows, spans and outcomes.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.service import wire
from fairwolfe.service.config import Limits, parse
from fairwolfe.service.core import LONGEST, Clock, Core, Work
from fairwolfe.service.events import ItemsAdded
from fairwolfe.service.recovery import begin, replay
from fairwolfe.service.store import SQLiteStore

_ROWS = 32
_SLOTS = 10
_WINDOW = 10.0
_ARMS = """
problem = {{ kind = "arms", n_features = {d}, rewards = {{ clicks = [0, 1], minutes = [0, 10] }} }}
objective = {{ name = "generalized-gini", weights = [1.0, 0.5] }}
policy = {{ name = "frank-wolfe", base = {{ name = "squarecb", gamma0 = 100.0 }} }}
"""
_RANKING = """
problem = {{ kind = "ranking", n_slots = 10, n_features = [{d}, {d}] }}
objective = {{ name = "two-sided", items = {{ name = "gini-welfare" }}, beta = 0.5 }}
policy = {{ name = "fw-linucb-rank", exploration = 0.1 }}
"""


class Case(NamedTuple):
    """A size: arms or items, and features of an arm or of a user and an item."""

    ranks: bool
    n: int
    d: int

    def __str__(self) -> str:
        what = "items" if self.ranks else "arms"
        return f"{self.n:,} {what}, {self.d}{f' x {self.d}' if self.ranks else ''} features"


CASES = (
    Case(False, 4, 5),
    Case(False, 50, 10),
    Case(False, 50, 100),
    Case(True, 50, 10),
    Case(True, 2_500, 10),
    Case(True, 10_000, 10),
)


class Hands:
    """A clock that is set by hand."""

    time = 0.0

    def __call__(self) -> float:
        return self.time


@contextmanager
def service(case: Case, audit: bool) -> Iterator[tuple[Core, Hands]]:
    """A core with one model."""
    text = (_RANKING if case.ranks else _ARMS).format(d=case.d)
    head = f'state = "s"\n[models.m]\nmissing = "zero"\naudit = {str(audit).lower()}\n'
    config, hands = parse(head + text), Hands()
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder))
        models = begin(store, config, {}, 0.0)
        limits = Limits(open=10_000_000)
        core = Core(store, models, {"m": _WINDOW}, limits, Clock(hands))
        try:
            if case.ranks:
                rng = np.random.default_rng(0)
                keys = tuple(f"item {i}" for i in range(case.n))
                features = rng.normal(size=(case.n, case.d)) * 0.5 / case.d**0.5
                event = ItemsAdded(0, keys, features, "")
                core._commit([(models["m"], event)])
            yield core, hands
        finally:
            store.close()


def questions(case: Case, rng: np.random.Generator, rows: int) -> list[wire.Decide]:
    scale = 0.5 / case.d**0.5
    if case.ranks:
        users = rng.normal(size=(rows, case.d)) * scale
        return [wire.Decide(user=user) for user in users.tolist()]
    arms = rng.normal(size=(rows, case.n, case.d)) * scale
    return [wire.Decide(arms=one) for one in arms.tolist()]


def answer(core: Core, answers: list[Any], rng: np.random.Generator) -> list[Any]:
    """Whole feedback for decisions."""
    model = core.models["m"]
    entries = []
    for one in answers:
        id = model.id(one.number)
        if model.ranks:
            keys = model.keys_of(one.action)
            exposed = keys[: int(rng.integers(1, _SLOTS + 1))]
            told = wire.Feedback(id, exposed=exposed, clicked=exposed[:1])
        else:
            told = wire.Feedback(id, rewards={"clicks": 1.0, "minutes": float(rng.random())})
        entries.append(told)
    return entries


async def play(core: Core, hands: Hands, case: Case, groups: int, rows: int) -> list[float]:
    """Decide in groups, answer, let windows end; processor seconds of each group's decide."""
    rng, model = np.random.default_rng(1), core.models["m"]
    times = []
    for _ in range(groups):
        asks = [wire.decision_request(one, model) for one in questions(case, rng, rows)]
        began = time.process_time()
        made = await core.wait(Work(model, asks))
        times.append(time.process_time() - began)
        await core.wait(Work(model, entries=answer(core, made, rng)))
        hands.time += 0.1
    return times


def log_bytes(core: Core) -> int:
    """What rows, spans and outcomes take on the disk, in whole pages."""
    store: Any = core.store
    query = "SELECT sum(pgsize) FROM dbstat WHERE name IN ('log', 'span', 'outcome')"
    return int(store._one(query))


def close_all(core: Core, hands: Hands) -> None:
    while core.models["m"].ring.open:
        hands.time += LONGEST
        core.tick()


def bytes_of_a_decision(case: Case, groups: int, rows: int, audit: bool) -> float:
    with service(case, audit) as (core, hands):
        before = log_bytes(core)
        asyncio.run(play(core, hands, case, groups, rows))
        close_all(core, hands)
        return (log_bytes(core) - before) / core.models["m"].decisions


def held(work: Any) -> tuple[int, Any]:
    """Bytes that something holds on to."""
    gc.collect()
    tracemalloc.start()
    made = work()
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return size, made


def measured(case: Case, groups: int) -> dict[str, float]:
    with service(case, False) as (core, hands):
        model = core.models["m"]
        times = asyncio.run(play(core, hands, case, groups, _ROWS))
        close_all(core, hands)
        decisions = model.decisions
        size, copy = held(model.copy)
        del copy
        before = replay_seconds(core, 2 if case.ranks else 1)  # with its items
        whole = replay_seconds(core, None)
        snapshot = len(model.dump())
        extra = 512
        more, _ = held(lambda: asyncio.run(play(core, hands, case, extra // _ROWS, _ROWS)))
        more -= core.recent["m"]._held  # the last contexts, which took the place of others
        columns = model.ring._columns  # of what came back, which are there already
        open_bytes = more / extra + sum(one.nbytes for one in columns) / len(columns.answered)
    best = sorted(times)[: max(len(times) // 3, 1)]
    return {
        "decide us": 1e6 * float(np.mean(best)) / _ROWS,
        "replay us": 1e6 * (whole - before) / decisions,
        "model kB": size / 1e3,
        "snapshot kB": snapshot / 1e3,
        "open B": open_bytes,
        "log B (32)": bytes_of_a_decision(case, groups, _ROWS, False),
        "log B (1)": bytes_of_a_decision(case, 16 * groups, 1, False),
        "audit B": bytes_of_a_decision(case, groups, _ROWS, True),
    }


def replay_seconds(core: Core, until: int | None) -> float:
    began = time.process_time()
    replay(core.store, until)
    return time.process_time() - began


def main(groups: int) -> None:
    """Print a table."""
    print(f"groups of {_ROWS}, {groups} of them; audit B: as log B (32), with audit = true")
    for place, case in enumerate(CASES):
        row = measured(case, groups)
        if not place:
            print(f"{'':<32}" + "".join(f"{name:>13}" for name in row))
        print(f"{case!s:<32}" + "".join(f"{value:>13,.1f}" for value in row.values()), flush=True)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--groups", type=int, default=64)
    main(arguments.parse_args().groups)
