"""What a restart of the service costs: replay of logged decisions, and the way back after kill -9.

    python benchmarks/bench_replay.py [--decisions N] [--turns N]

Replay: a logged decision with its feedback, from the bytes of its row to the learnt state, over one
round of the compiled loop of the same world, as many of each in turns in one process; times are of
the processor, the lowest of the turns and the median of their ratios are reported. Restart: a
process writes a log of so many decisions, each with feedback, and ends without a word; another
opens it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from fairwolfe.core.streams import stream
from fairwolfe.lab import bench as speed
from fairwolfe.service.config import Limits, Setup, parse, setup
from fairwolfe.service.core import Clock, Core, Work
from fairwolfe.service.events import ItemsAdded, Started, decode
from fairwolfe.service.model import Model
from fairwolfe.service.recovery import begin, recover
from fairwolfe.service.store import SQLiteStore
from fairwolfe.service.wire import DecisionRequest, Feedback

_GROUP = 48  # decisions that 64 connections put into a row
_WINDOW = 2.0  # seconds
_RATE = 4_800  # decisions a second, by the clock of the benchmark: what makes such groups
_TICK = 0.05  # seconds
_LOGGED = 24_000
_TABLE = """
state = "state"
[models.ranks]
missing = "zero"
window = "2 s"
problem = { kind = "ranking", n_slots = 10, n_features = [10, 10], parameter_norm = 4.0 }
policy = { name = "fw-linucb-rank", objective = { name = "two-sided", items = \
{ name = "gini-welfare" } }, exploration = 0.1 }
"""


class Shop:
    """A service whose users ask in groups and report what they looked at."""

    def __init__(self, store: Any, environment: Any) -> None:
        self.environment, self.world = environment, environment.init(stream(0, "world"))
        self.rng = stream(0, "crowd")
        self.time = 0.0
        clock = Clock(lambda: self.time)
        config = parse(_TABLE)
        models = begin(store, config, recover(store).models, 0.0)
        limits = Limits(open=10**9)
        self.core = Core(store, models, {"ranks": _WINDOW}, limits, clock)
        self.model = models["ranks"]
        if self.model.agent is None:
            keys = tuple(f"item {i}" for i in range(len(self.world.items)))
            event = ItemsAdded(0, keys, self.world.items.copy(), "")
            self._turn(Work(self.model, change=lambda: event))

    def _turn(self, *works: Work) -> None:
        self.core._waiting.extend(works)
        while self.core.waiting:
            self.core.turn()

    def serve(self, decisions: int) -> None:
        """So many decisions with feedback; windows close as time passes."""
        model, users = self.model, self.world.users
        for _ in range(decisions // _GROUP):
            first = model.decisions
            drawn = users[self.environment.draw_users(self.rng, _GROUP)]
            self._turn(
                *(Work(model, [DecisionRequest(u, {}, False, None, b"", "user")]) for u in drawn)
            )
            entries = [self._entry(first + i) for i in range(_GROUP)]
            self._turn(*(Work(model, entries=[entry]) for entry in entries))
            before, self.time = self.time, self.time + _GROUP / _RATE
            if self.time // _TICK > before // _TICK:
                self.core.tick()

    def close(self) -> None:
        """All windows end."""
        while self.model.ring.open:
            self.time += _TICK
            self.core.tick()

    def _entry(self, number: int) -> Feedback:
        keys = self.model.keys_of(self.model.ring.decision(number).action)
        looked = self.rng.random(len(keys)) < self.world.weights[0]
        exposed = [key for key, yes in zip(keys, looked, strict=True) if yes]
        clicked = [key for key in exposed if self.rng.random() < 0.3]
        return Feedback(self.model.id(number), exposed, clicked, None, False)


class Rows:
    """A log in memory that keeps no snapshots."""

    token = "bench"
    deleted = 0

    def __init__(self) -> None:
        self.bases: dict[int, Any] = {}
        self.log: list[tuple[float, bytes]] = []

    def append(self, clock: float, payload: bytes, *_: Any, **__: Any) -> int:
        self.log.append((clock, payload))
        return len(self.log)

    def last(self) -> tuple[int, float]:
        return len(self.log), 0.0

    def starts(self) -> dict[int, Any]:
        return {}

    def rows(self, after: int) -> Iterator[Any]:
        return iter(())

    def snapshot(self, *_: Any) -> None:
        pass

    def note(self, *_: Any) -> None:
        pass


def replayed(setup_: Setup, rows: list[tuple[float, bytes]]) -> Model:
    """The model of a log."""
    model = Model(0, Rows.token, setup_)
    for place, (clock, payload) in enumerate(rows):
        for event in decode(payload):
            if not isinstance(event, Started):
                model.apply(event, place + 1, clock)
    return model


def replay(turns: int) -> None:
    """Print what replay costs."""
    _, _, case, _ = speed.CASES
    store: Any = Rows()
    shop = Shop(store, case.environment)
    shop.serve(_LOGGED)
    shop.close()
    made = setup(parse(_TABLE), "ranks")
    assert replayed(made, store.log).digest() == shop.model.digest()
    policy = shop.model.agent.policy  # type: ignore[union-attr]
    sides: Any = {
        "compiled": (speed.compiled_side(speed.aged(policy, case.environment)), _LOGGED),
        "replay": (lambda n: replayed(made, store.log), _LOGGED),
    }
    taken = list(islice(speed.turns(sides), turns))
    low = {side: min(turn[side] for turn in taken) for side in sides}
    over = speed.ratios(taken, "replay", "compiled")
    size = sum(len(payload) for _, payload in store.log) / _LOGGED
    print(
        f"a compiled round takes {low['compiled']:.1f} us, a replayed decision "
        f"{low['replay']:.1f} us: {low['replay'] / low['compiled']:.2f} rounds (turn by turn "
        f"{over[0]:.2f} to {over[-1]:.2f}, median {median(over):.2f}); {size:.0f} bytes a decision"
    )


def write(folder: Path, decisions: int) -> None:
    """Serve so many decisions, and end as kill -9 does."""
    Shop(SQLiteStore(folder), speed.CASES[2].environment).serve(decisions)
    os._exit(0)


def restart(decisions: int) -> None:
    """Print what the way back costs."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "state"
        began = perf_counter()
        command = [sys.executable, __file__, "--write", str(folder), "--decisions", str(decisions)]
        subprocess.run(command, check=True)
        wrote = perf_counter() - began
        warm = Model(0, "warm", setup(parse(_TABLE), "ranks"))  # what is loaded once
        warm.apply(ItemsAdded(0, tuple("abcdefghijkl"), np.ones((12, 10)) / 10, ""), 0, 0.0)
        warm.dump()
        began = perf_counter()
        store = SQLiteStore(folder)
        found = recover(store)
        took = perf_counter() - began
        size = sum(path.stat().st_size for path in folder.iterdir())
        model = found.models[0]
        print(
            f"a log of {model.decisions:,} decisions ({size / model.decisions:.0f} bytes each, "
            f"written in {wrote:.0f} s): {found.records:,} records replayed, {took:.2f} s"
        )
        store.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--decisions", type=int, default=100_000)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--write", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.write is not None:
        write(asked.write, asked.decisions)
    replay(asked.turns)
    restart(asked.decisions)


if __name__ == "__main__":
    main()
