"""Functions of linear maps of the rewards: `Mapped`, `ByGroup`, `PerMerit`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from scipy import sparse

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import is_list
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import gradients
from fairwolfe.objectives.combine import Scaled, is_zero
from fairwolfe.objectives.concave import (
    Concave,
    Scope,
    numbers,
    require_objective,
)

__all__ = ["ByGroup", "Mapped", "PerMerit"]

_DENSE_ROWS = 1000  # a Gram matrix of this size still takes well under a second


class _OfMap(Concave):
    """f(M z). Smoothing acts on f, then the chain rule."""

    objective: Concave
    of_items = True

    @abstractmethod
    def _matrix(self) -> sparse.csr_array[Any]:
        """M, made once."""

    @cached_property
    def map(self) -> sparse.csr_array[Any, Any]:  # by scipy's stubs M z has the axes of M
        """M: a row for each input of f, a column for each reward."""
        return self._matrix()

    @property
    def _rows(self) -> int:
        return int(self.map.shape[0])

    def _value(self, z: Vector) -> float:
        return self.objective._value(self.map @ z)

    def _envelope(self, z: Vector, step: float) -> float:
        return self.objective._envelope(self.map @ z, step)

    def norm(self, n: int) -> float:
        """|M|_2, or an upper bound on it where M has very many rows and columns."""
        matrix = self.map
        gram = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
        if gram.shape[0] <= _DENSE_ROWS:
            return float(np.sqrt(max(np.linalg.eigvalsh(gram.toarray())[-1], 0.0)))
        return float(np.sqrt(abs(gram).sum(axis=1).max()))

    def lipschitz(self, n: int) -> float:
        return self.objective.lipschitz(self._rows) * self.norm(n)

    def smoothness(self, n: int) -> float:
        inner = self.objective.smoothness(self._rows)
        return inner * self.norm(n) ** 2 if np.isfinite(inner) else np.inf

    @property
    def smooth(self) -> bool:
        return self.objective.smooth

    @property
    def has_prox(self) -> bool:
        return False

    @property
    def everywhere(self) -> bool:
        return self.objective.everywhere

    @property
    def constrained(self) -> bool:
        return self.objective.constrained

    def relaxed(self) -> Concave:
        rest = self.objective.relaxed()
        return Scaled(0.0, self) if is_zero(rest) else replace(self, objective=rest)  # type: ignore[type-var]

    def _violation(self, z: Vector) -> float:
        return self.objective._violation(self.map @ z)

    def leaves(self, n: int) -> Iterator[tuple[float, Concave, int]]:
        return self.objective.leaves(self._rows)

    def split(self, n: int) -> Iterator[tuple[float, Concave, sparse.csr_array[Any]]]:
        for scale, leaf, matrix in self.objective.split(self._rows):
            yield scale, leaf, matrix @ self.map

    def curvature(self, n: int) -> Vector:
        matrix = self.map
        used = np.diff(sparse.csc_array(matrix).indptr) > 0
        inner = float(self.objective.curvature(matrix.shape[0]).max())
        return np.where(used, inner * self.norm(n) ** 2, 0.0)

    def _branches(self, n: int) -> list[tuple[Concave, int]]:
        self._check_size(n)
        return [(self.objective, self._rows)]

    def _tree(self, n: int, parts: list[gradients.Tree]) -> gradients.Tree:
        matrix = self.map
        return gradients.mapped(n, (matrix.indptr, matrix.indices, matrix.data), parts[0])


@dataclass(frozen=True)
class Mapped(_OfMap):
    """f(M z): a concave function of linear combinations of the rewards.

    Lipschitz constant L |M|_2. Moreau smoothing acts on f, so that it needs only the proximal map
    of f. `matrix` has a row for each input of f and a column for each reward.

    >>> from fairwolfe.objectives import Minimum
    >>> Mapped(Minimum(), [[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]).value([1.0, 2.0, 1.0])
    2.0
    """

    objective: Concave
    matrix: Sequence[Sequence[float]]

    def __post_init__(self) -> None:
        require_objective("the objective of Mapped", self.objective)
        given: Any = self.matrix
        dense = given.toarray() if hasattr(given, "toarray") else given
        if not is_list(dense) or not tuple(dense):
            raise InvalidInput(
                f"the matrix of Mapped is {given!r}; give rows of numbers, one for each input of "
                "the objective"
            )
        rows = [numbers(f"row {i} of the matrix", row) for i, row in enumerate(dense)]
        if len({len(row) for row in rows}) != 1:
            raise InvalidInput(
                f"the rows of the matrix have lengths {[len(row) for row in rows]}; give a matrix "
                "with a column for each reward"
            )
        object.__setattr__(self, "matrix", tuple(rows))
        self.objective._check_size(len(rows))

    @property
    def size(self) -> int | None:
        return len(self.matrix[0])

    def _described(self) -> str:
        return f"the matrix of Mapped has {self.size} columns"

    def _matrix(self) -> sparse.csr_array[Any]:
        return sparse.csr_array(np.array(self.matrix))

    def _bound(self, scope: Scope) -> Concave:
        self._fit(scope)
        rows = len(self.matrix)
        what = f"the matrix has {rows} rows"
        labels = tuple(f"row {i} of the matrix" for i in range(rows))
        inner = Scope(rows, {}, what, reach=scope.through(self.map), labels=labels)
        return Mapped(self.objective._bind(inner), self.matrix)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.generalized_gini import GiniWelfare
        from fairwolfe.objectives.welfare import Nash

        return (
            cls(GiniWelfare(), ((1.0, 0.5, 0.0), (0.0, -1.0, 2.0), (0.3, 0.3, 0.3))),
            cls(Nash(), ((1.0, 1.0, 0.0), (0.0, 0.0, 2.0))),
        )


@dataclass(frozen=True)
class ByGroup(_OfMap):
    """f of the totals of groups of coordinates, such as the exposure of each producer's items.

    `labels` gives the group of each coordinate; groups are in the order of their first member,
    and a named group can be used by name in f.

    >>> from fairwolfe.objectives import Minimum
    >>> ByGroup(Minimum(), ["a", "b", "a"]).value([1.0, 5.0, 2.0])
    3.0
    """

    objective: Concave
    labels: Sequence[Hashable]

    def __post_init__(self) -> None:
        require_objective("the objective of ByGroup", self.objective)
        given: Any = self.labels
        if not is_list(given) and not isinstance(given, str):
            raise InvalidInput(f"labels is {given!r:.80}; give the group of each coordinate")
        labels = given.tolist() if isinstance(given, np.ndarray) else given
        object.__setattr__(self, "labels", tuple(labels))
        if not self.labels:
            raise InvalidInput("labels is empty; give the group of each coordinate")
        for label in self.labels:
            if not isinstance(label, Hashable):
                raise InvalidInput(f"a label is {label!r:.80}; give texts or numbers")
        self.objective._check_size(len(self.groups))

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The distinct labels in the order of their first member."""
        return tuple(dict.fromkeys(self.labels))

    @property
    def size(self) -> int | None:
        return len(self.labels)

    def _described(self) -> str:
        return f"ByGroup has {self.size} labels"

    def norm(self, n: int) -> float:
        return float(np.sqrt(np.diff(self.map.indptr).max()))

    def _matrix(self) -> sparse.csr_array[Any]:
        row = {label: i for i, label in enumerate(self.groups)}
        rows = [row[label] for label in self.labels]
        columns = range(len(rows))
        return sparse.csr_array((np.ones(len(rows)), (rows, columns)), (len(row), len(rows)))

    def _bound(self, scope: Scope) -> Concave:
        self._fit(scope)
        groups = self.groups
        names = {label: i for i, label in enumerate(groups) if isinstance(label, str)}
        what = f"there are {len(groups)} groups"
        reach, labels = scope.through(self.map), tuple(map(str, groups))
        inner = Scope(len(groups), names, what, reach=reach, labels=labels)
        return ByGroup(self.objective._bind(inner), self.labels)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.generalized_gini import GiniEquality

        return (cls(GiniEquality(), ("a", "b", "a", "c", "b")),)


@dataclass(frozen=True)
class PerMerit(_OfMap):
    """f(z_1/merit_1, ..., z_n/merit_n): rewards per unit of merit, all merits > 0.

    >>> from fairwolfe.objectives import Minimum
    >>> PerMerit(Minimum(), [1.0, 4.0]).value([1.0, 2.0])
    0.5
    """

    objective: Concave
    merit: Sequence[float]

    def __post_init__(self) -> None:
        require_objective("the objective of PerMerit", self.objective)
        merit = numbers("merit", self.merit)
        for i, value in enumerate(merit):
            if value <= 0.0:
                raise InvalidInput(f"merit[{i}] is {value}; merits must be positive")
        object.__setattr__(self, "merit", merit)
        self.objective._check_size(len(merit))

    @property
    def size(self) -> int | None:
        return len(self.merit)

    def _described(self) -> str:
        return f"PerMerit has {self.size} merits"

    def norm(self, n: int) -> float:
        return 1.0 / min(self.merit)

    def _matrix(self) -> sparse.csr_array[Any]:
        return sparse.csr_array(sparse.diags_array(1.0 / np.array(self.merit)))

    def _bound(self, scope: Scope) -> Concave:
        self._fit(scope)
        inner = replace(scope, reach=scope.through(self.map))
        return PerMerit(self.objective._bind(inner), self.merit)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.equal_exposure import EqualExposure

        return (cls(EqualExposure(), (0.5, 1.0, 2.0)),)
