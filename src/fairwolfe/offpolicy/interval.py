"""An interval for f(z), z the mean of what was estimated, that holds at kinks and at smooth points.

The plain ways fail where f is not smooth: at a tie of Minimum the percentile bootstrap and the
delta method are wrong however many data there are, and optima are ties. Here both ends rest on one
inequality of concave functions, f(y) <= f(p) + <g, y - p> for g in df(p):

- low: f(z) >= f(z^) - <g, z^ - z> for the supergradients g of f *at z*, which are not random, so
  that only their standard error is needed: the largest among supergradients near z^;
- high: f(z) <= f(p) + <g, z - p>, with p and g from one half of the data and z from the other: data
  that did not choose g. p is a proximal point three standard errors wide, so that at a kink g is
  the mixture of pieces that the true z has, and not the piece that noise has picked.

Both need the central limit theorem for one number only, whatever the dimension. Where f is smooth
both ends are those of the delta method up to terms of order 1/n.

The central limit theorem is poor for rare and for skewed rewards, and silent for a reward that was
never seen: its sample variance is 0. `Sampled.covariance` therefore replaces each standard error e
by c/n + sqrt(e^2 + (c/n)^2), c the size of an event, as the interval of Wilson (1927) for a
proportion does. For k events the upper end at 95 % is then k + 1.96 (1 + sqrt(k + 1)): 3.9 for
k = 0 and 11.8 for k = 5, where the exact limits of Poisson's distribution are 3.7 and 11.7.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from statistics import NormalDist
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves

_POINTS = 200  # around the estimate, where supergradients are taken
_VALUES = 64  # of these points, at which f is taken to see its bias
_SPREAD = 1.5  # of these points, in standard errors
_REACH = 3.0  # of the proximal point, in standard errors of a half
_EDGE = (
    4.0  # standard errors from the edge of the domain within which nothing is certain from below
)
_SEED = 20_260_101  # of the points: an interval is a function of the data
_ROUNDING = 1e-9
_MOST_CORNERS = 8  # coordinates up to which f is computed in all 2^D corners of a box
_WIDER = 1.15  # widening from which an interval is doubtful; there are 50 events then


@dataclass(frozen=True)
class Sampled:
    """An estimate z^ (D,) of a mean, of n rows of covariance `plain` (D, D), its two halves (2, D),
    and the sizes (D,) of an event.
    """

    z: Vector
    plain: Matrix
    halves: Matrix
    n: int
    sizes: Vector

    @cached_property
    def covariance(self) -> Matrix:
        """The covariance with standard errors that allow for events that were not seen.
        Correlations stay as they are.
        """
        old = np.sqrt(np.maximum(np.diag(self.plain), 0.0))
        more = self.sizes / math.sqrt(self.n)
        new = more + np.hypot(old, more)
        seen = old > _ROUNDING * new
        ratio = np.divide(new, old, out=np.zeros_like(old), where=seen)
        unseen = np.diag(np.where(seen, 0.0, new**2))
        return np.asarray(self.plain * np.outer(ratio, ratio) + unseen)

    def errors(self) -> Vector:
        """The standard error of each coordinate."""
        return np.sqrt(np.maximum(np.diag(self.covariance), 0.0) / self.n)

    def error(self, slopes: Matrix) -> Vector:
        """The standard error of <g, z^>, for slopes g (any, D)."""
        return np.asarray(np.sqrt(_variances(slopes, self.covariance) / self.n))

    def rare(self, slopes: Matrix) -> tuple[int, ...]:
        """The coordinates that have too few events for <g, z^>, for any of the slopes (any, D)."""
        wide = _variances(slopes, self.covariance) > _WIDER**2 * _variances(slopes, self.plain)
        parts = slopes[wide] ** 2 * np.diag(self.covariance - self.plain)
        return tuple(np.flatnonzero((parts > 0.5 * parts.max(axis=1, keepdims=True)).any(axis=0)))

    def around(self) -> Matrix:
        """Points of N(0, covariance/n), (points, D), always the same ones."""
        rng = np.random.default_rng(_SEED)
        draws = rng.standard_normal((_POINTS, self.z.size))
        return np.asarray(draws @ _root(self.covariance).T / math.sqrt(self.n))


@dataclass(frozen=True)
class Interval:
    """low <= f(z) <= high with the level's confidence; value = f(z^).

    bias: how far f(z^) is below f(z) on average, about; it is large at a kink
    spread: the standard deviation of f(z^), about
    edge: the coordinates of leaves whose domain ends within four standard errors, by number of the
        reward; low is the least f that the ranges leave possible then, often -inf
    rare: the coordinates that have too few events for the central limit theorem
    """

    value: float
    low: float
    high: float
    bias: float
    spread: float
    edge: tuple[int, ...] = ()
    rare: tuple[int, ...] = ()


def interval(f: Concave, sampled: Sampled, level: float, ranges: tuple[Vector, Vector]) -> Interval:
    """The interval of f, which is bound and has no hard constraints; ranges: the ends of those of
    z, (D,) each.
    """
    leaves = Leaves(f, sampled.z.size)
    down, up = _below(f, leaves, sampled), _above(leaves, sampled)
    quantile = NormalDist().inv_cdf(0.5 + 0.5 * level)
    low = down.value - quantile * float(sampled.error(down.slopes).max())
    if down.edge:
        low = min(_least(f, sampled, level, ranges), down.value)
    high = max(up.value + quantile * float(sampled.error(up.slopes).max()), down.value)
    rare = sampled.rare(np.vstack([down.slopes, up.slopes]))
    return Interval(down.value, low, high, down.bias, down.spread, down.edge, rare)


def difference(
    f: Concave,
    first: Sampled,
    second: Sampled,
    joint: Matrix,
    level: float,
    ranges: tuple[Vector, Vector],
) -> tuple[float, float, float]:
    """f(z_1) - f(z_2) and its interval, estimated on the same rows; joint (2 D, 2 D): their
    plain covariance; ranges as for `interval`.
    """
    leaves = Leaves(f, first.z.size)
    downs = [_below(f, leaves, part) for part in (first, second)]
    ups = [_above(leaves, part) for part in (first, second)]
    quantile = NormalDist().inv_cdf(0.5 + 0.5 * level)
    sizes = np.concatenate([first.sizes, second.sizes])
    together = Sampled(np.zeros(sizes.size), joint, np.zeros((2, sizes.size)), first.n, sizes)
    low_error, high_error = (
        quantile * _pairs(together, one.slopes, two.slopes)
        for one, two in ((downs[0], ups[1]), (ups[0], downs[1]))
    )
    low = downs[0].value - ups[1].value - low_error
    high = ups[0].value - downs[1].value + high_error
    if downs[0].edge or downs[1].edge:  # an interval for each, both of which hold
        own = [interval(f, part, 0.5 + 0.5 * level, ranges) for part in (first, second)]
        low = own[0].low - own[1].high if downs[0].edge else low
        high = own[0].high - own[1].low if downs[1].edge else high
    value = downs[0].value - downs[1].value
    return value, min(low, value), max(high, value)


def _pairs(together: Sampled, first: Matrix, second: Matrix) -> float:
    """The largest standard error of <g_1, z_1> - <g_2, z_2>."""
    pairs = [
        np.hstack([first, np.broadcast_to(-g, first.shape)]) for g in np.unique(second, axis=0)
    ]
    return max(float(together.error(pair).max()) for pair in pairs)


@dataclass(frozen=True)
class _Side:
    """What one end rests on: a value, and slopes (any, D) for its standard error."""

    value: float
    slopes: Matrix
    bias: float = 0.0
    spread: float = 0.0
    edge: tuple[int, ...] = ()


def _below(f: Concave, leaves: Leaves, sampled: Sampled) -> _Side:
    z, n = sampled.z, sampled.z.size
    tree = f.tree(n)
    offsets = sampled.around()
    value = f.value(z)
    edge = _edge(leaves, sampled)
    gradients = [tree.gradient(point, 0.0) for point in z + _SPREAD * offsets]
    if value > -math.inf:
        gradients.append(tree.gradient(z, 0.0))
    slopes = np.array([g for g in gradients if np.isfinite(g).all()]).reshape(-1, n)
    if not len(slopes):
        slopes = np.zeros((1, n))
    near = np.array([leaves.value(leaves.matrix @ point) for point in z + offsets[:_VALUES]])
    near = near[np.isfinite(near)]
    known = near.size > 0 and value > -math.inf
    bias, spread = (value - float(near.mean()), float(near.std())) if known else (0.0, 0.0)
    return _Side(value, np.unique(slopes, axis=0), max(bias, 0.0), spread, edge)


def _least(f: Concave, sampled: Sampled, level: float, ranges: tuple[Vector, Vector]) -> float:
    """The least f over the ranges within the errors of all coordinates at once: f is concave, so
    that corners are enough; -inf where they are too many.
    """
    n = sampled.z.size
    if n > _MOST_CORNERS:
        return -math.inf
    half = NormalDist().inv_cdf(1.0 - 0.5 * (1.0 - level) / n) * sampled.errors()
    ends = [np.clip(sampled.z + side * half, *ranges) for side in (-1.0, 1.0)]
    corners = product(*zip(*(end.tolist() for end in ends), strict=True))
    return min(f.value(np.array(corner)) for corner in corners)


def _edge(leaves: Leaves, sampled: Sampled) -> tuple[int, ...]:
    """The rewards of the leaves whose domain may end between z^ and z."""
    rewards: set[int] = set()
    for leaf, block in zip(leaves.leaves, leaves.blocks, strict=True):
        if leaf.everywhere:
            continue
        matrix = leaves.matrix[block]
        spread = np.asarray(matrix @ sampled.covariance @ matrix.T)
        x = np.asarray(matrix @ sampled.z)
        margin = _EDGE * np.sqrt(np.maximum(np.diag(spread), 0.0) / sampled.n)
        for row in range(x.size):
            lower = x.copy()
            lower[row] -= margin[row]
            if leaf.value(lower) == -math.inf:
                rewards.update(matrix[[row]].indices.tolist())
    return tuple(sorted(rewards))


def _above(leaves: Leaves, sampled: Sampled) -> _Side:
    """The mean over both swaps of what majorants chosen on one half say of the other."""
    values, slopes = [], []
    for chosen, measured in (sampled.halves, sampled.halves[::-1]):
        y = leaves.matrix @ chosen
        leaves.widen(_widths(leaves, sampled, y))
        g, p = leaves.touch(y)
        _, intercept, slope = leaves.majorant(g, p)
        values.append(intercept + float(slope @ measured))
        slopes.append(slope)
    return _Side(float(np.mean(values)), np.array(slopes))


def _widths(leaves: Leaves, sampled: Sampled, y: Vector) -> list[float]:
    """Of the envelopes: so wide that a proximal point moves three standard errors of a half, where
    the leaf has kinks; none where it is smooth, or has no proximal map.
    """
    widths = []
    for scale, leaf, block in zip(leaves.scales, leaves.leaves, leaves.blocks, strict=True):
        matrix = leaves.matrix[block]
        spread = float(np.trace(matrix @ sampled.covariance @ matrix.T)) / (0.5 * sampled.n)
        size, smooth = block.stop - block.start, leaf.smooth or leaf.curved
        inside = leaf.everywhere or _has_slope(leaf, y[block])
        slope = scale * leaf.lipschitz(size)
        if not leaf.has_prox or (smooth and inside) or spread == 0.0:
            widths.append(0.0)
        elif math.isfinite(slope) and slope > 0.0:
            widths.append(_REACH * math.sqrt(spread) / slope)
        else:  # a logarithm outside its domain, where a proximal point moves by the root
            widths.append(spread)
    return widths


def _has_slope(leaf: Concave, x: Vector) -> bool:
    """Whether a leaf has a finite gradient: the root has none at 0, where its domain ends."""
    return bool(np.isfinite(leaf.tree(x.size).gradient(x, 0.0)).all())


def _variances(slopes: Matrix, covariance: Matrix) -> Vector:
    """g' C g for slopes g (any, D)."""
    squares = np.einsum("gi,ij,gj->g", slopes, covariance, slopes, optimize=True)
    return np.asarray(np.maximum(squares, 0.0))


def _root(covariance: Matrix) -> Any:
    """A with A A' = covariance."""
    size = max(float(np.trace(covariance)), 1e-300)
    try:
        return np.asarray(np.linalg.cholesky(covariance + 1e-14 * size * np.eye(len(covariance))))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
