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

The row of a rate, x = z_i - level w, moves only where its denominator w does: its B is the range of
the row times the root of the average of w, in parts of the largest w and at least 1/64. That factor
of the width is renewed after every answer whose number is a power of two. A state holds the
factors, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.groups import Groups
from fairwolfe.core.kinds import Kind
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.gradients import PricedTree
from fairwolfe.objectives import Concave
from fairwolfe.objectives.concave import Scope
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.objectives.sparse import SparseMatrix
from fairwolfe.objectives.threshold import MARGINS, WIDTHS, Bounds, Rates
from fairwolfe.smoothing.dual_descent import DualDescent
from fairwolfe.smoothing.smoothings import (
    Augmented,
    Identity,
    Moreau,
    Randomized,
    shrink,
    usual,
)

_CAP = 100.0  # the largest price, in units of Delta/B
_RAREST = 1.0 / 64.0  # of the largest denominator: its least average for a width


class Prices:
    """What gives the direction of a plan whose leaves have prices, and moves them.

    Rows of the leaves that have prices come first in A. A state holds the prices.
    """

    def __init__(
        self, objective: Concave, smoothing: Any, kind: Kind, groups: Groups | None = None
    ) -> None:
        if objective.constrained:
            _require_widths(objective, smoothing)
        n = kind.seen.n_objectives
        pieces = [piece for piece in objective.split(n) if piece[0] > 0.0]
        having = [piece for piece in pieces if _has_price(piece[1], smoothing)]
        others = [piece for piece in pieces if not _has_price(piece[1], smoothing)]
        # Items have new numbers among those that are left; people know their first numbers.
        scope = Scope.of(kind.seen)
        now = {scope.label(i): label for i, label in enumerate(kind.labels())}
        self.names = [
            tuple(now.get(name, name) for name in leaf.names) if isinstance(leaf, Bounds) else ()
            for _, leaf, _ in having
        ]
        self.size = sum(matrix.shape[0] for _, _, matrix in having)
        self.delta = scale_of(others + having, kind.seen)
        self.leaves = Leaves(objective, n, having + others)
        self.moving = Leaves(objective, n, having)
        # A for the averages that f is read at, those of groups of items among them.
        self.map, self.moving_map = self.leaves.map, self.moving.map
        if groups is not None:
            read, n_read = groups.read(objective, n), n + len(groups.names)
            lifted = [piece for piece in read.split(n_read) if piece[0] > 0.0]
            moving = [piece for piece in lifted if _has_price(piece[1], smoothing)]
            still = [piece for piece in lifted if not _has_price(piece[1], smoothing)]
            self.map = SparseMatrix.stack([matrix for _, _, matrix in moving + still])
            self.moving_map = SparseMatrix.stack([matrix for _, _, matrix in moving])
        if groups is not None:  # prices of other leaves stay with their group too
            of = [_groups_of(self.moving_map[block], groups, n) for block in self.moving.blocks]
            self.names = [own or known for own, known in zip(self.names, of, strict=True)]
        self.spreads, self.widths, self.rates, self.caps = np.ones((4, self.size))
        self.factors = np.ones(self.size)
        self.denominators: list[tuple[int, int, float]] = []  # first row, last row, largest value
        self._set_widths(smoothing, kind)
        self.stages = self._stages(kind.seen)

    def _stages(self, problem: Problem) -> IntVector:
        """The stages of rewards that each row uses, as bits: its price moves when the last of them
        is answered. The rows of a leaf that is not a constraint move together.
        """
        starts = np.array(problem.stage_starts)
        bits = np.ones(self.size, np.int64)
        if starts.size == 2:
            return bits
        for leaf, block in zip(self.moving.leaves, self.moving.blocks, strict=True):
            used = self.moving.map[block].toarray() != 0.0
            if not isinstance(leaf, Bounds):
                used[:] = used.any(axis=0)
            places = np.searchsorted(starts, np.arange(used.shape[1]), side="right") - 1
            one = np.left_shift(1, places)
            bits[block] = [int(np.bitwise_or.reduce(one[row], initial=0)) or 1 for row in used]
        return bits

    @property
    def mixes_stages(self) -> bool:
        """Whether a row uses rewards of several stages."""
        return bool((self.stages & (self.stages - 1)).any())

    @staticmethod
    def of(
        objective: Concave, smoothing: Any, kind: Kind, groups: Groups | None = None
    ) -> Prices | None:
        """None where no leaf has a price. groups: those of items that f is of."""
        leaves = objective.leaves(kind.seen.n_objectives)
        if not any(c > 0.0 and _has_price(leaf, smoothing) for c, leaf, _ in leaves):
            return None
        return Prices(objective, smoothing, kind, groups)

    def _set_widths(self, smoothing: Any, kind: Kind) -> None:
        soft = 0.0 if isinstance(smoothing, Identity) else float(smoothing.beta0)
        for leaves in (self.leaves, self.moving):
            leaves.widen([1.0 if leaf.hard else soft for leaf in leaves.leaves])
        for k, (leaf, block) in enumerate(zip(self.moving.leaves, self.moving.blocks, strict=True)):
            if isinstance(leaf, Bounds):
                rows = self.moving.map[block].toarray()
                spread = np.array([kind.extent(row)[0] + kind.extent(-row)[0] for row in rows])
                self.spreads[block] = spread = np.where(spread > 0.0, spread, 1.0)
                self.widths[block] = spread**2 / self.delta
                self.rates[block], self.caps[block] = leaf.multiplier, _CAP * self.delta / spread
                if isinstance(leaf, Rates):
                    last = block.stop - 1
                    self.denominators.append((block.start, last, kind.extent(rows[-1])[0]))
                    self.factors[block], self.factors[last] = _RAREST, 0.0
                    self.caps[block] /= np.sqrt(_RAREST)
                for leaves in (self.leaves, self.moving):
                    leaves.widen_rows(k, self.widths[block])
            else:
                self.widths[block], self.rates[block] = soft, smoothing.weight
                self.caps[block] = np.inf

    def fresh(self) -> tuple[Vector, Vector]:
        """Prices and factors of widths before the first reward."""
        return np.zeros(self.size), self.factors.copy()

    def tree(self, prices: Vector, factors: Vector) -> PricedTree:
        """The direction, and `reprice`, for the prices and factors of a state: the arrays
        themselves, which the tree changes. A state whose arrays are replaced needs another tree.
        """
        return PricedTree(
            self.map.shape[1],
            self.leaves.tree(_with_margins(self.leaves)),
            self.map.by_rows(),
            self.moving.tree(_with_margins(self.moving)),
            self.moving_map.by_rows(),
            prices,
            factors,
            self.widths,
            self.rates,
            self.caps,
            self.denominators,
        )

    @staticmethod
    def step(t: int) -> float:
        """1/sqrt(t + 1): widths are kept apart, since every leaf has its own."""
        return shrink(1.0, t, None)

    def touch(self, z: Vector, prices: Vector, factors: Vector, t: int) -> tuple[Vector, Vector]:
        """The gradients of the leaves, without margins, and the points where they touch."""
        step, f = self.step(t), self.leaves
        x = self.map @ z
        x[: self.size] -= step * self.widths * factors * prices
        if not self.denominators:
            return f.touch(x, step)
        g = f.tree(self._times(f.params, factors)).gradient(x, step)
        reach = f.reach.copy()
        reach[: self.size] *= factors
        return g, x + step * reach * g

    def paid(self, z: Vector, prices: Vector, factors: Vector, t: int) -> Vector:
        """The gradients of the leaves that have prices, with their margins."""
        step = self.step(t)
        x = self.moving_map @ z - step * self.widths * factors * prices
        own = self._times(_with_margins(self.moving), factors)
        g: Vector = self.moving.tree(own).gradient(x, step)
        return g

    def _times(self, params: list[Vector], factors: Vector) -> list[Vector]:
        """The numbers of the leaves, with the widths of rates times their factors."""
        own = [numbers.copy() for numbers in params]
        for numbers, leaf, block in zip(own, self.moving.leaves, self.moving.blocks, strict=False):
            if isinstance(leaf, Rates):
                numbers.reshape(4, -1)[WIDTHS] *= factors[block]
        return own

    def without_constraints(self, g: Vector, p: Vector) -> tuple[Vector, Vector]:
        """What `touch` gave, with nothing of the hard constraints in it."""
        soft = g.copy()
        for leaf, block in zip(self.leaves.leaves, self.leaves.blocks, strict=True):
            if leaf.hard:
                soft[block] = 0.0
        return soft, p

    def carried(self, prices: Vector, factors: Vector, old: Prices | None) -> tuple[Vector, Vector]:
        """The prices and factors of another plan in this one, leaf by leaf: by the names of
        constraints, else where a leaf has as many rows.
        """
        fresh = self.fresh()
        if old is None:
            return fresh
        for now, was in zip(self._rows(), old._rows(), strict=False):
            (leaf, block, names), (former, there, known) = now, was
            if isinstance(leaf, Rates) and isinstance(former, Rates) and names == known:
                fresh[0][block], fresh[1][block] = prices[there], factors[there]
            elif names and known:
                price = dict(zip(known, prices[there].tolist(), strict=False))
                carried = [price.get(name, 0.0) for name in names]
                fresh[0][block.start : block.start + len(carried)] = carried
            elif type(leaf) is type(former) and block == there:
                fresh[0][block] = prices[there]
        return fresh

    def _rows(self) -> Iterator[tuple[Concave, slice, tuple[str, ...]]]:
        return zip(self.moving.leaves, self.moving.blocks, self.names, strict=True)


