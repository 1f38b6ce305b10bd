"""Agents and loops against another source tree, in alternating turns.

    python benchmarks/bench_engine.py --against ../older/src [--turns 9]

One process for each tree; times are of the processor, and ratios are of neighbouring turns. `act +
update` and batches go through `fw.Agent`, loops are `fw.simulate`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.core.feedback import Shown
from fairwolfe.environments import FactorModel, Mehrotra, dcg
from fairwolfe.objectives import AtMost, GiniWelfare, Linear, TwoSided
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.smoothing import Moreau

_BATCH = 64
_SINGLES, _BATCHES = 400, 20
CASES = (
    "act + update, 50 arms, 12 features",
    "act + update, 10 of 50 items",
    "batches of 64, 50 arms",
    "batches of 64, 10 of 50 items",
    "loop, 50 arms",
    "loop, 10 of 50 items",
    "loop, 10 of 2,500 items",
)


def arms_case() -> tuple[Any, Any, Any, Any]:
    rewards: Any = {"clicks": (0, 1), "minutes": (0, 120), "cost": (0, 0.05)}
    problem = fw.Problem.arms(12, rewards)
    policy = fw.FrankWolfe(
        Linear({"clicks": 1.0, "minutes": 0.5}) + AtMost({"cost": 0.01}),
        LinUCB(exploration="theorem"),
    )
    rng = np.random.default_rng(0)
    contexts = rng.random((_BATCH, 50, 12)) / 4
    return policy, problem, contexts, rng.random((_BATCH, 3)) * [1.0, 120.0, 0.05]


def ranking_case(n_items: int = 50) -> tuple[Any, Any, Any, Any, Any]:
    policy = FWLinUCBRank(
        TwoSided(GiniWelfare(), beta=0.5), smoothing=Moreau(1.0), exploration=0.1, ridge=0.1
    )
    world = FactorModel(50, n_items, dcg(10), n_factors=10)
    drawn = world.init(np.random.default_rng(0))
    rng = np.random.default_rng(0)
    users = drawn.users[rng.integers(50, size=_BATCH)]
    seen = (rng.random((_BATCH, 10)) < drawn.weights[0]) * 1.0
    clicks = seen[:, :, None] * (rng.random((_BATCH, 10, 1)) < 0.3)
    return policy, world.problem(), drawn.items.copy(), users, (seen, clicks)


def sides() -> dict[str, Callable[[], int]]:
    """What is timed by name: a call plays some decisions, and gives their number."""
    policy, problem, contexts, rewards = arms_case()
    ranker, ranking, items, users, (seen, clicks) = ranking_case()
    made: dict[str, Callable[[], int]] = {}
    agent, ranked = fw.Agent(policy, problem), fw.Agent(ranker, ranking, items=items)

    def single_arms() -> int:
        for i in range(_SINGLES):
            agent.update(agent.act(contexts[i % _BATCH]), rewards[i % _BATCH])
        return _SINGLES

    def many_arms() -> int:
        for _ in range(_BATCHES):
            agent.update_many(agent.act_many(contexts), rewards)
        return _BATCHES * _BATCH

    def single_lists() -> int:
        for i in range(_SINGLES):
            j = i % _BATCH
            ranked.update(ranked.act(users[j]), Shown(seen[j], clicks[j]))
        return _SINGLES

    def many_lists() -> int:
        for _ in range(_BATCHES):
            ranked.update_many(ranked.act_many(users), Shown(seen, clicks))
        return _BATCHES * _BATCH

    made |= dict(zip(CASES[:4], (single_arms, single_lists, many_arms, many_lists), strict=True))
    world = Mehrotra(n_arms=50, n_objectives=5, n_features=10)
    bandit = fw.FrankWolfe(world.objective(), LinUCB(exploration=0.1, ridge=0.1), Moreau(0.01))
    few = FactorModel(50, 50, dcg(10), n_factors=10)
    many = FactorModel(1892, 2500, dcg(10), n_factors=10)

    def loop(policy: Any, world: Any, rounds: int) -> Callable[[], int]:
        def play() -> int:
            fw.simulate(policy, world, rounds, checkpoints=[rounds], scalar_regret=False)
            return rounds

        return play

    made[CASES[4]] = loop(bandit, world, 20_000)
    made[CASES[5]] = loop(ranker, few, 20_000)
    made[CASES[6]] = loop(ranker, many, 8_000)
    return made


def work() -> None:
    """Answer each line, the name of a case, with processor microseconds a decision."""
    made = sides()
    for line in sys.stdin:
        began = process_time()
        n = made[line.strip()]()
        print(json.dumps((process_time() - began) / n * 1e6), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--against", type=Path, help="the src folder of another source tree")
    parser.add_argument("--turns", type=int, default=9)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        work()
        return
    here = Path(__file__).parents[1] / "src"
    trees = {"new": here} | ({"old": given.against.resolve()} if given.against else {})
    workers = {}
    for name, source in trees.items():
        environment = os.environ | {"PYTHONPATH": str(source), "FAIRWOLFE_QUIET": "1"}
        command = [sys.executable, __file__, "--worker"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        workers[name] = subprocess.Popen(command, env=environment, **pipes)
    try:
        for case in CASES:
            times: dict[str, list[float]] = {name: [] for name in workers}
            for turn in range(given.turns + 1):  # the first turn warms up
                order = list(workers) if turn % 2 == 0 else list(workers)[::-1]
                for name in order:
                    worker: Any = workers[name]
                    worker.stdin.write(f"{case}\n")
                    worker.stdin.flush()
                    seconds = json.loads(worker.stdout.readline())
                    if turn:
                        times[name].append(seconds)
            line = f"{case:38s} new {statistics.median(times['new']):8.2f} us"
            if "old" in times:
                pairs = zip(times["new"], times["old"], strict=True)
                ratios = sorted(new / old for new, old in pairs)
                line += f"  old {statistics.median(times['old']):8.2f} us"
                line += (
                    f"  ratio {statistics.median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
                )
            print(line, flush=True)
    finally:
        for worker in workers.values():
            worker.kill()


if __name__ == "__main__":
    main()
