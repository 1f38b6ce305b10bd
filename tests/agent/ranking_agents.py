"""Agents that rank, for the tests: a problem, its items, and rounds with feedback."""

from __future__ import annotations

from typing import Any

import numpy as np

from fairwolfe import Agent, Problem
from fairwolfe.agent.file import arrays_of
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.decision import Decision
from fairwolfe.core.streams import stream
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.ranking import FWLinUCBRank

M, K, P, Q = 8, 3, 2, 3
PROBLEM = Problem.ranking(M, K, (P, Q), parameter_norm=1.0)
ITEMS: Matrix = stream(0, "items").uniform(0.1, 0.5, (M, Q))
FAIR = TwoSided(GiniEquality(), beta=0.5)
POLICY = FWLinUCBRank(FAIR)


def agent(policy: Any = POLICY, problem: Problem = PROBLEM, **options: Any) -> Agent:
    """An agent that keeps the features of its items."""
    return Agent(policy, problem, **{"items": ITEMS} | options)


def user(rng: np.random.Generator) -> Vector:
    return rng.uniform(0.1, 0.6, P)


def answer(
    one: Agent, decision: Decision, rng: np.random.Generator, features: Matrix = ITEMS
) -> None:
    """What somebody looked at, from the top down, and clicked; better items more often."""
    ranking = np.asarray(decision.action)
    seen = ranking[: int(rng.integers(0, K + 1))].tolist()
    liked = [i for i in seen if rng.random() < features[i % len(features)].sum() / 2.0]
    one.update(decision, exposed=seen, clicked=liked)


def played(one: Agent, rng: np.random.Generator, rounds: int) -> list[list[int]]:
    """Rounds with users alone; the rankings that came of them."""
    shown = []
    for _ in range(rounds):
        decision = one.act(user(rng))
        answer(one, decision, rng)
        shown.append(np.asarray(decision.action).tolist())
    return shown


def whole(one: Agent, features: Matrix, who: Vector) -> Bilinear:
    """The context that brings the features of all items of the moment."""
    return Bilinear(who, features[one.items])


def bits(one: Agent) -> dict[str, Any]:
    """Everything that may not change when something is refused."""
    state = {name: array.tobytes() for name, array in arrays_of(one._running)}
    ledger, answered = one._ledger.saved()
    rest = (ledger, one.out_of_range, sorted(one._warned), one.items.tolist(), one.problem)
    generator = one._draws.key
    return state | {
        "rest": repr(rest),
        "answered": str(answered),
        "generator": repr(generator),
        "policy": repr(one.policy),
        "plan": repr(one._running.plan),
    }
