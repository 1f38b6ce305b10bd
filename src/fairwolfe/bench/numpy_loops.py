"""The same algorithms as one would write them in NumPy and SciPy: what the speed is compared with.

A loop continues a compiled run: it copies the state and the generators, so that its decisions
must be those of the run from there on. It is *straightforward*: vectorised over arms and items,
one observation at a time, nothing that only a second look would find.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import deepcopy
from typing import Any, TypeAlias, TypeVar

import numpy as np
from scipy.optimize import isotonic_regression

from fairwolfe.bandits import LinUCB, SquareCB
from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.errors import InvalidInput, NumericalFailure
from fairwolfe.oracles.linear_state import LOG_DET
from fairwolfe.simulation.compiled import ArmsRun, RankingsRun

__all__ = [
    "ArmsLoop",
    "LinUCBLoop",
    "RankingLoop",
    "SquareCBLoop",
    "checked",
    "loop_of",
    "smoothed_gini",
]

Run: TypeAlias = ArmsRun | RankingsRun
"""A compiled run."""


def smoothed_gini(z: Vector, step: float, weights: Vector) -> Vector:
    """The gradient (prox(z) - z)/step of a smoothed Gini function, by isotonic regression.

    >>> smoothed_gini(np.array([0.0, 1.0]), 0.1, np.array([1.0, 0.5])).round(6).tolist()
    [1.0, 0.5]
    """
    order = np.argsort(z)
    ascending = z[order]
    gradient = np.empty_like(z)
    gradient[order] = (isotonic_regression(ascending + step * weights).x - ascending) / step
    return gradient


class _Loop:
    """What all loops keep: the ridge regression, the average reward, the generators."""

    def __init__(self, run: Run) -> None:
        running = run.running
        oracle = running.base_state.oracle
        self.objective, self.base = running.objective, running.base
        self.beta0: float = running.smoothing.beta0
        self.streams = deepcopy(run.streams)
        self.design = oracle.gram[0].copy()  # which the compiled run keeps too
        self.inverse = oracle.inverse[0].copy()
        self.log_det = float(oracle.counters[LOG_DET])
        self.z, self.t = running.iterate.copy(), running.t

    def absorb(self, x: Vector) -> None:
        """One observation with features x, by Sherman and Morrison."""
        away = self.inverse @ x
        growth = 1.0 + x @ away
        self.inverse -= np.outer(away, away) / growth
        self.log_det += np.log(growth)
        self.design += np.outer(x, x)

    def average_in(self, reward: Vector) -> None:
        self.t += 1
        self.z += (reward - self.z) / self.t


class ArmsLoop(_Loop, ABC):
    """FrankWolfe with a generalised Gini function in Mehrotra's world, for one rule."""

    def __init__(self, run: ArmsRun) -> None:
        super().__init__(run)
        oracle = run.running.base_state.oracle
        self.theta = np.array(run.world)
        self.moment = oracle.moment[0].T.copy()
        self.n_arms: int = run.environment.n_arms
        self.n_rewards, self.n_features = self.theta.shape
        self.weights = np.array(self.objective.weights)

    def context(self) -> Matrix:
        """The features of the arms of a round."""
        normals = self.streams.contexts.standard_normal((self.n_arms, self.n_features))
        features: Matrix = (1.0 + normals) / self.n_features
        return features

    @abstractmethod
    def choose(self, x: Matrix, g: Vector, score: Vector) -> int:
        """An arm, by its estimated reward for the direction g."""

    def play(self, rounds: int) -> IntVector:
        """Play that many rounds; their arms."""
        actions = np.empty(rounds, dtype=np.int64)
        for s in range(rounds):
            x = self.context()
            g = smoothed_gini(self.z, self.beta0 / np.sqrt(self.t + 1.0), self.weights)
            estimate = self.inverse @ self.moment
            arm = self.choose(x, g, x @ (estimate @ g))
            mean = self.theta @ x[arm]
            noise = self.streams.noise.standard_normal(self.n_rewards)
            reward = mean + 0.1 * np.abs(mean) * noise
            self.absorb(x[arm])
            self.moment += np.outer(x[arm], reward)
            self.average_in(reward)
            actions[s] = arm
        return actions


class LinUCBLoop(ArmsLoop):
    """FW-LinUCB with one design for all rewards, in Mehrotra's world."""

    def choose(self, x: Matrix, g: Vector, score: Vector) -> int:
        """The arm of largest estimate plus width."""
        confidence = 2.0 * np.log(2.0 * self.n_rewards / self.base.delta) + self.log_det
        alpha = 0.5 * np.sqrt(confidence) + np.sqrt(self.base.ridge)
        width = np.sqrt(np.einsum("ai,ij,aj->a", x, self.inverse, x))
        return int(np.argmax(score + self.base.exploration * np.abs(g).sum() * alpha * width))


