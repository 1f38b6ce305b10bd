"""Who was shown what in a run, and what follows: envy, and the distance to rankings by reward."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.core.arrays import IntMatrix, IntVector, Matrix, Vector
from fairwolfe.core.streams import stream
from fairwolfe.environments.rankings import RankingArrays, RankingWorld
from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.metrics.envy import Envy, envy
from fairwolfe.fairness.metrics.rank_distance import kendall_distance
from fairwolfe.simulation.streams import Streams

if TYPE_CHECKING:
    from fairwolfe.simulation.trace import Trace

__all__ = ["ShownToUsers", "shown_to_users"]


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