def _groups_of(rows: SparseMatrix, groups: Groups, n: int) -> tuple[str, ...]:
    """The groups that the inputs of a leaf are, each a single one of those after n coordinates; ()
    for another leaf.
    """
    single = np.array_equal(rows.rows, np.arange(rows.shape[0])) and (rows.columns >= n).all()
    return tuple(groups.names[j - n][1] for j in rows.columns.tolist()) if single else ()


def typical_slope(objective: Concave, kind: Kind) -> float:
    """How long directions are: the Lipschitz constant, with Delta/B as the price of each row of a
    constraint, which has none.
    """
    n = kind.seen.n_objectives
    slope = objective.relaxed().lipschitz(n)
    if not objective.constrained:
        return slope
    prices = Prices(objective, Identity(), kind)
    rows = prices.moving.map
    lengths = np.sqrt(np.bincount(rows.rows, rows.data**2, prices.size))
    return float(slope + np.linalg.norm(prices.delta / prices.spreads * lengths))


def _with_margins(leaves: Leaves) -> list[Vector]:
    """The numbers of the leaves, with the margins of constraints."""
    own = [params.copy() for params in leaves.params]
    for params, leaf in zip(own, leaves.leaves, strict=True):
        if isinstance(leaf, Bounds):
            params.reshape(4, -1)[MARGINS] = leaf.margin
    return own


def _has_price(leaf: Concave, smoothing: Any) -> bool:
    """Constraints have one; other leaves by `Augmented` smoothing, where they have kinks."""
    return leaf.hard or (isinstance(smoothing, Augmented) and smoothing.shifts(leaf))


def _require_widths(objective: Concave, smoothing: Any) -> None:
    if isinstance(smoothing, Randomized):
        raise InvalidInput(
            f"{objective} has hard constraints, and Randomized smoothing evaluates f all around z, "
            "also outside of them; use Moreau(), or Identity() for a function without a prox"
        )
    if isinstance(smoothing, DualDescent):  # "euclid" has become Moreau
        raise InvalidInput(
            f"{objective} has hard constraints, whose supergradients have no bound, and "
            f"{smoothing} needs one; use Moreau(), or give them a penalty"
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
