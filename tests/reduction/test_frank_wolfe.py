"""The reduction against special cases that must coincide, and against itself in plain NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from fairwolfe import Problem
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Uniform
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.contexts import PerArm
from fairwolfe.core.streams import stream
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import (
    AtMost,
    Concave,
    Custom,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    Welfare,
)
from fairwolfe.oracles import Ridge
from fairwolfe.oracles.linear_regression import LOG_DET, UPDATES
from fairwolfe.reduction import FrankWolfe, MOLinCB
from fairwolfe.smoothing import Identity, Moreau, Randomized

nan = float("nan")
K, DIM, ROUNDS = 6, 4, 120


def problem_of(n: int, **options: Any) -> Problem:
    return Problem.arms(DIM, {f"r{i}": (0.0, 1.0 + i) for i in range(n)}, **options)


class World:
    """What every arm would answer in every round: two policies meet the same."""

    def __init__(self, n: int, seed: int = 0) -> None:
        rng = stream(seed, "world", n)
        self.contexts = rng.normal(size=(ROUNDS, K, DIM)) / 2.0
        theta = rng.normal(size=(n, DIM))
        means = np.einsum("tad,nd->tan", self.contexts, theta)
        self.rewards = np.clip(means + rng.normal(size=means.shape) / 4.0, 0.0, 1.0)
        self.uniforms = stream(seed, "uniforms").random(ROUNDS)

    def play(
        self, policy: FrankWolfe | MOLinCB, problem: Problem, seed: int = 0
    ) -> tuple[Any, Any]:
        """The actions, and the state after the last round."""
        state, rng = policy.init(problem), stream(seed, "uniforms")
        actions = []
        for context, reward in zip(self.contexts, self.rewards, strict=True):
            decision = policy.act(state, context, rng)
            actions.append(decision.action)
            state = policy.update(state, decision, reward[decision.action])
        return actions, state


class PlainRidge:
    """Ridge regression of one scalar reward, from scratch in every round."""

    def __init__(self, ridge: float) -> None:
        self.ridge, self.x, self.y = ridge, np.zeros((0, DIM)), np.zeros(0)

    def learn(self, x: Vector, y: float) -> None:
        self.x, self.y = np.vstack([self.x, x]), np.append(self.y, y)

    def read(self, context: Matrix) -> tuple[Vector, Vector, float]:
        """Estimates and widths of the arms, and ln det V/det V_0."""
        gram = self.ridge * np.eye(DIM) + self.x.T @ self.x
        theta = np.linalg.solve(gram, self.x.T @ self.y)
        width = np.sqrt(np.einsum("ai,ij,aj->a", context, np.linalg.inv(gram), context))
        return context @ theta, width, float(np.linalg.slogdet(gram)[1] - DIM * np.log(self.ridge))


def plain_actions(
    world: World, weights: Vector, ridge: float, choose: Callable[..., int]
) -> list[int]:
    """A bandit for the one reward <weights, r>."""
    oracle, actions = PlainRidge(ridge), []
    for t in range(ROUNDS):
        values, width, log_det = oracle.read(world.contexts[t])
        arm = choose(values, width, log_det, t + 1, world.uniforms[t])
        oracle.learn(world.contexts[t, arm], float(weights @ world.rewards[t, arm]))
        actions.append(arm)
    return actions


WEIGHTS = [(1.0,), (0.6, 0.8), (0.0, -1.0), (0.5, -0.5, 0.5, 0.5), (3.0, 0.0, -2.0)]


@pytest.mark.parametrize("exploration", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_linear_objective_is_plain_linucb(weights: tuple[float, ...], exploration: float) -> None:
    """The plain bandit's reward <w, r> has noise sum |w_i| R_i and a parameter of that norm."""
    n, w, ridge, delta = len(weights), np.array(weights), 0.3, 0.1
    problem, world = problem_of(n, parameter_norm=0.7), World(n)
    noise = float(np.abs(w) @ (problem.high - problem.low) / 2.0)
    norm = float(np.abs(w).sum() * 0.7)

    def choose(values: Vector, width: Vector, log_det: float, t: int, uniform: float) -> int:
        radius = noise * math.sqrt(2.0 * math.log(2.0 * n / delta) + log_det)
        return int((values + exploration * (radius + math.sqrt(ridge) * norm) * width).argmax())

    base = LinUCB(exploration=exploration, ridge=ridge, delta=delta)
    actions, _ = world.play(FrankWolfe(Linear(weights), base), problem)
    assert actions == plain_actions(world, w, ridge, choose)
    assert len(set(actions)) > 2


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_linear_objective_is_plain_linucb_extended(weights: tuple[float, ...]) -> None:
    """A direction w that never changes: <w, r> on w (x) x is plain LinUCB with ridge/|w|^2."""
    n, w, ridge, delta = len(weights), np.array(weights), 0.3, 0.1
    slope = float(np.linalg.norm(w))
    problem, world = problem_of(n, parameter_norm=0.7), World(n)
    noise, norm = slope * problem.diameter / 2.0, 0.7 * math.sqrt(n)

    def choose(values: Vector, width: Vector, log_det: float, t: int, uniform: float) -> int:
        radius = noise * math.sqrt(2.0 * math.log(2.0 / delta) + log_det)
        return int((values + 0.3 * (radius + math.sqrt(ridge) * norm) * width).argmax())

    base = LinUCB(exploration=0.3, ridge=ridge, delta=delta, model="extended")
    actions, _ = world.play(FrankWolfe(Linear(weights), base), problem)
    assert actions == plain_actions(world, w, ridge / slope**2, choose)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_linear_objective_is_plain_squarecb(weights: tuple[float, ...]) -> None:
    def choose(values: Vector, width: Vector, log_det: float, t: int, uniform: float) -> int:
        best = int(values.argmax())
        p = 1.0 / (K + 40.0 * math.sqrt(t) * (values[best] - values))
        p[best] += 1.0 - p.sum()
        return int(np.searchsorted(np.cumsum(p), uniform, side="right"))

    world, base = World(len(weights)), SquareCB(gamma0=40.0, oracle=Ridge(0.3))
    actions, _ = world.play(FrankWolfe(Linear(weights), base), problem_of(len(weights)))
    assert actions == plain_actions(world, np.array(weights), 0.3, choose)


