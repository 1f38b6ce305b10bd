"""FW-LinUCB and FW-SquareCB: scalar regrets of the bases, and the regrets they lead to."""

from __future__ import annotations

import math
from typing import Any, Literal, Unpack

import numpy as np

from fairwolfe.bandits.optimism import Exploration, exploration_number
from fairwolfe.core.problem import Problem, positive, whole_number
from fairwolfe.core.protocols import Oracle
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.oracles import Ridge
from fairwolfe.oracles.linear_state import noise_scales, radius
from fairwolfe.truth.bounds.assumptions import (
    Asked,
    Given,
    Setting,
    T,
    Times,
    parameter_norm,
    probability,
    setting,
    times,
)
from fairwolfe.truth.bounds.reduction import AnySmoothing, reduced

__all__ = [
    "linucb",
    "linucb_regret",
    "linucb_scalar",
    "squarecb",
    "squarecb_regret",
    "squarecb_scalar",
    "table_linucb",
    "table_squarecb",
]

Model = Literal["shared", "extended"]
Gamma = Literal["anytime", "fixed"]


def linucb_scalar(
    *,
    model: Model = "shared",
    ridge: float = 1.0,
    base_delta: float = 0.05,
    exploration: Exploration = 1.0,
    **given: Unpack[Given[T]],
) -> T:
    """R^scal_T of LinUCB with probability 1 - delta', delta' = `base_delta`.

    Extended, with d' = d D features of norm at most L D_X:

        4 sqrt(T d' ln(1 + T L^2 D_X^2/(ridge d'))) alpha + L D_K sqrt(2 T ln(2/delta')),
        alpha = L D_K/2 sqrt(2 ln(2/delta') + d' ln(1 + T L^2 D_X^2/(ridge d')))
                + sqrt(ridge) D_theta,

    D_theta the Frobenius norm, sqrt(D) times the problem's `parameter_norm`. Shared, one d x d
    design for D rewards of ranges B_i:

        4 L |alpha| sqrt(T d ln(1 + T D_X^2/(ridge d))) + L D_K sqrt(2 T ln(2/delta')),
        alpha_i = B_i/2 sqrt(2 ln(2 D/delta') + d ln(1 + T D_X^2/(ridge d)))
                  + sqrt(ridge) parameter_norm.

    Tight: 2 sqrt(2) for 4, and the interval form of Azuma's inequality. The problem's `noise`
    replaces L D_K/2 and each B_i/2. More `exploration` than 1 costs (1 + exploration)/2
    times as much; with less, nothing is proved.

    Reference: Theorem 19 of the paper, under Assumption 6. Printed are ln(1 + T D/d') without the
    square and without the ridge in the first logarithm, and a last term without sqrt(T). The shared
    form is that of the experiments; its proof is the same with one ellipsoid for each reward.
    """
    here = setting(**given)
    return here.answer(linucb_regret(here, model, ridge, base_delta, exploration))


def linucb_regret(
    here: Setting[Any], model: Model, ridge: float, base_delta: float, exploration: Exploration
) -> Times:
    """`linucb_scalar` in a setting."""
    pseudo = _pseudo_regret(here, model, ridge, base_delta, exploration)
    return pseudo + here.azuma(here.reach, base_delta / 2.0)


