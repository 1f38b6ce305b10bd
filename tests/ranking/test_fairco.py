"""FairCoRank: against a plain controller, its special case, its rate, and open decisions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, Problem, simulate
from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.feedback import Shown
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniEquality, TwoSided
from fairwolfe.ranking import FairCoRank, LinUCBRank

FAIR = TwoSided(GiniEquality())
M, K, P = 8, 3, 2


class PlainFairCo:
    """The rule as it is printed, on its own: V is inverted anew in every round."""

    def __init__(self, gain: float, merit: Any, exploration: float) -> None:
        self.gain, self.merit, self.exploration = gain, merit, exploration
        self.v, self.y = 0.1 * np.eye(P * P), np.zeros(P * P)
        self.exposed, self.earned, self.t = np.zeros(M), np.zeros(M), 1

    def rank(self, x: Matrix) -> IntVector:
        inverse = np.linalg.inv(self.v)
        width = np.sqrt(np.einsum("id,de,ie->i", x, inverse, x))
        log_det = np.linalg.slogdet(self.v)[1] - P * P * np.log(0.1)
        alpha = 0.5 * np.sqrt(2.0 * np.log(3.0 / 0.05) + log_det)
        alpha += np.sqrt(0.1) * 1.0
        merit = self.merit
        if isinstance(merit, str):
            merit = (1.0 + self.earned) / (1.0 + self.exposed)
        lag = self.exposed / max(self.t - 1, 1) / (1.0 if merit is None else np.array(merit))
        error = self.gain * (self.t - 1) * (lag.max() - lag)
        scores = x @ (inverse @ self.y) + self.exploration * alpha * width + error
        return np.argsort(-scores, kind="stable")[:K]

    def learn(self, x: Matrix, ranking: IntVector, seen: Vector, clicks: Vector) -> None:
        for slot, item in enumerate(ranking):
            if seen[slot]:
                self.v += np.outer(x[item], x[item])
                self.y += clicks[slot] * x[item]
        self.exposed[ranking] += seen
        self.earned[ranking] += clicks
        self.t += 1


@pytest.mark.parametrize("merit", [None, tuple(np.linspace(0.5, 2.0, M)), "values"])
@pytest.mark.parametrize("gain", [0.003, 0.1])
def test_it_ranks_as_the_rule_does(gain: float, merit: Any) -> None:
    rng = stream(0, "fairco", str(gain))
    problem = Problem.ranking(M, K, (P, P), {"clicks": (0, K)}, parameter_norm=1.0)
    policy = FairCoRank(gain, merit, exploration=0.3)
    plain, state = PlainFairCo(gain, merit, 0.3), policy.init(problem)
    items = rng.random((M, P)) / 2.0
    for _ in range(150):
        user = rng.random(P)
        x = np.einsum("a,ie->iae", user, items).reshape(M, -1)
        decision = policy.act(state, Bilinear(user, items), rng)
        ranking = np.asarray(decision.action)
        assert ranking.tolist() == plain.rank(x).tolist()
        seen = (rng.random(K) < (1.0, 0.6, 0.5)).astype(float)
        clicks = seen * (rng.random(K) < items[ranking] @ user)
        state = policy.update(state, decision, Shown(seen, clicks[:, None]))
        plain.learn(x, ranking, seen, clicks)


def test_without_a_gain_it_is_linucbrank_to_the_last_bit() -> None:
    world = FactorModel(6, 9, (1.0, 0.7, 0.5), n_factors=3)
    one = simulate(FairCoRank(0.0), world, 2_000, 1, FAIR, record_actions=True)
    other = simulate(LinUCBRank(), world, 2_000, 1, FAIR, record_actions=True)
    assert one.compiled
    assert other.compiled
    np.testing.assert_array_equal(one.actions, other.actions)
    np.testing.assert_array_equal(one.average_observed, other.average_observed)
    moved = simulate(FairCoRank(1e-3), world, 2_000, 1, FAIR, record_actions=True)
    assert np.any(moved.actions != other.actions)


@pytest.mark.parametrize("merit", [None, (1.0, 1.0, 2.0, 2.0, 2.0, 1.0)])
def test_unfairness_falls_like_one_over_t(merit: Any) -> None:
    """Exposure certain, targets that can be reached: differences of counts stay bounded."""
    world = FactorModel(6, 6, (1.0, 1.0, 1.0), n_factors=3)
    policy = FairCoRank(0.05, merit, exploration=0.1, exposure="shown")
    times = [1_000, 4_000, 16_000, 64_000]
    trace = simulate(policy, world, 64_000, 0, FAIR, times)
    shares = trace.average_observed[:, :6] / np.array(merit or np.ones(6))
    spread = shares.max(axis=1) - shares.min(axis=1)
    assert (spread * times < 100.0).all()  # 1/sqrt(t) would give 4, 8 times the first product
    assert np.polyfit(np.log(times), np.log(spread), 1)[0] < -0.8
    unfair = simulate(LinUCBRank(exploration=0.1), world, 64_000, 0, FAIR, times)
    apart = unfair.average_observed[:, :6]
    assert (apart.max(axis=1) - apart.min(axis=1) > 0.1).all()


def test_open_decisions_count() -> None:
    """Twenty rankings without an answer spread over the items, as with answers."""
    problem = Problem.ranking(6, 2, 1)
    agent = Agent(FairCoRank(10.0, position_weights=(1.0, 1.0)), problem)
    shown = np.zeros(6)
    for _ in range(21):
        shown[list(agent.act(np.full((6, 1), 0.5)).action)] += 1.0
    assert agent.t == 0
    assert shown.max() - shown.min() <= 1.0


@pytest.mark.parametrize("merit", [None, "values"])
def test_items_come_and_go(merit: Any) -> None:
    problem = Problem.ranking(4, 2, 2)
    rng = stream(0, "fairco", "items")
    agent = Agent(FairCoRank(0.1, merit), problem, items=rng.random((4, 2)) / 2.0)
    for n in range(200):
        if n == 100:
            agent.add_items(rng.random((1, 2)) / 2.0)
            agent.retire([0])
        decision = agent.act(np.ones(1))
        agent.update(decision, exposed=decision.action, clicked=decision.action[:1])
    assert agent.t == 200
    assert agent.average[-2] > 0.2  # the new one has caught up: 2 slots for 4 items


@pytest.mark.parametrize(
    ("gain", "merit", "sentence"),
    [
        (-1.0, None, r"gain is -1\.0; give a finite number of at least 0"),
        (np.inf, None, "gain is inf"),
        (1.0, "clicks", "merit is 'clicks'; give a positive number for each item"),
        (1.0, (1.0, 0.0), "merit has 0; give a positive number"),
    ],
)
def test_what_cannot_be_is_refused(gain: float, merit: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput, match=sentence):
        FairCoRank(gain, merit)


def test_as_many_merits_as_items() -> None:
    policy = FairCoRank(1.0, (1.0, 2.0))
    with pytest.raises(InvalidInput, match="merit has 2 numbers, the problem 3 items"):
        policy.init(Problem.ranking(3, 1, 1))
