"""Estimators as sums of rows: their means, covariances, weights, and what is made of them.

A `Side` is a policy with its estimator. In every chunk it has a row (D,) for each decision, whose
mean over the log is the estimate, and a weight. IPS, SNIPS and doubly robust rows for arms are
here; `ranking_estimators` has those for rankings.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.errors import InvalidInput
from fairwolfe.offpolicy.decisions import LoggedArms, LoggedRankings
from fairwolfe.offpolicy.interval import Sampled
from fairwolfe.offpolicy.models import cross_predictions
from fairwolfe.offpolicy.ranking_estimators import exposure_ratio, ranking_rows, whole_weights
from fairwolfe.offpolicy.sums import About, Data, Source, Tally, Weights, weight_sums
from fairwolfe.offpolicy.targets import target_of

ESTIMATORS = ("ips", "snips", "dr")

NO_OVERLAP = {
    "arms": "no action that was logged has a positive probability under the policy: there is no "
    "overlap, and nothing is known about it",
    "ranking": "no ranking that was logged has a positive probability under the policy: there is "
    "no overlap; weigh exposures instead (estimator='exposure'), for which item-at-rank "
    "probabilities are logged",
}

_LEAST = 0.1  # of the mean square of weights under uniform choices
_RARE = 10.0  # decisions that differ, below which the size of an event is not known
_TREND, _SURE = 40, 4.0  # decisions of a trend, and standard errors that it must have
_FLAT = 1e-9  # spread of the logarithms of probabilities without a trend
_FIRST, _GROWTH = 50, 1.25  # decisions of the first block, and how blocks of equal weight grow
_ROUNDING = 1e-12  # of a variance, relative to the squares that it is a difference of


@dataclass(eq=False)
class Side:
    """A policy, and how it is evaluated.

    predict: of "dr", the parameters (folds, blocks, D, d) of linear models, or predictions
    ratio: of "snips" the estimate z, the mean weight, and z of both halves; of "exposure" the sums
        of its ratios
    """

    policy: Any
    estimator: str
    predict: Any = None
    ratio: Any = None
    _target: Any = None

    @property
    def logged(self) -> bool:
        """Whether it is whatever logged."""
        return isinstance(self.policy, str) and self.policy == "logged"

    def target(self, about: About, make: Callable[[Any, About], Any]) -> Any:
        """The policy as a target, made once."""
        if self._target is None:
            self._target = make(self.policy, about)
        return self._target

    def weighted(self, w: Vector, totals: Matrix) -> Matrix:
        """w r; for "snips" its influence on the ratio z = sum w r/sum w, with mean z."""
        if self.estimator == "ips":
            return w[:, None] * totals
        z, mean, _ = self.ratio
        return np.asarray(z + w[:, None] * (totals - z) / mean)

    def rows(self, about: About, span: slice, chunk: Data) -> tuple[Matrix, Vector]:
        """The rows (n, D) and the weights (n,) of a chunk."""
        if self.logged:
            return chunk.totals(), np.ones(chunk.n)
        if isinstance(chunk, LoggedRankings):
            return ranking_rows(self, about, span, chunk)
        pi, w = self._arms(about, span, chunk)
        if self.estimator != "dr":
            return self.weighted(w, chunk.rewards), w
        part, predict = chunk.parts[0], self.predict
        if isinstance(predict, np.ndarray):
            predict = cross_predictions(predict)
        q = predict(span, part)
        there = q[np.arange(part.n), chunk.actions]
        return np.einsum("nk,nkd->nd", pi, q) + w[:, None] * (chunk.rewards - there), w

    def weights(self, about: About, span: slice, chunk: Data) -> Vector:
        """The weights (n,) of whole decisions."""
        if isinstance(chunk, LoggedRankings):
            return whole_weights(self, about, span, chunk)
        return self._arms(about, span, chunk)[1]

    def _arms(self, about: About, span: slice, chunk: LoggedArms) -> tuple[Matrix, Vector]:
        pi = self.target(about, target_of)(span, chunk.parts[0])
        return pi, pi[np.arange(chunk.n), chunk.actions] / chunk.probability


# --- the sums ----------------------------------------------------------------------------------


class Blocks(NamedTuple):
    """Weights h of decisions that even out the variance: from place `starts` on they are `values`;
    none of either: all 1.
    """

    starts: IntVector
    values: Vector

    def of(self, span: slice) -> Vector:
        """(n,)."""
        if not self.values.size:
            return np.ones(span.stop - span.start)
        places = np.arange(span.start, span.stop)
        return np.asarray(self.values[np.searchsorted(self.starts, places, "right") - 1])


EVEN = Blocks(np.zeros(0, dtype=np.int64), np.zeros(0))


class RowSums(NamedTuple):
    """Of rows u, and of c = u - origin, with stabilising weights h; rows of even and of odd place
    are the halves.

    total (2,), sums (2, q): of h and h u by half; lines, squares: of h^2 c and h^2 c c'; square: of
    h^2; cubes (4, q): of h^3 c^k. By side: weights (4,), the largest, values of rewards, and sums
    (6,) of the trend of log p
    """

    n: int
    total: Vector
    sums: Matrix
    square: float
    lines: Vector
    squares: Matrix
    cubes: Matrix
    weights: tuple[Vector, ...]
    most_weight: tuple[float, ...]
    tallies: tuple[Tally, ...]
    trends: tuple[Vector, ...]


@dataclass(frozen=True, eq=False)
class Rows:
    """Those sums of some sides, beside each other; origin (q,): numbers are summed relative to it,
    to keep their digits.
    """

    sides: tuple[Side, ...]
    origin: Vector
    blocks: Blocks = EVEN

    def sums(self, about: About, span: slice, chunk: Data) -> RowSums:
        """Of one chunk."""
        made = [side.rows(about, span, chunk) for side in self.sides]
        rows = np.hstack([rows for rows, _ in made])
        c = rows - self.origin
        h = self.blocks.of(span)
        halves = _halves(h, span)
        scaled, cube = c * h[:, None], h**3
        rewards = chunk.totals()[:, about.problem.n_items or 0 :]
        each = [w for _, w in made]
        return RowSums(
            chunk.n,
            halves.sum(axis=1),
            halves @ rows,
            float(h @ h),
            h @ scaled,
            scaled.T @ scaled,
            np.array([cube.sum() + 0.0 * c[0], cube @ c, cube @ c**2, cube @ c**3]),
            tuple(map(weight_sums, each)),
            tuple(float(w.max()) for w in each),
            tuple(Tally.of(w, rewards) for w in each),
            tuple(_trend_sums(chunk.probability, w, span, about.n) for w in each),
        )


def _trend_sums(p: Vector, w: Vector, span: slice, n: int) -> Vector:
    """Of log p and time, which goes from -1/2 to 1/2, where w > 0: how many, log p, its square,
    time, its square, and both.
    """
    own = np.flatnonzero((w > 0.0) & (p > 0.0))
    logs, time = np.log(p[own]), (own + span.start + 0.5) / n - 0.5
    return np.array([own.size, logs.sum(), logs @ logs, time.sum(), time @ time, logs @ time])


def _drift(sums: Vector) -> float:
    """By which factor logged probabilities changed from the first third to the last, by a line
    through their logarithms; 1.0 where no trend is certain.
    """
    n, logs, squares, times, spans, crossed = sums.tolist()
    if n < _TREND:
        return 1.0
    both = crossed - logs * times / n
    spread, width = squares - logs * logs / n, spans - times * times / n
    if spread <= n * _FLAT**2 + _ROUNDING * squares or width <= 0.0:
        return 1.0
    if abs(both) <= _SURE * np.sqrt(spread * width / n):
        return 1.0
    return float(np.exp(both / width * 2.0 / 3.0))


# --- what is made of them ----------------------------------------------------------------------


class Estimated(NamedTuple):
    """Of each side the estimate, its weights, and the covariance (q, q) of all sides together."""

    parts: tuple[tuple[Sampled, Weights], ...]
    covariance: Matrix


def estimated(
    source: Source, sides: tuple[Side, ...], origin: Vector, stabilised: bool = False
) -> Estimated:
    """The estimates of some sides on the same decisions; origin (D,): about where they are."""
    about, d = source.about, origin.size
    blocks = _stabilising(source, sides[0]) if stabilised else EVEN
    sides = tuple(_with_ratio(source, side, blocks) for side in sides)
    origin = np.tile(origin, len(sides))
    sums: RowSums = source.total(Rows(sides, origin, blocks))
    whole = sums.total.sum()
    mean = sums.sums.sum(axis=0) / whole
    offset = mean - origin
    # Sum of h^2 (u - mean)(u - mean)', times n over the square of the sum of h.
    crossed = np.outer(sums.lines, offset)
    spread = sums.squares - crossed - crossed.T + sums.square * np.outer(offset, offset)
    halves = _parts(sums.sums, sums.total, mean)
    covariance = spread * (sums.n / whole**2)
    sizes = _sizes(sums, offset, whole / sums.n)
    parts = []
    for i in range(len(sides)):
        own = slice(i * d, (i + 1) * d)
        drift = 1.0 if stabilised or sides[i].logged else _drift(sums.trends[i])
        weights = Weights.of(sums.n, sums.weights[i], float(sums.most_weight[i]), drift)
        if weights.mean == 0.0:
            raise InvalidInput(NO_OVERLAP[about.problem.kind])
        few = sums.tallies[i].different() < _RARE
        most = weights.typical * (about.problem.high - about.problem.low)
        rare = np.concatenate([np.zeros(d - few.size, dtype=bool), few])
        size = np.where(rare, np.maximum(sizes[own], most), sizes[own])
        z, both = mean[own], halves[:, own]
        if sides[i].estimator == "snips" and not sides[i].logged:
            z, _, both = sides[i].ratio  # which keep to the ranges of the rewards
        parts.append((Sampled(z, covariance[own, own], both, sums.n, size), weights))
    return Estimated(tuple(parts), covariance)


def _parts(sums: Matrix, total: Vector, whole: Vector) -> Matrix:
    """The means of both halves, (2, q); that of all where one has no weight."""
    safe = np.maximum(total, 1e-300)[:, None]
    return np.where(total[:, None] > 0.0, sums / safe, whole)


def _sizes(sums: RowSums, mean: Vector, scale: float) -> Vector:
    """The size (q,) of an event: |sum u^3|/sum u^2, u = h (c - mean)/scale the influence of a row
    on the estimate; scale: the mean of h.
    """
    raw = np.diag(sums.squares)
    squares = raw - 2.0 * mean * sums.lines + mean**2 * sums.square
    ones, lines, second, third = sums.cubes
    cubes = third - 3.0 * mean * second + 3.0 * mean**2 * lines - mean**3 * ones
    seen = squares > _ROUNDING * (raw + mean**2 * sums.square)
    sizes = np.divide(np.abs(cubes), squares, out=np.zeros(mean.size), where=seen)
    return np.asarray(sizes / scale)


class WeightedSums(NamedTuple):
    """Of h w r (2, D) and of h w (2,) by half, and of h."""

    rewards: Matrix
    weights: Vector
    even: float


@dataclass(frozen=True, eq=False)
class Weighted:
    """Those sums."""

    side: Side
    blocks: Blocks

    def sums(self, about: About, span: slice, chunk: Data) -> WeightedSums:
        """Of one chunk."""
        h = self.blocks.of(span)
        halves = _halves(h * self.side.weights(about, span, chunk), span)
        return WeightedSums(halves @ chunk.totals(), halves.sum(axis=1), float(h.sum()))


def _halves(weights: Vector, span: slice) -> Matrix:
    """The weights of even and those of odd places, (2, n)."""
    odd = np.arange(span.start, span.stop) % 2
    return np.array([weights * (odd == half) for half in range(2)])


def _with_ratio(source: Source, side: Side, blocks: Blocks) -> Side:
    """With what its rows need of the whole log."""
    if side.logged:
        return side
    if side.estimator == "snips":
        sums: WeightedSums = source.total(Weighted(side, blocks))
        weight = sums.weights.sum()
        if weight == 0.0:
            raise InvalidInput(NO_OVERLAP[source.about.problem.kind])
        z = sums.rewards.sum(axis=0) / weight
        return replace(side, ratio=(z, weight / sums.even, _parts(sums.rewards, sums.weights, z)))
    if side.estimator == "exposure":
        return replace(side, ratio=exposure_ratio(source, side))
    return side


# --- stabilising -------------------------------------------------------------------------------


class SquareSums(NamedTuple):
    """Of w^2 by segment of the log, and what they would be under uniform choices."""

    squares: Vector
    uniform: float


@dataclass(frozen=True, eq=False)
class Squares:
    """Those sums; cuts: where segments begin."""

    side: Side
    cuts: IntVector

    def sums(self, about: About, span: slice, chunk: LoggedArms) -> SquareSums:
        """Of one chunk."""
        part, known = chunk.parts[0], chunk.distribution[0]
        pi, w = self.side._arms(about, span, chunk)
        square, squares = pi**2, w * w
        if known is not None:
            p = np.where(known > 0.0, known, 1.0)
            full = ~np.isnan(known).any(axis=1) & ~((square > 0.0) & (known <= 0.0)).any(axis=1)
            squares = np.where(full, (square / p).sum(axis=1), squares)
        segment = np.searchsorted(self.cuts, np.arange(span.start, span.stop), "right") - 1
        uniform = part.allowed().sum(axis=1) @ square.sum(axis=1)
        by_segment: Any = np.bincount(segment, squares, self.cuts.size)
        return SquareSums(by_segment, float(uniform))


def _stabilising(source: Source, side: Side) -> Blocks:
    """Weights h_t in the order of the log that even out the variance, for adaptive logging: one
    over the root of the mean square of w in the later half of what came before, so that h_t depends
    on the past only and means stay unbiased.

    Blocks of equal h_t grow with time. The first has the mean square that uniform choices would
    have. Where whole distributions were logged, E[w^2 | x] = sum_a pi(a | x)^2/p(a | x) is known,
    and replaces w^2, which is noisy.

    Reference: the idea of Hadad et al., PNAS 2021, for policies of contexts and blocks of time.
    """
    n, starts = source.about.n, [0]
    while starts[-1] < n:
        starts.append(min(max(starts[-1] + _FIRST, int(starts[-1] * _GROWTH)), n))
    cuts = np.unique([*starts, *(start // 2 for start in starts)])
    sums: SquareSums = source.total(Squares(side, cuts))
    before = np.concatenate([[0.0], np.cumsum(sums.squares)])  # up to each cut
    uniform = sums.uniform / n
    values = [1.0 / np.sqrt(uniform)]
    for start in starts[1:-1]:
        low, high = np.searchsorted(cuts, [start // 2, start])
        mean = (before[high] - before[low]) / (start - start // 2)
        values.append(1.0 / np.sqrt(max(mean, _LEAST * uniform)))
    return Blocks(np.array(starts[:-1]), np.array(values))
