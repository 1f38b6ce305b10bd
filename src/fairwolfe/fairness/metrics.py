"""Measures of fairness: how exposure is shared, who envies whom, how far a ranking has moved.

>>> gini_index([3.0, 1.0]), bottom_share([3.0, 1.0])
(0.25, 0.25)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fairwolfe.core.arrays import IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.problem import all_finite, real_number
from fairwolfe.core.streams import stream
from fairwolfe.environments.world import RankingArrays, RankingWorld
from fairwolfe.errors import InvalidInput
from fairwolfe.simulation.run import Streams

if TYPE_CHECKING:
    from fairwolfe.simulation.trace import Trace

from fairwolfe.objectives.exposure import (
    GroupShare,
    bottom_share,
    by_group,
    exposure,
    gini_index,
    lorenz,
    top_share,
    utility,
)

__all__ = [
    "Envy",
    "GroupShare",
    "ShownToUsers",
    "bottom_share",
    "by_group",
    "envy",
    "exposure",
    "gini_index",
    "kendall_distance",
    "lorenz",
    "shown_to_users",
    "top_share",
    "utility",
]

_USER_PAIRS = 1 << 22  # pairs of users compared together: 32 MB
_ROUNDING = 1e-12  # what is envied less, in units of the largest utility, is not counted


@dataclass(frozen=True, eq=False)
class Envy:
    """Envy of i for j: u_i(what j is shown) - u_i(what i is shown), counted where positive."""

    each: Vector
    """Of every user: the largest envy for anyone, 0 if there is none."""
    pairs: float
    """Mean over all ordered pairs of different users."""

    @property
    def mean(self) -> float:
        """Mean over users of the largest envy."""
        return float(self.each.mean())

    @property
    def largest(self) -> float:
        """The largest envy of all."""
        return float(self.each.max())

    @property
    def share(self) -> float:
        """The share of users who envy someone."""
        return float((self.each > 0.0).mean())


def envy(exposures: Any, preferences: Any) -> Envy:
    """Envy among users, from what each is shown and what each likes, both (users, items).

    u_i(e) = sum over items of preferences[i] e. O(users^2 items), in blocks of users, so that
    memory stays at a few tens of megabytes beside the two tables.

    Reference: Do, Corbett-Davies, Atif and Usunier (2022), "Online certification of
    preference-based fairness for personalized recommender systems".

    >>> result = envy([[1.0, 0.0], [0.0, 1.0]], [[0.2, 0.9], [0.3, 0.5]])
    >>> round(result.mean, 3), round(result.largest, 3), result.share
    (0.35, 0.7, 0.5)
    """
    shown, liked = _table("exposures", exposures), _table("preferences", preferences)
    if shown.shape != liked.shape:
        raise InvalidInput(
            f"exposures have shape {shown.shape} and preferences {liked.shape}; give both as "
            "(users, items)"
        )
    n = len(shown)
    own = np.einsum("ij,ij->i", liked, shown)
    nothing = _ROUNDING * float(np.abs(own).max())
    each, total = np.empty(n), 0.0
    size = max(1, _USER_PAIRS // n)
    for start in range(0, n, size):
        rows = slice(start, start + size)
        more = liked[rows] @ shown.T - own[rows, None]
        more[more <= nothing] = 0.0
        each[rows] = more.max(axis=1)
        total += float(more.sum())
    return Envy(each, total / max(n * (n - 1), 1))


def _table(name: str, values: Any) -> Matrix:
    try:
        table = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} is not a table of numbers: {error}") from error
    if table.ndim != 2 or table.size == 0:
        raise InvalidInput(f"{name} has shape {table.shape}; give a table, shape (users, items)")
    if not all_finite(table):
        raise InvalidInput(f"{name} holds NaN or an infinity; give finite numbers only")
    return table


_ITEM_PAIRS = 1 << 23  # comparisons of items done together


def kendall_distance(one: Any, other: Any, penalty: float = 0.0) -> Any:
    """Kendall's distance K^(p) between top-k lists, in units of that between lists without a
    common item: 0 where they are equal, 1 where they share nothing.

    Pairs of items of either list are counted that the lists order differently, where an item in a
    list is ahead of all that are not; a pair that one list does not order, because both items
    are in the other list only, counts `penalty`. Lists that share items are closer than 1, so two
    orders of the same k items are at most (k - 1)/(2k) apart.

    Parameters
    ----------
    one, other: items, best first, (k,); or many rankings, (n, k): then n distances come back
    penalty: p, from 0 (optimistic) to 1/2 (neutral)

    Reference: Fagin, Kumar and Sivakumar (2003), "Comparing top k lists", Section 3.1.

    >>> kendall_distance([3, 1, 2], [3, 2, 1]), kendall_distance([0, 1], [2, 3], penalty=0.5)
    (0.1111111111111111, 1.0)
    """
    p = real_number("penalty", penalty)
    if not 0.0 <= p <= 0.5:
        raise InvalidInput(f"penalty is {penalty!r}; give a number from 0 to 1/2")
    first, second = _rankings("one", one), _rankings("other", other)
    if first.ndim != second.ndim or first.shape[:-1] != second.shape[:-1]:
        raise InvalidInput(
            f"the rankings have shapes {first.shape} and {second.shape}; give two lists, or as "
            "many in both"
        )
    if first.ndim == 1:
        return float(_distances(first[None], second[None], p)[0])
    size = max(1, _ITEM_PAIRS // (first.shape[1] + second.shape[1]) ** 2)
    starts = range(0, len(first), size)
    parts = [_distances(first[s : s + size], second[s : s + size], p) for s in starts]
    return np.concatenate(parts)


def _distances(one: IntMatrix, other: IntMatrix, p: float) -> Vector:
    """Distances row by row; what is in one list only has the same place after all of the other."""
    k, m = one.shape[1], other.shape[1]
    same = one[:, :, None] == other[:, None, :]
    placed = np.where(same.any(axis=2), same.argmax(axis=2), m)
    placed_back = np.where(same.any(axis=1), same.argmax(axis=1), k)
    count = _inversions(placed).astype(np.float64)
    # Pairs of common items were counted above: only those with one of them remain.
    common = np.where(placed_back < k, 0, 1)
    count += _inversions(common)
    only, only_back = (placed == m).sum(axis=1), (placed_back == k).sum(axis=1)
    count += only * only_back
    count += p * 0.5 * (only * (only - 1) + only_back * (only_back - 1))
    distance: Vector = count / (k * m + p * 0.5 * (k * (k - 1) + m * (m - 1)))
    return distance


def _inversions(places: IntMatrix) -> IntVector:
    later = np.triu(np.ones((places.shape[1],) * 2, dtype=bool), 1)
    inversions: IntVector = ((places[:, :, None] > places[:, None, :]) & later).sum(axis=(1, 2))
    return inversions


def _rankings(name: str, values: Any) -> NDArray[np.int64]:
    try:
        given = np.asarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name} is not a ranking: {error}") from error
    if given.dtype.kind not in "iu" or given.ndim not in (1, 2) or given.size == 0:
        raise InvalidInput(
            f"{name} is {values!r:.80}; give whole numbers, the items best first, (k,) or (n, k)"
        )
    ordered = np.sort(given, axis=-1)
    if (ordered[..., 1:] == ordered[..., :-1]).any():
        raise InvalidInput(f"{name} shows an item twice; a ranking holds different items")
    return given.astype(np.int64)


@dataclass(frozen=True, eq=False)
class ShownToUsers:
    """What every user was shown in a run, a row for each user of the world."""

    rounds: IntVector
    """How often each user came, (users,)."""
    exposures: Matrix
    """Mean expected exposure of the items in a user's rounds, (users, items); 0 without any."""
    preferences: Matrix
    """Expected reward of an item that is exposed, (users, items)."""
    rankings: IntMatrix
    """The ranking of each user that earns most, (users, slots): the one without fairness."""
    kendall: Vector
    """Mean Kendall distance of a user's rankings to that, (users,); 0 without any round."""

    @property
    def kendall_distance(self) -> float:
        """Mean over all rounds of the Kendall distance to the ranking without fairness."""
        return float(self.kendall @ self.rounds / self.rounds.sum())

    def envy(self) -> Envy:
        """Envy among the users who came."""
        met = self.rounds > 0
        return envy(self.exposures[met], self.preferences[met])


