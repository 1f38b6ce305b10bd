"""Rankings: scores, the k largest, pinned slots, swaps, explanations, exposures; worlds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.kernels.ranks import (
    CompiledRankingWorld,
    Ranking,
    count_exposures,
    largest,
    scores_of,
)
from fairwolfe.oracles import Ridge

nan, inf = float("nan"), float("inf")
NONE = np.empty(0, dtype=np.int64)
T = 40.0


def in_order(scores: Vector, k: int) -> IntVector:
    """By insertion: a score that is not a number stays where it is met."""
    places: list[int] = []
    for i, score in enumerate(scores.tolist()):
        if len(places) == k and not score > scores[places[-1]]:
            continue
        places = places[: k - 1] if len(places) == k else places
        at = len(places)
        while at > 0 and score > scores[places[at - 1]]:
            at -= 1
        places.insert(at, i)
    return np.array(places, dtype=np.int64)


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
            scores.flags.writeable = False
            found = np.empty(k, dtype=np.int64)
            largest(scores, found)
            if np.isnan(scores).any():
                assert np.array_equal(found, in_order(scores, k))
            else:
                assert np.array_equal(found, np.argsort(-scores, kind="stable")[:k])


def swapped(
    chance: float, draws: Vector, pinned: IntVector, ranking: list[int]
) -> tuple[list[int], float]:
    """Neighbours change places, in pairs from the first or the second slot on; the propensity."""
    free = [i < 0 for i in pinned] if pinned.size else [True] * len(ranking)
    pairs = [j for j in range(len(ranking) - 1) if free[j] and free[j + 1]]
    offset, out, swaps = int(draws[0] >= 0.5), list(ranking), 0
    if chance == 0.0:
        return out, 1.0
    own = [j for j in pairs if j % 2 == offset]
    for j in own:
        if draws[1 + j // 2] < chance:
            out[j], out[j + 1] = out[j + 1], out[j]
            swaps += 1
    probability = 0.5 * chance**swaps * (1.0 - chance) ** (len(own) - swaps)
    if swaps == 0:
        probability += 0.5 * (1.0 - chance) ** (len(pairs) - len(own))
    return out, probability


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
        self.rule_params = np.array(rule_params)
        self.state = Ridge(0.1).allocate(1, n_rewards, p * q)
        half = rng.normal(size=(p * q, p * q))
        self.state.inverse[0] = np.linalg.inv(half @ half.T + np.eye(p * q))
        self.state.inverse[0] = (self.state.inverse[0] + self.state.inverse[0].T) / 2.0
        self.state.theta[:] = rng.normal(size=self.state.theta.shape)
        self.state.counters[:2] = 40.0, 5.0
        self.ranges = np.sort(rng.normal(size=(2, n_rewards)), axis=0)
        self.radii = rng.random((2, n_rewards))
        ends = self.ranges.ravel() if exploration < 0.0 else ()
        radii = self.radii.ravel()
        self.params = np.array([exploration, 7.0, randomize, *radii, *rule_params, *ends])
        self.bounds = np.array([1.0, 7.0, 0.0, *radii]) if doubtful else np.empty(0)
        state = self.state
        self.one = Ranking(
            state.theta, state.inverse, state.counters, self.params, self.bounds, self.ranges,
            p, q, k, n + 3,
        )  # fmt: skip

    def drawn(self) -> tuple[Any, ...]:
        """A user, items with ties, a direction, a slope, counts and draws."""
        (p, q, n, k, n_rewards), rng = self.sizes, self.rng
        user, items = rng.normal(size=p), rng.normal(size=(q, n))
        items[:, n // 2] = items[:, 0]
        g, slope = rng.normal(size=n + n_rewards), rng.normal(size=n + n_rewards)
        g[n // 2], slope[n // 2] = g[0], slope[0]
        exposed, shown = rng.integers(0, 9, n) * 1.0, rng.integers(9, 20, n) * 1.0
        if rng.random() < 0.2:
            exposed[:] = 0.0
        arrays = user, items, g, slope, exposed, shown, rng.random(1 + k // 2)
        for array in arrays:
            array.flags.writeable = False
        return arrays

    def _bonus(self, weights: Vector, exploration: float) -> float:
        noise, prior = self.radii
        return exploration * float(abs(weights) @ (noise * np.sqrt(7.0 + 5.0) + prior))

    def _pointwise(self, x: Any, weights: Vector, widths: Vector) -> Vector:
        """sum_r |g_r| (radius w sd + h (high - low)), h = w^2/(1 + w^2)."""
        low, high = self.ranges
        radius = 0.5 * np.sqrt(2.0 * np.log(1.0 + x.shape[1] * np.sqrt(41.0)))
        reach = (widths**2 / (1.0 + widths**2))[:, None]
        least = np.minimum(reach, 0.5)
        place = (x @ self.state.theta[0].T - low) / (high - low)
        place = np.minimum(np.maximum(place, least), 1.0 - least)
        deviation = np.minimum((high - low) * np.sqrt(place * (1.0 - place)), self.radii[0])
        bonuses: Vector = radius * widths[:, None] * deviation + reach * (high - low)
        return bonuses @ abs(weights)

    def _scores(self, value: Vector, extra: Vector, g: Vector, exposed: Any, shown: Any) -> Vector:
        k, params = self.sizes[3], self.rule_params
        if self.rule == "optimistic":
            return value + extra + g
        if self.rule == "discounted":
            total = exposed.sum()
            factor = 1.0 - k * exposed / total if total > 0.0 else np.ones(value.size)
            return value + (np.maximum(factor, 0.0) if params[0] else factor) * extra
        lag = params[0] * T - shown
        return np.where(lag > params[1], 1e100 * (1.0 + lag), value + extra)

    def check(self, pinned: IntVector = NONE) -> None:
        """One ranking, its explanation and its live numbers, against NumPy."""
        (_, _, n, k, _), state = self.sizes, self.state
        user, items, g, slope, exposed, shown, draws = self.drawn()
        x = np.array([np.kron(user, item) for item in items.T])
        near: dict[str, Any] = {"rtol": 1e-9, "atol": 1e-9}
        value, width, scores = np.empty(n), np.empty(n), np.empty(n)
        bonus = self.one.estimate(user, items, g, value, width)
        np.testing.assert_allclose(value, x @ (g[n:] @ state.theta[0]), **near)
        widths = np.sqrt(np.einsum("ij,jk,ik->i", x, state.inverse[0], x))
        if self.params[0] < 0.0:
            assert bonus == 1.0
            np.testing.assert_allclose(width, self._pointwise(x, g[n:], widths), **near)
        else:
            assert bonus == pytest.approx(self._bonus(g[n:], self.params[0]))
            np.testing.assert_allclose(width, widths, **near)
        scores_of(
            self.rule, value, width, bonus, g[:n], exposed, shown, T, k, self.rule_params, scores
        )
        plain = value + bonus * width
        wanted = self._scores(value, bonus * width, g[:n], exposed, shown)
        np.testing.assert_allclose(scores, wanted, rtol=1e-13)
        ranking = np.empty(k, np.int64)
        probability = self.one.arrange(scores, pinned, draws, ranking)
        free = scores.copy()
        free[pinned[pinned >= 0]] = -inf
        best = iter(np.argsort(-free, kind="stable").tolist())
        before = [
            int(pinned[j]) if pinned.size and pinned[j] >= 0 else next(best) for j in range(k)
        ]
        after, chance = swapped(self.params[2], draws, pinned, before)
        assert ranking.tolist() == after
        assert probability == pytest.approx(chance, rel=1e-14)
        parts, ranks = np.empty((3, k)), np.empty(k, np.int64)
        self.one.reasons(n, ranking, parts, ranks)
        assert np.array_equal(parts[:2], [value[ranking], (bonus * width)[ranking]])
        assert np.array_equal(parts[2], (scores - plain)[ranking])
        assert ranks.tolist() == [1 + int((plain > plain[i]).sum()) for i in ranking]
        terms = np.empty((2, k))
        self.one.certify(user, items, slope, ranking, terms)
        own = x @ (slope[n:] @ state.theta[0])
        along = own + slope[:n]
        np.testing.assert_allclose(terms[1], np.sort(along)[::-1][:k] - along[ranking], **near)
        upper = np.zeros(n)
        if self.bounds.size:
            most = np.maximum(slope[n:] * self.ranges[0], slope[n:] * self.ranges[1]).sum()
            upper = np.minimum(own + self._bonus(slope[n:], 1.0) * widths, most) + slope[:n]
        np.testing.assert_allclose(terms[0], np.sort(upper)[::-1][:k], **near)


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
    user, items, g, *_ = rounds.drawn()
    value, width = np.empty((2, g.size - 1))
    rounds.one.estimate(user, items, g, value, width)
    assert np.isnan(value).all()
    assert np.isfinite(width).all()


COIN, FINITE, EARNED, ITEM, TWICE = range(1, 6)


def counted(exposure: int, items: Any, exposed: Any, rewards: Any, m: int) -> tuple[int, Any, Any]:
    """What is wrong, by slot; which slots count as exposed; and the reward vector."""
    k = len(items)
    for j in range(k):
        wrong = [
            (ITEM, not 0 <= items[j] < m),
            (TWICE, items[j] in items[:j]),
            (COIN, exposed[j] not in (0.0, 1.0)),
        ]
        for earned in rewards[j]:
            wrong.append((FINITE, not np.isfinite(earned)))
            wrong.append((EARNED, exposure == 0 and exposed[j] == 0.0 and earned != 0.0))
        for what, found in wrong:
            if found:
                return what * k + j, None, None
    earning = np.flatnonzero(rewards.any(axis=1))
    last = earning[-1] if earning.size else -1
    counts = [exposed, np.ones(k), np.arange(k) <= last][exposure] * 1.0
    total = np.zeros(m + rewards.shape[1])
    total[items] = counts
    total[m:] = counts @ rewards
    return 0, counts, total


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
        found, total = np.full(k, 7.0), np.zeros(9 + n_rewards)
        code = count_exposures(exposure, items, exposed, rewards, found, total)
        wrong, counts, reward = counted(exposure, items, exposed, rewards, 9)
        assert code == wrong
        if wrong:
            assert (found == 7.0).all()
            assert not total.any()
        else:
            assert found.tolist() == counts.tolist()
            np.testing.assert_allclose(total, reward, rtol=1e-14)
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
    world = CompiledRankingWorld(turned, items, columns, weights, ranges)
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
    arrays = (state.theta, state.inverse, state.counters, rounds.params, rounds.bounds)
    for bad in ((p + 1, q, k, n), (p, q, n + 1, n), (p, q, 0, n)):
        with pytest.raises(ValueError, match="arrays"):
            Ranking(*arrays, rounds.ranges, *bad)
    numbers, none, out = np.zeros(n), np.empty(0), np.empty(n)
    given: Any = (numbers, numbers, 1.0, numbers, numbers, numbers, T, k, none, out)
    with pytest.raises(ValueError, match="no rule"):
        scores_of("hopeful", *given)
    with pytest.raises(ValueError, match="params"):
        scores_of("discounted", *given)
    user, items, g, slope, *_, draws = rounds.drawn()
    with pytest.raises(ValueError, match="direction"):
        rounds.one.estimate(user, items, g[1:], numbers, out)
    with pytest.raises(ValueError, match="estimates"):
        rounds.one.estimate(user, items, g, numbers[1:], out)
    ranking = np.empty(k, np.int64)
    with pytest.raises(ValueError, match="scores"):
        rounds.one.arrange(numbers[: k - 1], NONE, draws, ranking)
    with pytest.raises(ValueError, match="pinned item"):
        rounds.one.arrange(numbers, np.full(k, n), draws, ranking)
    with pytest.raises(ValueError, match="candidates"):
        rounds.one.certify(user, items, slope, np.full(k, n), np.empty((2, k)))
    with pytest.raises(ValueError, match="largest"):
        largest(np.zeros(3), np.empty(4, np.int64))
    with pytest.raises(ValueError, match="shapes"):
        count_exposures(0, np.arange(2), np.ones(3), np.ones((2, 1)), np.ones(2), np.ones(5))
    one = np.zeros((1, 1))
    with pytest.raises(ValueError, match="weights"):
        CompiledRankingWorld(one[None], one, one, np.zeros((3, 1)), np.zeros((1, 2)))
    world = CompiledRankingWorld(one[None], one, one, one, np.zeros((1, 2)))
    with pytest.raises(ValueError, match="no item"):
        world.mean(np.array([1]), 0, np.empty(2))
    with pytest.raises(ValueError, match="user"):
        world.mean(np.array([0]), 1, np.empty(2))