def _pseudo_regret(
    here: Setting[Any], model: Model, ridge: float, base_delta: float, exploration: Exploration
) -> Times:
    """The sum of max_a <g, mu a> - <g, mu a_t>, with probability 1 - delta'/2."""
    problem, slope, t = here.problem, here.lipschitz, here.t
    base_delta = probability("base_delta", base_delta)
    norm = parameter_norm(_arms(problem), "Assumption 6")
    ridge = positive("ridge", ridge)
    share = exploration_number(exploration)
    if not share >= 1.0:
        raise OutsideAssumptions(
            f"Theorem 19 asks for the whole confidence radius, and exploration is {exploration!r}; "
            "optimism is proved for 1 or more"
        )
    # One ellipsoid for each row of noise, norms and gaps; a direction weighs them by `weight`.
    if model == "shared":
        d, features, weight = _dimension(problem), problem.feature_norm, slope
        gaps, norms = problem.high - problem.low, np.full(here.n, norm)
        noise = noise_scales(problem)
    elif model == "extended":
        d, features, weight = _dimension(problem) * here.n, slope * problem.feature_norm, 1.0
        gaps, norms = np.array([here.reach]), np.array([math.sqrt(here.n) * norm])
        noise = 0.5 * gaps if problem.noise is None else np.array([problem.noise])
    else:
        raise InvalidInput(f"model is {model!r}; give 'shared' or 'extended'")
    log_det = d * np.log1p(t * features**2 / (ridge * d))
    level, every = 2.0 * math.log(2.0 * len(gaps) / base_delta), np.ones_like(t)
    prior = np.multiply.outer(math.sqrt(ridge) * norms, every)
    alphas = radius(np.multiply.outer(noise, every), prior, level, log_det)
    # A step costs at most (1 + exploration) alpha times the width, and at most the gap: together
    # the larger of both times min(width, 1), whose squares sum to at most 2 ln(det V/det V_0).
    steps = np.maximum((1.0 + share) * alphas, np.multiply.outer(gaps, every))
    widths = np.sqrt((2.0 if here.tight else 4.0) * t * log_det)
    total: Times = weight * np.sqrt((steps**2).sum(axis=0)) * widths
    return total


def squarecb_scalar(
    *,
    n_arms: int,
    oracle: Any = None,
    gamma: Gamma = "anytime",
    planned: int | None = None,
    base_delta: float = 0.05,
    **given: Unpack[Given[T]],
) -> T:
    """R^scal_T of SquareCB over K = `n_arms` arms, with probability 1 - delta'.

    With the theorem's gamma_t, and R(T) the regret bound of the `oracle` (`Ridge()`):

        4 L sqrt(K T (R(T) + 8 D_K^2 ln(4 T^2/delta'))) + L D_K sqrt(2 T ln(2/delta')).

    With the gamma that is fixed for a known T, R' = 2 L^2 R(T) + 16 L^2 D_K^2 ln(2/delta'):

        sqrt(2 K T R') + L D_K sqrt(2 T ln(2/delta')),

    or 2 K T/gamma + gamma R'/4 in its place where gamma was fixed for another number of rounds,
    `planned`. Tight: the interval form of Azuma's inequality.

    Reference: Theorem 20 of the paper, under Assumption 7; Lemmas 21 to 23 for the fixed gamma.
    """
    here = setting(**given)
    return here.answer(squarecb_regret(here, n_arms, oracle, gamma, planned, base_delta))


def squarecb_regret(
    here: Setting[Any],
    n_arms: int,
    oracle: Any,
    gamma: Gamma,
    planned: int | None,
    base_delta: float,
) -> Times:
    """`squarecb_scalar` in a setting."""
    t, base_delta = here.t, probability("base_delta", base_delta)
    n_arms = whole_number("n_arms", n_arms)
    slope, diameter = here.lipschitz, here.problem.diameter
    regret = _oracle_regret(here.problem, oracle, t)
    if gamma == "anytime":
        missing = regret + 8.0 * diameter**2 * np.log(4.0 * t**2 / base_delta)
        pseudo = 4.0 * slope * np.sqrt(n_arms * t * missing)
    elif gamma == "fixed":
        # All for L = 1: gamma is then divided by L, its squared errors multiplied by L^2.
        noise = 16.0 * diameter**2 * math.log(2.0 / base_delta)
        h = t if planned is None else times(planned)
        rate = np.sqrt(8.0 * n_arms * h / (2.0 * _oracle_regret(here.problem, oracle, h) + noise))
        pseudo = slope * (2.0 * n_arms * t / rate + rate * (2.0 * regret + noise) / 4.0)
    else:
        raise InvalidInput(f"gamma is {gamma!r}; give 'anytime' or 'fixed'")
    return pseudo + here.azuma(here.reach, base_delta / 2.0)


