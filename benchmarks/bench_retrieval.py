"""Two stages: what f loses where an index retrieves 1,000 of 100,000 items, which the agent ranks.

    python benchmarks/bench_retrieval.py [--items 100000] [--rounds 1500]

The index is exact: the 1,000 items of largest estimated value, by NumPy; or of largest value + g,
g = agent.direction(). All play the same users and clicks; f = clicks + beta GiniWelfare(exposures).
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.objectives import GiniWelfare, TwoSided
from fairwolfe.ranking import FWLinUCBRank

D, SLOTS, BETA = 10, 10, 0.5
USERS = 2  # topics that users come for, of the 200 that items have
KINDS = ("all items", "value", "value + g")


def play(kind: str, m: int, rounds: int, retrieved: int, seed: int) -> dict[str, float]:
    """f, clicks, and how many items were shown, after some rounds."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(200, D))

    def of_topics(n: int, most: int = 200) -> Any:
        rows = topics[rng.integers(most, size=n)] + 0.5 * rng.normal(size=(n, D))
        return rows / np.linalg.norm(rows, axis=1)[:, None]

    items = of_topics(m) * (0.3 + 0.7 * rng.random((m, 1)))
    taste = rng.normal(size=(D, D)) / D
    policy = FWLinUCBRank(TwoSided(GiniWelfare(), beta=BETA), exploration=0.1, exposure="shown")
    agent = fw.Agent(policy, fw.Problem.ranking(m, SLOTS, (D, D)), items=items)
    users, coins = of_topics(rounds, USERS), rng.random((rounds, SLOTS))
    spent = 0.0
    for user, draws in zip(users, coins, strict=True):
        before = time.thread_time()
        candidates = None
        if kind != KINDS[0]:
            with agent.held() as running:
                theta = running.state.theta[0, 0].reshape(D, D)
                scores = items @ (user @ theta)
            if kind == KINDS[2]:
                g = agent.direction()
                scores = g[-1] * scores + g[:-1]
            candidates = np.argpartition(scores, -retrieved)[-retrieved:]
        decision = agent.act(user, candidates=candidates)
        spent += time.thread_time() - before
        shown = decision.action
        chances = 0.1 + 0.4 / (1.0 + np.exp(-8.0 * items[shown] @ (user @ taste)))
        agent.update(decision, clicked=shown[draws < chances].tolist())
    used = int(np.count_nonzero(agent.average[:-1]))
    clicks = agent.averages["clicks"]
    return {"f": agent.value, "clicks": clicks, "items": used, "ms": 1e3 * spent / rounds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=1_500)
    parser.add_argument("--retrieved", type=int, default=1_000)
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    print(f"{'candidates':>12} {'f':>8} {'clicks':>8} {'items shown':>12} {'ms':>8}")
    for kind in KINDS:
        rows = [
            play(kind, given.items, given.rounds, given.retrieved, seed)
            for seed in range(given.seeds)
        ]
        f, clicks, items, ms = (np.mean([row[key] for row in rows]) for key in rows[0])
        print(f"{kind:>12} {f:8.3f} {clicks:8.3f} {items:12.0f} {ms:8.2f}", flush=True)


if __name__ == "__main__":
    main()