@pytest.mark.parametrize("weights", WEIGHTS)
def test_a_linear_objective_is_plain_epsilon_greedy(weights: tuple[float, ...]) -> None:
    def choose(values: Vector, width: Vector, log_det: float, t: int, uniform: float) -> int:
        p = np.full(K, 0.2 / K)
        p[int(values.argmax())] += 0.8
        return int(np.searchsorted(np.cumsum(p), uniform, side="right"))

    world, base = World(len(weights)), EpsilonGreedy(0.2, oracle=Ridge(0.3))
    actions, _ = world.play(FrankWolfe(Linear(weights), base), problem_of(len(weights)))
    assert actions == plain_actions(world, np.array(weights), 0.3, choose)


def same_run(one: Concave, other: Concave, n: int, smoothing: Any = None) -> None:
    """Equal actions with every base, and averages to rounding."""
    problem, world = problem_of(n), World(n)
    for base in (LinUCB(exploration=0.2, ridge=0.1), SquareCB(gamma0=30.0), EpsilonGreedy(0.1)):
        (a, s), (b, z) = (world.play(FrankWolfe(f, base, smoothing), problem) for f in (one, other))
        assert a == b
        np.testing.assert_allclose(s.iterate, z.iterate, rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(s.state.theta, z.state.theta, atol=1e-12)


@pytest.mark.parametrize(
    "objective", [Minimum(), GiniWelfare(), GeneralizedGini((1.0,)), Welfare(1.0)], ids=repr
)
def test_of_one_reward_everything_is_the_identity(objective: Concave) -> None:
    same_run(objective, Linear((1.0,)), 1)
    same_run(objective, Linear((1.0,)), 1, Moreau(0.01))


def test_uniform_gini_weights_are_the_mean() -> None:
    n = 5
    same_run(GeneralizedGini([1.0 / n] * n), Linear([1.0 / n] * n), n)
    same_run(GeneralizedGini([1.0 / n] * n), Linear([1.0 / n] * n), n, Moreau(0.5))


def test_gini_welfare_is_a_generalised_gini() -> None:
    m = 4
    weights = [(m - j + 1) / m for j in range(1, m + 1)]
    same_run(GiniWelfare(), GeneralizedGini(weights), m, Moreau(0.01))
    same_run(GiniWelfare(), GeneralizedGini(weights), m)


def test_the_two_ginis_differ_by_scale_and_sum() -> None:
    """GiniEquality + (m + 1)/m sum z = 2 GiniWelfare, smoothed too."""
    m = 4
    same_run(GiniEquality() + Linear([(m + 1) / m] * m), 2.0 * GiniWelfare(), m, Moreau(0.1))


def test_the_algorithm_in_plain_numpy() -> None:
    """f = <w, z> - c sum max(0, z - u), Moreau smoothing: direction, choice, average."""
    n, ridge, beta0, c = 3, 0.1, 0.2, 4.0
    w, u = np.array([1.0, 0.3, 0.0]), np.array([0.3, 0.2, 0.1])
    world, problem = World(n), problem_of(n, noise=0.1, parameter_norm=1.0)
    policy = FrankWolfe(
        Linear(w.tolist()) + AtMost(u.tolist(), penalty=c),
        LinUCB(exploration=0.5, ridge=ridge),
        Moreau(beta0),
    )
    actions, state = world.play(policy, problem)
    x, r, z = np.zeros((0, DIM)), np.zeros((0, n)), np.zeros(n)
    penalised = 0
    for t in range(ROUNDS):
        width = beta0 / math.sqrt(t + 1.0)
        pull = np.clip((z - u) / width, 0.0, c)
        penalised += int(pull.any())
        g = w - pull
        gram = ridge * np.eye(DIM) + x.T @ x
        theta = np.linalg.solve(gram, x.T @ r).T
        log_det = np.linalg.slogdet(gram)[1] - DIM * math.log(ridge)
        alpha = 0.1 * math.sqrt(2.0 * math.log(2.0 * n / 0.05) + log_det) + math.sqrt(ridge)
        context = world.contexts[t]
        norm = np.sqrt(np.einsum("ai,ij,aj->a", context, np.linalg.inv(gram), context))
        arm = int((context @ theta.T @ g + 0.5 * np.abs(g).sum() * alpha * norm).argmax())
        assert arm == actions[t], t
        reward = world.rewards[t, arm]
        x, r = np.vstack([x, context[arm]]), np.vstack([r, reward])
        z = z + (reward - z) / (t + 1.0)
    assert penalised > ROUNDS // 2
    np.testing.assert_allclose(state.average, r.mean(axis=0), rtol=0.0, atol=1e-12)


def projected(v: Vector) -> Vector:
    """The nearest point of the simplex."""
    down = np.sort(v)[::-1]
    excess = (np.cumsum(down) - 1.0) / np.arange(1, v.size + 1)
    shift = excess[np.flatnonzero(down > excess)[-1]]
    nearest: Vector = np.maximum(v - shift, 0.0)
    return nearest


@pytest.mark.parametrize(("steps", "rate"), [(1, 1.0), (10, 1.0), (25, 0.2)])
def test_molincb_in_plain_numpy(steps: int, rate: float) -> None:
    n, ridge = 3, 0.1
    weights = np.array([1.0, 0.5, 0.25])
    world = World(n)
    policy = MOLinCB(GeneralizedGini(weights.tolist()), ridge=ridge, steps=steps, rate=rate)
    actions, _ = world.play(policy, problem_of(n))
    x, r = np.zeros((0, DIM)), np.zeros((0, n))
    for t in range(ROUNDS):
        theta = np.linalg.solve(ridge * np.eye(DIM) + x.T @ x, x.T @ r).T
        table = world.contexts[t] @ theta.T
        mixture = np.full(K, 1.0 / K)
        for _ in range(steps):
            point = mixture @ table
            g = np.empty(n)
            g[np.argsort(point, kind="stable")] = weights
            mixture = projected(mixture + rate * table @ g)
        arm = int(mixture.argmax())
        assert arm == actions[t], t
        x, r = np.vstack([x, world.contexts[t, arm]]), np.vstack([r, world.rewards[t, arm]])


def test_molincb_treats_per_arm_contexts_as_their_flat_form() -> None:
    """PerArm(x) is the context e_a (x) x of arm a."""
    n, rng = 3, stream(0, "per arm")
    flat = Problem.arms(K * DIM, problem_of(n).rewards)
    own = problem_of(n, n_arms=K)
    policy = MOLinCB(GiniWelfare(), steps=5)
    one, other = policy.init(own), policy.init(flat)
    played = set()
    for _ in range(ROUNDS):
        x, reward = rng.normal(size=DIM), rng.random(n)
        a = policy.act(one, PerArm(x), rng)
        b = policy.act(other, np.kron(np.eye(K), x), rng)
        assert a.action == b.action
        played.add(a.action)
        one, other = policy.update(one, a, reward), policy.update(other, b, reward)
    assert len(played) >= 3  # it explores nothing on purpose; 4 seen


def test_memory_is_a_half_life() -> None:
    """Each reward has the weight 2^(-age/half-life), the weights divided by their sum."""
    half_life = 7.0
    policy, problem = FrankWolfe(GiniWelfare(), Uniform(), memory=half_life), problem_of(2)
    state, rng = policy.init(problem), stream(0, "memory")
    rewards: list[Vector] = []

    def take(reward: Vector) -> None:
        nonlocal state
        state = policy.update(state, policy.act(state, np.eye(DIM), rng), reward)
        rewards.append(reward)

    for _ in range(60):
        take(rng.random(2))
        ages = np.arange(len(rewards))[::-1]
        z = np.average(rewards, axis=0, weights=0.5 ** (ages / half_life))
        np.testing.assert_allclose(state.iterate, z, rtol=0.0, atol=1e-13)
        np.testing.assert_allclose(state.average, z, rtol=0.0, atol=1e-13)
    for _ in range(7):
        take(np.zeros(2))
    # But for 2^(-60/7), the weight of all that came before the first reward.
    np.testing.assert_allclose(state.iterate, z / 2.0, rtol=3e-3)


def test_a_memory_that_outlives_the_run_is_no_memory() -> None:
    world, problem = World(2), problem_of(2)
    base = LinUCB(ridge=0.1, exploration=0.1)
    plain, _ = world.play(FrankWolfe(Minimum(), base), problem)
    long, state = world.play(FrankWolfe(Minimum(), base, memory=1e12), problem)
    short, _ = world.play(FrankWolfe(Minimum(), base, memory=2.0), problem)
    assert plain == long
    assert plain != short
    rewards = [world.rewards[t, arm] for t, arm in enumerate(long)]
    np.testing.assert_allclose(state.average, np.mean(rewards, axis=0), rtol=0.0, atol=1e-9)


def test_randomized_smoothing_follows_its_running_direction() -> None:
    """d_t = (1 - m_t) d_(t-1) + m_t g_t with m_t = 4/(t + 8)^(2/3), drawn before the arm."""
    n, smoothing = 3, Randomized(radius=2.0, n_samples=4)
    world, problem = World(n), problem_of(n)
    policy = FrankWolfe(Minimum(), EpsilonGreedy(0.3), smoothing)
    state, rng = policy.init(problem), stream(0, "running")
    running, apart = np.zeros(n), 0.0
    for t in range(60):
        twin = deepcopy(rng)
        fresh = smoothing.gradient(Minimum(), state.iterate, t, twin)
        weight = 4.0 / (t + 8.0) ** (2.0 / 3.0)
        running = (1.0 - weight) * running + weight * fresh
        apart += float(np.linalg.norm(running - fresh))
        decision = policy.act(state, world.contexts[t], rng)
        followed = np.array(decision.direction)
        np.testing.assert_allclose(followed, running, rtol=0.0, atol=1e-13)
        twin.random()  # the arm's draw; after it both generators go on alike
        assert twin.random() == deepcopy(rng).random()
        state = policy.update(state, decision, world.rewards[t, decision.action])
        np.testing.assert_allclose(state.state.running, running, rtol=0.0, atol=1e-13)
    assert apart > 1.0  # the newest gradients alone are something else


@pytest.mark.parametrize(
    "policy",
    [
        FrankWolfe(GiniWelfare(), LinUCB(ridge=0.1, exploration="theorem")),
        FrankWolfe(Linear((1.0, 0.5, 0.2)), SquareCB(gamma0=50.0)),
        FrankWolfe(Minimum(), EpsilonGreedy(0.1), Randomized(n_samples=2)),
        MOLinCB(GiniWelfare()),
    ],
    ids=lambda p: type(p).__name__,
)
def test_late_feedback_in_any_order_gives_the_same_sums(policy: FrankWolfe | MOLinCB) -> None:
    n = 3
    world, problem = World(n), problem_of(n)
    start, rng = policy.init(problem), stream(0, "late")
    decisions = [policy.act(start, context, rng) for context in world.contexts]
    states = []
    for order in (range(ROUNDS), rng.permutation(ROUNDS), range(ROUNDS)[::-1]):
        state = policy.init(problem)
        for t in order:
            state = policy.update(state, decisions[t], world.rewards[t, decisions[t].action])
        states.append(state)
    rewards = [world.rewards[t, d.action] for t, d in enumerate(decisions)]
    for state in states:
        assert state.t == ROUNDS
        np.testing.assert_allclose(state.average, np.mean(rewards, axis=0), rtol=0.0, atol=1e-12)
        np.testing.assert_allclose(state.iterate, states[0].iterate, rtol=0.0, atol=1e-9)
        learnt, first = state.base_state.oracle, states[0].base_state.oracle
        for one, other in zip(learnt, first, strict=True):
            np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-9)
        assert learnt.counters[UPDATES] == ROUNDS
        assert learnt.counters[LOG_DET] > 1.0