def linucb(
    *,
    model: Model = "shared",
    ridge: float = 1.0,
    smoothing: AnySmoothing = None,
    delta: float = 0.05,
    base_delta: float = 0.05,
    exploration: Exploration = 1.0,
    **given: Unpack[Given[T]],
) -> T:
    """R_T of FW-LinUCB, with probability 1 - delta - delta': `linucb_scalar` in `reduction`.

    >>> from fairwolfe.environments import Finite
    >>> from fairwolfe.objectives import Minimum
    >>> round(linucb(problem=Finite.a2(), objective=Minimum(), horizon=100_000, tight=True), 3)
    0.242
    """
    here = setting(**given)
    regret = linucb_regret(here, model, ridge, base_delta, exploration)
    return here.answer(reduced(here, smoothing, regret, delta))


def squarecb(
    *,
    n_arms: int,
    oracle: Any = None,
    gamma: Gamma = "anytime",
    planned: int | None = None,
    smoothing: AnySmoothing = None,
    delta: float = 0.05,
    base_delta: float = 0.05,
    **given: Unpack[Given[T]],
) -> T:
    """R_T of FW-SquareCB, with probability 1 - delta - delta': `squarecb_scalar` in `reduction`.

    Eq. (84) of the paper is this for a smooth f with delta/3 and 2 delta/3 (it prints 12 for the 6
    that this makes of the 4 in the first logarithm).

    >>> from fairwolfe.environments import Finite
    >>> from fairwolfe.objectives import Minimum
    >>> given = dict(problem=Finite.a2(), objective=Minimum(), horizon=100_000, n_arms=2)
    >>> round(squarecb(**given, gamma="fixed", tight=True), 3)
    0.112
    """
    here = setting(**given)
    regret = squarecb_regret(here, n_arms, oracle, gamma, planned, base_delta)
    return here.answer(reduced(here, smoothing, regret, delta))


def table_linucb(*, delta: float = 0.05, **given: Unpack[Asked[T]]) -> T:
    """L D_K d D ln((1 + T L^2 D_X^2/(d D))/delta)/sqrt(T): an order of magnitude, no bound.

    Constants, the ridge and D_theta are left out.

    Reference: Table 1 of the paper, first row (which has L D_K for the squared norm L^2 D_X^2 of
    the extended features).
    """
    here = setting(**given, tight=False)
    t, size = here.t, _dimension(_arms(here.problem)) * here.n
    features = (here.lipschitz * here.problem.feature_norm) ** 2
    log = np.log1p(t * features / size) + math.log(1.0 / probability("delta", delta))
    return here.answer(here.reach * size * log / np.sqrt(t))


def table_squarecb(
    *, n_arms: int, oracle: Any = None, delta: float = 0.05, **given: Unpack[Asked[T]]
) -> T:
    """L sqrt(K (R(T) + D_K^2 ln(T/delta)))/sqrt(T): an order of magnitude, no bound.

    Reference: Table 1 of the paper, second row; Eq. (84) has the constants.
    """
    here = setting(**given, tight=False)
    t = here.t
    log = np.log(t / probability("delta", delta))
    inner = _oracle_regret(here.problem, oracle, t) + here.problem.diameter**2 * log
    return here.answer(here.lipschitz * np.sqrt(whole_number("n_arms", n_arms) * inner / t))


def _oracle_regret(problem: Problem, oracle: Any, t: Times) -> Times:
    """R(t) of the oracle."""
    regression = Ridge() if oracle is None else oracle
    if not isinstance(regression, Oracle):
        raise OutsideAssumptions(
            f"Assumption 7 asks for an oracle with a regret bound, and {regression} has none; use "
            "Ridge() or OnlineGradient()"
        )
    parameter_norm(_arms(problem), "Assumption 7 (realisability)")
    total: Times = regression.regret_bound(problem).at(t)
    return total


def _dimension(problem: Problem) -> int:
    """d, with a block for each arm where arms have their own parameters."""
    return problem.dimension * (problem.n_arms or 1)


def _arms(problem: Problem) -> Problem:
    if problem.n_items is not None:
        raise OutsideAssumptions(
            "Theorems 19 and 20 are about one arm chosen in each round, and the problem is a "
            "ranking; see linucb_rank"
        )
    return problem
