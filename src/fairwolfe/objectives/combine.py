"""Sums, multiples and blocks of objectives: `Sum`, `Scaled`, `On`.

The gradient of a combination is a tree of those of its parts: see kernels/gradients.py.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.problem import real_number
from fairwolfe.errors import InvalidInput, NotConcave
from fairwolfe.kernels import gradients
from fairwolfe.objectives.concave import Concave, Scope, require_objective

__all__ = ["Combination", "On", "Part", "Scaled", "Sum", "is_zero"]


class Part(NamedTuple):
    """c f(z[where])."""

    scale: float
    objective: Concave
    where: slice | IntVector

    def size(self, n: int) -> int:
        return (
            len(range(*self.where.indices(n))) if isinstance(self.where, slice) else len(self.where)
        )


class Combination(Concave):
    """A sum of multiples of functions of some of the coordinates."""

    @abstractmethod
    def parts(self, n: int) -> list[Part]:
        """The parts of an expression of n coordinates; multiples are > 0."""

    def _value(self, z: Vector) -> float:
        return sum((p.scale * p.objective._value(z[p.where]) for p in self.parts(z.size)), 0.0)

    def _envelope(self, z: Vector, step: float) -> float:
        return sum(
            (
                p.scale * p.objective._envelope(z[p.where], p.scale * step)
                for p in self.parts(z.size)
            ),
            0.0,
        )

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
            for scale, leaf, size in part.objective.leaves(part.size(n)):
                yield part.scale * scale, leaf, size

    def split(self, n: int) -> Iterator[tuple[float, Concave, sparse.csr_array[Any]]]:
        everything = sparse.csr_array(sparse.eye_array(n))
        for part in self.parts(n):
            for scale, leaf, matrix in part.objective.split(part.size(n)):
                yield part.scale * scale, leaf, matrix @ everything[part.where]

    def curvature(self, n: int) -> Vector:
        total = np.zeros(n)
        for part in self.parts(n):
            total[part.where] += part.objective.curvature(part.size(n))
        return total

    def _disjoint(self, n: int) -> bool:
        """Whether no coordinate belongs to two parts."""
        return True

    def lipschitz(self, n: int) -> float:
        constants = [p.scale * p.objective.lipschitz(p.size(n)) for p in self.parts(n)]
        if self._disjoint(n):
            return float(np.linalg.norm(constants))
        return float(sum(constants))

    def smoothness(self, n: int) -> float:
        constants = [p.scale * p.objective.smoothness(p.size(n)) for p in self.parts(n)]
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
        return all(part.objective._has_prox_at(part.size(n)) for part in self.parts(n))

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
        return [(part.objective, part.size(n)) for part in self.parts(n)]

    def _tree(self, n: int, parts: list[gradients.Tree]) -> gradients.Tree:
        return gradients.combined(
            n,
            [
                (
                    part.scale,
                    tree,
                    part.where.indices(n)[0] if isinstance(part.where, slice) else part.where,
                )
                for part, tree in zip(self.parts(n), parts, strict=True)
            ],
        )


def _common(sizes: Sequence[int | None], what: str) -> int | None:
    fixed = sorted({size for size in sizes if size is not None})
    if len(fixed) > 1:
        raise InvalidInput(
            f"{what} adds functions of {fixed[0]} and of {fixed[1]} coordinates; aim each at its "
            "own coordinates with .on(...)"
        )
    return fixed[0] if fixed else None


@dataclass(frozen=True)
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
        return _common([term.size for term in self.terms], "a sum")

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
        widest = next(term for term in self.terms if term.size is not None)
        return widest._described()

    def parts(self, n: int) -> list[Part]:
        everything = slice(0, n)
        return [Part(1.0, term, everything) for term in self.terms]

    def _disjoint(self, n: int) -> bool:
        # Each term is a function of all coordinates, but a block uses only its own.
        uses = np.zeros(n)
        for term in self.terms:
            uses[_used(term, n)] += 1.0
        return bool(uses.max() <= 1.0)

    def _bound(self, scope: Scope) -> Concave:
        return Sum(tuple(term._bind(scope) for term in self.terms))

    def relaxed(self) -> Concave:
        rest = tuple(rest for rest in (t.relaxed() for t in self.terms) if not is_zero(rest))
        if len(rest) < 2:
            return rest[0] if rest else Scaled(0.0, self)
        return Sum(rest)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.generalized_gini import GiniWelfare, Minimum
        from fairwolfe.objectives.linear import Linear
        from fairwolfe.objectives.threshold import AtMost

        return (
            cls((GiniWelfare(), Linear((1.0, 0.0, -0.5, 2.0)))),
            cls((Minimum().on(0, 2), 3.0 * AtMost(0.4, penalty=2.0).on(1))),
        )


def is_zero(f: Concave) -> bool:
    """Whether an expression is written as 0 times something."""
    return isinstance(f, Scaled) and f.multiple == 0.0


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


@dataclass(frozen=True)
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
        object.__setattr__(self, "multiple", real_number("the multiple", self.multiple))
        if not (np.isfinite(self.multiple) and self.multiple >= 0.0):
            kind = NotConcave if self.multiple < 0.0 else InvalidInput
            raise kind(
                f"the multiple of {self.objective} is {self.multiple}; a finite number of at least "
                "0 keeps it concave (to have less of a reward use AtMost, or a negative weight in "
                "Linear)"
            )

    @property
    def size(self) -> int | None:
        return self.objective.size

    @property
    def members(self) -> tuple[Concave, ...]:
        return (self.objective,) if self.multiple else ()

    def _described(self) -> str:
        return self.objective._described()

    def parts(self, n: int) -> list[Part]:
        return [Part(self.multiple, self.objective, slice(0, n))] if self.multiple else []

    def _bound(self, scope: Scope) -> Concave:
        return Scaled(
            self.multiple, self.objective._bind(scope if self.multiple else scope.ignored())
        )

    def relaxed(self) -> Concave:
        rest = self.objective.relaxed()
        return Scaled(0.0, self) if is_zero(rest) else Scaled(self.multiple, rest)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.generalized_gini import GiniEquality
        from fairwolfe.objectives.welfare import Welfare

        return cls(2.5, GiniEquality()), cls(0.0, Welfare(0.5))


@dataclass(frozen=True)
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

    def positions(self) -> list[int]:
        """The coordinates as numbers."""
        places = [c for c in self.coordinates if not isinstance(c, str)]
        if len(places) < len(self.coordinates):
            raise InvalidInput(
                f"{self} names its rewards, so it needs a problem to know their coordinates; call "
                ".bind(problem) first"
            )
        return places

    def parts(self, n: int) -> list[Part]:
        scope = Scope(n, {}, f"z has {n}")
        places = [scope.index(c) for c in self.positions()]
        if len(set(places)) < len(places):
            raise InvalidInput(f".on{self.coordinates!r} names a coordinate twice in length {n}")
        if places == list(range(places[0], places[0] + len(places))):
            return [Part(1.0, self.objective, slice(places[0], places[0] + len(places)))]
        return [Part(1.0, self.objective, np.array(places))]

    def _bound(self, scope: Scope) -> Concave:
        places = [scope.index(c) for c in self.coordinates]
        listed = ", ".join(str(c) for c in self.coordinates)
        part = scope.part(places, f".on(...) names {len(places)} ({listed})")
        return On(self.objective._bind(part), tuple(places))

    def relaxed(self) -> Concave:
        rest = self.objective.relaxed()
        return Scaled(0.0, self) if is_zero(rest) else On(rest, self.coordinates)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        from fairwolfe.objectives.equal_exposure import EqualExposure
        from fairwolfe.objectives.generalized_gini import GiniWelfare

        return cls(GiniWelfare(), (1, 2)), cls(EqualExposure(), (3, 0, 2))
