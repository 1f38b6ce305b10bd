"""How each sentence of the paper about its figures is judged, from the runs of an experiment.

Thresholds were fixed before any run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.fairness.tradeoff import middle_gap, smallest_gap
from fairwolfe.lab.paper.curves import (
    Curves,
    Finding,
    Truth,
    Verdict,
    above,
    all_of,
    bootstrapped,
    inside,
    share,
)

MOLINCB = "MOLinCB"
SQUARE, SQUARE_MORE = "FW-SquareCB 1e4", "FW-SquareCB 1e3"  # more exploration with 1e3
LINUCB, LINUCB_MORE = "FW-LinUCB 0.01", "FW-LinUCB 1"
GREEDY = "FW-epsilon-greedy 0.01"
FAIR, PLAIN, UNBIASED, FLOOR = (
    "FW-LinUCBRank",
    "LinUCBRank",
    "Unbiased-LinUCBRank",
    "FairLearn",
)
TOLERANCE = 2.0  # percent: "comparable", "similar"
NEGLIGIBLE = 1e-9  # a difference of this size is rounding

Judge = Callable[[Curves], Finding]
P = ParamSpec("P")


def with_parameters(rule: Callable[Concatenate[Curves, P], Finding]) -> Callable[P, Judge]:
    """A maker of judges, from a rule that has parameters besides the curves."""

    def make(*args: P.args, **named: P.kwargs) -> Judge:
        return lambda curves: rule(curves, *args, **named)

    return make


# --- multi-objective bandits --------------------------------------------------------------------


@with_parameters
def comparable(curves: Curves, one: str, other: str, t: float = 1e3) -> Finding:
    """Their values at t differ by at most two percent."""
    base = curves.at(other, t)
    percent = 100.0 * (curves.at(one, t) - base) / np.abs(base)
    name = f"{one} over {other} at t = {t:,.0f}, percent"
    return inside(name, percent, -TOLERANCE, TOLERANCE)


@with_parameters
def better(curves: Curves, one: str, other: str, t: float = np.inf) -> Finding:
    """Its value is larger, at t or at the horizon."""
    when = "at the horizon" if np.isinf(t) else f"at t = {t:,.0f}"
    return above(f"f({one}) - f({other}) {when}", curves.at(one, t) - curves.at(other, t))


def converges_early(curves: Curves) -> Finding:
    """Both have 97 % of their value at 1,000 after 100 rounds already."""
    ratios = [curves.at(p, 100) / curves.at(p, 1e3) for p in (SQUARE, MOLINCB)]
    return above("smaller of the two value(100)/value(1,000)", np.min(ratios, axis=0), 0.97)


def less_is_more(curves: Curves) -> Finding:
    """FW-SquareCB with 10^4 better than with 10^3, and comparable to MOLinCB."""
    return all_of(better(SQUARE, SQUARE_MORE, 1e3)(curves), comparable(SQUARE, MOLINCB)(curves))


ARMS: dict[str, tuple[str, Judge]] = {
    "M1": ("FW-SquareCB is comparable to MOLinCB", comparable(SQUARE, MOLINCB)),
    "M2": ("FW-SquareCB and MOLinCB converge after about 100 rounds", converges_early),
    "M3": ("FW-LinUCB is better with a smaller epsilon", better(LINUCB, LINUCB_MORE, 1e3)),
    "M4": ("FW-epsilon-greedy with 0.01 is similar to MOLinCB", comparable(GREEDY, MOLINCB)),
    "M5": (
        "FW-SquareCB with 10^4 is better than with 10^3 and comparable to MOLinCB",
        less_is_more,
    ),
}


def same_verdicts(few: Curves, many: Curves) -> Finding:
    """M1 to M5 keep their verdicts with more arms."""
    kept = [judge(few).verdict == judge(many).verdict for _, judge in ARMS.values()]
    verdict: Verdict = "holds" if all(kept) else "does not hold"
    name = "share of M1 to M5 that keep their verdict"
    return Finding(name, *wilson(sum(kept), len(kept)), verdict, "all")


def wilson(k: int, n: int) -> tuple[float, float, float]:
    """k of n as a share, with Wilson's 95 % interval.

    >>> [round(x, 3) for x in wilson(5, 5)]
    [1.0, 0.566, 1.0]
    """
    z, p = 1.959964, k / n
    middle, half = p + z * z / (2 * n), z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    return p, max(float(middle - half) / scale, 0.0), min(float(middle + half) / scale, 1.0)


# --- dynamics of rankings -----------------------------------------------------------------------


def highest(curves: Curves) -> Finding:
    """FW is above the best other policy at the horizon."""
    rivals = np.max([curves.at(other) for other in curves.runs if other != FAIR], axis=0)
    return above("f(FW) - f(best other) at the horizon", curves.at(FAIR) - rivals)


def high_at_first(curves: Curves) -> Finding:
    """The best of Unbiased in the first 10^4 rounds is above those of the two others."""
    rivals = np.maximum(curves.best(PLAIN, 1e4), curves.best(FLOOR, 1e4))
    name = "best f(Unbiased) - best f(LinUCBRank, FairLearn) up to 10,000"
    return above(name, curves.best(UNBIASED, 1e4) - rivals)


def then_decreases(curves: Curves) -> Finding:
    """Unbiased ends below its best value, which came before 10^5."""
    return all_of(
        above(
            "best f(Unbiased) - its f at the horizon", curves.best(UNBIASED) - curves.at(UNBIASED)
        ),
        inside("time of its best", curves.peak(UNBIASED), 0.0, 1e5, log=True, grid=curves.t),
    )


@with_parameters
def falls_after(curves: Curves, least: float, most: float) -> Finding:
    """The best value of Unbiased comes between the two times, and its last value is below it."""
    peak, fall = curves.peak(UNBIASED), curves.best(UNBIASED) - curves.at(UNBIASED)
    when = inside("time of Unbiased's best f", peak, least, most, log=True, grid=curves.t)
    return all_of(when, above("its fall from there", fall, NEGLIGIBLE))


@with_parameters
def mean_falls_after(curves: Curves, least: float, most: float) -> Finding:
    """The mean curve of Unbiased from round 100 on is largest between the two times, and ends more
    than 1 % of its range below.
    """
    late = curves.t >= 100.0
    t, values = curves.t[late], curves.over_time(UNBIASED)[:, late]

    def when(rows: Matrix) -> float:
        return float(t[rows.mean(axis=0).argmax()])

    def fall(rows: Matrix) -> float:
        mean: Vector = rows.mean(axis=0)
        span = float(np.maximum(mean.max() - mean.min(), NEGLIGIBLE))
        return float(mean.max() - mean[-1]) / span

    name = "time of the best f of Unbiased's mean curve from 100 on"
    found = bootstrapped(name, values, when, least, most, t)
    return all_of(found, bootstrapped("its fall, of its range", values, fall, 0.01, np.inf))


def item_side_weighs_more(curves: Curves) -> Finding:
    """beta times the item objective is larger than the utility."""
    user = curves.at(FAIR, quantity="utility")
    return above("item part - user part of f(FW) at the horizon", curves.at(FAIR) - 2.0 * user)


def highest_throughout(curves: Curves) -> Finding:
    """FW is highest at 95 % of the checkpoints from 100 on."""
    step = 1.0 / max(int(np.count_nonzero(curves.t >= 100.0)), 1)
    return share("share of checkpoints from 100 on", curves.lead(FAIR, 100.0), 0.95, step)


def highest_in_rounds(curves: Curves) -> Finding:
    """FW is highest in 95 % of the rounds from 100 on."""
    shares, last = curves.lead_in_rounds(FAIR, 100.0)
    name = f"share of rounds from 100 on (the last checkpoint behind: {last:,})"
    steps = np.diff(curves.t[curves.t >= 100.0])
    smallest = float(steps.min(initial=1) / curves.t[-1])
    return share(name, shares, 0.95, smallest)


@with_parameters
def converges_by(curves: Curves, t: float, percent: float = 99.0) -> Finding:
    """FW has 99 % of its final value at about t, within a factor 3."""
    name = f"first t with {percent:g} % of FW's final value"
    first = curves.settled(FAIR, percent / 100.0)
    return inside(name, first, t / 3.0, t * 3.0, log=True, grid=curves.t)


def lower_at_first(curves: Curves) -> Finding:
    """Unbiased is below FW on average over the checkpoints up to 10^5."""
    early = curves.t <= 1e5
    apart = curves.over_time(FAIR) - curves.over_time(UNBIASED)
    return above("mean f(FW) - f(Unbiased) up to 100,000", apart[:, early].mean(axis=1))


# --- trade-offs ---------------------------------------------------------------------------------


def points(curves: Curves, policy: str) -> tuple[Vector, Matrix, Matrix]:
    """The parameters of a policy's runs, in order; its Gini index and utility (seeds, points)."""
    labels = {
        float(name.partition("=")[2]): name for name in curves.runs if name.startswith(policy)
    }
    order = sorted(labels)
    gini, utility = (
        np.stack([curves.at(labels[p], quantity=quantity) for p in order], axis=1)
        for quantity in ("gini", "utility")
    )
    return np.array(order), gini, utility


