"""Windows of decisions: the sums from which live numbers are made, in constant memory.

A *certificate* is a pair (a, b) with f(s) <= a + <b, s> for every s, so that

    f* <= a + E max_action <b, mean reward of the action in a context>,

an expectation over contexts alone. The lengths of the windows double. The certificate of a window
is the mean of those of the window before it: fixed before the first decision
that is measured with it, and at least as close as they are on average, the bound being convex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import all_finite
from fairwolfe.core.restoring import require, require_counts
from fairwolfe.objectives import Concave

__all__ = ["SIZE", "Window", "Windows"]

_FIRST = 64  # decisions of the first window, which has no certificate and gathers the first
_TINY = 1e-9  # a range below which a certificate is as good as constant
_MISSING = 0.1  # share of unanswered decisions beyond which nothing is guaranteed
_SLOPE = 3  # where b begins in what is gathered

# Places in the numbers of a window; kernels/engine.pxd has the same.
(
    SERIAL,  # which certificate
    PLANNED,  # decisions that the window takes
    N,  # decisions that it has
    TOP,  # sum of upper bounds
    Y,  # sum of estimates
    SPARE,  # sum of what the directions missed
    BATCH,  # estimates, batch by batch
    BATCH_N,
    BATCHES,
    MEAN,
    SQUARES,
    INTERCEPT,  # a of the certificate
    CAP,  # the largest <b, r>
    RANGE,  # of the best of a context
    FIRST,  # smallest number of its decisions
    LAST,  # largest
    FLOOR,  # the least of the certificate where hard constraints are kept
    UNTRIED,  # sum of what arms that were hardly tried may add
) = range(18)
SIZE = 18
SPLIT = 32  # batches in a window; a power of 2, as the lengths of the windows


class Window(NamedTuple):
    """Sums over its decisions, and the certificate that they are measured with."""

    numbers: Vector
    slope: Vector
    rewards: Vector


class Windows:
    """The current window, the one before it, and the certificates gathered for the next.

    All are views of one vector, `memory`, so that a window is replaced by one copy, which no
    interrupt can tear:

        now (SIZE + 2 n), before (SIZE + 2 n), gathered (3 + n): how many; sums of a, floors and b
    """

    __slots__ = ("before", "gathered", "memory", "n", "now")

    def __init__(self, memory: Vector) -> None:
        self.memory, self.n = memory, (memory.size - 2 * SIZE - _SLOPE) // 5
        whole = SIZE + 2 * self.n
        self.now, self.before = self._window(0), self._window(whole)
        self.gathered = memory[2 * whole :]

    def _window(self, start: int) -> Window:
        ends = np.cumsum([start, SIZE, self.n, self.n]).tolist()
        return Window(*(self.memory[a:b] for a, b in pairwise(ends)))

    @staticmethod
    def start(n: int, serial: float = 0.0) -> Vector:
        """The memory before anything is seen, for n rewards; serial: of the first certificate."""
        memory = np.zeros(2 * (SIZE + 2 * n) + _SLOPE + n)
        memory[PLANNED], memory[SERIAL] = _FIRST, serial
        return memory

    def restart(self) -> None:
        """Forget all, in place; decisions that are open are unknown to what follows."""
        self.memory[:] = self.start(self.n, self.now.numbers[SERIAL] + 1.0)

    def restored(self) -> None:
        """After arrays have been read from a file: raise for numbers that no window can have."""
        for name, (numbers, _, _) in (("now", self.now), ("before", self.before)):
            require_counts(name, numbers[[SERIAL, PLANNED, N, BATCH_N, BATCHES]])
            sizes = numbers[[SQUARES, RANGE]]
            require(name, sizes, sizes >= 0.0, "squares and ranges have no sign")
            planned, count = numbers[PLANNED : PLANNED + 1], numbers[N : N + 1]
            lengths = _FIRST * 2.0 ** np.arange(48)
            known = np.isin(planned, lengths) | ((planned == 0.0) & (name == "before"))
            require(name, planned, known, f"the length of a window is {_FIRST} times a power of 2")
            # An interrupt may come before the next window begins: then this one continues.
            require(name, count, count <= 2.0 * planned, "a window takes what it has planned")
        require_counts("gathered", self.gathered[:1])

    # --- while they fill ----------------------------------------------------------------------

    @property
    def serial(self) -> int:
        """The number of the current window."""
        return int(self.now.numbers.item(SERIAL))

    @property
    def slope(self) -> Vector | None:
        """That of the current certificate; None before there is one."""
        numbers, slope, _ = self.now
        return slope if numbers.item(PLANNED) > _FIRST else None

    def gather(self, intercept: float, slope: Vector, floor: float = 0.0) -> None:
        """Add a certificate for the next window if it is finite; floor: the least that the part of
        it without hard constraints has over the reward vectors.
        """
        certificate = np.concatenate([[1.0, intercept, floor], slope])
        if all_finite(certificate):
            np.add(self.gathered, certificate, out=self.gathered)

    def advance(self, extent: Callable[[Vector], tuple[float, float]], longest: float) -> None:
        """Begin the next window, if this one is complete. Lengths double up to `longest`.

        `extent` gives the largest value and the range of <b, z>, z a reward vector.
        """
        numbers, slope, _ = self.now
        if numbers[N] < numbers[PLANNED]:
            return
        planned, intercept, floor = numbers[PLANNED], numbers[INTERCEPT], numbers[FLOOR]
        if self.gathered[0] > 0.0:  # else the old certificate continues, or the first is waited for
            slope = self.gathered[_SLOPE:] / self.gathered[0]
            intercept, floor = (self.gathered[1:_SLOPE] / self.gathered[0]).tolist()
            planned = planned if _FIRST < planned >= longest else 2.0 * planned
        serial = _fingerprint(numbers[SERIAL], intercept, slope)
        cap, range_ = extent(slope)
        fresh = Windows(np.zeros(self.memory.size))
        kept = self.now if numbers[PLANNED] > _FIRST else self.before
        for old, new in zip(fresh.before, kept, strict=True):
            old[:] = new
        fresh.now.slope[:] = slope
        fresh.now.numbers[[SERIAL, PLANNED, INTERCEPT]] = serial, planned, intercept
        fresh.now.numbers[[FLOOR, CAP, RANGE]] = floor, cap, range_
        self.memory[:] = fresh.memory

    # --- what they say ------------------------------------------------------------------------

    @property
    def decisions(self) -> int:
        """How many the numbers below look back on; 0 before a window with a certificate is full."""
        before = self.before.numbers[N]
        return int(before + self.now.numbers[N]) if before > 0.0 else 0

    @property
    def floor(self) -> float:
        """The least that certificates can have where hard constraints are kept."""
        numbers = np.array([self.before.numbers, self.now.numbers])
        return float(numbers[:, N] @ numbers[:, FLOOR] / numbers[:, N].sum())

    @property
    def refusal(self) -> str:
        """Why these decisions guarantee nothing, if they do not: too many have no answer.

        A guarantee is of the mean over contexts, and answers may come later in some than in others.
        """
        missing = _missing(self.before.numbers) + _missing(self.now.numbers)
        share = missing / (missing + self.decisions)
        if share <= _MISSING:
            return ""
        return f"{share:.0%} of the decisions that it would be about have no answer yet"

    def bound(self, delta: float, above_floor: bool = False) -> float:
        """U with f* <= U with probability 1 - delta, if no optimistic value was too small;
        above_floor: with the floors subtracted, so that it is negative only if no policy keeps the
        hard constraints (a certificate is at least its floor wherever they are kept).

        A decision that has no answer yet is taken to have had the largest value there is.

        Deviations of a context's best value from its mean lie in an interval of length w, so that
        the exponential of sum_t (lambda_t deviation_t - (lambda_t w_t)^2/8) is a supermartingale
        for lambda_t fixed in advance: by Ville's inequality the sum stays below ln(1/delta) all
        along both windows, whenever one looks. lambda is the best one for the middle of the way.
        """
        odds = math.log(1.0 / delta)
        scaled = math.sqrt(8.0 * odds / (2.0 * self.before.numbers[PLANNED]))  # lambda w
        total, weight = odds, 0.0
        for numbers, _, _ in (self.before, self.now):
            pull = scaled / max(numbers[RANGE], _TINY)
            missing = _missing(numbers)
            decisions = numbers[N] + missing
            level = numbers[INTERCEPT] - (numbers[FLOOR] if above_floor else 0.0)
            total += pull * (decisions * level + numbers[TOP] + missing * numbers[CAP])
            total += decisions * scaled**2 / 8.0
            weight += pull * decisions
        return float(total / weight)

    def estimate(
        self, objective: Concave, delta: float, constrained: bool = False
    ) -> tuple[float, float, float]:
        """An estimate of f*, half of the length of its interval, and by how much more f* may be
        above it if actions that were hardly tried are better than their estimates.

        Every decision gives an unbiased value of <b, best>, as far as estimates err by the same for
        the best action and the chosen one: what was earned, plus what was missed by the estimates.
        Batches of them in a row allow for their correlation.

        The certificates are above f* by an unknown part of a gap that is seen: what the policy's
        directions missed under them, and what they exceed f by at the rewards earned. The middle
        of the gap is the estimate, and its variance that of a uniform law, gap^2/12. With hard
        constraints what exploring missed belongs to the gap too: what is explored may be what keeps
        them, while their prices are still too low.

        Rare or skewed rewards: n decisions without an event of probability p have the probability
        (1 - p)^n, so that p <= ln(1/delta)/n at the level of the interval (the rule of three). Such
        an event may be worth the whole range of <b, r>.
        """
        from scipy.special import stdtrit  # 60 ms, which the first decision need not wait for

        both = (self.before, self.now)
        numbers = np.array([window.numbers for window in both])
        shares = numbers[:, N] / numbers[:, N].sum()
        total = numbers[:, N].sum()
        intercept = shares @ numbers[:, INTERCEPT]
        slope = shares @ np.array([window.slope for window in both])
        earned = (self.before.rewards + self.now.rewards) / total
        above = intercept + slope @ earned - objective._value(earned)
        missed = numbers[:, SPARE].sum()
        if constrained:
            missed = sum(w.numbers[Y] - w.slope @ w.rewards for w in both)
        gap = missed / total + max(above, 0.0)
        freedom = np.maximum(numbers[:, BATCHES] - 1.0, 0.0).sum()
        # Means of long batches vary less, in proportion to their length.
        spread = numbers[:, PLANNED] @ numbers[:, SQUARES] / (SPLIT * freedom)
        half = stdtrit(freedom, 1.0 - 0.5 * delta) * math.sqrt(spread / total + gap**2 / 12.0)
        rare = math.log(1.0 / delta) * (shares @ numbers[:, RANGE]) / total
        middle = intercept + numbers[:, Y].sum() / total - 0.5 * gap
        return float(middle), math.hypot(half, rare), float(numbers[:, UNTRIED].sum() / total)


def _missing(numbers: Vector) -> float:
    """How many decisions were made between the first and the last of a window without an answer."""
    if numbers[N] == 0.0:
        return 0.0
    return max(float(numbers[LAST] - numbers[FIRST] + 1.0 - numbers[N]), 0.0)


def _fingerprint(serial: float, intercept: float, slope: Vector) -> float:
    """A whole number, exact in a float, that another certificate does not have.

    After a crash a loaded agent gets decisions that were measured with the certificates of the
    time that it has not seen: equal places in two histories must not have equal names.
    """
    digest = blake2b(np.concatenate([[serial, intercept], slope]).tobytes(), digest_size=6)
    return float(int.from_bytes(digest.digest(), "little"))
