"""Measures of fairness: how exposure is shared, who envies whom, how far a ranking has moved.

>>> gini_index([3.0, 1.0]), bottom_share([3.0, 1.0])
(0.25, 0.25)
"""

from fairwolfe.fairness.metrics.envy import Envy, envy
from fairwolfe.fairness.metrics.rank_distance import kendall_distance
from fairwolfe.fairness.metrics.shown import ShownToUsers, shown_to_users
from fairwolfe.simulation.exposure import (
    GroupShare,
    bottom_share,
    by_group,
    exposure,
    gini_index,
    lorenz,
    top_share,
    utility,
)

__all__ = [
    "Envy",
    "GroupShare",
    "ShownToUsers",
    "bottom_share",
    "by_group",
    "envy",
    "exposure",
    "gini_index",
    "kendall_distance",
    "lorenz",
    "shown_to_users",
    "top_share",
    "utility",
]
