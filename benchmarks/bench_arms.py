"""A round of a bandit with arms: compiled, object API, a plain NumPy loop, and what others offer.

K = 50 arms, d = 10 features, D = 5 rewards, one decision and one update at a time. All sides run in
one process with one thread, in turn; times are medians over rounds of the benchmark, ratios are
taken within a round, because machines are noisy. The peers have one reward each (they know no
other), so they do a fifth of the learning at most. A peer that is not installed is left out.

    python benchmarks/bench_arms.py
    python benchmarks/bench_arms.py --json
"""

from __future__ import annotations

# ruff: noqa: E402  (one thread must be asked for before NumPy is imported)
import os

for _library in ("OMP", "OPENBLAS", "MKL"):
    os.environ[f"{_library}_NUM_THREADS"] = "1"

import argparse
import json
import platform
import warnings
from collections.abc import Callable
from datetime import datetime
from importlib.metadata import version
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from scipy.optimize import isotonic_regression

import fairwolfe as fw
from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.environments import Mehrotra
from fairwolfe.oracles import Ridge
from fairwolfe.simulation.compiled import CompiledRun, Streams
from fairwolfe.smoothing import Moreau
from fairwolfe.streams import stream

K, D_FEATURES, N_REWARDS = 50, 10, 5
WORLD = Mehrotra(K, N_REWARDS, D_FEATURES)
F = WORLD.objective()
BETA0, RIDGE, EXPLORATION, GAMMA0 = 0.01, 0.1, 0.1, 1e4
ROUNDS = 9

POLICIES = {
    "FW-LinUCB": fw.FrankWolfe(F, LinUCB(exploration=EXPLORATION, ridge=RIDGE), Moreau(BETA0)),
    "FW-SquareCB": fw.FrankWolfe(F, SquareCB(gamma0=GAMMA0, oracle=Ridge(RIDGE)), Moreau(BETA0)),
}

CONTEXTS = (1.0 + np.random.default_rng(1).standard_normal((1100, K, D_FEATURES))) / D_FEATURES

# A side is made once; a call plays that many rounds.
Side = Callable[[int], None]


class Prepared(Mehrotra):
    """The same world with contexts that were made beforehand."""

    def draw_contexts(self, world: Any, rng: np.random.Generator, n: int) -> Any:
        if n > len(CONTEXTS):
            raise ValueError(f"{n} contexts were asked for, {len(CONTEXTS)} are prepared")
        return CONTEXTS[:n], np.zeros(n, dtype=np.int64)


def compiled(name: str, given: bool = False) -> Side:
    """The compiled loop, drawing its own contexts (or with given ones)."""
    environment = Prepared(K, N_REWARDS, D_FEATURES) if given else WORLD
    world = environment.init(stream(0, "world"))
    run = CompiledRun(POLICIES[name], environment, world, Streams.of(0))

    def play(rounds: int) -> None:
        while rounds > 0:
            rounds -= run.play(rounds).size

    return play


def object_api(name: str) -> Side:
    """`Agent.act` and `Agent.update`, contexts made beforehand."""
    world = WORLD.init(stream(0, "world"))
    agent = fw.Agent(POLICIES[name], WORLD.problem(), seed=0)
    contexts, rewards = _prepared(world)
    warnings.simplefilter("ignore")  # Gaussian rewards leave every range

    def play(rounds: int) -> None:
        for i in range(rounds):
            decision = agent.act(contexts[i % len(contexts)])
            agent.update(decision, rewards[i % len(rewards)])

    return play


def compiled_given(name: str) -> Side:
    return compiled(name, given=True)


def numpy_given(name: str) -> Side:
    return numpy_loop(name, given=True)


