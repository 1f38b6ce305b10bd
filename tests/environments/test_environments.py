"""The worlds with arms: their draws, their truth, and what they refuse."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import numpy as np
import pytest

from fairwolfe import checks
from fairwolfe.checks.environment import ENVIRONMENT_CHECKS
from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.protocols import Environment
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite, Mehrotra, make
from fairwolfe.environments.mehrotra import largest_of_normals
from fairwolfe.errors import ConformanceError, InvalidInput
from fairwolfe.kernels.worlds import CompiledArmWorld
from fairwolfe.objectives import GeneralizedGini
from tests.environments.draws import draws_many_like_one

SMALL = Mehrotra(n_arms=6, n_objectives=3, n_features=4)

# --- Mehrotra ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "mean"),
    [
        (1, 0.0),
        (2, 1.0 / np.sqrt(np.pi)),
        (3, 1.5 / np.sqrt(np.pi)),
        (4, 6.0 / np.pi**1.5 * np.arctan(np.sqrt(2.0))),
        (5, 5.0 / (4.0 * np.sqrt(np.pi)) + 15.0 / (2.0 * np.pi**1.5) * np.arcsin(1.0 / 3.0)),
    ],
)
def test_the_mean_of_the_largest_normal_has_closed_forms(n: int, mean: float) -> None:
    assert largest_of_normals(n) == pytest.approx(mean, abs=1e-12)


def test_the_mean_of_the_largest_normal_in_the_paper_s_worlds() -> None:
    assert largest_of_normals(50) == pytest.approx(2.24907, abs=5e-6)
    assert largest_of_normals(200) == pytest.approx(2.74604, abs=5e-6)
    # The 1 - 1/n quantile and its next term enclose it for very many.
    assert 6.0 < largest_of_normals(10**9) < 6.3


def test_a_world_and_its_contexts_have_the_paper_s_distributions() -> None:
    environment = Mehrotra(n_arms=50, n_objectives=20, n_features=10)
    theta = environment.init(stream(0, "world"))
    assert theta.shape == (20, 10)
    assert 0.0 <= theta.min() < 0.1
    assert 0.9 < theta.max() <= 1.0
    features, tags = environment.draw_contexts(theta, stream(0, "contexts"), 400)
    assert features.shape == (400, 50, 10)
    assert not tags.any()
    # 200,000 draws: the mean is off by 1/(d sqrt(200,000)), the deviation by 1/sqrt 2 of that.
    error = 0.1 / np.sqrt(features.size)
    assert features.mean() == pytest.approx(0.1, abs=6 * error)
    assert features.std() == pytest.approx(0.1, abs=6 * error)


def test_the_noise_is_a_tenth_of_the_mean() -> None:
    theta = SMALL.init(stream(3, "world"))
    context = SMALL.context(theta, 1, stream(3, "contexts"))
    rng = stream(3, "noise")
    drawn = np.array([SMALL.feedback(theta, context, 2, rng) for _ in range(4000)])
    mean = SMALL.mean_reward(theta, context, 2)
    np.testing.assert_allclose(mean, theta @ context[2], rtol=1e-13)
    # A standard deviation from 4,000 draws is off by 1/sqrt(8,000) of itself: six of these.
    np.testing.assert_allclose(drawn.std(axis=0), 0.1 * np.abs(mean), rtol=6 / np.sqrt(8000))


@pytest.mark.parametrize("n_arms", [1, 2, 50, 200])
def test_the_support_of_the_world_by_monte_carlo(n_arms: int) -> None:
    environment = Mehrotra(n_arms=n_arms, n_objectives=5)
    theta = environment.init(stream(1, "world"))
    features = environment.draw_contexts(theta, stream(1, "contexts"), 4000)[0]
    for direction in stream(1, "directions").standard_normal((4, 5)):
        value, point = environment.support(theta, direction)
        assert value == pytest.approx(float(direction @ point), rel=1e-12)
        best = (features @ theta.T @ direction).argmax(axis=1)
        rewards = features[np.arange(len(best)), best] @ theta.T
        error = rewards.std(axis=0) / np.sqrt(len(best))
        assert (np.abs(rewards.mean(axis=0) - point) <= 6 * error).all()
        scores = rewards @ direction
        assert abs(scores.mean() - value) <= 6 * scores.std() / np.sqrt(len(best))


def test_no_direction_points_at_the_mean_of_all_arms() -> None:
    theta = SMALL.init(stream(0, "world"))
    value, point = SMALL.support(theta, np.zeros(3))
    assert value == 0.0
    np.testing.assert_allclose(point, theta.sum(axis=1) / 4)


def test_the_problem_and_the_objective_of_the_paper() -> None:
    environment = Mehrotra()
    problem = environment.problem()
    assert list(problem.rewards) == ["r1", "r2", "r3", "r4", "r5"]
    assert set(problem.rewards.values()) == {(0.0, 1.0)}
    assert problem.parameter_norm == 1.0
    assert problem.n_features == 10
    assert environment.objective() == GeneralizedGini((1.0, 0.5, 0.25, 0.125, 0.0625))
    assert environment.objective().bind(problem).size == 5


@pytest.mark.parametrize("d", [1, 2, 4, 10, 30])
def test_features_stay_below_the_norm_of_the_problem(d: int) -> None:
    environment = Mehrotra(n_arms=10, n_objectives=2, n_features=d)
    theta = environment.init(stream(0, "world"))
    features = environment.draw_contexts(theta, stream(0, "contexts"), 5000)[0]
    assert np.linalg.norm(features, axis=2).max() < environment.problem().feature_norm


# --- Finite ------------------------------------------------------------------------------------


def table(n_contexts: int = 3, n_arms: int = 4, n: int = 2, **options: Any) -> Finite:
    rng = stream(n_contexts, "table")
    contexts = rng.random((n_contexts, n_arms, 2))
    shares = rng.random(n_contexts) + 0.1
    return Finite(contexts, shares, means=rng.random((n_contexts, n_arms, n)), **options)


def test_the_support_of_a_finite_world_by_enumeration() -> None:
    environment = table()
    world = environment.init(stream(0, "world"))
    shares = np.array(environment.probabilities)
    # Every deterministic policy: an arm for each context.
    policies = np.array(list(product(range(4), repeat=3)))
    points = np.einsum("c,pcd->pd", shares, world.means[np.arange(3), policies])
    for direction in stream(0, "directions").standard_normal((20, 2)):
        value, point = environment.support(world, direction)
        assert value == pytest.approx(float((points @ direction).max()), rel=1e-12)
        assert np.abs(points - point).sum(axis=1).min() < 1e-12


def test_the_two_small_worlds() -> None:
    first, second = Finite.a1(), Finite.a2()
    world = first.init(stream(0, "world"))
    assert first.support(world, np.array([1.0]))[0] == pytest.approx(0.925)
    assert first.support(world, np.array([-1.0]))[0] == pytest.approx(-0.075)
    world = second.init(stream(0, "world"))
    assert world.means[1].tolist() == [[0.9, 0.1], [0.1, 0.7]]
    assert second.support(world, np.array([1.0, 0.0]))[0] == pytest.approx(0.95)
    assert second.support(world, np.array([0.0, 1.0]))[0] == pytest.approx(0.85)
    assert second.problem().parameter_norm == pytest.approx(1.0)
    assert second.problem().feature_norm == pytest.approx(1.0)


def test_contexts_come_with_their_probabilities() -> None:
    environment = table()
    world = environment.init(stream(0, "world"))
    tags = environment.draw_contexts(world, stream(0, "contexts"), 20_000)[1]
    shares = np.array(environment.probabilities)
    error = np.sqrt(shares * (1.0 - shares) / tags.size)
    assert (np.abs(np.bincount(tags) / tags.size - shares) <= 6 * error).all()


@pytest.mark.parametrize("noise", ["bernoulli", "none", 0.25])
def test_the_noise_of_a_finite_world(noise: str | float) -> None:
    environment = table(noise=noise)
    world = environment.init(stream(0, "world"))
    context = environment.context(world, 1, stream(0, "contexts"))
    mean = environment.mean_reward(world, context, 1)
    rng = stream(0, "noise")
    drawn = np.array([environment.feedback(world, context, 1, rng) for _ in range(2000)])
    deviation = {"bernoulli": np.sqrt(mean * (1.0 - mean)), "none": 0.0 * mean}.get(
        str(noise), np.full(2, 0.25)
    )
    assert (np.abs(drawn.mean(axis=0) - mean) <= 6 * deviation / np.sqrt(2000) + 1e-12).all()
    np.testing.assert_allclose(drawn.std(axis=0), deviation, rtol=6 / np.sqrt(4000), atol=1e-12)
    if noise == "bernoulli":
        assert set(np.unique(drawn)) == {0.0, 1.0}


def test_a_context_belongs_to_the_caller() -> None:
    environment = Finite.a2()
    world = environment.init(stream(0, "world"))
    rng = stream(0, "contexts")
    context = environment.context(world, 1, rng)
    copy = context.copy()
    context[:] = 7.0
    assert environment.mean_reward(world, copy, 0).shape == (2,)
    assert [environment.context(world, t, rng).max() for t in range(8)] != [7.0] * 8
    with pytest.raises(InvalidInput, match="not one of the 2"):
        environment.feedback(world, context, 0, rng)


def test_values_that_are_equal_are_equal() -> None:
    rows = [[[1, 0], [0, 1]]]
    one = Finite(rows, [3], theta=np.eye(2))
    assert one == Finite(np.array(rows, dtype=float), (1.0,), theta=((1.0, 0.0), (0.0, 1.0)))
    assert hash(one) == hash(eval(repr(one)))
    assert one.problem() == eval(repr(one)).problem()
    thirds = Finite([[[1.0]], [[2.0]], [[3.0]]], (0.1, 0.2, 0.3), theta=[[0.1]])
    assert eval(repr(thirds)) == thirds


def test_means_outside_the_unit_range_widen_the_problem() -> None:
    environment = Finite([[[1.0], [2.0]]], [1.0], means=[[[-2.0, 0.5], [3.0, 0.25]]], noise=1.0)
    assert dict(environment.problem().rewards) == {"r1": (-2.0, 3.0), "r2": (0.0, 1.0)}
    assert environment.problem().parameter_norm is None


ONE = [[[1.0, 2.0], [0.0, 1.0]]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contexts": ONE, "probabilities": [1.0]}, "either theta or means"),
        (
            {"contexts": ONE, "probabilities": [1.0], "theta": [[1, 1]], "means": [[[1], [1]]]},
            "either theta or means",
        ),
        ({"contexts": [[1.0]], "probabilities": [1.0], "theta": [[1.0]]}, "shape (1, 1)"),
        (
            {"contexts": [[[1.0]], [[1.0], [2.0]]], "probabilities": [1, 1]},
            "rows of equal length",
        ),
        ({"contexts": "abc", "probabilities": [1.0], "theta": [[1.0]]}, "contexts is not an array"),
        ({"contexts": ONE, "probabilities": [0.5, 0.5], "theta": [[0.1, 0.1]]}, "1 contexts"),
        ({"contexts": ONE, "probabilities": [0.0], "theta": [[0.1, 0.1]]}, "positive number"),
        ({"contexts": ONE, "probabilities": [1.0], "theta": [[0.1]]}, "theta has 1 columns"),
        ({"contexts": ONE, "probabilities": [1.0], "theta": [[0.5, 0.5]]}, "means in [0, 1]"),
        (
            {"contexts": ONE, "probabilities": [1.0], "means": [[[0.5]]]},
            "means has shape (1, 1, 1)",
        ),
        ({"contexts": [*ONE, *ONE], "probabilities": [1, 1], "theta": [[0.1, 0.1]]}, "equal"),
        ({"contexts": [[[np.nan]]], "probabilities": [1.0], "theta": [[1.0]]}, "not finite"),
        ({"contexts": ONE, "probabilities": [1], "theta": [[0, 0]], "noise": "x"}, "noise is 'x'"),
        ({"contexts": ONE, "probabilities": [1], "theta": [[0, 0]], "noise": -1}, "noise is -1"),
        (
            {"contexts": ONE, "probabilities": [1], "theta": [[0, 0]], "noise": None},
            "noise is None",
        ),
        (
            {"contexts": ONE, "probabilities": [1], "theta": [[0, 0]], "noise": True},
            "noise is True",
        ),
    ],
)
def test_finite_says_what_is_wrong(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=re.escape(message)):
        Finite(**options)


# --- what both refuse, and by name -------------------------------------------------------------


@pytest.mark.parametrize("environment", [SMALL, Finite.a2()], ids=["mehrotra", "finite"])
def test_bad_actions_contexts_and_directions_are_refused(environment: Any) -> None:
    world = environment.init(stream(0, "world"))
    context = environment.context(world, 1, stream(0, "contexts"))
    rng = stream(0, "noise")
    for action in (-1, len(context), 0.0, True, None, "0", [0]):
        with pytest.raises(InvalidInput, match="give the number of an arm, 0 to"):
            environment.feedback(world, context, action, rng)
    with pytest.raises(InvalidInput, match="shape"):
        environment.mean_reward(world, context[:, :1], 0)
    n = environment.problem().n_objectives
    for direction in (np.ones(7), np.full(n, np.nan), [np.inf] * n, [[1.0]]):
        with pytest.raises(InvalidInput, match=f"give {n} finite numbers"):
            environment.best_action(world, context, direction)
        with pytest.raises(InvalidInput, match=f"give {n} finite numbers"):
            environment.support(world, direction)
    assert rng.random() == stream(0, "noise").random(), "refusals draw nothing"


def test_environments_by_name() -> None:
    assert make("mehrotra") == Mehrotra()
    assert make("mehrotra", n_arms=200, n_objectives=20).problem().n_objectives == 20
    assert (
        make("finite", contexts=ONE, probabilities=[1.0], theta=[[0.1, 0.1]]).noise == "bernoulli"
    )
    for name, options, message in (
        ("mehrotr", {}, "did you mean 'mehrotra'"),
        ("mehrotra", {"narms": 3}, "did you mean 'n_arms'"),
        ("mehrotra", {"n_arms": "many"}, "n_arms is 'many'"),
        ("mehrotra", {"n_arms": 2.5}, "n_arms is 2.5"),
        ("mehrotra", {"n_features": 0}, "n_features is 0"),
        ("mehrotra", {"n_objectives": True}, "n_objectives is True"),
        ("finite", {}, "needs the option 'contexts'; give contexts, probabilities"),
    ):
        with pytest.raises(InvalidInput, match=message):
            make(name, **options)


# --- the checks notice broken worlds -----------------------------------------------------------


class _Broken(Mehrotra):
    def __init__(self) -> None:
        super().__init__(n_arms=5, n_objectives=2, n_features=3)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class Intact(_Broken):
    """Nothing is wrong."""


class WrongMean(_Broken):
    def mean_reward(self, world: Matrix, context: Any, action: Any) -> Vector:
        return 1.05 * super().mean_reward(world, context, action)


class WrongBest(_Broken):
    def best_action(self, world: Matrix, context: Any, direction: Vector) -> int:
        return super().best_action(world, context, -np.asarray(direction))


class WrongSupport(_Broken):
    def support(self, world: Matrix, direction: Vector) -> tuple[float, Vector]:
        value, point = super().support(world, direction)
        return 1.1 * value, 1.1 * point


class NotTheMaximiser(_Broken):
    def support(self, world: Matrix, direction: Vector) -> tuple[float, Vector]:
        value, point = super().support(world, direction)
        return value, 0.9 * point


class DrawsMore(_Broken):
    def feedback(self, world: Matrix, context: Any, action: Any, rng: Any) -> Vector:
        if action != 0:
            rng.random()
        return super().feedback(world, context, action, rng)


class OtherContexts(_Broken):
    def context(self, world: Matrix, t: int, rng: np.random.Generator) -> Matrix:
        return super().context(world, t, rng) * (1.0 + 1e-15)


class OtherBits(_Broken):
    def reward_program(self, world: Matrix) -> CompiledArmWorld:
        return super().reward_program(world * (1.0 + 1e-15 * self._met_once()))

    def _met_once(self) -> int:
        count = self.__dict__.setdefault("_count", [0])
        count[0] += 1
        return int(count[0] % 2)


class HiddenState(_Broken):
    def draw_contexts(
        self, world: Matrix, rng: np.random.Generator, n: int
    ) -> tuple[Cube, IntVector]:
        features, tags = super().draw_contexts(world, rng, n)
        return features + self.__dict__.setdefault("_drift", np.zeros(1)), tags

    def init(self, rng: np.random.Generator) -> Matrix:
        self.__dict__.setdefault("_drift", np.zeros(1))[0] += 1.0
        return super().init(rng)


class AnyAction(_Broken):
    def feedback(self, world: Matrix, context: Any, action: Any, rng: Any) -> Vector:
        return super().feedback(world, context, int(action) % len(context), rng)


class NoProblem(_Broken):
    def problem(self) -> Any:
        return None if "_problem" not in self.__dict__ else super().problem()


@pytest.mark.parametrize(
    ("broken", "noticed"),
    [
        (WrongMean, "has_mean_rewards"),
        (WrongBest, "knows_the_best_action"),
        (WrongSupport, "has_an_exact_support"),
        (NotTheMaximiser, "has_an_exact_support"),
        (DrawsMore, "draws_only_from_its_generators"),
        (HiddenState, "draws_only_from_its_generators"),
        (AnyAction, "refuses_bad_actions"),
        (NoProblem, "has_a_problem"),
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


@pytest.mark.parametrize("broken", [OtherContexts, OtherBits])
def test_other_draws_of_the_compiled_loop_are_noticed(broken: type[_Broken]) -> None:
    with pytest.raises(ConformanceError):
        draws_many_like_one(broken(), stream(0, "checks", "draws_many_like_one"))
