"""Live numbers: what is counted, when, and what is said of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, FrankWolfe, MOLinCB, PerArm, Problem
from fairwolfe.agent.file import arrays_of
from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Thompson, Uniform
from fairwolfe.core.arrays import Vector
from fairwolfe.core.decision import Choice, Decision
from fairwolfe.core.rows import PlainRows
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    Custom,
    EqualExposure,
    GiniWelfare,
    Linear,
    Mapped,
    Minimum,
    Nash,
    Welfare,
)
from fairwolfe.oracles import OnlineGradient
from fairwolfe.reduction import Live
from fairwolfe.reduction.live import Windows
from fairwolfe.smoothing import Identity, Moreau, Randomized
from tests.theory.worlds import A1, A2, DISTANCE

PROBLEM = Problem.arms(3, {"a": (0, 1), "b": (0, 2)}, parameter_norm=1.0)


def world(seed: int) -> tuple[np.random.Generator, Callable[[Any, Any], Vector]]:
    """A stream of contexts, and what an arm earns: linear means inside the ranges."""
    rng = np.random.default_rng(seed)
    noise = np.random.default_rng(seed + 1000)
    theta = np.array([[0.6, 0.1, 0.3], [0.1, 0.9, 0.2]])

    def reward(context: Any, arm: Any) -> Vector:
        chances = theta @ context[arm] * [1.0, 0.5]
        return np.where(noise.random(2) < chances, [1.0, 2.0], 0.0)

    return rng, reward


def context(rng: np.random.Generator, n_arms: int = 4) -> Any:
    return rng.uniform(0.0, 0.55, (n_arms, 3))


def agent(policy: Any = None, problem: Problem = PROBLEM) -> Agent:
    return Agent(policy or FrankWolfe(GiniWelfare(), LinUCB(exploration=0.2)), problem)


def played(one: Agent, rounds: int, seed: int = 0, rng: Any = None, reward: Any = None) -> Agent:
    if rng is None:
        rng, reward = world(seed)
    for _ in range(rounds):
        x = context(rng)
        decision = one.act(x)
        one.update(decision, reward(x, decision.action))
    return one


def window(decision: Decision) -> int:
    return int(decision.batch.rows.head["window"].item(0))


def live_arrays(one: Agent) -> dict[str, bytes]:
    return {k: a.tobytes() for k, a in arrays_of(one._running) if k == "state.live"}


# --- certificates ---------------------------------------------------------------------------------

THREE = Problem.arms(2, {"x": (0, 1), "y": (0, 2), "z": (0, 0.5)})
EXPRESSIONS: dict[str, Concave] = {
    "gini": GiniWelfare(),
    "linear": Linear((1.0, -2.0, 0.5)),
    "sum": 2.0 * Minimum() + AtMost({"y": 0.7}, penalty=3.0) + 0.5 * EqualExposure(),
    "mapped": Mapped(GiniWelfare(), ((1.0, 0.5, 0.0), (0.0, -1.0, 2.0))),
    "groups": ByGroup(Minimum(), ("p", "q", "p")) + Linear((0.1, 0.2, 0.3)),
    "nash": Nash(offset=0.1),
    "welfare": Welfare(0.5) + 3.0 * Minimum().on("x", "z"),
    "floor": AtLeast(0.4, penalty=2.0),
    "nothing": 0.0 * Minimum(),
    "custom": Custom(lambda z: -float(z @ z), lambda z: -2.0 * z, smooth=True),
}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_certificates_are_above_f_and_touch_it(name: str) -> None:
    policy = FrankWolfe(EXPRESSIONS[name], Uniform())
    state = policy.init(THREE)
    watch, rng = state.certificates, np.random.default_rng(0)
    points = rng.uniform(THREE.low, THREE.high, (300, 3))
    values = np.array([watch.objective.value(s) for s in points])
    for t, z in enumerate(points[:20]):
        for step in (0.0, 0.3 / math.sqrt(t + 1.0)):
            a, b = watch.certificate(z, step)
            assert (values <= a + points @ b + 1e-9).all()
            if step == 0.0:
                assert a + b @ z == pytest.approx(watch.objective.value(z), abs=1e-9)


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_with_moreau_the_slope_is_the_direction(name: str) -> None:
    policy = FrankWolfe(EXPRESSIONS[name], Uniform(), Moreau(0.4))
    state = policy.init(THREE)
    rng = np.random.default_rng(0)
    for t in range(20):
        state.state.totals[:] = rng.uniform(THREE.low, THREE.high)
        state.state.clocks[:] = 1.0
        state.state.t[0] = t
        slope = state.certificates.certificate(state.iterate, state.certificates._step(t))[1]
        np.testing.assert_allclose(slope, state.direction(), rtol=1e-9, atol=1e-12)


# --- what a base sees -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base",
    [
        LinUCB(exploration=0.3),
        LinUCB(model="extended", lipschitz=1.0, exploration="theorem"),
        SquareCB(gamma0=10.0),
        Thompson(),
        EpsilonGreedy(0.2, oracle=OnlineGradient()),
    ],
    ids=lambda base: f"{type(base).__name__} {getattr(base, 'model', '')}",
)
def test_the_outlook_is_what_the_estimates_and_widths_say(base: Any) -> None:
    rng, reward = world(0)
    state = base.init(PROBLEM)
    for _ in range(60):
        x, g = context(rng), rng.normal(size=2)
        choice = base.act(state, x, g, rng)
        state = base.update(state, choice, g, reward(x, choice.action))
    theta = state.oracle.theta[0].reshape(2, 3)
    for _ in range(20):
        x, g, slope = context(rng), rng.normal(size=2), rng.normal(size=2)
        bounds = base.bound_params(PROBLEM)
        choice = base.act(state, x, g, rng)
        seen = base.certify(state, x, g, choice, slope, bounds)
        scores, greedy = x @ theta.T @ slope, int((x @ theta.T @ g).argmax())
        gaps = scores.max() - scores
        assert seen[1] == pytest.approx(gaps[choice.action], abs=1e-12)
        assert seen[2] == pytest.approx(min(gaps[choice.action], gaps[greedy]), abs=1e-12)
        if isinstance(base.regression, OnlineGradient):
            assert bounds.size == 0
            assert seen[3] == 0.0
            continue
        inverse = state.oracle.inverse[0]
        rows = np.array([np.outer(slope, row).ravel() for row in x]) if base.extended else x
        widths = np.sqrt(((rows @ inverse) * rows).sum(axis=1))
        alphas = self_made_radii(base, state)
        bonus = alphas[0] if base.extended else abs(slope) @ alphas
        assert seen[0] == pytest.approx((scores + bonus * widths).max(), rel=1e-9)
        hopes = [
            hope(slope, row @ theta.T, w, base.extended)
            for row, w in zip(x, widths, strict=True)
            if w * w > 0.01
        ]
        assert seen[3] == pytest.approx(max([0.0, *(h - scores.max() for h in hopes)]), abs=1e-12)


def hope(slope: Vector, means: Vector, width: float, extended: bool) -> float:
    """The largest <slope, r> that two standard errors and one more reward leave possible."""
    low, high = PROBLEM.low, PROBLEM.high
    if extended:  # of the scalar reward, in its range
        means = np.array([slope @ means])
        low, high = np.minimum(slope * low, slope * high), np.maximum(slope * low, slope * high)
        low, high, slope = low.sum(keepdims=True), high.sum(keepdims=True), np.ones(1)
    else:
        means = np.clip(means, low, high)
    more = width**2 / (1.0 + width**2)
    share = np.clip((means - low) / (high - low), min(more, 0.5), 1.0 - min(more, 0.5))
    up = (2.0 * width * np.sqrt(share * (1.0 - share)) + more) * (high - low)
    ends = np.where(slope < 0.0, np.maximum(means - up, low), np.minimum(means + up, high))
    return float(slope @ ends)


def self_made_radii(base: Any, state: Any) -> Vector:
    """alpha, by its definition and with V itself; the whole bonus whatever the exploration."""
    gram = state.oracle.gram[0]
    log_det = np.linalg.slogdet(gram)[1] - len(gram) * math.log(base.regression.ridge)
    level = 2.0 * math.log(2.0 / base.delta * (1 if base.extended else 2)) + log_det
    if base.extended:
        return np.array([PROBLEM.diameter / 2.0 * math.sqrt(level) + math.sqrt(2.0)])
    return np.array([0.5, 1.0]) * math.sqrt(level) + 1.0


def test_the_outlook_of_per_arm_contexts_is_that_of_their_flat_form() -> None:
    split = Problem.arms(3, dict(PROBLEM.rewards), parameter_norm=1.0, n_arms=4)
    flat = Problem.arms(12, dict(PROBLEM.rewards), parameter_norm=1.0)
    base, rng = LinUCB(exploration="theorem"), np.random.default_rng(0)
    one, other = base.init(split), base.init(flat)
    for _ in range(40):
        x, g, slope = rng.uniform(0.0, 0.5, 3), rng.normal(size=2), rng.normal(size=2)
        rows = np.kron(np.eye(4), x)
        bounds = base.bound_params(split)
        choices = (base.act(one, PerArm(x), g, rng), base.act(other, rows, g, rng))
        seen = (
            base.certify(one, PerArm(x), g, choices[0], slope, bounds),
            base.certify(other, rows, g, choices[1], slope, bounds),
        )
        np.testing.assert_allclose(*seen, rtol=1e-9, atol=1e-12)
        r = rng.random(2)
        one, other = base.update(one, choices[0], g, r), base.update(other, choices[1], g, r)


class Blind:
    """The three methods of the contract and nothing else."""

    def __init__(self) -> None:
        self.inner = LinUCB(exploration="theorem")

    def init(self, problem: Problem) -> Any:
        return self.inner.init(problem)

    def act(self, state: Any, x: Any, direction: Vector, rng: Any) -> Choice:
        return self.inner.act(state, x, direction, rng)

    def update(self, state: Any, choice: Choice, direction: Vector, feedback: Any) -> Any:
        return self.inner.update(state, choice, direction, feedback)


# --- windows --------------------------------------------------------------------------------------


def test_windows_hold_what_a_list_of_all_decisions_says() -> None:
    rng = np.random.default_rng(0)
    running: Any = FrankWolfe(GiniWelfare(), Blind()).init(PROBLEM)
    windows, low, high = running.windows, PROBLEM.low, PROBLEM.high

    def extent(b: Vector) -> tuple[float, float]:
        return float(np.maximum(b * low, b * high).sum()), float(abs(b) @ (high - low))

    f = GiniWelfare()
    slopes = rng.uniform(0.5, 1.0, (600, 2))
    kept: list[tuple[Vector, Vector, Vector]] = []  # seen, reward, slope
    found = []
    for t in range(64 + 128 + 256 + 90):
        slope, seen = windows.now.slope.copy(), rng.random(4)
        seen[0] *= 4.0
        reward = rng.random(2)
        row = PlainRows.empty(1, 0, 0, 0)
        row.head["number"], row.head["window"] = -1, windows.serial
        if running.engine.settle(row, reward, reward, np.empty(0), seen, (0, 0)):
            windows.add(0.25, slopes[t])
            found.append(t)
        windows.advance(extent, np.inf)
        kept.append((seen, reward, slope))
    assert windows.slope is not None
    assert windows.decisions == 256 + 90
    # 32 certificates in each window: every second decision, every fourth, every eighth
    assert [sum(a <= t < b for t in found) for a, b in ((0, 64), (64, 192), (192, 448))] == [32] * 3
    seen, rewards, slope = (np.array(column[192:]) for column in zip(*kept, strict=True))
    np.testing.assert_allclose(slope[0], slopes[[t for t in found if 64 <= t < 192]].mean(axis=0))
    np.testing.assert_allclose(slope[-1], slopes[[t for t in found if 192 <= t < 448]].mean(axis=0))
    y = 0.25 + seen[:, 1] + (slope * rewards).sum(axis=1)
    batches = [y[:256].reshape(32, 8), y[256 : 256 + 80].reshape(5, 16)]
    squares = [batch.shape[1] * (batch.mean(axis=1).var() * len(batch)) for batch in batches]
    spread = sum(squares) / (31 + 4)
    earned = rewards.mean(axis=0)
    gap = seen[:, 2].mean() + 0.25 + slope.mean(axis=0) @ earned - f.value(earned)
    about, half, untried = windows.estimate(f, 0.05)
    assert about == pytest.approx(y.mean() - gap / 2.0, rel=1e-9)
    t_quantile = 2.030107928250343  # of 35 degrees of freedom, at .975
    rare = math.log(20.0) * (slope @ (high - low)).mean() / 346
    error = t_quantile**2 * (spread / 346 + gap**2 / 12.0) + rare**2
    assert half == pytest.approx(math.sqrt(error), rel=1e-9)
    assert untried == pytest.approx(seen[:, 3].mean(), rel=1e-9)
    # At most: f* is below the mean of a + min(top, cap), and Hoeffding's margin on top of it.
    tops = 0.25 + np.minimum(seen[:, 0], slope @ high)
    weights = 1.0 / (slope @ high)
    n_star, level = 2 * 256, math.log(20.0)
    pull = math.sqrt(8.0 * level / n_star)
    margin = (level / pull + 346 * pull / 8.0) / weights.sum()
    assert windows.bound(0.05) == pytest.approx((weights @ tops) / weights.sum() + margin)


def test_hoeffdings_margin_is_nearly_the_one_of_a_length_fixed_in_advance() -> None:
    for n in range(256, 3 * 256):
        windows = Windows(Windows.start(1))
        for numbers in (windows.before.numbers, windows.now.numbers):
            numbers[1], numbers[13] = 256.0, 1.0  # planned, range
        windows.before.numbers[2], windows.now.numbers[2] = 256.0, n - 256.0
        best = math.sqrt(math.log(20.0) / (2.0 * n))
        assert best <= windows.bound(0.05) * (1.0 + 1e-12) <= 1.07 * best


def test_nothing_is_said_before_a_window_is_complete() -> None:
    one = agent()
    for rounds, decisions in ((0, 0), (63, 0), (1, 0), (127, 0), (1, 128), (100, 228)):
        played(one, rounds, seed=rounds)
        live = one.live()
        assert (live.t, live.decisions) == (one.t, decisions)
        assert (live.about is None) == (decisions == 0)
        assert live.value == one.value
        if decisions == 0:
            assert live.at_most is None
            assert "too few decisions" in str(live)
        else:
            assert live.low is not None
            assert live.about is not None
            assert live.high is not None
            assert live.low < live.about < live.high


def test_memory_bounds_the_windows() -> None:
    one = played(
        agent(FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem"), memory=150.0)),
        64 + 128 + 256 + 256 + 9,
    )
    # 1/(1 - 2^(-1/150)) = 217 decisions are remembered, so that 256 are long enough.
    assert one._running.windows.now.numbers[1] == 256.0
    assert one.live().decisions == 256 + 9
    assert one.live().at_most is None
    assert "memory" in one.live().reason


def test_size_of_state_and_decision_is_constant() -> None:
    one, sizes, lengths = agent(), set(), []
    rng, reward = world(0)
    for _ in range(4):
        played(one, 200, rng=rng, reward=reward)
        decision = one.act(context(rng))
        sizes.add(sum(array.nbytes for _, array in arrays_of(one._running)))
        lengths.append(len(decision.to_bytes()) - len(decision.id))
    assert len(sizes) == 1
    assert max(lengths) - min(lengths) <= 2  # a larger t takes another byte
    assert sum(len(a) for a in live_arrays(one).values()) < 396


# --- feedback that is late, shuffled, stored, missing ---------------------------------------------


def test_a_file_in_the_middle_of_a_window_changes_nothing(tmp_path: Path) -> None:
    rng, reward = world(0)
    one = played(agent(), 300, rng=rng, reward=reward)
    x = context(rng)
    waiting = one.act(x).to_bytes()
    one.save(tmp_path / "agent.fw")
    other = Agent.load(tmp_path / "agent.fw")
    assert one.live() == other.live()
    for each in (one, other):
        each.update(Decision.from_bytes(waiting), reward(x, 0) * 0.0)
        rng, reward = world(7)
        played(each, 300, rng=rng, reward=reward)
    assert live_arrays(one) == live_arrays(other)
    assert one.live() == other.live()


def test_a_decision_from_its_bytes_counts_alike() -> None:
    agents = [agent(FrankWolfe(Minimum(), SquareCB(gamma0=50.0))) for _ in range(2)]
    for stored, one in enumerate(agents):
        rng, reward = world(0)
        for _ in range(400):
            x = context(rng)
            decision = one.act(x)
            arm = decision.action
            one.update(
                Decision.from_bytes(decision.to_bytes()) if stored else decision, reward(x, arm)
            )
    assert live_arrays(agents[0]) == live_arrays(agents[1])


@cache
def in_time() -> Live:
    return played(agent(), 4000, seed=4).live()


@pytest.mark.parametrize("batch", [1, 10, 100, 1000])
def test_late_shuffled_and_missing_feedback(batch: int) -> None:
    # Batches of decisions, answered in any order, a tenth of them never.
    one, (rng, reward), order = agent(), world(3), np.random.default_rng(0)
    for _ in range(4000 // batch):
        contexts = [context(rng) for _ in range(batch)]
        decisions = one.act_many(contexts, advance=bool(batch % 100))
        for i in order.permutation(batch)[: max(1, batch - batch // 10)]:
            one.update(decisions[i], reward(contexts[i], decisions[i].action))
    live, prompt = one.live(), in_time()
    assert live.about is not None
    assert prompt.about is not None
    assert live.decisions >= 512  # a batch of 1,000 moves on by one window
    # Standard errors are about .01 in both runs.
    assert live.about == pytest.approx(prompt.about, abs=0.06)
    assert live.high is not None
    assert prompt.high is not None
    assert live.high - live.about < 4.0 * (prompt.high - prompt.about)


def test_decisions_of_earlier_windows_are_left_out() -> None:
    rng, reward = world(0)
    one = played(agent(), 100, rng=rng, reward=reward)
    x = context(rng)
    late = one.act(x)
    played(one, 100, rng=rng, reward=reward)  # the window ended at 192
    before = live_arrays(one)
    one.update(late, reward(x, late.action))
    assert live_arrays(one) == before
    assert one.t == 201


def test_decisions_of_the_first_window_are_left_out_later() -> None:
    one, (rng, _) = agent(), world(0)
    early = one.act_many([context(rng) for _ in range(70)])
    one.update_many(early[:69], rng.random((69, 2)))
    assert one._running.windows.now.numbers[2] == 0.0
    before = live_arrays(one)
    one.update(early[69], [1.0, 1.0])
    assert live_arrays(one) == before


# --- another objective, other policies ------------------------------------------------------------


def test_replacing_the_objective_starts_again() -> None:
    rng, reward = world(0)
    one = played(agent(), 250, rng=rng, reward=reward)
    x = context(rng)
    waiting = one.act(x)
    one.replace_objective(Minimum())
    assert one.live().about is None
    assert one.live().value == one.value
    played(one, 40, rng=rng, reward=reward)
    counted = one._running.windows.now.numbers[2]
    one.update(waiting, reward(x, waiting.action))  # of the old f: its windows are gone
    assert one._running.windows.now.numbers[2] == counted
    # No certificate of the new f has the name of one of the old.
    played(one, 250, rng=rng, reward=reward)
    assert window(one.act(x)) != window(waiting)
    about = one.live().about
    assert about is not None
    fresh = played(agent(FrankWolfe(Minimum(), LinUCB(exploration=0.2))), 1000).live().about
    assert fresh is not None
    assert about == pytest.approx(fresh, abs=0.1)


@pytest.mark.parametrize(
    "policy",
    [
        MOLinCB(GiniWelfare()),
        FrankWolfe(GiniWelfare(), Thompson(scale=0.1)),
        FrankWolfe(GiniWelfare(), LinUCB(model="extended", exploration=0.1)),
        FrankWolfe(GiniWelfare(), EpsilonGreedy(0.05, oracle=OnlineGradient())),
        FrankWolfe(GiniWelfare(), SquareCB(gamma0=100.0), Randomized()),
        FrankWolfe(GiniWelfare(), Uniform()),
        FrankWolfe(Nash(), SquareCB(gamma0=100.0)),
    ],
    ids=lambda policy: (
        f"{type(policy).__name__} {policy.objective} {type(getattr(policy, 'base', None)).__name__}"
    ),
)
def test_every_policy_has_live_numbers(policy: Any) -> None:
    one = played(agent(policy), 800)
    live = one.live()
    assert live.about is not None
    assert live.low is not None
    assert live.high is not None
    assert live.low <= live.about <= live.high
    assert live.high >= live.value - 0.1  # one cannot have earned more than can be earned
    assert str(live).startswith("After 800 decisions f is ")
    assert isinstance(live, Live)
    if live.at_most is not None:
        assert live.at_most > live.about


def test_a_base_that_sees_nothing_has_no_numbers() -> None:
    one = played(agent(FrankWolfe(GiniWelfare(), Blind())), 300)
    live = one.live()
    assert (live.about, live.at_most, live.decisions) == (None, None, 0)
    assert "Blind has no confidence widths" in live.reason


def test_an_objective_that_raises_leaves_the_feedback_whole() -> None:
    calls = [0]

    def slope(z: Vector) -> Vector:
        calls[0] += 1
        if calls[0] > 1000:
            raise ZeroDivisionError("of the user")
        return -2.0 * z

    f = Custom(lambda z: -float(z @ z), slope, smooth=True)
    one, (rng, _) = agent(FrankWolfe(f, LinUCB(exploration="theorem"))), world(0)
    decisions = one.act_many([context(rng) for _ in range(70)])
    calls[0] = 1000
    for i, decision in enumerate(decisions):
        one.update(decision, rng.random(2))
        assert one.t == i + 1
    with pytest.raises(ZeroDivisionError):
        one.act(context(rng))
    assert one.live().about is None  # no certificate was found


# --- what is guaranteed, and what is not ----------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "problem", "reason"),
    [
        (FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem"), memory=100.0), PROBLEM, "memory"),
        (
            FrankWolfe(GiniWelfare(), SquareCB(gamma0=9.0, oracle=OnlineGradient())),
            PROBLEM,
            "SquareCB has no confidence widths here",
        ),
        (None, Problem.arms(3, dict(PROBLEM.rewards)), "states no parameter_norm"),
    ],
    ids=["memory", "no widths", "no norm"],
)
def test_no_guarantee_outside_the_assumptions(policy: Any, problem: Problem, reason: str) -> None:
    live = played(agent(policy, problem), 600).live()
    assert live.at_most is None
    assert live.about is not None
    assert reason in live.reason
    assert f"No guarantee: {live.reason}." in str(live)


@pytest.mark.filterwarnings("ignore:Custom has no gradient")
def test_no_guarantee_from_a_gradient_by_differences() -> None:
    f = Custom(lambda z: float(z.min()), lipschitz=1.0)
    live = played(agent(FrankWolfe(f, LinUCB(exploration="theorem"), Identity())), 300).live()
    assert live.at_most is None
    assert "differences" in live.reason


def test_no_guarantee_once_a_reward_was_out_of_range() -> None:
    one = played(agent(), 2000)
    assert one.live().at_most is not None
    with pytest.warns(UserWarning, match="the problem states"):
        one.update(one.act(np.eye(3) / 2.0), [1.5, 0.0])
    live = one.live()
    assert live.at_most is None
    assert live.about is not None
    assert "outside the ranges" in live.reason


def test_no_guarantee_where_the_ranges_say_as_much() -> None:
    # f is at most 0 whatever is earned, and f* is 0: there is nothing to be said in this world.
    one = Agent(FrankWolfe(DISTANCE, LinUCB(exploration="theorem")), A1.problem())
    tables, rng = A1.init(np.random.default_rng(0)), np.random.default_rng(1)
    for t in range(3000):
        x = A1.context(tables, t, rng)
        decision = one.act(x)
        one.update(decision, A1.feedback(tables, x, decision.action, rng))
    live = one.live()
    assert live.at_most is None
    assert "ranges of the rewards" in live.reason
    assert live.about is not None
    assert live.high is not None
    assert live.about <= live.high <= 1e-6  # which the estimate respects too


@pytest.mark.parametrize("name", ["gini", "linear", "sum", "mapped", "groups", "nash", "floor"])
def test_what_the_ranges_allow(name: str) -> None:
    bound = EXPRESSIONS[name].bind(THREE)
    watch = FrankWolfe(EXPRESSIONS[name], Uniform(), Moreau(0.5)).init(THREE).certificates
    reached, ceiling = watch._extremes
    best = max(bound.value(z) for z in grid(THREE, 11))
    # 400 steps of Frank-Wolfe: both ends are near the largest value, the right side of it.
    assert reached <= ceiling + 1e-9
    assert best <= ceiling + 1e-9
    assert reached >= best - 0.02
    assert ceiling <= reached + 0.05


def grid(problem: Problem, n: int) -> Any:
    axes = [np.linspace(a, b, n) for a, b in zip(problem.low, problem.high, strict=True)]
    return np.array(np.meshgrid(*axes)).reshape(len(axes), -1).T


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_a_level_is_a_probability(delta: float) -> None:
    with pytest.raises(InvalidInput, match="delta is"):
        agent().live(delta)


def test_smaller_levels_say_less() -> None:
    one = Agent(FrankWolfe(Minimum(), LinUCB(exploration="theorem")), A2.problem())
    tables, rng = A2.init(np.random.default_rng(0)), np.random.default_rng(1)
    for t in range(2000):
        x = A2.context(tables, t, rng)
        decision = one.act(x)
        one.update(decision, A2.feedback(tables, x, decision.action, rng))
    lives = [one.live(delta) for delta in (0.2, 0.05, 0.01)]
    assert [live.about for live in lives] == [lives[0].about] * 3
    assert [live.confidence for live in lives] == pytest.approx([0.75, 0.9, 0.94])
    bounds = [(live.high or 0.0, live.at_most or 0.0) for live in lives]
    assert bounds == sorted(bounds)
    assert bounds[0][0] < bounds[1][0] < bounds[2][0]
    assert bounds[0][1] < bounds[1][1] < bounds[2][1]


def test_a_policy_without_live_numbers_says_so() -> None:
    class Plain:
        """A policy of one's own."""

        def __init__(self) -> None:
            self.objective, self.inner = (
                GiniWelfare(),
                FrankWolfe(GiniWelfare(), LinUCB(exploration="theorem")),
            )

        def init(self, problem: Problem) -> Any:
            return self.inner.init(problem)

        def act(self, state: Any, x: Any, rng: Any) -> Decision:
            return self.inner.act(state, x, rng)

        def update(self, state: Any, decision: Decision, feedback: Any) -> Any:
            return self.inner.update(state, decision, feedback)

    with pytest.raises(InvalidInput, match="keeps no live numbers"):
        agent(Plain()).live()


def test_the_sentence() -> None:
    live = Live(None, 12345.6, 12300.0, 12391.2, 12001.0, 5000, 3000, 0.1, 0.85, "of a reason")
    assert str(live) == (
        "After 5,000 decisions f is 12,001. The best that can be reached is about 12,346 (12,300 "
        "to 12,391, 90 %). No guarantee: of a reason."
    )
    dry = Live(None, None, None, None, -math.inf, 3, 0, 0.05, 0.9, "too few decisions")
    assert str(dry) == "After 3 decisions f is -inf. No guarantee: too few decisions."
