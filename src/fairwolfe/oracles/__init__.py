"""Online regression of the rewards on the features, over which bandits explore."""

from fairwolfe.oracles.linear_state import LinearState, RegretBound
from fairwolfe.oracles.online_gradient import OnlineGradient
from fairwolfe.oracles.ridge import Ridge
from fairwolfe.oracles.sklearn_regressor import SklearnRegressor

__all__ = [
    "LinearState",
    "OnlineGradient",
    "RegretBound",
    "Ridge",
    "SklearnRegressor",
]
