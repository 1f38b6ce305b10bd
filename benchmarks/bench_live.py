"""How often the 95 % interval of `agent.live()` covers the best value, by family of worlds.

    python benchmarks/bench_live.py --runs 400

A run misses where the best value is outside of the interval. `warned` is the share of the misses
whose `live.warning` says that the interval cannot tell; `warned, all` that of all runs. Widths are
medians of high - about and about - low.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri

import fairwolfe as fw
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.objectives import AtMost, Concave, Linear, Minimum
from fairwolfe.reduction import Live

DECISIONS = 600
Draw = Callable[[int, int, np.random.Generator], Any]
"""The rewards of an arm in a context."""


class World:
    """Contexts of arms with features of their own; all of them are offered."""

    def __init__(self, f: Concave, base: Any, means: Any, draw: Draw | None = None) -> None:
        self.f, self.base = f, base
        self.means = np.asarray(means, dtype=np.float64)  # (contexts, arms, rewards)
        self.draw: Draw = draw or (lambda c, a, rng: rng.random(self.n) < self.means[c, a])
        self.high = 1.0

    @property
    def n(self) -> int:
        """The number of rewards."""
        return int(self.means.shape[2])

    def shares(self, t: int) -> Vector:
        """The probabilities of the contexts of decision t."""
        return np.full(len(self.means), 1.0 / len(self.means))

    def best(self, shares: Vector) -> float:
        """f* where contexts have these shares: that of a linear f."""
        slope = np.array([self.f._value(row) for row in np.eye(self.n)])
        return float(shares @ (self.means @ slope).max(axis=1))

    def problem(self) -> fw.Problem:
        """With the ranges of the rewards."""
        contexts, arms, n = self.means.shape
        return fw.Problem.arms(contexts * arms, {f"r{i}": (0, self.high) for i in range(n)})


class Drifting(World):
    """The first context becomes rare."""

    def shares(self, t: int) -> Vector:
        first = 0.9 - 0.8 * t / DECISIONS
        return np.array([first, 1.0 - first])


class Skewed(World):
    """Log-normal rewards, cut at the end of their range."""

    sigma = 1.5

    def __init__(self, f: Concave, base: Any, scales: Vector) -> None:
        self.scales = scales
        quantiles = (np.arange(200_000) + 0.5) / 200_000
        normal = ndtri(quantiles)
        high = 40.0
        means = [np.minimum(s * np.exp(self.sigma * normal), high).mean() for s in scales]
        super().__init__(f, base, np.array(means)[None, :, None], self._draw)
        self.high = high

    def _draw(self, c: int, a: int, rng: np.random.Generator) -> Any:
        return np.minimum(self.scales[a] * np.exp(self.sigma * rng.normal(size=1)), self.high)


class Tied(World):
    """Arm i earns reward i only: the best mixture has equal rewards."""

    def best(self, shares: Vector) -> float:
        return 0.6 / self.n


class Offers(World):
    """Clicks and margin of four offers, with at most .08 returned."""

    chances = ((0.2, 0.5, 0.01), (0.2, 0.3, 0.1), (0.35, 0.5, 0.45), (0.25, 0.4, 0.03))
    margins = (0.05, 0.28125, 0.5625, 0.09375)

    def __init__(self) -> None:
        f = Linear((1.0, 2.0, 0.0)) + AtMost(0.08).on(2)
        super().__init__(f, SquareCB(gamma0=100.0), np.zeros((1, 4, 3)), self._draw)

    def _draw(self, c: int, a: int, rng: np.random.Generator) -> Any:
        click, order, back = rng.random(3) < self.chances[a]
        bought = click and order
        return np.array([click, self.margins[a] * (bought and not back), bought and back])

    def best(self, shares: Vector) -> float:
        return 0.35 + 2.0 * 0.35 * 0.5 * 0.55 * self.margins[2]


def families() -> dict[str, tuple[World, int]]:
    """Worlds, and an arm whose tries are counted."""
    first, mean = Linear((1.0,)), Linear((0.5, 0.5))
    means = np.random.default_rng(7).uniform(0.2, 0.8, (3, 4, 2))
    drift = np.array([[[0.2], [0.3]], [[0.7], [0.5]]])
    tied = 0.6 * np.eye(4)[None]
    few = np.array([[[0.5], [0.4], [0.6]]])
    rare = np.array([[[0.001], [0.002], [0.004]]])
    return {
        "plain": (World(mean, LinUCB(exploration="pointwise"), means), 0),
        "rare rewards": (World(first, LinUCB(exploration="pointwise"), rare), 2),
        "skewed rewards": (
            Skewed(first, EpsilonGreedy(0.2), np.array([0.5, 0.7, 1.0])),
            2,
        ),
        "drifting contexts": (Drifting(first, LinUCB(exploration="pointwise"), drift), 0),
        "tied minima": (Tied(Minimum(), LinUCB(exploration="pointwise"), tied), 0),
        "an arm tried under 30 times": (World(first, EpsilonGreedy(0.02), few), 2),
        "four offers, SquareCB(gamma0=100)": (Offers(), 2),
    }


def played(world: World, arm: int, seed: int) -> tuple[Live, float, int]:
    """What is known after the last decision, f*, and how often an arm was tried."""
    agent = fw.Agent(fw.FrankWolfe(world.f, world.base), world.problem(), seed=seed)
    rng = np.random.default_rng((seed, 1))
    contexts, arms, _ = world.means.shape
    features: list[Matrix] = np.split(np.eye(contexts * arms), contexts)
    tries = 0
    for t in range(DECISIONS):
        context = int(rng.choice(contexts, p=world.shares(t)))
        decision = agent.act(features[context])
        action: Any = decision.action
        tries += action == arm
        agent.update(decision, np.asarray(world.draw(context, action, rng), dtype=np.float64))
    live = agent.live()
    # The numbers are of the contexts of the last decisions.
    shares = np.mean(
        [world.shares(t) for t in range(DECISIONS - live.decisions, DECISIONS)], axis=0
    )
    return live, world.best(shares), tries


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the names of families")
    given = parser.parse_args()
    print("| family | covered | misses warned | warned, all | above | below | tries, median |")
    print("|---|---|---|---|---|---|---|")
    for name, (world, arm) in families().items():
        if not any(part in name for part in given.only):
            continue
        inside, warned, above, below, tries = [], [], [], [], []
        for seed in range(given.runs):
            live, best, tried = played(world, arm, seed)
            assert live.about is not None
            assert live.low is not None
            assert live.high is not None
            inside.append(live.low - 1e-12 <= best <= live.high + 1e-12)
            warned.append(bool(live.warning))
            above.append(live.high - live.about)
            below.append(live.about - live.low)
            tries.append(tried)
        missed = ~np.array(inside)
        told = "-" if not missed.any() else f"{np.array(warned)[missed].mean():.2f}"
        print(
            f"| {name} | {1.0 - missed.mean():.3f} | {told} | {np.mean(warned):.2f} | "
            f"{np.median(above):.4f} | {np.median(below):.4f} | {int(np.median(tries))} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
