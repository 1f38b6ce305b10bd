"""Rankings off-policy: enumeration of a small world, and how much better exposures are."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import GiniEquality, Linear, TwoSided
from fairwolfe.offpolicy import Log
from fairwolfe.offpolicy.sums import Memory
from fairwolfe.ranking import FWLinUCBRank

M, K = 4, 3
PROBLEM = fw.Problem.ranking(M, K, (2, 1))
RANKINGS = [np.array(one) for one in permutations(range(M), K)]
PATTERNS = [(1.0, one, two) for one in (0.0, 1.0) for two in (0.0, 1.0)]  # b = 1, 1/2, 1/2
CLICKS = Linear({"clicks": 1.0})


def at_rank(weights: Any) -> Any:
    """P(item i in slot j) of a distribution over all rankings."""
    out = np.zeros((M, K))
    for ranking, weight in zip(RANKINGS, weights, strict=True):
        out[ranking, np.arange(K)] += weight
    return out / sum(weights)


def whole_world() -> tuple[Log, Any, Any, Any]:
    """Every ranking and every exposure of two kinds of users, as often as they are likely, with the
    expected clicks: the log is the population. Also the target's distributions, and its truth.
    """
    rng = np.random.default_rng(0)
    theta = rng.uniform(0.1, 0.9, (2, M))
    counts = rng.integers(1, 4, (2, len(RANKINGS)))
    counts[1] = counts[1][np.argsort(rng.random(len(RANKINGS)))]
    size = np.lcm(counts[0].sum(), counts[1].sum())
    target = rng.dirichlet(np.ones(len(RANKINGS)), 2)
    columns: dict[str, list[Any]] = {"user": [], "ranking": [], "exposed": [], "reward.clicks": []}
    columns |= {"probability": [], "probabilities": []}
    kinds, chances = [], []
    for user in range(2):
        times = size // counts[user].sum()
        logged = at_rank(counts[user])
        pairs = product(zip(RANKINGS, counts[user], target[user], strict=True), PATTERNS)
        for (ranking, count, chance), pattern in pairs:
            for _ in range(count * times):
                columns["user"].append(np.eye(2)[user])
                columns["ranking"].append(ranking)
                columns["exposed"].append(pattern)
                columns["reward.clicks"].append(np.array(pattern) * theta[user, ranking])
                columns["probability"].append(count / counts[user].sum())
                columns["probabilities"].append(logged)
                kinds.append(user)
                chances.append(chance)
    b = np.array([1.0, 0.5, 0.5])
    truth = np.zeros(M + 1)
    for user in range(2):
        for ranking, chance in zip(RANKINGS, target[user], strict=True):
            truth[ranking] += 0.5 * chance * b
            truth[M] += 0.5 * chance * float(b @ theta[user, ranking])
    ranks = np.array([at_rank(target[user]) for user in range(2)])[kinds]
    return Log.of(columns, PROBLEM), ranks, np.array(chances), truth


@pytest.fixture(scope="module")
def world() -> tuple[Log, Any, Any, Any]:
    return whole_world()


class ByUser:
    """A policy of somebody's own, by the power: P(item i in slot j) of the two kinds of users."""

    def __init__(self, by_kind: Any) -> None:
        self.by_kind = by_kind

    def at_rank(self, users: Any, allowed: Any = None) -> Any:
        return self.by_kind[users.argmax(axis=1)]


@pytest.mark.parametrize("estimator", ["exposure", "position"])
def test_an_object_with_at_rank_is_as_good_as_the_probabilities(world: Any, estimator: str) -> None:
    log, ranks, *_ = world
    policy = ByUser(ranks[[0, -1]])  # the two kinds of users come one after the other
    one, other = (log.evaluate(given, CLICKS, estimator) for given in (policy, ranks))
    assert np.array_equal(one.average, other.average)
    assert (one.low, one.high) == (other.low, other.high)


@pytest.mark.parametrize("estimator", ["exposure", "position", "ips", "snips"])
def test_every_estimator_is_right_on_the_whole_population(world: Any, estimator: str) -> None:
    log, ranks, chances, truth = world
    policy = ranks if estimator in ("exposure", "position") else chances
    found = log.evaluate(policy, CLICKS, estimator)
    if estimator == "exposure":
        # By item over all users: right for exposures, and for clicks by the ratio in each context.
        assert np.allclose(found.average[:M], truth[:M], rtol=0, atol=1e-12)
        assert abs(found.average[M] - truth[M]) < 1e-12
    else:
        assert np.allclose(found.average, truth, rtol=0, atol=1e-12)
    assert found.labels[M] == "clicks"


def test_the_logging_policy_itself_earns_what_was_earned(world: Any) -> None:
    log, *_ = world
    itself = log._data.at_rank
    for estimator in ("exposure", "position"):
        found = log.evaluate(itself, CLICKS, estimator)
        assert np.allclose(found.average, log.average, rtol=0, atol=1e-12)
        assert found.ess > 0.99 * found.n or estimator == "exposure"


