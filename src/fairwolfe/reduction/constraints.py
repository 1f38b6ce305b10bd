"""`Constraint`: how a hard constraint is kept, and what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

from fairwolfe.core.arrays import Vector
from fairwolfe.objectives.bounds import Bounds

__all__ = ["Constraint", "constraints"]

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

    >>> print(Constraint("cost", 0.01, 0.0098, 0.0002, 0.56, True, "at most"))
    cost is 0.0098, to be at most 0.01: kept, with 0.0002 to spare; shadow price: one more unit of \
cost buys 0.56 of f.
    """

    name: str
    level: float
    average: float
    slack: float
    shadow_price: float
    feasible: bool | None
    side: Literal["at least", "at most"] = "at most"

    def __str__(self) -> str:
        if math.isnan(self.average):
            return f"{self.name} is to be {self.side} {self.level:.4g}: nothing is known yet."
        text = f"{self.name} is {self.average:.4g}, to be {self.side} {self.level:.4g}: "
        if self.slack >= 0.0:
            text += f"kept, with {self.slack:.2g} to spare"
        else:
            text += f"missed by {-self.slack:.2g}"
        room = "more" if self.side == "at most" else "less"
        text += f"; shadow price: one {room} unit of {self.name} buys {self.shadow_price:.3g} of f"
        if self.feasible is False:
            text += "; no policy can keep it together with the other levels that have a price"
        return text + "."


def constraints(of: Any, delta: float, trusted: bool = True) -> tuple[Constraint, ...]:
    """The hard constraints of a running policy, one for each level; `trusted`: whether all rewards
    were inside their ranges.
    """
    priced = of.prices
    if priced is None or not of.objective.constrained:
        return ()
    t, z = of.t, of.average
    impossible = of.certificates.impossible(of.windows, delta, trusted)
    share = math.sqrt(math.log(2.0 / delta) / (2.0 * max(t, 1)))  # of a range: Hoeffding
    g = priced.paid(of.iterate, of.state.prices, of.age(t))
    moving = priced.moving
    limits: list[Constraint] = []
    for leaf, block, names in zip(moving.leaves, moving.blocks, priced.names, strict=True):
        if isinstance(leaf, Bounds):
            x = moving.matrix[block] @ z
            # The running price where one is learnt: the last one jumps with every reward.
            prices = of.state.prices[block] if leaf.multiplier > 0.0 else g[block]
            errors = share * priced.spreads[block] if share <= _SHARE else None
            limits += _of_leaf(leaf, names, x, prices, errors, impossible)
    if t == 0:
        limits = [replace(one, average=math.nan, slack=math.nan) for one in limits]
    return tuple(limits)


def _of_leaf(
    leaf: Bounds,
    names: tuple[str, ...],
    x: Vector,
    prices: Vector,
    errors: Vector | None,
    impossible: bool,
) -> list[Constraint]:
    """errors: of the averages of the rows; None while they are too large to say anything."""
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
            kept = errors is not None and slack >= -errors[i] / whole
            feasible = False if impossible and price > 0.0 else True if kept else None
            side: Literal["at least", "at most"] = "at least" if sign > 0.0 else "at most"
            limits.append(Constraint(names[i], level, average, slack, price, feasible, side))
    return limits
