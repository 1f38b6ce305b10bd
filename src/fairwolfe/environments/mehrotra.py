"""`Mehrotra`: the paper's synthetic world of music recommendation, with its exact optimum."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Self

import numpy as np
from scipy.special import log_ndtr

from fairwolfe.core.arrays import Cube, IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem, whole_number
from fairwolfe.environments.world import ArmsWorld, check_fields, direction_of
from fairwolfe.kernels.worlds import CompiledArmWorld
from fairwolfe.objectives import GeneralizedGini


@cache
def largest_of_normals(n: int) -> float:
    """e_n, the mean of the largest of n standard normals: int x n phi(x) Phi(x)^(n-1) dx.

    The integrand is analytic and dies like a Gaussian, so the trapezoidal rule converges faster
    than any power of its step.

    >>> round(largest_of_normals(50), 8)
    2.24907363
    """
    x, step = np.linspace(-40.0, 40.0, 16_001, retstep=True)
    log_density = math.log(n) - 0.5 * (x * x + math.log(2.0 * math.pi)) + (n - 1) * log_ndtr(x)
    return float(step * (x @ np.exp(log_density)))


@dataclass(frozen=True)
class Mehrotra(ArmsWorld[Matrix]):
    """Linear rewards of Gaussian features: the multi-objective world of the paper's experiments.

    A world is theta (n_objectives, n_features), uniform in [0, 1]. Every entry of the features x
    of an arm is N(1/d, 1/d^2); the rewards of the arm are N(theta x, 0.01 (theta x)^2), coordinate
    by coordinate.

    The set of expected rewards of stationary policies is S = theta (1 + e_K Ball)/d, K arms, with
    e_K the mean of the largest of K standard normals: `support` is exact. Rewards are Gaussian,
    so no compact set holds them and no regret bound applies; the range (0, 1) in the problem is a
    scale, which gives LinUCB a noise of 1/2, and D_theta = 1, as in the experiments.

    Parameters
    ----------
    n_arms: K >= 1; the paper has 50 and 200
    n_objectives: D >= 1; the paper has 5 and 20
    n_features: d >= 1; the paper has 10

    Reference: appendix "Multi-armed CBCR" of the paper, "Environments"; Mehrotra et al. (2020),
    appendix A.

    >>> environment = Mehrotra(n_arms=50, n_objectives=5)
    >>> theta = environment.init(np.random.default_rng(0))
    >>> value, average = environment.support(theta, np.ones(5))
    >>> round(value, 4), round(environment.objective().value(average), 4)
    (4.5782, 1.6699)
    """

    n_arms: int = 50
    n_objectives: int = 5
    n_features: int = 10

    def __post_init__(self) -> None:
        check_fields(self, whole_number, "n_arms", "n_objectives", "n_features")

    @cached_property
    def _problem(self) -> Problem:
        d = self.n_features
        # |x| <= (sqrt d + |normals|)/d, and the norm of d normals exceeds sqrt d + 6 with
        # probability exp(-18): a feature norm that no run will see exceeded.
        norm = max(1.0, (2.0 * math.sqrt(d) + 6.0) / d)
        names = (f"r{i}" for i in range(1, self.n_objectives + 1))
        return Problem.arms(
            d, dict.fromkeys(names, (0.0, 1.0)), feature_norm=norm, parameter_norm=1.0
        )

    def problem(self) -> Problem:
        """Arms with rewards r1, r2, ... of scale 1."""
        return self._problem

    @property
    def bounded(self) -> bool:
        """No: the rewards are Gaussian."""
        return False

    def objective(self) -> GeneralizedGini:
        """The paper's objective here: a generalised Gini function with weights 1, 1/2, 1/4, ..."""
        return GeneralizedGini([0.5**j for j in range(self.n_objectives)])

    def init(self, rng: np.random.Generator) -> Matrix:
        """theta."""
        theta = rng.random((self.n_objectives, self.n_features))
        theta.flags.writeable = False
        return theta

    def draw_contexts(
        self, world: Matrix, rng: np.random.Generator, n: int
    ) -> tuple[Cube, IntVector]:
        """Features (n, n_arms, n_features) from as many standard normals; tags 0."""
        d = self.n_features
        features = rng.standard_normal((n, self.n_arms, d))
        features += 1.0
        features /= d
        return features, np.zeros(n, dtype=np.int64)

    def draw_noise(self, rng: np.random.Generator, n: int) -> Matrix:
        """A standard normal for each reward."""
        return rng.standard_normal((n, self.n_objectives))

    def reward_program(self, world: Matrix) -> CompiledArmWorld:
        """Linear rewards with noise of a tenth of the mean."""
        n, d = world.shape
        return CompiledArmWorld("linear", world.flatten(), n, d, self.n_arms)

    def support(self, world: Matrix, direction: Vector) -> tuple[float, Vector]:
        """h_S(g) = (<g, theta 1> + e_K |theta' g|)/d and where it is attained, exactly.

        The best arm for g has theta' g . x = <g, theta 1>/d + |theta' g|/d times the largest of K
        standard normals, and is symmetric around the direction theta' g otherwise.
        """
        g = direction_of(self.problem(), direction)
        turned = world.T @ g
        norm = float(np.linalg.norm(turned))
        unit = turned / norm if norm > 0.0 else turned
        spread = largest_of_normals(self.n_arms)
        point = world @ (1.0 + spread * unit) / self.n_features
        return float(turned.sum() + spread * norm) / self.n_features, point

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(n_arms=10, n_objectives=3, n_features=4), cls(n_arms=2, n_objectives=6)
