"""`FactorModel`: users and items as factors, the world of fair ranking."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import Bilinear
from fairwolfe.core.problem import Frozen, Problem, whole_number
from fairwolfe.environments.plays import extremes
from fairwolfe.environments.world import (
    RankingArrays,
    RankingWorld,
    Table,
    body,
    check_fields,
    checked_weights,
    dcg,
)
from fairwolfe.errors import InvalidInput

DCG10 = dcg(10)
_FACTORS = 8  # of a drawn world
_SKEW = 0.4  # the r-th most popular item of a drawn world has norm r^-_SKEW
_SHAPE = 0.5  # of the gamma distribution of drawn factors: most are small, a few are large
_ROUNDING = 1e-9  # how far outside its range a mean may be by rounding

Numbers = Sequence[Sequence[float]] | Matrix


def calibration_of(name: str, given: Any) -> Any:
    """A checked calibration."""
    if given not in (None, "clip", "affine"):
        raise InvalidInput(f"{name} is {given!r}; give 'clip', 'affine' or None")
    return given


class BilinearWorld(RankingWorld):
    """A world with rankings whose contexts are the factors of a user and of all items."""

    def show(self, world: RankingArrays, user: int) -> Bilinear:
        """The user's factors beside those of all items, which are shared and not copied."""
        return Bilinear(world.users[user], world.items)

    def features(self, world: RankingArrays) -> tuple[Matrix, Cube]:
        """The factors of the users, and those of the items, the same for all of them."""
        return world.users, world.columns[None]

    def _user_of(self, world: RankingArrays, context: Any) -> Vector:
        if not isinstance(context, Bilinear):
            raise InvalidInput(
                f"the context is a {type(context).__name__}; give the Bilinear that context(...) "
                "returned"
            )
        if context.items is not world.items and not np.array_equal(context.items, world.items):
            raise InvalidInput("the items of the context are not those of this world; give these")
        return np.ascontiguousarray(context.user, dtype=np.float64)


