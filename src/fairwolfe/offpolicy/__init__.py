"""What another policy would have earned, and which is the best, from logged decisions alone."""

from fairwolfe.offpolicy.checking import Check
from fairwolfe.offpolicy.estimate import Difference, Estimate, Level
from fairwolfe.offpolicy.learning import Mixture
from fairwolfe.offpolicy.log import Log
from fairwolfe.offpolicy.ranking_mixture import RankingMixture
from fairwolfe.offpolicy.tradeoff import Frontier, Point

__all__ = [
    "Check",
    "Difference",
    "Estimate",
    "Frontier",
    "Level",
    "Log",
    "Mixture",
    "Point",
    "RankingMixture",
]
