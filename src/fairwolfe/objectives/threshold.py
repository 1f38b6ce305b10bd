"""Floors and ceilings: `AtLeast`, `AtMost` and `Within`, as hard constraints or for a penalty."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import number_where, real_number
from fairwolfe.errors import FairwolfeError, InvalidInput, NotConcave
from fairwolfe.objectives.combine import Combination, On, Scaled, Term
from fairwolfe.objectives.concave import Concave, Reach, Scope, by_name, numbers, unbound
from fairwolfe.objectives.mapped import Mapped
from fairwolfe.objectives.words import Names, Words, number, percent

Level = float | Sequence[float] | Mapping[str, float]

WIDTHS, MARGINS = 2, 3
"""Which of the quarters of the params are widths and margins, for the code that sets them."""

FADED = 0.1
"""A denominator has vanished where its average is below this part of what it was before."""

_ROUNDING, _TINY = 1e-9, 1e-12  # of a level, and of anything: what still counts as kept
_MULTIPLIER = 0.5  # how fast prices are learnt; proved up to 1/4, measured better at 1/2


@dataclass(frozen=True, repr=False)
class Bounds(Concave):
    """0 where low <= x <= high in every coordinate, -inf elsewhere.

    The proximal map is the projection; there is no Lipschitz constant. `shares`: the levels, where
    the rows are x_i = z_i - share_i w and the last one is w: the sum of z, or the denominator of
    rates. `names`: what the rows are of.
    """

    low: tuple[float, ...]
    high: tuple[float, ...]
    margin: float = 0.0
    multiplier: float = 0.5
    shares: tuple[float, ...] = ()
    names: tuple[str, ...] = ()

    form = "bounded"
    hard = True
    everywhere = False

    @property
    def size(self) -> int | None:
        return len(self.low)

    @property
    def limited(self) -> int:
        """How many rows have levels: all except the last one of shares and rates."""
        return len(self.shares) or len(self.low)

    def distances(self, x: Vector) -> Vector:
        """How far every row is beyond its levels; for shares, as a share of the sum."""
        beyond: Vector = np.maximum(
            np.maximum(np.array(self.low) - x, x - np.array(self.high)), 0.0
        )
        if not self.shares:
            return beyond
        return beyond[:-1] / (x[-1] if x[-1] > 0.0 else np.inf)

    def _violation(self, z: Vector) -> float:
        return float(self.distances(z).max())

    def _value(self, z: Vector) -> float:
        low, high = np.array(self.low), np.array(self.high)
        levels = np.maximum(*(np.where(np.isfinite(x), np.abs(x), 0.0) for x in (low, high)))
        room = _ROUNDING * (levels + abs(z[-1]) if self.shares else levels) + _TINY
        return 0.0 if bool(((z >= low - room) & (z <= high + room)).all()) else -np.inf

    def lipschitz(self, n: int) -> float:
        return np.inf

    def _prox_point(self, z: Vector, step: float, g: Vector) -> Vector:
        return np.clip(z, self.low, self.high)  # without the rounding of z + step g

    def _params(self, n: int) -> Vector:
        """low, high, widths, margins, (4 n,)."""
        return np.concatenate([self.low, self.high, np.ones(n), np.zeros(n)])

    def relaxed(self) -> Concave:
        return Scaled(0.0, self)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (cls((0.2, -np.inf), (0.5, 0.7)),)


@dataclass(frozen=True)
class Rates(Bounds):
    """Levels for rates z_i/w: the rows are x_i = z_i - level_i w, and the last one is w.

    The margin of a row is that of its rate times w. Where prices run, widths go with the average of
    w: see `fairwolfe.smoothing.prices`. `names` are of the rates, `per` is the name of w.
    """

    per: str = ""

    form = "rates"

    def distances(self, x: Vector) -> Vector:
        """How far every rate is beyond its level; inf where w is 0 and the row is beyond."""
        beyond = np.maximum(np.maximum(np.array(self.low) - x, x - np.array(self.high)), 0.0)[:-1]
        found = np.zeros(beyond.size)
        with np.errstate(divide="ignore"):
            np.divide(beyond, x[-1], out=found, where=beyond > _ROUNDING * abs(x[-1]) + _TINY)
        return found

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return (cls((-np.inf, -np.inf), (0.0, np.inf), shares=(0.08,)),)


@dataclass(frozen=True, repr=False)
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
    unit = "levels"

    def __post_init__(self) -> None:
        who = type(self).__name__
        margin = number_where(
            f"the margin of {who}",
            self.margin,
            lambda x: x >= 0.0,
            "a number of at least 0: after t rewards the level is stricter by margin/sqrt(t + 1)",
        )
        multiplier = number_where(
            f"the multiplier of {who}",
            self.multiplier,
            lambda x: 0.0 <= x <= 1.0,
            "a number from 0 (no price is learnt) to 1, such as 0.5",
        )
        object.__setattr__(self, "margin", margin)
        object.__setattr__(self, "multiplier", multiplier)

    @abstractmethod
    def _named(self) -> tuple[str, ...] | None:
        """The rewards that the levels are of, by name; None where they are of all."""

    def _limited_names(self, names: Names) -> list[str]:
        """What has a level of its own, as descriptions call it."""
        if self._named() is None and self.size is None:
            return [names.each]
        return [names.name(one) for one in self._named() or range(self.size or 0)]

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

    def parts(self, n: int) -> list[Term]:
        names = self._named()
        if names is not None:
            raise unbound(self, names)
        return [Term(1.0, self._kept(n), slice(0, n))]

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
    single = not isinstance(level, Mapping) and np.ndim(level) == 0
    return numbers(name, [level])[0] if single else by_name(name, level)


@dataclass(frozen=True, repr=False)
class _OneSided(_Limits):
    """A level on one side: sign +1 for a floor, -1 for a ceiling."""

    level: Level
    penalty: float | None = None
    margin: float = field(default=0.0, kw_only=True)
    multiplier: float = field(default=_MULTIPLIER, kw_only=True)
    share: bool = field(default=False, kw_only=True)
    per: str | None = field(default=None, kw_only=True)

    _sign: ClassVar[float]

    def __post_init__(self) -> None:
        super().__post_init__()
        who = type(self).__name__
        object.__setattr__(self, "level", _levels("level", self.level))
        if not isinstance(self.share, bool):
            raise InvalidInput(f"share of {who} is {self.share!r}; give True or False")
        for level in self._values if self.share else ():
            if not 0.0 < level < 1.0:
                raise InvalidInput(
                    f"{who} has the share {level!r}; a share of the whole is between 0 and 1, such "
                    "as 0.05"
                )
        if self.per is not None:
            self._check_per()
        if self.penalty is None:
            return
        penalty = real_number(f"the penalty of {who}", self.penalty)
        if not penalty > 0.0:
            raise (NotConcave if penalty < 0.0 else InvalidInput)(
                f"the penalty of {who} is {self.penalty!r}; give a positive number (it is paid for "
                "each unit beyond the level; for 0 leave the term out), or None for a hard "
                "constraint"
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

    def _words(self, names: Names) -> Words:
        names, floor = self._aimed(names), self._sign > 0.0
        side, beyond = ("at least", "shortfall") if floor else ("at most", "excess")
        limits = [
            (who, f"{percent(level)} of {names.whole}" if self.share else number(level))
            for who, level in zip(self._limited_names(names), self._values, strict=False)
        ]
        if self.per:
            limits = [(f"{who} per {self.per}", level) for who, level in limits]
        if self.penalty is None:
            return Words((), tuple(f"{who} {side} {level}" for who, level in limits))
        against = "below" if floor else "above"
        costs = (f"the {beyond} of {who} {against} {level}" for who, level in limits)
        return Words(tuple((-self.penalty, cost) for cost in costs))

    def _named(self) -> tuple[str, ...] | None:
        return tuple(self.level) if isinstance(self.level, Mapping) else None

    def _check_per(self) -> None:
        """Raise for what is not the rate of some rewards per another one."""
        who, per = type(self).__name__, self.per
        write = f"write {who}({{'returned': 0.08}}, per='ordered')"
        if not isinstance(per, str):
            raise InvalidInput(f"per of {who} is {per!r}; give the name of a reward: {write}")
        if self.share:
            raise InvalidInput(
                f"{who} has share=True and per={per!r}; a level is a share of a sum or a rate per "
                "one reward: leave one of them out"
            )
        names = self._named()
        if names is None:
            raise InvalidInput(f"{who} has the level {self.level!r} per {per!r}; {write}")
        if per in names:
            raise InvalidInput(f"{who} limits {per!r} per {per!r}, which is always 1; {write}")

    def _leaf(self, n: int, scope: Scope | None = None) -> Concave:
        if self.per is not None:
            return self._rated(n, scope)
        if self.share:
            return self._shared(list(range(n)), n, scope)
        return self._limited(np.broadcast_to(np.array(self._values), (n,)), (), scope)

    def _bound(self, scope: Scope) -> Concave:
        names = self._named()
        if self.per is not None:
            if scope.grouped:
                raise InvalidInput(
                    f"{self} is inside of ByGroup, whose coordinates are totals of groups, and a "
                    "rate is of rewards; add it to ByGroup(...) instead of putting it inside"
                )
            places = [scope.index(name) for name in (*(names or ()), self.per)]
            part = scope.part(places, f"{type(self).__name__} names {len(places)}")
            return On(self._rated(len(places) - 1, part), tuple(places))
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

    def _rated(self, n: int, scope: Scope | None) -> Concave:
        """Levels for the rates of n coordinates per the one after them."""
        who, sign, levels = type(self).__name__, self._sign, np.array(self._values)
        per, names = self.per or "", tuple[str, ...]()
        if scope is not None:
            names = tuple(f"{scope.label(i)} per {per}" for i in range(n))
            if scope.reach is not None:
                _check_rates(who, sign, levels, names, per, scope.reach)
        # A rate is at most its level where z_i - level_i w is at most 0.
        rows = np.hstack([np.eye(n), -levels[:, None]])
        if self.penalty is not None:
            return Mapped(Penalised((0.0,) * n, self.penalty, sign), rows.tolist())
        ends = np.append(np.zeros(n), -sign * np.inf), np.full(n + 1, sign * np.inf)
        low, high = (tuple(side.tolist()) for side in (ends if sign > 0.0 else ends[::-1]))
        given = (self.margin, self.multiplier, tuple(levels.tolist()), names, per)
        return Mapped(Rates(low, high, *given), np.vstack([rows, np.eye(n + 1)[n]]).tolist())

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
    per: levels are of the rate of a reward per this one, avg(reward) >= level avg(per). Both are
        named, and `per` is never negative. The penalty is paid for each unit of the reward beyond
        level avg(per); the margin is in units of the rate

    Reference: docs/constraints.md.

    >>> AtLeast(0.5).value([0.75, 0.8]), AtLeast(0.5, penalty=10.0).value([0.25, 0.8])
    (0.0, -2.5)
    >>> AtLeast({"kept": 0.92}, per="ordered")
    AtLeast({'kept': 0.92}, per='ordered')
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

    `margin` and `multiplier`: see `AtLeast`. There is no `share` and no `per`: add two terms.

    >>> Within(0.2, 0.6).value([0.3, 0.5]), Within(0.2, 0.6).prox([0.1, 0.9], 1.0).tolist()
    (0.0, [0.2, 0.6])
    """

    low: Level | None = None
    high: Level | None = None
    margin: float = field(default=0.0, kw_only=True)
    multiplier: float = field(default=_MULTIPLIER, kw_only=True)

    @classmethod
    def _no_rate(cls) -> FairwolfeError:
        return InvalidInput(
            "Within takes no per; limit a rate on both sides by two terms: AtLeast({'kept': 0.9}, "
            "per='ordered') + AtMost({'kept': 0.95}, per='ordered')"
        )

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
        if (low > high).any():
            i = int((low > high).argmax())
            raise InvalidInput(
                f"Within has low {low[i]:g} above high {high[i]:g}; no average is between them"
            )

    @property
    def size(self) -> int | None:
        return _length(self.high) if _length(self.low) is None else _length(self.low)

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

    def _words(self, names: Names) -> Words:
        limited = self._limited_names(self._aimed(names))
        sides = zip(limited, *self._sides(len(limited)), strict=True)
        return Words((), tuple(f"{who} {_between(low, high)}" for who, low, high in sides))

    def _leaf(self, n: int, scope: Scope | None = None) -> Concave:
        return _bounds(self, *self._sides(n), (), scope)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        return cls(0.2, 0.6), cls((0.1, 0.3), (0.4, 0.3)), cls(high=0.5, multiplier=0.25)


