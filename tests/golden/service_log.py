"""A log of the service as a format of it was written, with what the service said at its end.

Two models with arms, one of which learns on arrival, and one with rankings; both kinds of
`missing`; feedback in parts, twice, in conflict, late, never; requests told again, candidates,
items that come and go, other objectives, snapshots. ``python -m tests.golden.service_log FOLDER``
writes it, once for each format: formats other than the current one are refused. What it must say
(decisions, counts, averages) has stayed the same from format to format.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from fairwolfe.service.events import Change, ItemsAdded, ItemsRetired, ObjectiveReplaced
from fairwolfe.service.model import Model
from fairwolfe.service.store import SQLiteStore
from tests.service.inside import Inside
from tests.service.row_bytes import read_log

CONFIG = """
state = "state"

[models.router]
window = "9 s"
out_of_range = "learn"
missing = "zero"
problem = { kind = "arms", n_features = 5, rewards = { clicks = [0, 1], minutes = [0, 10] } }
objective = { name = "generalized-gini", weights = [1.0, 0.5] }
policy = { name = "frank-wolfe", base = { name = "squarecb", gamma0 = 100.0 } }

[models.front]
window = "7 s"
missing = "skip"
problem = { kind = "ranking", n_slots = 3, n_features = [4, 4] }
objective = { name = "two-sided", items = { name = "gini-welfare" }, beta = 0.5 }
policy = { name = "fw-linucb-rank", exploration = 0.1 }

[models.quick]
seed = 3
window = "9 s"
missing = "zero"
apply = "arrival"
problem = { kind = "arms", n_arms = 3, n_features = 2, rewards = { sales = [0, 1] } }
objective = { name = "linear", weights = [1.0] }
policy = { name = "frank-wolfe", base = { name = "thompson" } }
"""
ROUNDS = 45


def play(service: Inside) -> None:
    """Whatever a service can be asked to do."""
    rng = np.random.default_rng(19)
    late: list[str] = []
    items = rng.uniform(-0.4, 0.4, (8, 4))
    _change(service, "front", ItemsAdded(1, ("a", "b"), items[:2], ""))  # too few to begin
    _change(service, "front", ItemsAdded(1, tuple("cdefgh"), items[2:], ""))
    for step in range(ROUNDS):
        _route(service, rng, step, late)
        _rank(service, rng, step)
        _sell(service, rng)
        if step == 15:
            _change(service, "front", ItemsRetired(1, ("c",), ""))
        if step == 20:
            _change(service, "front", ItemsAdded(1, ("new",), np.full((1, 4), 0.1), ""))
            replacement = "TwoSided(items=GiniWelfare(), beta=1.5)"
            _change(service, "front", ObjectiveReplaced(1, replacement))
        if step == 25:
            weights = "GeneralizedGini(weights=(1.0, 0.25))"
            _change(service, "router", ObjectiveReplaced(0, weights))
        if step % 8 == 7:
            service.core.snapshot()
        service.advance(float(rng.uniform(0.0, 3.0)))


def _change(service: Inside, name: str, event: Change) -> None:
    (done,) = service.together(service.core.change(name, lambda: event))
    if isinstance(done, Exception):
        raise done


def _route(service: Inside, rng: np.random.Generator, step: int, late: list[str]) -> None:
    model = service.model("router")
    asks: list[dict[str, Any]] = [
        {"arms": rng.uniform(-0.4, 0.4, (3, 5)).tolist(), "request_id": f"r{step}-{i}"}
        for i in range(int(rng.integers(1, 4)))
    ]
    if step % 5 == 4:  # not alike, so that they are no batch
        asks.append({"arms": rng.uniform(-0.4, 0.4, (4, 5)).tolist(), "candidates": [1, 2]})
    for answer in service.decide_many("router", asks):
        id = model.id(answer.number)
        clicks, minutes = float(rng.integers(2)), float(rng.uniform(0.0, 12.0))
        if rng.random() < 0.7:
            service.tell("router", {"id": id, "rewards": {"clicks": clicks}})
        if rng.random() < 0.5:
            whole = {"id": id, "rewards": {"clicks": clicks, "minutes": minutes}}
            service.tell("router", whole, whole)
        if rng.random() < 0.1:
            service.tell("router", {"id": id, "rewards": {"minutes": minutes + 1.0}})
        late.append(id)
    service.decide("router", **asks[0])  # the answer got lost
    if step % 6 == 5:
        service.tell("router", {"id": late[step // 2], "rewards": {"clicks": 1.0}})
        service.tell("router", {"id": model.id(10**6), "rewards": {"clicks": 1.0}})


def _rank(service: Inside, rng: np.random.Generator, step: int) -> None:
    model = service.model("front")
    asks: list[dict[str, Any]] = [
        {"user": rng.uniform(-0.5, 0.5, 4).tolist()} for _ in range(int(rng.integers(1, 4)))
    ]
    asks[0]["request_id"] = f"f{step}"
    if step % 7 == 6:
        asks[-1]["blocked"] = ["d"]
    for answer in service.decide_many("front", asks):
        keys, id = model.keys_of(answer.action), model.id(answer.number)
        if rng.random() < 0.8:
            service.tell("front", {"id": id, "exposed": keys[:2]})
            service.tell("front", {"id": id, "clicked": keys[: int(rng.integers(0, 3))]})


def _sell(service: Inside, rng: np.random.Generator) -> None:
    model = service.model("quick")
    asks = [{"user": rng.uniform(-0.5, 0.5, 2).tolist()} for _ in range(2)]
    answers = service.decide_many("quick", asks)
    for answer in reversed(answers):
        if rng.random() < 0.8:
            entry = {"id": model.id(answer.number), "rewards": {"sales": float(rng.random())}}
            service.tell("quick", entry)


def said(model: Model) -> dict[str, Any]:
    """A model in numbers."""
    return {
        "decisions": model.decisions,
        "open": model.ring.open,
        "t": model.t,
        "version": model.version,
        "counts": model.counts,
        "objective": model.objective,
        "value": model.value,
        "average": model.average(),
        "exposures": model.exposures(),
    }


def actions(path: Path, model: int) -> str:
    """The decisions of a model in a log, as they were recorded: one word each."""
    made = (row.action for row in read_log(path)[model].decisions.values())
    return " ".join("".join(map(str, np.atleast_1d(action).tolist())) for action in made)


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as made:
        store = SQLiteStore(Path(made))
        service = Inside(CONFIG, store)
        play(service)
        service.core._commit(service.core._unwritten_counts())
        models = service.core.models.values()
        expected: dict[str, Any] = {"rows": store.last()[0]}
        expected["models"] = {model.name: said(model) for model in models}
        store.close()
        for model in models:
            expected["models"][model.name]["actions"] = actions(store.path, model.number)
        data = store.path.read_bytes()
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(CONFIG.lstrip())
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    (folder / "log.sqlite.gz").write_bytes(gzip.compress(data, mtime=0))
    print(f"{expected['rows']} rows written to {folder}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