@dataclass(frozen=True)
class FactorModel(BilinearWorld):
    """Users u and items v_i with factors; an item that is exposed is clicked with chance u.v_i.

    The context of a round is ``Bilinear(u, items)`` for a user u drawn uniformly; an action is a
    ranking of k items. The item in slot j is exposed with probability b_j (the position-based
    model), and only then earns its rewards. The reward vector holds the exposure of every item,
    then the sum of each reward over the ranking. Rewards are linear in u (x) v_i with parameters
    vec(I), or vec(Theta_r) for `rewards` of your own.

    `support` is exact, in O(users items factors): h_S(g) is the mean over users of
    sum_j b_j (j-th largest of g_clicks u.v_i + g_i).

    Parameters
    ----------
    users, items: factors (n, p) and (m, p); or both as numbers: a music-like world is then drawn
        from the seed, with gamma factors, users of norm 1, and items of norm r^-0.4, r = 1..m in
        random order, so that a few items are popular with everybody
    position_weights: b_1 >= b_2 >= ... in [0, 1], one for each slot: `dcg` or `body` or your own;
        or a row of them for each user
    calibration: what is done with means outside their range. None: they raise an error; "clip":
        they are clipped, so that the model is not linear; "affine": mapped into the range by a
        constant feature added to u and v, so that it stays linear, with (p + 1)^2 features
    rewards: name -> (Theta (p, q), (low, high)), in place of clicks: a reward of an item that is
        exposed is low or high, with mean u' Theta v_i
    n_factors: p of a drawn world, 8

    Reference: Section 4 and appendix "Fair ranking" of the paper.

    >>> world = FactorModel([[1.0, 0.0], [0.6, 0.8]], [[0.9, 0.0], [0.5, 0.5]], dcg(1))
    >>> arrays = world.init(np.random.default_rng(0))
    >>> world.support(arrays, np.array([0.0, 0.0, 1.0]))[1].round(3).tolist()
    [0.5, 0.5, 0.8]
    """

    users: int | Numbers | Table = 60
    items: int | Numbers | Table = 50
    position_weights: Sequence[float] | Numbers | Table = DCG10
    calibration: str | None = None
    rewards: Mapping[str, tuple[Any, tuple[float, float]]] | None = None
    n_factors: int | None = None

    def __post_init__(self) -> None:
        check_fields(self, calibration_of, "calibration")
        drawn = [np.isscalar(given) for given in (self.users, self.items)]
        if drawn[0] != drawn[1]:
            raise InvalidInput(
                "one of users and items is a number and the other is not; give both numbers, to "
                "draw a world, or both tables of factors"
            )
        check_fields(self, whole_number if drawn[0] else _table, "users", "items")
        if drawn[0]:
            number = _FACTORS if self.n_factors is None else self.n_factors
            check_fields(self, lambda name, given: whole_number(name, number), "n_factors")
        elif self.n_factors is not None:
            raise InvalidInput(
                f"n_factors is {self.n_factors!r}, but the factors are given; leave it out"
            )
        if self.rewards is not None:
            check_fields(self, self._checked_rewards, "rewards")
        elif self._factors[0] != self._factors[1]:
            raise InvalidInput(
                f"users have {self._factors[0]} factors and items {self._factors[1]}; give as many "
                "for both, or rewards with a matrix (users' factors, items' factors)"
            )
        check_fields(self, self._checked_weights, "position_weights")
        if not self._drawn:
            _ = self._given  # errors in the tables are raised now

    def _checked_weights(self, name: str, given: Any) -> Any:
        table = checked_weights(given, *self._sizes)
        several = np.ndim(given) == 2
        return Table(name, table, ("users", "slots")) if several else tuple(table[0].tolist())

    def _checked_rewards(self, what: str, given: Any) -> Frozen[tuple[Table, tuple[float, float]]]:
        if not isinstance(given, Mapping) or not given:
            raise InvalidInput(
                f"{what} is {given!r}; give a mapping from names to (matrix, (low, high)), at "
                "least one"
            )
        checked: dict[str, tuple[Table, tuple[float, float]]] = {}
        for name, pair in given.items():
            if not isinstance(pair, Sequence) or len(pair) != 2:
                raise InvalidInput(f"reward {name!r} is {pair!r}; give (matrix, (low, high))")
            theta = Table(f"the matrix of reward {name!r}", pair[0], ("user", "item"))
            if theta.shape != self._factors:
                raise InvalidInput(
                    f"the matrix of reward {name!r} has shape {theta.shape}; users and items have "
                    f"{self._factors[0]} and {self._factors[1]} factors, so give that shape"
                )
            # The problem knows what a range and a name are.
            known = Problem.arms(1, {name: pair[1]}).rewards
            checked[name] = (theta, known[name])
        return Frozen(checked)

    @property
    def _drawn(self) -> bool:
        return isinstance(self.users, int)

    @property
    def _sizes(self) -> tuple[int, int]:
        """The numbers of users and items."""
        users, items = (a if isinstance(a, int) else len(a) for a in (self.users, self.items))
        return users, items

    @property
    def _factors(self) -> tuple[int, int]:
        """(p, q), without the constant of the affine calibration."""
        if isinstance(self.users, Table) and isinstance(self.items, Table):
            return self.users.shape[1], self.items.shape[1]
        return self.n_factors or 0, self.n_factors or 0

    @cached_property
    def _thetas(self) -> Cube:
        """(R, p, q)."""
        if self.rewards is None:
            return np.eye(self._factors[0])[None]
        return np.stack([np.array(theta) for theta, _ in self.rewards.values()])

    @cached_property
    def _ranges(self) -> dict[str, tuple[float, float]]:
        """Of the rewards of one item."""
        if self.rewards is None:
            return {"clicks": (0.0, 1.0)}
        return {name: (low, high) for name, (_, (low, high)) in self.rewards.items()}

    @cached_property
    def _given(self) -> RankingArrays:
        return self._world(np.array(self.users), np.array(self.items))

    @cached_property
    def _problem(self) -> Problem:
        affine = self.calibration == "affine"
        if self._drawn:
            # Users have norm 1, items at most 1; the constant of an affine calibration is the
            # root of a number between the ends of a range (see `_affine`).
            ends = np.abs(list(self._ranges.values())).max()
            feature_norm = 1.0 + ends if affine else 1.0
        else:
            norms = (np.linalg.norm(a, axis=1).max() for a in self._given[:2])
            feature_norm = max(math.prod(map(float, norms)), 1e-12)
        extra = int(affine)
        parameters = np.linalg.norm(self._thetas, axis=(1, 2))
        k = np.shape(self.position_weights)[-1]
        return Problem.ranking(
            self._sizes[1],
            k,
            (self._factors[0] + extra, self._factors[1] + extra),
            {n: (k * min(low, 0.0), k * max(high, 0.0)) for n, (low, high) in self._ranges.items()},
            feature_norm=feature_norm,
            # An affine map shrinks Theta and adds one entry of size at most 1.
            parameter_norm=max(math.hypot(float(parameters.max()), extra), 1e-12),
        )

    def problem(self) -> Problem:
        """A ranking of the items, with the sums of the rewards over the slots."""
        return self._problem

    def init(self, rng: np.random.Generator) -> RankingArrays:
        """The factors; nothing is random where they were given."""
        if not self._drawn:
            return self._given
        directions = [
            rng.gamma(_SHAPE, size=(n, self._factors[0])) + 1e-12  # no row is all zeros
            for n in self._sizes
        ]
        users, items = (a / np.linalg.norm(a, axis=1, keepdims=True) for a in directions)
        popularity = np.arange(1, self._sizes[1] + 1) ** -_SKEW
        return self._world(users, items * rng.permutation(popularity)[:, None])

    def _world(self, users: Matrix, items: Matrix) -> RankingArrays:
        thetas, ranges = self._thetas, np.array(list(self._ranges.values()))
        extents = np.array([extremes(users @ theta, items) for theta in thetas])
        if self.calibration == "affine":
            users, items, thetas = _affine(users, items, thetas, ranges, extents)
        elif self.calibration is None:
            for name, (low, high), (least, most) in zip(self._ranges, ranges, extents, strict=True):
                if least < low - _ROUNDING or most > high + _ROUNDING:
                    raise InvalidInput(
                        f"the means of {name!r} go from {least:.6g} to {most:.6g}, outside their "
                        f"range [{low:g}, {high:g}]; scale the factors, or set calibration to "
                        "'clip' or 'affine'"
                    )
        n = len(users)
        weights = checked_weights(self.position_weights, n, len(items))
        turned = np.ascontiguousarray(np.stack([users @ theta for theta in thetas]))
        return RankingArrays.of(users, items, turned, weights, ranges, np.full(n, 1.0 / n))

    def draw_users(self, rng: np.random.Generator, n: int) -> IntVector:
        """Uniform, one integer a round."""
        return rng.integers(self._sizes[0], size=n)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        users = [[0.5, -0.2, 0.4], [0.1, 0.7, 0.3]]
        items = [[0.3, 0.2, 0.9], [0.8, -0.5, 0.1], [0.2, 0.6, 0.5], [1.1, 0.9, 2.0]]
        both = {
            "plays": (np.eye(3), (0.0, 1.0)),
            "minutes": ([[1.0, 0.0, 2.0], [0.0, 3.0, 0.0], [0.5, 0.0, 1.0]], (-1.0, 5.0)),
        }
        return (
            cls(users=6, items=5, position_weights=dcg(3), n_factors=4),
            cls(users, items, body(2), calibration="clip"),
            cls(users, items, [[1.0, 0.5], [0.8, 0.1]], calibration="affine"),
            cls(users, items, dcg(3), calibration="affine", rewards=both),
        )


