"""How five sentences are judged by the second registration.

Its statistics and thresholds were fixed when the verdicts of the first were known.
"""

from __future__ import annotations

import numpy as np

from fairwolfe.paper.curves import Curves
from fairwolfe.paper.judges import FAIR, Judge, falls, slope
from fairwolfe.paper.truth import Truth
from fairwolfe.paper.verdicts import Finding, above, inside

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


def most_of_the_way(t: float) -> Judge:
    """FW has gone 90 % of its way from t = 100 to the end at about t, within a factor 3."""

    def judge(curves: Curves) -> Finding:
        name = "first t with 90 % of FW's way from f(100) to the end"
        return inside(name, curves.way(FAIR), t / 3.0, t * 3.0, log=True)

    return judge


def sooner_than_others(curves: Curves) -> Finding:
    """FW has gone 90 % of its way before any competitor has gone 90 % of its way."""
    others = np.min([curves.way(other) for other in curves.runs if other != FAIR], axis=0)
    name = "FW's first t with 90 % of its way over that of the fastest other"
    return inside(name, curves.way(FAIR) / others, 0.0, 1.0, log=True)


def vanishes_but_for_logarithm(policy: str) -> Judge:
    """The mean scalar pseudo-regret over ln t falls at least like t^-0.45, from 10^3 to 10^6."""

    def judge(curves: Curves) -> Finding:
        slopes, first = slope(curves, policy, np.log)
        name = f"slope of ln(regret/ln t) of {policy}, t from {first:,.0f} to {curves.t[-1]:,}"
        return inside(name, slopes, -np.inf, -0.45)

    return judge
