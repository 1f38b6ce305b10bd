"""What it costs in f, and saves in time, that decisions of a group share a direction.

Groups of 64 rankings for users of a factor model, decided by `Agent.propose` with a tolerance,
issued, and answered together; f = clicks + Gini welfare of exposures. Printed: f of the averages of
mean rewards by the number of rounds, and what it is more than with tolerance 0, in percent with its
standard error, paired over seeds; and the processor time of deciding, relative to tolerance 0. With
a tolerance of 1 there is one direction for a group, from the second one on.

    python benchmarks/bench_tolerance.py
    python benchmarks/bench_tolerance.py --items 2500 --rounds 30000 --seeds 2
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import time

import numpy as np

import fairwolfe as fw
from fairwolfe.environments import FactorModel
from fairwolfe.objectives import GiniWelfare, TwoSided
from fairwolfe.ranking import FWLinUCBRank

GROUP = 64
TOLERANCES = (0.0, 0.001, 0.01, 1.0)
F = TwoSided(GiniWelfare(), beta=1.0)


def play(world: FactorModel, tolerance: float, rounds: int, seed: int) -> tuple[list[float], float]:
    """f after 1/16, 1/4 and all of the rounds, and the seconds of deciding."""
    rng = np.random.default_rng(seed)
    drawn = world.init(rng)
    items = {str(i): row for i, row in enumerate(world.context(drawn, 1, rng).items)}
    policy, problem = FWLinUCBRank(F, exploration=0.1), world.problem()
    agent = fw.Agent(policy, problem, seed, items)
    total, values, spent = np.zeros(problem.n_objectives), [], 0.0
    for t in range(0, rounds, GROUP):
        contexts = [world.context(drawn, t + i + 1, rng) for i in range(GROUP)]
        users = np.array([context.user for context in contexts])
        start = time.process_time()
        made = agent.propose(users, explain=False, tolerance=tolerance)
        spent += time.process_time() - start
        agent.issue(made)
        for context, decision in zip(contexts, made, strict=True):
            total += world.mean_reward(drawn, context, decision.action)
        answers = [
            world.feedback(drawn, context, decision.action, rng)
            for context, decision in zip(contexts, made, strict=True)
        ]
        agent.update_many(made, answers)
        if t + GROUP in (rounds // 16, rounds // 4, rounds):
            values.append(float(F.value(total / (t + GROUP))))
    return values, spent


def main() -> None:
    """Play, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=16_384, help="a multiple of 1,024")
    parser.add_argument("--seeds", type=int, default=5, help="at least 2")
    given = parser.parse_args()
    rounds = max(given.rounds // (16 * GROUP), 1) * 16 * GROUP
    world = FactorModel(50, given.items)
    play(world, 0.0, 16 * GROUP, 0)  # compiles
    print(f"{given.items} items, {given.seeds} seeds, groups of {GROUP}")
    columns = " ".join(f"{f'f at {n:,}':>22}" for n in (rounds // 16, rounds // 4, rounds))
    print(f"{'tolerance':>10} {columns} {'time':>6}")
    results = {
        tolerance: [play(world, tolerance, rounds, seed) for seed in range(given.seeds)]
        for tolerance in TOLERANCES
    }
    own = np.array([values for values, _ in results[0.0]])
    for tolerance, runs in results.items():
        values = np.array([of for of, _ in runs])
        more = 100.0 * (values - own) / np.abs(own)
        errors = more.std(axis=0, ddof=1) / np.sqrt(len(runs))
        cells = [
            f"{value:10.4f} {mean:+6.3f}±{error:.3f}%"
            for value, mean, error in zip(
                values.mean(axis=0), more.mean(axis=0), errors, strict=True
            )
        ]
        ratio = sum(spent for _, spent in runs) / sum(spent for _, spent in results[0.0])
        print(f"{tolerance:>10g} {' '.join(f'{cell:>22}' for cell in cells)} {ratio:6.2f}")


if __name__ == "__main__":
    main()
