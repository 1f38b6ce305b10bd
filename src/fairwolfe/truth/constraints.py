"""`HardConstraints`: hard constraints as linear rows over a set known by its support function.

low <= R s <= high, a row for each level. Over the hull of points that are known, two small linear
programmes answer everything:

- *least*: the mixture whose largest violation is least. Its dual is a direction r of the rows, and
  for every s of the set the largest violation is at least inf_C <r, x> - h_S(R' r), over the sum of
  |r_i| times the unit of a row: a certificate, where it is positive, that no policy keeps them all.
  A vertex in that direction is what the hull misses (column generation);
- *nearest*: the mixture that keeps the rows and moves the least mass.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import linprog

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Problem
from fairwolfe.errors import NumericalFailure
from fairwolfe.objectives import Concave
from fairwolfe.objectives.sparse import SparseMatrix
from fairwolfe.objectives.threshold import Bounds, Rates

ALLOWED = 1e-6
"""How far averages may be beyond their levels and count as keeping them; less where ranges of rows
are less than 1."""

_ROUNDING = 1e-13  # of a certificate, relative to the numbers it is the sum of
_CLOSE = 1e-6  # of the least violation, relative to it
_NONE = 1e-6  # of what is allowed: what rounding leaves of a violation
_PATIENCE = 50  # calls after which a violation that is allowed is as good as none
_EXACT: Any = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}

Support = Callable[[Vector], tuple[float, Vector]]


class Sought(NamedTuple):
    """Points of the set, the mixture of them whose largest violation is least, and a bound on it.

    The bound `unavoidable` is below the violation of every point of the set.
    """

    points: Matrix
    directions: Matrix  # for which each point is a maximiser
    weights: Vector
    unavoidable: float
    proof: Vector  # the direction of the rows that shows it
    calls: int


class HardConstraints:
    """The hard constraints of an objective, in units of the ranges of their rows.

    matrix (rows, n), low, high (rows,): divided by `spreads`, how far the ranges of the rewards let
    a row go. units (rows,): what a violation of 1, as `Concave.violation` counts it, is of a row;
    for shares of a sum, the largest sum, and for rates the largest denominator.
    """

    def __init__(self, objective: Concave, problem: Problem, support: Support) -> None:
        self.objective = objective
        self.relaxed = objective.relaxed()
        n = problem.n_objectives
        matrices, lows, highs, units = [], [], [], []
        for scale, leaf, matrix in objective.split(n):
            if scale > 0.0 and isinstance(leaf, Bounds):
                count = leaf.limited
                whole = 1.0
                if leaf.shares:
                    total = matrix[[-1]].toarray()[0]
                    whole = max(support(total)[0], np.finfo(np.float64).tiny)
                matrices.append(matrix[:count])
                lows.append(np.array(leaf.low[:count]))
                highs.append(np.array(leaf.high[:count]))
                units.append(np.full(count, whole))
        stacked = SparseMatrix.stack(matrices)
        extent = kind_of(problem).extent
        lengths = [extent(row)[0] + extent(-row)[0] for row in _dense(stacked)]
        self.spreads = np.where(np.array(lengths) > 0.0, lengths, 1.0)
        self.map = SparseMatrix.diagonal(1.0 / self.spreads) @ stacked
        self.matrix = self.map.csr()
        self.low, self.high = np.concatenate(lows), np.concatenate(highs)
        self.low, self.high = self.low / self.spreads, self.high / self.spreads
        self.units = np.concatenate(units) / self.spreads
        self.allowed = ALLOWED * min(1.0, 1.0 / float(self.units.max()))
        self.none = _NONE * self.allowed

    def __len__(self) -> int:
        return self.low.size

    @property
    def piece(self) -> tuple[float, Concave, SparseMatrix]:
        """As a leaf of an expression, with its map."""
        return 1.0, Bounds(tuple(self.low.tolist()), tuple(self.high.tolist())), self.map

    def pieces(self, n: int) -> list[Any]:
        """The leaves of the objective with all constraints in one, which comes last."""
        soft = [piece for piece in self.relaxed.split(n) if piece[0] > 0.0]
        return [*soft, self.piece]

    def slope(self, g: Vector) -> Vector:
        """The direction of the rewards that a direction of the rows is."""
        return np.asarray(self.matrix.T @ g)

    def violation(self, point: Vector) -> float:
        """How far a point is beyond the levels, at most, in the units of the rows."""
        x = np.asarray(self.matrix @ point)
        beyond = np.maximum(np.maximum(self.low - x, x - self.high), 0.0)
        return float((beyond / self.units).max())

    def kept(self, point: Vector) -> bool:
        """Whether a point violates no level by more than is allowed."""
        return self.violation(point) <= self.allowed

    def tightened(self, by: Vector) -> HardConstraints:
        """With stricter levels, at most up to the middle of those on both sides."""
        rows = copy(self)
        with np.errstate(invalid="ignore"):
            most = 0.5 * (self.high - self.low)
        narrower = np.minimum(by, most)
        rows.low, rows.high = self.low + narrower, self.high - narrower
        return rows

    def floor(self, g: Vector) -> float:
        """The least <g, x> over low <= x <= high; -inf where a level that counts is free."""
        levels = np.where(g > 0.0, self.low, self.high)[g != 0.0]
        return float(g[g != 0.0] @ levels)

    def unavoidable(self, g: Vector, support: Support) -> tuple[float, Vector]:
        """A bound, by a direction of the rows, below the violation of every point; the vertex."""
        height, vertex = support(self.slope(g))
        least = self.floor(g)
        room = _ROUNDING * (abs(least) + abs(height) + float(np.abs(g).sum()))
        size = float(np.abs(g) @ self.units)
        return ((least - height - room) / size if size > 0.0 else -np.inf), vertex

    # --- over the hull of points ------------------------------------------------------------------

    def least(self, points: Matrix) -> tuple[Vector, float, Vector]:
        """Weights of the mixture whose largest violation is least, the latter in the units of the
        rows, and the dual direction. It is negative where there is room.
        """
        sides, levels = self._sides(points)
        program = linprog(
            np.append(np.zeros(len(points)), 1.0),
            A_ub=np.column_stack([sides, -self._both(self.units)]),
            b_ub=levels,
            A_eq=np.append(np.ones(len(points)), 0.0)[None],
            b_eq=[1.0],
            bounds=[(0.0, None)] * len(points) + [(None, None)],
            method="highs",
            options=_EXACT,
        )
        if program.status != 0 or program.x is None:
            raise NumericalFailure(f"the linear programme of constraints failed: {program.message}")
        g = self.direction(np.maximum(-program.ineqlin.marginals, 0.0))
        return _weights(program.x[:-1]), float(program.x[-1]), g

    def nearest(self, points: Matrix, weights: Vector) -> Vector | None:
        """Weights that keep the rows, by moving as little as possible; None where none do.

        Exactly where that is possible, else up to what is allowed.
        """
        x = np.asarray(self.matrix @ (weights @ points))
        if (np.maximum(self.low - x, x - self.high) <= self.none * self.units).all():
            return weights
        moves: Any = [(0.0, None)] * len(points) + [(0.0, w) for w in weights.tolist()]
        for sides, levels in self.inequalities(points):
            program = linprog(
                np.ones(2 * len(points)),
                A_ub=np.hstack([sides, -sides]),
                b_ub=levels - sides @ weights,
                A_eq=np.append(np.ones(len(points)), -np.ones(len(points)))[None],
                b_eq=[0.0],
                bounds=moves,
                method="highs",
                options=_EXACT,
            )
            if program.status == 0 and program.x is not None:
                more, less = np.split(program.x, 2)
                new_weights = _weights(weights + more - less)
                if self.kept(new_weights @ points):
                    return new_weights
        return None

    def inequalities(self, points: Matrix) -> list[tuple[Matrix, Vector]]:
        """M and b with M weights <= b where a mixture keeps the rows: exactly, and up to a half of
        what is allowed, for sets that touch their levels only.
        """
        sides, levels = self._sides(points)
        return [(sides, levels), (sides, levels + 0.5 * self.allowed * self._both(self.units))]

    def direction(self, prices: Vector) -> Vector:
        """The direction of the rows with these prices of the inequalities."""
        floors, ceilings = np.isfinite(self.low), np.isfinite(self.high)
        g = np.zeros(len(self))
        g[floors] += prices[: floors.sum()]
        g[ceilings] -= prices[floors.sum() :]
        return g

    def _sides(self, points: Matrix) -> tuple[Matrix, Vector]:
        x = np.asarray(self.matrix @ points.T)  # (rows, points)
        floors, ceilings = np.isfinite(self.low), np.isfinite(self.high)
        levels = np.concatenate([-self.low[floors], self.high[ceilings]])
        return np.vstack([-x[floors], x[ceilings]]), levels

    def _both(self, by_row: Vector) -> Vector:
        return np.concatenate([by_row[np.isfinite(self.low)], by_row[np.isfinite(self.high)]])

    def seek(
        self,
        support: Support,
        points: Matrix,
        directions: Matrix,
        limit: int,
        settle: bool = True,
    ) -> Sought:
        """Add vertices until a mixture keeps the rows, or none can; NumericalFailure if neither is
        certain after `limit` calls.

        Where none can, vertices are added until the least violation is known too; settle=False:
        neither has to be certain.
        """
        unavoidable, proof = -np.inf, np.zeros(len(self))
        for calls in range(limit + 1):
            weights, least, g = self.least(points)
            reached = self.violation(weights @ points)
            done = reached <= (self.none if calls < _PATIENCE else self.allowed)
            if unavoidable > self.allowed:
                done = least - unavoidable <= _CLOSE * least
            if done or calls == limit:
                break
            bound, vertex = self.unavoidable(g, support)
            if bound > unavoidable:
                unavoidable, proof = bound, g
            points = np.vstack([points, vertex])
            directions = np.vstack([directions, self.slope(g)])
        if settle and not (reached <= self.allowed or unavoidable > self.allowed):
            raise NumericalFailure(
                f"the constraints are violated by {reached:.3g} at least in what is known after "
                f"{limit} steps, and it is not certain that no policy keeps them; change a level"
            )
        return Sought(points, directions, weights, unavoidable, proof, calls)


def vanishing(objective: Concave, problem: Problem, average: Vector) -> tuple[str, ...]:
    """The rates whose denominator is 0 at an average, up to rounding."""
    names: list[str] = []
    for scale, leaf, matrix in objective.split(problem.n_objectives):
        if scale > 0.0 and isinstance(leaf, Rates):
            row = matrix[[-1]].toarray()[0]
            if row @ average <= ALLOWED * kind_of(problem).extent(row)[0]:
                names += leaf.names
    return tuple(names)


def _weights(x: Vector) -> Vector:
    positive: Vector = np.maximum(x, 0.0)
    return np.asarray(positive / positive.sum())


def _dense(matrix: SparseMatrix) -> Any:
    """The rows of a sparse matrix, one at a time."""
    return (matrix[[i]].toarray()[0] for i in range(matrix.shape[0]))
