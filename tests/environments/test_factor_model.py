"""Worlds with rankings: factors, position weights, feedback by slots, and the exact support."""

from __future__ import annotations

import itertools
import pickle
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairwolfe import checks
from fairwolfe.checks.environment import ENVIRONMENT_CHECKS
from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.contexts import Bilinear, arms
from fairwolfe.core.feedback import Shown
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Environment
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, FiniteRanking, body, dcg, make
from fairwolfe.environments.world import RankingArrays
from fairwolfe.errors import ConformanceError, InvalidInput
from fairwolfe.kernels.ranks import largest
from tests.environments.draws import draws_many_like_one

USERS = [[0.5, -0.2, 0.4], [0.1, 0.7, 0.3]]
ITEMS = [[0.3, 0.2, 0.9], [0.8, -0.5, 0.1], [0.2, 0.6, 0.5], [1.1, 0.9, 2.0]]
GOOD = [[0.9, 0.1], [0.2, 0.5], [0.4, 0.4]]


def drawn(environment: Any, seed: int = 0) -> RankingArrays:
    world: RankingArrays = environment.init(stream(seed, "world"))
    return world


# --- building blocks ---------------------------------------------------------------------------


@settings(max_examples=200)
@given(st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, -1.0]), min_size=1, max_size=30), st.data())
def test_the_largest_scores_are_those_of_a_stable_sort(scores: list[float], data: Any) -> None:
    k = data.draw(st.integers(1, len(scores)))
    out = np.empty(k, dtype=np.int64)
    largest(np.array(scores), out)
    assert out.tolist() == np.argsort(-np.array(scores), kind="stable")[:k].tolist()


def test_the_largest_of_rising_scores() -> None:
    out = np.empty(3, dtype=np.int64)
    largest(np.arange(100.0), out)
    assert out.tolist() == [99, 98, 97]


def test_totals_are_the_exposures_then_the_sums() -> None:
    shown = Shown(np.array([1.0, 0.0, 1.0]), np.array([[1.0, 0.25], [0.0, 0.0], [0.0, -2.0]]))
    problem = Problem.ranking(5, 3, 1, {"clicks": (0.0, 3.0), "gain": (-9.0, 9.0)})
    reward = kind_of(problem).observe(np.array([3, 0, 1]), shown).reward
    assert reward.tolist() == [0.0, 1.0, 0.0, 1.0, 0.0, 1.0, -1.75]


def test_position_weights() -> None:
    np.testing.assert_allclose(dcg(10), 1.0 / np.log2(1.0 + np.arange(1, 11)), rtol=1e-15)
    np.testing.assert_allclose(body(10), np.log(2.0) / (1.0 + np.log(np.arange(1, 11))), rtol=1e-15)
    with pytest.raises(InvalidInput, match="n_slots is 0"):
        dcg(0)


# --- the model ---------------------------------------------------------------------------------


@pytest.mark.parametrize("calibration", ["clip", "affine"])
def test_means_are_products_of_factors_put_into_their_range(calibration: str) -> None:
    environment = FactorModel(USERS, ITEMS, dcg(1), calibration=calibration)
    world = drawn(environment)
    raw = np.array(USERS) @ np.array(ITEMS).T
    low, high = min(raw.min(), 0.0), max(raw.max(), 1.0)
    wanted = np.clip(raw, 0.0, 1.0) if calibration == "clip" else (raw - low) / (high - low)
    for user, item in itertools.product(range(2), range(4)):
        context = environment.show(world, user)
        mean = environment.mean_reward(world, context, np.array([item]))
        assert mean[:4].tolist() == [float(i == item) for i in range(4)]
        assert mean[4] == pytest.approx(wanted[user, item], abs=1e-14)


@pytest.mark.parametrize(
    "environment", [e for e in FactorModel.examples() if e.calibration != "clip"]
)
def test_rewards_are_linear_in_the_features(environment: FactorModel) -> None:
    """Mean rewards are theta x, summed over the slots, with the norms that the problem states."""
    problem = environment.problem()
    world = drawn(environment, 3)
    places = itertools.product(range(len(world.users)), range(len(world.items)))
    rows, means = [], []
    for user, item in places:
        context = environment.show(world, user)
        features = arms(context, problem).features
        assert features.shape == (problem.n_items, problem.dimension)
        rest = [i for i in range(len(world.items)) if i != item]
        ranking = np.array([item, *rest])[: problem.n_slots]
        mean = environment.mean_reward(world, context, ranking)
        weights = world.weights[user if len(world.weights) > 1 else 0]
        rows.append(weights @ features[ranking])
        means.append(mean[len(world.items) :])
        norms = np.linalg.norm(features, axis=1)
        assert norms.max() <= problem.feature_norm * (1.0 + 1e-12)
    theta, *_ = np.linalg.lstsq(np.array(rows), np.array(means), rcond=None)
    np.testing.assert_allclose(np.array(rows) @ theta, means, atol=1e-12)
    assert problem.parameter_norm is not None
    assert np.linalg.norm(theta, axis=0).max() <= problem.parameter_norm * (1.0 + 1e-9)


