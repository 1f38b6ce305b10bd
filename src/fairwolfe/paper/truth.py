"""`Truth`: what any policy can reach in the world of a study, from certified optima."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.streams import stream
from fairwolfe.fairness.metrics import gini_index
from fairwolfe.fairness.tradeoff import Frontier
from fairwolfe.lab.build import build
from fairwolfe.lab.experiment import Experiment
from fairwolfe.objectives import Concave, GiniEquality, TwoSided
from fairwolfe.truth.optimum import Optimum, optimum

__all__ = ["Points", "Truth"]

_FINE = 1e-5  # the tolerance of optima whose differences are judged; these are of about 1e-3
_EXACT = 10.0  # the weight of GiniEquality from which on its optimum is equal exposure, and beyond


class Points(NamedTuple):
    """What several optima get: a number each, the mean over worlds."""

    gini: Vector
    utility: Vector
    items: Vector
    """The item part of f, beta included."""


class Truth:
    """The optima in the world of an experiment with rankings or arms, each computed once.

    seeds: those that have results; a world that is random is made for each
    """

    def __init__(self, experiment: Experiment, seeds: tuple[int, ...]) -> None:
        self._experiment, self._seeds = experiment, seeds
        cell = experiment.cells[0]
        parts = build(cell.settings, cell.label)
        self._world, self._measured = parts.environment, parts.objective or parts.policy.objective

    @cached_property
    def highest(self) -> float:
        """The value of f that any policy can reach."""
        return float(np.mean(self.tops))

    @cached_property
    def tops(self) -> Vector:
        """The same in the world of each seed; one number where all have the same world."""
        return np.array([best.value for best in self._best(self._measured)])

    @cached_property
    def by_beta(self) -> Points:
        """The optima for the betas that a trade-off was played with, in their order."""
        return self._points([self._optima[beta] for beta in self._betas])

    @cached_property
    def ends(self) -> Points:
        """The two ends of what f weighs: the optimum of users alone, and the best of the fairest.

        Every item objective of the paper is largest at equal exposure, and there alone. The
        penalty of `GiniEquality` is exact, so with a large weight its optimum is the one of most
        utility among all with equal exposure.
        """
        measured: Any = self._measured
        users = replace(measured, beta=0.0)
        return self._points([self._best(users), self._best(TwoSided(GiniEquality(), _EXACT))])

    @cached_property
    def frontier(self) -> Matrix:
        """Points (Gini index, utility) that no policy is above; see `Frontier`."""
        between = [(low + high) / 2.0 for low, high in pairwise(self._betas)]  # more corners
        several = self._optima | {b: self._best(replace(self._pursued, beta=b)) for b in between}
        betas = sorted(several)
        items, m = self._pursued.items, self._world.problem().n_items
        frontiers = [
            Frontier.of(betas, best, items, m)
            for best in zip(*(several[beta] for beta in betas), strict=True)
        ]
        # Rankings expose the same in all, so a Gini objective is a line over the Gini index.
        exposure = np.mean([best.average[:m] for best in several[betas[0]]], axis=0)
        even, most = items.value(np.full(m, exposure.mean())), items.value(exposure)
        gini = np.linspace(0.0, gini_index(exposure), 200)
        utility = Frontier.mean(frontiers).upper(even + (most - even) * gini / gini[-1])
        return np.stack([gini, utility], axis=1)

    @cached_property
    def _objectives(self) -> dict[float, Any]:
        """What the policies of a trade-off pursue, by beta."""
        by_beta: dict[float, Any] = {}
        for cell in self._experiment.cells:
            policy = build(cell.settings, cell.label).policy
            if getattr(policy, "objective", None) is not None:
                by_beta[policy.objective.beta] = policy.objective
        return by_beta

    @property
    def _pursued(self) -> Any:
        return next(iter(self._objectives.values()))

    @property
    def _betas(self) -> list[float]:
        return sorted(self._objectives)

    @cached_property
    def _optima(self) -> dict[float, tuple[Optimum, ...]]:
        return {beta: self._best(f, _FINE) for beta, f in self._objectives.items()}

    def _best(self, f: Concave, tolerance: float = 1e-3) -> tuple[Optimum, ...]:
        return tuple(optimum(self._world, f, seed, tolerance) for seed in self._worlds)

    @cached_property
    def _worlds(self) -> tuple[int, ...]:
        """The seeds whose worlds differ: one that is the same for all seeds is made once."""
        fixed = self._world.init(stream(0, "world")) is self._world.init(stream(1, "world"))
        return (0,) if fixed else self._seeds

    def _points(self, optima: list[tuple[Optimum, ...]]) -> Points:
        problem = self._world.problem()
        m, f = problem.n_items, self._measured.bind(problem)

        def of(best: Optimum) -> tuple[float, float, float]:
            z = best.average
            utility = float(z[m:].sum())
            return gini_index(z[:m]), utility, f.value(z) - utility

        means = [np.mean([of(best) for best in worlds], axis=0) for worlds in optima]
        return Points(*np.array(means).T)