def numpy_loop(name: str, given: bool = False) -> Side:
    """The same algorithm as one would write it in NumPy and SciPy."""
    rng = np.random.default_rng(0)
    theta = np.asarray(WORLD.init(stream(0, "world")))
    weights = np.array(F.weights)
    design, moment = RIDGE * np.eye(D_FEATURES), np.zeros((D_FEATURES, N_REWARDS))
    inverse = np.eye(D_FEATURES) / RIDGE
    z = np.zeros(N_REWARDS)
    state = {"t": 0, "log_det": 0.0}

    def direction() -> np.ndarray[Any, Any]:
        step = BETA0 / np.sqrt(state["t"] + 1.0)
        order = np.argsort(z)
        pooled = isotonic_regression(z[order] + step * weights).x
        g = np.empty(N_REWARDS)
        g[order] = (pooled - z[order]) / step
        return g

    def play(rounds: int) -> None:
        nonlocal inverse, z
        for _ in range(rounds):
            if given:
                x = CONTEXTS[state["t"] % len(CONTEXTS)]
            else:
                x = (1.0 + rng.standard_normal((K, D_FEATURES))) / D_FEATURES
            g = direction()
            estimate = inverse @ moment
            score = x @ (estimate @ g)
            if name == "FW-LinUCB":
                log_term = 2.0 * np.log(2.0 * N_REWARDS / 0.05) + state["log_det"]
                alpha = 0.5 * np.sqrt(log_term) + np.sqrt(RIDGE)
                width = np.sqrt(np.einsum("ai,ij,aj->a", x, inverse, x))
                arm = int(np.argmax(score + EXPLORATION * np.abs(g).sum() * alpha * width))
            else:
                best = int(np.argmax(score))
                gamma = GAMMA0 * np.sqrt(state["t"] + 1.0)
                chance = 1.0 / (K + gamma * (score[best] - score))
                chance[best] = 0.0
                chance[best] = 1.0 - chance.sum()
                arm = int(rng.choice(K, p=chance))
            mean = theta @ x[arm]
            reward = mean + 0.1 * np.abs(mean) * rng.standard_normal(N_REWARDS)
            u = inverse @ x[arm]
            growth = 1.0 + x[arm] @ u
            inverse = inverse - np.outer(u, u) / growth
            design[:] += np.outer(x[arm], x[arm])
            moment[:] += np.outer(x[arm], reward)
            state["log_det"] += np.log(growth)
            state["t"] += 1
            z = z + (reward - z) / state["t"]

    return play


def _prepared(world: Any, n: int = 200) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    contexts, _ = WORLD.draw_contexts(world, rng, n)
    return contexts, rng.random((n, N_REWARDS))


def river_linucb(_: str) -> Side:
    """river: one Bayesian regression per arm, contexts as dicts."""
    from river import bandit

    policy = bandit.LinUCBDisjoint(seed=0)
    rng = np.random.default_rng(0)
    contexts = [dict(enumerate(row)) for row in rng.standard_normal((200, D_FEATURES))]
    arms = list(range(K))

    def play(rounds: int) -> None:
        for i in range(rounds):
            context = contexts[i % 200]
            arm = policy.pull(arms, context=context)
            policy.update(arm, context, 0.5)

    return play


def mabwiser_linucb(_: str) -> Side:
    """MABWiser: one ridge regression per arm."""
    from mabwiser.mab import MAB, LearningPolicy

    rng = np.random.default_rng(0)
    contexts = rng.standard_normal((200, D_FEATURES))
    policy = MAB(list(range(K)), LearningPolicy.LinUCB(alpha=1.0, l2_lambda=1.0))
    policy.fit(list(range(K)), rng.random(K), contexts[:K])

    def play(rounds: int) -> None:
        for i in range(rounds):
            row = contexts[i % 200 : i % 200 + 1]
            arm = policy.predict(row)
            policy.partial_fit([arm], [0.5], row)

    return play


def obp_linucb(_: str) -> Side:
    """OBP: one ridge regression per arm."""
    from obp.policy import LinUCB as Peer

    policy = Peer(dim=D_FEATURES, n_actions=K, random_state=0, epsilon=0.1)
    contexts = np.random.default_rng(0).standard_normal((200, 1, D_FEATURES))

    def play(rounds: int) -> None:
        for i in range(rounds):
            context = contexts[i % 200]
            arm = int(policy.select_action(context)[0])
            policy.update_params(arm, 0.5, context)

    return play


def coba_linucb(_: str) -> Side:
    """coba: one model shared by the arms, features crossed in Python."""
    from coba.learners import LinUCBLearner

    policy = LinUCBLearner(features=["a"])
    rng = np.random.default_rng(0)
    actions = [[tuple(row) for row in rng.standard_normal((K, D_FEATURES))] for _ in range(20)]

    def play(rounds: int) -> None:
        for i in range(rounds):
            given = actions[i % 20]
            action, probability = policy.predict(None, given)[:2]
            policy.learn(None, action, 0.5, probability)

    return play


