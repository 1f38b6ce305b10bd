"""Rankings of many items, of which few get a confidence width, against rankings in which all do:
the same items, scores and reasons, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.core.candidates import Candidates
from fairwolfe.core.problem import Problem
from fairwolfe.core.streams import stream
from fairwolfe.errors import FairwolfeError
from fairwolfe.objectives import AtLeast, AtMost, GiniWelfare, TwoSided
from fairwolfe.ranking import FWLinUCBRank

M, K, P, Q = 1_100, 6, 3, 5
PROBLEM = Problem.ranking(M, K, (P, Q), {"clicks": (0.0, 6.0), "gain": (-3.0, 6.0)})


def registered() -> dict[str, Any]:
    """The objectives of the registry that a ranker takes, as they are or of the items."""
    found: dict[str, Any] = {}
    for name in fw.registry.names("objectives"):
        of: Any = fw.registry.load("objectives", name)
        for i, example in enumerate(of.examples()):
            for f in (example, TwoSided(example, beta=20.0)):
                try:
                    agent = fw.Agent(FWLinUCBRank(f, exploration=0.1), PROBLEM)
                except FairwolfeError:
                    continue
                with agent.held() as running:
                    if running.plan.samples or running.state.prices.size > 100:
                        continue  # its direction is drawn; slow to make with a price for each item
                found[f"{name}-{i}"] = f
                break
    prices = AtLeast({"clicks": 2.0}) + AtMost({"gain": 3.0})
    return found | {"prices": TwoSided(GiniWelfare(), beta=5.0) + prices}


def randomize(running: Any, rng: np.random.Generator) -> None:
    """A state after anything: early or late, exposures of a few or of many levels."""
    state, d = running.state, P * Q
    late = 10.0 ** rng.uniform(0.0, 5.0)
    rows = rng.normal(size=(d, d)) * np.sqrt(late * 10.0 ** rng.uniform(-2.0, 0.0, d))
    state.gram[0, 0] = np.eye(d) * 0.1 + rows.T @ rows
    state.inverse[0, 0] = np.linalg.inv(state.gram[0, 0])
    state.inverse[0, 0] = 0.5 * (state.inverse[0, 0] + state.inverse[0, 0].T)
    state.theta[...] = rng.normal(size=state.theta.shape) * rng.choice([0.0, 0.05, 0.5])
    state.totals[:M] = np.floor(rng.random(M) ** 3 * rng.choice([1.0, 2.0, 30.0]))
    state.totals[M:] = rng.random(2)
    state.clocks[:] = state.t[:] = np.floor(late) + 40.0
    state.prices[:] = rng.random(state.prices.size)


def items(rng: np.random.Generator) -> Any:
    """Items of which some are equal, so that they tie."""
    rows = rng.normal(size=(M, Q)) / 4.0
    rows[rng.integers(0, M, 250)] = rows[rng.integers(0, M, 250)]
    return rows


def compare(running: Any, given: Candidates, rng: np.random.Generator) -> None:
    """One decision, and that of the plain ranker for the same direction."""
    rows = running.decide(given, rng)
    direction = running.kind.aligned(running.direction(), given)
    made = running.base.act(running.base_state, given, direction, rng)
    np.testing.assert_array_equal(rows.items[0], made.action)
    for slot, one in enumerate(made[3]):
        parts = [one["value"], one["exploration"], one["fairness"]]
        assert rows.parts[0, :, slot].tolist() == parts
        assert rows.ranks[0, slot] == one["rank_without_fairness"]


def play(name: str, f: Any, n: int) -> None:
    rng = stream(0, "large", name)
    agent = fw.Agent(FWLinUCBRank(f, exploration=0.1), PROBLEM, items=items(rng))
    with agent.held() as running:
        for i in range(n):
            randomize(running, rng)
            options: dict[str, Any] = {}
            if i % 4 == 1:
                options["blocked"] = rng.choice(M, 40, replace=False)
            if i % 4 == 2:
                pins = rng.choice(M, 2, replace=False).tolist()
                options["pinned"] = dict(zip([0, 3], pins, strict=True))
            if i % 16 == 3:
                options["pinned"] = dict(enumerate(rng.choice(M, K, replace=False).tolist()))
            given = running.kind.read(rng.normal(size=P), **options)
            compare(running, given, rng)


REGISTERED = registered()


@pytest.mark.parametrize("name", REGISTERED)
def test_rankings_are_those_of_all_widths(name: str) -> None:
    play(name, REGISTERED[name], 200)


@pytest.mark.slow
@pytest.mark.parametrize("name", REGISTERED)
def test_rankings_are_those_of_all_widths_in_many_states(name: str) -> None:
    play(f"{name}, many", REGISTERED[name], 100_000 // len(REGISTERED))
