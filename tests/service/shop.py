"""A shop with 50 items, five slots and four producers, and an arms model beside it, with users who
ask and answer: what the page is shown with.
"""

from __future__ import annotations

import socket
from typing import Any

import numpy as np

from fairwolfe.environments import FactorModel, dcg
from tests.service.servers import Server, wait_for

ITEMS, SLOTS, FACTORS = 50, 5, 4
KEYS = [f"item {i + 1}" for i in range(ITEMS)]
PRODUCERS = [f"producer {'ABCD'[i % 4]}" for i in range(ITEMS)]
SHOP, ROUTER = "/v1/models/shop", "/v1/models/router"
FAIR = "TwoSided(GiniWelfare(), beta=0.5)"
_GROUPS = f"ByGroup(GiniWelfare(), labels={tuple(PRODUCERS)!r})"
CONSTRAINED = f"TwoSided({_GROUPS}, beta=0.5) + AtLeast(0.6).on('clicks')"
CONFIG = f"""
state = "state"
listen = "127.0.0.1:{{port}}"
{{head}}
[models.shop]
window = "{{window}}"
missing = "zero"
problem = {{{{ kind = "ranking", n_slots = {SLOTS}, n_features = [{FACTORS}, {FACTORS}], \
parameter_norm = {FACTORS**0.5} }}}}
objective = {{{{ name = "two-sided", items = {{{{ name = "gini-welfare" }}}}, beta = 0.5 }}}}
policy = {{{{ name = "fw-linucb-rank", exploration = 0.1 }}}}

[models.router]
window = "{{window}}"
missing = "zero"
problem = {{{{ kind = "arms", n_features = 3, \
rewards = {{{{ clicks = [0, 1], minutes = [0, 10] }}}} }}}}
objective = {{{{ name = "generalized-gini", weights = [1.0, 0.5] }}}}
policy = {{{{ name = "frank-wolfe", base = {{{{ name = "linucb", exploration = 0.1 }}}} }}}}
"""


def config(window: str = "0.3 s", head: str = "", port: int = 0) -> str:
    return CONFIG.format(window=window, head=head, port=port)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class World:
    """Users with factors; what they click follows from these."""

    def __init__(self) -> None:
        self.model = FactorModel(80, ITEMS, dcg(SLOTS), n_factors=FACTORS)
        self.arrays: Any = self.model.init(np.random.default_rng(7))
        self.rng = np.random.default_rng(8)

    def stock(self, server: Server, **headers: Any) -> None:
        features = self.model.show(self.arrays, 0).items
        items = [{"key": k, "features": f.tolist()} for k, f in zip(KEYS, features, strict=True)]
        server.post(f"{SHOP}/items", {"items": items}, **headers)

    def visit(self, server: Server, n: int = 100, **headers: Any) -> None:
        """n users come at once, and answer at once."""
        contexts = [self.model.context(self.arrays, 0, self.rng) for _ in range(n)]
        asked = {"requests": [{"user": one.user.tolist()} for one in contexts]}
        made = server.post(f"{SHOP}/decide_many", asked, **headers)
        entries = []
        for context, decided in zip(contexts, made, strict=True):
            ranking = np.array([KEYS.index(key) for key in decided["items"]])
            shown = self.model.feedback(self.arrays, context, ranking, self.rng)
            keys = decided["items"]
            seen = [k for k, yes in zip(keys, shown.exposed, strict=True) if yes]
            liked = [k for k, x in zip(keys, shown.rewards[:, 0], strict=True) if x]
            entries.append({"id": decided["id"], "exposed": seen, "clicked": liked})
        server.post(f"{SHOP}/feedback", entries, **headers)

    def route(self, server: Server, n: int = 100) -> None:
        """n questions of the arms model, answered."""
        arms = self.rng.uniform(0.0, 0.5, (n, 4, 3))
        asked = {"requests": [{"arms": one.tolist()} for one in arms]}
        made = server.post(f"{ROUTER}/decide_many", asked)
        entries = []
        for one, decided in zip(arms, made, strict=True):
            x = one[decided["arm"]]
            earned = {"clicks": float(self.rng.random() < x[0]), "minutes": float(10 * x[1])}
            entries.append({"id": decided["id"], "rewards": earned})
        server.post(f"{ROUTER}/feedback", entries)


def filled(server: Server, rounds: int = 6, objective: str | None = None) -> World:
    """A server with items and some history, at rest."""
    world = World()
    world.stock(server)
    if objective is not None:
        reply = server.request("PUT", f"{SHOP}/objective", {"objective": objective}, if_match="*")
        assert reply.status == 200, reply
    for i in range(rounds):
        world.visit(server)
        world.route(server)
        if i == rounds // 2:  # so that curves have more than one point
            known = points(server)
            wait_for(lambda known=known: points(server) > known)
    rest(server)
    return world


def points(server: Server) -> int:
    """How long the history of the shop is."""
    return len(server.get(f"{SHOP}/history")["points"])


def rest(server: Server) -> None:
    """Wait until all windows have closed."""
    for path in (SHOP, ROUTER):
        wait_for(lambda path=path: server.get(path)["open"] == 0)