def vw_squarecb(_: str) -> Side:
    """Vowpal Wabbit's SquareCB through its Python text interface."""
    from vowpalwabbit import Workspace

    policy = Workspace("--cb_explore_adf --squarecb --cb_type mtr --quiet")
    rng = np.random.default_rng(0)
    lines = [
        ["|a " + " ".join(f"f{j}:{v:.6f}" for j, v in enumerate(row)) for row in rows]
        for rows in rng.standard_normal((20, K, D_FEATURES))
    ]

    def play(rounds: int) -> None:
        for i in range(rounds):
            given = list(lines[i % 20])
            chances = policy.predict(given)
            arm = int(np.argmax(chances))
            given[arm] = f"0:-0.5:{chances[arm]:.6f} {given[arm]}"
            policy.learn(given)

    return play


# name -> (maker, policy, rounds per turn)
SIDES: dict[str, tuple[Callable[[str], Side], str, int]] = {
    "fairwolfe compiled, FW-LinUCB": (compiled, "FW-LinUCB", 2000),
    "fairwolfe compiled, FW-SquareCB": (compiled, "FW-SquareCB", 2000),
    "  compiled, contexts given, FW-LinUCB": (compiled_given, "FW-LinUCB", 2000),
    "  compiled, contexts given, FW-SquareCB": (compiled_given, "FW-SquareCB", 2000),
    "fairwolfe Agent, FW-LinUCB": (object_api, "FW-LinUCB", 400),
    "fairwolfe Agent, FW-SquareCB": (object_api, "FW-SquareCB", 400),
    "NumPy loop, FW-LinUCB": (numpy_loop, "FW-LinUCB", 200),
    "NumPy loop, FW-SquareCB": (numpy_loop, "FW-SquareCB", 200),
    "  NumPy loop, contexts given, FW-LinUCB": (numpy_given, "FW-LinUCB", 200),
    "  NumPy loop, contexts given, FW-SquareCB": (numpy_given, "FW-SquareCB", 200),
    "OBP LinUCB, one reward": (obp_linucb, "", 60),
    "river LinUCB, one reward": (river_linucb, "", 30),
    "coba LinUCB, one reward": (coba_linucb, "", 20),
    "Vowpal Wabbit SquareCB, one reward": (vw_squarecb, "", 30),
    "MABWiser LinUCB, one reward": (mabwiser_linucb, "", 6),
}


def measure() -> tuple[dict[str, list[float]], dict[str, str]]:
    """Microseconds a round of every side, one number per round of the benchmark."""
    sides: dict[str, tuple[Side, int]] = {}
    missing: dict[str, str] = {}
    for name, (make, policy, rounds) in SIDES.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                side = make(policy)
                side(min(rounds, 20))
        except ImportError as error:
            missing[name] = str(error)
            continue
        sides[name] = (side, rounds)
    times: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, (side, rounds) in sides.items():
            began = perf_counter()
            side(rounds)
            times[name].append(1e6 * (perf_counter() - began) / rounds)
    return times, missing


def _over(mine: list[float], other: list[float]) -> float:
    return median(a / b for a, b in zip(mine, other, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    times, missing = measure()
    rows = [
        {
            "what": name.strip(),
            "us_per_round": median(mine),
            "over_compiled": _over(mine, times["fairwolfe compiled, FW-LinUCB"]),
            "over_given": _over(mine, times["  compiled, contexts given, FW-LinUCB"]),
            "over_agent": _over(mine, times["fairwolfe Agent, FW-LinUCB"]),
        }
        for name, mine in times.items()
    ]
    about = {
        "machine": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "numba": version("numba"),
        "date": datetime.now().date().isoformat(),
    }
    if as_json:
        print(json.dumps({"about": about, "rows": rows, "missing": missing}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in about.items()))
    print(f"K = {K} arms, d = {D_FEATURES} features, D = {N_REWARDS} rewards (peers: 1)\n")
    print(f"{'':40}{'us a round':>12}{'/ compiled':>12}{'/ given':>10}{'/ Agent':>10}")
    for row in rows:
        print(
            f"{row['what']:40}{row['us_per_round']:12.1f}{row['over_compiled']:12.1f}"
            f"{row['over_given']:10.1f}{row['over_agent']:10.1f}"
        )
    for name, why in missing.items():
        print(f"{name:38} left out: {why}")


if __name__ == "__main__":
    main()