class SquareCBLoop(ArmsLoop):
    """FW-SquareCB with a given gamma0 over a ridge regression, in Mehrotra's world."""

    def choose(self, x: Matrix, g: Vector, score: Vector) -> int:
        """An arm drawn with probabilities inversely proportional to the gaps."""
        best = int(np.argmax(score))
        gamma = self.base.gamma0 * np.sqrt(self.t + 1.0)
        chance = 1.0 / (self.n_arms + gamma * (score[best] - score))
        chance[best] = 0.0
        chance[best] = 1.0 - chance.sum()
        return int(self.streams.policy.choice(self.n_arms, p=chance))


class RankingLoop(_Loop):
    """FWLinUCBRank for clicks and the Gini of exposures, in a FactorModel.

    User (x) item is flattened into d = p^2 features, widths are ``einsum("ij,jk,ik->i")``, and
    each item that was exposed is one update. `estimates` and `learn` are what a cleverer loop
    would do otherwise.
    """

    def __init__(self, run: RankingsRun) -> None:
        super().__init__(run)
        world, oracle = run.world, run.running.base_state.oracle
        self.users, self.items = world.users.copy(), world.items.copy()
        self.weights = world.weights[0].copy()
        self.n_slots = self.weights.size
        self.n_items, self.n_factors = self.items.shape
        self.moment = oracle.moment[0, 0].copy()
        self.mean = np.zeros(self.n_items + 1)
        places = np.arange(1, self.n_items + 1)
        self.gini = self.objective.beta * (self.n_items + 1.0 - 2.0 * places) / self.n_items

    def features(self, user: Vector, items: Matrix) -> Matrix:
        """user (x) item, flattened, of each of these items."""
        return (user[:, None] * items[:, None, :]).reshape(len(items), self.n_factors**2)

    def estimates(self, user: Vector) -> tuple[Vector, Vector]:
        """Values and squared widths of all items."""
        x = self.features(user, self.items)
        return x @ (self.inverse @ self.moment), np.einsum("ij,jk,ik->i", x, self.inverse, x)

    def learn(self, x: Matrix, clicked: Vector) -> None:
        """The items that were exposed, (r, d), and which were clicked."""
        for row, click in zip(x, clicked, strict=True):
            self.absorb(row)
            self.moment += click * row

    def rank(self, user: Vector) -> IntVector:
        """The items of largest optimistic value for the direction, best first."""
        m, k = self.n_items, self.n_slots
        g = smoothed_gini(self.z[:m], self.beta0 / np.sqrt(self.t + 1.0), self.gini)
        value, square = self.estimates(user)
        alpha = 0.5 * np.sqrt(2.0 * np.log(3.0 / self.base.delta) + self.log_det)
        alpha += np.sqrt(self.base.ridge) * np.sqrt(self.n_factors)  # of vec(I)
        score = value + self.base.exploration * alpha * np.sqrt(square) + g
        top = np.argpartition(-score, k)[:k]
        return top[np.argsort(-score[top])]

    def play(self, rounds: int) -> IntVector:
        """Play that many rounds; their rankings."""
        m, k = self.n_items, self.n_slots
        rankings = np.empty((rounds, k), dtype=np.int64)
        came = self.streams.contexts.integers(len(self.users), size=rounds)
        uniforms = self.streams.noise.random((rounds, 2 * k))
        for s in range(rounds):
            user = self.users[came[s]]
            ranking = self.rank(user)
            truth = self.items[ranking] @ user
            exposed = uniforms[s, :k] < self.weights
            clicked = exposed & (uniforms[s, k:] < truth)
            self.learn(self.features(user, self.items[ranking[exposed]]), clicked[exposed])
            reward = np.zeros(m + 1)
            reward[ranking] = exposed
            reward[m] = clicked.sum()
            self.average_in(reward)
            self.mean[ranking] += self.weights
            self.mean[m] += self.weights @ truth
            rankings[s] = ranking
        return rankings


Loop = TypeVar("Loop", bound=ArmsLoop | RankingLoop)


def loop_of(run: Run) -> ArmsLoop | RankingLoop:
    """The straightforward loop that continues a compiled run."""
    if isinstance(run, RankingsRun):
        return RankingLoop(run)
    rules: dict[Any, type[ArmsLoop]] = {LinUCB: LinUCBLoop, SquareCB: SquareCBLoop}
    base = run.running.base
    if type(base) not in rules:
        raise InvalidInput(f"there is no NumPy loop for {base!r}; use LinUCB or SquareCB")
    return rules[type(base)](run)


def checked(loop: Loop, run: Run, rounds: int = 20) -> Loop:
    """The loop, after it has decided like the run from which it was made."""
    played = 0
    while played < rounds:
        expected = run.play(rounds - played)
        if not np.array_equal(loop.play(len(expected)), expected):
            raise NumericalFailure(
                f"{type(loop).__name__} decides otherwise than the compiled run between rounds "
                f"{loop.t - len(expected) + 1} and {loop.t}; their times cannot be compared"
            )
        played += len(expected)
    return loop
