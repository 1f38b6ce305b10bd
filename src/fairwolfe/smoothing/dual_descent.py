"""`DualDescent`: the smoothing of f seen from its dual, as dual averaging with a mirror map."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem, one_of
from fairwolfe.errors import InvalidInput
from fairwolfe.kernels import gradients
from fairwolfe.objectives import Concave
from fairwolfe.smoothing.smoothings import Exact, Moreau, checked_width, shrink

Mirror = Literal["euclid", "entropy"]


@dataclass(frozen=True)
class DualDescent(Exact):
    """The direction that regret minimisation in the dual follows, by dual averaging (FTRL).

    f(z) = min_theta <theta, z> + h(theta) over the supergradients theta of f. The direction is

        argmin_theta <theta, z> + h(theta) + b_t psi(theta),   b_t = rate/sqrt(t + 1),

    a function of z and t, so that late answers in any order give what prompt ones give.

    Parameters
    ----------
    mirror: "euclid", psi = |theta|^2/2, *is* `Moreau(rate)`. "entropy", psi the entropy of theta
        relative to equal shares, for generalised Gini functions with weights >= 0, leaf by leaf:
        theta_i ~ exp(-z_i/b_t) for `Minimum`, the entropic projection on the permutahedron of the
        weights for the others. Its bound grows with ln D where that of Moreau grows with D
    rate: the width at t = 0; None balances the two errors that it trades

    Reference: Agrawal and Devanur (2014); Blondel et al. (2020) for the projection;
    docs/objectives.md.

    >>> from fairwolfe.objectives import Minimum
    >>> DualDescent("entropy", 1.0).gradient(Minimum(), [0.0, np.log(3.0)], t=0).tolist()
    [0.75, 0.25]
    """

    mirror: Mirror = "euclid"
    rate: float | None = None

    def __post_init__(self) -> None:
        one_of("mirror", self.mirror, ("euclid", "entropy"))
        object.__setattr__(self, "rate", checked_width("rate", self.rate))

    def bind(self, problem: Problem, objective: Concave) -> Moreau | DualDescent:
        """Choose the rate for a problem, if it was left open; `objective` is bound to it."""
        if self.mirror == "euclid":
            return Moreau(self.rate).bind(problem, objective)
        spread, error = entropic_constants(objective, problem.n_objectives, problem)
        return self if self.rate is not None else replace(self, rate=_best(spread, error))

    def step(self, objective: Concave, n: int, t: int) -> float:
        """b_t. Where the rate is open and no problem is known, rewards are taken from [0, 1]."""
        if self.mirror == "euclid":
            return Moreau(self.rate).step(objective, n, t)
        return shrink(self.rate or _best(*entropic_constants(objective, n)), t, None)

    def value(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> float:
        """f_t(z)."""
        if self.mirror == "euclid":
            return Moreau(self.rate).value(objective, z, t)
        point = objective._checked(z)
        step, total = self.step(objective, point.size, t), 0.0
        for scale, leaf, matrix in _pieces(objective, point.size):
            x = matrix @ point
            if isinstance(leaf, Concave):
                total += scale * leaf._value(x)
                continue
            theta, width = entropic(x, leaf, scale * step), scale * step
            used = theta[theta > 0.0]
            relative = used * x.size / leaf.sum() if used.size else used
            total += scale * float(theta @ x + width * (used @ np.log(relative)))
        return total

    def gradient(
        self, objective: Concave, z: Vector, t: int, rng: np.random.Generator | None = None
    ) -> Vector:
        """The gradient of f_t at z."""
        if self.mirror == "euclid":
            return Moreau(self.rate).gradient(objective, z, t)
        point = objective._checked(z)
        step = self.step(objective, point.size, t)
        g: Vector = self.tree(objective, point.size).gradient(point, step)
        return g

    def tree(self, objective: Concave, n: int) -> gradients.Tree:
        """The direction for n coordinates, as engines call it: a function of z and b_t."""
        pieces = [(*piece, piece[2].T) for piece in _pieces(objective, n)]

        def direction(z: Vector, step: float) -> Vector:
            total = np.zeros(n)
            for scale, leaf, matrix, turned in pieces:
                x = matrix @ z
                linear = isinstance(leaf, Concave)
                g = leaf._smoothed(x, 0.0) if linear else entropic(x, leaf, scale * step)
                total += scale * (turned @ g)
            return total

        return gradients.python(n, direction, takes_step=True)

    def beta_0(self, objective: Concave, n: int) -> float:
        """f_t is sqrt(t + 1)/beta_0-smooth in the 2-norm: the rate, over the largest weight times
        the curvature of the expression.
        """
        if self.mirror == "euclid":
            return Moreau(self.rate).beta_0(objective, n)
        weights = [w[0] for _, w, _ in _pieces(objective, n) if isinstance(w, np.ndarray)]
        bend = max(weights, default=0.0) * float(objective.curvature(n).max())
        return self.step(objective, n, 0) / bend if bend > 0.0 else np.inf

    def m_1(self, objective: Concave, n: int) -> float:
        """M_1 with |f_t - f_(t-1)| <= M_1/(t sqrt t): half of M_2."""
        return 0.5 * self.m_2(objective, n)

    def m_2(self, objective: Concave, n: int) -> float:
        """M_2 with 0 <= f_t - f <= M_2/sqrt t: the rate times the largest entropy."""
        if self.mirror == "euclid":
            return Moreau(self.rate).m_2(objective, n)
        return self.step(objective, n, 0) * entropic_constants(objective, n)[1]

    @classmethod
    def examples(cls) -> tuple[Self, ...]:
        """Instances for the conformance checks."""
        return cls(), cls(rate=0.5), cls("entropy"), cls("entropy", 0.1)


def entropic(z: Vector, weights: Vector, step: float) -> Vector:
    """argmin_theta <theta, z> + step sum_i theta_i ln theta_i over the permutahedron of weights.

    weights (n,): >= 0 and non-increasing; step 0: a supergradient of the generalised Gini function.
    By pooling neighbours of z sorted: theta = exp(gamma_B - z/step) on blocks B whose sums are
    those of the weights, with gamma increasing from block to block. O(n log n).
    """
    order = np.argsort(z, kind="stable")
    theta = np.empty(z.size)
    if step == 0.0:
        theta[order] = weights
        return theta
    s = -z[order] / step  # non-increasing
    if not weights[1:].any():  # the minimum: one block
        soft = np.exp(s - s[0])
        theta[order] = weights[0] * soft / soft.sum()
        return theta
    # A block: its first s, sum of exp(s - that), sum of weights, size; gamma = ln(sum w/sum exp s).
    blocks: list[tuple[float, float, float, int]] = []
    for high, weight in zip(s.tolist(), weights.tolist(), strict=True):
        block, gamma = (high, 1.0, weight, 1), _log(weight) - high
        while blocks:
            first, total, sum_w, size = blocks[-1]
            if _log(sum_w) - first - math.log(total) < gamma:
                break
            blocks.pop()
            total += block[1] * math.exp(block[0] - first)
            block = (first, total, sum_w + block[2], size + block[3])
            gamma = _log(block[2]) - first - math.log(total)
        blocks.append(block)
    start = 0
    for first, total, sum_w, size in blocks:
        here = slice(start, start + size)
        theta[order[here]] = sum_w * np.exp(s[here] - first) / total
        start += size
    return theta


def _log(x: float) -> float:
    return math.log(x) if x > 0.0 else -math.inf


def entropic_constants(
    objective: Concave, n: int, problem: Problem | None = None
) -> tuple[float, float]:
    """Of f_t smoothed by entropy at rate 1: A with f_t(s) >= f_t(z) + <g, s - z> - sqrt(t + 1) A/2
    for all averages s and z, and B with 0 <= f_t - f <= B/sqrt(t + 1).

    A leaf with weights w of sum W, multiple c and map M: W max_j |M_j|(range)^2, since the entropy
    is 1/W-strongly convex in the 1-norm, and c^2 sum_j w_j ln(D w_j/W) <= c^2 W ln D.
    """
    spans = np.ones(n)
    if problem is not None:
        low, high = problem.low, problem.high
        spans = np.maximum(high - low, np.maximum(abs(low), abs(high)))  # averages start from 0
    spread = error = 0.0
    for scale, weights, matrix in _pieces(objective, n):
        if isinstance(weights, Concave) or not weights.any():
            continue
        used, total = weights[weights > 0.0], float(weights.sum())
        spread += total * float((abs(matrix) @ spans).max()) ** 2
        error += scale**2 * float(used @ np.log(used * weights.size / total))
    return spread, error


def _best(spread: float, error: float) -> float:
    """The rate that minimises spread/rate + 2 rate error."""
    return math.sqrt(spread / (2.0 * error)) if spread > 0.0 and error > 0.0 else 1.0


def _pieces(objective: Concave, n: int) -> list[tuple[float, Any, Any]]:
    """Every (multiple, weights of a generalised Gini function or a linear leaf, map)."""
    pieces: list[tuple[float, Any, Any]] = []
    for scale, leaf, matrix in objective.split(n):
        size = int(matrix.shape[0])
        if not leaf.curvature(size).any() and leaf.smoothness(size) == 0.0:
            pieces.append((scale, leaf, matrix))
            continue
        made = getattr(leaf, "weights_for", None)  # of the generalised Gini functions
        weights = None if made is None else made(size)
        if weights is None or weights[-1] < 0.0:
            why = "weights of both signs" if weights is not None else "other supergradients"
            raise InvalidInput(
                f"{leaf} has {why}; mirror='entropy' is for linear functions and generalised Gini "
                "functions whose weights are at least 0, such as Minimum(); use mirror='euclid'"
            )
        pieces.append((scale, weights, matrix))
    return pieces
