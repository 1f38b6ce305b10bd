"""`SquareCB`: probabilities inversely proportional to the estimated gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from fairwolfe.bandits.choosing import LinearBandit
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem, level, number_where, whole_number
from fairwolfe.core.protocols import Oracle
from fairwolfe.errors import OutsideAssumptions
from fairwolfe.oracles import OnlineGradient, Ridge

__all__ = ["SquareCB"]


@dataclass(frozen=True, kw_only=True)
class SquareCB(LinearBandit):
    """P(a) = 1/(K + gamma_t (best - score_a)) for every arm but the best, which has the rest.

    Explores by an online regression oracle alone, without confidence widths.

    Parameters
    ----------
    gamma0: gamma_t = gamma0 sqrt(t), t - 1 the answered decisions; larger explores less (the paper:
        10^3, 10^4). None is the theorem's gamma_t, which needs the Lipschitz constant of f
        (FrankWolfe passes it), the problem's ranges and parameter_norm, and an oracle with a regret
        bound.
    oracle: `Ridge()` unless given; any oracle
    horizon: with gamma0=None, the fixed gamma for a known number of rounds, explores less
    delta: the confidence level delta' of the theorem
    lipschitz: L; left None, FrankWolfe puts that of its objective

    Reference: Sec. 3.2 and Algorithm 4 of the paper; see docs/bandits.md.

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = SquareCB(gamma0=100.0)
    >>> choice = base.act(base.init(problem), np.eye(2), np.ones(1), np.random.default_rng(0))
    >>> choice.probability
    0.5
    """

    gamma0: float | None = None
    oracle: Oracle | None = None
    horizon: int | None = None
    delta: float = 0.05
    lipschitz: float | None = None

    uniforms = 1

    @property
    def rule_name(self) -> str:  # type: ignore[override]
        """The rule with the gamma that was asked for."""
        return "squarecb_theorem" if self.gamma0 is None else "squarecb"

    def __post_init__(self) -> None:
        if self.gamma0 is not None:
            allowed = "a positive number, or None for the theorem's"
            number_where("gamma0", self.gamma0, lambda gamma: gamma > 0.0, allowed)
        if self.horizon is not None:
            whole_number("horizon", self.horizon)
        level("delta", self.delta)

    @cached_property
    def regression(self) -> Oracle:
        """The oracle, `Ridge()` unless one was given."""
        return Ridge() if self.oracle is None else self.oracle

    def tuned(self, lipschitz: float) -> SquareCB:
        """The same with L filled in, if it is needed and open."""
        if self.gamma0 is not None or self.lipschitz is not None:
            return self
        return replace(self, lipschitz=lipschitz)

    def rule_params(self, problem: Problem) -> Vector:
        if self.gamma0 is not None:
            return np.array([float(self.gamma0)])
        if self.lipschitz is None or not (math.isfinite(self.lipschitz) and self.lipschitz > 0.0):
            raise OutsideAssumptions(
                f"the theorem's gamma needs a Lipschitz constant of f, here {self.lipschitz}; give "
                "SquareCB a gamma0 instead (the paper's experiments use 10^3 and 10^4)"
            )
        bound = self.regression.regret_bound(problem)
        head = [0.0, self.lipschitz, problem.diameter, self.delta, float(self.horizon or 0)]
        return np.concatenate([head, bound, problem.low, problem.high])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (
            cls(gamma0=1e3),
            cls(gamma0=30.0, oracle=OnlineGradient()),
            cls(lipschitz=1.0),
            cls(lipschitz=1.0, horizon=1000, oracle=Ridge(0.1)),
        )