def test_time_is_the_number_of_rewards() -> None:
    """Ten decisions wait for each reward: widths and gammas follow the rewards."""
    n, rng = 3, stream(0, "time")
    world, problem = World(n), problem_of(n)
    policy = FrankWolfe(GiniWelfare(), SquareCB(gamma0=20.0, oracle=Ridge(0.1)), Moreau(0.5))
    state = policy.init(problem)
    for t in range(12):
        context = world.contexts[t]
        decisions = [policy.act(state, context, rng) for _ in range(10)]
        assert {d.t for d in decisions} == {state.t} == {t}
        g = state.direction(rng)
        expected = GiniWelfare().envelope_gradient(state.iterate, 0.5 / math.sqrt(t + 1.0))
        np.testing.assert_allclose(g, expected, rtol=0.0, atol=1e-13)
        values = context @ state.state.theta[0].T @ g
        rare = 1.0 / (K + 20.0 * math.sqrt(t + 1.0) * (values.max() - values))
        rare[values.argmax()] += 1.0 - rare.sum()
        for decision in decisions:
            assert decision.probability == pytest.approx(rare[decision.action], rel=1e-9)
        state = policy.update(state, decisions[7], world.rewards[t, decisions[7].action])


def test_the_default_smoothing_follows_the_objective() -> None:
    problem = problem_of(3)
    diameter = math.sqrt(1.0 + 4.0 + 9.0)

    def chosen(objective: Concave) -> Any:
        return FrankWolfe(objective, Uniform()).init(problem).smoothing

    least = Custom(lambda z: float(z.min()), lambda z: np.eye(3)[int(z.argmin())])
    assert chosen(Linear((1.0, 2.0, 3.0))) == Identity()
    assert isinstance(chosen(Minimum()), Moreau)
    assert isinstance(chosen(least), Randomized)
    assert chosen(Minimum()).beta0 == pytest.approx(diameter)
    assert chosen(GiniWelfare()).beta0 == pytest.approx(diameter / GiniWelfare().lipschitz(3))
    assert chosen(least).radius == pytest.approx(3.0**0.25 * diameter)


