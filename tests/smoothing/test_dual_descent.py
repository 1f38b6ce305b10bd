"""DualDescent: against its definition, solved by CVXPY; its special cases, constants and bound."""

from __future__ import annotations

from typing import Any

import cvxpy as cp
import numpy as np
import pytest

import fairwolfe as fw
from fairwolfe import Agent, FrankWolfe, Problem
from fairwolfe.bandits import LinUCB
from fairwolfe.core.arrays import Vector
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import (
    AtMost,
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Linear,
    Minimum,
    TwoSided,
    Welfare,
)
from fairwolfe.smoothing import DualDescent, Moreau
from fairwolfe.smoothing.dual_descent import entropic


def projected(z: Vector, weights: Vector, step: float) -> Vector:
    """argmin <theta, z> + step sum theta ln theta over the permutahedron, by its definition: the
    convex hull of the permutations of w is {P w: P doubly stochastic}.
    """
    n = z.size
    mixing = cp.Variable((n, n), nonneg=True)
    theta = mixing @ weights
    doubly = [cp.sum(mixing, axis=0) == 1, cp.sum(mixing, axis=1) == 1]
    problem = cp.Problem(cp.Minimize(z @ theta - step * cp.sum(cp.entr(theta))), doubly)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    found: Vector = np.array(theta.value)
    return found


@pytest.mark.parametrize("weights", [(1.0, 0.75, 0.5, 0.25), (2.0, 1.0, 0.0, 0.0), (1.0, 1, 1, 1)])
@pytest.mark.parametrize("step", [0.03, 0.3, 3.0])
def test_it_is_the_entropic_projection_on_the_permutahedron(weights: Any, step: float) -> None:
    rng = stream(0, "entropic")
    w = np.array(weights)
    for z in (rng.random(4), np.array([0.2, 0.2, 0.5, 0.1]), 0.05 * rng.random(4)):
        theta = entropic(z, w, step)
        np.testing.assert_allclose(theta, projected(z, w, step), atol=2e-5)
        order = np.argsort(-theta)
        assert (np.cumsum(theta[order]) <= np.cumsum(w) + 1e-12).all()
        assert theta.sum() == pytest.approx(w.sum())


def test_a_wrong_projection_would_be_found() -> None:
    """Exponential weights alone leave the permutahedron."""
    z, w = np.array([0.1, 0.9, 0.8, 0.7]), np.array([1.0, 0.75, 0.5, 0.25])
    soft = np.exp(-z / 0.1)
    assert np.abs(2.5 * soft / soft.sum() - projected(z, w, 0.1)).max() > 0.1


def test_the_minimum_has_exponential_weights() -> None:
    z = stream(0, "soft").random(7)
    g = DualDescent("entropy", 0.5).gradient(Minimum(), z, 8)
    soft = np.exp(-z / (0.5 / 3.0))
    np.testing.assert_allclose(g, soft / soft.sum(), rtol=1e-12)
    pooled = entropic(z, np.eye(1, 7)[0] + 1e-13, 0.5 / 3.0)  # by blocks, not by its formula
    np.testing.assert_allclose(pooled, soft / soft.sum(), atol=1e-10)


def test_steps_that_are_tiny_do_not_overflow() -> None:
    for f in (Minimum(), GiniWelfare()):
        z = np.array([0.3, 0.1, 0.2])
        g = DualDescent("entropy", 1e-300).gradient(f, z, 10**9)
        np.testing.assert_allclose(g, f.gradient(z), atol=1e-12)


@pytest.mark.parametrize("t", [0, 10, 1000])
@pytest.mark.parametrize("f", [Minimum(), GiniWelfare(), GeneralizedGini((2.0, 0.5, 0.0, 0.0, 0))])
def test_the_value_has_this_gradient(f: Any, t: int) -> None:
    smoothing, z = DualDescent("entropy", 1.0), np.array([0.5, 0.2, 0.9, 0.22, 0.4])
    g, h = smoothing.gradient(f, z, t), 1e-6
    for i, unit in enumerate(np.eye(5)):
        ends = (smoothing.value(f, z + sign * h * unit, t) for sign in (1, -1))
        assert g[i] == pytest.approx((next(ends) - next(ends)) / (2 * h), abs=1e-5)


def test_euclid_is_moreau_to_the_last_bit() -> None:
    problem = Problem.arms(3, {f"r{i}": (0, 1) for i in range(4)})
    rng = stream(0, "euclid")
    agents = [
        Agent(FrankWolfe(GiniWelfare(), LinUCB(), smoothing), problem)
        for smoothing in (DualDescent(rate=0.3), Moreau(0.3))
    ]
    for _ in range(300):
        x, reward = rng.random((5, 3)) / 2.0, rng.random(4)
        one, other = (agent.act(x) for agent in agents)
        assert one.action == other.action
        for agent, decision in zip(agents, (one, other), strict=True):
            agent.update(decision, reward)
    assert agents[0].average.tolist() == agents[1].average.tolist()
    for f in (GiniWelfare(), TwoSided(EqualExposure())):
        z = rng.random(4)
        assert DualDescent().value(f, z, 9) == Moreau().value(f, z, 9)
        assert DualDescent().gradient(f, z, 9).tolist() == Moreau().gradient(f, z, 9).tolist()