def more_utility(curves: Curves) -> Finding:
    """FW's curve lies above FairLearn's on the common range of the Gini index."""
    both = (np.stack(points(curves, policy)[1:], axis=2) for policy in (FAIR, FLOOR))
    sample = [smallest_gap(fair, floors) for fair, floors in zip(*both, strict=True)]
    name = "smallest utility(FW) - utility(FairLearn) at equal Gini index"
    return above(name, np.array(sample))


def much_more_utility(curves: Curves) -> Finding:
    """The median gap of the two curves is more than 5 % of the utility of beta = 0."""
    both = (np.stack(points(curves, policy)[1:], axis=2) for policy in (FAIR, FLOOR))
    gaps = [middle_gap(fair, floors) for fair, floors in zip(*both, strict=True)]
    alone = points(curves, FAIR)[2][:, 0]
    name = "median utility(FW) - utility(FairLearn) at equal Gini index, of utility at beta = 0"
    return above(name, np.array(gaps) / alone, 0.05)


def redistributes(*alphas: float) -> Judge:
    """The Gini index of FW falls from each alpha to the next."""

    def rule(curves: Curves) -> Finding:
        ginis = [curves.at(f"{FAIR} alpha={alpha:g}", quantity="gini") for alpha in alphas]
        steps = ", ".join(f"{alpha:g}" for alpha in alphas)
        name = f"smallest fall of the Gini index over alpha = {steps}"
        return above(name, (-np.diff(ginis, axis=0)).min(axis=0))

    return rule