def shown_to_users(trace: Trace, environment: Any, penalty: float = 0.0) -> ShownToUsers:
    """What each user was shown, from ``simulate(..., record_actions=True)``.

    The users of the rounds are drawn again from the seed of the run. `penalty` is that of
    `kendall_distance`.

    >>> from fairwolfe.environments import FactorModel
    >>> from fairwolfe.objectives import GiniEquality, TwoSided
    >>> from fairwolfe.ranking import FWLinUCBRank
    >>> from fairwolfe.simulation import simulate
    >>> world, policy = FactorModel(), FWLinUCBRank(TwoSided(GiniEquality()), exploration=0.1)
    >>> trace = simulate(policy, world, 500, record_actions=True)
    >>> shown = shown_to_users(trace, world)
    >>> shown.exposures.shape, 0.0 < shown.kendall_distance < 1.0
    ((60, 50), True)
    """
    if not isinstance(environment, RankingWorld):
        raise InvalidInput(
            f"{type(environment).__name__} is not a world with rankings; who was shown what is "
            "known of those only"
        )
    if trace.actions is None:
        raise InvalidInput(
            "the trace has no actions; run simulate(..., record_actions=True) to keep them"
        )
    if trace.problem != environment.problem():
        raise InvalidInput("the trace is of another environment; give the one that it was run in")
    world = environment.init(stream(trace.seed, "world"))
    users = environment.draw_users(Streams.of(trace.seed).contexts, len(trace.actions))
    n, m = len(world.shares), len(world.items)
    exposures, kendall = np.zeros((n, m)), np.zeros(n)
    rows = users if len(world.weights) > 1 else np.zeros_like(users)
    np.add.at(exposures, (users[:, None], trace.actions), world.weights[rows])
    if abs(exposures.sum(axis=0) / len(users) - trace.average[-1, :m]).max() > 1e-6:
        raise InvalidInput(
            "the exposures of the trace are not those of its rankings here; give the environment "
            "that it was run in"
        )
    rankings = _best(world)
    np.add.at(kendall, users, kendall_distance(trace.actions, rankings[users], penalty))
    rounds = np.bincount(users, minlength=n)
    times = np.maximum(rounds, 1)
    exposures /= times[:, None]
    return ShownToUsers(rounds, exposures, _preferences(world), rankings, kendall / times)


def _preferences(world: RankingArrays) -> Matrix:
    total = np.zeros((len(world.shares), len(world.items)))
    for turned, (low, high) in zip(world.turned, world.ranges, strict=True):
        total += np.clip(turned @ world.columns, low, high)
    return total


def _best(world: RankingArrays) -> IntMatrix:
    m, n_rewards = len(world.items), len(world.turned)
    direction = np.concatenate([np.zeros(m), np.ones(n_rewards)])
    best = np.empty((len(world.shares), world.weights.shape[1]), dtype=np.int64)
    rewards = world.rewards
    for user, ranking in enumerate(best):
        rewards.best_for(direction, user, ranking)
    return best
