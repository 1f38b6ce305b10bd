"""The smoothings: `Identity`, `Moreau`, `Augmented` and `Randomized`.

Each gives smooth functions f_t, with a width that shrinks like 1/sqrt(t + 1), and the constants of
the regret bound: f_t is sqrt(t + 1)/beta_0-smooth, |f_t - f_(t-1)| <= m_1/(t sqrt t) and
|f_t - f| <= m_2/sqrt t.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import Problem, number_where, whole_number
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import gradients
from fairwolfe.objectives import Concave

_MOST = 1_000_000  # samples: all of their draws are in memory at once


class Exact:
    """A smoothing whose directions are gradients of f_t, not estimates of them."""

    averaged: ClassVar[bool] = False
    """Directions are exact: the newest one is followed."""

    def mix(self, t: int) -> float:
        """The weight of the newest gradient in the direction: all of it."""
        return 1.0


@dataclass(frozen=True)
class Identity(Exact):
    """f_t = f.

    The theorem for smooth f applies; on a function that is not smooth the directions are its
    supergradients and nothing is promised.

    >>> from fairwolfe.objectives import Linear
    >>> Identity().gradient(Linear([1.0, 2.0]), [0.3, 0.4], t=0).tolist()
    [1.0, 2.0]
    """

    def bind(self, problem: Problem, objective: Concave) -> Identity:
        """Nothing depends on the problem."""
        return self

    def value(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> float:
        """f(z)."""
        return objective.value(z)

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """A supergradient of f at z."""
        return objective.gradient(z)

    def step(self, objective: Concave, n: int, t: int) -> float:
        """The width of the envelope: 0 means the function itself."""
        return 0.0

    def beta_0(self, objective: Concave, n: int) -> float:
        """1/C, for a C-smooth f."""
        smoothness = objective.smoothness(n)
        return 1.0 / smoothness if smoothness > 0.0 else np.inf

    def m_1(self, objective: Concave, n: int) -> float:
        """M_1 = 0: the functions do not change."""
        return 0.0

    def m_2(self, objective: Concave, n: int) -> float:
        """M_2 = 0: there is no approximation."""
        return 0.0

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return (cls(),)


class _Envelope(Exact):
    """Smoothing by Moreau envelopes, leaf by leaf."""

    beta0: float | None
    horizon: int | None = None

    def bind(self, problem: Problem, objective: Concave) -> Self:
        """Choose beta0 for a problem, if it was left open; `objective` is bound to it."""
        for _, leaf, _ in objective.leaves(problem.n_objectives):
            leaf._check_smoothable()
        if self.beta0 is not None:
            return self
        diameter = problem.diameter_of(objective.curvature(problem.n_objectives) > 0.0)
        width = self.best(objective, problem.n_objectives, diameter, lambda: usual(problem))
        return replace(self, beta0=width)  # type: ignore[type-var]

    @staticmethod
    def best(
        objective: Concave,
        n: int,
        diameter: float,
        usual: Callable[[], Vector | float] = lambda: 0.5,
    ) -> float:
        """D sqrt(k/S), the width that minimises k D^2/beta0 + S beta0 in the regret bound.

        k is the largest curvature of the smoothed expression, S the sum of the squared Lipschitz
        constants of its leaves, D the diameter of the coordinates that need smoothing: D_K/L for
        one function of all rewards, D_items/(beta L_items) for a two-sided one.

        Welfare and Nash are steep, or have no Lipschitz constant, only where a coordinate is far
        below its `usual` value u: the mean exposure k/m of an item, the middle of the range of a
        reward. They count with the constant c D sqrt(k) |phi''(u)| if that is smaller (c is their
        multiple, phi the function of one coordinate). Alone they then have the width
        1/(c |phi''(u)|), at which the smoothing bends as much as f itself does at u: c beta0 is
        u^2 for Nash, u^(2 - alpha)/(alpha (1 - alpha)) for Welfare. From the first round on it
        changes z by no more than its own size, and by a share that falls as 1/sqrt t.
        """
        curved = float(objective.curvature(n).max())
        leaves: Any = list(objective.leaves(n))
        point: Vector | None = None
        # Others need no map to their coordinates.
        if any(type(leaf).bend is not Concave.bend for _, leaf, _ in leaves):
            leaves = [(scale, leaf, matrix) for scale, leaf, matrix in objective.split(n)]
            point = np.broadcast_to(usual(), (n,))
        slopes = 0.0
        for scale, leaf, of in leaves:
            size = of if point is None else int(of.shape[0])
            if leaf.curvature(size).any():
                bend = np.inf if point is None else leaf.bend(of @ point)
                bend *= diameter * np.sqrt(curved)
                slopes += (scale * min(leaf.lipschitz(size), bend)) ** 2
        if not (np.isfinite(slopes) and slopes > 0.0 and curved > 0.0):
            return diameter or 1.0
        return diameter * float(np.sqrt(curved / slopes))

    def step(self, objective: Concave, n: int, t: int) -> float:
        """b_t. Where beta0 is open and no problem is known, rewards are taken to lie in [0, 1]."""
        return shrink(self._width(objective, n), t, self.horizon)

    def _width(self, objective: Concave, n: int) -> float:
        if self.beta0 is not None:
            return self.beta0
        used = np.count_nonzero(objective.curvature(n))
        return self.best(objective, n, float(np.sqrt(used)))

    def value(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> float:
        """f_t(z)."""
        return objective.envelope(z, self.step(objective, len(z), t))

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """The gradient of f_t at z."""
        return objective.envelope_gradient(z, self.step(objective, len(z), t))

    def beta_0(self, objective: Concave, n: int) -> float:
        """f_t is sqrt(t + 1)/beta_0-smooth: beta0, divided by the curvature of the expression."""
        bend = float(objective.curvature(n).max()) / self.step(objective, n, 0)
        for _, leaf, size in objective.leaves(n):
            if not leaf.has_prox:
                # A smooth function that is left as it is bends as much as it does.
                bend += leaf.smoothness(size)
        return 1.0 / bend if bend > 0.0 else np.inf

    def m_2(self, objective: Concave, n: int) -> float:
        """M_2 with |f_t - f| <= M_2/sqrt t: beta0/2 times the leaves' squared Lipschitz sum.

        With a horizon the width is the same at all t, and |f_t - f| <= M_2 without the root.
        """
        slopes = sum((c * leaf.lipschitz(size)) ** 2 for c, leaf, size in objective.leaves(n))
        return 0.5 * self.step(objective, n, 0) * slopes


@dataclass(frozen=True)
class Moreau(_Envelope):
    """f_t(z) = max_y f(y) - |y - z|^2 / (2 b_t) with b_t = beta0 / sqrt(t + 1).

    f <= f_t, so it is an optimistic approximation. Sums, blocks and maps are smoothed leaf by
    leaf: every expression whose leaves have a proximal map can be smoothed, whether or not it has
    one itself. Deterministic; costs one gradient.

    Parameters
    ----------
    beta0: the width at t = 0. None balances the two errors that it trades, D_K/L for a single
        function of all rewards, and is on the scale of the rewards for Welfare and Nash: see
        `best`. The paper's experiments use 0.01 (arms), 1 (ranking).
    horizon: a number of rounds T fixes the width at b_T from the first round on (the older way of
        smoothing, which needs T in advance).

    Reference: Sec. 3.3 and appendix "Smoothing with the Moreau envelope" of the paper; its
    gradient is (prox - z)/b (the paper prints the opposite sign).

    >>> from fairwolfe.objectives import Minimum
    >>> Moreau(beta0=1.0).gradient(Minimum(), [0.0, 0.5], t=0).tolist()
    [0.75, 0.25]
    """

    beta0: float | None = None
    horizon: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta0", checked_width("beta0", self.beta0))
        object.__setattr__(self, "horizon", _checked_horizon(self.horizon))

    def m_1(self, objective: Concave, n: int) -> float:
        """M_1 with |f_t - f_(t-1)| <= M_1/(t sqrt t): half of M_2 (the paper has M_2)."""
        return 0.5 * self.m_2(objective, n)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(beta0=0.01), cls(beta0=1.0, horizon=1000)


@dataclass(frozen=True)
class Augmented(_Envelope):
    """f_t(z) = max_p f(p) + <y, z - p> - |z - p|^2/(2 b_t), y a running mean of its gradients.

    As y comes close to the gradient in the long run, the error b |g - y|^2/2 of the smoothing falls
    faster than b does. f <= f_t <= f + 2 b L^2, and f_t is as smooth as the Moreau envelope. Leaves
    without kinks are smoothed as by `Moreau`: there a mean of old directions does harm.

    Parameters
    ----------
    beta0: the width at t = 0; None is that of `Moreau`
    weight: of the newest direction in the mean, times 1/(t + 1); from 0, which is `Moreau`, to 4

    Without a state to keep y in, `value` and `gradient` have y = 0: they are those of `Moreau`.

    Reference: docs/constraints.md.

    >>> from fairwolfe.objectives import Minimum
    >>> Augmented(beta0=1.0).gradient(Minimum(), [0.0, 0.5], t=0).tolist()
    [0.75, 0.25]
    """

    beta0: float | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "beta0", checked_width("beta0", self.beta0))
        name, allowed = "the weight of Augmented", "a number from 0 to 4, such as 1"
        weight = number_where(name, self.weight, lambda x: 0.0 <= x <= 4.0, allowed)
        object.__setattr__(self, "weight", weight)

    @staticmethod
    def shifts(leaf: Concave) -> bool:
        """Whether a leaf has kinks and a proximal map: the others are left to `Moreau`."""
        return leaf.has_prox and not leaf.smooth and not leaf.curved

    def m_1(self, objective: Concave, n: int) -> float:
        """M_1 with |f_t - f_(t-1)| <= M_1/(t sqrt t), whatever y is: half of M_2 for the narrower
        width, 2 weight M_2 for the step of y.
        """
        return (0.5 + 2.0 * self.weight) * self.m_2(objective, n)

    def m_2(self, objective: Concave, n: int) -> float:
        """M_2 with |f_t - f| <= M_2/sqrt t, whatever y is: four times that of `Moreau`."""
        return 4.0 * super().m_2(objective, n)

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(beta0=0.5, weight=0.25)


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
        object.__setattr__(self, "horizon", _checked_horizon(self.horizon))
        samples = whole_number("n_samples", self.n_samples)
        if samples > _MOST:
            raise InvalidInput(f"n_samples is {samples}; give a whole number of at most {_MOST:,}")
        object.__setattr__(self, "n_samples", samples)

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
        radius = self.width(point.size, t)
        normals = self.normals(objective, point.size, rng)
        values = (objective._value(in_ball(draws, point, radius)) for draws in normals)
        return sum(values, 0.0) / self.n_samples

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """An unbiased estimate of the gradient of f_t at z."""
        point = objective._checked(z)
        normals = self.normals(objective, point.size, rng)
        radius = self.width(point.size, t)
        tree = objective.borrow_tree(point.size)
        g: Vector = gradients.sampled_gradient(tree, point, radius, normals)
        objective.return_tree(tree)
        return g

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


def in_ball(normals: Vector, z: Vector, radius: float) -> Vector:
    """A point of the ball around z (n,), from normal draws (n + 2,).

    The first n coordinates of a uniform point of the sphere in R^(n + 2) are uniform in the ball.
    """
    square = np.add.accumulate(normals * normals)[-1]  # in order, as kernels/gradients.py adds
    point: Vector = z + radius / np.sqrt(square) * normals[: z.size]
    return point


def usual(problem: Problem) -> Vector:
    """The mean exposure of an item, if all slots are exposed; the middle of other ranges."""
    middle: Vector = 0.5 * (problem.low + problem.high)
    if problem.n_items and problem.n_slots:
        middle[: problem.n_items] = problem.n_slots / problem.n_items
    return middle


def shrink(width: float, t: int, horizon: int | None) -> float:
    """width / sqrt(t + 1) after t rewards; with a horizon, its last value all along."""
    if (type(t) is not int and not isinstance(t, np.integer)) or t < 0:
        raise InvalidInput(f"t is {t!r}; give the number of rewards averaged so far, 0 or more")
    return width / math.sqrt((t if horizon is None else horizon) + 1.0)


def checked_width(name: str, width: float | None) -> float | None:
    """None, or a positive finite number."""
    if width is None:
        return None
    return number_where(
        name, width, lambda x: x > 0.0, "a positive number, or None for the default"
    )


def _checked_horizon(horizon: int | None) -> int | None:
    """None, or a whole number of at least 1."""
    return None if horizon is None else whole_number("horizon", horizon)
