"""Betas where they are needed: between neighbours of the frontier that are far apart.

Two neighbours with betas b1 < b2 leave a triangle in which the frontier lies: above the chord of
their points, below the certified lines of both. The beta that is the slope of the chord cuts it:
its optimum is a new corner, or proves that the frontier is straight there.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TypeVar

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.fairness.tradeoff.reachable import Reachable

__all__ = ["refined", "spread"]

_MOST = 40  # betas
_GAP = 2e-3  # height of a triangle, in units of the most utility
_STEP = 0.08  # between neighbours: of the Gini index, or of the range of utility
_CERTAIN = 3.0  # a triangle lower than this many times the gaps of its optima cannot be cut
_SATURATED = 1e-3  # of the range of the item objective: what more beta brings at the end of gains
_QUADRUPLINGS = 12  # to get there
_FINER = 0.1  # of the given tolerance: by this triangles can be distinguished

R = TypeVar("R", bound=Reachable)


def _ends(reached: R) -> R:
    """With a beta at which gains end: four times as much brings nearly nothing."""
    for _ in range(_QUADRUPLINGS):
        if _ended(reached):
            break
        reached = _more(reached, [max(1.0, 4.0 * max(reached.best))])
    return reached


def _ended(reached: Reachable) -> bool:
    value = dict(zip(reached.best, reached.frontier.points[:, 0], strict=True))
    last = max(value)
    before = [beta for beta in value if 0.0 < beta <= 0.25 * last]
    if not before:
        return False
    start = min(x for x in value.values() if np.isfinite(x))
    return bool(value[last] - value[max(before)] <= _SATURATED * (value[last] - start))


def refined(reached: R) -> R:
    """Up to the end of gains, cut every triangle that is high, or whose ends are far apart."""
    reached = _ends(reached)
    while len(reached.best) < _MOST:
        betas = _wanted(reached)
        if not betas:
            break
        reached = _more(reached, betas[: _MOST - len(reached.best)])
    return reached


def _more(reached: R, betas: list[float]) -> R:
    return reached.more(betas, _FINER * reached.optima.tolerance if reached.optima else None)


def _wanted(reached: Reachable) -> list[float]:
    rows, bounds = reached.rows(), reached.frontier.bounds
    utility = np.array([row["utility"] for row in rows])
    top, span = float(np.abs(utility).max()), float(np.ptp(utility))
    betas = []
    for i, (one, two) in enumerate(pairwise(rows)):
        b1, b2 = one["beta"], two["beta"]
        lost = one["utility"] - two["utility"]
        gained = two["item_objective"] - one["item_objective"]
        apart = one["gini"] - two["gini"] > _STEP or lost > _STEP * span
        if not np.isfinite(gained):  # the logarithm of nothing: there is no chord
            if apart and lost > _GAP * top:
                betas.append(b1 + 0.25 * (b2 - b1))
            continue
        if not (gained > 0.0 and lost > 0.0 and b1 < lost / gained < b2):
            continue
        height = _height(one, two, float(bounds[i]), float(bounds[i + 1]))
        cut = _CERTAIN * (one["certified_gap"] + two["certified_gap"])
        if height > cut and (apart or height > _GAP * top):
            betas.append(lost / gained)
    return betas


def _height(one: dict[str, float], two: dict[str, float], first: float, second: float) -> float:
    """Of the triangle, over its chord."""
    b1, b2 = one["beta"], two["beta"]
    x = (second - first) / (b2 - b1)
    slope = (two["utility"] - one["utility"]) / (two["item_objective"] - one["item_objective"])
    return first - b1 * x - (one["utility"] + slope * (x - one["item_objective"]))


def spread(reached: Reachable, most: int) -> tuple[float, ...]:
    """A few of the betas, evenly along the curve of utility over the Gini index.

    The last is the smallest at which gains have ended.
    """
    betas = np.array(list(reached.best))
    rows = reached.rows()
    items = np.array([row["item_objective"] for row in rows])
    start = items[np.isfinite(items)].min()
    ended = items >= items.max() - 5.0 * _SATURATED * (items.max() - start)
    last = int(np.flatnonzero(ended)[0])
    gini = np.array([row["gini"] for row in rows[: last + 1]])
    utility = np.array([row["utility"] for row in rows[: last + 1]])
    steps = np.hypot(_of_range(gini), _of_range(utility))
    along = np.concatenate([[0.0], np.cumsum(steps)])
    targets = np.linspace(0.0, along[-1], most)
    chosen = {int(np.abs(along - target).argmin()) for target in targets}
    return tuple(float(betas[i]) for i in sorted(chosen))


def _of_range(values: Vector) -> Vector:
    """Steps from one to the next, as parts of the range."""
    span = float(np.ptp(values))
    steps: Vector = np.diff(values) / span if span > 0.0 else np.zeros(len(values) - 1)
    return steps
