"""The paper's regret bounds as numbers, as corrected, for a problem, an objective and a horizon.

`of(policy, problem, horizon)` chooses the theorem for a policy. The rest are the theorems and
lemmas themselves: keyword arguments in, a bound on R_T out (the ``..._scalar`` ones: on the scalar
regret, not divided by T). All of them take, by keyword:

- `problem`: a Problem, or an environment, which also declares whether its rewards are bounded;
- `objective`: f;
- `horizon`: T, or an array of them, which gives an array;
- `tight=True`: the sharpest constants that the same proofs allow (not for orders of magnitude);
- `lipschitz`: a Lipschitz constant of f that you know, in place of the objective's own.

Where an assumption fails, OutsideAssumptions names it.

The bounds are 50 to 500 times what is measured in a run, and are useless for large worlds before
very many rounds: `first_useful` gives the first T at which a bound beats drawing arms uniformly.

>>> import numpy as np
>>> from fairwolfe.bandits import LinUCB
>>> from fairwolfe.environments import Finite
>>> from fairwolfe.objectives import Minimum
>>> from fairwolfe.reduction import FrankWolfe
>>> policy, world = FrankWolfe(Minimum(), LinUCB(exploration="theorem")), Finite.a2()
>>> of(policy, world, np.array([1e4, 1e5, 1e6]), tight=True).round(3).tolist()
[0.649, 0.242, 0.088]
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import WRAPPER_ASSIGNMENTS, partial
from inspect import Signature, signature
from typing import Any, Generic, Literal, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fairwolfe.bandits import EpsilonGreedy, LinUCB, SquareCB, Uniform
from fairwolfe.bandits.base import Exploration, exploration_number
from fairwolfe.core.arrays import Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.problem import Problem, positive, whole_number
from fairwolfe.core.protocols import Environment, Oracle
from fairwolfe.core.streams import stream
from fairwolfe.environments import Finite
from fairwolfe.environments.world import RankingWorld
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.objectives import Concave
from fairwolfe.oracles import Ridge
from fairwolfe.oracles.linear_regression import noise_scales, radius
from fairwolfe.ranking import FWLinUCBRank, LinUCBRank
from fairwolfe.ranking.policies import alone
from fairwolfe.reduction import FrankWolfe
from fairwolfe.simulation.run import Streams, simulate
from fairwolfe.smoothing import DualDescent, Identity, Moreau, Randomized, default_smoothing
from fairwolfe.smoothing.dual_descent import Mirror, entropic_constants
from fairwolfe.truth.optimum import Optimum, optimum

__all__ = [
    "azuma",
    "best_sequence",
    "delay_cost",
    "deviation",
    "dual_descent",
    "first_useful",
    "fixed_smoothing",
    "linucb",
    "linucb_rank",
    "linucb_rank_scalar",
    "linucb_scalar",
    "moreau",
    "nonsmooth",
    "of",
    "randomized",
    "reduction",
    "smooth",
    "squarecb",
    "squarecb_scalar",
    "stationary",
    "table_linucb",
    "table_squarecb",
    "uniform_regret",
]

T = TypeVar("T", float, Vector)
"""A number of rounds and the bound for it, or many of both."""

Times: TypeAlias = NDArray[np.float64]
"""Numbers of rounds, or what holds at them: of shape () for one, (n,) for several."""

Regret: TypeAlias = float | Vector
"""The scalar regret of a base at each of these numbers of rounds."""


@dataclass(frozen=True, eq=False)
class Setting(Generic[T]):
    """What all bounds are functions of: `setting` makes one from a `Given`, checked."""

    source: Any  # a problem, or the environment that has it
    problem: Problem
    objective: Concave  # f, bound to the problem
    t: Times  # the horizon or horizons
    tight: bool
    lipschitz: float  # L, a Lipschitz constant of f

    @property
    def n(self) -> int:
        """D, the number of rewards."""
        return self.problem.n_objectives

    @property
    def reach(self) -> float:
        """L D_K: <g, r> stays in an interval of this length."""
        return self.lipschitz * self.problem.diameter

    @property
    def diameter(self) -> float:
        """D_K; tight: of the coordinates alone in which f is not linear."""
        if not self.tight:
            return self.problem.diameter
        return self.problem.diameter_of(self.objective.curvature(self.n) > 0.0)

    @property
    def start(self) -> float:
        """What the first step, from z = 0, can add to D_K^2 where 0 is outside of K."""
        low, high = self.problem.low, self.problem.high
        farthest = np.maximum(abs(low), abs(high)) ** 2
        return float(np.maximum(farthest - (high - low) ** 2, 0.0).sum())

    def azuma(self, reach: float, delta: float) -> Times:
        """Azuma: T differences in intervals of length `reach` sum to at most this, or |.| <= reach.

        Tight: the interval form.
        """
        return reach * np.sqrt((0.5 if self.tight else 2.0) * self.t * math.log(1.0 / delta))

    def answer(self, values: Times) -> T:
        """A float for one horizon, an array for several."""
        return cast(T, float(values) if self.t.ndim == 0 else values)


def setting(
    problem: Any,
    objective: Concave,
    horizon: T,
    tight: bool = False,
    lipschitz: float | None = None,
) -> Setting[T]:
    """Assumption 1: rewards in a compact K, and f Lipschitz on it.

    Parameters
    ----------
    problem: a Problem, or an environment, which also declares whether its rewards are bounded
    horizon: T, or an array of them
    tight: the sharpest constants that the proofs allow
    lipschitz: a Lipschitz constant of f that you know, in place of the objective's own
    """
    stated = _problem(problem)
    if not isinstance(objective, Concave):
        raise InvalidInput(f"the objective is {objective!r}; give one of fw.objectives")
    without_constraints(objective)
    bound = objective.bind(stated)
    slope = bound.lipschitz(stated.n_objectives)
    if lipschitz is not None:
        slope = checked_number("lipschitz", lipschitz)
    if not math.isfinite(slope):
        raise OutsideAssumptions(
            f"Assumption 1 asks for a Lipschitz f, and {objective} has no Lipschitz constant; give "
            "it a larger offset if it can have one, or pass lipschitz= if you know a constant"
        )
    return Setting(problem, stated, bound, times(horizon), tight, slope)


def by_keyword(inside: Callable[..., Times], has_tight_form: bool = True) -> Any:
    """A bound to call by keyword: the arguments of `setting`, and the options of `inside`, which is
    the same as a function of a `Setting` and the options, at the horizons of the setting.
    """
    own, given = (list(signature(one).parameters.values()) for one in (inside, setting))
    every = [one.replace(kind=one.KEYWORD_ONLY) for one in (*given, *own[1:])]
    stated = Signature([one for one in every if has_tight_form or one.name != "tight"])

    def bound(**options: Any) -> Any:
        rest = stated.bind(**options).arguments
        here = setting(**{one.name: rest.pop(one.name) for one in given if one.name in rest})
        return here.answer(inside(here, **rest))

    vars(bound).update(__signature__=stated, inside=inside)
    for name in WRAPPER_ASSIGNMENTS:
        setattr(bound, name, getattr(inside, name))
    return bound


def _inside(bound: Any, here: Setting[Any], *options: Any) -> Times:
    """A bound as a function of a `Setting`."""
    values: Times = bound.inside(here, *options)
    return values


def without_constraints(objective: Concave) -> None:
    """Raise for hard constraints: where f is -inf it has no Lipschitz constant, and no regret."""
    if objective.constrained:
        raise OutsideAssumptions(
            f"Assumption 1 asks for a Lipschitz f, and {objective} has hard constraints: it is "
            "-inf where they are violated; give them a penalty, or ask for the bound of the other "
            "parts, objective.relaxed()"
        )


def _problem(given: Any) -> Problem:
    """The problem, or that of an environment whose rewards stay in its ranges."""
    if isinstance(given, Problem):
        return given
    if not isinstance(given, Environment):
        raise InvalidInput(f"the problem is {given!r}; give a Problem or an environment")
    if not getattr(given, "bounded", True):
        raise OutsideAssumptions(
            f"Assumption 1 asks for rewards in a compact set K, and those of "
            f"{type(given).__name__} are not bounded (normal noise); no bound applies here"
        )
    problem: Problem = given.problem()
    return problem


def parameter_norm(problem: Problem, assumption: str) -> float:
    """D_theta of a reward; where it is not stated, rewards may not be linear."""
    if problem.parameter_norm is None:
        raise OutsideAssumptions(
            f"{assumption} asks for rewards that are linear in the features, theta x with "
            "|theta| <= D_theta, and the problem states no parameter_norm; give it one if they are"
        )
    return problem.parameter_norm


def linear(given: Any, assumption: str) -> None:
    """Means that an environment cuts off at the ends of their range are not linear."""
    if getattr(given, "calibration", None) == "clip":
        raise OutsideAssumptions(
            f"{assumption} asks for rewards that are linear in the features, and "
            f"calibration='clip' of {type(given).__name__} cuts them off; use 'affine'"
        )


def times(horizon: Any) -> Times:
    """Numbers of rounds as an array of floats, at least 1."""
    t = np.asarray(horizon, dtype=np.float64)
    if not (t.size and np.isfinite(t).all() and t.min() >= 1.0):
        raise InvalidInput(f"horizon is {horizon!r}; give a number of rounds of at least 1")
    return t


def probability(name: str, value: float) -> float:
    """A probability of failure: above 0 and at most 1, with which nothing is proved."""
    if not 0.0 < value <= 1.0:
        raise InvalidInput(f"{name} is {value!r}; give a number above 0 and at most 1")
    return float(value)


def checked_number(name: str, value: Any, least: float = 0.0) -> float:
    """A finite number of at least `least`."""
    number = float(value)
    if not (math.isfinite(number) and number >= least):
        raise InvalidInput(f"{name} is {value!r}; give a finite number of at least {least:g}")
    return number


AnySmoothing: TypeAlias = Identity | Moreau | Randomized | DualDescent | None
"""What FrankWolfe may be given; None is its default for the objective."""


@by_keyword
def azuma(here: Setting[Any], delta: float = 0.05) -> Times:
    """L D_K sqrt(2 T ln(1/delta)), on sum_t (max_s <g_t, s> - max_a <g_t, mu(x_t) a>).

    What the randomness of the contexts costs. Tight: L D_K sqrt(T ln(1/delta)/2), since each term
    has an interval of length L D_K to move in. Not divided by T.

    Reference: Lemma 1, Eq. (5), and Lemma 13 of the paper.
    """
    return here.azuma(here.reach, probability("delta", delta))


@by_keyword
def smooth(
    here: Setting[Any],
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
    smoothness: float | None = None,
) -> Times:
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
    curve = _curve(here) if smoothness is None else checked_number("smoothness", smoothness)
    steps = here.diameter**2 * np.log(math.e * here.t) + here.start
    noise = here.azuma(here.reach, probability("delta", delta))
    return (scalar_regret + noise + 0.5 * curve * steps) / here.t


@by_keyword
def nonsmooth(
    here: Setting[Any],
    beta_0: float,
    m_1: float,
    m_2: float,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
) -> Times:
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
    width, m_1 = checked_number("beta_0", beta_0), checked_number("m_1", m_1)
    curve = math.inf if width == 0.0 else 1.0 / width
    root = np.sqrt(here.t)
    steps = here.diameter**2 * root + 0.5 * here.start
    errors = (2.0 if here.tight else 4.0) * m_1 + (1.0 if here.tight else 2.0) * checked_number(
        "m_2", m_2
    )
    noise = here.azuma(here.reach, probability("delta", delta))
    return (scalar_regret + noise + curve * steps + errors * root) / here.t


@by_keyword
def moreau(
    here: Setting[Any], beta0: float | None = None, scalar_regret: Regret = 0.0, delta: float = 0.05
) -> Times:
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
    return _inside(reduction, here, Moreau(beta0), scalar_regret, delta)


@by_keyword
def randomized(
    here: Setting[Any],
    radius: float | None = None,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
) -> Times:
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
    return _inside(reduction, here, Randomized(radius), scalar_regret, delta)


@by_keyword
def dual_descent(
    here: Setting[Any],
    mirror: Mirror = "entropy",
    rate: float | None = None,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
) -> Times:
    """R^scal_T/T + (A/rate + 4 B rate + L D_K sqrt(2 ln(1/delta)))/sqrt(T); "euclid": `moreau`.

    For a generalised Gini function with weights >= 0 of sum W, A = W max_i range_i^2 and
    B = sum_j w_j ln(D w_j/W) <= W ln D: the entropy is 1/W-strongly convex in the 1-norm, so that
    steps count in the largest norm, and it is at most B. With the best rate sqrt(A/(2 B)) the error
    grows like sqrt(ln D), where that of Moreau grows like sqrt(D). Sums and maps add up, leaf by
    leaf. Tight: 2 B rate, since the approximations are above f and fall; the interval form of
    Azuma's inequality.

    Reference: the proof of Theorem 12 of the paper, with the norms of the mirror map.

    >>> from fairwolfe.objectives import Minimum
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.arms(1, {f"r{i}": (0, 1) for i in range(100)})
    >>> of = dict(problem=problem, objective=Minimum(), horizon=10_000, delta=1, tight=True)
    >>> round(dual_descent(**of), 4), round(moreau(**of), 4)
    (0.0607, 0.2)
    """
    return _inside(reduction, here, DualDescent(mirror, rate), scalar_regret, delta)


@by_keyword
def fixed_smoothing(
    here: Setting[Any],
    smoothing: Moreau | Randomized,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
) -> Times:
    """The bound for smooth f at the width of the smoothing's horizon H, plus twice its error.

    f_H is C-smooth with C = sqrt(H + 1)/beta_0, and |f_H - f| <= M_2/sqrt(H + 1): R_T is at most
    (R^scal_T + L D_K sqrt(2 T ln(1/delta)) + C/2 D_K^2 ln(e T))/T + 2 M_2/sqrt(H + 1), for every
    T. Worse than a width that shrinks by a factor of order ln T, and useless far from T = H.
    Tight: M_2 once, as in `nonsmooth`.

    Reference: Remark 3 of the paper, on the smoothing of Agrawal and Devanur (2014).
    """
    if smoothing.horizon is None:
        raise OutsideAssumptions(
            f"{smoothing} has no horizon: its width shrinks, so the bound is another; see moreau "
            "and randomized"
        )
    return _inside(reduction, here, smoothing, scalar_regret, delta)


@by_keyword
def reduction(
    here: Setting[Any],
    smoothing: AnySmoothing = None,
    scalar_regret: Regret = 0.0,
    delta: float = 0.05,
) -> Times:
    """The bound that belongs to a smoothing: one of those above; None is FrankWolfe's default."""
    chosen = smoothing or default_smoothing(here.objective, here.n)
    if isinstance(chosen, Identity):
        return _inside(smooth, here, scalar_regret, delta)
    if isinstance(chosen, DualDescent):
        chosen = chosen.bind(here.problem, here.objective)  # "euclid" is Moreau
    if isinstance(chosen, DualDescent):
        spread, error = entropic_constants(here.objective, here.n, here.problem)
        if spread == 0.0:
            return _inside(smooth, here, scalar_regret, delta)
        rate = chosen.step(here.objective, here.n, 0)
        width = rate * here.diameter**2 / spread  # for steps in the largest norm
        errors = 0.5 * rate * error, rate * error
        return _inside(nonsmooth, here, width, *errors, scalar_regret, delta)
    if isinstance(chosen, Moreau):
        width, m_1, m_2 = _moreau_constants(here, replace(chosen, horizon=None))
    else:
        width, m_1, m_2 = _randomized_constants(here, replace(chosen, horizon=None))
    if chosen.horizon is None:
        return _inside(nonsmooth, here, width, m_1, m_2, scalar_regret, delta)
    root = math.sqrt(chosen.horizon + 1.0)
    left = _inside(smooth, here, scalar_regret, delta, root / width)
    return left + (1.0 if here.tight else 2.0) * m_2 / root


