"""What a trade-off shows, in plain words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from fairwolfe.errors import InvalidInput
from fairwolfe.fairness.tradeoff import result

if TYPE_CHECKING:
    from fairwolfe.fairness.tradeoff.result import TradeOff

__all__ = ["knee", "sentences"]

_SAME = 0.01  # Gini indices that are closer count as equal

Row = dict[str, Any]


def sentences(tradeoff: TradeOff) -> list[str]:
    """The knee, what FairLearnRank reaches there, the best possible, and where gains end."""
    rows = tradeoff.table()
    fair = [row for row in rows if row["policy"] == result.FAIR]
    floors = [row for row in rows if row["policy"] == result.FLOOR]
    what = tradeoff.reward
    chosen = fair[knee(fair)]
    return [
        *_price(fair, chosen, what),
        *_frontier(tradeoff, chosen, what),
        *_kept(fair, floors, chosen),
        *_baseline(floors, chosen, what),
        *_smallest(tradeoff, what),
        *_end(fair, what),
    ]


def knee(fair: list[Row]) -> int:
    """Which beta turns the curve: the point farthest over the chord of its ends; else the last.

    The ends are the smallest beta, and the one from which on nothing is gained.
    """
    last = _end_of_gains(fair)
    gini = np.array([row["gini"] for row in fair[: last + 1]])
    utility = np.array([row["utility"] for row in fair[: last + 1]])
    gained, kept = gini[0] - gini[-1], utility[0] - utility[-1]
    if last < 2 or gained <= 0.0 or kept <= 0.0:
        return last
    over = (gini[0] - gini) / gained + (utility - utility[-1]) / kept - 1.0
    return int(over.argmax()) if over.max() > 0.0 else last


def _end_of_gains(fair: list[Row]) -> int:
    gini = np.array([row["gini"] for row in fair])
    return int(np.flatnonzero(gini <= gini.min() + _SAME)[0])


def _price(fair: list[Row], chosen: Row, what: str) -> list[str]:
    plain, end = fair[0], fair[_end_of_gains(fair)]
    if chosen is plain:
        return [f"No beta is fairer than beta = {plain['beta']:.3g}: nothing is traded here."]
    given_up = _percent_less(chosen, plain)
    texts = [
        f"Giving up {given_up:.1f} % of {what} lifts the bottom half of items from "
        f"{100 * plain['bottom_half']:.0f} % to {100 * chosen['bottom_half']:.0f} % of exposure "
        f"(beta = {chosen['beta']:.3g})."
    ]
    before, after = plain["gini"] - chosen["gini"], chosen["gini"] - end["gini"]
    if chosen is not end and before > 0.0 and after > 0.0:
        further = _percent_less(end, chosen)
        texts.append(
            f"The curve turns there: up to it 0.1 less of the Gini index costs "
            f"{0.1 * given_up / before:.1f} % of {what}, beyond it {0.1 * further / after:.1f} %."
        )
    return texts


def _frontier(tradeoff: TradeOff, chosen: Row, what: str) -> list[str]:
    missing = max(chosen["below_frontier_percent"], 0.0)
    keeping = "" if tradeoff.constraints is None else ", with the hard constraints kept"
    return [
        f"That is at most {missing:.1f} % below the most {what} of any policy that is as fair by "
        f"{type(tradeoff.items).__name__}{keeping} (certified)."
    ]


def _kept(fair: list[Row], floors: list[Row], chosen: Row) -> list[str]:
    if "violation" not in chosen:
        return []
    worst = max(row["violation"] for row in fair)
    text = (
        "The best possible is that of the policies that keep the hard constraints. "
        f"{result.FAIR} violates them by {chosen['violation']:.2g} there, by {worst:.2g} at most"
    )
    if floors:
        least = min(row["violation"] for row in floors)
        text += f"; {result.FLOOR}, which does not know them, by {least:.2g} at least"
    return [text + "."]


def _baseline(floors: list[Row], chosen: Row, what: str) -> list[str]:
    if not floors:
        return []
    ordered = sorted(floors, key=lambda row: float(row["gini"]))
    gini = [row["gini"] for row in ordered]
    if chosen["gini"] < gini[0]:
        return [
            f"{result.FLOOR} does not come down to its Gini index of {chosen['gini']:.2f}: with a "
            f"floor of {ordered[0]['floor']:.3g} it has {gini[0]:.2f}, and "
            f"{_percent_less(ordered[0], chosen):.1f} % less {what}."
        ]
    there = float(np.interp(chosen["gini"], gini, [row["utility"] for row in ordered]))
    return [
        f"At its Gini index of {chosen['gini']:.2f}, {result.FLOOR} has {there:.3g} {what} and "
        f"{result.FAIR} {chosen['utility']:.3g}."
    ]


def _smallest(tradeoff: TradeOff, what: str) -> list[str]:
    try:
        smallest = tradeoff.difference()
    except InvalidInput:
        return []
    low, high = smallest.low, smallest.high
    n = len(smallest.each)
    if n < 2:
        return [
            f"At equal Gini index {result.FAIR} has at least {smallest.mean:.3g} {what} more than "
            f"{result.FLOOR} (one seed: no interval)."
        ]
    sure = "" if low > 0.0 else " So it is not sure that it has more everywhere."
    return [
        f"At equal Gini index {result.FAIR} has at least {smallest.mean:.3g} {what} more than "
        f"{result.FLOOR} (95 % interval over {n} seeds: {low:.3g} to {high:.3g}).{sure}"
    ]


def _end(fair: list[Row], what: str) -> list[str]:
    end = _end_of_gains(fair)
    first, last = fair[end], fair[-1]
    if first is last:
        return []
    less = _percent_less(last, first)
    lost = f", and {less:.1f} % of {what} are lost" if less > 0.0 else ""
    return [
        f"Beyond beta = {first['beta']:.3g} nothing is gained: the Gini index stays near "
        f"{last['gini']:.2f}{lost} up to beta = {last['beta']:.3g}."
    ]


def _percent_less(one: Row, other: Row) -> float:
    less: float = 100.0 * (other["utility"] - one["utility"]) / abs(other["utility"])
    return less
