"""Dual descent three ways against Frank-Wolfe: f = min of D rewards whose means are known.

Moreau (`DualDescent("euclid")`), exponential weights (`DualDescent("entropy")`), and online mirror
descent, whose weights move by the reward of each round and which is no function of the average (as
in Agrawal and Devanur, 2014; Balseiro et al., 2020). Printed: f of the mean rewards, the mean over
seeds, each with the best of five rates.

    python benchmarks/bench_dual.py [rounds] [seeds]
"""

from __future__ import annotations

import sys
import time

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.objectives import Minimum
from fairwolfe.smoothing import DualDescent

ARMS, FEATURES = 50, 10
RATES = {
    "euclid": (0.003, 0.01, 0.03, 0.1, 0.3),
    "entropy": (0.003, 0.01, 0.03, 0.1, 0.3),
    "online": (0.1, 0.3, 1.0, 3.0, 10.0),
}


def play(n: int, rounds: int, rule: str, rate: float, seed: int) -> float:
    rng, f = np.random.default_rng(seed), Minimum()
    theta = rng.random((n, FEATURES))
    smoothing = (
        None if rule == "online" else DualDescent("euclid" if rule == "euclid" else "entropy", rate)
    )
    tree = None if smoothing is None else (smoothing.tree(f, n) if rule == "entropy" else f.tree(n))
    z, mean, weights = np.zeros(n), np.zeros(n), np.full(n, 1.0 / n)
    for t in range(rounds):
        means = rng.normal(1.0 / FEATURES, 1.0 / FEATURES, (ARMS, FEATURES)) @ theta.T
        g: Vector = weights if tree is None else tree.gradient(z, rate / np.sqrt(t + 1.0))
        arm = int(np.argmax(means @ g))
        reward = means[arm] + 0.1 * np.abs(means[arm]) * rng.normal(size=n)
        if tree is None:  # mirror descent by the entropy
            weights = weights * np.exp(-rate / np.sqrt(t + 1.0) * (reward - reward.min()))
            weights /= weights.sum()
        z += (reward - z) / (t + 1.0)
        mean += (means[arm] - mean) / (t + 1.0)
    return f.value(mean)


def main(rounds: int = 3_000, seeds: int = 3) -> None:
    began = time.process_time()
    print("| D |", " | ".join(RATES), "|")
    print("|---|" + "---|" * len(RATES))
    for n in (5, 20, 100):
        cells = []
        for rule, rates in RATES.items():
            values = {
                rate: np.mean([play(n, rounds, rule, rate, seed) for seed in range(seeds)])
                for rate in rates
            }
            best = max(values, key=lambda rate: float(values[rate]))
            cells.append(f"{values[best]:.4f} (rate {best:g})")
        print(f"| {n} |", " | ".join(cells), "|", flush=True)
    spent = time.process_time() - began
    print(f"\n{rounds:,} rounds, {seeds} seeds, {spent:.0f} s of processor time")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:3]))
