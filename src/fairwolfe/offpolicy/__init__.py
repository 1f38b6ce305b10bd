"""What another policy would have earned, and which is the best, from logged decisions alone."""

from fairwolfe.offpolicy.checking import Check
from fairwolfe.offpolicy.estimate import Difference, Estimate, Level
from fairwolfe.offpolicy.learning import Mixture
from fairwolfe.offpolicy.log import Log

__all__ = ["Check", "Difference", "Estimate", "Level", "Log", "Mixture"]
