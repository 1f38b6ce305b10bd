"""`SquareCB`: probabilities inversely proportional to the estimated gaps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np

from fairwolfe.bandits.choosing import CHOOSE, LinearBandit
from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.problem import Problem, level, number_where, whole_number
from fairwolfe.errors import OutsideAssumptions
from fairwolfe.kernels.compile import Kernel, kernel, part
from fairwolfe.kernels.linalg import UPDATES, predictions, scores
from fairwolfe.kernels.selection import argmax, draw
from fairwolfe.oracles import OnlineGradient, Regression, Ridge
from fairwolfe.oracles.linear_state import regression_regret

__all__ = ["SquareCB"]

_HEAD = 9  # numbers before the ranges in the params of the rule


@kernel
def gap_probabilities(values: Vector, gamma: float, out: Vector) -> int:
    """out[a] = 1/(K + gamma (best - value_a)), the rest to the best arm, which is returned.

    values, out (arms,).
    """
    best = argmax(values)
    rest = 1.0
    for a in range(values.size):
        if a != best:
            out[a] = 1.0 / (values.size + gamma * (values[best] - values[a]))
            rest -= out[a]
    out[best] = rest
    return best


@kernel
def theorem_rate(params: Vector, n_arms: int, t: float) -> float:
    """gamma_t of the theorem: fixed for a horizon, or the anytime preset.

    params: as in `squarecb_theorem`.
    """
    slope, diameter, delta, horizon = params[1], params[2], params[3], params[4]
    s = horizon if horizon > 0.0 else t
    regret = regression_regret(params[5], params[6], params[7], params[8], s)
    if horizon > 0.0:
        noise = 16.0 * slope**2 * diameter**2 * np.log(2.0 / delta)
        return float(np.sqrt(8.0 * n_arms * s / (2.0 * slope**2 * regret + noise)))
    noise = 8.0 * diameter**2 * np.log(4.0 * s * s / delta)
    return float(2.0 / slope * np.sqrt(s * n_arms / (regret + noise)))


@kernel
def sample(gamma: float, draws: Vector, out: Vector, report: Vector) -> int:
    """An arm from the scores, and its probability. draws (1,), out (arms,), report (1,)."""
    probabilities = np.empty(out.size)
    gap_probabilities(out, gamma, probabilities)
    arm = draw(probabilities, draws[0])
    report[0] = probabilities[arm]
    return arm


@kernel(signature=CHOOSE)
def squarecb(
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
    """gamma_t = gamma0 sqrt t; params: gamma0.

    direction (rewards,), theta (blocks, rewards, features), features (arms or 1, features),
    counters (2 or 5,), draws (1,), out (arms,), report (1,). inverse: not used.
    """
    scores(direction, theta, features, per_arm, out)
    gamma = params[0] * np.sqrt(counters[UPDATES] + 1.0)
    return sample(gamma, draws, out, report)


@kernel(signature=CHOOSE)
def squarecb_theorem(
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
    """params: 0, L, D_K, delta, horizon (0: none), the four numbers of R(t); lows; highs.

    The theorem's predictions are projected on the set of possible rewards.

    direction (rewards,), theta (blocks, rewards, features), features (arms or 1, features),
    counters (2 or 5,), draws (1,), out (arms,), report (1,). inverse: not used.
    """
    n = direction.size
    low, high = part(params, _HEAD, n), part(params, _HEAD + n, n)
    rewards = np.empty((out.size, n))
    predictions(theta, features, per_arm, low, high, rewards)
    for a in range(out.size):
        total = 0.0
        for i in range(n):
            total += direction[i] * rewards[a, i]
        out[a] = total
    gamma = theorem_rate(params, out.size, counters[UPDATES] + 1.0)
    return sample(gamma, draws, out, report)


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
    oracle: Regression | None = None
    horizon: int | None = None
    delta: float = 0.05
    lipschitz: float | None = None

    uniforms = 1

    @property
    def choose(self) -> Kernel[..., int]:  # type: ignore[override]
        """The rule with the gamma that was asked for."""
        return squarecb_theorem if self.gamma0 is None else squarecb

    def __post_init__(self) -> None:
        if self.gamma0 is not None:
            allowed = "a positive number, or None for the theorem's"
            number_where("gamma0", self.gamma0, lambda gamma: gamma > 0.0, allowed)
        if self.horizon is not None:
            whole_number("horizon", self.horizon)
        level("delta", self.delta)

    @cached_property
    def regression(self) -> Regression:
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
