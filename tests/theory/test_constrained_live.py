"""Live numbers under hard constraints: the guarantee is of the constrained optimum, the estimate is
near it, and what no policy can keep is found out, nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from fairwolfe import Agent, Problem
from fairwolfe.bandits import LinUCB
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.streams import stream
from fairwolfe.environments import FactorModel, Finite, dcg
from fairwolfe.objectives import (
    AtLeast,
    AtMost,
    ByGroup,
    Concave,
    GiniWelfare,
    Linear,
    Minimum,
    Nash,
    TwoSided,
    Within,
)
from fairwolfe.ranking import FWLinUCBRank
from fairwolfe.reduction import FrankWolfe
from fairwolfe.reduction.live import Certificates
from fairwolfe.truth import optimum
from tests.theory.worlds import A2


def three_contexts() -> Finite:
    """Three contexts with four arms and three rewards, linear in the features."""
    rng = np.random.default_rng(4)
    features = rng.random((3, 4, 3))
    features /= np.linalg.norm(features, axis=2, keepdims=True)
    return Finite(features, (0.4, 0.35, 0.25), theta=0.55 * rng.random((3, 3)))


THREE = three_contexts()
FIRST = Linear((1.0, 0.0))
WORLDS: dict[str, tuple[Any, Concave]] = {
    "floor": (A2, FIRST + AtLeast(0.3).on(1)),
    "ceiling and min": (A2, Minimum() + AtMost(0.3).on(0)),
    "share": (A2, FIRST + AtLeast(0.4, share=True)),
    "range and Nash": (A2, Nash(offset=0.1) + Within(0.1, 0.3).on(0)),
    "ceiling of three": (THREE, Linear((1.0, 0.3, 0.0)) + AtMost(0.481).on(0)),
}
IMPOSSIBLE: dict[str, tuple[Any, Concave]] = {
    "both floors": (A2, FIRST + AtLeast(0.75)),
    "floors alone": (A2, AtLeast(0.7)),
    "floor and ceiling": (A2, Minimum() + AtMost(0.2).on(0) + AtMost(0.2).on(1)),
}


@cache
def best(world: str) -> float:
    """The constrained f*."""
    found = optimum(*WORLDS[world], tolerance=1e-6)
    assert found.gap < 1e-5
    return found.upper_bound


def states(
    world: Any,
    policy: FrankWolfe,
    seed: int,
    times: tuple[int, ...],
    problem: Problem | None = None,
) -> Iterator[Any]:
    """The states of a run at some times."""
    problem = world.problem() if problem is None else problem
    tables = world.init(stream(seed, "world"))
    rewards = world.reward_program(tables)
    state, rng = policy.init(problem), stream(seed, "policy")
    contexts, noise = stream(seed, "contexts"), stream(seed, "noise")
    for begin in range(0, max(times), 500):
        features, tags = world.draw_contexts(tables, contexts, 500)
        drawn = world.draw_noise(noise, 500)
        for i in range(min(500, max(times) - begin)):
            decision = policy.act(state, arms(features[i], problem), rng)
            arm: Any = decision.action
            reward = rewards.answer(arm, int(tags[i]), features[i], drawn[i])[1]
            state = policy.update(state, decision, reward)
            if state.t in times:
                yield state


# --- at most --------------------------------------------------------------------------------------


def holds(world: str, seeds: int, times: tuple[int, ...]) -> None:
    """In all runs: the margin is far larger than what 90 % would need."""
    environment, f = WORLDS[world]
    policy = FrankWolfe(f, LinUCB(exploration=0.5))
    for seed in range(seeds):
        for state in states(environment, policy, seed, times):
            live = state.live()
            assert state.windows.bound(0.05) >= best(world)
            assert live.at_most is None or live.at_most >= best(world)
            assert not any(c.feasible is False for c in state.constraints())


@pytest.mark.parametrize("world", WORLDS)
def test_the_guarantee_is_of_the_constrained_optimum(world: str) -> None:
    holds(world, 8, (300, 600, 1500))


@pytest.mark.slow
@pytest.mark.parametrize("world", WORLDS)
def test_the_guarantee_holds_in_a_hundred_runs(world: str) -> None:
    holds(world, 100, (500, 1500))


def test_the_guarantee_is_below_the_value_only_while_a_constraint_is_missed() -> None:
    """At first only the costly arm can be shown: f is .9 then, and an allowed policy has .39."""
    problem = Problem.arms(2, {"clicks": (0, 1), "cost": (0, 1)}, parameter_norm=1.5)
    f = Linear({"clicks": 1.0}) + AtMost({"cost": 0.2})
    agent = Agent(FrankWolfe(f, LinUCB(exploration=0.1)), problem, seed=0)
    means, rng = np.array([[0.9, 0.8], [0.3, 0.1]]), np.random.default_rng(0)
    below = []
    for t in range(1, 3001):
        decision = agent.act(np.eye(2), candidates=[0] if t <= 1500 else None)
        arm: Any = decision.action
        agent.update(decision, (rng.random(2) < means[arm]).astype(float))
        if t % 100 == 0:
            live = agent.live()
            if live.at_most is not None and live.at_most < live.value:
                below.append(agent.constraints[0].slack)
    assert below
    assert max(below) < 0.0


def test_the_guarantee_comes_below_the_optimum_without_constraints() -> None:
    """Otherwise it would say nothing of the constraints."""
    environment, f = WORLDS["ceiling and min"]
    policy = FrankWolfe(f, LinUCB(exploration=0.5))
    (state,) = states(environment, policy, 0, (2000,))
    at_most = state.live().at_most
    assert at_most is not None
    assert best("ceiling and min") <= at_most < optimum(environment, Minimum()).value - 0.1  # .302


def test_without_its_prices_it_guarantees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is above f where constraints are kept is their intercept."""
    right = Certificates.priced_certificate

    def wrong(
        self: Certificates, z: Vector, prices: tuple[Vector, Vector], age: int
    ) -> tuple[float, Vector, float]:
        _, slope, floor = right(self, z, prices, age)
        return *self.certificate(z, self._step(age))[:1], slope, floor

    monkeypatch.setattr(Certificates, "priced_certificate", wrong)
    environment, f = WORLDS["ceiling and min"]
    policy = FrankWolfe(f, LinUCB(exploration=0.5))
    (state,) = states(environment, policy, 0, (2000,))
    assert state.windows.bound(0.05) < best("ceiling and min") - 0.1


