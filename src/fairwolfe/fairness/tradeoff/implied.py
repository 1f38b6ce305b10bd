"""`implied`: the betas that make a status quo optimal, or what dominates it.

For f = utility + beta items and a status quo s0, R(beta) = f* - f(s0) is convex in beta: a maximum
of affine functions less an affine one. It is at least 0 for what can be reached, and 0 where s0 is
optimal. So the betas with R <= eps are an interval, and if it is empty, some policy is as fair
and has more utility.

Every average (g_j, u_j) that is reached bounds R from below by (u_j - u0) + beta (g_j - g0), for
all betas at once: the interval in which all of these are at most eps holds every beta with
R <= eps, and shrinks with each optimum at one of its ends (Newton's method, from
outside). The upper bounds of the optima bound R from above: so it is known what no policy reaches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import positive, real_number
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.fairness.tradeoff.reachable import Reachable
from fairwolfe.simulation.exposure import utility

__all__ = ["Better", "Implied", "StatusQuo", "implied", "regret"]

StatusQuo = Mapping[str, float] | Sequence[float] | Vector

_SOLVES = 60  # optima that are computed, at most
_FINE = 0.25  # gaps of the optima, in units of eps
_NEAR = 1e-3  # ends that move less than this part of themselves have settled
_FINEST = 1e-5  # relative tolerance of an optimum: beyond it passes are dear
_LARGEST = 256.0  # times the largest beta that is known: beyond it beta is as good as infinite


class Better(NamedTuple):
    """What dominates a status quo: reached by some policy, with at least its item objective."""

    utility: float
    percent: float
    """How much more utility that is."""
    at_most: float
    """No policy that is as fair has more than that many percent more."""


class Implied(NamedTuple):
    """What a status quo shows about beta."""

    utility: float
    item_objective: float
    beta: tuple[float, float] | None
    """For every beta outside of it something better by more than the tolerance is known; None where
    that is so for all betas, or where no policy reaches the status quo."""
    regret: tuple[float, float]
    """Bounds on the smallest R over all betas, in units of utility."""
    nearest: float
    """The beta with the smallest R."""
    dominated_by: Better | None
    attainable: bool
    sentence: str


def regret(reached: Reachable, status_quo: StatusQuo, beta: float) -> tuple[float, float]:
    """See `Reachable.regret`."""
    u0, g0 = _sides(reached, status_quo)
    number = real_number("beta", beta)
    if not 0.0 <= number < np.inf:
        raise InvalidInput(f"beta is {beta!r}; give a finite number of at least 0")
    known = reached if number in reached.best else reached.more([number])
    return _bounds(known, number, u0, g0)


def _bounds(reached: Reachable, beta: float, u0: float, g0: float) -> tuple[float, float]:
    low, high = np.mean([(best.value, best.upper_bound) for best in reached.best[beta]], axis=0)
    here = u0 + beta * g0
    return float(low - here), float(high - here)


def _sides(reached: Reachable, status_quo: Any) -> tuple[float, float]:
    """Utility and item objective."""
    problem = reached.problem
    if not isinstance(status_quo, Mapping):
        average = np.asarray(status_quo, dtype=np.float64)
        return utility(average, problem), reached.items.value(average[: problem.n_items])
    kinds = {"utility", "item_objective"}, {"utility", "gini"}
    if set(status_quo) not in kinds:
        raise InvalidInput(
            f"the status quo has {', '.join(map(repr, status_quo)) or 'nothing'}; give utility and "
            "item_objective (as in the table), or utility and gini"
        )
    numbers = {name: real_number(name, value) for name, value in status_quo.items()}
    for name, number in numbers.items():
        if not np.isfinite(number):
            raise InvalidInput(f"{name} of the status quo is {number}; give a finite number")
    if "gini" not in numbers:
        return numbers["utility"], numbers["item_objective"]
    if not 0.0 <= numbers["gini"] <= 1.0:
        raise InvalidInput(f"gini is {numbers['gini']:g}; give a Gini index, from 0 to 1")
    value = reached.item_objective_at(numbers["gini"])
    if value is None:
        raise InvalidInput(
            f"{type(reached.items).__name__} is not a function of the Gini index; give "
            "item_objective, as in the table"
        )
    return numbers["utility"], float(value)


def implied(reached: Reachable, status_quo: StatusQuo, tolerance: float = 1e-3) -> Implied:
    """See `Reachable.implied`."""
    u0, g0 = _sides(reached, status_quo)
    most = float(np.mean([best.upper_bound for best in reached.best[0.0]]))
    eps = positive("tolerance", tolerance) * max(abs(most), 1e-300)
    search = _Search(reached, u0, g0, eps)
    nearest, low, high = search.smallest()
    attainable = high >= -eps
    ends = search.ends() if attainable else None
    better = None
    if attainable and ends is None:
        nearest, low, high = search.smallest()
        frontier = search.reached.frontier
        more, top = float(frontier.lower(g0)[0]), float(frontier.upper(g0)[0])
        percents = (100.0 * (u - u0) / abs(u0) if u0 else np.inf for u in (more, top))
        better = Better(more, *percents)
    sentence = _sentence(reached, u0, tolerance, ends, better, (low, high), nearest)
    return Implied(u0, g0, ends, (low, high), nearest, better, attainable, sentence)


class _Search:
    """The bounds on R that are known, and the optima that make them closer."""

    def __init__(self, reached: Reachable, u0: float, g0: float, eps: float) -> None:
        self.reached, self.u0, self.g0, self.eps = reached, u0, g0, eps
        self.left = _SOLVES
        self.largest = _LARGEST * max(*reached.best, 1.0)
        self.fine: set[float] = set()  # betas whose optima were computed here

    def solve(self, beta: float) -> None:
        """Find the optimum of a beta, with a gap that is small beside eps."""
        size = max(1.0, abs(self.u0 + beta * self.g0))
        finest = max(_FINE * self.eps / size, _FINEST)
        try:
            self.reached = self.reached.more([beta], finest)
        except NumericalFailure:  # a wider gap leaves the bounds certain
            self.reached = self.reached.more([beta])
        self.fine.add(beta)
        self.left -= 1

    def lines(self) -> tuple[Vector, Vector]:
        """Slopes and heights of the affine lower bounds of R."""
        points = self.reached.frontier.points
        points = points[np.isfinite(points).all(axis=1)]
        return points[:, 0] - self.g0, points[:, 1] - self.u0

    def smallest(self) -> tuple[float, float, float]:
        """The beta of the smallest R, and bounds on that R; cutting planes."""
        while True:
            beta, low = self._lowest()
            upper = {b: _bounds(self.reached, b, self.u0, self.g0)[1] for b in self.reached.best}
            best = min(upper, key=upper.__getitem__)
            high = upper[best]
            close = high - low <= _FINE * self.eps or high < -self.eps
            if close or beta in self.fine or beta > self.largest or self.left <= 0:
                return best, min(low, high), high
            self.solve(beta)

    def _lowest(self) -> tuple[float, float]:
        """Where the lower bound of R is lowest, and how low; the next beta to try if it falls."""
        slopes, heights = self.lines()
        if slopes.max() <= 0.0:
            return 4.0 * max(*self.reached.best, 0.25), -np.inf
        at = np.concatenate([[0.0], _crossings(slopes, heights)])
        values = (heights[:, None] + at * slopes[:, None]).max(axis=0)
        return float(at[values.argmin()]), float(values.min())

    def ends(self) -> tuple[float, float] | None:
        """The interval of all betas with R <= eps, from outside; None if it turns out empty."""
        while True:
            low, high = self._within()
            if low > high:
                return None
            beta = self._unsettled(low, high)
            if beta is None or self.left <= 0:
                return low, high
            self.solve(beta)

    def _within(self) -> tuple[float, float]:
        """The betas at which all lower bounds are at most eps: an interval, empty if low > high."""
        slopes, heights = self.lines()
        rising, falling = slopes > 0.0, slopes < 0.0
        if (heights[slopes == 0.0] > self.eps).any():
            return np.inf, 0.0
        low = ((heights[falling] - self.eps) / -slopes[falling]).max(initial=0.0)
        high = ((self.eps - heights[rising]) / slopes[rising]).min(initial=np.inf)
        return float(low), float(high) if high <= self.largest else np.inf

    def _unsettled(self, low: float, high: float) -> float | None:
        """The end that is worth an optimum; None where both have settled."""
        beyond = 4.0 * max(*self.reached.best, 0.25)
        if high == np.inf and beyond <= self.largest:
            return beyond
        for end in (low, high):
            if 0.0 < end < np.inf and not any(abs(b - end) <= _NEAR * end for b in self.fine):
                return end
        return None


def _crossings(slopes: Vector, heights: Vector) -> Vector:
    """The betas > 0 at which two of the lines cross."""
    i, j = np.triu_indices(len(slopes), 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        at = (heights[i] - heights[j]) / (slopes[j] - slopes[i])
    finite: Vector = at[np.isfinite(at) & (at > 0.0)]
    return finite


def _sentence(
    reached: Reachable,
    u0: float,
    tolerance: float,
    ends: tuple[float, float] | None,
    better: Better | None,
    bounds: tuple[float, float],
    nearest: float,
) -> str:
    what = reached.reward
    today = f"Today's {u0:.3g} {what}"
    if better is not None:
        return (
            f"{today} are dominated: no beta makes them the best, since some policy reaches the "
            f"same equality with {better.percent:.1f} % more {what} (certified; no policy has "
            f"more than {better.at_most:.1f} % more). The nearest beta is {nearest:.3g}."
        )
    if ends is None:
        over = -bounds[1]
        return (
            f"{today} are not attainable here: no policy that is as fair has more than "
            f"{u0 - over:.3g} {what} (certified). The status quo was measured elsewhere, or with "
            "noise; give a larger tolerance if it is noise."
        )
    noise = ""
    if bounds[1] < 0.0:
        noise = (
            f" They are {-bounds[1]:.2g} above what can be reached, which is within the noise "
            "that the tolerance allows for."
        )
    low, high = ends
    if low == 0.0 and high == np.inf:
        return f"{today} with this equality are the best for every beta.{noise}"
    which = f"beta between {low:.3g} and {high:.3g}"
    if high == np.inf:
        which = f"every beta from {low:.3g} on"
    elif low == 0.0:
        which = f"every beta up to {high:.3g}"
    return (
        f"{today} with this equality are the best for {which}; for any other beta something is "
        f"better by more than {100 * tolerance:g} % of {what} (certified).{noise}"
    )
