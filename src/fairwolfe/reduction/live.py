"""Live numbers: how far a running policy is from f*, the best value that can be reached.

- *at most* (a guarantee): a certificate of `windows`, with an upper bound on the best action of
  every context, averaged over contexts and with Hoeffding's margin.
- *about* (an estimate): the same with what was earned, plus what the estimates say was missed.

Windows hold sums only; what the other actions promised travels in the decision.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem
from fairwolfe.errors import InvalidInput
from fairwolfe.objectives import Concave
from fairwolfe.objectives.leaves import Leaves
from fairwolfe.reduction.windows import Windows
from fairwolfe.smoothing import Identity, Moreau, Randomized

__all__ = ["Live", "Watch"]

_NOTHING = np.zeros(3)
_BOX_STEPS = 400


@dataclass(frozen=True)
class Live:
    """How far from the best, at one moment: `print` it for a sentence.

    at_most: f* <= at_most with probability `confidence` = 1 - delta - delta', where delta' is that
        of the base's widths; None where nothing can be guaranteed, or nothing that the ranges of
        the rewards do not say already: `reason` tells which
    about: an estimate of f*, with an interval from `low` to `high` at level 1 - delta; None while
        too few decisions were answered
    value: f of the average so far
    t, decisions: how many were answered, and how many of them these numbers look back on

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

    def __str__(self) -> str:
        text = f"After {self.t:,} decisions f is {self._shown(self.value)}."
        if self.about is not None:
            about, low, high = map(self._shown, (self.about, self.low, self.high))
            text += f" The best that can be reached is about {about}"
            text += f" ({low} to {high}, {100.0 * (1.0 - self.delta):g} %)"
            if self.at_most is not None:
                sure = f"{100.0 * self.confidence:g} % sure"
                text += f", and at most {self._shown(self.at_most)} ({sure})"
            text += "."
        return text if not self.reason else f"{text} No guarantee: {self.reason}."

    def _shown(self, number: float | None) -> str:
        """With two digits of the interval's half width."""
        if number is None or not math.isfinite(number):
            return str(number)
        known = self.about is not None and self.low is not None
        half = self.about - self.low if known else 0.01 * abs(self.value)  # type: ignore[operator]
        digits = min(max(1 - math.floor(math.log10(max(half, 1e-6))), 0), 6)
        return f"{round(number, digits) + 0.0:,.{digits}f}"


