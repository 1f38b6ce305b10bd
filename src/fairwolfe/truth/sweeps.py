"""Maximising a concave function of the average rewards of rankings, user by user.

The average rewards of rankings are S = sum_u share_u S_u, with S_u the convex hull of the mean
rewards of u's rankings. A method that asks for one vertex of S at a time needs very many of them:
every user is at the corner of some ranking, all at once. Here every user keeps a few rankings with
its own masses, and the envelope of `fairwolfe.truth.solver` is climbed by *sweeps*:

- *step*: along the gradient of the envelope, mass goes from the worst ranking that a user keeps to
  the best of all its rankings, as far as the curvature of the envelope allows. This is pairwise
  Frank-Wolfe, block by block; one user of n bends the envelope n times less than all together;
- *pass*: a step for every user, then new multipliers, and widths such that what the next pass can
  bring stays well below what the envelope costs;
- *bounds*: f at the averages of the last pass and of the latter passes together (averaging undoes
  most of what is left of the constraint), and the certificate of the multipliers.

Hard constraints are leaves too. Averages come to their levels from both sides, and only those that
keep them count: so the levels aimed at are a little stricter, by as much as averages miss them, and
mass is moved between the averages of some passes (see `fairwolfe.truth.constraints`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.environments.world import RankingArrays
from fairwolfe.kernels.ranks import CompiledRankingWorld
from fairwolfe.kernels.truth import RankingMixtures
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.truth.constraints import HardConstraints
from fairwolfe.truth.solver import close, majorant, rounding, set_widths

_KEPT = 32  # rankings of a user; few users need more than twenty
_GRADIENTS = 500  # of the envelope in a pass: the more users, the less each of them changes it
_WIDTH = 0.1  # of the envelope at first, in units of (spread of the vertices)/(slope)
_MISSING = (0.03, 0.12)  # what a pass can bring, over what the envelope costs: narrower, wider
_CHANGE = 0.01  # of a width from pass to pass, at most the root of this
_CLOSING = 0.7  # a pass after which an envelope costs less than this share needs no help
_WIDTHS = (1e-9, 10.0)  # narrowest and widest, in units of (size of y)/(slope)
_CHECK = 4  # passes between two certificates
_POINTS = 100  # averages and vertices that are mixed to keep hard constraints
_NOISE = 1.5  # how much stricter levels are aimed at, over what averages miss of them
_ROOM = 0.2  # what that may cost, at most, in units of the tolerance
_FINE_PASSES, _FINE_WORK = 400, 2e6  # passes, users times items times passes, on the finest gap


class Swept(NamedTuple):
    """value <= f* <= upper_bound, with the average reward vector that has the value."""

    value: float
    upper_bound: float
    average: Vector
    passes: int
    unavoidable: float = 0.0  # the least violation, where no policy keeps the constraints
    by_item: Matrix | None = None  # of the last pass: exposure and rewards of every item


def maximise(
    world: RankingArrays,
    objective: Concave,
    tolerance: float,
    fine: float,
    limit: int,
    rng: np.random.Generator,
    rows: HardConstraints | None = None,
) -> Swept:
    """Bounds on the largest f(s), s in S, of relative gap `tolerance` within `limit` passes.

    `fine` is the gap at which it stops at once, and what is aimed at while passes are cheap. Every
    leaf of the objective must have a proximal map. The order of the users is random. `rows`: the
    hard constraints of the objective.
    """
    n = len(world.items) + len(world.turned)
    f = Leaves(objective, n, None if rows is None else rows.pieces(n))
    relaxed = objective if rows is None else rows.relaxed
    keeping = None if rows is None else _Keeping(rows, f)
    mixture = _RankingMixture(world, f)
    bends = [leaf.curvature(b.stop - b.start) for leaf, b in zip(f.leaves, f.blocks, strict=True)]
    bend = np.concatenate(bends)
    n_users = len(world.shares)
    every = 1 + n_users // _GRADIENTS
    rounds = max(1, round(len(world.items) / n_users))  # few users have to mix many rankings each
    work = len(world.items) * n_users * rounds
    start = np.full(n, n**-0.5)
    points = [mixture.average, world.support(start)[1], world.support(-start)[1]]
    vertices = np.array([f.matrix @ point for point in points])
    y = vertices[0].copy()
    for _ in range(3):  # widths need slopes, which depend a little on the widths
        set_widths(f, vertices, f.touch(y)[0], _WIDTH)
    if keeping is not None:
        keeping.unit = float(f.reach[-1])
    multipliers, costs = np.zeros(y.size), np.full(len(f.blocks), np.inf)
    means = [_Mean(), _Mean()]
    best, average, upper = -np.inf, mixture.average, np.inf
    passes = 0
    while passes < limit:
        passes += 1
        shift = f.reach * multipliers
        order = np.concatenate([rng.permutation(n_users) for _ in range(rounds)])
        with f.lent() as tree:
            missing = mixture.users.sweep(tree, order, every, shift, bend / f.reach, y)
        y = f.matrix @ mixture.mean()
        g, p = f.touch(y - shift)
        for mean in means:
            mean.add(mixture.average)
        if passes >= 2 * means[1].since:
            means = [means[1], _Mean(since=passes)]
        if passes % _CHECK == 0 or passes == limit:
            candidates = [mixture.average, *(mean.value for mean in means if mean.n)]
            intercept, slope = majorant(f, g, p)
            height, vertex = world.support(slope)
            if keeping is not None:
                intercept += keeping.loosened(g, p)
                candidates = keeping.among(candidates, vertex)
            for point in candidates:
                value = relaxed._value(point)
                if value > best:
                    best, average = value, point.copy()
            upper = min(upper, intercept + height + rounding(height, slope, vertex))
            cheap = passes <= _FINE_PASSES and passes * work <= _FINE_WORK
            if close(best, upper, fine if cheap else tolerance):
                break
            if keeping is not None:
                if best == -np.inf and keeping.impossible(g, world):
                    return keeping.least(world, passes)
                keeping.tighten(mixture.average, g, tolerance * max(1.0, abs(best)))
        multipliers, before, costs = g, costs, f.costs(y, g, p)
        units = np.array(f.norms(y)) / np.maximum(f.norms(g), 1e-300)
        if keeping is not None:  # prices that grow without bound must not narrow it for ever
            units[-1] = max(units[-1], keeping.unit)
        _balance(f, missing, before, costs, units)
    if keeping is not None and best == -np.inf:
        average = keeping.nearest
    return Swept(best, max(upper, best), average, passes, by_item=mixture.users.by_item())


class _Keeping:
    """What makes averages keep hard constraints, the last leaf of f."""

    def __init__(self, rows: HardConstraints, f: Leaves) -> None:
        self.rows, self.f = rows, f
        self.block = f.blocks[-1]
        self.aims = f.params[-1].reshape(4, -1)[:2]
        self.stricter = 0.0
        self.points = np.empty((0, f.matrix.shape[1]))
        self.unavoidable = 0.0
        self.unit = 1.0  # the width at first

    def loosened(self, g: Vector, p: Vector) -> float:
        """What to add to the intercept of a certificate that was computed with stricter levels."""
        prices = g[self.block]
        return float(prices @ p[self.block]) - self.rows.floor(prices)

    def among(self, candidates: list[Vector], vertex: Vector) -> list[Vector]:
        """Those that keep the rows, and the nearest mixture of all that does."""
        self.points = np.vstack([self.points, *candidates, vertex])[-_POINTS:]
        violations = [self.rows.violation(point) for point in candidates]
        weights = np.zeros(len(self.points))
        weights[-1 - len(candidates)] = 1.0  # the average of this pass
        moved = self.rows.nearest(self.points, weights)
        for most in (self.rows.none, self.rows.allowed):
            kept = [x for x, beyond in zip(candidates, violations, strict=True) if beyond <= most]
            kept += [] if moved is None else [moved @ self.points]
            if kept:
                return kept
        return []

    def tighten(self, average: Vector, g: Vector, tolerance: float) -> None:
        """Aim at levels that are stricter by about as much as the average misses them.

        That costs their prices; where it costs too much, the levels aimed at may be too strict for
        any policy.
        """
        rows = self.rows
        x = rows.matrix @ average
        missed = max(float(np.maximum(self.aims[0] - x, x - self.aims[1]).max()), 0.0)
        price = float(np.abs(g[self.block]).sum())
        most = _ROOM * tolerance / price if price > 0.0 and np.isfinite(tolerance) else 0.0
        self.stricter = min(max(_NOISE * missed, 0.5 * self.stricter), most)
        aims = rows.tightened(np.full(len(rows), self.stricter))
        self.aims[0], self.aims[1] = aims.low, aims.high
        self.f.changed()

    def impossible(self, g: Vector, world: RankingArrays) -> bool:
        """Whether the prices prove that no policy keeps the rows."""
        bound, vertex = self.rows.unavoidable(g[self.block], world.support)
        self.unavoidable = max(self.unavoidable, bound)
        self.points = np.vstack([self.points, vertex])
        return self.unavoidable > self.rows.allowed

    @property
    def nearest(self) -> Vector:
        """The mixture of averages whose largest violation is least."""
        average: Vector = self.rows.least(self.points)[0] @ self.points
        return average

    def least(self, world: RankingArrays, passes: int) -> Swept:
        """What is reached where no policy keeps the rows."""
        sought = self.rows.seek(world.support, self.points, self.points, _POINTS, settle=False)
        average = sought.weights @ sought.points
        certain = max(self.unavoidable, sought.unavoidable)
        return Swept(self.rows.relaxed._value(average), -np.inf, average, passes, certain)


class _RankingMixture:
    """A mixture of rankings for each user, and the average reward vector of all."""

    def __init__(self, world: RankingArrays, f: Leaves) -> None:
        # All users together need at most one ranking more than there are users, items and rewards.
        kept = _KEPT + 8 * len(world.items) // len(world.shares)
        arrays = (world.turned, world.items, world.columns, world.weights, world.ranges)
        to_y = sparse.csc_array(f.matrix)
        matrix = (to_y.indptr.astype(np.int64), to_y.indices.astype(np.int64), to_y.data)
        rows = to_y.shape[0]
        self.users = RankingMixtures(
            CompiledRankingWorld(*arrays), world.shares, kept, matrix, rows
        )
        self.average = np.empty(to_y.shape[1])
        self.mean()

    def mean(self) -> Vector:
        """The average, recomputed."""
        self.users.average(self.average)
        return self.average


class _Mean:
    """The mean of the averages of some passes."""

    def __init__(self, since: int = 1) -> None:
        self.since, self.n, self.value = since, 0, np.zeros(1)

    def add(self, point: Vector) -> None:
        self.n += 1
        self.value = self.value + (point - self.value) / self.n


def _balance(f: Leaves, missing: float, before: Vector, costs: Vector, units: Vector) -> None:
    """Narrow the envelope of a leaf that costs too much for what a pass can bring, or widen it."""
    low, high = _MISSING
    widths = []
    for block, last, cost, unit in zip(f.blocks, before, costs, units, strict=True):
        width, change = float(f.reach[block.start]), 1.0
        if cost > 0.0 and missing > high * cost:
            change = missing / (high * cost)
        elif cost > _CLOSING * last and missing < low * cost:
            change = missing / (low * cost)
        if change != 1.0:
            width *= min(max(change, _CHANGE), 1.0 / _CHANGE) ** 0.5
            width = min(max(width, _WIDTHS[0] * unit), _WIDTHS[1] * unit)
        widths.append(width)
    f.widen(widths)
