"""Windows of decisions: the sums from which live numbers are made, in constant memory.

A *certificate* is a pair (a, b) with f(s) <= a + <b, s> for every s, so that

    f* <= a + E max_action <b, mean reward of the action in a context>,

an expectation over contexts alone. The lengths of the windows double. The certificate of a window
is the mean of those met on the way through the window before it: fixed before the first decision
that is measured with it, and at least as close as they are on average, the bound being convex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import stdtrit

from fairwolfe._compile import kernel
from fairwolfe.objectives import Concave
from fairwolfe.problem import all_finite
from fairwolfe.protocols import Vector
from fairwolfe.restoring import require, require_counts

__all__ = ["Window", "Windows", "count_in", "turn_over"]

# Places in the numbers of a window.
_SERIAL, _PLANNED, _N = 0, 1, 2  # which window; how many decisions it takes, and has
_TOP, _Y, _SPARE = 3, 4, 5  # sums: upper bounds, estimates, what the directions missed
_OPEN, _OPEN_N, _BATCHES, _MEAN, _SQUARES = 6, 7, 8, 9, 10  # estimates, batch by batch
_INTERCEPT, _CAP, _RANGE = 11, 12, 13  # a; the largest and the range of <b, z>, z a reward vector
_SIZE = 14

_FIRST = 64  # decisions of the first window, which has no certificate and gathers the first
_SPLIT = 32  # batches in a window; a power of 2, as the lengths of the windows
_GRID = 32  # certificates gathered in a window: they change slowly, and cost as much as a decision
_TINY = 1e-9  # a range below which a certificate is as good as constant
_V = "float64[::1]"


@kernel(signature=f"boolean({', '.join([_V] * 5)})")
def count_in(seen: Vector, reward: Vector, now: Vector, slope: Vector, rewards: Vector) -> bool:
    """Count an answered decision in; whether a certificate is due. seen: of <b, r>, the largest
    optimistic value in the context, and what the choice and the direction missed of the best.
    """
    y = seen[1]
    for i in range(reward.size):
        y += slope[i] * reward[i]
        rewards[i] += reward[i]
    now[_N] += 1.0
    now[_TOP] += min(seen[0], now[_CAP])
    now[_Y] += y
    now[_SPARE] += seen[2]
    now[_OPEN] += y
    now[_OPEN_N] += 1.0
    if now[_OPEN_N] * _SPLIT >= now[_PLANNED]:
        away = now[_OPEN] / now[_OPEN_N] - now[_MEAN]
        now[_BATCHES] += 1.0
        now[_MEAN] += away / now[_BATCHES]
        now[_SQUARES] += away * away * (now[_BATCHES] - 1.0) / now[_BATCHES]
        now[_OPEN], now[_OPEN_N] = 0.0, 0.0
    return bool(now[_N] % (now[_PLANNED] / _GRID) == 0.0)


@kernel(signature=f"void({', '.join([_V] * 7)}, float64)")
def turn_over(
    now: Vector,
    slope: Vector,
    rewards: Vector,
    before: Vector,
    before_slope: Vector,
    before_rewards: Vector,
    gathered: Vector,
    longest: float,
) -> None:
    """A complete window becomes the one before; the next has the mean of the certificates gathered.

    Lengths double up to the first that is at least `longest`.
    """
    serial, planned = now[_SERIAL], now[_PLANNED]
    if planned > _FIRST:
        before[:] = now
        before_slope[:] = slope
        before_rewards[:] = rewards
    if gathered[0] > 0.0:  # else the old certificate serves on, and where there is none one waits
        for i in range(slope.size):
            slope[i] = gathered[2 + i] / gathered[0]
        now[_INTERCEPT] = gathered[1] / gathered[0]
        planned = planned if _FIRST < planned >= longest else 2.0 * planned
    intercept = now[_INTERCEPT]
    now[:] = 0.0
    rewards[:] = 0.0
    gathered[:] = 0.0
    now[_SERIAL], now[_PLANNED], now[_INTERCEPT] = serial + 1.0, planned, intercept


class Window(NamedTuple):
    """Sums over its decisions, and the certificate that they are measured with."""

    numbers: Vector
    slope: Vector
    rewards: Vector


class Windows(NamedTuple):
    """The window of the moment, the one before it, and the certificates gathered for the next."""

    now: Window
    before: Window
    gathered: Vector  # how many; the sums of a and of b

    @classmethod
    def start(cls, n: int) -> Windows:
        """Nothing seen yet, for n rewards."""
        now, before = (Window(np.zeros(_SIZE), np.zeros(n), np.zeros(n)) for _ in range(2))
        now.numbers[_PLANNED] = _FIRST
        return cls(now, before, np.zeros(2 + n))

    def restart(self) -> None:
        """Forget all, in place; decisions that are open stay strangers to what follows."""
        serial = self.now.numbers[_SERIAL] + 1.0
        for array in (*self.now, *self.before, self.gathered):
            array[:] = 0.0
        self.now.numbers[_PLANNED], self.now.numbers[_SERIAL] = _FIRST, serial

    def anew(self, n: int) -> Windows:
        """Nothing seen, for another number of rewards; open decisions are strangers to it."""
        fresh = Windows.start(n)
        fresh.now.numbers[_SERIAL] = self.now.numbers[_SERIAL] + 1.0
        return fresh

    def restored(self) -> None:
        """After arrays have been read from a file: refuse numbers that no window can have."""
        for name, (numbers, _, _) in (("now", self.now), ("before", self.before)):
            require_counts(name, numbers[[_SERIAL, _PLANNED, _N, _OPEN_N, _BATCHES]])
            sizes = numbers[[_SQUARES, _RANGE]]
            require(name, sizes, sizes >= 0.0, "squares and ranges have no sign")
            planned, taken = numbers[_PLANNED : _PLANNED + 1], numbers[_N : _N + 1]
            lengths = _FIRST * 2.0 ** np.arange(48)
            known = np.isin(planned, lengths) | ((planned == 0.0) & (name == "before"))
            require(name, planned, known, f"the length of a window is {_FIRST} times a power of 2")
            require(name, taken, taken <= planned, "a window takes what it has planned")
        require_counts("gathered", self.gathered[:1])

    # --- while they fill ----------------------------------------------------------------------

    @property
    def serial(self) -> int:
        """The number of the window of the moment."""
        return int(self.now.numbers[_SERIAL])

    @property
    def measures(self) -> bool:
        """Whether it has a certificate."""
        return bool(self.now.numbers[_PLANNED] > _FIRST)

    def gather(self, intercept: float, slope: Vector) -> None:
        """Another certificate for the next window, unless it is none."""
        found = np.concatenate([[1.0, intercept], slope])
        if all_finite(found):
            np.add(self.gathered, found, out=self.gathered)

    def advance(self, extent: Callable[[Vector], tuple[float, float]], longest: float) -> None:
        """Begin the next window, if this one is complete.

        `extent` tells the largest value and the range of <b, z>, z a reward vector.
        """
        numbers = self.now.numbers
        if numbers[_N] >= numbers[_PLANNED]:
            turn_over(*self.now, *self.before, self.gathered, longest)
            numbers[_CAP], numbers[_RANGE] = extent(self.now.slope)

    # --- what they say ------------------------------------------------------------------------

    @property
    def decisions(self) -> int:
        """How many the numbers below look back on; 0 before a window with a certificate is full."""
        before = self.before.numbers[_N]
        return int(before + self.now.numbers[_N]) if before > 0.0 else 0

    def bound(self, delta: float) -> float:
        """U with f* <= U with probability 1 - delta, if no optimistic value was too small.

        Deviations of a context's best value from its mean lie in an interval of length w, so that
        the exponential of sum_t (lambda_t deviation_t - (lambda_t w_t)^2/8) is a supermartingale
        for lambda_t fixed in advance: by Ville's inequality the sum stays below ln(1/delta) all
        along both windows, whenever one looks. lambda is the best one for the middle of the way.
        """
        level = math.log(1.0 / delta)
        scaled = math.sqrt(8.0 * level / (2.0 * self.before.numbers[_PLANNED]))  # lambda w
        total, weight = level, 0.0
        for numbers, _, _ in (self.before, self.now):
            pull = scaled / max(numbers[_RANGE], _TINY)
            total += pull * (numbers[_N] * numbers[_INTERCEPT] + numbers[_TOP])
            total += numbers[_N] * scaled**2 / 8.0
            weight += pull * numbers[_N]
        return float(total / weight)

    def estimate(self, objective: Concave, delta: float) -> tuple[float, float]:
        """An estimate of f*, and half of the length of its interval.

        Every decision gives an unbiased value of <b, best>, as far as estimates err by the same for
        the best action and the chosen one: what was earned, plus what was missed by the estimates.
        Batches of them in a row allow for their correlation.

        The certificates are above f* by an unknown part of a gap that is seen: what the policy's
        directions missed under them, and what they exceed f by at the rewards earned. The middle
        of the gap is the estimate, and its variance that of a uniform law, gap^2/12.
        """
        both = (self.before, self.now)
        numbers = np.array([window.numbers for window in both])
        shares = numbers[:, _N] / numbers[:, _N].sum()
        total = numbers[:, _N].sum()
        intercept = shares @ numbers[:, _INTERCEPT]
        slope = shares @ np.array([window.slope for window in both])
        earned = (self.before.rewards + self.now.rewards) / total
        above = intercept + slope @ earned - objective._value(earned)
        gap = numbers[:, _SPARE].sum() / total + max(above, 0.0)
        freedom = np.maximum(numbers[:, _BATCHES] - 1.0, 0.0).sum()
        # Means of long batches vary less, in proportion to their length.
        spread = numbers[:, _PLANNED] @ numbers[:, _SQUARES] / (_SPLIT * freedom)
        half = stdtrit(freedom, 1.0 - 0.5 * delta) * math.sqrt(spread / total + gap**2 / 12.0)
        return float(intercept + numbers[:, _Y].sum() / total - 0.5 * gap), float(half)
