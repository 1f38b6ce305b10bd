"""A round of fair ranking: compiled, object API, and plain NumPy loops.

A round is a user who comes, a ranking of 10 items, what comes of it, and an update. All sides run
in one process with one thread, in turn; times are of the processor, medians over turns, and ratios
are taken within a turn, because machines are shared and noisy. Runs are
5,000 rounds old when they are timed, and the NumPy loops start from the state of a compiled run:
their first rankings must then be the same as its own.

Ratios to "NumPy" depend on who writes it, so there are three of them, all with SciPy's isotonic
regression for the direction:

- straightforward: user (x) item flattened into d = d'^2 features, widths by
  ``einsum("ij,jk,ik->i")``, one Sherman-Morrison update for each item that was looked at;
- vectorised: the same features, widths by a matrix product, one update of rank r for a round;
- contracted: knows that features are products, and contracts V^-1 with the user first.

    python benchmarks/bench_rankings.py
    python benchmarks/bench_rankings.py --json
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
from itertools import islice
from statistics import median
from typing import Any

import numpy as np

from fairwolfe.bench.numpy_loops import RankingLoop, checked
from fairwolfe.bench.speed import (
    CASES,
    Case,
    Rounds,
    Side,
    about,
    aged,
    agent_side,
    compiled_side,
    ratios,
    turns,
)
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.environments.rankings import mean_of_ranking, observe
from fairwolfe.kernels.bilinear import (
    absorb_items,
    call_estimates,
    contract_twice,
    contract_user,
    estimates_of,
    turn_parameters,
)
from fairwolfe.kernels.compile import kernel
from fairwolfe.kernels.selection import top_k
from fairwolfe.kinds.exposures import count_exposed
from fairwolfe.objectives.concave import call_gradient
from fairwolfe.ranking import FairLearnRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking.kernels import call_rule
from fairwolfe.ranking.policies import alone

FAIR, SLOTS = CASES[2].policy, 10
ROUNDS = 9

SETTINGS: dict[str, Any] = {"exploration": FAIR.exploration, "ridge": FAIR.ridge}
POLICIES: dict[str, Any] = {
    "FW-LinUCBRank": FAIR,
    "LinUCBRank": alone(LinUCBRank(**SETTINGS)),
    "Unbiased": UnbiasedLinUCBRank(**SETTINGS),
    "FairLearn": FairLearnRank(0.001, **SETTINGS),
}

# With the budgets of NumPy / compiled.
SIZES: tuple[tuple[Case, float | None], ...] = (
    (Case(FAIR, FactorModel(50, 50, dcg(SLOTS), n_factors=5), Rounds(4000, 300, 100)), None),
    (CASES[2], 60.0),
    (CASES[3], 100.0),
)


class Vectorised(RankingLoop):
    """Widths by a matrix product, one update of rank r for a round."""

    def estimates(self, user: Any) -> Any:
        x = self.features(user, self.items)
        return x @ (self.inverse @ self.moment), np.einsum("ij,ij->i", x @ self.inverse, x)

    def learn(self, x: Any, clicked: Any) -> None:
        if len(x):
            spread = x @ self.inverse
            system = np.eye(len(x)) + spread @ x.T
            self.inverse -= spread.T @ np.linalg.solve(system, spread)
            self.log_det += np.linalg.slogdet(system)[1]
            self.design += x.T @ x
            self.moment += clicked @ x


class Contracted(Vectorised):
    """Contracts V^-1 with the user first."""

    def estimates(self, user: Any) -> Any:
        n = self.n_factors
        half = np.tensordot(user, self.inverse.reshape(n, n, n, n), axes=(0, 0))
        metric = np.einsum("bce,c->be", half, user)
        value = self.items @ (user @ (self.inverse @ self.moment).reshape(n, n))
        return value, np.einsum("ib,ib->i", self.items @ metric, self.items)


STYLES = {"straightforward": RankingLoop, "vectorised": Vectorised, "contracted": Contracted}


def sides(case: Case) -> dict[str, tuple[Side, int]]:
    """All policies compiled, and FW-LinUCBRank otherwise; a NumPy loop has ranked like it."""
    world, rounds = case.environment, case.rounds
    made: dict[str, tuple[Side, int]] = {
        f"compiled, {name}": (compiled_side(aged(policy, world)), rounds.compiled)
        for name, policy in POLICIES.items()
    }
    made["Agent, FW-LinUCBRank"] = (agent_side(FAIR, world), rounds.agent)
    for style, loop in STYLES.items():
        run: Any = aged(FAIR, world)
        made[f"NumPy, {style}"] = (checked(loop(run), run).play, rounds.numpy)
    return made


def measure(playing: dict[str, tuple[Side, int]]) -> list[dict[str, float]]:
    """Microseconds a round of every side, turn by turn."""
    for side, _ in playing.values():
        side(3)
    return list(islice(turns(playing), ROUNDS))


# --- where the time goes --------------------------------------------------------------------------


@kernel
def many_contractions(n: int, users: Any, inverse: Any, out: Any) -> None:
    for s in range(n):
        contract_user(users[s], inverse, out)


@kernel
def many_second_contractions(
    n: int, users: Any, contracted: Any, theta: Any, metric: Any, turned: Any
) -> None:
    for s in range(n):
        contract_twice(users[s], contracted, metric)
        turn_parameters(users[s], theta, turned)


@kernel
def many_directions(
    n: int, address: int, iterates: Any, step: float, params: Any, work: Any, g: Any
) -> None:
    for s in range(n):
        call_gradient(address, iterates[s], step, params, work, g)


@kernel
def many_estimates(
    n: int, address: int, turned: Any, metric: Any, items: Any, value: Any, width: Any
) -> None:
    for _ in range(n):
        call_estimates(address, turned, metric, items, value, width)


@kernel
def many_choices(
    n: int,
    rule: int,
    value: Any,
    width: Any,
    g: Any,
    counts: Any,
    params: Any,
    scores: Any,
    ranking: Any,
) -> None:
    for _ in range(n):
        call_rule(rule, value, width, 0.3, g, counts, counts, 1.0, ranking.size, params, scores)
        top_k(scores, ranking.size, ranking)


@kernel
def many_answers(
    n: int,
    ranking: Any,
    tags: Any,
    noise: Any,
    turned: Any,
    items: Any,
    weights: Any,
    ranges: Any,
    looked: Any,
    rewards: Any,
    seen: Any,
    total: Any,
    mean: Any,
) -> None:
    for s in range(n):
        observe(ranking, tags[s], noise[s], turned, items, weights, ranges, looked, rewards)
        count_exposed(0, ranking, looked, rewards, seen, total)
        mean_of_ranking(ranking, tags[s], turned, items, weights, ranges, mean)


@kernel
def many_updates(
    n: int,
    users: Any,
    rows: Any,
    sizes: Any,
    rewards: Any,
    contracted: Any,
    gram: Any,
    inverse: Any,
    theta: Any,
    moment: Any,
    params: Any,
    counters: Any,
) -> None:
    for s in range(n):
        r = sizes[s]
        absorb_items(
            users[s],
            rows[s, :r],
            rewards[s, :r],
            contracted,
            gram,
            inverse,
            theta,
            moment,
            params,
            counters,
        )


def pieces(case: Case) -> dict[str, tuple[Side, int]]:
    """Every piece of a compiled round as a loop over 200 rounds of a real run."""
    n = 200
    run: Any = aged(FAIR, case.environment)
    world, base = run.world, run.state.base
    gram, inverse, theta, moment, learn, counters = base.oracle
    rng = np.random.default_rng(0)
    iterates, rankings = [], []
    for _ in range(n):  # what the direction meets: a few coordinates change from round to round
        iterates.append(run.state.iterate.copy())
        rankings.append(run.play(1)[0])
    tags = rng.integers(len(world.users), size=n)
    users = np.ascontiguousarray(world.users[tags])
    noise = rng.random((n, 2 * SLOTS))
    looked = noise[:, :SLOTS] < world.weights[0]
    rows = np.stack(
        [
            np.concatenate([world.items[r[e]], world.items[r[~e]]])
            for r, e in zip(rankings, looked, strict=True)
        ]
    )
    clicks = (noise[:, SLOTS:, None] < 0.3).astype(np.float64)
    m, q = world.items.shape
    contracted, metric, turned = np.empty((q, q * q)), np.empty((q, q)), np.empty((1, q))
    contract_user(users[0], inverse[0], contracted)
    contract_twice(users[0], contracted, metric)
    turn_parameters(users[0], theta[0], turned)
    value, width, scores, g = np.empty(m), np.empty(m), np.empty(m), np.empty(m + 1)
    estimates = estimates_of(q)
    estimates(turned[0], metric, world.columns, value, width)
    ranking, counts, nothing = np.empty(SLOTS, dtype=np.int64), np.zeros(m), np.empty(0)
    step = FAIR.smoothing.beta0 / np.sqrt(run.state.t + 1.0)
    program, work = run.following.gradient, run.following.work
    many_directions(1, program.address, np.array(iterates), step, program.params, work, g)
    direction = g[:m].copy()
    rule = LinUCBRank.rule.address
    answer = (np.empty(SLOTS), np.empty((SLOTS, 1)), np.empty(SLOTS), *np.zeros((2, m + 1)))
    given = (world.turned, world.items, world.weights, world.ranges)
    learnt = [a.copy() for a in (gram, inverse, theta, moment, learn, counters)]
    z = np.array(iterates)
    parts: dict[str, Side] = {
        "contraction of V^-1 with the user": lambda n: many_contractions(
            n, users, inverse[0], contracted
        ),
        "second contraction, theta": lambda n: many_second_contractions(
            n, users, contracted, theta[0], metric, turned
        ),
        "direction": lambda n: many_directions(
            n, program.address, z, step, program.params, work, g
        ),
        "estimates: values and widths": lambda n: many_estimates(
            n, estimates.address, turned[0], metric, world.columns, value, width
        ),
        "rule and top k": lambda n: many_choices(
            n, rule, value, width, direction, counts, nothing, scores, ranking
        ),
        "the world's answer": lambda n: many_answers(n, rankings[0], tags, noise, *given, *answer),
        "update": lambda n: many_updates(
            n, users, rows, looked.sum(axis=1), clicks, contracted, *learnt
        ),
    }
    return {name: (part, n) for name, part in parts.items()}


def report(case: Case, budget: float | None) -> dict[str, Any]:
    taken, parts = measure(sides(case)), measure(pieces(case))
    rows = []
    for name in taken[0]:
        mine = [turn[name] for turn in taken]
        over = ratios(taken, name, "compiled, FW-LinUCBRank")
        rows.append(
            {
                "what": name,
                "us_per_round": median(mine),
                "lowest": min(mine),
                "highest": max(mine),
                "over_compiled": median(over),
                "over_from": over[0],
                "over_to": over[-1],
            }
        )
    return {
        "size": case.size,
        "budget": budget,
        "rows": rows,
        "pieces": {name: median(turn[name] for turn in parts) for name in parts[0]},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    as_json = parser.parse_args().json
    where = about()
    found = [report(case, budget) for case, budget in SIZES]
    if as_json:
        print(json.dumps({"about": where, "sizes": found}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    for one in found:
        budget = f" (budget: NumPy / compiled >= {one['budget']:.0f})" if one["budget"] else ""
        print(f"\n{one['size']}{budget}")
        print(f"{'':34}{'us a round':>12}{'(lowest-highest)':>20}{'/ compiled':>12}")
        for row in one["rows"]:
            spread = f"({row['lowest']:.1f}-{row['highest']:.1f})"
            over = f"({row['over_from']:.1f}-{row['over_to']:.1f})"
            print(
                f"{row['what']:34}{row['us_per_round']:12.1f}{spread:>20}"
                f"{row['over_compiled']:12.1f} {over}"
            )
        total = sum(one["pieces"].values())
        for name, time in one["pieces"].items():
            print(f"  {name:34}{time:10.2f}")
        print(f"  {'together':34}{total:10.2f}")


if __name__ == "__main__":
    main()
