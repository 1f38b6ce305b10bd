"""Maximising a concave function of the average rewards of rankings, user by user.

The average rewards of rankings are S = sum_u share_u S_u, with S_u the convex hull of the mean
rewards of u's rankings. A method that asks for one vertex of S at a time needs very many of them:
every user is at the corner of some ranking, all at once. Here every user keeps a few rankings with
its own masses, and the envelope of `fairwolfe.truth.multipliers` is climbed by *sweeps*:

- *step*: along the gradient of the envelope, mass goes from the worst ranking that a user keeps to
  the best of all its rankings, as far as the curvature of the envelope allows. This is pairwise
  Frank-Wolfe, block by block; one user of n bends the envelope n times less than all together;
- *pass*: a step for every user, then new multipliers, and widths such that what the next pass can
  bring stays well below what the envelope costs;
- *bounds*: f at the averages of the last pass and of the latter passes together (averaging undoes
  most of what is left of the constraint), and the certificate of the multipliers.

Hard constraints are leaves too. Averages come to their levels from both sides, and only those that
keep them count: so the levels aimed at are a little stricter, by as much as averages miss them, and
mass is moved between the averages of some passes (see `fairwolfe.truth.rows`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from fairwolfe.core.arrays import Cube, IntCube, IntVector, Matrix, Vector
from fairwolfe.environments.rankings import RankingArrays, best_ranking, item_mean
from fairwolfe.kernels.compile import fma, kernel
from fairwolfe.objectives import Concave
from fairwolfe.objectives.concave import call_gradient
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.truth.multipliers import close, majorant, rounding, set_widths
from fairwolfe.truth.rows import Rows

__all__ = ["Swept", "maximise"]

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

_V, _M, _C, _I = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]", "int64[::1]"
_RANKINGS = "int64[:, :, ::1]"


@kernel
def _height(ranking: IntVector, earned: Vector, slope: Vector, weights: Vector) -> float:
    """<slope, mean reward of a ranking>.

    ranking, weights (slots,), earned (rewards,), slope (n_items + rewards,).
    """
    total = 0.0
    for j in range(ranking.size):
        total = fma(weights[j], slope[ranking[j]], total)
    n_items = slope.size - earned.size
    for r in range(earned.size):
        total = fma(slope[n_items + r], earned[r], total)
    return total


@kernel
def _earn(
    ranking: IntVector,
    user: int,
    turned: Cube,
    items: Matrix,
    weights: Vector,
    ranges: Matrix,
    out: Vector,
) -> None:
    """The mean user-side rewards of a ranking.

    ranking, weights (slots,), turned (rewards, users, q), items (n_items, q), ranges (rewards, 2),
    out (rewards,).
    """
    for r in range(out.size):
        out[r] = 0.0
        for j in range(ranking.size):
            mean = item_mean(turned[r, user], items[ranking[j]], ranges[r, 0], ranges[r, 1])
            out[r] = fma(weights[j], mean, out[r])


@kernel
def _image(
    places: IntVector,
    changes: Vector,
    starts: IntVector,
    rows: IntVector,
    entries: Vector,
    total: Vector,
    moved: IntVector,
    moves: Vector,
) -> int:
    """The rows of A s that move when s[places] changes, how much, and how many; total: zeros.

    places, changes (changes,), starts (columns of A + 1,), rows, entries (entries,), total, moved,
    moves (rows of A,).
    """
    for j in range(places.size):
        for e in range(starts[places[j]], starts[places[j] + 1]):
            total[rows[e]] = fma(entries[e], changes[j], total[rows[e]])
    n_moved = np.int64(0)
    for j in range(places.size):
        for e in range(starts[places[j]], starts[places[j] + 1]):
            if total[rows[e]] != 0.0:
                moved[n_moved], moves[n_moved] = rows[e], total[rows[e]]
                n_moved += 1
                total[rows[e]] = 0.0
    return int(n_moved)


@kernel(
    signature=f"float64({_I}, int64, int64, {_V}, {_V}, {_I}, {_I}, {_V}, {_V}, {_V}, {_V}, "
    f"{_V}, {_C}, {_M}, {_M}, {_M}, {_M}, {_RANKINGS}, {_M}, {_C})"
)
def sweep(
    users: IntVector,
    every: int,
    gradient: int,
    params: Vector,
    work: Vector,
    starts: IntVector,
    rows: IntVector,
    entries: Vector,
    shift: Vector,
    bend: Vector,
    y: Vector,
    shares: Vector,
    turned: Cube,
    items: Matrix,
    columns: Matrix,
    weights: Matrix,
    ranges: Matrix,
    rankings: IntCube,
    masses: Matrix,
    earned: Cube,
) -> float:
    """A step for each of the users; y follows. Returns how much best rankings would have brought.

    starts, rows, entries: the columns of A in y = A s; bend: a bound on the curvature by rows.

    users (steps,), starts (n_items + rewards + 1,), rows, entries (entries,), shift, bend,
    y (rows of A,), shares (users,), turned (rewards, users, q), items (n_items, q),
    columns (q, n_items), weights (1 or users, slots), ranges (rewards, 2),
    rankings (users, kept, slots), masses (users, kept), earned (users, kept, rewards). params,
    work: of the gradient.
    """
    m, n = len(items), len(turned)
    kept, k = rankings.shape[1], rankings.shape[2]
    z, g, slope = np.empty(y.size), np.empty(y.size), np.empty(m + n)
    means, scores, best = np.empty(m), np.empty(m), np.empty(k, np.int64)
    new = np.empty(n)
    places, changes = np.empty(2 * k + n, np.int64), np.empty(2 * k + n)
    moved, moves, total = np.empty(y.size, np.int64), np.empty(y.size), np.zeros(y.size)
    missing, low, high = 0.0, 0.0, 0.0
    for turn in range(users.size):
        if turn % every == 0:
            for i in range(y.size):
                z[i] = y[i] - shift[i]
            call_gradient(gradient, z, 1.0, params, work, g)
            for i in range(slope.size):
                slope[i] = 0.0
                for e in range(starts[i], starts[i + 1]):
                    slope[i] = fma(entries[e], g[rows[e]], slope[i])
        u = users[turn]
        b = weights[u if len(weights) > 1 else np.int64(0)]
        best_ranking(slope, u, turned, columns, ranges, means, scores, best)
        _earn(best, u, turned, items, b, ranges, new)
        top = _height(best, new, slope, b)
        worst, first, least = np.int64(-1), np.int64(-1), np.int64(-1)
        target, free, now = np.int64(-1), np.int64(-1), 0.0
        for v in range(kept):
            if masses[u, v] == 0.0:
                free = np.int64(v)
                continue
            height = _height(rankings[u, v], earned[u, v], slope, b)
            now = fma(masses[u, v], height, now)
            if worst < 0 or height < low:
                worst, low = np.int64(v), height
            if first < 0 or height > high:
                first, high = np.int64(v), height
            if least < 0 or masses[u, v] < masses[u, least]:
                least = np.int64(v)
            alike = np.int64(0)
            while alike < k and rankings[u, v, alike] == best[alike]:
                alike += 1
            if alike == k:
                target = np.int64(v)
        missing = fma(shares[u], top - now, missing)
        if target < 0 and free < 0 and high - low > 0.5 * (top - low):
            target, top = first, high  # no room, and one that is kept is nearly as good
            for i in range(k):
                best[i] = rankings[u, first, i]
            for i in range(new.size):
                new[i] = earned[u, first, i]
        full = target < 0 and free < 0
        source = least if full else worst
        gain = shares[u] * (top - low)
        if target == source or gain <= 0.0:
            continue
        for j in range(k):
            places[j], changes[j] = best[j], shares[u] * b[j]
            places[k + j], changes[k + j] = rankings[u, source, j], -shares[u] * b[j]
        for r in range(n):
            places[2 * k + r] = m + r
            changes[2 * k + r] = shares[u] * (new[r] - earned[u, source, r])
        n_moved = _image(places, changes, starts, rows, entries, total, moved, moves)
        curvature = 0.0
        for i in range(n_moved):
            curvature = fma(bend[moved[i]] * moves[i], moves[i], curvature)
        step = masses[u, source]
        if full:  # the ranking of least mass makes room, which cannot do much harm
            target = source
        else:
            if curvature * step > gain:
                step = gain / curvature
            if target < 0:
                target = free
            masses[u, source] -= step
            masses[u, target] += step
        for j in range(k):
            rankings[u, target, j] = best[j]
        for r in range(new.size):
            earned[u, target, r] = new[r]
        for i in range(n_moved):
            y[moved[i]] = fma(step, moves[i], y[moved[i]])
    return missing


@kernel(signature=f"void({_V}, {_M}, {_RANKINGS}, {_M}, {_C}, {_V})")
def average_of(
    shares: Vector,
    weights: Matrix,
    rankings: IntCube,
    masses: Matrix,
    earned: Cube,
    out: Vector,
) -> None:
    """The average reward vector of all users; masses are first made to sum to 1 again.

    shares (users,), weights (1 or users, slots), rankings (users, kept, slots),
    masses (users, kept), earned (users, kept, rewards), out (n_items + rewards,).
    """
    n = earned.shape[2]
    n_items = out.size - n
    for i in range(out.size):
        out[i] = 0.0
    for u in range(shares.size):
        b = weights[u if len(weights) > 1 else 0]
        whole = 0.0
        for v in range(masses.shape[1]):
            whole += masses[u, v]
        for v in range(masses.shape[1]):
            masses[u, v] /= whole
            share = shares[u] * masses[u, v]
            if share > 0.0:
                for j in range(b.size):
                    out[rankings[u, v, j]] += share * b[j]
                for r in range(n):
                    out[n_items + r] += share * earned[u, v, r]


@kernel(signature=f"void({_V}, {_C}, {_M}, {_M}, {_M}, {_RANKINGS}, {_M}, {_M})")
def items_of(
    shares: Vector,
    turned: Cube,
    items: Matrix,
    weights: Matrix,
    ranges: Matrix,
    rankings: IntCube,
    masses: Matrix,
    out: Matrix,
) -> None:
    """What every item has of the average: its exposure, then the user-side rewards that it earns.

    shares (users,), turned (rewards, users, q), items (n_items, q), weights (1 or users, slots),
    ranges (rewards, 2), rankings (users, kept, slots), masses (users, kept),
    out (n_items, 1 + rewards).
    """
    out[:] = 0.0
    for u in range(shares.size):
        b = weights[u if len(weights) > 1 else 0]
        for v in range(masses.shape[1]):
            share = shares[u] * masses[u, v]
            if share > 0.0:
                for j in range(b.size):
                    i = rankings[u, v, j]
                    out[i, 0] += share * b[j]
                    for r in range(len(turned)):
                        mean = item_mean(turned[r, u], items[i], ranges[r, 0], ranges[r, 1])
                        out[i, 1 + r] += share * b[j] * mean


@kernel(signature=f"void({_C}, {_M}, {_M}, {_M}, {_RANKINGS}, {_M}, {_C})")
def take_turns(
    turned: Cube,
    items: Matrix,
    weights: Matrix,
    ranges: Matrix,
    rankings: IntCube,
    masses: Matrix,
    earned: Cube,
) -> None:
    """One ranking for each user, such that the items take turns: all are shown about as often.

    turned (rewards, users, q), items (n_items, q), weights (1 or users, slots),
    ranges (rewards, 2), rankings (users, kept, slots), masses (users, kept),
    earned (users, kept, rewards).
    """
    m, k = len(items), rankings.shape[2]
    for u in range(len(rankings)):
        for j in range(k):
            rankings[u, 0, j] = (u * k + j) % m
        b = weights[u if len(weights) > 1 else 0]
        masses[u, 0] = 1.0
        _earn(rankings[u, 0], u, turned, items, b, ranges, earned[u, 0])


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
    rows: Rows | None = None,
) -> Swept:
    """Bounds on the largest f(s), s in S, of relative gap `tolerance` within `limit` passes.

    `fine` is the gap at which it stops at once, and what is aimed at while passes are cheap. Every
    leaf of the objective must have a proximal map. The order of the users is random. `rows`: the
    hard constraints of the objective.
    """
    mixture = _Mixture(world)
    n = mixture.average.size
    f = Leaves(objective, n, None if rows is None else rows.pieces(n))
    relaxed = objective if rows is None else rows.relaxed
    keeping = None if rows is None else _Keeping(rows, f)
    to_y = sparse.csc_array(f.matrix)
    matrix = (to_y.indptr.astype(np.int64), to_y.indices.astype(np.int64), to_y.data)
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
        missing = sweep(
            np.concatenate([rng.permutation(n_users) for _ in range(rounds)]),
            every,
            f.program.address,
            f.program.params,
            f.work,
            *matrix,
            shift,
            bend / f.reach,
            y,
            *mixture.arrays,
        )
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
    return Swept(best, max(upper, best), average, passes, by_item=mixture.by_item())


class _Keeping:
    """What makes averages keep hard constraints, the last leaf of f."""

    def __init__(self, rows: Rows, f: Leaves) -> None:
        self.rows, self.f = rows, f
        self.block = f.blocks[-1]
        self.aims = f.part(f.program.params, len(f.leaves) - 1).reshape(4, -1)[:2]
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
        violations = [self.rows.objective._violation(point) for point in candidates]
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


class _Mixture:
    """A mixture of rankings for each user, and the average reward vector of all."""

    def __init__(self, world: RankingArrays) -> None:
        n, k, n_rewards = len(world.shares), world.weights.shape[1], len(world.turned)
        # All users together need at most one ranking more than there are users, items and rewards.
        kept = _KEPT + 8 * len(world.items) // n
        self.rankings, self.masses = np.zeros((n, kept, k), np.int64), np.zeros((n, kept))
        self.earned = np.zeros((n, kept, n_rewards))
        self.world = world
        self.average = np.empty(len(world.items) + n_rewards)
        state = (self.rankings, self.masses, self.earned)
        take_turns(world.turned, world.items, world.weights, world.ranges, *state)
        self.mean()

    @property
    def arrays(self) -> tuple[Any, ...]:
        """What a sweep reads and writes."""
        w = self.world
        read = (w.shares, w.turned, w.items, w.columns, w.weights, w.ranges)
        return (*read, self.rankings, self.masses, self.earned)

    def mean(self) -> Vector:
        """The average, recomputed."""
        state = (self.rankings, self.masses, self.earned)
        average_of(self.world.shares, self.world.weights, *state, self.average)
        return self.average

    def by_item(self) -> Matrix:
        """What every item has of it: exposure, then rewards."""
        w = self.world
        out = np.empty((len(w.items), 1 + len(w.turned)))
        read = (w.shares, w.turned, w.items, w.weights, w.ranges)
        items_of(*read, self.rankings, self.masses, out)
        return out


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
