"""Hard constraints against fixed penalties: regret, violation and the shadow price that is found.

Arms: three contexts with four arms each, two rewards and a cost, all 0 or 1 with the means below; f
is the least of the two rewards, their mean, or the sum of their logarithms, and the cost is to be
at most 0.35 on average. CVXPY knows f* and the shadow price lambda*. Rankings: 10 of 50 items, 50
users, ten producers of five items each, of whom everyone is to have at least 9 % of the exposure.

Regret is f* - f of the rewards earned, means over seeds; it is negative where a run spends more
than it may. Violation is how far the average earned is beyond its level, the mean of max(0, .).

    python benchmarks/bench_constraints.py --figure constraints.png
    python benchmarks/bench_constraints.py --seeds 2 --horizon 100000 --only arms
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import warnings
from typing import Any, NamedTuple

import numpy as np

import fairwolfe as fw
from fairwolfe.bandits import LinUCB
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Finite, dcg
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    GiniEquality,
    Linear,
    Minimum,
    Nash,
    TwoSided,
)
from fairwolfe.ranking import FWLinUCBRank

# By context, then by arm: two rewards, and the cost.
MEANS = [
    [[0.21, 0.84, 0.91], [0.91, 0.51, 0.59], [0.32, 0.54, 0.33], [0.50, 0.34, 0.21]],
    [[0.91, 0.90, 0.07], [0.30, 0.90, 0.62], [0.60, 0.16, 0.74], [0.65, 0.23, 0.79]],
    [[0.14, 0.06, 0.35], [0.83, 0.47, 0.34], [0.95, 0.67, 0.74], [0.51, 0.88, 0.72]],
]
SHARES = (0.5, 0.3, 0.2)  # of the contexts
CEILING = 0.35
WORLD = Finite(np.eye(12).reshape(3, 4, 12), SHARES, means=MEANS)
REWARDS: dict[str, Concave] = {
    "minimum": Minimum().on(0, 1),
    "linear": Linear([0.5, 0.5, 0.0]),
    "Nash": Nash().on(0, 1),
}
PLAIN, HARD = "hard, multiplier=0", "hard"
PRODUCERS = [item // 5 for item in range(50)]
FLOOR = 0.09


class Truth(NamedTuple):
    """f* and the shadow price of the ceiling."""

    best: float
    price: float


def truth(name: str) -> Truth:
    """By CVXPY: a probability for every arm in every context."""
    import cvxpy as cp

    chances = cp.Variable((3, 4), nonneg=True)
    z = sum(SHARES[c] * np.array(MEANS[c]).T @ chances[c] for c in range(3))
    f = {
        "minimum": cp.minimum(z[0], z[1]),
        "linear": (z[0] + z[1]) / 2.0,
        "Nash": cp.log(z[0]) + cp.log(z[1]),
    }[name]
    budget = z[2] <= CEILING
    problem = cp.Problem(cp.Maximize(f), [cp.sum(chances, axis=1) == 1.0, budget])
    problem.solve(solver="CLARABEL")
    return Truth(float(problem.value), float(budget.dual_value))


def ceilings(price: float) -> dict[str, AtMost]:
    """The ways to state the ceiling."""
    found = {
        PLAIN: AtMost(CEILING, multiplier=0.0),
        "hard, multiplier=0.25": AtMost(CEILING, multiplier=0.25),
        HARD: AtMost(CEILING),
        "hard, margin=0.5": AtMost(CEILING, margin=0.5),
        "multiplier=0, margin=0.5": AtMost(CEILING, multiplier=0.0, margin=0.5),
    }
    for times in (0.5, 20, 200):
        found[f"penalty {times:g} lambda*"] = AtMost(CEILING, penalty=times * price)
    return found


def grid(horizon: int) -> list[int]:
    """Six checkpoints a decade from 100 on."""
    n = round(6 * np.log10(horizon / 100)) + 1
    times = np.geomspace(100, horizon, n).round().astype(int).tolist()
    return sorted({*times, *decades(horizon)})


def decades(horizon: int) -> list[int]:
    """10^3, 10^4, ... as far as it goes."""
    return [10**k for k in range(3, 9) if 10**k <= horizon]


class Runs(NamedTuple):
    """(seeds, checkpoints) each."""

    regret: Matrix
    violation: Matrix


def played(f: Concave, ceiling: AtMost, best: float, seeds: int, horizon: int) -> Runs:
    """f without the ceiling, and how far the cost was above it, whatever the ceiling is."""
    policy = fw.FrankWolfe(f + ceiling.on(2), LinUCB(exploration=0.3))
    traces = [
        fw.simulate(policy, WORLD, horizon, s, checkpoints=grid(horizon)) for s in range(seeds)
    ]
    earned = np.array([trace.average_observed for trace in traces])
    values = np.array([[f.value(z) for z in run] for run in earned])
    return Runs(best - values, np.maximum(earned[:, :, 2] - CEILING, 0.0))


def slope(t: list[int], curve: Vector) -> float:
    """Of a decade, by least squares; NaN where it is 0 somewhere."""
    if curve.min() <= 0.0 or len(t) < 2:
        return float("nan")
    return float(np.polyfit(np.log10(t), np.log10(curve), 1)[0])


def prices(f: Concave, rounds: list[int], seeds: int) -> Matrix:
    """What `agent.constraints` says after so many decisions, (seeds, rounds)."""
    found = []
    means, features = np.array(MEANS), np.eye(12).reshape(3, 4, 12)
    for seed in range(seeds):
        policy = fw.FrankWolfe(f + AtMost(CEILING).on(2), LinUCB(exploration=0.3))
        agent = fw.Agent(policy, WORLD.problem(), seed=seed)
        noise = stream(seed, "noise")
        said = []
        for tag in stream(seed, "contexts").choice(3, p=SHARES, size=rounds[-1]):
            decision = agent.act(features[tag])
            agent.update(decision, (noise.random(3) < means[tag, decision.action]).astype(float))
            if agent.t in rounds:
                said.append(agent.constraints[0].shadow_price)
        found.append(said)
    return np.array(found)


def cells(numbers: Any, digits: int) -> str:
    """Of one row of a table; what is rounded to 0 has no sign."""
    return " ".join(f"{x + 0.0:.{digits}f}" if round(x, digits) else "0" for x in numbers)


def arms(seeds: int, horizon: int) -> dict[str, dict[str, Runs]]:
    """Play and print the tables of the world of arms."""
    curves: dict[str, dict[str, Runs]] = {}
    t, shown = grid(horizon), decades(horizon)
    at = [t.index(one) for one in shown]
    heads = " ".join(f"10^{len(str(one)) - 1}" for one in shown)
    for name, f in REWARDS.items():
        best, price = truth(name)
        print(f"\n### {name}: f* = {best:.4f}, lambda* = {price:.3f}; {seeds} seeds\n")
        print(f"| ceiling | regret at {heads} | violation | slope of both |")
        print("|---|---|---|---|")
        curves[name] = {}
        for kind, ceiling in ceilings(price).items():
            runs = curves[name][kind] = played(f, ceiling, best, seeds, horizon)
            beyond = runs.violation.mean(axis=0)[at]
            both = np.maximum(runs.regret, 0.0).mean(axis=0)[at] + price * beyond
            slopes = f"{slope(shown, beyond):.2f}, {slope(shown, both):.2f}"
            regret = cells(runs.regret.mean(axis=0)[at], 4)
            print(f"| {kind} | {regret} | {cells(beyond, 5)} | {slopes} |", flush=True)
        plain, hard = curves[name][PLAIN], curves[name][HARD]
        for since in shown[1:]:
            later = np.array(t) >= since
            rise = hard.violation.mean(axis=0)[later].max()
            worst = hard.violation[:, later].max()
            print(f"largest violation from {since:,} on: {rise:.1e} (mean), {worst:.1e} (any run)")
        allowed = np.maximum(plain.regret, 0.0).mean(axis=0) + price * plain.violation.mean(axis=0)
        ratio = np.maximum(hard.regret, 0.0).mean(axis=0)[at] / allowed[at]
        print(
            f"max(0, regret) over (max(0, regret) + lambda* violation) of plain: {ratio.round(2)}"
        )
        rounds = [one for one in shown if one <= 100_000]
        found = prices(f, rounds, seeds)
        for one, said in zip(rounds, found.T, strict=True):
            ends = f"{said.mean():.3f} ({said.min():.3f} to {said.max():.3f})"
            print(f"shadow price after {one:,}: {ends}, lambda* {price:.3f}", flush=True)
    return curves


def popular(seed: int) -> FactorModel:
    """50 users and items; the r-th item has norm r^-0.4, so that producer 0 is the most popular."""
    rng = stream(seed, "producers")
    users, items = (rng.gamma(0.5, size=(50, 8)) + 1e-12 for _ in range(2))
    users /= np.linalg.norm(users, axis=1)[:, None]
    items *= np.arange(1.0, 51.0)[:, None] ** -0.4 / np.linalg.norm(items, axis=1)[:, None]
    return FactorModel(users, items, dcg(10))


def producers(seeds: int, horizon: int) -> None:
    """Play and print the table of the world of rankings."""
    floors = TwoSided(ByGroup(AtLeast(FLOOR, share=True), PRODUCERS), beta=1.0)
    soft = {
        c: TwoSided(ByGroup(AtLeast(FLOOR, c, share=True), PRODUCERS), beta=1.0)
        for c in (5.0, 50.0)
    }
    shown = [one for one in decades(horizon) if one <= 100_000]
    print(f"\n### Ten producers, at least {100 * FLOOR:g} % each; at {shown}, {seeds} seeds\n")
    rows: dict[str, list[Any]] = {}
    for seed in range(seeds):
        world = popular(seed)
        best = fw.optimum(world, floors, tolerance=1e-4)
        free = fw.optimum(world, TwoSided(GiniEquality(), beta=0.0), tolerance=1e-4)
        least = np.bincount(PRODUCERS, free.average[:-1]).min() / free.average[:-1].sum()
        print(
            f"seed {seed}: {best.value:.5f} <= f* <= {best.upper_bound:.5f}; without floors", end=""
        )
        print(f" {free.value:.4f}, and the least producer has {100 * least:.1f} %")
        policies = {
            "known, hard": fw.known(world, floors),
            "known, penalty 5": fw.known(world, soft[5.0]),
            "known, penalty 50": fw.known(world, soft[50.0]),
            "learnt, hard": FWLinUCBRank(floors, exploration=0.1),
        }
        for name, policy in policies.items():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the known one has no compiled loop
                run = fw.simulate(policy, world, shown[-1], seed, checkpoints=shown)
            short = np.array([floors.violation(z) for z in run.average_observed])
            below = (
                best.upper_bound - run.average[:, -1],
                best.upper_bound - run.average_observed[:, -1],
            )
            rows.setdefault(name, []).append(
                100 * np.array([*(one / best.upper_bound for one in below), short])
            )
    print("\n| policy | % of clicks below f*, expected | earned | shortfall in % of exposure |")
    print("|---|---|---|---|")
    for name, found in rows.items():
        expected, earned, short = np.mean(found, axis=0)
        print(f"| {name} | {cells(expected, 2)} | {cells(earned, 2)} | {cells(short, 3)} |")


def draw(curves: dict[str, dict[str, Runs]], horizon: int, path: str) -> None:
    """Regret and violation over time, a row for each f."""
    import matplotlib.pyplot as plt

    lines = {
        "penalty 200 lambda*": ("#CC79A7", "-.", "penalty 200 λ*"),
        "penalty 20 lambda*": ("#E69F00", "--", "penalty 20 λ*"),
        "penalty 0.5 lambda*": ("0.5", ":", "penalty 0.5 λ*"),
        PLAIN: ("#56B4E9", "-", "hard, multiplier=0"),
        HARD: ("#D55E00", "-", "hard (the default)"),
    }
    t = np.array(grid(horizon))
    figure, axes = plt.subplots(3, 2, figsize=(6.4, 8.0), layout="constrained", sharex=True)
    for row, (name, kinds) in zip(axes, curves.items(), strict=True):
        for kind, (colour, dash, label) in lines.items():
            runs = kinds[kind]
            for ax, curve in zip(row, (runs.regret, runs.violation), strict=True):
                mean = np.maximum(curve, 0.0).mean(axis=0)
                ax.plot(t, np.maximum(mean, 1e-9), dash, color=colour, label=label, linewidth=2)
        for ax, what in zip(row, ("regret", "violation"), strict=True):
            ax.set_xscale("log")
            ax.set_yscale("log")
            ax.set_ylim(1e-5, 1.0)
            ax.set_title(f"{name}: {what}", fontsize=12)
            ax.grid(alpha=0.3)
    for ax in axes[-1]:
        ax.set_xlabel("rounds")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False, fontsize=11)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--figure", help="draw regret and violation over time into this file")
    parser.add_argument("--horizon", type=int, default=1_000_000)
    parser.add_argument("--seeds", type=int, default=8, help="at most 3 of them for rankings")
    parser.add_argument("--only", choices=("arms", "rankings"))
    given = parser.parse_args()
    if given.horizon < 1_000:
        parser.error(f"the horizon is {given.horizon}; give at least 1000")
    if given.only != "rankings":
        curves = arms(given.seeds, given.horizon)
        if given.figure:
            draw(curves, given.horizon, given.figure)
    if given.only != "arms":
        producers(min(given.seeds, 3), given.horizon)


if __name__ == "__main__":
    main()
