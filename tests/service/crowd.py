"""Clients that retry, repeat and shuffle, and remember what they sent and what they were told."""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from typing import Any, NamedTuple
from urllib.parse import urlsplit

PAUSE = 0.1  # seconds after a failed attempt
RANKED = ("front", "aisle")


class Event(NamedTuple):
    """One request of a client, and the last answer to it; None where none ever came.

    began, ended: when it was first sent, and answered, by a monotonic clock
    """

    kind: str  # decide, feedback or read
    sent: Any
    answer: Any
    model: str = "router"
    began: float = 0.0
    ended: float = 0.0


class Crowd:
    """Threads that play a shop against a server that may die at any moment.

    models: whom they ask; those of RANKED rank items, the others choose among arms; now and then
    both rewards of these come in one entry
    """

    def __init__(
        self,
        server: Any,
        clients: int = 4,
        seed: int = 0,
        models: tuple[str, ...] = ("router",),
    ) -> None:
        self.server, self.models = server, models
        self.stopping = threading.Event()
        self.histories: list[list[Event]] = [[] for _ in range(clients)]
        self.attempts = [0] * clients
        self.errors: list[BaseException] = []
        self.threads = [
            threading.Thread(target=self._run, args=(i, random.Random(f"{seed}-{i}")), daemon=True)
            for i in range(clients)
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def stop(self, seconds: float = 60.0) -> None:
        """No new questions; what was begun is finished."""
        self.stopping.set()
        for thread in self.threads:
            thread.join(seconds)
            assert not thread.is_alive(), "a client hangs"
        assert not self.errors, self.errors

    @property
    def history(self) -> list[Event]:
        return [event for own in self.histories for event in own]

    def _run(self, me: int, rng: random.Random) -> None:
        try:
            pending: dict[str, list[dict[str, Any]]] = {name: [] for name in self.models}
            while not self.stopping.is_set():
                name = rng.choice(self.models)
                self._decide(me, rng, name, pending[name])
                self._report(me, rng, name, pending[name], rng.randrange(4))
            for name, left in pending.items():
                self._report(me, rng, name, left, len(left))
        except BaseException as error:
            self.errors.append(error)

    def _decide(
        self, me: int, rng: random.Random, model: str, pending: list[dict[str, Any]]
    ) -> None:
        body: dict[str, Any] = {"request_id": f"{me}-{rng.random()}"}
        if model in RANKED:
            body["user"] = [rng.uniform(-0.4, 0.4) for _ in range(4)]
        else:
            body["arms"] = [[rng.uniform(-0.3, 0.3) for _ in range(5)] for _ in range(3)]
        answer = self._ask(me, "decide", model, body)
        if answer is None or rng.random() < 0.1:  # some never report
            return
        if model in RANKED:
            seen = answer["items"][: rng.randrange(1, 4)]
            parts = [{"exposed": seen}, {"clicked": rng.sample(seen, rng.randrange(2))}]
            if model == "aisle":
                parts.append({"rewards": {"minutes": {key: rng.randrange(4) for key in seen}}})
        else:
            earned = ({"clicks": rng.randrange(2)}, {"minutes": rng.randrange(11)})
            parts = [{"rewards": part} for part in earned]
            if rng.random() < 0.3:
                parts.append({"rewards": earned[0] | earned[1]})
        for part in parts:
            pending += [{"id": answer["id"], **part}] * rng.choice((1, 1, 2, 3))
        rng.shuffle(pending)

    def _report(
        self,
        me: int,
        rng: random.Random,
        model: str,
        pending: list[dict[str, Any]],
        count: int,
    ) -> None:
        while count > 0 and pending:
            some = [pending.pop() for _ in range(min(len(pending), rng.randrange(1, 5)))]
            self._ask(me, "feedback", model, some)
            count -= len(some)

    def _ask(self, me: int, kind: str, model: str, body: Any) -> Any:
        began = time.monotonic()
        answer = self._until_answered(me, f"/v1/models/{model}/{kind}", body)
        event = Event(kind, body, answer, model, began, time.monotonic())
        self.histories[me].append(event)
        return answer

    def _until_answered(self, me: int, path: str, body: Any) -> Any:
        """Send it until it is answered; a lost connection, 429 and 503 mean again."""
        end = time.monotonic() + 60.0
        while time.monotonic() < end:
            self.attempts[me] += 1
            try:
                status, answer = self._once(path, body)
            except (OSError, http.client.HTTPException):
                time.sleep(PAUSE)
                continue
            if status == 200:
                return answer
            assert status in (429, 503), (status, answer)
            time.sleep(PAUSE)
        return None

    def _once(self, path: str, body: Any) -> tuple[int, Any]:
        parts = urlsplit(self.server.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port or 0, timeout=10)
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", path, json.dumps(body), headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()
