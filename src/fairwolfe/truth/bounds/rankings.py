"""FW-LinUCBRank: the theorem for rankings, as formulas."""

from __future__ import annotations

import math
from typing import Any, Unpack

import numpy as np

from fairwolfe.core.problem import positive
from fairwolfe.errors import OutsideAssumptions
from fairwolfe.oracles.linear_state import noise_scales, radius
from fairwolfe.truth.bounds.assumptions import (
    Given,
    Setting,
    T,
    Times,
    linear,
    parameter_norm,
    probability,
    setting,
)
from fairwolfe.truth.bounds.reduction import AnySmoothing, reduced

__all__ = ["linucb_rank", "linucb_rank_regret", "linucb_rank_scalar"]


def linucb_rank_scalar(
    *, ridge: float = 1.0, base_delta: float = 0.05, **given: Unpack[Given[T]]
) -> T:
    """R^scal_T of LinUCBRank with probability 1 - delta', k slots, D_X the norm of an item.

        2 L alpha sqrt(T k) (sqrt(2 ln(3/delta')) + sqrt(2 d ln(1 + T k D_X^2/(ridge d))))
        + L D_K sqrt(2 T ln(3/delta')),
        alpha = 1/2 sqrt(2 ln(3/delta') + d ln(1 + T k D_X^2/(ridge d))) + sqrt(ridge) D_theta.

    The noise 1/2 is that of clicks: half of what one item can earn, or the problem's `noise`. For
    ridge >= k D_X^2. With less, u = k D_X^2/ridge > 1, the ellipsoid still holds; the first
    root is then multiplied by sqrt(u), and the 2 in the second is u/ln(1 + u). Tight: both of these
    for every ridge, the interval form of Azuma's inequality, and L_u, the Lipschitz constant in the
    user-side reward alone, for the first L.

    Reference: Lemmas 26 and 27 of the paper (which print V_0 for its determinant and drop D_K from
    one proof).
    """
    here = setting(**given)
    return here.answer(linucb_rank_regret(here, ridge, base_delta))


def linucb_rank_regret(here: Setting[Any], ridge: float, base_delta: float) -> Times:
    """`linucb_rank_scalar` in a setting."""
    t, failure = here.t, probability("base_delta", base_delta) / 3.0
    problem = here.problem
    if problem.n_items is None or problem.n_slots is None or len(problem.rewards) != 1:
        raise OutsideAssumptions(
            "Theorem 5 is about rankings with one user-side reward, and the problem has "
            f"{problem.n_items or 'no'} items and {len(problem.rewards)} rewards"
        )
    linear(here.source, "Assumption 3")
    norm = parameter_norm(problem, "Assumption 3")
    ridge, k = positive("ridge", ridge), problem.n_slots
    d, u = problem.dimension, k * problem.feature_norm**2 / ridge
    log_det = d * np.log1p(t * u / d)
    (noise,) = noise_scales(problem, problem.slot_ranges)
    alpha = radius(noise, math.sqrt(ridge) * norm, 2.0 * math.log(1.0 / failure), log_det)
    factor, spread = (u / math.log1p(u), math.sqrt(u)) if here.tight or u > 1.0 else (2.0, 1.0)
    shown = here.azuma(spread, failure) + np.sqrt(factor * t * log_det)
    slope = user_slope(here) if here.tight else here.lipschitz
    pseudo: Times = 2.0 * slope * alpha * math.sqrt(k) * shown
    return pseudo + here.azuma(here.reach, failure)


def linucb_rank(
    *,
    ridge: float = 1.0,
    smoothing: AnySmoothing = None,
    delta: float = 0.05,
    base_delta: float = 0.05,
    **given: Unpack[Given[T]],
) -> T:
    """R_T of FW-LinUCBRank, with probability 1 - delta - delta': scalar regret in `reduction`.

    Tight: the smoothing counts for the items alone, where the user side is linear.

    Reference: Theorem 5 of the paper (whose last display lacks 1/T).

    >>> from fairwolfe.objectives import GiniEquality, TwoSided
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.ranking(n_items=3, n_slots=1, n_features=2, parameter_norm=0.92)
    >>> f = TwoSided(GiniEquality(), beta=3.0)
    >>> round(linucb_rank(problem=problem, objective=f, horizon=100_000, tight=True), 3)
    0.231
    """
    here = setting(**given)
    regret = linucb_rank_regret(here, ridge, base_delta)
    return here.answer(reduced(here, smoothing, regret, delta))


def user_slope(here: Setting[Any]) -> float:
    """L_u: how fast f can change with the user-side rewards, leaf by leaf."""
    total, items = 0.0, here.problem.n_items or 0
    for scale, leaf, matrix in here.objective.split(here.n):
        users = matrix.toarray()[:, items:]
        total += scale * leaf.lipschitz(users.shape[0]) * float(np.linalg.norm(users, 2))
    return min(total, here.lipschitz)
