"""A linear world with five arms and three rewards, f = min, to learn from logs of it."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import fairwolfe as fw
from fairwolfe.objectives import Minimum
from fairwolfe.offpolicy.decisions import ContextPart
from fairwolfe.offpolicy.learning import best_mixture

ARMS, D, FEATURES = 5, 3, 4
PROBLEM = fw.Problem.arms(FEATURES, {"a": (0, 1), "b": (0, 1), "c": (0, 1)}, feature_norm=2.0)
_THETA = np.random.default_rng(1).dirichlet(np.full(FEATURES, 0.7), D)  # means are in [0, 1]
_FRESH = 100_000

Array = NDArray[np.float64]


def contexts(n: int, rng: np.random.Generator) -> Array:
    return rng.random((n, ARMS, FEATURES)) ** 1.5


def truth_of_world() -> float:
    """f*, on many contexts."""
    x = contexts(_FRESH, np.random.default_rng(10**6))
    q = x @ _THETA.T

    def support(direction: Array) -> tuple[float, Array]:
        best = (q @ direction).argmax(axis=1)
        average = q[np.arange(_FRESH), best].mean(axis=0)
        return float(direction @ average), average

    f = Minimum().bind(PROBLEM)
    weights, directions, _ = best_mixture(support, f, PROBLEM)
    average = sum(w * support(g)[1] for w, g in zip(weights, directions, strict=True))
    return float(np.min(average))


def learn_once(seed: int, n: int) -> tuple[float, float, float]:
    """What a mixture learnt from n uniform decisions earns in truth, and its held-out interval."""
    rng = np.random.default_rng(seed)
    x = contexts(n, rng)
    a = rng.integers(0, ARMS, n)
    r = (rng.random((n, D)) < x[np.arange(n), a] @ _THETA.T).astype(np.float64)
    table: dict[str, Any] = {"context": x, "action": a, "probability": np.full(n, 1 / ARMS)}
    table |= {f"reward.{name}": r[:, i] for i, name in enumerate(PROBLEM.rewards)}
    found: Any = fw.offpolicy.Log.of(table, PROBLEM).learn(Minimum(), seed=seed)
    fresh = contexts(_FRESH, np.random.default_rng(10**6))
    pi = found.distribution(ContextPart(_FRESH, ARMS, fresh))
    average = np.einsum("nk,nkd->d", pi, fresh @ _THETA.T) / _FRESH
    return float(average.min()), found.estimate.low, found.estimate.high
