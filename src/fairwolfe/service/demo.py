"""`fairwolfe serve --demo`: an embedded world, a crowd of simulated users, and nothing to write.

The crowd are threads that use the client over HTTP, as a shop would: they ask for a ranking, look
at some of it, and report what they saw and clicked, a little later or not at all.
"""

from __future__ import annotations

import logging
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from fairwolfe.client import Client
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.errors import FairwolfeError
from fairwolfe.service.config import parse
from fairwolfe.service.routes import Service
from fairwolfe.service.serve import run

_MODEL = "music"
_CROWD = 2  # threads
_USERS, _ITEMS, _SLOTS, _FACTORS = 100, 30, 5, 4
_LOST = 0.05  # of the reports never come
_PAUSE = 0.005  # seconds between two questions of a thread
_STATUS = 2.0  # seconds between two lines
_CONFIG = f"""
state = "state"
[models.{_MODEL}]
window = "2 s"
missing = "zero"
problem = {{ kind = "ranking", n_slots = {_SLOTS}, n_features = [{_FACTORS}, {_FACTORS}], \
parameter_norm = {_FACTORS**0.5} }}
objective = {{ name = "two-sided", items = {{ name = "gini-welfare" }}, beta = 0.5 }}
policy = {{ name = "fw-linucb-rank", exploration = 0.1 }}
"""

logger = logging.getLogger("fairwolfe.service")


class Crowd:
    """Users of a music-like world who ask, look and click, each thread for itself."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.ended = threading.Event()
        self.world = FactorModel(_USERS, _ITEMS, dcg(_SLOTS), n_factors=_FACTORS)
        self.arrays: Any = self.world.init(stream(0, "world"))
        self.keys = [f"song {i + 1}" for i in range(_ITEMS)]
        self.numbers = {key: i for i, key in enumerate(self.keys)}

    def start(self) -> None:
        """Add the items, then let the users come; threads end with the process."""
        self._spawn(self._begin)

    def _spawn(self, work: Callable[[Client], None]) -> None:
        """Do something with a client on a thread, until it fails."""

        def run() -> None:
            try:
                with Client(self.address, deadline=10.0) as client:
                    work(client)
            except FairwolfeError as error:
                if not self.ended.is_set():
                    logger.warning("the crowd has gone: %s", error)
                    self.ended.set()

        threading.Thread(target=run, daemon=True).start()

    def _begin(self, client: Client) -> None:
        items = self.world.show(self.arrays, 0).items
        client.add_items(_MODEL, dict(zip(self.keys, items, strict=True)))
        for number in range(_CROWD):
            self._spawn(partial(self._visits, stream(0, "crowd", number)))
        while not self.ended.wait(_STATUS):
            print(client.live(_MODEL)["sentence"], flush=True)

    def _visits(self, rng: np.random.Generator, client: Client) -> None:
        while not self.ended.wait(_PAUSE):
            self._visit(client, rng)

    def _visit(self, client: Client, rng: np.random.Generator) -> None:
        context = self.world.context(self.arrays, 0, rng)
        decided = client.decide(_MODEL, user=context.user)
        ranking = np.array([self.numbers[key] for key in decided.items or ()])
        shown = self.world.feedback(self.arrays, context, ranking, rng)
        if rng.random() < _LOST:
            return
        keys = decided.items or []
        exposed = [key for key, yes in zip(keys, shown.exposed, strict=True) if yes]
        clicked = [key for key, earned in zip(keys, shown.rewards[:, 0], strict=True) if earned]
        client.feedback(decided, exposed=exposed, clicked=clicked)


def run_demo(listen: str) -> None:
    """Serve the world to its crowd until SIGTERM or Ctrl-C."""
    crowds: list[Crowd] = []

    def begin(address: str, service: Service) -> None:
        print(f"a crowd of simulated listeners asks for music; look at {address}", flush=True)
        crowds.append(Crowd(address))
        crowds[0].start()

    with tempfile.TemporaryDirectory(prefix="fairwolfe-demo-") as folder:
        try:
            run(parse(_CONFIG, folder, listen, "the demo"), begin)
        finally:
            for crowd in crowds:
                crowd.ended.set()
