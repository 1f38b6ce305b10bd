"""Live numbers: how far a running policy is from f*, the best value that can be reached.

- *at most* (a guarantee): a certificate of `windows`, with an upper bound on the best action of
  every context, averaged over contexts and with Hoeffding's margin.
- *about* (an estimate): the same with what was earned, plus the estimate of what was missed.

With hard constraints f* is the best value of the policies that keep them. A certificate then has
their prices in it: it is above f where they are kept, <g, A s - p> being at least 0 there for every
gradient g of a constraint at p. Where its bound is below the least value of its other part, no
policy keeps them.

Windows hold sums only; what the other actions promised travels in the decision.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.brief import count
from fairwolfe.core.kinds import Kind
from fairwolfe.core.problem import level
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.reduction.windows import Windows
from fairwolfe.smoothing import Moreau

__all__ = ["Certificates", "Live"]

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

    def __str__(self) -> str:
        text = f"After {count(self.t, 'decision')} f is {self._shown(self.value)}."
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
        self.whole: Concave = of.objective
        self.objective: Concave = of.objective.relaxed()
        self.smoothing, self.base, self.prices, self.forget = (
            of.smoothing,
            of.base,
            of.prices,
            of.forget,
        )

    @property
    def certifies(self) -> bool:
        """Whether the base takes part in live numbers."""
        return hasattr(self.base, "doubt")

    @cached_property
    def leaves(self) -> Leaves:
        """f without its hard constraints, leaf by leaf."""
        return Leaves(self.objective, self.kind.seen.n_objectives)

    @cached_property
    def refusal(self) -> str:
        """Why nothing is guaranteed, whatever is observed; empty if something may be."""
        base, problem = self.base, self.kind.seen
        if not self.certifies or not base.doubt(problem).size:
            return f"{type(base).__name__} has no confidence widths here"
        if self.forget > 0.0:
            return "with a memory the theorems do not apply"
        if problem.parameter_norm is None:
            return "the problem states no parameter_norm, on which confidence widths rest"
        if not all(leaf.has_gradient for leaf in self.leaves.leaves):
            return "the gradient of the objective is computed by differences"
        return ""

    @cached_property
    def doubt(self) -> Vector:
        """What turns the base's estimates into upper bounds; empty if none are needed."""
        if self.refusal:
            return np.empty(0)
        doubt: Vector = self.base.doubt(self.kind.seen)
        return doubt

    # --- while decisions are made and answered ------------------------------------------------

    def gather(self, windows: Windows, z: Vector, prices: Vector, age: int) -> None:
        """Take the certificate at z to the others; begin the next window if this is complete."""
        # A function of the user may raise. The next decision calls it again and raises; here the
        # feedback is half applied, and continues without the certificate.
        with suppress(Exception):
            windows.gather(*self.priced_certificate(z, prices, age))
        longest = 1.0 / self.forget if self.forget > 0.0 else np.inf
        with suppress(Exception):  # a user's kind may raise too
            windows.advance(self.kind.extent, longest)

    def priced_certificate(
        self, z: Vector, prices: Vector, age: int
    ) -> tuple[float, Vector, float]:
        """`certificate` of the direction that is followed after `age` rewards, and the least that
        its part without hard constraints has over the reward vectors.
        """
        priced = self.prices
        if priced is None:
            return *self.certificate(z, self._step(age)), 0.0
        with np.errstate(all="ignore"):
            g, p = priced.touch(z, prices, age)
            _, intercept, slope = priced.leaves.majorant(g, p)
            _, height, soft = priced.leaves.majorant(*priced.without_constraints(g, p))
        return intercept, slope, height - self.kind.extent(-soft)[0]

    def certificate(self, z: Vector, step: float) -> tuple[float, Vector]:
        """a and b with f(s) <= a + <b, s> for every s; with Moreau smoothing b is grad f_t(z)."""
        leaves = self.leaves
        with np.errstate(all="ignore"):
            _, intercept, slope = leaves.majorant(*leaves.touch(leaves.matrix @ z, step))
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
        """The live numbers; `trusted`: whether all rewards were inside their ranges."""
        level("delta", delta)
        value = float(self.objective._value(average))
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
        return Live(at_most, about, low, high, *numbers)

    def _warning(self, above: float, half: float, untried: float) -> str:
        """Why the interval says little of f*; above: how far its upper end is from the middle."""
        base = self.base
        if not base.doubt(self.kind.seen).size:
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

    def survey(self, windows: Windows) -> None:
        """What `report` needs and no feedback changes."""
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
