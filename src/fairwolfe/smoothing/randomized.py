"""`Randomized`: the mean of f over a shrinking ball, for functions without a proximal map."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import IntVector, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels.compile import kernel
from fairwolfe.kernels.linalg import add_scaled
from fairwolfe.objectives import Concave
from fairwolfe.objectives.concave import call_gradient
from fairwolfe.smoothing.schedule import checked_horizon, checked_width, shrink, shrunk

__all__ = ["Randomized"]

_MOST = 1_000_000  # samples: all of their draws are in memory at once


@kernel
def in_ball(normals: Vector, z: Vector, radius: float, out: Vector) -> None:
    """A point of the ball around z from n + 2 normal draws.

    The first n coordinates of a uniform point of the sphere in R^(n + 2) are uniform in the ball.

    normals (n + 2,), z, out (n,).
    """
    square = 0.0
    for i in range(normals.size):
        square += normals[i] * normals[i]
    scale = radius / np.sqrt(square)
    for i in range(z.size):
        out[i] = z[i] + scale * normals[i]


@kernel(
    signature="void(int64, float64[::1], float64, float64[:, ::1], float64[::1], float64[::1], "
    "float64[::1], float64[::1], float64[::1])"
)
def sampled(
    address: int,
    z: Vector,
    radius: float,
    normals: Matrix,
    params: Vector,
    work: Vector,
    point: Vector,
    g: Vector,
    out: Vector,
) -> None:
    """Mean of the supergradients at points of the ball, one for each row of normals.

    z, point, g, out (n,), normals (samples, n + 2). params, work: of the gradient at the address.
    """
    for i in range(out.size):
        out[i] = 0.0
    for s in range(normals.shape[0]):
        in_ball(normals[s], z, radius, point)
        call_gradient(address, point, 0.0, params, work, g)
        add_scaled(1.0 / normals.shape[0], g, out)


@dataclass(frozen=True)
class Randomized:
    """f_t(z) = E f(z + r_t xi), xi uniform in the unit ball, r_t = radius / sqrt(t + 1).

    f_t <= f (f is concave), and grad f_t(z) = E grad f(z + r_t xi) is estimated by the mean of
    `n_samples` supergradients. A fixed number of samples alone does not converge: a policy with
    these gradients must follow their running average d_t = (1 - m) d_(t-1) + m g_t with the
    weight m of `mix`, as FrankWolfe does.

    Parameters
    ----------
    radius: at t = 0; None is D^(1/4) D_K for D rewards in a set of diameter D_K
    n_samples: supergradients per call, from 1 to a million
    horizon: a number of rounds T fixes the radius at r_T

    Reference: appendix "Randomized smoothing" of the paper (which prints f <= f_t).

    >>> from fairwolfe.objectives import Linear
    >>> rng = np.random.default_rng(0)
    >>> Randomized().gradient(Linear([1.0, 2.0]), [0.3, 0.4], t=0, rng=rng).round(12).tolist()
    [1.0, 2.0]
    """

    averaged: ClassVar[bool] = True
    """Directions are noisy: their running average is followed, with the weights of `mix`."""

    radius: float | None = None
    n_samples: int = 10
    horizon: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "radius", checked_width("radius", self.radius))
        object.__setattr__(self, "horizon", checked_horizon(self.horizon))
        whole = isinstance(self.n_samples, (int, np.integer))
        if not whole or isinstance(self.n_samples, bool) or not 1 <= self.n_samples <= _MOST:
            raise InvalidInput(
                f"n_samples is {self.n_samples!r:.80}; give a whole number >= 1, at most {_MOST:,}"
            )
        object.__setattr__(self, "n_samples", int(self.n_samples))

    def bind(self, problem: Problem, objective: Concave) -> Randomized:
        """Choose the radius for a problem, if it was left open."""
        self._check(objective)
        if self.radius is not None:
            return self
        return replace(self, radius=problem.n_objectives**0.25 * problem.diameter)

    def width(self, n: int, t: int) -> float:
        """r_t. Where the radius is open and no problem is known, rewards lie in [0, 1]."""
        radius = n**0.75 if self.radius is None else self.radius
        return shrink(radius, t, self.horizon)

    def step(self, objective: Concave, n: int, t: int) -> float:
        """r_t, under the name that all smoothings have for it."""
        return self.width(n, t)

    def widths(self, objective: Concave, n: int, times: IntVector) -> Vector:
        """r_t at many times at once."""
        return shrunk(n**0.75 if self.radius is None else self.radius, times, self.horizon)

    def direction(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None
    ) -> Vector:
        """`gradient`: drawing costs more than checking."""
        return self.gradient(objective, z, t, rng)

    def normals(self, objective: Concave, n: int, rng: np.random.Generator | None) -> Matrix:
        """What one direction draws, (n_samples, n + 2)."""
        if rng is None:
            raise InvalidInput("Randomized smoothing draws samples; pass rng, a numpy Generator")
        self._check(objective)
        return rng.standard_normal((self.n_samples, n + 2))

    def _check(self, objective: Concave) -> None:
        if not objective.everywhere:
            raise InvalidInput(
                f"Randomized smoothing evaluates {objective} all around z, also outside its "
                "domain; use Moreau()"
            )

    def value(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> float:
        """An unbiased estimate of f_t(z) by n_samples values."""
        point = objective._checked(z)
        normals = self.normals(objective, point.size, rng)
        radius = self.width(point.size, t)
        near = np.empty(point.size)
        total = 0.0
        for row in normals:
            in_ball(row, point, radius, near)
            total += objective._value(near)
        return total / self.n_samples

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """An unbiased estimate of the gradient of f_t at z."""
        point = objective._checked(z)
        normals = self.normals(objective, point.size, rng)
        program = objective.program(point.size)
        near, g, out = np.empty((3, point.size))
        radius = self.width(point.size, t)
        work = program.work()
        sampled(program.address, point, radius, normals, program.params, work, near, g, out)
        program.raise_failures()
        return out

    def mix(self, t: int) -> float:
        """The weight of the newest gradient in the running direction: 4/(t + 8)^(2/3)."""
        return float(4.0 / (t + 8.0) ** (2.0 / 3.0))

    def beta_0(self, objective: Concave, n: int) -> float:
        """f_t is sqrt(t + 1)/beta_0-smooth: radius/(L sqrt n)."""
        slope = objective.lipschitz(n)
        return self.width(n, 0) / (slope * np.sqrt(n)) if slope > 0.0 else np.inf

    def m_1(self, objective: Concave, n: int) -> float:
        """M_1 with |f_t - f_(t-1)| <= M_1/(t sqrt t): L radius/2."""
        return 0.5 * self.m_2(objective, n)

    def m_2(self, objective: Concave, n: int) -> float:
        """M_2 with |f_t - f| <= M_2/sqrt t: L radius."""
        return objective.lipschitz(n) * self.width(n, 0)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(radius=0.1, n_samples=3), cls(radius=1.0, horizon=100)
