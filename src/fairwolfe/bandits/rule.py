"""`Rule`: a bandit in plain Python that chooses from the estimates of a linear regression."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from fairwolfe.bandits.choosing import BanditState, LinearBandit, model_of
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.core.protocols import Oracle
from fairwolfe.core.rules import LinearRule
from fairwolfe.errors import NumericalFailure
from fairwolfe.kernels import rules
from fairwolfe.oracles import Ridge
from fairwolfe.oracles.linear_state import Estimates

__all__ = ["Rule"]


class Rule(LinearBandit):
    """A bandit of one method, `choose_arm`; the regression, agents and simulations are there.

    A subclass is a frozen dataclass, whose fields are its settings. The regression is `Ridge()`;
    override `regression` for another. The compiled engine calls `choose_arm` once a decision, with
    the same numbers as `act` does, so that both make the same decisions. For speed, `choose_arm`
    may be a `scipy.LowLevelCallable` of `fairwolfe.kernels.rules.SIGNATURE`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Optimist(Rule):
    ...     bonus: float = 1.0
    ...
    ...     def choose_arm(self, values, widths, t, uniform):
    ...         return int((values + self.bonus * widths).argmax()), 1.0
    >>> base, problem = Optimist(), Problem.arms(2, {"clicks": (0, 1)})
    >>> base.act(base.init(problem), np.diag([1.0, 2.0]), np.ones(1), np.random.default_rng(0))[:2]
    (1, 1.0)
    """

    rule_name = "python"
    uniforms: ClassVar[int] = 1

    @abstractmethod
    def choose_arm(
        self, values: Vector, widths: Any, t: int, uniform: float
    ) -> tuple[int, float | None]:
        """The arm for the scalar reward <direction, r>, and its probability, None if unknown.

        values (arms,): the estimates of <direction, r>; widths (arms,): |x_a| in the norm of V^-1,
        None where the regression keeps no design; t: how many rewards were learnt; uniform: a
        number in [0, 1), the only chance there is.
        """

    @staticmethod
    def drawn(probabilities: Vector, uniform: float) -> tuple[int, float]:
        """The arm that a uniform number in [0, 1) falls on, and its probability.

        >>> Rule.drawn(np.array([0.2, 0.0, 0.8]), 0.5)
        (2, 0.8)
        """
        arm = int(np.searchsorted(np.cumsum(probabilities), uniform, side="right"))
        if arm == len(probabilities):  # they sum to a little less than 1
            arm = int(np.flatnonzero(probabilities)[-1])
        return arm, float(probabilities[arm])

    @cached_property
    def regression(self) -> Oracle:
        """The oracle."""
        return Ridge()

    def rule_params(self, problem: Problem) -> Vector:
        return np.empty(0)

    def rule(self, problem: Problem) -> LinearRule | None:
        """What the compiled engine needs; None where `choose_arm` does not say all."""
        found = super().rule(problem)
        if found is None or found.uniforms != 1 or self.extended:
            return None
        own = rules.own_rule(self.choose_arm)
        return found._replace(name=own.name, params=own.params, own=own)

    def choose(
        self, state: BanditState, learnt: Estimates, direction: Vector, draws: Vector
    ) -> tuple[int, float, Vector]:
        """What `choose_arm` returns, or raises."""
        own = rules.own_rule(self.choose_arm)
        features, per_arm = learnt.features, learnt.per_arm
        chosen = rules.choose(
            own.name, model_of(learnt), direction, features, per_arm, draws, own.params
        )
        if chosen[0] < 0:
            raise own.failure() or NumericalFailure("the rule chose no arm")
        return chosen

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(),)
