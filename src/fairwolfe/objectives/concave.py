"""`Concave`: the base class of objectives, with gradients, proximal maps, binding and algebra."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cached_property
from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.kinds import kind_of
from fairwolfe.core.problem import Frozen, Problem, all_finite, positive, real_number
from fairwolfe.errors import FairwolfeError, InvalidInput, NoProx, NotConcave, did_you_mean
from fairwolfe.kernels import gradients
from fairwolfe.objectives.sparse import SparseMatrix
from fairwolfe.objectives.words import Names, Words

if TYPE_CHECKING:
    from fairwolfe.objectives.combine import On, Scaled, Sum


_ROUNDING = 1e-14  # of a sum of products, relative to its terms


@dataclass(frozen=True)
class Reach:
    """What the coordinates of a scope can be: M z, for averages z in the ranges of a problem.

    Also before the first reward, where z = 0 whatever the ranges are. Exposures are taken to lie
    in [0, 1] each, since items that joined late are averaged over their own time.
    """

    problem: Problem
    rows_of: Callable[[], SparseMatrix] | range  # how to make M; a range: rows of the identity

    @cached_property
    def matrix(self) -> SparseMatrix:
        """M: a row for each coordinate, a column for each reward."""
        if isinstance(self.rows_of, range):
            return SparseMatrix.identity(self.problem.n_objectives)[list(self.rows_of)]
        return self.rows_of()

    def part(self, places: range | list[int]) -> Reach:
        """That of some of the coordinates."""
        if isinstance(self.rows_of, range) and isinstance(places, range):
            return Reach(self.problem, self.rows_of[places.start : places.stop : places.step])
        return Reach(self.problem, lambda: self.matrix[list(places)])

    def low(self) -> tuple[Vector, Vector]:
        """The smallest value of each coordinate, and how far rounding may have moved it."""
        if isinstance(self.rows_of, range):
            lowest = self.problem.low[self.rows_of.start : self.rows_of.stop : self.rows_of.step]
            return np.minimum(lowest, 0.0), _ROUNDING * abs(lowest)
        order = np.lexsort((self.matrix.columns, self.matrix.rows))
        data, columns = self.matrix.data[order], self.matrix.columns[order]
        up = replace(self.matrix, columns=columns, data=np.maximum(data, 0.0))
        down = replace(up, data=np.minimum(data, 0.0))
        low, high = self.problem.low, self.problem.high
        lowest = np.minimum(up @ low + down @ high, 0.0)
        return lowest, _ROUNDING * (up @ abs(low) - down @ abs(high))

    def rows(self) -> Matrix:
        """The smallest and the largest value of each coordinate, (n, 2), by the reward vectors
        that there are.
        """
        dense = self.matrix.toarray()
        return np.array([(-self.most_of(-row), self.most_of(row)) for row in dense])

    def most(self, weights: Vector) -> float:
        """The largest <weights, M z> of a reward vector z."""
        return self.most_of(self.matrix.T @ weights)

    def most_of(self, slope: Vector) -> float:
        """The largest <slope, z> of a reward vector z."""
        return kind_of(self.problem).extent(slope)[0]

    def blame(self, row: int) -> str:
        """Which reward brings a coordinate furthest down, with its range and its weight."""
        only = self.matrix[[row]]
        columns, weights = only.columns, only.data
        low, high = self.problem.low[columns], self.problem.high[columns]
        worst = int(np.minimum(weights * low, weights * high).argmin())
        place = int(columns[worst]) - (self.problem.n_items or 0)
        who = f"the exposure of item {columns[worst]}"
        if place >= 0:
            who = f"reward {list(self.problem.rewards)[place]!r}"
        times = "" if weights[worst] == 1.0 else f" and counts {weights[worst]:g} times"
        return f"{who} has the range ({low[worst]:g}, {high[worst]:g}){times}"


@dataclass(frozen=True)
class Scope:
    """The coordinates an expression is bound to: how many, and the names that some have."""

    size: int
    names: Mapping[str, int]
    what: str
    n_users: int | None = None  # of a ranking problem: user-side rewards, the last coordinates
    box: Callable[[], tuple[Vector, Vector]] | None = None  # smallest and largest values
    reach: Reach | None = None  # None where the values do not matter
    called: Callable[[int], str] = "coordinate {}".format  # what messages say without a name
    grouped: bool = False  # whether they are totals of groups

    @classmethod
    def of(cls, problem: Problem) -> Scope:
        names = {name: problem.coordinate(name) for name in problem.rewards}
        listed = ", ".join(names)
        items = f"{problem.n_items} items and " if problem.n_items else ""
        what = f"the problem has {items}{len(names)} rewards ({listed})"
        users = len(names) if problem.n_items else None
        reach = Reach(problem, range(problem.n_objectives))

        def box() -> tuple[Vector, Vector]:
            return problem.low, problem.high

        return cls(problem.n_objectives, names, what, users, box, reach, "item {}".format)

    def part(self, where: slice | list[int], what: str) -> Scope:
        """The scope of some of the coordinates, with new numbers."""
        # No loop over the coordinates of a slice, which may be a million items.
        places = range(self.size)[where] if isinstance(where, slice) else where
        if isinstance(places, list):
            places = np.arange(self.size)[places].tolist()
        old = {place: new for new, place in enumerate(places)} if isinstance(places, list) else {}
        names = {}
        for name, place in self.names.items():
            if place in (old or places):
                names[name] = old[place] if old else places.index(place)
        box, whole = None, self.box
        if whole is not None:

            def box() -> tuple[Vector, Vector]:
                low, high = whole()
                rows = where if isinstance(where, slice) else places
                return low[rows], high[rows]

        reach = self.reach.part(places) if self.reach else None

        def called(i: int) -> str:
            return self.label(places[i])

        return Scope(len(places), names, what, None, box, reach, called, self.grouped)

    def through(self, matrix: SparseMatrix) -> Reach | None:
        """The reach of M times these coordinates."""
        inner = self.reach
        return Reach(inner.problem, lambda: matrix @ inner.matrix) if inner else None

    def label(self, i: int) -> str:
        """What messages call a coordinate."""
        named = next((name for name, place in self.names.items() if place == i), None)
        return self.called(i) if named is None else named

    def ignored(self) -> Scope:
        """The same coordinates for a function that counts 0 times, so that its domain is free."""
        return replace(self, reach=None)

    def index(self, coordinate: str | int) -> int:
        """A name or a position as a position."""
        if isinstance(coordinate, str):
            if coordinate not in self.names:
                raise InvalidInput(
                    f"there is no reward {coordinate!r}; {did_you_mean(coordinate, self.names)}"
                )
            return self.names[coordinate]
        if not -self.size <= coordinate < self.size:
            raise InvalidInput(
                f"there is no coordinate {coordinate}: {self.what}, so coordinates go from 0 to "
                f"{self.size - 1}"
            )
        return int(coordinate) % self.size


class Concave(ABC):
    """A concave function of the average reward vector.

    A leaf gives its value, its Lipschitz constant, and one gradient: of its Moreau envelope with
    width `step`, or for step 0 a supergradient of the function itself. It is a compiled one
    (`form`, `_params`) or Python (`_gradient`). Sums, multiples, blocks and maps of leaves are
    trees of these gradients (`tree`).
    """

    form: ClassVar[str | None] = None
    """The name of a leaf among the compiled ones (kernels/gradients.py), if it is one of them."""
    hard: ClassVar[bool] = False
    """Whether a leaf is a constraint: 0 where it is kept, -inf elsewhere."""
    unit: ClassVar[str] = ""
    """What it has one of for each coordinate, in messages about its size, such as "weights"."""
    instead: ClassVar[str] = (
        "smooth it with Moreau(), which works on every leaf by itself, or Randomized()"
    )
    """What to do where there is no proximal map."""
    of_items: ClassVar[bool] = False
    """Whether in a ranking it is aimed at the exposures, where it takes as many coordinates."""

    def __new__(cls, *args: Any, **options: Any) -> Self:
        if "per" in options and "per" not in signature(cls.__init__).parameters:
            raise cls._no_rate()
        return super().__new__(cls)

    @classmethod
    def _no_rate(cls) -> FairwolfeError:
        """Why there is no function of a rate."""
        return NotConcave(
            f"{cls.__name__} takes no per: a rate is the ratio of two averages, and {cls.__name__} "
            "of a ratio is not concave; a rate can have a limit: add AtMost({'returned': 0.08}, "
            "per='ordered') or AtLeast({'kept': 0.92}, per='ordered')"
        )

    # --- what a leaf gives --------------------------------------------------------------------

    @property
    def size(self) -> int | None:
        """The only length that fits, or None where any does."""
        return None

    @abstractmethod
    def _value(self, z: Vector) -> float:
        """The value at a trusted z."""

    @abstractmethod
    def lipschitz(self, n: int) -> float:
        """L in the 2-norm for n coordinates; inf where there is none.

        For Welfare and Nash on the values that the ranges allow, once bound; unbound on z >= 0.
        """

    def _gradient(self, z: Vector, step: float) -> Vector:
        """The gradient of the Moreau envelope of width `step` at a trusted z, (prox - z)/step; for
        step 0 a supergradient. Of leaves in Python; those of the package are compiled.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no gradient; write _gradient(z, step)"
        )

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "_gradient" in vars(cls):  # also of a subclass of a compiled leaf
            cls.form = None

    def smoothness(self, n: int) -> float:
        """C, the Lipschitz constant of the gradient for n coordinates; inf where there is none."""
        return np.inf

    def _params(self, n: int) -> Vector:
        """The numbers of a compiled leaf: see `kernels.gradients.leaf`."""
        return np.empty(0)

    @property
    def everywhere(self) -> bool:
        """Finite on all of R^n (not so for Welfare and Nash)."""
        return True

    @property
    def has_prox(self) -> bool:
        """Whether `prox` exists in closed form."""
        return True

    @property
    def has_gradient(self) -> bool:
        """Whether the gradient is exact, not taken by differences."""
        return True

    def leaves(self, n: int) -> Iterator[tuple[float, Concave, int]]:
        """Every (multiple, leaf, number of its coordinates) of the expression."""
        yield 1.0, self, n

    def split(self, n: int) -> Iterator[tuple[float, Concave, SparseMatrix]]:
        """Every (c, leaf, M) of the expression: f(z) is the sum of c leaf(M z).

        For any points p with supergradients g of the leaves there, the sum of
        c (leaf(p) + <g, M z - p>) is an affine majorant of f.
        """
        yield 1.0, self, SparseMatrix.identity(n)

    def bend(self, z: Vector) -> float:
        """The largest second derivative at z, without its sign, of a leaf that is a sum of smooth
        functions of one coordinate each; inf for all others. It gives `Moreau` its default width.
        """
        return np.inf

    def scale(self, spans: Vector, usual: Vector) -> float:
        """How much a leaf is worth: what it can change by, where coordinates change by `spans` and
        are usually about `usual`. It gives constraints their default widths.
        """
        slope = self.lipschitz(spans.size)
        return float(slope * np.linalg.norm(spans)) if np.isfinite(slope) else 0.0

    @property
    def constrained(self) -> bool:
        """Whether there are hard constraints in the expression."""
        return self.hard

    def relaxed(self) -> Concave:
        """The other parts: the expression without its hard constraints."""
        return self

    def _violation(self, z: Vector) -> float:
        """`violation` at a trusted z."""
        return 0.0

    @property
    def curved(self) -> bool:
        """Whether a leaf is a sum of functions of one coordinate each without kinks, though some
        have no Lipschitz gradient.
        """
        return False

    def curvature(self, n: int) -> Vector:
        """A diagonal bound, in units of 1/step, on the curvature of the smoothing with `step`.

        Each leaf's envelope bends by at most 1/step in its own coordinates; sums and maps stack
        these. Smoothing with width b therefore has a max(curvature)/b-Lipschitz gradient.
        """
        return np.broadcast_to(1.0, (n,))

    def _bound(self, scope: Scope) -> Concave:
        """The same function with names resolved; sizes are checked by the caller."""
        return self

    # --- what everybody calls -----------------------------------------------------------------

    @property
    def smooth(self) -> bool:
        """Whether the gradient is Lipschitz, so that no smoothing is needed."""
        return bool(np.isfinite(self.smoothness(self.size or 2)))

    def value(self, z: Vector) -> float:
        """f(z); -inf outside the domain, never NaN."""
        return float(self._value(self._checked(z)))

    def violation(self, z: Vector) -> float:
        """How far z is beyond the levels of hard constraints, at most, in the units of the levels
        (so that the rate of something per nothing is inf beyond); 0 where all are kept.
        """
        return float(self._violation(self._checked(z)))

    def gradient(self, z: Vector) -> Vector:
        """A supergradient g at z: f(y) <= f(z) + <g, y - z> for every y."""
        point = self._checked(z)
        g = self._smoothed(point, 0.0)
        if not np.isfinite(g).all():
            worst = int(np.flatnonzero(~np.isfinite(g))[0])
            raise InvalidInput(
                f"{self} has no supergradient at z[{worst}] = {point[worst]}: it is outside its "
                "domain or on its edge; smooth it with Moreau(), or give it an offset > 0"
            )
        return g

    def prox(self, z: Vector, step: float) -> Vector:
        """argmax_y f(y) - |y - z|^2 / (2 step), for step > 0."""
        point = self._checked(z)
        if not self._has_prox_at(point.size):
            raise NoProx(f"{self} has no proximal map in closed form; {self.instead}")
        return self._prox_point(point, step, self._smoothed(point, positive("step", step)))

    def envelope(self, z: Vector, step: float) -> float:
        """Value of the Moreau smoothing: max_y f(y) - |y - z|^2/(2 step), leaf by leaf."""
        point = self._checked(z)
        return self._envelope(point, positive("step", step))

    def envelope_gradient(self, z: Vector, step: float) -> Vector:
        """Gradient of `envelope`."""
        point = self._checked(z)
        for _, leaf, _ in self.leaves(point.size):
            leaf._check_smoothable()
        return self._smoothed(point, positive("step", step))

    def on(self, *coordinates: str | int) -> On:
        """The same function of these coordinates only, by name or position.

        >>> from fairwolfe.objectives import Minimum
        >>> Minimum().on(0, 2).value([3.0, 1.0, 2.0])
        2.0
        """
        from fairwolfe.objectives.combine import On

        return On(self, coordinates)

    def bind(self, problem: Problem) -> Concave:
        """Resolve names, check sizes, and see that the ranges stay in the domain of f."""
        bound = self._bind(Scope.of(problem))
        if bound is self:  # what it learns about this problem is no business of another one
            bound = object.__new__(type(self))
            bound.__dict__.update(self.__dict__)
        bound.__dict__["_origin"] = (self, problem)
        return bound

    def describe(self, problem: Problem | None = None) -> str:
        """What it is, in words; with a problem, or once bound to one, rewards have their names.

        >>> from fairwolfe.objectives import AtMost, Linear
        >>> (Linear([1.0, 0.5]) + AtMost({"cost": 0.02})).describe()
        'reward 0 + 0.5 x reward 1; cost at most 0.02'
        """
        origin, bound_to = self.__dict__.get("_origin", (self, None))
        problem = bound_to if problem is None else problem
        return str(origin._words(Names() if problem is None else Names.of(problem)))

    def _words(self, names: Names) -> Words:
        """The terms and limits of `describe`, for coordinates of these names."""
        given = ", ".join(self._written(named=True))
        settings = f" ({given})" if given else ""
        return Words(((1.0, f"{type(self).__name__} of {names.every}{settings}"),))

    def _lifted(self, where: IntVector, groups: Mapping[str, IntVector]) -> Concave:
        """A bound function of averages, those of groups among them: its own coordinates are at
        `where`, and those of the groups by each attribute at `groups`.
        """
        return self.on(*where.tolist())

    def __add__(self, other: object) -> Sum:
        from fairwolfe.objectives.combine import Sum

        if not isinstance(other, Concave):
            return NotImplemented
        return Sum((self, other))

    def __radd__(self, other: object) -> Concave:
        # sum([f, g]) starts from 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, multiple: float) -> Scaled:
        from fairwolfe.objectives.combine import Scaled

        if isinstance(multiple, bool) or not isinstance(multiple, (int, float, np.number)):
            return NotImplemented
        return Scaled(multiple, self)

    __rmul__ = __mul__

    def tree(self, n: int) -> gradients.Tree:
        """The compiled gradient for n coordinates, with scratch of its own: see
        kernels/gradients.py. Every call makes another one; each serves one thread at a time.
        """
        with suppress(RecursionError):  # sizes of parts are checked where these are reached
            self._check_size(n)
        # Not by recursion, whose depth Python limits.
        open_: list[tuple[Concave, int, list[tuple[Concave, int]], list[gradients.Tree]]] = []
        here: tuple[Concave, int] | None = (self, n)
        while True:
            if here is not None:
                open_.append((*here, here[0]._branches(here[1]), []))
            objective, size, branches, made = open_[-1]
            if len(made) < len(branches):
                here = branches[len(made)]
                continue
            open_.pop()
            tree = objective._tree(size, made)
            if not open_:
                return tree
            open_[-1][3].append(tree)
            here = None

    def _branches(self, n: int) -> list[tuple[Concave, int]]:
        """The parts of an expression, each with the number of its coordinates; none of a leaf."""
        self._check_size(n)
        return []

    def _tree(self, n: int, parts: list[gradients.Tree]) -> gradients.Tree:
        """`tree`, given the trees of the branches."""
        if self.form is None:
            return gradients.python(n, self._checked_gradient, takes_step=True)
        return self._leaf_tree(n, self._params(n))

    def _leaf_tree(self, n: int, params: Vector) -> gradients.Tree:
        """`tree` of a leaf, with other params than its own where they have been changed."""
        return self.tree(n) if self.form is None else gradients.leaf(self.form, n, params)

    def borrow_tree(self, n: int) -> gradients.Tree:
        """A `tree` that nobody else uses until it is given to `return_tree`: two threads never
        share one, and the next caller finds what its scratch has kept.
        """
        try:
            return self._idle_trees(n).pop()
        except IndexError:
            return self.tree(n)

    def return_tree(self, tree: gradients.Tree) -> None:
        """After `borrow_tree`; a tree that raised need not be returned."""
        self._idle_trees(tree.n).append(tree)

    def _idle_trees(self, n: int) -> list[gradients.Tree]:
        idle: dict[int, list[gradients.Tree]] = self.__dict__.setdefault("_idle", {})
        return idle.setdefault(n, [])

    # --- the rest -----------------------------------------------------------------------------

    def _has_prox_at(self, n: int) -> bool:
        """Whether there is a prox for n coordinates."""
        return self.has_prox

    def _check_smoothable(self) -> None:
        """Raise NoProx where Moreau smoothing cannot treat this leaf."""
        if not self.has_prox:
            raise NoProx(f"{self} has no proximal map in closed form; {self.instead}")

    def _bind(self, scope: Scope) -> Concave:
        if self.of_items and scope.n_users is not None:
            items = scope.size - scope.n_users
            if self.size == items:
                return self.on(*range(items))._bind(scope)
        bound = self._bound(scope)
        bound._fit(scope)
        return bound

    def _fit(self, scope: Scope) -> None:
        size, names = self.size, list(scope.names)
        if size is None or size == scope.size:
            return
        aim = f"aim it at {size} coordinates with .on(...), or change its length"
        if 0 < size <= len(names):
            aim = f"aim it with .on({', '.join(map(repr, names[:size]))})"
        raise InvalidInput(f"{self._described()}, {scope.what}; {aim}")

    def _described(self) -> str:
        has = f"has {self.size} {self.unit}" if self.unit else f"takes {self.size} coordinates"
        return f"{type(self).__name__} {has}"

    def _check_size(self, n: int) -> None:
        if self.size is not None and n != self.size:
            raise InvalidInput(
                f"{self._described()}, z has {n}; give z of length {self.size}, or aim the "
                f"objective at {self.size} of the {n} coordinates with .on(...)"
            )

    def _checked(self, z: Vector) -> Vector:
        point = finite_vector("z", z)
        self._check_size(point.size)
        return point

    def _envelope(self, z: Vector, step: float) -> float:
        self._check_smoothable()
        g = self._smoothed(z, step)
        return float(self._value(self._prox_point(z, step, g)) - 0.5 * step * (g @ g))

    def _prox_point(self, z: Vector, step: float, g: Vector) -> Vector:
        """The proximal point, given the envelope's gradient g = (prox - z)/step."""
        return z + step * g

    def _checked_gradient(self, z: Vector, step: float) -> Vector:
        """`_gradient`, as long as z."""
        g = np.asarray(self._gradient(z, step), dtype=np.float64)
        if g.shape != z.shape:
            raise InvalidInput(
                f"the gradient of {self} has shape {g.shape} for a z of length {z.size}; return "
                "one number for each coordinate"
            )
        return g

    def _smoothed(self, z: Vector, step: float) -> Vector:
        """The gradient of the envelope of width `step` at a trusted z; 0: a supergradient."""
        tree = self.borrow_tree(z.size)
        g: Vector = tree.gradient(z, step)
        self.return_tree(tree)
        return g

    def _aimed(self, names: Names) -> Names:
        """The names of what it is a function of: in a ranking it may be aimed at the exposures."""
        items = self.of_items and names.n_items is not None and self.size == names.n_items
        return names.items() if items else names

    def _written(self, named: bool = False) -> list[str]:
        """Its arguments as they are written: those without a default by position, unless `named`,
        and of the others what differs from the default.
        """
        written: list[str] = []
        if not is_dataclass(self):
            return written
        for field in fields(self):
            value = getattr(self, field.name)
            if field.default is MISSING or value != field.default:
                name = "" if field.default is MISSING and not named else f"{field.name}="
                written.append(f"{name}{value!r}")
        return written

    def __repr__(self) -> str:
        # The Python expression that makes it, which `core.build` reads.
        if not is_dataclass(self):
            return object.__repr__(self)
        return f"{type(self).__name__}({', '.join(self._written())})"

    def __getstate__(self) -> dict[str, Any]:
        # Hyper-parameters, and what it was before it was bound; trees belong to this process.
        state = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        origin = self.__dict__.get("_origin")
        return state if origin is None else state | {"_origin": origin}

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(),)


