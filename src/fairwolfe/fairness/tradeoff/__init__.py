"""The trade-off of utility and fairness: the best possible, and what policies learn to reach."""

from fairwolfe.fairness.tradeoff.frontier import Frontier
from fairwolfe.fairness.tradeoff.plan import Plan, item_objective, plan, tradeoff
from fairwolfe.fairness.tradeoff.reachable import Reachable
from fairwolfe.fairness.tradeoff.result import Difference, TradeOff

__all__ = [
    "Difference",
    "Frontier",
    "Plan",
    "Reachable",
    "TradeOff",
    "item_objective",
    "plan",
    "tradeoff",
]
