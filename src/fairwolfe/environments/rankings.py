"""What worlds with rankings share: their arrays, compiled feedback, and the plain methods.

A slot j is exposed with probability b_j, a reward of an item that is exposed is one of the two
ends of its range, with the mean that the world gives it for this user.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.feedback import Shown
from fairwolfe.core.problem import Problem
from fairwolfe.environments.world import direction_of
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import ranks

__all__ = ["RankingArrays", "RankingWorld"]


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
    def rewards(self) -> ranks.RankingWorld:
        """Feedback and means, compiled."""
        return ranks.RankingWorld(self.turned, self.items, self.columns, self.weights, self.ranges)

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
