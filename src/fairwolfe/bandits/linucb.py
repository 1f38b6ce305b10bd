"""`LinUCB`: optimism in the face of uncertainty, on one design for all rewards or on g (x) x."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np

from fairwolfe.bandits.choosing import BanditState, LinearBandit
from fairwolfe.bandits.optimism import Exploration, exploration_number, shared_doubt
from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem, level, one_of
from fairwolfe.core.protocols import Oracle
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.oracles import Ridge
from fairwolfe.oracles.linear_state import parameter_norms

__all__ = ["LinUCB"]


@dataclass(frozen=True, kw_only=True)
class LinUCB(LinearBandit):
    """The arm of largest estimate plus confidence width, in one of two models.

    *shared* (the paper's experiments): one d x d design for D rewards, the arm of largest
    <g, theta x> + exploration (sum_i |g_i| alpha_i) |x|_{V^-1}, with
    alpha_i = R_i sqrt(2 ln(1/delta_1) + ln(det V/det V_0)) + sqrt(ridge) D_theta_i,
    delta_1 = delta/(2 D), R_i half the range of reward i (or the problem's `noise`).

    *extended* (the paper's algorithm and theorem): <g, r> is regressed on g (x) x, dD features,
    with R = L D_K/2, delta_1 = delta/2 and D_theta of all parameters together. Costs (dD)^2 a
    round, and its bound is worse by about a factor D.

    `exploration="pointwise"`: the bonus of reward i is .5 sqrt(2 ln(1 + d sqrt t)) sd_i w
    + (high_i - low_i) w^2/(1 + w^2), w = |x|_{V^-1}, d parameters, t - 1 observations, sd_i the
    standard deviation that the reward can have at its estimate. It is for one arm in one direction,
    without a guarantee; live numbers keep the theory's.

    Deterministic: the probability of the arm is 1.

    Parameters
    ----------
    exploration: multiplies the bonus, 1 = theory (the paper's epsilon is its square); or
        "pointwise"
    ridge: penalty of the regression, > 0
    delta: the confidence level delta' of the theorem, in (0, 1)
    model: "shared" or "extended"
    lipschitz: L of the objective, for the extended model; left None, FrankWolfe puts it

    Reference: Sec. 3.2 and appendix "FW-LinUCB" of the paper; docs/bandits.md.

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = LinUCB()
    >>> state = base.init(problem)
    >>> base.act(state, [[1.0, 0.0], [0.0, 0.5]], np.ones(1), np.random.default_rng(0)).action
    0
    """

    exploration: Exploration = 1.0
    ridge: float = 1.0
    delta: float = 0.05
    model: Literal["shared", "extended"] = "shared"
    lipschitz: float | None = None

    def __post_init__(self) -> None:
        exploration_number(self.exploration)
        level("delta", self.delta)
        one_of("model", self.model, ("shared", "extended"))
        Ridge(self.ridge)

    @property
    def rule_name(self) -> str:  # type: ignore[override]
        """The rule of the model."""
        return "linucb_extended" if self.extended else "linucb"

    @cached_property
    def extended(self) -> bool:  # type: ignore[override]
        """Whether the direction is part of what is learnt."""
        return self.model == "extended"

    @cached_property
    def regression(self) -> Oracle:
        """Ridge: LinUCB needs its confidence widths."""
        return Ridge(self.ridge)

    def tuned(self, lipschitz: float) -> LinUCB:
        """The same with L filled in, if it is needed and open."""
        open_ = self.extended and self.lipschitz is None
        return replace(self, lipschitz=lipschitz) if open_ else self

    def init(self, problem: Problem) -> BanditState:
        """Validate and allocate."""
        if not self.extended:
            return super().init(problem)
        if problem.n_arms is not None:
            raise InvalidInput(
                "the extended model has one design for all arms; use model='shared' with PerArm "
                "contexts"
            )
        size = problem.n_objectives * problem.dimension
        ridge = Ridge(self.ridge)
        return BanditState(problem, self.rule_params(problem), ridge.allocate(1, 1, size))

    def rule_params(self, problem: Problem) -> Vector:
        exploration = exploration_number(self.exploration)
        if exploration < 0.0 and not self.extended:
            # Those of all arms, also where only some of them may be chosen.
            exploration *= (problem.n_arms or 1) * problem.dimension
        params = self._params(problem, exploration)
        return np.concatenate([params, problem.low, problem.high])

    def doubt(self, problem: Problem) -> Vector:
        """The params of the rule with the whole bonus, whatever the exploration."""
        return self._params(problem, 1.0)

    def _params(self, problem: Problem, exploration: float) -> Vector:
        if not self.extended:
            return shared_doubt(problem, self.ridge, self.delta, exploration)
        noise, level = self._extended_noise(problem), 2.0 * math.log(2.0 / self.delta)
        prior = math.sqrt(self.ridge) * float(np.linalg.norm(parameter_norms(problem)))
        return np.array([exploration, level, noise, prior])

    def _extended_noise(self, problem: Problem) -> float:
        if problem.noise is not None:
            return problem.noise
        if self.lipschitz is None or not math.isfinite(self.lipschitz):
            raise OutsideAssumptions(
                f"the extended LinUCB needs a Lipschitz constant of f, here {self.lipschitz}; use "
                "model='shared', or give the problem a noise"
            )
        return self.lipschitz * problem.diameter / 2.0

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        extended: Any = {"model": "extended", "lipschitz": 1.0}
        pointwise: Any = {"exploration": "pointwise"}
        few = cls(), cls(exploration=0.1, ridge=0.1), cls(**extended)
        return *few, cls(**pointwise), cls(**extended, **pointwise)
