"""`Uniform`: any arm, whatever is known; the yardstick every bandit must beat."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from fairwolfe.bandits.choosing import CHOOSE, LinearBandit
from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.kernels.compile import kernel
from fairwolfe.oracles import LinearOracle, Ridge

__all__ = ["Uniform"]


@kernel(signature=CHOOSE)
def uniform_choice(
    direction: Vector,
    theta: Cube,
    inverse: Cube,
    counters: Vector,
    features: Matrix,
    per_arm: bool,
    draws: Vector,
    params: Vector,
    out: Vector,
    report: Vector,
) -> int:
    """draws (1,), out (arms,), report (1,); nothing else is used."""
    arm = min(int(draws[0] * out.size), out.size - 1)
    for a in range(out.size):
        out[a] = 0.0
    report[0] = 1.0 / out.size
    return arm


@dataclass(frozen=True)
class Uniform(LinearBandit):
    """P(a) = 1/K. It still learns, so that its data can be used.

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = Uniform()
    >>> base.act(base.init(problem), np.eye(2), np.ones(1), np.random.default_rng(0)).probability
    0.5
    """

    choose = uniform_choice
    uniforms = 1

    @cached_property
    def regression(self) -> LinearOracle:
        """Ridge with penalty 1."""
        return Ridge()

    def rule_params(self, problem: Problem) -> Vector:
        return np.empty(0)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(),)
