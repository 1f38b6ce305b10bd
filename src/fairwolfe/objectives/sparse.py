"""`SparseMatrix`: linear maps of reward vectors, without SciPy, which takes 0.1 s to import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector


@dataclass(frozen=True, eq=False)
class SparseMatrix:
    """A matrix by its entries (rows, columns, data), sorted by row, none twice.

    Sums run over the entries in their order, and products order them as SciPy's do, so that both
    give the same bits.
    """

    rows: IntVector
    columns: IntVector
    data: Vector
    shape: tuple[int, int]

    @classmethod
    def diagonal(cls, values: Vector) -> Self:
        n = values.size
        return cls(np.arange(n), np.arange(n), values, (n, n))

    @classmethod
    def identity(cls, n: int) -> Self:
        return cls.diagonal(np.ones(n))

    @classmethod
    def of(cls, dense: Matrix) -> Self:
        rows, columns = np.nonzero(dense)
        return cls(rows, columns, dense[rows, columns], dense.shape)

    @classmethod
    def stack(cls, matrices: Sequence[SparseMatrix]) -> Self:
        """Their rows, one matrix after the other."""
        starts = np.cumsum([0, *(matrix.shape[0] for matrix in matrices)])
        pairs = zip(matrices, starts[:-1], strict=True)
        return cls(
            np.concatenate([matrix.rows + start for matrix, start in pairs]),
            np.concatenate([matrix.columns for matrix in matrices]),
            np.concatenate([matrix.data for matrix in matrices]),
            (int(starts[-1]), matrices[0].shape[1]),
        )

    @property
    def starts(self) -> IntVector:
        """Where the entries of each row begin, and where the last ones end, (rows + 1,)."""
        return np.searchsorted(self.rows, np.arange(self.shape[0] + 1))

    @property
    def T(self) -> SparseMatrix:
        order = np.argsort(self.columns, kind="stable")
        turned = self.columns[order], self.rows[order], self.data[order]
        return SparseMatrix(*turned, self.shape[::-1])

    def __getitem__(self, which: Any) -> SparseMatrix:
        """Some of the rows: a slice, a list or an array of their numbers."""
        chosen, starts = np.arange(self.shape[0])[which], self.starts
        counts = np.diff(starts)[chosen]
        before = np.cumsum(counts) - counts
        entries = np.arange(counts.sum()) + np.repeat(starts[chosen] - before, counts)
        rows = np.repeat(np.arange(chosen.size), counts)
        shape = (chosen.size, self.shape[1])
        return SparseMatrix(rows, self.columns[entries], self.data[entries], shape)

    def __matmul__(self, other: Any) -> Any:
        """M z of a vector z, or the product with another sparse matrix."""
        if not isinstance(other, SparseMatrix):
            products = self.data * np.asarray(other)[self.columns]
            return np.bincount(self.rows, products, self.shape[0])
        inner, n = other[self.columns], other.shape[1]  # a row for each entry of this matrix
        places = self.rows[inner.rows] * n + inner.columns
        found, first, which = np.unique(places, return_index=True, return_inverse=True)
        sums: Any = np.bincount(which, self.data[inner.rows] * inner.data, found.size)
        order = np.lexsort((-first, found // n))  # within a row, the entry that came last is first
        shape = (self.shape[0], n)
        return SparseMatrix(found[order] // n, found[order] % n, sums[order], shape)

    def __abs__(self) -> SparseMatrix:
        return replace(self, data=np.abs(self.data))

    def toarray(self) -> Matrix:
        dense = np.zeros(self.shape)
        dense[self.rows, self.columns] = self.data
        return dense

    def by_rows(self) -> tuple[IntVector, IntVector, Vector]:
        """Where each row begins, columns, values: as kernels take it."""
        return self.starts, self.columns, self.data

    def csr(self) -> Any:
        """As SciPy has it."""
        from scipy.sparse import csr_array

        starts, columns, data = self.by_rows()
        return csr_array((data, columns, starts), self.shape)
