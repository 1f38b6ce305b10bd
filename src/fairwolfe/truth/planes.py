"""Cutting planes from both sides, for functions that have no proximal map.

The set is approximated from inside by the hull of its vertices, each leaf of f from above by the
majorants found so far. The linear programme between the two,

    max sum_i t_i   with   t_i <= a_ij + <b_ij, s> for every majorant j of leaf i,  s in the hull,

gives a point s of the set (where new majorants are computed) and, by its dual, the mixture of
majorants that is least over the hull (for whose slope a new vertex is asked): f(s) and that
majorant's maximum over the set enclose f*.

Hard constraints low <= R s <= high are rows of the programme. Their dual prices r belong to the
majorant, f(s) <= a + <b, s> + <r, R s> - inf_C <r, x> wherever they are kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linprog

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.errors import NumericalFailure
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.truth.multipliers import Solution, Support, close, rounding, set_widths
from fairwolfe.truth.rows import Rows, Sought

__all__ = ["maximise"]

_WIDTH = 1e-3  # of the proximal points, in units of (spread of the vertices)/(slope)


def maximise(
    support: Support,
    objective: Concave,
    n: int,
    tolerance: float,
    limit: int,
    rows: Rows | None = None,
    sought: Sought | None = None,
) -> Solution:
    """Bounds on the largest f(s), s in S, of relative gap `tolerance` within `limit` calls.

    It serves up to some twenty rewards. Valid bounds also where the gap stays above the tolerance.
    `rows`: the hard constraints of the objective, and `sought`: vertices that keep them.
    """
    relaxed = objective if rows is None else rows.relaxed
    f = Leaves(relaxed, n)
    slope = np.full(n, 1.0 / np.sqrt(n))
    points, directions, first = np.empty((0, n)), np.empty((0, n)), np.empty(0)
    if sought is not None:
        points, directions, first = sought.points, sought.directions, sought.weights
    heights: list[Vector] = []  # a_j of every leaf: (leaves,)
    slopes: list[Matrix] = []  # b_j of every leaf: (leaves, n)
    best, upper, intercept = -np.inf, np.inf, np.inf
    solution: Solution | None = None
    for calls in range(1, limit + 1):
        height, vertex = support(slope)
        if intercept + height < upper or solution is None:
            upper = intercept + height
            certificate = (intercept, slope)
        points, directions = np.vstack([points, vertex]), np.vstack([directions, slope])
        weights = np.append(first, 0.0) if first.size else np.ones(1)
        if heights:
            weights, intercept, slope = _solve(points, np.array(heights), np.array(slopes), rows)
        average = weights @ points
        value = relaxed._value(average)
        if value > best or solution is None:
            best = value
            mixture = (average, weights, directions)
        solution = Solution(best, max(upper, best), *mixture, *certificate, calls)
        if close(best, upper, tolerance):
            break
        if len(points) <= 20:  # vertices enough to know the scale of every leaf
            set_widths(f, (f.matrix @ points.T).T, f.touch(f.matrix @ average)[0], _WIDTH)
        new_heights, new_slopes = _majorants(f, average)
        heights.append(new_heights)
        slopes.append(new_slopes)
    assert solution is not None
    return solution


def _majorants(f: Leaves, point: Vector) -> tuple[Vector, Matrix]:
    """A majorant a + <b, s> of every leaf, from its supergradient near the point."""
    g, p = f.touch(f.matrix @ point)
    heights, slopes = [], []
    for scale, leaf, block in zip(f.scales, f.leaves, f.blocks, strict=True):
        value = scale * leaf._value(p[block])
        if not np.isfinite(value):
            raise NumericalFailure(
                f"{leaf} is {value} at {p[block].tolist()}, which can be reached; without a "
                "proximal map its optimum is computed only where it is finite: give it an offset"
            )
        height = value - float(g[block] @ p[block])
        heights.append(height + rounding(value, g[block], p[block]))
        slopes.append(f.matrix[block].T @ g[block])
    return np.array(heights), np.array(slopes)


def _solve(
    points: Matrix, heights: Matrix, slopes: Any, rows: Rows | None
) -> tuple[Vector, float, Vector]:
    """Weights of the vertices, and the majorant (a, b) that is least over their hull.

    heights are (majorants, leaves), slopes (majorants, leaves, n).
    """
    n_cuts, n_leaves = heights.shape
    n_points = len(points)
    # t_i - <b_ij, s> <= a_ij, with s = sum of weights times points
    hull = -(slopes @ points.T).reshape(n_cuts * n_leaves, n_points)
    leaf = np.tile(np.eye(n_leaves), (n_cuts, 1))
    cuts = np.hstack([hull, leaf])
    limits = [(np.empty((0, n_points)), np.empty(0))] if rows is None else rows.inequalities(points)
    for kept, levels in limits:
        program = linprog(
            np.concatenate([np.zeros(n_points), -np.ones(n_leaves)]),
            A_ub=np.vstack([cuts, np.hstack([kept, np.zeros((len(kept), n_leaves))])]),
            b_ub=np.concatenate([heights.ravel(), levels]),
            A_eq=np.concatenate([np.ones(n_points), np.zeros(n_leaves)])[None],
            b_eq=[1.0],
            bounds=[(0.0, None)] * n_points + [(None, None)] * n_leaves,
            method="highs",
        )
        if program.status == 0 and program.x is not None:
            break
    if program.status != 0 or program.x is None:
        raise NumericalFailure(f"the linear programme of the optimum failed: {program.message}")
    weights = np.maximum(program.x[:n_points], 0.0)
    # Any mixture of majorants of a leaf is one: exact weights only make it least.
    prices = np.maximum(-program.ineqlin.marginals, 0.0)
    shares = prices[: len(cuts)].reshape(n_cuts, n_leaves)
    shares /= shares.sum(axis=0)
    height = float((shares * heights).sum())
    slope = np.einsum("jl,jln->n", shares, slopes)
    if rows is not None:
        r = rows.direction(prices[len(cuts) :])
        least = rows.floor(r)
        height += rounding(least, r, np.ones(r.size)) - least
        slope = slope + rows.slope(r)
    return weights / weights.sum(), height, slope
