"""`give_up`: the largest beta within a budget of utility."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from fairwolfe.core.problem import real_number
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.tradeoff.reachable import Reachable

__all__ = ["GivenUp", "give_up"]

_CLOSE = 0.02  # of the budget: how much of it may be left
_NARROW = 1e-3  # of beta
_STEPS = 40


class GivenUp(NamedTuple):
    """A beta, what its optimum reaches, and what that costs."""

    beta: float
    cost: float
    """As a part of the most utility."""
    utility: float
    item_objective: float
    gini: float
    bottom_half: float
    sentence: str


def give_up(reached: Reachable, share: float) -> GivenUp:
    """See `Reachable.give_up`: utility falls as beta grows, so that bisection finds the beta.

    What is compared is reached: the cost of the beta that is returned is at most the share.
    """
    number = real_number("share", share)
    if not 0.0 <= number < 1.0:
        raise InvalidInput(
            f"share is {share!r}; give the part of utility that may be given up, such as 0.03"
        )
    most = float(np.mean([best.upper_bound for best in reached.best[0.0]]))
    if most <= 0.0:
        raise InvalidInput(f"the most utility is {most:g}, so no share of it can be given up")
    least = (1.0 - number) * most
    slack = 1e-9 * most  # the optimum of beta = 0 itself is only known up to rounding
    low, high = 0.0, np.inf
    for _ in range(_STEPS):
        utility = dict(zip(reached.best, reached.frontier.points[:, 1], strict=True))
        low = max(b for b, u in utility.items() if u >= least - slack or b == 0.0)
        high = min((b for b, u in utility.items() if b > low), default=np.inf)
        if utility[low] - least <= _CLOSE * number * most or high - low <= _NARROW * high:
            break
        if high == np.inf:
            beta = 4.0 * max(low, 1.0)
        else:
            beta = _between(reached, low, high)
        reached = reached.more([beta])
        if high == np.inf and _saturated(reached, low, beta):
            break
    optima = reached.best[low]
    measures = reached.measures(np.array([best.average for best in optima]))
    cost = max(1.0 - measures["utility"] / most, 0.0)
    plain = reached.measures(np.array([best.average for best in reached.best[0.0]]))
    shares = (100 * plain["bottom_half"], 100 * measures["bottom_half"])
    what = reached.reward
    sentence = (
        f"beta = {low:.3g} is the largest that gives up at most {100 * number:g} % of {what}: it "
        f"costs {100 * cost:.2g} %, and the least exposed half of the items has {shares[1]:.0f} % "
        f"of exposure instead of {shares[0]:.0f} %."
    )
    if high == np.inf:
        sentence = (
            f"No beta costs more than {100 * cost:.2g} % of {what}: with beta = {low:.3g} nothing "
            f"more is gained, and the least exposed half of the items has {shares[1]:.0f} % of "
            f"exposure instead of {shares[0]:.0f} %."
        )
    return GivenUp(
        beta=low,
        cost=cost,
        utility=measures["utility"],
        item_objective=measures["item_objective"],
        gini=measures["gini"],
        bottom_half=measures["bottom_half"],
        sentence=sentence,
    )


def _between(reached: Reachable, low: float, high: float) -> float:
    """The slope of the chord of two neighbours, or what lies between them."""
    points = dict(zip(reached.best, reached.frontier.points, strict=True))
    (x1, u1), (x2, u2) = points[low], points[high]
    slope = (u1 - u2) / (x2 - x1) if np.isfinite(x2 - x1) and x2 > x1 else np.nan
    narrow = 0.1 * (high - low)
    if low + narrow < slope < high - narrow:
        return float(slope)
    return float(np.sqrt(low * high)) if low > 0.0 else 0.25 * high


def _saturated(reached: Reachable, low: float, beta: float) -> bool:
    points = dict(zip(reached.best, reached.frontier.points[:, 0], strict=True))
    start = min(x for x in points.values() if np.isfinite(x))
    return bool(points[beta] - points[low] <= 1e-3 * (points[beta] - start))
