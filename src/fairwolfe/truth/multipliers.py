"""Maximising a concave function over a convex set that is known by its support function only.

f(s) = sum_i c_i f_i(M_i s), leaf by leaf, is F(y) with y = A s, and F has a proximal map block by
block. The constraint y = A s gets multipliers m, and the augmented Lagrangian is the envelope of F
at a shifted point, max_y F(y) + <m, A s - y> - |A s - y|^2/(2 b) = F_b(A s - b m) + b |m|^2/2.

- *corrective step*: maximise F_b(A s - b m) over the convex hull of the vertices found so far;
- *vertex*: ask the support function for the direction A' g, g = grad F_b(A s - b m), p = prox;
- *certificate*: g is a supergradient of F at p, so that for every s
  f(s) <= F(p) - <g, p> + <A' g, s>, and f* <= F(p) - <g, p> + h_S(A' g);
- *multipliers*: m = g, once the envelope costs more than the missing vertices.

A hard constraint is a leaf of value 0 or -inf whose proximal map is the projection; certificates
then hold wherever it is kept. The solution violates it a little, until mass is moved between the
vertices (see `fairwolfe.truth.rows`).

This is Frank-Wolfe, fully corrective, on a smoothing whose error goes to zero at a width that does
not: the method of multipliers, or a proximal bundle method on the dual. Polyhedra are solved in
finitely many steps up to rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.kernels.mixtures import correct
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.truth.rows import Rows, Sought

__all__ = [
    "Solution",
    "Support",
    "close",
    "first_vertices",
    "majorant",
    "maximise",
    "rounding",
    "set_widths",
]

Support = Callable[[Vector], tuple[float, Vector]]

_WIDTH = 0.1  # of the envelope, in units of (spread of the vertices)/(slope)
_CLOSING = 0.5  # how much nearer a round of multipliers should bring y and A s
_CLOSED = 1e-6  # near enough, in units of the spread of the vertices
_STEPS = 3000  # corrective steps between two vertices, at most
_ACCURACY = 0.1  # of a corrective step, relative to what the next vertex can bring
_FINE_CALLS = 100
_ROUNDING = 1e-13  # of a certificate, relative to the numbers it is the sum of


class Solution(NamedTuple):
    """The best point, as a mixture of vertices, and the best certificate."""

    value: float
    upper_bound: float
    average: Vector
    weights: Vector  # of the vertices
    directions: Matrix  # for which each vertex is a maximiser
    intercept: float  # f(s) <= intercept + <slope, s> for every s
    slope: Vector
    calls: int  # of the support function
    unavoidable: float = 0.0  # the least violation, where no policy keeps the constraints


def maximise(
    support: Support,
    objective: Concave,
    n: int,
    tolerance: float,
    fine: float,
    limit: int,
    rows: Rows | None = None,
    sought: Sought | None = None,
) -> Solution:
    """Bounds on the largest f(s), s in S, of relative gap `tolerance` within `limit` calls.

    `fine` is the gap at which it stops at once; the first hundred calls are spent on reaching it.
    Where the gap stays above the tolerance the bounds are valid all the same.

    `rows`: the hard constraints of the objective, and `sought`: vertices that keep them.
    """
    f = Leaves(objective, n, None if rows is None else rows.pieces(n))
    to_y = f.matrix
    if sought is None:
        points, directions = first_vertices(support, n)
        weights = np.array([0.5, 0.5])
    else:
        points, directions, weights = sought.points, sought.directions, sought.weights
    vertices = np.ascontiguousarray((to_y @ points.T).T)
    multipliers = np.zeros(to_y.shape[0])
    for _ in range(3):  # widths need slopes, which depend a little on the widths
        set_widths(f, vertices, f.touch(weights @ vertices)[0], _WIDTH)
    bend = np.ones(1)
    narrow, last_apart = np.full(len(f.leaves), _WIDTH), np.full(len(f.leaves), np.inf)
    relaxed = objective if rows is None else rows.relaxed
    best, upper = -np.inf, np.inf
    mixture: tuple[Vector, Vector, Matrix] | None = None
    certificate: tuple[float, Vector] | None = None
    for calls in range(3, limit + 1):
        y, average = weights @ vertices, weights @ points
        shift = f.reach * multipliers
        g, p = f.touch(y - shift)
        intercept, slope = majorant(f, g, p)
        height, vertex = support(slope)
        room = _ROUNDING * abs(height)
        kept = weights if rows is None else rows.nearest(points, weights)
        value = -np.inf if kept is None else relaxed._value(kept @ points)
        if kept is not None and (value > best or mixture is None):
            best = value
            mixture = (kept @ points, kept, directions)
        intercept += room
        if intercept + height < upper or certificate is None:
            upper = intercept + height
            certificate = (intercept, slope)
        if close(best, upper, fine if calls <= _FINE_CALLS else tolerance):
            break
        scale = max(1.0, abs(best)) if np.isfinite(best) else 1.0
        missing = height - float(slope @ average)  # what a new vertex can bring
        cost = float(f.costs(y, g, p).sum())  # of the envelope
        if missing <= 0.5 * cost or missing <= 0.1 * fine * scale:
            multipliers = g
            # A block whose constraint y = A s hardly closes has too wide an envelope.
            apart = np.array(f.norms(p - y))
            wide = np.array(f.norms(vertices.std(axis=0)))
            narrow[(apart > _CLOSING * last_apart) & (apart > _CLOSED * wide)] *= 0.25
            last_apart = apart
            set_widths(f, vertices, g, narrow)
        used = weights > 0.0
        if kept is not None:
            used |= kept > 0.0
        if len(weights) > 3 * n + 50:
            weights, points, directions = weights[used], points[used], directions[used]
            vertices = vertices[used]
        weights = np.append(weights, 0.0)
        points = np.vstack([points, vertex])
        directions = np.vstack([directions, slope])
        vertices = np.vstack([vertices, to_y @ vertex])
        goal = _ACCURACY * min(max(missing, 0.0), max(cost, fine * scale)) + 1e-16 * scale
        shift = f.reach * multipliers
        with f.lent() as tree:
            correct(tree, vertices, shift, weights, bend, goal, _STEPS)
        weights /= weights.sum()
    assert mixture is not None
    assert certificate is not None
    return Solution(best, max(upper, best), *mixture, *certificate, calls)


def first_vertices(support: Support, n: int) -> tuple[Matrix, Matrix]:
    """Two points of the set to begin with, and the directions for which they are maximisers."""
    start = np.full(n, 1.0 / np.sqrt(n))
    directions = np.array([start, -start])
    return np.array([support(g)[1] for g in directions]), directions


def close(value: float, upper_bound: float, tolerance: float) -> bool:
    """Whether the gap is at most the tolerance, relative to max(1, |value|)."""
    gap = upper_bound - value
    return bool(np.isfinite(gap) and gap <= tolerance * max(1.0, abs(value)))


def majorant(f: Leaves, g: Vector, p: Vector) -> tuple[float, Vector]:
    """`Leaves.majorant` with room for rounding; inf where nothing is touched."""
    value, intercept, slope = f.majorant(g, p)
    # Where F is -inf (a user's function without a proximal map may be) nothing is touched.
    if not np.isfinite(value):
        return np.inf, slope
    # p is the sum of a point and reach times g, and no more exact than these.
    return intercept + rounding(value, g, np.abs(p) + f.reach * np.abs(g)), slope


def rounding(value: float, g: Vector, p: Vector) -> float:
    """What rounding can do to value - <g, p>."""
    return _ROUNDING * (abs(value) + float(np.abs(g) @ np.abs(p)))


def set_widths(f: Leaves, vertices: Matrix, g: Vector, widths: Any) -> None:
    """Widths in the units of each leaf, so that rewards may have very different scales."""
    shares = np.broadcast_to(widths, len(f.blocks))
    spreads, slopes = f.norms(vertices.std(axis=0)), f.norms(g)
    # A constraint that costs nothing so far would cost about what the other leaves are worth.
    worth = sum(
        a * b for a, b, leaf in zip(spreads, slopes, f.leaves, strict=True) if not leaf.hard
    )
    usual = [
        worth / spread if leaf.hard and spread > 0.0 else 0.0
        for spread, leaf in zip(spreads, f.leaves, strict=True)
    ]
    sizes = zip(shares, spreads, slopes, usual, f.blocks, strict=True)
    f.widen(
        [
            width * spread / (slope or typical)
            if spread > 0.0 and (slope or typical) > 0.0
            else f.reach[block.start] or 1.0
            for width, spread, slope, typical, block in sizes
        ]
    )
