"""What another policy would have earned, and which is the best, from logged decisions alone."""

from fairwolfe.offpolicy.checking import Check
from fairwolfe.offpolicy.estimate import (
    Estimate,
    EstimatedDifference,
    EstimatedFrontier,
    Level,
    Point,
)
from fairwolfe.offpolicy.evaluation import Log
from fairwolfe.offpolicy.learning import Mixture, RankingMixture

__all__ = [
    "Check",
    "Estimate",
    "EstimatedDifference",
    "EstimatedFrontier",
    "Level",
    "Log",
    "Mixture",
    "Point",
    "RankingMixture",
]
