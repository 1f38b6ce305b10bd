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
from typing import Any, TypeAlias, Unpack

import numpy as np

from fairwolfe.errors import OutsideAssumptions
from fairwolfe.smoothing import Identity, Moreau, Randomized, default_smoothing
from fairwolfe.truth.bounds.assumptions import (
    Given,
    Regret,
    Setting,
    T,
    Times,
    checked_number,
    probability,
    setting,
)

__all__ = [
    "AnySmoothing",
    "azuma",
    "fixed_smoothing",
    "moreau",
    "nonsmooth",
    "randomized",
    "reduced",
    "reduction",
    "smooth",
]

AnySmoothing: TypeAlias = Identity | Moreau | Randomized | None
"""What FrankWolfe may be given; None is its default for the objective."""


def azuma(*, delta: float = 0.05, **given: Unpack[Given[T]]) -> T:
    """L D_K sqrt(2 T ln(1/delta)), on sum_t (max_s <g_t, s> - max_a <g_t, mu(x_t) a>).

    What the randomness of the contexts costs. Tight: L D_K sqrt(T ln(1/delta)/2), since each term
    has an interval of length L D_K to move in. Not divided by T.

    Reference: Lemma 1, Eq. (5), and Lemma 13 of the paper.
    """
    here = setting(**given)
    return here.answer(here.azuma(here.reach, probability("delta", delta)))


