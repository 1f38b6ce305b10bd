"""The set of average rewards, by samples of contexts, where its support is not known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.objectives import Concave
from fairwolfe.truth.constraints import HardConstraints
from fairwolfe.truth.solver import Solution

_BATCHES = 20
_ERRORS = 5.0  # standard errors
_CHUNK = 1_000  # contexts drawn at once


class Sample:
    """Contexts of one world, with the mean rewards of the actions that are best there."""

    def __init__(self, environment: Any, world: Any, rng: np.random.Generator, n: int) -> None:
        self.environment = environment
        self.world = world
        self.n = n
        self.compiled = hasattr(environment, "reward_program")
        if self.compiled:
            self.contexts = environment.draw_contexts(world, rng, n)
        else:
            self.contexts = [environment.context(world, t, rng) for t in range(1, n + 1)]

    def means(self, directions: Matrix, which: IntVector) -> Matrix:
        """Mean rewards of the best action of every context i for directions[which[i]], (n, D)."""
        environment, world = self.environment, self.world
        if self.compiled:
            rows, (features, tags) = np.ascontiguousarray(directions), self.contexts
            means: Matrix = environment.reward_program(world).best_means(
                features, tags, rows, which
            )
            return means
        return np.array(
            [
                environment.mean_reward(world, c, environment.best_action(world, c, directions[j]))
                for c, j in zip(self.contexts, which.tolist(), strict=True)
            ]
        )

    def support(self, direction: Vector) -> tuple[float, Vector]:
        """The support function of the sample, and its maximiser."""
        point = self.means(direction[None], np.zeros(self.n, dtype=np.int64)).mean(axis=0)
        return float(direction @ point), point


def enclose(
    environment: Any,
    world: Any,
    f: Concave,
    solution: Solution,
    rng: np.random.Generator,
    n: int,
    constraints: HardConstraints | None = None,
) -> Solution:
    """The solution of a sample with bounds on f* and an average from n fresh contexts; five
    standard errors each.

    Above: the mean of max_a <slope, mu(x) a>, added to the intercept. Below: a policy that draws
    one of the mixture's directions for every context and plays its best action. f of the mean of a
    batch of its rewards is at most f of their expectation on average (Jensen), so that the mean
    over batches is a lower bound in expectation, whatever the shape of f.

    Hard constraints have to be kept on fresh contexts too: every direction of the mixture is
    measured on all n contexts, and the weights are those nearest to the mixture's with which every
    row keeps its level with five standard errors to spare. (They are a few numbers for thousands of
    contexts, which have to serve once more for the bounds.) There is no lower bound where no
    weights do. Where the sample shows that nothing keeps them, the fresh contexts have to show it
    too; otherwise nothing is known.
    """
    infeasible = solution.upper_bound == -np.inf
    used = solution.weights > 0.0
    directions, weights = solution.directions[used], solution.weights[used]
    measured = 0 if infeasible else 1 if constraints is None else len(weights)
    tops: list[float] = []
    batches = np.zeros((_BATCHES, measured, len(solution.slope)))
    size = -(-n // _BATCHES)
    for b, sample, places in _fresh(environment, world, rng, size):
        for j in range(measured):
            which = places + j
            if constraints is None:
                drawn = rng.choice(len(solution.weights), places.size, p=solution.weights)
                which = drawn.astype(np.int64)
            table = solution.directions if constraints is None else directions
            batches[b, j] += sample.means(table, which).sum(axis=0)
        tops += (sample.means(solution.slope[None], places) @ solution.slope).tolist()
    batches /= size
    top = float(np.mean(tops) + _ERRORS * np.std(tops) / np.sqrt(len(tops)))
    high = solution.intercept + top
    if infeasible and constraints is not None:
        certain = -high
        if certain > constraints.allowed:
            return solution._replace(unavoidable=certain)
        return solution._replace(value=-np.inf, upper_bound=np.inf, unavoidable=0.0)
    points, relaxed, kept = batches.mean(axis=0), f, np.ones(1)
    if constraints is not None:
        x = (constraints.matrix @ np.einsum("j,bjn->nb", weights, batches)).T
        errors = _ERRORS * x.std(axis=0, ddof=1) / np.sqrt(_BATCHES)
        nearest = constraints.tightened(errors).nearest(points, weights)
        if nearest is None:
            average = weights @ points
            return solution._replace(value=-np.inf, upper_bound=high, average=average)
        relaxed, kept = constraints.relaxed, nearest
    values = np.array([relaxed._value(kept @ batch) for batch in batches])
    low = -np.inf
    if np.isfinite(values).all():
        low = float(values.mean() - _ERRORS * values.std(ddof=1) / np.sqrt(_BATCHES))
    return solution._replace(value=low, upper_bound=max(high, low), average=kept @ points)


def _fresh(
    environment: Any, world: Any, rng: np.random.Generator, size: int
) -> Iterator[tuple[int, Sample, IntVector]]:
    """Batches of fresh contexts in parts: the number of the batch, the part, and a zero for each
    of its contexts.
    """
    for b in range(_BATCHES):
        for begin in range(0, size, _CHUNK):
            count = min(_CHUNK, size - begin)
            yield b, Sample(environment, world, rng, count), np.zeros(count, dtype=np.int64)
