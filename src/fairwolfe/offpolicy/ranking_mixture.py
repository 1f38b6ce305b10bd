"""Learning to rank for f from logs: a mixture of rankings by score."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Cube, IntMatrix, Matrix, Vector
from fairwolfe.core.catalogue import sizes
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.offpolicy.decisions import CHUNK, Rankings
from fairwolfe.offpolicy.estimate import Estimate
from fairwolfe.offpolicy.learning import best_mixture, reading, write_arrays
from fairwolfe.oracles import Ridge

__all__ = ["RankingMixture", "learn_rankings"]

_ARRAYS = ("weights", "directions", "theta", "items", "slots")
_USERS = 5_000  # on which a mixture is sought


@dataclass(frozen=True, eq=False)
class RankingMixture:
    """A policy of rankings: member n is drawn with its weight and shows the items of largest
    g_n,i + <g_n, q_i(x)>, the best in the slot that is exposed most.

    theta (R, p, q): q_i(x) = theta (x (x) item_i) is what item i earns where it is exposed; slots
    (k,): the chance that a slot is exposed.
    """

    problem: Problem
    weights: Vector
    directions: Matrix
    theta: Cube
    items: Matrix
    slots: Vector
    feasible: bool = True
    estimate: Estimate | None = None

    def __repr__(self) -> str:
        value = ""
        if self.estimate is not None:
            value = f", f = {self.estimate.value:.4g} on other decisions"
        return f"<RankingMixture of {self.weights.size} policies{value}>"

    def evaluated(self, estimate: Estimate) -> RankingMixture:
        """The same with what it would have earned."""
        return replace(self, estimate=estimate)

    def rewards(self, users: Matrix) -> Cube:
        """What items are estimated to earn where they are exposed, (users, m, R)."""
        rewards: Cube = np.einsum("np,rpq,mq->nmr", users, self.theta, self.items, optimize=True)
        return rewards

    def rankings(self, users: Matrix, direction: Vector, allowed: Any = None) -> IntMatrix:
        """The rankings (users, k) for one direction."""
        return _ranked(self.rewards(users), direction, self.slots, allowed)

    def at_rank(self, users: Matrix, allowed: Any = None) -> Cube:
        """P(item i in slot j), (users, m, k)."""
        m, k = len(self.items), self.slots.size
        out = np.zeros((len(users), m, k))
        q, rows = self.rewards(users), np.arange(len(users))[:, None]
        for weight, direction in zip(self.weights, self.directions, strict=True):
            out[rows, _ranked(q, direction, self.slots, allowed), np.arange(k)] += weight
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file: arrays and JSON, never pickle."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        write_arrays(path, "ranking", self.problem, {"feasible": self.feasible}, arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> RankingMixture:
        """What `save` wrote."""
        with reading(path, "ranking") as (problem, text, file):
            arrays: Any = {name: np.array(file[name], dtype=np.float64) for name in _ARRAYS}
            (p, q), m = sizes(problem), problem.n_items or 0
            count, n, r = arrays["weights"].size, problem.n_objectives, len(problem.rewards)
            wanted = ((count,), (count, n), (r, p, q), (m, q), (problem.n_slots,))
            shapes = tuple(arrays[name].shape for name in _ARRAYS)
            if shapes != wanted or not all(np.isfinite(x).all() for x in arrays.values()):
                raise ValueError(f"its arrays have the shapes {shapes}")
            return cls(problem, **arrays, feasible=bool(text["feasible"]))


def _ranked(q: Cube, direction: Vector, slots: Vector, allowed: Any) -> IntMatrix:
    m = q.shape[1]
    scores = direction[:m] + q @ direction[m:]
    if allowed is not None:
        scores = np.where(allowed, scores, -np.inf)
    best = np.argsort(-scores, axis=1, kind="stable")[:, : slots.size]
    shown = np.empty_like(best)
    shown[:, np.argsort(-slots, kind="stable")] = best
    return shown


def learn_rankings(data: Rankings, f: Concave, model: Any) -> RankingMixture:
    """The best mixture for a bound f, by ridge regression on what was exposed."""
    ridge = 1.0
    if isinstance(model, Ridge):
        ridge = model.ridge
    elif model is not None:
        raise InvalidInput(f"the model is {model!r:.80}; for rankings give fw.oracles.Ridge()")
    if data.users is None or data.items is None:
        raise InvalidInput(
            "learning to rank needs the users' features and, once for all rows, those of the "
            "items; a log of an agent that keeps its items has them"
        )
    theta, slots = _regressed(data, ridge), data.exposed.mean(axis=0)
    fresh = RankingMixture(
        data.problem, np.ones(1), np.zeros((1, data.problem.n_objectives)), theta, data.items, slots
    )
    some = np.arange(data.n)
    if data.n > _USERS:
        some = np.sort(np.random.default_rng(0).permutation(data.n)[:_USERS])
    q = fresh.rewards(data.users[some])
    allowed = None if data.candidates is None else data.candidates[some]
    rows, m = np.arange(some.size)[:, None], len(data.items)

    def support(direction: Vector) -> tuple[float, Vector]:
        shown = _ranked(q, direction, slots, allowed)
        exposures = np.bincount(
            shown.ravel(), np.broadcast_to(slots, shown.shape).ravel(), minlength=m
        )
        earned = (slots[:, None] * q[rows, shown]).sum(axis=(0, 1))
        average = np.concatenate([exposures, earned]) / some.size
        return float(direction @ average), average

    weights, directions, feasible = best_mixture(support, f, data.problem)
    return replace(fresh, weights=weights, directions=directions, feasible=feasible)


def _regressed(data: Rankings, ridge: float) -> Cube:
    """theta (R, p, q) from the items that were exposed."""
    assert data.users is not None
    assert data.items is not None
    p, q, r = data.users.shape[1], data.items.shape[1], data.rewards.shape[2]
    gram, moment = ridge * np.eye(p * q), np.zeros((p * q, r))
    for start in range(0, data.n, CHUNK):
        span = slice(start, start + CHUNK)
        row, slot = np.nonzero(data.exposed[span])
        users, items = data.users[span][row], data.items[data.rankings[span][row, slot]]
        x = (users[:, :, None] * items[:, None, :]).reshape(-1, p * q)
        gram += x.T @ x
        moment += x.T @ data.rewards[span][row, slot]
    return np.ascontiguousarray(np.linalg.solve(gram, moment).T.reshape(r, p, q))