def smooth(
    *,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    smoothness: float | None = None,
    **given: Unpack[Given[T]],
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
    here = setting(**given)
    return here.answer(_smooth(here, _curve(here, smoothness), scalar_regret, delta))


def nonsmooth(
    *,
    beta_0: float,
    m_1: float,
    m_2: float,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    **given: Unpack[Given[T]],
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
    here = setting(**given)
    width = checked_number("beta_0", beta_0)
    pieces = (checked_number("m_1", m_1), checked_number("m_2", m_2))
    return here.answer(_nonsmooth(here, width, *pieces, scalar_regret, delta))


def moreau(
    *,
    beta0: float | None = None,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    **given: Unpack[Given[T]],
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
    here = setting(**given)
    return here.answer(reduced(here, Moreau(beta0), scalar_regret, delta))


def randomized(
    *,
    radius: float | None = None,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    **given: Unpack[Given[T]],
) -> T:
    """R^scal_T/T + (sqrt(D) L D_K^2/s + 4 L s + L D_K sqrt(2 ln(1/delta)))/sqrt(T), s the radius.

    5 D^(1/4) L D_K for the best radius s = D^(1/4) D_K, the default. Tight: 2 L s instead of
    4 L s, and the interval form of Azuma's inequality.

    It is about the exact gradients of the smoothed functions. The policies of this library follow
    a running average of sampled ones, for which no such bound is known: `of` raises.

    Reference: Lemma 18 and Theorem 12 of the paper, with beta_0 = s/(L sqrt(D)), M_1 = L s/2,
    M_2 = L s (it prints beta_0 = sqrt(D) D_K/L and M_1 = 2 L s).

    >>> from fairwolfe.objectives import Minimum
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.arms(1, {"clicks": (0, 1)})
    >>> randomized(problem=problem, objective=Minimum(), horizon=100, delta=1)
    0.5
    """
    here = setting(**given)
    return here.answer(reduced(here, Randomized(radius), scalar_regret, delta))


def fixed_smoothing(
    *,
    smoothing: Moreau | Randomized,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    **given: Unpack[Given[T]],
) -> T:
    """The bound for smooth f at the width of the smoothing's horizon H, plus twice its error.

    f_H is C-smooth with C = sqrt(H + 1)/beta_0, and |f_H - f| <= M_2/sqrt(H + 1): R_T is at most
    (R^scal_T + L D_K sqrt(2 T ln(1/delta)) + C/2 D_K^2 ln(e T))/T + 2 M_2/sqrt(H + 1), for every
    T. Worse than a width that shrinks by a factor of order ln T, and useless far from T = H.
    Tight: M_2 once, as in `nonsmooth`.

    Reference: Remark 3 of the paper, on the smoothing of Agrawal and Devanur (2014).
    """
    here = setting(**given)
    if smoothing.horizon is None:
        raise OutsideAssumptions(
            f"{smoothing} has no horizon: its width shrinks, so the bound is another; see moreau "
            "and randomized"
        )
    return here.answer(reduced(here, smoothing, scalar_regret, delta))


def reduction(
    *,
    smoothing: AnySmoothing = None,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    **given: Unpack[Given[T]],
) -> T:
    """The bound that belongs to a smoothing: one of those above; None is FrankWolfe's default."""
    here = setting(**given)
    return here.answer(reduced(here, smoothing, scalar_regret, delta))


def reduced(
    here: Setting[Any], smoothing: AnySmoothing, scalar_regret: Regret, delta: float
) -> Times:
    """`reduction` in a setting."""
    chosen = smoothing or default_smoothing(here.objective, here.n)
    if isinstance(chosen, Identity):
        return _smooth(here, _curve(here), scalar_regret, delta)
    if isinstance(chosen, Moreau):
        width, m_1, m_2 = _moreau_constants(here, replace(chosen, horizon=None))
    else:
        width, m_1, m_2 = _randomized_constants(here, replace(chosen, horizon=None))
    if chosen.horizon is None:
        return _nonsmooth(here, width, m_1, m_2, scalar_regret, delta)
    root = math.sqrt(chosen.horizon + 1.0)
    left = _smooth(here, root / width, scalar_regret, delta)
    return left + (1.0 if here.tight else 2.0) * m_2 / root


def _curve(here: Setting[Any], stated: float | None = None) -> float:
    """Assumption 2: C, the Lipschitz constant of the gradient of f."""
    if stated is not None:
        return checked_number("smoothness", stated)
    curve = here.objective.smoothness(here.n)
    if not math.isfinite(curve):
        raise OutsideAssumptions(
            f"Assumption 2 asks for a Lipschitz gradient, and {here.objective} states no constant "
            "for it; smooth it, or pass smoothness= if you know one"
        )
    return curve


def _smooth(here: Setting[Any], curve: float, scalar_regret: Regret, delta: float) -> Times:
    steps = here.diameter**2 * np.log(math.e * here.t) + here.start
    noise = here.azuma(here.reach, probability("delta", delta))
    return (scalar_regret + noise + 0.5 * curve * steps) / here.t


def _nonsmooth(
    here: Setting[Any],
    beta_0: float,
    m_1: float,
    m_2: float,
    scalar_regret: Regret,
    delta: float,
) -> Times:
    curve = math.inf if beta_0 == 0.0 else 1.0 / beta_0
    root = np.sqrt(here.t)
    steps = here.diameter**2 * root + 0.5 * here.start
    errors = (2.0 * m_1 + m_2 if here.tight else 4.0 * m_1 + 2.0 * m_2) * root
    noise = here.azuma(here.reach, probability("delta", delta))
    return (scalar_regret + noise + curve * steps + errors) / here.t


def _moreau_constants(here: Setting[Any], smoothing: Moreau) -> tuple[float, float, float]:
    """beta_0, M_1, M_2; not tight: as printed, M_1 = M_2, and linear leaves count."""
    slopes = 0.0
    for scale, leaf, size in here.objective.leaves(here.n):
        bent = bool(leaf.curvature(size).any())
        if not leaf.has_prox:
            raise OutsideAssumptions(
                f"Assumption 5 asks for approximations of known smoothness, and {leaf} has no "
                "proximal map: Moreau smoothing leaves it as it is"
            )
        if bent or not here.tight:
            slopes += (scale * leaf.lipschitz(size)) ** 2
    if not math.isfinite(slopes):
        raise OutsideAssumptions(
            f"Assumption 5 asks for approximations that come as near as M_2/sqrt(t), and "
            f"{here.objective} is nowhere near its envelope where its slope is infinite; give it "
            "an offset > 0"
        )
    width = smoothing.bind(here.problem, here.objective)
    m_2 = 0.5 * slopes * width.step(here.objective, here.n, 0)
    return width.beta_0(here.objective, here.n), 0.5 * m_2 if here.tight else m_2, m_2


def _randomized_constants(here: Setting[Any], smoothing: Randomized) -> tuple[float, float, float]:
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
