"""A round of fair ranking: compiled, object API, and plain NumPy loops.

A round is a user who comes, a ranking of 10 items, what comes of it, and an update. All sides run
in one process with one thread, in turn; times are of the processor, medians over rounds of the
benchmark, and ratios are taken within a round, because machines are shared and noisy. Runs are
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
import platform
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from statistics import median
from time import process_time
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression

import fairwolfe as fw
from fairwolfe._compile import kernel
from fairwolfe.bilinear import (
    absorb_contracted,
    contract_twice,
    contract_user,
    estimates,
    turn_parameters,
)
from fairwolfe.environments import FactorModel, dcg
from fairwolfe.environments.rankings import mean_of_ranking, observe
from fairwolfe.feedback import Shown
from fairwolfe.linalg import LOG_DET
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.objectives.concave import call_gradient
from fairwolfe.ranking import FairLearnRank, FWLinUCBRank, LinUCBRank, UnbiasedLinUCBRank
from fairwolfe.ranking.kernels import call_rule
from fairwolfe.ranking.observation import settle
from fairwolfe.ranking.policies import alone
from fairwolfe.selection import top_k
from fairwolfe.simulation.compiled_rankings import CompiledRankings
from fairwolfe.simulation.streams import Streams
from fairwolfe.smoothing import Moreau
from fairwolfe.streams import stream

SLOTS, BETA, BETA_0, RIDGE, EXPLORATION, DELTA = 10, 0.5, 1.0, 0.1, 0.1, 0.05
F = TwoSided(GiniEquality(), beta=BETA)
ROUNDS = 9
AGE = 5000

SETTINGS: dict[str, Any] = {"exploration": EXPLORATION, "ridge": RIDGE, "delta": DELTA}
POLICIES: dict[str, Any] = {
    "FW-LinUCBRank": FWLinUCBRank(F, smoothing=Moreau(BETA_0), **SETTINGS),
    "LinUCBRank": alone(LinUCBRank(**SETTINGS)),
    "Unbiased": UnbiasedLinUCBRank(**SETTINGS),
    "FairLearn": FairLearnRank(0.001, **SETTINGS),
}


class Size(NamedTuple):
    """A world, and how many rounds its sides play in a turn: compiled, Agent, NumPy."""

    users: int
    items: int
    factors: int
    compiled: int
    agent: int
    numpy: int
    budget: float | None

    @property
    def world(self) -> FactorModel:
        return FactorModel(self.users, self.items, dcg(SLOTS), n_factors=self.factors)

    def __str__(self) -> str:
        return f"{self.users:,} users, {self.items:,} items, d' = {self.factors}"


SIZES = (
    Size(50, 50, 5, 4000, 300, 100, None),
    Size(50, 50, 10, 2000, 200, 100, 60.0),
    Size(1892, 2500, 10, 400, 100, 10, 100.0),
)

STYLES = ("straightforward", "vectorised", "contracted")

# A side is made once; a call plays that many rounds.
Side = Callable[[int], None]


def aged(size: Size, name: str) -> CompiledRankings:
    """A compiled run that has some rounds behind it; the best ranking is not asked for."""
    environment = size.world
    policy = POLICIES[name]
    shell = getattr(policy, "shell", policy)
    world = environment.init(stream(0, "world"))
    run = CompiledRankings(shell, environment, world, Streams.of(0), truth=False)
    player(run)(AGE)
    return run


def player(run: CompiledRankings) -> Side:
    def play(rounds: int) -> None:
        while rounds > 0:
            rounds -= len(run.play(rounds))

    return play


class Loop:
    """FW-LinUCBRank as one would write it in NumPy and SciPy, going on from a compiled run."""

    def __init__(self, run: CompiledRankings, style: str) -> None:
        world, state = run.world, run.state
        oracle = state.base.oracle
        self.style = style
        self.users, self.items = world.users.copy(), world.items.copy()
        self.weights = world.weights[0].copy()
        self.m, self.factors = self.items.shape
        self.d = self.factors**2
        self.inverse, self.moment = oracle.inverse[0].copy(), oracle.moment[0, 0].copy()
        self.design = oracle.gram[0].copy()
        self.log_det = float(oracle.counters[LOG_DET])
        self.z, self.t = state.iterate.copy(), state.t
        self.mean = np.zeros(self.m + 1)
        self.norm = np.sqrt(self.factors)  # of vec(I)
        self.gini = BETA * (self.m + 1.0 - 2.0 * np.arange(1, self.m + 1)) / self.m
        self.rng = np.random.default_rng(0)

    def direction(self) -> np.ndarray[Any, Any]:
        step = BETA_0 / np.sqrt(self.t + 1.0)
        z = self.z[: self.m]
        order = np.argsort(z)
        ascending = z[order]
        g = np.ones(self.m + 1)
        g[order] = (isotonic_regression(ascending + step * self.gini).x - ascending) / step
        return g

    def estimates(
        self, user: np.ndarray[Any, Any]
    ) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Values and squared widths of all items."""
        theta = self.inverse @ self.moment
        if self.style == "contracted":
            n = self.factors
            half = np.tensordot(user, self.inverse.reshape(n, n, n, n), axes=(0, 0))
            metric = np.einsum("bce,c->be", half, user)
            value = self.items @ (user @ theta.reshape(n, n))
            return value, np.einsum("ib,ib->i", self.items @ metric, self.items)
        x = (user[:, None] * self.items[:, None, :]).reshape(self.m, self.d)
        if self.style == "vectorised":
            return x @ theta, np.einsum("ij,ij->i", x @ self.inverse, x)
        return x @ theta, np.einsum("ij,jk,ik->i", x, self.inverse, x)

    def learn(self, x: np.ndarray[Any, Any], clicked: np.ndarray[Any, Any]) -> None:
        """The items that were looked at, (r, d), and which were clicked."""
        if self.style == "straightforward":
            for row, click in zip(x, clicked, strict=True):
                away = self.inverse @ row
                growth = 1.0 + row @ away
                self.inverse -= np.outer(away, away) / growth
                self.log_det += np.log(growth)
                self.design += np.outer(row, row)
                self.moment += click * row
        elif len(x):
            spread = x @ self.inverse
            system = np.eye(len(x)) + spread @ x.T
            self.inverse -= spread.T @ np.linalg.solve(system, spread)
            self.log_det += np.linalg.slogdet(system)[1]
            self.design += x.T @ x
            self.moment += clicked @ x

    def play(self, users: Any, uniforms: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        rankings = np.empty((len(users), SLOTS), dtype=np.int64)
        for s, (who, uniform) in enumerate(zip(users, uniforms, strict=True)):
            user = self.users[who]
            g = self.direction()
            value, square = self.estimates(user)
            alpha = 0.5 * np.sqrt(2.0 * np.log(3.0 / DELTA) + self.log_det)
            alpha += np.sqrt(RIDGE) * self.norm
            optimistic = value + EXPLORATION * alpha * np.sqrt(square)
            score = g[self.m] * optimistic + g[: self.m]
            top = np.argpartition(-score, SLOTS)[:SLOTS]
            ranking = top[np.argsort(-score[top])]
            truth = self.items[ranking] @ user
            exposed = uniform[:SLOTS] < self.weights
            clicked = exposed & (uniform[SLOTS:] < truth)
            seen = self.items[ranking[exposed]]
            x = (user[:, None] * seen[:, None, :]).reshape(len(seen), self.d)
            self.learn(x, clicked[exposed])
            reward = np.zeros(self.m + 1)
            reward[ranking] = exposed
            reward[self.m] = clicked.sum()
            self.t += 1
            self.z += (reward - self.z) / self.t
            self.mean[ranking] += self.weights
            self.mean[self.m] += self.weights @ truth
            rankings[s] = ranking
        return rankings

    def __call__(self, rounds: int) -> None:
        users = self.rng.integers(len(self.users), size=rounds)
        self.play(users, self.rng.random((rounds, 2 * SLOTS)))


def numpy_loop(size: Size, style: str) -> Side:
    """The loop, after it has ranked like the compiled run."""
    run = aged(size, "FW-LinUCBRank")
    loop, rounds = Loop(run, style), 20
    # The streams of the run have not been drawn from beyond what was played.
    again = Streams.of(0)
    environment = run.environment
    users = environment.draw_users(again.contexts, AGE + rounds)[AGE:]
    uniforms = environment.draw_noise(again.noise, AGE + rounds)[AGE:]
    expected = np.concatenate([run.play(1) for _ in range(rounds)])
    if not np.array_equal(loop.play(users, uniforms), expected):
        raise AssertionError(f"the loop ranks otherwise: {size}, {style}")
    return loop


def object_api(size: Size) -> Side:
    """`Agent.act` and `Agent.update`; the agent keeps the items, feedback is made beforehand."""
    run = aged(size, "FW-LinUCBRank")
    agent = fw.Agent(
        POLICIES["FW-LinUCBRank"], size.world.problem(), seed=0, items=run.world.items.copy()
    )
    rng = np.random.default_rng(0)
    users = run.world.users[rng.integers(size.users, size=200)]
    exposed = (rng.random((200, SLOTS)) < run.world.weights[0]).astype(float)
    clicks = exposed * (rng.random((200, SLOTS)) < 0.3)
    came = [Shown(e, c[:, None]) for e, c in zip(exposed, clicks, strict=True)]

    def play(rounds: int) -> None:
        for i in range(rounds):
            agent.update(agent.act(users[i % 200]), came[i % 200])

    return play


def sides(size: Size) -> dict[str, tuple[Side, int]]:
    made = {f"compiled, {name}": (player(aged(size, name)), size.compiled) for name in POLICIES}
    made["Agent, FW-LinUCBRank"] = (object_api(size), size.agent)
    for style in STYLES:
        made[f"NumPy, {style}"] = (numpy_loop(size, style), size.numpy)
    return made


def measure(size: Size) -> dict[str, list[float]]:
    """Microseconds a round of every side, one number per round of the benchmark."""
    playing = sides(size)
    for side, _ in playing.values():
        side(3)
    times: dict[str, list[float]] = {name: [] for name in playing}
    for _ in range(ROUNDS):
        for name, (side, rounds) in playing.items():
            began = process_time()
            side(rounds)
            times[name].append(1e6 * (process_time() - began) / rounds)
    return times


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
def many_estimates(n: int, turned: Any, metric: Any, items: Any, value: Any, width: Any) -> None:
    for _ in range(n):
        estimates(turned, metric, items, value, width)


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
        settle(0, ranking, looked, rewards, seen, total)
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
        absorb_contracted(
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


def pieces(size: Size) -> dict[str, Callable[[], Any]]:
    """Every piece of a compiled round as a loop over 200 rounds of a real run."""
    n = 200
    run = aged(size, "FW-LinUCBRank")
    world, base = run.world, run.state.base
    gram, inverse, theta, moment, learn, counters = base.oracle
    rng = np.random.default_rng(0)
    iterates, rankings = [], []
    for _ in range(n):  # what the direction meets: a few coordinates change from round to round
        iterates.append(run.state.iterate.copy())
        rankings.append(run.play(1)[0])
    tags = rng.integers(size.users, size=n)
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
    q, m = size.factors, size.items
    contracted, metric, turned = np.empty((q, q * q)), np.empty((q, q)), np.empty((1, q))
    contract_user(users[0], inverse[0], contracted)
    contract_twice(users[0], contracted, metric)
    turn_parameters(users[0], theta[0], turned)
    value, width, scores, g = np.empty(m), np.empty(m), np.empty(m), np.empty(m + 1)
    estimates(turned[0], metric, world.columns, value, width)
    ranking, counts, nothing = np.empty(SLOTS, dtype=np.int64), np.zeros(m), np.empty(0)
    step = BETA_0 / np.sqrt(run.state.t + 1.0)
    program, work = run.following.gradient, run.following.work
    many_directions(1, program.address, np.array(iterates), step, program.params, work, g)
    direction = g[:m].copy()
    rule = LinUCBRank.rule.address
    answer = (np.empty(SLOTS), np.empty((SLOTS, 1)), np.empty(SLOTS), *np.zeros((2, m + 1)))
    given = (world.turned, world.items, world.weights, world.ranges)
    learnt = [a.copy() for a in (gram, inverse, theta, moment, learn, counters)]
    z = np.array(iterates)
    return {
        "contraction of V^-1 with the user": lambda: many_contractions(
            n, users, inverse[0], contracted
        ),
        "second contraction, theta": lambda: many_second_contractions(
            n, users, contracted, theta[0], metric, turned
        ),
        "direction": lambda: many_directions(n, program.address, z, step, program.params, work, g),
        "estimates: values and widths": lambda: many_estimates(
            n, turned[0], metric, world.columns, value, width
        ),
        "rule and top k": lambda: many_choices(
            n, rule, value, width, direction, counts, nothing, scores, ranking
        ),
        "the world's answer": lambda: many_answers(n, rankings[0], tags, noise, *given, *answer),
        "update": lambda: many_updates(
            n, users, rows, looked.sum(axis=1), clicks, contracted, *learnt
        ),
    }


def breakdown(size: Size) -> dict[str, float]:
    """Microseconds a round of every piece."""
    parts = pieces(size)
    times: dict[str, list[float]] = {name: [] for name in parts}
    for part in parts.values():
        part()
    for _ in range(ROUNDS):
        for name, part in parts.items():
            began = process_time()
            part()
            times[name].append(1e6 * (process_time() - began) / 200)
    return {name: median(mine) for name, mine in times.items()}


def ratios(mine: list[float], other: list[float]) -> list[float]:
    return sorted(a / b for a, b in zip(mine, other, strict=True))


def report(size: Size) -> dict[str, Any]:
    times = measure(size)
    compiled = times["compiled, FW-LinUCBRank"]
    rows = []
    for name, mine in times.items():
        over = ratios(mine, compiled)
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
    return {"size": str(size), "budget": size.budget, "rows": rows, "pieces": breakdown(size)}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    as_json = parser.parse_args().json
    about = {
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": [round(x, 1) for x in os.getloadavg()],
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "date": datetime.now().date().isoformat(),
    }
    found = [report(size) for size in SIZES]
    if as_json:
        print(json.dumps({"about": about, "sizes": found}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in about.items()))
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
