"""`Fixed`: always the same arm; what a system does before it learns, and a baseline to beat."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from fairwolfe.bandits.choosing import LinearBandit
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem, whole_number
from fairwolfe.core.protocols import Oracle
from fairwolfe.errors import InvalidInput
from fairwolfe.oracles import Ridge

__all__ = ["Fixed"]


@dataclass(frozen=True)
class Fixed(LinearBandit):
    """P(arm) = 1: the arm of this number, the last one where a context has fewer.

    Where only some arms of a context may be chosen, it is the number among these. It still learns,
    so that its data can be used. `FrankWolfe(objective, Fixed(0))` is a baseline for `Guarded`.

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = Fixed(1)
    >>> base.act(base.init(problem), np.eye(2), np.ones(1), np.random.default_rng(0)).action
    1
    """

    arm: int = 0

    rule_name = "fixed"
    needs_direction = False

    def __post_init__(self) -> None:
        if whole_number("arm", self.arm, 0) >= _MOST_ARMS:
            raise InvalidInput(f"arm is {self.arm}; give the number of an arm, from 0 on")

    @cached_property
    def regression(self) -> Oracle:
        """Ridge with penalty 1."""
        return Ridge()

    def rule_params(self, problem: Problem) -> Vector:
        if problem.n_arms is not None and self.arm >= problem.n_arms:
            raise InvalidInput(
                f"arm is {self.arm}; the problem has {problem.n_arms} arms, so give 0 to "
                f"{problem.n_arms - 1}"
            )
        return np.array([float(self.arm)])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(2)


_MOST_ARMS = 2**31  # as a float it is still a whole number
