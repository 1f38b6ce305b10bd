"""The service under mixed load, killed again and again: is anything lost, does memory grow?

    python benchmarks/soak_service.py --minutes 10

A server with a window of 2 s, one model with arms and one with rankings, is killed with SIGKILL
every 20 s and started again, while clients decide, report in parts, in any order and more than once
(some never), and a reader asks for numbers. At the end the checker of the tests compares what
clients were told with the log, the log is verified and folded, and the questions about arms are put
to one `Agent` in the order of the log, answered at once: f of both is printed. Latencies are those
that a client sees, with its connection open; calls that met a server that was down are left out of
them, and counted. Runs in the source tree, since it uses the checker of tests/service; ends in
--minutes and a little.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import socket
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import fairwolfe as fw
from fairwolfe.client import Client
from fairwolfe.core.streams import stream
from fairwolfe.service.config import parse, setup
from fairwolfe.service.events import DecisionsMade, FeedbackReceived, ItemsAdded, decode
from fairwolfe.service.log_file import LogFile, place_of, verify
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

[models.front]
window = "2 s"
missing = "zero"
problem = {{ kind = "ranking", n_slots = 5, n_features = [4, 4] }}
objective = {{ name = "two-sided", items = {{ name = "gini-welfare" }}, beta = 0.5 }}
policy = {{ name = "fw-linucb-rank", exploration = 0.1 }}
"""
ARMS, FEATURES = 3, 5
ITEMS = stream(0, "soak items").uniform(-0.5, 0.5, (40, 4))
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