def drawn(n: int, rng: np.random.Generator, m: int = 6, k: int = 3) -> tuple[Log, Any, Any]:
    """Plackett-Luce logging of m items, and a target that is another."""
    relevance = np.linspace(0.8, 0.2, m)
    b = 1.0 / np.log2(np.arange(k) + 2.0)

    def plackett(scores: Any) -> dict[tuple[int, ...], float]:
        out = {}
        for ranking in permutations(range(m), k):
            left, chance = scores.sum(), 1.0
            for item in ranking:
                chance *= scores[item] / left
                left -= scores[item]
            out[ranking] = chance
        return out

    old, new = plackett(np.exp(0.3 * np.arange(m))), plackett(np.exp(1.0 * relevance * 3))
    lists = np.array(list(old))

    def ranks(table: dict[tuple[int, ...], float]) -> Any:
        out = np.zeros((m, k))
        for ranking, chance in table.items():
            out[list(ranking), np.arange(k)] += chance
        return out

    places = rng.choice(len(lists), n, p=np.array(list(old.values())))
    shown = lists[places]
    exposed = (rng.random((n, k)) < b).astype(float)
    clicks = exposed * (rng.random((n, k)) < relevance[shown])
    columns = {
        "ranking": shown,
        "exposed": exposed,
        "reward.clicks": clicks,
        "probability": np.array(list(old.values()))[places],
        "probabilities": np.broadcast_to(ranks(old), (n, m, k)),
        "user": np.ones((n, 1)),
    }
    problem = fw.Problem.ranking(m, k, (1, 1))
    truth = float((ranks(new) @ b) @ relevance)
    chances = np.array(list(new.values()))[places]
    return Log.of(columns, problem), (np.broadcast_to(ranks(new), (n, m, k)), chances), truth


def test_exposures_need_far_fewer_data_than_whole_rankings() -> None:
    found: dict[str, list[float]] = {"exposure": [], "position": [], "ips": []}
    held = 0
    for run in range(40):
        log, (ranks, chances), truth = drawn(2000, np.random.default_rng(run))
        for name, values in found.items():
            policy = chances if name == "ips" else ranks
            estimate = log.evaluate(policy, CLICKS, name)
            values.append(estimate.value - truth)
            if name == "exposure":
                held += estimate.low <= truth <= estimate.high
    spread = {name: np.std(values) for name, values in found.items()}
    assert spread["ips"] > 3.0 * spread["position"]
    assert spread["ips"] > 4.0 * spread["exposure"]
    assert spread["position"] > spread["exposure"]
    assert abs(np.mean(found["exposure"])) < 5.0 * spread["exposure"] / np.sqrt(40)
    assert held >= 32  # of 40 at 95 %: fewer have a chance below one in ten thousand


def test_fair_objectives_of_exposures() -> None:
    log, (ranks, _), _ = drawn(2000, np.random.default_rng(0))
    f = TwoSided(GiniEquality(), beta=0.5)
    found = log.evaluate(ranks, f)
    assert found.estimator == "exposure"
    assert found.low < found.value <= found.high
    difference = log.compare(ranks, log._data.at_rank, f, "exposure")  # type: ignore[union-attr]
    assert difference.low < difference.value < difference.high


def test_an_agent_ranks_from_where_it_stands() -> None:
    rng = np.random.default_rng(0)
    items = dict(zip("abcde", rng.random((5, 2)) / 2, strict=True))
    problem = fw.Problem.ranking(5, 3, (2, 2))
    agent = fw.Agent(
        FWLinUCBRank(TwoSided(GiniEquality()), exploration="theorem"), problem, items=items
    )
    rows = []
    for _ in range(20):
        user = rng.random(2) / 2
        decision: Any = agent.act(user)
        shown = fw.Shown(np.ones(3), rng.integers(0, 2, (3, 1)).astype(float))
        agent.update(decision, shown)
        rows.append((decision, shown, user))
    log = Log.of(rows, problem)
    before = agent.dump()
    found = log.evaluate(lambda user: agent.propose([user])[0].action, CLICKS, "snips")
    again = log.evaluate(agent, CLICKS, "snips")
    assert np.array_equal(found.average, again.average)
    assert agent.dump() == before


def test_what_cannot_be_done_with_rankings_raises() -> None:
    log, (ranks, chances), _ = drawn(50, np.random.default_rng(0))
    wrong = np.zeros((50, 6, 3))
    wrong[:, 0] = 1.0
    with pytest.raises(InvalidInput, match="two slots at once"):
        log.evaluate(wrong, CLICKS, "position")
    with pytest.raises(InvalidInput, match="sum to 1"):
        log.evaluate(0.5 * ranks, CLICKS, "exposure")
    with pytest.raises(InvalidInput, match="different items"):
        log.evaluate(np.zeros((50, 3), dtype=int), CLICKS, "exposure")
    with pytest.raises(InvalidInput, match="one of exposure"):
        log.evaluate(ranks, CLICKS, "cascade")
    with pytest.raises(InvalidInput, match="whole rankings are weighed"):
        log.evaluate(ranks, CLICKS, "ips")
    data: Any = log._data
    bare = Log(Memory(replace(data, at_rank=None)))
    with pytest.raises(InvalidInput, match="log has none"):
        bare.evaluate(ranks, CLICKS, "exposure")
    assert bare.evaluate(chances, CLICKS, "snips").n == 50
    assert "item-at-rank" in str(bare.check())
