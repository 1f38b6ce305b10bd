"""Ten million decisions that wait for a 30-day stage: memory, the next start, and the log.

    python benchmarks/bench_waiting.py
    python benchmarks/bench_waiting.py --decisions 1000000 --keep folder

A shop of four arms with five features: clicks arrive within 30 minutes, returns within 30 days. A
process writes the log with the events, rows and snapshots of the service, 2,048 decisions in a row
of the log: each decision is made, its clicks arrive, the first window ends, and for one in ten it
is reported that it came back. Then `fairwolfe serve` starts on this log. Its memory is that of the
process, less that of one that starts on an empty log; requests are sent one after the other. Last
another process reads the log and closes the second stage of the oldest decisions, in times of the
processor.
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import http.client
import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from fairwolfe.service.config import parse
from fairwolfe.service.core import _CLOSES, _SNAPSHOT_RECORDS
from fairwolfe.service.events import Closed, DecisionsMade, Event, FeedbackReceived, encode, size
from fairwolfe.service.recovery import begin, recover, write_snapshots
from fairwolfe.service.store import Span, SQLiteStore

CONFIG = """
state = "state"
listen = "127.0.0.1:0"
limits = { later = 20_000_000 }
[models.shop]
missing = "zero"
objective = "Linear({'clicks': 1.0, 'returned': -2.0})"
policy = { name = "frank-wolfe", base = { name = "linucb" } }
[models.shop.problem]
kind = "arms"
n_features = 5
[models.shop.problem.rewards]
clicks = { range = [0, 1], window = "30 min" }
returned = { range = [0, 1], window = "30 d" }
"""
_ROWS = 2048
_RETURNS = 0.1
_ASKED = 500
_SECONDS = 20 * 86400.0  # on the clock of the service, over which the decisions come
_FIRST = 1800.0


def told(model: int, numbers: Any, reward: int, values: Any) -> FeedbackReceived:
    """Feedback for one reward, which is a stage, of each of some decisions."""
    n = len(numbers)
    cells = np.zeros((n, 3), np.int32)
    cells[:, 0], cells[:, 2] = np.arange(n), reward
    none, final = np.zeros((0, 2), np.int32), np.zeros(n, np.bool_)
    counts = (0, 0, 0, 0)
    return FeedbackReceived(model, numbers, final, none, cells, values, counts, bytes([reward]) * n)


def fill(folder: Path, decisions: int) -> dict[str, float]:
    """Write the log."""
    store = SQLiteStore(folder / "state")
    model = begin(store, parse(CONFIG, str(folder)), {}, 0.0)["shop"]
    rng, began, records, kept = np.random.default_rng(0), time.perf_counter(), 0, [0.0]

    def write(clock: float, events: list[Event], spans: list[Span]) -> None:
        nonlocal records
        seq = store.append(clock, encode(events, 0.0), spans)
        for event in events:
            model.apply(event, seq, clock)
            records += size(event)
        if records >= _SNAPSHOT_RECORDS:
            start, records = time.perf_counter(), 0
            write_snapshots(store, seq, [model], [])
            kept.append(time.perf_counter() - start)

    while model.decisions < decisions:
        clock = _SECONDS * model.decisions / decisions
        n = min(_ROWS, decisions - model.decisions)
        contexts = list(rng.uniform(-0.4, 0.4, (n, 4, 5)))
        made = model.propose(contexts, [{}] * n, 0.001)
        numbers = made.numbers.copy()
        first, stop = int(numbers[0]), int(numbers[-1]) + 1
        clicks = rng.integers(0, 2, n).astype(np.float64)
        events: list[Event] = [DecisionsMade(0, made.rows, ()), told(0, numbers, 0, clicks)]
        write(clock, events, [Span(0, first, stop)])
        write(clock + _FIRST, [Closed(0, first, stop)], [])
        back = np.unique(rng.integers(0, stop, int(_RETURNS * n)))
        fresh = back[~model.ring.joined(back).answered[:, 1]]
        write(clock + _FIRST, [told(0, fresh, 1, np.ones(len(fresh)))], [])
    found = {
        "seconds": time.perf_counter() - began,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "snapshot": 1e3 * kept[-1],
        "snapshot_bytes": len(store.snapshots(0)[0][1] or b""),
        "columns": sum(column.nbytes for column in model.ring._columns) / 1e6,
        "each": sum(column[:1].nbytes for column in model.ring._columns),
        "answered": int(model.ring.held(0, decisions).answered[:, 1].sum()),
    }
    store.close()
    return found


def close(folder: Path, blocks: int) -> dict[str, float]:
    """Close the second stage of the oldest decisions: they are read back from the log."""
    store = SQLiteStore(folder / "state")
    began = time.process_time()
    model = recover(store).models[0]
    recovered = time.process_time() - began
    began = time.process_time()
    for _ in range(blocks):
        first = model.ring.first
        model.apply(Closed(0, first, min(first + _CLOSES, model.ring.closed), 1), 0, 0.0)
    count = model.ring.first
    spent = time.process_time() - began
    store.close()
    return {"recovered": recovered, "closed": count, "microseconds": 1e6 * spent / count}


class Served:
    """`fairwolfe serve` on a folder."""

    def __init__(self, folder: Path) -> None:
        (folder / "config.toml").write_text(CONFIG)
        began = time.perf_counter()
        command = [sys.executable, "-m", "fairwolfe", "serve", str(folder / "config.toml")]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.seconds = time.perf_counter() - began
        host, port = line.split()[1].removeprefix("http://").split(":")
        self.connection = http.client.HTTPConnection(host, int(port), timeout=600)

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The reply to a request."""
        headers = {"content-type": "application/json"}
        self.connection.request(method, path, body and json.dumps(body), headers)
        text = self.connection.getresponse().read()
        return text if path == "/metrics" else json.loads(text)

    def processor(self) -> float:
        """Seconds of the processor so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> dict[str, float]:
        """Resident megabytes, now and at most so far."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        sizes = dict(line.split(":", 1) for line in lines)
        return {name: int(sizes[name].split()[0]) / 1024 for name in ("VmRSS", "VmHWM")}

    def end(self) -> None:
        """End it as a terminal would."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(120)


def milliseconds(work: Callable[[], Any], times: int) -> tuple[float, float]:
    """The median and the 99th percentile of doing something."""
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        spent.append(1e3 * (time.perf_counter() - began))
    return float(np.median(spent)), float(np.quantile(spent, 0.99))


def serve(folder: Path) -> dict[str, Any]:
    """Start on the log, ask, report returns, take a snapshot, read the metrics."""
    rng, path = np.random.default_rng(1), "/v1/models/shop"
    served = Served(folder)
    found: dict[str, Any] = {"start": served.seconds, "processor": served.processor()}
    found["at start"] = served.memory()
    state = served.ask("GET", path)
    made = [
        served.ask("POST", f"{path}/decide", {"arms": rng.uniform(-0.4, 0.4, (4, 5)).tolist()})
        for _ in range(50)
    ]
    assert made[0]["closes_in"] == 30 * 86400.0, made[0]
    arms = {"arms": rng.uniform(-0.4, 0.4, (4, 5)).tolist()}
    found["decide"] = milliseconds(lambda: served.ask("POST", f"{path}/decide", arms), _ASKED)
    # Ids of decisions that wait: those of the epoch in which the log was written.
    with_epoch = _epoch(folder)
    outcomes: dict[str, int] = {}

    def report() -> None:
        number = int(rng.integers(state["decisions"]))
        one = {"id": f"{with_epoch}-{number}", "rewards": {"returned": 1}}
        outcome = served.ask("POST", f"{path}/feedback", one)[0]["outcome"]
        outcomes[outcome] = outcomes.get(outcome, 0) + 1

    found["feedback"] = milliseconds(report, _ASKED)
    found["outcomes"] = outcomes
    found["snapshot"] = milliseconds(lambda: served.ask("POST", "/v1/admin/snapshot"), 5)
    found["metrics"] = milliseconds(lambda: served.ask("GET", "/metrics"), 5)
    found["after"] = served.memory()
    found["state"] = {name: state[name] for name in ("decisions", "open", "t", "stages")}
    served.end()
    return found


def _epoch(folder: Path) -> str:
    """What the ids of the first epoch begin with, from a copy of the state of the model."""
    import sqlite3

    from fairwolfe.core.packing import unpack

    with sqlite3.connect(f"file:{folder}/state/log.sqlite?mode=ro&immutable=1", uri=True) as base:
        (data,) = base.execute("SELECT data FROM snapshot ORDER BY seq LIMIT 1").fetchone()
    token, epochs, *_ = unpack(data)
    return f"{token}-{epochs[0][0]}"


def main() -> None:
    """Fill, serve, close; print what it took."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--decisions", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path, help="a folder for the log, which is used again")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as spare, tempfile.TemporaryDirectory() as empty:
        folder = given.keep or Path(spare)
        folder.mkdir(parents=True, exist_ok=True)
        n = given.decisions

        def apart(work: Callable[..., Any], *args: Any) -> Any:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                return pool.submit(work, *args).result()

        if not (folder / "state").exists():
            filled = apart(fill, folder, n)
            print(f"written in {filled['seconds']:.0f} s; returns reported {filled['answered']:,}")
            print(f"memory of that process at most {filled['peak']:.0f} MB")
            print(
                f"memory of what waits {filled['columns']:.0f} MB, {filled['each']} bytes each; "
                f"last snapshot {filled['snapshot']:.0f} ms, {filled['snapshot_bytes']:,} bytes"
            )
        size_ = sum(file.stat().st_size for file in (folder / "state").iterdir())
        print(f"log {size_ / 1e9:.2f} GB, {size_ / n:.0f} bytes a decision")
        alone = Served(Path(empty))
        base, idle = alone.memory()["VmRSS"], alone.processor()
        alone.end()
        found = serve(folder)
        print(f"\n{found['state']}")
        print(
            f"start in {found['start']:.1f} s (on an empty log {alone.seconds:.1f} s), of the ",
            end="",
        )
        print(f"processor {found['processor']:.1f} s ({idle:.1f} s)")
        for when in ("at start", "after"):
            now, most = found[when]["VmRSS"], found[when]["VmHWM"]
            each = (now - base) * 2**20 / n
            print(
                f"memory {when}: {now:.0f} MB, at most {most:.0f} MB; without a log {base:.0f} MB: "
                f"{each:.1f} bytes a decision"
            )
        for what in ("decide", "feedback", "snapshot", "metrics"):
            median, slow = found[what]
            print(f"{what}: median {median:.2f} ms, 99 % in {slow:.2f} ms")
        print(f"outcomes of reports for decisions that wait: {found['outcomes']}")
        closed = apart(close, folder, min(200, n // _CLOSES))
        print(
            f"\nread again in {closed['recovered']:.1f} s; {closed['closed']:,} decisions closed "
            f"in {closed['microseconds']:.1f} microseconds each"
        )


if __name__ == "__main__":
    main()
