"""Live numbers: how far f is from the best that can be reached. `Certificates` are upper bounds on
f, `Windows` sums over decisions in constant memory, `Live` the report.

A *certificate* is a pair (a, b) with f(s) <= a + <b, s> for every s, so that

    f* <= a + E max_action <b, mean reward of the action in a context>,

an expectation over contexts alone. The lengths of the windows double. The certificate of a window
is the mean of those of the window before it: fixed before the first decision
that is measured with it, and at least as close as they are on average, the bound being convex.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise, product
from typing import Any, NamedTuple

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.groups import Groups
from fairwolfe.core.kinds import Kind
from fairwolfe.core.packing import require, require_counts
from fairwolfe.core.problem import all_finite, level
from fairwolfe.core.tables import count
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.objectives.sparse import SparseMatrix
from fairwolfe.smoothing import Moreau

_FIRST = 64  # decisions of the first window, which has no certificate and gathers the first
_TINY = 1e-9  # a range below which a certificate is as good as constant
_MISSING = 0.1  # share of unanswered decisions beyond which nothing is guaranteed
_SLOPE = 3  # where b begins in what is gathered

# Places in the numbers of a window; kernels/engine.pxd has the same. SERIAL: which certificate;
# PLANNED, N: decisions that the window takes, and has. Sums over these: TOP, of upper bounds; Y, of
# estimates; SPARE, of what the directions missed; UNTRIED, of what arms that were hardly tried may
# add. Estimates batch by batch: BATCH, BATCH_N, BATCHES, MEAN, SQUARES. Of the certificate:
# INTERCEPT, a; CAP, the largest <b, r>; RANGE, of the best of a context; FLOOR, its least where
# hard constraints are kept. FIRST, LAST: the smallest and the largest number of its decisions.
SERIAL, PLANNED, N, TOP, Y, SPARE = range(6)
BATCH, BATCH_N, BATCHES, MEAN, SQUARES = range(6, 11)
INTERCEPT, CAP, RANGE, FIRST, LAST, FLOOR, UNTRIED = range(11, 18)
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

    __slots__ = ("before", "gathered", "measured", "memory", "n", "now")

    def __init__(self, memory: Vector, measured: int = 1) -> None:
        self.measured = measured  # one in so many decisions; first and last count these
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
        memory = np.empty(Windows.size(n))
        Windows.begin(memory, serial)
        return memory

    @staticmethod
    def size(n: int) -> int:
        """How many numbers the memory for n rewards has."""
        return 2 * (SIZE + 2 * n) + _SLOPE + n

    @staticmethod
    def begin(memory: Vector, serial: float) -> None:
        """Write what `start` returns."""
        memory[:] = 0.0
        memory[PLANNED], memory[SERIAL] = _FIRST, serial

    def restarted(self, n: int) -> Vector:
        """The memory of windows for n rewards that follow these: open decisions are not in them."""
        return self.start(n, self.now.numbers[SERIAL] + 1.0)

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

    @property
    def serial(self) -> int:
        """The number of the current window."""
        return int(self.now.numbers.item(SERIAL))

    @property
    def slope(self) -> Vector | None:
        """That of the current certificate; None before there is one."""
        numbers, slope, _ = self.now
        return slope if numbers.item(PLANNED) > _FIRST else None

    def add(self, intercept: float, slope: Vector, floor: float = 0.0) -> None:
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

    # --- bounds and estimates -----------------------------------------------------------------

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


_BOX_STEPS = 400
_MOST_CORNERS = 8  # rewards up to which f is computed in all 2^n corners of their ranges


@dataclass(frozen=True)
class Live:
    """How far from the best, at one moment: `print` it for a sentence.

    at_most: f* <= at_most with probability `confidence` = 1 - delta - delta', where delta' is that
        of the base's widths; None where nothing can be guaranteed, or nothing that the ranges of
        the rewards do not imply already: `reason` explains why
    about: an estimate of f*, with an interval from `low` to `high` at level 1 - delta, inside what
        the ranges of the rewards allow; None while too few decisions were answered, and where it
        seems that no policy keeps the hard constraints, of which f* is the best value otherwise.
        `high` includes what arms that were hardly tried may be worth beyond their estimates
    value: f of the average so far, without its hard constraints; it may be above `at_most` where
        one of them is missed
    t, decisions: how many were answered, and how many of them these numbers cover
    warning: why the interval cannot tell how good the best is; empty where it can
    stages: in how many parts answers arrive; decisions count once they have all of them

    >>> print(Live(0.58, 0.503, 0.499, 0.507, 0.5011, 10_000, 5_968, 0.05, 0.9, ""))
    After 10,000 decisions f is 0.5011. The best that can be reached is about 0.5030 (0.4990 to \
0.5070, 95 %), and at most 0.5800 (90 % sure).
    """

    at_most: float | None
    about: float | None
    low: float | None
    high: float | None
    value: float
    t: int
    decisions: int
    delta: float
    confidence: float
    reason: str
    warning: str = ""
    stages: int = 1

    def __str__(self) -> str:
        text = f"After {count(self.t, 'decision')} f is {self._shown(self.value)}."
        if self.stages > 1:
            text += f" Only decisions of which all {self.stages} stages are answered count here."
        if self.about is not None:
            about, low, high = map(self._shown, (self.about, self.low, self.high))
            text += f" The best that can be reached is about {about}"
            text += f" ({low} to {high}, {100.0 * (1.0 - self.delta):g} %)"
            if self.at_most is not None:
                sure = f"{100.0 * self.confidence:g} % sure"
                text += f", and at most {self._shown(self.at_most)} ({sure})"
            text += "."
        text += f" No guarantee: {self.reason}." if self.reason else ""
        return f"{text} Warning: {self.warning}." if self.warning else text

    def _shown(self, number: float | None) -> str:
        """With two digits of the interval's half width."""
        if number is None or not math.isfinite(number):
            return str(number)
        known = self.about is not None and self.low is not None
        half = self.about - self.low if known else 0.01 * abs(self.value)  # type: ignore[operator]
        digits = min(max(1 - math.floor(math.log10(max(half, 1e-6))), 0), 6)
        return f"{round(number, digits) + 0.0:,.{digits}f}"