def _between(low: float, high: float) -> str:
    if low == high:
        return f"exactly {number(low)}"
    if np.isfinite(low) and np.isfinite(high):
        return f"between {number(low)} and {number(high)}"
    return f"at least {number(low)}" if np.isfinite(low) else f"at most {number(high)}"


def _length(side: Any) -> int | None:
    return len(side) if isinstance(side, tuple) else None


def _bounds(
    limits: _Limits, low: Vector, high: Vector, shares: tuple[float, ...], scope: Scope | None
) -> Bounds:
    """The leaf of a constraint; with a scope, compared with what its coordinates can be."""
    names = () if scope is None else tuple(scope.label(i) for i in range(scope.size))
    if scope is not None and scope.reach is not None and not shares:
        _check_levels(type(limits).__name__, low, high, names, scope.reach)
    sides = tuple(low.tolist()), tuple(high.tolist())
    return Bounds(*sides, limits.margin, limits.multiplier, shares, names)


def _check_levels(
    who: str, low: Vector, high: Vector, names: tuple[str, ...], reach: Reach
) -> None:
    """Raise for levels that the ranges make impossible, for ceilings above the range, which are
    mostly in another unit, and for floors whose sum is above what can be reached. A floor below the
    range is always kept.
    """
    for i, (name, (least, most)) in enumerate(zip(names, reach.rows(), strict=True)):
        slack = 1e-9 * max(abs(least), abs(most))
        for level, lowest in ((low[i], -np.inf), (high[i], least - slack)):
            if np.isfinite(level) and not lowest <= level <= most + slack:
                raise InvalidInput(
                    f"the level of {who} for {name} is {level:g}, and its average lies between "
                    f"{least + 0.0:g} and {most:g} whatever is decided; give a level between these"
                )
    floors = np.isfinite(low)
    total, most = low[floors].sum(), reach.most(floors.astype(np.float64))
    if total > most + 1e-9 * abs(most):
        count = int(floors.sum())
        raise InvalidInput(
            f"{count} floors of {who} add up to {total:g}, and all of these averages together "
            f"reach at most {most:g}: no policy keeps them; lower them to {most / count:g} each, "
            "or less"
        )


def _check_rates(
    who: str, sign: float, levels: Vector, names: tuple[str, ...], per: str, reach: Reach
) -> None:
    """Raise for a denominator that may be negative, and for levels that the ranges make impossible
    or, for ceilings, leave always kept. A floor below the range is always kept.
    """
    *rewards, (least, most) = reach.rows().tolist()
    if least < 0.0:
        raise InvalidInput(
            f"{who} has a rate per {per}, which can be as low as {least:g}; a rate is per "
            "something that is never negative: give it a range from 0 or above"
        )
    least += 0.0  # not -0, by which numbers above 0 would be divided
    for name, level, (low, high) in zip(names, levels.tolist(), rewards, strict=True):
        with np.errstate(divide="ignore"):
            lowest = float(np.divide(low, most if low >= 0.0 else least))
            highest = float(np.divide(high, least if high > 0.0 else most))
        room = 1e-9 * max(abs(x) for x in (lowest, highest, 0.0) if np.isfinite(x))
        if level > highest + room or (sign < 0.0 and level < lowest - room):
            raise InvalidInput(
                f"the level of {who} for {name} is {level:g}, and that rate lies between "
                f"{lowest + 0.0:g} and {highest:g} whatever is decided; give a level between these"
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
