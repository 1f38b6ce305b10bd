"""`Augmented`: the Moreau envelope, shifted by the running mean of directions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.core.problem import Problem, real_number
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.smoothing.moreau import Moreau
from fairwolfe.smoothing.schedule import checked_width

__all__ = ["Augmented"]


@dataclass(frozen=True)
class Augmented:
    """f_t(z) = max_p f(p) + <y, z - p> - |z - p|^2/(2 b_t), y a running mean of its gradients.

    As y comes close to the gradient in the long run, the error b |g - y|^2/2 of the smoothing falls
    faster than b does. f <= f_t <= f + 2 b L^2, and f_t is as smooth as the Moreau envelope. Leaves
    without kinks are smoothed as by `Moreau`: there a mean of old directions does harm.

    Parameters
    ----------
    beta0: the width at t = 0; None is that of `Moreau`
    weight: of the newest direction in the mean, times 1/(t + 1); from 0, which is `Moreau`, to 4

    Without a state to keep y in, `value` and `gradient` have y = 0: they are those of `Moreau`.

    Reference: docs/constraints.md.

    >>> from fairwolfe.objectives import Minimum
    >>> Augmented(beta0=1.0).gradient(Minimum(), [0.0, 0.5], t=0).tolist()
    [0.75, 0.25]
    """

    averaged: ClassVar[bool] = False
    """Directions are exact: the newest one is followed."""

    beta0: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta0", checked_width("beta0", self.beta0))
        weight = real_number("the weight of Augmented", self.weight)
        if not 0.0 <= weight <= 4.0:
            raise InvalidInput(
                f"the weight of Augmented is {self.weight!r}; give a number from 0 to 4, such as 1"
            )
        object.__setattr__(self, "weight", weight)

    @property
    def _moreau(self) -> Moreau:
        return Moreau(self.beta0)

    @staticmethod
    def shifts(leaf: Concave) -> bool:
        """Whether a leaf has kinks and a proximal map: the others are left to `Moreau`."""
        return leaf.has_prox and not leaf.smooth and not leaf.curved

    def bind(self, problem: Problem, objective: Concave) -> Augmented:
        """Choose beta0 for a problem, if it was left open; `objective` is bound to it."""
        return replace(self, beta0=self._moreau.bind(problem, objective).beta0)

    def step(self, objective: Concave, n: int, t: int) -> float:
        """b_t."""
        return self._moreau.step(objective, n, t)

    def widths(self, objective: Concave, n: int, times: IntVector) -> Vector:
        """`step` at many times at once."""
        return self._moreau.widths(objective, n, times)

    def value(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> float:
        """f_t(z) for y = 0."""
        return self._moreau.value(objective, z, t)

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """The gradient of f_t at z, for y = 0."""
        return self._moreau.gradient(objective, z, t)

    def direction(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None
    ) -> Vector:
        """`gradient` at a trusted z, of an objective that `bind` has seen."""
        return self._moreau.direction(objective, z, t, rng)

    def mix(self, t: int) -> float:
        """The weight of the newest gradient in the direction: all of it."""
        return 1.0

    def beta_0(self, objective: Concave, n: int) -> float:
        """f_t is sqrt(t + 1)/beta_0-smooth, as the Moreau envelope."""
        return self._moreau.beta_0(objective, n)

    def m_1(self, objective: Concave, n: int) -> float:
        """M_1 with |f_t - f_(t-1)| <= M_1/(t sqrt t), whatever y is: half of M_2 for the narrower
        width, 2 weight M_2 for the step of y.
        """
        return (0.5 + 2.0 * self.weight) * self.m_2(objective, n)

    def m_2(self, objective: Concave, n: int) -> float:
        """M_2 with |f_t - f| <= M_2/sqrt t, whatever y is: four times that of `Moreau`."""
        return 4.0 * self._moreau.m_2(objective, n)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(beta0=0.5, weight=0.25)