def test_late_answers_in_any_order_give_the_same_direction() -> None:
    problem = Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
    policy = FrankWolfe(Minimum(), LinUCB(), DualDescent("entropy"))
    agents = [Agent(policy, problem), Agent(policy, problem)]
    rewards = [(i / 16, 1 - i / 16) for i in range(8)]  # sums are exact
    for agent, order in zip(agents, (range(8), reversed(range(8))), strict=True):
        decisions = [agent.act(np.eye(2) / 2) for _ in range(8)]
        for i in order:
            agent.update(decisions[i], rewards[i])
    one, other = (agent.average for agent in agents)
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize(
    "f", [GiniEquality(), EqualExposure(), Welfare(0.5), GeneralizedGini((1.0, -0.5))]
)
def test_what_has_no_entropy_is_refused(f: Any) -> None:
    with pytest.raises(InvalidInput, match=r"weights are at least 0.*use mirror='euclid'"):
        DualDescent("entropy").gradient(f, np.array([0.2, 0.4]), 0)


def test_hard_constraints_are_refused() -> None:
    problem = Problem.arms(2, {"a": (0, 1), "b": (0, 1)})
    policy = FrankWolfe(Minimum() + AtMost({"b": 0.3}), LinUCB(), DualDescent("entropy"))
    with pytest.raises(InvalidInput, match="has hard constraints"):
        policy.init(problem)


@pytest.mark.parametrize("n", [5, 20, 100])
@pytest.mark.parametrize("of", [Minimum, GiniWelfare])
def test_its_links_of_the_proof(of: Any, n: int) -> None:
    """Smoothness in the largest norm with A, and f <= f_t <= f + B rate/sqrt(t + 1)."""
    from fairwolfe.smoothing.dual_descent import entropic_constants

    rng, smoothing, f = stream(0, "links", n), DualDescent("entropy", 0.7), of()
    spread, error = entropic_constants(f, n)
    tightest = 0.0
    for t in (0, 30, 1000):
        for _ in range(20):
            z, s = rng.random((2, n)) * rng.random()
            g, here = smoothing.gradient(f, z, t), smoothing.value(f, z, t)
            fall = here + g @ (s - z) - smoothing.value(f, s, t)
            most = 0.5 * np.sqrt(t + 1) * spread / 0.7 * np.abs(s - z).max() ** 2
            assert -1e-12 <= fall <= most + 1e-12
            gap = here - f.value(z)
            assert -1e-12 <= gap <= 0.7 * error / np.sqrt(t + 1) + 1e-12
            tightest = max(tightest, gap / (0.7 * error / np.sqrt(t + 1)))
    assert tightest > 0.5  # half of B would be found


def test_the_bound_holds_and_grows_with_the_logarithm() -> None:
    """Known rewards: f* - f(z) <= (A/rate + 2 B rate)/sqrt T, where each arm earns one of D."""
    excess = {}
    for n in (5, 20, 100):
        world = Finite([np.eye(n).tolist()], (1.0,), theta=np.eye(n))
        problem, f, smoothing = world.problem(), Minimum(), DualDescent("entropy")
        trace = fw.simulate(fw.known(world, f, smoothing), world, 4_000, objective=f)
        given = {"problem": problem, "objective": f, "horizon": 4_000, "tight": True, "delta": 1}
        bound = fw.bounds.dual_descent(**given)
        assert 1.0 / n - trace.value[-1] <= bound
        excess[n] = float(bound)
        assert bound == pytest.approx(2.0 * np.sqrt(2.0 * np.log(n) / 4_000))
        assert float(fw.bounds.dual_descent(mirror="euclid", **given)) == float(
            fw.bounds.moreau(**given)
        )
        by_policy = fw.bounds.reduction(smoothing=smoothing, **given)
        assert float(by_policy) == float(bound)
    assert excess[100] < 2.0 * excess[5]


def test_a_linear_part_is_left_as_it_is() -> None:
    f, z = 2 * Minimum() + Linear((1.0, -3.0)), np.array([0.1, 0.4])
    g = DualDescent("entropy", 0.2).gradient(f, z, 3)
    soft = np.exp(-z / 0.2)  # 2 f has twice the width: 2 0.2/sqrt 4
    np.testing.assert_allclose(g, 2.0 * soft / soft.sum() + [1.0, -3.0])
