"""Two servers on one PostgreSQL, a crowd that asks either, and what must be true in the end."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import threading
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

from fairwolfe.service.postgres_store import PostgresStore
from fairwolfe.service.recovery import recover, replay
from tests.service import checker, crowd
from tests.service.servers import Server, config, wait_for

LEASE = 2.0  # seconds
SLACK = 1.5  # and how much later another process leads, at most, on a machine that is not busy
_AGAIN = 2.0  # seconds after which a process that has ended is started again


class Crowd(crowd.Crowd):
    """Remembers when it was answered; a stopped server is not waited for."""

    def __init__(self, pair: Pair, clients: int, seed: int = 0) -> None:
        super().__init__(pair, clients, seed)
        self.acknowledged: list[float] = []

    def _once(self, path: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(self.server.url)
        with closing(
            http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=2)
        ) as connection:
            headers = {"content-type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            answer = response.status, json.loads(response.read())
        if answer[0] == 200:
            self.acknowledged.append(time.monotonic())
        return answer


class Node(Server):
    """A server that follows or leads; what it prints is read in a thread."""

    follows = False
    ready = 0.0  # when it began to lead

    def begin(self) -> Self:
        self.follows, self.ready = False, 0.0
        self.spawn()
        self._reader = threading.Thread(target=self._read, args=(self.process,), daemon=True)
        self._reader.start()
        return self

    def ended(self) -> int:
        self._reader.join(60)
        return super().ended()

    def said_lines(self) -> list[dict[str, Any]]:
        """The lines on stderr that are JSON: the last may be a plain sentence."""
        lines = self.errors().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def _read(self, process: Any) -> None:
        for line in process.stdout:
            word, self.url = line.split()
            if word == "follows":
                self.follows = True
            else:
                self.ready = time.monotonic()


class Pair:
    """Two servers with one log; who ends is started again, as a supervisor would.

    url: of the database; window: longer than a client may take to repeat a question, since a
    request_id is known as long
    """

    def __init__(self, folder: Path, url: str, schema: str, window: str = "4 s") -> None:
        self.database, self.schema = url, schema
        head = f'state = "{url}"\nschema = "{schema}"\nlease = "{LEASE:g} s"\n'
        text = config(window, head=f'{head}listen = "127.0.0.1:0"\n', both=False)
        self.nodes = []
        for name in ("a", "b"):
            (folder / name).mkdir(parents=True)
            self.nodes.append(Node(folder / name, text))
        self.leader, self.other = self.nodes
        self.former = ""  # the address of the leader before
        self.codes: list[int] = []  # with which processes ended by themselves
        self.took: list[tuple[float, float]] = []  # seconds until ready, and until an answer
        self._rng = random.Random(schema)
        self._tended = threading.Event()

    def __enter__(self) -> Self:
        self.leader.begin()
        wait_for(lambda: self.leader.ready, 120)
        self.other.begin()
        wait_for(lambda: self.other.follows, 120)
        self.crowd = Crowd(self, 4)
        self.crowd.start()
        self._tender = threading.Thread(target=self._tend, daemon=True)
        self._tender.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.crowd.stopping.set()
        self._tended.set()
        self._tender.join(30)
        for node in self.nodes:
            node.kill()

    @property
    def url(self) -> str:
        """Where a client asks: one in five has not heard of the new leader."""
        if self.former and self._rng.random() < 0.2:
            return self.former
        return self.leader.url

    def _tend(self) -> None:
        """Start again who has ended, and note who leads."""
        ended: dict[Node, float] = {}
        while not self._tended.wait(0.02):
            for node in self.nodes:
                process = node.process
                if process is not None and process.poll() is not None:
                    ended[node] = time.monotonic()
                    code = node.ended()
                    if code != -signal.SIGKILL:
                        self.codes.append(code)
                elif node in ended and time.monotonic() > ended[node] + _AGAIN:
                    del ended[node]
                    node.begin()
            newest = max(self.nodes, key=lambda node: node.ready)
            if newest is not self.leader:
                self.former = self.leader.url
                self.leader, self.other = newest, self.leader

    def both(self) -> None:
        """Wait until one leads and the other follows."""
        wait_for(lambda: self._answers() and self.other.follows and not self.other.ready, 120)

    def _answers(self) -> bool:
        return bool(self.leader.ready) and self.answered(time.monotonic() - 0.5)

    def answered(self, since: float) -> bool:
        """Whether anybody was answered since then."""
        return bool(self.crowd.acknowledged) and self.crowd.acknowledged[-1] > since

    # --- troubles -----------------------------------------------------------------------------

    def kill(self) -> None:
        """kill -9 of the leader."""
        self._lose(signal.SIGKILL)
        self.both()

    def pause(self, seconds: float) -> None:
        """The leader stands still, and wakes: it ends, since another one leads."""
        leader, count = self.leader, len(self.codes)
        began = self._lose(signal.SIGSTOP)
        time.sleep(max(0.0, began + seconds - time.monotonic()))
        os.kill(leader.pid, signal.SIGCONT)
        wait_for(lambda: len(self.codes) > count, 30)
        assert self.codes[-1] == 75, (self.codes, leader.errors()[-1000:])
        self.both()

    def _lose(self, how: signal.Signals) -> float:
        """Lose the leader; when. The other one leads then."""
        other, began = self.other, time.monotonic()
        os.kill(self.leader.pid, how)
        wait_for(lambda: other.ready > began and self.answered(other.ready), 60)
        first = next(at for at in self.crowd.acknowledged if at > other.ready)
        self.took.append((other.ready - began, first - began))
        return began

    # --- the end ------------------------------------------------------------------------------

    def finish(self) -> str:
        """Check what clients were told against the log; a sentence with what has happened."""
        self.crowd.stop(90.0)
        self.leads()
        wait_for(lambda: self.final()["open"] == 0, 60)
        final = self.final()
        self._tended.set()
        self._tender.join(30)
        for node in self.nodes:
            node.kill()
        history = self.crowd.history
        with closing(PostgresStore(self.database, self.schema)) as store:
            found = checker.violations(history, checker.read_log(store), final)
            store.refresh()
            bits = recover(store).models[0].digest()
            store.refresh()
            assert replay(store).models[0].digest() == bits
        decided = sum(event.kind == "decide" and event.answer is not None for event in history)
        entries = sum(len(e.sent) for e in history if e.kind == "feedback" and e.answer is not None)
        again = sum(self.crowd.attempts) - len(history)
        took = ", ".join(f"{ready:.2f}/{first:.2f}" for ready, first in self.took)
        words = (
            f"{decided} decisions and {entries} entries, {again} requests sent again, exit codes "
            f"{self.codes}, seconds until another leads / answers: {took or '-'}"
        )
        print(words)
        assert found == [], (found[:10], words)
        assert decided > 0
        assert all(event.answer is not None for event in history), words
        return words

    def leads(self) -> None:
        """Wait until somebody leads."""
        wait_for(lambda: self.final()["open"] >= 0, 60)

    def final(self) -> Any:
        """What the leader says of the model, whoever it is by now."""
        try:
            reply = self.leader.request("GET", "/v1/models/router", timeout=5)
        except (OSError, http.client.HTTPException):
            return {"open": -1}
        return reply.body if reply.status == 200 else {"open": -1}
