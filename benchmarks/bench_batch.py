"""`act_many` and `update_many` of 64 contexts over one round of the compiled loop, per decision.

    python benchmarks/bench_batch.py [--turns N]

All sides play in turns in one process; times are of the processor, and the lowest of the turns is
reported, since other work on a machine only makes a turn longer.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np

from fairwolfe.agent import Agent
from fairwolfe.bandits import LinUCB
from fairwolfe.core.feedback import Shown
from fairwolfe.core.streams import stream
from fairwolfe.environments import Mehrotra
from fairwolfe.lab import bench as speed
from fairwolfe.reduction import FrankWolfe
from fairwolfe.smoothing import Moreau

_ROWS = 64
_CALLS = 8  # in a turn, so that what a turn begins with does not count
_SINGLE = 200
_ROUNDS = 500


def cases() -> dict[str, tuple[Any, Any]]:
    """By size: a policy and a world."""
    few = Mehrotra(n_arms=4, n_objectives=2, n_features=5)
    small = FrankWolfe(few.objective(), LinUCB(exploration=0.1, ridge=0.1), Moreau(0.01))
    large, _, ranks, many = speed.CASES
    return {
        "4 arms, 5 features": (small, few),
        "50 arms, 10 features": (large.policy, large.environment),
        "10 of 50 items, 10 factors": (ranks.policy, ranks.environment),
        "10 of 2,500 items, 10 factors": (many.policy, many.environment),
    }


def sides(policy: Any, environment: Any) -> dict[str, tuple[Callable[[int], Any], int]]:
    """What is timed, and how many decisions it is for."""
    problem = environment.problem()
    world = environment.init(stream(0, "world"))
    rng = np.random.default_rng(0)
    singles = [environment.context(world, t, rng) for t in range(_ROWS)]
    items = singles[0].items if problem.n_items else None
    agent = Agent(policy, problem, items=items)
    stacked = np.array([c.user if problem.n_items else c for c in singles])
    if problem.n_items:
        exposed = (rng.random((_ROWS, problem.n_slots)) < 0.5).astype(float)
        earned = exposed[:, :, None] * (rng.random((_ROWS, problem.n_slots, 1)) < 0.3)
        answers: Any = Shown(exposed, earned)
    else:
        answers = rng.uniform(problem.low, problem.high, (_ROWS, len(problem.rewards)))
    for _ in range(50):
        agent.update_many(agent.act_many(stacked), answers)
    made: list[Any] = []

    def act(n: int) -> None:
        for _ in range(_CALLS):
            made.append(agent.act_many(stacked))

    def update(n: int) -> None:
        for _ in range(_CALLS):
            agent.update_many(made.pop(), answers)

    def read(n: int) -> None:
        batch = agent.act_many(stacked[:1])
        for _ in range(n):
            batch[0]

    compiled = speed.compiled_side(speed.aged(policy, environment))
    return {
        "compiled": (compiled, _ROUNDS),
        "act_many": (act, _CALLS * _ROWS),
        "update_many": (update, _CALLS * _ROWS),
        "read": (read, _SINGLE),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=60)
    turns = parser.parse_args().turns
    for name, (policy, environment) in cases().items():
        taken = list(islice(speed.turns(sides(policy, environment)), turns))
        low = {side: min(turn[side] for turn in taken) for side in taken[0]}
        print(f"{name}: a compiled round takes {low['compiled']:.1f} us")
        for side in ("act_many", "update_many"):
            print(f"  {side}: {low[side]:.2f} us, {low[side] / low['compiled']:.2f} rounds")
        print(f"  reading a Decision: {low['read']:.1f} us")


if __name__ == "__main__":
    main()
