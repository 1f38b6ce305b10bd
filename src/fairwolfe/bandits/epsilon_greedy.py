"""`EpsilonGreedy`: the best estimate, and from time to time any arm."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

import numpy as np

from fairwolfe.bandits.choosing import LinearBandit
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.core.protocols import Oracle
from fairwolfe.oracles import OnlineGradient, Ridge

__all__ = ["EpsilonGreedy"]


@dataclass(frozen=True)
class EpsilonGreedy(LinearBandit):
    """The arm of largest estimated <g, r> with probability 1 - epsilon, else any, uniformly.

    A constant epsilon has no regret guarantee: it keeps paying for exploration. It is simple and
    often good, as in the paper's appendix (epsilon = 0.01).

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = EpsilonGreedy(0.1)
    >>> choice = base.act(base.init(problem), np.eye(2), np.ones(1), np.random.default_rng(0))
    >>> choice.action, round(choice.probability, 6)
    (0, 0.95)
    """

    epsilon: float
    oracle: Oracle | None = field(default=None, kw_only=True)

    rule_name = "epsilon_greedy"
    uniforms = 1

    def __post_init__(self) -> None:
        number_where("epsilon", self.epsilon, lambda x: 0.0 <= x <= 1.0, "a number from 0 to 1")

    @cached_property
    def regression(self) -> Oracle:
        """The oracle, `Ridge()` unless one was given."""
        return Ridge() if self.oracle is None else self.oracle

    def rule_params(self, problem: Problem) -> Vector:
        return np.array([self.epsilon])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(0.01), cls(0.3, oracle=OnlineGradient()), cls(0.0, oracle=Ridge(0.1))