def test_the_norms_of_the_parameters() -> None:
    plain = FactorModel(GOOD, GOOD, dcg(2)).problem()
    affine = FactorModel(GOOD, GOOD, dcg(2), calibration="affine").problem()
    assert (plain.n_features, affine.n_features) == ((2, 2), (3, 3))
    assert plain.parameter_norm == pytest.approx(np.sqrt(2.0))
    assert affine.parameter_norm == pytest.approx(np.sqrt(3.0))
    largest = max(np.linalg.norm(row) for row in GOOD)
    assert plain.feature_norm == pytest.approx(largest**2)
    assert affine.feature_norm == pytest.approx(largest**2)  # nothing had to be moved


def test_several_rewards_have_their_ranges() -> None:
    environment = FactorModel.examples()[-1]
    problem, world = environment.problem(), drawn(environment)
    assert dict(problem.rewards) == {"plays": (0.0, 3.0), "minutes": (-3.0, 15.0)}
    context = environment.show(world, 0)
    rng = stream(0, "noise")
    seen = set()
    for _ in range(200):
        shown = environment.feedback(world, context, np.array([0, 1, 2]), rng)
        seen |= {tuple(row) for row in shown.rewards[shown.exposed == 1.0].tolist()}
    assert seen == {(0.0, -1.0), (0.0, 5.0), (1.0, -1.0), (1.0, 5.0)}


def test_exposures_follow_the_weights_of_the_user() -> None:
    weights = [[1.0, 0.5], [0.25, 0.0]]
    environment = FactorModel(USERS, ITEMS, weights, calibration="affine")
    world, rng = drawn(environment), stream(1, "noise")
    for user in range(2):
        context = environment.show(world, user)
        action = np.array([2, 0])
        rounds = 4000
        seen = np.zeros(2)
        for _ in range(rounds):
            seen += environment.feedback(world, context, action, rng).exposed
        error = 5.0 * np.sqrt(0.25 / rounds)
        np.testing.assert_allclose(seen / rounds, weights[user], atol=error)
        mean = environment.mean_reward(world, context, action)
        assert mean[:4].tolist() == [weights[user][1], 0.0, weights[user][0], 0.0]


@pytest.mark.parametrize("environment", [*FactorModel.examples(), *FiniteRanking.examples()])
def test_the_support_is_the_mean_of_the_best_rankings(environment: Any) -> None:
    problem, world = environment.problem(), drawn(environment)
    rng = stream(0, "directions")
    for g in (*rng.standard_normal((20, problem.n_objectives)), np.zeros(problem.n_objectives)):
        value, point = environment.support(world, g)
        best = []
        for user in range(len(world.users)):
            context = environment.show(world, user)
            action = environment.best_action(world, context, g)
            best.append(environment.mean_reward(world, context, action))
            every = itertools.permutations(range(problem.n_items), problem.n_slots)
            means = [environment.mean_reward(world, context, np.array(a)) for a in every]
            assert (np.array(means) @ g).max() <= g @ best[-1] + 1e-12
        np.testing.assert_allclose(point, np.mean(best, axis=0), atol=1e-14)
        assert value == pytest.approx(g @ point, abs=1e-13)


def test_ties_go_to_the_lowest_index() -> None:
    environment = FactorModel(GOOD, [[0.5, 0.5]] * 5, dcg(3))
    world = drawn(environment)
    context = environment.show(world, 1)
    assert environment.best_action(world, context, np.zeros(6)).tolist() == [0, 1, 2]
    g = np.array([0.0, 1.0, 0.0, 1.0, 0.0, 2.0])
    assert environment.best_action(world, context, g).tolist() == [1, 3, 0]


# --- the drawn world ---------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_the_default_world_makes_fairness_a_trade_off(seed: int) -> None:
    environment = make("factor_model")
    problem, world = environment.problem(), drawn(environment, seed)
    assert (problem.n_items, problem.n_slots, len(world.users)) == (50, 10, 60)
    means = world.users @ world.items.T
    assert means.min() >= 0.0
    assert 0.8 <= means.max() <= 1.0
    assert 0.1 <= means.mean() <= 0.3  # 0.13 to 0.16
    norms = np.linalg.norm(world.users, axis=1)[:, None] * np.linalg.norm(world.items, axis=1)
    assert norms.max() == pytest.approx(problem.feature_norm, rel=1e-12)
    # Who maximises clicks gives the bottom half of the items next to nothing.
    clicks, point = environment.support(world, np.eye(51)[50])
    exposures = np.sort(point[:50])
    assert exposures.sum() == pytest.approx(sum(dcg(10)))
    assert exposures[:25].sum() <= 0.1 * exposures.sum()
    # Equal exposure costs a good part of the clicks: the mean over items is what is left.
    assert means.mean() * sum(dcg(10)) <= 0.75 * clicks


