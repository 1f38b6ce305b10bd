"""What the environments share: position weights, checks of fields, and two kinds of worlds.

`ArmsWorld` and `RankingWorld` make the plain methods of an environment from its draws and rewards;
`Table` is an array as a value.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.contexts import arms
from fairwolfe.core.feedback import Shown
from fairwolfe.core.problem import Problem, whole_number
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import ranks
from fairwolfe.kernels.worlds import CompiledArmWorld


def dcg(n_slots: int) -> tuple[float, ...]:
    """b_j = 1/log2(1 + j), j = 1..k: those of the discounted cumulative gain.

    Reference: appendix of the paper, "Fair ranking", "Environments".

    >>> [round(b, 4) for b in dcg(4)]
    [1.0, 0.6309, 0.5, 0.4307]
    """
    k = whole_number("n_slots", n_slots)
    return tuple(1.0 / math.log2(1 + j) for j in range(1, k + 1))


def body(n_slots: int) -> tuple[float, ...]:
    """b_j = log 2/(1 + log j), as printed in the body of the paper.

    Most likely a misprint of log 2/log(1 + j), which is `dcg`; the first slot has .69 here.

    Reference: Section 5 of the paper.

    >>> [round(b, 4) for b in body(4)]
    [0.6931, 0.4094, 0.3303, 0.2905]
    """
    k = whole_number("n_slots", n_slots)
    return tuple(math.log(2.0) / (1.0 + math.log(j)) for j in range(1, k + 1))


def checked_weights(weights: Any, n_users: int, n_items: int) -> Matrix:
    """Weights as a table of one row for all users, or of one for each; raises if not valid."""
    try:
        table = np.atleast_2d(np.array(weights, dtype=np.float64, order="C"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"position_weights is not an array of numbers: {error}") from error
    if table.ndim != 2 or table.shape[1] == 0 or len(table) not in (1, n_users):
        raise InvalidInput(
            f"position_weights has shape {np.shape(weights)}; give a number for each slot, or one "
            f"row of them for each of the {n_users} users"
        )
    if table.shape[1] > n_items:
        raise InvalidInput(
            f"there are {table.shape[1]} position weights and {n_items} items; a ranking shows an "
            f"item at most once, so give at most {n_items}, such as dcg({n_items})"
        )
    ordered = (np.diff(table, axis=1) <= 0.0).all()
    if not (ordered and table.max() <= 1.0 and table.min() >= 0.0):  # NaN fails too
        raise InvalidInput(
            f"position_weights is {np.array2string(table, threshold=20)}; they are probabilities "
            "in [0, 1] that never increase from slot to slot"
        )
    return table


def check_fields(owner: object, check: Callable[[str, Any], object], *names: str) -> None:
    """Replace fields of a frozen dataclass by what a check (name, value) makes of them."""
    for name in names:
        object.__setattr__(owner, name, check(name, getattr(owner, name)))


W = TypeVar("W")


def direction_of(problem: Problem, given: Any) -> Vector:
    """A checked direction: a finite weight for each coordinate of the reward vector."""
    g: Vector = np.array(given, dtype=np.float64)
    n = problem.n_objectives
    if g.shape != (n,) or not np.isfinite(g).all():
        raise InvalidInput(f"the direction is {given!r}; give {n} finite numbers")
    return g


Array = np.ndarray[Any, np.dtype[np.float64]]


class ArmsWorld(ABC, Generic[W]):
    """An environment with arms that is given by its draws and its rewards.

    The plain methods of the contract are made from those: a subclass states `problem`, `init`,
    `draw_contexts`, `draw_noise` and either `rewards`, in Python, with the number of its arms,
    `n_arms`, or `reward_program`, compiled, and how a context is recognised. Both loops of
    `simulate` play it; the compiled one calls `rewards`.
    """

    n_arms: int

    @abstractmethod
    def problem(self) -> Problem:
        """What is decided here."""

    @abstractmethod
    def init(self, rng: np.random.Generator) -> W:
        """Draw a world."""

    @abstractmethod
    def draw_contexts(self, world: W, rng: np.random.Generator, n: int) -> tuple[Cube, IntVector]:
        """Features (n, K, d) and tags (n,) of n rounds."""

    @abstractmethod
    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        """What `feedback` draws in n rounds, whatever the actions: (n, numbers a round)."""

    def rewards(self, world: W, features: Matrix, arm: int, noise: Vector) -> tuple[Vector, Vector]:
        """The mean reward vector of an arm, and its reward with this noise, a row of `draw_noise`.

        features (n_arms, d). The mean must not depend on the noise.
        """
        raise NotImplementedError(f"{type(self).__name__} has no rewards; write that method")

    def reward_program(self, world: W) -> CompiledArmWorld:
        """The rewards of a world, compiled; or `rewards`, to be called from compiled code."""

        def reward(arm: int, tag: int, features: Matrix, noise: Vector) -> tuple[Vector, Vector]:
            return self.rewards(world, features, arm, noise)

        def best(direction: Vector, tag: int, features: Matrix) -> int:
            nothing = np.zeros(self.n_draws)
            means = [self.rewards(world, features, a, nothing)[0] for a in range(len(features))]
            return int(np.argmax(np.asarray(means) @ direction))

        problem = self.problem()
        sizes = (problem.n_objectives, problem.dimension, self.n_arms, self.n_draws)
        return CompiledArmWorld.of_functions(reward, best, *sizes)

    @property
    def bounded(self) -> bool:
        """Whether rewards stay in the ranges of the problem, as every regret bound asks."""
        return True

    @property
    def n_draws(self) -> int:
        """How many numbers one `feedback` draws: one for each reward, if not stated otherwise."""
        return self.problem().n_objectives

    def tag(self, world: W, features: Matrix) -> int:
        """By which number the kernels know a context; 0 where its features say everything."""
        return 0

    def context(self, world: W, t: int, rng: np.random.Generator) -> Matrix:
        """The features (K, d) of the arms of round t; rounds are independent."""
        features: Matrix = self.draw_contexts(world, rng, 1)[0][0]
        return features

    def feedback(self, world: W, context: Any, action: Any, rng: np.random.Generator) -> Vector:
        """The reward vector of the arm; draws the same numbers whatever the arm."""
        arm, tag, features = self._checked_arm(world, context, action)
        noise: Vector = self.draw_noise(rng, 1)[0]
        return self._answer(world, arm, tag, features, noise)[1]

    def mean_reward(self, world: W, context: Any, action: Any) -> Vector:
        """The expected reward vector of the arm."""
        arm, tag, features = self._checked_arm(world, context, action)
        return self._answer(world, arm, tag, features, np.zeros(self.n_draws))[0]

    def best_action(self, world: W, context: Any, direction: Vector) -> int:
        """The arm of largest <direction, mean reward>; ties to the lowest index."""
        _, tag, features = self._checked_arm(world, context, 0)
        return self.reward_program(world).best_arm(
            direction_of(self.problem(), direction), tag, features
        )

    def _checked_arm(self, world: W, context: Any, action: Any) -> tuple[int, int, Matrix]:
        """A checked arm, with the tag and the features of its context."""
        features = arms(context, self.problem()).features
        whole = isinstance(action, (int, np.integer)) and not isinstance(action, bool)
        if not whole or not 0 <= action < len(features):
            raise InvalidInput(
                f"the action is {action!r}; give the number of an arm, 0 to {len(features) - 1}"
            )
        return int(action), self.tag(world, features), features

    def _answer(
        self, world: W, arm: int, tag: int, features: Matrix, noise: Vector
    ) -> tuple[Vector, Vector]:
        answer: tuple[Vector, Vector] = self.reward_program(world).answer(arm, tag, features, noise)
        return answer


class RankingArrays(NamedTuple):
    """A world with rankings as arrays: the mean of reward r is <turned[r, user], items[i]>."""

    users: NDArray[np.float64]  # the features that identify them: (users, p), or (users, items, d)
    items: Matrix  # (m, q)
    columns: Matrix  # (q, m), the items transposed
    turned: Cube  # (R, users, q)
    weights: Matrix  # of the slots, (1, k) or (users, k)
    ranges: Matrix  # of the rewards of one item, (R, 2)
    shares: Vector  # how likely each user is
    places: dict[bytes, int]  # bytes of a user -> first place in `users`

    @classmethod
    def of(
        cls,
        users: NDArray[np.float64],
        items: Matrix,
        turned: Cube,
        weights: Matrix,
        ranges: Matrix,
        shares: Vector,
    ) -> RankingArrays:
        """With what follows from the rest."""
        places: dict[bytes, int] = {}
        for i, user in enumerate(users):
            first = places.setdefault(user.tobytes(), i)
            if len(weights) > 1 and not np.array_equal(weights[i], weights[first]):
                raise InvalidInput(
                    f"users {first} and {i} are equal and cannot be distinguished, but they "
                    "have different position weights; give them the same, or another feature"
                )
        columns = np.ascontiguousarray(items.T)
        return cls(users, items, columns, turned, weights, ranges, shares, places)

    @property
    def rewards(self) -> ranks.CompiledRankingWorld:
        """Feedback and means, compiled."""
        return ranks.CompiledRankingWorld(
            self.turned, self.items, self.columns, self.weights, self.ranges
        )

    def support(self, direction: Vector) -> tuple[float, Vector]:
        """h_S of a trusted direction, and its maximiser."""
        point = np.empty(direction.size)
        height = self.rewards.support(direction, self.shares, point)
        return height, point


class RankingWorld(ABC):
    """An environment with rankings that is given by its arrays.

    A subclass states `problem`, `init`, `draw_users`, and what a context looks like: `show`,
    `features` and `_user_of`. An action is an int64 array of distinct items, best slot first.
    """

    @abstractmethod
    def problem(self) -> Problem:
        """What is decided here."""

    @abstractmethod
    def init(self, rng: np.random.Generator) -> RankingArrays:
        """Draw a world."""

    @abstractmethod
    def draw_users(self, rng: np.random.Generator, n: int) -> IntVector:
        """The users of n rounds, as places in `users`."""

    @abstractmethod
    def show(self, world: RankingArrays, user: int) -> Any:
        """The context of a round with this user."""

    @abstractmethod
    def features(self, world: RankingArrays) -> tuple[Matrix, Cube]:
        """What a policy sees of the contexts: users (n, p), and items (1 or n, q, m) as columns."""

    @abstractmethod
    def _user_of(self, world: RankingArrays, context: Any) -> NDArray[np.float64]:
        """The part of a checked context by which its user is known."""

    @property
    def bounded(self) -> bool:
        """Yes: every reward is one of two numbers."""
        return True

    @property
    def n_draws(self) -> int:
        """How many numbers one `feedback` draws: one for each slot, one for each of its rewards."""
        problem = self.problem()
        return (problem.n_slots or 0) * (1 + len(problem.rewards))

    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        """What `feedback` draws in n rounds, whatever the actions: uniforms (n, k + k R)."""
        return rng.random((n, self.n_draws))

    def context(self, world: RankingArrays, t: int, rng: np.random.Generator) -> Any:
        """The context of round t; rounds are independent."""
        return self.show(world, int(self.draw_users(rng, 1)[0]))

    def tag(self, world: RankingArrays, context: Any) -> int:
        """Which user a context belongs to; users with equal features are the same user."""
        known = world.places.get(self._user_of(world, context).tobytes())
        if known is None:
            raise InvalidInput(
                f"the context belongs to none of the {len(world.users)} users of this world; give "
                "one that context(...) returned, unchanged"
            )
        return known

    def feedback(
        self, world: RankingArrays, context: Any, action: Any, rng: np.random.Generator
    ) -> Shown:
        """Which slots were exposed and what their items earned."""
        ranking, user = self._ranking(action), self.tag(world, context)
        k, n = world.weights.shape[1], len(world.turned)
        shown = Shown(np.empty(k), np.empty((k, n)))
        uniforms = self.draw_noise(rng, 1)[0]
        world.rewards.feedback(ranking, user, uniforms, *shown)
        return shown

    def mean_reward(self, world: RankingArrays, context: Any, action: Any) -> Vector:
        """The expected reward vector of a ranking: b_j for the item in slot j, then the rewards."""
        ranking, user = self._ranking(action), self.tag(world, context)
        out = np.empty(self.problem().n_objectives)
        world.rewards.mean(ranking, user, out)
        return out

    def best_action(self, world: RankingArrays, context: Any, direction: Any) -> IntVector:
        """The ranking of largest <direction, mean reward>, ties to the lowest index."""
        g, user = direction_of(self.problem(), direction), self.tag(world, context)
        out = np.empty(world.weights.shape[1], dtype=np.int64)
        world.rewards.best_for(g, user, out)
        return out

    def support(self, world: RankingArrays, direction: Any) -> tuple[float, Vector]:
        """h_S(g) = mean over users of <g, mean of the best ranking>, and where it is attained."""
        return world.support(direction_of(self.problem(), direction))

    def _ranking(self, action: Any) -> IntVector:
        """A checked action."""
        problem = self.problem()
        m, k = problem.n_items or 0, problem.n_slots or 0
        ranking = np.asarray(action)
        fits = ranking.dtype.kind in "iu" and ranking.shape == (k,)
        if not fits or ranking.min() < 0 or ranking.max() >= m or len(set(ranking.tolist())) < k:
            raise InvalidInput(
                f"the action is {action!r}; give the places of {k} different items, 0 to {m - 1}, "
                "best slot first"
            )
        return np.ascontiguousarray(ranking, dtype=np.int64)


class Table:
    """An array that never changes: compared by its numbers, hashed, printed as nested lists.

    >>> Table("theta", [[1, 0], [0, 1]], ("rewards", "features"))
    [[1.0, 0.0], [0.0, 1.0]]
    """

    __slots__ = ("_array",)

    def __init__(self, name: str, values: Any, axes: tuple[str, ...]) -> None:
        wanted = f"({', '.join(axes)})"
        try:
            array = np.array(values, dtype=np.float64, order="C")
        except (TypeError, ValueError) as error:
            raise InvalidInput(
                f"{name} is not an array of shape {wanted}: {error}; give rows of equal length"
            ) from error
        if array.ndim != len(axes) or array.size == 0:
            raise InvalidInput(
                f"{name} has shape {array.shape}; give {wanted}, at least one of each"
            )
        if not np.isfinite(array).all():
            raise InvalidInput(f"{name} has a number that is not finite; give finite numbers only")
        array += 0.0  # -0.0 equals 0.0, so it must have the same hash
        array.flags.writeable = False
        self._array = array

    @property
    def shape(self) -> tuple[int, ...]:
        """As of an array."""
        return self._array.shape

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.array(self._array, dtype=dtype, copy=copy)

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, place: int) -> Any:
        return self._array[place]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Table):
            return bool(np.array_equal(self._array, other._array))
        return NotImplemented

    def __hash__(self) -> int:
        return hash((self.shape, self._array.tobytes()))

    def __repr__(self) -> str:
        return repr(self._array.tolist())

    def __reduce__(self) -> Any:
        return Table, ("table", self._array, ("",) * self._array.ndim)
