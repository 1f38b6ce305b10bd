"""FW-LinUCBRank as one writes it down from the paper, to compare the library with.

NumPy alone and nothing of the library: every formula is here a second time, in its plainest form.
The features of an item for a user are u (x) v, flattened; V is inverted anew in every round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Straightforward", "pooled", "two_sided_gini", "two_sided_gini_direction"]

Array = NDArray[np.float64]


def pooled(values: Array) -> Array:
    """The non-decreasing sequence nearest to `values`: neighbours that violate it are averaged."""
    blocks: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, size = value, 1
        while blocks and blocks[-1][0] >= mean:
            other, length = blocks.pop()
            mean, size = (size * mean + length * other) / (size + length), size + length
        blocks.append((mean, size))
    return np.concatenate([np.full(size, mean) for mean, size in blocks])


def two_sided_gini(z: Array, beta: float) -> float:
    """Eq. (2): the user side less beta/(2m) sum_i sum_j |z_i - z_j|."""
    items = z[:-1]
    return float(z[-1] - beta * abs(items[:, None] - items).sum() / (2 * items.size))


def two_sided_gini_direction(z: Array, beta: float, width: float) -> Array:
    """Gradient of its Moreau envelope, (prox - z)/width.

    -1/(2m) sum sum |z_i - z_j| is sum_j w_j z_(j) with w_j = (m + 1 - 2j)/m, z ascending: its
    proximal point is the isotonic regression of z_(j) + width beta w_j. The user side is linear.
    """
    m = z.size - 1
    order = np.argsort(z[:m])
    weights = beta * (m + 1.0 - 2.0 * np.arange(1, m + 1)) / m
    g = np.ones(m + 1)
    g[order] = (pooled(z[order] + width * weights) - z[order]) / width
    return g


@dataclass(frozen=True)
class Straightforward:
    """Algorithm 1 of the paper, in a world of users, items and position weights."""

    users: Array  # (n, p)
    items: Array  # (m, p); an item that is looked at is clicked with probability u.v
    position_weights: Array
    beta: float
    beta_0: float
    ridge: float
    exploration: float
    parameter_norm: float
    delta: float = 0.05

    def play(self, users: Any, uniforms: Array) -> tuple[Any, Array]:
        """The rankings, (T, k), and the sums of mean rewards after each round, (T, m + 1).

        `users` says who comes, uniforms (T, 2k) who looks (the first k) and who clicks.
        """
        m, k = len(self.items), self.position_weights.size
        d = self.users.shape[1] * self.items.shape[1]
        design, moment = self.ridge * np.eye(d), np.zeros(d)
        z, mean = np.zeros(m + 1), np.zeros(m + 1)
        rankings = np.empty((len(users), k), dtype=np.int64)
        means = np.empty((len(users), m + 1))
        features = np.einsum("ua,ib->uiab", self.users, self.items).reshape(-1, m, d)
        for t in range(len(users)):
            user, x = self.users[users[t]], features[users[t]]
            inverse = np.linalg.inv(design)
            log_ratio = np.linalg.slogdet(design)[1] - d * np.log(self.ridge)
            alpha = 0.5 * np.sqrt(log_ratio + 2.0 * np.log(3.0 / self.delta))
            alpha += np.sqrt(self.ridge) * self.parameter_norm
            widths = np.sqrt(((x @ inverse) * x).sum(axis=1))
            optimistic = x @ (inverse @ moment) + self.exploration * alpha * widths
            g = two_sided_gini_direction(z, self.beta, self.beta_0 / np.sqrt(t + 1.0))
            ranking = np.argsort(-(g[m] * optimistic + g[:m]), kind="stable")[:k]
            values = self.items[ranking] @ user
            exposed = uniforms[t, :k] < self.position_weights
            clicked = exposed & (uniforms[t, k:] < values)
            reward = np.zeros(m + 1)
            reward[ranking] = exposed
            reward[m] = clicked.sum()
            z = z + (reward - z) / (t + 1.0)
            design = design + x[ranking[exposed]].T @ x[ranking[exposed]]
            moment = moment + x[ranking].T @ clicked
            mean[ranking] += self.position_weights
            mean[m] += self.position_weights @ values
            rankings[t], means[t] = ranking, mean
        return rankings, means

    def run(self, horizon: int, rng: np.random.Generator) -> float:
        """f of the mean rewards after so many rounds, users and noise from `rng`."""
        users = rng.integers(len(self.users), size=horizon)
        _, means = self.play(users, rng.random((horizon, 2 * self.position_weights.size)))
        return two_sided_gini(means[-1] / horizon, self.beta)