def test_the_world_is_that_of_the_seed() -> None:
    environment = FactorModel(7, 6, dcg(2))
    one, again, other = drawn(environment, 1), drawn(environment, 1), drawn(environment, 2)
    assert np.array_equal(one.users, again.users)
    assert np.array_equal(one.items, again.items)
    assert not np.array_equal(one.users, other.users)
    assert FactorModel(7, 6, dcg(2), n_factors=3).problem().n_features == (3, 3)


def test_items_are_shared_and_not_copied() -> None:
    environment = FactorModel(4, 6, dcg(2))
    world, rng = drawn(environment), stream(0, "contexts")
    first, second = (environment.context(world, t, rng) for t in (1, 2))
    assert first.items is world.items
    assert second.items is world.items


def test_users_who_are_equal_are_one() -> None:
    environment = FactorModel([GOOD[0], GOOD[1], GOOD[0]], GOOD, dcg(2))
    world = drawn(environment)
    assert [environment.tag(world, environment.show(world, u)) for u in range(3)] == [0, 1, 0]


# --- values and refusals -----------------------------------------------------------------------


def test_values_that_are_equal_are_equal() -> None:
    one = FactorModel(GOOD, np.array(GOOD), dcg(2))
    other = FactorModel(np.array(GOOD), [tuple(row) for row in GOOD], list(dcg(2)))
    assert one == other
    assert hash(one) == hash(other)
    assert one != FactorModel(GOOD, GOOD, dcg(1))
    assert pickle.loads(pickle.dumps(one)) == one
    assert FactorModel(users=-0.0 * np.ones((2, 2)), items=GOOD, position_weights=dcg(1)) == (
        FactorModel(users=np.zeros((2, 2)), items=GOOD, position_weights=dcg(1))
    )
    given = np.array(GOOD)
    kept = FactorModel(given, GOOD, dcg(2))
    given[:] = 0.0
    assert kept == one


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"users": USERS, "items": ITEMS}, "there are 10 position weights and 4 items"),
        ({"calibration": None}, "the means of 'clicks' go from -0.24 to 1.34, outside their range"),
        ({"calibration": "linear"}, "calibration is 'linear'; give 'clip', 'affine' or None"),
        ({"users": 5}, "one of users and items is a number and the other is not"),
        ({"users": 0, "items": 3}, "users is 0"),
        ({"users": [[0.5, np.nan, 0.1]]}, "users has a number that is not finite"),
        ({"users": [0.5, 0.1]}, "users has shape (2,); give (users, factors)"),
        ({"users": [[0.5, 0.1]]}, "users have 2 factors and items 3"),
        ({"users": [[0.5], [0.1, 0.2]]}, "users is not an array of shape (users, factors)"),
        ({"n_factors": 4}, "n_factors is 4, but the factors are given"),
        ({"position_weights": (0.5, 0.6)}, "that never increase from slot to slot"),
        ({"position_weights": (1.5, 0.6)}, "they are probabilities"),
        ({"position_weights": (1.0, np.nan)}, "they are probabilities"),
        ({"position_weights": ()}, "position_weights has shape (0,)"),
        ({"position_weights": "dcg"}, "position_weights is not an array of numbers"),
        ({"position_weights": [[1.0], [0.5], [0.1]]}, "for each of the 2 users"),
        ({"rewards": {}}, "rewards is {}; give a mapping"),
        ({"rewards": {"clicks": np.eye(3)}}, "give (matrix, (low, high))"),
        ({"rewards": {"clicks": (np.eye(2), (0, 1))}}, "has shape (2, 2); users and items have 3"),
        ({"rewards": {"clicks": (np.eye(3), (1, 0))}}, "the range of reward 'clicks' is (1, 0)"),
    ],
)
def test_the_model_says_what_is_wrong(options: dict[str, Any], message: str) -> None:
    usual = {"users": USERS, "items": ITEMS, "position_weights": dcg(2), "calibration": "clip"}
    if "items" in options and options["users"] is USERS:
        del usual["position_weights"]
    with pytest.raises(InvalidInput, match=re.escape(message)):
        FactorModel(**(usual | options))


def test_equal_users_with_different_weights_are_refused() -> None:
    with pytest.raises(InvalidInput, match="users 0 and 1 are equal and cannot be distinguished"):
        FactorModel([GOOD[0], GOOD[0]], GOOD, [[1.0], [0.5]])


