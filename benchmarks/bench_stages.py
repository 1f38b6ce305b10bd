"""What a reward that comes late costs, alone and in one window with a prompt one.

Two shops with 6 offers in each context and f = clicks - 2 returned; chances of clicks and returns
are drawn by the seed. *features*: 64 contexts, where offers are known by 6 features, so that one
offer tells of others: clicks from .1 to .6, returns from .005 to .095. *table*: 4 contexts of
offers that have nothing in common: clicks from .1 to .6, up to .3 of which end in a return. Three
ways to answer:

    at once: both rewards after the decision
    stages: clicks after the decision, returned after 10,000 rounds
    one window: both after 10,000 rounds

What is printed is f of the averages of mean rewards after the last round, and how much less it is
than at once; means over seeds. The ratio is what stages lose over what one window loses.

    python benchmarks/bench_stages.py
    python benchmarks/bench_stages.py --seeds 4 --horizon 20000 --delay 2000 --json
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.environments import Finite
from fairwolfe.objectives import Linear
from fairwolfe.simulation import Lateness, simulate

OFFERS, FEATURES = 6, 5
OBJECTIVE = Linear((1.0, -2.0))
POLICIES = {"LinUCB": LinUCB(exploration=0.1), "SquareCB": SquareCB(gamma0=100.0)}


@dataclass(frozen=True)
class Shop(Finite):
    """Clicks and returns, which arrive in two stages."""

    @cached_property
    def _staged(self) -> fw.Problem:
        problem = super().problem()
        ranges = dict(zip(("clicks", "returned"), problem.rewards.values(), strict=True))
        return replace(problem, rewards=ranges, stages=(("clicks",), ("returned",)))

    def problem(self) -> fw.Problem:
        return self._staged


def unit(rng: np.random.Generator, *shape: int) -> Any:
    """Rows of norm 1."""
    rows = rng.normal(size=shape)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def features(seed: int) -> Shop:
    """The world of a seed: rewards are linear in features of the offers."""
    rng, n = np.random.default_rng(seed), 64
    x = np.concatenate([np.ones((n, OFFERS, 1)), unit(rng, n, OFFERS, FEATURES)], axis=2)
    clicks, returned = unit(rng, 2, FEATURES)
    theta = [np.append(0.35, 0.25 * clicks), np.append(0.05, 0.045 * returned)]
    x, theta = x / np.sqrt(2.0), [np.sqrt(2.0) * row for row in theta]
    return Shop(x.tolist(), (1.0 / n,) * n, theta=[row.tolist() for row in theta])


def table(seed: int) -> Shop:
    """The world of a seed: every offer of every context has its own rewards."""
    rng, n = np.random.default_rng(seed), 4
    clicks = rng.uniform(0.1, 0.6, n * OFFERS)
    returned = clicks * rng.uniform(0.0, 0.3, n * OFFERS)
    contexts = np.eye(n * OFFERS).reshape(n, OFFERS, n * OFFERS).tolist()
    return Shop(contexts, (1.0 / n,) * n, theta=[clicks.tolist(), returned.tolist()])


WORLDS = {"features": features, "table": table}


def main() -> None:
    """Print or dump the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--horizon", type=int, default=100_000)
    parser.add_argument("--delay", type=int, default=10_000)
    parser.add_argument("--json", action="store_true", help="print JSON alone")
    options = parser.parse_args()
    ways = {
        "at once": Lateness(),
        "stages": Lateness(delay=(0, options.delay)),
        "one window": Lateness(delay=options.delay),
    }
    rows: list[dict[str, Any]] = []
    for shop, name in product(WORLDS, POLICIES):
        values = []
        for seed in range(options.seeds):
            world, policy = WORLDS[shop](seed), fw.FrankWolfe(OBJECTIVE, POLICIES[name])
            runs = (
                simulate(policy, world, options.horizon, seed, lateness=late)
                for late in ways.values()
            )
            values.append([float(run.value[-1]) for run in runs])
            print(f"{shop}, {name}: {seed + 1} of {options.seeds} seeds", file=sys.stderr)
        mean = np.mean(values, axis=0)
        loss = np.array(values)[:, :1] - values
        error = loss.std(axis=0, ddof=1) / np.sqrt(options.seeds)
        ratio = float(loss[:, 1].mean() / loss[:, 2].mean())
        for i, way in enumerate(ways):
            row = {"world": shop, "policy": name, "answers": way, "f": mean[i]}
            rows.append(row | {"loss": loss[:, i].mean(), "error": error[i]})
        rows[-2]["ratio"] = ratio
    if options.json:
        print(json.dumps(rows))
        return
    print(f"{'world':9} {'policy':10} {'answers':12} {'f':>8} {'loss':>8} {'+-':>8} {'ratio':>6}")
    for row in rows:
        ratio = f"{row['ratio']:6.2f}" if "ratio" in row else ""
        numbers = f"{row['f']:8.4f} {row['loss']:8.4f} {row['error']:8.4f}"
        print(f"{row['world']:9} {row['policy']:10} {row['answers']:12} {numbers} {ratio}")


if __name__ == "__main__":
    main()
