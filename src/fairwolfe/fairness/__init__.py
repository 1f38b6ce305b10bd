"""How fair rankings are: measures, the trade-off between users and items, and help in choosing."""

from fairwolfe.fairness.elicit import Elicitation, elicit
from fairwolfe.fairness.frontier import Reachable
from fairwolfe.fairness.tradeoff import TradeOff, tradeoff

__all__ = ["Elicitation", "Reachable", "TradeOff", "elicit", "tradeoff"]
