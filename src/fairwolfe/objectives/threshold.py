"""Floors and ceilings: `AtLeast`, `AtMost` and `Within`, as hard constraints or for a penalty."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Frozen, real_number
from fairwolfe.errors import InvalidInput, NotConcave
from fairwolfe.objectives.bounds import Bounds
from fairwolfe.objectives.combine import Combination, On, Part, Scaled
from fairwolfe.objectives.concave import Concave, Scope, numbers
from fairwolfe.objectives.mapped import Mapped

__all__ = ["AtLeast", "AtMost", "Within"]

Level = float | Sequence[float] | Mapping[str, float]

_MULTIPLIER = 0.5  # how fast prices are learnt; proved up to 1/4, measured better at 1/2


@dataclass(frozen=True)
class Penalised(Concave):
    """f(z) = -penalty sum_i max(0, sign (level_i - z_i)). Lipschitz constant penalty sqrt(n)."""

    levels: tuple[float, ...]
    penalty: float
    sign: float

    form = "penalised"

    @property
    def size(self) -> int | None:
        return len(self.levels)

    def _value(self, z: Vector) -> float:
        missing = self.sign * (np.array(self.levels) - z)
        return 0.0 - self.penalty * float(np.maximum(missing, 0.0).sum())

    def lipschitz(self, n: int) -> float:
        return self.penalty * float(np.sqrt(n))

    def _params(self, n: int) -> Vector:
        """Penalty, sign (+1 floor, -1 ceiling), levels, (2 + n,)."""
        return np.concatenate([[self.penalty, self.sign], self.levels])


class _Limits(Combination):
    """Levels for the coordinates, as a function of one leaf: of the coordinates, or of a map."""

    margin: float
    multiplier: float
    of_items = True

    def __post_init__(self) -> None:
        who = type(self).__name__
        margin = real_number(f"the margin of {who}", self.margin)
        multiplier = real_number(f"the multiplier of {who}", self.multiplier)
        if not (np.isfinite(margin) and margin >= 0.0):
            raise InvalidInput(
                f"the margin of {who} is {self.margin!r}; give a number of at least 0: after t "
                "rewards the level is stricter by margin/sqrt(t + 1)"
            )
        if not 0.0 <= multiplier <= 1.0:
            raise InvalidInput(
                f"the multiplier of {who} is {self.multiplier!r}; give a number from 0 (no price "
                "is learnt) to 1, such as 0.5"
            )
        object.__setattr__(self, "margin", margin)
        object.__setattr__(self, "multiplier", multiplier)

    def __repr__(self) -> str:
        # What has its default is left out: these are read by people.
        given = [(f, getattr(self, f.name)) for f in fields(self)]  # type: ignore[arg-type]
        shown = [f"{f.name}={value!r}" for f, value in given if value != f.default]
        return f"{type(self).__name__}({', '.join(shown)})"

    @abstractmethod
    def _named(self) -> tuple[str, ...] | None:
        """The rewards that the levels are of, by name; None where they are of all."""

    @abstractmethod
    def _leaf(self, n: int, scope: Scope | None = None) -> Concave:
        """The function of n coordinates; with a scope, levels are compared with its ranges."""

    @property
    def constrained(self) -> bool:
        return True

    def relaxed(self) -> Concave:
        return Scaled(0.0, self) if self.constrained else self

    @property
    def members(self) -> tuple[Concave, ...]:
        return (self._kept(len(self._named() or ()) or self.size or 2),)

    def _kept(self, n: int) -> Concave:
        leaves: dict[int, Concave] = self.__dict__.setdefault("_leaves", {})
        if n not in leaves:
            leaves[n] = self._leaf(n)
        return leaves[n]

    def _described(self) -> str:
        return f"{type(self).__name__} has {self.size} levels"

    def parts(self, n: int) -> list[Part]:
        names = self._named()
        if names is not None:
            raise InvalidInput(
                f"{self} names its rewards ({', '.join(names)}), so it needs a problem to "
                "know their coordinates; call .bind(problem) first"
            )
        return [Part(1.0, self._kept(n), slice(0, n))]

    def _bound(self, scope: Scope) -> Concave:
        names = self._named()
        if names is not None:
            places = [scope.index(name) for name in names]
            part = scope.part(places, f"{type(self).__name__} names {len(places)}")
            return On(self._leaf(len(places), part), tuple(places))
        self._fit(scope)
        return self._leaf(scope.size, scope)


def _levels(name: str, level: Any) -> Any:
    """A number, a tuple of numbers, or numbers by name."""
    if isinstance(level, Mapping):
        values = numbers(name, level.values())
        return Frozen(dict(zip(level, values, strict=True)))
    if np.ndim(level) == 0:
        return numbers(name, [level])[0]
    return numbers(name, level)


@dataclass(frozen=True, repr=False)
class _OneSided(_Limits):
    """A level on one side: sign +1 for a floor, -1 for a ceiling."""

    level: Level
    penalty: float | None = None
    margin: float = field(default=0.0, kw_only=True)
    multiplier: float = field(default=_MULTIPLIER, kw_only=True)
    share: bool = field(default=False, kw_only=True)

    _sign: ClassVar[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        who = type(self).__name__
        object.__setattr__(self, "level", _levels("level", self.level))
        if not isinstance(self.share, bool):
            raise InvalidInput(f"share of {who} is {self.share!r}; give True or False")
        if self.share:
            for level in self._values:
                if not 0.0 < level < 1.0:
                    raise InvalidInput(
                        f"{who} has the share {level!r}; a share of the whole is between 0 and 1, "
                        "such as 0.05"
                    )
        if self.penalty is None:
            return
        penalty = real_number(f"the penalty of {who}", self.penalty)
        if np.isnan(penalty) or penalty < 0.0:
            kind = NotConcave if penalty < 0.0 else InvalidInput
            raise kind(
                f"the penalty of {who} is {self.penalty!r}; give a positive number (it is paid for "
                "each unit beyond the level), or None for a hard constraint"
            )
        if penalty == 0.0:
            raise InvalidInput(
                f"the penalty of {who} is 0, so that its level would not count; leave the penalty "
                "out for a hard constraint, or leave the term out"
            )
        if np.isfinite(penalty) and self.margin > 0.0:
            raise InvalidInput(
                f"{who} has a margin of {self.margin:g} and a penalty of {penalty:g}; a margin is "
                "for hard constraints: leave one of them out"
            )
        object.__setattr__(self, "penalty", None if np.isinf(penalty) else penalty)

    @property
    def constrained(self) -> bool:
        return self.penalty is None

    @property
    def _values(self) -> tuple[float, ...]:
        if isinstance(self.level, Mapping):
            return tuple(self.level.values())
        return self.level if isinstance(self.level, tuple) else (self.level,)

    @property
    def size(self) -> int | None:
        return len(self.level) if isinstance(self.level, tuple) else None

    def _named(self) -> tuple[str, ...] | None:
        return tuple(self.level) if isinstance(self.level, Mapping) else None

    def _leaf(self, n: int, scope: Scope | None = None) -> Concave:
        if self.share:
            return self._shared(list(range(n)), n, scope)
        return self._limited(np.broadcast_to(np.array(self._values), (n,)), (), scope)

    def _bound(self, scope: Scope) -> Concave:
        names = self._named()
        if not self.share or (names is None and scope.size > 1):
            return super()._bound(scope)
        if scope.size == 1:
            raise InvalidInput(
                f"{self} is a share of {scope.label(0)} alone, which is always the whole; aim it "
                "at everything that the share is of, such as AtLeast({'kept': 0.92}, "
                "share=True).on('returned', 'kept')"
            )
        return self._shared([scope.index(name) for name in names or ()], scope.size, scope)

    def _shared(self, places: list[int], n: int, scope: Scope | None) -> Concave:
        """Levels for some of n coordinates, as shares of the sum of all n."""
        shares: Vector = np.broadcast_to(np.array(self._values), (len(places),))
        if scope is not None:
            _check_shares(type(self).__name__, self._sign, shares, scope)
            scope = scope.part(places, f"{type(self).__name__} has {len(places)} shares")
        # Shares of a sum are linear too: z_i - share_i sum z, and the sum itself, which is free.
        rows = np.vstack([np.eye(n)[places] - shares[:, None], np.ones(n)])
        free = np.append(np.zeros(len(places)), -self._sign * np.inf)
        return Mapped(self._limited(free, tuple(shares.tolist()), scope), rows.tolist())

    def _limited(self, levels: Vector, shares: tuple[float, ...], scope: Scope | None) -> Concave:
        if self.penalty is not None:
            return Penalised(tuple(levels.tolist()), self.penalty, self._sign)
        free = np.full(levels.size, self._sign * np.inf)
        low, high = (levels, free) if self._sign > 0.0 else (free, levels)
        return _bounds(self, low, high, shares, scope)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (
            cls(0.5, penalty=2.0),
            cls((0.2, 0.6, 0.4), penalty=0.5),
            cls(0.4),
            cls((0.2, 0.6, 0.4), margin=0.1, multiplier=0.0),
            cls(0.15 if cls._sign > 0.0 else 0.6, share=True),
        )


@dataclass(frozen=True, repr=False)
class AtLeast(_OneSided):
    """z_i >= level_i: a floor under the rewards, kept as a hard constraint.

    One level for all coordinates, one for each, or some by name. No penalty has to be chosen: the
    price of the floor is found on the way, in whatever units the rewards have. The value is 0
    where the floor is kept and -inf elsewhere; what is reported in addition to f is the shortfall.

    Parameters
    ----------
    penalty: None for a hard constraint. A number makes it f(z) = -penalty sum_i max(0, level_i -
        z_i) instead, with Lipschitz constant penalty sqrt(n): kept only if the penalty is larger
        than the price, and slow to learn if it is much larger.
    margin: after t rewards the level is stricter by margin/sqrt(t + 1)
    multiplier: how fast the price is learnt; 0 is the plain envelope, whose violation falls like
        1/sqrt t; proofs cover up to 1/4
    share: the level is a share of the sum of all coordinates that the term is aimed at, between 0
        and 1; also where levels are given for some of them by name

    Reference: docs/constraints.md.

    >>> AtLeast(0.5).value([0.75, 0.8]), AtLeast(0.5, penalty=10.0).value([0.25, 0.8])
    (0.0, -2.5)
    """

    _sign = 1.0


@dataclass(frozen=True, repr=False)
class AtMost(_OneSided):
    """z_i <= level_i: a ceiling over the rewards, such as a budget; see `AtLeast`.

    >>> AtMost(0.5).violation([0.75, 0.1]), AtMost(0.5, penalty=10.0).value([0.75, 0.1])
    (0.25, -2.5)
    """

    _sign = -1.0


@dataclass(frozen=True, repr=False)
class Within(_Limits):
    """low_i <= z_i <= high_i: a hard constraint on both sides; None leaves a side open.

    `margin` and `multiplier`: see `AtLeast`.

    >>> Within(0.2, 0.6).value([0.3, 0.5]), Within(0.2, 0.6).prox([0.1, 0.9], 1.0).tolist()
    (0.0, [0.2, 0.6])
    """

    low: Level | None = None
    high: Level | None = None
    margin: float = field(default=0.0, kw_only=True)
    multiplier: float = field(default=_MULTIPLIER, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.low is None and self.high is None:
            raise InvalidInput("Within has neither low nor high; give at least one of them")
        for name in ("low", "high"):
            given = getattr(self, name)
            object.__setattr__(self, name, None if given is None else _levels(name, given))
        named = [isinstance(side, Mapping) for side in (self.low, self.high) if side is not None]
        if any(named) and not all(named):
            raise InvalidInput(
                f"Within names the rewards of one side only: low is {self.low!r}, high is "
                f"{self.high!r}; name them on both"
            )
        if len({size for size in map(_length, (self.low, self.high)) if size is not None}) > 1:
            raise InvalidInput(
                f"Within has {_length(self.low)} lower and {_length(self.high)} upper levels; give "
                "as many, or one number"
            )
        low, high = self._sides(len(self._named() or ()) or self.size or 1)
        for i in np.flatnonzero(low > high).tolist():
            raise InvalidInput(
                f"Within has low {low[i]:g} above high {high[i]:g}; no average is between them"
            )

    @property
    def size(self) -> int | None:
        sizes = [_length(self.low), _length(self.high)]
        return next((size for size in sizes if size is not None), None)

    def _named(self) -> tuple[str, ...] | None:
        sides = [side for side in (self.low, self.high) if isinstance(side, Mapping)]
        return tuple(dict.fromkeys(name for side in sides for name in side)) if sides else None

    def _sides(self, n: int) -> tuple[Vector, Vector]:
        names = self._named()
        both = []
        for side, free in ((self.low, -np.inf), (self.high, np.inf)):
            if isinstance(side, Mapping):
                values: Any = [side.get(name, free) for name in names or ()]
            else:
                values = free if side is None else side
            both.append(np.broadcast_to(np.array(values, dtype=np.float64), (n,)))
        return both[0], both[1]

    def _leaf(self, n: int, scope: Scope | None = None) -> Concave:
        return _bounds(self, *self._sides(n), (), scope)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(0.2, 0.6), cls((0.1, 0.3), (0.4, 0.3)), cls(high=0.5, multiplier=0.25)


def _length(side: Any) -> int | None:
    return len(side) if isinstance(side, tuple) else None


def _bounds(
    limits: _Limits, low: Vector, high: Vector, shares: tuple[float, ...], scope: Scope | None
) -> Bounds:
    """The leaf of a constraint; with a scope, compared with what its coordinates can be."""
    names: tuple[str, ...] = ()
    if scope is not None:
        names = tuple(scope.label(i) for i in range(scope.size))
        if scope.reach is not None and not shares:
            _check_levels(limits, low, high, names, scope.reach.rows())
            _check_sum(type(limits).__name__, low, scope)
    sides = tuple(low.tolist()), tuple(high.tolist())
    return Bounds(*sides, limits.margin, limits.multiplier, shares, names)


def _check_levels(
    limits: _Limits, low: Vector, high: Vector, names: tuple[str, ...], reach: Matrix
) -> None:
    """Raise for levels that the ranges make impossible, and for ceilings above the range, which are
    mostly in another unit. A floor below the range is always kept. reach (n, 2).
    """
    who = type(limits).__name__
    for i, name in enumerate(names):
        least, most = reach[i]
        slack = 1e-9 * max(abs(least), abs(most))
        for level, lowest in ((low[i], -np.inf), (high[i], least - slack)):
            if np.isfinite(level) and not lowest <= level <= most + slack:
                raise InvalidInput(
                    f"the level of {who} for {name} is {level:g}, and its average lies between "
                    f"{least + 0.0:g} and {most:g} whatever is decided; give a level between these"
                )


def _check_sum(who: str, low: Vector, scope: Scope) -> None:
    """Raise for floors whose sum is above what can be reached."""
    assert scope.reach is not None
    floors = np.where(np.isfinite(low), low, 0.0)
    most = scope.reach.most(np.isfinite(low).astype(np.float64))
    if floors.sum() > most + 1e-9 * abs(most):
        count = int(np.isfinite(low).sum())
        raise InvalidInput(
            f"{count} floors of {who} add up to {floors.sum():g}, and all of these averages "
            f"together reach at most {most:g}: no policy keeps them; lower them to "
            f"{most / count:g} each, or less"
        )


def _check_shares(who: str, sign: float, shares: Vector, scope: Scope) -> None:
    """Raise for shares that cannot be kept together, and for shares of what may be negative."""
    total = float(shares.sum())
    if sign * (total - 1.0) > 1e-9 and (sign > 0.0 or shares.size == scope.size):
        side = "more" if sign > 0.0 else "less"
        raise InvalidInput(
            f"the {shares.size} shares of {who} add up to {total:g}, {side} than the whole; give "
            f"shares of {'at most' if sign > 0.0 else 'at least'} {1.0 / shares.size:g} each"
        )
    if scope.reach is not None:
        least = scope.reach.rows()[:, 0]
        if least.min() < 0.0:
            i = int(least.argmin())
            raise InvalidInput(
                f"{who} has shares of a sum, and {scope.label(i)} can be as low as {least[i]:g}; "
                "shares are of what is never negative"
            )
