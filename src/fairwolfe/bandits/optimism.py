"""Optimism: how much of the confidence widths is added to estimates, and their numbers."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np

from fairwolfe.core.arrays import Vector
from fairwolfe.core.problem import Problem, number_where
from fairwolfe.oracles.linear_state import noise_scales, parameter_norms

__all__ = ["Exploration", "exploration_number", "shared_doubt"]

Exploration = float | Literal["pointwise"]
"""How much of the theory's bonus is added, or the name of the bonus that replaces it."""

_POINTWISE = -1.0  # in the place of the exploration in params, where numbers are 0 or more


def exploration_number(exploration: Any) -> float:
    """What params have for an exploration: itself, or -1 for "pointwise"."""
    if isinstance(exploration, str) and exploration == "pointwise":
        return _POINTWISE
    allowed = "a number of at least 0, or 'pointwise'"
    return number_where("exploration", exploration, lambda number: number >= 0.0, allowed)


def shared_doubt(problem: Problem, ridge: float, delta: float, exploration: float = 1.0) -> Vector:
    """Of the bonus in a shared model: exploration, 2 ln(1/delta_1); R_i; sqrt(ridge) D_theta_i.

    With exploration 1 the scores are upper bounds with probability 1 - delta, at all times.
    """
    head = [exploration, 2.0 * math.log(2.0 * problem.n_objectives / delta)]
    prior = math.sqrt(ridge) * parameter_norms(problem)
    return np.concatenate([head, noise_scales(problem), prior])