def test_another_objective_takes_over_a_state() -> None:
    world, problem = World(3), problem_of(3)
    policy = FrankWolfe(Minimum(), LinUCB(ridge=0.1, exploration="theorem"), Moreau(0.1))
    _, state = world.play(policy, problem)
    other = policy.with_objective(Linear((0.0, 1.0, 0.0)))
    carried = state.with_objective(other)
    np.testing.assert_array_equal(carried.direction(), [0.0, 1.0, 0.0])
    assert other.base == policy.base
    values = world.contexts[0] @ state.state.theta[0, 1]
    greedy = FrankWolfe(other.objective, EpsilonGreedy(0.0))
    learnt = greedy.running(state.kind, carried.state)
    decided = greedy.act(learnt, world.contexts[0], stream(0, "another"))
    assert decided.action == int(values.argmax())


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "objective": (
        lambda: FrankWolfe("min", LinUCB()),  # type: ignore[arg-type]
        r"objective is 'min'; give one of fw\.obj",
    ),
    "base": (lambda: FrankWolfe(Minimum(), 3), r"base is 3; give a bandit, such as LinUCB\(\)"),
    "memory 0": (
        lambda: FrankWolfe(Minimum(), LinUCB(exploration="theorem"), memory=0.0),
        r"memory is 0\.0; .*half-life",
    ),
    "memory nan": (
        lambda: FrankWolfe(Minimum(), LinUCB(exploration="theorem"), memory=nan),
        r"memory is nan; .*half-li",
    ),
    "iterate": (
        lambda: FrankWolfe(Minimum(), LinUCB(exploration="theorem"), iterate="optimistic"),  # type: ignore[arg-type]
        r"iterate is 'optimistic'; give 'observed' or 'expected'",
    ),
    "size": (
        lambda: FrankWolfe(GeneralizedGini((1.0, 0.5)), LinUCB(exploration="theorem")).init(
            problem_of(3)
        ),
        r"GeneralizedGini has 2 weights, the problem has 3 rewards \(r0, r1, r2\)",
    ),
    "steps": (
        lambda: MOLinCB(Minimum(), steps=0),
        r"steps is 0; give a whole number of",
    ),
    "rate": (lambda: MOLinCB(Minimum(), rate=nan), r"rate=nan; give .*positive rate"),
    "ridge": (
        lambda: MOLinCB(Minimum(), ridge=0.0),
        r"ridge is 0\.0; give a positive finite number",
    ),
    "domain": (
        lambda: FrankWolfe(Nash(), LinUCB(exploration="theorem"), Identity()).act(
            FrankWolfe(Nash(), LinUCB(exploration="theorem"), Identity()).init(problem_of(2)),
            np.eye(DIM),
            stream(0, "domain"),
        ),
        r"no supergradient at z\[0\] = 0\.0",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str) -> None:
    attempt, message = REFUSED[case]
    with pytest.raises(InvalidInput, match=message):
        attempt()
