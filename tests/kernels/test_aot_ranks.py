"""Rankings compiled ahead of time: the bits of today's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arrays import IntVector
from fairwolfe.kernels import selection
from fairwolfe.kernels.bilinear import estimates_of
from fairwolfe.kernels.ranks import Ranking, RankingWorld, count_exposures, largest
from fairwolfe.kinds.exposures import count_exposed
from fairwolfe.oracles import Ridge
from fairwolfe.ranking import kernels as numba_kernels
from fairwolfe.ranking.fairlearn_rank import deprived_first
from fairwolfe.ranking.linucb_rank import optimistic
from fairwolfe.ranking.unbiased_linucb_rank import discounted

nan, inf = float("nan"), float("inf")
RULES = {"optimistic": optimistic, "discounted": discounted, "deprived_first": deprived_first}
kernels: Any = numba_kernels
NONE = np.empty(0, dtype=np.int64)


@pytest.mark.parametrize("n", [1, 2, 31, 32, 33, 64, 100, 2500])
@pytest.mark.parametrize("levels", [2, 5, 10_000])
def test_largest(n: int, levels: int) -> None:
    rng = np.random.default_rng(n)
    for k in {1, min(n, 10), max(n // 2, 1), n}:
        for order in (1, -1, 0):
            scores = rng.integers(0, levels, n) / 7.0
            scores = np.sort(scores)[::order] if order else scores
            scores[rng.random(n) < 0.05] = rng.choice([inf, -inf, nan, -0.0])
            scores = np.ascontiguousarray(scores)
            old, new = np.empty(k, dtype=np.int64), np.empty(k, dtype=np.int64)
            selection.top_k(scores, k, old)
            scores.flags.writeable = False
            largest(scores, new)
            assert np.array_equal(old, new)
            if not np.isnan(scores).any():
                assert np.array_equal(new, np.argsort(-scores, kind="stable")[:k])


class Rounds:
    """A state that has learnt from random rounds, and what a ranking is made of."""

    def __init__(
        self,
        p: int = 3,
        q: int = 4,
        n: int = 20,
        k: int = 5,
        n_rewards: int = 1,
        rule: str = "optimistic",
        rule_params: tuple[float, ...] = (),
        exploration: float = 0.3,
        randomize: float = 0.0,
        doubtful: bool = True,
    ) -> None:
        rng = self.rng = np.random.default_rng(n + 7 * q)
        self.sizes, self.rule = (p, q, n, k, n_rewards), rule
        self.state = Ridge(0.1).allocate(1, n_rewards, p * q)
        half = rng.normal(size=(p * q, p * q))
        self.state.inverse[0] = np.linalg.inv(half @ half.T + np.eye(p * q))
        self.state.inverse[0] = (self.state.inverse[0] + self.state.inverse[0].T) / 2.0
        self.state.theta[:] = rng.normal(size=self.state.theta.shape)
        self.state.counters[:2] = 40.0, 5.0
        self.ranges = np.sort(rng.normal(size=(2, n_rewards)), axis=0)
        radii = rng.random(2 * n_rewards)
        ends = self.ranges.ravel() if exploration < 0.0 else ()
        self.params = np.array([exploration, 7.0, randomize, *radii, *rule_params, *ends])
        self.doubt = np.array([1.0, 7.0, 0.0, *radii]) if doubtful else np.empty(0)
        state = self.state
        self.aot = Ranking(
            rule, state.theta, state.inverse, state.counters, self.params, self.doubt, self.ranges,
            p, q, k, n + 3,
        )  # fmt: skip

    def ranked(self, pinned: IntVector = NONE) -> tuple[Any, Any]:
        """One ranking in both forms: outputs of `rank`, `_explain` and `look_along`."""
        (p, q, n, k, n_rewards), rng, state = self.sizes, self.rng, self.state
        user, items = rng.normal(size=p), rng.normal(size=(q, n))
        items[:, n // 2] = items[:, 0]  # ties
        g, slope = rng.normal(size=n + n_rewards), rng.normal(size=n + n_rewards)
        g[n // 2], slope[n // 2] = g[0], slope[0]
        exposed, shown = rng.integers(0, 9, n) * 1.0, rng.integers(9, 20, n) * 1.0
        if rng.random() < 0.2:
            exposed[:] = 0.0
        draws = rng.random(1 + k // 2)
        contracted, metric = np.empty((q, p * q)), np.empty((q, q))
        old, new = np.zeros((3, n)), np.zeros((3, n))
        rankings, ranks = np.zeros((2, k), np.int64), np.zeros((2, k), np.int64)
        parts, looks = np.zeros((2, 3, k)), np.zeros((2, 2, k))
        probability = kernels.rank(
            user, items, state.theta, state.inverse, state.counters, g, exposed, shown, 40.0,
            RULES[self.rule].address, estimates_of(q).address, self.params, pinned, draws,
            contracted, metric, *old, rankings[0],
        )  # fmt: skip
        weights = g[n:]
        bonus, wide = kernels._worth(
            user, items, state.theta, state.counters, weights, self.params, old[1]
        )
        kernels._explain(old[0], wide, bonus, old[2], rankings[0], *parts[0], ranks[0])
        kernels.look_along(
            user, items, state.theta, old[1], state.counters, slope, rankings[0], self.doubt,
            self.ranges, looks[0],
        )  # fmt: skip
        for array in (user, items, g, exposed, shown, draws):
            array.flags.writeable = False
        same = self.aot.choose(
            user, items, g, exposed, shown, 40.0, pinned, draws, rankings[1], new
        )
        self.aot.reasons(n, rankings[1], parts[1], ranks[1])
        self.aot.look(user, items, slope, rankings[1], looks[1])
        before = (probability, old, rankings[0], parts[0], ranks[0], looks[0])
        return before, (same, new, rankings[1], parts[1], ranks[1], looks[1])

    def check(self, pinned: IntVector = NONE) -> None:
        for old, new in zip(*self.ranked(pinned), strict=True):
            assert np.asarray(old).tobytes() == np.asarray(new).tobytes()


@pytest.mark.parametrize(
    ("rule", "rule_params"),
    [
        ("optimistic", ()),
        ("discounted", (0.0,)),
        ("discounted", (1.0,)),
        ("deprived_first", (0.3, 1.0)),
        ("deprived_first", (0.0, 0.0)),
    ],
)
@pytest.mark.parametrize("exploration", [0.0, 0.7, -1.0])
def test_rules(rule: str, rule_params: tuple[float, ...], exploration: float) -> None:
    for n_rewards in (1, 2):
        rounds = Rounds(
            rule=rule, rule_params=rule_params, exploration=exploration, n_rewards=n_rewards
        )
        for _ in range(10):
            rounds.check()


@pytest.mark.parametrize(("p", "q"), [(1, 1), (1, 5), (2, 10), (10, 10), (4, 7), (3, 12), (5, 11)])
@pytest.mark.parametrize("n", [1, 9, 50, 130])
def test_sizes(p: int, q: int, n: int) -> None:
    for k in {1, min(n, 10), n}:
        Rounds(p, q, n, k, exploration=0.5).check()
        Rounds(p, q, n, k, exploration=-1.0, n_rewards=3, doubtful=False).check()


@pytest.mark.parametrize("randomize", [0.0, 0.2, 0.9])
def test_pinned_slots_and_swaps(randomize: float) -> None:
    for k in (1, 2, 5, 6):
        rounds = Rounds(k=k, n=12, randomize=randomize)
        for _ in range(40):
            pinned = np.full(k, -1)
            which = rounds.rng.random(k) < 0.4
            pinned[which] = rounds.rng.choice(12, int(which.sum()), replace=False)
            rounds.check(pinned)
            rounds.check()


def test_what_is_not_finite_reaches_the_scores() -> None:
    rounds = Rounds()
    rounds.state.theta[0, 0, 0] = nan
    before, after = rounds.ranked()
    assert np.array_equal(before[2], after[2])
    assert np.isnan(after[1][2]).all()


@pytest.mark.parametrize("exposure", [0, 1, 2])
@pytest.mark.parametrize("n_rewards", [1, 2])
def test_exposures(exposure: int, n_rewards: int) -> None:
    rng, codes = np.random.default_rng(exposure), set()
    for _ in range(600):
        k = int(rng.integers(1, 7))
        items: Any = rng.choice(9, k, replace=bool(rng.random() < 0.2)) - (rng.random() < 0.03)
        exposed: Any = rng.integers(0, 2, k) * 1.0
        rewards: Any = rng.integers(0, 2, (k, n_rewards)) * rng.random((k, n_rewards))
        if rng.random() < 0.8:
            rewards *= exposed[:, None]
        if rng.random() < 0.1:
            exposed[rng.integers(k)] = rng.choice([0.5, nan, -1.0])
        if rng.random() < 0.1:
            rewards[rng.integers(k), 0] = rng.choice([nan, inf])
        old: Any
        new: Any
        old, new = np.full((2, k), 7.0), rng.normal(size=(2, 9 + n_rewards))
        new[1] = new[0]
        code = count_exposed(exposure, items, exposed, rewards, old[0], new[0])
        assert code == count_exposures(exposure, items, exposed, rewards, old[1], new[1])
        assert old[0].tobytes() == old[1].tobytes()
        assert new[0].tobytes() == new[1].tobytes()
        codes.add(code // k)
    assert codes >= ({0, 1, 2, 3, 4, 5} if exposure == 0 else {0, 1, 2, 4, 5})


def world_of(rng: np.random.Generator, own_weights: bool, n_rewards: int, q: int) -> Any:
    users, m, k = 6, 14, 4
    turned, items = rng.normal(size=(n_rewards, users, q)), rng.normal(size=(m, q))
    items[3] = items[8]
    weights = -np.sort(-rng.random((users if own_weights else 1, k)))
    ranges = np.sort(rng.normal(size=(n_rewards, 2)))
    return turned, items, np.ascontiguousarray(items.T), weights, ranges


@pytest.mark.parametrize("own_weights", [False, True])
@pytest.mark.parametrize("n_rewards", [1, 3])
@pytest.mark.parametrize("q", [1, 4, 6, 11])
def test_worlds(own_weights: bool, n_rewards: int, q: int) -> None:
    rng = np.random.default_rng(q)
    turned, items, columns, weights, ranges = world_of(rng, own_weights, n_rewards, q)
    users, m, k = turned.shape[1], len(items), weights.shape[1]
    world = RankingWorld(turned, items, columns, weights, ranges)
    for user in [*range(users), 0]:
        action, g = rng.permutation(m)[:k], rng.normal(size=m + n_rewards)
        uniforms = rng.random(k + k * n_rewards)
        exposed, rewards = np.empty((2, k)), np.empty((2, k, n_rewards))
        world.feedback(action, user, uniforms, exposed[1], rewards[1])
        place = user if len(weights) > 1 else 0
        low, high = ranges.T
        mean = np.clip(np.einsum("rq,mq->mr", turned[:, user], items), low, high)
        looks, draws = uniforms[:k] < weights[place], uniforms[k:].reshape(k, n_rewards)
        hits = low + (high - low) * draws < mean[action]
        earned = np.where(hits, high, low) * looks[:, None]
        assert np.array_equal(exposed[1], looks)
        assert np.array_equal(rewards[1], np.where(looks[:, None], earned, 0.0))
        found, expected = np.full(m + n_rewards, nan), np.zeros(m + n_rewards)
        world.mean(action, user, found)
        expected[action] = weights[place]
        expected[m:] = weights[place] @ mean[action]
        np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
        best = np.zeros(k, np.int64)
        world.best_for(g, user, best)
        scores = g[:m] + mean @ g[m:]
        np.testing.assert_allclose(scores[best], np.sort(scores)[::-1][:k], rtol=1e-12, atol=1e-14)
        shares, point = rng.dirichlet(np.ones(users)), np.empty(m + n_rewards)
        height = world.support(g, shares, point)
        average = np.zeros(m + n_rewards)
        for other in range(users):
            world.best_for(g, other, best)
            world.mean(best, other, found)
            average += shares[other] * found
        np.testing.assert_allclose(point, average, rtol=1e-11, atol=1e-13)
        assert abs(height - g @ average) <= 1e-11


def test_shapes_are_checked() -> None:
    rounds = Rounds()
    state, (p, q, n, k, _) = rounds.state, rounds.sizes
    arrays = (state.theta, state.inverse, state.counters, rounds.params, rounds.doubt)
    for bad in ((p + 1, q, k, n), (p, q, n + 1, n), (p, q, 0, n)):
        with pytest.raises(ValueError, match="arrays"):
            Ranking("optimistic", *arrays, rounds.ranges, *bad)
    with pytest.raises(ValueError, match="no rule"):
        Ranking("pessimistic", *arrays, rounds.ranges, p, q, k, n)
    with pytest.raises(ValueError, match="largest"):
        largest(np.zeros(3), np.empty(4, np.int64))
    with pytest.raises(ValueError, match="shapes"):
        count_exposures(0, np.arange(2), np.ones(3), np.ones((2, 1)), np.ones(2), np.ones(5))
    one = np.zeros((1, 1))
    with pytest.raises(ValueError, match="weights"):
        RankingWorld(one[None], one, one, np.zeros((3, 1)), np.zeros((1, 2)))
    world = RankingWorld(one[None], one, one, one, np.zeros((1, 2)))
    with pytest.raises(ValueError, match="no item"):
        world.mean(np.array([1]), 0, np.empty(2))
    with pytest.raises(ValueError, match="user"):
        world.mean(np.array([0]), 1, np.empty(2))
