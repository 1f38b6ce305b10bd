"""`Constraint`: how a hard constraint is kept, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from fairwolfe.core.arrays import IntVector, Vector
from fairwolfe.objectives.threshold import FADED, Bounds, Rates

_POINT = 0.01  # of a rate, whose shadow price is reported per point
_SHARE = 0.05  # of a range: averages with larger errors say nothing of a level


@dataclass(frozen=True)
class Constraint:
    """A level that an average is to keep: `print` it for a sentence.

    name: the reward, item or group
    level: for shares, a share of the whole
    average: what was earned so far, in the same units; NaN before the first reward
    slack: how much room there is; negative where the level is not kept; NaN before the first reward
    shadow_price: how much of f one more unit of room would bring
    feasible: False where it is certain, with the confidence of live numbers, that no policy keeps
        this level together with the others that have a price; True where it is kept up to the error
        of an average of so many rewards; None while neither is known
    side: "at least" or "at most"
    per: of a rate, the reward that it is per; `average` is then a ratio of averages, NaN while that
        of `per` is 0, and the shadow price is of one point (0.01) of the rate
    per_average: of that reward
    per_most: a number that its average was certainly above once, where the reward has vanished
        since: its average is below a tenth of that. Else NaN

    >>> print(Constraint("cost", 0.01, 0.0098, 0.0002, 0.56, True, "at most"))
    cost is 0.0098, to be at most 0.01: kept, with 0.0002 to spare; shadow price: one more unit of \
cost buys 0.56 of f.
    >>> name, per = "returned per ordered", ("ordered", 0.12)
    >>> print(Constraint(name, 0.08, 0.079, 0.001, 0.021, True, "at most", *per))
    returned per ordered: 0.079 of at most 0.08 (OK); shadow price: one more point (0.01) buys \
