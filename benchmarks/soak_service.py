"""The service under mixed load, killed again and again: is anything lost, does memory grow?

    python benchmarks/soak_service.py --minutes 10

A server with a window of 2 s is killed with SIGKILL every 20 s and started again, while clients
decide, report in parts, in any order and more than once (some never), and a reader asks for
numbers. At the end the checker of the tests compares what clients were told with the log, and the
questions are put to one `Agent` in the order of the log, answered at once: f of both is printed.
Runs in the source tree, since it uses the checker of tests/service; ends in --minutes and a little.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import fairwolfe as fw
from fairwolfe.client import Client
from fairwolfe.core.streams import stream
from fairwolfe.service.config import parse, setup
from tests.service.checker import read_log, violations
from tests.service.crowd import Event
from tests.service.servers import Server, wait_for

CONFIG = """
state = "state"
listen = "127.0.0.1:{port}"

[models.router]
window = "2 s"
missing = "zero"
problem = {{ kind = "arms", n_features = 5, rewards = {{ clicks = [0, 1], minutes = [0, 1] }} }}
objective = {{ name = "generalized-gini", weights = [1.0, 0.5] }}
policy = {{ name = "frank-wolfe", base = {{ name = "squarecb", gamma0 = 100.0 }} }}
"""
ARMS, FEATURES = 3, 5
SILENT = 0.1  # of the questions are never answered
TASTE = np.array([[0.6, 0.2, 0.0, 0.0, 1.0], [-0.6, 0.0, 0.3, 0.0, 0.8]])  # (rewards, features)


class World:
    """What a question asks and what comes of it, by the number of the question alone."""

    def __init__(self, number: int) -> None:
        rng = stream(0, "soak", number)
        self.arms = rng.uniform(-0.4, 0.4, (ARMS, FEATURES))  # (arms, features)
        self.arms[:, -1] = 0.5  # a constant
        self.means = self.arms @ TASTE.T  # (arms, rewards)
        self.draw, self.noise, self.silence = rng.random(), rng.uniform(-0.1, 0.1), rng.random()

    def rewards(self, arm: int) -> dict[str, float]:
        """What an arm earns; nothing where nobody reports."""
        if self.silence < SILENT:
            return {"clicks": 0.0, "minutes": 0.0}
        click, minutes = self.means[arm]
        minutes = float(np.clip(minutes + self.noise, 0.0, 1.0))
        return {"clicks": float(self.draw < click), "minutes": minutes}


class Crowd:
    """Clients, each a thread, which remember what they sent and were told."""

    def __init__(self, address: str, clients: int, pause: float) -> None:
        self.address, self.pause = address, pause
        self.stopping = threading.Event()
        self.histories: list[list[Event]] = [[] for _ in range(clients)]
        self.reads = 0
        self.errors: list[BaseException] = []
        self.threads = [
            threading.Thread(target=self._guarded, args=(self._play, i, clients), daemon=True)
            for i in range(clients)
        ]
        self.threads.append(threading.Thread(target=self._guarded, args=(self._read,), daemon=True))

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        self.stopping.set()
        for thread in self.threads:
            thread.join(120.0)
        if self.errors:
            raise self.errors[0]

    def _guarded(self, what: Any, *args: Any) -> None:
        try:
            what(*args)
        except BaseException as error:
            self.errors.append(error)
            self.stopping.set()

    def _play(self, me: int, step: int) -> None:
        rng, own = random.Random(me), self.histories[me]
        pending: list[dict[str, Any]] = []
        number = me
        with Client(self.address, deadline=90.0) as client:
            while not self.stopping.wait(rng.uniform(0.5, 1.5) * self.pause):
                world = World(number)
                sent = {"arms": world.arms, "request_id": f"{number}"}
                made = client.decide("router", **sent)
                own.append(Event("decide", sent, {"id": made.id, "arm": made.arm}))
                if world.silence >= SILENT:
                    for name, earned in world.rewards(made.arm or 0).items():
                        entry = {"id": made.id, "rewards": {name: earned}}
                        pending += [entry] * rng.choice((1, 1, 2))
                    rng.shuffle(pending)
                number += step
                if len(pending) > rng.randrange(12):
                    self._report(client, own, pending[:8])
                    del pending[:8]
            if pending:
                self._report(client, own, pending)

    def _report(self, client: Client, own: list[Event], entries: list[dict[str, Any]]) -> None:
        outcomes = client.feedback_many("router", entries)
        own.append(Event("feedback", list(entries), [{"outcome": one} for one in outcomes]))

    def _read(self) -> None:
        with Client(self.address, deadline=90.0) as client:
            while not self.stopping.wait(0.5):
                client.live("router")
                client.model("router")
                self.reads += 2


def resident(pid: int) -> float:
    """Megabytes of a process (Linux)."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def in_one_agent(text: str, order: list[int]) -> fw.Agent:
    """The same questions in the order of the log, answered at once."""
    made = setup(parse(text), "router")
    agent = fw.Agent(made.make_policy(), made.make_problem(0), seed=0)
    for number in order:
        world = World(number)
        decision = agent.act(world.arms)
        agent.update(decision, world.rewards(int(decision.action)))  # type: ignore[arg-type]
    return agent


