"""`LinUCB`: optimism in the face of uncertainty, one design for all rewards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from fairwolfe._compile import kernel
from fairwolfe.bandits.choosing import CHOOSE, LinearBandit, report_estimate
from fairwolfe.errors import InvalidInput
from fairwolfe.linalg import LOG_DET, scores, widths
from fairwolfe.oracles import LinearOracle, Ridge
from fairwolfe.oracles.linear_state import parameter_norms
from fairwolfe.problem import Problem
from fairwolfe.protocols import Matrix, Vector
from fairwolfe.selection import argmax

__all__ = ["LinUCB"]


@kernel(signature=CHOOSE)
def linucb(
    direction: Vector,
    theta: Matrix,
    inverse: Matrix,
    counters: Vector,
    features: Matrix,
    per_arm: bool,
    uniform: float,
    params: Vector,
    out: Vector,
    report: Vector,
) -> int:
    """params: exploration, 2 ln(1/delta_1); R_i; sqrt(ridge) D_theta_i; lows; highs."""
    n = direction.size
    noise, prior = params[2 : 2 + n], params[2 + n : 2 + 2 * n]
    low, high = params[2 + 2 * n : 2 + 3 * n], params[2 + 3 * n : 2 + 4 * n]
    root = np.sqrt(params[1] + counters[LOG_DET])
    bonus = 0.0  # (sum_i |g_i| alpha_i): optimistic for either sign of g
    for i in range(n):
        bonus += abs(direction[i]) * (noise[i] * root + prior[i])
    bonus *= params[0]
    scores(direction, theta, features, per_arm, out)
    width = np.empty(out.size)
    widths(inverse, features, per_arm, width)
    for a in range(out.size):
        out[a] += bonus * width[a]
    arm = argmax(out)
    report[0] = 1.0
    if report.size > 1:
        report_estimate(theta, features, per_arm, arm, low, high, report)
        for i in range(n):
            alpha = params[0] * (noise[i] * root + prior[i]) * width[arm]
            better = report[1 + i] + (alpha if direction[i] >= 0.0 else -alpha)
            report[1 + i] = min(max(better, low[i]), high[i])
    return arm


@dataclass(frozen=True, kw_only=True)
class LinUCB(LinearBandit):
    """The arm of largest <g, theta x> + exploration (sum_i |g_i| alpha_i) |x|_{V^-1}.

    alpha_i = R_i sqrt(2 ln(1/delta_1) + ln(det V/det V_0)) + sqrt(ridge) D_theta_i with
    delta_1 = delta/(2 D), R_i half the range of reward i (or the problem's `noise`): the shared
    form of the paper's experiments, one d x d design for D rewards, better than the extended one
    of its theorem by about a factor D. Deterministic: the probability of the arm is 1.

    Parameters
    ----------
    exploration: multiplies the bonus, 1 = theory (the paper's epsilon is its square)
    ridge: penalty of the regression, > 0
    delta: the confidence level delta' of the theorem, in (0, 1)

    Reference: Sec. 3.2 and Algorithm 3 of the paper; see docs/bandits.md.

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = LinUCB()
    >>> state = base.init(problem)
    >>> base.act(state, [[1.0, 0.0], [0.0, 0.5]], np.ones(1), np.random.default_rng(0)).action
    0
    """

    exploration: float = 1.0
    ridge: float = 1.0
    delta: float = 0.05

    choose = linucb
    randomized = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.exploration) and self.exploration >= 0.0):
            raise InvalidInput(f"exploration is {self.exploration!r}; give a number of at least 0")
        if not 0.0 < self.delta < 1.0:
            raise InvalidInput(f"delta is {self.delta!r}; give a number between 0 and 1")
        Ridge(self.ridge)

    @cached_property
    def regression(self) -> LinearOracle:
        """Ridge: LinUCB needs its confidence widths."""
        return Ridge(self.ridge)

    def rule_params(self, problem: Problem) -> Vector:
        n = problem.n_objectives
        noise = (problem.high - problem.low) / 2.0
        if problem.noise is not None:
            noise[:] = problem.noise
        prior = math.sqrt(self.ridge) * parameter_norms(problem)
        head = [self.exploration, 2.0 * math.log(2.0 * n / self.delta)]
        return np.concatenate([head, noise, prior, problem.low, problem.high])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(exploration=0.1, ridge=0.1)
