"""Online regression of the rewards on the features, over which bandits explore."""

from fairwolfe.oracles.linear_regression import LinearState, OnlineGradient, RegretBound, Ridge
from fairwolfe.oracles.sklearn_regressor import SklearnRegressor

__all__ = [
    "LinearState",
    "OnlineGradient",
    "RegretBound",
    "Ridge",
    "SklearnRegressor",
]
