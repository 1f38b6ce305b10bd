"""The service with more than it can take: is what it holds bounded, is anything lost?

    python benchmarks/overload_service.py [--seconds 60] [--idle 10000]

First capacity is measured with 64 connections; then wrk (Debian's package of that name) asks with
so many connections that at least three times as much is asked as can be decided, and what may wait
is kept low. Every half second the metrics are read: what was received must equal what was answered,
given up and is under way. At the end as many decisions must be in the log as were answered with
200. Then connections that are idle, or have sent half a request, are opened, and others must be
served meanwhile. Runs in the source tree, since it uses the servers of tests/service; loopback
only.
"""

from __future__ import annotations

import argparse
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import quantiles

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.service.raw import connect
from tests.service.servers import Server, config
from tests.service.test_p15_overload import DECIDE, FILLED, WHOLE, conserved, memory

SCRIPT = """
wrk.method = "POST"
wrk.path = "/v1/models/router/decide"
wrk.headers["content-type"] = "application/json"
wrk.body = '{"arms": [[0.1, 0.2, 0.3, 0.0, 0.1], [0.2, 0.1, 0.0, 0.3, 0.1]]}'
"""
LIMITS = """
state = "state"
listen = "127.0.0.1:0"
[limits]
waiting = 512
seconds = 5.0
"""


def load(server: Server, script: Path, connections: int, seconds: int) -> tuple[int, int, float]:
    """How many requests were answered, how many of them were refused, and how many a second."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script), server.url]
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=seconds + 60
    ).stdout
    sent = re.search(r"(\d+) requests in", told)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", told)
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", told)
    assert sent
    assert rate
    return int(sent[1]), int(refused[1]) if refused else 0, float(rate[1])


class Scrapes:
    """The metrics, read every half second, and the memory beside them."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.count = 0
        self.most = 0.0
        self.error: BaseException | None = None
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Scrapes:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            self._end.wait(3.0)  # while 2,000 clients connect at once, others may wait for theirs
            while not self._end.wait(0.5):
                conserved(self.server.get("/metrics").decode())
                self.count += 1
                self.most = max(self.most, memory(self.server.pid))
        except BaseException as error:
            self.error = error


def three_times(server: Server, script: Path, seconds: int) -> None:
    """Print what came of more than can be decided."""
    _, refused, capacity = load(server, script, 32, 5)
    assert not refused, "32 connections are not too many"
    before = memory(server.pid)
    with Scrapes(server) as scrapes:
        sent, refused, rate = load(server, script, 2000, seconds)
    _, answered = conserved(server.get("/metrics").decode())
    decisions = server.get("/v1/models/router")["decisions"]
    assert decisions == answered["decide 200"], "a decision was lost, or made twice"
    accepted = (sent - refused) / sent * rate
    print(
        f"{seconds} s at {rate:,.0f} requests a second, {rate / accepted:.1f} times what was "
        f"decided ({accepted:,.0f} a second; {capacity:,.0f} without overload): {sent:,} sent, "
        f"{sent - refused:,} accepted, {refused:,} refused with 429; {decisions:,} decisions in "
        f"the log, as many as answered with 200; received = answered + given up + under way at all "
        f"{scrapes.count} scrapes; memory {before:.0f} MB before, {scrapes.most:.0f} MB at most"
    )


def idle_and_slow(server: Server, count: int) -> None:
    """Print how others are served beside connections that are idle or slow."""
    held: list[socket.socket] = []
    began = time.monotonic()
    for i in range(count):
        one = connect(server)
        if i % 4 == 0:
            one.sendall(FILLED[:8000])
        elif i % 4 == 1:
            one.sendall(WHOLE[:20])
        held.append(one)
    opened = time.monotonic() - began
    taken = []
    for _ in range(500):
        began = time.perf_counter()
        reply = server.request("POST", DECIDE, {"arms": [[0.1] * 5]})
        taken.append(time.perf_counter() - began)
        assert reply.status == 200, reply
    for one in held:
        one.close()
    cuts = quantiles(taken, n=100)
    print(
        f"beside {count:,} connections (opened in {opened:.1f} s; a quarter with half a body, a "
        f"quarter with half a head, half of them idle): 500 of 500 others served, p50 "
        f"{cuts[49] * 1e3:.1f} ms, p99 {cuts[98] * 1e3:.1f} ms, memory {memory(server.pid):.0f} MB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--idle", type=int, default=10_000)
    asked = parser.parse_args()
    if shutil.which("wrk") is None:
        raise SystemExit("This needs wrk: apt install wrk")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        script = folder / "ask.lua"
        script.write_text(SCRIPT)
        with Server(folder, config("2 s", head=LIMITS, both=False)) as server:
            three_times(server, script, asked.seconds)
            idle_and_slow(server, asked.idle)
            assert server.stop() == 0


if __name__ == "__main__":
    main()