def _curve(here: Setting[Any]) -> float:
    """Assumption 2: C, the Lipschitz constant of the gradient of f."""
    curve = here.objective.smoothness(here.n)
    if not math.isfinite(curve):
        raise OutsideAssumptions(
            f"Assumption 2 asks for a Lipschitz gradient, and {here.objective} states no constant "
            "for it; smooth it, or pass smoothness= if you know one"
        )
    return curve


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


Model = Literal["shared", "extended"]
Gamma = Literal["anytime", "fixed"]


@by_keyword
def linucb_scalar(
    here: Setting[Any],
    model: Model = "shared",
    ridge: float = 1.0,
    base_delta: float = 0.05,
    exploration: Exploration = 1.0,
) -> Times:
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
    pseudo: Times = weight * np.sqrt((steps**2).sum(axis=0)) * widths
    return pseudo + here.azuma(here.reach, base_delta / 2.0)


@by_keyword
def squarecb_scalar(
    here: Setting[Any],
    n_arms: int,
    oracle: Any = None,
    gamma: Gamma = "anytime",
    planned: int | None = None,
    base_delta: float = 0.05,
    means: bool = False,
) -> Times:
    """R^scal_T of SquareCB over K = `n_arms` arms, with probability 1 - delta'.

    With the theorem's gamma_t, and R(T) the regret bound of the `oracle` (`Ridge()`):

        4 L sqrt(K T (R(T) + 8 D_K^2 ln(4 T^2/delta'))) + L D_K sqrt(2 T ln(2/delta')).

    With the gamma that is fixed for a known T, R' = 2 L^2 R(T) + 16 L^2 D_K^2 ln(2/delta'):

        sqrt(2 K T R') + L D_K sqrt(2 T ln(2/delta')),

    or 2 K T/gamma + gamma R'/4 in its place where gamma was fixed for another number of rounds,
    `planned`. Tight: the interval form of Azuma's inequality.

    `means`: R(T) bounds the squared distance of the predictions from the *mean* rewards of the arms
    played, sum_t |mu_hat_t(x_t) a_t - mu(x_t) a_t|^2 <= R(T), as in Remark 5. With X_t in [0, B]
    one term, B = L^2 D_K^2, E exp(-X/B) <= 1 - (1 - 1/e) E X/B gives with probability 1 - delta

        sum_t E_t X_t <= c (sum_t X_t + B ln(1/delta)),   c = e/(e - 1) = 1.58,

    in place of Lemma 23's 2 sum + 16 B ln(1/delta): 2 L sqrt(2 c K T (R(T) + D_K^2 ln(4 T^2/
    delta'))) takes the place of the first term above, R' = c L^2 (R(T) + D_K^2 ln(2/delta')).

    Reference: Theorem 20 of the paper, under Assumption 7; Lemmas 21 to 23 for the fixed gamma;
    Remark 5 for `means`.
    """
    t, base_delta = here.t, probability("base_delta", base_delta)
    n_arms = whole_number("n_arms", n_arms)
    slope, diameter = here.lipschitz, here.problem.diameter
    regret = _oracle_regret(here.problem, oracle, t)
    # Of the squared errors that actions are expected to have; all for L = 1, by which gamma is
    # then divided.
    of_errors, of_chance = (1.0 / (1.0 - 1.0 / math.e),) * 2 if means else (2.0, 16.0)

    def expected(regret: Times, chance: Any) -> Times:
        errors: Times = of_errors * regret + of_chance * diameter**2 * np.log(1.0 / chance)
        return errors

    if gamma == "anytime":
        missing = expected(regret, base_delta / (4.0 * t**2))
        pseudo = 2.0 * slope * np.sqrt(2.0 * n_arms * t * missing)
    elif gamma == "fixed":
        h = t if planned is None else times(planned)
        chance = base_delta / 2.0
        rate = np.sqrt(8.0 * n_arms * h / expected(_oracle_regret(here.problem, oracle, h), chance))
        pseudo = slope * (2.0 * n_arms * t / rate + rate * expected(regret, chance) / 4.0)
    else:
        raise InvalidInput(f"gamma is {gamma!r}; give 'anytime' or 'fixed'")
    return pseudo + here.azuma(here.reach, base_delta / 2.0)


