"""What worlds with rankings share: a few kernels over plain arrays, and the plain methods.

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
from fairwolfe.kernels.compile import Kernel, distinct, fma, kernel
from fairwolfe.kernels.selection import top_k

__all__ = [
    "RankingArrays",
    "RankingWorld",
    "best_ranking",
    "item_mean",
    "mean_of_ranking",
    "observe",
    "support_of_rankings",
]

_V, _M, _C = "float64[::1]", "float64[:, ::1]", "float64[:, :, ::1]"


@kernel
def item_mean(turned: Vector, item: Vector, low: float, high: float) -> float:
    """<turned, item>, clipped to the range of the reward. turned, item (q,)."""
    total = 0.0
    for j in range(turned.size):
        total = fma(turned[j], item[j], total)
    return min(max(total, low), high)


@kernel
def item_means(turned: Vector, columns: Matrix, out: Vector) -> None:
    """<turned, item> of every item, not clipped; columns: the items, transposed.

    The same bits as one item at a time: each sum is taken in the order of the factors.

    turned (q,), columns (q, n_items), out (n_items,).
    """
    distinct()
    q, m = columns.shape
    out[:] = 0.0
    whole = q - q % 4
    for j in range(0, whole, 4):
        a, b, c, d = turned[j], turned[j + 1], turned[j + 2], turned[j + 3]
        w, x, y, z = columns[j], columns[j + 1], columns[j + 2], columns[j + 3]
        for i in range(m):
            out[i] = fma(d, z[i], fma(c, y[i], fma(b, x[i], fma(a, w[i], out[i]))))
    for j in range(whole, q):
        a, w = turned[j], columns[j]
        for i in range(m):
            out[i] = fma(a, w[i], out[i])


@kernel(
    signature=f"void(int64[::1], int64, {_V}, {_C}, {_M}, {_M}, {_M}, {_V}, {_M})",
)
def observe(
    action: IntVector,
    user: int,
    uniforms: Vector,
    turned: Cube,
    items: Matrix,
    weights: Matrix,
    ranges: Matrix,
    exposed: Vector,
    rewards: Matrix,
) -> None:
    """The feedback to a ranking. uniforms: k for the exposures, then k R for the rewards by slot.

    action, exposed (slots,), uniforms (slots + slots rewards,), turned (rewards, users, q),
    items (n_items, q), weights (1 or users, slots), ranges (rewards, 2), rewards (slots, rewards).
    """
    k, n = rewards.shape
    row = user if len(weights) > 1 else np.int64(0)
    for j in range(k):
        exposed[j] = 1.0 if uniforms[j] < weights[row, j] else 0.0
        for r in range(n):
            low, high = ranges[r, 0], ranges[r, 1]
            mean = item_mean(turned[r, user], items[action[j]], low, high)
            # low + (high - low) U < mean, without a division: the mean is that of a coin.
            hit = fma(high - low, uniforms[k + j * n + r], low) < mean
            rewards[j, r] = 0.0 if exposed[j] == 0.0 else (high if hit else low)


@kernel(signature=f"void(int64[::1], int64, {_C}, {_M}, {_M}, {_M}, {_V})")
def mean_of_ranking(
    action: IntVector,
    user: int,
    turned: Cube,
    items: Matrix,
    weights: Matrix,
    ranges: Matrix,
    out: Vector,
) -> None:
    """The expected reward vector: exposures of the items, then the user-side rewards.

    action (slots,), turned (rewards, users, q), items (n_items, q), weights (1 or users, slots),
    ranges (rewards, 2), out (n_items + rewards,).
    """
    m, n = len(items), len(turned)
    row = user if len(weights) > 1 else np.int64(0)
    out[:] = 0.0
    for j in range(action.size):
        i, b = action[j], weights[row, j]
        out[i] += b
        for r in range(n):
            mean = item_mean(turned[r, user], items[i], ranges[r, 0], ranges[r, 1])
            out[m + r] = fma(b, mean, out[m + r])


@kernel(signature=f"void({_V}, int64, {_C}, {_M}, {_M}, {_V}, {_V}, int64[::1])")
def best_ranking(
    direction: Vector,
    user: int,
    turned: Cube,
    columns: Matrix,
    ranges: Matrix,
    means: Vector,
    scores: Vector,
    out: IntVector,
) -> None:
    """The items of largest g_i + sum_r g_r mean_r(i), largest first; means and scores: scratch.

    Position weights do not increase, so that sorting by score is optimal (Proposition 4).

    direction (n_items + rewards,), turned (rewards, users, q), columns (q, n_items),
    ranges (rewards, 2), means, scores (n_items,), out (slots,).
    """
    m = columns.shape[1]
    for i in range(m):
        scores[i] = direction[i]
    for r in range(len(turned)):
        item_means(turned[r, user], columns, means)
        g, low, high = direction[m + r], ranges[r, 0], ranges[r, 1]
        for i in range(m):
            scores[i] = fma(g, min(max(means[i], low), high), scores[i])
    top_k(scores, out.size, out)


@kernel(signature=f"float64({_V}, {_V}, {_C}, {_M}, {_M}, {_M}, {_M}, {_V})")
def support_of_rankings(
    direction: Vector,
    shares: Vector,
    turned: Cube,
    items: Matrix,
    columns: Matrix,
    weights: Matrix,
    ranges: Matrix,
    out: Vector,
) -> float:
    """sum_u share_u <g, mean of u's best ranking>, and that mean reward vector in `out`.

    direction, out (n_items + rewards,), shares (users,), turned (rewards, users, q),
    items (n_items, q), columns (q, n_items), weights (1 or users, slots), ranges (rewards, 2).
    """
    m, k = len(items), weights.shape[1]
    means, scores, best = np.empty(m), np.empty(m), np.empty(k, np.int64)
    out[:] = 0.0
    height = 0.0
    for u in range(shares.size):
        best_ranking(direction, u, turned, columns, ranges, means, scores, best)
        row = np.int64(u) if len(weights) > 1 else np.int64(0)
        for j in range(k):
            i, share = best[j], shares[u] * weights[row, j]
            height = fma(share, scores[i], height)
            out[i] += share
            for r in range(len(turned)):
                mean = item_mean(turned[r, u], items[i], ranges[r, 0], ranges[r, 1])
                out[m + r] = fma(share, mean, out[m + r])
    return height


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

    def support(self, direction: Vector) -> tuple[float, Vector]:
        """h_S of a trusted direction, and its maximiser."""
        point = np.empty(direction.size)
        height = support_of_rankings(
            direction,
            self.shares,
            self.turned,
            self.items,
            self.columns,
            self.weights,
            self.ranges,
            point,
        )
        return height, point


class RankingWorld(ABC):
    """An environment with rankings that is given by its arrays.

    A subclass states `problem`, `init`, `draw_users`, and what a context looks like: `show`,
    `features` and `_user_of`. An action is an int64 array of distinct items, best slot first.
    """

    def kernels(self) -> tuple[Kernel[..., Any], ...]:
        """What the plain methods call."""
        return observe, mean_of_ranking, best_ranking

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
        observe(
            ranking,
            user,
            uniforms,
            world.turned,
            world.items,
            world.weights,
            world.ranges,
            *shown,
        )
        return shown

    def mean_reward(self, world: RankingArrays, context: Any, action: Any) -> Vector:
        """The expected reward vector of a ranking: b_j for the item in slot j, then the rewards."""
        ranking, user = self._ranking(action), self.tag(world, context)
        out = np.empty(self.problem().n_objectives)
        mean_of_ranking(ranking, user, world.turned, world.items, world.weights, world.ranges, out)
        return out

    def best_action(self, world: RankingArrays, context: Any, direction: Any) -> IntVector:
        """The ranking of largest <direction, mean reward>, ties to the lowest index."""
        g, user = direction_of(self.problem(), direction), self.tag(world, context)
        means, scores = np.empty((2, len(world.items)))
        out = np.empty(world.weights.shape[1], dtype=np.int64)
        best_ranking(g, user, world.turned, world.columns, world.ranges, means, scores, out)
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
