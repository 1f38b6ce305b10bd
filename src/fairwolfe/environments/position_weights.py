"""Position weights: how likely each slot of a ranking is to be exposed, best slot first."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix
from fairwolfe.core.problem import whole_number
from fairwolfe.errors import InvalidInput

__all__ = ["body", "dcg"]


def dcg(n_slots: int) -> tuple[float, ...]:
    """b_j = 1/log2(1 + j), j = 1..k: those of the discounted cumulative gain.

    Reference: appendix of the paper, "Fair ranking", "Environments".

    >>> [round(b, 4) for b in dcg(4)]
    [1.0, 0.6309, 0.5, 0.4307]
    """
    k = whole_number("n_slots", n_slots)
    return tuple(1.0 / math.log2(1 + j) for j in range(1, k + 1))


def body(n_slots: int) -> tuple[float, ...]:
    """b_j = log 2/(1 + log j), as printed in the body of the paper.

    Most likely a misprint of log 2/log(1 + j), which is `dcg`; the first slot has .69 here.

    Reference: Section 5 of the paper.

    >>> [round(b, 4) for b in body(4)]
    [0.6931, 0.4094, 0.3303, 0.2905]
    """
    k = whole_number("n_slots", n_slots)
    return tuple(math.log(2.0) / (1.0 + math.log(j)) for j in range(1, k + 1))


def checked(weights: Any, n_users: int, n_items: int) -> Matrix:
    """Weights as a table of one row for all users, or of one for each; raises if not valid."""
    try:
        table = np.atleast_2d(np.array(weights, dtype=np.float64, order="C"))
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"position_weights is not an array of numbers: {error}") from error
    if table.ndim != 2 or table.shape[1] == 0 or len(table) not in (1, n_users):
        raise InvalidInput(
            f"position_weights has shape {np.shape(weights)}; give a number for each slot, or one "
            f"row of them for each of the {n_users} users"
        )
    if table.shape[1] > n_items:
        raise InvalidInput(
            f"there are {table.shape[1]} position weights and {n_items} items; a ranking shows an "
            f"item at most once, so give at most {n_items}, such as dcg({n_items})"
        )
    ordered = (np.diff(table, axis=1) <= 0.0).all()
    if not (ordered and table.max() <= 1.0 and table.min() >= 0.0):  # NaN fails too
        raise InvalidInput(
            f"position_weights is {np.array2string(table, threshold=20)}; they are probabilities "
            "in [0, 1] that never increase from slot to slot"
        )
    return table