@dataclass(frozen=True)
class Watch:
    """What keeps the windows of a policy in a problem; made by `init`, it never changes."""

    problem: Problem
    objective: Concave
    smoothing: Identity | Moreau | Randomized
    base: Any
    forget: float

    def __getstate__(self) -> dict[str, Any]:
        # What was made on the way holds addresses and scratch, which belong to this process.
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @cached_property
    def leaves(self) -> Leaves:
        """f, leaf by leaf."""
        return Leaves(self.objective, self.problem.n_objectives)

    def extent(self, slope: Vector) -> tuple[float, float]:
        """The largest <slope, z> of a reward vector z, and the range of the best of a context."""
        low, high = self.problem.low, self.problem.high
        slots = self.problem.n_slots
        if slots is None:
            top = np.maximum(slope * low, slope * high).sum()
            return float(top), float(np.abs(slope) @ (high - low))
        best, worst = self._by_item(slope)
        top = np.maximum(np.sort(best)[-slots:], 0.0).sum()
        # Every slot is filled, also where nothing good is left, and may or may not be looked at.
        return float(top), float(top - np.minimum(np.sort(worst)[-slots:], 0.0).sum())

    def _by_item(self, slope: Vector) -> tuple[Vector, Vector]:
        """The most and the least that an item can bring to <slope, z> if it is looked at."""
        m, slots = self.problem.n_items or 0, self.problem.n_slots or 1
        ranges = np.array(list(self.problem.rewards.values())) / slots
        ends = slope[m:, None] * ranges
        return slope[:m] + ends.max(axis=1).sum(), slope[:m] + ends.min(axis=1).sum()

    def corner(self, slope: Vector, z: Vector) -> Vector:
        """A reward vector of largest <slope, z>; where the slope is 0, as it is in z."""
        low, high = self.problem.low, self.problem.high
        point: Vector = np.where(slope > 0.0, high, np.where(slope < 0.0, low, z))
        if self.problem.n_slots is not None:
            m = self.problem.n_items or 0
            best = self._by_item(slope)[0]
            shown = np.argsort(best)[-self.problem.n_slots :]
            shown = shown[best[shown] > 0.0]
            point[:m] = 0.0
            point[shown] = 1.0
            point[m:] *= shown.size / self.problem.n_slots
        return point

    @cached_property
    def sees(self) -> bool:
        """Whether the base tells what the other actions promised."""
        return hasattr(self.base, "tally")

    @cached_property
    def refusal(self) -> str:
        """Why nothing is guaranteed, whatever is seen; empty if something may be."""
        if not self.sees or not self.base.doubt(self.problem).size:
            return f"{type(self.base).__name__} has no confidence widths here"
        if self.forget > 0.0:
            return "with a memory the theorems do not apply"
        if self.problem.parameter_norm is None:
            return "the problem states no parameter_norm, on which confidence widths rest"
        if not all(getattr(leaf, "has_gradient", True) for leaf in self.leaves.leaves):
            return "the gradient of the objective is taken by differences"
        return ""

    @cached_property
    def doubt(self) -> Vector:
        """What turns the base's estimates into upper bounds; empty if none are asked for."""
        doubt: Vector = np.empty(0) if self.refusal else self.base.doubt(self.problem)
        return doubt

    # --- while decisions are made and answered ------------------------------------------------

    def look(self, windows: Windows) -> tuple[Vector, Vector] | None:
        """The slope that the base is to look along, and the doubt; None if nothing is asked."""
        if not (self.sees and windows.measures):
            return None
        return windows.now.slope, self.doubt

    def tally(self, windows: Windows, seen: Any, feedback: Any, what: str) -> Vector | None:
        """The numbers of an answered decision, None if it does not count; InvalidInput if forged.

        Those of earlier windows do not count: the certificate that they belong to is forgotten.
        """
        if seen is None:
            return None if windows.measures else _NOTHING
        pair = isinstance(seen, tuple) and len(seen) == 2 and type(seen[0]) is int
        if pair and isinstance(seen[1], np.ndarray) and seen[1].dtype == np.float64:
            if seen[0] != windows.serial:
                return None
            numbers: Vector = self.base.tally(seen[1], feedback)
            if numbers.shape == _NOTHING.shape:  # what they are is seen where they are counted
                return numbers
        raise InvalidInput(f"the evidence of decision {what!r} is of another policy: {seen!r:.60}")

    def gather(self, windows: Windows, z: Vector, age: int) -> None:
        """Take the certificate at z to the others; begin the next window if this is complete."""
        # A function of the user may raise. The next decision asks it again and says so; here the
        # feedback is half applied, and goes on without the certificate.
        with suppress(Exception):
            windows.gather(*self.certificate(z, self._step(age)))
        windows.advance(self.extent, 1.0 / self.forget if self.forget > 0.0 else np.inf)

    def certificate(self, z: Vector, step: float) -> tuple[float, Vector]:
        """a and b with f(s) <= a + <b, s> for every s; with Moreau smoothing b is grad f_t(z)."""
        leaves = self.leaves
        with np.errstate(all="ignore"):
            _, intercept, slope = leaves.majorant(*leaves.touch(leaves.matrix @ z, step))
        return intercept, slope

    def _step(self, age: int) -> float:
        """The width of the smoothing; 0 for randomised smoothing, which is below f and no use."""
        if not isinstance(self.smoothing, Moreau):
            return 0.0
        return self.smoothing.step(self.objective, self.problem.n_objectives, age)

    # --- what is known ------------------------------------------------------------------------

    def report(
        self, windows: Windows, average: Vector, t: int, delta: float, trusted: bool
    ) -> Live:
        """The live numbers; `trusted` says that all rewards were inside their ranges."""
        if not 0.0 < delta < 1.0:
            raise InvalidInput(f"delta is {delta!r}; give a number between 0 and 1")
        value = float(self.objective._value(average))
        confidence = max(1.0 - delta - getattr(self.base, "delta", 0.0), 0.0)
        at_most = about = low = high = None
        why = self.refusal
        if windows.decisions == 0:
            why = why if not self.sees else "too few decisions were answered"
        else:
            reached, ceiling = self._extremes if trusted else (np.inf, np.inf)
            middle, half = windows.estimate(self.objective, delta)
            if math.isfinite(half):  # f of what was earned may be -inf
                about, low, high = (min(x, ceiling) for x in (middle, middle - half, middle + half))
            why = why or ("" if trusted else "rewards were outside the ranges of the problem")
            why = why or windows.refusal
            at_most = windows.bound(delta) if not why else None
            if at_most is not None and at_most < value:
                # With answers that come as promptly from every context this is rare bad luck.
                at_most, why = None, f"f is above what the last decisions would say, {at_most:.4g}"
            if at_most is not None and not at_most < reached:
                at_most, why = None, "the ranges of the rewards alone say as much so far"
        numbers = (value, t, windows.decisions, delta, confidence, why)
        return Live(at_most, about, low, high, *numbers)

    @cached_property
    def _extremes(self) -> tuple[float, float]:
        """A value that f has inside the ranges of the rewards, and a bound on all: Frank-Wolfe."""
        z = 0.5 * (self.problem.low + self.problem.high)
        if self.problem.n_slots is not None:
            z[: self.problem.n_items] *= self.problem.n_slots / self.problem.n_items  # type: ignore[operator]
        reached, ceiling = -np.inf, np.inf
        for t in range(_BOX_STEPS):
            intercept, slope = self.certificate(z, self._step(t))
            corner = self.corner(slope, z)
            top = intercept + float(slope @ corner)
            ceiling = min(ceiling, top) if math.isfinite(top) else ceiling
            z = z + (corner - z) / (t + 2.0)  # never a corner, where f need not be finite
            reached = max(reached, self.objective._value(z))
        return float(reached), float(ceiling)
