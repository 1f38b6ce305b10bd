"""FW-LinUCBRank: the theorem for rankings, as formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairwolfe.errors import OutsideAssumptions
from fairwolfe.objectives import Concave
from fairwolfe.objectives.concave import positive
from fairwolfe.oracles.linear_state import noise_scales, radius
from fairwolfe.smoothing import Identity, Moreau, Randomized
from fairwolfe.truth.bounds.assumptions import (
    Setting,
    T,
    Times,
    azuma_sum,
    like,
    linear,
    parameter_norm,
    probability,
    setting,
    times,
)
from fairwolfe.truth.bounds.reduction import reduction

__all__ = ["linucb_rank", "linucb_rank_scalar"]


def linucb_rank_scalar(
    *,
    problem: Any,
    objective: Concave,
    horizon: T,
    ridge: float = 1.0,
    base_delta: float = 0.05,
    tight: bool = False,
    lipschitz: float | None = None,
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
    here = setting(problem, objective, lipschitz)
    t, failure = times(horizon), probability("base_delta", base_delta) / 3.0
    found = here.problem
    if found.n_items is None or found.n_slots is None or len(found.rewards) != 1:
        raise OutsideAssumptions(
            "Theorem 5 is about rankings with one user-side reward, and the problem has "
            f"{found.n_items or 'no'} items and {len(found.rewards)} rewards"
        )
    linear(problem, "Assumption 3")
    norm = parameter_norm(found, "Assumption 3")
    ridge, k = positive("ridge", ridge), found.n_slots
    d, u = found.dimension, k * found.feature_norm**2 / ridge
    log_det = d * np.log1p(t * u / d)
    (noise,) = noise_scales(found, found.slot_ranges)
    alpha = radius.function(noise, math.sqrt(ridge) * norm, 2.0 * math.log(1.0 / failure), log_det)
    factor, spread = (u / math.log1p(u), math.sqrt(u)) if tight or u > 1.0 else (2.0, 1.0)
    shown = azuma_sum(spread, t, failure, tight) + np.sqrt(factor * t * log_det)
    slope = user_slope(here) if tight else here.lipschitz
    pseudo: Times = 2.0 * slope * alpha * math.sqrt(k) * shown
    return like(horizon, pseudo + azuma_sum(here.reach, t, failure, tight))


def linucb_rank(
    *,
    problem: Any,
    objective: Concave,
    horizon: T,
    ridge: float = 1.0,
    smoothing: Identity | Moreau | Randomized | None = None,
    delta: float = 0.05,
    base_delta: float = 0.05,
    tight: bool = False,
    lipschitz: float | None = None,
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
    scalar = linucb_rank_scalar(
        problem=problem,
        objective=objective,
        horizon=horizon,
        ridge=ridge,
        base_delta=base_delta,
        tight=tight,
        lipschitz=lipschitz,
    )
    return reduction(
        problem=problem,
        objective=objective,
        horizon=horizon,
        smoothing=smoothing,
        scalar_regret=scalar,
        delta=delta,
        tight=tight,
        lipschitz=lipschitz,
    )


def user_slope(here: Setting) -> float:
    """L_u: how fast f can change with the user-side rewards, leaf by leaf."""
    total, items = 0.0, here.problem.n_items or 0
    for scale, leaf, matrix in here.objective.split(here.n):
        users = matrix.toarray()[:, items:]
        total += scale * leaf.lipschitz(users.shape[0]) * float(np.linalg.norm(users, 2))
    return min(total, here.lipschitz)
