"""Which features are accepted at all."""

from __future__ import annotations

import math

from fairwolfe.core.problem import Problem

__all__ = ["row_limit"]

_TIMES = 1000.0


def row_limit(problem: Problem, ridge: float) -> float:
    """The largest norm of a row of features that is accepted: 1,000 max(feature_norm, sqrt(ridge)).

    A row of norm r beside others of norm 1 gives the design a condition number of r^2/ridge, and
    costs twice as many digits as r has: what is this far beyond the problem is a mistake.
    """
    return _TIMES * max(problem.feature_norm, math.sqrt(ridge))