def _table(name: str, values: Any) -> Table:
    return Table(name, values, (name, "factors"))


def _affine(
    users: Matrix, items: Matrix, thetas: Cube, ranges: Matrix, extents: Matrix
) -> tuple[Matrix, Matrix, Cube]:
    """Factors with a constant appended, so that every mean is slope (u' Theta v) + constant.

    The map takes the smallest interval that holds the range and the means onto the range. So the
    slope is at most 1, and the constant lies between the ends of the range. Both go into the
    factors as far as they are shared by the rewards: for clicks alone Theta stays the identity.
    """
    least, most = np.minimum(extents[:, 0], ranges[:, 0]), np.maximum(extents[:, 1], ranges[:, 1])
    slopes = (ranges[:, 1] - ranges[:, 0]) / (most - least)
    constants = ranges[:, 0] - slopes * least
    slope, constant = slopes.max(), np.abs(constants).max()
    p, q = thetas.shape[1:]
    mapped = np.zeros((len(thetas), p + 1, q + 1))
    mapped[:, :p, :q] = thetas * (slopes / slope)[:, None, None]
    mapped[:, p, q] = constants / constant if constant > 0.0 else 1.0
    users, items = (
        np.hstack([math.sqrt(slope) * a, np.full((len(a), 1), math.sqrt(constant))])
        for a in (users, items)
    )
    return users, items, mapped
