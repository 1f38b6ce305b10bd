"""A round of a bandit with arms: compiled, object API, a plain NumPy loop, and what others offer.

K = 50 arms, d = 10 features, D = 5 rewards, one decision and one update at a time. All sides run in
one process with one thread, in turn; times are of the processor, medians over turns, and ratios are
taken within a turn, because machines are noisy. The peers have one reward each (they know no
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
import warnings
from collections.abc import Callable
from itertools import islice
from statistics import median
from typing import Any

import numpy as np

from fairwolfe.environments import Mehrotra
from fairwolfe.lab.bench import (
    CASES,
    LinUCBLoop,
    Side,
    SquareCBLoop,
    about,
    aged,
    agent_side,
    checked,
    compiled_side,
    loop_of,
    ratios,
    turns,
)

POLICIES = {case.name: case.policy for case in CASES[:2]}
WORLD = CASES[0].environment
K, D_FEATURES, N_REWARDS = WORLD.n_arms, WORLD.n_features, WORLD.n_objectives
ROUNDS = 9

CONTEXTS = (1.0 + np.random.default_rng(1).standard_normal((1100, K, D_FEATURES))) / D_FEATURES


class Prepared(Mehrotra):
    """The same world with contexts that were made beforehand."""

    def draw_contexts(self, world: Any, rng: np.random.Generator, n: int) -> Any:
        if n > len(CONTEXTS):
            raise ValueError(f"{n} contexts were asked for, {len(CONTEXTS)} are prepared")
        return CONTEXTS[:n], np.zeros(n, dtype=np.int64)


class Given:
    """A loop with contexts that were made beforehand."""

    t: int

    def context(self) -> np.ndarray[Any, Any]:
        return CONTEXTS[self.t % len(CONTEXTS)]


class GivenLinUCB(Given, LinUCBLoop):
    pass


class GivenSquareCB(Given, SquareCBLoop):
    pass


def compiled(name: str) -> Side:
    return compiled_side(aged(POLICIES[name], WORLD))


def compiled_given(name: str) -> Side:
    return compiled_side(aged(POLICIES[name], Prepared(K, N_REWARDS, D_FEATURES)))


def object_api(name: str) -> Side:
    return agent_side(POLICIES[name], WORLD)


def numpy_loop(name: str) -> Side:
    """The same algorithm in NumPy, after it has decided like the compiled run."""
    run = aged(POLICIES[name], WORLD)
    return checked(loop_of(run), run).play


def numpy_given(name: str) -> Side:
    loop = {"FW-LinUCB": GivenLinUCB, "FW-SquareCB": GivenSquareCB}[name]
    return loop(aged(POLICIES[name], WORLD)).play


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


def measure() -> tuple[list[dict[str, float]], dict[str, str]]:
    """Microseconds a round of every side, turn by turn; and who is missing, with the reason."""
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
    return list(islice(turns(sides), ROUNDS)), missing


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    as_json = parser.parse_args().json
    taken, missing = measure()
    over = {
        "over_compiled": "fairwolfe compiled, FW-LinUCB",
        "over_given": "  compiled, contexts given, FW-LinUCB",
        "over_agent": "fairwolfe Agent, FW-LinUCB",
    }
    rows = [
        {
            "what": name.strip(),
            "us_per_round": median(turn[name] for turn in taken),
            **{key: median(ratios(taken, name, other)) for key, other in over.items()},
        }
        for name in taken[0]
    ]
    where = about()
    if as_json:
        print(json.dumps({"about": where, "rows": rows, "missing": missing}, indent=2))
        return
    print(", ".join(f"{key} {value}" for key, value in where.items()))
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