def less_explores_better(curves: Curves) -> Finding:
    """FW-LinUCB with epsilon .01 above .1, and .1 above 1."""
    middle = "FW-LinUCB 0.1"
    return all_of(better(LINUCB, middle, 1e3)(curves), better(middle, LINUCB_MORE, 1e3)(curves))


@with_parameters
def equality_is_cheap(curves: Curves, n_items: int) -> Finding:
    """Some beta has a normalised Gini index of at most .01 and 95 % of the utility of beta = 0."""
    _, gini, utility = points(curves, FAIR)
    gini *= n_items / (n_items - 1.0)  # 1 where one item has all
    even = np.flatnonzero(gini.mean(axis=0) <= 0.01)
    if even.size == 0:
        least = gini.mean(axis=0).argmin()
        return inside("smallest normalised Gini index", gini[:, least], -1.0, 0.01)
    ratios = utility[:, even] / utility[:, :1]
    best = ratios.mean(axis=0).argmax()
    return above("utility over that of beta = 0, at Gini <= .01", ratios[:, best], 0.95)


def falls(curves: Curves) -> Matrix:
    """From each beta to the next larger one, the smaller of the falls of utility (relative to that
    of the first) and of the Gini index, (seeds, betas - 1).
    """
    _, gini, utility = points(curves, FAIR)
    return np.minimum(-np.diff(gini, axis=1), -np.diff(utility, axis=1) / utility[:, :1])


def beta_controls(curves: Curves) -> Finding:
    """Utility and Gini index fall from each beta to the next larger one."""
    name = "smallest fall of utility (relative) or Gini index from one beta to the next"
    return above(name, falls(curves).min(axis=1))


# --- theory -------------------------------------------------------------------------------------