class Certificates:
    """What keeps the windows of a running policy.

    of: the policy in its problem, with kind, objective, smoothing, base, prices and forget.
    """

    def __init__(self, of: Any) -> None:
        # Not the policy itself, which refers to this object.
        self.kind: Kind = of.kind
        self.whole: Concave = of.read
        self.objective: Concave = of.objective.relaxed()
        self.groups: Groups | None = of.groups
        self.smoothing, self.base = of.smoothing, of.base
        self.prices, self.forget = of.prices, of.forget

    @property
    def certifies(self) -> bool:
        """Whether the base takes part in live numbers."""
        return hasattr(self.base, "bound_params")

    @cached_property
    def leaves(self) -> Leaves:
        """f without its hard constraints, leaf by leaf."""
        return Leaves(self.objective, self.kind.seen.n_objectives)

    @cached_property
    def _map(self) -> SparseMatrix:
        """The map of `leaves` for the averages that f is read at."""
        n = self.kind.seen.n_objectives
        if self.groups is None:
            return self.leaves.map
        lifted = Leaves(self.groups.read(self.objective, n), n + len(self.groups.names)).map
        return lifted[: self.leaves.map.shape[0]]  # of constraints alone all is 0

    @cached_property
    def refusal(self) -> str:
        """Why nothing is guaranteed, whatever is observed; empty if something may be."""
        base, problem = self.base, self.kind.seen
        if not self.certifies or not base.bound_params(problem).size:
            return f"{type(base).__name__} has no confidence widths here"
        if self.forget > 0.0:
            return "with a memory the theorems do not apply"
        if problem.parameter_norm is None:
            return "the problem states no parameter_norm, on which confidence widths rest"
        parts = self.objective.leaves(problem.n_objectives)
        if not all(leaf.has_gradient for scale, leaf, _ in parts if scale > 0.0):
            return "the gradient of the objective is computed by differences"
        return ""

    @cached_property
    def bound_params(self) -> Vector:
        """What turns the base's estimates into upper bounds; empty if none are needed."""
        if self.refusal:
            return np.empty(0)
        bound_params: Vector = self.base.bound_params(self.kind.seen)
        return bound_params

    # --- while decisions are made and answered ------------------------------------------------

    def add(self, windows: Windows, z: Vector, prices: tuple[Vector, Vector], age: int) -> None:
        """Add the certificate at z to the others; begin the next window if this is complete."""
        # A function of the user may raise. The next decision calls it again and raises; here the
        # feedback is half applied, and continues without the certificate.
        with suppress(Exception):
            windows.add(*self.priced_certificate(z, prices, age))
        longest = 1.0 / self.forget if self.forget > 0.0 else np.inf
        with suppress(Exception):  # a user's kind may raise too
            windows.advance(self.kind.extent, longest)

    def priced_certificate(
        self, z: Vector, prices: tuple[Vector, Vector], age: int
    ) -> tuple[float, Vector, float]:
        """`certificate` of the direction that is followed after `age` rewards, and the least that
        its part without hard constraints has over the reward vectors. prices: with the factors of
        their widths.
        """
        priced = self.prices
        if priced is None:
            return *self.certificate(z, self._step(age)), 0.0
        with np.errstate(all="ignore"):
            g, p = priced.touch(z, *prices, age)
            _, intercept, slope = priced.leaves.majorant(g, p)
            _, height, soft = priced.leaves.majorant(*priced.without_constraints(g, p))
        return intercept, slope, height - self.kind.extent(-soft)[0]

    def certificate(self, z: Vector, step: float) -> tuple[float, Vector]:
        """a and b with f(s) <= a + <b, s> for every s; with Moreau smoothing b is grad f_t(z). z: a
        reward vector, or the averages that f is read at.
        """
        leaves = self.leaves
        inputs = (leaves.map if z.size == leaves.map.shape[1] else self._map) @ z
        with np.errstate(all="ignore"):
            _, intercept, slope = leaves.majorant(*leaves.touch(inputs, step))
        return intercept, slope

    def _step(self, age: int) -> float:
        """The width of the smoothing; 0 for randomised smoothing, which is below f and no use."""
        smoothing = self.smoothing
        if not isinstance(smoothing, Moreau):
            return 0.0
        return smoothing.step(self.objective, self.kind.seen.n_objectives, age)

    # --- what is known ------------------------------------------------------------------------

    def report(
        self, windows: Windows, average: Vector, t: int, delta: float, trusted: bool
    ) -> Live:
        """The live numbers. average: of what was earned, where f is read; trusted: whether all
        rewards were inside their ranges.
        """
        level("delta", delta)
        value = float(self.whole.relaxed()._value(average))
        certifies = self.certifies
        confidence = max(1.0 - delta - (self.base.delta if certifies else 0.0), 0.0)
        at_most = about = low = high = None
        why, warning = self.refusal, ""
        if windows.decisions == 0:
            why = why if not certifies else "too few decisions were answered"
        else:
            reached, ceiling = self._extremes if trusted else (np.inf, np.inf)
            least = self._least if trusted else -np.inf
            constrained = self.whole.constrained
            middle, half, untried = windows.estimate(self.objective, delta, constrained)
            if math.isfinite(half):  # f of what was earned may be -inf
                ends = (middle, middle - half, middle + half + untried)
                about, low, high = (max(min(x, ceiling), least) for x in ends)
                warning = self._warning(high - about, half, untried)
            why = why or ("" if trusted else "rewards were outside the ranges of the problem")
            why = why or windows.refusal
            certain = constrained and self.impossible(windows, delta, trusted)
            if certain:
                why = f"no policy keeps the hard constraints ({100.0 * confidence:g} % sure)"
            elif constrained and high is not None and high < windows.floor:
                certain, why = True, why or "it seems that no policy keeps the hard constraints"
            if certain:
                about = low = high = None  # of nothing
                warning = ""
            at_most = windows.bound(delta) if not why else None
            kept = self.whole._violation(average) == 0.0
            if at_most is not None and at_most < value and kept:
                # With answers that come as promptly from every context this is rare.
                at_most, why = None, f"f is above the bound of the last decisions, {at_most:.4g}"
            if at_most is not None and not at_most < reached:
                at_most, why = None, "the ranges of the rewards alone say as much so far"
        numbers = (value, t, windows.decisions, delta, confidence, why, warning)
        return Live(at_most, about, low, high, *numbers, self.kind.problem.n_stages)

    def _warning(self, above: float, half: float, untried: float) -> str:
        """Why the interval says little of f*; above: how far its upper end is from the middle."""
        base = self.base
        if not base.bound_params(self.kind.seen).size:
            return (
                f"{type(base).__name__} has no confidence widths here, so that the interval does "
                "not allow for actions that were hardly tried"
            )
        if untried <= half or above <= half:
            return ""
        return (
            "it is not known whether actions that were hardly tried are better, by up to "
            f"{above:.2g}; explore more to find out"
        )

    def impossible(self, windows: Windows, delta: float, trusted: bool = True) -> bool:
        """Whether it is certain, up to `delta` and that of the widths, that no policy keeps the
        hard constraints. Certificates are at least their floors wherever these are kept.
        """
        if not trusted or windows.decisions == 0 or self.refusal or windows.refusal:
            return False
        return windows.bound(delta, above_floor=True) < 0.0

    def precompute(self, windows: Windows) -> None:
        """Compute what `report` needs and no feedback changes."""
        if windows.decisions > 0:
            _ = self._extremes, self._least

    @cached_property
    def _least(self) -> float:
        """The least f inside the ranges of the rewards: f is concave, so that corners are enough;
        -inf where they are too many.
        """
        low, high = self.kind.seen.low, self.kind.seen.high
        if low.size > _MOST_CORNERS:
            return -np.inf
        corners = np.array(list(product(*zip(low, high, strict=True))))
        with np.errstate(all="ignore"):
            values = np.array([self.objective._value(corner) for corner in corners])
        return float(np.where(np.isnan(values), -np.inf, values).min())

    @cached_property
    def _extremes(self) -> tuple[float, float]:
        """A value that f has inside the ranges of the rewards, and a bound on all: Frank-Wolfe."""
        z = self.kind.middle()
        reached, ceiling = -np.inf, np.inf
        for t in range(_BOX_STEPS):
            intercept, slope = self.certificate(z, self._step(t))
            corner = self.kind.corner(slope, z)
            top = intercept + float(slope @ corner)
            ceiling = min(ceiling, top) if math.isfinite(top) else ceiling
            z = z + (corner - z) / (t + 2.0)  # never a corner, where f need not be finite
            reached = max(reached, self.objective._value(z))
        return float(reached), float(ceiling)
