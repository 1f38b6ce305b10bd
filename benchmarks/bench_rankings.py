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

Beside every piece of a round stands the least time that it can take on this machine: the
multiplications and additions that it needs at the measured peak, or the bytes that it has to read
and write at the measured speed of the second-level cache, whichever is more.

With `--against` the compiled rounds of another source tree are timed too, in processes of their
own, in turn; `--studies` extrapolates instead how long every study of the paper takes in both.

    python benchmarks/bench_rankings.py
    python benchmarks/bench_rankings.py --json
    python benchmarks/bench_rankings.py --against ../older/src
    python benchmarks/bench_rankings.py --against ../older/src --studies --turns 3
    python benchmarks/bench_rankings.py --drift 5000000
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import subprocess
import sys
from itertools import islice
from pathlib import Path
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from ranking_turn import FAIR, POLICIES, SIZES, SLOTS

from fairwolfe.bench.numpy_loops import RankingLoop, checked
from fairwolfe.bench.speed import (
    Case,
    Side,
    about,
    aged,
    agent_side,
    compiled_side,
    ratios,
    turns,
)
from fairwolfe.core.arrays import aligned
from fairwolfe.environments.rankings import mean_of_ranking, observe
from fairwolfe.kernels.bilinear import ROUNDS as TOGETHER
from fairwolfe.kernels.bilinear import (
    absorb_items,
    call_estimates,
    contract_twice,
    contract_user,
    estimates_of,
    turn_parameters,
)
from fairwolfe.kernels.compile import distinct, fma, kernel
from fairwolfe.kernels.selection import top_k
from fairwolfe.kinds.exposures import count_exposed
from fairwolfe.objectives.concave import call_gradient
from fairwolfe.ranking import LinUCBRank
from fairwolfe.ranking.kernels import absorb_exposed, call_rule, catch_up, later_of

HERE = Path(__file__).parents[1] / "src"
ROUNDS = 9
BUDGETS = (None, 60.0, 100.0)  # of NumPy / compiled, by size


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
    absorb: int,
    contracted: Any,
    metric: Any,
    gram: Any,
    inverse: Any,
    theta: Any,
    moment: Any,
    params: Any,
    counters: Any,
    later: Any,
) -> None:
    for s in range(n):
        r = sizes[s]
        absorb_exposed(
            absorb,
            users[s],
            rows[s, :r],
            rewards[s, :r],
            contracted,
            metric,
            gram,
            inverse,
            theta,
            moment,
            params,
            counters,
            later,
        )
    catch_up(later, users.shape[1], gram)


# --- the least that it can take -------------------------------------------------------------------


@kernel
def many_fmas(n: int, x: Any, scale: Any) -> None:
    distinct()
    for _ in range(n):
        for j in range(x.size):
            a = x[j]
            for k in range(16):
                a = fma(scale[k], a, a)
            x[j] = a


@kernel
def many_passes(n: int, x: Any) -> None:
    distinct()
    for _ in range(n):
        for j in range(x.size):
            x[j] = -x[j]


def machine() -> tuple[float, float]:
    """Multiply-adds and bytes in a microsecond: the best of a few measurements, the first in
    registers, the second reading and writing a matrix of 100 x 100 in place.
    """
    x, matrix, scale, n = aligned(np.ones(1024)), aligned(np.ones(10_000)), np.full(16, 1e-12), 2000
    most = [0.0, 0.0]
    many_fmas(1, x, scale)
    many_passes(1, matrix)
    for _ in range(ROUNDS):
        began = process_time()
        many_fmas(n, x, scale)
        between = process_time()
        many_passes(n, matrix)
        done = process_time()
        most[0] = max(most[0], n * 16 * x.size / (1e6 * (between - began)))
        most[1] = max(most[1], n * 16 * matrix.size / (1e6 * (done - between)))
    return most[0], most[1]


def least(case: Case, seen: float) -> dict[str, tuple[float, float]]:
    """Multiply-adds and bytes that no way of computing a piece can do without, written as they are
    here; seen: items looked at in a round.
    """
    m, q = case.environment.items, case.environment.n_factors
    d, n = q * q, m + 1
    return {
        "contraction of V^-1 with the user": (d * d, 8 * d * d),
        "second contraction, theta": (q * d + d, 8 * (q + 1) * d),
        "direction": (3 * n, 8 * 3 * n),  # the point, the order that is kept, and the gradient
        "estimates: values and widths": (m * (d + 5 * q) / 2, 8 * m * (q + 2)),
        "rule and top k": (2 * m, 8 * 4 * m),
        "the world's answer": (2 * SLOTS * q, 8 * n),
        # V^-1 in every round, V with that of a few others; and what is left of the user in them
        "update": (seen * (d * d + q * d) + d * d, 16 * d * d * (1 + 1 / TOGETHER)),
    }


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
    clicks, seen = (noise[:, SLOTS:, None] < 0.3).astype(np.float64), looked.sum(axis=1)
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
    learnt: Any = [aligned(a) for a in (gram, inverse, theta, moment, learn, counters)]
    later = later_of(q, q)
    later[0] = 0.0 if later.size > 1 else -1.0
    absorb = absorb_items.address
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
            n, users, rows, seen, clicks, absorb, contracted, metric, *learnt, later
        ),
    }
    return {name: (part, n) for name, part in parts.items()}