def slope(curves: Curves, policy: str, over: Callable[[Vector], Vector]) -> tuple[Vector, float]:
    """Of ln(mean scalar pseudo-regret / over(t)) against ln t, by seed; and the t it begins at."""
    first = min(1e3, curves.t[-1] / 10.0)
    late = curves.t >= first
    t = curves.t[late].astype(np.float64)
    gaps = np.maximum(curves.over_time(policy, "mean_pseudo_regret")[:, late], 1e-12)
    slopes: Vector = np.polyfit(np.log(t), np.log(gaps / over(t)).T, 1)[0]
    return slopes, first


@with_parameters
def vanishes(curves: Curves, policy: str) -> Finding:
    """The mean scalar pseudo-regret falls at least like t^-0.45 from 10^3 on."""
    slopes, _ = slope(curves, policy, np.ones_like)
    return inside(f"slope of ln regret of {policy} against ln t", slopes, -np.inf, -0.45)


def no_worse(curves: Curves) -> Finding:
    """Anytime smoothing has no more regret than smoothing fixed for the horizon."""
    apart = curves.at("anytime") - curves.at("fixed horizon")
    return inside("f(anytime) - f(fixed horizon) at the horizon", apart, -NEGLIGIBLE, np.inf)


_DIFFERENT = 1e-3  # optima that are closer than this, relative to those of beta = 0, are the same


def items_get_more(curves: Curves, truth: Truth) -> Finding:
    """Of what it can get between the two ends, the item side gets a larger share than users do."""
    ends = truth.ends  # the best for users, the best of the fairest
    user = curves.at(FAIR, quantity="utility")
    item = curves.at(FAIR) - user
    items = (item - ends.items[0]) / (ends.items[1] - ends.items[0])
    users = (user - ends.utility[1]) / (ends.utility[0] - ends.utility[1])
    return above("share of the items' range - share of the users' range", items - users)


def beta_moves(curves: Curves, truth: Truth) -> Finding:
    """Utility and Gini index fall from each beta to the next whose certified optimum differs."""
    best = truth.by_beta
    apart = [np.abs(np.diff(x)) / abs(x[0]) for x in (best.gini, best.utility)]
    moved = np.max(apart, axis=0) > _DIFFERENT
    name = (
        "smallest fall of utility (relative) or Gini index, over the "
        f"{moved.sum()} of {moved.size} steps of beta that move the optimum"
    )
    return above(name, falls(curves)[:, moved].min(axis=1, initial=np.inf))


@with_parameters
def most_of_the_way(curves: Curves, t: float) -> Finding:
    """FW has gone 90 % of its way from t = 100 to the end at about t, within a factor 3."""
    name = "first t with 90 % of FW's way from f(100) to the end"
    return inside(name, curves.way(FAIR), t / 3.0, t * 3.0, log=True, grid=curves.t)


def sooner_than_others(curves: Curves) -> Finding:
    """FW has gone 90 % of its way before any competitor has gone 90 % of its way."""
    others = np.min([curves.way(other) for other in curves.runs if other != FAIR], axis=0)
    name = "FW's first t with 90 % of its way over that of the fastest other"
    return inside(name, curves.way(FAIR) / others, 0.0, 1.0, log=True)


def observed_vanishes(policy: str) -> Callable[[Curves, Truth], Finding]:
    """f* - f(observed averages), the mean over seeds, falls at least like t^-0.45 from 10^3 on."""

    def rule(curves: Curves, truth: Truth) -> Finding:
        late = curves.t >= min(1e3, curves.t[-1] / 10.0)
        t = np.log(curves.t[late].astype(np.float64))
        gaps = np.reshape(truth.tops, (-1, 1)) - curves.over_time(policy)[:, late]

        def fitted(rows: Matrix) -> float:
            return float(np.polyfit(t, np.log(np.maximum(rows.mean(axis=0), 1e-12)), 1)[0])

        name = f"slope of ln(f* - f(observed averages)) of {policy}"
        return bootstrapped(name, gaps, fitted, -np.inf, -0.45)

    return rule


@with_parameters
def vanishes_but_for_logarithm(curves: Curves, policy: str) -> Finding:
    """The mean scalar pseudo-regret over ln t falls at least like t^-0.45, from 10^3 to 10^6."""
    slopes, first = slope(curves, policy, np.log)
    name = f"slope of ln(regret/ln t) of {policy}, t from {first:,.0f} to {curves.t[-1]:,}"
    return inside(name, slopes, -np.inf, -0.45)
