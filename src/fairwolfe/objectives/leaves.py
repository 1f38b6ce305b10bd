"""`Leaves`: an expression as the sum of its leaves, and the affine majorants that they give.

f(s) = sum_i c_i f_i(M_i s), leaf by leaf, is F(y) with y = A s, and F has a proximal map block by
block. For supergradients g of F at p, f(s) <= F(p) - <g, p> + <A' g, s> for every s: the maximum of
<A' g, s> over a set gives a bound on f there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.kernels import gradients
from fairwolfe.objectives.concave import Concave
from fairwolfe.objectives.linear import Linear
from fairwolfe.objectives.sparse import SparseMatrix
from fairwolfe.objectives.threshold import WIDTHS


class Leaves:
    """f as a function F of y = A s that is a sum over blocks of y, one for each leaf.

    >>> from fairwolfe.objectives import Minimum
    >>> f = Leaves(Minimum(), 2)
    >>> touched, intercept, slope = f.majorant(*f.touch(np.array([0.0, 0.5])))
    >>> touched, intercept, slope.tolist()
    (0.75, 0.0, [0.75, 0.25])
    """

    def __init__(self, objective: Concave, n: int, pieces: list[Any] | None = None) -> None:
        if pieces is None:
            pieces = [piece for piece in objective.split(n) if piece[0] > 0.0]
        if not pieces:
            pieces = list(Linear((0.0,) * n).split(n))
        self.map = SparseMatrix.stack([matrix for _, _, matrix in pieces])
        self.turned = self.map.T
        # A multiple of a constraint is that constraint.
        self.scales = [1.0 if leaf.hard else scale for scale, leaf, _ in pieces]
        self.leaves = [leaf for _, leaf, _ in pieces]
        ends = np.cumsum([0, *(matrix.shape[0] for _, _, matrix in pieces)]).tolist()
        self.blocks = [slice(a, b) for a, b in pairwise(ends)]
        self.widths = [1.0] * len(self.leaves)
        self.params = [self._leaf_params(k) for k in range(len(self.leaves))]
        self._idle: list[gradients.Tree] = []
        # How far the proximal point is, per unit of gradient; a leaf without one stays where it is.
        self.reach = np.zeros(ends[-1])
        self.widen([1.0] * len(self.leaves))

    @cached_property
    def matrix(self) -> Any:
        """A, as SciPy has it."""
        return self.map.csr()

    @property
    def smoothable(self) -> bool:
        """Whether every leaf has a proximal map or a gradient that needs no smoothing."""
        return all(leaf.has_prox or leaf.smooth for leaf in self.leaves)

    def _size(self, k: int) -> int:
        return int(self.blocks[k].stop - self.blocks[k].start)

    def _leaf_params(self, k: int) -> Vector:
        """The numbers of a compiled leaf, its own to be changed; none of another."""
        leaf = self.leaves[k]
        return np.array([] if leaf.form is None else leaf._params(self._size(k)), np.float64)

    def __getstate__(self) -> dict[str, Any]:
        # Compiled gradients belong to this process; a copy makes its own.
        return self.__dict__ | {"_idle": []}

    def tree(self, params: list[Vector] | None = None) -> gradients.Tree:
        """The gradient of F, with the widths of now and the numbers of each leaf, or others."""
        numbers = self.params if params is None else params
        parts = [
            (self.scales[k], self.widths[k], leaf._leaf_tree(self._size(k), numbers[k]))
            for k, leaf in enumerate(self.leaves)
        ]
        return gradients.stacked(parts)

    def changed(self) -> None:
        """To be called when `params` have been changed: gradients are those of the new numbers."""
        self._idle = []

    def widen(self, widths: list[float]) -> None:
        """Set the width of the envelope of each leaf."""
        self.widths = [float(width) for width in widths]
        for width, leaf, block in zip(self.widths, self.leaves, self.blocks, strict=True):
            self.reach[block] = width if leaf.has_prox else 0.0
        self.changed()

    def widen_rows(self, k: int, widths: Vector) -> None:
        """Set the width of each row of a constraint, besides that of its leaf."""
        self.params[k].reshape(4, -1)[WIDTHS] = widths
        self.reach[self.blocks[k]] = self.widths[k] * widths
        self.changed()

    @contextmanager
    def lent(self) -> Iterator[gradients.Tree]:
        """A `tree` for one caller at a time: two threads never share one."""
        idle = self._idle
        try:
            tree = idle.pop()
        except IndexError:
            tree = self.tree()
        yield tree
        idle.append(tree)

    def value(self, y: Vector) -> float:
        """F(y)."""
        parts = zip(self.scales, self.leaves, self.blocks, strict=True)
        return sum((scale * leaf._value(y[block]) for scale, leaf, block in parts), 0.0)

    def touch(self, y: Vector, step: float = 1.0) -> tuple[Vector, Vector]:
        """The gradient g of the envelope at y, and the point where g is a supergradient of F.

        `step` multiplies the widths; 0 means F itself.
        """
        with self.lent() as tree:
            g: Vector = tree.gradient(y, step)
        return g, y + step * self.reach * g

    def majorant(self, g: Vector, p: Vector) -> tuple[float, float, Vector]:
        """F(p), and a and b with f(s) <= a + <b, s> for all s, for a supergradient g of F at p."""
        touched = sum(self._softly(p), 0.0)  # constraints are kept where they are touched
        return touched, touched - float(g @ p), self.turned @ g

    def costs(self, y: Vector, g: Vector, p: Vector) -> Vector:
        """What the envelope of each leaf adds to it at y, where `touch` gave g and p; for
        constraints, what their violation at y is worth.
        """
        pairs = zip(self._softly(p), self._softly(y), self.blocks, strict=True)
        added = [there - here + float(g[b] @ (y[b] - p[b])) for there, here, b in pairs]
        return np.array(
            [abs(x) if leaf.hard else x for x, leaf in zip(added, self.leaves, strict=True)]
        )

    def _softly(self, y: Vector) -> list[float]:
        """The value of each leaf; 0 for constraints, whether or not they are kept."""
        parts = zip(self.scales, self.leaves, self.blocks, strict=True)
        return [0.0 if leaf.hard else scale * leaf._value(y[block]) for scale, leaf, block in parts]

    def norms(self, vector: Vector) -> list[float]:
        """The 2-norm of each block."""
        return [float(np.linalg.norm(vector[block])) for block in self.blocks]
