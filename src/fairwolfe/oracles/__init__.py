"""Online regression of the rewards on the features, over which bandits explore."""

from fairwolfe.oracles.linear_state import LinearOracle, LinearState, RegretBound
from fairwolfe.oracles.online_gradient import OnlineGradient
from fairwolfe.oracles.ridge import Ridge

__all__ = ["LinearOracle", "LinearState", "OnlineGradient", "RegretBound", "Ridge"]
