"""The built-in exploration rules over an online regression: `LinUCB`, `SquareCB`, `EpsilonGreedy`,
`Thompson`, and the baselines `Uniform` and `Fixed`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, Self

import numpy as np

from fairwolfe.bandits.base import (
    BanditState,
    Exploration,
    LinearBandit,
    exploration_number,
    shared_doubt,
)
from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Problem, level, number_where, one_of, whole_number
from fairwolfe.core.protocols import Oracle
from fairwolfe.errors import InvalidInput, OutsideAssumptions
from fairwolfe.oracles import OnlineGradient, Ridge
from fairwolfe.oracles.linear_regression import noise_scales, parameter_norms

SCALE = 3.0
"""c of `SquareCB(gamma0="scaled")`."""

_MOST_ARMS = 2**31  # as a float it is still a whole number


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
    exploration: multiplies the bonus, 1 or "theorem" is the theory's (the paper's epsilon is its
        square); or "pointwise"
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

    exploration: Exploration = "pointwise"
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

    def bound_params(self, problem: Problem) -> Vector:
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
        theorem: Any = {"exploration": "theorem"}
        few = cls(), cls(exploration=0.1, ridge=0.1), cls(**extended)
        return *few, cls(**theorem), cls(**extended, **theorem)


@dataclass(frozen=True, kw_only=True)
class SquareCB(LinearBandit):
    """P(a) = 1/(K + gamma_t (best - score_a)) for every arm but the best, which has the rest.

    Explores by an online regression oracle alone, without confidence widths.

    Parameters
    ----------
    gamma0: gamma_t = gamma0 sqrt(t), t - 1 the answered decisions; larger explores less (the paper:
        10^3, 10^4). "theorem" is the theorem's gamma_t, which needs the Lipschitz constant of f
        (FrankWolfe passes it), the problem's ranges and parameter_norm, and an oracle with a regret
        bound. "scaled": gamma_t = SCALE K sqrt(t)/sum_i |g_i| R_i, R_i half the range of reward
        i: neither the units of rewards and of f nor the number of arms matter
    oracle: `Ridge()` unless given; any oracle
    horizon: with gamma0="theorem", the fixed gamma for a known number of rounds, explores less
    delta: the confidence level delta' of the theorem
    lipschitz: L; left None, FrankWolfe puts that of its objective

    Reference: Sec. 3.2 and Algorithm 4 of the paper; see docs/bandits.md.

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = SquareCB(gamma0=100.0)
    >>> choice = base.act(base.init(problem), np.eye(2), np.ones(1), np.random.default_rng(0))
    >>> choice.probability
    0.5
    """

    gamma0: float | Literal["scaled", "theorem"] = "scaled"
    oracle: Oracle | None = None
    horizon: int | None = None
    delta: float = 0.05
    lipschitz: float | None = None

    uniforms = 1

    @property
    def rule_name(self) -> str:  # type: ignore[override]
        """The rule with the gamma that was asked for."""
        return f"squarecb_{self.gamma0}" if isinstance(self.gamma0, str) else "squarecb"

    def __post_init__(self) -> None:
        if not isinstance(self.gamma0, str) or self.gamma0 not in ("scaled", "theorem"):
            allowed = "a positive number, 'scaled' or 'theorem'"
            number_where("gamma0", self.gamma0, lambda gamma: gamma > 0.0, allowed)
        if self.horizon is not None:
            whole_number("horizon", self.horizon)
            if self.gamma0 != "theorem":
                raise InvalidInput(
                    f"horizon is {self.horizon} and gamma0 is {self.gamma0!r}; a horizon belongs "
                    "to gamma0='theorem', so give that or leave the horizon out"
                )
        level("delta", self.delta)

    def tuned(self, lipschitz: float) -> SquareCB:
        """The same with L filled in, if it is needed and open."""
        if self.gamma0 != "theorem" or self.lipschitz is not None:
            return self
        return replace(self, lipschitz=lipschitz)

    def rule_params(self, problem: Problem) -> Vector:
        if self.gamma0 == "scaled":
            return np.concatenate([[SCALE], (problem.high - problem.low) / 2.0])
        if self.gamma0 != "theorem":
            return np.array([float(self.gamma0)])
        if self.lipschitz is None or not (math.isfinite(self.lipschitz) and self.lipschitz > 0.0):
            raise OutsideAssumptions(
                f"the theorem's gamma needs a Lipschitz constant of f, here {self.lipschitz}; give "
                "SquareCB another gamma0 (the paper's experiments use 10^3 and 10^4)"
            )
        bound = self.regression.regret_bound(problem)
        head = [0.0, self.lipschitz, problem.diameter, self.delta, float(self.horizon or 0)]
        return np.concatenate([head, bound, problem.low, problem.high])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        theorem: Any = {"gamma0": "theorem", "lipschitz": 1.0}
        return (
            cls(gamma0=1e3),
            cls(gamma0=30.0, oracle=OnlineGradient()),
            cls(gamma0="scaled"),
            cls(gamma0="scaled", oracle=OnlineGradient()),
            cls(**theorem),
            cls(**theorem, horizon=1000, oracle=Ridge(0.1)),
        )


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

    def rule_params(self, problem: Problem) -> Vector:
        return np.array([self.epsilon])

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(0.01), cls(0.3, oracle=OnlineGradient()), cls(0.0, oracle=Ridge(0.1))


@dataclass(frozen=True, kw_only=True)
class Thompson(LinearBandit):
    """The arm of largest <g, theta~ x>, theta~ drawn from N(theta, scale^2 R_i^2 V^-1) by reward.

    R_i is half the range of reward i, or the problem's `noise`. Randomised without a probability
    in closed form: that of a decision is None, so its log cannot be evaluated off-policy.

    Parameters
    ----------
    scale: multiplies the standard deviation, 1 = Gaussian noise of that size
    ridge: penalty of the regression, > 0

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = Thompson()
    >>> choice = base.act(base.init(problem), np.eye(2), np.ones(1), np.random.default_rng(0))
    >>> choice.action, choice.probability
    (0, None)
    """

    scale: float = 1.0
    ridge: float = 1.0

    rule_name = "thompson"

    def __post_init__(self) -> None:
        number_where("scale", self.scale, lambda scale: scale >= 0.0, "a number of at least 0")
        Ridge(self.ridge)

    def draws(self, rng: np.random.Generator, problem: Problem, n: int) -> Matrix:
        """d normals a stage, block and round."""
        blocks = problem.n_stages * (problem.n_arms or 1)
        return rng.standard_normal((n, blocks * problem.dimension))

    def rule_params(self, problem: Problem) -> Vector:
        return self.scale * noise_scales(problem)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(scale=0.1, ridge=0.1)


@dataclass(frozen=True)
class Uniform(LinearBandit):
    """P(a) = 1/K. It still learns, so that its data can be used.

    >>> problem = Problem.arms(2, {"clicks": (0, 1)})
    >>> base = Uniform()
    >>> base.act(base.init(problem), np.eye(2), np.ones(1), np.random.default_rng(0)).probability
    0.5
    """

    rule_name = "uniform"
    uniforms = 1

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(),)


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
