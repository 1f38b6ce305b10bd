"""`Prices`: the direction where leaves of f have running prices.

f(z) = sum_i c_i f_i(M_i z), leaf by leaf, is F(A z). With prices y of the leaves, in the units of
their gradients, and widths b_t, the direction is that of the envelope shifted by them,

    A' g with g = grad F_b(A z - b y),        y <- y + rate/(t + 1) (g - y) when a reward comes.

This is the method of multipliers, one step a reward. A hard constraint low <= x <= high has the
gradient y + (p - x)/b, with p the projection of x - b y: once y is its price in the long run, no
violation has to remain to express it. `Augmented` smoothing does the same for other leaves.

Widths of constraints: b_t = B^2/Delta/sqrt(t + 1), with B the range of the row and Delta the scale
of the other leaves. Both change with the units of a reward as the price does, so that a run in
cents decides as one in euros. Prices stay within 100 Delta/B.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.kinds import Kind
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.gradients import PricedTree
from fairwolfe.objectives import Concave
from fairwolfe.objectives.bounds import MARGINS, Bounds
from fairwolfe.objectives.concave import Scope
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.smoothing.smoothings import (
    Augmented,
    Identity,
    Moreau,
    Randomized,
    shrink,
    shrunk,
    usual,
)

__all__ = ["Prices", "scale_of", "typical_slope"]

_CAP = 100.0  # the largest price, in units of Delta/B


class Prices:
    """What gives the direction of a plan whose leaves have prices, and moves them.

    Rows of the leaves that have prices come first in A. A state holds the prices.
    """

    def __init__(self, objective: Concave, smoothing: Any, kind: Kind) -> None:
        if objective.constrained:
            _require_widths(objective, smoothing)
        n = kind.seen.n_objectives
        pieces = [piece for piece in objective.split(n) if piece[0] > 0.0]
        having = [piece for piece in pieces if _has_price(piece[1], smoothing)]
        others = [piece for piece in pieces if not _has_price(piece[1], smoothing)]
        # Items have new numbers among those that are left; people know their first numbers.
        now = dict(zip(Scope.of(kind.seen).labels, kind.labels(), strict=True))
        self.names = [
            tuple(now.get(name, name) for name in leaf.names) if isinstance(leaf, Bounds) else ()
            for _, leaf, _ in having
        ]
        self.size = sum(matrix.shape[0] for _, _, matrix in having)
        self.delta = scale_of(others + having, kind.seen)
        self.leaves = Leaves(objective, n, having + others)
        self.moving = Leaves(objective, n, having)
        self.spreads, self.widths, self.rates, self.caps = np.ones((4, self.size))
        self._set_widths(smoothing, kind)

    @staticmethod
    def of(objective: Concave, smoothing: Any, kind: Kind) -> Prices | None:
        """None where no leaf has a price."""
        leaves = objective.leaves(kind.seen.n_objectives)
        if not any(c > 0.0 and _has_price(leaf, smoothing) for c, leaf, _ in leaves):
            return None
        return Prices(objective, smoothing, kind)

    def _set_widths(self, smoothing: Any, kind: Kind) -> None:
        soft = 0.0 if isinstance(smoothing, Identity) else float(smoothing.beta0)
        for leaves in (self.leaves, self.moving):
            leaves.widen([1.0 if leaf.hard else soft for leaf in leaves.leaves])
        for k, (leaf, block) in enumerate(zip(self.moving.leaves, self.moving.blocks, strict=True)):
            if isinstance(leaf, Bounds):
                rows = self.moving.matrix[block].toarray()
                spread = np.array([kind.extent(row)[0] + kind.extent(-row)[0] for row in rows])
                self.spreads[block] = spread = np.where(spread > 0.0, spread, 1.0)
                self.widths[block] = spread**2 / self.delta
                self.rates[block], self.caps[block] = leaf.multiplier, _CAP * self.delta / spread
                for leaves in (self.leaves, self.moving):
                    leaves.widen_rows(k, self.widths[block])
            else:
                self.widths[block], self.rates[block] = soft, smoothing.weight
                self.caps[block] = np.inf

    def fresh(self) -> Vector:
        """Prices before the first reward."""
        return np.zeros(self.size)

    def tree(self, prices: Vector) -> PricedTree:
        """The direction, and `reprice`, for the prices of a state: the array itself, which the tree
        changes. A state whose array is replaced needs another tree.
        """
        return PricedTree(
            self.leaves.matrix.shape[1],
            self.leaves.tree(_with_margins(self.leaves)),
            _by_rows(self.leaves),
            self.moving.tree(_with_margins(self.moving)),
            _by_rows(self.moving),
            prices,
            self.widths,
            self.rates,
            self.caps,
        )

    @staticmethod
    def step(t: int) -> float:
        """1/sqrt(t + 1): widths are kept apart, since every leaf has its own."""
        return shrink(1.0, t, None)

    @staticmethod
    def steps(times: IntVector) -> Vector:
        """`step` at many times at once."""
        return shrunk(1.0, times, None)

    def touch(self, z: Vector, prices: Vector, t: int) -> tuple[Vector, Vector]:
        """The gradients of the leaves, without margins, and the points where they touch."""
        step, f = self.step(t), self.leaves
        x = f.matrix @ z
        x[: self.size] -= step * self.widths * prices
        return f.touch(x, step)

    def paid(self, z: Vector, prices: Vector, t: int) -> Vector:
        """The gradients of the leaves that have prices, with their margins."""
        step = self.step(t)
        x = self.moving.matrix @ z - step * self.widths * prices
        g: Vector = self.moving.tree(_with_margins(self.moving)).gradient(x, step)
        return g

    def without_constraints(self, g: Vector, p: Vector) -> tuple[Vector, Vector]:
        """What `touch` gave, with nothing of the hard constraints in it."""
        soft = g.copy()
        for leaf, block in zip(self.leaves.leaves, self.leaves.blocks, strict=True):
            if leaf.hard:
                soft[block] = 0.0
        return soft, p

    def carried(self, prices: Vector, old: Prices | None) -> Vector:
        """The prices of another plan in this one, leaf by leaf: by the names of constraints, else
        where a leaf has as many rows.
        """
        fresh = self.fresh()
        if old is None:
            return fresh
        for now, was in zip(self._rows(), old._rows(), strict=False):
            (leaf, block, names), (former, there, known) = now, was
            if names and known:
                price = dict(zip(known, prices[there].tolist(), strict=False))
                carried = [price.get(name, 0.0) for name in names]
                fresh[block.start : block.start + len(carried)] = carried
            elif type(leaf) is type(former) and block == there:
                fresh[block] = prices[there]
        return fresh

    def _rows(self) -> Iterator[tuple[Concave, slice, tuple[str, ...]]]:
        return zip(self.moving.leaves, self.moving.blocks, self.names, strict=True)


def typical_slope(objective: Concave, kind: Kind) -> float:
    """How long directions are: the Lipschitz constant, with Delta/B as the price of each row of a
    constraint, which has none.
    """
    n = kind.seen.n_objectives
    slope = objective.relaxed().lipschitz(n)
    if not objective.constrained:
        return slope
    prices = Prices(objective, Identity(), kind)
    lengths = np.sqrt(abs(prices.moving.matrix).power(2).sum(axis=1)).ravel()
    return float(slope + np.linalg.norm(prices.delta / prices.spreads * lengths))


def _with_margins(leaves: Leaves) -> list[Vector]:
    """The numbers of the leaves, with the margins of constraints."""
    own = [params.copy() for params in leaves.params]
    for params, leaf in zip(own, leaves.leaves, strict=True):
        if isinstance(leaf, Bounds):
            params.reshape(4, -1)[MARGINS] = leaf.margin
    return own


def _by_rows(leaves: Leaves) -> tuple[Any, Any, Any]:
    """A by rows: where each begins, columns, values."""
    return leaves.matrix.indptr, leaves.matrix.indices, leaves.matrix.data


def _has_price(leaf: Concave, smoothing: Any) -> bool:
    """Constraints have one; other leaves by `Augmented` smoothing, where they have kinks."""
    return leaf.hard or (isinstance(smoothing, Augmented) and smoothing.shifts(leaf))


def _require_widths(objective: Concave, smoothing: Any) -> None:
    if isinstance(smoothing, Randomized):
        raise InvalidInput(
            f"{objective} has hard constraints, and Randomized smoothing evaluates f all around z, "
            "also outside of them; use Moreau(), or Identity() for a function without a prox"
        )
    if isinstance(smoothing, Moreau) and smoothing.horizon is not None:
        raise InvalidInput(
            f"{smoothing} keeps one width, and the widths of hard constraints have to shrink; use "
            "Moreau() without a horizon"
        )


def scale_of(pieces: list[Any], problem: Problem) -> float:
    """Delta: how much the leaves that are not constraints are worth together; 1 where there is
    none.
    """
    middle = usual(problem)
    spans = problem.high - problem.low
    if problem.n_items:
        spans[: problem.n_items] = np.minimum(2.0 * middle[: problem.n_items], 1.0)
    total = 0.0
    for c, leaf, matrix in pieces:
        if not leaf.hard:
            total += c * leaf.scale(abs(matrix) @ spans, matrix @ middle)
    return total if total > 0.0 else 1.0
