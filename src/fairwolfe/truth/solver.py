"""Maximising a concave function over a convex set that is known by its support function only.

One loop, `solve`: a *master* holds a mixture of the vertices found so far and a majorant
f(s) <= a + <b, s> of f; the support function h_S gives a new vertex of S in the direction b and the
certificate f* <= a + h_S(b); the master takes the vertex in. f at the mixture is the lower bound.
There are two masters.

`Multipliers`, where every leaf of f has a proximal map: f(s) = sum_i c_i f_i(M_i s), leaf by leaf,
is F(y) with y = A s, and F has a proximal map block by block. The constraint y = A s gets
multipliers m, and the augmented Lagrangian is the envelope of F at a shifted point,
max_y F(y) + <m, A s - y> - |A s - y|^2/(2 b) = F_b(A s - b m) + b |m|^2/2.

- *majorant*: g = grad F_b(A s - b m) is a supergradient of F at p = prox, so that for every s
  f(s) <= F(p) - <g, p> + <A' g, s>;
- *corrective step*: maximise F_b(A s - b m) over the convex hull of the vertices found so far;
- *multipliers*: m = g, once the envelope costs more than the missing vertices.

This is Frank-Wolfe, fully corrective, on a smoothing whose error goes to zero at a width that does
not: the method of multipliers, or a proximal bundle method on the dual. Polyhedra are solved in
finitely many steps up to rounding. A hard constraint is a leaf of value 0 or -inf whose proximal
map is the projection; certificates then hold wherever it is kept. The solution violates it a
little, until mass is moved between the vertices (see `fairwolfe.truth.constraints`).

`CuttingPlanes`, for functions that have no proximal map, up to some twenty rewards: the set is
approximated from inside by the hull of its vertices, each leaf of f from above by the majorants
found so far. The linear programme between the two,

    max sum_i t_i   with   t_i <= a_ij + <b_ij, s> for every majorant j of leaf i,  s in the hull,

gives a point s of the set (where new majorants are computed) and, by its dual, the mixture of
majorants that is least over the hull. Hard constraints low <= R s <= high are rows of the
programme. Their dual prices r belong to the majorant,
f(s) <= a + <b, s> + <r, R s> - inf_C <r, x> wherever they are kept.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import NumericalFailure
from fairwolfe.kernels.mixtures import correct
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.truth.constraints import HardConstraints, Sought, Support

_WIDTH = 0.1  # of the envelope, in units of (spread of the vertices)/(slope)
_CLOSING = 0.5  # how much nearer a round of multipliers should bring y and A s
_CLOSED = 1e-6  # near enough, in units of the spread of the vertices
_STEPS = 3000  # corrective steps between two vertices, at most
_ACCURACY = 0.1  # of a corrective step, relative to what the next vertex can bring
_PLANE_WIDTH = 1e-3  # of the proximal points of cutting planes, in the same units
_FINE_CALLS = 100
_ROUNDING = 1e-13  # of a certificate, relative to the numbers it is the sum of
_PLANES = 300  # each a linear programme with as many rows and columns
_QUICK = 100  # calls of the method of multipliers before cutting planes are tried


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

    @property
    def feasible(self) -> bool:
        """Whether the hard constraints can be kept."""
        return self.upper_bound > -np.inf


def maximise(
    support: Support,
    objective: Concave,
    problem: Problem,
    tolerance: float,
    fine: float,
    limit: int,
    planes: int = _PLANES,
    quick: bool = False,
) -> Solution:
    """Bounds on the largest f(s), s in S, of relative gap `tolerance` within `limit` calls.

    `fine` is the gap at which it stops at once; the first hundred calls are spent on reaching it.
    Where the gap stays above the tolerance the bounds are valid all the same. Where no point of S
    keeps the hard constraints, the solution has the least violation, and the upper bound -inf.

    `planes`: calls of cutting planes, at most. `quick`: try few multipliers, then cutting planes,
    which are exact where the multipliers of a degenerate linear programme close in slowly.
    """
    n = problem.n_objectives
    given: tuple[Any, ...] = (objective, n)
    if objective.constrained:
        constraints = HardConstraints(objective, problem, support)
        sought = constraints.seek(support, *first_vertices(support, n), limit)
        if sought.unavoidable > constraints.allowed:
            return _infeasible(constraints, sought)
        given = (objective, n, constraints, sought)
    if not Leaves(objective, n).smoothable:
        return solve(support, CuttingPlanes(*given), tolerance, tolerance, min(limit, planes))
    if quick:
        found = solve(support, Multipliers(support, *given), tolerance, fine, _QUICK)
        if not close(found.value, found.upper_bound, tolerance):
            with suppress(NumericalFailure):  # of f that is not finite everywhere
                found = solve(support, CuttingPlanes(*given), tolerance, tolerance, planes)
        if close(found.value, found.upper_bound, tolerance):
            return found
    return solve(support, Multipliers(support, *given), tolerance, fine, limit)


def _infeasible(constraints: HardConstraints, sought: Sought) -> Solution:
    """The average of least violation v, and the certificate v >= -intercept - max_s <slope, s>."""
    average = sought.weights @ sought.points
    proof = sought.proof / float(np.abs(sought.proof) @ constraints.units)
    return Solution(
        constraints.relaxed._value(average),
        -np.inf,
        average,
        sought.weights,
        sought.directions,
        -constraints.floor(proof),
        constraints.slope(proof),
        sought.calls,
        sought.unavoidable,
    )


def solve(
    support: Support, master: Multipliers | CuttingPlanes, tolerance: float, fine: float, limit: int
) -> Solution:
    """The loop: see `maximise` for the arguments."""
    best, upper = -np.inf, np.inf
    mixture: tuple[Vector, Vector, Matrix] | None = None
    certificate: tuple[float, Vector] | None = None
    for calls in range(master.calls + 1, limit + 1):
        intercept, slope = master.majorant()
        height, vertex = support(slope)
        intercept += _ROUNDING * abs(height)
        if certificate is None or intercept + height < upper:
            upper, certificate = intercept + height, (intercept, slope)
        weights = master.mixture(vertex, slope)
        if weights is not None:
            average = weights @ master.points
            value = master.relaxed._value(average)
            if mixture is None or value > best:
                best, mixture = value, (average, weights, master.directions)
        if close(best, upper, fine if calls <= _FINE_CALLS else tolerance):
            break
        scale = max(1.0, abs(best)) if np.isfinite(best) else 1.0
        master.step(height, vertex, slope, fine * scale, scale)
    assert mixture is not None
    assert certificate is not None
    return Solution(best, max(upper, best), *mixture, *certificate, calls)


class _Mixture:
    """A mixture of vertices: points (k, n), directions (k, n) for which they are maximisers, and
    weights (k,). With hard constraints it begins with vertices that keep them.

    A master has `majorant()`, a and b with f(s) <= a + <b, s>; `mixture(vertex, slope)`, weights of
    `points` that keep the constraints, or None; and `step(...)`, which improves the model where the
    bounds are not close enough yet (fine: an absolute gap).
    """

    calls = 0  # of the support function before the loop

    def __init__(
        self,
        objective: Concave,
        n: int,
        constraints: HardConstraints | None = None,
        sought: Sought | None = None,
    ) -> None:
        self.n, self.constraints = n, constraints
        self.relaxed = objective if constraints is None else constraints.relaxed
        self.points, self.directions, self.weights = np.empty((0, n)), np.empty((0, n)), np.empty(0)
        if sought is not None:
            self.points, self.directions, self.weights = sought[:3]


class Multipliers(_Mixture):
    """The method of multipliers."""

    calls = 2

    def __init__(self, support: Support, objective: Concave, n: int, *kept: Any) -> None:
        super().__init__(objective, n, *kept)
        pieces = None if self.constraints is None else self.constraints.pieces(n)
        self.f = f = Leaves(objective, n, pieces)
        if not self.weights.size:
            self.points, self.directions = first_vertices(support, n)
            self.weights = np.array([0.5, 0.5])
        self.vertices = np.ascontiguousarray((f.matrix @ self.points.T).T)
        self.multipliers = np.zeros(f.matrix.shape[0])
        for _ in range(3):  # widths need slopes, which depend a little on the widths
            set_widths(f, self.vertices, f.touch(self.weights @ self.vertices)[0], _WIDTH)
        self.bend = np.ones(1)
        self.narrow = np.full(len(f.leaves), _WIDTH)
        self.last_apart = np.full(len(f.leaves), np.inf)

    def majorant(self) -> tuple[float, Vector]:
        self.y = self.weights @ self.vertices
        self.g, self.p = self.f.touch(self.y - self.f.reach * self.multipliers)
        return majorant(self.f, self.g, self.p)

    def mixture(self, vertex: Vector, slope: Vector) -> Vector | None:
        self.kept: Vector | None = self.weights
        if self.constraints is not None:
            self.kept = self.constraints.nearest(self.points, self.weights)
        return self.kept

    def step(self, height: float, vertex: Vector, slope: Vector, fine: float, scale: float) -> None:
        f, g, y = self.f, self.g, self.y
        average = self.weights @ self.points
        missing = height - float(slope @ average)  # what a new vertex can bring
        cost = float(f.costs(y, g, self.p).sum())  # of the envelope
        if missing <= 0.5 * cost or missing <= 0.1 * fine:
            self.multipliers = g
            # A block whose constraint y = A s hardly closes has too wide an envelope.
            apart = np.array(f.norms(self.p - y))
            wide = np.array(f.norms(self.vertices.std(axis=0)))
            slow = (apart > _CLOSING * self.last_apart) & (apart > _CLOSED * wide)
            self.narrow[slow] *= 0.25
            self.last_apart = apart
            set_widths(f, self.vertices, g, self.narrow)
        if len(self.weights) > 3 * self.n + 50:
            used = self.weights > 0.0
            if self.kept is not None:
                used |= self.kept > 0.0
            self.weights, self.points = self.weights[used], self.points[used]
            self.directions, self.vertices = self.directions[used], self.vertices[used]
        self.weights = np.append(self.weights, 0.0)
        self.points = np.vstack([self.points, vertex])
        self.directions = np.vstack([self.directions, slope])
        self.vertices = np.vstack([self.vertices, f.matrix @ vertex])
        goal = _ACCURACY * min(max(missing, 0.0), max(cost, fine)) + 1e-16 * scale
        shift = f.reach * self.multipliers
        with f.lent() as tree:
            correct(tree, self.vertices, shift, self.weights, self.bend, goal, _STEPS)
        self.weights /= self.weights.sum()


class CuttingPlanes(_Mixture):
    """Cutting planes from both sides."""

    def __init__(self, objective: Concave, n: int, *kept: Any) -> None:
        super().__init__(objective, n, *kept)
        self.f = Leaves(self.relaxed, n)
        self.next = np.inf, np.full(n, 1.0 / np.sqrt(n))
        self.heights: list[Vector] = []  # a_j of every leaf: (leaves,)
        self.slopes: list[Matrix] = []  # b_j of every leaf: (leaves, n)

    def majorant(self) -> tuple[float, Vector]:
        return self.next

    def mixture(self, vertex: Vector, slope: Vector) -> Vector | None:
        self.points = np.vstack([self.points, vertex])
        self.directions = np.vstack([self.directions, slope])
        if self.heights:
            self.weights, intercept, least = self._solve()
            self.next = intercept, least
        else:
            self.weights = np.append(self.weights, 0.0) if self.weights.size else np.ones(1)
        return self.weights

    def step(self, height: float, vertex: Vector, slope: Vector, fine: float, scale: float) -> None:
        f, average = self.f, self.weights @ self.points
        if len(self.points) <= 20:  # vertices enough to know the scale of every leaf
            g = f.touch(f.matrix @ average)[0]
            set_widths(f, (f.matrix @ self.points.T).T, g, _PLANE_WIDTH)
        heights, slopes = _majorants(f, average)
        self.heights.append(heights)
        self.slopes.append(slopes)

    def _solve(self) -> tuple[Vector, float, Vector]:
        """Weights of the vertices, and the majorant (a, b) that is least over their hull."""
        points, constraints = self.points, self.constraints
        heights: Matrix = np.array(self.heights)  # (majorants, leaves)
        slopes: Any = np.array(self.slopes)  # (majorants, leaves, n)
        n_cuts, n_leaves = heights.shape
        n_points = len(points)
        # t_i - <b_ij, s> <= a_ij, with s = sum of weights times points
        hull = -(slopes @ points.T).reshape(n_cuts * n_leaves, n_points)
        leaf = np.tile(np.eye(n_leaves), (n_cuts, 1))
        cuts = np.hstack([hull, leaf])
        limits = (
            [(np.empty((0, n_points)), np.empty(0))]
            if constraints is None
            else constraints.inequalities(points)
        )
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
        if constraints is not None:
            r = constraints.direction(prices[len(cuts) :])
            least = constraints.floor(r)
            height += rounding(least, r, np.ones(r.size)) - least
            slope = slope + constraints.slope(r)
        return weights / weights.sum(), height, slope


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
