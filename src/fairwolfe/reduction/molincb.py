"""`MOLinCB`: the baseline without a guarantee, gradient ascent on a mixture of arms each round."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np

from fairwolfe.bandits.choosing import CHOOSE, LinearBandit
from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.problem import Problem, real_number, whole_number
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import fma, kernel
from fairwolfe.kernels.linalg import row_products, scores
from fairwolfe.kernels.selection import argmax, project_on_simplex
from fairwolfe.objectives import Concave, GeneralizedGini, GiniWelfare
from fairwolfe.objectives.concave import call_gradient
from fairwolfe.oracles import LinearOracle, Ridge
from fairwolfe.reduction.frank_wolfe import FrankWolfe
from fairwolfe.smoothing import Identity

__all__ = ["MOLinCB", "MixtureAscent"]

_HEAD = 5
_MOST_STEPS = 100_000  # each a gradient of f, in every round


@kernel(signature=CHOOSE)
def mixture_ascent(
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
    """params: steps, rate, address, number of params and scratch of f's gradient; its params.

    theta (blocks, rewards, features), features (arms or 1, features), out (arms,), report (1,).
    direction, inverse, counters, draws: not used.
    """
    n = theta.shape[1]
    address, n_params, n_work = np.int64(params[2]), np.int64(params[3]), np.int64(params[4])
    own, work = params[_HEAD : _HEAD + n_params], np.zeros(n_work)
    point, g, spare = np.empty(n), np.empty(n), np.empty(out.size)
    out[:] = 1.0 / out.size
    for _ in range(np.int64(params[0])):
        mixture_rewards(out, theta, features, per_arm, point)
        call_gradient(address, point, 0.0, own, work, g)
        scores(g, theta, features, per_arm, spare)
        for a in range(out.size):
            out[a] = fma(params[1], spare[a], out[a])
        project_on_simplex(out, spare)
    report[0] = 1.0
    return argmax(out)


@kernel
def mixture_rewards(
    weights: Vector, theta: Cube, features: Matrix, per_arm: bool, out: Vector
) -> None:
    """out = sum_a weights_a theta x_a, the estimated rewards of a mixture of the arms.

    After a projection most weights are 0, so arms are skipped rather than multiplied.

    weights (arms,), theta (blocks, rewards, features), features (arms or 1, features),
    out (rewards,).
    """
    if per_arm:
        own = np.empty(out.size)
        out[:] = 0.0
        for a in range(weights.size):
            if weights[a] > 0.0:
                row_products(theta[a], features[0], own)
                for i in range(out.size):
                    out[i] = fma(weights[a], own[i], out[i])
    else:
        x = np.zeros(features.shape[1])
        for a in range(weights.size):
            if weights[a] > 0.0:
                for j in range(x.size):
                    x[j] = fma(weights[a], features[a, j], x[j])
        row_products(theta[0], x, out)


@dataclass(frozen=True)
class MixtureAscent(LinearBandit):
    """The rule as a base that uses no direction."""

    objective: Concave
    ridge: float
    steps: int
    rate: float

    choose = mixture_ascent
    needs_direction = False

    @cached_property
    def regression(self) -> LinearOracle:
        return Ridge(self.ridge)

    def ascent(self, problem: Problem) -> tuple[Any, int, float]:
        """The compiled gradient, the number of steps and their size."""
        n = problem.n_objectives
        return self.objective.bind(problem).tree(n), self.steps, self.rate

    def rule_params(self, problem: Problem) -> Vector:
        program = self.objective.bind(problem).program(problem.n_objectives)
        head = [self.steps, self.rate, program.address, program.params.size, program.work_size]
        return np.concatenate([head, program.params])


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