@by_keyword
def linucb(
    here: Setting[Any],
    model: Model = "shared",
    ridge: float = 1.0,
    smoothing: AnySmoothing = None,
    delta: float = 0.05,
    base_delta: float = 0.05,
    exploration: Exploration = 1.0,
) -> Times:
    """R_T of FW-LinUCB, with probability 1 - delta - delta': `linucb_scalar` in `reduction`.

    >>> from fairwolfe.environments import Finite
    >>> from fairwolfe.objectives import Minimum
    >>> round(linucb(problem=Finite.a2(), objective=Minimum(), horizon=100_000, tight=True), 3)
    0.242
    """
    regret = _inside(linucb_scalar, here, model, ridge, base_delta, exploration)
    return _inside(reduction, here, smoothing, regret, delta)


@by_keyword
def squarecb(
    here: Setting[Any],
    n_arms: int,
    oracle: Any = None,
    gamma: Gamma = "anytime",
    planned: int | None = None,
    smoothing: AnySmoothing = None,
    delta: float = 0.05,
    base_delta: float = 0.05,
    means: bool = False,
) -> Times:
    """R_T of FW-SquareCB, with probability 1 - delta - delta': `squarecb_scalar` in `reduction`.

    Eq. (84) of the paper is this for a smooth f with delta/3 and 2 delta/3 (it prints 12 for the 6
    that this makes of the 4 in the first logarithm).

    >>> from fairwolfe.environments import Finite
    >>> from fairwolfe.objectives import Minimum
    >>> given = dict(problem=Finite.a2(), objective=Minimum(), horizon=100_000, n_arms=2)
    >>> round(squarecb(**given, gamma="fixed", tight=True), 3)
    0.112
    """
    regret = _inside(squarecb_scalar, here, n_arms, oracle, gamma, planned, base_delta, means)
    return _inside(reduction, here, smoothing, regret, delta)


