"""`of`: the theorem for a policy; and from when on a bound is useful."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Uniform
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.protocols import Environment
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite
from fairwolfe.environments.rankings import RankingWorld
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.objectives import Concave
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank
from fairwolfe.ranking.policies import alone
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation.rollout import simulate
from fairwolfe.smoothing import Randomized, default_smoothing
from fairwolfe.truth.bounds.arms import Gamma, linucb_regret, squarecb_regret
from fairwolfe.truth.bounds.assumptions import Setting, T, Times, setting, without_constraints
from fairwolfe.truth.bounds.rankings import linucb_rank_regret
from fairwolfe.truth.bounds.reduction import reduced
from fairwolfe.truth.optimum import optimum

__all__ = ["first_useful", "of", "uniform_regret"]

_ROUNDS = 20_000  # of a uniform policy in a world that is not finite
_SHORT = 100  # horizons that are tried one by one


def of(
    policy: Any,
    problem: Any,
    horizon: T,
    delta: float = 0.05,
    tight: bool = False,
    *,
    n_arms: int | None = None,
    lipschitz: float | None = None,
) -> T:
    """The bound on R_T that is proved for a policy, with probability 1 - delta - delta'.

    delta' is the `delta` of the base. OutsideAssumptions, with the assumption that fails, where no
    theorem applies.

    Parameters
    ----------
    policy: FWLinUCBRank, or a FrankWolfe policy over LinUCB, SquareCB or LinUCBRank; LinUCBRank
        alone is one for the sum of the user-side rewards
    problem: a Problem, or an environment, which also declares whether its rewards are bounded
    horizon: T, or an array of them
    n_arms: K, needed for SquareCB where the problem does not have it; an environment shows it
    lipschitz: a Lipschitz constant of f that you know, in place of the objective's own

    >>> from fairwolfe.environments import Finite
    >>> from fairwolfe.objectives import Minimum
    >>> policy = FrankWolfe(Minimum(), SquareCB(horizon=100_000))
    >>> round(of(policy, Finite.a2(), 100_000, tight=True), 3)
    0.112
    """
    policy = _reduced(policy)
    here = setting(problem, policy.objective, horizon, tight, lipschitz)
    smoothing = policy.smoothing or default_smoothing(here.objective, here.n)
    if isinstance(smoothing, Randomized):
        raise OutsideAssumptions(
            "Theorem 12 asks for the exact gradients of smooth approximations, and Randomized "
            "follows a running average of sampled ones; bounds.randomized is for exact gradients"
        )
    base = policy.base
    if hasattr(base, "tuned"):
        base = base.tuned(here.objective.lipschitz(here.n))
    if isinstance(base, LinUCB):
        tuned = replace(here, lipschitz=_slope(here, base))
        regret = linucb_regret(tuned, base.model, base.ridge, base.delta, base.exploration)
    elif isinstance(base, LinUCBRank):
        _check_ranker(base)
        regret = linucb_rank_regret(here, base.ridge, base.delta)
    else:
        regret = _squarecb(here, base, n_arms)
    return here.answer(reduced(here, smoothing, regret, delta))


def _reduced(policy: Any) -> FrankWolfe:
    """The policy as a reduction over a base of small scalar regret, all-time averages."""
    if isinstance(policy, LinUCBRank):
        policy = alone(policy)
    if not isinstance(policy, FrankWolfe) or type(policy) not in (FrankWolfe, FWLinUCBRank):
        raise OutsideAssumptions(
            f"no theorem is known for {type(policy).__name__}; the bounds are about FrankWolfe "
            "over LinUCB, SquareCB or LinUCBRank"
        )
    if policy.memory is not None:
        raise OutsideAssumptions(
            f"the theorems ask for averages over all time, and memory is {policy.memory:g} "
            "decisions; they hold for memory=None"
        )
    base = policy.base
    if isinstance(base, (LinUCB, SquareCB, LinUCBRank)):
        return policy
    why = "no bound on its scalar regret is known"
    if isinstance(base, EpsilonGreedy):
        why = "with a constant epsilon its scalar regret grows like T"
    elif isinstance(base, Uniform):
        why = "it does not use what it learns, so its scalar regret grows like T"
    raise OutsideAssumptions(
        f"the reduction asks for a base of small scalar regret, and the base is "
        f"{type(base).__name__}: {why}; use LinUCB(), SquareCB() or LinUCBRank()"
    )


def _check_ranker(base: LinUCBRank) -> None:
    """Theorem 5 is about Algorithm 1 as it is printed, with its observation model."""
    if base.exploration != 1.0:
        raise OutsideAssumptions(
            "Theorem 5 asks for the confidence radius of Lemma 26, and exploration is "
            f"{base.exploration!r}; it is proved for exploration=1"
        )
    if base.exposure != "observed":
        raise OutsideAssumptions(
            "the observation model of Section 4 asks for exposures that are observed, and "
            f"exposure is {base.exposure!r}: items may then count as exposed that were not; use "
            "exposure='observed'"
        )
    if base.randomize > 0.0:
        raise OutsideAssumptions(
            "Proposition 4 asks for items in the order of their scores, and randomize is "
            f"{base.randomize:g}: swapped slots cost a share of every round; use randomize=0"
        )


def _slope(here: Setting[Any], base: LinUCB | SquareCB) -> float:
    """The L that the base was made for, which must be one of f."""
    slope = here.lipschitz if base.lipschitz is None else base.lipschitz
    if slope < here.lipschitz * (1.0 - 1e-12):
        raise OutsideAssumptions(
            f"Theorems 19 and 20 ask for a base made for the Lipschitz constant of f, "
            f"{here.lipschitz:g}, and {type(base).__name__} was given lipschitz={slope:g}"
        )
    return slope


def _squarecb(here: Setting[Any], base: SquareCB, n_arms: int | None) -> Times:
    n_arms = n_arms or _arms_of(here.source)
    if base.gamma0 is not None:
        raise OutsideAssumptions(
            f"Theorem 20 asks for its own gamma_t and for predictions inside K, and gamma0 is "
            f"{base.gamma0:g}; leave gamma0 out"
        )
    if n_arms is None:
        raise InvalidInput(
            "the bound of SquareCB needs the number of arms, which a problem may leave open; pass "
            "n_arms=, or the environment in place of its problem"
        )
    tuned = replace(here, lipschitz=_slope(here, base))
    gamma: Gamma = "anytime" if base.horizon is None else "fixed"
    return squarecb_regret(tuned, n_arms, base.regression, gamma, base.horizon, base.delta)


def _arms_of(problem: Any) -> int | None:
    """K as the problem states it or the first context of the environment shows it."""
    if not isinstance(problem, Environment):
        stated: int | None = problem.n_arms
        return stated
    world, rng = problem.init(stream(0, "world")), stream(0, "contexts")
    return arms(problem.context(world, 1, rng), problem.problem()).n_arms


def uniform_regret(environment: Any, objective: Concave, seed: int = 0) -> float:
    """f* - f(average expected reward) of a policy that draws arms uniformly, in the long run.

    In worlds with rankings: one that shows items in random order. Exact there and in a `Finite`
    world, measured over 20,000 rounds in others.

    >>> from fairwolfe.objectives import Minimum
    >>> round(uniform_regret(Finite.a2(), Minimum()), 6)
    0.05
    """
    without_constraints(objective)
    best = optimum(environment, objective, seed).value
    if isinstance(environment, Finite):
        means = environment.init(stream(seed, "world")).means
        average = np.array(environment.probabilities) @ means.mean(axis=1)
    elif isinstance(environment, RankingWorld):
        average = _shuffled(environment, seed)
    else:
        policy = FrankWolfe(objective, Uniform())
        return best - float(simulate(policy, environment, _ROUNDS, seed).value[-1])
    return best - objective.bind(environment.problem()).value(average)


def _shuffled(environment: RankingWorld, seed: int) -> Vector:
    """The average reward of random rankings: every item is in every slot equally often."""
    world = environment.init(stream(seed, "world"))
    n_users, m = len(world.shares), len(world.items)
    exposures = np.broadcast_to(world.weights.sum(axis=1), n_users)  # expected, of each user
    means = world.turned @ world.columns  # (rewards, users, items)
    values = np.clip(means, world.ranges[:, :1, None], world.ranges[:, 1:, None]).mean(axis=2)
    weights = world.shares * exposures
    return np.concatenate([np.full(m, weights.sum() / m), values @ weights])


def first_useful(
    bound: Callable[[int], float],
    regret: Any,
    objective: Concave | None = None,
    *,
    seed: int = 0,
    limit: int = 10**18,
) -> int | None:
    """The first T at which a bound is below a regret; None if no T up to `limit` is.

    Until then a policy that learns nothing satisfies it as well.

    Parameters
    ----------
    bound: the bound as a function of T
    regret: a number, or an environment: the `uniform_regret` in it for `objective`. Where drawing
        uniformly happens to be best, no bound is ever below it.

    The first hundred T are tried one by one; after them the bound is assumed to fall.

    >>> from fairwolfe.objectives import Minimum
    >>> world = Finite.a2()
    >>> policy = FrankWolfe(Minimum(), LinUCB())
    >>> first_useful(lambda T: of(policy, world, T, tight=True), world, Minimum())
    3505721
    """
    if isinstance(regret, Environment):
        if objective is None:
            raise InvalidInput("pass objective= with an environment: regret in which f?")
        regret = uniform_regret(regret, objective, seed)
    goal = float(regret)
    if not goal > 0.0:
        return None
    for t in range(1, min(limit, _SHORT) + 1):
        if bound(t) < goal:
            return t
    low = high = min(limit, _SHORT)
    while bound(high) >= goal:
        if high >= limit:
            return None
        low, high = high, min(2 * high, limit)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) < goal else (middle, high)
    return high