# --- about ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", ["ceiling and min", "share", "ceiling of three"])
def test_the_estimate_is_near_the_constrained_optimum(world: str) -> None:
    environment, f = WORLDS[world]
    policy = FrankWolfe(f, LinUCB(exploration=0.3))
    inside, off = [], []
    for seed in range(15):
        (state,) = states(environment, policy, seed, (2000,))
        live = state.live()
        assert live.about is not None
        assert live.low is not None
        assert live.high is not None
        inside.append(live.low <= best(world) <= live.high)
        off.append(live.about - best(world))
    assert np.mean(inside) >= 0.7  # of .95, with a standard error of .06
    assert abs(np.mean(off)) < 0.02


# --- what no policy keeps ----------------------------------------------------------------------


def certified(world: str, seed: int, t: int, trusted: bool = True) -> Any:
    environment, f = IMPOSSIBLE[world]
    policy = FrankWolfe(f, LinUCB(exploration=0.3))
    (state,) = states(environment, policy, seed, (t,))
    return state.constraints(trusted=trusted), state.live(trusted=trusted)


@pytest.mark.parametrize("world", IMPOSSIBLE)
def test_what_no_policy_keeps_is_certified(world: str) -> None:
    assert not optimum(*IMPOSSIBLE[world]).feasible
    for seed in range(2):
        found, live = certified(world, seed, 8000)
        assert all(c.feasible is False for c in found)
        assert "no policy can keep it" in str(found[0])
        assert live.at_most is None
        assert live.about is None
        assert "no policy keeps the hard constraints" in str(live)


def test_rewards_outside_their_ranges_certify_nothing() -> None:
    found, live = certified("both floors", 0, 8000, trusted=False)
    assert not any(c.feasible is False for c in found)
    assert "outside the ranges" in live.reason


def test_without_a_parameter_norm_nothing_is_certified() -> None:
    environment, f = IMPOSSIBLE["both floors"]
    given = environment.problem()
    problem = Problem.arms(given.n_features, dict(given.rewards))
    policy = FrankWolfe(f, LinUCB(exploration=0.3))
    (state,) = states(environment, policy, 0, (8000,), problem)
    assert not any(c.feasible is False for c in state.constraints())


def test_nothing_is_certified_where_it_can_just_be_kept() -> None:
    """(.5, .5) is the only average that keeps both floors."""
    policy = FrankWolfe(FIRST + AtLeast(0.499), LinUCB(exploration=0.3))
    for seed in range(5):
        for state in states(A2, policy, seed, (1000, 4000)):
            assert not any(c.feasible is False for c in state.constraints())
            assert state.windows.bound(0.05, above_floor=True) >= 0.0


def test_a_negative_value_is_not_impossible() -> None:
    """Less than 0 is what floors are subtracted from first."""
    policy = FrankWolfe(Linear((-1.0, 0.0)) + AtLeast(0.3).on(0), LinUCB(exploration=0.3))
    (state,) = states(A2, policy, 0, (8000,))
    assert -0.3 <= state.windows.bound(0.05) < 0.0 <= state.windows.bound(0.05, above_floor=True)
    assert not any(c.feasible is False for c in state.constraints())


# --- rankings ----------------------------------------------------------------------------------

LISTS = FactorModel(6, 8, dcg(3), n_factors=2)
LABELS = ("a", "b", "c", "d") * 2
RANKED: dict[str, Concave] = {
    "shares": Linear({"clicks": 1.0}) + ByGroup(AtLeast(0.2, share=True), LABELS).on(*range(8)),
    "two sides": TwoSided(GiniWelfare(), 0.5) + AtLeast(0.1).on(*range(8)),
}


@pytest.mark.parametrize("name", RANKED)
def test_rankings_have_the_guarantee_too(name: str) -> None:
    policy = FWLinUCBRank(RANKED[name], exploration=0.3)
    for seed in range(3):
        f_star = optimum(LISTS, RANKED[name], seed=seed).upper_bound
        tables, problem = LISTS.init(stream(seed, "world")), LISTS.problem()
        agent = Agent(policy, problem, seed=seed)
        rng, noise = stream(seed, "contexts"), stream(seed, "noise")
        for t in range(1, 1501):
            context = LISTS.context(tables, t, rng)
            decision = agent.act(context)
            agent.update(decision, LISTS.feedback(tables, context, decision.action, noise))
        live = agent.live()
        with agent.held() as running:
            assert running.windows.bound(0.05) >= f_star
        assert live.at_most is None or live.at_most >= f_star
        assert not any(c.feasible is False for c in agent.constraints)