def report(case: Case, budget: float | None, peak: tuple[float, float]) -> dict[str, Any]:
    taken, parts = measure(sides(case)), measure(pieces(case))
    needed = least(case, float(np.sum(case.environment.position_weights)))
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
        "least": {name: max(f / peak[0], b / peak[1]) for name, (f, b) in needed.items()},
    }


# --- another source tree --------------------------------------------------------------------------


def turn_of(what: str, source: Path) -> dict[str, Any]:
    """What `ranking_turn.py` measures of a source tree, in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("ranking_turn.py")), what],
        env=os.environ | {"PYTHONPATH": str(source)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=3600,
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(what: str, there: Path, n: int) -> None:
    """Here and there in turn: medians, and the ratio within a turn."""
    taken = [(turn_of(what, HERE), turn_of(what, there)) for _ in range(n)]
    flat = [tuple(flattened(side) for side in turn) for turn in taken]
    unit = "hours, extrapolated" if what == "studies" else "us a round"
    print(f"{unit:50}{'there':>10}{'here':>10}{'here / there':>14}")
    for name in flat[0][0]:
        here, over = median(a[name] for a, _ in flat), median(b[name] for _, b in flat)
        ratio = sorted(a[name] / b[name] for a, b in flat)
        spread = f"({ratio[0]:.2f}-{ratio[-1]:.2f})"
        print(f"{name:50}{over:10.2f}{here:10.2f}{median(ratio):8.2f} {spread}")


def flattened(found: dict[str, Any]) -> dict[str, float]:
    """By one name each; of studies also all together."""
    if any(isinstance(value, dict) for value in found.values()):
        return {f"{size}, {name}": us for size, by in found.items() for name, us in by.items()}
    return found | {"together": sum(found.values())}


# --- what the exact refresh is for ----------------------------------------------------------------


def drift(rounds: int) -> None:
    """Two runs of the same rounds, of which one keeps no V and so is never refreshed: how far V^-1,
    relative to sqrt(A_ii A_jj), and theta are from those computed from the V of the other.
    """
    runs: list[Any] = [aged(FAIR, SIZES[1].environment, 1) for _ in range(2)]
    kept, bare = runs
    base = bare.state.base
    oracle = base.oracle._replace(gram=np.empty((1, 0, 0)))
    bare.state = bare.state._replace(base=base._replace(oracle=oracle))
    bare.later = np.full(1, -1.0)
    played, differ, shown = 1, 0, 10_000
    print("off by: V^-1 and theta with V kept, then without V; rankings that differ")
    while played < rounds:
        rankings = [run.play(min(rounds, shown) - played) for run in (kept, bare)]
        played += len(rankings[0])
        differ += int((rankings[0] != rankings[1]).any(axis=1).sum())
        if played == min(rounds, shown):
            shown *= 10
            exact = np.linalg.inv(kept.state.base.oracle.gram[0])
            theta = exact @ kept.state.base.oracle.moment[0, 0]
            scale = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
            off = [
                f"{abs(a).max():.1e}"
                for run in (kept, bare)
                for a in (
                    (run.state.base.oracle.inverse[0] - exact) / scale,
                    run.state.base.oracle.theta[0, 0] - theta,
                )
            ]
            print(f"{played:10,} rounds: {' '.join(off)}; {differ}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--against", type=Path, help="the src folder of another source tree")
    parser.add_argument("--studies", action="store_true", help="with it: the studies of the paper")
    parser.add_argument("--turns", type=int, default=5, help="with it: of each tree")
    parser.add_argument("--drift", type=int, metavar="ROUNDS", help="without V, against with it")
    given = parser.parse_args()
    if given.drift:
        drift(given.drift)
        return
    where = about()
    if given.against:
        print(", ".join(f"{key} {value}" for key, value in where.items()))
        compare("studies" if given.studies else "rounds", given.against.resolve(), given.turns)
        return
    peak = machine()
    found = [report(case, budget, peak) for case, budget in zip(SIZES, BUDGETS, strict=True)]
    if given.json:
        print(json.dumps({"about": where, "machine": peak, "sizes": found}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in where.items()))
    print(f"multiply-adds and bytes in a ns, at most: {peak[0] / 1e3:.1f}, {peak[1] / 1e3:.0f}")
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
            print(f"  {name:34}{time:10.2f}   at least {one['least'][name]:6.2f}")
        bound = sum(one["least"].values())
        print(f"  {'together':34}{total:10.2f}   at least {bound:6.2f}")


if __name__ == "__main__":
    main()