0.021 of f.
    """

    name: str
    level: float
    average: float
    slack: float
    shadow_price: float
    feasible: bool | None
    side: Literal["at least", "at most"] = "at most"
    per: str = ""
    per_average: float = math.nan
    per_most: float = math.nan

    def __str__(self) -> str:
        if self.per:
            return self._rate()
        if math.isnan(self.average):
            return f"{self.name} is to be {self.side} {self.level:.4g}: no answers yet."
        text = f"{self.name} is {self.average:.4g}, to be {self.side} {self.level:.4g}: "
        if self.slack >= 0.0:
            text += f"kept, with {self.slack:.2g} to spare"
        else:
            text += f"missed by {-self.slack:.2g}"
        room = "more" if self.side == "at most" else "less"
        text += f"; shadow price: one {room} unit of {self.name} buys {self.shadow_price:.3g} of f"
        return text + self._hopeless()

    @property
    def kept_by_vanishing(self) -> bool:
        """Whether a rate is kept, up to the error of an average, because its denominator has all
        but vanished.
        """
        return not math.isnan(self.per_most) and (self.slack >= 0.0 or self.feasible is True)

    def _rate(self) -> str:
        """The sentence of a rate."""
        if math.isnan(self.average):
            return f"{self.name}: no {self.per} yet, to be {self.side} {self.level:.4g}."
        text = f"{self.name}: {self.average:.3g} of {self.side} {self.level:.4g} ("
        vanishes = f"{self.per} vanishes: {self.per_average:.2g}, once {self.per_most:.2g} or more"
        if self.kept_by_vanishing:
            text += f"kept only because {vanishes}"
        else:
            text += "OK" if self.slack >= 0.0 else f"missed by {-self.slack:.2g}"
            text += "" if math.isnan(self.per_most) else f"; {vanishes}"
        room = "more" if self.side == "at most" else "less"
        text += f"); shadow price: one {room} point (0.01) buys {self.shadow_price:.3g} of f"
        return text + self._hopeless()

    def _hopeless(self) -> str:
        if self.feasible is False:
            return "; no policy can keep it together with the other levels that have a price."
        return "."


def constraints(of: Any, delta: float, trusted: bool = True) -> tuple[Constraint, ...]:
    """The hard constraints of a running policy, one for each level; `trusted`: whether all rewards
    were inside their ranges.
    """
    priced = of.prices
    if priced is None or not of.objective.constrained:
        return ()
    z = of.earned
    impossible = of.certificates.impossible(of.windows, delta, trusted)
    factors = of.state.factors
    g = priced.paid(of.iterate, of.state.prices, factors, of.age(of.t))
    t = _answers(priced, of.answered)
    share = np.sqrt(math.log(2.0 / delta) / (2.0 * np.maximum(t, 1)))  # of a range: Hoeffding
    moving = priced.moving
    limits: list[Constraint] = []
    for leaf, block, names in zip(moving.leaves, moving.blocks, priced.names, strict=True):
        if isinstance(leaf, Bounds):
            x = priced.moving_map[block] @ z
            # The running price where one is learnt: the last one jumps with every reward.
            prices = of.state.prices[block] if leaf.multiplier > 0.0 else g[block]
            known = share[block] <= _SHARE
            errors = np.where(known, share[block] * priced.spreads[block], np.nan)
            fresh = t[block] == 0
            if isinstance(leaf, Rates):
                last = block.stop - 1
                top = next(top for _, row, top in priced.denominators if row == last)
                # Its rows move where the denominator does.
                errors = errors * math.sqrt(max(float(x[-1]), 0.0) / top)
                found = _of_leaf(leaf, names, x, prices, errors, fresh, impossible)
                most = top * float(factors[last])
                limits += [_as_rate(one, leaf.per, float(x[-1]), most) for one in found]
            else:
                limits += _of_leaf(leaf, names, x, prices, errors, fresh, impossible)
    return tuple(limits)


def _answers(priced: Any, answered: tuple[int, ...]) -> IntVector:
    """How many answers each row has had: those of the stage that it uses that has the fewest."""
    used = priced.stages[:, None] >> np.arange(len(answered)) & 1
    fewest: IntVector = np.where(used == 1, answered, max(answered)).min(axis=1)
    return fewest


def _as_rate(one: Constraint, per: str, average: float, most: float) -> Constraint:
    """A level for a rate; average, most: of its denominator, now and at most."""
    if not average > 0.0:
        empty = replace(one, average=math.nan, slack=math.nan, shadow_price=0.0, feasible=None)
        return replace(empty, per=per, per_average=average)
    price, before = _POINT * one.shadow_price, most if average < FADED * most else math.nan
    return replace(one, shadow_price=price, per=per, per_average=average, per_most=before)


def _of_leaf(
    leaf: Bounds,
    names: tuple[str, ...],
    x: Vector,
    prices: Vector,
    errors: Vector,
    unanswered: Any,
    impossible: bool,
) -> list[Constraint]:
    """errors: of the averages of the rows; NaN while they are too large to say anything.
    unanswered: rows of which nothing is known yet.
    """
    limits = []
    for i in range(leaf.limited):
        average, whole = float(x[i]), 1.0
        if leaf.shares:
            whole = float(x[-1]) or 1.0
            average = float(x[i]) / whole + leaf.shares[i] if x[-1] else 0.0
        for bound, sign in ((leaf.low[i], 1.0), (leaf.high[i], -1.0)):
            if not math.isfinite(bound):
                continue
            level = leaf.shares[i] if leaf.shares else bound
            slack = sign * (average - level)
            # The gradient of a constraint that costs something points back inside.
            price = max(sign * float(prices[i]), 0.0) * whole + 0.0  # not -0
            kept = bool(slack >= -errors[i] / whole)
            feasible = False if impossible and price > 0.0 else True if kept else None
            side: Literal["at least", "at most"] = "at least" if sign > 0.0 else "at most"
            one = Constraint(names[i], level, average, slack, price, feasible, side)
            if unanswered[i]:
                one = replace(one, average=math.nan, slack=math.nan)
            limits.append(one)
    return limits