@partial(by_keyword, has_tight_form=False)
def table_linucb(here: Setting[Any], delta: float = 0.05) -> Times:
    """L D_K d D ln((1 + T L^2 D_X^2/(d D))/delta)/sqrt(T): an order of magnitude, no bound.

    Constants, the ridge and D_theta are left out.

    Reference: Table 1 of the paper, first row (which has L D_K for the squared norm L^2 D_X^2 of
    the extended features).
    """
    t, size = here.t, _dimension(_arms(here.problem)) * here.n
    features = (here.lipschitz * here.problem.feature_norm) ** 2
    log = np.log1p(t * features / size) + math.log(1.0 / probability("delta", delta))
    return here.reach * size * log / np.sqrt(t)


@partial(by_keyword, has_tight_form=False)
def table_squarecb(
    here: Setting[Any], n_arms: int, oracle: Any = None, delta: float = 0.05
) -> Times:
    """L sqrt(K (R(T) + D_K^2 ln(T/delta)))/sqrt(T): an order of magnitude, no bound.

    Reference: Table 1 of the paper, second row; Eq. (84) has the constants.
    """
    t = here.t
    log = np.log(t / probability("delta", delta))
    inner = _oracle_regret(here.problem, oracle, t) + here.problem.diameter**2 * log
    return here.lipschitz * np.sqrt(whole_number("n_arms", n_arms) * inner / t)


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
    >>> policy = FrankWolfe(Minimum(), SquareCB(gamma0="theorem", horizon=100_000))
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
        given = (base.model, base.ridge, base.delta, base.exploration)
        regret = _inside(linucb_scalar, tuned, *given)
    elif isinstance(base, LinUCBRank):
        _check_ranker(base)
        regret = _inside(linucb_rank_scalar, here, base.ridge, base.delta)
    else:
        regret = _squarecb(here, base, n_arms)
    return here.answer(_inside(reduction, here, smoothing, regret, delta))


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
        f"{type(base).__name__}: {why}; use LinUCB, SquareCB or LinUCBRank"
    )