def main(minutes: float, life: float, clients: int, pause: float) -> int:
    """Play and print; 1 where the checker finds anything."""
    text = CONFIG.format(port=free_port())
    early: list[float] = []
    late: list[float] = []
    starts: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), text)
        with server:
            crowd = Crowd(server.url, clients, pause)
            crowd.start()
            end = time.monotonic() + 60.0 * minutes
            print(
                f"{'kill':>5} {'decisions':>10} {'MB early':>10} {'MB at end':>10} {'start s':>8}"
            )
            while time.monotonic() < end and not crowd.stopping.is_set():
                crowd.stopping.wait(0.25 * life)
                early.append(resident(server.pid))
                crowd.stopping.wait(0.75 * life)
                late.append(resident(server.pid))
                server.kill()
                began = time.monotonic()
                server.start()
                starts.append(time.monotonic() - began)
                count = sum(len(own) for own in crowd.histories)
                print(
                    f"{len(late):>5} {count:>10} {early[-1]:>10.1f} {late[-1]:>10.1f} "
                    f"{starts[-1]:>8.1f}",
                    flush=True,
                )
            crowd.stop()
            wait_for(lambda: server.get("/v1/models/router")["open"] == 0, 60.0)
            final = server.get("/v1/models/router")
            size = sum(path.stat().st_size for path in server.state.iterdir())
            code = server.stop()
        log = read_log(server.state)
    history = [event for own in crowd.histories for event in own]
    found = violations(history, log, final)
    told = [entry for event in history if event.kind == "feedback" for entry in event.answer]
    counts = {
        one: sum(entry["outcome"] == one for entry in told)
        for one in ("joined", "known", "late", "unknown", "conflict")
    }
    order = [int(id) for id, _ in sorted(log.requests.items(), key=lambda pair: pair[1])]
    agent = in_one_agent(text, order)
    decided = sum(event.kind == "decide" for event in history)
    print(f"{len(late)} kills, {decided} decisions acknowledged, {len(told)} entries: {counts}")
    print(f"{crowd.reads} reads; the log has {len(log.actions)} decisions in {size / 1e6:.1f} MB")
    print(f"the checker finds {len(found)} violations; exit code at SIGTERM {code}")
    third = max(len(late) // 3, 1)
    print(
        f"memory before a kill: first third {np.mean(late[:third]):.1f} MB, last third "
        f"{np.mean(late[-third:]):.1f} MB; within a life it grew by "
        f"{np.mean(np.subtract(late, early)):.1f} MB on average"
    )
    apart = final["value"] / agent.value - 1.0
    print(
        f"f: service {final['value']:.4f}, one Agent answered at once {agent.value:.4f}: "
        f"{100.0 * apart:+.2f} %"
    )
    for one in found[:10]:
        print("violation:", one)
    return 1 if found else 0


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--life", type=float, default=20.0, help="seconds between two kills")
    arguments.add_argument("--clients", type=int, default=4)
    arguments.add_argument("--pause", type=float, default=0.06, help="seconds, on average")
    given = arguments.parse_args()
    raise SystemExit(main(given.minutes, given.life, given.clients, given.pause))
