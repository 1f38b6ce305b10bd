"""A small world of arms, and logs of it."""

from __future__ import annotations

from typing import Any

import numpy as np

import fairwolfe as fw
from fairwolfe.offpolicy import Log

ARMS, D = 4, 3
NAMES = ("clicks", "minutes", "saves")
PROBLEM = fw.Problem.arms(D, dict.fromkeys(NAMES, (0, 1)), feature_norm=2.0)
THETA = np.array([[0.5, 0.2, 0.1], [0.1, 0.5, 0.2], [0.2, 0.1, 0.5]])


def columns(n: int, seed: int = 0, explore: float = 0.4) -> dict[str, Any]:
    """Logged by a policy that prefers the arm of the largest first feature."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, ARMS, D))
    p = np.full((n, ARMS), explore / ARMS)
    p[np.arange(n), x[:, :, 0].argmax(axis=1)] += 1.0 - explore
    a = (rng.random((n, 1)) > np.cumsum(p, axis=1)).sum(axis=1).clip(max=ARMS - 1)
    r = (rng.random((n, D)) < x[np.arange(n), a] @ THETA.T).astype(float)
    table = {"id": [f"t-{i}" for i in range(n)], "number": np.arange(n), "context": x, "action": a}
    table |= {"probability": p[np.arange(n), a], "probabilities": p}
    return table | {f"reward.{name}": r[:, i] for i, name in enumerate(NAMES)}


def log(n: int = 2000, seed: int = 0) -> Log:
    return Log.of(columns(n, seed), PROBLEM)


def best_by_first(context: Any) -> Any:
    """A policy: the arm whose first feature is largest."""
    return int(np.argmax(context[:, 0]))
