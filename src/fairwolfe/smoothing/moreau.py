"""`Moreau`: the Moreau envelope with a width that shrinks over time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.objectives import Concave
from fairwolfe.smoothing.schedule import checked_horizon, checked_width, shrink, shrunk

__all__ = ["Moreau", "usual"]


@dataclass(frozen=True)
class Moreau:
    """f_t(z) = max_y f(y) - |y - z|^2 / (2 b_t) with b_t = beta0 / sqrt(t + 1).

    f <= f_t, so it is an optimistic approximation. Sums, blocks and maps are smoothed leaf by
    leaf: every expression whose leaves have a proximal map can be smoothed, whether or not it has
    one itself. Deterministic; costs one compiled gradient.

    Parameters
    ----------
    beta0: the width at t = 0. None balances the two errors that it trades, D_K/L for a single
        function of all rewards, and is on the scale of the rewards for Welfare and Nash: see
        `best`. The paper's experiments use 0.01 (arms), 1 (ranking).
    horizon: a number of rounds T fixes the width at b_T from the first round on (the older way of
        smoothing, which needs T in advance).

    Reference: Sec. 3.3 and appendix "Smoothing with the Moreau envelope" of the paper; its
    gradient is (prox - z)/b (the paper prints the opposite sign).

    >>> from fairwolfe.objectives import Minimum
    >>> Moreau(beta0=1.0).gradient(Minimum(), [0.0, 0.5], t=0).tolist()
    [0.75, 0.25]
    """

    averaged: ClassVar[bool] = False
    """Directions are exact: the newest one is followed."""

    beta0: float | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta0", checked_width("beta0", self.beta0))
        object.__setattr__(self, "horizon", checked_horizon(self.horizon))

    def bind(self, problem: Problem, objective: Concave) -> Moreau:
        """Choose beta0 for a problem, if it was left open; `objective` is bound to it."""
        for _, leaf, _ in objective.leaves(problem.n_objectives):
            leaf._check_smoothable()
        if self.beta0 is not None:
            return self
        curvature = objective.curvature(problem.n_objectives)
        diameter = problem.diameter_of(curvature > 0.0)
        width = self.best(objective, problem.n_objectives, diameter, usual(problem))
        return replace(self, beta0=width)

    @staticmethod
    def best(objective: Concave, n: int, diameter: float, usual: Vector | float = 0.5) -> float:
        """D sqrt(k/S), the width that minimises k D^2/beta0 + S beta0 in the regret bound.

        k is the largest curvature of the smoothed expression, S the sum of the squared Lipschitz
        constants of its leaves, D the diameter of the coordinates that need smoothing: D_K/L for
        one function of all rewards, D_items/(beta L_items) for a two-sided one.

        Welfare and Nash are steep, or have no Lipschitz constant, only where a coordinate is far
        below its `usual` value u: the mean exposure k/m of an item, the middle of the range of a
        reward. They count with the constant c D sqrt(k) |phi''(u)| if that is smaller (c is their
        multiple, phi the function of one coordinate). Alone they then have the width
        1/(c |phi''(u)|), at which the smoothing bends as much as f itself does at u: c beta0 is
        u^2 for Nash, u^(2 - alpha)/(alpha (1 - alpha)) for Welfare. From the first round on it
        changes z by no more than its own size, and by a share that falls as 1/sqrt t.
        """
        curved = float(objective.curvature(n).max())
        point = np.broadcast_to(usual, (n,))
        slopes = 0.0
        for scale, leaf, matrix in objective.split(n):
            size = int(matrix.shape[0])
            if leaf.curvature(size).any():
                bend = diameter * np.sqrt(curved) * leaf.bend(matrix @ point)
                slopes += (scale * min(leaf.lipschitz(size), bend)) ** 2
        if not (np.isfinite(slopes) and slopes > 0.0 and curved > 0.0):
            return diameter or 1.0
        return diameter * float(np.sqrt(curved / slopes))

    def step(self, objective: Concave, n: int, t: int) -> float:
        """b_t. Where beta0 is open and no problem is known, rewards are taken to lie in [0, 1]."""
        return shrink(self._width(objective, n), t, self.horizon)

    def widths(self, objective: Concave, n: int, times: IntVector) -> Vector:
        """`step` at many times at once."""
        return shrunk(self._width(objective, n), times, self.horizon)

    def _width(self, objective: Concave, n: int) -> float:
        if self.beta0 is not None:
            return self.beta0
        used = np.count_nonzero(objective.curvature(n))
        return self.best(objective, n, float(np.sqrt(used)))

    def value(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> float:
        """f_t(z)."""
        return objective.envelope(z, self.step(objective, len(z), t))

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """The gradient of f_t at z."""
        return objective.envelope_gradient(z, self.step(objective, len(z), t))

    def direction(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None
    ) -> Vector:
        """`gradient` at a trusted z, of an objective that `bind` has seen."""
        return objective._smoothed(z, self.step(objective, z.size, t))

    def mix(self, t: int) -> float:
        """The weight of the newest gradient in the direction: all of it."""
        return 1.0

    def beta_0(self, objective: Concave, n: int) -> float:
        """f_t is sqrt(t + 1)/beta_0-smooth: beta0, divided by the curvature of the expression."""
        bend = float(objective.curvature(n).max()) / self.step(objective, n, 0)
        for _, leaf, size in objective.leaves(n):
            if not leaf.has_prox:
                # A smooth function that is left as it is bends as much as it does.
                bend += leaf.smoothness(size)
        return 1.0 / bend if bend > 0.0 else np.inf

    def m_1(self, objective: Concave, n: int) -> float:
        """M_1 with |f_t - f_(t-1)| <= M_1/(t sqrt t): half of M_2 (the paper has M_2)."""
        return 0.5 * self.m_2(objective, n)

    def m_2(self, objective: Concave, n: int) -> float:
        """M_2 with |f_t - f| <= M_2/sqrt t: beta0/2 times the leaves' squared Lipschitz sum.

        With a horizon the width is the same at all t, and |f_t - f| <= M_2 without the root.
        """
        slopes = sum((c * leaf.lipschitz(size)) ** 2 for c, leaf, size in objective.leaves(n))
        return 0.5 * self.step(objective, n, 0) * slopes

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(beta0=0.01), cls(beta0=1.0, horizon=1000)


def usual(problem: Problem) -> Vector:
    """The mean exposure of an item, if all slots are exposed; the middle of other ranges."""
    middle: Vector = 0.5 * (problem.low + problem.high)
    if problem.n_items and problem.n_slots:
        middle[: problem.n_items] = problem.n_slots / problem.n_items
    return middle
