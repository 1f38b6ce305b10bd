"""How fair rankings are: measures, and the trade-off between users and items."""

from fairwolfe.fairness.tradeoff import TradeOff, tradeoff

__all__ = ["TradeOff", "tradeoff"]
