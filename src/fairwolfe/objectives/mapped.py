"""Functions of linear maps of the rewards: `Mapped`, `ByGroup`, `PerMerit`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.problem import is_list
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import gradients
from fairwolfe.objectives.combine import relaxed_inside
from fairwolfe.objectives.concave import Concave, Scope, numbers, require_objective
from fairwolfe.objectives.linear import Linear
from fairwolfe.objectives.sparse import SparseMatrix
from fairwolfe.objectives.words import Names, Words

_LISTED = 4  # rows and columns of a matrix, in a description
_DENSE_ROWS = 1000  # a Gram matrix of this size still takes well under a second


class _OfMap(Concave):
    """f(M z). Smoothing acts on f, then the chain rule."""

    objective: Concave
    of_items = True
    has_prox = False

    @abstractmethod
    def _matrix(self) -> SparseMatrix:
        """M, made once."""

    @cached_property
    def map(self) -> SparseMatrix:
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
        matrix = self.map.csr()
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
    def everywhere(self) -> bool:
        return self.objective.everywhere

    @property
    def constrained(self) -> bool:
        return self.objective.constrained

    def relaxed(self) -> Concave:
        return relaxed_inside(self)

    def _violation(self, z: Vector) -> float:
        return self.objective._violation(self.map @ z)

    def leaves(self, n: int) -> Iterator[tuple[float, Concave, int]]:
        return self.objective.leaves(self._rows)

    def split(self, n: int) -> Iterator[tuple[float, Concave, SparseMatrix]]:
        for scale, leaf, matrix in self.objective.split(self._rows):
            yield scale, leaf, matrix @ self.map

    def curvature(self, n: int) -> Vector:
        curvature = np.zeros(n)
        inner = float(self.objective.curvature(self._rows).max())
        curvature[self.map.columns] = inner * self.norm(n) ** 2
        return curvature

    def _branches(self, n: int) -> list[tuple[Concave, int]]:
        self._check_size(n)
        return [(self.objective, self._rows)]

    def _tree(self, n: int, parts: list[gradients.Tree]) -> gradients.Tree:
        return gradients.mapped(n, self.map.by_rows(), parts[0])


@dataclass(frozen=True, repr=False)
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

    def _matrix(self) -> SparseMatrix:
        return SparseMatrix.of(np.array(self.matrix))

    def _words(self, names: Names) -> Words:
        inside = self._aimed(names)
        rows = len(self.matrix)
        many = f"{rows} combinations of {inside.several}"
        own = Names((), many, many, f"each of {many}", "combination {} of the rewards")
        combinations = [Linear(row)._words(inside) for row in self.matrix]
        if rows <= _LISTED and all(0 < len(one.terms) <= _LISTED for one in combinations):
            texts = [f"({one})" if len(one.terms) > 1 else str(one) for one in combinations]
            own = Names().part(texts)
        return self.objective._words(own)

    def _bound(self, scope: Scope) -> Concave:
        self._fit(scope)
        rows = len(self.matrix)
        what = f"the matrix has {rows} rows"
        called = "row {} of the matrix".format
        inner = Scope(rows, {}, what, reach=scope.through(self.map), called=called)
        return Mapped(self.objective._bind(inner), self.matrix)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.gini import GiniWelfare
        from fairwolfe.objectives.welfare import Nash

        return (
            cls(GiniWelfare(), ((1.0, 0.5, 0.0), (0.0, -1.0, 2.0), (0.3, 0.3, 0.3))),
            cls(Nash(), ((1.0, 1.0, 0.0), (0.0, 0.0, 2.0))),
        )


@dataclass(frozen=True, repr=False)
class ByGroup(_OfMap):
    """f of the totals of groups of coordinates, such as the exposure of each producer's items.

    `labels` gives the group of each coordinate, for a catalogue that does not change. `by` names an
    attribute of the items of an agent (`fw.Item`): labels then follow the items as these come and
    go, and a group is averaged over its own time. Groups are in the order of their first member,
    and a named group can be used by name in f.

    >>> from fairwolfe.objectives import Minimum
    >>> ByGroup(Minimum(), ["a", "b", "a"]).value([1.0, 5.0, 2.0])
    3.0
    >>> ByGroup(Minimum(), by="maker")
    ByGroup(Minimum(), by='maker')
    """

    objective: Concave
    labels: Sequence[Hashable] | None = None
    by: str | None = field(default=None, kw_only=True)
    unit = "labels"

    def __post_init__(self) -> None:
        require_objective("the objective of ByGroup", self.objective)
        if self.by is not None and (not isinstance(self.by, str) or not self.by):
            raise InvalidInput(f"by is {self.by!r:.80}; give the name of an attribute of the items")
        if self.labels is None:
            if self.by is None:
                raise InvalidInput(
                    "ByGroup has neither labels nor by; give labels=[...], the group of each "
                    'coordinate, or by="maker", an attribute of the items'
                )
            return
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
    def _members(self) -> tuple[Hashable, ...]:
        """The label of each coordinate."""
        if self.labels is None:
            raise InvalidInput(
                f"{self} groups by an attribute of items, and there are no items with attributes "
                f"here; rank items that have one, such as Item(features, {self.by}='acme'), or "
                "give ByGroup the labels of a fixed catalogue"
            )
        return tuple(self.labels)

    @property
    def groups(self) -> tuple[Hashable, ...]:
        """The distinct labels in the order of their first member."""
        return tuple(dict.fromkeys(self._members))

    @property
    def size(self) -> int | None:
        return None if self.labels is None else len(self.labels)

    def norm(self, n: int) -> float:
        return float(np.sqrt(np.bincount(self.map.rows).max()))

    def _matrix(self) -> SparseMatrix:
        row = {label: i for i, label in enumerate(self.groups)}
        rows = np.array([row[label] for label in self._members])
        n, order = rows.size, np.argsort(rows, kind="stable")
        return SparseMatrix(rows[order], order, np.ones(n), (len(row), n))

    def _words(self, names: Names) -> Words:
        groups = () if self.labels is None else self.groups
        return self.objective._words(self._aimed(names).groups(list(map(str, groups)), self.by))

    def _lifted(self, where: IntVector, groups: Mapping[str, IntVector]) -> Concave:
        if self.by is None:
            return super()._lifted(where, groups)
        return self.objective._lifted(groups[self.by], {})

    def _bound(self, scope: Scope) -> Concave:
        groups = self.groups
        self._fit(scope)
        names = {label: i for i, label in enumerate(groups) if isinstance(label, str)}
        what = f"there are {len(groups)} groups"
        reach, labels = scope.through(self.map), tuple(map(str, groups))
        called = labels.__getitem__
        inner = Scope(len(groups), names, what, reach=reach, called=called, grouped=True)
        return replace(self, objective=self.objective._bind(inner))

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.gini import GiniEquality

        return (cls(GiniEquality(), ("a", "b", "a", "c", "b")),)


@dataclass(frozen=True, repr=False)
class PerMerit(_OfMap):
    """f(z_1/merit_1, ..., z_n/merit_n): rewards per unit of merit, all merits > 0.

    >>> from fairwolfe.objectives import Minimum
    >>> PerMerit(Minimum(), [1.0, 4.0]).value([1.0, 2.0])
    0.5
    """

    objective: Concave
    merit: Sequence[float]
    unit = "merits"

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

    def norm(self, n: int) -> float:
        return 1.0 / min(self.merit)

    def _matrix(self) -> SparseMatrix:
        return SparseMatrix.diagonal(1.0 / np.array(self.merit))

    def _words(self, names: Names) -> Words:
        return self.objective._words(self._aimed(names).mapped(lambda one: f"{one} per merit"))

    def _bound(self, scope: Scope) -> Concave:
        self._fit(scope)
        inner = replace(scope, reach=scope.through(self.map))
        return PerMerit(self.objective._bind(inner), self.merit)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.gini import EqualExposure

        return (cls(EqualExposure(), (0.5, 1.0, 2.0)),)