def test_bad_contexts_and_directions_are_refused() -> None:
    environment = FactorModel(4, 6, dcg(2), n_factors=3)
    world = drawn(environment)
    good = environment.show(world, 0)
    for context, message in (
        (Bilinear(good.user + 0.1, good.items), "belongs to none of the 4 users"),
        (Bilinear(good.user, good.items[:3]), "the items of the context are not those"),
        (good.flat(), "the context is a ndarray; give the Bilinear"),
    ):
        with pytest.raises(InvalidInput, match=message):
            environment.best_action(world, context, np.ones(7))
    for direction in (np.ones(6), np.full(7, np.nan)):
        with pytest.raises(InvalidInput, match="give 7 finite numbers"):
            environment.support(world, direction)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"theta": (1.0,)}, "theta has 1 numbers and the items have 2 features"),
        ({"theta": (2.0, 0.0)}, "the click probabilities go from 0 to 2; scale theta"),
        ({"contexts": [[1.0, 0.0]]}, "contexts has shape (1, 2)"),
        ({"position_weights": (1.0, 1.0, 1.0)}, "3 position weights and 2 items"),
    ],
)
def test_the_finite_ranking_says_what_is_wrong(options: dict[str, Any], message: str) -> None:
    features = [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [0.0, 0.5]]]
    usual = {"contexts": features, "theta": (0.5, 0.5), "position_weights": (1.0,)}
    with pytest.raises(InvalidInput, match=re.escape(message)):
        FiniteRanking(**(usual | options))


# --- the checks notice broken worlds -----------------------------------------------------------


class _Broken(FactorModel):
    def __init__(self) -> None:
        super().__init__(users=6, items=5, position_weights=dcg(3), n_factors=4)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class Intact(_Broken):
    """Nothing is wrong."""


class WrongMean(_Broken):
    def mean_reward(self, world: RankingArrays, context: Any, action: Any) -> Vector:
        return 1.1 * super().mean_reward(world, context, action)


class WrongOrder(_Broken):
    """The right items from the worst to the best."""

    def best_action(self, world: RankingArrays, context: Any, direction: Any) -> IntVector:
        return super().best_action(world, context, direction)[::-1].copy()


class WrongSupport(_Broken):
    def support(self, world: RankingArrays, direction: Any) -> tuple[float, Vector]:
        value, point = super().support(world, direction)
        return 1.1 * value, 1.1 * point


class WholeReward(_Broken):
    """The reward vector instead of what happened in each slot."""

    def feedback(self, world: RankingArrays, context: Any, action: Any, rng: Any) -> Any:
        shown = super().feedback(world, context, action, rng)
        return kind_of(self.problem()).observe(action, shown).reward


class UnseenClicks(_Broken):
    def feedback(self, world: RankingArrays, context: Any, action: Any, rng: Any) -> Shown:
        shown = super().feedback(world, context, action, rng)
        return Shown(shown.exposed, np.ones_like(shown.rewards))


class HalfExposed(_Broken):
    def feedback(self, world: RankingArrays, context: Any, action: Any, rng: Any) -> Shown:
        shown = super().feedback(world, context, action, rng)
        return Shown(0.5 * shown.exposed, shown.rewards)


class DrawsMore(_Broken):
    def feedback(self, world: RankingArrays, context: Any, action: Any, rng: Any) -> Shown:
        rng.random()
        return super().feedback(world, context, action, rng)


class OtherUsers(_Broken):
    def draw_users(self, rng: np.random.Generator, n: int) -> IntVector:
        return np.sort(super().draw_users(rng, n))


class AnyAction(_Broken):
    def _ranking(self, action: Any) -> IntVector:
        return np.resize(np.asarray(action, dtype=np.int64) % 5, 3)


@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        (WrongMean, "has_mean_rewards"),
        (WrongOrder, "knows_the_best_action"),
        (WrongSupport, "has_an_exact_support"),
        (WholeReward, "shows_slot_by_slot"),
        (UnseenClicks, "shows_slot_by_slot"),
        (HalfExposed, "shows_slot_by_slot"),
        (AnyAction, "refuses_bad_actions"),
    ],
)
def test_the_checks_notice(broken: type[_Broken], noticed: str) -> None:
    failed = {outcome.check for outcome in checks.outcomes(broken()) if outcome.error is not None}
    assert noticed in failed
    with pytest.raises(ConformanceError):
        checks.check(broken())


def test_the_checks_pass_an_intact_one() -> None:
    assert isinstance(Intact(), Environment)
    assert checks.check(Intact()) == len(ENVIRONMENT_CHECKS)


@pytest.mark.parametrize("broken", [DrawsMore, OtherUsers])
def test_other_draws_of_the_compiled_loop_are_noticed(broken: type[_Broken]) -> None:
    with pytest.raises(ConformanceError):
        draws_many_like_one(broken(), stream(0, "checks", "draws_many_like_one"))
