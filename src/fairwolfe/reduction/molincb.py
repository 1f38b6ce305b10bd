"""`MOLinCB`: the baseline without a guarantee, gradient ascent on a mixture of arms each round."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from fairwolfe.bandits.base import BanditState, LinearBandit
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem, real_number, whole_number
from fairwolfe.core.protocols import LinearRule
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.mixtures import ascend_arms
from fairwolfe.objectives import Concave, GeneralizedGini, GiniWelfare
from fairwolfe.oracles import Ridge
from fairwolfe.oracles.linear_regression import Estimates
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.smoothing import Identity

_MOST_STEPS = 100_000  # each a gradient of f, in every round


@dataclass(frozen=True)
class MixtureAscent(LinearBandit):
    """The rule as a base that uses no direction."""

    objective: Concave
    ridge: float
    steps: int
    rate: float

    rule_name = "mixture_ascent"
    needs_direction = False

    def rule(self, problem: Problem) -> LinearRule | None:
        """What the compiled engine needs: the gradient of f, besides."""
        found = super().rule(problem)
        return found and found._replace(ascent=self._ascent(problem))

    def choose(
        self, state: BanditState, learnt: Estimates, direction: Vector, draws: Vector
    ) -> tuple[int, float, Vector]:
        """The arm of largest weight in the mixture, 1, and the mixture."""
        theta, features, per_arm = learnt.theta, learnt.features, learnt.per_arm
        tree, steps, rate = self._ascent(state.problem)
        mixture = np.empty(len(theta) if per_arm else len(features))
        return ascend_arms(tree, theta, features, per_arm, steps, rate, mixture), 1.0, mixture

    def _ascent(self, problem: Problem) -> tuple[Any, int, float]:
        """The compiled gradient, the number of steps and their size."""
        n = problem.n_objectives
        return self.objective.bind(problem).tree(n), self.steps, self.rate


@dataclass(frozen=True)
class MOLinCB(FrankWolfe):
    """Each round: ascend f(M w) over mixtures w of the arms, play the arm of largest weight.

    M holds the estimated reward vectors of the arms (one ridge regression for all rewards). The
    mixture starts uniform, takes `steps` supergradient steps of size `rate`, and is projected on
    the simplex after each. Nothing is explored on purpose, history plays no part but through the
    estimates, and no guarantee is known.

    Reference: Mehrotra et al. (2020), as used in the paper's experiments; see docs/bandits.md.

    >>> problem = Problem.arms(2, {"clicks": (0, 1), "saves": (0, 1)})
    >>> policy = MOLinCB(GiniWelfare())
    >>> policy.act(policy.init(problem), np.eye(2), np.random.default_rng(0)).action
    0
    """

    base: Any = field(init=False, repr=False, compare=False)
    smoothing: Any = field(default=Identity(), init=False, repr=False, compare=False)
    memory: Any = field(default=None, init=False, repr=False, compare=False)
    iterate: Any = field(default="observed", init=False, repr=False, compare=False)
    start: Any = field(default=None, init=False, repr=False, compare=False)
    anticipate: Any = field(default=False, init=False, repr=False, compare=False)
    ridge: float = field(default=0.1, kw_only=True)
    steps: int = field(default=10, kw_only=True)
    rate: float = field(default=1.0, kw_only=True)

    def __post_init__(self) -> None:
        steps, rate = whole_number("steps", self.steps), real_number("rate", self.rate)
        if steps > _MOST_STEPS or not 0.0 < rate < np.inf:
            raise InvalidInput(
                f"MOLinCB has steps={self.steps!r:.80} and rate={self.rate!r:.80}; give 1 to "
                f"{_MOST_STEPS:,} steps and a positive rate"
            )
        Ridge(self.ridge)
        rule = MixtureAscent(self.objective, self.ridge, self.steps, self.rate)
        object.__setattr__(self, "base", rule)
        super().__post_init__()
        if self.objective.constrained:
            raise InvalidInput(
                f"MOLinCB follows supergradients of {self.objective}, which has none beyond its "
                "hard constraints; give these a penalty, or use FrankWolfe"
            )

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(GeneralizedGini((1.0, 0.5, 0.25))), cls(GiniWelfare(), steps=3, rate=0.5)
