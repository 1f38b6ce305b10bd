"""`Margin`: how far f of what was earned is, at least, above a share of a baseline's f.

All sums are linear in the parameters theta of the rewards, of which only an ellipsoid is known.
With X the sum of the features of the arms that were played, Y that of the arms of the baseline on
the same contexts, after T rounds:

    z = theta X/T          what was earned, on average
    y = theta Y/T          what the baseline would have earned
    w = theta (X - Y)/T    the difference, known well: it is 0 while the baseline plays

The proposition and its proof are in docs/guard.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple, TypeAlias

import numpy as np

from fairwolfe.bandits.optimism import shared_doubt
from fairwolfe.core.arrays import Cube, Matrix, Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.oracles import LinearState, Ridge
from fairwolfe.oracles.linear_state import LOG_DET, radius

__all__ = ["Known", "Margin"]

_MOST_REWARDS = 16  # f is evaluated in all 2^n corners of the ranges, once
_MOST_CORNERS = 4  # rewards up to which all corners of a box are evaluated, in every round
_RIDGE = 0.1  # near the smallest radius for a few features of norm 1 after 10^3 to 10^5 answers
_RHO = 1000.0  # rounds at which the bound on sums of rewards is tightest, about

Box: TypeAlias = tuple[Vector, Vector]
"""The middle and the half widths of a box."""


class Known(NamedTuple):
    """What a guard knows: decisions, answered: how many; earned (n,): the sum of the rewards;
    apart (blocks, features): X - Y; unanswered: the part of X without an answer.
    """

    decisions: float
    answered: float
    earned: Vector
    apart: Matrix
    unanswered: Matrix
    regression: LinearState


@dataclass(frozen=True, eq=False)
class Margin:
    """A lower bound on f(z) - floor - share (f(y) - floor), valid at all times except with
    probability delta.

    objective: f, bound to the problem; finite and at least `floor` in the ranges of the rewards
    """

    objective: Concave
    problem: Problem
    share: float
    delta: float
    floor: float

    def __post_init__(self) -> None:
        n = self.problem.n_objectives
        if n > _MOST_REWARDS:
            raise InvalidInput(
                f"the problem has {n} rewards, and a guard looks at f in all corners of their "
                f"ranges, for at most {_MOST_REWARDS}; aim f at fewer, in a problem without the "
                "others"
            )
        low, high = self.problem.low, self.problem.high
        corners = np.where(_signs(n) < 0.0, low, high)
        with np.errstate(all="ignore"):
            values = np.array([self.objective._value(corner) for corner in corners])
        worst = int(np.where(np.isnan(values), -np.inf, values).argmin())
        least, where = float(values[worst]), corners[worst].tolist()
        if not math.isfinite(least):
            raise InvalidInput(
                f"{self.objective!r:.80} is {least} at {where}, inside the ranges of the rewards, "
                "and a guard needs an f that is finite there; give it an offset above 0, narrower "
                "ranges, or a penalty in place of a hard constraint"
            )
        if least < self.floor - 1e-9 * max(1.0, abs(least)):
            raise InvalidInput(
                f"{self.objective!r:.80} is {least:.6g} at {where}, inside the ranges of the "
                f"rewards, below floor={self.floor:g}, and a share of a negative number promises "
                f"nothing; give floor={_below(least):g}, for f - floor of at least a share of the "
                "baseline's, or another f"
            )

    # --- what is known -------------------------------------------------------------------------

    @cached_property
    def regression(self) -> Ridge:
        """The guard's own, of all rewards on all features: it has widths for every policy."""
        return Ridge(_RIDGE)

    @cached_property
    def doubt(self) -> Vector:
        """Of the parameters, at a third of delta; see `shared_doubt`."""
        return shared_doubt(self.problem, self.regression.ridge, self.delta / 3.0)

    def radii(self, regression: LinearState) -> Vector:
        """alpha_i with |(theta_i - its estimate) x| <= alpha_i |x|_{V^-1}, for all x at all times.

        (n,)
        """
        n, doubt = self.problem.n_objectives, self.doubt
        log_det = regression.counters[LOG_DET]
        alpha: Vector = radius(doubt[2 : 2 + n], doubt[2 + n :], doubt[1], log_det)
        return alpha

    def noise(self, answered: float) -> Vector:
        """How far the sums of so many rewards are from those of their means, at all times.

        It is the radius of a regression on a constant, which has a parameter that is known to be 0:
        with V = rho + n in place of a matrix. (n,)
        """
        total = _RHO + answered
        scales = self.doubt[2 : 2 + self.problem.n_objectives]
        alpha: Vector = radius(scales, 0.0, self.doubt[1], math.log(total / _RHO))
        return math.sqrt(total) * alpha

    def wander(self, t: float) -> float:
        """How far the baseline's average can go from where it is after t rounds, at all later
        times, in units of the range: eps with 6 exp(-1.6 t eps^2) = delta_t, over n rewards.

        delta_t = (delta/3)/(2.5 (t + 1) ln(t + 1)^2), which sums to less than delta/3.
        """
        often = 2.5 * (t + 1) * math.log(t + 1) ** 2
        level = math.log(18.0 * self.problem.n_objectives * often / self.delta)
        return math.sqrt(level / (1.6 * t))

    # --- the bound ----------------------------------------------------------------------------

    def at(self, known: Known) -> float:
        """The bound if one more round is played whatever comes: at least 0 is safe, also for all
        later times at which only the baseline has played since.

        The larger of two, with phi = f - floor and z = y + w. By concavity phi(z) - share phi(y) is
        at least 1/k phi(z + (k - 1) w), k = 1/(1 - share): good while little is known, as phi(y)
        does not matter. And with a tangent phi <= a + <g, .> it is at least phi(z) - <g, z>, a
        constant where f is linear, + <g, (1 - share) z + share w> - share a.
        """
        (z, z_half), (w, w_half) = self._boxes(known)
        if (z_half < 0.0).any():  # what was seen cannot be, by the assumptions
            return -math.inf
        share = self.share
        more = share / (1.0 - share)
        cautious = self._lowest(np.zeros(z.size), z + more * w, z_half + more * w_half)
        if cautious >= 0.0:
            return (1.0 - share) * cautious
        a, g = self._tangent(z - w, z_half + w_half)
        along = g @ ((1.0 - share) * z + share * w)
        along -= abs(g) @ ((1.0 - share) * z_half + share * w_half)
        outright = self._lowest(g, z, z_half) + along - share * a
        return max(float(outright), (1.0 - share) * cautious)

    def _boxes(self, known: Known) -> tuple[Box, Box]:
        """Of z = s + w and of w after one more round, for s the baseline's average then or at any
        later time.
        """
        low, high = self.low, self.high
        span, t = high - low, known.decisions + 1.0
        regression = known.regression
        theta, inverse = regression.theta, regression.inverse
        alpha = self.radii(regression)
        apart, unanswered = known.apart, known.unanswered
        w = _earned(theta, apart) / t
        w_half = (alpha * _norm(inverse, apart) + span) / t
        z, z_half = known.earned + 0.5 * (low + high), self.noise(known.answered) + 0.5 * span
        if known.decisions > known.answered:
            z = z + _earned(theta, unanswered)
            z_half = z_half + alpha * _norm(inverse, unanswered)
        z, z_half = z / t, z_half / t + self.wander(t) * span
        # An average of the baseline is in the ranges; with w added it need not be.
        bottom = np.maximum(low + w - w_half, z - z_half)
        top = np.minimum(high + w + w_half, z + z_half)
        return (0.5 * (bottom + top), 0.5 * (top - bottom)), (w, w_half)

    def _lowest(self, g: Vector, z: Vector, half: Vector) -> float:
        """A lower bound on phi - <g, .> over a box: it is concave, so that corners are enough.

        For many rewards, those of a cross-polytope around the box: e with |e_i| <= h_i is a convex
        combination of +- (h_i/p_i) e_i, with weights p_i = h_i/sum(h).
        """
        value, wide = self.objective._value, float(half.sum())
        if z.size <= _MOST_CORNERS:
            points = z + half * self._corners
            values = np.array([value(p) for p in points])
            return float((values - points @ g).min() - self.floor)
        middle, down = float(value(z) - g @ z), 0.0
        if not math.isfinite(middle):
            return -math.inf
        for i in np.flatnonzero(half):
            ends = z[None].repeat(2, axis=0)
            ends[:, i] += wide, -wide
            lowest = min(float(value(p) - g @ p) for p in ends)
            down += half[i] / wide * min(lowest - middle, 0.0)
        return middle + down - self.floor

    def _tangent(self, s: Vector, half: Vector) -> tuple[float, Vector]:
        """a and g with phi <= a + <g, .> everywhere, close to phi in a box around s: the gradient
        of the envelope of a width that sees the box.
        """
        leaves, n = self._leaves, s.size
        slope = self.objective.lipschitz(n)
        step = float(np.linalg.norm(half)) / slope if 0.0 < slope < math.inf else 0.0
        _, intercept, g = leaves.majorant(*leaves.touch(leaves.matrix @ s, step))
        return intercept - self.floor, g

    @cached_property
    def low(self) -> Vector:
        """Of the rewards."""
        return self.problem.low

    @cached_property
    def high(self) -> Vector:
        """Of the rewards."""
        return self.problem.high

    @cached_property
    def _leaves(self) -> Leaves:
        return Leaves(self.objective, self.problem.n_objectives)

    @cached_property
    def _corners(self) -> Matrix:
        return _signs(min(self.problem.n_objectives, _MOST_CORNERS))


def _signs(n: int) -> Matrix:
    """(2^n, n): all corners of [-1, 1]^n."""
    return np.array(list(product((-1.0, 1.0), repeat=n)))


def _below(value: float) -> float:
    """A round number that is not above a value."""
    return math.floor(100.0 * value) / 100.0


def _earned(theta: Cube, sums: Matrix) -> Vector:
    """theta times a sum of features, block by block: (n,)."""
    earned: Vector = (theta @ sums[:, :, None]).sum(axis=0)[:, 0]
    return earned


def _norm(inverse: Cube, sums: Matrix) -> float:
    """|sum|_{V^-1}, V block-diagonal."""
    square = float(np.einsum("bi,bij,bj->", sums, inverse, sums))
    return math.sqrt(max(square, 0.0))
