"""Many models in one service: what a start costs, and how long the event loop is busy at once.

    python benchmarks/bench_models.py [--models N] [--busy N] [--seconds S]

Each life is a process of its own: the first start of so many models alike, then a restart from
their snapshots, after which some decide and learn while the others rest. It ends as if it were
killed, and starts once more.
Seconds of a start are of the processor: of the imports, of reading the configuration, and of
opening the service. A turn and a tick are what the loop does at once, in milliseconds: the longest
by the clock on the wall, and the longest by the processor, which syncs and other processes are not
in.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_MODEL = """
[models.m{i}]
window = "2 s"
missing = "zero"
problem = {{ kind = "arms", n_features = 5, rewards = {{ clicks = [0, 1], minutes = [0, 10] }} }}
objective = {{ name = "generalized-gini", weights = [1.0, 0.5] }}
policy = {{ name = "frank-wolfe", base = {{ name = "squarecb", gamma0 = 100.0 }} }}
"""
_ROWS = [[0.1, 0.2, 0.0, 0.1, 0.0], [0.0, 0.1, 0.3, 0.0, 0.2]]


def life(folder: Path, models: int, busy: int, seconds: float) -> None:
    """One process: print what it took as JSON; after traffic it ends without a snapshot."""
    from fairwolfe.service import wire
    from fairwolfe.service.config import parse
    from fairwolfe.service.core import Work
    from fairwolfe.service.serve import open_service

    found: dict[str, Any] = {"imports": time.process_time()}
    text = 'state = "state"\n' + "".join(_MODEL.format(i=i) for i in range(models))
    began = time.process_time()
    config = parse(text, str(folder))
    found["configuration"] = time.process_time() - began
    began = time.process_time()
    service = open_service(config)
    core = service.core
    found["opened"] = time.process_time() - began
    found["start"] = sum(found.values())
    found["replayed"] = core.metrics.replayed
    gc.collect()
    gc.freeze()  # as `serve.run` does

    def timed(name: str, inner: Callable[[], None]) -> Callable[[], None]:
        longest = found[name] = [0.0, 0.0]

        def outer() -> None:
            wall, processor = time.perf_counter(), time.thread_time()
            inner()
            took = time.perf_counter() - wall, time.thread_time() - processor
            longest[:] = map(max, longest, (1e3 * one for one in took))

        return outer

    core.turn = timed("turn", core.turn)  # type: ignore[method-assign]
    core.tick = timed("tick", core.tick)  # type: ignore[method-assign]

    question = wire.Decide(arms=[list(row) for row in _ROWS])

    async def ask(name: str) -> None:
        model = core.models[name]
        while time.perf_counter() < end:
            asked = [wire.decision_request(question, model)]
            (made,) = await core.wait(Work(model, requests=asked))
            told = [wire.Feedback(id=model.id(made.number), rewards={"clicks": 1.0})]
            await core.wait(Work(model, entries=told))
            found["decisions"] += 1
            await asyncio.sleep(0.002)

    async def serve() -> None:
        async with service.running():
            await asyncio.gather(*(ask(f"m{i}") for i in range(busy)))

    found["decisions"] = 0
    end = time.perf_counter() + seconds
    service._on_end = lambda: None
    if seconds:
        asyncio.run(serve())
    else:
        core.snapshot()
    core.store.close()
    print(json.dumps(found))


def main() -> None:
    """Print a line for each life."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--busy", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=40.0)
    parser.add_argument("--life", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.life is not None:
        return life(given.life, given.models, given.busy, given.seconds)
    with tempfile.TemporaryDirectory() as folder:
        for name, seconds in (("first start", 0.0), ("restart", given.seconds), ("again", 0.0)):
            command = [sys.executable, __file__, "--life", folder, "--models", str(given.models)]
            command += ["--busy", str(given.busy), "--seconds", str(seconds)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found = json.loads(done.stdout)
            parts = (f"{part} {found[part]:.2f}" for part in ("imports", "configuration", "opened"))
            print(f"{name}: {found['start']:.2f} s ({', '.join(parts)})", end="")
            print(f", {found['replayed']} records replayed")
            if seconds:
                print(f"  {found['decisions']} decisions of {given.busy} of {given.models} models")
                for part in ("turn", "tick"):
                    wall, processor = found[part]
                    print(f"  longest {part}: {wall:.1f} ms, of the processor {processor:.1f} ms")
    return None


if __name__ == "__main__":
    main()