def finite_vector(name: str, values: Any) -> Vector:
    """A float64 vector of finite numbers, or an error that names the first bad one."""
    usual = type(values) is np.ndarray and values.dtype == np.float64 and values.ndim == 1
    if usual and values.flags.carray and values.size and all_finite(values):
        return values  # type: ignore[no-any-return]
    try:
        if np.iscomplexobj(values):
            raise TypeError("they are complex; give real ones")
        vector: Vector = np.require(values, np.float64, ["C", "A", "W"])
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInput(f"{name} is not a vector of numbers: {error}") from error
    if vector.ndim != 1:
        raise InvalidInput(f"{name} has shape {vector.shape}; give a vector, shape (n,)")
    if vector.size == 0:
        raise InvalidInput(f"{name} is empty; give at least one number")
    if not all_finite(vector):
        worst = int(np.flatnonzero(~np.isfinite(vector))[0])
        raise InvalidInput(f"{name}[{worst}] is {vector[worst]}; give finite numbers only")
    return vector


def numbers(name: str, values: Iterable[float]) -> tuple[float, ...]:
    """Finite numbers as a tuple, for hyper-parameters that are compared and hashed."""
    if not isinstance(values, Iterable) or isinstance(values, str):
        raise InvalidInput(f"{name} is {values!r}; give a sequence of numbers")
    given = values if isinstance(values, (np.ndarray, tuple, list)) else tuple(values)
    return tuple(finite_vector(name, given).tolist())


def by_name(name: str, values: Any) -> Any:
    """Finite numbers as a tuple, or by name where they are given so."""
    if isinstance(values, Mapping):
        return Frozen(dict(zip(values, numbers(name, values.values()), strict=True)))
    return numbers(name, values)


def nonnegative(name: str, value: Any, allowed: str) -> float:
    """A finite number of at least 0; NotConcave below, InvalidInput for anything else."""
    number = real_number(name, value)
    if not 0.0 <= number < np.inf:
        raise (NotConcave if number < 0.0 else InvalidInput)(f"{name} is {number!r}; {allowed}")
    return number


def unbound(objective: Concave, names: Iterable[str]) -> InvalidInput:
    """The error of an expression that has names in place of coordinates."""
    return InvalidInput(
        f"{objective} names its rewards ({', '.join(names)}), so it needs a problem to know their "
        "coordinates; call .bind(problem) first"
    )


def require_objective(name: str, value: Any) -> None:
    """Raise for a value that is not an objective."""
    if not isinstance(value, Concave):
        raise InvalidInput(f"{name} is {value!r}; give an objective, such as Minimum()")
