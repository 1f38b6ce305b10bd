"""A service with an arms model and a ranking model: what it decides, replies and counts.

Ids, rows and bytes are left out: a new format keeps this trajectory. Time passes in ticks of a
quarter of a second, and every reward lies in its range.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fairwolfe.service.events import ItemsAdded, ItemsRetired
from tests.golden.record import Record, Trajectory
from tests.service.inside import Inside

CONFIG = """
state = "state"

[models.router]
window = "4 s"
missing = "zero"
problem = { kind = "arms", n_features = 3, rewards = { clicks = [0, 1], minutes = [0, 10] } }
objective = { name = "generalized-gini", weights = [1.0, 0.5] }
policy = { name = "frank-wolfe", base = { name = "squarecb", gamma0 = 20.0 } }

[models.quick]
window = "3 s"
missing = "skip"
apply = "arrival"
problem = { kind = "arms", n_features = 3, rewards = { clicks = [0, 1], minutes = [0, 10] } }
objective = { name = "minimum" }
policy = { name = "frank-wolfe", base = { name = "linucb", exploration = 0.3 } }

[models.front]
window = "3 s"
missing = "skip"
problem = { kind = "ranking", n_slots = 3, n_features = [2, 3] }
objective = { name = "two-sided", items = { name = "gini-welfare" }, beta = 0.5 }
policy = { name = "fw-linucb-rank", exploration = 0.1 }
"""
ROUNDS = 40
TICK = 0.25


def play(folder: Path) -> Trajectory:
    service, record = Inside(CONFIG), Record()
    rng = np.random.default_rng(6)
    items = rng.random((9, 3)) / 2
    _change(service, ItemsAdded(2, tuple("abcdefgh"), items[:8], ""))
    outcomes: list[str] = []
    late: list[tuple[str, dict[str, Any]]] = []
    for step in range(ROUNDS):
        if step == 15:
            _change(service, ItemsAdded(2, ("i",), items[8:], ""))
        if step == 25:
            _change(service, ItemsRetired(2, ("b",), ""))
        for name in ("router", "quick"):
            asks = [{"arms": (rng.random((4, 3)) / 2).tolist()} for _ in range(2)]
            if step % 5 == 4:
                asks[1]["candidates"] = [1, 3]
            for decided in service.decide_many(name, asks):
                record.decided(decided.action)
                record.count(decided.probability)
                rewards = {"clicks": float(rng.integers(2)), "minutes": 10.0 * rng.random()}
                entry = {"id": service.model(name).id(decided.number), "rewards": rewards}
                when = rng.random()
                if when < 0.6:
                    outcomes += service.tell(name, entry)
                elif when < 0.8:
                    late.append((name, entry))
        decided = service.decide("front", user=(rng.random(2) / 2).tolist())
        record.decided(decided.action)
        keys = service.model("front").keys_of(decided.action)
        if rng.random() < 0.8:
            entry = {"id": service.model("front").id(decided.number), "exposed": keys[:2]}
            outcomes += service.tell("front", entry | {"clicked": keys[: int(rng.integers(3))]})
        if step % 6 == 5:  # some windows have closed
            for name, entry in late:
                outcomes += service.tell(name, entry)
            late = []
        for _ in range(int(rng.integers(1, 6))):
            service.advance(TICK)
        models = [service.model(name) for name in ("router", "quick", "front")]
        counts = [(model.t, model.ring.open) for model in models]
        record.count(counts, *(list(model.average().values()) for model in models))
    told = record.told()
    told["outcomes"] = " ".join(outcomes)
    return told


def _change(service: Inside, event: Any) -> None:
    (done,) = service.together(service.core.change("front", lambda: event))
    if isinstance(done, Exception):
        raise done
