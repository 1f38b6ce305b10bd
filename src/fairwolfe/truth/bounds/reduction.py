"""From the scalar regret of a base to the regret R_T of the concave problem.

Every function takes `scalar_regret`, a bound on the base's R^scal_T (0: only what the reduction
itself costs), and returns a bound on R_T = f* - f(average reward). It holds with probability at
least 1 - delta, less what the scalar one may fail. `delta=1` leaves out the randomness of the
contexts: with sum_t max_s <g_t, s - r_t> as scalar regret the inequality then holds for every run.

`lipschitz` replaces the constant L that the objective states for itself, where you know a smaller
one that holds for f and its approximations.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from fairwolfe.errors import OutsideAssumptions
from fairwolfe.objectives import Concave
from fairwolfe.smoothing import Identity, Moreau, Randomized, default_smoothing
from fairwolfe.truth.bounds.assumptions import (
    Regret,
    Setting,
    T,
    Times,
    azuma_sum,
    checked_number,
    like,
    probability,
    setting,
    times,
)

__all__ = ["azuma", "fixed_smoothing", "moreau", "nonsmooth", "randomized", "reduction", "smooth"]


def azuma(
    *,
    problem: Any,
    objective: Concave,
    horizon: T,
    delta: float = 0.05,
    tight: bool = False,
    lipschitz: float | None = None,
) -> T:
    """L D_K sqrt(2 T ln(1/delta)), on sum_t (max_s <g_t, s> - max_a <g_t, mu(x_t) a>).

    What the randomness of the contexts costs. Tight: L D_K sqrt(T ln(1/delta)/2), since each term
    has an interval of length L D_K to move in. Not divided by T.

    Reference: Lemma 1, Eq. (5), and Lemma 13 of the paper.
    """
    here = setting(problem, objective, lipschitz)
    t = times(horizon)
    return like(horizon, azuma_sum(here.reach, t, probability("delta", delta), tight))


def smooth(
    *,
    problem: Any,
    objective: Concave,
    horizon: T,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    tight: bool = False,
    lipschitz: float | None = None,
    smoothness: float | None = None,
) -> T:
    """(R^scal_T + L D_K sqrt(2 T ln(1/delta)) + C/2 D_K^2 ln(e T))/T, for a C-smooth f.

    `smoothness` replaces the C that the objective states for itself. Tight: the interval form of
    Azuma's inequality, and D_K of the coordinates in which f is not linear. Where K does not hold
    0, at which averages start, the first step is counted at its length.

    Reference: Theorem 2 and Theorem 11 of the paper, under Assumption 2.

    >>> from fairwolfe.objectives import Linear
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.arms(1, {"clicks": (0, 1)})
    >>> round(smooth(problem=problem, objective=Linear([1.0]), horizon=10_000), 4)
    0.0245
    """
    here = setting(problem, objective, lipschitz)
    curve = here.objective.smoothness(here.n)
    if smoothness is not None:
        curve = checked_number("smoothness", smoothness)
    if not math.isfinite(curve):
        raise OutsideAssumptions(
            f"Assumption 2 asks for a Lipschitz gradient, and {objective} states no constant for "
            "it; smooth it, or pass smoothness= if you know one"
        )
    t = times(horizon)
    return like(horizon, _smooth(here, t, curve, scalar_regret, probability("delta", delta), tight))


def nonsmooth(
    *,
    problem: Any,
    objective: Concave,
    horizon: T,
    beta_0: float,
    m_1: float,
    m_2: float,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    tight: bool = False,
    lipschitz: float | None = None,
) -> T:
    """R^scal_T/T + (D_K^2/beta_0 + 4 M_1 + 2 M_2 + L D_K sqrt(2 ln(1/delta)))/sqrt(T).

    For approximations f_t that are sqrt(t + 1)/beta_0-smooth, with |f_t - f_(t-1)| <= M_1/t^(3/2)
    and |f_t - f| <= M_2/sqrt(t). Tight: 2 M_1 + M_2, since approximations that only fall with t and
    stay above f, or only rise and stay below it, err on one side; the interval form of Azuma's
    inequality; and D_K of the coordinates in which f and its approximations are not linear.

    Reference: Theorem 12 of the paper, under Assumption 5.

    >>> from fairwolfe.objectives import Minimum
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.arms(1, {"clicks": (0, 1)})
    >>> nonsmooth(
    ...     problem=problem, objective=Minimum(), horizon=100, beta_0=1, m_1=0, m_2=0, delta=1
    ... )
    0.1
    """
    here = setting(problem, objective, lipschitz)
    width = checked_number("beta_0", beta_0)
    pieces = (checked_number("m_1", m_1), checked_number("m_2", m_2))
    t, delta = times(horizon), probability("delta", delta)
    return like(horizon, _nonsmooth(here, t, width, *pieces, scalar_regret, delta, tight))


def moreau(
    *,
    problem: Any,
    objective: Concave,
    horizon: T,
    beta0: float | None = None,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    tight: bool = False,
    lipschitz: float | None = None,
) -> T:
    """R^scal_T/T + (D_K^2/beta0 + 3 L^2 beta0 + L D_K sqrt(2 ln(1/delta)))/sqrt(T).

    For one function of all rewards; 4 L D_K for beta0 = D_K/L. Sums and maps, which are smoothed
    leaf by leaf, have k D_K^2/beta0 + 3 S beta0, with k their largest curvature and S the sum of
    the squared Lipschitz constants of the leaves. Tight: D_K^2/beta0 + L^2 beta0, that is
    2 M_1 + M_2 with M_1 = L^2 beta0/4 and M_2 = L^2 beta0/2; linear leaves, whose envelopes differ
    by a constant, do not count; the interval form of Azuma's inequality.

    `beta0=None` is the width that `Moreau()` takes for the problem. f must be Lipschitz beyond K,
    as far as proximal points go: all leaves here are.

    Reference: Theorem 3 of the paper (which asks for Assumption 1 alone and prints the probability
    1 - delta - delta'); Lemma 16 for M_1 and M_2.

    >>> from fairwolfe.objectives import Minimum
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.arms(1, {"clicks": (0, 1)})
    >>> moreau(problem=problem, objective=Minimum(), horizon=100, delta=1)
    0.4
    >>> moreau(problem=problem, objective=Minimum(), horizon=100, delta=1, tight=True)
    0.2
    """
    here = setting(problem, objective, lipschitz)
    width, m_1, m_2 = _moreau_constants(here, Moreau(beta0), tight)
    t, delta = times(horizon), probability("delta", delta)
    return like(horizon, _nonsmooth(here, t, width, m_1, m_2, scalar_regret, delta, tight))


def randomized(
    *,
    problem: Any,
    objective: Concave,
    horizon: T,
    radius: float | None = None,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    tight: bool = False,
    lipschitz: float | None = None,
) -> T:
    """R^scal_T/T + (sqrt(D) L D_K^2/s + 4 L s + L D_K sqrt(2 ln(1/delta)))/sqrt(T), s the radius.

    5 D^(1/4) L D_K for the best radius s = D^(1/4) D_K, the default. Tight: 2 L s instead of
    4 L s, and the interval form of Azuma's inequality.

    It is about the exact gradients of the smoothed functions. The policies of this library follow
    a running average of sampled ones, for which no such bound is known: `of` refuses them.

    Reference: Lemma 18 and Theorem 12 of the paper, with beta_0 = s/(L sqrt(D)), M_1 = L s/2,
    M_2 = L s (it prints beta_0 = sqrt(D) D_K/L and M_1 = 2 L s).

    >>> from fairwolfe.objectives import Minimum
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.arms(1, {"clicks": (0, 1)})
    >>> randomized(problem=problem, objective=Minimum(), horizon=100, delta=1)
    0.5
    """
    here = setting(problem, objective, lipschitz)
    width, m_1, m_2 = _randomized_constants(here, Randomized(radius))
    t, delta = times(horizon), probability("delta", delta)
    return like(horizon, _nonsmooth(here, t, width, m_1, m_2, scalar_regret, delta, tight))


def fixed_smoothing(
    *,
    problem: Any,
    objective: Concave,
    horizon: T,
    smoothing: Moreau | Randomized,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    tight: bool = False,
    lipschitz: float | None = None,
) -> T:
    """The bound for smooth f at the width of the smoothing's horizon H, plus twice its error.

    f_H is C-smooth with C = sqrt(H + 1)/beta_0, and |f_H - f| <= M_2/sqrt(H + 1): R_T is at most
    (R^scal_T + L D_K sqrt(2 T ln(1/delta)) + C/2 D_K^2 ln(e T))/T + 2 M_2/sqrt(H + 1), for every
    T. Worse than a width that shrinks by a factor of order ln T, and useless far from T = H.
    Tight: M_2 once, as in `nonsmooth`.

    Reference: Remark 3 of the paper, on the smoothing of Agrawal and Devanur (2014).
    """
    here = setting(problem, objective, lipschitz)
    t, delta = times(horizon), probability("delta", delta)
    return like(horizon, _fixed(here, t, smoothing, scalar_regret, delta, tight))


def reduction(
    *,
    problem: Any,
    objective: Concave,
    horizon: T,
    smoothing: Identity | Moreau | Randomized | None = None,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    tight: bool = False,
    lipschitz: float | None = None,
) -> T:
    """The bound that belongs to a smoothing: one of those above; None is FrankWolfe's default."""
    here = setting(problem, objective, lipschitz)
    chosen = smoothing or default_smoothing(here.objective, here.n)
    given: dict[str, Any] = {
        "problem": problem,
        "objective": objective,
        "scalar_regret": scalar_regret,
        "delta": delta,
        "tight": tight,
        "lipschitz": lipschitz,
    }
    if isinstance(chosen, Identity):
        return smooth(horizon=horizon, **given)
    if chosen.horizon is not None:
        return fixed_smoothing(horizon=horizon, smoothing=chosen, **given)
    if isinstance(chosen, Moreau):
        return moreau(horizon=horizon, beta0=chosen.beta0, **given)
    return randomized(horizon=horizon, radius=chosen.radius, **given)


def _smooth(
    here: Setting, t: Times, curve: float, scalar_regret: Regret, delta: float, tight: bool
) -> Times:
    steps = here.diameter(tight) ** 2 * np.log(math.e * t) + here.start
    return (scalar_regret + azuma_sum(here.reach, t, delta, tight) + 0.5 * curve * steps) / t


def _nonsmooth(
    here: Setting,
    t: Times,
    beta_0: float,
    m_1: float,
    m_2: float,
    scalar_regret: Regret,
    delta: float,
    tight: bool,
) -> Times:
    curve = math.inf if beta_0 == 0.0 else 1.0 / beta_0
    steps = here.diameter(tight) ** 2 * np.sqrt(t) + 0.5 * here.start
    errors = (2.0 * m_1 + m_2 if tight else 4.0 * m_1 + 2.0 * m_2) * np.sqrt(t)
    return (scalar_regret + azuma_sum(here.reach, t, delta, tight) + curve * steps + errors) / t


def _fixed(
    here: Setting,
    t: Times,
    smoothing: Moreau | Randomized,
    scalar_regret: Regret,
    delta: float,
    tight: bool,
) -> Times:
    if smoothing.horizon is None:
        raise OutsideAssumptions(
            f"{smoothing} has no horizon: its width shrinks, so the bound is another; see moreau "
            "and randomized"
        )
    free = replace(smoothing, horizon=None)
    if isinstance(free, Moreau):
        width, _, m_2 = _moreau_constants(here, free, tight)
    else:
        width, _, m_2 = _randomized_constants(here, free)
    root = math.sqrt(smoothing.horizon + 1.0)
    left = _smooth(here, t, root / width, scalar_regret, delta, tight)
    return left + (1.0 if tight else 2.0) * m_2 / root


def _moreau_constants(here: Setting, smoothing: Moreau, tight: bool) -> tuple[float, float, float]:
    """beta_0, M_1, M_2; not tight: as printed, M_1 = M_2, and linear leaves count."""
    slopes = 0.0
    for scale, leaf, size in here.objective.leaves(here.n):
        bent = bool(leaf.curvature(size).any())
        if not leaf.has_prox:
            raise OutsideAssumptions(
                f"Assumption 5 asks for approximations of known smoothness, and {leaf} has no "
                "proximal map: Moreau smoothing leaves it as it is"
            )
        if bent or not tight:
            slopes += (scale * leaf.lipschitz(size)) ** 2
    if not math.isfinite(slopes):
        raise OutsideAssumptions(
            f"Assumption 5 asks for approximations that come as near as M_2/sqrt(t), and "
            f"{here.objective} is nowhere near its envelope where its slope is infinite; give it "
            "an offset > 0"
        )
    width = smoothing.bind(here.problem, here.objective)
    m_2 = 0.5 * slopes * width.step(here.objective, here.n, 0)
    return width.beta_0(here.objective, here.n), 0.5 * m_2 if tight else m_2, m_2


def _randomized_constants(here: Setting, smoothing: Randomized) -> tuple[float, float, float]:
    """beta_0, M_1, M_2."""
    if not here.objective.everywhere:
        raise OutsideAssumptions(
            f"randomised smoothing asks for an f that is Lipschitz on all of R^D, and "
            f"{here.objective} is not finite everywhere; use Moreau()"
        )
    radius = smoothing.bind(here.problem, here.objective).width(here.n, 0)
    slope = here.lipschitz
    beta_0 = radius / (slope * math.sqrt(here.n)) if slope > 0.0 else math.inf
    return beta_0, 0.5 * slope * radius, slope * radius
