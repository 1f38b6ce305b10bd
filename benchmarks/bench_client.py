"""What a question weighs on the wire, what dictionaries cost, and what a buffer saves.

    python benchmarks/bench_client.py [--turns N]

Questions: bytes of a body with 50 arms of 10 features, and the processor time to write it in the
client and to read it in the service; the same for arms and a context as dictionaries, which the
service encodes. Feedback: entries a second, one call each, and by a buffer,
whose time is up to the last acknowledgement. Sides take turns in one process; the median of the
turns is reported. Runs in the source tree, since it uses the servers of tests/service.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from fairwolfe.client import Client, calls
from fairwolfe.service import wire
from fairwolfe.service.config import parse, setup
from fairwolfe.service.model import Model
from tests.service.servers import Server, config

N_ARMS, N_FEATURES = 50, 10
CALLS, ENTRIES = 300, 2_000


def seconds(work: Callable[[], Any], times: int, clock: Callable[[], float]) -> float:
    began = clock()
    for _ in range(times):
        work()
    return (clock() - began) / times


def questions(turns: int) -> None:
    arms = np.random.default_rng(0).uniform(-1.0, 1.0, (N_ARMS, N_FEATURES))
    listed = arms.tolist()

    def body(packed: bool) -> bytes:
        return calls.decide("router", arms=arms, request_id="r", packed=packed).body or b""

    def json() -> bytes:
        return msgspec.json.encode({"request_id": "r", "arms": listed})

    def array(asked: Any) -> Any:
        return wire._matrix(asked.arms, asked, wire.RequestLimits())

    sides: dict[str, tuple[Callable[[], bytes], str]] = {
        "JSON": (json, wire.JSON),
        "MessagePack": (lambda: body(False), wire.MSGPACK),
        "MessagePack, packed=True": (lambda: body(True), wire.MSGPACK),
    }
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, (write, form) in sides.items():
            data = write()

            def read(data: bytes = data, form: str = form) -> Any:
                return array(wire.decode(data, form, wire.Decide))

            pair = (
                seconds(write, 200, time.process_time),
                seconds(read, 200, time.process_time),
            )
            taken[name].append(pair)
    print(f"a question with {N_ARMS} arms of {N_FEATURES} features")
    for name, (write, _) in sides.items():
        wrote, was_read = (1e6 * median(pair[i] for pair in taken[name]) for i in (0, 1))
        print(f"  {name}: {len(write()):,} bytes, write {wrote:.0f} us, read {was_read:.0f} us")
    error = np.abs(arms - arms.astype(np.float32)).max()
    print(f"  packed numbers are off by at most {error:.1e}")


ENCODED = """
state = "state"
[models.shop]
missing = "zero"
problem = { kind = "arms", n_features = 32, rewards = { clicks = [0, 1] } }
policy = { name = "frank-wolfe", objective = { name = "minimum" }, base = { name = "squarecb" } }
[models.shop.features]
ranges = { price = [0, 100], rating = [0, 5], age = [18, 90] }
n_names = 5
"""
CONTEXT = {"age": 31, "country": "DE", "member": True}


def dictionaries(turns: int) -> None:
    model = Model(0, "bench", setup(parse(ENCODED), "shop"))
    rng = np.random.default_rng(0)
    print("arms of five fields and a context of three, JSON, 32 features: to read, service")
    for n_arms in (4, 10, 50):
        arms = {
            f"sku-{i}": {
                "price": float(rng.uniform(0, 100)),
                "rating": float(rng.uniform(0, 5)),
                "category": f"category {rng.integers(20)}",
                "maker": f"maker {rng.integers(40)}",
                "sale": bool(rng.random() < 0.3),
            }
            for i in range(n_arms)
        }
        rows = rng.uniform(-0.1, 0.1, (n_arms, 32)).tolist()
        forms = {
            "numbers in lists": {"arms": rows},
            "numbers by name": {"arms": dict(zip(arms, rows, strict=True))},
            "dictionaries": {"arms": arms},
            "dictionaries and a context": {"arms": arms, "context": CONTEXT},
        }
        taken: dict[str, list[float]] = {name: [] for name in forms}
        for _ in range(turns):
            for name, form in forms.items():
                data = msgspec.json.encode(form)

                def read(data: bytes = data) -> Any:
                    return wire.decision_request(wire.decode(data, wire.JSON, wire.Decide), model)

                taken[name].append(seconds(read, 200, time.process_time))
        times = (f"{name} {1e6 * median(each):.0f} us" for name, each in taken.items())
        print(f"  {n_arms} arms: {', '.join(times)}")


def feedback(turns: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        text = config("600 s", both=False)
        with Server(Path(folder), text) as server, Client(server.url) as client:

            def decided(count: int) -> Any:
                asked = [{"arms": [[0.1] * 5, [0.2] * 5]}] * 250
                return [
                    d for _ in range(count // 250 + 1) for d in client.decide_many("router", asked)
                ]

            one, many = [], []
            for _ in range(turns):
                made = iter(decided(CALLS))
                one.append(
                    seconds(
                        lambda made=made: client.feedback(next(made), {"clicks": 1}),  # type: ignore[misc]
                        CALLS,
                        time.perf_counter,
                    )
                )
                told = decided(ENTRIES)[:ENTRIES]
                began = time.perf_counter()
                with client.buffer() as buffer:
                    for each in told:
                        buffer.feedback(each, {"clicks": 1})
                many.append((time.perf_counter() - began) / ENTRIES)
                assert buffer.outcomes == {"joined": ENTRIES}
    single, batched = median(one), median(many)
    print("feedback, acknowledged and durable")
    print(f"  one call each: {1 / single:,.0f} entries a second")
    print(
        f"  by a buffer: {1 / batched:,.0f} entries a second, {single / batched:.1f} times as many"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    questions(turns)
    dictionaries(turns)
    feedback(turns)


if __name__ == "__main__":
    main()
