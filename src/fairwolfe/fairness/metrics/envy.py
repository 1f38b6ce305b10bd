"""Envy between users: who would rather have been shown what another was shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairwolfe.core.arrays import Matrix, Vector
from fairwolfe.core.problem import all_finite
from fairwolfe.errors import InvalidInput

__all__ = ["Envy", "envy"]

_BLOCK = 1 << 22  # pairs of users compared together: 32 MB
_ROUNDING = 1e-12  # what is envied less, in units of the largest utility, is not counted


@dataclass(frozen=True, eq=False)
class Envy:
    """Envy of i for j: u_i(what j is shown) - u_i(what i is shown), counted where positive."""

    each: Vector
    """Of every user: the largest envy for anyone, 0 if there is none."""
    pairs: float
    """Mean over all ordered pairs of different users."""

    @property
    def mean(self) -> float:
        """Mean over users of the largest envy."""
        return float(self.each.mean())

    @property
    def largest(self) -> float:
        """The largest envy of all."""
        return float(self.each.max())

    @property
    def share(self) -> float:
        """The share of users who envy someone."""
        return float((self.each > 0.0).mean())


def envy(exposures: Any, preferences: Any) -> Envy:
    """Envy among users, from what each is shown and what each likes, both (users, items).

    u_i(e) = sum over items of preferences[i] e. O(users^2 items), in blocks of users, so that
    memory stays at a few tens of megabytes beside the two tables.

    Reference: Do, Corbett-Davies, Atif and Usunier (2022), "Online certification of
    preference-based fairness for personalized recommender systems".

    >>> result = envy([[1.0, 0.0], [0.0, 1.0]], [[0.2, 0.9], [0.3, 0.5]])
    >>> round(result.mean, 3), round(result.largest, 3), result.share
    (0.35, 0.7, 0.5)
    """
    shown, liked = _table("exposures", exposures), _table("preferences", preferences)
    if shown.shape != liked.shape:
        raise InvalidInput(
            f"exposures have shape {shown.shape} and preferences {liked.shape}; give both as "
            "(users, items)"
        )
    n = len(shown)
    own = np.einsum("ij,ij->i", liked, shown)
    nothing = _ROUNDING * float(np.abs(own).max())
    each, total = np.empty(n), 0.0
    size = max(1, _BLOCK // n)
    for start in range(0, n, size):
        rows = slice(start, start + size)
        more = liked[rows] @ shown.T - own[rows, None]
        more[more <= nothing] = 0.0
        each[rows] = more.max(axis=1)
        total += float(more.sum())
    return Envy(each, total / max(n * (n - 1), 1))


def _table(name: str, values: Any) -> Matrix:
    try:
        table = np.ascontiguousarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(f"{name} is not a table of numbers: {error}") from error
    if table.ndim != 2 or table.size == 0:
        raise InvalidInput(f"{name} has shape {table.shape}; give a table, shape (users, items)")
    if not all_finite(table):
        raise InvalidInput(f"{name} holds NaN or an infinity; give finite numbers only")
    return table