def _check_ranker(base: LinUCBRank) -> None:
    """Theorem 5 is about Algorithm 1 as it is printed, with its observation model."""
    if exploration_number(base.exploration) != 1.0:
        raise OutsideAssumptions(
            "Theorem 5 asks for the confidence radius of Lemma 26, and exploration is "
            f"{base.exploration!r}; it is proved for exploration='theorem', which is 1"
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
    if base.gamma0 != "theorem":
        raise OutsideAssumptions(
            f"Theorem 20 asks for its own gamma_t and for predictions inside K, and gamma0 is "
            f"{base.gamma0!r}; give gamma0='theorem'"
        )
    if n_arms is None:
        raise InvalidInput(
            "the bound of SquareCB needs the number of arms, which a problem may leave open; pass "
            "n_arms=, or the environment in place of its problem"
        )
    tuned = replace(here, lipschitz=_slope(here, base))
    gamma: Gamma = "anytime" if base.horizon is None else "fixed"
    given = (n_arms, base.regression, gamma, base.horizon, base.delta)
    return _inside(squarecb_scalar, tuned, *given)


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
    >>> policy = FrankWolfe(Minimum(), LinUCB(exploration="theorem"))
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


@by_keyword
def delay_cost(here: Setting[Any], delay: float, beta0: float | None = None) -> Times:
    """2 tau D_K^2/(beta_0 sqrt(T)): about what a delay of tau rounds adds to R_T. An estimate.

    tau rounds move the average by at most tau D_K/t, and the direction, which is the gradient of a
    sqrt(t)/beta_0-smooth function, by tau D_K/(beta_0 sqrt(t)); each round may lose D_K times
    that, and the sum over t of 1/sqrt(t) is 2 sqrt(T). That is the worst that the direction can
    do. What the regression misses for a while is not counted, so it is not a bound; in a run the
    average moves far less than D_K/t and mostly one way and back, so the cost is a small part of
    it. It is of use for how the cost changes: with tau, and with 1/sqrt(T).

    `beta0=None` is the width that `Moreau()` takes for the problem. A snapshot renewed every n
    decisions lacks (n - 1)/2 answers on average. Tight: D_K of the coordinates in which f is not
    linear.

    >>> from fairwolfe.objectives import Minimum
    >>> from fairwolfe.core.problem import Problem
    >>> problem = Problem.arms(1, {"clicks": (0, 1)})
    >>> delay_cost(problem=problem, objective=Minimum(), horizon=10_000, delay=10)
    0.2
    """
    late = checked_number("delay", delay)
    smoothing = Moreau(beta0).bind(here.problem, here.objective)
    width = smoothing.beta_0(here.objective, here.n)
    return 2.0 * late * here.diameter**2 / (width * np.sqrt(here.t))


_CHUNK = 100_000  # contexts drawn at once


@partial(by_keyword, has_tight_form=False)
def stationary(here: Setting[Any], delta: float = 0.05) -> Times:
    """L D_K sqrt(2 ln(4 e^2/delta)/T), on |f+_T - f*| with probability 1 - delta.

    f+_T is the best that any sequence of actions reaches on the contexts that came, f* the best
    of stationary policies: see `best_sequence`.

    Reference: Lemma 9 of the paper, first part.
    """
    return _concentrated(here, 4.0, delta)


@partial(by_keyword, has_tight_form=False)
def deviation(here: Setting[Any], delta: float = 0.05) -> Times:
    """L D_K sqrt(2 ln(2 e^2/delta)/T), on the distance between the two measures of a run.

    |f(average expected reward) - f(average observed reward)|, with probability 1 - delta; without
    L it bounds the distance of the averages themselves.

    Reference: Lemma 9, second part, and Lemma 10 of the paper.
    """
    return _concentrated(here, 2.0, delta)


def _concentrated(here: Setting[Any], events: float, delta: float) -> Times:
    """Azuma for vectors: L times how far an average of T differences is from 0."""
    log = math.log(events * math.e**2 / probability("delta", delta))
    return here.reach * np.sqrt(2.0 * log / here.t)


def best_sequence(
    environment: Finite,
    objective: Concave,
    horizon: int,
    seed: int = 0,
    tolerance: float = 1e-6,
) -> Optimum:
    """f+_T: the best value on the contexts that ``simulate(..., horizon, seed)`` meets, certified.

    Only how often each context came matters, so that it is f* of the finite world with these
    frequencies for probabilities; `optimum` encloses it.

    Reference: Eqs. (19) and (21) of the paper.

    >>> from fairwolfe.objectives import Minimum
    >>> round(best_sequence(Finite.a2(), Minimum(), horizon=1000).value, 3)
    0.5
    """
    if not isinstance(environment, Finite):
        raise InvalidInput(
            f"the environment is {environment!r}; the best sequence in hindsight is known for "
            "Finite worlds, where contexts come back"
        )
    left = whole_number("horizon", horizon)
    world, rng = environment.init(stream(seed, "world")), Streams.of(seed).contexts
    counts = np.zeros(len(world.features), dtype=np.int64)
    while left:
        _, tags = environment.draw_contexts(world, rng, min(left, _CHUNK))
        counts += np.bincount(tags, minlength=counts.size)
        left -= tags.size
    met = np.flatnonzero(counts).tolist()
    means = environment.means
    sample = replace(
        environment,
        contexts=[environment.contexts[i] for i in met],
        probabilities=(counts[met] / counts.sum()).tolist(),
        means=None if means is None else [means[i] for i in met],
    )
    return optimum(sample, objective, seed, tolerance)


@by_keyword
def linucb_rank_scalar(here: Setting[Any], ridge: float = 1.0, base_delta: float = 0.05) -> Times:
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


@by_keyword
def linucb_rank(
    here: Setting[Any],
    ridge: float = 1.0,
    smoothing: AnySmoothing = None,
    delta: float = 0.05,
    base_delta: float = 0.05,
) -> Times:
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
    regret = _inside(linucb_rank_scalar, here, ridge, base_delta)
    return _inside(reduction, here, smoothing, regret, delta)


def user_slope(here: Setting[Any]) -> float:
    """L_u: how fast f can change with the user-side rewards, leaf by leaf."""
    total, items = 0.0, here.problem.n_items or 0
    for scale, leaf, matrix in here.objective.split(here.n):
        users = matrix.toarray()[:, items:]
        total += scale * leaf.lipschitz(users.shape[0]) * float(np.linalg.norm(users, 2))
    return min(total, here.lipschitz)
