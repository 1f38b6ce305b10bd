"""Concave functions of the average reward vector, each with value, supergradient and smoothing.

Add them, multiply them by numbers >= 0, aim them with ``.on(...)``:

>>> from fairwolfe.objectives import AtMost, Linear
>>> f = Linear({"clicks": 1.0, "minutes": 0.5}) + AtMost({"cost": 0.01})
>>> f.terms[0]
Linear({'clicks': 1.0, 'minutes': 0.5})
"""

from fairwolfe.objectives.combine import On, Scaled, Sum
from fairwolfe.objectives.concave import Concave
from fairwolfe.objectives.custom import Custom
from fairwolfe.objectives.gini import (
    EqualExposure,
    GeneralizedGini,
    GiniEquality,
    GiniWelfare,
    Minimum,
)
from fairwolfe.objectives.linear import Linear
from fairwolfe.objectives.mapped import ByGroup, Mapped, PerMerit
from fairwolfe.objectives.threshold import AtLeast, AtMost, Within
from fairwolfe.objectives.two_sided import TwoSided
from fairwolfe.objectives.welfare import Nash, Welfare

__all__ = [
    "AtLeast",
    "AtMost",
    "ByGroup",
    "Concave",
    "Custom",
    "EqualExposure",
    "GeneralizedGini",
    "GiniEquality",
    "GiniWelfare",
    "Linear",
    "Mapped",
    "Minimum",
    "Nash",
    "On",
    "PerMerit",
    "Scaled",
    "Sum",
    "TwoSided",
    "Welfare",
    "Within",
]