class Times:
    """How long calls took, by kind; those that met a server that was down are only counted."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)
        self.down = False
        self.downs = self.interrupted = 0

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        began, downs = time.perf_counter(), self.downs
        met = self.down
        yield
        if met or self.down or downs != self.downs:
            self.interrupted += 1
        else:
            self.seconds[kind].append(time.perf_counter() - began)

    def fall(self) -> None:
        self.down, self.downs = True, self.downs + 1

    def told(self) -> str:
        parts = []
        for kind, seconds in sorted(self.seconds.items()):
            middle, high, top = 1e3 * np.percentile(seconds, [50, 99, 100])
            parts.append(f"{kind} p50 {middle:.1f} p99 {high:.1f} max {top:.0f} ms")
        return f"{'; '.join(parts)}; {self.interrupted} calls met a server that was down"


class Crowd:
    """Clients, each a thread, which remember what they sent and were told."""

    def __init__(self, address: str, clients: int, pause: float) -> None:
        self.address, self.pause = address, pause
        self.times = Times()
        self.rankings: list[list[Ranked]] = [[] for _ in range(clients)]
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
                with self.times.of("decide arms"):
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
                self._rank(client, rng, number, self.rankings[me])
            if pending:
                self._report(client, own, pending)

    def _rank(self, client: Client, rng: random.Random, number: int, own: list[Ranked]) -> None:
        """A ranking, which some look at down to a slot, and report in two parts, or twice."""
        user = stream(0, "soak user", number).uniform(-0.5, 0.5, 4)
        with self.times.of("decide ranking"):
            made = client.decide("front", user=user)
        keys = made.items or []
        seen = keys[: rng.randrange(1, len(keys) + 1)] if rng.random() >= SILENT else []
        clicked = [key for key in seen if rng.random() < 0.2]
        own.append(Ranked(made.id, keys, seen, clicked, []))
        for part in ({"exposed": seen}, {"clicked": clicked, "exposed": clicked}) if seen else ():
            for _ in range(rng.choice((1, 1, 2))):
                with self.times.of("feedback"):
                    own[-1].outcomes.append(client.feedback(made, **part))

    def _report(self, client: Client, own: list[Event], entries: list[dict[str, Any]]) -> None:
        with self.times.of("feedback"):
            outcomes = client.feedback_many("router", entries)
        own.append(Event("feedback", list(entries), [{"outcome": one} for one in outcomes]))

    def _read(self) -> None:
        with Client(self.address, deadline=90.0) as client:
            while not self.stopping.wait(0.5):
                client.live("router")
                client.model("router")
                self.reads += 2


class Ranked(NamedTuple):
    """A ranking, as it was told, and what was reported of it and answered."""

    id: str
    keys: list[str]
    seen: list[str]
    clicked: list[str]
    outcomes: list[str]


def wrong_rankings(told: list[Ranked], state: Path, final: dict[str, Any]) -> list[str]:
    """What clients were told of rankings and the log does not say."""
    names: list[str] = []
    actions: dict[int, list[int]] = {}
    exposed: dict[int, set[int]] = defaultdict(set)
    clicked: dict[int, set[int]] = defaultdict(set)
    log = LogFile(place_of(state))
    for _, row in log.every_row():
        for event in decode(row.payload) if row else ():
            match event:
                case ItemsAdded(keys=keys):
                    names += keys
                case DecisionsMade(model=1, made=made):
                    actions |= enumerate(made.actions.tolist(), len(actions))
                case FeedbackReceived(model=1, numbers=numbers):
                    for entry, slot in event.exposed.tolist():
                        exposed[int(numbers[entry])].add(slot)
                    for entry, slot, _ in event.cells.tolist():
                        if slot in clicked[int(numbers[entry])]:
                            return [f"a click of decision {numbers[entry]} counts twice"]
                        clicked[int(numbers[entry])].add(slot)
    log.close()
    found = []
    for one in told:
        number = int(one.id.rpartition("-")[2])
        if [names[item] for item in actions.get(number, [])] != one.keys:
            found.append(f"ranking {one.id} was acknowledged, and the log says another")
        joined = all(outcome in ("joined", "known") for outcome in one.outcomes)
        slots = {key: slot for slot, key in enumerate(one.keys)}
        if joined and one.outcomes and exposed[number] != {slots[key] for key in one.seen}:
            found.append(f"exposures of {one.id} were acknowledged, and the log says others")
        if joined and one.outcomes and clicked[number] != {slots[key] for key in one.clicked}:
            found.append(f"clicks of {one.id} were acknowledged, and the log says others")
    if len({one.id for one in told}) != len(told):
        found.append("one ranking was given to two questions")
    if final["decisions"] != len(actions) or final["open"]:
        found.append(
            f"{len(actions)} rankings are in the log, and {final['decisions']} are counted"
        )
    return found


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
    since = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), text)
        with server:
            crowd = Crowd(server.url, clients, pause)
            with Client(server.url) as client:
                client.add_items("front", {f"i{n}": row for n, row in enumerate(ITEMS)})
            crowd.start()
            end = time.monotonic() + 60.0 * minutes
            print(
                f"{'minute':>7} {'kill':>5} {'calls':>9} {'MB early':>10} {'MB at end':>10} "
                f"{'start s':>8}"
            )
            while time.monotonic() < end and not crowd.stopping.is_set():
                crowd.stopping.wait(0.25 * life)
                early.append(resident(server.pid))
                crowd.stopping.wait(0.75 * life)
                late.append(resident(server.pid))
                crowd.times.fall()
                server.kill()
                began = time.monotonic()
                server.start()
                starts.append(time.monotonic() - began)
                crowd.times.down = False
                count = sum(len(own) for own in crowd.times.seconds.values())
                minute = (time.monotonic() - since) / 60.0
                print(
                    f"{minute:>7.1f} {len(late):>5} {count:>9} {early[-1]:>10.1f} "
                    f"{late[-1]:>10.1f} {starts[-1]:>8.1f}",
                    flush=True,
                )
            crowd.stop()
            for name in ("router", "front"):
                wait_for(lambda name=name: server.get(f"/v1/models/{name}")["open"] == 0, 60.0)
            final = server.get("/v1/models/router")
            ranked = server.get("/v1/models/front")
            replayed = [line["records"] for line in server.said() if line["event"] == "ready"]
            size = sum(path.stat().st_size for path in server.state.iterdir())
            code = server.stop()
        log = read_log(server.state)
        told_rankings = [one for own in crowd.rankings for one in own]
        rankings = wrong_rankings(told_rankings, server.state, ranked)
        opened = LogFile(place_of(server.state))
        examined = verify(opened, True, lambda _: None)
        opened.close()
    history = [event for own in crowd.histories for event in own]
    found = violations(history, log, final) + rankings + examined.wrong
    told = [entry for event in history if event.kind == "feedback" for entry in event.answer]
    counts = {
        one: sum(entry["outcome"] == one for entry in told)
        for one in ("joined", "known", "late", "unknown", "conflict")
    }
    order = [int(id) for id, _ in sorted(log.requests.items(), key=lambda pair: pair[1])]
    agent = in_one_agent(text, order)
    decided = sum(event.kind == "decide" for event in history)
    entries = len(told) + sum(len(one.outcomes) for one in told_rankings)
    print(
        f"{len(late)} kills; {decided} decisions among arms and {len(told_rankings)} rankings "
        f"acknowledged, {entries} entries of feedback; of those of arms {json.dumps(counts)}"
    )
    print(
        f"{crowd.reads} reads; the log has {examined.decisions} decisions in {examined.rows} rows, "
        f"{size / 1e6:.1f} MB; a restart replayed at most {max(replayed)} records"
    )
    print(crowd.times.told())
    print(
        f"the checker and the fold of the log find {len(found)} violations; exit code at SIGTERM "
        f"{code}"
    )
    third = max(len(late) // 3, 1)
    print(
        f"memory before a kill: first third {np.mean(late[:third]):.1f} MB, last third "
        f"{np.mean(late[-third:]):.1f} MB; within a life it grew by "
        f"{np.mean(np.subtract(late, early)):.1f} MB on average; at most {max(late):.1f} MB"
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
