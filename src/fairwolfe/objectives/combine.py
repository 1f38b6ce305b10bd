"""Sums, multiples and blocks of objectives: `Sum`, `Scaled`, `On`.

The gradient of a combination is a tree of those of its parts: see kernels/gradients.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import gradients
from fairwolfe.objectives.concave import Concave, Scope, nonnegative, require_objective, unbound
from fairwolfe.objectives.sparse import SparseMatrix
from fairwolfe.objectives.words import Names, Words

_MOST_ADDED = 100  # written as f + g + ...; the parser nests these, so longer sums are a call


class Term(NamedTuple):
    """c f(z[where])."""

    scale: float
    objective: Concave
    where: slice | IntVector

    @property
    def size(self) -> int:
        """How many coordinates it has."""
        where = self.where
        return where.stop - where.start if isinstance(where, slice) else where.size


class Combination(Concave):
    """A sum of multiples of functions of some of the coordinates."""

    @abstractmethod
    def parts(self, n: int) -> list[Term]:
        """The parts of an expression of n coordinates; multiples are > 0."""

    def _value(self, z: Vector) -> float:
        return sum((c * f._value(z[where]) for c, f, where in self.parts(z.size)), 0.0)

    def _envelope(self, z: Vector, step: float) -> float:
        parts = self.parts(z.size)
        return sum((c * f._envelope(z[where], c * step) for c, f, where in parts), 0.0)

    def _prox_point(self, z: Vector, step: float, g: Vector) -> Vector:
        point = z.copy()
        for part in self.parts(z.size):
            here, own = z[part.where], g[part.where] / part.scale
            moved = part.objective._prox_point(here, part.scale * step, own)
            # Parts of a sum see all coordinates, but each moves its own only.
            point[part.where] = np.where(moved == here, point[part.where], moved)
        return point

    def leaves(self, n: int) -> Iterator[tuple[float, Concave, int]]:
        for part in self.parts(n):
            for scale, leaf, size in part.objective.leaves(part.size):
                yield part.scale * scale, leaf, size

    def split(self, n: int) -> Iterator[tuple[float, Concave, SparseMatrix]]:
        everything = SparseMatrix.identity(n)
        for part in self.parts(n):
            for scale, leaf, matrix in part.objective.split(part.size):
                yield part.scale * scale, leaf, matrix @ everything[part.where]

    def curvature(self, n: int) -> Vector:
        total = np.zeros(n)
        for part in self.parts(n):
            total[part.where] += part.objective.curvature(part.size)
        return total

    def _disjoint(self, n: int) -> bool:
        """Whether no coordinate belongs to two parts."""
        return True

    def lipschitz(self, n: int) -> float:
        constants = [p.scale * p.objective.lipschitz(p.size) for p in self.parts(n)]
        if self._disjoint(n):
            return float(np.linalg.norm(constants))
        return float(sum(constants))

    def smoothness(self, n: int) -> float:
        constants = [p.scale * p.objective.smoothness(p.size) for p in self.parts(n)]
        return float(max(constants, default=0.0) if self._disjoint(n) else sum(constants))

    @property
    @abstractmethod
    def members(self) -> tuple[Concave, ...]:
        """The objectives of the parts."""

    @property
    def smooth(self) -> bool:
        return all(member.smooth for member in self.members)

    @property
    def has_prox(self) -> bool:
        return all(member.has_prox for member in self.members)

    def _has_prox_at(self, n: int) -> bool:
        return all(part.objective._has_prox_at(part.size) for part in self.parts(n))

    @property
    def everywhere(self) -> bool:
        return all(member.everywhere for member in self.members)

    @property
    def constrained(self) -> bool:
        return any(member.constrained for member in self.members)

    def _violation(self, z: Vector) -> float:
        parts = self.parts(z.size)
        return max((p.objective._violation(z[p.where]) for p in parts), default=0.0)

    def _branches(self, n: int) -> list[tuple[Concave, int]]:
        return [(part.objective, part.size) for part in self.parts(n)]

    def _tree(self, n: int, parts: list[gradients.Tree]) -> gradients.Tree:
        own = self.parts(n)
        starts = [one.where.start if isinstance(one.where, slice) else one.where for one in own]
        scales = [one.scale for one in own]
        return gradients.combined(n, list(zip(scales, parts, starts, strict=True)))


@dataclass(frozen=True, repr=False)
class Sum(Combination):
    """f + g + ...: concave, Lipschitz constants add; smoothed term by term.

    >>> from fairwolfe.objectives import Linear, Minimum
    >>> (Minimum() + Linear([1.0, 1.0])).value([3.0, 1.0])
    5.0
    """

    terms: tuple[Concave, ...]

    def __post_init__(self) -> None:
        if not self.terms or not all(isinstance(term, Concave) for term in self.terms):
            raise InvalidInput(f"a Sum has terms {self.terms!r}; give objectives, at least one")
        nested = [t.terms if isinstance(t, Sum) else (t,) for t in self.terms]
        object.__setattr__(self, "terms", tuple(t for terms in nested for t in terms))

    @property
    def size(self) -> int | None:
        fixed = sorted({term.size for term in self.terms if term.size is not None})
        if len(fixed) > 1:
            raise InvalidInput(
                f"a sum adds functions of {fixed[0]} and of {fixed[1]} coordinates; aim each at "
                "its own coordinates with .on(...)"
            )
        return fixed[0] if fixed else None

    @property
    def members(self) -> tuple[Concave, ...]:
        return self.terms

    @property
    def has_prox(self) -> bool:
        # Only block by block: there is no closed form for a sum on the same coordinates.
        n = self.size or max(_least_size(term) for term in self.terms)
        return super().has_prox and self._disjoint(n)

    def _has_prox_at(self, n: int) -> bool:
        # Coordinates counted from the end may or may not meet the others, depending on n.
        return super()._has_prox_at(n) and self._disjoint(n)

    def _described(self) -> str:
        return next(term for term in self.terms if term.size is not None)._described()

    def __repr__(self) -> str:
        if not 1 < len(self.terms) <= _MOST_ADDED:
            return super().__repr__()
        return " + ".join(map(repr, self.terms))

    def _words(self, names: Names) -> Words:
        return Words.sum(term._words(names) for term in self.terms)

    def parts(self, n: int) -> list[Term]:
        return [Term(1.0, term, slice(0, n)) for term in self.terms]

    def _disjoint(self, n: int) -> bool:
        # Each term is a function of all coordinates, but a block uses only its own.
        uses = np.zeros(n)
        for term in self.terms:
            uses[_used(term, n)] += 1.0
        return bool(uses.max() <= 1.0)

    def _bound(self, scope: Scope) -> Concave:
        return Sum(tuple(term._bind(scope) for term in self.terms))

    def _lifted(self, where: IntVector, groups: Mapping[str, IntVector]) -> Concave:
        return Sum(tuple(term._lifted(where, groups) for term in self.terms))

    def relaxed(self) -> Concave:
        rest = tuple(rest for rest in (t.relaxed() for t in self.terms) if not is_zero(rest))
        if len(rest) < 2:
            return rest[0] if rest else Scaled(0.0, self)
        return Sum(rest)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.gini import GiniWelfare, Minimum
        from fairwolfe.objectives.linear import Linear
        from fairwolfe.objectives.threshold import AtMost

        return (
            cls((GiniWelfare(), Linear((1.0, 0.0, -0.5, 2.0)))),
            cls((Minimum().on(0, 2), 3.0 * AtMost(0.4, penalty=2.0).on(1))),
        )


def _factor(f: Concave) -> str:
    """An expression as a factor, or as what a method is called of."""
    return f"({f!r})" if isinstance(f, Scaled | Sum) else repr(f)


def is_zero(f: Concave) -> bool:
    """Whether an expression is written as 0 times something."""
    return isinstance(f, Scaled) and f.multiple == 0.0


def relaxed_inside(f: Any) -> Concave:
    """An expression with one `objective`, without the hard constraints of that."""
    rest = f.objective.relaxed()
    changed: Concave = Scaled(0.0, f) if is_zero(rest) else replace(f, objective=rest)
    return changed


def _least_size(term: Concave) -> int:
    if isinstance(term, Scaled):
        return _least_size(term.objective)
    if isinstance(term, On):
        return 1 + max(c if c >= 0 else -c - 1 for c in term.positions())
    return term.size or 1


def _used(term: Concave, n: int) -> IntVector:
    """The coordinates that a term depends on."""
    if isinstance(term, Scaled):
        return _used(term.objective, n) if term.multiple else np.empty(0, dtype=np.int64)
    if isinstance(term, On):
        return np.concatenate([np.arange(n)[part.where] for part in term.parts(n)])
    return np.arange(n)


@dataclass(frozen=True, repr=False)
class Scaled(Combination):
    """c f with c >= 0; 0 f is the zero function, whatever the domain of f.

    >>> from fairwolfe.objectives import Minimum
    >>> (2 * Minimum()).value([3.0, 1.0])
    2.0
    """

    multiple: float
    objective: Concave

    def __post_init__(self) -> None:
        require_objective("what is multiplied", self.objective)
        allowed = (
            "a finite number of at least 0 keeps it concave (to have less of a reward use AtMost, "
            "or a negative weight in Linear)"
        )
        name = f"the multiple of {type(self.objective).__name__}"  # a repr can be very deep
        multiple = nonnegative(name, self.multiple, allowed)
        object.__setattr__(self, "multiple", multiple)

    @property
    def size(self) -> int | None:
        return self.objective.size

    @property
    def members(self) -> tuple[Concave, ...]:
        return (self.objective,) if self.multiple else ()

    def _described(self) -> str:
        return self.objective._described()

    def __repr__(self) -> str:
        return f"{self.multiple!r} * {_factor(self.objective)}"

    def _words(self, names: Names) -> Words:
        return self.objective._words(names).times(self.multiple)

    def parts(self, n: int) -> list[Term]:
        return [Term(self.multiple, self.objective, slice(0, n))] if self.multiple else []

    def _bound(self, scope: Scope) -> Concave:
        return Scaled(
            self.multiple, self.objective._bind(scope if self.multiple else scope.ignored())
        )

    def _lifted(self, where: IntVector, groups: Mapping[str, IntVector]) -> Concave:
        return Scaled(self.multiple, self.objective._lifted(where, groups))

    def relaxed(self) -> Concave:
        return relaxed_inside(self)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.gini import GiniEquality
        from fairwolfe.objectives.welfare import Welfare

        return cls(2.5, GiniEquality()), cls(0.0, Welfare(0.5))


@dataclass(frozen=True, repr=False)
class On(Combination):
    """f of some coordinates only, by name or position: what ``.on(...)`` returns.

    >>> from fairwolfe.objectives import Linear
    >>> Linear([1.0, 2.0]).on(2, 0).value([5.0, 0.0, 1.0])
    11.0
    """

    objective: Concave
    coordinates: tuple[str | int, ...]

    def __post_init__(self) -> None:
        require_objective("what is aimed", self.objective)
        chosen = self.coordinates
        for c in chosen:
            if isinstance(c, bool) or not isinstance(c, (str, int, np.integer)):
                raise InvalidInput(f".on(...) was given {c!r}; give names or positions")
        if not chosen or len(set(chosen)) < len(chosen):
            raise InvalidInput(f".on{chosen!r} must name coordinates, at least one, none twice")
        plain = tuple(c if isinstance(c, str) else int(c) for c in chosen)
        object.__setattr__(self, "coordinates", plain)
        self.objective._check_size(len(plain))

    @property
    def members(self) -> tuple[Concave, ...]:
        return (self.objective,)

    def __repr__(self) -> str:
        return f"{_factor(self.objective)}.on({', '.join(map(repr, self.coordinates))})"

    def _words(self, names: Names) -> Words:
        return self.objective._words(names.part(self.coordinates))

    def positions(self) -> list[int]:
        """The coordinates as numbers."""
        places = [c for c in self.coordinates if not isinstance(c, str)]
        if len(places) < len(self.coordinates):
            raise unbound(self, (c for c in self.coordinates if isinstance(c, str)))
        return places

    def parts(self, n: int) -> list[Term]:
        scope = Scope(n, {}, f"z has {n}")
        places = [scope.index(c) for c in self.positions()]
        if len(set(places)) < len(places):
            raise InvalidInput(f".on{self.coordinates!r} names a coordinate twice in length {n}")
        first, stop = places[0], places[0] + len(places)
        block = places == list(range(first, stop))
        return [Term(1.0, self.objective, slice(first, stop) if block else np.array(places))]

    def _bound(self, scope: Scope) -> Concave:
        places = [scope.index(c) for c in self.coordinates]
        listed = ", ".join(str(c) for c in self.coordinates)
        part = scope.part(places, f".on(...) names {len(places)} ({listed})")
        return On(self.objective._bind(part), tuple(places))

    def _lifted(self, where: IntVector, groups: Mapping[str, IntVector]) -> Concave:
        return self.objective._lifted(where[self.positions()], groups)

    def relaxed(self) -> Concave:
        return relaxed_inside(self)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.gini import EqualExposure, GiniWelfare

        return cls(GiniWelfare(), (1, 2)), cls(EqualExposure(), (3, 0, 2))
