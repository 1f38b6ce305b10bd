"""Bandits over linear oracles against plain NumPy formulas of the same rules."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, Problem
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.bandits import Fixed as Always
from fairwolfe.bandits.base import BanditState, LinearBandit
from fairwolfe.bandits.exploration import SCALE
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import Bilinear, PerArm, among, arms
from fairwolfe.core.decision import Choice
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite
from fairwolfe.errors import InvalidInput, NumericalFailure, OutsideAssumptions
from fairwolfe.kernels.rules import certificate_terms, choose, lesson
from fairwolfe.objectives import GiniWelfare, Linear, Minimum, Nash
from fairwolfe.oracles import OnlineGradient, RegretBound, Ridge
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation import simulate

nan, inf = float("nan"), float("inf")

D, N = 4, 3  # features, rewards
RANGES = {"clicks": (0.0, 1.0), "gain": (-1.0, 2.0), "cost": (0.0, 0.5)}
PROBLEM = Problem.arms(D, RANGES, parameter_norm=0.8, feature_norm=1.5)
LOW, HIGH = np.array([0.0, -1.0, 0.0]), np.array([1.0, 2.0, 0.5])
DIAMETER = math.sqrt(1.0 + 9.0 + 0.25)


@dataclass
class Fixed:
    """A generator whose next uniform number is known."""

    uniform: float

    def random(self, size: tuple[int, ...]) -> Vector:
        return np.full(size, self.uniform)


def bad(value: object) -> Any:
    """A value of the wrong type, on purpose."""
    return value


def at(uniform: float) -> np.random.Generator:
    return bad(Fixed(uniform))  # type: ignore[no-any-return]


class Played:
    """A bandit that has learnt, with all it saw: the oracle of the formulas."""

    def __init__(self, base: LinearBandit, rounds: int, seed: int = 0, scale: float = 1.0) -> None:
        self.base, self.rng = base, stream(seed, "bandits")
        self.state: BanditState = base.init(PROBLEM)
        self.x, self.r = np.zeros((0, D)), np.zeros((0, N))
        for _ in range(rounds):
            context, g = self.context(5), self.rng.normal(size=N)
            choice = base.act(self.state, context, g, self.rng)
            reward = scale * self.rng.uniform(LOW, HIGH)
            self.state = base.update(self.state, choice, g, reward)
            self.x, self.r = (
                np.vstack([self.x, context[choice.action]]),
                np.vstack([self.r, reward]),
            )

    def context(self, n_arms: int) -> Matrix:
        return self.rng.normal(size=(n_arms, D)) / 2.0

    def gram(self, ridge: float) -> Matrix:
        return ridge * np.eye(D) + self.x.T @ self.x

    def theta(self, ridge: float) -> Matrix:
        solved: Matrix = np.linalg.solve(self.gram(ridge), self.x.T @ self.r).T.astype(np.float64)
        return solved

    def probabilities(self, context: Matrix, g: Vector) -> Callable[[Vector], None]:
        """Asserts that every arm is drawn on its part of [0, 1), with its probability."""

        def expect(probabilities: Vector) -> None:
            assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
            start = 0.0
            for arm, p in enumerate(probabilities):
                for share in (0.001, 0.5, 0.999):
                    choice = self.base.act(self.state, context, g, at(start + share * p))
                    assert choice.action == arm
                    assert choice.probability == pytest.approx(p, rel=1e-9, abs=1e-13)
                start += p

        return expect


def gap_rule(values: Vector, gamma: float) -> Vector:
    """1/(K + gamma (best - value)), the rest to the best."""
    best = int(values.argmax())
    p: Vector = 1.0 / (len(values) + gamma * (values[best] - values))
    p[best] += 1.0 - p.sum()
    return p


@pytest.mark.parametrize("gamma0", [0.5, 10.0, 1e4])
@pytest.mark.parametrize("n_arms", [1, 2, 6])
def test_squarecb_with_a_gamma0(gamma0: float, n_arms: int) -> None:
    played = Played(SquareCB(gamma0=gamma0, oracle=Ridge(0.1)), 30)
    for _ in range(5):
        context, g = played.context(n_arms), played.rng.normal(size=N)
        values = context @ played.theta(0.1).T @ g
        # 30 rewards have come, so this is round 31.
        played.probabilities(context, g)(gap_rule(values, gamma0 * math.sqrt(31.0)))


@pytest.mark.parametrize("oracle", [Ridge(0.5), OnlineGradient()])
def test_squarecb_with_a_scaled_gamma(oracle: Any) -> None:
    """gamma_t = SCALE K sqrt(t)/sum_i |g_i| R_i, R_i half the range of reward i."""
    played = Played(SquareCB(gamma0="scaled", oracle=oracle), 30)
    for n_arms in (1, 2, 6):
        context, g = played.context(n_arms), played.rng.normal(size=N)
        values = context @ played.state.oracle.theta[0].T @ g
        gamma = SCALE * n_arms * math.sqrt(31.0) / (np.abs(g) @ (HIGH - LOW) / 2.0)
        played.probabilities(context, g)(gap_rule(values, gamma))


def test_a_scaled_gamma_does_not_depend_on_the_units_of_f() -> None:
    world, f = Finite.a2(), Minimum()
    runs = [
        simulate(
            FrankWolfe(times * f, SquareCB(gamma0=gamma0)), world, 300, record_actions=True
        ).actions
        for gamma0 in ("scaled", 100.0)
        for times in (1.0, 128.0)  # a power of 2 changes no rounding
    ]
    actions = [np.asarray(one).tolist() for one in runs]
    assert actions[0] == actions[1]
    assert actions[2] != actions[3]


def ridge_bound(t: float, ridge: float) -> float:
    """ridge D_theta^2 (of each reward) + D_K^2 d ln(1 + t D_X^2/(ridge d))."""
    return ridge * N * 0.8**2 + DIAMETER**2 * D * math.log(1.0 + t * 1.5**2 / (ridge * D))


def preset(t: int, n_arms: int, slope: float, delta: float, regret: float) -> float:
    noise = 8.0 * DIAMETER**2 * math.log(4.0 * t**2 / delta)
    return 2.0 / slope * math.sqrt(t * n_arms / (regret + noise))


@pytest.mark.parametrize("slope", [0.3, 2.0])
def test_squarecb_with_the_gamma_of_the_theorem(slope: float) -> None:
    # Rewards beyond their ranges, so that the projection of the predictions matters.
    played = Played(
        SquareCB(gamma0="theorem", lipschitz=slope, oracle=Ridge(0.5), delta=0.1), 25, scale=3.0
    )
    context, g = played.context(6), played.rng.normal(size=N)
    free = context @ played.theta(0.5).T
    projected = np.clip(free, LOW, HIGH)
    assert not np.allclose(free, projected)
    gamma = preset(26, 6, slope, 0.1, ridge_bound(26, 0.5))
    played.probabilities(context, g)(gap_rule(projected @ g, gamma))


def test_squarecb_with_the_gamma_of_the_theorem_for_another_oracle() -> None:
    played = Played(SquareCB(gamma0="theorem", lipschitz=1.0, oracle=OnlineGradient()), 25)
    context, g = played.context(4), played.rng.normal(size=N)
    reach = 0.8 * 1.5 + np.maximum(abs(LOW), abs(HIGH))
    regret = 4.0 * math.sqrt(2.0) * 0.8 * 1.5 * reach.sum() * math.sqrt(26.0)
    values = np.clip(context @ played.state.oracle.theta[0].T, LOW, HIGH) @ g
    played.probabilities(context, g)(gap_rule(values, preset(26, 4, 1.0, 0.05, regret)))


def test_squarecb_for_a_known_horizon() -> None:
    slope, delta, horizon, k = 0.7, 0.2, 5000, 5
    played = Played(SquareCB(gamma0="theorem", lipschitz=slope, horizon=horizon, delta=delta), 10)
    context, g = played.context(k), played.rng.normal(size=N)
    regret = 2.0 * slope**2 * ridge_bound(horizon, 1.0)
    regret += 16.0 * slope**2 * DIAMETER**2 * math.log(2.0 / delta)
    gamma = math.sqrt(8.0 * k * horizon / regret)
    values = np.clip(context @ played.theta(1.0).T, LOW, HIGH) @ g
    played.probabilities(context, g)(gap_rule(values, gamma))


def test_squarecb_explores_no_more_than_its_lemma_says() -> None:
    """sum_a p_a (best - value_a) <= (K - 1)/gamma for the estimates."""
    played = Played(SquareCB(gamma0=20.0), 15)
    for _ in range(20):
        k = int(played.rng.integers(2, 9))
        context, g = played.context(k), played.rng.normal(size=N)
        values = context @ played.theta(1.0).T @ g
        p = gap_rule(values, 20.0 * 4.0)
        played.probabilities(context, g)(p)
        assert p @ (values.max() - values) <= (k - 1) / 80.0
        assert p[values.argmax()] >= 1.0 / k


def test_the_reduction_gives_squarecb_its_lipschitz_constant() -> None:
    objective = GiniWelfare()
    policy = FrankWolfe(objective, SquareCB(gamma0="theorem"))
    state = policy.init(PROBLEM)
    assert state.base == SquareCB(gamma0="theorem", lipschitz=objective.lipschitz(N))
    own = FrankWolfe(objective, SquareCB(gamma0="theorem", lipschitz=9.0)).init(PROBLEM)
    assert own.base.lipschitz == 9.0
    # Nothing is known yet, so all arms are equal whatever gamma is.
    assert policy.act(state, np.eye(D), at(0.3)).probability == pytest.approx(1.0 / D)


@pytest.mark.parametrize("epsilon", [0.0, 0.01, 0.4, 1.0])
@pytest.mark.parametrize("n_arms", [1, 3, 7])
def test_epsilon_greedy(epsilon: float, n_arms: int) -> None:
    played = Played(EpsilonGreedy(epsilon, oracle=Ridge(0.2)), 20)
    context, g = played.context(n_arms), played.rng.normal(size=N)
    p = np.full(n_arms, epsilon / n_arms)
    p[int((context @ played.theta(0.2).T @ g).argmax())] += 1.0 - epsilon
    if epsilon > 0.0:
        played.probabilities(context, g)(p)
    else:
        for uniform in (0.0, 0.5, 1.0 - 1e-12):
            choice = played.base.act(played.state, context, g, at(uniform))
            assert (choice.action, choice.probability) == (int(p.argmax()), 1.0)


@pytest.mark.parametrize("n_arms", [1, 3, 7])
def test_uniform(n_arms: int) -> None:
    played = Played(Uniform(), 20)
    context, g = played.context(n_arms), played.rng.normal(size=N)
    played.probabilities(context, g)(np.full(n_arms, 1.0 / n_arms))
    assert played.base.act(played.state, context, g, at(1.0 - 1e-16)).action == n_arms - 1


def radii(
    gram: Matrix, ridge: float, delta: float, noise: Vector, norms: Vector, n: int = N
) -> Vector:
    """R_i sqrt(2 ln(1/delta_1) + ln det V/det V_0) + sqrt(ridge) D_theta_i, delta_1 = delta/2D."""
    log_det = np.linalg.slogdet(gram)[1] - len(gram) * math.log(ridge)
    return noise * math.sqrt(2.0 * math.log(2.0 * n / delta) + log_det) + math.sqrt(ridge) * norms


def scored(base: LinearBandit, state: Any, context: Matrix, g: Vector) -> tuple[int, float, Vector]:
    """The arm, its probability and the scores of all arms."""
    return base.choose(state, state.oracle.estimates(arms(context, PROBLEM)), g, np.empty(0))


@pytest.mark.parametrize("exploration", [0.0, 0.1, 1.0, 3.0])
def test_linucb_against_numpy(exploration: float) -> None:
    ridge, delta = 0.3, 0.1
    base = LinUCB(exploration=exploration, ridge=ridge, delta=delta)
    played = Played(base, 12)
    theta, gram = played.theta(ridge), played.gram(ridge)
    alpha = radii(gram, ridge, delta, (HIGH - LOW) / 2.0, np.full(N, 0.8))
    for _ in range(30):
        context, g = played.context(6), played.rng.normal(size=N)
        width = np.sqrt(np.einsum("ai,ij,aj->a", context, np.linalg.inv(gram), context))
        optimistic = context @ theta.T @ g + exploration * (np.abs(g) @ alpha) * width
        arm, _, scores = scored(base, played.state, context, g)
        np.testing.assert_allclose(scores, optimistic, rtol=1e-11, atol=1e-12)
        choice = base.act(played.state, context, g, played.rng)
        assert choice.action == arm == int(optimistic.argmax())
        assert choice.probability == 1.0


def test_linucb_takes_noise_and_norms_from_the_problem() -> None:
    """`noise` replaces half of the ranges; without a norm, what ranges and features suggest."""
    ridge, x, g = 4.0, np.eye(D)[:1], np.array([1.0, -2.0, 0.5])
    cases = [
        (Problem.arms(D, RANGES, noise=0.25), np.full(N, 0.25), np.array([1.0, 2.0, 0.5])),
        (
            Problem.arms(D, RANGES, feature_norm=2.0),
            (HIGH - LOW) / 2.0,
            np.array([1.0, 2.0, 0.5]) / 2.0,
        ),
    ]
    for problem, noise, norms in cases:
        base = LinUCB(ridge=ridge, exploration="theorem")
        state = base.init(problem)
        alpha = radii(ridge * np.eye(D), ridge, 0.05, noise, norms)
        assert scored(base, state, x, g)[2][0] == pytest.approx(
            float(np.abs(g) @ alpha) / math.sqrt(ridge), rel=1e-12
        )


@pytest.mark.parametrize(
    "base",
    [
        SquareCB(gamma0=10.0),
        SquareCB(gamma0="theorem", lipschitz=1.0),
        EpsilonGreedy(0.2),
        Uniform(),
        Thompson(),
        LinUCB(exploration="theorem"),
    ],
    ids=lambda b: type(b).__name__,
)
def test_estimates_are_projected_predictions(base: LinearBandit) -> None:
    played = Played(base, 30, scale=3.0)
    theta = played.theta(1.0)
    clipped = 0
    for _ in range(20):
        context, g = played.context(5), played.rng.normal(size=N)
        choice = base.act(played.state, context, g, played.rng)
        free = theta @ context[choice.action]
        estimate = base.estimate(played.state, context, choice)
        np.testing.assert_allclose(estimate, np.clip(free, LOW, HIGH), rtol=0.0, atol=1e-11)
        clipped += int(not np.allclose(free, estimate))
    assert clipped > 0


def test_thompson_against_numpy() -> None:
    """theta~ = theta + R_i L xi by reward; <g, theta~> needs one draw of d numbers for all."""
    ridge, scale = 0.3, 0.5
    base = Thompson(scale=scale, ridge=ridge)
    played = Played(base, 12)
    theta, root = played.theta(ridge), np.linalg.cholesky(np.linalg.inv(played.gram(ridge)))
    taken = set()
    for seed in range(40):
        context, g = played.context(6), played.rng.normal(size=N)
        xi = stream(seed, "normals").standard_normal(D)
        spread = scale * float(np.linalg.norm(g * (HIGH - LOW) / 2.0))
        values = context @ (theta.T @ g + spread * root @ xi)
        choice = base.act(played.state, context, g, stream(seed, "normals"))
        assert choice.action == int(values.argmax())
        assert choice.probability is None
        taken.add(choice.action == int((context @ theta.T @ g).argmax()))
    assert taken == {True, False}  # it does explore


def test_linucb_extended_against_numpy() -> None:
    """<g, r> on g (x) x, the direction another one in every round."""
    ridge, delta, slope = 0.3, 0.1, 1.7
    base = LinUCB(exploration=0.4, ridge=ridge, delta=delta, model="extended", lipschitz=slope)
    state, rng = base.init(PROBLEM), stream(0, "extended")
    x, y = np.zeros((0, N * D)), np.zeros(0)
    for _ in range(60):
        context, g = rng.normal(size=(6, D)) / 2.0, rng.normal(size=N)
        rows = np.array([np.kron(g, row) for row in context])
        gram = ridge * np.eye(N * D) + x.T @ x
        width = np.sqrt(np.einsum("ai,ij,aj->a", rows, np.linalg.inv(gram), rows))
        log_det = np.linalg.slogdet(gram)[1] - N * D * math.log(ridge)
        alpha = slope * DIAMETER / 2.0 * math.sqrt(2.0 * math.log(2.0 / delta) + log_det)
        alpha += math.sqrt(ridge) * 0.8 * math.sqrt(N)
        values = rows @ np.linalg.solve(gram, x.T @ y) + 0.4 * alpha * width
        choice = base.act(state, context, g, rng)
        assert choice.action == int(values.argmax())
        reward = rng.uniform(LOW, HIGH)
        state = base.update(state, choice, g, reward)
        x, y = np.vstack([x, rows[choice.action]]), np.append(y, g @ reward)


def test_ties_go_to_the_first_arm() -> None:
    context = np.ones((4, D))
    for base in (LinUCB(exploration="theorem"), EpsilonGreedy(0.0), SquareCB(gamma0=1.0)):
        state = base.init(PROBLEM)
        assert base.act(state, context, np.ones(N), at(0.0)).action == 0


def test_a_bilinear_context_is_its_flat_form() -> None:
    problem = Problem.arms((2, 2), RANGES)
    rng = stream(0, "bilinear")
    base = LinUCB(ridge=0.1, exploration="theorem")
    one, other = base.init(problem), base.init(Problem.arms(4, RANGES))
    for _ in range(30):
        user, items, g = rng.normal(size=2), rng.normal(size=(5, 2)), rng.normal(size=N)
        flat = np.array([np.outer(user, item).ravel() for item in items])
        a, b = (
            base.act(one, Bilinear(user, items), g, rng),
            base.act(other, flat, g, rng),
        )
        assert a.action == b.action
        reward = rng.uniform(LOW, HIGH)
        one, other = base.update(one, a, g, reward), base.update(other, b, g, reward)
    np.testing.assert_allclose(one.oracle.inverse, other.oracle.inverse, atol=1e-10)


class Unbounded(Ridge):
    """A regression without a regret bound."""

    def regret_bound(self, problem: Problem) -> RegretBound:
        raise OutsideAssumptions("no bound is known for this regression")


REFUSED: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "preset without L": (
        lambda: SquareCB(gamma0="theorem").init(PROBLEM),
        OutsideAssumptions,
        r"needs a Lipschitz constant of f, here None; give SquareCB another gamma0",
    ),
    "preset of an f without L": (
        lambda: FrankWolfe(Nash(offset=1.0), SquareCB(gamma0="theorem")).init(PROBLEM),
        OutsideAssumptions,
        r"needs a Lipschitz constant of f, here inf; give",
    ),
    "preset of a constant f": (
        lambda: FrankWolfe(Linear((0.0, 0.0, 0.0)), SquareCB(gamma0="theorem")).init(PROBLEM),
        OutsideAssumptions,
        r"needs a Lipschitz constant of f, here 0\.0; give",
    ),
    "preset of a horizon without L": (
        lambda: SquareCB(gamma0="theorem", horizon=100).init(PROBLEM),
        OutsideAssumptions,
        r"needs a Lipschitz constant",
    ),
    "preset without a bound": (
        lambda: SquareCB(gamma0="theorem", lipschitz=1.0, oracle=Unbounded()).init(PROBLEM),
        OutsideAssumptions,
        r"no bound is known",
    ),
    "gamma0 zero": (lambda: SquareCB(gamma0=0.0), InvalidInput, r"gamma0 is 0\.0; .*positive"),
    "gamma0 nan": (lambda: SquareCB(gamma0=nan), InvalidInput, r"gamma0 is nan; .*positive"),
    "horizon zero": (
        lambda: SquareCB(gamma0="theorem", horizon=0),
        InvalidInput,
        r"horizon is 0; .*at least 1",
    ),
    "delta of squarecb": (
        lambda: SquareCB(gamma0="theorem", delta=1.0),
        InvalidInput,
        r"delta is 1\.0; .*0 and 1",
    ),
    "exploration": (lambda: LinUCB(exploration=-0.1), InvalidInput, r"exploration is -0\.1; .*0"),
    "exploration nan": (lambda: LinUCB(exploration=nan), InvalidInput, r"exploration is nan; .*0"),
    "ridge of linucb": (
        lambda: LinUCB(ridge=0.0, exploration="theorem"),
        InvalidInput,
        r"ridge is 0\.0; .*positive",
    ),
    "delta of linucb": (
        lambda: LinUCB(delta=0.0, exploration="theorem"),
        InvalidInput,
        r"delta is 0\.0; .*0 and 1",
    ),
    "epsilon negative": (lambda: EpsilonGreedy(-0.1), InvalidInput, r"epsilon is -0\.1; .*0 to 1"),
    "epsilon large": (lambda: EpsilonGreedy(1.1), InvalidInput, r"epsilon is 1\.1; .*0 to 1"),
    "epsilon nan": (lambda: EpsilonGreedy(nan), InvalidInput, r"epsilon is nan; .*0 to 1"),
    "extended without L": (
        lambda: LinUCB(model="extended", exploration="theorem").init(PROBLEM),
        OutsideAssumptions,
        r"extended LinUCB needs a Lipschitz constant of f, here None",
    ),
    "extended and per arm": (
        lambda: LinUCB(model="extended", lipschitz=1.0, exploration="theorem").init(
            Problem.arms(D, RANGES, n_arms=3)
        ),
        InvalidInput,
        r"one design for all arms; use model='shared' with PerArm",
    ),
    "model": (
        lambda: LinUCB(model=bad("both"), exploration="theorem"),
        InvalidInput,
        r"model is 'both'; .*'extended'",
    ),
    "scale of thompson": (lambda: Thompson(scale=nan), InvalidInput, r"scale is nan; .*at least 0"),
    "per-arm context": (
        lambda: act(PROBLEM, PerArm(np.ones(D))),
        InvalidInput,
        r"a PerArm and n_arms of the problem is None",
    ),
    "rows where arms are apart": (
        lambda: act(Problem.arms(D, RANGES, n_arms=3), np.ones((3, D))),
        InvalidInput,
        r"n_arms of the problem is 3; PerArm contexts go with",
    ),
    "two rows of per-arm features": (
        lambda: act(Problem.arms(D, RANGES, n_arms=3), PerArm(np.ones((2, D)))),
        InvalidInput,
        r"2 rows; give 1",
    ),
    "ragged per-arm features": (
        lambda: act(Problem.arms(D, RANGES, n_arms=3), PerArm([[1.0, 2.0], [3.0]])),
        InvalidInput,
        r"not an array of numbers",
    ),
    "words for a user": (
        lambda: act(Problem.arms((2, 2), RANGES), Bilinear(["a", "b"], np.ones((3, 2)))),
        InvalidInput,
        r"not an array of numbers",
    ),
    "user and item exchanged": (
        lambda: act(Problem.arms((2, 3), RANGES), Bilinear(np.ones(3), np.ones((5, 2)))),
        InvalidInput,
        r"3 user and 2 item features; the problem has 2 and 3",
    ),
    "a feature too few": (
        lambda: act(PROBLEM, np.ones((3, D - 1))),
        InvalidInput,
        r"shape \(3, 3\); the problem has 4 features, so give shape \(number of arms, 4\)",
    ),
    "nan in a context": (
        lambda: act(PROBLEM, [[0.0] * D, [0.0, nan, 0.0, 0.0]]),
        InvalidInput,
        r"feature 1 of arm 1 is nan; give finite numbers only",
    ),
    "direction too short": (
        lambda: LinUCB(exploration="theorem").act(
            LinUCB(exploration="theorem").init(PROBLEM), np.eye(D), np.ones(2), at(0.5)
        ),
        InvalidInput,
        r"direction has shape \(2,\); give 3 numbers, one for each of clicks, gain, cost",
    ),
    "reward too long": (
        lambda: learnt(np.ones(4)),
        InvalidInput,
        r"reward has shape \(4,\); give 3 numbers, one for each of clicks, gain, cost",
    ),
}


def act(problem: Problem, context: Any) -> Choice:
    base = LinUCB(exploration="theorem")
    return base.act(base.init(problem), context, np.ones(N), at(0.5))


def learnt(reward: Vector) -> object:
    base = LinUCB(exploration="theorem")
    state = base.init(PROBLEM)
    return base.update(state, base.act(state, np.eye(D), np.ones(N), at(0.5)), np.ones(N), reward)


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    attempt, kind, message = REFUSED[case]
    with pytest.raises(kind, match=message):
        attempt()


def test_the_models_of_linucb_agree_for_one_reward_and_a_direction_of_one() -> None:
    problem = Problem.arms(3, {"clicks": (0, 1)}, parameter_norm=1.0)
    rng = stream(0, "models")
    models = [
        LinUCB(exploration="theorem"),
        LinUCB(model="extended", lipschitz=1.0, exploration="theorem"),
    ]
    states = [model.init(problem) for model in models]
    for _ in range(100):
        x, reward = rng.normal(size=(5, 3)), rng.random(1)
        choices = [m.act(s, x, np.ones(1), rng) for m, s in zip(models, states, strict=True)]
        assert choices[0].action == choices[1].action
        for model, state, choice in zip(models, states, choices, strict=True):
            model.update(state, choice, np.ones(1), reward)


def test_thompson_refuses_a_design_that_is_no_longer_positive_definite() -> None:
    problem = Problem.arms(2, {"clicks": (0, 1)})
    base = Thompson()
    state = base.init(problem)
    state.oracle.inverse[0] = [[1.0, 2.0], [2.0, 1.0]]
    with pytest.raises(NumericalFailure, match="no longer usable"):
        base.act(state, np.eye(2), np.ones(1), stream(0, "broken"))


def test_gamma_counts_answered_decisions() -> None:
    """Decisions that wait for their answers change nothing of P(a), the 21st answer does."""
    problem = Problem.arms(2, {"a": (0.0, 1.0)})
    agent = Agent(FrankWolfe(Linear((1.0,)), SquareCB(gamma0=10.0)), problem, seed=0)

    def probabilities() -> dict[Any, float | None]:
        made = [agent.act(np.eye(2)) for _ in range(60)]
        assert {one.probability for one in made if one.action == made[0].action} == {
            made[0].probability
        }
        return {one.action: one.probability for one in made}

    for _ in range(20):
        decision = agent.act(np.eye(2))
        agent.update(decision, [0.8 if decision.action == 0 else 0.2])
    first = probabilities()
    assert probabilities() == first
    with agent.held() as running:
        scores = running.base_state.oracle.theta.ravel()
    gap = float(scores.max() - scores.min())
    assert first[int(scores.argmin())] == pytest.approx(1.0 / (2.0 + 10.0 * math.sqrt(21) * gap))
    agent.update(agent.act(np.eye(2), candidates=[0]), [0.8])
    assert probabilities() != first


# --- what the compiled engine is given --------------------------------------------------------

WITH_RULES: dict[str, LinearBandit] = {
    "linucb": LinUCB(exploration=0.3, ridge=0.1),
    "pointwise": LinUCB(exploration="pointwise"),
    "extended": LinUCB(model="extended", lipschitz=1.7, exploration="theorem"),
    "squarecb": SquareCB(gamma0=20.0),
    "squarecb_scaled": SquareCB(gamma0="scaled"),
    "squarecb_theorem": SquareCB(gamma0="theorem", lipschitz=1.0, oracle=OnlineGradient()),
    "epsilon_greedy": EpsilonGreedy(0.2),
    "thompson": Thompson(scale=0.5),
    "uniform": Uniform(),
    "fixed": Always(2),
}


@pytest.mark.parametrize("n_arms", [None, 5])
@pytest.mark.parametrize("name", WITH_RULES)
def test_the_record_for_the_engine_decides_and_learns_the_same_bits(
    name: str, n_arms: int | None
) -> None:
    """Compiled code that has the record alone, against the methods."""
    base, rng = WITH_RULES[name], stream(0, "record", name)
    if base.extended and n_arms:
        return
    problem = Problem.arms(D, RANGES, n_arms=n_arms, parameter_norm=0.8, feature_norm=1.5)
    rule, state = base.rule(problem), base.init(problem)
    assert rule is not None
    assert rule.limit == base.limit(problem)
    model = rule.regression.model()
    for seed in range(60):
        x, g = rng.normal(size=(1 if n_arms else 5, D)) / 2.0, rng.normal(size=N)
        choice = base.act(state, PerArm(x[0]) if n_arms else x, g, stream(seed, "draws"))
        drawn = base.draws(stream(seed, "draws"), problem, 1)[0]
        assert drawn.size == rule.uniforms
        arm, chance, _ = choose(rule.name, model, g, x, n_arms is not None, drawn, rule.params)
        assert (choice.action, choice.probability) == (arm, None if math.isnan(chance) else chance)
        bounds = np.concatenate([problem.low, problem.high, base.bound_params(problem)])
        given = (model, g[::-1].copy(), g, x, n_arms is not None, arm, bounds)
        seen = base.certify(
            state, PerArm(x[0]) if n_arms else x, g, choice, g[::-1], base.bound_params(problem)
        )
        np.testing.assert_array_equal(seen, certificate_terms(rule.certificate, *given))
        reward = rng.uniform(LOW, HIGH)
        block, own = (arm, x[0]) if n_arms else (0, x[arm])
        assert model.learn(block, *(lesson(g, own, reward) if rule.extended else (own, reward)))
        state = base.update(state, choice, g, reward)
    for kept, learnt_too in zip(state.oracle, rule.regression, strict=True):
        np.testing.assert_array_equal(kept, learnt_too)
    assert base.repair(state) == base.drift(state)
    assert model.recompute()
    np.testing.assert_array_equal(state.oracle.inverse, rule.regression.inverse)


@pytest.mark.parametrize("name", ["linucb", "squarecb", "epsilon_greedy", "thompson"])
def test_only_candidates_are_chosen_by_their_own_blocks(name: str) -> None:
    """As in a problem that has only their blocks."""
    base, rng = WITH_RULES[name], stream(0, "candidates", name)
    problem, few = (Problem.arms(D, RANGES, n_arms=n, parameter_norm=0.8) for n in (5, 2))
    state, small = base.init(problem), base.init(few)
    for seed in range(40):
        x, g, reward = rng.normal(size=D) / 2.0, rng.normal(size=N), rng.uniform(LOW, HIGH)
        given = among(arms(PerArm(x), problem), [1, 4], ())
        draws = (stream(seed, "draws"), stream(seed, "draws"))
        choice = base.act(state, given, g, draws[0])
        alone = base.act(small, PerArm(x), g, draws[1])
        assert choice.action == alone.action
        assert choice.evidence.block == (1, 4)[choice.action]
        assert choice.explanation == alone.explanation
        state = base.update(state, choice, g, reward)
        small = base.update(small, alone, g, reward)
    np.testing.assert_array_equal(state.oracle.theta[[1, 4]], small.oracle.theta)
    assert not state.oracle.theta[[0, 2, 3]].any()


class Acts(LinUCB):
    def act(self, *given: Any) -> Choice:
        return super().act(*given)


class Updates(SquareCB):
    def update(self, *given: Any) -> BanditState:
        return super().update(*given)


class Draws(EpsilonGreedy):
    def draws(self, *given: Any) -> Matrix:
        return super().draws(*given)


class Settings(LinUCB):
    """What the record holds may be replaced."""

    def rule_params(self, problem: Problem) -> Vector:
        return 2.0 * super().rule_params(problem)


def test_what_a_subclass_replaces_is_not_left_out_by_the_engine() -> None:
    learner = SquareCB(gamma0=1.0, oracle=Unbounded())  # whose class may learn otherwise
    for base in (Acts(), Updates(gamma0=1.0), Draws(0.1), learner):
        assert base.rule(PROBLEM) is None
    rule = Settings().rule(PROBLEM)
    assert rule is not None
    np.testing.assert_array_equal(rule.params, Settings().init(PROBLEM).params)


@pytest.mark.parametrize(
    "evidence",
    [
        None,
        (0,),
        (0, [1.0] * D),
        (0, np.ones(D - 1)),
        (0, np.ones(D, dtype=np.float32)),
        (0, np.ones(2 * D)[::2]),
        (1, np.ones(D)),
        (-1, np.ones(D)),
        (True, np.ones(D)),
        (0, np.full(D, nan)),
        (0, np.full(D, 1e6)),
    ],
    ids=repr,
)
def test_evidence_of_another_problem_is_refused(evidence: Any) -> None:
    for base in (
        LinUCB(exploration="theorem"),
        LinUCB(model="extended", lipschitz=1.0, exploration="theorem"),
    ):
        state = base.init(PROBLEM)
        message = r"the evidence of the choice is .* 4 features and 1 blocks, and at most a norm of"
        with pytest.raises(InvalidInput, match=message):
            base.update(state, Choice(0, 1.0, evidence), np.ones(N), np.ones(N))
        assert not state.oracle.counters.any()


# --- long directions --------------------------------------------------------------------------


def exact_inverse(rows: list[Vector], ridge: float) -> Matrix:
    """(ridge I + sum x x')^-1 in rational arithmetic, by Gauss and Jordan."""
    d = rows[0].size
    table = [[Fraction(ridge * (i == j)) for j in range(d)] for i in range(d)]
    for x in (list(map(Fraction, row.tolist())) for row in rows):
        for i, j in itertools.product(range(d), range(d)):
            table[i][j] += x[i] * x[j]
    for i in range(d):
        table[i] += [Fraction(i == j) for j in range(d)]
    for i in range(d):
        table[i] = [value / table[i][i] for value in table[i]]
        for k in range(d):
            if k != i:
                table[k] = [a - table[k][i] * b for a, b in zip(table[k], table[i], strict=True)]
    return np.array([[float(value) for value in row[d:]] for row in table])


@pytest.mark.parametrize(
    ("unit", "form"),
    [(1e-6, "plain"), (1e-6, "a reward not in f"), (1e-3, "dependent features")],
)
def test_widths_of_an_extended_model_are_accurate_where_directions_are_long(
    unit: float, form: str
) -> None:
    """Rewards in units of 1e-6 have gradients 10^6 long: a million million times the ridge."""
    names = "abc" if form == "a reward not in f" else "ab"
    problem = Problem.arms(3, dict.fromkeys(names, (0.0, unit)), feature_norm=2.0, noise=1.0)
    base = LinUCB(model="extended", exploration=0.1, ridge=0.1)
    rng, worst, longest = stream(7, "long"), 0.0, 0.0
    policy = FrankWolfe(Nash().on("a", "b"), base)
    state, rows = policy.init(problem), list[Vector]()
    for t in range(40):
        contexts = rng.random((4, 3))
        if form == "dependent features":
            contexts[:, 0], contexts[:, 2] = 1.0, 1.0 - contexts[:, 1]
        g = state.direction(rng)
        if t in (8, 12, 20, 39):
            kept, exact = state.base_state.oracle.inverse[0], exact_inverse(rows, 0.1)
            for w in (np.outer(g, x).ravel() for x in contexts):
                worst = max(worst, abs(w @ kept @ w / (w @ exact @ w) - 1.0))
                longest = max(longest, float(np.linalg.norm(w)))
        decision = policy.act(state, contexts, rng)
        rows.append(np.outer(g, contexts[int(decision.action)]).ravel())
        state = policy.update(state, decision, unit * (0.1 + 0.5 * rng.random(len(names))))
    assert longest > 1.0 / unit
    assert worst < 1e-6  # before the inverse was recomputed as it shrank: 1e-2 at 1e-6
