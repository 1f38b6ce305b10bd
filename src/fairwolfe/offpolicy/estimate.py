"""`Estimate` and its like: what policies would have earned, and what is not certain of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.tables import Brief, Summary, few, table_of
from fairwolfe.objectives.concave import Concave
from fairwolfe.objectives.threshold import FADED, Bounds, Rates
from fairwolfe.offpolicy.interval import Interval, Sampled
from fairwolfe.offpolicy.sums import Weights
from fairwolfe.plots import COLOURS, new_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_FEW = 100.0  # effective decisions below which normal approximations are doubtful
_LARGEST = 0.1  # of the sum of weights: one decision that decides everything
_HEAVY, _EVEN = 10.0, 0.9  # decisions with large weights, and the share of ess where they matter
_OFF = 3.0  # standard errors that a mean weight may be from 1
_HUGE = 1e4
_DRIFT = 1.2  # factor by which probabilities may change over the log
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Level:
    """A hard constraint at the estimate: kept is None where the data do not say.

    per: of a rate, the reward that it is per; per_average, per_logged: of that, and what the log
        has of it. Where it is not certainly above 0 the interval of the rate has no ends

    >>> print(Level("cost", "at most", 0.01, 0.008, 0.007, 0.009, True))
    cost would be 0.008 (0.007 to 0.009), to be at most 0.01: kept
    """

    name: str
    side: str
    level: float
    average: float
    low: float
    high: float
    kept: bool | None
    per: str = ""
    per_average: float = math.nan
    per_logged: float = math.nan

    def __str__(self) -> str:
        words = {True: "kept", False: "not kept", None: "not certain"}[self.kept]
        if self.per and not math.isfinite(self.low):
            return (
                f"{self.name} is not known, to be {self.side} {self.level:.4g}: {self.per} would "
                f"be {self.per_average:.2g}, not certainly above 0"
            )
        if self.per_average < FADED * self.per_logged:
            words += " only because" if self.kept else ";"
            words += f" {self.per} would vanish: {self.per_average:.2g}, not {self.per_logged:.2g}"
        return (
            f"{self.name} would be {self.average:.4g} ({self.low:.4g} to {self.high:.4g}), to be "
            f"{self.side} {self.level:.4g}: {words}"
        )


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(Brief):
    """low <= f of what the policy would have earned <= high, with the level's confidence.

    value: f of `average`; hard constraints are apart, in `constraints`
    average, errors: of each reward, and standard errors
    ess: how many decisions of the policy itself the log is worth
    bias: about how far `value` is too low, which matters at a kink of f
    warnings: sentences on what makes the numbers doubtful; empty where nothing does
    """

    value: float
    low: float
    high: float
    average: Vector
    errors: Vector
    ess: float
    bias: float
    n: int
    estimator: str
    level: float
    labels: tuple[str, ...]
    constraints: tuple[Level, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The estimate in words."""
        return (
            f"On these {self.n:,} decisions the policy would have earned an f of "
            f"{_number(self.value)}, between {_number(self.low)} and {_number(self.high)} with "
            f"{self.level:.0%} confidence; the log is worth {self.ess:,.0f} decisions of this "
            "policy."
        )

    def table(self) -> list[dict[str, object]]:
        """A row for each reward: name, average, error."""
        rows = zip(self.labels, self.average.tolist(), self.errors.tolist(), strict=True)
        return [{"reward": name, "average": value, "error": error} for name, value, error in rows]

    def to_frame(self, backend: str = "pandas") -> Any:
        """The rows of `table` as a table of "pandas", "polars" or "pyarrow"."""
        return table_of(self.table(), backend)

    def summary(self, most: int) -> Summary:
        """The interval, the averages, and what is doubtful."""
        parts = zip(self.labels, self.average, strict=True)
        rows = [
            ("average", few((f"{name} {value:.4g}" for name, value in parts), 6)),
            ("decisions", f"{self.n:,}, worth {self.ess:,.0f}"),
            *(("constraint", str(one)) for one in self.constraints),
            *(("warning", text) for text in self.warnings),
        ]
        title = f"f = {_number(self.value)}, {_number(self.low)} to {_number(self.high)}"
        return Summary(title, rows)


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedDifference(Brief):
    """f of the first policy minus f of the second, on the same decisions."""

    value: float
    low: float
    high: float
    first: Estimate
    second: Estimate
    level: float
    warnings: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The difference in words."""
        sure = "which of them is better is not certain"
        if self.low > 0.0:
            sure = "the first is better"
        elif self.high < 0.0:
            sure = "the second is better"
        return (
            f"The first policy's f is {_number(self.value)} more than the second's, between "
            f"{_number(self.low)} and {_number(self.high)} with {self.level:.0%} confidence: "
            f"{sure}."
        )

    def summary(self, most: int) -> Summary:
        """The interval, and both values."""
        rows = [
            ("first", _number(self.first.value)),
            ("second", _number(self.second.value)),
            *(("warning", text) for text in self.warnings),
        ]
        title = f"difference {_number(self.value)}, {_number(self.low)} to {_number(self.high)}"
        return Summary(title, rows)


def _number(x: float) -> str:
    if math.isnan(x):
        return "not defined"
    return f"{x:.4g}" if math.isfinite(x) else ("infinity" if x > 0 else "minus infinity")


def _limits(f: Concave, n: int) -> Iterator[tuple[Bounds, Matrix]]:
    """The hard constraints of f, each with the rows that it limits."""
    for scale, leaf, matrix in f.split(n):
        if scale and isinstance(leaf, Bounds):
            yield leaf, np.asarray(matrix.toarray())


def levels(f: Concave, sampled: Sampled, quantile: float, logged: Vector) -> tuple[Level, ...]:
    """The hard constraints of a bound f at an estimate; logged: the average of the log itself."""
    constraints: list[Level] = []
    for leaf, matrix in _limits(f, sampled.z.size):
        x = np.asarray(matrix @ sampled.z)
        errors = quantile * sampled.error(matrix)
        whole = float(x[-1]) if leaf.shares else 1.0
        if isinstance(leaf, Rates):
            constraints += _rates(leaf, matrix, sampled, quantile, float(matrix[-1] @ logged))
            continue
        for i in range(leaf.limited):
            for bound, side in ((leaf.low[i], "at least"), (leaf.high[i], "at most")):
                if not math.isfinite(bound):
                    continue
                level = leaf.shares[i] if leaf.shares else bound
                average = x[i] / whole + leaf.shares[i] if leaf.shares else x[i]
                margin = float(errors[i] / whole)
                low, high = float(average - margin), float(average + margin)
                kept = _kept(side, float(level), low, high)
                name = leaf.names[i] if leaf.names else f"row {i}"
                constraints.append(Level(name, side, float(level), float(average), low, high, kept))
    return tuple(constraints)


def _kept(side: str, level: float, low: float, high: float) -> bool | None:
    """Whether an interval is on one side of a level."""
    inside = low >= level if side == "at least" else high <= level
    outside = high < level if side == "at least" else low > level
    return True if inside else False if outside else None


def _rates(
    leaf: Rates, matrix: Matrix, sampled: Sampled, quantile: float, logged: float
) -> Iterator[Level]:
    """Rates r/w with the interval of Fieller (1954): the rates R for which r - R w is not certainly
    above or below 0. Its ends are where (r - R w)^2 = q^2 var(r - R w).
    """
    w = float(matrix[-1] @ sampled.z)
    for i, level in enumerate(leaf.shares):
        pair = np.array([matrix[i] + level * matrix[-1], matrix[-1]])
        r = float(pair[0] @ sampled.z)
        (a, b), (_, c) = quantile**2 / sampled.n * (pair @ sampled.covariance @ pair.T)
        low, high, rest = -math.inf, math.inf, w * w - c
        if w > 0.0 and rest > 0.0:
            middle, half = r * w - b, math.sqrt(max((r * w - b) ** 2 - rest * (r * r - a), 0.0))
            low, high = (middle - half) / rest, (middle + half) / rest
        side = "at least" if leaf.low[i] > -math.inf else "at most"
        kept, average = _kept(side, level, low, high), r / w if w > 0.0 else math.nan
        yield Level(leaf.names[i], side, level, average, low, high, kept, leaf.per, w, logged)


def described(
    f: Concave, interval: Interval, sampled: Sampled, weights: Weights, labels: tuple[str, ...]
) -> tuple[str, ...]:
    """What makes an estimate doubtful, in sentences."""
    sentences = []
    if weights.ess < _FEW:
        sentences.append(
            f"the log is worth {weights.ess:,.0f} decisions of this policy, and from fewer than "
            f"{_FEW:.0f} the interval is not to be trusted: choose a policy nearer to the one that "
            "logged, or log more"
        )
    if weights.share > _LARGEST:
        sentences.append(
            f"one decision has {weights.share:.0%} of all weight (a weight of "
            f"{weights.largest:,.0f}): the policy often does what the log hardly ever did"
        )
    elif weights.heavy < _HEAVY and weights.ess < _EVEN * weights.n:
        sentences.append(
            f"about {weights.heavy:.0f} decisions have far larger weights than the rest (up to "
            f"{weights.largest:,.0f}): the log hardly ever did what the policy does there, and the "
            "interval may be too narrow; log more of it"
        )
    elif weights.largest > _HUGE:
        sentences.append(
            f"the largest weight is {weights.largest:,.0f}: are the probabilities right?"
        )
    if abs(weights.mean - 1.0) > _OFF * weights.error + _ROUNDING:
        sentences.append(
            f"the mean weight is {weights.mean:.3f}, more than three standard errors from 1: the "
            "logged probabilities are wrong, or the policy does what the log never did"
        )
    if not 1.0 / _DRIFT < weights.drift < _DRIFT:
        sentences.append(
            f"the logged probabilities of what the policy does changed by a factor of "
            f"{weights.drift:.2g} over the log, so the policy that logged was learning: the "
            "interval may be too narrow; use stabilised=True"
        )
    few = set(interval.rare)
    for leaf, matrix in _limits(f, sampled.z.size):
        few.update(sampled.rare(matrix[: leaf.limited]))
    if rare := sorted(few):
        names = ", ".join(labels[i] for i in rare[:3]) + (", ..." if len(rare) > 3 else "")
        sentences.append(
            f"too few weighted decisions differ in {names}, or a few are far larger than the rest: "
            "the interval allows for what was not seen, but may still be too narrow if the values "
            "are skewed; log more, or choose a policy nearer to the one that logged"
        )
    if interval.edge:
        names = ", ".join(labels[i] for i in interval.edge[:3])
        sentences.append(
            f"f is not defined much below the estimate ({names} is within four standard errors of "
            f"the edge of its domain): the low end is {_number(interval.low)}, the least that the "
            "ranges leave possible"
        )
    if interval.bias > interval.spread > 0.0:
        sentences.append(
            f"f is at a kink here: its value at the estimate is low by about {interval.bias:.2g}, "
            f"more than its standard deviation of {interval.spread:.2g}; the interval allows for "
            "it, the value alone does not"
        )
    return tuple(sentences)


def intervals(estimates: Mapping[str, Estimate], title: str) -> Figure:
    """A line for each policy; one that reaches minus infinity has an arrow."""
    figure = new_figure(7.0, 1.4 + 0.42 * len(estimates))
    ax = figure.add_subplot()
    ends = [
        x for one in estimates.values() for x in (one.low, one.high, one.value) if np.isfinite(x)
    ]
    low, high = min(ends, default=0.0), max(ends, default=1.0)
    left = low - 0.08 * max(high - low, 1e-9)
    for row, (name, one) in enumerate(estimates.items()):
        colour = COLOURS[0] if name != "as logged" else COLOURS[6]
        start = one.low if np.isfinite(one.low) else left
        ax.plot([start, one.high], [row, row], color=colour, linewidth=2.0, solid_capstyle="butt")
        if not np.isfinite(one.low):
            ax.plot([left], [row], marker="<", color=colour)
        if np.isfinite(one.value):
            ax.plot([one.value], [row], marker="o", color=colour)
    ax.set_yticks(range(len(estimates)), list(estimates))
    ax.invert_yaxis()
    level = next(iter(estimates.values())).level
    ax.set_xlabel(f"f of the average rewards, {level:.0%} intervals")
    ax.set_title(title, fontsize=10)
    ax.grid(axis="x", alpha=0.3)
    return figure


@dataclass(frozen=True)
class Point:
    """One beta: the policy that was learnt for users + beta fair, and both on other decisions."""

    beta: float
    policy: Any
    users: Estimate
    fair: Estimate
    value: Estimate


@dataclass(frozen=True, eq=False, repr=False)
class EstimatedFrontier(Brief):
    """A point for each beta, in the order in which they were given."""

    points: tuple[Point, ...]

    def table(self) -> list[dict[str, float]]:
        """A row for each beta, with the ends of the intervals."""
        rows = []
        for point in self.points:
            row = {"beta": point.beta}
            for name in ("users", "fair", "value"):
                one: Estimate = getattr(point, name)
                row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
            rows.append(row)
        return rows

    def to_frame(self, backend: str = "pandas") -> Any:
        """The rows of `table` as a table of "pandas", "polars" or "pyarrow"."""
        return table_of(self.table(), backend)

    def summary(self, most: int) -> Summary:
        """Users and fairness by beta."""
        rows = [
            (f"beta {p.beta:g}", f"users {_with_interval(p.users)}, fair {_with_interval(p.fair)}")
            for p in self.points[:most]
        ]
        return Summary(f"{len(self.points)} policies learnt from the log", rows)


def _with_interval(one: Estimate) -> str:
    return f"{one.value:.4g} ({one.low:.4g} to {one.high:.4g})"
